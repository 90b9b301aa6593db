/* Products of quantizers' own kernels (tessera/kernel.h): sums of a row's segments by linear(), then their sum as
 * docs/decisions/numerics.md has it, so that a rank's part of the columns is a subtree of the whole. */
#include "quant/decoder_internal.h"

#include "base/mem.h"

#include <stdlib.h>

#define SEGMENTS 8u

/* Of the units that are here. */
static uint64_t all_rows(const struct tsr_model_packed *p)
{
    const uint64_t left = p->own.rows - p->own.first, there = p->own.units * p->own.unit;
    return there < left ? there : left;
}

struct tsr_kernel_weight tsr_quant_own_weight(const struct tsr_model_packed *p,
                                              enum tsr_model_own_kernel how, uint64_t unit,
                                              uint64_t rows)
{
    const struct tsr_model_own *o = &p->own;
    bool                        whole = how == TSR_OWN_WHOLE, made = o->prepared != NULL;
    return (struct tsr_kernel_weight){
        .struct_size = sizeof(struct tsr_kernel_weight),
        .dtype = p->source_dtype,
        .rows = o->rows,
        .cols = o->cols,
        .first_row = o->first + unit * o->unit,
        .n_rows = rows,
        .first_col = whole ? 0 : o->col,
        .n_cols = whole ? o->cols : p->cols,
        .segment = whole ? o->cols : tsr_model_own_segment(p),
        .codes = made ? NULL : (const unsigned char *)p->codes + unit * o->code_bytes,
        .meta = p->meta && !made ? (const unsigned char *)p->meta + unit * o->meta_bytes : NULL,
        .prepared = o->prepared,
        .prepared_row = o->first,
        .prepared_rows = made ? all_rows(p) : 0,
    };
}

tsr_status tsr_quant_own_named(const struct tsr_model_packed *p, tsr_status st, struct tsr_err *err)
{
    return st == TSR_OK ? st
                        : tsr_err_prefix(err, st == TSR_E_INVAL ? TSR_E_INPUT : st,
                                         "quantizer '%s'", p->own.use);
}

tsr_status tsr_quant_own_kernel(const struct tsr_model_packed *p, enum tsr_model_own_kernel *how,
                                struct tsr_err *err)
{
    const struct tsr_model_own     *o = &p->own;
    const struct tsr_quant_decoder *d = NULL;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    uint64_t                        bytes = 0, left = o->rows - o->first;
    TSR_TRY(tsr_quant_decoder_of(p, &d, &bytes, err));
    *how = d->kernel ? TSR_OWN_SEGMENTS : TSR_OWN_DECODED;
    if (!d->kernel)
        return TSR_OK;
    struct tsr_kernel_weight w = tsr_quant_own_weight(p, *how, 0, o->unit < left ? o->unit : left);
    tsr_status               st = d->kernel->scratch(d->q.self, &w, 1, &bytes, &e.err);
    if (st == TSR_E_UNSUPPORTED) {
        *how = TSR_OWN_WHOLE;
        return TSR_OK;
    }
    return tsr_quant_own_named(p, st == TSR_OK ? st : tsr_err_copy(err, st, &e.err), err);
}

tsr_status tsr_quant_own_prepare(const struct tsr_model_packed *p, enum tsr_model_own_kernel how,
                                 void **made, uint64_t *bytes, struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    uint64_t stored = tsr_model_packed_codes(p) + tsr_model_packed_meta(p), scratch = 0;
    *made = NULL;
    *bytes = 0;
    TSR_TRY(tsr_quant_decoder_of(p, &d, &scratch, err));
    if (!d->kernel || !d->kernel->prepare || !d->kernel->prepared)
        return TSR_OK;
    const struct tsr_kernel_weight w = tsr_quant_own_weight(p, how, 0, all_rows(p));
    TSR_TRY(tsr_quant_own_named(p, d->kernel->prepared(d->q.self, &w, bytes, err), err));
    if (*bytes > stored)
        return tsr_fail(err, TSR_E_INPUT,
                        "quantizer '%s': its kernel prepares %llu bytes from %llu, and plans count "
                        "those",
                        p->own.use, (unsigned long long)*bytes, (unsigned long long)stored);
    void *to = tsr_new_aligned(1, *bytes);
    if (!to)
        return tsr_fail_nomem(err, *bytes, "weights that a quantizer's kernel prepares");
    tsr_status st = tsr_quant_own_named(p, d->kernel->prepare(d->q.self, &w, to, err), err);
    if (st != TSR_OK)
        free(to);
    else
        *made = to;
    return st;
}

tsr_status tsr_quant_own_inputs(const struct tsr_model_packed      *p,
                                const struct tsr_model_own_product *x, void **made,
                                struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    uint64_t                        bytes = 0;
    *made = NULL;
    TSR_TRY(tsr_quant_decoder_of(p, &d, &bytes, err));
    if (!d->kernel || !d->kernel->inputs || !d->kernel->input_bytes)
        return TSR_OK;
    const struct tsr_kernel_weight w = tsr_quant_own_weight(p, x->how, 0, all_rows(p));
    const struct tsr_kernel_job    job = { .struct_size = sizeof job,
                                           .weight = &w,
                                           .n = x->n,
                                           .in = x->in,
                                           .in_stride = x->in_stride,
                                           .tokens = x->n };
    TSR_TRY(tsr_quant_own_named(p, d->kernel->input_bytes(d->q.self, &w, x->n, &bytes, err), err));
    void *to = tsr_new_aligned(1, bytes);
    if (!to)
        return tsr_fail_nomem(err, bytes, "inputs of a quantizer's kernel");
    tsr_status st = tsr_quant_own_named(p, d->kernel->inputs(d->q.self, &job, to, err), err);
    if (st != TSR_OK)
        free(to);
    else
        *made = to;
    return st;
}

static void add(float *to, const float *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* One linear(), and the tree over its segments if it has not added them.  An absent segment is +0: adding it changes no sum but -0, which becomes
 * +0, and so does the addition of +0 at the end.  sums: [segments, n, rows]. */
static tsr_status product(const struct tsr_quant_decoder *d, const struct tsr_kernel_weight *w,
                          const struct tsr_model_own_product *x, uint64_t segments, float *sums,
                          void *room, struct tsr_err *err)
{
    const uint64_t              size = x->n * x->rows;
    const bool                  adds = d->kernel->flags & TSR_KERNEL_ADDS;
    const struct tsr_kernel_job job = { .struct_size = sizeof job,
                                        .weight = w,
                                        .n = x->n,
                                        .in = x->in,
                                        .in_stride = x->in_stride,
                                        .out = adds ? x->out : sums,
                                        .out_stride = adds ? x->out_stride : x->rows,
                                        .out_segment = adds ? 0 : size,
                                        .scratch = room,
                                        .inputs = x->inputs,
                                        .tokens = x->n };
    TSR_TRY(d->kernel->linear(d->q.self, &job, err));
    if (adds)
        return TSR_OK;
    for (uint64_t width = 1; width < SEGMENTS; width *= 2)
        for (uint64_t s = 0; s + width < segments; s += 2 * width)
            add(sums + s * size, sums + (s + width) * size, size);
    for (uint64_t t = 0; t < x->n; t++)
        for (uint64_t r = 0; r < x->rows; r++)
            x->out[t * x->out_stride + r] = sums[t * x->rows + r] + 0.0f;
    return TSR_OK;
}

tsr_status tsr_quant_own_multiply(const struct tsr_model_packed      *p,
                                  const struct tsr_model_own_product *x, struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    uint64_t                        bytes = 0, n = 0;
    TSR_TRY(tsr_quant_decoder_of(p, &d, &bytes, err));
    if (!d->kernel || x->how == TSR_OWN_DECODED)
        return tsr_fail(err, TSR_E_BUG, "quantizer '%s' has no kernel", p->own.use);
    const struct tsr_kernel_weight w = tsr_quant_own_weight(p, x->how, x->unit, x->rows);
    const uint64_t                 segments = (w.n_cols + w.segment - 1) / w.segment;
    tsr_status                     st = d->kernel->scratch(d->q.self, &w, x->n, &bytes, err);
    if (st != TSR_OK)
        return tsr_quant_own_named(p, st, err);
    void  *room = tsr_new_aligned(1, bytes);
    float *sums = tsr_mul(x->n, x->rows, &n) && tsr_mul(n, segments, &n)
                      ? tsr_new_aligned(n, sizeof *sums)
                      : NULL;
    st = room && sums ? tsr_quant_own_named(p, product(d, &w, x, segments, sums, room, err), err)
                      : tsr_fail_nomem(err, bytes + x->n * x->rows * segments * sizeof *sums,
                                       "scratch memory of a quantizer's kernel");
    free(sums);
    free(room);
    return st;
}
