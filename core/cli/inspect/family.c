/* What a family file says, and what became of a model's config.json by it. */
#include "cli/inspect/inspect.h"

#include "model/config.h"
#include "model/stored.h"
#include "tessera/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const place[] = { "before each sub-layer", "after the residual",
                                     "before and after each sub-layer",
                                     "after each sub-layer, before it is added",
                                     "once, before attention and feed-forward side by side" };
static const char *const qk[] = { "none", "each head, one gain", "each head, a gain for each",
                                  "over the whole width" };
static const char *const positions[] = { "rope", "learned", "alibi" };
static const char *const scaling[] = { "none", "linear", "llama3", "longrope", "dynamic", "yarn" };
static const char *const forms[] = { "",     "inverse",   "inverse_root",
                                     "root", "of_hidden", "root_of_hidden" };

static json_t *list_of(const char *const *v)
{
    json_t *list = json_array();
    for (; list && *v; v++)
        if (json_array_append_new(list, json_string(*v)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static const char *const routers[] = { "softmax over all", "softmax over the chosen",
                                       "one after the other, by a threshold", "sigmoid of each" };

/* {name, keys, default, form} */
static json_t *value_json(const char *name, const struct tsr_model_value *v, const char *help)
{
    const char *keys[TSR_FAMILY_KEYS + 1] = { 0 };
    memcpy(keys, v->keys, sizeof v->keys);
    json_t *def = v->word ? json_string(v->word) : v->has_def ? json_real(v->def) : json_null();
    return json_pack("{s:s, s:o, s:o, s:s, s:s}", "name", name, "keys", list_of(keys), "default",
                     def, "form", forms[v->form], "help", help);
}

/* Groups that a router chooses from, the factor of its weights, and what every token takes. */
static bool add_choice(const struct tsr_model_family *f, json_t *to)
{
    const struct {
        bool                          is;
        const char                   *name;
        const struct tsr_model_value *v;
        const char                   *help;
    } of[] = {
        { f->experts.scale.n_keys > 0, "router_scale", &f->experts.scale,
          "Factor of the experts' weights." },
        { f->experts.grouped, "groups", &f->experts.groups, "Groups of experts." },
        { f->experts.grouped, "groups_used", &f->experts.groups_used,
          "Groups that experts are chosen from." },
        { f->experts.shared, "shared_count", &f->experts.shared_count,
          "Experts that every token takes, stored as one." },
        { f->experts.shared, "shared_ffn", &f->experts.shared_width,
          "Width of each; 0: expert_ffn." },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].is && json_array_append_new(to, value_json(of[i].name, of[i].v, of[i].help)) != 0)
            return false;
    return true;
}

static bool add_latent(const struct tsr_model_family *f, json_t *to)
{
    const struct {
        const char                   *name;
        const struct tsr_model_value *v;
        const char                   *help;
    } of[] = { { "latent.q_rank", &f->latent.q_rank,
                 "Rank of queries; null: they are not latent." },
               { "latent.rank", &f->latent.rank, "Rank of keys and values." },
               { "latent.nope", &f->latent.nope, "Columns of a head that do not rotate." },
               { "latent.rope", &f->latent.rope, "Columns of a head that rotate." },
               { "latent.v", &f->latent.v, "Columns of a head's value." },
               { "latent.eps", &f->latent.eps, "Epsilon of the norms of both rows." } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (json_array_append_new(to, value_json(of[i].name, of[i].v, of[i].help)) != 0)
            return false;
    return true;
}

static bool add_delta(const struct tsr_model_family *f, json_t *to)
{
    const struct {
        const char                   *name;
        const struct tsr_model_value *v;
        const char                   *help;
    } of[] = { { "delta.key_heads", &f->delta.key_heads, "Heads of queries and keys." },
               { "delta.value_heads", &f->delta.value_heads, "Heads of values." },
               { "delta.key_dim", &f->delta.key_dim, "Width of a head of queries and keys." },
               { "delta.value_dim", &f->delta.value_dim, "Width of a head of values." },
               { "delta.kernel", &f->delta.kernel, "Tokens that the convolution sees." } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (json_array_append_new(to, value_json(of[i].name, of[i].v, of[i].help)) != 0)
            return false;
    return true;
}

static bool add_values(const struct tsr_model_family *f, json_t *to)
{
#define X(member, key, def, help)                                                                  \
    if (json_array_append_new(to, value_json(#member, &f->member, help)) != 0)                     \
        return false;
    TSR_MODEL_VALUES(X)
#undef X
    if (f->delta.is && !add_delta(f, to))
        return false;
    if (f->latent.is && !add_latent(f, to))
        return false;
    if (!f->experts.is)
        return true;
    return json_array_append_new(to, value_json("experts", &f->experts.count,
                                                "Experts of a layer that has some.")) == 0 &&
           json_array_append_new(to, value_json("experts_used", &f->experts.used,
                                                "Experts that a token takes.")) == 0 &&
           json_array_append_new(to, value_json("expert_ffn", &f->experts.width,
                                                "Width of an expert; 0: ffn.")) == 0 &&
           add_choice(f, to);
}

/* Names alone, and {part, name, gguf} of each. */
static bool add_tensors(const struct tsr_model_family *f, json_t *names, json_t *parts)
{
    bool gguf = f->gguf.architectures[0] || f->gguf.write;
    for (uint32_t i = 0; i < f->n_roles; i++) {
        const struct tsr_model_role *r = &f->roles[i];
        char                         both[2 * TSR_FAMILY_NAME + 4];
        if (r->gguf && r->gguf_up)
            (void)snprintf(both, sizeof both, "%s, %s", r->gguf, r->gguf_up);
        json_t *in_gguf =
            !gguf || !r->gguf ? json_null() : json_string(r->gguf_up ? both : r->gguf);
        json_t *one =
            json_pack("{s:s, s:s, s:o}", "part", r->key, "name", r->name, "gguf", in_gguf);
        if (json_array_append_new(names, json_string(r->name)) != 0 ||
            json_array_append_new(parts, one) != 0)
            return false;
    }
    return true;
}

tsr_status tsr_inspect_family(const char *name, json_t **out, struct tsr_err *err)
{
    const struct tsr_model_family *f = NULL;
    const char                    *names[128];
    uint64_t                       n = 0;
    for (; n < 128; n++) {
        TSR_TRY(tsr_model_family_at(n, &f, err));
        if (!f || strcmp(f->name, name) == 0)
            break;
        names[n] = f->name;
    }
    if (!f) {
        const char *near = tsr_config_nearest(name, names, n);
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: there is no model family of that name%s%s%s; `tessera inspect models` "
                        "lists them",
                        name, near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    json_t *values = json_array(), *tensors = json_array(), *parts = json_array();
    bool ok = values && tensors && parts && add_values(f, values) && add_tensors(f, tensors, parts);
    *out = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}",
                     "name", f->name, "file", tsr_config_doc_path(f->doc), "summary", f->summary,
                     "architectures", list_of(f->architectures), "model_types",
                     list_of(f->model_types), "prefixes", list_of(f->prefixes), "norm",
                     f->norm == TSR_NORM_RMS ? "rms" : "layer", "norms", place[f->norms], "qk_norm",
                     qk[f->qk_norm], "feed_forward",
                     f->clamped ? "clamped"
                     : f->gated ? "gated"
                                : "plain",
                     "positions", positions[f->position_form], "values", values, "tensors", tensors,
                     "parts", parts, "gguf", list_of(f->gguf.architectures));
    if (*out && f->experts.is)
        ok =
            ok && json_object_set_new(*out, "router", json_string(routers[f->experts.router])) == 0;
    if (*out && f->experts.shared)
        ok = ok &&
             json_object_set_new(*out, "shared",
                                 json_string(f->experts.shared_gated ? "by the sigmoid of a score"
                                                                     : "with weight 1")) == 0;
    return ok && *out ? TSR_OK : tsr_fail_nomem(err, 0, name);
}

/* ---- a model --------------------------------------------------------------------------------- */

static json_t *attention_json(const struct tsr_model_hparams *hp, uint64_t i)
{
    unsigned                     of = hp->rope_of ? hp->rope_of[i] : TSR_MODEL_ROPE_OF_ALL;
    const struct tsr_model_rope *r =
        of == TSR_MODEL_ROPE_OF_SLIDING ? &hp->rope_sliding : &hp->rope;
    if (hp->positions != TSR_MODEL_POSITIONS_ROPE || of == TSR_MODEL_ROPE_OF_NONE)
        return json_pack("{s:I, s:s}", "window", (json_int_t)hp->window[i], "positions",
                         hp->positions == TSR_MODEL_POSITIONS_ROPE ? "none"
                                                                   : positions[hp->positions]);
    return json_pack("{s:I, s:s, s:f, s:s, s:f}", "window", (json_int_t)hp->window[i], "positions",
                     hp->rope_adjacent ? "rope, adjacent pairs" : "rope", "theta", r->theta,
                     "scaling", scaling[r->scaling], "rotated", (double)r->dim / hp->head_dim);
}

/* The form of a layer whose attention is not the plain one, too. */
static json_t *layer_json(const struct tsr_model_hparams *hp, uint64_t i)
{
    bool    recurrent = tsr_model_is_recurrent(hp, i);
    json_t *j = attention_json(hp, i);
    if (!j || (!recurrent && !hp->attn_gate))
        return j;
    if (json_object_set_new(j, "form", json_string(recurrent ? "delta rule" : "gated attention")) ==
        0)
        return j;
    json_decref(j);
    return NULL;
}

/* [{first, last, ...}]: layers in a row that are alike. */
static json_t *layers_json(const struct tsr_model_hparams *hp)
{
    json_t *all = json_array(), *last = NULL;
    bool    ok = all != NULL;
    for (uint64_t i = 0; ok && i < hp->layers; i++) {
        json_t *one = layer_json(hp, i);
        json_t *run = json_array_get(all, json_array_size(all) - 1);
        if (one && last && json_equal(one, last)) {
            ok = json_object_set_new(run, "last", json_integer((json_int_t)i)) == 0;
            json_decref(one);
            continue;
        }
        json_decref(last);
        last = one;
        json_t *copy = json_pack("{s:I, s:I}", "first", (json_int_t)i, "last", (json_int_t)i);
        ok = one && copy && json_object_update(copy, one) == 0;
        ok = json_array_append_new(all, copy) == 0 && ok;
    }
    json_decref(last);
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static bool was_read(const struct tsr_model_config *c, const char *key)
{
    for (unsigned i = 0; i < c->n_keys; i++)
        if (strcmp(c->keys[i].name, key) == 0)
            return true;
    return strcmp(key, "quantization_config") == 0 || strcmp(key, "model_type") == 0 ||
           strcmp(key, "architectures") == 0;
}

static bool add_ignored(const struct tsr_model_config *c, json_t *o, const char *under,
                        json_t *ignored)
{
    const char *key;
    json_t     *v;
    char        name[300];
    json_object_foreach (o, key, v) {
        if (c->text && !*under && strcmp(key, c->text) == 0) {
            (void)snprintf(name, sizeof name, "%.250s.", key);
            if (!add_ignored(c, v, name, ignored))
                return false;
            continue;
        }
        bool here = !c->text || *under; /* the level that the family reads */
        if (here && was_read(c, key))
            continue;
        if (strcmp(key, "architectures") == 0 || strcmp(key, "model_type") == 0)
            continue;
        (void)snprintf(name, sizeof name, "%s%.250s", under, key);
        if (json_array_append_new(ignored, json_string(name)) != 0)
            return false;
    }
    return true;
}

/* The value of a key that was used: where the family reads it, or above. */
static json_t *value_of(const struct tsr_model_config *c, json_t *config, const char *key)
{
    json_t *inner = c->text ? json_object_get(config, c->text) : config;
    json_t *v = json_object_get(inner, key);
    return v ? v : json_object_get(config, key);
}

static json_t *keys_json(const struct tsr_model_config *c, json_t *config)
{
    json_t *used = json_array(), *defaults = json_array(), *ignored = json_array();
    json_t *values = json_object();
    bool    ok = used && defaults && ignored && values;
    for (unsigned i = 0; ok && i < c->n_keys; i++) {
        const char *key = c->keys[i].name;
        bool        is = c->keys[i].use == TSR_MODEL_KEY_USED;
        json_t     *v = is ? value_of(c, config, key) : NULL;
        ok = json_array_append_new(is ? used : defaults, json_string(key)) == 0;
        if (ok && v && (!c->text || strcmp(key, c->text) != 0))
            ok = json_object_set(values, key, v) == 0;
    }
    ok = ok && add_ignored(c, config, "", ignored);
    json_t *j = json_pack("{s:o, s:o, s:o, s:o}", "used", used, "default", defaults, "ignored",
                          ignored, "values", values);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

tsr_status tsr_inspect_config_family(const struct tsr_model_config *c, json_t *config, json_t *to,
                                     struct tsr_err *err)
{
    if (json_object_set_new(to, "family_file", json_string(tsr_config_doc_path(c->family->doc))) !=
            0 ||
        json_object_set_new(to, "config", keys_json(c, config)) != 0 ||
        json_object_set_new(to, "layer_forms", layers_json(&c->hp)) != 0 ||
        json_object_set_new(to, "norms", json_string(place[c->hp.norm_place])) != 0 ||
        json_object_set_new(to, "qk_norm", json_string(qk[c->hp.qk_norm])) != 0)
        return tsr_fail_nomem(err, 0, "a model's configuration");
    return TSR_OK;
}

tsr_status tsr_inspect_model_family(const struct tsr_model *m, json_t *to, struct tsr_err *err)
{
    struct tsr_model_config c;
    json_t                 *config = NULL;
    char                   *text;
    uint64_t                len;
    TSR_TRY(tsr_model_text(m, "config.json", &text, &len, err));
    if (!text)
        return TSR_OK;
    tsr_status st = tsr_model_config_parse(&c, "config.json", text, len, err);
    free(text);
    TSR_TRY(st);
    st = tsr_model_config_json(m, &config, err);
    if (st == TSR_OK)
        st = tsr_inspect_config_family(&c, config, to, err);
    json_decref(config);
    tsr_model_config_free(&c);
    return st;
}
