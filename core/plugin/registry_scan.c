/* Plugin discovery: files and folders of the registry's places, read once each; rejected files are kept with
 * the reason. */
#include "plugin/registry_internal.h"

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

static tsr_status keep_refusal(struct tsr_registry *r, const char *path, const char *why,
                               struct tsr_err *err)
{
    for (uint64_t i = 0; i < r->n_refused; i++)
        if (strcmp(r->refused[i].path, path) == 0)
            return TSR_OK;
    struct tsr_plugin_registry_refusal *v = tsr_renew(r->refused, r->n_refused + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, path);
    r->refused = v;
    struct tsr_plugin_registry_refusal n = { tsr_strdup(path), tsr_strdup(why) };
    if (!n.path || !n.why) {
        free(n.path);
        free(n.why);
        return tsr_fail_nomem(err, strlen(why), path);
    }
    v[r->n_refused++] = n;
    return TSR_OK;
}

/* The same file by another name, or a copy of it, is not a second plugin. */
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

static tsr_status keep_loaded(struct tsr_registry *r, struct tsr_plugin_loaded *l,
                              struct tsr_err *err)
{
    for (uint64_t i = 0; i < r->n_loaded; i++)
        if (strcmp(r->loaded[i]->info.hash, l->info.hash) == 0) {
            tsr_logf(TSR_LOG_DEBUG, "%s: the same bytes as %s", l->path, r->loaded[i]->path);
            tsr_plugin_loaded_free(l);
            return TSR_OK;
        }
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < l->n && st == TSR_OK; i++)
        st = tsr_plugin_shim_table(&l->entries[i], l->path, l->plugin.id, &l->entries[i].guarded,
                                   err);
    struct tsr_plugin_loaded **v =
        st == TSR_OK ? tsr_renew(r->loaded, r->n_loaded + 1, sizeof(struct tsr_plugin_loaded *))
                     : NULL;
    if (!v) {
        tsr_plugin_loaded_free(l);
        return st != TSR_OK ? st : tsr_fail_nomem(err, sizeof *v, "a plugin");
    }
    r->loaded = v;
    tsr_plugin_host_init(&l->host, r->pool, &r->account, &r->services, l->plugin.id);
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
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_plugin_loaded *l = NULL;
    bool                      is_plugin = true;
    tsr_status                st = TSR_OK;
    if (r->isolated)
        st = tsr_plugin_try(real, &e.err);
    if (st == TSR_OK)
        st = tsr_plugin_load(&l, real, &is_plugin, &e.err);
    if (st == TSR_OK) {
        st = keep_loaded(r, l, err);
    } else if (named || st == TSR_E_NOMEM || st == TSR_E_IO) {
        /* says nothing about the file; another run would find the plugin and have other results */
        st = tsr_err_copy(err, st, &e.err);
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

static tsr_status scan_folder(struct tsr_registry *r, const struct tsr_plugin_registry_place *p,
                              struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tsr_plugin_path_trusted(p->path, &e.err);
    if (st != TSR_OK && (p->named || st == TSR_E_NOMEM))
        return tsr_err_copy(err, st, &e.err);
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

tsr_status tsr_plugin_registry_scan(struct tsr_registry *r, struct tsr_err *err)
{
    TSR_TRY(tsr_plugin_registry_add_standard(r, err));
    for (uint64_t i = 0; i < r->n_places; i++) {
        struct tsr_plugin_registry_place *p = &r->places[i];
        if (p->done)
            continue;
        TSR_TRY(p->dir ? scan_folder(r, p, err) : scan_file(r, p->path, true, err));
        p->done = true;
    }
    return TSR_OK;
}

tsr_status tsr_plugin_registry_scan_path(struct tsr_registry *r, const char *path,
                                         struct tsr_err *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        return tsr_fail_errno(err, errno, path, "open");
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < r->n_places; i++) {
        struct tsr_plugin_registry_place *p = &r->places[i];
        if (p->done || strcmp(p->path, real) != 0)
            continue;
        st = p->dir ? scan_folder(r, p, err) : scan_file(r, p->path, true, err);
        p->done = true;
    }
    free(real);
    return st;
}

/* A name in the form of plugin files, so that it cannot be a path. */
static bool is_plain_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && n <= 64 && name[n] == '\0';
}

tsr_status tsr_plugin_registry_ask(struct tsr_registry *r, const char *name, bool *found,
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
            did = tsr_plugin_path_trusted(folder, err);
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
