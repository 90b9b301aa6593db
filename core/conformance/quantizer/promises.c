/* Promises: the rules pass if the plugin makes none. */
#include "conformance/quantizer/quantizer.h"

#include "base/mem.h"
#include "quant/quant.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64u
#define COLS 160u

static void promised(struct tsr_conformance_case *c, uint64_t bit, const char *name)
{
    if (!(tsr_conformance_quant_iface(c)->promises & bit))
        tsr_conformance_rule_skip(c, "it does not promise to be %s", name);
}

static struct tsr_conformance_quant_try usual(struct tsr_conformance_case *c)
{
    void                            *self = tsr_conformance_quant_make(c);
    struct tsr_conformance_quant_try t = {
        .w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, COLS), COLS,
                                          c->seed),
        .no_decode = true,
    };
    tsr_conformance_quant_destroy(c, self);
    return t;
}

/* ---- deterministic -------------------------------------------------------------------------------- */

static bool any_split;

static void split_with(struct tsr_conformance_case *c, const char *what)
{
    static const uint64_t runs[] = { 3, 1, 7, 32 };
    /* with default options; one split for each of their boundaries */
    size_t                           n = any_split ? 1 : sizeof runs / sizeof *runs;
    struct tsr_conformance_quant_try whole = { .no_decode = true };
    void                            *self = NULL;
    if (tsr_conformance_quant_create(c, &self, NULL) != TSR_OK)
        return;
    whole.w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, COLS), COLS,
                                           c->seed);
    if (tsr_conformance_quant_run(c, self, &whole, NULL) != TSR_OK || whole.units < 2)
        return;
    any_split = true;
    for (size_t i = 0; i < n; i++) {
        struct tsr_errbuf                e = TSR_ERRBUF(e);
        struct tsr_conformance_quant_try t = whole;
        char                             when[400];
        t.run_units = runs[i];
        tsr_status st = tsr_conformance_quant_run(c, self, &t, &e.err);
        (void)snprintf(when, sizeof when, "with %s, in runs of %llu units,", what,
                       (unsigned long long)runs[i]);
        if (st != TSR_OK)
            tsr_conformance_rule_fail(c, "%s the answer is %s: %s", when,
                                      tsr_conformance_status_name(st), e.text);
        tsr_conformance_quant_same(c, &whole, &t, when);
    }
    tsr_conformance_quant_destroy(c, self);
}

/* Promised by the table, so for all options. */
void tsr_conformance_quant_rows_split(struct tsr_conformance_case *c)
{
    promised(c, TSR_QUANT_DETERMINISTIC, "deterministic");
    split_with(c, "its options");
    tsr_any_each_boundary(c, split_with);
    if (!any_split)
        tsr_conformance_rule_skip(c, "it takes whole tensors only, or none");
}

/* The units of one tensor, on as many threads as the host has. */
struct shared {
    struct tsr_conformance_case            *c;
    void                                   *self;
    const struct tsr_conformance_quant_try *whole;
    const void                             *prepared;
    unsigned char                          *codes, *meta;
    _Atomic int32_t                         failed;
};

static tsr_status one_unit(void *arg, uint64_t begin, uint64_t end)
{
    struct shared                          *s = arg;
    const struct tsr_conformance_quant_try *t = s->whole;
    tsr_status                              st = TSR_OK;
    for (uint64_t u = begin; u < end && st == TSR_OK; u++) {
        uint64_t          first = u * t->rows_per_unit, last = first + t->rows_per_unit;
        struct tsr_matrix src = t->w;
        src.data = (char *)t->w.data + first * t->w.row_stride;
        src.rows = (last < t->w.rows ? last : t->w.rows) - first;
        struct tsr_quant_job job = {
            .struct_size = sizeof job,
            .first_row = first,
            .src = &src,
            .codes = tsr_conformance_roomy("codes", t->plan.code_bytes, 0),
            .meta = tsr_conformance_roomy("meta", t->plan.meta_bytes, 0),
            .scratch = tsr_conformance_roomy("scratch", t->plan.scratch_bytes, 0xA5),
            .stats = t->plan.need ? &t->stats : NULL,
            .prepared = s->prepared,
        };
        st = tsr_conformance_quant_iface(s->c)->quantize(s->self, &job, NULL);
        memcpy(s->codes + u * t->plan.code_bytes, job.codes, t->plan.code_bytes);
        memcpy(s->meta + u * t->plan.meta_bytes, job.meta, t->plan.meta_bytes);
        tsr_conformance_guarded_free(job.codes);
        tsr_conformance_guarded_free(job.meta);
        tsr_conformance_guarded_free(job.scratch);
    }
    return st;
}

static void with_workers(struct tsr_conformance_case *c, void *self,
                         const struct tsr_conformance_quant_try *whole, uint32_t workers)
{
    const struct tsr_quantizer_v1   *q = tsr_conformance_quant_iface(c);
    struct tsr_conformance_quant_try t = *whole;
    struct shared                    s = { .c = c, .self = self, .whole = whole };
    void                            *prepared = NULL;
    char                             when[64];
    t.codes = s.codes = tsr_conformance_rule_memory(c, whole->code_bytes);
    t.meta = s.meta = tsr_conformance_rule_memory(c, whole->meta_bytes);
    c->host->workers = workers;
    tsr_status st = TSR_OK;
    if (whole->plan.need && q->prepare)
        st = q->prepare(self, &whole->stats, &prepared, NULL);
    s.prepared = prepared;
    if (st == TSR_OK)
        st = c->host->table.parallel_for(c->host->table.ctx, whole->units, 1, one_unit, &s);
    (void)snprintf(when, sizeof when, "with %u workers", workers);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%s the answer is %s", when, tsr_conformance_status_name(st));
    tsr_conformance_quant_same(c, whole, &t, when);
    if (prepared && q->unprepare)
        q->unprepare(self, prepared);
}

void tsr_conformance_quant_deterministic(struct tsr_conformance_case *c)
{
    promised(c, TSR_QUANT_DETERMINISTIC, "deterministic");
    struct tsr_conformance_quant_try whole = usual(c);
    void                            *self = tsr_conformance_quant_must(c, &whole);
    for (int i = 0; i < 4; i++) { /* the same call again, by this instance and by a fresh one */
        struct tsr_conformance_quant_try again = whole;
        (void)tsr_conformance_quant_run(c, i % 2 ? self : tsr_conformance_quant_make(c), &again,
                                        NULL);
        tsr_conformance_quant_same(c, &whole, &again, "the next time");
    }
    if (whole.units < 2)
        return;
    for (uint32_t i = 0; i < 3; i++)
        with_workers(c, self, &whole, 7);
}

/* ---- the report ------------------------------------------------------------------------------------ */

/* The host calls the quantize() of this table in place of the other. */
void tsr_conformance_quant_report_same(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try a = usual(c), b = a;
    void                            *self = tsr_conformance_quant_must(c, &a);
    b.report =
        tsr_conformance_quant_table(c, self, TSR_QUANTIZER_REPORT,
                                    TSR_CONFORMANCE_END(struct tsr_quantizer_report_v1, quantize));
    if (!b.report)
        tsr_conformance_rule_skip(c, "it reports nothing of its work");
    if (!b.report->quantize)
        tsr_conformance_rule_fail(c, "quantize() of its table %s is NULL", TSR_QUANTIZER_REPORT);
    b.loss = tsr_conformance_rule_memory(c, b.w.rows * sizeof *b.loss);
    b.rtn_loss = tsr_conformance_rule_memory(c, b.w.rows * sizeof *b.rtn_loss);
    for (uint64_t r = 0; r < b.w.rows; r++)
        b.loss[r] = b.rtn_loss[r] = -1.0;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tsr_conformance_quant_run(c, self, &b, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "with a report the answer is %s: %s",
                                  tsr_conformance_status_name(st), e.text);
    tsr_conformance_quant_same(c, &a, &b, "with a report");
    for (uint64_t r = 0; r < b.w.rows; r++) {
        if (!(b.loss[r] >= 0.0 && isfinite(b.loss[r])))
            tsr_conformance_rule_fail(c, "the loss of row %llu is %g", (unsigned long long)r,
                                      b.loss[r]);
        if (!(b.rtn_loss[r] >= 0.0 || isnan(b.rtn_loss[r])))
            tsr_conformance_rule_fail(c, "the loss of row %llu by rounding to nearest is %g",
                                      (unsigned long long)r, b.rtn_loss[r]);
    }
}

/* ---- idempotent ------------------------------------------------------------------------------------ */

static void idempotent_with(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try a, b;
    void                            *self = NULL;
    char                             when[360];
    if (tsr_conformance_quant_create(c, &self, NULL) != TSR_OK)
        return;
    a = (struct tsr_conformance_quant_try){
        .w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, COLS), COLS,
                                          c->seed)
    };
    if (tsr_conformance_quant_run(c, self, &a, NULL) != TSR_OK)
        return; /* the promise is about bytes */
    b = a;
    b.w.data = a.dense;
    b.w.row_stride = a.w.cols * sizeof(float);
    tsr_status st = tsr_conformance_quant_run(c, self, &b, &e.err);
    (void)snprintf(when, sizeof when, "with %s, from what it decoded,", what);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%s the answer is %s: %s", when,
                                  tsr_conformance_status_name(st), e.text);
    tsr_conformance_quant_same(c, &a, &b, when);
    tsr_conformance_quant_destroy(c, self);
}

/* Promised by the table, so for all options. */
void tsr_conformance_quant_idempotent(struct tsr_conformance_case *c)
{
    promised(c, TSR_QUANT_IDEMPOTENT, "idempotent");
    idempotent_with(c, "its options");
    tsr_any_each_boundary(c, idempotent_with);
}

/* ---- the largest error -------------------------------------------------------------------------------- */

#define ARITHMETIC 0x1p-12 /* of a step, for F32 rounding: quantizer.h */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* values[code][column]: the decoded value of each code everywhere, by a row's meta. */
static void values_of(const struct tsr_format *f, const unsigned char *meta, uint64_t cols,
                      unsigned char *codes, float *values)
{
    uint64_t bytes = tsr_model_format_code_bytes(f, cols);
    for (uint32_t code = 0; code < 1u << f->bits; code++) {
        memset(codes, 0, bytes);
        for (uint64_t bit = 0; bit < cols * f->bits; bit++)
            codes[bit / 8] |= (unsigned char)((code >> bit % f->bits & 1u) << bit % 8);
        tsr_model_format_decode_row(f, cols, codes, meta, values + code * cols);
    }
}

/* The step at w as defined by max_error_steps(); 0 if a column has only one value, such as that of an
 * outlier stored next to the codes. */
static double step_at(const float *values, uint32_t n_codes, uint64_t cols, uint64_t k, double w)
{
    float    v[256];
    uint32_t n = 0, all = 0, i = 1;
    for (uint32_t code = 0; code < n_codes; code++)
        if (isfinite(values[code * cols + k]))
            v[all++] = values[code * cols + k];
    qsort(v, all, sizeof *v, by_value);
    for (uint32_t j = 0; j < all; j++) /* +0 and -0, a table with an entry twice */
        if (n == 0 || v[j] > v[n - 1])
            v[n++] = v[j];
    if (n < 2)
        return 0.0;
    while (i + 1 < n && w > (double)v[i])
        i++;
    return (double)v[i] - (double)v[i - 1];
}

static void check_row(struct tsr_conformance_case *c, const struct tsr_conformance_quant_try *t,
                      uint64_t r, const float *values, double most, const char *what)
{
    uint64_t cols = t->w.cols;
    for (uint64_t k = 0; k < cols; k++) {
        double w = tsr_conformance_quant_row(&t->w, r)[k], d = t->dense[r * cols + k];
        double step = step_at(values, 1u << t->plan.format.bits, cols, k, w);
        if (step > 0.0 && !(fabs(w - d) <= (most + ARITHMETIC) * step))
            tsr_conformance_rule_fail(
                c,
                "with %s w[%llu][%llu] = %g decodes to %g, %.4f steps of %g off; it "
                "promises %g",
                what, (unsigned long long)r, (unsigned long long)k, w, d, fabs(w - d) / step, step,
                most);
    }
}

double tsr_conformance_quant_worst_steps(struct tsr_conformance_case            *c,
                                         const struct tsr_conformance_quant_try *t)
{
    const struct tsr_format *f = &t->plan.format;
    const uint64_t           cols = t->w.cols, n_codes = UINT64_C(1) << f->bits;
    double                   worst = 0.0;
    if (!tsr_model_format_known(f) || strcmp(f->id, TSR_FORMAT_FLOAT) == 0 ||
        t->meta_bytes != tsr_model_format_meta_bytes(f, cols) * t->w.rows)
        return 0.0;
    unsigned char *codes = tsr_conformance_rule_memory(c, tsr_model_format_code_bytes(f, cols));
    float         *values = tsr_conformance_rule_memory(c, n_codes * cols * sizeof *values);
    for (uint64_t r = 0; r < t->w.rows; r++) {
        values_of(f, t->meta + r * tsr_model_format_meta_bytes(f, cols), cols, codes, values);
        for (uint64_t k = 0; k < cols; k++) {
            const double w = tsr_conformance_quant_row(&t->w, r)[k];
            const double step = step_at(values, (uint32_t)n_codes, cols, k, w);
            const double off = fabs(w - (double)t->dense[r * cols + k]) / step - ARITHMETIC;
            if (step > 0.0 && !(off <= worst))
                worst = off;
        }
    }
    return worst;
}

/* 0: none. */
static double promise(struct tsr_conformance_case *c, const void *self, const char *what)
{
    const struct tsr_quantizer_v1 *q = tsr_conformance_quant_iface(c);
    double                         most = q->max_error_steps ? q->max_error_steps(self) : 0.0;
    if (!(most >= 0.0 && isfinite(most)))
        tsr_conformance_rule_fail(c,
                                  "with %s max_error_steps() says %g; it is 0 or a positive number",
                                  what, most);
    return most;
}

/* Rows of four sizes, so that no scale fits all. */
static struct tsr_matrix sizes(struct tsr_conformance_case *c, struct tsr_matrix w)
{
    struct tsr_matrix v = tsr_conformance_quant_matrix(c, w.rows, w.cols, c->seed + 2);
    for (uint64_t r = 0; r < v.rows; r++)
        for (uint64_t k = 0; k < v.cols; k++)
            tsr_conformance_quant_row(&v, r)[k] *= (float)(1u << 2 * (r % 4));
    return v;
}

static bool any_promise;

static void steps_with(struct tsr_conformance_case *c, const char *what)
{
    void *self = NULL;
    if (tsr_conformance_quant_create(c, &self, NULL) != TSR_OK)
        return;
    double                           most = promise(c, self, what);
    struct tsr_conformance_quant_try t = {
        .w = { .rows = tsr_conformance_quant_rows(c, self, ROWS, COLS), .cols = COLS }
    };
    if (most == 0.0)
        return;
    any_promise = true;
    t.w = sizes(c, t.w);
    if (tsr_conformance_quant_run(c, self, &t, NULL) != TSR_OK)
        return; /* covers only answers of TSR_OK */
    const struct tsr_format *f = &t.plan.format;
    if (!tsr_model_format_known(f) || strcmp(f->id, TSR_FORMAT_FLOAT) == 0)
        tsr_conformance_rule_fail(c,
                                  "with %s it promises %g steps in the layout %s, which has none",
                                  what, most, f->id ? f->id : "NULL");
    uint64_t meta = tsr_model_format_meta_bytes(f, t.w.cols);
    if (t.meta_bytes != meta * t.w.rows)
        tsr_conformance_rule_skip(c, "its bytes are not those of the layout; format-size says it");
    unsigned char *codes = tsr_conformance_rule_memory(c, tsr_model_format_code_bytes(f, t.w.cols));
    float         *values = tsr_conformance_rule_memory(c, (t.w.cols << f->bits) * sizeof *values);
    for (uint64_t r = 0; r < t.w.rows; r++) {
        values_of(f, t.meta + r * meta, t.w.cols, codes, values);
        check_row(c, &t, r, values, most, what);
    }
    tsr_conformance_quant_destroy(c, self);
}

void tsr_conformance_quant_error_steps(struct tsr_conformance_case *c)
{
    steps_with(c, "its options");
    tsr_any_each_boundary(c, steps_with);
    if (!any_promise)
        tsr_conformance_rule_skip(c, "it promises no largest error");
}
