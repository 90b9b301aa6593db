/* Is a job's pipeline one that can run: steps and their options. */
#include "pipeline/job.h"

#include "base/file.h"
#include "base/mem.h"
#include "config/doc.h"
#include "model/family.h"
#include "pipeline/step.h"
#include "plugin/kv_codec.h"

#include <stdlib.h>
#include <string.h>

static void unknown_step(const struct tsr_registry *r, const struct tsr_config_node *key,
                         struct tsr_diag *d)
{
    const char *names[64], *external;
    char        hint[400] = "";
    uint64_t    n = 0;
    size_t      at = (size_t)snprintf(hint, sizeof hint, "steps are");
    for (; n < tsr_n_steps && n < 64; n++)
        names[n] = tsr_steps[n]->name;
    for (uint64_t i = 0; n < 64 && (external = tsr_pipeline_external_name(r, i)); i++)
        names[n++] = external;
    for (uint64_t i = 0; i < n; i++) {
        if (at < sizeof hint)
            at += (size_t)snprintf(hint + at, sizeof hint - at, "%s %s", i ? "," : "", names[i]);
    }
    const char *near = tsr_config_nearest(key->text, names, n);
    if (near)
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    tsr_config_diag_error(d, &key->mark, hint, "unknown step '%.60s'", key->text);
}

/* `- name` or `- name: {...}`: the name and the map, which is made where there is none. */
static bool step_parts(const struct tsr_config_node *item, struct tsr_pipeline_job_step *s,
                       struct tsr_diag *d)
{
    if (item->kind == TSR_CONFIG_NODE_MAP && item->n == 1) {
        s->key = item->keys[0];
        s->node = item->items[0];
        if (s->node->kind == TSR_CONFIG_NODE_NULL) {
            ((struct tsr_config_node *)(uintptr_t)s->node)->kind = TSR_CONFIG_NODE_MAP;
            ((struct tsr_config_node *)(uintptr_t)s->node)->mark = s->key->mark;
        }
        return true;
    }
    if (item->kind == TSR_CONFIG_NODE_MAP && item->n > 1)
        tsr_config_diag_error(d, &item->keys[1]->mark,
                              "indent options further than the name of the step",
                              "'%.60s' conflicts with the step '%.60s'", item->keys[1]->text,
                              item->keys[0]->text);
    else
        tsr_config_diag_error(d, &item->mark, "write '- name' or '- name: {key: value}'",
                              "a step must be a name, or a name with options");
    return false;
}

/* A bare name becomes a map in the doc, so that defaults can be put into it and be shown. */
static tsr_status spell_out(struct tsr_pipeline_job *job, const struct tsr_config_node *list,
                            uint64_t i, struct tsr_err *err)
{
    struct tsr_config_node *name = list->items[i];
    if (name->kind != TSR_CONFIG_NODE_SCALAR)
        return TSR_OK;
    struct tsr_config_node pair = { .kind = TSR_CONFIG_NODE_MAP, .mark = name->mark, .text = "" },
                           *map = NULL;
    struct tsr_config_node empty = pair, *items[1] = { &empty }, *keys[1] = { name };
    pair.n = 1;
    pair.items = items;
    pair.keys = keys;
    map = tsr_config_doc_copy(job->doc, &pair);
    if (!map)
        return tsr_fail_nomem(err, sizeof *map, "a step");
    list->items[i] = map;
    return TSR_OK;
}

/* The keys that are not the step's own: its plugin's, which check() looks at. */
static const char **others(const struct tsr_pipeline_step *step, const struct tsr_config_node *node)
{
    const char **names = tsr_new(node->n + 1, sizeof *names);
    uint64_t     n = 0;
    for (uint64_t i = 0; names && node->kind == TSR_CONFIG_NODE_MAP && i < node->n; i++) {
        bool own = false;
        for (uint64_t k = 0; k < step->n_options; k++)
            own = own || strcmp(step->options[k].name, node->keys[i]->text) == 0;
        if (!own)
            names[n++] = node->keys[i]->text;
    }
    return names;
}

static const struct tsr_option *option_of(const struct tsr_option *o, uint64_t n, const char *name)
{
    for (uint64_t i = 0; i < n; i++)
        if (strcmp(o[i].name, name) == 0)
            return &o[i];
    return NULL;
}

/* What a step leaves to the head, it has from there: strings and 64-bit numbers. */
static void inherit(const struct tsr_pipeline_job *job, const struct tsr_pipeline_step *step,
                    const struct tsr_config_node *node, void *opts)
{
    uint64_t                 n;
    const struct tsr_option *head = tsr_pipeline_job_head(&n);
    for (uint64_t i = 0; i < step->n_options; i++) {
        const struct tsr_option *o = &step->options[i], *from = option_of(head, n, o->name);
        if (from && (o->flags & TSR_OPT_UNSAID) && !tsr_config_node_get(node, o->name))
            memcpy((char *)opts + o->offset, (const char *)&job->state->head + from->offset,
                   o->type == TSR_OPT_STRING ? sizeof(const char *) : sizeof(int64_t));
    }
}

/* "--no-clip" of a command line is `no_clip: true` here: `clip: false` where that is a switch of the plugin that the
 * step uses, and no_clip is nothing that it has.  What the plugin does not know is left to the step. */
static void switch_off(struct tsr_pipeline_job *job, const struct tsr_pipeline_step *step,
                       struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_option      *use = option_of(step->options, step->n_options, "use");
    const struct tsr_config_node *given = tsr_config_node_get(node, "use");
    const char                   *name = given ? given->text : use ? use->def.s : NULL;
    struct tsr_plugin_found       found = { 0 };
    for (uint64_t i = 0; name && *name && i < node->n; i++) {
        struct tsr_config_node *key = node->keys[i], *value = node->items[i];
        if (strncmp(key->text, "no_", 3) != 0 || !key->mark.source || !key->mark.source->argument)
            continue;
        if (!found.component && tsr_plugin_registry_find(job->registry, TSR_KIND_QUANTIZER, name,
                                                         &found, NULL) != TSR_OK)
            return; /* the step reports it */
        const struct tsr_component *c = found.component;
        const struct tsr_option    *o = option_of(c->options, c->n_options, key->text + 3);
        if (option_of(c->options, c->n_options, key->text) || !o || o->type != TSR_OPT_BOOL)
            continue;
        if (value->kind != TSR_CONFIG_NODE_SCALAR || strcmp(value->text, "true") != 0)
            tsr_config_diag_error(d, &value->mark, NULL,
                                  "--no-%s takes no value; '%.100s' follows it", o->name,
                                  value->kind == TSR_CONFIG_NODE_SCALAR ? value->text : "");
        key->text += 3;
        value->text = "false";
    }
}

/* A KV cache that is no type of ours is a codec of a plugin, which is there and takes the options. */
static tsr_status check_codecs(struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *s,
                               struct tsr_diag *d, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->step->n_options; i++) {
        const struct tsr_option      *o = &s->step->options[i];
        const struct tsr_config_node *at = tsr_config_node_get(s->node, o->name);
        struct tsr_errbuf             e = TSR_ERRBUF(e);
        int64_t                       kv = TSR_F32;
        const char                   *layers = NULL;
        if (o->type == TSR_OPT_STRING && strcmp(o->name, "kv_layers") == 0)
            memcpy(&layers, (const char *)s->opts + o->offset, sizeof layers);
        else if (o->type == TSR_OPT_ENUM &&
                 (o->choices == tsr_kv_choices || o->choices == tsr_kv_run_choices))
            memcpy(&kv, (const char *)s->opts + o->offset, sizeof kv);
        else
            continue;
        kv = kv == TSR_KV_AUTO ? TSR_F32 : kv;
        tsr_status st = tsr_plugin_kv_check_all(job->registry, kv, layers, &e.err);
        if (st == TSR_E_NOMEM)
            return tsr_err_copy(err, st, &e.err);
        if (st != TSR_OK)
            tsr_config_diag_error(d, at ? &at->mark : &s->key->mark, NULL, "%s", e.text);
    }
    return TSR_OK;
}

/* The keys of our steps that name what a step writes. */
static void check_outputs(const struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *s,
                          struct tsr_diag *d)
{
    static const char *const keys[] = { "to", "output", "html", "save_kld", "log_samples" };
    for (size_t i = 0; !s->external && i < sizeof keys / sizeof *keys; i++)
        if (option_of(s->step->options, s->step->n_options, keys[i]))
            tsr_pipeline_check_output(job, s->node, keys[i], d);
}

bool tsr_pipeline_after(const struct tsr_pipeline_job *job, const char *name)
{
    bool is = false;
    for (uint64_t i = 0; i + 1 < job->state->n; i++)
        is = is || strcmp(job->state->steps[i].step->name, name) == 0;
    return is;
}

static tsr_status check_step(struct tsr_pipeline_job *job, struct tsr_pipeline_job_step *s,
                             struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_pipeline_step *step = s->step;
    char                            what[100];
    const char                    **also = NULL;
    (void)snprintf(what, sizeof what, "step '%s'", step->name);
    s->opts = tsr_new(step->options_size ? step->options_size : 1, 1);
    if (step->open && s->node->kind == TSR_CONFIG_NODE_MAP)
        switch_off(job, step, (struct tsr_config_node *)(uintptr_t)s->node, d);
    if (step->open)
        also = others(step, s->node);
    if (!s->opts || (step->open && !also)) {
        free(also);
        return tsr_fail_nomem(err, step->options_size, what);
    }
    struct tsr_config_optset set = { step->options, step->n_options, sizeof *step->options,
                                     s->opts };
    uint64_t                 before = tsr_config_diag_errors(d);
    tsr_config_options_fill(&set, 1, also, s->node, what, d);
    if (!s->external) /* its keys are its own, whatever their names */
        inherit(job, step, s->node, s->opts);
    free(also);
    check_outputs(job, s, d);
    if (!s->external && tsr_config_diag_errors(d) == before)
        TSR_TRY(check_codecs(job, s, d, err));
    if (step->check && (tsr_config_diag_errors(d) == before ||
                        (s->node->kind == TSR_CONFIG_NODE_MAP && !s->external))) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status        st = step->check(job, s->opts, s->node, d, &e.err);
        if (st == TSR_E_INPUT || st == TSR_E_CONFIG || st == TSR_E_UNSUPPORTED)
            tsr_config_diag_failure(d, &s->key->mark, &e.err);
        else if (st != TSR_OK)
            return tsr_err_prefix(err, tsr_err_copy(err, st, &e.err), "%s", what);
    }
    return tsr_config_diag_errors(d) == before
               ? tsr_config_doc_complete(job->doc, s->node, &set, 1, err)
               : TSR_OK;
}

/* The step of a name: one of ours, or of a plugin.  false: d has the error. */
static tsr_status find_step(struct tsr_pipeline_job *job, struct tsr_pipeline_job_step *s,
                            bool *found, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const char       *external;
    s->step = tsr_pipeline_step_find(s->key->text);
    for (uint64_t i = 0; s->step && (external = tsr_pipeline_external_name(job->registry, i)); i++)
        if (strcmp(external, s->step->name) == 0)
            tsr_config_diag_warning(d, &s->key->mark, NULL,
                                    "a plugin has a step '%s' too, which this job does not use; "
                                    "rename the plugin's step",
                                    s->step->name);
    *found = s->step != NULL;
    if (s->step)
        return TSR_OK;
    tsr_status st = tsr_pipeline_external_find(&s->external, job->registry, s->key->text, &e.err);
    if (st == TSR_E_INPUT) {
        tsr_config_diag_failure(d, &s->key->mark, &e.err);
        return TSR_OK;
    }
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    if (!s->external) {
        unknown_step(job->registry, s->key, d);
        return TSR_OK;
    }
    s->step = tsr_pipeline_external_step(s->external);
    *found = true;
    return TSR_OK;
}

/* Names of the steps behind number i; "" for one that is none. */
static const char *name_behind(const struct tsr_config_node *list, uint64_t i)
{
    const struct tsr_config_node *item = i < list->n ? list->items[i] : NULL;
    return !item                                               ? NULL
           : item->kind == TSR_CONFIG_NODE_SCALAR              ? item->text
           : item->kind == TSR_CONFIG_NODE_MAP && item->n == 1 ? item->keys[0]->text
                                                               : "";
}

/* A plan whose batch runs without a step between that packs is packed while it is loaded, when no statistics are at
 * hand.  Where it names no quantizer, it gets one that needs none. */
static tsr_status choose_quantizer(struct tsr_pipeline_job *job, const struct tsr_config_node *list,
                                   uint64_t i, const struct tsr_pipeline_job_step *s,
                                   struct tsr_err *err)
{
    const char *name = name_behind(list, i);
    if (!name || strcmp(name, "plan") != 0 || s->node->kind != TSR_CONFIG_NODE_MAP ||
        tsr_config_node_get(s->node, "use") || tsr_config_node_get(s->node, "candidates"))
        return TSR_OK;
    while ((name = name_behind(list, ++i)) && strcmp(name, "run") != 0)
        if (strcmp(name, "quantize") == 0 || strcmp(name, "plan") == 0)
            return TSR_OK;
    if (!name)
        return TSR_OK;
    if (!job->doc->defaults)
        job->doc->defaults = tsr_config_doc_source(job->doc, "default", "", 0, true);
    const struct tsr_config_mark m = { job->doc->defaults, 1, 1, 1 };
    struct tsr_config_node      *k = tsr_config_doc_node(job->doc, TSR_CONFIG_NODE_SCALAR, &m),
                           *v = tsr_config_doc_node(job->doc, TSR_CONFIG_NODE_SCALAR, &m);
    if (k)
        k->text = tsr_config_doc_strndup(job->doc, "use", 3);
    if (v)
        v->text = tsr_config_doc_strndup(job->doc, "rtn", 3);
    if (v)
        v->quoted = true; /* as other defaults that are texts */
    return k && v && k->text && v->text &&
                   tsr_config_doc_put(job->doc, (struct tsr_config_node *)(uintptr_t)s->node, k, v)
               ? TSR_OK
               : tsr_fail_nomem(err, 64, "option defaults");
}

tsr_status tsr_pipeline_job_check(struct tsr_pipeline_job *job, struct tsr_registry *r,
                                  struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    const struct tsr_config_node  *list = s->head.pipeline;
    uint64_t                       n_head;
    const struct tsr_option       *options = tsr_pipeline_job_head(&n_head);
    struct tsr_config_optset       head = { options, n_head, sizeof *options, &s->head };
    job->registry = r;
    if (!list)
        return TSR_OK;
    if (list->kind != TSR_CONFIG_NODE_LIST || list->n == 0) {
        tsr_config_diag_error(d, &list->mark,
                              "write '- calibrate: {text: FILE}' and so on, one below the "
                              "other",
                              "'pipeline' must be a list of steps");
        return TSR_OK;
    }
    s->steps = tsr_new(list->n, sizeof *s->steps);
    if (!s->steps)
        return tsr_fail_nomem(err, list->n * sizeof *s->steps, "steps");
    for (uint64_t i = 0; i < list->n; i++) {
        struct tsr_pipeline_job_step step = { 0 };
        TSR_TRY(spell_out(job, list, i, err));
        if (!step_parts(list->items[i], &step, d))
            continue;
        bool found;
        TSR_TRY(find_step(job, &step, &found, d, err));
        if (!found)
            continue;
        s->steps[s->n++] = step;
        TSR_TRY(choose_quantizer(job, list, i, &step, err));
        tsr_pipeline_job_link(job);
        TSR_TRY(check_step(job, &s->steps[s->n - 1], d, err));
    }
    tsr_pipeline_job_verify_check(job, d);
    return tsr_config_diag_errors(d)
               ? TSR_OK
               : tsr_config_doc_complete(job->doc, tsr_config_doc_root(job->doc), &head, 1, err);
}
