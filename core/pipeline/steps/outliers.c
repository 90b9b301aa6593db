/* outliers: which input channels of a layer are large from token to token, and how fast the error of its linears
 * falls as channels are added back (arXiv 2412.20185, Figures 4 and 5). */
#include "pipeline/steps/outliers.h"

#include "base/mem.h"
#include "base/rng.h"
#include "compensate/compensation.h"
#include "compensate/select.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 1024u /* channels whose places are listed */

#define S struct tsr_step_outliers_options
static const struct tsr_option options[] = {
    TSR_OPTION_STRING(S, prompt, "Large language models are", "Text that is continued."),
    TSR_OPTION_INT(S, layer, -1, -1, 1 << 20, NULL, "Decoder layer, from 0; -1: the middle one."),
    TSR_OPTION_INT(S, expert, -1, -1, 1 << 20, NULL,
                   "Expert, in a layer with experts; -1: the first that the token `at` takes."),
    TSR_OPTION_INT(S, tokens, 100, 1, 100000, "tokens",
                   "Tokens that are generated, the likeliest each time."),
    TSR_OPTION_INT(S, at, 7, 1, 100000, NULL, "Which of them the errors are taken at, from 1."),
    TSR_OPTION_ENUM(S, site, TSR_MODEL_SITE_DOWN_IN, tsr_step_outliers_sites,
                    "Input whose largest channels are listed."),
    TSR_OPTION_REAL(S, share, 5, 0.01, 100, "%", "Share of the channels that counts as large."),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL, "Of the random order; -1: the job's seed."),
};
#undef S

/* ---- token by token ---------------------------------------------------------------------------- */

static tsr_status note_large(struct tsr_step_outliers_run *w, const float *x, uint64_t cols,
                             struct tsr_err *err)
{
    json_t *one = json_array();
    bool    ok = json_array_append_new(w->large, one) == 0;
    w->taken++;
    tsr_compensate_select_exact(x, cols, w->count, w->list, w->scratch);
    for (uint32_t i = 1; i <= w->list[0] && ok; i++) {
        w->times[w->list[i]]++;
        if (w->list[i] < SHOWN)
            ok = json_array_append_new(one, json_integer(w->list[i])) == 0;
    }
    if (w->list[0] > 0) {
        w->recall += (double)tsr_compensate_select_common(w->fixed, w->list) / (double)w->list[0];
        if (w->taken > 1)
            w->overlap +=
                (double)tsr_compensate_select_common(w->last, w->list) / (double)w->list[0];
    }
    memcpy(w->last, w->list, (1 + w->count) * sizeof *w->list);
    return ok ? TSR_OK : tsr_fail_nomem(err, w->count * sizeof(json_t), "channels");
}

static tsr_status tap(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                      uint64_t cols, struct tsr_err *err)
{
    struct tsr_step_outliers_run *w = ctx;
    enum tsr_site                 kind = tsr_model_site_kind(site);
    bool                          at = w->token == (uint64_t)w->o->at;
    if (w->token == 0 || layer != w->layer || n != 1)
        return TSR_OK;
    if (w->looking) { /* they run in rising order */
        if (at && site >= TSR_MODEL_SITE_EXPERTS && !w->reached) {
            w->expert = tsr_model_site_expert(site);
            w->reached = true;
        }
        return TSR_OK;
    }
    if (kind >= TSR_MODEL_SITES || site != tsr_step_outliers_place(w, (int)kind))
        return TSR_OK;
    if (at) {
        memcpy(w->x[kind], x, cols * sizeof *x);
        w->reached = w->reached || kind == TSR_MODEL_SITE_DOWN_IN;
    }
    return kind == (enum tsr_site)w->o->site ? note_large(w, x, cols, err) : TSR_OK;
}

static uint32_t likeliest(const float *v, uint64_t n)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++)
        best = v[i] > v[best] ? i : best;
    return (uint32_t)best;
}

static tsr_status generate(struct tsr_step_outliers_run *w, struct tsr_engine *e,
                           const struct tsr_tokenizer_ids *prompt, struct tsr_err *err)
{
    uint64_t                 vocab = w->m->hp.vocab;
    struct tsr_engine_token *t = tsr_new(prompt->n, sizeof *t);
    float                   *logits = tsr_new(vocab, sizeof *logits);
    tsr_status st = t && logits ? TSR_OK : tsr_fail_nomem(err, vocab * sizeof *logits, "logits");
    for (uint64_t i = 0; i < prompt->n && st == TSR_OK; i++)
        t[i] = (struct tsr_engine_token){ .id = prompt->v[i], .logits = i + 1 == prompt->n };
    if (st == TSR_OK)
        st = tsr_engine_forward(e, t, prompt->n, logits, err);
    uint64_t last = (uint64_t)(w->looking ? w->o->at : w->o->tokens);
    for (w->token = 1; w->token <= last && st == TSR_OK; w->token++) {
        t[0] = (struct tsr_engine_token){ .id = likeliest(logits, vocab),
                                          .logits = true,
                                          .decode = true };
        st = tsr_engine_forward(e, t, 1, logits, err);
        if (st == TSR_OK && tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
    }
    free(t);
    free(logits);
    return st;
}

static tsr_status watch(struct tsr_step_outliers_run *w, struct tsr_err *err)
{
    struct tsr_tokenizer_ids  prompt = { 0 };
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options eo = {
        .on = w->job->on, .act = TSR_ACT_F32, .kv_dtype = TSR_F32, .slots = 1
    };
    tsr_status st = tsr_tokenize(w->job->tokenizer, w->o->prompt, strlen(w->o->prompt),
                                 TSR_TOKENIZER_SPECIAL, &prompt, err);
    if (st == TSR_OK && prompt.n == 0)
        st = tsr_fail(err, TSR_E_INPUT, "prompt: the text has no tokens");
    eo.context = prompt.n + (uint64_t)w->o->tokens;
    if (st == TSR_OK)
        st = tsr_engine_create(&e, w->job->registry, w->m, w->job->overlay, &eo, err);
    if (st == TSR_OK) {
        tsr_engine_set_tap(e, tap, w);
        st = generate(w, e, &prompt, err);
        tsr_engine_set_tap(e, NULL, NULL);
    }
    tsr_engine_destroy(e);
    tsr_tokenizer_ids_free(&prompt);
    return st;
}

/* Which expert is watched: the one that was given, or what the token `at` takes. */
static tsr_status find_expert(struct tsr_step_outliers_run *w, struct tsr_err *err)
{
    uint64_t experts = w->m->hp.experts;
    w->sparse = w->m->hp.sparse && w->m->hp.sparse[w->layer];
    if (w->o->expert >= 0 && (!w->sparse || (uint64_t)w->o->expert >= experts))
        return tsr_fail(err, TSR_E_INPUT,
                        "expert: %lld; layer %llu has %llu experts, counted from 0",
                        (long long)w->o->expert, (unsigned long long)w->layer,
                        (unsigned long long)(w->sparse ? experts : 0));
    w->expert = w->o->expert >= 0 ? (uint64_t)w->o->expert : 0;
    if (!w->sparse || w->o->expert >= 0)
        return TSR_OK;
    w->looking = true;
    TSR_TRY(watch(w, err));
    w->looking = false;
    w->token = 0;
    w->reached = false;
    return TSR_OK;
}

static tsr_status watch_expert(struct tsr_step_outliers_run *w, struct tsr_err *err)
{
    TSR_TRY(watch(w, err));
    return w->reached
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT,
                          "expert: token %lld does not take expert %llu in layer %llu; leave the "
                          "key out for one that it takes",
                          (long long)w->o->at, (unsigned long long)w->expert,
                          (unsigned long long)w->layer);
}

/* ---- the step ------------------------------------------------------------------------------------- */

static json_t *result(const struct tsr_step_outliers_run *w, json_t *at)
{
    const struct tsr_step_outliers_options *o = w->o;
    uint64_t cols = w->c->site[w->layer][tsr_step_outliers_place(w, (int)o->site)].cols, often = 0;
    json_t  *j = json_object();
    for (uint64_t i = 0; i < cols; i++)
        often += w->taken && UINT64_C(2) * w->times[i] >= w->taken;
    bool ok = tsr_pipeline_json_put_int(j, "layer", w->layer) &&
              tsr_pipeline_json_put_text(j, "prompt", o->prompt) &&
              tsr_pipeline_json_put_int(j, "tokens", (uint64_t)o->tokens) &&
              tsr_pipeline_json_put_int(j, "at", (uint64_t)o->at) &&
              tsr_pipeline_json_put_int(j, "residual_bits", w->c->bits) &&
              tsr_pipeline_json_put(j, "sites", json_incref(at)) &&
              tsr_pipeline_json_put_text(j, "site", tsr_step_outliers_sites[o->site].name) &&
              tsr_pipeline_json_put_int(j, "inputs", cols) &&
              tsr_pipeline_json_put_real(j, "share", o->share) &&
              tsr_pipeline_json_put_int(j, "count", w->count) &&
              tsr_pipeline_json_put_int(j, "often", often) &&
              tsr_pipeline_json_put_real(j, "again",
                                         w->taken > 1 ? w->overlap / (double)(w->taken - 1)
                                                      : (double)NAN) &&
              tsr_pipeline_json_put_real(j, "recall", w->recall / (double)w->taken) &&
              tsr_pipeline_json_put(j, "large", json_incref(w->large));
    if (ok && w->sparse)
        ok = tsr_pipeline_json_put_int(j, "expert", w->expert) &&
             tsr_pipeline_json_put_int(j, "taken", w->taken);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static void print(const json_t *r, FILE *to)
{
    const json_t *s;
    size_t        i;
    const json_t *expert = json_object_get(r, "expert");
    (void)fprintf(to, "layer %lld, token %lld: channels that halve the error of the outputs\n",
                  (long long)json_integer_value(json_object_get(r, "layer")),
                  (long long)json_integer_value(json_object_get(r, "at")));
    if (expert)
        (void)fprintf(to, "  gate_up and down of expert %lld\n",
                      (long long)json_integer_value(expert));
    json_array_foreach (json_object_get(r, "sites"), i, s)
        (void)fprintf(to, "  %-8s %5.1f %% by magnitude, %5.1f %% at random\n",
                      json_string_value(json_object_get(s, "name")),
                      100 * json_number_value(json_object_get(s, "half_sorted")),
                      100 * json_number_value(json_object_get(s, "half_random")));
    (void)fprintf(to,
                  "the largest %lld of %lld inputs of %s over %lld tokens: %.1f %% are the same as "
                  "at the token before, %lld channels are among them half of the time; the "
                  "calibration's finds %.1f %%\n",
                  (long long)json_integer_value(json_object_get(r, "count")),
                  (long long)json_integer_value(json_object_get(r, "inputs")),
                  json_string_value(json_object_get(r, "site")),
                  (long long)json_integer_value(json_object_get(r, expert ? "taken" : "tokens")),
                  100 * json_number_value(json_object_get(r, "again")),
                  (long long)json_integer_value(json_object_get(r, "often")),
                  100 * json_number_value(json_object_get(r, "recall")));
}

static tsr_status make_room(struct tsr_step_outliers_run *w, struct tsr_err *err)
{
    const struct tsr_compensate_site_profile *all = w->c->site[w->layer];
    uint64_t cols = all[tsr_step_outliers_place(w, (int)w->o->site)].cols;
    bool     ok = true;
    for (int s = 0; s < TSR_MODEL_SITES; s++) {
        const struct tsr_compensate_site_profile *p = &all[tsr_step_outliers_place(w, s)];
        if (!p->top)
            return tsr_fail(err, TSR_E_INPUT, "layer %llu: the linears after %s have no residuals",
                            (unsigned long long)w->layer, tsr_step_outliers_sites[s].name);
        w->x[s] = tsr_new(p->cols, sizeof *w->x[s]);
        ok = ok && w->x[s];
    }
    w->count = (uint64_t)ceil(w->o->share / 100 * (double)cols);
    w->list = tsr_new(1 + cols, sizeof *w->list);
    w->last = tsr_new(1 + cols, sizeof *w->last);
    w->fixed = tsr_new(1 + cols, sizeof *w->fixed);
    w->scratch = tsr_new(cols, sizeof *w->scratch);
    w->times = tsr_new(cols, sizeof *w->times);
    w->large = json_array();
    if (!ok || !w->list || !w->last || !w->fixed || !w->scratch || !w->times || !w->large)
        return tsr_fail_nomem(err, cols * sizeof *w->list, "channels");
    tsr_compensate_select_top(all[tsr_step_outliers_place(w, (int)w->o->site)].meansq, cols,
                              w->count, w->fixed, w->scratch);
    return TSR_OK;
}

static tsr_status find(struct tsr_step_outliers_run *w, struct tsr_err *err)
{
    const struct tsr_step_outliers_options *o = w->o;
    json_t                                 *at = json_array(), *j = NULL;
    w->m = w->job->model;
    w->layer = o->layer < 0 ? w->m->hp.layers / 2 : (uint64_t)o->layer;
    tsr_status st = TSR_OK;
    if (w->layer >= w->m->hp.layers)
        st = tsr_fail(err, TSR_E_INPUT, "layer: %llu of %llu layers, counted from 0",
                      (unsigned long long)w->layer, (unsigned long long)w->m->hp.layers);
    if (st == TSR_OK)
        st = w->job->packed ? tsr_compensation_open(&w->c, w->job->packed, w->m, err)
                            : tsr_compensation_of_model(&w->c, w->m, err);
    if (st == TSR_OK)
        st = find_expert(w, err);
    if (st == TSR_OK)
        st = make_room(w, err);
    if (st == TSR_OK)
        st = watch_expert(w, err);
    for (int s = 0; s < TSR_MODEL_SITES && st == TSR_OK; s++)
        st = tsr_step_outliers_site(w, s, at, err);
    if (st == TSR_OK)
        st = tsr_pipeline_mapped_unchanged(w->m, w->c, err);
    if (st == TSR_OK) {
        j = result(w, at);
        if (j && !w->job->json)
            print(j, stdout);
        st = tsr_pipeline_step_result(w->job, "outliers", j, err);
    }
    json_decref(at);
    return st;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct tsr_step_outliers_run w = { .job = job, .o = opts };
    (void)node;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "step 'outliers'", err));
    tsr_status st = find(&w, err);
    for (int s = 0; s < TSR_MODEL_SITES; s++)
        free(w.x[s]);
    free(w.list);
    free(w.last);
    free(w.fixed);
    free(w.scratch);
    free(w.times);
    json_decref(w.large);
    tsr_compensation_destroy(w.c);
    return st;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_step_outliers_options *o = opts;
    const struct tsr_config_node           *at = tsr_config_node_get(node, "at");
    (void)job;
    (void)err;
    if (o->at > o->tokens)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, "take a smaller one, or more tokens",
                              "at: token %lld of %lld", (long long)o->at, (long long)o->tokens);
    return TSR_OK;
}

const struct tsr_pipeline_step tsr_step_outliers = {
    .name = "outliers",
    .summary = "follows the largest input channels of a layer from token to token",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tsr_step_outliers_options),
    .check = check,
    .run = run,
    .print = print,
};
