/* A step that a plugin brings, as a step of a job. */
#include "pipeline/steps/external_step.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a table declares ------------------------------------------------------------------ */

static bool good_name(const char *s)
{
    if (!s || *s < 'a' || *s > 'z')
        return false;
    for (const char *p = s; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_'))
            return false;
    return strlen(s) < 64;
}

static tsr_status check_product(const struct tsr_step_v1 *t, uint64_t i, const char *path,
                                const char *name, struct tsr_err *err)
{
    const struct tsr_step_product *p = t->products ? t->products[i] : NULL;
    if (!p || p->struct_size < sizeof *p || !good_name(p->name) ||
        strcmp(p->name, "section") == 0 || strcmp(p->name, "files") == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: step '%s': product %llu has the name '%.60s'; expected lower-case "
                        "letters, digits and '_', and neither 'section' nor 'files'",
                        path, name, (unsigned long long)i + 1, p && p->name ? p->name : "");
    if (p->form != TSR_STEP_JSON && p->form != TSR_STEP_FILE)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: step '%s': product '%s' has the form %u; expected TSR_STEP_JSON or "
                        "TSR_STEP_FILE",
                        path, name, p->name, p->form);
    for (uint64_t k = 0; k < i; k++)
        if (strcmp(t->products[k]->name, p->name) == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: step '%s' declares the product '%s' twice", path,
                            name, p->name);
    return TSR_OK;
}

/* "compare" or "compare/arms" */
static bool good_input(const char *s)
{
    size_t n = s ? strcspn(s, "/") : 0;
    return n > 0 && n < 64 && *s >= 'a' && *s <= 'z' && (!s[n] || good_name(s + n + 1)) &&
           strcmp(s, "options") != 0 && strcmp(s, "config") != 0;
}

static tsr_status check_table(const struct tsr_plugin_found *f, struct tsr_err *err)
{
    const struct tsr_step_v1 *t = f->iface;
    const char               *name = f->component->name, *path = f->info->path;
    uint64_t                  known = TSR_STEP_MODEL | TSR_STEP_TOKENIZER;
    if (t->needs & ~known || (t->needs & known) == TSR_STEP_TOKENIZER)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: step '%s' needs %llx; expected TSR_STEP_MODEL, or that with "
                        "TSR_STEP_TOKENIZER",
                        path, name, (unsigned long long)t->needs);
    for (uint64_t i = 0; i < t->n_inputs; i++)
        if (!t->inputs || !good_input(t->inputs[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: step '%s': input %llu is '%.60s'; expected STEP or STEP/PRODUCT",
                            path, name, (unsigned long long)i + 1,
                            t->inputs && t->inputs[i] ? t->inputs[i] : "");
    for (uint64_t i = 0; i < t->n_products; i++)
        TSR_TRY(check_product(t, i, path, name, err));
    return TSR_OK;
}

/* ---- finding it ------------------------------------------------------------------------------ */

const char *tsr_pipeline_external_name(const struct tsr_registry *r, uint64_t i)
{
    struct tsr_plugin_found f;
    for (uint64_t k = 0, n = 0; tsr_plugin_registry_component(r, k, &f); k++)
        if (strcmp(f.component->kind, TSR_KIND_STEP) == 0 && n++ == i)
            return f.component->name;
    return NULL;
}

static bool has(const struct tsr_registry *r, const char *name)
{
    const char *slash = strrchr(name, '/'), *known;
    for (uint64_t i = 0; (known = tsr_pipeline_external_name(r, i)); i++)
        if (strcmp(known, slash ? slash + 1 : name) == 0)
            return true;
    return false;
}

/* Options with TSR_OPT_JSON are filled as trees, which have the size of a pointer, too; check() makes texts of them. */
static tsr_status make_options(struct tsr_pipeline_external *x, struct tsr_err *err)
{
    const struct tsr_component *c = x->found.component;
    x->options = tsr_new(c->n_options + 1, sizeof *x->options);
    x->json = tsr_new(c->n_options + 1, sizeof *x->json);
    if (!x->options || !x->json)
        return tsr_fail_nomem(err, c->n_options * sizeof *x->options, c->name);
    for (uint64_t i = 0; i < c->n_options; i++) {
        x->options[i] = c->options[i];
        if (c->options[i].type == TSR_OPT_STRING && c->options[i].flags & TSR_OPT_JSON)
            x->options[i].type = TSR_OPT_NODE;
    }
    return TSR_OK;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d,
                        struct tsr_err *err);
static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err);

tsr_status tsr_pipeline_external_find(struct tsr_pipeline_external **out, struct tsr_registry *r,
                                      const char *name, struct tsr_err *err)
{
    *out = NULL;
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    if (!has(r, name))
        return TSR_OK;
    struct tsr_pipeline_external *x = tsr_new(1, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, sizeof *x, name);
    tsr_status st = tsr_plugin_registry_find(r, TSR_KIND_STEP, name, &x->found, err);
    if (st == TSR_OK)
        st = check_table(&x->found, err);
    if (st == TSR_OK)
        st = make_options(x, err);
    if (st != TSR_OK) {
        tsr_pipeline_external_destroy(x);
        return st;
    }
    const struct tsr_component *c = x->found.component;
    x->step = (struct tsr_pipeline_step){ .name = c->name,
                                          .summary = c->summary,
                                          .options = x->options,
                                          .n_options = c->n_options,
                                          .options_size = c->options_size,
                                          .check = check,
                                          .run = run,
                                          .print = external_section_print,
                                          .later = true };
    *out = x;
    return TSR_OK;
}

void tsr_pipeline_external_destroy(struct tsr_pipeline_external *x)
{
    if (!x)
        return;
    for (uint64_t i = 0; x->json && i < x->found.component->n_options; i++)
        free(x->json[i]);
    free(x->json);
    free(x->options);
    free(x);
}

const struct tsr_pipeline_step *tsr_pipeline_external_step(const struct tsr_pipeline_external *x)
{
    return &x->step;
}

/* ---- a call --------------------------------------------------------------------------------- */

static void open_call(struct external_call *c, struct tsr_step_job *j)
{
    *j = (struct tsr_step_job){ .struct_size = sizeof *j, .ctx = c };
    external_values_functions(j);
    external_products_functions(j);
    external_model_functions(j);
    external_measure_functions(j);
    c->thread = pthread_self();
    c->open = true;
}

static void free_call(struct external_call *c)
{
    tsr_engine_destroy(c->engine);
    for (uint64_t i = 0; i < c->n_memory; i++)
        free(c->memory[i]);
    free(c->memory);
    free(c->matrices);
    json_decref(c->config);
    json_decref(c->files);
    json_decref(c->section);
    json_decref(c->result);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* Trees become texts. */
static tsr_status fill_json(struct tsr_pipeline_external *x, void *opts, struct tsr_err *err)
{
    for (uint64_t i = 0; i < x->step.n_options; i++) {
        const struct tsr_config_node *node;
        const char                   *text = "";
        char                         *field = (char *)opts + x->options[i].offset;
        uint64_t                      len;
        if (x->options[i].type != TSR_OPT_NODE)
            continue;
        memcpy(&node, field, sizeof node);
        if (node) {
            json_t    *j = tsr_config_node_json(node);
            tsr_status st =
                j ? tsr_json_text(j, JSON_ENCODE_ANY | JSON_COMPACT, &x->json[i], &len, err)
                  : tsr_fail_nomem(err, 256, "an option");
            json_decref(j);
            TSR_TRY(st);
            text = x->json[i];
        }
        memcpy(field, &text, sizeof text);
    }
    return TSR_OK;
}

/* Whether an earlier step of the job makes an input; *unmade: the step is there, and has no such product. */
static bool is_made(const struct tsr_pipeline_job *job, const char *input, bool *unmade)
{
    const struct tsr_pipeline_job_state *s = job->state;
    size_t                               n = strcspn(input, "/");
    *unmade = false;
    for (const struct tsr_pipeline_job_step *p = s->steps; p < job->at; p++) {
        if (strncmp(p->step->name, input, n) != 0 || p->step->name[n])
            continue;
        if (!input[n] || !p->external) /* what our own steps make depends on their keys */
            return true;
        const struct tsr_step_v1 *t = p->external->found.iface;
        for (uint64_t i = 0; i < t->n_products; i++)
            if (strcmp(t->products[i]->name, input + n + 1) == 0)
                return true;
        *unmade = true;
    }
    return false;
}

static void check_inputs(const struct tsr_pipeline_job *job, const struct tsr_step_v1 *t,
                         const char *name, struct tsr_diag *d)
{
    for (uint64_t i = 0; i < t->n_inputs; i++) {
        const char *input = t->inputs[i];
        bool        unmade;
        int         n = (int)strcspn(input, "/");
        if (is_made(job, input, &unmade))
            continue;
        if (unmade)
            tsr_config_diag_error(d, &job->at->key->mark, NULL,
                                  "step '%s' needs '%s', and step '%.*s' has no such product", name,
                                  input, n, input);
        else
            tsr_config_diag_error(d, &job->at->key->mark, "put that step before this one",
                                  "step '%s' needs '%s', and no earlier step has that name", name,
                                  input);
    }
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_pipeline_external *x = job->at->external;
    const struct tsr_step_v1     *t = x->found.iface;
    struct external_call c = { .job = job, .table = t, .name = x->step.name, .node = node, .d = d };
    struct tsr_step_job  j;
    void                *self = NULL;
    TSR_TRY(fill_json(x, (void *)(uintptr_t)opts, err));
    check_inputs(job, t, x->step.name, d);
    TSR_TRY(t->create(x->found.host, opts, &self, err));
    tsr_status st = TSR_OK;
    if (t->check) {
        open_call(&c, &j);
        st = t->check(self, &j, err);
        c.open = false;
    }
    t->destroy(self);
    free_call(&c);
    return st;
}

/* ---- running --------------------------------------------------------------------------------- */

static tsr_status load(struct tsr_pipeline_job *job, const struct tsr_pipeline_external *x,
                       struct tsr_err *err)
{
    const struct tsr_step_v1 *t = x->found.iface;
    char                      what[100];
    (void)snprintf(what, sizeof what, "step '%s'", x->step.name);
    if (t->needs & TSR_STEP_TOKENIZER)
        TSR_TRY(tsr_pipeline_step_need_tokenizer(job, what, err));
    if (t->needs & TSR_STEP_MODEL)
        TSR_TRY(tsr_pipeline_job_need_model(job, err));
    return TSR_OK;
}

/* The result of the step, whose reference it takes from the call. */
static tsr_status file_result(struct external_call *c, struct tsr_err *err)
{
    TSR_TRY(external_products_whole(c, err));
    if (json_object_size(c->files) > 0)
        tsr_json_set(&c->result, "files", json_incref(c->files));
    if (json_array_size(c->section) > 0)
        tsr_json_set(&c->result, "section", json_incref(c->section));
    if (c->result && !c->job->json)
        external_section_print(c->result, stdout);
    return tsr_pipeline_step_result(c->job, c->name, json_incref(c->result), err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct tsr_pipeline_external *x = job->at->external;
    const struct tsr_step_v1           *t = x->found.iface;
    struct external_call                c = { .job = job,
                                              .table = t,
                                              .name = x->step.name,
                                              .node = node,
                                              .result = json_object(),
                                              .files = json_object(),
                                              .section = json_array() };
    struct tsr_step_job                 j;
    void                               *self = NULL;
    tsr_status                          st = c.result && c.files && c.section
                                                 ? load(job, x, err)
                                                 : tsr_fail_nomem(err, 256, "the result of a step");
    if (tsr_plugin_registry_isolation(job->registry))
        tsr_logf(TSR_LOG_WARN,
                 "step '%s' of '%s' runs in this process: plugins.isolate holds for quantizers and "
                 "solvers",
                 x->step.name, x->found.info->path);
    if (st == TSR_OK)
        st = t->create(x->found.host, opts, &self, err);
    if (st == TSR_OK) {
        open_call(&c, &j);
        st = t->run(self, &j, err);
        if (st == TSR_E_INVAL) /* the caller that broke the contract is the plugin */
            st = TSR_E_PLUGIN;
        c.open = false;
        t->destroy(self);
        if (st == TSR_OK && t->needs & TSR_STEP_MODEL)
            st = tsr_pipeline_mapped_unchanged(job->model, NULL, err);
        if (st == TSR_OK)
            st = file_result(&c, err);
    }
    free_call(&c);
    return st;
}
