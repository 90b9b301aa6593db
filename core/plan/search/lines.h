/* plan/search/lines.h - solves of one instance under several limits on omega, without the options that earlier solves
 * ruled out.
 *
 *   a solve --its solver's lines (tessera/draft/lines.h)--> bounds of options --> the next one has fewer options
 *           --its instances--> the next one need not build them
 */
#ifndef TSR_PLAN_SEARCH_LINES_H
#define TSR_PLAN_SEARCH_LINES_H

#include "plan/search/bounds.h"
#include "plugin/spec.h"

struct tsr_instance;
struct tsr_solver_instance;
struct tsr_plan_built;
struct tsr_plan_solver;
struct tsr_solver_solution;

/* Those of a setting in tsr_plan_bounds.options: of a round and of all rounds; and of the bound of its group, where it is the first
 * of one (settings_group.c). */
enum tsr_plan_lines_of {
    TSR_PLAN_LINES_ROUND,
    TSR_PLAN_LINES_ALL,
    TSR_PLAN_LINES_GROUP,
    TSR_PLAN_LINES_GROUP_ALL,
    TSR_PLAN_LINES_OF
};

/* What is known of the options of a setting's instances: those of the first part, of the second one and so on. */
struct tsr_plan_lines {
    struct tsr_plan_bounds of; /* n 0: nothing yet; arrays are owned */
    struct tsr_plan_built
        *built; /* of the last search that did not need them for its answer; owned, NULL: none */
    uint64_t                most;   /* bytes that these may have */
    struct tsr_plan_solver *solver; /* for its solves; the owner's, NULL: one for each */
};

/* tsr_plan_solve() of an instance whose options are those from `first` on of `all`. Options that cannot be below its cutoff
 * are left out, and what the solver proves is added.  Where that leaves none, s->status is TSR_SOLVED_UNKNOWN with a bound
 * of at least the cutoff. Searches may differ in max_omega, theta, gap, cutoff and deadline alone.  [setup] */
tsr_status tsr_plan_lines_solve(struct tsr_plan_lines *l, uint64_t first, uint64_t all,
                                const struct tsr_instance    *inst,
                                const struct tsr_plugin_spec *solver, struct tsr_solver_solution *s,
                                struct tsr_err *err);
/* Of an option of `all`: a bound of all its plans in an instance, whose limit and theta count; and the greatest that is known,
 * -INFINITY: none.  [setup] */
tsr_status tsr_plan_lines_put(struct tsr_plan_lines *l, uint64_t option, uint64_t all,
                              const struct tsr_solver_instance *in, double bound,
                              struct tsr_err *err);
double     tsr_plan_lines_get(const struct tsr_plan_lines *l, uint64_t option,
                              const struct tsr_solver_instance *in);
void       tsr_plan_lines_free(struct tsr_plan_lines *l); /* zeroed or filled */

#endif
