/* refine.c - coordinate descent after the GPTQ pass: column by column, each code becomes the best
 * one given all others.  The loss e (H + ridge) e^T of a row is a parabola in one code, so the best
 * code is the one nearest to its minimum, and no step increases the loss.
 *
 * The gradient of a block of columns under the newest errors is one matrix product; inside the
 * block it is updated incrementally. */
#include "gptq.h"

static void column(struct gptq_tile *t, uint64_t begin, uint64_t j, uint64_t n)
{
    uint64_t     k = begin + j, g = k / t->width;
    const float *h = t->hessian + k * t->cols, *scale = gptq_at(t->scale, g);
    const float *zero = gptq_at(t->zero, g), *gradient = gptq_at(t->side, j);
    float       *e = t->e + k * GPTQ_LANES, ridge = t->site->ridge;
    float        curve = h[k] + ridge;
    float        now[GPTQ_LANES], best[GPTQ_LANES], code[GPTQ_LANES], value[GPTQ_LANES];
    uint8_t     *codes = t->codes + k * GPTQ_LANES;
    int          moved = 0;
    if (t->site->weight[k] == 0.0f)
        return;
    for (uint32_t r = 0; r < GPTQ_LANES; r++)
        code[r] = (float)codes[r];
    gptq_value(&t->q->rule, now, code, scale, zero);
    for (uint32_t r = 0; r < GPTQ_LANES; r++)
        best[r] = now[r] + (gradient[r] + ridge * e[r]) / curve;
    gptq_round(&t->q->rule, code, value, best, scale, zero);
    for (uint32_t r = 0; r < GPTQ_LANES; r++) {
        best[r] = value[r] - now[r];
        moved |= best[r] != 0.0f;
    }
    if (!moved)
        return;
    const float *w = gptq_at(t->w, k);
    for (uint32_t r = 0; r < GPTQ_LANES; r++) {
        codes[r] = (uint8_t)code[r];
        e[r] = w[r] - value[r];
    }
    for (uint64_t i = j + 1; i < n; i++) {
        float *to = t->side + i * GPTQ_LANES, by = h[begin + i];
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            to[r] = to[r] - best[r] * by;
    }
}

static tsr_status sweep(struct gptq_tile *t, struct tsr_err *err)
{
    const struct tsr_host      *host = t->q->host;
    const struct tsr_linalg_v1 *la = t->site->la;
    for (uint64_t begin = 0; begin < t->cols; begin += t->q->block) {
        uint64_t n = gptq_min(t->q->block, t->cols - begin);
        if (host->cancelled(host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        memset(t->side, 0, n * GPTQ_LANES * sizeof *t->side);
        tsr_status st = la->gemm(la->ctx, n, t->rows, t->cols, 1.0f, t->hessian + begin * t->cols,
                                 t->cols, t->e, GPTQ_LANES, 0, t->side, GPTQ_LANES, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t j = 0; j < n; j++)
            column(t, begin, j, n);
        if ((st = gptq_push(t, begin, begin + n, err)) != TSR_OK)
            return st;
    }
    return TSR_OK;
}

tsr_status gptq_refine(struct gptq_tile *t, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < t->q->refine && st == TSR_OK; i++)
        st = sweep(t, err);
    return st;
}
