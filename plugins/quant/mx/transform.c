/* Hadamard transforms for a block (QuaRot, arXiv 2404.00456: R2 of heads and R4 of down's inputs): each number of a row
 * becomes a sum of many, and none of them is far above the others of its block of 32. */
#include "transform.h"

#include <math.h>
#include <stdio.h>

/* The largest power of two that divides n. */
static uint64_t power_of(uint64_t n)
{
    return n & (~n + 1);
}

/* Hadamard matrices of p rows along the diagonal: one where n is a power of two. */
static void fill(double *m, uint64_t n)
{
    const uint64_t p = power_of(n);
    const double   entry = 1 / sqrt((double)p);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++) {
            int same = i / p == j / p;
            int odd = __builtin_popcountll((i % p) & (j % p)) & 1;
            m[i * n + j] = !same ? 0 : odd ? -entry : entry;
        }
}

/* What the site takes of `transform`: MX_TRANSFORM_*. */
static int64_t answer(const struct tsr_block_site *s, struct tsr_block_choice *c, int64_t transform)
{
    const uint64_t takes = TSR_HAS(struct tsr_block_site, s, takes) ? s->takes : 0;
    if (transform & MX_TRANSFORM_HEADS && takes & TSR_TAKES_MATRIX) {
        for (uint64_t i = 0; i < s->matrices; i++)
            fill(c->matrix + i * s->matrix_cols * s->matrix_cols, s->matrix_cols);
        return MX_TRANSFORM_HEADS;
    }
    if (transform & MX_TRANSFORM_DOWN && takes & TSR_TAKES_HADAMARD) {
        c->hadamard = s->hadamard_cols;
        return MX_TRANSFORM_DOWN;
    }
    return MX_TRANSFORM_NONE;
}

tsr_status mx_transform_block(const struct tsr_host *host, int64_t transform,
                              const struct tsr_block         *block,
                              struct tsr_block_choice *const *choices)
{
    int64_t left = transform;
    char    text[160];
    for (uint64_t i = 0; i < block->n_sites; i++)
        left &= ~answer(block->sites[i], choices[i], transform);
    if (left == MX_TRANSFORM_NONE)
        return TSR_OK;
    (void)snprintf(text, sizeof text, "mx: %.64s takes no transform of %s", block->name,
                   left == MX_TRANSFORM_HEADS  ? "its heads"
                   : left == MX_TRANSFORM_DOWN ? "the input of down_proj"
                                               : "its heads and none of the input of down_proj");
    host->log(host->ctx, TSR_LOG_WARN, text);
    return TSR_OK;
}
