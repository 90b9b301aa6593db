/* plan/search/whatif_internal.h - shared by whatif.c (resources) and the files of memory, settings and schemes. */
#ifndef TSR_PLAN_SEARCH_WHATIF_INTERNAL_H
#define TSR_PLAN_SEARCH_WHATIF_INTERNAL_H

#include "plan/search/whatif.h"

/* Changes p by an amount x. */
typedef void (*tsr_plan_change)(struct tsr_plan_problem *p, const void *ctx, uint64_t x);

/* With the smallest micro-batches, which take the least memory, unless prompts have a limit of time.  *known false: the
 * time was up before it was settled. */
tsr_status tsr_plan_whatif_feasible(struct tsr_plan_problem p, const struct tsr_plugin_spec *solver,
                                    bool *yes, bool *known, struct tsr_err *err);
tsr_status tsr_plan_whatif_probe(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                 const void *ctx, uint64_t x, bool *yes, struct tsr_err *err);
/* The smallest x in (lo, hi] with a plan, to `step`, where more never hurts; hi has one. */
tsr_status tsr_plan_whatif_least(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                 const void *ctx, uint64_t lo, uint64_t hi, uint64_t step,
                                 uint64_t *x, struct tsr_err *err);
/* The largest x in [1, hi) with a plan, where less never hurts; hi has none.  0: none. */
tsr_status tsr_plan_whatif_most(const struct tsr_plan_problem *p,
                                const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                const void *ctx, uint64_t hi, uint64_t *x, struct tsr_err *err);
/* Fills in kv8, chunk, the limits and the pair; the others are known. */
tsr_status tsr_plan_whatif_settings(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err);

/* whatif_settings.c: whether a cache of int8 is another one, and puts it; fewer requests at once, for
 * tsr_plan_whatif_most(); tokens of the largest chunk with a plan, 0: none. */
bool       tsr_plan_whatif_can_kv8(const struct tsr_plan_problem *p);
void       tsr_plan_whatif_put_kv8(struct tsr_plan_problem *p);
void       tsr_plan_whatif_put_few(struct tsr_plan_problem *p, const void *ctx, uint64_t x);
tsr_status tsr_plan_whatif_chunk(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, uint64_t *chunk,
                                 struct tsr_err *err);
/* whatif_settings.c: the omega of the worst choice for every layer; the smallest limit with a plan, of the time until
 * prompts are done or of omega, to a thousandth of the way there; NaN: none. */
double     tsr_plan_whatif_worst(const struct tsr_plan_problem *p);
tsr_status tsr_plan_whatif_relax(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, bool first, double *to,
                                 struct tsr_err *err);
/* whatif_memory.c: where there is no pair yet, and memory of one profile is not enough: of two, or with a higher limit. */
tsr_status tsr_plan_whatif_pair_memory(struct tsr_plan_remedies      *r,
                                       const struct tsr_plan_problem *p,
                                       const struct tsr_plugin_spec *solver, struct tsr_err *err);
/* whatif_schemes.c: fewer bits, and packed ends, alone; and with another change, where there is no pair yet. */
tsr_status tsr_plan_whatif_schemes(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                                   const struct tsr_plugin_spec *solver, struct tsr_err *err);
tsr_status tsr_plan_whatif_pair_schemes(struct tsr_plan_remedies      *r,
                                        const struct tsr_plan_problem *p,
                                        const struct tsr_plugin_spec *solver, struct tsr_err *err);

#endif
