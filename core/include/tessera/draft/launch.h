/* tessera/draft/launch.h - launch: kernels of other plugins on a backend's device.  Draft: an optional table of a
 * backend, "tessera.backend.launch/1"; it may change until it leaves this folder.
 *
 * A backend implements it so that a quantizer's own kernel (tessera/draft/kernel_device.h) runs in the device's memory,
 * between the backend's operations.  Without the table such products run in the host's memory.
 *
 * Example: the address of a tensor's first number.
 *
 *     static uint64_t address_of(const struct tsr_backend_launch_v1 *t, const void *self,
 *                                const struct tsr_tensor *x)
 *     {
 *         return t->address(self, x->buffer) + x->offset;
 *     }
 */
#ifndef TSR_DRAFT_LAUNCH_H
#define TSR_DRAFT_LAUNCH_H

#include "tessera/backend.h"
#include "tessera/draft/kernel_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_LAUNCH "tessera.backend.launch/1"

struct tsr_backend_launch_v1 {
    uint32_t    struct_size;
    uint32_t    reserved;
    const char *target; /* of tsr_device_code: "cuda" */

    /* All kernels of the code, so that none is loaded by its first launch.  TSR_E_DEVICE: the device does not take the
     * image, or it has no such kernel; TSR_E_INVAL: what the code states is out of range.  [worker] */
    tsr_status (*load)(void *self, const struct tsr_device_code *code, void **loaded,
                       struct tsr_err *err);
    void (*unload)(void *self, void *loaded); /* accepts NULL; waits for its launches  [worker] */

    /* Of the buffer's first byte, a multiple of 256.  [any] */
    uint64_t (*address)(const void *self, const void *buffer);

    /* Queues a launch.  TSR_E_INVAL if it is out of range.  [worker] */
    tsr_status (*launch)(void *self, void *stream, void *loaded, const struct tsr_device_launch *l,
                         struct tsr_err *err);

    /* Queues out [n, rows] = the sums of segments, as docs/decisions/numerics.md adds them, + bias [1, rows], which may be
     * NULL.  sums: [segments * n, rows], all tokens of a segment after the other; 1 to 8 segments; all F32.  out overlaps
     * nothing.  TSR_E_INVAL for other shapes, and for a view outside of its buffer.  [worker] */
    tsr_status (*segments)(void *self, void *stream, const struct tsr_tensor *sums,
                           uint32_t segments, const struct tsr_tensor *bias,
                           const struct tsr_tensor *out, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
