/* plan/isolate.h - a solver at work in a process of its own.
 *
 * Solvers that may abort, overrun their memory or hang say TSR_SOLVER_ISOLATED.  The host forks, lets
 * the child create, solve and destroy, and takes the answer out of memory that both share; whatever
 * becomes of the child is a status and one sentence. */
#ifndef TSR_PLAN_ISOLATE_H
#define TSR_PLAN_ISOLATE_H

#include "base/err.h"
#include "tessera/solver.h"

struct tsr_found;

struct tsr_isolation {
    uint64_t memory_bytes; /* more than the parent holds at the fork; 0: half of the machine's */
    uint64_t grace_us;     /* beyond in->deadline_us before it is ended; 0: 5 s */
};

/* What a solver gets as its deadline where the caller has none: a child is never waited for
 * without end. */
#define TSR_ISOLATED_DEADLINE_US UINT64_C(600000000)

/* As create(), solve() and destroy() of the table in this process: the answer is in *s.  The child's
 * end is TSR_E_DEVICE (it crashed, exited, or did not return in time) or TSR_E_NOMEM; Ctrl-C ends it,
 * TSR_E_CANCELLED.  [setup] */
tsr_status tsr_plan_isolated(const struct tsr_solver_instance *in, const struct tsr_found *solver,
                             const void *opts, const struct tsr_isolation *limits,
                             struct tsr_solver_solution *s, struct tsr_err *err);

#endif
