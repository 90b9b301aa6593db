/* kernel.h - interface to the encoder of one instruction set. */
#ifndef TSR_ENCODE_KERNEL_H
#define TSR_ENCODE_KERNEL_H

#include "encode.h"

/* An element as arithmetic on the bits of F32 sees it.  With e the exponent of x / 2^S and
 * f = max(e, emin): magnitude = (f - emin) * 2^mant + round(|x| / 2^S / 2^(f - mant)), which is
 * the code without its sign, for integers too. */
struct tsr_encode_element {
    int32_t  emin, emax, mant;
    uint32_t max;  /* largest magnitude code   */
    uint32_t sign; /* bit number of the sign   */
    uint32_t bits;
};

struct tsr_encode_element tsr_encode_element(uint32_t element);

#ifdef ENCODE_SIMD
#if ENCODE_SIMD == 512
#define ENCODE_NAME avx512
#elif ENCODE_SIMD == 2
#define ENCODE_NAME avx2
#else
#define ENCODE_NAME scalar
#endif
#endif

/* k_decode.c, once per instruction set: tsr_encode_mx_decode_avx512, ... */
#define DECODE__(f, isa) tsr_encode_##f##_##isa
#define DECODE_(f, isa)  DECODE__(f, isa)
#define DECODE(f)        DECODE_(f, ENCODE_NAME)
#ifdef ENCODE_NAME
void DECODE(mx_decode)(const struct tsr_decode_mx *m, uint64_t cols, const uint8_t *codes,
                       const uint8_t *scales, float *dst, int add);
void DECODE(scaled_encode)(uint32_t bits, uint64_t cols, const float *x, const float *inv,
                           uint8_t *codes);
void DECODE(scaled_decode)(uint32_t bits, uint64_t cols, const uint8_t *codes, const float *scale,
                           float *dst, int add);
#endif

extern const struct tsr_encode tsr_encode_scalar;
extern const struct tsr_encode tsr_encode_avx2;
extern const struct tsr_encode tsr_encode_avx512;

#endif
