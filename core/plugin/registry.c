#include "plugin/internal.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/shim.h"
#include "plugin/trust.h"
#include "plugin/try.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILES 4096u /* in one folder */

struct place {
    char *path; /* canonical */
    bool  dir, named, done;
};

struct refusal {
    char *path, *why;
};

struct tsr_registry {
    struct tsr_pool     *pool;
    struct tsr_account   account;
    struct tsr_host_ctx  host;
    struct tsr_services  services;
    struct place        *places;
    uint64_t             n_places;
    struct tsr_loaded  **loaded;
    uint64_t             n_loaded;
    struct refusal      *refused;
    uint64_t             n_refused;
    uint32_t             numerics;
    const char          *backend; /* that runs models; NULL: the default */
    uint64_t             on_backend;
    struct tsr_isolation isolation;
    bool                 isolated;
    bool                 standard; /* the standard places are in the list */
};

tsr_status tsr_registry_create(struct tsr_registry **out, struct tsr_pool *pool,
                               struct tsr_err *err)
{
    struct tsr_registry *r = tsr_new(1, sizeof *r);
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "the plugin registry");
    r->pool = pool;
    tsr_services_init(&r->services, r);
    tsr_host_init(&r->host, pool, &r->account, &r->services, NULL);
    *out = r;
    return TSR_OK;
}

void tsr_registry_destroy(struct tsr_registry *r)
{
    if (!r)
        return;
    tsr_services_free(&r->services);
    for (uint64_t i = 0; i < r->n_places; i++)
        free(r->places[i].path);
    for (uint64_t i = 0; i < r->n_loaded; i++)
        tsr_loaded_free(r->loaded[i]);
    for (uint64_t i = 0; i < r->n_refused; i++) {
        free(r->refused[i].path);
        free(r->refused[i].why);
    }
    free(r->places);
    free(r->loaded);
    free(r->refused);
    free(r);
}

tsr_status tsr_registry_like(struct tsr_registry **out, const struct tsr_registry *of,
                             struct tsr_pool *pool, struct tsr_err *err)
{
    struct tsr_registry *r = NULL;
    TSR_TRY(tsr_registry_create(&r, pool, err));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < of->n_places && st == TSR_OK; i++)
        if (of->places[i].named)
            st = tsr_registry_add_path(r, of->places[i].path, err);
    r->numerics = of->numerics;
    r->backend = of->backend;
    r->on_backend = of->on_backend;
    r->isolation = of->isolation;
    r->isolated = of->isolated;
    if (st != TSR_OK) {
        tsr_registry_destroy(r);
        return st;
    }
    *out = r;
    return TSR_OK;
}

void tsr_registry_set_limit(struct tsr_registry *r, uint64_t bytes)
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
    struct place *p = tsr_renew(r->places, r->n_places + 1, sizeof *p);
    if (!p) {
        free(real);
        return tsr_fail_nomem(err, sizeof *p, "a plugin path");
    }
    r->places = p;
    p[r->n_places++] = (struct place){ .path = real, .dir = dir, .named = named };
    return TSR_OK;
}

tsr_status tsr_registry_add_path(struct tsr_registry *r, const char *path, struct tsr_err *err)
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

static tsr_status add_standard(struct tsr_registry *r, struct tsr_err *err)
{
    if (r->standard)
        return TSR_OK;
    char *exe = tsr_executable();
    if (!exe)
        return tsr_fail_errno(err, errno, "/proc/self/exe", "read");
    char *dir = tsr_path_dir(exe);
    free(exe);
    if (!dir)
        return tsr_fail_nomem(err, 1, "the executable's folder");
    static const char *const names[] = { "plugins", "../lib/tessera" };
    tsr_status               st = TSR_OK;
    for (size_t i = 0; st == TSR_OK && i < 2; i++) {
        char *path = tsr_path_join(dir, names[i]);
        if (!path) {
            st = tsr_fail_nomem(err, strlen(dir), dir);
            break;
        }
        char *real = realpath(path, NULL);
        if (!real && errno == ENOMEM) /* not the same as a folder that is not there */
            st = tsr_fail_nomem(err, strlen(path), path);
        free(path);
        if (real && tsr_path_is_dir(real))
            st = add_place(r, real, true, false, err);
        else
            free(real);
    }
    free(dir);
    r->standard = st == TSR_OK;
    return st;
}

static tsr_status keep_refusal(struct tsr_registry *r, const char *path, const char *why,
                               struct tsr_err *err)
{
    for (uint64_t i = 0; i < r->n_refused; i++)
        if (strcmp(r->refused[i].path, path) == 0)
            return TSR_OK;
    struct refusal *v = tsr_renew(r->refused, r->n_refused + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, path);
    r->refused = v;
    struct refusal n = { tsr_strdup(path), tsr_strdup(why) };
    if (!n.path || !n.why) {
        free(n.path);
        free(n.why);
        return tsr_fail_nomem(err, strlen(why), path);
    }
    v[r->n_refused++] = n;
    return TSR_OK;
}

/* The same file by another name, or a copy of it, is no second plugin. */
static bool have_file(const struct tsr_registry *r, const char *real)
{
    struct stat st;
    if (stat(real, &st) != 0)
        return false;
    for (uint64_t i = 0; i < r->n_loaded; i++)
        if (r->loaded[i]->dev == (uint64_t)st.st_dev && r->loaded[i]->ino == (uint64_t)st.st_ino)
            return true;
    return false;
}

static tsr_status keep_loaded(struct tsr_registry *r, struct tsr_loaded *l, struct tsr_err *err)
{
    for (uint64_t i = 0; i < r->n_loaded; i++)
        if (strcmp(r->loaded[i]->info.hash, l->info.hash) == 0) {
            tsr_logf(TSR_LOG_DEBUG, "%s: the same bytes as %s", l->path, r->loaded[i]->path);
            tsr_loaded_free(l);
            return TSR_OK;
        }
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < l->n && st == TSR_OK; i++)
        st = tsr_shim_table(&l->entries[i], l->path, l->plugin.id, &l->entries[i].guarded, err);
    struct tsr_loaded **v =
        st == TSR_OK ? tsr_renew(r->loaded, r->n_loaded + 1, sizeof(struct tsr_loaded *)) : NULL;
    if (!v) {
        tsr_loaded_free(l);
        return st != TSR_OK ? st : tsr_fail_nomem(err, sizeof *v, "a plugin");
    }
    r->loaded = v;
    tsr_host_init(&l->host, r->pool, &r->account, &r->services, l->plugin.id);
    v[r->n_loaded++] = l;
    return TSR_OK;
}

static tsr_status scan_file(struct tsr_registry *r, const char *path, bool named,
                            struct tsr_err *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        return named || errno == ENOMEM ? tsr_fail_errno(err, errno, path, "open") : TSR_OK;
    if (have_file(r, real)) {
        free(real);
        return TSR_OK;
    }
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct tsr_loaded *l = NULL;
    bool               is_plugin = true;
    tsr_status         st = TSR_OK;
    if (r->isolated)
        st = tsr_plugin_try(real, &e.err);
    if (st == TSR_OK)
        st = tsr_plugin_load(&l, real, &is_plugin, &e.err);
    if (st == TSR_OK) {
        st = keep_loaded(r, l, err);
    } else if (named || st == TSR_E_NOMEM) {
        st = tsr_fail(err, st, "%s", e.text);
    } else if (!is_plugin) {
        tsr_logf(TSR_LOG_DEBUG, "%s", e.text);
        st = TSR_OK;
    } else {
        tsr_logf(TSR_LOG_WARN, "plugin refused: %s", e.text);
        st = keep_refusal(r, real, e.text, err);
    }
    free(real);
    return st;
}

static int only_so(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 3 && strcmp(d->d_name + n - 3, ".so") == 0;
}

static tsr_status scan_folder(struct tsr_registry *r, const struct place *p, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tsr_path_trusted(p->path, &e.err);
    if (st != TSR_OK && (p->named || st == TSR_E_NOMEM))
        return tsr_fail(err, st, "%s", e.text);
    if (st != TSR_OK) {
        tsr_logf(TSR_LOG_WARN, "plugin folder refused: %s", e.text);
        return keep_refusal(r, p->path, e.text, err);
    }
    struct dirent **files;
    int             n = scandir(p->path, &files, only_so, alphasort);
    if (n < 0)
        return tsr_fail_errno(err, errno, p->path, "read the plugin folder");
    if ((unsigned)n > MAX_FILES)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: holds %d plugins, more than the limit of %u; name the files", p->path, n,
                      MAX_FILES);
    for (int i = 0; i < n; i++) {
        if (st == TSR_OK) {
            char *path = tsr_path_join(p->path, files[i]->d_name);
            st = path ? scan_file(r, path, false, err) : tsr_fail_nomem(err, 1, p->path);
            free(path);
        }
        free(files[i]);
    }
    free(files);
    return st;
}

tsr_status tsr_registry_scan(struct tsr_registry *r, struct tsr_err *err)
{
    TSR_TRY(add_standard(r, err));
    for (uint64_t i = 0; i < r->n_places; i++) {
        struct place *p = &r->places[i];
        if (p->done)
            continue;
        TSR_TRY(p->dir ? scan_folder(r, p, err) : scan_file(r, p->path, true, err));
        p->done = true;
    }
    return TSR_OK;
}

tsr_status tsr_registry_scan_path(struct tsr_registry *r, const char *path, struct tsr_err *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        return tsr_fail_errno(err, errno, path, "open");
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < r->n_places; i++) {
        struct place *p = &r->places[i];
        if (p->done || strcmp(p->path, real) != 0)
            continue;
        st = p->dir ? scan_folder(r, p, err) : scan_file(r, p->path, true, err);
        p->done = true;
    }
    free(real);
    return st;
}

/* A name as files of plugins have it, so that it can be no path. */
static bool is_plain_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && n <= 64 && name[n] == '\0';
}

tsr_status tsr_registry_ask(struct tsr_registry *r, const char *name, bool *found,
                            struct tsr_err *err)
{
    uint64_t before = r->n_loaded;
    *found = false;
    if (!is_plain_name(name))
        return TSR_OK;
    for (uint64_t i = 0; i < r->n_places && r->n_loaded == before; i++) {
        char        file[96];
        struct stat st;
        if (!r->places[i].dir)
            continue;
        char *folder = tsr_path_join(r->places[i].path, "asked");
        (void)snprintf(file, sizeof file, "%s.so", name);
        char      *path = folder ? tsr_path_join(folder, file) : NULL;
        tsr_status did = path ? TSR_OK : tsr_fail_nomem(err, sizeof file, "a plugin's path");
        if (did == TSR_OK && stat(path, &st) == 0) {
            did = tsr_path_trusted(folder, err);
            if (did == TSR_OK)
                did = scan_file(r, path, true, err);
        }
        free(path);
        free(folder);
        TSR_TRY(did);
    }
    *found = r->n_loaded > before;
    return TSR_OK;
}

static void fill_found(const struct tsr_registry *r, const struct tsr_loaded *l, uint64_t i,
                       struct tsr_found *f)
{
    f->info = &l->info;
    f->component = &l->entries[i].component;
    f->iface = l->entries[i].guarded;
    f->host = &l->host.host;
    f->isolate = r->isolated ? &r->isolation : NULL;
}

bool tsr_registry_component(const struct tsr_registry *r, uint64_t i, struct tsr_found *found)
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

uint64_t tsr_registry_count(const struct tsr_registry *r)
{
    return r->n_loaded;
}

const struct tsr_plugin_info *tsr_registry_plugin(const struct tsr_registry *r, uint64_t i)
{
    return i < r->n_loaded ? &r->loaded[i]->info : NULL;
}

bool tsr_registry_refused(const struct tsr_registry *r, uint64_t i, const char **path,
                          const char **why)
{
    if (i >= r->n_refused)
        return false;
    *path = r->refused[i].path;
    *why = r->refused[i].why;
    return true;
}

bool tsr_registry_place(const struct tsr_registry *r, uint64_t i, const char **path)
{
    if (i >= r->n_places)
        return false;
    *path = r->places[i].path;
    return true;
}

const struct tsr_host *tsr_registry_host(const struct tsr_registry *r)
{
    return &r->host.host;
}

void tsr_registry_set_numerics(struct tsr_registry *r, uint32_t numerics)
{
    r->numerics = numerics;
}

uint32_t tsr_registry_numerics(const struct tsr_registry *r)
{
    return r->numerics;
}

void tsr_registry_set_backend(struct tsr_registry *r, const char *name, uint64_t on_backend)
{
    r->backend = name;
    r->on_backend = on_backend;
}

const char *tsr_registry_backend(const struct tsr_registry *r, uint64_t *on_backend)
{
    *on_backend = r->on_backend;
    return r->backend;
}

void tsr_registry_set_here(struct tsr_registry *r, uint32_t rank, uint32_t ranks)
{
    r->services.here = (struct tsr_here_v1){ .struct_size = sizeof r->services.here,
                                             .rank = rank,
                                             .ranks = ranks };
}

void tsr_registry_set_isolation(struct tsr_registry *r, const struct tsr_isolation *limits)
{
    r->isolation = *limits;
    r->isolated = true;
}

const struct tsr_isolation *tsr_registry_isolation(const struct tsr_registry *r)
{
    return r->isolated ? &r->isolation : NULL;
}

struct tsr_pool *tsr_registry_pool(const struct tsr_registry *r)
{
    return r->pool;
}

void tsr_registry_memory(const struct tsr_registry *r, uint64_t *now, uint64_t *peak)
{
    *now = atomic_load(&r->account.now);
    *peak = atomic_load(&r->account.peak);
}
