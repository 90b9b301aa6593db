/* The true increase of the loss: a layer is quantized, all others are the original, and the rest
 * of the model runs on. */
#include "base/log.h"
#include "base/mem.h"
#include "eval/eval.h"
#include "quant/indicator_internal.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_ROWS 64u

struct tsr_measure {
    const struct tsr_model             *model;
    const struct tsr_quant_calibration *c;
    struct tsr_pool                    *pool;
    struct tsr_stream                  *stream;
    uint64_t                            sequences;
    uint32_t                            n_bits;
    uint64_t                            step;   /* floats of one sequence's hidden states */
    float                              *h;      /* [sequences][step], the original's */
    float                              *copy;   /* [n_bits][sequences][step] */
    float                              *logits; /* [HEAD_ROWS, vocab] */
    double                             *nll;    /* [HEAD_ROWS] */
};

static tsr_status embed(struct tsr_measure *m, struct tsr_err *err)
{
    for (uint64_t i = 0; i < m->sequences; i++)
        TSR_TRY(tsr_engine_stream_embed(m->stream, m->c->ids + i * m->c->seqlen, m->c->seqlen,
                                        m->h + i * m->step, err));
    return TSR_OK;
}

tsr_status tsr_quant_measure_create(struct tsr_measure **out, struct tsr_registry *r,
                                    const struct tsr_model             *model,
                                    const struct tsr_quant_calibration *c, uint64_t sequences,
                                    uint32_t n_bits, struct tsr_err *err)
{
    uint64_t            n = 0, copies = 0, logits = 0;
    struct tsr_measure *m = tsr_new(1, sizeof *m);
    if (!m)
        return tsr_fail_nomem(err, sizeof *m, "measured indicators");
    *m = (struct tsr_measure){ .model = model,
                               .c = c,
                               .pool = tsr_plugin_registry_pool(r),
                               .sequences = sequences,
                               .n_bits = n_bits,
                               .step = c->seqlen * model->hp.hidden };
    bool fits = tsr_mul(sequences, m->step, &n) && tsr_mul(n, n_bits, &copies) &&
                tsr_mul(HEAD_ROWS, model->hp.vocab, &logits);
    if (fits) {
        m->h = tsr_new_aligned(n, sizeof *m->h);
        m->copy = tsr_new_aligned(copies, sizeof *m->copy);
        m->logits = tsr_new_aligned(logits, sizeof *m->logits);
        m->nll = tsr_new(HEAD_ROWS, sizeof *m->nll);
    }
    tsr_status st = TSR_OK;
    if (!m->h || !m->copy || !m->logits || !m->nll)
        st = tsr_fail_nomem(err, (n + copies) * sizeof *m->h,
                            "hidden states of the measured indicators; fewer sequences take less");
    if (st == TSR_OK)
        st = tsr_engine_stream_create(&m->stream, r, model, c->seqlen, TSR_ACT_F32, &c->on, err);
    if (st == TSR_OK)
        st = embed(m, err);
    if (st != TSR_OK) {
        tsr_quant_measure_destroy(m);
        return st;
    }
    char text[TSR_BYTES_TEXT];
    tsr_logf(TSR_LOG_INFO, "measured indicators: hidden states of %llu sequences, %u times: %s",
             (unsigned long long)sequences, n_bits + 1,
             tsr_format_bytes(text, sizeof text, (n + copies) * sizeof *m->h));
    *out = m;
    return TSR_OK;
}

void tsr_quant_measure_destroy(struct tsr_measure *m)
{
    if (!m)
        return;
    tsr_engine_stream_destroy(m->stream);
    free(m->h);
    free(m->copy);
    free(m->logits);
    free(m->nll);
    free(m);
}

/* The open layer over all sequences of one set. */
static tsr_status run_set(struct tsr_measure *m, const float *in, float *out, struct tsr_err *err)
{
    for (uint64_t i = 0; i < m->sequences; i++)
        TSR_TRY(tsr_engine_stream_run(m->stream, in + i * m->step, m->c->seqlen, out + i * m->step,
                                      err));
    return TSR_OK;
}

struct score {
    struct tsr_measure *m;
    const uint32_t     *labels;
};

static tsr_status score_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct score *s = arg;
    uint64_t            vocab = s->m->model->hp.vocab;
    for (uint64_t i = begin; i < end; i++) {
        double lse;
        s->m->nll[i] = tsr_eval_nll(s->m->logits + i * vocab, vocab, s->labels[i], &lse);
    }
    return TSR_OK;
}

/* Mean loss of the next tokens, added in token order. */
static tsr_status loss_of(struct tsr_measure *m, const float *h, double *loss, struct tsr_err *err)
{
    uint64_t seqlen = m->c->seqlen, predicted = seqlen - 1;
    double   sum = 0;
    for (uint64_t i = 0; i < m->sequences; i++)
        for (uint64_t first = 0; first < predicted; first += HEAD_ROWS) {
            uint64_t     n = predicted - first < HEAD_ROWS ? predicted - first : HEAD_ROWS;
            struct score s = { m, m->c->ids + i * seqlen + first + 1 };
            TSR_TRY(tsr_engine_stream_head(m->stream, h + i * m->step + first * m->model->hp.hidden,
                                           n, m->logits, err));
            TSR_TRY(tsr_pool_for(m->pool, n, 8, score_rows, &s));
            for (uint64_t k = 0; k < n; k++)
                sum += m->nll[k];
        }
    *loss = sum / (double)(m->sequences * predicted);
    return TSR_OK;
}

tsr_status tsr_quant_measure_layer(struct tsr_measure *m, uint64_t layer,
                                   struct tsr_model_overlay *const *overlays, double *loss,
                                   struct tsr_err *err)
{
    uint64_t set = m->sequences * m->step;
    for (uint32_t b = 0; b < m->n_bits; b++) {
        if (!overlays[b])
            continue;
        TSR_TRY(tsr_engine_stream_open_layer(m->stream, layer, overlays[b], err));
        TSR_TRY(run_set(m, m->h, m->copy + b * set, err));
    }
    for (uint64_t l = layer + 1; l < m->model->hp.layers; l++) {
        TSR_TRY(tsr_engine_stream_open_layer(m->stream, l, NULL, err));
        for (uint32_t b = 0; b < m->n_bits; b++)
            if (overlays[b])
                TSR_TRY(run_set(m, m->copy + b * set, m->copy + b * set, err));
    }
    for (uint32_t b = 0; b < m->n_bits; b++)
        if (overlays[b])
            TSR_TRY(loss_of(m, m->copy + b * set, &loss[b], err));
    TSR_TRY(tsr_engine_stream_open_layer(m->stream, layer, NULL, err));
    return run_set(m, m->h, m->h, err);
}

tsr_status tsr_quant_measure_original(struct tsr_measure *m, double *loss, uint64_t *tokens,
                                      struct tsr_err *err)
{
    *tokens = m->sequences * (m->c->seqlen - 1);
    return loss_of(m, m->h, loss, err);
}
