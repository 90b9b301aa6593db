/* model/model.h - a decoder-only language model as the engine sees it: numbers that
 * describe the architecture, and views on weights in sealed memory.
 *
 * Every family becomes the same shape here: fused tensors are split into views (or, where
 * rows are interleaved, copied once), names are canonical, absent parts are empty.
 */
#ifndef TSR_MODEL_MODEL_H
#define TSR_MODEL_MODEL_H

#include "base/err.h"
#include "tessera/quantizer.h"

#include <stdbool.h>

struct tsr_tokenizer;
struct tsr_model_overlay;
struct tsr_prepacked;

#define TSR_MAX_EOS 16

enum tsr_model_positions {
    TSR_MODEL_POSITIONS_ROPE,
    TSR_MODEL_POSITIONS_LEARNED,
    TSR_MODEL_POSITIONS_ALIBI
};
enum tsr_rope_scaling {
    TSR_MODEL_ROPE_NONE,
    TSR_MODEL_ROPE_LINEAR,
    TSR_MODEL_ROPE_LLAMA3,
    TSR_MODEL_ROPE_LONG,
    TSR_MODEL_ROPE_DYNAMIC_NTK,
    TSR_MODEL_ROPE_YARN
};
/* Where the norms of a block sit: before each sub-layer; after the residual (OPT-350m); both before and after
 * each sub-layer, inside the residual (Gemma 2); after each sub-layer, inside the residual (OLMo 2); or once,
 * before attention and feed-forward, which run side by side (Cohere). */
enum tsr_norm_place {
    TSR_MODEL_NORM_BEFORE,
    TSR_MODEL_NORM_AFTER,
    TSR_MODEL_NORM_AROUND,
    TSR_MODEL_NORM_OUT,
    TSR_MODEL_NORM_PARALLEL
};
/* The norm of queries and keys before they rotate: of each head, with one gain [head_dim] or with a gain for
 * each [heads * head_dim]; or of the whole width. */
enum tsr_qk_norm {
    TSR_MODEL_QK_NORM_NONE,
    TSR_MODEL_QK_NORM_HEAD,
    TSR_MODEL_QK_NORM_HEADS,
    TSR_MODEL_QK_NORM_WIDTH
};
/* How a router's scores choose experts and weigh them.  SOFTMAX and SIGMOID: the largest of softmax(scores) or
 * sigmoid(score), plus a correction of the expert where there is one; weights are without it, divided by their sum if
 * router_normalize.  CHOSEN: softmax over the largest scores alone.  THRESHOLD: one after the other, by a softmax over scores
 * near the largest that is left (router_jitter; Phi-3.5-MoE). */
enum tsr_model_router {
    TSR_MODEL_ROUTER_SOFTMAX,
    TSR_MODEL_ROUTER_CHOSEN,
    TSR_MODEL_ROUTER_THRESHOLD,
    TSR_MODEL_ROUTER_SIGMOID
};
/* What of a group's experts decides whether a router chooses among them: the largest, or the sum of the two largest. */
enum tsr_model_group_score { TSR_MODEL_GROUP_LARGEST, TSR_MODEL_GROUP_TWO_LARGEST };
#define TSR_MODEL_THRESHOLD_MOST 2 /* experts that THRESHOLD chooses */
/* Layers without a cache of keys and values, the gated delta rule (docs/decisions/delta-rule.md): a causal
 * convolution of q, k and v over `kernel` tokens, and for each value head a state [key_dim, value_dim], which
 * every token multiplies and adds to. */
struct tsr_model_delta {
    uint32_t key_heads, value_heads; /* 0: no layer is of this form */
    uint32_t key_dim, value_dim, kernel;
};
/* How a layer rotates: by hparams.rope, by rope_sliding, or not at all. */
enum tsr_rope_of { TSR_MODEL_ROPE_OF_ALL, TSR_MODEL_ROPE_OF_SLIDING, TSR_MODEL_ROPE_OF_NONE };

struct tsr_model_rope {
    double                theta;
    uint32_t              dim; /* rotated part of a head, even */
    enum tsr_rope_scaling scaling;
    double                factor;
    double                low_freq_factor, high_freq_factor; /* llama3 */
    double                beta_fast, beta_slow;              /* yarn   */
    bool                  whole_ramp; /* yarn: the ends of the ramp are whole numbers */
    float                 long_ratio; /* long: times attention_factor above original_positions */
    uint64_t              original_positions;
    double                attention_factor; /* multiplies cos and sin; 1 unless long or yarn */
    double                all_dim; /* yarn's mscale_all_dim where the scores carry it; 0: none */
    float                *short_factor, *long_factor; /* [dim/2], long; owned */
};

/* Multi-head latent attention: keys and values of a token are products of one row of `rank` numbers, and a rope key
 * of `rope` columns that all heads share.  Queries likewise, of rank q_rank; 0: they are not.  A head's query and key
 * have `nope` columns that do not rotate and `rope` that do, its value has v. */
struct tsr_model_latent {
    uint32_t rank; /* 0: attention is not latent */
    uint32_t q_rank, nope, rope, v;
    float    eps; /* of the norms of both rows */
};

/* Hadamard transforms that run with the model (docs/formats/rotated.md): columns of a run of queries and keys after they
 * rotated, and of the inputs of down, whose weights hold the inverse.  0: none. */
struct tsr_model_online {
    uint32_t keys, down, expert, shared;
};

struct tsr_model_hparams {
    uint64_t vocab, hidden, layers, ffn, max_positions;
    uint64_t extra_layers;              /* stored after the last one and not read */
    uint32_t heads, kv_heads, head_dim; /* head_dim: as attention and cache have it */
    struct tsr_model_latent latent;     /* head_dim is then the larger of nope + rope and v */
    uint64_t                embed_dim;  /* width of the embedding; != hidden for OPT-350m */
    uint32_t                norm;       /* TSR_NORM_RMS or TSR_NORM_LAYER */
    float                   norm_eps, norm_gain_offset; /* Gemma: gain + 1 */
    enum tsr_norm_place     norm_place;
    bool                    residual_from_norm; /* BLOOM apply_residual_connection_post_layernorm */
    enum tsr_model_positions positions;
    struct tsr_model_rope    rope, rope_sliding;
    uint8_t                 *rope_of;       /* [layers], TSR_ROPE_OF_*; owned */
    bool                     rope_adjacent; /* columns (2 i, 2 i + 1) of a head rotate together */
    enum tsr_qk_norm         qk_norm;
    bool                     attn_gate; /* attention * sigmoid(z) goes into o */
    struct tsr_model_delta   delta;
    uint8_t              *recurrent; /* [layers], 1: the delta rule in place of attention; owned */
    uint64_t              position_offset;        /* OPT: row = position + 2 */
    uint32_t              func;                   /* TSR_FUNC_* of the feed-forward */
    float                 func_alpha, func_limit; /* of TSR_FUNC_CLAMPED */
    bool                  gated;
    uint64_t              linears; /* of a layer, absent ones included: enum tsr_linear_id */
    uint64_t              sites;   /* of a layer, absent ones included: enum tsr_site */
    uint32_t              experts, experts_used; /* of a layer, and of them for a token; 0: none */
    uint64_t              expert_ffn;            /* width of an expert */
    enum tsr_model_router router;
    bool                  router_normalize;
    float                 router_jitter, router_scale; /* router_scale: factor of the weights */
    uint32_t              router_groups, router_groups_used; /* experts in a row; 0: no groups */
    enum tsr_model_group_score router_group_score;
    uint64_t shared_ffn;   /* width of an expert that every token takes besides; 0: none */
    bool     shared_gated; /* its weight is the sigmoid of a score, not 1 */
    uint8_t *sparse;       /* [layers], 1: experts in place of a feed-forward; owned */
    float    attn_scale, attn_softcap, logit_softcap, logit_scale, embed_scale;
    float    residual_scale; /* of a sub-layer's output */
    struct tsr_model_online online;
    uint32_t               *window; /* [layers], 0: full attention; owned */
    bool                    tied;   /* head is the embedding */
    int64_t                 bos;    /* -1: none */
    uint32_t                eos[TSR_MAX_EOS], n_eos;
};

/* The linears of a decoder layer, canonical.  GATE is absent when not gated.  Z is the gate of what goes into O;
 * B and A are of the delta rule: how much of a token its state takes, and how much it forgets.  A layer with experts has, in place of
 * GATE, UP and DOWN, a router and three for each expert: tsr_model_expert_linear().  SHARED_*: the expert that
 * every token takes, and the score that weighs it.  A layer with latent attention has Q_A and Q_B in place of Q if
 * latent.q_rank is set, and KV_A and KV_B in place of K and V. */
enum tsr_linear_id {
    TSR_MODEL_Q,
    TSR_MODEL_K,
    TSR_MODEL_V,
    TSR_MODEL_O,
    TSR_MODEL_GATE,
    TSR_MODEL_UP,
    TSR_MODEL_DOWN,
    TSR_MODEL_LINEARS, /* of a model with plain attention and without experts */
    TSR_MODEL_Z = TSR_MODEL_LINEARS,
    TSR_MODEL_B,
    TSR_MODEL_A,
    TSR_MODEL_ROUTER,
    TSR_MODEL_SHARED_GATE,
    TSR_MODEL_SHARED_UP,
    TSR_MODEL_SHARED_DOWN,
    TSR_MODEL_SHARED_ROUTER,
    TSR_MODEL_Q_A, /* of latent attention: hidden to the row of queries, and on to the heads */
    TSR_MODEL_Q_B,
    TSR_MODEL_KV_A,
    TSR_MODEL_KV_B,
    TSR_MODEL_EXPERTS /* the first of an expert */
};
#define TSR_EXPERT_LINEARS 3
/* The linear of an expert that has the part of TSR_MODEL_GATE, TSR_MODEL_UP or TSR_MODEL_DOWN. */
static inline enum tsr_linear_id tsr_model_expert_linear(uint64_t expert, enum tsr_linear_id kind)
{
    return (enum tsr_linear_id)(TSR_MODEL_EXPERTS + TSR_EXPERT_LINEARS * expert +
                                (kind - TSR_MODEL_GATE));
}
/* Columns of the values of all heads, which are the input of TSR_MODEL_O. */
static inline uint64_t tsr_model_o_cols(const struct tsr_model_hparams *hp)
{
    return (uint64_t)hp->heads * (hp->latent.rank ? hp->latent.v : hp->head_dim);
}
/* The part that a linear has: an expert's, shared or not, is one of TSR_MODEL_GATE, TSR_MODEL_UP and TSR_MODEL_DOWN. */
static inline enum tsr_linear_id tsr_model_linear_kind(enum tsr_linear_id id)
{
    if (id >= TSR_MODEL_SHARED_GATE && id <= TSR_MODEL_SHARED_DOWN)
        return (enum tsr_linear_id)(TSR_MODEL_GATE + (id - TSR_MODEL_SHARED_GATE));
    return id < TSR_MODEL_EXPERTS ? id
                                  : (enum tsr_linear_id)(TSR_MODEL_GATE + (id - TSR_MODEL_EXPERTS) %
                                                                              TSR_EXPERT_LINEARS);
}

/* True for a linear of attention, or of the delta rule in its place. */
static inline bool tsr_model_linear_attends(enum tsr_linear_id id)
{
    return id <= TSR_MODEL_O || (id >= TSR_MODEL_Z && id <= TSR_MODEL_A) ||
           (id >= TSR_MODEL_Q_A && id <= TSR_MODEL_KV_B);
}

/* W [out, in] (a view; rows 0: absent) and bias [out] widened to F32, or NULL.  data is NULL if the
 * weights are packed (model.packed) or not in memory (headers only, a layer not open). */
struct tsr_model_linear {
    struct tsr_matrix w; /* w.name: "model.layers.3.mlp.down_proj" */
    const float      *bias;
};

/* gain/bias [hidden] widened to F32; gain NULL: absent. */
struct tsr_model_norm {
    const float *gain, *bias;
};

struct tsr_model_layer {
    struct tsr_model_linear *lin; /* [hparams.linears], rows 0: absent */
    struct tsr_model_norm    attn_in, attn_out, ffn_in,
        ffn_out; /* *_out: TSR_MODEL_NORM_AROUND and _OUT.
                        TSR_MODEL_NORM_AFTER uses attn_in and ffn_in after the residual */
    struct tsr_model_norm q_norm, k_norm;
    struct tsr_model_norm q_a_norm, kv_a_norm; /* of latent attention's rows */
    const float          *sinks;    /* [heads]: a logit of each head without a value; NULL: none */
    const float *router_correction; /* [experts], of routers SOFTMAX and SIGMOID; NULL: none */
    /* of the delta rule, or NULL: the convolution's weights [2 key_heads key_dim + value_heads value_dim,
     * kernel], the logarithm of the rate of decay and the bias of the step [value_heads], a gain [value_dim] */
    const float *conv, *decay, *step, *delta_norm;
};

struct tsr_model {
    const char               *path;   /* as given */
    const char               *family; /* "llama", "opt", ... */
    struct tsr_model_hparams  hp;
    struct tsr_matrix         embed;     /* [vocab, embed_dim] */
    struct tsr_matrix         positions; /* [n, hidden], learned only */
    struct tsr_model_norm     embed_norm, final_norm;
    struct tsr_model_linear   project_in, project_out;
    struct tsr_model_linear   head; /* [vocab, embed_dim]; the embedding's data when tied */
    struct tsr_model_layer   *layers;
    uint64_t                  parameters, bytes; /* as stored; tied tensors once */
    char                      hash[48];          /* over config.json and every weight byte */
    char                      source[48]; /* of a tessera.packed/1 folder: hash of the source of
                                            packing, "" if absent; else "" */
    struct tsr_model_overlay *packed;     /* of a tessera.packed/1 folder or of a checkpoint that
                                          another program quantized, else NULL; owned */
    const char               *packed_as;  /* "tessera.packed/1", "gptq", ...; NULL: none packed */
    struct tsr_prepacked     *prepacked;  /* of a prepacked file, whose weights are as a backend has
                                          them: no matrix has data and packed has formats only;
                                          else NULL; owned */
    struct tsr_model_storage *storage;    /* owns all of the above */
};

/* Reads a Hugging Face folder (config.json, generation_config.json, safetensors), a GGUF file, a prepacked
 * file, or the name `@demo`.  Quantized GGUF tensors that fit one of our layouts exactly become model.packed;
 * others are widened to F32.  Weights are read into sealed memory and every tensor is checked by name and
 * shape; unknown architecture or tensor, missing tensor, wrong shape and malformed files are TSR_E_INPUT.
 * headers_only: no weight is read, but for a head that may be a copy of the embedding; data pointers are NULL, hash
 * covers config and headers.  [setup] */
tsr_status tsr_model_load(struct tsr_model **m, const char *path, bool headers_only,
                          struct tsr_err *err);
/* The same, but the matrices of the decoder layers are read only to hash them; a layer's are in
 * memory while it is open.  So are packed weights; those of a head stay.  [setup] */
tsr_status tsr_model_load_streamed(struct tsr_model **m, const char *path, struct tsr_err *err);
void       tsr_model_destroy(struct tsr_model *m);
/* TSR_E_INPUT for a prepacked file, whose weights can be run and nothing else; `what` completes
 * "its weights cannot be ...". */
tsr_status tsr_model_plain(const struct tsr_model *m, const char *what, struct tsr_err *err);

/* TSR_E_INPUT for a model whose layers have linears other than q, k, v and o around attention; `what` completes
 * "which ...". */
tsr_status tsr_model_plain_attention(const struct tsr_model *m, const char *what,
                                     struct tsr_err *err);
/* True for a layer of the delta rule. */
static inline bool tsr_model_is_recurrent(const struct tsr_model_hparams *hp, uint64_t layer)
{
    return hp->recurrent && layer < hp->layers && hp->recurrent[layer];
}
/* Rows of a layer's q, k and v, and columns of its o. */
static inline uint64_t tsr_model_query_width(const struct tsr_model_hparams *hp, uint64_t layer)
{
    return tsr_model_is_recurrent(hp, layer) ? (uint64_t)hp->delta.key_heads * hp->delta.key_dim
           : hp->latent.rank ? (uint64_t)hp->heads * (hp->latent.nope + hp->latent.rope)
                             : (uint64_t)hp->heads * hp->head_dim;
}
static inline uint64_t tsr_model_attended_width(const struct tsr_model_hparams *hp, uint64_t layer)
{
    return tsr_model_is_recurrent(hp, layer) ? (uint64_t)hp->delta.value_heads * hp->delta.value_dim
                                             : tsr_model_o_cols(hp);
}

/* True for a model with transforms that run with it. */
static inline bool tsr_model_is_online(const struct tsr_model_hparams *hp)
{
    const struct tsr_model_online *o = &hp->online;
    return o->keys || o->down || o->expert || o->shared;
}

/* Reads a layer's matrices into newly allocated memory and sets their data.  Each open needs a
 * close; the last close frees.  Does nothing for a model that is fully in memory.  TSR_E_INPUT if a
 * file changed since the model was loaded.  [setup] */
tsr_status tsr_model_open_layer(const struct tsr_model *m, uint64_t layer, struct tsr_err *err);
void       tsr_model_close_layer(const struct tsr_model *m, uint64_t layer);
/* Bytes that open_layer() takes for a layer; 0 for a model that is read whole. */
uint64_t tsr_model_layer_bytes(const struct tsr_model *m, uint64_t layer);

/* Copies the stored tensors that a model with the packed weights `o` still needs, unchanged and
 * under their names, into a safetensors file at path; kept gets the hash over config.json and these
 * tensors, as model.hash is over all.  Those that it does not run (model/unused.h) are copied, too, without a
 * hash.  [setup] */
tsr_status tsr_model_copy_kept(const struct tsr_model *m, const struct tsr_model_overlay *o,
                               const char *path, char kept[48], struct tsr_err *err);

/* A text file of the model, such as "config.json" or "tokenizer.json": from the folder, or made from the
 * metadata of a GGUF file.  Fresh memory; NULL if there is none.  TSR_E_INPUT if a file was added, removed
 * or changed since the model was loaded.  [setup] */
tsr_status tsr_model_text(const struct tsr_model *m, const char *name, char **text, uint64_t *len,
                          struct tsr_err *err);
/* Names of the further texts that the model has, for text_names.h.  [setup] */
struct tsr_model_text_list;
tsr_status tsr_model_text_list(const struct tsr_model *m, struct tsr_model_text_list *l,
                               struct tsr_err *err);
/* TSR_E_INPUT: the file of that text, or the one that holds all texts, came, went or changed since the
 * model was loaded.  [setup] */
tsr_status tsr_model_text_unchanged(const struct tsr_model *m, const char *name,
                                    struct tsr_err *err);

/* Whether the model runs with so many positions: beyond those it was trained for rope and ALiBi go on by their
 * law, and the first call that asks for it logs a warning; learned positions end (TSR_E_INPUT).  [any] */
tsr_status tsr_model_context(const struct tsr_model *m, uint64_t positions, struct tsr_err *err);
/* The warning is another process's to give. */
void tsr_model_context_quiet(const struct tsr_model *m);

/* "model.layers.3.self_attn.q_proj"; the canonical Llama-style name for every family. */
const char *tsr_model_linear_name(enum tsr_linear_id id); /* "q_proj", ... */

/* The inputs of a layer's linears; q, k, v, z, b and a share one, gate and up too.  In a layer with experts FFN_IN is the
 * router's and the shared expert's, and each other expert has two: the rows of it that the expert takes, and what
 * its down takes. */
enum tsr_site {
    TSR_MODEL_SITE_ATTN_IN,
    TSR_MODEL_SITE_O_IN,
    TSR_MODEL_SITE_FFN_IN,
    TSR_MODEL_SITE_DOWN_IN,
    TSR_MODEL_SITES, /* of a model without experts */
    TSR_MODEL_SITE_SHARED_DOWN_IN = TSR_MODEL_SITES,
    TSR_MODEL_SITE_Q_B_IN, /* of latent attention */
    TSR_MODEL_SITE_KV_B_IN,
    TSR_MODEL_SITE_EXPERTS
};
#define TSR_MODEL_SITE_TEXT 32
enum tsr_site tsr_model_linear_site(enum tsr_linear_id id);
/* FFN_IN or DOWN_IN of an expert. */
enum tsr_site tsr_model_expert_site(uint64_t expert, enum tsr_site kind);
/* The same of a site: which expert's it is, and FFN_IN or DOWN_IN for that of an expert, shared or not; any other site is
 * its own kind. */
uint64_t      tsr_model_site_expert(enum tsr_site site);
enum tsr_site tsr_model_site_kind(enum tsr_site site);
/* The site whose columns a site has: an expert's FFN_IN has rows of the layer's FFN_IN; any other is its own. */
enum tsr_site tsr_model_site_columns(enum tsr_site site);
/* "attn_in", "o_in", "ffn_in", "down_in", "shared.down_in", "q_b_in", "kv_b_in", "experts.3.ffn_in", ... into buf; returns buf. */
const char *tsr_model_site_name(enum tsr_site site, char buf[TSR_MODEL_SITE_TEXT]);
#define TSR_MODEL_SITE_NAME(site)                                                                  \
    tsr_model_site_name((enum tsr_site)(site), (char[TSR_MODEL_SITE_TEXT]){ "" })
/* Columns of the input: of a layer, and the most that any layer has. */
uint64_t tsr_model_layer_site_cols(const struct tsr_model *m, uint64_t layer, enum tsr_site site);
uint64_t tsr_model_site_cols(const struct tsr_model *m, enum tsr_site site);
bool     tsr_model_layer_has_site(const struct tsr_model *m, uint64_t layer, enum tsr_site site);

/* i-th supported quant_method of checkpoints by other programs, with a description of what is
 * supported; NULL after the last. */
const char *tsr_model_checkpoint_get(uint64_t i, const char **summary);

/* Checks that a model exists at a path (no "@demo").  TSR_E_INPUT says what is there instead, and what a
 * model can be.  Does not read the files.  [setup] */
tsr_status tsr_model_check(const char *path, struct tsr_err *err);

/* True for a model argument that is a name and no path: "@demo", "hf:ORG/NAME".  [any] */
bool tsr_model_is_name(const char *path);

/* The folder or file of a model argument: the path itself; for "@demo" the installed or built demo model; for
 * "hf:ORG/NAME[@REVISION]" a snapshot in the local cache of the hub.  Fresh memory; not found: the error lists both places. */
tsr_status tsr_model_resolve(const char *path, char **folder, struct tsr_err *err);

/* The configuration of a model argument without weights, for callers that need shapes only: path itself if it ends in
 * ".json", or config.json of a folder with no weights in any format and no other model. NULL for anything else. Fresh
 * memory.  [setup] */
tsr_status tsr_model_config_alone(const char *path, char **config, struct tsr_err *err);

#endif
