#include "batch/run_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "batch/watch.h"
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the worker --------------------------------------------------------- */

/* If a record needs more resources than it can get, assume that this record is at fault: the
 * supervisor runs it alone, and then gives up on it. */
static tsr_status blame(tsr_status st)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    if (w && st == TSR_E_NOMEM)
        atomic_store(&w->no_memory, 1);
    return st;
}

/* Records that begin now: choices of those before go first. */
static uint32_t room(void *ctx)
{
    struct tsr_batch_work *r = ctx;
    return tsr_batch_fan_waits(&r->fan) ? 0 : tsr_engine_server_room(r->fan.server);
}

static uint32_t busy(void *ctx)
{
    struct tsr_batch_work *r = ctx;
    return tsr_engine_server_busy(r->fan.server) + tsr_batch_fan_waits(&r->fan);
}

static tsr_status submit(void *ctx, uint64_t index, struct tsr_err *err)
{
    struct tsr_batch_work *r = ctx;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    char                  *line;
    uint64_t               len;
    tsr_status             st = tsr_batch_records_read(r->job->records, index, &line, &len, &e.err);
    if (st == TSR_E_INPUT)
        return tsr_batch_work_error(r, index, NULL, "invalid_json", e.text, err);
    if (st != TSR_OK)
        return tsr_err_copy(err, blame(st), &e.err);
    st = tsr_batch_work_take(r, index, line, len, err);
    free(line);
    return blame(st);
}

static tsr_status step(void *ctx, struct tsr_err *err)
{
    struct tsr_batch_work *r = ctx;
    tsr_batch_watch_beat();
    tsr_status st = tsr_batch_work_feed(r, err);
    if (st == TSR_OK)
        st = tsr_engine_server_step(r->fan.server, err);
    (void)blame(st);
    tsr_batch_work_note_oldest(r);
    tsr_batch_watch_beat();
    return st == TSR_OK && r->job->same ? r->job->same(r->job->same_ctx, false, err) : st;
}

static const char *custom_id_of(const char *line, uint64_t len, struct tsr_batch_request *q,
                                const struct tsr_batch_request_defaults *d)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    (void)tsr_batch_request_parse(q, line, len, 0, d, &ignored.err);
    return q->custom_id;
}

static tsr_status poison(void *ctx, uint64_t index, uint32_t deaths, struct tsr_tokenizer_text *out,
                         struct tsr_err *err)
{
    struct tsr_batch_work   *r = ctx;
    struct tsr_errbuf        ignored = TSR_ERRBUF(ignored);
    struct tsr_batch_request q = { 0 };
    char                    *line = NULL, why[200];
    uint64_t                 len = 0;
    (void)
        snprintf(why, sizeof why,
                 "%u runs that worked on this record alone died by their own fault, for memory or "
                 "beyond its deadline",
                 deaths);
    if (tsr_batch_records_read(r->job->records, index, &line, &len, &ignored.err) != TSR_OK)
        line = NULL;
    const char *id = line ? custom_id_of(line, len, &q, &r->defaults) : NULL;
    tsr_status  st = tsr_batch_answer_error(&r->ids, tsr_batch_work_number(r, index), id, "poison",
                                            why, out, err);
    tsr_batch_request_free(&q);
    free(line);
    return st;
}

/* ---- the whole ---------------------------------------------------------- */

/* Holds the lock of the output, so that leftovers of a killed run are removed and no other process
 * writes it. */
static tsr_status publish(struct tsr_batch_work *r, struct tsr_err *err)
{
    const char             *output = r->job->output;
    struct tsr_output_lock *lock;
    struct tsr_errbuf       ignored = TSR_ERRBUF(ignored);
    TSR_TRY(tsr_output_lock(&lock, output, err));
    char      *part = tsr_output_part_name(output, (uint32_t)getpid());
    tsr_status st =
        part ? tsr_batch_finish(r->batch, part, err) : tsr_fail_nomem(err, strlen(output), output);
    if (part && st != TSR_OK)
        (void)tsr_output_remove(part, &ignored.err);
    free(part);
    tsr_output_unlock(lock);
    return st;
}

static tsr_status work(struct tsr_batch_work *r, struct tsr_err *err)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    bool                    over = false;
    if (w) {
        atomic_store(&w->opened, 1);
        atomic_store(&w->working, 1);
    }
    tsr_batch_work_begin(r);
    r->start_s = tsr_now_s();
    tsr_batch_progress_begin(&r->progress, &tsr_clock_system, tsr_batch_counts(r->batch)->done);
    tsr_batch_work_warn(tsr_batch_counts(r->batch));
    tsr_batch_work_tell(r);
    while (!over) {
        tsr_status st = tsr_batch_step(r->batch, &over, err);
        tsr_batch_work_tell(r);
        tsr_batch_work_say(r, st != TSR_OK || over);
        TSR_TRY(st);
    }
    double took = tsr_now_s() - r->start_s;
    if (w)
        atomic_store(&w->working, 0); /* a file is written: no beats */
    tsr_logf(TSR_LOG_INFO,
             "the journal took %.2f %% of %.2f s: %llu commits, %llu syncs during the work",
             took > 0 ? (double)tsr_batch_journal_us(r->batch) / took / 1e4 : 0.0, took,
             (unsigned long long)tsr_batch_counts(r->batch)->commits,
             (unsigned long long)tsr_batch_counts(r->batch)->syncs);
    if (r->job->same)
        TSR_TRY(r->job->same(r->job->same_ctx, true, err));
    TSR_TRY(tsr_file_unchanged(&r->job->records->file, err));
    TSR_TRY(publish(r, err));
    return tsr_batch_reasons_read(&r->sum->reasons, tsr_batch_journal(r->batch), r->job->records,
                                  err);
}

static tsr_status open_batch(struct tsr_batch_work *r, char **about, struct tsr_err *err)
{
    const struct tsr_batch_job *job = r->job;
    struct tsr_batch_watch     *w = tsr_batch_watch_get();
    char                        who[100], host[64] = "?";
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(who, sizeof who, "process %d on %.60s", (int)getpid(), host);
    struct tsr_batch_worker  worker = { r, room, busy, submit, step, poison };
    struct tsr_batch_adopt   adopt = { .records = job->records, .ids = &job->ids };
    struct tsr_batch_options o = {
        .journal = { .io = &tsr_io_system,
                     .folder = job->folder,
                     .job = job->id,
                     .about = job->about,
                     .records = job->records->n,
                     .verdict = w && w->verdict ? TSR_BATCH_VERDICT_OWN : TSR_BATCH_VERDICT_OUTSIDE,
                     .retry = job->retry && !(w && atomic_load(&w->opened)),
                     .who = who,
                     .check = tsr_batch_adopt_check,
                     .check_ctx = &adopt },
        .clock = &tsr_clock_system,
        .output = job->output
    };
    TSR_TRY(tsr_batch_open(&r->batch, &o, &worker, about, err));
    return tsr_batch_adopt_names(&r->kept, tsr_batch_journal_about(tsr_batch_journal(r->batch)),
                                 job->folder, &r->ids.model, &r->defaults.why_no_chat, err);
}

tsr_status tsr_batch_run(const struct tsr_batch_job *job, struct tsr_batch_summary *s, char **about,
                         struct tsr_err *err)
{
    struct tsr_batch_work r = { .job = job, .sum = s, .ids = job->ids, .defaults = job->defaults };
    struct tsr_engine_serve_events events = { .ctx = &r.fan,
                                              .token = tsr_batch_fan_on_token,
                                              .done = tsr_batch_fan_on_done };
    *s = (struct tsr_batch_summary){ .records = job->records->n };
    *about = NULL;
    r.fan = (struct tsr_batch_fan){ .places = job->pass.slots,
                                    .deadline_us = job->deadline_us,
                                    .tokenizer = r.defaults.tokenizer,
                                    .ctx = &r,
                                    .begun = tsr_batch_work_on_begun,
                                    .token = tsr_batch_work_on_token,
                                    .ended = tsr_batch_work_on_ended };
    r.fan.taken = tsr_new(job->pass.slots, sizeof *r.fan.taken);
    if (!r.fan.taken)
        return tsr_fail_nomem(err, job->pass.slots * sizeof *r.fan.taken, "records");
    tsr_status st = tsr_batch_ttft_open(&s->ttft, job->records->n, err);
    if (st == TSR_OK)
        st = tsr_engine_server_create(&r.fan.server, &job->pass, &events, err);
    if (st == TSR_OK)
        st = open_batch(&r, about, err);
    if (st == TSR_OK)
        st = work(&r, err);
    if (r.batch) {
        s->counts = *tsr_batch_counts(r.batch);
        s->journal_s = tsr_batch_work_journal_seconds(&r);
    }
    s->errors = s->counts.errors;
    s->prompt_tokens += r.before.prompt_tokens;
    s->new_tokens += r.before.new_tokens;
    s->seconds = tsr_batch_work_seconds(&r);
    if (r.fan.server) {
        s->drafts = *tsr_engine_server_drafted(r.fan.server);
        s->reused = tsr_engine_server_reused(r.fan.server);
    }
    tsr_batch_close(r.batch);
    tsr_engine_server_destroy(r.fan.server);
    for (uint32_t k = 0; k < job->pass.slots; k++)
        tsr_batch_taken_free(&r.fan.taken[k]);
    free(r.fan.taken);
    tsr_tokenizer_text_free(&r.line);
    json_decref(r.kept);
    return st;
}
