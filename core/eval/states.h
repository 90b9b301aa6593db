/* eval/states.h - the final hidden rows of a model, stored in a file.  A comparison recomputes the
 * logits from them, bit-identical, by running only the head.
 */
#ifndef TSR_EVAL_STATES_H
#define TSR_EVAL_STATES_H

#include "engine/engine.h"

/* ---- writing ---------------------------------------------------------------------- */

struct tsr_states_out;
/* Stores the n hidden rows that e computes logits from, until commit or abort.  The file is written
 * atomically. */
tsr_status tsr_eval_states_create(struct tsr_states_out **o, const char *path, struct tsr_engine *e,
                                  uint64_t n, struct tsr_err *err);
/* Frees o, also on error; other than n rows are TSR_E_BUG. */
tsr_status tsr_eval_states_commit(struct tsr_states_out *o, struct tsr_err *err);
void       tsr_eval_states_abort(struct tsr_states_out *o); /* NULL is allowed */

/* ---- reading ---------------------------------------------------------------------- */

struct tsr_states;
/* Opens a file of n rows of this model and puts its head on the model's backend.  The model must outlive it. */
tsr_status tsr_eval_states_open(struct tsr_states **s, const char *path, struct tsr_registry *r,
                                const struct tsr_model *m, const struct tsr_plugin_run_on *on,
                                uint64_t n, struct tsr_err *err);
void       tsr_eval_states_close(struct tsr_states *s); /* NULL is allowed */
uint64_t   tsr_eval_states_vocab(const struct tsr_states *s);
/* Logits [n, vocab] of rows [first, first + n), as the engine made them.  [worker] */
tsr_status tsr_eval_states_logits(struct tsr_states *s, uint64_t first, uint64_t n, float *logits,
                                  struct tsr_err *err);

#endif
