/* hadamard.c - what a transform of one token takes next to the product that follows it: HADAMARD of the input of down_proj, and
 * LINEAR of 4 bits by 4096 rows.  One thread, processor time; the two take turns, and a share is the median of shares of a
 * round.  The transform is held against the reference first.   hadamard [ISA] */
#include "../unit/cpu_fixture.h"

#include <stdio.h>
#include <time.h>

#include "base/hadamard.h"
#include "reference.h"

#include <math.h>

#define ROUNDS 7
#define ROWS   4096u
#define LEAST  0.03 /* seconds of a timing */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds_of(struct tsr_cpu *c, const struct tsr_op *op)
{
    double   start = now(), took;
    uint64_t n = 0;
    do {
        run_ok(c, op);
        n++;
        took = now() - start;
    } while (took < LEAST);
    return took / (double)n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, ascending);
    return v[ROUNDS / 2];
}

/* The first run of out, which is that of x. */
static void check(struct tsr_cpu *c, const struct tsr_tensor *out, const float *x, uint64_t run,
                  const float *sign, uint64_t base)
{
    double *want = malloc(run * sizeof *want), *size = malloc(run * sizeof *size);
    float  *got = host_of(c, out);
    assert_true(want && size);
    tsr_ref_hadamard(want, size, x, run, base > 1 ? sign : NULL, base);
    for (uint64_t i = 0; i < run; i++)
        assert_true(fabs((double)got[i] - want[i]) <= 1e-5 * size[i]);
    free(want);
    free(size);
    free(got);
}

static void one(struct tsr_cpu *c, uint64_t cols, uint64_t run)
{
    struct tsr_hadamard h;
    struct wt           w;
    void               *weight = NULL;
    double              turn[ROUNDS], product[ROUNDS], share[ROUNDS];
    assert_int_equal(tsr_hadamard_create(&h, run, NULL), TSR_OK);
    float *x = rnd_new(cols, 1), *sign = rnd_new(h.base * h.base, 1);
    for (uint64_t i = 0; h.base > 1 && i < h.base * h.base; i++)
        sign[i] = h.sign[i];
    wt_int(&w, ROWS, cols, 4, 128, TSR_F16, TSR_ZERO_MID);
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &weight, NULL), TSR_OK);
    struct tsr_tensor in = dev(c, x, TSR_F32, 1, cols, 0), out = dev(c, NULL, TSR_F32, 1, cols, 0),
                      y = dev(c, NULL, TSR_F32, 1, ROWS, 0),
                      base = dev(c, sign, TSR_F32, h.base, h.base, 0);
    struct tsr_op hadamard = { .struct_size = sizeof hadamard,
                               .kind = TSR_OP_HADAMARD,
                               .out = &out,
                               .in = { &in, h.base > 1 ? &base : NULL },
                               .head_dim = (uint32_t)run };
    struct tsr_op linear = { .struct_size = sizeof linear,
                             .kind = TSR_OP_LINEAR,
                             .out = &y,
                             .in = { &in },
                             .weight = weight,
                             .act = TSR_ACT_A8 };
    run_ok(c, &hadamard);
    check(c, &out, x, run, sign, h.base);
    for (int i = 0; i < ROUNDS; i++) {
        turn[i] = seconds_of(c, &hadamard);
        product[i] = seconds_of(c, &linear);
        share[i] = turn[i] / product[i];
    }
    (void)printf("| %llu | %llu = %llu x %llu | %.2f | %.1f | %.2f %% |\n",
                 (unsigned long long)cols, (unsigned long long)run, (unsigned long long)h.base,
                 (unsigned long long)(run / h.base), 1e6 * median(turn), 1e6 * median(product),
                 100 * median(share));
    undev(c, &in);
    undev(c, &out);
    undev(c, &y);
    undev(c, &base);
    tsr_cpu_weight_free(c, weight);
    wt_free(&w);
    tsr_hadamard_free(&h);
    free(x);
    free(sign);
}

static void hadamard(void **state)
{
    const char     *isa = *state;
    struct tsr_cpu *c = cpu_new(isa);
    assert_non_null(c);
    (void)printf("%s, one token; microseconds, and the share of LINEAR [%u rows], 4 bits, a8\n"
                 "| columns | run | HADAMARD | LINEAR | share |\n|---|---|---|---|---|\n",
                 isa, ROWS);
    one(c, 4096, 512);
    one(c, 11008, 32);
    one(c, 14336, 1792);
    one(c, 28672, 3584);
    tsr_cpu_destroy(c);
}

int main(int argc, char **argv)
{
    void                   *state = argc > 1 ? argv[1] : (char[]){ "avx512" };
    const struct CMUnitTest tests[] = { cmocka_unit_test_prestate(hadamard, state) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
