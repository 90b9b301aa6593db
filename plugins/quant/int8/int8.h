/* int8.h - shared by the plugin's table and SmoothQuant's search. */
#ifndef TSR_INT8_H
#define TSR_INT8_H

#include "../weights.h"

#include <tessera/quantizer_block.h>

enum { MODE_PLAIN, MODE_LLM, MODE_SMOOTH };

struct int8 {
    const struct tsr_host *host;
    int64_t                mode;
    int                    clip;
    uint32_t               scale_dtype;
    double                 threshold, alpha;
};

/* smooth.c */
extern const struct tsr_quantizer_block_v1 int8_smooth;

#endif
