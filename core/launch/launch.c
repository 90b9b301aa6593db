/* From a plan file to ranks at work. */
#include "launch/launch.h"

#include "base/mem.h"
#include "launch/backends.h"
#include "launch/emulate.h"
#include "plugin/kv_codec.h"
#include "quant/scheme.h"

#include <stdlib.h>
#include <string.h>

/* Least wait for a peer's bytes, under MPI; a rank without heartbeat for 5 s is reported earlier. */
#define MPI_WAIT_US UINT64_C(12000000)

const struct tsr_choice tsr_rank_kind_choices[2] = {
    { "processes", "each rank but the first is a process", TSR_RUNTIME_RANKS_PROCESSES },
    { "threads", "all ranks are threads of one process", TSR_RUNTIME_RANKS_THREADS },
};

struct tsr_launch {
    struct tsr_pipeline_plan_rules   plan;
    struct tsr_runtime_layout        layout;
    struct tsr_config_doc           *base; /* "use: rtn", what a rule without `use` falls back to */
    struct tsr_config_node           map, rules_key, *keys[2], *items[2];
    struct tsr_quant_scheme         *scheme;
    struct tsr_launch_emulate       *emulate;
    struct tsr_pipeline_compensating compensating;
    struct tsr_launch_states         states;
    struct tsr_runtime_group        *group;
};

/* The scheme that packs the model while it is loaded: the plan's rules on a base without any. */
static tsr_status open_scheme(struct tsr_launch *f, struct tsr_registry *r, struct tsr_diag *d,
                              struct tsr_err *err)
{
    static const char base[] = "use: rtn\n";
    TSR_TRY(tsr_config_doc_parse(&f->base, "plan", base, sizeof base - 1, d, err));
    const struct tsr_config_node *root = tsr_config_doc_root(f->base);
    f->map = *root;
    f->rules_key = (struct tsr_config_node){ .kind = TSR_CONFIG_NODE_SCALAR, .text = "rules" };
    f->keys[0] = root->keys[0];
    f->items[0] = root->items[0];
    f->keys[1] = &f->rules_key;
    f->items[1] = &f->plan.list;
    f->map.keys = f->keys;
    f->map.items = f->items;
    f->map.n = 2;
    return tsr_quant_scheme_create(&f->scheme, r, &f->map, NULL, "the plan", d, err);
}

/* Channels are selected from whole inputs, which ranks put together as they do their sums. */
static tsr_status check_sums(const struct tsr_launch *f, const struct tsr_engine_compensate *use,
                             struct tsr_err *err)
{
    for (uint32_t i = 0; i < f->layout.n_stages; i++) {
        const struct tsr_runtime_layout_stage *s = &f->layout.stages[i];
        bool                                   any = !use->k && use->each > 0;
        for (uint64_t l = s->first; use->k && l < s->end; l++)
            for (int k = 0; k < TSR_MODEL_SITES; k++)
                any = any || use->k[l][k] > 0;
        for (int k = 0; k < TSR_PLAN_PHASES && any && s->ranks > 1; k++)
            if (s->collective[k] && strcmp(s->collective[k], "plain") != 0)
                return tsr_fail(err, TSR_E_CONFIG,
                                "the plan: stage %u is compensated and its ranks share sums as "
                                "'%s', so that channels would be selected from rounded inputs; set "
                                "its k to 0 or the codec of its collective to plain",
                                i + 1, s->collective[k]);
    }
    return TSR_OK;
}

/* So are queries and keys that are normed over all heads. */
static tsr_status check_norms(const struct tsr_launch *f, const struct tsr_model *m,
                              struct tsr_err *err)
{
    for (uint32_t i = 0; i < f->layout.n_stages; i++) {
        const struct tsr_runtime_layout_stage *s = &f->layout.stages[i];
        for (int k = 0; k < TSR_PLAN_PHASES && s->ranks > 1; k++)
            if (m->hp.qk_norm == TSR_MODEL_QK_NORM_WIDTH && s->collective[k] &&
                strcmp(s->collective[k], "plain") != 0)
                return tsr_fail(err, TSR_E_CONFIG,
                                "the plan: the ranks of stage %u share sums as '%s', which would "
                                "round queries and keys before their norm over all heads; set the "
                                "codec of its collective to plain",
                                i + 1, s->collective[k]);
    }
    return TSR_OK;
}

/* Residuals, where the plan or the caller gives some k. */
static tsr_status open_residuals(struct tsr_launch *f, const struct tsr_model *m,
                                 const struct tsr_launch_options     *opt,
                                 const struct tsr_engine_compensate **use, struct tsr_err *err)
{
    const struct tsr_pipeline_compensate_keys *k = opt->compensation;
    bool                                       planned = false;
    for (uint64_t i = 0; i < f->plan.file.n_stages; i++)
        planned = planned || f->plan.file.stages[i].compensated;
    if (planned && (k->compensate || *k->compensate_plan))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan says how many channels are compensated, and so does %s; give "
                        "one",
                        opt->plan, k->compensate ? "compensate" : "compensate_plan");
    TSR_TRY(tsr_pipeline_compensating_open(&f->compensating, k,
                                           planned ? opt->plan : opt->compensate_plan, opt->packed,
                                           m, opt->seed, use, err));
    return *use ? check_sums(f, *use, err) : TSR_OK;
}

static tsr_status begin(struct tsr_launch *f, struct tsr_registry *r, const struct tsr_model *m,
                        const struct tsr_model_overlay *o, struct tsr_launch_options *opt,
                        struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_plan_load            *load = &f->plan.file.load;
    struct tsr_runtime_group_options co = { .ranks = (enum tsr_rank_kind)opt->ranks,
                                            .on = opt->on,
                                            .act = opt->act,
                                            .threads = (unsigned)opt->threads,
                                            .spans = opt->spans,
                                            .stall_us = opt->stall_us,
                                            .peers = opt->peers,
                                            .epoch = opt->epoch,
                                            .deadline_us = 2 * opt->stall_us };
    if (opt->peers && co.deadline_us < MPI_WAIT_US) /* heartbeats decide first: they identify the
                                                     * lost rank */
        co.deadline_us = MPI_WAIT_US;
    TSR_TRY(tsr_pipeline_plan_rules_load(&f->plan, opt->plan, NULL, d, err));
    if (tsr_config_diag_errors(d))
        return TSR_OK;
    TSR_TRY(tsr_pipeline_plan_rules_fit(&f->plan, m, opt->original, err));
    TSR_TRY(tsr_runtime_layout_plan(&f->layout, &f->plan.file, &m->hp, opt->requests, err));
    TSR_TRY(check_norms(f, m, err));
    TSR_TRY(tsr_plugin_kv_check_all(r, load->kv, load->kv_layers, err));
    co.kv_dtype = (uint32_t)load->kv;
    co.kv_layers = load->kv_layers;
    if (!opt->context)
        opt->context = (uint64_t)(load->prompt + load->generate);
    co.context = opt->context;
    if (!o && !m->packed && !m->prepacked)
        TSR_TRY(open_scheme(f, r, d, err));
    if (!tsr_config_diag_errors(d) && *opt->cluster)
        TSR_TRY(tsr_launch_emulate_open(&f->emulate, r, m, &f->plan.file, &f->layout, opt->cluster,
                                        opt->beside, d, err));
    if (!tsr_config_diag_errors(d) && *opt->cluster)
        TSR_TRY(tsr_launch_backends(&f->layout, &f->plan.file, opt->cluster, opt->beside, d, err));
    if (tsr_config_diag_errors(d))
        return TSR_OK;
    if (opt->links)
        TSR_TRY(tsr_launch_links_take(&f->layout, opt->links, err));
    TSR_TRY(tsr_launch_states_open(&f->states, r, &f->plan.file, &f->layout, m, o, opt->act,
                                   f->scheme != NULL, opt->find_state, opt->find_ctx, err));
    co.scheme = f->scheme;
    co.pacing = tsr_launch_emulate_pacing(f->emulate);
    TSR_TRY(open_residuals(f, m, opt, &co.compensate, err));
    return tsr_runtime_group_start(&f->group, r, m, o, &f->layout, &co, err);
}

tsr_status tsr_launch_open(struct tsr_launch **out, struct tsr_registry *r,
                           const struct tsr_model *m, const struct tsr_model_overlay *o,
                           struct tsr_launch_options *opt, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_launch *f = tsr_new(1, sizeof *f);
    *out = NULL;
    if (!f)
        return tsr_fail_nomem(err, sizeof *f, "ranks");
    tsr_status st = begin(f, r, m, o, opt, d, err);
    if (st != TSR_OK || tsr_config_diag_errors(d)) {
        tsr_launch_close(f);
        return st;
    }
    *out = f;
    return TSR_OK;
}

tsr_status tsr_launch_serve(struct tsr_launch *f, struct tsr_err *err)
{
    return tsr_runtime_group_serve(f->group, err);
}

void tsr_launch_pass(struct tsr_launch *f, struct tsr_engine_pass *p)
{
    tsr_runtime_group_pass(f->group, p);
}

tsr_status tsr_launch_pass_reuse(struct tsr_launch *f, struct tsr_engine_pass *p, const char **why,
                                 struct tsr_err *err)
{
    return tsr_runtime_group_pass_reuse(f->group, p, why, err);
}

tsr_status tsr_launch_drafts(const struct tsr_launch *f, const char **why, struct tsr_err *err)
{
    return tsr_runtime_group_drafts(f->group, why, err);
}

tsr_status tsr_launch_stop(struct tsr_launch *f, struct tsr_err *err)
{
    return tsr_runtime_group_stop(f->group, err);
}

void tsr_launch_close(struct tsr_launch *f)
{
    if (!f)
        return;
    tsr_runtime_group_destroy(f->group);
    tsr_pipeline_compensating_close(&f->compensating);
    tsr_launch_emulate_close(f->emulate);
    tsr_launch_states_close(&f->states);
    tsr_quant_scheme_destroy(f->scheme);
    tsr_config_doc_destroy(f->base);
    tsr_runtime_layout_free(&f->layout);
    tsr_pipeline_plan_rules_free(&f->plan);
    free(f);
}

const struct tsr_runtime_layout *tsr_launch_layout(const struct tsr_launch *f)
{
    return &f->layout;
}

struct tsr_runtime_page *tsr_launch_page(struct tsr_launch *f)
{
    return tsr_runtime_group_page(f->group);
}

const struct tsr_plan_file *tsr_launch_plan(const struct tsr_launch *f)
{
    return &f->plan.file;
}

const struct tsr_pipeline_compensating *tsr_launch_compensating(const struct tsr_launch *f)
{
    return &f->compensating;
}

const json_t *tsr_launch_state_hashes(const struct tsr_launch *f)
{
    return f->states.hashes;
}

tsr_status tsr_launch_links(const struct tsr_launch *f, json_t **links, struct tsr_err *err)
{
    return tsr_launch_links_json(&f->layout, f->group, links, err);
}

double tsr_launch_slower(const struct tsr_launch *f)
{
    const struct tsr_runtime_pacing *p = tsr_launch_emulate_pacing(f->emulate);
    return p ? p->scale : 1;
}
