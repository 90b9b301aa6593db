/* plan/cost/workload.h - the workload: lengths, batch, chunks.
 *
 *   workload: {prompt: 512, generate: 100, batch: 32}
 *   workload: {from: prompts.jsonl, generate: 100, batch: 64, chunk: 2048, concurrency: 32}
 */
#ifndef TSR_PLAN_COST_WORKLOAD_H
#define TSR_PLAN_COST_WORKLOAD_H

#include "config/config.h"
#include "tokenizer/tokenizer.h"

/* Lengths that occur, ascending, with how often. */
struct tsr_plan_lengths {
    uint64_t *length, *count;
    uint64_t  n, total; /* total: sum of the counts */
};

struct tsr_plan_workload {
    struct tsr_plan_lengths prompt, generate; /* tokens */
    uint64_t                batch;            /* requests of one batch */
    uint64_t                concurrency;      /* resident at once, <= batch: sizes the KV memory */
    uint64_t                chunk; /* tokens of a prompt run at once; 0: the whole prompt */
    uint32_t                kv;    /* type of the cache, kv_cache.h */
    const char             *from;  /* the file of prompts, or "" ; in the job's doc */
    /* for the cost models */
    uint64_t s, n;         /* planned prompt and output length: the mean, rounded up */
    uint64_t context;      /* positions that a request may take: longest prompt + longest output */
    bool     distribution; /* lengths differ */
};

/* Reads the map `workload:` of a job; NULL: all defaults.  `from` is relative to `folder`; a record
 * has `prompt_tokens`, or a text as `prompt` or `text` (of OpenAI's `body` too), for which tok must
 * not be NULL; `max_tokens` goes before `generate`.  Errors go to d; TSR_OK then too.  [setup] */
tsr_status tsr_plan_workload_read(struct tsr_plan_workload *w, const struct tsr_config_node *map,
                                  const char *folder, const struct tsr_tokenizer *tok,
                                  struct tsr_diag *d, struct tsr_err *err);
void       tsr_plan_workload_free(struct tsr_plan_workload *w); /* zeroed or filled */
/* Lengths of the records of a JSONL text, for workload and tests; name is the file name in messages.
 * generate: of records without max_tokens. */
tsr_status tsr_plan_workload_records(struct tsr_plan_workload *w, const char *name,
                                     const char *text, uint64_t len, uint64_t generate,
                                     const struct tsr_tokenizer *tok, struct tsr_err *err);
/* A fixed one: s prompt tokens, n to generate, batch requests. */
tsr_status tsr_plan_workload_fixed(struct tsr_plan_workload *w, uint64_t s, uint64_t n,
                                   uint64_t batch, struct tsr_err *err);

/* Mean past length of the n-1 decode steps (ruling 29): s + (n-2)/2; paper: s + n/2. */
double tsr_plan_workload_past(const struct tsr_plan_workload *w, bool paper);
/* Chunks of one prompt, all of `chunk` tokens but the last, whose length *last gets.  count >= 1. */
uint64_t tsr_plan_workload_chunks(const struct tsr_plan_workload *w, uint64_t *last);
/* Tokens of a forward of our engine where `chunk` does not say (engine/internal.h). */
#define TSR_PLAN_FORWARD 512u
/* Most tokens that go through the stages as one micro-batch; longer prompts go in chunks whatever `chunk` says. */
#define TSR_PLAN_MOST_TOKENS 4096u
/* Tokens of each prompt that a micro-batch of so many requests takes at once: the last chunk has what is left. */
uint64_t tsr_plan_workload_piece(const struct tsr_plan_workload *w, uint64_t requests);

#endif
