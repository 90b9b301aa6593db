#include "pipeline/job.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct tsr_option head_options[] = {
    { .name = "version",
      .help = "Version of the job format: 1.",
      .type = TSR_OPT_INT,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct tsr_job_head, version, int64_t) },
    { .name = "model",
      .help = "A Hugging Face folder, a GGUF file, or @demo.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct tsr_job_head, model, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(struct tsr_job_head, seed, 0, 0, INT64_MAX, NULL,
                   "Seed of everything that is drawn."),
    TSR_OPTION_ENUM(struct tsr_job_head, numerics, TSR_NUMERICS_EXACT, tsr_numerics_choices,
                    "Whether instructions that only some machines have may run."),
    TSR_OPTION_NODE(struct tsr_job_head, plugins, "Plugins or folders of plugins, searched first."),
    { .name = "pipeline",
      .help = "The steps, run in order.",
      .type = TSR_OPT_NODE,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct tsr_job_head, pipeline, const struct tsr_node *) },
};

const struct tsr_option *tsr_job_head(uint64_t *n)
{
    *n = sizeof head_options / sizeof *head_options;
    return head_options;
}

/* ---- loading --------------------------------------------------------------- */

/* "configs/a.yaml" -> "out/a" */
static char *default_out(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t n = strlen(base);
    if (n > 5 && strcmp(base + n - 5, ".yaml") == 0)
        n -= 5;
    else if (n > 4 && strcmp(base + n - 4, ".yml") == 0)
        n -= 4;
    char *stem = tsr_strndup(base, n), *out = stem ? tsr_path_join("out", stem) : NULL;
    free(stem);
    return out;
}

static void check_head(struct tsr_job *job, struct tsr_diag *d)
{
    struct tsr_job_state  *s = job->state;
    const struct tsr_node *root = tsr_doc_root(job->doc), *node;
    struct tsr_optset      set = { head_options, sizeof head_options / sizeof *head_options,
                                   sizeof *head_options, &s->head };
    uint64_t               before = tsr_diag_errors(d);
    tsr_options_fill(&set, 1, NULL, root, "the job", d);
    if ((node = tsr_node_get(root, "version")) && node->kind == TSR_NODE_SCALAR &&
        tsr_diag_errors(d) == before && s->head.version != 1)
        tsr_diag_error(d, &node->mark, NULL,
                       "version %lld of the job format is not known; this "
                       "Tessera reads version 1",
                       (long long)s->head.version);
    job->seed = (uint64_t)s->head.seed;
}

/* Paths in a job are relative to its file; @demo is found by the model loader. */
static tsr_status place_model(struct tsr_job *job, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_job_state  *s = job->state;
    const struct tsr_node *node = tsr_node_get(tsr_doc_root(job->doc), "model");
    const char            *name = s->head.model ? s->head.model : "";
    s->model = *name == '@' ? tsr_strdup(name) : tsr_path_join(s->dir, name);
    if (!s->model)
        return tsr_fail_nomem(err, strlen(name), "the model's path");
    job->model_path = s->model;
    if (node && *name && *name != '@' && !tsr_path_exists(s->model))
        tsr_diag_error(d, &node->mark, "paths are relative to the job file",
                       "there is no model at "
                       "'%s'",
                       s->model);
    return TSR_OK;
}

static tsr_status set_up(struct tsr_job *job, const char *path, const struct tsr_job_options *o,
                         struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_job_state *s = job->state;
    for (uint64_t i = 0; i < o->n_sets; i++) {
        tsr_status st = tsr_doc_set(job->doc, o->sets[i], d, err);
        if (st != TSR_OK && st != TSR_E_INPUT)
            return st;
    }
    s->options = *o;
    s->lock = -1;
    job->json = o->json;
    job->quiet = o->quiet;
    if (!s->dir) /* a bare name needs no "./" in front of what stands beside it */
        s->dir = strchr(path, '/') ? tsr_path_dir(path) : tsr_strdup("");
    job->out = o->out ? tsr_strdup(o->out) : default_out(path);
    job->results = json_object();
    job->manifest = json_object();
    if (!s->dir || !job->out || !job->results || !job->manifest)
        return tsr_fail_nomem(err, 64, path);
    check_head(job, d);
    return place_model(job, d, err);
}

static tsr_status create(struct tsr_job **job, struct tsr_err *err)
{
    *job = tsr_new(1, sizeof **job);
    if (*job)
        (*job)->state = tsr_new(1, sizeof *(*job)->state);
    if (*job && (*job)->state) {
        (*job)->state->lock = -1;
        return TSR_OK;
    }
    free(*job);
    *job = NULL;
    return tsr_fail_nomem(err, sizeof **job, "a job");
}

tsr_status tsr_job_load(struct tsr_job **out, const char *path, const struct tsr_job_options *o,
                        struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_job *job;
    *out = NULL;
    TSR_TRY(create(&job, err));
    tsr_status st = tsr_doc_load(&job->doc, path, d, err);
    if (st == TSR_OK && tsr_compare_file_is(tsr_doc_root(job->doc)))
        st = tsr_compare_file_expand(job->doc, path, d, err);
    if (st == TSR_OK)
        st = set_up(job, path, o, d, err);
    if (st == TSR_OK) {
        *out = job;
        return TSR_OK;
    }
    tsr_job_destroy(job);
    return st;
}

/* "use=rtn" -> `quantize.use=rtn` with the origin "--use rtn" */
static tsr_status set_pair(struct tsr_job *job, const struct tsr_step *step, const char *pair,
                           struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t bytes = strlen(step->name) + strlen(pair) + 4;
    char    *assignment = tsr_new(bytes, 1), *origin = tsr_new(bytes, 1);
    if (!assignment || !origin) {
        free(assignment);
        free(origin);
        return tsr_fail_nomem(err, bytes, "an option");
    }
    (void)snprintf(assignment, bytes, "%s.%s", step->name, pair);
    (void)snprintf(origin, bytes, "--%s", pair);
    for (char *c = origin; *c && *c != '='; c++)
        if (*c == '_')
            *c = '-';
    char *eq = strchr(origin, '=');
    if (eq)
        *eq = ' ';
    tsr_status st = tsr_doc_set_as(job->doc, origin, assignment, d, err);
    free(assignment);
    free(origin);
    return st == TSR_E_INPUT ? TSR_OK : st;
}

tsr_status tsr_job_make_steps(struct tsr_job **out, const char *model,
                              const struct tsr_step *const *steps, uint64_t n_steps,
                              const struct tsr_step_pair *pairs, uint64_t n_pairs,
                              const struct tsr_job_options *o, struct tsr_diag *d,
                              struct tsr_err *err)
{
    struct tsr_job        *job;
    const struct tsr_step *step = steps[n_steps - 1]; /* whose name the job goes by */
    char                   text[512];
    int                    n = 0;
    *out = NULL;
    TSR_TRY(create(&job, err));
    n = snprintf(text, sizeof text, "version: 1\nmodel: \"\"\npipeline:\n");
    for (uint64_t i = 0; i < n_steps && n < 400; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "  - %.60s: {}\n", steps[i]->name);
    tsr_status st = tsr_doc_parse(&job->doc, step->name, text, (uint64_t)n, d, err);
    for (uint64_t i = 0; i < n_pairs && st == TSR_OK; i++)
        st = set_pair(job, pairs[i].step, pairs[i].text, d, err);
    if (st == TSR_OK) {
        /* the model is text, not YAML: put in as it is */
        struct tsr_node *node =
            (struct tsr_node *)(uintptr_t)tsr_node_get(tsr_doc_root(job->doc), "model");
        node->text = model;
        node->quoted = true;
        job->state->dir = tsr_strdup("");
        st = job->state->dir ? set_up(job, step->name, o, d, err) : tsr_fail_nomem(err, 1, "a job");
    }
    if (st == TSR_OK) {
        *out = job;
        return TSR_OK;
    }
    tsr_job_destroy(job);
    return st;
}

tsr_status tsr_job_make(struct tsr_job **out, const char *model, const struct tsr_step *step,
                        const char *const *pairs, uint64_t n_pairs, const struct tsr_job_options *o,
                        struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_step_pair *p = tsr_new(n_pairs, sizeof *p);
    *out = NULL;
    if (!p)
        return tsr_fail_nomem(err, n_pairs * sizeof *p, "options");
    for (uint64_t i = 0; i < n_pairs; i++)
        p[i] = (struct tsr_step_pair){ step, pairs[i] };
    tsr_status st = tsr_job_make_steps(out, model, &step, 1, p, n_pairs, o, d, err);
    free(p);
    return st;
}

void tsr_job_destroy(struct tsr_job *job)
{
    if (!job)
        return;
    struct tsr_job_state *s = job->state;
    tsr_job_folder_close(job);
    tsr_overlay_destroy(job->overlay);
    free(job->packed);
    tsr_calibration_destroy(job->calibration);
    tsr_tokenizer_destroy(job->tokenizer);
    tsr_model_destroy(job->model);
    json_decref(job->results);
    json_decref(job->manifest);
    tsr_doc_destroy(job->doc);
    for (uint64_t i = 0; i < s->n; i++)
        free(s->steps[i].opts);
    for (uint64_t i = 0; i < s->n_inputs; i++)
        free(s->inputs[i]);
    free(s->inputs);
    free(s->steps);
    free(s->dir);
    free(s->model);
    free(s);
    free(job->out);
    free(job);
}

/* ---- checking ---------------------------------------------------------------- */

static tsr_status add_plugin(struct tsr_job *job, struct tsr_registry *r, const struct tsr_node *n,
                             struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (n->kind != TSR_NODE_SCALAR) {
        tsr_diag_error(d, &n->mark, NULL, "'plugins' must be a list of files and folders");
        return TSR_OK;
    }
    char *path = tsr_path_join(job->state->dir, n->text);
    if (!path)
        return tsr_fail_nomem(err, strlen(n->text), "a plugin's path");
    tsr_status st = tsr_registry_add_path(r, path, &e.err);
    if (st == TSR_OK) /* also read here, so that what is wrong with it is said at its place */
        st = tsr_registry_scan_path(r, path, &e.err);
    free(path);
    if (st == TSR_E_INPUT) {
        tsr_diag_error(d, &n->mark, NULL, "%s", e.text);
        return TSR_OK;
    }
    return st == TSR_OK ? st : tsr_fail(err, st, "%s", e.text);
}

tsr_status tsr_job_plugins(struct tsr_job *job, struct tsr_registry *r, struct tsr_diag *d,
                           struct tsr_err *err)
{
    const struct tsr_node *n = job->state->head.plugins;
    if (!n || n->kind == TSR_NODE_NULL)
        return TSR_OK;
    if (n->kind != TSR_NODE_LIST)
        return add_plugin(job, r, n, d, err);
    for (uint64_t i = 0; i < n->n; i++)
        TSR_TRY(add_plugin(job, r, n->items[i], d, err));
    return TSR_OK;
}

static void unknown_step(const struct tsr_node *key, struct tsr_diag *d)
{
    const char *names[64];
    char        hint[400] = "";
    uint64_t    n = tsr_n_steps < 64 ? tsr_n_steps : 64;
    size_t      at = (size_t)snprintf(hint, sizeof hint, "steps are");
    for (uint64_t i = 0; i < n; i++) {
        names[i] = tsr_steps[i]->name;
        if (at < sizeof hint)
            at += (size_t)snprintf(hint + at, sizeof hint - at, "%s %s", i ? "," : "", names[i]);
    }
    const char *near = tsr_nearest(key->text, names, n);
    if (near)
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    tsr_diag_error(d, &key->mark, hint, "unknown step '%.60s'", key->text);
}

/* `- name` or `- name: {...}`: the name and the map, which is made where there is none. */
static bool step_parts(const struct tsr_node *item, struct tsr_job_step *s, struct tsr_diag *d)
{
    if (item->kind == TSR_NODE_MAP && item->n == 1) {
        s->key = item->keys[0];
        s->node = item->items[0];
        if (s->node->kind == TSR_NODE_NULL) {
            ((struct tsr_node *)(uintptr_t)s->node)->kind = TSR_NODE_MAP;
            ((struct tsr_node *)(uintptr_t)s->node)->mark = s->key->mark;
        }
        return true;
    }
    if (item->kind == TSR_NODE_MAP && item->n > 1)
        tsr_diag_error(d, &item->keys[1]->mark, "indent options further than the name of the step",
                       "'%.60s' stands beside the step '%.60s'", item->keys[1]->text,
                       item->keys[0]->text);
    else
        tsr_diag_error(d, &item->mark, "write '- name' or '- name: {key: value}'",
                       "a step must be a name, or a name with options");
    return false;
}

/* A bare name becomes a map in the doc, so that defaults can be put into it and be shown. */
static tsr_status spell_out(struct tsr_job *job, const struct tsr_node *list, uint64_t i,
                            struct tsr_err *err)
{
    struct tsr_node *name = list->items[i];
    if (name->kind != TSR_NODE_SCALAR)
        return TSR_OK;
    struct tsr_node pair = { .kind = TSR_NODE_MAP, .mark = name->mark, .text = "" }, *map = NULL;
    struct tsr_node empty = pair, *items[1] = { &empty }, *keys[1] = { name };
    pair.n = 1;
    pair.items = items;
    pair.keys = keys;
    map = tsr_doc_copy(job->doc, &pair);
    if (!map)
        return tsr_fail_nomem(err, sizeof *map, "a step");
    list->items[i] = map;
    return TSR_OK;
}

/* The keys that are not the step's own: its plugin's, which check() looks at. */
static const char **others(const struct tsr_step *step, const struct tsr_node *node)
{
    const char **names = tsr_new(node->n + 1, sizeof *names);
    uint64_t     n = 0;
    for (uint64_t i = 0; names && node->kind == TSR_NODE_MAP && i < node->n; i++) {
        bool own = false;
        for (uint64_t k = 0; k < step->n_options; k++)
            own = own || strcmp(step->options[k].name, node->keys[i]->text) == 0;
        if (!own)
            names[n++] = node->keys[i]->text;
    }
    return names;
}

static tsr_status check_step(struct tsr_job *job, struct tsr_job_step *s, struct tsr_diag *d,
                             struct tsr_err *err)
{
    const struct tsr_step *step = s->step;
    char                   what[100];
    const char           **also = NULL;
    (void)snprintf(what, sizeof what, "step '%s'", step->name);
    s->opts = tsr_new(step->options_size ? step->options_size : 1, 1);
    if (step->open)
        also = others(step, s->node);
    if (!s->opts || (step->open && !also)) {
        free(also);
        return tsr_fail_nomem(err, step->options_size, what);
    }
    struct tsr_optset set = { step->options, step->n_options, sizeof *step->options, s->opts };
    uint64_t          before = tsr_diag_errors(d);
    tsr_options_fill(&set, 1, also, s->node, what, d);
    free(also);
    if (step->check && (tsr_diag_errors(d) == before || s->node->kind == TSR_NODE_MAP)) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status        st = step->check(job, s->opts, s->node, d, &e.err);
        if (st == TSR_E_INPUT || st == TSR_E_CONFIG || st == TSR_E_UNSUPPORTED)
            tsr_diag_error(d, &s->key->mark, NULL, "%s", e.text);
        else if (st != TSR_OK)
            return tsr_fail(err, st, "%s: %s", what, e.text);
    }
    return tsr_diag_errors(d) == before ? tsr_doc_complete(job->doc, s->node, &set, 1, err)
                                        : TSR_OK;
}

tsr_status tsr_job_check(struct tsr_job *job, struct tsr_registry *r, struct tsr_diag *d,
                         struct tsr_err *err)
{
    struct tsr_job_state  *s = job->state;
    const struct tsr_node *list = s->head.pipeline;
    struct tsr_optset      head = { head_options, sizeof head_options / sizeof *head_options,
                                    sizeof *head_options, &s->head };
    job->registry = r;
    if (!list)
        return TSR_OK;
    if (list->kind != TSR_NODE_LIST || list->n == 0) {
        tsr_diag_error(d, &list->mark,
                       "write '- calibrate: {text: FILE}' and so on, one below the "
                       "other",
                       "'pipeline' must be a list of steps");
        return TSR_OK;
    }
    s->steps = tsr_new(list->n, sizeof *s->steps);
    if (!s->steps)
        return tsr_fail_nomem(err, list->n * sizeof *s->steps, "steps");
    for (uint64_t i = 0; i < list->n; i++) {
        struct tsr_job_step step = { 0 };
        TSR_TRY(spell_out(job, list, i, err));
        if (!step_parts(list->items[i], &step, d))
            continue;
        step.step = tsr_step_find(step.key->text);
        if (!step.step) {
            unknown_step(step.key, d);
            continue;
        }
        s->steps[s->n++] = step;
        TSR_TRY(check_step(job, &s->steps[s->n - 1], d, err));
    }
    return tsr_diag_errors(d) ? TSR_OK
                              : tsr_doc_complete(job->doc, tsr_doc_root(job->doc), &head, 1, err);
}
