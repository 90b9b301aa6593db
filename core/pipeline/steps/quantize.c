/* quantize: packs the model's linears by a scheme; later steps run the packed weights. */
#include "pipeline/steps/quantize.h"
#include "pipeline/job.h"
#include "pipeline/quantize_plan.h"
#include "pipeline/step.h"
#include "planning/planning.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "quant/imatrix.h"
#include "quant/quantize.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "step 'quantize'"

static const struct tsr_option options[] = {
    TSR_SCHEME_OPTION_LIST(
        struct tsr_step_quantize_keys, scheme., 0,
        "The quantizer plugin; with `plan`, by default the first that the plan names."),
    TSR_OPTION_PATH(struct tsr_step_quantize_keys, to, "", "FOLDER",
                    "Folder in the job folder for the packed model; by default packed, packed-2, "
                    "and so on."),
    TSR_OPTION_PATH(
        struct tsr_step_quantize_keys, plan, "", "FILE",
        "A plan file, or what a plan step before writes; it says what each layer takes, rules "
        "come after it."),
    TSR_OPTION_PATH(
        struct tsr_step_quantize_keys, imatrix, "", "FILE",
        "An importance matrix of llama.cpp in place of a calibration, for quantizers that "
        "weigh the columns of their inputs."),
};

/* The step's map without the keys that do not belong to the scheme, with the plan's rules before its own;
 * borrows from it. */
struct view {
    struct tsr_config_node         node;
    struct tsr_config_node       **keys, **items;
    struct tsr_quant_scheme_keys   scheme;
    struct tsr_pipeline_plan_rules plan;
    struct tsr_config_node         rules_key;
};

static void view_free(struct view *v)
{
    tsr_pipeline_plan_rules_free(&v->plan);
    free(v->keys);
    free(v->items);
}

static tsr_status view_plan(struct view *v, const struct tsr_pipeline_job *job,
                            const struct tsr_step_quantize_keys *o,
                            const struct tsr_config_node *node, bool running, struct tsr_diag *d,
                            struct tsr_err *err)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "plan");
    if (!*o->plan || (o->scheme.rules && o->scheme.rules->kind != TSR_CONFIG_NODE_LIST &&
                      o->scheme.rules->kind != TSR_CONFIG_NODE_NULL))
        return TSR_OK; /* the scheme rejects rules that are not a list */
    struct tsr_errbuf                   e = TSR_ERRBUF(e);
    uint64_t                            before = tsr_config_diag_errors(d);
    const struct tsr_pipeline_job_step *planned = tsr_pipeline_job_planned(job, o->plan);
    if (planned && (!running || !planned->done))
        return TSR_OK; /* not written yet */
    char      *path = planned ? tsr_path_join(job->out, tsr_pipeline_job_planned_to(planned))
                              : tsr_pipeline_job_input(job, o->plan);
    tsr_status st = path ? tsr_pipeline_plan_rules_load(&v->plan, path, o->scheme.rules, d, &e.err)
                         : tsr_fail_nomem(&e.err, strlen(o->plan), WHAT);
    free(path);
    if (st == TSR_E_INPUT)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, "paths are relative to the job file",
                              "%s", e.text);
    else if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    v->rules_key = (struct tsr_config_node){ .kind = TSR_CONFIG_NODE_SCALAR, .text = "rules" };
    v->keys[v->node.n] = &v->rules_key;
    v->items[v->node.n++] = &v->plan.list;
    v->scheme.rules = &v->plan.list;
    tsr_pipeline_plan_rules_use(&v->plan, &v->node);
    const struct tsr_config_node *use = tsr_config_node_get(&v->node, "use");
    if (use && use->kind == TSR_CONFIG_NODE_SCALAR)
        v->scheme.use = use->text;
    return TSR_OK;
}

/* A quantizer is named here or in the plan; a plan that a step before writes names its own. */
static void need_use(const struct view *v, const struct tsr_step_quantize_keys *o,
                     const struct tsr_config_node *node, struct tsr_diag *d)
{
    if (tsr_config_node_get(&v->node, "use"))
        return;
    if (!*o->plan)
        tsr_config_diag_error(d, &node->mark, "write use: gptq",
                              "%s needs 'use', the quantizer, or 'plan'", WHAT);
    else if (v->plan.file.doc)
        tsr_config_diag_error(d, &node->mark, "write use: gptq",
                              "%s needs 'use': the plan names no quantizer", WHAT);
}

static tsr_status view_make(struct view *v, const struct tsr_pipeline_job *job,
                            const struct tsr_step_quantize_keys *o,
                            const struct tsr_config_node *node, bool running, struct tsr_diag *d,
                            struct tsr_err *err)
{
    *v = (struct view){ .node = *node, .scheme = o->scheme };
    if (node->kind != TSR_CONFIG_NODE_MAP)
        return TSR_OK;
    v->keys = tsr_new(node->n + 2, sizeof(struct tsr_config_node *));
    v->items = tsr_new(node->n + 2, sizeof(struct tsr_config_node *));
    if (!v->keys || !v->items)
        return tsr_fail_nomem(err, node->n * 16, WHAT);
    v->node.keys = v->keys;
    v->node.items = v->items;
    v->node.n = 0;
    for (uint64_t i = 0; i < node->n; i++) {
        const char *key = node->keys[i]->text;
        if ((strcmp(key, "use") == 0 && !*o->scheme.use) || strcmp(key, "to") == 0 ||
            strcmp(key, "plan") == 0 || strcmp(key, "imatrix") == 0 ||
            (*o->plan && strcmp(key, "rules") == 0))
            continue;
        v->keys[v->node.n] = node->keys[i];
        v->items[v->node.n++] = node->items[i];
    }
    uint64_t before = tsr_config_diag_errors(d);
    TSR_TRY(view_plan(v, job, o, node, running, d, err));
    if (tsr_config_diag_errors(d) == before)
        need_use(v, o, node, d);
    return TSR_OK;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_quant_scheme *s = NULL;
    struct view              v;
    tsr_status               st = view_make(&v, job, opts, node, false, d, err);
    if (st == TSR_OK)
        st = tsr_quant_scheme_create(&s, job->registry, &v.node, &v.scheme, WHAT, d, err);
    tsr_quant_scheme_destroy(s);
    view_free(&v);
    return st;
}

/* The scheme of a checked step; v must outlive it. */
static tsr_status scheme_of(struct tsr_pipeline_job *job, const struct tsr_step_quantize_keys *o,
                            const struct tsr_config_node *node, struct view *v,
                            struct tsr_quant_scheme **s, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = view_make(v, job, o, node, true, d, err);
    if (st == TSR_OK)
        st = tsr_quant_scheme_create(s, job->registry, &v->node, &v->scheme, WHAT, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK && *o->plan)
        st = tsr_pipeline_plan_rules_fit(&v->plan, job->model, NULL, err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK) {
        tsr_quant_scheme_destroy(*s);
        *s = NULL;
    }
    if (st != TSR_OK)
        view_free(v);
    return st;
}

/* The importance matrix of the step; *own is NULL without one. */
static tsr_status calibration_of(struct tsr_pipeline_job             *job,
                                 const struct tsr_step_quantize_keys *o,
                                 const struct tsr_quant_scheme       *s,
                                 struct tsr_quant_calibration **own, struct tsr_err *err)
{
    *own = NULL;
    if (!*o->imatrix)
        return TSR_OK;
    char      *path = tsr_pipeline_job_input(job, o->imatrix);
    tsr_status st = path ? tsr_quant_imatrix_open(own, s, job->registry, job->model, path, err)
                         : tsr_fail_nomem(err, strlen(o->imatrix), "a path");
    free(path);
    return st;
}

static bool put_linear(json_t *list, const struct tsr_matrix *w, const struct tsr_model_packed *p)
{
    if (!p)
        return true;
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "name", w->name) &&
              tsr_pipeline_json_put_text(j, "plugin", p->plugin) &&
              tsr_pipeline_json_put_text(j, "format", p->format_id) &&
              tsr_pipeline_json_put_real(j, "bits_per_weight",
                                         8.0 * (double)tsr_model_packed_bytes(p) /
                                             ((double)p->rows * (double)p->cols)) &&
              tsr_pipeline_json_put_real(j, "squared_error", p->squared_error) &&
              tsr_pipeline_json_put_real(j, "loss", p->report.loss) &&
              tsr_pipeline_json_put_real(j, "rtn_loss", p->report.rtn_loss) &&
              tsr_pipeline_json_put_real(j, "damping", p->report.damping) &&
              tsr_pipeline_json_put_int(j, "damping_retries", p->report.retries) &&
              tsr_pipeline_json_put_real(j, "seconds", p->report.seconds);
    return json_array_append_new(list, j) == 0 && ok;
}

static json_t *result(const struct tsr_model *m, const struct tsr_model_overlay *o,
                      const char *folder, uint64_t done)
{
    uint64_t weights, bytes, original;
    tsr_model_overlay_size_like(m, NULL, o, &weights, &original);
    tsr_model_overlay_size(m, o, &weights, &bytes);
    json_t *j = json_object(), *list = json_array();
    bool    ok =
        tsr_pipeline_json_put_int(j, "weights", weights) &&
        tsr_pipeline_json_put_int(j, "bytes", bytes) &&
        tsr_pipeline_json_put_int(j, "original_bytes", original) &&
        tsr_pipeline_json_put_real(j, "bits_per_weight", 8.0 * (double)bytes / (double)weights) &&
        tsr_pipeline_json_put_text(j, "packed_model", folder) &&
        tsr_pipeline_json_put_int(j, "layers_resumed", done) &&
        tsr_pipeline_json_put_int(j, "peak_memory_bytes", tsr_quant_memory_peak());
    for (uint64_t l = 0; l < o->layers; l++)
        for (uint64_t i = 0; i < o->linears; i++)
            ok = ok && put_linear(list, &m->layers[l].lin[i].w, o->lin[l][i]);
    ok = ok && put_linear(list, &m->head.w, o->head) && put_linear(list, &m->embed, o->embed);
    ok = tsr_pipeline_json_put(j, "linears", list) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static void print(const json_t *r, FILE *to)
{
    (void)fprintf(to, "quantized %zu linears: %.4g bits per weight, %lld bytes instead of %lld\n",
                  json_array_size(json_object_get(r, "linears")),
                  json_number_value(json_object_get(r, "bits_per_weight")),
                  (long long)json_integer_value(json_object_get(r, "bytes")),
                  (long long)json_integer_value(json_object_get(r, "original_bytes")));
}

/* "packed" for the first such step, "packed-2" for the second, and so on. */
static tsr_status folder_of(const struct tsr_pipeline_job       *job,
                            const struct tsr_step_quantize_keys *o, char **folder,
                            struct tsr_err *err)
{
    char name[40] = "packed";
    if (strcmp(o->to, ".") == 0) {
        *folder = tsr_strdup(job->out);
        return *folder ? TSR_OK : tsr_fail_nomem(err, strlen(job->out), job->out);
    }
    if (*o->to)
        return tsr_pipeline_job_output(job, o->to, folder, err);
    if (job->at->nth > 1)
        (void)snprintf(name, sizeof name, "packed-%llu", (unsigned long long)job->at->nth);
    return tsr_pipeline_job_output(job, name, folder, err);
}

static tsr_status quantize(struct tsr_pipeline_job *job, const struct tsr_step_quantize_keys *o,
                           const struct tsr_config_node *node, const char *folder, uint64_t *done,
                           struct tsr_model_overlay **overlay, struct tsr_err *err)
{
    struct view                   v;
    struct tsr_quant_scheme      *s = NULL;
    struct tsr_quant_calibration *own = NULL;
    TSR_TRY(scheme_of(job, o, node, &v, &s, err));
    tsr_status                  st = calibration_of(job, o, s, &own, err);
    struct tsr_quantize_options qo = { .folder = folder,
                                       .options = &v.node,
                                       .calibration = own ? own : job->calibration,
                                       .again = job->state->options.again,
                                       .drop = tsr_pipeline_job_streams(job) };
    if (st == TSR_OK)
        st = tsr_quantize_model(s, job->registry, job->model, &qo, overlay, done, err);
    tsr_quant_calibration_destroy(own);
    tsr_quant_scheme_destroy(s);
    view_free(&v);
    return st;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct tsr_model_overlay *o = NULL;
    char                     *folder = NULL;
    uint64_t                  done = 0;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    TSR_TRY(folder_of(job, opts, &folder, err));
    tsr_status st = quantize(job, opts, node, folder, &done, &o, err);
    if (st != TSR_OK) {
        free(folder);
        return st;
    }
    json_t *j = result(job->model, o, folder, done);
    tsr_model_overlay_destroy(job->overlay);
    job->overlay = o;
    free(job->packed);
    job->packed = folder;
    if (tsr_pipeline_job_streams(job)) { /* descriptions only, which cannot run */
        tsr_model_overlay_destroy(o);
        job->overlay = NULL;
    }
    if (j && !job->json)
        print(j, stdout);
    return tsr_pipeline_step_result(job, "quantize", j, err);
}

static tsr_status need(struct tsr_pipeline_job *job, const void *opts,
                       const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err)
{
    const struct tsr_step_quantize_keys *o = opts;
    const struct tsr_pipeline_job_step  *planned =
        *o->plan ? tsr_pipeline_job_planned(job, o->plan) : NULL;
    struct view              v;
    struct tsr_quant_scheme *s = NULL;
    if (*o->imatrix || (planned && !planned->done))
        return TSR_OK; /* a plan: repeated when it exists */
    TSR_TRY(scheme_of(job, o, node, &v, &s, err));
    tsr_status st = tsr_quant_scheme_needs(s, job->registry, job->model, need, err);
    tsr_quant_scheme_destroy(s);
    view_free(&v);
    return st;
}

/* ---- the statement ------------------------------------------------------------------ */

static tsr_status state(struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *step,
                        const struct tsr_pipeline_job_step *before, struct tsr_quantize_memory *out,
                        struct tsr_err *err)
{
    struct view                        v;
    struct tsr_quant_scheme           *s = NULL;
    struct tsr_quant_calibration      *c = NULL;
    struct tsr_quant_calibrate_options co = { 0 };
    char                              *text = NULL;
    TSR_TRY(scheme_of(job, step->opts, step->node, &v, &s, err));
    tsr_status st = calibration_of(job, step->opts, s, &c, err);
    if (st == TSR_OK && !c && before) {
        st = tsr_step_calibrate_step_options(job, before->opts, &co, &text, err);
        co.defer = true;
        if (st == TSR_OK)
            st = tsr_quant_calibrate(&c, job->registry, job->model, job->tokenizer, &co, err);
    }
    if (st == TSR_OK)
        st = tsr_quantize_memory(s, job->registry, job->model, co.text ? &co : NULL, out, err);
    tsr_quant_calibration_destroy(c);
    free(text);
    tsr_quant_scheme_destroy(s);
    view_free(&v);
    return st;
}

tsr_status tsr_step_quantize_statement(struct tsr_pipeline_job    *job,
                                       struct tsr_quantize_memory *out, struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    job->at = &s->steps[s->n - 1];
    return state(job, job->at, job->at->calibrated, out, err);
}

const struct tsr_pipeline_step tsr_step_quantize = {
    .name = "quantize",
    .summary = "packs the model's weights by a plugin and rules, and stores the packed model",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tsr_step_quantize_keys),
    .open = true,
    .check = check,
    .run = run,
    .need = need,
    .print = print,
    .streams = true,
};
