/* Quantizers: one tensor through the table, in every way that a host may do it. */
#include "conformance/quantizer/quantizer.h"

#include "base/mem.h"
#include "base/rng.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXERCISE_ROWS 24u
#define EXERCISE_COLS 160u /* more than one group of 128, the last of them short */

const struct tsr_quantizer_v1 *tsr_conformance_quant_iface(const struct tsr_conformance_case *c)
{
    return c->iface;
}

/* ---- weights ------------------------------------------------------------------------------ */

struct tsr_matrix tsr_conformance_quant_matrix(struct tsr_conformance_case *c, uint64_t rows,
                                               uint64_t cols, uint64_t seed)
{
    float *w = tsr_conformance_rule_memory(c, rows * cols * sizeof *w);
    for (uint64_t i = 0; i < rows * cols; i++) {
        double z = tsr_normal(seed, 3, i);
        w[i] = (float)(0.02 * z + (z < 0.0 ? -0.01 : 0.01));
    }
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "layers.0.mlp.down_proj",
                                .data = w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * sizeof *w };
}

float *tsr_conformance_quant_row(const struct tsr_matrix *w, uint64_t row)
{
    return (float *)(void *)((char *)w->data + row * w->row_stride);
}

double tsr_conformance_quant_largest(const float *row, uint64_t cols)
{
    double m = 0.0;
    for (uint64_t k = 0; k < cols; k++)
        m = fmax(m, fabs((double)row[k]));
    return m;
}

/* ---- the table ------------------------------------------------------------------------------ */

tsr_status tsr_conformance_quant_create(struct tsr_conformance_case *c, void **self,
                                        struct tsr_err *err)
{
    return tsr_conformance_quant_iface(c)->create(c->host->give, c->options, self, err);
}

void tsr_conformance_quant_destroy(struct tsr_conformance_case *c, void *self)
{
    tsr_conformance_quant_iface(c)->destroy(self);
}

const void *tsr_conformance_quant_extension(struct tsr_conformance_case *c, void *self,
                                            const char *id)
{
    const struct tsr_quantizer_v1 *q = tsr_conformance_quant_iface(c);
    return q->extension ? q->extension(self, id) : NULL;
}

const void *tsr_conformance_quant_table(struct tsr_conformance_case *c, void *self, const char *id,
                                        uint64_t end)
{
    const void *table = tsr_conformance_quant_extension(c, self, id);
    uint32_t    bytes = 0;
    if (table)
        memcpy(&bytes, table, sizeof bytes); /* every table begins with its size */
    if (table && bytes < end)
        tsr_conformance_rule_fail(c,
                                  "its table %s says %u bytes and ends before a required function, "
                                  "which needs %llu; set struct_size to the table's sizeof",
                                  id, bytes, (unsigned long long)end);
    return table;
}

tsr_status tsr_quant_plan(const struct tsr_conformance_case *c, const void *self,
                          const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                          struct tsr_err *err)
{
    struct tsr_matrix shape = *w;
    shape.data = NULL;
    *plan = (struct tsr_quant_plan){ .struct_size = sizeof *plan,
                                     .format = { .struct_size = sizeof plan->format } };
    return tsr_conformance_quant_iface(c)->plan(self, &shape, plan, err);
}

uint64_t tsr_conformance_quant_rows(struct tsr_conformance_case *c, void *self, uint64_t rows,
                                    uint64_t cols)
{
    struct tsr_quant_plan plan;
    struct tsr_matrix     w = { .struct_size = sizeof w,
                                .dtype = TSR_F32,
                                .name = "layers.0.mlp.down_proj",
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
    if (tsr_quant_plan(c, self, &w, &plan, NULL) != TSR_OK || plan.rows_per_unit < 2)
        return rows;
    return (rows + plan.rows_per_unit - 1) / plan.rows_per_unit * plan.rows_per_unit;
}

static void *buffer(const struct tsr_conformance_quant_try *t, const char *name, uint64_t bytes,
                    unsigned char fill)
{
    return t->guard ? tsr_conformance_guarded(name, bytes, fill)
                    : tsr_conformance_roomy(name, bytes, fill);
}

/* Units [begin, end) in separate buffers, which start at multiples of 64 bytes as a host's do. */
static tsr_status run_units(struct tsr_conformance_case *c, void *self,
                            struct tsr_conformance_quant_try *t, const void *prepared,
                            uint64_t begin, uint64_t end, struct tsr_err *err)
{
    const struct tsr_quantizer_v1 *q = tsr_conformance_quant_iface(c);
    uint64_t                       n = end - begin, first = begin * t->rows_per_unit;
    uint64_t                       last = end * t->rows_per_unit;
    struct tsr_matrix              src = t->w;
    if (last > t->w.rows)
        last = t->w.rows;
    src.data = (char *)t->w.data + first * t->w.row_stride;
    src.rows = last - first;
    struct tsr_quant_job job = {
        .struct_size = sizeof job,
        .first_row = t->first_row + first,
        .src = &src,
        .codes = buffer(t, "codes", n * t->plan.code_bytes, t->fill),
        .meta = buffer(t, "meta", n * t->plan.meta_bytes, t->fill),
        .scratch = buffer(t, "scratch", t->plan.scratch_bytes, t->scratch_fill),
        .stats = t->plan.need ? &t->stats : NULL,
        .prepared = prepared,
    };
    if (t->read_only)
        tsr_conformance_test_host_protect(c->host, true);
    tsr_status st = t->report
                        ? t->report->quantize(self, &job, t->loss + first, t->rtn_loss + first, err)
                        : q->quantize(self, &job, err);
    if (t->read_only)
        tsr_conformance_test_host_protect(c->host, false);
    if (t->guard && st == TSR_OK)
        for (int i = 0; i < 3; i++) {
            const char *const names[] = { "codes", "meta", "scratch" };
            const void *const where[] = { job.codes, job.meta, job.scratch };
            if (!tsr_conformance_guarded_intact(where[i]))
                tsr_conformance_rule_fail(c, "quantize() wrote past the end of %s", names[i]);
        }
    memcpy(t->codes + begin * t->plan.code_bytes, job.codes, n * t->plan.code_bytes);
    memcpy(t->meta + begin * t->plan.meta_bytes, job.meta, n * t->plan.meta_bytes);
    tsr_conformance_guarded_free(job.codes);
    tsr_conformance_guarded_free(job.meta);
    tsr_conformance_guarded_free(job.scratch);
    return st;
}

static tsr_status decode(struct tsr_conformance_case *c, void *self,
                         struct tsr_conformance_quant_try *t, struct tsr_err *err)
{
    uint64_t             bytes = t->w.rows * t->w.cols * sizeof(float);
    struct tsr_matrix    dst = { .struct_size = sizeof dst,
                                 .dtype = TSR_F32,
                                 .name = t->w.name,
                                 .data = buffer(t, "dst", bytes, 0xA5),
                                 .rows = t->w.rows,
                                 .cols = t->w.cols,
                                 .row_stride = t->w.cols * sizeof(float) };
    void                *codes = buffer(t, "codes", t->code_bytes, 0);
    void                *meta = buffer(t, "meta", t->meta_bytes, 0);
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .first_row = t->first_row,
                                 .dst = &dst,
                                 .codes = codes,
                                 .meta = meta,
                                 .scratch =
                                     buffer(t, "scratch", t->plan.scratch_bytes, t->scratch_fill) };
    memcpy(codes, t->codes, t->code_bytes);
    memcpy(meta, t->meta, t->meta_bytes);
    tsr_status st = tsr_conformance_quant_iface(c)->dequantize(self, &job, err);
    if (t->guard && st == TSR_OK &&
        (!tsr_conformance_guarded_intact(dst.data) || !tsr_conformance_guarded_intact(job.scratch)))
        tsr_conformance_rule_fail(c, "dequantize() wrote past the end of %s",
                                  tsr_conformance_guarded_intact(dst.data) ? "scratch" : "dst");
    tsr_conformance_guarded_free(codes);
    tsr_conformance_guarded_free(meta);
    tsr_conformance_guarded_free(job.scratch);
    t->dense = dst.data;
    t->decoded = st == TSR_OK;
    return st;
}

static void guard_vector(const float **v, const char *name, uint64_t n)
{
    float *g = *v ? tsr_conformance_guarded(name, n * sizeof *g, 0) : NULL;
    if (g)
        memcpy(g, *v, n * sizeof *g);
    *v = g;
}

/* Read-only inputs are between inaccessible pages too. */
static void guard_stats(struct tsr_quant_stats *s, uint64_t rows)
{
    guard_vector(&s->hessian, "the Hessian", s->cols * s->cols);
    guard_vector(&s->cross, "the cross term", s->cols * s->cols);
    guard_vector(&s->absmax, "absmax", s->cols);
    guard_vector(&s->mean, "mean", s->cols);
    guard_vector(&s->variance, "variance", s->cols);
    guard_vector(&s->mean_abs, "mean_abs", s->cols);
    guard_vector(&s->sensitivity, "the sensitivity", rows * s->cols);
    guard_vector(&s->inputs, "the recorded inputs", s->input_rows * s->cols);
}

static tsr_status all_units(struct tsr_conformance_case *c, void *self,
                            struct tsr_conformance_quant_try *t, const void *prepared,
                            struct tsr_err *err)
{
    uint64_t run = t->run_units ? t->run_units : t->units;
    for (uint64_t u = 0; u < t->units; u += run)
        TSR_TRY(run_units(c, self, t, prepared, u, u + run < t->units ? u + run : t->units, err));
    return t->no_decode ? TSR_OK : decode(c, self, t, err);
}

tsr_status tsr_conformance_quant_run(struct tsr_conformance_case *c, void *self,
                                     struct tsr_conformance_quant_try *t, struct tsr_err *err)
{
    const struct tsr_quantizer_v1 *q = tsr_conformance_quant_iface(c);
    void                          *prepared = NULL;
    TSR_TRY(tsr_quant_plan(c, self, &t->w, &t->plan, err));
    t->rows_per_unit = t->plan.rows_per_unit ? t->plan.rows_per_unit : t->w.rows;
    t->units = (t->w.rows + t->rows_per_unit - 1) / t->rows_per_unit;
    if (!tsr_mul(t->units, t->plan.code_bytes, &t->code_bytes) ||
        !tsr_mul(t->units, t->plan.meta_bytes, &t->meta_bytes) ||
        t->code_bytes > UINT64_C(1) << 32 || t->meta_bytes > UINT64_C(1) << 32 ||
        t->plan.scratch_bytes > UINT64_C(1) << 32)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "plan() asks for more memory than a check has");
    uint64_t need = t->plan.need;
    if (!t->refuse_extra)
        need |= need >> 32;
    tsr_conformance_quant_stats_make(c, &t->stats, need & UINT32_MAX, t->first_row + t->w.rows,
                                     t->w.cols);
    if (t->guard)
        guard_stats(&t->stats, t->first_row + t->w.rows);
    t->codes = tsr_conformance_rule_memory(c, t->code_bytes);
    t->meta = tsr_conformance_rule_memory(c, t->meta_bytes);
    if (t->timed)
        tsr_conformance_test_host_start(c->host);
    if (t->plan.need && q->prepare && !t->prepared)
        TSR_TRY(q->prepare(self, &t->stats, &prepared, err));
    tsr_status st = all_units(c, self, t, t->prepared ? t->prepared : prepared, err);
    if (prepared && q->unprepare)
        q->unprepare(self, prepared);
    return st;
}

void *tsr_conformance_quant_make(struct tsr_conformance_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = NULL;
    tsr_status        st = tsr_conformance_quant_create(c, &self, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_skip(c, "create() answers %s: %s", tsr_conformance_status_name(st),
                                  e.text);
    return self;
}

void *tsr_conformance_quant_must(struct tsr_conformance_case      *c,
                                 struct tsr_conformance_quant_try *t)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = tsr_conformance_quant_make(c);
    tsr_status        st = tsr_conformance_quant_run(c, self, t, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_skip(c, "a tensor of %llu x %llu is answered with %s: %s",
                                  (unsigned long long)t->w.rows, (unsigned long long)t->w.cols,
                                  tsr_conformance_status_name(st), e.text);
    return self;
}

static void same_bytes(struct tsr_conformance_case *c, const char *what, const unsigned char *a,
                       const unsigned char *b, uint64_t n, uint64_t per_unit, const char *when)
{
    for (uint64_t i = 0; i < n; i++)
        if (a[i] != b[i])
            tsr_conformance_rule_fail(
                c, "%s byte %llu of the %s of unit %llu is 0x%02x instead of 0x%02x", when,
                (unsigned long long)(i % per_unit), what, (unsigned long long)(i / per_unit), b[i],
                a[i]);
}

void tsr_conformance_quant_same(struct tsr_conformance_case            *c,
                                const struct tsr_conformance_quant_try *a,
                                const struct tsr_conformance_quant_try *b, const char *when)
{
    if (a->code_bytes != b->code_bytes || a->meta_bytes != b->meta_bytes)
        tsr_conformance_rule_fail(c, "%s plan() answers other sizes", when);
    same_bytes(c, "codes", a->codes, b->codes, a->code_bytes, a->plan.code_bytes, when);
    same_bytes(c, "meta", a->meta, b->meta, a->meta_bytes, a->plan.meta_bytes, when);
}

/* ---- an exercise ------------------------------------------------------------------------------ */

#define LONG_COLS 1024u
#define LONG_ROWS (UINT64_C(1) << 14)
/* More than the 250 ms that the cancel rule allows for an answer, with a margin because the clock includes
 * the host's own work. */
#define LONG_SECONDS 0.4

static double used_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* More and more rows, until a call would take long; then the same with the clock running. */
static tsr_status exercise_long(struct tsr_conformance_case *c, void *self, struct tsr_err *err)
{
    uint64_t          most = LONG_ROWS;
    uint64_t          rows = tsr_conformance_quant_rows(c, self, EXERCISE_ROWS, LONG_COLS);
    struct tsr_matrix w = tsr_conformance_quant_matrix(c, rows, LONG_COLS, c->seed);
    for (;;) {
        struct tsr_conformance_quant_try t = { .w = w, .no_decode = true };
        double                           start = used_s();
        TSR_TRY(tsr_conformance_quant_run(c, self, &t, err));
        double seconds = used_s() - start;
        if (seconds >= LONG_SECONDS || rows >= most)
            break;
        double   factor = seconds > 0.0 ? LONG_SECONDS / seconds * 1.2 : 8.0;
        uint64_t more = factor >= 8.0 ? rows * 8 : (uint64_t)((double)rows * fmax(factor, 2.0));
        rows = tsr_conformance_quant_rows(c, self, more < most ? more : most, LONG_COLS);
        uint64_t had = w.rows ? w.rows : 1;
        float   *data = tsr_conformance_rule_memory(c, rows * LONG_COLS * sizeof *data);
        for (uint64_t r = 0; r < rows; r++) /* the first rows again and again */
            memcpy(data + r * LONG_COLS, tsr_conformance_quant_row(&w, r % had),
                   LONG_COLS * sizeof *data);
        w.data = data;
        w.rows = rows;
    }
    struct tsr_conformance_quant_try t = { .w = w, .no_decode = true, .timed = true };
    return tsr_conformance_quant_run(c, self, &t, err);
}

tsr_status tsr_conformance_quant_exercise(struct tsr_conformance_case *c, bool long_run,
                                          struct tsr_err *err)
{
    void *self = NULL;
    TSR_TRY(tsr_conformance_quant_create(c, &self, err));
    tsr_status st;
    if (long_run) {
        st = exercise_long(c, self, err);
    } else {
        uint64_t rows = tsr_conformance_quant_rows(c, self, EXERCISE_ROWS, EXERCISE_COLS);
        struct tsr_conformance_quant_try t = {
            .w = tsr_conformance_quant_matrix(c, rows, EXERCISE_COLS, c->seed),
        };
        st = tsr_conformance_quant_run(c, self, &t, err);
        if (t.dense)
            tsr_conformance_guarded_free(t.dense);
        free(t.codes);
        free(t.meta);
        free(t.w.data);
    }
    tsr_conformance_quant_destroy(c, self);
    return st;
}
