/* model/family_text.h - the texts of configs/families, put into the program by tools/embed. */
#ifndef TSR_MODEL_FAMILY_TEXT_H
#define TSR_MODEL_FAMILY_TEXT_H

#include "families.h" /* TSR_FAMILY_BUILT_IN */

struct tsr_model_family_text {
    const char *name; /* "configs/families/llama.yaml" */
    const char *text;
};
extern const struct tsr_model_family_text tsr_model_family_texts[TSR_FAMILY_BUILT_IN];

#endif
