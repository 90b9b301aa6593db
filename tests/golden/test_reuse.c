/* Prompts that begin like what a slot has: tokens and log probabilities are those of a server that keeps nothing, to the
 * bit, in models of every kind of cache; and where bits could differ nothing is kept. */
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

#define TURNS 12u
#define NEW   6u
#define TOP   3u
#define LONG  640u /* many times the windows of the models */

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

static int set_up(void **state)
{
    (void)state;
    tsr_log_set_level(TSR_LOG_WARN + 1); /* contexts beyond the model's own are meant */
    registry = golden_registry(1, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

struct answers {
    uint32_t                  token[TURNS][NEW];
    uint64_t                  n[TURNS];
    struct tsr_engine_logprob own[TURNS][NEW], top[TURNS][NEW * TOP];
};

static tsr_status take(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    struct answers *a = ctx;
    (void)err;
    assert_int_equal(r->finish, TSR_ENGINE_FINISH_LENGTH);
    a->n[r->id] = r->n_tokens;
    memcpy(a->token[r->id], r->tokens, r->n_tokens * sizeof *r->tokens);
    memcpy(a->own[r->id], r->logprobs, r->n_tokens * sizeof *r->logprobs);
    memcpy(a->top[r->id], r->tops, r->n_tokens * TOP * sizeof *r->tops);
    return TSR_OK;
}

/* Two conversations, one after the other and then with others between them; every third turn parts from what was said. */
static uint64_t turn(uint32_t i, const struct answers *a, uint64_t vocab, uint64_t first,
                     uint32_t *ids)
{
    uint64_t n = 0;
    uint32_t from = i < 2 ? i : i % 3 == 2 ? i % 2 : i - 2;
    if (i >= 2) {
        n = turn(from, a, vocab, first, ids);
        if (from == i - 2)
            for (uint64_t k = 0; k < a->n[from]; k++)
                ids[n++] = a->token[from][k];
        else
            n -= 1 + n / 3;
    }
    for (uint64_t k = 0, more = i < 2 ? first + i : 2; k < more; k++)
        ids[n++] = (uint32_t)(tsr_uniform(9, i, k) * (double)vocab);
    return n;
}

static uint64_t converse(const struct tsr_engine_pass *p, uint64_t first, struct answers *a)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_engine_serve_events ev = { .ctx = a, .done = take };
    struct tsr_server             *s = NULL;
    uint32_t                       ids[2 * LONG];
    memset(a, 0, sizeof *a);
    assert_int_equal(tsr_engine_server_create(&s, p, &ev, &e.err), TSR_OK);
    for (uint32_t i = 0; i < TURNS; i++) {
        struct tsr_engine_serve_request q = { .id = i,
                                              .prompt = ids,
                                              .max_tokens = NEW,
                                              .ignore_eos = true,
                                              .record = i,
                                              .sampling = { .temperature = i % 2 ? 1 : 0,
                                                            .top_p = 1,
                                                            .repetition_penalty = 1,
                                                            .seed = 3 },
                                              .logprobs = true,
                                              .top = TOP };
        q.n_prompt = turn(i, a, p->vocab, first, ids);
        if (tsr_engine_server_submit(s, &q, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        while ((i >= 4 && i % 2 == 0 ? tsr_engine_server_room(s) == 0 : true) &&
               tsr_engine_server_busy(s))
            if (tsr_engine_server_step(s, &e.err) != TSR_OK)
                fail_msg("%s", e.text);
    }
    while (tsr_engine_server_busy(s))
        assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
    uint64_t reused = tsr_engine_server_reused(s);
    tsr_engine_server_destroy(s);
    return reused;
}

/* How many tokens were reused. */
static uint64_t compare(const char *name, const struct tsr_model *m, struct tsr_engine_options o,
                        uint64_t first)
{
    static struct answers  plain, kept;
    struct tsr_engine_pass p;
    const char            *why = NULL;
    if (!tsr_engine_reuses(&m->hp, &o, &why)) {
        assert_non_null(why);
        return 0;
    }
    struct tsr_engine *e = golden_engine(registry, m, NULL, o);
    tsr_engine_pass_engine(&p, e);
    assert_int_equal(converse(&p, first, &plain), 0);
    tsr_engine_pass_reuse(&p, &o, 2);
    uint64_t reused = converse(&p, first, &kept);
    tsr_engine_destroy(e);
    if (memcmp(&plain, &kept, sizeof plain) != 0)
        fail_msg("%s: answers differ where %llu tokens were reused", name,
                 (unsigned long long)reused);
    return reused;
}

static void every_family(void **state)
{
    const uint32_t kv[] = {
        TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4, golden_codec("kivi:bits=4")
    };
    uint64_t some = 0, n = 0;
    (void)state;
    for (size_t i = 0; golden_names[i]; i++, n++) {
        struct golden             g;
        struct tsr_engine_options o = {
            .kv_dtype = kv[i % 6], .slots = 3, .context = 120, .chunk = 7
        };
        golden_load(&g, golden_names[i]);
        uint64_t reused = compare(golden_names[i], g.model, o, 9);
        print_message("%s: %llu tokens reused\n", golden_names[i], (unsigned long long)reused);
        some += reused > 0;
        golden_free(&g);
    }
    assert_true(some + 4 >= n); /* but those whose positions depend on the length */
}

/* Rows that have left a window are computed again. */
static void windows_that_moved(void **state)
{
    static const char *const names[] = { "mistral", "gemma3", "gpt_oss" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden             g;
        struct tsr_engine_options o = { .slots = 3, .context = LONG, .chunk = 16 };
        golden_load(&g, names[i]);
        assert_true(compare(names[i], g.model, o, 520) > 0);
        golden_free(&g);
    }
}

/* ---- prompts at the same time -------------------------------------------------- */

#define AT_ONCE 7u

/* Two beginnings; after `first` ids or a part of them each goes its own way. */
static uint64_t serve_together(const struct tsr_engine_pass *p, uint64_t first, struct answers *a)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_engine_serve_events ev = { .ctx = a, .done = take };
    struct tsr_server             *s = NULL;
    uint32_t                       ids[2 * LONG], next = 0;
    memset(a, 0, sizeof *a);
    assert_int_equal(tsr_engine_server_create(&s, p, &ev, &e.err), TSR_OK);
    while (next < AT_ONCE || tsr_engine_server_busy(s)) {
        for (; next < AT_ONCE && tsr_engine_server_room(s); next++) {
            uint64_t                        same = next % 3 == 2 ? first * 3 / 4 : first;
            struct tsr_engine_serve_request q = { .id = next,
                                                  .prompt = ids,
                                                  .n_prompt = first + next,
                                                  .max_tokens = NEW,
                                                  .ignore_eos = true,
                                                  .record = next,
                                                  .sampling = { .temperature = next % 2 ? 1 : 0,
                                                                .top_p = 1,
                                                                .repetition_penalty = 1,
                                                                .seed = 3 },
                                                  .logprobs = true,
                                                  .top = TOP };
            for (uint64_t k = 0; k < q.n_prompt; k++)
                ids[k] = (uint32_t)(tsr_uniform(9, k < same ? next % 5 == 3 : 20 + next, k) *
                                    (double)p->vocab);
            if (tsr_engine_server_submit(s, &q, &e.err) != TSR_OK)
                fail_msg("%s", e.text);
        }
        if (tsr_engine_server_step(s, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
    uint64_t reused = tsr_engine_server_reused(s);
    tsr_engine_server_destroy(s);
    return reused;
}

static uint64_t together(const char *name, const struct tsr_model *m, struct tsr_engine_options o,
                         uint64_t first)
{
    static struct answers  plain, shared;
    struct tsr_engine_pass p;
    const char            *why = NULL;
    if (!tsr_engine_reuses(&m->hp, &o, &why))
        return 0;
    struct tsr_engine *e = golden_engine(registry, m, NULL, o);
    tsr_engine_pass_engine(&p, e);
    assert_int_equal(serve_together(&p, first, &plain), 0);
    tsr_engine_pass_reuse(&p, &o, o.slots);
    uint64_t reused = serve_together(&p, first, &shared);
    tsr_engine_destroy(e);
    if (memcmp(&plain, &shared, sizeof plain) != 0)
        fail_msg("%s: answers differ where %llu tokens were shared", name,
                 (unsigned long long)reused);
    return reused;
}

/* What one of them computes the others have, in every kind of cache; windows that have moved are computed again. */
static void prompts_at_the_same_time(void **state)
{
    const uint32_t kv[] = {
        TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4, golden_codec("kivi:bits=4")
    };
    static const char *const windows[] = { "mistral", "gemma3", "gpt_oss" };
    uint64_t                 some = 0, n = 0;
    (void)state;
    for (size_t i = 0; golden_names[i]; i++, n++) {
        struct golden             g;
        struct tsr_engine_options o = { .kv_dtype = kv[(i + 2) % 6],
                                        .slots = 3 + (uint32_t)(i % 3),
                                        .context = 120,
                                        .chunk = i % 2 ? 7 : 64 };
        golden_load(&g, golden_names[i]);
        uint64_t reused = together(golden_names[i], g.model, o, 70);
        print_message("%s: %llu tokens shared\n", golden_names[i], (unsigned long long)reused);
        some += reused > 150; /* of 7 prompts of 70 and more */
        golden_free(&g);
    }
    assert_true(some * 10 >=
                n * 8); /* but those with a state, or positions that depend on the length */
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct golden             g;
        struct tsr_engine_options o = { .slots = 3, .context = LONG, .chunk = 16 };
        golden_load(&g, windows[i]);
        (void)together(windows[i], g.model, o, 520);
        golden_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(windows_that_moved),
        cmocka_unit_test(prompts_at_the_same_time),
    };
    return cmocka_run_group_tests_name("reuse", tests, set_up, tear_down);
}
