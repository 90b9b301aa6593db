/* engine/serve.h - requests through the slots of a forward pass, one token at a time.
 *
 *   submit into a free slot -> step: prompts of new requests or one token of the others
 *                           -> events: a token, a finished request; its slot is free again
 *
 * What a request gets depends on itself alone (docs/decisions/numerics.md): not on the slot, the
 * neighbours or the moment.  The forward pass is a small table, so that an engine or a pipeline
 * of ranks can stand behind it.  Nothing here waits for more requests or starts a thread.
 */
#ifndef TSR_ENGINE_SERVE_H
#define TSR_ENGINE_SERVE_H

#include "engine/engine.h"
#include "model/tokenizer.h"

/* The forward pass behind a server.  A batch belongs to a lane; slot s is of lane s % lanes, and
 * each lane has at most one batch in flight.  start() runs or begins n tokens, as of
 * tsr_engine_forward(); tokens and logits [wanted, vocab] stay in place until finish() of that
 * lane has returned, and hold the result then.  Errors may come from either; a lane whose start()
 * failed is not finished.  reset() empties a slot whose lane has nothing in flight.  [worker] */
struct tsr_pass {
    void    *ctx;
    uint32_t slots, lanes; /* 1 <= lanes <= slots */
    uint64_t context, vocab;
    tsr_status (*start)(void *ctx, uint32_t lane, const struct tsr_token *tokens, uint64_t n,
                        float *logits, struct tsr_err *err);
    tsr_status (*finish)(void *ctx, uint32_t lane, struct tsr_err *err);
    void (*reset)(void *ctx, uint32_t slot);
    const struct tsr_hparams *hp; /* for the end-of-sequence ids */
};
/* One engine: one lane, start() does everything. */
void tsr_pass_engine(struct tsr_pass *p, struct tsr_engine *e);

#define TSR_MAX_LOGPROBS 20 /* alternatives of a token */

/* Everything is copied by submit but the tokenizer. */
struct tsr_serve_request {
    uint64_t            id; /* the caller's number, comes back in events */
    const uint32_t     *prompt;
    uint64_t            n_prompt;
    uint64_t            max_tokens; /* 0: done at once */
    bool                ignore_eos;
    uint64_t            record; /* number for the random stream */
    struct tsr_sampling sampling;
    /* Ends the text in front of the first of these; wants a tokenizer. */
    const char *const *stop;
    const uint64_t    *stop_bytes; /* their lengths */
    uint32_t           n_stop;
    /* NULL: no text is made */
    const struct tsr_tokenizer *tokenizer;
    bool                        logprobs; /* of the chosen tokens */
    uint32_t                    top;      /* and of this many best ones; <= TSR_MAX_LOGPROBS */
};

struct tsr_logprob {
    uint32_t id;
    double   value; /* natural logarithm of the softmax of the logits as the model gave them */
};

enum tsr_finish {
    TSR_FINISH_LENGTH, /* max_tokens */
    TSR_FINISH_EOS,    /* an end-of-sequence token (not in tokens) */
    TSR_FINISH_STOP,   /* a stop string (cut from the text; its tokens are in tokens) */
    TSR_FINISH_ENDED,  /* the token event, or tsr_server_cancel() */
    TSR_FINISH_FAILED, /* status and error say why; the other requests go on */
};

/* A finished request; valid during the event. */
struct tsr_served {
    uint64_t                  id;
    enum tsr_finish           finish;
    const uint32_t           *tokens;
    uint64_t                  n_prompt, n_tokens;
    const char               *text; /* UTF-8, not terminated; NULL without a tokenizer */
    uint64_t                  text_bytes;
    const struct tsr_logprob *logprobs; /* [n_tokens], or NULL */
    const struct tsr_logprob *tops;     /* [n_tokens][top], best first */
    uint32_t                  top;
    tsr_status                status;
    const char               *error;
};

/* token(): a non-OK status ends the request.  done(): a non-OK status is step's.  Either may be
 * NULL.  They may not call the server. */
struct tsr_serve_events {
    void *ctx;
    tsr_status (*token)(void *ctx, uint64_t id, uint32_t token);
    tsr_status (*done)(void *ctx, const struct tsr_served *r, struct tsr_err *err);
};

struct tsr_server;

/* The pass is copied and its ctx must outlive the server; all its slots are emptied.  [setup] */
tsr_status tsr_server_create(struct tsr_server **s, const struct tsr_pass *p,
                             const struct tsr_serve_events *ev, struct tsr_err *err);
/* Waits for what is in flight and empties the slots. */
void tsr_server_destroy(struct tsr_server *s);

/* Everything that can be wrong with a request before it runs: an empty prompt, an id outside the
 * vocabulary, prompt + max_tokens beyond the context are TSR_E_INPUT, sampling out of range
 * TSR_E_CONFIG.  Also called by submit. */
tsr_status tsr_server_check(const struct tsr_pass *p, const struct tsr_serve_request *q,
                            struct tsr_err *err);
/* Slots that are free now. */
uint32_t tsr_server_room(const struct tsr_server *s);
/* Requests that are not done. */
uint32_t tsr_server_busy(const struct tsr_server *s);
/* Takes a request into a free slot; without one TSR_E_INVAL.  It runs from the next step on.
 * [worker] */
tsr_status tsr_server_submit(struct tsr_server *s, const struct tsr_serve_request *q,
                             struct tsr_err *err);
/* Ends a request at its next token boundary, with its done event; an id that is not there is fine. */
void tsr_server_cancel(struct tsr_server *s, uint64_t id);
/* Begins a batch for every lane that has none and something to run, then finishes the oldest: new
 * requests' prompts together, else one token for each request of the lane.  A request whose
 * logits are not finite fails alone; its neighbours are run again without it.  Any other error is
 * returned, and the server can then only be destroyed.  Without requests: TSR_OK.  [worker] */
tsr_status tsr_server_step(struct tsr_server *s, struct tsr_err *err);
/* Time from the begin of a batch to its end, summed. */
const struct tsr_generate_timing *tsr_server_timing(const struct tsr_server *s);

#endif
