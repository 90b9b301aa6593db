/* mx against recorded vectors and against a search over the written-down grids in exact double
 * arithmetic; its bytes, its scale rules, and what it refuses. */
#include "quantizer_fixture.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/json.h"

#include <inttypes.h>
#include <math.h>

extern const struct tsr_plugin tsr_builtin_mx;
#define PLUGIN (&tsr_builtin_mx)

/* Equal, two NaNs and two zeros included. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

/* ---- recorded vectors ------------------------------------------------------- */

static void check_vector(const json_t *v)
{
    const char   *name = json_string_value(json_object_get(v, "name"));
    const json_t *input = json_object_get(v, "input_bits"), *scales, *expected;
    uint64_t      n = json_array_size(input);
    int           block = (int)json_integer_value(json_object_get(v, "block_size"));
    int           bits = (int)json_integer_value(json_object_get(v, "scale_bits"));
    int           lim = (1 << (bits - 1)) - 1;
    float        *w = tsr_new(n, sizeof *w);
    char          text[128];
    expected = json_object_get(v, "expected_bits");
    scales = json_object_get(v, "shared_exponent_per_block");
    assert_non_null(w);
    assert_int_equal(json_array_size(expected), n);
    for (uint64_t i = 0; i < n; i++)
        w[i] =
            tsr_bits_f32((uint32_t)strtoul(json_string_value(json_array_get(input, i)), NULL, 16));
    (void)snprintf(text, sizeof text,
                   "element=%s,block=%d,scale_bits=%d,rounding=%s,"
                   "on_overflow=nan",
                   json_string_value(json_object_get(v, "elem_format")), block, bits,
                   json_string_value(json_object_get(v, "rounding")));
    struct tsr_matrix m = f32_matrix(w, 1, n);
    struct made       q = quantize(PLUGIN, text, &m, NULL);
    if (q.status != TSR_OK)
        fail_msg("%s: %s", name, q.err.text);
    for (uint64_t i = 0; i < n; i++) {
        const char *e = json_string_value(json_array_get(expected, i));
        float want = strcmp(e, "nan") == 0 ? NAN : tsr_bits_f32((uint32_t)strtoul(e, NULL, 16));
        if (!same(q.dense[i], want))
            fail_msg("%s: element %d: %a becomes %a, recorded %a", name, (int)i, (double)w[i],
                     (double)q.dense[i], (double)want);
    }
    for (uint64_t g = 0; g < json_array_size(scales); g++) {
        const json_t *s = json_array_get(scales, g);
        int64_t       want = json_is_integer(s) ? json_integer_value(s) + lim : 2 * lim + 1;
        assert_int_equal(q.meta[g], want);
    }
    made_free(&q);
    free(w);
}

static void test_recorded(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *file, *v;
    size_t            i;
    if (tsr_json_load(&file, TEST_GOLDEN "/mx/vectors.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    json_array_foreach (json_object_get(file, "vectors"), i, v)
        check_vector(v);
    assert_int_equal(i, 57);
    json_decref(file);
}

/* ---- every element, by search ------------------------------------------------ */

/* Exponent bits, mantissa bits with sign and leading bit, largest exponent, largest number: the
 * table of the formats' definition, not derived from each other here. */
static const struct element {
    const char *name;
    int         ebits, mbits, emax;
    double      max;
} elements[] = {
    { "fp8_e4m3", 4, 5, 8, 448.0 }, { "fp8_e5m2", 5, 4, 15, 57344.0 },
    { "fp6_e3m2", 3, 4, 4, 28.0 },  { "fp6_e2m3", 2, 5, 2, 7.5 },
    { "fp5_e3m1", 3, 3, 4, 24.0 },  { "fp5_e2m2", 2, 4, 2, 7.0 },
    { "fp5_e1m3", 1, 5, 1, 3.75 },  { "fp4_e2m1", 2, 3, 2, 6.0 },
    { "fp4_e1m2", 1, 4, 1, 3.5 },   { "fp3_e1m1", 1, 3, 1, 3.0 },
    { "int8", 0, 8, 0, 1.984375 },  { "int6", 0, 6, 0, 1.9375 },
    { "int5", 0, 5, 0, 1.875 },     { "int4", 0, 4, 0, 1.75 },
    { "int3", 0, 3, 0, 1.5 },       { "int2", 0, 2, 0, 1.0 },
};
#define N_ELEMENTS (sizeof elements / sizeof *elements)
static const char *const roundings[] = { "even", "nearest", "floor" };

static uint32_t width(const struct element *e)
{
    return (uint32_t)(e->ebits ? e->ebits + e->mbits - 1 : e->mbits);
}

/* All numbers of an element from 0 to its largest, ascending: place in the list is the code. */
static int grid(const struct element *e, double *value)
{
    int n = 0;
    if (e->ebits == 0) {
        for (double v = 0.0; v <= e->max; v += ldexp(1.0, 2 - e->mbits))
            value[n++] = v;
        return n;
    }
    int half = 1 << (e->mbits - 2), emin = 2 - (1 << (e->ebits - 1));
    for (int m = 0; m < half; m++)
        value[n++] = ldexp((double)m, emin - (e->mbits - 2));
    for (int exponent = emin; exponent <= e->emax; exponent++)
        for (int m = half; m < 2 * half; m++) {
            double v = ldexp((double)m, exponent - (e->mbits - 2));
            if (v <= e->max)
                value[n++] = v;
        }
    return n;
}

/* The place that a magnitude takes, by comparing distances in double, which holds them exactly. */
static int by_search(const double *value, int n, double a, int rounding)
{
    int below = n - 1;
    while (value[below] > a)
        below--;
    if (below == n - 1 || rounding == 2)
        return below;
    double down = a - value[below], up = value[below + 1] - a;
    if (down != up)
        return up < down ? below + 1 : below;
    return rounding == 1 || below % 2 ? below + 1 : below;
}

/* One block whose first weight fixes the scale at 2^scale, the others at every half step, just
 * beside it and anywhere. */
static void check_element(const struct element *e, int rounding, int scale)
{
    enum { N = 1200 };
    double value[256];
    int    n = grid(e, value);
    float  w[N];
    char   text[80];
    w[0] = (float)ldexp(value[n - 1], scale);
    for (int i = 1; i < N; i++) {
        int    c = i % (n - 1);
        double mid = (value[c] + value[c + 1]) / 2, a = mid;
        if (i > n)
            a = i % 3 == 0   ? (double)nextafterf((float)mid, 0.0f)
                : i % 3 == 1 ? (double)nextafterf((float)mid, INFINITY)
                             : (double)fabsf(fixture_noise((uint64_t)i)) * value[n - 1];
        w[i] = (float)ldexp(i % 2 ? -a : a, scale);
    }
    (void)snprintf(text, sizeof text, "element=%s,block=4096,rounding=%s", e->name,
                   roundings[rounding]);
    struct tsr_matrix m = f32_matrix(w, 1, N);
    struct made       q = quantize(PLUGIN, text, &m, NULL);
    if (q.status != TSR_OK)
        fail_msg("%s", q.err.text);
    assert_int_equal(q.meta[0], scale + 127);
    assert_int_equal(q.plan.format.bits, width(e));
    for (int i = 0; i < N; i++) {
        double   a = ldexp(fabs((double)w[i]), -scale);
        int      place = by_search(value, n, a, rounding);
        unsigned sign = w[i] < 0.0f && place ? 1u << (width(e) - 1) : 0;
        unsigned code = fixture_code(q.codes, (uint64_t)i, width(e));
        double   want = copysign(ldexp(value[place], scale), (double)w[i]);
        if (code != ((unsigned)place | sign) || !((double)q.dense[i] == want))
            fail_msg("%s %s, 2^%d: %a takes code %u (%a), wanted %d (%a)", e->name,
                     roundings[rounding], scale, (double)w[i], code, (double)q.dense[i],
                     place | (int)sign, want);
    }
    made_free(&q);
}

static void test_elements(void **state)
{
    (void)state;
    for (unsigned e = 0; e < N_ELEMENTS; e++)
        for (int rounding = 0; rounding < 3; rounding++) {
            check_element(&elements[e], rounding, 0);
            check_element(&elements[e], rounding, -100);
            check_element(&elements[e], rounding, 127 - elements[e].emax);
        }
}

/* ---- scales ------------------------------------------------------------------ */

/* The shared exponent of E2M1 by rule for some largest magnitudes, as bytes of E8M0. */
static void test_scale_rules(void **state)
{
    (void)state;
    static const struct {
        float largest;
        int   floor, even, ceil;
    } cases[] = { { 3.9f, 126, 127, 127 }, { 4.0f, 127, 127, 127 }, { 5.9f, 127, 127, 127 },
                  { 6.0f, 127, 127, 127 }, { 6.5f, 127, 127, 128 }, { 6.99f, 127, 127, 128 },
                  { 7.0f, 127, 128, 128 }, { 7.9f, 127, 128, 128 }, { 8.0f, 128, 128, 128 } };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const rules[] = { "scale_rule=floor", "scale_rule=even", "scale_rule=ceil" };
        const int         want[] = { cases[i].floor, cases[i].even, cases[i].ceil };
        float             w[3] = { 0.5f, -cases[i].largest, 1.0f };
        for (int r = 0; r < 3; r++) {
            struct tsr_matrix m = f32_matrix(w, 1, 3);
            struct made       q = quantize(PLUGIN, rules[r], &m, NULL);
            assert_int_equal(q.status, TSR_OK);
            assert_int_equal(q.meta[0], want[r]);
            if (r == 2) /* nothing saturates: the nearest of all, at most half a step away */
                assert_true(fabsf(q.dense[1] - w[1]) <= ldexpf(1.0f, want[r] - 127));
            made_free(&q);
        }
    }
}

/* Every element by the rules' own words in double, from subnormal weights to the largest F32. */
static void test_scale_search(void **state)
{
    (void)state;
    static const char *const rules[] = { "floor", "even", "ceil" };
    for (unsigned t = 0; t < N_ELEMENTS * 3 * 150; t++) {
        const struct element *e = &elements[t % N_ELEMENTS];
        int                   rule = (int)(t / N_ELEMENTS % 3), want = -127;
        double                a = 1.0 + fabs((double)fixture_noise(t));
        if (t % 5 == 0) /* the border of ceil, or just beside it */
            a = ldexp(e->max, -e->emax) + (double)((int)(t % 3) - 1) * 0x1p-23;
        if (t % 5 == 1) /* the border of even */
            a = 2.0 - ldexp(1.0, 1 - e->mbits) + (double)((int)(t % 3) - 1) * 0x1p-23;
        float  w[2] = { 0.0f, (float)ldexp(a, (int)(t / 7 % 278) - 150) };
        double largest = (double)w[1], unit;
        int    exponent;
        char   text[80];
        if (!isfinite(w[1]) || w[1] == 0.0f)
            continue;
        (void)frexp(largest, &exponent);
        exponent--;
        if (rule == 1) {
            unit = ldexp(1.0, exponent - (e->mbits - 2));
            largest = floor(largest / unit + 0.5) * unit;
            (void)frexp(largest, &exponent);
            exponent--;
        }
        want = exponent - e->emax > want ? exponent - e->emax : want;
        for (want = rule == 2 ? -127 : want; rule == 2 && ldexp(e->max, want) < largest;)
            want++;
        (void)snprintf(text, sizeof text, "element=%s,on_overflow=nan,scale_rule=%s", e->name,
                       rules[rule]);
        struct tsr_matrix m = f32_matrix(w, 1, 2);
        struct made       q = quantize(PLUGIN, text, &m, NULL);
        assert_int_equal(q.status, TSR_OK);
        if (q.meta[0] != want + 127)
            fail_msg("%s %s: %a takes 2^%d, wanted 2^%d", e->name, rules[rule], (double)w[1],
                     q.meta[0] - 127, want);
        made_free(&q);
    }
}

static void test_scale_range(void **state)
{
    (void)state;
    float w[16] = { 0 };
    w[9] = 1e-3f;
    struct tsr_matrix m = f32_matrix(w, 1, 16);
    for (int bits = 4; bits <= 8; bits++) {
        int  lim = (1 << (bits - 1)) - 1;
        char text[80];
        (void)snprintf(text, sizeof text, "element=int8,block=8,scale_bits=%d", bits);
        w[10] = ldexpf(-1.5f, lim); /* just fits */
        struct made q = quantize(PLUGIN, text, &m, NULL);
        assert_int_equal(q.status, TSR_OK);
        assert_int_equal(q.meta[0], 0); /* a block of zeros has the smallest scale */
        assert_int_equal(q.meta[1], 2 * lim);
        assert_true(q.dense[10] == w[10] && q.dense[0] == 0.0f && !signbit(q.dense[0]));
        made_free(&q);
        if (bits == 8)
            continue; /* no F32 is too large for 8 bits with this element */
        w[10] = ldexpf(-1.0f, lim + 1);
        q = quantize(PLUGIN, text, &m, NULL);
        assert_int_equal(q.status, TSR_E_NUMERIC);
        assert_true(moved_error_is(q.err.err, q.err.text, "w", "row 0 block 1"));
        assert_true(moved_error_is(q.err.err, q.err.text, "w", "on_overflow"));
        made_free(&q);
        (void)snprintf(text, sizeof text, "element=int8,block=8,scale_bits=%d,on_overflow=nan",
                       bits);
        q = quantize(PLUGIN, text, &m, NULL);
        assert_int_equal(q.status, TSR_OK);
        assert_int_equal(q.meta[1], 2 * lim + 1);
        for (int i = 0; i < 16; i++)
            assert_true(i < 8 ? q.dense[i] == 0.0f : isnan(q.dense[i]));
        made_free(&q);
        w[10] = ldexpf(1.0f, -lim - 3); /* below the smallest scale: fewer steps are left */
        w[9] = 0.0f;
        q = quantize(PLUGIN, "element=int8,block=8", &m, NULL);
        assert_true(q.dense[10] == w[10]);
        made_free(&q);
        (void)snprintf(text, sizeof text, "element=int4,block=8,scale_bits=%d", bits);
        q = quantize(PLUGIN, text, &m, NULL);
        assert_int_equal(q.meta[1], 0);
        assert_true(q.dense[10] == 0.0f); /* half a step, to the even code */
        made_free(&q);
        w[9] = 1e-3f;
    }
    w[1] = NAN;
    w[10] = 1.0f;
    struct made q = quantize_in_runs(PLUGIN, "block=8", &m, NULL, 4, 0, NULL);
    assert_int_equal(q.status, TSR_E_NUMERIC);
    assert_true(moved_error_is(q.err.err, q.err.text, "w", "row 4 column 1"));
    made_free(&q);
    w[1] = -INFINITY;
    q = quantize(PLUGIN, "block=8,on_overflow=nan", &m, NULL);
    assert_int_equal(q.status, TSR_OK);
    for (int i = 0; i < 16; i++)
        assert_true(i < 8 ? isnan(q.dense[i]) : isfinite(q.dense[i]));
    made_free(&q);
}

/* ---- bytes -------------------------------------------------------------------- */

static void test_layout(void **state)
{
    (void)state;
    enum { ROWS = 3, MAX = 131 };
    static const uint64_t widths[] = { 1, 5, 32, 33, 131 }, blocks[] = { 1, 3, 8, 32, 4096 };
    float                 w[ROWS * MAX];
    uint16_t              half[ROWS * MAX];
    for (uint64_t i = 0; i < ROWS * MAX; i++) {
        half[i] = tsr_f32_bf16(ldexpf(fixture_noise(i), (int)(i % 19) - 9));
        w[i] = tsr_bf16_f32(half[i]);
    }
    for (unsigned t = 0; t < N_ELEMENTS * 25; t++) {
        const struct element *e = &elements[t / 25];
        uint64_t              cols = widths[t % 5], block = blocks[t / 5 % 5];
        uint64_t              groups = (cols + block - 1) / block;
        struct tsr_matrix     m = f32_matrix(w, ROWS, cols), narrow = m;
        char                  text[80];
        (void)snprintf(text, sizeof text, "element=%s,block=%d", e->name, (int)block);
        struct made whole = quantize(PLUGIN, text, &m, NULL);
        struct made parts = quantize_in_runs(PLUGIN, text, &m, NULL, 0, 1, NULL);
        narrow.dtype = TSR_BF16;
        narrow.data = half;
        narrow.row_stride = 2 * cols;
        struct made bf16 = quantize(PLUGIN, text, &narrow, NULL);
        assert_int_equal(whole.status, TSR_OK);
        assert_int_equal(whole.plan.code_bytes, (cols * width(e) + 7) / 8);
        assert_int_equal(whole.plan.meta_bytes, (groups + 3) / 4 * 4);
        assert_memory_equal(whole.codes, parts.codes, ROWS * whole.plan.code_bytes);
        assert_memory_equal(whole.meta, parts.meta, ROWS * whole.plan.meta_bytes);
        assert_memory_equal(whole.codes, bf16.codes, ROWS * whole.plan.code_bytes);
        assert_memory_equal(whole.meta, bf16.meta, ROWS * whole.plan.meta_bytes);
        double value[256];
        int    n = grid(e, value);
        for (uint64_t i = 0; i < ROWS * cols; i++) {
            const unsigned char *meta = whole.meta + i / cols * whole.plan.meta_bytes;
            const unsigned char *codes = whole.codes + i / cols * whole.plan.code_bytes;
            unsigned             code = fixture_code(codes, i % cols, width(e));
            unsigned sign = code >> (width(e) - 1), place = code & ~(sign << (width(e) - 1));
            assert_true(place < (unsigned)n);
            double want = ldexp(sign ? -value[place] : value[place], meta[i % cols / block] - 127);
            assert_true((double)whole.dense[i] == want);
        }
        for (uint64_t g = groups; g < whole.plan.meta_bytes; g++)
            assert_int_equal(whole.meta[g], 0);
        for (uint64_t b = cols * width(e); b < 8 * whole.plan.code_bytes; b++)
            assert_int_equal(whole.codes[b / 8] >> (b % 8) & 1, 0);
        made_free(&whole);
        made_free(&parts);
        made_free(&bf16);
    }
}

/* The grids of E1Mx are those of integers one bit wider; only where the scale runs out of range
 * do they part. */
static void test_same_grids(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "element=fp3_e1m1", "element=int3" },
                                            { "element=fp4_e1m2", "element=int4" },
                                            { "element=fp5_e1m3", "element=int5" } };
    float                    w[300];
    for (uint64_t i = 0; i < 300; i++)
        w[i] = ldexpf(fixture_noise(i), (int)(i % 40) - 20);
    struct tsr_matrix m = f32_matrix(w, 3, 100);
    for (unsigned p = 0; p < 3; p++) {
        struct made a = quantize(PLUGIN, pairs[p][0], &m, NULL);
        struct made b = quantize(PLUGIN, pairs[p][1], &m, NULL);
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
        cmocka_unit_test(test_recorded),     cmocka_unit_test(test_elements),
        cmocka_unit_test(test_scale_rules),  cmocka_unit_test(test_scale_range),
        cmocka_unit_test(test_layout),       cmocka_unit_test(test_same_grids),
        cmocka_unit_test(test_scale_search),
    };
    setenv("TSR_ISA", "scalar", 1);
    int wrong = cmocka_run_group_tests_name("scalar", tests, NULL, NULL);
    unsetenv("TSR_ISA"); /* what this machine has */
    return wrong + cmocka_run_group_tests_name("this machine", tests, NULL, NULL);
}
