/* A whole matrix with its statistics: prepared and quantized here, or in a child. */
#include "quant/held.h"
#include "quant/isolate.h"
#include "quant/matrix_internal.h"
#include "quant/quant.h"

static tsr_status isolated(struct tsr_registry *r, const struct tsr_quantizer *q,
                           const struct tsr_matrix *w, const struct tsr_quant_stats *seen,
                           struct tsr_model_packed **out, struct tsr_err *err)
{
    struct tsr_quant_pack_item it = { .whole = w, .w = w };
    TSR_TRY(tsr_quant_isolated_pack(r, q, seen, &it, 1, err));
    if (it.status != TSR_OK)
        return tsr_err_copy(err, it.status, &it.why.err);
    *out = it.packed;
    return TSR_OK;
}

tsr_status tsr_quantize_matrix(struct tsr_registry *r, const struct tsr_quantizer *q,
                               const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                               struct tsr_model_packed **out, struct tsr_err *err)
{
    struct tsr_quant_matrix_work k = { .q = q, .w = w, .whole = w };
    tsr_status                   st = tsr_quant_matrix_plan(&k, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", q->name);
    TSR_TRY(tsr_quant_need_check(k.plan.need, stats, w->cols, q->name, w->name, err));
    struct tsr_quant_stats seen = tsr_quant_stats_for(k.plan.need, stats);
    if (q->isolated)
        return isolated(r, q, w, k.plan.need ? &seen : NULL, out, err);
    void                 *prepared = NULL;
    struct tsr_quant_held held = { 0 };
    TSR_TRY(tsr_quant_held_begin(&held, tsr_plugin_registry_host(r), seen.hessian, w->cols, w->cols,
                                 err));
    if (k.plan.need && q->iface->prepare) {
        st = q->iface->prepare(q->self, &seen, &prepared, err);
        if (st == TSR_E_NUMERIC) /* statistics of the user's that cannot work */
            st = TSR_E_INPUT;
        if (st != TSR_OK) {
            (void)tsr_quant_held_end(&held, false, NULL);
            return tsr_err_prefix(err, st, "quantizer '%s', tensor '%s'", q->name, w->name);
        }
    }
    st = tsr_quantize_prepared(r, q, w, k.plan.need ? &seen : NULL, prepared, out, err);
    if (prepared && q->iface->unprepare)
        q->iface->unprepare(q->self, prepared);
    (void)tsr_quant_held_end(&held, false, NULL);
    return st;
}
