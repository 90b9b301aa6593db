#include "base/process.h"

#include "base/clock.h"
#include "base/held.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONGEST_STEP_US UINT64_C(200000)
#define LOG_LINE        2300 /* bytes of a child's log line; one write of so few is whole */
#define SPARE           (UINT64_C(256) << 20) /* of stacks, arenas and the like, beyond a limit */

/* What parent and child share of a run. */
struct run {
    const struct tsr_process *p;
    volatile uint32_t        *returned; /* f() did */
    int                       log[2];
};

/* ---- the child -------------------------------------------------------------- */

static int log_fd = -1; /* of this child; set after the fork */

void tsr_process_log(void *ctx, int32_t level, const char *msg)
{
    char line[LOG_LINE];
    int  n = snprintf(line, sizeof line - 1, "%d%s", level >= 0 && level <= 2 ? level : 2, msg);
    (void)ctx;
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    if (write(log_fd, line, (size_t)n) < 0)
        return; /* the reader is gone */
}

/* Numbers of /proc/PID/statm, in bytes; false: unknown. */
static bool statm(pid_t pid, uint64_t v[6])
{
    char path[40], text[160];
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *end = text;
    for (int i = 0; i < 6; i++)
        v[i] = strtoull(end, &end, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    return n > 0;
}

/* The parent looks a hundred times a second; what asks for a lot at once finds no memory here. */
static void limit_memory(uint64_t bytes)
{
    uint64_t      now[6], most;
    struct rlimit l;
    if (!statm(getpid(), now) || !tsr_mul(bytes, 2, &most) || !tsr_add(most, SPARE, &most) ||
        !tsr_add(most, now[5], &most) || getrlimit(RLIMIT_DATA, &l) != 0 || l.rlim_cur < most)
        return;
    l.rlim_cur = most;
    (void)setrlimit(RLIMIT_DATA, &l);
}

static void settle(const struct run *r)
{
    static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTERM };
    struct rlimit    none = { 0, 0 };
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        (void)signal(crashes[i], SIG_DFL); /* the host's handlers are not for this process */
    (void)signal(SIGINT, SIG_IGN);         /* the parent's to decide */
    (void)setpgid(0, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
        (void)dup2(null, fd);
    log_fd = r->log[1];
    tsr_held_add(log_fd, "messages to the host");
    (void)close(r->log[0]);
    if (r->p->memory_bytes != UINT64_MAX)
        limit_memory(r->p->memory_bytes);
}

_Noreturn static void child(const struct run *r, void (*f)(void *), void *arg)
{
    settle(r);
    f(arg);
    *r->returned = 1;
    _exit(0);
}

/* ---- the parent -------------------------------------------------------------- */

/* Resident bytes that are its own, 0 when unknown: those of the parent are shared until written. */
static uint64_t anonymous_bytes(pid_t pid)
{
    uint64_t v[6];
    return statm(pid, v) && v[1] > v[2] ? v[1] - v[2] : 0;
}

/* Complete lines of the child's output; an incomplete one waits for the rest. */
static bool pass_log(const struct run *r, char *have, size_t *n, size_t cap)
{
    ssize_t got = read(r->log[0], have + *n, cap - 1 - *n);
    if (got <= 0)
        return false;
    *n += (size_t)got;
    have[*n] = '\0';
    char *line = have;
    for (char *end; (end = memchr(line, '\n', (size_t)(have + *n - line))); line = end + 1) {
        *end = '\0';
        for (char *c = line; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = ' ';
        if (line[0] >= '0' && line[0] <= '2' && r->p->log)
            r->p->log(r->p->log_ctx, line[0] - '0', line + 1);
    }
    *n = (size_t)(have + *n - line);
    if (*n + 1 >= cap)
        *n = 0; /* no line of ours is this long */
    memmove(have, line, *n);
    return true;
}

/* Time that this process saw pass: while it is stopped, or the machine sleeps, the child does not
 * work either. */
static void pass_time(uint64_t *clock, uint64_t *seen)
{
    uint64_t now = tsr_now_us(), step = now - *clock;
    *clock = now;
    *seen += step < LONGEST_STEP_US ? step : LONGEST_STEP_US;
}

/* TSR_PROCESS_DONE: it exited normally. */
static enum tsr_process_end follow(const struct run *r, pid_t pid, int *status)
{
    uint64_t clock = tsr_now_us(), seen = 0;
    uint64_t before = anonymous_bytes(pid), now = 0;
    char     text[LOG_LINE * 2];
    size_t   have = 0;
    for (uint64_t wait_ms = 0;; wait_ms = wait_ms < 10 ? wait_ms + 1 : 10) {
        struct pollfd p = { .fd = r->log[0], .events = POLLIN };
        if (poll(&p, 1, (int)wait_ms) > 0 && p.revents & POLLIN)
            (void)pass_log(r, text, &have, sizeof text);
        if (waitpid(pid, status, WNOHANG) == pid) {
            while (pass_log(r, text, &have, sizeof text)) {
            }
            return TSR_PROCESS_DONE;
        }
        if (p.revents & POLLHUP) /* it closed its end, or is about to be gone */
            (void)poll(NULL, 0, 1);
        if (r->p->stopped && r->p->stopped())
            return TSR_PROCESS_STOPPED;
        now = anonymous_bytes(pid);
        if (now > before && now - before > r->p->memory_bytes)
            return TSR_PROCESS_LARGE;
        pass_time(&clock, &seen);
        if (seen > r->p->time_us)
            return TSR_PROCESS_LATE;
    }
}

/* Ends the child, if it still runs, and the processes that it started. */
static struct tsr_process_outcome attend(const struct run *r, pid_t pid)
{
    struct tsr_process_outcome o = { TSR_PROCESS_DONE, 0 };
    int                        status = 0;
    o.end = follow(r, pid, &status);
    if (o.end != TSR_PROCESS_DONE) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    } else if (WIFSIGNALED(status)) {
        o.end = TSR_PROCESS_SIGNAL;
        o.code = WTERMSIG(status);
    } else if (!*r->returned || WEXITSTATUS(status) != 0) {
        o.end = TSR_PROCESS_EXITED;
        o.code = WEXITSTATUS(status);
    }
    (void)kill(-pid, SIGKILL); /* its group */
    return o;
}

tsr_status tsr_process_run(const struct tsr_process *p, void (*f)(void *arg), void *arg,
                           struct tsr_process_outcome *out, struct tsr_err *err)
{
    struct run r = { .p = p, .returned = tsr_process_memory(sizeof *r.returned) };
    tsr_status st = TSR_OK;
    if (!r.returned)
        return tsr_fail_nomem(err, sizeof *r.returned, "a process");
    if (pipe2(r.log, O_CLOEXEC) != 0) {
        st = tsr_fail_errno(err, errno, "a pipe", "make");
        tsr_process_release((void *)(uintptr_t)r.returned, sizeof *r.returned);
        return st;
    }
    (void)fcntl(r.log[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        child(&r, f, arg);
    if (pid < 0)
        st = tsr_fail_errno(err, errno, "a process for a plugin", "start");
    (void)close(r.log[1]);
    tsr_held_add(r.log[0], "messages of a plugin's process"); /* the child has closed its own */
    if (st == TSR_OK)
        *out = attend(&r, pid);
    (void)tsr_held_close(r.log[0]);
    tsr_process_release((void *)(uintptr_t)r.returned, sizeof *r.returned);
    return st;
}

const char *tsr_process_text(const struct tsr_process *p, const struct tsr_process_outcome *o,
                             char buf[TSR_PROCESS_TEXT])
{
    char bytes[TSR_BYTES_TEXT];
    switch (o->end) {
    case TSR_PROCESS_SIGNAL:
        (void)snprintf(buf, TSR_PROCESS_TEXT, "ended its process with signal %d (%s)", o->code,
                       strsignal(o->code));
        break;
    case TSR_PROCESS_LATE:
        (void)snprintf(buf, TSR_PROCESS_TEXT, "did not return within %.6g s and was ended",
                       (double)p->time_us / 1e6);
        break;
    case TSR_PROCESS_LARGE:
        (void)snprintf(buf, TSR_PROCESS_TEXT,
                       "took more than the %s that it may have and was ended",
                       tsr_format_bytes(bytes, sizeof bytes, p->memory_bytes));
        break;
    default:
        (void)snprintf(buf, TSR_PROCESS_TEXT, "ended its process with exit status %d", o->code);
    }
    return buf;
}

void *tsr_process_memory(uint64_t bytes)
{
    void *p = bytes <= SIZE_MAX ? mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)
                                : MAP_FAILED;
    return p == MAP_FAILED ? NULL : p;
}

void tsr_process_release(void *p, uint64_t bytes)
{
    if (p)
        (void)munmap(p, bytes ? bytes : 1);
}
