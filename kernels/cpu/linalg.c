/* linalg.c - "tessera.linalg/1": its checks and the multiplication. */
#include "linalg.h"

#include <stdatomic.h>
#include <string.h>

#include "backend.h"

#define ROWS_MAX    384u                /* rows of a block of C; with KC columns in L2 */
#define COLS_MAX    256u                /* columns of a block of C */
#define PACK_FLOATS (UINT64_C(8) << 20) /* packed at once, where PACK_COLS are not more */
#define PACK_COLS   256u                /* of k, least packed size and granularity */
#define PACK_PANELS 16u                 /* that are packed together */
#define SMALL       512u                /* rows and columns of factors whose LA_KC of k fit in L2 */
#define CACHE_MAX   (UINT64_C(64) << 20) /* bytes of scratch that are kept */
#define HEADER      16u                  /* floats before scratch */

/* ---- scratch --------------------------------------------------------------- */

float *la_take(struct tsr_cpu *c, uint64_t floats)
{
    uint64_t bytes, have;
    if (__builtin_add_overflow(floats, HEADER, &bytes) || __builtin_mul_overflow(bytes, 4, &bytes))
        return NULL;
    void *p = atomic_exchange(&c->linalg.cache, NULL);
    if (p) {
        memcpy(&have, p, sizeof have);
        if (have >= bytes)
            return (float *)p + HEADER;
        c->host->release(c->host->ctx, p, have);
    }
    p = c->host->alloc(c->host->ctx, bytes, 64);
    if (!p)
        return NULL;
    memcpy(p, &bytes, sizeof bytes);
    return (float *)p + HEADER;
}

void la_give(struct tsr_cpu *c, float *scratch)
{
    if (!scratch)
        return;
    uint64_t bytes;
    void    *p = scratch - HEADER, *none = NULL;
    memcpy(&bytes, p, sizeof bytes);
    if (bytes > CACHE_MAX || !atomic_compare_exchange_strong(&c->linalg.cache, &none, p))
        c->host->release(c->host->ctx, p, bytes);
}

tsr_status la_status(tsr_status st, struct tsr_err *err)
{
    return st == TSR_E_CANCELLED ? tsr_fail(err, st, "linear algebra: stopped") : st;
}

/* ---- multiplication -------------------------------------------------------- */

struct run {
    struct tsr_cpu       *c;
    const struct la_gemm *g;
    uint64_t              k0, k1;     /* columns that are packed now */
    uint64_t              mpan, npan; /* panels of A and B */
    uint64_t              brow, bcol; /* panels in a block of C */
    uint64_t              jblocks;
    float                *a, *b; /* [block of KC][panel][k][mr or nr] */
};

/* Groups of PACK_PANELS panels of A, then of B. */
static tsr_status pack(void *arg, uint64_t begin, uint64_t end)
{
    const struct run                    *r = arg;
    const struct la_gemm                *g = r->g;
    const struct tsr_cpu_linalg_kernels *kn = r->c->k->linalg;
    uint64_t                             groups = cpu_ceil(r->mpan, PACK_PANELS);
    if (r->c->host->cancelled(r->c->host->ctx))
        return TSR_E_CANCELLED;
    for (uint64_t p = begin; p < end; p++)
        for (uint64_t k = r->k0; k < r->k1; k += LA_KC) {
            uint64_t n = cpu_min(LA_KC, r->k1 - k), at = k - r->k0;
            int      which = p >= groups;
            uint64_t q = (p - (which ? groups : 0)) * PACK_PANELS;
            uint64_t width = which ? kn->nr : kn->mr, first = q * width;
            uint64_t count = cpu_min(PACK_PANELS * width, (which ? g->n : g->m) - first);
            if (which)
                kn->pack(r->b + (at * r->npan + q * n) * width, n * width, 1,
                         g->b + first * g->bj + k * g->bk, g->bj, g->bk, count, n, 1.0f);
            else
                kn->pack(r->a + (at * r->mpan + q * n) * width, n * width, 0,
                         g->a + first * g->ai + k * g->ak, g->ai, g->ak, count, n, g->alpha);
        }
    return TSR_OK;
}

/* Tile at panel i of A and j of B, n steps; one at the edge goes through a copy. */
static void one_tile(const struct run *r, uint64_t i, uint64_t j, const float *a, const float *b,
                     uint64_t n, const float *next)
{
    const struct tsr_cpu_linalg_kernels *k = r->c->k->linalg;
    const struct la_gemm                *g = r->g;
    uint64_t row = i * k->mr, col = j * k->nr, m = cpu_min(k->mr, g->m - row);
    uint64_t w = cpu_min(k->nr, g->n - col);
    float   *c = g->c + row * g->ldc + col;
    if (m == k->mr && w == k->nr) {
        k->tile(a, b, n, c, g->ldc, next);
        return;
    }
    float edge[16 * 32] = { 0 };
    for (uint64_t x = 0; x < m; x++)
        memcpy(edge + x * k->nr, c + x * g->ldc, w * sizeof *c);
    k->tile(a, b, n, edge, k->nr, NULL);
    for (uint64_t x = 0; x < m; x++)
        memcpy(c + x * g->ldc, edge + x * k->nr, w * sizeof *c);
}

/* Blocks of C: all steps of k that are packed, so that the block stays in the cache. */
static tsr_status blocks(void *arg, uint64_t begin, uint64_t end)
{
    const struct run     *r = arg;
    const struct la_gemm *g = r->g;
    uint64_t              mr = r->c->k->linalg->mr, nr = r->c->k->linalg->nr;
    for (uint64_t t = begin; t < end; t++) {
        uint64_t i0 = t / r->jblocks * r->brow, i1 = cpu_min(i0 + r->brow, r->mpan);
        uint64_t j0 = t % r->jblocks * r->bcol, j1 = cpu_min(j0 + r->bcol, r->npan);
        if (g->lower && g->below + i1 * mr <= j0 * nr)
            continue;
        for (uint64_t k = r->k0; k < r->k1; k += LA_KC) {
            uint64_t at = k - r->k0, n = cpu_min(LA_KC, r->k1 - k);
            if (g->b_lower && k + n <= j0 * nr)
                continue;
            if (r->c->host->cancelled(r->c->host->ctx))
                return TSR_E_CANCELLED;
            for (uint64_t j = j0; j < j1; j++)
                for (uint64_t i = i0; i < i1; i++) {
                    if (g->lower && g->below + (i + 1) * mr <= j * nr)
                        continue;
                    uint64_t down = i + 1 < i1 ? i + 1 : i0, right = i + 1 < i1 ? j : j + 1;
                    one_tile(r, i, j, r->a + (at * r->mpan + i * n) * mr,
                             r->b + (at * r->npan + j * n) * nr, n,
                             right * nr < g->n ? g->c + down * mr * g->ldc + right * nr : NULL);
                }
        }
    }
    return TSR_OK;
}

static struct run cut(struct tsr_cpu *c, const struct la_gemm *g)
{
    uint64_t   mr = c->k->linalg->mr, nr = c->k->linalg->nr;
    struct run r = { .c = c, .g = g, .mpan = cpu_ceil(g->m, mr), .npan = cpu_ceil(g->n, nr) };
    r.brow = ROWS_MAX / mr;
    r.bcol = COLS_MAX / nr;
    r.jblocks = cpu_ceil(r.npan, r.bcol);
    return r;
}

static uint64_t tasks(const struct run *r)
{
    return cpu_ceil(r->mpan, r->brow) * r->jblocks;
}

/* Work of a block, as tsr_cpu_for() counts it. */
static uint64_t work(const struct run *r)
{
    return (r->k1 - r->k0) * cpu_min(ROWS_MAX, r->g->m) * cpu_min(COLS_MAX, r->g->n) / 4;
}

struct with {
    struct run r;
    tsr_status (*also)(void *);
    void *arg;
};

static tsr_status blocks_with(void *arg, uint64_t begin, uint64_t end)
{
    struct with *w = arg;
    tsr_status   st = begin == 0 ? w->also(w->arg) : TSR_OK;
    begin += begin == 0;
    return st == TSR_OK ? blocks(&w->r, begin - 1, end - 1) : st;
}

tsr_status la_tiles_here(struct tsr_cpu *c, const struct la_gemm *g, float *a, float *b)
{
    struct run r = cut(c, g);
    r.k1 = g->k;
    r.a = a;
    r.b = b;
    return blocks(&r, 0, tasks(&r));
}

tsr_status la_tiles(struct tsr_cpu *c, const struct la_gemm *g, float *a, float *b,
                    tsr_status (*also)(void *), void *arg)
{
    struct with w = { cut(c, g), also, arg };
    w.r.k1 = g->k;
    w.r.a = a;
    w.r.b = b;
    return tsr_cpu_for(c, tasks(&w.r) + 1, work(&w.r), blocks_with, &w);
}

tsr_status la_gemm(struct tsr_cpu *c, const struct la_gemm *g, struct tsr_err *err)
{
    if (g->m == 0 || g->n == 0 || g->k == 0)
        return TSR_OK;
    uint64_t   mr = c->k->linalg->mr, nr = c->k->linalg->nr, floats;
    struct run r = cut(c, g);
    uint64_t   width = r.mpan * mr + r.npan * nr;
    /* as many columns of k as PACK_FLOATS hold */
    uint64_t step = PACK_FLOATS / PACK_COLS / width * PACK_COLS;
    step =
        cpu_min(step > PACK_COLS ? step : PACK_COLS, width <= SMALL ? cpu_min(LA_KC, g->k) : g->k);
    if (__builtin_mul_overflow(width, step, &floats))
        return tsr_fail(err, TSR_E_NOMEM, "linear algebra: the factors are larger than the memory");
    r.a = la_take(c, floats);
    if (!r.a)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for linear algebra",
                        (unsigned long long)floats * 4);
    r.b = r.a + step * r.mpan * mr;
    tsr_status st = TSR_OK;
    for (; r.k0 < g->k && st == TSR_OK; r.k0 = r.k1) {
        r.k1 = r.k0 + cpu_min(step, g->k - r.k0);
        uint64_t n = r.k1 - r.k0;
        st = tsr_cpu_for(c, cpu_ceil(r.mpan, PACK_PANELS) + cpu_ceil(r.npan, PACK_PANELS),
                         n * nr * PACK_PANELS * 4, pack, &r);
        if (st == TSR_OK)
            st = tsr_cpu_for(c, tasks(&r), work(&r), blocks, &r);
    }
    la_give(c, r.a);
    return la_status(st, err);
}

/* ---- checks and triangles ------------------------------------------------- */

tsr_status la_check(const char *what, const void *p, uint64_t rows, uint64_t cols, uint64_t ld,
                    struct tsr_err *err)
{
    uint64_t n;
    if (rows == 0 || cols == 0)
        return TSR_OK;
    if (!p)
        return tsr_fail(err, TSR_E_INVAL, "%s is NULL", what);
    if (rows > 1 && ld < cols)
        return tsr_fail(err, TSR_E_INVAL, "%s has rows of %llu elements %llu apart", what,
                        (unsigned long long)cols, (unsigned long long)ld);
    /* a PACK_FLOATS-th of what 64 bits count, so that sizes made of it cannot overflow */
    if (cols > UINT32_MAX || rows > UINT32_MAX || __builtin_mul_overflow(rows, ld, &n) ||
        n > PTRDIFF_MAX / sizeof(float))
        return tsr_fail(err, TSR_E_INVAL, "%s is %llu by %llu: too large", what,
                        (unsigned long long)rows, (unsigned long long)cols);
    return TSR_OK;
}

struct mirror {
    float   *a;
    uint64_t n, lda;
};

#define MIRROR 16u /* a cache line: every line read or written is used whole */

static tsr_status mirror_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct mirror *m = arg;
    float                t[MIRROR][MIRROR];
    for (uint64_t b = begin * MIRROR; b < cpu_min(end * MIRROR, m->n); b += MIRROR) {
        uint64_t rows = cpu_min(MIRROR, m->n - b);
        for (uint64_t j0 = 0; j0 < b; j0 += MIRROR) {
            for (uint64_t i = 0; i < rows; i++)
                for (uint64_t j = 0; j < MIRROR; j++)
                    t[j][i] = m->a[(b + i) * m->lda + j0 + j];
            for (uint64_t j = 0; j < MIRROR; j++)
                memcpy(m->a + (j0 + j) * m->lda + b, t[j], rows * sizeof t[j][0]);
        }
        for (uint64_t i = b; i < b + rows; i++)
            for (uint64_t j = b; j < i; j++)
                m->a[j * m->lda + i] = m->a[i * m->lda + j];
    }
    return TSR_OK;
}

tsr_status la_mirror(struct tsr_cpu *c, uint64_t n, float *a, uint64_t lda)
{
    struct mirror m = { a, n, lda };
    return tsr_cpu_for(c, cpu_ceil(n, MIRROR), n * MIRROR * 4, mirror_rows, &m);
}
