/* The option tables as JSON: for programs that write pages or forms. */
#include "cli/args.h"
#include "cli/help.h"
#include "cli/inspect/inspect.h"
#include "pipeline/pipeline.h"

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

static json_t *steps_json(void)
{
    json_t *all = json_array();
    bool    ok = all != NULL;
    for (uint64_t i = 0; ok && i < tsr_n_steps; i++) {
        const struct tsr_pipeline_step *s = tsr_steps[i];
        ok = json_array_append_new(all, json_pack("{s:s, s:s, s:b, s:o}", "name", s->name,
                                                  "summary", s->summary, "open", s->open, "options",
                                                  options_json(s->options, s->n_options))) == 0;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

json_t *tsr_cli_help_json(void)
{
    uint64_t                 n;
    const struct tsr_option *head = tsr_pipeline_job_head(&n);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "format", "tessera.help/1", "version",
                     TSR_VERSION, "common", options_json(tsr_common_options, tsr_n_common_options),
                     "verbs", verbs_json(), "steps", steps_json(), "job", options_json(head, n));
}
