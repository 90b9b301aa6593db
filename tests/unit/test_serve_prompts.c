/* The server where the tokens of prompts get logprobs: over a toy forward pass whose vocabulary is so large that a
 * batch has room for four rows of logits, so that prompts run in pieces. */
#include "base/rng.h"
#include "engine/serve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB   (1u << 22) /* four rows are TSR_ENGINE_SCORE_BYTES */
#define LIKELY  8u         /* ids that have logits of their own */
#define OTHERS  -40.0f
#define SLOTS   3u
#define CONTEXT 24u
#define N       5u
#define TOP     2u

struct toy {
    struct tsr_model_hparams hp;
    uint32_t                 ids[SLOTS][CONTEXT];
    uint64_t                 n[SLOTS], most_rows;
};

/* Logits of the likely ids after a sequence; the last id in it makes them not finite. */
static void likely(const uint32_t *ids, uint64_t n, float out[LIKELY])
{
    uint64_t h = 99;
    bool     bad = false;
    for (uint64_t i = 0; i < n; i++) {
        h = h * 1000003 + ids[i];
        bad = bad || ids[i] == VOCAB - 1;
    }
    for (uint32_t k = 0; k < LIKELY; k++)
        out[k] = bad ? NAN : (float)(6 * tsr_uniform(h, k, 1));
}

static tsr_status toy_start(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                            uint64_t n, float *logits, struct tsr_err *err)
{
    struct toy *t = ctx;
    uint64_t    rows = 0;
    (void)slot_set;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t s = tokens[i].slot;
        assert_true(t->n[s] < CONTEXT);
        t->ids[s][t->n[s]++] = tokens[i].id;
        if (!tokens[i].logits)
            continue;
        for (uint64_t v = LIKELY; v < VOCAB; v++)
            logits[v] = OTHERS;
        likely(t->ids[s], t->n[s], logits);
        if (isnan(logits[0]))
            return tsr_fail(err, TSR_E_NUMERIC, "not finite");
        logits += VOCAB;
        rows++;
    }
    t->most_rows = rows > t->most_rows ? rows : t->most_rows;
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
    ((struct toy *)ctx)->n[slot] = 0;
}

struct result {
    enum tsr_finish finish;
    uint64_t        done, n, n_logprobs;
    uint32_t        tokens[CONTEXT], id[CONTEXT], top_id[CONTEXT][TOP];
    double          logprob[CONTEXT], top[CONTEXT][TOP];
};

static tsr_status on_done(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    struct result *out = (struct result *)ctx + r->id;
    (void)err;
    out->done++;
    out->finish = r->finish;
    if (r->finish == TSR_ENGINE_FINISH_FAILED)
        return TSR_OK;
    out->n = r->n_tokens;
    out->n_logprobs = r->n_logprobs;
    memcpy(out->tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
    for (uint64_t i = 0; i < r->n_logprobs; i++) {
        out->id[i] = r->logprobs[i].id;
        out->logprob[i] = r->logprobs[i].value;
        for (uint32_t k = 0; k < TOP; k++) {
            out->top_id[i][k] = r->tops[i * TOP + k].id;
            out->top[i][k] = r->tops[i * TOP + k].value;
        }
    }
    return TSR_OK;
}

static const uint64_t lengths[N] = { 9, 1, 6, 11, 4 };

/* Request 4 has no new tokens. */
static uint64_t new_tokens(uint64_t i)
{
    return i == 4 ? 0 : 1 + i % 2;
}

static void prompt_of(uint64_t i, uint32_t ids[CONTEXT])
{
    for (uint64_t k = 0; k < lengths[i]; k++)
        ids[k] =
            (uint32_t)((i * 5 + k * 3) % (LIKELY + 2)); /* some are not among the likely ones */
}

/* bad: the request whose sixth id is the one that gives no finite logits; N: none. */
static void serve(uint32_t slots, uint64_t bad, struct toy *t, struct result out[N])
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_engine_serve_events ev = { .ctx = out, .done = on_done };
    struct tsr_engine_pass         p = { .ctx = t,
                                         .slots = slots,
                                         .slot_sets = 1,
                                         .context = CONTEXT,
                                         .vocab = VOCAB,
                                         .start = toy_start,
                                         .finish = toy_finish,
                                         .reset = toy_reset,
                                         .hp = &t->hp };
    struct tsr_server             *s;
    memset(out, 0, N * sizeof *out);
    assert_int_equal(tsr_engine_server_create(&s, &p, &ev, &e.err), TSR_OK);
    for (uint64_t next = 0; next < N || tsr_engine_server_busy(s);) {
        for (; next < N && tsr_engine_server_room(s); next++) {
            uint32_t ids[CONTEXT];
            prompt_of(next, ids);
            if (next == bad)
                ids[5] = VOCAB - 1;
            struct tsr_engine_serve_request q = {
                .id = next,
                .prompt = ids,
                .n_prompt = lengths[next],
                .max_tokens = new_tokens(next),
                .sampling = { .top_p = 1, .repetition_penalty = 1 },
                .logprobs = true,
                .top = TOP,
                .prompt_logprobs = next != 2 /* one that scores new tokens alone is among them */
            };
            assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_OK);
        }
        if (tsr_engine_server_step(s, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
    tsr_engine_server_destroy(s);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(out[i].done, 1);
}

/* Recomputed from the toy's own numbers: the softmax over the likely ids and the equal others. */
static void check(const struct result *r, uint64_t i)
{
    uint32_t ids[CONTEXT];
    uint64_t from = i == 2 ? lengths[i] : 1;
    prompt_of(i, ids);
    memcpy(ids + lengths[i], r->tokens, r->n * sizeof *ids);
    assert_int_equal(r->n, new_tokens(i));
    assert_int_equal(r->n_logprobs, lengths[i] + r->n - from);
    for (uint64_t k = from; k < lengths[i] + r->n; k++) {
        float    l[LIKELY];
        double   sum = (VOCAB - LIKELY) * exp(OTHERS), best = -1e9;
        uint64_t at = k - from;
        likely(ids, k, l);
        for (uint32_t v = 0; v < LIKELY; v++) {
            sum += exp(l[v]);
            best = l[v] > best ? l[v] : best;
        }
        double own = ids[k] < LIKELY ? l[ids[k]] : OTHERS;
        assert_int_equal(r->id[at], ids[k]);
        /* a sum of four million terms of 4e-18 rounds to about 1e-12 of itself */
        assert_true(fabs(r->logprob[at] - (own - log(sum))) < 1e-9);
        assert_true(fabs(r->top[at][0] - (best - log(sum))) < 1e-9);
        assert_true(r->top[at][1] <= r->top[at][0] && r->top_id[at][0] != r->top_id[at][1]);
    }
}

static void pieces_give_every_token_its_logprob(void **state)
{
    static struct result one[N], other[N];
    (void)state;
    struct toy t = { .hp = { .n_eos = 0 } };
    serve(1, N, &t, one);
    for (uint64_t i = 0; i < N; i++)
        check(&one[i], i);
    assert_int_equal(t.most_rows, 4);
    struct toy u = { .hp = { .n_eos = 0 } };
    serve(SLOTS, N, &u, other);
    assert_memory_equal(one, other, sizeof one);
    assert_true(u.most_rows >= 4 && u.most_rows <= 4 + SLOTS);
}

static void a_prompt_fails_alone(void **state)
{
    static struct result clean[N], bad[N];
    (void)state;
    struct toy t = { .hp = { .n_eos = 0 } }, u = t;
    serve(1, N, &t, clean);
    serve(SLOTS, 0, &u, bad);
    assert_int_equal(bad[0].finish, TSR_ENGINE_FINISH_FAILED);
    assert_memory_equal(bad + 1, clean + 1, (N - 1) * sizeof *clean);
}

/* An end of sequence is no token of the answer, and yet the one that follows the prompt. */
static void an_end_has_a_logprob(void **state)
{
    static struct result r[N], ended[N];
    (void)state;
    struct toy t = { .hp = { .n_eos = 0 } };
    serve(1, N, &t, r);
    struct toy u = { .hp = { .eos = { r[0].tokens[0] }, .n_eos = 1 } };
    serve(1, N, &u, ended);
    assert_int_equal(ended[0].finish, TSR_ENGINE_FINISH_EOS);
    assert_int_equal(ended[0].n, 0);
    assert_int_equal(ended[0].n_logprobs, lengths[0]);
    assert_int_equal(ended[0].id[lengths[0] - 1], r[0].tokens[0]);
    assert_true(ended[0].logprob[lengths[0] - 1] == r[0].logprob[lengths[0] - 1]);
}

/* Angles that depend on the length of the sequence take the whole prompt at once, and so do its logprobs. */
static void a_length_that_counts_is_not_cut(void **state)
{
    static struct result r[N];
    (void)state;
    struct toy t = { .hp = { .n_eos = 0, .rope = { .scaling = TSR_MODEL_ROPE_DYNAMIC_NTK } } };
    serve(1, N, &t, r);
    for (uint64_t i = 0; i < N; i++)
        check(&r[i], i);
    assert_int_equal(t.most_rows, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_every_token_its_logprob),
        cmocka_unit_test(a_prompt_fails_alone),
        cmocka_unit_test(an_end_has_a_logprob),
        cmocka_unit_test(a_length_that_counts_is_not_cut),
    };
    return cmocka_run_group_tests_name("serve_prompts", tests, NULL, NULL);
}
