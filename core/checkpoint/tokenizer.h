/* checkpoint/tokenizer.h - the tokenizer and the chat template of a model: from a folder, a GGUF file or a
 * prepacked model.
 */
#ifndef TSR_CHECKPOINT_TOKENIZER_H
#define TSR_CHECKPOINT_TOKENIZER_H

#include "base/json.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

/* The tokenizer of the model at `path`: a folder with tokenizer.json, a prepacked file made of one,
 * or a GGUF file.  TSR_E_INPUT if the path is not a model or the model has no tokenizer.  [setup] */
tsr_status tsr_checkpoint_tokenizer_load(struct tsr_tokenizer **t, const char *path,
                                         struct tsr_err *err);
/* Whether there is one to load. */
tsr_status tsr_checkpoint_tokenizer_there(const char *path, bool *there, struct tsr_err *err);
/* The chat templates of a model, as tokenizer/chat_texts.h has them; new references.  [setup] */
tsr_status tsr_checkpoint_chat_texts(const char *path, json_t **list, json_t **config,
                                     struct tsr_err *err);
/* Which template. */
struct tsr_checkpoint_chat {
    const char *name; /* of one of the model's; NULL: the default */
    const char *file; /* the path to read where the model has none of that name; or NULL */
    int64_t     date; /* for strftime_now, seconds since 1970 */
};
/* The template of a model: its folder, GGUF file or prepacked file.  TSR_E_INPUT: there is none, or it is not one that can
 * run.  t must outlive it.  [setup] */
tsr_status tsr_checkpoint_chat_load(struct tsr_chat **c, const char *path,
                                    const struct tsr_checkpoint_chat *how,
                                    const struct tsr_tokenizer *t, struct tsr_err *err);

#endif
