/* Bytes of run-time buffers in addition to weights and caches: activations, scratch of kernels, logits. */
#include "engine/delta.h"
#include "engine/engine.h"
#include "engine/share.h"
#include "plan/cost/memory_internal.h"
#include "plan/cost/memory_paper.h"
#include "plan/cost/workload.h"
#include "plugin/kv_sizes.h"

#define HEAD_ROWS 64u /* of logits at once, engine/internal.h */
#define LINE      64u
#define REQUEST   296u /* of plugins/comm/local, without its parts */
#define PART      120u
#define MESSAGES  6u /* head, body and rows, sent and received: runtime/edge.h */

/* Rows of a request in layers with a window; 0 if they keep the context, as the others do. */
static uint64_t window_rows(const struct tsr_plan_memory_job *j)
{
    uint64_t window = 0, context, rows;
    for (uint64_t c = 0; c < j->shape->classes; c++)
        window = j->shape->layer[c].window > window ? j->shape->layer[c].window : window;
    return window && tsr_plan_memory_kv_rows(j, 0, &context) &&
                   tsr_plan_memory_kv_rows(j, window, &rows) && rows < context
               ? rows
               : 0;
}

/* Scratch of the largest operation of one rank: forwards of `tokens` tokens, of which those of a prompt
 * see no more than it, and decode steps of `decode` requests; used: bit per candidate. */
static tsr_status scratch_of(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                             const struct tsr_plan_candidates *c, uint64_t used, uint64_t tokens,
                             uint64_t decode, bool last, uint64_t *most, struct tsr_err *err)
{
    const struct tsr_sizes_v1   *sizes;
    const void                  *self = NULL;
    const struct tsr_plan_shape *s = j->shape;
    uint64_t                     none, n;
    *most = 0;
    TSR_TRY(tsr_plan_memory_sizes(j, m, &sizes, &self, err));
    if (!sizes)
        return TSR_OK;
    for (uint64_t cls = 0; cls < s->classes; cls++)
        for (int i = 0; i < TSR_PLAN_LINEARS; i++)
            for (uint64_t k = 0; k < c->n; k++) {
                if (!(used >> k & 1))
                    continue;
                for (uint32_t g = 0; g < tsr_plan_shape_groups(s); g++) {
                    struct tsr_plan_shape_matrix part =
                        tsr_plan_shape_matrix_of(s, &s->layer[cls], i, g);
                    if (part.count == 0)
                        continue;
                    part =
                        tsr_plan_shape_part(&part, (enum tsr_linear_id)i, m->tp, m->whole_experts);
                    TSR_TRY(tsr_plan_memory_matrix(j, m, tsr_plan_candidate_part(&c->v[k], i, g),
                                                   &part, tokens, &none, &n, err));
                    *most = n > *most ? n : *most;
                }
            }
    /* an engine reserves for any forward, which may have a prompt's tokens at a decode step's positions */
    bool reserves = TSR_HAS(struct tsr_sizes_v1, sizes, reserve);
    for (int phase = 0; phase < 2; phase++) {
        TSR_TRY(sizes->attention(self, phase ? decode : tokens,
                                 phase || reserves ? j->prompt + j->generate : j->prompt,
                                 s->heads / m->tp, s->kv_heads / m->tp, s->head_dim, &n, err));
        *most = n > *most ? n : *most;
    }
    if (last) {
        TSR_TRY(tsr_plan_memory_matrix(j, m, j->head, &s->head,
                                       tokens < HEAD_ROWS ? tokens : HEAD_ROWS, &none, &n, err));
        *most = n > *most ? n : *most;
    }
    return TSR_OK;
}

/* The engine's buffers for forwards of `tokens` tokens, as engine.c and feed.c make them. */
static bool buffers(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                    uint64_t tokens, bool last, uint64_t *bytes)
{
    uint32_t                     tp = m->tp;
    const struct tsr_plan_shape *s = j->shape;
    uint64_t                     q = (uint64_t)s->heads * s->head_dim / tp;
    uint64_t                     kv = (uint64_t)s->kv_heads * s->head_dim / tp;
    uint64_t                     expert = s->expert_ffn / (m->whole_experts ? 1 : tp),
             ffn = s->ffn > s->shared_ffn ? s->ffn : s->shared_ffn;
    uint64_t each = s->experts_used + (s->shared_ffn ? 1u : 0u);
    uint64_t few = tsr_engine_expert_columns(s->experts_used, expert, tokens);
    ffn = ffn / tp > few ? ffn / tp : few;
    const struct tsr_model_delta d = tsr_plan_shape_delta(&s->delta, tp);
    uint64_t                     keys = (uint64_t)d.key_heads * d.key_dim,
             values = (uint64_t)d.value_heads * d.value_dim;
    uint64_t a = q > values ? q : values;
    uint64_t cols = 3 * s->hidden + (q > keys ? q : keys) + a + (kv > keys ? kv : keys) +
                    (kv > values ? kv : values) + (s->gated ? 2 : 1) * ffn;
    if (s->attn_gate || d.value_heads) /* gates, and on the host what they and the rule work on */
        cols += 3 * a;
    if (d.value_heads) /* b and a; on the host q, k, v, the convolution's rows, four for each head, places */
        cols += 2 * (uint64_t)d.value_heads + 2 * tsr_delta_channels(&d) +
                4 * (uint64_t)d.value_heads + 1;
    if (s->embed_dim != s->hidden)
        cols += s->embed_dim;
    if (s->whole_qk_norm && tp > 1) /* of all heads */
        cols += ((uint64_t)s->heads + s->kv_heads) * s->head_dim;
    if (s->experts) /* scores, an expert's inputs; what each says of a token, weights, places, rows */
        cols += s->experts + s->layer[s->layer_class[s->layers - 1]].shared_router.rows +
                s->hidden + each * (s->hidden + 3) + (m->whole_experts ? s->experts_used : 0);
    const struct tsr_model_latent *l = &s->latent;
    if (l->rank) /* rows of latent attention, keys and values of its heads, and the token of each */
        cols += l->q_rank + 2 * (uint64_t)l->rank + l->rope +
                (uint64_t)s->heads / tp * (l->nope + l->v + 1);
    uint64_t ropes = s->sliding_rope ? 2 : 1;
    /* ids, positions, rows, spans, gather; cosine and sine of each rope */
    cols += 6 + (uint64_t)s->rotary_dim / 2 * 2 * ropes;
    *bytes = (5 + 2 * ropes) * LINE + (m->whole_experts ? s->hidden * 4 : 0);
    if (window_rows(j)) { /* rows and spans of their caches, and the places of rows that move */
        cols += 3;
        *bytes += UINT64_C(2) * LINE + window_rows(j) * 4;
    }
    if (j->blocks ||
        tsr_plugin_kv_has_blocks(j->kv)) { /* rows and spans with tails, for each kind of cache */
        cols += window_rows(j) ? 10 : 5;
        *bytes += (window_rows(j) ? 4 : 2) * (uint64_t)LINE;
    }
    *bytes += (uint64_t)MESSAGES * (REQUEST + PART);
    if (tp > 1) /* the request of a sum: a part to and one from each rank */
        *bytes += REQUEST + (uint64_t)2 * tp * PART;
    if (!tsr_plan_memory_add(bytes, tokens, cols * 4))
        return false;
    return !last ||
           tsr_plan_memory_add(bytes, tokens < HEAD_ROWS ? tokens : HEAD_ROWS, s->vocab * 4);
}

tsr_status tsr_plan_memory_work(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                const struct tsr_plan_candidates *c, uint64_t used,
                                uint64_t prefill_mb, uint64_t decode_mb, bool first, bool last,
                                uint64_t *bytes, uint64_t *lead, struct tsr_err *err)
{
    uint64_t tokens, work, scratch, n;
    *lead = 0;
    uint64_t chunk = j->chunk && j->chunk < j->prompt ? j->chunk : j->prompt;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER) {
        *bytes = tsr_plan_paper_workspace(j, prefill_mb, first);
        return TSR_OK;
    }
    if (!tsr_mul(prefill_mb, chunk, &tokens))
        return tsr_plan_memory_too_large(err);
    uint64_t cut = j->chunk ? j->chunk : TSR_PLAN_FORWARD; /* of a forward of our engine */
    tokens = tokens < cut ? tokens : cut;
    /* Requests are spread evenly over as many micro-batches as there are, and a forward of several
     * takes as many tokens of each: there may be fewer in it than there is room for. */
    uint64_t slot_sets = (j->batch + decode_mb - 1) / decode_mb;
    uint64_t decode = slot_sets ? (j->batch + slot_sets - 1) / slot_sets : decode_mb;
    uint64_t group = prefill_mb < decode ? prefill_mb : decode;
    group = group < tokens ? group : tokens;
    work = group * chunk < tokens ? group * chunk : tokens / group * group;
    work = work > decode ? work : decode;
    tokens = tokens > decode_mb ? tokens : decode_mb;
    *bytes = 0;
    for (uint32_t rank = 0; rank < m->tp && rank < 2; rank++) { /* the head is the first one's */
        bool head = last && rank == 0;
        TSR_TRY(scratch_of(j, m, c, used, work, decode, head, &scratch, err));
        if (!buffers(j, m, tokens, head, &n) || !tsr_add(n, scratch, &n) ||
            !tsr_plan_memory_add(bytes, n, rank ? m->tp - 1 : 1))
            return tsr_plan_memory_too_large(err);
        *lead = rank ? *lead - (n < *lead ? n : *lead) : n;
    }
    *lead = m->tp > 1 ? *lead : 0;
    return TSR_OK;
}

tsr_status tsr_plan_memory_workspace(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh       *m,
                                     const struct tsr_plan_candidates *c, uint64_t prefill_mb,
                                     uint64_t decode_mb, bool first, bool last, uint64_t *bytes,
                                     uint64_t *lead, struct tsr_err *err)
{
    uint64_t none;
    return tsr_plan_memory_work(j, m, c, UINT64_MAX, prefill_mb, decode_mb, first, last, bytes,
                                lead ? lead : &none, err);
}
