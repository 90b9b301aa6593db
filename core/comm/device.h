/* comm/device.h - sums of numbers in device memory: coded there, sent between devices and added there, on
 * one stream. Messages, order and additions are those of a sum in host memory, so ranks of either kind
 * interoperate.
 */
#ifndef TSR_COMM_DEVICE_H
#define TSR_COMM_DEVICE_H

#include "comm/internal.h"
#include "tessera/backend_codec.h"

/* The wire of one encoder's messages. */
struct tsr_comm_wire_key {
    const struct tsr_comm_coder *coder;
    uint64_t                     cols;
    uint32_t                     second, slice, site, source;
};
struct tsr_comm_wire {
    struct tsr_comm_wire_key key; /* coder NULL: free */
    void                    *wire;
    bool                     owned; /* false: another entry has it */
};

struct tsr_comm_device {
    const struct tsr_backend_v1       *backend;
    void                              *self;
    const struct tsr_backend_codec_v1 *codec;
    void                              *stream;
    void                              *room, *floats; /* buffers */
    uint64_t                           room_bytes, n_floats;
    uint64_t                           send[TSR_COMM_SLOTS][2], recv[TSR_COMM_SLOTS][2];
    struct tsr_comm_wire              *wires; /* a hash table */
    uint64_t                           n_wires, cap_wires;
    bool                               unusable;                 /* for every codec */
    bool                               no_wire[TSR_COMM_PHASES]; /* for this one */
};

/* x's sum by an open coder, if the device can compute it; else *done is false, nothing was sent, and the
 * log gives the reason once. */
tsr_status tsr_comm_device_run(struct tsr_comm_group *g, uint32_t phase, uint32_t site,
                               const struct tsr_backend_v1 *backend, void *self,
                               const struct tsr_tensor *x, bool *done, struct tsr_err *err);
/* Wires and memory for sums of at most [rows, cols] at the sites [first, end). */
tsr_status tsr_comm_device_reserve(struct tsr_comm_group *g, uint32_t phase,
                                   const struct tsr_backend_v1 *backend, void *self, uint64_t rows,
                                   uint64_t cols, uint32_t first, uint32_t end,
                                   struct tsr_err *err);
void       tsr_comm_device_close(struct tsr_comm_device *d); /* NULL is fine */

/* wires.c. The wire of m's encoder, loaded on first use. TSR_E_UNSUPPORTED if the codec or the backend has
 * none. */
tsr_status tsr_comm_wire_find(struct tsr_comm_device *d, const struct tsr_comm_coder *c,
                              const struct tsr_comm_message *m, uint32_t source, void **wire,
                              struct tsr_err *err);
void       tsr_comm_wires_free(struct tsr_comm_device *d);

#endif
