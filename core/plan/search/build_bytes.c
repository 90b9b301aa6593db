/* Bytes of layers: an instance has one number for all kinds of devices, on which they may differ.
 *
 *   all kinds     of each pool the least, of these the largest, so that a plan fits everywhere
 *   with leads    of the pools of these alone. On another kind a layer takes at most `ratio` times that, so its capacity and its
 *                 work memory count by that part: what fits in the instance fits on the device
 *
 * What the layers of a pool take more on one of its kinds is subtracted from that kind's capacity: for as many layers as it has
 * room for next to its work memory and its end of the model.
 */
#include "plan/search/build_internal.h"

#include "base/mem.h"

#include <math.h>

#define NEW(b, v, n)                                                                               \
    if (!((v) = tsr_plan_build_alloc(b, n, sizeof *(v))))                                          \
    return tsr_fail_nomem(err, n, "a planning problem")

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Weights, cache and residuals of one layer on a kind. */
static tsr_status layer_bytes(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                              uint64_t bits, uint64_t *bytes, struct tsr_err *err)
{
    const struct tsr_plan_problem   *p = b->p;
    const struct tsr_plan_item      *item = tsr_plan_built_item(b, bits);
    const struct tsr_plan_candidate *of = &p->candidates.v[item->candidate];
    struct tsr_plan_memory_job       job = tsr_plan_built_memory(b, item);
    struct tsr_plan_compensation     comp;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_plan_mesh             m = b->meshes.kinds[kind].mesh;
    uint64_t                         w, kv;
    m.cpu_experts = item->on_cpu;
    tsr_status st = tsr_plan_memory_layer(&job, &m, cls, of, &w, &kv, &e.err);
    if (st != TSR_OK)
        return tsr_fail(err, st == TSR_E_UNSUPPORTED ? TSR_E_INPUT : st, "candidate %s: %s",
                        of->name, e.text);
    TSR_TRY(tsr_plan_build_compensation(b, kind, cls, item, &comp, err));
    uint64_t residuals = tsr_plan_compensation_host(&m) ? 0 : comp.bytes - comp.on_cpu;
    return tsr_add(w, kv, bytes) && tsr_add(*bytes, residuals, bytes) &&
                   tsr_add(*bytes, comp.scales, bytes)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "a layer takes more bytes than can be counted");
}

/* Bytes of units, [classes][Q], from those of layers, [shape classes][Q]. */
static tsr_status unit_bytes(const struct tsr_plan_built *b, const uint32_t *counts,
                             const uint64_t *layer, uint64_t *out, struct tsr_err *err)
{
    uint64_t q = b->whole.bits, sc = b->p->shape->classes, n;
    for (uint64_t c = 0; c < b->whole.classes; c++)
        for (uint64_t i = 0; i < q; i++)
            for (uint64_t s = 0; s < sc; s++)
                if (!tsr_mul(layer[s * q + i], counts[c * sc + s], &n) ||
                    !tsr_add(out[c * q + i], n, &out[c * q + i]))
                    return tsr_fail(err, TSR_E_INPUT, "layers take more bytes than can be counted");
    return TSR_OK;
}

/* Of each pool the least; of these, with leads of theirs alone, the largest.  all: [kinds][n]. */
static void of_layers(const struct tsr_plan_built *b, const uint64_t *all, uint64_t n,
                      uint64_t *layer)
{
    const struct tsr_plan_mesh_kind *kind = b->meshes.kinds;
    for (uint64_t k = 0, next; k < b->meshes.n_kinds; k = next) {
        for (next = k; next < b->meshes.n_kinds && kind[next].pool == kind[k].pool; next++)
            ;
        for (uint64_t e = 0; e < n && (!b->leads || b->leads[kind[k].group]); e++) {
            uint64_t least = UINT64_MAX;
            for (uint64_t j = k; j < next; j++)
                least = all[j * n + e] < least ? all[j * n + e] : least;
            layer[e] = larger(layer[e], least);
        }
    }
}

/* Whether the numbers of kinds have to hold for an item: of a bound (problem.h) only for those that every plan may have. */
static bool counts_item(const struct tsr_plan_built *b, uint64_t item)
{
    return b->items[item].k <= b->p->work_k;
}

/* How many times its number a layer takes on a kind, at most.  own, layer: [n / Q][Q]. */
static double ratio_of(const struct tsr_plan_built *b, const uint64_t *own, const uint64_t *layer,
                       uint64_t n)
{
    double most = 1;
    for (uint64_t e = 0; e < n; e++)
        if (counts_item(b, e % b->whole.bits))
            most = fmax(most, own[e] ? (double)own[e] / (double)layer[e] : 1);
    return most;
}

tsr_status tsr_plan_build_bytes(struct tsr_plan_built *b, const uint32_t *counts,
                                struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    uint64_t                       q = b->whole.bits, sc = p->shape->classes;
    uint64_t                      *out, *layer, *all;
    NEW(b, out, b->whole.classes * q);
    NEW(b, layer, sc * q);
    NEW(b, all, b->meshes.n_kinds * sc * q);
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++)
        for (uint64_t e = 0; e < sc * q; e++)
            TSR_TRY(layer_bytes(b, k, e / q, e % q, &all[k * sc * q + e], err));
    of_layers(b, all, sc * q, layer);
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++) {
        struct tsr_plan_built_kind *kind = &b->kinds[k];
        uint64_t                   *own;
        NEW(b, own, b->whole.classes * q);
        TSR_TRY(unit_bytes(b, counts, all + k * sc * q, own, err));
        kind->alone_capacity = kind->capacity;
        kind->layer_bytes = own;
        kind->ratio = 1;
        if (b->leads && !b->leads[b->meshes.kinds[k].group]) {
            kind->ratio = ratio_of(b, all + k * sc * q, layer, sc * q);
            continue;
        }
        kind->least = UINT64_MAX;
        for (uint64_t l = 0; l < p->shape->layers; l++) {
            uint64_t c = p->shape->layer_class[l], more = 0;
            for (uint64_t i = 0; i < q; i++) {
                uint64_t bytes = all[(k * sc + c) * q + i];
                more = larger(more, above(bytes, layer[c * q + i]));
                kind->least = layer[c * q + i] < kind->least ? layer[c * q + i] : kind->least;
            }
            kind->most_more = larger(kind->most_more, more);
            if (!tsr_add(kind->more, more, &kind->more))
                return tsr_fail(err, TSR_E_INPUT, "layers take more bytes than can be counted");
        }
    }
    b->whole.layer_bytes = out;
    return unit_bytes(b, counts, layer, out, err);
}

/* What the layers that fit on a kind take more there than in the instance, at most.  With so much less room no more layers
 * than `fit` are there: one more and what `fit` take more is above the room.  Of a bound (problem.h) nothing: with more room
 * than its settings have, it would count more layers than they do.  A kind for an end that it cannot have holds layers alone. */
static uint64_t more_on(const struct tsr_plan_built *b, uint64_t k,
                        const struct tsr_plan_build_ends *ends)
{
    const struct tsr_plan_built_kind *kind = &b->kinds[k];
    enum tsr_plan_role                role = b->meshes.kinds[k].role;
    uint64_t                          least = UINT64_MAX, more;
    if (b->p->work_k < b->p->most_k)
        return 0;
    for (uint64_t i = 0; i < b->whole.n_options; i++) {
        uint64_t end = role == TSR_PLAN_FIRST_STAGE && !kind->no_first ? ends[i].embed
                       : role == TSR_PLAN_LAST_STAGE && !kind->no_last ? ends[i].head
                                                                       : 0;
        uint64_t need = b->whole.options[i]->workspace_bytes[k];
        if (tsr_add(need, end, &need))
            least = need < least ? need : least;
    }
    uint64_t room = above(kind->capacity, least), each, fit = 0;
    if (!tsr_add(kind->least, kind->most_more, &each) || each == 0)
        return kind->more;
    if (room >= kind->least)
        fit = (room - kind->least) / each + 1;
    return tsr_mul(fit, kind->most_more, &more) && more < kind->more ? more : kind->more;
}

void tsr_plan_build_scale(struct tsr_plan_built *b, const struct tsr_plan_build_ends *ends)
{
    for (uint64_t k = 0; k < b->whole.n_kinds; k++) {
        struct tsr_solver_kind *kind = (struct tsr_solver_kind *)(uintptr_t)b->whole.kinds[k];
        double                  ratio = b->kinds[k].ratio;
        kind->capacity_bytes = tsr_capacity_left(b->kinds[k].capacity, b->lost[k]);
        kind->capacity_bytes = tsr_capacity_left(kind->capacity_bytes, more_on(b, k, ends));
        if (!(ratio > 1))
            continue;
        kind->capacity_bytes = (uint64_t)((double)kind->capacity_bytes / ratio * (1 - 1e-12));
        for (uint64_t i = 0; i < b->whole.n_options; i++) {
            uint64_t *work = (uint64_t *)(uintptr_t)b->whole.options[i]->workspace_bytes;
            work[k] = (uint64_t)ceil((double)work[k] / ratio * (1 + 1e-12));
        }
    }
}
