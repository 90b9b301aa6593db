/* Blocks of GGUF types whose codes name vectors in a grid, one code for each weight: the layouts of a block are
 * those of ggml-common.h. */
#include "checkpoint/gguf/grid.h"

#include "checkpoint/gguf/gguf.h"

#include <stddef.h>

static unsigned word(const unsigned char *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static uint32_t four_bytes(const unsigned char *p)
{
    return word(p) | (uint32_t)word(p + 2) << 16;
}

/* Seven signs; the eighth makes their number even. */
static unsigned even_signs(uint32_t seven)
{
    unsigned odd = seven & 127u, all = odd;
    odd ^= odd >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return all | (odd & 1u) << 7;
}

/* n magnitudes of `bits`, and their signs above them. */
static void put(unsigned char *codes, unsigned vector, unsigned bits, unsigned n, unsigned signs)
{
    for (unsigned k = 0; k < n; k++)
        codes[k] = (unsigned char)((vector >> bits * k & ((1u << bits) - 1u)) |
                                   (signs >> k & 1u) << (bits == 2 ? 2 : 3));
}

/* d, 32 bytes of indices and 32 of signs, 8 of upper bits, 8 of scales. */
static void iq2_s(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 32; v++) {
        unsigned high = (unsigned)(b[66 + v / 4] >> 2 * (v % 4)) & 3u;
        put(codes + 8 * v, tsr_gguf_grid_iq2_s[b[2 + v] | high << 8], 2, 8, b[34 + v]);
    }
}

/* d, for each 32 weights four indices, then four times seven signs and four bits of scale. */
static void iq2_xxs(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 32; v++) {
        const unsigned char *q = b + 2 + v / 4 * 8;
        uint32_t             signs = four_bytes(q + 4) >> 7 * (v % 4);
        put(codes + 8 * v, tsr_gguf_grid_iq2_xxs[q[v % 4]], 2, 8, even_signs(signs));
    }
}

/* d, 32 words of nine bits of index and seven signs, 8 bytes of scales. */
static void iq2_xs(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 32; v++) {
        unsigned q = word(b + 2 + 2 * v);
        put(codes + 8 * v, tsr_gguf_grid_iq2_xs[q & 511u], 2, 8, even_signs(q >> 9));
    }
}

/* d, 64 indices, then for each 32 weights signs and scale as IQ2_XXS has them. */
static void iq3_xxs(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 64; v++) {
        uint32_t signs = even_signs(four_bytes(b + 66 + v / 8 * 4) >> 7 * (v % 8 / 2));
        put(codes + 4 * v, tsr_gguf_grid_iq3_xxs[b[2 + v]], 3, 4, signs >> 4 * (v % 2));
    }
}

/* d, 64 indices, 8 bytes of their upper bits, 32 of signs, 4 of scales. */
static void iq3_s(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 64; v++) {
        unsigned high = (unsigned)(b[66 + v / 8] >> v % 8) & 1u;
        put(codes + 4 * v, tsr_gguf_grid_iq3_s[b[2 + v] | high << 8], 3, 4,
            (unsigned)b[74 + v / 2] >> 4 * (v % 2));
    }
}

/* d, 32 indices, 8 words: four times three upper bits, three bits of scale, the sign of the shift. */
static void iq1_s(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 32; v++) {
        unsigned q = word(b + 34 + v / 4 * 2), high = q >> 3 * (v % 4) & 7u;
        put(codes + 8 * v, tsr_gguf_grid_iq1[b[2 + v] | high << 8], 2, 8, q >> 15 ? 255 : 0);
    }
}

/* 32 indices, 16 bytes of two nibbles: three upper bits and the sign of the shift; 4 words of four times three
 * bits of scale and a nibble of d. */
static void iq1_m(const unsigned char *b, unsigned char *codes)
{
    for (size_t v = 0; v < 32; v++) {
        unsigned q = (unsigned)b[32 + v / 2] >> 4 * (v % 2) & 15u;
        put(codes + 8 * v, tsr_gguf_grid_iq1[b[v] | (q & 7u) << 8], 2, 8, q >> 3 ? 255 : 0);
    }
}

static void (*reader(uint32_t type))(const unsigned char *, unsigned char *)
{
    switch (type) {
    case TSR_GGUF_T_IQ2_XXS:
        return iq2_xxs;
    case TSR_GGUF_T_IQ2_XS:
        return iq2_xs;
    case TSR_GGUF_T_IQ2_S:
        return iq2_s;
    case TSR_GGUF_T_IQ3_XXS:
        return iq3_xxs;
    case TSR_GGUF_T_IQ3_S:
        return iq3_s;
    case TSR_GGUF_T_IQ1_S:
        return iq1_s;
    case TSR_GGUF_T_IQ1_M:
        return iq1_m;
    default:
        return NULL;
    }
}

bool tsr_gguf_is_vectors(uint32_t type)
{
    return reader(type) != NULL;
}

void tsr_gguf_vectors_codes(uint32_t type, const unsigned char *b, unsigned char codes[256])
{
    reader(type)(b, codes);
}

uint16_t tsr_gguf_vectors_factor(uint32_t type, const unsigned char *b)
{
    if (type != TSR_GGUF_T_IQ1_M)
        return (uint16_t)word(b);
    unsigned d = 0;
    for (size_t i = 0; i < 4; i++)
        d |= word(b + 48 + 2 * i) >> 12 << 4 * i;
    return (uint16_t)d;
}

/* Bits of the scale of group s. */
static unsigned scale_of(uint32_t type, const unsigned char *b, size_t s)
{
    switch (type) {
    case TSR_GGUF_T_IQ2_XXS:
        return b[2 + 8 * s + 7] >> 4;
    case TSR_GGUF_T_IQ3_XXS:
        return b[66 + 4 * s + 3] >> 4;
    case TSR_GGUF_T_IQ1_S:
        return word(b + 34 + 2 * s) >> 12 & 7u;
    case TSR_GGUF_T_IQ1_M:
        return word(b + 48 + s / 4 * 2) >> 3 * (s % 4) & 7u;
    default: /* nibbles, in the block's last bytes */
        b += type == TSR_GGUF_T_IQ2_XS ? 66 : type == TSR_GGUF_T_IQ2_S ? 74 : 106;
        return (unsigned)b[s / 2] >> 4 * (s % 2) & 15u;
    }
}

unsigned tsr_gguf_vectors_scales(uint32_t type, const unsigned char *b, unsigned char scale[16])
{
    bool twice = type == TSR_GGUF_T_IQ2_XS || type == TSR_GGUF_T_IQ2_S || type == TSR_GGUF_T_IQ1_M;
    unsigned n = twice ? 16 : 8;
    for (unsigned s = 0; s < n; s++)
        scale[s] = (unsigned char)(2 * scale_of(type, b, s) + 1);
    return n;
}
