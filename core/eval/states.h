/* eval/states.h - the hidden rows from which a model's logits are made, kept in a file: whoever
 * compares with them makes the logits again at the price of the head alone, to the last bit.
 */
#ifndef TSR_EVAL_STATES_H
#define TSR_EVAL_STATES_H

#include "engine/engine.h"

/* ---- writing ---------------------------------------------------------------------- */

struct tsr_states_out;
/* n rows of what e makes logits of from now on, until commit or abort, which end it.  The file is
 * under its name when it is whole. */
tsr_status tsr_states_create(struct tsr_states_out **o, const char *path, struct tsr_engine *e,
                             uint64_t n, struct tsr_err *err);
/* Frees o, also on error; other than n rows are TSR_E_BUG. */
tsr_status tsr_states_commit(struct tsr_states_out *o, struct tsr_err *err);
void       tsr_states_abort(struct tsr_states_out *o); /* NULL is fine */

/* ---- reading ---------------------------------------------------------------------- */

struct tsr_states;
/* A file of n rows of this model, whose head is put on a device.  The model must outlive it. */
tsr_status tsr_states_open(struct tsr_states **s, const char *path, struct tsr_registry *r,
                           const struct tsr_model *m, uint64_t n, struct tsr_err *err);
void       tsr_states_close(struct tsr_states *s); /* NULL is fine */
uint64_t   tsr_states_vocab(const struct tsr_states *s);
/* Logits [n, vocab] of rows [first, first + n), as the engine made them.  [worker] */
tsr_status tsr_states_logits(struct tsr_states *s, uint64_t first, uint64_t n, float *logits,
                             struct tsr_err *err);

#endif
