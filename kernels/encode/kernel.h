/* kernel.h - what one instruction set's encoder is given. */
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

extern const struct tsr_encode tsr_encode_scalar;
extern const struct tsr_encode tsr_encode_avx2;
extern const struct tsr_encode tsr_encode_avx512;

#endif
