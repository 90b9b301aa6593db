/* Maps the tensors of a GGUF file to their names in a Hugging Face checkpoint, and to the order of
 * their rows. */
#include "checkpoint/gguf/gguf.h"

#include <stdio.h>
#include <string.h>

/* '#' is replaced by the layer number. */
struct name {
    const char         *here, *there;
    enum tsr_gguf_order order; /* PAIRS only if the architecture permutes */
    bool                kv;    /* of key-value heads */
};

#define COMMON                                                                                     \
    { .here = "token_embd", .there = "model.embed_tokens" },                                       \
        { .here = "output_norm", .there = "model.norm" },                                          \
        { .here = "output", .there = "lm_head" },                                                  \
        { .here = "blk.#.attn_norm", .there = "model.layers.#.input_layernorm" },                  \
        { .here = "blk.#.attn_output", .there = "model.layers.#.self_attn.o_proj" },               \
    {                                                                                              \
        .here = "blk.#.ffn_down", .there = "model.layers.#.mlp.down_proj"                          \
    }

#define APART                                                                                      \
    { .here = "blk.#.ffn_gate", .there = "model.layers.#.mlp.gate_proj" },                         \
        { .here = "blk.#.ffn_up", .there = "model.layers.#.mlp.up_proj" },                         \
    {                                                                                              \
        .here = "blk.#.attn_v", .there = "model.layers.#.self_attn.v_proj"                         \
    }

/* Rows in the order of the Hugging Face checkpoint. */
#define QK_PLAIN                                                                                   \
    { .here = "blk.#.attn_q", .there = "model.layers.#.self_attn.q_proj" },                        \
    {                                                                                              \
        .here = "blk.#.attn_k", .there = "model.layers.#.self_attn.k_proj"                         \
    }

#define NORMS_AROUND                                                                               \
    { .here = "blk.#.post_attention_norm", .there = "model.layers.#.post_attention_layernorm" },   \
        { .here = "blk.#.ffn_norm", .there = "model.layers.#.pre_feedforward_layernorm" },         \
    {                                                                                              \
        .here = "blk.#.post_ffw_norm", .there = "model.layers.#.post_feedforward_layernorm"        \
    }

static const struct name llama[] = {
    COMMON,
    APART,
    { "blk.#.attn_q", "model.layers.#.self_attn.q_proj", TSR_GGUF_PAIRS, false },
    { "blk.#.attn_k", "model.layers.#.self_attn.k_proj", TSR_GGUF_PAIRS, true },
    { .here = "blk.#.ffn_norm", .there = "model.layers.#.post_attention_layernorm" },
    { 0 },
};

static const struct name qwen2[] = {
    COMMON,   APART,
    QK_PLAIN, { .here = "blk.#.ffn_norm", .there = "model.layers.#.post_attention_layernorm" },
    { 0 },
};

#define QK_NORM                                                                                    \
    { .here = "blk.#.attn_q_norm", .there = "model.layers.#.self_attn.q_norm" },                   \
    {                                                                                              \
        .here = "blk.#.attn_k_norm", .there = "model.layers.#.self_attn.k_norm"                    \
    }

static const struct name qwen3[] = {
    COMMON,
    APART,
    QK_NORM,
    QK_PLAIN,
    { .here = "blk.#.ffn_norm", .there = "model.layers.#.post_attention_layernorm" },
    { 0 },
};

static const struct name olmo2[] = {
    COMMON,
    APART,
    QK_NORM,
    QK_PLAIN,
    { .here = "blk.#.post_attention_norm", .there = "model.layers.#.post_attention_layernorm" },
    { .here = "blk.#.post_ffw_norm", .there = "model.layers.#.post_feedforward_layernorm" },
    { 0 },
};

static const struct name gemma3[] = {
    COMMON, APART, QK_NORM, QK_PLAIN, NORMS_AROUND, { 0 },
};

static const struct name gemma2[] = {
    COMMON, APART, QK_PLAIN, NORMS_AROUND, { 0 },
};

static const struct name phi3[] = {
    COMMON,
    { .here = "blk.#.attn_qkv", .there = "model.layers.#.self_attn.qkv_proj" },
    { .here = "blk.#.ffn_up", .there = "model.layers.#.mlp.gate_up_proj" },
    { .here = "blk.#.ffn_norm", .there = "model.layers.#.post_attention_layernorm" },
    { 0 },
};

static const struct name bloom[] = {
    { .here = "token_embd", .there = "transformer.word_embeddings" },
    { .here = "token_embd_norm", .there = "transformer.word_embeddings_layernorm" },
    { .here = "output_norm", .there = "transformer.ln_f" },
    { .here = "output", .there = "lm_head" },
    { .here = "blk.#.attn_norm", .there = "transformer.h.#.input_layernorm" },
    { "blk.#.attn_qkv", "transformer.h.#.self_attention.query_key_value", TSR_GGUF_PARTS, false },
    { .here = "blk.#.attn_output", .there = "transformer.h.#.self_attention.dense" },
    { .here = "blk.#.ffn_norm", .there = "transformer.h.#.post_attention_layernorm" },
    { .here = "blk.#.ffn_up", .there = "transformer.h.#.mlp.dense_h_to_4h" },
    { .here = "blk.#.ffn_down", .there = "transformer.h.#.mlp.dense_4h_to_h" },
    { 0 },
};

static const struct {
    const char        *arch;
    const struct name *names;
} families[] = {
    { "llama", llama },   { "qwen2", qwen2 }, { "gemma2", gemma2 },
    { "phi3", phi3 },     { "bloom", bloom }, { "qwen3", qwen3 },
    { "gemma3", gemma3 }, { "olmo2", olmo2 }, { "granite", llama },
};

/* Length of the prefix of name that the pattern matches, 0: none; *digits: the number at '#'. */
static size_t match(const char *pattern, const char *name, const char **digits, int *n_digits)
{
    const char *at = name;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*at++ != *pattern)
                return 0;
            continue;
        }
        *digits = at;
        while (*at >= '0' && *at <= '9')
            at++;
        *n_digits = (int)(at - *digits);
        /* in the form that all writers use: a layer has one name */
        if (*n_digits == 0 || *n_digits > 6 || (**digits == '0' && *n_digits > 1))
            return 0;
    }
    return (size_t)(at - name);
}

static bool rope_factors(const char *name)
{
    static const char *const names[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                         "rope_factors_short.weight" };
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void fill(struct tsr_gguf_map *map, const struct name *n, const char *digits, int n_digits,
                 const char *suffix)
{
    const char *hash = strchr(n->there, '#');
    if (hash)
        (void)snprintf(map->name, sizeof map->name, "%.*s%.*s%s%s", (int)(hash - n->there),
                       n->there, n_digits, digits, hash + 1, suffix);
    else
        (void)snprintf(map->name, sizeof map->name, "%s%s", n->there, suffix);
}

tsr_status tsr_gguf_map(const struct tsr_gguf *g, const char *arch, uint32_t heads,
                        uint32_t kv_heads, const struct tsr_gguf_tensor *t,
                        struct tsr_gguf_map *map, bool *is, struct tsr_err *err)
{
    const struct name *names = NULL;
    memset(map, 0, sizeof *map);
    *is = !rope_factors(t->name);
    if (!*is)
        return TSR_OK;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(arch, families[i].arch) == 0)
            names = families[i].names;
    for (const struct name *n = names; n && n->here; n++) {
        const char *digits = "", *suffix;
        int         n_digits = 0;
        size_t      len = match(n->here, t->name, &digits, &n_digits);
        suffix = t->name + len;
        if (!len || (strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0))
            continue;
        fill(map, n, digits, n_digits, suffix);
        map->order = n->order;
        map->heads = n->kv ? kv_heads : heads;
        size_t end = strlen(n->here);
        map->plus_one =
            (names == gemma2 || names == gemma3) && strcmp(n->here + end - 4, "norm") == 0;
        return TSR_OK;
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: tensor \"%s\" is unknown: a model of the architecture %s has none of that "
                    "name",
                    g->path, t->name, arch);
}

uint64_t tsr_gguf_row(const struct tsr_gguf_map *map, uint64_t rows, uint64_t r)
{
    uint64_t per = map->order == TSR_GGUF_PARTS ? 3 * (uint64_t)map->heads : map->heads, dim, head,
             part, i;
    if (map->order == TSR_GGUF_PLAIN || per == 0)
        return r;
    dim = rows / per;
    if (map->order == TSR_GGUF_PAIRS) {
        head = r / dim;
        part = r % dim / (dim / 2);
        i = r % (dim / 2);
        return head * dim + 2 * i + part;
    }
    head = r / (3 * dim);
    part = r / dim % 3;
    i = r % dim;
    return (part * map->heads + head) * dim + i;
}
