/* k_hadamard.c - HADAMARD: the fast Walsh-Hadamard transform of a run of columns, then the small matrix across its parts.
 *
 * A stage of the transform adds and subtracts numbers that are 1, 2, 4, ... apart, in this order.  Up to 8 apart they are
 * lanes of one vector: the swapped vector plus the vector with the upper lanes negated is sum and difference at once, with
 * the bits of both.  Above, two stages go together over four vectors, so that numbers are loaded half as often. */
#include <math.h>

#include "k_decl.h"
#include "tessera/backend.h"

/* 1 where the bit h of a lane is clear, -1 where it is set. */
static const float signs[4][16] = {
    { 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1 },
    { 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1 },
    { 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1 },
    { 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1 },
};

/* n a power of two, of 16 at least; the product with a sign is exact, so the FMA rounds as a sum does. */
INLINE void in_vectors(float *out, const float *x, uint64_t n)
{
    const v16 s1 = v_load(signs[0]), s2 = v_load(signs[1]), s4 = v_load(signs[2]),
              s8 = v_load(signs[3]);
    for (uint64_t i = 0; i < n; i += 16) {
        v16 v = v_load(x + i);
        v = v_fma(v, s1, v_swap1(v));
        v = v_fma(v, s2, v_swap2(v));
        v = v_fma(v, s4, v_swap4(v));
        v = v_fma(v, s8, v_swap8(v));
        v_store(out + i, v);
    }
}

/* The stages of `half` and 2 * half. */
INLINE void two_stages(float *x, uint64_t n, uint64_t half)
{
    for (uint64_t i = 0; i < n; i += 4 * half)
        for (uint64_t j = i; j < i + half; j += 16) {
            float *p0 = x + j, *p1 = p0 + half, *p2 = p1 + half, *p3 = p2 + half;
            v16    a = v_load(p0), b = v_load(p1), c = v_load(p2), d = v_load(p3);
            v16    ab = v_add(a, b), a_b = v_sub(a, b), cd = v_add(c, d), c_d = v_sub(c, d);
            v_store(p0, v_add(ab, cd));
            v_store(p1, v_add(a_b, c_d));
            v_store(p2, v_sub(ab, cd));
            v_store(p3, v_sub(a_b, c_d));
        }
}

/* The last one, where their number is odd. */
INLINE void last_stage(float *x, uint64_t half)
{
    for (uint64_t j = 0; j < half; j += 16) {
        v16 a = v_load(x + j), b = v_load(x + half + j);
        v_store(x + j, v_add(a, b));
        v_store(x + half + j, v_sub(a, b));
    }
}

/* Runs of fewer than 16 numbers. */
static void small(float *out, const float *x, uint64_t n)
{
    float v[16];
    memcpy(v, x, n * sizeof *v);
    for (uint64_t half = 1; half < n; half *= 2)
        for (uint64_t i = 0; i < n; i += 2 * half)
            for (uint64_t j = i; j < i + half; j++) {
                float a = v[j], b = v[j + half];
                v[j] = a + b;
                v[j + half] = a - b;
            }
    memcpy(out, v, n * sizeof *v);
}

static void walsh(float *out, const float *x, uint64_t n)
{
    if (n < 16) {
        small(out, x, n);
        return;
    }
    uint64_t half = 16;
    in_vectors(out, x, n);
    for (; 4 * half <= n; half *= 4)
        two_stages(out, n, half);
    if (half < n)
        last_stage(out, half);
}

/* Number b * part + i of the run is of row b: out[c] is the chain of in[b] * sign[b][c] over ascending b. */
static void across(float *x, uint64_t part, uint64_t base, const float *sign, uint64_t stride,
                   float scale)
{
    const v16 by = v_set1(scale);
    for (uint64_t i = 0; i < part; i += 16) {
        uint64_t n = part - i < 16 ? part - i : 16;
        v16      in[TSR_HADAMARD_BASE];
        for (uint64_t b = 0; b < base; b++)
            in[b] = v_loadn(x + b * part + i, n);
        for (uint64_t c = 0; c < base; c++) {
            v16 sum = v_set1(0.0f);
            for (uint64_t b = 0; b < base; b++)
                sum = v_fma(in[b], v_set1(sign[b * stride + c]), sum);
            v_storen(x + c * part + i, v_mul(sum, by), n);
        }
    }
}

void K(hadamard)(float *out, const float *x, uint64_t n, uint64_t base, const float *sign,
                 uint64_t stride)
{
    const uint64_t part = n / base;
    const float    scale = (float)(1 / sqrt((double)n));
    for (uint64_t b = 0; b < base; b++)
        walsh(out + b * part, x + b * part, part);
    if (base > 1) {
        across(out, part, base, sign, stride, scale);
        return;
    }
    K(scale)(out, out, n, scale, 0);
}
