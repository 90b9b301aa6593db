/* checkpoint/gguf/block.h - the layout of codes and scales in a block of a GGUF type; for the two
 * files that read them.
 */
#ifndef TSR_CHECKPOINT_GGUF_BLOCK_H
#define TSR_CHECKPOINT_GGUF_BLOCK_H

#include "base/f16.h"

static inline float gguf_f16(const unsigned char *p)
{
    return tsr_f16_f32((uint16_t)(p[0] | p[1] << 8));
}

static const int8_t gguf_iq4_nl[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113 };

/* IQ4_XS: d, 2 bytes of two high bits of eight scales, 4 of low nibbles; 128 of codes. */
static inline unsigned gguf_iq4_xs_scale(const unsigned char *b, unsigned s)
{
    unsigned low = (unsigned)(b[4 + s / 2] >> (s % 2 * 4)) & 15u;
    return low | ((unsigned)(b[2 + s / 4] >> (s % 4 * 2)) & 3u) << 4; /* 32 is zero */
}

/* Blocks of 32 with nibbles: byte j holds element j below and element j + 16 above. */
static inline unsigned gguf_nibble(const unsigned char *q, unsigned i)
{
    return i < 16 ? q[i] & 15u : q[i - 16] >> 4;
}

static inline unsigned gguf_iq4_xs_code(const unsigned char *b, unsigned i)
{
    return gguf_nibble(b + 8 + (size_t)(i / 32) * 16, i % 32);
}

/* TQ1_0: 48 bytes of five base-3 digits and 4 of four, as fractions of 256; d.  Digit n of a run of `width`
 * bytes is element width * n on.  TQ2_0: 64 bytes of two bits, d.  1 is zero. */
static inline unsigned gguf_tq1_code(const unsigned char *b, unsigned i)
{
    static const unsigned char power[5] = { 1, 3, 9, 27, 81 };
    unsigned first = i < 160 ? 0 : i < 240 ? 32 : 48, width = i < 160 ? 32 : i < 240 ? 16 : 4;
    unsigned at = i - (i < 160 ? 0 : i < 240 ? 160 : 240);
    unsigned q = (unsigned)b[first + at % width] * power[at / width] & 255u;
    return q * 3 >> 8;
}

static inline unsigned gguf_tq2_code(const unsigned char *b, unsigned i)
{
    return (unsigned)(b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3u;
}

/* The fifth bits of this block. */
static inline unsigned gguf_fifth(const unsigned char *h, unsigned i)
{
    return (unsigned)(h[i / 8] >> (i % 8)) & 1u;
}

/* Q3_K: 32 bytes of third bits, 64 of two bits, 12 of sixteen 6-bit scales, d. */
static inline unsigned gguf_q3_code(const unsigned char *b, unsigned i)
{
    unsigned half = i / 128, part = i % 128 / 32, l = i % 32;
    unsigned low = (unsigned)(b[32 + half * 32 + l] >> (2 * part)) & 3u;
    unsigned high = (unsigned)(b[l] >> (half * 4 + part)) & 1u;
    return low | high << 2; /* 4 is zero */
}

static inline int gguf_q3_scale(const unsigned char *b, unsigned s)
{
    const unsigned char *q = b + 96;
    unsigned             low = s < 8 ? q[s] & 15u : q[s - 8] >> 4;
    unsigned             high = (unsigned)(q[8 + s % 4] >> (s / 4 * 2)) & 3u;
    return (int)(low | high << 4) - 32;
}

/* Q6_K: 128 bytes of low nibbles, 64 of two high bits, 16 scales, d. */
static inline unsigned gguf_q6_code(const unsigned char *b, unsigned i)
{
    unsigned half = i / 128, part = i % 128 / 32, l = i % 32;
    unsigned low = b[half * 64 + part % 2 * 32 + l];
    unsigned high = (unsigned)(b[128 + half * 32 + l] >> (2 * part)) & 3u;
    return (part < 2 ? low & 15u : low >> 4) | high << 4; /* 32 is zero */
}

/* Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in 12 bytes. */
static inline void gguf_k_scale(const unsigned char *q, unsigned s, unsigned *scale, unsigned *min)
{
    if (s < 4) {
        *scale = q[s] & 63u;
        *min = q[s + 4] & 63u;
    } else {
        *scale = (q[s + 4] & 15u) | (unsigned)(q[s - 4] >> 6) << 4;
        *min = (unsigned)(q[s + 4] >> 4) | (unsigned)(q[s] >> 6) << 4;
    }
}

/* Sub-block s of 32 of Q4_K and Q5_K is in bytes 32 * (s / 2) on of the nibbles, below if s is even; its
 * fifth bits are bits s. */
static inline unsigned gguf_q4_code(const unsigned char *q, unsigned i)
{
    unsigned byte = q[i / 64 * 32 + i % 32];
    return i / 32 % 2 ? byte >> 4 : byte & 15u;
}

static inline unsigned gguf_q5_fifth(const unsigned char *h, unsigned i)
{
    return (unsigned)(h[i % 32] >> (i / 32)) & 1u;
}

/* Q2_K: 16 bytes with a 4-bit scale below and a 4-bit minimum above, 64 of codes, d, dmin. */
static inline unsigned gguf_q2_code(const unsigned char *b, unsigned i)
{
    return (unsigned)(b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3u;
}

#endif
