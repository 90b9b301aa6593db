/* runtime/join.h - joining the processes that a launcher started, within a time.
 *
 * MPI_Init comes back when all processes of the job have called it, takes no deadline and cannot be
 * interrupted, and before it nobody can be heard.  So a process whose mates do not come says so and ends.
 */
#ifndef TSR_RUNTIME_JOIN_H
#define TSR_RUNTIME_JOIN_H

#include "comm/world.h"

#define TSR_JOIN_US UINT64_C(120000000) /* for a job's ranks to read the job */

/* tsr_comm_port_open of a transport whose ranks are processes.  Where that does not come back within
 * within_us, the process ends with exit code 6 and a sentence.  Errors: those of tsr_comm_port_open;
 * TSR_E_NOMEM: no thread is left.  [setup] */
tsr_status tsr_join(struct tsr_comm_port *p, struct tsr_registry *r,
                    const struct tsr_comm_place *place, uint64_t within_us, struct tsr_err *err);

#endif
