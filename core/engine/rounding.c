/* Inputs of linears rounded to few bits, to measure what that costs: a hook (hooks.h). */
#include "engine/internal.h"

#include <math.h>

/* One token: whole multiples of amax / (2^(bits-1) - 1), to the nearest even. */
static void round_row(float *x, uint64_t cols, uint32_t bits)
{
    const float most = (float)((1u << (bits - 1)) - 1);
    float       amax = 0;
    for (uint64_t i = 0; i < cols; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    const float scale = amax / most;
    if (!(scale > 0) || !isfinite(scale))
        return;
    for (uint64_t i = 0; i < cols; i++)
        x[i] = rintf(x[i] / scale) * scale;
}

static tsr_status round_input(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                              const struct tsr_tensor *in, struct tsr_err *err)
{
    (void)layer;
    (void)site;
    TSR_TRY(tsr_engine_tap_download(e, in, err));
    for (uint64_t r = 0; r < in->rows; r++)
        round_row(e->tap_rows + r * in->cols, in->cols, e->input_bits);
    return tsr_engine_device_upload(e->tap_dev, in, e->tap_rows, err);
}

tsr_status tsr_engine_set_input_bits(struct tsr_engine *e, uint32_t bits, struct tsr_err *err)
{
    if (bits == 1 || bits > 8)
        return tsr_fail(err, TSR_E_INPUT, "inputs of linears can have 2 to 8 bits, not %u", bits);
    if (bits && e->model->hp.residual_from_norm)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s: inputs of linears cannot be rounded alone, they are the hidden state",
                        e->model->path);
    e->input_bits = bits;
    e->hooks.input = bits ? round_input : NULL;
    return e->behind ? tsr_engine_set_input_bits(e->behind, bits, err) : TSR_OK;
}
