#include "serve/http.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM       "tessera-http"
#define START_LIMIT_S 20

extern char **environ;

/* In http/ of a build folder, in ../lib/tessera where it is installed. */
static tsr_status find(char **path, struct tsr_err *err)
{
    char    exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *dir = tsr_path_dir(exe);
    char *built = dir ? tsr_path_join(dir, "http/" PROGRAM) : NULL;
    char *installed = dir ? tsr_path_join(dir, "../lib/tessera/" PROGRAM) : NULL;
    free(dir);
    tsr_status st = TSR_OK;
    *path = NULL;
    if (!built || !installed)
        st = tsr_fail_nomem(err, PATH_MAX, "a path");
    else if (access(built, X_OK) == 0)
        *path = built;
    else if (access(installed, X_OK) == 0)
        *path = installed;
    else
        st = tsr_fail(err, TSR_E_UNSUPPORTED,
                      "the HTTP server is neither %s nor %s; build with libmicrohttpd-dev", built,
                      installed);
    if (*path != built)
        free(built);
    if (*path != installed)
        free(installed);
    return st;
}

/* Its stdin and stdout are our pipes; it inherits nothing else but stderr. */
static tsr_status spawn(struct tsr_serve_http *h, const char *path, struct tsr_err *err)
{
    int                        to[2] = { -1, -1 }, from[2] = { -1, -1 };
    posix_spawn_file_actions_t a;
    char                      *argv[] = { (char *)(uintptr_t)PROGRAM, NULL };
    if (pipe2(to, O_CLOEXEC) != 0)
        return tsr_fail_errno(err, errno, "a pipe", "make");
    if (pipe2(from, O_CLOEXEC) != 0) {
        int e = errno;
        (void)close(to[0]);
        (void)close(to[1]);
        return tsr_fail_errno(err, e, "a pipe", "make");
    }
    int e = posix_spawn_file_actions_init(&a);
    if (e == 0) {
        e = posix_spawn_file_actions_adddup2(&a, to[0], STDIN_FILENO);
        e = e ? e : posix_spawn_file_actions_adddup2(&a, from[1], STDOUT_FILENO);
        e = e ? e : posix_spawn(&h->pid, path, &a, NULL, argv, environ);
        (void)posix_spawn_file_actions_destroy(&a);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    h->to = to[1];
    h->from = from[0];
    if (e) {
        h->pid = 0;
        return tsr_fail_errno(err, e, path, "start");
    }
    (void)fcntl(h->from, F_SETFL, O_NONBLOCK);
    (void)fcntl(h->to, F_SETFL, O_NONBLOCK);
    return TSR_OK;
}

/* Waits for the program, and kills it after `seconds`; its status. */
static int reap(struct tsr_serve_http *h, double seconds)
{
    double until = tsr_now_s() + seconds;
    int    status = 0;
    while (h->pid && waitpid(h->pid, &status, WNOHANG) == 0) {
        if (tsr_now_s() > until)
            (void)kill(h->pid, SIGKILL);
        tsr_clock_system.sleep_us(tsr_clock_system.ctx, 10000);
    }
    h->pid = 0;
    return status;
}

static tsr_status gone(struct tsr_serve_http *h, struct tsr_err *err)
{
    int status = reap(h, 2);
    if (WIFSIGNALED(status))
        return tsr_fail(err, TSR_E_DEVICE, "the HTTP server (%s) ended with signal %d", PROGRAM,
                        WTERMSIG(status));
    return tsr_fail(err, TSR_E_DEVICE, "the HTTP server (%s) ended with exit code %d", PROGRAM,
                    WEXITSTATUS(status));
}

tsr_status tsr_serve_http_send(struct tsr_serve_http *h, const struct tsr_serve_frame *f,
                               struct tsr_err *err)
{
    int e = tsr_serve_frame_write(h->to, f);
    return e == 0       ? TSR_OK
           : e == EPIPE ? gone(h, err)
                        : tsr_fail_errno(err, e, PROGRAM, "write to");
}

tsr_status tsr_serve_http_next(struct tsr_serve_http *h, int wait_ms, struct tsr_serve_frame *f,
                               bool *more, struct tsr_err *err)
{
    struct pollfd wait = { .fd = h->from, .events = POLLIN };
    bool          wrong = false;
    int           e = 0;
    for (;;) {
        *more = tsr_serve_frames_next(&h->in, f, &wrong);
        if (*more || wrong || e)
            break;
        if (poll(&wait, 1, wait_ms) <= 0)
            return TSR_OK;
        e = tsr_serve_frames_fill(&h->in, h->from);
        wait_ms = 0;
    }
    if (*more || e == EAGAIN)
        return TSR_OK;
    if (wrong)
        return tsr_fail(err, TSR_E_DEVICE, "the HTTP server (%s) is of another build", PROGRAM);
    return e == EPIPE ? gone(h, err) : tsr_fail_errno(err, e, PROGRAM, "read from");
}

static tsr_status configure(struct tsr_serve_http *h, const struct tsr_serve_http_options *o,
                            struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t n = 0;
    json_t *j = json_pack("{s:s, s:i, s:s*, s:O, s:I, s:I, s:I, s:I, s:f}", "host", o->host, "port",
                          (int)o->port, "key", o->key, "models", o->models, "created",
                          (json_int_t)o->created, "max_body", (json_int_t)o->max_body,
                          "connections", (json_int_t)o->connections, "requests",
                          (json_int_t)o->requests, "timeout", o->timeout);
    if (o->tokenizer)
        tsr_json_set(&j, "tokenizer", json_incref(o->tokenizer));
    tsr_status st = j ? tsr_json_text(j, JSON_COMPACT, &text, &n, err)
                      : tsr_fail(err, TSR_E_INPUT, "the name of the model is not UTF-8");
    if (st == TSR_OK)
        st = tsr_serve_http_send(h,
                                 &(struct tsr_serve_frame){ .kind = TSR_SERVE_CONFIG,
                                                            .length = (uint32_t)n,
                                                            .payload = text },
                                 err);
    free(text);
    json_decref(j);
    return st;
}

static tsr_status await(struct tsr_serve_http *h, struct tsr_err *err)
{
    struct tsr_serve_frame f;
    bool                   more = false;
    double                 until = tsr_now_s() + START_LIMIT_S;
    while (!more) {
        if (tsr_now_s() > until)
            return tsr_fail(err, TSR_E_DEVICE, "the HTTP server (%s) does not start", PROGRAM);
        TSR_TRY(tsr_serve_http_next(h, 1000, &f, &more, err));
    }
    if (f.kind == TSR_SERVE_FAILED)
        return tsr_fail(err, TSR_E_INPUT, "%.*s", (int)f.length, f.payload);
    (void)snprintf(h->address, sizeof h->address, "%.*s", (int)f.length, f.payload);
    return TSR_OK;
}

tsr_status tsr_serve_http_start(struct tsr_serve_http *h, const struct tsr_serve_http_options *o,
                                struct tsr_err *err)
{
    char *path;
    *h = (struct tsr_serve_http){ .to = -1, .from = -1 };
    TSR_TRY(find(&path, err));
    tsr_status st = spawn(h, path, err);
    free(path);
    if (st == TSR_OK)
        st = configure(h, o, err);
    if (st == TSR_OK)
        st = await(h, err);
    if (st != TSR_OK)
        tsr_serve_http_end(h, 1);
    return st;
}

void tsr_serve_http_end(struct tsr_serve_http *h, double seconds)
{
    if (h->to >= 0)
        (void)close(h->to);
    (void)reap(h, seconds);
    if (h->from >= 0)
        (void)close(h->from);
    tsr_serve_frames_free(&h->in);
    *h = (struct tsr_serve_http){ .to = -1, .from = -1 };
}
