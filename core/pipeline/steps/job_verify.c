/* Plans that are measured as a whole and solved again: docs/decisions/verified-plans.md. */
#include "pipeline/job.h"

#include "base/log.h"
#include "pipeline/step.h"
#include "pipeline/steps/verify.h"
#include "pipeline/steps/verify_journal.h"
#include "planning/planning.h"
#include "quant/quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct tsr_pipeline_step tsr_step_calibrate, tsr_step_compensate, tsr_step_plan,
    tsr_step_quantize;

/* ---- which steps ------------------------------------------------------------------- */

static const struct tsr_planning_plan_keys *verified(const struct tsr_pipeline_job_step *s)
{
    return s->step == &tsr_step_plan && tsr_planning_verifies(s->opts) ? s->opts : NULL;
}

/* Whether a step makes a part of what a plan says. */
static bool makes(const struct tsr_pipeline_job_step *s)
{
    return s->step == &tsr_step_quantize || s->step == &tsr_step_calibrate ||
           s->step == &tsr_step_compensate;
}

/* The last step that makes a part of plan p; p where there is none. */
static uint64_t last_of(const struct tsr_pipeline_job_state *s, uint64_t p)
{
    uint64_t last = p;
    for (uint64_t i = p + 1; i < s->n && s->steps[i].step != &tsr_step_plan; i++)
        last = makes(&s->steps[i]) ? i : last;
    return last;
}

static bool packs(const struct tsr_pipeline_job_state *s, uint64_t from, uint64_t to)
{
    bool any = false;
    for (uint64_t i = from; i < to; i++)
        any = any || s->steps[i].step == &tsr_step_quantize;
    return any;
}

static void check_one(const struct tsr_pipeline_job *job, uint64_t p, struct tsr_diag *d)
{
    const struct tsr_pipeline_job_state *s = job->state;
    const struct tsr_planning_plan_keys *k = verified(&s->steps[p]);
    const struct tsr_config_mark        *at = &k->verify->mark;
    uint64_t                             last = last_of(s, p);
    if (packs(s, 0, p))
        tsr_config_diag_error(d, at, "put the plan first",
                              "'verify' measures what a plan makes of the original, and a step "
                              "'quantize' comes before this plan");
    if (!packs(s, p + 1, last + 1))
        tsr_config_diag_error(d, at,
                              job->verb ? "use it in a job file"
                                        : "add - quantize: {plan: plan.yaml}",
                              "'verify' measures what a step 'quantize' after the plan packs");
    for (uint64_t i = p + 1; i < last; i++)
        if (!makes(&s->steps[i]))
            tsr_config_diag_error(d, &s->steps[i].key->mark, "put it after them",
                                  "step '%s' is between a plan that is verified and the last step "
                                  "that makes a part of it, '%s'",
                                  s->steps[i].step->name, s->steps[last].step->name);
}

void tsr_pipeline_job_verify_check(const struct tsr_pipeline_job *job, struct tsr_diag *d)
{
    const struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++)
        if (s->steps[i].opts && verified(&s->steps[i]))
            check_one(job, i, d);
}

static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const json_t *newest(const json_t *attempts)
{
    size_t n = json_array_size(attempts);
    return n ? json_array_get(attempts, n - 1) : NULL;
}

/* ---- the loop ---------------------------------------------------------------------- */

tsr_status tsr_pipeline_job_verify_begin(struct tsr_pipeline_job *job, uint64_t i,
                                         struct tsr_err *err)
{
    struct tsr_pipeline_job_step        *p = &job->state->steps[i];
    const struct tsr_planning_plan_keys *k = verified(p);
    if (!k)
        return TSR_OK;
    p->results = json_object_size(job->results);
    p->inputs = job->calibration != NULL;
    return p->attempts ? TSR_OK : tsr_step_verify_resume(job, p, err); /* else this run is at it */
}

/* What the steps after the plan made goes, so that they make it anew: first from the folder, so that a run that is cut
 * here repeats the attempt. */
static tsr_status take_back(struct tsr_pipeline_job *job, uint64_t p, uint64_t last,
                            struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    if (job->packed)
        TSR_TRY(tsr_quant_packed_model_forget(job->packed, job->model, err));
    tsr_model_overlay_destroy(job->overlay);
    job->overlay = NULL;
    free(job->packed);
    job->packed = NULL;
    if (!s->steps[p].inputs) {
        tsr_quant_calibration_destroy(job->calibration);
        job->calibration = NULL;
    }
    while (json_object_size(job->results) > s->steps[p].results) {
        const char *key = NULL, *name;
        json_t     *one;
        size_t      n = 0;
        json_object_foreach (job->results, name, one)
            key = n++ == s->steps[p].results ? name : key;
        (void)json_object_del(job->results, key);
    }
    for (uint64_t i = p; i <= last; i++)
        s->steps[i].done = false;
    return TSR_OK;
}

/* ---- a measurement ----------------------------------------------------------------- */

/* The result of the plan step, whose table says what it promised. */
static json_t *result_of(const struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *p)
{
    char key[40] = "plan";
    if (p->nth > 1)
        (void)snprintf(key, sizeof key, "plan[%llu]", (unsigned long long)p->nth);
    return json_object_get(job->results, key);
}

static tsr_status measured(struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                           const struct tsr_planning_verify_keys *v, struct tsr_step_verified *m,
                           struct tsr_err *err)
{
    char      *plan = NULL, *indicators = NULL;
    tsr_status st = tsr_pipeline_job_in_folder(job, k->to, &plan, err);
    if (st == TSR_OK)
        st = tsr_step_verify_indicators(job, k, &indicators, err);
    if (st == TSR_OK)
        st = tsr_step_verify_measure(job, plan, indicators, v, m, err);
    free(plan);
    free(indicators);
    return st;
}

/* {"limit", "kl", "half", "measured", "measured_half"} of a plan. */
static tsr_status attempt(const json_t *result, const struct tsr_step_verified *m, json_t **out,
                          struct tsr_err *err)
{
    const json_t *plan = json_object_get(result, "plan"),
                 *interval = json_object_get(plan, "kl_interval");
    double kl = real(plan, "kl"), limit = real(result, "max_kl");
    double high = json_number_value(json_array_get(interval, 1));
    if (!isfinite(kl))
        return tsr_fail(err, TSR_E_INPUT,
                        "the plan promises no KL, which 'verify' compares with; give quality: "
                        "{indicators: FILE} of tessera indicators --measure kl");
    *out = json_object();
    if (tsr_pipeline_json_put_real(*out, "limit", limit > 0 ? limit : kl) &&
        tsr_pipeline_json_put_real(*out, "kl", kl) &&
        tsr_pipeline_json_put_real(*out, "half", json_is_array(interval) ? high - kl : NAN) &&
        tsr_pipeline_json_put_real(*out, "measured", m->kl) &&
        tsr_pipeline_json_put_real(*out, "measured_half", m->half))
        return TSR_OK;
    json_decref(*out);
    return tsr_fail_nomem(err, 256, "a verification");
}

/* What the limit was at first: the job's, or what the first plan promised. */
static double target_of(const struct tsr_pipeline_job_step *p)
{
    return real(json_array_get(p->attempts, 0), "limit");
}

static tsr_status report(const struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *p,
                         json_t *result, const struct tsr_planning_verify_keys *v,
                         const struct tsr_step_verified *m, struct tsr_err *err)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "text", v->text) &&
              tsr_pipeline_json_put_text(j, "text_hash", m->text_hash) &&
              tsr_pipeline_json_put_text(j, "act", tsr_plugin_act_name((uint32_t)v->act)) &&
              tsr_pipeline_json_put_int(j, "window", m->window) &&
              tsr_pipeline_json_put_int(j, "windows", m->windows) &&
              tsr_pipeline_json_put_int(j, "tokens", m->tokens) &&
              tsr_pipeline_json_put_real(j, "target", target_of(p)) &&
              tsr_pipeline_json_put(j, "attempts", json_incref(p->attempts));
    if (!(tsr_pipeline_json_put(result, "verify", j) && ok))
        return tsr_fail_nomem(err, 256, "a verification");
    if (!job->json)
        tsr_planning_verify_print(result, stdout);
    return TSR_OK;
}

/* Both figures, of a plan that none follows. */
static tsr_status give_up(const struct tsr_pipeline_job_step *p, const char *text, const char *why,
                          struct tsr_err *err)
{
    const json_t *last = newest(p->attempts);
    double        half = real(last, "half");
    char          interval[40] = "";
    if (half > 0)
        (void)snprintf(interval, sizeof interval, " and its interval of %.2g", half);
    return tsr_fail(err, TSR_E_CHECK,
                    "the plan measures a KL of %.4g nats per token on %s, above %.4g%s, where it "
                    "promised %.4g; %s",
                    real(last, "measured"), text, target_of(p), interval, real(last, "kl"), why);
}

static tsr_status judge(struct tsr_pipeline_job *job, uint64_t at, uint64_t last, uint64_t *next,
                        const struct tsr_planning_verify_keys *v, struct tsr_err *err)
{
    struct tsr_pipeline_job_step        *p = &job->state->steps[at];
    const struct tsr_planning_plan_keys *k = p->opts;
    struct tsr_step_verified             m;
    json_t                              *one = NULL, *result = result_of(job, p);
    TSR_TRY(measured(job, k, v, &m, err));
    TSR_TRY(attempt(result, &m, &one, err));
    if (!p->attempts)
        p->attempts = json_array();
    if (json_array_append_new(p->attempts, one) != 0)
        return tsr_fail_nomem(err, 256, "a verification");
    double half = real(one, "half"), target = target_of(p), limit = tsr_step_verify_next(one);
    if (m.kl <= target + (half > 0 ? half : 0))
        return report(job, p, result, v, &m, err);
    if (!(limit > 0))
        return give_up(p, v->text, "a plan cannot promise less", err);
    if (json_array_size(p->attempts) > TSR_STEP_VERIFY_AGAIN)
        return give_up(p, v->text,
                       "the last of 4 plans, each solved at a lower limit; raise at_most, or "
                       "measure indicators on a text like this one",
                       err);
    tsr_logf(TSR_LOG_WARN,
             "the plan promised a KL of %.4g and measures %.4g on %s, above %.4g: solving again "
             "at a limit of %.4g",
             real(one, "kl"), m.kl, v->text, target, limit);
    p->limit = limit;
    *next = at;
    TSR_TRY(take_back(job, at, last, err));
    return tsr_step_verify_keep(job, p, v, err);
}

tsr_status tsr_pipeline_job_verify(struct tsr_pipeline_job *job, uint64_t i, uint64_t *next,
                                   struct tsr_err *err)
{
    const struct tsr_pipeline_job_state *s = job->state;
    struct tsr_planning_verify_keys      v;
    struct tsr_diag                     *d = NULL;
    uint64_t                             p = i;
    while (p > 0 && s->steps[p].step != &tsr_step_plan)
        p--;
    if (!verified(&s->steps[p]) || last_of(s, p) != i || i == p)
        return TSR_OK;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_planning_verify_fill(&v, s->steps[p].opts, d);
    tsr_status st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    job->at = &s->steps[p];
    return st == TSR_OK ? judge(job, p, i, next, &v, err) : st;
}

tsr_status tsr_pipeline_job_verify_failed(const struct tsr_pipeline_job *job, uint64_t i,
                                          tsr_status st, struct tsr_err *err)
{
    const struct tsr_pipeline_job_step  *p = &job->state->steps[i];
    const struct tsr_planning_plan_keys *k = verified(p);
    struct tsr_planning_verify_keys      v;
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    struct tsr_diag                     *d = NULL;
    char                                 why[700];
    if ((st != TSR_E_INFEASIBLE && st != TSR_E_INPUT) || !k || !p->attempts)
        return st;
    TSR_TRY(tsr_config_diag_create(&d, &e.err));
    tsr_planning_verify_fill(&v, k, d);
    (void)snprintf(why, sizeof why, "no plan keeps to %.4g instead: %.600s", p->limit, err->text);
    (void)give_up(p, v.text, why, &e.err);
    tsr_config_diag_destroy(d);
    return tsr_err_copy(err, TSR_E_CHECK, &e.err);
}
