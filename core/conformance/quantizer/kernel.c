/* Products of a quantizer's own kernel (tessera/kernel.h), held to dequantize(). */
#include "conformance/quantizer/kernel_bench.h"
#include "tessera/f16.h"

#include <math.h>
#include <string.h>

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
    tsr_conformance_kernel_setup(&b, c);
    check_close(&b, 0, COLS, tsr_conformance_kernel_all_of(&b));
    tsr_conformance_quant_destroy(c, b.self);
}

void tsr_conformance_quant_kernel_writes(struct tsr_conformance_case *c)
{
    struct bench b;
    tsr_conformance_kernel_setup(&b, c);
    uint64_t          rows = b.t.w.rows, stride = rows + GAP;
    uint64_t          floats = (BATCH - 1) * stride + rows;
    uint64_t          in_bytes = ((BATCH - 1) * (COLS + GAP) + COLS) * sizeof(float);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct part       p = tsr_conformance_kernel_all(&b);
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
                            tsr_conformance_kernel_with(&b, &p, in, out, stride, codes, meta,
                                                        &e.err),
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

static void same_rows(const struct bench *b, uint64_t begin, uint64_t end, uint64_t first,
                      uint64_t n)
{
    tsr_conformance_kernel_same(
        b, &(struct part){
               .begin = begin, .end = end, .first = first, .n = n, .cols = COLS, .segment = COLS });
}

void tsr_conformance_quant_kernel_alone(struct tsr_conformance_case *c)
{
    struct bench b;
    tsr_conformance_kernel_setup(&b, c);
    b.whole = tsr_conformance_kernel_all_of(&b);
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
    tsr_conformance_kernel_setup(&b, c);
    for (uint64_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct part       p = parts[i];
        const uint64_t    size = BATCH * b.t.w.rows;
        float            *out =
            tsr_conformance_rule_room(tsr_conformance_kernel_segments(&p) * size * sizeof *out);
        p.end = b.t.units;
        p.n = BATCH;
        tsr_status st =
            tsr_conformance_kernel_with(&b, &p, b.x, out, b.t.w.rows, b.t.codes, b.t.meta, &e.err);
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
        tsr_conformance_kernel_same(&b, &p);
        p.cols = p.segment < p.cols ? p.segment : p.cols; /* and the first segment alone */
        tsr_conformance_kernel_same(&b, &p);
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
    tsr_conformance_kernel_setup(&b, c);
    b.whole = tsr_conformance_kernel_all_of(&b);
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
    tsr_conformance_kernel_setup(&b, c);
    const uint64_t    bytes = BATCH * b.t.w.rows * sizeof(float);
    const struct part p = tsr_conformance_kernel_all(&b);
    for (uint64_t kind = 0; kind < TSR_CONFORMANCE_DAMAGES; kind++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        unsigned char    *codes = tsr_conformance_guarded("codes", b.t.code_bytes, 0);
        unsigned char    *meta = tsr_conformance_guarded("meta", b.t.meta_bytes, 0);
        float            *out = tsr_conformance_guarded("out", bytes, 0);
        tsr_conformance_quant_damage(c, kind, codes, b.t.codes, b.t.code_bytes);
        tsr_conformance_quant_damage(c, kind, meta, b.t.meta, b.t.meta_bytes);
        tsr_status st =
            tsr_conformance_kernel_with(&b, &p, b.x, out, b.t.w.rows, codes, meta, &e.err);
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
