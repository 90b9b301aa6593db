/* Whole generations are the same bytes (tokens and logits) whatever the instruction set, the
 * threads, the batch that a sequence runs in and the chunk size: docs/decisions/numerics.md. */
#include "golden.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "config/config.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../unit/draw.h"
#define SEQUENCES 4
#define NEW       5 /* tokens generated behind each prompt */
#define LONGEST   17
#define ROOM      (LONGEST + NEW)

/* How a generation is run. */
struct way {
    const char *isa; /* TSR_ISA; NULL: the best of this machine */
    unsigned    threads;
    bool        mixed; /* all sequences in shuffled batches, else each alone */
    uint64_t    chunk;
};
static const struct way reference = { NULL, 1, false, 0 };
static const struct way ways[] = {
    { "avx2", 1, true, 0 },    { "avx2", 7, false, 1 },  { "scalar", 2, true, 3 },
    { "scalar", 7, false, 0 }, { NULL, 2, true, 1 },     { NULL, 7, true, 5 },
    { NULL, 1, false, 3 },     { "avx512", 1, true, 0 },
};

/* What came out. */
struct trace {
    uint64_t vocab;
    float   *logits; /* [SEQUENCES, ROOM, vocab] */
    uint32_t ids[SEQUENCES][ROOM];
};

static const uint64_t prompt_length[SEQUENCES] = { 1, 3, 9, LONGEST };

/* "some" on the command line, for sanitized builds: one of SOME combinations of model, format and
 * cache, by TSR_TEST_SEED, unless TSR_TEST_ALL=1. */
#define SOME 4
static bool     sampled;
static uint64_t turn;

static struct tsr_registry *registries[8]; /* by number of threads */
static struct tsr_pool     *pools[8];

static int set_up(void **state)
{
    (void)state;
    for (unsigned t = 1; t <= 7; t++)
        if (t == 1 || t == 2 || t == 7)
            registries[t] = golden_registry(t, NULL, &pools[t]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned t = 1; t <= 7; t++)
        if (registries[t])
            golden_registry_close(registries[t], pools[t]);
    return 0;
}

static float *row(struct trace *t, int seq, uint64_t position)
{
    return t->logits + ((uint64_t)seq * ROOM + position) * t->vocab;
}

/* The logits of one position have come: the last of the prompt and all behind it choose the
 * next token. */
static void take(struct trace *t, int seq, uint64_t position, const float *logits)
{
    memcpy(row(t, seq, position), logits, t->vocab * sizeof *logits);
    if (position + 1 < prompt_length[seq])
        return;
    struct tsr_engine_sampling greedy = { .top_p = 1, .repetition_penalty = 1 };
    assert_int_equal(draw_one(logits, t->vocab, &greedy, NULL, 0, 0, 0, NULL,
                              &t->ids[seq][position + 1], NULL),
                     TSR_OK);
}

/* Runs rounds of batches until every sequence has all its tokens.  Each round a sequence gives
 * some of its known tokens; in `mixed` ways how many, and how they interleave, is drawn. */
static void run_rounds(struct tsr_engine *e, struct trace *t, int first, int n, bool mixed,
                       uint64_t seed)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          fed[SEQUENCES] = { 0 }, draw = 0;
    float            *out = malloc(SEQUENCES * ROOM * t->vocab * sizeof *out);
    assert_non_null(out);
    for (;;) {
        struct tsr_engine_token batch[SEQUENCES * ROOM];
        int                     owner[SEQUENCES * ROOM];
        uint64_t                give[SEQUENCES] = { 0 }, left = 0, m = 0, next[SEQUENCES];
        for (int s = first; s < first + n; s++) {
            uint64_t len = prompt_length[s];
            uint64_t known = fed[s] < len ? len - fed[s] : fed[s] < len + NEW - 1 ? 1 : 0;
            give[s] = known;
            if (mixed && known)
                give[s] = (uint64_t)(tsr_uniform(seed, 1, draw++) * (double)(known + 1));
            left += known;
            next[s] = fed[s];
        }
        if (!left)
            break;
        for (uint64_t some = 1; some;) {
            some = 0;
            for (int s = first; s < first + n; s++) {
                if (!give[s])
                    continue;
                some = 1;
                if (mixed && tsr_uniform(seed, 2, draw++) < 0.5)
                    continue;
                give[s]--;
                owner[m] = s;
                batch[m++] =
                    (struct tsr_engine_token){ .id = t->ids[s][next[s]++],
                                               .slot = mixed ? (uint32_t)(3 * s + 2) % 5 : 0,
                                               .logits = true };
            }
        }
        if (tsr_engine_forward(e, batch, m, out, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        for (uint64_t i = 0; i < m; i++)
            take(t, owner[i], fed[owner[i]]++, out + i * t->vocab);
    }
    free(out);
}

static struct trace trace_new(const struct tsr_model *m)
{
    struct trace t = { .vocab = m->hp.vocab };
    t.logits = calloc(SEQUENCES * ROOM * t.vocab, sizeof *t.logits);
    assert_non_null(t.logits);
    for (int s = 0; s < SEQUENCES; s++)
        for (uint64_t i = 0; i < prompt_length[s]; i++)
            t.ids[s][i] = (uint32_t)(tsr_uniform(11, (uint64_t)s, i) * (double)t.vocab);
    return t;
}

/* False when this machine lacks the instruction set. */
static bool generate(const struct tsr_model *m, const struct tsr_model_overlay *o, uint32_t act,
                     uint32_t kv, const struct way *w, uint64_t seed, struct trace *t)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = {
        .act = act, .kv_dtype = kv, .slots = w->mixed ? 5 : 1, .context = 64, .chunk = w->chunk
    };
    if (w->isa)
        (void)setenv("TSR_ISA", w->isa, 1);
    tsr_status st = tsr_engine_create(&e, registries[w->threads], m, o, &opt, &err.err);
    (void)unsetenv("TSR_ISA");
    if (st == TSR_E_CONFIG && w->isa && has_facts(err.text, w->isa))
        return false;
    if (st != TSR_OK)
        fail_msg("%s", err.text);
    *t = trace_new(m);
    if (w->mixed)
        run_rounds(e, t, 0, SEQUENCES, true, seed);
    for (int s = 0; !w->mixed && s < SEQUENCES; s++) {
        run_rounds(e, t, s, 1, false, seed);
        tsr_engine_reset(e, 0);
    }
    tsr_engine_destroy(e);
    return true;
}

static void check(const char *what, const struct tsr_model *m, const struct tsr_model_overlay *o,
                  uint32_t act, uint32_t kv)
{
    struct trace want, got;
    if (sampled && turn++ % SOME != 0)
        return;
    assert_true(generate(m, o, act, kv, &reference, 0, &want));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct way *w = &ways[i];
        if (!generate(m, o, act, kv, w, i, &got)) {
            print_message("%s is not on this machine: skipped\n", w->isa);
            continue;
        }
        for (int s = 0; s < SEQUENCES; s++)
            for (uint64_t p = 0; p < prompt_length[s] + NEW - 1; p++)
                if (memcmp(row(&want, s, p), row(&got, s, p), want.vocab * sizeof(float)) != 0)
                    fail_msg("%s, act %u, cache %u: %s, %u threads, %s, chunk %llu gives other "
                             "logits for sequence %d at position %llu",
                             what, act, kv, w->isa ? w->isa : "native", w->threads,
                             w->mixed ? "mixed" : "alone", (unsigned long long)w->chunk, s,
                             (unsigned long long)p);
        assert_memory_equal(want.ids, got.ids, sizeof want.ids);
        free(got.logits);
    }
    free(want.logits);
}

/* Sets one option of a plugin by name. */
static void set_option(const struct tsr_component *c, void *block, const char *name,
                       const char *value)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    for (uint64_t i = 0; i < c->n_options; i++)
        if (strcmp(c->options[i].name, name) == 0) {
            if (tsr_config_option_set(&c->options[i], block, value, &err.err) != TSR_OK)
                fail_msg("%s", err.text);
            return;
        }
    fail_msg("%s has no option %s", c->name, name);
}

/* All linears and the head through a quantizer. */
static struct tsr_model_overlay *pack(const struct tsr_model *m, const char *plugin,
                                      const char *key, const char *value, const char *key2,
                                      const char *value2)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_registry      *r = registries[2];
    struct tsr_plugin_found   f;
    struct tsr_model_overlay *o = NULL;
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, plugin, &f, &err.err), TSR_OK);
    void                    *block = calloc(1, f.component->options_size);
    struct tsr_config_optset set = { f.component->options, f.component->n_options,
                                     f.component->option_stride, block };
    tsr_config_options_defaults(&set);
    set_option(f.component, block, key, value);
    set_option(f.component, block, key2, value2);
    struct tsr_quantizer q = { .iface = f.iface, .name = plugin };
    assert_int_equal(q.iface->create(tsr_plugin_registry_host(r), block, &q.self, &err.err),
                     TSR_OK);
    assert_int_equal(tsr_model_overlay_create(&o, m->hp.layers, m->hp.linears, &err.err), TSR_OK);
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t k = 0; k < m->hp.linears; k++)
            if (m->layers[l].lin[k].w.data &&
                tsr_quantize_matrix(r, &q, &m->layers[l].lin[k].w, NULL, &o->lin[l][k], &err.err) !=
                    TSR_OK)
                fail_msg("%s", err.text);
    if (tsr_quantize_matrix(r, &q, &m->head.w, NULL, &o->head, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    q.iface->destroy(q.self);
    free(block);
    return o;
}

static void check_model(const char *name, const struct tsr_model *m)
{
    const uint32_t            caches[] = { TSR_F32,  TSR_F16, TSR_I8,
                                           TSR_E4M3, TSR_Q4,  golden_codec("kivi:bits=2") };
    struct tsr_model_overlay *w4 = pack(m, "rtn", "bits", "4", "group", "128");
    struct tsr_model_overlay *w3 =
        pack(m, "rtn", "bits", "3", "group", "48"); /* groups cut blocks and segments */
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
        check(name, m, NULL, TSR_ACT_F32, caches[i]);
    check(name, m, w4, TSR_ACT_F32, TSR_F32);
    check(name, m, w4, TSR_ACT_A16, TSR_F32);
    check(name, m, w4, TSR_ACT_A8, TSR_I8);
    check(name, m, w3, TSR_ACT_A8, TSR_F16);
    tsr_model_overlay_destroy(w3);
    tsr_model_overlay_destroy(w4);
}

/* Tables with outliers, MX and LLM.int8, whose outliers are a token's own. */
static void check_formats(const char *name, const struct tsr_model *m)
{
    struct tsr_model_overlay *lut = pack(m, "squeeze", "sensitivity", "none", "outliers", "0.01");
    struct tsr_model_overlay *mx = pack(m, "mx", "element", "fp4_e2m1", "block", "16");
    struct tsr_model_overlay *fp8 = pack(m, "mx", "element", "fp8_e4m3", "block", "8");
    struct tsr_model_overlay *llm = pack(m, "int8", "mode", "llm", "threshold", "1");
    check(name, m, lut, TSR_ACT_F32, TSR_F32);
    check(name, m, lut, TSR_ACT_A8, TSR_F32);
    check(name, m, mx, TSR_ACT_A8, TSR_F32);
    check(name, m, fp8, TSR_ACT_A8, TSR_F32);
    check(name, m, llm, TSR_ACT_A8, TSR_F32);
    tsr_model_overlay_destroy(lut);
    tsr_model_overlay_destroy(mx);
    tsr_model_overlay_destroy(fp8);
    tsr_model_overlay_destroy(llm);
}

static void on_golden(void **state)
{
    static const char *const names[] = { "gemma2", "bloom-6heads", "qwen3_5" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden g;
        golden_load(&g, names[i]);
        check_model(names[i], g.model);
        check_formats(names[i], g.model);
        golden_free(&g);
    }
}

/* Products of the experts of a token, or of a few, run together. */
static void on_experts(void **state)
{
    struct golden g;
    (void)state;
    golden_load(&g, "qwen3_moe");
    check_model("qwen3_moe", g.model);
    golden_free(&g);
}

static void on_demo(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_model *m = NULL;
    (void)state;
    if (tsr_model_load(&m, TSR_SOURCE_ROOT "/configs/demo", false, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    check_model("demo", m);
    tsr_model_destroy(m);
}

/* Codes with minimums, as GGUF has them: records of 256 columns, and a scale and minimum per group. */
static void on_minimums(void **state)
{
    static const char *const names[] = { "gguf-q4_k_m", "gguf-q2_k", "gguf-q3_k_m",
                                         "gguf-q5_1",   "gguf-q6_k", "gguf-iq4_nl" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_errbuf err = TSR_ERRBUF(err);
        struct tsr_model *m = NULL;
        char              path[512];
        (void)snprintf(path, sizeof path, TSR_SOURCE_ROOT "/tests/golden/checkpoints/%s/model.gguf",
                       names[i]);
        if (tsr_model_load(&m, path, false, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        for (uint32_t act = TSR_ACT_F32; act <= TSR_ACT_A8; act++)
            check(names[i], m, NULL, act, TSR_F32);
        tsr_model_destroy(m);
    }
}

/* A packed linear equals the dense one on the dequantized matrix: with act f32 the overlay and
 * a model of F32 weights give the same bytes. */
static void packed_equals_dequantized(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct golden     g;
    struct trace      packed, dense;
    (void)state;
    golden_load(&g, "llama3");
    struct tsr_model_overlay *o = pack(g.model, "rtn", "bits", "4", "group", "32");
    assert_true(generate(g.model, o, TSR_ACT_F32, TSR_F32, &reference, 0, &packed));
    for (uint64_t l = 0; l <= g.model->hp.layers; l++)
        for (int k = 0; k < TSR_MODEL_LINEARS; k++) {
            struct tsr_model_packed *p =
                l == g.model->hp.layers ? (k ? NULL : o->head) : o->lin[l][k];
            if (!p)
                continue;
            p->dense = malloc(p->rows * p->cols * sizeof(float));
            assert_non_null(p->dense);
            struct tsr_model_packed plain = *p;
            plain.dense = NULL;
            if (tsr_model_packed_dequantize(&plain, 0, p->rows, p->dense, &err.err) != TSR_OK)
                fail_msg("%s", err.text);
        }
    assert_true(generate(g.model, o, TSR_ACT_F32, TSR_F32, &reference, 0, &dense));
    assert_memory_equal(packed.logits, dense.logits,
                        SEQUENCES * ROOM * packed.vocab * sizeof(float));
    free(packed.logits);
    free(dense.logits);
    tsr_model_overlay_destroy(o);
    golden_free(&g);
}

/* Requests with draws: the same tokens from one slot and from three, on any thread count. */
static void draws_do_not_see_the_batch(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct golden     g;
    uint32_t          tokens[3][6][24];
    (void)state;
    golden_load(&g, "qwen2");
    for (int w = 0; w < 3; w++) {
        static const uint32_t     slots[] = { 1, 3, 16 };
        static const unsigned     threads[] = { 1, 2, 7 };
        struct tsr_engine_request q[6];
        struct tsr_engine        *e = golden_engine(registries[threads[w]], g.model, NULL,
                                                    (struct tsr_engine_options){ .slots = slots[w] });
        for (uint64_t i = 0; i < 6; i++)
            q[i] = (struct tsr_engine_request){ .prompt = g.cases[i % g.n].prompt,
                                                .n_prompt = g.cases[i % g.n].n_prompt,
                                                .max_tokens = 24 - 3 * i,
                                                .record = i,
                                                .sampling = { .temperature = 0.9,
                                                              .top_k = 40,
                                                              .top_p = 0.95,
                                                              .repetition_penalty = 1.2,
                                                              .seed = 5 },
                                                .tokens = tokens[w][i] };
        memset(tokens[w], 0, sizeof tokens[w]);
        struct tsr_engine_generate_timing time;
        if (tsr_engine_generate(e, q, 6, &time, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        assert_true(time.prefill_tokens > 0 && time.decode_tokens > 0);
        tsr_engine_destroy(e);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_equal(tokens[0], tokens[2], sizeof tokens[0]);
    assert_memory_not_equal(tokens[0][0], tokens[0][4], 8); /* same prompt, another record */
    golden_free(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_equals_dequantized),
        cmocka_unit_test(on_golden),
        cmocka_unit_test(on_experts),
        cmocka_unit_test(on_demo),
        cmocka_unit_test(on_minimums),
        cmocka_unit_test(draws_do_not_see_the_batch),
    };
    const char *all = getenv("TSR_TEST_ALL"), *seed = getenv("TSR_TEST_SEED");
    sampled = argc > 1 && strcmp(argv[1], "some") == 0 && !(all && *all == '1');
    turn = seed ? strtoull(seed, NULL, 10) % SOME : 0;
    return cmocka_run_group_tests_name("invariance", tests, set_up, tear_down);
}
