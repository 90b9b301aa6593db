/* columns.c - the pass of GPTQ over the columns of a tile, in blocks.
 *
 * With L the factor of site.c and e the error of position j divided by L_jj, every later position i is
 * updated by w_i -= e * L_ij.  Inside a block the update is immediate; the update of the later
 * positions is one matrix product per block.  On a device the positions stay there, and each block is
 * copied when its turn comes. */
#include "gptq.h"

/* The factor's diagonal block, transposed, so that a column's reach is contiguous. */
static void copy_triangle(struct gptq_tile *t, uint64_t begin, uint64_t n)
{
    const float *l = t->site->factor + begin * t->cols + begin;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++)
            t->tri[j * n + i] = l[i * t->cols + j];
}

GPTQ_INLINE void spread(float *restrict to, const float *restrict error, float by)
{
    for (uint32_t r = 0; r < GPTQ_LANES; r++)
        to[r] = to[r] - error[r] * by;
}

/* Rounds the column at place begin + j and spreads its error over the rest of the block. */
GPTQ_INLINE void round_column(struct gptq_tile *t, uint64_t begin, uint64_t j, uint64_t n)
{
    uint64_t k = t->site->order[begin + j], g = k / t->width;
    float    code[GPTQ_LANES], value[GPTQ_LANES];
    float   *u = t->e + (begin + j) * GPTQ_LANES, *e = t->side + j * GPTQ_LANES;
    gptq_round(&t->q->rule, code, value, u, gptq_at(t->scale, g), gptq_at(t->zero, g));
    const float *l = t->tri + j * n;
    for (uint32_t r = 0; r < GPTQ_LANES; r++) {
        t->codes[k * GPTQ_LANES + r] = (uint8_t)code[r];
        e[r] = (u[r] - value[r]) / l[j];
    }
    for (uint64_t i = j + 1; i < n; i++)
        spread(t->e + (begin + i) * GPTQ_LANES, e, l[i]);
}

GPTQ_FOR_AVX2(round_column, (struct gptq_tile * t, uint64_t begin, uint64_t j, uint64_t n),
              (t, begin, j, n))

/* Quantizes the column at place begin + j. */
static tsr_status column(struct gptq_tile *t, uint64_t begin, uint64_t j, uint64_t n,
                         struct tsr_err *err)
{
    uint64_t k = t->site->order[begin + j], g = k / t->width;
    if (t->q->dynamic && k % t->width == 0) {
        uint64_t   end = begin + n, last = gptq_min(k + t->width, t->cols);
        tsr_status st = last > end ? gptq_fetch(t, end, last, err) : TSR_OK;
        if (st == TSR_OK)
            st = gptq_params_dynamic(t, g, err);
        if (st != TSR_OK)
            return st;
    }
    GPTQ_CALL(t->q, round_column, (t, begin, j, n));
    return TSR_OK;
}

/* An error that left F32 shows in its block: infinity times 0 is NaN. */
static int all_finite(const float *v, uint64_t n)
{
    float sum = 0.0f;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i] * 0.0f;
    return sum == 0.0f;
}

static tsr_status block(struct gptq_tile *t, uint64_t begin, uint64_t n, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    uint64_t                    end = begin + n;
    tsr_status                  st = begin ? gptq_fetch(t, begin, end, err) : TSR_OK;
    copy_triangle(t, begin, n);
    for (uint64_t j = 0; j < n && st == TSR_OK; j++)
        st = column(t, begin, j, n, err);
    if (st != TSR_OK)
        return st;
    if (!all_finite(t->side, n * GPTQ_LANES))
        return tsr_fail(
            err, TSR_E_NUMERIC,
            "tensor '%s': rows %llu to %llu: the spread errors leave F32; a larger damp "
            "helps",
            t->src->name ? t->src->name : "?", (unsigned long long)t->n_row,
            (unsigned long long)(t->n_row + t->rows - 1));
    if (end == t->cols)
        return TSR_OK;
    return la->gemm(la->ctx, t->cols - end, t->rows, n, -1.0f,
                    t->site->factor + end * t->cols + begin, t->cols, t->side, GPTQ_LANES, 0,
                    t->e + end * GPTQ_LANES, GPTQ_LANES, err);
}

/* w - w^ in natural order. */
static void errors(struct gptq_tile *t)
{
    for (uint64_t k = 0; k < t->cols; k++) {
        const float *w = gptq_at(t->w, k), *scale = gptq_at(t->scale, k / t->width);
        const float *zero = gptq_at(t->zero, k / t->width);
        float       *e = t->e + k * GPTQ_LANES, code[GPTQ_LANES], value[GPTQ_LANES];
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            code[r] = (float)t->codes[k * GPTQ_LANES + r];
        gptq_value(&t->q->rule, value, code, scale, zero);
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            e[r] = w[r] - value[r];
    }
}

tsr_status gptq_columns(struct gptq_tile *t, struct tsr_err *err)
{
    const struct tsr_host *host = t->q->host;
    for (uint64_t i = 0; i < t->cols; i++)
        memcpy(t->e + i * GPTQ_LANES, gptq_at(t->w, t->site->order[i]), GPTQ_LANES * sizeof *t->e);
    tsr_status st = gptq_push(t, 0, t->cols, err);
    for (uint64_t begin = 0; begin < t->cols && st == TSR_OK; begin += t->q->block)
        st = host->cancelled(host->ctx)
                 ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                 : block(t, begin, gptq_min(t->q->block, t->cols - begin), err);
    if (st != TSR_OK)
        return st;
    errors(t);
    return gptq_push(t, 0, t->cols, err);
}
