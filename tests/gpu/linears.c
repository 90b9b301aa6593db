/* linears.c - LINEAR and EMBED in every format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "k_args.h"
#include "pair.h"
#include "quant/quant.h"

#define FORMAT(...)                                                                                \
    {                                                                                              \
        .struct_size = sizeof(struct tsr_format), __VA_ARGS__                                      \
    }
#define INT(b, g, z, s)                                                                            \
    FORMAT(.id = TSR_FORMAT_INT, .bits = b, .group = g, .zero = TSR_ZERO_##z,                      \
           .scale_dtype = TSR_##s)
#define LUT(b, n, s) FORMAT(.id = TSR_FORMAT_LUT, .bits = b, .outliers = n, .scale_dtype = TSR_##s)
#define MX(e, b, g, s)                                                                             \
    FORMAT(.id = TSR_FORMAT_MX, .element = TSR_MX_##e, .bits = b, .group = g, .scale_bits = s)

#define INT2(b, g, s, t)                                                                           \
    FORMAT(.id = TSR_FORMAT_AFFINE, .bits = b, .group = g, .scale_bits = s, .scale_dtype = TSR_##t)
#define TABLE(b, g, s, t, ...)                                                                     \
    FORMAT(.id = TSR_FORMAT_TABLE, .bits = b, .group = g, .scale_bits = s, .scale_dtype = TSR_##t, \
           .table = { __VA_ARGS__ })

/* The formats that a bench measures come first. */
static const struct tsr_format formats[] = {
    FORMAT(.id = TSR_FORMAT_FLOAT, .dtype = TSR_BF16),
    INT(4, 128, MID, F16),
    INT(4, 32, STORED, F16),
    INT(8, 128, MID, F16),
    TABLE(4, 64, 0, F32, -1.0f, -0.6961928f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
          -0.09105004f, 0.0f, 0.0795803f, 0.1609302f, 0.2461123f, 0.33791524f, 0.44070983f,
          0.562617f, 0.72295684f, 1.0f), /* NF4 */
    MX(FP4_E2M1, 4, 32, 8),
    FORMAT(.id = TSR_FORMAT_FLOAT, .dtype = TSR_F16),
    FORMAT(.id = TSR_FORMAT_FLOAT, .dtype = TSR_F32),
    LUT(4, 0, F16),
    INT(3, 128, MID, F16),
    MX(FP8_E4M3, 8, 32, 8),
    LUT(3, 0, F16),
    FORMAT(.id = TSR_FORMAT_INT, .bits = 8, .scale_dtype = TSR_F32, .act8 = TSR_ACT8_LLM,
           .act8_threshold = 0.95),
    INT(2, 64, STORED, F32),
    INT(2, 0, MID, F16),
    INT(3, 32, STORED, F32),
    INT(5, 128, STORED, F16),
    INT(6, 64, MID, F32),
    INT(7, 32, STORED, F16),
    INT(8, 0, STORED, F32),
    INT(8, 32, STORED, F16),
    INT(4, 100, STORED, F16),
    INT(3, 8, MID, F32),
    INT(5, 48, STORED, F16),
    INT(8, 24, STORED, F16),
    LUT(2, 3, F32),
    LUT(3, 5, F16),
    LUT(5, 0, F32),
    LUT(6, 1, F16),
    LUT(7, 2, F32),
    LUT(8, 4, F16),
    MX(FP8_E5M2, 8, 32, 8),
    MX(FP6_E3M2, 6, 32, 5),
    MX(FP6_E2M3, 6, 16, 8),
    MX(FP5_E3M1, 5, 32, 4),
    MX(FP5_E2M2, 5, 64, 6),
    MX(FP5_E1M3, 5, 8, 8),
    MX(FP8_E4M3, 8, 8, 8),
    MX(FP8_E5M2, 8, 48, 8),
    MX(FP5_E3M1, 5, 16, 8),
    MX(FP6_E3M2, 6, 0, 8),
    MX(FP4_E1M2, 4, 128, 7),
    MX(FP3_E1M1, 3, 32, 8),
    FORMAT(.id = TSR_FORMAT_MX, .element = TSR_MX_INT(3), .bits = 3, .group = 32, .scale_bits = 8),
    FORMAT(.id = TSR_FORMAT_MX, .element = TSR_MX_INT(8), .bits = 8, .group = 0, .scale_bits = 8),
    FORMAT(.id = TSR_FORMAT_INT, .bits = 8, .scale_dtype = TSR_F16, .act8 = TSR_ACT8_LLM),
    INT2(4, 32, 6, F16), /* Q4_K */
    INT2(5, 32, 6, F16), /* Q5_K */
    INT2(2, 16, 4, F16), /* Q2_K */
    INT2(4, 32, 0, F16), /* Q4_1 */
    INT2(8, 64, 8, F16),
    INT2(3, 128, 0, F32),
    INT2(8, 0, 0, F32),
    INT2(6, 128, 4, F16),
    INT2(7, 64, 6, F16),
    TABLE(4, 32, 6, F16, -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    TABLE(3, 16, 6, F16, -4, -3, -2, -1, 0, 1, 2, 3), /* Q3_K */
    TABLE(2, 256, 0, F16, -1, 0, 1, 2),               /* TQ2_0 */
    TABLE(6, 16, 8, F16, 0),                          /* Q6_K */
    TABLE(8, 128, 6, F16, 0),
    TABLE(5, 0, 0, F32, 0),
    FORMAT(.id = TSR_FORMAT_TABLE, .bits = 4, .group = 16, .scale_bits = 8,
           .element = TSR_MX_FP8_E4M3, /* NVFP4 */
           .table = { 0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6 }),
};
#define FORMATS (sizeof formats / sizeof formats[0])

bool pair_format_at(uint64_t i, struct tsr_format *f)
{
    if (i >= FORMATS)
        return false;
    *f = formats[i];
    /* what grew at the end is there only where it is used */
    if (f->act8 == TSR_ACT8_BLOCKS && strcmp(f->id, TSR_FORMAT_TABLE) != 0)
        f->struct_size = offsetof(struct tsr_format, act8);
    return true;
}

/* ---- weights --------------------------------------------------------------------------- */

static void put(uint8_t *p, uint32_t dtype, uint64_t i, float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    if (dtype == TSR_F32) {
        memcpy(p + 4 * i, &u, 4);
        return;
    }
    /* a number near 1: the exponent fits, further bits are cut off */
    uint16_t h = (uint16_t)(u >> 16);
    if (dtype == TSR_F16)
        h = v == 0.0f ? 0
                      : (uint16_t)((u >> 16 & 0x8000u) | (((u >> 23 & 255u) - 112u) & 31u) << 10 |
                                   (u >> 13 & 1023u));
    memcpy(p + 2 * i, &h, 2);
}

static float near_one(struct pair *p)
{
    float f = 0.01f + (float)pair_draw(p, 1000) / 1000.0f;
    return pair_draw(p, 2) ? f : -f;
}

/* Scales, and minimums if affine, of int/2 and table/1. */
static void fill_records(struct pair *p, const struct tsr_format *f, uint64_t cols, bool affine,
                         uint8_t *m)
{
    uint64_t groups = tsr_format_groups(f, cols);
    if (!f->scale_bits) {
        for (uint64_t g = 0; g < groups * (affine ? 2 : 1); g++)
            put(m, f->scale_dtype, g, near_one(p) / 64);
        return;
    }
    if (f->element) { /* a divisor, then any number of E4M3 */
        put(m, TSR_F32, 0, near_one(p) * 100);
        for (uint64_t g = 0; g < groups; g++)
            m[4 + g] = (uint8_t)(pair_draw(p, 300) ? pair_draw(p, 127) : pair_draw(p, 256));
        return;
    }
    uint64_t record = affine ? tsr_format_affine_record_bytes(f) : tsr_format_table_record_bytes(f);
    for (uint64_t at = 0; at * 256 < cols; at++, m += record) {
        for (uint64_t i = affine ? 4 : 2; i < record; i++)
            m[i] = (uint8_t)pair_draw(p, 256);
        for (uint64_t i = 0; i < (affine ? 2 : 1); i++)
            put(m, TSR_F16, i, near_one(p) / 64);
    }
}

/* Stored zero points are below it; 0: as codes are. */
static uint32_t zero_end;

static void fill_meta(struct pair *p, const struct tsr_format *f, uint64_t cols, uint8_t *m)
{
    uint64_t groups = tsr_format_groups(f, cols), size = f->scale_dtype == TSR_F32 ? 4 : 2;
    if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
        for (uint64_t g = 0; g < groups; g++) {
            put(m, f->scale_dtype, g, near_one(p) / 64);
            if (f->zero == TSR_ZERO_STORED)
                m[groups * size + g] =
                    (uint8_t)pair_draw(p, zero_end ? zero_end : UINT64_C(1) << f->bits);
        }
        return;
    }
    bool affine = strcmp(f->id, TSR_FORMAT_AFFINE) == 0,
         table = strcmp(f->id, TSR_FORMAT_TABLE) == 0;
    if (affine || table) {
        fill_records(p, f, cols, affine, m);
        return;
    }
    if (strcmp(f->id, TSR_FORMAT_MX) == 0) {
        uint64_t lim = (UINT64_C(1) << (f->scale_bits - 1)) - 1;
        for (uint64_t g = 0; g < groups; g++) /* now and then any byte: a NaN, a subnormal */
            m[g] = (uint8_t)(pair_draw(p, 300) ? lim - 4 + pair_draw(p, 8) : pair_draw(p, 256));
        return;
    }
    uint64_t entries = UINT64_C(1) << f->bits, left = f->outliers, at = 0;
    uint8_t *columns = m + tsr_format_lut_meta_bytes(f) - 4 * f->outliers;
    for (uint64_t i = 0; i < entries + f->outliers; i++)
        put(m, f->scale_dtype, i, near_one(p));
    for (uint32_t k = 0; k < cols && left; k++)
        if (pair_draw(p, cols - k) < left) {
            memcpy(columns + 4 * at++, &k, 4);
            left--;
        }
}

static void fill_codes(struct pair *p, const struct tsr_format *f, uint64_t cols, uint8_t *c,
                       uint64_t bytes)
{
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        for (uint64_t k = 0; k < cols; k++)
            put(c, f->dtype, k, near_one(p));
        return;
    }
    for (uint64_t i = 0; i < bytes; i++)
        c[i] = (uint8_t)pair_draw(p, 256);
    /* FP8: one code that is no number would make the row NaN, so that few are left */
    for (uint64_t i = 0; i < bytes && strcmp(f->id, TSR_FORMAT_MX) == 0 && f->element >> 8 >= 4;
         i++)
        if ((f->element == TSR_MX_FP8_E4M3 ? (c[i] & 127) == 127 : (c[i] & 124) == 124) &&
            pair_draw(p, 64))
            c[i] &= 0xbf;
    if (cols * f->bits % 8)
        c[bytes - 1] &= (uint8_t)((1u << cols * f->bits % 8) - 1u);
}

bool pair_weight(struct pair *p, const struct tsr_format *f, uint64_t rows, uint64_t cols,
                 void *weight[2])
{
    bool     plain = strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
    uint64_t code =
        plain ? cols * (f->dtype == TSR_F32 ? 4 : 2) : tsr_format_int_code_bytes(f, cols);
    uint64_t meta = plain                                   ? 0
                    : strcmp(f->id, TSR_FORMAT_INT) == 0    ? tsr_format_int_meta_bytes(f, cols)
                    : strcmp(f->id, TSR_FORMAT_MX) == 0     ? tsr_format_mx_meta_bytes(f, cols)
                    : strcmp(f->id, TSR_FORMAT_AFFINE) == 0 ? tsr_format_affine_meta_bytes(f, cols)
                    : strcmp(f->id, TSR_FORMAT_TABLE) == 0  ? tsr_format_table_meta_bytes(f, cols)
                                                            : tsr_format_lut_meta_bytes(f);
    uint8_t *codes = malloc(rows * code), *metas = calloc(rows, meta + 1);
    if (!codes || !metas)
        abort();
    for (uint64_t r = 0; r < rows; r++) {
        fill_codes(p, f, cols, codes + r * code, code);
        if (!plain)
            fill_meta(p, f, cols, metas + r * meta);
    }
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "w",
                                 .format = f,
                                 .rows = rows,
                                 .cols = cols,
                                 .codes = codes,
                                 .meta = plain ? NULL : metas,
                                 .code_stride = code,
                                 .meta_stride = meta };
    bool                   ok = true;
    weight[0] = weight[1] = NULL;
    for (int i = 0; i < 2 && ok; i++)
        ok = p->d[i].t->weight_load(p->d[i].self, &d, &weight[i], &p->err.err) == TSR_OK;
    free(codes);
    free(metas);
    return ok;
}

void pair_weight_free(struct pair *p, void *weight[2])
{
    for (int i = 0; i < 2; i++)
        p->d[i].t->weight_free(p->d[i].self, weight[i]);
}

/* ---- cases ----------------------------------------------------------------------------- */

static const uint32_t tokens_of[] = { 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 65 };
static const uint32_t rows_of[] = { 1, 31, 32, 33, 70 };
static const uint32_t cols_of[] = { 1,   5,   31,  32,  33,  64,  100, 127,  128,
                                    160, 255, 256, 257, 300, 384, 700, 1056, 1100 };
#define PICK(list) (list)[pair_draw(p, sizeof(list) / sizeof(list)[0])]

static bool embed(struct pair *p, const char *what, void *weight[2], uint64_t rows, uint64_t cols)
{
    uint32_t           ids[5];
    struct pair_tensor out, in;
    for (uint64_t i = 0; i < 5; i++)
        ids[i] = (uint32_t)pair_draw(p, rows);
    struct tsr_op op = { .kind = TSR_OP_EMBED, .scale = pair_draw(p, 2) ? 1.0f : 3.25f };
    bool          ok =
        pair_tensor(p, &out, TSR_F32, 5, cols, NULL) && pair_tensor(p, &in, TSR_U32, 1, 5, ids);
    struct pair_tensor *x[TSR_OP_INPUTS + 1] = { &out, &in };
    ok = ok && pair_run(p, what, &op, x, weight);
    pair_tensor_free(p, &out);
    pair_tensor_free(p, &in);
    return ok;
}

static bool linear(struct pair *p, const struct tsr_format *f, uint32_t act, uint64_t tokens,
                   uint64_t rows, uint64_t cols)
{
    struct pair_tensor out, in, bias = { 0 };
    struct tsr_op      op = { .kind = TSR_OP_LINEAR, .act = act };
    char               name[64], what[160];
    void              *weight[2];
    tsr_model_format_name(f, name, sizeof name);
    (void)snprintf(what, sizeof what, "LINEAR %s group %d, %d x %d, %d tokens, act %s", name,
                   (int)f->group, (int)rows, (int)cols, (int)tokens,
                   act == TSR_ACT_A8    ? "a8"
                   : act == TSR_ACT_F32 ? "f32"
                                        : "a16");
    if (!pair_weight(p, f, rows, cols, weight))
        return false;
    bool has_bias = pair_draw(p, 2);
    bool ok = pair_tensor(p, &out, TSR_F32, tokens, rows, NULL) &&
              pair_tensor(p, &in, TSR_F32, tokens, cols, NULL) &&
              (!has_bias || pair_tensor(p, &bias, TSR_F32, 1, rows, NULL));
    struct pair_tensor *x[TSR_OP_INPUTS + 1] = { &out, &in, has_bias ? &bias : NULL };
    ok = ok && pair_run(p, what, &op, x, weight);
    pair_tensor_free(p, &out);
    pair_tensor_free(p, &in);
    pair_tensor_free(p, &bias);
    what[0] = 'E'; /* of the same weight */
    ok = ok && embed(p, what, weight, rows, cols);
    pair_weight_free(p, weight);
    return ok;
}

static bool one(struct pair *p, uint64_t which)
{
    static const uint32_t acts[] = { TSR_ACT_A8, TSR_ACT_F32, TSR_ACT_A16 };
    struct tsr_format     f;
    uint64_t              tokens = PICK(tokens_of), rows = PICK(rows_of), cols = PICK(cols_of);
    (void)pair_format_at(which % FORMATS, &f);
    if (f.outliers > cols)
        cols = f.outliers + 1;
    return linear(p, &f, acts[which / FORMATS % 3], tokens, rows, cols);
}

static bool is_real(const struct pair *p)
{
    struct tsr_backend_props props = { .struct_size = sizeof props };
    return p->d[1].t->properties(p->d[1].self, &props, NULL) == TSR_OK &&
           strncmp(props.device, "NVIDIA", 6) == 0;
}

/* Prompts, for kernels that are chosen where a device is full of their blocks: emulations have 4 units. */
static bool many(struct pair *p)
{
    static const struct tsr_format kind[] = { INT(4, 128, MID, F16), INT(4, 128, STORED, F16),
                                              INT(8, 128, MID, F16), INT(4, 0, STORED, F16) };
    const bool                     emulated = !is_real(p);
    bool                           ok = true;
    for (uint64_t i = 0; ok && i < sizeof kind / sizeof *kind; i++) {
        /* columns of whole segments and steps, and not */
        const uint64_t    cols = i % 2 ? 1156 : 2048;
        struct tsr_format f = kind[i];
        f.struct_size = offsetof(struct tsr_format, act8);
        ok = linear(p, &f, TSR_ACT_A8, emulated ? 100 + 5 * i : 500, emulated ? 330 + i : 4000,
                    emulated ? cols / 4 : cols);
    }
    return ok;
}

/* Segments of 12 and 20 steps, so that the ring of copies in shared memory is used again and again; the last one is shorter. */
static bool deep(struct pair *p)
{
    static const uint32_t cols[] = { 2592, 4128 }, tokens[] = { 1, 8, 16, 32 };
    bool                  ok = true;
    for (uint64_t i = 0; ok && i < 40; i++) {
        struct tsr_format f;
        (void)pair_format_at(i % 10, &f); /* of each kernel */
        ok = linear(p, &f, TSR_ACT_A8, tokens[(i / 10 + i) % 4], 33, cols[pair_draw(p, 2)]);
    }
    return ok;
}

/* Segments of whole blocks of activations, one to three of them, the last one shorter too, and runs of two and four steps:
 * k_tile_run.h; of one step: k_tile_fine.h. With zero points k_tile_zero.h: as codes are, up to what it takes, and others.  Then k_tile_cut.h: 0 to 3
 * steps past the last block, groups that begin in each step of one, and short segments.  11008 and 13824 are of models. */
static bool whole(struct pair *p)
{
    static const struct tsr_format kind[] = { INT(4, 32, MID, F16),     INT(4, 64, MID, F16),
                                              INT(4, 128, MID, F16),    INT(4, 256, MID, F16),
                                              INT(4, 0, MID, F16),      INT(4, 64, STORED, F16),
                                              INT(4, 128, STORED, F16), INT(4, 256, STORED, F16),
                                              INT(4, 0, STORED, F16) };
    static const uint32_t          ends[] = { 0, K_ZERO_MOST + 1, 256 };
    static const uint32_t cols[] = { 896,  1024, 1920, 2048, 3072, 11008, 13824, 4224, 4480, 4736,
                                     2592, 1312, 1280, 300,  1150, 40,    7,     2080, 1216 },
                          tokens[] = { 1, 3, 8 };
    bool ok = true;
    for (uint64_t i = 0; ok && i < 9 * sizeof cols / sizeof *cols; i++) {
        const uint64_t    j = i / 9;
        struct tsr_format f = kind[i % 9];
        f.struct_size = offsetof(struct tsr_format, act8);
        zero_end = ends[(i + j) % 3];
        ok = linear(p, &f, TSR_ACT_A8, tokens[j % 3], 33 + 37 * (i % 2), cols[j]);
    }
    zero_end = 0;
    return ok;
}

bool pair_check_linears(struct pair *p, uint64_t count)
{
    uint64_t first = pair_draw(p, 3 * FORMATS);
    for (uint64_t i = 0; i < count; i++)
        if (!one(p, first + i))
            return false;
    return many(p) && deep(p) && whole(p);
}
