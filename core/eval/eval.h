/* eval/eval.h - perplexity by named protocols, and KL and top-1 agreement against a
 * reference on the same tokens.  A number without its protocol is not printed anywhere. */
#ifndef TSR_EVAL_EVAL_H
#define TSR_EVAL_EVAL_H

#include "engine/engine.h"
#include "eval/windows.h"

struct tsr_eval_result {
    double   perplexity;
    double   mean_nll; /* per scored token */
    uint64_t tokens;   /* the protocol's denominator */
    uint64_t scored;
    double   word_perplexity, byte_perplexity, bits_per_byte; /* lm-eval */
    /* against a reference; NaN without one */
    double kl_mean, kl_max, kl_p99, kl_median, top1;
    double seconds;
};

/* Values of an arm at every scored position, window after window: the input of paired differences.
 * Log-likelihoods and divergences are of order 1 with a spread of the same order; F32 keeps seven
 * digits of each. */
struct tsr_eval_trace {
    float    *nll, *kl; /* [n]; kl NULL without a reference */
    uint32_t *top1;     /* [n] the token that the arm ranks first */
    uint64_t  n;
};
tsr_status tsr_eval_trace_create(struct tsr_eval_trace *p, uint64_t n, bool kl,
                                 struct tsr_err *err);
void       tsr_eval_trace_free(struct tsr_eval_trace *p);

/* Evaluates `e`; with `reference` (may be NULL) runs both, window by window. */
tsr_status tsr_eval_run(struct tsr_engine *e, struct tsr_engine *reference, struct tsr_pool *pool,
                        const struct tsr_eval_windows *w, struct tsr_eval_result *out,
                        struct tsr_err *err);

/* Evaluates several engines in step, so that the reference runs once.  After return each arm has a
 * result or its own failure; one arm's failure does not stop the others (but the reference's does).
 * reference: index of the baseline arm, or n for none.  The arms' engines may be of different models
 * and overlays, but need the same vocabulary.  The reference may be a .kld file instead of an
 * engine; then w must be of that file, and its result is only the likelihoods and first choices of
 * the file.  It may also be stored hidden rows of an engine for these windows, in the order of
 * scoring.  An arm may run layer by layer, or in the stages of a plan,
 * instead of in an engine. */
struct tsr_eval_kld;
struct tsr_kld_out;
struct tsr_states;
struct tsr_eval_layers;
struct tsr_eval_chain;
struct tsr_eval_arm {
    const char                *name;
    struct tsr_engine         *engine; /* NULL: base, states, layers or chain */
    const struct tsr_eval_kld *base;
    struct tsr_states         *states;
    struct tsr_eval_layers    *layers; /* of the same windows */
    struct tsr_eval_chain     *chain;  /* a plan's stages */
    struct tsr_kld_out        *save;   /* of the reference: takes its rows; or NULL */
    tsr_status                 status;
    struct tsr_errbuf          error;
    struct tsr_eval_result     result;
    struct tsr_eval_trace      at; /* out; the caller frees */
};
tsr_status tsr_eval_arms(struct tsr_eval_arm *arms, uint64_t n, uint64_t reference,
                         struct tsr_pool *pool, const struct tsr_eval_windows *w,
                         struct tsr_err *err);

/* Negative log-likelihood of `label` under logits, and lse = log sum exp, in double. */
double tsr_eval_nll(const float *logits, uint64_t vocab, uint32_t label, double *lse);
/* KL(p || q) of two rows of logits whose lse are known. */
double tsr_eval_kl(const float *p, double p_lse, const float *q, double q_lse, uint64_t vocab);
/* Index of the largest, the lowest of equals. */
uint64_t tsr_eval_argmax(const float *logits, uint64_t vocab);

#endif
