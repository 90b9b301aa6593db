/* Candidates with their experts in the memory of a CPU. */
#include "plan/search/build_internal.h"

#include "base/mem.h"

#define NO_LIMIT                                                                                   \
    ((UINT64_C(1) << 53) -                                                                         \
     1) /* of a host that the cluster file does not describe; instance files hold it */

/* Experts and residuals of a class of layers in the memory of a device's host: the largest of all kinds. */
static tsr_status bytes_of(const struct tsr_plan_built *b, uint64_t cls,
                           const struct tsr_plan_item *item, uint64_t *most, struct tsr_err *err)
{
    *most = 0;
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++) {
        const struct tsr_plan_mesh  *m = &b->meshes.kinds[k].mesh;
        struct tsr_plan_compensation c;
        uint64_t                     n = 0;
        if (!m->cpu) /* whose size is not known */
            continue;
        if (item->on_cpu)
            TSR_TRY(tsr_plan_memory_experts(&b->p->memory, m, cls,
                                            &b->p->candidates.v[item->candidate], &n, err));
        TSR_TRY(tsr_plan_build_compensation(b, k, cls, item, &c, err));
        if (!tsr_add(n, tsr_plan_compensation_host(m) ? c.bytes : c.on_cpu, &n))
            return tsr_fail(err, TSR_E_INPUT, "residuals take more bytes than can be counted");
        *most = n > *most ? n : *most;
    }
    return TSR_OK;
}

/* The largest that all layers may take at any candidates. */
static bool all_fit(const struct tsr_plan_built *b, const uint64_t *bytes, const uint64_t *room)
{
    uint64_t q = b->whole.bits, all = 0;
    for (uint64_t u = 0; u < b->units; u++) {
        uint64_t most = 0;
        for (uint64_t i = 0; i < q; i++) {
            uint64_t n = bytes[b->whole.layer_class[u] * q + i];
            most = n > most ? n : most;
        }
        if (!tsr_add(all, most, &all))
            return false;
    }
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++)
        if (b->meshes.kinds[k].mesh.cpu && all > room[k])
            return false;
    return true;
}

tsr_status tsr_plan_build_host(struct tsr_plan_built *b, const uint32_t *counts,
                               struct tsr_err *err)
{
    uint64_t q = b->whole.bits, sc = b->p->shape->classes, one, sum;
    bool     some = b->places;
    for (uint64_t i = 0; i < q; i++)
        some = some || b->items[i].k;
    if (!some)
        return TSR_OK;
    uint64_t *bytes = tsr_plan_build_alloc(b, b->whole.classes * q, sizeof *bytes);
    uint64_t *room = tsr_plan_build_alloc(b, b->meshes.n_kinds, sizeof *room);
    if (!bytes)
        return tsr_fail_nomem(err, b->whole.classes * q, "a planning problem");
    for (uint64_t s = 0; s < sc; s++)
        for (uint64_t i = 0; i < q; i++) {
            TSR_TRY(bytes_of(b, s, &b->items[i], &one, err));
            for (uint64_t c = 0; c < b->whole.classes; c++)
                if (!tsr_mul(one, counts[c * sc + s], &sum) ||
                    !tsr_add(bytes[c * q + i], sum, &bytes[c * q + i]))
                    return tsr_fail(err, TSR_E_INPUT,
                                    "experts take more bytes than can be counted");
        }
    if (!room)
        return tsr_fail_nomem(err, b->meshes.n_kinds, "a planning problem");
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++)
        TSR_TRY(tsr_plan_memory_host_left(&b->p->memory, &b->meshes.kinds[k].mesh, &room[k], &one,
                                          err));
    if (all_fit(b, bytes, room))
        return TSR_OK;
    b->whole.host_bytes = bytes;
    for (uint64_t k = 0; k < b->whole.n_kinds; k++)
        ((struct tsr_solver_kind *)(uintptr_t)b->whole.kinds[k])->host_capacity_bytes =
            b->meshes.kinds[k].mesh.cpu ? room[k] : NO_LIMIT;
    return TSR_OK;
}
