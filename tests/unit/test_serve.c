/* The server over a toy forward pass: a token's logits are a hash of the slot's sequence, so that a
 * wrong slot, a lost token or a second feed changes what comes out. */
#include "base/rng.h"
#include "engine/serve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB   11u
#define SLOTS   6u
#define CONTEXT 120u
#define N       14u

static struct tsr_model_hparams hp = { .eos = { 10 }, .n_eos = 1 };

struct toy {
    uint32_t ids[SLOTS][CONTEXT];
    uint64_t n[SLOTS];
    bool     flying[SLOTS]; /* by slot set */
    uint64_t calls, prompts;
    uint32_t poison; /* an id whose presence makes logits NaN */
    uint64_t ran;
    bool     fixed;  /* a slot cannot go back */
    bool     marks;  /* a generated id is another one than that of a prompt */
    uint32_t memory; /* logits are of so many ids; 0: of all */
    uint32_t block; /* a slot goes back to multiples of it alone; below: to nothing.  0: anywhere */
};

static void toy_logits(const struct toy *t, uint32_t slot, float *out)
{
    uint64_t h = 99;
    bool     bad = false;
    for (uint64_t i = 0; i < t->n[slot]; i++) {
        if (!t->memory || i + t->memory >= t->n[slot])
            h = h * 1000003 + t->ids[slot][i];
        bad = bad || (t->poison && t->ids[slot][i] == t->poison);
    }
    for (uint32_t k = 0; k < VOCAB; k++)
        out[k] = bad ? NAN : (float)(6 * tsr_uniform(h, k, 1));
}

static tsr_status toy_start(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                            uint64_t n, float *logits, struct tsr_err *err)
{
    struct toy *t = ctx;
    assert_false(t->flying[slot_set]);
    t->calls++;
    t->ran += n;
    t->flying[slot_set] = true;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t s = tokens[i].slot;
        assert_true(t->n[s] < CONTEXT);
        t->ids[s][t->n[s]++] = tokens[i].id + (t->marks && tokens[i].decode ? 100 : 0);
        if (!tokens[i].logits)
            continue;
        toy_logits(t, s, logits);
        if (isnan(logits[0])) {
            t->flying[slot_set] = false;
            return tsr_fail(err, TSR_E_NUMERIC, "not finite");
        }
        logits += VOCAB;
    }
    return TSR_OK;
}

static tsr_status toy_finish(void *ctx, uint32_t slot_set, struct tsr_err *err)
{
    struct toy *t = ctx;
    (void)err;
    assert_true(t->flying[slot_set]);
    t->flying[slot_set] = false;
    return TSR_OK;
}

static void toy_reset(void *ctx, uint32_t slot)
{
    ((struct toy *)ctx)->n[slot] = 0;
}

static uint64_t toy_rewind(void *ctx, uint32_t slot, uint64_t length)
{
    struct toy *t = ctx;
    if (length > t->n[slot] || (t->fixed && length != t->n[slot]))
        return 0;
    if (t->block)
        length -= length % t->block;
    if (length)
        t->n[slot] = length;
    return length;
}

static uint64_t copied; /* times */

static tsr_status toy_copy(void *ctx, uint32_t from, uint32_t to, uint64_t length, uint64_t *kept,
                           struct tsr_err *err)
{
    struct toy *t = ctx;
    (void)err;
    assert_true(from != to && length <= t->n[from]);
    *kept = t->fixed ? 0 : length;
    if (*kept) {
        memcpy(t->ids[to], t->ids[from], length * sizeof t->ids[0][0]);
        t->n[to] = length;
        copied++;
    }
    return TSR_OK;
}

struct result {
    uint32_t        tokens[CONTEXT];
    uint64_t        n, done;
    enum tsr_finish finish;
    double          logprob[CONTEXT], top[CONTEXT][3];
    uint32_t        top_id[CONTEXT][3];
};

static tsr_status on_done(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    struct result *out = (struct result *)ctx + r->id;
    (void)err;
    out->done++;
    out->n = r->n_tokens;
    out->finish = r->finish;
    memcpy(out->tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
    for (uint64_t i = 0; r->logprobs && i < r->n_tokens; i++) {
        out->logprob[i] = r->logprobs[i].value;
        assert_int_equal(r->logprobs[i].id, r->tokens[i]);
        for (uint32_t k = 0; k < r->top; k++) {
            out->top[i][k] = r->tops[i * r->top + k].value;
            out->top_id[i][k] = r->tops[i * r->top + k].id;
        }
    }
    if (r->finish == TSR_ENGINE_FINISH_FAILED)
        assert_string_equal(r->error, "not finite");
    return TSR_OK;
}

static uint32_t drafting; /* ids of a draft of each request */

static struct tsr_engine_serve_request request(uint64_t i, const uint32_t *prompt)
{
    return (struct tsr_engine_serve_request){ .id = i,
                                              .prompt = prompt,
                                              .n_prompt = 1 + i % 4,
                                              .max_tokens = 1 + i * 5 % 17,
                                              .record = i,
                                              .logprobs = true,
                                              .top = 3,
                                              .draft = drafting,
                                              .sampling = { .temperature = i % 3 ? 0.8 : 0,
                                                            .top_p = 0.9,
                                                            .repetition_penalty = i % 2 ? 1.1 : 1,
                                                            .seed = 7 } };
}

static struct tsr_engine_drafted counts;
static uint32_t                  block, memory;
static struct tsr_pool          *pool; /* draws of the next tokens */

static void serve(uint32_t slots, uint32_t slot_sets, uint32_t poison, struct result out[N],
                  struct toy *t)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_engine_serve_events ev = { .ctx = out, .done = on_done };
    struct tsr_engine_pass         p = { .ctx = t,
                                         .slots = slots,
                                         .slot_sets = slot_sets,
                                         .context = CONTEXT,
                                         .vocab = VOCAB,
                                         .start = toy_start,
                                         .finish = toy_finish,
                                         .reset = toy_reset,
                                         .rewind = toy_rewind,
                                         .hp = &hp,
                                         .pool = pool };
    struct tsr_server             *s;
    memset(t, 0, sizeof *t);
    t->block = block;
    t->memory = memory;
    memset(out, 0, N * sizeof *out);
    t->poison = poison;
    assert_int_equal(tsr_engine_server_create(&s, &p, &ev, &e.err), TSR_OK);
    for (uint64_t next = 0; next < N || tsr_engine_server_busy(s);) {
        for (; next < N && tsr_engine_server_room(s); next++) {
            uint32_t prompt[4] = { (uint32_t)(next * 3 % 9), 1, 2, (uint32_t)next % 9 };
            struct tsr_engine_serve_request q = request(next, prompt);
            assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_OK);
        }
        if (tsr_engine_server_step(s, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
    counts = *tsr_engine_server_drafted(s);
    tsr_engine_server_destroy(s);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(out[i].done, 1);
}

static void slots_sets_and_threads_change_nothing(void **state)
{
    static struct result one[N], other[N];
    struct toy           t;
    uint64_t             stopped = 0;
    (void)state;
    serve(1, 1, 0, one, &t);
    for (unsigned threads = 1; threads <= 5; threads += 2) { /* that draw */
        struct tsr_errbuf e = TSR_ERRBUF(e);
        assert_int_equal(tsr_pool_create(&pool, threads, &e.err), TSR_OK);
        for (uint32_t slots = 2; slots <= SLOTS; slots++)
            for (uint32_t slot_sets = 1; slot_sets <= slots; slot_sets++) {
                serve(slots, slot_sets, 0, other, &t);
                assert_memory_equal(one, other, sizeof one);
            }
        tsr_pool_destroy(pool);
        pool = NULL;
    }
    for (uint32_t i = 0; i < N; i++) {
        stopped += one[i].finish == TSR_ENGINE_FINISH_EOS;
        assert_true(one[i].finish == TSR_ENGINE_FINISH_EOS ||
                    one[i].n == request(i, NULL).max_tokens);
    }
    assert_true(stopped > 0 && stopped < N); /* both ends are there to be compared */
}

/* A slot whose request has ended has the next one at the next forward, which is that of its prompt; the
 * others go on behind it.  Counted beside groups one behind the other, each until its longest is through. */
static void slots_are_refilled_at_once(void **state)
{
    static struct result r[N];
    (void)state;
    for (uint32_t slots = 1; slots <= SLOTS; slots++) {
        struct toy t;
        uint64_t   left[SLOTS] = { 0 }, calls = 0, decodes = 0, groups = 0, longest = 0, busy;
        bool       fresh[SLOTS] = { false };
        uint64_t   forwards[N]; /* of each; the end of a text is no token of it */
        uint32_t   next = 0;
        serve(slots, 1, 0, r, &t);
        for (uint32_t i = 0; i < N; i++)
            forwards[i] = r[i].n + (r[i].finish == TSR_ENGINE_FINISH_EOS);
        do {
            bool prompts = false;
            busy = 0;
            for (uint32_t k = 0; k < slots; k++) {
                if (left[k] == 0 && next < N) {
                    left[k] = forwards[next++];
                    fresh[k] = true;
                }
                prompts = prompts || fresh[k];
                busy += left[k] > 0;
            }
            for (uint32_t k = 0; k < slots; k++)
                if (left[k] > 0 && fresh[k] == prompts) {
                    left[k]--;
                    fresh[k] = false;
                }
            calls += busy > 0;
            decodes += busy > 0 && !prompts;
        } while (busy);
        for (uint32_t i = 0; i < N; i++) {
            longest = forwards[i] > longest ? forwards[i] : longest;
            if (i % slots == slots - 1 || i + 1 == N) {
                groups += longest - 1; /* its prompts gave the first ones */
                longest = 0;
            }
        }
        assert_int_equal(t.calls, calls);
        assert_true(slots == 1 ? decodes == groups : decodes < groups);
    }
}

/* Recomputed from the toy's own logits. */
static void logprobs_are_the_softmax(void **state)
{
    static struct result r[N];
    struct toy           t, again = { 0 };
    (void)state;
    serve(3, 1, 0, r, &t);
    for (uint64_t i = 0; i < N; i++) {
        uint32_t prompt[4] = { (uint32_t)(i * 3 % 9), 1, 2, (uint32_t)i % 9 };
        again.n[0] = request(i, NULL).n_prompt;
        memcpy(again.ids[0], prompt, sizeof prompt);
        for (uint64_t k = 0; k < r[i].n; k++) {
            float  l[VOCAB];
            double sum = 0, best = -1e9;
            toy_logits(&again, 0, l);
            for (uint32_t v = 0; v < VOCAB; v++)
                sum += exp(l[v]);
            for (uint32_t v = 0; v < VOCAB; v++)
                best = l[v] > best ? l[v] : best;
            /* doubles on both sides: rounding alone */
            assert_true(fabs(r[i].logprob[k] - (l[r[i].tokens[k]] - log(sum))) < 1e-12);
            assert_true(fabs(r[i].top[k][0] - (best - log(sum))) < 1e-12);
            assert_true(r[i].top[k][0] >= r[i].top[k][1] && r[i].top[k][1] >= r[i].top[k][2]);
            assert_true(r[i].top_id[k][0] != r[i].top_id[k][1]);
            again.ids[0][again.n[0]++] = r[i].tokens[k];
        }
    }
}

/* Requests that come upon the poisoned id fail; the others are what they are without it. */
static void a_request_fails_alone(void **state)
{
    static struct result clean[N], poisoned[N];
    struct toy           t;
    uint64_t             failed = 0;
    (void)state;
    serve(1, 1, 0, clean, &t);
    for (uint32_t slot_sets = 1; slot_sets <= 3; slot_sets++) {
        serve(6, slot_sets, 5, poisoned, &t);
        for (uint32_t i = 0; i < N; i++) {
            bool seen = (i * 3 % 9) == 5 || (request(i, NULL).n_prompt == 4 && i % 9 == 5);
            for (uint64_t k = 0; k + 1 < clean[i].n; k++) /* the last token is not fed */
                seen = seen || clean[i].tokens[k] == 5;
            if (clean[i].n && clean[i].tokens[clean[i].n - 1] == 5 &&
                clean[i].finish == TSR_ENGINE_FINISH_EOS)
                seen = true;
            failed += seen;
            if (seen)
                assert_int_equal(poisoned[i].finish, TSR_ENGINE_FINISH_FAILED);
            else
                assert_memory_equal(&poisoned[i], &clean[i], sizeof clean[i]);
        }
    }
    assert_true(failed > 3 && failed < 3 * N);
}

static void cancelled_and_refused(void **state)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    static struct result            r[N];
    struct toy                      t = { 0 };
    struct tsr_engine_serve_events  ev = { .ctx = r, .done = on_done };
    struct tsr_engine_pass          p = { .ctx = &t,
                                          .slots = 1,
                                          .slot_sets = 1,
                                          .context = CONTEXT,
                                          .vocab = VOCAB,
                                          .start = toy_start,
                                          .finish = toy_finish,
                                          .reset = toy_reset,
                                          .hp = &hp };
    struct tsr_server              *s;
    uint32_t                        prompt[4] = { 1, 2, 3, VOCAB };
    struct tsr_engine_serve_request q = request(3, prompt);
    const char                     *stop = "x";
    uint64_t                        bytes = 1;
    (void)state;
    assert_int_equal(tsr_engine_server_create(&s, &p, &ev, &e.err), TSR_OK);
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_E_INPUT); /* an id past the end */
    q.n_prompt = 0;
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_E_INPUT);
    q.n_prompt = 2;
    q.max_tokens = CONTEXT;
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_E_INPUT);
    q.max_tokens = CONTEXT - 1;
    q.stop = &stop;
    q.stop_bytes = &bytes;
    q.n_stop = 1;
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_E_INPUT); /* no tokenizer */
    q.n_stop = 0;
    q.ignore_eos = true;
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_OK);
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_E_INVAL); /* no slot */
    assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
    assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
    tsr_engine_server_cancel(s, 99);
    tsr_engine_server_cancel(s, 3);
    assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
    assert_true(r[3].done == 1 && r[3].finish == TSR_ENGINE_FINISH_ENDED && r[3].n == 2);
    assert_int_equal(tsr_engine_server_room(s), 1);
    q.max_tokens = 0;
    assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_OK); /* done at once */
    assert_true(r[3].done == 2 && r[3].n == 0 && tsr_engine_server_busy(s) == 0);
    tsr_engine_server_destroy(s);
}

/* ---- drafts ------------------------------------------------------------------ */

/* Ids that run before they are drawn, right or wrong, change no answer: neither where a slot goes back to some positions
 * alone, nor where a draft has an id that makes a request fail. */
static void drafts_change_no_answer(void **state)
{
    static const uint32_t most[] = { 1, 2, 5, TSR_ENGINE_DRAFT_MOST, TSR_ENGINE_DRAFT_CHOSEN };
    static struct result  plain[N], drafted[N];
    struct toy            t;
    uint64_t              right = 0, wrong = 0;
    (void)state;
    for (uint32_t poison = 0; poison < 9; poison += 4) {
        drafting = block = 0;
        memory = 2; /* texts that go in circles */
        serve(1, 1, poison, plain, &t);
        for (size_t k = 0; k < sizeof most / sizeof *most; k++)
            for (uint32_t slots = 1; slots <= SLOTS; slots++)
                for (uint32_t slot_sets = 1; slot_sets <= slots; slot_sets++) {
                    drafting = most[k];
                    block = (slots + slot_sets) % 3 ? 0 : 4;
                    serve(slots, slot_sets, poison, drafted, &t);
                    assert_memory_equal(plain, drafted, sizeof plain);
                    right += counts.accepted;
                    wrong += counts.drafted - counts.accepted;
                }
    }
    drafting = block = memory = 0;
    print_message("%llu drafts right, %llu wrong\n", (unsigned long long)right,
                  (unsigned long long)wrong);
    assert_true(right > 150 && wrong > 500);
}

/* ---- what slots keep -------------------------------------------------------- */

#define TURNS 40u

/* Some prompts begin like others, or with another's prompt and a part of its answer. */
static uint64_t turn(uint64_t i, const struct result out[TURNS], uint32_t prompt[CONTEXT])
{
    uint64_t n = 0;
    if (i % 4 == 3) {
        n = turn(i - 3, out, prompt);
        for (uint64_t k = 0; k < out[i - 3].n && k < 5; k++)
            prompt[n++] = out[i - 3].tokens[k];
    } else {
        for (uint64_t base = i % 3; n < 6 + i % 2; n++)
            prompt[n] = (uint32_t)((base * 5 + n * 3) % 9);
    }
    prompt[n] = (uint32_t)(i * 7 % 9);
    return n + 1;
}

/* Every turn after those before, at_once together; how many tokens of prompts were reused. */
static uint64_t talk(struct toy *t, uint32_t slots, uint32_t at_once, bool reuse, bool prompts,
                     struct result out[TURNS])
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
                                         .hp = &hp,
                                         .rewind = toy_rewind,
                                         .keeps = reuse,
                                         .at_once = at_once,
                                         .prompts = prompts };
    struct tsr_server             *s;
    memset(out, 0, TURNS * sizeof *out);
    assert_int_equal(tsr_engine_server_create(&s, &p, &ev, &e.err), TSR_OK);
    for (uint64_t i = 0; i < TURNS;) {
        for (; i < TURNS && tsr_engine_server_room(s); i++) {
            uint32_t                        prompt[CONTEXT];
            uint64_t                        n = turn(i, out, prompt);
            struct tsr_engine_serve_request q = request(i, prompt);
            q.n_prompt = n;
            q.max_tokens = 1 + i % 7;
            assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_OK);
        }
        assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
        if (i % 12 == 10)
            tsr_engine_server_cancel(s, i - 1);
        while (tsr_engine_server_busy(s))
            assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
    }
    uint64_t reused = tsr_engine_server_reused(s);
    tsr_engine_server_destroy(s);
    for (uint32_t i = 0; i < TURNS; i++)
        assert_int_equal(out[i].done, 1);
    return reused;
}

static void what_slots_keep_changes_no_answer(void **state)
{
    static struct result plain[TURNS], kept[TURNS];
    (void)state;
    for (uint32_t poison = 0; poison < 9; poison += 8) {
        struct toy t = { .poison = poison };
        assert_int_equal(talk(&t, 2, 2, false, false, plain), 0);
        uint64_t ran = t.ran;
        for (uint32_t slots = 2; slots <= SLOTS; slots += 2) {
            t = (struct toy){ .poison = poison };
            uint64_t reused = talk(&t, slots, 2, true, false, kept);
            assert_memory_equal(kept, plain, sizeof plain);
            assert_true(reused > TURNS);
            /* without failures, which run requests again: each token that is not run was kept */
            if (!poison)
                assert_int_equal(t.ran + reused, ran);
        }
    }
}

/* Where a state cannot go back, a prompt goes on from all that a slot has, or from nothing. */
static void a_slot_that_cannot_go_back_goes_on(void **state)
{
    static struct result plain[TURNS], kept[TURNS];
    struct toy           t = { 0 }, u = { .fixed = true }, v = { 0 };
    (void)state;
    (void)talk(&t, 2, 2, false, false, plain);
    uint64_t some = talk(&u, SLOTS, 2, true, false, kept);
    assert_memory_equal(kept, plain, sizeof plain);
    assert_int_equal(u.ran + some, t.ran);
    assert_true(some > 0);
    assert_true(some < talk(&v, SLOTS, 2, true, false, kept));
}

/* Rows of generated tokens are not those that a prompt would make: prompts alone are kept. */
static void prompts_alone_are_kept(void **state)
{
    static struct result plain[TURNS], kept[TURNS];
    struct toy           t = { .marks = true }, u = t, v = t;
    (void)state;
    (void)talk(&t, 2, 2, false, false, plain);
    uint64_t all = talk(&u, SLOTS, 2, true, false, kept);
    assert_memory_not_equal(kept, plain, sizeof plain);
    uint64_t some = talk(&v, SLOTS, 2, true, true, kept);
    assert_memory_equal(kept, plain, sizeof plain);
    assert_int_equal(v.ran + some, t.ran);
    assert_true(some > 0 && all > 0);
}

/* Prompts with the same beginning at the same time: one of them runs it, the others have it copied, and wait for it where
 * it runs just then.  Where nothing can be copied each runs its own, after one wait. */
static void prompts_at_once_share(void **state)
{
    static struct result plain[N], shared[N];
    uint64_t             ran = 0;
    (void)state;
    for (uint32_t poison = 0; poison < 9; poison += 8)
        for (uint32_t slots = 1; slots <= SLOTS; slots++)
            for (uint32_t way = 0; way < 3; way++) { /* keeps nothing, copies, cannot copy */
                struct tsr_errbuf              e = TSR_ERRBUF(e);
                struct result                 *out = way ? shared : plain;
                struct tsr_engine_serve_events ev = { .ctx = out, .done = on_done };
                struct toy                     t = { .poison = poison, .fixed = way == 2 };
                struct tsr_engine_pass         p = { .ctx = &t,
                                                     .slots = slots,
                                                     .slot_sets = 1,
                                                     .context = CONTEXT,
                                                     .vocab = VOCAB,
                                                     .start = toy_start,
                                                     .finish = toy_finish,
                                                     .reset = toy_reset,
                                                     .rewind = toy_rewind,
                                                     .keeps = way > 0,
                                                     .copy = way ? toy_copy : NULL,
                                                     .hp = &hp };
                struct tsr_server             *s;
                copied = 0;
                memset(out, 0, N * sizeof *out);
                assert_int_equal(tsr_engine_server_create(&s, &p, &ev, &e.err), TSR_OK);
                for (uint64_t next = 0; next < N || tsr_engine_server_busy(s);) {
                    for (; next < N && tsr_engine_server_room(s); next++) {
                        uint32_t                        prompt[CONTEXT];
                        struct tsr_engine_serve_request q = request(next, prompt);
                        q.n_prompt = 50 + next;
                        for (uint64_t k = 0; k < q.n_prompt; k++)
                            prompt[k] = (uint32_t)((k < 45 ? k * (1 + next % 2) : next + k) % 8);
                        assert_int_equal(tsr_engine_server_submit(s, &q, &e.err), TSR_OK);
                    }
                    assert_int_equal(tsr_engine_server_step(s, &e.err), TSR_OK);
                }
                if (way == 1 && slots > 2 &&
                    !poison) /* two beginnings of 45, the others have them */
                    assert_true(copied > 0 && tsr_engine_server_reused(s) >= (N - 2) * 40);
                if (!poison) { /* no token but those runs twice */
                    ran = way ? ran : t.ran;
                    assert_int_equal(t.ran + tsr_engine_server_reused(s), ran);
                }
                tsr_engine_server_destroy(s);
                if (way)
                    assert_memory_equal(plain, shared, sizeof plain);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_sets_and_threads_change_nothing),
        cmocka_unit_test(slots_are_refilled_at_once),
        cmocka_unit_test(logprobs_are_the_softmax),
        cmocka_unit_test(a_request_fails_alone),
        cmocka_unit_test(cancelled_and_refused),
        cmocka_unit_test(drafts_change_no_answer),
        cmocka_unit_test(what_slots_keep_changes_no_answer),
        cmocka_unit_test(a_slot_that_cannot_go_back_goes_on),
        cmocka_unit_test(prompts_alone_are_kept),
        cmocka_unit_test(prompts_at_once_share),
    };
    return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}
