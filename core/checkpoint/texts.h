/* checkpoint/texts.h - the text files of a model, by their names in a Hugging Face folder.  The source is
 * a folder, a prepacked file, or the metadata of a GGUF file, converted to these files.
 */
#ifndef TSR_CHECKPOINT_TEXTS_H
#define TSR_CHECKPOINT_TEXTS_H

#include "model/text_names.h"

#include "base/err.h"

#include <stdbool.h>

/* The text `name` of the model at `path`, a folder or a file (no "@demo").  *text is NUL-terminated,
 * freed by the caller, and NULL if the model has none.  where: the file to name in messages, freed by
 * the caller; it may be NULL.  [setup] */
tsr_status tsr_checkpoint_text_read(const char *path, const char *name, uint64_t cap, char **text,
                                    uint64_t *len, char **where, struct tsr_err *err);
/* Names of its further texts (model/text_names.h); a GGUF file has its templates in tokenizer_config.json.  l is freed by
 * the caller, also after an error. */
tsr_status tsr_checkpoint_text_list(const char *path, struct tsr_model_text_list *l,
                                    struct tsr_err *err);
/* Whether the model at `path` has the text. */
tsr_status tsr_checkpoint_text_there(const char *path, const char *name, bool *there,
                                     struct tsr_err *err);

#endif
