/* weight_affine.c - scales and minimums of tessera.int/2 in panels (docs/formats/cpu-panels.md). */
#include "weight_affine.h"

#include <string.h>

#include "codes.h"
#include "tessera/f16.h"

int tsr_cpu_is_affine(const struct tsr_format *f)
{
    return strcmp(f->id, TSR_FORMAT_AFFINE) == 0;
}

/* Bytes of a row's scales, minimums and factors. */
struct row {
    uint64_t scales, minimums, factors;
};

static struct row row_of(const struct tsr_cpu_weight *w)
{
    uint64_t size = w->affine != AFFINE_STORED ? 1 : w->scale_f16 ? 2 : 4;
    return (struct row){ w->groups * size, w->affine == AFFINE_NIBBLES ? 0 : w->groups * size,
                         w->affine == AFFINE_STORED ? 0 : w->records * 4 };
}

int tsr_cpu_affine_plan(struct tsr_cpu_weight *w, const struct tsr_format *f, uint64_t *bytes)
{
    w->mid = 0;
    w->scale_f16 = f->scale_bits == 0 && f->scale_dtype == TSR_F16;
    w->affine = f->scale_bits == 0   ? AFFINE_STORED
                : f->scale_bits == 4 ? AFFINE_NIBBLES
                                     : AFFINE_BYTES;
    w->records = f->scale_bits ? cpu_ceil(w->cols, TSR_AFFINE_SUPER) : 0;
    w->record_shift = 0;
    while (f->scale_bits && f->group << w->record_shift < TSR_AFFINE_SUPER)
        w->record_shift++;
    struct row row = row_of(w);
    return !__builtin_mul_overflow(w->panels * PANEL, row.scales + row.minimums + row.factors,
                                   bytes);
}

void tsr_cpu_affine_place(struct tsr_cpu_weight *w, uint8_t *at)
{
    struct row row = row_of(w);
    w->scales = at;
    w->minimums = at + w->panels * PANEL * row.scales;
    w->factors = w->minimums + w->panels * PANEL * row.minimums;
}

/* Code i of a stream of `bits` wide codes, 4, 6 or 8. */
static uint8_t level_at(const uint8_t *p, uint64_t i, uint32_t bits)
{
    uint64_t at = i * bits;
    uint32_t v = p[at / 8];
    if (at % 8 + bits > 8)
        v |= (uint32_t)p[at / 8 + 1] << 8;
    return (uint8_t)(v >> at % 8 & ((1u << bits) - 1u));
}

static void fill_stored(const struct tsr_cpu_weight *w, const uint8_t *m, uint64_t panel,
                        uint64_t r)
{
    uint64_t size = w->scale_f16 ? 2 : 4;
    for (uint64_t g = 0; g < w->groups; g++) {
        uint64_t at = ((panel * w->groups + g) * PANEL + r) * size;
        memcpy(w->scales + at, m + g * size, size);
        memcpy(w->minimums + at, m + (w->groups + g) * size, size);
    }
}

static void fill_levels(const struct tsr_cpu_weight *w, const struct tsr_format *f,
                        const uint8_t *m, uint64_t panel, uint64_t r)
{
    uint64_t record = tsr_format_affine_record_bytes(f), level = tsr_format_affine_level_bytes(f);
    for (uint64_t s = 0; s < w->records; s++) {
        uint8_t *to = w->factors + 2 * (2 * (panel * w->records + s) * PANEL + r);
        memcpy(to, m + s * record, 2);
        memcpy(to + (size_t)2 * PANEL, m + s * record + 2, 2);
    }
    for (uint64_t g = 0; g < w->groups; g++) {
        const uint8_t *codes = m + (g >> w->record_shift) * record + 4;
        uint64_t       i = g & ((UINT64_C(1) << w->record_shift) - 1);
        uint64_t       at = (panel * w->groups + g) * PANEL + r;
        uint8_t        a = level_at(codes, i, f->scale_bits);
        uint8_t        b = level_at(codes + level, i, f->scale_bits);
        if (w->affine == AFFINE_NIBBLES) {
            w->scales[at] = (uint8_t)(a | b << 4);
        } else {
            w->scales[at] = a;
            w->minimums[at] = b;
        }
    }
}

void tsr_cpu_affine_fill(const struct tsr_cpu_weight *w, const struct tsr_weight_desc *d,
                         uint64_t panel)
{
    uint64_t   row0 = panel * PANEL, n = cpu_min(w->rows - row0, PANEL);
    struct row row = row_of(w);
    if (n < PANEL) {
        memset(w->scales + row0 * row.scales, 0, PANEL * row.scales);
        memset(w->minimums + row0 * row.minimums, 0, PANEL * row.minimums);
        memset(w->factors + row0 * row.factors, 0, PANEL * row.factors);
    }
    for (uint64_t r = 0; r < n; r++) {
        const uint8_t *m = (const uint8_t *)d->meta + (row0 + r) * d->meta_stride;
        if (w->affine == AFFINE_STORED)
            fill_stored(w, m, panel, r);
        else
            fill_levels(w, d->format, m, panel, r);
    }
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return tsr_f16_f32_quiet(h);
}

static float stored_at(const struct tsr_cpu_weight *w, const uint8_t *p, uint64_t at)
{
    float f;
    if (w->scale_f16)
        return half_at(p + 2 * at);
    memcpy(&f, p + 4 * at, 4);
    return f;
}

void tsr_cpu_affine_row(const struct tsr_cpu_weight *w, uint64_t row, float *out)
{
    uint64_t       panel = row / PANEL, r = row % PANEL;
    const uint8_t *codes = w->codes + panel * w->panel_bytes;
    for (uint64_t g = 0, k = 0; g < w->groups; g++) {
        uint64_t at = (panel * w->groups + g) * PANEL + r,
                 end = cpu_min((g + 1) * w->group, w->cols);
        float scale, minimum;
        if (w->affine == AFFINE_STORED) {
            scale = stored_at(w, w->scales, at);
            minimum = stored_at(w, w->minimums, at);
        } else {
            const uint8_t *f =
                w->factors + 2 * (2 * (panel * w->records + (g >> w->record_shift)) * PANEL + r);
            uint32_t a = w->scales[at], b = a >> 4;
            if (w->affine == AFFINE_NIBBLES)
                a &= 15u;
            else
                b = w->minimums[at];
            scale = half_at(f) * (float)a;
            minimum = -(half_at(f + (size_t)2 * PANEL) * (float)b);
        }
        for (; k < end; k++) {
            float product = (float)cpu_code_get(w->layout, codes, r, k) * scale;
            out[k] = product + minimum;
        }
    }
}
