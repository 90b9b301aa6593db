/* Rows of a packed matrix as F32, whatever it is packed as. */
#include "model/packed.h"

#include "base/mem.h"
#include "model/own.h"

#include <stdlib.h>
#include <string.h>

/* Rows from the order of the layout into that of the matrix. */
static tsr_status put_back(const struct tsr_model_packed *p, uint64_t rows, float *v,
                           struct tsr_err *err)
{
    float *row = tsr_new(p->cols, sizeof *row);
    if (!row)
        return tsr_fail_nomem(err, p->cols * sizeof *row, "a row of weights");
    for (uint64_t r = 0; r < rows; r++, v += p->cols) {
        memcpy(row, v, p->cols * sizeof *row);
        for (uint64_t j = 0; j < p->cols; j++)
            v[p->order[j]] = row[j];
    }
    free(row);
    return TSR_OK;
}

tsr_status tsr_model_packed_dequantize(const struct tsr_model_packed *p, uint64_t first,
                                       uint64_t rows, float *dst, struct tsr_err *err)
{
    if (first > p->rows || rows > p->rows - first)
        return tsr_fail(err, TSR_E_BUG, "rows %llu to %llu of a packed matrix of %llu",
                        (unsigned long long)first, (unsigned long long)(first + rows),
                        (unsigned long long)p->rows);
    if (p->dense) {
        memcpy(dst, p->dense + first * p->cols, rows * p->cols * sizeof *dst);
        return TSR_OK;
    }
    if (p->own.unit)
        return tsr_model_own_rows(p, first, rows, dst, err);
    if (!tsr_model_format_known(&p->format))
        return tsr_fail(err, TSR_E_BUG, "a matrix packed by '%s' as '%s' has no dense form",
                        p->plugin, p->format.id);
    const unsigned char *meta = p->meta; /* NULL: the format has none */
    for (uint64_t r = first; r < first + rows; r++)
        tsr_model_format_decode_row(&p->format, p->cols,
                                    (const unsigned char *)p->codes + r * p->code_stride,
                                    meta ? meta + r * p->meta_stride : NULL,
                                    dst + (r - first) * p->cols);
    return p->order ? put_back(p, rows, dst, err) : TSR_OK;
}
