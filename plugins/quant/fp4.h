/* plugins/quant/fp4.h - blocks of E2M1 numbers with a shared scale: NVFP4 (16 columns, E4M3 over an F32
 * divisor of the tensor, tessera.table/1) and MXFP4 (32 columns, a power of two, tessera.mx/1).  A block's
 * scale is that of its largest weight, or the candidate near it with the least weighted squared error.
 * Header only, as weights.h. */
#ifndef TSR_QUANT_FP4_H
#define TSR_QUANT_FP4_H

#include "weights.h"

enum { WT_FP4_NONE, WT_FP4_NV, WT_FP4_MX };

#define WT_FP4_TOP   6.0f   /* largest number of E2M1 */
#define WT_E4M3_TOP  448.0f /* and of E4M3            */
#define WT_E4M3_LAST 126    /* its code               */
#define WT_NV_REACH  8      /* codes of E4M3 on both sides of a scale that are tried: a binade */

static const float wt_e2m1[16] = {
    0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6
};

/* The code next to x, ties to the even code; beyond the largest number it saturates. */
static inline float wt_e2m1_code(float x)
{
    float a = x < 0.0f ? -x : x;
    a = a < WT_FP4_TOP ? a : WT_FP4_TOP;
    float step = a < 2.0f ? 0.5f : a < 4.0f ? 1.0f : 2.0f;
    float from = a < 2.0f ? 0.0f : a < 4.0f ? 2.0f : 4.0f;
    float n = (a / step + 0x1.8p23f) - 0x1.8p23f; /* to the nearest whole number, ties to even */
    n = n + from;
    return x < 0.0f && n > 0.0f ? n + 8.0f : n;
}

/* Positive numbers of E4M3. */
static inline float wt_e4m3(unsigned code)
{
    unsigned e = code >> 3, m = code & 7u;
    return e ? ldexpf((float)(8u + m), (int)e - 10) : ldexpf((float)m, -9);
}

/* The code next to x >= 0, ties to even, saturating. */
static inline unsigned wt_e4m3_code(float x)
{
    int e;
    if (!(x < WT_E4M3_TOP))
        return WT_E4M3_LAST;
    (void)frexpf(x, &e);
    e = e < -5 || x == 0.0f ? -5 : e; /* x < 2^e; steps of 2^(e-4) */
    float n = rintf(ldexpf(x, 4 - e));
    return (unsigned)((e + 5) * 8) + (unsigned)n;
}

/* A tensor's grid. */
struct wt_fp4 {
    int   kind;    /* WT_FP4_NV, WT_FP4_MX */
    float divisor; /* NV: of the scales    */
};

static inline struct tsr_format wt_fp4_format(int kind)
{
    struct tsr_format f = {
        .id = TSR_FORMAT_MX, .bits = 4, .group = 32, .element = TSR_MX_FP4_E2M1, .scale_bits = 8
    };
    if (kind == WT_FP4_NV) {
        f.id = TSR_FORMAT_TABLE;
        f.group = 16;
        f.element = TSR_MX_FP8_E4M3;
        memcpy(f.table, wt_e2m1, sizeof wt_e2m1);
    }
    return f;
}

static inline uint64_t wt_fp4_meta_bytes(int kind, uint64_t cols)
{
    struct tsr_format f = wt_fp4_format(kind);
    return kind == WT_FP4_NV ? tsr_format_table_meta_bytes(&f, cols)
                             : tsr_format_mx_meta_bytes(&f, cols);
}

/* The grid of a tensor whose largest magnitude is `largest`: then its block has the largest scale. */
static inline struct wt_fp4 wt_fp4_of(int kind, float largest)
{
    float d = largest > 0.0f ? WT_E4M3_TOP * WT_FP4_TOP / largest : 1.0f;
    return (struct wt_fp4){ .kind = kind, .divisor = wt_min(d, 0x1p120f) };
}

/* What a scale's byte stands for. */
static inline float wt_fp4_scale(const struct wt_fp4 *q, unsigned code)
{
    return q->kind == WT_FP4_NV ? wt_e4m3(code) / q->divisor : ldexpf(1.0f, (int)code - 127);
}

/* sum v (w - w^)^2 of a block under a scale; v NULL: 1. */
static inline double wt_fp4_error(const float *w, const float *v, uint64_t n, float scale)
{
    double sum = 0.0;
    for (uint64_t k = 0; k < n; k++) {
        float  value = scale > 0.0f ? wt_e2m1[(int)wt_e2m1_code(w[k] / scale)] * scale : 0.0f;
        double d = (double)w[k] - (double)value;
        sum += (v ? (double)v[k] : 1.0) * (d * d);
    }
    return sum;
}

/* The scale of plain rounding: NV: the largest weight over 6; MX: OCP's, the exponent of the largest. */
static inline unsigned wt_fp4_plain(const struct wt_fp4 *q, const float *w, uint64_t n)
{
    float largest = 0.0f;
    int   e;
    for (uint64_t k = 0; k < n; k++)
        largest = wt_max(largest, fabsf(w[k]));
    if (q->kind == WT_FP4_NV)
        return wt_e4m3_code(largest / WT_FP4_TOP * q->divisor);
    (void)frexpf(largest, &e); /* largest < 2^e */
    e = largest > 0.0f ? e - 1 - 2 + 127 : 0;
    return e > 0 ? (unsigned)e : 0;
}

/* The byte of a block's scale: of the candidates the first with the least error, plain rounding first. */
static inline unsigned wt_fp4_search(const struct wt_fp4 *q, const float *w, const float *v,
                                     uint64_t n)
{
    unsigned plain = wt_fp4_plain(q, w, n), best = plain;
    int      reach = q->kind == WT_FP4_NV ? WT_NV_REACH : 1;
    int      last = q->kind == WT_FP4_NV ? WT_E4M3_LAST : 254;
    double   least = wt_fp4_error(w, v, n, wt_fp4_scale(q, plain));
    for (int i = (int)plain - reach; i <= (int)plain + reach; i++) {
        double error;
        if (i < 0 || i > last || i == (int)plain)
            continue;
        error = wt_fp4_error(w, v, n, wt_fp4_scale(q, (unsigned)i));
        if (error < least) {
            least = error;
            best = (unsigned)i;
        }
    }
    return best;
}

/* Meta of a row from the bytes of its blocks. */
static inline void wt_fp4_meta(const struct wt_fp4 *q, uint64_t cols, const uint8_t *scales,
                               unsigned char *meta)
{
    struct tsr_format f = wt_fp4_format(q->kind);
    uint64_t          head = q->kind == WT_FP4_NV ? sizeof q->divisor : 0;
    memset(meta, 0, wt_fp4_meta_bytes(q->kind, cols));
    memcpy(meta, &q->divisor, head);
    memcpy(meta + head, scales, tsr_format_groups(&f, cols));
}

/* dequantize() of both.  The job's scratch holds a row's codes. */
static inline tsr_status wt_dequantize_fp4(const struct tsr_quant_job *job, int kind)
{
    struct tsr_format f = wt_fp4_format(kind);
    uint64_t          cols = job->dst->cols, code_bytes = tsr_format_int_code_bytes(&f, cols);
    uint64_t          meta_bytes = wt_fp4_meta_bytes(kind, cols);
    uint8_t          *codes = job->scratch;
    for (uint64_t r = 0; r < job->dst->rows; r++) {
        float *dst = (float *)(void *)((char *)job->dst->data + r * job->dst->row_stride);
        const unsigned char *meta = (const unsigned char *)job->meta + r * meta_bytes;
        struct wt_fp4        q = { .kind = kind };
        if (kind == WT_FP4_NV) {
            memcpy(&q.divisor, meta, sizeof q.divisor);
            meta += sizeof q.divisor;
        }
        wt_unpack(codes, (const unsigned char *)job->codes + r * code_bytes, cols, f.bits);
        for (uint64_t k = 0; k < cols; k++)
            dst[k] = wt_e2m1[codes[k]] * wt_fp4_scale(&q, meta[k / f.group]);
    }
    return TSR_OK;
}

#endif
