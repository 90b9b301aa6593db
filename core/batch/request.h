/* batch/request.h - one line of a batch as a request for the server.
 *
 *   {"custom_id": "a", "method": "POST", "url": "/v1/completions" or "/v1/chat/completions",
 *    "body": {"prompt": ... or "messages": [...], "max_tokens": ..., ...}}
 *
 * docs/guide/batches.md lists the keys of the body.  A key that is not known, or asks for what cannot be
 * done, is an error of that line and never passed over.
 */
#ifndef TSR_BATCH_REQUEST_H
#define TSR_BATCH_REQUEST_H

#include "batch/prompt.h"
#include "engine/sampler.h"
#include "engine/serve.h"
#include "tokenizer/chat.h"

#include <jansson.h>

/* What all lines share. */
struct tsr_batch_request_defaults {
    uint64_t                         max_tokens;
    struct tsr_engine_sampling       sampling; /* seed: of records without their own */
    struct tsr_engine_samplers      *samplers; /* of every request, before its draw; NULL: none */
    struct tsr_engine_sampler_maker *maker;    /* for "response_format"; NULL: it is refused */
    uint32_t                         draft; /* of every request, as of tsr_engine_serve_request */
    bool                             allow_special, ignore_eos;
    bool                             streams; /* "stream": true is possible */
    uint64_t                         context;
    const struct tsr_tokenizer      *tokenizer; /* NULL: prompts are lists of ids */
    const struct tsr_chat           *chat;      /* NULL: chat lines are refused with why_no_chat */
    const char                      *why_no_chat;
    const struct tsr_engine_pass    *pass; /* NULL: limits of the model are not checked */
};

#define TSR_MAX_STOPS 16u
/* Log-probabilities that an answer can have, alternatives included: bounds its memory. */
#define TSR_BATCH_LOGPROBS_MOST (UINT64_C(1) << 22)

/* Its choices: n of the first prompt, n of the second, ... */
struct tsr_batch_request {
    json_t                         *root;
    const char                     *custom_id, *model; /* in root, or NULL */
    bool                            chat;
    bool                            seeded;               /* the request has a "seed" */
    bool                            stream, stream_usage; /* the answer in pieces; its usage too */
    struct tsr_batch_prompts        prompts;
    uint32_t                        n; /* choices of each prompt */
    const char                     *stop[TSR_MAX_STOPS];
    uint64_t                        stop_bytes[TSR_MAX_STOPS];
    struct tsr_engine_serve_request q;    /* of choice 0, all but id; points into this struct */
    const char                     *code; /* of the error: "invalid_request", ... */
};

/* line_number: index of the random stream for records without a seed, from 0.  An error caused by
 * the line itself sets r->code; on any other error the run cannot continue.  The caller frees r in
 * any case. */
tsr_status tsr_batch_request_parse(struct tsr_batch_request *r, const char *line, uint64_t len,
                                   uint64_t line_number, const struct tsr_batch_request_defaults *d,
                                   struct tsr_err *err);
/* The body of a request alone, as a server gets it: that of the first line of a batch, with the same errors.
 * chat: of /v1/chat/completions. */
tsr_status tsr_batch_request_parse_body(struct tsr_batch_request *r, const char *body, uint64_t len,
                                        bool chat, const struct tsr_batch_request_defaults *d,
                                        struct tsr_err *err);
void       tsr_batch_request_free(struct tsr_batch_request *r);
/* Choices of the answer, from 1. */
uint32_t tsr_batch_request_choices(const struct tsr_batch_request *r);
/* What the server does for one of them, all but id; points into r.  With a seed, choice k of a prompt is what the
 * prompt alone gives to seed + k; without, each choice has a random stream of its own. */
struct tsr_engine_serve_request tsr_batch_request_choice(const struct tsr_batch_request *r,
                                                         uint32_t                        choice);

/* Ids of an output line: they follow from `base`, a hash of the job, so that they repeat. */
struct tsr_batch_answer_ids {
    const char *base;
    const char *model;   /* for requests that name none */
    int64_t     created; /* 0: it follows from base too, so that it repeats */
};
/* One choice of an answer, from what the server gave for tsr_batch_request_choice(); a new reference, NULL
 * without memory.  t: as of the request, may be NULL. */
json_t *tsr_batch_answer_choice(const struct tsr_batch_request *q, uint32_t choice,
                                const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                                struct tsr_err *err);
/* "body" of an answer: the JSON that a server sends; a new reference, NULL without memory.  choices, new_tokens: as of
 * the line. */
json_t *tsr_batch_answer_body(const struct tsr_batch_answer_ids *ids, uint64_t number,
                              const struct tsr_batch_request *q, json_t *choices,
                              uint64_t new_tokens);
/* The JSON of an event of a stream: one part of one choice (batch/part.h), whose reference is taken; or, choice NULL, the
 * usage of the whole answer.  A new reference, NULL without memory. */
json_t *tsr_batch_answer_event(const struct tsr_batch_answer_ids *ids, uint64_t number,
                               const struct tsr_batch_request *q, json_t *choice,
                               uint64_t new_tokens);
/* The output line of a finished request, without newline, appended to out.  number: from 0.  choices: a list of
 * all of them in order, whose reference is taken; new_tokens: of all of them. */
tsr_status tsr_batch_answer_line(const struct tsr_batch_answer_ids *ids, uint64_t number,
                                 const struct tsr_batch_request *q, json_t *choices,
                                 uint64_t new_tokens, struct tsr_tokenizer_text *out,
                                 struct tsr_err *err);
/* The error line of a failed record; custom_id may be NULL. */
tsr_status tsr_batch_answer_error(const struct tsr_batch_answer_ids *ids, uint64_t number,
                                  const char *custom_id, const char *code, const char *message,
                                  struct tsr_tokenizer_text *out, struct tsr_err *err);

/* What a journal line must contain for its record; a NULL field: unknown, or not checked. */
struct tsr_batch_answer_expect {
    const struct tsr_batch_answer_ids *ids; /* and number, from 0: for "id" */
    uint64_t                           number;
    bool        has_request; /* custom_id is what its request says; NULL: nothing */
    const char *custom_id;
    uint32_t    choices; /* of an answer that is no error; 0: at least one */
};
/* Checks that a line has the form that tsr_batch_answer_line(), or with `error` tsr_batch_answer_error(),
 * writes for a record: one line, one JSON object, its members and their types, its ids.  TSR_E_INPUT gives the
 * actual and the expected value.  [any] */
tsr_status tsr_batch_answer_check(const char *line, uint64_t len, bool error,
                                  const struct tsr_batch_answer_expect *x, struct tsr_err *err);
/* "batch_req_0123456789abcdef" of a job and a record. */
void tsr_batch_answer_id(const struct tsr_batch_answer_ids *ids, const char *prefix,
                         uint64_t number, char text[64]);

#endif
