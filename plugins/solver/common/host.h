/* host.h - memory of the devices' hosts, which layers of an instance may take (TSR_SOLVER_HOST). */
#ifndef TSR_SOLVER_COMMON_HOST_H
#define TSR_SOLVER_COMMON_HOST_H

#include "plan.h"

/* Whether the instance has any. */
bool plan_host_any(const struct tsr_solver_instance *in);
/* What a layer takes of the host of its device. */
uint64_t plan_host_bytes(const struct tsr_solver_instance *in, uint64_t layer, uint64_t q);
/* What a device of the kind has of it. */
uint64_t plan_host_room(const struct tsr_solver_instance *in, uint64_t k);
/* Whether the layers of stage i fit there. */
bool plan_host_fits_stage(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                          uint64_t i);

#endif
