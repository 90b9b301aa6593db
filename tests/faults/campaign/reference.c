/* faults/campaign/reference.c - a case without faults: twice, and they must agree. */
#include "judge.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static uint64_t bytes_below(const struct place *w, const struct outcome *end,
                            const struct outcome *start)
{
    uint64_t    n = 0;
    struct stat st;
    char        path[600];
    for (int i = 0; i < end->n; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", w->folder, end->file[i].path);
        if (!outcome_find(start, end->file[i].path) && stat(path, &st) == 0)
            n += (uint64_t)(st.st_size + 4095) / 4096 * 4096;
    }
    return n;
}

bool reference_take(struct reference *r, const struct place *w, const struct campaign_case *c,
                    char *why)
{
    struct verdict  v = { .hit = false };
    struct scene    s = { .w = w, .c = c, .r = r, .v = &v };
    struct ended    e;
    struct timespec a, b;
    struct stat     st;
    char            path[600], say[200], differs[300];
    bool            sentence;
    memset(r, 0, sizeof *r);
    place_prepare(w, c);
    if (!outcome_take(&r->start, w->folder, c, why))
        return false;
    (void)clock_gettime(CLOCK_MONOTONIC, &a);
    run_commands(w, c, NULL, NULL, false, &e);
    (void)clock_gettime(CLOCK_MONOTONIC, &b);
    r->seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    last_line(w, 0, say, sizeof say, &sentence);
    if (e.status[0] != 0) {
        (void)snprintf(why, 200, "ends with status %d in peace: %.120s", e.status[0], say);
        return false;
    }
    for (int i = 0; i < INJECT_CLASSES; i++)
        r->calls[i] = atomic_load(&w->live->count[i]);
    if (!outcome_take(&r->end, w->folder, c, why))
        return false;
    r->bytes = bytes_below(w, &r->end, &r->start);
    r->say = said(&s);
    (void)snprintf(path, sizeof path, "%s/0.out", w->say);
    r->said = stat(path, &st) == 0 && st.st_size > 0;
    for (int i = 0; i < c->final.n; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", w->folder, c->final.at[i]);
        if (stat(path, &st) != 0) {
            (void)snprintf(why, 200, "%s is not there in peace", c->final.at[i]);
            return false;
        }
    }
    /* once more, with two threads: what differs now is not a fault's doing */
    s.may[s.n_may++] = (struct whole){ &r->end, r->say, false };
    struct plan two = { .racers = 1, .signal_at = -1, .change_at = -1, .disk = -1, .threads = 2 };
    place_prepare(w, c);
    (void)clock_gettime(CLOCK_MONOTONIC, &a);
    run_commands(w, c, NULL, &two, false, &e);
    (void)clock_gettime(CLOCK_MONOTONIC, &b);
    double second = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    if (second < r->seconds) /* the first one may have met cold files */
        r->seconds = second;
    if (e.status[0] != 0 || matches(&s, true, true, differs) < 0) {
        (void)snprintf(why, 200, "the second run in peace ends with status %d: %.120s", e.status[0],
                       differs);
        return false;
    }
    if (!c->silent && said(&s) != r->say) {
        (void)snprintf(why, 200, "standard output differs from run to run");
        return false;
    }
    if (c->other.n == 0)
        return true;
    place_prepare(w, c);
    run_commands(w, c, NULL, NULL, true, &e);
    if (e.status[0] != 0) {
        last_line(w, 0, say, sizeof say, &sentence);
        (void)snprintf(why, 200, "the other command ends with status %d in peace: %.120s",
                       e.status[0], say);
        return false;
    }
    return outcome_take(&r->other_end, w->folder, c, why);
}
