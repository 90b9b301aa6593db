/* SmoothQuant (Xiao et al., ICML 2023, equation 4): s = max|x|^alpha / max|w|^(1-alpha) for every
 * column that a norm makes.  Dividing the norm by s and multiplying the weights moves outliers of
 * the activations into the weights, where a scale per row holds them. */
#include "int8.h"

#define LEAST 1e-5f /* of the weights' maximum, and of s */

static uint64_t block_need(const void *self)
{
    (void)self;
    return TSR_NEED_ABSMAX;
}

static uint64_t clip_group(const void *self, uint64_t cols)
{
    (void)self;
    (void)cols;
    return 0;
}

/* largest[k] = max |w[.,k]| over all linears of the site. */
static tsr_status column_maxima(const struct tsr_host *host, const struct tsr_block_site *s,
                                float *largest, struct tsr_err *err)
{
    memset(largest, 0, s->cols * sizeof *largest);
    for (uint64_t i = 0; i < s->n_linears; i++) {
        const struct tsr_matrix *w = s->linears[i];
        for (uint64_t r = 0; r < w->rows; r++) {
            const float *row =
                (const float *)(const void *)((const char *)w->data + r * w->row_stride);
            if (host->cancelled(host->ctx))
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            tsr_status st = wt_check(w, row, r, err);
            if (st != TSR_OK)
                return st;
            for (uint64_t k = 0; k < s->cols; k++)
                largest[k] = wt_max(largest[k], fabsf(row[k]));
        }
    }
    return TSR_OK;
}

static tsr_status smooth_site(const struct int8 *q, const struct tsr_block *b,
                              const struct tsr_block_site *s, float *scale, struct tsr_err *err)
{
    if (!s->stats || !s->stats->absmax || s->stats->cols != s->cols)
        return tsr_fail(err, TSR_E_INVAL, "%s, site %s: the input maxima are missing", b->name,
                        s->name);
    tsr_status st = column_maxima(q->host, s, scale, err);
    for (uint64_t k = 0; k < s->cols && st == TSR_OK; k++) {
        float a = s->stats->absmax[k], w = wt_max(scale[k], LEAST);
        if (!(a >= 0.0f && a < INFINITY))
            st = tsr_fail(err, TSR_E_NUMERIC,
                          "%s, site %s: the input maximum of column %llu is %g, not a finite "
                          "number from 0",
                          b->name, s->name, (unsigned long long)k, (double)a);
        else
            scale[k] =
                wt_max((float)(pow((double)a, q->alpha) / pow((double)w, 1.0 - q->alpha)), LEAST);
    }
    return st;
}

static tsr_status search(const void *self, const struct tsr_block *b,
                         struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    for (uint64_t i = 0; i < b->n_sites; i++) {
        if (b->sites[i]->producer != TSR_PRODUCER_NORM)
            continue;
        tsr_status st = smooth_site(self, b, b->sites[i], choices[i]->scale, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

const struct tsr_quantizer_block_v1 int8_smooth = {
    .struct_size = sizeof int8_smooth,
    .block_need = block_need,
    .clip_group = clip_group,
    .search = search,
};
