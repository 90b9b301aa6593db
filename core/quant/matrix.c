/* One matrix through a quantizer plugin: its plan is checked before memory is taken by it, runs
 * of rows go to the pool, and what came out is read back before anyone uses it. */
#include "matrix.h"
#include "base/f16.h"
#include "base/mem.h"
#include "quant/held.h"
#include "quant/isolate.h"
#include "quant/quant.h"
#include "tessera/quantizer_report.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Runs start at multiples of this many units, so that their codes and meta stay aligned. */
#define UNIT_STEP   64u
#define RUN_WEIGHTS (UINT64_C(1) << 16)
#define MAX_SCRATCH (UINT64_C(1) << 36)

struct work {
    const struct tsr_quantizer           *q;
    const struct tsr_matrix              *w;     /* these rows */
    const struct tsr_matrix              *whole; /* the shape of all, as it is stored */
    uint64_t                              row;   /* of the whole, the first of w */
    const struct tsr_quant_stats         *stats;
    const void                           *prepared;
    struct tsr_quant_plan                 plan;
    struct tsr_packed                    *p;
    uint64_t                              unit; /* rows in a unit */
    double                               *row_error;
    const struct tsr_quantizer_report_v1 *report;   /* NULL: the plugin has none */
    double                               *row_loss; /* [2][rows]: loss, rtn's loss */
    pthread_mutex_t                       lock;     /* guards the three below */
    uint64_t                              failed_at;
    tsr_status                            failed;
    struct tsr_err                       *err;
};

/* Keeps the sentence of the earliest rows, whichever worker came first.  Runs are taken in
 * ascending order, so that is the same one every time. */
static tsr_status fail_run(struct work *k, uint64_t at, tsr_status st, const char *text)
{
    pthread_mutex_lock(&k->lock);
    if (at < k->failed_at) {
        k->failed_at = at;
        k->failed = st;
        (void)tsr_fail(k->err, st, "%s", text);
    }
    pthread_mutex_unlock(&k->lock);
    return st;
}

/* Compares what the plugin says its bytes mean (NULL: it was asked elsewhere) with the layout that it
 * named, and sums the squared errors of each row. */
static tsr_status check_run(struct work *k, uint64_t first, uint64_t rows, const float *theirs,
                            struct tsr_err *err)
{
    const struct tsr_packed *p = k->p;
    uint64_t                 cols = p->cols;
    bool                     nan_block = strcmp(p->format.id, TSR_FORMAT_MX) == 0;
    float                   *ours = tsr_new_aligned(2 * cols, sizeof *ours), *w = ours + cols;
    if (!ours)
        return tsr_fail_nomem(err, 2 * cols * sizeof *ours, "a row of weights");
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < rows && st == TSR_OK; r++) {
        const float *got = theirs ? theirs + r * cols : NULL, *same;
        uint64_t     row = first + r;
        if (!p->dense) {
            const char *wrong =
                tsr_format_row_check(&p->format, cols,
                                     (const unsigned char *)p->meta + row * p->meta_stride);
            if (wrong) {
                st = tsr_fail(err, TSR_E_UNSUPPORTED,
                              "tensor '%s': row %llu as %s: %s; the plugin is broken", k->w->name,
                              (unsigned long long)(k->row + row), p->format.id, wrong);
                break;
            }
            tsr_format_decode_row(&p->format, cols,
                                  (const unsigned char *)p->codes + row * p->code_stride,
                                  (const unsigned char *)p->meta + row * p->meta_stride, ours);
            got = ours;
        }
        same = theirs ? theirs + r * cols : got;
        tsr_widen(w, (const unsigned char *)k->w->data + row * k->w->row_stride, k->w->dtype, cols);
        double sum = 0.0;
        for (uint64_t c = 0; c < cols && st == TSR_OK; c++) {
            double d = (double)w[c] - (double)got[c];
            sum += d * d;
            if (nan_block && isnan(got[c]) && isnan(same[c]))
                continue; /* asked for: plugins make it an option */
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

static tsr_status run_rows(struct work *k, uint64_t begin, uint64_t end, struct tsr_err *err)
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
        st = check_run(k, first, rows, dense, err);
    if (!k->p->dense)
        free(dense);
    free(scratch);
    return st;
}

static tsr_status run_body(void *arg, uint64_t begin, uint64_t end)
{
    struct work      *k = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tsr_cancelled() ? tsr_fail(&e.err, TSR_E_CANCELLED, "stopped")
                                           : run_rows(k, begin, end, &e.err);
    return st == TSR_OK ? st : fail_run(k, begin, st, e.text);
}

/* What a plugin answers is outside input like any other: layout, sizes and runs must fit. */
static tsr_status check_plan(const struct work *k, struct tsr_err *err)
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
    if (!tsr_format_known(&pl->format)) {
        if (strncmp(pl->format.id, "tessera.", 8) == 0)
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "its plan for '%s' names format '%s' with parameters that this version "
                            "does not know",
                            w->name, pl->format.id);
        return TSR_OK;
    }
    if (!tsr_format_fits(&pl->format, w->cols))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "its plan for '%s' has %llu outliers in rows of %llu columns", w->name,
                        (unsigned long long)pl->format.outliers, (unsigned long long)w->cols);
    uint64_t code = tsr_format_code_bytes(&pl->format, w->cols);
    uint64_t meta = tsr_format_meta_bytes(&pl->format, w->cols);
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

static tsr_status allocate(struct work *k, struct tsr_err *err)
{
    const struct tsr_quant_plan *pl = &k->plan;
    const struct tsr_matrix     *w = k->w;
    uint64_t                     units = (w->rows + k->unit - 1) / k->unit, n = 0;
    struct tsr_packed           *p = k->p = tsr_new(1, sizeof *p);
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
    /* rows of a foreign format may share bytes within a unit, so strides are averages there */
    p->code_stride = (units * pl->code_bytes + w->rows - 1) / w->rows;
    p->meta_stride = (units * pl->meta_bytes + w->rows - 1) / w->rows;
    if (!tsr_format_known(&pl->format)) {
        p->dense = tsr_new_aligned(n, sizeof *p->dense);
        if (!p->dense)
            return tsr_fail_nomem(err, n * sizeof *p->dense, w->name);
    }
    p->report =
        (struct tsr_pack_report){ .seconds = NAN, .loss = NAN, .rtn_loss = NAN, .damping = NAN };
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
    /* the data is not looked at: a loader may be reading it meanwhile */
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

static tsr_status make_plan(struct work *k, struct tsr_err *err)
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

/* What the plugin tells of its work; rows are added in order. */
static void read_report(const struct work *k)
{
    struct tsr_quant_prepare_report pr = { .struct_size = sizeof pr };
    struct tsr_pack_report         *to = &k->p->report;
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

static tsr_status quantize_widened(struct tsr_registry *r, struct work *k, struct tsr_err *err)
{
    TSR_TRY(make_plan(k, err));
    TSR_TRY(allocate(k, err));
    uint64_t units = (k->w->rows + k->unit - 1) / k->unit;
    uint64_t grain = RUN_WEIGHTS / (k->unit * k->w->cols) + 1;
    grain = (grain + UNIT_STEP - 1) / UNIT_STEP * UNIT_STEP;
    (void)pthread_mutex_init(&k->lock, NULL);
    k->failed_at = UINT64_MAX;
    k->err = err;
    tsr_status st = tsr_pool_for(tsr_registry_pool(r), units, grain, run_body, k);
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
    struct work k = { .q = q, .whole = whole, .w = w };
    if (w->rows == 0 || w->cols == 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "tensor '%s' is empty", w->name);
    TSR_TRY(make_plan(&k, err));
    uint64_t units = (w->rows + k.unit - 1) / k.unit;
    *b = (struct quant_bytes){ units * k.plan.code_bytes, units * k.plan.meta_bytes, 0 };
    if (!tsr_format_known(&k.plan.format) &&
        (!tsr_mul(w->rows, w->cols, &b->dense) || !tsr_mul(b->dense, sizeof(float), &b->dense)))
        return tsr_fail_nomem(err, UINT64_MAX, w->name);
    return TSR_OK;
}

tsr_status quant_room(const struct tsr_quantizer *q, const struct tsr_matrix *whole,
                      const struct tsr_matrix *w, struct tsr_packed **p, struct tsr_err *err)
{
    struct work k = { .q = q, .whole = whole, .w = w };
    tsr_status  st = make_plan(&k, err);
    if (st == TSR_OK)
        st = allocate(&k, err);
    free(k.row_error);
    if (st == TSR_OK)
        *p = k.p;
    else
        tsr_packed_destroy(k.p);
    return st;
}

static tsr_status verify_body(void *arg, uint64_t begin, uint64_t end)
{
    struct work      *k = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const float      *dense = k->p->dense ? k->p->dense + begin * k->p->cols : NULL;
    tsr_status        st = check_run(k, begin, end - begin, dense, &e.err);
    return st == TSR_OK ? st : fail_run(k, begin, st, e.text);
}

tsr_status quant_verify(struct tsr_registry *r, const struct tsr_quantizer *q,
                        const struct tsr_matrix *w, uint64_t row, struct tsr_packed *p,
                        struct tsr_err *err)
{
    struct work k = { .q = q, .whole = w, .w = w, .row = row, .p = p, .failed_at = UINT64_MAX };
    k.err = err;
    k.row_error = tsr_new(w->rows, sizeof *k.row_error);
    if (!k.row_error)
        return tsr_fail_nomem(err, w->rows * sizeof *k.row_error, w->name);
    (void)pthread_mutex_init(&k.lock, NULL);
    tsr_status st =
        tsr_pool_for(tsr_registry_pool(r), w->rows, RUN_WEIGHTS / w->cols + 1, verify_body, &k);
    (void)pthread_mutex_destroy(&k.lock);
    p->squared_error = sum_of(k.row_error, w->rows);
    if (p->dense) { /* nobody reads the plugin's own layout again */
        free(p->codes);
        free(p->meta);
        p->codes = p->meta = NULL;
    }
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
static tsr_status quantize(struct tsr_registry *r, struct work *k, const struct tsr_matrix *w,
                           struct tsr_packed **out, struct tsr_err *err)
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
        tsr_packed_destroy(k->p);
        return tsr_err_prefix(err, st, "quantizer '%s'", k->q->name);
    }
    k->p->source_dtype = w->dtype;
    if (k->p->dense) { /* nobody reads the plugin's own layout again */
        free(k->p->codes);
        free(k->p->meta);
        k->p->codes = k->p->meta = NULL;
    }
    *out = k->p;
    return TSR_OK;
}

tsr_status tsr_quantize_prepared(struct tsr_registry *r, const struct tsr_quantizer *q,
                                 const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                                 const void *prepared, struct tsr_packed **out, struct tsr_err *err)
{
    struct work k = { .q = q, .whole = w, .stats = stats, .prepared = prepared };
    return quantize(r, &k, w, out, err);
}

bool tsr_quantizer_alone(const struct tsr_quantizer *q, const struct tsr_quant_plan *plan,
                         const struct tsr_matrix *w, const struct tsr_slice *s)
{
    uint64_t unit = plan->rows_per_unit, end = s->col + s->cols, step = 1;
    if (s->col || s->cols < w->cols)
        step = q->iface->columns_alone && tsr_format_known(&plan->format)
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
           a->act8_threshold <= b->act8_threshold && a->act8_threshold >= b->act8_threshold;
}

tsr_status tsr_quantize_part(struct tsr_registry *r, const struct tsr_quantizer *q,
                             const struct tsr_matrix *whole, const struct tsr_slice *s,
                             const struct tsr_matrix *part, struct tsr_packed **out,
                             struct tsr_err *err)
{
    bool                  columns = s->cols < whole->cols;
    struct work           k = { .q = q, .whole = columns ? part : whole, .row = s->row };
    struct tsr_quant_plan plan, own;
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

static tsr_status isolated(struct tsr_registry *r, const struct tsr_quantizer *q,
                           const struct tsr_matrix *w, const struct tsr_quant_stats *seen,
                           struct tsr_packed **out, struct tsr_err *err)
{
    struct tsr_pack_item it = { .whole = w, .w = w };
    TSR_TRY(tsr_isolated_pack(r, q, seen, &it, 1, err));
    if (it.status != TSR_OK)
        return tsr_fail(err, it.status, "%s", it.text);
    *out = it.packed;
    return TSR_OK;
}

tsr_status tsr_quantize_matrix(struct tsr_registry *r, const struct tsr_quantizer *q,
                               const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                               struct tsr_packed **out, struct tsr_err *err)
{
    struct work k = { .q = q, .w = w, .whole = w };
    tsr_status  st = make_plan(&k, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", q->name);
    TSR_TRY(tsr_quant_need_check(k.plan.need, stats, w->cols, q->name, w->name, err));
    struct tsr_quant_stats seen = tsr_quant_stats_for(k.plan.need, stats);
    if (q->isolated)
        return isolated(r, q, w, k.plan.need ? &seen : NULL, out, err);
    void           *prepared = NULL;
    struct tsr_held held = { 0 };
    TSR_TRY(tsr_held_begin(&held, tsr_registry_host(r), seen.hessian, w->cols, w->cols, err));
    if (k.plan.need && q->iface->prepare) {
        st = q->iface->prepare(q->self, &seen, &prepared, err);
        if (st == TSR_E_NUMERIC) /* statistics of the user's that cannot work */
            st = TSR_E_INPUT;
        if (st != TSR_OK) {
            (void)tsr_held_end(&held, false, NULL);
            return tsr_err_prefix(err, st, "quantizer '%s', tensor '%s'", q->name, w->name);
        }
    }
    st = tsr_quantize_prepared(r, q, w, k.plan.need ? &seen : NULL, prepared, out, err);
    if (prepared && q->iface->unprepare)
        q->iface->unprepare(q->self, prepared);
    (void)tsr_held_end(&held, false, NULL);
    return st;
}
