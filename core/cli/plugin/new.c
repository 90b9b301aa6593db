#include "cli/plugin/new.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/share.h"
#include "config/config.h"
#include "model/family.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME     48u /* so that org.example.NAME is still an id */
#define MAX_ID       63u
#define MAX_TEMPLATE (UINT64_C(1) << 20)

static const char *const kinds[] = { "quantizer", "codec", "transport", "solver", "backend",
                                     "sampler",   "step",  "kv",        "family", "task" };

/* Families and tasks are YAML files: nothing of theirs is built. */
static bool is_text(const char *kind)
{
    return strcmp(kind, "family") == 0 || strcmp(kind, "task") == 0;
}

/* Optional tables that have a template. */
static const struct {
    const char *kind, *table;
    bool        cxx; /* also in C++ */
} tables[] = { { "codec", "stream", true },      { "quantizer", "kernel", false },
               { "quantizer", "device", false }, { "quantizer", "block", false },
               { "quantizer", "tune", false },   { "quantizer", "report", false } };

/* ---- options -------------------------------------------------------------- */

static bool only(const char *s, const char *chars)
{
    return s[strspn(s, chars)] == '\0';
}

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static tsr_status check_name(const char *name, struct tsr_err *err)
{
    /* names that meson keeps for itself: it would not build a plugin that is called so */
    static const char *const taken[] = { "all",     "benchmark", "clean", "coverage",
                                         "dist",    "distcheck", "phony", "reconfigure",
                                         "install", "test",      "tests", "uninstall" };
    size_t                   n = strlen(name);
    if (n == 0 || n > MAX_NAME || !strchr(LOWER, *name) || !only(name, LOWER DIGITS "_"))
        return tsr_fail(err, TSR_E_INPUT,
                        "the name '%.80s' cannot be a plugin's; use 1 to %u lower-case letters, "
                        "digits and '_', a letter first",
                        name, MAX_NAME);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(name, taken[i]) == 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "the name '%s' is taken by meson for its own target; use another, "
                            "such as 'my_%s'",
                            name, name);
    return TSR_OK;
}

static tsr_status check_table(const struct tsr_cli_new_plugin *p, struct tsr_err *err)
{
    const char *of[sizeof tables / sizeof *tables];
    char        all[120] = "";
    size_t      n = 0, len = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(p->kind, tables[i].kind) != 0)
            continue;
        if (strcmp(p->table, tables[i].table) == 0)
            return !p->cxx || tables[i].cxx
                       ? TSR_OK
                       : tsr_fail(
                             err, TSR_E_INPUT,
                             "the template of a %s with the table '%s' is in C; leave out --cxx",
                             p->kind, p->table);
        len +=
            (size_t)snprintf(all + len, sizeof all - len, "%s%s", n ? ", " : "", tables[i].table);
        of[n++] = tables[i].table;
    }
    if (n == 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "there is no table '%.80s' to start a %s with; codecs and quantizers have tables",
            p->table, p->kind);
    const char *near = tsr_config_nearest(p->table, of, n);
    return tsr_fail(err, TSR_E_INPUT,
                    "there is no table '%.80s' to start a %s with; choose from %s%s%s%s", p->table,
                    p->kind, all, near ? " (did you mean '" : "", near ? near : "",
                    near ? "'?)" : "");
}

static tsr_status check_text(const struct tsr_cli_new_plugin *p, struct tsr_err *err)
{
    if (p->cxx || (p->id && *p->id))
        return tsr_fail(err, TSR_E_INPUT, "a %s is a YAML file; --cxx and --id are of the others",
                        p->kind);
    if (strcmp(p->kind, "family") == 0 && strlen(p->name) > TSR_FAMILY_WORD)
        return tsr_fail(err, TSR_E_INPUT,
                        "the name '%.80s' is longer than the %d bytes of a family", p->name,
                        TSR_FAMILY_WORD);
    return TSR_OK;
}

static tsr_status check_request(const struct tsr_cli_new_plugin *p, struct tsr_err *err)
{
    bool   known = false;
    size_t n = p->id ? strlen(p->id) : 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        known |= strcmp(p->kind, kinds[i]) == 0;
    if (!known) {
        const char *near = tsr_config_nearest(p->kind, kinds, sizeof kinds / sizeof *kinds);
        return tsr_fail(err, TSR_E_INPUT,
                        "there is no kind '%.80s'; choose quantizer, codec, transport, solver, "
                        "backend, sampler, step, kv, family or task%s%s%s",
                        p->kind, near ? " (did you mean '" : "", near ? near : "",
                        near ? "'?)" : "");
    }
    TSR_TRY(check_name(p->name, err));
    if (p->table && *p->table)
        TSR_TRY(check_table(p, err));
    if (is_text(p->kind))
        return check_text(p, err);
    if (n && (n > MAX_ID || !strchr(LOWER, *p->id) || !strchr(p->id, '.') ||
              !only(p->id, LOWER DIGITS ".-_")))
        return tsr_fail(err, TSR_E_INPUT,
                        "the id '%.80s' is not of the form 'org.example.name' (lower case, at most "
                        "%u bytes)",
                        p->id, MAX_ID);
    if (!*p->license || strlen(p->license) > 200 || !only(p->license, LOWER UPPER DIGITS ".-+() "))
        return tsr_fail(
            err, TSR_E_INPUT,
            "the license '%.80s' is not an SPDX expression such as 'MIT' or 'Apache-2.0'",
            p->license);
    return TSR_OK;
}

/* ---- lists of names ------------------------------------------------------------ */

void tsr_cli_new_files_free(struct tsr_cli_new_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->names[i]);
    free(f->names);
    free(f->folder);
    memset(f, 0, sizeof *f);
}

static bool add_name(struct tsr_cli_new_files *f, const char *name)
{
    char **v = tsr_renew(f->names, f->n + 1, sizeof *v);
    if (!v)
        return false;
    f->names = v;
    v[f->n] = tsr_strdup(name);
    return v[f->n] && ++f->n;
}

static bool has_name(const struct tsr_cli_new_files *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const char *x, *y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return strcmp(x, y);
}

/* The visible names in a folder, sorted. */
static tsr_status list_folder(const char *folder, struct tsr_cli_new_files *f, struct tsr_err *err)
{
    DIR       *d = opendir(folder);
    tsr_status st = TSR_OK;
    if (!d)
        return tsr_fail_errno(err, errno, folder, "read folder");
    for (const struct dirent *e; st == TSR_OK && (errno = 0, e = readdir(d));)
        if (e->d_name[0] != '.' && !add_name(f, e->d_name))
            st = tsr_fail_nomem(err, strlen(e->d_name), folder);
    if (st == TSR_OK && errno)
        st = tsr_fail_errno(err, errno, folder, "read folder");
    (void)closedir(d);
    if (f->n)
        qsort(f->names, f->n, sizeof *f->names, by_name);
    return st;
}

/* ---- filling in ------------------------------------------------------------------ */

/* The replacement of a word between two '@', or NULL. */
static const char *value_of(const struct tsr_cli_new_plugin *p, const char *word, size_t n)
{
    const struct {
        const char *word, *value;
    } all[] = { { "NAME", p->name }, { "ID", p->id }, { "LICENSE", p->license } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].word) == n && memcmp(all[i].word, word, n) == 0)
            return all[i].value;
    return NULL;
}

static bool is_binary(const char *name)
{
    static const char end[] = ".safetensors";
    size_t            n = strlen(name);
    return n >= sizeof end && strcmp(name + n - (sizeof end - 1), end) == 0;
}

static void fill_in(struct tsr_writer *w, const struct tsr_cli_new_plugin *p, const char *text)
{
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, "@");
        tsr_writer_put(w, s, n);
        s += n;
        if (!*s)
            return;
        n = strcspn(s + 1, "@\n");
        const char *v = s[1 + n] == '@' ? value_of(p, s + 1, n) : NULL;
        tsr_writer_put(w, v ? v : s, v ? strlen(v) : 1);
        s += v ? n + 2 : 1;
    }
}

/* from/name into the new folder, under the name that is added to `made`. */
static tsr_status write_one(const struct tsr_cli_new_plugin *p, const char *from, const char *name,
                            const char *folder, struct tsr_cli_new_files *made, struct tsr_err *err)
{
    struct tsr_writer w;
    char             *src = tsr_path_join(from, name), *dst = NULL, *text = NULL, as[256];
    uint64_t          len;
    bool              own = strncmp(name, "NAME.", 5) == 0;
    (void)snprintf(as, sizeof as, "%s%s", own ? p->name : name, own ? name + 4 : "");
    if (src && add_name(made, as))
        dst = tsr_path_join(folder, as);
    tsr_status st = dst ? TSR_OK : tsr_fail_nomem(err, strlen(from) + sizeof as, name);
    if (st == TSR_OK)
        st = tsr_file_slurp(src, MAX_TEMPLATE, &text, &len, err);
    if (st == TSR_OK && (st = tsr_writer_open(&w, dst, err)) == TSR_OK) {
        if (is_binary(name))
            tsr_writer_put(&w, text, len);
        else
            fill_in(&w, p, text);
        st = tsr_writer_commit(&w, err);
    }
    free(text);
    free(src);
    free(dst);
    return st;
}

/* The files of templates/part/LANG into the new folder. */
static tsr_status write_part(const struct tsr_cli_new_plugin *p, const char *templates,
                             const char *part, const char *folder, struct tsr_cli_new_files *made,
                             struct tsr_err *err)
{
    struct tsr_cli_new_files list = { 0 };
    char                     below[64];
    bool                     own = part == p->kind && p->table && *p->table;
    (void)snprintf(below, sizeof below, "%s%s%s/%s", part, own ? "/" : "", own ? p->table : "",
                   is_text(p->kind) ? "yaml"
                   : p->cxx         ? "cxx"
                                    : "c");
    char      *from = tsr_path_join(templates, below);
    tsr_status st =
        from ? list_folder(from, &list, err) : tsr_fail_nomem(err, sizeof below, templates);
    for (size_t i = 0; i < list.n && st == TSR_OK; i++)
        if (!has_name(made, list.names[i])) /* its own Makefile comes before the common one */
            st = write_one(p, from, list.names[i], folder, made, err);
    tsr_cli_new_files_free(&list);
    free(from);
    return st;
}

/* ---- the folder -------------------------------------------------------------------- */

static tsr_status write_folder(const struct tsr_cli_new_plugin *p, const char *templates,
                               const char *folder, struct tsr_cli_new_files *made,
                               struct tsr_err *err)
{
    struct tsr_output_folder f;
    char                    *dir = tsr_path_dir(folder);
    if (!dir)
        return tsr_fail_nomem(err, strlen(folder), folder);
    /* a missing folder in --dir is probably a typing error */
    tsr_status st = tsr_path_is_dir(dir) ? TSR_OK : tsr_fail_errno(err, ENOENT, dir, "open");
    free(dir);
    TSR_TRY(st);
    TSR_TRY(tsr_output_folder_begin(&f, folder, false, err));
    st = write_part(p, templates, p->kind, f.part, made, err);
    if (st == TSR_OK && !is_text(p->kind))
        st = write_part(p, templates, "common", f.part, made, err);
    if (st == TSR_OK)
        return tsr_output_folder_commit(&f, err);
    tsr_output_folder_abort(&f);
    return st;
}

tsr_status tsr_plugin_new(const struct tsr_cli_new_plugin *request, struct tsr_cli_new_files *made,
                          struct tsr_err *err)
{
    struct tsr_cli_new_plugin p = *request;
    char                      id[MAX_ID + 1], *templates = NULL;
    memset(made, 0, sizeof *made);
    TSR_TRY(check_request(&p, err));
    if (!p.id || !*p.id) {
        (void)snprintf(id, sizeof id, "org.example.%s", p.name);
        p.id = id;
    }
    made->folder = tsr_strdup(p.folder && *p.folder ? p.folder : p.name);
    if (!made->folder)
        return tsr_fail_nomem(err, strlen(p.name), p.name);
    for (size_t n = strlen(made->folder); n > 1 && made->folder[n - 1] == '/';)
        made->folder[--n] = '\0';
    TSR_TRY(tsr_share_find(&templates, "the templates of plugins", "templates", "tools/templates",
                           err));
    tsr_status st = write_folder(&p, templates, made->folder, made, err);
    free(templates);
    if (st == TSR_OK)
        qsort(made->names, made->n, sizeof *made->names, by_name);
    return st;
}
