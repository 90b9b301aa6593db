/* plugins/quant/weights.h - helpers of all our quantizers to read weights and to write rows of
 * tessera.int/1: widened rows, scales, bit streams.  Header only, so that each plugin stays one
 * self-contained shared object. */
#ifndef TSR_QUANT_WEIGHTS_H
#define TSR_QUANT_WEIGHTS_H

#include <math.h>
#include <string.h>
#include <tessera/f16.h>
#include <tessera/quantizer.h>

/* Of two numbers neither of which is NaN; fminf() would be a call. */
static inline float wt_min(float a, float b)
{
    return a < b ? a : b;
}

static inline float wt_max(float a, float b)
{
    return a > b ? a : b;
}

/* Row r of w, widened to F32.  dtype is one that the plugin's src_dtypes allow. */
static inline void wt_row(float *dst, const struct tsr_matrix *w, uint64_t r)
{
    const unsigned char *src = (const unsigned char *)w->data + r * w->row_stride;
    if (w->dtype == TSR_F32) {
        memcpy(dst, src, w->cols * sizeof *dst);
        return;
    }
    for (uint64_t k = 0; k < w->cols; k++) {
        uint16_t h;
        memcpy(&h, src + 2 * k, sizeof h);
        dst[k] = w->dtype == TSR_F16 ? tsr_f16_f32(h) : tsr_bf16_f32(h);
    }
}

/* TSR_OK if a widened row is finite, else the sentence that names row and column. */
static inline tsr_status wt_check(const struct tsr_matrix *w, const float *row, uint64_t n_row,
                                  struct tsr_err *err)
{
    for (uint64_t k = 0; k < w->cols; k++)
        if (!isfinite(row[k]))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': row %llu column %llu is %s; only finite weights can be "
                            "quantized",
                            w->name ? w->name : "?", (unsigned long long)n_row,
                            (unsigned long long)k, isnan(row[k]) ? "NaN" : "infinite");
    return TSR_OK;
}

/* The mean square of each column of the inputs into v [cols]: how much the error of a column counts. */
static inline tsr_status wt_weigh(const struct tsr_quant_job *job, float *v, struct tsr_err *err)
{
    const struct tsr_quant_stats *s = job->stats;
    if (!s || !s->mean || !s->variance || s->cols != job->src->cols)
        return tsr_fail(err, TSR_E_INVAL, "the mean and variance of the inputs are missing");
    for (uint64_t k = 0; k < s->cols; k++) {
        v[k] = s->variance[k] + s->mean[k] * s->mean[k];
        if (!(v[k] >= 0.0f) || !isfinite(v[k]))
            return tsr_fail(
                err, TSR_E_NUMERIC,
                "the mean square of input column %llu is %g, not a finite number from 0",
                (unsigned long long)k, (double)v[k]);
    }
    return TSR_OK;
}

/* A scale rounded to dtype (TSR_F16 or TSR_F32) and widened again; 0 if the dtype cannot represent
 * it: infinite, zero, or, in F16, below the normal numbers. */
static inline float wt_scale_round(float scale, uint32_t dtype)
{
    if (!isfinite(scale) || scale <= 0.0f)
        return 0.0f;
    if (dtype == TSR_F32)
        return scale;
    float s = tsr_f16_f32(tsr_f32_f16(scale));
    return isfinite(s) && s >= 0x1p-14f ? s : 0.0f;
}

/* The scale of group g into a row's meta.  The value is one that wt_scale_round() gave. */
static inline void wt_scale_put(unsigned char *meta, uint64_t g, uint32_t dtype, float scale)
{
    if (dtype == TSR_F32) {
        memcpy(meta + 4 * g, &scale, 4);
    } else {
        uint16_t h = tsr_f32_f16(scale);
        memcpy(meta + 2 * g, &h, 2);
    }
}

static inline float wt_scale_get(const unsigned char *meta, uint64_t g, uint32_t dtype)
{
    float    f;
    uint16_t h;
    if (dtype == TSR_F32) {
        memcpy(&f, meta + 4 * g, 4);
        return f;
    }
    memcpy(&h, meta + 2 * g, 2);
    return tsr_f16_f32(h);
}

/* n codes of `bits` bits each as one little-endian bit stream, padded with zero bits. */
static inline void wt_pack(unsigned char *dst, const uint8_t *codes, uint64_t n, uint32_t bits)
{
    uint32_t acc = 0, have = 0;
    for (uint64_t k = 0; k < n; k++) {
        acc |= (uint32_t)codes[k] << have;
        for (have += bits; have >= 8; have -= 8, acc >>= 8)
            *dst++ = (unsigned char)acc;
    }
    if (have)
        *dst = (unsigned char)acc;
}

static inline void wt_unpack(uint8_t *codes, const unsigned char *src, uint64_t n, uint32_t bits)
{
    uint32_t acc = 0, have = 0, mask = (1u << bits) - 1u;
    for (uint64_t k = 0; k < n; k++) {
        for (; have < bits; have += 8)
            acc |= (uint32_t)*src++ << have;
        codes[k] = (uint8_t)(acc & mask);
        acc >>= bits;
        have -= bits;
    }
}

/* One row of tessera.int/1 back to F32; codes is scratch for cols bytes. */
static inline void wt_decode_row(float *dst, const unsigned char *code_row,
                                 const unsigned char *meta_row, const struct tsr_format *f,
                                 uint64_t cols, uint8_t *codes)
{
    uint64_t groups = tsr_format_groups(f, cols);
    uint64_t width = groups == 1 ? cols : f->group;
    uint64_t zeros = groups * (f->scale_dtype == TSR_F32 ? 4u : 2u);
    wt_unpack(codes, code_row, cols, f->bits);
    for (uint64_t g = 0; g < groups; g++) {
        float    scale = wt_scale_get(meta_row, g, f->scale_dtype);
        int      zero = f->zero == TSR_ZERO_STORED ? meta_row[zeros + g] : 1 << (f->bits - 1);
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end; k++)
            dst[k] = (float)((int)codes[k] - zero) * scale;
    }
}

/* dequantize() of every quantizer that writes tessera.int/1: the job's rows back to F32.  The job's
 * scratch holds a row's codes, job->dst->cols bytes. */
static inline tsr_status wt_dequantize_int(const struct tsr_quant_job *job,
                                           const struct tsr_format    *f)
{
    uint64_t cols = job->dst->cols;
    uint64_t code_bytes = tsr_format_int_code_bytes(f, cols);
    uint64_t meta_bytes = tsr_format_int_meta_bytes(f, cols);
    for (uint64_t r = 0; r < job->dst->rows; r++)
        wt_decode_row((float *)(void *)((char *)job->dst->data + r * job->dst->row_stride),
                      (const unsigned char *)job->codes + r * code_bytes,
                      (const unsigned char *)job->meta + r * meta_bytes, f, cols, job->scratch);
    return TSR_OK;
}

#endif
