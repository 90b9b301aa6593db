/* test_cpu_cache.c - what KV_STORE writes: on every instruction set the bytes of the reference, errors within half a step of
 * each type, and heads that F16 or a scale cannot hold. */
#include "cpu_fixture.h"
#include "reference.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <stdio.h>

static const uint32_t types[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4 };
#define TYPES (sizeof types / sizeof *types)

/* Stores n heads of dim as two to a row, compares with the reference; heads must be even. */
static void same_as_reference(const float *x, uint64_t heads, uint32_t dim)
{
    for (size_t t = 0; t < TYPES; t++) {
        uint64_t bytes = tsr_kv_head_bytes(types[t], dim), rows = heads / 2;
        uint64_t cols = 2 * tsr_kv_head_cols(types[t], dim);
        uint8_t *want = malloc(heads * bytes);
        assert_non_null(want);
        for (uint64_t h = 0; h < heads; h++)
            tsr_ref_head_store(want + h * bytes, types[t], x + h * dim, dim);
        for (int isa = 0; isa < ISAS; isa++) {
            struct tsr_cpu *c = cpu_new(test_isas[isa]);
            if (!c)
                continue;
            struct tsr_tensor cache = dev(c, NULL, types[t], rows, cols, 4),
                              in = dev(c, x, TSR_F32, rows, 2 * (uint64_t)dim, 0);
            uint32_t *at = malloc(rows * sizeof *at);
            assert_non_null(at);
            for (uint64_t r = 0; r < rows; r++)
                at[r] = (uint32_t)r;
            struct tsr_tensor to = dev(c, at, TSR_U32, 1, rows, 0);
            struct tsr_op     op = { .struct_size = sizeof op,
                                     .kind = TSR_OP_KV_STORE,
                                     .out = &cache,
                                     .in = { &in, &to },
                                     .kv_heads = 2,
                                     .head_dim = dim };
            run_ok(c, &op);
            uint8_t *got = (uint8_t *)host_of(c, &cache);
            for (uint64_t i = 0; i < heads * bytes; i++)
                if (got[i] != want[i])
                    fail_msg("dtype %u, heads of %u on %s: byte %llu of head %llu is %u, wanted %u",
                             types[t], dim, test_isas[isa], (unsigned long long)(i % bytes),
                             (unsigned long long)(i / bytes), got[i], want[i]);
            free(got);
            free(at);
            undev(c, &cache);
            undev(c, &in);
            undev(c, &to);
            tsr_cpu_destroy(c);
        }
        free(want);
    }
}

static void bytes_of_every_type(void **state)
{
    static const uint32_t dims[] = { 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 80, 96, 128, 257 };
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        float *x = rnd_new(6 * dims[i], 3.0f);
        for (uint32_t d = 0; d < dims[i]; d++) {
            x[d] *= 1e-30f;               /* small for I8 and E4M3, nothing for F16 */
            x[dims[i] + d] = 0;           /* nothing */
            x[2 * dims[i] + d] += 40;     /* far from zero */
            x[3 * dims[i] + d] *= 1e-42f; /* too small to divide by */
            x[4 * dims[i] + d] *= 1e-3f;
        }
        same_as_reference(x, 6, dims[i]);
        free(x);
    }
}

/* Every E4M3 and every place halfway between two of them, and next to it: with 448 in the head the scale is 1. */
static void e4m3_rounds_to_the_nearest(void **state)
{
    enum { N = 127 };
    double value[N];
    float *x = calloc(8 * N, sizeof *x);
    (void)state;
    assert_non_null(x);
    for (int i = 0; i < N; i++) {
        double v = i < 8 ? i / 512.0 : ldexp(8 + i % 8, i / 8 - 10);
        value[i] = v;
    }
    assert_true(value[N - 1] == 448);
    for (int i = 0; i < N; i++) {
        double half = i + 1 < N ? (value[i] + value[i + 1]) / 2 : value[i];
        x[i] = (float)value[i];
        x[N + i] = (float)-value[i];
        x[2 * N + i] = (float)half;
        x[3 * N + i] = nextafterf((float)half, 0);
        x[4 * N + i] = i + 1 < N ? nextafterf((float)half, 500) : 448;
        x[5 * N + i] = (float)-half;
    }
    for (int r = 0; r < 6; r++)
        x[r * N + N - 1] = r % 2 ? -448 : 448;
    same_as_reference(x, 6, N);
    uint8_t head[4 + N];
    tsr_ref_head_store(head, TSR_E4M3, x + 2 * N, N);
    for (int i = 0; i + 1 < N; i++) /* ties to even */
        assert_int_equal(head[4 + i], i % 2 ? i + 1 : i);
    free(x);
}

/* What comes back is within half a step of what went in. */
static void errors_are_half_a_step(void **state)
{
    enum { DIM = 96, HEADS = 40 };
    uint8_t head[4 * DIM];
    double  back[DIM];
    float  *x = rnd_new(DIM * HEADS, 2.0f);
    (void)state;
    for (uint32_t h = 0; h < HEADS; h++)
        for (size_t t = 1; t < TYPES; t++) {
            const float *from = x + h * DIM;
            double       amax = 0;
            tsr_ref_head_store(head, types[t], from, DIM);
            tsr_ref_head_load(back, types[t], head, DIM);
            for (uint32_t d = 0; d < DIM; d++)
                amax = fmax(amax, fabs((double)from[d]));
            for (uint32_t d = 0; d < DIM; d++) {
                double v = (double)from[d], lo = 1e9, hi = -1e9, step;
                for (uint32_t g = d / 32 * 32; g < d / 32 * 32 + 32; g++) {
                    lo = fmin(lo, (double)from[g]);
                    hi = fmax(hi, (double)from[g]);
                }
                if (types[t] == TSR_F16)
                    step = fmax(ldexp(fabs(v), -10), ldexp(1, -24));
                else if (types[t] == TSR_I8)
                    step = amax / 127;
                else if (types[t] == TSR_E4M3) /* 3 bits after the first */
                    step = fmax(ldexp(fabs(v), -3), amax / 448 * ldexp(1, -9));
                else /* scale and minimum are rounded to F16: 15 steps of 2^-11 of the scale, and the minimum's */
                    step = (hi - lo) / 15 * (1 + 2 * 15 * ldexp(1, -11)) + ldexp(fabs(lo), -10);
                if (!(fabs(back[d] - v) <= step / 2 * (1 + 1e-6)))
                    fail_msg("dtype %u: %.9g came back as %.9g, wanted within %.3g", types[t], v,
                             back[d], step / 2);
            }
        }
    free(x);
}

/* A head or group that is not finite is NaN as a whole, and its neighbours are not. */
static void not_finite_is_nan(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY, 3e38f };
    enum { DIM = 64 };
    (void)state;
    for (int isa = 0; isa < ISAS; isa++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
            for (size_t t = 2; t < TYPES; t++) {
                struct tsr_cpu *c = cpu_new(test_isas[isa]);
                if (!c)
                    continue;
                float            *x = rnd_new(DIM, 1.0f);
                uint32_t          zero = 0;
                double            back[DIM];
                struct tsr_tensor cache =
                    dev(c, NULL, types[t], 1, tsr_kv_head_cols(types[t], DIM), 0);
                x[5] = bad[b];
                x[6] = -bad[b];
                struct tsr_tensor in = dev(c, x, TSR_F32, 1, DIM, 0),
                                  to = dev(c, &zero, TSR_U32, 1, 1, 0);
                struct tsr_op op = { .struct_size = sizeof op,
                                     .kind = TSR_OP_KV_STORE,
                                     .out = &cache,
                                     .in = { &in, &to },
                                     .kv_heads = 1,
                                     .head_dim = DIM };
                run_ok(c, &op);
                uint8_t *got = (uint8_t *)host_of(c, &cache);
                tsr_ref_head_load(back, types[t], got, DIM);
                for (int d = 0; d < DIM; d++) {
                    bool lost = types[t] == TSR_Q4 ? d < 32 : !isfinite(bad[b]);
                    assert_true(!isfinite(back[d]) == lost);
                }
                free(got);
                free(x);
                undev(c, &cache);
                undev(c, &in);
                undev(c, &to);
                tsr_cpu_destroy(c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_every_type),
        cmocka_unit_test(e4m3_rounds_to_the_nearest),
        cmocka_unit_test(errors_are_half_a_step),
        cmocka_unit_test(not_finite_is_nan),
    };
    return cmocka_run_group_tests_name("cpu cache", tests, NULL, NULL);
}
