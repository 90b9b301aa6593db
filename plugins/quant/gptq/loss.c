/* loss.c - the loss of a tile's errors under the given Hessian, and that of rounding to nearest. */
#include "gptq.h"

/* side [n][lane]: twice the product of the block's rows of H with e before the block. */
tsr_status gptq_loss_block(struct gptq_tile *t, uint64_t begin, uint64_t n, float *side,
                           double *loss, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    tsr_status                  st =
        la->gemm(la->ctx, n, t->rows, n, 1.0f, t->hessian + begin * t->cols + begin, t->cols,
                 t->e + begin * GPTQ_LANES, GPTQ_LANES, 0, side, GPTQ_LANES, err);
    for (uint64_t r = 0; r < t->rows && begin == 0; r++)
        loss[r] = 0.0;
    for (uint64_t k = 0; k < n && st == TSR_OK; k++)
        for (uint64_t r = 0; r < t->rows; r++)
            loss[r] +=
                (double)side[k * GPTQ_LANES + r] * (double)t->e[(begin + k) * GPTQ_LANES + r];
    return st;
}

/* e H e^T from the lower half of H: for each block of columns, twice the part before it. */
tsr_status gptq_loss(struct gptq_tile *t, double *loss, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    for (uint64_t begin = 0; begin < t->cols; begin += t->q->block) {
        uint64_t   n = gptq_min(t->q->block, t->cols - begin);
        tsr_status st = TSR_OK;
        memset(t->side, 0, n * GPTQ_LANES * sizeof *t->side);
        if (begin)
            st = la->gemm(la->ctx, n, t->rows, begin, 2.0f, t->hessian + begin * t->cols, t->cols,
                          t->e, GPTQ_LANES, 0, t->side, GPTQ_LANES, err);
        if (st == TSR_OK)
            st = gptq_loss_block(t, begin, n, t->side, loss, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

/* What rtn with the same bits, groups, symmetry, search and type of scales makes of a row; false for one
 * that it refuses. */
static int nearest_params(struct gptq_tile *t)
{
    struct tsr_format f = gptq_format(t->q);
    int               held = 1;
    for (uint64_t g = 0; g < t->groups; g++) {
        uint64_t begin = g * t->width, end = g + 1 == t->groups ? t->cols : begin + t->width;
        t->p[g] = wt_find_params(&t->q->rule, t->row + begin, NULL, end - begin);
    }
    if (t->q->rule.scale_bits)
        held = wt_affine_meta(&f, t->cols, t->p, t->spare) == t->groups;
    return held;
}

static void int_nearest(struct gptq_tile *t, uint64_t lane)
{
    int held = nearest_params(t);
    for (uint64_t k = 0; k < t->cols; k++) {
        const struct wt_params *p = &t->p[k / t->width];
        int                     known = held && (p->scale != 0.0f || t->q->rule.scale_bits);
        t->e[k * GPTQ_LANES + lane] =
            known ? t->row[k] - wt_value(p, wt_code_nearest(p, t->row[k])) : NAN;
    }
}

/* From errors against the weights to errors against what takes their place. */
static void add_shift(struct gptq_tile *t, uint64_t lane)
{
    for (uint64_t k = 0; k < t->cols; k++)
        t->e[k * GPTQ_LANES + lane] += t->w[k * GPTQ_LANES + lane] - t->row[k];
}

/* The errors of rtn; NaN for a group that it would refuse. */
void gptq_nearest(struct gptq_tile *t)
{
    for (uint64_t lane = 0; lane < t->rows; lane++) {
        wt_row(t->row, t->src, t->first + lane);
        if (t->q->rule.fp4)
            gptq_fp4_nearest(t, lane);
        else
            int_nearest(t, lane);
        if (t->site->shift)
            add_shift(t, lane);
    }
}
