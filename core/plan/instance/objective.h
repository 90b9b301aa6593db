/* plan/instance/objective.h - the host's own check of a plan: its validity and its cost. */
#ifndef TSR_PLAN_INSTANCE_OBJECTIVE_H
#define TSR_PLAN_INSTANCE_OBJECTIVE_H

#include "base/err.h"
#include "tessera/solver.h"

/* Checks every constraint of docs/formats/instance.md and computes the objective from the tables. A broken
 * rule is TSR_E_INPUT with the rule and the place. A well-formed but impossible plan (memory, forbidden
 * entry, max_omega, max_first_ms) is TSR_E_INFEASIBLE, also with both. */
tsr_status tsr_plan_evaluate(const struct tsr_solver_instance *in,
                             const struct tsr_solver_solution *s, double *objective,
                             struct tsr_err *err);

/* What one stage of a plan takes, its embedding or head included; bytes without the workspace of the
 * option.  The plan's shape must be right (stages, layers, bits as tsr_plan_evaluate() checks). */
struct tsr_plan_stage_cost {
    double   pre_ms, dec_ms;
    uint64_t bytes, workspace_bytes;
};
tsr_status tsr_plan_stage(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                          uint64_t stage, struct tsr_plan_stage_cost *cost, struct tsr_err *err);

/* The entry of comm_pre_ms and comm_dec_ms for the link after a stage that is not the last.  The plan's
 * shape must be right. */
uint64_t tsr_plan_link(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                       uint64_t stage);

/* Solves with a loaded solver and checks all its claims: a plan that breaks a rule, a wrong objective or
 * bound, or a wrong status is TSR_E_INPUT, "solver \"x\" ...". On success s->objective is the host's
 * number. */
struct tsr_instance;
struct tsr_plugin_found;
struct tsr_solver_line;
tsr_status tsr_plan_solve(const struct tsr_instance *inst, const struct tsr_plugin_found *solver,
                          const void *opts, struct tsr_solver_solution *s, struct tsr_err *err);
/* An instance of a solver for many solves, which create() and destroy() with their checks would be a part of; zeroed: none yet. */
struct tsr_plan_solver {
    const struct tsr_solver_v1 *iface;
    void                       *self;
};
void tsr_plan_solver_end(struct tsr_plan_solver *one);
/* tsr_plan_solve(), with what the solver proves of each option, `lines`, [n_options] (tessera/draft/lines.h). A solver
 * without that table says nothing: -INFINITY.  one: of this solver and options, or zeroed; NULL: one for this solve. */
tsr_status tsr_plan_solve_lines(const struct tsr_instance     *inst,
                                const struct tsr_plugin_found *solver, const void *opts,
                                struct tsr_plan_solver *one, struct tsr_solver_solution *s,
                                struct tsr_solver_line *lines, struct tsr_err *err);

#endif
