/* engine/serve_internal.h - what serve.c and serve_request.c share: one request in its slot. */
#ifndef TSR_ENGINE_SERVE_INTERNAL_H
#define TSR_ENGINE_SERVE_INTERNAL_H

#include "engine/serve.h"

struct tsr_engine_serve_slot {
    bool                            used;
    bool                            fresh; /* nothing of it is in the cache */
    bool                            alone; /* its prompt runs in a separate batch */
    bool                            cancelled;
    struct tsr_engine_serve_request q;    /* prompt is in ids; stop points to ours */
    struct tsr_tokenizer_ids        ids;  /* prompt, then new tokens */
    struct tsr_tokenizer_text       stop; /* the stop strings, one after the other */
    uint64_t                       *stop_bytes;
    uint64_t                        longest_stop;
    struct tsr_detok               *detok;
    struct tsr_tokenizer_text       text;
    struct tsr_engine_logprob      *logprobs; /* per token: its own, then the best */
    uint64_t                        cap_logprobs;
    enum tsr_finish                 finish;
    tsr_status                      status;
    char                           *error;
};

/* An empty slot takes a request; on an error it is freed by the caller. */
tsr_status tsr_engine_slot_fill(struct tsr_engine_serve_slot          *s,
                                const struct tsr_engine_serve_request *q, struct tsr_err *err);
void       tsr_engine_slot_free(struct tsr_engine_serve_slot *s);
void       tsr_engine_slot_fail(struct tsr_engine_serve_slot *s, tsr_status st, const char *why);
void       tsr_engine_slot_result(struct tsr_engine_serve_slot *s, struct tsr_engine_served *r);
/* The next token from logits [vocab]; *over: the request is done. */
tsr_status tsr_engine_slot_advance(struct tsr_engine_serve_slot *s, const struct tsr_engine_pass *p,
                                   const struct tsr_engine_serve_events *ev, const float *logits,
                                   void *scratch, bool *over, struct tsr_err *err);

#endif
