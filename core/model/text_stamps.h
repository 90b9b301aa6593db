/* model/text_stamps.h - which files the texts of a model were when it was loaded.
 *
 * A model keeps its weights and settings from then on, while its texts are read when somebody wants them.  What is
 * read later must be of the same files, or a copy mixes two models.
 */
#ifndef TSR_MODEL_TEXT_STAMPS_H
#define TSR_MODEL_TEXT_STAMPS_H

#include "base/err.h"
#include "base/stamp.h"

#define TSR_TEXT_STAMPS 12 /* config.json and the names of model/texts.h */

struct tsr_text_stamps {
    struct tsr_stamp of[TSR_TEXT_STAMPS];
};

/* Of a model folder, or of the one file that holds all texts.  [any] */
void tsr_text_stamps_take(struct tsr_text_stamps *s, const char *path);
/* TSR_E_INPUT: the text `name` came, went or changed since then. */
tsr_status tsr_text_stamps_check(const struct tsr_text_stamps *s, const char *path,
                                 const char *name, struct tsr_err *err);

#endif
