/* Runs one rule in a process and collects the outcome. */
#include "conformance/internal.h"

#include "base/clock.h"
#include "plugin/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

#define DEFAULT_LIMIT 20u
#define QUOTED        160u /* shown bytes of the child's output */

/* At most this much of the time between two polls counts: while a suspended machine stops the runner, the
 * child does not run either. */
#define LONGEST_STEP_US UINT64_C(200000)

static int stream_file(void)
{
    return (int)memfd_create("tessera-check", MFD_CLOEXEC);
}

_Noreturn static void child(struct tsr_conformance_rule_run *r,
                            void (*f)(struct tsr_conformance_rule_run *), int streams)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
    (void)dup2(streams, STDOUT_FILENO);
    (void)dup2(streams, STDERR_FILENO);
    (void)close(streams);
    if (null > STDERR_FILENO)
        (void)close(null);
    f(r);
    _exit(2); /* not reached: a run with a pipe ends the process itself */
}

/* Reads available bytes; false at the end. */
static bool take(int fd, char *text, size_t cap, size_t *have)
{
    char    rest[256];
    bool    full = *have + 1 >= cap;
    ssize_t n = full ? read(fd, rest, sizeof rest) : read(fd, text + *have, cap - 1 - *have);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n > 0 && !full)
        *have += (size_t)n;
    return n > 0;
}

struct outcome {
    char   text[TSR_VERDICT_TEXT + TSR_VERDICT_FIGURES + 3]; /* verdict, sentence, figures */
    size_t have;
    int    status; /* of waitpid() */
    bool   over, stopped;
};

/* Follows the child until it ends, even if another process holds its pipe. */
static void follow(struct outcome *o, pid_t pid, int fd, uint32_t limit_s)
{
    uint64_t clock = tsr_now_us(), seen = 0;
    bool     open = true, gone = false;
    while (!gone) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (!open)
            (void)nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        else if (poll(&p, 1, 20) > 0)
            open = take(fd, o->text, sizeof o->text, &o->have);
        gone = waitpid(pid, &o->status, WNOHANG) == pid;
        o->stopped = tsr_plugin_cancelled();
        uint64_t step = tsr_now_us() - clock;
        clock += step;
        seen += step < LONGEST_STEP_US ? step : LONGEST_STEP_US;
        o->over = seen > (uint64_t)limit_s * 1000000u;
        if (!gone && (o->over || o->stopped)) {
            (void)kill(pid, SIGKILL);
            while (waitpid(pid, &o->status, 0) < 0 && errno == EINTR) {
            }
            return;
        }
    }
    o->over = o->stopped = false;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    for (size_t before = o->have + 1; open && before != o->have;) {
        before = o->have;
        open = take(fd, o->text, sizeof o->text, &o->have);
    }
}

/* A plugin's words may be cut in the middle of a character, or be none. */
static void clean(char *text)
{
    for (utf8proc_uint8_t *p = (utf8proc_uint8_t *)text; *p;) {
        utf8proc_int32_t ch;
        utf8proc_ssize_t n = utf8proc_iterate(p, -1, &ch);
        if (n < 1)
            *p = '?';
        p += n < 1 ? 1 : n;
    }
}

/* The child's output on its streams, after the sentence. */
static void quote(struct tsr_conformance_rule_run *r, int streams)
{
    char    raw[QUOTED + 1];
    ssize_t n = pread(streams, raw, QUOTED, 0);
    if (n <= 0)
        return;
    raw[n] = '\0';
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)raw[i] < 0x20 || (unsigned char)raw[i] >= 0x7f)
            raw[i] = ' ';
    size_t at = strlen(r->text);
    (void)snprintf(r->text + at, sizeof r->text - at, "; its output: %s", raw);
}

static void judge(struct tsr_conformance_rule_run *r, struct outcome *o, uint32_t limit_s,
                  int streams)
{
    o->text[o->have] = '\0';
    if (o->have > 0 && !o->over) {
        char *figures = strchr(o->text, TSR_VERDICT_SPLIT);
        if (figures) {
            *figures++ = '\0';
            (void)snprintf(r->figures, sizeof r->figures, "%s", figures);
        }
        r->verdict = (enum tsr_verdict)(o->text[0] - '0');
        (void)snprintf(r->text, sizeof r->text, "%s", o->text + 1);
    } else if (o->over) {
        r->verdict = TSR_CONFORMANCE_HUNG;
        (void)snprintf(r->text, sizeof r->text, "it did not return within %u seconds", limit_s);
    } else if (WIFSIGNALED(o->status)) {
        r->verdict = TSR_CONFORMANCE_CRASHED;
        (void)snprintf(r->text, sizeof r->text, "it ended with signal %d (%s)", WTERMSIG(o->status),
                       strsignal(WTERMSIG(o->status)));
    } else {
        r->verdict = TSR_CONFORMANCE_CRASHED;
        (void)snprintf(r->text, sizeof r->text,
                       "it ended the whole process with exit status %d, which is the host's to do",
                       WEXITSTATUS(o->status));
    }
    if (r->verdict == TSR_CONFORMANCE_CRASHED)
        quote(r, streams);
    clean(r->text);
    clean(r->figures);
}

tsr_status tsr_conformance_rule_fork(struct tsr_conformance_rule_run *r,
                                     void (*f)(struct tsr_conformance_rule_run *), uint32_t limit_s,
                                     double *seconds, struct tsr_err *err)
{
    struct outcome o = { .have = 0 };
    int            fds[2], streams = stream_file();
    double         start = tsr_now_s();
    if (limit_s == 0)
        limit_s = DEFAULT_LIMIT;
    if (streams < 0)
        return tsr_fail_errno(err, errno, "a child's output", "make room for");
    if (pipe2(fds, O_CLOEXEC) != 0) {
        tsr_status st = tsr_fail_errno(err, errno, "a pipe", "make");
        (void)close(streams);
        return st;
    }
    (void)fflush(NULL); /* buffered output must not appear twice */
    r->fd = fds[1];
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fds[0]);
        child(r, f, streams);
    }
    tsr_status st = pid < 0 ? tsr_fail_errno(err, errno, "a process", "start") : TSR_OK;
    (void)close(fds[1]);
    if (st == TSR_OK) {
        follow(&o, pid, fds[0], limit_s);
        (void)kill(-pid, SIGKILL); /* processes that it may have started */
        if (o.stopped)
            st = tsr_fail(err, TSR_E_CANCELLED, "%s", r->c.path);
        else
            judge(r, &o, limit_s, streams);
    }
    (void)close(fds[0]);
    (void)close(streams);
    *seconds = tsr_now_s() - start;
    return st;
}
