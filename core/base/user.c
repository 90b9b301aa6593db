#include "base/user.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDING ".yaml"
#define END    (sizeof ENDING - 1)

tsr_status tsr_user_folder(char **path, struct tsr_err *err)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    *path = NULL;
    if (data && *data == '/') /* a relative one does not count, by the XDG specification */
        *path = tsr_path_join(data, "tessera/plugins");
    else if (home && *home == '/')
        *path = tsr_path_join(home, ".local/share/tessera/plugins");
    else
        return TSR_OK;
    return *path ? TSR_OK : tsr_fail_nomem(err, 1, "the folder of the user's plugins");
}

/* FOLDER/below; NULL: the user has no folder. */
static tsr_status below_folder(char **path, const char *below, struct tsr_err *err)
{
    char *folder;
    *path = NULL;
    TSR_TRY(tsr_user_folder(&folder, err));
    if (!folder)
        return TSR_OK;
    *path = tsr_path_join(folder, below);
    free(folder);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(below), below);
}

tsr_status tsr_user_file(char **path, const char *below, const char *name, struct tsr_err *err)
{
    char  *folder, *file;
    size_t n = strlen(name) + sizeof ENDING;
    *path = NULL;
    TSR_TRY(below_folder(&folder, below, err));
    if (!folder)
        return TSR_OK;
    if ((file = tsr_new(n, 1)) != NULL) {
        (void)snprintf(file, n, "%s%s", name, ENDING);
        *path = tsr_path_join(folder, file);
    }
    free(file);
    free(folder);
    if (!*path)
        return tsr_fail_nomem(err, n, name);
    if (!tsr_path_exists(*path)) {
        free(*path);
        *path = NULL;
    }
    return TSR_OK;
}

static int is_yaml(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > END && *d->d_name != '.' && strcmp(d->d_name + n - END, ENDING) == 0;
}

tsr_status tsr_user_files(char ***names, uint64_t *n, const char *below, struct tsr_err *err)
{
    struct dirent **files;
    char           *folder;
    *names = NULL;
    *n = 0;
    TSR_TRY(below_folder(&folder, below, err));
    int found = folder && tsr_path_is_dir(folder) ? scandir(folder, &files, is_yaml, alphasort) : 0;
    tsr_status st = TSR_OK;
    if (found < 0)
        st = tsr_fail_errno(err, errno, folder, "read the folder");
    else if (found > 0 && !(*names = tsr_new((uint64_t)found, sizeof **names)))
        st = tsr_fail_nomem(err, (uint64_t)found * sizeof **names, folder);
    for (int i = 0; i < found; i++) {
        char *name =
            st == TSR_OK ? tsr_strndup(files[i]->d_name, strlen(files[i]->d_name) - END) : NULL;
        if (name)
            (*names)[(*n)++] = name;
        else if (st == TSR_OK)
            st = tsr_fail_nomem(err, 1, folder);
        free(files[i]);
    }
    if (found > 0)
        free(files);
    for (uint64_t i = 0; st != TSR_OK && i < *n; i++)
        free((*names)[i]);
    if (st != TSR_OK) {
        free(*names);
        *names = NULL;
        *n = 0;
    }
    free(folder);
    return st;
}
