#include "eval/chain.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_eval_chain_create(struct tsr_eval_chain **c, uint64_t n, struct tsr_err *err)
{
    *c = tsr_new(1, sizeof **c);
    if (*c)
        (*c)->stages = tsr_new(n, sizeof *(*c)->stages);
    if (!*c || !(*c)->stages) {
        tsr_eval_chain_destroy(*c);
        *c = NULL;
        return tsr_fail_nomem(err, n * sizeof(struct tsr_eval_chain_stage), "the stages of a plan");
    }
    (*c)->n = n;
    return TSR_OK;
}

void tsr_eval_chain_destroy(struct tsr_eval_chain *c)
{
    if (!c)
        return;
    for (uint64_t i = 0; c->stages && i < c->n; i++) {
        tsr_engine_destroy(c->stages[i].engine);
        tsr_eval_link_close(&c->stages[i].link);
    }
    free(c->stages);
    free(c->rows);
    free(c->wanted);
    free(c);
}

void tsr_eval_chain_reset(struct tsr_eval_chain *c)
{
    for (uint64_t i = 0; i < c->n; i++)
        tsr_engine_reset(c->stages[i].engine, 0);
}

static const struct tsr_engine *last(const struct tsr_eval_chain *c)
{
    return c->stages[c->n - 1].engine;
}

static uint64_t hidden(const struct tsr_eval_chain *c)
{
    return tsr_engine_model(last(c))->hp.hidden;
}

static tsr_status reserve(struct tsr_eval_chain *c, uint64_t n, struct tsr_err *err)
{
    uint64_t cells = 0;
    if (n <= c->capacity)
        return TSR_OK;
    free(c->rows);
    free(c->wanted);
    c->rows = c->wanted = NULL;
    c->capacity = 0;
    if (tsr_mul(n, hidden(c), &cells)) {
        c->rows = tsr_new_aligned(cells, sizeof *c->rows);
        c->wanted = tsr_new_aligned(cells, sizeof *c->wanted);
    }
    if (!c->rows || !c->wanted)
        return tsr_fail_nomem(err, cells * sizeof *c->rows, "hidden rows between stages");
    c->capacity = n;
    return TSR_OK;
}

/* The rows whose logits are needed go back, and are the head's there. */
static tsr_status back(struct tsr_eval_chain *c, const struct tsr_engine_token *tokens, uint64_t n,
                       float *logits, struct tsr_err *err)
{
    struct tsr_eval_chain_stage *s = &c->stages[c->n - 1];
    uint64_t                     cols = hidden(c), rows = 0;
    for (uint64_t i = 0; i < n; i++)
        if (tokens[i].logits)
            memcpy(c->wanted + rows++ * cols, c->rows + i * cols, cols * sizeof *c->rows);
    if (!rows)
        return TSR_OK;
    TSR_TRY(tsr_eval_link_send(&s->link, (uint32_t)(2 * s->end - 1), rows, cols, c->wanted, err));
    return tsr_engine_head(s->engine, c->wanted, rows, logits, err);
}

tsr_status tsr_eval_chain_forward(struct tsr_eval_chain *c, const struct tsr_engine_token *tokens,
                                  uint64_t n, float *logits, struct tsr_err *err)
{
    TSR_TRY(reserve(c, n, err));
    for (uint64_t i = 0; i < c->n; i++) {
        struct tsr_eval_chain_stage *s = &c->stages[i];
        bool                         ends = i + 1 == c->n, heads = ends && !s->sends;
        TSR_TRY(tsr_engine_stage(s->engine, tokens, n, i ? c->rows : NULL, heads ? NULL : c->rows,
                                 heads ? logits : NULL, err));
        if (s->sends && !ends)
            TSR_TRY(tsr_eval_link_send(&s->link, (uint32_t)(2 * s->end - 1), n, hidden(c), c->rows,
                                       err));
    }
    return c->stages[c->n - 1].sends ? back(c, tokens, n, logits, err) : TSR_OK;
}

uint64_t tsr_eval_chain_context(const struct tsr_eval_chain *c)
{
    uint64_t least = tsr_engine_context(c->stages[0].engine);
    for (uint64_t i = 1; i < c->n; i++)
        if (tsr_engine_context(c->stages[i].engine) < least)
            least = tsr_engine_context(c->stages[i].engine);
    return least;
}

uint64_t tsr_eval_chain_vocab(const struct tsr_eval_chain *c)
{
    return tsr_engine_vocab(last(c));
}
