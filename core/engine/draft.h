/* engine/draft.h - ids that probably come next, and how many of them are worth running.
 *
 *   ids of a sequence -> the longest end that it has had before -> what followed there: the draft
 *   draft behind the newest id -> one forward pass -> as many tokens as the draft has right, and one more
 *
 * A token's logits do not depend on what runs beside it (docs/decisions/numerics.md), and the draw of a token is fixed by
 * seed, record and number.  So drafts change when a token is computed, never which one.
 * Source: drafts checked by one pass, Leviathan, Kalman and Matias 2023 (arXiv:2211.17192), sections 2 and 3; drafts
 * from the text so far are known as prompt lookup.
 */
#ifndef TSR_ENGINE_DRAFT_H
#define TSR_ENGINE_DRAFT_H

#include "engine/engine.h"

#define TSR_ENGINE_DRAFT_ROWS 64u /* passes of more tokens have no drafts */

/* A sequence.  Zeroed: nothing is known. */
struct tsr_engine_draft {
    uint64_t from; /* place in the ids of what probably comes next; 0: none */
    uint64_t seen; /* ids that were looked at */
    uint64_t run;  /* ids before `from` that are those before the end */
};

/* What drafts were worth so far, over all sequences of a server. */
#define TSR_ENGINE_DRAFT_RUNS 4u /* classes of `run`: 2, 4, 8, 16 and more */
struct tsr_engine_draft_pace {
    double hit[TSR_ENGINE_DRAFT_RUNS]; /* part of the ids at `from` that came */
    struct {
        double   seconds; /* of a pass of so many tokens */
        uint64_t at;      /* number of the pass */
        uint32_t times;
    } pass[TSR_ENGINE_DRAFT_ROWS + 1];
    uint64_t passes;
    double   prompt; /* seconds of a token of a prompt; 0: not known */
};

void tsr_engine_draft_pace_start(struct tsr_engine_draft_pace *p);
/* Takes the ids [n] of a sequence: those of the call before, then new ones.  New ids update p->hit, those of the first
 * call do not. */
void tsr_engine_draft_see(struct tsr_engine_draft *d, struct tsr_engine_draft_pace *p,
                          const uint32_t *ids, uint64_t n);
/* The draft, at most `most` ids into out; returns how many.  Past the end of the ids it repeats itself. */
uint32_t tsr_engine_draft_take(const struct tsr_engine_draft *d, const uint32_t *ids, uint64_t n,
                               uint32_t most, uint32_t *out);
/* A pass of so many tokens took so long. */
void tsr_engine_draft_took(struct tsr_engine_draft_pace *p, uint64_t rows, double seconds);
/* Seconds of a pass of so many tokens, from those that are known; 0: none is known. */
double tsr_engine_draft_pass(const struct tsr_engine_draft_pace *p, uint64_t rows);
/* The most seconds of a pass of `rows` tokens, rows >= n, where one of n is known: as measured, or that of the nearest
 * smaller one and for each further token twice that of a prompt, at most its part of the pass of n. */
double tsr_engine_draft_pass_most(const struct tsr_engine_draft_pace *p, uint64_t n, uint64_t rows);
/* So many tokens of prompts took so long. */
void tsr_engine_draft_prompt_took(struct tsr_engine_draft_pace *p, uint64_t tokens, double seconds);

/* Whether a pass of so many tokens was measured lately. */
bool tsr_engine_draft_known(const struct tsr_engine_draft_pace *p, uint64_t rows);
/* Tokens of the largest pass to try: passes grow to twice the largest that was measured, at least `rows`. */
uint64_t tsr_engine_draft_largest(const struct tsr_engine_draft_pace *p, uint64_t rows);
/* Ids of a draft of n that will be right. */
double tsr_engine_draft_right(const struct tsr_engine_draft_pace *p,
                              const struct tsr_engine_draft *d, uint32_t n);

#endif
