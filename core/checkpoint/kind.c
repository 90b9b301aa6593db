#include "checkpoint/kind.h"

#include "base/file.h"
#include "checkpoint/prepacked/prepacked.h"

#include <string.h>

tsr_status tsr_checkpoint_kind(const char *path, enum tsr_checkpoint_kind *kind,
                               struct tsr_err *err)
{
    char first[TSR_FILE_FIRST];
    *kind = TSR_CHECKPOINT_OTHER;
    TSR_TRY(tsr_file_first(path, first, err));
    if (memcmp(first, "GGUF", 4) == 0)
        *kind = TSR_CHECKPOINT_GGUF;
    else if (memcmp(first, TSR_PREPACKED_MAGIC, 8) == 0)
        *kind = TSR_CHECKPOINT_PREPACKED;
    return TSR_OK;
}
