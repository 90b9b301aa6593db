/* simt_code.h - a plugin's kernels on the emulated device, in place of an image (tessera/draft/kernel_device.h).
 *
 * The plugin is linked with an emulation of its own, which runs its kernels: an emulation's names are hidden in each file.
 * Its addresses are those of every other one.  Memory hooks know the allocations of their own emulation alone, so such kernels
 * have none. */
#ifndef TSR_SIMT_CODE_H
#define TSR_SIMT_CODE_H

#include "simt.h"

#define SIMT_CODE_MAGIC UINT64_C(0x65646f63746d6973) /* "simtcode" */

struct simt_code {
    uint64_t                         magic;
    const struct simt_kernel *const *kernels;
    uint64_t                         n;
    tsr_status (*run)(const struct simt_launch *l, struct tsr_err *err);
};

#define SIMT_CODE(kernels)                                                                         \
    {                                                                                              \
        SIMT_CODE_MAGIC, (kernels), sizeof(kernels) / sizeof *(kernels), simt_run                  \
    }

#endif
