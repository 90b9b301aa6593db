/* refine.c - coordinate descent after the GPTQ pass: column by column, each code becomes the best
 * one given all others.  The loss e (H + ridge) e^T of a row is a parabola in one code, so the best
 * code is the one nearest to its minimum, and no step increases the loss.
 *
 * The gradient of a block of columns under the newest errors is one matrix product; inside the
 * block it is updated incrementally. */
#include "gptq.h"

#include <stdbool.h>

GPTQ_INLINE void column(struct gptq_tile *t, uint64_t begin, uint64_t j, uint64_t n)
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

GPTQ_FOR_AVX2(column, (struct gptq_tile * t, uint64_t begin, uint64_t j, uint64_t n),
              (t, begin, j, n))

/* Adds columns [from, to) of the block's rows of H times the newest errors to t->side. */
static tsr_status add_product(struct gptq_tile *t, uint64_t begin, uint64_t n, uint64_t from,
                              uint64_t to, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    return la->gemm(la->ctx, n, t->rows, to - from, 1.0f, t->hessian + begin * t->cols + from,
                    t->cols, t->e + from * GPTQ_LANES, GPTQ_LANES, 0, t->side, GPTQ_LANES, err);
}

/* The gradient of a block into t->side.  With `split`, t->before is twice the part of the columns before
 * the block, whose errors stay as they are in this sweep: the same sums in two calls. */
static tsr_status gradient(struct gptq_tile *t, uint64_t begin, uint64_t n, bool split,
                           struct tsr_err *err)
{
    uint64_t   from = split ? begin : 0;
    tsr_status st = TSR_OK;
    memset(t->side, 0, n * GPTQ_LANES * sizeof *t->side);
    if (from)
        st = add_product(t, begin, n, 0, from, err);
    for (uint64_t i = 0; split && i < n * GPTQ_LANES; i++)
        t->before[i] = 2.0f * t->side[i];
    return st == TSR_OK ? add_product(t, begin, n, from, t->cols, err) : st;
}

/* loss, if not NULL: of the errors after the sweep, from products that the gradients take as well. */
static tsr_status sweep(struct gptq_tile *t, double *loss, struct tsr_err *err)
{
    const struct tsr_host *host = t->q->host;
    for (uint64_t begin = 0; begin < t->cols; begin += t->q->block) {
        uint64_t n = gptq_min(t->q->block, t->cols - begin);
        if (host->cancelled(host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        tsr_status st = gradient(t, begin, n, loss != NULL, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t j = 0; j < n; j++)
            GPTQ_CALL(t->q, column, (t, begin, j, n));
        st = gptq_push(t, begin, begin + n, err);
        if (st == TSR_OK && loss)
            st = gptq_loss_block(t, begin, n, t->before, loss, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

/* What a device holds would travel more often for a loss in parts. */
tsr_status gptq_refine(struct gptq_tile *t, double *loss, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    uint64_t   sweeps = t->q->refine;
    bool       along = loss && sweeps && !gptq_can_hold(t->site->la);
    for (uint64_t i = 0; i < sweeps && st == TSR_OK; i++)
        st = sweep(t, along && i + 1 == sweeps ? loss : NULL, err);
    return st == TSR_OK && loss && !along ? gptq_loss(t, loss, err) : st;
}
