/* Metadata of a GGUF file that only some families have: the keys that the family's section `gguf` reads, with what
 * config.json says of them. */
#include "checkpoint/export/gguf_out.h"

#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"

#include <math.h>
#include <string.h>

enum kind { BY_VALUE, WHOLE, REAL, TRUTH };

/* The types of the format's own keys, which a number in JSON does not show. */
static const struct {
    const char *key;
    enum kind   kind;
} types[] = {
    { "attention.scale", REAL },
    { "attention.sliding_window", WHOLE },
    { "attn_logit_softcapping", REAL },
    { "embedding_scale", REAL },
    { "expert_weights_norm", TRUTH },
    { "final_logit_softcapping", REAL },
    { "logit_scale", REAL },
    { "residual_scale", REAL },
    { "rope.freq_base_swa", REAL },
};

bool tsr_export_gguf_takes(const struct tsr_model_family *f, const char *key)
{
    for (unsigned i = 0; i < f->gguf.n_values; i++)
        if (f->gguf.value[i].key && strcmp(f->gguf.value[i].key, key) == 0)
            return true;
    return false;
}

/* The value of the family that has this key of config.json first, or NULL. */
static const struct tsr_model_value *value_of(const struct tsr_model_family *f, const char *name)
{
    const struct tsr_model_value *const all[] = {
#define X(member, key, def, help) &f->member,
        TSR_MODEL_VALUES(X)
#undef X
            & f->window.size,
        &f->experts.count,
        &f->experts.used,
        &f->experts.width,
        &f->experts.jitter,
        &f->rope.theta,
        &f->rope.partial,
        &f->rope.sliding_theta,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->n_keys && strcmp(all[i]->keys[0], name) == 0)
            return all[i];
    return NULL;
}

/* What config.json says under the name or another one of its value, else the family's default.  False: nothing. */
static bool number_of(const struct tsr_model_family *f, const json_t *config, const char *name,
                      double *v)
{
    const struct tsr_model_value *value = value_of(f, name);
    const json_t                 *j = json_object_get(config, name);
    for (unsigned i = 0; value && !j && i < value->n_keys; i++)
        j = json_object_get(config, value->keys[i]);
    if (json_is_boolean(j))
        *v = json_is_true(j);
    else if (json_is_number(j))
        *v = json_number_value(j);
    if (j)
        return json_is_boolean(j) || json_is_number(j);
    for (unsigned i = 0; i < f->n_flags; i++)
        if (strcmp(f->flag[i].key, name) == 0) {
            *v = f->flag[i].def;
            return true;
        }
    *v = value ? value->def : 0;
    return value && value->has_def;
}

static enum kind kind_of(const char *key, const json_t *said)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].key, key) == 0)
            return types[i].kind;
    return json_is_boolean(said) ? TRUTH : json_is_integer(said) ? WHOLE : REAL;
}

static tsr_status put(struct tsr_export *x, struct tsr_export_gguf_bytes *b, const char *arch,
                      const json_t *config, const struct tsr_model_gguf_value *v)
{
    const struct tsr_model_family *f = x->m->storage->family;
    char                           key[128];
    double                         n = 0;
    (void)snprintf(key, sizeof key, "%s.%s", arch, v->key);
    if (!number_of(f, config, v->name, &n)) {
        if (v->def || v->rule || v->tensor) /* reading gives it */
            return TSR_OK;
        return tsr_fail(
            x->err, TSR_E_INPUT,
            "%s: \"%s\" of config.json is not a number, and a gguf file of the family %s "
            "has it as \"%s\"",
            x->path, v->name, f->name, key);
    }
    switch (kind_of(v->key, json_object_get(config, v->name))) {
    case TRUTH:
        tsr_export_gguf_key_bool(b, key, n != 0);
        return TSR_OK;
    case WHOLE:
        if (!(n >= 0 && n <= UINT32_MAX && n == floor(n)))
            return tsr_fail(x->err, TSR_E_INPUT,
                            "%s: \"%s\" of config.json is not a whole number that gguf can hold",
                            x->path, v->name);
        tsr_export_gguf_key_u32(b, key, (uint64_t)n);
        return TSR_OK;
    default:
        tsr_export_gguf_key_f32(b, key, n);
        return TSR_OK;
    }
}

/* Which layers have a window. */
static void put_windows(const struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                        const char *arch)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    char                            key[128];
    (void)snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
    tsr_export_gguf_key_array(b, key, TSR_GGUF_BOOL, hp->layers);
    for (uint64_t l = 0; l < hp->layers; l++)
        tsr_export_gguf_add(b, &(unsigned char){ hp->window[l] != 0 }, 1);
}

tsr_status tsr_export_gguf_put_family(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                                      const char *arch)
{
    const struct tsr_model_family *f = x->m->storage->family;
    json_t                        *config = NULL;
    TSR_TRY(tsr_model_config_json(x->m, &config, x->err));
    tsr_status st = TSR_OK;
    for (unsigned i = 0; i < f->gguf.n_values && st == TSR_OK; i++)
        if (f->gguf.value[i].key)
            st = put(x, b, arch, f->text ? json_object_get(config, f->text) : config,
                     &f->gguf.value[i]);
    json_decref(config);
    if (st == TSR_OK && x->m->hp.window && f->window.types &&
        tsr_export_gguf_takes(f, "attention.sliding_window"))
        put_windows(x, b, arch);
    return st;
}
