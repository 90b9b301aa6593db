/* Resolves the dependencies between the steps of a job once: plan, calibration, and the required content
 * of that. A step reads job->at; none searches the list. */
#include "pipeline/job.h"
#include "pipeline/steps/indicators_step.h"
#include "planning/planning.h"

#include <string.h>

extern const struct tsr_pipeline_step tsr_step_calibrate, tsr_step_indicators, tsr_step_plan;

void tsr_pipeline_job_link(struct tsr_pipeline_job *job)
{
    struct tsr_pipeline_job_state *s = job->state;
    struct tsr_pipeline_job_step  *last = &s->steps[s->n - 1];
    last->nth = 1;
    for (uint64_t i = 0; i + 1 < s->n; i++) {
        last->nth += s->steps[i].step == last->step;
        if (s->steps[i].step == &tsr_step_plan)
            last->planned = &s->steps[i];
        if (s->steps[i].step == &tsr_step_calibrate)
            last->calibrated = &s->steps[i];
        if (s->steps[i].step == &tsr_step_indicators)
            last->measured = &s->steps[i];
    }
    job->at = last;
}

const struct tsr_pipeline_job_step *tsr_pipeline_job_planned(const struct tsr_pipeline_job *job,
                                                             const char                    *file)
{
    for (const struct tsr_pipeline_job_step *p = job->at->planned; p; p = p->planned) {
        const struct tsr_planning_plan_keys *k = p->opts;
        if (!*file || strcmp(k->to, file) == 0)
            return p;
    }
    return NULL;
}

const char *tsr_pipeline_job_planned_to(const struct tsr_pipeline_job_step *planned)
{
    return planned ? ((const struct tsr_planning_plan_keys *)planned->opts)->to : NULL;
}

const char *tsr_pipeline_job_measured(const struct tsr_pipeline_job *job)
{
    return job->at && job->at->measured ? TSR_STEP_INDICATORS_FILE : NULL;
}

bool tsr_pipeline_job_measures(const struct tsr_pipeline_job *job, const char *file)
{
    const char *measured = tsr_pipeline_job_measured(job);
    return measured && strcmp(file, measured) == 0;
}

static tsr_status declare(struct tsr_pipeline_job *job, struct tsr_pipeline_job_step *step,
                          struct tsr_err *err)
{
    uint64_t need = 0;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    job->at = step;
    tsr_status st = step->step->need(job, step->opts, step->node, &need, err);
    step->calibrated->need |= need;
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "for step '%s'", step->step->name);
}

tsr_status tsr_pipeline_job_resolve(struct tsr_pipeline_job *job, struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++)
        if (s->steps[i].step->need && s->steps[i].calibrated && !s->steps[i].calibrated->done)
            TSR_TRY(declare(job, &s->steps[i], err));
    return TSR_OK;
}
