/* "@demo": the model that comes with the program. */
#include "base/mem.h"
#include "base/share.h"
#include "checkpoint/hub.h"
#include "checkpoint/packed/packed_model.h"
#include "model/model.h"

#include <string.h>

bool tsr_model_is_name(const char *path)
{
    return path[0] == '@' || strncmp(path, TSR_HUB_PREFIX, strlen(TSR_HUB_PREFIX)) == 0;
}

tsr_status tsr_model_resolve(const char *path, char **folder, struct tsr_err *err)
{
    if (strncmp(path, TSR_HUB_PREFIX, strlen(TSR_HUB_PREFIX)) == 0)
        return tsr_checkpoint_hub_find(path, folder, err);
    if (path[0] != '@') {
        bool packed;
        TSR_TRY(tsr_checkpoint_hub_open(path, folder, err));
        if (*folder)
            return TSR_OK;
        TSR_TRY(
            tsr_packed_model_find(path, &packed, err)); /* an unfinished one has no tokenizer yet */
        *folder = tsr_strdup(path);
        return *folder ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
    }
    if (strcmp(path, "@demo") != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: no such bundled model; @demo is the only one (a folder of that name: "
                        "./%s)",
                        path, path);
    return tsr_share_find(folder, path, "demo", "configs/demo", err);
}
