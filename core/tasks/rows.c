#include "tasks/rows.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/hub.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES (UINT64_C(1) << 32)
#define MAX_FILES 4096u
#define DEPTH     32u

/* ---- one file ----------------------------------------------------------------------- */

static tsr_status add_row(json_t *list, const char *name, json_t *row, struct tsr_err *err)
{
    if (!json_is_object(row))
        return tsr_fail(err, TSR_E_INPUT, "%s: a row must be an object", name);
    return json_array_append(list, row) == 0 ? TSR_OK : tsr_fail_nomem(err, 64, name);
}

static tsr_status add_list(json_t *list, const char *path, const char *text, uint64_t bytes,
                           struct tsr_err *err)
{
    json_t *all, *row;
    size_t  i;
    TSR_TRY(tsr_json_parse(&all, path, text, bytes, DEPTH, err));
    tsr_status st = json_is_array(all)
                        ? TSR_OK
                        : tsr_fail(err, TSR_E_INPUT, "%s: the file is not a list of rows", path);
    json_array_foreach (all, i, row) {
        char name[4200];
        (void)snprintf(name, sizeof name, "%.4096s: row %zu", path, i + 1);
        if (st == TSR_OK)
            st = add_row(list, name, row, err);
    }
    json_decref(all);
    return st;
}

static bool is_blank(const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!strchr(" \t\r", s[i]) || !s[i])
            return false;
    return true;
}

static tsr_status add_lines(json_t *list, const char *path, const char *text, uint64_t bytes,
                            struct tsr_err *err)
{
    const char *p = text, *end = text + bytes;
    for (uint64_t line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        uint64_t    n = nl ? (uint64_t)(nl - p) : (uint64_t)(end - p);
        char        name[4200];
        json_t     *row;
        (void)snprintf(name, sizeof name, "%.4096s:%llu", path, (unsigned long long)line);
        if (!is_blank(p, n)) {
            TSR_TRY(tsr_json_parse(&row, name, p, n, DEPTH, err));
            tsr_status st = add_row(list, name, row, err);
            json_decref(row);
            TSR_TRY(st);
        }
        p += n + (nl != NULL);
    }
    return TSR_OK;
}

/* A list begins with '[', and a row with '{'. */
static tsr_status add_file(struct tsr_tasks_rows *r, struct tsr_hasher *h, const char *path,
                           struct tsr_err *err)
{
    char    *text;
    uint64_t bytes;
    TSR_TRY(tsr_file_slurp(path, MAX_BYTES, &text, &bytes, err));
    tsr_hasher_update(h, text, bytes);
    bool       list = text[strspn(text, " \t\r\n")] == '[';
    tsr_status st = list ? add_list(r->list, path, text, bytes, err)
                         : add_lines(r->list, path, text, bytes, err);
    free(text);
    return st;
}

static tsr_status load(struct tsr_tasks_rows *r, char *const *paths, uint64_t n,
                       struct tsr_err *err)
{
    struct tsr_hasher *h = NULL;
    *r = (struct tsr_tasks_rows){ .list = json_array(), .path = tsr_strdup(paths[0]) };
    tsr_status st =
        r->list && r->path ? tsr_hasher_create(&h, err) : tsr_fail_nomem(err, 64, paths[0]);
    if (st == TSR_OK) {
        for (uint64_t i = 0; i < n && st == TSR_OK; i++)
            st = add_file(r, h, paths[i], err);
        tsr_hasher_finish(h, r->hash);
    }
    if (st == TSR_OK && json_array_size(r->list) == 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s holds no row", paths[0]);
    if (st != TSR_OK)
        tsr_tasks_rows_free(r);
    return st;
}

tsr_status tsr_tasks_rows_file(struct tsr_tasks_rows *r, const char *path, struct tsr_err *err)
{
    char *own = tsr_strdup(path);
    *r = (struct tsr_tasks_rows){ 0 };
    if (!own)
        return tsr_fail_nomem(err, strlen(path), path);
    tsr_status st = load(r, &own, 1, err);
    free(own);
    return st;
}

void tsr_tasks_rows_free(struct tsr_tasks_rows *r)
{
    json_decref(r->list);
    free(r->path);
    *r = (struct tsr_tasks_rows){ 0 };
}

/* ---- the files of a split ----------------------------------------------------------- */

struct files {
    char   **path; /* [MAX_FILES] */
    uint64_t n;
    bool     parquet; /* there is one of that split, which is not read */
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* "test.jsonl", "test-00000-of-00002.json" */
static bool is_of_split(const char *name, const char *split)
{
    size_t n = strlen(split);
    return strncmp(name, split, n) == 0 && (name[n] == '.' || name[n] == '-');
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tsr_status list_folder(struct files *f, const char *folder, const char *split,
                              struct tsr_err *err)
{
    tsr_status     st = TSR_OK;
    struct dirent *e;
    DIR           *dir = folder && tsr_path_is_dir(folder) ? opendir(folder) : NULL;
    while (dir && st == TSR_OK && f->n < MAX_FILES && (e = readdir(dir)) != NULL) {
        if (!is_of_split(e->d_name, split))
            continue;
        f->parquet = f->parquet || ends_with(e->d_name, ".parquet");
        if (!ends_with(e->d_name, ".jsonl") && !ends_with(e->d_name, ".json"))
            continue;
        f->path[f->n] = tsr_path_join(folder, e->d_name);
        if (!f->path[f->n++])
            st = tsr_fail_nomem(err, 64, folder);
    }
    if (dir)
        (void)closedir(dir);
    if (st == TSR_OK)
        qsort(f->path, f->n, sizeof *f->path, by_name);
    return st;
}

static tsr_status list_below(struct files *f, const char *folder, const char *name,
                             const char *split, struct tsr_err *err)
{
    char *sub = *name ? tsr_path_join(folder, name) : tsr_strdup(folder);
    if (!sub)
        return tsr_fail_nomem(err, 64, folder);
    tsr_status st = list_folder(f, sub, split, err);
    free(sub);
    return st;
}

static tsr_status fail_missing(const struct tsr_tasks_task *t, const char *split,
                               const char *folder, bool parquet, struct tsr_err *err)
{
    const char *config = *t->config ? t->config : "default";
    if (parquet)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has split '%s' of the data set %s as Parquet, which is not read; "
                        "export it: python3 -c 'import datasets; datasets.load_dataset(\"%s\", "
                        "\"%s\", split=\"%s\").to_json(\"%s/%s.jsonl\")'",
                        folder, split, t->dataset, t->dataset, config, split, t->name, split);
    return tsr_fail(err, TSR_E_INPUT,
                    "task '%s' needs split '%s' of the data set %s (%s), and nothing is "
                    "downloaded; put its rows as JSON Lines into %s/%s/%s.jsonl",
                    t->name, split, t->dataset, config, folder ? folder : "FOLDER", t->name, split);
}

static tsr_status find_in(struct tsr_tasks_rows *r, const struct tsr_tasks_task *t,
                          const char *split, const char *folder, struct files *f,
                          struct tsr_err *err)
{
    const char *const places[] = { t->name, t->config, "data", "" };
    tsr_status        st = TSR_OK;
    for (unsigned i = 0; i < 4 && st == TSR_OK && f->n == 0; i++)
        if (*places[i] || i == 3)
            st = list_below(f, folder, places[i], split, err);
    if (st == TSR_OK && f->n == 0 && strcmp(split, t->split) == 0)
        st = list_below(f, folder, t->name, "docs", err);
    if (st == TSR_OK)
        st = f->n ? load(r, f->path, f->n, err) : fail_missing(t, split, folder, f->parquet, err);
    return st;
}

tsr_status tsr_tasks_rows_find(struct tsr_tasks_rows *r, const struct tsr_tasks_task *t,
                               const char *split, const char *folder, struct tsr_err *err)
{
    struct files f = { .path = tsr_new(MAX_FILES, sizeof *f.path) };
    char        *snapshot = NULL;
    *r = (struct tsr_tasks_rows){ 0 };
    if (folder && *folder && access(folder, F_OK) != 0) {
        free(f.path);
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: no such file or folder; expected a JSON Lines file of rows of task "
                        "'%s', or a folder with %s/%s.jsonl",
                        folder, t->name, t->name, split);
    }
    if (folder && *folder && !tsr_path_is_dir(folder) && access(folder, F_OK) == 0) {
        free(f.path);
        if (strcmp(split, t->split) == 0)
            return tsr_tasks_rows_file(r, folder, err);
        return tsr_fail(err, TSR_E_INPUT,
                        "task '%s' takes its shots from split '%s', and %s is one file; give their "
                        "rows as fewshot_data",
                        t->name, split, folder);
    }
    if (!f.path)
        return tsr_fail_nomem(err, MAX_FILES * sizeof *f.path, "rows");
    tsr_status st = TSR_OK;
    if (!folder || !*folder) {
        st = tsr_checkpoint_hub_data_set(t->dataset, &snapshot, err);
        folder = snapshot;
    }
    if (st == TSR_OK)
        st = folder ? find_in(r, t, split, folder, &f, err)
                    : fail_missing(t, split, NULL, false, err);
    for (uint64_t i = 0; i < f.n; i++)
        free(f.path[i]);
    free(f.path);
    free(snapshot);
    return st;
}
