/* quant_golden.h - what the tests of quantizer plugins on recorded cases share: the index and
 * tensors of tests/golden/quant, a serial host, and plain double-precision linear algebra. */
#ifndef TSR_TEST_QUANT_GOLDEN_H
#define TSR_TEST_QUANT_GOLDEN_H

#include "base/f16.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "tessera/linalg.h"
#include "tessera/quantizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct golden {
    struct tsr_safetensors st;
    json_t                *index;
};

static inline void golden_open(struct golden *g, const char *name)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              path[512];
    (void)snprintf(path, sizeof path, TEST_GOLDEN "/quant/%s.safetensors", name);
    if (tsr_safetensors_open(&g->st, path, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    (void)snprintf(path, sizeof path, TEST_GOLDEN "/quant/%s.json", name);
    if (tsr_json_load(&g->index, path, 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->index);
    tsr_safetensors_close(&g->st);
}

static inline const char *golden_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s)
        fail_msg("no text '%s' in the index", key);
    return s;
}

static inline double golden_real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v))
        fail_msg("no number '%s' in the index", key);
    return json_number_value(v);
}

/* A recorded tensor, floating types widened to F32, others as they are; n elements in all. */
static inline void *golden_tensor(const struct golden *g, const char *name, uint64_t n)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&g->st, name);
    if (!t) {
        fail_msg("no tensor '%s'", name);
        return NULL;
    }
    uint64_t size = t->dtype ? tsr_dtype_size(t->dtype) : 0;
    if (size == 0)
        size = 4; /* I32 */
    if (t->end - t->begin != n * size)
        fail_msg("tensor '%s' has %d bytes", name, (int)(t->end - t->begin));
    void  *raw = tsr_new(n, size);
    float *wide = tsr_new(n, 4);
    assert_true(raw && wide);
    if (tsr_safetensors_read(&g->st, t, raw, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (size == 4)
        memcpy(wide, raw, n * 4);
    else
        tsr_widen(wide, raw, t->dtype, n);
    free(raw);
    return wide;
}

static inline struct tsr_matrix golden_matrix(const char *name, const float *w, uint64_t rows,
                                              uint64_t cols)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = name,
                                .data = (void *)(uintptr_t)w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
}

/* |a - b| <= tolerance * |b| for every element; a NaN fails. */
static inline void golden_close_to(const char *what, const float *a, const float *b, uint64_t n,
                                   double tolerance)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance * fabs((double)b[i])))
            fail_msg("%s: element %d is %.9g, recorded %.9g", what, (int)i, (double)a[i],
                     (double)b[i]);
}

/* ---- a host ---------------------------------------------------------------- */

static inline tsr_status golden_gemm(void *ctx, uint64_t m, uint64_t n, uint64_t k, float alpha,
                                     const float *a, uint64_t lda, const float *b, uint64_t ldb,
                                     int32_t b_transposed, float *c, uint64_t ldc,
                                     struct tsr_err *err)
{
    (void)ctx;
    (void)err;
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (uint64_t p = 0; p < k; p++)
                sum += (double)a[i * lda + p] *
                       (double)(b_transposed ? b[j * ldb + p] : b[p * ldb + j]);
            c[i * ldc + j] += (float)((double)alpha * sum);
        }
    return TSR_OK;
}

static inline const void *golden_service(void *ctx, const char *id)
{
    static const struct tsr_linalg_v1 table = { .struct_size = sizeof table, .gemm = golden_gemm };
    (void)ctx;
    return strcmp(id, TSR_LINALG) == 0 ? &table : NULL;
}

static inline void *golden_alloc(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    (void)align;
    return tsr_new_aligned(1, size);
}
static inline void golden_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}
static inline int32_t golden_cancelled(void *ctx)
{
    (void)ctx;
    return 0;
}
static inline tsr_status golden_for(void *ctx, uint64_t n, uint64_t grain,
                                    tsr_status (*body)(void *arg, uint64_t begin, uint64_t end),
                                    void *arg)
{
    (void)ctx;
    for (uint64_t i = 0; i < n; i += grain) {
        tsr_status st = body(arg, i, n - i < grain ? n : i + grain);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}
static const struct tsr_host golden_host = { .struct_size = sizeof golden_host,
                                             .abi_major = TSR_ABI_MAJOR,
                                             .alloc = golden_alloc,
                                             .release = golden_release,
                                             .parallel_for = golden_for,
                                             .cancelled = golden_cancelled,
                                             .service = golden_service };

/* ---- a matrix through a quantizer -------------------------------------------- */

/* What a quantizer makes of w without statistics: codes, meta (the caller frees both) and dense,
 * [rows, cols]. */
static inline tsr_status golden_quantize(const struct tsr_quantizer_v1 *q, void *self,
                                         const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                                         unsigned char **codes, unsigned char **meta, float *dense,
                                         struct tsr_err *err)
{
    *plan = (struct tsr_quant_plan){ .struct_size = sizeof *plan,
                                     .format = { .struct_size = sizeof plan->format } };
    assert_int_equal(q->plan(self, w, plan, err), TSR_OK);
    assert_int_equal(plan->rows_per_unit, 1);
    *codes = tsr_new(w->rows, plan->code_bytes);
    *meta = tsr_new(w->rows, plan->meta_bytes);
    void *scratch = tsr_new_aligned(1, plan->scratch_bytes);
    if (!*codes || !*meta || !scratch) {
        free(scratch);
        return tsr_fail(err, TSR_E_NOMEM, "out of memory in a test");
    }
    memset(*codes, 0xa5, w->rows * plan->code_bytes); /* every byte must be written */
    memset(*meta, 0xa5, w->rows * plan->meta_bytes);
    struct tsr_quant_job job = {
        .struct_size = sizeof job, .src = w, .codes = *codes, .meta = *meta, .scratch = scratch
    };
    tsr_status st = q->quantize(self, &job, err);
    if (st == TSR_OK) {
        struct tsr_matrix dst = golden_matrix(w->name, dense, w->rows, w->cols);
        job.src = NULL;
        job.dst = &dst;
        st = q->dequantize(self, &job, err);
    }
    free(scratch);
    return st;
}

#endif
