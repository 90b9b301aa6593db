/* engine/internal.h - declarations shared by the files of the engine. */
#ifndef TSR_ENGINE_INTERNAL_H
#define TSR_ENGINE_INTERNAL_H

#include "engine/device.h"
#include "engine/engine.h"
#include "engine/hooks.h"
#include "engine/share.h"

#define TSR_DEFAULT_CHUNK 512
#define TSR_ROPES         2  /* of one model */
#define TSR_HEAD_ROWS     64 /* rows of logits on the device at once */

/* Layers keep the whole context in their caches, or as much as their window needs. */
enum { TSR_ENGINE_CACHE_CONTEXT, TSR_ENGINE_CACHE_WINDOW, TSR_ENGINE_CACHES };

/* Norms and linears of the model with their parts on the device; w or gain.buffer NULL: absent. */
struct tsr_engine_split_dev;
struct tsr_engine_norm_dev {
    struct tsr_tensor gain, bias;
    float             eps; /* 0: the model's */
};
struct tsr_engine_linear_dev {
    struct tsr_engine_device *dev; /* that runs it; NULL: the engine's */
    struct tsr_engine_weight *w;
    struct tsr_tensor         bias;
    struct tsr_tensor         behind; /* a bias that is added after the sum over ranks */
    struct tsr_tensor order; /* U32 [1, cols]: of the input's columns; buffer NULL: natural order */
    bool order_shared;       /* an earlier linear of its site has the same order, and owns it */
    struct tsr_model_packed
        *part; /* a rank's part of packed weights, which w was made from; or NULL */
    struct tsr_engine_split_dev *split; /* split.h: the parts that replace w; or NULL */
    uint32_t                     act;
};
struct tsr_engine_layer_dev {
    struct tsr_engine_linear_dev *lin; /* [hparams.linears] */
    struct tsr_engine_norm_dev    attn_in, attn_out, ffn_in, ffn_out, q_norm, k_norm;
    struct tsr_engine_norm_dev    q_a_norm, kv_a_norm;
    struct tsr_tensor             sinks; /* [2, heads]: slopes, sinks; or buffer NULL */
    struct tsr_tensor             k, v;  /* caches, kv.c */
    bool                          open;  /* the model's layer is held in memory */
};

/* Per-chunk numbers that travel to the device in one piece: offsets into one buffer. */
struct tsr_engine_feed {
    char             *host;
    struct tsr_tensor device; /* [1, capacity] bytes */
    /* views of the current chunk */
    struct tsr_tensor ids, positions, rows[TSR_ENGINE_CACHES], spans[TSR_ENGINE_CACHES], gather;
    struct tsr_tensor block_rows[TSR_ENGINE_CACHES],
        block_spans[TSR_ENGINE_CACHES]; /* with tails, for keys in blocks; or buffer NULL */
    struct tsr_tensor cosine[TSR_ROPES], sine[TSR_ROPES]; /* of hparams.rope and .rope_sliding */
};

struct tsr_engine_slot {
    uint64_t length; /* positions in the cache */
    uint64_t final;  /* length when the current call is done */
    uint64_t ahead;  /* tsr_engine_token.ahead of its last token in that call */
    uint64_t base;   /* position of the first row in the caches of layers with a window */
    uint64_t coming; /* tokens of the current chunk, while they are counted */
    uint64_t block;  /* of the last position that was stored: its keys are in the tails */
    uint64_t piece;  /* of the current chunk, with a token of that block */
};

/* Rows first + from .. + rows of the caches of layers with a window, which go to row first. */
struct tsr_engine_move {
    uint64_t first, from, rows;
};

struct tsr_engine {
    const struct tsr_model   *model;
    struct tsr_engine_device *dev;
    bool                      owns_dev;
    struct tsr_engine_device
                  *host; /* the default backend, which runs the experts of some layers; or NULL */
    uint64_t       host_experts;    /* layers, from the first, whose experts it runs */
    const uint8_t *host_experts_of; /* [layers] instead, where not NULL; borrowed */
    uint64_t       context, chunk, head_rows;
    uint32_t       kv_dtype;
    uint32_t      *kv_of;    /* [layers], owned; NULL: kv_dtype */
    bool           blocks;   /* some layer has keys in blocks, kv_cache.h */
    uint64_t      *pieces;   /* [chunk + 1]: ends of runs of tokens of one block of each slot */
    uint64_t       n_pieces; /* of the current chunk */
    uint64_t       cache_bytes;
    struct tsr_engine_kv_codecs *kv_codecs;   /* kv_codec.c; NULL: the backend has all caches */
    uint64_t                     window;      /* the largest of all layers; 0: none has one */
    uint64_t                     window_rows; /* of a slot in their caches; 0: as many as context */
    struct tsr_engine_move      *moves;       /* [n_slots], for the current chunk */
    uint64_t                     n_moves;
    struct tsr_tensor            ascending;  /* U32 [1, window_rows]: 0, 1, ... */
    uint64_t                     first, end; /* layers that it has */
    bool                         has_embed, has_head, release;
    void (*on_layer)(void *, uint64_t, bool);
    void                           *layer_ctx;
    uint64_t                        at_layer;   /* of a forward, for on_layer */
    const struct tsr_engine_source *source;     /* while it is made */
    struct tsr_engine_tp            tp;         /* ranks 1: whole layers */
    struct tsr_engine_share         share;      /* of heads and of the feed-forward */
    float                          *parts;      /* [chunk, hidden], ranks > 1 */
    struct tsr_engine_split         split;      /* ranks 0: none are simulated */
    float                          *split_rows; /* [split.ranks + 1][chunk, hidden] */
    bool                            streamed; /* stream.c: one layer at a time, one cache for all */
    struct tsr_engine              *behind;   /* mixed.c: the other layers and the head, or NULL */
    float                          *border;   /* [chunk, hidden] on the way there */
    char                            text[224]; /* both devices */
    struct tsr_engine_slot         *slots;
    uint32_t                        n_slots;

    struct tsr_engine_weight     *embed, *positions;
    struct tsr_engine_norm_dev    embed_norm, final_norm;
    struct tsr_engine_linear_dev  project_in, project_out, head;
    struct tsr_engine_layer_dev  *layers;
    struct tsr_engine_linear_dev *linears; /* of all layers */
    struct tsr_tensor             slopes;  /* ALiBi, or buffer NULL */

    /* activations, `chunk` rows each */
    struct tsr_tensor            h, x, y, q, k, v, a, gate, up, narrow, logits;
    struct tsr_engine_recurrent *recurrent; /* recurrent.c; NULL: plain attention in all layers */
    struct tsr_engine_routes    *routes;    /* experts.c; NULL: the model has no experts */
    struct tsr_engine_whole_norm
        *whole_norm; /* whole_norm.c; NULL: queries are not normed over other ranks' heads */
    struct tsr_engine_latent *latent; /* latent.c; NULL: attention is not latent */
    struct tsr_engine_online *online; /* online.c */
    bool
                      timed; /* stopwatch.h: inputs are made.  Tokens take experts by a count, and states begin anywhere */
    const uint8_t    *shown_experts; /* [experts], 1: the tap sees all tokens through it; or NULL */
    struct tsr_tensor ordered;       /* [chunk, widest input], made with the first ordered weight */
    struct tsr_tensor host_ordered;  /* the same on `host` */
    struct tsr_engine_feed feed;
    struct {
        double  *inv; /* frequencies [dim/2] for `length`; NULL: the model lacks this rope */
        uint64_t length;
        bool     known;
    } rope[TSR_ROPES];

    struct tsr_engine_hooks        hooks;
    struct tsr_engine_compensator *comp; /* compensate.c; NULL: nothing is compensated */

    uint64_t ran[3];   /* packed linears by TSR_ACT_* */
    bool     said_act; /* that some packed linear takes F32 under a8 */

    const struct tsr_backend_candidates_v1 *candidates; /* candidates.c; NULL: logits travel */
    uint64_t                                best_rows;
    const struct tsr_engine_best           *best; /* while tsr_engine_forward_best() runs */

    tsr_engine_tap            tap;
    void                     *tap_ctx;
    struct tsr_engine_device *tap_dev;    /* that has what the tap sees */
    float                    *tap_rows;   /* made at the first tapped chunk */
    uint32_t                  input_bits; /* rounding.c; 0: inputs stay as they are */

    tsr_engine_hidden_tap hidden_tap;
    void                 *hidden_ctx;
    float                *hidden_rows; /* [head_rows, hidden] while there is a tap */
};

/* An engine on a device of the caller's, which must outlive it: for tests. */
tsr_status tsr_engine_create_on(struct tsr_engine **e, struct tsr_engine_device *dev,
                                const struct tsr_model *m, const struct tsr_model_overlay *o,
                                const struct tsr_engine_options *opt, struct tsr_err *err);

/* taps.c: an input of linears into e->tap_rows. */
tsr_status tsr_engine_tap_download(struct tsr_engine *e, const struct tsr_tensor *in,
                                   struct tsr_err *err);

/* forward.c: stage() of one device, after its checks. */
tsr_status tsr_engine_stage_own(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                uint64_t n, const float *in, float *out, float *logits,
                                struct tsr_err *err);
/* engine.c: as tsr_engine_create() without options.on.layers. */
tsr_status tsr_engine_create_whole(struct tsr_engine **e, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   const struct tsr_engine_options *opt, struct tsr_err *err);
/* mixed.c: stage() of an engine with options.on.layers. */
tsr_status tsr_engine_stage_mixed(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                  uint64_t n, const float *in, float *out, float *logits,
                                  struct tsr_err *err);

/* An engine for stream.c: one slot, and nothing of the model on the device yet. */
tsr_status tsr_engine_create_streamed(struct tsr_engine **e, struct tsr_registry *r,
                                      const struct tsr_model          *m,
                                      const struct tsr_engine_options *opt, struct tsr_err *err);

/* weights.c: everything of the model onto the device, or a part of it.  What a failing part has
 * loaded stays until it is dropped. */
tsr_status tsr_engine_load(struct tsr_engine *e, const struct tsr_model_overlay *o, uint32_t act,
                           struct tsr_err *err);
tsr_status tsr_engine_load_embed(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                 struct tsr_err *err);
tsr_status tsr_engine_load_layer(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                 uint64_t i, uint32_t act, struct tsr_err *err);
tsr_status tsr_engine_load_head(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                uint32_t act, struct tsr_err *err);
/* Frees a part; an absent one is allowed. */
void tsr_engine_drop_embed(struct tsr_engine *e);
void tsr_engine_drop_layer(struct tsr_engine *e, uint64_t i);
void tsr_engine_drop_head(struct tsr_engine *e);

/* kv.c: caches of all layers. */
tsr_status             tsr_engine_cache_create(struct tsr_engine *e, struct tsr_err *err);
static inline uint32_t tsr_engine_kv_of(const struct tsr_engine *e, uint64_t layer)
{
    return e->kv_of ? e->kv_of[layer] : e->kv_dtype;
}
static inline int tsr_engine_cache_of(const struct tsr_engine *e, uint64_t layer)
{
    return e->window_rows && e->model->hp.window[layer] ? TSR_ENGINE_CACHE_WINDOW
                                                        : TSR_ENGINE_CACHE_CONTEXT;
}
/* Rows of a slot in caches of a kind, and the row where its tail begins in those of keys in blocks. */
uint64_t tsr_engine_slot_rows(const struct tsr_engine *e, int cache);
uint64_t tsr_engine_tail_row(const struct tsr_engine *e, int cache, uint32_t slot);
/* Room for a chunk of n tokens, before their rows are known; then in each layer, before it stores them. */
void       tsr_engine_cache_make_room(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                      uint64_t n);
tsr_status tsr_engine_cache_move(struct tsr_engine *e, uint64_t layer, struct tsr_err *err);

/* feed.c: ids, positions, cache rows and angles of the current tokens. */
tsr_status tsr_engine_feed_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_feed_destroy(struct tsr_engine_feed *f);
/* Fills and uploads them for n <= chunk tokens and moves their slots on; *wanted counts the
 * tokens whose logits are wanted. */
tsr_status tsr_engine_feed_chunk(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                 uint64_t n, uint64_t *wanted, struct tsr_err *err);

/* candidates.c: finds e->candidates, and reserves its memory. */
tsr_status tsr_engine_candidates_open(struct tsr_engine *e, struct tsr_err *err);

/* reserve.c: memory that operations take in addition to their tensors, so that none is taken later. */
tsr_status tsr_engine_reserve(const struct tsr_engine *e, struct tsr_err *err);

/* forward.c: the ends of the model.  Hidden states of the n ids in the feed into e->h; logits of
 * at most head_rows hidden rows (e->h or e->x) into host memory. */
tsr_status tsr_engine_run_embedding(struct tsr_engine *e, uint64_t n, struct tsr_err *err);
tsr_status tsr_engine_run_head(struct tsr_engine *e, struct tsr_tensor src, float *logits,
                               struct tsr_err *err);

/* ops.c: hidden rows of n tokens between host memory and e->h. */
tsr_status tsr_engine_hidden_in(struct tsr_engine *e, const float *in, uint64_t n,
                                struct tsr_err *err);
tsr_status tsr_engine_hidden_out(struct tsr_engine *e, float *out, uint64_t n, struct tsr_err *err);
bool       tsr_engine_all_finite(const float *v, uint64_t n);

/* block.c: one decoder layer over e->h; n tokens. */
tsr_status tsr_engine_block_run(struct tsr_engine *e, uint64_t layer, uint64_t n,
                                struct tsr_err *err);
/* Its halves alone: from the normed input to the output of o or down. */
tsr_status tsr_engine_block_attention(struct tsr_engine *e, uint64_t layer,
                                      const struct tsr_tensor *in, const struct tsr_tensor *out,
                                      struct tsr_err *err);
tsr_status tsr_engine_block_feed_forward(struct tsr_engine *e, uint64_t layer,
                                         const struct tsr_tensor *in, const struct tsr_tensor *out,
                                         struct tsr_err *err);

/* The linears over one input, and what hangs on them; outs: as hooks.h says. */
tsr_status tsr_engine_run_linears(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                  const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                                  struct tsr_err *err);

/* The device of a linear, and its room for inputs in another order. */
static inline struct tsr_engine_device *tsr_engine_linear_device(
    const struct tsr_engine *e, const struct tsr_engine_linear_dev *l)
{
    return l->dev ? l->dev : e->dev;
}
static inline struct tsr_tensor *tsr_engine_ordered(struct tsr_engine                  *e,
                                                    const struct tsr_engine_linear_dev *l)
{
    return l->dev && l->dev != e->dev ? &e->host_ordered : &e->ordered;
}

/* Products that need nothing of each other, all on the device of the first. */
struct tsr_engine_product {
    const struct tsr_engine_linear_dev *l;
    struct tsr_tensor                   in, out;
};
/* linears.c: the device's table, or NULL. */
const struct tsr_backend_linears_v1 *tsr_engine_products_table(struct tsr_engine_device *d);
/* linears.c: in one call where the device has that. */
tsr_status tsr_engine_run_products(struct tsr_engine *e, const struct tsr_engine_product *p,
                                   uint64_t n, struct tsr_err *err);

/* experts.c: e->host for the linear of an expert that it runs, else NULL: the engine's device. */
tsr_status tsr_engine_experts_place(struct tsr_engine *e, const struct tsr_plugin_run_on *on,
                                    struct tsr_err *err);
static inline bool tsr_engine_experts_on_host(const struct tsr_engine *e, uint64_t layer)
{
    return e->host && (e->host_experts_of ? e->host_experts_of[layer] : layer < e->host_experts);
}
static inline struct tsr_engine_device *tsr_engine_experts_device(const struct tsr_engine *e,
                                                                  uint64_t                 layer,
                                                                  enum tsr_linear_id       id)
{
    return id >= TSR_MODEL_EXPERTS && tsr_engine_experts_on_host(e, layer) ? e->host : NULL;
}
/* The device that runs a site's linears, and has its input and outputs. */
static inline struct tsr_engine_device *tsr_engine_site_device(const struct tsr_engine *e,
                                                               uint64_t layer, enum tsr_site site)
{
    return site >= TSR_MODEL_SITE_EXPERTS && tsr_engine_experts_on_host(e, layer) ? e->host
                                                                                  : e->dev;
}
/* experts.c: from the normed input to the sum of the chosen experts, of a layer with experts. */
tsr_status tsr_engine_experts_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_experts_destroy(struct tsr_engine *e);
tsr_status tsr_engine_experts_run(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                                  const struct tsr_tensor *out, struct tsr_err *err);

/* whole_norm.c: q and k normed over all heads, of which this is one of several ranks.  They become views of whole rows. */
tsr_status tsr_engine_whole_norm_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_whole_norm_destroy(struct tsr_engine *e);
tsr_status tsr_engine_whole_norm_run(struct tsr_engine *e, uint64_t layer, struct tsr_tensor *q,
                                     struct tsr_tensor *k, struct tsr_err *err);

/* latent.c: the heads of latent attention before they rotate, and what of attention's output is the input of o, in
 * memory of the engine. */
tsr_status tsr_engine_latent_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_latent_destroy(struct tsr_engine *e);
tsr_status tsr_engine_latent_heads(struct tsr_engine *e, uint64_t layer,
                                   const struct tsr_tensor *in, const struct tsr_tensor *q,
                                   const struct tsr_tensor *k, const struct tsr_tensor *v,
                                   struct tsr_err *err);
tsr_status tsr_engine_latent_values(struct tsr_engine *e, const struct tsr_tensor *a,
                                    struct tsr_tensor *o_in, struct tsr_err *err);

/* ranks.c: what this rank has of a sum over the ranks of a stage, in `out` on `dev`, becomes the sum; id: of the linear whose
 * sum it is, TSR_MODEL_O or TSR_MODEL_DOWN. */
tsr_status tsr_engine_sum_over_ranks(struct tsr_engine *e, struct tsr_engine_device *dev,
                                     uint64_t layer, enum tsr_linear_id id,
                                     const struct tsr_tensor *out, struct tsr_err *err);

/* compensate_load.c: residuals of the engine's layers; hooks.h has what runs with them. */
tsr_status tsr_engine_compensate_create(struct tsr_engine                  *e,
                                        const struct tsr_engine_compensate *use,
                                        struct tsr_err                     *err);
void       tsr_engine_compensate_destroy(struct tsr_engine *e); /* before the device is closed */

/* ops.c: single operations over n rows. */
/* Rows 0 .. n of a tensor that is wide enough, one behind the other with `cols` columns. */
struct tsr_tensor tsr_engine_narrow(const struct tsr_tensor *t, uint64_t n, uint64_t cols);
struct tsr_tensor tsr_engine_rows(const struct tsr_tensor *t, uint64_t first, uint64_t n);
struct tsr_op     tsr_engine_linear_op(const struct tsr_engine_linear_dev *l,
                                       const struct tsr_tensor            *in,
                                       const struct tsr_tensor *out); /* the weight's handle, too */
tsr_status        tsr_engine_run_linear(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                        const struct tsr_tensor *in, const struct tsr_tensor *out,
                                        struct tsr_err *err);
/* The same on an input whose columns are in the order of the weight's; and an input in that order, into rows of
 * tsr_engine_ordered() from `first` on: one operation for all tokens. */
tsr_status tsr_engine_run_linear_on(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                    const struct tsr_tensor *in, const struct tsr_tensor *out,
                                    struct tsr_err *err);
tsr_status tsr_engine_put_in_order(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                   const struct tsr_tensor *in, uint64_t first,
                                   struct tsr_tensor *out, struct tsr_err *err);
tsr_status tsr_engine_run_embed(struct tsr_engine *e, struct tsr_engine_weight *w,
                                const struct tsr_tensor *ids, float scale,
                                const struct tsr_tensor *out, struct tsr_err *err);
tsr_status tsr_engine_run_norm(struct tsr_engine *e, const struct tsr_engine_norm_dev *norm,
                               const struct tsr_tensor *in, const struct tsr_tensor *out,
                               struct tsr_err *err);
tsr_status tsr_engine_run_add(struct tsr_engine *e, const struct tsr_tensor *a,
                              const struct tsr_tensor *b, const struct tsr_tensor *out,
                              struct tsr_err *err);

#endif
