/* Bytes of layers and ends, exactly as the engine and its backend take them. */
#include "plan/cost/memory_internal.h"
#include "plan/cost/workload.h"

#include "base/f16.h"
#include "engine/delta.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "plan/cost/memory_paper.h"
#include "plugin/kv_sizes.h"
#include "quant/block.h"

#include <stdlib.h>
#include <string.h>

/* The backends that profiles name, opened once. */
struct tsr_size_cache {
    struct {
        char                       name[48];
        struct tsr_engine_device  *dev;
        const struct tsr_sizes_v1 *sizes; /* NULL: it does not say */
    } v[8];
    uint32_t n;
};

tsr_status tsr_plan_memory_open(struct tsr_plan_memory_job *j, struct tsr_err *err)
{
    j->cache = tsr_new(1, sizeof *j->cache);
    return j->cache ? TSR_OK : tsr_fail_nomem(err, sizeof *j->cache, "sizes of backends");
}

void tsr_plan_memory_close(struct tsr_plan_memory_job *j)
{
    for (uint32_t i = 0; j->cache && i < j->cache->n; i++)
        tsr_engine_device_close(j->cache->v[i].dev);
    free(j->cache);
    j->cache = NULL;
}

tsr_status tsr_plan_memory_sizes(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 const struct tsr_sizes_v1 **sizes, const void **self,
                                 struct tsr_err *err)
{
    struct tsr_size_cache *c = j->cache;
    const char            *name = m->profile->backend;
    *sizes = NULL;
    if (!name || !j->registry || !c)
        return TSR_OK;
    uint32_t i = 0;
    while (i < c->n && strcmp(c->v[i].name, name) != 0)
        i++;
    if (i == c->n) {
        if (i == sizeof c->v / sizeof *c->v || strlen(name) >= sizeof c->v[0].name)
            return tsr_fail(err, TSR_E_INPUT, "backend '%.60s': too many backends in one cluster",
                            name);
        TSR_TRY(tsr_engine_device_open(&c->v[i].dev, j->registry, name, j->numerics, err));
        const struct tsr_backend_v1 *iface = c->v[i].dev->iface;
        const void                  *t =
            iface->extension ? iface->extension(c->v[i].dev->self, TSR_SIZES_EXTENSION) : NULL;
        c->v[i].sizes = t;
        (void)snprintf(c->v[i].name, sizeof c->v[i].name, "%s", name);
        c->n++;
    }
    *sizes = c->v[i].sizes;
    *self = c->v[i].dev->self;
    return TSR_OK;
}

tsr_status tsr_plan_memory_too_large(struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT, "the sizes of this model and workload overflow 64 bits");
}

static void describe(const struct tsr_plan_shape_matrix *m, const struct tsr_format *f,
                     struct tsr_weight_desc *d)
{
    bool dense = strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
    *d = (struct tsr_weight_desc){ .struct_size = sizeof *d,
                                   .name = "a linear",
                                   .format = f,
                                   .rows = m->rows,
                                   .cols = m->cols,
                                   .code_stride = dense ? m->cols * tsr_dtype_size(f->dtype)
                                                        : tsr_model_format_code_bytes(f, m->cols),
                                   .meta_stride =
                                       dense ? 0 : tsr_model_format_meta_bytes(f, m->cols) };
}

tsr_status tsr_plan_memory_matrix(const struct tsr_plan_memory_job *j,
                                  const struct tsr_plan_mesh *m, const struct tsr_plan_candidate *c,
                                  const struct tsr_plan_shape_matrix *of, uint64_t tokens,
                                  uint64_t *bytes, uint64_t *scratch, struct tsr_err *err)
{
    const struct tsr_sizes_v1 *sizes;
    const void                *self = NULL;
    struct tsr_format          f;
    struct tsr_weight_desc     d;
    const struct tsr_format    f32 = { .struct_size = sizeof f32,
                                       .dtype = TSR_F32,
                                       .id = TSR_FORMAT_FLOAT };
    *bytes = *scratch = 0;
    if (of->rows == 0)
        return TSR_OK;
    TSR_TRY(tsr_plan_candidate_matrix(c, of, &f, bytes, err));
    TSR_TRY(tsr_plan_memory_sizes(j, m, &sizes, &self, err));
    bool     known = tsr_model_format_known(&f) && tsr_model_format_fits(&f, of->cols);
    uint64_t own = 0, block = 0;
    TSR_TRY(tsr_plan_candidate_own(c, of, &own, &block, err));
    if (own)
        *bytes = own;
    if (!sizes)
        return TSR_OK;
    describe(of, known ? &f : &f32, &d);
    tsr_status st = sizes->weight(self, &d, bytes, err);
    if (st == TSR_E_UNSUPPORTED) {
        describe(of, &f32, &d);
        st = sizes->weight(self, &d, bytes, err);
    }
    if (st == TSR_OK && tokens)
        st = sizes->linear(self, &d, TSR_ACT_A8, tokens, scratch, err);
    if (own) { /* the host has it, and the device a block at a time */
        *bytes = own;
        if (tokens && !tsr_add(*scratch, block, scratch))
            return tsr_plan_memory_too_large(err);
    }
    return st;
}

bool tsr_plan_memory_kv_rows(const struct tsr_plan_memory_job *j, uint64_t window, uint64_t *rows)
{
    uint64_t chunk = j->chunk ? j->chunk : TSR_PLAN_FORWARD;
    chunk = chunk > j->batch ? chunk : j->batch;
    if (!tsr_add(j->prompt, j->generate, rows))
        return false;
    if (window)
        *rows = tsr_engine_window_rows(window, chunk, *rows);
    *rows = tsr_engine_kv_rows(j->blocks || tsr_plugin_kv_has_blocks(j->kv), *rows);
    return true;
}

bool tsr_plan_memory_cache(const struct tsr_plan_memory_job *j, uint64_t cls, uint32_t tp,
                           uint64_t *bytes)
{
    uint64_t rows;
    return tsr_plan_memory_kv_rows(j, j->shape->layer[cls].window, &rows) &&
           tsr_engine_kv_bytes(j->kv, j->shape->kv_heads / tp, j->shape->head_dim, j->batch, rows,
                               bytes);
}

/* Linears of one rank: those of experts, or the others, or all. */
enum some { EXPERTS, OTHERS, ALL };
static tsr_status linears(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                          uint64_t cls, const struct tsr_plan_candidate *c, enum some some,
                          uint64_t *rank, struct tsr_err *err)
{
    const struct tsr_plan_shape_layer *l = &j->shape->layer[cls];
    bool     stored = *j->shape->packed && !(c && (c->mixed || c->q.self));
    uint32_t groups = stored || (c && c->mixed) ? tsr_plan_shape_groups(j->shape) : 1;
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        for (uint32_t g = 0; g < groups; g++) {
            struct tsr_plan_shape_matrix part = l->lin[i];
            uint64_t                     bytes, none;
            if (groups > 1)
                part = tsr_plan_shape_matrix_of(j->shape, l, i, g);
            part = tsr_plan_shape_part(&part, (enum tsr_linear_id)i, m->tp ? m->tp : 1,
                                       m->whole_experts);
            if (part.rows == 0 || part.count == 0 ||
                (some != ALL && tsr_plan_shape_is_expert(l, i) != (some == EXPERTS)))
                continue;
            TSR_TRY(tsr_plan_memory_matrix(j, m, tsr_plan_candidate_part(c, i, g), &part, 0, &bytes,
                                           &none, err));
            if (!tsr_plan_memory_add(rank, bytes, part.count) ||
                (part.bias && !tsr_plan_memory_add(rank, part.rows * part.count, 4)))
                return tsr_plan_memory_too_large(err);
        }
    return TSR_OK;
}

tsr_status tsr_plan_memory_experts(const struct tsr_plan_memory_job *j,
                                   const struct tsr_plan_mesh *m, uint64_t cls,
                                   const struct tsr_plan_candidate *c, uint64_t *bytes,
                                   struct tsr_err *err)
{
    const struct tsr_plan_mesh cpu = { .profile = m->cpu,
                                       .tp = m->tp,
                                       .whole_experts = m->whole_experts };
    uint64_t                   rank = 0;
    *bytes = 0;
    if (!j->shape->layer[cls].router.rows)
        return TSR_OK;
    if (!m->cpu)
        return tsr_fail(err, TSR_E_INPUT, "%s: nothing is known of the CPU next to it", m->name);
    TSR_TRY(linears(j, &cpu, cls, c, EXPERTS, &rank, err));
    return tsr_mul(rank, m->tp, bytes) ? TSR_OK : tsr_plan_memory_too_large(err);
}

tsr_status tsr_plan_memory_layer(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 uint64_t cls, const struct tsr_plan_candidate *c,
                                 uint64_t *weights, uint64_t *kv, struct tsr_err *err)
{
    const struct tsr_plan_shape_layer *l = &j->shape->layer[cls];
    uint64_t                           rank = 0, none;
    *weights = *kv = 0;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER) {
        bool given = c && (c->q.self || c->mixed || *j->shape->packed);
        tsr_plan_paper_layer(j, cls, given ? c->stored_bits : 16, weights, kv);
        return TSR_OK;
    }
    TSR_TRY(linears(j, m, cls, c, m->cpu_experts ? OTHERS : ALL, &rank, err));
    bool scaled = false;
    for (uint32_t g = 0; g < tsr_plan_shape_groups(j->shape); g++) {
        const struct tsr_plan_candidate *up = tsr_plan_candidate_part(c, TSR_MODEL_UP, g);
        scaled = scaled || (up && up->q.self && tsr_quant_block_searches(&up->q));
    }
    for (int i = 0; i < 2; i++) { /* whole on every rank, in its own dtype or with scaled columns */
        struct tsr_plan_shape_matrix r = i ? l->shared_router : l->router;
        uint64_t                     bytes;
        r.dtype = scaled ? TSR_F32 : r.dtype;
        TSR_TRY(tsr_plan_memory_matrix(j, m, NULL, &r, 0, &bytes, &none, err));
        if (!tsr_add(rank, bytes, &rank) || (r.bias && !tsr_plan_memory_add(&rank, r.rows, 4)))
            return tsr_plan_memory_too_large(err);
    }
    if (!tsr_plan_memory_add(&rank, l->norms, 4) ||
        !tsr_plan_memory_add(&rank, l->rule / m->tp, 4) || !tsr_mul(rank, m->tp, weights))
        return tsr_plan_memory_too_large(err);
    if (l->recurrent) { /* a state for each request, however long it is */
        struct tsr_model_delta part = tsr_plan_shape_delta(&j->shape->delta, m->tp);
        uint64_t               states;
        return tsr_mul(4 * tsr_delta_state_floats(&part), j->batch, &states) &&
                       tsr_mul(states, m->tp, kv)
                   ? TSR_OK
                   : tsr_plan_memory_too_large(err);
    }
    if (!tsr_plan_memory_cache(j, cls, m->tp, &rank) || !tsr_mul(rank, m->tp, kv))
        return tsr_plan_memory_too_large(err);
    return TSR_OK;
}
