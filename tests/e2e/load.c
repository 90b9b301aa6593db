/* load PORT CASES CONNECTIONS REQUESTS SEED - asks a server of the loopback through many connections at once, and compares
 * every answer with the one that it must be.
 *
 * CASES has a line {"path", "body", "want": {"choices", "usage"}} for each kind of request.  Among them are streams, clients
 * that send slowly, stop in the middle, leave, or send what is no request.  Prints what happened as JSON; exit code 1
 * where an answer is lost or another one than it must be. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST    256
#define LOST_S  120.0 /* without an answer */
#define PIECE_S 0.03  /* between the pieces of a slow client */

enum kind {
    WHOLE,   /* an answer that is compared */
    STREAM,  /* the same in parts */
    SLOW,    /* sent in pieces; compared */
    WRONG,   /* a body that is no request: status 400 */
    NOISE,   /* bytes that are no HTTP: refused or closed */
    STOPPED, /* half a request: the server closes */
    LEAVES,  /* closes after the request */
    KINDS
};
static const char *const names[KINDS] = { "whole", "stream",  "slow",  "wrong",
                                          "noise", "stopped", "leaves" };
/* of 100 requests */
static const int share[KINDS] = { 70, 12, 4, 4, 3, 2, 5 };

struct connection {
    int       fd; /* -1: closed */
    bool      busy, used, streams;
    enum kind kind;
    size_t    of; /* the case */
    char     *out, *in;
    size_t    n_out, at, n_in, cap;
    double    since, next; /* next: piece of a slow client */
};

static uint16_t           port;
static json_t            *cases[1024];
static size_t             n_cases;
static struct connection  conn[MOST];
static unsigned long long done[KINDS], bad, again;
static uint64_t           seed;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* splitmix64 (Steele et al., OOPSLA 2014) */
static uint64_t draw(uint64_t n)
{
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % n;
}

static void die(const char *what)
{
    (void)fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- requests --------------------------------------------------------------- */

static char *post(const char *path, const char *body)
{
    char  *out = NULL;
    size_t n = 0;
    FILE  *f = open_memstream(&out, &n);
    if (!f)
        die("memory");
    (void)fprintf(f, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n%s", path,
                  strlen(body), body);
    (void)fclose(f);
    return out;
}

static char *noise(void)
{
    static const char *const some[] = { "no http\r\n\r\n",
                                        "GET /\r\n\r\n",
                                        "POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                                        "Content-Length: -5\r\n\r\n{}",
                                        "POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
                                        "\x16\x03\x01\x02\x01\x01\r\n\r\n",
                                        "BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n" };
    return strdup(some[draw(sizeof some / sizeof *some)]);
}

static char *request(const struct connection *k)
{
    static const char *const wrong[] = { "{\"prompt\":\"a\"", "[]", "{\"prompt\":7}",
                                         "{\"prompt\":\"a\",\"max_token\":1}", "" };
    json_t                  *body = json_object_get(cases[k->of], "body");
    if (k->kind == NOISE)
        return noise();
    if (k->kind == WRONG)
        return post("/v1/completions", wrong[draw(sizeof wrong / sizeof *wrong)]);
    json_t *copy = json_copy(body);
    if (k->streams)
        (void)json_object_set_new(copy, "stream", json_true());
    char *text = json_dumps(copy, JSON_COMPACT);
    char *out = post(json_string_value(json_object_get(cases[k->of], "path")), text);
    if (k->kind == STOPPED)
        out[strlen(out) - 1 - draw(strlen(out) - 2)] = '\0';
    free(text);
    json_decref(copy);
    return out;
}

/* ---- answers ---------------------------------------------------------------- */

static void wrong(const struct connection *k, const char *what)
{
    if (bad++ < 5)
        (void)fprintf(stderr, "load: %s of case %zu: %s: %.400s\n", names[k->kind], k->of, what,
                      k->in ? k->in : "");
}

static bool same(const struct connection *k, const json_t *answer)
{
    const json_t *want = json_object_get(cases[k->of], "want");
    return json_equal(json_object_get(answer, "choices"), json_object_get(want, "choices")) &&
           json_equal(json_object_get(answer, "usage"), json_object_get(want, "usage"));
}

/* Texts and reasons of the events, choice by choice. */
static bool same_events(const struct connection *k, char *body)
{
    const json_t *want = json_object_get(json_object_get(cases[k->of], "want"), "choices");
    size_t        n = json_array_size(want);
    char        **text = calloc(n, sizeof *text);
    bool          ok = text != NULL, over = false;
    const char   *reason[128] = { 0 };
    json_t       *events = json_array();
    for (char *line = strtok(body, "\n"); line && ok; line = strtok(NULL, "\n")) {
        over = strcmp(line, "data: [DONE]") == 0;
        if (over)
            break;
        json_t       *e = strncmp(line, "data: ", 6) == 0 ? json_loads(line + 6, 0, NULL) : NULL;
        const json_t *c = json_array_get(json_object_get(e, "choices"), 0);
        size_t        i = (size_t)json_integer_value(json_object_get(c, "index"));
        const char   *more = json_string_value(json_object_get(c, "text"));
        ok = more && i < n && i < 128 && json_array_append_new(events, e) == 0;
        if (!ok)
            break;
        size_t had = text[i] ? strlen(text[i]) : 0;
        char  *all = realloc(text[i], had + strlen(more) + 1);
        if (!all)
            die("memory");
        memcpy(all + had, more, strlen(more) + 1);
        text[i] = all;
        reason[i] = json_string_value(json_object_get(c, "finish_reason"));
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *w = json_array_get(want, i);
        ok = ok && text[i] && reason[i] &&
             strcmp(text[i], json_string_value(json_object_get(w, "text"))) == 0 &&
             strcmp(reason[i], json_string_value(json_object_get(w, "finish_reason"))) == 0;
        free(text[i]);
    }
    free(text);
    json_decref(events);
    return ok && over;
}

/* A chunked body in place; its length, or -1: more must come, -2: no chunks. */
static long dechunk(char *body, const char *end)
{
    char *p = body, *to = body;
    for (;;) {
        char *line_end = memchr(p, '\n', (size_t)(end - p)), *stop;
        if (!line_end)
            return -1;
        unsigned long n = strtoul(p, &stop, 16);
        if (stop == p || n > 1u << 28)
            return -2;
        p = line_end + 1;
        if ((size_t)(end - p) < n + 2)
            return -1;
        if (n == 0)
            return to - body;
        memmove(to, p, n);
        to += n;
        p += n + 2;
    }
}

/* Whether the answer is all there: its status and its body, as a string.  Bytes are changed only where it is. */
static bool whole(struct connection *k, int *status, char **body)
{
    char *head_end = k->n_in ? strstr(k->in, "\r\n\r\n") : NULL;
    if (!head_end)
        return false;
    const char *length = strstr(k->in, "Content-Length: ");
    *body = head_end + 4;
    *status = atoi(k->in + 9);
    if (length && length < head_end) {
        size_t n = strtoul(length + 16, NULL, 10);
        return k->n_in - (size_t)(*body - k->in) >= n;
    }
    char *copy = malloc(k->n_in + 1);
    if (!copy)
        die("memory");
    memcpy(copy, k->in, k->n_in + 1);
    long n = dechunk(copy + (*body - k->in), copy + k->n_in);
    if (n >= 0) {
        (void)dechunk(*body, k->in + k->n_in);
        (*body)[n] = '\0';
    }
    free(copy);
    return n >= 0;
}

/* ---- connections ------------------------------------------------------------ */

static void shut(struct connection *k)
{
    if (k->fd >= 0)
        (void)close(k->fd);
    k->fd = -1;
    k->used = false;
}

static void connect_to(struct connection *k)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    k->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (k->fd < 0 || connect(k->fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        fcntl(k->fd, F_SETFL, O_NONBLOCK) != 0)
        die("connect");
}

static void send_request(struct connection *k)
{
    k->at = k->n_in = 0;
    if (k->in)
        *k->in = '\0';
    k->since = k->next = now();
    if (k->fd < 0)
        connect_to(k);
}

static void begin(struct connection *k)
{
    static int first; /* one of each kind, whatever the seed */
    int        at = (int)draw(100), kind = 0;
    while (at >= share[kind])
        at -= share[kind++];
    if (first < KINDS)
        kind = first++;
    k->kind = (enum kind)kind;
    k->of = draw(n_cases);
    k->streams = k->kind == STREAM || (k->kind == LEAVES && draw(2));
    free(k->out);
    k->out = request(k);
    if (!k->out)
        die("memory");
    k->n_out = strlen(k->out);
    k->busy = true;
    send_request(k);
}

static void end(struct connection *k)
{
    done[k->kind]++;
    k->busy = false;
    k->used = true;
    if (k->kind == NOISE || k->kind == STOPPED || k->kind == LEAVES)
        shut(k);
}

/* The server closed. */
static void closed(struct connection *k)
{
    bool fresh = !k->used;
    shut(k);
    if (k->kind == STOPPED || k->kind == NOISE) {
        end(k);
    } else if (!fresh && k->n_in == 0) { /* it was idle for too long: as clients do */
        again++;
        send_request(k);
    } else {
        wrong(k, "the server closed");
        end(k);
    }
}

static void look(struct connection *k)
{
    int     status = 0;
    char   *body = NULL;
    json_t *j;
    if (k->kind == STOPPED || !whole(k, &status, &body))
        return;
    if (k->kind == NOISE) {
        if (status < 400)
            wrong(k, "noise was answered");
    } else if (k->kind == WRONG) {
        if (status != 400)
            wrong(k, "another status than 400");
    } else if (k->streams) { /* who leaves may have it all before */
        if (status != 200 || !same_events(k, body))
            wrong(k, "another stream");
    } else {
        j = json_loads(body, 0, NULL);
        if (status != 200 || !same(k, j))
            wrong(k, "another answer");
        json_decref(j);
    }
    end(k);
}

static void receive(struct connection *k)
{
    if (k->cap - k->n_in < 65537) {
        k->cap = 2 * k->cap + 131072;
        k->in = realloc(k->in, k->cap);
        if (!k->in)
            die("memory");
    }
    ssize_t n = read(k->fd, k->in + k->n_in, 65536);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        closed(k);
        return;
    }
    k->n_in += (size_t)n;
    k->in[k->n_in] = '\0';
    look(k);
}

static void give(struct connection *k)
{
    size_t n = k->n_out - k->at;
    if (k->kind == SLOW || k->kind == STOPPED) {
        if (now() < k->next)
            return;
        n = n > 1 + k->n_out / 4 ? 1 + k->n_out / 4 : n;
        k->next = now() + PIECE_S;
    }
    ssize_t w = send(k->fd, k->out + k->at, n, MSG_NOSIGNAL);
    if (w > 0)
        k->at += (size_t)w;
    else if (w < 0 && errno != EAGAIN && errno != EINTR)
        closed(k);
    if (k->busy && k->kind == LEAVES && k->at == k->n_out && now() - k->since > PIECE_S)
        end(k);
}

static void turn(unsigned n)
{
    struct pollfd p[MOST];
    for (unsigned i = 0; i < n; i++) {
        struct connection *k = &conn[i];
        bool               pause = k->kind == SLOW || k->kind == STOPPED ? now() < k->next : false;
        p[i].fd = k->busy ? k->fd : -1;
        p[i].events = (short)(POLLIN | (k->at < k->n_out && !pause ? POLLOUT : 0));
        p[i].revents = 0;
    }
    if (poll(p, n, 10) < 0 && errno != EINTR)
        die("poll");
    for (unsigned i = 0; i < n; i++) {
        struct connection *k = &conn[i];
        if (k->busy && (p[i].revents & (POLLIN | POLLHUP | POLLERR)))
            receive(k);
        if (k->busy && (p[i].revents & POLLOUT))
            give(k);
        if (k->busy && k->kind == LEAVES && k->at == k->n_out && now() - k->since > PIECE_S)
            end(k);
        if (k->busy && now() - k->since > LOST_S) {
            wrong(k, "no answer");
            shut(k);
            end(k);
        }
    }
}

int main(int argc, char **argv)
{
    char  *line = NULL;
    size_t cap = 0;
    if (argc != 6)
        return 2;
    FILE *f = fopen(argv[2], "r");
    if (!f)
        die(argv[2]);
    while (n_cases < 1024 && getline(&line, &cap, f) > 0)
        if (!(cases[n_cases++] = json_loads(line, 0, NULL)))
            die("a case is no JSON");
    (void)fclose(f);
    free(line);
    port = (uint16_t)atoi(argv[1]);
    unsigned           n = (unsigned)atoi(argv[3]);
    unsigned long long requests = strtoull(argv[4], NULL, 10), sent = 0, over = 0;
    seed = strtoull(argv[5], NULL, 10);
    if (n == 0 || n > MOST || n_cases == 0)
        return 2;
    for (unsigned i = 0; i < n; i++)
        conn[i].fd = -1;
    while (over < requests) {
        for (unsigned i = 0; i < n && sent < requests; i++)
            if (!conn[i].busy) {
                begin(&conn[i]);
                sent++;
            }
        turn(n);
        over = 0;
        for (int k = 0; k < KINDS; k++)
            over += done[k];
    }
    (void)printf("{");
    for (int k = 0; k < KINDS; k++)
        (void)printf("\"%s\":%llu,", names[k], done[k]);
    (void)printf("\"sent_again\":%llu,\"bad\":%llu}\n", again, bad);
    for (unsigned i = 0; i < n; i++) {
        shut(&conn[i]);
        free(conn[i].out);
        free(conn[i].in);
    }
    for (size_t i = 0; i < n_cases; i++)
        json_decref(cases[i]);
    return bad ? 1 : 0;
}
