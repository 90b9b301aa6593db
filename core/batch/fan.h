/* batch/fan.h - requests with several choices through the slots of a server.
 *
 *   place -> a parsed request -> begin -> its choices into free slots, request by request -> ended
 *
 * One choice is one request of the server.  The fan is the ctx of the server's events.  One thread.
 */
#ifndef TSR_BATCH_FAN_H
#define TSR_BATCH_FAN_H

#include "batch/part.h"

/* A request in work.  The server's id of a choice is the place times 2^32 plus the choice. */
struct tsr_batch_taken {
    bool                     busy, begun; /* begun: it has a token */
    bool                     late;        /* beyond its deadline */
    bool                     gone;        /* nobody waits for it any more */
    uint64_t                 index;       /* the caller's; requests of lower ones go first */
    uint64_t                 since_us;    /* when its first choice began; 0: it waits for others */
    struct tsr_batch_request request;
    uint32_t    choices, next, open; /* all, the first not in the server yet, in the server */
    uint32_t    failed;              /* the first choice that failed, or choices */
    const char *code;                /* why it failed: "not_finite", ... */
    char       *why;                 /* NULL: no memory for it */
    json_t     *answer;              /* [choices], null where there is none yet; NULL of a stream */
    struct tsr_batch_part *parts;    /* [choices] of a stream; or NULL */
    uint64_t               new_tokens;
};

struct tsr_batch_fan {
    struct tsr_server *server;
    struct tsr_batch_taken
            *taken; /* [places]; freed by the caller, each by tsr_batch_taken_free() */
    uint32_t places;
    uint64_t deadline_us;                  /* of a request; 0: none */
    const struct tsr_tokenizer *tokenizer; /* may be NULL */
    void                       *ctx;
    /* A request has its first token, or ended without one.  May be NULL. */
    void (*begun)(void *ctx, const struct tsr_batch_taken *t);
    void (*token)(void *ctx); /* any token; may be NULL */
    /* A choice of a stream has grown, or is over; takes delta (batch/part.h). */
    tsr_status (*grown)(void *ctx, const struct tsr_batch_taken *t, json_t *delta,
                        struct tsr_err *err);
    /* All choices are over: t is gone, late or has failed, or has its answer, which may be taken from it, or all its
     * parts were given.  t is freed afterwards. */
    tsr_status (*ended)(void *ctx, struct tsr_batch_taken *t, struct tsr_err *err);
};

/* A place that is free; NULL: none. */
struct tsr_batch_taken *tsr_batch_fan_place(const struct tsr_batch_fan *f);
/* t->request is parsed.  It may end within the call. */
tsr_status tsr_batch_fan_begin(struct tsr_batch_fan *f, struct tsr_batch_taken *t, uint64_t index,
                               struct tsr_err *err);
/* Choices that wait go into free slots. */
tsr_status tsr_batch_fan_feed(struct tsr_batch_fan *f, struct tsr_err *err);
bool       tsr_batch_fan_waits(const struct tsr_batch_fan *f); /* a choice has no slot yet */
/* Ends requests beyond their deadline. */
tsr_status tsr_batch_fan_end_late(struct tsr_batch_fan *f, struct tsr_err *err);
/* Ends a request before its answer is there.  It ends within the call, or within the next step. */
tsr_status tsr_batch_fan_leave(struct tsr_batch_fan *f, struct tsr_batch_taken *t,
                               struct tsr_err *err);
uint64_t   tsr_batch_fan_oldest_us(const struct tsr_batch_fan *f); /* since_us; 0: none */
void       tsr_batch_taken_free(struct tsr_batch_taken *t);
/* Events of the server; ctx: the fan. */
tsr_status tsr_batch_fan_on_token(void *ctx, uint64_t id, uint32_t token);
tsr_status tsr_batch_fan_on_grown(void *ctx, const struct tsr_engine_served *s,
                                  struct tsr_err *err);
tsr_status tsr_batch_fan_on_done(void *ctx, const struct tsr_engine_served *s, struct tsr_err *err);

#endif
