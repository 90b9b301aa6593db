/* compensated.h - an engine with compensation: residuals without a file, and a script of mixed batches that it runs. */
#ifndef TSR_TEST_COMPENSATED_H
#define TSR_TEST_COMPENSATED_H

#include "golden.h"

#include "compensate/compensation.h"

#define COMPENSATED_SLOTS 3u
#define COMPENSATED_STEPS 4u
#define COMPENSATED_MOST  24u /* tokens of a step */

/* One thread, and three; a plugin file, or NULL. */
extern struct tsr_registry *compensated_registry, *compensated_threaded;
extern const char          *compensated_vault;
int                         compensated_set_up(void **state);
int                         compensated_tear_down(void **state);

/* Of the bits, for every packed linear, with profiles of the inputs; those of every other layer joined. */
const struct tsr_compensation *compensated_residuals(const struct tsr_model         *m,
                                                     const struct tsr_model_overlay *o,
                                                     uint32_t                        bits);
void compensated_residuals_free(const struct tsr_model *m, const struct tsr_compensation *c);

struct compensated_script {
    struct tsr_engine_token token[COMPENSATED_STEPS][COMPENSATED_MOST];
    uint64_t                n[COMPENSATED_STEPS], wanted[COMPENSATED_STEPS], logits;
};
/* Prompts in pieces, then single tokens, which count as generated. */
struct compensated_script compensated_write_script(uint64_t vocab);
/* All logits, fresh memory; destroys e. */
float             *compensated_run_script(struct tsr_engine *e, const struct compensated_script *s);
struct tsr_engine *compensated_engine(struct tsr_registry *r, const struct tsr_model *m,
                                      const struct tsr_model_overlay     *o,
                                      const struct tsr_engine_compensate *c, uint64_t chunk,
                                      const char *backend);

#endif
