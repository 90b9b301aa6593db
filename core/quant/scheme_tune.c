/* Quantizers that pack a layer as a whole. */
#include "quant/scheme_run_internal.h"

static bool seen_before(const struct tsr_quant_layer_work *k, uint64_t i)
{
    for (uint64_t earlier = 0; earlier < i; earlier++)
        if (k->q[earlier] == k->q[i])
            return true;
    return false;
}

/* Scales of a search change what the block computes before it is packed; a plugin does one or the other. */
static tsr_status check(const struct tsr_quant_layer_work *k, const struct tsr_quantizer *q,
                        struct tsr_err *err)
{
    if (!k->stats || !k->stats->block.sequences)
        return tsr_fail(
            err, TSR_E_INPUT,
            "quantizer '%s' tunes whole layers on recorded inputs; put a calibrate step "
            "before it (the verb: --text FILE)",
            q->name);
    if (tsr_quant_block_searches(q))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "quantizer '%s' has both " TSR_QUANTIZER_BLOCK " and " TSR_QUANTIZER_TUNE
                        "; expected one of them",
                        q->name);
    return TSR_OK;
}

tsr_status tsr_quant_layer_tune(struct tsr_quant_layer_work *k, struct tsr_quant_calibration *c,
                                struct tsr_err *err)
{
    struct tsr_quant_tune_job job = {
        .registry = k->a->registry, .model = k->a->m, .layer = k->layer, .q = k->q
    };
    for (uint64_t i = 0; i < k->a->m->hp.linears; i++) {
        if (!tsr_quant_tunes(k->q[i]) || seen_before(k, i))
            continue;
        TSR_TRY(check(k, k->q[i], err));
        tsr_quant_scheme_say_remarks(k->a);
        job.recording = &k->stats->block;
        TSR_TRY(tsr_quant_calibration_stream(c, k->layer, &job.stream, err));
        TSR_TRY(tsr_quant_tune(&job, k->q[i], k->o->lin[k->layer], err));
        for (uint64_t n = i; n < k->a->m->hp.linears; n++)
            if (k->q[n] == k->q[i])
                tsr_quant_scheme_count(k->a);
    }
    return TSR_OK;
}
