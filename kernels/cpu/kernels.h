/* kernels.h - the functions that exist once per instruction set, and the layouts they read.
 *
 * A weight is stored in panels of PANEL output rows, so that vector lanes are rows and no sum crosses
 * lanes. Rows past the end are zero. docs/formats/cpu-panels.md draws the layouts.
 */
#ifndef TSR_CPU_KERNELS_H
#define TSR_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "extra.h"
#include "tessera/format.h"

#define PANEL      32u  /* rows in a panel                              */
#define SEGMENTS   8u   /* most segments of docs/decisions/numerics.md  */
#define BLOCK      128u /* columns that share an activation scale       */
#define DIRECT_MAX 4u   /* most tokens that the GEMV form takes         */
#define TOKENS_MAX 96u  /* most tokens per call of linear and linear_a8 */
#define GROUP      4u   /* most panels per call */
#define PAD        32u  /* int8 activations are padded with zeros to this many columns */

enum tsr_cpu_layout {
    W_F32,  /* [panel][k][32] F32                                        */
    W_F16,  /* [panel][k][32] F16                                        */
    W_BF16, /* [panel][k][32] BF16                                       */
    /* packed codes: [panel][k/step][2][vectors][16 rows][4 k], see k_codes.h */
    W_I8,  /* step  4, 1 vector: one byte each                          */
    W_I6,  /* step 16, 3 vectors                                        */
    W_I5,  /* step 32, 5 vectors: as W_I4, and one of fifth bits        */
    W_I4,  /* step  8, 1 vector: low nibble k, high nibble k+4          */
    W_I3,  /* step 32, 3 vectors                                        */
    W_I2,  /* step 16, 1 vector: two bits of k, k+4, k+8, k+12          */
    W_TAB, /* codes that are looked up, extra.h                         */
    W_FPX  /* as W_I8: small floats, the sign on top, extra.h           */
};

/* Codes of one byte or less with a scale per group. */
static inline int cpu_packed(enum tsr_cpu_layout l)
{
    return l >= W_I8 && l <= W_I2;
}
/* Columns that are stored together, and the bytes of 16 rows of them. */
static inline uint32_t cpu_step(enum tsr_cpu_layout l)
{
    return l == W_I8 ? 4 : l == W_I4 ? 8 : l == W_I3 || l == W_I5 ? 32 : 16;
}
static inline uint32_t cpu_unit(enum tsr_cpu_layout l)
{
    return l == W_I5 ? 320 : l == W_I3 || l == W_I6 ? 192 : 64;
}

/* Bytes of a table that are less are stored from 0 on, and products of words take them. */
#define CPU_LOW_BYTE 64

/* Codes of tessera.table/1 that mean an entry of its table. */
static inline int cpu_looked_up(enum tsr_cpu_layout l)
{
    return l == W_I4 || l == W_I3 || l == W_I2;
}

/* How the scales and minimums of tessera.int/2 are stored. */
enum tsr_cpu_affine {
    AFFINE_NONE,   /* tessera.int/1: no minimums                              */
    AFFINE_STORED, /* scales, minimums: [panel][group][32] of scale_f16       */
    AFFINE_BYTES,  /* scales, minimums: [panel][group][32] bytes, times factors */
    AFFINE_NIBBLES /* scales: the same, the minimum's code above the scale's    */
};

/* How the scales of tessera.table/1 are stored. */
enum tsr_cpu_mapped {
    MAPPED_NONE,    /* not that layout                                       */
    MAPPED_STORED,  /* scales: [panel][group][32] of scale_f16                */
    MAPPED_BYTES,   /* scales: the same of bytes, less `bias`, times factors  */
    MAPPED_ELEMENTS /* scales: bytes of E4M3, over factors: [panel][32] F32   */
};

/* Columns of one weight group, one segment and one activation block. */
struct tsr_cpu_run {
    uint32_t k0, k1, group, block, segment;
};

struct tsr_cpu_weight {
    enum tsr_cpu_layout layout;
    uint32_t            scale_f16; /* scales are F16, else F32                  */
    uint64_t            rows, cols, panels;
    uint64_t            seg, nseg; /* columns of a segment; segments            */
    uint64_t            nblocks;   /* activation blocks                         */
    uint64_t            group, groups;
    uint64_t            nruns;
    struct tsr_cpu_run *runs;
    uint32_t            aligned;                /* all runs begin on a step of the codes     */
    uint32_t            mid;                    /* the zero point where zeros is NULL        */
    uint64_t            panel_bytes;            /* of codes                                  */
    uint8_t            *codes, *scales, *zeros; /* scales, zeros: [panel][group][32] */
    enum tsr_cpu_affine affine;
    uint32_t            record_shift; /* log2 of the groups that share factors */
    uint64_t            records;
    /* factors: [panel][record][2][32] F16; of tables without the [2] */
    uint8_t            *minimums, *factors;
    enum tsr_cpu_mapped mapped;
    int32_t             bias;
    float               unit;     /* a8: of table8 less `mid` */
    uint32_t            low_byte; /* of tables of up to 4 bits: its largest entry less its least */
    uint32_t            straight; /* entries follow each other: codes are table8 */
    float               table[TSR_TABLE_ENTRIES]; /* values of codes */
    uint8_t             table8[64];               /* a8: 16 bytes, four times */
    uint8_t            *data;                     /* the allocation that holds them */
    uint64_t            data_bytes;
    uint32_t            borrowed; /* data is the host's, read only */

    struct tsr_cpu_extra extra; /* extra.h; zero for the rest */
};

struct tsr_cpu_linear {
    const struct tsr_cpu_weight *w;
    uint64_t                     tokens;
    const float                 *x; /* [tokens][ldx]                             */
    uint64_t                     ldx;
    const float                 *xpack; /* per tile of `tokens` (see tile): [k][tile]; or NULL */
    const int8_t                *q;     /* [tokens][ldq], zero past cols             */
    uint64_t                     ldq;   /* a multiple of PAD                         */
    /* per TOKENS_MAX tokens, segment and tile8: [k/4][tokens of the tile][4], or as tile_words.h has it; or NULL */
    const int8_t *qpack;
    const float  *sa; /* [nblocks][tokens]                         */
    /* [nruns][tokens]: minus the sum of q, times mid without zeros; of affine weights the sum */
    const int32_t *sums;
    const int32_t *starts; /* the same, if tile_words.h has them, else NULL */
    const float   *bias;   /* [rows] or NULL                            */
    float         *out;    /* [tokens][ldo]                             */
    uint64_t       ldo;
};

#define CPU_TILE_QUERIES 32u  /* of a tile of tokens */
#define CPU_TILE_DIM     256u /* columns of a head there */
/* Floats of a query head: scores, two sums of values, a denominator. */
#define CPU_ATTENTION_SCRATCH(positions, head_dim)                                                 \
    (((positions) + 47) / 16 * 16 + ((uint64_t)(head_dim) + 15) / 16 * 32 + 16)

struct tsr_cpu_attention {
    const uint8_t *q, *k, *v; /* bytes; k and v at the cache's row 0      */
    uint8_t       *out;
    const uint8_t
        *spans; /* per token: first row, position, of TSR_Q4_CHANNEL the tail's row (U32 each) */
    uint64_t     q_stride, k_stride, v_stride, out_stride, span_stride;
    const float *slopes, *sinks; /* [heads] or NULL                  */
    uint32_t     dtype;          /* of keys: values of TSR_Q4_CHANNEL are TSR_Q4 */
    uint32_t     heads, kv_heads, head_dim, window;
    float        scale, softcap;
};

struct tsr_cpu_kernels {
    const char                          *name;
    const struct tsr_cpu_linalg_kernels *linalg; /* linalg.h */
    const struct tsr_cpu_extra_kernels  *extra;  /* extra.h */
    uint32_t                             tile;   /* tokens that share a tile in the GEMM form */
    uint32_t                             tile8;  /* the same for int8 activations */
    /* n elements; b may be NULL; out may be a */
    void (*act)(float *out, const float *a, const float *b, uint64_t n, uint32_t func);
    /* TSR_FUNC_CLAMPED; out may be a */
    void (*clamped)(float *out, const float *a, const float *b, uint64_t n, float alpha,
                    float limit);
    void (*add)(float *out, const float *a, const float *b, uint64_t n);
    void (*scale)(float *out, const float *a, uint64_t n, float scale, float softcap);
    /* out [n] = the sum over j < k of weight[j] times row[j] of x, whose rows are `stride` bytes apart */
    void (*mix)(float *out, const void *x, uint64_t stride, const float *weight,
                const uint32_t *row, uint64_t k, uint64_t n);
    /* one row of n; bias may be NULL; out may be x */
    void (*norm)(float *out, const float *x, const float *gain, const float *bias, uint64_t n,
                 uint32_t kind, float eps, float gain_offset);
    /* one token; out may be x */
    void (*rope)(float *out, const float *x, const float *cosine, const float *sine, uint32_t heads,
                 uint32_t head_dim, uint32_t rotary_dim, bool adjacent);
    /* n numbers, n / base a power of two; sign [base] rows `stride` numbers apart; out may be x */
    void (*hadamard)(float *out, const float *x, uint64_t n, uint64_t base, const float *sign,
                     uint64_t stride);
    /* one cache row of `dtype` */
    void (*kv_store)(void *row, const float *x, uint32_t dtype, uint32_t heads, uint32_t head_dim);
    /* a block of keys of TSR_Q4_CHANNEL from the tail of its sequence */
    void (*kv_block)(void *block, const void *tail, uint32_t heads, uint32_t head_dim);
    /* one token and n KV heads with all their query heads; scores: scratch of n * heads / kv_heads *
     * CPU_ATTENTION_SCRATCH floats */
    void (*attention)(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                      uint64_t n, float *scores);
    /* `tokens` of them, whose queries are at most CPU_TILE_QUERIES, of at most CPU_TILE_DIM columns; successive ones
     * of one sequence share keys and values.  scores: scratch of tokens * heads / kv_heads *
     * CPU_ATTENTION_SCRATCH floats, of the positions of a token + tokens */
    void (*attention_tile)(const struct tsr_cpu_attention *a, uint64_t token, uint64_t tokens,
                           uint32_t kv_head, float *scores);
    /* n elements rounded to BF16 */
    void (*round_bf16)(float *out, const float *x, uint64_t n);
    /* one token's activations: q with its padding, one scale per block and one sum per run, as
     * tsr_cpu_linear describes them, `stride` elements apart */
    void (*quantize)(const struct tsr_cpu_weight *w, const float *x, int8_t *q, uint64_t ldq,
                     float *sa, int32_t *sums, uint64_t stride);
    /* m tokens of q, ldq apart, n columns (a multiple of 4), to [n/4][m][4] */
    void (*pack_q)(int8_t *dst, const int8_t *q, uint64_t ldq, uint64_t n, uint64_t m);
    /* tokens [t0,t1) (t0 on a tile, at most TOKENS_MAX) of np panels (at most GROUP) */
    void (*linear)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                   uint64_t t1);
    void (*linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                      uint64_t t1);
    uint32_t pair_tokens; /* 1 to DIRECT_MAX; of codes of more than 4 bits 1 */
    /* all tokens (at most pair_tokens) through the panels [panel, panel + n), each paired with the panel
     * at index + `apart`: two streams that read memory sequentially from call to call; runs begin on
     * steps, activations are plain rows */
    void (*pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n);
    /* `bits` wide codes of up to PANEL rows, `stride` bytes apart, to a whole panel of a packed layout;
     * rows past the last and columns past the last are zeros */
    void (*place)(enum tsr_cpu_layout l, uint8_t *panel, const uint8_t *codes, uint64_t stride,
                  uint64_t rows, uint64_t cols, uint32_t bits);
    /* the math functions alone, for tests: 0 exp, 1 tanh, 2 erf */
    void (*math)(float *out, const float *x, uint64_t n, uint32_t which);
    /* probes (tessera/draft/probe.h) */
    uint64_t (*probe_read)(const void *p, uint64_t bytes, uint32_t shape);
    float (*probe_fma)(uint64_t rounds);
    int32_t (*probe_dot)(uint64_t rounds);
};

extern const struct tsr_cpu_kernels tsr_cpu_kernels_scalar;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_avx2;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_avxvnni;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_vnni256;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_avx512;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_neon;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_dotprod;
extern const struct tsr_cpu_kernels tsr_cpu_kernels_i8mm;

#endif
