/* element.c - an element as arithmetic on the bits of F32 sees it. */
#include "kernel.h"

struct tsr_encode_element tsr_encode_element(uint32_t element)
{
    int32_t                   e = (int32_t)(element >> 8), m = (int32_t)(element & 0xffu);
    struct tsr_encode_element r = { .bits = tsr_encode_mx_bits(element) };
    r.sign = r.bits - 1;
    r.max = (1u << r.sign) - 1;
    r.mant = e ? m : m - 1; /* 1.xxx: an integer's binary point is after its first bit */
    if (e) {
        r.emin = 2 - (1 << (e - 1));
        r.emax = 1 << (e - 1);
    }
    if (element == TSR_MX_FP8_E4M3)
        r.max = 0x7e; /* 448; 0x7f is NaN */
    if (element == TSR_MX_FP8_E5M2) {
        r.max = 0x7b; /* 57344; larger codes are Inf and NaN */
        r.emax = 15;
    }
    return r;
}
