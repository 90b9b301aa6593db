/* simd_fold.h - steps of the tree16 of several vectors at once (numerics.md): each step adds halves of what is left of two
 * vectors and puts both sums into one.  The last part gives the meaning.
 *
 * Sums of x take the first place of each pair of halves, sums of y the second; v_fold1() gives two sums of x, then two of y,
 * in each quarter. */
#ifndef TSR_SIMD_FOLD_H
#define TSR_SIMD_FOLD_H

#include "simd.h"

#if TSR_SIMD == 512

/* One shuffle each: what stays in its place of both vectors, and what moves. */
static inline v16 v_fold8(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
}
static inline v16 v_fold4(v16 x, v16 y)
{
    v16 moves = _mm512_mask_blend_ps(0xf0f0, y, x);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, x, y),
                         _mm512_shuffle_f32x4(moves, moves, 0xb1));
}
static inline v16 v_fold2(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, x, y), _mm512_shuffle_ps(x, y, 0x4e));
}
static inline v16 v_fold1(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd));
}

#elif TSR_SIMD == 2

static inline v16 v_fold8(v16 x, v16 y)
{
    return v_make(_mm256_add_ps(x.a, x.b), _mm256_add_ps(y.a, y.b));
}
#define FOLD4(x, y) _mm256_add_ps(_mm256_blend_ps(x, y, 0xf0), _mm256_permute2f128_ps(x, y, 0x21))
#define FOLD2(x, y) _mm256_add_ps(_mm256_blend_ps(x, y, 0xcc), _mm256_shuffle_ps(x, y, 0x4e))
#define FOLD1(x, y) _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd))
static inline v16 v_fold4(v16 x, v16 y)
{
    return v_make(FOLD4(x.a, y.a), FOLD4(x.b, y.b));
}
static inline v16 v_fold2(v16 x, v16 y)
{
    return v_make(FOLD2(x.a, y.a), FOLD2(x.b, y.b));
}
static inline v16 v_fold1(v16 x, v16 y)
{
    return v_make(FOLD1(x.a, y.a), FOLD1(x.b, y.b));
}

#elif TSR_SIMD == 128

static inline v16 v_fold8(v16 x, v16 y)
{
    return (v16){ vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d), vaddq_f32(y.a, y.c),
                  vaddq_f32(y.b, y.d) };
}
static inline v16 v_fold4(v16 x, v16 y)
{
    return (v16){ vaddq_f32(x.a, x.b), vaddq_f32(y.a, y.b), vaddq_f32(x.c, x.d),
                  vaddq_f32(y.c, y.d) };
}
static inline float32x4_t v_fold2_quarter(float32x4_t x, float32x4_t y)
{
    const float64x2_t p = vreinterpretq_f64_f32(x), q = vreinterpretq_f64_f32(y);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(p, q)),
                     vreinterpretq_f32_f64(vzip2q_f64(p, q)));
}
static inline v16 v_fold2(v16 x, v16 y)
{
    return (v16){ v_fold2_quarter(x.a, y.a), v_fold2_quarter(x.b, y.b), v_fold2_quarter(x.c, y.c),
                  v_fold2_quarter(x.d, y.d) };
}
static inline v16 v_fold1(v16 x, v16 y)
{
    return (v16){ vpaddq_f32(x.a, y.a), vpaddq_f32(x.b, y.b), vpaddq_f32(x.c, y.c),
                  vpaddq_f32(x.d, y.d) };
}

#else

static inline v16 v_fold(v16 x, v16 y, int apart)
{
    v16 r;
    for (int l = 0; l < 16; l++)
        r.f[l] = l & apart ? y.f[l - apart] + y.f[l] : x.f[l] + x.f[l + apart];
    return r;
}
static inline v16 v_fold8(v16 x, v16 y)
{
    return v_fold(x, y, 8);
}
static inline v16 v_fold4(v16 x, v16 y)
{
    return v_fold(x, y, 4);
}
static inline v16 v_fold2(v16 x, v16 y)
{
    return v_fold(x, y, 2);
}
static inline v16 v_fold1(v16 x, v16 y)
{
    v16 r;
    for (int l = 0; l < 16; l++) {
        const v16 *of = l & 2 ? &y : &x;
        const int  at = (l & 12) + 2 * (l & 1);
        r.f[l] = of->f[at] + of->f[at + 1];
    }
    return r;
}

#endif

#endif
