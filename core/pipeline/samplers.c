#include "pipeline/samplers.h"

#include "config/config.h"
#include "model/model.h"

#include <string.h>

#define HINT "write {use: grammar, schema: '{}'} or min_p"

/* The plugin of an entry with its options filled; spec->options is NULL where d has an error of it. */
static tsr_status read_one(struct tsr_pipeline_job *job, const struct tsr_config_node *node,
                           struct tsr_plugin_spec *spec, struct tsr_diag *d, struct tsr_err *err)
{
    static const char *const      also[] = { "use", NULL };
    bool                          map = node->kind == TSR_CONFIG_NODE_MAP;
    const struct tsr_config_node *use = map ? tsr_config_node_get(node, "use") : node;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    char                          what[100];
    memset(spec, 0, sizeof *spec);
    if (!use || use->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &node->mark, HINT, "a sampler without a name");
        return TSR_OK;
    }
    tsr_status st = tsr_plugin_spec_start(spec, job->registry, TSR_KIND_SAMPLER, use->text, &e.err);
    if (st == TSR_E_INPUT) {
        tsr_config_diag_failure(d, &use->mark, &e.err);
        return TSR_OK;
    }
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    const struct tsr_component *c = spec->found.component;
    struct tsr_config_optset    set = { c->options, c->n_options, c->option_stride, spec->options };
    uint64_t                    before = tsr_config_diag_errors(d);
    (void)snprintf(what, sizeof what, "sampler '%.60s'", c->name);
    tsr_config_options_fill(&set, 1, also, map ? node : NULL, what, d);
    if (!map) /* a required option is missing all the same */
        for (uint64_t i = 0; i < c->n_options; i++)
            if (c->options[i].flags & TSR_OPT_REQUIRED)
                tsr_config_diag_error(d, &node->mark, HINT, "%s needs the option '%s'", what,
                                      c->options[i].name);
    if (tsr_config_diag_errors(d) != before)
        tsr_plugin_spec_close(spec);
    return TSR_OK;
}

static bool is_list(const struct tsr_config_node *node, struct tsr_diag *d)
{
    if (!node || node->kind == TSR_CONFIG_NODE_LIST)
        return true;
    tsr_config_diag_error(d, &node->mark, "write [min_p]", "'samplers' is not a list");
    return false;
}

tsr_status tsr_pipeline_samplers_check(struct tsr_pipeline_job      *job,
                                       const struct tsr_config_node *node, struct tsr_diag *d,
                                       struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    if (!is_list(node, d))
        return TSR_OK;
    for (uint64_t i = 0; node && i < node->n && st == TSR_OK; i++) {
        struct tsr_errbuf      e = TSR_ERRBUF(e);
        struct tsr_plugin_spec spec;
        void                  *self = NULL;
        st = read_one(job, node->items[i], &spec, d, err);
        if (st == TSR_OK && spec.options) {
            const struct tsr_sampler_v1 *t = spec.found.iface;
            st = t->create(spec.found.host, spec.options, &self, &e.err);
            if (st == TSR_OK)
                t->destroy(self);
            else if (st == TSR_E_CONFIG || st == TSR_E_UNSUPPORTED)
                tsr_config_diag_error(d, &node->items[i]->mark, NULL, "sampler '%s': %s",
                                      spec.found.component->name, e.text);
            else
                (void)tsr_err_copy(err, st, &e.err);
            if (st == TSR_E_CONFIG || st == TSR_E_UNSUPPORTED)
                st = TSR_OK; /* d has it */
        }
        tsr_plugin_spec_close(&spec);
    }
    return st;
}

/* From the last entry on, because a list grows in front. */
static tsr_status make_list(struct tsr_pipeline_samplers *s, struct tsr_pipeline_job *job,
                            const struct tsr_config_node *node, struct tsr_diag *d,
                            struct tsr_err *err)
{
    if (!is_list(node, d))
        return tsr_config_diag_status(d, err);
    for (uint64_t i = node ? node->n : 0; i-- > 0;) {
        struct tsr_engine_samplers *rest = s->list;
        struct tsr_plugin_spec      spec;
        tsr_status                  st = read_one(job, node->items[i], &spec, d, err);
        if (st == TSR_OK)
            st = tsr_config_diag_status(d, err);
        if (st != TSR_OK) {
            tsr_plugin_spec_close(&spec);
            return st;
        }
        st = tsr_engine_sampler_make(&s->maker, &s->list, &spec, rest, err);
        tsr_engine_samplers_drop(rest);
        TSR_TRY(st);
    }
    return TSR_OK;
}

tsr_status tsr_pipeline_samplers_open(struct tsr_pipeline_samplers *s, struct tsr_pipeline_job *job,
                                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &job->model->hp;
    struct tsr_diag                *d = NULL;
    *s = (struct tsr_pipeline_samplers){ .maker = { .registry = job->registry,
                                                    .tokenizer = job->tokenizer,
                                                    .vocab = hp->vocab,
                                                    .ends = hp->eos,
                                                    .n_ends = hp->n_eos } };
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = make_list(s, job, node, d, err);
    tsr_config_diag_destroy(d);
    return st;
}

void tsr_pipeline_samplers_close(struct tsr_pipeline_samplers *s)
{
    tsr_engine_samplers_drop(s->list);
    tsr_engine_tokens_drop(s->maker.tokens);
    memset(s, 0, sizeof *s);
}
