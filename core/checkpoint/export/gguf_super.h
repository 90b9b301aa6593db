/* checkpoint/export/gguf_super.h - blocks of a GGUF type as the numbers that their bytes stand for.
 *
 *   numbers -> bytes        gguf_super.c
 *   packed rows -> numbers  gguf_super.c, for layouts that hold the same codes and scales
 *   weights -> numbers      gguf_fit.c, by a search; gguf_descend.c goes on with a Hessian
 */
#ifndef TSR_CHECKPOINT_EXPORT_GGUF_SUPER_H
#define TSR_CHECKPOINT_EXPORT_GGUF_SUPER_H

#include "checkpoint/export/gguf_out.h"

/* What numbers a type has.  A weight is d * scale * (code - zero) - m * minimum. */
struct tsr_export_gguf_levels {
    uint32_t type;     /* enum tsr_gguf_type */
    uint16_t elements; /* of a block */
    uint16_t group;    /* of those that share a scale */
    uint8_t  top;      /* the largest code */
    uint8_t  zero;
    uint8_t  steps;    /* the largest scale; 1: d is the scale */
    bool     negative; /* scales go down to -steps - 1 */
    bool     minimum;
    bool     plain; /* the minimum is m, of any sign */
};
static inline unsigned tsr_export_gguf_groups(const struct tsr_export_gguf_levels *k)
{
    return k->group == 16 ? k->elements / 16u : k->elements / 32u;
}
/* NULL: a type whose blocks are not these numbers. */
const struct tsr_export_gguf_levels *tsr_export_gguf_levels(uint32_t type);

struct tsr_export_gguf_super {
    uint16_t      d, m; /* F16; m is subtracted */
    int8_t        scale[16];
    uint8_t       minimum[16];
    unsigned char code[TSR_GGUF_SUPER];
};

void tsr_export_gguf_put_super(const struct tsr_export_gguf_levels *k,
                               const struct tsr_export_gguf_super *s, unsigned char *dst);

/* Whether every piece of a packed matrix is in the layout that this type is read into. */
bool tsr_export_gguf_is_super(const struct tsr_export_gguf_levels *k,
                              const struct tsr_export_module      *m);
/* Block b of row r of such a matrix. */
void tsr_export_gguf_take_super(const struct tsr_export_gguf_levels *k,
                                const struct tsr_export_module *m, uint64_t r, uint64_t b,
                                struct tsr_export_gguf_super *s);

/* ---- from weights -------------------------------------------------------------------------- */

/* What the inputs of a matrix are like. */
struct tsr_export_gguf_inputs {
    const float *square;  /* [cols]: mean square of each column; NULL: alike */
    const float *hessian; /* [cols, cols]; NULL: columns are independent */
    float        damping; /* added to its diagonal */
    uint64_t     tokens;  /* that a calibration has of them */
};

/* The blocks of a row with the least error that the search finds, weighted by `square`.  False: a weight is not finite, or
 * a scale too large for F16. */
bool tsr_export_gguf_fit_row(const struct tsr_export_gguf_levels *k, const float *x,
                             const float *square, uint64_t cols, struct tsr_export_gguf_super *s);
/* Changes codes, scales and minimums one at a time as long as e H e^T falls, e: the errors of the row.  room: 3 * cols. */
void tsr_export_gguf_descend_row(const struct tsr_export_gguf_levels *k, const float *x,
                                 const struct tsr_export_gguf_inputs *in, uint64_t cols,
                                 struct tsr_export_gguf_super *s, float *room);

#endif
