/* A scheme over a whole model, in memory. */
#include "quant/scheme_internal.h"
#include "quant/scheme_run.h"

static tsr_status layer(struct tsr_scheme_run *run, uint64_t l, struct tsr_quant_calibration *c,
                        bool sequential, struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct tsr_quant_layer_stats stats = { 0 };
    uint64_t                     need;
    TSR_TRY(tsr_quant_scheme_need(run, l, &need, err));
    if (need && c)
        TSR_TRY(tsr_quant_calibration_layer(c, l, need, sequential ? o : NULL, &stats, err));
    tsr_status st = tsr_quant_scheme_layer(run, l, c, need && c ? &stats : NULL, o, err);
    tsr_quant_layer_stats_free(&stats);
    return st;
}

tsr_status tsr_quant_scheme_apply(struct tsr_quant_scheme *s, struct tsr_registry *r,
                                  const struct tsr_model *m, struct tsr_quant_calibration *c,
                                  struct tsr_model_overlay **out, struct tsr_err *err)
{
    struct tsr_scheme_run    *run = NULL;
    struct tsr_model_overlay *o = NULL;
    if (c && c->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT, "the calibration is of %llu layers, the model has %llu",
                        (unsigned long long)c->layers, (unsigned long long)m->hp.layers);
    TSR_TRY(tsr_quant_scheme_open(&run, s, r, m, err));
    tsr_status st = tsr_model_overlay_create(&o, m->hp.layers, m->hp.linears, err);
    for (uint64_t l = 0; l < m->hp.layers && st == TSR_OK; l++)
        if ((st = tsr_model_open_layer(m, l, err)) == TSR_OK) {
            st = layer(run, l, c, s->keys.sequential != 0, o, err);
            tsr_model_close_layer(m, l);
        }
    if (st == TSR_OK)
        st = tsr_quant_scheme_ends(run, o, err);
    tsr_quant_scheme_close(run);
    if (st != TSR_OK) {
        tsr_model_overlay_destroy(o);
        return st;
    }
    *out = o;
    return TSR_OK;
}

tsr_status tsr_quant_scheme_needs(struct tsr_quant_scheme *s, struct tsr_registry *r,
                                  const struct tsr_model *m, uint64_t *need, struct tsr_err *err)
{
    struct tsr_scheme_run *run = NULL;
    *need = 0;
    TSR_TRY(tsr_quant_scheme_open(&run, s, r, m, err));
    tsr_status st = TSR_OK;
    for (uint64_t l = 0; l < m->hp.layers && st == TSR_OK; l++) {
        uint64_t one = 0;
        st = tsr_quant_scheme_need(run, l, &one, err);
        *need |= one;
    }
    tsr_quant_scheme_close(run);
    return st;
}
