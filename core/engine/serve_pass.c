/* The pass of one engine, and what a server may keep of a sequence. */
#include "engine/internal.h"
#include "engine/rope.h"
#include "engine/serve_internal.h"

#include "base/mem.h"
#include "plugin/kv_layers.h"
#include "plugin/kv_sizes.h"

#include <stdlib.h>

static tsr_status engine_start(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                               uint64_t n, float *logits, struct tsr_err *err)
{
    (void)slot_set;
    return tsr_engine_forward(ctx, tokens, n, logits, err);
}

static tsr_status engine_start_best(void *ctx, uint32_t slot_set,
                                    const struct tsr_engine_token *tokens, uint64_t n,
                                    const struct tsr_engine_best *best, struct tsr_err *err)
{
    (void)slot_set;
    return tsr_engine_forward_best(ctx, tokens, n, best, err);
}

static tsr_status engine_best_logits(void *ctx, uint64_t row, float *logits, struct tsr_err *err)
{
    return tsr_engine_best_logits(ctx, row, logits, err);
}

static tsr_status engine_finish(void *ctx, uint32_t slot_set, struct tsr_err *err)
{
    (void)ctx;
    (void)slot_set;
    (void)err;
    return TSR_OK;
}

static void engine_reset(void *ctx, uint32_t slot)
{
    tsr_engine_reset(ctx, slot);
}

static uint64_t engine_rewind(void *ctx, uint32_t slot, uint64_t length)
{
    return tsr_engine_rewind(ctx, slot, length);
}

static tsr_status engine_copy(void *ctx, uint32_t from, uint32_t to, uint64_t length,
                              uint64_t *kept, struct tsr_err *err)
{
    return tsr_engine_copy(ctx, from, to, length, kept, err);
}

bool tsr_engine_reuses(const struct tsr_model_hparams *hp, const struct tsr_engine_options *o,
                       const char **why)
{
    *why = o->on.numerics == TSR_NUMERICS_FAST ? "fast numerics may differ with the size of a batch"
           : o->split ? "sums of simulated ranks may differ with the size of a batch"
           : tsr_engine_rope_varies(&hp->rope) || tsr_engine_rope_varies(&hp->rope_sliding)
               ? "the model's positions depend on the length of the prompt"
               : NULL;
    return *why == NULL;
}

bool tsr_engine_drafts(const struct tsr_model_hparams *hp, const struct tsr_engine_options *o,
                       const char **why)
{
    if (!tsr_engine_reuses(hp, o, why))
        return false;
    for (uint64_t i = 0; i < hp->layers && !*why; i++)
        *why = tsr_model_is_recurrent(hp, i) ? "a layer has a state, which cannot go back" : NULL;
    return *why == NULL;
}

tsr_status tsr_engine_has_blocks(uint64_t layers, const struct tsr_engine_options *o, bool *blocks,
                                 struct tsr_err *err)
{
    uint32_t *of = tsr_new(layers, sizeof *of);
    *blocks = false;
    if (!of)
        return tsr_fail_nomem(err, layers * sizeof *of, "types of the KV cache");
    for (uint64_t i = 0; i < layers; i++)
        of[i] = o->kv_dtype;
    tsr_status st = o->kv_layers && *o->kv_layers
                        ? tsr_plugin_kv_layers(o->kv_layers, o->kv_dtype, layers, of, err)
                        : TSR_OK;
    for (uint64_t i = 0; i < layers; i++)
        *blocks = *blocks || tsr_plugin_kv_has_blocks(of[i]);
    free(of);
    return st;
}

tsr_status tsr_engine_goes_back(const struct tsr_model_hparams  *hp,
                                const struct tsr_engine_options *o, const char **why,
                                struct tsr_err *err)
{
    bool blocks = false;
    TSR_TRY(tsr_engine_has_blocks(hp->layers, o, &blocks, err));
    *why = blocks ? "keys or values are in blocks of positions" : NULL;
    for (uint64_t i = 0; i < hp->layers && !*why; i++)
        *why = tsr_model_is_recurrent(hp, i) ? "a layer has a state in place of a cache"
               : hp->window[i]               ? "the cache of a layer with a window forgets"
                                             : NULL;
    return TSR_OK;
}

void tsr_engine_pass_reuse(struct tsr_engine_pass *p, const struct tsr_engine_options *o,
                           uint32_t at_once)
{
    p->at_once = at_once;
    p->keeps = true;
    p->copy = engine_copy;
    for (uint64_t i = 0; i < p->hp->layers; i++)
        if (tsr_model_is_recurrent(p->hp, i))
            p->copy = NULL;
    p->prompts = o->compensate && !o->compensate->all;
}

void tsr_engine_pass_engine(struct tsr_engine_pass *p, struct tsr_engine *e)
{
    *p = (struct tsr_engine_pass){ .ctx = e,
                                   .slots = tsr_engine_slots(e),
                                   .slot_sets = 1,
                                   .context = tsr_engine_context(e),
                                   .vocab = tsr_engine_vocab(e),
                                   .start = engine_start,
                                   .finish = engine_finish,
                                   .reset = engine_reset,
                                   .rewind = engine_rewind,
                                   .hp = &tsr_engine_model(e)->hp,
                                   .pool = tsr_plugin_registry_pool(e->dev->registry),
                                   .start_best = engine_start_best,
                                   .best_logits = engine_best_logits };
    p->best_rows = tsr_engine_best_rows(e, &p->best_tokens);
}
