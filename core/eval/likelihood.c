/* Requests on an engine, whose slot 0 keeps the tokens of the last one. */
#include "eval/likelihood.h"

#include "base/mem.h"
#include "eval/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOGITS_BYTES (UINT64_C(64) << 20)

struct tsr_eval_scorer {
    struct tsr_engine       *e;
    struct tsr_eval_encoding how;
    struct tsr_engine_token *tokens; /* [chunk] */
    float                   *logits; /* [chunk, vocab] */
    uint64_t                 vocab, context, chunk;
    struct tsr_tokenizer_ids held; /* in slot 0 */
    uint64_t                 ran, shared;
};

tsr_status tsr_eval_scorer_create(struct tsr_eval_scorer **out, struct tsr_engine *e,
                                  const struct tsr_tokenizer *t, bool no_bos, struct tsr_err *err)
{
    struct tsr_eval_scorer *s = tsr_new(1, sizeof *s);
    uint64_t                cells;
    *out = NULL;
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, "log-likelihoods");
    s->e = e;
    s->how = (struct tsr_eval_encoding){ .tokenizer = t,
                                         .model = tsr_engine_model(e),
                                         .no_bos = no_bos };
    s->vocab = tsr_engine_vocab(e);
    s->context = tsr_engine_context(e);
    s->chunk = LOGITS_BYTES / (s->vocab * sizeof(float));
    s->chunk = s->chunk < 16 ? 16 : s->chunk > 512 ? 512 : s->chunk;
    s->chunk = s->chunk < s->context ? s->chunk : s->context;
    s->tokens = tsr_new(s->chunk, sizeof *s->tokens);
    if (tsr_mul(s->chunk, s->vocab, &cells))
        s->logits = tsr_new_aligned(cells, sizeof *s->logits);
    if (!s->tokens || !s->logits) {
        uint64_t bytes = s->chunk * s->vocab * sizeof(float);
        tsr_eval_scorer_destroy(s);
        return tsr_fail_nomem(err, bytes, "log-likelihoods");
    }
    tsr_engine_reset(e, 0);
    *out = s;
    return TSR_OK;
}

void tsr_eval_scorer_destroy(struct tsr_eval_scorer *s)
{
    if (!s)
        return;
    tsr_engine_reset(s->e, 0);
    tsr_tokenizer_ids_free(&s->held);
    free(s->tokens);
    free(s->logits);
    free(s);
}

void tsr_eval_scorer_counts(const struct tsr_eval_scorer *s, uint64_t *ran, uint64_t *shared)
{
    *ran = s->ran;
    *shared = s->shared;
}

static void forget(struct tsr_eval_scorer *s)
{
    tsr_engine_reset(s->e, 0);
    s->held.n = 0;
}

/* Leaves in slot 0 what it shares with the first n ids, as many as that. */
static uint64_t keep_shared(struct tsr_eval_scorer *s, const uint32_t *ids, uint64_t n)
{
    uint64_t same = 0;
    while (same < n && same < s->held.n && s->held.v[same] == ids[same])
        same++;
    same = tsr_engine_rewind(s->e, 0, same);
    if (same == 0)
        tsr_engine_reset(s->e, 0);
    s->held.n = same;
    s->shared += same;
    return same;
}

/* Adds the log-likelihoods of ids[at + 1 ..] under rows of logits. */
static void add_rows(struct tsr_eval_scorer *s, const uint32_t *labels, uint64_t n,
                     struct tsr_eval_likelihood *out)
{
    for (uint64_t i = 0; i < n; i++) {
        const float *row = s->logits + i * s->vocab;
        double       lse;
        out->sum -= tsr_eval_nll(row, s->vocab, labels[i], &lse);
        out->is_greedy = out->is_greedy && tsr_eval_argmax(row, s->vocab) == labels[i];
    }
}

/* ids[0 .. n) with the last one as a label alone: adds the log-likelihoods of those from `from` on. */
static tsr_status run_ids(struct tsr_eval_scorer *s, const uint32_t *ids, uint64_t n, uint64_t from,
                          struct tsr_eval_likelihood *out, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] >= s->vocab)
            return tsr_fail(err, TSR_E_INPUT, "token %u is outside the vocabulary", ids[i]);
    uint64_t at = keep_shared(s, ids, from - 1);
    while (at < n - 1) {
        uint64_t take = n - 1 - at < s->chunk ? n - 1 - at : s->chunk;
        uint64_t first = from - 1 > at ? from - 1 : at; /* its logits predict a scored token */
        for (uint64_t i = 0; i < take; i++) {
            s->tokens[i] = (struct tsr_engine_token){ .id = ids[at + i],
                                                      .logits = at + i >= first,
                                                      .ahead = (uint32_t)(n - 1 - at - take) };
            TSR_TRY(tsr_tokenizer_ids_push(&s->held, ids[at + i], err));
        }
        TSR_TRY(tsr_engine_forward(s->e, s->tokens, take, s->logits, err));
        s->ran += take;
        if (at + take > first)
            add_rows(s, ids + first + 1, at + take - first, out);
        at += take;
    }
    return isfinite(out->sum) ? TSR_OK
                              : tsr_fail(err, TSR_E_NUMERIC, "a log-likelihood is not finite");
}

static tsr_status run_checked(struct tsr_eval_scorer *s, const uint32_t *ids, uint64_t n,
                              uint64_t from, struct tsr_eval_likelihood *out, struct tsr_err *err)
{
    tsr_status st = run_ids(s, ids, n, from, out, err);
    if (st != TSR_OK)
        forget(s);
    return st;
}

tsr_status tsr_eval_scorer_pair(struct tsr_eval_scorer *s, const struct tsr_tokenizer_text *context,
                                const struct tsr_tokenizer_text *continuation,
                                struct tsr_eval_likelihood *out, struct tsr_err *err)
{
    struct tsr_tokenizer_ids ids = { 0 };
    uint64_t                 from = 0;
    *out = (struct tsr_eval_likelihood){ .is_greedy = true };
    tsr_status st = tsr_eval_encode_pair(&s->how, context, continuation, &ids, &from, err);
    if (st == TSR_OK) {
        out->context = from;
        out->tokens = ids.n - from;
        out->cut = ids.n - 1 > s->context ? ids.n - 1 - s->context : 0;
        st = out->cut < from
                 ? run_checked(s, ids.v + out->cut, ids.n - out->cut, from - out->cut, out, err)
                 : tsr_fail(err, TSR_E_INPUT,
                            "a continuation of %llu tokens does not fit %llu positions",
                            (unsigned long long)out->tokens, (unsigned long long)s->context);
    }
    tsr_tokenizer_ids_free(&ids);
    return st;
}

tsr_status tsr_eval_scorer_text(struct tsr_eval_scorer *s, const struct tsr_tokenizer_text *text,
                                struct tsr_eval_likelihood *out, struct tsr_err *err)
{
    struct tsr_tokenizer_ids ids = { 0 };
    *out = (struct tsr_eval_likelihood){ .is_greedy = true, .context = 1 };
    tsr_status st = tsr_eval_encode_rolling(&s->how, text, &ids, err);
    for (uint64_t done = 0, begin, end; st == TSR_OK && done + 1 < ids.n; done = end) {
        tsr_eval_rolling_window(ids.n, s->context, done, &begin, &end);
        st = run_checked(s, ids.v + begin, end + 1 - begin, done + 1 - begin, out, err);
        out->tokens += end - done;
    }
    tsr_tokenizer_ids_free(&ids);
    return st;
}
