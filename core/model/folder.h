/* model/folder.h - the files of a model folder.
 *
 * A model folder comes from elsewhere, so no name in it may make the program read a file that lies
 * elsewhere.  One rule holds for every file of one (configuration, weights, tokenizer, index, packed
 * layers): it is a regular file of the folder, or a symbolic link that leads to a regular file
 * below the folder, or, where the folder is a snapshot of the hub's cache
 * (models--ORG--NAME/snapshots/REVISION), to one of models--ORG--NAME/blobs.  What counts is where a
 * link ends, after every link on the way; the folder itself may be named through links.
 */
#ifndef TSR_MODEL_FOLDER_H
#define TSR_MODEL_FOLDER_H

#include "base/file.h"

/* Opens `name` (without '/') of `folder` for reading.  TSR_E_INPUT names a link that leads out and
 * where it leads.  f->fd is -1 on error.  [any] */
tsr_status tsr_folder_open(struct tsr_file *f, const char *folder, const char *name,
                           struct tsr_err *err);
/* Its whole text, NUL-terminated, and its path, both freed by the caller; more than cap bytes are
 * TSR_E_INPUT. */
tsr_status tsr_folder_slurp(const char *folder, const char *name, uint64_t cap, char **text,
                            uint64_t *len, char **path, struct tsr_err *err);
/* The same for a file that may be absent: *text is NULL then, and *path too. */
tsr_status tsr_folder_slurp_if(const char *folder, const char *name, uint64_t cap, char **text,
                               uint64_t *len, char **path, struct tsr_err *err);
/* Whether the name stands there, as anything: a link that leads nowhere counts, and so does what
 * cannot be looked at, so that who opens it hears why. */
tsr_status tsr_folder_has(const char *folder, const char *name, bool *yes, struct tsr_err *err);

#endif
