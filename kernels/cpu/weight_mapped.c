/* weight_mapped.c - table and scales of tessera.table/1 in panels (docs/formats/cpu-panels.md). */
#include "weight_mapped.h"

#include <stdlib.h>
#include <string.h>

#include "../weight/weight.h"
#include "codes.h"

int tsr_cpu_is_mapped(const struct tsr_format *f)
{
    return strcmp(f->id, TSR_FORMAT_TABLE) == 0;
}

static void fill_table(struct tsr_cpu_weight *w, const struct tsr_format *f)
{
    int8_t t[TSR_TABLE_ENTRIES];
    w->unit = tsr_weight_map_table(f, t);
    /* bytes are unsigned; the sums of activations take it back.  More than 4 bits are not looked up */
    const uint32_t n = f->bits > 4 ? 0 : 1u << f->bits;
    int            least = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        least = t[i] < least ? t[i] : least;
        most = t[i] > most ? t[i] : most;
    }
    const int low = most - least < CPU_LOW_BYTE;
    w->mid = n == 0 ? 1u << (f->bits - 1) : low ? (uint32_t)-least : 128;
    w->low_byte = (uint32_t)(most - least);
    w->straight = 1;
    for (uint32_t i = 0; i < n; i++)
        w->straight &= t[i] - least == (int)i;
    memcpy(w->table, f->table, sizeof w->table);
    for (uint32_t i = 0; i < sizeof w->table8; i++)
        w->table8[i] = (uint8_t)(t[i % TSR_TABLE_ENTRIES] + (int32_t)w->mid);
}

/* Bytes of a row's scales and factors. */
struct row {
    uint64_t scales, factors;
};

static struct row row_of(const struct tsr_cpu_weight *w)
{
    if (w->mapped == MAPPED_STORED)
        return (struct row){ w->groups * (w->scale_f16 ? 2 : 4), 0 };
    return (struct row){ w->groups, w->mapped == MAPPED_ELEMENTS ? 4 : w->records * 2 };
}

int tsr_cpu_mapped_plan(struct tsr_cpu_weight *w, const struct tsr_format *f, uint64_t *bytes)
{
    w->mapped = f->scale_bits == 0 ? MAPPED_STORED : f->element ? MAPPED_ELEMENTS : MAPPED_BYTES;
    w->scale_f16 = w->mapped == MAPPED_STORED && f->scale_dtype == TSR_F16;
    fill_table(w, f);
    if (w->mapped == MAPPED_BYTES) {
        w->bias = (1 << f->scale_bits) / 2; /* 32 or 128 */
        w->records = cpu_ceil(w->cols, TSR_TABLE_SUPER);
        while (f->group << w->record_shift < TSR_TABLE_SUPER)
            w->record_shift++;
    }
    struct row row = row_of(w);
    return !__builtin_mul_overflow(w->panels * PANEL, row.scales + row.factors, bytes);
}

void tsr_cpu_mapped_place(struct tsr_cpu_weight *w, uint8_t *at)
{
    w->scales = at;
    w->factors = at + w->panels * PANEL * row_of(w).scales;
}

static void fill_row(const struct tsr_cpu_weight *w, const struct tsr_format *f, const uint8_t *m,
                     uint64_t panel, uint64_t r)
{
    uint64_t first = panel * w->groups * PANEL + r, size = w->scale_f16 ? 2 : 4;
    uint64_t record = w->mapped == MAPPED_BYTES ? tsr_format_table_record_bytes(f) : 0;
    uint64_t in_record = (UINT64_C(1) << w->record_shift) - 1;
    if (w->mapped == MAPPED_ELEMENTS)
        memcpy(w->factors + 4 * (panel * PANEL + r), m, 4);
    for (uint64_t s = 0; w->mapped == MAPPED_BYTES && s < w->records; s++)
        memcpy(w->factors + 2 * ((panel * w->records + s) * PANEL + r), m + s * record, 2);
    for (uint64_t g = 0; g < w->groups; g++) {
        uint64_t at = first + g * PANEL;
        if (w->mapped == MAPPED_STORED)
            memcpy(w->scales + at * size, m + g * size, size);
        else if (w->mapped == MAPPED_ELEMENTS)
            w->scales[at] = m[4 + g];
        else
            w->scales[at] = (uint8_t)tsr_weight_code(m + (g >> w->record_shift) * record + 2,
                                                     g & in_record, f->scale_bits);
    }
}

void tsr_cpu_mapped_fill(const struct tsr_cpu_weight *w, const struct tsr_weight_desc *d,
                         uint64_t panel)
{
    uint64_t   row0 = panel * PANEL, n = cpu_min(w->rows - row0, PANEL);
    struct row row = row_of(w);
    if (n < PANEL) {
        memset(w->scales + row0 * row.scales, 0, PANEL * row.scales);
        memset(w->factors + row0 * row.factors, 0, PANEL * row.factors);
    }
    for (uint64_t r = 0; r < n; r++)
        fill_row(w, d->format, (const uint8_t *)d->meta + (row0 + r) * d->meta_stride, panel, r);
}

static float scale_of(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group, uint64_t r)
{
    uint64_t          at = (panel * w->groups + group) * PANEL + r;
    struct tsr_format half = { .scale_dtype = TSR_F16 }, whole = { .scale_dtype = TSR_F32 };
    if (w->mapped == MAPPED_STORED)
        return tsr_weight_entry(w->scale_f16 ? &half : &whole, w->scales, at);
    if (w->mapped == MAPPED_ELEMENTS)
        return tsr_element_value(TSR_MX_FP8_E4M3, w->scales[at]) /
               tsr_weight_entry(&whole, w->factors, panel * PANEL + r);
    uint64_t record = panel * w->records + (group >> w->record_shift);
    return tsr_weight_entry(&half, w->factors, record * PANEL + r) *
           (float)(w->scales[at] - w->bias);
}

void tsr_cpu_mapped_row(const struct tsr_cpu_weight *w, uint64_t row, float *out)
{
    uint64_t       panel = row / PANEL, r = row % PANEL;
    const uint8_t *codes = w->codes + panel * w->panel_bytes;
    for (uint64_t g = 0, k = 0; g < w->groups; g++) {
        uint64_t end = cpu_min((g + 1) * w->group, w->cols);
        float    scale = scale_of(w, panel, g, r);
        for (; k < end; k++) {
            uint32_t code = cpu_code_get(w->layout, codes, r, k);
            out[k] = (cpu_looked_up(w->layout) ? w->table[code & 15u]
                                               : (float)((int32_t)code - (int32_t)w->mid)) *
                     scale;
        }
    }
}
