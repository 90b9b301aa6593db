/* linalg_bf16.c - SYRK under `numerics: fast`: X rounded to BF16, sums of BF16_ROWS rows in F32, which are
 * added to C.  Both factors come from one set of panels. */
#include "backend.h"

#define SLAB   2048u /* rows of X that are packed at once, whole BF16_ROWS */
#define DOWN   24u   /* tiles of a block of C, which stays in L2 */
#define ACROSS 5u

_Static_assert(SLAB % BF16_ROWS == 0, "a slab does not cut a sum");

struct syrk {
    struct tsr_cpu *c;
    const float    *x;
    uint64_t        ldx, rows, n; /* rows that are packed now */
    uint64_t        panels;
    float           alpha;
    float          *to;
    uint64_t        ldc;
    uint32_t       *pairs; /* [ceil(rows/BF16_ROWS)][panel][BF16_ROWS/2][BF16_ACROSS] */
};

static uint32_t *panel(const struct syrk *s, uint64_t part, uint64_t i)
{
    return s->pairs + (part * s->panels + i) * (BF16_ROWS / 2 * BF16_ACROSS);
}

static tsr_status pack(void *arg, uint64_t begin, uint64_t end)
{
    const struct syrk *s = arg;
    if (s->c->host->cancelled(s->c->host->ctx))
        return TSR_E_CANCELLED;
    for (uint64_t t = begin; t < end; t++) {
        uint64_t part = t / s->panels, i = t % s->panels, row = part * BF16_ROWS;
        s->c->bf16->pair_rows(panel(s, part, i), s->x + row * s->ldx + i * BF16_ACROSS, s->ldx,
                              cpu_min(BF16_ROWS, s->rows - row),
                              cpu_min(BF16_ACROSS, s->n - i * BF16_ACROSS));
    }
    return TSR_OK;
}

/* The tile at row i and column j of C; one at the edge goes through a copy. */
static void tile(const struct syrk *s, uint64_t part, uint64_t i, uint64_t j)
{
    const uint32_t *a = panel(s, part, i / BF16_ACROSS) + i % BF16_ACROSS;
    const uint32_t *b = panel(s, part, j / BF16_ACROSS);
    uint64_t        pairs = cpu_ceil(cpu_min(BF16_ROWS, s->rows - part * BF16_ROWS), 2);
    uint64_t        m = cpu_min(BF16_DOWN, s->n - i), w = cpu_min(BF16_ACROSS, s->n - j);
    float          *to = s->to + i * s->ldc + j;
    if (m == BF16_DOWN && w == BF16_ACROSS) {
        s->c->bf16->gram(a, b, pairs, s->alpha, to, s->ldc);
        return;
    }
    float edge[BF16_DOWN * BF16_ACROSS] = { 0 };
    for (uint64_t r = 0; r < m; r++)
        memcpy(edge + r * BF16_ACROSS, to + r * s->ldc, w * sizeof *to);
    s->c->bf16->gram(a, b, pairs, s->alpha, edge, BF16_ACROSS);
    for (uint64_t r = 0; r < m; r++)
        memcpy(to + r * s->ldc, edge + r * BF16_ACROSS, w * sizeof *to);
}

/* Blocks of C, all packed rows of each.  Tiles above the diagonal are left out. */
static tsr_status blocks(void *arg, uint64_t begin, uint64_t end)
{
    const struct syrk *s = arg;
    const uint64_t     down = DOWN * BF16_DOWN, across = ACROSS * BF16_ACROSS;
    uint64_t           wide = cpu_ceil(s->n, across);
    for (uint64_t t = begin; t < end; t++) {
        uint64_t i0 = t / wide * down, i1 = cpu_min(i0 + down, s->n);
        uint64_t j0 = t % wide * across, j1 = cpu_min(j0 + across, s->n);
        if (i1 <= j0)
            continue;
        for (uint64_t part = 0; part * BF16_ROWS < s->rows; part++) {
            if (s->c->host->cancelled(s->c->host->ctx))
                return TSR_E_CANCELLED;
            for (uint64_t j = j0; j < j1; j += BF16_ACROSS)
                for (uint64_t i = i0; i < i1; i += BF16_DOWN)
                    if (i + BF16_DOWN > j)
                        tile(s, part, i, j);
        }
    }
    return TSR_OK;
}

tsr_status tsr_cpu_syrk_bf16(struct tsr_cpu *c, uint64_t n, uint64_t rows, float alpha,
                             const float *x, uint64_t ldx, float *to, uint64_t ldc,
                             struct tsr_err *err)
{
    struct syrk s = { .c = c,
                      .ldx = ldx,
                      .n = n,
                      .panels = cpu_ceil(n, BF16_ACROSS),
                      .alpha = alpha,
                      .to = to,
                      .ldc = ldc };
    uint64_t    parts = cpu_ceil(cpu_min(rows, SLAB), BF16_ROWS);
    uint64_t    words = parts * s.panels * (BF16_ROWS / 2 * BF16_ACROSS);
    s.pairs = (uint32_t *)(void *)la_take(c, words);
    if (!s.pairs)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for linear algebra",
                        (unsigned long long)words * 4);
    tsr_status st = TSR_OK;
    for (uint64_t k = 0; k < rows && st == TSR_OK; k += SLAB) {
        s.x = x + k * ldx;
        s.rows = cpu_min(SLAB, rows - k);
        st = tsr_cpu_for(c, cpu_ceil(s.rows, BF16_ROWS) * s.panels,
                         UINT64_C(2) * BF16_ROWS * BF16_ACROSS, pack, &s);
        if (st == TSR_OK)
            st = tsr_cpu_for(c,
                             cpu_ceil(n, (uint64_t)DOWN * BF16_DOWN) *
                                 cpu_ceil(n, (uint64_t)ACROSS * BF16_ACROSS),
                             s.rows * cpu_min((uint64_t)DOWN * BF16_DOWN, n) *
                                 cpu_min((uint64_t)ACROSS * BF16_ACROSS, n) / 8,
                             blocks, &s);
    }
    la_give(c, (float *)(void *)s.pairs);
    return la_status(st, err);
}
