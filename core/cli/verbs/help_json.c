/* The option tables as JSON: for programs that write pages or forms. */
#include "base/json.h"
#include "cli/args.h"
#include "cli/help.h"
#include "cli/inspect/inspect.h"
#include "pipeline/job.h"
#include "pipeline/pipeline.h"
#include "tessera/step.h"

#include <string.h>

/* As in a command line: the option's letter and the placeholder of its value. */
static bool put_form(json_t *j, const struct tsr_option *o)
{
    char flag[80], letter[2] = { tsr_cli_option_short(o->name), '\0' };
    tsr_cli_option_flag(o->name, flag, sizeof flag);
    return j && json_object_set_new(j, "flag", json_string(flag)) == 0 &&
           json_object_set_new(j, "letter", *letter ? json_string(letter) : json_null()) == 0 &&
           json_object_set_new(j, "value", json_string(tsr_cli_option_word(o))) == 0;
}

static json_t *options_json(const struct tsr_option *o, uint64_t n)
{
    json_t *all = json_array();
    bool    ok = all != NULL;
    for (uint64_t i = 0; ok && i < n; i++) {
        json_t *j = tsr_inspect_option(&o[i]);
        ok = put_form(j, &o[i]) && json_array_append(all, j) == 0;
        json_decref(j);
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static const char *group_of(const char *verb)
{
    const struct tsr_verb_group *g;
    for (uint64_t i = 0; (g = tsr_verb_group_at(i)); i++)
        for (uint64_t k = 0; k < TSR_CLI_GROUP_VERBS && g->verbs[k]; k++)
            if (strcmp(g->verbs[k], verb) == 0)
                return g->name;
    return NULL;
}

static json_t *verbs_json(void)
{
    const struct tsr_verb *v;
    json_t                *all = json_array();
    bool                   ok = all != NULL;
    for (uint64_t i = 0; ok && (v = tsr_verb_at(i)); i++)
        ok = json_array_append_new(all, json_pack("{s:s, s:s?, s:s, s:s, s:s?, s:s?, s:o}", "name",
                                                  v->name, "group", group_of(v->name), "summary",
                                                  v->summary, "args", v->args ? v->args : "",
                                                  "details", v->details, "step",
                                                  v->step ? v->step->name : NULL, "options",
                                                  options_json(v->options, v->n_options))) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

/* plugin: its id; NULL: the step is ours. */
static json_t *step_json(const struct tsr_pipeline_step *s, const char *plugin)
{
    json_t *j = json_object();
    tsr_json_set(&j, "name", json_string(s->name));
    tsr_json_set(&j, "summary", json_string(s->summary));
    tsr_json_set(&j, "open", json_boolean(s->open));
    tsr_json_set(&j, "plugin", plugin ? json_string(plugin) : json_null());
    tsr_json_set(&j, "options", options_json(s->options, s->n_options));
    return j;
}

static tsr_status add_plugin_steps(json_t **all, struct tsr_registry *r, struct tsr_err *err)
{
    const char *name;
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    for (uint64_t i = 0; (name = tsr_pipeline_external_name(r, i)); i++) {
        struct tsr_pipeline_external *x;
        struct tsr_plugin_found       f;
        if (tsr_pipeline_step_find(name))
            continue;
        TSR_TRY(tsr_plugin_registry_find(r, TSR_KIND_STEP, name, &f, err));
        TSR_TRY(tsr_pipeline_external_find(&x, r, name, err));
        tsr_json_add(all, step_json(tsr_pipeline_external_step(x), f.info->plugin->id));
        tsr_pipeline_external_destroy(x);
    }
    return TSR_OK;
}

tsr_status tsr_cli_help_json(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    uint64_t                 n;
    const struct tsr_option *head = tsr_pipeline_job_head(&n);
    json_t                  *j = json_object(), *steps = json_array();
    for (uint64_t i = 0; i < tsr_n_steps; i++)
        tsr_json_add(&steps, step_json(tsr_steps[i], NULL));
    tsr_status st = add_plugin_steps(&steps, r, err);
    tsr_json_set(&j, "format", json_string("tessera.help/1"));
    tsr_json_set(&j, "version", json_string(TSR_VERSION));
    tsr_json_set(&j, "common", options_json(tsr_common_options, tsr_n_common_options));
    tsr_json_set(&j, "verbs", verbs_json());
    tsr_json_set(&j, "steps", steps);
    tsr_json_set(&j, "job", options_json(head, n));
    if (st != TSR_OK)
        json_decref(j);
    *out = st == TSR_OK ? j : NULL; /* NULL: tsr_cli_print_json() says so */
    return st;
}
