/* k_mma.h - products of int8 matrices by a warp, and copies to shared memory that the warp does not wait
 * for.
 *
 * mma_s8(c, a, b): c += A B for A [16,32], B [32,8] of int8 and c of int32, all 32 lanes together.  The
 * fragments are PTX's of mma.m16n8k32; lane = 4 g + t:
 *   a[0], a[2]  row g, columns 4t.. and 16 + 4t.. of A; a[1], a[3] the same of row g + 8
 *   b[0], b[1]  rows 4t.. and 16 + 4t.. of B's column g
 *   c[0], c[1]  row g, columns 2t and 2t + 1 of c; c[2], c[3] the same of row g + 8
 * rows_load(v, n, own, lane): v[i], i < n of 2 or 4, becomes word lane % 4 of the 16 bytes in shared memory at
 * p + 16 (lane / 4 + 8 i), which is the form of a fragment; all 32 lanes together, p on 16 bytes, own: p + 16 lane.
 * mma_s8_from(d, c, a, b): d = A B + c.  mma_s8_half(d, c, a, b): of columns 4t.. alone, A [16,16] and B [16,8]: a[0], a[1]
 * and b.
 * halves_load(v, n, own, lane): v[i], i < n of 2 or 4, becomes the F16 g and 8 + g of the 16 in shared memory at
 * p + 32 i; own: p + HALVES_AT(lane), else as rows_load().  halves_widen(v, f): both in F32, as k_half_factor().
 * groups_load(v, own, lane): v[i], i < 2, becomes the F16 g + 16 i and 8 + g + 16 i of the 32 in shared memory at
 * p + 64 t; own: p + GROUPS_AT(lane).
 * copy_async(to, from): 16 bytes, copy_async4() 4 bytes, both aligned to as many, complete after a copy_wait(n)
 * that leaves at most the n latest groups under way; copy_commit() ends a group.  Other lanes see the bytes
 * after a barrier.  copy_async_if(): without a branch, which a loop would pay for in each step.
 * copy_async_two_if(): also those 512 bytes further on.
 * four_store(p, v): four F32 to shared memory at p, on 16 bytes, by one store.
 * own_address(p, lane): p, an address in shared memory of this lane.  The compiler cannot tell what it is made of, and
 * keeps it in a register instead of making it again in each step of a loop.
 * at_step(base, n, each): base + n each, by one instruction and without a pointer that counts along.
 */
#ifndef TSR_CUDA_K_MMA_H
#define TSR_CUDA_K_MMA_H

#include "k_math.h"

#define HALVES_AT(lane) (32 * ((lane) / 8) + 16 * ((lane) % 2))
#define GROUPS_AT(lane) (64 * ((lane) % 8 / 2) + 16 * ((lane) % 2) + 32 * ((lane) / 8 % 2))

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750)
DEV void halves_load(uint32_t *v, const int n, const uint8_t *own, uint32_t lane)
{
    const uint16_t *p = (const uint16_t *)(const void *)(own - HALVES_AT(lane)) + lane / 4;
    UNROLL_LOOP
    for (int i = 0; i < n; i++)
        v[i] = (uint32_t)p[16 * i] | (uint32_t)p[16 * i + 8] << 16;
}
DEV void groups_load(uint32_t *v, const uint8_t *own, uint32_t lane)
{
    const uint16_t *p =
        (const uint16_t *)(const void *)(own - GROUPS_AT(lane) + 64 * (lane % 4)) + lane / 4;
    UNROLL_LOOP
    for (int i = 0; i < 2; i++)
        v[i] = (uint32_t)p[16 * i] | (uint32_t)p[16 * i + 8] << 16;
}
DEV void rows_load(uint32_t *v, const int n, const uint8_t *own, uint32_t lane)
{
    const uint8_t *p = own - 16 * lane;
    UNROLL_LOOP
    for (int i = 0; i < n; i++)
        v[i] = *(const uint32_t *)(const void *)(p + 16 * (lane / 4 + 8 * (uint32_t)i) +
                                                 4 * (lane % 4));
}
#else
/* Rows 2t and 2t + 1 of a matrix that is turned over: the two pieces of 16 bytes, four times. */
DEV void halves_load(uint32_t *v, const int n, const uint8_t *own, uint32_t lane)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(own);
    (void)lane;
    if (n == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(v[0]), "=r"(v[1])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(at)
                     : "memory");
}
/* The same of pieces that are others' rows: two matrices have the four groups. */
DEV void groups_load(uint32_t *v, const uint8_t *own, uint32_t lane)
{
    halves_load(v, 2, own, lane);
}
DEV void rows_load(uint32_t *v, const int n, const uint8_t *own, uint32_t lane)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(own);
    (void)lane;
    if (n == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(v[0]), "=r"(v[1])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(at)
                     : "memory");
}
#endif

#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800 /* neither is there: the same by other means */

DEV void mma_s8(int32_t *c, const uint32_t *a, const uint32_t *b)
{
    const uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        UNROLL_LOOP
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t top = shfl_u(ALL_LANES, a[2 * half], 4 * g + i);
            uint32_t low = shfl_u(ALL_LANES, a[2 * half + 1], 4 * g + i);
            uint32_t x = shfl_u(ALL_LANES, b[half], 8 * t + i);
            uint32_t y = shfl_u(ALL_LANES, b[half], 8 * t + 4 + i);
            c[0] = __dp4a((int32_t)top, (int32_t)x, c[0]);
            c[1] = __dp4a((int32_t)top, (int32_t)y, c[1]);
            c[2] = __dp4a((int32_t)low, (int32_t)x, c[2]);
            c[3] = __dp4a((int32_t)low, (int32_t)y, c[3]);
        }
    }
}
DEV void mma_s8_from(int32_t *d, const int32_t *c, const uint32_t *a, const uint32_t *b)
{
    UNROLL_LOOP
    for (int i = 0; i < 4; i++)
        d[i] = c[i];
    mma_s8(d, a, b);
}
DEV void mma_s8_half(int32_t *d, const int32_t *c, const uint32_t *a, uint32_t b)
{
    const uint32_t f[4] = { a[0], a[1], 0, 0 }, v[2] = { b, 0 };
    mma_s8_from(d, c, f, v);
}
DEV void copy_async(void *to, const void *from)
{
    *(uint4 *)to = *(const uint4 *)from;
}
DEV void copy_async4(void *to, const void *from)
{
    *(uint32_t *)to = *(const uint32_t *)from;
}
DEV void copy_async_if(void *to, const void *from, int there)
{
    if (there)
        copy_async(to, from);
}
DEV void copy_async_two_if(uint8_t *to, const uint8_t *from, int there)
{
    copy_async_if(to, from, there);
    copy_async_if(to + 512, from + 512, there);
}
DEV void copy_commit(void)
{
}
DEV void copy_wait(const int n)
{
    (void)n;
}

#else

DEV void mma_s8_from(int32_t *d, const int32_t *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
                   "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
DEV void mma_s8(int32_t *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEV void mma_s8_half(int32_t *d, const int32_t *c, const uint32_t *a, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
DEV void copy_async(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
DEV void copy_async4(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
DEV void copy_async_if(void *to, const void *from, int there)
{
    asm volatile("{ .reg .pred there; setp.ne.s32 there, %2, 0; "
                 "@there cp.async.cg.shared.global [%0], [%1], 16; }"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there)
                 : "memory");
}
DEV void copy_async_two_if(uint8_t *to, const uint8_t *from, int there)
{
    asm volatile("{ .reg .pred there; setp.ne.s32 there, %2, 0; "
                 "@there cp.async.cg.shared.global [%0], [%1], 16; "
                 "@there cp.async.cg.shared.global [%0 + 512], [%1 + 512], 16; }"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there)
                 : "memory");
}
DEV void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* The number is part of the instruction: n is a constant of at most 6. */
DEV void copy_wait(const int n)
{
#define COPY_WAIT(i)                                                                               \
    if (n == (i))                                                                                  \
    asm volatile("cp.async.wait_group " #i ";" ::: "memory")
    COPY_WAIT(0);
    COPY_WAIT(1);
    COPY_WAIT(2);
    COPY_WAIT(3);
    COPY_WAIT(4);
    COPY_WAIT(5);
    COPY_WAIT(6);
#undef COPY_WAIT
}

#endif

DEV void halves_widen(uint32_t v, float *f)
{
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, "
        "high; }"
        : "=f"(f[0]), "=f"(f[1])
        : "r"(v));
}
DEV void four_store(uint8_t *p, const float *v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(p)), "f"(v[0]), "f"(v[1]), "f"(v[2]),
                   "f"(v[3])
                 : "memory");
}
DEV uint8_t *own_address(uint8_t *p, uint32_t lane)
{
    return (uint8_t *)__cvta_shared_to_generic(
        shfl_u(ALL_LANES, (uint32_t)__cvta_generic_to_shared(p), lane));
}
DEV const uint8_t *at_step(const uint8_t *base, uint32_t n, uint32_t each)
{
    const uint8_t *p;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(p) : "r"(n), "r"(each), "l"(base));
    return p;
}

#else /* simt/simt_kernel.h has the others */

DEV void mma_s8_from(int32_t *d, const int32_t *c, const uint32_t *a, const uint32_t *b)
{
    for (int i = 0; i < 4; i++)
        d[i] = c[i];
    mma_s8(d, a, b);
}
DEV void mma_s8_half(int32_t *d, const int32_t *c, const uint32_t *a, uint32_t b)
{
    const uint32_t f[4] = { a[0], a[1], 0, 0 }, v[2] = { b, 0 };
    mma_s8_from(d, c, f, v);
}
DEV void halves_widen(uint32_t v, float *f)
{
    f[0] = k_half_factor(v & 0xffffu);
    f[1] = k_half_factor(v >> 16);
}
DEV void copy_async_two_if(uint8_t *to, const uint8_t *from, int there)
{
    if (!there)
        return;
    copy_async(to, from);
    copy_async(to + 512, from + 512);
}
DEV void copy_async_if(void *to, const void *from, int there)
{
    if (there)
        copy_async(to, from);
}
DEV void four_store(uint8_t *p, const float *v)
{
    const float4 to = { v[0], v[1], v[2], v[3] };
    *(float4 *)(void *)p = to;
}
DEV uint8_t *own_address(uint8_t *p, uint32_t lane)
{
    (void)lane;
    return p;
}
DEV const uint8_t *at_step(const uint8_t *base, uint32_t n, uint32_t each)
{
    return base + (uint64_t)n * each;
}

#endif

#endif
