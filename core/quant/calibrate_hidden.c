/* The hidden states of all sequences before a layer: after quantized layers, and of the original model. */
#include "base/log.h"
#include "base/mem.h"
#include "quant/calibrate_internal.h"

#include <stdlib.h>

void tsr_quant_source_rest(struct tsr_quant_calibration_source *s)
{
    tsr_engine_stream_destroy(s->stream);
    free(s->h);
    free(s->after);
    free(s->original);
    s->stream = NULL;
    s->h = s->after = s->original = NULL;
    s->started = s->original_started = false;
}

void tsr_quant_source_free(struct tsr_quant_calibration_source *s)
{
    if (!s)
        return;
    tsr_quant_source_rest(s);
    free(s->folder);
    free(s);
}

static tsr_status say_memory(const struct tsr_quant_calibration *c, uint64_t hidden,
                             struct tsr_err *err)
{
    char     a[TSR_BYTES_TEXT], b[TSR_BYTES_TEXT];
    uint64_t device;
    TSR_TRY(tsr_engine_stream_estimate(c->source->model, c->seqlen, &device, err));
    tsr_logf(TSR_LOG_INFO,
             "calibration: hidden states of %llu sequences of %llu tokens take %s, the device "
             "at most %s",
             (unsigned long long)c->sequences, (unsigned long long)c->seqlen,
             tsr_format_bytes(a, sizeof a, hidden), tsr_format_bytes(b, sizeof b, device));
    return TSR_OK;
}

tsr_status tsr_quant_source_stream(struct tsr_quant_calibration *c, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    if (s->stream)
        return TSR_OK;
    return tsr_engine_stream_create(&s->stream, s->registry, s->model, c->seqlen, TSR_ACT_F32,
                                    &c->on, err);
}

/* Hidden states after the embedding. */
tsr_status tsr_quant_source_start(struct tsr_quant_calibration   *c,
                                  const struct tsr_model_overlay *before, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = c->seqlen * s->model->hp.hidden, n = 0;
    TSR_TRY(tsr_quant_source_stream(c, err));
    if (!s->h) {
        bool fits = tsr_mul(c->tokens, s->model->hp.hidden, &n);
        s->h = fits ? tsr_new_aligned(n, sizeof *s->h) : NULL;
        s->after = tsr_new_aligned(step, sizeof *s->after);
        if (!s->h || !s->after)
            return tsr_fail_nomem(err, n * sizeof *s->h, "hidden states of the calibration");
        TSR_TRY(say_memory(c, n * sizeof *s->h, err));
    }
    s->started = false;
    for (uint64_t i = 0; i < c->sequences; i++)
        TSR_TRY(tsr_engine_stream_embed(s->stream, c->ids + i * c->seqlen, c->seqlen,
                                        s->h + i * step, err));
    s->started = true;
    s->at = 0;
    s->before = before;
    return TSR_OK;
}

/* h through layer `at`.  A failure leaves h half moved: the next call starts again. */
tsr_status tsr_quant_source_advance(struct tsr_quant_calibration *c, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = c->seqlen * s->model->hp.hidden;
    TSR_TRY(tsr_engine_stream_open_layer(s->stream, s->at, s->before, err));
    s->started = false;
    for (uint64_t i = 0; i < c->sequences; i++)
        TSR_TRY(tsr_engine_stream_run(s->stream, s->h + i * step, c->seqlen, s->h + i * step, err));
    s->started = true;
    s->at++;
    return TSR_OK;
}

/* The hidden states of the original model before `layer`, next to those of the overlay.  A failure
 * leaves them half moved: the next call starts again. */
tsr_status tsr_quant_source_original(struct tsr_quant_calibration *c, uint64_t layer,
                                     struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = c->seqlen * s->model->hp.hidden, n = 0;
    bool                                 again = !s->original_started || s->original_at > layer;
    s->original_started = false;
    if (!s->original) {
        bool fits = tsr_mul(c->tokens, s->model->hp.hidden, &n);
        s->original = fits ? tsr_new_aligned(n, sizeof *s->original) : NULL;
        if (!s->original)
            return tsr_fail_nomem(err, n * sizeof *s->original, "hidden states of the original");
    }
    for (uint64_t i = 0; i < c->sequences && again; i++)
        TSR_TRY(tsr_engine_stream_embed(s->stream, c->ids + i * c->seqlen, c->seqlen,
                                        s->original + i * step, err));
    for (s->original_at = again ? 0 : s->original_at; s->original_at < layer; s->original_at++) {
        TSR_TRY(tsr_engine_stream_open_layer(s->stream, s->original_at, NULL, err));
        for (uint64_t i = 0; i < c->sequences; i++)
            TSR_TRY(tsr_engine_stream_run(s->stream, s->original + i * step, c->seqlen,
                                          s->original + i * step, err));
    }
    s->original_started = true;
    return TSR_OK;
}
