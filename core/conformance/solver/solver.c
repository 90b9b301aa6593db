/* Solvers: one at work, and the rules about how it works. */
#include "conformance/solver/solver.h"

#include "plan/instance/instance.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

static const struct tsr_solver_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

void tsr_conformance_answer_make(struct tsr_conformance_answer        *a,
                                 const struct tsr_conformance_problem *p, bool guarded)
{
    void *(*room)(const char *, uint64_t, unsigned char) =
        guarded ? tsr_conformance_guarded : tsr_conformance_roomy;
    memset(a->reason, 0x5a, sizeof a->reason);
    a->s = (struct tsr_solver_solution){
        .struct_size = sizeof a->s,
        .status = UINT32_MAX,
        .objective = NAN,
        .bound = NAN,
        .option = UINT64_MAX,
        .max_stages = p->devices,
        .stage_kind = room("stage_kind", 4 * p->devices, 0xee),
        .stage_first = room("stage_first", 8 * p->devices, 0xee),
        .stage_count = room("stage_count", 8 * p->devices, 0xee),
        .stage_link = p->in.n_links > 1 ? room("stage_link", 4 * p->devices, 0xee) : NULL,
        .layer_bits = room("layer_bits", 4 * p->in.layers, 0xee),
        .reason = a->reason,
        .reason_cap = sizeof a->reason / 2
    };
}

void tsr_conformance_answer_free(struct tsr_conformance_answer *a)
{
    tsr_conformance_guarded_free(a->s.stage_kind);
    tsr_conformance_guarded_free(a->s.stage_first);
    tsr_conformance_guarded_free(a->s.stage_count);
    if (a->s.stage_link)
        tsr_conformance_guarded_free(a->s.stage_link);
    tsr_conformance_guarded_free(a->s.layer_bits);
}

/* False when bytes outside the arrays were written. */
static bool answer_intact(const struct tsr_conformance_answer *a)
{
    return tsr_conformance_guarded_intact(a->s.stage_kind) &&
           tsr_conformance_guarded_intact(a->s.stage_first) &&
           tsr_conformance_guarded_intact(a->s.stage_count) &&
           (!a->s.stage_link || tsr_conformance_guarded_intact(a->s.stage_link)) &&
           tsr_conformance_guarded_intact(a->s.layer_bits);
}

tsr_status tsr_solver_solve(const struct tsr_solver_v1 *t, void *self,
                            const struct tsr_conformance_problem *p,
                            struct tsr_conformance_answer *a, struct tsr_err *err)
{
    struct tsr_solver_solution out = a->s;
    tsr_status                 st = t->solve(self, &p->in, &out, err);
    a->s.status = out.status;
    a->s.objective = out.objective;
    a->s.bound = out.bound;
    a->s.option = out.option;
    a->s.stages = out.stages;
    return st;
}

static void answer(struct tsr_conformance_case *c, const struct tsr_conformance_problem *p,
                   struct tsr_conformance_answer *a, bool guarded)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    void                           *self = NULL;
    struct tsr_conformance_problem *copy = tsr_conformance_rule_memory(c, sizeof *copy);
    *copy = *p;
    tsr_conformance_problem_link(copy);
    tsr_conformance_answer_make(a, p, guarded);
    if (guarded)
        a->s.reason_cap = 5; /* of the longest reason a piece */
    tsr_conformance_rule_ok(c, table(c)->create(c->host->give, c->options, &self, &e.err), &e,
                            "create()");
    tsr_conformance_rule_ok(c, tsr_solver_solve(table(c), self, copy, a, &e.err), &e,
                            "solve() of %llu layers, %llu kinds, %llu bits", U(p->in.layers),
                            U(p->in.n_kinds), U(p->in.bits));
    table(c)->destroy(self);
}

void tsr_solver_answer(struct tsr_conformance_case *c, const struct tsr_conformance_problem *p,
                       struct tsr_conformance_answer *a)
{
    answer(c, p, a, false);
}

bool tsr_solver_planned(const struct tsr_conformance_problem *p,
                        const struct tsr_conformance_answer *a, double *objective)
{
    return a->s.status <= TSR_SOLVED_FEASIBLE &&
           tsr_plan_evaluate(&p->in, &a->s, objective, NULL) == TSR_OK;
}

double tsr_solver_band(double objective)
{
    return 1e-6 * fabs(objective) + 1e-6;
}

/* ---- how it works ------------------------------------------------------------- */

void tsr_solver_rule_finds_plan(struct tsr_conformance_case *c)
{
    struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
    struct tsr_conformance_answer   a;
    tsr_conformance_problem_easy(p, c);
    tsr_solver_answer(c, p, &a);
    if (a.s.status > TSR_SOLVED_FEASIBLE)
        tsr_conformance_rule_fail(
            c,
            "6 layers that fit on one device with every bit get status %u, wanted a "
            "plan",
            a.s.status);
}

void tsr_solver_rule_unsupported(struct tsr_conformance_case *c)
{
    uint64_t missing = ~table(c)->supports & (2 * TSR_SOLVER_FIXED_ORDER - 1);
    if (missing == 0)
        tsr_conformance_rule_skip(c, "the solver supports every part");
    for (uint64_t part = 1; part <= TSR_SOLVER_FIXED_ORDER; part *= 2) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_errbuf               e = TSR_ERRBUF(e);
        struct tsr_conformance_answer   a;
        void                           *self = NULL;
        char                            name[256];
        if (!(missing & part))
            continue;
        tsr_conformance_problem_of_part(p, c, part);
        tsr_conformance_answer_make(&a, p, false);
        tsr_conformance_rule_ok(c, table(c)->create(c->host->give, c->options, &self, &e.err), &e,
                                "create()");
        tsr_conformance_rule_refused(c, tsr_solver_solve(table(c), self, p, &a, &e.err),
                                     TSR_E_UNSUPPORTED, &e,
                                     "solve() with %s, which `supports` lacks,",
                                     tsr_plan_solver_parts(part, name, sizeof name));
        table(c)->destroy(self);
    }
}

/* The rule limits processor time: a loaded machine adds none, and a solver that sleeps runs into the
 * rule's limit. Half a second covers reading the tables and the last step of a search that polls its clock
 * now and then. */
void tsr_solver_rule_deadline(struct tsr_conformance_case *c)
{
    const double                    deadline_s = 0.3, grace_s = 0.5;
    struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
    struct tsr_conformance_answer   a;
    tsr_conformance_problem_large(p, c, table(c)->supports);
    p->in.deadline_us = (uint64_t)(deadline_s * 1e6);
    double start = tsr_conformance_rule_cpu_s();
    tsr_solver_answer(c, p, &a);
    double took = tsr_conformance_rule_cpu_s() - start;
    if (!(took <= deadline_s + grace_s))
        tsr_conformance_rule_fail(
            c,
            "solve() with a deadline of %.1f s worked for %.1f s on 48 layers and 16 "
            "devices",
            deadline_s, took);
}

void tsr_solver_rule_repeats(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a, b;
        tsr_conformance_problem_small(p, c, i, table(c)->supports);
        p->in.deadline_us = 0; /* where time ends the search the answer is a matter of speed */
        tsr_solver_answer(c, p, &a);
        tsr_solver_answer(c, p, &b);
        bool same = a.s.status == b.s.status;
        if (same && a.s.status <= TSR_SOLVED_FEASIBLE)
            same = tsr_conformance_rule_differ(&a.s.objective, &b.s.objective, 8) == 8 &&
                   a.s.option == b.s.option && a.s.stages == b.s.stages &&
                   a.s.stages <= p->devices &&
                   memcmp(a.s.stage_kind, b.s.stage_kind, 4 * a.s.stages) == 0 &&
                   memcmp(a.s.stage_first, b.s.stage_first, 8 * a.s.stages) == 0 &&
                   (p->in.n_links < 2 ||
                    memcmp(a.s.stage_link, b.s.stage_link, 4 * (a.s.stages - 1)) == 0) &&
                   memcmp(a.s.layer_bits, b.s.layer_bits, 4 * p->in.layers) == 0;
        if (!same)
            tsr_conformance_rule_fail(
                c,
                "problem %llu with seed %llu has another answer the next time: status "
                "%u with %.17g, then status %u with %.17g",
                U(i), U(p->in.seed), a.s.status, a.s.objective, b.s.status, b.s.objective);
    }
}

void tsr_solver_rule_untouched(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p),
                                       *kept = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_errbuf             e = TSR_ERRBUF(e);
        struct tsr_conformance_answer a;
        void                         *self = NULL;
        tsr_conformance_problem_small(p, c, i, table(c)->supports);
        *kept = *p;
        tsr_conformance_answer_make(&a, p, false);
        tsr_conformance_rule_ok(c, table(c)->create(c->host->give, c->options, &self, &e.err), &e,
                                "create()");
        tsr_conformance_rule_ok(c, tsr_solver_solve(table(c), self, p, &a, &e.err), &e, "solve()");
        table(c)->destroy(self);
        uint64_t at = tsr_conformance_rule_differ(p, kept, sizeof *p);
        if (at < sizeof *p)
            tsr_conformance_rule_fail(
                c,
                "solve() changes the instance: byte %llu of problem %llu and its "
                "tables",
                U(at), U(i));
    }
}

void tsr_solver_rule_writes(struct tsr_conformance_case *c)
{
    for (uint64_t i = 0; i < TSR_SOLVER_ROUNDS; i++) {
        struct tsr_conformance_problem *p = tsr_conformance_rule_memory(c, sizeof *p);
        struct tsr_conformance_answer   a;
        tsr_conformance_problem_small(p, c, i, table(c)->supports);
        answer(c, p, &a, true);
        if (!answer_intact(&a))
            tsr_conformance_rule_fail(
                c,
                "solve() of %llu layers writes beyond the %llu entries of a stage "
                "array or the %llu of layer_bits",
                U(p->in.layers), U(p->devices), U(p->in.layers));
        for (uint64_t j = a.s.reason_cap; j < sizeof a.reason; j++)
            if (a.reason[j] != 0x5a)
                tsr_conformance_rule_fail(c, "solve() writes byte %llu of a reason of %llu bytes",
                                          U(j), U(a.s.reason_cap));
    }
}
