/* config.json: finds the family, and fills the hparams as it says. */
#include "model/config_internal.h"

#include "base/mem.h"
#include "tessera/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_DEPTH 64

/* The family for `architectures`[0], or for `model_type` if that is absent.  Those of a rotated model are in its
 * rotation: other programs do not know the names outside. */
static tsr_status find_family(const struct tsr_model_config_source *s, const json_t *rotation,
                              const struct tsr_model_family **f)
{
    const json_t *from = rotation ? rotation : s->json;
    json_t       *list;
    const char   *type = NULL, *name = NULL;
    TSR_TRY(tsr_json_sub(from, s->name, "architectures", false, JSON_ARRAY, &list, s->err));
    TSR_TRY(tsr_json_str(from, s->name, "model_type", false, &type, s->err));
    if (list && json_array_size(list) > 0) {
        const json_t *first = json_array_get(list, 0);
        if (!(name = tsr_json_word(first)))
            return tsr_fail(s->err, TSR_E_INPUT, "%s: \"architectures\" is not a list of strings",
                            s->name);
    }
    if (!name && !type)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: neither \"architectures\" nor \"model_type\" says what model this is",
                        s->name);
    tsr_model_config_note(s, name ? "architectures" : "model_type", TSR_MODEL_KEY_USED);
    TSR_TRY(tsr_model_family_find(f, name, type, s->err));
    if (*f)
        return TSR_OK;
    return tsr_fail(s->err, TSR_E_INPUT,
                    "%s: %s \"%.80s\" is not supported; `tessera inspect models` lists those that "
                    "are, and --family FILE adds one",
                    s->name, name ? "architecture" : "model_type", name ? name : type);
}

static tsr_status keep_quantization(const struct tsr_model_config_source *s,
                                    struct tsr_model_config              *c)
{
    json_t *q = json_object_get(s->json, "quantization_config");
    if (!q || json_is_null(q))
        return TSR_OK;
    if (!json_is_object(q))
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"quantization_config\" is not an object",
                        s->name);
    c->quantization = json_incref(q);
    return TSR_OK;
}

/* An id, a list of ids, or null.  present distinguishes null and absent from a value. */
static tsr_status read_eos(const struct tsr_model_config_source *s, struct tsr_model_hparams *hp)
{
    const json_t *v = json_object_get(s->json, "eos_token_id");
    if (!v || json_is_null(v))
        return TSR_OK;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > TSR_MAX_EOS)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"eos_token_id\" lists %zu ids, at most %d are "
                        "supported",
                        s->name, n, TSR_MAX_EOS);
    hp->n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        json_int_t    x = json_is_integer(id) ? json_integer_value(id) : -1;
        if (x < 0 || x > UINT32_MAX)
            return tsr_fail(s->err, TSR_E_INPUT,
                            "%s: \"eos_token_id\" is not a token id or a list of "
                            "token ids",
                            s->name);
        hp->eos[hp->n_eos++] = (uint32_t)x;
    }
    return TSR_OK;
}

static tsr_status read_specials(const struct tsr_model_config_source *s,
                                struct tsr_model_hparams             *hp)
{
    TSR_TRY(tsr_json_int(s->json, s->name, "bos_token_id", false, 0, UINT32_MAX, &hp->bos, s->err));
    return read_eos(s, hp);
}

/* bos and eos: the family's, unless config.json says another or none. */
static tsr_status own_specials(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    const json_t                  *eos = json_object_get(s->json, "eos_token_id");
    TSR_TRY(tsr_model_config_integer(s, &f->bos, 0, UINT32_MAX, &hp->bos));
    tsr_model_config_note(s, "eos_token_id", eos ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    if (!eos && f->eos.def >= 0) {
        hp->eos[0] = (uint32_t)f->eos.def;
        hp->n_eos = 1;
    }
    return read_eos(s, hp);
}

/* heads, kv_heads and head_dim fit together, and hidden is set. */
static tsr_status read_heads(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    uint64_t                       heads, kv, dim;
    TSR_TRY(tsr_model_config_size(s, &f->heads, MAX_HEADS, &heads));
    TSR_TRY(tsr_model_config_size(s, &f->kv_heads, MAX_HEADS, &kv));
    TSR_TRY(f->latent.is ? tsr_model_config_latent(s, &dim)
                         : tsr_model_config_size(s, &f->head_dim, MAX_WIDTH, &dim));
    if (!heads)
        return tsr_model_family_fail(f, f->heads.at, s->err, "'heads' of the family is 0");
    kv = kv && !f->latent.is ? kv : heads; /* latent keys are of every head */
    if (heads % kv != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu attention heads are not a multiple of %llu key-value heads",
                        s->name, (unsigned long long)heads, (unsigned long long)kv);
    if (dim == 0 && hp->hidden % heads != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: hidden size %llu is not a multiple of %llu attention heads", s->name,
                        (unsigned long long)hp->hidden, (unsigned long long)heads);
    if (dim == 0)
        dim = hp->hidden / heads;
    if (heads * dim > (uint64_t)MAX_WIDTH)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu heads of %llu are wider than the limit of %lld", s->name,
                        (unsigned long long)heads, (unsigned long long)dim, (long long)MAX_WIDTH);
    hp->heads = (uint32_t)heads;
    hp->kv_heads = (uint32_t)kv;
    hp->head_dim = (uint32_t)dim;
    return TSR_OK;
}

static tsr_status read_sizes(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    int64_t                        extra = 0;
    TSR_TRY(tsr_model_config_size(s, &f->vocab, MAX_VOCAB, &hp->vocab));
    TSR_TRY(tsr_model_config_size(s, &f->hidden, MAX_WIDTH, &hp->hidden));
    TSR_TRY(tsr_model_config_size(s, &f->layers, MAX_LAYERS, &hp->layers));
    TSR_TRY(tsr_model_config_size(s, &f->ffn, MAX_WIDTH, &hp->ffn));
    const struct tsr_model_value *none = !hp->vocab    ? &f->vocab
                                         : !hp->hidden ? &f->hidden
                                         : !hp->layers ? &f->layers
                                                       : &f->ffn;
    if (!hp->vocab || !hp->hidden || !hp->layers || !hp->ffn)
        return tsr_model_family_fail(f, none->at, s->err,
                                     "'vocab', 'hidden', 'layers' or 'ffn' of the family is 0");
    TSR_TRY(read_heads(s));
    TSR_TRY(tsr_model_config_integer(s, &f->extra_layers, 0, MAX_LAYERS, &extra));
    hp->extra_layers = (uint64_t)extra;
    TSR_TRY(tsr_model_config_size(s, &f->embed_dim, MAX_WIDTH, &hp->embed_dim));
    if (hp->embed_dim == 0)
        hp->embed_dim = hp->hidden;
    TSR_TRY(tsr_model_config_size(s, &f->positions, MAX_POSITIONS, &hp->max_positions));
    if (!hp->max_positions)
        return tsr_model_family_fail(f, f->positions.at, s->err, "'positions' of the family is 0");
    return tsr_model_config_size(s, &f->position_offset, MAX_POSITIONS, &hp->position_offset);
}

/* Columns of a head's query and key. */
static uint32_t qk_cols(const struct tsr_model_hparams *hp)
{
    return hp->latent.rank ? hp->latent.nope + hp->latent.rope : hp->head_dim;
}

static tsr_status read_scales(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    TSR_TRY(tsr_model_config_float(s, &f->eps, 0.0, 1.0, &hp->norm_eps));
    TSR_TRY(tsr_model_config_float(s, &f->gain_offset, -1e3, 1e3, &hp->norm_gain_offset));
    TSR_TRY(tsr_model_config_float(s, &f->embed_scale, 1e-9, 1e9, &hp->embed_scale));
    TSR_TRY(tsr_model_config_float(s, &f->attn_scale, 1e-6, 1e9, &hp->attn_scale));
    if (!(hp->attn_scale > 0))
        hp->attn_scale = (float)(1.0 / sqrt((double)qk_cols(hp)));
    TSR_TRY(tsr_model_config_float(s, &f->attn_softcap, 1e-3, 1e9, &hp->attn_softcap));
    TSR_TRY(tsr_model_config_float(s, &f->ffn_alpha, 1e-6, 1e6, &hp->func_alpha));
    TSR_TRY(tsr_model_config_float(s, &f->ffn_limit, 1e-6, 1e9, &hp->func_limit));
    TSR_TRY(tsr_model_config_float(s, &f->residual_scale, 1e-9, 1e9, &hp->residual_scale));
    TSR_TRY(tsr_model_config_float(s, &f->logit_scale, 1e-9, 1e9, &hp->logit_scale));
    return tsr_model_config_float(s, &f->logit_softcap, 1e-3, 1e9, &hp->logit_softcap);
}

/* Flag i of the family. */
static bool is_set(const struct tsr_model_config *c, int i, bool absent)
{
    return i < 0 ? absent : (c->has & TSR_HAS_FLAG << 2 * i) != 0;
}

static tsr_status read_flags(const struct tsr_model_config_source *s)
{
    struct tsr_model_config       *c = s->config;
    const struct tsr_model_family *f = c->family;
    for (const char *const *key = f->refused; *key; key++) {
        bool is = false;
        TSR_TRY(tsr_model_config_bool(s, *key, &is));
        if (is)
            return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\" is not supported", s->name, *key);
    }
    for (unsigned i = 0; i < f->n_flags; i++) {
        bool is = f->flag[i].def;
        TSR_TRY(tsr_model_config_flag(s, &f->flag[i], &is));
        c->has |= TSR_HAS_FLAG << (2 * i + !is);
    }
    return TSR_OK;
}

static void choose_forms(struct tsr_model_config *c)
{
    const struct tsr_model_family *f = c->family;
    struct tsr_model_hparams      *hp = &c->hp;
    hp->norm = f->norm;
    hp->norm_place = is_set(c, f->norms_if, true) ? f->norms : f->norms_unless;
    hp->residual_from_norm = is_set(c, f->residual_from_norm, false);
    hp->qk_norm = is_set(c, f->qk_norm_if, true) ? f->qk_norm : TSR_MODEL_QK_NORM_NONE;
    hp->gated = f->gated;
    hp->attn_gate = f->attn_gate;
    hp->func = f->clamped ? TSR_FUNC_CLAMPED : hp->func;
    hp->positions = f->position_form;
    c->has |= is_set(c, f->affine, true) ? TSR_HAS_AFFINE : 0;
    c->has |= hp->embed_dim != hp->hidden ? TSR_HAS_PROJECTION : 0;
    c->has |= hp->tied ? 0 : TSR_HAS_HEAD;
    c->has |= hp->latent.q_rank ? TSR_HAS_Q_LATENT : TSR_HAS_Q_WHOLE;
    hp->rope_adjacent =
        is_set(c, f->rope.adjacent_if, true) ? f->rope.adjacent : f->rope.adjacent_unless;
}

/* A wrapper's own flag counts, as in the reference; without it that of the text model may tie, but not untie what the
 * wrapper ties by default. */
static tsr_status read_tied(const struct tsr_model_config_source *s, const json_t *outer)
{
    const struct tsr_model_value  *v = &s->config->family->tied;
    struct tsr_model_config_source wrapper = *s;
    bool                           inner = false;
    bool                          *tied = &s->config->hp.tied;
    wrapper.json = outer;
    TSR_TRY(tsr_model_config_truth(&wrapper, v, tied));
    const json_t *own = v->n_keys ? json_object_get(outer, v->keys[0]) : NULL;
    if (outer == s->json || (own && !json_is_null(own)))
        return TSR_OK;
    TSR_TRY(tsr_model_config_truth(s, v, &inner));
    *tied = *tied || inner;
    return TSR_OK;
}

static tsr_status parse(struct tsr_model_config_source *s)
{
    struct tsr_model_config *c = s->config;
    const json_t            *outer = s->json;
    json_t                  *rotation;
    if (!json_is_object(s->json))
        return tsr_fail(s->err, TSR_E_INPUT, "%s: is not a JSON object", s->name);
    TSR_TRY(tsr_model_config_rotation(s, &rotation));
    TSR_TRY(find_family(s, rotation, &c->family));
    TSR_TRY(keep_quantization(s, c));
    c->text = c->family->text;
    if (c->text && c->family->flat && !json_object_get(s->json, c->text))
        c->text = NULL;
    if (c->text) {
        json_t *inner;
        TSR_TRY(tsr_json_sub(s->json, s->name, c->text, true, JSON_OBJECT, &inner, s->err));
        tsr_model_config_note(s, c->text, TSR_MODEL_KEY_USED);
        s->json = inner;
    }
    TSR_TRY(own_specials(s));
    TSR_TRY(read_tied(s, outer));
    TSR_TRY(read_sizes(s));
    TSR_TRY(read_scales(s));
    TSR_TRY(tsr_model_config_activation(s, &c->family->activation, &c->hp.func));
    TSR_TRY(read_flags(s));
    choose_forms(c);
    if (c->hp.positions == TSR_MODEL_POSITIONS_ROPE)
        TSR_TRY(tsr_model_config_rope(s));
    TSR_TRY(tsr_model_config_layers(s));
    return rotation ? tsr_model_config_online(s, rotation) : TSR_OK;
}

tsr_status tsr_model_config_parse(struct tsr_model_config *c, const char *name, const char *json,
                                  uint64_t len, struct tsr_err *err)
{
    memset(c, 0, sizeof *c);
    json_t *j;
    TSR_TRY(tsr_json_parse(&j, name, json, len, CONFIG_DEPTH, err));
    struct tsr_model_config_source s = { j, name, c, err };
    tsr_status                     st = parse(&s);
    json_decref(j);
    if (st != TSR_OK)
        tsr_model_config_free(c);
    return st;
}

tsr_status tsr_model_generation_parse(struct tsr_model_config *c, const char *name,
                                      const char *json, uint64_t len, struct tsr_err *err)
{
    json_t *j;
    TSR_TRY(tsr_json_parse(&j, name, json, len, CONFIG_DEPTH, err));
    struct tsr_model_config_source s = { j, name, c, err };
    tsr_status                     st = json_is_object(j)
                                            ? read_specials(&s, &c->hp)
                                            : tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", name);
    json_decref(j);
    return st;
}

void tsr_model_hparams_free(struct tsr_model_hparams *hp)
{
    free(hp->window);
    free(hp->rope_of);
    free(hp->sparse);
    free(hp->recurrent);
    free(hp->rope.short_factor);
    free(hp->rope.long_factor);
}

void tsr_model_config_free(struct tsr_model_config *c)
{
    tsr_model_hparams_free(&c->hp);
    json_decref(c->quantization);
    memset(c, 0, sizeof *c);
}
