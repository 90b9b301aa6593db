/* Families and tasks as the runner sees them: which kind a file is, and its golden. */
#include "conformance/text.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "config/config.h"
#include "conformance/internal.h"

#include <stdlib.h>
#include <string.h>

#define ENDING        ".yaml"
#define GOLDEN        ".golden.json"
#define GOLDEN_BYTES  (UINT64_C(64) << 20)
#define GOLDEN_DEPTH  32
#define GOLDEN_CASES  64u
#define LOWER         "abcdefghijklmnopqrstuvwxyz"
#define DIGITS_DASHES "0123456789_-"

bool tsr_conformance_is_text(const char *path)
{
    size_t n = strlen(path), end = sizeof ENDING - 1;
    return n > end && strcmp(path + n - end, ENDING) == 0;
}

bool tsr_conformance_text_name_ok(const char *name, size_t most)
{
    size_t n = strlen(name);
    return n > 0 && n <= most && strchr(LOWER, *name) &&
           name[strspn(name, LOWER DIGITS_DASHES)] == '\0';
}

static tsr_status read_head(struct tsr_conformance_text *t, const struct tsr_config_node *root,
                            const char *path, struct tsr_err *err)
{
    static const char *const      nouns[] = { "family", "task" };
    const struct tsr_config_node *name = tsr_config_node_get(root, "name");
    for (size_t i = 0; i < sizeof nouns / sizeof *nouns && !t->kind; i++)
        if (tsr_config_node_get(root, nouns[i]))
            t->kind = tsr_conformance_noun_rules_find(nouns[i]);
    if (!t->kind)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: has neither the key \"family\" nor \"task\"; a family begins with "
                        "family: tessera.family/1, a task with task: tessera.task/1",
                        path);
    t->name =
        tsr_strdup(name && name->kind == TSR_CONFIG_NODE_SCALAR && name->text ? name->text : "");
    return t->name ? TSR_OK : tsr_fail_nomem(err, 1, path);
}

tsr_status tsr_conformance_text_open(struct tsr_conformance_text *t, const char *path,
                                     struct tsr_err *err)
{
    struct tsr_diag       *d = NULL;
    struct tsr_config_doc *doc = NULL;
    *t = (struct tsr_conformance_text){ 0 };
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_config_doc_load(&doc, path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    else if (tsr_config_diag_errors(d))
        (void)tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = read_head(t, tsr_config_doc_root(doc), path, err);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    return st;
}

bool tsr_conformance_text_is_ours(const char *path)
{
    static const char *const nouns[][2] = { { "family", "tessera.family/" },
                                            { "task", "tessera.task/" } };
    struct tsr_diag         *d = NULL;
    struct tsr_config_doc   *doc = NULL;
    bool                     ours = false;
    if (tsr_config_diag_create(&d, NULL) != TSR_OK)
        return false;
    if (tsr_config_doc_load(&doc, path, d, NULL) == TSR_OK && !tsr_config_diag_errors(d))
        for (size_t i = 0; i < sizeof nouns / sizeof *nouns; i++) {
            const struct tsr_config_node *n =
                tsr_config_node_get(tsr_config_doc_root(doc), nouns[i][0]);
            ours |= n && n->kind == TSR_CONFIG_NODE_SCALAR &&
                    strncmp(n->text, nouns[i][1], strlen(nouns[i][1])) == 0;
        }
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    return ours;
}

/* ---- goldens --------------------------------------------------------------------------- */

static char *golden_path(const char *path)
{
    size_t stem = strlen(path) - (sizeof ENDING - 1), n = stem + sizeof GOLDEN;
    char  *s = tsr_new(n, 1);
    if (s)
        (void)snprintf(s, n, "%.*s%s", (int)stem, path, GOLDEN);
    return s;
}

static tsr_status read_golden(struct tsr_conformance_golden *g, const char *format,
                              struct tsr_err *err)
{
    const char *is = NULL;
    if (!tsr_path_exists(g->path))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s is not there; it holds what another program computes for the file "
                        "(docs/formats/golden.md)",
                        g->path);
    TSR_TRY(tsr_json_load(&g->root, g->path, GOLDEN_BYTES, GOLDEN_DEPTH, err));
    if (!json_is_object(g->root))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not an object", g->path);
    TSR_TRY(tsr_json_str(g->root, g->path, "format", true, &is, err));
    if (strcmp(is, format) != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"format\" is \"%.60s\", not \"%s\"", g->path, is,
                        format);
    TSR_TRY(tsr_json_str(g->root, g->path, "by", true, &g->by, err));
    if (strlen(g->by) < 3)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"by\" does not name the program and version that computed it",
                        g->path);
    TSR_TRY(tsr_json_sub(g->root, g->path, "cases", true, JSON_ARRAY, &g->cases, err));
    size_t n = json_array_size(g->cases);
    if (n == 0 || n > GOLDEN_CASES)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"cases\" has %zu entries, not 1 to %u", g->path, n,
                        GOLDEN_CASES);
    for (size_t i = 0; i < n; i++)
        if (!json_is_object(json_array_get(g->cases, i)))
            return tsr_fail(err, TSR_E_INPUT, "%s: cases[%zu] is not an object", g->path, i);
    return TSR_OK;
}

tsr_status tsr_conformance_golden_open(struct tsr_conformance_golden *g, const char *path,
                                       const char *format, struct tsr_err *err)
{
    *g = (struct tsr_conformance_golden){ .path = golden_path(path) };
    if (!g->path)
        return tsr_fail_nomem(err, strlen(path), path);
    tsr_status st = read_golden(g, format, err);
    if (st != TSR_OK)
        tsr_conformance_golden_close(g);
    return st;
}

void tsr_conformance_golden_close(struct tsr_conformance_golden *g)
{
    json_decref(g->root);
    free(g->path);
    *g = (struct tsr_conformance_golden){ 0 };
}
