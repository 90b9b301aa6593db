/* model/texts.h - the files of text that come with a model, by their names in a Hugging Face folder,
 * whatever holds them: a folder, a prepacked file, or the metadata of a GGUF file, which are put
 * into the words of such files.
 */
#ifndef TSR_MODEL_TEXTS_H
#define TSR_MODEL_TEXTS_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_TEXT_MAX (UINT64_C(1) << 30) /* bytes of one */

/* The i-th name of those that a copy of a model takes along unchanged, NULL after the last.
 * config.json is none of them: it says how the weights are stored.  [any] */
const char *tsr_text_name(uint64_t i);

/* The text `name` of the model at `path`, a folder or a file (no "@demo").  *text is NUL-terminated,
 * freed by the caller, and NULL where the model has none.  where: the file to name in messages, freed
 * by the caller; it may be NULL.  [setup] */
tsr_status tsr_text_read(const char *path, const char *name, uint64_t cap, char **text,
                         uint64_t *len, char **where, struct tsr_err *err);
/* Whether the model at `path` has the text.  What cannot be read counts, so that its reader says why. */
bool tsr_text_there(const char *path, const char *name);

#endif
