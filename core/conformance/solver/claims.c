/* Solvers: the rules about the claims of an answer, checked against the host's numbers and brute force.
 * Each rule checks only its own claim and ignores violations that another rule covers. */
#include "conformance/solver/solver.h"

#include "plan/instance/objective.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

static uint64_t parts(const struct tsr_conformance_case *c)
{
    const struct tsr_solver_v1 *t = c->iface;
    return t->supports;
}

void tsr_solver_rule_status(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        tsr_conformance_problem_small(p, c, i, parts(c));
        tsr_solver_answer(c, p, &a);
        if (a.s.status > TSR_SOLVED_UNKNOWN)
            tsr_conformance_rule_fail(c, "problem %llu gets status %u, wanted 0 to 3", U(i),
                                      a.s.status);
    }
}

void tsr_solver_rule_constraints(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_errbuf               why = TSR_ERRBUF(why);
        struct tsr_conformance_answer   a;
        double                          v;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        tsr_solver_answer(c, p, &a);
        if (a.s.status <= TSR_SOLVED_FEASIBLE &&
            tsr_plan_evaluate(&p->in, &a.s, &v, &why.err) != TSR_OK)
            tsr_conformance_rule_fail(c, "the plan for problem %llu breaks a constraint: %s", U(i),
                                      why.text);
    }
}

void tsr_solver_rule_objective(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        double                          v = NAN;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        tsr_solver_answer(c, p, &a);
        if (tsr_solver_planned(p, &a, &v) && !(fabs(v - a.s.objective) <= tsr_solver_band(v)))
            tsr_conformance_rule_fail(
                c, "the plan for problem %llu costs %.9g ms, the solver says %.9g", U(i), v,
                a.s.objective);
    }
}

void tsr_solver_rule_bound(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        tsr_solver_answer(c, p, &a);
        if (a.s.status == TSR_SOLVED_INFEASIBLE)
            continue; /* has no bound, and another rule's words */
        double v = a.s.objective;
        if (a.s.status == TSR_SOLVED_OPTIMAL && fabs(v - a.s.bound) <= p->in.gap * fabs(v))
            continue; /* the same claim as being optimal, which that rule judges */
        if (!(a.s.bound <= p->best + tsr_solver_band(p->best)))
            tsr_conformance_rule_fail(
                c, "problem %llu has the bound %.9g, brute force finds a plan of %.9g ms", U(i),
                a.s.bound, p->best);
    }
}

void tsr_solver_rule_optimal(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        double                          v = NAN;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        tsr_solver_answer(c, p, &a);
        if (a.s.status != TSR_SOLVED_OPTIMAL || !tsr_solver_planned(p, &a, &v))
            continue;
        double gap = p->in.gap * fabs(v) + tsr_solver_band(v);
        if (!(v - a.s.bound <= gap))
            tsr_conformance_rule_fail(
                c,
                "problem %llu: called optimal with %.9g ms and the bound %.9g, which "
                "leaves more than the gap of %g",
                U(i), v, a.s.bound, p->in.gap);
        if (!(v - p->best <= gap))
            tsr_conformance_rule_fail(
                c, "problem %llu: called optimal with %.9g ms, brute force finds %.9g", U(i), v,
                p->best);
    }
}

/* ---- problems without a plan ------------------------------------------------- */

static const char *const ways[] = { "no layer fits on a device",
                                    "all devices together are too small",
                                    "max_omega is out of reach",
                                    "every entry of dec_ms is forbidden",
                                    "more devices than layers, and all must be used",
                                    "no device has room next to the workspace" };
#define WAYS (sizeof ways / sizeof ways[0])

/* Leaves no plan; false where the solver lacks the part that this takes. */
static bool spoil(struct tsr_conformance_problem *p, uint64_t way, uint64_t have)
{
    switch (way) {
    case 0:
        for (uint64_t k = 0; k < p->in.n_kinds; k++)
            p->kind[k].capacity_bytes = 1;
        return true;
    case 1:
        for (uint64_t k = 0; k < p->in.n_kinds; k++)
            p->kind[k].capacity_bytes = 12;
        for (uint64_t i = 0; i < p->in.classes * p->in.bits; i++)
            p->layer_bytes[i] = 10;
        return p->in.layers > p->devices;
    case 2:
        p->in.max_omega = 0.01;
        return (have & TSR_SOLVER_MAX_OMEGA) != 0;
    case 3:
        for (uint64_t o = 0; o < p->in.n_options; o++)
            for (uint64_t i = 0; i < p->in.n_kinds * p->in.classes * p->in.bits; i++)
                p->tables[o].dec[i] = NAN;
        return (have & TSR_SOLVER_FORBIDDEN) != 0;
    case 4:
        p->in.layers = 1; /* and at least 2 devices */
        p->in.allow_unused = 0;
        return (have & TSR_SOLVER_USE_ALL) != 0 && p->devices > 1 && p->in.n_pools == 0;
    default:
        for (uint64_t o = 0; o < p->in.n_options; o++)
            for (uint64_t k = 0; k < p->in.n_kinds; k++)
                p->tables[o].workspace[k] = UINT64_C(1) << 40;
        return (have & TSR_SOLVER_WORKSPACE) != 0;
    }
}
static void look_at_infeasible(struct tsr_conformance_case *c,
                               void (*look)(struct tsr_conformance_case *c, uint64_t i,
                                            const struct tsr_conformance_answer *a))
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        if (!spoil(p, i % WAYS, parts(c)))
            continue;
        tsr_solver_answer(c, p, &a);
        look(c, i, &a);
    }
}

static void no_plan(struct tsr_conformance_case *c, uint64_t i,
                    const struct tsr_conformance_answer *a)
{
    if (a->s.status <= TSR_SOLVED_FEASIBLE)
        tsr_conformance_rule_fail(c, "problem %llu has no plan (%s), and gets one with status %u",
                                  U(i), ways[i % WAYS], a->s.status);
}

static void has_reason(struct tsr_conformance_case *c, uint64_t i,
                       const struct tsr_conformance_answer *a)
{
    if (a->s.status != TSR_SOLVED_INFEASIBLE)
        return;
    if (!memchr(a->reason, '\0', a->s.reason_cap))
        tsr_conformance_rule_fail(
            c, "problem %llu is called infeasible with a reason that does not end", U(i));
    if (a->reason[0] == '\0')
        tsr_conformance_rule_fail(c, "problem %llu is called infeasible without a reason", U(i));
}

void tsr_solver_rule_infeasible(struct tsr_conformance_case *c)
{
    look_at_infeasible(c, no_plan);
}

void tsr_solver_rule_reason(struct tsr_conformance_case *c)
{
    look_at_infeasible(c, has_reason);
}

void tsr_solver_rule_feasible(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        tsr_solver_answer(c, p, &a);
        if (a.s.status == TSR_SOLVED_INFEASIBLE)
            tsr_conformance_rule_fail(
                c,
                "problem %llu is called infeasible (%.100s), brute force finds a plan "
                "of %.9g ms",
                U(i), a.reason, p->best);
    }
}

void tsr_solver_rule_cutoff(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        tsr_conformance_problem_feasible(p, c, i, parts(c));
        p->in.cutoff = p->best * 0.9 - 1;
        tsr_solver_answer(c, p, &a);
        if (a.s.status == TSR_SOLVED_INFEASIBLE)
            tsr_conformance_rule_fail(
                c,
                "problem %llu with a cutoff of %.9g below its optimum of %.9g is "
                "called infeasible",
                U(i), p->in.cutoff, p->best);
    }
}
