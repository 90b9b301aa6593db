/* From parts back to the stored tensors: the walk over the family's roles that bind.c does, the
 * other way round. */
#include "model/stored.h"

#include "base/mem.h"
#include "base/output.h"
#include "model/bind.h"
#include "model/text_names.h"

#include <stdlib.h>
#include <string.h>

#define FUSED TSR_MODEL_FUSED /* pieces of a fused tensor without experts, at most */

struct walk {
    const struct tsr_model         *m;
    const struct tsr_model_overlay *o;
    const struct tsr_model_family  *family;
    uint64_t                        has;
    bool                            stacked;
    tsr_model_stored_visit          visit;
    void                           *ctx;
    struct tsr_err                 *err;
    struct tsr_model_stored_view    room; /* the arrays of all views, for the most pieces */
};

static tsr_status make_room(struct walk *w)
{
    uint64_t most = FUSED > 2 * w->m->hp.experts ? FUSED : 2 * w->m->hp.experts;
    struct tsr_model_stored_view *v = &w->room;
    v->piece_rows = tsr_new(most, sizeof *v->piece_rows);
    v->w = tsr_new(most, sizeof *v->w);
    v->packed = tsr_new(most, sizeof *v->packed);
    v->values = tsr_new(most, sizeof *v->values);
    return v->piece_rows && v->w && v->packed && v->values
               ? TSR_OK
               : tsr_fail_nomem(w->err, most * sizeof *v->w, "pieces of a tensor");
}

static void leave_room(struct walk *w)
{
    free(w->room.piece_rows);
    free(w->room.w);
    free(w->room.packed);
    free(w->room.values);
}

void tsr_model_stored_row(const struct tsr_model_stored_view *v, uint64_t r, unsigned *piece,
                          uint64_t *row)
{
    unsigned p = 0;
    if (v->groups) {
        uint64_t together = v->rows / v->groups, in = r % together;
        while (p + 1 < v->n && in >= v->piece_rows[p] / v->groups)
            in -= v->piece_rows[p++] / v->groups;
        *piece = p;
        *row = r / together * (v->piece_rows[p] / v->groups) + in;
        return;
    }
    while (p + 1 < v->n && r >= v->piece_rows[p])
        r -= v->piece_rows[p++];
    *piece = p;
    *row = r;
}

static bool holds(const struct walk *w, uint64_t needs)
{
    return (needs & ~w->has) == 0;
}

static tsr_status begin(const struct walk *w, const struct tsr_model_role *r, uint64_t layer,
                        struct tsr_model_stored_view *v)
{
    v->role = r;
    v->layer = strchr(r->name, '#') ? layer : w->m->hp.layers;
    v->suffix = "weight";
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

static tsr_status vector(const struct walk *w, struct tsr_model_stored_view *v, const char *suffix,
                         const float *values, uint64_t n)
{
    v->kind = TSR_MODEL_STORED_VECTOR;
    v->suffix = suffix;
    v->values[0] = values;
    v->rows = v->piece_rows[0] = n;
    v->cols = 1;
    return w->visit(w->ctx, v, w->err);
}

static tsr_status norm(const struct walk *w, const struct tsr_model_role *r, uint64_t layer,
                       const struct tsr_model_norm *n, const struct tsr_model_norm *folded)
{
    struct tsr_model_stored_view v = { .norm = true };
    if (!holds(w, r->weight))
        return TSR_OK;
    if (folded && folded->gain)
        n = folded;
    TSR_TRY(begin(w, r, layer, &v));
    uint64_t width = tsr_model_norm_width(&w->m->hp, r->part, &v.dim);
    TSR_TRY(vector(w, &v, "weight", n->gain, width));
    return holds(w, r->bias) ? vector(w, &v, "bias", n->bias, width) : TSR_OK;
}

static tsr_status matrix(const struct walk *w, const struct tsr_model_role *r,
                         const struct tsr_matrix *m, const struct tsr_model_packed *p)
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
    return vector(w, &bias, "bias", w->m->head.bias, m->rows);
}

static tsr_status linears(const struct walk *w, const struct tsr_model_role *r, uint64_t layer,
                          const enum tsr_linear_id *ids, unsigned n, uint32_t groups)
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
    v.groups = groups;
    for (unsigned i = 0; i < n; i++) {
        add(&v, i, &l->lin[ids[i]].w, w->o ? w->o->lin[layer][ids[i]] : NULL);
        v.values[i] = NULL;
    }
    TSR_TRY(w->visit(w->ctx, &v, w->err));
    if (!holds(w, r->bias))
        return TSR_OK;
    v.kind = TSR_MODEL_STORED_VECTOR;
    v.suffix = "bias";
    v.cols = 1;
    for (unsigned i = 0; i < n; i++) {
        v.w[i] = NULL;
        v.packed[i] = NULL;
        v.values[i] = l->lin[ids[i]].bias;
    }
    return w->visit(w->ctx, &v, w->err);
}

static tsr_status each_expert(const struct walk *w, const struct tsr_model_role *r, uint64_t layer)
{
    for (uint64_t i = 0; i < w->m->hp.experts; i++) {
        struct tsr_model_role one;
        char                  name[TSR_FAMILY_NAME + 24];
        if (!tsr_model_role_of_expert(r, i, name, &one))
            return tsr_fail(w->err, TSR_E_BUG, "tensor name too long");
        TSR_TRY(linears(w, &one, layer, &one.lin, 1, 0));
    }
    return TSR_OK;
}

/* A tensor of all experts' linears. */
static tsr_status all_experts(const struct walk *w, const struct tsr_model_role *r, uint64_t layer)
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
    tsr_status st = n ? linears(w, r, layer, ids, n, 0) : TSR_OK;
    free(ids);
    return st;
}

static tsr_status stacked_experts(const struct walk *w, const struct tsr_model_role *r,
                                  uint64_t layer)
{
    for (int kind = TSR_MODEL_GATE; kind <= TSR_MODEL_DOWN; kind++) {
        struct tsr_model_role one;
        if (!tsr_model_role_has_expert(r, (enum tsr_linear_id)kind))
            continue;
        tsr_model_role_stacked(r, (enum tsr_linear_id)kind, &one);
        TSR_TRY(all_experts(w, &one, layer));
    }
    return TSR_OK;
}

static tsr_status sinks(const struct walk *w, const struct tsr_model_role *r, uint64_t layer,
                        const float *values)
{
    struct tsr_model_stored_view v = { .norm = false };
    if (!holds(w, r->weight))
        return TSR_OK;
    TSR_TRY(begin(w, r, layer, &v));
    return vector(w, &v, "weight", values, w->m->hp.heads);
}

static tsr_status router_correction(const struct walk *w, const struct tsr_model_role *r,
                                    uint64_t layer)
{
    struct tsr_model_stored_view v = { .norm = false };
    if (!holds(w, r->weight) || !tsr_model_role_in_layer(&w->m->hp, r, layer))
        return TSR_OK;
    TSR_TRY(begin(w, r, layer, &v));
    return vector(w, &v, r->suffixes[0] ? r->suffixes[0] + 1 : "weight",
                  w->m->layers[layer].router_correction, w->m->hp.experts);
}

/* A vector of the delta rule; one whose name has no suffix is a tensor of the module before its last dot. */
static tsr_status delta_vector(const struct walk *w, const struct tsr_model_role *r, uint64_t layer)
{
    struct tsr_model_stored_view v = { .norm = false };
    uint64_t                     n = 0;
    if (!holds(w, r->weight))
        return TSR_OK;
    const float *const *values =
        tsr_model_delta_vector(&w->m->hp, r->part, &w->m->layers[layer], &n, &v.dim);
    TSR_TRY(begin(w, r, layer, &v));
    char       *dot = strrchr(v.module, '.');
    const char *last = strrchr(r->name, '.');
    bool        bare = tsr_model_part_is_unsuffixed(r->part);
    if (bare && (!dot || !last))
        return tsr_fail(w->err, TSR_E_INPUT,
                        "%s: cannot be written: the name \"%s\" of part '%s' has no dot",
                        w->m->path, r->name, r->key);
    if (bare)
        *dot = '\0';
    return vector(w, &v, bare ? last + 1 : "weight", *values, n);
}

/* Tensors are written as [out, in], under NAME.weight and NAME.bias. */
static tsr_status check_form(const struct walk *w, const struct tsr_model_role *r)
{
    bool whole = r->part == TSR_MODEL_PART_ROUTER_CORRECTION && r->suffixes[0] &&
                 *r->suffixes[0] == '.'; /* a vector of a module, as a bias is */
    if (!r->interleaved && !r->transposed && (!r->suffixes[0] || whole))
        return TSR_OK;
    return tsr_fail(w->err, TSR_E_INPUT,
                    "%s: cannot be written: a %s model stores \"%s\" in a form that exports do not "
                    "have",
                    w->m->path, w->family->name, r->name);
}

static tsr_status one_role(const struct walk *w, const struct tsr_model_role *r, uint64_t layer)
{
    enum tsr_linear_id            ids[TSR_MODEL_FUSED];
    uint32_t                      groups;
    unsigned                      several = tsr_model_fused(&w->m->hp, r->part, ids, &groups);
    const struct tsr_model       *m = w->m;
    bool                          inside = layer < m->hp.layers;
    const struct tsr_model_layer *l = &m->layers[inside ? layer : 0]; /* there is at least one */
    const struct tsr_model_norm  *f = inside && w->o && w->o->norm ? w->o->norm[layer] : NULL;
    if (w->stacked && tsr_model_part_is_expert(r->part))
        return stacked_experts(w, r, layer);
    if (!w->stacked)
        TSR_TRY(check_form(w, r));
    if (inside && !tsr_model_role_in_layer(&m->hp, r, layer))
        return TSR_OK;
    if (several)
        return linears(w, r, layer, ids, several, groups);
    switch (r->part) {
    case TSR_MODEL_PART_EMBED:
        return matrix(w, r, &m->embed, w->o ? w->o->embed : NULL);
    case TSR_MODEL_PART_POSITIONS:
        return matrix(w, r, &m->positions, NULL);
    case TSR_MODEL_PART_PROJECT_IN:
        return matrix(w, r, &m->project_in.w, NULL);
    case TSR_MODEL_PART_PROJECT_OUT:
        return matrix(w, r, &m->project_out.w, NULL);
    case TSR_MODEL_PART_HEAD:
        if (m->hp.tied && w->o && w->o->head) {
            struct tsr_model_role untied = *r;
            untied.weight = TSR_HAS_ALWAYS;
            return matrix(w, &untied, &m->head.w, w->o->head);
        }
        return matrix(w, r, &m->head.w, w->o ? w->o->head : NULL);
    case TSR_MODEL_PART_EMBED_NORM:
        return norm(w, r, 0, &m->embed_norm, NULL);
    case TSR_MODEL_PART_FINAL_NORM:
        return norm(w, r, 0, &m->final_norm, NULL);
    case TSR_MODEL_PART_ATTN_IN:
        return norm(w, r, layer, &l->attn_in, f ? &f[TSR_MODEL_OVERLAY_ATTN_IN] : NULL);
    case TSR_MODEL_PART_ATTN_OUT:
        return norm(w, r, layer, &l->attn_out, NULL);
    case TSR_MODEL_PART_FFN_IN:
        return norm(w, r, layer, &l->ffn_in, f ? &f[TSR_MODEL_OVERLAY_FFN_IN] : NULL);
    case TSR_MODEL_PART_FFN_OUT:
        return norm(w, r, layer, &l->ffn_out, NULL);
    case TSR_MODEL_PART_Q_A_NORM:
        return norm(w, r, layer, &l->q_a_norm, NULL);
    case TSR_MODEL_PART_KV_A_NORM:
        return norm(w, r, layer, &l->kv_a_norm, NULL);
    case TSR_MODEL_PART_Q_NORM:
        return norm(w, r, layer, &l->q_norm, NULL);
    case TSR_MODEL_PART_K_NORM:
        return norm(w, r, layer, &l->k_norm, NULL);
    case TSR_MODEL_PART_LINEAR:
        return linears(w, r, layer, &r->lin, 1, 0);
    case TSR_MODEL_PART_CONV:
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
    case TSR_MODEL_PART_DELTA_NORM:
        return delta_vector(w, r, layer);
    case TSR_MODEL_PART_SINKS:
        return sinks(w, r, layer, l->sinks);
    case TSR_MODEL_PART_ROUTER_CORRECTION:
        return router_correction(w, r, layer);
    case TSR_MODEL_PART_EXPERT:
        return each_expert(w, r, layer);
    case TSR_MODEL_PART_EXPERTS:
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return all_experts(w, r, layer);
    default:
        return tsr_fail(w->err, TSR_E_BUG, "role %s has no part", r->name);
    }
}

static tsr_status role(const struct walk *w, const struct tsr_model_role *r, uint64_t layer)
{
    struct tsr_model_role one;
    if (!w->stacked)
        return one_role(w, r, layer);
    for (unsigned i = 0; tsr_model_role_split(r, i, &one); i++)
        TSR_TRY(one_role(w, &one, layer));
    return TSR_OK;
}

/* All roles of a layer, or (layer == the number of layers) those of none. */
static tsr_status roles(const struct walk *w, uint64_t layer)
{
    for (uint32_t i = 0; i < w->family->n_roles; i++) {
        const struct tsr_model_role *r = &w->family->roles[i];
        if ((strchr(r->name, '#') != NULL) == (layer < w->m->hp.layers))
            TSR_TRY(role(w, r, layer));
    }
    return TSR_OK;
}

static tsr_status visit_all(const struct tsr_model *m, const struct tsr_model_overlay *o, bool open,
                            bool stacked, tsr_model_stored_visit visit, void *ctx,
                            struct tsr_err *err)
{
    struct walk w = { .m = m,
                      .stacked = stacked,
                      .o = o ? o : m->packed,
                      .family = m->storage->family,
                      .has = m->storage->has,
                      .visit = visit,
                      .ctx = ctx,
                      .err = err };
    tsr_status  st = make_room(&w);
    if (st == TSR_OK)
        st = roles(&w, m->hp.layers);
    for (uint64_t l = 0; l < m->hp.layers && st == TSR_OK; l++) {
        if (open && (st = tsr_model_open_layer(m, l, err)) != TSR_OK)
            break;
        st = roles(&w, l);
        if (open)
            tsr_model_close_layer(m, l);
    }
    leave_room(&w);
    return st;
}

tsr_status tsr_model_visit(const struct tsr_model *m, const struct tsr_model_overlay *o, bool open,
                           tsr_model_stored_visit visit, void *ctx, struct tsr_err *err)
{
    return visit_all(m, o, open, false, visit, ctx, err);
}

tsr_status tsr_model_visit_stacked(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   bool open, tsr_model_stored_visit visit, void *ctx,
                                   struct tsr_err *err)
{
    return visit_all(m, o, open, true, visit, ctx, err);
}

/* ---- texts ------------------------------------------------------------------------- */
