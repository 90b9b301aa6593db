/* Angles and slopes against their formulas, written out by hand. */
#include "engine/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Two roundings of a double, where the code and the test take the steps in another order. */
#define TIGHT 4e-16

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%.17g is not %.17g", got, want);
}

static void plain_and_linear(void **state)
{
    struct tsr_model_rope r = { .theta = 10000, .dim = 8, .factor = 4, .attention_factor = 1 };
    double                inv[4];
    (void)state;
    tsr_engine_rope_frequencies(&r, 1, inv);
    near(inv[0], 1, TIGHT);
    near(inv[1], 0.1, TIGHT);
    near(inv[2], 0.01, TIGHT);
    near(inv[3], 0.001, TIGHT);
    r.scaling = TSR_MODEL_ROPE_LINEAR;
    tsr_engine_rope_frequencies(&r, 1, inv);
    near(inv[1], 0.025, TIGHT);
    assert_false(tsr_engine_rope_varies(&r));
}

/* Llama 3.1's own numbers: theta 500000, head of 128, factor 8, 1 and 4, 8192 positions. */
static void llama3(void **state)
{
    struct tsr_model_rope r = { .theta = 500000,
                                .dim = 128,
                                .scaling = TSR_MODEL_ROPE_LLAMA3,
                                .factor = 8,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4,
                                .original_positions = 8192,
                                .attention_factor = 1 };
    double                inv[64];
    int                   kept = 0, divided = 0, blended = 0;
    (void)state;
    tsr_engine_rope_frequencies(&r, 1, inv);
    for (int i = 0; i < 64; i++) {
        double f = pow(500000, -2.0 * i / 128), wavelength = 2 * acos(-1) / f;
        if (wavelength < 2048) {
            near(inv[i], f, TIGHT);
            kept++;
        } else if (wavelength > 8192) {
            near(inv[i], f / 8, TIGHT);
            divided++;
        } else {
            double smooth = (8192 / wavelength - 1) / 3;
            near(inv[i], f * ((1 - smooth) / 8 + smooth), 4 * TIGHT);
            blended++;
        }
    }
    /* the two borders lie at i = 28.3 and 35.02 */
    assert_int_equal(kept, 29);
    assert_int_equal(blended, 6);
    assert_int_equal(divided, 29);
}

static void longrope_takes_factors_by_length(void **state)
{
    float                 narrow[2] = { 1, 1.5f }, wide[2] = { 2, 8 };
    struct tsr_model_rope r = { .theta = 100,
                                .dim = 4,
                                .scaling = TSR_MODEL_ROPE_LONG,
                                .original_positions = 32,
                                .attention_factor = 1.25,
                                .long_ratio = 1.5f,
                                .short_factor = narrow,
                                .long_factor = wide };
    double                inv[2];
    float                 c[2], s[2];
    (void)state;
    assert_true(tsr_engine_rope_varies(&r));
    tsr_engine_rope_frequencies(&r, 32, inv);
    near(inv[0], 1, TIGHT);
    near(inv[1], 0.1 / 1.5, TIGHT);
    tsr_engine_rope_frequencies(&r, 33, inv);
    near(inv[0], 0.5, TIGHT);
    near(inv[1], 0.0125, TIGHT);
    tsr_engine_rope_angles(&r, inv, 41, 40, c, s);
    assert_true(c[0] == (float)(1.875 * cos(20.0)) && s[0] == (float)(1.875 * sin(20.0)));
    assert_true(c[1] == (float)(1.875 * cos(40 * inv[1])));
    tsr_engine_rope_angles(&r, inv, 32, 31, c, s);
    assert_true(c[0] == (float)(1.25 * cos(15.5)) && s[0] == (float)(1.25 * sin(15.5)));
}

/* At a position where an angle in F32 is already off by 1e-3, ours is the rounded double. */
static void far_positions_keep_their_angle(void **state)
{
    struct tsr_model_rope r = { .theta = 10000, .dim = 2, .attention_factor = 1 };
    double                inv[1];
    float                 c[1], s[1];
    (void)state;
    tsr_engine_rope_frequencies(&r, 1, inv);
    tsr_engine_rope_angles(&r, inv, 1, 1000003, c, s);
    assert_true(c[0] == (float)cos(1000003.0) && s[0] == (float)sin(1000003.0));
}

/* YaRN with theta 10000, head of 64, factor 4, 2048 positions, beta 32 and 1: dimensions
 * 64 ln(2048 / (beta 2 pi)) / (2 ln 10000) are 8.06 and 20.1, so the ramp runs from 8 to 21. */
static void yarn(void **state)
{
    struct tsr_model_rope r = { .theta = 10000,
                                .dim = 64,
                                .scaling = TSR_MODEL_ROPE_YARN,
                                .factor = 4,
                                .beta_fast = 32,
                                .beta_slow = 1,
                                .whole_ramp = true,
                                .original_positions = 2048,
                                .attention_factor = 1 };
    double                inv[32];
    (void)state;
    tsr_engine_rope_frequencies(&r, 1, inv);
    for (int i = 0; i < 32; i++) {
        double f = pow(10000, -i / 32.0);
        double ramp = i <= 8 ? 0 : i >= 21 ? 1 : (i - 8) / 13.0;
        near(inv[i], f * (1 - ramp) + f / 4 * ramp, 4 * TIGHT);
    }
}

static void dynamic_ntk(void **state)
{
    struct tsr_model_rope r = { .theta = 10000,
                                .dim = 8,
                                .scaling = TSR_MODEL_ROPE_DYNAMIC_NTK,
                                .factor = 2,
                                .original_positions = 100,
                                .attention_factor = 1 };
    double                inv[4];
    (void)state;
    tsr_engine_rope_frequencies(&r, 100, inv);
    near(inv[3], 0.001, TIGHT);
    tsr_engine_rope_frequencies(&r, 200, inv); /* theta * (2 * 2 - 1)^(8/6) */
    near(inv[3], pow(10000 * pow(3, 8 / 6.0), -0.75), 8 * TIGHT);
}

/* BLOOM's own slopes: 2^(-8 i / n) for a power of two; otherwise the odd steps of the next
 * power of two follow. */
static void alibi(void **state)
{
    float s[12];
    (void)state;
    tsr_engine_alibi_slopes(8, s);
    for (int i = 0; i < 8; i++)
        assert_true(s[i] == ldexpf(1, -(i + 1)));
    tsr_engine_alibi_slopes(6, s);
    static const float six[] = { 0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f };
    for (int i = 0; i < 6; i++)
        assert_true(s[i] == six[i]);
    tsr_engine_alibi_slopes(12, s);
    for (int i = 0; i < 4; i++)
        near((double)s[8 + i], exp2(-0.5 * (2 * i + 1)), 6e-8); /* one rounding to F32 */
    tsr_engine_alibi_slopes(1, s);
    assert_true(s[0] == 0x1p-8f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_linear),
        cmocka_unit_test(llama3),
        cmocka_unit_test(longrope_takes_factors_by_length),
        cmocka_unit_test(far_positions_keep_their_angle),
        cmocka_unit_test(yarn),
        cmocka_unit_test(dynamic_ntk),
        cmocka_unit_test(alibi),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
