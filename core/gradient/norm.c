/* Norms over rows: x * r * gain of the root of the mean square, or (x - mean) * r * gain + bias of the deviation. */
#include "gradient/internal.h"

#include "tessera/backend.h"

#include <math.h>

#define GRAIN 16u /* rows */

struct norm {
    const struct tsr_model_norm *norm;
    const float                 *x, *dy;
    float                       *y; /* forward: the result; backward: dx */
    uint64_t                     cols;
    double                       eps, offset;
    bool                         layer, set;
};

/* The mean that is subtracted, and r. */
static void moments(const struct norm *k, const float *x, double *mean, double *r)
{
    double sum = 0.0, square = 0.0, n = (double)k->cols;
    for (uint64_t c = 0; k->layer && c < k->cols; c++)
        sum += (double)x[c];
    *mean = sum / n;
    for (uint64_t c = 0; c < k->cols; c++)
        square += ((double)x[c] - *mean) * ((double)x[c] - *mean);
    *r = 1.0 / sqrt(square / n + k->eps);
}

static tsr_status forward(void *arg, uint64_t begin, uint64_t end)
{
    const struct norm *k = arg;
    for (uint64_t i = begin; i < end; i++) {
        const float *x = k->x + i * k->cols, *bias = k->norm->bias;
        float       *y = k->y + i * k->cols;
        double       mean, r;
        moments(k, x, &mean, &r);
        for (uint64_t c = 0; c < k->cols; c++)
            y[c] = (float)(((double)x[c] - mean) * r * ((double)k->norm->gain[c] + k->offset) +
                           (bias ? (double)bias[c] : 0.0));
    }
    return TSR_OK;
}

/* With z = (x - mean) r and e = gain dy: dx = r (e - mean(e) - z mean(e z)), without mean(e) for the mean square. */
static tsr_status backward(void *arg, uint64_t begin, uint64_t end)
{
    const struct norm *k = arg;
    double             n = (double)k->cols;
    for (uint64_t i = begin; i < end; i++) {
        const float *x = k->x + i * k->cols, *dy = k->dy + i * k->cols, *gain = k->norm->gain;
        float       *dx = k->y + i * k->cols;
        double       mean, r, e = 0.0, ez = 0.0;
        moments(k, x, &mean, &r);
        for (uint64_t c = 0; c < k->cols; c++) {
            double d = ((double)gain[c] + k->offset) * (double)dy[c];
            e += d;
            ez += d * ((double)x[c] - mean) * r;
        }
        e = k->layer ? e / n : 0.0;
        ez /= n;
        for (uint64_t c = 0; c < k->cols; c++) {
            double d = ((double)gain[c] + k->offset) * (double)dy[c];
            float  v = (float)(r * (d - e - ((double)x[c] - mean) * r * ez));
            dx[c] = k->set ? v : dx[c] + v;
        }
    }
    return TSR_OK;
}

static struct norm norm_of(const struct pass *p, const struct tsr_model_norm *norm, const float *x,
                           uint64_t cols, float *y)
{
    return (struct norm){ .norm = norm,
                          .x = x,
                          .y = y,
                          .cols = cols,
                          .eps = (double)p->hp->norm_eps,
                          .offset = (double)p->hp->norm_gain_offset,
                          .layer = p->hp->norm == TSR_NORM_LAYER };
}

tsr_status gradient_norm(const struct pass *p, const struct tsr_model_norm *norm, const float *x,
                         uint64_t rows, uint64_t cols, float *y)
{
    const struct tsr_host *host = p->job->host;
    struct norm            k = norm_of(p, norm, x, cols, y);
    return host->parallel_for(host->ctx, rows, GRAIN, forward, &k);
}

tsr_status gradient_norm_back(const struct pass *p, const struct tsr_model_norm *norm,
                              const float *x, const float *dy, uint64_t rows, uint64_t cols,
                              bool set, float *dx)
{
    const struct tsr_host *host = p->job->host;
    struct norm            k = norm_of(p, norm, x, cols, dx);
    k.dy = dy;
    k.set = set;
    return host->parallel_for(host->ctx, rows, GRAIN, backward, &k);
}
