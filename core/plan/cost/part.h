/* plan/cost/part.h - the parts of a layer that have one kernel each: of a mix its candidates, of a packed layer its
 * layouts. */
#ifndef TSR_PLAN_COST_PART_H
#define TSR_PLAN_COST_PART_H

#include "plan/cost/candidate.h"

struct tsr_plan_part {
    const struct tsr_plan_candidate *c;   /* what its linears take */
    const struct tsr_plan_candidate *mix; /* whose part it is; NULL: c is no mix */
    bool several; /* parts of a packed layer, of which this one has the layout of `like` */
    struct tsr_plan_shape_matrix like;
};

/* Places to look for parts at, more than a layer has parts. */
#define TSR_PLAN_PLACES (TSR_PLAN_PARTS + TSR_PLAN_LINEARS)
/* The part at a place of a layer of a class under a candidate; false where there is none, or where an earlier place has
 * it.  The candidate outlives the part.  [any] */
bool tsr_plan_part_at(const struct tsr_plan_candidate *c, const struct tsr_plan_shape *s,
                      uint64_t cls, uint32_t place, struct tsr_plan_part *part);
/* Whether it is all of the layer. */
static inline bool tsr_plan_part_is_whole(const struct tsr_plan_part *p)
{
    return !p->mix && !p->several;
}
/* Whether a linear of a group of experts is in it; group: 0 for what is no expert's. */
bool tsr_plan_part_has(const struct tsr_plan_part *p, const struct tsr_plan_shape *s, uint64_t cls,
                       int linear, uint32_t group);
/* Bytes of one matrix of a linear if it were in the part; group: of the first that is.  As
 * tsr_plan_candidate_matrix(). */
tsr_status tsr_plan_part_matrix(const struct tsr_plan_part *p, const struct tsr_plan_shape *s,
                                uint64_t cls, int linear, struct tsr_format *f, uint64_t *bytes,
                                struct tsr_err *err);
/* The kernel that runs it. */
tsr_status tsr_plan_part_kernel(const struct tsr_plan_part *p, const struct tsr_plan_shape *s,
                                uint64_t cls, char kernel[TSR_PLAN_KERNEL_TEXT],
                                struct tsr_err *err);

#endif
