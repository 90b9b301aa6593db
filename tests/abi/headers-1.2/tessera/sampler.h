/* tessera/sampler.h - sampler: changes the logits of the next token, or chooses the token.  The component kind is
 * "tessera.sampler/1".
 *
 * The plugin implements struct tsr_sampler_v1.  A request has a list of samplers, and the host's own draw (temperature,
 * top-k, top-p, min-p, repetition penalty) is the last of each list, through the same table.  One instance serves many
 * requests at once.  What a request adds to it is its state: bytes that the host owns, copies and keeps.
 *
 *   create -> [tokens] -> sizes -> for each request: start, then for each token: sample, accept -> destroy
 *
 * The calls for one state come one after the other.  A resumed job makes them again from start(), with the same results.
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
#ifndef TSR_SAMPLER_H
#define TSR_SAMPLER_H

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

/* Buffers of the host, at multiples of 16 bytes.  What has 0 bytes may be NULL. */
struct tsr_sampler_sizes {
    uint32_t struct_size;
    uint32_t reserved;      /* zero                                           */
    uint64_t state_bytes;   /* of one request, at most 2^28                   */
    uint64_t scratch_bytes; /* of one sample(), at most 2^28; content is lost */
};

/* A request before its first token.  Borrowed for the call of start(). */
struct tsr_sampler_request {
    uint32_t        struct_size;
    uint32_t        reserved; /* zero                                                    */
    uint64_t        vocab;    /* that sizes() got                                        */
    const uint32_t *prompt;   /* [n_prompt], ids below vocab                             */
    uint64_t        n_prompt; /* may be 0                                                */
    uint64_t        seed;     /* of the random numbers                                   */
    uint64_t        record;   /* the place among requests with this seed                 */
};

/* The next token of one request.  Borrowed for the call of sample(). */
struct tsr_sampler_job {
    uint32_t        struct_size;
    uint32_t        reserved; /* zero                                                    */
    uint64_t        vocab;
    float          *logits;  /* [vocab] in and out: finite, or -INFINITY: not this token;
                             * one at least is finite                                   */
    const uint32_t *history; /* [n_history] the prompt, then the new tokens              */
    uint64_t        n_prompt, n_history;
    uint64_t        seed, record; /* as in the request                                   */
    double          uniform;      /* in [0, 1), a function of seed, record and
                                   * n_history - n_prompt                               */
    void           *state;        /* of start(), after accept() of every new token            */
    void           *scratch;      /* uninitialised                                            */
};

struct tsr_sampler_v1 {
    uint32_t struct_size;
    uint32_t reserved; /* zero */
    uint64_t needs;    /* TSR_SAMPLER_* */

    /* opts: the option struct of the component, already checked.  destroy() accepts NULL.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* May be NULL without TSR_SAMPLER_TOKENS.  Called once, after create().  t lives until destroy().
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_UNSUPPORTED with the reason, TSR_E_NOMEM.  [setup] */
    tsr_status (*tokens)(void *self, const struct tsr_sampler_tokens *t, struct tsr_err *err);

    /* Bytes for a vocabulary.  The caller zeroes s and sets struct_size.  A function of the options, the tokens and
     * vocab.  Returns TSR_OK, TSR_E_UNSUPPORTED with the reason.  [any] */
    tsr_status (*sizes)(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err);

    /* The state before the first token, a function of the request: writes every one of state_bytes bytes.  A state holds
     * no pointer: the host may copy it, save it and use it with another instance of the same options and tokens, in
     * another process of this machine too.  A failure ends the step of the job; where no token can follow, sample()
     * says so.  Returns TSR_OK.  [any] */
    tsr_status (*start)(const void *self, const struct tsr_sampler_request *request, void *state,
                        struct tsr_err *err);

    /* *token is TSR_SAMPLER_NONE before the call.  The function may change finite logits, also to -INFINITY, never to NaN
     * or INFINITY, and it leaves those of -INFINITY.  Or it sets *token to an id whose logit is not -INFINITY, or to
     * TSR_SAMPLER_END; the logits have no meaning then.  It does not change the state, and its result is a function of
     * the job: equal each time, on each thread.
     * Returns TSR_OK, or TSR_E_NUMERIC: no token can follow, with the reason; the request fails alone.  [any] */
    tsr_status (*sample)(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err);

    /* The request goes on with this token, below vocab, whoever chose it: changes the state.  An end-of-sequence token that
     * ends the request does not come here.  A failure ends the step of the job.
     * Returns TSR_OK, or TSR_E_INVAL: sample() excluded this token.  [any] */
    tsr_status (*accept)(const void *self, void *state, uint32_t token, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif
