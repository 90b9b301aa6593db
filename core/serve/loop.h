/* serve/loop.h - requests of the HTTP program through a model, until a signal ends it.
 *
 *   frame -> parse -> fan of choices -> slots of the server -> answer -> frame
 *
 * One thread: between two steps of the models the loop takes what has come.  An answer is that of a batch to the same
 * body, whatever else runs; a request without a seed is that of a batch's first line.
 */
#ifndef TSR_SERVE_LOOP_H
#define TSR_SERVE_LOOP_H

#include "batch/fan.h"
#include "serve/http.h"

struct tsr_serve_model {
    const char            *name;
    struct tsr_engine_pass pass;
    uint64_t               context;
};
struct tsr_serve_loop {
    struct tsr_serve_http            *http;
    const struct tsr_serve_model     *models;   /* [n_models], of one tokenizer */
    uint32_t                          n_models; /* 1: it answers whatever "model" a request names */
    struct tsr_batch_request_defaults defaults; /* pass and context are set from models */
    struct tsr_batch_answer_ids       ids;      /* model is set from models */
    uint64_t                          requests; /* at most so many at once, waiting ones too */
    uint64_t                          deadline_us; /* of a request; 0: none */
    uint64_t                          drain_us;    /* after the first signal */
};
struct tsr_serve_counts {
    uint64_t                  requests, errors, gone; /* gone: the client left before its answer */
    uint64_t                  prompt_tokens, new_tokens; /* of answers */
    struct tsr_engine_drafted drafts;
};

/* Returns after tsr_plugin_cancel(), which a signal calls: requests that have come are answered, for drain_us at
 * most.  [worker] */
tsr_status tsr_serve_loop_run(const struct tsr_serve_loop *l, struct tsr_serve_counts *n,
                              struct tsr_err *err);

/* reply.c: what an error is called, and /tokenize and /detokenize; new references, NULL without memory. */
json_t  *tsr_serve_error(const char *code, const char *message);
uint32_t tsr_serve_status(const char *code);
/* The answer, or an error with its *status. */
json_t *tsr_serve_tokenize(const struct tsr_batch_request_defaults *d, const char *body,
                           uint64_t len, uint32_t *status);
json_t *tsr_serve_detokenize(const struct tsr_batch_request_defaults *d, const char *body,
                             uint64_t len, uint32_t *status);

#endif
