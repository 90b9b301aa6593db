/* model/gguf_vocab.h - the vocabulary of a GGUF file while it becomes a tokenizer.json.
 */
#ifndef TSR_MODEL_GGUF_VOCAB_H
#define TSR_MODEL_GGUF_VOCAB_H

#include "base/json.h"

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

/* Appends ["left", "right"] for every way to make a normal token of two others. */
tsr_status tsr_gguf_merges(const struct tsr_gguf_vocab *v, json_t *to, struct tsr_err *err);

#endif
