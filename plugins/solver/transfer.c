/* transfer - the heuristics of LLM-PQ: `adabits`, the best quality that the memory allows, and
 * `transfer`, Algorithm 2, which starts from it and moves bits and layers away from the slowest stage. */
#include "common/transfer.h"

#include <math.h>
#include <string.h>

struct transfer_opts {
    int64_t rules, starts;
    double  time;
};

struct solver {
    const struct tsr_host *host;
    struct transfer_opts   opts;
};

static tsr_status search(struct solver *s, const char *name, const struct tsr_solver_instance *in,
                         struct tsr_solver_solution *out, struct plan_arena *a, struct tsr_err *err)
{
    struct plan_clock     clock;
    struct transfer_found f = { false, false, false };
    double                cost = INFINITY;
    const char           *why = NULL;
    uint64_t limit_us = in->deadline_us ? in->deadline_us : (uint64_t)(s->opts.time * 1e6);
    plan_clock_start(&clock, s->host, limit_us);
    double bound = plan_bound_all(in, &why);
    if (bound < INFINITY && !transfer_search(in, &clock, (uint64_t)s->opts.starts,
                                             (enum transfer_rules)s->opts.rules, a, out, &cost, &f))
        return f.too_many
                   ? tsr_fail(err, TSR_E_UNSUPPORTED,
                              "%s: %llu layers on %llu devices of %llu kinds are too many", name,
                              (unsigned long long)in->layers, (unsigned long long)plan_devices(in),
                              (unsigned long long)in->n_kinds)
                   : tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for solver %s",
                              (unsigned long long)a->bytes, name);
    if (clock.cancelled)
        return tsr_fail(err, TSR_E_CANCELLED, "%s: stopped by the user", name);
    if (bound < INFINITY && (f.empty || f.omega)) {
        bound = INFINITY;
        why = f.empty ? "no contiguous partition fits the devices in any bits"
                      : "max_omega is below the smallest sum of omega that the memory allows";
    }
    plan_answer(in, out, cost, bound, bound < INFINITY ? NULL : why);
    return TSR_OK;
}

static tsr_status solve(void *self, const char *name, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err)
{
    struct solver    *s = self;
    struct plan_arena a = { .host = s->host };
    if (in->layers == 0 || in->n_kinds == 0 || in->n_options == 0 || in->bits == 0)
        return tsr_fail(err, TSR_E_INVAL, "%s: the instance has no layers, kinds, bits or options",
                        name);
    tsr_status st = search(s, name, in, out, &a, err);
    plan_release(&a);
    return st;
}

static tsr_status adabits_solve(void *self, const struct tsr_solver_instance *in,
                                struct tsr_solver_solution *out, struct tsr_err *err)
{
    return solve(self, "adabits", in, out, err);
}

static tsr_status transfer_solve(void *self, const struct tsr_solver_instance *in,
                                 struct tsr_solver_solution *out, struct tsr_err *err)
{
    return solve(self, "transfer", in, out, err);
}

/* ---- create, destroy, tables ------------------------------------------------------- */

static tsr_status create(const struct tsr_host *host, const struct transfer_opts *opts, void **self,
                         struct tsr_err *err)
{
    struct solver *s = host->alloc(host->ctx, sizeof *s, _Alignof(struct solver));
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for a solver", sizeof *s);
    *s = (struct solver){ host, *opts };
    *self = s;
    return TSR_OK;
}

static tsr_status adabits_create(const struct tsr_host *host, const void *opts, void **self,
                                 struct tsr_err *err)
{
    struct transfer_opts o = { TRANSFER_NONE, 0, 0 };
    memcpy(&o.time, opts, sizeof o.time);
    return create(host, &o, self, err);
}

static tsr_status transfer_create(const struct tsr_host *host, const void *opts, void **self,
                                  struct tsr_err *err)
{
    return create(host, opts, self, err);
}

static void destroy(void *self)
{
    struct solver *s = self;
    if (s)
        s->host->release(s->host->ctx, s, sizeof *s);
}

#define ALL_PARTS                                                                                  \
    (TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |           \
     TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS | TSR_SOLVER_FIXED_ORDER |      \
     TSR_SOLVER_HOST | TSR_SOLVER_JOBS)

static const struct tsr_solver_v1 adabits_table = {
    .struct_size = sizeof adabits_table,
    .supports = ALL_PARTS,
    .create = adabits_create,
    .destroy = destroy,
    .solve = adabits_solve,
};

static const struct tsr_solver_v1 transfer_table = {
    .struct_size = sizeof transfer_table,
    .supports = ALL_PARTS,
    .create = transfer_create,
    .destroy = destroy,
    .solve = transfer_solve,
};

struct adabits_opts {
    double time;
};

static const struct tsr_option adabits_options[] = {
    TSR_OPTION_REAL(struct adabits_opts, time, 60, 0, 1e6, "s",
                    "Limit where the caller has none; 0: no limit."),
};

static const struct tsr_choice rules[] = {
    { .name = "paper", .help = "those of LLM-PQ", .value = TRANSFER_PAPER },
    { .name = "wider",
      .help = "a stage may also change the bits of one of its layers",
      .value = TRANSFER_WIDER },
};

static const struct tsr_option transfer_options[] = {
    TSR_OPTION_ENUM(struct transfer_opts, rules, TRANSFER_PAPER, rules, "What may be exchanged."),
    TSR_OPTION_INT(
        struct transfer_opts, starts, 8, 0, 4096, "plans",
        "Device orders that are started from in each option, in addition to the best by quality."),
    TSR_OPTION_REAL(struct transfer_opts, time, 60, 0, 1e6, "s",
                    "Limit where the caller has none; 0: no limit."),
};

static const struct tsr_component adabits = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER,
    .name = "adabits",
    .summary = "The least sum of omega that the memory allows, whatever the time.",
    .iface = &adabits_table,
    .options = adabits_options,
    .n_options = sizeof adabits_options / sizeof adabits_options[0],
    .options_size = sizeof(struct adabits_opts),
};

static const struct tsr_component transfer = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER,
    .name = "transfer",
    .summary =
        "Bitwidth transfer: from the best quality, bits and layers move off the slowest stage.",
    .iface = &transfer_table,
    .options = transfer_options,
    .n_options = sizeof transfer_options / sizeof transfer_options[0],
    .options_size = sizeof(struct transfer_opts),
};

static const struct tsr_component *const components[] = { &adabits, &transfer };

TSR_PLUGIN_SYMBOL(transfer) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.transfer", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,     .n_components = 2,
};
