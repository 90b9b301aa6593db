/* Where a family's values are in config.json, and what its tensors are called. */
#include "model/family_internal.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- config ------------------------------------------------------------------------------------------ */

#define X(member, key_, def_, help_)                                                               \
    { .name = #member,                                                                             \
      .help = (help_),                                                                             \
      .type = TSR_OPT_NODE,                                                                        \
      .offset = offsetof(struct values, member) },
struct values {
#define Y(member, key_, def_, help_) const struct tsr_config_node *member;
    TSR_MODEL_VALUES(Y)
#undef Y
};
static const struct tsr_option value_options[] = { TSR_MODEL_VALUES(X) };
#undef X

void tsr_family_config(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct values            v = { 0 };
#define X(member, key_, def_, help_)                                                               \
    f->member = (struct tsr_model_value){ .keys = { key_ },                                        \
                                          .n_keys = (const char *)(key_) != NULL,                  \
                                          .has_def = !isnan((double)(def_)),                       \
                                          .def = isnan((double)(def_)) ? 0 : (double)(def_) };
    TSR_MODEL_VALUES(X)
#undef X
    f->activation.word = "silu";
    f->bos.has_null = f->eos.has_null = true;
    f->bos.null_value = f->eos.null_value = -1;
    f->kv_heads.has_null = true; /* null: as many as query heads */
    if (map)
        TSR_FAMILY_FILL(r, value_options, map, "'config'", &v);
#define X(member, key_, def_, help_)                                                               \
    tsr_family_value(r, v.member, #member, &f->member == &f->activation, &f->member);
    TSR_MODEL_VALUES(X)
#undef X
}

/* ---- tensors ------------------------------------------------------------------------------------------ */

#define DELTA "delta_" /* begins the names of parts of the delta rule */
static const struct part {
    const char         *name;
    enum tsr_model_part part;
    enum tsr_linear_id  lin;
    bool                layer; /* needs a '#' */
    const char         *gguf;  /* the common name in a GGUF file, or NULL */
} parts[] = {
    { "embed", TSR_MODEL_PART_EMBED, 0, false, "token_embd" },
    { "positions", TSR_MODEL_PART_POSITIONS, 0, false, "position_embd" },
    { "embed_norm", TSR_MODEL_PART_EMBED_NORM, 0, false, "token_embd_norm" },
    { "final_norm", TSR_MODEL_PART_FINAL_NORM, 0, false, "output_norm" },
    { "project_in", TSR_MODEL_PART_PROJECT_IN, 0, false, NULL },
    { "project_out", TSR_MODEL_PART_PROJECT_OUT, 0, false, NULL },
    { "head", TSR_MODEL_PART_HEAD, 0, false, "output" },
    { "attn_in", TSR_MODEL_PART_ATTN_IN, 0, true, "blk.#.attn_norm" },
    { "attn_out", TSR_MODEL_PART_ATTN_OUT, 0, true, "blk.#.post_attention_norm" },
    { "ffn_in", TSR_MODEL_PART_FFN_IN, 0, true, "blk.#.ffn_norm" },
    { "ffn_out", TSR_MODEL_PART_FFN_OUT, 0, true, "blk.#.post_ffw_norm" },
    { "q_a_norm", TSR_MODEL_PART_Q_A_NORM, 0, true, "blk.#.attn_q_a_norm" },
    { "kv_a_norm", TSR_MODEL_PART_KV_A_NORM, 0, true, "blk.#.attn_kv_a_norm" },
    { "q_norm", TSR_MODEL_PART_Q_NORM, 0, true, "blk.#.attn_q_norm" },
    { "k_norm", TSR_MODEL_PART_K_NORM, 0, true, "blk.#.attn_k_norm" },
    { "sinks", TSR_MODEL_PART_SINKS, 0, true, "blk.#.attn_sinks" },
    { "router_correction", TSR_MODEL_PART_ROUTER_CORRECTION, 0, true, "blk.#.exp_probs_b" },
    { "q", TSR_MODEL_PART_LINEAR, TSR_MODEL_Q, true, "blk.#.attn_q" },
    { "k", TSR_MODEL_PART_LINEAR, TSR_MODEL_K, true, "blk.#.attn_k" },
    { "v", TSR_MODEL_PART_LINEAR, TSR_MODEL_V, true, "blk.#.attn_v" },
    { "o", TSR_MODEL_PART_LINEAR, TSR_MODEL_O, true, "blk.#.attn_output" },
    { "q_a", TSR_MODEL_PART_LINEAR, TSR_MODEL_Q_A, true, "blk.#.attn_q_a" },
    { "q_b", TSR_MODEL_PART_LINEAR, TSR_MODEL_Q_B, true, "blk.#.attn_q_b" },
    { "kv_a", TSR_MODEL_PART_LINEAR, TSR_MODEL_KV_A, true, "blk.#.attn_kv_a_mqa" },
    { "kv_b", TSR_MODEL_PART_LINEAR, TSR_MODEL_KV_B, true, "blk.#.attn_kv_b" },
    { "gate", TSR_MODEL_PART_LINEAR, TSR_MODEL_GATE, true, "blk.#.ffn_gate" },
    { "up", TSR_MODEL_PART_LINEAR, TSR_MODEL_UP, true, "blk.#.ffn_up" },
    { "down", TSR_MODEL_PART_LINEAR, TSR_MODEL_DOWN, true, "blk.#.ffn_down" },
    { "qkv", TSR_MODEL_PART_QKV_ROWS, 0, true, "blk.#.attn_qkv" },
    { "qkv_heads", TSR_MODEL_PART_QKV_HEADS, 0, true, "blk.#.attn_qkv" },
    { "gate_up", TSR_MODEL_PART_GATE_UP_ROWS, 0, true, "blk.#.ffn_up" },
    { "router", TSR_MODEL_PART_LINEAR, TSR_MODEL_ROUTER, true, "blk.#.ffn_gate_inp" },
    { "shared_gate", TSR_MODEL_PART_LINEAR, TSR_MODEL_SHARED_GATE, true, "blk.#.ffn_gate_shexp" },
    { "shared_up", TSR_MODEL_PART_LINEAR, TSR_MODEL_SHARED_UP, true, "blk.#.ffn_up_shexp" },
    { "shared_down", TSR_MODEL_PART_LINEAR, TSR_MODEL_SHARED_DOWN, true, "blk.#.ffn_down_shexp" },
    { "shared_router", TSR_MODEL_PART_LINEAR, TSR_MODEL_SHARED_ROUTER, true,
      "blk.#.ffn_gate_inp_shexp" },
    { "expert_gate", TSR_MODEL_PART_EXPERT, TSR_MODEL_GATE, true, "blk.#.ffn_gate_exps" },
    { "expert_up", TSR_MODEL_PART_EXPERT, TSR_MODEL_UP, true, "blk.#.ffn_up_exps" },
    { "expert_down", TSR_MODEL_PART_EXPERT, TSR_MODEL_DOWN, true, "blk.#.ffn_down_exps" },
    { "experts_gate", TSR_MODEL_PART_EXPERTS, TSR_MODEL_GATE, true, "blk.#.ffn_gate_exps" },
    { "experts_up", TSR_MODEL_PART_EXPERTS, TSR_MODEL_UP, true, "blk.#.ffn_up_exps" },
    { "experts_down", TSR_MODEL_PART_EXPERTS, TSR_MODEL_DOWN, true, "blk.#.ffn_down_exps" },
    { "experts_gate_up", TSR_MODEL_PART_EXPERTS_GATE_UP, 0, true, "blk.#.ffn_gate_exps" },
    { "q_gate", TSR_MODEL_PART_QZ_HEADS, 0, true, "blk.#.attn_q" },
    { "delta_qkv", TSR_MODEL_PART_QKV_ROWS, 0, true, "blk.#.attn_qkv" },
    { "delta_z", TSR_MODEL_PART_LINEAR, TSR_MODEL_Z, true, "blk.#.attn_gate" },
    { "delta_b", TSR_MODEL_PART_LINEAR, TSR_MODEL_B, true, "blk.#.ssm_beta" },
    { "delta_a", TSR_MODEL_PART_LINEAR, TSR_MODEL_A, true, "blk.#.ssm_alpha" },
    { "delta_qkvz", TSR_MODEL_PART_QKVZ_HEADS, 0, true, "blk.#.attn_qkv" },
    { "delta_ba", TSR_MODEL_PART_BA_HEADS, 0, true, "blk.#.ssm_ba" },
    { "delta_o", TSR_MODEL_PART_LINEAR, TSR_MODEL_O, true, "blk.#.ssm_out" },
    { "delta_conv", TSR_MODEL_PART_CONV, 0, true, "blk.#.ssm_conv1d" },
    { "delta_decay", TSR_MODEL_PART_DECAY, 0, true, "blk.#.ssm_a" },
    { "delta_step", TSR_MODEL_PART_STEP, 0, true, "blk.#.ssm_dt.bias" },
    { "delta_norm", TSR_MODEL_PART_DELTA_NORM, 0, true, "blk.#.ssm_norm" },
};

/* true, false, FLAG, "!FLAG" or a list of these: the bits that a weight or bias needs. */
static uint64_t needs(struct tsr_family_reading *r, const struct tsr_config_node *n,
                      const char *what)
{
    const char *words[TSR_FAMILY_LIST] = { 0 };
    uint64_t    bits = 0;
    if (!n)
        return TSR_HAS_ALWAYS;
    tsr_family_strings(r, n, what, words, TSR_FAMILY_LIST);
    for (int i = 0; i < TSR_FAMILY_LIST && words[i]; i++) {
        bool no = words[i][0] == '!';
        if (strcmp(words[i], "true") == 0)
            continue;
        if (strcmp(words[i], "false") == 0) {
            bits |= TSR_HAS_NEVER;
            continue;
        }
        int at = tsr_family_flag(r, &n->mark, words[i] + no);
        if (at >= 0)
            bits |= TSR_HAS_FLAG << (2 * at + no);
    }
    return bits;
}

/* true or false; absent: false. */
static bool truth(struct tsr_family_reading *r, const struct tsr_config_node *n, const char *what)
{
    double is = 0;
    if (n && tsr_family_number(r, n, what, &is) && is != 0 && is != 1)
        tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' is true or false", what);
    return is != 0;
}

/* How a tensor is stored: only those of all experts, and a vector as a row, may be otherwise than as is usual. */
static void read_form(struct tsr_family_reading *r, const struct part *p,
                      const struct tsr_config_node *n, struct tsr_model_role *role)
{
    const struct tsr_config_node *suffixes = tsr_config_node_get(n, "suffixes");
    const char                   *list[4] = { 0 };
    role->bare = truth(r, tsr_config_node_get(n, "bare"), "bare");
    role->interleaved = truth(r, tsr_config_node_get(n, "interleaved"), "interleaved");
    const struct tsr_config_node *turned = tsr_config_node_get(n, "transposed");
    role->either =
        turned && turned->kind == TSR_CONFIG_NODE_SCALAR && strcmp(turned->text, "either") == 0;
    role->transposed = role->either || truth(r, turned, "transposed");
    role->row = truth(r, tsr_config_node_get(n, "row"), "row");
    if (role->row && p->part != TSR_MODEL_PART_ROUTER_CORRECTION)
        tsr_config_diag_error(r->d, &n->mark, NULL,
                              "tensor '%s' cannot be a row: router_correction can", p->name);
    if ((role->interleaved && p->part != TSR_MODEL_PART_EXPERTS_GATE_UP) ||
        (role->transposed && p->part != TSR_MODEL_PART_EXPERTS_GATE_UP &&
         p->part != TSR_MODEL_PART_EXPERTS))
        tsr_config_diag_error(r->d, &n->mark, NULL, "tensor '%s' cannot be %s: experts_gate_up can",
                              p->name, role->interleaved ? "interleaved" : "transposed");
    if (!suffixes)
        return;
    tsr_family_strings(r, suffixes, "suffixes", list, TSR_COUNT(list));
    if (!list[0] || !list[1] || list[2])
        tsr_config_diag_error(r->d, &suffixes->mark, "as in [.weight, .bias]",
                              "'suffixes' of tensor '%s' are not two", p->name);
    role->suffixes[0] = list[0];
    role->suffixes[1] = list[1];
}

/* Names of single experts, in place of a tensor of all: one, or those of gate and up. */
static void read_each(struct tsr_family_reading *r, const struct part *p,
                      const struct tsr_config_node *n, struct tsr_model_role *role)
{
    const char *list[4] = { 0 };
    bool        two = p->part == TSR_MODEL_PART_EXPERTS_GATE_UP;
    bool        right = two || p->part == TSR_MODEL_PART_EXPERTS;
    if (!n)
        return;
    tsr_family_strings(r, n, "each", list, TSR_COUNT(list));
    right = right && list[0] && (list[1] != NULL) == two && !list[2];
    for (int i = 0; right && i <= two; i++) {
        const char *hash = strchr(list[i], '#'), *at = strchr(list[i], '@');
        right = hash && at && !strchr(hash + 1, '#') && !strchr(at + 1, '@');
        role->each[i] = list[i];
    }
    if (!right)
        tsr_config_diag_error(r->d, &n->mark, "with one '#' and one '@' in each",
                              "'each' of tensor '%s' is not %s of single experts", p->name,
                              two ? "the two names" : "the name");
}

/* What a config must have for the part to exist. */
static uint64_t has_of(const struct part *p)
{
    if (p->part == TSR_MODEL_PART_Q_A_NORM)
        return TSR_HAS_Q_LATENT;
    if (p->part != TSR_MODEL_PART_LINEAR)
        return TSR_HAS_ALWAYS;
    switch (p->lin) {
    case TSR_MODEL_Q:
        return TSR_HAS_Q_WHOLE;
    case TSR_MODEL_Q_A:
    case TSR_MODEL_Q_B:
        return TSR_HAS_Q_LATENT;
    case TSR_MODEL_SHARED_GATE:
    case TSR_MODEL_SHARED_UP:
    case TSR_MODEL_SHARED_DOWN:
    case TSR_MODEL_SHARED_ROUTER:
        return TSR_HAS_SHARED;
    default:
        return TSR_HAS_ALWAYS;
    }
}

static void read_tensor(struct tsr_family_reading *r, const struct part *p,
                        const struct tsr_config_node *n)
{
    static const char *const keys[] = { "name",       "bias", "when",     "bare", "interleaved",
                                        "transposed", "row",  "suffixes", "each" };
    struct tsr_model_role    role = { .part = p->part,
                                      .lin = p->lin,
                                      .bias = TSR_HAS_NEVER,
                                      .gguf = p->gguf,
                                      .gguf_up = p->part == TSR_MODEL_PART_EXPERTS_GATE_UP
                                                     ? "blk.#.ffn_up_exps"
                                                 : p->part == TSR_MODEL_PART_QKVZ_HEADS
                                                     ? "blk.#.attn_gate"
                                                     : NULL,
                                      .delta = strncmp(p->name, DELTA, sizeof DELTA - 1) == 0,
                                      .key = p->name,
                                      .at = &n->mark };
    const struct tsr_config_node *name = n;
    if (n->kind == TSR_CONFIG_NODE_MAP) {
        for (uint64_t i = 0; i < n->n; i++) {
            bool known = false;
            for (size_t k = 0; k < TSR_COUNT(keys); k++)
                known = known || strcmp(n->keys[i]->text, keys[k]) == 0;
            if (!known)
                tsr_config_diag_error(
                    r->d, &n->keys[i]->mark,
                    "name, bias, when, bare, interleaved, transposed, row, suffixes or each",
                    "unknown key '%s' in tensor '%s'", n->keys[i]->text, p->name);
        }
        name = tsr_config_node_get(n, "name");
        const struct tsr_config_node *bias = tsr_config_node_get(n, "bias");
        role.weight = needs(r, tsr_config_node_get(n, "when"), "when");
        role.bias = bias ? needs(r, bias, "bias") : TSR_HAS_NEVER;
        read_form(r, p, n, &role);
        read_each(r, p, tsr_config_node_get(n, "each"), &role);
    }
    if (!name || name->kind != TSR_CONFIG_NODE_SCALAR || !*name->text) {
        tsr_config_diag_error(r->d, &n->mark, NULL, "tensor '%s' has no name", p->name);
        return;
    }
    const char *hash = strchr(name->text, '#');
    if ((hash != NULL) != p->layer || (hash && strchr(hash + 1, '#'))) {
        tsr_config_diag_error(r->d, &name->mark, NULL,
                              p->layer
                                  ? "tensor '%s' needs exactly one '#', the number of the layer"
                                  : "tensor '%s' belongs to no layer: its name has no '#'",
                              p->name);
        return;
    }
    const char *expert = strchr(name->text, '@');
    if ((expert != NULL) != (p->part == TSR_MODEL_PART_EXPERT) ||
        (expert && strchr(expert + 1, '@'))) {
        tsr_config_diag_error(r->d, &name->mark, NULL,
                              p->part == TSR_MODEL_PART_EXPERT
                                  ? "tensor '%s' needs exactly one '@', the number of the expert"
                                  : "tensor '%s' belongs to no expert: its name has no '@'",
                              p->name);
        return;
    }
    role.name = name->text;
    role.weight |= has_of(p);
    if (p->lin == TSR_MODEL_SHARED_ROUTER)
        r->f->experts.shared_gated = true;
    role.bias |= role.bias & TSR_HAS_NEVER ? 0 : role.weight;
    if (tsr_model_part_is_norm(p->part)) {
        role.weight |= TSR_HAS_AFFINE;
        role.bias |= role.bias & TSR_HAS_NEVER ? 0 : TSR_HAS_AFFINE;
    }
    if (p->part == TSR_MODEL_PART_HEAD)
        role.weight |= TSR_HAS_HEAD;
    if (p->part == TSR_MODEL_PART_PROJECT_IN || p->part == TSR_MODEL_PART_PROJECT_OUT)
        role.weight |= TSR_HAS_PROJECTION;
    r->f->roles[r->f->n_roles++] = role;
}

const char *tsr_family_part_near(const char *name)
{
    const char *names[TSR_COUNT(parts)];
    for (size_t k = 0; k < TSR_COUNT(parts); k++)
        names[k] = parts[k].name;
    return tsr_config_nearest(name, names, TSR_COUNT(parts));
}

static const struct part *part_of(const char *name)
{
    for (size_t k = 0; k < TSR_COUNT(parts); k++)
        if (strcmp(name, parts[k].name) == 0)
            return &parts[k];
    return NULL;
}

int tsr_family_role(const struct tsr_family_reading *r, const char *part, bool *known)
{
    const struct part *p = part_of(part);
    *known = p != NULL;
    for (uint32_t i = 0; p && i < r->f->n_roles; i++)
        if (strcmp(r->f->roles[i].key, p->name) == 0)
            return (int)i;
    return -1;
}

void tsr_family_tensors(struct tsr_family_reading *r, const struct tsr_config_node *map,
                        const struct tsr_config_mark *at)
{
    if (!map || map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(r->d, map ? &map->mark : at, NULL,
                              map ? "'tensors' is not a mapping" : "a family needs tensors");
        return;
    }
    for (uint64_t i = 0; i < map->n; i++) {
        const char        *key = map->keys[i]->text;
        const struct part *p = part_of(key);
        if (p) {
            read_tensor(r, p, map->items[i]);
            continue;
        }
        const char *near = tsr_family_part_near(key);
        char        hint[80];
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "embed");
        tsr_config_diag_error(r->d, &map->keys[i]->mark, near ? hint : NULL,
                              "unknown key '%s' in 'tensors'", key);
    }
    if (r->f->n_roles == map->n && r->f->roles[0].part != TSR_MODEL_PART_EMBED)
        tsr_config_diag_error(r->d, &map->mark, NULL, "the first of 'tensors' must be embed");
}
