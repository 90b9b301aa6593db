/* k_args.h - arguments of kernel launches, and the layout of a weight in device memory.
 *
 * A weight is stored in panels of 32 rows: lane = row. Columns go by steps of 32, so that each lane of a warp
 * reads its row's step at once and the warp's reads are contiguous. A step of `bits` takes 128 * bits bytes
 * of a panel:
 *   32     8 vectors [32 lanes][16 bytes]: four F32 each
 *   16     4 vectors: eight F16 or BF16 each
 *   8      2 vectors: 16 codes each, in order
 *   2..7   planes by powers of two, high to low, one per set bit of the bit width:
 *          4 bits  [lane][4 words]  word j/2 of columns 4j..4j+3: code 4j+i in byte i, the low
 *                                   nibble for even j, the high one for odd
 *          2 bits  [lane][2 words]  word j/4: bits 2(j%4).. of byte i
 *          1 bit   [lane][1 word]   bit j of byte i
 *          The planes of a code, put together from the lowest bit: the first plane lowest.
 * Rows and columns past the end are zero bytes. docs/formats/cuda-panels.md draws it.
 */
#ifndef TSR_CUDA_K_ARGS_H
#define TSR_CUDA_K_ARGS_H

#include <stdint.h>

#define K_PANEL    32u   /* rows of a panel */
#define K_STEP     32u   /* columns of a step */
#define K_HALF     16u   /* of half a step: groups may begin there */
#define K_SEGMENTS 8u    /* at most, docs/decisions/numerics.md */
#define K_BLOCK    128u  /* columns of an activation block, counted inside a segment */
#define K_HADAMARD 8192u /* columns of a run of HADAMARD, at most: they are in shared memory */
#define K_GEMM     64u   /* tokens of a tile of the GEMM kernels */
/* most tokens of a block on matrix units whose weights have minimums */
#define K_TILE_MINIMUMS 16
#define K_ZERO_MOST     112u /* largest zero point of k_tile8_zero */
#define K_CUT_BLOCKS                                                                               \
    26u /* blocks of activations of a segment of k_tile8_cut and k_tile8_fine, at most */
/* Bytes of shared memory that launches ask for: of k_tile16_* and k_tile32_*, and of k_block_int. */
#define K_TILE_SHARED  65536u
#define K_BLOCK_SHARED 229248u
/* k_flash*: queries and threads of a block.  Its shared memory: two tiles of keys and values in F16, or one and two of int8; 256 columns also have their queries. */
#define K_FLASH_ROWS    64u
#define K_FLASH_THREADS 128u
#define K_FLASH_SHARED(dim)                                                                        \
    ((dim) > 128u ? (4u * 32u + 64u) * (2u * (dim) + 16u) : 4u * 64u * (2u * (dim) + 16u))
#define K_HALF_SHARED 65536u /* of k_half* */
#define K_HALF_LUT    4u     /* bits of tables of each row that k_half* have room for */
#define K_DENSE_COLS  512u   /* columns of a block of k_dense */
#define K_DIGITS      5      /* at most: fp8_e5m2 has 57344 * 2^16 units */

/* What a code means. */
#define K_ROPE_ADJACENT 1u /* TSR_ROPE_ADJACENT: columns 2i and 2i + 1 rotate together */

#define K_FLOAT 0u /* bits 32: F32; bits 16: F16, or BF16 with `bf16` */
#define K_INT   1u /* (code - zero) * scale; with `affine` code * scale + minimum */
#define K_LUT   2u /* table[row][code], then outliers */
#define K_MX    3u /* table[code] * scale: tessera.mx/1, and tessera.table/1 of up to 4 bits */

/* Layout of scales: [panel][group][32]. */
#define K_SCALE_F32     0u
#define K_SCALE_F16     1u
#define K_SCALE_E8      2u /* a byte b: 2^(b - 127); 255: NaN */
#define K_SCALE_LEVELS  3u /* a byte less `bias`, times a factor */
#define K_SCALE_NIBBLES 4u /* the same of the low nibble; the high one is that of the minimum */
#define K_SCALE_E4M3    5u /* a byte, E4M3, over a divisor */

struct k_weight {
    uint64_t codes, scales;
    uint64_t minimums; /* affine, unless NIBBLES: as the scales */
    uint64_t factors;  /* LEVELS, NIBBLES: [panel][record][32] F16, affine: [2][32], of scales, of
                        * minimums; E4M3: [panel][32] F32 */
    uint64_t zeros;    /* [panel][group][32] bytes; 0: all are `mid` */
    uint64_t table;    /* LUT: [panel][entries][32] F32; MX: [256] F32 */
    uint64_t table8;   /* LUT: [panel][entries][32] int8; MX: [digits][256] int8 */
    uint64_t unit;     /* LUT, MX: [panels * 32] F32, the scale of table8 */
    uint64_t column, value, delta; /* outliers of LUT: [panels * 32][outliers] U32, F32, F32 */
    uint64_t rows, cols;
    uint32_t kind, bits, bf16, scale_kind, mid;
    uint32_t segment, segments; /* columns of one; how many */
    uint32_t group, groups;     /* columns of one; group is cols where there is one */
    uint32_t regular;           /* groups begin on steps; 2: on halves of them; 0: anywhere */
    uint32_t affine;            /* INT: there are minimums */
    uint32_t records, record_shift, bias; /* of LEVELS and NIBBLES: 2^record_shift groups each */
    uint32_t entries, outliers;
    uint32_t digits;    /* of table8, to base 128, lowest first; 1 but for small floats of MX */
    float    threshold; /* LLM.int8; 0: no outliers */
};

/* out [T,N] = x [T,K] * W^T + bias. */
struct k_linear {
    struct k_weight w;
    uint64_t        x, ldx;   /* F32, elements between rows */
    uint64_t        out, ldo; /* F32 */
    uint64_t        bias;     /* or 0 */
    uint64_t        q, ldq;   /* a8: int8, rows of whole steps */
    uint64_t        sa;       /* [T][blocks]; LLM: [T] */
    uint64_t        found;    /* LLM: U32 [T], how many outliers a token has */
    uint32_t        tokens, blocks;
    uint32_t        vector; /* x and its rows are aligned to 16 bytes */
    uint32_t        none;   /* launches are compared byte by byte: no hole at the end */
};

/* int8 activations: for LUT, MX and INT by blocks; for LLM one scale a token. */
struct k_quantize {
    uint64_t x, ldx, q, ldq, sa, found;
    uint32_t tokens, cols, segment, blocks, per_segment; /* blocks of a whole segment */
    float    threshold;
};

struct k_embed {
    struct k_weight w;
    uint64_t        ids, out, ldo;
    uint32_t        tokens;
    float           scale;
};

/* Rows of n elements; strides in elements. */
struct k_rows {
    uint64_t out, a, b, c;
    uint64_t out_stride, a_stride, b_stride, c_stride;
    uint64_t n;
    uint32_t rows, kind, heads, head_dim, rotary_dim;
    float    eps, offset, scale, softcap;
    uint32_t none; /* as in k_linear */
};

/* Sums of segments, [segments][rows], into rows; strides in numbers; bias 0: none. */
struct k_segments {
    uint64_t out, sums, bias;
    uint64_t out_stride, sums_stride, sums_segment;
    uint64_t n; /* numbers of a row */
    uint32_t rows, segments;
};

/* One token per row; strides in bytes. */
struct k_kv_store {
    uint64_t cache, x, rows;
    uint64_t cache_stride, x_stride;
    uint64_t cache_bytes; /* from the cache's first row to the end of its last one */
    uint32_t tokens, kv_heads, head_dim, dtype;
};

/* Operations that follow each other in one launch: step.cu, fuse.c. */

#define K_STEP_THREADS 1024u /* of a block of k_norm_step, at most */

/* NORM; before it the ADD whose sum it takes, if add.out, and after it k_quantize of its rows, if q.q. */
struct k_norm_step {
    struct k_rows     add, norm;
    struct k_quantize q;
};

/* ACT, then k_quantize of its rows. */
struct k_act_step {
    struct k_rows     act;
    struct k_quantize q;
};

/* Some of one input and kernel in one launch: blocks [first[i], first[i + 1]) of the grid's first axis are those
 * of each[i]; first is UINT32_MAX where there is none.
 *
 * end, if end.q.q: ACT of all their outputs and k_quantize of its rows.  A block of threads counts itself in `done`, U32
 * [tiles of tokens][end.q.blocks], which are 0 before and after; the last of a block of activations does it. */
#define K_LINEARS    3u    /* queries, keys, values */
#define K_DONE       4096u /* of `done` */
#define K_END_TOKENS 64u   /* with `end`, at most */
struct k_linears {
    struct k_linear   each[K_LINEARS];
    uint32_t          first[K_LINEARS], n;
    struct k_act_step end;
    uint64_t          done;
};

/* For some heads ROPE, if rope.out, then KV_STORE, if store.cache, of the same rows if both. */
struct k_head_part {
    struct k_rows     rope;
    struct k_kv_store store;
};
#define K_HEAD_PARTS 3u /* queries, keys, values */
struct k_heads_step {
    struct k_head_part part[K_HEAD_PARTS];
    uint32_t           parts, none; /* none: as in k_linear */
};

struct k_attention {
    uint64_t q, k, v, out, spans, slopes, sinks;
    uint64_t q_stride, k_stride, v_stride, out_stride, span_stride; /* bytes */
    uint64_t scores;        /* [tokens][heads][256 blocks] F32 */
    uint64_t tops;          /* [tokens][heads][2 blocks]: the largest score of 128 positions */
    uint64_t den;           /* [tokens][heads] */
    uint64_t partial;       /* [tokens][heads][blocks][head_dim] */
    uint32_t first, tokens; /* of the operation's tokens: this launch's */
    uint32_t dtype, heads, kv_heads, head_dim, window, blocks;
    uint32_t tile;          /* tokens of a block of threads */
    uint32_t chunks, share; /* parts of a KV head's query heads; heads of a part, at most */
    uint32_t q_copy, k_copy, v_copy; /* heads are copied by 16 bytes, by 4, or by 1 element */
    uint32_t first_blocks; /* of k_values: blocks of threads in front, for the denominators */
    uint32_t none;         /* as in k_linear */
    float    scale, softcap;
};

#define K_COMBINE 1024u /* columns of a block of threads of k_combine_step, at most */

/* The end of attention, then k_quantize of its rows: a block of threads has `unit` columns, which are whole heads and
 * `blocks` blocks of activations; the last one may have fewer. */
struct k_combine_step {
    struct k_attention attention;
    struct k_quantize  q;
    uint32_t           unit, blocks;
};

/* Rows of F32 to F16 or BF16 and, after a product, back: dense.cu. */
struct k_narrow {
    uint64_t x, ldx; /* F32 [tokens][cols] */
    uint64_t y, ldy; /* 16 bits; columns from cols to ldy become 0 */
    uint64_t scale;  /* F32 [tokens]: the factor of a row of the product */
    uint64_t cols;
    uint32_t bf16, a16; /* a16: rounded to BF16 first */
};

/* Rows [first, first + 32 * panels) of a weight, widened and narrowed to 16 bits. */
struct k_dense {
    struct k_weight w;
    uint64_t        y, ldy;
    uint64_t        first_panel;
    uint32_t        bf16, none;
};

/* The element of `mx` and how its numbers are rounded. */
struct k_mx {
    uint32_t rounding, rule; /* TSR_WIRE_*, TSR_WIRE_SCALE_* */
    uint32_t sign, mant,
        max; /* the sign's bit, bits of the mantissa, the largest magnitude's code */
    uint32_t special, infinite; /* codes from `special` on are NaN, but for `infinite` */
    int32_t  emin, emax, lim;   /* lim: of the scale's exponent, in both directions */
};

/* Rows of F32 to a message or back: codec.cu.  Numbers of elements as kernels/encode/kernel.h has them. */
struct k_wire {
    uint64_t x, ldx; /* F32, elements between rows */
    uint64_t wire, row_bytes;
    uint64_t rows, cols;
    uint64_t block, scale_bytes, tile; /* MX: columns; bytes of a row's scales; columns of a tile */
    uint64_t feature, place, factor;   /* SCALED: lists; factor is inv or scale */
    uint64_t kept;
    uint32_t dtype, bits, aligned, add; /* aligned: codes of a row begin on words, or elements do */
    uint32_t scale_bits;
    struct k_mx mx;
};

/* to = the lower triangle of `from`, F32 [n,n] in rows; above it zeros, or with `mirror` its reflection.
 * to may be from.  diagonal: n floats, or 0. */
struct k_triangle {
    uint64_t from, ldf, to, ldt, n, diagonal;
    uint32_t mirror, none;
};

/* y = A v, F64 by F32 [n,n], symmetric. */
struct k_symv {
    uint64_t a, lda, v, y, n;
};

/* out [T,N] = (x [T,K] * scale[T]) * W^T + bias, x in F16 or BF16 as k_narrow writes it, without scale[] in BF16. */
struct k_half_linear {
    struct k_weight w;
    uint64_t        x, ldx; /* elements between rows, whole steps */
    uint64_t        scale;
    uint64_t        out, ldo; /* F32 */
    uint64_t        bias;     /* or 0 */
    uint32_t        tokens, bf16;
};

/* The best tokens of rows of logits: sample.cu.  A key is a logit and its id, so that the largest key is the largest
 * logit, of equal ones the lowest id. */
#define K_CANDIDATES      256u  /* of a row, at most; threads of a block; parts of a row, at most */
#define K_CANDIDATES_PART 1024u /* logits of a block */
#define K_CANDIDATES_ROWS 64u
struct k_candidates {
    uint64_t logits, ld; /* F32, elements between rows */
    uint64_t keys;       /* U64 [rows][parts][most]: of each part its best, in order */
    uint64_t
        heads; /* [rows][parts]: F32 sum of exp((x - the part's largest) * inverse), U32 not finite */
    uint64_t out; /* U64 [rows][1 + most]: the same of the row, then its best keys in order */
    uint32_t vocab, rows, parts, most;
    float    inverse[K_CANDIDATES_ROWS]; /* 1 / temperature; 0: no sum */
};

/* Error compensation: compensation.cu. */
#define K_CHUNK     1024u /* TSR_COMPENSATE_CHUNK */
#define K_BUCKETS   32u   /* TSR_COMPENSATE_BUCKETS */
#define K_RESIDUALS 6u    /* TSR_COMPENSATE_LINEARS */
#define K_PIECE     128u  /* bytes of a row that a block takes */

/* list [n][ldl]: a count, then that many channels of row rows[i] of x. */
struct k_select {
    uint64_t x, ldx, rows, list, ldl; /* rows: U32, or 0: all */
    uint32_t cols, per;               /* per: of a whole chunk */
    float    below[K_BUCKETS];        /* the next floats under the floors */
};

/* A linear's rows of codes in pinned memory of the host, of whole pieces; its outputs. */
struct k_residual {
    uint64_t codes, stride, outputs;
    uint64_t scales;      /* F16 [outputs], on the device; 0: all are 1 */
    uint64_t out, ldo;    /* F32 */
    uint32_t bits, first; /* first: pieces of the linears before */
};
struct k_compensate {
    struct k_residual linear[K_RESIDUALS];
    uint64_t          x, ldx, rows, list, ldl; /* as of k_select */
    uint32_t          cols, n, pieces, room;   /* n linears; channels that a list has room for */
};

/* out = out * scale[token] + bias; bias 0: none. */
struct k_finish {
    uint64_t out, ldo, scale, bias, cols;
    uint32_t tokens, none;
};

#endif
