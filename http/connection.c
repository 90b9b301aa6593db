/* Requests: what is refused by its head, what goes to the engine, and when its answer goes out, whole or as a stream. */
#include "http.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct request {
    struct request        *next, **at;
    struct MHD_Connection *c;
    struct http_client    *client;
    int                    route; /* enum tsr_serve_route; -1: answered here */
    uint64_t               id;
    char                  *body;
    size_t                 n, cap;
    bool                   sent, suspended;
    bool                   open;   /* the engine owes the answer, or the rest of a stream */
    bool                   broken; /* the client is gone, or the rest cannot come */
    uint32_t               status; /* 0: no answer yet */
    bool                   stream;
    char  *text; /* the answer; of a stream what came and was not sent: taken to length */
    size_t taken, length, room;
};

static struct request *requests;
static uint64_t        in_work, waiting, next_id = 1;
static bool            refuse;

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
    (void)pthread_mutex_lock(&http_lock);
    bool full = refuse || waiting >= http_config.requests;
    if (!full) {
        r->id = next_id++;
        r->sent = r->suspended = r->open = true;
        waiting++;
        if (r->client)
            r->client->waits = true;
        MHD_suspend_connection(r->c);
    }
    (void)pthread_mutex_unlock(&http_lock);
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

/* What has come of a stream; the connection sleeps where nothing has. */
static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t most)
{
    struct request *r = cls;
    ssize_t         n = 0;
    (void)pos;
    (void)pthread_mutex_lock(&http_lock);
    if (r->broken) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (r->taken < r->length) {
        size_t some = r->length - r->taken < most ? r->length - r->taken : most;
        memcpy(to, r->text + r->taken, some);
        r->taken += some;
        n = (ssize_t)some;
        if (r->taken == r->length) {
            r->taken = r->length = 0;
            http_client_acts(r->client);
        }
    } else if (!r->open) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        r->suspended = true;
        if (r->client)
            r->client->waits = true;
        MHD_suspend_connection(r->c);
    }
    (void)pthread_mutex_unlock(&http_lock);
    return n;
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
    (void)pthread_mutex_lock(&http_lock);
    r->next = requests;
    r->at = &requests;
    if (requests)
        requests->at = &r->next;
    requests = r;
    in_work++;
    http_client_acts(r->client);
    (void)pthread_mutex_unlock(&http_lock);
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
    if (r->stream)
        return http_reply_stream(c, read_stream, r);
    if (r->broken && !refuse)
        return MHD_NO;
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
    (void)pthread_mutex_lock(&http_lock);
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
    in_work--;
    if (r->open) { /* the engine need not go on; before another request can take the place */
        (void)http_out(TSR_SERVE_GONE, r->id, 0, NULL, 0);
        waiting--;
    }
    http_client_acts(r->client);
    (void)pthread_mutex_unlock(&http_lock);
    free(r->body);
    free(r->text);
    free(r);
    *request = NULL;
}

/* ---- answers ------------------------------------------------------------- */

/* Under the lock, as the next ones. */
static void wake(struct request *r)
{
    if (!r->suspended)
        return;
    r->suspended = false;
    if (r->client)
        r->client->waits = false;
    http_client_acts(r->client);
    MHD_resume_connection(r->c);
}

static void close_request(struct request *r)
{
    r->open = false;
    waiting--;
}

static struct request *find(uint64_t id)
{
    struct request *r = requests;
    while (r && !(r->open && r->id == id))
        r = r->next;
    return r;
}

/* Server-sent events: a line of data, and an empty one. */
static void append_event(struct request *r, const char *text, size_t length)
{
    static const char head[] = "data: ", tail[] = "\n\n";
    size_t            n = sizeof head - 1 + length + sizeof tail - 1;
    if (!text || r->room - r->length < n) {
        size_t room = 2 * r->room + n;
        char  *v = text ? realloc(r->text, room) : NULL;
        if (!v) {
            r->broken = true; /* the client sees a stream without its end */
            return;
        }
        r->text = v;
        r->room = room;
    }
    char *p = r->text + r->length;
    memcpy(p, head, sizeof head - 1);
    memcpy(p + sizeof head - 1, text, length);
    memcpy(p + sizeof head - 1 + length, tail, sizeof tail - 1);
    r->length += n;
}

void http_event(uint64_t id, const char *text, size_t length)
{
    (void)pthread_mutex_lock(&http_lock);
    struct request *r = find(id);
    if (r) {
        r->stream = true;
        append_event(r, text, length);
        wake(r);
    }
    (void)pthread_mutex_unlock(&http_lock);
}

void http_answer(uint64_t id, uint32_t status, char *text, size_t length)
{
    static const char done[] = "[DONE]";
    (void)pthread_mutex_lock(&http_lock);
    struct request *r = find(id);
    if (r && r->stream) {
        append_event(r, length ? text : done, length ? length : sizeof done - 1);
    } else if (r) {
        r->status = status;
        r->text = text;
        r->length = length;
        text = NULL;
    }
    if (r) {
        close_request(r);
        wake(r);
    }
    (void)pthread_mutex_unlock(&http_lock);
    free(text);
}

void http_give_up(void)
{
    (void)pthread_mutex_lock(&http_lock);
    refuse = true;
    for (struct request *r = requests; r; r = r->next)
        if (r->open) {
            close_request(r);
            r->broken = true;
            wake(r);
        }
    (void)pthread_mutex_unlock(&http_lock);
}

void http_refuse_all(void)
{
    (void)pthread_mutex_lock(&http_lock);
    refuse = true;
    (void)pthread_mutex_unlock(&http_lock);
}

/* A client that has closed its side waits for nothing: libmicrohttpd does not look at connections that sleep. */
void http_end_gone(void)
{
    (void)pthread_mutex_lock(&http_lock);
    for (struct request *r = requests; r; r = r->next) {
        struct pollfd p = { .fd = r->client ? r->client->socket : -1, .events = POLLRDHUP };
        if (r->suspended && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
            r->broken = true;
            wake(r);
        }
    }
    (void)pthread_mutex_unlock(&http_lock);
}

uint64_t http_waiting(void)
{
    (void)pthread_mutex_lock(&http_lock);
    uint64_t n = waiting;
    (void)pthread_mutex_unlock(&http_lock);
    return n;
}

uint64_t http_in_work(void)
{
    (void)pthread_mutex_lock(&http_lock);
    uint64_t n = in_work;
    (void)pthread_mutex_unlock(&http_lock);
    return n;
}
