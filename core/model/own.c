/* Rows in a plugin's own format. */
#include "model/own.h"

#include "base/f16.h"
#include "base/mem.h"
#include "model/packed_slice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tsr_model_own_functions *functions;

void tsr_model_own_set(const struct tsr_model_own_functions *f)
{
    functions = f;
}

static tsr_status check_there(const struct tsr_model_packed *p, struct tsr_err *err)
{
    if (!functions)
        return tsr_fail(err, TSR_E_BUG, "nothing decodes '%s', the format of quantizer '%s'",
                        p->format.id, p->own.use);
    return p->codes || p->own.prepared
               ? TSR_OK
               : tsr_fail(err, TSR_E_BUG, "packed weights of quantizer '%s' are not in memory",
                          p->own.use);
}

tsr_status tsr_model_own_kernel_of(const struct tsr_model_packed *p, enum tsr_model_own_kernel *how,
                                   struct tsr_err *err)
{
    TSR_TRY(check_there(p, err));
    return functions->kernel(p, how, err);
}

uint64_t tsr_model_own_segment(const struct tsr_model_packed *p)
{
    return p->segment ? p->segment : tsr_segment_columns(p->cols);
}

tsr_status tsr_model_own_prepare(struct tsr_model_packed *p, enum tsr_model_own_kernel how,
                                 bool rows, struct tsr_err *err)
{
    if (how == TSR_OWN_DECODED || rows) /* two copies would be more than plans count */
        return TSR_OK;
    TSR_TRY(check_there(p, err));
    TSR_TRY(functions->prepare(p, how, &p->own.prepared, &p->own.prepared_bytes, err));
    if (!p->own.prepared)
        return TSR_OK;
    free(p->codes);
    free(p->meta);
    p->codes = p->meta = NULL;
    return TSR_OK;
}

tsr_status tsr_model_own_inputs(const struct tsr_model_packed      *p,
                                const struct tsr_model_own_product *x, void **made,
                                struct tsr_err *err)
{
    TSR_TRY(check_there(p, err));
    return functions->inputs(p, x, made, err);
}

tsr_status tsr_model_own_multiply(const struct tsr_model_packed      *p,
                                  const struct tsr_model_own_product *x, struct tsr_err *err)
{
    TSR_TRY(check_there(p, err));
    return functions->multiply(p, x, err);
}

tsr_status tsr_model_own_device_code(const struct tsr_model_packed *p, const char *target,
                                     const struct tsr_device_code **code, struct tsr_err *err)
{
    TSR_TRY(check_there(p, err));
    return functions->device_code(p, target, code, err);
}

tsr_status tsr_model_own_device_scratch(const struct tsr_model_packed *p,
                                        enum tsr_model_own_kernel how, uint64_t n, uint64_t *bytes,
                                        struct tsr_err *err)
{
    TSR_TRY(check_there(p, err));
    return functions->device_scratch(p, how, n, bytes, err);
}

tsr_status tsr_model_own_device_launch(const struct tsr_model_packed     *p,
                                       const struct tsr_model_own_launch *x,
                                       struct tsr_device_launch *l, struct tsr_err *err)
{
    TSR_TRY(check_there(p, err));
    return functions->device_launch(p, x, l, err);
}

/* A file's bytes may be damaged, and a value that is not finite would spread over the whole answer. */
static tsr_status check_finite(const struct tsr_model_packed *p, uint64_t first, uint64_t rows,
                               const float *v, struct tsr_err *err)
{
    for (uint64_t i = 0; i < rows * p->cols; i++)
        if (!isfinite(v[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "row %llu column %llu of a matrix of %llux%llu decodes to %g; its "
                            "bytes are damaged, or quantizer '%s' is broken",
                            (unsigned long long)(p->own.first + p->own.skip + first + i / p->cols),
                            (unsigned long long)(p->own.col + i % p->cols),
                            (unsigned long long)p->own.rows, (unsigned long long)p->own.cols,
                            (double)v[i], p->own.use);
    return TSR_OK;
}

tsr_status tsr_model_own_rows(const struct tsr_model_packed *p, uint64_t first, uint64_t rows,
                              float *dst, struct tsr_err *err)
{
    const struct tsr_model_own *o = &p->own;
    if (rows == 0)
        return TSR_OK;
    TSR_TRY(check_there(p, err));
    if (!p->codes)
        return tsr_fail(err, TSR_E_BUG,
                        "rows of quantizer '%s' are decoded after its kernel "
                        "prepared them",
                        o->use);
    uint64_t from = o->skip + first, unit = from / o->unit,
             n = (from + rows - 1) / o->unit + 1 - unit, there = n * o->unit,
             left = o->rows - o->first - unit * o->unit, before = from - unit * o->unit;
    there = there < left ? there : left;
    bool   direct = before == 0 && there == rows && o->cols == p->cols;
    float *all = direct ? dst : tsr_new_aligned(there * o->cols, sizeof *all);
    if (!all)
        return tsr_fail_nomem(err, there * o->cols * sizeof *all, "decoded weights");
    tsr_status st = functions->decode(p, unit, n, there, all, err);
    for (uint64_t r = 0; !direct && st == TSR_OK && r < rows; r++)
        memcpy(dst + r * p->cols, all + (before + r) * o->cols + o->col, p->cols * sizeof *dst);
    if (!direct)
        free(all);
    return st == TSR_OK ? check_finite(p, first, rows, dst, err) : st;
}

tsr_status tsr_model_own_decoded(const struct tsr_model_packed *p, struct tsr_model_packed *as,
                                 struct tsr_err *err)
{
    uint64_t n;
    *as = *p;
    as->codes = as->meta = NULL;
    as->own = (struct tsr_model_own){ 0 };
    as->dense = tsr_mul(p->rows, p->cols, &n) ? tsr_new_aligned(n, sizeof *as->dense) : NULL;
    return as->dense
               ? tsr_model_own_rows(p, 0, p->rows, as->dense, err)
               : tsr_fail_nomem(err, p->rows * p->cols * sizeof *as->dense, "decoded weights");
}

uint64_t tsr_model_own_block(uint64_t unit, uint64_t cols)
{
    uint64_t rows = (UINT64_C(1) << 18) / cols + 1;
    return (rows + unit - 1) / unit * unit;
}
