/* k_tile.h - names for the registers of a tile.  A tile's accumulators must be scalars: compilers
 * unroll a loop over an array too late to keep the array out of memory.  TILE_EACH(X) writes
 * X(t) for every token of the largest tile, FEW_EACH(X) for every token of the GEMV form;
 * X guards with `t < m`, which is constant.
 */
#ifndef TSR_K_TILE_H
#define TSR_K_TILE_H

#include "simd.h"

#if ISA_VECS == 2
#define SECOND(x) x
#else
#define SECOND(x)
#endif

#define FEW_EACH(X) X(0) X(1) X(2) X(3)
#if ISA_TOKENS == 12
#define TILE_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif ISA_TOKENS == 6
#define TILE_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5)
#else
#define TILE_EACH(X) X(0) X(1) X(2) X(3)
#endif

/* Tiles of int8 activations. */
#if ISA_TOKENS8 == 8
#define TILE8_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define TILE8_EACH TILE_EACH
#endif

/* TILE_SWITCH(m, f) calls f(m) with a constant, FEW_SWITCH for the GEMV form. */
#define TILE_CASE(n, f)                                                                            \
    case n:                                                                                        \
        f(n);                                                                                      \
        break
#if ISA_TOKENS == 12
#define TILE_SWITCH(m, f)                                                                          \
    switch (m) {                                                                                   \
        TILE_CASE(12, f);                                                                          \
        TILE_CASE(11, f);                                                                          \
        TILE_CASE(10, f);                                                                          \
        TILE_CASE(9, f);                                                                           \
        TILE_CASE(8, f);                                                                           \
        TILE_CASE(7, f);                                                                           \
        TILE_CASE(6, f);                                                                           \
        TILE_CASE(5, f);                                                                           \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }
#elif ISA_TOKENS == 6
#define TILE_SWITCH(m, f)                                                                          \
    switch (m) {                                                                                   \
        TILE_CASE(6, f);                                                                           \
        TILE_CASE(5, f);                                                                           \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }
#else
#define TILE_SWITCH(m, f)                                                                          \
    switch (m) {                                                                                   \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }
#endif
#if ISA_TOKENS8 == 8
#define TILE8_SWITCH(m, f)                                                                         \
    switch (m) {                                                                                   \
        TILE_CASE(8, f);                                                                           \
        TILE_CASE(7, f);                                                                           \
        TILE_CASE(6, f);                                                                           \
        TILE_CASE(5, f);                                                                           \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }
#else
#define TILE8_SWITCH TILE_SWITCH
#endif
/* Tiles of codes as they are stored (cpu_tiles_few()). On AVX2 a call is one of them, with more than DIRECT_MAX tokens. */
#if ISA_TOKENS8 == 6
#define STORED_SWITCH(m, f)                                                                        \
    switch (m) {                                                                                   \
        TILE_CASE(6, f);                                                                           \
    default:                                                                                       \
        f(5);                                                                                      \
        break;                                                                                     \
    }
#else
#define STORED_SWITCH TILE8_SWITCH
#endif
#define FEW_SWITCH(m, f)                                                                           \
    switch (m) {                                                                                   \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }

#endif
