/* model/family.h - a model family as its file describes it (docs/formats/family.md).
 *
 *   configs/families/NAME.yaml, or FILE --family_read.c--> struct tsr_model_family
 *   config.json + family                --config.c-->      struct tsr_model_config {hparams, has}
 *   family.roles + tensors of a file    --bind.c-->        the parts of struct tsr_model
 *
 * A description is a choice among forms that the engine implements.  It has no expressions and no loops. */
#ifndef TSR_MODEL_FAMILY_H
#define TSR_MODEL_FAMILY_H

#include "base/hash.h"
#include "config/config.h"
#include "model/model.h"

#define TSR_FAMILY_FORMAT "tessera.family/1"
#define TSR_FAMILY_KEYS   4  /* names of one value in config.json */
#define TSR_FAMILY_FLAGS  16 /* conditions of one family */
#define TSR_FAMILY_LIST   32 /* strings of a list, with the NULL that ends it */
#define TSR_FAMILY_ROLES  48
#define TSR_FAMILY_NAME   200 /* bytes of a tensor's name */
#define TSR_FAMILY_WORD   15  /* bytes of a family's name */
#define TSR_FAMILY_GGUF   24  /* values of the section `gguf` */

/* What a stored tensor contains.  *_ROWS: several matrices, one below the other; *_HEADS: their rows take turns,
 * [head][q,k,v][head_dim], and are split by copying.  CONV, DECAY, STEP and DELTA_NORM are of the delta rule.  EXPERT: a linear of one expert; EXPERTS: that
 * of all, [experts, out, in]; EXPERTS_GATE_UP: gate above up for each. */
// clang-format off
enum tsr_model_part {
    TSR_MODEL_PART_EMBED, TSR_MODEL_PART_POSITIONS, TSR_MODEL_PART_EMBED_NORM, TSR_MODEL_PART_FINAL_NORM,
    TSR_MODEL_PART_PROJECT_IN, TSR_MODEL_PART_PROJECT_OUT, TSR_MODEL_PART_HEAD,
    TSR_MODEL_PART_LINEAR, TSR_MODEL_PART_QKV_ROWS, TSR_MODEL_PART_QKV_HEADS, TSR_MODEL_PART_GATE_UP_ROWS,
    TSR_MODEL_PART_EXPERT, TSR_MODEL_PART_EXPERTS, TSR_MODEL_PART_EXPERTS_GATE_UP,
    TSR_MODEL_PART_ATTN_IN, TSR_MODEL_PART_ATTN_OUT, TSR_MODEL_PART_FFN_IN, TSR_MODEL_PART_FFN_OUT,
    TSR_MODEL_PART_Q_A_NORM, TSR_MODEL_PART_KV_A_NORM, TSR_MODEL_PART_Q_NORM, TSR_MODEL_PART_K_NORM, TSR_MODEL_PART_SINKS, TSR_MODEL_PART_ROUTER_CORRECTION,
    TSR_MODEL_PART_QZ_HEADS, TSR_MODEL_PART_QKVZ_HEADS, TSR_MODEL_PART_BA_HEADS,
    TSR_MODEL_PART_CONV, TSR_MODEL_PART_DECAY, TSR_MODEL_PART_STEP, TSR_MODEL_PART_DELTA_NORM
};
// clang-format on

/* What this config has; a role's weight or bias exists when all its bits are set.  The flags of a family
 * follow, the i-th as TSR_HAS_FLAG << 2 i if it is true and the bit above if it is false. */
#define TSR_HAS_ALWAYS     0u
#define TSR_HAS_AFFINE     1u /* norms have gains and biases */
#define TSR_HAS_HEAD       2u /* the output head is stored, not tied */
#define TSR_HAS_PROJECTION 4u /* the embedding is narrower than the model */
#define TSR_HAS_NEVER      8u
#define TSR_HAS_SHARED     16u /* layers with experts have a shared one */
#define TSR_HAS_Q_LATENT   32u /* queries are of a row of their own */
#define TSR_HAS_Q_WHOLE    64u /* they are not */
#define TSR_HAS_FLAG       (UINT64_C(1) << 8)

/* NAME.weight and NAME.bias; '#' in name is replaced by the layer number, '@' by the expert's. */
struct tsr_model_role {
    const char         *name;
    enum tsr_model_part part;
    enum tsr_linear_id  lin;          /* of LINEAR, EXPERT and EXPERTS */
    uint64_t            weight, bias; /* TSR_HAS_* that each needs */
    bool                bare;         /* name excludes the prefix */
    const char         *gguf;         /* name in a GGUF file; NULL: none */
    const char *gguf_up; /* the second name there: of EXPERTS_GATE_UP up's, of QKVZ_HEADS z's */
    const char *key;     /* the part's name in the family's file, which has it at `at` */
    const struct tsr_config_mark *at;
    bool        delta;       /* of layers of the delta rule, not of those of attention */
    bool        interleaved; /* EXPERTS_GATE_UP: row 2 i is gate's, row 2 i + 1 up's */
    bool        transposed;  /* EXPERTS*: [experts, in, out] */
    bool        either; /* EXPERTS*: transposed unless the shape is that of [experts, out, in] */
    bool        row;    /* ROUTER_CORRECTION: [1, experts] */
    const char *suffixes[2]; /* of weight and bias; NULL: ".weight", ".bias" */
    const char *each
        [2]; /* EXPERTS*: names of single experts, '@' in them, that a folder may have instead; of
                              * EXPERTS_GATE_UP gate's and up's; NULL: none */
};

/* How the value of a key becomes the number that is meant. */
enum tsr_model_value_form {
    TSR_MODEL_VALUE_AS_IT_IS,
    TSR_MODEL_VALUE_INVERSE,      /* 1 / v */
    TSR_MODEL_VALUE_INVERSE_ROOT, /* 1 / sqrt(v) */
    TSR_MODEL_VALUE_ROOT,         /* sqrt(v) */
    TSR_MODEL_VALUE_OF_HIDDEN,    /* v * hidden */
    TSR_MODEL_VALUE_ROOT_OF_HIDDEN
};

/* A number or word: the first key that config.json has, or the default. */
struct tsr_model_value {
    const char *keys[TSR_FAMILY_KEYS]; /* none: it is always the default */
    unsigned    n_keys;
    bool        has_def, has_null; /* has_null: null means something else than absent */
    double      def, null_value;
    const char *word; /* the default of a word */
    enum tsr_model_value_form form;
    const struct tsr_config_mark
        *at; /* in the family's file; NULL: it does not mention the value */
};

/* The values of a family: member, and the key and default that count if its file says nothing.  A default
 * of NAN: config.json must have the key; of 0 in a comment's sense: derived (docs/formats/family.md). */
#define TSR_MODEL_VALUES(X)                                                                        \
    X(vocab, "vocab_size", NAN, "Tokens in the vocabulary.")                                       \
    X(hidden, "hidden_size", NAN, "Width of the hidden state.")                                    \
    X(layers, "num_hidden_layers", NAN, "Decoder layers.")                                         \
    X(heads, "num_attention_heads", NAN, "Query heads.")                                           \
    X(kv_heads, "num_key_value_heads", 0, "Key-value heads; 0: as many as query heads.")           \
    X(head_dim, "head_dim", 0, "Width of a head; 0: hidden / heads.")                              \
    X(ffn, "intermediate_size", NAN, "Width of the feed-forward.")                                 \
    X(positions, "max_position_embeddings", 2048, "Longest context.")                              \
    X(position_offset, NULL, 0, "Row of a learned position: position + offset.")                   \
    X(embed_dim, NULL, 0, "Width of the embedding; 0: hidden.")                                    \
    X(eps, "rms_norm_eps", 1e-6, "Epsilon of the norms.")                                          \
    X(gain_offset, NULL, 0, "Added to the gains of norms.")                                        \
    X(activation, "hidden_act", NAN, "Activation of the feed-forward, a word.")                    \
    X(embed_scale, NULL, 1, "Factor of the embedding.")                                            \
    X(attn_scale, NULL, 0, "Factor of attention scores; 0: 1 / sqrt(head_dim).")                   \
    X(attn_softcap, NULL, 0, "Soft-cap of attention scores; 0: none.")                             \
    X(ffn_alpha, NULL, 1, "Factor in the sigmoid of a clamped feed-forward.")                      \
    X(ffn_limit, NULL, 1, "Limit of a clamped feed-forward.")                                      \
    X(residual_scale, NULL, 1, "Factor of a sub-layer's output before it is added.")               \
    X(logit_scale, NULL, 1, "Factor of the logits.")                                               \
    X(logit_softcap, NULL, 0, "Soft-cap of the logits; 0: none.")                                  \
    X(extra_layers, NULL, 0, "Stored layers after the last that are not read.")                    \
    X(tied, "tie_word_embeddings", 0, "1: the output head is the embedding.")                      \
    X(bos, "bos_token_id", -1, "Token that begins a text; -1: none.")                              \
    X(eos, "eos_token_id", -1, "Tokens that end a text; -1: none.")

/* Layers of which something holds. */
enum tsr_model_layers {
    TSR_MODEL_LAYERS_ALL,
    TSR_MODEL_LAYERS_NONE,
    TSR_MODEL_LAYERS_EVEN,
    TSR_MODEL_LAYERS_FROM,           /* i >= n */
    TSR_MODEL_LAYERS_EXCEPT_EVERY,   /* (i + 1) % n != 0 */
    TSR_MODEL_LAYERS_EVERY,          /* (i + 1) % n == 0 */
    TSR_MODEL_LAYERS_SLIDING,        /* those with a window */
    TSR_MODEL_LAYERS_SLIDING_OR_ALL, /* the same; all of a model without windows */
    TSR_MODEL_LAYERS_UNROTATED       /* those without rope */
};
struct tsr_model_layer_rule {
    enum tsr_model_layers  kind;
    struct tsr_model_value n;
    const char *list;   /* key of a list with an entry for each layer, which wins; or NULL */
    const char *except; /* key of a list of layers of which it does not hold; or NULL */
};

struct tsr_model_flag {
    const char *name;
    const char *key;
    bool        def;
    const char *words[2]; /* the key's words for false and true; NULL: it is false or true itself */
};

/* A key of config.json that a GGUF file says elsewhere, or not at all.  The first of tensor, key and rule
 * counts that is there, then the default. */
enum tsr_model_gguf_rule {
    TSR_MODEL_GGUF_RULE_NONE,
    TSR_MODEL_GGUF_RULE_HEAD_DIM,       /* the width of a head */
    TSR_MODEL_GGUF_RULE_HIDDEN_BY_HEADS /* hidden / heads */
};
struct tsr_model_gguf_value {
    const char                   *name;        /* the key of config.json */
    const char                   *tensor;      /* true if the file has it */
    const char                   *key;         /* of the metadata, after the architecture */
    enum tsr_model_gguf_rule      rule, other; /* other: in a model of `layers` layers */
    uint64_t                      layers;
    const struct tsr_config_node *def; /* a scalar; null: a stored 0 is null, too */
};

struct tsr_model_family {
    const char *name, *summary;
    /* Lists end with NULL.  The first architecture, model type and prefix are the ones that are written. */
    const char *architectures[TSR_FAMILY_LIST], *model_types[TSR_FAMILY_LIST];
    const char *prefixes[TSR_FAMILY_LIST]; /* of tensors, tried in order */
    const char *text; /* key of the object that has the text model's keys, or NULL */
    bool        flat; /* config.json may have them at its top instead */
    const char *ignored[TSR_FAMILY_LIST]; /* tensors: '#' a number, '*' at the end anything */
    const char *refused[TSR_FAMILY_LIST]; /* keys that must be false or absent */
    struct tsr_model_flag flag[TSR_FAMILY_FLAGS];
    unsigned              n_flags;
    struct tsr_model_role roles[TSR_FAMILY_ROLES]; /* the embedding first */
    uint32_t              n_roles;
#define X(member, key, def, help) struct tsr_model_value member;
    TSR_MODEL_VALUES(X)
#undef X
    uint32_t                 norm;                /* TSR_NORM_RMS or TSR_NORM_LAYER */
    enum tsr_norm_place      norms, norms_unless; /* norms_unless: where flag norms_if is false */
    int                      norms_if;            /* index of a flag, or -1 */
    int                      residual_from_norm, affine; /* index of a flag, or -1 */
    enum tsr_qk_norm         qk_norm;
    int                      qk_norm_if; /* index of a flag, or -1 */
    bool                     gated, clamped, attn_gate;
    enum tsr_model_positions position_form;
    struct {
        bool                   is;
        struct tsr_model_value q_rank, rank, nope, rope, v, eps;
    } latent;
    struct {
        bool adjacent,
            adjacent_unless; /* pairs (2 i, 2 i + 1); unless: where flag adjacent_if is false */
        int                    adjacent_if; /* index of a flag, or -1 */
        struct tsr_model_value theta, partial, width;
        bool                   partial_allowed;
        const char            *scaling[TSR_FAMILY_LIST]; /* words that are allowed; empty: all */
        const struct tsr_config_node *alias; /* a map from words of config.json to ours, or NULL */
        struct tsr_model_layer_rule   layers;
        bool                   sliding_apart; /* sliding layers have rope of their own, unscaled */
        struct tsr_model_value sliding_theta;
    } rope;
    struct {
        bool                        is;
        struct tsr_model_value      size;
        int                         when; /* index of a flag, or -1 */
        struct tsr_model_layer_rule layers;
        const char                 *types; /* key of the list of layer types, or NULL */
    } window;
    struct {
        bool                        is;
        struct tsr_model_value      count, used, width; /* width 0: ffn */
        struct tsr_model_value      jitter;
        enum tsr_model_router       router;
        bool                        normalize;
        int                         normalize_if; /* index of a flag, or -1 */
        struct tsr_model_layer_rule layers;
        struct tsr_model_value      scale;
        bool                        grouped;
        struct tsr_model_value      groups, groups_used;
        enum tsr_model_group_score  group_score;
        int                         grouped_if; /* index of a flag, or -1 */
        bool                        shared, shared_gated;
        struct tsr_model_value      shared_count, shared_width; /* width 0: that of an expert */
    } experts;
    struct {
        bool                        is;
        struct tsr_model_value      key_heads, value_heads, key_dim, value_dim, kernel;
        struct tsr_model_layer_rule layers;
        const char                 *types; /* key of the list of layer types, or NULL */
    } delta;
    struct { /* all empty: no GGUF file is read or written as this family */
        const char *architectures[TSR_FAMILY_LIST]; /* of files that are read */
        const char *write;                          /* of files that are written; NULL: none are */
        bool        pairs;                          /* rows of q and k: rotary pairs side by side */
        bool        gain_offset;                    /* gains of norms contain it */
        bool tiled; /* value heads of the delta rule: the first of each key head, the second ... */
        bool sections;        /* metadata have rope.dimension_sections */
        bool ignored_windows; /* llama.cpp attends to the whole text, whatever the metadata say */
        struct tsr_model_gguf_value value[TSR_FAMILY_GGUF];
        unsigned                    n_values;
    } gguf;
    char hash[TSR_HASH_TEXT]; /* of an added or installed file's text; "" for a built-in one */
    struct tsr_config_doc        *doc;           /* owns every string */
    const struct tsr_config_node *unstated_rope; /* rope scaling if config.json has none, or NULL */
};

/* Reads a family from YAML.  Errors of the file go to d; its memory belongs to the caller. */
tsr_status tsr_model_family_read(struct tsr_model_family **f, const char *name, const char *text,
                                 uint64_t len, struct tsr_diag *d, struct tsr_err *err);
void       tsr_model_family_destroy(struct tsr_model_family *f);

/* The family for an entry of `architectures`, or, where that is NULL, for a model type: of those added,
 * then of those built in, then of the user's (base/user.h).  *f NULL: there is none.  [any] */
tsr_status tsr_model_family_find(const struct tsr_model_family **f, const char *architecture,
                                 const char *model_type, struct tsr_err *err);
/* What tells families of one architecture of GGUF files apart. */
enum tsr_model_gguf_kind { TSR_MODEL_GGUF_DENSE, TSR_MODEL_GGUF_EXPERTS, TSR_MODEL_GGUF_SIGMOID };
/* The family that GGUF files of this architecture are read as; *f NULL: there is none.  Of several, one of that kind
 * counts, and then one that reads a window if the file has one.  [any] */
tsr_status tsr_model_family_find_gguf(const struct tsr_model_family **f, const char *architecture,
                                      enum tsr_model_gguf_kind kind, bool windows,
                                      struct tsr_err *err);
/* Adds a family file; it wins over built-in ones.  TSR_E_INPUT with the file's first error.  [setup] */
tsr_status tsr_model_family_add(const char *path, struct tsr_diag *d, struct tsr_err *err);
/* True if a role exists in a layer: experts and a feed-forward exclude each other. */
bool tsr_model_role_in_layer(const struct tsr_model_hparams *hp, const struct tsr_model_role *r,
                             uint64_t layer);
/* The EXPERT role of a kind that a folder may have in place of a stacked one.  False: the family names none. */
bool tsr_model_role_each(const struct tsr_model_role *r, enum tsr_linear_id kind,
                         struct tsr_model_role *one);
/* The role of one expert of a TSR_MODEL_PART_EXPERT, with its name in buf.  False: too long. */
bool tsr_model_role_of_expert(const struct tsr_model_role *r, uint64_t expert,
                              char buf[TSR_FAMILY_NAME + 24], struct tsr_model_role *one);
/* The role of a linear of all experts in one tensor [experts, out, in], whatever form the family has them in: as
 * containers without forms of families store them. */
void tsr_model_role_stacked(const struct tsr_model_role *r, enum tsr_linear_id kind,
                            struct tsr_model_role *one);
/* The i-th role of such a container for a role that is none of experts'.  QKVZ_HEADS is two there, QKV_ROWS and z, others
 * are themselves.  False: there are no more. */
bool tsr_model_role_split(const struct tsr_model_role *r, unsigned i, struct tsr_model_role *one);
bool tsr_model_part_is_expert(enum tsr_model_part part);
/* Whether a role has that linear of the experts. */
bool tsr_model_role_has_expert(const struct tsr_model_role *r, enum tsr_linear_id kind);
/* The suffix of a role's tensor: ".weight" and ".bias" unless the family says otherwise. */
const char *tsr_model_role_suffix(const struct tsr_model_role *r, const char *suffix);
/* How many were added.  [any] */
unsigned tsr_model_family_added(void);
/* i-th family: the added ones, then the built-in ones, then the user's; *f NULL after the last.  [any] */
tsr_status tsr_model_family_at(uint64_t i, const struct tsr_model_family **f, struct tsr_err *err);

/* "mine.yaml:12:3" for a place in an added file, "the family llama" for one that is built in. */
#define TSR_FAMILY_PLACE 400
const char *tsr_model_family_place(const struct tsr_model_family *f,
                                   const struct tsr_config_mark *at, char text[TSR_FAMILY_PLACE]);

/* TSR_E_INPUT about what a family's file says at that place (NULL: nowhere in particular): "FILE:12:3: ...". */
tsr_status tsr_model_family_fail(const struct tsr_model_family *f, const struct tsr_config_mark *at,
                                 struct tsr_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

bool tsr_model_part_is_norm(enum tsr_model_part part);
/* True for a vector whose tensor has the role's name alone, without a suffix. */
bool tsr_model_part_is_unsuffixed(enum tsr_model_part part);

/* The linears of a tensor with several of a layer, and how their rows take turns: `groups` times; 0: one matrix below
 * the other.  0 linears: the part is no such tensor, or one of experts. */
#define TSR_MODEL_FUSED 4
unsigned tsr_model_fused(const struct tsr_model_hparams *hp, enum tsr_model_part part,
                         enum tsr_linear_id ids[TSR_MODEL_FUSED], uint32_t *groups);

/* A tensor's name: the pattern with the number of the layer for '#', between prefix and suffix.  False: it is
 * longer than cap. */
bool tsr_model_tensor_name(char *name, size_t cap, const char *prefix, const char *pattern,
                           uint64_t layer, const char *suffix);
/* The same for a role and the prefix of names, of which "bare" ones take what stands before the decoder:
 * "language_model." of "language_model.model.", nothing of "model.". */
bool tsr_model_role_name(char *name, size_t cap, const struct tsr_model_role *r, const char *prefix,
                         uint64_t layer, const char *suffix);

/* True if name is pattern with a decimal number in place of '#'; '*' at its end matches any rest. */
bool tsr_model_tensor_name_matches(const char *pattern, const char *name);

#endif
