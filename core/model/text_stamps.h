/* model/text_stamps.h - identifies the text files of a model as of loading.
 *
 * Weights and settings are read at load time, but texts are read on first use.  The stamps detect files that
 * changed in between, so that a copy never mixes two models.
 */
#ifndef TSR_MODEL_TEXT_STAMPS_H
#define TSR_MODEL_TEXT_STAMPS_H

#include "base/err.h"
#include "base/stamp.h"

#define TSR_TEXT_STAMPS 12 /* config.json and the names of model/text_names.h */

struct tsr_model_text_stamps {
    struct tsr_stamp of[TSR_TEXT_STAMPS];
};

/* Of a model folder, or of the one file that holds all texts.  [any] */
void tsr_model_text_stamps_take(struct tsr_model_text_stamps *s, const char *path);
/* TSR_E_INPUT: the text `name` came, went or changed since then. */
tsr_status tsr_model_text_stamps_check(const struct tsr_model_text_stamps *s, const char *path,
                                       const char *name, struct tsr_err *err);

#endif
