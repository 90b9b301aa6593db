/* The families and tasks that are installed, for list and remove. */
#include "cli/plugin/installed_text.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/user.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_CAP   (UINT64_C(1) << 16)
#define RECORD_DEPTH 4
#define ENDING       ".yaml"
#define END          (sizeof ENDING - 1)

char *tsr_cli_text_record_path(const char *path)
{
    size_t stem = strlen(path) - END;
    char  *s = tsr_new(stem + sizeof ".json", 1);
    if (s)
        (void)snprintf(s, stem + sizeof ".json", "%.*s.json", (int)stem, path);
    return s;
}

static tsr_status read_record(struct tsr_cli_text *t, struct tsr_err *err)
{
    char      *path = tsr_cli_text_record_path(t->path);
    tsr_status st = path ? TSR_OK : tsr_fail_nomem(err, strlen(t->path), t->path);
    if (st == TSR_OK && tsr_path_exists(path)) {
        st = tsr_json_load(&t->record, path, RECORD_CAP, RECORD_DEPTH, err);
        if (st == TSR_OK && !json_is_object(t->record))
            st = tsr_fail(err, TSR_E_INPUT, "%s: is not an object, as plugin install writes it",
                          path);
    }
    free(path);
    return st;
}

static tsr_status read_kind(struct tsr_cli_texts *l, const char *kind, const char *below,
                            struct tsr_err *err)
{
    char   **names;
    uint64_t n;
    TSR_TRY(tsr_user_files(&names, &n, below, err));
    struct tsr_cli_text *v = tsr_renew(l->v, l->n + n + 1, sizeof *v);
    tsr_status           st = v ? TSR_OK : tsr_fail_nomem(err, n * sizeof *v, below);
    if (v)
        l->v = v;
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_cli_text t = { .kind = kind, .name = names[i] };
        if (st == TSR_OK)
            st = tsr_user_file(&t.path, below, t.name, err);
        if (st != TSR_OK || !t.path) {
            free(t.name);
            continue;
        }
        l->v[l->n++] = t;
        st = read_record(&l->v[l->n - 1], err);
    }
    free(names);
    return st;
}

tsr_status tsr_cli_texts_read(struct tsr_cli_texts *l, struct tsr_err *err)
{
    *l = (struct tsr_cli_texts){ 0 };
    TSR_TRY(read_kind(l, "family", TSR_USER_FAMILIES, err));
    return read_kind(l, "task", TSR_USER_TASKS, err);
}

void tsr_cli_texts_free(struct tsr_cli_texts *l)
{
    for (uint64_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        free(l->v[i].path);
        json_decref(l->v[i].record);
    }
    free(l->v);
    *l = (struct tsr_cli_texts){ 0 };
}

json_t *tsr_cli_text_row(const struct tsr_cli_text *t)
{
    char        hash[TSR_HASH_TEXT];
    const char *was = t->record ? tsr_json_word(json_object_get(t->record, "hash")) : NULL;
    if (tsr_hash_file(t->path, hash, NULL) != TSR_OK)
        return NULL;
    const char *state = !was ? "no record" : strcmp(was, hash) == 0 ? "installed" : "changed";
    return json_pack("{s:s, s:n, s:n, s:[s++], s:s, s:s, s:s}", "id", t->name, "version", "license",
                     "components", t->kind, " ", t->name, "state", state, "hash", hash, "path",
                     t->path);
}

bool tsr_cli_text_named(const struct tsr_cli_text *t, const char *name)
{
    size_t kind = strlen(t->kind), n = strlen(t->name);
    if (strncmp(name, t->kind, kind) == 0 && name[kind] == '/')
        name += kind + 1;
    return strncmp(name, t->name, n) == 0 && (name[n] == '\0' || strcmp(name + n, ENDING) == 0);
}

tsr_status tsr_cli_text_delete(const struct tsr_cli_text *t, struct tsr_err *err)
{
    char      *record = tsr_cli_text_record_path(t->path);
    tsr_status st =
        record ? tsr_output_remove(t->path, err) : tsr_fail_nomem(err, strlen(t->path), t->path);
    if (st == TSR_OK)
        st = tsr_output_remove(record, err);
    free(record);
    return st;
}
