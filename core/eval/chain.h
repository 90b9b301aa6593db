/* eval/chain.h - a model in stages, one engine each, in one process: what a plan's ranks compute, without the ranks.
 *
 * Hidden rows go from stage to stage through the links' codecs.  Sums inside a stage are those of its engine's split
 * (eval/simulate.h).
 */
#ifndef TSR_EVAL_CHAIN_H
#define TSR_EVAL_CHAIN_H

#include "engine/engine.h"
#include "eval/link.h"

struct tsr_eval_chain_stage {
    struct tsr_engine
            *engine; /* layers [.., end) of one slot; the first embeds, the last has the head */
    uint64_t end;
    bool     sends; /* link is open; of the last stage: rows go back to a head elsewhere */
    struct tsr_eval_link link;
};

struct tsr_eval_chain {
    struct tsr_eval_chain_stage *stages;
    uint64_t                     n;
    float                       *rows, *wanted; /* [capacity, hidden] */
    uint64_t                     capacity;
};

/* n stages, to be filled by the caller.  [setup] */
tsr_status tsr_eval_chain_create(struct tsr_eval_chain **c, uint64_t n, struct tsr_err *err);
void tsr_eval_chain_destroy(struct tsr_eval_chain *c); /* with engines and links; NULL is allowed */
void tsr_eval_chain_reset(struct tsr_eval_chain *c);
/* As tsr_engine_forward() for the whole.  [worker] */
tsr_status tsr_eval_chain_forward(struct tsr_eval_chain *c, const struct tsr_engine_token *tokens,
                                  uint64_t n, float *logits, struct tsr_err *err);
/* The shortest context of a stage.  [any] */
uint64_t tsr_eval_chain_context(const struct tsr_eval_chain *c);
uint64_t tsr_eval_chain_vocab(const struct tsr_eval_chain *c);

#endif
