/* k.h - one dialect for kernels: nvcc compiles them for devices, a C compiler for simt/simt.h.
 *
 * It is C without the features that C++ lacks. A kernel takes one struct of k_args.h by value; device
 * addresses in it are integers, AT() converts them to pointers. Arithmetic follows
 * docs/decisions/numerics.md: contraction is off (-fmad=false), fmaf() is a fused multiply-add, division
 * and square root round once, denormals are kept.
 */
#ifndef TSR_CUDA_K_H
#define TSR_CUDA_K_H

#ifdef __CUDACC__

#include <float.h>
#include <stdint.h>

#define DEV         static __device__ __forceinline__
#define DEV_CALL    static __device__ __noinline__
#define UNROLL_LOOP _Pragma("unroll")
#define UNROLL_8    _Pragma("unroll 8")
#define UNROLL_4    _Pragma("unroll 4")
#define UNROLL_NOT  _Pragma("unroll 1")
#define RESTRICT    __restrict__

/* Arguments that stay where the launch put them, from sm_70 on; four products of bytes, from sm_61 on. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define GRID_CONSTANT
#else
#define GRID_CONSTANT __grid_constant__
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 610
DEV int32_t __dp4a(int32_t a, int32_t b, int32_t c)
{
    UNROLL_LOOP
    for (int i = 0; i < 32; i += 8)
        c += (int32_t)(int8_t)(a >> i) * (int32_t)(int8_t)(b >> i);
    return c;
}
#endif

#define AT(type, address) ((type *)(uintptr_t)(address))
/* Shared memory beyond the 48 KiB of any block: n is K_BLOCK_SHARED, which the launch asks for. */
#define SHARED_LARGE(type, name, n) extern __shared__ type name[]
/* In a graph the blocks of a kernel may begin before those of the one before it have ended, from sm_90 on
 * (graph_cuda.c).  start_next() allows the next kernel to begin. After wait_for_previous() all that was launched
 * before has ended, and what it wrote is there. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
DEV void start_next(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
DEV void wait_for_previous(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#else
DEV void start_next(void)
{
}
DEV void wait_for_previous(void)
{
}
#endif

/* A kernel: its arguments; threads of a block, and blocks that a multiprocessor must have room for.  Each thread of an EARLY
 * one calls wait_for_previous() itself: before that it reads nothing that a kernel writes, and writes nothing. */
#define TSR_KERNEL_EARLY(name, args_t, ...)                                                        \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const GRID_CONSTANT args_t a)
#define TSR_KERNEL(name, args_t, ...)                                                              \
    extern "C" __device__ __forceinline__ void name##_body(const args_t &a);                       \
    TSR_KERNEL_EARLY(name, args_t, __VA_ARGS__)                                                    \
    {                                                                                              \
        start_next();                                                                              \
        wait_for_previous();                                                                       \
        name##_body(a);                                                                            \
    }                                                                                              \
    extern "C" __device__ __forceinline__ void name##_body(const args_t &a)

#define shfl_f(m, v, l)      __shfl_sync((m), (float)(v), (int)(l))
#define shfl_u(m, v, l)      __shfl_sync((m), (uint32_t)(v), (int)(l))
#define shfl_xor_f(m, v, l)  __shfl_xor_sync((m), (float)(v), (int)(l))
#define shfl_xor_u(m, v, l)  __shfl_xor_sync((m), (uint32_t)(v), (int)(l))
#define shfl_down_f(m, v, l) __shfl_down_sync((m), (float)(v), (unsigned)(l))
#define shfl_down_u(m, v, l) __shfl_down_sync((m), (uint32_t)(v), (unsigned)(l))

#else
#include "simt/simt_kernel.h"
#endif

#include "k_args.h"

#define WARP      32u
#define ALL_LANES 0xffffffffu

#endif
