/* Arms and the reference on the same tokens.  A few arms at a time are in memory; each stores its
 * result in the job folder before the next ones start. */
#include "base/log.h"
#include "base/mem.h"
#include "compare/compare.h"

#include <stdlib.h>

/* The current arms, preceded by the original or the base file if the others need it. */
struct group {
    struct compare_arm   **arm; /* [n] */
    uint64_t               n;
    struct tsr_eval_arm   *list; /* evaluated arms: [n_list]; the reference is list[0] */
    uint64_t               n_list;
    bool                   reference; /* list[0] is there for the others */
    struct tsr_kld_out    *save;
    struct tsr_states_out *states; /* rows that the original stores for later arms */
    bool                   more;   /* there are some */
};

/* ---- evaluation ---------------------------------------------------------------------- */

/* An engine, or by layers what runs in place of one. */
static tsr_status start_engine(struct compare *c, struct compare_arm *a, uint32_t act,
                               struct tsr_engine **e, struct tsr_eval_layers **l,
                               struct tsr_err *err)
{
    if (c->keys.by_layers)
        return tsr_eval_layers_open(l, c->job->registry, compare_arm_model(c, a), c->windows,
                                    (uint64_t)c->keys.by_layers, act, &c->job->on, err);
    struct tsr_engine_options eo = {
        .on = c->job->on, .act = act, .slots = 1, .context = c->windows->window
    };
    return compare_arm_engine(c, a, eo, e, err);
}

static void stop_engines(struct compare_arm *a)
{
    tsr_engine_destroy(a->engine);
    tsr_engine_destroy(a->engine_a8);
    tsr_eval_layers_close(a->layers);
    tsr_eval_layers_close(a->layers_a8);
    a->engine = a->engine_a8 = NULL;
    a->layers = a->layers_a8 = NULL;
}

/* What runs an arm's windows; NULL: not started. */
static struct tsr_engine *engine_of(const struct compare_arm *a)
{
    return a->layers ? tsr_eval_layers_engine(a->layers) : a->engine;
}

static void list_add(struct group *g, const char *name, struct tsr_engine *e,
                     struct tsr_eval_layers *l)
{
    g->list[g->n_list++] = (struct tsr_eval_arm){ .name = name, .engine = e, .layers = l };
}

static tsr_status list_arm(struct compare *c, struct group *g, struct compare_arm *a,
                           struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              a8 = c->measure.a8 && compare_arm_overlay(c, a);
    if (a->status != TSR_OK)
        return TSR_OK;
    tsr_status st =
        engine_of(a) ? TSR_OK : start_engine(c, a, TSR_ACT_F32, &a->engine, &a->layers, &e.err);
    if (st == TSR_OK && a8)
        st = start_engine(c, a, TSR_ACT_A8, &a->engine_a8, &a->layers_a8, &e.err);
    if (st != TSR_OK)
        return compare_arm_failed(a, st, e.text, err);
    if (a != &c->arms[0] || !g->n_list) /* else it is there as the reference */
        list_add(g, a->name, a->engine, a->layers);
    if (a8)
        list_add(g, a->name, a->engine_a8, a->layers_a8);
    return TSR_OK;
}

/* The reference goes first: the original's engine, or the base file. */
static tsr_status list_reference(struct compare *c, struct group *g, struct tsr_err *err)
{
    struct compare_arm *o = &c->arms[0];
    g->reference = c->base || c->measure.kl;
    if (c->base) {
        list_add(g, c->measure.base, NULL, NULL);
        g->list[0].base = c->base;
        return TSR_OK;
    }
    if (!g->reference)
        return TSR_OK;
    if (c->states) { /* it ran together with an earlier arm, and its head is enough */
        list_add(g, o->name, NULL, NULL);
        g->list[0].states = c->states;
        return TSR_OK;
    }
    TSR_TRY(start_engine(c, o, TSR_ACT_F32, &o->engine, &o->layers, err));
    list_add(g, o->name, o->engine, o->layers);
    return TSR_OK;
}

/* What evaluated an arm: with its engine, or with its layers. */
static struct tsr_eval_arm *found(struct group *g, const struct tsr_engine *e,
                                  const struct tsr_eval_layers *l)
{
    for (uint64_t i = 0; (e || l) && i < g->n_list; i++)
        if (g->list[i].engine == e && g->list[i].layers == l)
            return &g->list[i];
    return NULL;
}

static tsr_status open_save(struct compare *c, struct group *g, struct tsr_err *err)
{
    char *path = NULL;
    if (!*c->measure.save_base || c->base || c->arms[0].json)
        return TSR_OK;
    TSR_TRY(tsr_pipeline_job_output(c->job, c->measure.save_base, &path, err));
    tsr_status st = tsr_eval_kld_create(&g->save, path, c->windows, c->job->model->hp.vocab, err);
    free(path);
    struct tsr_eval_arm *original = found(g, c->arms[0].engine, c->arms[0].layers);
    if (st == TSR_OK && original)
        original->save = g->save;
    return st;
}

/* If there is no space for it, the original runs again with every group, and a message says so. */
static tsr_status no_states(struct compare *c, tsr_status st, const char *why, struct tsr_err *err)
{
    compare_states_end(c);
    if (st == TSR_E_NOMEM)
        return tsr_fail(err, st, "%s", why);
    tsr_logf(TSR_LOG_WARN, "the original is run again with the next arm: %s", why);
    return TSR_OK;
}

static tsr_status open_states(struct compare *c, struct group *g, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (!g->reference || c->base || c->states || !g->more)
        return TSR_OK;
    char *path = compare_states_path(c);
    if (!path)
        return tsr_fail_nomem(err, 64, "a path");
    tsr_status st = tsr_eval_states_create(&g->states, path, engine_of(&c->arms[0]),
                                           c->windows->scored, &e.err);
    free(path);
    return st == TSR_OK ? st : no_states(c, st, e.text, err);
}

static tsr_status close_states(struct compare *c, struct group *g, tsr_status st,
                               struct tsr_err *err)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_states_out *o = g->states;
    g->states = NULL;
    if (!o || st != TSR_OK) {
        tsr_eval_states_abort(o);
        return st;
    }
    char *path = compare_states_path(c);
    st = tsr_eval_states_commit(o, &e.err);
    if (st == TSR_OK && !path)
        st = tsr_fail_nomem(&e.err, 64, "a path");
    if (st == TSR_OK)
        st = tsr_eval_states_open(&c->states, path, c->job->registry, c->job->model, &c->job->on,
                                  c->windows->scored, &e.err);
    free(path);
    return st == TSR_OK ? st : no_states(c, st, e.text, err);
}

/* The file is of the original. */
static tsr_status close_save(const struct compare *c, struct group *g, tsr_status st,
                             struct tsr_err *err)
{
    struct tsr_kld_out *o = g->save;
    g->save = NULL;
    if (!o)
        return st;
    if (st == TSR_OK)
        st = tsr_pipeline_mapped_unchanged(compare_arm_model(c, &c->arms[0]), NULL, err);
    if (st == TSR_OK)
        return tsr_eval_kld_commit(o, err);
    tsr_eval_kld_abort(o);
    return st;
}

static void note_device(struct compare *c, const struct compare_arm *a)
{
    const struct tsr_engine *e = engine_of(a);
    if (e)
        (void)snprintf(c->device, sizeof c->device, "%s", tsr_engine_device(e));
}

static tsr_status evaluate(struct compare *c, struct group *g, struct tsr_err *err)
{
    TSR_TRY(list_reference(c, g, err));
    for (uint64_t i = 0; i < g->n; i++)
        TSR_TRY(list_arm(c, g, g->arm[i], err));
    if (!g->n_list)
        return TSR_OK;
    note_device(c, &c->arms[0]);
    for (uint64_t i = 0; !*c->device && i < g->n; i++)
        note_device(c, g->arm[i]);
    tsr_status st = open_save(c, g, err);
    if (st == TSR_OK)
        st = open_states(c, g, err);
    if (st == TSR_OK)
        st = tsr_eval_arms(g->list, g->n_list, g->reference ? 0 : g->n_list,
                           tsr_plugin_registry_pool(c->job->registry), c->windows, err);
    st = close_states(c, g, st, err);
    return close_save(c, g, st, err);
}

/* ---- what was found -------------------------------------------------------------------- */

static tsr_status samples_of(struct compare *c, struct compare_arm *a, json_t **texts,
                             struct tsr_err *err)
{
    *texts = json_array();
    if (!*texts)
        return tsr_fail_nomem(err, 64, "samples");
    if (!c->keys.samples)
        return TSR_OK;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(c->job, "samples", err));
    struct tsr_engine_options how = { .on = c->job->on,
                                      .act = (uint32_t)c->sample_act,
                                      .kv_dtype = a->kv,
                                      .kv_layers = a->kv_layers };
    return tsr_pipeline_sample_texts(c->job, compare_arm_model(c, a), a->overlay, c->keys.samples,
                                     &c->sample, false, c->job->seed, &how, *texts, a->sampled,
                                     NULL, err);
}

/* With the marks, which paired tests are made of. */
static tsr_status answers_of(struct compare *c, const struct compare_arm *a, json_t **out,
                             struct tsr_err *err)
{
    const struct tsr_model      *m = compare_arm_model(c, a);
    struct tsr_eval_choice_marks marks = { 0 };
    struct tsr_engine           *e = NULL;
    struct tsr_engine_options    eo = { .on = c->job->on, .act = TSR_ACT_F32, .slots = 1 };
    if (!c->choices)
        return TSR_OK;
    TSR_TRY(tsr_eval_choices_context(c->choices, c->job->tokenizer, m, &eo.context, err));
    tsr_status st = compare_arm_engine(c, a, eo, &e, err);
    if (st == TSR_OK)
        st = tsr_eval_choices_score(e, c->job->tokenizer, c->choices, &marks, err);
    if (st == TSR_OK) {
        *out = tsr_compare_choices_json(&marks, NULL, c->keys.alpha);
        if (!tsr_pipeline_json_put_text(*out, "marks", marks.marks))
            st = tsr_fail_nomem(err, marks.n, "the results");
    }
    tsr_engine_destroy(e);
    tsr_eval_choice_marks_free(&marks);
    return st;
}

/* Takes an arm's numbers out of the list and keeps them. */
static tsr_status take(struct compare *c, struct group *g, struct compare_arm *a,
                       struct tsr_err *err)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_eval_arm *f32 = found(g, a->engine, a->layers),
                        *a8 = found(g, a->engine_a8, a->layers_a8);
    const struct tsr_eval_arm *bad = f32 && f32->status != TSR_OK ? f32
                                     : a8 && a8->status != TSR_OK ? a8
                                                                  : NULL;
    json_t                    *texts = NULL, *questions = NULL, *tasks = NULL;
    if (a->status != TSR_OK)
        return TSR_OK;
    if (bad)
        return compare_arm_failed(a, bad->status, bad->error.text, err);
    tsr_status st = samples_of(c, a, &texts, &e.err);
    if (st == TSR_OK)
        st = answers_of(c, a, &questions, &e.err);
    if (st == TSR_OK)
        st = compare_tasks_run(c, a, &tasks, &e.err);
    if (st == TSR_OK)
        st = tsr_pipeline_mapped_unchanged(compare_arm_model(c, a), NULL, &e.err);
    if (st != TSR_OK) {
        json_decref(texts);
        json_decref(questions);
        json_decref(tasks);
        return compare_arm_failed(a, st, e.text, err);
    }
    if (f32) {
        a->at = f32->at;
        f32->at = (struct tsr_eval_trace){ 0 };
    }
    a->json = compare_arm_json(c, a, f32 ? &f32->result : NULL, a8 ? &a8->result : NULL, texts,
                               questions, tasks);
    if (!a->json)
        return tsr_fail_nomem(err, 256, "the results");
    TSR_TRY(compare_tasks_take(c, a, a->json, a->name, err));
    return compare_keep_store(c, a, err);
}

static tsr_status take_all(struct compare *c, struct group *g, struct tsr_err *err)
{
    for (uint64_t i = 0; i < g->n; i++)
        TSR_TRY(take(c, g, g->arm[i], err));
    if (c->base && g->n_list && !c->base_at.n) {
        c->base_at = g->list[0].at;
        g->list[0].at = (struct tsr_eval_trace){ 0 };
    }
    return TSR_OK;
}

static tsr_status run_group(struct compare *c, struct group *g, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    g->n_list = 0;
    if (c->do_eval)
        st = evaluate(c, g, err);
    if (st == TSR_OK)
        st = take_all(c, g, err);
    for (uint64_t i = 0; i < g->n_list; i++)
        tsr_eval_trace_free(&g->list[i].at);
    stop_engines(&c->arms[0]);
    for (uint64_t i = 0; i < g->n; i++) {
        stop_engines(g->arm[i]);
        if (!c->do_speed)
            compare_arm_release(g->arm[i]);
    }
    g->n = 0;
    return st;
}

/* Makes an arm ready to run, unless an earlier run has finished it. */
static tsr_status begin(struct compare *c, struct compare_arm *a, bool *wanted, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *wanted = false;
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    tsr_status st = compare_arm_of(c, a, &e.err);
    if (st == TSR_OK)
        st = compare_keep_load(c, a, &e.err);
    if (st == TSR_OK && a->json && !c->do_speed)
        compare_arm_release(a);
    if (st == TSR_OK && !a->json)
        st = compare_arm_ready(c, a, &e.err);
    if (st != TSR_OK)
        return compare_arm_failed(a, st, e.text, err);
    *wanted = !a->json;
    return TSR_OK;
}

static tsr_status run_groups(struct compare *c, struct group *g, struct tsr_err *err)
{
    for (uint64_t i = 0; i < c->n; i++) {
        bool wanted;
        TSR_TRY(begin(c, &c->arms[i], &wanted, err));
        if (i == 0 && c->arms[0].status != TSR_OK)
            return tsr_err_copy(err, c->arms[0].status, &c->arms[0].error.err);
        if (wanted)
            g->arm[g->n++] = &c->arms[i];
        /* the original goes with the first of the others */
        uint64_t others = g->n - (g->n && g->arm[0] == &c->arms[0]);
        g->more = i + 1 < c->n;
        if (others >= (uint64_t)c->keys.together)
            TSR_TRY(run_group(c, g, err));
    }
    if (g->n || (c->base && !c->base_at.n))
        TSR_TRY(run_group(c, g, err));
    compare_states_end(c);
    return TSR_OK;
}

tsr_status compare_run_arms(struct compare *c, struct tsr_err *err)
{
    struct group g = { .arm = tsr_new(c->n, sizeof(struct compare_arm *)),
                       .list = tsr_new(2 * c->n + 2, sizeof(struct tsr_eval_arm)) };
    tsr_status   st = g.arm && g.list ? run_groups(c, &g, err)
                                      : tsr_fail_nomem(err, c->n * sizeof *g.list, "arms");
    free(g.arm);
    free(g.list);
    return st;
}
