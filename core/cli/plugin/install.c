/* tessera plugin install: files that keep the rules become plugins of the user. */
#include "cli/plugin/installed.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/held.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/user.h"
#include "cli/plugin/installed_text.h"
#include "conformance/conformance.h"
#include "conformance/text.h"
#include "plugin/try.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (UINT64_C(1) << 30)

struct install {
    struct tsr_cli               *c;
    bool                          rules;
    char                         *folder; /* the user's */
    struct tsr_registry          *registry;
    struct tsr_cli_installed_list there; /* before */
    json_t                       *done;  /* records */
};

/* ---- what is asked of a file -------------------------------------------------------------- */

/* How many rules it keeps, in *passed. */
static tsr_status keep_rules(const char *file, json_int_t *passed, struct tsr_err *err)
{
    struct tsr_conformance_check_options o = { 0 };
    struct tsr_conformance_check_report  r;
    tsr_status                           st = tsr_conformance_check_run(&r, file, &o, NULL, err);
    if (st == TSR_OK && !r.id && r.n) { /* it does not load, and the text says why */
        const char *why = r.results[0].text ? r.results[0].text : "";
        size_t      n = strlen(file);
        st = tsr_fail(err, TSR_E_INPUT, "%s: %s", file,
                      strncmp(why, file, n) == 0 && why[n] == ':' ? why + n + 2 : why);
    } else if (st == TSR_OK && r.failed) {
        const char *first = "", *rule = "?";
        for (uint64_t i = 0; i < r.n && !*first; i++)
            if (r.results[i].verdict >= TSR_CONFORMANCE_FAILED &&
                r.results[i].verdict != TSR_CONFORMANCE_SKIP && r.results[i].text) {
                first = r.results[i].text;
                rule = r.results[i].rule->name;
            }
        st = tsr_fail(
            err, TSR_E_CHECK,
            "%s breaks %llu rule%s of the plugin interface and is not installed; the first, %s: %s",
            file, (unsigned long long)r.failed, r.failed == 1 ? "" : "s", rule, first);
    }
    *passed = (json_int_t)r.passed;
    tsr_conformance_check_report_free(&r);
    return st;
}

/* The plugin of this file, among those that are loaded. */
static const struct tsr_plugin_info *info_of(const struct tsr_registry *r, const char *hash)
{
    for (uint64_t i = 0; i < tsr_plugin_registry_count(r); i++)
        if (strcmp(tsr_plugin_registry_plugin(r, i)->hash, hash) == 0)
            return tsr_plugin_registry_plugin(r, i);
    return NULL;
}

static bool is_users(const struct install *x, const char *path)
{
    size_t n = x->there.folder ? strlen(x->there.folder) : 0;
    return n && strncmp(path, x->there.folder, n) == 0 && path[n] == '/';
}

/* A name that two plugins have could no longer be used alone: jobs that use it would fail. */
static tsr_status check_names(const struct install *x, const struct tsr_plugin_info *info,
                              struct tsr_err *err)
{
    struct tsr_plugin_found a, b;
    for (uint64_t i = 0; tsr_plugin_registry_component(x->registry, i, &a); i++)
        for (uint64_t j = 0; a.info == info && tsr_plugin_registry_component(x->registry, j, &b);
             j++) {
            bool same_id = strcmp(b.info->plugin->id, info->plugin->id) == 0;
            if (b.info == info || (same_id && is_users(x, b.info->path)) ||
                strcmp(a.component->kind, b.component->kind) != 0 ||
                strcmp(a.component->name, b.component->name) != 0)
                continue;
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: its \"%s\" has the name and the kind of one in %s, and jobs that name "
                "it would no longer run; give it another name, or use --plugin-path for "
                "single jobs",
                info->path, a.component->name, b.info->path);
        }
    return TSR_OK;
}

/* ---- the copy and its record ---------------------------------------------------------------- */

static json_t *record_of(const struct install *x, const struct tsr_plugin_info *info,
                         const char *from, json_int_t passed)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:o}", "format", "tessera.installed/1",
                     "id", info->plugin->id, "version", info->plugin->version, "license",
                     info->plugin->license, "components",
                     tsr_cli_installed_components(x->registry, info), "hash", info->hash, "from",
                     from, "rules_passed", x->rules ? json_integer(passed) : json_null());
}

static tsr_status store(const struct install *x, const char *file, const char *stem, json_t *record,
                        struct tsr_err *err)
{
    char    *so = tsr_cli_installed_path(x->folder, stem, "so"), *data = NULL, hash[TSR_HASH_TEXT];
    char    *json = tsr_cli_installed_path(x->folder, stem, "json");
    uint64_t len = 0;
    tsr_status st = so && json ? tsr_file_slurp(file, MAX_FILE, &data, &len, err)
                               : tsr_fail_nomem(err, strlen(stem), x->folder);
    if (st == TSR_OK) {
        tsr_hash_bytes(data, len, hash);
        if (strcmp(hash, tsr_json_word(json_object_get(record, "hash"))) != 0)
            st = tsr_fail(err, TSR_E_INPUT, "%s: changed while it was installed", file);
    }
    if (st == TSR_OK)
        st = tsr_file_store(so, data, len, err);
    if (st == TSR_OK)
        st = tsr_json_store(json, record, JSON_INDENT(2), err);
    free(data);
    free(json);
    free(so);
    return st;
}

static tsr_status taken(const struct install *x, const struct tsr_cli_installed *p,
                        const char *file, struct tsr_err *err)
{
    const char *id = tsr_cli_installed_text(p, "id");
    char       *so = tsr_cli_installed_path(x->folder, p->stem, "so");
    if (!so)
        return tsr_fail_nomem(err, strlen(p->stem), x->folder);
    tsr_status st = tsr_fail(err, TSR_E_INPUT, "%s: is another plugin, %s; remove it, or rename %s",
                             so, id ? id : "without a record", file);
    free(so);
    return st;
}

/* Its file's name is free, or that of the same plugin; other files of the same plugin go when the new one is there. */
static tsr_status replace(struct install *x, const char *file, const char *stem, json_t *record,
                          struct tsr_err *err)
{
    const char *id = tsr_json_word(json_object_get(record, "id")), *was = NULL;
    for (uint64_t i = 0; i < x->there.n; i++) {
        const struct tsr_cli_installed *p = &x->there.v[i];
        const char                     *other = tsr_cli_installed_text(p, "id");
        if (strcmp(p->stem, stem) == 0 && (!other || strcmp(other, id) != 0))
            return taken(x, p, file, err);
        if (other && strcmp(other, id) == 0)
            was = tsr_cli_installed_text(p, "version");
    }
    TSR_TRY(store(x, file, stem, record, err));
    for (uint64_t i = 0; i < x->there.n; i++) {
        const struct tsr_cli_installed *p = &x->there.v[i];
        const char                     *other = tsr_cli_installed_text(p, "id");
        if (other && strcmp(other, id) == 0 && strcmp(p->stem, stem) != 0)
            TSR_TRY(tsr_cli_installed_delete(x->folder, p->stem, err));
    }
    if (!x->c->quiet && !x->c->json)
        (void)fprintf(stderr, "installed %s %s as %s/%s.so%s%s\n", id,
                      tsr_json_word(json_object_get(record, "version")), x->folder, stem,
                      was ? ", in place of " : "", was ? was : "");
    return TSR_OK;
}

static tsr_status one(struct install *x, const char *file, struct tsr_err *err)
{
    char                          hash[TSR_HASH_TEXT], *stem;
    const struct tsr_plugin_info *info = NULL;
    json_int_t                    passed = 0;
    TSR_TRY(tsr_plugin_try(file, err));
    if (x->rules)
        TSR_TRY(keep_rules(file, &passed, err));
    TSR_TRY(tsr_cli_registry_bare(x->c, &x->registry, err));
    TSR_TRY(tsr_plugin_registry_scan(x->registry, err));
    TSR_TRY(tsr_hash_file(file, hash, err));
    if ((info = info_of(x->registry, hash)) && !is_users(x, info->path))
        return tsr_fail(err, TSR_E_INPUT, "%s: jobs find it already, as %s", file, info->path);
    TSR_TRY(tsr_plugin_registry_add_path(x->registry, file, err));
    TSR_TRY(tsr_plugin_registry_scan(x->registry, err));
    if (!(info = info_of(x->registry, hash)))
        return tsr_fail(err, TSR_E_INPUT, "%s: changed while it was installed", file);
    TSR_TRY(check_names(x, info, err));
    const char *base = strrchr(file, '/') + 1;
    json_t     *record = record_of(x, info, file, passed);
    tsr_status  st = record ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "out of memory: a record");
    stem = tsr_strndup(base, strlen(base) - 3);
    if (st == TSR_OK)
        st = stem ? replace(x, file, stem, record, err) : tsr_fail_nomem(err, strlen(base), file);
    free(stem);
    tsr_json_add(&x->done, record);
    return st != TSR_OK || x->done ? st : tsr_fail(err, TSR_E_NOMEM, "out of memory: records");
}

/* ---- a file or a folder ----------------------------------------------------------------------- */

static int only_yaml(const struct dirent *d)
{
    return *d->d_name != '.' && tsr_conformance_is_text(d->d_name);
}

/* The families and tasks of a folder; other YAML files are left alone.  They come before the .so files, whose check
 * starts threads. */
static tsr_status each_text(struct install *x, const char *folder, struct tsr_err *err)
{
    struct dirent **files;
    int             n = scandir(folder, &files, only_yaml, alphasort);
    if (n < 0)
        return tsr_fail_errno(err, errno, folder, "read the folder");
    tsr_status st = TSR_OK;
    for (int i = 0; i < n; i++) {
        char *file = st == TSR_OK ? tsr_path_join(folder, files[i]->d_name) : NULL;
        if (st == TSR_OK && !file)
            st = tsr_fail_nomem(err, 1, folder);
        else if (st == TSR_OK && tsr_conformance_text_is_ours(file))
            st = tsr_cli_text_install(x->c, file, x->folder, x->rules, &x->done, err);
        free(file);
        free(files[i]);
    }
    free(files);
    return st;
}

static tsr_status each(struct install *x, const char *folder, struct tsr_err *err)
{
    TSR_TRY(each_text(x, folder, err));
    struct dirent **files;
    int             n = scandir(folder, &files, tsr_cli_installed_so, alphasort);
    if (n < 0)
        return tsr_fail_errno(err, errno, folder, "read the folder");
    tsr_status st =
        n || json_array_size(x->done)
            ? TSR_OK
            : tsr_fail(err, TSR_E_INPUT,
                       "%s: holds no .so file and no family or task; build the plugin first, as "
                       "with make",
                       folder);
    for (int i = 0; i < n; i++) {
        char *file = st == TSR_OK ? tsr_path_join(folder, files[i]->d_name) : NULL;
        if (st == TSR_OK)
            st = file ? one(x, file, err) : tsr_fail_nomem(err, 1, folder);
        free(file);
        free(files[i]);
    }
    free(files);
    return st;
}

tsr_status tsr_cli_plugin_install(struct tsr_cli *c, const char *path, bool rules,
                                  struct tsr_err *err)
{
    struct install x = { .c = c, .rules = rules };
    int            lock = -1;
    char          *real = realpath(path, NULL);
    size_t         n = real ? strlen(real) : 0;
    if (!real)
        return tsr_fail_errno(err, errno, path, "open");
    tsr_status st = TSR_OK;
    bool       text = tsr_conformance_is_text(real);
    if (!tsr_path_is_dir(real) && !text && (n < 4 || strcmp(real + n - 3, ".so") != 0))
        st =
            tsr_fail(err, TSR_E_INPUT,
                     "%s: is neither a plugin's .so file, nor the .yaml of a family or a task, nor "
                     "a folder of them",
                     real);
    if (st == TSR_OK)
        st = tsr_user_folder(&x.folder, err);
    if (st == TSR_OK && !x.folder)
        st = tsr_fail(err, TSR_E_INPUT, "HOME and XDG_DATA_HOME name no folder to install into");
    if (st == TSR_OK)
        st = tsr_output_lock_folder(&lock, x.folder, err);
    if (st == TSR_OK)
        st = tsr_cli_installed_read(&x.there, err);
    if (st == TSR_OK && !(x.done = json_array()))
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: records");
    if (st == TSR_OK)
        st = tsr_path_is_dir(real) ? each(&x, real, err)
             : text                ? tsr_cli_text_install(c, real, x.folder, rules, &x.done, err)
                                   : one(&x, real, err);
    if (st == TSR_OK && c->json) {
        st = tsr_cli_print_json(x.done, err);
        x.done = NULL;
    }
    json_decref(x.done);
    if (lock >= 0)
        (void)tsr_held_close(lock);
    tsr_cli_installed_free(&x.there);
    free(x.folder);
    free(real);
    return st;
}
