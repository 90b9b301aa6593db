/* model/text_names.h - the names of the text files that come with a model: tokenizer, chat template,
 * generation settings; and further chat templates, whose names are the model's own.
 */
#ifndef TSR_MODEL_TEXT_NAMES_H
#define TSR_MODEL_TEXT_NAMES_H

#include "base/err.h"

#include <stdint.h>

#define TSR_TEXT_MAX (UINT64_C(1) << 30) /* bytes of one */

/* The i-th file that a copy of a model takes along unchanged, NULL after the last.  config.json is not
 * among them: it says how the weights are stored.  [any] */
const char *tsr_model_text_name(uint64_t i);

/* Further texts that a copy takes along: additional_chat_templates/NAME.jinja. */
#define TSR_TEXT_TEMPLATES "additional_chat_templates"
#define TSR_TEXT_JINJA     ".jinja"
struct tsr_model_text_list {
    char   **v; /* sorted */
    uint64_t n;
};
/* Appends a name if it is one of theirs, and else does nothing.  [any] */
tsr_status tsr_model_text_list_add(struct tsr_model_text_list *l, const char *name,
                                   struct tsr_err *err);
/* Those in the folder of a model; none if it is no folder. */
tsr_status tsr_model_text_list_folder(struct tsr_model_text_list *l, const char *path,
                                      struct tsr_err *err);
void       tsr_model_text_list_free(struct tsr_model_text_list *l); /* zeroed or filled */

#endif
