/* Which heads, rows and columns fall to a rank. */
#include "engine/share.h"

/* Columns that must not be parted: the heads of one KV head, or the value heads of one key head. */
static uint64_t unit_of(const struct tsr_model_hparams *hp, bool recurrent)
{
    const struct tsr_model_delta *d = &hp->delta;
    return recurrent ? (uint64_t)d->value_heads / d->key_heads * d->value_dim
                     : tsr_model_o_cols(hp) / hp->kv_heads;
}

/* The heads of the delta rule. */
static tsr_status share_delta(const struct tsr_model_hparams *hp, struct tsr_engine_share *s,
                              struct tsr_err *err)
{
    const struct tsr_model_delta *d = &hp->delta;
    struct tsr_model_cut          o = { .name = "out_proj",
                                        .cols = (uint64_t)d->value_heads * d->value_dim,
                                        .unit = hp->recurrent ? unit_of(hp, true) : 0 };
    struct tsr_model_slice        part;
    s->delta = *d;
    if (!hp->recurrent)
        return TSR_OK;
    TSR_TRY(tsr_model_slice_columns(&o, s->rank, s->ranks, &part, err));
    s->key_head = (uint32_t)(part.col / o.unit);
    s->delta.key_heads = (uint32_t)(part.cols / o.unit);
    s->value_head = (uint32_t)(part.col / d->value_dim);
    s->delta.value_heads = (uint32_t)(part.cols / d->value_dim);
    return TSR_OK;
}

/* Whole experts, or the rows of all of them. */
static tsr_status share_experts(const struct tsr_model_hparams *hp, bool whole,
                                struct tsr_engine_share *s, struct tsr_err *err)
{
    struct tsr_model_cut   down = { .name = "experts.down_proj", .cols = hp->expert_ffn };
    struct tsr_model_slice part;
    s->whole_experts = whole && s->ranks > 1;
    s->n_experts = hp->experts;
    s->expert = hp->expert_ffn;
    if (!s->whole_experts) {
        TSR_TRY(tsr_model_slice_columns(&down, s->rank, s->ranks, &part, err));
        s->expert_at = part.col;
        s->expert = part.cols;
        return TSR_OK;
    }
    if (hp->experts % s->ranks)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%u experts do not divide among %u ranks whole; share their rows "
                        "(experts: rows)",
                        hp->experts, s->ranks);
    s->n_experts = hp->experts / s->ranks;
    s->first_expert = s->rank * s->n_experts;
    return TSR_OK;
}

tsr_status tsr_engine_share_of(const struct tsr_model_hparams *hp, uint32_t rank, uint32_t ranks,
                               bool whole_experts, struct tsr_engine_share *s, struct tsr_err *err)
{
    struct tsr_model_cut   o = { .name = "o_proj",
                                 .cols = tsr_model_o_cols(hp),
                                 .unit = unit_of(hp, false) };
    struct tsr_model_cut   down = { .name = "down_proj", .cols = hp->ffn };
    struct tsr_model_slice part;
    *s = (struct tsr_engine_share){ .rank = rank, .ranks = ranks };
    TSR_TRY(share_delta(hp, s, err));
    TSR_TRY(tsr_model_slice_columns(&o, rank, ranks, &part, err));
    uint64_t value = tsr_model_o_cols(hp) / hp->heads; /* columns of a head's */
    s->head = (uint32_t)(part.col / value);
    s->heads = (uint32_t)(part.cols / value);
    s->kv_head = s->head / (hp->heads / hp->kv_heads);
    s->kv_heads = s->heads / (hp->heads / hp->kv_heads);
    TSR_TRY(tsr_model_slice_columns(&down, rank, ranks, &part, err));
    s->ffn_at = part.col;
    s->ffn = part.cols;
    if (hp->experts == 0)
        return TSR_OK;
    TSR_TRY(share_experts(hp, whole_experts, s, err));
    if (hp->shared_ffn == 0)
        return TSR_OK;
    down = (struct tsr_model_cut){ .name = "shared_expert.down_proj", .cols = hp->shared_ffn };
    TSR_TRY(tsr_model_slice_columns(&down, rank, ranks, &part, err));
    s->shared_at = part.col;
    s->shared = part.cols;
    return TSR_OK;
}

/* The rows of a linear of the delta rule but o. */
static struct tsr_model_slice rows_of_delta(const struct tsr_engine_share *s,
                                            const struct tsr_model_cut *cut, enum tsr_linear_id id)
{
    const struct tsr_model_delta *d = &s->delta;
    bool                          keys = id == TSR_MODEL_Q || id == TSR_MODEL_K;
    uint64_t dim = keys ? d->key_dim : id == TSR_MODEL_V || id == TSR_MODEL_Z ? d->value_dim : 1;
    return tsr_model_slice_rows(cut, (keys ? s->key_head : s->value_head) * dim,
                                (keys ? d->key_heads : d->value_heads) * dim);
}

tsr_status tsr_engine_share_linear(const struct tsr_engine_share  *s,
                                   const struct tsr_model_hparams *hp, uint64_t layer,
                                   enum tsr_linear_id id, const struct tsr_matrix *w,
                                   const struct tsr_model_packed *p, struct tsr_model_slice *part,
                                   struct tsr_err *err)
{
    struct tsr_model_cut           cut = tsr_model_cut_of(w, p);
    const struct tsr_model_latent *l = &hp->latent;
    uint64_t dim = hp->head_dim, qk = l->rank ? l->nope + l->rope : dim, kv = l->nope + l->v;
    bool     expert = id >= TSR_MODEL_EXPERTS, recurrent = tsr_model_is_recurrent(hp, layer);
    bool     shared = id == TSR_MODEL_SHARED_GATE || id == TSR_MODEL_SHARED_UP;
    if (recurrent && id != TSR_MODEL_O && tsr_model_linear_attends(id)) {
        *part = rows_of_delta(s, &cut, id);
        return TSR_OK;
    }
    if (expert && s->whole_experts) {
        uint64_t which = (uint64_t)(id - TSR_MODEL_EXPERTS) / TSR_EXPERT_LINEARS;
        bool     own = which >= s->first_expert && which < s->first_expert + s->n_experts;
        *part = tsr_model_slice_rows(&cut, 0, own ? w->rows : 0);
        return TSR_OK;
    }
    switch (tsr_model_linear_kind(id)) {
    case TSR_MODEL_Q:
    case TSR_MODEL_Q_B:
    case TSR_MODEL_Z: /* of gated attention */
        *part = tsr_model_slice_rows(&cut, s->head * qk, s->heads * qk);
        return TSR_OK;
    case TSR_MODEL_KV_B:
        *part = tsr_model_slice_rows(&cut, s->head * kv, s->heads * kv);
        return TSR_OK;
    case TSR_MODEL_K:
    case TSR_MODEL_V:
        *part = tsr_model_slice_rows(&cut, s->kv_head * dim, s->kv_heads * dim);
        return TSR_OK;
    case TSR_MODEL_GATE:
    case TSR_MODEL_UP:
        *part = expert   ? tsr_model_slice_rows(&cut, s->expert_at, s->expert)
                : shared ? tsr_model_slice_rows(&cut, s->shared_at, s->shared)
                         : tsr_model_slice_rows(&cut, s->ffn_at, s->ffn);
        return TSR_OK;
    case TSR_MODEL_ROUTER:
    case TSR_MODEL_SHARED_ROUTER:
    case TSR_MODEL_Q_A:
    case TSR_MODEL_KV_A:
        *part = tsr_model_slice_rows(&cut, 0, w->rows);
        return TSR_OK;
    case TSR_MODEL_O:
    case TSR_MODEL_DOWN:
    case TSR_MODEL_SHARED_GATE: /* a kind is none of these */
    case TSR_MODEL_SHARED_UP:
    case TSR_MODEL_SHARED_DOWN:
    case TSR_MODEL_B: /* of the delta rule alone */
    case TSR_MODEL_A:
    case TSR_MODEL_EXPERTS:
        break;
    }
    cut.unit = id == TSR_MODEL_O ? unit_of(hp, recurrent) : 0;
    return tsr_model_slice_columns(&cut, s->rank, s->ranks, part, err);
}
