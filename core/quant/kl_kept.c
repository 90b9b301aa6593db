/* What error compensation leaves of the KL of a scheme: the whole model is packed into a folder, which is removed
 * afterwards. */
#include "base/mem.h"
#include "base/output.h"
#include "quant/kl_internal.h"
#include "quant/quantize.h"
#include "quant/residuals.h"

#define BITS 4u /* of residuals, the default of `compensate` */

static tsr_status measure(struct tsr_kl_states *s, const struct tsr_model_overlay *o,
                          const struct tsr_compensation *from, uint32_t k, float *h,
                          struct tsr_kl_figure *f, struct tsr_err *err)
{
    struct tsr_engine                 *e = NULL;
    const struct tsr_engine_compensate how = {
        .from = from, .each = k, .select = TSR_COMPENSATE_SELECT_DYNAMIC, .all = true
    };
    struct tsr_engine_options eo = { .on = s->c->on,
                                     .act = TSR_ACT_F32,
                                     .kv_dtype = TSR_F32,
                                     .slots = 1,
                                     .context = s->c->seqlen,
                                     .compensate = k ? &how : NULL };
    tsr_status                st = tsr_engine_create(&e, s->registry, s->model, o, &eo, err);
    if (st == TSR_OK)
        st = tsr_kl_states_run(s, e, h, err);
    if (st == TSR_OK)
        st = tsr_kl_states_score_by(s, e, h, f, err);
    tsr_engine_destroy(e);
    return st;
}

static tsr_status all_of(struct tsr_kl_states *s, const struct tsr_model_overlay *o,
                         const struct tsr_compensation *from, const uint32_t *k, uint32_t n,
                         float *h, struct tsr_kl_figure *left, struct tsr_err *err)
{
    struct tsr_kl_figure bare, with;
    TSR_TRY(measure(s, o, from, 0, h, &bare, err));
    if (!(bare.kl > 0))
        return tsr_fail(err, TSR_E_INPUT, "the scheme loses nothing that could be compensated");
    for (uint32_t i = 0; i < n; i++) {
        TSR_TRY(measure(s, o, from, k[i], h, &with, err));
        left[i] = (struct tsr_kl_figure){ with.kl / bare.kl, with.half / bare.kl };
    }
    return TSR_OK;
}

tsr_status tsr_kl_states_kept(struct tsr_kl_states *s, struct tsr_quant_calibration *c,
                              const struct tsr_quant_kl_options *opt, uint32_t scheme, float *h,
                              struct tsr_kl_figure *left, struct tsr_err *err)
{
    struct tsr_quantize_options q = {
        .folder = opt->folder, .options = opt->scheme_map[scheme], .calibration = c, .again = true
    };
    struct tsr_quant_compensation_options co = { .folder = opt->folder,
                                                 .bits = BITS,
                                                 .calibration = c };
    struct tsr_quant_compensation_report  report;
    struct tsr_model_overlay             *o = NULL;
    struct tsr_compensation              *from = NULL;
    uint64_t                              done;
    tsr_status                            st =
        tsr_quantize_model(opt->scheme[scheme], s->registry, s->model, &q, &o, &done, err);
    if (st == TSR_OK)
        st = tsr_quant_compensation_make(s->registry, s->model, &co, &report, err);
    if (st == TSR_OK)
        st = tsr_compensation_open(&from, opt->folder, s->model, err);
    if (st == TSR_OK)
        st = all_of(s, o, from, opt->k, opt->n_k, h, left, err);
    tsr_compensation_destroy(from);
    tsr_model_overlay_destroy(o);
    tsr_temp_folder_remove(tsr_strdup(opt->folder));
    return st == TSR_OK ? TSR_OK
                        : tsr_err_prefix(err, st, "compensation of %s", opt->scheme_text[scheme]);
}
