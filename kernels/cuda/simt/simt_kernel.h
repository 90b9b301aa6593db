/* simt_kernel.h - CUDA's names for kernels that are compiled as C, for simt.h. */
#ifndef TSR_SIMT_KERNEL_H
#define TSR_SIMT_KERNEL_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "simt.h"

typedef struct {
    uint32_t x, y;
} uint2;
typedef struct {
    uint32_t x, y, z, w;
} uint4;
typedef struct {
    float x, y;
} float2;
typedef struct {
    float x, y, z, w;
} float4;

#define threadIdx simt_thread_idx()
#define blockIdx  simt_block_idx()
#define blockDim  simt_block_dim()
#define gridDim   simt_grid_dim()

/* One section for all of it: simt_memory.c spoils it between blocks and knows its bounds. */
#define __shared__ static __attribute__((section("simt_shared"), aligned(16)))
/* One block runs at a time: kernels with much of it have the same. */
#define SHARED_LARGE(type, name, n)                                                                \
    type *const name = (type *)(void *)simt_large;                                                 \
    _Static_assert((n) * sizeof(type) <= sizeof simt_large, "SIMT_LARGE is the most")
#define SIMT_LARGE             229248
#define __syncthreads()        simt_barrier(__LINE__)
#define __threadfence()        simt_fence()
#define __threadfence_system() simt_fence_system()
#define __syncwarp()           ((void)simt_warp(SIMT_SYNC, 0xffffffffu, 0, 0, __LINE__))
#define __ballot_sync(m, p)    simt_warp(SIMT_BALLOT, (m), (uint32_t)((p) != 0), 0, __LINE__)
#define __any_sync(m, p)       (__ballot_sync(m, p) != 0)
#define __all_sync(m, p)       (__ballot_sync(m, !(p)) == 0)
#define __popc(v)              __builtin_popcount(v)

__shared__ __attribute__((unused)) uint8_t simt_large[SIMT_LARGE];

static inline uint32_t simt_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float simt_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
#define SIMT_WARP_F(op, m, v, l)                                                                   \
    simt_float(simt_warp(op, (m), simt_bits(v), (uint32_t)(l), __LINE__))
#define SIMT_WARP_U(op, m, v, l) simt_warp(op, (m), (uint32_t)(v), (uint32_t)(l), __LINE__)
#define shfl_f(m, v, l)          SIMT_WARP_F(SIMT_SHFL, m, v, l)
#define shfl_u(m, v, l)          SIMT_WARP_U(SIMT_SHFL, m, v, l)
#define shfl_xor_f(m, v, l)      SIMT_WARP_F(SIMT_SHFL_XOR, m, v, l)
#define shfl_xor_u(m, v, l)      SIMT_WARP_U(SIMT_SHFL_XOR, m, v, l)
#define shfl_down_f(m, v, l)     SIMT_WARP_F(SIMT_SHFL_DOWN, m, v, l)
#define shfl_down_u(m, v, l)     SIMT_WARP_U(SIMT_SHFL_DOWN, m, v, l)

/* k_mma.h */
#define mma_s8(c, a, b) simt_mma((c), (a), (b), __LINE__)
/* k_mma_half.h */
#define mma_half(c, a, b, bf16) simt_mma_half((c), (a), (b), (bf16), __LINE__)
/* k_mma.h */
#define copy_async(to, from)  simt_copy_async((to), (from), 16)
#define copy_async4(to, from) simt_copy_async((to), (from), 4)
#define copy_commit()         simt_copy_commit()
#define copy_wait(n)          simt_copy_wait((uint32_t)(n))

#define atomicAdd(p, v)                                                                            \
    _Generic((p), float * : simt_atomic_add_float, uint32_t * : simt_atomic_add)((p), (v))
#define atomicMax(p, v) simt_atomic_max((p), (v))
#define atomicOr(p, v)  simt_atomic_or((p), (v))

static inline uint32_t __float_as_uint(float f)
{
    return simt_bits(f);
}
static inline float __uint_as_float(uint32_t u)
{
    return simt_float(u);
}
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s)
{
    uint64_t both = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (uint32_t i = 0; i < 4; i++)
        r |= (uint32_t)(both >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
/* Bytes of b are signed; those of a, too. */
static inline int32_t __dp4a(int32_t a, int32_t b, int32_t c)
{
    for (int i = 0; i < 4; i++)
        c += (int32_t)(int8_t)((uint32_t)a >> 8 * i) * (int32_t)(int8_t)((uint32_t)b >> 8 * i);
    return c;
}

#define DEV      static inline __attribute__((always_inline, unused))
#define DEV_CALL static __attribute__((noinline, unused))
#define UNROLL_LOOP
#define UNROLL_8
#define UNROLL_4
#define UNROLL_NOT
#define RESTRICT          restrict
#define AT(type, address) ((type *)(uintptr_t)((address) ^ SIMT_KEY))

#define start_next()        ((void)0) /* kernels run one after the other */
#define wait_for_previous() simt_wait_for_previous()

/* A kernel takes one struct of arguments by value. */
#define SIMT_KERNEL(name, args_t, wait)                                                            \
    static void name##_body(const args_t a);                                                       \
    void        name##_entry(const void *p);                                                       \
    void        name##_entry(const void *p)                                                        \
    {                                                                                              \
        wait;                                                                                      \
        name##_body(*(const args_t *)p);                                                           \
    }                                                                                              \
    extern const struct simt_kernel name##_simt;                                                   \
    const struct simt_kernel        name##_simt = { #name, name##_entry, sizeof(args_t) };         \
    static void                     name##_body(const args_t a)
#define TSR_KERNEL(name, args_t, ...)       SIMT_KERNEL(name, args_t, simt_wait_for_previous())
#define TSR_KERNEL_EARLY(name, args_t, ...) SIMT_KERNEL(name, args_t, (void)0)

#endif
