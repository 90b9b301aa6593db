/* Widens blocks of GGUF types to F32, rounding each product and sum as ggml does. */
#include "checkpoint/gguf/block.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/grid.h"

#include <math.h>

static void q4_0(const unsigned char *b, float *y)
{
    float d = gguf_f16(b);
    for (unsigned i = 0; i < 32; i++)
        y[i] = (float)((int)gguf_nibble(b + 2, i) - 8) * d;
}

static void q4_1(const unsigned char *b, float *y)
{
    float d = gguf_f16(b), m = gguf_f16(b + 2);
    for (unsigned i = 0; i < 32; i++) {
        float p = (float)gguf_nibble(b + 4, i) * d;
        y[i] = p + m;
    }
}

static void q5_0(const unsigned char *b, float *y)
{
    float d = gguf_f16(b);
    for (unsigned i = 0; i < 32; i++)
        y[i] = (float)((int)(gguf_nibble(b + 6, i) | gguf_fifth(b + 2, i) << 4) - 16) * d;
}

static void q5_1(const unsigned char *b, float *y)
{
    float d = gguf_f16(b), m = gguf_f16(b + 2);
    for (unsigned i = 0; i < 32; i++) {
        float p = (float)(gguf_nibble(b + 8, i) | gguf_fifth(b + 4, i) << 4) * d;
        y[i] = p + m;
    }
}

static void q8_0(const unsigned char *b, float *y)
{
    float d = gguf_f16(b);
    for (unsigned i = 0; i < 32; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

static void iq4_nl(const unsigned char *b, float *y)
{
    float d = gguf_f16(b);
    for (unsigned i = 0; i < 32; i++)
        y[i] = (float)gguf_iq4_nl[gguf_nibble(b + 2, i)] * d;
}

static void iq4_xs(const unsigned char *b, float *y)
{
    float d = gguf_f16(b);
    for (unsigned i = 0; i < 256; i++) {
        float scale = d * (float)((int)gguf_iq4_xs_scale(b, i / 32) - 32);
        y[i] = scale * (float)gguf_iq4_nl[gguf_iq4_xs_code(b, i)];
    }
}

static void tq1_0(const unsigned char *b, float *y)
{
    float d = gguf_f16(b + 52);
    for (unsigned i = 0; i < 256; i++)
        y[i] = (float)((int)gguf_tq1_code(b, i) - 1) * d;
}

static void tq2_0(const unsigned char *b, float *y)
{
    float d = gguf_f16(b + 64);
    for (unsigned i = 0; i < 256; i++)
        y[i] = (float)((int)gguf_tq2_code(b, i) - 1) * d;
}

static void mxfp4(const unsigned char *b, float *y)
{
    static const float twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    float              d = ldexpf(1.0f, (int)b[0] - 128);
    for (unsigned i = 0; i < 32; i++)
        y[i] = twice[gguf_nibble(b + 1, i)] * d;
}

/* 16 bytes with a 4-bit scale below and a 4-bit minimum above, 64 of codes, d, dmin. */
static void q2_k(const unsigned char *b, float *y)
{
    float d = gguf_f16(b + 80), dmin = gguf_f16(b + 82);
    for (unsigned i = 0; i < 256; i++) {
        unsigned code = gguf_q2_code(b, i);
        float    scale = d * (float)(b[i / 16] & 15), min = dmin * (float)(b[i / 16] >> 4);
        float    p = scale * (float)code;
        y[i] = p - min;
    }
}

static void q3_k(const unsigned char *b, float *y)
{
    float d = gguf_f16(b + 108);
    for (unsigned i = 0; i < 256; i++) {
        float scale = d * (float)gguf_q3_scale(b, i / 16);
        y[i] = scale * (float)((int)gguf_q3_code(b, i) - 4);
    }
}

/* Sub-block s of 32: codes of bytes 32 * (s / 2) on, low nibbles if s is even. */
static void q45_k(const unsigned char *b, float *y, const unsigned char *fifth,
                  const unsigned char *codes)
{
    float d = gguf_f16(b), dmin = gguf_f16(b + 2);
    for (unsigned s = 0; s < 8; s++) {
        unsigned sc, m;
        gguf_k_scale(b + 4, s, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        for (unsigned l = 0; l < 32; l++) {
            unsigned q = codes[s / 2 * 32 + l];
            q = s % 2 ? q >> 4 : q & 15u;
            if (fifth)
                q |= ((unsigned)(fifth[l] >> s) & 1u) << 4;
            float p = scale * (float)q;
            y[s * 32 + l] = p - min;
        }
    }
}

static void q4_k(const unsigned char *b, float *y)
{
    q45_k(b, y, NULL, b + 16);
}

static void q5_k(const unsigned char *b, float *y)
{
    q45_k(b, y, b + 16, b + 48);
}

static void q6_k(const unsigned char *b, float *y)
{
    float d = gguf_f16(b + 208);
    for (unsigned i = 0; i < 256; i++) {
        float scale = d * (float)(int8_t)b[192 + i / 16];
        y[i] = scale * (float)((int)gguf_q6_code(b, i) - 32);
    }
}

/* Codes are vectors in a grid: a factor times an odd number times a value. */
static void vectors(uint32_t type, const unsigned char *b, float *y)
{
    struct tsr_format f;
    unsigned char     codes[256], scale[16];
    float             d = tsr_f16_f32(tsr_gguf_vectors_factor(type, b));
    unsigned          per = 256 / tsr_gguf_vectors_scales(type, b, scale);
    (void)tsr_gguf_format(type, &f);
    tsr_gguf_vectors_codes(type, b, codes);
    for (unsigned i = 0; i < 256; i++) {
        unsigned group = i / per;
        float    one = d * (float)scale[group];
        y[i] = f.table[codes[i]] * one;
    }
}

void tsr_gguf_widen(uint32_t type, const unsigned char *src, uint64_t n, float *dst)
{
    static void (*const widen[])(const unsigned char *, float *) = {
        [TSR_GGUF_T_Q4_0] = q4_0,   [TSR_GGUF_T_Q4_1] = q4_1,     [TSR_GGUF_T_Q5_0] = q5_0,
        [TSR_GGUF_T_Q5_1] = q5_1,   [TSR_GGUF_T_Q8_0] = q8_0,     [TSR_GGUF_T_Q2_K] = q2_k,
        [TSR_GGUF_T_Q3_K] = q3_k,   [TSR_GGUF_T_Q4_K] = q4_k,     [TSR_GGUF_T_Q5_K] = q5_k,
        [TSR_GGUF_T_Q6_K] = q6_k,   [TSR_GGUF_T_IQ4_NL] = iq4_nl, [TSR_GGUF_T_MXFP4] = mxfp4,
        [TSR_GGUF_T_TQ1_0] = tq1_0, [TSR_GGUF_T_TQ2_0] = tq2_0,   [TSR_GGUF_T_IQ4_XS] = iq4_xs,
    };
    uint32_t dtype = tsr_gguf_dtype(type), elements, bytes;
    if (dtype) {
        tsr_widen(dst, src, dtype, n);
        return;
    }
    if (!tsr_gguf_block(type, &elements, &bytes))
        return;
    for (uint64_t i = 0; tsr_gguf_is_vectors(type) && i < n / elements; i++)
        vectors(type, src + i * bytes, dst + i * elements);
    for (uint64_t i = 0; !tsr_gguf_is_vectors(type) && i < n / elements; i++)
        widen[type](src + i * bytes, dst + i * elements);
}
