#include "conformance/wire.h"

#include "base/f16.h"
#include "tessera/format.h"

#include <math.h>
#include <string.h>

/* ---- one bit stream, little-endian ------------------------------------------------ */

static void put_bits(unsigned char *p, uint64_t at, uint32_t n, uint32_t v)
{
    for (uint32_t i = 0; i < n; i++)
        if (v >> i & 1)
            p[(at + i) / 8] |= (unsigned char)(1u << (at + i) % 8);
}

static uint32_t get_bits(const unsigned char *p, uint64_t at, uint32_t n)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < n; i++)
        v |= (uint32_t)(p[(at + i) / 8] >> (at + i) % 8 & 1) << i;
    return v;
}

/* ---- elements of MX ---------------------------------------------------------------- */

struct element {
    uint32_t e, m, bits;
    uint32_t largest; /* magnitude of the largest number */
};

static struct element element_of(const struct tsr_codec_wire *w)
{
    struct element l = { w->element >> 8, w->element & 0xff, 0, 0 };
    l.bits = 1 + l.e + l.m;
    l.largest = (1u << (l.e + l.m)) - 1;
    if (w->element == TSR_MX_FP8_E4M3)
        l.largest = 0x7e;
    if (w->element == TSR_MX_FP8_E5M2)
        l.largest = 0x7b;
    return l;
}

/* Of a code without its sign. */
static double magnitude(const struct element *l, uint32_t code)
{
    if (l->e == 0)
        return ldexp((double)code, -(int)(l->m - 1));
    int      bias = (1 << (l->e - 1)) - 1;
    uint32_t e = code >> l->m, m = code & ((1u << l->m) - 1);
    if (l->bits == 8 && code > l->largest)
        return l->e == 5 && m == 0 ? (double)INFINITY : (double)NAN;
    return e == 0 ? ldexp((double)m, 1 - bias - (int)l->m)
                  : ldexp((double)(m | 1u << l->m), (int)e - bias - (int)l->m);
}

/* Magnitudes grow with their codes. */
static uint32_t nearest(const struct element *l, double v, uint32_t rounding)
{
    uint32_t below = 0;
    while (below < l->largest && magnitude(l, below + 1) <= v)
        below++;
    if (below == l->largest || rounding == TSR_WIRE_FLOOR)
        return below;
    double down = v - magnitude(l, below), up = magnitude(l, below + 1) - v;
    if (down != up)
        return below + (up < down);
    return below + (rounding == TSR_WIRE_NEAREST || below % 2 == 1);
}

static uint64_t blocks_of(const struct tsr_codec_wire *w)
{
    return w->cols / w->block + (w->cols % w->block != 0);
}

static uint64_t scale_bytes(const struct tsr_codec_wire *w)
{
    return (blocks_of(w) * w->scale_bits + 7) / 8;
}

static void encode_mx(const struct tsr_codec_wire *w, const float *x, unsigned char *row)
{
    struct element l = element_of(w);
    int            lim = (1 << (w->scale_bits - 1)) - 1, top, big;
    uint64_t       at = 8 * scale_bytes(w);
    (void)frexp(magnitude(&l, l.largest), &top);
    for (uint64_t b = 0; b < blocks_of(w); b++) {
        uint64_t end = w->cols - b * w->block < w->block ? w->cols : (b + 1) * w->block;
        double   most = 0;
        for (uint64_t i = b * w->block; i < end; i++)
            most = fmax(most, fabs((double)x[i]));
        (void)frexp(most, &big);
        int scale = most > 0 && big - top > -lim ? big - top : -lim;
        put_bits(row, b * w->scale_bits, w->scale_bits, (uint32_t)(scale + lim));
        for (uint64_t i = b * w->block; i < end; i++) {
            uint32_t code = nearest(&l, ldexp(fabs((double)x[i]), -scale), w->rounding);
            put_bits(row, at + i * l.bits, l.bits,
                     code | (signbit(x[i]) && code ? 1u << (l.e + l.m) : 0));
        }
    }
}

static void decode_mx(const struct tsr_codec_wire *w, const unsigned char *row, float *x)
{
    struct element l = element_of(w);
    int            lim = (1 << (w->scale_bits - 1)) - 1;
    uint64_t       at = 8 * scale_bytes(w);
    for (uint64_t i = 0; i < w->cols; i++) {
        uint32_t scale = get_bits(row, i / w->block * w->scale_bits, w->scale_bits);
        uint32_t code = get_bits(row, at + i * l.bits, l.bits), sign = code >> (l.e + l.m);
        double   v = magnitude(&l, code & ((1u << (l.e + l.m)) - 1));
        if (scale > 2 * (uint32_t)lim)
            v = (double)NAN;
        v = ldexp(v, (int)scale - lim);
        x[i] = (float)(sign && v != 0 ? -v : v);
    }
}

/* ---- the others ---------------------------------------------------------------------- */

static void encode_scaled(const struct tsr_codec_wire *w, const float *x, unsigned char *row)
{
    float q = (float)((1 << (w->bits - 1)) - 1);
    for (uint64_t i = 0; i < w->kept; i++) {
        uint16_t h = tsr_f32_bf16(x[w->feature[i]]);
        memcpy(row + 2 * i, &h, sizeof h);
    }
    for (uint64_t i = 0; i < w->cols - w->kept; i++) {
        float code = rintf(x[w->place[i]] * w->inv[i]);
        code = fminf(fmaxf(code, -q), q) + q + 1;
        put_bits(row, 16 * w->kept + i * w->bits, w->bits, (uint32_t)code);
    }
}

static void decode_scaled(const struct tsr_codec_wire *w, const unsigned char *row, float *x)
{
    float q = (float)((1 << (w->bits - 1)) - 1);
    for (uint64_t i = 0; i < w->kept; i++) {
        uint16_t h;
        memcpy(&h, row + 2 * i, sizeof h);
        x[w->feature[i]] = tsr_bf16_f32(h);
    }
    for (uint64_t i = 0; i < w->cols - w->kept; i++) {
        uint32_t code = get_bits(row, 16 * w->kept + i * w->bits, w->bits);
        x[w->place[i]] = code ? ((float)code - q - 1) * w->scale[i] : NAN;
    }
}

static void encode_plain(const struct tsr_codec_wire *w, const float *x, unsigned char *row)
{
    for (uint64_t i = 0; i < w->cols; i++) {
        uint16_t h = w->dtype == TSR_BF16 ? tsr_f32_bf16(x[i]) : tsr_f32_f16(x[i]);
        if (w->dtype == TSR_F32)
            memcpy(row + 4 * i, &x[i], 4);
        else
            memcpy(row + 2 * i, &h, 2);
    }
}

/* ---- all kinds ------------------------------------------------------------------------ */

/* Every column once, in BF16 or as a code. */
static const char *lists_wrong(const struct tsr_codec_wire *w)
{
    if (w->kept > w->cols || (w->kept && !w->feature) ||
        (w->kept < w->cols && (!w->place || !w->inv || !w->scale)))
        return "a list is missing, or more features are kept than there are";
    for (uint64_t k = 0; k < w->cols; k++) {
        uint64_t n = 0;
        for (uint64_t i = 0; i < w->cols; i++)
            n += (i < w->kept ? w->feature[i] : w->place[i - w->kept]) == k;
        if (n != 1)
            return "a feature is in the lists twice, or not there";
    }
    for (uint64_t i = 1; i < w->kept; i++)
        if (w->feature[i] <= w->feature[i - 1])
            return "kept features do not ascend";
    return NULL;
}

static const char *mx_wrong(const struct tsr_codec_wire *w)
{
    struct element l = element_of(w);
    if (l.m == 0 || l.e > 5 || l.bits < 2 || l.bits > 8)
        return "element is not one of TSR_MX_*";
    if (w->scale_bits < 4 || w->scale_bits > 8 || w->block == 0)
        return "scale_bits is not 4 to 8, or a block has no columns";
    return w->rounding > TSR_WIRE_FLOOR || w->scale_rule > TSR_WIRE_SCALE_CEIL
               ? "rounding or scale_rule is not one of TSR_WIRE_*"
               : NULL;
}

const char *tsr_conformance_wire_wrong(const struct tsr_codec_wire *w)
{
    const char *wrong = NULL;
    uint64_t    bytes = 0;
    if (w->kind == TSR_WIRE_PLAIN) {
        wrong = w->dtype != TSR_F32 && w->dtype != TSR_BF16 && w->dtype != TSR_F16
                    ? "dtype is not TSR_F32, TSR_BF16 or TSR_F16"
                    : NULL;
        bytes = w->cols * (w->dtype == TSR_F32 ? 4 : 2);
    } else if (w->kind == TSR_WIRE_MX) {
        wrong = mx_wrong(w);
        if (!wrong)
            bytes = scale_bytes(w) + (w->cols * element_of(w).bits + 7) / 8;
    } else if (w->kind == TSR_WIRE_SCALED) {
        wrong = w->bits < 2 || w->bits > 8 ? "bits is not 2 to 8" : lists_wrong(w);
        bytes = 2 * w->kept + ((w->cols - w->kept) * w->bits + 7) / 8;
    } else {
        wrong = "kind is not one of TSR_WIRE_*";
    }
    return wrong                   ? wrong
           : bytes != w->row_bytes ? "row_bytes is not that of the other members"
                                   : NULL;
}

bool tsr_conformance_wire_encodes(const struct tsr_codec_wire *w)
{
    return w->kind != TSR_WIRE_MX || w->scale_rule == TSR_WIRE_SCALE_FLOOR;
}

void tsr_conformance_wire_encode(const struct tsr_codec_wire *w, const float *x, unsigned char *row)
{
    memset(row, 0, w->row_bytes);
    if (w->kind == TSR_WIRE_PLAIN)
        encode_plain(w, x, row);
    else if (w->kind == TSR_WIRE_MX)
        encode_mx(w, x, row);
    else
        encode_scaled(w, x, row);
}

void tsr_conformance_wire_decode(const struct tsr_codec_wire *w, const unsigned char *row, float *x)
{
    if (w->kind == TSR_WIRE_PLAIN)
        tsr_widen(x, row, w->dtype, w->cols);
    else if (w->kind == TSR_WIRE_MX)
        decode_mx(w, row, x);
    else
        decode_scaled(w, row, x);
}
