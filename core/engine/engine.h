/* engine/engine.h - the forward pass: tokens in, logits out, through a backend.
 *
 *   engine = model + overlay + backend + cache;   batch of tokens -> logits
 *
 * A batch is any mix of tokens of any sequences, prompts and single steps alike, without
 * padding.  By docs/decisions/numerics.md a token's logits depend on its own sequence alone:
 * not on chunking, neighbours, threads or instruction set.
 */
#ifndef TSR_ENGINE_ENGINE_H
#define TSR_ENGINE_ENGINE_H

#include "base/err.h"
#include "model/model.h"
#include "plugin/registry.h"
#include "quant/quant.h"
#include "tessera/backend.h"

struct tsr_engine;

struct tsr_engine_options {
    const char *backend;  /* component name; NULL: "cpu" */
    uint32_t    act;      /* TSR_ACT_* for packed weights; others use F32 */
    uint32_t    kv_dtype; /* TSR_F32, TSR_F16 or TSR_I8 */
    uint32_t    slots;    /* sequences resident at once, >= 1 */
    uint64_t    context;  /* positions per slot; 0: the model's maximum */
    uint64_t    chunk;    /* most tokens per forward; longer batches are cut; 0: 512 */
};

/* The model and overlay must outlive the engine.  [setup] */
tsr_status tsr_engine_create(struct tsr_engine **e, struct tsr_registry *r,
                             const struct tsr_model *m, const struct tsr_overlay *o,
                             const struct tsr_engine_options *opt, struct tsr_err *err);
void       tsr_engine_destroy(struct tsr_engine *e);

/* Bytes of weights and of cache on the device. */
void tsr_engine_memory(const struct tsr_engine *e, uint64_t *weights, uint64_t *cache);
/* How many packed linears run with each TSR_ACT_*: formats without integers take F32 under a8. */
void                    tsr_engine_acts(const struct tsr_engine *e, uint64_t linears[3]);
uint64_t                tsr_engine_context(const struct tsr_engine *e);
uint32_t                tsr_engine_slots(const struct tsr_engine *e);
uint64_t                tsr_engine_vocab(const struct tsr_engine *e);
const struct tsr_model *tsr_engine_model(const struct tsr_engine *e);
const char             *tsr_engine_device(const struct tsr_engine *e);

/* One token of a batch.  Positions of a slot must follow on each other from 0; a slot is
 * emptied by tsr_engine_reset(). */
struct tsr_token {
    uint32_t id;
    uint32_t slot;
    bool     logits; /* wanted for this token */
};

/* Runs n tokens; logits [wanted, vocab] F32, in order, into host memory.  Tokens of one slot
 * stand in order.  A full slot is TSR_E_INPUT; a non-finite logit is TSR_E_NUMERIC naming
 * slot and position.  After an error the slots of the batch must be reset.  [worker] */
tsr_status tsr_engine_forward(struct tsr_engine *e, const struct tsr_token *tokens, uint64_t n,
                              float *logits, struct tsr_err *err);
uint64_t   tsr_engine_length(const struct tsr_engine *e, uint32_t slot);
void       tsr_engine_reset(struct tsr_engine *e, uint32_t slot);

/* Sees the input of every linear site of every layer during forward: x is [n, cols] F32 in
 * host memory, rows of `tokens[first..]`.  NULL ends it. */
typedef tsr_status (*tsr_tap)(void *ctx, uint64_t layer, enum tsr_site site, const float *x,
                              uint64_t n, uint64_t cols, struct tsr_err *err);
void tsr_engine_set_tap(struct tsr_engine *e, tsr_tap tap, void *ctx);

/* ---- sampling ----------------------------------------------------------- */

struct tsr_sampling {
    double   temperature;        /* 0: greedy */
    uint64_t top_k;              /* 0: all */
    double   top_p;              /* 1: all */
    double   repetition_penalty; /* 1: none */
    uint64_t seed;
};

/* The next id from logits [vocab].  history: all ids so far, for the penalty.  Ties go to the
 * lowest id.  The same (seed, record, index) always draws the same number.  The steps are
 * penalty, temperature, top-k, top-p, draw; with top_k the softmax is over the k best, and top-p
 * keeps the fewest that hold top_p of it, at least one.  scratch: vocab entries of 16 bytes,
 * aligned to 8, or NULL to allocate.  Values out of range are TSR_E_CONFIG.  [any] */
tsr_status tsr_sample(const float *logits, uint64_t vocab, const struct tsr_sampling *s,
                      const uint32_t *history, uint64_t n_history, uint64_t record, uint64_t index,
                      void *scratch, uint32_t *id, struct tsr_err *err);

/* One request of tsr_generate(). */
struct tsr_request {
    const uint32_t     *prompt;
    uint64_t            n_prompt;
    uint64_t            max_tokens;
    bool                ignore_eos;
    uint64_t            record; /* number for the random stream */
    struct tsr_sampling sampling;
    /* Called for each new token; a non-OK status stops this request.  May be NULL. */
    tsr_status (*on_token)(void *ctx, uint64_t request, uint32_t id);
    void *ctx;
    /* out */
    uint32_t *tokens; /* [max_tokens], caller's */
    uint64_t  n_tokens;
    bool      stopped; /* an end-of-sequence token ended it (not in tokens) */
};
struct tsr_generate_timing {
    double   prefill_s, decode_s;
    uint64_t prefill_tokens, decode_tokens;
};
/* Runs all requests, as many at once as the engine has slots; a finished one's slot is
 * refilled at the next token.  An empty prompt, an id outside the vocabulary, and a request
 * that does not fit the context are TSR_E_INPUT before anything runs.  All slots are empty
 * afterwards.  timing may be NULL.  [worker] */
tsr_status tsr_generate(struct tsr_engine *e, struct tsr_request *reqs, uint64_t n,
                        struct tsr_generate_timing *timing, struct tsr_err *err);

#endif
