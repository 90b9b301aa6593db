/* base/user.h - the folder of what the user installed: plugins, model families, tasks. */
#ifndef TSR_BASE_USER_H
#define TSR_BASE_USER_H

#include "base/err.h"

#include <stdbool.h>

/* $XDG_DATA_HOME/tessera/plugins, or $HOME/.local/share/tessera/plugins, in fresh memory; the folder need not exist.
 * *path NULL: neither variable is an absolute path, and the user has no such folder.  [setup] */
tsr_status tsr_user_folder(char **path, struct tsr_err *err);

/* Folders in it, of files NAME.yaml. */
#define TSR_USER_FAMILIES "families"
#define TSR_USER_TASKS    "tasks"
/* The file FOLDER/below/NAME.yaml of the user's, in fresh memory; *path NULL: it is not there.  name has no '/'.
 * [setup] */
tsr_status tsr_user_file(char **path, const char *below, const char *name, struct tsr_err *err);
/* Names of the .yaml files in FOLDER/below, sorted, without the ending; the caller frees each and the list.  A folder
 * that is not there has none.  [setup] */
tsr_status tsr_user_files(char ***names, uint64_t *n, const char *below, struct tsr_err *err);

#endif
