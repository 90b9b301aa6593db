/* The residual quantizer: public vectors, a grid written as loops, packing, and what a linear loses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/json.h"
#include "base/rng.h"
#include "compensate/residual.h"
#include "compensate/select.h"

#include <math.h>

static json_t *vectors(void)
{
    json_error_t e;
    json_t      *all = json_load_file(TEST_GOLDEN "/dec/vectors.json", 0, &e);
    assert_non_null(all);
    return all;
}

static double num(const json_t *j, const char *key)
{
    assert_true(json_is_number(json_object_get(j, key)));
    return json_number_value(json_object_get(j, key));
}

static void test_floors(void **state)
{
    json_t       *all = vectors(), *v = json_object_get(all, "bucket_floors_example");
    const json_t *want = json_object_get(v, "floors");
    float         floors[32];
    (void)state;
    tsr_compensate_select_floors((float)num(v, "b0"), (float)num(v, "b15"), floors);
    assert_int_equal(json_array_size(want), 32);
    for (size_t i = 0; i < 32; i++)
        assert_true((double)floors[i] == json_number_value(json_array_get(want, i)));
    json_decref(all);
}

static void test_fit_vectors(void **state)
{
    json_t *all = vectors(), *v;
    json_t *list = json_object_get(json_object_get(all, "residual_quantizer_vectors"), "vectors");
    size_t  at;
    (void)state;
    assert_int_equal(json_array_size(list), 4);
    json_array_foreach (list, at, v) {
        const json_t                      *bits = json_object_get(v, "residual_fp16_bits");
        const json_t                      *q = json_object_get(v, "q");
        size_t                             n = json_array_size(bits);
        float                              r[64];
        int8_t                             code[64];
        struct tsr_compensate_residual_fit fit;
        assert_int_equal(n, 64);
        for (size_t i = 0; i < n; i++)
            r[i] = tsr_f16_f32(
                (uint16_t)strtoul(json_string_value(json_array_get(bits, i)), NULL, 16));
        assert_int_equal(tsr_compensate_residual_fit(r, n, 4, code, &fit, NULL), TSR_OK);
        assert_int_equal(fit.candidate, (int)num(v, "best_index"));
        assert_true((double)fit.scale == num(v, "best_scale_f32"));
        assert_true((double)tsr_f16_f32(fit.stored) == num(v, "stored_scale_fp16"));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(code[i], json_integer_value(json_array_get(q, i)));
        /* theirs is a mean in F32 */
        assert_true(fabs(fit.loss / 64 / num(v, "mse") - 1) < 1e-5);
    }
    json_decref(all);
}

/* The grid in the words of the page, with rint() and a plain sum. */
static void test_fit_grid(void **state)
{
    static const uint32_t widths[] = { 2, 4, 8 };
    (void)state;
    for (uint64_t c = 0; c < 60; c++) {
        uint32_t bits = widths[c % 3];
        uint64_t n = 1 + c * 7;
        float    r[500], qmax = (float)((1 << (bits - 1)) - 1), most = 0;
        int8_t   q[500];
        for (uint64_t i = 0; i < n; i++) {
            r[i] = (float)(tsr_normal(7, c, i) * 0.01);
            most = fmaxf(most, fabsf(r[i]));
        }
        struct tsr_compensate_residual_fit fit;
        assert_int_equal(tsr_compensate_residual_fit(r, n, bits, q, &fit, NULL), TSR_OK);
        float    high = tsr_f16_f32(tsr_f32_f16(most / qmax));
        float    low = tsr_f16_f32(tsr_f32_f16(high / 32)), step = (high - low) / 31;
        double   best = INFINITY, loss[32];
        uint32_t first = 0;
        for (uint32_t i = 0; i < 32; i++) {
            float s = i < 16 ? low + step * (float)i : high - step * (float)(31 - i);
            loss[i] = 0;
            for (uint64_t k = 0; k < n; k++) {
                float v = fminf(fmaxf(rintf(r[k] / s), -qmax), qmax), e = v * s - r[k];
                loss[i] += (double)e * (double)e;
            }
            if (loss[i] < best) {
                best = loss[i];
                first = i;
            }
        }
        /* another order of the sum may decide between two that are equal but for rounding */
        assert_true(loss[fit.candidate] <= best * (1 + 1e-12));
        if (n < 9)
            assert_int_equal(fit.candidate, first);
        for (uint64_t k = 0; k < n; k++)
            assert_int_equal(q[k], (int)fminf(fmaxf(rintf(r[k] / fit.scale), -qmax), qmax));
    }
}

static void test_fit_ends(void **state)
{
    float  zero[5] = { 0 }, tiny[2] = { 1e-12f, -1e-12f }, huge[2] = { 1, 1e30f };
    int8_t q[5];
    struct tsr_compensate_residual_fit fit;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    (void)state;
    for (uint32_t bits = 2; bits <= 8; bits *= 2) {
        memset(q, 1, sizeof q);
        assert_int_equal(tsr_compensate_residual_fit(zero, 5, bits, q, &fit, NULL), TSR_OK);
        assert_true(fit.stored == 0 && q[0] == 0 && q[4] == 0 && fit.loss == 0);
        assert_int_equal(tsr_compensate_residual_fit(tiny, 2, bits, q, &fit, NULL), TSR_OK);
        assert_true(fit.stored == 0 && q[0] == 0 && q[1] == 0);
        assert_true(fit.loss > 1.9e-24 && fit.loss < 2.1e-24);
    }
    assert_int_equal(tsr_compensate_residual_fit(huge, 2, 4, q, &fit, &err.err), TSR_E_UNSUPPORTED);
    assert_true(error_is(&err.err, "", "1e+30"));
}

/* ---- a linear ------------------------------------------------------------------------------------ */

/* Packed as int of 4 bits, group 0, scales F32: zeros for all codes, so that the packed weight is 0 and what
 * is lost is the weight. */
static void packed_zero(struct tsr_model_packed *p, uint64_t rows, uint64_t cols)
{
    *p = (struct tsr_model_packed){ .rows = rows, .cols = cols };
    p->format = (struct tsr_format){
        .struct_size = sizeof p->format, .id = TSR_FORMAT_INT, .bits = 4, .scale_dtype = TSR_F32
    };
    p->code_stride = tsr_model_format_code_bytes(&p->format, cols);
    p->meta_stride = tsr_model_format_meta_bytes(&p->format, cols);
    p->codes = malloc(rows * p->code_stride);
    p->meta = calloc(rows, p->meta_stride);
    assert_true(p->codes && p->meta);
    memset(p->codes, 0x88, rows * p->code_stride);
}

/* Both the paper's packing vector and values of any width, through the whole of a linear. */
static void test_packing(void **state)
{
    json_t       *all = vectors(), *v = json_object_get(all, "packing_vector");
    const json_t *q = json_object_get(v, "q_out_by_in"), *s = json_object_get(v, "scales");
    const json_t *hex = json_object_get(v, "packed_in_by_word_hex");
    uint64_t      outputs = json_array_size(q), inputs = json_array_size(json_array_get(q, 0));
    struct tsr_model_packed        p;
    struct tsr_compensate_residual r = { 0 };
    float                          w[16 * 4];
    (void)state;
    assert_true(outputs == 16 && inputs == 4);
    /* beside every row of codes a 7, so that the grid's last scale is the vector's */
    for (uint64_t n = 0; n < outputs; n++)
        for (uint64_t i = 0; i < inputs; i++)
            w[n * inputs + i] = (float)json_integer_value(json_array_get(json_array_get(q, n), i)) *
                                (float)json_number_value(json_array_get(s, n));
    packed_zero(&p, outputs, inputs);
    struct tsr_matrix                     m = { .struct_size = sizeof m,
                                                .dtype = TSR_F32,
                                                .name = "w",
                                                .data = w,
                                                .rows = outputs,
                                                .cols = inputs,
                                                .row_stride = inputs * 4 };
    struct tsr_compensate_residual_source src = { .w = &m, .packed = &p };
    struct tsr_compensate_residual_report rep;
    assert_int_equal(tsr_compensate_residual_make(&r, NULL, &src, 4, NULL, &rep, NULL), TSR_OK);
    assert_int_equal(r.stride, 64);
    /* rows whose largest code is 7 have the vector's scale, and then its words */
    for (uint64_t i = 0; i < inputs; i++)
        for (uint64_t n = 0; n < outputs; n++) {
            uint64_t word =
                strtoul(json_string_value(json_array_get(json_array_get(hex, i), n / 8)), NULL, 16);
            bool seven = false;
            for (uint64_t k = 0; k < inputs; k++)
                seven = seven ||
                        llabs(json_integer_value(json_array_get(json_array_get(q, n), k))) == 7;
            if (!seven)
                continue;
            uint32_t got;
            memcpy(&got, r.codes + i * r.stride + n / 8 * 4, 4);
            assert_true(tsr_f16_f32(r.scales[n]) == (float)json_number_value(json_array_get(s, n)));
            assert_int_equal(got >> n % 8 * 4 & 15, word >> n % 8 * 4 & 15);
        }
    /* a fused kernel takes scales by nibble and word: concatenated first, reordered then */
    const json_t *order = json_object_get(v, "reordered_scales");
    for (uint64_t n = 0; n < 8; n++)
        for (uint64_t c = 0; c < outputs / 8; c++)
            assert_true(json_number_value(json_array_get(order, n * (outputs / 8) + c)) ==
                        json_number_value(json_array_get(s, 8 * c + n)));
    tsr_compensate_residual_free(&r);
    free(p.codes);
    free(p.meta);
    json_decref(all);
}

static void test_linear(void **state)
{
    static const uint32_t   widths[] = { 2, 4, 8, 16 };
    static const float      most[] = { 0.6f, 0.12f, 0.007f,
                                       1e-6f }; /* of the energy: 1 step of b bits */
    uint64_t                N = 150, K = 70;
    float                  *w = malloc(N * K * 4), *cols = malloc(K * 4), *rows = malloc(N * 4);
    struct tsr_model_packed p;
    (void)state;
    assert_true(w && cols && rows);
    for (uint64_t i = 0; i < N * K; i++)
        w[i] = (float)tsr_normal(3, 0, i);
    for (uint64_t i = 0; i < K; i++)
        cols[i] = (float)(0.5 + tsr_uniform(3, 1, i));
    for (uint64_t i = 0; i < N; i++)
        rows[i] = (float)(0.5 + tsr_uniform(3, 2, i));
    packed_zero(&p, N, K);
    struct tsr_matrix m = { .struct_size = sizeof m,
                            .dtype = TSR_F32,
                            .name = "w",
                            .data = w,
                            .rows = N,
                            .cols = K,
                            .row_stride = K * 4 };
    struct tsr_pool  *pool = NULL;
    assert_int_equal(tsr_pool_create(&pool, 2, NULL), TSR_OK);
    for (int b = 0; b < 4; b++) {
        struct tsr_compensate_residual_source src = {
            .w = &m, .packed = &p, .columns = cols, .rows = rows
        };
        struct tsr_compensate_residual        one = { 0 }, two = { 0 };
        struct tsr_compensate_residual_report rep, again;
        double                                energy[70], before = 0, after = 0, sum = 0;
        assert_int_equal(tsr_compensate_residual_make(&one, NULL, &src, widths[b], energy, &rep,
                                                      NULL),
                         TSR_OK);
        assert_int_equal(tsr_compensate_residual_make(&two, pool, &src, widths[b], NULL, &again,
                                                      NULL),
                         TSR_OK);
        assert_int_equal(one.stride, two.stride);
        assert_memory_equal(one.codes, two.codes, one.inputs * one.stride);
        if (widths[b] != 16)
            assert_memory_equal(one.scales, two.scales, one.outputs * 2);
        assert_true(rep.before == again.before && rep.after == again.after);
        for (uint64_t i = 0; i < K; i++) {
            double e = 0;
            for (uint64_t n = 0; n < N; n++) {
                double v = (double)(w[n * K + i] * cols[i] / rows[n]);
                double d = v - (double)tsr_compensate_residual_value(&one, i, n);
                e += v * v;
                before += v * v;
                after += d * d;
            }
            sum += e;
            assert_true(fabs(energy[i] / e - 1) < 1e-12);
        }
        assert_true(fabs(rep.before / before - 1) < 1e-12);
        /* the engine's product of code and scale is rounded to F32 once */
        assert_true(fabs(rep.after / after - 1) < 1e-5);
        assert_true(after < (double)most[b] * sum);
        tsr_compensate_residual_free(&one);
        tsr_compensate_residual_free(&two);
    }
    tsr_pool_destroy(pool);
    free(p.codes);
    free(p.meta);
    free(w);
    free(cols);
    free(rows);
}

/* ---- the other ways to select ---------------------------------------------------------------------- */

static void test_baselines(void **state)
{
    uint32_t scratch[3000], list[3001], other[3001];
    float    x[3000];
    (void)state;
    for (uint64_t c = 0; c < 40; c++) {
        uint64_t n = 1 + c * 73, count = (n * (c % 7)) / 6;
        for (uint64_t i = 0; i < n; i++)
            x[i] = c % 2 ? (float)tsr_normal(5, c, i) : (float)(int)(3 * tsr_normal(5, c, i));
        tsr_compensate_select_exact(x, n, count, list, scratch);
        assert_int_equal(list[0], count);
        /* each that is in is as large as each that is out, and of equals the lowest are in */
        bool in[3000] = { 0 };
        for (uint32_t i = 1; i <= list[0]; i++) {
            assert_true(i == 1 || list[i] > list[i - 1]);
            in[list[i]] = true;
        }
        float smallest = INFINITY;
        for (uint64_t i = 0; i < n; i++)
            smallest = in[i] ? fminf(smallest, fabsf(x[i])) : smallest;
        bool out_seen = false;
        for (uint64_t i = 0; i < n; i++) {
            assert_true(in[i] || !(fabsf(x[i]) > smallest));
            if (fabsf(x[i]) == smallest)
                assert_false(in[i] && out_seen);
            out_seen = out_seen || (!in[i] && fabsf(x[i]) == smallest);
        }
        tsr_compensate_select_random(9, c, 5, n, count, list);
        tsr_compensate_select_random(9, c, 5, n, count, other);
        assert_int_equal(list[0], count);
        assert_memory_equal(list, other, (count + 1) * 4);
        for (uint32_t i = 2; i <= list[0]; i++)
            assert_true(list[i] > list[i - 1] && list[i] < n);
        assert_int_equal(tsr_compensate_select_common(list, other), count);
    }
    /* every channel as often as any other: 4000 draws of 10 out of 100, four deviations */
    uint32_t hits[100] = { 0 };
    for (uint64_t t = 0; t < 4000; t++) {
        tsr_compensate_select_random(1, 2, t, 100, 10, list);
        for (uint32_t i = 1; i <= list[0]; i++)
            hits[list[i]]++;
    }
    for (int i = 0; i < 100; i++)
        assert_true(hits[i] > 400 - 4 * 19 && hits[i] < 400 + 4 * 19);
    x[0] = NAN;
    x[1] = -2;
    x[2] = 1;
    tsr_compensate_select_exact(x, 3, 3, list, scratch);
    assert_true(list[0] == 2 && list[1] == 1 && list[2] == 2);
    tsr_compensate_select_top(x, 3, 1, list, scratch);
    assert_true(list[0] == 1 && list[1] == 2);
    assert_int_equal(tsr_compensate_select_count(32, 4096), 128);
    assert_int_equal(tsr_compensate_select_count(16, 640), 10);
    assert_int_equal(tsr_compensate_select_count(8, 100), 0);
    assert_int_equal(tsr_compensate_select_count(1024, 17920), 17920);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floors),    cmocka_unit_test(test_fit_vectors),
        cmocka_unit_test(test_fit_grid),  cmocka_unit_test(test_fit_ends),
        cmocka_unit_test(test_packing),   cmocka_unit_test(test_linear),
        cmocka_unit_test(test_baselines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
