/* engine/drafter.h - what makes drafts: the text so far (draft.h), or another model (draft_model.c).
 *
 *   requests that may have a draft -> what they gain and take, by length -> the length that gains time -> drafts
 *
 * Nothing that a drafter does changes an answer: the draw of each position decides which ids of a draft are right.
 */
#ifndef TSR_ENGINE_DRAFTER_H
#define TSR_ENGINE_DRAFTER_H

#include "engine/draft.h"
#include "engine/sampler.h"

/* A request in its slot that may have a draft.  Borrowed for one call. */
struct tsr_engine_draft_ask {
    uint32_t                          slot;
    const uint32_t                   *ids; /* [n], prompt and new ones */
    uint64_t                          n, n_prompt;
    uint64_t                          left; /* new tokens that may still come */
    const struct tsr_engine_sampling *sampling;
    uint64_t                          record;
    bool                              ignore_eos;
    struct tsr_engine_draft          *text; /* of the lookup; the slot's */
    uint64_t                          has;  /* ids in the drafter's cache; see() sets it */
    uint32_t                          most; /* ids that it can use */
    uint32_t                          want; /* ids to make; out: how many there are */
    uint32_t                         *out;  /* [want] */
};

/* Instances begin with it.  All calls are of the thread of the server.  [worker] */
struct tsr_engine_drafter {
    /* The requests have these ids now.  Sets most = 0 where there is nothing to offer. */
    void (*see)(struct tsr_engine_drafter *d, struct tsr_engine_draft_ask *a, uint64_t n);
    /* Ids of a draft of k behind request a that will be right. */
    double (*right)(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_ask *a,
                    uint32_t k);
    /* Seconds that it takes to make drafts of at most k for the n requests.  p: of the server's own passes. */
    double (*seconds)(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k);
    /* Optional: whether to make drafts of 2 that are not expected to gain time, to learn how many are right.  plain:
     * seconds of passes since the last call. */
    bool (*tries)(struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                  const struct tsr_engine_draft_ask *a, uint64_t n, double plain);
    /* Makes a[i].want ids for each, or fewer. */
    tsr_status (*make)(struct tsr_engine_drafter *d, const struct tsr_model_hparams *hp,
                       struct tsr_engine_draft_ask *a, uint64_t n, struct tsr_err *err);
    /* Optional: the first `right` ids of a draft were drawn; missed: and the next one was not. */
    void (*came)(struct tsr_engine_drafter *d, uint32_t right, bool missed);
    uint64_t bytes;  /* of memory: weights and cache */
    uint64_t tokens; /* that a model ran for drafts, and */
    double   took;   /* seconds of it */
};

/* How many ids of drafts to run behind each of n requests, at most a[i].most of the i-th and at most `limit`: what
 * gives the most tokens in the time, that of the drafter included; 0 where nothing is gained. */
uint32_t tsr_engine_draft_choose(const struct tsr_engine_draft_pace *p,
                                 const struct tsr_engine_drafter    *d,
                                 const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t limit);

/* The text so far: learns from all new ids, drafted or not. */
struct tsr_engine_draft_lookup {
    struct tsr_engine_drafter     base;
    struct tsr_engine_draft_pace *pace; /* whose hits it counts */
};
struct tsr_engine_drafter *tsr_engine_draft_lookup_start(struct tsr_engine_draft_lookup *l,
                                                         struct tsr_engine_draft_pace   *p);

/* ---- draft_model.c: another model, or the same in fewer bits -------------------------------------------- */

/* What the drafter is beside the model, until times are measured. */
struct tsr_engine_draft_size {
    double bytes; /* its weights over those of the model: what a token takes */
    double work;  /* its parameters over those of the model: what a token of a prompt takes */
};
/* Drafts of an engine of as many slots as the server's pass, which it empties, and which outlives it; vocab: of the
 * server's pass.  A draft has the draw of each position by the request's own seed and number, from the logits of
 * this engine, without the samplers of the request.  Ids that one of the two vocabularies lacks are not drafted.
 * TSR_E_UNSUPPORTED: a layer has a state.  An engine whose logits are not finite makes no more drafts, with a
 * warning.  [setup] */
tsr_status tsr_engine_draft_model_create(struct tsr_engine_drafter **d, struct tsr_engine *e,
                                         uint64_t vocab, const struct tsr_engine_draft_size *size,
                                         struct tsr_err *err);
void       tsr_engine_draft_model_destroy(struct tsr_engine_drafter *d); /* NULL is allowed */

#endif
