/* table_fixture.h - random weights in tessera.table/1, after those of cpu_fixture.h. */
#ifndef TSR_TABLE_FIXTURE_H
#define TSR_TABLE_FIXTURE_H

#include "cpu_fixture.h"

/* scale_bits 0: scales of scale_dtype; the table is zeros. */
static inline void wt_table(struct wt *w, uint64_t rows, uint64_t cols, uint32_t bits,
                            uint64_t group, uint32_t scale_dtype, uint32_t scale_bits,
                            uint32_t element)
{
    *w = (struct wt){ .format = { .struct_size = sizeof w->format,
                                  .id = TSR_FORMAT_TABLE,
                                  .bits = bits,
                                  .group = group,
                                  .scale_dtype = scale_dtype,
                                  .scale_bits = scale_bits,
                                  .element = element } };
    const struct tsr_format *f = &w->format;
    uint64_t                 cb = tsr_format_int_code_bytes(f, cols) + 1;
    uint64_t                 mb = tsr_format_table_meta_bytes(f, cols) + 4, n = 1, step = 4;
    if (scale_bits == 0)
        n = tsr_format_groups(f, cols), step = scale_dtype == TSR_F16 ? 2 : 4;
    else if (!element)
        n = (cols + 255) / 256, step = tsr_format_table_record_bytes(f);
    w->codes = malloc(rows * cb);
    w->meta = malloc(rows * mb);
    assert_true(w->codes && w->meta);
    for (uint64_t b = 0; b < rows * cb; b++)
        w->codes[b] = (uint8_t)rnd();
    for (uint64_t b = 0; b < rows * mb; b++) /* elements are seldom NaN */
        w->meta[b] = (uint8_t)(element && rnd() % 512 ? rnd() & 0x77 : rnd());
    for (uint64_t i = 0; i < rows * n; i++) {
        uint8_t *at = w->meta + i / n * mb + i % n * step;
        float    s = element ? 1000.0f + 999.0f * rnd_f32() : 0.05f * rnd_f32();
        uint16_t h = (uint16_t)((rnd() & 0x8000) | (0x1800 + rnd() % 0x600));
        if (element || (scale_bits == 0 && scale_dtype == TSR_F32))
            memcpy(at, &s, 4);
        else
            memcpy(at, &h, 2);
    }
    w->desc = (struct tsr_weight_desc){ .struct_size = sizeof w->desc,
                                        .name = "w",
                                        .format = &w->format,
                                        .rows = rows,
                                        .cols = cols,
                                        .codes = w->codes,
                                        .meta = w->meta,
                                        .code_stride = cb,
                                        .meta_stride = mb };
}

/* One of every kind: i from 0.  Tables are of any numbers, of whole ones, of halves, and ternary. */
static inline void wt_table_any(struct wt *w, uint64_t rows, uint64_t cols, uint32_t i)
{
    static const uint64_t groups[] = { 16, 32, 64, 128, 256, 1024, 0 };
    static const struct {
        uint32_t scale, level, element;
    } kinds[] = {
        { TSR_F16, 0, 0 }, { TSR_F32, 0, 0 }, { 0, 6, 0 }, { 0, 8, 0 }, { 0, 8, TSR_MX_FP8_E4M3 }
    };
    uint32_t k = i / 7 % 5, bits = 2 + i % 7;
    wt_table(w, rows, cols, bits, groups[rnd() % (k == 2 || k == 3 ? 4 : 7)], kinds[k].scale,
             kinds[k].level, kinds[k].element);
    for (uint32_t e = 0; bits <= 4 && e < 1u << bits; e++)
        w->format.table[e] = i % 4 == 0   ? rnd_f32()
                             : i % 4 == 1 ? (float)(rnd() % 255) - 127.0f
                             : i % 4 == 2 ? ((float)(rnd() % 25) - 12.0f) / 2.0f
                                          : (float)e - 1.0f;
}

#endif
