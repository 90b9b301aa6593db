/* Drafts behind the newest token: tokens and log probabilities are those of passes of one token, to the bit, in models of
 * every family and kind of cache, drawn and greedy, one text or several at once. */
#include "golden.h"

#include "base/log.h"
#include "base/rng.h"
#include "engine/serve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXTS 5u
#define NEW   40u
#define TOP   2u

#include "drafted.h"

/* The first two are greedy, and such models soon go in circles; two of the others are drawn near to the best token. */
static struct tsr_engine_drafted generate(const struct tsr_engine_pass *p, uint64_t first,
                                          uint32_t draft, struct answers *a)
{
    static const double            temperature[TEXTS] = { 0, 0, 0.05, 0.2, 1 };
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
                                                                .top_p = 1,
                                                                .repetition_penalty = 1,
                                                                .seed = 3 },
                                                  .logprobs = true,
                                                  .top = TOP,
                                                  .draft = draft };
            for (uint64_t k = 0; k < q.n_prompt; k++) /* the same piece again and again */
                ids[k] = (uint32_t)(tsr_uniform(9, next, k % 5) * (double)p->vocab);
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

/* What became of the drafts. */
static struct tsr_engine_drafted compare(const char *name, const struct tsr_model *m,
                                         struct tsr_engine_options o, uint64_t first)
{
    static const uint32_t     most[] = { 1, 6, TSR_ENGINE_DRAFT_MOST, TSR_ENGINE_DRAFT_CHOSEN };
    static struct answers     plain, drafted;
    static size_t             turn;
    struct tsr_engine_drafted all = { 0 };
    struct tsr_engine_pass    p;
    const char               *why = NULL;
    if (!tsr_engine_drafts(&m->hp, &o, &why)) {
        assert_non_null(why);
        return all;
    }
    struct tsr_engine *e = golden_engine(registry, m, NULL, o);
    tsr_engine_pass_engine(&p, e);
    assert_int_equal(generate(&p, first, 0, &plain).drafted, 0);
    for (size_t i = turn++ % 2; i < sizeof most / sizeof *most; i += 2) {
        struct tsr_engine_drafted n = generate(&p, first, most[i], &drafted);
        all.drafted += n.drafted;
        all.accepted += n.accepted;
        if (memcmp(&plain, &drafted, sizeof plain) != 0)
            fail_msg("%s: answers differ with drafts of %u", name, most[i]);
    }
    tsr_engine_destroy(e);
    return all;
}

static void every_family(void **state)
{
    const uint32_t kv[] = {
        TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4, golden_codec("kivi:bits=4")
    };
    uint64_t some = 0, n = 0, right = 0, wrong = 0;
    (void)state;
    for (size_t i = 0; golden_names[i]; i++, n++) {
        struct golden             g;
        struct tsr_engine_options o = { .kv_dtype = kv[i % 6],
                                        .slots = 1 + (uint32_t)(i % 3),
                                        .context = 80,
                                        .chunk = i % 2 ? 7 : 64 };
        golden_load(&g, golden_names[i]);
        struct tsr_engine_drafted d = compare(golden_names[i], g.model, o, 9);
        print_message("%s: %llu of %llu right\n", golden_names[i], (unsigned long long)d.accepted,
                      (unsigned long long)d.drafted);
        some += d.drafted > 0;
        right += d.accepted;
        wrong += d.drafted - d.accepted;
        golden_free(&g);
    }
    assert_true(some * 10 >=
                n * 8); /* others have a state, or positions that depend on the length */
    assert_true(right > 20 * n && wrong > 20 * n);
}

/* Texts longer than the windows: the cache moves while drafts are in it. */
static void windows_that_move(void **state)
{
    static const char *const names[] = { "mistral", "gemma3", "gpt_oss" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden             g;
        struct tsr_engine_options o = { .slots = 2, .context = 640, .chunk = 16 };
        golden_load(&g, names[i]);
        assert_true(compare(names[i], g.model, o, 500).drafted > 0);
        golden_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(windows_that_move),
    };
    return cmocka_run_group_tests_name("drafts", tests, set_up, tear_down);
}
