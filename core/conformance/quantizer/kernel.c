/* Products of a quantizer's own kernel (tessera/kernel.h), held to dequantize(). */
#include "tessera/kernel.h"
#include "conformance/helpers.h"
#include "conformance/quantizer/quantizer.h"
#include "tessera/f16.h"

#include <math.h>
#include <string.h>

#define ROWS  UINT64_C(70)
#define COLS  UINT64_C(198) /* no multiple of what vectors take */
#define BATCH UINT64_C(5)
#define GAP   UINT64_C(3) /* numbers between rows of inputs and of results */

struct bench {
    struct tsr_conformance_case          *c;
    void                                 *self;
    const struct tsr_quantizer_kernel_v1 *k;
    struct tsr_conformance_quant_try      t;
    const float                          *x; /* [BATCH, COLS + GAP] */
    const float *whole; /* [BATCH, rows]: of with(), a segment after the other */
};

/* A packed matrix, and inputs. */
static void setup(struct bench *b, struct tsr_conformance_case *c)
{
    *b = (struct bench){ .c = c, .self = tsr_conformance_quant_make(c) };
    b->k = tsr_conformance_quant_table(c, b->self, TSR_QUANTIZER_KERNEL,
                                       TSR_CONFORMANCE_END(struct tsr_quantizer_kernel_v1, linear));
    if (!b->k)
        tsr_conformance_rule_skip(c, "it has no table %s", TSR_QUANTIZER_KERNEL);
    if (!TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, linear) || !b->k->scratch)
        tsr_conformance_rule_fail(c, "a function of its table %s is NULL", TSR_QUANTIZER_KERNEL);
    uint64_t rows = tsr_conformance_quant_rows(c, b->self, ROWS, COLS);
    tsr_conformance_quant_destroy(c, b->self);
    b->t.w = tsr_conformance_quant_matrix(c, rows, COLS, c->seed);
    b->self = tsr_conformance_quant_must(c, &b->t);
    float *x = tsr_conformance_rule_memory(c, BATCH * (COLS + GAP) * sizeof *x);
    tsr_conformance_rule_normal(c, 900, x, BATCH * (COLS + GAP));
    b->x = x;
}

/* A part of a product. */
struct part {
    uint64_t begin, end; /* units  */
    uint64_t first, n;   /* tokens */
    uint64_t col, cols, segment;
};

static uint64_t segments_of(const struct part *p)
{
    return (p->cols + p->segment - 1) / p->segment;
}

/* x [BATCH, COLS + GAP] and the units' bytes, into out [segments, n, rows of the units] by rows of `stride`. */
static tsr_status with(const struct bench *b, const struct part *p, const float *x, float *out,
                       uint64_t stride, const void *codes, const void *meta, struct tsr_err *err)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    uint64_t from = p->begin * t->rows_per_unit, to = p->end * t->rows_per_unit, bytes = 0;
    to = to < t->w.rows ? to : t->w.rows;
    const struct tsr_kernel_weight w = { .struct_size = sizeof w,
                                         .dtype = t->w.dtype,
                                         .rows = t->w.rows,
                                         .cols = t->w.cols,
                                         .first_row = from,
                                         .n_rows = to - from,
                                         .first_col = p->col,
                                         .n_cols = p->cols,
                                         .segment = p->segment,
                                         .codes = codes,
                                         .meta = meta };
    tsr_status                     st = b->k->scratch(b->self, &w, p->n, &bytes, err);
    if (st != TSR_OK)
        return st;
    void                       *scratch = tsr_conformance_guarded("scratch", bytes, 0xA5);
    const struct tsr_kernel_job job = { .struct_size = sizeof job,
                                        .weight = &w,
                                        .n = p->n,
                                        .in = x + p->first * (COLS + GAP) + p->col,
                                        .in_stride = COLS + GAP,
                                        .out = out,
                                        .out_stride = stride,
                                        .out_segment = p->n * stride,
                                        .scratch = scratch };
    st = b->k->linear(b->self, &job, err);
    if (!tsr_conformance_guarded_intact(scratch))
        tsr_conformance_rule_fail(b->c, "linear() wrote past the end of scratch");
    tsr_conformance_guarded_free(scratch);
    return st;
}

/* The product of all rows and tokens. */
static struct part all(const struct bench *b)
{
    return (struct part){ .end = b->t.units, .n = BATCH, .cols = COLS, .segment = COLS };
}

static float *all_of(const struct bench *b)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct part       p = all(b);
    float            *out = tsr_conformance_rule_room(BATCH * b->t.w.rows * sizeof *out);
    tsr_conformance_rule_ok(b->c,
                            with(b, &p, b->x, out, b->t.w.rows, b->t.codes, b->t.meta, &e.err), &e,
                            "linear()");
    return out;
}

/* Fails unless results of all rows and tokens for columns [col, col + cols) are within the bound. */
static void check_close(const struct bench *b, uint64_t col, uint64_t cols, const float *out)
{
    for (uint64_t t = 0; t < BATCH; t++)
        for (uint64_t r = 0; r < b->t.w.rows; r++) {
            const float *x = b->x + t * (COLS + GAP), *w = b->t.dense + r * COLS;
            double       sum = 0.0, size = 0.0, got = (double)out[t * b->t.w.rows + r];
            for (uint64_t k = col; k < col + cols; k++) {
                sum += (double)x[k] * (double)w[k];
                size += fabs((double)x[k] * (double)w[k]);
            }
            double bound = (double)(cols + 8) * 0x1p-24 * size;
            if (!(fabs(got - sum) <= bound))
                tsr_conformance_rule_fail(
                    b->c,
                    "row %llu of token %llu is %.9g from column %llu to %llu, and with what "
                    "dequantize() decodes it is %.9g, give or take %.2g",
                    (unsigned long long)r, (unsigned long long)t, got, (unsigned long long)col,
                    (unsigned long long)(col + cols - 1), sum, bound);
        }
}

void tsr_conformance_quant_kernel_close(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    check_close(&b, 0, COLS, all_of(&b));
    tsr_conformance_quant_destroy(c, b.self);
}

void tsr_conformance_quant_kernel_writes(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    uint64_t          rows = b.t.w.rows, stride = rows + GAP;
    uint64_t          floats = (BATCH - 1) * stride + rows;
    uint64_t          in_bytes = ((BATCH - 1) * (COLS + GAP) + COLS) * sizeof(float);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct part       p = all(&b);
    float            *out = tsr_conformance_guarded("out", floats * sizeof *out, 0x55), untouched;
    float            *in = tsr_conformance_guarded("in", in_bytes, 0);
    unsigned char    *codes = tsr_conformance_guarded("codes", b.t.code_bytes, 0);
    unsigned char    *meta = tsr_conformance_guarded("meta", b.t.meta_bytes, 0);
    memset(&untouched, 0x55, sizeof untouched);
    memcpy(in, b.x, in_bytes);
    memcpy(codes, b.t.codes, b.t.code_bytes);
    memcpy(meta, b.t.meta, b.t.meta_bytes);
    tsr_conformance_guarded_protect(in, true);
    tsr_conformance_guarded_protect(codes, true);
    tsr_conformance_guarded_protect(meta, true);
    tsr_conformance_rule_ok(c, with(&b, &p, in, out, stride, codes, meta, &e.err), &e, "linear()");
    if (!tsr_conformance_guarded_intact(out))
        tsr_conformance_rule_fail(c, "linear() wrote past the end of out");
    for (uint64_t i = 0; i < floats; i++)
        if (i % stride >= rows && tsr_f32_bits(out[i]) != tsr_f32_bits(untouched))
            tsr_conformance_rule_fail(c,
                                      "linear() wrote between the rows of out, behind token %llu",
                                      (unsigned long long)(i / stride));
    tsr_conformance_quant_destroy(c, b.self);
}

/* Results of a part are those of b->whole, which has all rows and tokens, bit by bit. */
static void same_part(const struct bench *b, const struct part *p)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    uint64_t          from = p->begin * t->rows_per_unit, to = p->end * t->rows_per_unit;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    to = to < t->w.rows ? to : t->w.rows;
    uint64_t size = p->n * (to - from), n = segments_of(p) * size;
    float   *out = tsr_conformance_rule_room(n * sizeof *out);
    tsr_conformance_rule_ok(b->c,
                            with(b, p, b->x, out, to - from,
                                 t->codes + p->begin * t->plan.code_bytes,
                                 t->meta + p->begin * t->plan.meta_bytes, &e.err),
                            &e, "linear()");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t token = p->first + i % size / (to - from), row = from + i % (to - from);
        float    want = b->whole[(i / size * BATCH + token) * t->w.rows + row];
        if (tsr_f32_bits(out[i]) != tsr_f32_bits(want))
            tsr_conformance_rule_fail(b->c,
                                      "row %llu of token %llu is %.9g among %llu tokens and %llu "
                                      "rows, and %.9g among %llu "
                                      "and %llu",
                                      (unsigned long long)row, (unsigned long long)token,
                                      (double)out[i], (unsigned long long)p->n,
                                      (unsigned long long)(to - from), (double)want,
                                      (unsigned long long)BATCH, (unsigned long long)t->w.rows);
    }
}

static void same_rows(const struct bench *b, uint64_t begin, uint64_t end, uint64_t first,
                      uint64_t n)
{
    same_part(b, &(struct part){ begin, end, first, n, 0, COLS, COLS });
}

void tsr_conformance_quant_kernel_alone(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    b.whole = all_of(&b);
    for (uint64_t t = 0; t < BATCH; t++) /* a token alone, and with those after it */
        for (uint64_t n = 1; t + n <= BATCH; n++)
            same_rows(&b, 0, b.t.units, t, n);
    if (b.t.units > 64) { /* runs start at multiples of 64 units, so that codes are aligned */
        same_rows(&b, 0, 64, 0, BATCH);
        same_rows(&b, 64, b.t.units, 0, BATCH);
    }
    same_rows(&b, 0, (b.t.units + 1) / 2, 1, 2);
    same_rows(&b, 0, 1, 0, 1);
    tsr_conformance_quant_destroy(c, b.self);
}

/* Columns and segments as hosts ask for them: multiples of 32, up to the end of the row. */
void tsr_conformance_quant_kernel_columns(struct tsr_conformance_case *c)
{
    static const struct part parts[] = { { .cols = COLS, .segment = 32 },
                                         { .col = 32, .cols = 64, .segment = 32 },
                                         { .col = 96, .cols = COLS - 96, .segment = 64 },
                                         { .col = 192, .cols = COLS - 192, .segment = 32 } };
    bool                     taken = false;
    struct bench             b;
    setup(&b, c);
    for (uint64_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct part       p = parts[i];
        const uint64_t    size = BATCH * b.t.w.rows;
        float            *out = tsr_conformance_rule_room(segments_of(&p) * size * sizeof *out);
        p.end = b.t.units;
        p.n = BATCH;
        tsr_status st = with(&b, &p, b.x, out, b.t.w.rows, b.t.codes, b.t.meta, &e.err);
        if (st == TSR_E_UNSUPPORTED)
            continue;
        tsr_conformance_rule_ok(c, st, &e, "linear() of some columns");
        taken = true;
        for (uint64_t s = 0, at = 0; at < p.cols; s++, at += p.segment)
            check_close(&b, p.col + at, p.cols - at < p.segment ? p.cols - at : p.segment,
                        out + s * size);
        b.whole = out;
        p.first = 1; /* a token alone, with some of the rows */
        p.n = 1;
        p.end = (b.t.units + 1) / 2;
        same_part(&b, &p);
        p.cols = p.segment < p.cols ? p.segment : p.cols; /* and the first segment alone */
        same_part(&b, &p);
    }
    tsr_conformance_quant_destroy(c, b.self);
    if (!taken)
        tsr_conformance_rule_skip(c, "its kernel multiplies whole rows alone");
}

static tsr_status one_call(void *arg, uint64_t begin, uint64_t end)
{
    (void)end;
    same_rows(arg, 0, (begin % 3 + 1) * ((const struct bench *)arg)->t.units / 3, begin % BATCH, 1);
    return TSR_OK;
}

void tsr_conformance_quant_kernel_threads(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    b.whole = all_of(&b);
    tsr_conformance_test_host_protect(c->host, true);
    same_rows(&b, 0, b.t.units, 0, BATCH);
    tsr_conformance_test_host_protect(c->host, false);
    c->host->workers = 4;
    (void)c->host->table.parallel_for(c->host->table.ctx, 64, 1, one_call, &b);
    tsr_conformance_quant_destroy(c, b.self);
}

void tsr_conformance_quant_kernel_damaged(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    const uint64_t    bytes = BATCH * b.t.w.rows * sizeof(float);
    const struct part p = all(&b);
    for (uint64_t kind = 0; kind < TSR_CONFORMANCE_DAMAGES; kind++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        unsigned char    *codes = tsr_conformance_guarded("codes", b.t.code_bytes, 0);
        unsigned char    *meta = tsr_conformance_guarded("meta", b.t.meta_bytes, 0);
        float            *out = tsr_conformance_guarded("out", bytes, 0);
        tsr_conformance_quant_damage(c, kind, codes, b.t.codes, b.t.code_bytes);
        tsr_conformance_quant_damage(c, kind, meta, b.t.meta, b.t.meta_bytes);
        tsr_status st = with(&b, &p, b.x, out, b.t.w.rows, codes, meta, &e.err);
        if (st != TSR_OK)
            tsr_conformance_rule_refused(c, st, TSR_E_INVAL, &e,
                                         "linear() of bytes that no quantize() wrote");
        if (!tsr_conformance_guarded_intact(out))
            tsr_conformance_rule_fail(c, "linear() of bytes that no quantize() wrote writes past "
                                         "the end of out");
        tsr_conformance_guarded_free(codes);
        tsr_conformance_guarded_free(meta);
        tsr_conformance_guarded_free(out);
    }
    tsr_conformance_quant_destroy(c, b.self);
}
