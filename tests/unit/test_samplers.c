/* Lists of samplers through a server over a toy forward pass: the draw is the one without a list, slots change nothing, a
 * state that is put back goes on with the same tokens, and a sampler that answers wrongly is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "draw.h"
#include "engine/sampler.h"
#include "engine/serve.h"
#include "plugin_open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB 40u
#define SLOTS 4u
#define LONG  24u
#define N     9u

static struct tsr_registry *registry;

/* ---- a sampler of this file: after a token not that token again --------------- */

enum { GOOD, WRONG_LOGIT, WRONG_TOKEN, NOTHING_LEFT, ENDS };
static int      mode;
static unsigned begun; /* bits of records of serve() whose start() was called */

static tsr_status create(const struct tsr_host *h, const void *o, void **self, struct tsr_err *err)
{
    (void)h;
    (void)o;
    (void)err;
    *self = &mode;
    return TSR_OK;
}
static void destroy(void *self)
{
    (void)self;
}
static tsr_status sizes(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err)
{
    (void)self;
    (void)err;
    s->state_bytes = 8;
    s->scratch_bytes = vocab;
    return TSR_OK;
}
static tsr_status start(const void *self, const struct tsr_sampler_request *request, void *state,
                        struct tsr_err *err)
{
    (void)self;
    (void)err;
    assert_int_equal(request->vocab, VOCAB);
    if (request->n_prompt) { /* of serve() */
        assert_int_equal(request->n_prompt, 1 + request->record % 5);
        assert_int_equal(request->prompt[0], 1 + request->record % 4);
        assert_int_equal(request->seed, 5);
        begun |= 1u << request->record;
    }
    memset(state, 0xff, 8);
    return TSR_OK;
}
static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err)
{
    const uint32_t *last = job->state;
    (void)self;
    (void)err;
    memset(job->scratch, 1, job->vocab);
    if (last[0] < job->vocab)
        job->logits[last[0]] = -INFINITY;
    if (mode == WRONG_LOGIT)
        job->logits[3] = NAN;
    if (mode == WRONG_TOKEN)
        *token = VOCAB;
    for (uint32_t i = 0; mode == NOTHING_LEFT && i < job->vocab; i++)
        job->logits[i] = -INFINITY;
    if (mode == ENDS && job->n_history == job->n_prompt + 3)
        *token = TSR_SAMPLER_END;
    return TSR_OK;
}
static tsr_status accept(const void *self, void *state, uint32_t token, struct tsr_err *err)
{
    (void)self;
    (void)err;
    memcpy(state, &token, sizeof token);
    return TSR_OK;
}
static const struct tsr_sampler_v1      table = { .struct_size = sizeof table,
                                                  .create = create,
                                                  .destroy = destroy,
                                                  .sizes = sizes,
                                                  .start = start,
                                                  .sample = sample,
                                                  .accept = accept };
static const struct tsr_sampler_request any = { .struct_size = sizeof any, .vocab = VOCAB };
static const struct tsr_component component = { .struct_size = sizeof component, .name = "other" };

static struct tsr_engine_samplers *list_of(bool min_p)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_engine_samplers *rest = NULL, *list;
    struct tsr_plugin_spec      spec;
    if (min_p) {
        assert_int_equal(tsr_plugin_spec_open(&spec, registry, TSR_KIND_SAMPLER, "min_p:p=0.3",
                                              &e.err),
                         TSR_OK);
        assert_int_equal(tsr_engine_samplers_create(&rest, &spec, NULL, NULL, &e.err), TSR_OK);
    }
    spec = (struct tsr_plugin_spec){ .found = { .component = &component, .iface = &table } };
    assert_int_equal(tsr_engine_samplers_create(&list, &spec, NULL, rest, &e.err), TSR_OK);
    tsr_engine_samplers_drop(rest);
    return list;
}

/* ---- a forward pass whose logits are a hash of the sequence -------------------------------------------- */

static struct tsr_model_hparams hp;
struct toy {
    uint64_t hash[SLOTS];
};

static void logits_of(uint64_t hash, float *out)
{
    for (uint32_t k = 0; k < VOCAB; k++)
        out[k] = (float)(5 * tsr_uniform(hash, k, 1));
}
static tsr_status toy_start(void *ctx, uint32_t set, const struct tsr_engine_token *tokens,
                            uint64_t n, float *logits, struct tsr_err *err)
{
    struct toy *t = ctx;
    (void)set;
    (void)err;
    for (uint64_t i = 0; i < n; i++) {
        t->hash[tokens[i].slot] = t->hash[tokens[i].slot] * 1000003 + tokens[i].id + 1;
        if (tokens[i].logits) {
            logits_of(t->hash[tokens[i].slot], logits);
            logits += VOCAB;
        }
    }
    return TSR_OK;
}
static tsr_status toy_finish(void *ctx, uint32_t set, struct tsr_err *err)
{
    (void)ctx;
    (void)set;
    (void)err;
    return TSR_OK;
}
static void toy_reset(void *ctx, uint32_t slot)
{
    ((struct toy *)ctx)->hash[slot] = 7;
}

struct results {
    uint32_t        tokens[N][LONG];
    uint64_t        n[N];
    enum tsr_finish finish[N];
    char            error[N][200];
};
static tsr_status done(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    struct results *out = ctx;
    (void)err;
    memcpy(out->tokens[r->id], r->tokens, r->n_tokens * sizeof *r->tokens);
    out->n[r->id] = r->n_tokens;
    out->finish[r->id] = r->finish;
    (void)snprintf(out->error[r->id], sizeof out->error[r->id], "%s", r->error ? r->error : "");
    return TSR_OK;
}

static tsr_status serve(struct results *out, uint32_t slots, struct tsr_engine_samplers *list,
                        struct tsr_err *err)
{
    static const uint32_t          prompt[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    struct toy                     t;
    struct tsr_engine_serve_events ev = { .ctx = out, .done = done };
    struct tsr_engine_pass         p = { .ctx = &t,
                                         .slots = slots,
                                         .slot_sets = 1,
                                         .context = 64,
                                         .vocab = VOCAB,
                                         .start = toy_start,
                                         .finish = toy_finish,
                                         .reset = toy_reset,
                                         .hp = &hp };
    struct tsr_server             *s = NULL;
    memset(out, 0, sizeof *out);
    assert_int_equal(tsr_engine_server_create(&s, &p, &ev, err), TSR_OK);
    tsr_status st = TSR_OK;
    for (uint64_t next = 0; st == TSR_OK && (next < N || tsr_engine_server_busy(s));) {
        while (st == TSR_OK && next < N && tsr_engine_server_room(s)) {
            struct tsr_engine_serve_request q = { .id = next,
                                                  .prompt = prompt + next % 4,
                                                  .n_prompt = 1 + next % 5,
                                                  .max_tokens = LONG,
                                                  .record = next,
                                                  .samplers = next % 3 ? list : NULL,
                                                  .sampling = { .temperature = next % 2 ? 0.9 : 0,
                                                                .top_p = 0.95,
                                                                .repetition_penalty = 1.1,
                                                                .seed = 5 } };
            st = tsr_engine_server_submit(s, &q, err);
            next++;
        }
        if (st == TSR_OK)
            st = tsr_engine_server_step(s, err);
    }
    tsr_engine_server_destroy(s);
    return st;
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static void slots_change_nothing(void **state)
{
    static struct results       one, many, none;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_engine_samplers *list = list_of(true);
    bool                        differ = false;
    (void)state;
    mode = GOOD;
    begun = 0;
    assert_int_equal(serve(&one, 1, list, &e.err), TSR_OK);
    assert_int_equal(begun, 0x1b6); /* 1, 2, 4, 5, 7, 8 */
    assert_int_equal(serve(&many, SLOTS, list, &e.err), TSR_OK);
    assert_memory_equal(&one, &many, sizeof one);
    assert_int_equal(serve(&none, SLOTS, NULL, &e.err), TSR_OK);
    for (uint32_t i = 0; i < N; i++) { /* those without samplers are as they were */
        if (i % 3 == 0)
            assert_memory_equal(one.tokens[i], none.tokens[i], sizeof one.tokens[i]);
        differ = differ || memcmp(one.tokens[i], none.tokens[i], sizeof one.tokens[i]) != 0;
        for (uint32_t k = 1; i % 3 && k < LONG; k++)
            assert_int_not_equal(one.tokens[i][k], one.tokens[i][k - 1]);
    }
    assert_true(differ);
    tsr_engine_samplers_drop(list);
}

/* The chain of an empty list is the draw, and so is the last of a list that changes nothing. */
static void the_draw_is_the_same(void **state)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_plugin_spec      spec;
    struct tsr_engine_samplers *all;
    uint32_t                    history[8] = { 1, 5, 9, 5 };
    char                        scratch[VOCAB * 16] __attribute__((aligned(16)));
    float                       logits[VOCAB];
    (void)state;
    assert_int_equal(tsr_plugin_spec_open(&spec, registry, TSR_KIND_SAMPLER, "min_p:p=0", &e.err),
                     TSR_OK);
    assert_int_equal(tsr_engine_samplers_create(&all, &spec, NULL, NULL, &e.err), TSR_OK);
    for (uint64_t i = 0; i < 400; i++) {
        struct tsr_engine_sampling s = { .temperature = i % 4 ? 0.2 * (double)(i % 9) : 0,
                                         .top_k = i % 5 ? i % 30 : 0,
                                         .top_p = i % 3 ? 0.8 : 1,
                                         .min_p = i % 7 ? 0 : 0.1,
                                         .repetition_penalty = i % 2 ? 1 : 1.3,
                                         .seed = i };
        struct tsr_engine_chain    c, d;
        uint32_t                   want, a, b;
        logits_of(i, logits);
        assert_int_equal(draw_one(logits, VOCAB, &s, history, 4, i, 2, NULL, &want, &e.err),
                         TSR_OK);
        assert_int_equal(tsr_engine_chain_start(&c, NULL, &any, &e.err), TSR_OK);
        assert_int_equal(tsr_engine_chain_start(&d, all, &any, &e.err), TSR_OK);
        assert_int_equal(tsr_engine_chain_next(&c, logits, VOCAB, &s, history, 2, 4, i, scratch, &a,
                                               &e.err),
                         TSR_OK);
        assert_int_equal(tsr_engine_chain_next(&d, logits, VOCAB, &s, history, 2, 4, i, scratch, &b,
                                               &e.err),
                         TSR_OK);
        assert_int_equal(a, want);
        assert_int_equal(b, want);
        tsr_engine_chain_finish(&c);
        tsr_engine_chain_finish(&d);
    }
    tsr_engine_samplers_drop(all);
}

/* A token that was excluded is not drawn, however the roundings of the sums fall. */
static void excluded_tokens_are_not_drawn(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        struct tsr_engine_sampling s = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
        struct tsr_sampler_job     job = { .struct_size = sizeof job, .vocab = VOCAB };
        char                       scratch[VOCAB * 16] __attribute__((aligned(16)));
        float                      logits[VOCAB];
        uint32_t                   id = TSR_SAMPLER_NONE;
        logits_of(i, logits);
        for (uint32_t k = 0; k < VOCAB; k++)
            if (k % 3)
                logits[k] = -INFINITY;
        job.logits = logits;
        job.scratch = scratch;
        job.uniform = i % 2 ? 1 - 0x1p-53 : tsr_uniform(3, i, 1);
        assert_int_equal(tsr_engine_draw.sample(&s, &job, &id, &e.err), TSR_OK);
        assert_true(id < VOCAB && id % 3 == 0);
    }
}

static void a_state_that_is_put_back_goes_on(void **state)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_engine_samplers *list = list_of(false), *other = list_of(false);
    struct tsr_engine_sampling  s = { .temperature = 0.8, .top_p = 1, .repetition_penalty = 1 };
    struct tsr_engine_chain     a, b;
    char                        scratch[VOCAB * 16] __attribute__((aligned(16)));
    float                       logits[VOCAB];
    uint32_t                    history[LONG] = { 1 }, id, again;
    (void)state;
    mode = GOOD;
    assert_int_equal(tsr_engine_chain_start(&a, list, &any, &e.err), TSR_OK);
    for (uint64_t n = 1; n < LONG; n++) {
        logits_of(n / 2, logits); /* equal logits twice, so that the state decides */
        assert_int_equal(tsr_engine_chain_start(&b, n % 2 ? list : other, &any, &e.err), TSR_OK);
        assert_int_equal(a.state_bytes, b.state_bytes);
        memcpy(b.state, a.state, a.state_bytes);
        assert_int_equal(tsr_engine_chain_next(&a, logits, VOCAB, &s, history, 1, n, 0, scratch,
                                               &id, &e.err),
                         TSR_OK);
        assert_int_equal(tsr_engine_chain_next(&b, logits, VOCAB, &s, history, 1, n, 0, scratch,
                                               &again, &e.err),
                         TSR_OK);
        assert_int_equal(id, again);
        tsr_engine_chain_finish(&a);
        a = b;
        history[n] = id;
        assert_int_equal(tsr_engine_chain_accept(&a, id, &e.err), TSR_OK);
    }
    tsr_engine_chain_finish(&a);
    tsr_engine_samplers_drop(list);
    tsr_engine_samplers_drop(other);
}

static void wrong_answers_are_named(void **state)
{
    static struct results       r;
    struct tsr_engine_samplers *list = list_of(false);
    (void)state;
    for (mode = WRONG_LOGIT; mode <= WRONG_TOKEN; mode++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        assert_int_equal(serve(&r, 2, list, &e.err), TSR_E_PLUGIN);
        assert_non_null(strstr(e.text, "'other'"));
        assert_non_null(strstr(e.text, mode == WRONG_LOGIT ? "token 3" : "token 40"));
    }
    struct tsr_errbuf e = TSR_ERRBUF(e);
    mode = NOTHING_LEFT; /* the others go on */
    assert_int_equal(serve(&r, SLOTS, list, &e.err), TSR_OK);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(r.finish[i], i % 3 ? TSR_ENGINE_FINISH_FAILED : TSR_ENGINE_FINISH_LENGTH);
        assert_true(i % 3 == 0 || strstr(r.error[i], "'other'"));
    }
    mode = ENDS;
    assert_int_equal(serve(&r, SLOTS, list, &e.err), TSR_OK);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(r.finish[i], i % 3 ? TSR_ENGINE_FINISH_EOS : TSR_ENGINE_FINISH_LENGTH);
        assert_int_equal(r.n[i], i % 3 ? 3 : LONG);
    }
    tsr_engine_samplers_drop(list);
}

/* min_p against its definition in doubles. */
static void min_p_is_a_share_of_the_best(void **state)
{
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_plugin_spec       spec;
    void                        *self = NULL;
    const struct tsr_sampler_v1 *t;
    (void)state;
    assert_int_equal(tsr_plugin_spec_open(&spec, registry, TSR_KIND_SAMPLER, "min_p:p=0.2", &e.err),
                     TSR_OK);
    t = spec.found.iface;
    assert_int_equal(t->create(spec.found.host, spec.options, &self, &e.err), TSR_OK);
    for (uint64_t i = 0; i < 50; i++) {
        float                  logits[VOCAB], best = 0;
        struct tsr_sampler_job job = { .struct_size = sizeof job,
                                       .vocab = VOCAB,
                                       .logits = logits };
        uint32_t               id = TSR_SAMPLER_NONE, left = 0;
        logits_of(i, logits);
        for (uint32_t k = 0; k < VOCAB; k++)
            best = fmaxf(best, logits[k]);
        assert_int_equal(t->sample(self, &job, &id, &e.err), TSR_OK);
        assert_int_equal(id, TSR_SAMPLER_NONE);
        float before[VOCAB];
        logits_of(i, before);
        for (uint32_t k = 0; k < VOCAB; k++) {
            double share = exp((double)before[k] - (double)best);
            if (fabs(share - 0.2) < 1e-6)
                continue;
            left += share > 0.2;
            assert_true(share > 0.2 ? logits[k] == before[k] : logits[k] == -INFINITY);
        }
        assert_true(left > 0 && left < VOCAB);
    }
    t->destroy(self);
    tsr_plugin_spec_close(&spec);
}

static int setup(void **state)
{
    struct tsr_plugin_found f;
    (void)state;
    registry = open_plugin(TSR_KIND_SAMPLER, "min_p", &f);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_change_nothing),
        cmocka_unit_test(the_draw_is_the_same),
        cmocka_unit_test(excluded_tokens_are_not_drawn),
        cmocka_unit_test(a_state_that_is_put_back_goes_on),
        cmocka_unit_test(wrong_answers_are_named),
        cmocka_unit_test(min_p_is_a_share_of_the_best),
    };
    return cmocka_run_group_tests_name("samplers", tests, setup, teardown);
}
