/* compensate/tune.h - how many channels each linear may be compensated for at a target slow-down
 * (arXiv 2412.20185, section 4.4 and appendix A).
 *
 * A table of times per kind of linear, t[blocks][k], says what the linear takes with `blocks` thread blocks (on a
 * CPU: threads) on compensation and k of 1024 channels.  Phase 1 finds the largest number of blocks
 * that any linear may use, by the largest common k that stays within the target; phase 2 raises k linear
 * by linear.
 */
#ifndef TSR_COMPENSATE_TUNE_H
#define TSR_COMPENSATE_TUNE_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_TUNE_MODULES 8u
#define TSR_TUNE_BLOCKS  64u
#define TSR_TUNE_FORMAT  "tessera.dec-profile/1"

/* A kind of linear: q, k and v together, o, gate and up together, down. */
struct tsr_tune_module {
    char     name[32];
    uint64_t inputs, outputs;
    double   base; /* ms without compensation */
    uint32_t n_blocks, n_k;
    uint32_t blocks[TSR_TUNE_BLOCKS]; /* ascending */
    double  *ms;                      /* [n_blocks][n_k], k = 0, 1, ...; owned by the table */
};
struct tsr_tune_table {
    char     device[96];
    double   bits, host_gbps, device_gbps; /* of the weights with their metadata; 0: not said */
    uint32_t residual;                     /* bits of the residuals that were added; 0: not said */
    uint32_t n;
    struct tsr_tune_module m[TSR_TUNE_MODULES];
};

/* When a linear that does not fit any more is left alone in phase 2. */
enum tsr_freeze {
    TSR_FREEZE_RETRY, /* it is tried again in each round, as the public code does */
    TSR_FREEZE_ONCE,  /* for good, as the paper says */
};
extern const struct tsr_choice tsr_freeze_choices[2];

struct tsr_tune_result {
    uint32_t most_blocks; /* n_tb^max; 0: nothing is compensated */
    uint32_t common;      /* k of phase 1 */
    uint32_t blocks[TSR_TUNE_MODULES], k[TSR_TUNE_MODULES];
    bool     dropped[TSR_TUNE_MODULES]; /* by phase 1: k stays 0 */
    double   base, limit, total;        /* ms */
};
/* slower: 0.05 for 5 %; most: the largest number of blocks that is tried, 0: any.  A table that ends below
 * 1024 before the target is reached is TSR_E_INPUT.  [any] */
tsr_status tsr_tune(const struct tsr_tune_table *t, double slower, uint32_t most,
                    enum tsr_freeze freeze, struct tsr_tune_result *r, struct tsr_err *err);

/* Thread blocks that leave none without work: {1..inputs/1024} and the n for which ceil(s / ceil(s/n)) = n,
 * s = outputs/256.  Ascending; returns how many, at most cap. */
uint64_t tsr_tune_viable(uint64_t inputs, uint64_t outputs, uint32_t *out, uint64_t cap);
/* The largest of n ascending numbers that is at most `most`; 0: none. */
uint32_t tsr_tune_largest(const uint32_t *v, uint64_t n, uint32_t most);
/* Most channels per chunk that the selection has shared memory for. */
uint32_t tsr_tune_most_k(uint64_t shared_bytes);
/* 1024 (bits/4) (host/device): where compensation stops to hide behind reading the weights. */
double tsr_tune_knee(double bits, double host_gbps, double device_gbps);

/* Reads a profile; free() with tsr_tune_free().  name is for messages. */
tsr_status tsr_tune_load(struct tsr_tune_table *t, const char *path, struct tsr_err *err);
tsr_status tsr_tune_parse(struct tsr_tune_table *t, const char *name, const char *text,
                          uint64_t len, struct tsr_err *err);
void       tsr_tune_free(struct tsr_tune_table *t);

#endif
