/* The calls of engine.h that run tokens: checks of a batch, then the pass (forward.c) or only the first or last
 * part of the model. */
#include "base/mem.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* Everything that can be wrong with a batch, before anything runs; notes how long each slot
 * will be at the end, and what comes after it. */
static tsr_status check_batch(struct tsr_engine *e, const struct tsr_engine_token *t, uint64_t n,
                              struct tsr_err *err)
{
    uint64_t vocab = e->model->hp.vocab;
    for (uint64_t i = 0; i < n; i++) {
        if (t[i].slot >= e->n_slots)
            return tsr_fail(err, TSR_E_INVAL, "slot %u, the engine has %u", t[i].slot, e->n_slots);
        if (t[i].id >= vocab)
            return tsr_fail(err, TSR_E_INPUT,
                            "token id %u is outside the vocabulary of %llu (ids 0 to %llu)",
                            t[i].id, (unsigned long long)vocab, (unsigned long long)vocab - 1);
        e->slots[t[i].slot].final = e->slots[t[i].slot].length;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_engine_slot *s = &e->slots[t[i].slot];
        s->ahead = t[i].ahead;
        if (++s->final > e->context)
            return tsr_fail(err, TSR_E_INPUT,
                            "the sequence is longer than the context of %llu tokens",
                            (unsigned long long)e->context);
    }
    return TSR_OK;
}

tsr_status tsr_engine_forward(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                              uint64_t n, float *logits, struct tsr_err *err)
{
    return tsr_engine_stage(e, tokens, n, NULL, NULL, logits, err);
}

tsr_status tsr_engine_stage(struct tsr_engine *e, const struct tsr_engine_token *tokens, uint64_t n,
                            const float *in, float *out, float *logits, struct tsr_err *err)
{
    bool has_head = e->behind ? e->behind->has_head : e->has_head;
    if ((!in && !e->has_embed) || (logits && !has_head))
        return tsr_fail(err, TSR_E_INVAL, "this part of the model has no %s",
                        logits && !has_head ? "head" : "embedding");
    TSR_TRY(check_batch(e, tokens, n, err));
    if (e->behind) /* it counts the same sequences */
        TSR_TRY(check_batch(e->behind, tokens, n, err));
    return e->behind ? tsr_engine_stage_mixed(e, tokens, n, in, out, logits, err)
                     : tsr_engine_stage_own(e, tokens, n, in, out, logits, err);
}

tsr_status tsr_engine_forward_best(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                   uint64_t n, const struct tsr_engine_best *best,
                                   struct tsr_err *err)
{
    uint64_t wanted = 0, most = 0, rows = tsr_engine_best_rows(e, &most);
    for (uint64_t i = 0; i < n; i++)
        wanted += tokens[i].logits;
    if (wanted > rows || n > most)
        return tsr_fail(err, TSR_E_INVAL,
                        "candidates of %llu rows of %llu tokens; this engine has them for %llu "
                        "rows of %llu",
                        (unsigned long long)wanted, (unsigned long long)n, (unsigned long long)rows,
                        (unsigned long long)most);
    e->best = best;
    tsr_status st = tsr_engine_stage(e, tokens, n, NULL, NULL, NULL, err);
    e->best = NULL;
    return st;
}

tsr_status tsr_engine_head(struct tsr_engine *e, const float *rows, uint64_t n, float *logits,
                           struct tsr_err *err)
{
    uint64_t vocab = e->model->hp.vocab;
    if (e->behind)
        return tsr_engine_head(e->behind, rows, n, logits, err);
    if (!e->has_head)
        return tsr_fail(err, TSR_E_INVAL, "this part of the model has no head");
    for (uint64_t first = 0, m; first < n; first += m, logits += m * vocab) {
        m = n - first < e->head_rows ? n - first : e->head_rows;
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        TSR_TRY(tsr_engine_hidden_in(e, rows + first * e->model->hp.hidden, m, err));
        TSR_TRY(tsr_engine_run_head(e, tsr_engine_rows(&e->h, 0, m), logits, err));
        for (uint64_t i = 0; i < m; i++)
            if (!tsr_engine_all_finite(logits + i * vocab, vocab))
                return tsr_fail(err, TSR_E_NUMERIC,
                                "%s: the logits of row %llu of a micro-batch are not finite",
                                e->model->path, (unsigned long long)(first + i));
    }
    return TSR_OK;
}

static tsr_status embed_chunks(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                               uint64_t n, float *out, struct tsr_err *err)
{
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t m = n - first < e->chunk ? n - first : e->chunk, wanted;
        TSR_TRY(tsr_engine_feed_chunk(e, tokens + first, m, &wanted, err));
        TSR_TRY(tsr_engine_run_embedding(e, m, err));
        TSR_TRY(tsr_engine_hidden_out(e, out + first * e->model->hp.hidden, m, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_embed(struct tsr_engine *e, const struct tsr_engine_token *tokens, uint64_t n,
                            float *out, struct tsr_err *err)
{
    if (!e->has_embed)
        return tsr_fail(err, TSR_E_INVAL, "this part of the model has no embedding");
    TSR_TRY(check_batch(e, tokens, n, err));
    struct tsr_engine_slot *before = tsr_new(e->n_slots, sizeof *before);
    if (!before)
        return tsr_fail_nomem(err, e->n_slots * sizeof *before, "slots");
    memcpy(before, e->slots, e->n_slots * sizeof *before);
    tsr_status st = embed_chunks(e, tokens, n, out, err);
    memcpy(e->slots, before, e->n_slots * sizeof *before);
    free(before);
    return st;
}
