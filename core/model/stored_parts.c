/* One part of a model as the stored tensors of its role: a view of each, for the visitor. */
#include "model/stored_internal.h"

#include "base/mem.h"
#include "model/bind.h"

#include <stdlib.h>
#include <string.h>

static bool holds(const struct tsr_model_stored_walk *w, uint64_t needs)
{
    return (needs & ~w->has) == 0;
}

static const char *suffix_of(const struct tsr_model_stored_walk *w, const struct tsr_model_role *r,
                             const char *suffix)
{
    return w->stacked ? suffix : tsr_model_role_suffix(r, suffix);
}

static tsr_status begin(const struct tsr_model_stored_walk *w, const struct tsr_model_role *r,
                        uint64_t layer, struct tsr_model_stored_view *v)
{
    v->role = r;
    v->layer = strchr(r->name, '#') ? layer : w->m->hp.layers;
    v->suffix = suffix_of(w, r, ".weight");
    v->n = 1;
    v->piece_rows = w->room.piece_rows;
    v->w = w->room.w;
    v->packed = w->room.packed;
    v->values = w->room.values;
    v->w[0] = NULL;
    v->packed[0] = NULL;
    v->values[0] = NULL;
    return tsr_model_role_name(v->module, sizeof v->module, r, w->family->prefixes[0], layer, "")
               ? TSR_OK
               : tsr_fail(w->err, TSR_E_BUG, "tensor name too long");
}

static void add(struct tsr_model_stored_view *v, unsigned i, const struct tsr_matrix *m,
                const struct tsr_model_packed *p)
{
    v->w[i] = m;
    v->packed[i] = p;
    v->piece_rows[i] = m->rows;
    v->rows += m->rows;
    v->cols = m->cols;
}

static tsr_status vector(const struct tsr_model_stored_walk *w, struct tsr_model_stored_view *v,
                         const float *values, uint64_t n)
{
    v->kind = TSR_MODEL_STORED_VECTOR;
    v->values[0] = values;
    v->rows = v->piece_rows[0] = n;
    v->cols = 1;
    return w->visit(w->ctx, v, w->err);
}

tsr_status tsr_model_stored_norm(const struct tsr_model_stored_walk *w,
                                 const struct tsr_model_role *r, uint64_t layer,
                                 const struct tsr_model_norm *n,
                                 const struct tsr_model_norm *folded)
{
    struct tsr_model_stored_view v = { .norm = true };
    if (!holds(w, r->weight))
        return TSR_OK;
    if (folded && folded->gain)
        n = folded;
    TSR_TRY(begin(w, r, layer, &v));
    uint64_t width = tsr_model_norm_width(&w->m->hp, r->part, &v.dim);
    TSR_TRY(vector(w, &v, n->gain, width));
    v.suffix = suffix_of(w, r, ".bias");
    return holds(w, r->bias) ? vector(w, &v, n->bias, width) : TSR_OK;
}

tsr_status tsr_model_stored_matrix(const struct tsr_model_stored_walk *w,
                                   const struct tsr_model_role *r, const struct tsr_matrix *m,
                                   const struct tsr_model_packed *p)
{
    struct tsr_model_stored_view v = { .kind = r->part == TSR_MODEL_PART_HEAD
                                                   ? TSR_MODEL_STORED_HEAD
                                                   : TSR_MODEL_STORED_MATRIX };
    if (!holds(w, r->weight))
        return TSR_OK;
    TSR_TRY(begin(w, r, 0, &v));
    add(&v, 0, m, p);
    TSR_TRY(w->visit(w->ctx, &v, w->err));
    if (r->part != TSR_MODEL_PART_HEAD || !holds(w, r->bias))
        return TSR_OK;
    struct tsr_model_stored_view bias = { .layer = 0 };
    TSR_TRY(begin(w, r, 0, &bias));
    bias.suffix = suffix_of(w, r, ".bias");
    return vector(w, &bias, w->m->head.bias, m->rows);
}

tsr_status tsr_model_stored_linears(const struct tsr_model_stored_walk *w,
                                    const struct tsr_model_role *r, uint64_t layer,
                                    const enum tsr_linear_id *ids, unsigned n, uint64_t groups)
{
    struct tsr_model_stored_view  v = { .kind = TSR_MODEL_STORED_LINEAR, .id = ids[0] };
    const struct tsr_model_layer *l = &w->m->layers[layer];
    if (!holds(w, r->weight) || !tsr_model_role_in_layer(&w->m->hp, r, layer))
        return TSR_OK;
    TSR_TRY(begin(w, r, layer, &v));
    v.n = n;
    v.stack = r->part == TSR_MODEL_PART_EXPERTS || r->part == TSR_MODEL_PART_EXPERTS_GATE_UP
                  ? w->m->hp.experts
                  : 0;
    v.transposed = r->transposed;
    v.groups = groups;
    if (r->either) /* of two shapes alike readers take the other one */
        v.transposed = n * l->lin[ids[0]].w.rows != l->lin[ids[0]].w.cols * v.stack;
    for (unsigned i = 0; i < n; i++) {
        add(&v, i, &l->lin[ids[i]].w, w->o ? w->o->lin[layer][ids[i]] : NULL);
        v.values[i] = NULL;
    }
    TSR_TRY(w->visit(w->ctx, &v, w->err));
    if (!holds(w, r->bias))
        return TSR_OK;
    v.kind = TSR_MODEL_STORED_VECTOR;
    v.suffix = suffix_of(w, r, ".bias");
    v.transposed = false;
    v.cols = 1;
    for (unsigned i = 0; i < n; i++) {
        v.w[i] = NULL;
        v.packed[i] = NULL;
        v.values[i] = l->lin[ids[i]].bias;
    }
    return w->visit(w->ctx, &v, w->err);
}

tsr_status tsr_model_stored_each_expert(const struct tsr_model_stored_walk *w,
                                        const struct tsr_model_role *r, uint64_t layer)
{
    for (uint64_t i = 0; i < w->m->hp.experts; i++) {
        struct tsr_model_role one;
        char                  name[TSR_FAMILY_NAME + 24];
        if (!tsr_model_role_of_expert(r, i, name, &one))
            return tsr_fail(w->err, TSR_E_BUG, "tensor name too long");
        TSR_TRY(tsr_model_stored_linears(w, &one, layer, &one.lin, 1, 0));
    }
    return TSR_OK;
}

/* A tensor of all experts' linears. */
tsr_status tsr_model_stored_all_experts(const struct tsr_model_stored_walk *w,
                                        const struct tsr_model_role *r, uint64_t layer)
{
    unsigned            each = r->part == TSR_MODEL_PART_EXPERTS ? 1 : 2;
    unsigned            n = each * w->m->hp.experts;
    enum tsr_linear_id *ids = tsr_new(n, sizeof *ids);
    if (!ids)
        return tsr_fail_nomem(w->err, n * sizeof *ids, r->name);
    for (unsigned i = 0; i < n; i++)
        ids[i] = tsr_model_expert_linear(i / each, each == 1 ? r->lin
                                                   : i % 2   ? TSR_MODEL_UP
                                                             : TSR_MODEL_GATE);
    uint64_t   turns = n && r->interleaved ? w->m->layers[layer].lin[ids[0]].w.rows : 0;
    tsr_status st = n ? tsr_model_stored_linears(w, r, layer, ids, n, turns) : TSR_OK;
    free(ids);
    return st;
}

tsr_status tsr_model_stored_stacked_experts(const struct tsr_model_stored_walk *w,
                                            const struct tsr_model_role *r, uint64_t layer)
{
    for (int kind = TSR_MODEL_GATE; kind <= TSR_MODEL_DOWN; kind++) {
        struct tsr_model_role one;
        if (!tsr_model_role_has_expert(r, (enum tsr_linear_id)kind))
            continue;
        tsr_model_role_stacked(r, (enum tsr_linear_id)kind, &one);
        TSR_TRY(tsr_model_stored_all_experts(w, &one, layer));
    }
    return TSR_OK;
}

tsr_status tsr_model_stored_sinks(const struct tsr_model_stored_walk *w,
                                  const struct tsr_model_role *r, uint64_t layer,
                                  const float *values)
{
    struct tsr_model_stored_view v = { .norm = false };
    if (!holds(w, r->weight))
        return TSR_OK;
    TSR_TRY(begin(w, r, layer, &v));
    return vector(w, &v, values, w->m->hp.heads);
}

tsr_status tsr_model_stored_router_correction(const struct tsr_model_stored_walk *w,
                                              const struct tsr_model_role *r, uint64_t layer)
{
    struct tsr_model_stored_view v = { .norm = false };
    if (!holds(w, r->weight) || !tsr_model_role_in_layer(&w->m->hp, r, layer))
        return TSR_OK;
    TSR_TRY(begin(w, r, layer, &v));
    v.dim = r->row ? w->m->hp.experts : 0;
    return vector(w, &v, w->m->layers[layer].router_correction, w->m->hp.experts);
}

tsr_status tsr_model_stored_delta_vector(const struct tsr_model_stored_walk *w,
                                         const struct tsr_model_role *r, uint64_t layer)
{
    struct tsr_model_stored_view v = { .norm = false };
    uint64_t                     n = 0;
    if (!holds(w, r->weight))
        return TSR_OK;
    const float *const *values =
        tsr_model_delta_vector(&w->m->hp, r->part, &w->m->layers[layer], &n, &v.dim);
    TSR_TRY(begin(w, r, layer, &v));
    return vector(w, &v, *values, n);
}
