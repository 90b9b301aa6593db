/* Drafts of another model: tokens and log probabilities are those without drafts, to the bit, whatever the other model
 * says; drafts of the same model are all right, greedy and drawn. */
#include "golden.h"

#include "base/log.h"
#include "base/rng.h"
#include "engine/drafter.h"
#include "engine/serve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXTS 5u
#define NEW   24u
#define TOP   2u

#include "drafted.h"

/* Prompts of ids below `most`; those after the second begin like the first. */
static struct tsr_engine_drafted generate(const struct tsr_engine_pass *p, uint64_t first,
                                          uint64_t most, uint32_t draft, struct answers *a)
{
    static const double            temperature[TEXTS] = { 0, 0.1, 1, 0.4, 2 };
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_engine_serve_events ev = { .ctx = a, .done = take };
    struct tsr_server             *s = NULL;
    uint32_t                       next = 0, ids[700];
    memset(a, 0, sizeof *a);
    assert_int_equal(tsr_engine_server_create(&s, p, &ev, &e.err), TSR_OK);
    while (next < TEXTS || tsr_engine_server_busy(s)) {
        for (; next < TEXTS && tsr_engine_server_room(s); next++) {
            struct tsr_engine_serve_request q = { .id = next,
                                                  .prompt = ids,
                                                  .n_prompt = first + next,
                                                  .max_tokens = NEW - next,
                                                  .ignore_eos = next % 2 == 0,
                                                  .record = next,
                                                  .sampling = { .temperature = temperature[next],
                                                                .top_k = next == 2 ? 40 : 0,
                                                                .top_p = next == 3 ? 0.9 : 1,
                                                                .repetition_penalty =
                                                                    next == 1 ? 1.3 : 1,
                                                                .seed = 3 },
                                                  .logprobs = true,
                                                  .top = TOP,
                                                  .draft = draft };
            for (uint64_t k = 0; k < q.n_prompt; k++)
                ids[k] = (uint32_t)(tsr_uniform(9, k < 4 && next > 1 ? 0 : next, k) * (double)most);
            if (tsr_engine_server_submit(s, &q, &e.err) != TSR_OK)
                fail_msg("%s", e.text);
        }
        if (tsr_engine_server_step(s, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
    struct tsr_engine_drafted n = *tsr_engine_server_drafted(s);
    tsr_engine_server_destroy(s);
    return n;
}

/* ---- one model beside another --------------------------------------------------- */

static uint64_t of_chosen; /* ids of drafts as long as gains time */

/* A model m and the engine that drafts, whose answers are compared with those without.  With drafts of 1 and
 * 16, or of 5 and as many as gain time, in turn; what became of those of fixed length. */
static struct tsr_engine_drafted compare(const char *name, const struct tsr_model *m,
                                         struct tsr_engine *drafts, struct tsr_engine_options o,
                                         uint64_t first, bool chosen)
{
    static const uint32_t        most[] = { 1, 5, TSR_ENGINE_DRAFT_MOST, TSR_ENGINE_DRAFT_CHOSEN };
    static struct answers        plain, drafted;
    static size_t                turn;
    struct tsr_engine_draft_size size = { .bytes = 0.01, .work = 0.01 };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_engine_drafted    all = { 0 };
    struct tsr_engine_pass       p;
    struct tsr_engine           *engine = golden_engine(registry, m, NULL, o);
    uint64_t ids = tsr_engine_vocab(drafts) < tsr_engine_vocab(engine) ? tsr_engine_vocab(drafts)
                                                                       : tsr_engine_vocab(engine);
    tsr_engine_pass_engine(&p, engine);
    assert_int_equal(generate(&p, first, ids, 0, &plain).drafted, 0);
    for (size_t i = turn++ % 2; i < sizeof most / sizeof *most - !chosen; i += 2) {
        assert_int_equal(tsr_engine_draft_model_create(&p.drafter, drafts, p.vocab, &size, &e.err),
                         TSR_OK);
        struct tsr_engine_drafted n = generate(&p, first, ids, most[i], &drafted);
        tsr_engine_draft_model_destroy(p.drafter);
        if (most[i] == TSR_ENGINE_DRAFT_CHOSEN) { /* may draft from the end of a text alone */
            of_chosen += n.drafted;
        } else {
            all.drafted += n.drafted;
            all.accepted += n.accepted;
        }
        if (memcmp(&plain, &drafted, sizeof plain) != 0)
            fail_msg("%s: answers differ with drafts of %u", name, most[i]);
    }
    tsr_engine_destroy(engine);
    return all;
}

static bool can(const struct tsr_model *m, const struct tsr_engine_options *o)
{
    const char *why = NULL;
    return tsr_engine_drafts(&m->hp, o, &why);
}

static void the_same_model_is_always_right(void **state)
{
    static const uint32_t kv[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4 };
    uint64_t              some = 0, n = 0;
    (void)state;
    for (size_t i = 0; golden_names[i]; i++, n++) {
        struct golden             g;
        struct tsr_engine_options o = { .kv_dtype = kv[i % 5],
                                        .slots = 1 + (uint32_t)(i % 3),
                                        .context = 80,
                                        .chunk = i % 2 ? 7 : 64 };
        golden_load(&g, golden_names[i]);
        if (can(g.model, &o)) {
            struct tsr_engine        *d = golden_engine(registry, g.model, NULL, o);
            struct tsr_engine_drafted r = compare(golden_names[i], g.model, d, o, 9, true);
            print_message("%s: %llu of %llu right\n", golden_names[i],
                          (unsigned long long)r.accepted, (unsigned long long)r.drafted);
            assert_true(r.drafted > TEXTS * 10);
            assert_int_equal(r.accepted, r.drafted);
            some++;
            tsr_engine_destroy(d);
        }
        golden_free(&g);
    }
    assert_true(some * 10 >= n * 8);
}

/* Each family drafts for the next: random weights agree rarely, and windows and vocabularies differ. */
static void another_model_changes_nothing(void **state)
{
    struct tsr_engine_options of = { .slots = 2, .context = 80, .chunk = 16 };
    struct golden             g[2];
    uint64_t                  wrong = 0, right = 0;
    size_t                    have = 0;
    (void)state;
    for (size_t i = 0; golden_names[i]; i++) {
        golden_load(&g[have], golden_names[i]);
        if (i % 3 == 2 || !can(g[have].model, &of)) {
            golden_free(&g[have]);
            continue;
        }
        if (++have < 2)
            continue;
        struct tsr_engine        *d = golden_engine(registry, g[0].model, NULL, of);
        struct tsr_engine_drafted r = compare(golden_names[i], g[1].model, d, of, 11, i % 4 == 0);
        right += r.accepted;
        wrong += r.drafted - r.accepted;
        tsr_engine_destroy(d);
        golden_free(&g[0]);
        g[0] = g[1];
        have = 1;
    }
    golden_free(&g[0]);
    print_message("%llu right, %llu wrong\n", (unsigned long long)right, (unsigned long long)wrong);
    assert_true(right > 0 && wrong > 5000);
}

/* Texts longer than the windows of both: the caches move while drafts are in them. */
static void windows_that_move(void **state)
{
    struct tsr_engine_options o = { .slots = 2, .context = 640, .chunk = 16 };
    struct golden             a, b;
    (void)state;
    golden_load(&a, "gemma3");
    golden_load(&b, "mistral");
    struct tsr_engine        *d = golden_engine(registry, a.model, NULL, o);
    struct tsr_engine_drafted r = compare("gemma3", a.model, d, o, 500, false);
    assert_true(r.drafted > 50 && r.accepted == r.drafted);
    assert_true(compare("mistral by gemma3", b.model, d, o, 500, false).drafted > 50);
    tsr_engine_destroy(d);
    golden_free(&a);
    golden_free(&b);
}

/* ---- the cache ------------------------------------------------------------------ */

/* A text that a slot had before runs once; one that differs runs from there on. */
static void what_the_cache_has_runs_once(void **state)
{
    struct tsr_engine_options    o = { .slots = 1, .context = 120 };
    struct tsr_engine_draft_size size = { .bytes = 1, .work = 1 };
    struct tsr_engine_sampling   greedy = { .top_p = 1, .repetition_penalty = 1 };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct golden                g;
    struct tsr_engine_drafter   *d = NULL;
    uint32_t                     ids[60], out[8], goes_on[4];
    uint64_t                     tokens, was;
    (void)state;
    golden_load(&g, "llama3");
    struct tsr_engine *engine = golden_engine(registry, g.model, NULL, o);
    assert_int_equal(tsr_engine_draft_model_create(&d, engine, tsr_engine_vocab(engine), &size,
                                                   &e.err),
                     TSR_OK);
    for (uint32_t i = 0; i < 60; i++)
        ids[i] = (i * 37 + 5) % 300;
    struct tsr_engine_draft_ask a = {
        .ids = ids, .n = 40, .n_prompt = 40, .sampling = &greedy, .ignore_eos = true, .out = out
    };
    a.want = 4;
    assert_int_equal(d->make(d, &g.model->hp, &a, 1, &e.err), TSR_OK);
    assert_int_equal(a.want, 4);
    tokens = d->tokens;
    assert_int_equal(tokens, 40 + 3); /* the last id of a draft does not run */
    assert_true(d->took > 0);
    memcpy(ids + 40, out, 4 * sizeof *ids); /* all were right, and one more came */
    a.n = 45;
    a.want = 2;
    assert_int_equal(d->make(d, &g.model->hp, &a, 1, &e.err), TSR_OK);
    was = tokens;
    tokens = d->tokens;
    assert_int_equal(tokens - was, 2 + 1);
    ids[41] = (ids[41] + 1) % 300; /* another text from there on */
    a.n = 50;
    assert_int_equal(d->make(d, &g.model->hp, &a, 1, &e.err), TSR_OK);
    was = tokens;
    tokens = d->tokens;
    assert_int_equal(tokens - was, 50 - 41 + 1);
    /* the same ids from an empty cache */
    uint32_t twice[2] = { out[0], out[1] };
    tsr_engine_draft_model_destroy(d);
    assert_int_equal(tsr_engine_draft_model_create(&d, engine, tsr_engine_vocab(engine), &size,
                                                   &e.err),
                     TSR_OK);
    a.want = 2;
    assert_int_equal(d->make(d, &g.model->hp, &a, 1, &e.err), TSR_OK);
    assert_memory_equal(out, twice, sizeof twice);
    /* the end of a text is drafted as if the text began there; then it goes on there, then all of it runs */
    struct tsr_engine_draft_ask all = a, end = a;
    a.from = 20;
    a.want = 4;
    tokens = d->tokens;
    assert_int_equal(d->make(d, &g.model->hp, &a, 1, &e.err), TSR_OK);
    assert_int_equal(d->tokens - tokens, 30 + 3);
    memcpy(ids + 50, out, 4 * sizeof *ids);
    a.n = 55;
    tokens = d->tokens;
    assert_int_equal(d->make(d, &g.model->hp, &a, 1, &e.err), TSR_OK);
    assert_int_equal(d->tokens - tokens, 2 + 3);
    memcpy(goes_on, out, sizeof goes_on);
    all.want = 2;
    assert_int_equal(d->make(d, &g.model->hp, &all, 1, &e.err), TSR_OK);
    assert_memory_equal(out, twice, sizeof twice);
    end.ids = ids + 20;
    end.n_prompt = 20;
    end.n = 35;
    end.want = 4;
    assert_int_equal(d->make(d, &g.model->hp, &end, 1, &e.err), TSR_OK);
    assert_memory_equal(out, goes_on, sizeof goes_on);
    assert_memory_not_equal(out, twice, sizeof twice); /* the whole text says something else */
    tsr_engine_draft_model_destroy(d);
    tsr_engine_destroy(engine);
    golden_free(&g);
}

/* Ids that one of the models does not have, and texts beyond its context. */
static void what_it_cannot_draft_has_no_drafts(void **state)
{
    struct tsr_engine_options    o = { .slots = 1, .context = 20 };
    struct tsr_engine_draft_size size = { .bytes = 1, .work = 1 };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct golden                g;
    struct tsr_engine_drafter   *d = NULL;
    uint32_t                     ids[30] = { 1, 2, 3 };
    struct tsr_engine_draft_pace pace;
    (void)state;
    golden_load(&g, "llama3");
    struct tsr_engine *engine = golden_engine(registry, g.model, NULL, o);
    uint32_t           vocab = (uint32_t)tsr_engine_vocab(engine);
    tsr_engine_draft_pace_start(&pace);
    assert_int_equal(tsr_engine_draft_model_create(&d, engine, vocab + 9, &size, &e.err), TSR_OK);
    struct tsr_engine_draft_ask a = { .ids = ids, .n = 3, .n_prompt = 3, .most = 16 };
    d->see(d, &pace, &a, 1, INFINITY);
    assert_int_equal(a.most, 16);
    a.n = 18;
    d->see(d, &pace, &a, 1, INFINITY);
    assert_int_equal(a.most, 3); /* two of them run, at the positions 19 and 20 */
    a.most = 16;
    a.n = 20;
    d->see(d, &pace, &a, 1, INFINITY);
    assert_int_equal(a.most, 1);
    a.most = 16;
    a.n = 21;
    d->see(d, &pace, &a, 1, INFINITY);
    assert_int_equal(a.most, 0);
    ids[1] = vocab;
    a.most = 16;
    a.n = 3;
    d->see(d, &pace, &a, 1, INFINITY);
    assert_int_equal(a.most, 0);
    tsr_engine_draft_model_destroy(d);
    tsr_engine_destroy(engine);
    golden_free(&g);
}

/* ---- faults ---------------------------------------------------------------------- */

/* Logits that are not numbers end the drafts and nothing else. */
static void a_broken_model_ends_its_drafts(void **state)
{
    struct tsr_engine_options o = { .slots = 2, .context = 80 };
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_model_overlay *overlay = NULL;
    struct golden             g;
    (void)state;
    golden_load(&g, "llama3");
    const struct tsr_matrix *w = &g.model->layers[0].lin[TSR_MODEL_DOWN].w;
    assert_int_equal(tsr_model_overlay_create(&overlay, g.model->hp.layers, g.model->hp.linears,
                                              &e.err),
                     TSR_OK);
    struct tsr_model_packed *p = calloc(1, sizeof *p);
    p->rows = w->rows;
    p->cols = w->cols;
    p->format_id = strdup("test.own/1");
    p->format = (struct tsr_format){ .struct_size = sizeof p->format, .id = p->format_id };
    p->dense = calloc(w->rows * w->cols, sizeof(float));
    p->dense[3] = NAN;
    overlay->lin[0][TSR_MODEL_DOWN] = p;
    struct tsr_engine *d = golden_engine(registry, g.model, overlay, o);
    uint64_t           was = of_chosen;
    for (int i = 0; i < 2; i++) /* all lengths */
        assert_int_equal(compare("a broken model", g.model, d, o, 9, true).drafted, 0);
    assert_int_equal(of_chosen, was);
    tsr_engine_destroy(d);
    tsr_model_overlay_destroy(overlay);
    golden_free(&g);
}

static void a_model_with_a_state_is_refused(void **state)
{
    struct tsr_engine_options    o = { .slots = 1, .context = 20 };
    struct tsr_engine_draft_size size = { .bytes = 1, .work = 1 };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct golden                g;
    struct tsr_engine_drafter   *d = NULL;
    (void)state;
    golden_load(&g, "qwen3_next");
    struct tsr_engine *engine = golden_engine(registry, g.model, NULL, o);
    assert_int_equal(tsr_engine_draft_model_create(&d, engine, 320, &size, &e.err),
                     TSR_E_UNSUPPORTED);
    assert_null(d);
    assert_non_null(strstr(e.text, "state"));
    tsr_engine_destroy(engine);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_model_is_always_right),
        cmocka_unit_test(another_model_changes_nothing),
        cmocka_unit_test(windows_that_move),
        cmocka_unit_test(what_the_cache_has_runs_once),
        cmocka_unit_test(what_it_cannot_draft_has_no_drafts),
        cmocka_unit_test(a_broken_model_ends_its_drafts),
        cmocka_unit_test(a_model_with_a_state_is_refused),
    };
    return cmocka_run_group_tests_name("draft_model", tests, set_up, tear_down);
}
