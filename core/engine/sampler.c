/* Lists of samplers, and the samplers of one request. */
#include "engine/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct tsr_engine_samplers {
    _Atomic uint32_t             holders;
    struct tsr_plugin_spec       spec;
    const struct tsr_sampler_v1 *table;
    void                        *self;
    struct tsr_engine_tokens    *tokens;
    struct tsr_engine_samplers  *rest;
};

/* ---- lists ----------------------------------------------------------------- */

static tsr_status open_instance(struct tsr_engine_samplers *l, struct tsr_err *err)
{
    const char *name = l->spec.found.component->name;
    bool        needs = (l->table->needs & TSR_SAMPLER_TOKENS) != 0;
    if (needs && !l->tokens)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "sampler '%s' needs the texts of the tokens, and the model has no tokenizer", name);
    if (needs && !l->table->tokens)
        return tsr_fail(err, TSR_E_PLUGIN, "sampler '%s' needs tokens and has no function tokens()",
                        name);
    tsr_status st = l->table->create(l->spec.found.host, l->spec.options, &l->self, err);
    if (st == TSR_OK && needs)
        st = l->table->tokens(l->self, tsr_engine_tokens_table(l->tokens), err);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "sampler '%s'", name);
}

tsr_status tsr_engine_samplers_create(struct tsr_engine_samplers **list,
                                      struct tsr_plugin_spec      *spec,
                                      struct tsr_engine_tokens    *tokens,
                                      struct tsr_engine_samplers *rest, struct tsr_err *err)
{
    struct tsr_engine_samplers *l = tsr_new(1, sizeof *l);
    *list = NULL;
    if (!l) {
        tsr_plugin_spec_close(spec);
        return tsr_fail_nomem(err, sizeof *l, "a list of samplers");
    }
    l->holders = 1;
    l->spec = *spec;
    memset(spec, 0, sizeof *spec);
    l->table = l->spec.found.iface;
    l->tokens = tsr_engine_tokens_hold(tokens);
    l->rest = tsr_engine_samplers_hold(rest);
    tsr_status st = open_instance(l, err);
    if (st == TSR_OK)
        *list = l;
    else
        tsr_engine_samplers_drop(l);
    return st;
}

tsr_status tsr_engine_sampler_make(struct tsr_engine_sampler_maker *m,
                                   struct tsr_engine_samplers **list, struct tsr_plugin_spec *spec,
                                   struct tsr_engine_samplers *rest, struct tsr_err *err)
{
    const struct tsr_sampler_v1 *t = spec->found.iface;
    *list = NULL;
    if ((t->needs & TSR_SAMPLER_TOKENS) && !m->tokens && m->tokenizer) {
        tsr_status st =
            tsr_engine_tokens_create(&m->tokens, m->tokenizer, m->vocab, m->ends, m->n_ends, err);
        if (st != TSR_OK) {
            tsr_plugin_spec_close(spec);
            return st;
        }
    }
    return tsr_engine_samplers_create(list, spec, m->tokens, rest, err);
}

struct tsr_engine_samplers *tsr_engine_samplers_hold(struct tsr_engine_samplers *list)
{
    if (list)
        (void)atomic_fetch_add(&list->holders, 1);
    return list;
}

void tsr_engine_samplers_drop(struct tsr_engine_samplers *list)
{
    while (list && atomic_fetch_sub(&list->holders, 1) == 1) {
        struct tsr_engine_samplers *rest = list->rest;
        if (list->self)
            list->table->destroy(list->self);
        tsr_plugin_spec_close(&list->spec);
        tsr_engine_tokens_drop(list->tokens);
        free(list);
        list = rest;
    }
}

/* ---- one request ------------------------------------------------------------- */

static uint64_t padded(uint64_t bytes)
{
    return bytes + (16 - bytes % 16) % 16;
}

static tsr_status failed(const struct tsr_engine_samplers *l, tsr_status st, struct tsr_err *err)
{
    return tsr_err_prefix(err, st, "sampler '%s'", l->spec.found.component->name);
}

/* The bytes of all states, and of the largest scratch. */
static tsr_status measure(const struct tsr_engine_samplers *list, uint64_t vocab, uint64_t *state,
                          uint64_t *scratch, struct tsr_err *err)
{
    *state = *scratch = 0;
    for (const struct tsr_engine_samplers *l = list; l; l = l->rest) {
        struct tsr_sampler_sizes z = { .struct_size = sizeof z };
        tsr_status               st = l->table->sizes(l->self, vocab, &z, err);
        if (st != TSR_OK)
            return failed(l, st, err);
        if (z.state_bytes > TSR_ENGINE_SAMPLER_MOST || z.scratch_bytes > TSR_ENGINE_SAMPLER_MOST)
            return tsr_fail(err, TSR_E_PLUGIN,
                            "sampler '%s' wants %llu bytes of state and %llu of scratch, more than "
                            "%llu",
                            l->spec.found.component->name, (unsigned long long)z.state_bytes,
                            (unsigned long long)z.scratch_bytes,
                            (unsigned long long)TSR_ENGINE_SAMPLER_MOST);
        *state += padded(z.state_bytes);
        *scratch = z.scratch_bytes > *scratch ? z.scratch_bytes : *scratch;
    }
    return TSR_OK;
}

/* The function of each sampler, with its part of the states. */
static tsr_status each_state(struct tsr_engine_chain *c, uint64_t vocab,
                             tsr_status (*f)(const struct tsr_engine_samplers *l, void *state,
                                             const void *arg, struct tsr_err *err),
                             const void *arg, struct tsr_err *err)
{
    unsigned char *at = c->state;
    for (const struct tsr_engine_samplers *l = c->list; l; l = l->rest) {
        struct tsr_sampler_sizes z = { .struct_size = sizeof z };
        tsr_status               st = l->table->sizes(l->self, vocab, &z, err);
        if (st == TSR_OK)
            st = f(l, at, arg, err);
        if (st != TSR_OK)
            return failed(l, st, err);
        at += padded(z.state_bytes);
    }
    return TSR_OK;
}

static tsr_status start_one(const struct tsr_engine_samplers *l, void *state, const void *arg,
                            struct tsr_err *err)
{
    return l->table->start(l->self, arg, state, err);
}

static tsr_status accept_one(const struct tsr_engine_samplers *l, void *state, const void *arg,
                             struct tsr_err *err)
{
    return l->table->accept(l->self, state, *(const uint32_t *)arg, err);
}

tsr_status tsr_engine_chain_start(struct tsr_engine_chain *c, struct tsr_engine_samplers *list,
                                  const struct tsr_sampler_request *request, struct tsr_err *err)
{
    uint64_t scratch, vocab = request->vocab;
    memset(c, 0, sizeof *c);
    if (!list)
        return TSR_OK;
    c->list = tsr_engine_samplers_hold(list);
    c->vocab = vocab;
    TSR_TRY(measure(list, vocab, &c->state_bytes, &scratch, err));
    c->state = tsr_new_aligned(c->state_bytes, 1);
    c->scratch = tsr_new_aligned(scratch, 1);
    c->logits = tsr_new_aligned(vocab, sizeof *c->logits);
    if (!c->state || !c->scratch || !c->logits)
        return tsr_fail_nomem(err, c->state_bytes + scratch + vocab * sizeof *c->logits,
                              "the samplers of a request");
    return each_state(c, vocab, start_one, request, err);
}

void tsr_engine_chain_finish(struct tsr_engine_chain *c)
{
    tsr_engine_samplers_drop(c->list);
    free(c->state);
    free(c->scratch);
    free(c->logits);
    memset(c, 0, sizeof *c);
}

/* What a sampler left or chose must be what docs/abi.md allows: a token from elsewhere would be no error of anyone. */
static tsr_status check_logits(const struct tsr_engine_chain    *c,
                               const struct tsr_engine_samplers *l, struct tsr_err *err)
{
    bool any = false;
    for (uint64_t i = 0; i < c->vocab; i++) {
        if (!(c->logits[i] < INFINITY))
            return tsr_fail(err, TSR_E_PLUGIN,
                            "sampler '%s' left the logit %g for token %llu; expected a finite "
                            "number or -inf",
                            l->spec.found.component->name, (double)c->logits[i],
                            (unsigned long long)i);
        any = any || c->logits[i] > -INFINITY;
    }
    return any ? TSR_OK
               : tsr_fail(err, TSR_E_NUMERIC, "sampler '%s' left no token that can follow",
                          l->spec.found.component->name);
}

static tsr_status check_token(const struct tsr_engine_chain *c, const struct tsr_engine_samplers *l,
                              uint32_t id, struct tsr_err *err)
{
    if (id == TSR_SAMPLER_END || (id < c->vocab && c->logits[id] > -INFINITY))
        return TSR_OK;
    return tsr_fail(err, TSR_E_PLUGIN,
                    "sampler '%s' chose the token %u; expected an id below %llu that no sampler "
                    "excluded",
                    l->spec.found.component->name, id, (unsigned long long)c->vocab);
}

static tsr_status run_list(struct tsr_engine_chain *c, struct tsr_sampler_job *job, uint32_t *id,
                           struct tsr_err *err)
{
    unsigned char *at = c->state;
    for (const struct tsr_engine_samplers *l = c->list; l; l = l->rest) {
        struct tsr_sampler_sizes z = { .struct_size = sizeof z };
        tsr_status               st = l->table->sizes(l->self, c->vocab, &z, err);
        job->state = at;
        job->scratch = c->scratch;
        if (st == TSR_OK)
            st = l->table->sample(l->self, job, id, err);
        if (st != TSR_OK)
            return failed(l, st, err);
        if (*id != TSR_SAMPLER_NONE)
            return check_token(c, l, *id, err);
        TSR_TRY(check_logits(c, l, err));
        at += padded(z.state_bytes);
    }
    return TSR_OK;
}

tsr_status tsr_engine_chain_next(struct tsr_engine_chain *c, const float *logits, uint64_t vocab,
                                 const struct tsr_engine_sampling *s, const uint32_t *history,
                                 uint64_t n_prompt, uint64_t n_history, uint64_t record,
                                 void *scratch, uint32_t *id, struct tsr_err *err)
{
    struct tsr_sampler_job job = { .struct_size = sizeof job,
                                   .vocab = vocab,
                                   .logits = (float *)(uintptr_t)logits, /* the draw only reads */
                                   .history = history,
                                   .n_prompt = n_prompt,
                                   .n_history = n_history,
                                   .seed = s->seed,
                                   .record = record,
                                   .uniform = tsr_uniform(s->seed, record, n_history - n_prompt) };
    *id = TSR_SAMPLER_NONE;
    if (c->list) {
        memcpy(c->logits, logits, vocab * sizeof *logits);
        job.logits = c->logits;
        TSR_TRY(run_list(c, &job, id, err));
        if (*id != TSR_SAMPLER_NONE)
            return TSR_OK;
    }
    job.state = NULL;
    job.scratch = scratch;
    return tsr_engine_draw.sample(s, &job, id, err);
}

tsr_status tsr_engine_chain_accept(struct tsr_engine_chain *c, uint32_t id, struct tsr_err *err)
{
    return c->list ? each_state(c, c->vocab, accept_one, &id, err) : TSR_OK;
}
