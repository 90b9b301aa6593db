/* gptq against recorded results of the published code on 27 cases, and its own promises: as
 * published it is that code; by default it is better on every case; reports are true; bytes do not
 * depend on how rows are split; refusals. */
#include "base/f16.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/safetensors.h"
#include "quant/quant.h"
#include "tessera/linalg.h"
#include "tessera/quantizer_report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER TSR_SOURCE_ROOT "/tests/golden/quant"

/* The layout that the option table describes; the offsets are checked against it. */
struct options {
    int64_t bits, group;
    int32_t symmetric, mse, act_order, static_groups;
    double  damp;
    int64_t scale, params, refine, block;
};
enum { AUTO, RANGE, WEIGHTED };

static struct tsr_registry *registry;
static struct tsr_pool     *pool;
static struct tsr_found     found;
static struct tsr_st        goldens;
static json_t              *cases_file;

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static int setup(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    if (tsr_pool_create(&pool, 2, &e.err) != TSR_OK ||
        tsr_registry_create(&registry, pool, &e.err) != TSR_OK ||
        tsr_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_registry_find(registry, TSR_KIND_QUANTIZER, "gptq", &found, &e.err) != TSR_OK ||
        tsr_st_open(&goldens, FOLDER "/gptq.safetensors", &e.err) != TSR_OK ||
        tsr_json_load(&cases_file, FOLDER "/gptq.json", 1 << 20, 16, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(cases_file);
    tsr_st_close(&goldens);
    tsr_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return 0;
}

static float *tensor(const char *name)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    const struct tsr_st_tensor *t = tsr_st_find(&goldens, name);
    if (!t)
        fail_msg("no tensor %s", name);
    uint64_t bytes = t->end - t->begin, n = bytes / tsr_dtype_size(t->dtype);
    float   *v = tsr_new(n, sizeof *v);
    void    *raw = tsr_new(1, bytes);
    assert_true(v && raw);
    must(tsr_st_read(&goldens, t, raw, &e.err), &e);
    tsr_widen(v, raw, t->dtype, n);
    free(raw);
    return v;
}

static double number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v) && !json_is_boolean(v))
        fail_msg("no number '%s'", key);
    return json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
}

/* A recorded case with its inputs. */
struct problem {
    const json_t  *c;
    const char    *name;
    uint64_t       rows, cols, groups, width;
    float         *w, *h;
    double         reference, rtn;
    struct options o; /* what was recorded, scale f32, the rest as by default */
};

static struct options defaults(void)
{
    return (struct options){ .bits = 4,
                             .group = 128,
                             .act_order = 1,
                             .damp = 0.01,
                             .scale = TSR_F16,
                             .refine = 1,
                             .block = 128 };
}

static struct problem open_case(const json_t *c)
{
    const char    *letter = json_string_value(json_object_get(c, "problem"));
    const json_t  *p = json_object_get(json_object_get(cases_file, "problems"), letter);
    struct problem q = { .c = c,
                         .name = json_string_value(json_object_get(c, "name")),
                         .rows = (uint64_t)number(p, "rows"),
                         .cols = (uint64_t)number(p, "cols"),
                         .w = tensor(json_string_value(json_object_get(p, "W"))),
                         .h = tensor(json_string_value(json_object_get(p, "H"))),
                         .reference = number(c, "layer_error"),
                         .rtn = number(c, "rtn_layer_error"),
                         .o = defaults() };
    q.o.bits = (int64_t)number(c, "bits");
    q.o.group = (int64_t)number(c, "groupsize");
    q.o.symmetric = number(c, "sym") != 0;
    q.o.mse = number(c, "mse") != 0;
    q.o.act_order = number(c, "actorder") != 0;
    q.o.static_groups = number(c, "static_groups") != 0;
    q.o.damp = number(c, "percdamp");
    q.o.scale = TSR_F32;
    q.width = q.o.group < 0 ? q.cols : (uint64_t)q.o.group;
    q.groups = (q.cols + q.width - 1) / q.width;
    return q;
}

static void close_case(struct problem *p)
{
    free(p->w);
    free(p->h);
}

static struct tsr_matrix matrix(const float *w, uint64_t rows, uint64_t cols)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "w",
                                .data = (void *)(uintptr_t)w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * sizeof *w };
}

struct result {
    tsr_status             status;
    struct tsr_packed     *packed;
    float                 *dense;
    struct tsr_pack_report report;
    struct tsr_errbuf      err;
};

static void result_free(struct result *r)
{
    tsr_packed_destroy(r->packed);
    free(r->dense);
}

static void quantize(struct result *r, const struct options *o, const float *w, const float *h,
                     uint64_t rows, uint64_t cols)
{
    const struct tsr_quantizer_v1 *f = found.iface;
    struct tsr_matrix              m = matrix(w, rows, cols);
    struct tsr_quant_stats         s = { .struct_size = sizeof s, .cols = cols, .hessian = h };
    struct tsr_quantizer           q = { f, NULL, "gptq" };
    *r = (struct result){ .err = TSR_ERRBUF(r->err) };
    r->status = f->create(tsr_registry_host(registry), o, &q.self, &r->err.err);
    if (r->status != TSR_OK)
        return;
    r->status = tsr_quantize_matrix(registry, &q, &m, &s, &r->packed, &r->err.err);
    if (r->status == TSR_OK) {
        r->report = r->packed->report;
        r->dense = tsr_new(rows * cols, sizeof *r->dense);
        assert_non_null(r->dense);
        must(tsr_packed_dequantize(r->packed, &q, 0, rows, r->dense, &r->err.err), &r->err);
    }
    f->destroy(q.self);
}

/* tr((W - Q) H (W - Q)^T) in double. */
static double layer_error(const float *w, const float *q, const float *h, uint64_t rows,
                          uint64_t cols)
{
    double  sum = 0.0;
    double *e = calloc(cols, sizeof *e);
    assert_non_null(e);
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t k = 0; k < cols; k++)
            e[k] = (double)w[r * cols + k] - (double)q[r * cols + k];
        for (uint64_t i = 0; i < cols; i++) {
            double dot = 0.0;
            for (uint64_t k = 0; k < cols; k++)
                dot += (double)h[i * cols + k] * e[k];
            sum += e[i] * dot;
        }
    }
    free(e);
    return sum;
}

/* ---- the recorded cases --------------------------------------------------------------- */

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
        json_array_foreach (json_object_get(cases_file, "cases"), i, c) {
            struct problem p = open_case(c);
            struct result  r;
            p.o.scale = scales[variant];
            quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
            must(r.status, &r.err);
            double error = layer_error(p.w, r.dense, p.h, p.rows, p.cols);
            if (!(error <= 1.05 * p.reference) || !(error < p.rtn))
                fail_msg("%s: layer error %g, recorded %g, rounding to nearest %g", p.name, error,
                         p.reference, p.rtn);
            product += log(error / p.reference);
            /* F32 sums of a few hundred terms; where H has no full rank the loss is what is left
             * of far larger terms */
            double slack = *p.name && strstr(p.name, "_F_") ? 1e-2 : 1e-4;
            if (!(fabs(r.report.loss - error) <= slack * error))
                fail_msg("%s: reports a loss of %g, it is %g", p.name, r.report.loss, error);
            if (variant == 0 && !(fabs(r.report.rtn_loss - p.rtn) <= 1e-4 * p.rtn))
                fail_msg("%s: reports rtn's loss as %g, recorded %g", p.name, r.report.rtn_loss,
                         p.rtn);
            assert_true(r.report.damping == p.o.damp && r.report.retries == 0);
            result_free(&r);
            close_case(&p);
        }
        assert_int_equal(i, 27);
        double mean = exp(product / (double)i);
        print_message("geometric mean of the layer errors over the recorded ones: %.4f\n", mean);
        assert_true(mean <= 0.75);
    }
}

static uint64_t codes_that_differ(const struct problem *p, const struct result *r, const float *q)
{
    uint64_t     n = 0;
    const float *scale = r->packed->meta;
    for (uint64_t row = 0; row < p->rows; row++) {
        scale = (const float *)(const void *)((const char *)r->packed->meta +
                                              row * r->packed->meta_stride);
        for (uint64_t k = 0; k < p->cols; k++) {
            double d = fabs((double)r->dense[row * p->cols + k] - (double)q[row * p->cols + k]);
            n += !(d <= 0.5 * (double)scale[k / p->width]);
        }
    }
    return n;
}

static void check_params(const struct problem *p, const struct result *r, bool equal)
{
    float *scale = tensor(json_string_value(json_object_get(p->c, "scale")));
    float *zero = tensor(json_string_value(json_object_get(p->c, "zero")));
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
 * codes, scales and zero points, where groups are found as the recorded code finds them: whole rows,
 * static groups, and groups that begin with a block of columns. */
static void test_published(void **state)
{
    size_t        i;
    const json_t *c;
    uint64_t      compared = 0;
    (void)state;
    json_array_foreach (json_object_get(cases_file, "cases"), i, c) {
        struct problem p = open_case(c);
        bool           fixed = p.o.group < 0 || p.o.static_groups;
        p.o.params = RANGE;
        p.o.refine = 0;
        if (fixed || (!p.o.act_order && p.o.group == 128)) {
            struct result r;
            float        *q = tensor(json_string_value(json_object_get(c, "Q")));
            quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
            must(r.status, &r.err);
            check_params(&p, &r, fixed);
            uint64_t differ = codes_that_differ(&p, &r, q);
            double   error = layer_error(p.w, r.dense, p.h, p.rows, p.cols);
            /* the recorded code in double differs from itself in 0.4 % of the codes and 3.4 % of
             * the error at worst, where H has no full rank */
            double room = strstr(p.name, "_F_") || strstr(p.name, "_E_") ? 0.05 : 0.02;
            if (!(differ * 100 <= 3 * p.rows * p.cols) ||
                !(fabs(error / p.reference - 1.0) <= room))
                fail_msg("%s: %d codes differ, layer error %g, recorded %g", p.name, (int)differ,
                         error, p.reference);
            compared++;
            free(q);
            result_free(&r);
        }
        close_case(&p);
    }
    assert_int_equal(compared, 19);
}

static struct problem named_case(const char *name)
{
    size_t        i;
    const json_t *c;
    json_array_foreach (json_object_get(cases_file, "cases"), i, c)
        if (strcmp(json_string_value(json_object_get(c, "name")), name) == 0)
            return open_case(c);
    fail_msg("no case %s", name);
    return (struct problem){ 0 };
}

/* ---- our own promises ----------------------------------------------------------------- */

static void test_options_layout(void **state)
{
    static const struct {
        const char *name;
        uint64_t    offset;
    } want[] = { { "bits", offsetof(struct options, bits) },
                 { "group", offsetof(struct options, group) },
                 { "symmetric", offsetof(struct options, symmetric) },
                 { "mse", offsetof(struct options, mse) },
                 { "act_order", offsetof(struct options, act_order) },
                 { "static_groups", offsetof(struct options, static_groups) },
                 { "damp", offsetof(struct options, damp) },
                 { "scale", offsetof(struct options, scale) },
                 { "params", offsetof(struct options, params) },
                 { "refine", offsetof(struct options, refine) },
                 { "block", offsetof(struct options, block) } };
    const struct tsr_component *c = found.component;
    (void)state;
    assert_int_equal(c->options_size, sizeof(struct options));
    assert_int_equal(c->n_options, sizeof want / sizeof *want);
    for (uint64_t i = 0; i < c->n_options; i++) {
        assert_string_equal(c->options[i].name, want[i].name);
        assert_int_equal(c->options[i].offset, want[i].offset);
    }
}

/* A sweep never makes e (H + ridge) e^T larger; the ridge is small beside what is compared. */
static void test_refinement_helps(void **state)
{
    struct problem p = named_case("04_A_b4_g64_sym");
    double         before = INFINITY;
    float         *damped = tsr_new(p.cols * p.cols, sizeof *damped);
    double         mean = 0.0;
    (void)state;
    assert_non_null(damped);
    memcpy(damped, p.h, p.cols * p.cols * sizeof *damped);
    for (uint64_t k = 0; k < p.cols; k++)
        mean += (double)p.h[k * p.cols + k] / (double)p.cols;
    for (uint64_t k = 0; k < p.cols; k++)
        damped[k * p.cols + k] += (float)(p.o.damp * mean);
    for (int64_t sweeps = 0; sweeps < 4; sweeps++) {
        struct result r;
        p.o.refine = sweeps;
        quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
        must(r.status, &r.err);
        double now = layer_error(p.w, r.dense, damped, p.rows, p.cols);
        assert_true(sweeps == 1 ? now < 0.95 * before : now <= before * (1 + 1e-6));
        before = now;
        result_free(&r);
    }
    free(damped);
    close_case(&p);
}

/* One row at a time, all at once, with a report and without: the same bytes. */
static void test_rows_are_independent(void **state)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_quantizer_v1 *f = found.iface;
    (void)state;
    for (int variant = 0; variant < 3; variant++) {
        struct problem p = named_case(variant == 0   ? "17_C_b2_g32_asym_mse"
                                      : variant == 1 ? "21_D_b3_grow_sym_act"
                                                     : "22_D_b4_g64_asym");
        struct result  r;
        void          *self = NULL, *prepared = NULL;
        p.o.params = variant == 2 ? RANGE : AUTO;
        quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
        must(r.status, &r.err);
        must(f->create(tsr_registry_host(registry), &p.o, &self, &e.err), &e);
        struct tsr_quant_stats s = { .struct_size = sizeof s, .cols = p.cols, .hessian = p.h };
        struct tsr_matrix      all = matrix(p.w, p.rows, p.cols);
        struct tsr_quant_plan  plan = { .struct_size = sizeof plan };
        plan.format.struct_size = sizeof plan.format;
        must(f->plan(self, &all, &plan, &e.err), &e);
        must(f->prepare(self, &s, &prepared, &e.err), &e);
        unsigned char *codes = tsr_new_aligned(1, plan.code_bytes);
        unsigned char *meta = tsr_new_aligned(1, plan.meta_bytes);
        void          *scratch = tsr_new_aligned(1, plan.scratch_bytes);
        assert_true(codes && meta && scratch);
        for (uint64_t row = 0; row < p.rows; row++) {
            struct tsr_matrix    one = matrix(p.w + row * p.cols, 1, p.cols);
            struct tsr_quant_job job = { .struct_size = sizeof job,
                                         .first_row = row,
                                         .src = &one,
                                         .codes = codes,
                                         .meta = meta,
                                         .scratch = scratch,
                                         .stats = &s,
                                         .prepared = prepared };
            memset(scratch, 0xff, plan.scratch_bytes);
            must(f->quantize(self, &job, &e.err), &e);
            assert_memory_equal(codes, (char *)r.packed->codes + row * r.packed->code_stride,
                                plan.code_bytes);
            assert_memory_equal(meta, (char *)r.packed->meta + row * r.packed->meta_stride,
                                plan.meta_bytes);
        }
        f->unprepare(self, prepared);
        f->destroy(self);
        free(codes);
        free(meta);
        free(scratch);
        result_free(&r);
        close_case(&p);
    }
}

/* A Hessian of rank 1 and no damping: it is doubled until the factor exists, and that is said. */
static void test_damping(void **state)
{
    enum { ROWS = 5, COLS = 48 };
    float          w[ROWS * COLS], h[COLS * COLS];
    struct options o = defaults();
    struct result  r;
    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        w[i] = sinf((float)i);
    for (int i = 0; i < COLS; i++)
        for (int j = 0; j < COLS; j++)
            h[i * COLS + j] = (1.0f + (float)(i % 3)) * (1.0f + (float)(j % 3));
    o.damp = 0.0;
    quantize(&r, &o, w, h, ROWS, COLS);
    must(r.status, &r.err);
    assert_true(r.report.retries > 0 && r.report.damping > 0.0 && r.report.damping < 1.0);
    assert_true(r.report.loss < r.report.rtn_loss);
    result_free(&r);
    memset(h, 0, sizeof h); /* inputs that are all zero: nothing matters, nothing fails */
    quantize(&r, &o, w, h, ROWS, COLS);
    must(r.status, &r.err);
    assert_true(r.report.loss == 0.0 && r.report.rtn_loss == 0.0);
    result_free(&r);
}

static void refused(const struct options *o, const float *w, const float *h, tsr_status want,
                    const char *text)
{
    struct result r;
    quantize(&r, o, w, h, 3, 16);
    if (r.status != want || !strstr(r.err.text, text))
        fail_msg("status %d, '%s'; wanted %d and '%s'", r.status, r.err.text, want, text);
}

static void test_refusals(void **state)
{
    float          w[3 * 16], h[16 * 16] = { 0 };
    struct options o = defaults(), bad = o;
    (void)state;
    for (int i = 0; i < 48; i++)
        w[i] = cosf((float)i);
    for (int i = 0; i < 16; i++)
        h[i * 17] = 1.0f;
    bad.group = 0;
    refused(&bad, w, h, TSR_E_CONFIG, "-1 for the whole row");
    bad = o;
    bad.params = RANGE;
    refused(&bad, w, h, TSR_E_CONFIG, "static_groups: true");
    h[2 * 16 + 5] = 0.5f;
    refused(&o, w, h, TSR_E_INPUT, "(5, 2)");
    h[2 * 16 + 5] = h[5 * 16 + 2] = NAN;
    refused(&o, w, h, TSR_E_INPUT, "symmetric");
    h[2 * 16 + 5] = h[5 * 16 + 2] = 0.0f;
    h[3 * 17] = -1.0f;
    refused(&o, w, h, TSR_E_INPUT, "column 3");
    h[3 * 17] = INFINITY;
    refused(&o, w, h, TSR_E_INPUT, "column 3");
    h[3 * 17] = 1.0f;
    w[16 + 7] = NAN;
    refused(&o, w, h, TSR_E_INPUT, "row 1 column 7");
    for (int i = 0; i < 16; i++)
        w[32 + i] = 1e-7f * (float)(i + 1);
    w[16 + 7] = 0.0f;
    refused(&o, w, h, TSR_E_INPUT, "row 2 group 0");
    o.params = RANGE;
    o.act_order = 0;
    refused(&o, w, h, TSR_E_INPUT, "scale: f32");
    h[1] = h[16] = 3.0f; /* indefinite: an eigenvalue of -2, which takes that much damping */
    struct result r;
    for (int i = 0; i < 16; i++)
        w[32 + i] = 0.1f * (float)(i + 1);
    quantize(&r, &o, w, h, 3, 16);
    must(r.status, &r.err);
    assert_true(r.report.damping > 2.0);
    result_free(&r);
}

static void test_no_hessian(void **state)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_quantizer_v1 *f = found.iface;
    struct options                 o = defaults();
    struct tsr_quantizer           q = { f, NULL, "gptq" };
    struct tsr_packed             *p = NULL;
    float                          w[16] = { 1.0f };
    struct tsr_matrix              m = matrix(w, 1, 16);
    (void)state;
    must(f->create(tsr_registry_host(registry), &o, &q.self, &e.err), &e);
    assert_int_equal(tsr_quantize_matrix(registry, &q, &m, NULL, &p, &e.err), TSR_E_INPUT);
    assert_non_null(strstr(e.text, "Hessian"));
    f->destroy(q.self);
}

/* ---- a host that cannot ----------------------------------------------------------------- */

static int  allocations; /* that succeed from now on */
static long held;

static void *scarce_alloc(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    void *p = allocations-- > 0 ? aligned_alloc(align, (size + align - 1) / align * align) : NULL;
    held += p != NULL;
    return p;
}

static void scarce_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    held -= p != NULL;
    free(p);
}

static int32_t stopped(void *ctx)
{
    (void)ctx;
    return 1;
}

static const void *no_service(void *ctx, const char *id)
{
    (void)ctx;
    (void)id;
    return NULL;
}

static void test_host_that_cannot(void **state)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_quantizer_v1 *f = found.iface;
    const struct tsr_host         *real = tsr_registry_host(registry);
    struct tsr_host                host = *real;
    struct options                 o = defaults();
    struct problem                 p = named_case("22_D_b4_g64_asym");
    struct tsr_quant_stats         s = { .struct_size = sizeof s, .cols = p.cols, .hessian = p.h };
    void                          *self = NULL, *prepared = NULL;
    (void)state;
    host.alloc = scarce_alloc;
    host.release = scarce_release;
    assert_int_equal(f->create(&host, &o, &self, &e.err), TSR_E_NOMEM);
    for (int n = 0; n < 2; n++) { /* the site, the rows that are inverted at once */
        allocations = 1;
        must(f->create(&host, &o, &self, &e.err), &e);
        allocations = n;
        assert_int_equal(f->prepare(self, &s, &prepared, &e.err), TSR_E_NOMEM);
        assert_null(prepared);
        f->destroy(self);
        assert_int_equal(held, 0);
    }
    allocations = 1;
    host.service = no_service;
    must(f->create(&host, &o, &self, &e.err), &e);
    assert_int_equal(f->prepare(self, &s, &prepared, &e.err), TSR_E_DEVICE);
    assert_non_null(strstr(e.text, TSR_LINALG));
    f->destroy(self);
    allocations = 3;
    host.service = real->service;
    host.cancelled = stopped;
    must(f->create(&host, &o, &self, &e.err), &e);
    assert_int_equal(f->prepare(self, &s, &prepared, &e.err), TSR_E_CANCELLED);
    f->destroy(self);
    assert_int_equal(held, 0);
    close_case(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_options_layout),
        cmocka_unit_test(test_refinement_helps),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_damping),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_hessian),
        cmocka_unit_test(test_host_that_cannot),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
