/* The block types of GGUF: sizes, and the packed layout of ours that represents each exactly. */
#include "base/f16.h"
#include "checkpoint/gguf/block.h"
#include "checkpoint/gguf/gguf.h"

#include <stdio.h>
#include <string.h>

#define SUPER 256u /* elements of a K block */

static const int8_t q3_k[8] = { -4, -3, -2, -1, 0, 1, 2, 3 };
static const int8_t ternary[4] = { -1, 0, 1, 2 };
/* Grids of vectors (grid.h): a code is a weight's magnitude and above it its sign; of IQ1 its value and the sign
 * of the shift, in eighths.  Codes that no grid has mean 0. */
static const int8_t iq2[8] = { 8, 25, 43, 0, -8, -25, -43, 0 };
static const int8_t iq3_xxs[16] = { 2,  6,  10,  14,  18,  22,  26,  31,
                                    -2, -6, -10, -14, -18, -22, -26, -31 };
static const int8_t iq3_s[16] = { 1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15 };
static const int8_t iq1[8] = { -7, 1, 9, 0, -9, -1, 7, 0 };
static const int8_t no_table[1] = { 0 }; /* more than 4 bits: tessera.table/1 has none */

static const struct type {
    const char   *name;
    uint16_t      elements, bytes; /* of a block; 0: not read */
    uint8_t       bits; /* of tessera.int/1, of int/2 with a minimum, of table/1 with a table */
    uint16_t      group;
    uint8_t       scale;  /* dtype of its scales */
    uint8_t       affine; /* has minimums */
    uint8_t       level;  /* scale_bits of tessera.int/2 and table/1 */
    const int8_t *table;
    uint8_t       over; /* its values are over a power of two */
} types[] = {
    [TSR_GGUF_T_F32] = { .name = "F32", .elements = 1, .bytes = 4 },
    [TSR_GGUF_T_F16] = { .name = "F16", .elements = 1, .bytes = 2 },
    [TSR_GGUF_T_Q4_0] = { "Q4_0", 32, 18, 4, 32, TSR_F16, 0, 0, NULL, 0 },
    [TSR_GGUF_T_Q4_1] = { "Q4_1", 32, 20, 4, 32, TSR_F16, 1, 0, NULL, 0 },
    [TSR_GGUF_T_Q5_0] = { "Q5_0", 32, 22, 5, 32, TSR_F16, 0, 0, NULL, 0 },
    [TSR_GGUF_T_Q5_1] = { "Q5_1", 32, 24, 5, 32, TSR_F16, 1, 0, NULL, 0 },
    [TSR_GGUF_T_Q8_0] = { "Q8_0", 32, 34, 8, 32, TSR_F16, 0, 0, NULL, 0 },
    [TSR_GGUF_T_Q2_K] = { "Q2_K", SUPER, 84, 2, 16, 0, 1, 4, NULL, 0 },
    [TSR_GGUF_T_Q3_K] = { "Q3_K", SUPER, 110, 3, 16, 0, 0, 6, q3_k, 0 },
    [TSR_GGUF_T_Q4_K] = { "Q4_K", SUPER, 144, 4, 32, 0, 1, 6, NULL, 0 },
    [TSR_GGUF_T_Q5_K] = { "Q5_K", SUPER, 176, 5, 32, 0, 1, 6, NULL, 0 },
    [TSR_GGUF_T_Q6_K] = { "Q6_K", SUPER, 210, 6, 16, 0, 0, 8, no_table, 0 },
    [TSR_GGUF_T_IQ4_NL] = { "IQ4_NL", 32, 18, 4, 32, TSR_F16, 0, 0, gguf_iq4_nl, 0 },
    [TSR_GGUF_T_IQ4_XS] = { "IQ4_XS", SUPER, 136, 4, 32, 0, 0, 6, gguf_iq4_nl, 0 },
    [TSR_GGUF_T_TQ1_0] = { "TQ1_0", SUPER, 54, 2, SUPER, TSR_F16, 0, 0, ternary, 0 },
    [TSR_GGUF_T_TQ2_0] = { "TQ2_0", SUPER, 66, 2, SUPER, TSR_F16, 0, 0, ternary, 0 },
    [TSR_GGUF_T_IQ2_XXS] = { "IQ2_XXS", SUPER, 66, 3, 32, 0, 0, 6, iq2, 3 },
    [TSR_GGUF_T_IQ2_XS] = { "IQ2_XS", SUPER, 74, 3, 16, 0, 0, 6, iq2, 3 },
    [TSR_GGUF_T_IQ2_S] = { "IQ2_S", SUPER, 82, 3, 16, 0, 0, 6, iq2, 3 },
    [TSR_GGUF_T_IQ3_XXS] = { "IQ3_XXS", SUPER, 98, 4, 32, 0, 0, 6, iq3_xxs, 1 },
    [TSR_GGUF_T_IQ3_S] = { "IQ3_S", SUPER, 110, 4, 32, 0, 0, 6, iq3_s, 0 },
    [TSR_GGUF_T_IQ1_S] = { "IQ1_S", SUPER, 50, 3, 32, 0, 0, 6, iq1, 3 },
    [TSR_GGUF_T_IQ1_M] = { "IQ1_M", SUPER, 56, 3, 16, 0, 0, 6, iq1, 3 },
    [TSR_GGUF_T_BF16] = { .name = "BF16", .elements = 1, .bytes = 2 },
    [TSR_GGUF_T_MXFP4] = { .name = "MXFP4", .elements = 32, .bytes = 17 },
    [4] = { .name = "Q4_2" },
    [5] = { .name = "Q4_3" },
    [9] = { .name = "Q8_1" },
    [15] = { .name = "Q8_K" },
    [24] = { .name = "I8" },
    [25] = { .name = "I16" },
    [26] = { .name = "I32" },
    [27] = { .name = "I64" },
    [28] = { .name = "F64" },
    [31] = { .name = "Q4_0_4_4" },
    [32] = { .name = "Q4_0_4_8" },
    [33] = { .name = "Q4_0_8_8" },
    [36] = { .name = "IQ4_NL_4_4" },
    [37] = { .name = "IQ4_NL_4_8" },
    [38] = { .name = "IQ4_NL_8_8" },
    [40] = { .name = "NVFP4" },
};

static const struct type *find(uint32_t type)
{
    return type < sizeof types / sizeof *types && types[type].name ? &types[type] : NULL;
}

const char *tsr_gguf_type_name(uint32_t type, char buf[16])
{
    const struct type *t = find(type);
    if (t)
        return t->name;
    (void)snprintf(buf, 16, "type %u", type % 100000u);
    return buf;
}

bool tsr_gguf_block(uint32_t type, uint32_t *elements, uint32_t *bytes)
{
    const struct type *t = find(type);
    if (!t || t->elements == 0)
        return false;
    *elements = t->elements;
    *bytes = t->bytes;
    return true;
}

uint32_t tsr_gguf_dtype(uint32_t type)
{
    return type == TSR_GGUF_T_F32    ? TSR_F32
           : type == TSR_GGUF_T_F16  ? TSR_F16
           : type == TSR_GGUF_T_BF16 ? TSR_BF16
                                     : 0;
}

bool tsr_gguf_format(uint32_t type, struct tsr_format *f)
{
    const struct type *t = find(type);
    memset(f, 0, sizeof *f);
    f->struct_size = sizeof *f;
    if (type == TSR_GGUF_T_MXFP4) {
        f->id = TSR_FORMAT_MX;
        f->bits = 4;
        f->group = 32;
        f->element = TSR_MX_FP4_E2M1;
        f->scale_bits = 8;
        return true;
    }
    if (!t || t->bits == 0)
        return false;
    f->id = t->affine ? TSR_FORMAT_AFFINE : t->table ? TSR_FORMAT_TABLE : TSR_FORMAT_INT;
    f->bits = t->bits;
    f->zero = TSR_ZERO_MID;
    f->group = t->group;
    f->scale_dtype = t->scale;
    f->scale_bits = t->level;
    for (uint32_t i = 0; t->table && t->bits <= 4 && i >> t->bits == 0; i++)
        f->table[i] = (float)t->table[i] / (float)(1u << t->over);
    return true;
}
