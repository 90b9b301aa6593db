/* element.h - MX elements: the codes of docs/formats/mx.md, and a magnitude to its nearest code.
 *
 * Codes of one sign ascend with their values, so rounding works on whole steps: a magnitude is
 * M * 2^(E-23) with an integer M, an element's grid in the binade of 2^e is 2^(e-mantissa), and
 * their quotient is a shift.  No operation rounds but the one that is meant to. */
#ifndef TSR_MX_ELEMENT_H
#define TSR_MX_ELEMENT_H

#include <tessera/format.h>

#include <stdint.h>
#include <string.h>

enum { MX_EVEN, MX_NEAREST, MX_FLOOR };

struct mx_element {
    uint32_t bits;     /* of a code, sign included                                */
    int      floats;   /* 0: sign and magnitude integer                           */
    int      mantissa; /* stored mantissa bits; of an integer those behind its 1. */
    int      emin;     /* exponent of the smallest normal number                  */
    int      emax;     /* exponent of the largest number                          */
    uint32_t largest;  /* magnitude code of the largest number                    */
};

static inline struct mx_element mx_element_of(uint32_t element)
{
    int               exponent = (int)(element >> 8), mantissa = (int)(element & 255);
    struct mx_element e = { .bits = (uint32_t)(1 + exponent + mantissa), .mantissa = mantissa };
    e.largest = (1u << (e.bits - 1)) - 1;
    if (exponent == 0) { /* 1.xxx: the leading 1 is stored too */
        e.mantissa = mantissa - 1;
        return e;
    }
    e.floats = 1;
    e.emin = 2 - (1 << (exponent - 1));
    e.emax = 1 << (exponent - 1);
    if (element == TSR_MX_FP8_E4M3)
        e.largest = 0x7e; /* 0x7f is its NaN */
    if (element == TSR_MX_FP8_E5M2) {
        e.largest = 0x7b; /* infinity and NaN above */
        e.emax = 15;
    }
    return e;
}

/* The magnitude of code (without its sign) before the block's scale. */
static inline float mx_value(const struct mx_element *e, uint32_t code)
{
    int      exponent = 0;
    uint32_t steps = code;
    if (e->floats) {
        uint32_t field = code >> e->mantissa;
        exponent = field ? e->emin + (int)field - 1 : e->emin;
        steps = (code & ((1u << e->mantissa) - 1)) | (field ? 1u << e->mantissa : 0);
    }
    uint32_t u = (uint32_t)(127 + exponent - e->mantissa) << 23;
    float    step;
    memcpy(&step, &u, sizeof step);
    return (float)steps * step;
}

/* floor(log2 |f|) of a finite f other than 0, and its 24-bit significand. */
static inline int mx_exponent(float f, uint32_t *significand)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t field = u >> 23 & 255, m = u & 0x7fffff;
    if (field) {
        *significand = m | 0x800000;
        return (int)field - 127;
    }
    int up = __builtin_clz(m) - 8;
    *significand = m << up;
    return -126 - up;
}

/* The magnitude code of |f| / 2^scale, f finite; saturates. */
static inline uint32_t mx_code(const struct mx_element *e, float f, int scale, int rounding)
{
    uint32_t m;
    if (f == 0.0f)
        return 0;
    int a = mx_exponent(f, &m) - scale;
    int binade = !e->floats ? 0 : a > e->emin ? a : e->emin;
    if (binade > e->emax)
        return e->largest;
    int shift = 23 - e->mantissa + binade - a; /* at least 16 */
    if (shift > 24)
        return 0; /* below half a step */
    uint32_t steps = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rounding == MX_NEAREST)
        steps += rest >= half;
    else if (rounding == MX_EVEN)
        steps += rest > half || (rest == half && (steps & 1));
    if (e->floats) /* a carry into the next binade gives its first code */
        steps += (uint32_t)(binade - e->emin) << e->mantissa;
    return steps < e->largest ? steps : e->largest;
}

#endif
