/* Rows of tessera.int/2 as rtn writes them: against the reference decoder of the format, against a search
 * over all codes, and against K-quants' rule for scales in exact double arithmetic; what is refused. */
#include "quantizer_fixture.h"

#include "base/f16.h"
#include "format_ref.h"

#include <math.h>

extern const struct tsr_plugin tsr_builtin_rtn;
#define PLUGIN (&tsr_builtin_rtn)

#define ROWS 7u
#define MOST 600u

static void fill(float *w, uint64_t n, float scale)
{
    for (uint64_t i = 0; i < n; i++)
        w[i] = scale * (fixture_noise(i) + 0.25f * fixture_noise(i / 40 + 77));
    w[3] = 5.0f * scale;
}

/* The plugin's own decoding is the reference decoder's, row by row. */
static void check_decoder(const struct made *m, uint64_t cols)
{
    float want[MOST];
    for (uint64_t r = 0; r < ROWS; r++) {
        assert_int_equal(tsr_ref_decode_row(&m->plan.format, cols,
                                            m->codes + r * m->plan.code_bytes,
                                            m->meta + r * m->plan.meta_bytes, want),
                         TSR_OK);
        for (uint64_t k = 0; k < cols; k++)
            if (m->dense[r * cols + k] != want[k])
                fail_msg("row %d column %d: %g, by the reference %g", (int)r, (int)k,
                         (double)m->dense[r * cols + k], (double)want[k]);
    }
}

/* The values of all codes of a group, by changing the codes of a copy of the row. */
static void check_nearest(const struct made *m, const float *w, uint64_t cols)
{
    uint32_t bits = m->plan.format.bits;
    float    value[MOST], least[MOST];
    for (uint64_t r = 0; r < ROWS; r++) {
        for (uint64_t k = 0; k < cols; k++)
            least[k] = INFINITY;
        for (unsigned code = 0; code < 1u << bits; code++) {
            unsigned char codes[MOST] = { 0 };
            for (uint64_t b = 0; b < cols * bits; b++)
                codes[b / 8] |= (unsigned char)((code >> b % bits & 1u) << b % 8);
            assert_int_equal(tsr_ref_decode_row(&m->plan.format, cols, codes,
                                                m->meta + r * m->plan.meta_bytes, value),
                             TSR_OK);
            for (uint64_t k = 0; k < cols; k++)
                least[k] = fminf(least[k], fabsf(w[r * cols + k] - value[k]));
        }
        for (uint64_t k = 0; k < cols; k++) { /* two values may be as near but for F32's rounding */
            float off = fabsf(w[r * cols + k] - m->dense[r * cols + k]);
            if (!(off <= least[k] * 1.0001f + 1e-6f))
                fail_msg("row %d column %d: %g off, where a code is %g off", (int)r, (int)k,
                         (double)off, (double)least[k]);
        }
    }
}

static void test_every_code(void **state)
{
    (void)state;
    static const char *const levels[] = { "scale_bits=0,scale=f16", "scale_bits=0,scale=f32",
                                          "scale_bits=4", "scale_bits=6", "scale_bits=8" };
    static const int         groups[] = { 16, 32, 64, 128 };
    static const uint64_t    cols[] = { 600, 256, 33, 8 };
    float                    w[ROWS * MOST];
    for (int bits = 2; bits <= 8; bits += 2)
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
            for (size_t g = 0; g < 4; g++) {
                char text[128];
                (void)snprintf(text, sizeof text, "minimum=true,bits=%d,group=%d,%s", bits,
                               groups[g], levels[l]);
                fill(w, ROWS * cols[g], 0.02f);
                struct tsr_matrix m = f32_matrix(w, ROWS, cols[g]);
                struct made       q = quantize(PLUGIN, text, &m, NULL);
                if (q.status != TSR_OK)
                    fail_msg("%s: %s", text, q.err.text);
                assert_string_equal(q.plan.format.id, TSR_FORMAT_AFFINE);
                check_decoder(&q, cols[g]);
                check_nearest(&q, w, cols[g]);
                made_free(&q);
            }
}

/* The range of a group, 0 always inside. */
static void range_of(const float *w, uint64_t n, double *lo, double *hi)
{
    *lo = *hi = 0.0;
    for (uint64_t k = 0; k < n; k++) {
        *lo = fmin(*lo, (double)w[k]);
        *hi = fmax(*hi, (double)w[k]);
    }
}

static double half(double v)
{
    return (double)tsr_f16_f32(tsr_f32_f16((float)v));
}

/* A record holds the largest scale and minimum over 63 as F16 factors, and the codes nearest to each
 * group's own scale and minimum; so two levels never differ from one by more than half a step of a level. */
static void test_records(void **state)
{
    (void)state;
    enum { COLS = 512 };
    float             w[ROWS * MOST];
    const double      top = 63.0;
    struct tsr_matrix m = f32_matrix(w, ROWS, COLS);
    fill(w, ROWS * COLS, 0.3f);
    struct made q = quantize(PLUGIN, "minimum=true,bits=4,group=32,scale_bits=6", &m, NULL);
    if (q.status != TSR_OK)
        fail_msg("%s", q.err.text);
    assert_int_equal(q.plan.meta_bytes, 2 * 16);
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t i = 0; i < 2; i++) {
            const unsigned char *at = q.meta + r * q.plan.meta_bytes + 16 * i;
            double               scale[8], minus[8], most[2] = { 0.0, 0.0 };
            uint16_t             factor[2];
            for (uint64_t g = 0; g < 8; g++) {
                double lo, hi;
                range_of(w + r * COLS + 256 * i + 32 * g, 32, &lo, &hi);
                scale[g] = (hi - lo) / 15.0;
                minus[g] = -lo;
                most[0] = fmax(most[0], scale[g]);
                most[1] = fmax(most[1], minus[g]);
            }
            memcpy(factor, at, sizeof factor);
            for (int l = 0; l < 2; l++) {
                double d = (double)tsr_f16_f32(factor[l]);
                if (fabs(d - half(most[l] / top)) > d * 0x1p-11)
                    fail_msg("factor %d of row %d is %g, not %g", l, (int)r, d, most[l] / top);
                for (uint64_t g = 0; g < 8; g++) {
                    unsigned code = fixture_code(at + 4 + 6 * l, g, 6);
                    double   v = l ? minus[g] : scale[g];
                    if (fabs(d * code - v) > d * 0.501)
                        fail_msg("row %d group %d level %d: %g for %g", (int)r, (int)g, l, d * code,
                                 v);
                }
            }
        }
    made_free(&q);
}

/* Runs of rows have the bytes of the whole; columns of whole records, too. */
static void test_apart(void **state)
{
    (void)state;
    float             w[ROWS * 512];
    struct tsr_matrix m = f32_matrix(w, ROWS, 512), left = m;
    const char       *text = "minimum=true,bits=3,group=16,scale_bits=4,mse=true";
    fill(w, ROWS * 512, 0.1f);
    struct made all = quantize(PLUGIN, text, &m, NULL);
    struct made runs = quantize_in_runs(PLUGIN, text, &m, NULL, 0, 2, NULL);
    left.cols = 256;
    struct made part = quantize(PLUGIN, text, &left, NULL);
    assert_int_equal(all.status, TSR_OK);
    assert_memory_equal(all.codes, runs.codes, ROWS * all.plan.code_bytes);
    assert_memory_equal(all.meta, runs.meta, ROWS * all.plan.meta_bytes);
    for (uint64_t r = 0; r < ROWS; r++) {
        assert_memory_equal(all.codes + r * all.plan.code_bytes,
                            part.codes + r * part.plan.code_bytes, 96);
        for (uint64_t k = 0; k < 256; k++)
            assert_true(all.dense[r * 512 + k] == part.dense[r * 256 + k]);
    }
    made_free(&all);
    made_free(&runs);
    made_free(&part);
}

static double squared_error(const char *text, const struct tsr_matrix *m)
{
    struct made q = quantize(PLUGIN, text, m, NULL);
    double      sum = 0.0;
    if (q.status != TSR_OK)
        fail_msg("%s: %s", text, q.err.text);
    for (uint64_t i = 0; i < m->rows * m->cols; i++) {
        double d = (double)q.dense[i] - (double)((const float *)m->data)[i];
        sum += d * d;
    }
    made_free(&q);
    return sum;
}

/* A minimum that need not be a whole number of steps costs nothing: the error falls. */
static void test_better_than_zero_points(void **state)
{
    (void)state;
    float             w[ROWS * 512];
    struct tsr_matrix m = f32_matrix(w, ROWS, 512);
    fill(w, ROWS * 512, 0.1f);
    double points = squared_error("bits=3,group=32,scale=f32", &m);
    double minimums = squared_error("bits=3,group=32,minimum=true,scale=f32", &m);
    double searched = squared_error("bits=3,group=32,minimum=true,scale=f32,mse=true", &m);
    if (!(minimums < points && searched < minimums))
        fail_msg("squared errors %g, %g, %g", points, minimums, searched);
}

/* sum v (w - w^)^2 of a group of 32. */
static double weighted_error(const struct made *q, const float *w, const double *v, uint64_t at,
                             uint64_t cols)
{
    double sum = 0.0;
    for (uint64_t k = at; k < at + 32; k++) {
        double d = (double)q->dense[k] - (double)w[k];
        sum += v[k % cols] * d * d;
    }
    return sum;
}

/* Ranges searched for the inputs have at most the weighted error of the others, in every group whose scale the
 * search has as it is stored, and less in all; with columns alike they are searched for the squares. */
static void test_weighted(void **state)
{
    (void)state;
    enum { COLS = 256, GROUPS = ROWS * COLS / 32 };
    static const struct {
        const char *text;
        bool        each;
    } schemes[] = { { "bits=3,group=32", true },
                    { "bits=2,group=32,symmetric=true,scale=f32", true },
                    { "bits=4,group=32,range=awq", true },
                    { "bits=3,group=32,minimum=true", true },
                    { "bits=2,group=32,minimum=true,scale_bits=6", false } };
    float             w[ROWS * COLS], mean[COLS], variance[COLS];
    double            v[COLS];
    struct tsr_matrix m = f32_matrix(w, ROWS, COLS);
    fill(w, ROWS * COLS, 0.1f);
    for (uint64_t k = 0; k < COLS; k++) {
        mean[k] = fixture_noise(k + 5000);
        variance[k] = k % 11 == 0 ? 40.0f : k % 7 == 0 ? 0.0f : 0.1f;
        v[k] = (double)mean[k] * (double)mean[k] + (double)variance[k];
    }
    const struct tsr_quant_stats stats = {
        .struct_size = sizeof stats, .cols = COLS, .mean = mean, .variance = variance
    };
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        static const char *const how[] = { "", ",mse=true", ",weighted=true" };
        struct made              q[3];
        double                   sum[3] = { 0.0 };
        for (int h = 0; h < 3; h++) {
            char text[128];
            (void)snprintf(text, sizeof text, "%s%s", schemes[i].text, how[h]);
            q[h] = quantize(PLUGIN, text, &m, &stats);
            if (q[h].status != TSR_OK)
                fail_msg("%s: %s", text, q[h].err.text);
        }
        assert_int_equal(q[1].plan.need, 0);
        assert_int_equal(q[2].plan.need, TSR_NEED_MEAN | TSR_NEED_VARIANCE);
        for (uint64_t g = 0; g < GROUPS; g++) {
            double e[3];
            for (int h = 0; h < 3; h++)
                sum[h] += e[h] = weighted_error(&q[h], w, v, 32 * g, COLS);
            if (schemes[i].each && !(e[2] <= fmin(e[0], e[1]) * (1 + 1e-5)))
                fail_msg("%s, group %d: %g, unweighted %g and %g", schemes[i].text, (int)g, e[2],
                         e[0], e[1]);
        }
        if (!(sum[2] < sum[0] && sum[2] < sum[1]))
            fail_msg("%s: %g, unweighted %g and %g", schemes[i].text, sum[2], sum[0], sum[1]);
        for (int h = 0; h < 3; h++)
            made_free(&q[h]);
    }
    struct made q = quantize(PLUGIN, "weighted=true", &m, NULL);
    assert_int_equal(q.status, TSR_E_INVAL);
    made_free(&q);
    variance[9] = NAN;
    q = quantize(PLUGIN, "weighted=true", &m, &stats);
    assert_int_equal(q.status, TSR_E_NUMERIC);
    assert_non_null(strstr(q.err.text, "input column 9 is nan"));
    made_free(&q);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        float       scale;
        tsr_status  status;
        const char *says;
    } cases[] = {
        { "minimum=true,group=48", 1.0f, TSR_E_CONFIG, "group: with minimum: true 16, 32" },
        { "minimum=true,group=-1,scale_bits=6", 1.0f, TSR_E_CONFIG, "share a scale, not -1" },
        { "minimum=true,scale_bits=5", 1.0f, TSR_E_CONFIG, "scale_bits: 5 is not 0, 4, 6 or 8" },
        { "scale_bits=6", 1.0f, TSR_E_CONFIG, "use minimum: true too" },
        { "minimum=true,symmetric=true", 1.0f, TSR_E_CONFIG, "leave symmetric" },
        { "minimum=true,rounding=stochastic", 1.0f, TSR_E_CONFIG, "leave symmetric" },
        { "minimum=true", 1e7f, TSR_E_NUMERIC, "row 0 group 0: the scale is not a normal F16" },
        { "minimum=true,scale_bits=6", 1e9f, TSR_E_NUMERIC, "row 0 group 0: F16 has no factor" },
        { "minimum=true,scale_bits=6", 1e-9f, TSR_E_NUMERIC, "row 0 group 0: F16 has no factor" },
    };
    float w[ROWS * 256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill(w, ROWS * 256, cases[i].scale);
        struct tsr_matrix m = f32_matrix(w, ROWS, 256);
        struct made       q = quantize(PLUGIN, cases[i].text, &m, NULL);
        assert_int_equal(q.status, cases[i].status);
        if (!strstr(q.err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].text, q.err.text);
        made_free(&q);
    }
}

/* Zeros, and a group of one value, decode to what they are. */
static void test_flat(void **state)
{
    (void)state;
    static const char *const texts[] = { "minimum=true,group=32",
                                         "minimum=true,group=32,scale_bits=6" };
    float                    w[ROWS * 256] = { 0 };
    for (uint64_t k = 32; k < 64; k++)
        w[k] = -0.5f;
    struct tsr_matrix m = f32_matrix(w, ROWS, 256);
    for (size_t i = 0; i < 2; i++) {
        struct made q = quantize(PLUGIN, texts[i], &m, NULL);
        if (q.status != TSR_OK)
            fail_msg("%s: %s", texts[i], q.err.text);
        for (uint64_t k = 0; k < ROWS * 256; k++)
            if (fabsf(q.dense[k] - w[k]) > 0x1p-11f)
                fail_msg("%s: %g becomes %g", texts[i], (double)w[k], (double)q.dense[k]);
        made_free(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code), cmocka_unit_test(test_records),
        cmocka_unit_test(test_apart),      cmocka_unit_test(test_better_than_zero_points),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_flat),
        cmocka_unit_test(test_weighted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
