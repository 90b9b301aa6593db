/* gptq over linear algebra with memory of its own, as a device has, but with the CPU's arithmetic: the
 * bytes of the CPU, whatever travels, and little that travels. */
#include "gptq_case.h"

#include "base/mem.h"
#include "tessera/linalg.h"
#include "tessera/quantizer.h"
#include "tessera/quantizer_report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOLDS 4u

/* A device: copies of what is held, made when it is held, and what went to it or came back. */
struct far {
    const struct tsr_linalg_v1 *near;
    struct tsr_host             host;
    struct tsr_linalg_v1        table;
    struct {
        const float *a;
        uint64_t     n;
        float       *copy;
    } held[HOLDS];
    uint64_t bytes;
};

static struct far far;

static float *copy_of(const float *a, uint64_t n)
{
    for (unsigned i = 0; i < HOLDS; i++)
        if (far.held[i].copy && a >= far.held[i].a && a + n <= far.held[i].a + far.held[i].n)
            return far.held[i].copy + (a - far.held[i].a);
    return NULL;
}

/* Where the device has a matrix; one that it does not hold travels, twice where it is written. */
static float *there(const float *a, uint64_t rows, uint64_t cols, uint64_t ld, int written)
{
    float *p = copy_of(a, (rows - 1) * ld + cols);
    if (!p)
        far.bytes += rows * cols * sizeof *a * (written ? 2 : 1);
    return p ? p : (float *)(uintptr_t)a;
}

static tsr_status far_gemm(void *ctx, uint64_t m, uint64_t n, uint64_t k, float alpha,
                           const float *a, uint64_t lda, const float *b, uint64_t ldb,
                           int32_t b_transposed, float *c, uint64_t ldc, struct tsr_err *err)
{
    (void)ctx;
    return far.near->gemm(far.near->ctx, m, n, k, alpha, there(a, m, k, lda, 0), lda,
                          b_transposed ? there(b, n, k, ldb, 0) : there(b, k, n, ldb, 0), ldb,
                          b_transposed, there(c, m, n, ldc, 1), ldc, err);
}

static tsr_status far_cholesky(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                               struct tsr_err *err)
{
    (void)ctx;
    return far.near->cholesky(far.near->ctx, n, there(a, n, n, lda, 1), lda, pivot, err);
}

static tsr_status far_hold(void *ctx, const float *a, uint64_t n, struct tsr_err *err)
{
    unsigned i = 0;
    (void)ctx;
    assert_null(copy_of(a, n));
    while (i < HOLDS && far.held[i].copy)
        i++;
    assert_true(i < HOLDS);
    float *copy = malloc(n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, a, n * sizeof *copy);
    far.held[i].a = a;
    far.held[i].n = n;
    far.held[i].copy = copy;
    far.bytes += n * sizeof *a;
    (void)err;
    return TSR_OK;
}

static tsr_status far_fetch(void *ctx, float *a, uint64_t n, struct tsr_err *err)
{
    const float *p = copy_of(a, n);
    (void)ctx;
    (void)err;
    assert_non_null(p);
    memcpy(a, p, n * sizeof *a);
    far.bytes += n * sizeof *a;
    return TSR_OK;
}

static tsr_status far_push(void *ctx, const float *a, uint64_t n, struct tsr_err *err)
{
    float *p = copy_of(a, n);
    (void)ctx;
    (void)err;
    assert_non_null(p);
    memcpy(p, a, n * sizeof *a);
    far.bytes += n * sizeof *a;
    return TSR_OK;
}

static tsr_status far_drop(void *ctx, const float *a, int32_t fetch, struct tsr_err *err)
{
    for (unsigned i = 0; i < HOLDS; i++)
        if (far.held[i].copy && far.held[i].a == a) {
            if (fetch)
                (void)far_fetch(ctx, (float *)(uintptr_t)a, far.held[i].n, err);
            free(far.held[i].copy);
            far.held[i].copy = NULL;
            return TSR_OK;
        }
    fail_msg("a drop of what is not held");
    return TSR_E_INVAL;
}

static const void *far_service(void *ctx, const char *id)
{
    const struct tsr_host *h = tsr_plugin_registry_host(gptq_registry);
    return strcmp(id, TSR_LINALG) == 0 ? &far.table : h->service(ctx, id);
}

/* parts: with fetch() and push(), which came later. */
static void far_open(int parts)
{
    const struct tsr_host *h = tsr_plugin_registry_host(gptq_registry);
    far = (struct far){ .near = h->service(h->ctx, TSR_LINALG), .host = *h };
    assert_non_null(far.near);
    far.host.service = far_service;
    far.table = (struct tsr_linalg_v1){ .struct_size =
                                            parts ? (uint32_t)sizeof far.table
                                                  : (uint32_t)offsetof(struct tsr_linalg_v1, fetch),
                                        .gemm = far_gemm,
                                        .cholesky = far_cholesky,
                                        .hold = far_hold,
                                        .drop = far_drop,
                                        .fetch = far_fetch,
                                        .push = far_push };
}

static void far_close(void)
{
    for (unsigned i = 0; i < HOLDS; i++)
        assert_null(far.held[i].copy);
}

/* All rows in one job, the Hessian held as the core does it; the bytes that moved in it. */
static uint64_t quantize_far(const struct gptq_case *p, const float *cross,
                             const struct gptq_result *want, int parts)
{
    struct tsr_errbuf                     e = TSR_ERRBUF(e);
    const struct tsr_quantizer_v1        *f = gptq_found.iface;
    struct tsr_quant_stats                s = { .struct_size = sizeof s, .cols = p->cols };
    struct tsr_matrix                     m = gptq_matrix(p->w, p->rows, p->cols);
    struct tsr_quant_plan                 plan = { .struct_size = sizeof plan };
    void                                 *self = NULL, *prepared = NULL;
    const struct tsr_quantizer_report_v1 *report;
    s.hessian = p->h;
    s.cross = cross;
    plan.format.struct_size = sizeof plan.format;
    far_open(parts);
    gptq_must(f->create(&far.host, &p->o, &self, &e.err), &e);
    report = f->extension(self, TSR_QUANTIZER_REPORT);
    gptq_must(f->plan(self, &m, &plan, &e.err), &e);
    gptq_must(far_hold(NULL, p->h, p->cols * p->cols, &e.err), &e);
    gptq_must(f->prepare(self, &s, &prepared, &e.err), &e);
    unsigned char *codes = tsr_new_aligned(p->rows, plan.code_bytes);
    unsigned char *meta = tsr_new_aligned(p->rows, plan.meta_bytes);
    void          *scratch = tsr_new_aligned(1, plan.scratch_bytes);
    double        *loss = calloc(p->rows, sizeof *loss), *near = calloc(p->rows, sizeof *near);
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .src = &m,
                                 .codes = codes,
                                 .meta = meta,
                                 .scratch = scratch,
                                 .stats = &s,
                                 .prepared = prepared };
    assert_true(codes && meta && scratch && loss && near);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    far.bytes = 0;
    gptq_must(f->quantize(self, &job, &e.err), &e);
    uint64_t moved = far.bytes;
    for (int with_report = 0; with_report < 2; with_report++) {
        for (uint64_t row = 0; row < p->rows; row++) {
            assert_memory_equal(codes + row * plan.code_bytes,
                                (char *)want->packed->codes + row * want->packed->code_stride,
                                plan.code_bytes);
            assert_memory_equal(meta + row * plan.meta_bytes,
                                (char *)want->packed->meta + row * want->packed->meta_stride,
                                plan.meta_bytes);
        }
        if (!with_report)
            gptq_must(report->quantize(self, &job, loss, near, &e.err), &e);
    }
    double sum = 0.0, sum_near = 0.0;
    for (uint64_t row = 0; row < p->rows; row++) {
        sum += loss[row];
        sum_near += near[row];
    }
    /* of the same numbers, added in an order of the host's */
    assert_true(fabs(sum - want->report.loss) <= 1e-12 * want->report.loss);
    assert_true(fabs(sum_near - want->report.rtn_loss) <= 1e-12 * want->report.rtn_loss);
    f->unprepare(self, prepared);
    gptq_must(far_drop(NULL, p->h, 0, &e.err), &e);
    f->destroy(self);
    far_close();
    free(codes);
    free(meta);
    free(scratch);
    free(loss);
    free(near);
    return moved;
}

/* As if inputs differed by a tenth of their neighbours. */
static float *cross_of(const struct gptq_case *p)
{
    float *v = tsr_new(p->cols * p->cols, sizeof *v);
    assert_non_null(v);
    for (uint64_t i = 0; i < p->cols; i++)
        for (uint64_t k = 0; k < p->cols; k++)
            v[i * p->cols + k] = 0.1f * p->h[(i + 1) % p->cols * p->cols + k];
    return v;
}

/* The bytes of the CPU; and with parts, of a tile of 64 rows what goes over the errors a few times, not
 * once for each block: twice there and back in the pass, once more at the end, and in the sweep, whose
 * gradients come and go; in the first tile the place itself.  An asymmetric target goes there and comes back
 * once more. */
static void test_far(void **state)
{
    static const char *const names[] = { "17_C_b2_g32_asym_mse", "21_D_b3_grow_sym_act",
                                         "22_D_b4_g64_asym" };
    (void)state;
    for (int i = 0; i < 9; i++) {
        struct gptq_case   p = gptq_case_named(names[i % 3]);
        float             *cross = i < 6 ? NULL : cross_of(&p);
        struct gptq_result r;
        p.o.asymmetric = i >= 6;
        p.o.params = i < 3 || i >= 6 ? GPTQ_AUTO : GPTQ_RANGE;
        p.o.act_order = i == 1 || (i == 0 && p.o.params == GPTQ_AUTO);
        p.o.block = 16; /* groups reach behind blocks */
        gptq_quantize_cross(&r, &p.o, p.w, p.h, cross, p.rows, p.cols);
        gptq_must(r.status, &r.err);
        uint64_t whole = quantize_far(&p, cross, &r, 0);
        uint64_t moved = quantize_far(&p, cross, &r, 1);
        uint64_t tiles = (p.rows + 63) / 64, pass = p.cols * 64 * sizeof(float);
        uint64_t most = (8 * tiles + 1) * pass;
        if (p.o.params == GPTQ_RANGE && p.width < p.cols) /* groups of the pass, once more */
            most += tiles * pass;
        if (cross) /* there, and the target there and back */
            most += 3 * tiles * pass;
        print_message("%s: %llu bytes travel, %llu without parts\n", p.name,
                      (unsigned long long)moved, (unsigned long long)whole);
        assert_true(moved <= most);
        assert_true(p.cols < 16 * 16 || whole > 2 * moved);
        gptq_result_free(&r);
        gptq_case_close(&p);
        free(cross);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_far) };
    return cmocka_run_group_tests(tests, gptq_setup, gptq_teardown);
}
