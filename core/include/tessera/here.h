/* tessera/here.h - host service "tessera.here/1": which of the job's ranks of this machine a plugin
 * works for, so that ranks of one machine take different devices of it.
 *
 * A plugin gets the table from host->service(host->ctx, TSR_HERE): a rank's host has it, whether ranks
 * are threads, processes or a launcher's (mpirun); a job without ranks has none (NULL).  [any]
 */
#ifndef TSR_HERE_H
#define TSR_HERE_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_HERE "tessera.here/1"

struct tsr_here_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    uint32_t rank;  /* of `ranks`, from 0: in the order of the job's ranks */
    uint32_t ranks; /* of the job on this machine */

    /* ABI minor 1 ends here. */
};

#ifdef __cplusplus
}
#endif

#endif
