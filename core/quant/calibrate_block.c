/* Inputs of a layer as a whole, and the outputs of the original one. */
#include "quant/calibrate_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void tsr_quant_recording_free(struct tsr_quant_recording *r)
{
    free(r->in);
    free(r->out);
    *r = (struct tsr_quant_recording){ 0 };
}

/* The hidden states before the layer that its outputs come from: those of the original model. */
static tsr_status originals(struct tsr_quant_calibration *c, uint64_t layer, const float **from,
                            struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    if (s->before)
        TSR_TRY(tsr_quant_source_original(c, layer, err));
    *from = s->before ? s->original : s->h;
    return TSR_OK;
}

tsr_status tsr_quant_calibration_record(struct tsr_quant_calibration *c, uint64_t layer,
                                        const struct tsr_model_overlay *before,
                                        struct tsr_quant_recording *r, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = 0, size = 0;
    const float                         *from;
    *r = (struct tsr_quant_recording){ 0 };
    if (!s)
        return tsr_fail(err, TSR_E_INPUT,
                        "an importance matrix has no inputs of layers; the quantizer needs a "
                        "calibrate step (the verb: --text FILE) in place of it");
    if (!s->started || s->at > layer || s->before != before)
        TSR_TRY(tsr_quant_source_start(c, before, err));
    while (s->at < layer)
        TSR_TRY(tsr_quant_source_advance(c, err));
    TSR_TRY(originals(c, layer, &from, err));
    TSR_TRY(tsr_engine_stream_open_layer(s->stream, layer, NULL, err));
    bool fits = tsr_mul(c->seqlen, s->model->hp.hidden, &step) && tsr_mul(step, s->keep, &size);
    r->in = fits ? tsr_new_aligned(size, sizeof *r->in) : NULL;
    r->out = fits ? tsr_new_aligned(size, sizeof *r->out) : NULL;
    if (!r->in || !r->out) {
        tsr_quant_recording_free(r);
        return tsr_fail_nomem(err, 2 * size * sizeof *r->in, "recorded inputs of a layer");
    }
    r->sequences = s->keep;
    r->tokens = c->seqlen;
    r->hidden = s->model->hp.hidden;
    memcpy(r->in, s->h, size * sizeof *r->in);
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < s->keep && st == TSR_OK; i++)
        st = tsr_engine_stream_run(s->stream, from + i * step, c->seqlen, r->out + i * step, err);
    if (st != TSR_OK)
        tsr_quant_recording_free(r);
    return st;
}
