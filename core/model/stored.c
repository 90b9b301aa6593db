/* From parts back to the stored tensors: the walk over the family's roles that bind.c does, the
 * other way round. */
#include "model/stored_internal.h"

#include "base/mem.h"
#include "model/bind.h"
#include "model/own.h"

#include <stdlib.h>
#include <string.h>

#define FUSED TSR_MODEL_FUSED /* pieces of a fused tensor without experts, at most */

static tsr_status make_room(struct tsr_model_stored_walk *w)
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

static void leave_room(struct tsr_model_stored_walk *w)
{
    free(w->room.piece_rows);
    free(w->room.w);
    free(w->room.packed);
    free(w->room.values);
}

void tsr_model_stored_row(const struct tsr_model_stored_view *v, uint64_t r, unsigned *piece,
                          uint64_t *row)
{
    uint64_t stack = v->stack ? v->stack : 1, turns = v->groups ? v->groups : 1;
    uint64_t together = v->rows / stack / turns; /* rows of one turn of the pieces */
    unsigned p = (unsigned)(r / (v->rows / stack) * (v->n / stack));
    uint64_t turn = r % (v->rows / stack) / together, in = r % together;
    while (in >= v->piece_rows[p] / turns)
        in -= v->piece_rows[p++] / turns;
    *piece = p;
    *row = turn * (v->piece_rows[p] / turns) + in;
}

static tsr_status one_role(const struct tsr_model_stored_walk *w, const struct tsr_model_role *r,
                           uint64_t layer)
{
    enum tsr_linear_id            ids[TSR_MODEL_FUSED];
    uint32_t                      groups;
    unsigned                      several = tsr_model_fused(&w->m->hp, r->part, ids, &groups);
    const struct tsr_model       *m = w->m;
    bool                          inside = layer < m->hp.layers;
    const struct tsr_model_layer *l = &m->layers[inside ? layer : 0]; /* there is at least one */
    const struct tsr_model_norm  *f = inside && w->o && w->o->norm ? w->o->norm[layer] : NULL;
    if (w->stacked && tsr_model_part_is_expert(r->part))
        return tsr_model_stored_stacked_experts(w, r, layer);
    if (inside && !tsr_model_role_in_layer(&m->hp, r, layer))
        return TSR_OK;
    if (several)
        return tsr_model_stored_linears(w, r, layer, ids, several, groups);
    switch (r->part) {
    case TSR_MODEL_PART_EMBED:
        return tsr_model_stored_matrix(w, r, &m->embed, w->o ? w->o->embed : NULL);
    case TSR_MODEL_PART_POSITIONS:
        return tsr_model_stored_matrix(w, r, &m->positions, NULL);
    case TSR_MODEL_PART_PROJECT_IN:
        return tsr_model_stored_matrix(w, r, &m->project_in.w, NULL);
    case TSR_MODEL_PART_PROJECT_OUT:
        return tsr_model_stored_matrix(w, r, &m->project_out.w, NULL);
    case TSR_MODEL_PART_HEAD:
        if (m->hp.tied && w->o && w->o->head && w->o->head != w->o->embed) {
            struct tsr_model_role untied = *r;
            untied.weight = TSR_HAS_ALWAYS;
            return tsr_model_stored_matrix(w, &untied, &m->head.w, w->o->head);
        }
        return tsr_model_stored_matrix(w, r, &m->head.w, w->o ? w->o->head : NULL);
    case TSR_MODEL_PART_EMBED_NORM:
        return tsr_model_stored_norm(w, r, 0, &m->embed_norm, NULL);
    case TSR_MODEL_PART_FINAL_NORM:
        return tsr_model_stored_norm(w, r, 0, &m->final_norm, NULL);
    case TSR_MODEL_PART_ATTN_IN:
        return tsr_model_stored_norm(w, r, layer, &l->attn_in,
                                     f ? &f[TSR_MODEL_OVERLAY_ATTN_IN] : NULL);
    case TSR_MODEL_PART_ATTN_OUT:
        return tsr_model_stored_norm(w, r, layer, &l->attn_out, NULL);
    case TSR_MODEL_PART_FFN_IN:
        return tsr_model_stored_norm(w, r, layer, &l->ffn_in,
                                     f ? &f[TSR_MODEL_OVERLAY_FFN_IN] : NULL);
    case TSR_MODEL_PART_FFN_OUT:
        return tsr_model_stored_norm(w, r, layer, &l->ffn_out, NULL);
    case TSR_MODEL_PART_Q_A_NORM:
        return tsr_model_stored_norm(w, r, layer, &l->q_a_norm,
                                     f ? &f[TSR_MODEL_OVERLAY_Q_B_IN] : NULL);
    case TSR_MODEL_PART_KV_A_NORM:
        return tsr_model_stored_norm(w, r, layer, &l->kv_a_norm,
                                     f ? &f[TSR_MODEL_OVERLAY_KV_B_IN] : NULL);
    case TSR_MODEL_PART_Q_NORM:
        return tsr_model_stored_norm(w, r, layer, &l->q_norm, NULL);
    case TSR_MODEL_PART_K_NORM:
        return tsr_model_stored_norm(w, r, layer, &l->k_norm, NULL);
    case TSR_MODEL_PART_LINEAR:
        return tsr_model_stored_linears(w, r, layer, &r->lin, 1, 0);
    case TSR_MODEL_PART_CONV:
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
    case TSR_MODEL_PART_DELTA_NORM:
        return tsr_model_stored_delta_vector(w, r, layer);
    case TSR_MODEL_PART_SINKS:
        return tsr_model_stored_sinks(w, r, layer, l->sinks);
    case TSR_MODEL_PART_ROUTER_CORRECTION:
        return tsr_model_stored_router_correction(w, r, layer);
    case TSR_MODEL_PART_EXPERT:
        return tsr_model_stored_each_expert(w, r, layer);
    case TSR_MODEL_PART_EXPERTS:
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return tsr_model_stored_all_experts(w, r, layer);
    default:
        return tsr_fail(w->err, TSR_E_BUG, "role %s has no part", r->name);
    }
}

static tsr_status role(const struct tsr_model_stored_walk *w, const struct tsr_model_role *r,
                       uint64_t layer)
{
    struct tsr_model_role one;
    if (!w->stacked)
        return one_role(w, r, layer);
    for (unsigned i = 0; tsr_model_role_split(r, i, &one); i++)
        TSR_TRY(one_role(w, &one, layer));
    return TSR_OK;
}

/* All roles of a layer, or (layer == the number of layers) those of none. */
static tsr_status roles(const struct tsr_model_stored_walk *w, uint64_t layer)
{
    for (uint32_t i = 0; i < w->family->n_roles; i++) {
        const struct tsr_model_role *r = &w->family->roles[i];
        if ((strchr(r->name, '#') != NULL) == (layer < w->m->hp.layers))
            TSR_TRY(role(w, r, layer));
    }
    return TSR_OK;
}

/* A visitor that sees matrices of a plugin's own format as F32: no container but ours has the format. */
struct decoding {
    tsr_model_stored_visit visit;
    void                  *ctx;
};

static tsr_status visit_decoded(void *ctx, const struct tsr_model_stored_view *v,
                                struct tsr_err *err)
{
    const struct decoding   *d = ctx;
    unsigned                 own = 0;
    struct tsr_model_packed *as = NULL;
    for (unsigned i = 0; v->kind != TSR_MODEL_STORED_VECTOR && i < v->n; i++)
        own += v->packed[i] && v->packed[i]->own.unit && v->packed[i]->codes;
    if (own == 0)
        return d->visit(d->ctx, v, err);
    struct tsr_model_stored_view    view = *v;
    const struct tsr_model_packed **list = tsr_new(v->n, sizeof *list);
    tsr_status                      st = TSR_OK;
    as = tsr_new(v->n, sizeof *as);
    if (!as || !list)
        st = tsr_fail_nomem(err, v->n * sizeof *as, "decoded weights");
    for (unsigned i = 0; i < v->n && st == TSR_OK; i++) {
        list[i] = v->packed[i];
        if (!list[i] || !list[i]->own.unit)
            continue;
        st = tsr_model_own_decoded(list[i], &as[i], err);
        list[i] = &as[i];
    }
    view.packed = list;
    if (st == TSR_OK)
        st = d->visit(d->ctx, &view, err);
    for (unsigned i = 0; as && i < v->n; i++)
        free(as[i].dense);
    free(as);
    free(list);
    return st;
}

static tsr_status visit_all(const struct tsr_model *m, const struct tsr_model_overlay *o, bool open,
                            bool stacked, tsr_model_stored_visit visit, void *ctx,
                            struct tsr_err *err)
{
    struct tsr_model_stored_walk w = { .m = m,
                                       .stacked = stacked,
                                       .o = o ? o : m->packed,
                                       .family = m->storage->family,
                                       .has = m->storage->has,
                                       .visit = open ? visit_decoded : visit,
                                       .ctx = ctx,
                                       .err = err };
    struct decoding              d = { visit, ctx };
    w.ctx = open ? &d : ctx;
    tsr_status st = make_room(&w);
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
