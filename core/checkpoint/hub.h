/* checkpoint/hub.h - models and data sets in the local cache of the Hugging Face hub.  Nothing is downloaded.
 *
 *   the folder of tsr_checkpoint_hub_use(), else ~/.cache/huggingface/hub; no variable of the environment moves it
 *     models--ORG--NAME/refs/main            the commit of a branch or tag, as text
 *     models--ORG--NAME/snapshots/COMMIT/    the files, as links
 */
#ifndef TSR_CHECKPOINT_HUB_H
#define TSR_CHECKPOINT_HUB_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_HUB_PREFIX "hf:"

/* Sets the cache for this process: borrowed, and kept as long as models are looked for.  NULL or "": the default place.
 * [setup] */
void tsr_checkpoint_hub_use(const char *folder);

/* The snapshot that "hf:ORG/NAME" or "hf:ORG/NAME@REVISION" names; a revision is a branch, a tag or a commit, and
 * main by default.  Fresh memory.  TSR_E_INPUT with the command that downloads it if it is not there.  [any] */
tsr_status tsr_checkpoint_hub_find(const char *name, char **folder, struct tsr_err *err);
/* The snapshot of a data set, "ORG/NAME", in datasets--ORG--NAME; *folder NULL if the cache has none.  [any] */
tsr_status tsr_checkpoint_hub_data_set(const char *name, char **folder, struct tsr_err *err);
/* The same for the folder models--ORG--NAME itself; *folder NULL if it is none.  [any] */
tsr_status tsr_checkpoint_hub_open(const char *path, char **folder, struct tsr_err *err);

#endif
