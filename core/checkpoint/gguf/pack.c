/* Rows of GGUF types in the packed layouts of tessera/format.h: the same codes in another order, and
 * two-step scales of a block as they are or multiplied out. */
#include "checkpoint/gguf/block.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/grid.h"

#include <math.h>
#include <string.h>

#define NO_SCALE   "has a scale that is not a number"
#define NO_MINIMUM "has a minimum that is not a number"

/* The codes of a block, one a byte; the switch is outside the loops, which then are fast. */
static void unpack(uint32_t type, const unsigned char *b, unsigned char codes[256])
{
    if (tsr_gguf_is_vectors(type)) {
        tsr_gguf_vectors_codes(type, b, codes);
        return;
    }
    switch (type) {
    case TSR_GGUF_T_Q4_0:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)gguf_nibble(b + 2, i);
        return;
    case TSR_GGUF_T_Q4_1:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)gguf_nibble(b + 4, i);
        return;
    case TSR_GGUF_T_Q5_1:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)(gguf_nibble(b + 8, i) | gguf_fifth(b + 4, i) << 4);
        return;
    case TSR_GGUF_T_Q2_K:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_q2_code(b, i);
        return;
    case TSR_GGUF_T_Q4_K:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_q4_code(b + 16, i);
        return;
    case TSR_GGUF_T_Q5_K:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)(gguf_q4_code(b + 48, i) | gguf_q5_fifth(b + 16, i) << 4);
        return;
    case TSR_GGUF_T_Q5_0:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)(gguf_nibble(b + 6, i) | gguf_fifth(b + 2, i) << 4);
        return;
    case TSR_GGUF_T_Q8_0:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = b[2 + i] ^ 0x80u;
        return;
    case TSR_GGUF_T_IQ4_NL:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)gguf_nibble(b + 2, i);
        return;
    case TSR_GGUF_T_IQ4_XS:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_iq4_xs_code(b, i);
        return;
    case TSR_GGUF_T_TQ1_0:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_tq1_code(b, i);
        return;
    case TSR_GGUF_T_TQ2_0:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_tq2_code(b, i);
        return;
    case TSR_GGUF_T_Q3_K:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_q3_code(b, i);
        return;
    case TSR_GGUF_T_Q6_K:
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)gguf_q6_code(b, i);
        return;
    default: /* MXFP4 */
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)gguf_nibble(b + 1, i);
    }
}

/* n codes, a multiple of 8, into a little-endian bit stream, which then ends with a byte. */
static unsigned char *put_codes(unsigned char *p, const unsigned char *codes, unsigned n,
                                unsigned bits)
{
    if (bits == 8) {
        memcpy(p, codes, n);
        return p + n;
    }
    if (bits == 4) {
        for (unsigned i = 0; i < n; i += 2)
            p[i / 2] = (unsigned char)(codes[i] | codes[i + 1] << 4);
        return p + n / 2;
    }
    uint64_t acc;
    for (unsigned i = 0; i < n; i += 8, p += bits) { /* 8 codes are `bits` bytes */
        acc = 0;
        for (unsigned k = 0; k < 8; k++)
            acc |= (uint64_t)codes[i + k] << (k * bits);
        for (unsigned k = 0; k < bits; k++)
            p[k] = (unsigned char)(acc >> 8 * k);
    }
    return p;
}

/* Q4_1 and Q5_1: block k of n has its scale and its minimum, which tessera.int/2 keeps apart. */
static const char *put_pair(const unsigned char *b, uint64_t k, uint64_t n, unsigned char *meta)
{
    memcpy(meta + 2 * k, b, 2);
    memcpy(meta + 2 * (n + k), b + 2, 2);
    return !isfinite(gguf_f16(b)) ? NO_SCALE : !isfinite(gguf_f16(b + 2)) ? NO_MINIMUM : NULL;
}

/* A K block with minimums as a record of tessera.int/2: d, dmin, codes of scales, codes of minimums. */
static const char *put_record(uint32_t type, const unsigned char *b, unsigned char *record)
{
    const unsigned char *d = type == TSR_GGUF_T_Q2_K ? b + 80 : b;
    unsigned char        scale[16], minimum[16];
    memcpy(record, d, 4);
    if (type == TSR_GGUF_T_Q2_K) {
        for (unsigned s = 0; s < 16; s++) {
            scale[s] = b[s] & 15u;
            minimum[s] = b[s] >> 4;
        }
        (void)put_codes(record + 4, scale, 16, 4);
        (void)put_codes(record + 12, minimum, 16, 4);
    } else {
        for (unsigned s = 0; s < 8; s++) {
            unsigned a, m;
            gguf_k_scale(b + 4, s, &a, &m);
            scale[s] = (unsigned char)a;
            minimum[s] = (unsigned char)m;
        }
        (void)put_codes(record + 4, scale, 8, 6);
        (void)put_codes(record + 10, minimum, 8, 6);
    }
    return !isfinite(gguf_f16(d)) ? NO_SCALE : !isfinite(gguf_f16(d + 2)) ? NO_MINIMUM : NULL;
}

/* Q3_K, Q6_K and IQ4_XS as a record of tessera.table/1: d, then signed scales plus 32 or 128. */
static const char *put_signed(uint32_t type, const unsigned char *b, unsigned char *record)
{
    bool                 xs = type == TSR_GGUF_T_IQ4_XS, six = type == TSR_GGUF_T_Q6_K;
    const unsigned char *d = b + (xs ? 0 : six ? 208 : 108);
    unsigned char        scale[16];
    for (unsigned s = 0; s < (xs ? 8u : 16u); s++)
        scale[s] = (unsigned char)(xs    ? gguf_iq4_xs_scale(b, s)
                                   : six ? b[192 + s] ^ 0x80u
                                         : (unsigned)(gguf_q3_scale(b, s) + 32));
    memcpy(record, d, 2);
    (void)put_codes(record + 2, scale, xs ? 8 : 16, six ? 8 : 6);
    return isfinite(gguf_f16(d)) ? NULL : NO_SCALE;
}

/* The same of types with vectors. */
static const char *put_odd(uint32_t type, const unsigned char *b, unsigned char *record)
{
    uint16_t      d = tsr_gguf_vectors_factor(type, b);
    unsigned char scale[16];
    unsigned      n = tsr_gguf_vectors_scales(type, b, scale);
    record[0] = (unsigned char)d;
    record[1] = (unsigned char)(d >> 8);
    for (unsigned s = 0; s < n; s++)
        scale[s] = (unsigned char)(scale[s] + 32);
    (void)put_codes(record + 2, scale, n, 6);
    return isfinite(tsr_f16_f32(d)) ? NULL : NO_SCALE;
}

static const char *put_scale(uint32_t type, const unsigned char *b, unsigned char *meta)
{
    if (type == TSR_GGUF_T_TQ1_0 || type == TSR_GGUF_T_TQ2_0)
        b += type == TSR_GGUF_T_TQ1_0 ? 52 : 64;
    if (type == TSR_GGUF_T_MXFP4) {
        meta[0] = b[0];
        return b[0] == 255 ? "has a block with the scale 255, which is not a number" : NULL;
    }
    meta[0] = b[0];
    meta[1] = b[1];
    return isfinite(gguf_f16(b)) ? NULL : NO_SCALE;
}

const char *tsr_gguf_pack_row(uint32_t type, const unsigned char *src, uint64_t cols,
                              unsigned char *codes, unsigned char *meta)
{
    struct tsr_format f;
    uint32_t          elements = 1, bytes = 0;
    unsigned char     one[256];
    if (!tsr_gguf_format(type, &f) || !tsr_gguf_block(type, &elements, &bytes))
        return "is stored in a type that no packed layout holds";
    memset(meta, 0, tsr_model_format_meta_bytes(&f, cols));
    bool     pairs = type == TSR_GGUF_T_Q4_1 || type == TSR_GGUF_T_Q5_1;
    bool     records = f.scale_bits && strcmp(f.id, TSR_FORMAT_AFFINE) == 0;
    bool     signed_scales = f.scale_bits && strcmp(f.id, TSR_FORMAT_TABLE) == 0;
    uint64_t step = records                    ? tsr_format_affine_record_bytes(&f)
                    : signed_scales            ? tsr_format_table_record_bytes(&f)
                    : type == TSR_GGUF_T_MXFP4 ? 1
                                               : 2;
    for (uint64_t k = 0; k < cols / elements; k++) {
        const unsigned char *b = src + k * bytes;
        unsigned char       *m = meta + k * step;
        const char          *wrong = tsr_gguf_is_vectors(type) ? put_odd(type, b, m)
                                     : signed_scales           ? put_signed(type, b, m)
                                     : records                 ? put_record(type, b, m)
                                     : pairs ? put_pair(b, k, cols / elements, meta)
                                             : put_scale(type, b, m);
        if (wrong)
            return wrong;
        unpack(type, b, one);
        codes = put_codes(codes, one, elements, f.bits);
    }
    return NULL;
}
