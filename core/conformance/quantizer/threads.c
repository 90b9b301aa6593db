/* Two instances on several threads.  The bytes of a quantizer that does not promise to be deterministic may be others each
 * time; what they decode to is as good as that of a call alone. */
#include "conformance/helpers.h"
#include "conformance/quantizer/quantizer.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define ROWS     64u
#define COLS     160u
#define WORKERS  7u
#define MANIFOLD 8u /* calls at once, also for quantizers of whole tensors */

/* A tensor that some calls share: each packs one of its units. */
struct slot {
    void                            *self;
    const void                      *prepared;
    struct tsr_conformance_quant_try t;
};

struct crowd {
    struct tsr_conformance_case            *c;
    const struct tsr_conformance_quant_try *alone;
    struct slot                            *slots;
    uint64_t                                n;
    _Atomic int32_t                         failed; /* the first status that is none of OK */
    _Atomic uint64_t                        other_plans;
};

static struct tsr_matrix rows_of(const struct tsr_conformance_quant_try *t, float *data,
                                 uint64_t unit)
{
    const uint64_t    first = unit * t->rows_per_unit, last = first + t->rows_per_unit;
    struct tsr_matrix m = t->w;
    m.data = data + first * t->w.cols;
    m.rows = (last < t->w.rows ? last : t->w.rows) - first;
    m.row_stride = t->w.cols * sizeof(float);
    return m;
}

/* One unit: packs src in place of what is there, or decodes it into dst. */
static tsr_status call(const struct crowd *w, const struct slot *s, uint64_t unit,
                       const struct tsr_matrix *src, struct tsr_matrix *dst)
{
    const struct tsr_quantizer_v1          *q = tsr_conformance_quant_iface(w->c);
    const struct tsr_conformance_quant_try *t = &s->t;
    unsigned char                          *codes = t->codes + unit * t->plan.code_bytes;
    unsigned char                          *meta = t->meta + unit * t->plan.meta_bytes;
    struct tsr_quant_job                    job = {
                           .struct_size = sizeof job,
                           .first_row = unit * t->rows_per_unit,
                           .src = src,
                           .dst = dst,
                           .codes = tsr_conformance_roomy("codes", t->plan.code_bytes, 0xA5),
                           .meta = tsr_conformance_roomy("meta", t->plan.meta_bytes, 0xA5),
                           .scratch = tsr_conformance_roomy("scratch", t->plan.scratch_bytes, 0xA5),
                           .stats = src && t->plan.need ? &t->stats : NULL,
                           .prepared = src ? s->prepared : NULL,
    };
    if (dst) {
        memcpy(job.codes, codes, t->plan.code_bytes);
        memcpy(job.meta, meta, t->plan.meta_bytes);
    }
    tsr_status st = src ? q->quantize(s->self, &job, NULL) : q->dequantize(s->self, &job, NULL);
    if (src) {
        memcpy(codes, job.codes, t->plan.code_bytes);
        memcpy(meta, job.meta, t->plan.meta_bytes);
    }
    tsr_conformance_guarded_free(job.codes);
    tsr_conformance_guarded_free(job.meta);
    tsr_conformance_guarded_free(job.scratch);
    return st;
}

static void note(struct crowd *w, tsr_status st)
{
    int32_t none = TSR_OK;
    if (st != TSR_OK)
        (void)atomic_compare_exchange_strong(&w->failed, &none, st);
}

/* Call i is of slot i % n, so that all instances work at once. */
static tsr_status pack_body(void *arg, uint64_t begin, uint64_t end)
{
    struct crowd *w = arg;
    for (uint64_t i = begin; i < end; i++) {
        const struct slot      *s = &w->slots[i % w->n];
        const struct tsr_matrix src = rows_of(&s->t, s->t.w.data, i / w->n);
        struct tsr_quant_plan   p;
        if (tsr_quant_plan(w->c, s->self, &s->t.w, &p, NULL) != TSR_OK ||
            p.code_bytes != s->t.plan.code_bytes || p.meta_bytes != s->t.plan.meta_bytes ||
            p.scratch_bytes != s->t.plan.scratch_bytes)
            w->other_plans++;
        note(w, call(w, s, i / w->n, &src, NULL));
    }
    return TSR_OK;
}

static tsr_status decode_body(void *arg, uint64_t begin, uint64_t end)
{
    struct crowd *w = arg;
    for (uint64_t i = begin; i < end; i++) {
        const struct slot *s = &w->slots[i % w->n];
        struct tsr_matrix  dst = rows_of(&s->t, s->t.dense, i / w->n);
        note(w, call(w, s, i / w->n, NULL, &dst));
    }
    return TSR_OK;
}

static void run(struct crowd *w, tsr_status (*body)(void *, uint64_t, uint64_t), const char *name)
{
    const struct tsr_host *host = &w->c->host->table;
    (void)host->parallel_for(host->ctx, w->n * w->alone->units, 1, body, w);
    if (w->failed != TSR_OK)
        tsr_conformance_rule_fail(w->c, "%s answers %s when %u threads call it", name,
                                  tsr_conformance_status_name(w->failed), WORKERS);
    if (w->other_plans)
        tsr_conformance_rule_fail(w->c, "plan() gives other sizes when %u threads call it",
                                  WORKERS);
}

/* An instance for every other slot, as many tensors at once as make MANIFOLD calls. */
static void gather(struct crowd *w, void *self)
{
    const struct tsr_quantizer_v1          *q = tsr_conformance_quant_iface(w->c);
    const struct tsr_conformance_quant_try *a = w->alone;
    void *const                             both[] = { self, tsr_conformance_quant_make(w->c) };
    void                                   *prepared[] = { NULL, NULL };
    for (int k = 0; k < 2 && a->plan.need && q->prepare; k++)
        if (q->prepare(both[k], &a->stats, &prepared[k], NULL) != TSR_OK)
            tsr_conformance_rule_skip(w->c, "prepare() fails, which the rule works says");
    w->n = a->units < MANIFOLD / 2 ? MANIFOLD : 2;
    w->slots = tsr_conformance_rule_memory(w->c, w->n * sizeof *w->slots);
    for (uint64_t i = 0; i < w->n; i++) {
        struct slot *s = &w->slots[i];
        *s = (struct slot){ .self = both[i % 2], .prepared = prepared[i % 2], .t = *a };
        s->t.codes = tsr_conformance_rule_memory(w->c, a->code_bytes);
        s->t.meta = tsr_conformance_rule_memory(w->c, a->meta_bytes);
        s->t.dense = tsr_conformance_rule_room(a->w.rows * a->w.cols * sizeof(float));
    }
}

/* Of one tensor: decoded alone to the same numbers, as near to the weights as zeros are, and as a call alone comes. */
static void check_slot(const struct crowd *w, const struct slot *s)
{
    const struct tsr_conformance_quant_try *t = &s->t;
    const struct tsr_quantizer_v1          *q = tsr_conformance_quant_iface(w->c);
    const uint64_t                          n = t->w.rows * t->w.cols;
    float                                  *again = tsr_conformance_rule_room(n * sizeof *again);
    for (uint64_t u = 0; u < t->units; u++) {
        struct tsr_matrix dst = rows_of(t, again, u);
        if (call(w, s, u, NULL, &dst) != TSR_OK)
            tsr_conformance_rule_fail(w->c, "dequantize() refuses what several threads packed");
    }
    const uint64_t at = tsr_conformance_rule_differ(again, t->dense, n * sizeof *again) / 4;
    if (at < n)
        tsr_conformance_rule_fail(
            w->c, "w[%llu][%llu] decodes to %.9g when %u threads decode, and alone to %.9g",
            (unsigned long long)(at / t->w.cols), (unsigned long long)(at % t->w.cols),
            (double)t->dense[at], WORKERS, (double)again[at]);
    const double loss = tsr_conformance_quant_loss(t);
    if (!(loss < 1.0))
        tsr_conformance_rule_fail(
            w->c, "packed by %u threads the decoded weights are %g times as far off as zeros",
            WORKERS, sqrt(loss));
    const double most = q->max_error_steps ? q->max_error_steps(s->self) : 0.0;
    if (!(most > 0.0))
        return;
    const double usual = tsr_conformance_quant_worst_steps(w->c, w->alone);
    const double worst = tsr_conformance_quant_worst_steps(w->c, t);
    if (!(worst <= fmax(most, usual)))
        tsr_conformance_rule_fail(
            w->c, "packed by %u threads a weight decodes to %.4f steps off; it promises %g",
            WORKERS, worst, most);
}

void tsr_conformance_quant_threads(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try alone = { 0 };
    struct crowd                     w = { .c = c, .alone = &alone };
    void                            *self = tsr_conformance_quant_make(c);
    const uint64_t                   rows = tsr_conformance_quant_rows(c, self, ROWS, COLS);
    tsr_conformance_quant_destroy(c, self);
    alone.w = tsr_conformance_quant_matrix(c, rows, COLS, c->seed);
    self = tsr_conformance_quant_must(c, &alone);
    if (!(tsr_conformance_quant_loss(&alone) < 1.0))
        tsr_conformance_rule_skip(c, "alone it is as far off as zeros; the rule fidelity says so");
    gather(&w, self);
    c->host->workers = WORKERS;
    run(&w, pack_body, "quantize()");
    run(&w, decode_body, "dequantize()");
    for (uint64_t i = 0; i < w.n; i++)
        check_slot(&w, &w.slots[i]);
}
