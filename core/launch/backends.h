/* launch/backends.h - the backend of each rank of a plan, as its cluster file sets it: `backend` of a
 * device, or the backend that emulates it, and `transport` of sums over its ranks
 * (docs/formats/cluster.md). */
#ifndef TSR_LAUNCH_BACKENDS_H
#define TSR_LAUNCH_BACKENDS_H

#include "runtime/layout.h"

/* Fills layout->backends, which stays NULL where the cluster file names none, and collective_over of stages.
 * What is wrong with the file goes to d. */
tsr_status tsr_launch_backends(struct tsr_runtime_layout *layout, const struct tsr_plan_file *p,
                               const char *cluster, const char *beside, struct tsr_diag *d,
                               struct tsr_err *err);

#endif
