#include "cli/supervise_internal.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/held.h"
#include "batch/restart.h"
#include "batch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_US  UINT64_C(50000)
#define STALL_US  UINT64_C(5000000)  /* until the job sets it */
#define GRACE_US  UINT64_C(20000000) /* for a worker after the request to stop */
#define MPIRUN_US UINT64_C(3000000)  /* for mpirun to end its ranks */
#define KILL_US   UINT64_C(20000000) /* for a process that was killed */

/* ---- the worker --------------------------------------------------------- */

static void become_child(struct tsr_batch_watch *w, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent has already ended */
        _exit(75);
    (void)setpgid(0, 0); /* Ctrl-C goes to the supervisor, which passes it on once */
    atomic_store(&w->own_fault, 0);
    atomic_store(&w->no_memory, 0);
    atomic_store(&w->working, 0);
    atomic_store(&w->ranks, 0);
    atomic_store(&w->oldest_us, 0);
    atomic_store(&w->joined, 0);
    atomic_store(&w->ended, 0);
}

/* ---- memory ------------------------------------------------------------- */

/* How many processes of our control group the system has killed for memory; 0 where that cannot be
 * read. */
static uint64_t count_in(const char *path)
{
    char     text[512];
    uint64_t n = 0;
    int      fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *at = strstr(text, "oom_kill ");
    if (at)
        n = strtoull(at + strlen("oom_kill "), NULL, 10);
    return n;
}

static uint64_t memory_kills(void)
{
    char     line[512], path[700];
    FILE    *f = fopen("/proc/self/cgroup", "re");
    uint64_t n = 0;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0')
            (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", group);
        else if (strcmp(controllers, "memory") == 0)
            (void)snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control", group);
        else
            continue;
        n += count_in(path);
    }
    if (f)
        (void)fclose(f);
    return n;
}

/* ---- the supervisor ----------------------------------------------------- */

struct watched {
    struct tsr_cli         *c;
    struct tsr_batch_watch *w;
    pid_t                   pid;
    int                     page;  /* memfd of w */
    int                     pidfd; /* -1: the kernel has none */
    struct tsr_batch_beat   beat;
    uint64_t                looked_us;          /* at the beat, last */
    uint64_t                stop_us, kills;     /* time of the request to stop; memory_kills() at
                                                 * the start */
    uint64_t                kill_us;            /* when it is killed after the request to end; 0: no
                                        * request */
    uint64_t                killed_us;          /* it was, first; 0: it was not */
    uint64_t                froze_us, ended_us; /* mpirun is stopped since; rank 0 has ended */
    struct tsr_batch_ending end;
};

static void wait_round(const struct watched *x, uint64_t us)
{
    struct pollfd   p = { .fd = x->pidfd, .events = POLLIN };
    struct timespec t = { .tv_sec = (time_t)(us / 1000000),
                          .tv_nsec = (long)(us % 1000000) * 1000 };
    (void)ppoll(x->pidfd >= 0 ? &p : NULL, x->pidfd >= 0, &t, NULL);
}

/* Bytes moved and processor time of a process that loads or writes: anything but standing still. */
static uint64_t activity(pid_t pid)
{
    char     path[64], text[1024];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *at = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 2; at && field < 14; field++)
        at = strchr(at + 1, ' ');
    if (at)
        sum += strtoull(at, &at, 10) + strtoull(at, NULL, 10);
    (void)snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        sum += strtoull(at, NULL, 10);
    return sum;
}

/* True when the oldest record has taken longer than any may. */
static bool beyond_deadline(const struct tsr_batch_watch *w)
{
    uint64_t oldest = atomic_load(&w->oldest_us), now = tsr_now_us();
    return w->deadline_us && oldest && now > oldest && now - oldest > w->deadline_us;
}

/* Whether a signal has stopped the process. */
static bool is_stopped(pid_t pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name may hold anything */
    return at && at[1] == ' ' && (at[2] == 'T' || at[2] == 't');
}

/* mpirun waits for its ranks, which watch each other. Visible from here: mpirun is frozen, or does not end
 * after rank 0. */
static void check_mpirun(struct watched *x, uint64_t now)
{
    uint64_t stall = x->w->stall_us ? x->w->stall_us : STALL_US;
    bool     late = now - x->looked_us > stall / 2; /* all may have been stopped */
    if (!is_stopped(x->pid) || late)
        x->froze_us = 0;
    else if (!x->froze_us)
        x->froze_us = now;
    if (!atomic_load(&x->w->ended) || late)
        x->ended_us = 0;
    else if (!x->ended_us)
        x->ended_us = now;
    bool frozen = x->froze_us && now - x->froze_us > stall;
    bool waits = x->ended_us && now - x->ended_us > GRACE_US;
    if (x->end.stalled || (!frozen && !waits))
        return;
    x->end.stalled = true;
    x->kill_us = now;
    tsr_event_say(&(struct tsr_event){ .kind = "mpirun-stalled", .process = x->pid },
                  "mpirun (process %d) %s for %.1f s; it is killed", (int)x->pid,
                  frozen ? "is stopped" : "has not ended after rank 0 had",
                  (double)(now - (frozen ? x->froze_us : x->ended_us)) / 1e6);
}

static void check_beat(struct watched *x, uint64_t now)
{
    struct tsr_batch_watch *w = x->w;
    bool                    working = atomic_load(&w->working) != 0;
    uint64_t                beats = atomic_load(&w->beats);
    uint64_t                stall = w->stall_us ? w->stall_us : STALL_US;
    if (x->c->mpirun)
        check_mpirun(x, now);
    if (x->c->mpirun && (!working || !atomic_load(&w->joined))) {
        x->looked_us = now; /* another process does the loading, out of view */
        return;
    }
    if (!working) { /* before and after the records the worker sends no beats, but is active */
        beats += atomic_load(&w->ranks) ? 0 : activity(x->pid);
        stall *= 4;
    }
    if (now - x->looked_us > stall / 2) /* we did not run ourselves: all may have been stopped */
        x->beat = (struct tsr_batch_beat){ 0 };
    x->looked_us = now;
    if (!tsr_batch_beat_stalled(&x->beat, beats, !x->end.stalled, now, stall))
        return;
    x->end.stalled = true;
    x->kill_us = x->c->mpirun ? now + MPIRUN_US : 0;
    x->end.late = beyond_deadline(w);
    tsr_event_say(&(struct tsr_event){ .kind = "worker-stalled", .process = x->pid },
                  "the worker (process %d) has made no progress for %.1f s; it is stopped",
                  (int)x->pid, (double)stall / 1e6);
    (void)kill(x->pid, x->c->mpirun ? SIGTERM : SIGKILL); /* mpirun ends its ranks then */
    x->killed_us = x->c->mpirun ? 0 : now;
}

/* mpirun gives the code of some rank; rank 0's own is the job's.  A signal that ended a rank is 128 and
 * that. */
static void read_mpirun(struct watched *x)
{
    struct tsr_batch_ending *e = &x->end;
    if (atomic_load(&x->w->ended) && atomic_load(&x->w->code) != 0) {
        e->exited = true;
        e->code = atomic_load(&x->w->code);
    } else if (e->exited && e->code > 128) {
        static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS };
        e->exited = false;
        e->signal = e->code - 128;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            e->own_fault = e->own_fault || e->signal == own[i];
    } else if (e->exited && e->code != 0 && atomic_load(&x->w->joined)) {
        e->code = 6; /* rank 0 reported nothing: mpirun lost a host, or it */
    }
}

/* Whose fault the end is. */
static void take_blame(struct watched *x)
{
    struct tsr_batch_ending *e = &x->end;
    bool                     ranks = e->exited && e->code == 6;
    e->own_fault = e->own_fault || atomic_load(&x->w->own_fault) != 0;
    if (e->exited && e->code == 4)
        e->memory = atomic_load(&x->w->no_memory) != 0;
    else if (ranks || (e->signal == SIGKILL && !e->stalled))
        e->memory = memory_kills() > x->kills;
    if (ranks)
        e->late = beyond_deadline(x->w);
}

/* Until the worker has ended. */
static tsr_status watch(struct watched *x, struct tsr_err *err)
{
    int status;
    for (;;) {
        pid_t got = waitpid(x->pid, &status, WNOHANG);
        if (got == x->pid)
            break;
        if (got < 0 && errno != EINTR)
            return tsr_fail(err, TSR_E_IO, "cannot wait for the worker: %s", strerror(errno));
        uint64_t now = tsr_now_us();
        if (tsr_plugin_cancelled() && !x->stop_us) {
            x->stop_us = now;
            (void)kill(x->pid, SIGTERM);
            (void)kill(x->pid, SIGCONT);
        }
        if ((x->stop_us && now - x->stop_us > GRACE_US) || (x->kill_us && now > x->kill_us)) {
            (void)kill(x->pid, SIGKILL);
            x->killed_us = x->killed_us ? x->killed_us : now;
        }
        if (x->killed_us && now - x->killed_us > KILL_US)
            return tsr_fail(err, TSR_E_DEVICE,
                            "the worker (process %d) was killed and has not ended for %.0f s: it "
                            "waits for a disk or a driver",
                            (int)x->pid, (double)KILL_US / 1e6);
        check_beat(x, now);
        wait_round(x, x->pidfd >= 0 ? ROUND_US : ROUND_US / 5);
    }
    x->end.exited = WIFEXITED(status);
    x->end.code = x->end.exited ? WEXITSTATUS(status) : 0;
    x->end.signal = x->end.exited ? 0 : WTERMSIG(status);
    if (x->c->mpirun)
        read_mpirun(x);
    take_blame(x);
    x->end.done = atomic_load(&x->w->done);
    return TSR_OK;
}

/* One worker from its start to its end; *worker: we are it. */
static tsr_status run_one(struct watched *x, bool *worker, struct tsr_err *err)
{
    pid_t self = getpid();
    x->beat = (struct tsr_batch_beat){ 0 };
    x->end = (struct tsr_batch_ending){ 0 };
    x->stop_us = x->kill_us = x->killed_us = x->froze_us = x->ended_us = 0;
    x->kills = memory_kills();
    (void)fflush(NULL); /* buffered output must be written only once */
    x->pid = fork();
    if (x->pid < 0)
        return tsr_fail(err, TSR_E_NOMEM, "cannot start a worker process: %s", strerror(errno));
    if (x->pid == 0) {
        become_child(x->w, self);
        if (x->c->mpirun) {
            tsr_cli_become_mpirun(x->c, x->w, x->page);
            (void)fprintf(stderr, "tessera: error: mpirun cannot be started: %s\n",
                          strerror(errno));
            _exit(2);
        }
        tsr_cli_take_page(x->w);
        *worker = true;
        return TSR_OK;
    }
    x->pidfd = (int)syscall(SYS_pidfd_open, x->pid, 0);
    tsr_status st = watch(x, err);
    if (x->pidfd >= 0)
        (void)close(x->pidfd);
    x->pidfd = -1;
    return st;
}

static tsr_status pause_for(uint64_t us)
{
    uint64_t end = tsr_now_us() + us;
    while (tsr_now_us() < end && !tsr_plugin_cancelled())
        (void)poll(NULL, 0, 20);
    return TSR_OK;
}

tsr_status tsr_cli_supervise(struct tsr_cli *c, bool *worker, struct tsr_err *err)
{
    struct tsr_batch_restarts restarts = { 0 };
    struct watched            x = { .c = c, .pidfd = -1 };
    *worker = false;
    x.page = memfd_create("tessera-watch", MFD_CLOEXEC);
    if (x.page < 0 || ftruncate(x.page, sizeof *x.w) != 0)
        return tsr_fail_errno(err, errno, "a page to watch a worker", "make");
    tsr_held_add(x.page, "memory to watch a worker");
    x.w = mmap(NULL, sizeof *x.w, PROT_READ | PROT_WRITE, MAP_SHARED, x.page, 0);
    if (x.w == MAP_FAILED)
        return tsr_fail_nomem(err, sizeof *x.w, "a page to watch a worker");
    if (getrandom(&x.w->nonce, sizeof x.w->nonce, 0) != (ssize_t)sizeof x.w->nonce)
        x.w->nonce = 0; /* no other process maps it then */
    for (;;) {
        enum tsr_verdict verdict;
        uint64_t         wait;
        tsr_status       st = run_one(&x, worker, err);
        if (*worker || st != TSR_OK)
            return st;
        enum tsr_after after = tsr_batch_restart_decide(&restarts, &x.end, &wait, &verdict);
        if (after == TSR_BATCH_AFTER_STOP) {
            c->code = x.end.code;
            break;
        }
        tsr_cli_say_end(x.pid, c->mpirun != NULL, &x.end, after);
        x.w->verdict = verdict;
        if (after == TSR_BATCH_AFTER_GIVE_UP || tsr_plugin_cancelled() ||
            pause_for(wait) != TSR_OK) {
            c->code = 75;
            break;
        }
    }
    c->ended = true;
    (void)munmap(x.w, sizeof *x.w);
    (void)tsr_held_close(x.page);
    return TSR_OK;
}
