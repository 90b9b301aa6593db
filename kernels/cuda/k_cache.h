/* k_cache.h - rows of a KV head: where they are, their way into shared memory, and elements widened.
 *
 * In shared memory a row begins on 16 bytes and holds the elements of some columns, whatever the alignment of the
 * cache; the scales of an int8 cache have an array of their own there.
 */
#ifndef TSR_CUDA_K_CACHE_H
#define TSR_CUDA_K_CACHE_H

#include "k_mma.h"
#include "k_store.h"

/* The scale in front of a head of an int8 cache may lie on any byte. */
DEV float scale_at(const uint8_t *p)
{
    return __uint_as_float((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                           (uint32_t)p[3] << 24);
}

DEV uint32_t element_bytes(uint32_t dtype)
{
    return dtype == DT_F32 ? 4 : dtype == DT_F16 ? 2 : 1;
}

/* ---- copies ------------------------------------------------------------------------------ */

/* A KV head of a sequence from its position 0 on. */
struct cache_head {
    const uint8_t *p;
    uint64_t       stride;
    uint32_t       copy; /* k_args.h */
};

/* Starts the copies of n rows from `row` on, columns [c0, c0 + cols), at most `most`, by a block of `threads`;
 * row i goes to to + i * pitch and, with int8, its scale to scales[i].  They are over after copy_wait() and a
 * barrier. */
DEV void rows_copy(const struct cache_head *h, const uint32_t dtype, uint64_t row, uint32_t n,
                   uint32_t c0, uint32_t cols, const uint32_t most, const uint32_t threads,
                   uint8_t *to, const uint32_t pitch, float *scales)
{
    const uint32_t size = element_bytes(dtype), bytes = cols * size;
    const uint32_t lanes = dtype == DT_I8 ? 32u : most * size / 16; /* 16 or 32 */
    const uint32_t lane = threadIdx.x % lanes, first = threadIdx.x / lanes, step = threads / lanes;
    const uint8_t *from = h->p + (row + first) * h->stride;
    const uint64_t head = (dtype == DT_I8 ? 4u : 0u) + c0 * size, apart = step * h->stride;
    to += first * pitch;
    if (dtype != DT_I8 && h->copy == 16) { /* one copy of each lane, that is */
        if (16 * lane < bytes) {
            from += head + 16 * lane;
            to += 16 * lane;
            UNROLL_4
            for (uint32_t i = first; i < n; i += step, from += apart, to += step * pitch)
                copy_async(to, from);
        }
    } else if (dtype == DT_I8 && h->copy == 4) { /* one of each lane again, and the scale */
        UNROLL_4
        for (uint32_t i = first; i < n; i += step, from += apart, to += step * pitch) {
            if (4 * lane < bytes)
                copy_async4(to + 4 * lane, from + head + 4 * lane);
            if (lane == 0)
                copy_async4(scales + i, from);
        }
    } else if (h->copy == 4) {
        for (uint32_t i = first; i < n; i += step, from += apart, to += step * pitch)
            for (uint32_t b = 4 * lane; b < bytes; b += 4 * lanes)
                copy_async4(to + b, from + head + b);
    } else {
        for (uint32_t i = first; i < n; i += step, from += apart, to += step * pitch) {
            for (uint32_t b = size * lane; b < bytes; b += size * lanes) {
                const void *x = from + head + b;
                if (dtype == DT_F32)
                    *(float *)(void *)(to + b) = *(const float *)x;
                else if (dtype == DT_F16)
                    *(uint16_t *)(void *)(to + b) = *(const uint16_t *)x;
                else
                    to[b] = *(const uint8_t *)x;
            }
            if (dtype == DT_I8 && lane == 0)
                scales[i] = scale_at(from);
        }
    }
}

/* ---- elements ---------------------------------------------------------------------------- */

/* Both halves of a word. They are multiplied next, which keeps no bits of a NaN. */
DEV void halves(uint32_t w, float *x)
{
#ifdef __CUDACC__
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
        : "=f"(x[0]), "=f"(x[1])
        : "r"(w));
#else
    x[0] = k_half(w & 0xffffu);
    x[1] = k_half(w >> 16);
#endif
}

/* Codes as numbers: a byte becomes the low bits of 2^23 + code + 128. */
DEV void int8_floats(uint32_t w, const uint32_t n, float scale, float *x)
{
    w ^= 0x80808080u;
    UNROLL_LOOP
    for (uint32_t i = 0; i < n; i++)
        x[i] = (__uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440u + i)) - 8388736.0f) * scale;
}

/* n elements, 2, 4 or 8, from p on, aligned to all of them or to 16 bytes. */
DEV void widen(const uint8_t *p, const uint32_t dtype, const uint32_t n, float scale, float *x)
{
    if (dtype == DT_F32 && n == 2) {
        const float2 v = *(const float2 *)(const void *)p;
        x[0] = v.x;
        x[1] = v.y;
    } else if (dtype == DT_F32) {
        UNROLL_LOOP
        for (uint32_t i = 0; i < n; i += 4) {
            const float4 v = *(const float4 *)(const void *)(p + 4 * i);
            x[i] = v.x;
            x[i + 1] = v.y;
            x[i + 2] = v.z;
            x[i + 3] = v.w;
        }
    } else if (dtype == DT_F16 && n == 8) {
        const uint4 v = *(const uint4 *)(const void *)p;
        halves(v.x, x);
        halves(v.y, x + 2);
        halves(v.z, x + 4);
        halves(v.w, x + 6);
    } else if (dtype == DT_F16 && n == 4) {
        const uint2 v = *(const uint2 *)(const void *)p;
        halves(v.x, x);
        halves(v.y, x + 2);
    } else if (dtype == DT_F16) {
        halves(*(const uint32_t *)(const void *)p, x);
    } else if (n == 8) {
        const uint2 v = *(const uint2 *)(const void *)p;
        int8_floats(v.x, 4, scale, x);
        int8_floats(v.y, 4, scale, x + 4);
    } else if (n == 4) {
        int8_floats(*(const uint32_t *)(const void *)p, 4, scale, x);
    } else {
        int8_floats(*(const uint16_t *)(const void *)p, 2, scale, x);
    }
}

#endif
