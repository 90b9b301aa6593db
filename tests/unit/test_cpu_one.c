/* One token, and tiles of tokens, of int8 activations at the limits of the integer sums: the largest and least codes and table entries
 * under activations of 127 and -127, in runs of up to 128 columns, in every packed format. Scales, minimums and
 * activations are whole and no sum reaches 2^24, so F32 is exact and each output is a sum of integers that this
 * file forms in int64. */
#include "cpu_fixture.h"
#include "tessera/f16.h"

#include <math.h>

#define ROWS   1029u /* pairs of panels need 1024; the last panel is alone and short */
#define COLS   1024u /* segments of 128 columns */
#define INPUTS 4u
#define TOKENS 23u /* together: whole tiles of every instruction set, and a rest */
#define FEWER  15u /* the same of AVX-512 for up to 16 */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#define MOST 129 /* times COLS and 127: below 2^24 */

/* A weight in numbers: code k of a row means entry[code] less the zero of its group. */
struct numbers {
    struct tsr_format f;
    int32_t           entry[64];
    uint8_t          *codes;                  /* [ROWS][COLS] */
    int32_t          *scale, *minimum, *zero; /* [ROWS][groups] */
    uint64_t          groups, group;
};

static uint32_t top(const struct tsr_format *f)
{
    return (1u << f->bits) - 1u;
}

static void put(uint8_t *p, uint64_t i, uint32_t bits, uint32_t code)
{
    const uint64_t at = i * bits;
    code <<= at % 8;
    p[at / 8] |= (uint8_t)code;
    if (code >> 8) /* the next byte may lie past the end */
        p[at / 8 + 1] |= (uint8_t)(code >> 8);
}

static void put_float(uint8_t *p, uint64_t i, uint32_t dtype, int32_t v)
{
    float f = (float)v;
    if (dtype == TSR_F32) {
        memcpy(p + 4 * i, &f, 4);
        return;
    }
    uint16_t h = tsr_f32_f16(f);
    memcpy(p + 2 * i, &h, 2);
}

/* Rows of all largest codes, all least ones, fours of both, and any. */
static uint8_t code_of(uint64_t row, uint64_t k, uint32_t most)
{
    return (uint8_t)(row % 4 == 0   ? most
                     : row % 4 == 1 ? 0
                     : row % 4 == 2 ? (k / 4 % 2 ? most : 0)
                                    : rnd() % (most + 1));
}

static int32_t up_to(int32_t least, int32_t most)
{
    return least + (int32_t)(rnd() % (uint64_t)(most - least + 1));
}

/* Room, codes, and scales of at most `scale`; minimums of at most `minimum`. */
static void fill(struct numbers *n, int32_t scale, int32_t minimum)
{
    const struct tsr_format *f = &n->f;
    const int                affine = strcmp(f->id, TSR_FORMAT_AFFINE) == 0,
              table = strcmp(f->id, TSR_FORMAT_TABLE) == 0;
    n->groups = tsr_format_groups(f, COLS);
    n->group = f->group ? f->group : COLS;
    n->codes = malloc(ROWS * COLS);
    n->scale = malloc(3 * ROWS * n->groups * sizeof *n->scale);
    assert_true(n->codes && n->scale);
    n->minimum = n->scale + ROWS * n->groups;
    n->zero = n->minimum + ROWS * n->groups;
    for (uint64_t i = 0; i < (uint64_t)ROWS * COLS; i++)
        n->codes[i] = code_of(i / COLS, i % COLS, top(f));
    for (uint64_t i = 0; i < ROWS * n->groups; i++) {
        const int32_t least = table && !f->element ? -scale : affine ? 0 : 1;
        n->scale[i] = rnd() % 2 ? scale : up_to(least, scale);
        n->minimum[i] = !affine ? 0 : rnd() % 2 ? minimum : up_to(0, minimum);
        n->zero[i] = f->zero == TSR_ZERO_STORED ? up_to(0, (int32_t)top(f)) : 0;
    }
}

/* A row's scales as the format has them. Minimums are subtracted where they have levels. */
static void put_meta(const struct numbers *n, uint64_t row, uint8_t *m)
{
    const struct tsr_format *f = &n->f;
    const int32_t *scale = n->scale + row * n->groups, *minimum = n->minimum + row * n->groups;
    const uint64_t size = f->scale_dtype == TSR_F32 ? 4 : 2, per = f->group ? 256 / f->group : 1;
    if (f->element)
        put_float(m, 0, TSR_F32, 1);
    for (uint64_t g = 0; g < n->groups; g++) {
        if (f->element) {
            m[4 + g] = scale[g] == 2 ? 0x40 : 0x38; /* E4M3 */
        } else if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0 && f->scale_bits) {
            uint8_t *record = m + g / per * tsr_format_affine_record_bytes(f);
            put_float(record, 0, TSR_F16, 1);
            put_float(record, 1, TSR_F16, 1);
            put(record + 4, g % per, f->scale_bits, (uint32_t)scale[g]);
            put(record + 4 + tsr_format_affine_level_bytes(f), g % per, f->scale_bits,
                (uint32_t)minimum[g]);
        } else if (f->scale_bits) {
            uint8_t *record = m + g / per * tsr_format_table_record_bytes(f);
            put_float(record, 0, TSR_F16, 1);
            put(record + 2, g % per, f->scale_bits,
                (uint32_t)(scale[g] + (1 << f->scale_bits) / 2));
        } else {
            put_float(m, g, f->scale_dtype, scale[g]);
            if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0)
                put_float(m, n->groups + g, f->scale_dtype, -minimum[g]);
            if (f->zero == TSR_ZERO_STORED)
                m[n->groups * size + g] = (uint8_t)n->zero[row * n->groups + g];
        }
    }
}

static int64_t output(const struct numbers *n, uint64_t row, const int32_t *q)
{
    const uint8_t *codes = n->codes + row * COLS;
    int64_t        y = 0;
    for (uint64_t g = 0; g < n->groups; g++) {
        const uint64_t at = row * n->groups + g;
        int32_t        products = 0, ones = 0;
        for (uint64_t k = g * n->group; k < (g + 1) * n->group; k++) {
            products += n->entry[codes[k]] * q[k];
            ones += q[k];
        }
        y += (int64_t)n->scale[at] * (products - n->zero[at] * ones) -
             (int64_t)n->minimum[at] * ones;
    }
    return y;
}

/* All 127, all -127, fours of both, and any; each block of 128 has a 127, so its scale is 1. */
static int32_t input_of(uint32_t i, uint64_t k)
{
    return i == 0 || k % 128 == 127 ? 127
           : i == 1                 ? -127
           : i == 2                 ? (k / 4 % 2 ? 127 : -127)
                                    : up_to(-127, 127);
}

static struct tsr_weight_desc desc_of(const struct tsr_format *f, const uint8_t *codes, uint64_t cb,
                                      const uint8_t *meta, uint64_t mb)
{
    return (struct tsr_weight_desc){ .struct_size = sizeof(struct tsr_weight_desc),
                                     .name = "w",
                                     .format = f,
                                     .rows = ROWS,
                                     .cols = COLS,
                                     .codes = codes,
                                     .meta = meta,
                                     .code_stride = cb,
                                     .meta_stride = mb };
}

/* `tokens` inputs through the weight h; the caller frees the outputs. */
static float *outputs(struct tsr_cpu *c, void *h, const float *x, uint64_t tokens)
{
    struct tsr_tensor out = dev(c, NULL, TSR_F32, tokens, ROWS, 0),
                      in = dev(c, x, TSR_F32, tokens, COLS, 0);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &out,
                         .in = { &in },
                         .weight = h,
                         .act = TSR_ACT_A8 };
    run_ok(c, &op);
    float *got = host_of(c, &out);
    undev(c, &out);
    undev(c, &in);
    return got;
}

/* The token t has the outputs of `want` for input t % INPUTS. */
static void check_tokens(struct tsr_cpu *c, void *h, const struct numbers *n, float (*x)[COLS],
                         uint64_t tokens, const int64_t *want)
{
    float *got = outputs(c, h, x[0], tokens);
    for (uint64_t t = 0; t < tokens; t++)
        for (uint64_t r = 0; r < ROWS; r++) {
            const float   y = got[t * ROWS + r];
            const int64_t sum = want[t % INPUTS * ROWS + r];
            if (!((double)y == (double)sum))
                fail_msg("%s, %s of %u bits in groups of %llu, levels of %u bits, token %llu of "
                         "%llu, row %llu: %.1f, wanted %lld",
                         c->k->name, n->f.id, n->f.bits, (unsigned long long)n->f.group,
                         n->f.scale_bits, (unsigned long long)t, (unsigned long long)tokens,
                         (unsigned long long)r, (double)y, (long long)sum);
        }
    free(got);
}

static void check(struct numbers *n)
{
    const struct tsr_format *f = &n->f;
    const uint64_t           cb = tsr_format_int_code_bytes(f, COLS);
    const uint64_t mb = strcmp(f->id, TSR_FORMAT_INT) == 0 ? tsr_format_int_meta_bytes(f, COLS)
                        : strcmp(f->id, TSR_FORMAT_AFFINE) == 0
                            ? tsr_format_affine_meta_bytes(f, COLS)
                            : tsr_format_table_meta_bytes(f, COLS);
    uint8_t       *codes = calloc(ROWS, cb), *meta = calloc(ROWS, mb);
    int64_t       *want = malloc(INPUTS * ROWS * sizeof *want);
    static float   x[TOKENS][COLS];
    assert_true(codes && meta && want);
    for (uint64_t r = 0; r < ROWS; r++) {
        for (uint64_t k = 0; k < COLS; k++)
            put(codes + r * cb, k, f->bits, n->codes[r * COLS + k]);
        put_meta(n, r, meta + r * mb);
    }
    for (uint32_t i = 0; i < INPUTS; i++) {
        int32_t q[COLS];
        for (uint64_t k = 0; k < COLS; k++)
            x[i][k] = (float)(q[k] = input_of(i, k));
        for (uint64_t r = 0; r < ROWS; r++) {
            want[i * ROWS + r] = output(n, r, q);
            assert_in_range(llabs(want[i * ROWS + r]), 0, (1 << 24) - 1);
        }
    }
    for (uint32_t i = INPUTS; i < TOKENS; i++)
        memcpy(x[i], x[i % INPUTS], sizeof x[i]);
    const struct tsr_weight_desc d = desc_of(f, codes, cb, meta, mb);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        void           *h = NULL;
        if (!c)
            continue;
        assert_int_equal(tsr_cpu_weight_load(c, &d, &h, NULL), TSR_OK);
        for (uint32_t i = 0; i < INPUTS; i++)
            check_tokens(c, h, n, x + i, 1, want + i * ROWS);
        check_tokens(c, h, n, x, FEWER, want);
#ifndef SANITIZED /* where it takes half a minute more */
        check_tokens(c, h, n, x, TOKENS, want);
#endif
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
    }
    free(codes);
    free(meta);
    free(want);
    free(n->codes);
    free(n->scale);
    assert_int_equal(host_bytes, 0);
}

static const uint64_t groups[] = { 16, 32, 64, 128, 0 };

static void integers(void **state)
{
    (void)state;
    for (uint32_t bits = 2; bits <= 6; bits++)
        for (size_t g = 0; g < 5; g++)
            for (uint32_t stored = 0; stored < 2; stored++) {
                struct numbers n = { .f = { .struct_size = sizeof n.f,
                                            .id = TSR_FORMAT_INT,
                                            .bits = bits,
                                            .zero = stored ? TSR_ZERO_STORED : TSR_ZERO_MID,
                                            .group = groups[g],
                                            .scale_dtype = g % 2 ? TSR_F32 : TSR_F16 } };
                for (int32_t c = 0; c < 1 << bits; c++)
                    n.entry[c] = c - (stored ? 0 : 1 << (bits - 1));
                fill(&n, MOST / (1 << bits), 0);
                check(&n);
            }
}

static void minimums(void **state)
{
    static const uint32_t levels[] = { 0, 4, 6, 8 };
    (void)state;
    for (uint32_t bits = 2; bits <= 6; bits++)
        for (size_t g = 0; g < 5; g++)
            for (size_t l = 0; l < (groups[g] ? 4 : 1); l++) {
                struct numbers n = { .f = { .struct_size = sizeof n.f,
                                            .id = TSR_FORMAT_AFFINE,
                                            .bits = bits,
                                            .group = groups[g],
                                            .scale_dtype = levels[l] ? 0
                                                           : g % 2   ? TSR_F32
                                                                     : TSR_F16,
                                            .scale_bits = levels[l] } };
                int32_t        most = (MOST - 15) / (int32_t)top(&n.f);
                for (int32_t c = 0; c < 1 << bits; c++)
                    n.entry[c] = c;
                fill(&n, levels[l] == 4 && most > 15 ? 15 : most, 15);
                check(&n);
            }
}

/* Tables from `least` to `most` in every kind of scale, with groups in turn; straight: without gaps. */
static void table(uint32_t bits, int32_t least, int32_t most, int straight)
{
    static size_t turn;
    static const struct {
        uint32_t scale, level, element;
    } kinds[] = {
        { TSR_F16, 0, 0 }, { TSR_F32, 0, 0 }, { 0, 6, 0 }, { 0, 8, 0 }, { 0, 8, TSR_MX_FP8_E4M3 }
    };
    for (size_t k = 0; k < 5; k++) {
        struct numbers n = { .f = { .struct_size = sizeof n.f,
                                    .id = TSR_FORMAT_TABLE,
                                    .bits = bits,
                                    .group = groups[turn++ % (k == 2 || k == 3 ? 4 : 5)],
                                    .scale_dtype = kinds[k].scale,
                                    .scale_bits = kinds[k].level,
                                    .element = kinds[k].element } };
        for (int32_t c = 0; c < 1 << bits; c++) {
            n.entry[c] = straight ? least + c : c == 0 ? least : up_to(least, most);
            if (c == (int32_t)top(&n.f))
                n.entry[c] = most;
            if (bits <= 4)
                n.f.table[c] = (float)n.entry[c];
        }
        int32_t scale = MOST / (-least > most ? -least : most);
        fill(&n, k == 4 ? (scale > 1 ? 2 : 1) : scale > 31 ? 31 : scale, 0);
        check(&n);
    }
}

static void straight_tables(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        table(2, -1, 2, 1);
        table(3, -4, 3, 1);
        table(4, -8, 7, 1);
        table(6, -32, 31, 1); /* not looked up */
    }
}

/* Bytes of at most 31, whose products words add four times; of at most 63; and of more, with a sign. */
static void spans(void **state)
{
    static const int32_t range[][2] = { { -12, 12 }, { -16, 15 }, { -16, 16 }, { 0, 31 },
                                        { -31, 0 },  { 0, 32 },   { -32, 31 }, { -63, 0 },
                                        { 0, 63 },   { -32, 32 }, { -64, 0 },  { -127, 127 } };
    (void)state;
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        table(2 + (uint32_t)(i % 2), range[i][0], range[i][1], 0);
        table(4, range[i][0], range[i][1], 0); /* steps are the shortest */
    }
}

/* Small numbers, times `unit`, under elements of E4M3, all of them, over divisors of any size: one token has the bits of
 * plain C. Every fifth panel has elements with a sign and NaN, so pairs have none, one or two of those. */
static void elements_over(float unit)
{
    struct tsr_format f = { .struct_size = sizeof f,
                            .id = TSR_FORMAT_TABLE,
                            .bits = 4,
                            .group = 16,
                            .scale_bits = 8,
                            .element = TSR_MX_FP8_E4M3,
                            .table = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 } };
    for (size_t i = 0; i < 16; i++)
        f.table[i] = f.table[i] * unit;
    const uint64_t cb = tsr_format_int_code_bytes(&f, COLS),
                   mb = tsr_format_table_meta_bytes(&f, COLS);
    uint8_t *codes = malloc(ROWS * cb), *meta = malloc(ROWS * mb);
    float    x[COLS], *want = NULL;
    assert_true(codes && meta);
    for (uint64_t i = 0; i < ROWS * cb; i++)
        codes[i] = (uint8_t)rnd();
    for (uint64_t i = 0; i < COLS; i++)
        x[i] = (float)up_to(-1000, 1000);
    for (uint64_t r = 0; r < ROWS; r++) { /* some panels have a divisor that no reciprocal serves */
        const int32_t exponent = r / 32 % 4 == 3 ? up_to(-126, 127) : up_to(-80, 80);
        const float   d = ldexpf((float)up_to(1 << 23, (1 << 24) - 1), exponent - 23);
        memcpy(meta + r * mb, &d, 4);
        for (uint64_t g = 0; g < COLS / 16; g++) /* NaN in every eighth row of those */
            meta[r * mb + 4 + g] = (uint8_t)(r / 32 % 5 ? rnd() % 127
                                             : r % 8    ? rnd() % 127 + rnd() % 2 * 128
                                                        : rnd());
    }
    const struct tsr_weight_desc w = desc_of(&f, codes, cb, meta, mb);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        void           *h = NULL;
        if (!c)
            continue;
        assert_int_equal(tsr_cpu_weight_load(c, &w, &h, NULL), TSR_OK);
        float *got = outputs(c, h, x, 1);
        want = want ? want : got;
        assert_memory_equal(got, want, ROWS * sizeof *got);
        if (got != want)
            free(got);
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
    }
    free(want);
    free(codes), free(meta);
}

static void divisors(void **state)
{
    (void)state;
    elements_over(1.0f);
    elements_over(0.5f);
    elements_over(0x1p-140f); /* too small for numbers: a unit of 0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers), cmocka_unit_test(minimums), cmocka_unit_test(straight_tables),
        cmocka_unit_test(spans),    cmocka_unit_test(divisors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
