/* What a run of a batch tells: progress on stderr, warnings, and to the supervisor what is done. */
#include "batch/run_internal.h"

#include "base/log.h"
#include "batch/watch.h"

#include <unistd.h>

void tsr_batch_work_say(struct tsr_batch_work *r, bool last)
{
    const struct tsr_batch_journal_counts *c = tsr_batch_counts(r->batch);
    struct tsr_batch_state                 s = {
                        .records = r->sum->records, .done = c->done, .errors = c->errors, .tokens = r->generated
    };
    bool tty = isatty(STDERR_FILENO) == 1;
    char text[200];
    if (r->job->quiet || (!tsr_batch_progress_due(&r->progress, tty ? 200000 : 5000000) && !last))
        return;
    tsr_batch_progress_text(&r->progress, &s, text, sizeof text);
    (void)fprintf(stderr, "%sbatch: %s%s", tty ? "\r\033[K" : "", text, tty && !last ? "" : "\n");
    (void)fflush(stderr);
}

void tsr_batch_work_begin(struct tsr_batch_work *r)
{
    const struct tsr_batch_watch *w = tsr_batch_watch_get();
    if (!w)
        return;
    r->before.seconds = (double)atomic_load(&w->work_us) / 1e6;
    r->before.journal_s = (double)atomic_load(&w->journal_us) / 1e6;
    /* lines of abandoned records have no tokens and no position */
    uint64_t n = tsr_batch_counts(r->batch)->done;
    for (uint64_t i = n; i > 0 && n - i < TSR_WATCH_LINES; i--) {
        const struct tsr_batch_watch_line *l = &w->lines[i % TSR_WATCH_LINES];
        if (atomic_load(&l->line) == i) {
            r->before.prompt_tokens = atomic_load(&l->prompt_tokens);
            r->before.new_tokens = atomic_load(&l->new_tokens);
            return;
        }
    }
}

double tsr_batch_work_seconds(const struct tsr_batch_work *r)
{
    return r->before.seconds + (r->start_s > 0 ? tsr_now_s() - r->start_s : 0);
}

double tsr_batch_work_journal_seconds(const struct tsr_batch_work *r)
{
    return r->before.journal_s + (double)tsr_batch_journal_us(r->batch) / 1e6;
}

void tsr_batch_work_tell(const struct tsr_batch_work *r)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    if (!w)
        return;
    atomic_store(&w->work_us, (uint64_t)(tsr_batch_work_seconds(r) * 1e6));
    atomic_store(&w->journal_us, (uint64_t)(tsr_batch_work_journal_seconds(r) * 1e6));
    atomic_store(&w->done, tsr_batch_counts(r->batch)->done -
                               tsr_batch_journal_pending(tsr_batch_journal(r->batch)));
}

void tsr_batch_work_warn(const struct tsr_batch_journal_counts *c)
{
    if (c->cut)
        tsr_logf(TSR_LOG_INFO, "the journal had a torn end of %llu bytes",
                 (unsigned long long)c->cut);
    if (c->unlike)
        tsr_logf(TSR_LOG_WARN,
                 "%llu records were computed twice with different results; the first ones stay, "
                 "but this machine or its memory should be looked at",
                 (unsigned long long)c->unlike);
}
