#include "cli/inspect/probe.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "quant/decoder.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Making an instance and sizing one tensor take milliseconds, a GPU's context a few seconds; this is
 * for plugins that hang. */
#define LIMIT_US  (UINT64_C(10) * 1000000)
#define MAX_REPLY (1 << 20)

/* What the child found, as its exit status; anything else is an end that it did not choose. */
enum { ANSWERED = 0, NO_SUCH = 10, FAILED = 11, NO_MEMORY = 12 };

/* Runs all plugin code. The reply: nothing, or a newline once the component is found and then its answer;
 * or the error message. */
static int child_run(struct tsr_cli *c, tsr_inspect_nth nth, const char *name, uint64_t i, FILE *to)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_found f;
    int32_t                 level = tsr_log_level();
    json_t                 *j = NULL;
    bool                    have = false;
    char                   *text = NULL;
    uint64_t                len = 0;
    tsr_log_set_level(TSR_LOG_WARN + 1); /* the parent reports refusals */
    tsr_status st = nth(c, name, i, &f, &have, &e.err);
    tsr_log_set_level(level);
    if (st == TSR_OK && have) {
        (void)fputc('\n', to);
        (void)fflush(to);
        st = tsr_inspect_ask(&f, &j, &e.err);
    }
    if (st != TSR_OK)
        (void)fprintf(to, "%s", e.text);
    else if (j && (st = tsr_json_text(j, JSON_COMPACT, &text, &len, &e.err)) == TSR_OK)
        (void)fwrite(text, 1, len, to);
    free(text);
    json_decref(j);
    tsr_quant_decoders_close();
    tsr_plugin_registry_destroy(c->registry);
    tsr_pool_destroy(c->pool);
    return st == TSR_E_NOMEM ? NO_MEMORY : st != TSR_OK ? FAILED : have ? ANSWERED : NO_SUCH;
}

/* A plugin's own output must not end up between the lines of ours. */
__attribute__((noreturn)) static void child(struct tsr_cli *c, tsr_inspect_nth nth,
                                            const char *name, uint64_t i, int fd)
{
    FILE *to = fdopen(fd, "w");
    if (!to)
        _exit(NO_MEMORY);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    int code = child_run(c, nth, name, i, to);
    if (fclose(to) != 0)
        code = NO_MEMORY; /* the parent has half of it */
    _exit(code);
}

/* Reads until the child closes its end, then waits for the child to end. False: a timeout, or the user
 * interrupts; the child still runs then. */
static bool collect(pid_t pid, int fd, char *reply, size_t cap, size_t *n, int *status)
{
    uint64_t end = tsr_now_us() + LIMIT_US;
    bool     open = true;
    for (*n = 0; !tsr_plugin_cancelled() && tsr_now_us() < end;) {
        struct pollfd p = { .fd = open ? fd : -1, .events = POLLIN };
        if (!open && waitpid(pid, status, WNOHANG) == pid)
            return true;
        if (poll(&p, 1, open ? 100 : 1) <= 0)
            continue;
        ssize_t got = *n < cap ? read(fd, reply + *n, cap - *n) : 0;
        if (got > 0)
            *n += (size_t)got;
        else if (got == 0 || errno != EINTR)
            open = false;
    }
    return false;
}

/* How a child without an answer ended. */
static void ending(char *text, size_t cap, bool in_time, int status)
{
    if (!in_time)
        (void)snprintf(text, cap, "its code did not answer within %d s", (int)(LIMIT_US / 1000000));
    else if (WIFSIGNALED(status))
        (void)snprintf(text, cap, "its code ended the process with signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(text, cap, "its code ended the process with exit code %d",
                       WEXITSTATUS(status));
}

static tsr_status verdict(const char *name, int status, bool in_time, const char *reply, size_t n,
                          json_t **out, struct tsr_err *err)
{
    char why[160];
    bool found = n > 0 && reply[0] == '\n';
    int  code = in_time && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == NO_SUCH && !found)
        return TSR_OK;
    if (code == FAILED && !found && n > 0)
        return tsr_fail(err, TSR_E_INPUT, "%.*s", (int)n, reply);
    reply += found;
    n -= found;
    if (code == NO_MEMORY && n > 0)
        return tsr_fail(err, TSR_E_NOMEM, "%.*s", (int)n, reply);
    if (code == NO_MEMORY)
        return tsr_fail_nomem(err, 0, "a plugin's answer");
    ending(why, sizeof why, in_time, status);
    if (!found) /* while it was loaded */
        return tsr_fail(err, TSR_E_INPUT, "%s: %s; its constructors must do nothing", name, why);
    /* a plugin that ends the process writes nothing after the newline */
    if (code == ANSWERED && n > 0)
        return tsr_json_parse(out, name, reply, n, 64, err);
    *out = json_pack("{s:s}", "error", why);
    return *out ? TSR_OK : tsr_fail_nomem(err, n, "a plugin's answer");
}

/* The parent's side of one question. */
static tsr_status attend(const char *name, pid_t pid, int fd, char *reply, json_t **out,
                         struct tsr_err *err)
{
    size_t n;
    int    status = 0;
    bool   in_time = collect(pid, fd, reply, MAX_REPLY, &n, &status);
    if (!in_time) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    return verdict(name, status, in_time, reply, n, out, err);
}

tsr_status tsr_inspect_probe(struct tsr_cli *c, tsr_inspect_nth nth, const char *name, uint64_t i,
                             json_t **out, struct tsr_err *err)
{
    int fd[2];
    *out = NULL;
    if (c->pool || c->registry) /* a child with half of the threads would wait for the others */
        return tsr_fail(err, TSR_E_BUG, "a plugin is asked after threads were started");
    char *reply = malloc(MAX_REPLY);
    if (!reply)
        return tsr_fail_nomem(err, MAX_REPLY, "a plugin's answer");
    if (pipe(fd) != 0) {
        tsr_status st = tsr_fail_errno(err, errno, "a pipe", "make");
        free(reply);
        return st;
    }
    (void)fflush(stdout); /* the child must not print it again */
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fd[0]);
        child(c, nth, name, i, fd[1]);
    }
    tsr_status st = pid < 0 ? tsr_fail_errno(err, errno, "a process", "start") : TSR_OK;
    (void)close(fd[1]);
    if (st == TSR_OK)
        st = attend(name, pid, fd[0], reply, out, err);
    (void)close(fd[0]);
    free(reply);
    return st;
}
