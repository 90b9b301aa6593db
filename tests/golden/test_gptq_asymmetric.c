/* gptq with `asymmetric`: linears whose inputs quantized layers have changed aim at the outputs of the
 * original model.  Against least squares in double that are solved anew after every column, and against
 * plain gptq by the distance of the outputs. */
#include "gptq_case.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS   12u
#define COLS   24u
#define TOKENS 160u
#define SEEDS  20u

/* A layer, its inputs in the original model, and the same tokens after quantized layers. */
struct layer {
    float  w[ROWS * COLS], h[COLS * COLS], cross[COLS * COLS];
    double original[TOKENS * COLS], x[TOKENS * COLS];
};

static double normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    return tsr_normal(seed, stream, i);
}

/* Inputs with factors in common and columns of unequal size; what quantized layers add has factors in
 * common too, in part those of the inputs. */
static struct layer *layer_of(uint64_t seed, double change)
{
    struct layer *l = calloc(1, sizeof *l);
    double        h[COLS * COLS] = { 0 }, c[COLS * COLS] = { 0 };
    assert_non_null(l);
    for (uint64_t i = 0; i < ROWS * COLS; i++)
        l->w[i] = (float)normal(seed, 1, i);
    for (uint64_t t = 0; t < TOKENS; t++) {
        double last = 0, off = 0;
        for (uint64_t k = 0; k < COLS; k++) {
            double size = exp(0.5 * normal(seed, 2, k));
            last = 0.6 * last + normal(seed, 3 + t, k);
            off = 0.6 * off + normal(seed, 1000 + t, k);
            l->original[t * COLS + k] = (double)(float)(size * last);
            l->x[t * COLS + k] = (double)(float)(size * (last + change * (off - 0.5 * last)));
        }
    }
    for (uint64_t t = 0; t < TOKENS; t++)
        for (uint64_t i = 0; i < COLS; i++)
            for (uint64_t j = 0; j < COLS; j++) {
                double x = l->x[t * COLS + i], d = l->original[t * COLS + i] - x;
                h[i * COLS + j] += 2.0 * x * l->x[t * COLS + j];
                c[i * COLS + j] += 2.0 * d * l->x[t * COLS + j];
            }
    for (uint64_t i = 0; i < COLS * COLS; i++) {
        l->h[i] = (float)h[i];
        l->cross[i] = (float)c[i];
    }
    return l;
}

/* ||W X_original - Q X||^2 */
static double distance(const struct layer *l, const float *q)
{
    double sum = 0;
    for (uint64_t t = 0; t < TOKENS; t++)
        for (uint64_t r = 0; r < ROWS; r++) {
            double d = 0;
            for (uint64_t k = 0; k < COLS; k++)
                d += (double)l->w[r * COLS + k] * l->original[t * COLS + k] -
                     (double)q[r * COLS + k] * l->x[t * COLS + k];
            sum += d * d;
        }
    return sum;
}

/* b := A^-1 b by elimination with the largest pivots; a is overwritten. */
static void solve(double *a, double *b, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) {
        uint64_t p = k;
        for (uint64_t i = k + 1; i < n; i++)
            p = fabs(a[i * n + k]) > fabs(a[p * n + k]) ? i : p;
        for (uint64_t j = 0; j < n; j++) {
            double v = a[k * n + j];
            a[k * n + j] = a[p * n + j];
            a[p * n + j] = v;
        }
        double v = b[k];
        b[k] = b[p];
        b[p] = v;
        for (uint64_t i = k + 1; i < n; i++) {
            double by = a[i * n + k] / a[k * n + k];
            for (uint64_t j = k; j < n; j++)
                a[i * n + j] -= by * a[k * n + j];
            b[i] -= by * b[k];
        }
    }
    for (uint64_t k = n; k-- > 0;) {
        for (uint64_t j = k + 1; j < n; j++)
            b[k] -= a[k * n + j] * b[j];
        b[k] /= a[k * n + k];
    }
}

/* The columns from `first` on that minimise ||w X_original - v X||^2 + ridge ||w - v||^2 for the row w,
 * where those before it are v's. */
static void least_squares(const struct layer *l, const float *w, double ridge, uint64_t first,
                          double *v)
{
    double   a[COLS * COLS], b[COLS];
    uint64_t n = COLS - first;
    for (uint64_t i = 0; i < n; i++) {
        b[i] = ridge * (double)w[first + i];
        for (uint64_t t = 0; t < TOKENS; t++) {
            double target = 0;
            for (uint64_t k = 0; k < COLS; k++)
                target += (double)w[k] * l->original[t * COLS + k] -
                          (k < first ? v[k] * l->x[t * COLS + k] : 0.0);
            b[i] += 2.0 * target * l->x[t * COLS + first + i];
        }
        for (uint64_t j = 0; j < n; j++) {
            a[i * n + j] = i == j ? ridge : 0.0;
            for (uint64_t t = 0; t < TOKENS; t++)
                a[i * n + j] += 2.0 * l->x[t * COLS + first + i] * l->x[t * COLS + first + j];
        }
    }
    solve(a, b, n);
    memcpy(v + first, b, n * sizeof *v);
}

/* Column by column: the rest is solved for, the column is rounded to the grid of the whole row's range. */
static void by_columns(const struct layer *l, const float *w, double ridge, int bits, double *v,
                       double *scale)
{
    double lo = 0, hi = 0, most = (double)((1 << bits) - 1);
    least_squares(l, w, ridge, 0, v);
    for (uint64_t k = 0; k < COLS; k++) {
        lo = fmin(lo, v[k]);
        hi = fmax(hi, v[k]);
    }
    *scale = (hi - lo) / most;
    double zero = nearbyint(-lo / *scale);
    for (uint64_t k = 0; k < COLS; k++) {
        least_squares(l, w, ridge, k, v);
        v[k] = (fmin(fmax(nearbyint(v[k] / *scale) + zero, 0), most) - zero) * *scale;
    }
}

static struct gptq_options published(int bits)
{
    struct gptq_options o = gptq_defaults();
    o.bits = bits;
    o.group = -1;
    o.act_order = 0;
    o.scale = TSR_F32;
    o.params = GPTQ_RANGE;
    o.refine = 0;
    o.asymmetric = 1;
    o.alpha = 1.0;
    return o;
}

/* The weights are those of the least squares; where F32 decides a tie otherwise, the row differs from
 * there on, which is seldom. */
static void test_least_squares(void **state)
{
    uint64_t rows = 0, differ = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct layer       *l = layer_of(seed, 0.3);
        struct gptq_options o = published(3 + (int)(seed % 2));
        struct gptq_result  r;
        double              ridge = 0;
        for (uint64_t k = 0; k < COLS; k++)
            ridge += o.damp * (double)l->h[k * COLS + k] / COLS;
        gptq_quantize_cross(&r, &o, l->w, l->h, l->cross, ROWS, COLS);
        gptq_must(r.status, &r.err);
        for (uint64_t i = 0; i < ROWS; i++, rows++) {
            double v[COLS], scale, most = 0;
            by_columns(l, l->w + i * COLS, ridge, (int)o.bits, v, &scale);
            for (uint64_t k = 0; k < COLS; k++)
                most = fmax(most, fabs(v[k] - (double)r.dense[i * COLS + k]) / scale);
            differ += !(most <= 1e-3);
        }
        gptq_result_free(&r);
        free(l);
    }
    print_message("%llu of %llu rows differ\n", (unsigned long long)differ,
                  (unsigned long long)rows);
    assert_true(differ * 36 <= rows);
}

/* The outputs come nearer to those of the original model, as published and with the searched scales and the
 * refinement of the defaults. */
static void nearer(double part, double most)
{
    for (int variant = 0; variant < 6; variant++) {
        int    bits = 3 + variant % 2;
        double product = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct layer       *l = layer_of(100 + seed, 0.3);
            struct gptq_options o = variant < 2 ? published(bits) : gptq_defaults();
            struct gptq_result  plain, r;
            o.bits = variant < 4 ? bits : 4;
            o.group = variant < 2 ? -1 : variant < 4 ? 8 : variant == 4 ? 16 : 32;
            o.element = variant < 4 ? 0 : variant - 3; /* nvfp4, mxfp4 */
            o.asymmetric = 0;
            o.alpha = gptq_defaults().alpha;
            gptq_quantize(&plain, &o, l->w, l->h, ROWS, COLS);
            gptq_must(plain.status, &plain.err);
            o.asymmetric = 1;
            o.alpha = part;
            gptq_quantize_cross(&r, &o, l->w, l->h, l->cross, ROWS, COLS);
            gptq_must(r.status, &r.err);
            product += log(distance(l, r.dense) / distance(l, plain.dense));
            gptq_result_free(&plain);
            gptq_result_free(&r);
            free(l);
        }
        double mean = exp(product / SEEDS);
        print_message("alpha %g, variant %d: distance %.3f of plain gptq's\n", part, variant, mean);
        assert_true(mean <= most);
    }
}

static void test_nearer(void **state)
{
    (void)state;
    nearer(1.0, 0.9);
    nearer(0.25, 1.0);
}

/* The same inputs in both models: the bytes of plain gptq; alpha 0 asks for no cross term at all. */
static void test_equal_inputs(void **state)
{
    static const float nothing[COLS * COLS];
    struct layer      *l = layer_of(7, 0.3);
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        struct gptq_options o = gptq_defaults();
        struct gptq_result  plain, r;
        o.group = 8;
        gptq_quantize(&plain, &o, l->w, l->h, ROWS, COLS);
        gptq_must(plain.status, &plain.err);
        o.asymmetric = 1;
        o.alpha = variant ? 0.0 : 1.0;
        gptq_quantize_cross(&r, &o, l->w, l->h, variant ? NULL : nothing, ROWS, COLS);
        gptq_must(r.status, &r.err);
        assert_int_equal(r.packed->code_stride, plain.packed->code_stride);
        assert_int_equal(r.packed->meta_stride, plain.packed->meta_stride);
        assert_memory_equal(r.packed->codes, plain.packed->codes, ROWS * r.packed->code_stride);
        assert_memory_equal(r.packed->meta, plain.packed->meta, ROWS * r.packed->meta_stride);
        gptq_result_free(&plain);
        gptq_result_free(&r);
    }
    free(l);
}

/* The loss is that of the outputs, without what no weights change: it has the same differences. */
static void test_report(void **state)
{
    struct layer      *l = layer_of(8, 0.3);
    struct gptq_result r[2];
    double             constant[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct gptq_options o = published(3 + i);
        o.damp = 1e-6;
        gptq_quantize_cross(&r[i], &o, l->w, l->h, l->cross, ROWS, COLS);
        gptq_must(r[i].status, &r[i].err);
        constant[i] = 2.0 * distance(l, r[i].dense) - r[i].report.loss;
        assert_true(r[i].report.loss < r[i].report.rtn_loss);
        gptq_result_free(&r[i]);
    }
    assert_true(fabs(constant[0] - constant[1]) <= 1e-3 * constant[0]);
    free(l);
}

static void test_refused(void **state)
{
    struct layer       *l = layer_of(9, 0.3);
    struct gptq_options o = published(4);
    struct gptq_result  r;
    (void)state;
    gptq_quantize(&r, &o, l->w, l->h, ROWS, COLS);
    assert_int_equal(r.status, TSR_E_INPUT);
    assert_true(error_is(&r.err.err, "gptq", "w"));
    gptq_result_free(&r);
    l->cross[COLS + 2] = NAN;
    gptq_quantize_cross(&r, &o, l->w, l->h, l->cross, ROWS, COLS);
    assert_int_equal(r.status, TSR_E_INPUT);
    assert_true(error_is(&r.err.err, "the cross term of the inputs", "gptq nan 1 2"));
    gptq_result_free(&r);
    l->cross[COLS + 2] = 1e25f;
    for (uint64_t i = 0; i < ROWS * COLS; i++)
        l->w[i] *= 1e20f;
    gptq_quantize_cross(&r, &o, l->w, l->h, l->cross, ROWS, COLS);
    assert_int_equal(r.status, TSR_E_INPUT);
    assert_true(error_is(&r.err.err, "w", "0 11"));
    gptq_result_free(&r);
    free(l);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_squares), cmocka_unit_test(test_nearer),
        cmocka_unit_test(test_equal_inputs),  cmocka_unit_test(test_report),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, gptq_setup, gptq_teardown);
}
