/* tessera.instance/1: what is accepted is solved by the heuristics and baselines, and what they say
 * holds by the host's own numbers. */
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct tsr_plugin tsr_builtin_het, tsr_builtin_transfer;

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

/* ---- a host ------------------------------------------------------------------- */

static uint64_t held;

static void say(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    must(msg && *msg);
}

static void *take(void *ctx, uint64_t bytes, uint64_t align)
{
    void *p = NULL;
    (void)ctx;
    if (bytes > UINT64_C(1) << 28 ||
        posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1) != 0)
        return NULL;
    held += bytes;
    return p;
}

static void give(void *ctx, void *p, uint64_t bytes)
{
    (void)ctx;
    held -= p ? bytes : 0;
    free(p);
}

static int32_t never(void *ctx)
{
    (void)ctx;
    return 0;
}

static const struct tsr_host host = { .struct_size = sizeof host,
                                      .abi_major = TSR_ABI_MAJOR,
                                      .abi_minor = TSR_ABI_MINOR,
                                      .log = say,
                                      .alloc = take,
                                      .release = give,
                                      .cancelled = never };

/* ---- one solver ------------------------------------------------------------------ */

static void judge(const struct tsr_instance *inst, const struct tsr_solver_solution *s)
{
    double v = NAN;
    must(s->status <= TSR_SOLVED_UNKNOWN && !isnan(s->bound) && s->bound < INFINITY);
    if (s->status == TSR_SOLVED_INFEASIBLE)
        must(s->reason[0] != '\0');
    if (s->status > TSR_SOLVED_FEASIBLE)
        return;
    must(tsr_plan_evaluate(&inst->in, s, &v, NULL) == TSR_OK);
    double band = 1e-6 * fabs(v) + 1e-6; /* docs/formats/instance.md, validator item 6 */
    /* numbers near the largest double add up to infinity, which is no claim */
    must(!isfinite(v) || fabs(v - s->objective) <= band);
    must(!isfinite(v) || s->bound <= v + band);
}

static void solve(const struct tsr_instance *inst, const struct tsr_component *c)
{
    const struct tsr_solver_v1 *t = c->iface;
    struct tsr_solver_solution *s = NULL;
    void                       *self = NULL;
    int64_t                     options[8] = { 0 };
    must(c->options_size <= sizeof options);
    for (uint64_t i = 0; i < c->n_options; i++) {
        char *at = (char *)options + c->options[i].offset;
        if (c->options[i].type == TSR_OPT_REAL)
            *(double *)(void *)at = c->options[i].def.r;
        else
            *(int64_t *)(void *)at = c->options[i].def.i;
    }
    if (tsr_plan_solution_create(&s, inst, NULL) != TSR_OK)
        return;
    if (t->create(&host, options, &self, NULL) == TSR_OK) {
        tsr_status st = t->solve(self, &inst->in, s, NULL);
        t->destroy(self);
        must(st == TSR_OK || st == TSR_E_NOMEM || st == TSR_E_UNSUPPORTED);
        if (st == TSR_OK)
            judge(inst, s);
    }
    must(held == 0);
    free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_instance *inst = NULL;
    tsr_status           st = tsr_instance_parse(&inst, "input", (const char *)data, size, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (st != TSR_OK)
        return 0;
    /* what a solver does in a moment; deadlines would make a finding a matter of speed */
    if (inst->in.layers <= 12 && inst->devices <= 5 && inst->in.bits <= 6 &&
        inst->in.n_options <= 3 && inst->in.n_kinds <= 5) {
        solve(inst, tsr_builtin_het.components[0]);
        solve(inst, tsr_builtin_transfer.components[0]);
        solve(inst, tsr_builtin_transfer.components[1]);
    }
    tsr_instance_destroy(inst);
    return 0;
}
