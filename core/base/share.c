#include "base/share.h"

#include "base/build_root.h"
#include "base/file.h"
#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first part of the path of this program; NULL when out of memory. */
static char *program_dir(void)
{
    char    exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    return tsr_path_dir(exe);
}

tsr_status tsr_share_find(char **folder, const char *what, const char *installed, const char *built,
                          struct tsr_err *err)
{
    char       below[128];
    char      *dir = program_dir(), *a = NULL, *b = NULL;
    tsr_status st = TSR_OK;
    (void)snprintf(below, sizeof below, "../share/tessera/%s", installed);
    if (dir) {
        a = tsr_path_join(dir, below);
        b = tsr_path_join(TSR_BUILD_ROOT, built);
    }
    free(dir);
    if (!a || !b)
        st = tsr_fail_nomem(err, PATH_MAX, what);
    else if (!tsr_path_is_dir(a) && !tsr_path_is_dir(b))
        st = tsr_fail(err, TSR_E_INPUT, "%s: found neither in %s nor in %s; install tessera again",
                      what, a, b);
    if (st == TSR_OK && tsr_path_is_dir(a)) {
        *folder = a;
        a = NULL;
    } else if (st == TSR_OK) {
        *folder = b;
        b = NULL;
    }
    free(a);
    free(b);
    return st;
}
