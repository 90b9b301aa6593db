/* tessera/backend_codec.h - optional table of a backend, "tessera.backend.codec/1": messages of
 * activations coded where they lie, on a stream, from the plain data by which a codec describes its
 * wire (TSR_CODEC_WIRE).  Together with a transport that carries device memory
 * (TSR_TRANSPORT_DEVICE) a sum over ranks never passes through the host.
 *
 * What is written is what the codec itself would write or add, to the bit, but for the payload of a
 * NaN that an addition gives.
 */
#ifndef TSR_BACKEND_CODEC_H
#define TSR_BACKEND_CODEC_H

#include "tessera/backend.h"
#include "tessera/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_CODEC "tessera.backend.codec/1"

struct tsr_backend_codec_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* A stream beside the default one, for run() and sync() too; close() waits for it and accepts
     * NULL.  [worker] */
    tsr_status (*stream_open)(void *self, void **stream, struct tsr_err *err);
    void (*stream_close)(void *self, void *stream);
    /* What is queued on `stream` from now on comes after what has been queued on `other` (NULL: the
     * default stream).  Does not wait.  [worker] */
    tsr_status (*stream_behind)(void *self, void *stream, void *other, struct tsr_err *err);

    /* The device's address of a buffer's first byte, and what tells the device from others in the
     * process: as TSR_TRANSPORT_DEVICE has them.  [any] */
    void *(*address)(const void *self, const void *buffer);
    const void *(*place)(const void *self);

    /* Takes a wire, whose lists are borrowed for the call, onto the device.  TSR_E_UNSUPPORTED with
     * the reason for one that it does not code.  wire_free() waits for what uses it and accepts
     * NULL.  [worker] */
    tsr_status (*wire_load)(void *self, const struct tsr_codec_wire *w, void **wire,
                            struct tsr_err *err);
    void (*wire_free)(void *self, void *wire);

    /* Queue the coding of x [rows, cols], F32, cols those of the wire, to or from rows * row_bytes
     * bytes of `buffer` from `offset` on.  encode() writes every byte; decode() writes x, or with `add`
     * does x[i] = x[i] + decoded[i], one F32 addition each.  Any bytes have a meaning.  A view that
     * does not lie inside its buffer is TSR_E_INVAL.  [worker] */
    tsr_status (*encode)(void *self, void *stream, const void *wire, const struct tsr_tensor *x,
                         void *buffer, uint64_t offset, struct tsr_err *err);
    tsr_status (*decode)(void *self, void *stream, const void *wire, const void *buffer,
                         uint64_t offset, const struct tsr_tensor *x, int32_t add,
                         struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
