/* http/http.h - the HTTP program: sockets on one side, pipes to the engine on the other.
 *
 *   connection (libmicrohttpd's thread) --body whole--> frame out (writer's thread) --> engine
 *   engine --> frame in (main thread) --answer, or events of a stream--> connection
 *
 * main.c starts and ends it, connection.c has the requests, client.c the connections, reply.c the answers of this
 * program, out.c the writer.
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
    json_t     *root, *tokenizer; /* tokenizer: NULL, nothing is known */
    const char *host, *key;       /* key: NULL, none is needed */
    json_t     *models;           /* names */
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
/* What /metrics says of tokens from now on.  [any] */
void http_totals(const struct tsr_serve_totals *t);
/* Queues a stream of events, as read() gives them. */
enum MHD_Result http_reply_stream(struct MHD_Connection *c, MHD_ContentReaderCallback read,
                                  void *ctx);

/* ---- client.c: connections ------------------------------------------------ */

/* Held for moments only, by the threads of connections and of the engine's frames. */
extern pthread_mutex_t http_lock;

/* Of one connection: whether its client has work to do, and since when. */
struct http_client {
    struct http_client *next, **at;
    int                 socket;
    bool                waits; /* for the engine: no fault of the client's */
    double              since;
};
void http_on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
                        enum MHD_ConnectionNotificationCode what);
/* Its time begins again; k may be NULL.  Under the lock. */
void http_client_acts(struct http_client *k);
/* Shuts sockets whose client has sent or read nothing whole for the timeout. */
void     http_end_slow(void);
uint64_t http_connections(void); /* open ones */

/* ---- connection.c --------------------------------------------------------- */

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **request);
void            http_on_completed(void *cls, struct MHD_Connection *c, void **request,
                                  enum MHD_RequestTerminationCode why);
/* An event of the stream that is the answer, copied.  Unknown ids are fine. */
void http_event(uint64_t id, const char *text, size_t length);
/* The engine's answer, or the end of its stream: an error, or with length 0 the event that says that all has come.
 * Takes text.  Unknown ids are fine. */
void http_answer(uint64_t id, uint32_t status, char *text, size_t length);
/* No more requests: they get status 503. */
void http_refuse_all(void);
/* Ends requests whose client has closed its side of the connection. */
void http_end_gone(void);
/* Requests that the engine has not answered. */
uint64_t http_waiting(void);
/* Requests that are not answered to the last byte, waiting ones too. */
uint64_t http_in_work(void);
/* Every request that waits for the engine gets status 503: the engine is gone. */
void http_give_up(void);

#endif
