/* residuals.h - codes of one linear in a file of residuals (docs/formats/compensation.md), for the programs that compute
 * figures again. */
#ifndef TESTS_E2E_RESIDUALS_H
#define TESTS_E2E_RESIDUALS_H

#include "figures.h"

struct part {
    uint64_t       stride, outputs;
    unsigned char *codes;
    float         *scales;
};

/* STRIDE bytes lie between one input's codes and the next's; 4 bits a code. */
static inline struct part read_part(const char *path, uint64_t codes, uint64_t stride,
                                    uint64_t scales, uint64_t outputs, uint64_t cols)
{
    struct part p = { .stride = stride, .outputs = outputs };
    FILE       *f = fopen(path, "rb");
    uint64_t    row = (outputs + 1) / 2;
    p.codes = grow(NULL, cols * stride, 1);
    if (!f)
        die("cannot open", path);
    for (uint64_t c = 0; c < cols;
         c++) /* the last row of several linears ends before a stride does */
        if (fseek(f, (long)(codes + c * stride), SEEK_SET) != 0 ||
            fread(p.codes + c * stride, 1, row, f) != row)
            die("too short", path);
    (void)fclose(f);
    p.scales = read_numbers(path, scales, "F16", outputs);
    return p;
}

/* What is added to the weight of an output in a channel; two codes a byte, the lower first. */
static inline double value(const struct part *p, uint64_t channel, uint64_t output)
{
    unsigned byte = p->codes[channel * p->stride + output / 2];
    return ((double)(output % 2 ? byte >> 4 : byte & 15) - 8) * (double)p->scales[output];
}

#endif
