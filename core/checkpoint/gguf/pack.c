/* Rows of GGUF types in the packed layouts of tessera/format.h: the same codes in another order,
 * and two-step scales of a block multiplied out. */
#include "checkpoint/gguf/block.h"
#include "checkpoint/gguf/gguf.h"

#include <math.h>
#include <string.h>

/* The codes of a block, one a byte; the switch is outside the loops, which then are fast. */
static void unpack(uint32_t type, const unsigned char *b, unsigned char codes[256])
{
    switch (type) {
    case TSR_GGUF_T_Q4_0:
        for (unsigned i = 0; i < 32; i++)
            codes[i] = (unsigned char)gguf_nibble(b + 2, i);
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
            codes[i] = (unsigned char)(gguf_iq4_nl[gguf_nibble(b + 2, i)] + 128);
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

/* n codes, a multiple of 32, into a little-endian bit stream, which then ends with a byte. */
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

/* The 16 scales of a K block; the products are exact: 11 bits by 8 at most. */
static const char *put_super(uint32_t type, const unsigned char *b, unsigned char *meta)
{
    float d = gguf_f16(b + (type == TSR_GGUF_T_Q3_K ? 108 : 208));
    if (!isfinite(d))
        return "has a scale that is not a number";
    for (unsigned s = 0; s < 16; s++) {
        int      sc = type == TSR_GGUF_T_Q3_K ? gguf_q3_scale(b, s) : (int8_t)b[192 + s];
        uint32_t u = tsr_f32_bits(d * (float)sc);
        for (unsigned i = 0; i < 4; i++)
            meta[4 * s + i] = (unsigned char)(u >> 8 * i);
    }
    return NULL;
}

static const char *put_scale(uint32_t type, const unsigned char *b, unsigned char *meta)
{
    if (type == TSR_GGUF_T_MXFP4) {
        meta[0] = b[0];
        return b[0] == 255 ? "has a block with the scale 255, which is not a number" : NULL;
    }
    meta[0] = b[0];
    meta[1] = b[1];
    return isfinite(gguf_f16(b)) ? NULL : "has a scale that is not a number";
}

const char *tsr_gguf_pack_row(uint32_t type, const unsigned char *src, uint64_t cols,
                              unsigned char *codes, unsigned char *meta)
{
    struct tsr_format f;
    uint32_t          elements = 1, bytes = 0;
    unsigned char     one[256];
    bool              super = type == TSR_GGUF_T_Q3_K || type == TSR_GGUF_T_Q6_K;
    if (!tsr_gguf_format(type, &f) || !tsr_gguf_block(type, &elements, &bytes))
        return "is stored in a type that no packed layout holds";
    memset(meta, 0, tsr_model_format_meta_bytes(&f, cols));
    unsigned step = super ? 64 : type == TSR_GGUF_T_MXFP4 ? 1 : 2;
    for (uint64_t k = 0; k < cols / elements; k++) {
        const unsigned char *b = src + k * bytes;
        unsigned char       *m = meta + k * step;
        const char          *wrong = super ? put_super(type, b, m) : put_scale(type, b, m);
        if (wrong)
            return wrong;
        unpack(type, b, one);
        codes = put_codes(codes, one, elements, f.bits);
    }
    return NULL;
}
