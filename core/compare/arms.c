/* Arms: the schemes and models that they run. */
#include "base/f16.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "compare/compare.h"
#include "pipeline/job.h"
#include "quant/quantize.h"
#include "quant/scheme.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

tsr_status compare_arm_failed(struct compare_arm *a, tsr_status st, const char *text,
                              struct tsr_err *err)
{
    if (st == TSR_E_CANCELLED || st == TSR_E_NOMEM)
        return tsr_fail(err, st, "arm '%s': %s", a->name, text);
    if (a->status == TSR_OK) {
        a->status = st;
        (void)tsr_fail(&a->error.err, st, "%s", text);
        tsr_logf(TSR_LOG_WARN, "arm '%s' failed: %s", a->name, text);
    }
    return TSR_OK;
}

/* ---- schemes ------------------------------------------------------------------------ */

/* An arm's scheme with its borrowed parts: the map without `plan`, preceded by the plan's rules. */
struct arm_scheme {
    struct tsr_quant_scheme       *scheme;
    struct tsr_pipeline_plan_rules plan;
    struct tsr_config_node         node, key;
    struct tsr_config_node       **keys, **items;
};

static void scheme_free(struct arm_scheme *s)
{
    tsr_quant_scheme_destroy(s->scheme);
    tsr_pipeline_plan_rules_free(&s->plan);
    free(s->keys);
    free(s->items);
}

static tsr_status scheme_plan(struct compare *c, struct arm_scheme *s,
                              const struct tsr_config_node *plan,
                              const struct tsr_config_node *rules, struct tsr_diag *d,
                              struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *path = tsr_pipeline_job_input(c->job, plan->text);
    tsr_status        st = path ? tsr_pipeline_plan_rules_load(&s->plan, path, rules, d, &e.err)
                                : tsr_fail_nomem(&e.err, strlen(plan->text), "a plan");
    free(path);
    if (st == TSR_E_INPUT) {
        tsr_config_diag_error(d, &plan->mark, "paths are relative to the job file", "%s", e.text);
        st = TSR_OK;
    } else if (st != TSR_OK) {
        return tsr_err_copy(err, st, &e.err);
    }
    s->key = (struct tsr_config_node){ .kind = TSR_CONFIG_NODE_SCALAR,
                                       .mark = plan->mark,
                                       .text = "rules" };
    s->keys[s->node.n] = &s->key;
    s->items[s->node.n++] = &s->plan.list;
    tsr_pipeline_plan_rules_use(&s->plan, &s->node);
    return st;
}

static tsr_status scheme_make(struct compare *c, const struct compare_arm *a, struct arm_scheme *s,
                              struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *map = a->quantize, *plan = tsr_config_node_get(map, "plan");
    const struct tsr_config_node *rules = tsr_config_node_get(map, "rules");
    uint64_t                      before = tsr_config_diag_errors(d);
    char                          what[96];
    compare_arm_what(what, a->name);
    *s = (struct arm_scheme){ .node = *map };
    s->keys = tsr_new(map->n + 2, sizeof(struct tsr_config_node *));
    s->items = tsr_new(map->n + 2, sizeof(struct tsr_config_node *));
    if (!s->keys || !s->items)
        return tsr_fail_nomem(err, map->n * 16, what);
    s->node.keys = s->keys;
    s->node.items = s->items;
    s->node.n = 0;
    bool lists =
        !rules || rules->kind == TSR_CONFIG_NODE_LIST || rules->kind == TSR_CONFIG_NODE_NULL;
    for (uint64_t i = 0; i < map->n; i++) {
        if (map->items[i] == plan || (plan && lists && map->items[i] == rules))
            continue;
        s->keys[s->node.n] = map->keys[i];
        s->items[s->node.n++] = map->items[i];
    }
    if (plan && lists &&
        compare_is_text(plan, "plan", d)) /* rules that are not a list: the scheme rejects them */
        TSR_TRY(scheme_plan(c, s, plan, rules, d, err));
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    return tsr_quant_scheme_create(&s->scheme, c->job->registry, &s->node, NULL, what, d, err);
}

/* The scheme of an arm that was checked. */
static tsr_status scheme_of(struct compare *c, const struct compare_arm *a, struct arm_scheme *s,
                            struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    *s = (struct arm_scheme){ 0 };
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = scheme_make(c, a, s, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK && s->plan.file.doc)
        st = tsr_pipeline_plan_rules_fit(&s->plan, c->job->model, NULL, err);
    tsr_config_diag_destroy(d);
    return st;
}

tsr_status compare_arm_fingerprint(struct compare *c, const struct compare_arm *a, json_t **of,
                                   struct tsr_err *err)
{
    struct arm_scheme s;
    tsr_status        st = scheme_of(c, a, &s, err);
    if (st == TSR_OK)
        st = tsr_quant_fingerprint_make(s.scheme, c->job->registry, c->job->model,
                                        c->job->calibration, &s.node, of, err);
    scheme_free(&s);
    return st;
}

tsr_status compare_check_arm(struct compare *c, const struct compare_arm *a, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct arm_scheme s = { 0 };
    tsr_status        st = TSR_OK;
    if (a->quantize) {
        st = scheme_make(c, a, &s, d, err);
        scheme_free(&s);
    }
    if (!a->path || !*a->path || tsr_model_is_name(a->path))
        return st;
    char *path = tsr_path_join(c->job->state->dir, a->path);
    if (path && !tsr_path_exists(path))
        tsr_config_diag_error(d, a->mark, "paths are relative to the job file",
                              "arm '%.60s': there is no model at '%s'", a->name, path);
    free(path);
    return st;
}

tsr_status compare_arm_need(struct compare *c, const struct compare_arm *a, uint64_t *need,
                            struct tsr_err *err)
{
    struct arm_scheme s = { 0 };
    *need = 0;
    if (!a->quantize)
        return TSR_OK;
    tsr_status st = scheme_of(c, a, &s, err);
    if (st == TSR_OK)
        st = tsr_quant_scheme_needs(s.scheme, c->job->registry, c->job->model, need, err);
    scheme_free(&s);
    return st;
}

/* ---- models ------------------------------------------------------------------------- */

static char *model_path(const struct compare *c, const struct compare_arm *a)
{
    return tsr_model_is_name(a->path) ? tsr_strdup(a->path)
                                      : tsr_path_join(c->job->state->dir, a->path);
}

/* The same tokens must mean the same. */
static tsr_status check_tokenizer(const struct compare *c, const char *path, struct tsr_err *err)
{
    struct tsr_tokenizer *t = NULL;
    TSR_TRY(tsr_pipeline_job_load_tokenizer(&t, path, err));
    tsr_status st = TSR_OK;
    bool       agree = true;
    if (t && c->job->tokenizer && c->windows)
        st = tsr_eval_windows_agree(c->windows, c->job->tokenizer, t, &agree, err);
    else if (t && c->job->tokenizer)
        agree = strcmp(tsr_tokenizer_hash(t), tsr_tokenizer_hash(c->job->tokenizer)) == 0;
    if (st == TSR_OK && !agree)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s has another tokenizer than %s; arms are compared on the same tokens",
                      path, c->job->model_path);
    tsr_tokenizer_destroy(t);
    return st;
}

static tsr_status load_model(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    char *path = model_path(c, a);
    if (!path)
        return tsr_fail_nomem(err, strlen(a->path), "a path");
    tsr_logf(TSR_LOG_INFO, "loading %s", path);
    tsr_status st = c->keys.by_layers ? tsr_model_load_streamed(&a->own, path, err)
                                      : tsr_model_load(&a->own, path, false, err);
    if (st == TSR_OK && a->own->hp.vocab != c->job->model->hp.vocab)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s has a vocabulary of %llu, %s of %llu; they cannot be compared", path,
                      (unsigned long long)a->own->hp.vocab, c->job->model_path,
                      (unsigned long long)c->job->model->hp.vocab);
    if (st == TSR_OK)
        st = check_tokenizer(c, path, err);
    if (st == TSR_OK)
        st = tsr_pipeline_job_note_model(c->job, path, a->own->hash, err);
    free(path);
    return st;
}

/* Writes the original in a rotated basis, and loads that. */
static tsr_status turn(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct tsr_export_report  report;
    struct tsr_rotate_options how = tsr_pipeline_rotate_options(c->job, &a->rotation);
    how.replace = true;
    if (!(a->turned = compare_turned_path(c, a)))
        return tsr_fail_nomem(err, 64, "a path");
    TSR_TRY(tsr_rotate(c->job->model, a->turned, &how, &report, err));
    TSR_TRY(c->keys.by_layers ? tsr_model_load_streamed(&a->own, a->turned, err)
                              : tsr_model_load(&a->own, a->turned, false, err));
    return a->quantize && c->job->calibration
               ? tsr_quant_calibrate_like(&a->calibration, c->job->calibration, a->own, err)
               : TSR_OK;
}

static struct tsr_quant_calibration *calibration_of(const struct compare     *c,
                                                    const struct compare_arm *a)
{
    return a->calibration ? a->calibration : c->job->calibration;
}

/* By layers: into a folder of the job, to be read from there. */
static tsr_status store(struct compare *c, struct compare_arm *a, const struct arm_scheme *s,
                        struct tsr_err *err)
{
    struct tsr_model           *m = NULL;
    struct tsr_model_overlay   *o = NULL;
    uint64_t                    done;
    struct tsr_quantize_options qo = {
        .options = &s->node, .calibration = calibration_of(c, a), .again = true, .drop = true
    };
    if (!(qo.folder = a->stored = compare_stored_path(c, a)))
        return tsr_fail_nomem(err, 64, "a path");
    TSR_TRY(tsr_quantize_model(s->scheme, c->job->registry, compare_arm_model(c, a), &qo, &o, &done,
                               err));
    tsr_model_overlay_destroy(o);
    TSR_TRY(tsr_model_load_streamed(&m, a->stored, err));
    tsr_quant_calibration_destroy(a->calibration); /* of the rotated original, which ends here */
    a->calibration = NULL;
    tsr_model_destroy(a->own);
    a->own = m;
    return TSR_OK;
}

static tsr_status pack(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct arm_scheme s;
    tsr_status        st = scheme_of(c, a, &s, err);
    if (st == TSR_OK)
        st = c->keys.by_layers
                 ? store(c, a, &s, err)
                 : tsr_quant_scheme_apply(s.scheme, c->job->registry, compare_arm_model(c, a),
                                          calibration_of(c, a), &a->overlay, err);
    scheme_free(&s);
    return st;
}

tsr_status compare_arm_ready(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    if (a->ready)
        return TSR_OK;
    if (a->kind == COMPARE_MODEL)
        TSR_TRY(load_model(c, a, err));
    if (a->rotated)
        TSR_TRY(turn(c, a, err));
    if (a->quantize)
        TSR_TRY(pack(c, a, err));
    TSR_TRY(tsr_pipeline_tp_keys_open(c->job, &a->tp, compare_arm_model(c, a),
                                      compare_arm_overlay(c, a), TSR_ACT_F32, &a->ranks, err));
    if (a->ranks && (*c->measure.choices || c->measure.tasks.tasks))
        TSR_TRY(tsr_eval_tp_any_order(a->ranks, "questions", err));
    a->ready = true;
    return TSR_OK;
}

tsr_status compare_arm_engine(const struct compare *c, const struct compare_arm *a,
                              struct tsr_engine_options eo, struct tsr_engine **e,
                              struct tsr_err *err)
{
    eo.kv_dtype = a->kv;
    eo.kv_layers = a->kv_layers;
    eo.split = a->ranks ? tsr_eval_tp_split(a->ranks) : NULL;
    TSR_TRY(tsr_engine_create(e, c->job->registry, compare_arm_model(c, a), a->overlay, &eo, err));
    tsr_status st = tsr_engine_set_input_bits(*e, a->act_bits, err);
    if (st != TSR_OK) {
        tsr_engine_destroy(*e);
        *e = NULL;
    }
    return st;
}

void compare_check_by_layers(const struct compare *c, const struct tsr_config_node *node,
                             struct tsr_diag *d)
{
    bool ranks = false, cache = false, bits = false;
    for (uint64_t i = 0; i < c->n; i++) {
        ranks = ranks || c->arms[i].tp.simulate_tp;
        cache = cache || compare_arm_cache(&c->arms[i]);
        bits = bits || c->arms[i].act_bits;
    }
    if (c->keys.by_layers)
        tsr_pipeline_by_layers_check(NULL,
                                     c->do_speed              ? "speed"
                                     : *c->measure.choices    ? "choices"
                                     : c->measure.tasks.tasks ? "tasks"
                                     : c->keys.samples        ? "samples"
                                     : ranks                  ? "simulate_tp"
                                     : cache                  ? "kv"
                                     : bits                   ? "act_bits"
                                                              : NULL,
                                     node, d);
}

void compare_arm_release(struct compare_arm *a)
{
    tsr_eval_tp_close(a->ranks);
    tsr_model_overlay_destroy(a->overlay);
    tsr_quant_calibration_destroy(a->calibration);
    tsr_model_destroy(a->own);
    tsr_temp_folder_remove(a->stored);
    tsr_temp_folder_remove(a->turned);
    a->calibration = NULL;
    a->stored = a->turned = NULL;
    a->ranks = NULL;
    a->overlay = NULL;
    a->own = NULL;
    a->ready = false;
}

const struct tsr_model *compare_arm_model(const struct compare *c, const struct compare_arm *a)
{
    return a->own ? a->own : c->job->model;
}

const struct tsr_model_overlay *compare_arm_overlay(const struct compare     *c,
                                                    const struct compare_arm *a)
{
    return a->overlay ? a->overlay : compare_arm_model(c, a)->packed;
}
