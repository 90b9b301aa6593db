/* compensate/residual.h - what quantization lost of a linear, rounded a second time: R = W - dequantized(W)
 * at 2, 4, 8 or 16 bits with one scale per output channel, format tessera.residual/1,
 * docs/formats/compensation.md.  Rules of arXiv 2412.20185 and its public code, to the bit.
 *
 *   codes   one contiguous row per input channel, so that a channel is one read
 *   scales  F16, one per output channel, in the order of the channels
 */
#ifndef TSR_COMPENSATE_RESIDUAL_H
#define TSR_COMPENSATE_RESIDUAL_H

#include "base/err.h"
#include "base/pool.h"
#include "model/packed.h"

#define TSR_RESIDUAL_FORMAT     "tessera.residual/1"
#define TSR_RESIDUAL_CANDIDATES 32u

/* Residual of a linear [outputs, inputs]; the owner owns the memory.  Rows may be joined: row i is followed by
 * row i of the other linears of the site (tsr_compensation_row()). */
struct tsr_compensate_residual {
    uint32_t       bits;            /* 2, 4, 8: integer codes; 16: F16 values without a scale */
    uint64_t       inputs, outputs; /* rows of codes, channels in a row */
    uint64_t       stride;          /* bytes from row to row, a multiple of 64; joined: of all */
    unsigned char *codes;           /* of the first row */
    uint16_t      *scales;          /* [outputs]; NULL for 16 bits */
};

bool tsr_compensate_residual_bits_known(uint32_t bits);
/* Bytes of a row; outputs below 2^56. */
uint64_t tsr_compensate_residual_stride(uint32_t bits, uint64_t outputs);
/* Bytes of codes and scales. */
uint64_t tsr_compensate_residual_bytes(const struct tsr_compensate_residual *r);

/* One output channel: n finite values to codes -qmax..qmax, qmax = 2^(bits-1) - 1. */
struct tsr_compensate_residual_fit {
    uint32_t candidate; /* of the grid, from 0 */
    float    scale;     /* that the codes were taken with */
    uint16_t stored;    /* the same as F16 */
    double   loss;      /* sum of squared errors under `scale` */
};
/* max_scale = f16(max|r| / qmax); 32 scales in equal F32 steps from f16(max_scale / 32) to max_scale; q =
 * clip(rint(r / s)), ties to even; the first of smallest loss.  All zero: scale and codes 0.  A scale that
 * F16 cannot hold is TSR_E_UNSUPPORTED.  [any] */
tsr_status tsr_compensate_residual_fit(const float *r, uint64_t n, uint32_t bits, int8_t *q,
                                       struct tsr_compensate_residual_fit *fit,
                                       struct tsr_err                     *err);

/* A linear as it was packed: w's columns were multiplied by columns[], its rows divided by rows[] first
 * (quant/block.h); NULL: they were not. */
struct tsr_compensate_residual_source {
    const struct tsr_matrix       *w;
    const struct tsr_model_packed *packed;
    const float                   *columns, *rows;
};
struct tsr_compensate_residual_report {
    double before,
        after; /* squared error of the packed linear, without and with all of the residual */
};
/* Fills out, with memory that tsr_compensate_residual_free() releases; energy (NULL or [inputs]) gets the sum of
 * r^2 of each input channel.  Which thread does what changes nothing.  [setup] */
tsr_status tsr_compensate_residual_make(struct tsr_compensate_residual *out, struct tsr_pool *pool,
                                        const struct tsr_compensate_residual_source *from,
                                        uint32_t bits, double *energy,
                                        struct tsr_compensate_residual_report *report,
                                        struct tsr_err                        *err);
void       tsr_compensate_residual_free(struct tsr_compensate_residual *r);

/* Value of input channel i and output channel n, as the engine widens it. */
float tsr_compensate_residual_value(const struct tsr_compensate_residual *r, uint64_t i,
                                    uint64_t n);

#endif
