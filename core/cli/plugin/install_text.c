/* tessera plugin install of a YAML file: a family or a task that keeps its rules becomes the user's. */
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/user.h"
#include "cli/plugin/installed_text.h"
#include "conformance/text.h"
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

/* Runs the rules that `only` names (NULL: all) and adds the number that it keeps to *passed. */
static tsr_status keep(const char *file, const char *only, uint64_t *passed, struct tsr_err *err)
{
    struct tsr_conformance_check_options o = { .only = only };
    struct tsr_conformance_check_report  r;
    tsr_status                           st = tsr_conformance_check_run(&r, file, &o, NULL, err);
    const char                          *first = "";
    for (uint64_t i = 0; st == TSR_OK && i < r.n && !*first; i++)
        if (r.results[i].text && (r.results[i].verdict == TSR_CONFORMANCE_FAILED ||
                                  r.results[i].verdict >= TSR_CONFORMANCE_CRASHED))
            first = r.results[i].text;
    if (st == TSR_OK && r.failed)
        st = tsr_fail(err, TSR_E_CHECK,
                      "%s breaks %llu rule%s of its kind and is not installed; the first: %s", file,
                      (unsigned long long)r.failed, r.failed == 1 ? "" : "s", first);
    *passed += r.passed;
    tsr_conformance_check_report_free(&r);
    return st;
}

static const char *shared(const char *const *a, const char *const *b)
{
    for (; *a; a++)
        for (const char *const *other = b; *other; other++)
            if (strcmp(*a, *other) == 0)
                return *a;
    return NULL;
}

/* Two installed families of one architecture: which one a model gets would depend on their names. */
static tsr_status check_models(const struct tsr_model_family *mine, const char *file,
                               struct tsr_err *err)
{
    const struct tsr_model_family *f;
    for (uint64_t i = 0;; i++) {
        TSR_TRY(tsr_model_family_at(i, &f, err));
        if (!f)
            return TSR_OK;
        const char *word = shared(mine->architectures, f->architectures);
        if (!word)
            word = shared(mine->model_types, f->model_types);
        if (word && strcmp(f->name, mine->name) != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: its models \"%s\" are those of the family %s already; jobs use "
                            "that one, and --family FILE uses another",
                            file, word, f->name);
    }
}

static tsr_status check_family(const char *file, const char *text, uint64_t len,
                               struct tsr_err *err)
{
    struct tsr_diag         *d = NULL;
    struct tsr_model_family *f = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_model_family_read(&f, file, text, len, d, err);
    tsr_config_diag_destroy(d);
    if (st == TSR_OK)
        st = check_models(f, file, err);
    tsr_model_family_destroy(f);
    return st;
}

/* FOLDER/below/NAME.yaml, with the folder made. */
static tsr_status place(char **path, const char *folder, const char *below, const char *name,
                        struct tsr_err *err)
{
    char       file[80];
    char      *dir = tsr_path_join(folder, below);
    tsr_status st = dir ? tsr_make_dirs(dir, err) : tsr_fail_nomem(err, strlen(below), folder);
    (void)snprintf(file, sizeof file, "%.70s.yaml", name);
    if (st == TSR_OK && !(*path = tsr_path_join(dir, file)))
        st = tsr_fail_nomem(err, strlen(file), folder);
    free(dir);
    return st;
}

static tsr_status store(const struct tsr_conformance_text *t, const char *file, const char *path,
                        const char *text, uint64_t len, json_t *passed, json_t **done,
                        struct tsr_err *err)
{
    char    hash[TSR_HASH_TEXT], *record = tsr_cli_text_record_path(path);
    json_t *j;
    tsr_hash_bytes(text, len, hash);
    j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "format", "tessera.installed/1", "kind",
                  t->kind->noun, "name", t->name, "hash", hash, "from", file, "rules_passed",
                  passed);
    tsr_status st = record && j ? tsr_file_store(path, text, len, err)
                                : tsr_fail(err, TSR_E_NOMEM, "out of memory: a record");
    if (st == TSR_OK)
        st = tsr_json_store(record, j, JSON_INDENT(2), err);
    tsr_json_add(done, j);
    free(record);
    return st;
}

static tsr_status install(struct tsr_cli *c, const struct tsr_conformance_text *t, const char *file,
                          const char *folder, json_t *passed, json_t **done, struct tsr_err *err)
{
    bool       family = strcmp(t->kind->noun, "family") == 0, there = false;
    char      *path = NULL, *text = NULL;
    uint64_t   len;
    tsr_status st = tsr_file_slurp(file, TSR_CONFORMANCE_TEXT_BYTES, &text, &len, err);
    if (st == TSR_OK && family)
        st = check_family(file, text, len, err);
    if (st == TSR_OK)
        st = place(&path, folder, family ? TSR_USER_FAMILIES : TSR_USER_TASKS, t->name, err);
    if (st == TSR_OK) {
        there = tsr_path_exists(path);
        st = store(t, file, path, text, len, json_incref(passed), done, err);
    }
    if (st == TSR_OK && !c->quiet && !c->json)
        (void)fprintf(stderr, "installed %s %s as %s%s\n", t->kind->noun, t->name, path,
                      there ? ", in place of the one that was there" : "");
    free(path);
    free(text);
    return st;
}

tsr_status tsr_cli_text_install(struct tsr_cli *c, const char *file, const char *folder, bool rules,
                                json_t **done, struct tsr_err *err)
{
    struct tsr_conformance_text t;
    uint64_t                    passed = 0;
    TSR_TRY(tsr_conformance_text_open(&t, file, err));
    tsr_status st = keep(file, rules ? NULL : "*-reads", &passed, err);
    if (st == TSR_OK && !rules)
        st = keep(file, "*-name", &passed, err);
    json_t *count = rules ? json_integer((json_int_t)passed) : json_null();
    if (st == TSR_OK)
        st = count ? install(c, &t, file, folder, count, done, err)
                   : tsr_fail(err, TSR_E_NOMEM, "out of memory: a record");
    json_decref(count);
    free(t.name);
    return st;
}
