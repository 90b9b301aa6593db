/* Quantizes one matrix by a plugin: a checked plan, runs of rows in the pool, codes checked before use. */
#include "base/f16.h"
#include "base/mem.h"
#include "model/packed_table.h"
#include "plugin/spec.h"
#include "quant/matrix_internal.h"
#include "quant/quant.h"
#include "tessera/quantizer_report.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SCRATCH (UINT64_C(1) << 36)

/* What a plugin answers is outside input like any other: layout, sizes and runs must fit. */
static tsr_status check_plan(const struct tsr_quant_matrix_work *k, struct tsr_err *err)
{
    const struct tsr_quant_plan *pl = &k->plan;
    const struct tsr_matrix     *w = k->w;
    uint64_t                     units = (w->rows + k->unit - 1) / k->unit, bytes;
    if (!pl->format.id || pl->format.id[0] == '\0' || strlen(pl->format.id) > 255)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "its plan for '%s' names no format", w->name);
    if (!tsr_mul(units, pl->code_bytes, &bytes) || !tsr_mul(units, pl->meta_bytes, &bytes) ||
        pl->scratch_bytes > MAX_SCRATCH)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "its plan for '%s' asks for %llu, %llu and %llu bytes of codes, meta and "
                        "scratch",
                        w->name, (unsigned long long)pl->code_bytes,
                        (unsigned long long)pl->meta_bytes, (unsigned long long)pl->scratch_bytes);
    if (!tsr_model_format_known(&pl->format)) {
        if (strncmp(pl->format.id, "tessera.", 8) == 0)
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "its plan for '%s' names format '%s' with parameters that this version "
                            "does not know",
                            w->name, pl->format.id);
        return TSR_OK;
    }
    if (!tsr_model_format_fits(&pl->format, w->cols))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "its plan for '%s' has %llu outliers in rows of %llu columns", w->name,
                        (unsigned long long)pl->format.outliers, (unsigned long long)w->cols);
    uint64_t code = tsr_model_format_code_bytes(&pl->format, w->cols);
    uint64_t meta = tsr_model_format_meta_bytes(&pl->format, w->cols);
    if (pl->code_bytes != k->unit * code || pl->meta_bytes != k->unit * meta ||
        w->rows % k->unit != 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "its plan for '%s' has units of %llu rows with %llu + %llu bytes, where %s "
                        "has %llu + %llu a row and a whole number of units",
                        w->name, (unsigned long long)k->unit, (unsigned long long)pl->code_bytes,
                        (unsigned long long)pl->meta_bytes, pl->format.id, (unsigned long long)code,
                        (unsigned long long)meta);
    return TSR_OK;
}

static tsr_status allocate(struct tsr_quant_matrix_work *k, struct tsr_err *err)
{
    const struct tsr_quant_plan *pl = &k->plan;
    const struct tsr_matrix     *w = k->w;
    uint64_t                     units = (w->rows + k->unit - 1) / k->unit, n = 0;
    struct tsr_model_packed     *p = k->p = tsr_new(1, sizeof *p);
    if (!p || !tsr_mul(w->rows, w->cols, &n))
        return tsr_fail_nomem(err, sizeof *p, "packed weights");
    p->rows = w->rows;
    p->cols = w->cols;
    p->format = pl->format;
    p->codes = tsr_new_aligned(units, pl->code_bytes);
    p->meta = tsr_new_aligned(units, pl->meta_bytes);
    p->plugin = tsr_strdup(k->q->name);
    p->format_id = tsr_strdup(pl->format.id);
    p->format.id = p->format_id;
    p->source_dtype = k->whole->dtype;
    if (tsr_model_format_known(&pl->format)) {
        p->code_stride = pl->code_bytes / k->unit;
        p->meta_stride = pl->meta_bytes / k->unit;
    } else if (k->q->found) {
        p->own = (struct tsr_model_own){ .unit = k->unit,
                                         .code_bytes = pl->code_bytes,
                                         .meta_bytes = pl->meta_bytes,
                                         .units = units,
                                         .first = k->row,
                                         .rows = k->whole->rows,
                                         .cols = w->cols };
        TSR_TRY(tsr_plugin_spec_text(k->q->found, k->q->options, &p->own.use, err));
    } else {
        p->dense = tsr_new_aligned(n, sizeof *p->dense);
        if (!p->dense)
            return tsr_fail_nomem(err, n * sizeof *p->dense, w->name);
    }
    p->report = (struct tsr_model_pack_report){
        .seconds = NAN, .loss = NAN, .rtn_loss = NAN, .damping = NAN
    };
    k->row_error = tsr_new(w->rows, sizeof *k->row_error);
    k->row_loss = k->report ? tsr_new(w->rows, 2 * sizeof *k->row_loss) : NULL;
    if (!p->codes || !p->meta || !p->plugin || !p->format_id || !k->row_error ||
        (k->report && !k->row_loss))
        return tsr_fail_nomem(err, units * (pl->code_bytes + pl->meta_bytes), w->name);
    return TSR_OK;
}

bool tsr_quantizer_reads(const struct tsr_quantizer *q, uint32_t dtype)
{
    return dtype < 32 && q->iface->src_dtypes >> dtype & 1u;
}

static tsr_status check_dtype(const struct tsr_quantizer *q, const struct tsr_matrix *w,
                              struct tsr_err *err)
{
    if (tsr_quantizer_reads(q, w->dtype) ||
        (tsr_quantizer_reads(q, TSR_F32) && tsr_dtype_size(w->dtype) != 0))
        return TSR_OK;
    return tsr_fail(err, TSR_E_UNSUPPORTED, "it does not read %s, the type of '%s'",
                    tsr_dtype_name(w->dtype), w->name);
}

tsr_status tsr_quantizer_plan(const struct tsr_quantizer *q, const struct tsr_matrix *w,
                              struct tsr_quant_plan *plan, struct tsr_err *err)
{
    /* does not touch the data: a loader may be reading it meanwhile */
    struct tsr_matrix shape = { .struct_size = w->struct_size,
                                .dtype = w->dtype,
                                .name = w->name,
                                .rows = w->rows,
                                .cols = w->cols,
                                .row_stride = w->row_stride };
    *plan = (struct tsr_quant_plan){ .struct_size = sizeof *plan,
                                     .format = { .struct_size = sizeof plan->format } };
    TSR_TRY(check_dtype(q, w, err));
    if (!tsr_quantizer_reads(q, w->dtype)) {
        shape.dtype = TSR_F32;
        shape.row_stride = w->cols * sizeof(float);
    }
    return q->iface->plan(q->self, &shape, plan, err);
}

tsr_status tsr_quant_matrix_plan(struct tsr_quant_matrix_work *k, struct tsr_err *err)
{
    TSR_TRY(tsr_quantizer_plan(k->q, k->whole, &k->plan, err));
    k->unit = k->plan.rows_per_unit ? k->plan.rows_per_unit : k->whole->rows;
    return check_plan(k, err);
}

static double sum_of(const double *v, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

/* The plugin's report of its work; rows are added in order. */
static void read_report(const struct tsr_quant_matrix_work *k)
{
    struct tsr_quant_prepare_report pr = { .struct_size = sizeof pr };
    struct tsr_model_pack_report   *to = &k->p->report;
    to->loss = sum_of(k->row_loss, k->w->rows);
    to->rtn_loss = sum_of(k->row_loss + k->w->rows, k->w->rows);
    if (!k->prepared || !TSR_HAS(struct tsr_quantizer_report_v1, k->report, prepared))
        return;
    k->report->prepared(k->q->self, k->prepared, &pr);
    to->damping = pr.damping;
    to->retries = pr.retries;
}

static const struct tsr_quantizer_report_v1 *report_table(const struct tsr_quantizer *q)
{
    const struct tsr_quantizer_report_v1 *t =
        q->iface->extension ? q->iface->extension(q->self, TSR_QUANTIZER_REPORT) : NULL;
    return t && TSR_HAS(struct tsr_quantizer_report_v1, t, quantize) ? t : NULL;
}

static tsr_status quantize_widened(struct tsr_registry *r, struct tsr_quant_matrix_work *k,
                                   struct tsr_err *err)
{
    TSR_TRY(tsr_quant_matrix_plan(k, err));
    TSR_TRY(allocate(k, err));
    uint64_t units = (k->w->rows + k->unit - 1) / k->unit;
    uint64_t grain = TSR_QUANT_RUN_WEIGHTS / (k->unit * k->w->cols) + 1;
    grain = (grain + TSR_QUANT_UNIT_STEP - 1) / TSR_QUANT_UNIT_STEP * TSR_QUANT_UNIT_STEP;
    (void)pthread_mutex_init(&k->lock, NULL);
    k->failed_at = UINT64_MAX;
    k->err = err;
    /* a tensor that is one unit leaves the threads to what the plugin runs on them */
    tsr_status st = units == 1 ? tsr_quant_matrix_run_body(k, 0, 1)
                               : tsr_pool_for(tsr_plugin_registry_pool(r), units, grain,
                                              tsr_quant_matrix_run_body, k);
    (void)pthread_mutex_destroy(&k->lock);
    if (st != TSR_OK)
        return k->failed;
    k->p->squared_error = sum_of(k->row_error, k->w->rows);
    if (k->report)
        read_report(k);
    return TSR_OK;
}

/* ---- for isolate_pack.c ----------------------------------------------------------- */

tsr_status quant_bytes(const struct tsr_quantizer *q, const struct tsr_matrix *whole,
                       const struct tsr_matrix *w, struct quant_bytes *b, struct tsr_err *err)
{
    struct tsr_quant_matrix_work k = { .q = q, .whole = whole, .w = w };
    if (w->rows == 0 || w->cols == 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "tensor '%s' is empty", w->name);
    TSR_TRY(tsr_quant_matrix_plan(&k, err));
    uint64_t units = (w->rows + k.unit - 1) / k.unit;
    *b = (struct quant_bytes){ units * k.plan.code_bytes, units * k.plan.meta_bytes, 0,
                               k.plan.scratch_bytes };
    if (!tsr_model_format_known(&k.plan.format) &&
        (!tsr_mul(w->rows, w->cols, &b->dense) || !tsr_mul(b->dense, sizeof(float), &b->dense)))
        return tsr_fail_nomem(err, UINT64_MAX, w->name);
    return TSR_OK;
}

tsr_status quant_room(const struct tsr_quantizer *q, const struct tsr_matrix *whole,
                      const struct tsr_matrix *w, uint64_t row, struct tsr_model_packed **p,
                      struct tsr_err *err)
{
    struct tsr_quant_matrix_work k = { .q = q, .whole = whole, .w = w, .row = row };
    tsr_status                   st = tsr_quant_matrix_plan(&k, err);
    if (st == TSR_OK)
        st = allocate(&k, err);
    free(k.row_error);
    if (st == TSR_OK)
        *p = k.p;
    else
        tsr_model_packed_destroy(k.p);
    return st;
}

tsr_status quant_decode(const struct tsr_quantizer *q, const struct tsr_model_packed *p,
                        uint64_t scratch, float *dst, struct tsr_err *err)
{
    void *room = tsr_new_aligned(1, scratch);
    if (!room)
        return tsr_fail_nomem(err, scratch, "quantizer scratch memory");
    struct tsr_matrix    to = { .struct_size = sizeof to,
                                .dtype = TSR_F32,
                                .name = "packed weights",
                                .data = dst,
                                .rows = p->rows,
                                .cols = p->cols,
                                .row_stride = p->cols * sizeof *dst };
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .first_row = p->own.first,
                                 .dst = &to,
                                 .codes = p->codes,
                                 .meta = p->meta,
                                 .scratch = room };
    tsr_status           st = q->iface->dequantize(q->self, &job, err);
    free(room);
    return st;
}

static tsr_status verify_body(void *arg, uint64_t begin, uint64_t end)
{
    struct tsr_quant_matrix_work *k = arg;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    const float                  *dense = k->theirs ? k->theirs + begin * k->p->cols : NULL;
    tsr_status st = tsr_quant_matrix_check_run(k, begin, end - begin, dense, &e.err);
    return st == TSR_OK ? st : tsr_quant_matrix_fail_run(k, begin, st, &e.err);
}

tsr_status quant_verify(struct tsr_registry *r, const struct tsr_quantizer *q,
                        const struct tsr_matrix *w, uint64_t row, const float *theirs,
                        struct tsr_model_packed *p, struct tsr_err *err)
{
    struct tsr_quant_matrix_work k = {
        .q = q, .whole = w, .w = w, .row = row, .p = p, .failed_at = UINT64_MAX, .theirs = theirs
    };
    k.err = err;
    k.row_error = tsr_new(w->rows, sizeof *k.row_error);
    if (!k.row_error)
        return tsr_fail_nomem(err, w->rows * sizeof *k.row_error, w->name);
    (void)pthread_mutex_init(&k.lock, NULL);
    tsr_status st = tsr_pool_for(tsr_plugin_registry_pool(r), w->rows,
                                 TSR_QUANT_RUN_WEIGHTS / w->cols + 1, verify_body, &k);
    (void)pthread_mutex_destroy(&k.lock);
    p->squared_error = sum_of(k.row_error, w->rows);
    free(k.row_error);
    return st == TSR_OK ? st : k.failed;
}

/* A quantizer that does not read this dtype gets the same numbers as F32. */
static tsr_status widen_for(const struct tsr_quantizer *q, const struct tsr_matrix *w,
                            struct tsr_matrix *wide, struct tsr_err *err)
{
    *wide = *w;
    TSR_TRY(check_dtype(q, w, err));
    if (tsr_quantizer_reads(q, w->dtype))
        return TSR_OK;
    uint64_t n;
    float   *data = tsr_mul(w->rows, w->cols, &n) ? tsr_new_aligned(n, sizeof *data) : NULL;
    if (!data)
        return tsr_fail_nomem(err, n * sizeof *data, w->name);
    for (uint64_t i = 0; i < w->rows; i++)
        tsr_widen(data + i * w->cols, (const unsigned char *)w->data + i * w->row_stride, w->dtype,
                  w->cols);
    wide->data = data;
    wide->dtype = TSR_F32;
    wide->row_stride = w->cols * sizeof *data;
    return TSR_OK;
}

/* k: q, whole, row, stats, prepared. */
static tsr_status quantize(struct tsr_registry *r, struct tsr_quant_matrix_work *k,
                           const struct tsr_matrix *w, struct tsr_model_packed **out,
                           struct tsr_err *err)
{
    if (w->rows == 0 || w->cols == 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "tensor '%s' is empty", w->name);
    if (!w->data)
        return tsr_fail(err, TSR_E_INPUT,
                        "'%s' has no full-precision weights: the model is packed already; quantize "
                        "the original",
                        w->name);
    struct tsr_matrix wide;
    tsr_status        st = widen_for(k->q, w, &wide, err);
    k->w = &wide;
    k->report = report_table(k->q);
    if (st == TSR_OK)
        st = quantize_widened(r, k, err);
    if (wide.data != w->data)
        free(wide.data);
    k->w = NULL;
    free(k->row_error);
    free(k->row_loss);
    if (st != TSR_OK) {
        tsr_model_packed_destroy(k->p);
        return tsr_err_prefix(err, st, "quantizer '%s'", k->q->name);
    }
    k->p->source_dtype = w->dtype;
    if (k->p->dense) { /* the layout is not read again */
        free(k->p->codes);
        free(k->p->meta);
        k->p->codes = k->p->meta = NULL;
    }
    *out = k->p;
    return TSR_OK;
}

tsr_status tsr_quantize_prepared(struct tsr_registry *r, const struct tsr_quantizer *q,
                                 const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                                 const void *prepared, struct tsr_model_packed **out,
                                 struct tsr_err *err)
{
    struct tsr_quant_matrix_work k = { .q = q, .whole = w, .stats = stats, .prepared = prepared };
    return quantize(r, &k, w, out, err);
}

bool tsr_quantizer_alone(const struct tsr_quantizer *q, const struct tsr_quant_plan *plan,
                         const struct tsr_matrix *w, const struct tsr_model_slice *s)
{
    uint64_t unit = plan->rows_per_unit, end = s->col + s->cols, step = 1;
    if (s->col || s->cols < w->cols)
        step = q->iface->columns_alone && tsr_model_format_known(&plan->format)
                   ? q->iface->columns_alone(q->self)
                   : 0;
    return unit && s->row % unit == 0 && s->rows % unit == 0 && step && s->col % step == 0 &&
           (end % step == 0 || end == w->cols) && plan->need == 0 &&
           q->iface->promises & TSR_QUANT_DETERMINISTIC;
}

static bool same_format(const struct tsr_format *a, const struct tsr_format *b)
{
    return strcmp(a->id, b->id) == 0 && a->dtype == b->dtype && a->bits == b->bits &&
           a->zero == b->zero && a->group == b->group && a->scale_dtype == b->scale_dtype &&
           a->element == b->element && a->scale_bits == b->scale_bits &&
           a->outliers == b->outliers && a->act8 == b->act8 &&
           tsr_model_same_table(a->table, b->table) && a->act8_threshold <= b->act8_threshold &&
           a->act8_threshold >= b->act8_threshold;
}

tsr_status tsr_quantize_part(struct tsr_registry *r, const struct tsr_quantizer *q,
                             const struct tsr_matrix *whole, const struct tsr_model_slice *s,
                             const struct tsr_matrix *part, struct tsr_model_packed **out,
                             struct tsr_err *err)
{
    bool                         columns = s->cols < whole->cols;
    struct tsr_quant_matrix_work k = { .q = q, .whole = columns ? part : whole, .row = s->row };
    struct tsr_quant_plan        plan, own;
    TSR_TRY(tsr_quantizer_plan(q, whole, &plan, err));
    TSR_TRY(tsr_quantizer_plan(q, k.whole, &own, err));
    if (part->cols != s->cols || part->rows != s->rows || part->dtype != whole->dtype ||
        !tsr_quantizer_alone(q, &plan, whole, s))
        return tsr_fail(err, TSR_E_BUG, "a part of '%s' that '%s' does not quantize alone",
                        whole->name, q->name);
    if (!own.format.id || !same_format(&plan.format, &own.format))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "quantizer '%s': tensor '%s': columns alone get another layout; the plugin "
                        "is broken",
                        q->name, whole->name);
    tsr_status st = quantize(r, &k, part, out, err);
    if (st == TSR_OK)
        (*out)->segment = s->segment;
    else if (columns) /* columns and groups of a message count from there */
        st = tsr_err_prefix(err, st, "columns %llu to %llu alone", (unsigned long long)s->col,
                            (unsigned long long)(s->col + s->cols - 1));
    return st;
}
