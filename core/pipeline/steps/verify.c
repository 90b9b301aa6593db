#include "pipeline/steps/verify.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "eval/chain.h"
#include "eval/statistics.h"
#include "pipeline/codecs.h"
#include "pipeline/compensating.h"
#include "pipeline/step.h"
#include "plan/file/plan_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALPHA     0.05
#define MAX_BYTES (UINT64_C(1) << 28) /* of a file of indicators */
#define MAX_DEPTH 32u

/* Everything that a measurement opens. */
struct whole {
    struct tsr_pipeline_job               *job;
    const struct tsr_planning_verify_keys *k;
    const char                            *path; /* of the plan */
    struct tsr_plan_file                   plan;
    struct tsr_pipeline_compensating       compensating;
    struct tsr_engine_options              eo; /* of every stage */
    struct tsr_eval_windows               *windows;
    struct tsr_engine                     *reference;
    struct tsr_eval_chain                 *chain;
    struct tsr_tp                        **ranks; /* [stages] */
};

static void close_chain(struct whole *z)
{
    tsr_eval_chain_destroy(z->chain);
    z->chain = NULL;
    for (uint64_t i = 0; z->ranks && i < z->plan.n_stages; i++) {
        tsr_eval_tp_close(z->ranks[i]);
        z->ranks[i] = NULL;
    }
}

static void close_whole(struct whole *z)
{
    close_chain(z);
    free(z->ranks);
    tsr_engine_destroy(z->reference);
    tsr_eval_windows_destroy(z->windows);
    tsr_pipeline_compensating_close(&z->compensating);
    tsr_plan_file_free(&z->plan);
}

/* ---- what there is ----------------------------------------------------------------- */

static tsr_status open_plan(struct whole *z, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_plan_file_load(&z->plan, z->path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    if (st == TSR_OK && !(z->ranks = tsr_new(z->plan.n_stages, sizeof *z->ranks)))
        st = tsr_fail_nomem(err, z->plan.n_stages * sizeof *z->ranks, "the stages of a plan");
    return st;
}

static tsr_status open_compensation(struct whole *z, struct tsr_err *err)
{
    const struct tsr_pipeline_compensate_keys k = { .select = TSR_COMPENSATE_SELECT_DYNAMIC,
                                                    .positions = TSR_PIPELINE_POSITIONS_ALL,
                                                    .compensate_plan = "" };
    bool                                      any = false;
    for (uint64_t i = 0; i < z->plan.n_stages; i++)
        any = any || z->plan.stages[i].compensated;
    return any ? tsr_pipeline_compensating_open(&z->compensating, &k, z->path, z->job->packed,
                                                z->job->model, z->job->seed, &z->eo.compensate, err)
               : TSR_OK;
}

/* Tokens of a sequence that the indicators were measured on. */
static tsr_status window_of(const char *indicators, uint64_t *window, struct tsr_err *err)
{
    json_t *j = NULL, *calibration = NULL;
    int64_t seqlen = 0;
    TSR_TRY(tsr_json_load(&j, indicators, MAX_BYTES, MAX_DEPTH, err));
    tsr_status st =
        tsr_json_sub(j, indicators, "calibration", false, JSON_OBJECT, &calibration, err);
    if (st == TSR_OK && calibration)
        st = tsr_json_int(calibration, indicators, "seqlen", false, 1, 1 << 30, &seqlen, err);
    json_decref(j);
    *window = (uint64_t)seqlen;
    return st;
}

static tsr_status open_windows(struct whole *z, const char *indicators, struct tsr_err *err)
{
    struct tsr_pipeline_job *job = z->job;
    struct tsr_eval_options  o = { .protocol = TSR_EVAL_PPL_GPTQ_2048,
                                   .rows = TSR_EVAL_ROWS_FILE,
                                   .window = (uint64_t)z->k->window,
                                   .max_windows = (uint64_t)z->k->max_windows };
    if (!o.window && *indicators)
        TSR_TRY(window_of(indicators, &o.window, err));
    char *text = tsr_pipeline_job_input(job, z->k->text);
    if (!text)
        return tsr_fail_nomem(err, strlen(z->k->text), "a path");
    tsr_status st = tsr_eval_windows_create(&z->windows, job->tokenizer, job->model, text, &o, err);
    free(text);
    if (st == TSR_OK)
        tsr_logf(TSR_LOG_INFO,
                 "verifies the plan on %llu windows of %llu tokens, each once by the original and "
                 "once by the plan",
                 (unsigned long long)z->windows->n, (unsigned long long)z->windows->window);
    return st;
}

static tsr_status open_reference(struct whole *z, struct tsr_err *err)
{
    struct tsr_engine_options eo = z->eo;
    eo.act = TSR_ACT_F32;
    eo.kv_dtype = TSR_F32;
    eo.kv_layers = NULL;
    eo.compensate = NULL;
    return tsr_engine_create(&z->reference, z->job->registry, z->job->model, NULL, &eo, err);
}

/* ---- the stages -------------------------------------------------------------------- */

/* The sums of a stage as its devices make them. */
static tsr_status open_ranks(struct whole *z, uint64_t i, int phase, struct tsr_err *err)
{
    const struct tsr_plan_stage *s = &z->plan.stages[i];
    const struct tsr_plan_way   *w = &s->collective[phase];
    struct tsr_pipeline_tp_keys  k = { .simulate_tp = s->tp, .codec = w->codec, .codec_state = "" };
    enum tsr_comm_algorithm      a = TSR_COMM_ALL_GATHER;
    char                        *folder = NULL, *state = NULL;
    if (tsr_comm_is_auto(w->codec) || strcmp(w->algorithm, "auto") == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: ranks choose codec and algorithm of a stage when they start; name "
                        "both, so that they can be verified",
                        z->path);
    if (*w->algorithm)
        TSR_TRY(tsr_comm_algorithm_find(&a, w->algorithm, err));
    k.algorithm = a;
    if (*w->state) {
        folder = tsr_path_dir(z->path);
        state = folder ? tsr_path_join(folder, w->state) : NULL;
        free(folder);
        if (!state)
            return tsr_fail_nomem(err, strlen(w->state), "a path");
        k.codec_state = state;
    }
    tsr_status st = tsr_pipeline_tp_keys_open(z->job, &k, z->job->model, z->job->overlay, z->eo.act,
                                              &z->ranks[i], err);
    free(state);
    return st;
}

static tsr_status open_stage(struct whole *z, uint64_t i, int phase, struct tsr_err *err)
{
    const struct tsr_plan_stage *s = &z->plan.stages[i];
    struct tsr_eval_chain_stage *c = &z->chain->stages[i];
    struct tsr_engine_options    eo = z->eo;
    bool                         last = i + 1 == z->plan.n_stages;
    eo.first = s->first;
    eo.end = c->end = s->first + s->count;
    eo.no_embed = i > 0;
    eo.no_head = !last;
    if (s->tp > 1) {
        TSR_TRY(open_ranks(z, i, phase, err));
        eo.split = tsr_eval_tp_split(z->ranks[i]);
    }
    c->sends = *s->send[phase].codec &&
               (!last || (z->plan.head == TSR_PLAN_HEAD_FIRST && z->plan.n_stages > 1));
    if (c->sends) {
        tsr_status st = tsr_eval_link_open(&c->link, z->job->registry, s->send[phase].codec, err);
        c->sends = st == TSR_OK;
        TSR_TRY(st);
    }
    return tsr_engine_create(&c->engine, z->job->registry, z->job->model, z->job->overlay, &eo,
                             err);
}

static tsr_status open_chain(struct whole *z, int phase, struct tsr_err *err)
{
    TSR_TRY(tsr_eval_chain_create(&z->chain, z->plan.n_stages, err));
    for (uint64_t i = 0; i < z->plan.n_stages; i++)
        TSR_TRY(open_stage(z, i, phase, err));
    return TSR_OK;
}

/* Whether prefill goes by other codecs than decode. */
static bool phases_differ(const struct tsr_plan_file *p)
{
    bool differ = false;
    for (uint64_t i = 0; i < p->n_stages; i++) {
        const struct tsr_plan_stage *s = &p->stages[i];
        differ =
            differ || strcmp(s->send[0].codec, s->send[1].codec) != 0 ||
            (s->tp > 1 && (strcmp(s->collective[0].codec, s->collective[1].codec) != 0 ||
                           strcmp(s->collective[0].algorithm, s->collective[1].algorithm) != 0 ||
                           strcmp(s->collective[0].state, s->collective[1].state) != 0));
    }
    return differ;
}

/* ---- KL ---------------------------------------------------------------------------- */

/* The mean over tokens, and its interval over windows, of which tokens depend on each other. */
static tsr_status summarize(const struct whole *z, const float *kl, uint64_t n,
                            struct tsr_step_verified *out, struct tsr_err *err)
{
    const struct tsr_eval_windows *w = z->windows;
    struct tsr_eval_difference     d;
    double                        *v = tsr_new(n, sizeof *v);
    uint64_t                      *start = tsr_new(w->n + 1, sizeof *start);
    tsr_status st = v && start ? TSR_OK : tsr_fail_nomem(err, n * sizeof *v, "a verification");
    for (uint64_t i = 0; st == TSR_OK && i < n; i++)
        v[i] = kl[i];
    for (uint64_t i = 0; st == TSR_OK && i < w->n; i++)
        start[i + 1] = start[i] + (w->start[i + 1] - w->start[i] - w->score_from[i]);
    if (st == TSR_OK) {
        tsr_eval_paired_difference(v, start, w->n, ALPHA, &d);
        out->kl = d.mean;
        out->half = (d.high - d.low) / 2;
    }
    free(v);
    free(start);
    return st;
}

static tsr_status measure_phase(struct whole *z, int phase, struct tsr_step_verified *out,
                                struct tsr_err *err)
{
    struct tsr_eval_arm *arms = tsr_new(2, sizeof *arms);
    if (!arms)
        return tsr_fail_nomem(err, 2 * sizeof *arms, "a verification");
    tsr_status st = open_chain(z, phase, err);
    arms[0] = (struct tsr_eval_arm){ .name = "the plan", .chain = z->chain };
    arms[1] = (struct tsr_eval_arm){ .name = "the original", .engine = z->reference };
    if (st == TSR_OK)
        st = tsr_eval_arms(arms, 2, 1, tsr_plugin_registry_pool(z->job->registry), z->windows, err);
    if (st == TSR_OK && arms[0].status != TSR_OK)
        st = tsr_err_copy(err, arms[0].status, &arms[0].error.err);
    if (st == TSR_OK)
        st = summarize(z, arms[0].at.kl, arms[0].at.n, out, err);
    tsr_eval_trace_free(&arms[0].at);
    tsr_eval_trace_free(&arms[1].at);
    free(arms);
    close_chain(z);
    return st;
}

static tsr_status measure(struct whole *z, const char *indicators, struct tsr_step_verified *out,
                          struct tsr_err *err)
{
    TSR_TRY(open_plan(z, err));
    if (z->plan.layers != z->job->model->hp.layers)
        return tsr_fail(err, TSR_E_INPUT, "%s: the plan is for %llu layers, %s has %llu", z->path,
                        (unsigned long long)z->plan.layers, z->job->model->path,
                        (unsigned long long)z->job->model->hp.layers);
    TSR_TRY(open_windows(z, indicators, err));
    z->eo = (struct tsr_engine_options){ .on = z->job->on,
                                         .act = (uint32_t)z->k->act,
                                         .kv_dtype = (uint32_t)z->plan.load.kv,
                                         .kv_layers = z->plan.load.kv_layers,
                                         .slots = 1,
                                         .context = z->windows->window };
    TSR_TRY(open_reference(z, err));
    TSR_TRY(open_compensation(z, err));
    TSR_TRY(measure_phase(z, TSR_PLAN_DECODE, out, err));
    if (phases_differ(&z->plan)) {
        struct tsr_step_verified other = *out;
        TSR_TRY(measure_phase(z, TSR_PLAN_PREFILL, &other, err));
        *out = other.kl > out->kl ? other : *out;
    }
    out->tokens = z->windows->scored;
    out->windows = z->windows->n;
    out->window = z->windows->window;
    (void)snprintf(out->text_hash, sizeof out->text_hash, "%s", z->windows->text_hash);
    return TSR_OK;
}

tsr_status tsr_step_verify_measure(struct tsr_pipeline_job *job, const char *plan,
                                   const char *indicators, const struct tsr_planning_verify_keys *k,
                                   struct tsr_step_verified *out, struct tsr_err *err)
{
    struct whole z = { .job = job, .k = k, .path = plan };
    *out = (struct tsr_step_verified){ .kl = NAN, .half = NAN };
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "the verification of a plan", err));
    if (!job->overlay)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: nothing is packed by this plan; put quantize: {plan: FILE} after it",
                        plan);
    tsr_status st = measure(&z, indicators, out, err);
    close_whole(&z);
    return st;
}
