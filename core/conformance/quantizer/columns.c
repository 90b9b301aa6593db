/* The promise that columns need no others: a matrix in parts, against the whole. */
#include "conformance/quantizer/quantizer.h"

#include "base/f16.h"
#include "model/packed.h"

#include <string.h>

#define ROWS 64u
#define MOST 4096u /* columns of a step that a check has patience for */

static bool any_promise;

/* Code of column k in a row of the layouts that have any. */
static uint32_t code_of(const unsigned char *codes, uint64_t k, uint32_t bits)
{
    uint32_t code = 0;
    for (uint64_t b = k * bits; b < (k + 1) * bits; b++)
        code |= ((uint32_t)codes[b / 8] >> b % 8 & 1u) << (b - k * bits);
    return code;
}

/* Columns [first, end) alone, compared with the whole: values, and codes if the layout is known. */
static void part_with(struct tsr_conformance_case *c, void *self,
                      const struct tsr_conformance_quant_try *whole, uint64_t first, uint64_t end,
                      const char *what)
{
    const struct tsr_format         *f = &whole->plan.format;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t = { .w = whole->w, .refuse_extra = true };
    bool coded = tsr_model_format_known(f) && strcmp(f->id, TSR_FORMAT_FLOAT) != 0;
    t.w.cols = end - first;
    t.w.row_stride = t.w.cols * sizeof(float);
    t.w.data = tsr_conformance_rule_memory(c, t.w.rows * t.w.row_stride);
    for (uint64_t r = 0; r < t.w.rows; r++)
        memcpy(tsr_conformance_quant_row(&t.w, r), tsr_conformance_quant_row(&whole->w, r) + first,
               t.w.row_stride);
    tsr_status st = tsr_conformance_quant_run(c, self, &t, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "with %s columns %llu to %llu alone are answered with %s: %s",
                                  what, (unsigned long long)first, (unsigned long long)end,
                                  tsr_conformance_status_name(st), e.text);
    uint64_t n = t.w.cols, bytes = coded ? tsr_model_format_code_bytes(f, n) : 0,
             all = coded ? tsr_model_format_code_bytes(f, whole->w.cols) : 0;
    if (coded && (t.plan.format.bits != f->bits || t.plan.format.group != f->group ||
                  strcmp(t.plan.format.id, f->id) != 0 || t.code_bytes != t.w.rows * bytes ||
                  whole->code_bytes != t.w.rows * all))
        tsr_conformance_rule_fail(c, "with %s columns %llu to %llu alone get another layout", what,
                                  (unsigned long long)first, (unsigned long long)end);
    for (uint64_t r = 0; r < t.w.rows; r++)
        for (uint64_t k = 0; k < n; k++) {
            uint64_t col = first + k;
            float    alone = t.dense[r * n + k], among = whole->dense[r * whole->w.cols + col];
            if (tsr_f32_bits(alone) != tsr_f32_bits(among) ||
                (coded && code_of(t.codes + r * bytes, k, f->bits) !=
                              code_of(whole->codes + r * all, col, f->bits)))
                tsr_conformance_rule_fail(
                    c,
                    "with %s w[%llu][%llu] becomes %.9g among columns %llu to %llu, %.9g "
                    "in the whole row",
                    what, (unsigned long long)r, (unsigned long long)col, (double)alone,
                    (unsigned long long)first, (unsigned long long)end, (double)among);
        }
}

static void columns_with(struct tsr_conformance_case *c, const char *what)
{
    const struct tsr_quantizer_v1   *q = tsr_conformance_quant_iface(c);
    struct tsr_conformance_quant_try whole = { .refuse_extra = true };
    void                            *self = NULL;
    if (!q->columns_alone || tsr_conformance_quant_create(c, &self, NULL) != TSR_OK)
        return;
    uint64_t step = q->columns_alone(self), cols = 4 * step + (step + 1) / 2;
    if (step == 0 || step > MOST) {
        tsr_conformance_quant_destroy(c, self);
        return;
    }
    whole.w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, cols), cols,
                                           c->seed);
    if (tsr_conformance_quant_run(c, self, &whole, NULL) != TSR_OK || whole.plan.need & UINT32_MAX)
        return; /* covers only quantizers without statistics and answers of TSR_OK */
    uint64_t group = whole.plan.format.group;
    if (tsr_model_format_known(&whole.plan.format) && group && group < cols && step % group != 0)
        tsr_conformance_rule_fail(
            c, "with %s it says %llu columns, which are not whole groups of %llu", what,
            (unsigned long long)step, (unsigned long long)group);
    any_promise = true;
    part_with(c, self, &whole, 0, 2 * step, what);
    part_with(c, self, &whole, 2 * step, cols, what);
    part_with(c, self, &whole, step, 2 * step, what);
    tsr_conformance_quant_destroy(c, self);
}

void tsr_conformance_quant_columns_alone(struct tsr_conformance_case *c)
{
    columns_with(c, "its options");
    tsr_any_each_boundary(c, columns_with);
    if (!any_promise)
        tsr_conformance_rule_skip(c, "it promises nothing about columns, or needs statistics");
}
