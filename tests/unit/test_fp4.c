/* nvfp4 and mxfp4 against exact arithmetic: the grid of E2M1 by comparing distances, scales by trying every
 * one that the layout has, decoding by the reference decoder; and the search against plain rounding. */
#include "quantizer_fixture.h"

#include "format_ref.h"

#include <math.h>

extern const struct tsr_plugin tsr_builtin_fp4;

#define ROWS 6u
#define COLS 160u
#define N    (ROWS * COLS)

static const double grid[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
static float        w[N], mean[COLS], variance[COLS];

/* Values of positive codes of E4M3 from the definition: 1.mmm * 2^(e-7), below 2^-6 0.mmm * 2^-6. */
static double e4m3(int code)
{
    int e = code >> 3, m = code & 7;
    return e ? ldexp(1.0 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
}

/* One matrix through component 0 (nvfp4) or 1. */
struct run {
    unsigned char codes[ROWS * COLS / 2], meta[ROWS * 16];
    float         dense[N];
    uint64_t      meta_bytes;
};

static void quantize_by(int which, const char *search, const struct tsr_quant_stats *stats,
                        struct run *run)
{
    const struct tsr_component    *c = tsr_builtin_fp4.components[which];
    const struct tsr_quantizer_v1 *q = c->iface;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_host                host = { .struct_size = sizeof host,
                                            .abi_major = TSR_ABI_MAJOR,
                                            .alloc = fixture_alloc,
                                            .release = fixture_release,
                                            .cancelled = fixture_cancelled };
    struct tsr_quant_plan          plan = { .struct_size = sizeof plan };
    struct tsr_matrix m = f32_matrix(w, ROWS, COLS), dst = f32_matrix(run->dense, ROWS, COLS);
    char              text[64];
    void             *self = NULL;
    (void)snprintf(text, sizeof text, "search=%s", search);
    void *options = fixture_options(c, text);
    plan.format.struct_size = sizeof plan.format;
    assert_int_equal(q->create(&host, options, &self, &e.err), TSR_OK);
    assert_int_equal(q->plan(self, &m, &plan, &e.err), TSR_OK);
    assert_int_equal(plan.rows_per_unit, which ? 1 : 0);
    run->meta_bytes = plan.meta_bytes / (which ? 1 : ROWS);
    assert_true(run->meta_bytes <= 16);
    void                *scratch = tsr_new_aligned(1, plan.scratch_bytes);
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .src = &m,
                                 .codes = run->codes,
                                 .meta = run->meta,
                                 .scratch = scratch,
                                 .stats = stats };
    assert_non_null(scratch);
    if (q->quantize(self, &job, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    job.src = NULL;
    job.dst = &dst;
    assert_int_equal(q->dequantize(self, &job, &e.err), TSR_OK);
    for (uint64_t r = 0; r < ROWS; r++) {
        float want[COLS];
        assert_int_equal(tsr_ref_decode_row(&plan.format, COLS, run->codes + r * COLS / 2,
                                            run->meta + r * run->meta_bytes, want),
                         TSR_OK);
        for (uint64_t k = 0; k < COLS; k++)
            assert_true(run->dense[r * COLS + k] == want[k]);
    }
    free(scratch);
    free(options);
    q->destroy(self);
}

static void fill(int kind)
{
    for (uint64_t i = 0; i < N; i++) {
        float x = fixture_noise(i + 1000 * (uint64_t)kind);
        w[i] = (kind == 2 ? 1e-4f : 0.05f) * (kind ? x * x * x : x);
        w[i] *= 1.0f + 0.13f * (float)(i / 32 % 9); /* the largest anywhere below a power of two */
    }
    for (uint64_t k = 0; k < 32; k++)
        w[COLS + k] = 0.0f;
    for (uint64_t k = 0; k < COLS; k++) {
        mean[k] = fixture_noise(k + 5000);
        variance[k] = k % 20 == 0 ? 40.0f : 0.1f;
    }
}

/* sum v (w - w^)^2 of a block under a scale, each weight at the nearest number. */
static double error_of(const float *x, const double *v, int n, double scale)
{
    double sum = 0.0;
    for (int k = 0; k < n; k++) {
        double least = INFINITY, a = fabs((double)x[k]);
        for (int i = 0; i < 8; i++)
            least = fmin(least, fabs(a - grid[i] * scale));
        sum += v[k] * least * least;
    }
    return sum;
}

static double error_in(const float *x, const float *got, const double *v, int n)
{
    double sum = 0.0;
    for (int k = 0; k < n; k++) {
        double d = (double)x[k] - (double)got[k];
        sum += v[k] * d * d;
    }
    return sum;
}

/* The least error over every scale of the layout. */
static double least_of(int which, const float *x, const double *v, double divisor)
{
    double least = INFINITY;
    for (int code = 0; code < (which ? 255 : 127); code++)
        least = fmin(least, error_of(x, v, which ? 32 : 16,
                                     which ? ldexp(1.0, code - 127) : e4m3(code) / divisor));
    return least;
}

static void test_every_scale(void **state)
{
    (void)state;
    double one[32], square[COLS], sums[2][2] = { { 0.0 } };
    for (int i = 0; i < 32; i++)
        one[i] = 1.0;
    for (int kind = 0; kind < 3; kind++)
        for (int which = 0; which < 2; which++) {
            static struct run plain, best, weighted;
            int               n = which ? 32 : 16;
            fill(kind);
            struct tsr_quant_stats stats = {
                .struct_size = sizeof stats, .cols = COLS, .mean = mean, .variance = variance
            };
            for (uint64_t k = 0; k < COLS; k++)
                square[k] = (double)(variance[k] + mean[k] * mean[k]);
            quantize_by(which, "none", NULL, &plain);
            quantize_by(which, "error", NULL, &best);
            quantize_by(which, "inputs", &stats, &weighted);
            float divisor = 1.0f;
            if (!which)
                memcpy(&divisor, best.meta, sizeof divisor);
            for (uint64_t at = 0; at < N; at += (uint64_t)n) {
                const double *v = square + at % COLS;
                double        least = least_of(which, w + at, one, (double)divisor);
                double        got = error_in(w + at, best.dense + at, one, n);
                double        before = error_in(w + at, plain.dense + at, one, n);
                if (!(got <= least * 1.00001 + 1e-16)) /* scales are rounded to F32 */
                    fail_msg("%s block %d: error %g, the least is %g", which ? "mxfp4" : "nvfp4",
                             (int)at / n, got, least);
                assert_true(got <= before * 1.000001);
                assert_true(error_in(w + at, weighted.dense + at, v, n) <=
                            error_in(w + at, plain.dense + at, v, n) * 1.000001);
                sums[which][0] += before;
                sums[which][1] += got;
            }
        }
    assert_true(sums[0][1] < 0.97 * sums[0][0]);
    assert_true(sums[1][1] < sums[1][0]);
}

/* Plain rounding is that of OCP MX 1.0 and of compressed-tensors: the exponent of the largest weight less 2;
 * E4M3(largest of the block / 6 * D), D = 448 * 6 / largest of the tensor. */
static void test_plain(void **state)
{
    (void)state;
    static struct run run;
    fill(1);
    float top = 0.0f;
    for (uint64_t i = 0; i < N; i++)
        top = fmaxf(top, fabsf(w[i]));
    for (int which = 0; which < 2; which++) {
        quantize_by(which, "none", NULL, &run);
        uint64_t n = which ? 32 : 16;
        for (uint64_t at = 0; at < N; at += n) {
            const unsigned char *meta = run.meta + at / COLS * run.meta_bytes + (which ? 0 : 4);
            int                  got = meta[at % COLS / n];
            float                largest = 0.0f, d;
            for (uint64_t k = at; k < at + n; k++)
                largest = fmaxf(largest, fabsf(w[k]));
            if (which) {
                assert_int_equal(got, largest > 0.0f ? ilogb((double)largest) - 2 + 127 : 0);
                continue;
            }
            memcpy(&d, run.meta + at / COLS * run.meta_bytes, sizeof d);
            assert_true(fabs((double)d * (double)top - 2688.0) < 0.001);
            double want = (double)largest / 6.0 * (double)d;
            for (int code = 0; code < 127; code++)
                if (!(fabs(e4m3(got) - want) <= fabs(e4m3(code) - want) + 1e-6 * want))
                    fail_msg("block %d: scale %g for %g, %g is nearer", (int)(at / n), e4m3(got),
                             want, e4m3(code));
        }
    }
}

/* All numbers of both grids round to themselves, and halves to the even code. */
static void test_ties(void **state)
{
    (void)state;
    static struct run  run;
    static const float ties[] = { 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f };
    static const float to[] = { 0.0f, 1.0f, 1.0f, 2.0f, 2.0f, 4.0f, 4.0f };
    memset(w, 0, sizeof w);
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t k = 0; k < COLS; k += 16) {
            w[r * COLS + k] = -6.0f;
            for (uint64_t i = 0; i < 7; i++) {
                w[r * COLS + k + 1 + i] = ties[i];
                w[r * COLS + k + 8 + i] = -ties[i];
            }
        }
    for (int which = 0; which < 2; which++) {
        quantize_by(which, "none", NULL, &run);
        for (uint64_t k = 0; k < N; k += 16) {
            assert_true(run.dense[k] == -6.0f);
            for (uint64_t i = 0; i < 7; i++) {
                assert_true(run.dense[k + 1 + i] == to[i]);
                assert_true(run.dense[k + 8 + i] == -to[i]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_scale),
                                        cmocka_unit_test(test_plain), cmocka_unit_test(test_ties) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
