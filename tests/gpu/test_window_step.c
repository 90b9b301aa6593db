/* A sum over ranks, its bias, ADD, NORM and the quantization of the norm in one launch (k_window_step of window.cu).  What it
 * leaves is what k_window_sum, k_add, k_norm and k_quantize leave, to the bit, in every order, also where other ranks run
 * those.  The faults of test_window.c are found here too. */
#include "window_ranks.h"

#define EXTERN(name) extern const struct simt_kernel name##_simt;
EXTERN(k_window_sum)
EXTERN(k_window_step)
EXTERN(k_add)
EXTERN(k_norm)
EXTERN(k_quantize)
EXTERN(window_no_wait)
EXTERN(window_no_wait_step)
EXTERN(window_early)
EXTERN(window_early_step)
EXTERN(window_unordered)
EXTERN(window_unordered_step)
EXTERN(window_apart)
EXTERN(window_apart_step)
#ifdef WEAK
EXTERN(window_unfenced)
EXTERN(window_unfenced_step)
EXTERN(window_unreleased)
EXTERN(window_unreleased_step)
EXTERN(window_unseen)
EXTERN(window_unseen_step)
#endif

/* What comes after the sum; with k_window_step for the ranks of `fused`. */
struct after {
    bool     adds, layer, quantizes, biases;
    uint32_t fused;
};

static const struct shape       *shape;
static const struct after       *after;
static const struct simt_kernel *step_kernel;

/* Of a rank: residual, norm, gain and bias; codes and scales of activations; all of them after each sum. */
static struct place {
    uint64_t             h, y, gain, q, sa;
    struct k_summed_step args;
    uint8_t             *left; /* [TURNS][bytes_left()] */
} place[RANKS];

static uint64_t rows_bytes(void)
{
    return 4 * shape->rows * stride(shape);
}
static uint64_t code_bytes(void)
{
    return shape->rows * ((shape->cols + 31) / 32 * 32);
}
static uint64_t scale_bytes(void)
{
    return 4 * shape->rows * ((shape->cols + 127) / 128);
}
static uint64_t bytes_left(void)
{
    return 3 * rows_bytes() + code_bytes() + scale_bytes();
}

/* Rows of odd ranks lie off 16 bytes. */
static void open_places(void)
{
    memset(place, 0, sizeof place);
    for (uint32_t r = 0; r < shape->ranks; r++) {
        struct place        *p = &place[r];
        const uint64_t       off = r % 2 ? 12 : 0, cols = shape->cols;
        struct k_norm_step  *step = &p->args.step;
        const struct k_rows  row = { .rows = (uint32_t)shape->rows, .n = cols, .eps = 1e-5f };
        const struct k_rows *add = &step->add;
        p->h = simt_alloc(16 + rows_bytes());
        p->y = simt_alloc(16 + rows_bytes());
        p->gain = simt_alloc(16 + 4 * cols);
        p->q = simt_alloc(code_bytes());
        p->sa = simt_alloc(scale_bytes());
        p->left = malloc(TURNS * bytes_left());
        assert_true(p->h && p->y && p->gain && p->q && p->sa && p->left);
        for (uint64_t i = 0; i < rows_bytes() / 4; i++)
            ((float *)simt_place(p->h + off, rows_bytes()))[i] = number(9, 1, i);
        for (uint64_t i = 0; i < cols; i++)
            ((float *)simt_place(p->gain + off, 4 * cols))[i] = number(9, 2, i) / 65536.0f;
        if (after->adds) {
            step->add = row;
            step->add.out = step->add.a = p->h + off;
            step->add.b = rank[r].a.x;
            step->add.out_stride = step->add.a_stride = step->add.b_stride = stride(shape);
        }
        step->norm = row;
        step->norm.a = add->out ? add->out : rank[r].a.x;
        step->norm.out = p->y + off;
        step->norm.b = p->gain + off;
        step->norm.c = after->layer ? p->gain + off : 0;
        step->norm.a_stride = step->norm.out_stride = stride(shape);
        step->norm.kind = after->layer;
        if (after->quantizes)
            step->q = (struct k_quantize){ .x = p->y + off,
                                           .ldx = stride(shape),
                                           .q = p->q,
                                           .ldq = (cols + 31) / 32 * 32,
                                           .sa = p->sa,
                                           .tokens = (uint32_t)shape->rows,
                                           .cols = (uint32_t)cols,
                                           .segment = (uint32_t)cols,
                                           .blocks = (uint32_t)(cols + 127) / 128,
                                           .per_segment = (uint32_t)(cols + 127) / 128 };
    }
}

static void close_places(void)
{
    for (uint32_t r = 0; r < shape->ranks; r++) {
        simt_free(place[r].h);
        simt_free(place[r].y);
        simt_free(place[r].gain);
        simt_free(place[r].q);
        simt_free(place[r].sa);
        free(place[r].left);
    }
}

static bool is_fused(const struct rank *k)
{
    return after->fused >> k->a.rank & 1;
}

static void become_step(struct rank *k, struct simt_launch *l)
{
    struct place *p = &place[k->a.rank];
    if (!is_fused(k))
        return;
    p->args.sum = k->a;
    if (after->biases) {
        p->args.sum.bias = p->args.step.norm.b;
        p->args.sum.biased = (uint32_t)shape->rows;
    }
    l->kernel = step_kernel;
    l->args = &p->args;
    l->grid[0] = (uint32_t)shape->rows;
    l->grid[1] = 1;
    l->threads = K_STEP_THREADS;
}

static void run_one(const struct rank *k, const struct simt_kernel *kernel, uint64_t blocks,
                    uint32_t threads, const void *args, uint64_t seed)
{
    const struct simt_launch l = { .kernel = kernel,
                                   .grid = { (uint32_t)blocks, 1, 1 },
                                   .threads = threads,
                                   .args = args,
                                   .seed = seed,
                                   .device = k->a.rank };
    assert_int_equal(simt_run(&l, NULL), TSR_OK);
}

static void finish_step(struct rank *k, uint64_t seed)
{
    struct place             *p = &place[k->a.rank];
    const struct k_norm_step *s = &p->args.step;
    const uint64_t            off = k->a.rank % 2 ? 12 : 0;
    uint8_t                  *to = p->left + k->turn * bytes_left();
    if (!is_fused(k)) {
        for (uint64_t r = 0; r < shape->rows && after->biases; r++) {
            const uint64_t      x = k->a.x + 4 * r * stride(shape);
            const struct k_rows bias = {
                .out = x, .a = x, .b = s->norm.b, .n = shape->cols, .rows = 1
            };
            run_one(k, &k_add_simt, (shape->cols + 255) / 256, 256, &bias, seed);
        }
        if (after->adds)
            run_one(k, &k_add_simt, (shape->rows * shape->cols + 255) / 256, 256, &s->add, seed);
        run_one(k, &k_norm_simt, shape->rows, 256, &s->norm, seed);
        if (after->quantizes)
            run_one(k, &k_quantize_simt, (shape->rows * s->q.blocks + 3) / 4, 128, &s->q, seed);
    }
    const struct {
        uint64_t at, bytes;
    } parts[] = { { k->a.x, rows_bytes() },
                  { p->h + off, rows_bytes() },
                  { p->y + off, rows_bytes() },
                  { p->q, code_bytes() },
                  { p->sa, scale_bytes() } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        memcpy(to, simt_place(parts[i].at, parts[i].bytes), parts[i].bytes);
        to += parts[i].bytes;
    }
}

/* ---- runs ----------------------------------------------------------------------------- */

/* Whether all sums are those of the tree, before a bias, and all that is left is `want`, which is NULL for the first run: that of rank
 * 0 is then returned in *left, for the caller to free. */
static bool run_steps(const struct shape *s, const struct after *a, const struct simt_kernel *sum,
                      const struct simt_kernel *step, uint64_t seed, uint64_t most,
                      const uint8_t *want, uint8_t **left)
{
    shape = s;
    after = a;
    step_kernel = step;
    prepare = become_step;
    finish = finish_step;
    open_ranks(s);
    open_places();
    bool           good = run_within(s, sum, s->ranks, seed, most) && (a->biases || wrong(s) == 0);
    const uint64_t bytes = TURNS * bytes_left();
    for (uint32_t r = 0; good && r < s->ranks; r++)
        good = memcmp(place[r].left, want ? want : place[0].left, bytes) == 0 && !state_of(r);
    if (left) {
        *left = malloc(bytes ? bytes : 1);
        assert_non_null(*left);
        memcpy(*left, place[0].left, bytes);
    }
    close_ranks(s);
    close_places();
    return good;
}

static const struct {
    struct shape shape;
    struct after after;
} cases[] = {
    { { 2, TSR_F32, 1, 2056, false, LONG }, { .adds = true, .quantizes = true } },
    { { 2, TSR_F32, 3, 1288, false, LONG }, { .adds = true, .quantizes = true, .biases = true } },
    { { 3, TSR_BF16, 2, 204, false, LONG }, { .layer = true, .quantizes = true } },
    { { 4, TSR_F16, 5, 37, false, LONG }, { .adds = true, .layer = true, .biases = true } },
    { { 4, TSR_BF16, 2, 332, false, LONG }, { .quantizes = true } },
    { { 2, TSR_BF16, 1, 8200, false, LONG },
      { .adds = true, .quantizes = true } }, /* longer than a tile */
    { { 2, MX(0), 1, 2056, false, LONG }, { .adds = true, .quantizes = true } },
    { { 3, MX(1), 3, 1288, false, LONG }, { .adds = true, .quantizes = true, .biases = true } },
    { { 4, MX(2), 5, 37, false, LONG }, { .adds = true, .layer = true, .biases = true } },
    { { 2, TWO + MX(0), 1, 2056, false, LONG }, { .adds = true, .quantizes = true } },
    { { 3, TWO + TSR_BF16, 3, 1288, false, LONG },
      { .adds = true, .quantizes = true, .biases = true } },
    { { 4, TWO + MX(1), 2, 612, false, LONG }, { .adds = true, .layer = true } },
    { { 2, SCALED(4), 1, 2056, false, LONG }, { .adds = true, .quantizes = true } },
    { { 3, SCALED(6), 2, 330, false, LONG }, { .adds = true, .quantizes = true, .biases = true } },
    { { 3, TWO + SCALED(4), 2, 612, false, LONG }, { .adds = true, .quantizes = true } },
};

#define MIXED 2u /* every second one runs again where some ranks have single launches */

static void test_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct shape *s = &cases[i].shape;
        struct after        a = cases[i].after;
        uint8_t            *want = NULL;
        assert_true(run_steps(s, &a, &k_window_sum_simt, NULL, 0, MOST, NULL, &want));
        for (uint64_t k = 0; k < schedules(); k++)
            for (uint32_t part = 0; part < (k % MIXED == 0 ? 2 : 1); part++) {
                const uint64_t seed = schedule(k);
                const uint32_t all = (1u << s->ranks) - 1;
                a.fused = part == 0 ? all : 1 + (uint32_t)((seed + i) % (all - 1));
                if (!run_steps(s, &a, &k_window_sum_simt, &k_window_step_simt, seed, MOST, want,
                               NULL))
                    fail_msg("case %zu, fused %x, schedule %llu: other bytes than single launches",
                             i, a.fused, (unsigned long long)seed);
            }
        free(want);
    }
}

/* Schedules of ten in which a kernel is found to be faulty, the first alone unless TSR_TEST_ALL is set: by what it leaves or by
 * ranks that get nowhere. */
static uint32_t found(const struct simt_kernel *sum, const struct simt_kernel *step, uint32_t dtype,
                      bool one_half)
{
    const struct after a = { .adds = true, .quantizes = true, .fused = 3 },
                       none = { .adds = true, .quantizes = true };
    const struct shape right = { 2, dtype, 1, 700, false, LONG };
    const struct shape s = { 2, dtype, 1, 700, one_half, LONG };
    uint32_t           n = 0;
    uint8_t           *want = NULL;
    assert_true(run_steps(&right, &none, &k_window_sum_simt, NULL, 0, MOST, NULL, &want));
    for (uint64_t seed = 1; looks_on(seed, n); seed++)
        n += !run_steps(&s, &a, sum, step, seed, 64, want, NULL);
    free(want);
    return n;
}

static const struct {
    const char *name;
    uint32_t    dtype;
} codes[] = { { "F32", TSR_F32 },
              { "mx", MX(0) },
              { "mx in two steps", TWO + MX(0) },
              { "int4_bf16", SCALED(4) },
              { "int4_bf16 in two steps", TWO + SCALED(4) } };

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const uint32_t t = codes[i].dtype;
        const uint32_t no_wait = found(&window_no_wait_simt, &window_no_wait_step_simt, t, false);
        const uint32_t early = found(&window_early_simt, &window_early_step_simt, t, false);
        const uint32_t unordered =
            found(&window_unordered_simt, &window_unordered_step_simt, t, false);
        const uint32_t apart = found(&window_apart_simt, &window_apart_step_simt, t, false);
        const uint32_t one_half = found(&k_window_sum_simt, &k_window_step_simt, t, true);
        print_message("%s: schedules of 10 that find: no wait %u, a flag of the sum before %u, no "
                      "barriers %u, none before the norm %u, one half %u\n",
                      codes[i].name, no_wait, early, unordered, apart, one_half);
        assert_true(no_wait > 0 && early > 0 && unordered > 0 && apart > 0);
        assert_true(t >= TWO ? one_half == 0 : one_half > 0); /* see test_window.c */
        assert_int_equal(found(&k_window_sum_simt, &k_window_step_simt, t, false), 0);
    }
}

#ifdef WEAK
static void test_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const uint32_t t = codes[i].dtype;
        const uint32_t unfenced =
            found(&window_unfenced_simt, &window_unfenced_step_simt, t, false);
        const uint32_t unreleased =
            found(&window_unreleased_simt, &window_unreleased_step_simt, t, false);
        const uint32_t unseen = found(&window_unseen_simt, &window_unseen_step_simt, t, false);
        print_message(
            "%s: schedules of 10 that find: no fence %u, none before a flag %u, none behind a "
            "flag %u\n",
            codes[i].name, unfenced, unreleased, unseen);
        assert_true(unfenced > 0 && unreleased > 0 && unseen > 0);
    }
}
#endif

/* A rank that never comes holds nobody. */
static void test_dead(void **state)
{
    const struct shape s = { 3, TSR_F32, 1, 700, false, SHORT };
    const struct after a = { .adds = true, .quantizes = true, .fused = 7 };
    (void)state;
    shape = &s;
    after = &a;
    step_kernel = &k_window_step_simt;
    prepare = become_step;
    finish = finish_step;
    open_ranks(&s);
    open_places();
    assert_true(run_within(&s, &k_window_sum_simt, 2, 5, UINT64_C(1) << 20));
    assert_int_equal(state_of(0), K_WINDOW_LATE + 2);
    assert_int_equal(state_of(1), K_WINDOW_LATE + 2);
    close_ranks(&s);
    close_places();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_steps), cmocka_unit_test(test_faults),
#ifdef WEAK
                                        cmocka_unit_test(test_order),
#endif
                                        cmocka_unit_test(test_dead) };
    return cmocka_run_group_tests_name("cuda-window-step", tests, NULL, NULL);
}
