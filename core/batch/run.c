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

static uint32_t room(void *ctx)
{
    return tsr_engine_server_room(((struct tsr_batch_work *)ctx)->server);
}

static uint32_t busy(void *ctx)
{
    return tsr_engine_server_busy(((struct tsr_batch_work *)ctx)->server);
}

static uint64_t number_of(const struct tsr_batch_work *r, uint64_t index)
{
    return tsr_batch_records_line(r->job->records, index) - 1;
}

/* Puts the line of a record into the journal; its tokens are in the sums. */
static tsr_status put_line(struct tsr_batch_work *r, uint64_t index, bool error,
                           struct tsr_err *err)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    TSR_TRY(tsr_batch_line(r->batch, index, error, r->line.v, r->line.n, err));
    if (!w)
        return TSR_OK;
    uint64_t                     n = tsr_batch_counts(r->batch)->done;
    struct tsr_batch_watch_line *l = &w->lines[n % TSR_WATCH_LINES];
    atomic_store(&l->line, 0);
    atomic_store(&l->prompt_tokens, r->before.prompt_tokens + r->sum->prompt_tokens);
    atomic_store(&l->new_tokens, r->before.new_tokens + r->sum->new_tokens);
    atomic_store(&l->line, n);
    return TSR_OK;
}

static tsr_status error_line(struct tsr_batch_work *r, uint64_t index, const char *custom_id,
                             const char *code, const char *why, struct tsr_err *err)
{
    r->line.n = 0;
    TSR_TRY(
        tsr_batch_answer_error(&r->ids, number_of(r, index), custom_id, code, why, &r->line, err));
    return put_line(r, index, true, err);
}

static struct tsr_batch_taken *free_place(struct tsr_batch_work *r)
{
    uint32_t k = 0;
    while (r->taken[k].busy)
        k++;
    return &r->taken[k];
}

static void note_oldest(const struct tsr_batch_work *r)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    uint64_t                oldest = 0;
    for (uint32_t k = 0; w && k < r->job->pass.slots; k++)
        if (r->taken[k].busy && (!oldest || r->taken[k].since_us < oldest))
            oldest = r->taken[k].since_us;
    if (w)
        atomic_store(&w->oldest_us, oldest);
}

static tsr_status take(struct tsr_batch_work *r, uint64_t index, const char *line, uint64_t len,
                       struct tsr_err *err)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_batch_taken *t = free_place(r);
    tsr_status              st =
        tsr_batch_request_parse(&t->request, line, len, number_of(r, index), &r->defaults, &e.err);
    if (st == TSR_OK) {
        t->busy = true;
        t->begun = false;
        t->index = index;
        t->since_us = tsr_now_us();
        t->request.q.id = (uint64_t)(t - r->taken);
        st = tsr_engine_server_submit(r->server, &t->request.q, err);
        note_oldest(r);
        return st;
    }
    if (t->request.code)
        st = error_line(r, index, t->request.custom_id, t->request.code, e.text, err);
    else
        st = tsr_fail(err, st, "line %llu: %s",
                      (unsigned long long)tsr_batch_records_line(r->job->records, index), e.text);
    tsr_batch_request_free(&t->request);
    return st;
}

static tsr_status submit(void *ctx, uint64_t index, struct tsr_err *err)
{
    struct tsr_batch_work *r = ctx;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    char                  *line;
    uint64_t               len;
    tsr_status             st = tsr_batch_records_read(r->job->records, index, &line, &len, &e.err);
    if (st == TSR_E_INPUT)
        return error_line(r, index, NULL, "invalid_json", e.text, err);
    if (st != TSR_OK)
        return tsr_err_copy(err, blame(st), &e.err);
    st = take(r, index, line, len, err);
    free(line);
    return blame(st);
}

static void note_first(struct tsr_batch_work *r, struct tsr_batch_taken *t)
{
    if (!t->begun)
        tsr_batch_ttft_note(&r->sum->ttft, t->index, (double)(tsr_now_us() - t->since_us) / 1e6);
    t->begun = true;
}

static tsr_status on_token(void *ctx, uint64_t id, uint32_t token)
{
    struct tsr_batch_work *r = ctx;
    (void)token;
    r->generated++;
    note_first(r, &r->taken[id]);
    return TSR_OK;
}

static tsr_status on_done(void *ctx, const struct tsr_engine_served *s, struct tsr_err *err)
{
    struct tsr_batch_work  *r = ctx;
    struct tsr_batch_taken *t = &r->taken[s->id];
    tsr_status              st;
    if (s->finish == TSR_ENGINE_FINISH_EOS)
        note_first(r, t); /* an end without a preceding token */
    if (s->finish == TSR_ENGINE_FINISH_FAILED) {
        st = error_line(r, t->index, t->request.custom_id,
                        s->status == TSR_E_NUMERIC ? "not_finite" : "failed", s->error, err);
    } else if (s->finish == TSR_ENGINE_FINISH_ENDED) {
        st = error_line(r, t->index, t->request.custom_id, "deadline_exceeded",
                        "the record took longer than its deadline", err);
    } else {
        r->sum->prompt_tokens += s->n_prompt;
        r->sum->new_tokens += s->n_tokens;
        r->line.n = 0;
        st = tsr_batch_answer_line(&r->ids, number_of(r, t->index), &t->request, s,
                                   r->defaults.tokenizer, &r->line, err);
        if (st == TSR_OK)
            st = put_line(r, t->index, false, err);
    }
    tsr_batch_request_free(&t->request);
    t->busy = false;
    note_oldest(r);
    return st;
}

static void end_late_ones(struct tsr_batch_work *r)
{
    uint64_t now = tsr_now_us();
    for (uint32_t k = 0; r->job->deadline_us && k < r->job->pass.slots; k++)
        if (r->taken[k].busy && now - r->taken[k].since_us > r->job->deadline_us)
            tsr_engine_server_cancel(r->server, k);
}

static tsr_status step(void *ctx, struct tsr_err *err)
{
    struct tsr_batch_work *r = ctx;
    tsr_batch_watch_beat();
    end_late_ones(r);
    tsr_status st = blame(tsr_engine_server_step(r->server, err));
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
    tsr_status  st =
        tsr_batch_answer_error(&r->ids, number_of(r, index), id, "poison", why, out, err);
    tsr_batch_request_free(&q);
    free(line);
    return st;
}

/* ---- progress ----------------------------------------------------------- */

/* ---- the whole ---------------------------------------------------------- */

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
    struct tsr_engine_serve_events events = { .ctx = &r, .token = on_token, .done = on_done };
    *s = (struct tsr_batch_summary){ .records = job->records->n };
    *about = NULL;
    r.taken = tsr_new(job->pass.slots, sizeof *r.taken);
    if (!r.taken)
        return tsr_fail_nomem(err, job->pass.slots * sizeof *r.taken, "records");
    tsr_status st = tsr_batch_ttft_open(&s->ttft, job->records->n, err);
    if (st == TSR_OK)
        st = tsr_engine_server_create(&r.server, &job->pass, &events, err);
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
    tsr_batch_close(r.batch);
    tsr_engine_server_destroy(r.server);
    for (uint32_t k = 0; k < job->pass.slots; k++)
        tsr_batch_request_free(&r.taken[k].request);
    free(r.taken);
    tsr_tokenizer_text_free(&r.line);
    json_decref(r.kept);
    return st;
}
