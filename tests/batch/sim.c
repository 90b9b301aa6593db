#include "sim.h"

#include "batch/batch.h"
#include "batch/restart.h"
#include "disk.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS  24u
#define SLOTS    5u
#define FAULTS   7u
#define PATIENCE 6000u /* rounds; far more than any job takes */
#define STALL_US 5000000u
#define FOLDER   "job"
#define OUTPUT   "out.jsonl"
#define JOB      "xxh3:0123456789abcdef0123456789abcdef"

struct sim;

/* One worker process. */
struct process {
    struct sim         *sim;
    struct disk_process disk;
    struct tsr_batch_io io;
    struct tsr_batch   *batch;
    bool                alive, frozen;
    bool                own_fault;
    bool                over; /* only the output is missing */
    struct {
        uint64_t record, left;
        bool     busy;
    } slot[SLOTS];
    uint64_t beats;
};

struct sim {
    struct disk               disk;
    struct process            p[2]; /* the one at work, and one that was given up for dead */
    int                       now;  /* index of the one at work */
    uint64_t                  time_us;
    bool                      poison[RECORDS], error[RECORDS];
    uint64_t                  cost[RECORDS];
    bool                      acked[RECORDS];
    bool                      second;  /* the run that tries errors again */
    bool                      retried; /* an epoch that says so is in the journal */
    uint64_t                  faults, ids;
    enum tsr_verdict          verdict;
    struct tsr_batch_restarts restarts;
    struct tsr_batch_beat     beat;
    struct sim_result        *r;
    char                     *why;
    size_t                    cap;
    int                       bad;
};

static void complain(struct sim *s, const char *what)
{
    if (!s->bad)
        (void)snprintf(s->why, s->cap, "%s", what);
    s->bad = 1;
}

/* ---- lines -------------------------------------------------------------- */

static bool fails(const struct sim *s, uint64_t i)
{
    return s->error[i] && !s->second;
}

static void line_of(const struct sim *s, uint64_t i, char *text, size_t cap)
{
    if (s->poison[i])
        (void)snprintf(text, cap, "{\"poison\": %u}", (unsigned)i);
    else
        (void)snprintf(text, cap, "{\"%s\": %u, \"text\": \"%.*s\"}", fails(s, i) ? "error" : "ok",
                       (unsigned)i, (int)(i * 7 % 60),
                       "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh");
}

static void expected(const struct sim *s, char *text, size_t cap)
{
    size_t n = 0;
    for (uint64_t i = 0; i < RECORDS; i++) {
        line_of(s, i, text + n, cap - n);
        n += strlen(text + n);
        n += (size_t)snprintf(text + n, cap - n, "\n");
    }
}

/* ---- the worker --------------------------------------------------------- */

static uint32_t busy(void *ctx)
{
    struct process *p = ctx;
    uint32_t        n = 0;
    for (uint32_t k = 0; k < SLOTS; k++)
        n += p->slot[k].busy;
    return n;
}

static uint32_t room(void *ctx)
{
    return SLOTS - busy(ctx);
}

static tsr_status deliver(struct process *p, uint64_t i, struct tsr_err *err)
{
    char line[128];
    line_of(p->sim, i, line, sizeof line);
    return tsr_batch_line(p->batch, i, fails(p->sim, i), line, strlen(line), err);
}

static tsr_status submit(void *ctx, uint64_t index, struct tsr_err *err)
{
    struct process *p = ctx;
    if (p->sim->cost[index] == 0) /* wrong from the start */
        return deliver(p, index, err);
    for (uint32_t k = 0; k < SLOTS; k++)
        if (!p->slot[k].busy) {
            p->slot[k].busy = true;
            p->slot[k].record = index;
            p->slot[k].left = p->sim->cost[index];
            return TSR_OK;
        }
    complain(p->sim, "more records than the worker has room for");
    return TSR_E_BUG;
}

static tsr_status step(void *ctx, struct tsr_err *err)
{
    struct process *p = ctx;
    p->sim->time_us += 1000 + disk_random(&p->sim->disk, 20000);
    p->beats++;
    for (uint32_t k = 0; k < SLOTS; k++) {
        if (!p->slot[k].busy || --p->slot[k].left)
            continue;
        uint64_t i = p->slot[k].record;
        if (p->sim->poison[i]) { /* a signal of its own */
            p->own_fault = true;
            return TSR_E_BUG;
        }
        p->slot[k].busy = false;
        TSR_TRY(deliver(p, i, err));
    }
    return TSR_OK;
}

static tsr_status poison(void *ctx, uint64_t index, uint32_t deaths,
                         struct tsr_tokenizer_text *line, struct tsr_err *err)
{
    struct process *p = ctx;
    char            text[64];
    if (!p->sim->poison[index])
        complain(p->sim, "an innocent record was called poison");
    if (deaths != TSR_POISON_DEATHS)
        complain(p->sim, "a record was called poison after another number of deaths");
    p->sim->r->poisoned++;
    (void)snprintf(text, sizeof text, "{\"poison\": %u}", (unsigned)index);
    return tsr_tokenizer_text_append(line, text, strlen(text), err);
}

/* ---- processes ---------------------------------------------------------- */

static uint64_t now_us(void *ctx)
{
    return ((struct sim *)ctx)->time_us;
}

static void end_process(struct process *p)
{
    p->disk.dead = true; /* nothing reaches the disk from here */
    tsr_batch_close(p->batch);
    disk_process_end(&p->disk);
    p->batch = NULL;
    p->alive = false;
}

/* What the new process finds in the journal holds all that was acknowledged. */
static void check_acked(struct sim *s, const struct tsr_batch *b)
{
    for (uint64_t i = 0; i < RECORDS; i++) {
        const struct tsr_batch_record *r = tsr_batch_journal_record(tsr_batch_journal(b), i);
        if (s->acked[i] && r->state == TSR_BATCH_RECORD_OPEN)
            complain(s, "a line that was synced is lost");
    }
    if (tsr_batch_counts(b)->unlike)
        complain(s, "two lines of one record differ");
}

static void note_acked(struct sim *s, const struct tsr_batch *b)
{
    if (tsr_batch_journal_pending(tsr_batch_journal(b)))
        return;
    for (uint64_t i = 0; i < RECORDS; i++)
        s->acked[i] =
            tsr_batch_journal_record(tsr_batch_journal(b), i)->state != TSR_BATCH_RECORD_OPEN;
}

static void plan_fault(struct sim *s)
{
    static const int errnos[] = { EIO, ENOSPC, EMFILE, ENOMEM, EDQUOT };
    s->disk.fault = DISK_FINE;
    s->disk.fault_at = UINT64_MAX;
    if (s->faults == 0 || disk_random(&s->disk, 4) == 0)
        return;
    s->faults--;
    s->disk.fault = (enum disk_fault)(1 + disk_random(&s->disk, 4));
    s->disk.fault_errno = errnos[disk_random(&s->disk, 5)];
    s->disk.fault_at = s->disk.ops + disk_random(&s->disk, disk_random(&s->disk, 3) ? 120 : 20);
}

static void start_process(struct sim *s, bool retry)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct process          *p = &s->p[s->now];
    struct tsr_clock         clock = { s, now_us, NULL };
    struct tsr_batch_worker  w = { p, room, busy, submit, step, poison };
    struct tsr_batch_options o = { .journal = { .io = &p->io,
                                                .folder = FOLDER,
                                                .job = JOB,
                                                .about = "{}",
                                                .records = RECORDS,
                                                .verdict = s->verdict,
                                                .retry = retry,
                                                .who = "somebody" },
                                   .clock = &clock,
                                   .output = OUTPUT };
    char                    *about;
    static struct tsr_clock  kept;
    kept = clock; /* outlives this call */
    o.clock = &kept;
    memset(p, 0, sizeof *p);
    p->sim = s;
    plan_fault(s);
    disk_process_start(&p->disk, &s->disk, (int)s->ids++, &p->io);
    p->alive = true;
    s->r->runs++;
    s->beat = (struct tsr_batch_beat){ 0 };
    tsr_status st = tsr_batch_open(&p->batch, &o, &w, &about, &e.err);
    if (st == TSR_OK) {
        s->retried = s->retried || retry;
        check_acked(s, p->batch);
        note_acked(s, p->batch);
        return;
    }
    if (st == TSR_E_CHECK || st == TSR_E_BUG || about)
        complain(s, e.text);
    free(about);
    end_process(p);
}

/* The file under the final name is whole whenever it is there. */
static void check_output(struct sim *s, bool wanted)
{
    char                    text[RECORDS * 96];
    const struct disk_blob *b = disk_file(&s->disk, OUTPUT);
    if (!b) {
        if (wanted)
            complain(s, "there is no output");
        return;
    }
    expected(s, text, sizeof text);
    if (b->n == strlen(text) && memcmp(b->p, text, b->n) == 0)
        return;
    if (s->second && !wanted) { /* that of the run before is still there */
        s->second = false;
        expected(s, text, sizeof text);
        s->second = true;
        if (b->n == strlen(text) && memcmp(b->p, text, b->n) == 0)
            return;
    }
    complain(s, "the output differs");
}

/* One round of a process: false when it ended. */
static bool turn(struct sim *s, struct process *p, bool *finished)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              over = false;
    tsr_status        st = p->over ? tsr_batch_finish(p->batch, "out.part", &e.err)
                                   : tsr_batch_step(p->batch, &over, &e.err);
    *finished = p->over && st == TSR_OK;
    p->over = p->over || over;
    p->beats++;
    if (*finished && p->disk.dead)
        complain(s, "a dead process was content");
    if (st == TSR_E_CHECK && !p->disk.dead)
        complain(s, e.text);
    return st == TSR_OK;
}

static void bring_down(struct sim *s)
{
    for (int k = 0; k < 2; k++)
        if (s->p[k].alive)
            end_process(&s->p[k]);
    if (s->disk.power_lost || disk_random(&s->disk, 3) == 0) {
        disk_power_cut(&s->disk);
        s->r->power_cuts++;
        /* the supervisor went with it, and what it knew of the last ending: the next one blames nobody
         * for what it finds, whose last lines may be lost */
        s->restarts = (struct tsr_batch_restarts){ 0 };
        s->verdict = TSR_BATCH_VERDICT_OUTSIDE;
    }
}

/* A frozen process is killed, or (without locks: on a host that cannot be reached) left where it is
 * and wakes up later. */
static void give_up_frozen(struct sim *s)
{
    struct process *p = &s->p[s->now];
    s->r->stalls++;
    if (s->disk.no_locks && !s->p[1 - s->now].alive) {
        s->now = 1 - s->now;
        s->p[s->now].own_fault = false; /* of one that ended there long ago: p stood still */
        p->frozen = false;
        s->r->zombies++;
    } else {
        end_process(p);
    }
}

/* The supervisor's part when nobody is at work: true to go on. */
static void restart(struct sim *s, bool own_fault, bool retry)
{
    struct tsr_batch_ending e = { .signal = own_fault ? SIGSEGV : SIGKILL, .own_fault = own_fault };
    uint64_t                wait, acked = 0;
    for (uint64_t i = 0; i < RECORDS; i++)
        acked += s->acked[i];
    e.done = acked;
    s->r->deaths++;
    enum tsr_after after = tsr_batch_restart_decide(&s->restarts, &e, &wait, &s->verdict);
    if (after == TSR_BATCH_AFTER_STOP)
        complain(s, "a death was taken for an end");
    if (after == TSR_BATCH_AFTER_GIVE_UP) { /* somebody runs it again */
        s->restarts = (struct tsr_batch_restarts){ 0 };
        s->verdict = TSR_BATCH_VERDICT_OUTSIDE;
    }
    s->time_us += wait;
    if (s->disk.power_lost || disk_random(&s->disk, 5) == 0)
        bring_down(s);
    start_process(s, retry);
}

static void run_job(struct sim *s, bool retry)
{
    bool     finished = false;
    uint64_t rounds = 0;
    s->now = 0;
    s->verdict = TSR_BATCH_VERDICT_OUTSIDE;
    start_process(s, retry);
    for (; !finished && !s->bad; rounds++) {
        struct process *p = &s->p[s->now], *z = &s->p[1 - s->now];
        if (rounds > PATIENCE) {
            complain(s, "the job does not end");
            break;
        }
        s->time_us += 1000;
        if (z->alive && disk_random(&s->disk, 3) == 0) { /* one that woke up again */
            bool done;
            if (!turn(s, z, &done))
                end_process(z);
            check_output(s, done);
        }
        if (!p->alive) {
            restart(s, p->own_fault, retry && !s->retried);
            continue;
        }
        if (p->frozen) {
            s->time_us += 700000;
            if (tsr_batch_beat_stalled(&s->beat, p->beats, true, s->time_us, STALL_US))
                give_up_frozen(s);
            continue;
        }
        if (s->faults && disk_random(&s->disk, 60) == 0) {
            s->faults--;
            if (disk_random(&s->disk, 2)) {
                p->frozen = true;
            } else { /* SIGKILL */
                end_process(p);
            }
            continue;
        }
        if (tsr_batch_beat_stalled(&s->beat, p->beats, true, s->time_us, STALL_US))
            complain(s, "a process that works was called stalled");
        bool alive = turn(s, p, &finished);
        if (alive && !p->disk.dead)
            note_acked(s, p->batch);
        check_output(s, finished);
        if (!alive)
            end_process(p);
    }
    for (int k = 0; k < 2; k++)
        if (s->p[k].alive)
            end_process(&s->p[k]);
}

/* ---- a seed ------------------------------------------------------------- */

static void set_up(struct sim *s, uint64_t seed, struct sim_result *r, char *why, size_t cap)
{
    memset(s, 0, sizeof *s);
    disk_init(&s->disk, seed);
    s->r = r;
    s->why = why;
    s->cap = cap;
    s->faults = disk_random(&s->disk, FAULTS + 1);
    s->disk.no_locks = disk_random(&s->disk, 2) == 0;
    for (uint64_t i = 0; i < RECORDS; i++) {
        s->cost[i] = disk_random(&s->disk, 8);
        s->error[i] = disk_random(&s->disk, 6) == 0;
        s->poison[i] = s->cost[i] && disk_random(&s->disk, 40) == 0;
    }
}

int sim_run(uint64_t seed, struct sim_result *r, char *why, size_t cap)
{
    struct sim *s = malloc(sizeof *s);
    if (!s)
        return 1;
    memset(r, 0, sizeof *r);
    set_up(s, seed, r, why, cap);
    run_job(s, false);
    if (!s->bad)
        check_output(s, true);
    if (!s->bad && disk_random(&s->disk, 3) == 0) {
        r->retries++;
        for (uint64_t i = 0; i < RECORDS; i++)
            s->acked[i] = s->acked[i] && !s->error[i] && !s->poison[i];
        s->second = true;
        s->faults = disk_random(&s->disk, 3);
        run_job(s, true);
        if (!s->bad)
            check_output(s, true);
    }
    /* what was published is published */
    if (!s->bad) {
        disk_power_cut(&s->disk);
        check_output(s, true);
    }
    int bad = s->bad;
    disk_free(&s->disk);
    free(s);
    return bad;
}
