/* engine/engine.h - the forward pass: tokens in, logits out, through a backend.
 *
 *   engine = model + overlay + backend + cache;   batch of tokens -> logits
 *
 * A batch is any mix of tokens of any sequences, prompts and single steps alike, without
 * padding.  By docs/decisions/numerics.md a token's logits depend on its own sequence alone:
 * not on chunking, neighbours, threads or instruction set.
 */
#ifndef TSR_ENGINE_ENGINE_H
#define TSR_ENGINE_ENGINE_H

#include "base/err.h"
#include "compensate/select.h"
#include "model/model.h"
#include "model/packed_slice.h"
#include "plugin/registry.h"
#include "tessera/backend.h"
#include "tessera/backend_candidates.h"

struct tsr_engine;

/* This engine is one of `ranks` (1, 2, 4 or 8) that share every layer: it has the rows of q, k, v,
 * gate and up and the columns of o and down that fall to it (share.h), and after o and down adds its
 * part to the others'. */
struct tsr_engine_tp {
    uint32_t rank, ranks;
    bool whole_experts; /* experts fall to ranks whole, in equal numbers; else some rows of each */
    /* x [rows, cols] dense F32 in host memory: this rank's part on input, the sum over all ranks on
     * output, bit-identical on every rank.  site: 2 * layer for o, 2 * layer + 1 for down.  The
     * bias is added once, after the sum.  Called on the thread that runs forward().  Where queries
     * and keys are normed over all heads, 2 * layer also puts whole rows of them together, for which
     * sums must be exact. */
    tsr_status (*sum)(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                      struct tsr_err *err);
    void *ctx;
    /* Optional: sums x on the backend's device, ordered before operations queued later.  *done false:
     * nothing has happened, x goes through sum(). */
    tsr_status (*sum_on)(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend, void *self,
                         const struct tsr_tensor *x, bool *done, struct tsr_err *err);
    /* Optional: takes what sum_on() needs for at most [rows, cols] at the sites [first, end).  Called
     * once, when the engine is made. */
    tsr_status (*reserve_on)(void *ctx, const struct tsr_backend_v1 *backend, void *self,
                             uint64_t rows, uint64_t cols, uint32_t first, uint32_t end,
                             struct tsr_err *err);
};

/* o and down of every layer are split by columns for `ranks` ranks, 2 to TSR_ENGINE_SPLIT_MAX, which this
 * one engine simulates: with the split of real ranks where that exists, evenly otherwise. */
#define TSR_ENGINE_SPLIT_MAX 32u
struct tsr_engine_split {
    uint32_t ranks;
    /* partial[r] [rows, cols] dense F32: rank r's product; out: the combined result, in separate
     * memory.  site as above.  The bias is added afterwards. */
    tsr_status (*sum)(void *ctx, uint32_t site, const float *const *partial, uint64_t rows,
                      uint64_t cols, float *out, struct tsr_err *err);
    void *ctx;
};

struct tsr_compensation;

/* What quantization lost is added back for a few input channels of every packed linear
 * (compensate/compensation.h): k channels of 1024, per layer and input. */
struct tsr_engine_compensate {
    const struct tsr_compensation *from; /* outlives the engine */
    uint32_t                       each; /* number for every layer if k is NULL */
    const uint32_t (
        *k)[TSR_MODEL_SITES]; /* [layers], up to 1024; 0: none; for experts by kind of site;
                                           * read by create() alone */
    const uint32_t (
        *blocks)[TSR_MODEL_SITES]; /* [layers], thread blocks that read residuals; 0 or NULL: the
                                    * device chooses; the same */
    enum tsr_compensate_select select;
    bool                       all;    /* every token; else those that are marked `decode` */
    bool                       recall; /* compare every selection with the exact one */
    uint64_t                   seed;   /* of a random selection */
};

/* A linear that a source has: all of it, or the part that falls to the engine's rank. */
struct tsr_engine_fetched {
    struct tsr_matrix              w;      /* as stored; ignored if packed */
    const struct tsr_model_packed *packed; /* or NULL: w goes to the device */
    const struct tsr_model_slice  *part;   /* what of the linear they are; NULL: all of it */
};
/* Packs a model's linears while they are loaded: fetch() returns the packed form of a linear just
 * before it goes to the device; placed() then lets the caller free the host copy.  Called in order,
 * also for absent linears, for which fetch() leaves *f unchanged.  The engine opens no layer; head and
 * norms are those of its overlay. */
struct tsr_engine_source {
    tsr_status (*fetch)(void *ctx, uint64_t layer, enum tsr_linear_id id,
                        struct tsr_engine_fetched *f, struct tsr_err *err);
    void (*placed)(void *ctx, uint64_t layer, enum tsr_linear_id id);
    void *ctx;
};

struct tsr_engine_options {
    struct tsr_plugin_run_on on;
    uint32_t                 act;       /* TSR_ACT_* for packed weights; others use F32 */
    uint32_t                 kv_dtype;  /* of tessera/kv_cache.h, a codec, or TSR_KV_AUTO */
    const char              *kv_layers; /* of some layers: kv_layers.h; NULL or "": of none */
    uint32_t                 slots;     /* sequences resident at once, >= 1 */
    uint64_t                 context;   /* positions per slot; 0: the model's maximum */
    uint64_t                 chunk; /* most tokens per forward; longer batches are cut; 0: 512 */
    /* A part of the model: decoder layers [first, end), end 0: to the last, and its ends. */
    uint64_t                       first, end;
    bool                           no_embed, no_head;
    const struct tsr_engine_tp    *tp;    /* copied; NULL: whole layers */
    const struct tsr_engine_split *split; /* copied; NULL: no ranks are simulated; not with tp */
    /* Closes a layer of a streamed model once the device has it; after that an unsupported
     * operation is an error. */
    bool                                release;
    const struct tsr_engine_compensate *compensate; /* copied; NULL: none */
    const struct tsr_engine_source     *source; /* used by create() alone; NULL: overlay is whole */
    /* Called before each product of a forward and each layer of the load; NULL: not. */
    void (*on_layer)(void *ctx, uint64_t layer, bool load);
    void *layer_ctx;
};

/* Sums over ranks that a layer takes: after o, after down, and of queries and keys that are normed over all heads. */
static inline uint64_t tsr_engine_layer_sums(const struct tsr_model_hparams *hp)
{
    return hp->qk_norm == TSR_MODEL_QK_NORM_WIDTH ? 3 : 2;
}

/* The model and overlay must outlive the engine.  [setup] */
tsr_status tsr_engine_create(struct tsr_engine **e, struct tsr_registry *r,
                             const struct tsr_model *m, const struct tsr_model_overlay *o,
                             const struct tsr_engine_options *opt, struct tsr_err *err);
void       tsr_engine_destroy(struct tsr_engine *e);

/* Rows that a sequence takes in the cache of a layer with a window, for forwards of at most `chunk` tokens: no more than
 * context. */
uint64_t tsr_engine_window_rows(uint64_t window, uint64_t chunk, uint64_t context);
/* The option of a cache is the type of its values; keys have the same type, or with TSR_Q4 TSR_Q4_CHANNEL. */
static inline uint32_t tsr_engine_key_type(uint32_t kv)
{
    return kv == TSR_Q4 ? TSR_Q4_CHANNEL : kv;
}
/* Rows that a sequence of `rows` positions takes in each cache: whole blocks if keys of some layer are in blocks. */
uint64_t tsr_engine_kv_rows(bool blocks, uint64_t rows);
/* Bytes of keys and values of a layer for `slots` sequences of `rows` rows each; false: too many. */
bool tsr_engine_kv_bytes(uint32_t kv, uint64_t kv_heads, uint64_t head_dim, uint64_t slots,
                         uint64_t rows, uint64_t *bytes);
/* Bytes of weights and of cache on the device; a sliced weight counts its part. */
void tsr_engine_memory(const struct tsr_engine *e, uint64_t *weights, uint64_t *cache);
/* Bytes of the linears of all layers on the device, and how many of them it has as F32 since it declined their format;
 * nothing of linears that are cut for simulated ranks. */
void tsr_engine_linears(const struct tsr_engine *e, uint64_t *bytes, uint64_t *widened);
/* How many packed linears run with each TSR_ACT_*: formats without integers take F32 under a8. */
void tsr_engine_acts(const struct tsr_engine *e, uint64_t linears[3]);
/* What was compensated so far; zeros without. */
struct tsr_engine_compensated {
    uint64_t host_bytes;              /* residuals of this engine's layers, in host memory */
    uint64_t linears;                 /* sites with compensation */
    bool     over_bus;                /* the device reads residuals from the host's memory */
    uint32_t most_blocks;             /* thread blocks that can be asked for; 0: it chooses alone */
    uint64_t tokens;                  /* compensated */
    uint64_t selected, exact, common; /* channels; exact and common if recall is measured */
};
void tsr_engine_compensation(const struct tsr_engine *e, struct tsr_engine_compensated *c);
/* Changes the numbers of channels, none above the number at creation: k [layers] or, NULL, `each`
 * everywhere.  [worker] */
tsr_status tsr_engine_compensate_k(struct tsr_engine *e, const uint32_t (*k)[TSR_MODEL_SITES],
                                   uint32_t each, struct tsr_err *err);
/* At most so many thread blocks for the sites of a kind in every layer; 0: the device chooses.  [worker] */
void tsr_engine_compensate_blocks(struct tsr_engine *e, enum tsr_site kind, uint32_t blocks);
/* Seconds of one token through the linears of a kind of site in all layers, with their compensation: the least of
 * `repeats` passes.  Of experts it goes through as many as a token takes, others in every pass, and through the
 * shared one.  [worker] */
tsr_status tsr_engine_time_site(struct tsr_engine *e, enum tsr_site kind, uint32_t repeats,
                                double *seconds, struct tsr_err *err);
uint64_t   tsr_engine_context(const struct tsr_engine *e);
uint32_t   tsr_engine_slots(const struct tsr_engine *e);
uint64_t   tsr_engine_vocab(const struct tsr_engine *e);
const struct tsr_model *tsr_engine_model(const struct tsr_engine *e);
const char             *tsr_engine_device(const struct tsr_engine *e);
/* Whether something that it runs on has numerics: auto of its own, so that answers may differ between machines. */
bool tsr_engine_is_automatic(const struct tsr_engine *e);
/* The type of its caches, but for layers that have their own: what TSR_KV_AUTO became. */
uint32_t tsr_engine_kv(const struct tsr_engine *e);

/* One token of a batch.  Positions of a slot must follow on each other from 0; a slot is
 * emptied by tsr_engine_reset(). */
struct tsr_engine_token {
    uint32_t id;
    uint32_t slot;
    bool     logits; /* wanted for this token */
    bool     decode; /* it was generated: compensated even if prompts are not */
    uint32_t
        ahead; /* of a slot's last token in a call: tokens of the same text that later calls bring.  Scalings of
                      * rope by length count them, so that a text in pieces has the positions of the whole. */
};

/* Runs n tokens; logits [wanted, vocab] F32, in order, into host memory.  Tokens of one slot are in
 * order.  A full slot is TSR_E_INPUT; a non-finite logit is TSR_E_NUMERIC naming slot and position.
 * After an error the slots of the batch must be reset.  [worker] */
tsr_status tsr_engine_forward(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                              uint64_t n, float *logits, struct tsr_err *err);
/* Runs a part of the model.  in: hidden rows [n, hidden] from the previous part, NULL: the
 * embedding of the ids.  out: the hidden rows after the last layer, may be NULL; logits NULL: not
 * needed.  Host memory; out may be in.  [worker] */
tsr_status tsr_engine_stage(struct tsr_engine *e, const struct tsr_engine_token *tokens, uint64_t n,
                            const float *in, float *out, float *logits, struct tsr_err *err);
/* Hidden rows [n, hidden] after the embedding of the tokens of the next stage() call: for ranks
 * without an embedding.  Advances no slot.  [worker] */
tsr_status tsr_engine_embed(struct tsr_engine *e, const struct tsr_engine_token *tokens, uint64_t n,
                            float *out, struct tsr_err *err);
/* Logits [n, vocab] of hidden rows [n, hidden] after the last layer, computed on any rank;
 * bit-identical to those of stage().  A row whose logits are not finite is TSR_E_NUMERIC.  Advances no
 * slot.  Host memory.  [worker] */
tsr_status tsr_engine_head(struct tsr_engine *e, const float *rows, uint64_t n, float *logits,
                           struct tsr_err *err);

/* The best tokens of the wanted rows in place of their logits, where the device finds them
 * (tessera/backend_candidates.h).  Memory of the caller's. */
struct tsr_engine_best {
    uint32_t                  most;    /* candidates of each row */
    const float              *inverse; /* [wanted] 1 / temperature; 0: no sum */
    struct tsr_candidate     *best;    /* out: [wanted][most], best first */
    struct tsr_candidate_row *row;     /* out: [wanted] */
};
/* How many rows one call of forward_best() has at most, of how many *tokens; 0: this engine has no such call.  [any] */
uint64_t tsr_engine_best_rows(const struct tsr_engine *e, uint64_t *tokens);
/* tsr_engine_forward(), of whose logits only the best tokens come back.  More rows or tokens than
 * tsr_engine_best_rows() says are TSR_E_INVAL.  [worker] */
tsr_status tsr_engine_forward_best(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                   uint64_t n, const struct tsr_engine_best *best,
                                   struct tsr_err *err);
/* Logits [vocab] of a wanted row of the last forward_best(), which nothing has run after.  [worker] */
tsr_status tsr_engine_best_logits(struct tsr_engine *e, uint64_t row, float *logits,
                                  struct tsr_err *err);
uint64_t   tsr_engine_length(const struct tsr_engine *e, uint32_t slot);
void       tsr_engine_reset(struct tsr_engine *e, uint32_t slot);
/* Keeps the first `length` positions of a slot, so that other tokens can follow on them.  Returns how many it keeps: fewer
 * where keys are in blocks and `length` is inside one whose keys are not as they were before they became one.  0: it
 * holds fewer, or the model cannot go back there; nothing has changed, and the caller resets. */
uint64_t tsr_engine_rewind(struct tsr_engine *e, uint32_t slot, uint64_t length);

/* Slot `to` has the first `length` positions of `from`, or fewer, *kept: whole blocks where keys are in blocks.  0: the model
 * cannot, or `from` holds fewer, and nothing has changed.  After an error `to` is empty.  [worker] */
tsr_status tsr_engine_copy(struct tsr_engine *e, uint32_t from, uint32_t to, uint64_t length,
                           uint64_t *kept, struct tsr_err *err);

/* Sees the input of every linear site of every layer during forward: x is [n, cols] F32 in
 * host memory, rows of `tokens[first..]`.  NULL ends it. */
typedef tsr_status (*tsr_engine_tap)(void *ctx, uint64_t layer, enum tsr_site site, const float *x,
                                     uint64_t n, uint64_t cols, struct tsr_err *err);
void tsr_engine_set_tap(struct tsr_engine *e, tsr_engine_tap tap, void *ctx);
/* Rounds the input of every linear of the layers to so many bits, symmetric, with a scale of each token: what a product of
 * such integers would lose, at no gain of speed.  In place of a tap.  0 ends it.  TSR_E_INPUT: bits is neither 0 nor 2 to 8. */
tsr_status tsr_engine_set_input_bits(struct tsr_engine *e, uint32_t bits, struct tsr_err *err);
/* Sees the hidden rows [n, hidden] of which forward() makes logits, in order, in host memory; final
 * norm and head are still to come.  NULL ends it and cannot fail. */
typedef tsr_status (*tsr_engine_hidden_tap)(void *ctx, const float *x, uint64_t n,
                                            struct tsr_err *err);
tsr_status tsr_engine_set_hidden_tap(struct tsr_engine *e, tsr_engine_hidden_tap tap, void *ctx,
                                     struct tsr_err *err);

/* ---- sampling ----------------------------------------------------------- */

/* The draw of tsr_engine_draw (engine/sampler.h).  Ties go to the lowest id.  The same (seed, record, number of the token)
 * always draws the same number.  The steps are penalty, temperature, top-k, top-p, min-p, draw; with top_k the softmax is
 * over the k best, and top-p keeps the fewest that hold top_p of it, at least one. */
struct tsr_engine_sampling {
    double   temperature;        /* 0: greedy */
    uint64_t top_k;              /* 0: all */
    double   top_p;              /* 1: all */
    double   min_p;              /* least part of the best token's probability; 0: all */
    double   repetition_penalty; /* 1: none */
    uint64_t seed;
};

/* Temperature, top_p, min_p and repetition_penalty in range, or TSR_E_CONFIG.  [any] */
tsr_status tsr_engine_sampling_check(const struct tsr_engine_sampling *s, struct tsr_err *err);

#define TSR_ENGINE_DRAFT_MOST   16u /* ids of a draft in one pass */
#define TSR_ENGINE_DRAFT_CHOSEN UINT32_MAX

struct tsr_engine_samplers;
/* One request of tsr_engine_generate(). */
struct tsr_engine_request {
    const uint32_t             *prompt;
    uint64_t                    n_prompt;
    uint64_t                    max_tokens;
    bool                        ignore_eos;
    uint64_t                    record; /* number for the random stream */
    struct tsr_engine_sampling  sampling;
    struct tsr_engine_samplers *samplers; /* before the draw (engine/sampler.h); NULL: none */
    uint32_t                    draft;    /* as of tsr_engine_serve_request */
    /* Called for each new token; a non-OK status stops this request.  May be NULL. */
    tsr_status (*on_token)(void *ctx, uint64_t request, uint32_t id);
    void *ctx;
    /* out */
    uint32_t *tokens; /* [max_tokens], caller's */
    uint64_t  n_tokens;
    bool      stopped; /* an end-of-sequence token ended it (not in tokens) */
};
struct tsr_engine_drafted {
    uint64_t drafted, accepted;
    uint64_t bytes; /* weights and cache of the draft model; 0: none */
};
struct tsr_engine_generate_timing {
    double   prefill_s, decode_s;
    uint64_t prefill_tokens, decode_tokens; /* that ran, drafts that were not drawn too */
    struct tsr_engine_drafted drafts;
};
/* Runs all requests, as many at once as the engine has slots; a finished one's slot is
 * refilled at the next token (engine/serve.h does it).  An empty prompt, an id outside the vocabulary, and a request
 * that does not fit the context are TSR_E_INPUT before anything runs.  All slots are empty
 * afterwards.  timing may be NULL.  [worker] */
tsr_status tsr_engine_generate(struct tsr_engine *e, struct tsr_engine_request *reqs, uint64_t n,
                               struct tsr_engine_generate_timing *timing, struct tsr_err *err);
struct tsr_engine_drafter;
/* The same with what makes drafts, of as many slots as the engine (engine/drafter.h); NULL: the text so far. */
tsr_status tsr_engine_generate_drafted(struct tsr_engine *e, struct tsr_engine_drafter *drafter,
                                       struct tsr_engine_request *reqs, uint64_t n,
                                       struct tsr_engine_generate_timing *timing,
                                       struct tsr_err                    *err);

#endif
