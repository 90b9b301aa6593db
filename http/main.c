/* tessera-http: the program that `tessera serve` starts.  It has the socket, and no model: requests go to the engine
 * through stdout, answers come from stdin (core/serve/frame.h). */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES   32768 /* of a request: longer heads get status 431 */
#define FINISH_TRIES 200   /* of 10 ms, for the last bytes of answers */
#define LOOK_MS      50    /* between looks at clients that are slow or gone */

struct http_config http_config;

/* The engine says it to the user, and this program ends. */
__attribute__((format(printf, 1, 2))) static int fail(const char *format, ...)
{
    char    text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)tsr_serve_frame_write(STDOUT_FILENO,
                                &(struct tsr_serve_frame){ .kind = TSR_SERVE_FAILED,
                                                           .length = (uint32_t)strlen(text),
                                                           .payload = text });
    return 2;
}

static bool read_config(const struct tsr_serve_frame *f)
{
    struct http_config *c = &http_config;
    json_error_t        e;
    json_int_t          created, port, connections, max_body, requests;
    c->root = json_loadb(f->payload, f->length, 0, &e);
    if (!c->root ||
        json_unpack(c->root, "{s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:F, s?s, s?o}", "host", &c->host,
                    "port", &port, "models", &c->models, "created", &created, "max_body", &max_body,
                    "connections", &connections, "requests", &requests, "timeout", &c->timeout,
                    "key", &c->key, "tokenizer", &c->tokenizer) != 0)
        return false;
    c->port = (unsigned)port;
    c->created = created;
    c->max_body = (uint64_t)max_body;
    c->connections = (unsigned)connections;
    c->requests = (uint64_t)requests;
    return true;
}

/* The address of the configuration, in a form that sockets take. */
static bool address(struct sockaddr_storage *s)
{
    struct sockaddr_in  four = { .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)http_config.port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                .sin6_port = htons((uint16_t)http_config.port) };
    memset(s, 0, sizeof *s);
    if (inet_pton(AF_INET, http_config.host, &four.sin_addr) == 1) {
        memcpy(s, &four, sizeof four);
        return true;
    }
    if (inet_pton(AF_INET6, http_config.host, &six.sin6_addr) != 1)
        return false;
    memcpy(s, &six, sizeof six);
    return true;
}

/* libmicrohttpd's own messages are for its developers. */
static void quiet(void *cls, const char *format, va_list args)
{
    (void)cls;
    (void)format;
    (void)args;
}

static struct MHD_Daemon *start(const struct sockaddr_storage *where)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ITC | MHD_USE_ERROR_LOG;
    if (where->ss_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    return MHD_start_daemon(flags, (uint16_t)http_config.port, NULL, NULL, http_on_request, NULL,
                            MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL, MHD_OPTION_SOCK_ADDR,
                            (const struct sockaddr *)where, MHD_OPTION_CONNECTION_LIMIT,
                            http_config.connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)HEAD_BYTES, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed,
                            NULL, MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, NULL,
                            MHD_OPTION_END);
}

static bool say_listening(struct MHD_Daemon *d)
{
    const union MHD_DaemonInfo *i = MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT);
    char                       *text = malloc(80);
    unsigned                    port = i ? i->port : http_config.port;
    if (!text)
        return false;
    bool six = strchr(http_config.host, ':') != NULL;
    int  n = snprintf(text, 80, six ? "[%s]:%u" : "%s:%u", http_config.host, port);
    return http_out(TSR_SERVE_LISTENING, 0, 0, text, (size_t)n);
}

static void pause_ms(long ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    (void)nanosleep(&t, NULL);
}

static void take(struct MHD_Daemon *d, const struct tsr_serve_frame *f, bool *stopped)
{
    if (f->kind == TSR_SERVE_ANSWER) {
        char *text = malloc(f->length + 1u);
        if (text)
            memcpy(text, f->payload, f->length);
        http_answer(f->id, f->status, text, f->length);
    } else if (f->kind == TSR_SERVE_EVENT) {
        http_event(f->id, f->payload, f->length);
    } else if (f->kind == TSR_SERVE_TOTALS && f->length == sizeof(struct tsr_serve_totals)) {
        struct tsr_serve_totals t; /* the payload is not aligned */
        memcpy(&t, f->payload, sizeof t);
        http_totals(&t);
    } else if (f->kind == TSR_SERVE_STOP && !*stopped) {
        *stopped = true;
        http_refuse_all();
        int listening = MHD_quiesce_daemon(d);
        if (listening >= 0)
            (void)close(listening);
        (void)http_out(TSR_SERVE_STOPPED, 0, 0, NULL, 0);
    }
}

/* At most every LOOK_MS, however many frames come. */
static void look_at_clients(void)
{
    static struct timespec last;
    struct timespec        t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    if ((t.tv_sec - last.tv_sec) * 1000 + (t.tv_nsec - last.tv_nsec) / 1000000 < LOOK_MS)
        return;
    last = t;
    http_end_slow();
    http_end_gone();
}

/* Until the engine closes its pipe. */
static void work(struct MHD_Daemon *d, struct tsr_serve_frames *in)
{
    struct tsr_serve_frame f;
    bool                   wrong = false, stopped = false;
    for (int e = 0; (e == 0 || e == EAGAIN) && !wrong;) {
        struct pollfd wait = { .fd = STDIN_FILENO, .events = POLLIN };
        while (tsr_serve_frames_next(in, &f, &wrong))
            take(d, &f, &stopped);
        if (poll(&wait, 1, LOOK_MS) > 0)
            e = tsr_serve_frames_fill(in, STDIN_FILENO);
        look_at_clients();
    }
}

static int serve(struct tsr_serve_frames *in)
{
    struct sockaddr_storage where;
    if (!address(&where))
        return fail("--host \"%s\" is not an address, such as 127.0.0.1 or ::1", http_config.host);
    struct MHD_Daemon *d = start(&where);
    if (!d)
        return fail("%s:%u cannot be listened at: %s", http_config.host, http_config.port,
                    strerror(errno));
    if (!http_out_start()) {
        MHD_stop_daemon(d);
        return fail("no thread can be started for the answers");
    }
    if (say_listening(d))
        work(d, in);
    http_give_up(); /* what still waits gets no answer of the engine */
    for (int i = 0; http_in_work() && i < FINISH_TRIES; i++)
        pause_ms(10);
    MHD_stop_daemon(d);
    http_out_end();
    return 0;
}

int main(void)
{
    struct tsr_serve_frames in = { 0 };
    struct tsr_serve_frame  f;
    bool                    wrong = false;
    /* the engine gets the signals of a terminal too, and says when to end */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    if (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO)) {
        (void)fputs("tessera-http: `tessera serve` starts this program\n", stderr);
        return 2;
    }
    while (!tsr_serve_frames_next(&in, &f, &wrong))
        if (wrong || tsr_serve_frames_fill(&in, STDIN_FILENO) != 0)
            return 2;
    int rc = f.kind == TSR_SERVE_CONFIG && read_config(&f)
                 ? serve(&in)
                 : fail("tessera-http and tessera are of different builds");
    json_decref(http_config.root);
    tsr_serve_frames_free(&in);
    return rc;
}
