/* The parts of a model under canonical names, for every family: the list for writing and reading a
 * prepacked file. */
#include "checkpoint/prepacked/prepacked.h"
#include "model/bind.h"

#include <stdio.h>
#include <string.h>

struct walk {
    struct tsr_model        *m;
    uint64_t                 layer;
    tsr_prepacked_part_visit visit;
    void                    *ctx;
    struct tsr_err          *err;
};

static bool holds(const struct walk *w, uint64_t needs)
{
    return (needs & ~w->m->storage->has) == 0;
}

static tsr_status vector(const struct walk *w, const struct tsr_prepacked_model_part *like,
                         const char *name, bool bias, const float **values, uint64_t n)
{
    struct tsr_prepacked_model_part p = *like;
    int len = snprintf(p.name, sizeof p.name, "%s.%s", name, bias ? "bias" : "gain");
    if (len < 0 || (unsigned)len >= sizeof p.name)
        return tsr_fail(w->err, TSR_E_BUG, "the name of a part is too long");
    p.w = NULL;
    p.bias = bias;
    p.values = values;
    p.n = n;
    return w->visit(w->ctx, &p, w->err);
}

static tsr_status norm(const struct walk *w, const struct tsr_model_role *r, const char *what,
                       struct tsr_model_norm *n)
{
    struct tsr_prepacked_model_part like = { .part = r->part, .layer = w->layer };
    char                            name[64];
    bool                            inside = w->layer < w->m->hp.layers;
    uint64_t                        row, width = tsr_model_norm_width(&w->m->hp, r->part, &row);
    if (!holds(w, r->weight & ~(uint64_t)TSR_HAS_AFFINE))
        return TSR_OK;
    if (inside)
        (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)w->layer,
                       what);
    else
        (void)snprintf(name, sizeof name, "model.%s", what);
    TSR_TRY(vector(w, &like, name, false, &n->gain, width));
    /* a norm without gain and bias has ones and zeros in memory */
    if (holds(w, r->weight) && !holds(w, r->bias))
        return TSR_OK;
    return vector(w, &like, name, true, &n->bias, width);
}

static tsr_status matrix(const struct walk *w, const struct tsr_model_role *r, struct tsr_matrix *m,
                         uint64_t rows, uint64_t cols, bool optional)
{
    struct tsr_prepacked_model_part p = {
        .part = r->part, .layer = w->layer, .optional = optional, .w = m, .rows = rows, .cols = cols
    };
    (void)snprintf(p.name, sizeof p.name, "%s", m->name);
    return w->visit(w->ctx, &p, w->err);
}

static tsr_status linear(const struct walk *w, const struct tsr_model_role *r,
                         enum tsr_linear_id id)
{
    struct tsr_model_linear        *l = &w->m->layers[w->layer].lin[id];
    struct tsr_prepacked_model_part p = {
        .part = TSR_MODEL_PART_LINEAR, .layer = w->layer, .lin = id, .w = &l->w
    };
    if (!holds(w, r->weight) || !tsr_model_role_in_layer(&w->m->hp, r, w->layer))
        return TSR_OK;
    tsr_model_bind_shape(&w->m->hp, w->layer, id, &p.rows, &p.cols);
    (void)snprintf(p.name, sizeof p.name, "%s", l->w.name);
    TSR_TRY(w->visit(w->ctx, &p, w->err));
    return holds(w, r->bias) ? vector(w, &p, l->w.name, true, &l->bias, p.rows) : TSR_OK;
}

static tsr_status linears(const struct walk *w, const struct tsr_model_role *r,
                          const enum tsr_linear_id *ids, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        TSR_TRY(linear(w, r, ids[i]));
    return TSR_OK;
}

static tsr_status sinks(const struct walk *w, const struct tsr_model_role *r)
{
    struct tsr_prepacked_model_part p = { .part = r->part,
                                          .layer = w->layer,
                                          .values = &w->m->layers[w->layer].sinks,
                                          .n = w->m->hp.heads };
    if (!holds(w, r->weight))
        return TSR_OK;
    (void)snprintf(p.name, sizeof p.name, "model.layers.%llu.sinks", (unsigned long long)w->layer);
    return w->visit(w->ctx, &p, w->err);
}

static tsr_status router_correction(const struct walk *w, const struct tsr_model_role *r)
{
    struct tsr_prepacked_model_part p = { .part = r->part,
                                          .layer = w->layer,
                                          .values = &w->m->layers[w->layer].router_correction,
                                          .n = w->m->hp.experts };
    if (!holds(w, r->weight) || !tsr_model_role_in_layer(&w->m->hp, r, w->layer))
        return TSR_OK;
    (void)snprintf(p.name, sizeof p.name, "model.layers.%llu.router_correction",
                   (unsigned long long)w->layer);
    return w->visit(w->ctx, &p, w->err);
}

static tsr_status delta_vector(const struct walk *w, const struct tsr_model_role *r,
                               struct tsr_model_layer *l)
{
    struct tsr_prepacked_model_part p = { .part = r->part, .layer = w->layer };
    uint64_t                        row;
    if (!holds(w, r->weight))
        return TSR_OK;
    p.values = tsr_model_delta_vector(&w->m->hp, r->part, l, &p.n, &row);
    (void)snprintf(p.name, sizeof p.name, "model.layers.%llu.%s", (unsigned long long)w->layer,
                   r->key);
    return w->visit(w->ctx, &p, w->err);
}

/* Stored one by one, or together: here each expert's linears are parts of their own. */
static tsr_status experts(const struct walk *w, const struct tsr_model_role *r)
{
    bool both = r->part == TSR_MODEL_PART_EXPERTS_GATE_UP;
    for (uint64_t i = 0; i < w->m->hp.experts; i++) {
        TSR_TRY(linear(w, r, tsr_model_expert_linear(i, both ? TSR_MODEL_GATE : r->lin)));
        if (both)
            TSR_TRY(linear(w, r, tsr_model_expert_linear(i, TSR_MODEL_UP)));
    }
    return TSR_OK;
}

/* The output head; a tied model has one only if it is packed. */
static tsr_status head(const struct walk *w, const struct tsr_model_role *r)
{
    struct tsr_model               *m = w->m;
    struct tsr_prepacked_model_part like = { .part = r->part, .layer = w->layer };
    if (!m->hp.tied && !holds(w, r->weight))
        return TSR_OK;
    TSR_TRY(matrix(w, r, &m->head.w, m->hp.vocab, m->hp.embed_dim, m->hp.tied));
    return holds(w, r->bias) ? vector(w, &like, m->head.w.name, true, &m->head.bias, m->hp.vocab)
                             : TSR_OK;
}

/* A matrix that belongs to no layer. */
static tsr_status apart(const struct walk *w, const struct tsr_model_role *r)
{
    struct tsr_model               *m = w->m;
    const struct tsr_model_hparams *hp = &m->hp;
    if (r->part == TSR_MODEL_PART_HEAD)
        return head(w, r);
    if (!holds(w, r->weight))
        return TSR_OK;
    switch (r->part) {
    case TSR_MODEL_PART_EMBED:
        return matrix(w, r, &m->embed, hp->vocab, hp->embed_dim, false);
    case TSR_MODEL_PART_POSITIONS:
        return matrix(w, r, &m->positions, hp->max_positions + hp->position_offset, hp->hidden,
                      false);
    case TSR_MODEL_PART_PROJECT_IN:
        return matrix(w, r, &m->project_in.w, hp->hidden, hp->embed_dim, false);
    default:
        return matrix(w, r, &m->project_out.w, hp->embed_dim, hp->hidden, false);
    }
}

static tsr_status role(const struct walk *w, const struct tsr_model_role *r)
{
    enum tsr_linear_id      ids[TSR_MODEL_FUSED];
    uint32_t                groups;
    struct tsr_model       *m = w->m;
    struct tsr_model_layer *l = &m->layers[w->layer < m->hp.layers ? w->layer : 0];
    unsigned                several = tsr_model_fused(&m->hp, r->part, ids, &groups);
    if (w->layer < m->hp.layers && !tsr_model_role_in_layer(&m->hp, r, w->layer))
        return TSR_OK;
    if (several)
        return linears(w, r, ids, several);
    switch (r->part) {
    case TSR_MODEL_PART_EMBED_NORM:
        return norm(w, r, "embed_norm", &m->embed_norm);
    case TSR_MODEL_PART_FINAL_NORM:
        return norm(w, r, "final_norm", &m->final_norm);
    case TSR_MODEL_PART_ATTN_IN:
        return norm(w, r, "attn_in", &l->attn_in);
    case TSR_MODEL_PART_ATTN_OUT:
        return norm(w, r, "attn_out", &l->attn_out);
    case TSR_MODEL_PART_FFN_IN:
        return norm(w, r, "ffn_in", &l->ffn_in);
    case TSR_MODEL_PART_FFN_OUT:
        return norm(w, r, "ffn_out", &l->ffn_out);
    case TSR_MODEL_PART_Q_A_NORM:
        return norm(w, r, "q_a_norm", &l->q_a_norm);
    case TSR_MODEL_PART_KV_A_NORM:
        return norm(w, r, "kv_a_norm", &l->kv_a_norm);
    case TSR_MODEL_PART_Q_NORM:
        return norm(w, r, "q_norm", &l->q_norm);
    case TSR_MODEL_PART_K_NORM:
        return norm(w, r, "k_norm", &l->k_norm);
    case TSR_MODEL_PART_LINEAR:
        return linear(w, r, r->lin);
    case TSR_MODEL_PART_CONV:
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
    case TSR_MODEL_PART_DELTA_NORM:
        return delta_vector(w, r, l);
    case TSR_MODEL_PART_SINKS:
        return sinks(w, r);
    case TSR_MODEL_PART_ROUTER_CORRECTION:
        return router_correction(w, r);
    case TSR_MODEL_PART_EXPERT:
    case TSR_MODEL_PART_EXPERTS:
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return experts(w, r);
    default:
        return apart(w, r);
    }
}

tsr_status tsr_prepacked_model_parts(struct tsr_model *m, uint64_t layer,
                                     tsr_prepacked_part_visit visit, void *ctx, struct tsr_err *err)
{
    const struct tsr_model_family *a = m->storage->family;
    struct walk                    w = { m, layer, visit, ctx, err };
    for (uint32_t i = 0; i < a->n_roles; i++)
        if ((strchr(a->roles[i].name, '#') != NULL) == (layer < m->hp.layers))
            TSR_TRY(role(&w, &a->roles[i]));
    return TSR_OK;
}
