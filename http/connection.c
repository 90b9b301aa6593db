/* Requests: what is refused by its head, what goes to the engine, and when its answer goes out. */
#include "http.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Of one connection: whether its client has work to do, and since when. */
struct client {
    struct client *next, **at;
    int            socket;
    bool           waits; /* for the engine: no fault of the client's */
    double         since;
};

struct request {
    struct request        *next, **at;
    struct MHD_Connection *c;
    struct client         *client;
    int                    route; /* enum tsr_serve_route; -1: answered here */
    uint64_t               id;
    char                  *body;
    size_t                 n, cap;
    bool                   sent, suspended;
    uint32_t               status; /* 0: no answer yet */
    char                  *text;
    size_t                 length;
};

/* Held for moments only, by the threads of connections and of the engine's frames. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct request *requests;
static struct client  *clients;
static uint64_t        in_work, waiting, next_id = 1;
static bool            refuse;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- requests ------------------------------------------------------------- */

static int route_of(const char *url)
{
    static const char *const paths[TSR_SERVE_ROUTES] = { "/v1/completions", "/v1/chat/completions",
                                                         "/tokenize", "/detokenize" };
    for (int i = 0; i < TSR_SERVE_ROUTES; i++)
        if (strcmp(url, paths[i]) == 0)
            return i;
    return -1;
}

/* The time that it takes does not depend on where the texts differ. */
static bool has_key(struct MHD_Connection *c)
{
    static const char bearer[] = "Bearer ";
    const char       *given =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    unsigned char differs = 0;
    if (!http_config.key)
        return true;
    if (!given || strncmp(given, bearer, sizeof bearer - 1) != 0)
        return false;
    given += sizeof bearer - 1;
    size_t n = strlen(given), want = strlen(http_config.key);
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(given[i] ^ http_config.key[i < want ? i : 0]);
    return n == want && differs == 0;
}

/* Before the body: what is refused by its head.  true: an answer is queued, *done says whether that worked. */
static bool refused(struct request *r, const char *url, const char *method, enum MHD_Result *done)
{
    struct MHD_Connection *c = r->c;
    const char            *length =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    bool is_get = strcmp(method, "GET") == 0, is_post = strcmp(method, "POST") == 0;
    r->route = is_post ? route_of(url) : -1;
    if (strcmp(url, "/health") != 0 && !has_key(c))
        *done = http_refuse(c, 401, "invalid_api_key", "the request does not name the API key");
    else if (!is_get && !is_post)
        *done = http_refuse(c, 405, "method_not_allowed", "the method is neither GET nor POST");
    else if (is_get)
        *done = http_get(c, url);
    else if (r->route < 0)
        *done = http_refuse(c, 404, "not_found", "there is no such path");
    else if (length && strtoull(length, NULL, 10) > http_config.max_body)
        *done =
            http_refuse(c, 413, "body_too_long", "the body is longer than the limit (--max-body)");
    else
        return false;
    return true;
}

static bool take_body(struct request *r, const char *data, size_t n)
{
    if (n > http_config.max_body - r->n)
        return false;
    if (r->n + n > r->cap) {
        size_t cap = 2 * (r->n + n);
        char  *v = realloc(r->body, cap);
        if (!v)
            return false;
        r->body = v;
        r->cap = cap;
    }
    memcpy(r->body + r->n, data, n);
    r->n += n;
    return true;
}

/* To the engine; the connection sleeps until its answer. */
static enum MHD_Result send_on(struct request *r)
{
    (void)pthread_mutex_lock(&lock);
    bool full = refuse || waiting >= http_config.requests;
    if (!full) {
        r->id = next_id++;
        r->sent = r->suspended = true;
        waiting++;
        if (r->client)
            r->client->waits = true;
        MHD_suspend_connection(r->c);
    }
    (void)pthread_mutex_unlock(&lock);
    if (full)
        return http_refuse(r->c, 503, "overloaded",
                           refuse ? "the server ends" : "too many requests wait; try again");
    char  *body = r->body;
    size_t n = r->n;
    r->body = NULL;
    uint64_t id = r->id; /* r may be gone when the frame is out */
    if (!http_out(TSR_SERVE_REQUEST, id, (uint32_t)r->route, body, n))
        http_answer(id, 503, NULL, 0);
    return MHD_YES;
}

static struct request *new_request(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->c = c;
    r->client = info ? info->socket_context : NULL;
    (void)pthread_mutex_lock(&lock);
    r->next = requests;
    r->at = &requests;
    if (requests)
        requests->at = &r->next;
    requests = r;
    in_work++;
    if (r->client)
        r->client->since = now();
    (void)pthread_mutex_unlock(&lock);
    return r;
}

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **request)
{
    struct request *r = *request;
    enum MHD_Result done = MHD_YES;
    (void)cls;
    (void)version;
    if (!r) {
        r = *request = new_request(c);
        if (!r)
            return MHD_NO;
        (void)refused(r, url, method, &done);
        return done;
    }
    if (*upload_bytes) {
        size_t n = *upload_bytes;
        *upload_bytes = 0;
        /* a body of unknown length that turns out too long has no place for an answer */
        return take_body(r, upload, n) ? MHD_YES : MHD_NO;
    }
    if (!r->sent)
        return send_on(r);
    char *text = r->text;
    r->text = NULL;
    return text ? http_reply(c, r->status, text, r->length)
                : http_refuse(c, 503, "overloaded", "the server ends");
}

void http_on_completed(void *cls, struct MHD_Connection *c, void **request,
                       enum MHD_RequestTerminationCode why)
{
    struct request *r = *request;
    (void)cls;
    (void)c;
    (void)why;
    if (!r)
        return;
    (void)pthread_mutex_lock(&lock);
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
    in_work--;
    if (r->client)
        r->client->since = now();
    (void)pthread_mutex_unlock(&lock);
    free(r->body);
    free(r->text);
    free(r);
    *request = NULL;
}

/* Under the lock. */
static void wake(struct request *r, uint32_t status, char *text, size_t length)
{
    r->status = status;
    r->text = text;
    r->length = length;
    r->suspended = false;
    waiting--;
    if (r->client) {
        r->client->waits = false;
        r->client->since = now();
    }
    MHD_resume_connection(r->c);
}

void http_answer(uint64_t id, uint32_t status, char *text, size_t length)
{
    (void)pthread_mutex_lock(&lock);
    struct request *r = requests;
    while (r && !(r->suspended && r->id == id))
        r = r->next;
    if (r)
        wake(r, status, text, length);
    else
        free(text);
    (void)pthread_mutex_unlock(&lock);
}

void http_give_up(void)
{
    (void)pthread_mutex_lock(&lock);
    refuse = true;
    for (struct request *r = requests; r; r = r->next)
        if (r->suspended)
            wake(r, 503, NULL, 0);
    (void)pthread_mutex_unlock(&lock);
}

void http_refuse_all(void)
{
    (void)pthread_mutex_lock(&lock);
    refuse = true;
    (void)pthread_mutex_unlock(&lock);
}

void http_count(uint64_t *connections, uint64_t *now_waiting)
{
    *connections = 0;
    (void)pthread_mutex_lock(&lock);
    for (const struct client *k = clients; k; k = k->next)
        ++*connections;
    *now_waiting = waiting;
    (void)pthread_mutex_unlock(&lock);
}

uint64_t http_in_work(void)
{
    (void)pthread_mutex_lock(&lock);
    uint64_t n = in_work;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

/* ---- connections ---------------------------------------------------------- */

void http_on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
                        enum MHD_ConnectionNotificationCode what)
{
    struct client *k = *socket_context;
    (void)cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        k = info ? calloc(1, sizeof *k) : NULL;
        if (!k)
            return;
        k->socket = info->connect_fd;
        k->since = now();
        (void)pthread_mutex_lock(&lock);
        k->next = clients;
        k->at = &clients;
        if (clients)
            clients->at = &k->next;
        clients = k;
        (void)pthread_mutex_unlock(&lock);
        *socket_context = k;
    } else if (k) {
        (void)pthread_mutex_lock(&lock);
        *k->at = k->next;
        if (k->next)
            k->next->at = k->at;
        (void)pthread_mutex_unlock(&lock);
        free(k);
        *socket_context = NULL;
    }
}

void http_end_slow(void)
{
    double t = now();
    (void)pthread_mutex_lock(&lock);
    for (const struct client *k = clients; k; k = k->next)
        if (!k->waits && t - k->since > http_config.timeout)
            (void)shutdown(k->socket, SHUT_RDWR);
    (void)pthread_mutex_unlock(&lock);
}
