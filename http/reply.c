/* Answers of this program: errors, the model, health, metrics. */
#include "http.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUSES     600
#define STREAM_BYTES 4096 /* of a stream that go out at once, at most */
static _Atomic unsigned long long answered[STATUSES];
static _Atomic uint64_t           prompt_tokens, generated_tokens, reused_tokens, drafted_tokens,
    accepted_tokens;

static enum MHD_Result reply_as(struct MHD_Connection *c, uint32_t status, const char *type,
                                char *text, size_t length)
{
    if (!text)
        return MHD_NO;
    struct MHD_Response *r = MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == 503)
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == 401)
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 405)
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, POST");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    (void)atomic_fetch_add(&answered[status < STATUSES ? status : 0], 1);
    return done;
}

enum MHD_Result http_reply(struct MHD_Connection *c, uint32_t status, char *text, size_t length)
{
    return reply_as(c, status, "application/json", text, length);
}

enum MHD_Result http_reply_stream(struct MHD_Connection *c, MHD_ContentReaderCallback read,
                                  void *ctx)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, read, ctx, NULL);
    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    enum MHD_Result done = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    (void)atomic_fetch_add(&answered[200], 1);
    return done;
}

static enum MHD_Result reply_json(struct MHD_Connection *c, uint32_t status, json_t *j)
{
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return http_reply(c, status, text, text ? strlen(text) : 0);
}

enum MHD_Result http_refuse(struct MHD_Connection *c, uint32_t status, const char *code,
                            const char *message)
{
    return reply_json(c, status,
                      json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", message, "type",
                                status < 500 ? "invalid_request_error" : "server_error", "param",
                                "code", code));
}

static json_t *model_json(const json_t *name)
{
    return json_pack("{s:O, s:s, s:I, s:s}", "id", name, "object", "model", "created",
                     (json_int_t)http_config.created, "owned_by", "tessera");
}

/* One of the models, or all of them. */
static enum MHD_Result models(struct MHD_Connection *c, const char *one)
{
    json_t       *list = json_array();
    const json_t *name;
    size_t        i;
    json_array_foreach (http_config.models, i, name)
        if (one && strcmp(json_string_value(name), one) == 0) {
            json_decref(list);
            return reply_json(c, 200, model_json(name));
        } else if (!one && json_array_append_new(list, model_json(name)) != 0) {
            json_decref(list);
            return MHD_NO;
        }
    if (!one)
        return reply_json(c, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
    json_decref(list);
    return http_refuse(c, 404, "model_not_found", "there is no such model");
}

static enum MHD_Result health(struct MHD_Connection *c)
{
    return reply_json(c, 200,
                      json_pack("{s:s, s:I}", "status", "ok", "in_work",
                                (json_int_t)http_waiting()));
}

void http_totals(const struct tsr_serve_totals *t)
{
    atomic_store(&prompt_tokens, t->prompt);
    atomic_store(&generated_tokens, t->generated);
    atomic_store(&reused_tokens, t->reused);
    atomic_store(&drafted_tokens, t->drafted);
    atomic_store(&accepted_tokens, t->accepted);
}

static void put_counter(FILE *f, const char *name, const char *help, uint64_t n)
{
    (void)fprintf(f, "# HELP %s %s\n# TYPE %s counter\n%s %llu\n", name, help, name, name,
                  (unsigned long long)n);
}

/* In the text format of Prometheus. */
static enum MHD_Result metrics(struct MHD_Connection *c)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *f = open_memstream(&text, &n);
    if (!f)
        return MHD_NO;
    (void)fputs("# HELP tessera_http_answers_total Answers by status.\n"
                "# TYPE tessera_http_answers_total counter\n",
                f);
    for (unsigned i = 0; i < STATUSES; i++) {
        unsigned long long some = atomic_load(&answered[i]);
        if (some)
            (void)fprintf(f, "tessera_http_answers_total{status=\"%u\"} %llu\n", i, some);
    }
    (void)fprintf(f,
                  "# HELP tessera_http_requests_waiting Requests that wait for the model.\n"
                  "# TYPE tessera_http_requests_waiting gauge\n"
                  "tessera_http_requests_waiting %llu\n"
                  "# HELP tessera_http_connections Open connections.\n"
                  "# TYPE tessera_http_connections gauge\n"
                  "tessera_http_connections %llu\n",
                  (unsigned long long)http_waiting(), (unsigned long long)http_connections());
    put_counter(f, "tessera_prompt_tokens_total", "Tokens of prompts.",
                atomic_load(&prompt_tokens));
    put_counter(f, "tessera_generated_tokens_total", "New tokens.", atomic_load(&generated_tokens));
    put_counter(f, "tessera_reused_tokens_total",
                "Tokens of prompts that were in the cache of keys and values.",
                atomic_load(&reused_tokens));
    put_counter(f, "tessera_drafted_tokens_total", "Tokens of drafts that ran.",
                atomic_load(&drafted_tokens));
    put_counter(f, "tessera_accepted_tokens_total", "Tokens of drafts that were right.",
                atomic_load(&accepted_tokens));
    if (fclose(f) != 0) {
        free(text);
        return MHD_NO;
    }
    return reply_as(c, 200, "text/plain; version=0.0.4", text, n);
}

enum MHD_Result http_get(struct MHD_Connection *c, const char *url)
{
    static const char path[] = "/v1/models";
    if (strcmp(url, "/health") == 0)
        return health(c);
    if (strcmp(url, "/metrics") == 0)
        return metrics(c);
    if (strcmp(url, "/tokenizer_info") == 0 && http_config.tokenizer)
        return reply_json(c, 200, json_incref(http_config.tokenizer));
    if (strcmp(url, path) == 0)
        return models(c, NULL);
    if (strncmp(url, path, sizeof path - 1) == 0 && url[sizeof path - 1] == '/')
        return models(c, url + sizeof path);
    return http_refuse(c, 404, "not_found", "there is no such path");
}
