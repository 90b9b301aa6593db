/* checkpoint/safetensors/folder.h - the files of a model folder.
 *
 * A model folder is untrusted, so no name in it may make the program read a file outside of it.  One
 * rule holds for all of its files (configuration, weights, tokenizer, index, packed layers).  Each
 * is a regular file of the folder, or a symbolic link to a regular file below the folder.  If the
 * folder is a snapshot of the hub's cache (models--ORG--NAME/snapshots/REVISION), a link may also
 * lead to one of models--ORG--NAME/blobs.  The final target of a chain of links counts; the folder
 * itself may be named through links.
 */
#ifndef TSR_CHECKPOINT_SAFETENSORS_FOLDER_H
#define TSR_CHECKPOINT_SAFETENSORS_FOLDER_H

#include "base/file.h"

/* The folder of a model in which files are, too. */
#define TSR_CHECKPOINT_BELOW "additional_chat_templates/"

/* Opens `name` (without '/' but for TSR_CHECKPOINT_BELOW) of `folder` for reading.  TSR_E_INPUT names a link that leaves the
 * folder, and its target.  f->fd is -1 on error.  [any] */
tsr_status tsr_checkpoint_folder_open(struct tsr_file *f, const char *folder, const char *name,
                                      struct tsr_err *err);
/* Its whole text, NUL-terminated, and its path, both freed by the caller; more than cap bytes are
 * TSR_E_INPUT. */
tsr_status tsr_checkpoint_folder_slurp(const char *folder, const char *name, uint64_t cap,
                                       char **text, uint64_t *len, char **path,
                                       struct tsr_err *err);
/* The same for a file that may be absent: then *text and *path are NULL. */
tsr_status tsr_checkpoint_folder_slurp_if(const char *folder, const char *name, uint64_t cap,
                                          char **text, uint64_t *len, char **path,
                                          struct tsr_err *err);
/* Whether the name exists, as any file type.  Dangling links and names that cannot be examined
 * count, so that opening them reports the reason. */
tsr_status tsr_checkpoint_folder_has(const char *folder, const char *name, bool *yes,
                                     struct tsr_err *err);

#endif
