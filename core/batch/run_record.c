/* A record in work: from its line to the line of its answer. */
#include "batch/run_internal.h"

#include "batch/entry.h"
#include "batch/watch.h"

#include <string.h>

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

void tsr_batch_work_note_oldest(const struct tsr_batch_work *r)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    if (w)
        atomic_store(&w->oldest_us, tsr_batch_fan_oldest_us(&r->fan));
}

tsr_status tsr_batch_work_take(struct tsr_batch_work *r, uint64_t index, const char *line,
                               uint64_t len, struct tsr_err *err)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_batch_taken *t = tsr_batch_fan_place(&r->fan);
    tsr_status st = tsr_batch_request_parse(&t->request, line, len, tsr_batch_work_number(r, index),
                                            &r->defaults, &e.err);
    if (st == TSR_OK) {
        st = tsr_batch_fan_begin(&r->fan, t, index, err);
        tsr_batch_work_note_oldest(r);
        return st;
    }
    if (t->request.code)
        st = tsr_batch_work_error(r, index, t->request.custom_id, t->request.code, e.text, err);
    else
        st = tsr_fail(err, st, "line %llu: %s",
                      (unsigned long long)tsr_batch_records_line(r->job->records, index), e.text);
    tsr_batch_taken_free(t);
    return st;
}

tsr_status tsr_batch_work_feed(struct tsr_batch_work *r, struct tsr_err *err)
{
    tsr_status st = tsr_batch_fan_end_late(&r->fan, err);
    if (st == TSR_OK)
        st = tsr_batch_fan_feed(&r->fan, err);
    tsr_batch_work_note_oldest(r);
    return st;
}

void tsr_batch_work_on_token(void *ctx)
{
    struct tsr_batch_work *r = ctx;
    r->generated++;
}

void tsr_batch_work_on_begun(void *ctx, const struct tsr_batch_taken *t)
{
    struct tsr_batch_work *r = ctx;
    tsr_batch_ttft_note(&r->sum->ttft, t->index, (double)(tsr_now_us() - t->since_us) / 1e6);
}

tsr_status tsr_batch_work_on_ended(void *ctx, struct tsr_batch_taken *t, struct tsr_err *err)
{
    struct tsr_batch_work *r = ctx;
    const char            *id = t->request.custom_id;
    if (t->late)
        return tsr_batch_work_error(r, t->index, id, "deadline_exceeded",
                                    "the record took longer than its deadline", err);
    if (t->failed < t->choices)
        return tsr_batch_work_error(r, t->index, id, t->code,
                                    t->why ? t->why : "out of memory for the reason", err);
    return answer(r, t, err);
}
