/* tessera.indicators/2 as JSON. */
#include "base/json.h"
#include "plugin/choices.h"
#include "quant/kl.h"

#include <math.h>

#define FORMAT "tessera.indicators/2"

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* Takes v; false: out of memory. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static bool put_figure(json_t *o, const struct tsr_kl_figure *f)
{
    return put(o, "kl", number(f->kl)) && put(o, "half", number(f->half));
}

/* [layers] of one member of the figures of a scheme. */
static json_t *column(const struct tsr_quant_kl *t, uint32_t k, bool half)
{
    json_t *list = json_array();
    for (uint64_t l = 0; list && l < t->layers; l++) {
        const struct tsr_kl_figure *f = &t->figure[l * t->n_schemes + k];
        if (json_array_append_new(list, number(half ? f->half : f->kl)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *probed_json(const struct tsr_quant_kl *t)
{
    json_t *list = json_array();
    for (uint64_t l = 0; list && l < t->layers; l++)
        if (t->probed[l] && json_array_append_new(list, json_integer((json_int_t)l)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *scheme_json(const struct tsr_quant_kl *t, const struct tsr_quant_kl_options *opt,
                           uint32_t k)
{
    json_t *o = json_object();
    if (o && put(o, "scheme", json_string(opt->scheme_text[k])) &&
        put(o, "factor", number(t->factor[k])) && put(o, "spread", number(t->spread[k])) &&
        put(o, "kl", column(t, k, false)) && put(o, "half", column(t, k, true)))
        return o;
    json_decref(o);
    return NULL;
}

/* A cache type, or a codec. */
static json_t *choice_json(const char *key, const char *name, const struct tsr_kl_figure *f,
                           const char *of, uint64_t number_of)
{
    json_t *o = json_object();
    if (o && put(o, key, json_string(name)) && put_figure(o, f) &&
        (!of || put(o, of, json_integer((json_int_t)number_of))))
        return o;
    json_decref(o);
    return NULL;
}

/* Ends by a scheme, with [low, high]. */
static json_t *end_json(const char *scheme, const struct tsr_kl_figure *f)
{
    json_t *o = json_object();
    json_t *interval =
        isfinite(f->half) ? json_pack("[f, f]", f->kl - f->half, f->kl + f->half) : json_null();
    bool ok = put(o, "scheme", json_string(scheme)) && put(o, "kl", number(f->kl));
    ok = put(o, "interval", interval) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* What is left of a scheme's KL with k channels. */
static json_t *left_json(const char *scheme, uint32_t k, const struct tsr_kl_figure *f)
{
    json_t *o = json_object();
    json_t *interval = isfinite(f->half)
                           ? json_pack("[f, f]", fmax(f->kl - f->half, 0), f->kl + f->half)
                           : json_null();
    bool    ok = put(o, "scheme", json_string(scheme)) && put(o, "k", json_integer(k)) &&
              put(o, "kept", number(f->kl));
    ok = put(o, "interval", interval) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *plan_json(const struct tsr_quant_kl *t, const struct tsr_quant_kl_options *opt,
                         const struct tsr_quant_kl_plan *p)
{
    json_t *o = json_object(), *layers = json_array();
    bool    ok = o && layers && put(o, "w", number(p->w)) && put_figure(o, &p->measured) &&
              put(o, "adds_up", json_boolean(!p->fails));
    for (uint64_t l = 0; ok && l < t->layers; l++)
        ok = json_array_append_new(layers, json_string(p->choice[l] < t->n_schemes
                                                           ? opt->scheme_text[p->choice[l]]
                                                           : "original")) == 0;
    ok = put(o, "layers", layers) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *map_json(const struct tsr_quant_kl *t)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < t->n_points; i++)
        if (json_array_append_new(list, json_pack("[f, f]", t->map_w[i], t->map_kl[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Takes v; false: out of memory. */
static bool add(json_t *list, json_t *v)
{
    return json_array_append_new(list, v) == 0;
}

static bool put_choices(json_t *o, const struct tsr_quant_kl *t,
                        const struct tsr_quant_kl_options *opt)
{
    json_t *schemes = json_array(), *kv = json_array(), *links = json_array(), *sums = json_array();
    json_t *ends = json_array(), *left = json_array();
    bool    ok = true;
    for (uint32_t k = 0; k < t->n_schemes; k++)
        ok = ok && add(schemes, scheme_json(t, opt, k));
    for (uint32_t k = 0; k < opt->n_kv; k++)
        ok = ok && add(kv, choice_json("kv", tsr_plugin_kv_name(opt->kv[k]), &t->kv[k], "context",
                                       t->seqlen));
    for (uint32_t k = 0; k < opt->n_links; k++)
        ok = ok && add(links, choice_json("codec", opt->link[k], &t->link[k], NULL, 0));
    for (uint32_t k = 0; k < opt->n_sums; k++)
        ok = ok && add(sums, choice_json("codec", opt->sum[k], &t->sum[k], "ranks", opt->ranks));
    for (uint32_t k = 0; k < opt->n_ends; k++)
        ok = ok && add(ends, end_json(opt->end[k], &t->end[k]));
    for (uint32_t k = 0; k < t->n_schemes * opt->n_k; k++)
        ok = ok && add(left, left_json(opt->scheme_text[k / opt->n_k], opt->k[k % opt->n_k],
                                       &t->left[k / opt->n_k][k % opt->n_k]));
    /* put() takes the references in any case */
    ok = put(o, "schemes", schemes) && ok;
    ok = put(o, "kv", kv) && ok;
    ok = put(o, "links", links) && ok;
    ok = put(o, "ends", ends) && ok;
    ok = put(o, "compensation", left) && ok;
    return put(o, "sums", sums) && ok;
}

json_t *tsr_quant_kl_json(const struct tsr_quant_kl *t, const struct tsr_model *m,
                          const struct tsr_quant_calibration *c,
                          const struct tsr_quant_kl_options  *opt)
{
    json_t *o = json_object(), *plans = json_array();
    bool ok = o && put(o, "format", json_string(FORMAT)) && put(o, "model", json_string(m->hash)) &&
              put(o, "layers", json_integer((json_int_t)t->layers)) &&
              put(o, "calibration",
                  json_pack("{s:s, s:I, s:I}", "hash", c->hash, "sequences",
                            (json_int_t)t->sequences, "seqlen", (json_int_t)t->seqlen)) &&
              put(o, "tokens", json_integer((json_int_t)t->tokens)) &&
              put(o, "probed", probed_json(t)) && put_choices(o, t, opt) &&
              put(o, "map", map_json(t)) &&
              put(o, "cost",
                  json_pack("{s:f, s:f, s:f}", "forwards", t->forwards, "said_s", t->said_s,
                            "seconds", t->seconds));
    for (uint32_t p = 0; p < t->n_plans; p++)
        ok = ok && add(plans, plan_json(t, opt, &t->plan[p]));
    ok = put(o, "plans", plans) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}
