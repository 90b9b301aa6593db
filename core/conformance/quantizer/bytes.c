/* Which bytes quantize() and dequantize() read and write. */
#include "conformance/quantizer/quantizer.h"

#include "base/f16.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 64 rows: then codes, meta and dst are multiples of 64 bytes, and end where their page does. */
#define ROWS 64u
#define COLS 160u /* of groups of 128, 64 or 32 the last one is short or not */

static struct tsr_conformance_quant_try usual(struct tsr_conformance_case *c)
{
    void                            *self = tsr_conformance_quant_make(c);
    struct tsr_conformance_quant_try t = {
        .w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, COLS), COLS,
                                          c->seed)
    };
    tsr_conformance_quant_destroy(c, self);
    return t;
}

void tsr_conformance_quant_writes_exactly(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try t = usual(c);
    uint64_t                         bytes = t.w.rows * t.w.row_stride;
    void                            *w = tsr_conformance_guarded("the weights", bytes, 0);
    memcpy(w, t.w.data, bytes);
    t.w.data = w;
    t.guard = true;
    (void)tsr_conformance_quant_must(c, &t);
}

static void every_byte(struct tsr_conformance_case *c, struct tsr_conformance_quant_try a)
{
    struct tsr_conformance_quant_try b = a;
    a.no_decode = b.no_decode = true;
    a.fill = 0x00;
    b.fill = 0xFF;
    (void)tsr_conformance_quant_must(c, &a);
    (void)tsr_conformance_quant_must(c, &b);
    tsr_conformance_quant_same(c, &a, &b, "where the buffers held 0xff instead of 0x00 before,");
}

/* The codes of an odd number of columns end inside a byte, for most widths of a code. */
static bool works_with(struct tsr_conformance_case *c, struct tsr_conformance_quant_try t)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = tsr_conformance_quant_make(c);
    t.no_decode = true;
    tsr_status st = tsr_conformance_quant_run(c, self, &t, &e.err); /* a shape may be refused */
    tsr_conformance_quant_destroy(c, self);
    return st == TSR_OK;
}

void tsr_conformance_quant_writes_every_byte(struct tsr_conformance_case *c)
{
    static const uint64_t widths[] = { 9, 33, 131 };
    every_byte(c, usual(c));
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct tsr_conformance_quant_try t = { .w = tsr_conformance_quant_matrix(c, ROWS, widths[i],
                                                                                 c->seed) };
        if (works_with(c, t))
            every_byte(c, t);
    }
}

static uint64_t sum_of(const void *p, uint64_t bytes)
{
    const unsigned char *b = p;
    uint64_t             h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (uint64_t i = 0; p && i < bytes; i++)
        h = (h ^ b[i]) * UINT64_C(1099511628211);
    return h;
}

static uint64_t stats_sum(const struct tsr_quant_stats *s)
{
    uint64_t v = s->cols * sizeof(float);
    return sum_of(s->hessian, s->cols * v) ^ sum_of(s->absmax, v) * 3 ^ sum_of(s->mean, v) * 5 ^
           sum_of(s->variance, v) * 7 ^ sum_of(s->mean_abs, v) * 11 ^
           sum_of(s->inputs, s->input_rows * v) * 13 ^ sum_of(s->cross, s->cols * v) * 17;
}

void tsr_conformance_quant_source_untouched(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try t = usual(c);
    uint64_t bytes = t.w.rows * t.w.row_stride, before = sum_of(t.w.data, bytes);
    void    *self = tsr_conformance_quant_must(c, &t);
    if (sum_of(t.w.data, bytes) != before)
        tsr_conformance_rule_fail(c, "the weights are other ones after quantize()");
    if (!t.plan.need)
        return;
    struct tsr_quant_stats fresh;
    uint64_t               need = t.plan.need | t.plan.need >> 32;
    tsr_conformance_quant_stats_make(c, &fresh, need & UINT32_MAX, t.w.rows, t.w.cols);
    if (stats_sum(&fresh) != stats_sum(&t.stats))
        tsr_conformance_rule_fail(c,
                                  "the statistics are other ones after prepare() and quantize()");
    tsr_conformance_quant_destroy(c, self);
}

void tsr_conformance_quant_scratch_dirty(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try a = usual(c), b = a;
    b.scratch_fill = 0xFF; /* NaN, for a plugin that reads it */
    (void)tsr_conformance_quant_must(c, &a);
    (void)tsr_conformance_quant_must(c, &b);
    if (a.plan.scratch_bytes == 0)
        tsr_conformance_rule_skip(c, "it uses no scratch");
    tsr_conformance_quant_same(c, &a, &b, "with a scratch of 0xff instead of 0x00");
    if (memcmp(a.dense, b.dense, a.w.rows * a.w.cols * sizeof(float)) != 0)
        tsr_conformance_rule_fail(
            c, "with a scratch of 0xff instead of 0x00 dequantize() gives other values");
}

void tsr_conformance_quant_memory_dirty(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try a = usual(c), b = a;
    c->host->fill = 0x00;
    (void)tsr_conformance_quant_must(c, &a);
    c->host->fill = 0xFF;
    (void)tsr_conformance_quant_must(c, &b);
    tsr_conformance_quant_same(c, &a, &b, "with host memory of 0xff instead of 0x00");
    if (memcmp(a.dense, b.dense, a.w.rows * a.w.cols * sizeof(float)) != 0)
        tsr_conformance_rule_fail(
            c, "with host memory of 0xff instead of 0x00 dequantize() gives other values");
}

void tsr_conformance_quant_instance_unchanged(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try t = usual(c);
    t.read_only = true;
    (void)tsr_conformance_quant_must(c, &t);
}

void tsr_conformance_quant_row_stride(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try a = usual(c), b = a;
    uint64_t                         stride = a.w.row_stride + 192;
    float                           *wide = tsr_conformance_rule_memory(c, a.w.rows * stride);
    memset(wide, 0xFF, a.w.rows * stride); /* NaN between the rows */
    b.w.data = wide;
    b.w.row_stride = stride;
    for (uint64_t r = 0; r < a.w.rows; r++)
        memcpy(tsr_conformance_quant_row(&b.w, r), tsr_conformance_quant_row(&a.w, r),
               a.w.cols * sizeof(float));
    a.no_decode = b.no_decode = true;
    (void)tsr_conformance_quant_must(c, &a);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = tsr_conformance_quant_make(c);
    tsr_status        st = tsr_conformance_quant_run(c, self, &b, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "with 192 bytes between the rows it answers %s: %s",
                                  tsr_conformance_status_name(st), e.text);
    tsr_conformance_quant_same(c, &a, &b, "with 192 bytes between the rows");
}

/* ---- types of the weights ------------------------------------------------------------------- */

/* The same numbers as 16-bit weights and, in w itself, as F32. */
static struct tsr_matrix narrowed(struct tsr_conformance_case *c, struct tsr_matrix *w,
                                  uint32_t dtype)
{
    struct tsr_matrix n = *w;
    uint16_t         *half = tsr_conformance_rule_memory(c, w->rows * w->cols * sizeof *half);
    float            *f = w->data;
    for (uint64_t i = 0; i < w->rows * w->cols; i++) {
        half[i] = dtype == TSR_F16 ? tsr_f32_f16(f[i]) : (uint16_t)(tsr_f32_bits(f[i]) >> 16);
        tsr_widen(&f[i], &half[i], dtype, 1);
    }
    n.dtype = dtype;
    n.data = half;
    n.row_stride = w->cols * sizeof *half;
    return n;
}

void tsr_conformance_quant_dtypes(struct tsr_conformance_case *c)
{
    static const uint32_t types[] = { TSR_F16, TSR_BF16 };
    uint32_t              reads = tsr_conformance_quant_iface(c)->src_dtypes;
    bool                  any = false;
    if (!(reads >> TSR_F32 & 1u))
        tsr_conformance_rule_skip(c, "it does not read F32, to compare with");
    for (size_t i = 0; i < 2; i++) {
        if (!(reads >> types[i] & 1u))
            continue;
        any = true;
        struct tsr_conformance_quant_try a = usual(c), b;
        b = a;
        b.w = narrowed(c, &a.w, types[i]);
        a.no_decode = b.no_decode = true;
        (void)tsr_conformance_quant_must(c, &a);
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status  st = tsr_conformance_quant_run(c, tsr_conformance_quant_make(c), &b, &e.err);
        const char *name = types[i] == TSR_F16 ? "as F16" : "as BF16";
        if (st != TSR_OK)
            tsr_conformance_rule_fail(c, "%s the weights are answered with %s: %s", name,
                                      tsr_conformance_status_name(st), e.text);
        tsr_conformance_quant_same(c, &a, &b, name);
    }
    if (!any)
        tsr_conformance_rule_skip(c, "it reads F32 only");
}

/* ---- instances ---------------------------------------------------------------------------------- */

struct beside {
    void                                   *self; /* made before all others */
    const struct tsr_conformance_quant_try *alone;
};
static struct beside beside;

/* One more instance, which stays; then the first one again. */
static void another(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t = *beside.alone;
    void                            *other = NULL;
    char                             when[360];
    (void)snprintf(when, sizeof when, "next to an instance with %s", what);
    (void)tsr_conformance_quant_create(c, &other, NULL);
    tsr_status st = tsr_conformance_quant_run(c, beside.self, &t, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%s it answers %s: %s", when, tsr_conformance_status_name(st),
                                  e.text);
    tsr_conformance_quant_same(c, beside.alone, &t, when);
}

void tsr_conformance_quant_instances(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try a = usual(c);
    a.no_decode = true;
    beside.self = tsr_conformance_quant_must(c, &a);
    beside.alone = &a;
    tsr_any_each_boundary(c, another);
}

/* q, k and v: other weights, the same inputs. */
void tsr_conformance_quant_prepare_shared(struct tsr_conformance_case *c)
{
    const struct tsr_quantizer_v1   *q = tsr_conformance_quant_iface(c);
    struct tsr_conformance_quant_try t = usual(c), alone;
    void                            *prepared = NULL, *self = tsr_conformance_quant_must(c, &t);
    if (!q->prepare || !t.plan.need)
        tsr_conformance_rule_skip(c, "it has nothing to prepare");
    alone = t;
    alone.w = tsr_conformance_quant_matrix(c, t.w.rows, t.w.cols, c->seed + 1);
    alone.no_decode = true;
    (void)tsr_conformance_quant_must(c, &alone);
    tsr_status st = q->prepare(self, &t.stats, &prepared, NULL);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "prepare() a second time answers %s",
                                  tsr_conformance_status_name(st));
    for (int i = 0; i < 2; i++) { /* the other tensor comes second */
        struct tsr_conformance_quant_try both = i ? alone : t;
        both.prepared = prepared;
        both.no_decode = true;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        st = tsr_conformance_quant_run(c, self, &both, &e.err);
        if (st != TSR_OK)
            tsr_conformance_rule_fail(c, "tensor %d with one prepare() is answered with %s: %s",
                                      i + 1, tsr_conformance_status_name(st), e.text);
        tsr_conformance_quant_same(c, i ? &alone : &t, &both,
                                   "with a prepare() shared with another tensor");
    }
    if (q->unprepare)
        q->unprepare(self, prepared);
}
