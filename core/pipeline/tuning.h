/* pipeline/tuning.h - tables of times from a running model, and plans with what was tuned. */
#ifndef TSR_PIPELINE_TUNING_H
#define TSR_PIPELINE_TUNING_H

#include "compensate/compensation.h"
#include "compensate/tune.h"
#include "engine/engine.h"

#include <jansson.h>

/* Measures the four kinds of linears of a packed model with residuals `c` on its default device: one row, the
 * pool's threads, k at powers of two and straight lines between.  t is freed by tsr_tune_free(). */
tsr_status tsr_tuning_measure(struct tsr_tune_table *t, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_overlay *o,
                              const struct tsr_compensation *c, uint32_t act, uint32_t repeats,
                              struct tsr_err *err);
/* Seconds of a decoded token, without compensation and with it. */
struct tsr_tuning_decoded {
    double bare, with;
};
/* `tokens` single tokens in slot 0 of an engine whose compensation has room for k, `repeats` passes of each in turn,
 * the fastest counts.  k stays set. */
tsr_status tsr_tuning_decode(struct tsr_engine *e, uint64_t vocab, const uint32_t (*k)[TSR_SITES],
                             uint32_t tokens, uint32_t repeats, struct tsr_tuning_decoded *d,
                             struct tsr_err *err);
/* The table as a file's JSON; NULL when out of memory. */
json_t *tsr_tuning_table_json(const struct tsr_tune_table *t);

/* TSR_E_INPUT in one sentence where the table `what` was measured on other linears than the model's: none of "qkv",
 * "o", "gate_up", "down", or one of them twice, other shapes, weights of other bits (more than 1 % off: metadata may be
 * left out of neither) or residuals of other bits; what the table does not say is not compared. */
tsr_status tsr_tuning_fits(const struct tsr_tune_table *t, const char *what,
                           const struct tsr_model *m, const struct tsr_overlay *o,
                           const struct tsr_compensation *c, struct tsr_err *err);
/* The k of each site from the four kinds of a result, by name; the table fits. */
void tsr_tuning_sites(const struct tsr_tune_table *t, const struct tsr_tune_result *r,
                      uint32_t k[TSR_SITES]);
/* Share of the expected squared error of all sites' outputs that is left when a static choice of the k most
 * important channels is added back; a choice by token leaves less. */
double tsr_tuning_lost(const struct tsr_compensation *c, const uint32_t k[TSR_SITES]);

/* A plan with compensation: of `from` (a plan file, its compensation replaced) or, NULL, one that keeps all layers
 * as they are.  Written as JSON, which YAML reads. */
tsr_status tsr_tuning_write(const char *path, const char *from, const struct tsr_model *m,
                            const struct tsr_compensation *c, const uint32_t k[TSR_SITES],
                            double slower, struct tsr_err *err);

#endif
