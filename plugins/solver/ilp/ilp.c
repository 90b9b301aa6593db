/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ilp - the integer programs of LLM-PQ on GLPK, over every device order and micro-batch option.
 *
 * A case is an order and an option.  Cases are solved in rounds: each gets a share of the time, those
 * that were not finished a longer one in the next round, until all are or the time is over.  The best plan
 * of all is the limit for the next; what a case has proved stays.  The bound of the whole is the
 * least of all cases. */
#include "ilp.h"

#include "../common/host.h"
#include "../common/parts.h"
#include "../common/transfer.h"

#include <math.h>
#include <string.h>

#define MAX_CASES 20000u /* cases past this number keep the bound of their option */

struct ilp {
    const struct tsr_host *host;
    struct ilp_opts        opts;
};

struct work {
    struct ilp                       *self;
    const struct tsr_solver_instance *in;
    struct tsr_solver_solution       *out;
    struct plan_arena                 arena;
    struct plan_clock                 clock;
    struct ilp_search                 s;
    struct plan_orders                orders;
    uint64_t                          n_orders, n_cases;
    double                           *proved; /* [n_cases] */
    bool                             *done;
    double                           *option_bound; /* [options] */
    uint64_t                         *rank;         /* [options] by bound */
    double                            behind;       /* least bound of the cases not searched */
    const char                       *why;
};

/* ---- cases --------------------------------------------------------------------- */

static double limit(const struct work *w)
{
    return fmin(w->s.cost, w->in->cutoff) * (1 - w->in->gap / 2);
}

static void rank_options(struct work *w)
{
    for (uint64_t i = 0; i < w->in->n_options; i++) {
        w->option_bound[i] = plan_bound(w->in, w->in->options[i], &w->why);
        uint64_t at = i;
        for (; at > 0 && w->option_bound[w->rank[at - 1]] > w->option_bound[i]; at--)
            w->rank[at] = w->rank[at - 1];
        w->rank[at] = i;
    }
}

static void set_case(struct work *w, uint64_t at)
{
    uint64_t option = w->rank[at / w->n_orders];
    w->s.m.c = (struct ilp_case){ .in = w->in,
                                  .o = w->in->options[option],
                                  .order = w->orders.order,
                                  .devices = w->orders.n,
                                  .option = option,
                                  .form = (uint32_t)w->self->opts.form };
}

static tsr_status set_up(struct work *w, struct tsr_err *err)
{
    const struct tsr_solver_instance *in = w->in;
    uint64_t                          devices = plan_devices(in);
    if (!plan_orders_start(&w->orders, in, in->seed, &w->arena))
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for solver ilp",
                        (unsigned long long)w->arena.bytes);
    w->n_orders = plan_orders_count(&w->orders, MAX_CASES);
    w->n_cases = w->n_orders < MAX_CASES && in->n_options < MAX_CASES / w->n_orders
                     ? w->n_orders * in->n_options
                     : MAX_CASES;
    w->proved = plan_take(&w->arena, w->n_cases, sizeof *w->proved);
    w->done = plan_take(&w->arena, w->n_cases, sizeof *w->done);
    w->option_bound = plan_take(&w->arena, in->n_options, sizeof *w->option_bound);
    w->rank = plan_take(&w->arena, in->n_options, sizeof *w->rank);
    w->s.try = plan_new(&w->arena, in);
    w->s.best = plan_new(&w->arena, in);
    bool room = ilp_model_room(&w->s.m, in, devices, &w->arena);
    if (w->arena.failed)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for solver ilp",
                        (unsigned long long)w->arena.bytes);
    if (!room)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "ilp: %llu layers on %llu devices with %llu bits are too many for GLPK",
                        (unsigned long long)in->layers, (unsigned long long)devices,
                        (unsigned long long)in->bits);
    w->s.clock = &w->clock;
    w->s.opts = &w->self->opts;
    w->s.cost = INFINITY;
    rank_options(w);
    for (uint64_t i = 0; i < w->n_cases; i++)
        w->proved[i] = w->option_bound[w->rank[i / w->n_orders]];
    w->behind = INFINITY;
    for (uint64_t i = w->n_cases / w->n_orders; i < in->n_options; i++)
        w->behind = fmin(w->behind, w->option_bound[w->rank[i]]);
    if (w->n_orders >= MAX_CASES)
        w->behind = fmin(w->behind, w->option_bound[w->rank[0]]);
    return TSR_OK;
}

/* ---- export ----------------------------------------------------------------------- */

/* "plan.lp", and of several cases "plan-12.lp" for the twelfth. */
static bool case_path(char *path, size_t cap, const char *name, uint64_t at, uint64_t of)
{
    const char *dot = strrchr(name, '.'),
               *end = dot && !strchr(dot, '/') ? dot : name + strlen(name);
    int n = of == 1 ? snprintf(path, cap, "%s", name)
                    : snprintf(path, cap, "%.*s-%llu%s", (int)(end - name), name,
                               (unsigned long long)at + 1, end);
    return n > 0 && (size_t)n < cap;
}

static tsr_status export_all(struct work *w, struct tsr_err *err)
{
    char        path[4096];
    const char *name = w->self->opts.export;
    if (!*name)
        return TSR_OK;
    if (strlen(name) < 4 || strcmp(name + strlen(name) - 3, ".lp") != 0)
        return tsr_fail(err, TSR_E_CONFIG, "export: \"%.200s\" does not end with .lp", name);
    for (uint64_t i = 0; i < w->n_cases && !plan_over(&w->clock); i++) {
        if (i % w->n_orders == 0)
            plan_orders_first(&w->orders);
        else
            (void)plan_orders_next(&w->orders);
        set_case(w, i);
        if (!case_path(path, sizeof path, name, i, w->n_cases))
            return tsr_fail(err, TSR_E_CONFIG, "export: the path is too long");
        if (!ilp_write(&w->s, path))
            return tsr_fail(err, TSR_E_CONFIG, "export: %.200s cannot be written (%s)", path,
                            *w->s.said ? w->s.said : "no reason given");
    }
    return TSR_OK;
}

/* ---- rounds ------------------------------------------------------------------------- */

static bool open_case(const struct work *w, uint64_t at)
{
    return !w->done[at] && w->proved[at] < limit(w);
}

static uint64_t count_open(const struct work *w)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < w->n_cases; i++)
        n += open_case(w, i);
    return n;
}

static void one_case(struct work *w, uint64_t at, uint64_t share_us)
{
    set_case(w, at);
    w->s.bound = w->proved[at];
    w->s.end_us = share_us ? plan_add(plan_now_us(), share_us) : 0;
    ilp_solve(&w->s);
    w->proved[at] = fmax(w->proved[at], w->s.bound);
    w->done[at] = w->s.done;
    if (!w->s.done && !w->s.stopped && *w->s.said)
        w->self->host->log(w->self->host->ctx, TSR_LOG_INFO, w->s.said);
}

/* Runs each open case once; false if time is over, or if no case finished or was interrupted: more time
 * does not help then. */
static bool one_round(struct work *w, uint64_t share_us)
{
    bool helps = false;
    for (uint64_t i = 0; i < w->n_cases; i++) {
        if (i % w->n_orders == 0)
            plan_orders_first(&w->orders);
        else
            (void)plan_orders_next(&w->orders);
        if (!open_case(w, i))
            continue;
        if (plan_over(&w->clock))
            return false;
        one_case(w, i, share_us);
        helps |= w->s.done || w->s.stopped;
    }
    return helps;
}

static void rounds(struct work *w)
{
    uint64_t n;
    while ((n = count_open(w)) > 0 && !plan_over(&w->clock)) {
        uint64_t share = 0, now = plan_now_us();
        if (w->clock.end_us && n > 1) {
            share = w->clock.end_us > now ? (w->clock.end_us - now) / (2 * n) : 1;
            share = share < 100000 ? 100000 : share;
        }
        if (!one_round(w, share))
            return;
    }
}

static double bound(const struct work *w)
{
    double least = w->behind;
    for (uint64_t i = 0; i < w->n_cases; i++)
        least = fmin(least, w->proved[i]);
    return least;
}

/* A first plan from the heuristic; where it has no memory or no plan the search begins without. */
static void start(struct work *w)
{
    struct plan_arena     a = { .host = w->arena.host };
    struct transfer_found f;
    (void)transfer_search(w->in, &w->clock, 2, TRANSFER_WIDER, &a, w->s.best, &w->s.cost, &f);
    plan_release(&a);
    if (w->s.cost >= w->in->cutoff)
        w->s.cost = INFINITY;
}

static tsr_status solve(struct work *w, struct tsr_err *err)
{
    tsr_status st = set_up(w, err);
    if (st == TSR_OK)
        st = export_all(w, err);
    if (st != TSR_OK)
        return st;
    if (w->self->opts.start && !plan_parts_any(w->in)) /* of which transfer knows nothing */
        start(w);
    rounds(w);
    if (w->clock.cancelled)
        return tsr_fail(err, TSR_E_CANCELLED, "ilp: stopped by the user");
    double least = bound(w);
    if (w->s.cost < INFINITY)
        plan_copy(w->out, w->s.best, w->in);
    else if (least == INFINITY && w->why == NULL)
        w->why = "the integer program of every device order and option has no solution";
    plan_answer(w->in, w->out, w->s.cost, least, w->why);
    return TSR_OK;
}

/* ---- the plugin ------------------------------------------------------------------------ */

static tsr_status ilp_run(void *self, const struct tsr_solver_instance *in,
                          struct tsr_solver_solution *out, struct tsr_err *err)
{
    struct ilp *i = self;
    if (in->layers == 0 || in->n_kinds == 0 || in->n_options == 0 || in->bits == 0)
        return tsr_fail(err, TSR_E_INVAL,
                        "ilp: the instance has no layers, kinds, bits or options");
    if (i->opts.form == ILP_PAPER && (plan_links(in) > 1 || plan_has_link_omega(in)))
        return tsr_fail(
            err, TSR_E_UNSUPPORTED,
            "ilp: form paper has pairs of devices, not the layer after which a link is; "
            "expected one codec for links without omega, or form strong");
    struct work *w = i->host->alloc(i->host->ctx, sizeof *w, _Alignof(struct work));
    if (!w)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for solver ilp", sizeof *w);
    memset(w, 0, sizeof *w);
    w->self = i;
    w->in = in;
    w->out = out;
    w->arena.host = i->host;
    uint64_t limit_us = in->deadline_us ? in->deadline_us : (uint64_t)(i->opts.time * 1e6);
    plan_clock_start(&w->clock, i->host, limit_us);
    tsr_status st = solve(w, err);
    plan_release(&w->arena);
    i->host->release(i->host->ctx, w, sizeof *w);
    return st;
}

static tsr_status ilp_create(const struct tsr_host *host, const void *opts, void **self,
                             struct tsr_err *err)
{
    struct ilp *i = host->alloc(host->ctx, sizeof *i, _Alignof(struct ilp));
    if (!i)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for solver ilp", sizeof *i);
    i->host = host;
    memcpy(&i->opts, opts, sizeof i->opts);
    *self = i;
    return TSR_OK;
}

static void ilp_destroy(void *self)
{
    struct ilp *i = self;
    if (i)
        i->host->release(i->host->ctx, i, sizeof *i);
}

static const struct tsr_solver_v1 ilp_iface = {
    .struct_size = sizeof ilp_iface,
    .supports = TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |
                TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS |
                TSR_SOLVER_FIXED_ORDER | TSR_SOLVER_HOST | TSR_SOLVER_JOBS | TSR_SOLVER_KIND_OMEGA |
                TSR_SOLVER_LINK_CODECS | TSR_SOLVER_OPTION_ENDS | TSR_SOLVER_MAX_FIRST |
                TSR_SOLVER_ISOLATED,
    .create = ilp_create,
    .destroy = ilp_destroy,
    .solve = ilp_run,
};

static const struct tsr_choice forms[] = {
    { .name = "strong", .help = "cumulative placement, links as flows", .value = ILP_STRONG },
    { .name = "paper", .help = "constraints (5) to (16) of LLM-PQ, corrected", .value = ILP_PAPER },
};

static const struct tsr_option ilp_options[] = {
    TSR_OPTION_ENUM(struct ilp_opts, form, ILP_STRONG, forms, "The integer program."),
    TSR_OPTION_BOOL(struct ilp_opts, cuts, 1, "Gomory, rounding and cover cuts."),
    TSR_OPTION_BOOL(struct ilp_opts, start, 1, "Begin with the plan of the heuristic transfer."),
    TSR_OPTION_REAL(struct ilp_opts, time, 60, 0, 1e6, "s",
                    "Limit where the caller has none; 0: no limit."),
    TSR_OPTION_INT(struct ilp_opts, memory, 4096, 16, 1048576, "MiB",
                   "Memory that GLPK may take for one integer program."),
    TSR_OPTION_STRING(struct ilp_opts, export, "",
                      "File for the integer program as CPLEX-LP; with several device orders or "
                      "options NAME-1.lp, NAME-2.lp and so on, one for each."),
};

static const struct tsr_component ilp_component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER,
    .name = "ilp",
    .summary = "The integer programs of LLM-PQ, solved by GLPK.",
    .iface = &ilp_iface,
    .options = ilp_options,
    .n_options = sizeof ilp_options / sizeof ilp_options[0],
    .options_size = sizeof(struct ilp_opts),
};

static const struct tsr_component *const components[] = { &ilp_component };

TSR_PLUGIN_SYMBOL(ilp) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.ilp",
    .version = "0.1.0",   .license = "GPL-3.0-or-later",
    .build = __VERSION__, .components = components,
    .n_components = 1,
};
