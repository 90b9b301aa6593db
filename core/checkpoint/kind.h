/* checkpoint/kind.h - which kind of file a path is, decided by its first bytes, read once.
 *
 * That a file cannot be read now, for want of descriptors or memory, is an error and no kind: a wrong kind
 * would be refused with a sentence about its contents.
 */
#ifndef TSR_CHECKPOINT_KIND_H
#define TSR_CHECKPOINT_KIND_H

#include "base/err.h"

enum tsr_checkpoint_kind {
    TSR_CHECKPOINT_OTHER, /* a folder, another file, nothing */
    TSR_CHECKPOINT_GGUF,
    TSR_CHECKPOINT_PREPACKED,
};

/* TSR_E_IO or TSR_E_NOMEM: it is there and cannot be read.  [any] */
tsr_status tsr_checkpoint_kind(const char *path, enum tsr_checkpoint_kind *kind,
                               struct tsr_err *err);

#endif
