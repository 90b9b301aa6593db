/* weight_pack.c - writes the panels of k_args.h from the plain row-major layouts of tessera/format.h. */
#include "../weight/weight.h"
#include "backend.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct fill {
    const struct tsr_weight_desc *d;
    const struct tsr_cuda_weight *w;
    uint8_t                      *bytes;
    float                         unit; /* of tessera.table/1 */
};

/* A step's 32 codes of lane r, into the planes of k_args.h. */
static void put_step(uint8_t *step, uint32_t bits, uint64_t r, const uint8_t *code)
{
    for (uint32_t c = 0; c < K_STEP; c++) {
        uint32_t j = c / 4, i = c % 4, v = code[c];
        uint8_t *p = step;
        if (bits == 8) {
            p[c / 16 * 512 + r * 16 + c % 16] = code[c];
            continue;
        }
        if (bits & 4u) {
            p[r * 16 + j / 2 * 4 + i] |= (uint8_t)((v & 15u) << 4 * (j & 1u));
            v >>= 4;
            p += 512;
        }
        if (bits & 2u) {
            p[r * 8 + j / 4 * 4 + i] |= (uint8_t)((v & 3u) << 2 * (j & 3u));
            v >>= 2;
            p += 256;
        }
        if (bits & 1u)
            p[r * 4 + i] |= (uint8_t)((v & 1u) << j);
    }
}

static void fill_codes(const struct fill *f, uint64_t row, const uint8_t *swap, uint64_t n_swap,
                       uint8_t by)
{
    const struct tsr_weight_desc *d = f->d;
    uint32_t                      bits = f->w->k.bits;
    const uint8_t                *src = (const uint8_t *)d->codes + row * d->code_stride;
    uint64_t                      steps = cuda_ceil(d->cols, K_STEP), r = row % K_PANEL, at = 0;
    uint8_t                      *dst = f->bytes + row / K_PANEL * steps * 128u * bits;
    for (uint64_t s = 0; s < steps; s++, dst += 128u * bits) {
        uint8_t code[K_STEP] = { 0 };
        for (uint64_t c = 0; c < cuda_min(K_STEP, d->cols - s * K_STEP); c++) {
            uint64_t bit = (s * K_STEP + c) * bits;
            uint32_t v = (uint32_t)src[bit / 8] >> bit % 8;
            if (bit % 8 + bits > 8)
                v |= (uint32_t)src[bit / 8 + 1] << (8 - bit % 8);
            code[c] = (uint8_t)(v & ((1u << bits) - 1u));
            uint32_t column;
            if (at < n_swap) { /* columns that take another code: outliers */
                memcpy(&column, swap + 4 * at, 4);
                if (column == s * K_STEP + c) {
                    code[c] = by;
                    at++;
                }
            }
        }
        put_step(dst, bits, r, code);
    }
}

static void fill_float(const struct fill *f, uint64_t row)
{
    const struct tsr_weight_desc *d = f->d;
    uint64_t                      size = f->w->k.bits / 8, each = 16 / size, r = row % K_PANEL;
    uint64_t                      steps = cuda_ceil(d->cols, K_STEP);
    const uint8_t                *src = (const uint8_t *)d->codes + row * d->code_stride;
    uint8_t                      *dst = f->bytes + row / K_PANEL * steps * 128u * f->w->k.bits;
    for (uint64_t k = 0; k < d->cols; k += each)
        memcpy(dst + k / each * 512 + r * 16, src + k * size, cuda_min(each, d->cols - k) * size);
}

/* Codes of scales and minimums, and their factors. */
static void fill_levels(const struct fill *f, uint64_t row)
{
    const struct k_weight        *k = &f->w->k;
    const struct tsr_cuda_places *at = &f->w->at;
    const struct tsr_format      *form = f->d->format;
    const uint8_t                *meta = (const uint8_t *)f->d->meta + row * f->d->meta_stride;
    uint64_t panel = row / K_PANEL, lane = row % K_PANEL, halves = 1 + k->affine;
    uint64_t record =
        k->affine ? tsr_format_affine_record_bytes(form) : tsr_format_table_record_bytes(form);
    uint64_t level = k->affine ? tsr_format_affine_level_bytes(form) : 0;
    for (uint64_t s = 0; s < k->records; s++)
        for (uint64_t i = 0; i < halves; i++)
            memcpy(f->bytes + at->factors +
                       2 * (((panel * k->records + s) * halves + i) * K_PANEL + lane),
                   meta + s * record + 2 * i, 2);
    for (uint64_t g = 0; g < k->groups; g++) {
        const uint8_t *codes = meta + (g >> k->record_shift) * record + 2 * halves;
        uint64_t       i = g & ((UINT64_C(1) << k->record_shift) - 1);
        uint64_t       place = (panel * k->groups + g) * K_PANEL + lane;
        uint32_t       a = tsr_weight_code(codes, i, form->scale_bits);
        uint32_t       b = k->affine ? tsr_weight_code(codes + level, i, form->scale_bits) : 0;
        f->bytes[at->scales + place] = (uint8_t)(k->scale_kind == K_SCALE_NIBBLES ? a | b << 4 : a);
        if (k->affine && k->scale_kind == K_SCALE_LEVELS)
            f->bytes[at->minimums + place] = (uint8_t)b;
    }
}

static void fill_scales(const struct fill *f, uint64_t row)
{
    const struct k_weight   *k = &f->w->k;
    const struct tsr_format *form = f->d->format;
    const uint8_t           *meta = (const uint8_t *)f->d->meta + row * f->d->meta_stride;
    uint64_t                 size = k->scale_kind == K_SCALE_F32 ? 4 : 2;
    int                      lim = (1 << (form->scale_bits ? form->scale_bits - 1 : 0)) - 1;
    int                      fp8 = strcmp(form->id, TSR_FORMAT_FP8) == 0;
    if (k->records) {
        fill_levels(f, row);
        return;
    }
    if (k->scale_kind == K_SCALE_E4M3)
        memcpy(f->bytes + f->w->at.factors + 4 * row, meta, 4);
    for (uint64_t g = 0; g < k->groups; g++) {
        uint64_t at = (row / K_PANEL * k->groups + g) * K_PANEL + row % K_PANEL;
        if (fp8) {
            float v = tsr_weight_fp8_scale(form, meta, g);
            memcpy(f->bytes + f->w->at.scales + 4 * at, &v, 4);
            continue;
        }
        if (k->scale_kind == K_SCALE_E8) {
            f->bytes[f->w->at.scales + at] =
                meta[g] > 2 * lim ? 255 : (uint8_t)(meta[g] - lim + 127);
            continue;
        }
        if (k->scale_kind == K_SCALE_E4M3) {
            f->bytes[f->w->at.scales + at] = meta[4 + g];
            continue;
        }
        memcpy(f->bytes + f->w->at.scales + at * size, meta + g * size, size);
        if (k->affine)
            memcpy(f->bytes + f->w->at.minimums + at * size, meta + (k->groups + g) * size, size);
        if (f->w->zeros)
            f->bytes[f->w->at.zeros + at] = meta[k->groups * size + g];
    }
}

static void fill_lut(const struct fill *f, uint64_t row)
{
    const struct k_weight        *k = &f->w->k;
    const struct tsr_cuda_places *at = &f->w->at;
    const struct tsr_format      *form = f->d->format;
    const uint8_t                *meta = (const uint8_t *)f->d->meta + row * f->d->meta_stride;
    const uint8_t *columns = meta + tsr_format_lut_meta_bytes(form) - 4u * k->outliers;
    float          table[256];
    int8_t         t[256] = { 0 };
    uint32_t       zero = 0;
    for (uint32_t i = 0; i < k->entries; i++)
        table[i] = tsr_weight_entry(form, meta, i);
    float unit = tsr_weight_round_table(table, k->entries, t);
    memcpy(f->bytes + at->unit + 4 * row, &unit, 4);
    for (uint32_t i = 0; i < k->entries; i++) {
        uint64_t place = (row / K_PANEL * k->entries + i) * K_PANEL + row % K_PANEL;
        memcpy(f->bytes + at->table + 4 * place, &table[i], 4);
        memcpy(f->bytes + at->table8 + place, &t[i], 1);
        if ((t[i] < 0 ? -t[i] : t[i]) < (t[zero] < 0 ? -t[zero] : t[zero]))
            zero = i;
    }
    fill_codes(f, row, columns, k->outliers, (uint8_t)zero);
    for (uint64_t i = 0; i < k->outliers; i++) {
        float v = tsr_weight_entry(form, meta, k->entries + i), delta = v - (float)t[zero] * unit;
        uint64_t place = 4 * (row * k->outliers + i);
        memcpy(f->bytes + at->column + place, columns + 4 * i, 4);
        memcpy(f->bytes + at->value + place, &v, 4);
        memcpy(f->bytes + at->delta + place, &delta, 4);
    }
}

/* The values of the codes, and as int8 by digits; returns the unit of tessera.table/1. */
static float fill_entries(const struct fill *f)
{
    const struct k_weight        *k = &f->w->k;
    const struct tsr_cuda_places *at = &f->w->at;
    const struct tsr_format      *form = f->d->format;
    uint32_t                      half = 1u << (k->bits - 1);
    int8_t                        t8[TSR_TABLE_ENTRIES];
    if (strcmp(form->id, TSR_FORMAT_TABLE) == 0) {
        float unit = tsr_weight_map_table(form, t8);
        memcpy(f->bytes + at->table, form->table, sizeof form->table);
        memcpy(f->bytes + at->table8, t8, sizeof t8);
        return unit;
    }
    for (uint32_t i = 0; i < 1u << k->bits; i++) {
        float    v = tsr_element_value(form->element, i);
        uint32_t units = tsr_element_units(form->element, i & (half - 1));
        memcpy(f->bytes + at->table + 4u * i, &v, 4);
        for (uint32_t n = 0; n < k->digits; n++, units >>= 7) {
            int8_t t = (int8_t)(i & half ? -(int)(units & 127u) : (int)(units & 127u));
            memcpy(f->bytes + at->table8 + 256u * n + i, &t, 1);
        }
    }
    return 0.0f;
}

/* The unit of a row's digits; NaN if the row has a code that is not a number. */
static void fill_unit(const struct fill *f, uint64_t row)
{
    const struct tsr_weight_desc *d = f->d;
    uint32_t                      element = d->format->element, bits = d->format->bits;
    const uint8_t                *codes = (const uint8_t *)d->codes + row * d->code_stride;
    bool                          mapped = strcmp(d->format->id, TSR_FORMAT_TABLE) == 0;
    float unit = mapped ? f->unit : ldexpf(1.0f, -tsr_element_unit(element));
    for (uint64_t k = 0; k < d->cols && bits == 8 && !mapped; k++)
        if (!tsr_element_finite(element, codes[k] & 127u))
            unit = NAN;
    memcpy(f->bytes + f->w->at.unit + 4 * row, &unit, 4);
}

static tsr_status fill_panels(void *arg, uint64_t begin, uint64_t end)
{
    const struct fill *f = arg;
    for (uint64_t row = begin * K_PANEL; row < cuda_min(end * K_PANEL, f->d->rows); row++) {
        if (f->w->k.kind == K_FLOAT) {
            fill_float(f, row);
        } else if (f->w->k.kind == K_LUT) {
            fill_lut(f, row);
        } else {
            fill_codes(f, row, NULL, 0, 0);
            fill_scales(f, row);
            if (f->w->k.kind == K_MX)
                fill_unit(f, row);
        }
    }
    return TSR_OK;
}

tsr_status tsr_cuda_pack(const struct tsr_cuda *c, const struct tsr_weight_desc *d,
                         const struct tsr_cuda_weight *w, uint8_t *bytes)
{
    struct fill f = { d, w, bytes, 0.0f };
    if (w->k.kind == K_MX)
        f.unit = fill_entries(&f);
    return c->host->parallel_for(c->host->ctx, cuda_ceil(d->rows, K_PANEL), 1, fill_panels, &f);
}
