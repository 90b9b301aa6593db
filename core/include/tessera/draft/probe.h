/* tessera/draft/probe.h - probe: measured peaks of a device.  Draft: an optional table of a
 * backend, "tessera.probe/1"; it may change until it leaves this folder.
 *
 * A backend implements it.  `tessera bench` calls it within the same second as a kernel, and prints
 * the speed of the kernel as a share of the peak.
 *
 * Example: memory bandwidth in bytes per second, 0 after an error.
 *
 *     static double read_bandwidth(const struct tsr_probe_v1 *probe, void *self,
 *                                  const void *buffer, uint64_t bytes)
 *     {
 *         struct tsr_probe_result r = { .struct_size = sizeof r };
 *         if (probe->read(self, buffer, 0, bytes, 0, &r, NULL) != TSR_OK || !(r.seconds > 0))
 *             return 0;
 *         return r.work / r.seconds;
 *     }
 */
#ifndef TSR_DRAFT_PROBE_H
#define TSR_DRAFT_PROBE_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_PROBE_EXTENSION "tessera.probe/1"

/* One measurement on one thread: `work` in bytes, multiply-adds, additions or elements, and its
 * time in seconds. */
struct tsr_probe_result {
    uint32_t struct_size;
    uint32_t reserved;
    double   work, seconds;
};

struct tsr_probe_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* Every function works on the calling thread.  Several threads may call at once, each with a
     * different part of the memory.  [any] */

    /* Reads `bytes` bytes of a buffer from byte `offset`, in order number `shape` of n_shapes. */
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
    double   fma_per_cycle, dot_per_cycle; /* limits of the CPU; 0: unknown */
    /* Encodes rows of F32 in the first-level cache as `format` for about `seconds`; work counts
     * elements.  The format is mx with rounding to even, or int of 4 bits.  TSR_E_UNSUPPORTED for
     * others. */
    tsr_status (*encode)(void *self, const struct tsr_format *format, double seconds,
                         struct tsr_probe_result *r, struct tsr_err *err);
    /* BF16 by BF16 multiply-adds into F32 for about `seconds`.  TSR_E_UNSUPPORTED: LINEAR uses none
     * (numerics: exact), and bf16_per_cycle is 0. */
    tsr_status (*bf16)(void *self, double seconds, struct tsr_probe_result *r, struct tsr_err *err);
    double bf16_per_cycle;
};

#ifdef __cplusplus
}
#endif
#endif
