/* tessera/backend.h - backend: a device that holds buffers and weights and runs the operations of a
 * forward pass.  The component kind is "tessera.backend/1".
 *
 * The plugin implements struct tsr_backend_v1.  The engine calls it, and reaches the device only
 * through this table.  The host may be unable to read the memory of a buffer; only upload() and
 * download() copy.  Operations on one stream run in order.  The host sees their results after
 * sync().
 *
 * docs/decisions/numerics.md defines the arithmetic of every operation to the bit.  A backend that
 * differs sets `deterministic` to 0, and the host uses it only under `numerics: fast`.
 *
 * Example: out = in + add, both F32 [rows, cols], read back into host memory.
 *
 *     static tsr_status add_rows(const struct tsr_backend_v1 *b, void *self,
 *                                const struct tsr_tensor *in, const struct tsr_tensor *add,
 *                                const struct tsr_tensor *out, float *dst, struct tsr_err *err)
 *     {
 *         struct tsr_op op = { .struct_size = sizeof op, .kind = TSR_OP_ADD, .out = out };
 *         op.in[0] = in;
 *         op.in[1] = add;
 *         tsr_status st = b->run(self, NULL, &op, err);
 *         if (st == TSR_OK)
 *             st = b->sync(self, NULL, err);
 *         return st != TSR_OK ? st
 *                             : b->download(self, out->buffer, out->offset, dst,
 *                                           out->rows * out->cols * 4, err);
 *     }
 */
#ifndef TSR_BACKEND_H
#define TSR_BACKEND_H

#include "tessera/format.h"
#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_BACKEND "tessera.backend/1"

/* A view of `rows` rows of `cols` elements in device memory.  `buffer` is a handle of
 * buffer_alloc().  The first row starts at byte `offset`, and rows are row_stride bytes apart.
 * Whoever makes the view keeps the buffer alive. */
struct tsr_tensor {
    uint32_t struct_size;
    uint32_t dtype;
    void    *buffer;
    uint64_t offset;
    uint64_t rows, cols;
    uint64_t row_stride;
};

/* The type of the input of a LINEAR (docs/decisions/numerics.md). */
#define TSR_ACT_F32 0u
#define TSR_ACT_A16 1u /* rounded to BF16                                         */
#define TSR_ACT_A8  2u /* int8; the format of the weight defines the scales (act8) */

#define TSR_NORM_RMS   0u
#define TSR_NORM_LAYER 1u

#define TSR_ROPE_HALVES   0u
#define TSR_ROPE_ADJACENT 1u

#define TSR_FUNC_SILU      0u
#define TSR_FUNC_GELU_TANH 1u
#define TSR_FUNC_GELU_ERF  2u
#define TSR_FUNC_RELU      3u
#define TSR_FUNC_CLAMPED   4u

/* Kinds of an operation, with shapes.  T: tokens.  Activations are F32 unless the list says
 * otherwise.  `out` overlaps an input only if the list says "in place".
 *
 * LINEAR     out [T,N] = in0 [T,K] * W^T + in1 [1,N] (optional); weight, act
 * EMBED      out [T,H] = W[ids] * scale; in0 ids U32 [1,T]; weight
 * NORM       out [T,H]; in0 [T,H], in1 gain [1,H], in2 bias [1,H] or NULL;
 *            norm, eps, gain_offset (out = x^ * (gain + gain_offset) + bias);
 *            in place allowed
 * ROPE       out [T,heads*head_dim], in0 the same (in place allowed),
 *            in1 cos, in2 sin [T,rotary_dim/2]; rotates pairs of each head and copies the
 *            rest of the head: (i, i+rotary_dim/2), or with func TSR_ROPE_ADJACENT
 *            (2i, 2i+1); heads, head_dim, rotary_dim
 * KV_STORE   out cache [rows, ...] at rows in1 U32 [1,T]; in0
 *            [T,kv_heads*head_dim]; kv_heads, head_dim.  Cache dtype F32 or F16:
 *            kv_heads*head_dim elements a row; I8, and since minor 1 E4M3 and Q4:
 *            heads of bytes as in kv_cache.h (row_stride bytes a row).  Cache dtype
 *            Q4_CHANNEL (since minor 1): in1 U32 [2,T], the rows and the first rows
 *            of the tails of their sequences
 * ATTENTION  out [T,heads*head_dim]; in0 q, the same; in1 K cache, in2 V cache
 *            as above, of one dtype, or Q4_CHANNEL and Q4; in3 U32 [T,2]: the cache
 *            row of position 0 of the sequence, and the position p of the token,
 *            and with Q4_CHANNEL [T,3]: the first row of the sequence's tail in the
 *            K cache; in4 ALiBi slopes [1,heads] or NULL, or (since minor 1) [2,heads]: the slopes, zeros for none, and sinks.
 *            A sink is one more logit of its head, not scaled and not capped, that
 *            takes part in the softmax and has no value: weights sum to less than 1.
 *            Attends to positions max(0,p+1-window)..p (window 0: all);
 *            heads, kv_heads, head_dim, scale, softcap (0: none)
 * ACT        out [T,F] = func(in0 [T,F]) * in1 [T,F] (optional); func; in place
 *            allowed (out = in0).  TSR_FUNC_CLAMPED (since minor 1) requires in1 and
 *            softcap > 0, and clamps before it multiplies: with g = min(in0, softcap)
 *            and u = in1 clamped to -softcap..softcap,
 *            out = g * sigmoid(scale * g) * (u + 1)
 * ADD        out [T,H] = in0 + in1; in place allowed (out = in0 or in1)
 * SCALE      out = in0 * scale, then, if softcap > 0, softcap * tanh(. / softcap);
 *            in place allowed
 * GATHER     out [M,H] = rows in1 U32 [1,M] of in0 [T,H], bit by bit
 * MIX        out [M,H]: row m is the sum over j < K of in1 [M,K] times row
 *            in2 U32 [M,K] of in0 [T,H], added in the order of j (since minor 1)
 * COLUMNS    out [T,N]: column n is column in1 U32 [1,N] of in0 [T,H], bit by bit (since
 *            minor 1)
 * HADAMARD   out [T,N], in0 the same (in place allowed): every run x of head_dim columns
 *            becomes x H / sqrt(head_dim), where H is the Kronecker product of in1 [b,b],
 *            of 1 and -1 (NULL: b = 1), and Sylvester's matrix of head_dim / b rows, a power
 *            of two.  b is at most 64 and head_dim divides N (since minor 1)
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
#define TSR_OP_MIX       11u
#define TSR_OP_COLUMNS   12u
#define TSR_OP_HADAMARD  13u

#define TSR_OP_INPUTS 5

/* The most rows of in1 of HADAMARD. */
#define TSR_HADAMARD_BASE 64

struct tsr_op {
    uint32_t                 struct_size;
    uint32_t                 kind; /* TSR_OP_*                     */
    const struct tsr_tensor *out;
    const struct tsr_tensor *in[TSR_OP_INPUTS];
    const void              *weight; /* handle of weight_load()      */
    uint32_t                 act, norm, func, heads, kv_heads, head_dim, rotary_dim, window;
    float                    eps, gain_offset, scale, softcap;
};

/* A weight matrix in host memory, in a plain row-major layout of format.h, borrowed for the call.
 * A LINEAR over some of the columns gives their share of each sum.  Added in the order of
 * docs/decisions/numerics.md, the shares are bit-identical to the LINEAR over all columns. */
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
                                       * 0: 32 * ceil(cols / 256).  The host sets it for a part of
                                       * a wider matrix, cut at its segments: at most 8, with the
                                       * width that they have in the whole matrix */
};

struct tsr_backend_props {
    uint32_t    struct_size;
    uint32_t    deterministic; /* 1: keeps docs/decisions/numerics.md    */
    const char *device;        /* "cpu avx512 vnni"; static              */
    uint64_t    memory_bytes;  /* of the device                          */
    uint64_t    free_bytes;    /* at the time of the call                */
};

struct tsr_backend_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* opts: the option struct of the component, already checked.  Returns TSR_OK, TSR_E_CONFIG,
     * TSR_E_NOMEM, TSR_E_DEVICE.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self); /* accepts NULL  [setup] */

    /* Fills *p; the caller sets p->struct_size.  [any] */
    tsr_status (*properties)(const void *self, struct tsr_backend_props *p, struct tsr_err *err);

    /* `bytes` bytes of zeroed device memory, aligned to 64.  The handle is valid until
     * buffer_free(), which accepts NULL.  TSR_E_NOMEM: the device has no room.  [worker] */
    tsr_status (*buffer_alloc)(void *self, uint64_t bytes, void **buffer, struct tsr_err *err);
    void (*buffer_free)(void *self, void *buffer);

    /* Copy `bytes` bytes between host memory and a buffer, complete on return.  A range outside the
     * buffer is TSR_E_INVAL.  [worker] */
    tsr_status (*upload)(void *self, void *buffer, uint64_t offset, const void *src, uint64_t bytes,
                         struct tsr_err *err);
    tsr_status (*download)(void *self, const void *buffer, uint64_t offset, void *dst,
                           uint64_t bytes, struct tsr_err *err);

    /* Copies a weight matrix into device memory, in a layout that the backend chooses.
     * TSR_E_UNSUPPORTED: the backend does not read the format.  The host then passes the
     * dequantized F32 matrix and logs that.  The handle is valid until weight_free(), which accepts
     * NULL.  [worker] */
    tsr_status (*weight_load)(void *self, const struct tsr_weight_desc *w, void **weight,
                              struct tsr_err *err);
    void (*weight_free)(void *self, void *weight);
    uint64_t (*weight_bytes)(const void *self, const void *weight); /* of device memory  [any] */

    /* Queues one operation on a stream; NULL is the default stream.  op and its tensors are
     * borrowed for the call, their buffers until sync().  TSR_E_UNSUPPORTED: the host runs the
     * operation on the CPU and logs that.  TSR_E_INVAL: the list above does not allow a shape or
     * dtype.  [worker] */
    tsr_status (*run)(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err);

    /* Waits until every operation of the stream has ended.  TSR_E_DEVICE: one of them failed.
     * [worker] */
    tsr_status (*sync)(void *self, void *stream, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
