/* model/text_names.h - the names of the text files that come with a model: tokenizer, chat template,
 * generation settings.
 */
#ifndef TSR_MODEL_TEXT_NAMES_H
#define TSR_MODEL_TEXT_NAMES_H

#include <stdint.h>

#define TSR_TEXT_MAX (UINT64_C(1) << 30) /* bytes of one */

/* The i-th file that a copy of a model takes along unchanged, NULL after the last.  config.json is not
 * among them: it says how the weights are stored.  [any] */
const char *tsr_model_text_name(uint64_t i);

#endif
