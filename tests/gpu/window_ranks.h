/* window_ranks.h - ranks that add in windows (window.cu): launches of the emulation that take turns in drawn orders, at
 * every look at a flag. */
#ifndef TSR_TEST_WINDOW_RANKS_H
#define TSR_TEST_WINDOW_RANKS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "k_window.h"
#include "simt/simt.h"
#include "tessera/codec.h"
#include "tessera/dtype.h"
#include "tessera/f16.h"

#define SCHEDULES 3u /* of each shape: in turn, and in orders that TSR_TEST_SEED draws */
#define RANKS     K_WINDOW_RANKS
#define TURNS     UINT64_C(5)
#define LONG      UINT64_C(60000000000) /* ns: only a hang takes so long */
#define SHORT     UINT64_C(2000000)
#define GAP       5u
#define HALF      (UINT64_C(64) << 10)
#define MOST                                                                                       \
    512u /* turns of a schedule for a block of a sum; ranks that wait for each other take no more */

#define MX(i) (100u + (i)) /* in place of a type: codes of mx_wire[i] */
#define TWO   1000u        /* more than that: in two steps */

static const struct tsr_codec_wire mx_wire[] = {
    { .element = TSR_MX_FP4_E2M1, .block = 32, .scale_bits = 8, .rounding = TSR_WIRE_EVEN },
    { .element = TSR_MX_FP6_E2M3, .block = 64, .scale_bits = 8, .rounding = TSR_WIRE_EVEN },
    { .element = TSR_MX_INT(8), .block = 8, .scale_bits = 6, .rounding = TSR_WIRE_EVEN },
    { .element = TSR_MX_FP3_E1M1, .block = 256, .scale_bits = 8, .rounding = TSR_WIRE_EVEN },
};

struct shape {
    uint32_t ranks, dtype;
    uint64_t rows, cols;
    bool     one_half; /* a fault: each sum writes where the one before is read */
    uint64_t wait_ns;
};

struct rank {
    uint64_t              window, x, state;
    struct k_window       a; /* window: those of others may be views */
    struct simt_resident *at_work;
    uint32_t              turn; /* the next one */
    uint32_t              grid[2];
    float                *got; /* [TURNS][rows][cols] */
};

static struct rank rank[RANKS];

/* What a test adds: a rank's launch becomes another one; its launch has ended. */
static void (*prepare)(struct rank *k, struct simt_launch *l);
static void (*finish)(struct rank *k, uint64_t seed);

static uint64_t draw(uint64_t *s, uint64_t below)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*s >> 33) % below;
}

/* The number of a schedule, of SCHEDULES or with TSR_TEST_ALL of 40: 0 is in turn. */
static uint64_t schedule(uint64_t i)
{
    const char *seed = getenv("TSR_TEST_SEED");
    return i ? i + 100 * (seed ? strtoull(seed, NULL, 10) : 0) : 0;
}
static uint64_t schedules(void)
{
    return getenv("TSR_TEST_ALL") ? 40 : SCHEDULES;
}

/* Of both signs, with sums whose order matters. */
static float number(uint32_t r, uint32_t turn, uint64_t i)
{
    uint64_t s = (uint64_t)r << 48 ^ (uint64_t)turn << 40 ^ i;
    (void)draw(&s, 2);
    float v = (float)draw(&s, 1u << 20) - 524288.0f;
    return v / (float)(1u << draw(&s, 24));
}

/* ---- the sum, by its definition ------------------------------------------------------- */

/* A magnitude of an element with e bits of exponent and m of mantissa. */
static double mx_magnitude(uint32_t e, uint32_t m, uint32_t k)
{
    const int bias = e ? (1 << (e - 1)) - 1 : 0, field = e ? (int)(k >> m) : 0;
    if (e == 0)
        return ldexp(k, 1 - (int)m);
    const double part = ldexp(k & ((1u << m) - 1), -(int)m);
    return field ? ldexp(1 + part, field - bias) : ldexp(part, 1 - bias);
}

/* A block becomes, each of its numbers, the nearest value of the element, ties to the even one, under the power of two that
 * the largest magnitude gives: docs/formats/mx.md, with a search over all values. */
static void code_block(const struct tsr_codec_wire *w, float *x, uint64_t n)
{
    const uint32_t e = w->element >> 8, m = w->element & 0xffu;
    double         top = 0;
    for (uint64_t c = 0; c < n; c++)
        top = fmax(top, fabs((double)x[c]));
    const int scale = top > 0 ? ilogb(top) - (e ? 1 << (e - 1) : 0) : 0;
    for (uint64_t c = 0; c < n; c++) {
        const double v = ldexp(x[c], -scale);
        double       best = 0, off = INFINITY;
        for (uint32_t k = 0; k < 1u << (e + m); k++) {
            const double to = mx_magnitude(e, m, k), d = fabs(fabs(v) - to);
            if (d < off || (d == off && k % 2 == 0)) {
                off = d;
                best = to;
            }
        }
        x[c] = best == 0 ? 0 : (float)ldexp(v < 0 ? -best : best, scale);
    }
}

/* Columns [first, end) of a row are coded and decoded; blocks of `mx` begin at multiples of their columns. */
static void code_part(const struct shape *s, float *row, uint64_t first, uint64_t end)
{
    const uint32_t code = s->dtype % TWO;
    for (uint64_t c = first; c < end && code < MX(0); c++)
        row[c] = code == TSR_F16    ? tsr_f16_f32(tsr_f32_f16(row[c]))
                 : code == TSR_BF16 ? tsr_bf16_f32(tsr_f32_bf16(row[c]))
                                    : row[c];
    for (uint64_t c = first; c < end && code >= MX(0);) {
        const struct tsr_codec_wire *w = &mx_wire[code - MX(0)];
        const uint64_t               n = end - c < w->block ? end - c : w->block;
        code_block(w, row + c, n);
        c += n;
    }
}

/* Slices as the core has them. */
static uint64_t border_of(const struct shape *s, uint64_t r)
{
    const uint64_t units = (s->cols + 63) / 64, c = units * r / s->ranks * 64;
    return c < s->cols ? c : s->cols;
}

/* The left half is the largest power of two that leaves something to the right. */
static float tree(const struct shape *s, const float *x, uint32_t n)
{
    uint32_t half = 1;
    if (n == 1)
        return *x;
    while (2 * half < n)
        half *= 2;
    return tree(s, x, half) + tree(s, x + half * s->cols, n - half);
}

/* The sums of all turns, [TURNS][rows][cols]; valid until those of another shape are asked for. */
static const float *wanted(const struct shape *s)
{
    static struct shape of;
    static float       *kept;
    const uint64_t      n = s->cols;
    if (kept && of.ranks == s->ranks && of.dtype == s->dtype && of.rows == s->rows &&
        of.cols == s->cols)
        return kept;
    free(kept);
    float *want = malloc(TURNS * s->rows * n * sizeof *want);
    float *x = malloc(s->ranks * n * sizeof *x);
    assert_true(want && x);
    for (uint32_t i = 0; i < TURNS * s->rows; i++) {
        float *row = want + i * n;
        for (uint32_t r = 0; r < s->ranks; r++) {
            for (uint64_t c = 0; c < n; c++)
                x[r * n + c] = number(r, i / (uint32_t)s->rows, i % s->rows * n + c);
            if (s->dtype < TWO) {
                code_part(s, x + r * n, 0, n);
                continue;
            }
            code_part(s, x + r * n, 0, border_of(s, r)); /* not what it adds itself */
            code_part(s, x + r * n, border_of(s, r + 1), n);
        }
        for (uint64_t c = 0; c < n; c++)
            row[c] = tree(s, x + c, s->ranks);
        for (uint32_t r = 0; r < s->ranks && s->dtype >= TWO; r++)
            code_part(s, row, border_of(s, r), border_of(s, r + 1));
    }
    free(x);
    of = *s;
    kept = want;
    return want;
}

/* ---- ranks ---------------------------------------------------------------------------- */

static uint64_t stride(const struct shape *s)
{
    return s->cols + GAP + (4 - (s->cols + GAP) % 4) % 4;
}

#ifdef WEAK
static uint64_t seen(uint64_t window, uint32_t r)
{
    const uint64_t view = simt_view(window, r);
    assert_true(view);
    return view;
}
static void forget(uint64_t view)
{
    simt_view_close(view);
}
#else
static uint64_t seen(uint64_t window, uint32_t r)
{
    (void)r;
    return window;
}
static void forget(uint64_t window)
{
    (void)window;
}
#endif

/* Rows of odd ranks lie off 16 bytes, so that they are not read in fours. */
static void open_ranks(const struct shape *s)
{
    memset(rank, 0, sizeof rank);
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct rank *k = &rank[r];
        k->window = simt_alloc(K_WINDOW_HEAD + 2 * HALF);
        k->x = simt_alloc(16 + 4 * s->rows * stride(s));
        k->state = simt_alloc(4);
        k->got = malloc(TURNS * s->rows * s->cols * sizeof *k->got);
        assert_true(k->window && k->x && k->state && k->got);
        /* what is read without having been written is far off */
        memset((char *)simt_place(k->window, K_WINDOW_HEAD + 2 * HALF) + K_WINDOW_HEAD, 0x7b,
               2 * HALF);
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct k_window *a = &rank[r].a;
        const uint32_t   code = s->dtype % TWO;
        *a = (struct k_window){ .x = rank[r].x + (r % 2 ? 12 : 0),
                                .ldx = stride(s),
                                .rows = s->rows,
                                .cols = s->cols,
                                .state = rank[r].state,
                                .wait_ns = s->wait_ns,
                                .rank = r,
                                .ranks = s->ranks,
                                .dtype = code,
                                .resident = K_WINDOW_CELLS,
                                .wide = s->cols % 4 == 0 && r % 2 == 0 };
        if (code >= MX(0)) {
            const struct tsr_codec_wire *w = &mx_wire[code - MX(0)];
            const uint32_t               bits = tsr_cuda_mx_bits(w, &a->mx);
            assert_true(bits > 0);
            a->lanes = (uint32_t)w->block / 8;
            a->log2_lanes = (uint32_t)__builtin_ctz(a->lanes);
            a->words = bits > 4 ? 2 : 1;
        }
        for (uint32_t o = 0; o < s->ranks; o++)
            a->window[o] = o == r ? rank[o].window : seen(rank[o].window, r);
        k_window_cells(a, rank[r].grid); /* runs */
        a->slices = s->dtype >= TWO ? s->ranks : 0;
        for (uint32_t o = 0; o <= a->slices; o++)
            a->border[o] = border_of(s, o) == s->cols
                               ? a->runs
                               : (uint32_t)border_of(s, o) / K_WINDOW_COLUMNS(a);
        k_window_cells(a, rank[r].grid);
        assert_true(!a->lanes || k_window_mx_bytes(a, s->rows) <= HALF);
    }
}

static void close_ranks(const struct shape *s)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        simt_drop(rank[r].at_work); /* of a kernel that gets nowhere */
        rank[r].at_work = NULL;
        for (uint32_t o = 0; o < s->ranks; o++)
            if (o != r)
                forget(rank[r].a.window[o]);
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        simt_free(rank[r].window);
        simt_free(rank[r].x);
        simt_free(rank[r].state);
        free(rank[r].got);
    }
}

static float *row_of(const struct rank *k, const struct shape *s, uint64_t row)
{
    float *p = simt_place(rank[0].x ? k->a.x : 0, 4);
    return p + row * stride(s);
}

static uint32_t state_of(uint32_t r)
{
    return *(const uint32_t *)simt_place(rank[r].state, 4);
}

/* ---- schedules ------------------------------------------------------------------------ */

static uint32_t blocks_of(const struct rank *k)
{
    return k->grid[0] * k->grid[1];
}

static void begin(struct rank *k, const struct shape *s, const struct simt_kernel *kernel,
                  uint64_t seed)
{
    struct simt_launch l = { .kernel = kernel,
                             .grid = { k->grid[0], k->grid[1], 1 },
                             .threads = 256,
                             .args = &k->a,
                             .seed = seed,
                             .device = k->a.rank };
    k->a.half = K_WINDOW_HEAD + (s->one_half ? 0 : k->turn % 2 * HALF);
    for (uint64_t i = 0; i < s->rows * s->cols; i++)
        row_of(k, s, i / s->cols)[i % s->cols] = number(k->a.rank, k->turn, i);
    if (prepare)
        prepare(k, &l);
    assert_int_equal(simt_begin(&l, &k->at_work, NULL), TSR_OK);
}

static void end(struct rank *k, const struct shape *s, uint64_t seed)
{
    for (uint64_t r = 0; r < s->rows; r++)
        memcpy(k->got + (k->turn * s->rows + r) * s->cols, row_of(k, s, r), 4 * s->cols);
    if (finish)
        finish(k, seed);
    k->at_work = NULL;
    k->turn++;
}

/* Whether another of the ten schedules tries to find a fault that `found` have found: one is enough but in a whole run. */
static bool looks_on(uint64_t schedule, uint32_t found)
{
    return schedule <= 10 && (!found || getenv("TSR_TEST_ALL"));
}

/* All sums of the first `alive` ranks; false: the emulation found an error, or they get nowhere. */
static bool run_within(const struct shape *s, const struct simt_kernel *kernel, uint32_t alive,
                       uint64_t seed, uint64_t most)
{
    char           text[400] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    uint64_t       order = seed, left = alive * TURNS;
    for (uint64_t i = 0; left && i < most * TURNS * alive * blocks_of(&rank[0]); i++) {
        struct rank *k = &rank[draw(&order, alive)];
        bool         ended = false;
        if (k->turn == TURNS)
            continue;
        if (!k->at_work)
            begin(k, s, kernel, seed ? seed * 64 + (uint64_t)k->turn * RANKS + k->a.rank + 1 : 0);
        if (simt_go_on(k->at_work, &ended, &err) != TSR_OK) {
            print_message("%s\n", text);
            k->at_work = NULL;
            return false;
        }
        if (ended) {
            end(k, s, seed);
            left--;
        }
    }
    return left == 0;
}

/* Numbers that are not those of the tree. */
static uint64_t wrong(const struct shape *s)
{
    const float *want = wanted(s);
    uint64_t     n = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (uint64_t j = 0; j < TURNS * s->rows * s->cols; j++)
            n += tsr_f32_bits(want[j]) != tsr_f32_bits(rank[r].got[j]);
    return n;
}

#endif
