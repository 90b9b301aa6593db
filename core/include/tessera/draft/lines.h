/* tessera/draft/lines.h - what a solve proves of each option under other limits on omega.  Draft: an optional
 * table of a solver, "tessera.solver.lines/1".
 *
 * A front of plans is many solves of one instance that differ in max_omega, theta and cutoff.  Most options of
 * most of them are ruled out by a bound with a price on omega, which holds under any limit.  A host that
 * keeps these bounds leaves options out of later solves.
 *
 * Example: whether an option can have a plan below a cutoff, by its line.
 *
 *     static int can_be_below(const struct tsr_solver_line *l, double max_omega, double cutoff)
 *     {
 *         if (max_omega > l->limit)
 *             return 1;
 *         return l->value - l->slope * max_omega < cutoff;
 *     }
 */
#ifndef TSR_DRAFT_LINES_H
#define TSR_DRAFT_LINES_H

#include "tessera/solver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SOLVER_LINES "tessera.solver.lines/1"

/* Of every plan of an option with omega of at most `limit`, whatever the cutoff: objective + slope x omega
 * >= value.  The objective has theta x omega already. */
struct tsr_solver_line {
    double limit; /* INFINITY, or max_omega of the instance where the bound is of that */
    double slope; /* ms a unit of omega, >= 0 */
    double value; /* ms; INFINITY: no plan, -INFINITY: nothing is known */
};

struct tsr_solver_lines_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* solve() of struct tsr_solver_v1.  `lines`, [n_options], are what the host knows, and then what
     * this solve proved, also where that is less.  [worker] */
    tsr_status (*solve)(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_solver_line *lines,
                        struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
