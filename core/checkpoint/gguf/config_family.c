/* What a GGUF file says of its model, as keys of config.json: the sizes that all architectures have, and what the
 * family's section says beyond them. */
#include "base/mem.h"
#include "checkpoint/gguf/config_internal.h"
#include "tessera/backend.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes -------------------------------------------------------------------------- */

/* A size, required unless the family gives its key of config.json otherwise.  Where config.json has no key for it,
 * the file must have the one that the family derives. */
static tsr_status put_size(struct tsr_gguf_config_out *o, const struct tsr_model_value *v,
                           const char *key, int64_t *value, int64_t hidden, int64_t derived)
{
    char   name[128];
    bool   given = v->n_keys && tsr_gguf_config_gives(o, v->keys[0]);
    double want = v->form == TSR_MODEL_VALUE_OF_HIDDEN ? v->def * (double)hidden
                  : v->def != 0                        ? v->def
                                                       : (double)derived;
    TSR_TRY(tsr_gguf_config_int(o, key, !given && derived == 0, value));
    if (v->n_keys || (double)*value == want)
        return tsr_gguf_config_put_value(o, v, json_integer(*value));
    return tsr_fail(o->err, TSR_E_INPUT, "%s: \"%s\" is %lld; a model of the family %s has %.0f",
                    o->g->path, tsr_gguf_config_key(o, key, name), (long long)*value, o->f->name,
                    want);
}

static tsr_status put_eps(struct tsr_gguf_config_out *o)
{
    const struct tsr_model_value *v = &o->f->eps;
    double                        eps = 0;
    TSR_TRY(tsr_gguf_config_real(o,
                                 o->f->norm == TSR_NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                                            : "attention.layer_norm_epsilon",
                                 !(v->n_keys && tsr_gguf_config_gives(o, v->keys[0])), &eps));
    return tsr_gguf_config_put_value(o, v, tsr_gguf_config_shortest(eps));
}

/* What a router does beyond the choice of experts, which are the same ones in every layer from `dense` on: a number
 * that the file does not have is the one that changes nothing. */
static tsr_status put_router(struct tsr_gguf_config_out *o)
{
    const struct tsr_model_family *f = o->f;
    int64_t                        shared = 0, groups = 1, used = 1, dense = 0;
    double                         scale = 1;
    TSR_TRY(tsr_gguf_config_int(o, "expert_shared_count", false, &shared));
    TSR_TRY(tsr_gguf_config_int(o, "expert_group_count", false, &groups));
    TSR_TRY(tsr_gguf_config_int(o, "expert_group_used_count", false, &used));
    TSR_TRY(tsr_gguf_config_int(o, "leading_dense_block_count", false, &dense));
    TSR_TRY(tsr_gguf_config_real(o, "expert_weights_scale", false, &scale));
    scale = scale == 0 ? 1 : scale; /* as llama.cpp */
    if (f->experts.shared)
        TSR_TRY(tsr_gguf_config_put_value(o, &f->experts.shared_count, json_integer(shared)));
    if (f->experts.grouped) {
        TSR_TRY(tsr_gguf_config_put_value(o, &f->experts.groups, json_integer(groups)));
        TSR_TRY(tsr_gguf_config_put_value(o, &f->experts.groups_used, json_integer(used)));
    }
    if (f->experts.layers.kind == TSR_MODEL_LAYERS_FROM)
        TSR_TRY(tsr_gguf_config_put_value(o, &f->experts.layers.n, json_integer(dense)));
    return tsr_gguf_config_put_value(o, &f->experts.scale, tsr_gguf_config_shortest(scale));
}

/* Experts of a layer, those that a token takes, and the width of one.  Where config.json has no key for the width, it
 * is that of the feed-forward. */
static tsr_status put_experts(struct tsr_gguf_config_out *o, int64_t ffn)
{
    const struct tsr_model_family *f = o->f;
    int64_t                        count = 0, used = 0, width = ffn;
    if (!f->experts.is)
        return TSR_OK;
    TSR_TRY(put_size(o, &f->experts.count, "expert_count", &count, 0, 0));
    TSR_TRY(put_size(o, &f->experts.used, "expert_used_count", &used, 0, 0));
    TSR_TRY(put_router(o));
    if (f->experts.width.n_keys)
        return put_size(o, &f->experts.width, "expert_feed_forward_length", &width, 0, 0);
    TSR_TRY(tsr_gguf_config_int(o, "expert_feed_forward_length", false, &width));
    if (width == ffn)
        return TSR_OK;
    return tsr_fail(o->err, TSR_E_INPUT,
                    "%s: experts of width %lld with a feed-forward of %lld; a model of the family "
                    "%s has one width",
                    o->g->path, (long long)width, (long long)ffn, f->name);
}

/* Latent attention.  llama.cpp's newer files describe the form in which a token has one key, the row and the rope key:
 * head_count_kv is 1 and key_length is rank + rope; the columns of a head are key_length_mla and value_length_mla.
 * In the older ones key_length and value_length are those of a head, and head_count_kv is head_count. */
static tsr_status put_latent(struct tsr_gguf_config_out *o, int64_t heads, int64_t *rotated)
{
    const struct tsr_model_family *f = o->f;
    int64_t                        q_rank = 0, rank = 0, key = 0, value = 0, rope = 0, kv = heads;
    bool                           row = false;
    char                           name[128];
    row = tsr_gguf_key(o->g, tsr_gguf_config_key(o, "attention.key_length_mla", name)) != NULL;
    TSR_TRY(tsr_gguf_config_int(o, "attention.q_lora_rank", false, &q_rank));
    TSR_TRY(tsr_gguf_config_int(o, "attention.kv_lora_rank", true, &rank));
    TSR_TRY(tsr_gguf_config_int(o, row ? "attention.key_length_mla" : "attention.key_length", true,
                                &key));
    TSR_TRY(tsr_gguf_config_int(o, row ? "attention.value_length_mla" : "attention.value_length",
                                true, &value));
    TSR_TRY(tsr_gguf_config_int(o, "attention.head_count_kv", false, &kv));
    TSR_TRY(tsr_gguf_config_int(o, "rope.dimension_count", true, &rope));
    if (rope <= 0 || rope >= key || kv != (row ? 1 : heads))
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: latent attention with keys of %lld, of which %lld rotate, and %lld "
                        "key-value heads of %lld; some of a key rotate, and the heads are %lld",
                        o->g->path, (long long)key, (long long)rope, (long long)kv,
                        (long long)heads, (long long)(row ? 1 : heads));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->latent.q_rank,
                                      q_rank ? json_integer(q_rank) : json_null()));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->latent.rank, json_integer(rank)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->latent.nope, json_integer(key - rope)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->latent.rope, json_integer(rope)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->latent.v, json_integer(value)));
    *rotated = rope;
    return put_size(o, &f->heads, "attention.head_count", &heads, 0, 0);
}

tsr_status tsr_gguf_config_sizes(struct tsr_gguf_config_out *o, int64_t *heads, int64_t *head_dim)
{
    const struct tsr_model_family *f = o->f;
    int64_t                        hidden = 0, layers = 0, ffn = 0, positions = 0, kv, value;
    TSR_TRY(tsr_gguf_config_int(o, "embedding_length", true, &hidden));
    TSR_TRY(put_size(o, &f->hidden, "embedding_length", &hidden, hidden, 0));
    TSR_TRY(put_size(o, &f->layers, "block_count", &layers, hidden, 0));
    TSR_TRY(put_size(o, &f->ffn, "feed_forward_length", &ffn, hidden, 0));
    TSR_TRY(put_experts(o, ffn));
    TSR_TRY(put_size(o, &f->positions, "context_length", &positions, hidden, 0));
    TSR_TRY(put_eps(o));
    TSR_TRY(tsr_gguf_config_int(o, "attention.head_count", true, heads));
    kv = *heads;
    if (*heads <= 0)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: \"%s.attention.head_count\" is 0", o->g->path,
                        o->arch);
    if (f->latent.is)
        return put_latent(o, *heads, head_dim);
    const int64_t width = hidden / *heads;
    *head_dim = width;
    TSR_TRY(tsr_gguf_config_int(o, "attention.key_length", false, head_dim));
    value = *head_dim;
    TSR_TRY(tsr_gguf_config_int(o, "attention.value_length", false, &value));
    if (value != *head_dim || *head_dim <= 0)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: keys of %lld and values of %lld; only equal lengths are supported",
                        o->g->path, (long long)*head_dim, (long long)value);
    TSR_TRY(put_size(o, &f->heads, "attention.head_count", heads, hidden, 0));
    TSR_TRY(put_size(o, &f->kv_heads, "attention.head_count_kv", &kv, hidden, *heads));
    return put_size(o, &f->head_dim, "attention.key_length", head_dim, hidden, width);
}

/* ---- what the family says --------------------------------------------------------------- */

static json_t *number(double v, bool whole, bool null)
{
    if (v == 0 && null)
        return json_null();
    return whole ? json_integer((json_int_t)v) : tsr_gguf_config_shortest(v);
}

/* A key that is there, as its type says. */
static tsr_status metadata(struct tsr_gguf_config_out *o, const struct tsr_model_gguf_value *v,
                           const struct tsr_gguf_key *k, json_t **j)
{
    int64_t whole = 0;
    double  real = 0;
    char   *text = NULL;
    bool    null = v->def && v->def->kind == TSR_CONFIG_NODE_NULL, is = false;
    switch (k->type) {
    case TSR_GGUF_F32:
    case TSR_GGUF_F64:
        TSR_TRY(tsr_gguf_config_real(o, v->key, true, &real));
        *j = number(real, false, null);
        return TSR_OK;
    case TSR_GGUF_BOOL:
        TSR_TRY(tsr_gguf_bool(o->g, k->name, &is, o->err));
        *j = json_boolean(is);
        return TSR_OK;
    case TSR_GGUF_STRING:
        TSR_TRY(tsr_gguf_str(o->g, k->name, true, &text, o->err));
        *j = json_string(text);
        free(text);
        return TSR_OK;
    default:
        TSR_TRY(tsr_gguf_config_int(o, v->key, true, &whole));
        *j = number((double)whole, true, null);
        return TSR_OK;
    }
}

/* Under a key, or under OBJECT.KEY if the file gives the object. */
static tsr_status put_named(struct tsr_gguf_config_out *o, const char *name, json_t *j)
{
    const char *dot = strchr(name, '.');
    if (!dot)
        return tsr_gguf_config_put(o, name, j);
    char *object = tsr_strndup(name, (size_t)(dot - name));
    if (!object || !j) {
        free(object);
        json_decref(j);
        return tsr_fail_nomem(o->err, 64, name);
    }
    json_t    *in = json_object_get(o->j, object);
    tsr_status st = TSR_OK;
    free(object);
    if (!in)
        json_decref(j);
    else if (json_object_set_new(in, dot + 1, j) != 0)
        st = tsr_fail_nomem(o->err, 64, name);
    return st;
}

static tsr_status put_one(struct tsr_gguf_config_out *o, const struct tsr_model_gguf_value *v,
                          int64_t layers, int64_t by_heads, int64_t head_dim)
{
    char                     name[128] = "";
    json_t                  *j = NULL;
    enum tsr_model_gguf_rule rule = v->other && (uint64_t)layers == v->layers ? v->other : v->rule;
    const struct tsr_gguf_key *k =
        v->key ? tsr_gguf_key(o->g, tsr_gguf_config_key(o, v->key, name)) : NULL;
    if (v->tensor)
        j = json_boolean(tsr_gguf_config_has(o, v->tensor));
    else if (k)
        TSR_TRY(metadata(o, v, k, &j));
    else if (rule)
        j = json_integer(rule == TSR_MODEL_GGUF_RULE_HEAD_DIM ? head_dim : by_heads);
    else if (v->def)
        j = tsr_config_node_json(v->def);
    else
        return tsr_fail(o->err, TSR_E_INPUT, "%s: the key \"%s\" is missing", o->g->path, name);
    return put_named(o, v->name, j);
}

/* Which layers have a window: one of so many has none, or a list. */
static tsr_status put_windows(struct tsr_gguf_config_out *o, int64_t layers)
{
    const struct tsr_model_family *f = o->f;
    char                           name[128];
    const struct tsr_gguf_key     *k =
        tsr_gguf_key(o->g, tsr_gguf_config_key(o, "attention.sliding_window_pattern", name));
    int64_t interval = 0;
    if (!k || !tsr_gguf_config_takes(o, "attention.sliding_window"))
        return TSR_OK;
    if (k->type != TSR_GGUF_ARRAY)
        TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window_pattern", true, &interval));
    else
        TSR_TRY(tsr_gguf_array(o->g, name, true, TSR_GGUF_BOOL, &k, o->err));
    if (!f->window.types || (k->type == TSR_GGUF_ARRAY ? k->n != (uint64_t)layers : interval <= 0))
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: \"%s\" does not say which of %lld layers of the family %s have a "
                        "window; a list with a value for each is expected",
                        o->g->path, name, (long long)layers, f->name);
    json_t *types = json_array();
    for (int64_t l = 0; l < layers; l++) {
        bool sliding = k->type == TSR_GGUF_ARRAY ? o->g->header[k->at + (uint64_t)l] != 0
                                                 : (l + 1) % interval != 0;
        tsr_json_add(&types, json_string(sliding ? "sliding_attention" : "full_attention"));
    }
    return tsr_gguf_config_put(o, f->window.types, types);
}

tsr_status tsr_gguf_config_family(struct tsr_gguf_config_out *o, int64_t heads, int64_t head_dim)
{
    int64_t hidden = 0, layers = 0;
    TSR_TRY(tsr_gguf_config_int(o, "embedding_length", true, &hidden));
    TSR_TRY(tsr_gguf_config_int(o, "block_count", true, &layers));
    for (unsigned i = 0; i < o->f->gguf.n_values; i++)
        TSR_TRY(put_one(o, &o->f->gguf.value[i], layers, hidden / heads, head_dim));
    return put_windows(o, layers);
}
