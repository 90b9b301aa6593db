#include "pipeline/steps/sweep_answers.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

static uint32_t likeliest(const float *v, uint64_t n)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++)
        best = v[i] > v[best] ? i : best;
    return (uint32_t)best;
}

struct answering {
    struct tsr_engine      *e, *judge;
    struct tsr_engine_token token[TSR_ANSWER_CONTEXT];
    uint32_t                id[TSR_ANSWER_CONTEXT]; /* prompt, answer */
    float                  *logits;                 /* [TSR_ANSWER_TOKENS, vocab] */
    uint64_t                vocab;
};

static tsr_status answer(struct answering *a, struct tsr_err *err)
{
    for (uint32_t i = 0; i < TSR_ANSWER_PROMPT; i++)
        a->token[i] =
            (struct tsr_engine_token){ .id = a->id[i], .logits = i + 1 == TSR_ANSWER_PROMPT };
    tsr_engine_reset(a->e, 0);
    TSR_TRY(tsr_engine_forward(a->e, a->token, TSR_ANSWER_PROMPT, a->logits, err));
    for (uint32_t i = TSR_ANSWER_PROMPT;; i++) {
        a->id[i] = likeliest(a->logits, a->vocab);
        if (i + 1 == TSR_ANSWER_CONTEXT)
            return TSR_OK;
        a->token[0] = (struct tsr_engine_token){ .id = a->id[i], .logits = true, .decode = true };
        TSR_TRY(tsr_engine_forward(a->e, a->token, 1, a->logits, err));
    }
}

static tsr_status judge(struct answering *a, unsigned char *same, struct tsr_err *err)
{
    uint32_t n = TSR_ANSWER_CONTEXT - 1;
    for (uint32_t i = 0; i < n; i++)
        a->token[i] =
            (struct tsr_engine_token){ .id = a->id[i], .logits = i + 1 >= TSR_ANSWER_PROMPT };
    tsr_engine_reset(a->judge, 0);
    TSR_TRY(tsr_engine_forward(a->judge, a->token, n, a->logits, err));
    for (uint32_t i = 0; i < TSR_ANSWER_TOKENS; i++)
        same[i] = likeliest(a->logits + i * a->vocab, a->vocab) == a->id[TSR_ANSWER_PROMPT + i];
    return TSR_OK;
}

tsr_status tsr_step_sweep_answers(struct tsr_engine *e, struct tsr_engine *j,
                                  const struct tsr_eval_windows *w, uint64_t n, unsigned char *same,
                                  struct tsr_err *err)
{
    struct answering a = { .e = e, .judge = j, .vocab = tsr_engine_vocab(e) };
    uint64_t         all = w->start[w->n], cells;
    tsr_status       st = TSR_OK;
    if (all < TSR_ANSWER_PROMPT)
        return tsr_fail(err, TSR_E_INPUT, "the text has %llu tokens, a prompt %u",
                        (unsigned long long)all, TSR_ANSWER_PROMPT);
    if (tsr_mul(a.vocab, TSR_ANSWER_TOKENS, &cells))
        a.logits = tsr_new_aligned(cells, sizeof *a.logits);
    if (!a.logits)
        return tsr_fail_nomem(err, a.vocab * TSR_ANSWER_TOKENS * sizeof *a.logits, "logits");
    for (uint64_t p = 0; p < n && st == TSR_OK; p++) {
        double   at = (double)(all - TSR_ANSWER_PROMPT) * (double)p / (double)n;
        uint64_t from = (uint64_t)at;
        for (uint32_t i = 0; i < TSR_ANSWER_PROMPT; i++)
            a.id[i] = w->ids[from + i];
        st = answer(&a, err);
        if (st == TSR_OK)
            st = judge(&a, same + p * TSR_ANSWER_TOKENS, err);
        if (st == TSR_OK && tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "stopped in the answers");
        tsr_progress("answers", p + 1, n);
    }
    tsr_engine_reset(e, 0);
    tsr_engine_reset(j, 0);
    free(a.logits);
    return st;
}

tsr_status tsr_step_sweep_answers_compare(const unsigned char *a, const unsigned char *b,
                                          uint64_t n, double alpha, double *share,
                                          struct tsr_eval_difference *d, struct tsr_err *err)
{
    uint64_t  tokens = n * TSR_ANSWER_TOKENS, sum = 0;
    double   *v = tsr_new(tokens, sizeof *v);
    uint64_t *start = tsr_new(n + 1, sizeof *start);
    if (!v || !start) {
        free(v);
        free(start);
        return tsr_fail_nomem(err, tokens * sizeof *v, "answers");
    }
    for (uint64_t p = 0; p <= n; p++)
        start[p] = p * TSR_ANSWER_TOKENS;
    for (uint64_t i = 0; i < tokens; i++) {
        sum += a[i];
        v[i] = b ? (double)a[i] - (double)b[i] : 0;
    }
    *share = (double)sum / (double)tokens;
    if (b)
        tsr_eval_paired_difference(v, start, n, alpha, d);
    free(v);
    free(start);
    return TSR_OK;
}
