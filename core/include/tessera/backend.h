/* tessera/backend.h - component kind "tessera.backend/1": a device that holds
 * buffers and weights and runs the operations of a forward pass.
 *
 * The engine talks to its device only through this table.  Memory behind a
 * buffer may be unreadable from the host: only upload() and download() cross.
 * Work is queued on the stream that it is given and is in order there; the
 * host's view is consistent after sync().
 *
 * The arithmetic of every operation is fixed, to the bit, by
 * docs/decisions/numerics.md.  A backend that cannot keep it says so in its
 * properties and is used only under `numerics: fast`.
 */
#ifndef TSR_BACKEND_H
#define TSR_BACKEND_H

#include "tessera/format.h"
#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_BACKEND "tessera.backend/1"

/* A 2-D view on device memory: rows of `cols` elements, row_stride bytes
 * apart, starting `offset` bytes into `buffer` (a handle of buffer_alloc). */
struct tsr_tensor {
    uint32_t struct_size;
    uint32_t dtype;
    void    *buffer;
    uint64_t offset;
    uint64_t rows, cols;
    uint64_t row_stride;
};

/* How activations enter a LINEAR (docs/decisions/numerics.md). */
#define TSR_ACT_F32 0u
#define TSR_ACT_A16 1u /* rounded to BF16                              */
#define TSR_ACT_A8  2u /* int8, scales as the weight's format says (act8) */

#define TSR_NORM_RMS   0u
#define TSR_NORM_LAYER 1u

#define TSR_FUNC_SILU      0u
#define TSR_FUNC_GELU_TANH 1u
#define TSR_FUNC_GELU_ERF  2u
#define TSR_FUNC_RELU      3u

/* Operations.  T tokens; all activations F32 unless said; in[] as listed.
 * `out` never overlaps an input except where "in place" is said.
 *
 * LINEAR     out [T,N] = in0 [T,K] * W^T + in1 [1,N] (optional); weight, act
 * EMBED      out [T,H] = W[ids] * scale; in0 ids U32 [1,T]; weight
 * NORM       out [T,H]; in0 [T,H], in1 gain [1,H], in2 bias [1,H] or NULL;
 *            norm, eps, gain_offset (out = x^ * (gain + gain_offset) + bias);
 *            in place allowed
 * ROPE       out [T,heads*head_dim], in0 the same (in place allowed),
 *            in1 cos, in2 sin [T,rotary_dim/2]; pairs (i, i+rotary_dim/2) of
 *            each head; the rest of the head is copied; heads, head_dim
 * KV_STORE   out cache [rows, ...] at rows in1 U32 [1,T]; in0
 *            [T,kv_heads*head_dim]; kv_heads, head_dim.  Cache dtype F32 or F16:
 *            kv_heads*head_dim elements a row; I8: per head a F32 scale, then
 *            head_dim codes (row_stride bytes a row, heads 4+head_dim apart)
 * ATTENTION  out [T,heads*head_dim]; in0 q, the same; in1 K cache, in2 V cache
 *            as above; in3 U32 [T,2]: cache row of the sequence's position 0,
 *            and the token's position p; in4 ALiBi slopes [1,heads] or NULL.
 *            Attends to positions max(0,p+1-window)..p (window 0: all);
 *            heads, kv_heads, head_dim, scale, softcap (0: none)
 * ACT        out [T,F] = func(in0 [T,F]) * in1 [T,F] (optional); func; in place
 *            allowed (out = in0)
 * ADD        out [T,H] = in0 + in1; in place allowed (out = in0 or in1)
 * SCALE      out = in0 * scale, then, if softcap > 0, softcap * tanh(. / softcap);
 *            in place allowed
 * GATHER     out [M,H] = rows in1 U32 [1,M] of in0 [T,H]
 */
#define TSR_OP_LINEAR    1u
#define TSR_OP_EMBED     2u
#define TSR_OP_NORM      3u
#define TSR_OP_ROPE      4u
#define TSR_OP_KV_STORE  5u
#define TSR_OP_ATTENTION 6u
#define TSR_OP_ACT       7u
#define TSR_OP_ADD       8u
#define TSR_OP_SCALE     9u
#define TSR_OP_GATHER    10u

#define TSR_OP_INPUTS 5

struct tsr_op {
    uint32_t                 struct_size;
    uint32_t                 kind; /* TSR_OP_*                     */
    const struct tsr_tensor *out;
    const struct tsr_tensor *in[TSR_OP_INPUTS];
    const void              *weight; /* handle of weight_load()      */
    uint32_t                 act, norm, func, heads, kv_heads, head_dim, rotary_dim, window;
    float                    eps, gain_offset, scale, softcap;
};

/* A weight matrix in host memory, in a plain row-major layout of format.h.
 * Borrowed for the call.  A LINEAR over a part of the columns gives the part's
 * share of the sum, which over the parts adds up to the whole's, byte for byte,
 * in the order of docs/decisions/numerics.md. */
struct tsr_weight_desc {
    uint32_t                 struct_size;
    uint32_t                 reserved;
    const char              *name; /* for messages                 */
    const struct tsr_format *format;
    uint64_t                 rows, cols; /* N out features, K in features */
    const void              *codes;      /* rows * code_stride bytes     */
    const void              *meta;       /* rows * meta_stride bytes, or NULL */
    uint64_t                 code_stride, meta_stride;
    uint64_t                 segment; /* since minor 1: columns of a segment, a multiple of 32;
                                       * 0: 32 * ceil(cols / 256).  Set where this is a part of
                                       * a wider matrix, cut at its segments: at most 8 of them,
                                       * each of the width that it has in the whole */
};

struct tsr_backend_props {
    uint32_t    struct_size;
    uint32_t    deterministic; /* 1: keeps docs/decisions/numerics.md     */
    const char *device;        /* "cpu avx512 vnni", "NVIDIA H200"; static */
    uint64_t    memory_bytes;  /* of the device                           */
    uint64_t    free_bytes;    /* now                                     */
};

struct tsr_backend_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM, TSR_E_DEVICE.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self); /* [setup] */

    /* The caller sets struct_size.  [any] */
    tsr_status (*properties)(const void *self, struct tsr_backend_props *p, struct tsr_err *err);

    /* Device memory of `bytes` bytes, zeroed, aligned to 64.  The handle is
     * valid until buffer_free(), which accepts NULL.  [worker] */
    tsr_status (*buffer_alloc)(void *self, uint64_t bytes, void **buffer, struct tsr_err *err);
    void (*buffer_free)(void *self, void *buffer);

    /* Copies between host memory and a buffer; done on return.  A range that
     * does not lie inside the buffer is TSR_E_INVAL.  [worker] */
    tsr_status (*upload)(void *self, void *buffer, uint64_t offset, const void *src, uint64_t bytes,
                         struct tsr_err *err);
    tsr_status (*download)(void *self, const void *buffer, uint64_t offset, void *dst,
                           uint64_t bytes, struct tsr_err *err);

    /* Takes a weight matrix into device memory, in whatever layout suits the
     * kernels.  TSR_E_UNSUPPORTED for a format that it does not read: the host
     * then hands it the dequantized F32 matrix and says so.  The handle is
     * valid until weight_free(), which accepts NULL.  [worker] */
    tsr_status (*weight_load)(void *self, const struct tsr_weight_desc *w, void **weight,
                              struct tsr_err *err);
    void (*weight_free)(void *self, void *weight);
    uint64_t (*weight_bytes)(const void *self, const void *weight); /* [any] */

    /* Queues one operation on a stream (NULL: the default one).
     * TSR_E_UNSUPPORTED: the host runs it on the CPU and says so.
     * TSR_E_INVAL: a shape or dtype that the list above does not allow.  [worker] */
    tsr_status (*run)(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err);

    /* Waits for the stream.  [worker] */
    tsr_status (*sync)(void *self, void *stream, struct tsr_err *err);

    /* Optional; may be NULL.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
