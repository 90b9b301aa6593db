/* The scale search of AWQ (Lin et al., MLSys 2024, equations 4 and 5): s = mean|x|^ratio, twenty
 * ratios, and the one whose quantized weights change the site's output least. */
#include "awq.h"

#define RATIOS      20 /* 0, 0.05, ... 0.95 */
#define LEAST_SCALE 1e-4f
#define ROW_GRAIN   8

struct site_work {
    const struct awq            *q;
    const struct tsr_block_site *site;
    uint64_t                     linear;
    const float                 *scale;
    struct tsr_matrix           *out; /* [n_linears], fresh buffers */
};

/* Rows of round_trip(w * scale) / scale. */
static tsr_status round_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct site_work  *k = arg;
    const struct tsr_matrix *w = k->site->linears[k->linear];
    uint64_t                 cols = w->cols, groups = awq_groups(k->q, cols);
    for (uint64_t r = begin; r < end; r++) {
        const float *src = awq_row(w, r);
        float       *dst = (float *)k->out[k->linear].data + r * cols;
        for (uint64_t c = 0; c < cols; c++)
            dst[c] = src[c] * k->scale[c];
        for (uint64_t g = 0; g < groups; g++) {
            struct awq_span s = awq_span_of(k->q, cols, g);
            if (!awq_round_trip(k->q, dst + s.begin, s.end - s.begin, dst + s.begin))
                return TSR_E_NUMERIC;
        }
        for (uint64_t c = 0; c < cols; c++)
            dst[c] /= k->scale[c];
    }
    return TSR_OK;
}

/* mean|x|^ratio, at least LEAST_SCALE, over the geometric mean of the largest and the smallest. */
static void scale_of(float *s, const float *mean_abs, uint64_t cols, double ratio)
{
    float lo = INFINITY, hi = 0.0f;
    for (uint64_t c = 0; c < cols; c++) {
        s[c] = wt_max((float)pow((double)mean_abs[c], ratio), LEAST_SCALE);
        lo = wt_min(lo, s[c]);
        hi = wt_max(hi, s[c]);
    }
    float middle = sqrtf(hi * lo);
    for (uint64_t c = 0; c < cols; c++)
        s[c] /= middle;
}

/* The loss of one scale; +infinity if a group's step does not fit the scales' type. */
static tsr_status loss_of(struct site_work *k, const struct tsr_block *b, uint64_t site,
                          const struct tsr_matrix *const *out, double *loss, struct tsr_err *err)
{
    const struct tsr_host *host = k->q->host;
    for (k->linear = 0; k->linear < k->site->n_linears; k->linear++) {
        uint64_t   rows = k->site->linears[k->linear]->rows;
        tsr_status st = host->parallel_for(host->ctx, rows, ROW_GRAIN, round_rows, k);
        if (st == TSR_E_NUMERIC) {
            *loss = INFINITY;
            return TSR_OK;
        }
        if (st != TSR_OK)
            return tsr_fail(err, st, "stopped");
    }
    tsr_status st = b->loss(b->ctx, site, out, loss, err);
    if (st == TSR_OK && !(*loss >= 0.0 && *loss < INFINITY))
        return tsr_fail(err, TSR_E_NUMERIC, "%s, site %s: the loss of a scale is %g", b->name,
                        k->site->name, *loss);
    return st;
}

static tsr_status search(struct site_work *k, const struct tsr_block *b, uint64_t site, float *s,
                         const struct tsr_matrix *const *out, float *best, struct tsr_err *err)
{
    const struct tsr_host *host = k->q->host;
    uint64_t               cols = k->site->cols;
    double                 least = INFINITY, loss;
    k->scale = s;
    for (int i = 0; i < RATIOS; i++) {
        if (host->cancelled(host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        scale_of(s, k->site->stats->mean_abs, cols, i / (double)RATIOS);
        tsr_status st = loss_of(k, b, site, out, &loss, err);
        if (st != TSR_OK)
            return st;
        if (loss < least) {
            least = loss;
            memcpy(best, s, cols * sizeof *s);
        }
    }
    return TSR_OK;
}

static tsr_status check_site(const struct tsr_block *b, const struct tsr_block_site *s,
                             struct tsr_err *err)
{
    if (!s->stats || !s->stats->mean_abs || s->stats->cols != s->cols)
        return tsr_fail(err, TSR_E_INVAL,
                        "%s, site %s: the mean magnitude of the inputs is missing", b->name,
                        s->name);
    for (uint64_t c = 0; c < s->cols; c++)
        if (!(s->stats->mean_abs[c] >= 0.0f && s->stats->mean_abs[c] < INFINITY))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "%s, site %s: the mean input magnitude of column %llu is %g, not a "
                            "finite number from 0",
                            b->name, s->name, (unsigned long long)c, (double)s->stats->mean_abs[c]);
    return TSR_OK;
}

tsr_status awq_search_scale(const struct awq *q, const struct tsr_block *b, uint64_t site,
                            struct tsr_block_choice *choice, struct tsr_err *err)
{
    const struct tsr_block_site *s = b->sites[site];
    if (s->producer == TSR_PRODUCER_NONE)
        return TSR_OK;
    tsr_status st = check_site(b, s, err);
    if (st != TSR_OK)
        return st;
    uint64_t                  n = s->n_linears;
    float                    *scale = awq_alloc(q, s->cols, sizeof *scale);
    struct tsr_matrix        *out = awq_alloc(q, n, sizeof *out);
    const struct tsr_matrix **list = awq_alloc(q, n, sizeof *list);
    int                       whole = scale && out && list;
    for (uint64_t i = 0; out && i < n; i++) {
        out[i] = *s->linears[i];
        out[i].row_stride = s->cols * sizeof(float);
        out[i].data = awq_alloc(q, out[i].rows, out[i].row_stride);
        whole = whole && out[i].data;
        if (list)
            list[i] = &out[i];
    }
    struct site_work k = { .q = q, .site = s, .out = out };
    st = whole ? search(&k, b, site, scale, list, choice->scale, err)
               : tsr_fail(err, TSR_E_NOMEM, "out of memory: the weights of %s, site %s", b->name,
                          s->name);
    for (uint64_t i = 0; out && i < n; i++)
        awq_release(q, out[i].data, out[i].rows, out[i].row_stride);
    awq_release(q, list, n, sizeof *list);
    awq_release(q, out, n, sizeof *out);
    awq_release(q, scale, s->cols, sizeof *scale);
    return st;
}
