/* Instances of quantizers that run in child processes, and queries to them. */
#include "quant/isolate_internal.h"

#include "base/mem.h"
#include "tessera/quantizer_tune.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void pass_log(void *ctx, int32_t level, const char *msg)
{
    const struct tsr_host *host = ctx;
    host->log(host->ctx, level, msg);
}

/* ---- plan ----------------------------------------------------------------------- */

struct plan_answer {
    struct isolated_head  head;
    struct tsr_quant_plan plan;
    uint32_t              named;
    char                  format[256];
};

static tsr_status ask_plan(struct tsr_quant_isolated *x, const struct tsr_quantizer *q,
                           struct isolated_head *head, void *arg, struct tsr_err *err)
{
    struct plan_answer      *a = (struct plan_answer *)(void *)head;
    const struct tsr_matrix *w = arg;
    (void)x;
    isolated_at(head, ISOLATED_PLAN, w->name);
    TSR_TRY(q->iface->plan(q->self, w, &a->plan, err));
    a->named = a->plan.format.id != NULL;
    if (a->named) /* longer text is rejected by its length */
        (void)snprintf(a->format, sizeof a->format, "%s", a->plan.format.id);
    return TSR_OK;
}

static tsr_status keep_plan(struct tsr_quant_isolated *x, const struct tsr_matrix *w,
                            const struct plan_answer *a, struct plan_memo **out,
                            struct tsr_err *err)
{
    struct plan_memo **v = tsr_renew(x->plans, x->n_plans + 1, sizeof *v);
    struct plan_memo  *m = tsr_new(1, sizeof *m);
    if (v)
        x->plans = v;
    if (!v || !m) {
        free(m);
        return tsr_fail_nomem(err, sizeof *m, "a quantizer's plan");
    }
    *m = (struct plan_memo){ .rows = w->rows,
                             .cols = w->cols,
                             .row_stride = w->row_stride,
                             .dtype = w->dtype,
                             .plan = a->plan };
    memcpy(m->format, a->format, sizeof m->format - 1);
    m->plan.struct_size = sizeof m->plan;
    m->plan.format.struct_size = sizeof m->plan.format;
    m->plan.format.id = a->named ? m->format : NULL;
    x->plans[x->n_plans++] = m;
    *out = m;
    return TSR_OK;
}

static struct plan_memo *find_plan(const struct tsr_quant_isolated *x, const struct tsr_matrix *w)
{
    for (uint64_t i = 0; i < x->n_plans; i++) {
        struct plan_memo *m = x->plans[i];
        if (m->rows == w->rows && m->cols == w->cols && m->dtype == w->dtype &&
            m->row_stride == w->row_stride)
            return m;
    }
    return NULL;
}

/* The lock is held. */
static tsr_status make_plan(struct tsr_quant_isolated *x, const struct tsr_matrix *w,
                            const struct tsr_quant_plan *plan, struct plan_memo **m,
                            struct tsr_err *err)
{
    bool                mine;
    struct plan_answer *a = tsr_process_memory(sizeof *a);
    if (!a)
        return tsr_fail_nomem(err, sizeof *a, "a quantizer's plan");
    a->plan = *plan;
    tsr_status st = isolated_run(x, ask_plan, &a->head, (void *)(uintptr_t)w, false, &mine, err);
    if (st == TSR_OK)
        st = keep_plan(x, w, a, m, err);
    tsr_process_release(a, sizeof *a);
    return st;
}

static tsr_status plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                       struct tsr_err *err)
{
    struct tsr_quant_isolated *x = (struct tsr_quant_isolated *)(uintptr_t)self;
    tsr_status                 st = TSR_OK;
    pthread_mutex_lock(&x->lock);
    struct plan_memo *m = find_plan(x, w);
    if (!m)
        st = make_plan(x, w, p, &m, err);
    if (st == TSR_OK)
        *p = m->plan;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* ---- the rest of the table ------------------------------------------------------------ */

static tsr_status no_quantize(const void *self, const struct tsr_quant_job *job,
                              struct tsr_err *err)
{
    (void)self;
    (void)job;
    return tsr_fail(err, TSR_E_BUG, "an isolated quantizer was called in the host");
}

static uint64_t columns_alone(const void *self)
{
    return ((const struct tsr_quant_isolated *)self)->columns_alone;
}

static double max_error_steps(const void *self)
{
    return ((const struct tsr_quant_isolated *)self)->max_error_steps;
}

static const void *extension(const void *self, const char *id)
{
    const struct tsr_quant_isolated *x = self;
    return x->has_block && strcmp(id, TSR_QUANTIZER_BLOCK) == 0 ? &x->block : NULL;
}

static void destroy(void *self)
{
    struct tsr_quant_isolated *x = self;
    if (!x)
        return;
    for (uint64_t i = 0; i < x->n_plans; i++)
        free(x->plans[i]);
    free(x->plans);
    free(x->clips);
    (void)pthread_mutex_destroy(&x->lock);
    free(x);
}

/* ---- life ----------------------------------------------------------------------- */

struct facts {
    struct isolated_head head;
    uint64_t             block, block_need, tune, columns_alone;
    double               max_error_steps;
};

static tsr_status ask_facts(struct tsr_quant_isolated *x, const struct tsr_quantizer *q,
                            struct isolated_head *head, void *arg, struct tsr_err *err)
{
    struct facts *f = (struct facts *)(void *)head;
    (void)x;
    (void)arg;
    (void)err;
    isolated_at(head, ISOLATED_QUESTION, NULL);
    const struct tsr_quantizer_block_v1 *b =
        q->iface->extension ? q->iface->extension(q->self, TSR_QUANTIZER_BLOCK) : NULL;
    f->block = b && TSR_HAS(struct tsr_quantizer_block_v1, b, search);
    if (f->block)
        f->block_need = b->block_need(q->self);
    f->tune = q->iface->extension && q->iface->extension(q->self, TSR_QUANTIZER_TUNE);
    if (q->iface->columns_alone)
        f->columns_alone = q->iface->columns_alone(q->self);
    if (q->iface->max_error_steps)
        f->max_error_steps = q->iface->max_error_steps(q->self);
    return TSR_OK;
}

/* The first instance: logs its remarks about its options, then reads its properties. */
static tsr_status meet(struct tsr_quant_isolated *x, struct tsr_err *err)
{
    bool          mine;
    struct facts *f = tsr_process_memory(sizeof *f);
    if (!f)
        return tsr_fail_nomem(err, sizeof *f, "a quantizer");
    tsr_status st = isolated_run(x, ask_facts, &f->head, NULL, false, &mine, err);
    x->met = true;
    x->has_block = f->block != 0;
    x->block_need = f->block_need;
    x->columns_alone = f->columns_alone;
    x->max_error_steps = f->max_error_steps;
    if (st == TSR_OK && f->tune) /* its trials would run in the child */
        st = tsr_fail(err, TSR_E_UNSUPPORTED,
                      "quantizer '%s' tunes whole layers, which an isolated plugin cannot do; use "
                      "plugins without isolate",
                      x->found.component->name);
    tsr_process_release(f, sizeof *f);
    return st;
}

static tsr_status open_isolated(struct tsr_quant_isolated *x, struct tsr_err *err)
{
    const struct tsr_quantizer_v1     *t = x->found.iface;
    const struct tsr_plugin_isolation *limits = x->found.isolate;
    long     pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t half = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : UINT64_MAX;
    (void)pthread_mutex_init(&x->lock, NULL);
    x->limits = (struct tsr_process){
        .time_us = limits->time_us ? limits->time_us : TSR_PLUGIN_ISOLATED_TIME_US,
        .memory_bytes = limits->memory_bytes ? limits->memory_bytes : half,
        .stopped = tsr_plugin_cancelled,
        .log = pass_log,
        .log_ctx = (void *)(uintptr_t)x->host,
    };
    x->table = (struct tsr_quantizer_v1){ .struct_size = sizeof x->table,
                                          .src_dtypes = t->src_dtypes,
                                          .promises = t->promises,
                                          .destroy = destroy,
                                          .plan = plan,
                                          .quantize = no_quantize,
                                          .dequantize = no_quantize,
                                          .extension = extension,
                                          .max_error_steps = max_error_steps,
                                          .columns_alone = columns_alone };
    TSR_TRY(meet(x, err));
    isolated_block(x);
    return TSR_OK;
}

tsr_status tsr_quantizer_open(struct tsr_quantizer *q, struct tsr_registry *r,
                              const struct tsr_plugin_found *found, const struct tsr_host *host,
                              const void *options, struct tsr_err *err)
{
    *q = (struct tsr_quantizer){
        .iface = found->iface, .name = found->component->name, .found = found, .options = options
    };
    if (!found->isolate) {
        tsr_status st = q->iface->create(host, options, &q->self, err);
        if (st != TSR_OK)
            q->iface = NULL;
        return st;
    }
    q->iface = NULL;
    struct tsr_quant_isolated *x = tsr_new(1, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, sizeof *x, "a quantizer");
    *x = (struct tsr_quant_isolated){
        .found = *found, .registry = r, .host = host, .options = options, .why = TSR_ERRBUF(x->why)
    };
    tsr_status st = open_isolated(x, err);
    if (st != TSR_OK) {
        destroy(x);
        return st;
    }
    q->iface = &x->table;
    q->self = x;
    q->isolated = x;
    return TSR_OK;
}

void tsr_quantizer_close(struct tsr_quantizer *q)
{
    if (q->iface)
        q->iface->destroy(q->self);
    *q = (struct tsr_quantizer){ 0 };
}
