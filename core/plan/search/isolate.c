#include "plan/search/isolate.h"

#include "base/mem.h"
#include "base/process.h"
#include "plugin/registry.h"

#include <string.h>
#include <unistd.h>

#define GRACE_US UINT64_C(5000000)

/* What parent and child share: this, then the arrays of the solution. */
struct answer {
    volatile uint32_t call; /* of calls[] */
    tsr_status        status;
    uint32_t          solved;
    double            objective, bound;
    uint64_t          option, stages;
    struct tsr_errbuf said;
};

struct isolated {
    const struct tsr_solver_instance *in;
    const struct tsr_plugin_found    *solver;
    const void                       *opts;
    struct answer                    *shared;
    struct tsr_solver_solution        out; /* its arrays follow *shared */
    uint64_t                          bytes;
    struct tsr_process                limits;
};

static const char *const calls[] = { "create", "solve", "destroy" };
enum { CREATE, SOLVE, DESTROY };

/* ---- the child -------------------------------------------------------------- */

/* The threads of the host's pool are not in this process. */
static tsr_status child_for(void *ctx, uint64_t n, uint64_t grain,
                            tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    (void)ctx;
    return body ? tsr_pool_for(NULL, n, grain, body, arg) : TSR_E_INVAL;
}

static void child(void *arg)
{
    struct isolated            *x = arg;
    const struct tsr_solver_v1 *t = x->solver->iface;
    struct answer              *a = x->shared;
    struct tsr_host             host = *x->solver->host;
    struct tsr_err             *err = &a->said.err;
    void                       *self = NULL;
    struct tsr_solver_solution  out = x->out;
    host.log = tsr_process_log;
    host.parallel_for = child_for;
    a->said = (struct tsr_errbuf)TSR_ERRBUF(a->said);
    a->status = t->create(&host, x->opts, &self, err);
    if (a->status == TSR_OK) {
        a->call = SOLVE;
        a->status = t->solve(self, x->in, &out, err);
        a->call = DESTROY;
        t->destroy(self);
    }
    a->solved = out.status;
    a->objective = out.objective;
    a->bound = out.bound;
    a->option = out.option;
    a->stages = out.stages;
}

/* ---- the parent -------------------------------------------------------------- */

static tsr_status judge(const struct isolated *x, const struct tsr_process_outcome *o,
                        struct tsr_err *err)
{
    const char   *name = x->solver->component->name;
    struct answer a;
    char          what[TSR_PROCESS_TEXT];
    memcpy(&a, x->shared, sizeof a);
    if (o->end == TSR_PROCESS_STOPPED)
        return tsr_fail(err, TSR_E_CANCELLED, "stopped by the user");
    if (o->end != TSR_PROCESS_DONE)
        return tsr_fail(err, TSR_E_PLUGIN, "its %s() %s%s; choose another solver than %s (%s)",
                        calls[a.call <= DESTROY ? a.call : SOLVE],
                        tsr_process_text(&x->limits, o, what),
                        o->end == TSR_PROCESS_EXITED ? " before there was an answer" : "", name,
                        x->solver->info->path);
    a.said.text[sizeof a.said.text - 1] = '\0';
    if (a.status == TSR_OK)
        return TSR_OK;
    if (a.status > TSR_OK || a.status < TSR_E_CANCELLED)
        return tsr_fail(err, TSR_E_PLUGIN, "it answered %d, which is not a status%s%s",
                        (int)a.status, *a.said.text ? ", and said: " : "", a.said.text);
    return tsr_err_receive(err, a.status, &a.said);
}

static void take_answer(const struct isolated *x, struct tsr_solver_solution *s)
{
    const struct answer *a = x->shared;
    s->status = a->solved;
    s->objective = a->objective;
    s->bound = a->bound;
    s->option = a->option;
    s->stages = a->stages;
    memcpy(s->stage_first, x->out.stage_first, s->max_stages * sizeof *s->stage_first);
    memcpy(s->stage_count, x->out.stage_count, s->max_stages * sizeof *s->stage_count);
    memcpy(s->stage_kind, x->out.stage_kind, s->max_stages * sizeof *s->stage_kind);
    if (s->stage_link)
        memcpy(s->stage_link, x->out.stage_link, s->max_stages * sizeof *s->stage_link);
    memcpy(s->layer_bits, x->out.layer_bits, x->in->layers * sizeof *s->layer_bits);
    memcpy(s->reason, x->out.reason, s->reason_cap);
}

/* The same problem with room for the answer in shared memory. */
static tsr_status share(struct isolated *x, const struct tsr_solver_solution *s,
                        struct tsr_err *err)
{
    uint64_t stages, layers;
    if (!tsr_mul(s->max_stages, 24, &stages) || !tsr_mul(x->in->layers, 4, &layers) ||
        !tsr_add(sizeof(struct answer) + 64, stages, &x->bytes) ||
        !tsr_add(x->bytes, layers, &x->bytes) || !tsr_add(x->bytes, s->reason_cap, &x->bytes))
        return tsr_fail_nomem(err, UINT64_MAX, "an answer");
    void *p = tsr_process_memory(x->bytes);
    if (!p)
        return tsr_fail_nomem(err, x->bytes, "an answer");
    x->shared = p;
    x->out = *s;
    x->out.stage_first =
        (uint64_t *)(void *)((char *)p + ((sizeof(struct answer) + 7) & ~(size_t)7));
    x->out.stage_count = x->out.stage_first + s->max_stages;
    x->out.stage_kind = (uint32_t *)(void *)(x->out.stage_count + s->max_stages);
    x->out.stage_link = s->stage_link ? x->out.stage_kind + s->max_stages : NULL;
    x->out.layer_bits = x->out.stage_kind + 2 * s->max_stages;
    x->out.reason = (char *)(void *)(x->out.layer_bits + x->in->layers);
    return TSR_OK;
}

static void pass_log(void *ctx, int32_t level, const char *msg)
{
    const struct tsr_host *host = ctx;
    host->log(host->ctx, level, msg);
}

tsr_status tsr_plan_isolated(const struct tsr_solver_instance *in,
                             const struct tsr_plugin_found *solver, const void *opts,
                             const struct tsr_plugin_isolation *limits,
                             struct tsr_solver_solution *s, struct tsr_err *err)
{
    struct tsr_solver_instance mine = *in;
    struct isolated            x = { .in = &mine, .solver = solver, .opts = opts };
    struct tsr_process_outcome o;
    uint64_t                   grace = limits && limits->grace_us ? limits->grace_us : GRACE_US;
    long                       pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    x.limits.memory_bytes = limits ? limits->memory_bytes : 0;
    if (x.limits.memory_bytes == 0)
        x.limits.memory_bytes =
            pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : UINT64_MAX;
    if (mine.deadline_us == 0)
        mine.deadline_us = limits && limits->time_us ? limits->time_us : TSR_ISOLATED_DEADLINE_US;
    if (!tsr_add(mine.deadline_us, grace, &x.limits.time_us))
        x.limits.time_us = UINT64_MAX;
    x.limits.stopped = tsr_plugin_cancelled;
    x.limits.log = pass_log;
    x.limits.log_ctx = (void *)(uintptr_t)solver->host;
    TSR_TRY(share(&x, s, err));
    tsr_status st = tsr_process_run(&x.limits, child, &x, &o, err);
    if (st == TSR_OK)
        st = judge(&x, &o, err);
    if (st == TSR_OK)
        take_answer(&x, s);
    tsr_process_release(x.shared, x.bytes);
    return st;
}
