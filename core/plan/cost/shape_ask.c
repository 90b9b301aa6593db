/* Questions to a shape: weights and cache of its layers, and how ranks split it. */
#include "plan/cost/shape.h"

uint64_t tsr_plan_shape_weights(const struct tsr_plan_shape *s, uint64_t cls)
{
    uint64_t n = 0;
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        n += s->layer[cls].lin[i].rows * s->layer[cls].lin[i].cols * s->layer[cls].lin[i].count;
    return n;
}

struct tsr_plan_shape_matrix tsr_plan_shape_matrix_of(const struct tsr_plan_shape       *s,
                                                      const struct tsr_plan_shape_layer *l,
                                                      int linear, uint32_t group)
{
    struct tsr_plan_shape_matrix m = l->lin[linear];
    m.count = tsr_plan_shape_matrices(s, l, linear, group);
    if (group > 0 && *s->packed && tsr_plan_shape_is_expert(l, linear)) {
        m.packed = l->further[group - 1][linear - TSR_MODEL_GATE].format;
        m.ordered = l->further[group - 1][linear - TSR_MODEL_GATE].ordered;
    }
    return m;
}

uint64_t tsr_plan_shape_kv(const struct tsr_plan_shape *s)
{
    return 2 * (uint64_t)s->kv_heads * s->head_dim;
}

struct tsr_model_delta tsr_plan_shape_delta(const struct tsr_model_delta *d, uint32_t tp)
{
    struct tsr_model_delta part = *d;
    part.key_heads /= tp;
    part.value_heads /= tp;
    return part;
}

/* Heads of the delta rule, and the columns of its o. */
static tsr_status splits_delta(const struct tsr_model_delta *d, uint32_t tp, uint64_t group,
                               struct tsr_err *err)
{
    uint64_t values = (uint64_t)d->value_heads * d->value_dim;
    if (d->key_heads % tp)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut a head of the delta rule: the model has %u key heads",
                        tp, d->key_heads);
    if (group && values / tp % group)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut a group of %llu columns: parts of the delta rule have "
                        "%llu",
                        tp, (unsigned long long)group, (unsigned long long)(values / tp));
    return TSR_OK;
}

tsr_status tsr_plan_shape_splits(const struct tsr_plan_shape *s, uint32_t tp, bool whole,
                                 uint64_t group, struct tsr_err *err)
{
    uint64_t expert_ffn = whole ? 0 : s->expert_ffn; /* that are cut */
    uint64_t q = (uint64_t)s->heads * (s->latent.rank ? s->latent.v : s->head_dim);
    if (tp <= 1)
        return TSR_OK;
    if (s->whole_qk_norm && s->lossy_sums)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would round queries and keys before their norm, which is over "
                        "all heads; use an exact codec for sums (tp_codec: plain)",
                        tp);
    if (s->heads % tp || s->kv_heads % tp)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut a head: the model has %u heads and %u KV heads", tp,
                        s->heads, s->kv_heads);
    if (s->delta.value_heads)
        TSR_TRY(splits_delta(&s->delta, tp, group, err));
    if (whole && s->experts % tp)
        return tsr_fail(err, TSR_E_CONFIG, "%u experts do not divide among %u devices whole",
                        s->experts, tp);
    if (expert_ffn % tp)
        return tsr_fail(err, TSR_E_CONFIG, "width %u does not divide the experts of %llu columns",
                        tp, (unsigned long long)expert_ffn);
    if (s->shared_ffn % tp)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u does not divide the shared expert of %llu columns", tp,
                        (unsigned long long)s->shared_ffn);
    if (s->ffn % tp)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u does not divide the feed-forward of %llu columns", tp,
                        (unsigned long long)s->ffn);
    if (group == 0)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut rows that share one scale (group: 0)", tp);
    if (expert_ffn / tp % group)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut a group of %llu columns: parts of experts have %llu",
                        tp, (unsigned long long)group, (unsigned long long)(expert_ffn / tp));
    if (s->shared_ffn / tp % group)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut a group of %llu columns: parts of the shared expert "
                        "have %llu",
                        tp, (unsigned long long)group, (unsigned long long)(s->shared_ffn / tp));
    if (q / tp % group || s->ffn / tp % group)
        return tsr_fail(err, TSR_E_CONFIG,
                        "width %u would cut a group of %llu columns: parts have %llu and %llu", tp,
                        (unsigned long long)group, (unsigned long long)(q / tp),
                        (unsigned long long)(s->ffn / tp));
    return TSR_OK;
}

struct tsr_plan_shape_matrix tsr_plan_shape_part(const struct tsr_plan_shape_matrix *m,
                                                 enum tsr_linear_id id, uint32_t tp, bool whole)
{
    struct tsr_plan_shape_matrix p = *m;
    p.whole_rows = m->rows;
    p.whole_cols = m->cols;
    if (whole && m->count > 1)
        p.count /= tp;
    else if (id == TSR_MODEL_O || id == TSR_MODEL_DOWN || id == TSR_MODEL_SHARED_DOWN)
        p.cols /= tp;
    else if (id != TSR_MODEL_Q_A && id != TSR_MODEL_KV_A) /* which every rank has */
        p.rows /= tp;
    return p;
}
