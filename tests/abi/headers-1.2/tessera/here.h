/* tessera/here.h - place: the rank of a plugin among the ranks of the job on this machine.  The
 * host service is "tessera.here/1".
 *
 * The host implements it.  A plugin requests it in create(), so that ranks of one machine take
 * different devices.  Every rank has it, whether ranks are threads, processes or started by mpirun.
 * In a job without ranks host->service() returns NULL.  The table is constant: [any].
 *
 * Example: the device of this rank.
 *
 *     static uint32_t choose_device(const struct tsr_host *host, uint32_t devices)
 *     {
 *         const struct tsr_here_v1 *here =
 *             (const struct tsr_here_v1 *)host->service(host->ctx, TSR_HERE);
 *         return here ? here->rank % devices : 0;
 *     }
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
    uint32_t rank;  /* from 0, in the order of the ranks of the job */
    uint32_t ranks; /* of the job on this machine                  */

    /* ABI minor 1 ends here. */
};

#ifdef __cplusplus
}
#endif

#endif
