/* The answers of plan(), without any weights. */
#include "conformance/quantizer/quantizer.h"

#include "base/mem.h"
#include "base/rng.h"
#include "model/packed_table.h"
#include "quant/quant.h"

#include <string.h>

#define USUAL_ROWS 64u
#define USUAL_COLS 256u

static const uint64_t columns[] = {
    1, 2, 3, 7, 8, 31, 32, 33, 127, 128, 129, 160, 256, 1000, 4096
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static struct tsr_matrix shape(uint64_t rows, uint64_t cols)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "layers.0.mlp.down_proj",
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
}

void tsr_conformance_quant_plan_answers(struct tsr_conformance_case *c)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_quant_plan p;
    struct tsr_matrix     w = shape(USUAL_ROWS, USUAL_COLS);
    void                 *self = tsr_conformance_quant_make(c);
    tsr_status            st = tsr_quant_plan(c, self, &w, &p, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%u x %u is answered with %s: %s", USUAL_ROWS, USUAL_COLS,
                                  tsr_conformance_status_name(st), e.text);
    uint32_t known = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16;
    uint32_t reads = tsr_conformance_quant_iface(c)->src_dtypes;
    if (!(reads & known) || reads & ~known)
        tsr_conformance_rule_fail(
            c, "src_dtypes is 0x%x; it is made of F32, F16 and BF16, one at least", reads);
    if (!p.format.id || !*p.format.id)
        tsr_conformance_rule_fail(c, "its plan for %u x %u names no format", USUAL_ROWS,
                                  USUAL_COLS);
    if (p.struct_size != sizeof p || p.format.struct_size != sizeof p.format)
        tsr_conformance_rule_fail(c, "it changed a struct_size that the host had set: %u and %u",
                                  p.struct_size, p.format.struct_size);
    if (strncmp(p.format.id, "tessera.", 8) == 0 && !tsr_model_format_known(&p.format))
        tsr_conformance_rule_fail(c,
                                  "its plan names %s with parameters that format.h does not allow",
                                  p.format.id);
    if (p.code_bytes == 0)
        tsr_conformance_rule_fail(c, "its plan has no bytes of codes");
    if (p.rows_per_unit > USUAL_ROWS)
        tsr_conformance_rule_fail(c, "its units have %u rows, more than the tensor's %u",
                                  p.rows_per_unit, USUAL_ROWS);
    uint64_t all = TSR_NEED_HESSIAN | TSR_NEED_ABSMAX | TSR_NEED_MEAN | TSR_NEED_VARIANCE |
                   TSR_NEED_MEAN_ABS | TSR_NEED_SENSITIVITY | TSR_NEED_INPUTS | TSR_NEED_CROSS;
    if (p.need & ~(all | TSR_NEED_IF_THERE(all)))
        tsr_conformance_rule_fail(c,
                                  "it needs 0x%llx, which has bits that quantizer.h does not know",
                                  (unsigned long long)p.need);
}

static bool same_plan(const struct tsr_quant_plan *a, const struct tsr_quant_plan *b)
{
    const struct tsr_format *f = &a->format, *g = &b->format;
    return a->rows_per_unit == b->rows_per_unit && a->code_bytes == b->code_bytes &&
           a->meta_bytes == b->meta_bytes && a->scratch_bytes == b->scratch_bytes &&
           a->need == b->need && (f->id && g->id ? strcmp(f->id, g->id) == 0 : f->id == g->id) &&
           f->bits == g->bits && f->zero == g->zero && f->group == g->group &&
           f->dtype == g->dtype && f->scale_dtype == g->scale_dtype && f->element == g->element &&
           f->scale_bits == g->scale_bits && f->outliers == g->outliers && f->act8 == g->act8 &&
           tsr_model_same_table(f->table, g->table) && f->act8_threshold == g->act8_threshold;
}

void tsr_conformance_quant_plan_pure(struct tsr_conformance_case *c)
{
    struct tsr_quant_plan first[N_COLUMNS], again;
    tsr_status            st[N_COLUMNS];
    void                 *self = tsr_conformance_quant_make(c);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        struct tsr_matrix w = shape(USUAL_ROWS, columns[i]);
        st[i] = tsr_quant_plan(c, self, &w, &first[i], NULL);
    }
    for (size_t i = N_COLUMNS; i-- > 0;) { /* after requests for other shapes */
        struct tsr_matrix w = shape(USUAL_ROWS, columns[i]);
        tsr_status        now = tsr_quant_plan(c, self, &w, &again, NULL);
        if (now != st[i] || (now == TSR_OK && !same_plan(&first[i], &again)))
            tsr_conformance_rule_fail(c, "asked again for %u x %llu, its answer is another one",
                                      USUAL_ROWS, (unsigned long long)columns[i]);
    }
}

void tsr_conformance_quant_plan_data(struct tsr_conformance_case *c)
{
    struct tsr_quant_plan p = { .struct_size = sizeof p,
                                .format = { .struct_size = sizeof p.format } };
    struct tsr_matrix     w = shape(USUAL_ROWS, USUAL_COLS);
    void                 *self = tsr_conformance_quant_make(c);
    w.data = tsr_conformance_guarded("the weights, in plan()", w.rows * w.row_stride, 0);
    tsr_conformance_guarded_protect(w.data, false);
    (void)tsr_conformance_quant_iface(c)->plan(self, &w, &p, NULL);
}

void tsr_conformance_quant_plan_odd_shapes(struct tsr_conformance_case *c)
{
    static const uint64_t shapes[][2] = {
        { 0, 0 },
        { 0, 64 },
        { 64, 0 },
        { 1, UINT64_MAX },
        { UINT64_MAX, 1 },
        { UINT64_MAX, UINT64_MAX },
        { 1, UINT64_C(1) << 62 },
        { 1, UINT64_C(1) << 57 },
    };
    void *self = tsr_conformance_quant_make(c);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_quant_plan p;
        struct tsr_matrix     w = shape(shapes[i][0], shapes[i][1]);
        uint64_t              n = 0, bytes;
        tsr_status            st = tsr_quant_plan(c, self, &w, &p, &e.err);
        unsigned long long    rows = w.rows, cols = w.cols;
        if (st != TSR_OK && st != TSR_E_UNSUPPORTED)
            tsr_conformance_rule_fail(c, "%llu x %llu is answered with %s: %s", rows, cols,
                                      tsr_conformance_status_name(st), e.text);
        if (st == TSR_OK && (!tsr_mul(w.rows, w.cols, &n) || !tsr_mul(n, 4, &bytes)))
            if (w.cols > UINT64_C(1) << 58)
                tsr_conformance_rule_fail(
                    c, "%llu columns are accepted, more than any layout can count", cols);
        if (st == TSR_OK && n == 0 && (w.rows == 0 || w.cols == 0))
            tsr_conformance_rule_fail(c,
                                      "%llu x %llu is accepted, where there is nothing to quantize",
                                      rows, cols);
    }
}

void tsr_conformance_quant_format_size(struct tsr_conformance_case *c)
{
    void *self = tsr_conformance_quant_make(c);
    bool  any = false;
    for (size_t i = 0; i < N_COLUMNS + 16; i++) {
        uint64_t cols =
            i < N_COLUMNS ? columns[i] : 1 + (uint64_t)(tsr_uniform(c->seed, 11, i) * 8192.0);
        struct tsr_quant_plan p;
        struct tsr_matrix     w = shape(USUAL_ROWS, cols);
        if (tsr_quant_plan(c, self, &w, &p, NULL) != TSR_OK || !tsr_model_format_known(&p.format))
            continue;
        any = true;
        uint64_t unit = p.rows_per_unit ? p.rows_per_unit : w.rows;
        if (!tsr_model_format_fits(&p.format, cols))
            tsr_conformance_rule_fail(c,
                                      "rows of %llu columns cannot have its layout: %llu outliers",
                                      (unsigned long long)cols,
                                      (unsigned long long)p.format.outliers);
        uint64_t code = unit * tsr_model_format_code_bytes(&p.format, cols);
        uint64_t meta = unit * tsr_model_format_meta_bytes(&p.format, cols);
        if (p.code_bytes != code || p.meta_bytes != meta)
            tsr_conformance_rule_fail(
                c,
                "%s with %llu columns: its plan has %llu bytes of codes and %llu of meta a "
                "unit, the layout %llu and %llu",
                p.format.id, (unsigned long long)cols, (unsigned long long)p.code_bytes,
                (unsigned long long)p.meta_bytes, (unsigned long long)code,
                (unsigned long long)meta);
    }
    if (!any)
        tsr_conformance_rule_skip(c, "its layout is its own");
}
