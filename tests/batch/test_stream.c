/* Answers in parts: over a toy model that makes tokens of the demo model's vocabulary at random, with bytes of characters
 * among them.  What the parts of a choice give, one after the other, is the answer that comes whole. */
#include "base/file.h"
#include "base/rng.h"
#include "batch/fan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB   4096u
#define SLOTS   3u
#define CONTEXT 64u
#define ROUNDS  150u

/* a, b, c, " ", "th", "the", and the bytes of e acute and of a character of three bytes */
static const uint32_t LIKELY[] = { 64, 65, 66, 220, 401, 1496, 127, 102, 160, 116, 244 };
#define EOS 66u /* c, where it counts */

static struct tsr_tokenizer *tokenizer;

struct toy {
    struct tsr_model_hparams hp;
    uint64_t                 hash[SLOTS], seed;
};

static tsr_status toy_start(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                            uint64_t n, float *logits, struct tsr_err *err)
{
    struct toy *t = ctx;
    (void)slot_set;
    (void)err;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *h = &t->hash[tokens[i].slot];
        *h = *h * 1000003 + tokens[i].id + 7;
        if (!tokens[i].logits)
            continue;
        for (uint32_t v = 0; v < VOCAB; v++)
            logits[v] = -40;
        for (uint64_t k = 0; k < sizeof LIKELY / sizeof *LIKELY; k++)
            logits[LIKELY[k]] = (float)(3 * tsr_uniform(t->seed, *h, k));
        logits += VOCAB;
    }
    return TSR_OK;
}

static tsr_status toy_finish(void *ctx, uint32_t slot_set, struct tsr_err *err)
{
    (void)ctx;
    (void)slot_set;
    (void)err;
    return TSR_OK;
}

static void toy_reset(void *ctx, uint32_t slot)
{
    ((struct toy *)ctx)->hash[slot] = 0;
}

/* ---- a request through the fan -------------------------------------------- */

struct got {
    json_t  *whole; /* [choices] */
    json_t  *parts; /* [choices] of the same form, of the parts so far */
    uint64_t events, ended, gone;
    bool     leaves; /* after the first event */
};

static void extend(json_t *o, const char *key, const json_t *more)
{
    json_t *list = json_object_get(o, key);
    if (json_is_array(more) && json_is_array(list))
        assert_int_equal(json_array_extend(list, (json_t *)(uintptr_t)more), 0);
    else
        assert_int_equal(json_object_set(o, key, (json_t *)(uintptr_t)more), 0);
}

static void join(json_t *all, const json_t *delta)
{
    json_t *text = json_object_get(all, "text"), *logprobs = json_object_get(all, "logprobs");
    const char *new = json_string_value(json_object_get(delta, "text")), *key;
    json_t *v, *more = json_object_get(delta, "logprobs");
    char    sum[4096];
    assert_true(json_is_null(json_object_get(all, "finish_reason"))); /* nothing after the end */
    if (new) {
        const char *old = json_is_string(text) ? json_string_value(text) : "";
        assert_true((size_t)snprintf(sum, sizeof sum, "%s%s", old, new) < sizeof sum);
        assert_int_equal(json_object_set_new(all, "text", json_string(sum)), 0);
    }
    if (json_object_get(delta, "tokens"))
        extend(all, "tokens", json_object_get(delta, "tokens"));
    if (json_is_null(logprobs) && json_is_object(more))
        assert_int_equal(json_object_set_new(all, "logprobs", json_deep_copy(more)), 0);
    else
        json_object_foreach (more, key, v)
            extend(logprobs, key, v);
    assert_int_equal(json_object_set(all, "finish_reason", json_object_get(delta, "finish_reason")),
                     0);
}

static tsr_status on_grown(void *ctx, const struct tsr_batch_taken *t, json_t *delta,
                           struct tsr_err *err)
{
    struct got *g = ctx;
    (void)err;
    assert_false(t->gone);
    join(json_array_get(g->parts, (size_t)json_integer_value(json_object_get(delta, "index"))),
         delta);
    json_decref(delta);
    g->events++;
    return TSR_OK;
}

static tsr_status on_ended(void *ctx, struct tsr_batch_taken *t, struct tsr_err *err)
{
    struct got *g = ctx;
    (void)err;
    g->ended++;
    g->gone += t->gone;
    assert_true(t->gone || t->failed == t->choices);
    assert_true((t->answer == NULL) == t->request.stream);
    g->whole = t->answer;
    t->answer = NULL;
    return TSR_OK;
}

static struct got answer(struct toy *toy, const char *body, const struct tsr_tokenizer *tok,
                         bool leaves)
{
    struct tsr_errbuf                 e = TSR_ERRBUF(e);
    struct tsr_batch_taken            taken[2] = { 0 };
    struct got                        g = { .parts = json_array(), .leaves = leaves };
    struct tsr_batch_fan              f = { .taken = taken,
                                            .places = 2,
                                            .tokenizer = tok,
                                            .ctx = &g,
                                            .grown = on_grown,
                                            .ended = on_ended };
    struct tsr_engine_serve_events    ev = { .ctx = &f,
                                             .token = tsr_batch_fan_on_token,
                                             .grown = tsr_batch_fan_on_grown,
                                             .done = tsr_batch_fan_on_done };
    struct tsr_engine_pass            p = { .ctx = toy,
                                            .slots = SLOTS,
                                            .slot_sets = 1,
                                            .context = CONTEXT,
                                            .vocab = VOCAB,
                                            .start = toy_start,
                                            .finish = toy_finish,
                                            .reset = toy_reset,
                                            .hp = &toy->hp };
    struct tsr_batch_request_defaults d = {
        .max_tokens = 16,
        .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
        .streams = true,
        .context = CONTEXT,
        .tokenizer = tok,
        .pass = &p
    };
    assert_int_equal(tsr_engine_server_create(&f.server, &p, &ev, &e.err), TSR_OK);
    if (tsr_batch_request_parse_body(&taken[1].request, body, strlen(body), false, &d, &e.err) !=
        TSR_OK)
        fail_msg("%s: %s", body, e.text);
    for (uint32_t i = 0; i < tsr_batch_request_choices(&taken[1].request); i++)
        assert_int_equal(json_array_append_new(g.parts,
                                               json_pack("{s:i, s:n, s:n, s:n}", "index", (int)i,
                                                         "text", "logprobs", "finish_reason")),
                         0);
    assert_int_equal(tsr_batch_fan_begin(&f, &taken[1], 0, &e.err), TSR_OK);
    while (tsr_engine_server_busy(f.server) || tsr_batch_fan_waits(&f)) {
        if (leaves && g.events)
            assert_int_equal(tsr_batch_fan_leave(&f, &taken[1], &e.err), TSR_OK);
        assert_int_equal(tsr_batch_fan_feed(&f, &e.err), TSR_OK);
        assert_int_equal(tsr_engine_server_step(f.server, &e.err), TSR_OK);
    }
    assert_int_equal(g.ended, 1);
    assert_false(taken[1].busy);
    tsr_engine_server_destroy(f.server);
    return g;
}

static void release(struct got *g)
{
    json_decref(g->whole);
    json_decref(g->parts);
}

static void same(const json_t *a, const json_t *b, const char *body)
{
    char *x = json_dumps(a, JSON_SORT_KEYS), *y = json_dumps(b, JSON_SORT_KEYS);
    if (strcmp(x, y) != 0)
        fail_msg("%s\nwhole: %s\nparts: %s", body, x, y);
    free(x);
    free(y);
}

/* ---- tests ------------------------------------------------------------------ */

static uint64_t pick(uint64_t round, uint64_t what, uint64_t n)
{
    return (uint64_t)(tsr_uniform(5, round, what) * (double)n);
}

/* A stretch of the text as a stop string, or with another end, so that it begins and does not end. */
static char *stop_from(const char *text, uint64_t round, uint64_t what)
{
    uint64_t n = strlen(text), from = n ? pick(round, what, n) : 0;
    while (((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    uint64_t end = from + 1 + pick(round, what + 1, 5);
    end = end < n ? end : n;
    while (((unsigned char)text[end] & 0xc0) == 0x80)
        end++;
    char *s = calloc(1, end - from + 2);
    memcpy(s, text + from, end - from);
    if (pick(round, what + 2, 3) == 0 || end == from)
        s[end - from] = 'z';
    return s;
}

static json_t *request(uint64_t round, const char *text)
{
    json_t *stops = json_array();
    for (uint64_t i = 0; text && i < pick(round, 1, 4); i++) {
        char *s = stop_from(text, round, 10 + 3 * i);
        assert_int_equal(json_array_append_new(stops, json_string(s)), 0);
        free(s);
    }
    json_t *q = json_pack("{s:s, s:I, s:I, s:I, s:b, s:o}", "prompt", "abc th\xc3\xa9",
                          "max_tokens", (json_int_t)pick(round, 2, 40), "seed", (json_int_t)round,
                          "n", (json_int_t)(1 + pick(round, 3, 4)), "echo", (int)pick(round, 4, 2),
                          "stop", stops);
    if (pick(round, 5, 2))
        (void)json_object_set_new(q, "logprobs", json_integer((json_int_t)pick(round, 6, 3)));
    return q;
}

static char *stream_of(const json_t *q)
{
    json_t *s = json_deep_copy(q);
    (void)json_object_set_new(s, "stream", json_true());
    char *text = json_dumps(s, 0);
    json_decref(s);
    return text;
}

static void parts_are_the_whole(void **state)
{
    uint64_t stopped = 0, events = 0;
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct toy toy = { .hp = { .eos = { EOS }, .n_eos = round % 3 == 0 }, .seed = round };
        json_t    *q = request(round, NULL);
        char      *body = json_dumps(q, 0);
        struct got g = answer(&toy, body, tokenizer, false);
        /* stop strings are made of an answer without them */
        const char *text = json_string_value(json_object_get(json_array_get(g.whole, 0), "text"));
        assert_non_null(text);
        json_t *with = request(round, text);
        free(body);
        release(&g);
        body = json_dumps(with, 0);
        char      *stream = stream_of(with);
        struct got whole = answer(&toy, body, tokenizer, false),
                   parts = answer(&toy, stream, tokenizer, false);
        same(whole.whole, parts.parts, stream);
        assert_int_equal(whole.events, 0);
        events += parts.events;
        for (size_t i = 0; i < json_array_size(whole.whole); i++)
            stopped += strcmp(json_string_value(
                                  json_object_get(json_array_get(whole.whole, i), "finish_reason")),
                              "stop") == 0;
        release(&whole);
        release(&parts);
        json_decref(q);
        json_decref(with);
        free(body);
        free(stream);
    }
    assert_true(stopped > ROUNDS / 3 && events > 10 * ROUNDS);
}

static void ids_come_in_parts_too(void **state)
{
    struct toy toy = { .seed = 3 };
    (void)state;
    struct got whole =
        answer(&toy, "{\"prompt\":[64,65],\"n\":2,\"echo\":true,\"logprobs\":1,\"seed\":1}", NULL,
               false);
    struct got parts = answer(
        &toy,
        "{\"prompt\":[64,65],\"n\":2,\"echo\":true,\"logprobs\":1,\"seed\":1,\"stream\":true}",
        NULL, false);
    same(whole.whole, parts.parts, "ids");
    assert_true(parts.events >= 32);
    release(&whole);
    release(&parts);
}

/* Whoever leaves has no choice that goes on, and none that begins. */
static void one_that_leaves_ends(void **state)
{
    struct toy toy = { .seed = 4 };
    (void)state;
    struct got g =
        answer(&toy, "{\"prompt\":\"a\",\"n\":7,\"max_tokens\":50,\"seed\":1,\"stream\":true}",
               tokenizer, true);
    assert_int_equal(g.gone, 1);
    assert_true(g.events >= 1 && g.events <= SLOTS);
    release(&g);
}

static int load(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *text = NULL;
    uint64_t          n = 0;
    (void)state;
    if (tsr_file_slurp(TSR_SOURCE_ROOT "/configs/demo/tokenizer.json", 16u << 20, &text, &n,
                       &e.err) != TSR_OK ||
        tsr_tokenizer_parse(&tokenizer, "demo", text, n, NULL, 0, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    free(text);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    tsr_tokenizer_destroy(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(ids_come_in_parts_too),
        cmocka_unit_test(one_that_leaves_ends),
    };
    return cmocka_run_group_tests_name("batch_stream", tests, load, unload);
}
