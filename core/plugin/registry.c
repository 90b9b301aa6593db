/* What a registry holds: its places, plugins and settings. */
#include "plugin/registry_internal.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/user.h"
#include "plugin/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tsr_plugin_registry_set_limit(struct tsr_registry *r, uint64_t bytes)
{
    atomic_store(&r->account.limit, bytes);
}

/* Takes real over, also on failure. */
static tsr_status add_place(struct tsr_registry *r, char *real, bool dir, bool named,
                            struct tsr_err *err)
{
    for (uint64_t i = 0; i < r->n_places; i++)
        if (strcmp(r->places[i].path, real) == 0) {
            free(real);
            return TSR_OK;
        }
    struct tsr_plugin_registry_place *p = tsr_renew(r->places, r->n_places + 1, sizeof *p);
    if (!p) {
        free(real);
        return tsr_fail_nomem(err, sizeof *p, "a plugin path");
    }
    r->places = p;
    p[r->n_places++] =
        (struct tsr_plugin_registry_place){ .path = real, .dir = dir, .named = named };
    return TSR_OK;
}

tsr_status tsr_plugin_registry_add_path(struct tsr_registry *r, const char *path,
                                        struct tsr_err *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        return errno == ENOMEM
                   ? tsr_fail_nomem(err, strlen(path), path)
                   : tsr_fail(
                         err, TSR_E_INPUT,
                         "%s: plugin path cannot be used: %s; name a plugin's .so file or a folder "
                         "of them",
                         path, strerror(errno));
    bool dir = tsr_path_is_dir(real);
    return add_place(r, real, dir, true, err);
}

/* A folder that is not there is none. */
static tsr_status add_folder(struct tsr_registry *r, const char *path, struct tsr_err *err)
{
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM)
        return tsr_fail_nomem(err, strlen(path), path);
    if (real && tsr_path_is_dir(real))
        return add_place(r, real, true, false, err);
    free(real);
    return TSR_OK;
}

tsr_status tsr_plugin_registry_add_standard(struct tsr_registry *r, struct tsr_err *err)
{
    if (r->standard)
        return TSR_OK;
    char *exe = tsr_plugin_executable();
    if (!exe && errno == ENOENT) /* plugins of another build could stand where its own were */
        return tsr_fail(err, TSR_E_IO,
                        "the program's own file is gone: it was removed or replaced after it "
                        "started; run the command again");
    if (!exe)
        return tsr_fail_errno(err, errno, "/proc/self/exe", "read");
    char *dir = tsr_path_dir(exe);
    free(exe);
    if (!dir)
        return tsr_fail_nomem(err, 1, "the executable's folder");
    char      *paths[3] = { tsr_path_join(dir, "plugins"), tsr_path_join(dir, "../lib/tessera") };
    tsr_status st = paths[0] && paths[1] ? tsr_user_folder(&paths[2], err)
                                         : tsr_fail_nomem(err, strlen(dir), dir);
    for (size_t i = 0; i < 3; i++) {
        if (st == TSR_OK && paths[i])
            st = add_folder(r, paths[i], err);
        free(paths[i]);
    }
    free(dir);
    r->standard = st == TSR_OK;
    return st;
}

static void fill_found(const struct tsr_registry *r, const struct tsr_plugin_loaded *l, uint64_t i,
                       struct tsr_plugin_found *f)
{
    f->info = &l->info;
    f->component = &l->entries[i].component;
    f->iface = l->entries[i].guarded;
    f->host = &l->host.host;
    f->isolate = r->isolated ? &r->isolation : NULL;
}

bool tsr_plugin_registry_component(const struct tsr_registry *r, uint64_t i,
                                   struct tsr_plugin_found *found)
{
    for (uint64_t p = 0; p < r->n_loaded; p++) {
        if (i < r->loaded[p]->n) {
            fill_found(r, r->loaded[p], i, found);
            return true;
        }
        i -= r->loaded[p]->n;
    }
    return false;
}

uint64_t tsr_plugin_registry_count(const struct tsr_registry *r)
{
    return r->n_loaded;
}

const struct tsr_plugin_info *tsr_plugin_registry_plugin(const struct tsr_registry *r, uint64_t i)
{
    return i < r->n_loaded ? &r->loaded[i]->info : NULL;
}

bool tsr_plugin_registry_refused(const struct tsr_registry *r, uint64_t i, const char **path,
                                 const char **why)
{
    if (i >= r->n_refused)
        return false;
    *path = r->refused[i].path;
    *why = r->refused[i].why;
    return true;
}

bool tsr_plugin_registry_place(const struct tsr_registry *r, uint64_t i, const char **path)
{
    if (i >= r->n_places)
        return false;
    *path = r->places[i].path;
    return true;
}

const struct tsr_host *tsr_plugin_registry_host(const struct tsr_registry *r)
{
    return &r->host.host;
}

const struct tsr_plugin_run_on *tsr_plugin_registry_on(const struct tsr_registry *r)
{
    return &r->on;
}

void tsr_plugin_registry_set_here(struct tsr_registry *r, uint32_t rank, uint32_t ranks)
{
    r->services.here = (struct tsr_here_v1){ .struct_size = sizeof r->services.here,
                                             .rank = rank,
                                             .ranks = ranks };
}

void tsr_plugin_registry_set_isolation(struct tsr_registry               *r,
                                       const struct tsr_plugin_isolation *limits)
{
    r->isolation = *limits;
    r->isolated = true;
}

const struct tsr_plugin_isolation *tsr_plugin_registry_isolation(const struct tsr_registry *r)
{
    return r->isolated ? &r->isolation : NULL;
}

struct tsr_pool *tsr_plugin_registry_pool(const struct tsr_registry *r)
{
    return r->pool;
}

void tsr_plugin_registry_memory(const struct tsr_registry *r, uint64_t *now, uint64_t *peak)
{
    *now = atomic_load(&r->account.now);
    *peak = atomic_load(&r->account.peak);
}
