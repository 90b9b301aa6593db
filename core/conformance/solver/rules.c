/* Solvers: the kind, what a solver does for the rules of every kind, and the table of rules. */
#include "conformance/solver/solver.h"

#include "base/mem.h"

#include <stdlib.h>

static const struct tsr_solver_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    return table(c)->create(c->host->give, c->options, self, err);
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    struct tsr_conformance_problem *p = tsr_new(1, sizeof *p);
    struct tsr_conformance_answer   a;
    void                           *self = NULL;
    if (!p)
        tsr_conformance_rule_skip(c, "this machine has no memory for the check");
    if (long_run)
        tsr_conformance_problem_large(p, c, table(c)->supports);
    else
        tsr_conformance_problem_of_part(p, c, 0);
    tsr_conformance_answer_make(&a, p, false);
    tsr_status st = make(c, &self, err);
    if (st == TSR_OK) {
        if (long_run)
            tsr_conformance_test_host_start(c->host);
        st = tsr_solver_solve(table(c), self, p, &a, err);
        unmake(c, self);
    }
    tsr_conformance_answer_free(&a);
    free(p);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "solver-status",
      .text = "solve() gives TSR_OK with one of the four statuses.",
      .run = tsr_solver_rule_status },
    { .name = "solver-finds-plan",
      .text = "Where everything fits on one device there is a plan, not unknown.",
      .run = tsr_solver_rule_finds_plan },
    { .name = "solver-constraints",
      .text = "A plan keeps every constraint of docs/formats/instance.md, as the host checks them.",
      .limit_s = 60,
      .run = tsr_solver_rule_constraints },
    { .name = "solver-objective",
      .text = "The objective of a plan is what the host computes from the tables.",
      .limit_s = 60,
      .run = tsr_solver_rule_objective },
    { .name = "solver-bound",
      .text = "The bound is at most the optimum that brute force finds, or -INFINITY.",
      .limit_s = 60,
      .run = tsr_solver_rule_bound },
    { .name = "solver-optimal",
      .text = "What is called optimal is within the gap of the bound and of the optimum that brute "
              "force finds.",
      .limit_s = 60,
      .run = tsr_solver_rule_optimal },
    { .name = "solver-infeasible",
      .text = "A problem without a plan is answered by infeasible or unknown.",
      .limit_s = 60,
      .run = tsr_solver_rule_infeasible },
    { .name = "solver-reason",
      .text = "Infeasible comes with a reason, one sentence that ends inside reason_cap.",
      .limit_s = 60,
      .run = tsr_solver_rule_reason },
    { .name = "solver-feasible",
      .text = "A problem with a plan is never called infeasible.",
      .limit_s = 60,
      .run = tsr_solver_rule_feasible },
    { .name = "solver-cutoff",
      .text = "A cutoff below the optimum makes no problem infeasible: the answer is unknown, or a "
              "plan.",
      .limit_s = 60,
      .run = tsr_solver_rule_cutoff },
    { .name = "solver-unsupported",
      .text = "A part that `supports` lacks is TSR_E_UNSUPPORTED, never ignored.",
      .run = tsr_solver_rule_unsupported },
    { .name = "solver-deadline",
      .text = "solve() returns with what it has when deadline_us has passed.",
      .limit_s = 60,
      .run = tsr_solver_rule_deadline },
    { .name = "solver-repeats",
      .text = "The same instance and seed give the same answer, each time.",
      .limit_s = 60,
      .run = tsr_solver_rule_repeats },
    { .name = "solver-instance-untouched",
      .text = "solve() leaves the instance and its tables alone.",
      .limit_s = 60,
      .run = tsr_solver_rule_untouched },
    { .name = "solver-writes",
      .text = "solve() writes only the entries that the host's arrays have, and reason_cap bytes "
              "of reason.",
      .limit_s = 60,
      .run = tsr_solver_rule_writes },
};

const struct tsr_conformance_kind_rules tsr_solver_rules = {
    .kind = TSR_KIND_SOLVER,
    .noun = "solver",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
