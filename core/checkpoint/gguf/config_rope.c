/* Rope of a GGUF file, as keys of config.json. */
#include "base/mem.h"
#include "checkpoint/gguf/config_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One factor per rotated pair, from a tensor of F32. */
static tsr_status factors(struct tsr_gguf_config_out *o, const char *name, json_t *to,
                          const char *key)
{
    const struct tsr_gguf_tensor *t = tsr_gguf_find(o->g, name);
    if (!t || t->rank != 1 || t->type != TSR_GGUF_T_F32 || t->dims[0] > 65536)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: tensor \"%s\" is not a list of F32 rope factors",
                        o->g->path, name);
    float     *v = tsr_new(t->dims[0], sizeof *v);
    json_t    *list = json_array();
    tsr_status st = v && list ? TSR_OK : tsr_fail_nomem(o->err, t->bytes, name);
    if (st == TSR_OK)
        st = tsr_file_read(&o->g->file, t->at, v, t->bytes, o->err);
    for (uint64_t i = 0; st == TSR_OK && i < t->dims[0]; i++)
        if (!isfinite(v[i]) || json_array_append_new(list, json_real((double)v[i])) != 0)
            st = isfinite(v[i]) ? tsr_fail_nomem(o->err, 64, name)
                                : tsr_fail(o->err, TSR_E_INPUT,
                                           "%s: tensor \"%s\": factor %llu is not a number",
                                           o->g->path, name, (unsigned long long)i);
    if (st == TSR_OK && json_object_set(to, key, list) != 0)
        st = tsr_fail_nomem(o->err, 64, name);
    json_decref(list);
    free(v);
    return st;
}

/* The law llama3 comes as finished factors (rope_freqs), which is long rope whose two lists are the same; long
 * rope as two lists. */
static tsr_status factor_rope(struct tsr_gguf_config_out *o, json_t *r, const char *shorter,
                              const char *longer)
{
    double  attention = 1.0;
    int64_t original = 0;
    TSR_TRY(tsr_gguf_config_real(o, "rope.scaling.attn_factor", false, &attention));
    TSR_TRY(tsr_gguf_config_int(o, "context_length", true, &original));
    TSR_TRY(tsr_gguf_config_int(o, "rope.scaling.original_context_length", false, &original));
    TSR_TRY(factors(o, shorter, r, "short_factor"));
    TSR_TRY(factors(o, longer, r, "long_factor"));
    bool ok = json_object_set_new(r, "rope_type", json_string("longrope")) == 0 &&
              json_object_set_new(r, "attention_factor", tsr_gguf_config_shortest(attention)) == 0;
    TSR_TRY(tsr_gguf_config_put(o, "original_max_position_embeddings", json_integer(original)));
    return ok ? TSR_OK : tsr_fail_nomem(o->err, 64, "rope_scaling");
}

/* Under latent attention the scores carry the scale: the file has a tenth of mscale_all_dim, and llama.cpp takes mscale
 * for the same number, so that cosine and sine have the factor 1. */
static bool put_score_scale(json_t *r, double log_mul)
{
    json_t *tenth = tsr_gguf_config_shortest(log_mul);
    json_t *all = tenth ? tsr_gguf_config_shortest(10.0 * json_real_value(tenth)) : NULL;
    bool    ok = all && json_object_set(r, "mscale", all) == 0 &&
              json_object_set(r, "mscale_all_dim", all) == 0;
    json_decref(tenth);
    json_decref(all);
    return ok;
}

static tsr_status yarn_rope(struct tsr_gguf_config_out *o, json_t *r, double factor)
{
    double  fast = 32.0, slow = 1.0, attention = 1.0, log_mul = 0.0;
    int64_t original = 0;
    TSR_TRY(tsr_gguf_config_real(o, "rope.scaling.yarn_log_multiplier", false, &log_mul));
    TSR_TRY(tsr_gguf_config_real(o, "rope.scaling.yarn_beta_fast", false, &fast));
    TSR_TRY(tsr_gguf_config_real(o, "rope.scaling.yarn_beta_slow", false, &slow));
    TSR_TRY(tsr_gguf_config_real(o, "rope.scaling.attn_factor", false, &attention));
    TSR_TRY(tsr_gguf_config_int(o, "rope.scaling.original_context_length", true, &original));
    /* ggml multiplies the factor of the method by the one that is stored */
    double whole = attention * (factor <= 1.0 ? 1.0 : 0.1 * log(factor) + 1.0);
    bool   scores = o->f->latent.is && log_mul != 0.0;
    bool   ok =
        json_object_set_new(r, "beta_fast", json_real(fast)) == 0 &&
        json_object_set_new(r, "beta_slow", json_real(slow)) == 0 &&
        (scores ? put_score_scale(r, log_mul)
                : json_object_set_new(r, "attention_factor", json_real(whole)) == 0) &&
        json_object_set_new(r, "original_max_position_embeddings", json_integer(original)) == 0;
    return ok ? TSR_OK : tsr_fail_nomem(o->err, 64, "rope_scaling");
}

static tsr_status named_rope(struct tsr_gguf_config_out *o, json_t *r, const char *type)
{
    double factor = 0.0;
    TSR_TRY(tsr_gguf_config_real(o, "rope.scaling.factor", false, &factor));
    if (factor == 0.0) /* as ggml: no factor, no scaling */
        factor = 1.0;
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) {
        bool ok = json_object_set_new(r, "rope_type", json_string(type)) == 0 &&
                  json_object_set_new(r, "factor", tsr_gguf_config_shortest(factor)) == 0;
        if (!ok)
            return tsr_fail_nomem(o->err, 64, "rope_scaling");
        return *type == 'y' ? yarn_rope(o, r, factor) : TSR_OK;
    }
    return tsr_fail(
        o->err, TSR_E_INPUT,
        "%s: \"%s.rope.scaling.type\" is \"%.40s\"; none, linear, yarn and longrope with "
        "its factors are read",
        o->g->path, o->arch, type);
}

static tsr_status put_rope(struct tsr_gguf_config_out *o, json_t *r)
{
    char   name[128], *type = NULL;
    bool   lists = tsr_gguf_config_has(o, "rope_factors_long.weight");
    double linear = 0.0;
    TSR_TRY(tsr_gguf_str(o->g, tsr_gguf_config_key(o, "rope.scaling.type", name), false, &type,
                         o->err));
    TSR_TRY(tsr_gguf_config_real(o, "rope.scale_linear", false, &linear));
    tsr_status st = TSR_OK;
    if (o->g->file.fd < 0 && (lists || tsr_gguf_config_has(o, "rope_freqs.weight")))
        st = TSR_OK; /* metadata alone, as an export checks them: factors are tensors */
    else if (lists)
        st = factor_rope(o, r, "rope_factors_short.weight", "rope_factors_long.weight");
    else if (tsr_gguf_config_has(o, "rope_freqs.weight"))
        st = factor_rope(o, r, "rope_freqs.weight", "rope_freqs.weight");
    else if (type && strcmp(type, "none") != 0)
        st = named_rope(o, r, type);
    else if (linear != 0.0 && linear != 1.0) /* the older key */
        st = json_object_set_new(r, "rope_type", json_string("linear")) == 0 &&
                     json_object_set_new(r, "factor", tsr_gguf_config_shortest(linear)) == 0
                 ? TSR_OK
                 : tsr_fail_nomem(o->err, 64, "rope_scaling");
    free(type);
    return st;
}

tsr_status tsr_gguf_config_rope(struct tsr_gguf_config_out *o, int64_t head_dim)
{
    double  theta = 10000.0;
    int64_t rotated = head_dim;
    TSR_TRY(tsr_gguf_config_real(o, "rope.freq_base", false, &theta));
    TSR_TRY(tsr_gguf_config_int(o, "rope.dimension_count", false, &rotated));
    if (rotated > head_dim || rotated <= 0)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: \"%s.rope.dimension_count\" is %lld for heads of %lld", o->g->path,
                        o->arch, (long long)rotated, (long long)head_dim);
    TSR_TRY(tsr_gguf_config_put_value(o, &o->f->rope.theta, tsr_gguf_config_shortest(theta)));
    if (rotated != head_dim)
        TSR_TRY(tsr_gguf_config_put_value(o, &o->f->rope.partial,
                                          json_real((double)rotated / (double)head_dim)));
    json_t    *r = json_object();
    tsr_status st = r ? put_rope(o, r) : tsr_fail_nomem(o->err, 64, "rope_scaling");
    if (st == TSR_OK && json_object_size(r) == 0 && o->f->unstated_rope &&
        json_object_set_new(r, "rope_type", json_string("default")) != 0) /* none is said: none */
        st = tsr_fail_nomem(o->err, 64, "rope_scaling");
    if (st == TSR_OK && json_object_size(r) > 0 && json_object_set(o->j, "rope_scaling", r) != 0)
        st = tsr_fail_nomem(o->err, 64, "rope_scaling");
    json_decref(r);
    return st;
}
