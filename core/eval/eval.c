/* Runs engines over windows and scores the logits, a chunk of tokens at a time, so that a large
 * vocabulary does not need a whole window of logits. */
#include "eval/eval.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "eval/chain.h"
#include "eval/kld.h"
#include "eval/layers.h"
#include "eval/states.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOGITS_BYTES (UINT64_C(64) << 20)

/* What one arm has gathered; arrays over all scored positions. */
struct tally {
    double                *nll, *kl;
    struct tsr_eval_trace *at;
    uint64_t               n;
};

struct run {
    struct tsr_eval_arm           *arms;
    struct tally                  *tally;
    uint64_t                       n, reference, chunk, vocab;
    struct tsr_pool               *pool;
    const struct tsr_eval_windows *w;
    struct tsr_engine_token       *tokens;
    float          *logits, *base; /* of an arm and of the reference, [chunk, vocab] */
    double         *base_lse;      /* [chunk] */
    const uint32_t *labels;        /* of the chunk's scored positions */
    uint64_t        current;       /* arm in work */
};

static tsr_status score_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct run   *run = arg;
    struct tally *t = &run->tally[run->current];
    bool          reference = run->current == run->reference;
    bool          file = run->reference < run->n && run->arms[run->reference].base;
    const float  *all = reference ? run->base : run->logits;
    for (uint64_t i = begin; i < end; i++) {
        const float *row = all + i * run->vocab;
        double       lse;
        if (reference && file) { /* log-probabilities already, which do not add up to quite 1 */
            t->nll[t->n + i] = -(double)row[run->labels[i]];
            lse = 0.0;
        } else {
            t->nll[t->n + i] = tsr_eval_nll(row, run->vocab, run->labels[i], &lse);
        }
        t->at->nll[t->n + i] = (float)t->nll[t->n + i];
        t->at->top1[t->n + i] = (uint32_t)tsr_eval_argmax(row, run->vocab);
        if (reference) {
            run->base_lse[i] = lse;
        } else if (run->reference < run->n) {
            const float *base = run->base + i * run->vocab;
            t->kl[t->n + i] = file ? tsr_eval_kld_divergence(base, row, lse, run->vocab)
                                   : tsr_eval_kl(base, run->base_lse[i], row, lse, run->vocab);
            t->at->kl[t->n + i] = (float)t->kl[t->n + i];
        }
    }
    return TSR_OK;
}

/* Logits of the chunk's scored positions: the engine's, or the file's. */
static tsr_status get_logits(struct run *run, uint64_t arm, uint64_t window, uint64_t at,
                             uint64_t n, uint64_t begin, uint64_t scored, struct tsr_err *err)
{
    const uint32_t      *ids = run->w->ids + run->w->start[window];
    struct tsr_eval_arm *a = &run->arms[arm];
    uint64_t             row = begin - (run->w->score_from[window] - 1);
    float               *out = arm == run->reference ? run->base : run->logits;
    uint64_t             end = run->w->start[window + 1] - run->w->start[window] - 1;
    if (a->states)
        return tsr_eval_states_logits(a->states, run->tally[arm].n, scored, out, err);
    if (a->base)
        return tsr_eval_kld_read(a->base, window, row, scored, out, err);
    for (uint64_t i = 0; i < n; i++)
        run->tokens[i] = (struct tsr_engine_token){ .id = ids[at + i],
                                                    .logits = at + i >= begin,
                                                    .ahead = (uint32_t)(end - at - n) };
    TSR_TRY(a->layers  ? tsr_eval_layers_logits(a->layers, window, begin, scored, out, err)
            : a->chain ? tsr_eval_chain_forward(a->chain, run->tokens, n, out, err)
                       : tsr_engine_forward(a->engine, run->tokens, n, out, err));
    for (uint64_t i = 0; a->save && i < scored; i++)
        tsr_eval_kld_put(a->save, out + i * run->vocab);
    return TSR_OK;
}

/* Positions [at, at+n) of a window go in; those from `scored` on are scored. */
static tsr_status run_chunk(struct run *run, uint64_t arm, uint64_t window, uint64_t at, uint64_t n,
                            struct tsr_err *err)
{
    const struct tsr_eval_windows *w = run->w;
    const uint32_t                *ids = w->ids + w->start[window];
    uint64_t      first = w->score_from[window] - 1; /* its logits predict the first scored token */
    uint64_t      begin = at > first ? at : first, scored = at + n > begin ? at + n - begin : 0;
    struct tally *t = &run->tally[arm];
    TSR_TRY(get_logits(run, arm, window, at, n, begin, scored, err));
    run->labels = ids + begin + 1;
    run->current = arm;
    TSR_TRY(tsr_pool_for(run->pool, scored, 4, score_rows, run));
    for (uint64_t i = 0; i < scored; i++)
        if (!isfinite(t->nll[t->n + i]) || (t->kl && !isfinite(t->kl[t->n + i])))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "position %llu: the likelihood of token %u is not "
                            "finite",
                            (unsigned long long)(begin + i), run->labels[i]);
    t->n += scored;
    return TSR_OK;
}

static tsr_status arm_failed(struct run *run, uint64_t arm, uint64_t window, tsr_status st)
{
    struct tsr_eval_arm *a = &run->arms[arm];
    (void)tsr_err_prefix(&a->error.err, st, "%s: window %llu of %llu", a->name,
                         (unsigned long long)(window + 1), (unsigned long long)run->w->n);
    a->status = st;
    return st;
}

/* All arms over one window.  Returns a failure only if nothing can go on. */
static tsr_status run_window(struct run *run, uint64_t window, struct tsr_err *err)
{
    uint64_t n = run->w->start[window + 1] - run->w->start[window] - 1; /* the last is a label */
    uint64_t first_arm = run->reference < run->n ? run->reference : 0;
    for (uint64_t a = 0; a < run->n; a++) {
        if (run->arms[a].status == TSR_OK && run->arms[a].engine)
            tsr_engine_reset(run->arms[a].engine, 0);
        if (run->arms[a].status == TSR_OK && run->arms[a].chain)
            tsr_eval_chain_reset(run->arms[a].chain);
    }
    for (uint64_t at = 0; at < n; at += run->chunk) {
        uint64_t len = n - at < run->chunk ? n - at : run->chunk;
        for (uint64_t i = 0; i < run->n; i++) {
            /* the reference first: the others are compared with its logits */
            uint64_t a = i == 0 ? first_arm : i <= first_arm ? i - 1 : i;
            if (run->arms[a].status != TSR_OK)
                continue;
            if (tsr_plugin_cancelled())
                return tsr_fail(err, TSR_E_CANCELLED, "stopped in evaluation");
            double     begin = tsr_now_s();
            tsr_status st = run_chunk(run, a, window, at, len, &run->arms[a].error.err);
            run->arms[a].result.seconds += tsr_now_s() - begin;
            if (st == TSR_OK)
                continue;
            (void)arm_failed(run, a, window, st);
            if (a == run->reference || st == TSR_E_CANCELLED)
                return tsr_err_copy(err, st, &run->arms[a].error.err);
        }
    }
    return TSR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void summarize_kl(struct tally *t, const struct tsr_eval_trace *reference,
                         struct tsr_eval_result *r)
{
    double   sum = 0.0;
    uint64_t same = 0;
    for (uint64_t i = 0; i < t->n; i++) {
        sum += t->kl[i];
        same += t->at->top1[i] == reference->top1[i];
    }
    r->kl_mean = sum / (double)t->n;
    r->top1 = (double)same / (double)t->n;
    qsort(t->kl, t->n, sizeof *t->kl, by_value);
    r->kl_max = t->kl[t->n - 1];
    r->kl_median = t->kl[(t->n - 1) / 2];
    r->kl_p99 = t->kl[(uint64_t)ceil(0.99 * (double)t->n) - 1];
}

static void summarize(const struct run *run, uint64_t arm)
{
    const struct tsr_eval_windows *w = run->w;
    struct tally                  *t = &run->tally[arm];
    struct tsr_eval_result        *r = &run->arms[arm].result;
    double                         total = 0.0, sum = 0.0;
    uint64_t                       at = 0;
    for (uint64_t i = 0; i < w->n; i++) {
        uint64_t n = w->start[i + 1] - w->start[i] - w->score_from[i];
        double   s = 0.0;
        for (uint64_t k = 0; k < n; k++)
            s += t->nll[at + k];
        at += n;
        sum += s;
        total += w->weight[i] * (s / (double)n);
    }
    r->mean_nll = sum / (double)t->n;
    r->tokens = w->tokens;
    r->scored = t->n;
    r->perplexity = exp(total / (double)w->tokens);
    r->kl_mean = r->kl_max = r->kl_p99 = r->kl_median = r->top1 = NAN;
    r->word_perplexity = r->byte_perplexity = r->bits_per_byte = NAN;
    if (w->opt.protocol == TSR_EVAL_PPL_LM_EVAL_WIKITEXT) {
        r->word_perplexity = r->perplexity;
        r->byte_perplexity = exp(sum / (double)w->bytes);
        r->bits_per_byte = sum / ((double)w->bytes * log(2.0));
    }
    if (run->reference < run->n && arm != run->reference)
        summarize_kl(t, &run->arms[run->reference].at, r);
}

static uint64_t vocab_of(const struct tsr_eval_arm *a)
{
    return a->engine   ? tsr_engine_vocab(a->engine)
           : a->layers ? tsr_engine_vocab(tsr_eval_layers_engine(a->layers))
           : a->chain  ? tsr_eval_chain_vocab(a->chain)
           : a->states ? tsr_eval_states_vocab(a->states)
                       : tsr_eval_kld_vocab(a->base);
}

/* Positions that an arm takes; UINT64_MAX where it brings the windows' own. */
static uint64_t context_of(const struct tsr_eval_arm *a)
{
    return a->engine  ? tsr_engine_context(a->engine)
           : a->chain ? tsr_eval_chain_context(a->chain)
                      : UINT64_MAX;
}

static tsr_status prepare(struct run *run, struct tsr_err *err)
{
    const struct tsr_eval_windows *w = run->w;
    uint64_t                       longest = 0;
    run->vocab = vocab_of(&run->arms[0]);
    for (uint64_t i = 0; i < w->n; i++)
        longest = w->start[i + 1] - w->start[i] > longest ? w->start[i + 1] - w->start[i] : longest;
    for (uint64_t a = 0; a < run->n; a++) {
        run->arms[a].error = (struct tsr_errbuf)TSR_ERRBUF(run->arms[a].error);
        run->arms[a].status = TSR_OK;
        run->arms[a].result = (struct tsr_eval_result){ 0 };
        run->arms[a].at = (struct tsr_eval_trace){ 0 };
        if (vocab_of(&run->arms[a]) != run->vocab)
            return tsr_fail(err, TSR_E_INPUT,
                            "models with vocabularies of %llu and %llu cannot be "
                            "compared",
                            (unsigned long long)run->vocab,
                            (unsigned long long)vocab_of(&run->arms[a]));
        uint64_t context = context_of(&run->arms[a]);
        if (context < longest - 1)
            return tsr_fail(err, TSR_E_BUG, "the engine holds %llu positions, a window has %llu",
                            (unsigned long long)context, (unsigned long long)longest);
    }
    run->chunk = LOGITS_BYTES / (run->vocab * sizeof(float));
    run->chunk = run->chunk < 16 ? 16 : run->chunk > 512 ? 512 : run->chunk;
    run->chunk = run->chunk < longest ? run->chunk : longest;
    run->tokens = tsr_new(run->chunk, sizeof *run->tokens);
    uint64_t cells;
    if (tsr_mul(run->chunk, run->vocab, &cells)) {
        run->logits = tsr_new_aligned(cells, sizeof *run->logits);
        run->base = tsr_new_aligned(run->reference < run->n ? cells : 0, sizeof *run->base);
    }
    run->base_lse = tsr_new(run->chunk, sizeof *run->base_lse);
    run->tally = tsr_new(run->n, sizeof *run->tally);
    bool ok = run->tokens && run->logits && run->base && run->base_lse && run->tally;
    for (uint64_t a = 0; ok && a < run->n; a++) {
        struct tally *t = &run->tally[a];
        bool          kl = run->reference < run->n && a != run->reference;
        t->at = &run->arms[a].at;
        TSR_TRY(tsr_eval_trace_create(t->at, w->scored, kl, err));
        t->nll = tsr_new(w->scored, sizeof *t->nll);
        t->kl = kl ? tsr_new(w->scored, sizeof *t->kl) : NULL;
        ok = t->nll && (!kl || t->kl);
    }
    return ok ? TSR_OK
              : tsr_fail_nomem(err, 2 * run->chunk * run->vocab * sizeof(float),
                               "the logits of an evaluation");
}

static void release(struct run *run)
{
    for (uint64_t a = 0; run->tally && a < run->n; a++) {
        free(run->tally[a].nll);
        free(run->tally[a].kl);
    }
    free(run->tally);
    free(run->tokens);
    free(run->logits);
    free(run->base);
    free(run->base_lse);
}

tsr_status tsr_eval_arms(struct tsr_eval_arm *arms, uint64_t n, uint64_t reference,
                         struct tsr_pool *pool, const struct tsr_eval_windows *w,
                         struct tsr_err *err)
{
    struct run run = { .arms = arms, .n = n, .reference = reference, .pool = pool, .w = w };
    tsr_status st = prepare(&run, err);
    for (uint64_t i = 0; i < w->n && st == TSR_OK; i++) {
        st = run_window(&run, i, err);
        tsr_progress("eval", i + 1, w->n);
    }
    for (uint64_t a = 0; a < n && st == TSR_OK; a++)
        if (arms[a].status == TSR_OK)
            summarize(&run, a);
    for (uint64_t a = 0; a < n; a++)
        if (st != TSR_OK || arms[a].status != TSR_OK)
            tsr_eval_trace_free(&arms[a].at);
    release(&run);
    return st;
}

tsr_status tsr_eval_trace_create(struct tsr_eval_trace *p, uint64_t n, bool kl, struct tsr_err *err)
{
    *p = (struct tsr_eval_trace){ .nll = tsr_new(n, sizeof *p->nll),
                                  .top1 = tsr_new(n, sizeof *p->top1),
                                  .kl = kl ? tsr_new(n, sizeof *p->kl) : NULL,
                                  .n = n };
    if (p->nll && p->top1 && (!kl || p->kl))
        return TSR_OK;
    tsr_eval_trace_free(p);
    return tsr_fail_nomem(err, n * (kl ? 12 : 8), "what an evaluation found at every token");
}

void tsr_eval_trace_free(struct tsr_eval_trace *p)
{
    free(p->nll);
    free(p->kl);
    free(p->top1);
    *p = (struct tsr_eval_trace){ 0 };
}

tsr_status tsr_eval_run(struct tsr_engine *e, struct tsr_engine *reference, struct tsr_pool *pool,
                        const struct tsr_eval_windows *w, struct tsr_eval_result *out,
                        struct tsr_err *err)
{
    struct tsr_eval_arm *arms = tsr_new(2, sizeof *arms);
    if (!arms)
        return tsr_fail_nomem(err, 2 * sizeof *arms, "an evaluation");
    arms[0].name = "model";
    arms[0].engine = e;
    arms[1].name = "reference";
    arms[1].engine = reference;
    uint64_t   n = reference ? 2 : 1;
    tsr_status st = tsr_eval_arms(arms, n, 1, pool, w, err);
    if (st == TSR_OK && arms[0].status != TSR_OK)
        st = tsr_err_copy(err, arms[0].status, &arms[0].error.err);
    *out = arms[0].result;
    tsr_eval_trace_free(&arms[0].at);
    tsr_eval_trace_free(&arms[1].at);
    free(arms);
    return st;
}
