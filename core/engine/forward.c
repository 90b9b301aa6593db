/* The forward pass: tokens in, logits out.  It reads from the top, with block.c for a layer:
 *
 *   tsr_engine_stage_own    chunk by chunk: the tokens' numbers go over (feed.c), then
 *     tsr_engine_run_embedding       ids to hidden rows
 *     tsr_engine_block_run           hidden rows through a layer, for every layer (block.c)
 *     wanted_logits           hidden rows whose logits are wanted
 *       tsr_engine_run_head            final norm, LM head, logits in host memory
 *
 * Calibration, sums over ranks and compensation hang on hooks.h; stage.c has the calls of engine.h, with their
 * checks; ops.c has the single operations. */
#include "engine/internal.h"

#include <string.h>

static tsr_status wanted_logits(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                uint64_t n, uint64_t wanted, float *logits, struct tsr_err *err);
static tsr_status head_on_device(struct tsr_engine *e, struct tsr_tensor src,
                                 struct tsr_tensor *out, struct tsr_err *err);

tsr_status tsr_engine_stage_own(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                uint64_t n, const float *in, float *out, float *logits,
                                struct tsr_err *err)
{
    uint64_t hidden = e->model->hp.hidden;
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t m = n - first < e->chunk ? n - first : e->chunk, wanted = 0;
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        TSR_TRY(tsr_engine_feed_chunk(e, tokens + first, m, &wanted, err));
        if (e->hooks.chunk)
            TSR_TRY(e->hooks.chunk(e, tokens + first, m, err));
        TSR_TRY(in ? tsr_engine_hidden_in(e, in + first * hidden, m, err)
                   : tsr_engine_run_embedding(e, m, err));
        for (uint64_t i = e->first; i < e->end; i++) {
            e->at_layer = i;
            TSR_TRY(tsr_engine_block_run(e, i, m, err));
        }
        if (logits || e->best)
            TSR_TRY(wanted_logits(e, tokens + first, m, wanted, logits, err));
        if (logits)
            logits += wanted * e->model->hp.vocab;
        if (out)
            TSR_TRY(tsr_engine_hidden_out(e, out + first * hidden, m, err));
        TSR_TRY(tsr_engine_device_sync(e->dev, err)); /* before the next chunk's numbers go over */
    }
    return TSR_OK;
}

tsr_status tsr_engine_run_embedding(struct tsr_engine *e, uint64_t n, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_tensor h = tsr_engine_rows(&e->h, 0, n), x = tsr_engine_rows(&e->x, 0, n);
    if (e->project_in.w) {
        struct tsr_tensor narrow = tsr_engine_rows(&e->narrow, 0, n);
        TSR_TRY(tsr_engine_run_embed(e, e->embed, &e->feed.ids, hp->embed_scale, &narrow, err));
        TSR_TRY(tsr_engine_run_linear(e, &e->project_in, &narrow, &h, err));
    } else {
        TSR_TRY(tsr_engine_run_embed(e, e->embed, &e->feed.ids, hp->embed_scale, &h, err));
    }
    if (e->positions) {
        TSR_TRY(tsr_engine_run_embed(e, e->positions, &e->feed.positions, 1, &x, err));
        TSR_TRY(tsr_engine_run_add(e, &h, &x, &h, err));
    }
    return e->embed_norm.gain.buffer ? tsr_engine_run_norm(e, &e->embed_norm, &h, &h, err) : TSR_OK;
}

static tsr_status not_finite(const struct tsr_engine *e, const struct tsr_engine_token *tokens,
                             uint64_t row, struct tsr_err *err)
{
    const struct tsr_engine_feed *f = &e->feed;
    uint32_t                      at, spans[2];
    memcpy(&at, f->host + f->gather.offset + row * sizeof at, sizeof at);
    memcpy(spans, f->host + f->spans[TSR_ENGINE_CACHE_CONTEXT].offset + at * sizeof spans,
           sizeof spans);
    return tsr_fail(err, TSR_E_NUMERIC,
                    "%s: the logits of sequence %u at position %u are not finite", e->model->path,
                    tokens[at].slot, spans[1]);
}

static tsr_status logits_to_host(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                 const struct tsr_tensor *src, uint64_t first, float *logits,
                                 struct tsr_err *err)
{
    uint64_t vocab = e->model->hp.vocab;
    TSR_TRY(tsr_engine_run_head(e, *src, logits, err));
    for (uint64_t i = 0; i < src->rows; i++)
        if (!tsr_engine_all_finite(logits + i * vocab, vocab))
            return not_finite(e, tokens, first + i, err);
    return TSR_OK;
}

/* Only their best tokens; all wanted rows are in src. */
static tsr_status best_to_host(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                               const struct tsr_tensor *src, struct tsr_err *err)
{
    const struct tsr_engine_best *b = e->best;
    struct tsr_tensor             out = tsr_engine_rows(&e->logits, 0, src->rows);
    TSR_TRY(head_on_device(e, *src, &out, err));
    TSR_TRY(e->candidates->find(e->dev->self, &out, b->most, b->inverse, b->best, b->row, err));
    for (uint64_t i = 0; i < src->rows; i++)
        if (b->row[i].not_finite)
            return not_finite(e, tokens, i, err);
    return TSR_OK;
}

/* The wanted rows of a chunk of n: gathered, shown to who asked, and through the head. */
static tsr_status wanted_logits(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                uint64_t n, uint64_t wanted, float *logits, struct tsr_err *err)
{
    for (uint64_t first = 0; first < wanted; first += e->head_rows) {
        uint64_t          m = wanted - first < e->head_rows ? wanted - first : e->head_rows;
        struct tsr_tensor src;
        if (wanted == n) {
            src = tsr_engine_rows(&e->h, first, m);
        } else {
            struct tsr_tensor h = tsr_engine_rows(&e->h, 0, n), ids = e->feed.gather;
            src = tsr_engine_rows(&e->x, 0, m);
            ids.offset += first * sizeof(uint32_t);
            ids.cols = m;
            ids.row_stride = m * sizeof(uint32_t);
            struct tsr_op op = { .kind = TSR_OP_GATHER, .out = &src, .in = { &h, &ids } };
            TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
        }
        if (e->hooks.hidden)
            TSR_TRY(e->hooks.hidden(e, &src, err));
        if (e->best) {
            TSR_TRY(best_to_host(e, tokens, &src, err));
            continue;
        }
        TSR_TRY(logits_to_host(e, tokens, &src, first, logits, err));
        logits += m * e->model->hp.vocab;
    }
    return TSR_OK;
}

/* Queues the head: out, the first rows of e->logits. */
static tsr_status head_on_device(struct tsr_engine *e, struct tsr_tensor src,
                                 struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_tensor               y = tsr_engine_rows(&e->y, 0, src.rows);
    if (e->final_norm.gain.buffer) {
        TSR_TRY(tsr_engine_run_norm(e, &e->final_norm, &src, &y, err));
        src = y;
    }
    if (e->project_out.w) {
        struct tsr_tensor narrow = tsr_engine_rows(&e->narrow, 0, src.rows);
        TSR_TRY(tsr_engine_run_linear(e, &e->project_out, &src, &narrow, err));
        src = narrow;
    }
    TSR_TRY(tsr_engine_run_linear(e, &e->head, &src, out, err));
    if (hp->logit_scale != 1 || hp->logit_softcap > 0) {
        struct tsr_op op = { .kind = TSR_OP_SCALE,
                             .out = out,
                             .in = { out },
                             .scale = hp->logit_scale,
                             .softcap = hp->logit_softcap };
        TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_run_head(struct tsr_engine *e, struct tsr_tensor src, float *logits,
                               struct tsr_err *err)
{
    struct tsr_tensor out = tsr_engine_rows(&e->logits, 0, src.rows);
    TSR_TRY(head_on_device(e, src, &out, err));
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    return tsr_engine_device_download(e->dev, &out, logits, err);
}
