/* What differs from layer to layer: windows, rope, experts and the delta rule. */
#include "model/config_internal.h"

#include "base/mem.h"
#include "tessera/backend.h"

#include <string.h>

/* An entry for each layer, or NULL where the key is absent. */
static tsr_status list_of(const struct tsr_model_config_source *s, const char *key, json_t **list)
{
    *list = NULL;
    if (!key)
        return TSR_OK;
    TSR_TRY(tsr_json_sub(s->json, s->name, key, false, JSON_ARRAY, list, s->err));
    tsr_model_config_note(s, key, *list ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    if (*list && json_array_size(*list) != s->config->hp.layers)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\" has %zu entries for %llu layers", s->name,
                        key, json_array_size(*list), (unsigned long long)s->config->hp.layers);
    return TSR_OK;
}

static tsr_status rule_number(const struct tsr_model_config_source *s,
                              const struct tsr_model_layer_rule *rule, int64_t *n)
{
    *n = 1;
    if (rule->kind == TSR_MODEL_LAYERS_FROM)
        return tsr_model_config_integer(s, &rule->n, 0, MAX_LAYERS, n);
    bool every =
        rule->kind == TSR_MODEL_LAYERS_EXCEPT_EVERY || rule->kind == TSR_MODEL_LAYERS_EVERY;
    if (every)
        TSR_TRY(tsr_model_config_integer(s, &rule->n, 1, MAX_LAYERS, n));
    if (*n < 0 || (*n == 0 && every))
        return tsr_model_family_fail(s->config->family, rule->n.at, s->err,
                                     "'%s' of the family is 0",
                                     rule->kind == TSR_MODEL_LAYERS_EVERY ? "every"
                                                                          : "except_every");
    return TSR_OK;
}

static bool in_rule(const struct tsr_model_hparams *hp, enum tsr_model_layers kind, uint64_t i,
                    int64_t n)
{
    switch (kind) {
    case TSR_MODEL_LAYERS_NONE:
        return false;
    case TSR_MODEL_LAYERS_EVEN:
        return i % 2 == 0;
    case TSR_MODEL_LAYERS_FROM:
        return i >= (uint64_t)n;
    case TSR_MODEL_LAYERS_EXCEPT_EVERY:
        return (i + 1) % (uint64_t)n != 0;
    case TSR_MODEL_LAYERS_EVERY:
        return (i + 1) % (uint64_t)n == 0;
    case TSR_MODEL_LAYERS_SLIDING:
        return hp->window[i] != 0;
    case TSR_MODEL_LAYERS_SLIDING_OR_ALL: /* n: the window */
        return hp->window[i] != 0 || n == 0;
    case TSR_MODEL_LAYERS_UNROTATED:
        return hp->rope_of && hp->rope_of[i] == TSR_MODEL_ROPE_OF_NONE;
    case TSR_MODEL_LAYERS_ALL:
        break;
    }
    return true;
}

/* A layer's entry in the list of types: `word`, or full_attention. */
static tsr_status by_type(const struct tsr_model_config_source *s, const char *key,
                          const json_t *types, uint64_t i, const char *word, bool *is)
{
    const char *t = tsr_json_word(json_array_get(types, i));
    *is = t && strcmp(t, word) == 0;
    if (*is || (t && strcmp(t, "full_attention") == 0))
        return TSR_OK;
    return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\"[%llu] is neither full_attention nor %s",
                    s->name, key, (unsigned long long)i, word);
}

static tsr_status windows(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    int64_t                        window = 0, n = 1;
    json_t                        *types;
    if (!f->window.is)
        return TSR_OK;
    if (f->window.when < 0 || (s->config->has & TSR_HAS_FLAG << 2 * f->window.when))
        TSR_TRY(tsr_model_config_integer(s, &f->window.size, 1, MAX_POSITIONS, &window));
    TSR_TRY(list_of(s, f->window.types, &types));
    if (!types) /* with a list it may be in words, as "LLLG" */
        TSR_TRY(rule_number(s, &f->window.layers, &n));
    for (uint64_t i = 0; i < hp->layers; i++) {
        bool sliding = window != 0 && in_rule(hp, f->window.layers.kind, i, n);
        if (types)
            TSR_TRY(by_type(s, f->window.types, types, i, "sliding_attention", &sliding));
        if (types && sliding && window == 0)
            return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\"[%llu] slides, but no \"%s\" is in use",
                            s->name, f->window.types, (unsigned long long)i,
                            f->window.size.n_keys ? f->window.size.keys[0] : "window");
        hp->window[i] = sliding ? (uint32_t)window : 0;
    }
    return TSR_OK;
}

/* Which rope each layer has; none is made where all have the same. */
static tsr_status ropes(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family     *f = s->config->family;
    const struct tsr_model_layer_rule *rule = &f->rope.layers;
    struct tsr_model_hparams          *hp = &s->config->hp;
    int64_t                            n = 1;
    json_t                            *list;
    if (hp->positions != TSR_MODEL_POSITIONS_ROPE ||
        (rule->kind == TSR_MODEL_LAYERS_ALL && !rule->list))
        return TSR_OK;
    TSR_TRY(rule_number(s, rule, &n));
    if (rule->kind == TSR_MODEL_LAYERS_SLIDING_OR_ALL)
        TSR_TRY(tsr_model_config_integer(s, &f->window.size, 1, MAX_POSITIONS, &n));
    TSR_TRY(list_of(s, rule->list, &list));
    for (uint64_t i = 0; i < hp->layers; i++) {
        bool is = in_rule(hp, rule->kind, i, n);
        if (list) {
            const json_t *v = json_array_get(list, i);
            if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1)
                return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\"[%llu] is neither 0 nor 1", s->name,
                                rule->list, (unsigned long long)i);
            is = json_integer_value(v) == 1;
        }
        hp->rope_of[i] = is ? TSR_MODEL_ROPE_OF_ALL : TSR_MODEL_ROPE_OF_NONE;
    }
    return TSR_OK;
}

/* Layers named in a list, of which a rule does not hold. */
static tsr_status exceptions(const struct tsr_model_config_source *s, const char *key,
                             uint8_t *of_layer)
{
    json_t *list;
    if (!key)
        return TSR_OK;
    TSR_TRY(tsr_json_sub(s->json, s->name, key, false, JSON_ARRAY, &list, s->err));
    tsr_model_config_note(s, key, list ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            (uint64_t)json_integer_value(v) >= s->config->hp.layers)
            return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\"[%zu] is not one of %llu layers",
                            s->name, key, i, (unsigned long long)s->config->hp.layers);
        of_layer[json_integer_value(v)] = 0;
    }
    return TSR_OK;
}

/* The layers with experts, and the experts. */
static tsr_status experts(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    int64_t                        n = 1;
    hp->linears = hp->latent.rank || f->delta.is || f->attn_gate ? (uint64_t)TSR_MODEL_EXPERTS
                                                                 : TSR_MODEL_LINEARS;
    hp->sites = hp->latent.rank ? (uint64_t)TSR_MODEL_SITE_EXPERTS : TSR_MODEL_SITES;
    if (!f->experts.is)
        return TSR_OK;
    TSR_TRY(tsr_model_config_experts(s));
    hp->sparse = tsr_new(hp->layers, sizeof *hp->sparse);
    if (!hp->sparse)
        return tsr_fail_nomem(s->err, hp->layers, "layers with experts");
    TSR_TRY(rule_number(s, &f->experts.layers, &n));
    for (uint64_t i = 0; i < hp->layers; i++)
        hp->sparse[i] = in_rule(hp, f->experts.layers.kind, i, n);
    return exceptions(s, f->experts.layers.except, hp->sparse);
}

static tsr_status delta_sizes(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_delta        *d = &s->config->hp.delta;
    uint64_t                       key_heads, value_heads, key_dim, value_dim, kernel;
    if (s->config->hp.func != TSR_FUNC_SILU) /* the reference's convolution takes it, too */
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"%s\" of a model with the delta rule is not silu, which is the only "
                        "one that is supported there",
                        s->name, f->activation.n_keys ? f->activation.keys[0] : "hidden_act");
    TSR_TRY(tsr_model_config_size(s, &f->delta.key_heads, MAX_HEADS, &key_heads));
    TSR_TRY(tsr_model_config_size(s, &f->delta.value_heads, MAX_HEADS, &value_heads));
    TSR_TRY(tsr_model_config_size(s, &f->delta.key_dim, MAX_STATE, &key_dim));
    TSR_TRY(tsr_model_config_size(s, &f->delta.value_dim, MAX_STATE, &value_dim));
    TSR_TRY(tsr_model_config_size(s, &f->delta.kernel, MAX_KERNEL, &kernel));
    if (!key_heads || !value_heads || !key_dim || !value_dim || !kernel)
        return tsr_model_family_fail(f, f->delta.key_heads.at, s->err,
                                     "a size in 'delta' of the family is 0");
    if (value_heads % key_heads != 0)
        return tsr_fail(
            s->err, TSR_E_INPUT,
            "%s: %llu value heads of the delta rule are not a multiple of %llu key heads", s->name,
            (unsigned long long)value_heads, (unsigned long long)key_heads);
    if (key_heads * key_dim > (uint64_t)MAX_WIDTH || value_heads * value_dim > (uint64_t)MAX_WIDTH)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: heads of the delta rule are together wider than the limit of %lld",
                        s->name, (long long)MAX_WIDTH);
    *d = (struct tsr_model_delta){ .key_heads = (uint32_t)key_heads,
                                   .value_heads = (uint32_t)value_heads,
                                   .key_dim = (uint32_t)key_dim,
                                   .value_dim = (uint32_t)value_dim,
                                   .kernel = (uint32_t)kernel };
    return TSR_OK;
}

/* The layers of the delta rule, which do not rotate. */
static tsr_status delta(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    int64_t                        n = 1;
    json_t                        *types;
    if (!f->delta.is)
        return TSR_OK;
    TSR_TRY(delta_sizes(s));
    hp->recurrent = tsr_new(hp->layers, sizeof *hp->recurrent);
    if (!hp->recurrent)
        return tsr_fail_nomem(s->err, hp->layers, "layers of the delta rule");
    TSR_TRY(rule_number(s, &f->delta.layers, &n));
    TSR_TRY(list_of(s, f->delta.types, &types));
    for (uint64_t i = 0; i < hp->layers; i++) {
        bool is = in_rule(hp, f->delta.layers.kind, i, n);
        if (types)
            TSR_TRY(by_type(s, f->delta.types, types, i, "linear_attention", &is));
        hp->recurrent[i] = is;
        if (is)
            hp->rope_of[i] = TSR_MODEL_ROPE_OF_NONE;
    }
    return TSR_OK;
}

/* Windows before ropes, unless windows follow from them. */
tsr_status tsr_model_config_layers(const struct tsr_model_config_source *s)
{
    struct tsr_model_hparams      *hp = &s->config->hp;
    const struct tsr_model_family *f = s->config->family;
    bool                           later = f->window.layers.kind == TSR_MODEL_LAYERS_UNROTATED;
    hp->window = tsr_new(hp->layers, sizeof *hp->window);
    hp->rope_of = tsr_new(hp->layers, sizeof *hp->rope_of);
    if (!hp->window || !hp->rope_of)
        return tsr_fail_nomem(s->err, hp->layers * sizeof *hp->window, "windows");
    if (!later)
        TSR_TRY(windows(s));
    TSR_TRY(ropes(s));
    if (later)
        TSR_TRY(windows(s));
    for (uint64_t i = 0; f->rope.sliding_apart && i < hp->layers; i++)
        if (hp->window[i] && hp->rope_of[i] == TSR_MODEL_ROPE_OF_ALL)
            hp->rope_of[i] = TSR_MODEL_ROPE_OF_SLIDING;
    TSR_TRY(delta(s));
    return experts(s);
}
