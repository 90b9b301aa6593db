/* Layers with a window keep the rows that their window needs: fewer bytes than the context takes, and the
 * bytes of the logits of an engine that keeps them all.
 *
 * An engine whose chunk is about as long as the context keeps all rows, so it is the reference. */
#include "golden.h"
#include "wide.h"

#include "base/log.h"
#include "base/rng.h"
#include "engine/internal.h"
#include "plan/cost/memory.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG  640 /* context, many times the window of each model */
#define SLOTS 3

static const char *backend = "cpu", *plugin;
static bool        few; /* on a slow device: one model, two ways, and the CPU is the reference */

/* Windows of 16, 10, 8, 8 and 14; with sinks, layers of both kinds, rope of their own, layer norm. */
static const char *const names[] = { "mistral", "gemma3", "gpt_oss", "cohere2", "starcoder2" };

static struct tsr_registry *registries[4];
static struct tsr_pool     *pools[4];

static int set_up(void **state)
{
    (void)state;
    tsr_log_set_level(TSR_LOG_WARN + 1); /* contexts beyond the model's own are meant */
    for (unsigned t = 1; t <= 3; t += 2)
        registries[t] = golden_registry(t, plugin, &pools[t]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned t = 1; t <= 3; t += 2)
        golden_registry_close(registries[t], pools[t]);
    return 0;
}

static uint32_t token(const struct tsr_model *m, uint64_t slot, uint64_t i)
{
    return (uint32_t)(tsr_uniform(5, slot, i) * (double)m->hp.vocab);
}

/* ---- bytes ------------------------------------------------------------------------- */

static uint64_t sliding_layers(const struct tsr_model *m)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < m->hp.layers; i++)
        n += m->hp.window[i] != 0;
    return n;
}

/* What the planner counts for the caches of `batch` requests. */
static uint64_t planned(const struct tsr_model *m, uint64_t batch, uint64_t prompt,
                        uint64_t generate, uint32_t type)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_plan_shape     *s = NULL;
    struct tsr_plan_profile    p = { 0 };
    struct tsr_plan_mesh       mesh = { .profile = &p, .tp = 1 };
    struct tsr_plan_memory_job j = {
        .batch = batch, .prompt = prompt, .generate = generate, .kv = type
    };
    uint64_t sum = 0, weights, kv;
    assert_int_equal(tsr_plan_shape_of(&s, m, &e.err), TSR_OK);
    j.shape = s;
    for (uint64_t l = 0; l < s->layers; l++) {
        if (tsr_plan_memory_layer(&j, &mesh, s->layer_class[l], NULL, &weights, &kv, &e.err) !=
            TSR_OK)
            fail_msg("%s", e.text);
        sum += kv;
    }
    tsr_plan_shape_destroy(s);
    return sum;
}

/* Layers of the delta rule: what the planner counts is what the engine has, however long the context is. */
static void bytes_of_states(void **state)
{
    static const char *const recurrent[] = { "qwen3_5", "qwen3_next" };
    (void)state;
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++)
        for (uint32_t slots = 1; slots <= 5; slots += 2) {
            struct golden             g;
            struct tsr_engine_options opt = { .kv_dtype = TSR_F16, .slots = slots };
            uint64_t                  weights, cache[2];
            golden_load(&g, recurrent[i]);
            for (int longer = 0; longer < 2; longer++) {
                opt.context = longer ? 4096 : 64;
                struct tsr_engine *e = golden_engine(registries[1], g.model, NULL, opt);
                tsr_engine_memory(e, &weights, &cache[longer]);
                tsr_engine_destroy(e);
                assert_int_equal(planned(g.model, slots, opt.context - 8, 8, TSR_F16),
                                 cache[longer]);
            }
            uint64_t full = 0, row = 2 * 2 * (uint64_t)g.model->hp.kv_heads * g.model->hp.head_dim;
            for (uint64_t l = 0; l < g.model->hp.layers; l++)
                full += !tsr_model_is_recurrent(&g.model->hp, l);
            assert_true(full > 0 && full < g.model->hp.layers);
            assert_int_equal(cache[1] - cache[0], full * row * slots * (4096 - 64));
            golden_free(&g);
        }
}

static void bytes_of_a_long_context(void **state)
{
    static const uint32_t types[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4 };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < 5; k++) {
            struct golden g;
            uint64_t      weights, one, cache, context = 16384;
            golden_load(&g, names[i]);
            const struct tsr_model_hparams *hp = &g.model->hp;
            uint64_t dim = hp->head_dim, groups = (dim + 31) / 32, sixteens = (dim + 15) / 16;
            uint64_t head[] = { 4 * dim, 2 * dim, dim + 4, dim + 4, 4 * groups + 8 * sixteens };
            uint64_t row = (hp->kv_heads * head[k] + 15) / 16 * 16;
            /* keys of int4: 5 bits of each number in a block, and 32 positions of F16 for each sequence */
            uint64_t byte = (5 * dim + 7) / 8, tail = k == 4 ? (64 * dim + byte - 1) / byte : 0;
            uint64_t key = k == 4 ? (hp->kv_heads * byte + 15) / 16 * 16 : row;
            uint64_t sliding = sliding_layers(g.model), full = hp->layers - sliding;
            /* 16 + 512 + 254 positions, in blocks of 256 */
            uint64_t want =
                2 * (row + key) * (sliding * 1024 + full * context) + 2 * hp->layers * tail * key;

            struct tsr_engine_options opt = { .kv_dtype = types[k],
                                              .slots = 2,
                                              .context = context };
            struct tsr_engine        *e = golden_engine(registries[1], g.model, NULL, opt);
            tsr_engine_memory(e, &weights, &cache);
            tsr_engine_destroy(e);
            assert_int_equal(cache, want);
            assert_int_equal(planned(g.model, 2, context - 100, 100, types[k]), cache);

            /* no more than the context, if the window needs that much */
            opt.slots = 1;
            opt.context = LONG;
            e = golden_engine(registries[1], g.model, NULL, opt);
            tsr_engine_memory(e, &weights, &one);
            tsr_engine_destroy(e);
            assert_int_equal(one, hp->layers * ((row + key) * LONG + tail * key));
            assert_int_equal(planned(g.model, 1, LONG - 1, 1, types[k]), one);
            if (k == 0)
                print_message("%s: %llu of %llu layers with a window; 2 x %llu positions: %llu "
                              "bytes, %llu without windows\n",
                              names[i], (unsigned long long)sliding, (unsigned long long)hp->layers,
                              (unsigned long long)context, (unsigned long long)cache,
                              (unsigned long long)(hp->layers * 2 * row * 2 * context));
            golden_free(&g);
        }
}

/* What a plan counts for the cache of a codec is what the engine takes. */
static void bytes_of_a_codec(void **state)
{
    static const char *const codecs[] = { "kivi:bits=2", "kivi:bits=8" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < 2; k++) {
            struct golden             g;
            uint64_t                  weights, cache;
            struct tsr_engine_options opt = { .kv_dtype = golden_codec(codecs[k]),
                                              .slots = 2,
                                              .context = 4000 };
            golden_load(&g, names[i]);
            struct tsr_engine *e = golden_engine(registries[1], g.model, NULL, opt);
            tsr_engine_memory(e, &weights, &cache);
            tsr_engine_destroy(e);
            assert_true(cache > 0);
            assert_int_equal(planned(g.model, 2, 3900, 100, opt.kv_dtype), cache);
            golden_free(&g);
        }
}

static void rows_of_a_window(void **state)
{
    (void)state;
    assert_int_equal(tsr_engine_window_rows(4096, 512, 32768), 4864); /* 4862 in blocks of 256 */
    assert_int_equal(tsr_engine_window_rows(1, 1, 32768), 256);
    assert_int_equal(tsr_engine_window_rows(2, 1, 32768), 512);
    assert_int_equal(tsr_engine_window_rows(4096, 512, 4800), 4800);
    assert_int_equal(tsr_engine_window_rows(4096, UINT64_MAX, 5000), 5000);
    assert_int_equal(tsr_engine_window_rows(UINT64_MAX, 1, 5000), 5000);
}

/* ---- bits -------------------------------------------------------------------------- */

#define CODEC UINT32_MAX /* for the kv of a plugin */

/* How a sequence runs. */
struct way {
    const char *isa; /* TSR_ISA; NULL: the best of this machine */
    uint32_t    kv;
    unsigned    threads;
    uint64_t    chunk;
    bool        batch; /* with two shorter sequences, in turns that are drawn */
};
static const struct way ways[] = {
    { NULL, TSR_F32, 1, 1, false },    { "scalar", TSR_F32, 1, 100, false },
    { "avx2", TSR_F32, 3, 7, false },  { NULL, TSR_F32, 3, 200, false },
    { NULL, TSR_F32, 1, 64, true },    { NULL, TSR_F16, 1, 64, false },
    { "avx2", TSR_F16, 3, 100, true }, { NULL, TSR_I8, 1, 100, false },
    { "scalar", TSR_I8, 1, 3, true },  { NULL, TSR_E4M3, 3, 100, false },
    { "avx2", TSR_E4M3, 1, 7, true },  { NULL, TSR_Q4, 1, 64, false },
    { "scalar", TSR_Q4, 3, 9, true },  { NULL, CODEC, 1, 64, false },
    { NULL, CODEC, 3, 9, true },
};

#define FEW 5 /* F16; two on is int8 */

static struct tsr_engine *open_engine(const struct tsr_model *m, const struct way *w, bool all)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = { .on.backend = all ? "cpu" : backend,
                                      .kv_dtype =
                                          w->kv == CODEC ? golden_codec("kivi:bits=4") : w->kv,
                                      .slots = w->batch && !all ? SLOTS : 1,
                                      .context = LONG,
                                      .chunk = all ? LONG : w->chunk };
    bool                      isa = w->isa && !all && strcmp(backend, "cpu") == 0;
    if (isa)
        (void)setenv("TSR_ISA", w->isa, 1);
    tsr_status st = tsr_engine_create(&e, registries[w->threads], m, NULL, &opt, &err.err);
    (void)unsetenv("TSR_ISA");
    if (st == TSR_E_CONFIG && isa)
        return NULL; /* not on this machine */
    if (st != TSR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(e->window_rows == 0, all);
    return e;
}

/* Logits of the first n tokens of a sequence, alone. */
static float *alone(struct tsr_engine *e, const struct tsr_model *m, uint64_t seq, uint64_t n)
{
    uint32_t *ids = malloc(n * sizeof *ids);
    assert_non_null(ids);
    for (uint64_t i = 0; i < n; i++)
        ids[i] = token(m, seq, i);
    float *logits = golden_forward(e, ids, n, false);
    free(ids);
    return logits;
}

/* The sequences in turns: calls of up to 200 tokens, in which each gives as many as are drawn. */
static void in_turns(struct tsr_engine *e, const struct tsr_model *m, const uint64_t *n,
                     float *const *want, const char *what)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          vocab = m->hp.vocab, done[SLOTS] = { 0 }, draw = 0;
    float            *out = malloc(200 * vocab * sizeof *out);
    assert_non_null(out);
    while (done[0] < n[0] || done[1] < n[1] || done[2] < n[2]) {
        struct tsr_engine_token t[200];
        uint64_t                count = 0, most = 1 + (uint64_t)(tsr_uniform(9, 1, draw++) * 199);
        uint64_t                at[SLOTS];
        memcpy(at, done, sizeof at);
        for (uint64_t tries = 0; count < most && tries < 1000; tries++) {
            uint32_t s = (uint32_t)(tsr_uniform(9, 2, draw++) * SLOTS);
            if (at[s] < n[s])
                t[count++] = (struct tsr_engine_token){ .id = token(m, s, at[s]++),
                                                        .slot = SLOTS - 1 - s,
                                                        .logits = true };
        }
        if (tsr_engine_forward(e, t, count, out, &err.err) != TSR_OK)
            fail_msg("%s: %s", what, err.text);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t s = SLOTS - 1 - t[i].slot;
            if (memcmp(out + i * vocab, want[s] + done[s] * vocab, vocab * sizeof *out) != 0)
                fail_msg("%s: other logits for sequence %d at position %d", what, (int)s,
                         (int)done[s]);
            done[s]++;
        }
    }
    assert_true(e->slots[SLOTS - 1].base > 0);
    free(out);
}

static void check_way(const struct tsr_model *m, const char *name, const struct way *w,
                      const uint64_t *n, float *const *want)
{
    char what[128];
    (void)snprintf(what, sizeof what, "%s on %s, %s, cache %u, %u threads, chunk %d%s", name,
                   backend, w->isa ? w->isa : "native", w->kv, w->threads, (int)w->chunk,
                   w->batch ? ", in turns" : "");
    struct tsr_engine *e = open_engine(m, w, false);
    if (!e)
        return;
    if (w->batch)
        in_turns(e, m, n, want, what);
    for (uint64_t s = 0; s < (few ? 1 : SLOTS) && !w->batch;
         s += 2) { /* the second after a reset */
        float *got = alone(e, m, s, n[s]);
        for (uint64_t i = 0; i < n[s]; i++)
            if (memcmp(got + i * m->hp.vocab, want[s] + i * m->hp.vocab, m->hp.vocab * 4) != 0)
                fail_msg("%s: other logits for sequence %d at position %d", what, (int)s, (int)i);
        free(got);
    }
    tsr_engine_destroy(e);
}

static void windows_do_not_change_a_bit(void **state)
{
    static const uint64_t n[SLOTS] = { LONG, 200, 560 };
    (void)state;
    for (size_t i = 0; i < (few ? 1 : sizeof names / sizeof *names); i++) {
        struct golden g;
        golden_load(&g, names[i]);
        for (uint32_t kv = 0; kv < 16; kv++) {
            struct way all = { .kv = kv, .threads = 1 };
            float     *want[SLOTS] = { 0 };
            for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
                if (ways[k].kv != kv || (few && k != FEW && k != FEW + 2))
                    continue;
                struct tsr_engine *e = want[0] ? NULL : open_engine(g.model, &all, true);
                for (uint64_t s = 0; s < (few ? 1 : SLOTS) && e; s++)
                    want[s] = alone(e, g.model, s, n[s]);
                tsr_engine_destroy(e);
                check_way(g.model, names[i], &ways[k], n, want);
            }
            for (uint64_t s = 0; s < SLOTS; s++)
                free(want[s]);
        }
        golden_free(&g);
    }
}

/* Two stages, each with the layers of both kinds that fall to it, and calls of different lengths. */
static void stages_give_the_same(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct golden     g;
    (void)state;
    if (strcmp(backend, "cpu") != 0) /* stages and ranks are the engine's */
        skip();
    golden_load(&g, "gemma3");
    const struct tsr_model *m = g.model;
    struct way              all = { .kv = TSR_F32, .threads = 1 };
    struct tsr_engine      *e = open_engine(m, &all, true);
    float                  *want = alone(e, m, 0, LONG);
    tsr_engine_destroy(e);
    struct tsr_engine *first = golden_engine(
        registries[1], m, NULL,
        (struct tsr_engine_options){
            .on.backend = backend, .context = LONG, .chunk = 40, .end = 1, .no_head = true });
    struct tsr_engine *last = golden_engine(
        registries[1], m, NULL,
        (struct tsr_engine_options){
            .on.backend = backend, .context = LONG, .chunk = 150, .first = 1, .no_embed = true });
    float *h = malloc(150 * m->hp.hidden * sizeof *h);
    float *out = malloc(150 * m->hp.vocab * sizeof *out);
    assert_true(h && out);
    for (uint64_t at = 0, count; at < LONG; at += count) {
        struct tsr_engine_token t[150];
        count = at % 3 ? 1 : LONG - at < 149 ? LONG - at : 149;
        for (uint64_t i = 0; i < count; i++)
            t[i] = (struct tsr_engine_token){ .id = token(m, 0, at + i), .logits = true };
        if (tsr_engine_stage(first, t, count, NULL, h, NULL, &err.err) != TSR_OK ||
            tsr_engine_stage(last, t, count, h, NULL, out, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(out, want + at * m->hp.vocab, count * m->hp.vocab * sizeof *out);
    }
    assert_true(first->slots[0].base > 0 && last->slots[0].base > 0);
    tsr_engine_destroy(first);
    tsr_engine_destroy(last);
    free(h);
    free(out);
    free(want);
    golden_free(&g);
}

/* Two ranks that share the layers. */
static pthread_barrier_t meet;
static float            *parts[2];
struct rank {
    struct tsr_engine      *e;
    struct tsr_engine_token t[LONG];
    float                  *logits;
    uint32_t                rank;
    tsr_status              st;
};

static tsr_status sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                      struct tsr_err *err)
{
    const struct rank *r = ctx;
    float             *whole = malloc(rows * cols * sizeof *whole);
    (void)site;
    if (!whole)
        return tsr_fail_nomem(err, rows * cols, "a sum");
    parts[r->rank] = x;
    (void)pthread_barrier_wait(&meet);
    for (uint64_t i = 0; i < rows * cols; i++)
        whole[i] = parts[0][i] + parts[1][i];
    (void)pthread_barrier_wait(&meet);
    memcpy(x, whole, rows * cols * sizeof *whole);
    free(whole);
    return TSR_OK;
}

static void *run_rank(void *arg)
{
    struct rank      *r = arg;
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          hidden = tsr_engine_model(r->e)->hp.hidden;
    float            *h = malloc(LONG * hidden * sizeof *h); /* the sums give every rank the same */
    r->st = h ? tsr_engine_embed(r->e, r->t, LONG, h, &err.err) : TSR_E_NOMEM;
    if (r->st == TSR_OK)
        r->st = tsr_engine_stage(r->e, r->t, LONG, h, h, r->logits, &err.err);
    free(h);
    return NULL;
}

static void ranks_give_the_same(void **state)
{
    static struct rank r[2];
    pthread_t          id[2];
    char               folder[64];
    uint64_t           weights, whole, cache;
    (void)state;
    if (strcmp(backend, "cpu") != 0)
        skip();
    struct tsr_model  *m = wide_load("gemma2", false, folder);
    struct way         all = { .kv = TSR_F16, .threads = 1 };
    struct tsr_engine *e = open_engine(m, &all, true);
    float             *want = alone(e, m, 0, LONG);
    tsr_engine_destroy(e);
    struct tsr_engine_options opt = {
        .on.backend = backend, .kv_dtype = TSR_F16, .context = LONG, .chunk = 60
    };
    e = golden_engine(registries[1], m, NULL, opt);
    tsr_engine_memory(e, &weights, &whole);
    tsr_engine_destroy(e);
    (void)pthread_barrier_init(&meet, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct tsr_engine_tp tp = { .rank = i, .ranks = 2, .sum = sum, .ctx = &r[i] };
        opt.tp = &tp;
        opt.no_head = i > 0;
        r[i] = (struct rank){ .rank = i, .e = golden_engine(registries[1], m, NULL, opt) };
        r[i].logits = i ? NULL : malloc(LONG * m->hp.vocab * sizeof *r->logits);
        for (uint64_t k = 0; k < LONG; k++)
            r[i].t[k] = (struct tsr_engine_token){ .id = token(m, 0, k), .logits = i == 0 };
        tsr_engine_memory(r[i].e, &weights, &cache);
        assert_int_equal(cache * 2, whole);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&id[i], NULL, run_rank, &r[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
    assert_true(r[0].st == TSR_OK && r[1].st == TSR_OK && r[1].e->slots[0].base > 0);
    assert_memory_equal(r[0].logits, want, LONG * m->hp.vocab * sizeof *want);
    for (int i = 0; i < 2; i++) {
        tsr_engine_destroy(r[i].e);
        free(r[i].logits);
    }
    (void)pthread_barrier_destroy(&meet);
    free(want);
    wide_free(m, folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_codec),
        cmocka_unit_test(rows_of_a_window),
        cmocka_unit_test(bytes_of_a_long_context),
        cmocka_unit_test(bytes_of_states),
        cmocka_unit_test(windows_do_not_change_a_bit),
        cmocka_unit_test(stages_give_the_same),
        cmocka_unit_test(ranks_give_the_same),
    };
    if (argc > 1)
        backend = argv[1];
    if (argc > 2 && *argv[2])
        plugin = argv[2];
    few = argc > 3;
    return cmocka_run_group_tests_name(backend, tests, set_up, tear_down);
}
