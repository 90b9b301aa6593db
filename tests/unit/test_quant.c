/* Quantization of matrices and models: what a plugin answers is checked, results do not depend on
 * threads, schemes mean what they say, statistics are what calibration saw. */
#include "../fixtures/error_is.h"
#include "base/mem.h"
#include "base/rng.h"
#include "checkpoint/tokenizer.h"
#include "quant/calibrate.h"
#include "quant/scheme.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEMO TSR_SOURCE_ROOT "/configs/demo"

static struct tsr_model     *model;
static struct tsr_tokenizer *tokenizer;
static struct tsr_registry  *registry[3]; /* with 1, 2 and 7 threads */
static struct tsr_pool      *pool[3];

static int setup(void **state)
{
    static const unsigned threads[3] = { 1, 2, 7 };
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    (void)state;
    for (int i = 0; i < 3; i++)
        if (tsr_pool_create(&pool[i], threads[i], &e.err) != TSR_OK ||
            tsr_plugin_registry_create(&registry[i], pool[i], &e.err) != TSR_OK ||
            tsr_plugin_registry_add_path(registry[i], TSR_TEST_PLUGINS, &e.err) != TSR_OK) {
            print_error("%s\n", e.text);
            return -1;
        }
    if (tsr_model_load(&model, DEMO, false, &e.err) != TSR_OK ||
        tsr_checkpoint_tokenizer_load(&tokenizer, DEMO, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_tokenizer_destroy(tokenizer);
    tsr_model_destroy(model);
    for (int i = 0; i < 3; i++) {
        tsr_plugin_registry_destroy(registry[i]);
        tsr_pool_destroy(pool[i]);
    }
    return 0;
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool        match;
    } c[] = { { "*.down_proj", "model.layers.3.mlp.down_proj", true },
              { "*.down_proj", "model.layers.3.mlp.up_proj", false },
              { "lm_head", "lm_head", true },
              { "lm_head", "lm_heads", false },
              { "*", "", true },
              { "", "", true },
              { "", "a", false },
              { "?", "", false },
              { "a?c", "abc", true },
              { "*.[0-2].*", "m.layers.1.x", true },
              { "*.[0-2].*", "m.layers.3.x", false },
              { "[!a]b", "cb", true },
              { "[!a]b", "ab", false },
              { "[]x]", "]", true },
              { "[a", "[a", true },
              { "*a*b*", "xxaxxbxx", true },
              { "*a*b*", "xxbxxaxx", false },
              { "**", "abc", true } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        if (tsr_quant_name_matches(c[i].pattern, c[i].name) != c[i].match)
            fail_msg("%s against %s", c[i].pattern, c[i].name);
    /* a pattern that takes exponential time in a naive matcher */
    char name[1001];
    memset(name, 'a', 1000);
    name[1000] = '\0';
    assert_false(tsr_quant_name_matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", name));
}

/* Three-bit codes by hand: 10 columns, groups of 4, F16 scales, stored zeros. */
static void test_decoder(void **state)
{
    (void)state;
    struct tsr_format f = {
        .id = TSR_FORMAT_INT, .bits = 3, .zero = TSR_ZERO_STORED, .group = 4, .scale_dtype = TSR_F16
    };
    /* codes 0 1 2 3 | 4 5 6 7 | 7 0, first code in the lowest bits */
    const unsigned char codes[4] = { 0x88, 0xc6, 0xfa, 0x07 };
    /* scales 1, 0.5, -2 (sign is the format's business, not ours), zeros 1, 7, 3, one pad */
    const unsigned char meta[12] = { 0x00, 0x3c, 0x00, 0x38, 0x00, 0xc0, 1, 7, 3, 0 };
    const float         want[10] = { -1, 0, 1, 2, -1.5f, -1, -0.5f, 0, -8, 6 };
    float               got[10];
    assert_int_equal(tsr_format_int_code_bytes(&f, 10), 4);
    assert_int_equal(tsr_format_int_meta_bytes(&f, 10), 12);
    tsr_model_format_decode_row(&f, 10, codes, meta, got);
    for (int i = 0; i < 10; i++)
        assert_true(got[i] == want[i]);
    struct tsr_format wide = {
        .id = TSR_FORMAT_INT, .bits = 8, .zero = TSR_ZERO_MID, .scale_dtype = TSR_F32
    };
    const unsigned char bytes[3] = { 0, 128, 255 };
    const float         scale = 0.25f;
    tsr_model_format_decode_row(&wide, 3, bytes, &scale, got);
    assert_true(got[0] == -32.0f && got[1] == 0.0f && got[2] == 31.75f);
    wide.bits = 9;
    assert_false(tsr_model_format_known(&wide));
}

/* ---- plugins of this file ----------------------------------------------------------- */

enum { HONEST, FOREIGN, LIAR, SHORT_PLAN, NO_FORMAT, HUGE_SCRATCH, WHOLE, NEEDS_HESSIAN, NOT_HERE };

struct fake {
    int      kind;
    uint64_t runs;
};

static tsr_status fake_plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                            struct tsr_err *err)
{
    const struct fake *f = self;
    assert_null(w->data);
    if (f->kind == NOT_HERE)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "no such shape");
    p->rows_per_unit = f->kind == WHOLE ? 0 : 1;
    uint64_t rows = f->kind == WHOLE ? w->rows : 1;
    p->code_bytes = rows * w->cols * (f->kind == SHORT_PLAN ? 3 : 4);
    p->scratch_bytes = f->kind == HUGE_SCRATCH ? UINT64_MAX / 2 : 16;
    p->need = f->kind == NEEDS_HESSIAN ? TSR_NEED_HESSIAN | TSR_NEED_MEAN : 0;
    p->format.id = f->kind == FOREIGN     ? "org.example.odd/1"
                   : f->kind == NO_FORMAT ? NULL
                                          : TSR_FORMAT_FLOAT;
    p->format.dtype = TSR_F32;
    return TSR_OK;
}

static tsr_status fake_quantize(const void *self, const struct tsr_quant_job *job,
                                struct tsr_err *err)
{
    const struct fake *f = self;
    (void)err;
    assert_int_equal((uintptr_t)job->codes % 64, 0);
    if (f->kind == WHOLE)
        assert_int_equal(job->first_row, 0);
    for (uint64_t r = 0; r < job->src->rows; r++)
        memcpy((char *)job->codes + r * job->src->cols * 4,
               (const char *)job->src->data + r * job->src->row_stride, job->src->cols * 4);
    return TSR_OK;
}

static tsr_status fake_dequantize(const void *self, const struct tsr_quant_job *job,
                                  struct tsr_err *err)
{
    const struct fake *f = self;
    (void)err;
    for (uint64_t i = 0; i < job->dst->rows * job->dst->cols; i++) {
        float v;
        memcpy(&v, (const char *)job->codes + 4 * i, 4);
        ((float *)job->dst->data)[i] = f->kind == FOREIGN          ? -v
                                       : f->kind == LIAR && i == 3 ? v + 1
                                                                   : v;
    }
    return TSR_OK;
}

static const struct tsr_quantizer_v1 fake_table = { .struct_size = sizeof fake_table,
                                                    .src_dtypes = 1u << TSR_F32,
                                                    .plan = fake_plan,
                                                    .quantize = fake_quantize,
                                                    .dequantize = fake_dequantize };

static struct tsr_matrix noise(float *w, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < rows * cols; i++)
        w[i] = (float)tsr_normal(1, 2, i);
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "w",
                                .data = w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        int         kind;
        tsr_status  status;
        const char *about, *facts;
    } c[] = { { HONEST, TSR_OK, NULL, NULL },
              { WHOLE, TSR_OK, NULL, NULL },
              { FOREIGN, TSR_OK, NULL, NULL },
              { LIAR, TSR_E_UNSUPPORTED, "w", "row 0 column 3" },
              { SHORT_PLAN, TSR_E_UNSUPPORTED, "w", "1 60" },
              { NO_FORMAT, TSR_E_UNSUPPORTED, "w", "fake" },
              { HUGE_SCRATCH, TSR_E_UNSUPPORTED, "w", "scratch" },
              { NEEDS_HESSIAN, TSR_E_INPUT, "fake", "Hessian" },
              { NOT_HERE, TSR_E_UNSUPPORTED, "quantizer 'fake'", NULL } };
    float             w[70 * 20];
    struct tsr_matrix m = noise(w, 70, 20);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct fake              f = { c[i].kind, 0 };
        struct tsr_quantizer     q = { .iface = &fake_table, .self = &f, .name = "fake" };
        struct tsr_model_packed *p = NULL;
        tsr_status               st = tsr_quantize_matrix(registry[1], &q, &m, NULL, &p, &e.err);
        assert_int_equal(st, c[i].status);
        if (st != TSR_OK) {
            assert_null(p);
            assert_true(error_is(&e.err, c[i].about, c[i].facts));
            continue;
        }
        float row[20], sign = c[i].kind == FOREIGN ? -1.0f : 1.0f;
        assert_int_equal(p->dense != NULL, c[i].kind == FOREIGN);
        assert_int_equal(tsr_model_packed_bytes(p), 70 * 20 * 4);
        assert_true((p->codes == NULL) == (c[i].kind == FOREIGN)); /* not kept beside dense */
        for (uint64_t r = 0; r < 70; r++) {
            assert_int_equal(tsr_model_packed_dequantize(p, r, 1, row, &e.err), TSR_OK);
            for (int k = 0; k < 20; k++)
                assert_true(row[k] == sign * w[r * 20 + (uint64_t)k]);
        }
        assert_true(c[i].kind == FOREIGN ? p->squared_error > 1 : p->squared_error == 0);
        assert_int_equal(tsr_model_packed_dequantize(p, 70, 1, row, &e.err), TSR_E_BUG);
        tsr_model_packed_destroy(p);
    }
}

static void test_needs(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    const float            v[4] = { 0 };
    struct tsr_quant_stats s = { .struct_size = sizeof s, .cols = 4, .absmax = v, .mean = v };
    assert_int_equal(tsr_quant_need_check(TSR_NEED_ABSMAX, &s, 4, "p", "x", &e.err), TSR_OK);
    assert_int_equal(tsr_quant_need_check(0, NULL, 4, "p", "x", &e.err), TSR_OK);
    assert_int_equal(tsr_quant_need_check(TSR_NEED_ABSMAX, NULL, 4, "p", "x", &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "p", "x"));
    assert_int_equal(tsr_quant_need_check(TSR_NEED_MEAN, &s, 5, "p", "x", &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "x", "4 columns 5"));
    assert_int_equal(tsr_quant_need_check(TSR_NEED_HESSIAN, &s, 4, "p", "x", &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "p", "Hessian"));
    assert_int_equal(tsr_quant_need_check(TSR_NEED_SENSITIVITY, &s, 4, "p", "x", &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "p", "x"));
    assert_int_equal(tsr_quant_need_check(TSR_NEED_CROSS, &s, 4, "p", "x", &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "p", "x"));
    s.cross = v;
    assert_int_equal(tsr_quant_need_check(TSR_NEED_CROSS, &s, 4, "p", "x", &e.err), TSR_OK);
    assert_true(tsr_quant_stats_for(TSR_NEED_CROSS, &s).cross == v);
    assert_null(tsr_quant_stats_for(TSR_NEED_HESSIAN, &s).cross);
    assert_int_equal(tsr_quant_need_collect(TSR_NEED_IF_THERE(TSR_NEED_CROSS)), 0);
    assert_int_equal(tsr_quant_need_check(UINT64_C(1) << 20, &s, 4, "p", "x", &e.err), TSR_E_INPUT);
    struct tsr_quant_stats seen = tsr_quant_stats_for(TSR_NEED_ABSMAX, &s);
    assert_true(seen.absmax == v && seen.mean == NULL); /* exactly what was asked for */
    /* what is welcome is handed on where it is there, and nothing is refused without it */
    uint64_t welcome = TSR_NEED_IF_THERE(TSR_NEED_MEAN | TSR_NEED_SENSITIVITY);
    assert_int_equal(tsr_quant_need_check(welcome, &s, 4, "p", "x", &e.err), TSR_OK);
    assert_int_equal(tsr_quant_need_check(welcome, NULL, 4, "p", "x", &e.err), TSR_OK);
    assert_int_equal(tsr_quant_need_check(welcome, &s, 5, "p", "x", &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_quant_need_collect(welcome | TSR_NEED_ABSMAX),
                     TSR_NEED_MEAN | TSR_NEED_ABSMAX);
    seen = tsr_quant_stats_for(welcome, &s);
    assert_true(seen.mean == v && seen.absmax == NULL && seen.sensitivity == NULL);
}

/* ---- the plugins that ship ------------------------------------------------------------ */

struct made {
    struct tsr_quantizer q;
    void                *options;
};

static struct made make(struct tsr_registry *r, const char *name, const char *yaml)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_found f;
    struct tsr_config_doc  *doc = NULL;
    struct tsr_diag        *d = NULL;
    struct made             m = { 0 };
    if (tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, name, &f, &e.err) != TSR_OK ||
        tsr_config_diag_create(&d, &e.err) != TSR_OK ||
        tsr_config_doc_parse(&doc, "options", yaml, strlen(yaml), d, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    m.options = tsr_new_aligned(1, f.component->options_size);
    assert_non_null(m.options);
    memset(m.options, 0, f.component->options_size);
    struct tsr_config_optset set = { f.component->options, f.component->n_options,
                                     f.component->option_stride, m.options };
    tsr_config_options_fill(&set, 1, NULL, tsr_config_doc_root(doc), name, d);
    assert_int_equal(tsr_config_diag_errors(d), 0);
    m.q.iface = f.iface;
    m.q.name = f.component->name;
    if (m.q.iface->create(tsr_plugin_registry_host(r), m.options, &m.q.self, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    return m;
}

static void unmake(struct made *m)
{
    m->q.iface->destroy(m->q.self);
    free(m->options);
}

static void test_threads(void **state)
{
    (void)state;
    enum { ROWS = 1000, COLS = 300 };
    float                   *w = tsr_new(ROWS * COLS, sizeof *w);
    struct tsr_model_packed *first = NULL, *p;
    assert_non_null(w);
    struct tsr_matrix m = noise(w, ROWS, COLS);
    for (int i = 0; i < 3; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct made       q = make(registry[i], "rtn", "{bits: 5, group: 64}");
        if (tsr_quantize_matrix(registry[i], &q.q, &m, NULL, &p, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        if (first) {
            assert_memory_equal(first->codes, p->codes, ROWS * p->code_stride);
            assert_memory_equal(first->meta, p->meta, ROWS * p->meta_stride);
            assert_true(first->squared_error == p->squared_error);
            tsr_model_packed_destroy(p);
        } else {
            first = p;
        }
        unmake(&q);
    }
    /* the mean square of half a step's uniform error: step^2/12; the steps of normal groups of
     * 64 are 4.3 to 6 sigma / 31 */
    double mse = first->squared_error / (ROWS * COLS);
    assert_true(mse > 4.0 * 4.0 / 31 / 31 / 12 && mse < 6.5 * 6.5 / 31 / 31 / 12);
    tsr_model_packed_destroy(first);
    w[700 * COLS + 7] = NAN;
    w[70 * COLS + 3] = INFINITY; /* whichever thread is first, this row is named */
    for (int i = 0; i < 3; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct made       q = make(registry[i], "rtn", "{bits: 5, group: 64}");
        assert_int_equal(tsr_quantize_matrix(registry[i], &q.q, &m, NULL, &p, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, "w", "row#70 column#3"));
        unmake(&q);
    }
    free(w);
}

/* The weighted error of a row under a scale, by the words of int8's page. */
static double weighted_error(const float *w, const float *absmax, uint64_t n, float scale)
{
    double sum = 0.0;
    for (uint64_t k = 0; k < n; k++) {
        float  c = fminf(fmaxf(rintf(w[k] / scale), -127.0f), 127.0f);
        double d = (double)absmax[k] * ((double)w[k] - (double)(c * scale));
        sum += d * d;
    }
    return sum;
}

static void test_int8(void **state)
{
    (void)state;
    enum { ROWS = 9, COLS = 130 };
    float                    w[ROWS * COLS], absmax[COLS], back[COLS];
    struct tsr_matrix        m = noise(w, ROWS, COLS);
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = NULL;
    bool                     clipped = false;
    for (int k = 0; k < COLS; k++)
        absmax[k] = 1.0f + (float)(k % 5);
    absmax[COLS - 1] = 0.001f;
    for (int r = 0; r < ROWS; r++) {
        w[r * COLS + COLS - 1] = 12.0f; /* large weights where inputs are small: clip them */
        w[3 * COLS + r] = 0;
    }
    memset(w + 4 * COLS, 0, sizeof(float) * COLS);
    struct tsr_quant_stats s = { .struct_size = sizeof s, .cols = COLS, .absmax = absmax };
    struct made            q = make(registry[1], "int8", "{scale: f32}");
    struct made            plain = make(registry[1], "int8", "{clip: false, scale: f32}");
    assert_int_equal(tsr_quantize_matrix(registry[1], &q.q, &m, NULL, &p, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "int8", "w"));
    if (tsr_quantize_matrix(registry[1], &q.q, &m, &s, &p, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(p->code_stride, COLS);
    assert_int_equal(p->meta_stride, 4);
    for (uint64_t r = 0; r < ROWS; r++) {
        float  best = 0, largest = 0, scale;
        double least = INFINITY;
        memcpy(&scale, (char *)p->meta + 4 * r, 4);
        assert_int_equal(tsr_model_packed_dequantize(p, r, 1, back, &e.err), TSR_OK);
        for (uint64_t k = 0; k < COLS; k++)
            largest = fmaxf(largest, fabsf(w[r * COLS + k]));
        if (largest == 0) {
            for (uint64_t k = 0; k < COLS; k++)
                assert_true(back[k] == 0.0f);
            continue;
        }
        for (int i = 0; i <= 50; i++) {
            float  try = (float)(1.0 - i / 100.0) * largest / 127.0f;
            double error = weighted_error(w + r * COLS, absmax, COLS, try);
            if (error < least) {
                least = error;
                best = try;
            }
        }
        assert_true(scale == best);
        clipped |= scale < 0.9f * largest / 127.0f;
        for (uint64_t k = 0; k < COLS; k++) {
            float c = fminf(fmaxf(rintf(w[r * COLS + k] / scale), -127.0f), 127.0f);
            assert_true(back[k] == c * scale);
        }
    }
    assert_true(clipped); /* or the maxima would not matter */
    tsr_model_packed_destroy(p);
    if (tsr_quantize_matrix(registry[1], &plain.q, &m, NULL, &p, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    float scale;
    memcpy(&scale, p->meta, 4);
    assert_true(scale == 12.0f / 127.0f);
    tsr_model_packed_destroy(p);
    absmax[17] = NAN;
    assert_int_equal(tsr_quantize_matrix(registry[1], &q.q, &m, &s, &p, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "w", "column#17"));
    unmake(&q);
    unmake(&plain);
}

/* ---- schemes ----------------------------------------------------------------------------- */

struct parsed {
    struct tsr_config_doc   *doc;
    struct tsr_diag         *d;
    struct tsr_quant_scheme *s;
};

static struct parsed parse(const char *yaml)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct parsed     p = { 0 };
    assert_int_equal(tsr_config_diag_create(&p.d, &e.err), TSR_OK);
    if (tsr_config_doc_parse(&p.doc, "scheme.yaml", yaml, strlen(yaml), p.d, &e.err) != TSR_OK ||
        tsr_quant_scheme_create(&p.s, registry[1], tsr_config_doc_root(p.doc), NULL, "the scheme",
                                p.d, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return p;
}

static void parsed_free(struct parsed *p)
{
    tsr_quant_scheme_destroy(p->s);
    tsr_config_diag_destroy(p->d);
    tsr_config_doc_destroy(p->doc);
}

static void test_scheme_errors(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        uint64_t    errors;
        const char *about, *facts;
    } c[] = {
        { "use: rtn\nbits: 4\n", 0, "scheme.yaml", "2" },
        { "bits: 4\n", 1, "scheme.yaml:1:1", "use" },
        { "use: rtm\n", 1, "scheme.yaml:1:6", "rtn" },
        { "use: rtn\nbit: 4\n", 1, "scheme.yaml:2:1", NULL },
        { "use: rtn\nbit: 4\ngroup: x\n", 2, "scheme.yaml:2:1", "scheme.yaml:3:8" },
        { "use: rtn\nbits: 9\n", 1, "scheme.yaml:2:7", "9" },
        { "use: rtn\ngroup: 0\n", 1, "scheme.yaml:1:6", "0" }, /* the plugin's own sentence */
        { "use: rtn\nrules: 3\n", 1, "scheme.yaml:2:8", "rules" },
        { "use: rtn\nrules:\n  - {bits: 3}\n", 1, "scheme.yaml:3:5", "neither" },
        { "use: rtn\nrules:\n  - {layers: 0-1, bits: 1}\n", 1, "scheme.yaml:3:25", NULL },
        { "use: rtn\nrules:\n  - {layers: 0-1, bots: 3}\n  - {tensors: x, clip: true}\n", 2,
          "scheme.yaml:3:19", "scheme.yaml:4:18" },
        { "use: rtn\nrules:\n  - {layers: 0-1, use: int8, clip: false}\n", 0, "scheme.yaml", "2" },
        { "use: rtn\nrules:\n  - {layers: 0-1, use: int8, bits: 3}\n", 1, "scheme.yaml:3:30",
          "bits" },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct parsed     p = parse(c[i].yaml);
        if (tsr_config_diag_errors(p.d) != c[i].errors)
            fail_msg("%llu errors in %s", (unsigned long long)tsr_config_diag_errors(p.d),
                     c[i].yaml);
        assert_int_equal(p.s == NULL, c[i].errors != 0);
        (void)tsr_config_diag_status(p.d, &e.err);
        if (c[i].errors)
            assert_true(error_is(&e.err, c[i].about, c[i].facts));
        parsed_free(&p);
    }
}

static struct tsr_model_overlay *apply(const char *yaml)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct parsed             p = parse(yaml);
    struct tsr_model_overlay *o = NULL;
    assert_non_null(p.s);
    if (tsr_quant_scheme_apply(p.s, registry[1], model, NULL, &o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    parsed_free(&p);
    return o;
}

static void test_rules(void **state)
{
    (void)state;
    struct tsr_model_overlay *o =
        apply("use: rtn\nbits: 4\ngroup: 64\nrules:\n"
              "  - {layers: 1-2, bits: 3}\n"
              "  - {tensors: \"*.down_proj\", bits: 6, symmetric: true}\n"
              "  - {layers: \"2\", group: -1}\n"
              "  - {layers: \"3\", keep: true}\n"
              "  - {tensors: \"*.layers.3.*.q_proj\", use: int8, clip: false}\n"
              "  - {layers: \"5\", tensors: \"*.o_proj\", keep: true}\n");
    for (uint64_t l = 0; l < model->hp.layers; l++)
        for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
            const struct tsr_model_packed *p = o->lin[l][i];
            if ((l == 3 && i != TSR_MODEL_Q) || (l == 5 && i == TSR_MODEL_O)) {
                assert_null(p);
                continue;
            }
            assert_non_null(p);
            if (l == 3) {
                assert_string_equal(p->plugin, "int8");
                continue;
            }
            uint32_t bits = i == TSR_MODEL_DOWN ? 6 : l == 1 || l == 2 ? 3 : 4;
            assert_int_equal(p->format.bits, bits);
            assert_int_equal(p->format.group, l == 2 ? 0 : 64);
            assert_int_equal(p->format.zero, i == TSR_MODEL_DOWN ? TSR_ZERO_MID : TSR_ZERO_STORED);
            assert_true(p->squared_error > 0);
        }
    assert_null(o->head); /* not unless a rule names it */
    tsr_model_overlay_destroy(o);
    o = apply("use: rtn\nrules:\n  - {tensors: \"*\", bits: 8}\n");
    assert_null(o->head);
    tsr_model_overlay_destroy(o);
    o = apply("use: rtn\nrules:\n  - {tensors: lm_head, bits: 8}\n");
    assert_non_null(o->head);
    assert_int_equal(o->head->format.bits, 8);
    assert_int_equal(o->lin[0][0]->format.bits, 4);
    uint64_t weights, bytes, all, whole;
    tsr_model_overlay_size(model, o, &weights, &bytes);
    tsr_model_overlay_size(model, NULL, &all, &whole);
    assert_int_equal(weights, all + model->head.w.rows * model->head.w.cols);
    assert_int_equal(whole, 2 * all); /* BF16 */
    tsr_model_overlay_destroy(o);
}

static void test_rule_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *about, *facts;
    } c[] = {
        { "use: rtn\nrules:\n  - {layers: 0-6, bits: 3}\n", "scheme.yaml:3:5", "6 5" },
        { "use: rtn\nrules:\n  - {layers: 0-5}\n  - {tensors: \"*.dwn_proj\"}\n", "scheme.yaml:4:5",
          NULL },
        { "use: rtn\nrules:\n  - {layers: a, bits: 3}\n", "scheme.yaml:3:5", "layers" },
        { "use: int8\n", "int8", "model.layers.0.self_attn.q_proj" },
        { "use: rtn\nrules:\n  - {tensors: \"*.k_proj\", use: int8}\n", "int8", "k_proj" },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct parsed             p = parse(c[i].yaml);
        struct tsr_model_overlay *o = NULL;
        assert_non_null(p.s);
        assert_int_equal(tsr_quant_scheme_apply(p.s, registry[1], model, NULL, &o, &e.err),
                         TSR_E_INPUT);
        assert_null(o);
        assert_true(error_is(&e.err, c[i].about, c[i].facts));
        parsed_free(&p);
    }
}

/* ---- calibration ---------------------------------------------------------------------------- */

static void stats_free(struct tsr_quant_stats *s)
{
    free((void *)(uintptr_t)s->absmax);
    free((void *)(uintptr_t)s->mean);
    free((void *)(uintptr_t)s->variance);
    free((void *)(uintptr_t)s->mean_abs);
}

static void test_moments(void **state)
{
    (void)state;
    enum { ROWS = 50, COLS = 150 };
    static float x[ROWS * COLS];
    for (uint64_t i = 0; i < ROWS * COLS; i++)
        x[i] = (float)(3.0 * (double)(i % COLS) / COLS + tsr_normal(4, 5, i));
    struct tsr_quant_stats first = { 0 };
    for (int i = 0; i < 3; i++) {
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_quant_moments m;
        struct tsr_quant_stats   s;
        uint64_t                 cut = 7 + 13 * (uint64_t)i; /* other chunks, other threads */
        assert_int_equal(tsr_quant_moments_create(&m, COLS, &e.err), TSR_OK);
        for (uint64_t at = 0; at < ROWS; at += cut)
            assert_int_equal(tsr_quant_moments_add(&m, pool[i], x + at * COLS,
                                                   ROWS - at < cut ? ROWS - at : cut, &e.err),
                             TSR_OK);
        assert_int_equal(tsr_quant_moments_finish(&m, &s, &e.err), TSR_OK);
        assert_int_equal(s.tokens, ROWS);
        for (uint64_t c = 0; c < COLS; c++) {
            double sum = 0, mag = 0, var = 0;
            float  top = 0;
            for (uint64_t r = 0; r < ROWS; r++) {
                sum += (double)x[r * COLS + c];
                mag += fabs((double)x[r * COLS + c]);
                top = fmaxf(top, fabsf(x[r * COLS + c]));
            }
            for (uint64_t r = 0; r < ROWS; r++)
                var += pow((double)x[r * COLS + c] - sum / ROWS, 2);
            assert_true(s.absmax[c] == top);
            /* one rounding to F32 each; the variance also loses mean^2/var ulps of double */
            assert_true(fabs((double)s.mean[c] - sum / ROWS) <= 1e-6 * (1 + fabs(sum / ROWS)));
            assert_true(fabs((double)s.mean_abs[c] - mag / ROWS) <= 1e-6 * mag / ROWS);
            assert_true(fabs((double)s.variance[c] - var / ROWS) <= 1e-6 * var / ROWS);
        }
        if (first.absmax) {
            assert_memory_equal(first.mean, s.mean, sizeof(float) * COLS);
            assert_memory_equal(first.variance, s.variance, sizeof(float) * COLS);
            assert_memory_equal(first.mean_abs, s.mean_abs, sizeof(float) * COLS);
        }
        tsr_quant_moments_free(&m);
        if (i == 0)
            first = s;
        else
            stats_free(&s);
    }
    stats_free(&first);
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_quant_moments m;
    x[20 * COLS + 9] = -INFINITY;
    assert_int_equal(tsr_quant_moments_create(&m, COLS, &e.err), TSR_OK);
    assert_int_equal(tsr_quant_moments_add(&m, pool[1], x, ROWS, &e.err), TSR_E_NUMERIC);
    assert_true(error_is(&e.err, "", "token#20 input#9"));
    tsr_quant_moments_free(&m);
}

static void test_calibrate(void **state)
{
    (void)state;
    struct tsr_quant_calibrate_options o = {
        .text = DEMO "/calibration.txt", .samples = 3, .seqlen = 16, .seed = 5
    };
    struct tsr_quant_calibration *a = NULL, *b = NULL;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    if (tsr_quant_calibrate(&a, registry[0], model, tokenizer, &o, &e.err) != TSR_OK ||
        tsr_quant_calibrate(&b, registry[2], model, tokenizer, &o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(a->tokens, 48);
    assert_string_equal(a->hash, b->hash);
    for (uint64_t l = 0; l < a->layers; l++)
        for (int s = 0; s < TSR_MODEL_SITES; s++) {
            const struct tsr_quant_stats *x = &a->site[l][s], *y = &b->site[l][s];
            uint64_t cols = s == TSR_MODEL_SITE_DOWN_IN ? model->hp.ffn : model->hp.hidden;
            assert_int_equal(x->cols, cols);
            assert_memory_equal(x->absmax, y->absmax, cols * sizeof(float));
            assert_memory_equal(x->variance, y->variance, cols * sizeof(float));
            for (uint64_t c = 0; c < cols; c++)
                assert_true(x->absmax[c] >= x->mean_abs[c] && x->mean_abs[c] > 0 &&
                            x->mean_abs[c] >= fabsf(x->mean[c]) && x->variance[c] > 0);
        }
    tsr_quant_calibration_destroy(b);
    o.seed = 6;
    assert_int_equal(tsr_quant_calibrate(&b, registry[1], model, tokenizer, &o, &e.err), TSR_OK);
    assert_string_not_equal(a->hash, b->hash);
    tsr_quant_calibration_destroy(a);
    tsr_quant_calibration_destroy(b);
    o.seqlen = 1024; /* the text is shorter */
    o.text = DEMO "/generation_config.json";
    assert_int_equal(tsr_quant_calibrate(&b, registry[1], model, tokenizer, &o, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "demo/generation_config.json", "1024"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_answers),       cmocka_unit_test(test_needs),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_int8),
        cmocka_unit_test(test_scheme_errors), cmocka_unit_test(test_rules),
        cmocka_unit_test(test_rule_refusals), cmocka_unit_test(test_moments),
        cmocka_unit_test(test_calibrate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
