#include "model/bind_internal.h"

#include "base/f16.h"
#include "base/mem.h"
#include "model/packed.h"

#include <stdlib.h>
#include <string.h>

uint64_t tsr_model_norm_width(const struct tsr_model_hparams *hp, enum tsr_model_part part,
                              uint64_t *row)
{
    uint64_t heads = part == TSR_MODEL_PART_Q_NORM ? hp->heads : hp->kv_heads;
    *row = 0;
    if (part == TSR_MODEL_PART_Q_A_NORM || part == TSR_MODEL_PART_KV_A_NORM)
        return part == TSR_MODEL_PART_Q_A_NORM ? hp->latent.q_rank : hp->latent.rank;
    if (part != TSR_MODEL_PART_Q_NORM && part != TSR_MODEL_PART_K_NORM)
        return hp->hidden;
    if (hp->qk_norm == TSR_MODEL_QK_NORM_HEAD)
        return hp->head_dim;
    *row = hp->qk_norm == TSR_MODEL_QK_NORM_HEADS ? hp->head_dim : 0;
    return heads * hp->head_dim;
}

static tsr_status bind_norm(struct tsr_model_binding *b, const struct tsr_model_role *r,
                            uint64_t layer, struct tsr_model_norm *norm)
{
    uint64_t at, row, n = tsr_model_norm_width(&b->config->hp, r->part, &row);
    if (!tsr_model_bind_holds(b, r->weight & ~(uint64_t)TSR_HAS_AFFINE))
        return TSR_OK;
    if (!tsr_model_bind_holds(b, r->weight)) { /* normalised, but without gain and bias: 1 and 0 */
        TSR_TRY(tsr_model_bind_set_floats(b, &norm->gain, b->ones));
        return tsr_model_bind_set_floats(b, &norm->bias, b->zeros);
    }
    TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".weight", n, row, NULL, &at));
    TSR_TRY(tsr_model_bind_set_floats(b, &norm->gain, at));
    if (!tsr_model_bind_holds(b, r->bias))
        return TSR_OK;
    TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".bias", n, row, NULL, &at));
    return tsr_model_bind_set_floats(b, &norm->bias, at);
}

static tsr_status bind_delta_vector(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                    uint64_t layer)
{
    uint64_t      at, n = 0, row;
    const float **to =
        tsr_model_delta_vector(&b->config->hp, r->part, &b->model->layers[layer], &n, &row);
    TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".weight", n, row, NULL, &at));
    return tsr_model_bind_set_floats(b, to, at);
}

static tsr_status bind_head(struct tsr_model_binding *b, const struct tsr_model_role *r)
{
    const struct tsr_model_hparams *hp = &b->config->hp;
    struct tsr_model_linear        *head = &b->model->head;
    uint64_t                        at;
    if (tsr_model_bind_holds(b, r->bias)) {
        TSR_TRY(tsr_model_bind_plan_floats(b, r, 0, ".bias", hp->vocab, 0, NULL, &at));
        TSR_TRY(tsr_model_bind_set_floats(b, &head->bias, at));
    }
    if (!b->packed || !b->packed->head)
        return tsr_model_bind_whole_matrix(b, r, 0, &head->w, hp->vocab, hp->embed_dim);
    TSR_TRY(tsr_model_bind_leave(b, r, 0));
    return tsr_model_bind_set_packed(b, &head->w, b->packed->head, hp->vocab, hp->embed_dim);
}

static tsr_status bind_role(struct tsr_model_binding *b, const struct tsr_model_role *r,
                            uint64_t layer)
{
    const struct tsr_model_hparams *hp = &b->config->hp;
    struct tsr_model               *m = b->model;
    struct tsr_model_layer         *l = strchr(r->name, '#') ? &m->layers[layer] : NULL;
    uint64_t                        at;
    if (!tsr_model_role_in_layer(hp, r, layer))
        return TSR_OK;
    switch (r->part) {
    case TSR_MODEL_PART_EMBED_NORM:
        return bind_norm(b, r, 0, &m->embed_norm);
    case TSR_MODEL_PART_FINAL_NORM:
        return bind_norm(b, r, 0, &m->final_norm);
    case TSR_MODEL_PART_ATTN_IN:
        return bind_norm(b, r, layer, &l->attn_in);
    case TSR_MODEL_PART_ATTN_OUT:
        return bind_norm(b, r, layer, &l->attn_out);
    case TSR_MODEL_PART_FFN_IN:
        return bind_norm(b, r, layer, &l->ffn_in);
    case TSR_MODEL_PART_FFN_OUT:
        return bind_norm(b, r, layer, &l->ffn_out);
    case TSR_MODEL_PART_Q_A_NORM:
        return bind_norm(b, r, layer, &l->q_a_norm);
    case TSR_MODEL_PART_KV_A_NORM:
        return bind_norm(b, r, layer, &l->kv_a_norm);
    case TSR_MODEL_PART_Q_NORM:
        return bind_norm(b, r, layer, &l->q_norm);
    case TSR_MODEL_PART_K_NORM:
        return bind_norm(b, r, layer, &l->k_norm);
    default:
        break;
    }
    if (!tsr_model_bind_holds(b, r->weight))
        return TSR_OK;
    switch (r->part) {
    case TSR_MODEL_PART_EMBED:
        if (!b->packed || !b->packed->embed)
            return tsr_model_bind_whole_matrix(b, r, 0, &m->embed, hp->vocab, hp->embed_dim);
        TSR_TRY(tsr_model_bind_leave(b, r, 0));
        return tsr_model_bind_set_packed(b, &m->embed, b->packed->embed, hp->vocab, hp->embed_dim);
    case TSR_MODEL_PART_POSITIONS:
        return tsr_model_bind_whole_matrix(b, r, 0, &m->positions,
                                           hp->max_positions + hp->position_offset, hp->hidden);
    case TSR_MODEL_PART_PROJECT_IN:
        return tsr_model_bind_whole_matrix(b, r, 0, &m->project_in.w, hp->hidden, hp->embed_dim);
    case TSR_MODEL_PART_PROJECT_OUT:
        return tsr_model_bind_whole_matrix(b, r, 0, &m->project_out.w, hp->embed_dim, hp->hidden);
    case TSR_MODEL_PART_HEAD:
        return bind_head(b, r);
    case TSR_MODEL_PART_SINKS:
        TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".weight", hp->heads, 0, NULL, &at));
        return tsr_model_bind_set_floats(b, &l->sinks, at);
    case TSR_MODEL_PART_ROUTER_CORRECTION:
        TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".weight", hp->experts,
                                           r->row ? hp->experts : 0, NULL, &at));
        return tsr_model_bind_set_floats(b, &l->router_correction, at);
    case TSR_MODEL_PART_CONV:
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
    case TSR_MODEL_PART_DELTA_NORM:
        return bind_delta_vector(b, r, layer);
    default:
        return tsr_model_bind_linears(b, r, layer);
    }
}

/* The head is the embedding.  A stored copy of it is accepted if it is one. */
static tsr_status bind_tied_head(struct tsr_model_binding *b)
{
    struct tsr_model *m = b->model;
    if (b->packed && b->packed->embed) {
        if (!b->packed->head)
            return tsr_fail(b->err, TSR_E_INPUT,
                            "%s: the embedding is packed without the head, which %s ties to it",
                            b->folder, b->says);
        return tsr_model_bind_set_packed(b, &m->head.w, b->packed->head, m->embed.rows,
                                         m->embed.cols);
    }
    uint64_t embed_at = b->patches[0].at; /* the embedding is the first role of every row */
    TSR_TRY(tsr_model_bind_set_matrix(b, NULL, 0, &m->head.w, m->embed.dtype, m->embed.rows,
                                      m->embed.cols, embed_at));
    if (b->packed && b->packed->head) {
        struct tsr_matrix shape = { .name = m->head.w.name };
        TSR_TRY(
            tsr_model_bind_set_packed(b, &shape, b->packed->head, m->embed.rows, m->embed.cols));
    }
    struct tsr_checkpoint_stored *e;
    char                          name[TSR_BIND_NAME];
    TSR_TRY(tsr_model_bind_find_part(b, TSR_MODEL_PART_HEAD, name, &e));
    if (!e)
        return TSR_OK;
    const uint64_t shape[2] = { m->embed.rows, m->embed.cols };
    TSR_TRY(tsr_model_bind_find(b, &b->config->family->roles[0], name, 2, shape, &e));
    return tsr_model_bind_add_load(b, (struct tsr_model_tensor_load){
                                          .src = e, .at = embed_at, .compare = true });
}

/* The first prefix under which a tensor outside the layers exists: the embedding, or what is left without
 * it. */
void tsr_model_bind_prefix(struct tsr_model_binding *b)
{
    const struct tsr_model_family *a = b->config->family;
    char                           name[TSR_BIND_NAME];
    for (uint32_t r = 0; r < a->n_roles; r++)
        for (unsigned i = 0; a->prefixes[i]; i++) {
            const struct tsr_model_role *role = &a->roles[r];
            b->prefix = a->prefixes[i];
            if (!role->bare && !strchr(role->name, '#') &&
                tsr_model_bind_name(b, role, 0, ".weight", name) == TSR_OK &&
                tsr_checkpoint_shards_find(b->shards, name))
                return;
        }
    b->prefix = a->prefixes[0];
}

static bool is_ignored(const struct tsr_model_binding *b, const char *name)
{
    size_t n = strlen(b->prefix);
    bool   inside = strncmp(name, b->prefix, n) == 0;
    for (const char *const *p = b->config->family->ignored; *p; p++)
        if (tsr_model_tensor_name_matches(*p, name) ||
            (inside && tsr_model_tensor_name_matches(*p, name + n)))
            return true;
    return false;
}

/* A tensor of a layer after the last one, of those that config.json says are stored. */
static bool is_extra(const struct tsr_model_binding *b, const char *name)
{
    const struct tsr_model_hparams *hp = &b->config->hp;
    size_t                          n = strlen(b->prefix);
    for (uint32_t i = 0; strncmp(name, b->prefix, n) == 0 && i < b->config->family->n_roles; i++) {
        const char *pattern = b->config->family->roles[i].name, *hash = strchr(pattern, '#');
        size_t      k = hash ? (size_t)(hash - pattern) : 0;
        char       *end = NULL;
        if (!k || strncmp(name + n, pattern, k) != 0 || name[n + k] < '0' || name[n + k] > '9')
            continue;
        unsigned long long layer = strtoull(name + n + k, &end, 10);
        if (*end == '.' && layer >= hp->layers && layer - hp->layers < hp->extra_layers)
            return true;
    }
    return false;
}

bool tsr_model_bind_ignores(const struct tsr_model_binding *b, const char *name)
{
    return is_ignored(b, name) || is_extra(b, name);
}

static tsr_status check_unused(struct tsr_model_binding *b)
{
    for (uint64_t i = 0; i < b->shards->n; i++) {
        const struct tsr_checkpoint_stored *e = &b->shards->tensors[i];
        if (!e->used && !e->imported && !tsr_model_bind_ignores(b, e->t->name))
            return tsr_model_bind_unknown(b, e);
    }
    return TSR_OK;
}

tsr_status tsr_model_bind(struct tsr_model_binding *b)
{
    const struct tsr_model_family *a = b->config->family;
    tsr_model_bind_prefix(b);
    if (!(b->config->has & TSR_HAS_AFFINE)) {
        uint64_t n = (b->config->hp.hidden + 15) / 16 * 16;
        b->ones = 0;
        b->zeros = n;
        b->floats = 2 * n;
    }
    for (uint32_t i = 0; i < a->n_roles; i++) {
        uint64_t n = strchr(a->roles[i].name, '#') ? b->config->hp.layers : 1;
        for (uint64_t layer = 0; layer < n; layer++)
            TSR_TRY(bind_role(b, &a->roles[i], layer));
    }
    if (b->config->hp.tied)
        TSR_TRY(bind_tied_head(b));
    return check_unused(b);
}

void tsr_model_binding_free(struct tsr_model_binding *b)
{
    free(b->loads);
    free(b->patches);
}
