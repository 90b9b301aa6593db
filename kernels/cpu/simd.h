/* simd.h - one vector of 16 lanes for every instruction set. The kernel sources (k_*.c) are compiled once
 * per set with TSR_SIMD = 0 (scalar), 2 (AVX2, with TSR_VNNI also its products of bytes), 512 (AVX-512 with VNNI) or 128 (NEON, with dotprod and i8mm where the
 * compiler may use them); their results are bit-identical because each operation below is. */
#ifndef TSR_SIMD_H
#define TSR_SIMD_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#if TSR_SIMD == 512
#include "simd_avx512.h"
#define ISA_NAME    avx512
#define ISA_VECS    2  /* vectors of rows in a GEMM tile */
#define ISA_TOKENS  12 /* tokens in a GEMM tile */
#define ISA_TOKENS8 8  /* the same for int8 activations */
#elif TSR_SIMD == 2
#include "simd_avx2.h"
#if !defined(TSR_VNNI)
#define ISA_NAME    avx2
#define ISA_DOT_LOW /* vi_dot4_low() is not vi_dot4() */
#else               /* meson.build names the set */
#define ISA_BASE avx2
#endif
#define ISA_VECS    1
#define ISA_TOKENS  6
#define ISA_TOKENS8 6
#elif TSR_SIMD == 128
#include "simd_neon_int.h"
#define ISA_BASE neon
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define ISA_NAME i8mm
#elif defined(__ARM_FEATURE_DOTPROD)
#define ISA_NAME dotprod
#define ISA_DOT_LOW
#else
#define ISA_NAME neon
#define ISA_DOT_LOW
#endif
#define ISA_VECS    1
#define ISA_TOKENS  6
#define ISA_TOKENS8 6
#else
#include "simd_scalar.h"
#define ISA_NAME    scalar
#define ISA_VECS    1
#define ISA_TOKENS  4
#define ISA_TOKENS8 4
#endif

/* Tile sizes change no result. Builds with sanitizers use small tiles: inlining into the large ones takes
 * their compiler minutes. */
#if defined(TSR_SMALL_TILES)
#undef ISA_VECS
#undef ISA_TOKENS
#undef ISA_TOKENS8
#define ISA_VECS    1
#define ISA_TOKENS  4
#define ISA_TOKENS8 4
#endif

/* K(norm) is tsr_k_norm_avx512 and so on. */
#define ISA_JOIN_(a, b) tsr_k_##a##_##b
#define ISA_JOIN(a, b)  ISA_JOIN_(a, b)
#define K(name)         ISA_JOIN(name, ISA_NAME)

/* K_BASE(norm): a set that adds products of bytes to another shares the kernels that have none. */
#if !defined(ISA_BASE)
#define ISA_BASE ISA_NAME
#endif
#define K_BASE(name) ISA_JOIN(name, ISA_BASE)

#if TSR_SIMD == 0 || defined(TSR_SMALL_TILES) || defined(TSR_ROLLED)
/* The scalar twin, builds with sanitizers and those of tests/digests serve correctness: unrolled tiles would gain little
 * there and cost the compiler minutes. */
#define INLINE static inline
#define UNROLL
#else
#define INLINE static inline __attribute__((always_inline))
/* Loops over a tile must become straight code, else the tile lives in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#endif

#endif
