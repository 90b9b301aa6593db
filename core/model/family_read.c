/* A family from its YAML file. */
#include "model/family_internal.h"

#include "base/mem.h"
#include "tessera/backend.h"

#include <stdlib.h>
#include <string.h>

#define TSR_COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- tables of keys ------------------------------------------------------------------------------- */

struct head {
    const char                   *family, *name, *summary, *text;
    int32_t                       flat;
    const struct tsr_config_node *architectures, *model_types, *prefixes, *ignored, *refused,
        *flags, *config, *block, *latent, *rope, *window, *experts, *delta, *tensors, *gguf;
};
struct block {
    int64_t                       norm, attention, feed_forward, positions;
    const struct tsr_config_node *norms, *qk_norm;
    const char                   *residual_from_norm, *affine;
};
struct rope {
    const struct tsr_config_node *pairs, *theta, *partial, *width, *scaling, *alias, *unstated,
        *layers, *sliding;
};
struct sliding {
    const struct tsr_config_node *theta;
};
struct window {
    const struct tsr_config_node *size, *layers;
    const char                   *when, *types;
};
struct choice { /* {if: FLAG, then: WORD, else: WORD} */
    const char *if_, *then, *else_;
};

#define TEXT(S, n, f, h)                                                                           \
    {                                                                                              \
        .name = (n), .help = (h), .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, f, const char *), \
        .def = {                                                                                   \
            .s = ""                                                                                \
        }                                                                                          \
    }
static const struct tsr_choice norm_words[] = { { "rms", "root mean square", TSR_NORM_RMS },
                                                { "layer", "mean and variance", TSR_NORM_LAYER } };
enum { GATED, PLAIN, CLAMPED };
static const struct tsr_choice ffn_words[] = { { "gated", "down(f(gate) * up)", GATED },
                                               { "plain", "down(f(up))", PLAIN },
                                               { "clamped",
                                                 "down((up + 1) * gate * sigmoid(alpha * gate)), "
                                                 "both within a limit",
                                                 CLAMPED } };
static const struct tsr_choice attention_words[] = {
    { "plain", "o(attention)", 0 }, { "gated", "o(attention * sigmoid(gate))", 1 }
};
static const struct tsr_choice position_words[] = {
    { "rope", "queries and keys are rotated", TSR_MODEL_POSITIONS_ROPE },
    { "learned", "a row of a table is added", TSR_MODEL_POSITIONS_LEARNED },
    { "alibi", "scores fall with the distance", TSR_MODEL_POSITIONS_ALIBI }
};
static const struct tsr_choice pair_words[] = { { "halves", "columns i and i + r/2", 0 },
                                                { "adjacent", "columns 2i and 2i + 1", 1 } };
static const struct tsr_choice place_words[] = {
    { "before", "h += f(norm(h))", TSR_MODEL_NORM_BEFORE },
    { "after", "h = norm(h + f(h))", TSR_MODEL_NORM_AFTER },
    { "around", "h += norm(f(norm(h)))", TSR_MODEL_NORM_AROUND },
    { "out", "h += norm(f(h))", TSR_MODEL_NORM_OUT },
    { "parallel", "h += attention(norm(h)) + feed_forward(norm(h))", TSR_MODEL_NORM_PARALLEL }
};
static const struct tsr_choice qk_words[] = {
    { "none", "no norm of queries and keys", TSR_MODEL_QK_NORM_NONE },
    { "head", "each head, one gain for all", TSR_MODEL_QK_NORM_HEAD },
    { "heads", "each head, a gain for each", TSR_MODEL_QK_NORM_HEADS },
    { "width", "the whole width", TSR_MODEL_QK_NORM_WIDTH }
};
static const struct tsr_option head_options[] = {
    TEXT(struct head, "family", family, "Version of this form: " TSR_FAMILY_FORMAT "."),
    TEXT(struct head, "name", name, "Name of the family."),
    TEXT(struct head, "summary", summary, "What it is, in one line."),
    TEXT(struct head, "text", text, "Key of the object with the text model's keys."),
    TSR_OPTION_BOOL(struct head, flat, false, "Without that object they are at the top."),
    TSR_OPTION_NODE(struct head, architectures, "Entries of architectures in config.json."),
    TSR_OPTION_NODE(struct head, model_types, "Values of model_type in config.json."),
    TSR_OPTION_NODE(struct head, prefixes, "Prefixes of tensor names, tried in order."),
    TSR_OPTION_NODE(struct head, ignored, "Tensors that are not read."),
    TSR_OPTION_NODE(struct head, refused, "Keys of config.json that must be false or absent."),
    TSR_OPTION_NODE(struct head, flags, "Conditions."),
    TSR_OPTION_NODE(struct head, config, "Where values are in config.json."),
    TSR_OPTION_NODE(struct head, block, "Form of a decoder layer."),
    TSR_OPTION_NODE(struct head, latent, "Keys and values as products of one row of a token."),
    TSR_OPTION_NODE(struct head, rope, "Rotary positions."),
    TSR_OPTION_NODE(struct head, window, "Layers that see a part of the context."),
    TSR_OPTION_NODE(struct head, experts, "Layers with experts in place of a feed-forward."),
    TSR_OPTION_NODE(struct head, delta, "Layers of the gated delta rule in place of attention."),
    TSR_OPTION_NODE(struct head, tensors, "Names of tensors."),
    TSR_OPTION_NODE(struct head, gguf, "What differs in a GGUF file."),
};
static const struct tsr_option block_options[] = {
    TSR_OPTION_ENUM(struct block, norm, TSR_NORM_RMS, norm_words, "Kind of the norms."),
    TSR_OPTION_ENUM(struct block, attention, 0, attention_words, "Form of attention."),
    TSR_OPTION_ENUM(struct block, feed_forward, GATED, ffn_words, "Form of the feed-forward."),
    TSR_OPTION_ENUM(struct block, positions, TSR_MODEL_POSITIONS_ROPE, position_words,
                    "Form of positions."),
    TSR_OPTION_NODE(struct block, norms, "Where norms stand."),
    TSR_OPTION_NODE(struct block, qk_norm, "Norm of queries and keys."),
    TEXT(struct block, "residual_from_norm", residual_from_norm,
         "Flag: the residual is the norm's output."),
    TEXT(struct block, "affine", affine, "Flag: norms have gains and biases."),
};
static const struct tsr_option rope_options[] = {
    TSR_OPTION_NODE(struct rope, pairs, "Columns that rotate together."),
    TSR_OPTION_NODE(struct rope, theta, "Base of the frequencies."),
    TSR_OPTION_NODE(struct rope, partial, "Rotated part of a head."),
    TSR_OPTION_NODE(struct rope, width, "Rotated columns of a head, which stand for a part."),
    TSR_OPTION_NODE(struct rope, scaling, "Scaling laws that are allowed."),
    TSR_OPTION_NODE(struct rope, alias, "Other words for scaling laws."),
    TSR_OPTION_NODE(struct rope, unstated, "Scaling of a model that states none."),
    TSR_OPTION_NODE(struct rope, layers, "Layers that rotate."),
    TSR_OPTION_NODE(struct rope, sliding, "Rope of layers with a window, unscaled."),
};
static const struct tsr_option sliding_options[] = {
    TSR_OPTION_NODE(struct sliding, theta, "Base of the frequencies."),
};
static const struct tsr_option window_options[] = {
    TSR_OPTION_NODE(struct window, size, "Tokens that a layer sees; 0: all."),
    TSR_OPTION_NODE(struct window, layers, "Layers with a window."),
    TEXT(struct window, "when", when, "Flag: there are windows."),
    TEXT(struct window, "types", types, "Key of a list of layer types, which wins."),
};
static const struct tsr_option choice_options[] = {
    TEXT(struct choice, "if", if_, "A flag."),
    TEXT(struct choice, "then", then, "Where it is true."),
    TEXT(struct choice, "else", else_, "Where it is false."),
};

/* ---- forms --------------------------------------------------------------------------------------------- */

/* WORD, or {if: FLAG, then: WORD, else: WORD}; *flag -1 for a word alone. */
static void read_choice(struct tsr_family_reading *r, const struct tsr_config_node *n,
                        const char *what, const struct tsr_choice *of, size_t n_of, int *flag,
                        int64_t *then, int64_t *other)
{
    *flag = -1;
    if (!n)
        return;
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        if (tsr_family_word(r, n, what, of, n_of, then))
            *other = *then;
        return;
    }
    struct choice c = { 0 };
    TSR_FAMILY_FILL(r, choice_options, n, what, &c);
    *flag = tsr_family_flag(r, &n->mark, c.if_);
    const struct tsr_config_node *a = tsr_config_node_get(n, "then"),
                                 *b = tsr_config_node_get(n, "else");
    if (!a || !b || !c.if_ || !*c.if_)
        tsr_config_diag_error(r->d, &n->mark, "as in {if: FLAG, then: before, else: after}",
                              "%s needs if, then and else", what);
    if (a)
        (void)tsr_family_word(r, a, "then", of, n_of, then);
    if (b)
        (void)tsr_family_word(r, b, "else", of, n_of, other);
}

static void read_block(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct block             b = { .norm = TSR_NORM_RMS,
                                   .feed_forward = GATED,
                                   .positions = TSR_MODEL_POSITIONS_ROPE };
    int64_t                  then = TSR_MODEL_NORM_BEFORE, other = TSR_MODEL_NORM_BEFORE;
    if (map)
        TSR_FAMILY_FILL(r, block_options, map, "'block'", &b);
    f->norm = (uint32_t)b.norm;
    f->attn_gate = b.attention == 1;
    f->gated = b.feed_forward != PLAIN;
    f->clamped = b.feed_forward == CLAMPED;
    f->position_form = (enum tsr_model_positions)b.positions;
    read_choice(r, b.norms, "norms", place_words, TSR_COUNT(place_words), &f->norms_if, &then,
                &other);
    f->norms = (enum tsr_norm_place)then;
    f->norms_unless = (enum tsr_norm_place)other;
    then = other = TSR_MODEL_QK_NORM_NONE;
    read_choice(r, b.qk_norm, "qk_norm", qk_words, TSR_COUNT(qk_words), &f->qk_norm_if, &then,
                &other);
    f->qk_norm = (enum tsr_qk_norm)then;
    if (other != then && other != TSR_MODEL_QK_NORM_NONE)
        tsr_config_diag_error(r->d, &b.qk_norm->mark, NULL, "'else' of qk_norm must be none");
    f->residual_from_norm = f->affine = -1;
    if (map) {
        f->residual_from_norm = tsr_family_flag(r, &map->mark, b.residual_from_norm);
        f->affine = tsr_family_flag(r, &map->mark, b.affine);
    }
}

/* n if it is a mapping, else NULL: an error unless it is absent. */
static const struct tsr_config_node *mapping(struct tsr_family_reading    *r,
                                             const struct tsr_config_node *n, const char *key)
{
    if (!n || n->kind == TSR_CONFIG_NODE_MAP)
        return n;
    tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' is not a mapping", key);
    return NULL;
}

static void read_rope(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct rope              o = { 0 };
    int64_t                  then = 0, other = 0;
    f->rope.adjacent_if = -1;
    f->rope.theta = (struct tsr_model_value){
        .keys = { "rope_theta" }, .n_keys = 1, .has_def = true, .def = 10000
    };
    f->rope.partial = (struct tsr_model_value){
        .keys = { "partial_rotary_factor" }, .n_keys = 1, .has_def = true, .def = 1
    };
    f->rope.width = (struct tsr_model_value){ .has_def = true };
    f->rope.sliding_theta = f->rope.theta;
    if (!map)
        return;
    TSR_FAMILY_FILL(r, rope_options, map, "'rope'", &o);
    read_choice(r, o.pairs, "pairs", pair_words, TSR_COUNT(pair_words), &f->rope.adjacent_if, &then,
                &other);
    f->rope.adjacent = then == 1;
    f->rope.adjacent_unless = other == 1;
    tsr_family_value(r, o.theta, "theta", false, &f->rope.theta);
    f->rope.sliding_theta = f->rope.theta;
    f->rope.partial_allowed = o.partial != NULL;
    tsr_family_value(r, o.partial, "partial", false, &f->rope.partial);
    tsr_family_value(r, o.width, "width", false, &f->rope.width);
    tsr_family_strings(r, o.scaling, "scaling", f->rope.scaling, TSR_FAMILY_LIST);
    f->rope.alias = mapping(r, o.alias, "alias");
    f->unstated_rope = mapping(r, o.unstated, "unstated");
    tsr_family_rule(r, o.layers, "layers", &f->rope.layers);
    if (o.sliding) {
        struct sliding s = { 0 };
        TSR_FAMILY_FILL(r, sliding_options, o.sliding, "'sliding'", &s);
        f->rope.sliding_apart = true;
        tsr_family_value(r, s.theta, "theta", false, &f->rope.sliding_theta);
    }
}

static void read_window(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct window            w = { 0 };
    f->window.when = -1;
    if (!map)
        return;
    TSR_FAMILY_FILL(r, window_options, map, "'window'", &w);
    f->window.is = true;
    f->window.size = (struct tsr_model_value){
        .keys = { "sliding_window" }, .n_keys = 1, .has_def = true, .has_null = true
    };
    tsr_family_value(r, w.size, "size", false, &f->window.size);
    f->window.size.has_null = true; /* null: none */
    f->window.when = tsr_family_flag(r, &map->mark, w.when);
    f->window.types = tsr_family_some(w.types);
    tsr_family_rule(r, w.layers, "layers", &f->window.layers);
}

/* ---- the file ------------------------------------------------------------------------------------------- */

/* The form, before anything else: another file gets one error. */
static bool is_family(struct tsr_family_reading *r, const struct tsr_config_node *root)
{
    const struct tsr_config_node *form = tsr_config_node_get(root, "family");
    if (form && form->kind == TSR_CONFIG_NODE_SCALAR && strcmp(form->text, TSR_FAMILY_FORMAT) == 0)
        return true;
    if (form && form->kind == TSR_CONFIG_NODE_SCALAR)
        tsr_config_diag_error(r->d, &form->mark, NULL,
                              "the form '%.40s' is not known; " TSR_FAMILY_FORMAT " is",
                              form->text);
    else
        tsr_config_diag_error(r->d, &root->mark,
                              "a family file begins with family: " TSR_FAMILY_FORMAT,
                              "this is not a family file");
    return false;
}

static void read_head(struct tsr_family_reading *r, const struct tsr_config_node *root)
{
    struct tsr_model_family *f = r->f;
    struct head              h = { 0 };
    uint64_t                 before = tsr_config_diag_errors(r->d);
    if (!is_family(r, root))
        return;
    TSR_FAMILY_FILL(r, head_options, root, "a family", &h);
    f->name = h.name ? h.name : "";
    f->summary = h.summary ? h.summary : "";
    f->text = tsr_family_some(h.text);
    f->flat = h.flat != 0;
    tsr_family_strings(r, h.architectures, "architectures", f->architectures, TSR_FAMILY_LIST);
    tsr_family_strings(r, h.model_types, "model_types", f->model_types, TSR_FAMILY_LIST);
    if (!h.architectures || !h.model_types)
        tsr_config_diag_error(r->d, &root->mark, NULL,
                              "a family needs both architectures and model_types");
    tsr_family_strings(r, h.prefixes, "prefixes", f->prefixes, TSR_FAMILY_LIST);
    if (!f->prefixes[0])
        f->prefixes[0] = "";
    tsr_family_strings(r, h.ignored, "ignored", f->ignored, TSR_FAMILY_LIST);
    tsr_family_strings(r, h.refused, "refused", f->refused, TSR_FAMILY_LIST);
    tsr_family_flags(r, h.flags);
    tsr_family_config(r, h.config);
    read_block(r, h.block);
    tsr_family_latent(r, h.latent);
    read_rope(r, h.rope);
    read_window(r, h.window);
    tsr_family_experts(r, h.experts);
    tsr_family_delta(r, h.delta);
    tsr_family_tensors(r, h.tensors, &root->mark);
    tsr_family_gguf(r, h.gguf);
    if (tsr_config_diag_errors(r->d) == before)
        tsr_family_check(r, h.tensors ? &h.tensors->mark : &root->mark);
    if (h.gguf && tsr_config_diag_errors(r->d) == before)
        tsr_family_gguf_check(r, &h.gguf->mark);
}

tsr_status tsr_model_family_read(struct tsr_model_family **out, const char *name, const char *text,
                                 uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_family_reading r = { .f = tsr_new(1, sizeof *r.f), .d = d };
    if (!r.f)
        return tsr_fail_nomem(err, sizeof *r.f, name);
    tsr_status st = tsr_config_doc_parse(&r.f->doc, name, text, len, d, err);
    if (st == TSR_OK) {
        const struct tsr_config_node *root = tsr_config_doc_root(r.f->doc);
        if (root)
            read_head(&r, root);
        st = tsr_config_diag_status(d, err);
    }
    if (st != TSR_OK) {
        tsr_model_family_destroy(r.f);
        return st;
    }
    *out = r.f;
    return TSR_OK;
}

void tsr_model_family_destroy(struct tsr_model_family *f)
{
    if (!f)
        return;
    tsr_config_doc_destroy(f->doc);
    free(f);
}
