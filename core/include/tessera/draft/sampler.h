/* tessera/draft/sampler.h - sampler: changes the logits of the next token, or chooses the token.  The component kind is
 * "tessera.sampler/1".  Draft: it may change until it leaves this folder.
 *
 * The plugin implements struct tsr_sampler_v1.  A request has a list of samplers, and the host's own draw (temperature,
 * top-k, top-p, min-p, repetition penalty) is the last of each list, through the same table.  One instance serves many
 * requests at once.  What a request adds to it is its state: bytes that the host owns, copies and keeps.
 *
 *   create -> [tokens] -> sizes -> for each request: start, then for each token: sample, accept -> destroy
 *
 * Example: sample() of a sampler whose state is the last token, which does not come again at once.
 *
 *     #include <math.h>
 *     static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
 *                              struct tsr_err *err)
 *     {
 *         const uint32_t *last = (const uint32_t *)job->state;
 *         (void)self;
 *         (void)token;
 *         (void)err;
 *         if (*last < job->vocab)
 *             job->logits[*last] = -INFINITY;
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_DRAFT_SAMPLER_H
#define TSR_DRAFT_SAMPLER_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_SAMPLER "tessera.sampler/1"

/* Bits of tsr_sampler_v1.needs. */
#define TSR_SAMPLER_TOKENS (UINT64_C(1) << 0) /* tokens() is called before anything else */

/* Answers of sample() that are no token. */
#define TSR_SAMPLER_NONE UINT32_C(0xffffffff) /* the next sampler of the list decides        */
#define TSR_SAMPLER_END  UINT32_C(0xfffffffe) /* the text is complete and the request is over */

/* What every token adds to a text.  A special token and an id without a token add no bytes. */
struct tsr_sampler_tokens {
    uint32_t        struct_size;
    uint32_t        reserved; /* zero                                              */
    uint64_t        vocab;    /* token ids are below this                          */
    const char     *bytes;    /* the texts, one after the other, without NUL       */
    const uint64_t *start;    /* [vocab + 1] where the text of an id begins        */
    const uint8_t  *ends;     /* [vocab] 1: an end-of-sequence token, 0: any other */
};

struct tsr_sampler_sizes {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t state_bytes;   /* of one request                   */
    uint64_t scratch_bytes; /* of one sample(); content is lost */
};

/* The next token of one request.  The caller owns every buffer.  logits, state and scratch begin at multiples of 16. */
struct tsr_sampler_job {
    uint32_t        struct_size;
    uint32_t        reserved; /* zero                                                    */
    uint64_t        vocab;
    float          *logits;  /* [vocab] in and out; -INFINITY: not this token           */
    const uint32_t *history; /* [n_history] the prompt, then the new tokens             */
    uint64_t        n_prompt, n_history;
    uint64_t        seed,
        record; /* of the request: of its random numbers, and its place among others with the seed */
    double uniform; /* in [0, 1), a function of seed, record and the new tokens so far  */
    void  *state;   /* of start(), after accept() of every new token                    */
    void  *scratch;
};

struct tsr_sampler_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t needs; /* TSR_SAMPLER_* */

    /* opts: the option struct of the component, already checked.  destroy() accepts NULL.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* May be NULL without TSR_SAMPLER_TOKENS.  Called once, after create().  t lives until destroy().  [setup] */
    tsr_status (*tokens)(void *self, const struct tsr_sampler_tokens *t, struct tsr_err *err);

    /* Bytes for a vocabulary.  The caller zeroes s and sets struct_size.  A function of the options, the tokens and
     * vocab.  [any] */
    tsr_status (*sizes)(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err);

    /* The state before the first token: writes every one of state_bytes bytes.  A state holds no pointer: the host may
     * copy it, save it and use it with another instance of the same options and tokens, in another process too.  [any] */
    tsr_status (*start)(const void *self, void *state, struct tsr_err *err);

    /* *token is TSR_SAMPLER_NONE before the call.  The function may lower logits to -INFINITY or change them, never to NaN
     * or INFINITY; or it sets *token to an id whose logit is not -INFINITY, or to TSR_SAMPLER_END.  It does not change the
     * state, and its result is a function of the job: equal each time, on each thread.
     * TSR_E_NUMERIC: no token can follow, with the reason; the request fails alone.  [any] */
    tsr_status (*sample)(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err);

    /* The request goes on with this token, whoever chose it: changes the state.  [any] */
    tsr_status (*accept)(const void *self, void *state, uint32_t token, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif
