/* tessera/codec.h - codec: the form of a message of activations on a wire.  The component kind is
 * "tessera.codec/1".
 *
 * The plugin implements struct tsr_codec_v1.  The core calls it, passes the bytes to a transport,
 * and adds the decoded rows in rank order.  A codec turns rows of F32 into bytes and back; it moves
 * nothing and sums nothing across ranks.  The number of bytes depends only on the shape and the
 * options.
 *
 *   create -> [observe ... freeze, or load] -> wire_bytes, encode, decode -> destroy
 *
 * Example: one message, encoded into memory of wire_bytes() bytes and decoded in place.
 *
 *     static tsr_status pass_through(const struct tsr_codec_v1 *c, const void *self, float *x,
 *                                    uint64_t rows, uint64_t cols, void *wire, struct tsr_err *err)
 *     {
 *         struct tsr_codec_job job = { .struct_size = sizeof job, .rows = rows, .cols = cols };
 *         tsr_status st = c->wire_bytes(self, rows, cols, &job.wire_bytes, err);
 *         if (st != TSR_OK)
 *             return st;
 *         job.src = x;
 *         job.wire = wire;
 *         st = c->encode(self, &job, err);
 *         job.src = NULL;
 *         job.dst = x;
 *         return st == TSR_OK ? c->decode(self, &job, err) : st;
 *     }
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

/* extension(self, TSR_CODEC_COUPLED) is not NULL if the decoded values of a row depend on other
 * rows of its message.  The host never splits a coupled message, and never uses the codec where the
 * bytes of a record must not depend on other records. */
#define TSR_CODEC_COUPLED "tessera.codec.coupled/1"

/* extension(self, TSR_CODEC_WIRE), optional: a struct tsr_codec_wire_v1.  It describes the wire
 * as data, so that a device can code messages in its memory without code of the codec.  A wire
 * has independent rows of row_bytes bytes.  The kind defines a row to the bit
 * (docs/formats/codecs.md). */
#define TSR_CODEC_WIRE "tessera.codec.wire/1"

#define TSR_WIRE_PLAIN  1u /* `plain`: cols elements of dtype                                */
#define TSR_WIRE_MX     2u /* `mx`: scales, then codes                                       */
#define TSR_WIRE_SCALED 3u /* `int4_bf16`: some features in BF16, then codes under static scales */

/* Rounding of an element. */
#define TSR_WIRE_NEAREST 0u /* half away from zero */
#define TSR_WIRE_EVEN    1u /* half to even        */
#define TSR_WIRE_FLOOR   2u /* toward zero         */

/* How the largest magnitude A of a block gives its scale.  FLOOR: floor(log2 A) minus floor(log2
 * M), with M the largest number of the element.  EVEN: as FLOOR, with A first rounded to the
 * mantissa of the element.  CEIL: the smallest scale that covers A. */
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
    /* The wire of messages of `cols` columns that rank `source` encodes at `site`.  The caller
     * zeroes w and sets struct_size.  The codec owns the lists, which live until destroy().
     * Errors: those of encode(), and TSR_E_UNSUPPORTED if no wire matches the options.  [any] */
    tsr_status (*wire)(const void *self, uint32_t site, uint32_t source, uint64_t cols,
                       struct tsr_codec_wire *w, struct tsr_err *err);
};

/* extension(self, TSR_CODEC_STREAM), optional: a struct tsr_codec_stream_v1.  A codec with it carries
 * something from one message of a stream to the next, such as the error of its rounding.  It keeps
 * that in tsr_codec_job.state, memory of the host with one state for each stream and each end of it. */
#define TSR_CODEC_STREAM "tessera.codec.stream/1"

/* What a stream is, so which messages must come in their order.  PASS: messages of one source and
 * the same rows at ascending sites, in one pass of the model.  A row depends on earlier messages of
 * this row alone.  REQUIRED: all messages of one source and site, and the rows of a message, one
 * token after the other.  The host refuses such a codec where the bytes of an answer must not depend
 * on what ran before. */
#define TSR_CODEC_ORDER_PASS     1u
#define TSR_CODEC_ORDER_REQUIRED 2u

/* Ends of a stream. */
#define TSR_CODEC_ENCODES 0u
#define TSR_CODEC_DECODES 1u

struct tsr_codec_stream_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* TSR_CODEC_ORDER_*, a function of the options.  [any] */
    uint32_t (*order)(const void *self);
    /* Exact bytes of the state at an end of a stream of messages of this shape; 0: this end needs
     * none.  With ORDER_REQUIRED the bytes do not depend on rows.  A state begins as zero bytes and
     * holds no pointer, so a copy of it continues elsewhere.  Errors: those of wire_bytes().  [any] */
    tsr_status (*state_bytes)(const void *self, uint32_t end, uint64_t rows, uint64_t cols,
                              uint64_t *bytes, struct tsr_err *err);
};

/* One message: its shape, its source and its exchange.  The caller owns every buffer. */
struct tsr_codec_job {
    uint32_t     struct_size;
    uint32_t     source;   /* the rank of the group that encodes it      */
    uint32_t     site;     /* which exchange: 2*layer (attention), +1 (MLP) */
    uint32_t     reserved; /* zero                                       */
    uint64_t     rows, cols;
    const float *src;        /* encode(), observe(): [rows, cols] dense    */
    float       *dst;        /* decode(): written; decode_add(): added to  */
    void        *wire;       /* wire_bytes; encode() writes every byte     */
    uint64_t     wire_bytes; /* the answer of wire_bytes()                 */
    /* ABI minor 1.  For TSR_CODEC_STREAM: the state of this end of the stream, read and written, at
     * a multiple of 64, or NULL.  Without it each row is coded as the first of a stream.  A message has a state at every
     * end that needs one, or at none.  Calls with the same state never overlap. */
    void *state;
};

struct tsr_codec_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* opts: the option struct of the component, already checked.  destroy() accepts NULL.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* TSR_CODEC_EXACT or TSR_CODEC_LOSSY, a function of the options.  [any] */
    uint32_t (*exactness)(const void *self);

    /* The bytes of a message of this shape.  TSR_E_UNSUPPORTED with the reason: the codec cannot
     * carry the shape.  [any] */
    tsr_status (*wire_bytes)(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                             struct tsr_err *err);

    /* Equal bytes decode to bit-identical floats on every rank.  The codec's page defines the
     * result for NaN and Inf.  Bytes that no encode() wrote decode to some numbers, NaN among them,
     * or give TSR_E_INVAL with a sentence and an undefined dst.  The result is equal each time, and
     * no access is outside the job.  The transport protects a message against damage.  [any] */
    tsr_status (*encode)(const void *self, const struct tsr_codec_job *job, struct tsr_err *err);
    tsr_status (*decode)(const void *self, const struct tsr_codec_job *job, struct tsr_err *err);
    /* dst[i] = dst[i] + decoded[i], one F32 addition each.  [any] */
    tsr_status (*decode_add)(const void *self, const struct tsr_codec_job *job,
                             struct tsr_err *err);

    /* Calibration; all five are NULL in a codec without it.  observe() reads one message, freeze()
     * ends the calibration.  save() writes state_bytes() bytes, and load() reads them, possibly in
     * another process.  [setup] */
    tsr_status (*observe)(void *self, const struct tsr_codec_job *job, struct tsr_err *err);
    tsr_status (*freeze)(void *self, struct tsr_err *err);
    uint64_t (*state_bytes)(const void *self);
    tsr_status (*save)(const void *self, void *state, struct tsr_err *err);
    tsr_status (*load)(void *self, const void *state, uint64_t bytes, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
