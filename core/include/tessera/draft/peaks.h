/* tessera/draft/peaks.h - peaks: what a device with a memory and matrix units of its own can do at
 * best.  Draft: an optional table of a backend, "tessera.peaks/1"; it may change until it leaves
 * this folder.
 *
 * A backend implements it in place of tessera.probe/1, whose functions measure the threads of a
 * CPU.  `tessera bench` prints the speed of a model as a share of these peaks.
 *
 * Example: the seconds that a device needs at least to read `bytes` bytes, 0 after an error.
 *
 *     static double least_seconds(const struct tsr_peaks_v1 *peaks, void *self, uint64_t bytes)
 *     {
 *         double rate = 0;
 *         tsr_status st = peaks->copy(self, UINT64_C(64) << 20, &rate, NULL);
 *         return st == TSR_OK ? (double)bytes / rate : 0;
 *     }
 */
#ifndef TSR_DRAFT_PEAKS_H
#define TSR_DRAFT_PEAKS_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_PEAKS "tessera.peaks/1"

struct tsr_peaks_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* Measures a copy of `bytes`, a multiple of 16384, inside the device's memory: *rate is the
     * bytes that it reads and writes in a second.  [worker] */
    tsr_status (*copy)(void *self, uint64_t bytes, double *rate, struct tsr_err *err);
    /* BF16 by BF16 multiply-adds into F32 in a second that the device is built for, at its highest
     * clock and with dense matrices; 0: not known.  [any] */
    double (*multiply)(const void *self);
};

#ifdef __cplusplus
}
#endif
#endif
