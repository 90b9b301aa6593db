/* Embedding and head, both packed: what that costs in KL. */
#include "model/packed.h"
#include "plugin/spec.h"
#include "quant/isolate.h"
#include "quant/kl_internal.h"

#include <string.h>

tsr_status tsr_quant_kl_end(struct tsr_registry *r, const char *text, struct tsr_err *err)
{
    struct tsr_plugin_spec spec = { 0 };
    tsr_status             st = tsr_plugin_spec_open(&spec, r, TSR_KIND_QUANTIZER, text, err);
    tsr_plugin_spec_close(&spec);
    return st;
}

/* Into o; a tied head is the embedding. */
static tsr_status pack(struct tsr_kl_states *s, const struct tsr_quantizer *q,
                       struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct tsr_quant_plan plan;
    TSR_TRY(tsr_quantizer_plan(q, &s->model->head.w, &plan, err));
    if ((uint32_t)plan.need) /* what it must have */
        return tsr_fail(err, TSR_E_INPUT,
                        "'%s' needs statistics of inputs, which embedding and head do not have",
                        q->name);
    TSR_TRY(tsr_quantize_matrix(s->registry, q, &s->model->head.w, NULL, &o->head, err));
    if (s->model->hp.tied) {
        o->embed = o->head;
        return TSR_OK;
    }
    return tsr_quantize_matrix(s->registry, q, &s->model->embed, NULL, &o->embed, err);
}

static tsr_status measure(struct tsr_kl_states *s, const struct tsr_model_overlay *o, float *h,
                          struct tsr_kl_figure *f, struct tsr_err *err)
{
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options eo = {
        .on = s->c->on, .act = TSR_ACT_F32, .kv_dtype = TSR_F32, .slots = 1, .context = s->c->seqlen
    };
    tsr_status st = tsr_engine_create(&e, s->registry, s->model, o, &eo, err);
    if (st == TSR_OK)
        st = tsr_kl_states_run(s, e, h, err);
    if (st == TSR_OK)
        st = tsr_kl_states_score_by(s, e, h, f, err);
    tsr_engine_destroy(e);
    return st;
}

tsr_status tsr_kl_states_ends(struct tsr_kl_states *s, const char *quantizer, float *h,
                              struct tsr_kl_figure *f, struct tsr_err *err)
{
    struct tsr_plugin_spec    spec = { 0 };
    struct tsr_quantizer      q = { 0 };
    struct tsr_model_overlay *o = NULL;
    tsr_status st = tsr_plugin_spec_open(&spec, s->registry, TSR_KIND_QUANTIZER, quantizer, err);
    if (st == TSR_OK)
        st = tsr_quantizer_open(&q, s->registry, &spec.found, tsr_plugin_registry_host(s->registry),
                                spec.options, err);
    if (st == TSR_OK)
        st = tsr_model_overlay_create(&o, s->model->hp.layers, s->model->hp.linears, err);
    if (st == TSR_OK)
        st = pack(s, &q, o, err);
    if (st == TSR_OK)
        st = measure(s, o, h, f, err);
    tsr_model_overlay_destroy(o);
    tsr_quantizer_close(&q);
    tsr_plugin_spec_close(&spec);
    return st == TSR_OK ? TSR_OK : tsr_err_prefix(err, st, "ends by %s", quantizer);
}
