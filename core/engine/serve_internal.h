/* engine/serve_internal.h - what the files serve*.c share: one request in its slot. */
#ifndef TSR_ENGINE_SERVE_INTERNAL_H
#define TSR_ENGINE_SERVE_INTERNAL_H

#include "engine/drafter.h"
#include "engine/sampler.h"
#include "engine/serve.h"

struct tsr_engine_serve_slot {
    bool                            used;
    bool                            fresh; /* its prompt is not in the cache, or not all of it */
    bool                            alone; /* its prompt runs in a separate batch */
    bool                            cancelled;
    struct tsr_engine_serve_request q;       /* prompt is in ids; stop points to ours */
    bool                            running; /* it is in the batch of prompts */
    bool                            apart;   /* what others have could not be copied */
    bool                            missed;  /* a draft in the batch was not what was drawn */
    bool                            plain;   /* it has no drafts any more */
    uint64_t                        fed;     /* ids in the cache */
    uint64_t                   known; /* ids of it when the batch was made; its drafts follow */
    uint32_t                   drafts, drafted[TSR_ENGINE_DRAFT_MOST]; /* of them */
    struct tsr_engine_draft    draft;
    struct tsr_tokenizer_ids   ids;   /* prompt, then new tokens */
    struct tsr_engine_chain    chain; /* its samplers */
    struct tsr_tokenizer_text  stop;  /* the stop strings, one after the other */
    uint64_t                  *stop_bytes;
    uint64_t                   longest_stop;
    struct tsr_detok          *detok;
    struct tsr_tokenizer_text  text;
    uint64_t                   echoed;   /* bytes of text that are the prompt's */
    struct tsr_engine_logprob *logprobs; /* per token: its own, then the best */
    uint64_t                   n_logprobs, cap_logprobs;
    enum tsr_finish            finish;
    tsr_status                 status;
    char                      *error;
};

/* An empty slot takes a request; on an error it is freed by the caller. */
tsr_status tsr_engine_slot_fill(struct tsr_engine_serve_slot          *s,
                                const struct tsr_engine_serve_request *q, uint64_t vocab,
                                struct tsr_err *err);
void       tsr_engine_slot_free(struct tsr_engine_serve_slot *s);
void       tsr_engine_slot_fail(struct tsr_engine_serve_slot *s, tsr_status st, const char *why);
void       tsr_engine_slot_result(struct tsr_engine_serve_slot *s, struct tsr_engine_served *r);
/* Whether the logits of position `at` of the ids give a logprob of the prompt. */
bool tsr_engine_slot_scores(const struct tsr_engine_serve_slot *s, uint64_t at);
/* Ids that run before the first new token: the last id of a prompt without new tokens need not. */
uint64_t tsr_engine_slot_inputs(const struct tsr_engine_serve_slot *s);
/* The logprob at place `at` of the request's, from logits [vocab].  Places are filled in order; one that is there
 * is written again. */
tsr_status tsr_engine_slot_logprob(struct tsr_engine_serve_slot *s, uint64_t at,
                                   const float *logits, uint64_t vocab, uint32_t id,
                                   struct tsr_err *err);
/* The rest of the text, when no token follows. */
tsr_status tsr_engine_slot_end_text(struct tsr_engine_serve_slot *s, struct tsr_err *err);
/* The next token from logits [vocab]; *over: the request is done.  drawn: the token if it is known, and there are no
 * logits; or NULL. */
tsr_status tsr_engine_slot_advance(struct tsr_engine_serve_slot *s, const struct tsr_engine_pass *p,
                                   const struct tsr_engine_serve_events *ev, const float *logits,
                                   const uint32_t *drawn, void *scratch, bool *over,
                                   struct tsr_err *err);
/* How many of the best tokens the next token takes, as tsr_engine_candidates(); 0: it takes the logits. */
uint32_t tsr_engine_slot_candidates(const struct tsr_engine_serve_slot *s, uint64_t vocab,
                                    float *inverse);
/* The next token from the n best; false: the logits decide. */
bool tsr_engine_slot_draw(const struct tsr_engine_serve_slot *s, uint64_t vocab,
                          const struct tsr_candidate *best, uint32_t n, double sum, uint32_t *id);

/* ---- serve_cache.c: what slots keep ------------------------------------------
 *
 *   choose a slot for a prompt -> take what it has of the prompt -> the request runs -> keep its ids
 *
 * Only a pass with rewind() has such a cache, and only bits that a prompt without it would have are taken.  Its size is
 * that of the slots. */

struct tsr_engine_serve_held {
    struct tsr_tokenizer_ids
             ids;  /* in the slot's cache while no request has it; none: it is empty */
    uint64_t last; /* when a request left it */
};
struct tsr_engine_serve_cache {
    struct tsr_engine_serve_held *held; /* [pass.slots]; NULL: a pass without rewind() */
    uint64_t                      now, reused;
};

/* A free slot: the one with the most of the prompt; where that is less than half of what it has, rather an empty one;
 * else the one that was left first.  There is one. */
uint32_t tsr_engine_serve_cache_choose(const struct tsr_engine_serve_cache   *c,
                                       const struct tsr_engine_pass          *p,
                                       const struct tsr_engine_serve_slot    *slots,
                                       const struct tsr_engine_serve_request *q);
/* Leaves in the slot what it has of the prompt; how many ids that are. */
uint64_t tsr_engine_serve_cache_take(struct tsr_engine_serve_cache *c,
                                     const struct tsr_engine_pass *p, uint32_t slot,
                                     const struct tsr_engine_serve_request *q);
/* The request of the slot is over.  Takes its ids up to what the slot has. */
void tsr_engine_serve_cache_keep(struct tsr_engine_serve_cache *c, const struct tsr_engine_pass *p,
                                 uint32_t slot, struct tsr_engine_serve_slot *s);
void tsr_engine_serve_cache_free(struct tsr_engine_serve_cache *c, uint32_t slots);

/* ---- serve_best.c: passes that give the best tokens in place of logits --------- */

struct tsr_engine_slot_set {
    struct tsr_engine_token *batch;
    uint64_t                 n, cap;
    float                   *logits; /* [rows, vocab] */
    uint64_t                 rows;   /* room for; at least the slots of the slot set */
    uint64_t                 wanted; /* rows of the batch */
    uint32_t                *drawn;  /* [rows] next tokens; TSR_SAMPLER_NONE: to be drawn */
    uint64_t                 drafts; /* ids of the batch that are drafts */
    double                   loss;   /* seconds that they lose at most, as planned */
    /* In place of logits, of a pass with start_best(); by row of the batch */
    struct tsr_engine_best best;
    float                 *inverse;
    bool                   is_best; /* the batch in flight, or the last one */
    bool                   busy;    /* in flight */
    bool                   prompts;
    uint64_t               order;        /* of its start */
    double                 since, begun; /* with the making of drafts, and without */
};

/* Room for the best tokens of a row of each slot, if the pass gives them. */
tsr_status tsr_engine_serve_best_make(const struct tsr_engine_pass *p,
                                      struct tsr_engine_slot_set *l, struct tsr_err *err);
void       tsr_engine_serve_best_free(struct tsr_engine_slot_set *l);
/* Whether every wanted row of the batch gives the next token of a request that takes its best tokens alone. */
bool tsr_engine_serve_best_takes(const struct tsr_engine_pass       *p,
                                 const struct tsr_engine_serve_slot *slots,
                                 struct tsr_engine_slot_set         *l);

struct tsr_server;

/* ---- serve_draw.c: the draws of a batch, by several threads ---------------------- */

#define TSR_ENGINE_DRAWERS 8u /* at most; each has scratch for the vocabulary */

tsr_status tsr_engine_serve_draw_make(struct tsr_server *s, struct tsr_err *err);
/* l->drawn of a batch whose logits are there; each is the token that tsr_engine_chain_next() gives.  [worker] */
void tsr_engine_serve_draw(struct tsr_server *s, struct tsr_engine_slot_set *l);

/* A slot whose prompt begins like what another one has gets that copied. */
tsr_status tsr_engine_serve_cache_share(struct tsr_server *s, uint32_t slot, struct tsr_err *err);
/* Whether a slot before this one, of the prompts that run now, will have much of its prompt. */
bool tsr_engine_serve_cache_waits(const struct tsr_server *s, uint32_t slot);

struct tsr_server {
    struct tsr_engine_pass         pass;
    struct tsr_engine_serve_events events;
    struct tsr_engine_serve_slot  *slots; /* [pass.slots] */
    struct tsr_engine_serve_cache  cache; /* what free slots have */
    struct tsr_engine_slot_set    *slot_sets;
    struct {
        struct tsr_engine_drafter      *by; /* pass.drafter, or the lookup */
        struct tsr_engine_draft_lookup  lookup;
        struct tsr_engine_draft_pace    pace;
        struct tsr_engine_drafted       counts;
        struct tsr_engine_draft_account account;
    } drafts;
    uint32_t                          busy;
    uint64_t                          starts;
    void                             *scratch; /* of tsr_engine_draw, for each drawer */
    uint32_t                          drawers; /* threads that draw at once */
    struct tsr_engine_generate_timing time;
};

/* The next batch of a slot set; empty when it has nothing to run. */
tsr_status tsr_engine_serve_gather(struct tsr_server *s, uint32_t slot_set, struct tsr_err *err);

/* ---- serve_draft.c: drafts behind the newest tokens (engine/draft.h) ---------- */

/* Makes the draft of each request of the slot set for the batch that begins: slot.drafts ids in slot.drafted. */
tsr_status tsr_engine_serve_draft_plan(struct tsr_server *s, uint32_t slot_set,
                                       struct tsr_err *err);
/* The draft of a slot behind its ids in the batch, which has room. */
void tsr_engine_serve_draft_put(struct tsr_server *s, struct tsr_engine_slot_set *l, uint32_t slot);
/* The batch has run: whether its token i is one of its sequence.  Called for each token, in order. */
bool tsr_engine_serve_draft_follows(struct tsr_server *s, const struct tsr_engine_slot_set *l,
                                    uint64_t i);
/* The cache forgets what was drafted and not drawn. */
void tsr_engine_serve_draft_end(struct tsr_server *s, uint32_t slot_set);

#endif
