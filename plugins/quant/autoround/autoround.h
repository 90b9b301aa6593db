/* autoround.h - shared by autoround.c (options, rows of one matrix), round.c (a row under offsets and ranges, and its
 * derivatives) and tune.c (the steps). */
#ifndef TSR_QUANT_AUTOROUND_H
#define TSR_QUANT_AUTOROUND_H

#include "../affine.h"

#include <tessera/quantizer_tune.h>

struct autoround {
    const struct tsr_host *host;
    struct wt_rule         rule;
    uint64_t               group; /* 0: the whole row */
    uint64_t               steps, batch, seed;
    double                 lr;
};

/* Columns that share a range, and the parts of both ends that are used. */
struct ar_range {
    float lo, hi;      /* of the weights and 0 */
    float alpha, beta; /* the range is beta lo .. alpha hi; 1 at first */
};

/* round.c: the layout of a row. */
struct tsr_format ar_format(const struct autoround *q);
uint64_t          ar_meta_bytes(const struct autoround *q, uint64_t cols);
uint64_t          ar_groups(const struct autoround *q, uint64_t cols);

/* The ranges of a row w [cols], at their full width. */
void ar_ranges(const struct autoround *q, const float *w, uint64_t cols, struct ar_range *r);
/* What w [cols] becomes with offsets v [cols] in steps: value [cols]. */
void ar_round(const struct autoround *q, const float *w, const float *v, uint64_t cols,
              const struct ar_range *r, float *value);
/* One step against the derivatives g [cols] of the error with respect to the values: v and r move by `rate` against
 * the sign of their own derivatives. */
void ar_descend(const struct autoround *q, const float *w, const float *g, uint64_t cols,
                float rate, float *v, struct ar_range *r);
/* Packs the row; v NULL: offsets 0.  scratch has ar_scratch() bytes.  Returns the number of groups, or the first whose
 * scale is no number of its type. */
uint64_t ar_scratch(const struct autoround *q, uint64_t cols);
uint64_t ar_pack(const struct autoround *q, const float *w, const float *v, uint64_t cols,
                 const struct ar_range *r, void *scratch, unsigned char *codes,
                 unsigned char *meta);

/* tune.c */
tsr_status ar_tune(const void *self, const struct tsr_tune_block *b,
                   struct tsr_tune_packed *const *packed, struct tsr_err *err);
uint64_t   ar_budget(const void *self);

#endif
