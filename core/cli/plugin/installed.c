/* tessera plugin list and remove, and the records that they read. */
#include "cli/plugin/installed.h"

#include "base/file.h"
#include "base/held.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/user.h"
#include "cli/plugin/installed_text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_CAP   (UINT64_C(1) << 16)
#define RECORD_DEPTH 4

/* ---- records --------------------------------------------------------------------------- */

int tsr_cli_installed_so(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 3 && *d->d_name != '.' && strcmp(d->d_name + n - 3, ".so") == 0;
}

char *tsr_cli_installed_path(const char *folder, const char *stem, const char *end)
{
    size_t n = strlen(stem) + strlen(end) + 2;
    char  *name = tsr_new(n, 1), *path = NULL;
    if (name) {
        (void)snprintf(name, n, "%s.%s", stem, end);
        path = tsr_path_join(folder, name);
    }
    free(name);
    return path;
}

/* FOLDER/STEM.json, where it is there. */
static tsr_status read_record(const char *folder, struct tsr_cli_installed *p, struct tsr_err *err)
{
    char      *path = tsr_cli_installed_path(folder, p->stem, "json");
    tsr_status st = path ? TSR_OK : tsr_fail_nomem(err, strlen(p->stem), folder);
    if (st == TSR_OK && tsr_path_exists(path)) {
        st = tsr_json_load(&p->record, path, RECORD_CAP, RECORD_DEPTH, err);
        if (st == TSR_OK && !json_is_object(p->record))
            st = tsr_fail(err, TSR_E_INPUT, "%s: is not an object, as plugin install writes it",
                          path);
    }
    free(path);
    return st;
}

static tsr_status read_folder(struct tsr_cli_installed_list *l, struct tsr_err *err)
{
    struct dirent **files;
    int             n = scandir(l->folder, &files, tsr_cli_installed_so, alphasort);
    if (n < 0)
        return tsr_fail_errno(err, errno, l->folder, "read the plugin folder");
    l->v = tsr_new((uint64_t)n, sizeof *l->v);
    tsr_status st = l->v ? TSR_OK : tsr_fail_nomem(err, (uint64_t)n * sizeof *l->v, l->folder);
    for (int i = 0; i < n; i++) {
        if (st == TSR_OK) {
            struct tsr_cli_installed *p = &l->v[l->n++];
            p->stem = tsr_strndup(files[i]->d_name, strlen(files[i]->d_name) - 3);
            st = p->stem ? read_record(l->folder, p, err) : tsr_fail_nomem(err, 1, l->folder);
        }
        free(files[i]);
    }
    free(files);
    return st;
}

tsr_status tsr_cli_installed_read(struct tsr_cli_installed_list *l, struct tsr_err *err)
{
    char *path;
    *l = (struct tsr_cli_installed_list){ 0 };
    TSR_TRY(tsr_user_folder(&path, err));
    if (!path)
        return TSR_OK;
    l->folder = realpath(path, NULL);
    tsr_status st =
        !l->folder && errno == ENOMEM ? tsr_fail_nomem(err, strlen(path), path) : TSR_OK;
    free(path);
    return st == TSR_OK && l->folder && tsr_path_is_dir(l->folder) ? read_folder(l, err) : st;
}

void tsr_cli_installed_free(struct tsr_cli_installed_list *l)
{
    for (uint64_t i = 0; i < l->n; i++) {
        free(l->v[i].stem);
        json_decref(l->v[i].record);
    }
    free(l->v);
    free(l->folder);
}

const char *tsr_cli_installed_text(const struct tsr_cli_installed *p, const char *key)
{
    return p->record ? tsr_json_word(json_object_get(p->record, key)) : NULL;
}

/* ---- list ------------------------------------------------------------------------------- */

/* The installed plugin with this file, or NULL. */
static const struct tsr_cli_installed *of_path(const struct tsr_cli_installed_list *l,
                                               const char                          *path)
{
    size_t folder = l->folder ? strlen(l->folder) : 0;
    if (!folder || strncmp(path, l->folder, folder) != 0 || path[folder] != '/')
        return NULL;
    for (uint64_t i = 0; i < l->n; i++) {
        const char *name = path + folder + 1;
        size_t      n = strlen(l->v[i].stem);
        if (strncmp(name, l->v[i].stem, n) == 0 && strcmp(name + n, ".so") == 0)
            return &l->v[i];
    }
    return NULL;
}

static const char *state_of(const struct tsr_cli_installed *p, const struct tsr_plugin_info *info)
{
    const char *hash = p ? tsr_cli_installed_text(p, "hash") : NULL;
    if (!p)
        return "found";
    return !hash ? "no record" : strcmp(hash, info->hash) == 0 ? "installed" : "changed";
}

json_t *tsr_cli_installed_components(struct tsr_registry *r, const struct tsr_plugin_info *info)
{
    json_t                 *list = json_array();
    struct tsr_plugin_found f;
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++) {
        const char *noun = f.component->kind + strlen("tessera.");
        if (f.info == info)
            tsr_json_add(&list,
                         json_pack("s#++", noun, (int)strcspn(noun, "/"), " ", f.component->name));
    }
    return list;
}

static json_t *row_of(struct tsr_registry *r, const struct tsr_cli_installed_list *l,
                      const struct tsr_plugin_info *info)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s}", "id", info->plugin->id, "version",
                     info->plugin->version, "license", info->plugin->license, "components",
                     tsr_cli_installed_components(r, info), "state",
                     state_of(of_path(l, info->path), info), "hash", info->hash, "path",
                     info->path);
}

static void print_row(const json_t *row)
{
    const json_t *parts = json_object_get(row, "components");
    const char   *version = tsr_json_word(json_object_get(row, "version"));
    (void)printf("%-10s %s", tsr_json_word(json_object_get(row, "state")),
                 tsr_json_word(json_object_get(row, "id")));
    if (version) /* a YAML file has neither version nor licence */
        (void)printf(" %s (%s)", version, tsr_json_word(json_object_get(row, "license")));
    (void)printf(":");
    for (size_t i = 0; i < json_array_size(parts); i++)
        (void)printf("%s %s", i ? "," : "", tsr_json_word(json_array_get(parts, i)));
    (void)printf("; %s\n", tsr_json_word(json_object_get(row, "path")));
}

/* Families and tasks come after the plugins. */
static tsr_status add_texts(json_t **rows, struct tsr_err *err)
{
    struct tsr_cli_texts t;
    tsr_status           st = tsr_cli_texts_read(&t, err);
    for (uint64_t i = 0; st == TSR_OK && i < t.n; i++) {
        tsr_json_add(rows, tsr_cli_text_row(&t.v[i]));
        st = *rows ? TSR_OK : tsr_fail(err, TSR_E_IO, "%s: cannot be read", t.v[i].path);
    }
    tsr_cli_texts_free(&t);
    return st;
}

tsr_status tsr_cli_plugin_list(struct tsr_cli *c, struct tsr_err *err)
{
    struct tsr_registry          *r;
    struct tsr_cli_installed_list l = { 0 };
    json_t                       *rows = json_array();
    tsr_status                    st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_scan(r, err);
    if (st == TSR_OK)
        st = tsr_cli_installed_read(&l, err);
    for (uint64_t i = 0; st == TSR_OK && i < tsr_plugin_registry_count(r); i++) {
        tsr_json_add(&rows, row_of(r, &l, tsr_plugin_registry_plugin(r, i)));
        st = rows ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "out of memory: the list of plugins");
    }
    if (st == TSR_OK)
        st = add_texts(&rows, err);
    tsr_cli_installed_free(&l);
    if (st != TSR_OK || c->json) {
        if (st == TSR_OK)
            return tsr_cli_print_json(rows, err);
        json_decref(rows);
        return st;
    }
    for (size_t i = 0; i < json_array_size(rows); i++)
        print_row(json_array_get(rows, i));
    json_decref(rows);
    return tsr_cli_flush(err);
}

/* ---- remove ------------------------------------------------------------------------------ */

static bool has_component(const struct tsr_cli_installed *p, const char *name)
{
    const json_t *parts = p->record ? json_object_get(p->record, "components") : NULL;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *part = tsr_json_word(json_array_get(parts, i));
        const char *space = part ? strchr(part, ' ') : NULL;
        if (space && strcmp(space + 1, name) == 0)
            return true;
    }
    return false;
}

static bool named(const struct tsr_cli_installed *p, const char *name)
{
    const char *id = tsr_cli_installed_text(p, "id");
    size_t      n = strlen(p->stem);
    return (id && strcmp(id, name) == 0) || has_component(p, name) ||
           (strncmp(name, p->stem, n) == 0 && (name[n] == '\0' || strcmp(name + n, ".so") == 0));
}

/* What `remove` takes away: one of both. */
struct picked {
    const struct tsr_cli_installed *plugin;
    const struct tsr_cli_text      *text;
};

static tsr_status pick_text(const struct tsr_cli_texts *t, const char *name, struct picked *p,
                            struct tsr_err *err)
{
    for (uint64_t i = 0; i < t->n; i++) {
        if (!tsr_cli_text_named(&t->v[i], name))
            continue;
        if (p->text)
            return tsr_fail(err, TSR_E_INPUT, "\"%s\" names both %s and %s; say %s/%s or %s/%s",
                            name, p->text->path, t->v[i].path, p->text->kind, p->text->name,
                            t->v[i].kind, t->v[i].name);
        p->text = &t->v[i];
    }
    return TSR_OK;
}

static tsr_status pick(const struct tsr_cli_installed_list *l, const struct tsr_cli_texts *t,
                       const char *name, struct picked *p, struct tsr_err *err)
{
    *p = (struct picked){ 0 };
    TSR_TRY(pick_text(t, name, p, err));
    const struct tsr_cli_installed **found = &p->plugin;
    const char                     **stems = tsr_new(l->n + t->n, sizeof *stems);
    if (!stems)
        return tsr_fail_nomem(err, (l->n + t->n) * sizeof *stems, "names of plugins");
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < t->n; i++)
        stems[l->n + i] = t->v[i].name;
    for (uint64_t i = 0; st == TSR_OK && i < l->n; i++) {
        stems[i] = l->v[i].stem;
        if (!named(&l->v[i], name))
            continue;
        if (*found)
            st = tsr_fail(err, TSR_E_INPUT, "\"%s\" names both %s.so and %s.so of %s", name,
                          (*found)->stem, l->v[i].stem, l->folder);
        *found = &l->v[i];
    }
    if (st == TSR_OK && *found && p->text)
        st = tsr_fail(err, TSR_E_INPUT, "\"%s\" names both %s.so of %s and %s; say %s/%s", name,
                      (*found)->stem, l->folder, p->text->path, p->text->kind, p->text->name);
    if (st == TSR_OK && !*found && !p->text) {
        const char *near = tsr_config_nearest(name, stems, l->n + t->n);
        st = tsr_fail(err, TSR_E_INPUT, "no plugin \"%s\" is installed%s%s%s%s%s", name,
                      l->n ? " in " : "", l->n ? l->folder : "", near ? "; did you mean \"" : "",
                      near ? near : "", near ? "\"?" : "");
    }
    free(stems);
    return st;
}

tsr_status tsr_cli_installed_delete(const char *folder, const char *stem, struct tsr_err *err)
{
    static const char *const ends[] = { "so", "json" };
    tsr_status               st = TSR_OK;
    for (size_t i = 0; st == TSR_OK && i < 2; i++) {
        char *path = tsr_cli_installed_path(folder, stem, ends[i]);
        st = path ? tsr_output_remove(path, err) : tsr_fail_nomem(err, strlen(stem), folder);
        free(path);
    }
    return st;
}

tsr_status tsr_cli_plugin_remove(struct tsr_cli *c, const char *name, struct tsr_err *err)
{
    struct tsr_cli_installed_list l;
    struct tsr_cli_texts          t = { 0 };
    struct picked                 p;
    char                         *path = NULL;
    int                           lock = -1;
    tsr_status                    st = tsr_cli_installed_read(&l, err);
    if (st == TSR_OK && l.folder)
        st = tsr_output_lock_folder(&lock, l.folder, err);
    if (st == TSR_OK)
        st = tsr_cli_texts_read(&t, err);
    if (st == TSR_OK)
        st = pick(&l, &t, name, &p, err);
    if (st == TSR_OK) {
        path = p.text ? tsr_strdup(p.text->path)
                      : tsr_cli_installed_path(l.folder, p.plugin->stem, "so");
        st = !path    ? tsr_fail_nomem(err, 1, name)
             : p.text ? tsr_cli_text_delete(p.text, err)
                      : tsr_cli_installed_delete(l.folder, p.plugin->stem, err);
    }
    if (st == TSR_OK && c->json)
        st = tsr_cli_print_json(json_pack("{s:s}", "removed", path), err);
    else if (st == TSR_OK && !c->quiet)
        (void)fprintf(stderr, "removed %s\n", path);
    free(path);
    tsr_cli_texts_free(&t);
    if (lock >= 0)
        (void)tsr_held_close(lock);
    tsr_cli_installed_free(&l);
    return st;
}
