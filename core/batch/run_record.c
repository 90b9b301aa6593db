/* A record in work: its choices through the server, its answer when all of them are there. */
#include "batch/run_internal.h"

#include "base/json.h"
#include "base/mem.h"
#include "batch/entry.h"
#include "batch/watch.h"

#include <stdlib.h>
#include <string.h>

/* ---- lines -------------------------------------------------------------- */

uint64_t tsr_batch_work_number(const struct tsr_batch_work *r, uint64_t index)
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

tsr_status tsr_batch_work_error(struct tsr_batch_work *r, uint64_t index, const char *custom_id,
                                const char *code, const char *why, struct tsr_err *err)
{
    r->line.n = 0;
    TSR_TRY(tsr_batch_answer_error(&r->ids, tsr_batch_work_number(r, index), custom_id, code, why,
                                   &r->line, err));
    return put_line(r, index, true, err);
}

static tsr_status answer(struct tsr_batch_work *r, struct tsr_batch_taken *t, struct tsr_err *err)
{
    json_t *choices = t->answer;
    t->answer = NULL;
    r->line.n = 0;
    TSR_TRY(tsr_batch_answer_line(&r->ids, tsr_batch_work_number(r, t->index), &t->request, choices,
                                  t->new_tokens, &r->line, err));
    if (r->line.n > TSR_ENTRY_MOST) {
        char why[120];
        (void)snprintf(why, sizeof why,
                       "the answer has %llu bytes, more than %u; ask for fewer tokens or choices",
                       (unsigned long long)r->line.n, TSR_ENTRY_MOST);
        return tsr_batch_work_error(r, t->index, t->request.custom_id, "failed", why, err);
    }
    r->sum->prompt_tokens += t->request.prompts.ids.n;
    r->sum->new_tokens += t->new_tokens;
    return put_line(r, t->index, false, err);
}

/* ---- records ------------------------------------------------------------ */

static void note_oldest(const struct tsr_batch_work *r)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    uint64_t                oldest = 0;
    for (uint32_t k = 0; w && k < r->job->pass.slots; k++)
        if (r->taken[k].since_us && (!oldest || r->taken[k].since_us < oldest))
            oldest = r->taken[k].since_us;
    if (w)
        atomic_store(&w->oldest_us, oldest);
}

void tsr_batch_taken_free(struct tsr_batch_taken *t)
{
    tsr_batch_request_free(&t->request);
    json_decref(t->answer);
    free(t->why);
    memset(t, 0, sizeof *t);
}

tsr_status tsr_batch_work_take(struct tsr_batch_work *r, uint64_t index, const char *line,
                               uint64_t len, struct tsr_err *err)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_batch_taken *t = r->taken;
    tsr_status              st;
    while (t->busy)
        t++;
    st = tsr_batch_request_parse(&t->request, line, len, tsr_batch_work_number(r, index),
                                 &r->defaults, &e.err);
    if (st == TSR_OK) {
        t->busy = true;
        t->index = index;
        t->choices = t->failed = tsr_batch_request_choices(&t->request);
        t->answer = json_array();
        for (uint32_t i = 0; i < t->choices; i++)
            tsr_json_add(&t->answer, json_null());
        return t->answer ? tsr_batch_work_feed(r, err)
                         : tsr_fail_nomem(err, t->choices, "an answer");
    }
    if (t->request.code)
        st = tsr_batch_work_error(r, index, t->request.custom_id, t->request.code, e.text, err);
    else
        st = tsr_fail(err, st, "line %llu: %s",
                      (unsigned long long)tsr_batch_records_line(r->job->records, index), e.text);
    tsr_batch_taken_free(t);
    return st;
}

/* The record that waits first; NULL: every choice is in the server. */
static struct tsr_batch_taken *waiting(const struct tsr_batch_work *r)
{
    struct tsr_batch_taken *first = NULL;
    for (uint32_t k = 0; k < r->job->pass.slots; k++) {
        struct tsr_batch_taken *t = &r->taken[k];
        if (t->busy && t->next < t->choices && (!first || t->index < first->index))
            first = t;
    }
    return first;
}

bool tsr_batch_work_waits(const struct tsr_batch_work *r)
{
    return waiting(r) != NULL;
}

tsr_status tsr_batch_work_feed(struct tsr_batch_work *r, struct tsr_err *err)
{
    struct tsr_batch_taken *t;
    while (tsr_engine_server_room(r->server) && (t = waiting(r)) != NULL) {
        struct tsr_engine_serve_request q = tsr_batch_request_choice(&t->request, t->next);
        if (t->next == 0) {
            t->since_us = tsr_now_us();
            note_oldest(r);
        }
        q.id = (uint64_t)(t - r->taken) << 32 | t->next++;
        t->open++;
        TSR_TRY(tsr_engine_server_submit(r->server, &q, err));
    }
    return TSR_OK;
}

/* ---- events ------------------------------------------------------------- */

static void note_first(struct tsr_batch_work *r, struct tsr_batch_taken *t)
{
    if (!t->begun)
        tsr_batch_ttft_note(&r->sum->ttft, t->index, (double)(tsr_now_us() - t->since_us) / 1e6);
    t->begun = true;
}

tsr_status tsr_batch_work_on_token(void *ctx, uint64_t id, uint32_t token)
{
    struct tsr_batch_work *r = ctx;
    (void)token;
    r->generated++;
    note_first(r, &r->taken[id >> 32]);
    return TSR_OK;
}

/* Of several choices that fail the first in order is named, whichever failed first in time. */
static void note_failure(struct tsr_batch_taken *t, uint32_t choice,
                         const struct tsr_engine_served *s)
{
    if (choice >= t->failed)
        return;
    t->failed = choice;
    t->code = s->status == TSR_E_NUMERIC ? "not_finite" : "failed";
    free(t->why);
    t->why = tsr_strdup(s->error);
}

static tsr_status end_record(struct tsr_batch_work *r, struct tsr_batch_taken *t,
                             struct tsr_err *err)
{
    const char *id = t->request.custom_id;
    tsr_status  st;
    if (t->late)
        st = tsr_batch_work_error(r, t->index, id, "deadline_exceeded",
                                  "the record took longer than its deadline", err);
    else if (t->failed < t->choices)
        st = tsr_batch_work_error(r, t->index, id, t->code,
                                  t->why ? t->why : "out of memory for the reason", err);
    else
        st = answer(r, t, err);
    tsr_batch_taken_free(t);
    note_oldest(r);
    return st;
}

tsr_status tsr_batch_work_end_late(struct tsr_batch_work *r, struct tsr_err *err)
{
    uint64_t now = tsr_now_us();
    for (uint32_t k = 0; r->job->deadline_us && k < r->job->pass.slots; k++) {
        struct tsr_batch_taken *t = &r->taken[k];
        if (!t->since_us || t->late || now - t->since_us <= r->job->deadline_us)
            continue;
        t->late = true;
        for (uint32_t i = 0; i < t->next; i++)
            tsr_engine_server_cancel(r->server, (uint64_t)k << 32 | i);
        t->next = t->choices; /* the others do not begin */
        if (t->open == 0)
            TSR_TRY(end_record(r, t, err));
    }
    return TSR_OK;
}

tsr_status tsr_batch_work_on_done(void *ctx, const struct tsr_engine_served *s, struct tsr_err *err)
{
    struct tsr_batch_work  *r = ctx;
    struct tsr_batch_taken *t = &r->taken[s->id >> 32];
    uint32_t                choice = (uint32_t)s->id;
    t->open--;
    if (s->finish == TSR_ENGINE_FINISH_EOS)
        note_first(r, t); /* an end without a preceding token */
    if (s->finish == TSR_ENGINE_FINISH_FAILED) {
        note_failure(t, choice, s);
    } else if (s->finish != TSR_ENGINE_FINISH_ENDED) {
        json_t *one = tsr_batch_answer_choice(&t->request, choice, s, r->defaults.tokenizer, err);
        if (!one || json_array_set_new(t->answer, choice, one) != 0)
            return tsr_fail_nomem(err, s->n_tokens, "a choice");
        t->new_tokens += s->n_tokens;
    }
    return t->open == 0 && t->next == t->choices ? end_record(r, t, err) : TSR_OK;
}
