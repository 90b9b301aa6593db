/* Observers of a forward pass: of the input of every site, for calibration, and of the rows for the
 * logits.  They are hooks (hooks.h), so a pass without them has no overhead. */
#include "engine/internal.h"

#include "base/mem.h"

#include <stdlib.h>

/* Room for a chunk of the widest input, made when it is needed first. */
static tsr_status make_rows(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_latent *l = &e->model->hp.latent;
    uint64_t                       widest = e->h.cols, n;
    if (widest < l->q_rank)
        widest = l->q_rank;
    if (widest < l->rank)
        widest = l->rank;
    if (e->a.cols > widest)
        widest = e->a.cols;
    if (e->up.cols > widest)
        widest = e->up.cols;
    if (!tsr_mul(widest, e->chunk, &n) || !(e->tap_rows = tsr_new_aligned(n, sizeof(float))))
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: rows for calibration");
    return TSR_OK;
}

tsr_status tsr_engine_tap_download(struct tsr_engine *e, const struct tsr_tensor *in,
                                   struct tsr_err *err)
{
    if (!e->tap_rows)
        TSR_TRY(make_rows(e, err));
    TSR_TRY(tsr_engine_device_sync(e->tap_dev, err));
    return tsr_engine_device_download(e->tap_dev, in, e->tap_rows, err);
}

static tsr_status show_input(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                             const struct tsr_tensor *in, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_tap_download(e, in, err));
    return e->tap(e->tap_ctx, layer, site, e->tap_rows, in->rows, in->cols, err);
}

void tsr_engine_set_tap(struct tsr_engine *e, tsr_engine_tap tap, void *ctx)
{
    e->tap = tap;
    e->tap_ctx = ctx;
    e->hooks.input = tap ? show_input : NULL;
    if (e->behind)
        tsr_engine_set_tap(e->behind, tap, ctx);
}

static tsr_status show_hidden(struct tsr_engine *e, const struct tsr_tensor *rows,
                              struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    TSR_TRY(tsr_engine_device_download(e->dev, rows, e->hidden_rows, err));
    return e->hidden_tap(e->hidden_ctx, e->hidden_rows, rows->rows, err);
}

tsr_status tsr_engine_set_hidden_tap(struct tsr_engine *e, tsr_engine_hidden_tap tap, void *ctx,
                                     struct tsr_err *err)
{
    uint64_t hidden = e->model->hp.hidden;
    if (e->behind) /* it has the last layer */
        return tsr_engine_set_hidden_tap(e->behind, tap, ctx, err);
    free(e->hidden_rows);
    e->hidden_rows = tap ? tsr_new_aligned(e->head_rows, hidden * sizeof(float)) : NULL;
    e->hidden_tap = e->hidden_rows ? tap : NULL;
    e->hidden_ctx = ctx;
    e->hooks.hidden = e->hidden_tap ? show_hidden : NULL;
    return !tap || e->hidden_rows
               ? TSR_OK
               : tsr_fail_nomem(err, e->head_rows * hidden * sizeof(float), "hidden rows");
}
