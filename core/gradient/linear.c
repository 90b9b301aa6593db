/* Products of a linear, and their derivatives. */
#include "gradient/internal.h"

#include <string.h>

#define TILE 64u /* rows of a transposition that stay in cache */

tsr_status gradient_linear(const struct pass *p, enum tsr_linear_id id, const float *x, float *y,
                           struct tsr_err *err)
{
    const struct tsr_linalg_v1    *la = p->job->linalg;
    const struct tsr_model_linear *l = &p->l->lin[id];
    uint64_t                       rows = l->w.rows, cols = l->w.cols;
    for (uint64_t i = 0; i < p->n; i++) {
        if (l->bias)
            memcpy(y + i * rows, l->bias, rows * sizeof *y);
        else
            memset(y + i * rows, 0, rows * sizeof *y);
    }
    return la->gemm(la->ctx, p->n, rows, cols, 1.0f, x, cols, p->job->w[id], cols, 1, y, rows, err);
}

struct turn {
    const float *from; /* [n, cols] */
    float       *to;   /* [cols, n] */
    uint64_t     n, cols;
};

static tsr_status turn_columns(void *arg, uint64_t begin, uint64_t end)
{
    const struct turn *t = arg;
    for (uint64_t first = 0; first < t->n; first += TILE) {
        uint64_t last = t->n - first < TILE ? t->n : first + TILE;
        for (uint64_t c = begin; c < end; c++)
            for (uint64_t i = first; i < last; i++)
                t->to[c * t->n + i] = t->from[i * t->cols + c];
    }
    return TSR_OK;
}

tsr_status gradient_linear_back(const struct pass *p, enum tsr_linear_id id, const float *x,
                                const float *dy, float *dx, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = p->job->linalg;
    const struct tsr_host      *host = p->job->host;
    uint64_t                    rows = p->l->lin[id].w.rows, cols = p->l->lin[id].w.cols;
    float                      *dw = p->job->dw[id];
    if (dx)
        TSR_TRY(la->gemm(la->ctx, p->n, cols, rows, 1.0f, dy, rows, p->job->w[id], cols, 0, dx,
                         cols, err));
    if (!dw)
        return TSR_OK;
    struct turn t = { .from = dy, .to = p->turned, .n = p->n, .cols = rows };
    TSR_TRY(host->parallel_for(host->ctx, rows, TILE, turn_columns, &t));
    memset(dw, 0, rows * cols * sizeof *dw);
    return la->gemm(la->ctx, rows, cols, p->n, 1.0f, p->turned, p->n, x, cols, 0, dw, cols, err);
}
