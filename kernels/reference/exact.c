/* exact.c - the sums of LINEAR; exact_row.c makes the rows. */
#include "exact.h"

#include <math.h>

#include "format_ref.h"
#include "tessera/f16.h"

#define BLOCK 128u /* columns that share an activation scale */

float tsr_ref_tree(const float s[8])
{
    return (((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) + 0.0f;
}

float tsr_ref_round_bf16(float x)
{
    return tsr_bf16_f32(tsr_f32_bf16(x));
}

/* A chain of fused multiply-adds for each segment, then the tree. */
float tsr_ref_exact_f32(const float *x, const float *w, uint64_t cols)
{
    float s[8] = { 0 };
    for (uint64_t k = 0; k < cols; k++) {
        float *sum = &s[k / tsr_ref_segment(cols)];
        *sum = fmaf(x[k], w[k], *sum);
    }
    return tsr_ref_tree(s);
}

float tsr_ref_round_i8(const float *x, uint64_t n, int32_t *q)
{
    float amax = 0;
    int   finite = 1;
    for (uint64_t k = 0; k < n; k++) {
        amax = fabsf(x[k]) > amax ? fabsf(x[k]) : amax;
        finite &= isfinite(x[k]) != 0;
        q[k] = 0;
    }
    float scale = amax / 127.0f, inverse = 1.0f / scale;
    if (!finite)
        return NAN;
    if (!isfinite(inverse))
        return 0;
    for (uint64_t k = 0; k < n; k++) {
        float v = rintf(x[k] * inverse);
        q[k] = (int32_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    }
    return scale;
}

/* A block of activations has one scale; within it, columns of one weight group are summed as integers and
 * enter their segment's sum by one fused multiply-add. With minimums they enter the block's, which does. */
static float add_block(float sum, const float *x, const struct tsr_ref_row *w, uint64_t begin,
                       uint64_t end)
{
    int32_t q[BLOCK];
    float   activation = tsr_ref_round_i8(x + begin, end - begin, q);
    float   block = 0;
    for (uint64_t k = begin; k < end;) {
        uint64_t group = w->group[k];
        float    scale = w->scale[k];
        float    minimum = w->minimum[k];
        int64_t  whole = 0, ones = 0;
        for (; k < end && w->group[k] == group; k++) {
            whole += w->t[k] * q[k - begin];
            ones += q[k - begin];
        }
        if (w->minimums)
            block = fmaf((float)ones, minimum, fmaf((float)whole, scale, block));
        else
            sum = fmaf((float)whole, scale * activation, sum);
    }
    return w->minimums ? fmaf(block, activation, sum) : sum;
}

float tsr_ref_exact_a8(const float *x, const struct tsr_ref_row *w, uint64_t cols)
{
    uint64_t segment = tsr_ref_segment(cols);
    float    s[8] = { 0 };
    for (uint64_t i = 0; i * segment < cols; i++) {
        uint64_t end = (i + 1) * segment < cols ? (i + 1) * segment : cols;
        for (uint64_t b = i * segment; b < end; b += BLOCK)
            s[i] = add_block(s[i], x, w, b, b + BLOCK < end ? b + BLOCK : end);
        if (w->outliers) {
            float extra = 0;
            for (uint64_t k = i * segment; k < end; k++)
                if (w->outlier[k])
                    extra = fmaf(x[k], w->extra[k], extra);
            s[i] += extra;
        }
    }
    return tsr_ref_tree(s);
}

/* One scale for the whole token; numbers of the threshold and more stay F32. */
float tsr_ref_exact_llm8(const float *x, const struct tsr_format *f, const void *codes,
                         const void *meta, const float *dense, uint64_t cols)
{
    float             s[8] = { 0 }, amax = 0, threshold = (float)f->act8_threshold, weight = 0;
    const uint8_t    *code = codes;
    struct tsr_format one = { .id = TSR_FORMAT_FLOAT, .dtype = f->scale_dtype };
    int32_t           sum = 0;
    int               any = 0;
    for (uint64_t k = 0; k < cols; k++) {
        if (!isfinite(x[k]))
            return NAN;
        if (threshold > 0 && fabsf(x[k]) >= threshold) {
            float *part = &s[k / tsr_ref_segment(cols)];
            *part = fmaf(x[k], dense[k], *part);
            any = 1;
        } else if (fabsf(x[k]) > amax) {
            amax = fabsf(x[k]);
        }
    }
    float inverse = 127.0f * (1.0f / amax), token = isfinite(inverse) ? amax / 127.0f : 0;
    for (uint64_t k = 0; k < cols && isfinite(inverse); k++)
        if (!(threshold > 0 && fabsf(x[k]) >= threshold))
            sum += ((int32_t)code[k] - 128) * (int32_t)rintf(x[k] * inverse);
    if (tsr_ref_decode_row(&one, 1, meta, NULL, &weight) != TSR_OK)
        return NAN;
    float y = (float)sum * (weight * token);
    return any ? y + tsr_ref_tree(s) : y;
}
