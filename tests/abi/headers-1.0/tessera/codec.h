/* tessera/codec.h - component kind "tessera.codec/1": what a message of
 * activations looks like on a wire.
 *
 * A codec turns rows of F32 into wire bytes and back.  It moves nothing and
 * sums nothing across ranks: the core composes codec and transport and adds in
 * rank order.  Wire bytes depend on the shape and the options only.
 *
 *   create -> [observe ... freeze, or load] -> wire_bytes, encode, decode -> destroy
 */
#ifndef TSR_CODEC_H
#define TSR_CODEC_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_CODEC "tessera.codec/1"

#define TSR_CODEC_EXACT 0u /* decode(encode(x)) == x for every x, to the bit */
#define TSR_CODEC_LOSSY 1u

/* One message: rows x cols, where it comes from and which exchange it is of. */
struct tsr_codec_job {
    uint32_t     struct_size;
    uint32_t     source;   /* rank in the group that encoded it          */
    uint32_t     site;     /* which exchange: 2*layer (attention), +1 (MLP) */
    uint32_t     reserved; /* zero                                       */
    uint64_t     rows, cols;
    const float *src;        /* encode(), observe(): [rows, cols] dense    */
    float       *dst;        /* decode(): written; decode_add(): added to  */
    void        *wire;       /* wire_bytes; encode() writes every byte     */
    uint64_t     wire_bytes; /* as the codec answered                      */
};

struct tsr_codec_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* TSR_CODEC_EXACT or TSR_CODEC_LOSSY, a function of the options.  [any] */
    uint32_t (*exactness)(const void *self);

    /* Bytes of a message of this shape.  TSR_E_UNSUPPORTED with the reason for
     * a shape that it cannot carry.  [any] */
    tsr_status (*wire_bytes)(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                             struct tsr_err *err);

    /* Every rank that decodes the same bytes gets the same floats.  NaN and
     * Inf: as the codec's page says, never undefined.  [any] */
    tsr_status (*encode)(const void *self, const struct tsr_codec_job *job, struct tsr_err *err);
    tsr_status (*decode)(const void *self, const struct tsr_codec_job *job, struct tsr_err *err);
    /* dst[i] = dst[i] + decoded[i], one F32 addition each.  [any] */
    tsr_status (*decode_add)(const void *self, const struct tsr_codec_job *job,
                             struct tsr_err *err);

    /* Calibration; all NULL for a codec without any.  observe() sees messages,
     * freeze() ends it; save() writes state_bytes() bytes, load() takes them
     * back in another process.  [setup] */
    tsr_status (*observe)(void *self, const struct tsr_codec_job *job, struct tsr_err *err);
    tsr_status (*freeze)(void *self, struct tsr_err *err);
    uint64_t (*state_bytes)(const void *self);
    tsr_status (*save)(const void *self, void *state, struct tsr_err *err);
    tsr_status (*load)(void *self, const void *state, uint64_t bytes, struct tsr_err *err);

    /* Optional; may be NULL.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
