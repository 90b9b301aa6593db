/* fp4.c - blocks of E2M1: scales by the same search as nvfp4 and mxfp4, with columns weighted by what their
 * rounding costs when later ones adapt. */
#include "gptq.h"

struct wt_fp4 gptq_fp4_grid(const struct gptq *q, const struct tsr_matrix *w, float *row)
{
    float largest = 0.0f;
    for (uint64_t r = 0; r < w->rows; r++) {
        wt_row(row, w, r);
        for (uint64_t k = 0; k < w->cols; k++)
            largest = wt_max(largest,
                             fabsf(row[k])); /* not NaN; gptq_load() refuses what is not finite */
    }
    return wt_fp4_of(q->rule.fp4, largest);
}

static uint64_t block_of(const struct gptq_tile *t, uint64_t g)
{
    return g + 1 == t->groups ? t->cols - g * t->width : t->width;
}

/* Whether a block rounds to zeros, below the smallest power of two: then errors of other columns make no
 * numbers of it either. */
static int vanishes(const struct gptq_tile *t, uint64_t begin, uint64_t n, float scale)
{
    for (uint64_t k = begin; k < begin + n; k++)
        if (fabsf(t->row[k]) > 0.25f * scale)
            return 0;
    return 1;
}

tsr_status gptq_fp4_params(struct gptq_tile *t, struct tsr_err *err)
{
    for (uint64_t lane = 0; lane < t->rows; lane++) {
        if (t->q->host->cancelled(t->q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        for (uint64_t k = 0; k < t->cols; k++)
            t->row[k] = t->w[k * GPTQ_LANES + lane];
        for (uint64_t g = 0; g < t->groups; g++) {
            uint64_t begin = g * t->width;
            unsigned byte =
                wt_fp4_search(&t->grid, t->row + begin, t->site->weight + begin, block_of(t, g));
            t->scale[g * GPTQ_LANES + lane] = wt_fp4_scale(&t->grid, byte);
            t->zero[g * GPTQ_LANES + lane] = (float)byte;
            if (vanishes(t, begin, block_of(t, g), t->scale[g * GPTQ_LANES + lane]))
                t->scale[g * GPTQ_LANES + lane] = 0.0f;
        }
    }
    return TSR_OK;
}

void gptq_fp4_nearest(const struct gptq_tile *t, uint64_t lane)
{
    for (uint64_t g = 0; g < t->groups; g++) {
        uint64_t begin = g * t->width, n = block_of(t, g);
        float    scale = wt_fp4_scale(&t->grid, wt_fp4_plain(&t->grid, t->row + begin, n));
        for (uint64_t k = begin; k < begin + n; k++) {
            float code = scale > 0.0f ? wt_e2m1_code(t->row[k] / scale) : 0.0f;
            t->e[k * GPTQ_LANES + lane] = t->row[k] - wt_e2m1[(int)code] * scale;
        }
    }
}

void gptq_fp4_meta(const struct gptq_tile *t, uint64_t lane, unsigned char *meta)
{
    for (uint64_t g = 0; g < t->groups; g++)
        t->out[g] = (uint8_t)t->zero[g * GPTQ_LANES + lane];
    wt_fp4_meta(&t->grid, t->cols, t->out, meta);
}
