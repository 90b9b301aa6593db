/* The step `serve` after a comparison: each arm is a model, under its name or, blind, under a number. */
#include "pipeline/steps/compare_step.h"
#include "pipeline/steps/serve_step.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

struct arms {
    struct compare                c;
    struct tsr_pipeline_running  *how;      /* [c.n] */
    struct tsr_engine           **engine;   /* [c.n] */
    struct tsr_pipeline_drafting *drafting; /* [c.n] */
    struct tsr_serve_model       *models;   /* [c.n], in the order of /v1/models */
    char (*names)[32];                      /* [c.n], blind */
    uint32_t *at;                           /* [c.n] the arm of each model */
};

/* Blind, the order is the seed's, so that it says nothing of the arms. */
static void put_in_order(struct arms *a, bool blind, uint64_t seed)
{
    for (uint32_t i = 0; i < a->c.n; i++)
        a->at[i] = i;
    for (uint32_t i = (uint32_t)a->c.n; blind && i-- > 1;) {
        uint32_t k = (uint32_t)(tsr_uniform(seed, 0x61726d73, i) * (i + 1)), was = a->at[i];
        a->at[i] = a->at[k];
        a->at[k] = was;
    }
    for (uint32_t i = 0; i < a->c.n; i++) {
        (void)snprintf(a->names[i], sizeof *a->names, "arm-%u", i + 1);
        a->models[i].name = blind ? a->names[i] : a->c.arms[a->at[i]].name;
    }
}

/* An arm into memory, and its engine. */
static tsr_status open_arm(struct arms *a, struct tsr_step_serving *s, uint32_t i,
                           struct tsr_err *err)
{
    struct compare_arm          *arm = &a->c.arms[a->at[i]];
    struct tsr_pipeline_running *how = &a->how[i];
    struct tsr_serve_model      *m = &a->models[i];
    if (arm->tp.simulate_tp)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "arm '%s' simulates ranks, which serve does not; take it out", arm->name);
    TSR_TRY(compare_arm_ready(&a->c, arm, err));
    TSR_TRY(tsr_pipeline_running_open(how, s->job, &s->o->fleet.run, compare_arm_model(&a->c, arm),
                                      NULL, s->job->seed, err));
    how->eo.slots = (uint32_t)s->o->slots;
    how->eo.context = m->context = tsr_step_serve_context(s);
    bool reuses = tsr_step_serve_cache(s, &how->eo);
    TSR_TRY(tsr_engine_create(&a->engine[i], s->job->registry, compare_arm_model(&a->c, arm),
                              compare_arm_overlay(&a->c, arm), &how->eo, err));
    tsr_engine_pass_engine(&m->pass, a->engine[i]);
    if (reuses)
        tsr_engine_pass_reuse(&m->pass, &how->eo, (uint32_t)s->o->slots);
    tsr_status st = tsr_pipeline_drafting_on(&a->drafting[i], s->job, &s->o->drafting, &how->eo,
                                             compare_arm_model(&a->c, arm),
                                             compare_arm_overlay(&a->c, arm), err);
    s->draft = a->drafting[i].draft;
    m->pass.drafter = a->drafting[i].by;
    return st;
}

/* {"name of the model": "arm"} */
static tsr_status note(const struct arms *a, json_t *result, struct tsr_err *err)
{
    json_t *j = json_object();
    for (uint32_t i = 0; i < a->c.n; i++)
        tsr_json_set(&j, a->models[i].name, json_string(a->c.arms[a->at[i]].name));
    return tsr_pipeline_json_put(result, "arms", j) ? TSR_OK
                                                    : tsr_fail_nomem(err, 64, "the results");
}

static tsr_status serve(struct arms *a, struct tsr_step_serving *s, struct tsr_err *err)
{
    uint64_t n = a->c.n;
    a->how = tsr_new(n, sizeof *a->how);
    a->engine = tsr_new(n, sizeof *a->engine);
    a->drafting = tsr_new(n, sizeof *a->drafting);
    a->models = tsr_new(n, sizeof *a->models);
    a->names = tsr_new(n, sizeof *a->names);
    a->at = tsr_new(n, sizeof *a->at);
    if (!a->how || !a->engine || !a->drafting || !a->models || !a->names || !a->at)
        return tsr_fail_nomem(err, n * sizeof *a->how, "arms");
    put_in_order(a, s->o->blind != 0, s->job->seed);
    for (uint32_t i = 0; i < n; i++)
        TSR_TRY(open_arm(a, s, i, err));
    TSR_TRY(tsr_step_serve_models(s, a->models, (uint32_t)n, err));
    return note(a, s->result, err);
}

tsr_status tsr_step_serve_arms(struct tsr_step_serving            *s,
                               const struct tsr_pipeline_job_step *compare, struct tsr_err *err)
{
    struct arms a = { 0 };
    tsr_status  st = tsr_step_compare_arms(&a.c, s->job, compare, err);
    if (st == TSR_OK)
        st = serve(&a, s, err);
    for (uint64_t i = 0; i < a.c.n; i++) {
        if (a.drafting)
            tsr_pipeline_drafting_close(&a.drafting[i]);
        if (a.engine)
            tsr_engine_destroy(a.engine[i]);
        if (a.how)
            tsr_pipeline_running_close(&a.how[i]);
    }
    free(a.how);
    free(a.engine);
    free(a.drafting);
    free(a.models);
    free(a.names);
    free(a.at);
    tsr_step_compare_end(&a.c);
    return st;
}
