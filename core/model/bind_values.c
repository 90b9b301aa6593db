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
    TSR_TRY(tsr_model_bind_plan_matrix(b, r, layer, rows, cols, &dtype, &at));
    return tsr_model_bind_set_matrix(b, r, layer, m, dtype, rows, cols, at);
}

const float **tsr_model_delta_vector(const struct tsr_model_hparams *hp, enum tsr_model_part part,
                                     struct tsr_model_layer *l, uint64_t *n, uint64_t *row)
{
    const struct tsr_model_delta *d = &hp->delta;
    *row = 0;
    switch (part) {
    case TSR_MODEL_PART_CONV:
        *row = d->kernel;
        *n = d->kernel *
             (2 * (uint64_t)d->key_heads * d->key_dim + (uint64_t)d->value_heads * d->value_dim);
        return &l->conv;
    case TSR_MODEL_PART_DECAY:
        *n = d->value_heads;
        return &l->decay;
    case TSR_MODEL_PART_STEP:
        *n = d->value_heads;
        return &l->step;
    case TSR_MODEL_PART_DELTA_NORM:
        *n = d->value_dim;
        return &l->delta_norm;
    default:
        return NULL;
    }
}

void tsr_model_bind_shape(const struct tsr_model_hparams *hp, uint64_t layer, enum tsr_linear_id id,
                          uint64_t *rows, uint64_t *cols)
{
    const struct tsr_model_latent *l = &hp->latent;
    bool                           recurrent = tsr_model_is_recurrent(hp, layer);
    uint64_t q = tsr_model_query_width(hp, layer), out = tsr_model_attended_width(hp, layer);
    uint64_t kv = (uint64_t)hp->kv_heads * hp->head_dim;
    uint64_t ffn = id >= TSR_MODEL_EXPERTS                                      ? hp->expert_ffn
                   : id >= TSR_MODEL_SHARED_GATE && id <= TSR_MODEL_SHARED_DOWN ? hp->shared_ffn
                                                                                : hp->ffn;
    *cols = hp->hidden;
    switch (tsr_model_linear_kind(id)) {
    case TSR_MODEL_Q:
        *rows = q;
        break;
    case TSR_MODEL_K:
        *rows = recurrent ? q : kv;
        break;
    case TSR_MODEL_V:
        *rows = recurrent ? out : kv;
        break;
    case TSR_MODEL_Z:
        *rows = out;
        break;
    case TSR_MODEL_B:
    case TSR_MODEL_A:
        *rows = hp->delta.value_heads;
        break;
    case TSR_MODEL_O:
        *rows = hp->hidden;
        *cols = out;
        break;
    case TSR_MODEL_Q_A:
        *rows = l->q_rank;
        break;
    case TSR_MODEL_Q_B:
        *rows = q;
        *cols = l->q_rank;
        break;
    case TSR_MODEL_KV_A:
        *rows = l->rank + l->rope;
        break;
    case TSR_MODEL_KV_B:
        *rows = (uint64_t)hp->heads * (l->nope + l->v);
        *cols = l->rank;
        break;
    case TSR_MODEL_DOWN:
        *rows = hp->hidden;
        *cols = ffn;
        break;
    case TSR_MODEL_ROUTER:
        *rows = hp->experts;
        break;
    case TSR_MODEL_SHARED_ROUTER:
        *rows = 1;
        break;
    default:
        *rows = ffn;
    }
}
