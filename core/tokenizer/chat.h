/* tokenizer/chat.h - messages of a chat as the tokens that a model was trained on.
 *
 * The templates of the families are built in (chat_forms.c) and are known by the exact text that a
 * model has (chat_texts.h; of a GGUF file tokenizer.chat_template); another text is refused with its
 * hash, never guessed at.
 */
#ifndef TSR_TOKENIZER_CHAT_H
#define TSR_TOKENIZER_CHAT_H

#include "tokenizer/tokenizer.h"

struct tsr_chat;

struct tsr_tokenizer_chat_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *text; /* UTF-8 */
    uint64_t    bytes;
};

/* From the text of a template.  bos and eos: the model's tokens, or NULL. */
tsr_status tsr_tokenizer_chat_create(struct tsr_chat **c, const char *text, uint64_t bytes,
                                     const char *bos, const char *eos,
                                     const struct tsr_tokenizer *t, struct tsr_err *err);
/* The same by the hash of the text ("xxh3:..."), without the text. */
tsr_status tsr_tokenizer_chat_create_hash(struct tsr_chat **c, const char *hash, const char *bos,
                                          const char *eos, const struct tsr_tokenizer *t,
                                          struct tsr_err *err);
void       tsr_tokenizer_chat_destroy(struct tsr_chat *c);
/* Its texts for the model's bos and eos; "" if the model has none. */
void tsr_tokenizer_chat_ends(const struct tsr_chat *c, const char **bos, const char **eos);
/* The name of its template, for messages. */
const char *tsr_tokenizer_chat_name(const struct tsr_chat *c);

/* Appends the ids of the conversation and of the beginning of the answer.  Special strings inside
 * of messages are plain text unless allow_special.  Roles that the template refuses are
 * TSR_E_INPUT.  [any] */
tsr_status tsr_tokenizer_chat_render(const struct tsr_chat                   *c,
                                     const struct tsr_tokenizer_chat_message *m, uint64_t n,
                                     bool allow_special, struct tsr_tokenizer_ids *ids,
                                     struct tsr_err *err);
#endif
