/* A comparison file - base job, arms, what to measure - expanded into a job:
 *
 *   base: ../rtn.yaml            version, model, seed, plugins: the base's, unless said here
 *   arms: {...}             ->   pipeline:
 *   measure: {...}                 - calibrate: {...}    the base's
 *                                  - compare: {quantize: the base's, arms, measure, ...}
 *                                  - report: {html: report.html}
 */
#include "base/file.h"
#include "base/mem.h"
#include "config/doc.h"
#include "pipeline/job.h"

#include <stdlib.h>
#include <string.h>

#define HOW "see docs/guide/comparing.md"

/* Keys that go to the head, to the step compare, and those that are ours. */
static const char *const head_keys[] = { "version", "model",      "seed",        "numerics",
                                         "backend", "gpu_layers", "cpu_experts", "plugins" };
static const char *const step_keys[] = { "quantize", "arms",     "measure",  "pairs",
                                         "fail_if",  "baseline", "alpha",    "together",
                                         "samples",  "sampling", "by_layers" };
static const char *const own_keys[] = { "base", "calibrate", "claims" };
#define N(list) (sizeof(list) / sizeof *(list))

struct expansion {
    struct tsr_config_doc        *doc;
    const struct tsr_config_node *file, *base; /* roots; base NULL: none */
    const char      *base_dir; /* folder of the base, seen from the file's; NULL: the same */
    struct tsr_diag *d;
    bool             nomem;
};

bool tsr_pipeline_compare_file_is(const struct tsr_config_node *root)
{
    return root && tsr_config_node_get(root, "arms") && !tsr_config_node_get(root, "pipeline");
}

/* ---- building ------------------------------------------------------------------------- */

static struct tsr_config_node *make(struct expansion *x, enum tsr_node_kind kind, const char *text)
{
    struct tsr_config_node *n = tsr_config_doc_node(x->doc, kind, &x->file->mark);
    if (n)
        n->text = tsr_config_doc_strndup(x->doc, text, strlen(text));
    if (!n || !n->text)
        x->nomem = true;
    return x->nomem ? NULL : n;
}

/* Takes value; NULL was not made. */
static void put(struct expansion *x, struct tsr_config_node *into, const char *key,
                struct tsr_config_node *value)
{
    struct tsr_config_node *k = key ? make(x, TSR_CONFIG_NODE_SCALAR, key) : NULL;
    if (x->nomem || !into || !value || (key && !k) || !tsr_config_doc_put(x->doc, into, k, value))
        x->nomem = true;
}

static struct tsr_config_node *copy(struct expansion *x, const struct tsr_config_node *n)
{
    struct tsr_config_node *c = tsr_config_doc_copy(x->doc, n);
    if (!c)
        x->nomem = true;
    return c;
}

/* A path of the base, seen from the file. */
static void move_path(struct expansion *x, struct tsr_config_node *n)
{
    if (x->nomem || !x->base_dir || n->kind != TSR_CONFIG_NODE_SCALAR || !*n->text ||
        tsr_model_is_name(n->text))
        return;
    char *path = tsr_path_join(x->base_dir, n->text);
    n->text = path ? tsr_config_doc_strndup(x->doc, path, strlen(path)) : NULL;
    x->nomem = !n->text;
    free(path);
}

static void move_key(struct expansion *x, const struct tsr_config_node *map, const char *key)
{
    struct tsr_config_node *n = (struct tsr_config_node *)(uintptr_t)tsr_config_node_get(map, key);
    for (uint64_t i = 0; n && n->kind == TSR_CONFIG_NODE_LIST && i < n->n; i++)
        move_path(x, n->items[i]);
    if (n && n->kind == TSR_CONFIG_NODE_SCALAR)
        move_path(x, n);
}

/* ---- the base --------------------------------------------------------------------------- */

/* The options of the base's only step of a name; NULL if there is none. */
static const struct tsr_config_node *base_step(struct expansion *x, const char *name)
{
    const struct tsr_config_node *list = x->base ? tsr_config_node_get(x->base, "pipeline") : NULL,
                                 *found = NULL;
    for (uint64_t i = 0; list && list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *s = list->items[i];
        if (s->kind != TSR_CONFIG_NODE_MAP || s->n != 1 || strcmp(s->keys[0]->text, name) != 0)
            continue;
        if (found)
            tsr_config_diag_error(x->d, &s->keys[0]->mark, "a base has one of them",
                                  "the base of a comparison has a second step '%s'", name);
        found = s->items[0];
    }
    return found && found->kind == TSR_CONFIG_NODE_MAP ? found : NULL;
}

/* The options of a step with its paths moved, without `to`, in the file's document. */
static struct tsr_config_node *take_step(struct expansion *x, const char *name, const char *path)
{
    const struct tsr_config_node *from = base_step(x, name);
    struct tsr_config_node       *map = from ? make(x, TSR_CONFIG_NODE_MAP, "") : NULL;
    for (uint64_t i = 0; map && i < from->n; i++)
        if (strcmp(from->keys[i]->text, "to") != 0 &&
            !tsr_config_doc_put(x->doc, map, copy(x, from->keys[i]), copy(x, from->items[i])))
            x->nomem = true;
    if (map && !x->nomem)
        move_key(x, map, path);
    return map;
}

/* ---- the job ---------------------------------------------------------------------------- */

static void put_head(struct expansion *x, struct tsr_config_node *root)
{
    for (size_t i = 0; i < N(head_keys); i++) {
        const struct tsr_config_node *own = tsr_config_node_get(x->file, head_keys[i]);
        const struct tsr_config_node *from =
            own || !x->base ? own : tsr_config_node_get(x->base, head_keys[i]);
        if (from)
            put(x, root, head_keys[i], copy(x, from));
        if (from && !own && !x->nomem && (i == 1 || i == 4)) /* model, plugins */
            move_key(x, root, head_keys[i]);
    }
}

static void put_step(struct expansion *x, struct tsr_config_node *list, const char *name,
                     struct tsr_config_node *options)
{
    struct tsr_config_node *step = make(x, TSR_CONFIG_NODE_MAP, "");
    put(x, step, name, options);
    put(x, list, NULL, step);
}

static struct tsr_config_node *compare_step(struct expansion *x)
{
    struct tsr_config_node *map = make(x, TSR_CONFIG_NODE_MAP, "");
    for (size_t i = 0; i < N(step_keys); i++) {
        const struct tsr_config_node *own = tsr_config_node_get(x->file, step_keys[i]);
        struct tsr_config_node       *value = own      ? copy(x, own)
                                              : i == 0 ? take_step(x, "quantize", "plan")
                                                       : NULL;
        if (value)
            put(x, map, step_keys[i], value);
    }
    return map;
}

static void check_keys(struct expansion *x)
{
    const char *names[N(head_keys) + N(step_keys) + N(own_keys)];
    uint64_t    n = 0;
    for (size_t i = 0; i < N(head_keys); i++)
        names[n++] = head_keys[i];
    for (size_t i = 0; i < N(step_keys); i++)
        names[n++] = step_keys[i];
    for (size_t i = 0; i < N(own_keys); i++)
        names[n++] = own_keys[i];
    for (uint64_t i = 0; i < x->file->n; i++) {
        const char *key = x->file->keys[i]->text, *near = tsr_config_nearest(key, names, n);
        char        hint[80];
        bool        known = false;
        for (uint64_t k = 0; k < n; k++)
            known = known || strcmp(key, names[k]) == 0;
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
        if (!known)
            tsr_config_diag_error(x->d, &x->file->keys[i]->mark, near ? hint : HOW,
                                  "unknown key '%.60s' in a comparison", key);
    }
}

static struct tsr_config_node *expand(struct expansion *x)
{
    struct tsr_config_node *root = make(x, TSR_CONFIG_NODE_MAP, ""),
                           *list = make(x, TSR_CONFIG_NODE_LIST, "");
    struct tsr_config_node       *report = make(x, TSR_CONFIG_NODE_MAP, "");
    const struct tsr_config_node *own = tsr_config_node_get(x->file, "calibrate");
    const struct tsr_config_node *claims = tsr_config_node_get(x->file, "claims");
    struct tsr_config_node *calibrate = own ? copy(x, own) : take_step(x, "calibrate", "text");
    check_keys(x);
    put_head(x, root);
    if (calibrate)
        put_step(x, list, "calibrate", calibrate);
    put_step(x, list, "compare", compare_step(x));
    if (claims)
        put_step(x, list, "claims", copy(x, claims));
    put(x, report, "html", make(x, TSR_CONFIG_NODE_SCALAR, "report.html"));
    put_step(x, list, "report", report);
    put(x, root, "pipeline", list);
    return root;
}

/* ---- the file of the base ----------------------------------------------------------------- */

static tsr_status load_base(struct expansion *x, const char *path,
                            const struct tsr_config_node *name, char **dir, struct tsr_err *err)
{
    char             *here = tsr_path_dir(path), *full = NULL;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *dir = tsr_path_dir(name->text);
    if (here && *dir)
        full = tsr_path_join(strcmp(here, ".") == 0 ? "" : here, name->text);
    tsr_status st = full ? tsr_config_doc_load(&x->doc->also, full, x->d, &e.err)
                         : tsr_fail_nomem(&e.err, strlen(path), path);
    free(here);
    free(full);
    if (st == TSR_E_INPUT) { /* its own errors are in d already */
        if (!tsr_config_diag_errors(x->d))
            tsr_config_diag_error(x->d, &name->mark, "paths are relative to the file", "%s",
                                  e.text);
        return TSR_OK;
    }
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    x->base = tsr_config_doc_root(x->doc->also);
    if (tsr_pipeline_compare_file_is(x->base) || !tsr_config_node_get(x->base, "pipeline")) {
        tsr_config_diag_error(x->d, &name->mark, "name a file with a 'pipeline'",
                              "'base' must be a job, and '%.200s' is none", name->text);
        x->base = NULL;
    }
    x->base_dir = strcmp(*dir, ".") == 0 ? NULL : *dir;
    return TSR_OK;
}

tsr_status tsr_pipeline_compare_file_expand(struct tsr_config_doc *doc, const char *path,
                                            struct tsr_diag *d, struct tsr_err *err)
{
    struct expansion              x = { .doc = doc, .file = tsr_config_doc_root(doc), .d = d };
    const struct tsr_config_node *base = tsr_config_node_get(x.file, "base");
    char                         *dir = NULL;
    tsr_status                    st = TSR_OK;
    if (base && (base->kind != TSR_CONFIG_NODE_SCALAR || !*base->text))
        tsr_config_diag_error(d, &base->mark, NULL, "'base' must be the path of a job file");
    else if (base)
        st = load_base(&x, path, base, &dir, err);
    struct tsr_config_node *root = st == TSR_OK ? expand(&x) : NULL;
    free(dir);
    if (st == TSR_OK && (x.nomem || !root))
        return tsr_fail_nomem(err, 256, path);
    if (st == TSR_OK)
        doc->root = root;
    return st;
}
