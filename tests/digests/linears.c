/* linears.c - LINEAR and EMBED of random weights in every plain layout, under each type of activations. */
#include "digests.h"

#include "../unit/table_fixture.h"

#define COLS 300u  /* segments of 64 columns, the last of 44, which no step of codes divides */
#define ROWS 86u   /* panels of 32 rows, the last of 22 */
#define MANY 150u  /* more panels than a call takes */
#define WIDE 1029u /* one token takes pairs of panels */

static const uint64_t tokens[] = { 1, 3, 17 }; /* a row, a few, and tiles with a rest */

static float *linear(struct tsr_cpu *c, void *h, uint64_t rows, const float *x, uint64_t T,
                     uint64_t cols, const float *bias, uint32_t act)
{
    struct tsr_tensor out = dev(c, NULL, TSR_F32, T, rows, 12), in = dev(c, x, TSR_F32, T, cols, 8),
                      b = dev(c, bias, TSR_F32, 1, rows, 0);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &out,
                         .in = { &in, bias ? &b : NULL },
                         .weight = h,
                         .act = act };
    run_ok(c, &op);
    float *y = host_of(c, &out);
    undev(c, &out);
    undev(c, &in);
    undev(c, &b);
    return y;
}

static void embed(struct tsr_cpu *c, void *h, uint64_t rows, uint64_t cols)
{
    const uint32_t    ids[] = { 0, 31, (uint32_t)rows - 1, 5 };
    struct tsr_tensor out = dev(c, NULL, TSR_F32, 4, cols, 4), in = dev(c, ids, TSR_U32, 1, 4, 0);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_EMBED,
                             .out = &out,
                             .in = { &in },
                             .weight = h,
                             .scale = 0.75f };
    run_ok(c, &op);
    float *y = host_of(c, &out);
    digest_floats(y, 4 * cols);
    free(y);
    undev(c, &out);
    undev(c, &in);
}

/* Ends the case that made the weight, which is freed. */
static void weight(struct tsr_cpu *c, struct wt *w, uint64_t most)
{
    const uint64_t rows = w->desc.rows, cols = w->desc.cols;
    float         *bias = rnd_new(rows, 1.0f);
    void          *h = NULL;
    char           text[256] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    if (tsr_cpu_weight_load(c, &w->desc, &h, &err) != TSR_OK)
        fail_msg("%s", text);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && tokens[i] <= most; i++) {
        const uint64_t T = tokens[i];
        float         *x = rnd_new(T * cols, 2.0f);
        for (uint64_t k = 0; T > 1 && k < 200; k++) /* blocks of zeros, and of numbers near zero */
            x[cols + k] *= k < 128 ? 0.0f : 1e-30f;
        for (uint32_t act = 0; act < 3; act++) {
            float *y = linear(c, h, rows, x, T, cols, i ? bias : NULL, act);
            digest_floats(y, T * rows);
            free(y);
        }
        free(x);
    }
    embed(c, h, rows, cols);
    tsr_cpu_weight_free(c, h);
    free(bias);
    wt_free(w);
    digest_end();
}

static void begin(const char *what, uint32_t i, uint64_t rows)
{
    digest_begin("linear %s %u of %u rows", what, i, (unsigned)rows);
    seed_state = digest_seed();
}

static const uint64_t groups[] = { 16, 32, 64, 128, 0 };

/* Integers of 2 to 8 bits: i counts bits, then zero points, then scales. */
static void integers(struct tsr_cpu *c, uint32_t i, uint64_t rows, uint64_t cols, uint64_t most)
{
    struct wt w;
    begin("int", i, rows);
    wt_int(&w, rows, cols, 2 + i % 7, groups[i % 5], i / 14 % 2 ? TSR_F32 : TSR_F16,
           i / 7 % 2 ? TSR_ZERO_STORED : TSR_ZERO_MID);
    weight(c, &w, most);
}

static void affine(struct tsr_cpu *c, uint32_t i, uint64_t rows, uint64_t cols, uint64_t most)
{
    struct wt             w;
    static const uint32_t levels[] = { 0, 4, 6, 8 };
    const uint32_t        level = levels[i / 7 % 4];
    begin("affine", i, rows);
    /* groups of scales with levels end before 256 */
    wt_affine(&w, rows, cols, 2 + i % 7, groups[i % (level ? 4 : 5)], i % 2 ? TSR_F32 : TSR_F16,
              level);
    weight(c, &w, most);
}

static void tables(struct tsr_cpu *c, uint32_t i, uint64_t rows, uint64_t cols, uint64_t most)
{
    struct wt w;
    begin("table", i, rows);
    wt_table_any(&w, rows, cols, i);
    weight(c, &w, most);
}

static void small_floats(struct tsr_cpu *c)
{
    static const uint32_t elements[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                         TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                         TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2,
                                         TSR_MX_FP3_E1M1, TSR_MX_INT(2),   TSR_MX_INT(3),
                                         TSR_MX_INT(4),   TSR_MX_INT(5),   TSR_MX_INT(6),
                                         TSR_MX_INT(7),   TSR_MX_INT(8) };
    static const uint64_t blocks[] = { 32, 16, 0, 8, 6, 100, 128 };
    for (uint32_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        struct wt w;
        begin("mx", i, i % 4 ? ROWS : MANY);
        wt_mx(&w, i % 4 ? ROWS : MANY, COLS, elements[i], blocks[i % 7], 4 + i % 5);
        for (uint64_t k = 0; k < w.desc.rows * w.desc.code_stride;
             k++) /* few codes are no numbers */
            if (elements[i] >> 8 >= 4 && rnd() % 512)
                w.codes[k] &= 0xbf;
        weight(c, &w, 17);
    }
}

static void looked_up(struct tsr_cpu *c)
{
    static const uint64_t outliers[] = { 0, 1, 9, 40 };
    for (uint32_t i = 0; i < 14; i++) {
        struct wt w;
        begin("lut", i, ROWS);
        wt_lut(&w, ROWS, COLS, 2 + i % 7, outliers[i % 4], i % 2 ? TSR_F32 : TSR_F16);
        weight(c, &w, 17);
    }
}

void linear_cases(struct tsr_cpu *c)
{
    static const uint32_t floats[] = { TSR_F32, TSR_F16, TSR_BF16 };
    static const double   thresholds[] = { 0, 1.5, 0.25 };
    for (uint32_t i = 0; i < 3; i++) {
        struct wt w;
        begin("float", i, MANY);
        wt_float(&w, MANY, COLS, floats[i]);
        weight(c, &w, 17);
    }
    for (uint32_t i = 0; i < 28; i++)
        integers(c, i, i % 4 ? ROWS : MANY, COLS, 17);
    for (uint32_t i = 0; i < 28; i++)
        affine(c, i, i % 4 ? ROWS : MANY, COLS, 17);
    for (uint32_t i = 0; i < 70; i++)
        tables(c, i, i % 4 ? ROWS : MANY, COLS, 17);
    small_floats(c);
    looked_up(c);
    for (uint32_t i = 0; i < 3; i++) {
        struct wt w;
        begin("llm", i, ROWS);
        wt_int(&w, ROWS, COLS, 8, 0, i % 2 ? TSR_F32 : TSR_F16, TSR_ZERO_MID);
        w.format.act8 = TSR_ACT8_LLM;
        w.format.act8_threshold = thresholds[i];
        weight(c, &w, 17);
    }
    /* one token and three through pairs of panels */
    for (uint32_t i = 0; i < 7; i++) {
        integers(c, i + 7 * (i % 2), WIDE, 256, 3);
        affine(c, i + 7 * (i % 4), WIDE, 256, 3);
        tables(c, i + 7 * (i % 5), WIDE, 256, 3);
    }
}
