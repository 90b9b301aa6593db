/* pipeline/steps/tuning.h - tables of times from a running model, and plans with the tuned compensation. */
#ifndef TSR_PIPELINE_STEPS_TUNING_H
#define TSR_PIPELINE_STEPS_TUNING_H

#include "compensate/compensation.h"
#include "compensate/tune.h"
#include "engine/engine.h"

struct tsr_pipeline_job;

/* Measures the four kinds of linears of a packed model with residuals `c` on `on`: one row, the
 * pool's threads, or where the device lets them be chosen numbers of thread blocks up to its most; k at powers of
 * two and straight lines between.  t is freed by tsr_compensate_tune_free(). */
tsr_status tsr_step_tuning_measure(struct tsr_compensate_tune_table *t, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   const struct tsr_compensation  *c,
                                   const struct tsr_plugin_run_on *on, uint32_t act,
                                   uint32_t repeats, struct tsr_err *err);
/* Seconds of a decoded token, without compensation and with it. */
struct tsr_step_tuning_decoded {
    double bare, with;
};
/* `tokens` single tokens in slot 0 of an engine whose compensation has room for k, `repeats` passes of each in turn,
 * the fastest counts.  k stays set. */
tsr_status tsr_step_tuning_decode(struct tsr_engine *e, uint64_t                 vocab,
                                  const uint32_t (*k)[TSR_MODEL_SITES], uint32_t tokens,
                                  uint32_t repeats, struct tsr_step_tuning_decoded *d,
                                  struct tsr_err *err);
/* Writes the table as a file of the job folder. */
tsr_status tsr_step_tuning_store(const struct tsr_compensate_tune_table *t,
                                 struct tsr_pipeline_job *job, const char *name,
                                 struct tsr_err *err);

/* TSR_E_INPUT if the table `what` was measured on other linears than the model's: none of "qkv", "o",
 * "gate_up", "down", a duplicate, other shapes, weights of other bits (more than 1 % off; both counts must
 * include metadata) or residuals of other bits. Values that the table omits are not compared. */
tsr_status tsr_step_tuning_fits(const struct tsr_compensate_tune_table *t, const char *what,
                                const struct tsr_model *m, const struct tsr_model_overlay *o,
                                const struct tsr_compensation *c, struct tsr_err *err);
/* The k of each site from the four kinds of a result, by name; the table fits. */
void tsr_step_tuning_sites(const struct tsr_compensate_tune_table  *t,
                           const struct tsr_compensate_tune_result *r, uint32_t k[TSR_MODEL_SITES]);
/* The same of the thread blocks; 0 where the table has one number, so that the device chooses. */
void tsr_step_tuning_blocks(const struct tsr_compensate_tune_table  *t,
                            const struct tsr_compensate_tune_result *r,
                            uint32_t                                 blocks[TSR_MODEL_SITES]);
/* Share of the expected squared error of all sites' outputs that is left when a static choice of the k most
 * important channels is added back; a choice by token leaves less. */
tsr_status tsr_step_tuning_lost(const struct tsr_compensation *c, const uint32_t k[TSR_MODEL_SITES],
                                double *lost, struct tsr_err *err);

/* Writes a plan with compensation: from `from` (a plan file, its compensation replaced) or, NULL, one that
 * keeps all layers unchanged. Written as JSON, which YAML reads. */
tsr_status tsr_step_tuning_write(const char *path, const char *from, const struct tsr_model *m,
                                 const struct tsr_compensation *c,
                                 const uint32_t                 k[TSR_MODEL_SITES],
                                 const uint32_t blocks[TSR_MODEL_SITES], double slower, double lost,
                                 struct tsr_err *err);

#endif
