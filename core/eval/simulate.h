/* eval/simulate.h - tensor parallelism over a codec without the ranks: an engine's row-parallel linears
 * are split inside one process, their partial sums coded and added as a group of ranks does it
 * (comm/coder.h), so that quality can be measured without the machines.
 *
 *   open -> [calibrate, or states] -> tsr_eval_tp_split() into an engine's options -> close
 */
#ifndef TSR_EVAL_SIMULATE_H
#define TSR_EVAL_SIMULATE_H

#include "comm/coder.h"
#include "engine/engine.h"

struct tsr_eval_tp_options {
    uint32_t                ranks; /* 2 to TSR_ENGINE_SPLIT_MAX */
    const char             *codec; /* "mx:block=16"; NULL or "": plain F32 */
    enum tsr_comm_algorithm algorithm;
    /* frozen calibration, as tsr_eval_tp_save() gave it; NULL: none */
    const struct tsr_comm_state *states;
    uint64_t                     n_states;
};

struct tsr_tp;

/* TSR_E_INPUT for a codec, options or states that do not fit.  [setup] */
tsr_status tsr_eval_tp_open(struct tsr_tp **t, struct tsr_registry *r,
                            const struct tsr_eval_tp_options *o, struct tsr_err *err);
void       tsr_eval_tp_close(struct tsr_tp *t); /* NULL is allowed */

/* True if the codec must be calibrated before it can send. */
bool tsr_eval_tp_needs(const struct tsr_tp *t);

/* Runs `sequences` sequences of seqlen ids each with exact sums, passes the codec the messages that
 * would be sent, and freezes it.  eo: backend and kinds of numbers; slots, context, chunk and split are
 * set here. */
tsr_status tsr_eval_tp_calibrate(struct tsr_tp *t, struct tsr_registry *r,
                                 const struct tsr_model *m, const struct tsr_model_overlay *o,
                                 const struct tsr_engine_options *eo, const uint32_t *ids,
                                 uint64_t sequences, uint64_t seqlen, struct tsr_err *err);
/* Fresh states of every instance; both are the caller's: tsr_eval_tp_states_free(). */
tsr_status tsr_eval_tp_save(const struct tsr_tp *t, struct tsr_comm_state **states, uint64_t *n,
                            struct tsr_err *err);
void       tsr_eval_tp_states_free(struct tsr_comm_state *states, uint64_t n);

/* For an engine; lives as long as t. */
const struct tsr_engine_split *tsr_eval_tp_split(const struct tsr_tp *t);

/* "mx:block=16", as it was given; "plain" for none. */
const char *tsr_eval_tp_codec(const struct tsr_tp *t);
uint32_t    tsr_eval_tp_ranks(const struct tsr_tp *t);
const char *tsr_eval_tp_algorithm(const struct tsr_tp *t);
bool        tsr_eval_tp_exact(const struct tsr_tp *t);
/* Refuses a codec that requires the order of its messages, for measurements that run in another order than the
 * text's: TSR_E_INPUT, "WHAT do not keep the order ...". */
tsr_status tsr_eval_tp_any_order(const struct tsr_tp *t, const char *what, struct tsr_err *err);
/* Bytes that the codec's states have now. */
uint64_t tsr_eval_tp_state_bytes(const struct tsr_tp *t);
/* Wire bits for each number of one row of cols, by the first hop's messages; NAN if the codec does not support
 * it. */
double tsr_eval_tp_bits(const struct tsr_tp *t, uint64_t rows, uint64_t cols);

#endif
