/* checkpoint/export/gguf_tokens.h - a tokenizer.json on its way into the metadata of a GGUF file. */
#ifndef TSR_CHECKPOINT_EXPORT_GGUF_TOKENS_H
#define TSR_CHECKPOINT_EXPORT_GGUF_TOKENS_H

#include "base/json.h"
#include "checkpoint/export/gguf_out.h"

struct tsr_export_gguf_tokens {
    struct tsr_export            *x;
    struct tsr_export_gguf_bytes *b;
    const json_t                 *root, *model;
    const char                  **text; /* [vocab], borrowed; NULL: no token has this id */
    int32_t                      *kind; /* [vocab]: tokenizer.ggml.token_type */
    uint64_t                      vocab;
};

/* gguf_texts.c */
tsr_status tsr_export_gguf_refuse(const struct tsr_export_gguf_tokens *t, const char *why);
/* A text, or of a member; "" if it is none. */
const char *tsr_export_gguf_text(const json_t *s);
const char *tsr_export_gguf_word(const json_t *o, const char *key);
/* The key of the tokens' texts.  spaces: [vocab], which tokens have spaces as a text has them; or
 * NULL. */
#define TSR_EXPORT_GGUF_SPACE "\xe2\x96\x81" /* U+2581, which represents a space */
void tsr_export_gguf_put_texts(const struct tsr_export_gguf_tokens *t, const bool *spaces);

/* gguf_spm.c: BPE with bytes as a fallback, which llama.cpp calls SPM; all keys but the tokens that begin and end a text. */
bool       tsr_export_gguf_is_spm(const struct tsr_export_gguf_tokens *t);
tsr_status tsr_export_gguf_put_spm(const struct tsr_export_gguf_tokens *t);

#endif
