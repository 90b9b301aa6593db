#include "batch/progress.h"

#include <stdio.h>

static uint64_t now_us(const struct tsr_batch_progress *p)
{
    return p->clock->now_us(p->clock->ctx);
}

void tsr_batch_progress_begin(struct tsr_batch_progress *p, const struct tsr_clock *clock,
                              uint64_t done)
{
    p->clock = clock;
    p->start_us = p->said_us = now_us(p);
    p->before = done;
}

bool tsr_batch_progress_due(struct tsr_batch_progress *p, uint64_t every_us)
{
    uint64_t now = now_us(p);
    if (now - p->said_us < every_us)
        return false;
    p->said_us = now;
    return true;
}

/* At least two digits if there are two, but not more than the estimate is worth. */
static void write_duration(double seconds, char *buf, size_t cap)
{
    if (!(seconds <
          1e12)) { /* longer than anything that a whole number of hours should be made of */
        (void)snprintf(buf, cap, "?");
        return;
    }
    uint64_t s = (uint64_t)(seconds + 0.5);
    if (s < 120)
        (void)snprintf(buf, cap, "%llu s", (unsigned long long)s);
    else if (s < 7200)
        (void)snprintf(buf, cap, "%llu min", (unsigned long long)((s + 30) / 60));
    else
        (void)snprintf(buf, cap, "%llu h %llu min", (unsigned long long)(s / 3600),
                       (unsigned long long)(s / 60 % 60));
}

void tsr_batch_progress_text(const struct tsr_batch_progress *p, const struct tsr_batch_state *s,
                             char *buf, size_t cap)
{
    double   run = (double)(now_us(p) - p->start_us) / 1e6;
    uint64_t fresh = s->done > p->before ? s->done - p->before : 0;
    char     left[48] = "?", rate[32] = "?";
    if (s->done >= s->records)
        write_duration(0, left, sizeof left);
    else if (fresh)
        write_duration(run / (double)fresh * (double)(s->records - s->done), left, sizeof left);
    if (run > 0)
        (void)snprintf(rate, sizeof rate, "%.*f", (double)s->tokens < 100 * run ? 1 : 0,
                       (double)s->tokens / run);
    (void)snprintf(buf, cap, "%llu of %llu records, %s tokens/s, ETA %s, %llu errors",
                   (unsigned long long)s->done, (unsigned long long)s->records, rate, left,
                   (unsigned long long)s->errors);
}
