/* window_ranks.h - ranks that add in windows (window.cu): launches of the emulation that take turns in drawn orders, at
 * every look at a flag. */
#ifndef TSR_TEST_WINDOW_RANKS_H
#define TSR_TEST_WINDOW_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "k_window.h"
#include "simt/simt.h"
#include "tessera/dtype.h"
#include "tessera/f16.h"

#define RANKS K_WINDOW_RANKS
#define TURNS UINT64_C(5)
#define LONG  UINT64_C(60000000000) /* ns: only a hang takes so long */
#define SHORT UINT64_C(2000000)
#define GAP   5u
#define HALF  (UINT64_C(64) << 10)
#define MOST                                                                                       \
    512u /* turns of a schedule for a block of a sum; ranks that wait for each other take no more */

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

/* Of both signs, with sums whose order matters. */
static float number(uint32_t r, uint32_t turn, uint64_t i)
{
    uint64_t s = (uint64_t)r << 48 ^ (uint64_t)turn << 40 ^ i;
    (void)draw(&s, 2);
    float v = (float)draw(&s, 1u << 20) - 524288.0f;
    return v / (float)(1u << draw(&s, 24));
}

/* ---- the sum, by its definition ------------------------------------------------------- */

static float leaf(const struct shape *s, uint32_t r, uint32_t turn, uint64_t i)
{
    float v = number(r, turn, i);
    return s->dtype == TSR_F16    ? tsr_f16_f32(tsr_f32_f16(v))
           : s->dtype == TSR_BF16 ? tsr_bf16_f32(tsr_f32_bf16(v))
                                  : v;
}

/* The left half is the largest power of two that leaves something to the right. */
static float tree(const struct shape *s, uint32_t first, uint32_t n, uint32_t turn, uint64_t i)
{
    uint32_t half = 1;
    if (n == 1)
        return leaf(s, first, turn, i);
    while (2 * half < n)
        half *= 2;
    return tree(s, first, half, turn, i) + tree(s, first + half, n - half, turn, i);
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
        *a = (struct k_window){ .x = rank[r].x + (r % 2 ? 12 : 0),
                                .ldx = stride(s),
                                .rows = s->rows,
                                .cols = s->cols,
                                .state = rank[r].state,
                                .wait_ns = s->wait_ns,
                                .rank = r,
                                .ranks = s->ranks,
                                .dtype = s->dtype,
                                .resident = K_WINDOW_CELLS,
                                .wide = s->cols % 4 == 0 && r % 2 == 0 };
        for (uint32_t o = 0; o < s->ranks; o++)
            a->window[o] = o == r ? rank[o].window : seen(rank[o].window, r);
        k_window_cells(a, rank[r].grid);
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
    uint64_t n = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (uint64_t j = 0; j < TURNS * s->rows * s->cols; j++) {
            float want =
                tree(s, 0, s->ranks, (uint32_t)(j / (s->rows * s->cols)), j % (s->rows * s->cols));
            n += tsr_f32_bits(want) != tsr_f32_bits(rank[r].got[j]);
        }
    return n;
}

#endif
