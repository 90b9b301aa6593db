/* exact_row.c - a packed row as integers and scales, by docs/decisions/numerics.md. */
#include "exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "format_ref.h"

static uint32_t code_at(const uint8_t *codes, uint64_t k, uint32_t bits)
{
    uint32_t code = 0;
    for (uint32_t b = 0; b < bits; b++) {
        uint64_t at = k * bits + b;
        code |= (uint32_t)(codes[at / 8] >> (at % 8) & 1) << b;
    }
    return code;
}

static void make_int(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                     const uint8_t *codes, const uint8_t *meta)
{
    uint64_t          groups = tsr_format_groups(f, cols), size = f->scale_dtype == TSR_F32 ? 4 : 2;
    struct tsr_format one = { .id = TSR_FORMAT_FLOAT, .dtype = f->scale_dtype };
    int middle = f->bits > 0 ? 1 << (f->bits - 1) : 0; /* 0 bits is not a format: nothing is read */
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t g = row->group[k] = groups == 1 ? 0 : k / f->group;
        int      zero = f->zero == TSR_ZERO_STORED ? meta[groups * size + g] : middle;
        row->t[k] = (int64_t)code_at(codes, k, f->bits) - zero;
        (void)tsr_ref_decode_row(&one, 1, meta + g * size, NULL, &row->scale[k]);
    }
}

/* Scales and minimums, stored or from a record's factors and codes. */
static void make_affine(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                        const uint8_t *codes, const uint8_t *meta)
{
    uint64_t          groups = tsr_format_groups(f, cols), per = f->group ? 256 / f->group : 1;
    struct tsr_format one = { .id = TSR_FORMAT_FLOAT, .dtype = f->scale_dtype };
    struct tsr_format half = { .id = TSR_FORMAT_FLOAT, .dtype = TSR_F16 };
    uint64_t size = f->scale_dtype == TSR_F32 ? 4 : 2, level = (per * f->scale_bits + 7) / 8;
    row->minimums = 1;
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t g = row->group[k] = groups == 1 ? 0 : k / f->group;
        row->t[k] = (int64_t)code_at(codes, k, f->bits);
        if (f->scale_bits == 0) {
            (void)tsr_ref_decode_row(&one, 1, meta + g * size, NULL, &row->scale[k]);
            (void)tsr_ref_decode_row(&one, 1, meta + (groups + g) * size, NULL, &row->minimum[k]);
            continue;
        }
        const uint8_t *record = meta + g / per * (4 + 2 * level);
        float          factor[2];
        (void)tsr_ref_decode_row(&half, 2, record, NULL, factor);
        row->scale[k] = factor[0] * (float)code_at(record + 4, g % per, f->scale_bits);
        row->minimum[k] = -(factor[1] * (float)code_at(record + 4 + level, g % per, f->scale_bits));
    }
}

/* One code of an element under the scale 1. */
static float element_value(const struct tsr_format *f, uint8_t code)
{
    struct tsr_format one = {
        .id = TSR_FORMAT_MX, .bits = f->bits, .element = f->element, .scale_bits = 8
    };
    uint8_t middle = 127;
    float   v = 0;
    (void)tsr_ref_decode_row(&one, 1, &code, &middle, &v);
    return v;
}

/* The smallest step of the element, of which every value is a multiple, is its smallest value: 2^-unit. */
static int unit_of(const struct tsr_format *f)
{
    float least = INFINITY;
    for (uint32_t c = 0; c < 1u << f->bits; c++) {
        float v = fabsf(element_value(f, (uint8_t)c));
        if (v > 0 && v < least)
            least = v;
    }
    return -ilogbf(least);
}

/* Elements: scales are powers of two, or stored. */
static void make_mx(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                    const uint8_t *codes, const uint8_t *meta)
{
    int               unit = unit_of(f), any = 0, stored = strcmp(f->id, TSR_FORMAT_FP8) == 0;
    int               lim = stored ? 0 : (1 << (f->scale_bits - 1)) - 1;
    struct tsr_format scale = { .id = TSR_FORMAT_FLOAT, .dtype = f->scale_dtype };
    uint64_t          size = f->scale_dtype == TSR_F32 ? 4 : 2;
    for (uint64_t k = 0; k < cols; k++) {
        float    v = element_value(f, (uint8_t)code_at(codes, k, f->bits));
        uint64_t g = row->group[k] = f->group ? k / f->group : 0;
        any |= !isfinite(v);
        row->t[k] = isfinite(v) ? (int64_t)ldexp((double)v, unit) : 0;
        if (stored) {
            (void)tsr_ref_decode_row(&scale, 1, meta + g * size, NULL, &row->scale[k]);
            row->scale[k] = row->scale[k] * ldexpf(1.0f, -unit);
        } else {
            row->scale[k] = meta[g] > 2 * lim ? NAN : ldexpf(1.0f, meta[g] - lim - unit);
        }
    }
    for (uint64_t k = 0; any && k < cols; k++)
        row->scale[k] = NAN; /* a non-finite value makes its whole row NaN */
}

/* The table becomes codes by the rule for activations; an outlier's code is the one nearest to zero, and
 * the difference is added in F32. */
static tsr_status make_lut(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                           const uint8_t *codes, const uint8_t *meta)
{
    uint64_t          n = UINT64_C(1) << f->bits, size = f->scale_dtype == TSR_F32 ? 4 : 2;
    float             table[256], value = 0;
    int32_t           t[256];
    struct tsr_format one = { .id = TSR_FORMAT_FLOAT, .dtype = f->scale_dtype };
    uint32_t          zero = 0;
    tsr_status        st = tsr_ref_decode_row(&one, n, meta, NULL, table);
    if (st != TSR_OK)
        return st;
    float scale = tsr_ref_round_i8(table, n, t);
    for (uint32_t i = 0; i < n; i++)
        if (abs(t[i]) < abs(t[zero]))
            zero = i;
    for (uint64_t k = 0; k < cols; k++) {
        row->t[k] = t[code_at(codes, k, f->bits)];
        row->scale[k] = scale;
    }
    for (uint64_t i = 0; i < f->outliers; i++) {
        uint32_t c;
        memcpy(&c, meta + tsr_format_lut_meta_bytes(f) - 4 * (f->outliers - i), 4);
        (void)tsr_ref_decode_row(&one, 1, meta + (n + i) * size, NULL, &value);
        row->t[c] = t[zero];
        row->extra[c] = value - (float)t[zero] * scale;
        row->outlier[c] = 1;
        row->outliers = 1;
    }
    return TSR_OK;
}

/* A table of whole numbers of at most 127 over a power of two, up to 64, stays as it is; another one becomes
 * codes by the rule for activations. */
static float round_table(const struct tsr_format *f, int32_t t[16])
{
    int n = f->bits > 4 ? 0 : 1 << f->bits; /* more bits: whole numbers without a table */
    for (int u = 0; u <= 6; u++) {
        int whole = 1;
        for (int i = 0; i < n; i++) {
            float v = ldexpf(f->table[i], u);
            whole &= v == rintf(v) && fabsf(v) <= 127.0f;
            t[i] = whole ? (int32_t)v : 0;
        }
        if (whole)
            return ldexpf(1.0f, -u);
    }
    return tsr_ref_round_i8(f->table, (uint64_t)n, t);
}

/* A row of codes 0 under a table that has a 1 there is the row's scales. */
static tsr_status make_table(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                             const uint8_t *codes, const uint8_t *meta)
{
    int32_t           t[16] = { 0 };
    float             unit = round_table(f, t);
    uint64_t          groups = tsr_format_groups(f, cols);
    struct tsr_format one = *f;
    uint8_t          *zeros = calloc(tsr_format_int_code_bytes(f, cols), 1);
    one.bits = 2;
    memset(one.table, 0, sizeof one.table);
    one.table[0] = 1.0f;
    tsr_status st = zeros ? tsr_ref_decode_row(&one, cols, zeros, meta, row->scale) : TSR_E_NOMEM;
    free(zeros);
    for (uint64_t k = 0; k < cols && st == TSR_OK; k++) {
        row->group[k] = groups == 1 ? 0 : k / f->group;
        uint32_t code = code_at(codes, k, f->bits);
        row->t[k] = f->bits > 4 ? (int64_t)code - (1 << (f->bits - 1)) : t[code];
        row->scale[k] = row->scale[k] * unit;
    }
    return st;
}

tsr_status tsr_ref_row_make(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                            const void *codes, const void *meta)
{
    tsr_status st = TSR_OK;
    *row = (struct tsr_ref_row){ .t = calloc(cols, sizeof *row->t),
                                 .scale = calloc(cols, sizeof *row->scale),
                                 .group = calloc(cols, sizeof *row->group),
                                 .minimum = calloc(cols, sizeof *row->minimum),
                                 .extra = calloc(cols, sizeof *row->extra),
                                 .outlier = calloc(cols, 1) };
    if (!row->t || !row->scale || !row->group || !row->minimum || !row->extra || !row->outlier)
        st = TSR_E_NOMEM;
    else if (strcmp(f->id, TSR_FORMAT_INT) == 0)
        make_int(row, f, cols, codes, meta);
    else if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0)
        make_affine(row, f, cols, codes, meta);
    else if (strcmp(f->id, TSR_FORMAT_TABLE) == 0)
        st = make_table(row, f, cols, codes, meta);
    else if (strcmp(f->id, TSR_FORMAT_MX) == 0 || strcmp(f->id, TSR_FORMAT_FP8) == 0)
        make_mx(row, f, cols, codes, meta);
    else if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        st = make_lut(row, f, cols, codes, meta);
    else
        st = TSR_E_UNSUPPORTED;
    if (st != TSR_OK)
        tsr_ref_row_free(row);
    return st;
}

void tsr_ref_row_free(struct tsr_ref_row *row)
{
    free(row->t);
    free(row->scale);
    free(row->group);
    free(row->minimum);
    free(row->extra);
    free(row->outlier);
    *row = (struct tsr_ref_row){ 0 };
}
