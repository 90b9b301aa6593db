/* launch/emulate.h - the devices of a plan that its cluster file emulates: service times, memory
 * limits and paced links (docs/formats/cluster.md). */
#ifndef TSR_LAUNCH_EMULATE_H
#define TSR_LAUNCH_EMULATE_H

#include "plan/file/plan_file.h"
#include "runtime/emulate.h"

struct tsr_launch_emulate;

/* Reads the cluster; *e NULL if it emulates nothing. A plan's devices must be all emulated or none: else
 * an error at the plan's stage in d. Sets the transports of the layout's links to paced ones. */
tsr_status tsr_launch_emulate_open(struct tsr_launch_emulate **e, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_plan_file *p,
                                   struct tsr_runtime_layout *layout, const char *cluster,
                                   const char *beside, struct tsr_diag *d, struct tsr_err *err);
void       tsr_launch_emulate_close(struct tsr_launch_emulate *e); /* NULL is fine */
const struct tsr_runtime_pacing *tsr_launch_emulate_pacing(
    const struct tsr_launch_emulate *e); /* of NULL: NULL */

#endif
