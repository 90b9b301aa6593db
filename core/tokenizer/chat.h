/* tokenizer/chat.h - messages of a chat as tokens, by the model's own chat template (template/template.h).
 */
#ifndef TSR_TOKENIZER_CHAT_H
#define TSR_TOKENIZER_CHAT_H

#include "tokenizer/tokenizer.h"

#include <jansson.h>

struct tsr_chat;

/* Where a template comes from. */
struct tsr_tokenizer_chat_source {
    const json_t *templates; /* of the model: a list of {"name", "template"} */
    const json_t *config;    /* tokenizer_config.json, for special tokens; or NULL */
    const char
        *name; /* of the one to use; NULL: the default, for tools "tool_use" if there is one */
    const char *text;  /* a template from elsewhere, instead of those; or NULL */
    const char *where; /* its file, for messages */
    uint64_t    bytes;
    int64_t     date; /* of strftime_now: seconds since 1970 */
};

/* TSR_E_INPUT: there is no such template, or it is not one that can run.  t must outlive it.  [setup] */
tsr_status tsr_tokenizer_chat_create(struct tsr_chat                       **c,
                                     const struct tsr_tokenizer_chat_source *source,
                                     const struct tsr_tokenizer *t, struct tsr_err *err);
void       tsr_tokenizer_chat_destroy(struct tsr_chat *c);
/* "2024-07-26" as the seconds of a source's date; false: it is not a date. */
bool tsr_tokenizer_chat_date(const char *text, int64_t *seconds);
/* What tells two templates apart: {"template": hash, "tokens": {...}, "date": ...}, borrowed. */
const json_t *tsr_tokenizer_chat_about(const struct tsr_chat *c);

/* The text of the template, borrowed; NULL: it is not UTF-8. */
const json_t *tsr_tokenizer_chat_text(const struct tsr_chat *c);

/* Appends the ids of the conversation and of the beginning of the answer.  messages: a list of objects with "role";
 * tools: a list or NULL; more: an object of further variables, or NULL.  Special strings that come from these are
 * plain text unless allow_special.  TSR_E_INPUT: the template refuses the conversation; the message has its line.
 * [any] */
tsr_status tsr_tokenizer_chat_render(const struct tsr_chat *c, const json_t *messages,
                                     const json_t *tools, const json_t *more, bool allow_special,
                                     struct tsr_tokenizer_ids *ids, struct tsr_err *err);

/* A conversation as text, and the ids that tsr_tokenizer_chat_render() has for it; none for an empty text.  input: an object
 * with all variables of the template: messages, tools, add_generation_prompt, bos_token, ...; tools and documents are
 * null where it has none.  TSR_E_INPUT: the template refuses it; with *raised, text is what it gave to
 * raise_exception().  Free text and ids in every case.  [any] */
tsr_status tsr_tokenizer_chat_write(const struct tsr_chat *c, const json_t *input,
                                    struct tsr_tokenizer_text *text, bool *raised,
                                    struct tsr_tokenizer_ids *ids, struct tsr_err *err);
#endif
