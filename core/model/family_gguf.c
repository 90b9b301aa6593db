/* The section `gguf` of a family file: what a GGUF file of the family says otherwise than the rules of the format
 * (checkpoint/gguf). */
#include "model/family_internal.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MOST 60 /* bytes of a tensor's name in a GGUF file, before .weight */

struct gguf {
    int64_t                       rows, gains, heads, rope, windows;
    const char                   *write;
    const struct tsr_config_node *architectures, *config, *tensors;
};
static const struct tsr_choice rows_words[] = { { "plain", "rows of q and k as in the checkpoint",
                                                  0 },
                                                { "pairs", "rotary pairs side by side", 1 } };
static const struct tsr_choice gain_words[] = { { "plain", "gains of norms as in the checkpoint",
                                                  0 },
                                                { "offset", "gain_offset is added to them", 1 } };
static const struct tsr_choice head_words[] = {
    { "plain", "value heads of one key head together", 0 },
    { "tiled", "the first value head of each key head, then the second ones", 1 }
};
static const struct tsr_choice rope_words[] = {
    { "plain", "one position for a token", 0 }, { "sections", "several, which texts have alike", 1 }
};
static const struct tsr_choice window_words[] = {
    { "kept", "llama.cpp has those that the file names", 0 },
    { "ignored", "it attends to the whole text", 1 }
};
static const struct tsr_choice rule_words[] = {
    { "head_dim", "width of a head", TSR_MODEL_GGUF_RULE_HEAD_DIM },
    { "hidden_by_heads", "hidden / heads", TSR_MODEL_GGUF_RULE_HIDDEN_BY_HEADS }
};
static const struct tsr_option gguf_options[] = {
    TSR_OPTION_NODE(struct gguf, architectures, "Values of general.architecture that are read."),
    { .name = "write",
      .help = "Value of general.architecture that is written.",
      .type = TSR_OPT_STRING,
      .offset = TSR_FIELD(struct gguf, write, const char *),
      .def = { .s = "" } },
    TSR_OPTION_ENUM(struct gguf, rows, 0, rows_words, "Order of the rows of q and k."),
    TSR_OPTION_ENUM(struct gguf, gains, 0, gain_words, "Gains of norms."),
    TSR_OPTION_ENUM(struct gguf, heads, 0, head_words, "Order of the delta rule's value heads."),
    TSR_OPTION_ENUM(struct gguf, rope, 0, rope_words, "Positions of a token in the metadata."),
    TSR_OPTION_ENUM(struct gguf, windows, 0, window_words, "Windows in llama.cpp."),
    TSR_OPTION_NODE(struct gguf, config, "Keys of config.json that the rules do not give."),
    TSR_OPTION_NODE(struct gguf, tensors, "Names that differ from the common ones."),
};

static void unknown(struct tsr_family_reading *r, const struct tsr_config_node *key,
                    const char *near, const char *what)
{
    char hint[80];
    (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
    tsr_config_diag_error(r->d, &key->mark, near ? hint : NULL, "unknown key '%s' in '%s'",
                          key->text, what);
}

static enum tsr_model_gguf_rule rule_of(struct tsr_family_reading    *r,
                                        const struct tsr_config_node *n, const char *what)
{
    int64_t v = TSR_MODEL_GGUF_RULE_NONE;
    if (n && !tsr_family_word(r, n, what, rule_words, TSR_COUNT(rule_words), &v))
        return TSR_MODEL_GGUF_RULE_NONE;
    return (enum tsr_model_gguf_rule)v;
}

/* {LAYERS: RULE}: the rule of models with so many layers. */
static void read_other(struct tsr_family_reading *r, const struct tsr_config_node *n,
                       struct tsr_model_gguf_value *v)
{
    char *end = NULL;
    if (n->kind == TSR_CONFIG_NODE_MAP && n->n == 1)
        v->layers = strtoull(n->keys[0]->text, &end, 10);
    if (!end || *end || v->layers == 0 || v->layers > UINT32_MAX ||
        v->rule == TSR_MODEL_GGUF_RULE_NONE) {
        tsr_config_diag_error(r->d, &n->mark,
                              "as in {rule: head_dim, layers: {46: hidden_by_heads}}",
                              "'layers' of '%s' needs a rule, and one number with another rule",
                              v->name);
        return;
    }
    v->other = rule_of(r, n->items[0], "layers");
}

static const char *text_of(struct tsr_family_reading *r, const struct tsr_config_node *n,
                           const char *what)
{
    if (!n || (n->kind == TSR_CONFIG_NODE_SCALAR && *n->text))
        return n ? n->text : NULL;
    tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' is not a name", what);
    return NULL;
}

/* KEY, or {tensor, key, rule, layers, default}. */
static void read_value(struct tsr_family_reading *r, const char *name,
                       const struct tsr_config_node *n)
{
    static const char *const      names[] = { "tensor", "key", "rule", "layers", "default" };
    struct tsr_model_gguf_value   v = { .name = name };
    const struct tsr_config_node *layers = NULL;
    uint64_t                      before = tsr_config_diag_errors(r->d);
    if (r->f->gguf.n_values == TSR_FAMILY_GGUF) {
        tsr_config_diag_error(r->d, &n->mark, NULL, "more than %d keys in 'config' of 'gguf'",
                              TSR_FAMILY_GGUF);
        return;
    }
    if (n->kind == TSR_CONFIG_NODE_MAP) {
        for (uint64_t i = 0; i < n->n; i++) {
            bool known = false;
            for (size_t k = 0; k < TSR_COUNT(names); k++)
                known = known || strcmp(n->keys[i]->text, names[k]) == 0;
            if (!known)
                unknown(r, n->keys[i],
                        tsr_config_nearest(n->keys[i]->text, names, TSR_COUNT(names)), name);
        }
        v.tensor = text_of(r, tsr_config_node_get(n, "tensor"), "tensor");
        v.key = text_of(r, tsr_config_node_get(n, "key"), "key");
        v.rule = rule_of(r, tsr_config_node_get(n, "rule"), "rule");
        v.def = tsr_config_node_get(n, "default");
        if ((layers = tsr_config_node_get(n, "layers")))
            read_other(r, layers, &v);
        if (v.def && v.def->kind != TSR_CONFIG_NODE_SCALAR && v.def->kind != TSR_CONFIG_NODE_NULL)
            tsr_config_diag_error(r->d, &v.def->mark, NULL, "the default of '%s' is not a scalar",
                                  name);
    } else {
        v.key = text_of(r, n, name);
    }
    if (!v.tensor && !v.key && !v.rule && !v.def && tsr_config_diag_errors(r->d) == before)
        tsr_config_diag_error(r->d, &n->mark, "tensor, key, rule or default",
                              "'%s' says nothing of where its value is", name);
    r->f->gguf.value[r->f->gguf.n_values++] = v;
}

static void check_name(struct tsr_family_reading *r, const struct tsr_config_node *n,
                       const char *key, const char *name, const struct tsr_model_role *role)
{
    const char *hash = strchr(name, '#');
    if ((hash != NULL) != (strchr(role->name, '#') != NULL) || (hash && strchr(hash + 1, '#')) ||
        strlen(name) > NAME_MOST)
        tsr_config_diag_error(r->d, &n->mark, NULL,
                              "'%s' is no name of '%s': it has at most %d bytes, and one '#' if "
                              "the part belongs to a layer",
                              name, key, NAME_MOST);
}

/* Gate and up of all experts are two tensors in a GGUF file, and so are q, k and v, and z, of the delta rule. */
static void read_two_names(struct tsr_family_reading *r, const struct tsr_config_node *n,
                           const char *key, struct tsr_model_role *role)
{
    const char *names[4] = { 0 };
    tsr_family_strings(r, n, key, names, TSR_COUNT(names));
    if (!names[0] || !names[1] || names[2]) {
        tsr_config_diag_error(r->d, &n->mark, "as in [blk.#.ffn_gate_exps, blk.#.ffn_up_exps]",
                              "'%s' needs two names, in the order of its own", key);
        return;
    }
    check_name(r, n, key, names[0], role);
    check_name(r, n, key, names[1], role);
    role->gguf = names[0];
    role->gguf_up = names[1];
}

static void read_names(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    for (uint64_t i = 0; i < map->n; i++) {
        const struct tsr_config_node *key = map->keys[i], *n = map->items[i];
        bool                          known;
        int                           at = tsr_family_role(r, key->text, &known);
        const char                   *name = NULL;
        if (at >= 0 && r->f->roles[at].gguf_up)
            read_two_names(r, n, key->text, &r->f->roles[at]);
        else
            name = text_of(r, n, key->text);
        if (!known)
            unknown(r, key, tsr_family_part_near(key->text), "tensors");
        else if (at < 0)
            tsr_config_diag_error(r->d, &key->mark, "name it in 'tensors' of the family first",
                                  "the family has no '%s'", key->text);
        if (at < 0 || !name)
            continue;
        struct tsr_model_role *role = &r->f->roles[at];
        check_name(r, n, key->text, name, role);
        role->gguf = name;
    }
}

static bool is_map(struct tsr_family_reading *r, const struct tsr_config_node *n, const char *what)
{
    if (n && n->kind != TSR_CONFIG_NODE_MAP)
        tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' of 'gguf' is not a mapping", what);
    return n && n->kind == TSR_CONFIG_NODE_MAP;
}

void tsr_family_gguf(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct gguf              o = { 0 };
    if (!map)
        return;
    TSR_FAMILY_FILL(r, gguf_options, map, "'gguf'", &o);
    tsr_family_strings(r, o.architectures, "architectures", f->gguf.architectures, TSR_FAMILY_LIST);
    f->gguf.write = tsr_family_some(o.write);
    f->gguf.pairs = o.rows == 1;
    f->gguf.gain_offset = o.gains == 1;
    f->gguf.tiled = o.heads == 1;
    f->gguf.sections = o.rope == 1;
    f->gguf.ignored_windows = o.windows == 1;
    for (uint64_t i = 0; is_map(r, o.config, "config") && i < o.config->n; i++)
        read_value(r, o.config->keys[i]->text, o.config->items[i]);
    if (is_map(r, o.tensors, "tensors"))
        read_names(r, o.tensors);
}

/* ---- whether it fits the other sections --------------------------------------------------------------- */

static bool is_given(const struct tsr_model_family *f, const char *key)
{
    for (unsigned i = 0; i < f->gguf.n_values; i++)
        if (strcmp(f->gguf.value[i].name, key) == 0)
            return true;
    return false;
}

/* Numbers that the rules give need a key in config.json. */
static void check_keys(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    const struct {
        const char                   *name;
        bool                          is;
        const struct tsr_model_value *v;
    } keyed[] = { { "q_rank", f->latent.is, &f->latent.q_rank },
                  { "rank", f->latent.is, &f->latent.rank },
                  { "nope", f->latent.is, &f->latent.nope },
                  { "rope", f->latent.is, &f->latent.rope },
                  { "v", f->latent.is, &f->latent.v },
                  { "count' of 'groups", f->experts.grouped, &f->experts.groups },
                  { "used' of 'groups", f->experts.grouped, &f->experts.groups_used },
                  { "count' of 'shared", f->experts.shared && !f->experts.shared_width.n_keys,
                    &f->experts.shared_count } };
    for (size_t i = 0; i < TSR_COUNT(keyed); i++)
        if (keyed[i].is && (!keyed[i].v->n_keys || keyed[i].v->form != TSR_MODEL_VALUE_AS_IT_IS))
            tsr_config_diag_error(r->d, at, NULL,
                                  "'gguf' needs a key of config.json, without a form, for '%s'",
                                  keyed[i].name);
}

/* The rules copy a number as it is. */
static void check_forms(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    const struct {
        const char                   *name;
        const struct tsr_model_value *v;
    } copied[] = {
        { "vocab", &f->vocab },       { "hidden", &f->hidden }, { "layers", &f->layers },
        { "heads", &f->heads },       { "ffn", &f->ffn },       { "kv_heads", &f->kv_heads },
        { "head_dim", &f->head_dim }, { "eps", &f->eps },       { "positions", &f->positions }
    };
    for (size_t i = 0; i < TSR_COUNT(copied); i++) {
        const struct tsr_model_value *v = copied[i].v;
        if (v->form != TSR_MODEL_VALUE_AS_IT_IS && v->n_keys && !is_given(f, v->keys[0]))
            tsr_config_diag_error(r->d, at, NULL,
                                  "'%s' has a form: 'config' of 'gguf' must give '%s'",
                                  copied[i].name, v->keys[0]);
    }
}

static bool is_called(const struct tsr_model_role *r, const char *name)
{
    return (r->gguf && strcmp(name, r->gguf) == 0) || (r->gguf_up && strcmp(name, r->gguf_up) == 0);
}

static void check_names(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    for (uint32_t i = 0; i < f->n_roles; i++) {
        const char *name = f->roles[i].gguf, *up = f->roles[i].gguf_up;
        bool        is_qk = f->roles[i].part == TSR_MODEL_PART_QKV_ROWS ||
                     f->roles[i].part == TSR_MODEL_PART_QKV_HEADS;
        for (uint32_t k = 0; name && k < i; k++)
            if (is_called(&f->roles[k], name) || (up && is_called(&f->roles[k], up)))
                tsr_config_diag_error(r->d, at, "name one of them in 'tensors' of 'gguf'",
                                      "two parts are called '%s' in a GGUF file", name);
        if (f->gguf.pairs && is_qk)
            tsr_config_diag_error(r->d, at, NULL,
                                  "rows: pairs needs q and k in tensors of their own");
    }
}

void tsr_family_gguf_check(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    if (!f->gguf.architectures[0] && !f->gguf.write)
        tsr_config_diag_error(r->d, at, NULL, "'gguf' needs architectures, write or both");
    if (f->text && f->gguf.architectures[0])
        tsr_config_diag_error(r->d, at, NULL,
                              "'architectures' of 'gguf' are for families without 'text': a GGUF "
                              "file has one model");
    if (f->gguf.pairs && f->rope.adjacent)
        tsr_config_diag_error(r->d, at, NULL,
                              "rows: pairs is for families whose rope has pairs: halves");
    if (f->gguf.gain_offset && (f->gain_offset.n_keys || f->gain_offset.def == 0))
        tsr_config_diag_error(r->d, at, NULL, "gains: offset needs a gain_offset that is a number");
    if (f->gguf.tiled && !f->delta.is)
        tsr_config_diag_error(r->d, at, NULL, "heads: tiled is for families with 'delta'");
    check_keys(r, at);
    check_forms(r, at);
    check_names(r, at);
}
