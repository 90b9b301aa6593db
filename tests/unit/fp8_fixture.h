/* fp8_fixture.h - random weights in tessera.fp8/1, after those of cpu_fixture.h. */
#ifndef TSR_FP8_FIXTURE_H
#define TSR_FP8_FIXTURE_H

#include "cpu_fixture.h"

static inline void wt_fp8(struct wt *w, uint64_t rows, uint64_t cols, uint32_t element,
                          uint64_t group, uint32_t scale_dtype)
{
    wt_mx(w, rows, 4 * cols, element, group, 8); /* with room for scales of four bytes */
    w->desc.cols = cols;
    w->format.id = TSR_FORMAT_FP8;
    w->format.scale_bits = 0;
    w->format.scale_dtype = scale_dtype;
    uint64_t size = scale_dtype == TSR_F32 ? 4 : 2, groups = tsr_format_groups(&w->format, cols);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t g = 0; g < groups; g++) {
            float s = 0.05f * rnd_f32();
            memcpy(w->meta + r * w->desc.meta_stride + g * size, (uint8_t *)&s + 4 - size, size);
        }
}

#endif
