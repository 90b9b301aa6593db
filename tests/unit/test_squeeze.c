/* squeeze against recorded optima, exhaustive search and a plain dynamic program in long double;
 * its bytes, its outliers, and what it refuses. */
#include "quantizer_fixture.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/json.h"

#include <math.h>

extern const struct tsr_plugin tsr_builtin_squeeze;
#define PLUGIN (&tsr_builtin_squeeze)

static struct tsr_quant_stats given(const float *s, uint64_t cols)
{
    return (struct tsr_quant_stats){ .struct_size = sizeof(struct tsr_quant_stats),
                                     .cols = cols,
                                     .sensitivity = s };
}

/* The sample weights of the recorded objective: 0 for a zero, ones if nothing else is left. */
static void sample_weights(double *s, const float *w, const float *sensitivity, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += s[i] = w[i] == 0.0f ? 0.0 : (double)sensitivity[i];
    for (uint64_t i = 0; i < n && sum == 0.0; i++)
        s[i] = 1.0;
}

static double objective(const double *s, const float *w, const float *decoded, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += s[i] * ((double)w[i] - (double)decoded[i]) * ((double)w[i] - (double)decoded[i]);
    return sum;
}

/* ---- recorded optima ------------------------------------------------------- */

static float *floats(const struct tsr_safetensors *st, const char *name, uint64_t *rows,
                     uint64_t *cols)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, name);
    if (!t)
        fail_msg("no tensor %s", name);
    *rows = t->shape[0];
    *cols = t->shape[1];
    void  *raw = tsr_new(1, t->end - t->begin);
    float *wide = tsr_new(*rows * *cols, sizeof *wide);
    assert_true(raw && wide);
    if (tsr_safetensors_read(st, t, raw, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_widen(wide, raw, t->dtype, *rows * *cols);
    free(raw);
    return wide;
}

static void check_case(const struct tsr_safetensors *st, const json_t *c, const char *scale,
                       double excess)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    uint64_t    rows, cols, bits = json_integer_value(json_object_get(c, "k")) == 16 ? 4 : 3;
    float      *w = floats(st, json_string_value(json_object_get(c, "W")), &rows, &cols);
    float      *s = floats(st, json_string_value(json_object_get(c, "sensitivity")), &rows, &cols);
    double     *weight = tsr_new(cols, sizeof *weight);
    char        text[64];
    size_t      i;
    json_t     *row;
    (void)snprintf(text, sizeof text, "bits=%d,scale=%s", (int)bits, scale);
    struct tsr_matrix      m = f32_matrix(w, rows, cols);
    struct tsr_quant_stats stats = given(s, cols);
    struct made            q = quantize(PLUGIN, text, &m, &stats);
    if (q.status != TSR_OK)
        fail_msg("%s: %s", name, q.err.text);
    assert_non_null(weight);
    json_array_foreach (json_object_get(c, "rows"), i, row) {
        double optimal = json_real_value(json_object_get(row, "optimal"));
        double theirs = json_real_value(json_object_get(row, "reference_kmeans"));
        sample_weights(weight, w + i * cols, s + i * cols, cols);
        double got = objective(weight, w + i * cols, q.dense + i * cols, cols);
        if (!(got <= optimal * (1.0 + excess)) || !(got >= optimal * (1.0 - 1e-9)) ||
            !(got <= theirs * (1.0 + excess)))
            fail_msg("%s row %d, scale %s: %.9g, the optimum is %.9g, the reference found %.9g",
                     name, (int)i, scale, got, optimal, theirs);
    }
    assert_int_equal(i, rows);
    made_free(&q);
    free(weight);
    free(w);
    free(s);
}

static void test_recorded(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    json_t                *index, *c;
    size_t                 i;
    if (tsr_safetensors_open(&st, TEST_GOLDEN "/quant/nuq.safetensors", &e.err) != TSR_OK ||
        tsr_json_load(&index, TEST_GOLDEN "/quant/nuq.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    json_array_foreach (json_object_get(index, "cases"), i, c) {
        check_case(&st, c, "f32", 1e-5); /* what rounding the entries to F32 costs */
        check_case(&st, c, "f16", 1e-3); /* and to F16 */
    }
    assert_int_equal(i, 6);
    json_decref(index);
    tsr_safetensors_close(&st);
}

/* ---- other ways to the optimum --------------------------------------------- */

/* The smallest objective over all ways to cut sorted points into at most k runs, in long double
 * and without any of the plugin's ideas; O(k n^2). */
static long double plain_optimum(const double *x, const double *s, int n, int k)
{
    long double *d = tsr_new((uint64_t)n + 1, sizeof *d), *next;
    next = tsr_new((uint64_t)n + 1, sizeof *next);
    assert_true(d && next);
    for (int i = 0; i <= n; i++)
        d[i] = i ? INFINITY : 0.0L;
    for (int j = 0; j < k; j++) {
        next[0] = 0.0L;
        for (int i = 1; i <= n; i++) {
            long double s0 = 0.0L, s1 = 0.0L, best = d[i];
            for (int m = i - 1; m >= 0; m--) {
                s0 += (long double)s[m];
                s1 += (long double)s[m] * ((long double)x[m] - (long double)x[i - 1]);
                long double c = s0 > 0.0L ? s1 / s0 : 0.0L, cost = 0.0L;
                for (int t = m; t < i; t++) {
                    long double e = (long double)x[t] - (long double)x[i - 1] - c;
                    cost += (long double)s[t] * e * e;
                }
                best = d[m] + cost < best ? d[m] + cost : best;
            }
            next[i] = best;
        }
        memcpy(d, next, ((uint64_t)n + 1) * sizeof *d);
    }
    long double best = d[n];
    free(d);
    free(next);
    return best;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

static void check_optimum(const float *w, const float *s, int n, int bits)
{
    char                   text[64];
    double                 pairs[2 * 128], x[128], sorted[128], weight[128];
    struct tsr_matrix      m = f32_matrix(w, 1, (uint64_t)n);
    struct tsr_quant_stats stats = given(s, (uint64_t)n);
    (void)snprintf(text, sizeof text, "bits=%d,scale=f32", bits);
    struct made q = quantize(PLUGIN, text, &m, &stats);
    if (q.status != TSR_OK)
        fail_msg("%s", q.err.text);
    sample_weights(weight, w, s, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        pairs[2 * i] = (double)w[i];
        pairs[2 * i + 1] = weight[i];
    }
    qsort(pairs, (size_t)n, 2 * sizeof *pairs, by_value);
    for (int i = 0; i < n; i++) {
        x[i] = pairs[2 * i];
        sorted[i] = pairs[2 * i + 1];
    }
    double best = (double)plain_optimum(x, sorted, n, 1 << bits), rounding = 0.0;
    double got = objective(weight, w, q.dense, (uint64_t)n);
    /* an entry is off by 2^-24 of itself; the mean is a minimum, so only the square counts */
    for (int i = 0; i < n; i++)
        rounding += weight[i] * ldexp((double)q.dense[i] * (double)q.dense[i], -48);
    if (!(got <= best * (1.0 + 1e-9) + rounding) || !(got >= best * (1.0 - 1e-9)))
        fail_msg("%d points, %d bits: %.12g, the optimum is %.12g", n, bits, got, best);
    made_free(&q);
}

static void test_optimum(void **state)
{
    (void)state;
    float w[128], s[128];
    for (int t = 0; t < 160; t++) {
        int n = t < 120 ? 1 + t % 40 : 90 + t % 30;
        for (int i = 0; i < n; i++) {
            float u = fixture_noise((uint64_t)(t * 256 + i));
            w[i] = u * u * u;
            s[i] = fabsf(fixture_noise((uint64_t)(t * 256 + i) + 128));
            if (t % 4 == 1) /* equal values, and zeros, which have no weight */
                w[i] = rintf(w[i] * 20.0f) / 16.0f;
            if (t % 4 == 2) { /* outliers of a million times the rest */
                w[i] = i % 17 == 3 ? w[i] * 1e6f : w[i];
                s[i] = i % 3 ? s[i] : 0.0f;
            }
            if (t % 4 == 3) { /* far from zero; weights of very different size */
                w[i] = 100.0f + w[i];
                s[i] = ldexpf(s[i], -(i % 24));
            }
        }
        check_optimum(w, s, n, 2 + t % 3);
    }
}

/* All assignments of 9 points to 4 entries, not only runs of sorted points. */
static void test_exhaustive(void **state)
{
    (void)state;
    enum { N = 9 };
    for (uint64_t t = 0; t < 6; t++) {
        float  w[N], s[N];
        double weight[N], best = INFINITY;
        for (uint64_t i = 0; i < N; i++) {
            w[i] = fixture_noise(1000 + t * N + i);
            s[i] = fabsf(fixture_noise(2000 + t * N + i));
        }
        sample_weights(weight, w, s, N);
        for (unsigned a = 0; a < 1u << (2 * N); a++) {
            double s0[4] = { 0 }, s1[4] = { 0 }, s2[4] = { 0 }, sum = 0.0;
            for (int i = 0; i < N; i++) {
                unsigned c = a >> (2 * i) & 3;
                s0[c] += weight[i];
                s1[c] += weight[i] * (double)w[i];
                s2[c] += weight[i] * (double)w[i] * (double)w[i];
            }
            for (int c = 0; c < 4; c++)
                sum += s0[c] > 0.0 ? s2[c] - s1[c] * s1[c] / s0[c] : 0.0;
            best = sum < best ? sum : best;
        }
        struct tsr_matrix      m = f32_matrix(w, 1, N);
        struct tsr_quant_stats stats = given(s, N);
        struct made            q = quantize(PLUGIN, "bits=2,scale=f32", &m, &stats);
        assert_int_equal(q.status, TSR_OK);
        double got = objective(weight, w, q.dense, N);
        assert_true(got >= best - 1e-12 && got <= best + 1e-12); /* rounding of the sums above */
        made_free(&q);
    }
}

/* ---- bytes ------------------------------------------------------------------ */

static float entry(const unsigned char *meta, uint64_t i, uint32_t dtype)
{
    float    f;
    uint16_t h;
    if (dtype == TSR_F32) {
        memcpy(&f, meta + 4 * i, 4);
        return f;
    }
    memcpy(&h, meta + 2 * i, 2);
    return tsr_f16_f32(h);
}

/* The layout by the words of format.h; returns the row's outliers as a mask of columns. */
static uint64_t check_row(const struct made *q, const float *w, uint64_t row, uint64_t cols)
{
    const struct tsr_format *f = &q->plan.format;
    uint64_t                 k = UINT64_C(1) << f->bits, size = f->scale_dtype == TSR_F32 ? 4 : 2;
    uint64_t values = (k + f->outliers) * size, columns = (values + 3) / 4 * 4, mask = 0;
    const unsigned char *meta = q->meta + row * q->plan.meta_bytes;
    const unsigned char *codes = q->codes + row * q->plan.code_bytes;
    const float         *dense = q->dense + row * cols;
    assert_int_equal(q->plan.meta_bytes, columns + 4 * f->outliers);
    assert_int_equal(q->plan.code_bytes, (cols * f->bits + 7) / 8);
    for (uint64_t i = values; i < columns; i++)
        assert_int_equal(meta[i], 0);
    for (uint64_t b = cols * f->bits; b < 8 * q->plan.code_bytes; b++)
        assert_int_equal(codes[b / 8] >> (b % 8) & 1, 0);
    for (uint64_t i = 1; i < k; i++)
        assert_true(entry(meta, i - 1, f->scale_dtype) <= entry(meta, i, f->scale_dtype));
    uint32_t last = 0;
    for (uint64_t i = 0; i < f->outliers; i++) {
        uint32_t c;
        memcpy(&c, meta + columns + 4 * i, 4);
        assert_true(c < cols && (i == 0 || c > last));
        last = c;
        mask |= UINT64_C(1) << c;
        assert_true(dense[c] == entry(meta, k + i, f->scale_dtype));
        float want = f->scale_dtype == TSR_F32 ? w[c] : tsr_f16_f32(tsr_f32_f16(w[c]));
        assert_true(dense[c] == want);
    }
    for (uint64_t c = 0; c < cols; c++) {
        float e = entry(meta, fixture_code(codes, c, f->bits), f->scale_dtype);
        if (mask >> c & 1)
            continue;
        assert_true(dense[c] == e);
        for (uint64_t i = 0; i < k; i++)
            assert_true(fabs((double)w[c] - (double)e) <=
                        fabs((double)w[c] - (double)entry(meta, i, f->scale_dtype)));
    }
    return mask;
}

static void test_layout(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    static const uint64_t widths[] = { 1, 2, 7, 33, 63 };
    float                 w[ROWS * 63], s[ROWS * 63];
    for (uint64_t i = 0; i < ROWS * 63; i++) {
        w[i] = fixture_noise(i);
        s[i] = fabsf(fixture_noise(i + 999));
    }
    for (unsigned t = 0; t < 5 * 7 * 4; t++) {
        uint64_t               cols = widths[t % 5], bits = 2 + t / 5 % 7, out = t / 35 % 2;
        const char            *scale = t / 70 ? "f16" : "f32";
        struct tsr_matrix      m = f32_matrix(w, ROWS, cols);
        struct tsr_quant_stats stats = given(s, cols);
        char                   text[80];
        (void)snprintf(text, sizeof text, "bits=%d,scale=%s,outliers=%s", (int)bits, scale,
                       out ? "0.1" : "0");
        struct made whole = quantize(PLUGIN, text, &m, &stats);
        struct made parts = quantize_in_runs(PLUGIN, text, &m, &stats, 0, 2, NULL);
        assert_int_equal(whole.status, TSR_OK);
        assert_int_equal(parts.status, TSR_OK);
        assert_int_equal(whole.plan.format.outliers, out ? (cols + 5) / 10 : 0);
        assert_memory_equal(whole.codes, parts.codes, ROWS * whole.plan.code_bytes);
        assert_memory_equal(whole.meta, parts.meta, ROWS * whole.plan.meta_bytes);
        for (uint64_t r = 0; r < ROWS; r++)
            (void)check_row(&whole, w + r * cols, r, cols);
        made_free(&whole);
        made_free(&parts);
    }
}

/* Statistics of the inputs mean the same as the sensitivities that they stand for, and a value
 * per weight comes first. */
static void test_sensitivity(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 50 };
    float w[ROWS * COLS], s[ROWS * COLS], ones[ROWS * COLS], mean[COLS], variance[COLS];
    for (uint64_t i = 0; i < ROWS * COLS; i++) {
        uint64_t c = i % COLS;
        w[i] = fixture_noise(i);
        mean[c] = rintf(4.0f * fixture_noise(c + 500)); /* exact squares and sums */
        variance[c] = rintf(16.0f * fabsf(fixture_noise(c + 600)));
        s[i] = mean[c] * mean[c] + variance[c];
        ones[i] = 1.0f;
    }
    struct tsr_matrix      m = f32_matrix(w, ROWS, COLS);
    struct tsr_quant_stats weight = given(s, COLS), inputs = weight, both, flat = given(ones, COLS);
    inputs.sensitivity = NULL;
    inputs.mean = mean;
    inputs.variance = variance;
    both = inputs;
    both.sensitivity = ones;
    struct {
        const char                   *text;
        const struct tsr_quant_stats *stats;
        uint64_t                      need;
    } pairs[][2] = {
        { { "sensitivity=given", &weight, TSR_NEED_SENSITIVITY },
          { "sensitivity=inputs", &both, TSR_NEED_MEAN | TSR_NEED_VARIANCE } },
        { { "sensitivity=auto", &inputs,
            TSR_NEED_IF_THERE(TSR_NEED_SENSITIVITY | TSR_NEED_MEAN | TSR_NEED_VARIANCE) },
          { "sensitivity=given", &weight, TSR_NEED_SENSITIVITY } },
        { { "sensitivity=none", NULL, 0 },
          { "bits=4", &both,
            TSR_NEED_IF_THERE(TSR_NEED_SENSITIVITY | TSR_NEED_MEAN | TSR_NEED_VARIANCE) } },
        { { "sensitivity=none", &weight, 0 },
          { "sensitivity=given", &flat, TSR_NEED_SENSITIVITY } },
    };
    for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct made q[2];
        for (int k = 0; k < 2; k++) {
            q[k] = quantize(PLUGIN, pairs[i][k].text, &m, pairs[i][k].stats);
            assert_int_equal(q[k].status, TSR_OK);
            assert_int_equal(q[k].plan.need, pairs[i][k].need);
        }
        assert_memory_equal(q[0].codes, q[1].codes, ROWS * q[0].plan.code_bytes);
        assert_memory_equal(q[0].meta, q[1].meta, ROWS * q[0].plan.meta_bytes);
        made_free(&q[0]);
        made_free(&q[1]);
    }
}

/* Half of a row is exactly 0: with count_zeros it is a value like any other. */
static void test_zeros(void **state)
{
    (void)state;
    enum { COLS = 64 };
    float w[COLS];
    for (uint64_t i = 0; i < COLS; i++)
        w[i] = i % 2 ? 0.0f : 1.0f + fabsf(fixture_noise(i));
    w[3] = -0.0f;
    struct tsr_matrix m = f32_matrix(w, 1, COLS);
    struct made       q = quantize(PLUGIN, "bits=3,sensitivity=none,count_zeros=true", &m, NULL);
    assert_int_equal(q.status, TSR_OK);
    for (uint64_t i = 1; i < COLS; i += 2)
        assert_true(q.dense[i] == 0.0f);
    made_free(&q);
    q = quantize(PLUGIN, "bits=3,sensitivity=none", &m, NULL);
    assert_int_equal(q.status, TSR_OK);
    for (uint64_t i = 1; i < COLS; i += 2) /* the nearest entry that the others wanted */
        assert_true(q.dense[i] >= 1.0f);
    made_free(&q);
    memset(w, 0, sizeof w);
    q = quantize(PLUGIN, "bits=3,sensitivity=none,outliers=0.05", &m, NULL);
    assert_int_equal(q.status, TSR_OK);
    for (uint64_t i = 0; i < COLS; i++)
        assert_true(q.dense[i] == 0.0f);
    (void)check_row(&q, w, 0, COLS);
    made_free(&q);
}

/* Outliers: a planted one is found, and the table of the others is never worse than if the
 * largest magnitudes had been taken out. */
static void test_outliers(void **state)
{
    (void)state;
    enum { COLS = 60, OUT = 6 };
    for (uint64_t t = 0; t < 20; t++) {
        float  w[COLS], s[COLS];
        double x[COLS], weight[COLS], pairs[2 * COLS];
        for (uint64_t i = 0; i < COLS; i++) {
            float u = fixture_noise(7000 + t * COLS + i);
            w[i] = u * u * u * u * u;
            s[i] = fabsf(fixture_noise(9000 + t * COLS + i));
        }
        uint64_t planted = t * 3;
        w[planted] = 40.0f;
        struct tsr_matrix      m = f32_matrix(w, 1, COLS);
        struct tsr_quant_stats stats = given(s, COLS);
        struct made            q = quantize(PLUGIN, "bits=2,scale=f32,outliers=0.1", &m, &stats);
        assert_int_equal(q.status, TSR_OK);
        uint64_t mask = check_row(&q, w, 0, COLS);
        assert_true(mask >> planted & 1);
        sample_weights(weight, w, s, COLS);
        for (int i = 0; i < COLS; i++) { /* by magnitude, largest last */
            pairs[2 * i] = fabs((double)w[i]);
            pairs[2 * i + 1] = i;
        }
        qsort(pairs, COLS, 2 * sizeof *pairs, by_value);
        for (int i = 0; i < COLS - OUT; i++) {
            int c = (int)pairs[2 * i + 1];
            pairs[2 * i] = (double)w[c];
            pairs[2 * i + 1] = weight[c];
        }
        qsort(pairs, COLS - OUT, 2 * sizeof *pairs, by_value);
        for (int i = 0; i < COLS - OUT; i++) {
            x[i] = pairs[2 * i];
            pairs[i] = pairs[2 * i + 1];
        }
        double by_size = (double)plain_optimum(x, pairs, COLS - OUT, 4);
        double got = objective(weight, w, q.dense, COLS);
        if (!(got <= by_size * (1.0 + 1e-5)))
            fail_msg("row %d: %.9g with our outliers, %.9g with the largest", (int)t, got, by_size);
        made_free(&q);
    }
}

/* Weights and sensitivities over the whole range of F32, subnormals included: sums and quotients
 * of the program stay numbers, and every weight still takes its nearest entry. */
static void test_extremes(void **state)
{
    (void)state;
    enum { COLS = 60 };
    for (uint64_t t = 0; t < 200; t++) {
        float w[COLS], s[COLS];
        char  text[80];
        for (uint64_t i = 0; i < COLS; i++) {
            uint64_t at = 40000 + t * COLS + i;
            w[i] = ldexpf(fixture_noise(at), (int)(128.0f * fixture_noise(at + 77777)));
            s[i] = ldexpf(fabsf(fixture_noise(at + 7)), (int)(149.0f * fixture_noise(at + 99999)));
            s[i] = isfinite(s[i]) ? s[i] : 1.0f;
        }
        struct tsr_matrix      m = f32_matrix(w, 1, COLS);
        struct tsr_quant_stats stats = given(s, COLS);
        (void)snprintf(text, sizeof text, "bits=%d,scale=f32,outliers=%s", (int)(2 + t % 5),
                       t % 2 ? "0.1" : "0");
        struct made q = quantize(PLUGIN, text, &m, &stats);
        if (q.status != TSR_OK)
            fail_msg("%s", q.err.text);
        (void)check_row(&q, w, 0, COLS);
        for (uint64_t i = 0; i < COLS; i++)
            assert_true(isfinite(q.dense[i]));
        made_free(&q);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 40 };
    float w[ROWS * COLS], s[ROWS * COLS], mean[COLS] = { 0 }, variance[COLS] = { 0 };
    for (uint64_t i = 0; i < ROWS * COLS; i++) {
        w[i] = fixture_noise(i);
        s[i] = 1.0f;
    }
    struct tsr_matrix      m = f32_matrix(w, ROWS, COLS);
    struct tsr_quant_stats stats = given(s, COLS), inputs = stats;
    inputs.sensitivity = NULL;
    inputs.mean = mean;
    inputs.variance = variance;
    struct made q;
#define REFUSED(options, statistics, facts)                                                        \
    q = quantize(PLUGIN, options, &m, statistics);                                                 \
    assert_int_equal(q.status, TSR_E_NUMERIC);                                                     \
    assert_true(moved_error_is(q.err.err, q.err.text, "w", facts));                                \
    made_free(&q)
    REFUSED("bits=4", NULL, "sensitivity none");
    REFUSED("sensitivity=given", &inputs, "sensitivity none");
    s[COLS + 7] = -1.0f;
    REFUSED("bits=4", &stats, "row#1 column#7");
    s[COLS + 7] = NAN;
    REFUSED("bits=4", &stats, "row#1 column#7");
    variance[3] = -1.0f;
    REFUSED("bits=4", &inputs, "column#3");
    variance[3] = INFINITY;
    REFUSED("sensitivity=inputs", &inputs, "column#3");
    w[2 * COLS + 39] = NAN;
    REFUSED("sensitivity=none", NULL, "row#2 column#39");
    w[2 * COLS + 39] = 1e5f; /* an entry of its own */
    REFUSED("sensitivity=none", NULL, "row#2 entry");
    REFUSED("sensitivity=none,outliers=0.05", NULL, "row#2 outlier");
    q = quantize(PLUGIN, "sensitivity=none,scale=f32", &m, NULL);
    assert_int_equal(q.status, TSR_OK);
    assert_true(q.dense[2 * COLS + 39] == 1e5f);
    made_free(&q);
    for (uint64_t i = COLS; i < 2 * COLS; i++)
        w[i] *= 1e-5f;
    REFUSED("sensitivity=none", NULL, "row#1 largest entry");
    int left = 2; /* asked before a row, then before each layer */
    q = quantize_in_runs(PLUGIN, "sensitivity=none,scale=f32", &m, NULL, 0, 0, &left);
    assert_int_equal(q.status, TSR_E_CANCELLED);
    made_free(&q);
}

static void test_half_inputs(void **state)
{
    (void)state;
    enum { N = 64 };
    float    w[N];
    uint16_t h[N];
    for (int t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < N; i++) {
            h[i] = t ? tsr_f32_bf16(fixture_noise(i)) : tsr_f32_f16(fixture_noise(i));
            w[i] = t ? tsr_bf16_f32(h[i]) : tsr_f16_f32(h[i]);
        }
        struct tsr_matrix wide = f32_matrix(w, 2, N / 2), half = wide;
        half.dtype = t ? TSR_BF16 : TSR_F16;
        half.data = h;
        half.row_stride = N;
        struct made a = quantize(PLUGIN, "bits=3,sensitivity=none", &wide, NULL);
        struct made b = quantize(PLUGIN, "bits=3,sensitivity=none", &half, NULL);
        assert_int_equal(a.status, TSR_OK);
        assert_int_equal(b.status, TSR_OK);
        assert_memory_equal(a.dense, b.dense, sizeof w);
        made_free(&a);
        made_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),    cmocka_unit_test(test_optimum),
        cmocka_unit_test(test_exhaustive),  cmocka_unit_test(test_layout),
        cmocka_unit_test(test_sensitivity), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_outliers),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_half_inputs), cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
