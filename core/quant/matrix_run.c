/* Quantizes a matrix in runs of rows on the pool, and decodes each run to check it before use. */
#include "quant/matrix_internal.h"

#include "base/f16.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tsr_status tsr_quant_matrix_fail_run(struct tsr_quant_matrix_work *k, uint64_t at, tsr_status st,
                                     const struct tsr_err *why)
{
    pthread_mutex_lock(&k->lock);
    if (at < k->failed_at) {
        k->failed_at = at;
        k->failed = st;
        (void)tsr_err_copy(k->err, st, why);
    }
    pthread_mutex_unlock(&k->lock);
    return st;
}

tsr_status tsr_quant_matrix_check_run(struct tsr_quant_matrix_work *k, uint64_t first,
                                      uint64_t rows, const float *theirs, struct tsr_err *err)
{
    const struct tsr_model_packed *p = k->p;
    uint64_t                       cols = p->cols;
    bool                           nan_block = strcmp(p->format.id, TSR_FORMAT_MX) == 0;
    float                         *ours = tsr_new_aligned(2 * cols, sizeof *ours), *w = ours + cols;
    if (!ours)
        return tsr_fail_nomem(err, 2 * cols * sizeof *ours, "a row of weights");
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < rows && st == TSR_OK; r++) {
        const float *got = theirs ? theirs + r * cols : NULL, *same;
        uint64_t     row = first + r;
        if (!p->dense && !p->own.unit) {
            const char *wrong =
                tsr_model_format_row_check(&p->format, cols,
                                           (const unsigned char *)p->meta + row * p->meta_stride);
            if (wrong) {
                st = tsr_fail(err, TSR_E_UNSUPPORTED,
                              "tensor '%s': row %llu as %s: %s; the plugin is broken", k->w->name,
                              (unsigned long long)(k->row + row), p->format.id, wrong);
                break;
            }
            tsr_model_format_decode_row(&p->format, cols,
                                        (const unsigned char *)p->codes + row * p->code_stride,
                                        (const unsigned char *)p->meta + row * p->meta_stride,
                                        ours);
            got = ours;
        }
        same = theirs ? theirs + r * cols : got;
        tsr_widen(w, (const unsigned char *)k->w->data + row * k->w->row_stride, k->w->dtype, cols);
        double sum = 0.0;
        for (uint64_t c = 0; c < cols && st == TSR_OK; c++) {
            double d = (double)w[c] - (double)got[c];
            sum += d * d;
            if (nan_block && isnan(got[c]) && isnan(same[c]))
                continue; /* requested: plugins make it an option */
            if (!isfinite(got[c]))
                st = tsr_fail(err, TSR_E_NUMERIC, "tensor '%s': row %llu column %llu became %g",
                              k->w->name, (unsigned long long)(k->row + row), (unsigned long long)c,
                              (double)got[c]);
            else if (got[c] != same[c])
                st = tsr_fail(err, TSR_E_UNSUPPORTED,
                              "tensor '%s': row %llu column %llu: the plugin decodes its own bytes "
                              "to %.9g, but by %s they are %.9g; the plugin is broken",
                              k->w->name, (unsigned long long)(k->row + row), (unsigned long long)c,
                              (double)same[c], p->format.id, (double)got[c]);
        }
        k->row_error[row] = sum;
    }
    free(ours);
    return st;
}

static tsr_status run_rows(struct tsr_quant_matrix_work *k, uint64_t begin, uint64_t end,
                           struct tsr_err *err)
{
    const struct tsr_quantizer_v1 *f = k->q->iface;
    uint64_t                       first = begin * k->unit, cols = k->w->cols;
    uint64_t last = end * k->unit < k->w->rows ? end * k->unit : k->w->rows, rows = last - first;
    void    *scratch = tsr_new_aligned(1, k->plan.scratch_bytes);
    float   *dense =
        k->p->dense ? k->p->dense + first * cols : tsr_new_aligned(rows * cols, sizeof *dense);
    tsr_status st = TSR_OK;
    if (!scratch || !dense)
        st = tsr_fail_nomem(err, rows * cols * sizeof *dense + k->plan.scratch_bytes,
                            "quantizer scratch memory");
    struct tsr_matrix src = *k->w;
    src.data = (unsigned char *)k->w->data + first * k->w->row_stride;
    src.rows = rows;
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .first_row = k->row + first,
                                 .src = &src,
                                 .codes = (unsigned char *)k->p->codes + begin * k->plan.code_bytes,
                                 .meta = (unsigned char *)k->p->meta + begin * k->plan.meta_bytes,
                                 .scratch = scratch,
                                 .stats = k->stats,
                                 .prepared = k->prepared };
    if (st == TSR_OK && k->report)
        st = k->report->quantize(k->q->self, &job, k->row_loss + first,
                                 k->row_loss + k->w->rows + first, err);
    else if (st == TSR_OK)
        st = f->quantize(k->q->self, &job, err);
    if (st == TSR_E_NUMERIC) /* weights or options of the user's that cannot work */
        st = TSR_E_INPUT;
    if (st == TSR_OK) {
        struct tsr_matrix dst = { .struct_size = sizeof dst,
                                  .dtype = TSR_F32,
                                  .name = k->w->name,
                                  .data = dense,
                                  .rows = rows,
                                  .cols = cols,
                                  .row_stride = cols * sizeof *dense };
        job.src = NULL;
        job.dst = &dst;
        st = f->dequantize(k->q->self, &job, err);
    }
    if (st == TSR_OK)
        st = tsr_quant_matrix_check_run(k, first, rows, dense, err);
    if (!k->p->dense)
        free(dense);
    free(scratch);
    return st;
}

tsr_status tsr_quant_matrix_run_body(void *arg, uint64_t begin, uint64_t end)
{
    struct tsr_quant_matrix_work *k = arg;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    tsr_status st = tsr_plugin_cancelled() ? tsr_fail(&e.err, TSR_E_CANCELLED, "stopped")
                                           : run_rows(k, begin, end, &e.err);
    return st == TSR_OK ? st : tsr_quant_matrix_fail_run(k, begin, st, &e.err);
}
