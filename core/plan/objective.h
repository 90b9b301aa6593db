/* plan/objective.h - the host's own view of a plan: is it allowed, and what does it cost? */
#ifndef TSR_PLAN_OBJECTIVE_H
#define TSR_PLAN_OBJECTIVE_H

#include "base/err.h"
#include "tessera/solver.h"

/* Checks every constraint of docs/formats/instance.md and computes the objective from the
 * tables.  Whatever breaks a rule is TSR_E_INPUT with the rule and the place; a plan that is merely
 * not possible (memory, forbidden entry, max_omega) is TSR_E_INFEASIBLE likewise. */
tsr_status tsr_plan_evaluate(const struct tsr_solver_instance *in,
                             const struct tsr_solver_solution *s, double *objective,
                             struct tsr_err *err);

/* Solves with a loaded solver and checks all that it claims: a plan that breaks a rule, an
 * objective or bound that is wrong, or a status that does not fit is TSR_E_INPUT, "solver \"x\" ...".
 * On success s->objective is the host's number. */
struct tsr_instance;
struct tsr_found;
tsr_status tsr_plan_solve(const struct tsr_instance *inst, const struct tsr_found *solver,
                          const void *opts, struct tsr_solver_solution *s, struct tsr_err *err);

#endif
