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
      .offset = TSR_FIELD(struct tsr_pipeline_job_head, version, int64_t) },
    { .name = "model",
      .help = "A Hugging Face folder, a GGUF file, or @demo.",
      .type = TSR_OPT_STRING,
      .unit = "MODEL",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct tsr_pipeline_job_head, model, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(struct tsr_pipeline_job_head, seed, 0, 0, INT64_MAX, NULL,
                   "Seed of everything that is drawn."),
    TSR_PIPELINE_RUN_ON_OPTIONS(struct tsr_pipeline_job_head, on, 0),
    TSR_OPTION_PATH(struct tsr_pipeline_job_head, cluster, "", "FILE",
                    "The machines that `plan` is for: a file, or a name of one that comes along."),
    TSR_OPTION_NODE(struct tsr_pipeline_job_head, workload,
                    "What `plan` is for: {prompt: 512, generate: 100, batch: 32}."),
    TSR_OPTION_NODE(
        struct tsr_pipeline_job_head, plugins,
        "Plugins or folders of plugins, searched first; or {paths, isolate, time_limit, "
        "memory_limit}."),
    TSR_OPTION_NODE(struct tsr_pipeline_job_head, families,
                    "Files of model families, which are searched before the built-in ones."),
    { .name = "pipeline",
      .help = "The steps, run in order.",
      .type = TSR_OPT_NODE,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct tsr_pipeline_job_head, pipeline, const struct tsr_config_node *) },
};

const struct tsr_option *tsr_pipeline_job_head(uint64_t *n)
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

static void check_head(struct tsr_pipeline_job *job, struct tsr_diag *d)
{
    struct tsr_pipeline_job_state *s = job->state;
    const struct tsr_config_node  *root = tsr_config_doc_root(job->doc), *node;
    struct tsr_config_optset       set = { head_options, sizeof head_options / sizeof *head_options,
                                           sizeof *head_options, &s->head };
    uint64_t                       before = tsr_config_diag_errors(d);
    tsr_config_options_fill(&set, 1, NULL, root, "the job", d);
    if ((node = tsr_config_node_get(root, "version")) && node->kind == TSR_CONFIG_NODE_SCALAR &&
        tsr_config_diag_errors(d) == before && s->head.version != 1)
        tsr_config_diag_error(d, &node->mark, NULL,
                              "version %lld of the job format is not known; this "
                              "Tessera reads version 1",
                              (long long)s->head.version);
    job->seed = (uint64_t)s->head.seed;
    if (s->options.threads)
        s->head.on.threads = s->options.threads;
    job->on = tsr_pipeline_run_on_of(&s->head.on);
    job->threads = (uint32_t)s->head.on.threads;
}

/* Paths in a job are relative to its file; @demo is found by the model loader. */
static tsr_status place_model(struct tsr_pipeline_job *job, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    const struct tsr_config_node  *node =
        tsr_config_node_get(tsr_config_doc_root(job->doc), "model");
    const char *name = s->head.model ? s->head.model : "";
    s->model = tsr_model_is_name(name) ? tsr_strdup(name) : tsr_path_join(s->dir, name);
    if (!s->model)
        return tsr_fail_nomem(err, strlen(name), "the model's path");
    job->model_path = s->model;
    if (node && *name && !tsr_model_is_name(name) && !s->options.launched &&
        !tsr_path_exists(s->model))
        tsr_config_diag_error(d, &node->mark,
                              job->verb ? NULL : "paths are relative to the job file",
                              "there is no model at "
                              "'%s'",
                              s->model);
    return TSR_OK;
}

static tsr_status set_up(struct tsr_pipeline_job *job, const char *path,
                         const struct tsr_pipeline_job_options *o, struct tsr_diag *d,
                         struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < o->n_sets; i++) {
        tsr_status st = tsr_config_doc_set(job->doc, o->sets[i], d, err);
        if (st != TSR_OK && st != TSR_E_INPUT)
            return st;
    }
    s->options = *o;
    s->lock = -1;
    job->json = o->json;
    job->quiet = o->quiet;
    job->loose = o->loose;
    if (!s->dir) /* with a bare name, files next to it need no "./" prefix */
        s->dir = strchr(path, '/') ? tsr_path_dir(path) : tsr_strdup("");
    job->out = o->out ? tsr_strdup(o->out) : default_out(path);
    job->results = json_object();
    job->manifest = json_object();
    if (!s->dir || !job->out || !job->results || !job->manifest)
        return tsr_fail_nomem(err, 64, path);
    check_head(job, d);
    return place_model(job, d, err);
}

static tsr_status create(struct tsr_pipeline_job **job, struct tsr_err *err)
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

/* A list of `list`'s items (NULL: none), then a name. */
static struct tsr_config_node *longer_list(struct tsr_pipeline_job      *job,
                                           const struct tsr_config_node *list, const char *name,
                                           const struct tsr_config_mark *mark)
{
    uint64_t                 n = list ? list->n : 0;
    struct tsr_config_node   last = { .kind = TSR_CONFIG_NODE_SCALAR, .mark = *mark, .text = name };
    struct tsr_config_node **items = tsr_new(n + 1, sizeof *items), *copy = NULL;
    if (items) {
        for (uint64_t i = 0; i < n; i++)
            items[i] = list->items[i];
        items[n] = &last;
        struct tsr_config_node all = {
            .kind = TSR_CONFIG_NODE_LIST, .mark = *mark, .text = "", .n = n + 1, .items = items
        };
        copy = tsr_config_doc_copy(job->doc, &all);
    }
    free(items);
    return copy;
}

static bool has_step(const struct tsr_config_node *list, const char *name)
{
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        if (item->kind == TSR_CONFIG_NODE_SCALAR && strcmp(item->text, name) == 0)
            return true;
        if (item->kind == TSR_CONFIG_NODE_MAP && item->n > 0 &&
            strcmp(item->keys[0]->text, name) == 0)
            return true;
    }
    return false;
}

bool tsr_pipeline_job_has_step(const struct tsr_pipeline_job *job, const char *name)
{
    const struct tsr_config_node *list =
        tsr_config_node_get(tsr_config_doc_root(job->doc), "pipeline");
    return list && list->kind == TSR_CONFIG_NODE_LIST && has_step(list, name);
}

/* A job may omit the step of the verb. */
static tsr_status append_step(struct tsr_pipeline_job *job, const char *name, struct tsr_err *err)
{
    struct tsr_config_node *root =
                               (struct tsr_config_node *)(uintptr_t)tsr_config_doc_root(job->doc),
                           *list;
    struct tsr_config_node *copy;
    for (uint64_t i = 0; i < root->n; i++) {
        if (strcmp(root->keys[i]->text, "pipeline") != 0)
            continue;
        list = root->items[i];
        if (list->kind == TSR_CONFIG_NODE_LIST && has_step(list, name))
            return TSR_OK;
        if (list->kind != TSR_CONFIG_NODE_LIST && list->kind != TSR_CONFIG_NODE_NULL)
            return TSR_OK; /* the check reports it */
        copy =
            longer_list(job, list->kind == TSR_CONFIG_NODE_LIST ? list : NULL, name, &list->mark);
        if (!copy)
            return tsr_fail_nomem(err, 64, "a step");
        root->items[i] = copy;
        return TSR_OK;
    }
    struct tsr_config_node   key = { .kind = TSR_CONFIG_NODE_SCALAR,
                                     .mark = root->mark,
                                     .text = "pipeline" };
    struct tsr_config_node **items = tsr_new(root->n + 1, sizeof *items);
    struct tsr_config_node **keys = tsr_new(root->n + 1, sizeof *keys);
    struct tsr_config_node   all = *root;
    copy = NULL;
    list = longer_list(job, NULL, name, &root->mark);
    if (items && keys && list) {
        for (uint64_t i = 0; i < root->n; i++) {
            items[i] = root->items[i];
            keys[i] = root->keys[i];
        }
        items[root->n] = list;
        keys[root->n] = &key;
        all.items = items;
        all.keys = keys;
        all.n++;
        copy = tsr_config_doc_copy(job->doc, &all);
    }
    free(items);
    free(keys);
    if (!copy)
        return tsr_fail_nomem(err, 64, "a step");
    *root = *copy;
    return TSR_OK;
}

/* A string of a table is not YAML: a prompt may contain anything. */
static bool is_text(const struct tsr_pipeline_step_pair *p)
{
    uint64_t                 n;
    const struct tsr_option *o = tsr_pipeline_job_head(&n);
    size_t                   len = strcspn(p->text, "=");
    if (p->step) {
        o = p->step->options;
        n = p->step->n_options;
    }
    for (uint64_t i = 0; i < n; i++)
        if (strncmp(o[i].name, p->text, len) == 0 && !o[i].name[len])
            return o[i].type == TSR_OPT_STRING;
    return false;
}

/* "use=rtn" -> `quantize.use=rtn` with the origin "--use rtn" */
static tsr_status set_pair(struct tsr_pipeline_job *job, const struct tsr_pipeline_step_pair *p,
                           struct tsr_diag *d, struct tsr_err *err)
{
    const char *value = strchr(p->text, '=') + 1, *flag = p->flag ? p->flag : p->text;
    size_t      len = strcspn(flag, "=");
    const char *name = p->step ? p->step->name : "", *dot = p->step ? "." : "";
    uint64_t    bytes = strlen(name) + strlen(p->text) + len + 4;
    char       *assignment = tsr_new(bytes, 1), *origin = tsr_new(bytes, 1);
    if (!assignment || !origin) {
        free(assignment);
        free(origin);
        return tsr_fail_nomem(err, bytes, "an option");
    }
    (void)snprintf(assignment, bytes, "%s%s%s", name, dot, p->text);
    (void)snprintf(origin, bytes, "--%.*s %s", (int)len, flag, value);
    for (char *c = origin; *c && *c != ' '; c++)
        if (*c == '_')
            *c = '-';
    tsr_status st = is_text(p) ? tsr_config_doc_set_text(job->doc, origin, assignment, d, err)
                               : tsr_config_doc_set_as(job->doc, origin, assignment, d, err);
    free(assignment);
    free(origin);
    return st == TSR_E_INPUT ? TSR_OK : st;
}

tsr_status tsr_pipeline_job_load(struct tsr_pipeline_job **out, const char *path,
                                 const struct tsr_pipeline_job_options *o, struct tsr_diag *d,
                                 struct tsr_err *err)
{
    struct tsr_pipeline_job *job;
    *out = NULL;
    TSR_TRY(create(&job, err));
    tsr_status st = tsr_config_doc_load(&job->doc, path, d, err);
    if (st == TSR_OK && tsr_pipeline_compare_file_is(tsr_config_doc_root(job->doc)))
        st = tsr_pipeline_compare_file_expand(job->doc, path, d, err);
    if (st == TSR_OK && o->append)
        st = append_step(job, o->append->name, err);
    for (uint64_t i = 0; i < o->n_pairs && st == TSR_OK; i++)
        st = set_pair(job, &o->pairs[i], d, err);
    if (st == TSR_OK)
        st = set_up(job, path, o, d, err);
    if (st == TSR_OK) {
        *out = job;
        return TSR_OK;
    }
    tsr_pipeline_job_destroy(job);
    return st;
}

/* The program generated these nodes: they have no place in a file to report. */
static void forget_places(struct tsr_config_node *n)
{
    n->mark.source = NULL;
    for (uint64_t i = 0; i < n->n; i++) {
        forget_places(n->items[i]);
        if (n->keys)
            forget_places(n->keys[i]);
    }
}

tsr_status tsr_pipeline_job_make_steps(struct tsr_pipeline_job **out, const char *model,
                                       const struct tsr_pipeline_step *const *steps,
                                       uint64_t n_steps, const struct tsr_pipeline_step_pair *pairs,
                                       uint64_t n_pairs, const struct tsr_pipeline_job_options *o,
                                       struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_pipeline_job        *job;
    const struct tsr_pipeline_step *step = steps[n_steps - 1]; /* whose name the job goes by */
    char                            text[512];
    int                             n = 0;
    *out = NULL;
    TSR_TRY(create(&job, err));
    n = snprintf(text, sizeof text, "version: 1\nmodel: \"\"\npipeline:\n");
    for (uint64_t i = 0; i < n_steps && n < 400; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "  - %.60s: {}\n", steps[i]->name);
    tsr_status st = tsr_config_doc_parse(&job->doc, step->name, text, (uint64_t)n, d, err);
    job->verb = true;
    if (st == TSR_OK)
        forget_places((struct tsr_config_node *)(uintptr_t)tsr_config_doc_root(job->doc));
    for (uint64_t i = 0; i < n_pairs && st == TSR_OK; i++)
        st = set_pair(job, &pairs[i], d, err);
    if (st == TSR_OK) {
        /* the model is text, not YAML: insert it unparsed */
        struct tsr_config_node *node =
            (struct tsr_config_node *)(uintptr_t)tsr_config_node_get(tsr_config_doc_root(job->doc),
                                                                     "model");
        node->text = model;
        node->quoted = true;
        job->state->dir = tsr_strdup("");
        st = job->state->dir ? set_up(job, step->name, o, d, err) : tsr_fail_nomem(err, 1, "a job");
    }
    if (st == TSR_OK) {
        *out = job;
        return TSR_OK;
    }
    tsr_pipeline_job_destroy(job);
    return st;
}

void tsr_pipeline_job_destroy(struct tsr_pipeline_job *job)
{
    if (!job)
        return;
    struct tsr_pipeline_job_state *s = job->state;
    tsr_pipeline_job_folder_close(job);
    tsr_model_overlay_destroy(job->overlay);
    free(job->packed);
    tsr_quant_calibration_destroy(job->calibration);
    tsr_tokenizer_destroy(job->tokenizer);
    tsr_model_destroy(job->model);
    json_decref(job->results);
    json_decref(job->manifest);
    tsr_config_doc_destroy(job->doc);
    for (uint64_t i = 0; i < s->n; i++) {
        free(s->steps[i].opts);
        tsr_pipeline_external_destroy(s->steps[i].external);
        json_decref(s->steps[i].attempts);
    }
    for (uint64_t i = 0; i < s->n_inputs; i++)
        free(s->inputs[i]);
    free(s->inputs);
    tsr_stamps_free(&s->stamps);
    free(s->steps);
    free(s->dir);
    free(s->model);
    free(s->model_at);
    free(s->replaced);
    json_decref(s->model_said);
    free(s);
    free(job->out);
    free(job);
}
