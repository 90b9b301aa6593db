/* checkpoint/gguf/vocab.h - the vocabulary of a GGUF file while it becomes a tokenizer.json.
 */
#ifndef TSR_CHECKPOINT_GGUF_VOCAB_H
#define TSR_CHECKPOINT_GGUF_VOCAB_H

#include "base/json.h"
#include "checkpoint/gguf/gguf.h"

#define GGUF_MAX_TOKEN 1024u /* bytes of one */

/* tokenizer.ggml.token_type */
enum tsr_gguf_kind {
    GGUF_UNDEFINED,
    GGUF_NORMAL,
    GGUF_UNKNOWN,
    GGUF_CONTROL,
    GGUF_USER,
    GGUF_UNUSED,
    GGUF_BYTE
};

struct tsr_gguf_token {
    const char        *s; /* UTF-8 without NUL, not terminated */
    uint32_t           n;
    float              score;
    enum tsr_gguf_kind kind;
    bool               twin; /* an earlier token has the same text */
};
struct tsr_gguf_vocab {
    struct tsr_gguf_token *token;
    uint32_t               n;
};

/* A tokenizer.json in the making. */
struct tsr_gguf_make {
    const struct tsr_gguf *g;
    struct tsr_gguf_vocab  v;
    char                  *fill; /* text of empty tokens */
    json_t                *j;
    struct tsr_err        *err;
};

/* Sets a member; takes ownership of v, which may be NULL after a failure. */
tsr_status tsr_gguf_put(struct tsr_gguf_make *k, json_t *to, const char *key, json_t *v);
/* Tokens with their kinds and, required if scored, scores. */
tsr_status tsr_gguf_read_vocab(struct tsr_gguf_make *k, bool scored);
/* "vocab": {"token": id} */
tsr_status tsr_gguf_put_vocab(struct tsr_gguf_make *k, json_t *model);
/* "added_tokens": matched in a text before normalization. */
tsr_status tsr_gguf_put_added(struct tsr_gguf_make *k);
/* The special token whose id the key has, else def; NULL: none. */
tsr_status tsr_gguf_special(struct tsr_gguf_make *k, const char *key, int64_t def,
                            const struct tsr_gguf_token **t);
/* "post_processor": BOS and EOS around a text.  add_* and *_id are defaults for absent keys. */
tsr_status tsr_gguf_put_specials(struct tsr_gguf_make *k, bool add_bos, bool add_eos,
                                 int64_t bos_id, int64_t eos_id);
json_t    *tsr_gguf_text_of(const struct tsr_gguf_token *t);

/* The kinds of tokenizer.ggml.model. */
tsr_status tsr_gguf_make_spm(struct tsr_gguf_make *k);
tsr_status tsr_gguf_make_unigram(struct tsr_gguf_make *k);
tsr_status tsr_gguf_make_bpe(struct tsr_gguf_make *k);

/* Appends ["left", "right"] for every way to make a normal token of two others. */
tsr_status tsr_gguf_merges(const struct tsr_gguf_vocab *v, json_t *to, struct tsr_err *err);

#endif
