/* eval/windows.h - a text cut into the windows of a protocol. */
#ifndef TSR_EVAL_WINDOWS_H
#define TSR_EVAL_WINDOWS_H

#include "model/model.h"
#include "plugin/choices.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>

enum tsr_protocol {
    TSR_EVAL_PPL_GPTQ_2048,
    TSR_EVAL_PPL_LLAMACPP_512,
    TSR_EVAL_PPL_LM_EVAL_WIKITEXT
};
enum tsr_engine_rows { TSR_EVAL_ROWS_FILE, TSR_EVAL_ROWS_LINES, TSR_EVAL_ROWS_JSONL };

struct tsr_eval_options {
    enum tsr_protocol    protocol;
    enum tsr_engine_rows rows;
    const char          *join;        /* between rows; NULL: "\n\n" */
    uint64_t             window;      /* 0: the protocol's, at most the context */
    uint64_t             max_windows; /* 0: all */
    bool no_bos; /* lm-eval-wikitext: the tokenizer adds none, so that none is scored */
};

/* The text cut into the protocol's windows; made once, so that all arms of a comparison see
 * the same tokens.  scored[i] says from which token of the window on positions count. */
struct tsr_eval_windows {
    uint32_t               *ids;        /* all windows, concatenated */
    uint64_t               *start;      /* [n+1] offsets into ids */
    uint64_t               *score_from; /* [n] first predicted position that is scored */
    double                 *weight; /* [n] how the protocol weighs the window's mean, see eval.c */
    uint64_t                n;
    uint64_t                tokens;       /* the protocol's own denominator */
    uint64_t                words, bytes; /* lm-eval only */
    char                    text_hash[48];
    struct tsr_eval_options opt;
    const char             *protocol_name;
    const char *bos;    /* "once", "per window", "per document", that and ", scored", or "none" */
    uint64_t    window; /* tokens in a full window */
    uint64_t    scored; /* positions that are scored, over all windows */
};
tsr_status tsr_eval_windows_create(struct tsr_eval_windows **w, const struct tsr_tokenizer *t,
                                   const struct tsr_model *m, const char *text_path,
                                   const struct tsr_eval_options *opt, struct tsr_err *err);
void       tsr_eval_windows_destroy(struct tsr_eval_windows *w);
/* Appends the windows of another text, which was cut by the same protocol: one measurement over both.  text_hash becomes that of
 * both hashes. */
tsr_status tsr_eval_windows_append(struct tsr_eval_windows *w, const struct tsr_eval_windows *more,
                                   struct tsr_err *err);
/* Whether the windows' tokens mean the same text to both: a model's tokenizer and the one in a GGUF
 * file made of it are not the same bytes, and yet the same tokens. */
tsr_status tsr_eval_windows_agree(const struct tsr_eval_windows *w, const struct tsr_tokenizer *a,
                                  const struct tsr_tokenizer *b, bool *agree, struct tsr_err *err);

const char *tsr_eval_protocol_name(enum tsr_protocol p); /* "gptq-2048" */

/* The choices of the options `protocol` and `rows`, for tables. */
extern const struct tsr_choice tsr_protocol_choices[3];
extern const struct tsr_choice tsr_rows_choices[3];

#endif
