/* engine/serve.h - requests through the slots of a forward pass, one token at a time.
 *
 *   submit into a free slot -> step: prompts of new requests or one token of the others
 *                           -> events: a token, a finished request; its slot is free again
 *
 * The result of a request depends only on the request (docs/decisions/numerics.md): not on the
 * slot, the rest of the batch or the time.  The forward pass is a small function table, implemented
 * by an engine or a pipeline of ranks.  Nothing here waits for more requests or starts a thread.
 */
#ifndef TSR_ENGINE_SERVE_H
#define TSR_ENGINE_SERVE_H

#include "base/pool.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

struct tsr_engine_drafter;

/* The forward pass used by a server.  A batch belongs to a slot set; slot s is in slot set s % slot sets,
 * and each slot set has at most one batch in flight.  start() runs or begins n tokens, as of
 * tsr_engine_forward(); tokens and logits [wanted, vocab] stay valid until finish() of that slot set has
 * returned, and then hold the result.  Either may return errors; a slot set whose start() failed is not
 * finished.  reset() empties a slot whose slot set has nothing in flight.  [worker] */
struct tsr_engine_pass {
    void    *ctx;
    uint32_t slots, slot_sets; /* 1 <= slot sets <= slots */
    uint64_t context, vocab;
    tsr_status (*start)(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                        uint64_t n, float *logits, struct tsr_err *err);
    tsr_status (*finish)(void *ctx, uint32_t slot_set, struct tsr_err *err);
    void (*reset)(void *ctx, uint32_t slot);
    const struct tsr_model_hparams *hp; /* for the end-of-sequence ids */
    /* Optional: keeps the first `length` positions, at least 1, of a slot that has nothing in flight; returns how many of
     * them it keeps, as tsr_engine_rewind().  0: it cannot, and nothing has changed.  Drafts need it. */
    uint64_t (*rewind)(void *ctx, uint32_t slot, uint64_t length);
    /* With rewind(): a slot stays as it is when its request ends, until another one takes it: a prompt that begins
     * with its ids does not run them again. */
    bool keeps;
    /* Optional, with `keeps` and one slot set: as tsr_engine_copy(). */
    tsr_status (*copy)(void *ctx, uint32_t from, uint32_t to, uint64_t length, uint64_t *kept,
                       struct tsr_err *err);
    uint32_t
        at_once; /* requests that run at once, at most; 0: slots.  The other slots keep what they have */
    bool prompts; /* ids that were generated have other rows in the cache than those of a prompt */
    /* Optional: start() of a batch of at most best_tokens tokens with best_rows wanted rows, of which only the best tokens
     * come back (tsr_engine_forward_best()), and the logits of one of those rows until the next start(). */
    uint64_t best_rows, best_tokens;
    tsr_status (*start_best)(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                             uint64_t n, const struct tsr_engine_best *best, struct tsr_err *err);
    tsr_status (*best_logits)(void *ctx, uint64_t row, float *logits, struct tsr_err *err);
    /* What makes drafts (engine/drafter.h), of as many slots; outlives the server.  NULL: the text so far. */
    struct tsr_engine_drafter *drafter;
    struct tsr_pool
        *pool; /* draws the next tokens of several requests; NULL: the caller's thread does */
};
/* One engine: one slot set, start() does everything. */
void tsr_engine_pass_engine(struct tsr_engine_pass *p, struct tsr_engine *e);
/* Whether the rows that a sequence has in the cache are those of any longer one that begins with it, to the bit; else
 * *why says why not.  o: as the engine is created with.  [any] */
bool tsr_engine_reuses(const struct tsr_model_hparams *hp, const struct tsr_engine_options *o,
                       const char **why);
/* Whether some keys are in blocks, which go back to their borders only.  [any] */
tsr_status tsr_engine_has_blocks(uint64_t layers, const struct tsr_engine_options *o, bool *blocks,
                                 struct tsr_err *err);
/* Whether a sequence keeps any number of its first positions, whatever they are; else *why says why not.  [any] */
tsr_status tsr_engine_goes_back(const struct tsr_model_hparams  *hp,
                                const struct tsr_engine_options *o, const char **why,
                                struct tsr_err *err);
/* Whether a request of the server may have drafts: rows of a token are the same whatever runs beside it, and a sequence
 * forgets its newest positions; else *why says why not.  [any] */
bool tsr_engine_drafts(const struct tsr_model_hparams *hp, const struct tsr_engine_options *o,
                       const char **why);
/* The pass of an engine of `at_once` or more slots reuses them, where tsr_engine_reuses(). */
void tsr_engine_pass_reuse(struct tsr_engine_pass *p, const struct tsr_engine_options *o,
                           uint32_t at_once);

#define TSR_ENGINE_MAX_LOGPROBS 20 /* alternatives of a token */

/* Everything is copied by submit but the tokenizer. */
struct tsr_engine_serve_request {
    uint64_t                   id; /* the caller's number, comes back in events */
    const uint32_t            *prompt;
    uint64_t                   n_prompt;
    uint64_t                   max_tokens; /* 0: done at once */
    bool                       ignore_eos;
    uint64_t                   record; /* number for the random stream */
    struct tsr_engine_sampling sampling;
    /* Run before the draw; the server holds them as long as the request runs.  NULL: none */
    struct tsr_engine_samplers *samplers;
    /* Ends the text before the first of these; needs a tokenizer. */
    const char *const *stop;
    const uint64_t    *stop_bytes; /* their lengths */
    uint32_t           n_stop;
    /* NULL: no text is made */
    const struct tsr_tokenizer *tokenizer;
    bool                        logprobs; /* of the chosen tokens */
    uint32_t                    top; /* and of this many best ones; <= TSR_ENGINE_MAX_LOGPROBS */
    /* Needs logprobs: also of the prompt's tokens, from the second on, and of an end-of-sequence token that
     * ends the request.  The prompt runs in pieces of at most TSR_ENGINE_SCORE_BYTES of logits. */
    bool prompt_logprobs;
    /* Ids of a draft that run behind its newest one, at most; 0: none; TSR_ENGINE_DRAFT_CHOSEN: as many as gain time.
     * Only where tsr_engine_drafts(). */
    uint32_t draft;
    bool     echo;  /* text begins with that of the prompt, special tokens included */
    bool     grows; /* its grown events are wanted */
};

/* Logits that the prompts of one batch take for logprobs, at most; a rotary scaling that depends on the length
 * takes the whole prompt at once. */
#define TSR_ENGINE_SCORE_BYTES (UINT64_C(64) << 20)

struct tsr_engine_logprob {
    uint32_t id;
    double   value; /* natural logarithm of the softmax of the logits as the model gave them */
};

enum tsr_finish {
    TSR_ENGINE_FINISH_LENGTH, /* max_tokens */
    TSR_ENGINE_FINISH_EOS,    /* an end-of-sequence token (not in tokens) */
    TSR_ENGINE_FINISH_STOP,   /* a stop string (cut from the text; its tokens are in tokens) */
    TSR_ENGINE_FINISH_ENDED,  /* the token event, or tsr_engine_server_cancel() */
    TSR_ENGINE_FINISH_FAILED, /* status and error say why; the other requests go on */
};

/* A finished request; valid during the event. */
struct tsr_engine_served {
    uint64_t        id;
    enum tsr_finish finish;
    const uint32_t *prompt, *tokens; /* [n_prompt], [n_tokens] */
    uint64_t        n_prompt, n_tokens;
    const char     *text; /* UTF-8, not terminated; NULL without a tokenizer */
    uint64_t        text_bytes;
    /* [n_logprobs], or NULL: of tokens, with prompt_logprobs in the order prompt, tokens, end of sequence */
    const struct tsr_engine_logprob *logprobs;
    const struct tsr_engine_logprob *tops; /* [n_logprobs][top], best first */
    uint64_t                         n_logprobs;
    uint32_t                         top;
    tsr_status                       status;
    const char                      *error;
};

/* token(): a non-OK status ends the request.  grown(): a request that wants it has one more token and goes on; r is as
 * of done(), and text is what no stop string can cut any more, in whole characters.  done(), grown(): step() returns a
 * non-OK status.  Each may be NULL.  They must not call the server. */
struct tsr_engine_serve_events {
    void *ctx;
    tsr_status (*token)(void *ctx, uint64_t id, uint32_t token);
    tsr_status (*grown)(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err);
    tsr_status (*done)(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err);
};

struct tsr_server;

/* The pass is copied and its ctx must outlive the server; all its slots are emptied.  [setup] */
tsr_status tsr_engine_server_create(struct tsr_server **s, const struct tsr_engine_pass *p,
                                    const struct tsr_engine_serve_events *ev, struct tsr_err *err);
/* Waits for batches in flight and empties the slots. */
void tsr_engine_server_destroy(struct tsr_server *s);

/* Everything that can be wrong with a request before it runs: an empty prompt, an id outside the
 * vocabulary, prompt + max_tokens beyond the context are TSR_E_INPUT, sampling out of range
 * TSR_E_CONFIG.  Also called by submit. */
tsr_status tsr_engine_server_check(const struct tsr_engine_pass          *p,
                                   const struct tsr_engine_serve_request *q, struct tsr_err *err);
/* Requests that it takes now. */
uint32_t tsr_engine_server_room(const struct tsr_server *s);
/* Requests that are not done. */
uint32_t tsr_engine_server_busy(const struct tsr_server *s);
/* Takes a request into a free slot, the one with the longest beginning of its prompt; without one TSR_E_INVAL.  It runs from the next step on.
 * [worker] */
tsr_status tsr_engine_server_submit(struct tsr_server *s, const struct tsr_engine_serve_request *q,
                                    struct tsr_err *err);
/* Ends a request before its next batch, or at its next token where one is in flight, with its done event; an unknown id
 * is allowed. */
void tsr_engine_server_cancel(struct tsr_server *s, uint64_t id);
/* Begins a batch for every slot set that has none and something to run, then finishes the oldest: new
 * requests' prompts together, else one token for each request of the slot set.  A request whose
 * logits are not finite fails alone; its neighbours are run again without it.  Any other error is
 * returned, and the server can then only be destroyed.  Without requests: TSR_OK.  [worker] */
tsr_status tsr_engine_server_step(struct tsr_server *s, struct tsr_err *err);
/* Tokens of prompts that did not run since the slot, or another one, had them. */
uint64_t tsr_engine_server_reused(const struct tsr_server *s);
/* Ids of drafts that ran, and how many of them were drawn. */
const struct tsr_engine_drafted *tsr_engine_server_drafted(const struct tsr_server *s);
/* Time from the begin of a batch to its end, summed. */
const struct tsr_engine_generate_timing *tsr_engine_server_timing(const struct tsr_server *s);

#endif
