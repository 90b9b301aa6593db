#include "plan/isolate.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/registry.h"

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

#define GRACE_US        UINT64_C(5000000)
#define LONGEST_STEP_US UINT64_C(200000)
#define LOG_LINE        400 /* bytes of a child's log line; one write of so few is whole */

/* What parent and child share: this, then the arrays of the solution. */
struct answer {
    volatile uint32_t done;
    tsr_status        status;
    uint32_t          solved;
    double            objective, bound;
    uint64_t          option, stages;
    char              text[sizeof((struct tsr_errbuf *)0)->text];
};

struct isolated {
    const struct tsr_solver_instance *in;
    const struct tsr_found           *solver;
    const void                       *opts;
    struct answer                    *shared;
    struct tsr_solver_solution        out; /* with arrays behind *shared */
    uint64_t                          bytes, memory, grace_us;
    int                               log[2];
};

/* ---- the child -------------------------------------------------------------- */

static int log_fd; /* of this child; set after the fork */

static void child_log(void *ctx, int32_t level, const char *msg)
{
    char line[LOG_LINE];
    int  n = snprintf(line, sizeof line - 1, "%d%s", level >= 0 && level <= 2 ? level : 2, msg);
    (void)ctx;
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    if (write(log_fd, line, (size_t)n) < 0)
        return; /* nobody listens any more */
}

/* The threads of the host's pool are not in this process. */
static tsr_status child_for(void *ctx, uint64_t n, uint64_t grain,
                            tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    (void)ctx;
    return body ? tsr_pool_for(NULL, n, grain, body, arg) : TSR_E_INVAL;
}

static void settle(const struct isolated *x)
{
    struct rlimit none = { 0, 0 };
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &none);
    static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTERM };
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        (void)signal(crashes[i], SIG_DFL); /* the host's handlers are not for this process */
    (void)signal(SIGINT, SIG_IGN);         /* the parent's to decide */
    (void)setpgid(0, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
        (void)dup2(null, fd);
    log_fd = x->log[1];
    (void)close(x->log[0]);
}

_Noreturn static void child(struct isolated *x)
{
    settle(x);
    const struct tsr_solver_v1 *t = x->solver->iface;
    struct answer              *a = x->shared;
    struct tsr_host             host = *x->solver->host;
    struct tsr_err              err = { sizeof err, sizeof a->text, a->text };
    void                       *self = NULL;
    struct tsr_solver_solution  out = x->out;
    host.log = child_log;
    host.parallel_for = child_for;
    a->status = t->create(&host, x->opts, &self, &err);
    if (a->status == TSR_OK) {
        a->status = t->solve(self, x->in, &out, &err);
        t->destroy(self);
    }
    a->solved = out.status;
    a->objective = out.objective;
    a->bound = out.bound;
    a->option = out.option;
    a->stages = out.stages;
    a->done = 1;
    _exit(0);
}

/* ---- the parent -------------------------------------------------------------- */

/* Resident bytes that are its own, 0 when unknown: those of the parent are shared until written. */
static uint64_t anonymous_bytes(pid_t pid)
{
    char               path[40], text[128];
    unsigned long long size = 0, resident = 0, shared = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *end = text;
    size = strtoull(end, &end, 10);
    resident = strtoull(end, &end, 10);
    shared = strtoull(end, &end, 10);
    (void)size;
    return resident > shared ? (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Whole lines of what the child says; a piece at the end waits for the rest. */
static void pass_log(const struct isolated *x, char *have, size_t *n, size_t cap)
{
    ssize_t got = read(x->log[0], have + *n, cap - 1 - *n);
    if (got <= 0)
        return;
    *n += (size_t)got;
    have[*n] = '\0';
    char *line = have;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        for (char *p = line; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = ' ';
        if (line[0] >= '0' && line[0] <= '2')
            x->solver->host->log(x->solver->host->ctx, line[0] - '0', line + 1);
    }
    *n = strlen(line);
    if (*n + 1 >= cap)
        *n = 0; /* no line of ours is so long */
    memmove(have, line, *n);
}

enum end { ENDED, LATE, LARGE, STOPPED };

/* Time that this process saw pass: while it is stopped, or the machine sleeps, the child does not
 * work either. */
static void pass_time(uint64_t *clock, uint64_t *seen)
{
    uint64_t now = tsr_now_us(), step = now - *clock;
    *clock = now;
    *seen += step < LONGEST_STEP_US ? step : LONGEST_STEP_US;
}

static enum end follow(const struct isolated *x, pid_t pid, int *status)
{
    uint64_t clock = tsr_now_us(), seen = 0, most;
    uint64_t before = anonymous_bytes(pid), now = 0;
    char     text[LOG_LINE * 4];
    size_t   have = 0;
    if (!tsr_add(x->in->deadline_us, x->grace_us, &most))
        most = UINT64_MAX;
    for (uint64_t wait_ms = 0;; wait_ms = wait_ms < 10 ? wait_ms + 1 : 10) {
        struct pollfd p = { .fd = x->log[0], .events = POLLIN };
        if (poll(&p, 1, (int)wait_ms) > 0 && p.revents & POLLIN)
            pass_log(x, text, &have, sizeof text);
        if (waitpid(pid, status, WNOHANG) == pid) {
            pass_log(x, text, &have, sizeof text);
            return ENDED;
        }
        if (p.revents & POLLHUP) /* it closed its end, or is about to be gone */
            (void)poll(NULL, 0, 1);
        if (tsr_cancelled())
            return STOPPED;
        now = anonymous_bytes(pid);
        if (now > before && now - before > x->memory)
            return LARGE;
        pass_time(&clock, &seen);
        if (seen > most)
            return LATE;
    }
}

static tsr_status judge(const struct isolated *x, enum end end, int status, struct tsr_err *err)
{
    const char   *name = x->solver->component->name;
    struct answer a;
    char          bytes[TSR_BYTES_TEXT];
    if (end == STOPPED)
        return tsr_fail(err, TSR_E_CANCELLED, "stopped by the user");
    if (end == LARGE)
        return tsr_fail(err, TSR_E_NOMEM,
                        "its process took more than the %s that it may have, and was ended; choose "
                        "another solver than %s, or a smaller problem",
                        tsr_format_bytes(bytes, sizeof bytes, x->memory), name);
    if (end == LATE)
        return tsr_fail(err, TSR_E_DEVICE,
                        "its process did not return %.3g s after its deadline of %.6g s, and was "
                        "ended; choose another solver than %s, or a longer --time-limit",
                        (double)x->grace_us / 1e6, (double)x->in->deadline_us / 1e6, name);
    if (WIFSIGNALED(status))
        return tsr_fail(err, TSR_E_DEVICE,
                        "its process ended with signal %d (%s); choose another solver than %s",
                        WTERMSIG(status), strsignal(WTERMSIG(status)), name);
    memcpy(&a, x->shared, sizeof a);
    if (WEXITSTATUS(status) != 0 || !a.done)
        return tsr_fail(err, TSR_E_DEVICE,
                        "its process ended with exit status %d before there was an answer; choose "
                        "another solver than %s",
                        WEXITSTATUS(status), name);
    a.text[sizeof a.text - 1] = '\0';
    if (a.status != TSR_OK)
        return tsr_fail(err, a.status < 0 ? a.status : TSR_E_INVAL, "%s",
                        *a.text ? a.text : "it failed without a word");
    return TSR_OK;
}

static void take_answer(const struct isolated *x, struct tsr_solver_solution *s)
{
    const struct answer *a = x->shared;
    s->status = a->solved;
    s->objective = a->objective;
    s->bound = a->bound;
    s->option = a->option;
    s->stages = a->stages;
    memcpy(s->stage_first, x->out.stage_first, s->max_stages * sizeof *s->stage_first);
    memcpy(s->stage_count, x->out.stage_count, s->max_stages * sizeof *s->stage_count);
    memcpy(s->stage_kind, x->out.stage_kind, s->max_stages * sizeof *s->stage_kind);
    memcpy(s->layer_bits, x->out.layer_bits, x->in->layers * sizeof *s->layer_bits);
    memcpy(s->reason, x->out.reason, s->reason_cap);
}

/* The same problem with room for the answer in shared memory. */
static tsr_status share(struct isolated *x, const struct tsr_solver_solution *s,
                        struct tsr_err *err)
{
    uint64_t stages, layers;
    if (!tsr_mul(s->max_stages, 20, &stages) || !tsr_mul(x->in->layers, 4, &layers) ||
        !tsr_add(sizeof(struct answer) + 64, stages, &x->bytes) ||
        !tsr_add(x->bytes, layers, &x->bytes) || !tsr_add(x->bytes, s->reason_cap, &x->bytes))
        return tsr_fail_nomem(err, UINT64_MAX, "an answer");
    void *p = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return tsr_fail_nomem(err, x->bytes, "an answer");
    x->shared = p;
    x->out = *s;
    x->out.stage_first =
        (uint64_t *)(void *)((char *)p + ((sizeof(struct answer) + 7) & ~(size_t)7));
    x->out.stage_count = x->out.stage_first + s->max_stages;
    x->out.stage_kind = (uint32_t *)(void *)(x->out.stage_count + s->max_stages);
    x->out.layer_bits = x->out.stage_kind + s->max_stages;
    x->out.reason = (char *)(void *)(x->out.layer_bits + x->in->layers);
    return TSR_OK;
}

static tsr_status run(struct isolated *x, struct tsr_solver_solution *s, struct tsr_err *err)
{
    int status = 0;
    if (pipe2(x->log, O_CLOEXEC) != 0)
        return tsr_fail_errno(err, errno, "a pipe", "make");
    (void)fcntl(x->log[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        child(x);
    int why = errno;
    (void)close(x->log[1]);
    tsr_status st =
        pid < 0 ? tsr_fail_errno(err, why, "a process for the solver", "start") : TSR_OK;
    if (st == TSR_OK) {
        enum end end = follow(x, pid, &status);
        if (end != ENDED) {
            (void)kill(pid, SIGKILL);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
            }
        }
        st = judge(x, end, status, err);
    }
    (void)close(x->log[0]);
    if (st == TSR_OK)
        take_answer(x, s);
    return st;
}

tsr_status tsr_plan_isolated(const struct tsr_solver_instance *in, const struct tsr_found *solver,
                             const void *opts, const struct tsr_isolation *limits,
                             struct tsr_solver_solution *s, struct tsr_err *err)
{
    struct tsr_solver_instance mine = *in;
    struct isolated            x = { .in = &mine, .solver = solver, .opts = opts };
    long                       pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    x.memory = limits ? limits->memory_bytes : 0;
    x.grace_us = limits && limits->grace_us ? limits->grace_us : GRACE_US;
    if (x.memory == 0)
        x.memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : UINT64_MAX;
    if (mine.deadline_us == 0)
        mine.deadline_us = TSR_ISOLATED_DEADLINE_US;
    TSR_TRY(share(&x, s, err));
    tsr_status st = run(&x, s, err);
    (void)munmap(x.shared, x.bytes);
    return st;
}
