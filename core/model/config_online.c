/* What runs with a rotated model: the key "tessera_rotation" of config.json, docs/formats/rotated.md. */
#include "model/config_internal.h"

#include "base/hadamard.h"
#include "model/online.h"
#include "model/packed_slice.h"
#include "tessera/backend.h"

#include <string.h>

static const char *const keys[] = { "format", "architectures", "model_type", "keys",
                                    "down",   "expert_down",   "shared_down" };

tsr_status tsr_model_config_rotation(const struct tsr_model_config_source *s, json_t **rotation)
{
    const char *format, *key;
    json_t     *value;
    TSR_TRY(
        tsr_json_sub(s->json, s->name, TSR_MODEL_ROTATION, false, JSON_OBJECT, rotation, s->err));
    if (!*rotation)
        return TSR_OK;
    tsr_model_config_note(s, TSR_MODEL_ROTATION, TSR_MODEL_KEY_USED);
    TSR_TRY(tsr_json_str(*rotation, s->name, "format", true, &format, s->err));
    if (strcmp(format, TSR_MODEL_ROTATION_FORMAT) != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"" TSR_MODEL_ROTATION "\" has the format \"%.60s\", known is "
                        "\"" TSR_MODEL_ROTATION_FORMAT "\"",
                        s->name, format);
    json_object_foreach (*rotation, key, value) { /* an unknown one might change the function */
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && strcmp(key, keys[i]) != 0)
            i++;
        if (i == sizeof keys / sizeof *keys)
            return tsr_fail(s->err, TSR_E_INPUT,
                            "%s: \"" TSR_MODEL_ROTATION "\" has the unknown key \"%.60s\"", s->name,
                            key);
    }
    return TSR_OK;
}

/* Columns that divide all segments. */
static uint64_t unit_of(uint64_t cols)
{
    uint64_t a = tsr_segment_columns(cols), b = cols;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool tsr_model_online_known(uint64_t n)
{
    uint64_t base = tsr_hadamard_base(n);
    return base && base <= TSR_HADAMARD_BASE;
}

uint64_t tsr_model_online_run(uint64_t cols)
{
    return tsr_hadamard_divisor(unit_of(cols), TSR_HADAMARD_BASE);
}

/* A number of columns under a key; unit: what it has to divide, 0: the model has no such inputs. */
static tsr_status read_run(const struct tsr_model_config_source *s, const json_t *rotation,
                           const char *key, uint64_t unit, uint32_t *run)
{
    int64_t n = 0;
    TSR_TRY(tsr_json_int(rotation, s->name, key, false, 2, MAX_WIDTH, &n, s->err));
    *run = (uint32_t)n;
    if (n == 0)
        return TSR_OK;
    if (!unit)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"%s\" of \"" TSR_MODEL_ROTATION "\" is about inputs that the model "
                        "does not have",
                        s->name, key);
    if (unit % (uint64_t)n || !tsr_model_online_known((uint64_t)n))
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"%s\" of \"" TSR_MODEL_ROTATION "\" is %lld, wanted the rows of a "
                        "Hadamard matrix that divide %llu columns",
                        s->name, key, (long long)n, (unsigned long long)unit);
    return TSR_OK;
}

/* Whether a layer has a feed-forward without experts. */
static bool has_dense(const struct tsr_model_hparams *hp)
{
    for (uint64_t l = 0; l < hp->layers; l++)
        if (!hp->sparse || !hp->sparse[l])
            return true;
    return false;
}

/* Whether every layer keeps keys of its own. */
static bool has_keys(const struct tsr_model_hparams *hp)
{
    for (uint64_t l = 0; l < hp->layers; l++)
        if (tsr_model_is_recurrent(hp, l))
            return false;
    return !hp->latent.rank;
}

tsr_status tsr_model_config_online(const struct tsr_model_config_source *s, const json_t *rotation)
{
    struct tsr_model_hparams *hp = &s->config->hp;
    TSR_TRY(read_run(s, rotation, "keys", has_keys(hp) ? hp->head_dim : 0, &hp->online.keys));
    TSR_TRY(read_run(s, rotation, "down", has_dense(hp) ? unit_of(hp->ffn) : 0, &hp->online.down));
    TSR_TRY(read_run(s, rotation, "expert_down", hp->experts ? unit_of(hp->expert_ffn) : 0,
                     &hp->online.expert));
    TSR_TRY(read_run(s, rotation, "shared_down", hp->shared_ffn ? unit_of(hp->shared_ffn) : 0,
                     &hp->online.shared));
    return tsr_model_is_online(hp)
               ? TSR_OK
               : tsr_fail(s->err, TSR_E_INPUT, "%s: \"" TSR_MODEL_ROTATION "\" names no transform",
                          s->name);
}
