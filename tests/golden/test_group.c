/* Ranks as threads and as processes, in stages and beside each other, with any micro-batches: every record
 * gets the tokens and log probabilities of one engine, to the bit.  Sampled by TSR_TEST_SEED unless
 * TSR_TEST_ALL=1. */
#include "even_layout.h"
#include "golden.h"
#include "wide.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "config/config.h"
#include "quant/scheme.h"
#include "runtime/group.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define REQUESTS 9u
#define NEW      5u
#define TOP      3u
#define CONTEXT  40u

static struct tsr_registry     *registry;
static struct tsr_pool         *pool;
static uint64_t                 seed;
static bool                     all;
static struct tsr_quant_scheme *while_loading; /* what compare() lets ranks pack, or NULL */

static int set_up(void **state)
{
    const char *a = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    (void)state;
    all = a && strcmp(a, "1") == 0;
    seed = s ? strtoull(s, NULL, 10) : (uint64_t)time(NULL);
    print_message("TSR_TEST_SEED=%llu\n", (unsigned long long)seed);
    registry = golden_registry(1, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

/* What every record got. */
struct answers {
    uint32_t                  token[REQUESTS][NEW];
    struct tsr_engine_logprob own[REQUESTS][CONTEXT], top[REQUESTS][CONTEXT][TOP];
    uint32_t                  done;
};

static tsr_status take(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    struct answers *a = ctx;
    if (r->finish == TSR_ENGINE_FINISH_FAILED)
        return tsr_fail(err, r->status, "%s", r->error);
    assert_true(r->id < REQUESTS && r->n_tokens == NEW);
    memcpy(a->token[r->id], r->tokens, sizeof a->token[0]);
    assert_int_equal(r->n_logprobs, NEW + (r->id % 3 == 0 ? r->n_prompt - 1 : 0));
    memcpy(a->own[r->id], r->logprobs, r->n_logprobs * sizeof a->own[0][0]);
    memcpy(a->top[r->id], r->tops, r->n_logprobs * sizeof a->top[0][0]);
    a->done++;
    return TSR_OK;
}

static uint32_t                  drafting; /* ids of a draft of each request */
static struct tsr_engine_drafted drafts;   /* of all passes */

static struct tsr_engine_serve_request request(uint32_t i, uint64_t vocab, uint32_t ids[CONTEXT])
{
    struct tsr_engine_serve_request q = { .id = i,
                                          .prompt = ids,
                                          .n_prompt = 1 + (i * 7) % 23,
                                          .max_tokens = NEW,
                                          .ignore_eos = true,
                                          .record = i,
                                          .sampling = { .temperature = i % 2 ? 1 : 0,
                                                        .top_p = 1,
                                                        .repetition_penalty = 1,
                                                        .seed = 3 },
                                          .logprobs = true,
                                          .prompt_logprobs = i % 3 == 0,
                                          .top = TOP,
                                          .draft = drafting };
    for (uint64_t k = 0; k < q.n_prompt; k++)
        ids[k] = (uint32_t)(tsr_uniform(9, i, i % 2 ? k : k % 4) * (double)vocab);
    return q;
}

/* Runs all records through a pass. */
static tsr_status serve(const struct tsr_engine_pass *p, struct answers *a, struct tsr_err *err)
{
    struct tsr_engine_serve_events ev = { .ctx = a, .done = take };
    struct tsr_server             *s = NULL;
    uint32_t                       next = 0;
    memset(a, 0, sizeof *a);
    tsr_status st = tsr_engine_server_create(&s, p, &ev, err);
    while (st == TSR_OK && (next < REQUESTS || tsr_engine_server_busy(s))) {
        for (; st == TSR_OK && next < REQUESTS && tsr_engine_server_room(s); next++) {
            uint32_t                        ids[CONTEXT];
            struct tsr_engine_serve_request q = request(next, p->vocab, ids);
            st = tsr_engine_server_submit(s, &q, err);
        }
        if (st == TSR_OK)
            st = tsr_engine_server_step(s, err);
    }
    if (s) {
        drafts.drafted += tsr_engine_server_drafted(s)->drafted;
        drafts.accepted += tsr_engine_server_drafted(s)->accepted;
    }
    tsr_engine_server_destroy(s);
    return st;
}

static uint32_t    kv = TSR_F16; /* the caches of both sides */
static const char *kv_layers;

static void plain(const struct tsr_model *m, const struct tsr_model_overlay *o, uint32_t act,
                  struct answers *a)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options opt = {
        .act = act, .kv_dtype = kv, .kv_layers = kv_layers, .slots = 2, .context = CONTEXT
    };
    struct tsr_engine     *e = golden_engine(registry, m, o, opt);
    struct tsr_engine_pass p;
    tsr_engine_pass_engine(&p, e);
    if (serve(&p, a, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(a->done, REQUESTS);
    tsr_engine_destroy(e);
}

struct way {
    uint32_t           replicas, stages, ranks, slots, prefill, decode;
    uint64_t           chunk;
    enum tsr_rank_kind kind;
    bool               head_first;
};

static void compare(const char *what, const struct tsr_model *m, const struct tsr_model_overlay *o,
                    uint32_t act, const struct way *w, const struct answers *want)
{
    struct tsr_errbuf                err = TSR_ERRBUF(err);
    struct tsr_runtime_layout        l;
    struct tsr_runtime_group        *c = NULL;
    struct tsr_engine_pass           p;
    struct answers                  *got = malloc(sizeof *got);
    struct tsr_runtime_group_options opt = { .ranks = w->kind,
                                             .act = act,
                                             .kv_dtype = TSR_F16,
                                             .context = CONTEXT,
                                             .threads = 1,
                                             .scheme = while_loading };
    assert_non_null(got);
    if (even_layout(&l, &m->hp, w->replicas, w->stages, w->ranks, w->slots, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    l.prefill_mb = w->prefill;
    l.decode_mb = w->decode;
    l.chunk = w->chunk;
    l.forward = w->chunk;
    l.head_first = w->head_first;
    if (tsr_runtime_group_start(&c, registry, m, o, &l, &opt, &err.err) != TSR_OK)
        fail_msg("%s: %s", what, err.text);
    tsr_runtime_group_pass(c, &p);
    const char *why = NULL; /* NULL: with drafts, which change nothing */
    assert_int_equal(tsr_runtime_group_drafts(c, &why, &err.err), TSR_OK);
    drafting = why ? 0 : 1 + w->slots;
    tsr_status st = serve(&p, got, &err.err);
    drafting = 0;
    if (st != TSR_OK)
        fail_msg("%s: %s", what, err.text);
    if (tsr_runtime_group_stop(c, &err.err) != TSR_OK)
        fail_msg("%s: %s", what, err.text);
    tsr_runtime_group_destroy(c);
    if (memcmp(got, want, sizeof *got) != 0)
        fail_msg("%s: %u replicas, %u stages of %u ranks (kind %d), micro-batches %u and %u, chunk "
                 "%llu, head "
                 "%s: other answers",
                 what, w->replicas, w->stages, w->ranks, (int)w->kind, w->prefill, w->decode,
                 (unsigned long long)w->chunk, w->head_first ? "first" : "last");
    tsr_runtime_layout_free(&l);
    free(got);
}

/* One of every kind and width, micro-batches by chance; `share`: which of them run. */
static void ways(const char *what, const struct tsr_model *m, const struct tsr_model_overlay *o,
                 uint32_t act, double share)
{
    struct answers *want = malloc(sizeof *want);
    uint64_t        draw = 0, stream = strlen(what);
    assert_non_null(want);
    plain(m, o, act, want);
    for (uint32_t ranks = 1; ranks <= 4; ranks *= 2)
        for (uint32_t stages = 1; stages <= 3; stages++)
            for (int kind = 0; kind < 2; kind++) {
                uint32_t   slots = 1 + (uint32_t)(tsr_uniform(seed, stream, draw++) * 7);
                struct way w = { .replicas = 1, .stages = stages, .ranks = ranks, .slots = slots };
                w.decode = 1 + (uint32_t)(tsr_uniform(seed, stream, draw++) * slots);
                w.prefill = 1 + (uint32_t)(tsr_uniform(seed, stream, draw++) * w.decode);
                w.chunk = tsr_uniform(seed, stream, draw++) < 0.5 ? 0 : 1 + draw % 6;
                w.kind = (enum tsr_rank_kind)kind;
                if (slots > 1 && tsr_uniform(seed, stream, draw++) < 0.3)
                    w.replicas = 2;
                if (w.decode > (slots + w.replicas - 1) / w.replicas)
                    w.decode = (slots + w.replicas - 1) / w.replicas;
                if (w.prefill > w.decode)
                    w.prefill = w.decode;
                for (int first = 0; first < (stages > 1 ? 2 : 1); first++) {
                    w.head_first = first;
                    if (all || tsr_uniform(seed, stream, draw++) < (stages > 1 ? share / 2 : share))
                        compare(what, m, o, act, &w, want);
                }
            }
    free(want);
}

static void dense(void **state)
{
    (void)state;
    for (size_t i = 0; wide_names[i]; i++) {
        char              folder[64];
        struct tsr_model *m = wide_load(wide_names[i], true, folder);
        ways(wide_names[i], m, NULL, TSR_ACT_F32, i == 0 ? 0.25 : 0.08);
        wide_free(m, folder);
    }
}

static void latent(void **state)
{
    (void)state;
    for (size_t i = 0; wide_latent_names[i]; i++) {
        char              folder[64];
        struct tsr_model *m = wide_load(wide_latent_names[i], true, folder);
        ways(wide_latent_names[i], m, NULL, TSR_ACT_F32, 0.08);
        wide_free(m, folder);
    }
}

static void delta(void **state)
{
    (void)state;
    for (size_t i = 0; wide_delta_names[i]; i++) {
        char              folder[64];
        struct tsr_model *m = wide_load(wide_delta_names[i], true, folder);
        ways(wide_delta_names[i], m, NULL, TSR_ACT_F32, 0.05);
        wide_free(m, folder);
    }
}

static void packed(void **state)
{
    (void)state;
    char                      folder[64];
    struct tsr_model         *m = wide_load("llama", false, folder);
    struct tsr_model_overlay *o = wide_pack(registry, m, "use: rtn\nbits: 4\ngroup: 32\n");
    ways("llama a8", m, o, TSR_ACT_A8, 0.2);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

/* Stages of other widths one behind the other, and more micro-batches than a rank holds. */
static void other_widths(void **state)
{
    static const uint32_t ranks[][2] = { { 4, 1 }, { 1, 4 }, { 4, 2 } };
    struct tsr_errbuf     err = TSR_ERRBUF(err);
    char                  folder[64];
    struct tsr_model     *m = wide_load("llama", true, folder);
    struct answers       *want = malloc(sizeof *want), *got = malloc(sizeof *got);
    (void)state;
    assert_true(want && got);
    kv = TSR_Q4;
    kv_layers = "0=fp8,2=int8";
    plain(m, NULL, TSR_ACT_F32, want);
    for (size_t i = 0; i < 2 * (sizeof ranks / sizeof *ranks); i++) {
        struct tsr_runtime_layout        l;
        struct tsr_runtime_group        *c = NULL;
        struct tsr_engine_pass           p;
        struct tsr_runtime_group_options opt = { .ranks = (enum tsr_rank_kind)(i % 2),
                                                 .kv_dtype = kv,
                                                 .kv_layers = kv_layers,
                                                 .context = CONTEXT,
                                                 .threads = 1 };
        assert_int_equal(even_layout(&l, &m->hp, 1, 2, 1, 4, &err.err), TSR_OK);
        l.stages[0].ranks = ranks[i / 2][0];
        l.stages[1].ranks = ranks[i / 2][1];
        l.decode_mb = 2;
        l.prefill_mb = 1;
        l.head_first = i / 2 % 2 == 0;
        if (tsr_runtime_group_start(&c, registry, m, NULL, &l, &opt, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        tsr_runtime_group_pass(c, &p);
        if (serve(&p, got, &err.err) != TSR_OK || tsr_runtime_group_stop(c, &err.err) != TSR_OK)
            fail_msg("%u and %u ranks: %s", l.stages[0].ranks, l.stages[1].ranks, err.text);
        tsr_runtime_group_destroy(c);
        assert_memory_equal(got, want, sizeof *got);
        tsr_runtime_layout_free(&l);
    }
    kv = TSR_F16;
    kv_layers = NULL;
    free(want);
    free(got);
    wide_free(m, folder);
}

/* Ranks pack their part of their layers while they load it: as if all had been packed before. */
static void packed_while_loaded(void **state)
{
    static const char scheme[] = "use: rtn\nbits: 4\ngroup: 32\n"
                                 "rules:\n  - {tensors: '*.o_proj', layers: 1, keep: true}\n"
                                 "  - {tensors: '*.k_proj', keep: true}\n";
    static const struct {
        const char        *family;
        uint32_t           stages, ranks;
        enum tsr_rank_kind kind;
    } cases[] = { { "qwen2", 2, 2, TSR_RUNTIME_RANKS_PROCESSES },
                  { "qwen2", 2, 2, TSR_RUNTIME_RANKS_THREADS },
                  { "bloom", 1, 4, TSR_RUNTIME_RANKS_PROCESSES },
                  { "phi3", 1, 4, TSR_RUNTIME_RANKS_THREADS },
                  { "delta", 1, 4, TSR_RUNTIME_RANKS_PROCESSES },
                  { "delta-fused", 2, 2, TSR_RUNTIME_RANKS_THREADS } };
    struct answers *want = malloc(sizeof *want);
    (void)state;
    assert_non_null(want);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf        err = TSR_ERRBUF(err);
        char                     folder[64];
        struct tsr_model        *m = wide_load(cases[i].family, true, folder);
        struct tsr_config_doc   *doc = NULL;
        struct tsr_diag         *d = NULL;
        struct tsr_quant_scheme *s = NULL;
        struct way               w = { .replicas = 1, .slots = 4, .prefill = 1, .decode = 2 };
        w.stages = cases[i].stages;
        w.ranks = cases[i].ranks;
        w.kind = cases[i].kind;
        struct tsr_model_overlay *o = wide_pack(registry, m, scheme);
        plain(m, o, TSR_ACT_A8, want);
        tsr_model_overlay_destroy(o);
        assert_int_equal(tsr_config_diag_create(&d, &err.err), TSR_OK);
        assert_int_equal(tsr_config_doc_parse(&doc, "scheme", scheme, strlen(scheme), d, &err.err),
                         TSR_OK);
        assert_int_equal(tsr_quant_scheme_create(&s, registry, tsr_config_doc_root(doc), NULL,
                                                 "the scheme", d, &err.err),
                         TSR_OK);
        while_loading = s;
        compare("packed while loaded", m, NULL, TSR_ACT_A8, &w, want);
        while_loading = NULL;
        tsr_quant_scheme_destroy(s);
        tsr_config_doc_destroy(doc);
        tsr_config_diag_destroy(d);
        wide_free(m, folder);
    }
    free(want);
}

/* A killed process is named, and nothing hangs or is left. */
static void killed(void **state)
{
    struct tsr_errbuf                err = TSR_ERRBUF(err);
    char                             folder[64];
    struct tsr_model                *m = wide_load("llama", true, folder);
    struct tsr_runtime_layout        l;
    struct tsr_runtime_group        *c = NULL;
    struct tsr_runtime_group_options opt = {
        .kv_dtype = TSR_F16, .context = CONTEXT, .threads = 1, .ranks = TSR_RUNTIME_RANKS_PROCESSES
    };
    struct tsr_engine_pass  p;
    struct tsr_engine_token t = { .id = 1, .slot = 0, .logits = true };
    float                  *logits = malloc(m->hp.vocab * sizeof *logits);
    (void)state;
    assert_non_null(logits);
    assert_int_equal(even_layout(&l, &m->hp, 1, 3, 1, 1, &err.err), TSR_OK);
    assert_int_equal(tsr_runtime_group_start(&c, registry, m, NULL, &l, &opt, &err.err), TSR_OK);
    tsr_runtime_group_pass(c, &p);
    assert_int_equal(p.start(p.ctx, 0, &t, 1, logits, &err.err), TSR_OK);
    assert_int_equal(p.finish(p.ctx, 0, &err.err), TSR_OK);
    assert_int_equal(kill(atomic_load(&tsr_runtime_group_page(c)->rank[1].progress.pid), SIGKILL),
                     0);
    tsr_status st = p.start(p.ctx, 0, &t, 1, logits, &err.err);
    if (st == TSR_OK)
        st = p.finish(p.ctx, 0, &err.err);
    assert_int_equal(st, TSR_E_DEVICE);
    assert_true(error_is(&err.err, "", "rank#1 signal#9"));
    tsr_runtime_group_destroy(c);
    tsr_runtime_layout_free(&l);
    free(logits);
    wide_free(m, folder);
}

/* A rank that cannot load ends the others, and says why. */
static void cannot_load(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    char                      folder[64];
    struct tsr_model         *m = wide_load("llama", true, folder);
    struct tsr_runtime_layout l;
    struct tsr_runtime_group *c = NULL;
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct tsr_runtime_group_options opt = { .kv_dtype = TSR_F16,
                                                 .context = CONTEXT,
                                                 .threads = 1,
                                                 .ranks = (enum tsr_rank_kind)kind,
                                                 .on.backend = "no-such-backend" };
        assert_int_equal(even_layout(&l, &m->hp, 1, 2, 2, 2, &err.err), TSR_OK);
        assert_int_not_equal(tsr_runtime_group_start(&c, registry, m, NULL, &l, &opt, &err.err),
                             TSR_OK);
        assert_true(error_is(&err.err, "no-such-backend", "rank"));
        tsr_runtime_layout_free(&l);
        assert_int_equal(even_layout(&l, &m->hp, 1, 1, 8, 2, &err.err), TSR_OK);
        opt.on.backend = NULL;
        assert_int_equal(tsr_runtime_group_start(&c, registry, m, NULL, &l, &opt, &err.err),
                         TSR_E_CONFIG);
        assert_true(error_is(&err.err, "o_proj", "1 2 4"));
        tsr_runtime_layout_free(&l);
    }
    wide_free(m, folder);
}

/* Of those above. */
static void some_drafts_were_right(void **state)
{
    (void)state;
    print_message("%llu of %llu drafted tokens were right\n", (unsigned long long)drafts.accepted,
                  (unsigned long long)drafts.drafted);
    assert_true(drafts.accepted > 0 && drafts.drafted > drafts.accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),
        cmocka_unit_test(latent),
        cmocka_unit_test(delta),
        cmocka_unit_test(packed),
        cmocka_unit_test(other_widths),
        cmocka_unit_test(packed_while_loaded),
        cmocka_unit_test(killed),
        cmocka_unit_test(cannot_load),
        cmocka_unit_test(some_drafts_were_right),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
