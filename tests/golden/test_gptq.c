/* gptq against recorded results of the published code on 27 cases: as published it is that code,
 * by default it is better on every case, and what it reports is true. */
#include "gptq_case.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Options as recorded, the rest by default: the error is at most 1.05 times the recorded one on
 * each case and below rounding to nearest; over all cases it is a third smaller at least. */
static void test_recorded(void **state)
{
    static const int64_t scales[2] = { TSR_F32, TSR_F16 };
    size_t               i;
    const json_t        *c;
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        double product = 0.0;
        json_array_foreach (json_object_get(gptq_cases, "cases"), i, c) {
            struct gptq_case   p = gptq_case_open(c);
            struct gptq_result r;
            p.o.scale = scales[variant];
            gptq_quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
            gptq_must(r.status, &r.err);
            double error = gptq_layer_error(p.w, r.dense, p.h, p.rows, p.cols);
            if (!(error <= 1.05 * p.reference) || !(error < p.rtn))
                fail_msg("%s: layer error %g, recorded %g, rounding to nearest %g", p.name, error,
                         p.reference, p.rtn);
            product += log(error / p.reference);
            /* F32 sums of a few hundred terms; where H has no full rank the loss is what is left
             * of far larger terms */
            double slack = strstr(p.name, "_F_") ? 1e-2 : 1e-4;
            if (!(fabs(r.report.loss - error) <= slack * error))
                fail_msg("%s: reports a loss of %g, it is %g", p.name, r.report.loss, error);
            if (variant == 0 && !(fabs(r.report.rtn_loss - p.rtn) <= 1e-4 * p.rtn))
                fail_msg("%s: reports rtn's loss as %g, recorded %g", p.name, r.report.rtn_loss,
                         p.rtn);
            assert_true(r.report.damping == p.o.damp && r.report.retries == 0);
            gptq_result_free(&r);
            gptq_case_close(&p);
        }
        assert_int_equal(i, 27);
        double mean = exp(product / (double)i);
        print_message("geometric mean of the layer errors over the recorded ones: %.4f\n", mean);
        assert_true(mean <= 0.75);
    }
}

static uint64_t codes_that_differ(const struct gptq_case *p, const struct gptq_result *r,
                                  const float *q)
{
    uint64_t n = 0;
    for (uint64_t row = 0; row < p->rows; row++) {
        const float *scale = (const float *)(const void *)((const char *)r->packed->meta +
                                                           row * r->packed->meta_stride);
        for (uint64_t k = 0; k < p->cols; k++) {
            double d = fabs((double)r->dense[row * p->cols + k] - (double)q[row * p->cols + k]);
            n += !(d <= 0.5 * (double)scale[k / p->width]);
        }
    }
    return n;
}

static void check_params(const struct gptq_case *p, const struct gptq_result *r, bool equal)
{
    float *scale = gptq_tensor(json_string_value(json_object_get(p->c, "scale")));
    float *zero = gptq_tensor(json_string_value(json_object_get(p->c, "zero")));
    for (uint64_t row = 0; row < p->rows; row++) {
        const unsigned char *meta =
            (const unsigned char *)r->packed->meta + row * r->packed->meta_stride;
        for (uint64_t g = 0; g < p->groups; g++) {
            float got, want = scale[row * p->groups + g];
            int   mid = 1 << (p->o.bits - 1), z = p->o.symmetric ? mid : meta[4 * p->groups + g];
            memcpy(&got, meta + 4 * g, sizeof got);
            /* scales that carry feedback have sums in another order behind them */
            if (equal ? !(got == want) : !(fabsf(got - want) <= 1e-3f * want))
                fail_msg("%s: row %d group %d: scale %.9g, recorded %.9g", p->name, (int)row,
                         (int)g, (double)got, (double)want);
            if (equal && (float)z != zero[row * p->groups + g])
                fail_msg("%s: row %d group %d: zero point %d, recorded %g", p->name, (int)row,
                         (int)g, z, (double)zero[row * p->groups + g]);
        }
    }
    free(scale);
    free(zero);
}

/* Without refinement and with parameters by range it is the published method: the recorded
 * codes, scales and zero points, where groups are gptq_found as the recorded code finds them: whole rows,
 * static groups, and groups that begin with a block of columns. */
static void test_published(void **state)
{
    size_t        i;
    const json_t *c;
    uint64_t      compared = 0;
    (void)state;
    json_array_foreach (json_object_get(gptq_cases, "cases"), i, c) {
        struct gptq_case p = gptq_case_open(c);
        bool             fixed = p.o.group < 0 || p.o.static_groups;
        p.o.params = GPTQ_RANGE;
        p.o.refine = 0;
        if (fixed || (!p.o.act_order && p.o.group == 128)) {
            struct gptq_result r;
            float             *q = gptq_tensor(json_string_value(json_object_get(c, "Q")));
            gptq_quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
            gptq_must(r.status, &r.err);
            check_params(&p, &r, fixed);
            uint64_t differ = codes_that_differ(&p, &r, q);
            double   error = gptq_layer_error(p.w, r.dense, p.h, p.rows, p.cols);
            /* the recorded code in double differs from itself in 0.4 % of the codes and 3.4 % of
             * the error where H has 60 of 160 ranks, and by 0.4 % of the error at most elsewhere */
            double room = strstr(p.name, "_F_") ? 0.05 : 0.02;
            if (!(differ * 100 <= 3 * p.rows * p.cols) ||
                !(fabs(error / p.reference - 1.0) <= room))
                fail_msg("%s: %d codes differ, layer error %g, recorded %g", p.name, (int)differ,
                         error, p.reference);
            compared++;
            free(q);
            gptq_result_free(&r);
        }
        gptq_case_close(&p);
    }
    assert_int_equal(compared, 19);
}

/* A sweep never makes e (H + ridge) e^T larger; the ridge is small beside what is compared. */
static void test_refinement_helps(void **state)
{
    struct gptq_case p = gptq_case_named("04_A_b4_g64_sym");
    double           before = INFINITY;
    float           *damped = tsr_new(p.cols * p.cols, sizeof *damped);
    double           mean = 0.0;
    (void)state;
    assert_non_null(damped);
    memcpy(damped, p.h, p.cols * p.cols * sizeof *damped);
    for (uint64_t k = 0; k < p.cols; k++)
        mean += (double)p.h[k * p.cols + k] / (double)p.cols;
    for (uint64_t k = 0; k < p.cols; k++)
        damped[k * p.cols + k] += (float)(p.o.damp * mean);
    for (int64_t sweeps = 0; sweeps < 4; sweeps++) {
        struct gptq_result r;
        p.o.refine = sweeps;
        gptq_quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
        gptq_must(r.status, &r.err);
        double now = gptq_layer_error(p.w, r.dense, damped, p.rows, p.cols);
        assert_true(sweeps == 1 ? now < 0.95 * before : now <= before * (1 + 1e-6));
        before = now;
        gptq_result_free(&r);
    }
    free(damped);
    gptq_case_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_refinement_helps),
    };
    return cmocka_run_group_tests(tests, gptq_setup, gptq_teardown);
}
