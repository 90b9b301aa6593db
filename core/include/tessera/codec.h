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

/* extension(self, TSR_CODEC_COUPLED) is not NULL where a row's decoded values depend on the other
 * rows of its message.  Such a message is never cut into pieces, nor used where a record's bytes
 * must not depend on its neighbours. */
#define TSR_CODEC_COUPLED "tessera.codec.coupled/1"

/* extension(self, TSR_CODEC_WIRE), optional: the codec's wire as plain data, so that a device can code
 * messages that lie in its memory; no code of the codec runs there.  A wire is rows of row_bytes bytes
 * each, rows are independent, and a kind says what a row is, to the bit, as docs/formats/codecs.md has it. */
#define TSR_CODEC_WIRE "tessera.codec.wire/1"

#define TSR_WIRE_PLAIN  1u /* `plain`: cols elements of dtype                                */
#define TSR_WIRE_MX     2u /* `mx`: scales, then codes                                       */
#define TSR_WIRE_SCALED 3u /* `int4_bf16`: some features in BF16, then codes under static scales */

#define TSR_WIRE_NEAREST 0u /* rounding: half away from zero, half to even, toward zero */
#define TSR_WIRE_EVEN    1u
#define TSR_WIRE_FLOOR   2u

/* How a block's scale follows from its largest magnitude A: floor(log2 A) less that of the element's
 * largest number; the same of A rounded to the element's mantissa; the smallest that covers A. */
#define TSR_WIRE_SCALE_FLOOR 0u
#define TSR_WIRE_SCALE_EVEN  1u
#define TSR_WIRE_SCALE_CEIL  2u

struct tsr_codec_wire {
    uint32_t        struct_size;
    uint32_t        kind;            /* TSR_WIRE_*                                              */
    uint64_t        cols, row_bytes; /* of a row                                                */
    uint32_t        same;            /* 1: the same for every site and source                   */
    uint32_t        dtype;           /* PLAIN: TSR_F32, TSR_BF16, TSR_F16                       */
    uint32_t        element;         /* MX: TSR_MX_*                                            */
    uint32_t        scale_bits;      /* MX: 4..8                                                */
    uint32_t        rounding;        /* MX: TSR_WIRE_NEAREST, ...                               */
    uint32_t        scale_rule;      /* MX: TSR_WIRE_SCALE_*                                    */
    uint64_t        block;           /* MX: columns that share a scale, more than 0             */
    uint32_t        bits;            /* SCALED: 2..8                                            */
    uint32_t        reserved;        /* zero                                                    */
    uint64_t        kept;            /* SCALED: features in BF16                                */
    const uint32_t *feature;         /* [kept] which, ascending                                 */
    const uint32_t *place;           /* [cols - kept] the feature at each place of the codes    */
    const float    *inv;             /* [cols - kept] code = rint(x * inv) within +-q, + q + 1  */
    const float    *scale; /* [cols - kept] back: (code - q - 1) * scale; q = 2^(bits-1) - 1 */
};

struct tsr_codec_wire_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* The wire of messages of `cols` columns that `source` encodes at `site`; the caller zeroes w and
     * sets struct_size.  Lists stay the codec's and live until destroy().  Errors are those of encode(),
     * and TSR_E_UNSUPPORTED where these options have no such wire.  [any] */
    tsr_status (*wire)(const void *self, uint32_t site, uint32_t source, uint64_t cols,
                       struct tsr_codec_wire *w, struct tsr_err *err);
};

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
     * Inf: as the codec's page says, never undefined.  Of bytes that no encode()
     * wrote decode() makes some numbers, NaN among them, or says TSR_E_INVAL with
     * a sentence, dst then undefined: the same each time, and nothing is read or
     * written outside of the job.  What guards a message against damage is the
     * transport.  [any] */
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
