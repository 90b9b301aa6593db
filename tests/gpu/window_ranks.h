/* window_ranks.h - ranks that add in windows (window.cu): launches of the emulation that take turns in drawn orders, at
 * every look at a flag. */
#ifndef TSR_TEST_WINDOW_RANKS_H
#define TSR_TEST_WINDOW_RANKS_H

#include "window_codes.h"

struct rank {
    uint64_t              window, x, state, list; /* list: of `int4_bf16` */
    struct k_window       a;                      /* window: those of others may be views */
    struct simt_resident *at_work;
    uint32_t              turn; /* the next one */
    uint32_t              grid[2];
    float                *got; /* [TURNS][rows][cols] */
};

static struct rank rank[RANKS];

/* What a test adds: a rank's launch becomes another one; its launch has ended. */
static void (*prepare)(struct rank *k, struct simt_launch *l);
static void (*finish)(struct rank *k, uint64_t seed);

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

/* What a rank's sums are coded as; without the lists of `int4_bf16`. */
static void set_codes(const struct shape *s, const struct tsr_window_codes *codes,
                      struct k_window *a)
{
    const uint32_t code = s->dtype % TWO;
    if (code >= SCALED(0)) {
        assert_true(tsr_cuda_scaled_outline(codes, a));
    } else if (code >= MX(0)) {
        const struct tsr_codec_wire *w = &mx_wire[code - MX(0)];
        const uint32_t               bits = tsr_cuda_mx_bits(w, &a->mx);
        assert_true(bits > 0);
        a->lanes = (uint32_t)w->block / 8;
        a->log2_lanes = (uint32_t)__builtin_ctz(a->lanes);
        a->words = bits > 4 ? 2 : 1;
    }
}

static void put_list(struct rank *k, const struct tsr_window_codes *codes)
{
    const uint64_t bytes = 4 * tsr_cuda_scaled_words(&k->a);
    k->list = simt_alloc(bytes);
    assert_true(k->list);
    tsr_cuda_scaled_lists(codes, k->list, simt_place(k->list, bytes), &k->a);
}

/* Rows of odd ranks lie off 16 bytes, so that they are not read in fours. */
static void open_ranks(const struct shape *s)
{
    struct tsr_codec_wire   first[RANKS * RANKS] = { 0 }, second[RANKS] = { 0 };
    uint64_t                border[RANKS + 1];
    struct tsr_window_codes codes = { 0 };
    const bool              is_scaled = s->dtype % TWO >= SCALED(0);
    memset(rank, 0, sizeof rank);
    if (is_scaled)
        scaled_codes(s, border, first, second, &codes);
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
        set_codes(s, &codes, a);
        for (uint32_t o = 0; o < s->ranks; o++)
            a->window[o] = o == r ? rank[o].window : seen(rank[o].window, r);
        k_window_cells(a, rank[r].grid); /* runs */
        a->slices = s->dtype >= TWO ? s->ranks : 0;
        for (uint32_t o = 0; o <= a->slices; o++)
            a->border[o] = border_of(s, o) == s->cols
                               ? a->runs
                               : (uint32_t)border_of(s, o) / K_WINDOW_COLUMNS(a);
        k_window_cells(a, rank[r].grid);
        assert_true(!a->lanes || k_window_coded_bytes(a, s->rows) <= HALF);
        if (is_scaled)
            put_list(&rank[r], &codes);
    }
    free_wires(first, RANKS * RANKS);
    free_wires(second, RANKS);
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
        if (rank[r].list)
            simt_free(rank[r].list);
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
