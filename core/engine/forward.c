/* A batch of tokens through the model, chunk by chunk. */
#include "base/mem.h"
#include "engine/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Everything that can be wrong with a batch, before anything runs; notes how long each slot
 * will be at the end. */
static tsr_status check_batch(struct tsr_engine *e, const struct tsr_token *t, uint64_t n,
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
    for (uint64_t i = 0; i < n; i++)
        if (++e->slots[t[i].slot].final > e->context)
            return tsr_fail(err, TSR_E_INPUT,
                            "the sequence is longer than the context of %llu tokens",
                            (unsigned long long)e->context);
    return TSR_OK;
}

tsr_status tsr_run_embedding(struct tsr_engine *e, uint64_t n, struct tsr_err *err)
{
    const struct tsr_hparams *hp = &e->model->hp;
    struct tsr_tensor         h = tsr_rows(&e->h, 0, n), x = tsr_rows(&e->x, 0, n);
    if (e->project_in.w) {
        struct tsr_tensor narrow = tsr_rows(&e->narrow, 0, n);
        TSR_TRY(tsr_run_embed(e, e->embed, &e->feed.ids, hp->embed_scale, &narrow, err));
        TSR_TRY(tsr_run_linear(e, &e->project_in, &narrow, &h, err));
    } else {
        TSR_TRY(tsr_run_embed(e, e->embed, &e->feed.ids, hp->embed_scale, &h, err));
    }
    if (e->positions) {
        TSR_TRY(tsr_run_embed(e, e->positions, &e->feed.positions, 1, &x, err));
        TSR_TRY(tsr_run_add(e, &h, &x, &h, err));
    }
    return e->embed_norm.gain.buffer ? tsr_run_norm(e, &e->embed_norm, &h, &h, err) : TSR_OK;
}

tsr_status tsr_run_head(struct tsr_engine *e, struct tsr_tensor src, float *logits,
                        struct tsr_err *err)
{
    const struct tsr_hparams *hp = &e->model->hp;
    struct tsr_tensor y = tsr_rows(&e->y, 0, src.rows), out = tsr_rows(&e->logits, 0, src.rows);
    if (e->final_norm.gain.buffer) {
        TSR_TRY(tsr_run_norm(e, &e->final_norm, &src, &y, err));
        src = y;
    }
    if (e->project_out.w) {
        struct tsr_tensor narrow = tsr_rows(&e->narrow, 0, src.rows);
        TSR_TRY(tsr_run_linear(e, &e->project_out, &src, &narrow, err));
        src = narrow;
    }
    TSR_TRY(tsr_run_linear(e, &e->head, &src, &out, err));
    if (hp->logit_scale != 1 || hp->logit_softcap > 0) {
        struct tsr_op op = { .kind = TSR_OP_SCALE,
                             .out = &out,
                             .in = { &out },
                             .scale = hp->logit_scale,
                             .softcap = hp->logit_softcap };
        TSR_TRY(tsr_device_run(e->dev, &op, NULL, err));
    }
    TSR_TRY(tsr_device_sync(e->dev, err));
    return tsr_device_download(e->dev, &out, logits, err);
}

bool tsr_all_finite(const float *v, uint64_t n)
{
    /* x - x is 0 for a finite x and NaN else; one sum instead of n branches */
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i] - v[i];
    return sum == 0;
}

static tsr_status check_logits(const struct tsr_engine *e, const struct tsr_token *tokens,
                               const struct tsr_feed *f, uint64_t first, uint64_t n,
                               const float *logits, struct tsr_err *err)
{
    uint64_t vocab = e->model->hp.vocab;
    for (uint64_t i = 0; i < n; i++, logits += vocab) {
        if (tsr_all_finite(logits, vocab))
            continue;
        uint32_t at, spans[2];
        memcpy(&at, f->host + f->gather.offset + (first + i) * sizeof at, sizeof at);
        memcpy(spans, f->host + f->spans.offset + at * sizeof spans, sizeof spans);
        return tsr_fail(err, TSR_E_NUMERIC,
                        "%s: the logits of sequence %u at position %u are not finite",
                        e->model->path, tokens[at].slot, spans[1]);
    }
    return TSR_OK;
}

/* Final norm and head for the wanted rows of a chunk of n. */
static tsr_status head(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
                       uint64_t wanted, float *logits, struct tsr_err *err)
{
    for (uint64_t first = 0; first < wanted; first += e->head_rows) {
        uint64_t          m = wanted - first < e->head_rows ? wanted - first : e->head_rows;
        struct tsr_tensor src;
        if (wanted == n) {
            src = tsr_rows(&e->h, first, m);
        } else {
            struct tsr_tensor h = tsr_rows(&e->h, 0, n), ids = e->feed.gather;
            src = tsr_rows(&e->x, 0, m);
            ids.offset += first * sizeof(uint32_t);
            ids.cols = m;
            ids.row_stride = m * sizeof(uint32_t);
            struct tsr_op op = { .kind = TSR_OP_GATHER, .out = &src, .in = { &h, &ids } };
            TSR_TRY(tsr_device_run(e->dev, &op, NULL, err));
        }
        if (e->hidden_tap) {
            TSR_TRY(tsr_device_sync(e->dev, err));
            TSR_TRY(tsr_device_download(e->dev, &src, e->hidden_rows, err));
            TSR_TRY(e->hidden_tap(e->hidden_ctx, e->hidden_rows, m, err));
        }
        TSR_TRY(tsr_run_head(e, src, logits, err));
        TSR_TRY(check_logits(e, tokens, &e->feed, first, m, logits, err));
        logits += m * e->model->hp.vocab;
    }
    return TSR_OK;
}

tsr_status tsr_engine_set_hidden_tap(struct tsr_engine *e, tsr_hidden_tap tap, void *ctx,
                                     struct tsr_err *err)
{
    uint64_t hidden = e->model->hp.hidden;
    if (e->behind) /* it has the last layer */
        return tsr_engine_set_hidden_tap(e->behind, tap, ctx, err);
    free(e->hidden_rows);
    e->hidden_rows = tap ? tsr_new_aligned(e->head_rows, hidden * sizeof(float)) : NULL;
    e->hidden_tap = e->hidden_rows ? tap : NULL;
    e->hidden_ctx = ctx;
    return !tap || e->hidden_rows
               ? TSR_OK
               : tsr_fail_nomem(err, e->head_rows * hidden * sizeof(float), "hidden rows");
}

tsr_status tsr_engine_forward(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
                              float *logits, struct tsr_err *err)
{
    return tsr_engine_stage(e, tokens, n, NULL, NULL, logits, err);
}

/* Hidden rows of n tokens between e->h and host memory. */
static tsr_status hidden_in(struct tsr_engine *e, const float *in, uint64_t n, struct tsr_err *err)
{
    struct tsr_tensor h = tsr_rows(&e->h, 0, n);
    return tsr_device_upload(e->dev, &h, in, err);
}

static tsr_status hidden_out(struct tsr_engine *e, float *out, uint64_t n, struct tsr_err *err)
{
    struct tsr_tensor h = tsr_rows(&e->h, 0, n);
    TSR_TRY(tsr_device_sync(e->dev, err));
    return tsr_device_download(e->dev, &h, out, err);
}

tsr_status tsr_engine_stage(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
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

tsr_status tsr_engine_stage_own(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
                                const float *in, float *out, float *logits, struct tsr_err *err)
{
    uint64_t hidden = e->model->hp.hidden;
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t m = n - first < e->chunk ? n - first : e->chunk, wanted = 0;
        if (tsr_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        TSR_TRY(tsr_feed_chunk(e, tokens + first, m, &wanted, err));
        TSR_TRY(tsr_compensate_chunk(e, tokens + first, m, err));
        TSR_TRY(in ? hidden_in(e, in + first * hidden, m, err) : tsr_run_embedding(e, m, err));
        for (uint64_t i = e->first; i < e->end; i++) {
            e->at_layer = i;
            TSR_TRY(tsr_block_run(e, i, m, err));
        }
        if (logits)
            TSR_TRY(head(e, tokens + first, m, wanted, logits, err));
        if (logits)
            logits += wanted * e->model->hp.vocab;
        if (out)
            TSR_TRY(hidden_out(e, out + first * hidden, m, err));
        TSR_TRY(tsr_device_sync(e->dev, err)); /* before the next chunk's numbers go over */
    }
    return TSR_OK;
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
        if (tsr_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        TSR_TRY(hidden_in(e, rows + first * e->model->hp.hidden, m, err));
        TSR_TRY(tsr_run_head(e, tsr_rows(&e->h, 0, m), logits, err));
        for (uint64_t i = 0; i < m; i++)
            if (!tsr_all_finite(logits + i * vocab, vocab))
                return tsr_fail(err, TSR_E_NUMERIC,
                                "%s: the logits of row %llu of a micro-batch are not finite",
                                e->model->path, (unsigned long long)(first + i));
    }
    return TSR_OK;
}

static tsr_status embed_chunks(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
                               float *out, struct tsr_err *err)
{
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t m = n - first < e->chunk ? n - first : e->chunk, wanted;
        TSR_TRY(tsr_feed_chunk(e, tokens + first, m, &wanted, err));
        TSR_TRY(tsr_run_embedding(e, m, err));
        TSR_TRY(hidden_out(e, out + first * e->model->hp.hidden, m, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_embed(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
                            float *out, struct tsr_err *err)
{
    if (!e->has_embed)
        return tsr_fail(err, TSR_E_INVAL, "this part of the model has no embedding");
    TSR_TRY(check_batch(e, tokens, n, err));
    struct tsr_slot *before = tsr_new(e->n_slots, sizeof *before);
    if (!before)
        return tsr_fail_nomem(err, e->n_slots * sizeof *before, "slots");
    memcpy(before, e->slots, e->n_slots * sizeof *before);
    tsr_status st = embed_chunks(e, tokens, n, out, err);
    memcpy(e->slots, before, e->n_slots * sizeof *before);
    free(before);
    return st;
}
