#include "golden.h"
#include "place.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors/safetensors.h"
#include "config/names.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODELS "%s/tests/golden/models/"

const char *const golden_names[] = {
    "bloom",
    "bloom-6heads",
    "gemma2",
    "llama-linear-rope-bias",
    "llama2",
    "llama3",
    "mistral",
    "opt",
    "mistral-nowindow",
    "opt-350m-style",
    "phi3",
    "phi3-longrope",
    "qwen2",
    "qwen2-untied",
    "qwen3",
    "qwen3-window-untied",
    "gemma3",
    "gemma3-v5-noscaling",
    "gemma3-wrapped",
    "mistral3",
    "granite",
    "smollm3",
    "olmo2",
    "olmo3",
    "glm4",
    "cohere",
    "cohere-qknorm",
    "cohere2",
    "starcoder2",
    "mixtral",
    "mixtral-window",
    "qwen3_moe",
    "qwen3_moe-mixed",
    "granitemoe",
    "phimoe",
    "gpt_oss",
    "gpt_oss-mxfp4",
    "deepseek_v2-lite",
    "deepseek_v2-groups",
    "deepseek_v3",
    "deepseek_v3-halves",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    NULL,
};

const char *const golden_more_names[] = {
    "../families/dots1",
    "../families/ernie4_5",
    "../families/ernie4_5_moe",
    "../families/exaone4",
    "../families/gemma",
    "../families/glm",
    "../families/glm4_moe",
    "../families/glm4_moe_lite",
    "../families/minimax_m2",
    "../families/olmoe",
    "../families/qwen2_5_vl",
    "../families/qwen2_moe",
    "../families/qwen3_vl",
    "../families/qwen3_vl_moe",
    "../families/seed_oss",
    "../families/solar_open",
    NULL,
};

/* As "fails the test with the sentence", for calls that return a status. */
static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static uint32_t *ids(const json_t *array, uint64_t *n)
{
    *n = json_array_size(array);
    uint32_t *v = calloc(*n + 1, sizeof *v);
    assert_non_null(v);
    for (uint64_t i = 0; i < *n; i++)
        v[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    return v;
}

static void read_logits(const struct tsr_safetensors *st, struct golden_case *c, uint64_t vocab)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              key[64];
    (void)snprintf(key, sizeof key, "%s.logits", c->name);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, key);
    assert_non_null(t);
    assert_int_equal(t->end - t->begin, c->n_prompt * vocab * sizeof(float));
    c->logits = malloc(t->end - t->begin);
    assert_non_null(c->logits);
    must(tsr_safetensors_read(st, t, c->logits, &e.err), &e);
    float lo = c->logits[0], hi = lo;
    for (uint64_t i = 0; i < c->n_prompt * vocab; i++) {
        lo = fminf(lo, c->logits[i]);
        hi = fmaxf(hi, c->logits[i]);
    }
    c->range = (double)hi - (double)lo;
    assert_true(c->range > 0 && isfinite(c->range));
}

void golden_load(struct golden *g, const char *name)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    char                   path[512];
    json_t                *root = NULL;
    struct tsr_safetensors st;

    memset(g, 0, sizeof *g);
    (void)snprintf(path, sizeof path, MODELS "%s", TEST_ROOT, name);
    must(tsr_model_load(&g->model, path, false, &e.err), &e);
    (void)snprintf(path, sizeof path, MODELS "%s/cases.json", TEST_ROOT, name);
    must(tsr_json_load(&root, path, 1 << 20, 8, &e.err), &e);
    (void)snprintf(path, sizeof path, MODELS "%s/expected.safetensors", TEST_ROOT, name);
    must(tsr_safetensors_open(&st, path, &e.err), &e);
    const json_t *list = json_object_get(root, "cases");
    g->n = json_array_size(list);
    assert_true(g->n > 0);
    g->cases = calloc(g->n, sizeof *g->cases);
    assert_non_null(g->cases);
    for (uint64_t i = 0; i < g->n; i++) {
        const json_t       *o = json_array_get(list, i);
        struct golden_case *c = &g->cases[i];
        c->name = strdup(json_string_value(json_object_get(o, "name")));
        c->prompt = ids(json_object_get(o, "prompt"), &c->n_prompt);
        c->greedy = ids(json_object_get(o, "greedy"), &c->n_greedy);
        c->whole_prompt_only = json_is_true(json_object_get(o, "whole_prompt_only"));
        assert_true(c->n_prompt > 0 && c->n_greedy > 0);
        read_logits(&st, c, g->model->hp.vocab);
    }
    tsr_safetensors_close(&st);
    json_decref(root);
}

void golden_free(struct golden *g)
{
    for (uint64_t i = 0; i < g->n; i++) {
        free(g->cases[i].name);
        free(g->cases[i].prompt);
        free(g->cases[i].greedy);
        free(g->cases[i].logits);
    }
    free(g->cases);
    tsr_model_destroy(g->model);
}

uint32_t golden_codec(const char *text)
{
    int64_t number = tsr_config_name_number(text);
    assert_true(number >= 0);
    return (uint32_t)number;
}

struct tsr_registry *golden_registry(unsigned threads, const char *extra, struct tsr_pool **pool)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_registry *r = NULL;
    must(tsr_pool_create(pool, threads, &e.err), &e);
    must(tsr_plugin_registry_create(&r, *pool, &e.err), &e);
    must(tsr_plugin_registry_add_path(r, TEST_PLUGINS, &e.err), &e);
    if (extra)
        must(tsr_plugin_registry_add_path(r, extra, &e.err), &e);
    return r;
}

void golden_registry_close(struct tsr_registry *r, struct tsr_pool *pool)
{
    tsr_plugin_registry_destroy(r);
    tsr_pool_destroy(pool);
}

struct tsr_engine *golden_engine(struct tsr_registry *r, const struct tsr_model *m,
                                 const struct tsr_model_overlay *o, struct tsr_engine_options opt)
{
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct tsr_engine *engine = NULL;
    if (!opt.kv_dtype)
        opt.kv_dtype = TSR_F32;
    if (!opt.slots)
        opt.slots = 1;
    must(tsr_engine_create(&engine, r, m, o, &opt, &e.err), &e);
    return engine;
}

float *golden_forward(struct tsr_engine *engine, const uint32_t *prompt, uint64_t n, bool step)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    uint64_t                 vocab = tsr_engine_vocab(engine);
    struct tsr_engine_token *t = calloc(n, sizeof *t);
    float                   *logits = malloc(n * vocab * sizeof *logits);
    assert_non_null(t);
    assert_non_null(logits);
    for (uint64_t i = 0; i < n; i++)
        t[i] = (struct tsr_engine_token){ .id = prompt[i], .logits = true };
    tsr_engine_reset(engine, 0);
    if (!step)
        must(tsr_engine_forward(engine, t, n, logits, &e.err), &e);
    for (uint64_t i = 0; step && i < n; i++)
        must(tsr_engine_forward(engine, t + i, 1, logits + i * vocab, &e.err), &e);
    assert_int_equal(tsr_engine_length(engine, 0), n);
    tsr_engine_reset(engine, 0);
    free(t);
    return logits;
}

void golden_compare(const char *what, const struct golden_case *c, const float *logits,
                    uint64_t vocab, double tolerance)
{
    for (uint64_t i = 0; i < c->n_prompt * vocab; i++) {
        double off = fabs((double)logits[i] - (double)c->logits[i]) / c->range;
        if (!(off <= tolerance))
            fail_msg("%s, %s: token %llu, id %llu is %.9g, recorded %.9g: %.2g of the range", what,
                     c->name, (unsigned long long)(i / vocab), (unsigned long long)(i % vocab),
                     (double)logits[i], (double)c->logits[i], off);
    }
}

void golden_generate(const char *what, struct tsr_engine *engine, const struct golden *g)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_engine_request *q = calloc(g->n, sizeof *q);
    assert_non_null(q);
    for (uint64_t i = 0; i < g->n; i++) {
        const struct golden_case *c = &g->cases[i];
        q[i] = (struct tsr_engine_request){ .prompt = c->prompt,
                                            .n_prompt = c->n_prompt,
                                            .max_tokens = c->n_greedy,
                                            .ignore_eos = true,
                                            .sampling = { .top_p = 1, .repetition_penalty = 1 },
                                            .tokens = calloc(c->n_greedy, sizeof(uint32_t)) };
        assert_non_null(q[i].tokens);
    }
    must(tsr_engine_generate(engine, q, g->n, NULL, &e.err), &e);
    for (uint64_t i = 0; i < g->n; i++) {
        assert_int_equal(q[i].n_tokens, g->cases[i].n_greedy);
        for (uint64_t k = 0; k < q[i].n_tokens; k++)
            if (q[i].tokens[k] != g->cases[i].greedy[k])
                fail_msg("%s, %s: greedy token %llu is %u, recorded %u", what, g->cases[i].name,
                         (unsigned long long)k, q[i].tokens[k], g->cases[i].greedy[k]);
        free(q[i].tokens);
    }
    free(q);
}
