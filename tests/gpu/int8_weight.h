/* int8_weight.h - a small weight of tessera.int/1 for tests of the CUDA backend: int8 codes, one F32 scale a row. */
#ifndef TSR_TEST_GPU_INT8_WEIGHT_H
#define TSR_TEST_GPU_INT8_WEIGHT_H

#include <string.h>

#include "backend.h"
#include "tessera/format.h"

/* rows, cols: at most 320 each; llm: activations as LLM.int8 has them, outliers from 30 up.  NULL: err. */
static void *int8_weight(void *self, int seed, int llm, uint64_t rows, uint64_t cols,
                         struct tsr_err *err)
{
    static uint8_t         codes[320 * 320], meta[320 * 4];
    const float            scale = 0.01f;
    struct tsr_format      f = { .struct_size = sizeof f,
                                 .id = TSR_FORMAT_INT,
                                 .bits = 8,
                                 .scale_dtype = TSR_F32,
                                 .act8 = llm ? TSR_ACT8_LLM : TSR_ACT8_BLOCKS,
                                 .act8_threshold = llm ? 30.0 : 0.0 };
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "w",
                                 .format = &f,
                                 .rows = rows,
                                 .cols = cols,
                                 .codes = codes,
                                 .meta = meta,
                                 .code_stride = cols,
                                 .meta_stride = 4 };
    void                  *w = NULL;
    for (unsigned i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i * 29 + (unsigned)seed * 7);
    for (unsigned i = 0; i < 320; i++)
        memcpy(meta + (size_t)4 * i, &scale, 4);
    return tsr_cuda_weight_load(self, &d, &w, err) == TSR_OK ? w : NULL;
}

#endif
