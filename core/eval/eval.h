/* eval/eval.h - perplexity by named protocols, and KL and top-1 agreement against a
 * reference on the same tokens.  A number without its protocol is not printed anywhere. */
#ifndef TSR_EVAL_EVAL_H
#define TSR_EVAL_EVAL_H

#include "base/err.h"
#include "engine/engine.h"
#include "model/tokenizer.h"

#include <stdbool.h>

enum tsr_protocol { TSR_PPL_GPTQ_2048, TSR_PPL_LLAMACPP_512, TSR_PPL_LM_EVAL_WIKITEXT };
enum tsr_rows { TSR_ROWS_FILE, TSR_ROWS_LINES, TSR_ROWS_JSONL };

struct tsr_eval_options {
    enum tsr_protocol protocol;
    enum tsr_rows     rows;
    const char       *join;        /* between rows; NULL: "\n\n" */
    uint64_t          window;      /* 0: the protocol's, at most the context */
    uint64_t          max_windows; /* 0: all */
};

/* The text cut into the protocol's windows; made once, so that all arms of a comparison see
 * the same tokens.  scored[i] says from which token of the window on positions count. */
struct tsr_windows {
    uint32_t               *ids;        /* all windows behind each other */
    uint64_t               *start;      /* [n+1] offsets into ids */
    uint64_t               *score_from; /* [n] first predicted position that is scored */
    double                 *weight; /* [n] how the protocol weighs the window's mean, see eval.c */
    uint64_t                n;
    uint64_t                tokens;       /* the protocol's own denominator */
    uint64_t                words, bytes; /* lm-eval only */
    char                    text_hash[48];
    struct tsr_eval_options opt;
    const char             *protocol_name;
    const char             *bos;    /* "once", "per window", "per document" or "none" */
    uint64_t                window; /* tokens in a full window */
    uint64_t                scored; /* positions that are scored, over all windows */
};
tsr_status tsr_windows_create(struct tsr_windows **w, const struct tsr_tokenizer *t,
                              const struct tsr_model *m, const char *text_path,
                              const struct tsr_eval_options *opt, struct tsr_err *err);
void       tsr_windows_destroy(struct tsr_windows *w);
/* Whether the windows' tokens mean the same text to both: a model's tokenizer and the one in a GGUF
 * file made of it are not the same bytes, and yet the same tokens. */
tsr_status tsr_windows_agree(const struct tsr_windows *w, const struct tsr_tokenizer *a,
                             const struct tsr_tokenizer *b, bool *agree, struct tsr_err *err);

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

/* What an arm did at every scored position, window after window: what paired differences are taken
 * of.  Log-likelihoods and divergences are of order 1 with a spread of their own; F32 keeps seven
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
                        const struct tsr_windows *w, struct tsr_eval_result *out,
                        struct tsr_err *err);

/* The same for several engines in step, so that the reference runs once: after return each arm
 * has a result or its own failure, and one arm's failure does not stop the others (but the
 * reference's does).  reference: index of the arm that the others are compared with, or n for
 * none.  The arms' engines may be of different models and overlays, not of different vocabularies.
 * The reference may be a .kld file instead of an engine; then w must be of that file, and only the
 * likelihoods and first choices of the file are its result.  Or it may be hidden rows that an engine
 * left for these windows, in the order in which they are scored. */
struct tsr_kld;
struct tsr_kld_out;
struct tsr_states;
struct tsr_eval_arm {
    const char            *name;
    struct tsr_engine     *engine; /* NULL: base or states */
    const struct tsr_kld  *base;
    struct tsr_states     *states;
    struct tsr_kld_out    *save; /* of the reference: takes its rows; or NULL */
    tsr_status             status;
    struct tsr_errbuf      error;
    struct tsr_eval_result result;
    struct tsr_eval_trace  at; /* out; the caller frees */
};
tsr_status tsr_eval_arms(struct tsr_eval_arm *arms, uint64_t n, uint64_t reference,
                         struct tsr_pool *pool, const struct tsr_windows *w, struct tsr_err *err);

const char *tsr_protocol_name(enum tsr_protocol p); /* "gptq-2048" */

/* The choices of the options `protocol` and `rows`, for tables. */
extern const struct tsr_choice tsr_protocol_choices[3];
extern const struct tsr_choice tsr_rows_choices[3];

/* ---- parts, for tests ----------------------------------------------------- */

/* lm-evaluation-harness's WikiText detokenizer on one page (UTF-8). */
tsr_status tsr_wikitext_detokenize(const char *page, uint64_t len, struct tsr_text *out,
                                   struct tsr_err *err);
/* len(re.split(r"\s+", page)) as Python counts it. */
uint64_t tsr_count_words(const char *page, uint64_t len);

/* Negative log-likelihood of `label` under logits, and lse = log sum exp, in double. */
double tsr_nll(const float *logits, uint64_t vocab, uint32_t label, double *lse);
/* KL(p || q) of two rows of logits whose lse are known. */
double tsr_kl(const float *p, double p_lse, const float *q, double q_lse, uint64_t vocab);
/* Index of the largest, the lowest of equals. */
uint64_t tsr_argmax(const float *logits, uint64_t vocab);

#endif
