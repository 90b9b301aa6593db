/* "@demo": the model that comes with the program. */
#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* dir/name; *found tells whether it is a folder. */
static tsr_status folder_in(const char *dir, const char *name, char **path, bool *found,
                            struct tsr_err *err)
{
    *path = tsr_path_join(dir, name);
    *found = *path && tsr_path_is_dir(*path);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(dir), name);
}

static tsr_status find_demo(const char *exe_dir, char **folder, struct tsr_err *err)
{
    char *installed, *built;
    bool  found;
    TSR_TRY(folder_in(exe_dir, "../share/tessera/demo", &installed, &found, err));
    if (found) {
        *folder = installed;
        return TSR_OK;
    }
    tsr_status st = folder_in(TSR_BUILD_ROOT, "configs/demo", &built, &found, err);
    if (st == TSR_OK && found) {
        *folder = built;
        built = NULL;
    } else if (st == TSR_OK) {
        st = tsr_fail(err, TSR_E_INPUT, "@demo: the demo model is neither in %s nor in %s",
                      installed, built);
    }
    free(built);
    free(installed);
    return st;
}

tsr_status tsr_model_resolve(const char *path, char **folder, struct tsr_err *err)
{
    if (path[0] != '@') {
        *folder = tsr_strdup(path);
        return *folder ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
    }
    if (strcmp(path, "@demo") != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: no such bundled model; @demo is the only one (a folder of that name: "
                        "./%s)",
                        path, path);
    char    exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *dir = tsr_path_dir(exe);
    if (!dir)
        return tsr_fail_nomem(err, sizeof exe, path);
    tsr_status st = find_demo(dir, folder, err);
    free(dir);
    return st;
}
