/* Encoders: to the bit against the rule in exact double arithmetic, on every instruction set,
 * for every element, scale width, rounding and block. */
#include <float.h>

#include "../fixtures/error_is.h"
#include "encode_ref.h"
#include "format_ref.h"

/* ---- the rule, in double ------------------------------------------------------------ */

static double round_by(double v, uint32_t rounding)
{
    if (rounding == TSR_ENCODE_FLOOR)
        return floor(v);
    if (rounding == TSR_ENCODE_NEAREST)
        return floor(v + 0.5); /* exact: v has few bits */
    double f = floor(v);
    return v - f > 0.5 || (v - f == 0.5 && fmod(f, 2) == 1) ? f + 1 : f;
}

/* The element's value of a positive a = |x| / 2^S. */
static double round_element(double a, uint32_t el, uint32_t rounding)
{
    double step;
    int    emin, mant, emax, e = 0;
    double top = element_max(el, &step, &emin, &mant, &emax);
    if (a == 0)
        return 0;
    (void)frexp(a, &e);
    e = e - 1 > emin && el >> 8 ? e - 1 : emin;
    step = ldexp(1, e - mant);
    /* what is too small for v to keep its bits is below every half step */
    return fmin(round_by(a / step, rounding) * step, top);
}

/* The exponent of the scale of a block with this largest magnitude, before it is clamped. */
static int scale_by(const struct tsr_encode_mx *spec, double amax)
{
    int    emin, mant, emax, e, more;
    double step, top = element_max(spec->element, &step, &emin, &mant, &emax), unit;
    (void)frexp(amax, &e);
    e--;
    unit = ldexp(1, e - mant);
    if (spec->scale_rule == TSR_ENCODE_SCALE_EVEN) {
        (void)frexp(floor(amax / unit + 0.5) * unit, &more);
        return more - 1 - emax;
    }
    more = spec->scale_rule == TSR_ENCODE_SCALE_CEIL && amax > ldexp(top, e - emax);
    return e - emax + more;
}

/* Checks one block's codes and scale by decoding them. */
static void check_block(const struct tsr_encode_mx *spec, const float *x, uint64_t n,
                        const uint32_t *code, uint8_t scale)
{
    int    lim = (1 << (spec->scale_bits - 1)) - 1, finite = 1, emin, mant, emax, s = -1000;
    double amax = 0, step;
    (void)element_max(spec->element, &step, &emin, &mant, &emax);
    for (uint64_t i = 0; i < n; i++) {
        finite &= isfinite(x[i]) != 0;
        amax = fmax(amax, fabs((double)x[i]));
    }
    if (finite && amax > 0)
        s = scale_by(spec, amax);
    s = s < -lim ? -lim : s;
    if (!finite || s > lim) {
        assert_int_equal(scale, 2 * lim + 1);
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(code[i], 0);
        return;
    }
    assert_int_equal(scale, s + lim);
    uint32_t bits = tsr_encode_mx_bits(spec->element);
    for (uint64_t i = 0; i < n; i++) {
        double   want = round_element(ldexp(fabs((double)x[i]), -s), spec->element, spec->rounding);
        uint32_t mag = code[i] & ((1u << (bits - 1)) - 1), neg = code[i] >> (bits - 1);
        int      f = (int)(mag >> mant);
        double   got =
            spec->element >> 8 && f > 0
                  ? ldexp((double)(mag & ((1u << mant) - 1)) + ldexp(1, mant), emin + f - 1 - mant)
                  : (double)mag * step;
        if (got != want || neg != (x[i] < 0 && want > 0))
            fail_msg("%u/%u rounding %u: %a / 2^%d gave code %u = %g, wanted %g",
                     spec->element >> 8, spec->element & 0xff, spec->rounding, (double)x[i], s,
                     code[i], got, want);
    }
}

/* One row on every instruction set; codes and scales sit between marks. */
static void check_row(const struct tsr_encode_mx *spec, uint64_t cols, const float *x)
{
    uint32_t  bits = tsr_encode_mx_bits(spec->element);
    uint64_t  block = spec->block ? spec->block : cols, blocks = (cols + block - 1) / block;
    uint64_t  nc = (cols * bits + 7) / 8, bad = TSR_ENCODE_NONE;
    uint8_t  *codes = malloc(nc + 16), *scales = malloc(blocks + 16), *first = malloc(nc + blocks);
    uint32_t *code = malloc(cols * sizeof *code);
    assert_true(codes && scales && first && code);
    assert_int_equal(tsr_encode_mx_check(spec, NULL), TSR_OK);
    for (int i = 0; i < 3; i++) {
        if (!enc[i])
            continue;
        memset(codes, 0xa5, nc + 16);
        memset(scales, 0xa5, blocks + 16);
        uint64_t b = enc[i]->mx_row(spec, cols, x, codes + 8, scales + 8);
        for (int j = 0; j < 8; j++)
            assert_true(codes[j] == 0xa5 && codes[8 + nc + (uint64_t)j] == 0xa5 &&
                        scales[j] == 0xa5 && scales[8 + blocks + (uint64_t)j] == 0xa5);
        if (i > 0) {
            assert_memory_equal(codes + 8, first, nc);
            assert_memory_equal(scales + 8, first + nc, blocks);
            assert_true(b == bad);
            continue;
        }
        bad = b;
        memcpy(first, codes + 8, nc);
        memcpy(first + nc, scales + 8, blocks);
        for (uint64_t k = 0; k < cols; k++)
            code[k] = code_at(codes + 8, k, bits);
        assert_int_equal((uint8_t)(codes[8 + nc - 1] >> 1 >> ((cols * bits - 1) % 8)), 0);
        uint64_t nan = TSR_ENCODE_NONE;
        for (uint64_t g = blocks; g-- > 0;) {
            uint64_t k = g * block, n = cols - k < block ? cols - k : block;
            check_block(spec, x + k, n, code + k, scales[8 + g]);
            if (scales[8 + g] == (1 << spec->scale_bits) - 1)
                nan = g;
        }
        assert_true(bad == nan);
    }
    free(codes);
    free(scales);
    free(first);
    free(code);
}

static void test_mx(void **state)
{
    (void)state;
    static const uint64_t blocks[] = { 1, 3, 8, 16, 32, 33, 64, 128, 192, 100, 512, 576, 0 };
    float                 x[1800];
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint32_t sb = 4; sb <= 8; sb++)
            for (uint32_t r = 0; r < 9; r++)
                for (uint64_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
                    struct tsr_encode_mx spec = { elements[e], sb, r % 3, r / 3, blocks[b] };
                    uint64_t             cols = 1 + rnd() % 90, kind = rnd();
                    if (kind % 5 == 0 || blocks[b] > 64) /* more than one chunk, and a tail */
                        cols += rnd() % 1700;
                    else if (kind % 5 == 1) /* only whole rounds of the kernels */
                        cols = 64 * (1 + rnd() % 9);
                    for (uint64_t i = 0; i < cols; i++)
                        x[i] = hard(kind % 2 ? 1 + rnd() % 4 : rnd());
                    check_row(&spec, cols, x);
                }
}

/* NaN and Inf here and there: the blocks beside them are what they are without. */
static void test_mx_nan(void **state)
{
    (void)state;
    static const uint64_t blocks[] = { 8, 16, 32, 64, 128, 256, 48 };
    float                 x[1400];
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint64_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++)
            for (uint32_t r = 0; r < 3; r++) {
                struct tsr_encode_mx spec = { elements[e], 5, r, (r + (uint32_t)e) % 3, blocks[b] };
                uint64_t             cols = 700 + rnd() % 700;
                for (uint64_t i = 0; i < cols; i++)
                    x[i] = ldexpf((float)(int32_t)rnd(), -31);
                for (int n = 0; n < 4; n++) {
                    uint32_t odd = (uint32_t)rnd() | 0x7f800000u; /* either sign, any payload */
                    memcpy(&x[rnd() % cols], &odd, 4);
                }
                x[rnd() % cols] = -INFINITY;
                x[rnd() % cols] = ldexpf(1.5f, 30); /* above the scales of 5 bits */
                check_row(&spec, cols, x);
            }
}

/* Blocks about the smallest and the largest scales: of subnormals, of zeros, of 2^127. */
static void test_mx_ends(void **state)
{
    (void)state;
    static const uint64_t blocks[] = { 8, 16, 32, 64, 5 };
    float                 x[300];
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint64_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++)
            for (uint32_t r = 0; r < 9; r++) {
                struct tsr_encode_mx spec = { elements[e], 8, r % 3, r / 3, blocks[b] };
                for (uint64_t i = 0; i < 300; i++) {
                    uint64_t kind = i / blocks[b] % 8;
                    uint32_t u = (uint32_t)rnd() & 0x80ffffffu; /* to 2^-126, or above */
                    if (kind < 5)
                        u &= ~(UINT32_C(0x00800000) | UINT32_C(0x007fffff) << (24 - kind));
                    else if (kind == 5)
                        u &= 0x80000000u;
                    else if (kind == 7)
                        u += 0x7e000000u;
                    memcpy(&x[i], &u, 4);
                }
                check_row(&spec, 300, x);
            }
}

/* All finite numbers of 16 bits (F16's), in their order and mixed, as they are and one bit of F32
 * beside. */
static void test_mx_all(void **state)
{
    (void)state;
    static float          x[65536], half[65536];
    static const uint64_t blocks[] = { 8, 16, 32, 256 };
    static uint16_t       bits[65536];
    uint64_t              n = 0;
    for (uint32_t i = 0; i < 65536; i++)
        if ((i & 0x7c00u) != 0x7c00u)
            bits[n++] = (uint16_t)i;
    struct tsr_format f = { .id = TSR_FORMAT_FLOAT, .dtype = TSR_F16 };
    assert_int_equal(tsr_ref_decode_row(&f, n, bits, NULL, half), TSR_OK);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint32_t r = 0; r < 3; r++) {
            struct tsr_encode_mx spec = { elements[e], 8, r, 0, blocks[(e + r) % 4] };
            int                  mixed = (e + r) % 3 != 0, beside = (int)(e % 3) - 1;
            for (uint64_t i = 0; i < n; i++) {
                x[i] = half[mixed ? i * 40503 % n : i]; /* n = 63488 = 2^11 * 31 */
                x[i] = beside ? nextafterf(x[i], beside > 0 ? INFINITY : 0) : x[i];
            }
            check_row(&spec, n, x);
        }
}

/* Every half step of every element and both neighbours, at scale 0. */
static void test_half_steps(void **state)
{
    (void)state;
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint32_t r = 0; r < 3; r++) {
            struct tsr_encode_mx spec = { elements[e], 8, r, 0, 0 };
            double               step, top;
            int                  emin, mant, emax;
            float                x[4 + 6 * 256 * 4] = { 0 };
            uint64_t             n = 0;
            top = element_max(elements[e], &step, &emin, &mant, &emax);
            for (int k = emin; k <= emax; k++)
                for (int q = k == emin ? 0 : 2 << mant; q <= 4 << mant; q++) {
                    float f = (float)ldexp(q, k - mant - 1);
                    x[n++] = f;
                    x[n++] = nextafterf(-f, 0);
                    x[n++] = nextafterf(f, INFINITY);
                    assert_true(n + 4 < sizeof x / sizeof x[0]);
                }
            /* the block's scale is 1, whatever the values above do */
            for (uint64_t i = 0; i < n; i++)
                if (fabs((double)x[i]) >= ldexp(1, emax + 1))
                    x[i] = (float)top;
            check_row(&spec, n, x);
        }
}

static void test_special(void **state)
{
    (void)state;
    static const float odd[] = { NAN, INFINITY, -INFINITY, FLT_MAX };
    float              x[100];
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint64_t v = 0; v < 4; v++) {
            struct tsr_encode_mx spec = { elements[e], v == 3 ? 5 : 8, 1, 0, 32 };
            for (int i = 0; i < 100; i++)
                x[i] = (float)i * 0.125f;
            x[32 + 5 * v] = odd[v];
            check_row(&spec, 100, x);
            uint8_t codes[100], scales[4];
            assert_true(enc[0]->mx_row(&spec, 100, x, codes, scales) == 1);
        }
}

/* ---- int4 ---------------------------------------------------------------------------- */

static void test_int4(void **state)
{
    (void)state;
    static const uint64_t groups[] = { 1, 7, 8, 16, 32, 64, 128, 192, 640, 0 };
    float                 x[1200], back[1200];
    for (int round = 0; round < 1200; round++) {
        uint64_t group = groups[rnd() % 10], cols = 1 + rnd() % 1200;
        uint64_t g = group ? group : cols, n = (cols + g - 1) / g, want = TSR_ENCODE_NONE;
        int      mode = round % 4;
        for (uint64_t i = 0; i < cols; i++)
            x[i] = mode == 3 ? hard(rnd()) : ldexpf((float)(int32_t)rnd(), mode - 33);
        for (int j = 0; round % 7 == 0 && j < 3; j++)
            x[rnd() % cols] = j ? NAN : -INFINITY;
        for (uint64_t i = 0; round % 5 == 0 && i < cols;
             i++) /* scales about F16's last, first, 0 */
            x[i] = ldexpf(x[i], i / 64 % 3 ? -18 - (int)(i / 64 % 8) : 18);
        uint8_t  first[608] = { 0 }, codes[608] = { 0 };
        uint16_t first_s[1201], scales[1201];
        first[(cols + 1) / 2] = codes[(cols + 1) / 2] = 0xa5; /* marks */
        first_s[n] = scales[n] = 0xa5a5;
        for (int i = 0; i < 3; i++) {
            if (!enc[i])
                continue;
            uint64_t bad =
                enc[i]->int4_row(group, cols, x, i ? codes : first, i ? scales : first_s);
            if (i) {
                assert_memory_equal(codes, first, (cols + 1) / 2);
                assert_memory_equal(scales, first_s, n * 2);
            }
            assert_true(codes[(cols + 1) / 2] == 0xa5 && scales[n] == 0xa5a5 &&
                        first[(cols + 1) / 2] == 0xa5 && first_s[n] == 0xa5a5);
            for (uint64_t b = n; b-- > 0 && i == 0;)
                if (first_s[b] == 0x7e00)
                    want = b;
            assert_true(bad == want);
        }
        /* the decoder's F16, so that no conversion is its own judge */
        struct tsr_format f = { .id = TSR_FORMAT_FLOAT, .dtype = TSR_F16 };
        assert_int_equal(tsr_ref_decode_row(&f, n, first_s, NULL, back), TSR_OK);
        for (uint64_t k = 0; k < cols; k++) {
            float    amax = 0, s = back[k / g];
            uint32_t c = first[k / 2] >> (k % 2 * 4) & 15;
            int      finite = 1;
            for (uint64_t j = k / g * g; j < cols && j < (k / g + 1) * g; j++) {
                amax = fmaxf(amax, fabsf(x[j]));
                finite &= isfinite(x[j]) != 0;
            }
            if (!finite || amax / 7.0f >= 65520.0f) {
                assert_true(isnan(s) && c == 8);
                continue;
            }
            /* F16's step at s, or its smallest; the scale lies within half of it */
            double ulp =
                fmax(ldexp(1, -24), ldexp(1, (int)floor(log2(fmax((double)s, 1e-9))) - 10));
            assert_true(fabs((double)s - (double)(amax / 7.0f)) <= ulp / 2);
            float inv = 1.0f / s;
            float q = isfinite(inv) ? rintf(x[k] * inv) : 0.0f;
            q = fminf(fmaxf(q, -8.0f), 7.0f);
            assert_int_equal(c, (int)q + 8);
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    char                     text[256] = "";
    struct tsr_err           err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    const struct tsr_encode *e = NULL;
    struct tsr_encode_mx     s = { TSR_MX_ELEMENT(5, 5), 8, 0, 0, 32 };
    assert_int_equal(tsr_encode_mx_check(&s, &err), TSR_E_CONFIG);
    assert_true(error_is(&err, "", "5"));
    s.element = TSR_MX_FP4_E2M1;
    s.scale_bits = 3;
    assert_int_equal(tsr_encode_mx_check(&s, &err), TSR_E_CONFIG);
    s.scale_bits = 9;
    assert_int_equal(tsr_encode_mx_check(&s, &err), TSR_E_CONFIG);
    s.scale_bits = 8;
    s.rounding = 3;
    assert_int_equal(tsr_encode_mx_check(&s, &err), TSR_E_CONFIG);
    s.rounding = 0;
    s.scale_rule = 3;
    assert_int_equal(tsr_encode_mx_check(&s, &err), TSR_E_CONFIG);
    assert_true(error_is(&err, "", "scale_rule"));
    setenv("TSR_ISA", "sse9", 1);
    assert_int_equal(tsr_encode_pick(&e, &err), TSR_E_CONFIG);
    assert_true(error_is(&err, "", "sse9"));
    unsetenv("TSR_ISA");
    assert_int_equal(tsr_encode_pick(&e, &err), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mx),         cmocka_unit_test(test_mx_nan),
        cmocka_unit_test(test_mx_ends),    cmocka_unit_test(test_mx_all),
        cmocka_unit_test(test_half_steps), cmocka_unit_test(test_special),
        cmocka_unit_test(test_int4),       cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
