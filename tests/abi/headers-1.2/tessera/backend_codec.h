/* tessera/backend_codec.h - backend codec: an optional table of a backend that codes messages of
 * activations in device memory, on a stream.  Its id is "tessera.backend.codec/1".
 *
 * A backend implements it.  The core calls it with the wire that a codec describes
 * (TSR_CODEC_WIRE).  With a transport that carries device memory (TSR_TRANSPORT_DEVICE), a sum over
 * ranks never passes through the host.  The bytes and sums are bit-identical to those of the codec,
 * except for the payload of a NaN that an addition gives.
 *
 * Example: one message, encoded at the start of a buffer.
 *
 *     static tsr_status encode_rows(const struct tsr_backend_v1 *b, void *self, const void *wire,
 *                                   const struct tsr_tensor *x, void *buffer, struct tsr_err *err)
 *     {
 *         const struct tsr_backend_codec_v1 *c = NULL;
 *         if (b->extension)
 *             c = (const struct tsr_backend_codec_v1 *)b->extension(self, TSR_BACKEND_CODEC);
 *         if (!c)
 *             return tsr_fail(err, TSR_E_UNSUPPORTED, "the backend codes no messages");
 *         return c->encode(self, NULL, wire, x, buffer, 0, err);
 *     }
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

    /* A stream in addition to the default one; run() and sync() take it too.  stream_close() waits
     * for it and accepts NULL.  [worker] */
    tsr_status (*stream_open)(void *self, void **stream, struct tsr_err *err);
    void (*stream_close)(void *self, void *stream);
    /* Work that is queued on `stream` later starts after all work already queued on `other` (NULL:
     * the default stream).  The call does not wait.  [worker] */
    tsr_status (*stream_behind)(void *self, void *stream, void *other, struct tsr_err *err);

    /* address(): the device address of the first byte of a buffer.  place(): a pointer that
     * identifies the device within the process, as in TSR_TRANSPORT_DEVICE.  [any] */
    void *(*address)(const void *self, const void *buffer);
    const void *(*place)(const void *self);

    /* Copies the description of a wire to the device; its lists are borrowed for the call.
     * TSR_E_UNSUPPORTED with the reason: the backend does not code this wire.  wire_free() waits
     * for operations that use the wire, and accepts NULL.  [worker] */
    tsr_status (*wire_load)(void *self, const struct tsr_codec_wire *w, void **wire,
                            struct tsr_err *err);
    void (*wire_free)(void *self, void *wire);

    /* Queue the coding of x, F32 [rows, cols] with the cols of the wire.  The message is rows *
     * row_bytes bytes of `buffer` from `offset`.  encode() writes every byte.  decode() writes x;
     * with `add` not 0 it computes x[i] = x[i] + decoded[i], one F32 addition each.  decode()
     * accepts any bytes.  A view outside its buffer is TSR_E_INVAL.  [worker] */
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
