/* tokenizer/chat_texts.h - the chat templates of a model as texts, from the files that contain them. */
#ifndef TSR_TOKENIZER_CHAT_TEXTS_H
#define TSR_TOKENIZER_CHAT_TEXTS_H

#include "base/json.h"

/* Returns the file `name` of a model, NULL if it has none; the caller frees text and where (its name in
 * messages). */
typedef tsr_status tsr_tokenizer_chat_reader(void *ctx, const char *name, uint64_t cap, char **text,
                                             uint64_t *len, char **where, struct tsr_err *err);

/* A new list of {"name", "template"}, empty if there is none; "default" is the one for chats.  It is
 * chat_template.jinja, else that of tokenizer_config.json, else that of chat_template.json, which models with
 * a processor have.  Others are the files `more`, FOLDER/NAME.jinja, and those that tokenizer_config.json names; of one
 * name the file counts.  A file of `more` that is no text gives {"name", "error", "object"}, the bytes of the error's
 * object at its beginning.  config: tokenizer_config.json, a new reference, or NULL.  [setup] */
tsr_status tsr_tokenizer_chat_texts(json_t **list, json_t **config, const char *const *more,
                                    uint64_t n_more, tsr_tokenizer_chat_reader *read, void *ctx,
                                    struct tsr_err *err);
/* The entry of that name, borrowed, or NULL. */
const json_t *tsr_tokenizer_chat_texts_find(const json_t *list, const char *name);
/* TSR_E_INPUT with the sentence of an entry that has "error". */
tsr_status tsr_tokenizer_chat_texts_check(const json_t *one, struct tsr_err *err);

#endif
