/* Parts of products of a quantizer's own kernel, with all that it makes once (kernel_bench.h). */
#include "conformance/quantizer/kernel_bench.h"

#include "tessera/f16.h"

void tsr_conformance_kernel_setup(struct bench *b, struct tsr_conformance_case *c)
{
    *b = (struct bench){ .c = c, .self = tsr_conformance_quant_make(c) };
    b->k = tsr_conformance_quant_table(c, b->self, TSR_QUANTIZER_KERNEL,
                                       TSR_CONFORMANCE_END(struct tsr_quantizer_kernel_v1, linear));
    if (!b->k)
        tsr_conformance_rule_skip(c, "it has no table %s", TSR_QUANTIZER_KERNEL);
    if (!TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, linear) || !b->k->scratch)
        tsr_conformance_rule_fail(c, "a function of its table %s is NULL", TSR_QUANTIZER_KERNEL);
    b->prepares = TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, prepare);
    b->encodes = TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, inputs);
    b->flags = TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, flags) ? b->k->flags : 0;
    if (b->prepares != TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, prepared))
        tsr_conformance_rule_fail(c, "its table has one of prepared() and prepare()");
    if (b->encodes != TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, input_bytes))
        tsr_conformance_rule_fail(c, "its table has one of input_bytes() and inputs()");
    if (b->flags & ~(TSR_KERNEL_ADDS | TSR_KERNEL_PAIRS))
        tsr_conformance_rule_fail(c, "flags of its table that kernel.h lacks are not zero");
    uint64_t rows = tsr_conformance_quant_rows(c, b->self, ROWS, COLS);
    tsr_conformance_quant_destroy(c, b->self);
    b->t.w = tsr_conformance_quant_matrix(c, rows, COLS, c->seed);
    b->self = tsr_conformance_quant_must(c, &b->t);
    float *x = tsr_conformance_rule_memory(c, BATCH * (COLS + GAP) * sizeof *x);
    tsr_conformance_rule_normal(c, 900, x, BATCH * (COLS + GAP));
    b->x = x;
}

uint64_t tsr_conformance_kernel_segments(const struct part *p)
{
    return (p->cols + p->segment - 1) / p->segment;
}

struct part tsr_conformance_kernel_all(const struct bench *b)
{
    return (struct part){ .end = b->t.units, .n = BATCH, .cols = COLS, .segment = COLS };
}

struct tsr_kernel_weight tsr_conformance_kernel_weight(const struct bench *b, const struct part *p,
                                                       const void *codes, const void *meta)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    uint64_t from = p->begin * t->rows_per_unit, to = p->end * t->rows_per_unit;
    to = to < t->w.rows ? to : t->w.rows;
    return (struct tsr_kernel_weight){ .struct_size = sizeof(struct tsr_kernel_weight),
                                       .dtype = t->w.dtype,
                                       .rows = t->w.rows,
                                       .cols = t->w.cols,
                                       .first_row = from,
                                       .n_rows = to - from,
                                       .first_col = p->col,
                                       .n_cols = p->cols,
                                       .segment = p->segment,
                                       .codes = codes,
                                       .meta = meta,
                                       .apart = p->apart };
}

/* w has what the kernel made of its rows then, in memory that *own guards, or p's. */
static tsr_status prepare(const struct bench *b, const struct part *p, struct tsr_kernel_weight *w,
                          void **own, struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = TSR_OK;
    if (!b->prepares)
        return TSR_OK;
    w->prepared = p->prepared;
    w->prepared_rows = w->rows;
    if (!p->prepared) {
        if ((st = b->k->prepared(b->self, w, &bytes, err)) != TSR_OK)
            return st;
        w->prepared = *own = tsr_conformance_guarded("prepared", bytes, 0xA5);
        w->prepared_row = w->first_row;
        w->prepared_rows = w->n_rows;
        struct tsr_kernel_weight of = *w;
        of.prepared = NULL;
        st = b->k->prepare(b->self, &of, *own, err);
        if (!tsr_conformance_guarded_intact(*own))
            tsr_conformance_rule_fail(b->c, "prepare() wrote past the end of its bytes");
    }
    w->codes = w->meta = NULL;
    return st;
}

/* The same of job's inputs. */
static tsr_status encode(const struct bench *b, const struct part *p, struct tsr_kernel_job *job,
                         void **own, struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = TSR_OK;
    job->first = p->inputs ? p->first : 0;
    job->tokens = p->inputs ? BATCH : p->n;
    if (!b->encodes)
        return TSR_OK;
    job->inputs = p->inputs;
    if (!p->inputs) {
        if ((st = b->k->input_bytes(b->self, job->weight, p->n, &bytes, err)) != TSR_OK)
            return st;
        *own = tsr_conformance_guarded("inputs", bytes, 0xA5);
        st = b->k->inputs(b->self, job, *own, err);
        job->inputs = *own;
        if (!tsr_conformance_guarded_intact(*own))
            tsr_conformance_rule_fail(b->c, "inputs() wrote past the end of its bytes");
    }
    return st;
}

tsr_status tsr_conformance_kernel_with(const struct bench *b, const struct part *p, const float *x,
                                       float *out, uint64_t stride, const void *codes,
                                       const void *meta, struct tsr_err *err)
{
    struct tsr_kernel_weight w = tsr_conformance_kernel_weight(b, p, codes, meta);
    uint64_t                 bytes = 0;
    void                    *prepared = NULL, *inputs = NULL;
    tsr_status               st = TSR_OK;
    if ((b->flags & TSR_KERNEL_ADDS) && !p->at_once && p->cols > p->segment) { /* one by one */
        struct part one = *p;
        for (uint64_t at = 0; at < p->cols && st == TSR_OK; at += p->segment) {
            one.col = p->col + at;
            one.cols = p->cols - at < p->segment ? p->cols - at : p->segment;
            st = tsr_conformance_kernel_with(b, &one, x, out + at / p->segment * p->n * stride,
                                             stride, codes, meta, err);
        }
        return st;
    }
    if ((st = b->k->scratch(b->self, &w, p->n, &bytes, err)) != TSR_OK)
        return st;
    void                 *scratch = tsr_conformance_guarded("scratch", bytes, 0xA5);
    struct tsr_kernel_job job = { .struct_size = sizeof job,
                                  .weight = &w,
                                  .n = p->n,
                                  .in = x + p->first * (COLS + GAP) + p->col,
                                  .in_stride = COLS + GAP,
                                  .out = out,
                                  .out_stride = stride,
                                  .out_segment = p->n * stride,
                                  .scratch = scratch };
    st = prepare(b, p, &w, &prepared, err);
    if (st == TSR_OK)
        st = encode(b, p, &job, &inputs, err);
    if (st == TSR_OK)
        st = b->k->linear(b->self, &job, err);
    if (!tsr_conformance_guarded_intact(scratch))
        tsr_conformance_rule_fail(b->c, "linear() wrote past the end of scratch");
    tsr_conformance_guarded_free(scratch);
    if (prepared)
        tsr_conformance_guarded_free(prepared);
    if (inputs)
        tsr_conformance_guarded_free(inputs);
    return st;
}

float *tsr_conformance_kernel_all_of(const struct bench *b)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct part       p = tsr_conformance_kernel_all(b);
    float            *out = tsr_conformance_rule_room(BATCH * b->t.w.rows * sizeof *out);
    tsr_conformance_rule_ok(b->c,
                            tsr_conformance_kernel_with(b, &p, b->x, out, b->t.w.rows, b->t.codes,
                                                        b->t.meta, &e.err),
                            &e, "linear()");
    return out;
}

void tsr_conformance_kernel_same(const struct bench *b, const struct part *p)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    uint64_t          from = p->begin * t->rows_per_unit, to = p->end * t->rows_per_unit;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    to = to < t->w.rows ? to : t->w.rows;
    uint64_t size = p->n * (to - from), n = tsr_conformance_kernel_segments(p) * size;
    float   *out = tsr_conformance_rule_room(n * sizeof *out);
    tsr_conformance_rule_ok(b->c,
                            tsr_conformance_kernel_with(b, p, b->x, out, to - from,
                                                        t->codes + p->begin * t->plan.code_bytes,
                                                        t->meta + p->begin * t->plan.meta_bytes,
                                                        &e.err),
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
