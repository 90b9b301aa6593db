/* plugins/quant/affine.h - rows of tessera.int/2: codes between a minimum and minimum + scale *
 * (2^bits-1), with scales and minimums stored or as codes under two F16 factors.  What ranges.h finds
 * with `minimum` is rounded here to what the layout holds.  Header only, as weights.h. */
#ifndef TSR_QUANT_AFFINE_H
#define TSR_QUANT_AFFINE_H

#include "ranges.h"

#define WT_AFFINE_MOST 16u /* groups of a record */

/* The layout of a quantizer with `minimum: true`. */
static inline struct tsr_format wt_affine_format(uint32_t bits, uint64_t group, uint32_t scale_bits,
                                                 uint32_t scale_dtype)
{
    return (struct tsr_format){ .id = TSR_FORMAT_AFFINE,
                                .bits = bits,
                                .group = group,
                                .scale_bits = scale_bits,
                                .scale_dtype = scale_bits ? 0 : scale_dtype };
}

/* Combinations of options that the layout lacks; group: as the user wrote it. */
static inline tsr_status wt_affine_check(int minimum, int64_t group, int64_t scale_bits,
                                         struct tsr_err *err)
{
    int whole = group == -1;
    if (!minimum)
        return scale_bits == 0 ? TSR_OK
                               : tsr_fail(err, TSR_E_CONFIG,
                                          "scale_bits: codes of scales are of " TSR_FORMAT_AFFINE
                                          " alone; use minimum: true too");
    if (scale_bits != 0 && scale_bits != 4 && scale_bits != 6 && scale_bits != 8)
        return tsr_fail(err, TSR_E_CONFIG, "scale_bits: %lld is not 0, 4, 6 or 8",
                        (long long)scale_bits);
    if (group != 16 && group != 32 && group != 64 && group != 128 && !(whole && scale_bits == 0))
        return tsr_fail(err, TSR_E_CONFIG,
                        "group: with minimum: true 16, 32, 64 or 128 columns share a scale%s, not "
                        "%lld",
                        scale_bits ? "" : ", or -1: the whole row", (long long)group);
    return TSR_OK;
}

/* One level of a record, [n] numbers of at least 0: F16 factor and codes.  Rounds them to what is stored.
 * Numbers below `least` may become 0.  Returns 0 if F16 has no such factor. */
static inline int wt_affine_level(float *v, uint64_t n, uint32_t bits, float least,
                                  unsigned char *factor, unsigned char *codes)
{
    float    top = (float)((1u << bits) - 1u), largest = 0.0f;
    uint8_t  code[WT_AFFINE_MOST] = { 0 };
    uint16_t half;
    for (uint64_t i = 0; i < n; i++)
        largest = wt_max(largest, v[i]);
    half = tsr_f32_f16(largest / top);
    float d = tsr_f16_f32(half);
    if (!isfinite(d) || (d == 0.0f && largest != 0.0f && largest >= least))
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        code[i] = d == 0.0f ? 0 : (uint8_t)wt_max(wt_min(rintf(v[i] / d), top), 0.0f);
        v[i] = d * (float)code[i];
    }
    memcpy(factor, &half, sizeof half);
    wt_pack(codes, code, n, bits);
    return 1;
}

/* Record `at` of a row whose groups are p. */
static inline int wt_affine_record(const struct tsr_format *f, uint64_t groups, uint64_t at,
                                   struct wt_params *p, unsigned char *meta)
{
    uint64_t       each = TSR_AFFINE_SUPER / f->group, begin = at * each;
    uint64_t       n = groups - begin < each ? groups - begin : each;
    unsigned char *to = meta + at * tsr_format_affine_record_bytes(f);
    float          scale[WT_AFFINE_MOST] = { 0 }, minus[WT_AFFINE_MOST] = { 0 }, step = 0.0f;
    for (uint64_t i = 0; i < n; i++) {
        scale[i] = p[begin + i].scale;
        minus[i] = -p[begin + i].minimum;
        step = wt_max(step, scale[i]);
    }
    if (!wt_affine_level(scale, each, f->scale_bits, 0.0f, to, to + 4) ||
        !wt_affine_level(minus, each, f->scale_bits, step, to + 2,
                         to + 4 + tsr_format_affine_level_bytes(f)))
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        p[begin + i].scale = scale[i];
        p[begin + i].minimum = -minus[i];
    }
    return 1;
}

/* Writes the meta of one row and rounds the groups p to it.  The minimums are at most 0.  Returns the
 * first group whose scale or minimum it cannot hold, or the number of groups. */
static inline uint64_t wt_affine_meta(const struct tsr_format *f, uint64_t cols,
                                      struct wt_params *p, unsigned char *meta)
{
    uint64_t groups = tsr_format_groups(f, cols);
    memset(meta, 0, tsr_format_affine_meta_bytes(f, cols));
    for (uint64_t g = 0; f->scale_bits == 0 && g < groups; g++) {
        if (p[g].scale == 0.0f || !isfinite(p[g].minimum))
            return g;
        wt_scale_put(meta, g, f->scale_dtype, p[g].scale);
        wt_scale_put(meta, groups + g, f->scale_dtype, p[g].minimum);
    }
    for (uint64_t i = 0; f->scale_bits && i * TSR_AFFINE_SUPER < cols; i++)
        if (!wt_affine_record(f, groups, i, p, meta))
            return i * (TSR_AFFINE_SUPER / f->group);
    return groups;
}

/* One row of weights: groups p to meta, weights to the nearest codes, [cols] in scratch, and to their bit stream.
 * Returns as wt_affine_meta(). */
static inline uint64_t wt_affine_row(const struct tsr_format *f, const float *w, uint64_t cols,
                                     struct wt_params *p, uint8_t *scratch, unsigned char *codes,
                                     unsigned char *meta)
{
    uint64_t groups = tsr_format_groups(f, cols), width = groups == 1 ? cols : f->group;
    uint64_t held = wt_affine_meta(f, cols, p, meta);
    if (held != groups)
        return held;
    for (uint64_t k = 0; k < cols; k++)
        scratch[k] = (uint8_t)wt_code_nearest(&p[k / width], w[k]);
    wt_pack(codes, scratch, cols, f->bits);
    return groups;
}

/* The sentence for a group that wt_affine_meta() returned. */
static inline tsr_status wt_affine_refused(const struct tsr_format *f, const struct tsr_matrix *w,
                                           uint64_t row, uint64_t g, struct tsr_err *err)
{
    if (f->scale_bits == 0)
        return wt_scale_refused(f->scale_dtype, w, row, g, err);
    return tsr_fail(err, TSR_E_NUMERIC,
                    "tensor '%s': row %llu group %llu: F16 has no factor for the scales of its 256 "
                    "columns; use scale_bits: 0, scale: f32",
                    w->name ? w->name : "?", (unsigned long long)row, (unsigned long long)g);
}

/* Scale and minimum of group g. */
static inline struct wt_params wt_affine_get(const struct tsr_format *f, uint64_t groups,
                                             const unsigned char *meta, uint64_t g)
{
    struct wt_params p = { 0 };
    if (f->scale_bits == 0) {
        p.scale = wt_scale_get(meta, g, f->scale_dtype);
        p.minimum = wt_scale_get(meta, groups + g, f->scale_dtype);
        return p;
    }
    uint64_t             each = TSR_AFFINE_SUPER / f->group;
    const unsigned char *at = meta + g / each * tsr_format_affine_record_bytes(f);
    uint8_t              code[2][WT_AFFINE_MOST];
    wt_unpack(code[0], at + 4, each, f->scale_bits);
    wt_unpack(code[1], at + 4 + tsr_format_affine_level_bytes(f), each, f->scale_bits);
    p.scale = wt_scale_get(at, 0, TSR_F16) * (float)code[0][g % each];
    p.minimum = -(wt_scale_get(at, 1, TSR_F16) * (float)code[1][g % each]);
    return p;
}

/* dequantize() of every quantizer that writes tessera.int/2.  The job's scratch holds a row's codes. */
static inline tsr_status wt_dequantize_affine(const struct tsr_quant_job *job,
                                              const struct tsr_format    *f)
{
    uint64_t cols = job->dst->cols, groups = tsr_format_groups(f, cols);
    uint64_t code_bytes = tsr_format_int_code_bytes(f, cols), width = groups == 1 ? cols : f->group;
    uint64_t meta_bytes = tsr_format_affine_meta_bytes(f, cols);
    uint8_t *codes = job->scratch;
    for (uint64_t r = 0; r < job->dst->rows; r++) {
        float *dst = (float *)(void *)((char *)job->dst->data + r * job->dst->row_stride);
        const unsigned char *meta = (const unsigned char *)job->meta + r * meta_bytes;
        struct wt_params     p = { 0 };
        wt_unpack(codes, (const unsigned char *)job->codes + r * code_bytes, cols, f->bits);
        for (uint64_t k = 0; k < cols; k++) {
            if (k % width == 0)
                p = wt_affine_get(f, groups, meta, k / width);
            dst[k] = (float)codes[k] * p.scale + p.minimum;
        }
    }
    return TSR_OK;
}

#endif
