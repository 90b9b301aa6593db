/* Values of config.json by the description of a family. */
#include "model/config_internal.h"

#include "tessera/backend.h"

#include <math.h>
#include <string.h>

void tsr_model_config_note(const struct tsr_model_config_source *s, const char *key,
                           enum tsr_model_key_use use)
{
    struct tsr_model_config *c = s->config;
    for (unsigned i = 0; i < c->n_keys; i++)
        if (strcmp(c->keys[i].name, key) == 0)
            return;
    if (c->n_keys < TSR_CONFIG_KEYS)
        c->keys[c->n_keys++] = (struct tsr_model_key){ key, use };
}

/* The first key of v that config.json has, or NULL; *null: one is there, and is null. */
static const char *present(const struct tsr_model_config_source *s, const struct tsr_model_value *v,
                           bool *null)
{
    *null = false;
    for (unsigned i = 0; i < v->n_keys; i++) {
        const json_t *o = json_object_get(s->json, v->keys[i]);
        if (o && !json_is_null(o))
            return v->keys[i];
        *null = *null || o;
    }
    return NULL;
}

static double formed(const struct tsr_model_value *v, double x, double hidden)
{
    switch (v->form) {
    case TSR_MODEL_VALUE_INVERSE:
        return 1 / x;
    case TSR_MODEL_VALUE_INVERSE_ROOT:
        return 1 / sqrt(x);
    case TSR_MODEL_VALUE_ROOT:
        return sqrt(x);
    case TSR_MODEL_VALUE_OF_HIDDEN:
        return x * hidden;
    case TSR_MODEL_VALUE_ROOT_OF_HIDDEN:
        return sqrt(hidden);
    case TSR_MODEL_VALUE_AS_IT_IS:
        break;
    }
    return x;
}

/* The key to read; NULL: *x is the default or what null means. */
static const char *choose(const struct tsr_model_config_source *s, const struct tsr_model_value *v,
                          double *x)
{
    bool        null;
    const char *key = present(s, v, &null);
    if (!key && null && v->has_null)
        *x = v->null_value;
    else if (!key && v->has_def)
        *x = v->def;
    else if (!key && v->form != TSR_MODEL_VALUE_ROOT_OF_HIDDEN)
        key = v->n_keys ? v->keys[0] : "?";    /* required: reading it reports the error */
    const char *name = key ? key : v->keys[0]; /* NULL: it is always the default */
    if (name)
        tsr_model_config_note(s, name, key || null ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    return key;
}

/* 0 means none or derived; whoever needs more looks itself. */
static tsr_status default_error(const struct tsr_model_config_source *s,
                                const struct tsr_model_value *v, double x)
{
    return tsr_model_family_fail(s->config->family, v->at, s->err,
                                 "the default of \"%s\" is %g, which is out of range",
                                 v->n_keys ? v->keys[0] : "?", x);
}

tsr_status tsr_model_config_integer(const struct tsr_model_config_source *s,
                                    const struct tsr_model_value *v, int64_t lo, int64_t hi,
                                    int64_t *out)
{
    double      x = 0;
    int64_t     i = 0;
    const char *key = choose(s, v, &x);
    if (key)
        TSR_TRY(tsr_json_int(s->json, s->name, key, true, lo, hi, &i, s->err));
    else if (x != 0 &&
             !(x >= (double)(v->n_keys && lo == 0 ? -1 : lo) && x <= (double)hi && x == floor(x)))
        return default_error(s, v, x);
    else
        i = (int64_t)x;
    *out = v->form == TSR_MODEL_VALUE_AS_IT_IS
               ? i
               : (int64_t)formed(v, (double)i, (double)s->config->hp.hidden);
    return TSR_OK;
}

tsr_status tsr_model_config_size(const struct tsr_model_config_source *s,
                                 const struct tsr_model_value *v, int64_t most, uint64_t *out)
{
    int64_t i = 0;
    TSR_TRY(tsr_model_config_integer(s, v, 1, most, &i));
    if (i < 0 || i > most)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\" is above the limit of %lld", s->name,
                        v->n_keys ? v->keys[0] : "hidden_size", (long long)most);
    *out = (uint64_t)i;
    return TSR_OK;
}

tsr_status tsr_model_config_real(const struct tsr_model_config_source *s,
                                 const struct tsr_model_value *v, double lo, double hi, double *out)
{
    double      x = 0;
    const char *key = choose(s, v, &x);
    if (key)
        TSR_TRY(tsr_json_real(s->json, s->name, key, true, lo, hi, &x, s->err));
    else if (x != 0 && !(x >= lo && x <= hi))
        return default_error(s, v, x);
    *out = formed(v, x, (double)s->config->hp.hidden);
    return TSR_OK;
}

tsr_status tsr_model_config_float(const struct tsr_model_config_source *s,
                                  const struct tsr_model_value *v, double lo, double hi, float *out)
{
    double x = 0;
    TSR_TRY(tsr_model_config_real(s, v, lo, hi, &x));
    *out = (float)x;
    return TSR_OK;
}

tsr_status tsr_model_config_bool(const struct tsr_model_config_source *s, const char *key, bool *v)
{
    const json_t *o = json_object_get(s->json, key);
    tsr_model_config_note(s, key, o ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    return tsr_json_bool(s->json, s->name, key, false, v, s->err);
}

tsr_status tsr_model_config_flag(const struct tsr_model_config_source *s,
                                 const struct tsr_model_flag *f, bool *v)
{
    const char *word = f->words[*v];
    if (!f->words[0])
        return tsr_model_config_bool(s, f->key, v);
    const json_t *o = json_object_get(s->json, f->key);
    bool          there = o && !json_is_null(o);
    tsr_model_config_note(s, f->key, there ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    TSR_TRY(there ? tsr_json_str(s->json, s->name, f->key, true, &word, s->err) : TSR_OK);
    *v = f->words[1] && strcmp(word, f->words[1]) == 0;
    if (*v || strcmp(word, f->words[0]) == 0)
        return TSR_OK;
    return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\" \"%.60s\" is not supported; %s%s%s", s->name,
                    f->key, word, f->words[0], f->words[1] ? " and " : " is",
                    f->words[1] ? f->words[1] : "");
}

tsr_status tsr_model_config_truth(const struct tsr_model_config_source *s,
                                  const struct tsr_model_value *v, bool *out)
{
    double      x = 0;
    const char *key = choose(s, v, &x);
    *out = x != 0;
    return key ? tsr_json_bool(s->json, s->name, key, true, out, s->err) : TSR_OK;
}

tsr_status tsr_model_config_activation(const struct tsr_model_config_source *s,
                                       const struct tsr_model_value *v, uint32_t *func)
{
    static const struct {
        const char *name;
        uint32_t    func;
    } known[] = {
        { "silu", TSR_FUNC_SILU },           { "swish", TSR_FUNC_SILU },
        { "gelu", TSR_FUNC_GELU_ERF },       { "gelu_python", TSR_FUNC_GELU_ERF },
        { "gelu_new", TSR_FUNC_GELU_TANH },  { "gelu_pytorch_tanh", TSR_FUNC_GELU_TANH },
        { "gelu_fast", TSR_FUNC_GELU_TANH }, { "relu", TSR_FUNC_RELU },
    };
    bool        null;
    const char *key = present(s, v, &null), *word = v->word ? v->word : "";
    const char *name = key ? key : v->keys[0]; /* NULL: it is always the default */
    if (name)
        tsr_model_config_note(s, name, key ? TSR_MODEL_KEY_USED : TSR_MODEL_KEY_DEFAULT);
    if (key)
        TSR_TRY(tsr_json_str(s->json, s->name, key, true, &word, s->err));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(word, known[i].name) == 0) {
            *func = known[i].func;
            return TSR_OK;
        }
    }
    return tsr_fail(s->err, TSR_E_INPUT,
                    "%s: \"%s\": activation \"%.40s\" is not supported; silu, gelu, "
                    "gelu_pytorch_tanh and relu are",
                    s->name, key ? key : "hidden_act", word);
}
