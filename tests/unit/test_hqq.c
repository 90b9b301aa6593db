/* hqq against vectors recorded from the program of its authors, and by what the method promises. */
#include "quant_golden.h"
#include "quantizer_fixture.h"

#include "format_ref.h"

extern const struct tsr_plugin tsr_builtin_hqq;
#define PLUGIN (&tsr_builtin_hqq)

static struct golden recorded;

static int setup(void **state)
{
    (void)state;
    golden_open(&recorded, "hqq");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    golden_close(&recorded);
    return 0;
}

/* A group's mean |e| with these codes; the weight of code c is c * scale + minimum. */
static double left(const float *w, const double *codes, uint64_t n, double scale, double minimum)
{
    double sum = 0.0;
    for (uint64_t k = 0; k < n; k++)
        sum += fabs((double)w[k] - (codes[k] * scale + minimum));
    return sum / (double)n;
}

/* Scales are the recorded ones.  The program ended at the first step that did not lower the error: either the minimum
 * is the recorded one, within a thousandth of a step, and so are the codes but where two are as near; or a later step
 * left less.  How many groups the latter are. */
static uint64_t check_case(const json_t *c, const float *w, uint64_t rows, uint64_t cols)
{
    const char *name = golden_str(c, "name");
    uint64_t    group = (uint64_t)golden_real(c, "group"), groups = rows * cols / group;
    uint64_t    each = cols / group, differ = 0, later = 0;
    uint32_t    bits = (uint32_t)golden_real(c, "bits");
    char        text[160], tensor[64];
    double      ours[256], theirs[256];
    assert_true(group <= 256);
    (void)snprintf(text, sizeof text, "bits=%u,group=%llu,norm=%g,scale=f32", bits,
                   (unsigned long long)group, golden_real(c, "norm"));
    (void)snprintf(tensor, sizeof tensor, "%s.scale", name);
    float *scale = golden_tensor(&recorded, tensor, groups);
    (void)snprintf(tensor, sizeof tensor, "%s.zero", name);
    float *zero = golden_tensor(&recorded, tensor, groups);
    (void)snprintf(tensor, sizeof tensor, "%s.codes", name);
    float            *codes = golden_tensor(&recorded, tensor, rows * cols);
    struct tsr_matrix m = golden_matrix("w", w, rows, cols);
    struct made       q = quantize(PLUGIN, text, &m, NULL);
    if (q.status != TSR_OK)
        fail_msg("%s: %s", name, q.err.text);
    for (uint64_t i = 0; i < groups; i++) {
        const unsigned char *meta = q.meta + i / each * q.plan.meta_bytes;
        float                s, minimum;
        uint64_t             others = 0;
        memcpy(&s, meta + i % each * 4, 4);
        memcpy(&minimum, meta + (each + i % each) * 4, 4);
        double step = 1.0 / (double)scale[i], want = -(double)zero[i] * step;
        if (!(fabs((double)s / step - 1.0) < 1e-6))
            fail_msg("%s group %d: scale %g, recorded %g", name, (int)i, (double)s, step);
        for (uint64_t k = 0; k < group; k++) {
            ours[k] =
                fixture_code(q.codes + i / each * q.plan.code_bytes, i % each * group + k, bits);
            theirs[k] = (double)codes[i * group + k];
            others += ours[k] != theirs[k];
        }
        double mine = left(w + i * group, ours, group, (double)s, (double)minimum);
        double of = left(w + i * group, theirs, group, step, want);
        if (fabs((double)minimum - want) < 1e-3 * (double)s) {
            differ += others;
        } else if (mine < of) {
            later++;
        } else {
            fail_msg(
                "%s group %d: minimum %g, recorded %g, steps of %g; mean error %g, recorded %g",
                name, (int)i, (double)minimum, want, (double)s, mine, of);
        }
    }
    if (differ > 3)
        fail_msg("%s: %d codes differ", name, (int)differ);
    if (later * 2 > groups)
        fail_msg("%s: %d of %d groups have another minimum", name, (int)later, (int)groups);
    made_free(&q);
    free(scale);
    free(zero);
    free(codes);
    return later;
}

static void test_recorded(void **state)
{
    (void)state;
    uint64_t rows = (uint64_t)golden_real(recorded.index, "rows");
    uint64_t cols = (uint64_t)golden_real(recorded.index, "cols");
    float   *w = golden_tensor(&recorded, "W", rows * cols);
    uint64_t later = 0;
    size_t   i;
    json_t  *c;
    json_array_foreach (json_object_get(recorded.index, "cases"), i, c)
        later += check_case(c, w, rows, cols);
    assert_int_equal(i, 14);
    assert_true(later > 0); /* an error that rises may fall below the least again */
    free(w);
}

static double mean_error(const char *text, const struct tsr_matrix *m)
{
    struct made q = quantize(PLUGIN, text, m, NULL);
    double      sum = 0.0;
    if (q.status != TSR_OK)
        fail_msg("%s: %s", text, q.err.text);
    for (uint64_t i = 0; i < m->rows * m->cols; i++)
        sum += fabs((double)q.dense[i] - (double)((const float *)m->data)[i]);
    made_free(&q);
    return sum;
}

/* The first step is rounding to nearest; what follows never raises a group's mean error, so neither the
 * sum over groups. */
static void test_never_worse(void **state)
{
    (void)state;
    static float w[8 * 512];
    for (uint64_t i = 0; i < 8 * 512; i++) {
        float x = fixture_noise(i);
        w[i] = 0.05f * x * x * x + 0.01f * fixture_noise(i / 64 + 9000);
    }
    struct tsr_matrix m = golden_matrix("w", w, 8, 512);
    for (int bits = 2; bits <= 8; bits++)
        for (int norm = 1; norm <= 10; norm += 3) {
            char first[128], all[128];
            (void)snprintf(first, sizeof first, "bits=%d,norm=%g,scale=f32,iterations=1", bits,
                           norm * 0.1);
            (void)snprintf(all, sizeof all, "bits=%d,norm=%g,scale=f32", bits, norm * 0.1);
            double before = mean_error(first, &m), after = mean_error(all, &m);
            if (!(after <= before * 1.000001))
                fail_msg("%s: %g after the first step, %g at the end", all, before, after);
            if (bits == 3 && norm == 7 && !(after < 0.99 * before))
                fail_msg("%s: %g, %g by rounding", all, after, before);
        }
}

/* Every layout that it writes, decoded by the reference. */
static void test_decoder(void **state)
{
    (void)state;
    static const char *const texts[] = { "bits=2", "bits=5,group=16,scale_bits=4",
                                         "bits=4,group=32,scale_bits=6",
                                         "bits=8,group=-1,scale=f32" };
    static float             w[4 * 300];
    float                    want[300];
    for (uint64_t i = 0; i < 4 * 300; i++)
        w[i] = i / 300 == 2 ? 0.25f : fixture_noise(i) + (i / 300 == 3 ? 2.0f : 0.0f);
    struct tsr_matrix m = golden_matrix("w", w, 4, 300);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct made q = quantize(PLUGIN, texts[i], &m, NULL);
        if (q.status != TSR_OK)
            fail_msg("%s: %s", texts[i], q.err.text);
        for (uint64_t r = 0; r < 4; r++) {
            assert_int_equal(tsr_ref_decode_row(&q.plan.format, 300,
                                                q.codes + r * q.plan.code_bytes,
                                                q.meta + r * q.plan.meta_bytes, want),
                             TSR_OK);
            for (uint64_t k = 0; k < 300; k++)
                assert_true(q.dense[r * 300 + k] == want[k]);
        }
        for (uint64_t k = 0; k < 300; k++) /* one value alone */
            assert_true(fabsf(q.dense[2 * 300 + k] - 0.25f) < 0.004f);
        made_free(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_recorded),
                                        cmocka_unit_test(test_never_worse),
                                        cmocka_unit_test(test_decoder) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
