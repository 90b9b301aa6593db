/* model/chat_texts.h - the chat templates of a model as texts, from the places where they stand. */
#ifndef TSR_MODEL_CHAT_TEXTS_H
#define TSR_MODEL_CHAT_TEXTS_H

#include "base/json.h"

/* Gives the file `name` of a model, NULL where it has none; text and where (what to call it in messages) are freed by
 * the caller. */
typedef tsr_status tsr_chat_reader(void *ctx, const char *name, uint64_t cap, char **text,
                                   uint64_t *len, char **where, struct tsr_err *err);

/* A new list of {"name", "template"}, empty where there is none; "default" is the one that chats take.  It is
 * chat_template.jinja, else that of tokenizer_config.json, else that of chat_template.json, which models with
 * a processor have; tokenizer_config.json may name others.  config: that file, a new reference, or NULL.
 * [setup] */
tsr_status tsr_chat_texts(json_t **list, json_t **config, tsr_chat_reader *read, void *ctx,
                          struct tsr_err *err);
/* The template of that name, borrowed, or NULL. */
const json_t *tsr_chat_texts_find(const json_t *list, const char *name);

#endif
