/* engine/sampler.h - the samplers of a request: a list of tessera.sampler/1, of which the host's own draw is the last.
 *
 *   tokens of a model -> list of instances -> requests hold the list -> one chain for each request in its slot
 */
#ifndef TSR_ENGINE_SAMPLER_H
#define TSR_ENGINE_SAMPLER_H

#include "engine/engine.h"
#include "plugin/spec.h"
#include "tessera/sampler.h"
#include "tokenizer/tokenizer.h"

/* The host's draw.  Its options are a struct tsr_engine_sampling, which is the instance too.  Its scratch is an entry of 16
 * bytes for each token; it reads the logits only. */
extern const struct tsr_sampler_v1 tsr_engine_draw;
#define TSR_ENGINE_DRAW_BYTES 16u /* of scratch for a token */

/* ---- tokens ---------------------------------------------------------------- */

/* The texts of the ids below vocab, and which of them are in ends [n_ends].  TSR_E_UNSUPPORTED: the tokenizer's decoder
 * gives no text of a single token.  t is not kept.  Counted as a list is.  [setup] */
struct tsr_engine_tokens;
tsr_status                tsr_engine_tokens_create(struct tsr_engine_tokens  **tokens,
                                                   const struct tsr_tokenizer *t, uint64_t vocab,
                                                   const uint32_t *ends, uint32_t n_ends, struct tsr_err *err);
struct tsr_engine_tokens *tsr_engine_tokens_hold(struct tsr_engine_tokens *tokens);
void tsr_engine_tokens_drop(struct tsr_engine_tokens *tokens); /* NULL is allowed */
const struct tsr_sampler_tokens *tsr_engine_tokens_table(const struct tsr_engine_tokens *tokens);

/* ---- lists ----------------------------------------------------------------- */

/* Instances in their order, without the draw.  Who holds a list drops it; the last drop destroys the instances.  Counting
 * is [any]; requests of several threads may share a list. */
struct tsr_engine_samplers;
/* A list of an instance of spec in front of `rest` (NULL: of nothing), which it holds.  It takes over spec, as
 * tsr_plugin_spec_open() made it, after a failure too.  tokens, which it holds, may be NULL, and is TSR_E_CONFIG then for a
 * sampler that needs them.  [setup] */
tsr_status tsr_engine_samplers_create(struct tsr_engine_samplers **list,
                                      struct tsr_plugin_spec      *spec,
                                      struct tsr_engine_tokens    *tokens,
                                      struct tsr_engine_samplers *rest, struct tsr_err *err);
/* What lists of one model are made from.  All but tokens is the caller's and outlives it; tokens is made at the first
 * sampler that needs it, and dropped by the owner. */
struct tsr_engine_sampler_maker {
    struct tsr_registry        *registry;
    const struct tsr_tokenizer *tokenizer; /* NULL: none */
    uint64_t                    vocab;
    const uint32_t             *ends; /* [n_ends] end-of-sequence ids */
    uint32_t                    n_ends;
    struct tsr_engine_tokens   *tokens;
};
/* tsr_engine_samplers_create() with them. */
tsr_status                  tsr_engine_sampler_make(struct tsr_engine_sampler_maker *m,
                                                    struct tsr_engine_samplers **list, struct tsr_plugin_spec *spec,
                                                    struct tsr_engine_samplers *rest, struct tsr_err *err);
struct tsr_engine_samplers *tsr_engine_samplers_hold(struct tsr_engine_samplers *list);
void tsr_engine_samplers_drop(struct tsr_engine_samplers *list); /* NULL is allowed */

/* ---- one request ------------------------------------------------------------- */

#define TSR_ENGINE_SAMPLER_MOST                                                                    \
    (UINT64_C(256) << 20) /* bytes of state and of scratch of a sampler */

/* The states of a request, one after the other; the caller may copy `state` and put it back. */
struct tsr_engine_chain {
    struct tsr_engine_samplers *list; /* held; NULL: the draw alone */
    uint64_t                    vocab;
    unsigned char              *state;
    uint64_t                    state_bytes;
    float                      *logits; /* [vocab] of the samplers; NULL without any */
    unsigned char              *scratch;
};

/* request: of the samplers' start().  TSR_E_NOMEM, or what a sampler says.  finish() of a zeroed chain is allowed. */
tsr_status tsr_engine_chain_start(struct tsr_engine_chain *c, struct tsr_engine_samplers *list,
                                  const struct tsr_sampler_request *request, struct tsr_err *err);
void       tsr_engine_chain_finish(struct tsr_engine_chain *c);
/* The next token from logits [vocab], which stay as they are, or TSR_SAMPLER_END.  scratch: of tsr_engine_draw, vocab
 * entries of 16 bytes.
 * TSR_E_NUMERIC: no token can follow. */
tsr_status tsr_engine_chain_next(struct tsr_engine_chain *c, const float *logits, uint64_t vocab,
                                 const struct tsr_engine_sampling *s, const uint32_t *history,
                                 uint64_t n_prompt, uint64_t n_history, uint64_t record,
                                 void *scratch, uint32_t *id, struct tsr_err *err);
/* The request goes on with id. */
tsr_status tsr_engine_chain_accept(struct tsr_engine_chain *c, uint32_t id, struct tsr_err *err);

#endif
