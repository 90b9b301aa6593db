/* http/http.h - the HTTP program: sockets on one side, pipes to the engine on the other.
 *
 *   connection (libmicrohttpd's thread) --body whole--> frame out (writer's thread) --> engine
 *   engine --> frame in (main thread) --answer--> connection
 *
 * main.c starts and ends it, connection.c has the requests, reply.c the answers of this program, out.c the writer.
 */
#ifndef TSR_HTTP_H
#define TSR_HTTP_H

#include "serve/frame.h"

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>

/* What the engine told at the start; constant afterwards. */
struct http_config {
    json_t     *root;
    const char *host, *key, *model; /* key: NULL, none is needed */
    long long   created;
    unsigned    port, connections;
    uint64_t    max_body, requests;
    double      timeout;
};
extern struct http_config http_config;

/* ---- out.c: frames to the engine ------------------------------------------ */

/* Puts a frame behind those that wait, with a copy of nothing: takes payload, which free() frees.  False: no memory.
 * [any] */
bool http_out(uint32_t kind, uint64_t id, uint32_t status, char *payload, size_t length);
/* Writes until http_out_end(): all that was put. */
bool http_out_start(void);
void http_out_end(void);

/* ---- reply.c -------------------------------------------------------------- */

/* Queues an answer.  Takes text; NULL: no memory, and the connection ends. */
enum MHD_Result http_reply(struct MHD_Connection *c, uint32_t status, char *text, size_t length);
enum MHD_Result http_refuse(struct MHD_Connection *c, uint32_t status, const char *code,
                            const char *message);
enum MHD_Result http_get(struct MHD_Connection *c, const char *url);

/* ---- connection.c --------------------------------------------------------- */

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **request);
void            http_on_completed(void *cls, struct MHD_Connection *c, void **request,
                                  enum MHD_RequestTerminationCode why);
void            http_on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
                                   enum MHD_ConnectionNotificationCode what);
/* The engine's answer.  Takes text.  Unknown ids are fine. */
void http_answer(uint64_t id, uint32_t status, char *text, size_t length);
/* No more requests: they get status 503. */
void http_refuse_all(void);
/* Shuts sockets whose client has sent or read nothing whole for the timeout. */
void http_end_slow(void);
/* Open connections, and requests that wait for the engine. */
void http_count(uint64_t *connections, uint64_t *now_waiting);
/* Requests that are not answered to the last byte, waiting ones too. */
uint64_t http_in_work(void);
/* Every request that waits for the engine gets status 503: the engine is gone. */
void http_give_up(void);

#endif
