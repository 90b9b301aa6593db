/* Which candidates may have their experts in the memory of a CPU. */
#include "plan/search/build_internal.h"

#include "base/mem.h"

#include <string.h>

#define ON_CPU ", experts on the CPU"

tsr_status tsr_plan_build_name(struct tsr_plan_built *b, const char *candidate, const char **name,
                               struct tsr_err *err)
{
    size_t n = strlen(candidate) + sizeof ON_CPU;
    char  *text = tsr_plan_build_alloc(b, n, 1);
    if (!text)
        return tsr_fail_nomem(err, n, "a planning problem");
    (void)snprintf(text, n, "%s" ON_CPU, candidate);
    *name = text;
    return TSR_OK;
}

/* Bytes of the experts of all layers in a CPU's memory, each at the largest of `set` candidates. */
static tsr_status largest(const struct tsr_plan_built *b, const struct tsr_plan_mesh *m,
                          uint64_t set, uint64_t *bytes, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    *bytes = 0;
    for (uint64_t l = 0; l < p->shape->layers; l++) {
        uint64_t most = 0;
        for (uint64_t i = 0; i < p->candidates.n; i++) {
            uint64_t n;
            if (!(set >> i & 1))
                continue;
            TSR_TRY(tsr_plan_memory_experts(&p->memory, m, p->shape->layer_class[l],
                                            &p->candidates.v[i], &n, err));
            most = n > most ? n : most;
        }
        if (!tsr_add(*bytes, most, bytes))
            return tsr_fail(err, TSR_E_INPUT, "experts take more bytes than can be counted");
    }
    return TSR_OK;
}

/* Smaller ones first, as long as all layers with any of them fit. */
static tsr_status places(const struct tsr_plan_built *b, const struct tsr_plan_mesh *m,
                         uint64_t *set, struct tsr_err *err)
{
    uint64_t n = b->p->candidates.n, has = tsr_plan_memory_host(m), tried = 0;
    *set = 0;
    if (!m->cpu)
        return TSR_OK;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t least = UINT64_MAX, at = 0, bytes;
        for (uint64_t k = 0; k < n; k++) {
            if (tried >> k & 1)
                continue;
            TSR_TRY(largest(b, m, UINT64_C(1) << k, &bytes, err));
            if (bytes < least) {
                least = bytes;
                at = k;
            }
        }
        tried |= UINT64_C(1) << at;
        TSR_TRY(largest(b, m, *set | UINT64_C(1) << at, &bytes, err));
        if (bytes <= has || b->p->given)
            *set |= UINT64_C(1) << at;
    }
    return TSR_OK;
}

tsr_status tsr_plan_build_places(struct tsr_plan_built *b, struct tsr_err *err)
{
    for (uint64_t k = 0; b->places && k < b->whole.n_kinds; k++)
        TSR_TRY(places(b, &b->meshes.kinds[k].mesh, &b->kinds[k].on_cpu, err));
    return TSR_OK;
}
