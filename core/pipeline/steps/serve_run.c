/* The step `serve` at work: the loop of requests over a forward pass, that of an engine or of ranks. */
#include "pipeline/steps/serve_step.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output.h"

#include <string.h>
#include <time.h>

static const char *name_of(const struct tsr_step_serving *s)
{
    return *s->o->name ? s->o->name : tsr_pipeline_job_model_name(s->job);
}

uint64_t tsr_step_serve_context(const struct tsr_step_serving *s)
{
    uint64_t most = s->job->model->hp.max_positions;
    if (s->o->context)
        return (uint64_t)s->o->context;
    return most && most < 2048 ? most : 2048;
}

static tsr_status start_http(struct tsr_step_serving *s, const json_t *models, int64_t created,
                             struct tsr_err *err)
{
    const struct tsr_step_serve_options *o = s->o;
    if (*o->port_file) /* that of an earlier run names no port of this one */
        TSR_TRY(tsr_output_remove(o->port_file, err));
    return tsr_serve_http_start(&s->http,
                                &(struct tsr_serve_http_options){ .host = o->host,
                                                                  .port = (uint32_t)o->port,
                                                                  .key = s->key,
                                                                  .models = models,
                                                                  .tokenizer = s->tokenizer,
                                                                  .created = created,
                                                                  .max_body = (uint64_t)o->max_body,
                                                                  .connections =
                                                                      (uint64_t)o->connections,
                                                                  .requests = (uint64_t)o->queue,
                                                                  .timeout = o->timeout },
                                err);
}

/* For who started the program: the address ends with the port. */
static tsr_status write_port(const struct tsr_step_serving *s, struct tsr_err *err)
{
    char text[16];
    int  n = snprintf(text, sizeof text, "%.8s\n", strrchr(s->http.address, ':') + 1);
    return *s->o->port_file ? tsr_file_store(s->o->port_file, text, (uint64_t)n, err) : TSR_OK;
}

static void warn_of(const char *why)
{
    tsr_logf(TSR_LOG_WARN, "keys and values of prompts are not reused: %s", why);
}

/* Room for sequences that stay, where they can. */
bool tsr_step_serve_cache(const struct tsr_step_serving *s, struct tsr_engine_options *eo)
{
    const char *why;
    if (!s->o->reuse)
        return false;
    if (!tsr_engine_reuses(&s->job->model->hp, eo, &why)) {
        warn_of(why);
        return false;
    }
    eo->slots += (uint32_t)s->o->cached;
    return true;
}

static json_t *names_of(const struct tsr_serve_model *models, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        tsr_json_add(&list, json_string(models[i].name));
    return list;
}

tsr_status tsr_step_serve_models(struct tsr_step_serving *s, const struct tsr_serve_model *models,
                                 uint32_t n, struct tsr_err *err)
{
    const struct tsr_step_serve_options *o = s->o;
    int64_t                              now = (int64_t)time(NULL);
    /* ids differ from one start to the next */
    (void)snprintf(s->base, sizeof s->base, "serve:%lld:%llu", (long long)now,
                   (unsigned long long)tsr_now_us());
    struct tsr_serve_loop l = { .http = &s->http,
                                .models = models,
                                .n_models = n,
                                .defaults = { .max_tokens = (uint64_t)o->max_tokens,
                                              .sampling = s->sampling,
                                              .samplers = s->samplers.list,
                                              .draft = s->draft,
                                              .maker = &s->samplers.maker,
                                              .allow_special = o->allow_special != 0,
                                              .ignore_eos = o->ignore_eos != 0,
                                              .tokenizer = s->job->tokenizer,
                                              .chat = s->chat,
                                              .why_no_chat = s->no_chat.text },
                                .ids = { .base = s->base, .created = now },
                                .requests = (uint64_t)o->queue,
                                .deadline_us = (uint64_t)(o->deadline * 1e6),
                                .drain_us = (uint64_t)(o->drain * 1e6) };
    json_t               *names = names_of(models, n);
    tsr_status            st = names ? start_http(s, names, now, err)
                                     : tsr_fail(err, TSR_E_INPUT, "the name of the model is not UTF-8");
    json_decref(names);
    if (st != TSR_OK)
        return st;
    st = write_port(s, err);
    if (st != TSR_OK) {
        tsr_serve_http_end(&s->http, 1);
        return st;
    }
    if (!s->job->quiet)
        (void)fprintf(stderr, "tessera: listening at http://%s\n", s->http.address);
    double from = tsr_now_s();
    st = tsr_serve_loop_run(&l, &s->counts, err);
    s->seconds = tsr_now_s() - from;
    tsr_serve_http_end(&s->http, 5);
    return st;
}

static tsr_status with_engine(struct tsr_step_serving *s, struct tsr_pipeline_running *how,
                              struct tsr_err *err)
{
    struct tsr_pipeline_job *job = s->job;
    struct tsr_engine       *e = NULL;
    struct tsr_serve_model   m = { .name = name_of(s) };
    how->eo.slots = (uint32_t)s->o->slots;
    how->eo.context = tsr_step_serve_context(s);
    bool reuses = tsr_step_serve_cache(s, &how->eo);
    TSR_TRY(tsr_engine_create(&e, job->registry, s->packed ? s->packed : job->model, job->overlay,
                              &how->eo, err));
    tsr_engine_acts(e, s->ran);
    m.context = how->eo.context;
    tsr_engine_pass_engine(&m.pass, e);
    if (reuses)
        tsr_engine_pass_reuse(&m.pass, &how->eo, (uint32_t)s->o->slots);
    struct tsr_pipeline_drafting d;
    tsr_status                   st = tsr_pipeline_drafting_on(&d, job, &s->o->drafting, &how->eo,
                                             s->packed ? s->packed : job->model, job->overlay, err);
    s->draft = d.draft;
    m.pass.drafter = d.by;
    if (st == TSR_OK)
        st = tsr_step_serve_models(s, &m, 1, err);
    tsr_pipeline_drafting_close(&d);
    tsr_engine_destroy(e);
    return st;
}

tsr_status tsr_step_serve_on_engine(struct tsr_step_serving *s, struct tsr_err *err)
{
    struct tsr_pipeline_running how = { 0 };
    tsr_status                  st = tsr_pipeline_running_open(&how, s->job, &s->o->fleet.run,
                                              s->packed ? s->packed : s->job->model, s->job->packed,
                                                               s->job->seed, err);
    if (st == TSR_OK)
        st = with_engine(s, &how, err);
    tsr_pipeline_running_close(&how);
    return st;
}

tsr_status tsr_step_serve_on_ranks(struct tsr_step_serving *s, struct tsr_err *err)
{
    struct tsr_step_run_launch   f = { 0 };
    struct tsr_serve_model       m = { .name = name_of(s) };
    struct tsr_step_run_keys     keys = s->o->fleet;
    struct tsr_pipeline_drafting d = { 0 };
    keys.gantt = ""; /* a server has no end of work that a chart could show */
    tsr_status st = tsr_step_run_launch_open(&f, s->job, s->packed ? s->packed : s->job->model,
                                             &keys, (uint64_t)s->o->context, (uint64_t)s->o->slots,
                                             "", (uint64_t)(s->o->stall * 1e6), err);
    if (st == TSR_OK) {
        tsr_launch_pass(f.fleet, &m.pass);
        m.context = f.context;
        const char *why = NULL;
        if (s->o->reuse)
            st = tsr_launch_pass_reuse(f.fleet, &m.pass, &why, err);
        if (why)
            warn_of(why);
        why = NULL;
        if (st == TSR_OK && tsr_pipeline_draft_wanted(&s->o->drafting))
            st = tsr_launch_drafts(f.fleet, &why, err);
        if (st == TSR_OK)
            st = tsr_pipeline_drafting_ranks(&d, s->job, &s->o->drafting, &keys.run, &m.pass, why,
                                             NULL, err);
        s->draft = d.draft;
        m.pass.drafter = d.by;
        if (st == TSR_OK)
            st = tsr_step_serve_models(s, &m, 1, err);
    }
    if (st == TSR_OK)
        st = tsr_step_run_launch_report(&f, s->job, &keys, s->counts.new_tokens, s->seconds, s->ran,
                                        s->result, err);
    tsr_pipeline_drafting_close(&d);
    tsr_step_run_launch_close(&f);
    return st;
}
