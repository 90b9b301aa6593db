/* Model arguments: "@demo", the model that comes with the program, names of the hub, a configuration alone. */
#include "base/file.h"
#include "base/mem.h"
#include "base/share.h"
#include "checkpoint/contents.h"
#include "checkpoint/hub.h"
#include "checkpoint/packed/packed_model.h"
#include "model/model.h"

#include <stdlib.h>
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

tsr_status tsr_model_config_alone(const char *path, char **config, struct tsr_err *err)
{
    static const char end[] = ".json";
    size_t            n = strlen(path);
    bool              alone = false;
    char             *folder = NULL;
    *config = NULL;
    if (n > sizeof end - 1 && strcmp(path + n - (sizeof end - 1), end) == 0) {
        *config = tsr_strdup(path);
        return *config ? TSR_OK : tsr_fail_nomem(err, n, path);
    }
    TSR_TRY(tsr_model_resolve(path, &folder, err));
    tsr_status st = tsr_checkpoint_contents_config_alone(folder, &alone, err);
    if (st == TSR_OK && alone && !(*config = tsr_path_join(folder, "config.json")))
        st = tsr_fail_nomem(err, strlen(folder), path);
    free(folder);
    return st;
}
