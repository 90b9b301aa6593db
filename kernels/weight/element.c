/* element.c - the numbers that a weight's codes, tables and scales represent. */
#include "weight.h"

#include "tessera/f16.h"

#include <math.h>
#include <string.h>

uint32_t tsr_weight_code(const uint8_t *row, uint64_t k, uint32_t bits)
{
    uint64_t at = k * bits;
    uint32_t v = (uint32_t)(row[at / 8] >> (at % 8));
    if (at % 8 + bits > 8)
        v |= (uint32_t)row[at / 8 + 1] << (8 - at % 8);
    return v & ((1u << bits) - 1u);
}

float tsr_weight_entry(const struct tsr_format *f, const uint8_t *meta, uint64_t i)
{
    float    v;
    uint16_t h;
    if (f->scale_dtype == TSR_F32) {
        memcpy(&v, meta + 4 * i, 4);
        return v;
    }
    memcpy(&h, meta + 2 * i, 2);
    return tsr_f16_f32_quiet(h);
}

float tsr_weight_fp8_scale(const struct tsr_format *f, const uint8_t *meta, uint64_t g)
{
    uint32_t bits = 0; /* BF16 is the upper half of F32 */
    uint64_t size = f->scale_dtype == TSR_F32 ? 4 : 2;
    float    v;
    memcpy((uint8_t *)&bits + 4 - size, meta + g * size, size);
    memcpy(&v, &bits, 4);
    return v;
}

float tsr_weight_round_table(const float *table, uint64_t n, int8_t *t)
{
    float amax = 0.0f;
    int   finite = 1;
    for (uint64_t i = 0; i < n; i++) {
        finite &= isfinite(table[i]) != 0;
        amax = fabsf(table[i]) > amax ? fabsf(table[i]) : amax;
    }
    float scale = amax / 127.0f, inv = 1.0f / scale;
    memset(t, 0, n);
    if (!finite)
        return NAN;
    if (!isfinite(inv))
        return 0.0f;
    for (uint64_t i = 0; i < n; i++) {
        float q = rintf(table[i] * inv);
        t[i] = (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    }
    return scale;
}

float tsr_weight_map_table(const struct tsr_format *f, int8_t t[TSR_TABLE_ENTRIES])
{
    uint32_t n = f->bits > 4 ? 0 : 1u << f->bits;
    memset(t, 0, TSR_TABLE_ENTRIES);
    for (int u = 0; u <= 6; u++) {
        uint32_t whole = 0;
        for (; whole < n; whole++) {
            float v = ldexpf(f->table[whole], u);
            if (v != rintf(v) || fabsf(v) > 127.0f)
                break;
            t[whole] = (int8_t)v;
        }
        if (whole == n)
            return ldexpf(1.0f, -u);
    }
    return tsr_weight_round_table(f->table, n, t);
}

/* ---- MX ---------------------------------------------------------------------------- */

/* Integers (no exponent) have one bit before the point. */
static int ebits_of(uint32_t element)
{
    return (int)(element >> 8);
}

static int mbits_of(uint32_t element)
{
    return (int)(element & 255);
}

uint32_t tsr_element_units(uint32_t element, uint32_t magnitude)
{
    int      mbits = mbits_of(element);
    uint32_t e = magnitude >> mbits, m = magnitude & ((1u << mbits) - 1u);
    if (ebits_of(element) == 0)
        return magnitude;
    return e ? ((1u << mbits) + m) << (e - 1) : m;
}

int tsr_element_unit(uint32_t element)
{
    int ebits = ebits_of(element);
    return (ebits ? (1 << (ebits - 1)) - 1 : 0) + mbits_of(element) - 1;
}

uint32_t tsr_element_largest(uint32_t element)
{
    return tsr_element_units(element, (1u << (ebits_of(element) + mbits_of(element))) - 1u);
}

int tsr_element_finite(uint32_t element, uint32_t magnitude)
{
    return element == TSR_MX_FP8_E4M3   ? magnitude < 127
           : element == TSR_MX_FP8_E5M2 ? magnitude >> mbits_of(element) < 31
                                        : 1;
}

uint32_t tsr_element_digits(uint32_t element, uint32_t bits)
{
    uint32_t top = (1u << (ebits_of(element) + mbits_of(element))) - 1u, n = 1;
    while (!tsr_element_finite(element, top))
        top--;
    for (uint32_t units = tsr_element_units(element, top) >> bits; units; units >>= bits)
        n++;
    return n;
}

float tsr_element_value(uint32_t element, uint32_t code)
{
    int      ebits = ebits_of(element), mbits = mbits_of(element);
    uint32_t magnitude = code & ((1u << (ebits + mbits)) - 1u);
    float    v = ldexpf((float)tsr_element_units(element, magnitude), -tsr_element_unit(element));
    if (element == TSR_MX_FP8_E4M3 && magnitude == 127)
        v = NAN;
    if (element == TSR_MX_FP8_E5M2 && magnitude >> mbits == 31)
        v = magnitude & ((1u << mbits) - 1u) ? NAN : INFINITY;
    return magnitude && code >> (ebits + mbits) & 1 ? -v : v;
}

float tsr_element_scale(const struct tsr_format *f, uint8_t scale, int unit)
{
    int lim = (1 << (f->scale_bits - 1)) - 1;
    return scale > 2 * lim ? NAN : ldexpf(1.0f, scale - lim - unit);
}
