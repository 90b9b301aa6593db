/* runtime/join.h - joins the processes that a launcher started, with a time limit.
 *
 * MPI_Init returns when all processes of the job have called it, takes no deadline, cannot be interrupted,
 * and no communication works before it. So a process whose peers do not come reports that and ends.
 */
#ifndef TSR_RUNTIME_JOIN_H
#define TSR_RUNTIME_JOIN_H

#include "comm/world.h"

#define TSR_JOIN_US UINT64_C(120000000) /* for a job's ranks to read the job */

/* tsr_comm_port_open of a transport whose ranks are processes.  Where that does not come back within
 * within_us, the process ends with exit code 6 and a sentence.  Errors: those of tsr_comm_port_open;
 * TSR_E_NOMEM: no thread is left.  [setup] */
tsr_status tsr_runtime_join(struct tsr_comm_port *p, struct tsr_registry *r,
                            const struct tsr_comm_place *place, uint64_t within_us,
                            struct tsr_err *err);

#endif
