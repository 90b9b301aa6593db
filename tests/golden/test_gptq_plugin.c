/* gptq's own promises: bytes do not depend on how rows are split, damping is raised until it is
 * enough, refusals, and hosts that cannot. */
#include "gptq_case.h"

#include "../fixtures/error_is.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tessera/linalg.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_options_layout(void **state)
{
    static const struct {
        const char *name;
        uint64_t    offset;
    } want[] = { { "bits", offsetof(struct gptq_options, bits) },
                 { "group", offsetof(struct gptq_options, group) },
                 { "symmetric", offsetof(struct gptq_options, symmetric) },
                 { "mse", offsetof(struct gptq_options, mse) },
                 { "act_order", offsetof(struct gptq_options, act_order) },
                 { "static_groups", offsetof(struct gptq_options, static_groups) },
                 { "damp", offsetof(struct gptq_options, damp) },
                 { "scale", offsetof(struct gptq_options, scale) },
                 { "params", offsetof(struct gptq_options, params) },
                 { "refine", offsetof(struct gptq_options, refine) },
                 { "block", offsetof(struct gptq_options, block) },
                 { "minimum", offsetof(struct gptq_options, minimum) },
                 { "scale_bits", offsetof(struct gptq_options, scale_bits) },
                 { "element", offsetof(struct gptq_options, element) },
                 { "asymmetric", offsetof(struct gptq_options, asymmetric) },
                 { "alpha", offsetof(struct gptq_options, alpha) } };
    const struct tsr_component *c = gptq_found.component;
    (void)state;
    assert_int_equal(c->options_size, sizeof(struct gptq_options));
    assert_int_equal(c->n_options, sizeof want / sizeof *want);
    for (uint64_t i = 0; i < c->n_options; i++) {
        assert_string_equal(c->options[i].name, want[i].name);
        assert_int_equal(c->options[i].offset, want[i].offset);
    }
}

/* One row at a time, all at once, with a report and without: the same bytes. */
static void test_rows_are_independent(void **state)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_quantizer_v1 *f = gptq_found.iface;
    (void)state;
    for (int variant = 0; variant < 5; variant++) {
        struct gptq_case   p = gptq_case_named(variant % 3 == 0 ? "17_C_b2_g32_asym_mse"
                                               : variant == 1   ? "21_D_b3_grow_sym_act"
                                                                : "22_D_b4_g64_asym");
        struct gptq_result r;
        void              *self = NULL, *prepared = NULL;
        p.o.params = variant == 2 ? GPTQ_RANGE : GPTQ_AUTO;
        p.o.minimum = variant > 2;
        p.o.scale_bits = variant == 4 ? 6 : 0;
        gptq_quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
        gptq_must(r.status, &r.err);
        gptq_must(f->create(tsr_plugin_registry_host(gptq_registry), &p.o, &self, &e.err), &e);
        struct tsr_quant_stats s = { .struct_size = sizeof s, .cols = p.cols, .hessian = p.h };
        struct tsr_matrix      all = gptq_matrix(p.w, p.rows, p.cols);
        struct tsr_quant_plan  plan = { .struct_size = sizeof plan };
        plan.format.struct_size = sizeof plan.format;
        gptq_must(f->plan(self, &all, &plan, &e.err), &e);
        gptq_must(f->prepare(self, &s, &prepared, &e.err), &e);
        unsigned char *codes = tsr_new_aligned(1, plan.code_bytes);
        unsigned char *meta = tsr_new_aligned(1, plan.meta_bytes);
        void          *scratch = tsr_new_aligned(1, plan.scratch_bytes);
        assert_true(codes && meta && scratch);
        for (uint64_t row = 0; row < p.rows; row++) {
            struct tsr_matrix    one = gptq_matrix(p.w + row * p.cols, 1, p.cols);
            struct tsr_quant_job job = { .struct_size = sizeof job,
                                         .first_row = row,
                                         .src = &one,
                                         .codes = codes,
                                         .meta = meta,
                                         .scratch = scratch,
                                         .stats = &s,
                                         .prepared = prepared };
            memset(scratch, 0xff, plan.scratch_bytes);
            gptq_must(f->quantize(self, &job, &e.err), &e);
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
        gptq_result_free(&r);
        gptq_case_close(&p);
    }
}

/* Minimums instead of zero points: the reported loss is that of the decoded weights, is below that of
 * rounding to nearest in the same layout, and below that of zero points with as many bits. */
static void test_minimums(void **state)
{
    (void)state;
    static const char *const names[] = { "17_C_b2_g32_asym_mse", "22_D_b4_g64_asym" };
    for (int i = 0; i < 2; i++) {
        struct gptq_case p = gptq_case_named(names[i]);
        double           loss[3];
        p.o.params = GPTQ_AUTO;
        p.o.mse = 0;
        for (int variant = 0; variant < 3; variant++) {
            struct gptq_result r;
            p.o.minimum = variant > 0;
            p.o.scale_bits = variant == 2 ? 6 : 0;
            gptq_quantize(&r, &p.o, p.w, p.h, p.rows, p.cols);
            gptq_must(r.status, &r.err);
            loss[variant] = gptq_layer_error(p.w, r.dense, p.h, p.rows, p.cols);
            assert_string_equal(r.packed->format.id, variant ? TSR_FORMAT_AFFINE : TSR_FORMAT_INT);
            if (!(fabs(r.report.loss - loss[variant]) <= 1e-3 * loss[variant]))
                fail_msg("%s: reported %g, computed %g", names[i], r.report.loss, loss[variant]);
            if (!(loss[variant] < r.report.rtn_loss))
                fail_msg("%s: %g, by rounding %g", names[i], loss[variant], r.report.rtn_loss);
            gptq_result_free(&r);
        }
        if (!(loss[1] < loss[0]))
            fail_msg("%s: with minimums %g, with zero points %g", names[i], loss[1], loss[0]);
        gptq_case_close(&p);
    }
}

/* On the grids of NVFP4 and MXFP4 the layer error is below that of rounding to nearest, and the reported
 * losses are those of the decoded weights. */
static void test_fp4(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(json_object_get(gptq_cases, "cases")); i += 4)
        for (int element = 1; element <= 2; element++) {
            struct gptq_case p =
                gptq_case_open(json_array_get(json_object_get(gptq_cases, "cases"), i));
            struct gptq_result  r;
            struct gptq_options o = gptq_defaults();
            o.element = element;
            gptq_quantize(&r, &o, p.w, p.h, p.rows, p.cols);
            gptq_must(r.status, &r.err);
            double loss = gptq_layer_error(p.w, r.dense, p.h, p.rows, p.cols);
            assert_string_equal(r.packed->format.id,
                                element == 1 ? TSR_FORMAT_TABLE : TSR_FORMAT_MX);
            if (!(fabs(r.report.loss - loss) <= 1e-3 * loss))
                fail_msg("%s: reported %g, computed %g", p.name, r.report.loss, loss);
            if (!(loss < r.report.rtn_loss))
                fail_msg("%s: %g, by rounding %g", p.name, loss, r.report.rtn_loss);
            gptq_result_free(&r);
            gptq_case_close(&p);
        }
}

/* A Hessian of rank 1 and no damping: it is doubled until the factor exists, and that is said. */
static void test_damping(void **state)
{
    enum { ROWS = 5, COLS = 48 };
    float               w[ROWS * COLS], h[COLS * COLS];
    struct gptq_options o = gptq_defaults();
    struct gptq_result  r;
    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        w[i] = sinf((float)i);
    for (int i = 0; i < COLS; i++)
        for (int j = 0; j < COLS; j++)
            h[i * COLS + j] = (1.0f + (float)(i % 3)) * (1.0f + (float)(j % 3));
    o.damp = 0.0;
    gptq_quantize(&r, &o, w, h, ROWS, COLS);
    gptq_must(r.status, &r.err);
    assert_true(r.report.retries > 0 && r.report.damping > 0.0 && r.report.damping < 1.0);
    assert_true(r.report.loss < r.report.rtn_loss);
    gptq_result_free(&r);
    memset(h, 0, sizeof h); /* inputs that are all zero: nothing matters, nothing fails */
    gptq_quantize(&r, &o, w, h, ROWS, COLS);
    gptq_must(r.status, &r.err);
    assert_true(r.report.loss == 0.0 && r.report.rtn_loss == 0.0);
    gptq_result_free(&r);
}

/* ---- dead columns ------------------------------------------------------------------------ */

#define DEAD_ROWS 3u
#define DEAD_COLS 96u
static const uint64_t dead_columns[] = { 5, 40, 95 }; /* one in each group of 32 */

/* Random weights, `far` in the dead columns; a Hessian of 40 tokens in which these were never anything but 0. */
static void dead_case(float far, float *w, float *h)
{
    double x[40][DEAD_COLS];
    for (uint64_t i = 0; i < DEAD_ROWS * DEAD_COLS; i++)
        w[i] = (float)(0.1 * tsr_normal(1, 1, i));
    for (uint64_t t = 0; t < 40; t++)
        for (uint64_t k = 0; k < DEAD_COLS; k++)
            x[t][k] = tsr_normal(2, t, k);
    for (size_t d = 0; d < 3; d++) {
        for (uint64_t r = 0; r < DEAD_ROWS; r++)
            w[r * DEAD_COLS + dead_columns[d]] = far;
        for (uint64_t t = 0; t < 40; t++)
            x[t][dead_columns[d]] = 0;
    }
    for (uint64_t i = 0; i < DEAD_COLS; i++)
        for (uint64_t j = 0; j < DEAD_COLS; j++) {
            double sum = 0;
            for (uint64_t t = 0; t < 40; t++)
                sum += 2 * x[t][i] * x[t][j];
            h[i * DEAD_COLS + j] = (float)sum;
        }
}

static void dead_quantize(struct gptq_result *r, const struct gptq_options *o, float far)
{
    float *w = malloc(DEAD_ROWS * DEAD_COLS * sizeof *w);
    float *h = malloc(DEAD_COLS * DEAD_COLS * sizeof *h);
    assert_true(w && h);
    dead_case(far, w, h);
    gptq_quantize(r, o, w, h, DEAD_ROWS, DEAD_COLS);
    gptq_must(r->status, &r->err);
    for (uint64_t row = 0; row < DEAD_ROWS; row++)
        for (size_t d = 0; d < 3; d++)
            assert_true(r->dense[row * DEAD_COLS + dead_columns[d]] == 0.0f);
    free(w);
    free(h);
}

/* As GPTQ's code has it (a dead column is one with 0 on the Hessian's diagonal): its weights are 0 before the range of
 * a group is taken, however that is done, but behind that of a whole row. */
static void test_dead_columns(void **state)
{
    static const struct {
        int64_t params;
        int32_t act_order, static_groups, mse, symmetric;
    } ways[] = {
        { GPTQ_AUTO, 1, 0, 0, 0 },  { GPTQ_AUTO, 0, 0, 0, 1 },  { GPTQ_RANGE, 0, 0, 0, 0 },
        { GPTQ_RANGE, 1, 1, 0, 0 }, { GPTQ_RANGE, 0, 1, 1, 1 }, { GPTQ_RANGE, 0, 0, 1, 0 }
    };
    struct gptq_result r, bare;
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct gptq_options o = gptq_defaults();
        o.group = 32;
        o.params = ways[i].params;
        o.act_order = ways[i].act_order;
        o.static_groups = ways[i].static_groups;
        o.mse = ways[i].mse;
        o.symmetric = ways[i].symmetric;
        dead_quantize(&r, &o, 50.0f);
        dead_quantize(&bare, &o, 0.0f);
        assert_memory_equal(r.packed->codes, bare.packed->codes, DEAD_ROWS * r.packed->code_stride);
        assert_memory_equal(r.packed->meta, bare.packed->meta, DEAD_ROWS * r.packed->meta_stride);
        gptq_result_free(&r);
        gptq_result_free(&bare);
    }
    struct gptq_options o = gptq_defaults();
    o.group = -1;
    o.scale = TSR_F32;
    dead_quantize(&r, &o, 50.0f);
    for (uint64_t row = 0; row < DEAD_ROWS; row++) {
        float w[DEAD_ROWS * DEAD_COLS], h[DEAD_COLS * DEAD_COLS], scale, least = 0;
        dead_case(50.0f, w, h);
        for (uint64_t k = 0; k < DEAD_COLS; k++)
            least = fminf(least, w[row * DEAD_COLS + k]);
        memcpy(&scale, (char *)r.packed->meta + row * r.packed->meta_stride, sizeof scale);
        assert_true(scale == (50.0f - least) / 15.0f);
    }
    gptq_result_free(&r);
}

static void refused(const struct gptq_options *o, const float *w, const float *h, tsr_status want,
                    const char *about, const char *facts)
{
    struct gptq_result r;
    gptq_quantize(&r, o, w, h, 3, 16);
    if (r.status != want || !error_is(&r.err.err, about, facts))
        fail_msg("status %d, '%s'; wanted %d", r.status, r.err.text, want);
}

static void test_refusals(void **state)
{
    float               w[3 * 16], h[16 * 16] = { 0 };
    struct gptq_options o = gptq_defaults(), bad = o;
    (void)state;
    for (int i = 0; i < 48; i++)
        w[i] = cosf((float)i);
    for (int i = 0; i < 16; i++)
        h[i * 17] = 1.0f;
    bad.group = 0;
    refused(&bad, w, h, TSR_E_CONFIG, "", "group -1");
    bad = o;
    bad.params = GPTQ_RANGE;
    refused(&bad, w, h, TSR_E_CONFIG, "", "act_order static_groups");
    h[2 * 16 + 5] = 0.5f;
    refused(&o, w, h, TSR_E_INPUT, "quantizer 'gptq', tensor 'w'", "(5,#2)");
    h[2 * 16 + 5] = h[5 * 16 + 2] = NAN;
    refused(&o, w, h, TSR_E_INPUT, "quantizer 'gptq', tensor 'w'", "Hessian nan");
    h[2 * 16 + 5] = h[5 * 16 + 2] = 0.0f;
    h[3 * 17] = -1.0f;
    refused(&o, w, h, TSR_E_INPUT, "quantizer 'gptq', tensor 'w'", "Hessian column#3");
    h[3 * 17] = INFINITY;
    refused(&o, w, h, TSR_E_INPUT, "quantizer 'gptq', tensor 'w'", "Hessian column#3");
    h[3 * 17] = 1.0f;
    w[16 + 7] = NAN;
    refused(&o, w, h, TSR_E_INPUT, "w", "row#1 column#7");
    for (int i = 0; i < 16; i++)
        w[32 + i] = 1e-7f * (float)(i + 1);
    w[16 + 7] = 0.0f;
    refused(&o, w, h, TSR_E_INPUT, "w", "row#2 group#0");
    o.params = GPTQ_RANGE;
    o.act_order = 0;
    refused(&o, w, h, TSR_E_INPUT, "w", "f32");
    h[1] = h[16] = 3.0f; /* indefinite: an eigenvalue of -2, which takes that much damping */
    struct gptq_result r;
    for (int i = 0; i < 16; i++)
        w[32 + i] = 0.1f * (float)(i + 1);
    gptq_quantize(&r, &o, w, h, 3, 16);
    gptq_must(r.status, &r.err);
    assert_true(r.report.damping > 2.0);
    gptq_result_free(&r);
}

static void test_no_hessian(void **state)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_quantizer_v1 *f = gptq_found.iface;
    struct gptq_options            o = gptq_defaults();
    struct tsr_quantizer           q = { .iface = f, .name = "gptq" };
    struct tsr_model_packed       *p = NULL;
    float                          w[16] = { 1.0f };
    struct tsr_matrix              m = gptq_matrix(w, 1, 16);
    (void)state;
    gptq_must(f->create(tsr_plugin_registry_host(gptq_registry), &o, &q.self, &e.err), &e);
    assert_int_equal(tsr_quantize_matrix(gptq_registry, &q, &m, NULL, &p, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "gptq", "Hessian"));
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
    const struct tsr_quantizer_v1 *f = gptq_found.iface;
    const struct tsr_host         *real = tsr_plugin_registry_host(gptq_registry);
    struct tsr_host                host = *real;
    struct gptq_options            o = gptq_defaults();
    struct gptq_case               p = gptq_case_named("22_D_b4_g64_asym");
    struct tsr_quant_stats         s = { .struct_size = sizeof s, .cols = p.cols, .hessian = p.h };
    void                          *self = NULL, *prepared = NULL;
    (void)state;
    host.alloc = scarce_alloc;
    host.release = scarce_release;
    assert_int_equal(f->create(&host, &o, &self, &e.err), TSR_E_NOMEM);
    for (int n = 0; n < 2; n++) { /* the site, the rows that are inverted at once */
        allocations = 1;
        gptq_must(f->create(&host, &o, &self, &e.err), &e);
        allocations = n;
        assert_int_equal(f->prepare(self, &s, &prepared, &e.err), TSR_E_NOMEM);
        assert_null(prepared);
        f->destroy(self);
        assert_int_equal(held, 0);
    }
    allocations = 1;
    host.service = no_service;
    gptq_must(f->create(&host, &o, &self, &e.err), &e);
    assert_int_equal(f->prepare(self, &s, &prepared, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", TSR_LINALG));
    f->destroy(self);
    allocations = 3;
    host.service = real->service;
    host.cancelled = stopped;
    gptq_must(f->create(&host, &o, &self, &e.err), &e);
    assert_int_equal(f->prepare(self, &s, &prepared, &e.err), TSR_E_CANCELLED);
    f->destroy(self);
    assert_int_equal(held, 0);
    gptq_case_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_layout), cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_minimums),       cmocka_unit_test(test_fp4),
        cmocka_unit_test(test_damping),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_hessian),     cmocka_unit_test(test_host_that_cannot),
        cmocka_unit_test(test_dead_columns),
    };
    return cmocka_run_group_tests(tests, gptq_setup, gptq_teardown);
}
