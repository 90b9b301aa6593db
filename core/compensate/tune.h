/* compensate/tune.h - finds how many channels of each linear to compensate at a target slow-down (arXiv
 * 2412.20185, section 4.4 and appendix A).
 *
 * A table of times per kind of linear, t[blocks][k], gives the time of the linear with `blocks` thread blocks
 * (on a CPU: threads) for compensation and k of 1024 channels.  Phase 1 finds the largest number of blocks that
 * any linear may use, by the largest common k that stays within the target; phase 2 raises k linear by linear.
 */
#ifndef TSR_COMPENSATE_TUNE_H
#define TSR_COMPENSATE_TUNE_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_TUNE_MODULES           8u
#define TSR_TUNE_BLOCKS            64u
#define TSR_COMPENSATE_TUNE_FORMAT "tessera.dec-profile/1"

/* A kind of linear: q, k and v together, o, gate and up together, down. */
struct tsr_compensate_tune_module {
    char     name[32];
    uint64_t inputs, outputs;
    double   base; /* ms without compensation */
    uint32_t n_blocks, n_k;
    uint32_t blocks[TSR_TUNE_BLOCKS]; /* ascending */
    double  *ms;                      /* [n_blocks][n_k], k = 0, 1, ...; owned by the table */
};
struct tsr_compensate_tune_table {
    char     device[96];
    double   bits, host_gbps, device_gbps; /* of the weights including metadata; 0: not given */
    uint32_t residual;                     /* bits of the added residuals; 0: not given */
    double
        least_us; /* linears that take less time are not compensated; 0: there is no such limit */
    uint32_t                          n;
    struct tsr_compensate_tune_module m[TSR_TUNE_MODULES];
};

/* When a linear that does not fit any more is left alone in phase 2. */
enum tsr_freeze {
    TSR_COMPENSATE_FREEZE_RETRY, /* it is tried again in each round, as the public code does */
    TSR_COMPENSATE_FREEZE_ONCE,  /* for good, as the paper says */
};
extern const struct tsr_choice tsr_freeze_choices[2];

struct tsr_compensate_tune_result {
    uint32_t most_blocks; /* n_tb^max; 0: nothing is compensated */
    uint32_t common;      /* k of phase 1 */
    uint32_t blocks[TSR_TUNE_MODULES], k[TSR_TUNE_MODULES];
    bool     skipped[TSR_TUNE_MODULES]; /* below the table's least_us: k stays 0 */
    bool     dropped[TSR_TUNE_MODULES]; /* that, or by phase 1: k stays 0 */
    double   base, limit, total;        /* ms */
};
/* slower: 0.05 for 5 %; most: the largest number of blocks that is tried, 0: any.  A table that ends below
 * 1024 before the target is reached is TSR_E_INPUT.  [any] */
tsr_status tsr_compensate_tune(const struct tsr_compensate_tune_table *t, double slower,
                               uint32_t most, enum tsr_freeze freeze,
                               struct tsr_compensate_tune_result *r, struct tsr_err *err);

/* The limit of devices that read residuals over a bus: shorter linears hide nothing of it, since the selection alone
 * takes 6.4 us there (docs/lab/gpu/README.md). */
#define TSR_COMPENSATE_LEAST_US 4.0

/* Microseconds in which so many bytes of weights are read at a memory bandwidth in bytes a second, above 0. */
double tsr_compensate_own_us(uint64_t bytes, double bandwidth);
/* Whether linears that take own_us are not worth compensation; never at a limit of 0.  NaN is. */
bool tsr_compensate_is_skipped(double own_us, double least_us);

/* 1024 (bits/4) (host/device): the channel count up to which reading the weights hides
 * compensation. */
double tsr_compensate_tune_knee(double bits, double host_gbps, double device_gbps);

/* Reads a profile; free() with tsr_compensate_tune_free().  name is for messages. */
tsr_status tsr_compensate_tune_load(struct tsr_compensate_tune_table *t, const char *path,
                                    struct tsr_err *err);
tsr_status tsr_compensate_tune_parse(struct tsr_compensate_tune_table *t, const char *name,
                                     const char *text, uint64_t len, struct tsr_err *err);
void       tsr_compensate_tune_free(struct tsr_compensate_tune_table *t);

#endif
