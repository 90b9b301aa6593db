/* gptq.h - declarations shared by the files of the gptq plugin.
 *
 * Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
 * Transformers", ICLR 2023: columns are quantized one after the other, and the error of each is
 * spread over the remaining columns with the inverse Hessian of the inputs.
 *
 * Rows are processed in tiles of GPTQ_LANES rows, transposed to [column][lane], so that a step over
 * one column is one vector operation over rows, and the update from a block of columns to the rest
 * is one matrix product.  Rows are independent, so the tiling does not affect the bytes.
 */
#ifndef TSR_GPTQ_H
#define TSR_GPTQ_H

#include "../affine.h"
#include "../fp4.h"

#include <tessera/linalg.h>
#include <tessera/quantizer_report.h>

#define GPTQ_LANES  64u
#define GPTQ_SQUARE 64u /* rows and columns of a matrix that fit in a cache together */

/* A loop over lanes is compiled for the baseline and for AVX2, from one inline body: each lane has the
 * same operations.  GPTQ_CALL() picks one. */
#define GPTQ_INLINE static inline __attribute__((always_inline))
#ifdef __x86_64__
#define GPTQ_FOR_AVX2(name, params, args)                                                          \
    __attribute__((target("avx2"))) static void name##_avx2 params                                 \
    {                                                                                              \
        name args;                                                                                 \
    }
#define GPTQ_CALL(q, name, args) ((q)->avx2 ? name##_avx2 args : name args)
#else
#define GPTQ_FOR_AVX2(name, params, args)
#define GPTQ_CALL(q, name, args) name args
#endif

enum { GPTQ_PARAMS_AUTO, GPTQ_PARAMS_RANGE, GPTQ_PARAMS_WEIGHTED };

struct gptq {
    const struct tsr_host *host;
    struct wt_rule         rule;
    uint64_t               group;    /* 0: the whole row                                      */
    int                    weighted; /* parameters by the importance of the columns           */
    int                    dynamic;  /* parameters when the group's first column is reached   */
    int                    act_order;
    double                 damp;
    uint64_t               refine, block;
    double                 alpha; /* part of the correction for inputs that differ; 0: none */
    int                    avx2;  /* whether loops over lanes run on it                     */
};

/* What the linears of one site share. */
struct gptq_site {
    const struct tsr_linalg_v1 *la;
    uint64_t                    cols, bytes; /* bytes: of this struct and its arrays, one block */
    float                       ridge;       /* added to the diagonal                           */
    double                      damping;     /* ridge / mean of the diagonal                    */
    uint64_t                    retries;
    float                      *factor; /* [cols, cols] L: H^-1 = L L^T, columns in `order`      */
    int                         held;   /* factor, on the device of the linear algebra          */
    float                      *shift;  /* [cols, cols] w + shift w replaces w; NULL: w stays  */
    int                         shift_held; /* as held                                      */
    float                      *weight; /* [cols] 1 / (H^-1)_kk, 0 for a dead column             */
    uint64_t                   *order;  /* [cols] column at each place                           */
};

/* A tile of at most GPTQ_LANES rows; arrays are in the job's scratch.  Lanes without a row contain
 * zeros and a scale of 1. */
struct gptq_tile {
    const struct gptq       *q;
    const struct gptq_site  *site;
    const float             *hessian;
    const struct tsr_matrix *src;
    uint64_t                 first, rows, n_row; /* first row in src; row in the tensor      */
    uint64_t                 cols, groups, width;
    float                   *w;     /* [cols][lane] weights, dead columns 0                   */
    float                   *e;     /* [cols][lane] work, then the error w - w^               */
    int                      held;  /* e, on the device of the linear algebra                 */
    uint8_t                 *codes; /* [cols][lane]                                           */
    float                   *scale; /* [groups][lane]                                         */
    float                   *zero; /* [groups][lane] zero point, minimum, or byte of an FP4 scale */
    struct wt_fp4            grid;
    float                   *side;   /* [block][lane] errors or gradients of a block           */
    float                   *before; /* [block][lane] a part of the gradients, for the loss   */
    float                   *tri;    /* [block][block] diagonal block of the factor, transposed */
    float                   *row;    /* [cols]                                                 */
    uint8_t                 *out;    /* [cols]                                                 */
    struct wt_params        *p;      /* [groups] of one row                                    */
    unsigned char           *spare;  /* the meta of a row                                      */
    unsigned char           *meta;   /* of the tile's first row, in the job                    */
};

static inline const float *gptq_at(const float *a, uint64_t k)
{
    return a + k * GPTQ_LANES;
}

/* The nearest whole number within 0..maxq after a shift, ties to even.  A NaN becomes a code too (its loss
 * is NaN, which is refused). */
GPTQ_INLINE float gptq_code(float x, float zero, float maxq)
{
    x = x > -1024.0f ? x : -1024.0f;
    x = x < 1024.0f ? x : 1024.0f;
    x = (x + 0x1.8p23f) - 0x1.8p23f;
    x = x + zero;
    x = x > 0.0f ? x : 0.0f;
    return x < maxq ? x : maxq;
}

/* Values of the codes of one column over all lanes: the same operations as wt_value(). */
GPTQ_INLINE void gptq_value(const struct wt_rule *q, float *restrict value,
                            const float *restrict code, const float *restrict scale,
                            const float *restrict zero)
{
    if (q->fp4)
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            value[r] = wt_e2m1[(int)code[r]] * scale[r];
    else if (q->minimum)
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            value[r] = code[r] * scale[r] + zero[r];
    else
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            value[r] = (code[r] - zero[r]) * scale[r];
}

/* Codes of one column over all lanes, as floats, and their values: the same operations as
 * wt_code_nearest(). */
GPTQ_INLINE void gptq_round(const struct wt_rule *q, float *restrict code, float *restrict value,
                            const float *restrict t, const float *restrict scale,
                            const float *restrict zero)
{
    float maxq = (float)((1 << q->bits) - 1);
    if (q->fp4)
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            code[r] = scale[r] > 0.0f ? wt_e2m1_code(t[r] / scale[r]) : 0.0f;
    else if (q->minimum)
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            code[r] = gptq_code((t[r] - zero[r]) / scale[r], 0.0f, maxq);
    else
        for (uint32_t r = 0; r < GPTQ_LANES; r++)
            code[r] = gptq_code(t[r] / scale[r], zero[r], maxq);
    gptq_value(q, value, code, scale, zero);
}

/* site.c: prepare() and its inverse */
tsr_status gptq_site_create(const struct gptq *q, const struct tsr_quant_stats *stats,
                            struct gptq_site **out, struct tsr_err *err);
void       gptq_site_destroy(const struct gptq *q, struct gptq_site *s);

/* shift.c: s->shift from s->factor and the cross term; NULL if the inputs do not differ */
tsr_status gptq_shift_create(const struct gptq *q, struct gptq_site *s, const float *cross,
                             struct tsr_err *err);
/* The tile's target weights into t->w, dead columns included. */
tsr_status gptq_shift_load(struct gptq_tile *t, struct tsr_err *err);

/* factor.c: s->factor holds the damped Hessian in reversed order; L in its place */
tsr_status gptq_factorize(const struct gptq *q, const struct gptq_site *s, struct tsr_err *err);

/* params.c: whether loops over lanes run on AVX2, which TSR_ISA=scalar leaves out; scales and zero points */
int        gptq_has_avx2(void);
tsr_status gptq_load(struct gptq_tile *t, struct tsr_err *err);
tsr_status gptq_params_weighted(struct gptq_tile *t, struct tsr_err *err);
/* t->p from scales and minimums of a row. */
void gptq_row_params(const struct gptq_tile *t, uint64_t lane);
/* Rounds scales and minimums to their codes under the factors of a record, and writes the meta. */
tsr_status gptq_params_codes(struct gptq_tile *t, struct tsr_err *err);
/* fp4.c: the grid of the whole tensor; scales of blocks; rtn's errors of a row; a row's meta */
struct wt_fp4 gptq_fp4_grid(const struct gptq *q, const struct tsr_matrix *w, float *row);
tsr_status    gptq_fp4_params(struct gptq_tile *t, struct tsr_err *err);
void          gptq_fp4_nearest(const struct gptq_tile *t, uint64_t lane);
void          gptq_fp4_meta(const struct gptq_tile *t, uint64_t lane, unsigned char *meta);

/* Group g from the current columns of t->e (natural order). */
tsr_status gptq_params_dynamic(struct gptq_tile *t, uint64_t g, struct tsr_err *err);

/* columns.c: the pass over the columns; leaves codes, and w - w^ in t->e */
tsr_status gptq_columns(struct gptq_tile *t, struct tsr_err *err);
/* refine.c: sweeps of coordinate descent over the codes; then the loss, unless it is NULL */
tsr_status gptq_refine(struct gptq_tile *t, double *loss, struct tsr_err *err);
/* pack.c: row `lane` of the tile into its bytes */
void gptq_pack(const struct gptq_tile *t, const struct tsr_format *f, uint64_t lane,
               unsigned char *codes, unsigned char *meta);
/* loss.c: e H e^T of every lane for the errors in t->e; rounding to nearest instead of GPTQ */
tsr_status gptq_loss(struct gptq_tile *t, double *loss, struct tsr_err *err);
tsr_status gptq_loss_block(struct gptq_tile *t, uint64_t begin, uint64_t n, float *side,
                           double *loss, struct tsr_err *err);
void       gptq_nearest(struct gptq_tile *t);

/* Whether a device with separate memory runs the linear algebra. */
static inline int gptq_can_hold(const struct tsr_linalg_v1 *la)
{
    return TSR_HAS(struct tsr_linalg_v1, la, hold) && TSR_HAS(struct tsr_linalg_v1, la, drop);
}

/* Whether it also accepts parts of a held range. */
static inline int gptq_can_move(const struct tsr_linalg_v1 *la)
{
    return gptq_can_hold(la) && TSR_HAS(struct tsr_linalg_v1, la, fetch) &&
           TSR_HAS(struct tsr_linalg_v1, la, push);
}

/* Copies positions [begin, end) of e from the device, to read or write them here; and back, for
 * products to read.  A no-op if e is not held. */
static inline tsr_status gptq_fetch(const struct gptq_tile *t, uint64_t begin, uint64_t end,
                                    struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    return t->held ? la->fetch(la->ctx, t->e + begin * GPTQ_LANES, (end - begin) * GPTQ_LANES, err)
                   : TSR_OK;
}
static inline tsr_status gptq_push(const struct gptq_tile *t, uint64_t begin, uint64_t end,
                                   struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    return t->held ? la->push(la->ctx, t->e + begin * GPTQ_LANES, (end - begin) * GPTQ_LANES, err)
                   : TSR_OK;
}

static inline struct tsr_format gptq_format(const struct gptq *q)
{
    if (q->rule.fp4)
        return wt_fp4_format(q->rule.fp4);
    if (q->rule.minimum)
        return wt_affine_format(q->rule.bits, q->group, q->rule.scale_bits, q->rule.scale_dtype);
    return (struct tsr_format){ .id = TSR_FORMAT_INT,
                                .bits = q->rule.bits,
                                .zero = q->rule.symmetric ? TSR_ZERO_MID : TSR_ZERO_STORED,
                                .group = q->group,
                                .scale_dtype = q->rule.scale_dtype };
}

static inline uint64_t gptq_meta_bytes(const struct gptq *q, uint64_t cols)
{
    struct tsr_format f = gptq_format(q);
    return q->rule.fp4       ? wt_fp4_meta_bytes(q->rule.fp4, cols)
           : q->rule.minimum ? tsr_format_affine_meta_bytes(&f, cols)
                             : tsr_format_int_meta_bytes(&f, cols);
}

static inline uint64_t gptq_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
