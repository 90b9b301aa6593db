/* eval/eval.h - perplexity by named protocols, and KL and top-1 agreement against a
 * reference on the same tokens.  A number without its protocol is not printed anywhere. */
#ifndef TSR_EVAL_EVAL_H
#define TSR_EVAL_EVAL_H

#include "base/err.h"
#include "engine/engine.h"
#include "model/tokenizer.h"

enum tsr_protocol { TSR_PPL_GPTQ_2048, TSR_PPL_LLAMACPP_512, TSR_PPL_LM_EVAL_WIKITEXT };
enum tsr_rows { TSR_ROWS_FILE, TSR_ROWS_LINES, TSR_ROWS_JSONL };

struct tsr_eval_options {
    enum tsr_protocol protocol;
    enum tsr_rows     rows;
    const char       *join;      /* between rows; NULL: "\n\n" */
    uint64_t          window;    /* 0: the protocol's, at most the context */
    uint64_t          max_windows; /* 0: all */
};

/* The text cut into the protocol's windows; made once, so that all arms of a comparison see
 * the same tokens.  scored[i] says from which token of the window on positions count. */
struct tsr_windows {
    uint32_t *ids;               /* all windows behind each other */
    uint64_t *start;             /* [n+1] offsets into ids */
    uint64_t *score_from;        /* [n] first predicted position that is scored */
    double   *weight;            /* [n] how the protocol weighs the window's mean, see eval.c */
    uint64_t  n;
    uint64_t  tokens;            /* the protocol's own denominator */
    uint64_t  words, bytes;      /* lm-eval only */
    char      text_hash[48];
    struct tsr_eval_options opt;
    const char *protocol_name;
};
tsr_status tsr_windows_create(struct tsr_windows **w, const struct tsr_tokenizer *t,
                              const struct tsr_model *m, const char *text_path,
                              const struct tsr_eval_options *opt, struct tsr_err *err);
void       tsr_windows_destroy(struct tsr_windows *w);

struct tsr_eval_result {
    double   perplexity;
    double   mean_nll;           /* per scored token */
    uint64_t tokens;
    double   word_perplexity, byte_perplexity, bits_per_byte; /* lm-eval */
    /* against a reference; NaN without one */
    double   kl_mean, kl_max, kl_p99, kl_median, top1;
    double   seconds;
};

/* Evaluates `e`; with `reference` (may be NULL) runs both, window by window. */
tsr_status tsr_eval_run(struct tsr_engine *e, struct tsr_engine *reference,
                        const struct tsr_windows *w, struct tsr_eval_result *out,
                        struct tsr_err *err);

const char *tsr_protocol_name(enum tsr_protocol p); /* "gptq-2048" */

#endif
