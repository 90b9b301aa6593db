/* late.h - the CUDA backend over kernels of the emulation and streams of the stand-in driver: what is put
 * on a stream happens when the stand-in moves on, in order with what the transport nccl puts there (late.c);
 * or the plugin itself, over the driver that it is tested with (over/real.c). */
#ifndef TSR_TEST_LATE_H
#define TSR_TEST_LATE_H

#include "tessera/backend.h"

struct tsr_registry;
/* Once, before all else. */
tsr_status late_use(struct tsr_registry *r, struct tsr_err *err);
/* A backend on device 0; the stand-in is told of its memory.  late_close() ends it. */
tsr_status late_open(void **self, struct tsr_err *err);
void       late_close(void *self);
/* Its table; with other_device, one that is said to be on another device. */
const struct tsr_backend_v1 *late_table(void);
void                         late_elsewhere(int other_device);
/* Launches that failed on a stream. */
int late_failed(void);
/* Allocations and frees of memory of devices so far, those of the transport included. */
uint64_t late_taken(void);

#endif
