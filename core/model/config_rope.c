/* Rotary embedding: `rope_theta` + `rope_scaling` (older) or `rope_parameters` (newer). */
#include "base/mem.h"
#include "model/config_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Factors of long rope, one per rotated pair. */
static tsr_status factors(const struct tsr_model_config_source *s, const json_t *o, const char *key,
                          uint64_t n, float **out)
{
    json_t *a;
    TSR_TRY(tsr_json_sub(o, s->name, key, true, JSON_ARRAY, &a, s->err));
    if (json_array_size(a) != n)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\" has %zu entries, %llu are needed", s->name,
                        key, json_array_size(a), (unsigned long long)n);
    *out = tsr_new(n, sizeof **out);
    if (!*out)
        return tsr_fail_nomem(s->err, n * sizeof **out, key);
    for (uint64_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        double        d = json_is_number(v) ? json_number_value(v) : (double)NAN;
        if (!(d > 1e-30 && d < 1e30))
            return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\"[%llu] is not a positive number",
                            s->name, key, (unsigned long long)i);
        (*out)[i] = (float)d;
    }
    return TSR_OK;
}

static tsr_status original_positions(const struct tsr_model_config_source *s, const json_t *o,
                                     struct tsr_model_rope *r)
{
    static const char key[] = "original_max_position_embeddings";
    int64_t           v = 0;
    TSR_TRY(tsr_json_int(o, s->name, key, false, 2, MAX_POSITIONS, &v, s->err));
    /* the top level wins, as in the reference */
    TSR_TRY(tsr_json_int(s->json, s->name, key, v == 0, 2, MAX_POSITIONS, &v, s->err));
    r->original_positions = (uint64_t)v;
    return TSR_OK;
}

static tsr_status rope_llama3(const struct tsr_model_config_source *s, const json_t *o,
                              struct tsr_model_hparams *hp)
{
    struct tsr_model_rope *r = &hp->rope;
    r->scaling = TSR_MODEL_ROPE_LLAMA3;
    TSR_TRY(tsr_json_real(o, s->name, "factor", true, 1.0, 1e6, &r->factor, s->err));
    TSR_TRY(
        tsr_json_real(o, s->name, "low_freq_factor", true, 1e-6, 1e6, &r->low_freq_factor, s->err));
    TSR_TRY(tsr_json_real(o, s->name, "high_freq_factor", true, 1e-6, 1e6, &r->high_freq_factor,
                          s->err));
    TSR_TRY(original_positions(s, o, r));
    if (!(r->high_freq_factor > r->low_freq_factor))
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"high_freq_factor\" %g must be above \"low_freq_factor\" %g", s->name,
                        r->high_freq_factor, r->low_freq_factor);
    return TSR_OK;
}

static tsr_status rope_long(const struct tsr_model_config_source *s, const json_t *o,
                            struct tsr_model_hparams *hp)
{
    struct tsr_model_rope *r = &hp->rope;
    r->scaling = TSR_MODEL_ROPE_LONG;
    TSR_TRY(original_positions(s, o, r));
    double original = (double)r->original_positions;
    r->factor = (double)hp->max_positions / original;
    TSR_TRY(tsr_json_real(o, s->name, "factor", false, 1e-6, 1e6, &r->factor, s->err));
    r->attention_factor = r->factor <= 1.0 ? 1.0 : sqrt(1.0 + log(r->factor) / log(original));
    TSR_TRY(tsr_json_real(o, s->name, "attention_factor", false, 1e-6, 1e6, &r->attention_factor,
                          s->err));
    double in_long = r->attention_factor; /* Phi-3.5-MoE has numbers in place of the computed one */
    TSR_TRY(
        tsr_json_real(o, s->name, "short_mscale", false, 1e-6, 1e6, &r->attention_factor, s->err));
    TSR_TRY(tsr_json_real(o, s->name, "long_mscale", false, 1e-6, 1e6, &in_long, s->err));
    r->long_ratio = (float)(in_long / r->attention_factor);
    TSR_TRY(factors(s, o, "short_factor", r->dim / 2, &r->short_factor));
    return factors(s, o, "long_factor", r->dim / 2, &r->long_factor);
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static tsr_status rope_yarn(const struct tsr_model_config_source *s, const json_t *o,
                            struct tsr_model_hparams *hp)
{
    struct tsr_model_rope *r = &hp->rope;
    double                 mscale = 0.0, all = 0.0;
    bool                   whole = true;
    r->scaling = TSR_MODEL_ROPE_YARN;
    TSR_TRY(original_positions(s, o, r));
    TSR_TRY(tsr_json_real(o, s->name, "factor", true, 1.0, 1e6, &r->factor, s->err));
    TSR_TRY(tsr_json_real(o, s->name, "beta_fast", false, 0, 1e6, &r->beta_fast, s->err));
    TSR_TRY(tsr_json_real(o, s->name, "beta_slow", false, 0, 1e6, &r->beta_slow, s->err));
    r->beta_fast = r->beta_fast > 0.0 ? r->beta_fast : 32.0; /* 0 is absent, as in the reference */
    r->beta_slow = r->beta_slow > 0.0 ? r->beta_slow : 1.0;
    TSR_TRY(tsr_json_real(o, s->name, "mscale", false, 0.0, 1e6, &mscale, s->err));
    TSR_TRY(tsr_json_real(o, s->name, "mscale_all_dim", false, 0.0, 1e6, &all, s->err));
    TSR_TRY(tsr_json_bool(o, s->name, "truncate", false, &whole, s->err));
    r->whole_ramp = whole;
    if (!(r->theta > 1.0))
        return tsr_fail(s->err, TSR_E_INPUT, "%s: yarn needs a \"rope_theta\" above 1", s->name);
    r->attention_factor = mscale > 0.0 && all > 0.0
                              ? yarn_scale(r->factor, mscale) / yarn_scale(r->factor, all)
                              : yarn_scale(r->factor, 1.0);
    if (hp->latent.rank && all > 0.0) { /* there the scores carry the scale, not cos and sin */
        double scale = yarn_scale(r->factor, all);
        r->all_dim = all;
        hp->attn_scale = (float)((double)hp->attn_scale * scale * scale);
    }
    return tsr_json_real(o, s->name, "attention_factor", false, 1e-6, 1e6, &r->attention_factor,
                         s->err);
}

/* Dynamic NTK changes the base beyond max_position_embeddings. */
static tsr_status rope_dynamic(const struct tsr_model_config_source *s, const json_t *o,
                               struct tsr_model_hparams *hp)
{
    struct tsr_model_rope *r = &hp->rope;
    r->scaling = TSR_MODEL_ROPE_DYNAMIC_NTK;
    if (r->dim < 4)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: dynamic rope needs at least 4 rotated values a head", s->name);
    return tsr_json_real(o, s->name, "factor", true, 1.0, 1e6, &r->factor, s->err);
}

static tsr_status rope_linear(const struct tsr_model_config_source *s, const json_t *o,
                              struct tsr_model_hparams *hp)
{
    hp->rope.scaling = TSR_MODEL_ROPE_LINEAR;
    return tsr_json_real(o, s->name, "factor", true, 1.0, 1e6, &hp->rope.factor, s->err);
}

static tsr_status rope_default(const struct tsr_model_config_source *s, const json_t *o,
                               struct tsr_model_hparams *hp)
{
    (void)s;
    (void)o;
    hp->rope.scaling = TSR_MODEL_ROPE_NONE;
    return TSR_OK;
}

/* `rope_parameters` or `rope_scaling`; *kind: the objects by layer type, if there are. */
static tsr_status scaling_object(const struct tsr_model_config_source *s, json_t **o,
                                 json_t **sliding)
{
    json_t *old;
    *sliding = NULL;
    TSR_TRY(tsr_json_sub(s->json, s->name, "rope_parameters", false, JSON_OBJECT, o, s->err));
    TSR_TRY(tsr_json_sub(s->json, s->name, "rope_scaling", false, JSON_OBJECT, &old, s->err));
    tsr_model_config_note(s, *o ? "rope_parameters" : "rope_scaling",
                          *o || old ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    if (old && json_object_size(old) > 0)
        *o = old; /* if both are present, the older one wins, as in the reference */
    if (!*o || !(json_object_get(*o, "full_attention") || json_object_get(*o, "sliding_attention")))
        return TSR_OK;
    if (!s->config->family->rope.sliding_apart)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"rope_parameters\" per layer type are not supported for this family",
                        s->name);
    json_t *both = *o;
    TSR_TRY(tsr_json_sub(both, s->name, "sliding_attention", false, JSON_OBJECT, sliding, s->err));
    return tsr_json_sub(both, s->name, "full_attention", false, JSON_OBJECT, o, s->err);
}

static bool allowed(const struct tsr_model_family *f, const char *word)
{
    if (!f->rope.scaling[0])
        return true;
    for (const char *const *w = f->rope.scaling; *w; w++)
        if (strcmp(*w, word) == 0)
            return true;
    return false;
}

/* Layers with a window rotate by a base of their own, unscaled. */
static tsr_status sliding_rope(const struct tsr_model_config_source *s, const json_t *o)
{
    struct tsr_model_hparams *hp = &s->config->hp;
    const char               *type = "default";
    hp->rope_sliding = (struct tsr_model_rope){ .dim = hp->rope.dim,
                                                .factor = 1,
                                                .attention_factor = 1,
                                                .original_positions = hp->max_positions };
    TSR_TRY(tsr_model_config_real(s, &s->config->family->rope.sliding_theta, 1.0, 1e15,
                                  &hp->rope_sliding.theta));
    if (!o)
        return TSR_OK;
    TSR_TRY(
        tsr_json_real(o, s->name, "rope_theta", false, 1.0, 1e15, &hp->rope_sliding.theta, s->err));
    TSR_TRY(tsr_json_str(o, s->name, "rope_type", false, &type, s->err));
    return strcmp(type, "default") == 0
               ? TSR_OK
               : tsr_fail(s->err, TSR_E_INPUT,
                          "%s: rope type \"%.40s\" of sliding layers is not supported; default is",
                          s->name, type);
}

/* By o, the object that states the scaling, or NULL; sliding: that of layers with a window, or NULL. */
static tsr_status stated_rope(const struct tsr_model_config_source *s, const json_t *o,
                              const json_t *sliding)
{
    static const struct {
        const char *name;
        tsr_status (*read)(const struct tsr_model_config_source *, const json_t *,
                           struct tsr_model_hparams *);
    } known[] = {
        { "default", rope_default }, { "longrope", rope_long }, { "linear", rope_linear },
        { "dynamic", rope_dynamic }, { "yarn", rope_yarn },     { "llama3", rope_llama3 },
    };
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    struct tsr_model_rope         *r = &hp->rope;
    const char                    *type = "default", *old_type = NULL;
    double                         partial;
    int64_t                        width = 0;
    r->factor = r->attention_factor = 1.0;
    r->long_ratio = 1.0F;
    r->scaling = TSR_MODEL_ROPE_NONE;
    r->original_positions = hp->max_positions;
    TSR_TRY(tsr_model_config_real(s, &f->rope.theta, 1.0, 1e15, &r->theta));
    TSR_TRY(tsr_model_config_real(s, &f->rope.partial, 0.0, 1.0, &partial));
    if (f->rope.width.n_keys)
        TSR_TRY(tsr_model_config_integer(s, &f->rope.width, 1, hp->head_dim, &width));
    if (width > 0)
        partial = (double)width / hp->head_dim;
    if (!(r->theta >= 1.0))
        return tsr_model_family_fail(f, f->rope.theta.at, s->err, "'theta' of the family is 0");
    if (o) {
        TSR_TRY(tsr_json_real(o, s->name, "rope_theta", false, 1.0, 1e15, &r->theta, s->err));
        TSR_TRY(
            tsr_json_real(o, s->name, "partial_rotary_factor", false, 0.0, 1.0, &partial, s->err));
        TSR_TRY(tsr_json_str(o, s->name, "type", false, &old_type, s->err));
        if (old_type)
            type = old_type;
        TSR_TRY(tsr_json_str(o, s->name, "rope_type", false, &type, s->err));
    }
    if (partial != 1.0 && !f->rope.partial_allowed)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"partial_rotary_factor\" %g is not supported for this family",
                        s->name, partial);
    r->dim = hp->latent.rank ? hp->latent.rope : (uint32_t)((double)hp->head_dim * partial);
    if (r->dim < 2 || r->dim % 2 != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %u of %u values of a head would rotate; the number must be even and "
                        "at least 2",
                        s->name, r->dim, hp->head_dim);
    if (f->rope.sliding_apart)
        TSR_TRY(sliding_rope(s, sliding));
    const struct tsr_config_node *other =
        f->rope.alias ? tsr_config_node_get(f->rope.alias, type) : NULL;
    const char *law = other && other->kind == TSR_CONFIG_NODE_SCALAR ? other->text : type;
    for (size_t i = 0; allowed(f, law) && i < sizeof known / sizeof *known; i++)
        if (strcmp(law, known[i].name) == 0)
            return known[i].read(s, o, hp);
    char list[120];
    int  at = 0;
    list[0] = '\0';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (allowed(f, known[i].name))
            at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", at ? ", " : "",
                           known[i].name);
    return tsr_fail(s->err, TSR_E_INPUT,
                    "%s: rope type \"%.40s\" is not supported for this family; supported: %s",
                    s->name, type, list);
}

tsr_status tsr_model_config_rope(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    json_t                        *o, *sliding;
    TSR_TRY(scaling_object(s, &o, &sliding));
    if (o || !f->unstated_rope)
        return stated_rope(s, o, sliding);
    char where[400]; /* the object is the family's, so that messages name it */
    (void)snprintf(where, sizeof where, "%.280s: 'unstated' of the family %.60s", s->name, f->name);
    struct tsr_model_config_source own = *s;
    own.name = where;
    o = tsr_config_node_json(f->unstated_rope);
    tsr_status st = o ? stated_rope(&own, o, sliding) : tsr_fail_nomem(s->err, 64, "rope");
    json_decref(o);
    return st;
}
