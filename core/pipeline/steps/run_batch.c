/* The batch of a step `run`: through one engine, or through the ranks of a plan. */
#include "pipeline/steps/run_batch.h"
#include "pipeline/run_identity.h"

#include "batch/watch.h"
#include "runtime/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLAME_US UINT64_C(300000)

static uint64_t context_of(const struct tsr_step_run_batch *r)
{
    uint64_t most = r->job->model->hp.max_positions;
    if (r->o->context)
        return (uint64_t)r->o->context;
    return most && most < 2048 ? most : 2048;
}

static void set_defaults(struct tsr_step_run_batch *r, uint64_t context,
                         const struct tsr_compensation *residuals)
{
    const struct tsr_step_run_options *o = r->o;
    r->same = (struct tsr_step_run_same){ r->job, residuals, r->output };
    r->b.same = tsr_step_run_same;
    r->b.same_ctx = &r->same;
    r->b.records = &r->records;
    r->b.output = r->output;
    r->b.folder = r->folder;
    r->b.retry = o->retry_errors != 0;
    r->b.quiet = r->job->quiet;
    r->b.deadline_us = (uint64_t)(o->deadline * 1e6);
    r->b.about = r->about;
    r->b.ids = (struct tsr_batch_answer_ids){ .base = r->base,
                                              .model = tsr_pipeline_job_model_name(r->job) };
    r->b.defaults = (struct tsr_batch_request_defaults){
        .max_tokens = (uint64_t)o->max_tokens,
        .sampling = r->sampling,
        .samplers = r->samplers.list,
        .maker = &r->samplers.maker,
        .allow_special = o->allow_special != 0,
        .ignore_eos = o->ignore_eos != 0,
        .context = context,
        .tokenizer = r->job->tokenizer,
        .chat = r->chat,
        .why_no_chat = r->no_chat.text,
        .pass = &r->b.pass,
    };
}

static void on_layer(void *ctx, uint64_t layer, bool load)
{
    (void)ctx;
    (void)layer;
    (void)load;
    tsr_batch_watch_beat();
}

static uint32_t numerics_of(const struct tsr_step_run_batch *r)
{
    return (uint32_t)r->o->fleet.run.on.numerics;
}

/* Whether a backend that is named like "cuda:device=1" runs by its own numerics: auto; "auto" may. */
static bool has_auto(const struct tsr_step_run_batch *r, const char *text)
{
    char                    name[200];
    struct tsr_plugin_found found = { 0 };
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    return strcmp(name, "auto") == 0 ||
           tsr_plugin_registry_find(r->job->registry, TSR_KIND_BACKEND, name, &found, &e.err) !=
               TSR_OK ||
           tsr_plugin_backend_has_auto(found.component);
}

static bool ranks_are_exact(const struct tsr_step_run_batch *r, const struct tsr_runtime_layout *l)
{
    bool exact = numerics_of(r) != TSR_NUMERICS_FAST;
    for (uint32_t i = 0; i < tsr_runtime_layout_ranks(l) && exact; i++) {
        const char *name = tsr_runtime_layout_backend(l, i);
        name = name ? name : r->o->fleet.run.on.backend;
        exact = numerics_of(r) == TSR_NUMERICS_EXACT || !name || !has_auto(r, name);
    }
    return exact;
}

/* Residuals are part of the batch's identity. */
static tsr_status identify(struct tsr_step_run_batch *r, bool exact,
                           const struct tsr_pipeline_compensating *c, struct tsr_err *err)
{
    if (c->from && json_object_set_new(r->job->manifest, "residuals", json_string(c->from->hash)))
        return tsr_fail_nomem(err, 64, "the manifest");
    return tsr_pipeline_run_identify(r->job, exact, &r->records, r->kept, r->b.id, r->base,
                                     &r->about, err);
}

static tsr_status with_engine(struct tsr_step_run_batch              *r,
                              const struct tsr_pipeline_compensating *c,
                              const struct tsr_engine_options *eo, struct tsr_batch_summary *s,
                              struct tsr_err *err)
{
    struct tsr_pipeline_job *job = r->job;
    struct tsr_engine       *e = NULL;
    char                    *theirs = NULL;
    const char              *why;
    TSR_TRY(tsr_engine_create(&e, job->registry, r->packed ? r->packed : job->model, job->overlay,
                              eo, err));
    tsr_engine_acts(e, r->ran);
    const uint32_t               numerics = numerics_of(r);
    tsr_status                   st = identify(r,
                                               numerics == TSR_NUMERICS_EXACT ||
                                                   (numerics == TSR_NUMERICS_AUTO && !tsr_engine_is_automatic(e)),
                                               c, err);
    struct tsr_pipeline_drafting d = { 0 };
    set_defaults(r, eo->context, c->from);
    tsr_engine_pass_engine(&r->b.pass, e);
    if (tsr_engine_reuses(&job->model->hp, eo, &why))
        tsr_engine_pass_reuse(&r->b.pass, eo, eo->slots);
    if (st == TSR_OK)
        st = tsr_pipeline_drafting_on(&d, job, &r->o->drafting, eo,
                                      r->packed ? r->packed : job->model, job->overlay, err);
    r->b.defaults.draft = d.draft;
    r->b.pass.drafter = d.by;
    if (st == TSR_OK)
        st = tsr_batch_run(&r->b, s, &theirs, err);
    if (theirs)
        st = tsr_pipeline_run_differs(r->folder, theirs, r->about, err);
    if (st == TSR_OK &&
        !tsr_pipeline_compensating_put(r->result, &r->o->fleet.run.compensation, c, e))
        st = tsr_fail_nomem(err, 64, "the results");
    free(theirs);
    tsr_pipeline_drafting_close(&d);
    tsr_engine_destroy(e);
    return st;
}

tsr_status tsr_step_run_on_engine(struct tsr_step_run_batch *r, struct tsr_batch_summary *s,
                                  struct tsr_err *err)
{
    struct tsr_pipeline_job    *job = r->job;
    struct tsr_pipeline_running how;
    tsr_status                  st =
        tsr_pipeline_running_open(&how, job, &r->o->fleet.run, r->packed ? r->packed : job->model,
                                  job->packed, job->seed, err);
    how.eo.slots = (uint32_t)r->o->slots;
    how.eo.context = context_of(r);
    how.eo.on_layer = on_layer;
    if (r->records.choices < how.eo.slots)
        how.eo.slots = r->records.choices ? (uint32_t)r->records.choices : 1;
    if (st == TSR_OK)
        st = with_engine(r, &how.compensating, &how.eo, s, err);
    tsr_pipeline_running_close(&how);
    return st;
}

/* Another process of an MPI job died, and mpirun, which then ends the others, signals this one: the error
 * is the other process's death. */
static tsr_status blame(const struct tsr_step_run_batch *r, tsr_status st, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (st != TSR_E_CANCELLED || !r->job->peers)
        return st;
    tsr_status why = tsr_runtime_peers_failure(r->job->peers, BLAME_US, &e.err);
    return why == TSR_OK ? st : tsr_err_copy(err, why, &e.err);
}

tsr_status tsr_step_run_on_ranks(struct tsr_step_run_batch *r, struct tsr_batch_summary *s,
                                 struct tsr_err *err)
{
    const struct tsr_step_run_options *o = r->o;
    struct tsr_pipeline_job           *job = r->job;
    struct tsr_step_run_launch         f;
    struct tsr_pipeline_drafting       d = { 0 };
    char                              *theirs = NULL;
    char                               key[TSR_HASH_TEXT], *about = NULL;
    /* what `auto` became is noted for the batch as it is known before the plan is read */
    tsr_status st = tsr_pipeline_run_identify(job, numerics_of(r) != TSR_NUMERICS_FAST, &r->records,
                                              r->kept, r->b.id, key, &about, err);
    memcpy(key, r->b.id, sizeof key);
    free(about);
    f = (struct tsr_step_run_launch){ 0 };
    if (st == TSR_OK)
        st = tsr_step_run_launch_open(&f, job, r->packed ? r->packed : job->model, &o->fleet,
                                      (uint64_t)o->context, r->records.choices, key,
                                      (uint64_t)(o->stall * 1e6), err);
    const json_t *states = st == TSR_OK ? tsr_launch_state_hashes(f.fleet) : NULL;
    if (states && json_object_set(job->manifest, "codec_states", (json_t *)(uintptr_t)states) != 0)
        st = tsr_fail_nomem(err, 64, "the manifest");
    if (st == TSR_OK)
        st = identify(r, ranks_are_exact(r, tsr_launch_layout(f.fleet)),
                      tsr_launch_compensating(f.fleet), err);
    if (st == TSR_OK)
        st = tsr_step_run_launch_note(&f, job, key, r->b.id, r->folder, err);
    if (st == TSR_OK) {
        set_defaults(r, f.context, tsr_launch_compensating(f.fleet)->from);
        const char *why = NULL;
        tsr_launch_pass(f.fleet, &r->b.pass);
        if (tsr_pipeline_draft_wanted(&o->drafting))
            st = tsr_launch_drafts(f.fleet, &why, err);
        if (st == TSR_OK)
            st = tsr_pipeline_drafting_ranks(&d, job, &o->drafting, &o->fleet.run, &r->b.pass, why,
                                             on_layer, err);
        r->b.defaults.draft = d.draft;
        r->b.pass.drafter = d.by;
    }
    if (st == TSR_OK) {
        st = tsr_batch_run(&r->b, s, &theirs, err);
        if (theirs)
            st = tsr_pipeline_run_differs(r->folder, theirs, r->about, err);
    }
    st = blame(r, st, err);
    if (st == TSR_OK)
        st = tsr_step_run_launch_report(&f, job, &o->fleet, s->new_tokens, s->seconds, r->ran,
                                        r->result, err);
    tsr_pipeline_drafting_close(&d);
    tsr_step_run_launch_close(&f);
    free(theirs);
    return st;
}
