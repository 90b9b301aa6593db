/* plan/simulate/simulate_internal.h - what the files of the simulator share. */
#ifndef TSR_PLAN_SIMULATE_SIMULATE_INTERNAL_H
#define TSR_PLAN_SIMULATE_SIMULATE_INTERNAL_H

#include "plan/simulate/simulate.h"

#include <math.h>

/* Positions on a path: the resources, and with a way back the first stage again. */
static inline uint64_t tsr_simulate_positions(const struct tsr_plan_pipeline *p)
{
    return 2 * p->stages - 1 + (p->back ? 2 : 0);
}

/* Jobs of a prefill micro-batch. */
static inline uint64_t tsr_simulate_jobs(const struct tsr_plan_pipeline *p)
{
    return p->pre || !(p->prefill_jobs > 0) ? 1 : (uint64_t)ceil(p->prefill_jobs);
}

/* Micro-batches of a batch. */
static inline uint64_t tsr_simulate_pieces(uint64_t batch, uint64_t size)
{
    return batch / size + (batch % size != 0);
}

/* check.c: TSR_E_INPUT for a pipeline that cannot be, TSR_E_CONFIG for one that is too long. */
tsr_status tsr_simulate_check(const struct tsr_plan_pipeline *p, struct tsr_err *err);

#endif
