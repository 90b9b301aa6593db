/* tessera/draft/probe.h - optional backend table "tessera.probe/1": what the device's own
 * instructions reach, measured in the same second as a kernel, so that a figure can be read as
 * a share of the machine.  Draft: may change until it leaves this folder.
 */
#ifndef TSR_DRAFT_PROBE_H
#define TSR_DRAFT_PROBE_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_PROBE_EXTENSION "tessera.probe/1"

/* One measurement on one thread: `work` units (bytes, multiply-adds, additions) in `seconds`. */
struct tsr_probe_result {
    uint32_t struct_size;
    uint32_t reserved;
    double   work, seconds;
};

struct tsr_probe_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* All run on the calling thread and may be called by several at once, each on its own part
     * of the memory.  [any] */
    /* Reads `bytes` bytes of a buffer from `offset`, in the order number `shape` of n_shapes. */
    tsr_status (*read)(void *self, const void *buffer, uint64_t offset, uint64_t bytes,
                       uint32_t shape, struct tsr_probe_result *r, struct tsr_err *err);
    /* F32 fused multiply-adds for about `seconds`. */
    tsr_status (*fma)(void *self, double seconds, struct tsr_probe_result *r, struct tsr_err *err);
    /* int8 by uint8 multiply-adds for about `seconds`. */
    tsr_status (*dot)(void *self, double seconds, struct tsr_probe_result *r, struct tsr_err *err);
    /* A chain of dependent one-cycle additions: work / seconds is the clock in Hz. */
    tsr_status (*clock)(void *self, double seconds, struct tsr_probe_result *r,
                        struct tsr_err *err);
    uint64_t n_shapes;
    double   fma_per_cycle, dot_per_cycle; /* what the instruction set can do at most */
    /* Encodes rows of F32 that lie in the first cache as `format` (mx with rounding to even, or
     * int of 4 bits): elements in about `seconds`.  TSR_E_UNSUPPORTED for others. */
    tsr_status (*encode)(void *self, const struct tsr_format *format, double seconds,
                         struct tsr_probe_result *r, struct tsr_err *err);
    /* BF16 by BF16 multiply-adds into F32 for about `seconds`; TSR_E_UNSUPPORTED where LINEAR
     * uses none (numerics: exact).  bf16_per_cycle is 0 then. */
    tsr_status (*bf16)(void *self, double seconds, struct tsr_probe_result *r, struct tsr_err *err);
    double bf16_per_cycle;
};

#ifdef __cplusplus
}
#endif
#endif
