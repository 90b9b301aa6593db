/* "@demo": the model that comes with the program. */
#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* dir/name if it is a folder, else NULL; *tried keeps the path for the message. */
static char *folder_in(const char *dir, const char *name, char *tried, size_t cap)
{
    char *p = tsr_path_join(dir, name);
    (void)snprintf(tried, cap, "%s", p ? p : name);
    if (p && tsr_path_is_dir(p))
        return p;
    free(p);
    return NULL;
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
    char    exe[PATH_MAX], installed[512], built[512];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *dir = tsr_path_dir(exe);
    if (!dir)
        return tsr_fail_nomem(err, sizeof exe, path);
    *folder = folder_in(dir, "../share/tessera/demo", installed, sizeof installed);
    free(dir);
    if (!*folder)
        *folder = folder_in(TSR_BUILD_ROOT, "configs/demo", built, sizeof built);
    if (*folder)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT, "@demo: the demo model is neither in %s nor in %s", installed,
                    built);
}
