/* Products of a quantizer's own kernel (tessera/draft/kernel.h), held to dequantize(). */
#include "tessera/draft/kernel.h"
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
    const float                          *x;     /* [BATCH, COLS + GAP] */
    const float                          *whole; /* [BATCH, rows]: of with() with all of it */
};

/* A packed matrix, and inputs. */
static void setup(struct bench *b, struct tsr_conformance_case *c)
{
    *b = (struct bench){ .c = c, .self = tsr_conformance_quant_make(c) };
    b->k = tsr_conformance_quant_extension(c, b->self, TSR_QUANTIZER_KERNEL);
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

/* Units [begin, end) with tokens [first, first + n), into out [n, rows of them] by rows of `stride`. */
static tsr_status with(const struct bench *b, uint64_t begin, uint64_t end, uint64_t first,
                       uint64_t n, const float *x, float *out, uint64_t stride, const void *codes,
                       const void *meta, struct tsr_err *err)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    uint64_t from = begin * t->rows_per_unit, to = end * t->rows_per_unit, bytes = 0;
    to = to < t->w.rows ? to : t->w.rows;
    const struct tsr_kernel_weight w = { .struct_size = sizeof w,
                                         .dtype = t->w.dtype,
                                         .rows = t->w.rows,
                                         .cols = t->w.cols,
                                         .first_row = from,
                                         .n_rows = to - from,
                                         .codes = codes,
                                         .meta = meta };
    tsr_status                     st = b->k->scratch(b->self, &w, n, &bytes, err);
    if (st != TSR_OK)
        return st;
    void                       *scratch = tsr_conformance_guarded("scratch", bytes, 0xA5);
    const struct tsr_kernel_job job = { .struct_size = sizeof job,
                                        .weight = &w,
                                        .n = n,
                                        .in = x + first * (COLS + GAP),
                                        .in_stride = COLS + GAP,
                                        .out = out,
                                        .out_stride = stride,
                                        .scratch = scratch };
    st = b->k->linear(b->self, &job, err);
    if (!tsr_conformance_guarded_intact(scratch))
        tsr_conformance_rule_fail(b->c, "linear() wrote past the end of scratch");
    tsr_conformance_guarded_free(scratch);
    return st;
}

/* The product of all rows and tokens. */
static float *all_of(const struct bench *b)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    float            *out = tsr_conformance_rule_room(BATCH * b->t.w.rows * sizeof *out);
    tsr_conformance_rule_ok(b->c,
                            with(b, 0, b->t.units, 0, BATCH, b->x, out, b->t.w.rows, b->t.codes,
                                 b->t.meta, &e.err),
                            &e, "linear()");
    return out;
}

void tsr_conformance_quant_kernel_close(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    const float *out = all_of(&b);
    for (uint64_t t = 0; t < BATCH; t++)
        for (uint64_t r = 0; r < b.t.w.rows; r++) {
            const float *x = b.x + t * (COLS + GAP), *w = b.t.dense + r * COLS;
            double       sum = 0.0, size = 0.0, got = (double)out[t * b.t.w.rows + r];
            for (uint64_t k = 0; k < COLS; k++) {
                sum += (double)x[k] * (double)w[k];
                size += fabs((double)x[k] * (double)w[k]);
            }
            double bound = (double)(COLS + 8) * 0x1p-24 * size;
            if (!(fabs(got - sum) <= bound))
                tsr_conformance_rule_fail(c,
                                          "row %llu of token %llu is %.9g, and with what "
                                          "dequantize() decodes it is %.9g, give or take %.2g",
                                          (unsigned long long)r, (unsigned long long)t, got, sum,
                                          bound);
        }
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
    tsr_conformance_rule_ok(c,
                            with(&b, 0, b.t.units, 0, BATCH, in, out, stride, codes, meta, &e.err),
                            &e, "linear()");
    if (!tsr_conformance_guarded_intact(out))
        tsr_conformance_rule_fail(c, "linear() wrote past the end of out");
    for (uint64_t i = 0; i < floats; i++)
        if (i % stride >= rows && tsr_f32_bits(out[i]) != tsr_f32_bits(untouched))
            tsr_conformance_rule_fail(c,
                                      "linear() wrote between the rows of out, behind token %llu",
                                      (unsigned long long)(i / stride));
    tsr_conformance_quant_destroy(c, b.self);
}

/* Results of some rows and tokens are those of the whole, bit by bit. */
static void same_part(const struct bench *b, uint64_t begin, uint64_t end, uint64_t first,
                      uint64_t n)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    uint64_t          from = begin * t->rows_per_unit, to = end * t->rows_per_unit;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    to = to < t->w.rows ? to : t->w.rows;
    float *out = tsr_conformance_rule_room(n * (to - from) * sizeof *out);
    tsr_conformance_rule_ok(b->c,
                            with(b, begin, end, first, n, b->x, out, to - from,
                                 t->codes + begin * t->plan.code_bytes,
                                 t->meta + begin * t->plan.meta_bytes, &e.err),
                            &e, "linear()");
    for (uint64_t i = 0; i < n * (to - from); i++) {
        uint64_t token = first + i / (to - from), row = from + i % (to - from);
        if (tsr_f32_bits(out[i]) != tsr_f32_bits(b->whole[token * t->w.rows + row]))
            tsr_conformance_rule_fail(b->c,
                                      "row %llu of token %llu is %.9g among %llu tokens and %llu "
                                      "rows, and %.9g among %llu "
                                      "and %llu",
                                      (unsigned long long)row, (unsigned long long)token,
                                      (double)out[i], (unsigned long long)n,
                                      (unsigned long long)(to - from),
                                      (double)b->whole[token * t->w.rows + row],
                                      (unsigned long long)BATCH, (unsigned long long)t->w.rows);
    }
}

void tsr_conformance_quant_kernel_alone(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    b.whole = all_of(&b);
    for (uint64_t t = 0; t < BATCH; t++) /* a token alone, and with those after it */
        for (uint64_t n = 1; t + n <= BATCH; n++)
            same_part(&b, 0, b.t.units, t, n);
    if (b.t.units > 64) { /* runs start at multiples of 64 units, so that codes are aligned */
        same_part(&b, 0, 64, 0, BATCH);
        same_part(&b, 64, b.t.units, 0, BATCH);
    }
    same_part(&b, 0, (b.t.units + 1) / 2, 1, 2);
    same_part(&b, 0, 1, 0, 1);
    tsr_conformance_quant_destroy(c, b.self);
}

static tsr_status one_call(void *arg, uint64_t begin, uint64_t end)
{
    (void)end;
    same_part(arg, 0, (begin % 3 + 1) * ((const struct bench *)arg)->t.units / 3, begin % BATCH, 1);
    return TSR_OK;
}

void tsr_conformance_quant_kernel_threads(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c);
    b.whole = all_of(&b);
    tsr_conformance_test_host_protect(c->host, true);
    same_part(&b, 0, b.t.units, 0, BATCH);
    tsr_conformance_test_host_protect(c->host, false);
    c->host->workers = 4;
    (void)c->host->table.parallel_for(c->host->table.ctx, 64, 1, one_call, &b);
    tsr_conformance_quant_destroy(c, b.self);
}
