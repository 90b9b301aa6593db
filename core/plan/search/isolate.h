/* plan/search/isolate.h - runs a solver in a separate process.
 *
 * Solvers that may abort, overrun their memory or hang set TSR_SOLVER_ISOLATED; `isolate: true` runs every
 * solver so. The host forks; the child creates, solves and destroys; the host reads the answer from shared
 * memory. Any failure of the child becomes a status and one sentence. */
#ifndef TSR_PLAN_SEARCH_ISOLATE_H
#define TSR_PLAN_SEARCH_ISOLATE_H

#include "base/err.h"
#include "tessera/solver.h"

struct tsr_plugin_found;
struct tsr_plugin_isolation; /* plugin/registry.h */

/* What a solver gets as its deadline where the caller has none: a child is never waited for
 * without end. */
#define TSR_ISOLATED_DEADLINE_US UINT64_C(600000000)

/* As create(), solve() and destroy() of the table in this process: the answer is in *s.  The child's
 * end is TSR_E_PLUGIN (it crashed, exited, took more memory than it may, or did not return in time);
 * Ctrl-C ends it, TSR_E_CANCELLED.  limits may be NULL; a zero in them is the default.  [setup] */
tsr_status tsr_plan_isolated(const struct tsr_solver_instance *in,
                             const struct tsr_plugin_found *solver, const void *opts,
                             const struct tsr_plugin_isolation *limits,
                             struct tsr_solver_solution *s, struct tsr_err *err);

#endif
