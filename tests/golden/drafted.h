/* What a server answered with drafts or without, to the bit: for test_drafts.c and test_draft_model.c, which say before
 * how many TEXTS of at most NEW tokens there are, and the TOP logprobs of each. */
#ifndef TSR_TEST_DRAFTED_H
#define TSR_TEST_DRAFTED_H

#include "golden.h"

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

static int set_up(void **state)
{
    (void)state;
    /* contexts beyond the model's own, and drafts that end, are meant */
    tsr_log_set_level(TSR_LOG_WARN + 1);
    registry = golden_registry(1, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

struct answers {
    uint32_t                  token[TEXTS][NEW];
    uint64_t                  n[TEXTS];
    enum tsr_finish           finish[TEXTS];
    struct tsr_engine_logprob own[TEXTS][NEW], top[TEXTS][NEW * TOP];
};

static tsr_status take(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    struct answers *a = ctx;
    (void)err;
    a->finish[r->id] = r->finish;
    a->n[r->id] = r->n_tokens;
    memcpy(a->token[r->id], r->tokens, r->n_tokens * sizeof *r->tokens);
    memcpy(a->own[r->id], r->logprobs, r->n_tokens * sizeof *r->logprobs);
    memcpy(a->top[r->id], r->tops, r->n_tokens * TOP * sizeof *r->tops);
    return TSR_OK;
}

#endif
