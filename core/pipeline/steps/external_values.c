/* What a plugin's step reads: its options, results of earlier steps, the model's configuration, files. */
#include "pipeline/steps/external_step.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define TREE_JSON   1u
#define TREE_CONFIG 2u
#define DEPTH       64u
#define MOST_BYTES  (UINT64_C(1) << 30) /* of a file that is read */

/* ---- trees ------------------------------------------------------------------------------------ */

static void clear(struct tsr_step_value *v)
{
    uint32_t size = v->struct_size;
    memset(v, 0, size < sizeof *v ? size : sizeof *v);
    v->struct_size = size;
}

static void show_json(const json_t *j, const char *key, struct tsr_step_value *v)
{
    clear(v);
    if (!j)
        return;
    v->node = j;
    v->tree = TREE_JSON;
    v->key = key;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        v->type = TSR_STEP_MAP;
        v->n = json_object_size(j);
        break;
    case JSON_ARRAY:
        v->type = TSR_STEP_LIST;
        v->n = json_array_size(j);
        break;
    case JSON_STRING:
        v->type = TSR_STEP_TEXT;
        v->text = json_string_value(j);
        v->n = json_string_length(j);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        v->type = TSR_STEP_NUMBER;
        v->number = json_number_value(j);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v->type = TSR_STEP_BOOL;
        v->number = json_is_true(j);
        break;
    default:
        v->type = TSR_STEP_NULL;
    }
}

/* A scalar of the options is what JSON of it would be, and keeps what the user wrote. */
static void show_scalar(const struct tsr_config_node *node, struct tsr_step_value *v)
{
    json_t *j = tsr_config_node_json(node);
    show_json(j, NULL, v);
    json_decref(j);
    if (v->type != TSR_STEP_NULL && v->type != TSR_STEP_ABSENT) {
        v->text = node->text;
        v->n = strlen(node->text);
    }
}

static void show_config(const struct tsr_config_node *node, const char *key,
                        struct tsr_step_value *v)
{
    clear(v);
    if (!node)
        return;
    if (node->kind == TSR_CONFIG_NODE_SCALAR) {
        show_scalar(node, v);
    } else {
        v->type = node->kind == TSR_CONFIG_NODE_LIST  ? TSR_STEP_LIST
                  : node->kind == TSR_CONFIG_NODE_MAP ? TSR_STEP_MAP
                                                      : TSR_STEP_NULL;
        v->n = node->n;
    }
    v->node = node;
    v->tree = TREE_CONFIG;
    v->key = key;
}

static void member(void *ctx, const struct tsr_step_value *of, const char *key,
                   struct tsr_step_value *v)
{
    const void *node = of->node;
    uint64_t    tree = of->tree;
    (void)ctx;
    if (of->type != TSR_STEP_MAP || !key) {
        clear(v);
    } else if (tree == TREE_JSON) {
        show_json(json_object_get(node, key), NULL, v);
    } else {
        show_config(tsr_config_node_get(node, key), NULL, v);
    }
}

static void item_json(const json_t *j, uint64_t i, struct tsr_step_value *v)
{
    const char *key;
    json_t     *one;
    if (json_is_array(j)) {
        show_json(json_array_get(j, i), NULL, v);
        return;
    }
    clear(v);
    json_object_foreach ((json_t *)(uintptr_t)j, key, one)
        if (i-- == 0) {
            show_json(one, key, v);
            return;
        }
}

static void item(void *ctx, const struct tsr_step_value *of, uint64_t i, struct tsr_step_value *v)
{
    const void                   *node = of->node;
    const struct tsr_config_node *n = node;
    (void)ctx;
    if ((of->type != TSR_STEP_MAP && of->type != TSR_STEP_LIST) || i >= of->n)
        clear(v);
    else if (of->tree == TREE_JSON)
        item_json(node, i, v);
    else
        show_config(n->items[i], n->keys ? n->keys[i]->text : NULL, v);
}

static void problem(void *ctx, const struct tsr_step_value *at, const char *sentence)
{
    struct external_call         *c = ctx;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    const struct tsr_config_mark *mark = &c->node->mark;
    struct tsr_plugin_guard      *guard = tsr_guard_pause();
    if (c->d && external_enter(c, "problem()", false, &e.err) == TSR_OK) {
        if (at && at->node && at->tree == TREE_CONFIG)
            mark = &((const struct tsr_config_node *)at->node)->mark;
        tsr_config_diag_error(c->d, mark, NULL, "%s", sentence ? sentence : "");
    }
    (void)tsr_guard_resume(guard, TSR_OK);
}

/* ---- their roots ------------------------------------------------------------------------------ */

/* The table declares this input. */
static bool declares(const struct external_call *c, const char *input)
{
    for (uint64_t i = 0; i < c->table->n_inputs; i++)
        if (strcmp(c->table->inputs[i], input) == 0)
            return true;
    return false;
}

/* The newest result of a step; NULL: there is none. */
static const json_t *newest(const struct tsr_pipeline_job *job, const char *step, size_t n)
{
    const json_t *found = NULL, *v;
    char          key[100];
    (void)snprintf(key, sizeof key, "%.*s", (int)n, step);
    for (unsigned i = 2; (v = json_object_get(job->results, key)); i++) {
        found = v;
        (void)snprintf(key, sizeof key, "%.*s[%u]", (int)n, step, i);
    }
    return found;
}

static tsr_status open_config(struct external_call *c, struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t len = 0;
    if (c->config)
        return TSR_OK;
    if (!(c->table->needs & TSR_STEP_MODEL))
        return tsr_fail(err, TSR_E_INVAL,
                        "input() of step '%s': 'config' is the model's; the table does not need "
                        "TSR_STEP_MODEL",
                        c->name);
    TSR_TRY(tsr_model_text(c->job->model, "config.json", &text, &len, err));
    if (!text)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "model '%s' has no config.json",
                        c->job->model_path);
    tsr_status st = tsr_json_parse(&c->config, "config.json", text, len, DEPTH, err);
    free(text);
    return st;
}

static tsr_status open_result(struct external_call *c, const char *name, struct tsr_step_value *v,
                              struct tsr_err *err)
{
    size_t        n = strcspn(name, "/");
    const json_t *j;
    if (!declares(c, name))
        return tsr_fail(err, TSR_E_INVAL,
                        "input() of step '%s': its table does not declare the input '%.80s'",
                        c->name, name);
    j = newest(c->job, name, n);
    if (j && name[n])
        j = json_object_get(j, name + n + 1);
    if (!j)
        return tsr_fail(err, TSR_E_INPUT, "'%s', which step '%s' needs, is not among the results",
                        name, c->name);
    show_json(j, NULL, v);
    return TSR_OK;
}

static tsr_status open_input(struct external_call *c, const char *name, struct tsr_step_value *v,
                             struct tsr_err *err)
{
    clear(v);
    if (!name || (c->d && strcmp(name, "options") != 0))
        return tsr_fail(err, TSR_E_INVAL, "input() of step '%s': check() has no input '%.80s'",
                        c->name, name ? name : "");
    if (strcmp(name, "options") == 0) {
        show_config(c->node, NULL, v);
        return TSR_OK;
    }
    if (strcmp(name, "config") != 0)
        return open_result(c, name, v, err);
    TSR_TRY(open_config(c, err));
    show_json(c->config, NULL, v);
    return TSR_OK;
}

static tsr_status input(void *ctx, const char *name, struct tsr_step_value *v, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "input()", false, open_input(c, name, v, err));
}

/* ---- files ------------------------------------------------------------------------------------ */

static tsr_status slurp(struct external_call *c, const char *path, const void **data,
                        uint64_t *bytes, struct tsr_err *err)
{
    char *p = NULL;
    TSR_TRY(tsr_file_slurp(path, MOST_BYTES, &p, bytes, err));
    *data = p;
    return external_keep(c, p, err);
}

static tsr_status read_input(struct external_call *c, const char *path, const void **data,
                             uint64_t *bytes, struct tsr_err *err)
{
    char *full = path && *path ? tsr_pipeline_job_input(c->job, path) : NULL;
    if (!path || !*path)
        return tsr_fail(err, TSR_E_CONFIG, "read() of step '%s': the name of a file is empty",
                        c->name);
    tsr_status st =
        full ? slurp(c, full, data, bytes, err) : tsr_fail_nomem(err, strlen(path), path);
    free(full);
    return st;
}

static tsr_status read_path(void *ctx, const char *path, const void **data, uint64_t *bytes,
                            struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "read()", true, read_input(c, path, data, bytes, err));
}

static tsr_status read_product(struct external_call *c, const char *name, const void **data,
                               uint64_t *bytes, struct tsr_err *err)
{
    size_t n = name ? strcspn(name, "/") : 0;
    if (!name || !declares(c, name) || !name[n])
        return tsr_fail(err, TSR_E_INVAL,
                        "file() of step '%s': its table does not declare the input '%.80s', "
                        "STEP/PRODUCT",
                        c->name, name ? name : "");
    const json_t *files = json_object_get(newest(c->job, name, n), "files");
    const char   *path = json_string_value(json_object_get(files, name + n + 1));
    char         *full = NULL;
    if (!path)
        return tsr_fail(err, TSR_E_INPUT, "'%s', which step '%s' needs, is not a file of the job",
                        name, c->name);
    tsr_status st = tsr_pipeline_job_output(c->job, path, &full, err);
    if (st == TSR_OK)
        st = slurp(c, full, data, bytes, err);
    free(full);
    return st;
}

static tsr_status file_product(void *ctx, const char *name, const void **data, uint64_t *bytes,
                               struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "file()", true, read_product(c, name, data, bytes, err));
}

void external_values_functions(struct tsr_step_job *j)
{
    j->input = input;
    j->member = member;
    j->item = item;
    j->problem = problem;
    j->read = read_path;
    j->file = file_product;
}
