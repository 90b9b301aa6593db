/* Codes back to F32: to the bit against the formats' definitions in double, on every instruction set,
 * for every element, width, scale and block. */
#include "encode_ref.h"

/* What a code means before its scale, by the formats' definitions. */
static double meaning(uint32_t el, uint32_t code)
{
    uint32_t bits = tsr_encode_mx_bits(el), mag = code & ((1u << (bits - 1)) - 1);
    int      emin, mant, emax;
    double   step, v;
    (void)element_max(el, &step, &emin, &mant, &emax);
    if ((el == TSR_MX_FP8_E4M3 && mag == 0x7f) || (el == TSR_MX_FP8_E5M2 && mag > 0x7c))
        return NAN;
    if (el == TSR_MX_FP8_E5M2 && mag == 0x7c)
        v = INFINITY;
    else if (el >> 8 && mag >> mant)
        v = ldexp(1 + ldexp(mag & ((1u << mant) - 1), -mant), (int)(mag >> mant) - 1 + emin);
    else
        v = mag * step;
    return code >> (bits - 1) && mag ? -v : v;
}

static void same_float(float got, float want, const char *isa, uint64_t k)
{
    uint32_t g, w;
    memcpy(&g, &got, 4);
    memcpy(&w, &want, 4);
    if (isnan(want) ? !isnan(got) : g != w)
        fail_msg("%s: column %u is %a, wanted %a", isa, (unsigned)k, (double)got, (double)want);
}

/* Any codes and any scales, put and added, with a mark behind. */
static void test_mx_decode(void **state)
{
    (void)state;
    static const uint64_t blocks[] = { 8, 16, 32, 48, 64, 5, 0 };
    for (uint64_t e = 0; e < ELEMENTS; e++)
        for (uint64_t b = 0; b < 2 * sizeof blocks / sizeof blocks[0]; b++) {
            struct tsr_encode_mx spec = { elements[e], 4 + (uint32_t)rnd() % 5, 0, 0,
                                          blocks[b / 2] };
            struct tsr_decode_mx m;
            uint32_t             bits = tsr_encode_mx_bits(elements[e]);
            uint64_t             cols = 600 + rnd() % 100, bytes = (cols * bits + 7) / 8;
            uint64_t             block = blocks[b / 2] ? blocks[b / 2] : cols;
            uint8_t             *codes = malloc(bytes), scales[700]; /* no byte more can be read */
            float                before[701], dst[701];
            assert_non_null(codes);
            tsr_decode_mx_init(&m, &spec, cols);
            for (uint64_t i = 0; i < bytes; i++)
                codes[i] = (uint8_t)rnd();
            for (uint64_t i = 0; i < 700; i++)
                scales[i] = (uint8_t)(rnd() % 9 ? rnd() % (2 * m.lim + 1) : rnd());
            for (uint64_t i = 0; i <= cols; i++)
                before[i] = hard(3);
            for (int i = 0; i < 3; i++)
                for (int add = 0; add < 2 && enc[i]; add++) {
                    memcpy(dst, before, sizeof dst);
                    enc[i]->mx_decode(&m, cols, codes, scales, dst, add);
                    for (uint64_t k = 0; k < cols; k++) {
                        int    s = (int)scales[k / block] - (int)m.lim;
                        double v = meaning(elements[e], code_at(codes, k, bits));
                        float  f = s > (int)m.lim ? NAN : (float)ldexp(v, s);
                        same_float(dst[k], add ? before[k] + f : f, isas[i], k);
                    }
                    same_float(dst[cols], before[cols], isas[i], cols);
                }
            free(codes);
        }
}

/* Codes under a scale for each column, there and back. */
static void test_scaled(void **state)
{
    (void)state;
    for (uint32_t bits = 2; bits <= 8; bits++)
        for (int round = 0; round < 12; round++) {
            uint64_t cols = 1 + rnd() % 699, bytes = (cols * bits + 7) / 8;
            uint8_t *codes = malloc(bytes + 1);
            int      q = (1 << (bits - 1)) - 1;
            float    x[700], inv[700], before[701], dst[701];
            assert_non_null(codes);
            for (uint64_t i = 0; i <= cols; i++)
                before[i] = hard(3);
            for (uint64_t i = 0; i < cols; i++) {
                x[i] = rnd() % 50 ? ldexpf((float)(int32_t)rnd(), -30)
                                  : (float[]){ NAN, -INFINITY }[i % 2];
                inv[i] = ldexpf(1 + fabsf(hard(3)), (int)(rnd() % bits) - 1);
            }
            for (int i = 0; i < 3; i++) {
                if (!enc[i])
                    continue;
                codes[bytes] = 0xa5;
                enc[i]->scaled_encode(bits, cols, x, inv, codes);
                assert_int_equal(codes[bytes], 0xa5);
                uint8_t *exact = malloc(bytes); /* no byte more can be read */
                assert_non_null(exact);
                memcpy(exact, codes, bytes);
                for (uint64_t k = 0; k < cols; k++) {
                    float y = rintf(fminf(fmaxf(x[k] * inv[k], (float)-q), (float)q));
                    assert_int_equal(code_at(codes, k, bits), isfinite(x[k]) ? (int)y + q + 1 : 0);
                }
                for (int add = 0; add < 2; add++) {
                    memcpy(dst, before, sizeof dst);
                    enc[i]->scaled_decode(bits, cols, exact, inv, dst, add);
                    for (uint64_t k = 0; k < cols; k++) {
                        int   c = (int)code_at(exact, k, bits);
                        float f = c ? (float)(c - q - 1) * inv[k] : NAN;
                        same_float(dst[k], add ? before[k] + f : f, isas[i], k);
                    }
                    same_float(dst[cols], before[cols], isas[i], cols);
                }
                free(exact);
            }
            free(codes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mx_decode),
                                        cmocka_unit_test(test_scaled) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
