/* The step `run` on ranks. */
#include "pipeline/steps/run_launch.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "batch/journal.h"
#include "pipeline/codecs.h"
#include "pipeline/job.h"
#include "pipeline/step.h"
#include "pipeline/steps/run_chart.h"
#include "pipeline/steps/run_peers.h"
#include "planning/planning.h"

#include <stdlib.h>
#include <string.h>

#define SPANS 65536u /* of each rank, for the chart */

bool tsr_step_run_launch_wanted(const struct tsr_pipeline_job  *job,
                                const struct tsr_step_run_keys *k)
{
    return *k->plan || job->at->planned;
}

void tsr_step_run_launch_check(const struct tsr_pipeline_job  *job,
                               const struct tsr_step_run_keys *k,
                               const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "gantt");
    if (*k->plan && !tsr_pipeline_job_planned(job, k->plan))
        tsr_pipeline_check_input(job, node, "plan", d);
    if (*k->codec_state)
        tsr_pipeline_check_input(job, node, "codec_state", d);
    if (at && !*k->plan && !job->at->planned)
        tsr_config_diag_error(d, &at->mark, "give plan: FILE, or put a plan step before",
                              "a picture of ranks needs a plan");
}

static tsr_status open_plan(struct tsr_step_run_launch *f, struct tsr_pipeline_job *job,
                            const struct tsr_model *m, struct tsr_launch_options *fo,
                            struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_launch_open(&f->fleet, job->registry, m, job->overlay, fo, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    f->context = st == TSR_OK ? fo->context : 0;
    return st;
}

/* ---- codecs ------------------------------------------------------------------- */

struct state_place {
    struct tsr_pipeline_job        *job;
    const struct tsr_step_run_keys *k;
};

static tsr_status find_state(void *ctx, const struct tsr_eval_codec_key *key, char **path,
                             struct tsr_err *err)
{
    const struct state_place *p = ctx;
    if (*p->k->codec_state) {
        *path = tsr_pipeline_job_input(p->job, p->k->codec_state);
        return *path ? TSR_OK : tsr_fail_nomem(err, strlen(p->k->codec_state), "a path");
    }
    TSR_TRY(tsr_pipeline_codec_state_path(p->job, key, path, err));
    if (!tsr_path_exists(*path)) {
        free(*path);
        *path = NULL;
    }
    return TSR_OK;
}

/* The choices of `auto` at the start of this batch; NULL: not started, or nothing was open. */
static const json_t *links_before(const struct tsr_pipeline_job *job, const char *id)
{
    const json_t *l = json_object_get(job->manifest, "links");
    const char   *batch = json_string_value(json_object_get(l, "batch"));
    return batch && strcmp(batch, id) == 0 ? json_object_get(l, "stages") : NULL;
}

/* A batch with answers goes by a choice that was made: another one would give other bytes. */
static tsr_status check_begun(const char *folder, const char *id, struct tsr_err *err)
{
    struct tsr_batch_journal_view v;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    char                         *path = tsr_path_join(folder, "journal");
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), "a path");
    tsr_status st = TSR_OK;
    if (tsr_path_exists(path)) {
        st = tsr_batch_journal_look(&v, &tsr_io_system, path, &e.err);
        bool holds = st == TSR_OK && v.counts.done > 0 && strcmp(v.job, id) == 0;
        if (st == TSR_OK)
            tsr_batch_journal_look_end(&v);
        if (holds)
            st =
                tsr_fail(err, TSR_E_INPUT,
                         "%s: has answers of this batch, but manifest.json does not say what codec "
                         "auto became for them; name the codec in the plan, or remove the folder",
                         folder);
        else if (st == TSR_E_INPUT) /* not one that was begun */
            st = TSR_OK;
        else if (st != TSR_OK)
            st = tsr_err_copy(err, st, &e.err);
    }
    free(path);
    return st;
}

/* Before the first record. */
tsr_status tsr_step_run_launch_note(struct tsr_step_run_launch *f, struct tsr_pipeline_job *job,
                                    const char *key, const char *id, const char *folder,
                                    struct tsr_err *err)
{
    json_t *stages = NULL;
    TSR_TRY(tsr_launch_links(f->fleet, &stages, err));
    if (!stages)
        return TSR_OK;
    tsr_status st = check_begun(folder, id, err);
    json_t    *links = json_pack("{s:s, s:O}", "batch", key, "stages", stages);
    if (st == TSR_OK && (!links || json_object_set(job->manifest, "links", links) != 0))
        st = tsr_fail_nomem(err, 256, "the manifest");
    json_decref(links);
    json_decref(stages);
    return st == TSR_OK ? tsr_pipeline_job_write_manifest(job, false, err) : st;
}

/* ---- opening ------------------------------------------------------------------ */

/* Rank 0 sets slots, context and the choices of `auto`. heard: owns the object that fo->links then points
 * to. */
static tsr_status meet(struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                       struct tsr_launch_options *fo, json_t **heard, struct tsr_err *err)
{
    struct tsr_runtime_peer_facts zero = { .requests = fo->requests,
                                           .context = fo->context,
                                           .stall_us = fo->stall_us,
                                           .epoch = tsr_runtime_now_ns() };
    char                         *text = NULL;
    uint64_t                      len = 0;
    fo->peers = job->peers;
    if (fo->links)
        TSR_TRY(tsr_json_text((json_t *)(uintptr_t)fo->links, JSON_COMPACT, &text, &len, err));
    if (len >= sizeof zero.links) {
        free(text);
        return tsr_fail(
            err, TSR_E_UNSUPPORTED,
            "a plan of so many stages with codec auto cannot be sent to the other ranks; "
            "name the codecs in the plan");
    }
    if (text)
        memcpy(zero.links, text, len);
    free(text);
    TSR_TRY(tsr_step_run_peers_meet(job, k, (uint32_t)k->run.act, &zero, err));
    fo->requests = zero.requests;
    fo->context = zero.context;
    fo->stall_us = zero.stall_us;
    fo->epoch = zero.epoch;
    if (tsr_runtime_peers_rank(job->peers) > 0 && *zero.links) {
        TSR_TRY(tsr_json_parse(heard, "links", zero.links, strlen(zero.links), 16, err));
        fo->links = *heard;
    }
    return TSR_OK;
}

tsr_status tsr_step_run_launch_serve(struct tsr_pipeline_job *job, const struct tsr_model *m,
                                     const struct tsr_step_run_keys *k, struct tsr_err *err)
{
    struct tsr_step_run_launch f;
    tsr_status                 st = tsr_step_run_launch_open(&f, job, m, k, 0, 0, "", 0, err);
    if (st == TSR_OK)
        st = tsr_launch_serve(f.fleet, err);
    tsr_step_run_launch_close(&f);
    return st;
}

tsr_status tsr_step_run_launch_open(struct tsr_step_run_launch *f, struct tsr_pipeline_job *job,
                                    const struct tsr_model *m, const struct tsr_step_run_keys *k,
                                    uint64_t context, uint64_t records, const char *key,
                                    uint64_t stall_us, struct tsr_err *err)
{
    const struct tsr_pipeline_job_head *h = &job->state->head;
    const char *made = tsr_pipeline_job_planned_to(tsr_pipeline_job_planned(job, k->plan));
    char       *plan = made ? tsr_path_join(job->out, made) : tsr_pipeline_job_input(job, k->plan);
    char       *channels = *k->run.compensation.compensate_plan
                               ? tsr_pipeline_job_input(job, k->run.compensation.compensate_plan)
                               : NULL;
    struct tsr_launch_options fo = { .plan = plan,
                                     .original = job->packed ? job->model_path : NULL,
                                     .cluster = h->cluster ? h->cluster : "",
                                     .beside = job->state->dir,
                                     .ranks = k->ranks,
                                     .act = (uint32_t)k->run.act,
                                     .on = tsr_pipeline_run_on_of(&k->run.on),
                                     .threads = k->run.on.threads,
                                     .context = context,
                                     .requests = records,
                                     .stall_us = stall_us,
                                     .spans = *k->gantt ? SPANS : 0,
                                     .compensation = &k->run.compensation,
                                     .compensate_plan = channels,
                                     .packed = job->packed,
                                     .seed = job->seed,
                                     .links = links_before(job, key),
                                     .find_state = find_state,
                                     .find_ctx = &(struct state_place){ job, k } };
    json_t                   *heard = NULL;
    tsr_status                st = TSR_OK;
    *f = (struct tsr_step_run_launch){ 0 };
    if (!plan || (!channels && *k->run.compensation.compensate_plan))
        st = tsr_fail_nomem(err, 64, "a path");
    if (st == TSR_OK && job->peers)
        st = meet(job, k, &fo, &heard, err);
    if (st == TSR_OK)
        st = open_plan(f, job, m, &fo, err);
    free(plan);
    free(channels);
    json_decref(heard);
    return st;
}

static bool put_rank(json_t *list, const struct tsr_runtime_layout *l,
                     const struct tsr_runtime_page *p, uint32_t i)
{
    const struct tsr_runtime_page_rank    *r = &p->rank[i];
    const struct tsr_runtime_rank_numbers *n = &r->numbers;
    struct tsr_runtime_place               at = tsr_runtime_layout_place(l, i);
    json_t                                *j = json_object();
    bool                                   ok = tsr_pipeline_json_put_int(j, "rank", i) &&
              tsr_pipeline_json_put_int(j, "replica", at.replica) &&
              tsr_pipeline_json_put_int(j, "stage", at.stage) &&
              tsr_pipeline_json_put_int(j, "tp", at.tp) &&
              tsr_pipeline_json_put_int(j, "first_layer", at.first) &&
              tsr_pipeline_json_put_int(j, "layers", at.end - at.first) &&
              (!tsr_runtime_layout_backend(l, i) ||
               tsr_pipeline_json_put_text(j, "backend", tsr_runtime_layout_backend(l, i))) &&
              tsr_pipeline_json_put_int(j, "weights", atomic_load(&n->weights)) &&
              tsr_pipeline_json_put_int(j, "kv", atomic_load(&n->cache)) &&
              tsr_pipeline_json_put_int(j, "peak", atomic_load(&n->peak)) &&
              tsr_pipeline_json_put_real(j, "load_s", (double)atomic_load(&n->load_ns) / 1e9) &&
              tsr_pipeline_json_put_int(j, "micro_batches", atomic_load(&n->batches));
    if (ok && atomic_load(&n->load_peak))
        ok = tsr_pipeline_json_put_int(j, "load_peak", atomic_load(&n->load_peak)) &&
             tsr_pipeline_json_put_int(j, "stored_layer", atomic_load(&n->load_layer)) &&
             tsr_pipeline_json_put_int(j, "read_bytes", atomic_load(&n->read_bytes)) &&
             tsr_pipeline_json_put_real(j, "read_s", (double)atomic_load(&n->read_ns) / 1e9) &&
             tsr_pipeline_json_put_real(j, "quantize_s",
                                        (double)atomic_load(&n->quantize_ns) / 1e9) &&
             tsr_pipeline_json_put_real(j, "place_s", (double)atomic_load(&n->place_ns) / 1e9);
    if (ok && atomic_load(&n->host_peak))
        ok = tsr_pipeline_json_put_int(j, "resident_peak", atomic_load(&n->host_peak));
    if (ok && atomic_load(&n->residuals))
        ok = tsr_pipeline_json_put_int(j, "residuals", atomic_load(&n->residuals));
    if (ok && atomic_load(&n->sums))
        ok = tsr_pipeline_json_put_int(j, "sums", atomic_load(&n->sums)) &&
             tsr_pipeline_json_put_int(j, "declared_bytes", atomic_load(&n->declared)) &&
             tsr_pipeline_json_put_int(j, "sent_bytes", atomic_load(&n->sent));
    if (ok && atomic_load(&n->passed))
        ok = tsr_pipeline_json_put_int(j, "passed_bytes", atomic_load(&n->passed));
    if (ok && atomic_load(&n->paced))
        ok = tsr_pipeline_json_put_int(j, "paced", atomic_load(&n->paced)) &&
             tsr_pipeline_json_put_int(j, "overruns", atomic_load(&n->overruns)) &&
             tsr_pipeline_json_put_real(j, "overrun_ms", (double)atomic_load(&n->overrun_ns) / 1e6);
    return json_array_append_new(list, j) == 0 && ok;
}

/* What emulated devices did, in their own time. */
static bool put_emulated(json_t *j, const struct tsr_launch *f, const struct tsr_runtime_page *p,
                         double per_second)
{
    uint64_t paced = 0, over = 0;
    for (uint32_t i = 0; i < p->ranks; i++) {
        paced += atomic_load(&p->rank[i].numbers.paced);
        over += atomic_load(&p->rank[i].numbers.overruns);
    }
    return !paced || (tsr_pipeline_json_put_int(j, "paced", paced) &&
                      tsr_pipeline_json_put_int(j, "overruns", over) &&
                      tsr_pipeline_json_put_real(j, "slower", tsr_launch_slower(f)) &&
                      tsr_pipeline_json_put_real(j, "emulated_tokens_per_second",
                                                 per_second * tsr_launch_slower(f)));
}

/* Ranks of a stage have parts of its residuals and select the same channels. */
static bool put_compensation(json_t *j, const struct tsr_step_run_launch *f,
                             const struct tsr_step_run_keys *k, const struct tsr_runtime_page *p)
{
    struct tsr_engine_compensated done = { .linears = 0 };
    uint64_t                      seen = 0; /* tokens of the replica */
    for (uint32_t i = 0; i < p->ranks; i++) {
        const struct tsr_runtime_rank_numbers *n = &p->rank[i].numbers;
        struct tsr_runtime_place at = tsr_runtime_layout_place(tsr_launch_layout(f->fleet), i);
        uint64_t                 tokens = atomic_load(&n->compensated);
        done.host_bytes += atomic_load(&n->residuals);
        if (at.stage == 0 && at.tp == 0)
            seen = 0;
        if (tokens > seen) { /* the same ones in every stage */
            done.tokens += tokens - seen;
            seen = tokens;
        }
        if (at.tp == 0) {
            done.selected += atomic_load(&n->selected);
            done.linears += at.replica == 0 ? atomic_load(&n->linears) : 0;
        }
    }
    return tsr_pipeline_compensating_put_done(j, &k->run.compensation,
                                              tsr_launch_compensating(f->fleet), &done);
}

/* Ranks of a stage have parts of the same linears; each replica has different linears. */
static void count_acts(const struct tsr_step_run_launch *f, const struct tsr_runtime_page *p,
                       uint64_t ran[3])
{
    for (uint32_t i = 0; i < p->ranks; i++)
        for (int act = 0;
             act < 3 && tsr_runtime_layout_place(tsr_launch_layout(f->fleet), i).tp == 0; act++)
            ran[act] += atomic_load(&p->rank[i].numbers.acts[act]);
}

tsr_status tsr_step_run_launch_report(struct tsr_step_run_launch     *f,
                                      const struct tsr_pipeline_job  *job,
                                      const struct tsr_step_run_keys *k, uint64_t tokens,
                                      double seconds, uint64_t ran[3], json_t *results,
                                      struct tsr_err *err)
{
    struct tsr_runtime_page    *p = tsr_launch_page(f->fleet);
    const struct tsr_plan_said *said = &tsr_launch_plan(f->fleet)->said;
    TSR_TRY(tsr_launch_stop(f->fleet, err));
    count_acts(f, p, ran);
    json_t  *ranks = json_array();
    uint64_t from = atomic_load(&p->first_start), to = atomic_load(&p->first_result);
    double   per_second = seconds > 0 ? (double)tokens / seconds : 0;
    bool     ok = tsr_pipeline_json_put_real(results, "seconds", seconds) &&
              tsr_pipeline_json_put_int(results, "tokens", tokens) &&
              tsr_pipeline_json_put_real(results, "tokens_per_second", per_second) &&
              tsr_pipeline_json_put_real(results, "first_token_s",
                                         to > from ? (double)(to - from) / 1e9 : 0);
    for (uint32_t i = 0; i < p->ranks; i++)
        ok = ok && put_rank(ranks, tsr_launch_layout(f->fleet), p, i);
    ok = tsr_pipeline_json_put(results, "ranks", ranks) && ok;
    ok = ok && put_emulated(results, f->fleet, p, per_second) && put_compensation(results, f, k, p);
    if (said->tokens_per_second > 0)
        ok = ok && tsr_pipeline_json_put_real(results, "predicted_tokens_per_second",
                                              said->tokens_per_second);
    if (!ok)
        return tsr_fail_nomem(err, 0, "the results");
    return *k->gantt ? tsr_step_run_chart(job, f->fleet, k->gantt, results, err) : TSR_OK;
}

void tsr_step_run_launch_close(struct tsr_step_run_launch *f)
{
    tsr_launch_close(f->fleet);
    f->fleet = NULL;
}

void tsr_step_run_launch_print(const json_t *r, FILE *to)
{
    const json_t *over = json_object_get(r, "overruns"), *ranks = json_object_get(r, "ranks");
    const json_t *comp = json_object_get(r, "compensation");
    const json_t *expected = json_object_get(r, "predicted_tokens_per_second");
    if (comp)
        (void)fprintf(to, "compensated: %lld tokens, %lld channels in all, of %lld linears\n",
                      (long long)json_integer_value(json_object_get(comp, "tokens")),
                      (long long)json_integer_value(json_object_get(comp, "selected")),
                      (long long)json_integer_value(json_object_get(comp, "linears")));
    if (!ranks)
        return;
    (void)fprintf(to,
                  "%lld tokens in %.3f s on %zu rank%s: %.4g tokens/s, the first after %.3f s\n",
                  (long long)json_integer_value(json_object_get(r, "tokens")),
                  json_number_value(json_object_get(r, "seconds")), json_array_size(ranks),
                  json_array_size(ranks) == 1 ? "" : "s",
                  json_number_value(json_object_get(r, "tokens_per_second")),
                  json_number_value(json_object_get(r, "first_token_s")));
    if (!over)
        return;
    (void)fprintf(to, "emulated: %.4g tokens/s",
                  json_number_value(json_object_get(r, "emulated_tokens_per_second")));
    if (expected) /* a plan by hand has no predictions */
        (void)fprintf(to, ", the plan expected %.4g", json_number_value(expected));
    (void)fprintf(to, "; %lld of %lld micro-batches took longer than their profile\n",
                  (long long)json_integer_value(over),
                  (long long)json_integer_value(json_object_get(r, "paced")));
}
