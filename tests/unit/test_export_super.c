/* Blocks of GGUF types from numbers and from weights: recorded blocks go through packed rows and come back byte for byte; the
 * search is held against plain rounding and, on small groups, against trying everything. */
#include "checkpoint/export/gguf_super.h"

#include "base/f16.h"
#include "base/rng.h"
#include "checkpoint/safetensors/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS TSR_SOURCE_ROOT "/tests/golden/gguf/blocks.safetensors"

static const struct {
    const char *name;
    uint32_t    type;
} types[] = {
    { "Q4_0", TSR_GGUF_T_Q4_0 }, { "Q5_0", TSR_GGUF_T_Q5_0 }, { "Q8_0", TSR_GGUF_T_Q8_0 },
    { "Q4_1", TSR_GGUF_T_Q4_1 }, { "Q5_1", TSR_GGUF_T_Q5_1 }, { "Q2_K", TSR_GGUF_T_Q2_K },
    { "Q3_K", TSR_GGUF_T_Q3_K }, { "Q4_K", TSR_GGUF_T_Q4_K }, { "Q5_K", TSR_GGUF_T_Q5_K },
    { "Q6_K", TSR_GGUF_T_Q6_K },
};
#define TYPES (sizeof types / sizeof *types)

static unsigned char *blocks_of(const struct tsr_safetensors *st, const char *name, uint64_t *bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              key[64];
    (void)snprintf(key, sizeof key, "%s.blocks", name);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, key);
    assert_non_null(t);
    *bytes = t->end - t->begin;
    void *p = malloc(*bytes);
    assert_non_null(p);
    assert_int_equal(tsr_safetensors_read(st, t, p, &e.err), TSR_OK);
    return p;
}

/* One recorded row of a type, packed as a model has it, and written again. */
static void there_and_back(uint32_t type, const unsigned char *raw, uint64_t bytes)
{
    const struct tsr_export_gguf_levels *k = tsr_export_gguf_levels(type);
    struct tsr_model_packed              p = { .rows = 1 };
    const struct tsr_model_packed       *packs[1] = { &p };
    const struct tsr_matrix              matrix = { .rows = 1 };
    const struct tsr_matrix             *ws[1] = { &matrix };
    uint64_t                             rows = 1;
    struct tsr_model_stored_view         v = { .n = 1,
                                               .rows = 1,
                                               .kind = TSR_MODEL_STORED_LINEAR,
                                               .piece_rows = &rows,
                                               .w = ws,
                                               .packed = packs };
    struct tsr_export_module             m;
    unsigned char                        line[256];
    uint64_t                             each = tsr_export_gguf_row_bytes(type, k->elements);
    assert_true(tsr_gguf_format(type, &p.format));
    p.cols = v.cols = bytes / each * k->elements;
    p.code_stride = tsr_model_format_code_bytes(&p.format, p.cols);
    p.meta_stride = tsr_model_format_meta_bytes(&p.format, p.cols);
    p.codes = malloc(p.code_stride);
    p.meta = malloc(p.meta_stride);
    assert_true(p.codes && p.meta);
    assert_null(tsr_gguf_pack_row(type, raw, p.cols, p.codes, p.meta));
    tsr_export_module_of(&m, &v);
    for (size_t i = 0; i < TYPES; i++)
        assert_int_equal(tsr_export_gguf_is_super(tsr_export_gguf_levels(types[i].type), &m),
                         types[i].type == type);
    for (uint64_t b = 0; b < bytes / each; b++) {
        struct tsr_export_gguf_super s;
        tsr_export_gguf_take_super(k, &m, 0, b, &s);
        tsr_export_gguf_put_super(k, &s, line);
        assert_memory_equal(line, raw + b * each, each);
    }
    free(p.codes);
    free(p.meta);
}

static void recorded_blocks(void **state)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    (void)state;
    assert_int_equal(tsr_safetensors_open(&st, BLOCKS, &e.err), TSR_OK);
    for (size_t i = 0; i < TYPES; i++) {
        uint64_t       bytes;
        unsigned char *raw = blocks_of(&st, types[i].name, &bytes);
        there_and_back(types[i].type, raw, bytes);
        free(raw);
    }
    tsr_safetensors_close(&st);
}

/* ---- the search ------------------------------------------------------------------------------ */

#define COLS 512u

static void weights(uint64_t row, float *x, float *w)
{
    for (unsigned i = 0; i < COLS; i++) {
        double b = tsr_uniform(2, row, i);
        x[i] = (float)(0.01 * tsr_normal(1, row, i) * (i % 37 == 0 ? 4 : 1));
        w[i] = (float)(0.01 + b * b * (i % 29 == 0 ? 50 : 1));
    }
}

/* The row as a reader of the file gets it. */
static void read_back(const struct tsr_export_gguf_levels *k, const struct tsr_export_gguf_super *s,
                      float *y)
{
    unsigned char line[256];
    for (unsigned b = 0; b < COLS / k->elements; b++) {
        tsr_export_gguf_put_super(k, &s[b], line);
        tsr_gguf_widen(k->type, line, k->elements, y + b * k->elements);
    }
}

static double error_of(const float *x, const float *y, const float *w)
{
    double e = 0;
    for (unsigned i = 0; i < COLS; i++)
        e += (double)w[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return e;
}

/* Steps as wide as the largest magnitude asks for, or as the range does: what a search must be better than. */
static double plain_error(const struct tsr_export_gguf_levels *k, const float *x, const float *w)
{
    double e = 0;
    for (unsigned at = 0; at < COLS; at += k->group) {
        double lo = 0, hi = 0;
        for (unsigned i = 0; i < k->group; i++) {
            lo = fmin(lo, (double)x[at + i]);
            hi = fmax(hi, (double)x[at + i]);
        }
        double step = k->minimum ? (hi - lo) / k->top : fmax(-lo, hi) / (k->top - k->zero);
        for (unsigned i = 0; i < k->group && step > 0; i++) {
            double d = (double)x[at + i] - step * rint((double)x[at + i] / step);
            e += (double)w[at + i] * d * d;
        }
    }
    return e;
}

static void search(void **state)
{
    float x[COLS], w[COLS], y[COLS];
    (void)state;
    for (size_t i = 0; i < TYPES; i++) {
        const struct tsr_export_gguf_levels *k = tsr_export_gguf_levels(types[i].type);
        struct tsr_export_gguf_super         s[COLS / 32];
        double                               found = 0, plain = 0, unweighted = 0;
        for (unsigned row = 0; row < 8; row++) {
            weights(row, x, w);
            assert_true(tsr_export_gguf_fit_row(k, x, w, COLS, s));
            read_back(k, s, y);
            found += error_of(x, y, w);
            plain += plain_error(k, x, w);
            assert_true(tsr_export_gguf_fit_row(k, x, NULL, COLS, s));
            read_back(k, s, y);
            unweighted += error_of(x, y, w);
        }
        if (!(found < plain) || !(found <= unweighted))
            fail_msg("%s: error %g, rounding %g, without weights %g", types[i].name, found, plain,
                     unweighted);
    }
}

/* Zeros stay zeros, rows on the type's own grid are at most half a step off, and what is no number is refused. */
static void edges(void **state)
{
    float x[COLS] = { 0 }, y[COLS];
    (void)state;
    for (size_t i = 0; i < TYPES; i++) {
        const struct tsr_export_gguf_levels *k = tsr_export_gguf_levels(types[i].type);
        struct tsr_export_gguf_super         s[COLS / 32];
        memset(x, 0, sizeof x);
        assert_true(tsr_export_gguf_fit_row(k, x, NULL, COLS, s));
        read_back(k, s, y);
        assert_true(error_of(x, y, y) == 0 && fabsf(y[0]) == 0);
        for (unsigned c = 0; c < COLS; c++) /* every code, one step of 1/64 */
            x[c] = (float)((int)(c % (k->top + 1u)) - (int)k->zero) / 64;
        assert_true(tsr_export_gguf_fit_row(k, x, NULL, COLS, s));
        read_back(k, s, y);
        for (unsigned c = 0; c < COLS; c++)
            if (!(fabsf(x[c] - y[c]) <= 0.5f / 64))
                fail_msg("%s: column %u is %g for %g", types[i].name, c, (double)y[c],
                         (double)x[c]);
        x[COLS - 1] = NAN;
        assert_false(tsr_export_gguf_fit_row(k, x, NULL, COLS, s));
        x[COLS - 1] = 3e38f;
        assert_false(tsr_export_gguf_fit_row(k, x, NULL, COLS, s));
    }
}

static double quadratic(const float *h, const float *x, const float *y)
{
    double e = 0;
    for (unsigned i = 0; i < COLS; i++)
        for (unsigned j = 0; j < COLS; j++)
            e += ((double)x[i] - (double)y[i]) * (double)h[i * COLS + j] *
                 ((double)x[j] - (double)y[j]);
    return e;
}

/* With a Hessian of dependent columns the descent makes e H e^T smaller, and no move is left that would. */
static void descent(void **state)
{
    float  x[COLS], w[COLS], y[COLS], room[3 * COLS];
    float *h = calloc((size_t)COLS * COLS, sizeof *h);
    (void)state;
    assert_non_null(h);
    for (unsigned t = 0; t < 64; t++) { /* of 64 inputs */
        float in[COLS], common = (float)tsr_normal(3, t, COLS);
        for (unsigned i = 0; i < COLS; i++)
            in[i] = common + (float)tsr_normal(3, t, i);
        for (unsigned i = 0; i < COLS; i++)
            for (unsigned j = 0; j < COLS; j++)
                h[i * COLS + j] += in[i] * in[j];
    }
    weights(99, x, w);
    for (unsigned i = 0; i < COLS; i++)
        w[i] = h[i * COLS + i];
    for (size_t i = 0; i < TYPES; i++) {
        const struct tsr_export_gguf_levels *k = tsr_export_gguf_levels(types[i].type);
        struct tsr_export_gguf_super         s[COLS / 32];
        struct tsr_export_gguf_inputs        in = { .square = w, .hessian = h, .damping = 0.05f };
        assert_true(tsr_export_gguf_fit_row(k, x, w, COLS, s));
        read_back(k, s, y);
        double before = quadratic(h, x, y);
        tsr_export_gguf_descend_row(k, x, &in, COLS, s, room);
        read_back(k, s, y);
        double after = quadratic(h, x, y);
        if (!(after < 0.7 * before))
            fail_msg("%s: %g, before the descent %g", types[i].name, after, before);
    }
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recorded_blocks), cmocka_unit_test(search),
                                        cmocka_unit_test(edges), cmocka_unit_test(descent) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
