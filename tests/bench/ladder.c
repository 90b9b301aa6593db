/* ladder.c - one LINEAR step by step, from the reference to VNNI: how long each step of kernels/README.md takes for
 * one token and for 64.  One thread, processor time, so that other jobs of the machine count little; the steps
 * take turns, and every ratio is one of the same round.  The results of a step are held against the reference
 * before it is timed.   ladder [ROWS COLS] */
#include "../unit/cpu_fixture.h"

#include <stdio.h>
#include <time.h>

#include "exact.h"

#define ROUNDS 5
#define TOKENS 64u
#define LEAST  0.05 /* seconds of a timing */

struct step {
    const char *name, *isa; /* isa NULL: the reference */
    uint32_t    act;
    double      seconds[2][ROUNDS]; /* of one token; of TOKENS, per token */
};

static struct step steps[] = {
    { .name = "reference, int8", .act = TSR_ACT_A8 },
    { .name = "scalar, int8", .isa = "scalar", .act = TSR_ACT_A8 },
    { .name = "AVX2, F32", .isa = "avx2", .act = TSR_ACT_F32 },
    { .name = "AVX2, int8", .isa = "avx2", .act = TSR_ACT_A8 },
    { .name = "AVX-512, F32", .isa = "avx512", .act = TSR_ACT_F32 },
    { .name = "AVX-512 VNNI, int8", .isa = "avx512", .act = TSR_ACT_A8 },
};
#define STEPS (sizeof steps / sizeof *steps)

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* y [N] of one token by the reference, every row made anew as its codes are read. */
static void reference(const struct wt *w, const float *x, float *y)
{
    for (uint64_t n = 0; n < w->desc.rows; n++) {
        struct tsr_ref_row row;
        assert_int_equal(tsr_ref_row_make(&row, &w->format, w->desc.cols,
                                          w->codes + n * w->desc.code_stride,
                                          w->meta + n * w->desc.meta_stride),
                         TSR_OK);
        y[n] = tsr_ref_exact_a8(x, &row, w->desc.cols);
        tsr_ref_row_free(&row);
    }
}

/* Seconds of a token, of calls with `tokens` of them. */
static double kernel(const struct step *s, const struct wt *w, const float *x, uint64_t tokens,
                     const float *want)
{
    struct tsr_cpu *c = cpu_new(s->isa);
    void           *h = NULL;
    if (!c)
        return 0;
    assert_int_equal(tsr_cpu_weight_load(c, &w->desc, &h, NULL), TSR_OK);
    struct tsr_tensor in = dev(c, x, TSR_F32, tokens, w->desc.cols, 0);
    struct tsr_tensor out = dev(c, NULL, TSR_F32, tokens, w->desc.rows, 0);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_LINEAR,
                             .out = &out,
                             .in = { &in },
                             .weight = h,
                             .act = s->act };
    run_ok(c, &op);
    if (s->act == TSR_ACT_A8) {
        float *got = host_of(c, &out);
        assert_memory_equal(got, want, w->desc.rows * 4);
        free(got);
    }
    double   start = now(), took;
    uint64_t n = 0;
    do {
        run_ok(c, &op);
        n++;
        took = now() - start;
    } while (took < LEAST);
    undev(c, &in);
    undev(c, &out);
    tsr_cpu_weight_free(c, h);
    tsr_cpu_destroy(c);
    return took / (double)n / (double)tokens;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over the rounds of a[i] / b[i]; b NULL: of a. */
static double median(const double *a, const double *b)
{
    double v[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        v[i] = b ? a[i] / b[i] : a[i];
    qsort(v, ROUNDS, sizeof *v, ascending);
    return v[ROUNDS / 2];
}

static void ladder(void **state)
{
    const char *const *args = *state;
    uint64_t           rows = args[0] ? strtoull(args[0], NULL, 10) : 1024;
    uint64_t           cols = args[0] && args[1] ? strtoull(args[1], NULL, 10) : 4096;
    struct wt          w;
    wt_int(&w, rows, cols, 4, 128, TSR_F16, TSR_ZERO_MID);
    float *x = rnd_new(TOKENS * cols, 1), *want = malloc(rows * 4);
    assert_non_null(want);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < STEPS; i++) {
            double start = now();
            if (!steps[i].isa) {
                reference(&w, x, want);
                steps[i].seconds[0][round] = steps[i].seconds[1][round] = now() - start;
                continue;
            }
            steps[i].seconds[0][round] = kernel(&steps[i], &w, x, 1, want);
            steps[i].seconds[1][round] = kernel(&steps[i], &w, x, TOKENS, want);
        }
    (void)printf(
        "%llu x %llu, 4 bits, groups of 128; microseconds of a token, and times as fast as the "
        "reference\n| step | 1 token | | %u tokens | |\n|---|---|---|---|---|\n",
        (unsigned long long)rows, (unsigned long long)cols, TOKENS);
    for (size_t i = 0; i < STEPS; i++) {
        if (steps[i].seconds[0][0] <= 0)
            continue; /* this machine has not got it */
        (void)printf("| %s |", steps[i].name);
        for (int k = 0; k < 2; k++)
            (void)printf(" %.1f | %.1f |", 1e6 * median(steps[i].seconds[k], NULL),
                         median(steps[0].seconds[k], steps[i].seconds[k]));
        (void)printf("\n");
    }
    free(x);
    free(want);
    wt_free(&w);
}

int main(int argc, char **argv)
{
    const char             *args[2] = { argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL };
    void                   *state = args;
    const struct CMUnitTest tests[] = { cmocka_unit_test_prestate(ladder, state) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
