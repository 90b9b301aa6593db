/* The clip search of AWQ: every group of every row may shrink its range by up to 45 % where that
 * changes the group's part of the output less than the finer step gains.  Linears of queries or keys
 * alone are left alone: their product is what matters, not each output. */
#include "awq.h"

#include <tessera/linalg.h>

#define STEPS     10 /* 1, 0.95, ... 0.55 of the largest magnitude */
#define GRID      20.0
#define SAMPLES   512  /* input rows used, evenly spaced */
#define ROWS      1024 /* weight rows at a time */
#define ROW_GRAIN 8

struct clip_work {
    const struct awq           *q;
    const struct tsr_linalg_v1 *la;
    const struct tsr_matrix    *w;
    const float                *scale;  /* [cols] */
    const float                *divide; /* [rows] or NULL */
    const float                *x;      /* [samples, cols], divided by scale */
    uint64_t                    samples, groups, first, group;
    struct awq_span             span;
    int                         step;
    float                      *slice;   /* [ROWS, width]: the weights with every scale applied */
    float                      *diff;    /* [ROWS, width]: what quantization adds */
    float                      *change;  /* [ROWS, samples] */
    float                      *largest; /* [ROWS] */
    double                     *least;   /* [ROWS] */
    float                      *clip;    /* [rows, groups] */
};

static float limit_of(const struct clip_work *k, uint64_t r)
{
    return k->largest[r] * (float)(1.0 - k->step / GRID);
}

/* Slices of the group with all scales applied, in the order in which the host applies them. */
static tsr_status take_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct clip_work *k = arg;
    uint64_t                width = k->span.end - k->span.begin;
    for (uint64_t r = begin; r < end; r++) {
        const float *src = awq_row(k->w, k->first + r) + k->span.begin;
        float       *dst = k->slice + r * width, top = 0.0f;
        for (uint64_t c = 0; c < width; c++) {
            dst[c] = src[c] * k->scale[k->span.begin + c];
            if (k->divide)
                dst[c] /= k->divide[k->first + r];
            top = wt_max(top, fabsf(dst[c]));
        }
        k->largest[r] = top;
        k->least[r] = INFINITY;
        k->clip[(k->first + r) * k->groups + k->group] = top;
    }
    return TSR_OK;
}

static tsr_status diff_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct clip_work *k = arg;
    uint64_t                width = k->span.end - k->span.begin;
    for (uint64_t r = begin; r < end; r++) {
        const float *src = k->slice + r * width;
        float       *d = k->diff + r * width, limit = limit_of(k, r);
        for (uint64_t c = 0; c < width; c++)
            d[c] = wt_min(wt_max(src[c], -limit), limit);
        if (!awq_round_trip(k->q, d, width, d)) {
            /* no step of the scales' type fits: this limit never wins */
            memset(d, 0, width * sizeof *d);
            k->change[r * k->samples] = INFINITY;
            continue;
        }
        for (uint64_t c = 0; c < width; c++)
            d[c] -= src[c];
    }
    return TSR_OK;
}

static tsr_status judge_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct clip_work *k = arg;
    for (uint64_t r = begin; r < end; r++) {
        const float *y = k->change + r * k->samples;
        double       sum = 0.0;
        for (uint64_t t = 0; t < k->samples; t++)
            sum += (double)y[t] * (double)y[t];
        if (sum < k->least[r]) {
            k->least[r] = sum;
            k->clip[(k->first + r) * k->groups + k->group] = limit_of(k, r);
        }
    }
    return TSR_OK;
}

static tsr_status one_step(struct clip_work *k, uint64_t rows, struct tsr_err *err)
{
    const struct tsr_host *host = k->q->host;
    uint64_t               width = k->span.end - k->span.begin;
    memset(k->change, 0, rows * k->samples * sizeof *k->change);
    tsr_status st = host->parallel_for(host->ctx, rows, ROW_GRAIN, diff_rows, k);
    if (st == TSR_OK)
        st = k->la->gemm(k->la->ctx, rows, k->samples, width, 1.0f, k->diff, width,
                         k->x + k->span.begin, k->w->cols, 1, k->change, k->samples, err);
    if (st == TSR_OK)
        st = host->parallel_for(host->ctx, rows, ROW_GRAIN, judge_rows, k);
    return st;
}

static tsr_status clip_linear(struct clip_work *k, const struct tsr_block *b, struct tsr_err *err)
{
    const struct tsr_host *host = k->q->host;
    for (k->group = 0; k->group < k->groups; k->group++) {
        k->span = awq_span_of(k->q, k->w->cols, k->group);
        for (k->first = 0; k->first < k->w->rows; k->first += ROWS) {
            uint64_t   left = k->w->rows - k->first, rows = left < ROWS ? left : ROWS;
            tsr_status st = host->parallel_for(host->ctx, rows, ROW_GRAIN, take_rows, k);
            for (k->step = 0; k->step < STEPS && st == TSR_OK; k->step++)
                st = host->cancelled(host->ctx)
                         ? tsr_fail(err, TSR_E_CANCELLED, "stopped in %s", b->name)
                         : one_step(k, rows, err);
            if (st != TSR_OK)
                return st;
        }
    }
    return TSR_OK;
}

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Scale of the site that linear `i` of `site` produces, or NULL. */
static const float *divisor_of(const struct tsr_block *b, uint64_t site, uint64_t i,
                               struct tsr_block_choice *const *choices)
{
    for (uint64_t s = 0; s < b->n_sites; s++)
        if (b->sites[s]->producer == TSR_PRODUCER_LINEAR && b->sites[s]->producer_site == site &&
            b->sites[s]->producer_linear == i)
            return choices[s]->scale;
    return NULL;
}

/* Evenly spaced recorded inputs, divided by the scale. */
static void take_inputs(float *x, const struct tsr_quant_stats *stats, const float *scale,
                        uint64_t samples, uint64_t stride)
{
    for (uint64_t t = 0; t < samples; t++)
        for (uint64_t c = 0; c < stats->cols; c++)
            x[t * stats->cols + c] = stats->inputs[t * stride * stats->cols + c] / scale[c];
}

static tsr_status clip_linears(struct clip_work *k, const struct tsr_block *b, uint64_t site,
                               struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    const struct tsr_block_site *s = b->sites[site];
    for (uint64_t i = 0; i < s->n_linears; i++) {
        const char *name = s->linears[i]->name;
        if (ends_with(name, "q_proj") || ends_with(name, "k_proj") || ends_with(name, "q_a_proj") ||
            ends_with(name, "q_b_proj"))
            continue;
        k->w = s->linears[i];
        k->divide = divisor_of(b, site, i, choices);
        k->clip = choices[site]->clip[i];
        tsr_status st = clip_linear(k, b, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

tsr_status awq_search_clip(const struct awq *q, const struct tsr_block *b, uint64_t site,
                           struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    const struct tsr_block_site  *s = b->sites[site];
    const struct tsr_quant_stats *in = s->stats;
    struct clip_work              k = { .q = q, .scale = choices[site]->scale };
    k.la = q->host->service ? q->host->service(q->host->ctx, TSR_LINALG) : NULL;
    if (!k.la)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "the host offers no " TSR_LINALG ", which clip: true needs");
    if (!in || !in->inputs || in->cols != s->cols || in->input_rows == 0)
        return tsr_fail(err, TSR_E_INVAL, "%s, site %s: recorded inputs are missing", b->name,
                        s->name);
    uint64_t stride = in->input_rows > SAMPLES ? in->input_rows / SAMPLES : 1;
    k.samples = (in->input_rows + stride - 1) / stride;
    k.groups = awq_groups(q, s->cols);
    struct awq_span span = awq_span_of(q, s->cols, 0);
    uint64_t        width = span.end - span.begin;
    float          *x = awq_alloc(q, k.samples, s->cols * sizeof *x);
    k.slice = awq_alloc(q, width, ROWS * sizeof(float));
    k.diff = awq_alloc(q, width, ROWS * sizeof(float));
    k.change = awq_alloc(q, k.samples, ROWS * sizeof(float));
    k.largest = awq_alloc(q, ROWS, sizeof(float));
    k.least = awq_alloc(q, ROWS, sizeof(double));
    tsr_status st;
    if (x && k.slice && k.diff && k.change && k.largest && k.least) {
        take_inputs(x, in, k.scale, k.samples, stride);
        k.x = x;
        st = clip_linears(&k, b, site, choices, err);
    } else {
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: the clip search of %s, site %s", b->name,
                      s->name);
    }
    awq_release(q, x, k.samples, s->cols * sizeof *x);
    awq_release(q, k.slice, width, ROWS * sizeof(float));
    awq_release(q, k.diff, width, ROWS * sizeof(float));
    awq_release(q, k.change, k.samples, ROWS * sizeof(float));
    awq_release(q, k.largest, ROWS, sizeof(float));
    awq_release(q, k.least, ROWS, sizeof(double));
    return st;
}
