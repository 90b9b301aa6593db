/* Search places of profiles and clusters: next to the file that names them, then in the installed configs. */
#include "plan/cost/cluster.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/share.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 256u

static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".yaml") == 0);
}

/* DIR/NAME.yaml, or with the name in lower case; NULL if neither exists. */
static tsr_status in_folder(const char *dir, const char *name, char **path, struct tsr_err *err)
{
    char   file[80];
    size_t n = strlen(name);
    *path = NULL;
    if (n + 6 > sizeof file)
        return TSR_OK;
    for (int lower = 0; lower < 2 && !*path; lower++) {
        for (size_t i = 0; i < n; i++)
            file[i] = lower ? (char)tolower((unsigned char)name[i]) : name[i];
        memcpy(file + n, ".yaml", 6);
        char *p = tsr_path_join(dir, file);
        if (!p)
            return tsr_fail_nomem(err, n, name);
        if (tsr_path_exists(p))
            *path = p;
        else
            free(p);
    }
    return TSR_OK;
}

/* The nearest NAME.yaml of a folder; false: no near name. */
static bool nearest(const char *dir, const char *name, char near[64])
{
    char       *names[MOST_NAMES];
    uint64_t    n = 0;
    const char *best = NULL;
    DIR        *d = opendir(dir);
    for (struct dirent *e; d && n < MOST_NAMES && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 6 || len > 60 || strcmp(e->d_name + len - 5, ".yaml") != 0)
            continue;
        names[n] = tsr_strndup(e->d_name, len - 5);
        n += names[n] != NULL;
    }
    if (d)
        (void)closedir(d);
    char lower[64];
    for (size_t i = 0; i < sizeof lower; i++) {
        lower[i] = (char)tolower((unsigned char)name[i]);
        if (lower[i] == '\0')
            break;
    }
    lower[sizeof lower - 1] = '\0';
    best = tsr_config_nearest(lower, (const char *const *)names, n);
    if (best)
        (void)snprintf(near, 64, "%s", best);
    for (uint64_t i = 0; i < n; i++)
        free(names[i]);
    return best != NULL;
}

/* dirs[n_dirs] in order, then configs/SUB of the program. */
static tsr_status look(char **path, const char *name, const char *what, char *const *dirs,
                       uint64_t n_dirs, const char *sub, struct tsr_err *err)
{
    char  below[32], built[32], near[64];
    char *own = NULL;
    for (uint64_t i = 0; i < n_dirs; i++) {
        TSR_TRY(in_folder(dirs[i], name, path, err));
        if (*path)
            return TSR_OK;
    }
    (void)snprintf(below, sizeof below, "%s", sub);
    (void)snprintf(built, sizeof built, "configs/%s", sub);
    TSR_TRY(tsr_share_find(&own, name, below, built, err));
    tsr_status st = in_folder(own, name, path, err);
    if (st == TSR_OK && !*path)
        st = nearest(own, name, near)
                 ? tsr_fail(err, TSR_E_INPUT, "no %s '%.64s' in %s%s%s; did you mean '%s'?", what,
                            name, n_dirs ? dirs[0] : "", n_dirs ? " or " : "", own, near)
                 : tsr_fail(err, TSR_E_INPUT, "no %s '%.64s' in %s%s%s", what, name,
                            n_dirs ? dirs[0] : "", n_dirs ? " or " : "", own);
    free(own);
    return st;
}

/* A path that is relative to a folder. */
static tsr_status relative(char **path, const char *name, const char *beside, const char *what,
                           struct tsr_err *err)
{
    *path = beside && *beside && *name != '/' ? tsr_path_join(beside, name) : tsr_strdup(name);
    if (!*path)
        return tsr_fail_nomem(err, strlen(name), what);
    if (tsr_path_exists(*path))
        return TSR_OK;
    tsr_status st = tsr_fail(err, TSR_E_INPUT, "%s: there is no such %s file", *path, what);
    free(*path);
    *path = NULL;
    return st;
}

tsr_status tsr_plan_profile_find(char **path, const char *name, const char *beside,
                                 struct tsr_err *err)
{
    const char *here = beside && *beside ? beside : ".";
    if (is_path(name))
        return relative(path, name, beside, "device profile", err);
    char      *dirs[3] = { tsr_path_join(here, "devices"), tsr_path_join(here, "../devices"),
                           tsr_strdup(here) };
    tsr_status st = dirs[0] && dirs[1] && dirs[2]
                        ? look(path, name, "device profile", dirs, 3, "devices", err)
                        : tsr_fail_nomem(err, strlen(here), name);
    for (int i = 0; i < 3; i++)
        free(dirs[i]);
    return st;
}

tsr_status tsr_plan_cluster_find(char **path, const char *name, const char *beside,
                                 struct tsr_err *err)
{
    if (is_path(name))
        return relative(path, name, beside, "cluster", err);
    char      *dirs[2] = { tsr_path_join(beside && *beside ? beside : ".", "clusters"),
                           tsr_strdup(beside && *beside ? beside : ".") };
    tsr_status st = dirs[0] && dirs[1] ? look(path, name, "cluster", dirs, 2, "clusters", err)
                                       : tsr_fail_nomem(err, strlen(name), name);
    free(dirs[0]);
    free(dirs[1]);
    return st;
}
