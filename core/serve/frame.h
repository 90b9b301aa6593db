/* serve/frame.h - what the engine and the HTTP program tell each other, through two pipes.
 *
 *   head {magic, kind, id, status, length} | payload [length]
 *
 * Both ends are programs of one build on one machine.  This pair of files needs the C library alone, since the
 * HTTP program has no other part of the core.
 */
#ifndef TSR_SERVE_FRAME_H
#define TSR_SERVE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tsr_serve_frame_kind {
    /* to the HTTP program */
    TSR_SERVE_CONFIG = 1, /* payload: JSON, see http.h */
    TSR_SERVE_ANSWER, /* to request `id`: HTTP status, JSON.  It ends a stream: without a payload all has come,
                           * else the payload is an error */
    TSR_SERVE_EVENT,  /* of the stream that answers request `id`: JSON */
    TSR_SERVE_TOTALS, /* payload: struct tsr_serve_totals */
    TSR_SERVE_STOP,   /* take no more requests */
    /* from it */
    TSR_SERVE_LISTENING, /* payload: "127.0.0.1:8080" */
    TSR_SERVE_FAILED,    /* payload: a sentence; it ends */
    TSR_SERVE_REQUEST,   /* status: enum tsr_serve_route; payload: the body */
    TSR_SERVE_GONE,      /* nobody waits for the answer to request `id` any more */
    TSR_SERVE_STOPPED,   /* no request follows */
};
enum tsr_serve_route {
    TSR_SERVE_COMPLETIONS,
    TSR_SERVE_CHAT,
    TSR_SERVE_TOKENIZE,
    TSR_SERVE_DETOKENIZE,
    TSR_SERVE_ROUTES
};
#define TSR_SERVE_BODY_MOST (16u << 20) /* of a request: that of a line of a batch */

/* Tokens since the start: of prompts, each once; of answers, also of those that nobody got; of prompts that were in
 * the cache, once for each choice; of drafts, and those of them that were right. */
struct tsr_serve_totals {
    uint64_t prompt, generated, reused, drafted, accepted;
};

struct tsr_serve_frame {
    uint32_t    magic, kind;
    uint64_t    id;
    uint32_t    status, length;
    const char *payload; /* [length] */
};

/* Writes all of it; 0 or an errno.  A descriptor that does not block: ETIMEDOUT where nobody reads for 30 s.  One
 * thread at a time. */
int tsr_serve_frame_write(int fd, const struct tsr_serve_frame *f);

struct tsr_serve_frames {
    char  *v;
    size_t n, cap, used; /* used: of frames that were taken */
};
/* Reads what is there into *in: 0; EAGAIN: nothing is, EPIPE: the end, ENOMEM, or another errno. */
int tsr_serve_frames_fill(struct tsr_serve_frames *in, int fd);
/* The next whole frame; its payload is valid until the next fill().  *wrong: the bytes are no frame. */
bool tsr_serve_frames_next(struct tsr_serve_frames *in, struct tsr_serve_frame *f, bool *wrong);
void tsr_serve_frames_free(struct tsr_serve_frames *in);

#endif
