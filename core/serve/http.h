/* serve/http.h - the HTTP program `tessera-http`: start, messages, end.  The core opens no socket. */
#ifndef TSR_SERVE_HTTP_H
#define TSR_SERVE_HTTP_H

#include "base/err.h"
#include "serve/frame.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

struct tsr_serve_http_options {
    const char   *host;      /* an address of this machine, as numbers */
    uint32_t      port;      /* 0: one that is free */
    const char   *key;       /* requests must name it; NULL: none need */
    const json_t *models;    /* names that /v1/models lists, borrowed */
    json_t       *tokenizer; /* what /tokenizer_info says, borrowed; NULL: nothing */
    int64_t       created;
    uint64_t max_body, connections, requests; /* bytes; at once; requests that are not answered */
    double   timeout;                         /* s, of a client that neither sends nor reads */
};

struct tsr_serve_http {
    pid_t                   pid; /* 0: not running */
    int                     to, from;
    struct tsr_serve_frames in;
    char                    address[80]; /* that it listens at */
};

/* Starts the program that lies beside this one, and waits until it listens.  TSR_E_UNSUPPORTED: it is not installed;
 * TSR_E_INPUT: host, port or another option does not work, in the program's words.  [setup] */
tsr_status tsr_serve_http_start(struct tsr_serve_http *h, const struct tsr_serve_http_options *o,
                                struct tsr_err *err);
/* Closes the pipes, so that the program sends what it has and ends; waits for it, and kills it after `seconds`. */
void tsr_serve_http_end(struct tsr_serve_http *h, double seconds);
/* Sends a frame.  TSR_E_DEVICE: the program is gone. */
tsr_status tsr_serve_http_send(struct tsr_serve_http *h, const struct tsr_serve_frame *f,
                               struct tsr_err *err);
/* Reads what is there, at most waiting for wait_ms; *more: a frame is in *f.  Call it again while *more.
 * TSR_E_DEVICE: the program is gone. */
tsr_status tsr_serve_http_next(struct tsr_serve_http *h, int wait_ms, struct tsr_serve_frame *f,
                               bool *more, struct tsr_err *err);

#endif
