/* plan/isolate.h - a solver at work in a process of its own.
 *
 * Solvers that may abort, overrun their memory or hang say TSR_SOLVER_ISOLATED; under `isolate: true`
 * all are run so.  The host forks, lets the child create, solve and destroy, and takes the answer out of
 * memory that both share; whatever becomes of the child is a status and one sentence. */
#ifndef TSR_PLAN_ISOLATE_H
#define TSR_PLAN_ISOLATE_H

#include "base/err.h"
#include "tessera/solver.h"

struct tsr_found;
struct tsr_isolation; /* plugin/registry.h */

/* What a solver gets as its deadline where the caller has none: a child is never waited for
 * without end. */
#define TSR_ISOLATED_DEADLINE_US UINT64_C(600000000)

/* As create(), solve() and destroy() of the table in this process: the answer is in *s.  The child's
 * end is TSR_E_PLUGIN (it crashed, exited, took more memory than it may, or did not return in time);
 * Ctrl-C ends it, TSR_E_CANCELLED.  limits may be NULL; a zero in them is the default.  [setup] */
tsr_status tsr_plan_isolated(const struct tsr_solver_instance *in, const struct tsr_found *solver,
                             const void *opts, const struct tsr_isolation *limits,
                             struct tsr_solver_solution *s, struct tsr_err *err);

#endif
