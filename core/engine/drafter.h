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
    struct tsr_engine_draft          *text;      /* of the lookup; the slot's */
    uint64_t                          from, has; /* ids [from, has) are in the drafter's cache */
    uint32_t                          most;      /* ids that it can use */
    uint32_t                          want;      /* ids to make; out: how many there are */
    uint32_t                         *out;       /* [want] */
};

/* Instances begin with it.  All calls are of the thread of the server.  [worker] */
struct tsr_engine_drafter {
    /* The requests have these ids now.  Sets from, has, and most = 0 where there is nothing to offer.  spare: seconds
     * that drafts may lose.  p: of the server's own passes. */
    void (*see)(struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                struct tsr_engine_draft_ask *a, uint64_t n, double spare);
    /* Ids of a draft of k behind request a that will be right. */
    double (*right)(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_ask *a,
                    uint32_t k);
    /* Seconds that it takes to make drafts of at most k for the n requests.  p: of the server's own passes.  most: all
     * of it, as long as it may take; else as expected, with what serves later drafts too spread over those. */
    double (*seconds)(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, bool most);
    /* Makes a[i].want ids for each, or fewer. */
    tsr_status (*make)(struct tsr_engine_drafter *d, const struct tsr_model_hparams *hp,
                       struct tsr_engine_draft_ask *a, uint64_t n, struct tsr_err *err);
    /* Optional: the first `right` ids of a draft were drawn; missed: and the next one was not. */
    void (*came)(struct tsr_engine_drafter *d, uint32_t right, bool missed);
    bool
        tries; /* right() learns from drafts that ran alone: some run that are not expected to gain time */
    uint64_t bytes;  /* of memory: weights and cache */
    uint64_t tokens; /* that a model ran for drafts, and */
    double   took;   /* seconds of it */
};

/* ---- what drafts may take -------------------------------------------------------------------------- */

/* Seconds of the passes of a server that may have drafts, over all its requests. */
struct tsr_engine_draft_account {
    double plain; /* that its tokens would take without drafts */
    double lost;  /* that they took beyond; below 0: gained */
    double tried; /* that tries may have lost */
};
/* Seconds that drafts may lose now: with what they have lost 2 % of the plain time, or one pass where that is more.  Drafts
 * that were chosen within it never make a text of 33 tokens or more slower than 0.97 of plain, however few are right,
 * where no pass takes longer than tsr_engine_draft_pass_most() and seconds() with `most` say. */
double tsr_engine_draft_spare(const struct tsr_engine_draft_account *c,
                              const struct tsr_engine_draft_pace *p, uint64_t n);
/* A pass of n requests, with drafts that were expected to lose at most `loss` or with none (0), brought so many tokens
 * in so many seconds, the making of drafts among them.  Call it after tsr_engine_draft_took(). */
void tsr_engine_draft_settle(struct tsr_engine_draft_account    *c,
                             const struct tsr_engine_draft_pace *p, uint64_t n, uint64_t tokens,
                             double seconds, double loss);

/* How many ids of drafts to run behind each of n requests, at most a[i].most of the i-th and at most `limit`: what
 * gives the most tokens in the time, that of the drafter included, of the lengths whose loss is spare if all ids are
 * wrong; 0 where nothing is gained.  A drafter that tries gets a try of one id for 1 % of the time.  *loss: seconds
 * that the drafts lose at most. */
uint32_t tsr_engine_draft_choose(const struct tsr_engine_draft_pace *p,
                                 const struct tsr_engine_drafter    *d,
                                 const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t limit,
                                 struct tsr_engine_draft_account *c, double *loss);

/* The text so far: learns from all new ids, drafted or not. */
struct tsr_engine_draft_lookup {
    struct tsr_engine_drafter     base;
    struct tsr_engine_draft_pace *pace; /* whose hits it counts */
};
struct tsr_engine_drafter *tsr_engine_draft_lookup_start(struct tsr_engine_draft_lookup *l,
                                                         struct tsr_engine_draft_pace   *p);

/* ---- draft_costs.c: what drafts of a model take and bring ------------------------------------------------ */

/* What the drafter is beside the model, until times are measured. */
struct tsr_engine_draft_size {
    double bytes; /* its weights over those of the model: what a token takes */
    double work;  /* its parameters over those of the model: what a token of a prompt takes */
};
#define TSR_ENGINE_DRAFT_LEAST   8u /* ids of a text that say something of what comes */
#define TSR_ENGINE_DRAFT_CLASSES 4u /* of places in a draft: 0, 1, 2 and 3, later ones */
struct tsr_engine_draft_costs {
    struct tsr_engine_draft_size size;
    double   hit[TSR_ENGINE_DRAFT_CLASSES]; /* part of the ids that came, where those before did */
    uint64_t ids[TSR_ENGINE_DRAFT_CLASSES];
    struct tsr_engine_draft_pace pace; /* of its own passes */
};
void tsr_engine_draft_costs_start(struct tsr_engine_draft_costs      *c,
                                  const struct tsr_engine_draft_size *size);
/* right(), seconds() and came() of a drafter. */
double tsr_engine_draft_costs_right(const struct tsr_engine_draft_costs *c, uint32_t k);
double tsr_engine_draft_costs_seconds(const struct tsr_engine_draft_costs *c,
                                      const struct tsr_engine_draft_pace  *p,
                                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k,
                                      bool most);
void   tsr_engine_draft_costs_came(struct tsr_engine_draft_costs *c, uint32_t right, bool missed);
/* Sets a->from and a->has.  The cache has the request's ids [from, has).  The ids that it lacks run for at most half of
 * `spare` seconds: all of them, or else as many as that is enough for, at least TSR_ENGINE_DRAFT_LEAST, as if the text began there.  A cache that began there is kept while it goes on, unless it has fewer than
 * 64 and all are possible. */
void tsr_engine_draft_costs_window(const struct tsr_engine_draft_costs *c,
                                   const struct tsr_engine_draft_pace  *p,
                                   struct tsr_engine_draft_ask *a, uint64_t from, uint64_t has,
                                   double spare);

/* ---- draft_model.c: another model, or the same in fewer bits -------------------------------------------- */

/* Drafts of an engine of as many slots as the server's pass, which it empties, and which outlives it; vocab: of the
 * server's pass.  Runs passes of 1 and of TSR_ENGINE_DRAFT_LEAST ids first, so that its times are known.  A draft has the draw of each position by the request's own seed and number, from the logits of
 * this engine, without the samplers of the request.  Ids that one of the two vocabularies lacks are not drafted.
 * TSR_E_UNSUPPORTED: a layer has a state.  An engine whose logits are not finite makes no more drafts, with a
 * warning.  [setup] */
tsr_status tsr_engine_draft_model_create(struct tsr_engine_drafter **d, struct tsr_engine *e,
                                         uint64_t vocab, const struct tsr_engine_draft_size *size,
                                         struct tsr_err *err);
void       tsr_engine_draft_model_destroy(struct tsr_engine_drafter *d); /* NULL is allowed */

#endif
