/* Single values of a binding: floats, packed and whole matrices, tensors that are left unread. */
#include "model/bind_internal.h"

/* A matrix without stored tensor: its weights are packed. */
tsr_status tsr_model_bind_set_packed(struct tsr_model_binding *b, struct tsr_matrix *m,
                                     const struct tsr_model_packed *p, uint64_t rows, uint64_t cols)
{
    if (p->rows != rows || p->cols != cols)
        return tsr_fail(b->err, TSR_E_INPUT,
                        "%s: \"%s\" is packed with shape [%llu, %llu]; %s asks for [%llu, %llu]",
                        b->folder, m->name, (unsigned long long)p->rows,
                        (unsigned long long)p->cols, b->says, (unsigned long long)rows,
                        (unsigned long long)cols);
    tsr_model_bind_set_shape(m, p->source_dtype, rows, cols);
    return TSR_OK;
}

/* Stored forms of packed weights are not looked up; in a file that should not contain them, they
 * are unknown tensors like any other. */
tsr_status tsr_model_bind_leave(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                uint64_t layer)
{
    char name[TSR_BIND_NAME];
    TSR_TRY(tsr_model_bind_name(b, r, layer, ".weight", name));
    struct tsr_checkpoint_stored *e = b->spare ? tsr_checkpoint_shards_find(b->shards, name) : NULL;
    if (e)
        e->used = true;
    return TSR_OK;
}

tsr_status tsr_model_bind_set_floats(struct tsr_model_binding *b, const float **p, uint64_t at)
{
    return tsr_model_bind_add_patch(b, (struct tsr_model_patch){ .floats = p, .at = at });
}

tsr_status tsr_model_bind_whole_matrix(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                       uint64_t layer, struct tsr_matrix *m, uint64_t rows,
                                       uint64_t cols)
{
    uint64_t at;
    uint32_t dtype;
    TSR_TRY(tsr_model_bind_plan_matrix(b, r, layer, rows, cols, false, &dtype, &at));
    return tsr_model_bind_set_matrix(b, r, layer, m, dtype, rows, cols, at);
}

void tsr_model_bind_shape(const struct tsr_model_hparams *hp, enum tsr_linear_id id, uint64_t *rows,
                          uint64_t *cols)
{
    const struct tsr_model_latent *l = &hp->latent;
    uint64_t qk = l->rank ? l->nope + l->rope : hp->head_dim, q = hp->heads * qk;
    uint64_t kv = (uint64_t)hp->kv_heads * hp->head_dim;
    uint64_t ffn = id >= TSR_EXPERTS                                ? hp->expert_ffn
                   : id >= TSR_SHARED_GATE && id <= TSR_SHARED_DOWN ? hp->shared_ffn
                                                                    : hp->ffn;
    *cols = hp->hidden;
    switch (tsr_model_linear_kind(id)) {
    case TSR_Q:
        *rows = q;
        break;
    case TSR_K:
    case TSR_V:
        *rows = kv;
        break;
    case TSR_O:
        *rows = hp->hidden;
        *cols = tsr_model_o_cols(hp);
        break;
    case TSR_Q_A:
        *rows = l->q_rank;
        break;
    case TSR_Q_B:
        *rows = q;
        *cols = l->q_rank;
        break;
    case TSR_KV_A:
        *rows = l->rank + l->rope;
        break;
    case TSR_KV_B:
        *rows = (uint64_t)hp->heads * (l->nope + l->v);
        *cols = l->rank;
        break;
    case TSR_DOWN:
        *rows = hp->hidden;
        *cols = ffn;
        break;
    case TSR_ROUTER:
        *rows = hp->experts;
        break;
    case TSR_SHARED_ROUTER:
        *rows = 1;
        break;
    default:
        *rows = ffn;
    }
}
