/* k_window_run.h - the runs of a row that a block adds, and their numbers in memory: for window.cu and k_window_mx.h. */
#ifndef TSR_CUDA_K_WINDOW_RUN_H
#define TSR_CUDA_K_WINDOW_RUN_H

#include "k_math.h"
#include "k_window.h"

/* What a block adds: runs [first, end) of rows row, row + step, ...  Its flags are those of `cells` cells from `cell` on. */
struct share {
    uint32_t row, step, first, end, cell, cells;
};

/* A share's runs, which are the same in all ranks whatever their addresses are.  Rows and columns are counted on, since
 * a division a run would take longer than the run. */
struct walk {
    uint32_t row, col;    /* col: in runs */
    uint32_t down, right; /* from one to the next */
};

DEV struct walk walk_of(const struct share *s)
{
    const uint32_t wide = s->end - s->first;
    struct walk    w = { UINT32_MAX, 0, 0, 0 };
    if (wide == 0)
        return w;
    w.down = blockDim.x / wide * s->step;
    w.right = blockDim.x % wide;
    w.row = s->row + threadIdx.x / wide * s->step;
    w.col = s->first + threadIdx.x % wide;
    return w;
}

DEV void walk_on(struct walk *w, const struct share *s)
{
    w->row += w->down;
    w->col += w->right;
    if (w->col >= s->end) {
        w->col -= s->end - s->first;
        w->row += s->step;
    }
}

/* What a share has of this rank's slice. */
DEV struct share own_of(const struct k_window *a, const struct share *s)
{
    const uint32_t first = a->border[a->rank], end = a->border[a->rank + 1];
    struct share   own = *s;
    own.first = own.first > first ? own.first : first;
    own.end = own.end < end ? own.end : end;
    if (own.end <= own.first)
        own.first = own.end = 0;
    return own;
}

DEV int is_own(const struct k_window *a, uint32_t col)
{
    return a->slices && col >= a->border[a->rank] && col < a->border[a->rank + 1];
}

/* The rank that adds column run `col`. */
DEV uint32_t owner_of(const struct k_window *a, uint32_t col)
{
    uint32_t r = 0;
    UNROLL_LOOP
    for (uint32_t k = 1; k < K_WINDOW_RANKS; k++)
        r += k < a->slices && col >= a->border[k];
    return r;
}

DEV float *place_of(const struct k_window *a, const struct walk *w, uint32_t columns)
{
    return AT(float, a->x) + w->row * a->ldx + w->col * columns;
}

DEV void x_get(const float *x, uint32_t wide, uint32_t n, float *v)
{
    if (wide) {
        const float4 q = *(const float4 *)(const void *)x;
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        return;
    }
    UNROLL_LOOP
    for (uint32_t k = 0; k < 4; k++)
        if (k < n)
            v[k] = x[k];
}

DEV void x_put(float *x, uint32_t wide, uint32_t n, const float *v)
{
    if (wide) {
        float4 q;
        q.x = v[0], q.y = v[1], q.z = v[2], q.w = v[3];
        *(float4 *)(void *)x = q;
        return;
    }
    UNROLL_LOOP
    for (uint32_t k = 0; k < 4; k++)
        if (k < n)
            x[k] = v[k];
}

/* The tree over up to eight ranks, one after the other: what v[k] completes, with v[0] the sum in the end. */
DEV void tree_on(float v[][4], uint32_t k, uint32_t ranks, uint32_t n)
{
    UNROLL_LOOP
    for (uint32_t step = 1; step < K_WINDOW_RANKS; step *= 2)
        if ((k & (2 * step - 1)) == 2 * step - 1 && k + 1 - step < ranks)
            UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        if (i < n)
            v[k + 1 - 2 * step][i] += v[k + 1 - step][i];
}

/* After the sum v of columns from `col` on: the bias of its row. */
DEV void bias_on(const struct k_window *a, const struct walk *w, uint32_t col, uint32_t n, float *v)
{
    float bias[4];
    if (w->row >= a->biased)
        return;
    x_get(AT(const float, a->bias) + col, a->wide && a->bias % 16 == 0, n, bias);
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        if (i < n)
            v[i] += bias[i];
}

/* ---- runs of eight columns ---------------------------------------------------------------- */

/* Columns of a run; the last ones of a row may have none. */
DEV uint32_t eight_columns(const struct k_window *a, uint32_t col)
{
    const uint32_t first = 8 * col, cols = (uint32_t)a->cols;
    return first >= cols ? 0 : cols - first < 8 ? cols - first : 8;
}

/* Those at x, zeros after its n columns. */
DEV void eight_get(const struct k_window *a, const float *x, uint32_t n, float v[8])
{
    UNROLL_LOOP
    for (uint32_t k = 0; k < 8; k++)
        v[k] = 0.0f;
    x_get(x, a->wide && n >= 4, n, v);
    x_get(x + 4, a->wide && n == 8, n > 4 ? n - 4 : 0, v + 4);
}

/* The sum v of n columns from `col` on, four at most, with its bias, to x. */
DEV void four_put(const struct k_window *a, const struct walk *w, uint32_t col, uint32_t n,
                  float *v)
{
    const uint32_t m = n < 4 ? n : 4;
    bias_on(a, w, col, m, v);
    x_put(place_of(a, w, 8) + col % 8, a->wide, m, v);
}

/* A run's codes in a window; one word is there twice. */
DEV uint2 eight_codes(const struct k_window *a, uint32_t rank, uint32_t at)
{
    const uint64_t codes = a->window[rank] + a->half;
    uint2          q;
    if (a->words == 2)
        q = AT(const uint2, codes)[at];
    else
        q.x = q.y = AT(const uint32_t, codes)[at];
    return q;
}

DEV void eight_codes_put(const struct k_window *a, uint32_t at, uint64_t q)
{
    uint32_t *codes = AT(uint32_t, a->window[a->rank] + a->half);
    if (a->words == 2) {
        uint2 both;
        both.x = (uint32_t)q, both.y = (uint32_t)(q >> 32);
        ((uint2 *)(void *)codes)[at] = both;
    } else {
        codes[at] = (uint32_t)q;
    }
}

/* Columns 4 h and on of a run: code i of its four. */
DEV uint32_t eight_code_at(const struct k_window *a, const uint2 *q, uint32_t h, uint32_t i)
{
    return a->words == 2 ? (h ? q->y : q->x) >> 8 * i & 0xffu : q->x >> (16 * h + 4 * i) & 0xfu;
}

#endif
