/* LLM.int8 as the CPU backend runs it, against recorded runs of bitsandbytes' CPU operators.  A row is
 * its own here; where the recorded rows change each other (several, with outliers), the scheme in double
 * stands between: with the outlier columns of all rows it is the record, with a row's own it is ours. */
#include "cpu_fixture.h"

#include <math.h>
#include <stdio.h>

#include "base/f16.h"
#include "base/json.h"
#include "checkpoint/safetensors/safetensors.h"

static struct tsr_safetensors st;

static const struct tsr_safetensors_tensor *info(const json_t *c, const char *key)
{
    const char *name = json_string_value(json_object_get(c, key));
    if (!name)
        return NULL;
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&st, name);
    assert_non_null(t);
    return t;
}

/* Elements as F32 (or as they are for I32); NULL if the case has none. */
static void *tensor(const json_t *c, const char *key, uint64_t *n)
{
    const struct tsr_safetensors_tensor *t = info(c, key);
    if (!t)
        return NULL;
    uint64_t bytes = t->end - t->begin;
    void    *raw = malloc(bytes);
    assert_non_null(raw);
    assert_int_equal(tsr_safetensors_read(&st, t, raw, NULL), TSR_OK);
    if (strcmp(t->dtype_name, "I32") == 0) {
        *n = bytes / 4;
        return raw;
    }
    *n = bytes / tsr_dtype_size(t->dtype);
    float *wide = malloc(*n * 4);
    assert_non_null(wide);
    tsr_widen(wide, raw, t->dtype, *n);
    free(raw);
    return wide;
}

/* The scheme in double, as `conventions` in the index has it; together: a column that is an outlier in one
 * row is none of the codes' in all rows, and all of the outliers'. */
static void scheme(const json_t *c, const float *x, const float *scb, const int32_t *cb,
                   const float *bias, uint64_t T, uint64_t N, uint64_t K, bool together, double *y)
{
    uint64_t na, ns;
    float   *sca = tensor(c, "SCA", &ns);
    int32_t *ca = tensor(c, "CA", &na);
    float    threshold = (float)json_number_value(json_object_get(c, "threshold"));
    bool    *any = calloc(K, sizeof *any);
    assert_non_null(any);
    for (uint64_t i = 0; i < T * K && threshold > 0; i++)
        any[i % K] = any[i % K] || fabsf(x[i]) >= threshold;
    for (uint64_t t = 0; t < T; t++)
        for (uint64_t n = 0; n < N; n++) {
            double codes = 0, outliers = 0,
                   scale = (double)sca[t] * (double)scb[n] / (127.0 * 127.0);
            for (uint64_t k = 0; k < K; k++) {
                float v = x[t * K + k], m = sca[t] > 0 ? 127.0f * (1.0f / sca[t]) : 0;
                bool  here = threshold > 0 && fabsf(v) >= threshold, out = together ? any[k] : here;
                double w = (double)cb[n * K + k];
                if (out)
                    outliers += (double)v * w * (double)scb[n] / 127.0;
                else
                    codes += (any[k] ? (double)rintf(v * m) : (double)ca[t * K + k]) * w;
            }
            y[t * N + n] = codes * scale + outliers + (bias ? (double)bias[n] : 0);
        }
    free(any);
    free(ca);
    free(sca);
}

static void one_case(const json_t *c)
{
    const struct tsr_safetensors_tensor *w = info(c, "W"), *xs = info(c, "X");
    uint64_t          N = w->shape[0], K = w->shape[1], T = xs->shape[0], nx, nb, ny, ns, n0;
    const char       *name = json_string_value(json_object_get(c, "name"));
    float            *x = tensor(c, "X", &nx), *bias = tensor(c, "bias", &n0);
    float            *scb = tensor(c, "SCB", &ns);
    float            *y64 = tensor(c, "output_float64_rounded_to_F32", &ny);
    int32_t          *cb = tensor(c, "CB", &nb);
    uint8_t          *codes = malloc(N * K);
    struct tsr_format f = {
        .struct_size = sizeof f,
        .id = TSR_FORMAT_INT,
        .bits = 8,
        .zero = TSR_ZERO_MID,
        .scale_dtype = TSR_F32,
        .act8 = TSR_ACT8_LLM,
        .act8_threshold = json_number_value(json_object_get(c, "threshold")),
    };
    assert_true(codes && nx == T * K && nb == N * K && ns == N && ny == T * N);
    double *own = malloc(T * N * sizeof *own);
    assert_non_null(own);
    for (uint64_t i = 0; i < N * K; i++)
        codes[i] = (uint8_t)(cb[i] + 128);
    scheme(c, x, scb, cb, bias, T, N, K, true, own);
    for (uint64_t i = 0; i < T * N; i++) /* the record is rounded to F32 */
        if (!(fabs(own[i] - (double)y64[i]) <= 0x1p-23 * fabs((double)y64[i]) + 1e-9))
            fail_msg("%s: output %llu in double is %.9g, recorded %.9g", name,
                     (unsigned long long)i, own[i], (double)y64[i]);
    scheme(c, x, scb, cb, bias, T, N, K, false, own);
    for (uint64_t i = 0; i < N; i++)
        scb[i] /= 127.0f;
    /* The output in double differs from F32 by a few roundings: of an exact integer times
     * scales, of the outliers' sum, of the bias: 2^-21 of the largest. */
    double top = 0;
    for (uint64_t i = 0; i < T * N; i++)
        top = fmax(top, fabs((double)y64[i]));
    double tolerance = top * 0x1p-21;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu        *dut = cpu_new(test_isas[isa]);
        void                  *h = NULL;
        struct tsr_weight_desc d = { .struct_size = sizeof d,
                                     .name = name,
                                     .format = &f,
                                     .rows = N,
                                     .cols = K,
                                     .codes = codes,
                                     .meta = scb,
                                     .code_stride = K,
                                     .meta_stride = 4 };
        if (!dut)
            continue;
        assert_int_equal(tsr_cpu_weight_load(dut, &d, &h, NULL), TSR_OK);
        struct tsr_tensor out = dev(dut, NULL, TSR_F32, T, N, 0),
                          in = dev(dut, x, TSR_F32, T, K, 0);
        struct tsr_tensor b = dev(dut, bias, TSR_F32, 1, N, 0);
        struct tsr_op     op = { .struct_size = sizeof op,
                                 .kind = TSR_OP_LINEAR,
                                 .out = &out,
                                 .in = { &in, bias ? &b : NULL },
                                 .weight = h,
                                 .act = TSR_ACT_A8 };
        run_ok(dut, &op);
        float *got = host_of(dut, &out);
        double worst = 0;
        for (uint64_t i = 0; i < T * N; i++) {
            double e = fabs((double)got[i] - own[i]);
            if (!(e <= tolerance))
                fail_msg("%s on %s: output %llu is %g instead of %g", name, test_isas[isa],
                         (unsigned long long)i, (double)got[i], own[i]);
            worst = fmax(worst, e);
        }
        print_message("%s on %s: %g of %g\n", name, test_isas[isa], worst, tolerance);
        free(got);
        undev(dut, &out);
        undev(dut, &in);
        undev(dut, &b);
        tsr_cpu_weight_free(dut, h);
        tsr_cpu_destroy(dut);
    }
    free(x);
    free(bias);
    free(scb);
    free(y64);
    free(own);
    free(cb);
    free(codes);
}

/* The activations' codes and scales, all cases, bit for bit.  A scale leaves out outlier elements only, so
 * it is that of the row alone; codes are too but in a column that is an outlier in another row, which
 * the recorded program clears in all rows and we do not. */
static void codes_of(const json_t *c)
{
    const struct tsr_safetensors_tensor *xs = info(c, "X");
    uint64_t                             T = xs->shape[0], K = xs->shape[1], nx, na, ns;
    const char                          *name = json_string_value(json_object_get(c, "name"));
    float                               *x = tensor(c, "X", &nx), *sca = tensor(c, "SCA", &ns);
    int32_t                             *ca = tensor(c, "CA", &na);
    float     threshold = (float)json_number_value(json_object_get(c, "threshold"));
    int8_t   *q = malloc(K + 64);
    uint32_t *found = malloc(K * sizeof *found);
    assert_true(q && found && nx == T * K && na == T * K && ns == T);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *dut = cpu_new(test_isas[isa]);
        for (uint64_t t = 0; dut && t < T; t++) {
            float    sa = NAN;
            int32_t  sum;
            uint64_t n = dut->k->extra->llm_prepare(x + t * K, K, threshold, q, (K + 63) / 64 * 64,
                                                    &sa, &sum, found);
            uint64_t outliers = 0;
            if (!(sa == sca[t] / 127.0f))
                fail_msg("%s on %s: scale of token %llu is %a, recorded %a / 127", name,
                         test_isas[isa], (unsigned long long)t, (double)sa, (double)sca[t]);
            for (uint64_t k = 0; k < K; k++) {
                bool elsewhere = false, here = threshold > 0 && fabsf(x[t * K + k]) >= threshold;
                for (uint64_t u = 0; u < T && threshold > 0; u++)
                    elsewhere = elsewhere || fabsf(x[u * K + k]) >= threshold;
                outliers += here;
                if (here || !elsewhere)
                    assert_int_equal(q[k], ca[t * K + k]);
            }
            assert_int_equal(n, outliers);
        }
        tsr_cpu_destroy(dut);
    }
    free(x);
    free(sca);
    free(ca);
    free(q);
    free(found);
}

static void recorded_codes(void **state)
{
    (void)state;
    json_t *root = NULL;
    size_t  i;
    json_t *c;
    assert_int_equal(tsr_json_load(&root, TEST_GOLDEN "/quant/int8.json", 1 << 20, 8, NULL),
                     TSR_OK);
    assert_int_equal(tsr_safetensors_open(&st, TEST_GOLDEN "/quant/int8.safetensors", NULL),
                     TSR_OK);
    json_array_foreach (json_object_get(root, "cases"), i, c)
        codes_of(c);
    assert_int_equal(i, 6);
    tsr_safetensors_close(&st);
    json_decref(root);
}

static void recorded_runs(void **state)
{
    (void)state;
    json_t *root = NULL, *c;
    size_t  i;
    assert_int_equal(tsr_json_load(&root, TEST_GOLDEN "/quant/int8.json", 1 << 20, 8, NULL),
                     TSR_OK);
    assert_int_equal(tsr_safetensors_open(&st, TEST_GOLDEN "/quant/int8.safetensors", NULL),
                     TSR_OK);
    json_array_foreach (json_object_get(root, "cases"), i, c)
        one_case(c);
    assert_int_equal(i, 6);
    tsr_safetensors_close(&st);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recorded_runs),
                                        cmocka_unit_test(recorded_codes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
