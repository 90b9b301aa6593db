/* config.json: finds the family's row and lets it fill the hparams. */
#include "base/mem.h"
#include "model/arch.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_DEPTH 64

/* The row for `architectures`[0], or for `model_type` if that is absent. */
static tsr_status find_arch(const struct tsr_model_config_source *s,
                            const struct tsr_model_arch         **arch)
{
    json_t     *list;
    const char *type = NULL, *name = NULL;
    uint32_t    n;
    TSR_TRY(tsr_json_sub(s->json, s->name, "architectures", false, JSON_ARRAY, &list, s->err));
    TSR_TRY(tsr_json_str(s->json, s->name, "model_type", false, &type, s->err));
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
    const struct tsr_model_arch *rows = tsr_model_arch_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (name ? strcmp(name, rows[i].family.architecture) == 0 || strcmp(name, rows[i].base) == 0
                 : strcmp(type, rows[i].family.model_type) == 0) {
            *arch = &rows[i];
            return TSR_OK;
        }
    }
    char   known[256];
    size_t at = 0;
    known[0] = '\0';
    for (uint32_t i = 0; i < n && at < sizeof known; i++) {
        int w = snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                         rows[i].family.architecture);
        at += w > 0 ? (size_t)w : 0;
    }
    return tsr_fail(s->err, TSR_E_INPUT, "%s: %s \"%.80s\" is not supported; known are %s", s->name,
                    name ? "architecture" : "model_type", name ? name : type, known);
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

static bool explicit_null(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && json_is_null(v);
}

static tsr_status parse(const struct tsr_model_config_source *s, struct tsr_model_config *c)
{
    if (!json_is_object(s->json))
        return tsr_fail(s->err, TSR_E_INPUT, "%s: is not a JSON object", s->name);
    TSR_TRY(find_arch(s, &c->arch));
    TSR_TRY(keep_quantization(s, c));
    struct tsr_model_hparams *hp = &c->hp;
    hp->tied = c->arch->def.tied;
    hp->embed_scale = hp->logit_scale = 1.0f;
    hp->bos = explicit_null(s->json, "bos_token_id") ? -1 : c->arch->def.bos;
    if (c->arch->def.eos >= 0 && !explicit_null(s->json, "eos_token_id")) {
        hp->eos[0] = (uint32_t)c->arch->def.eos;
        hp->n_eos = 1;
    }
    TSR_TRY(read_specials(s, hp));
    TSR_TRY(tsr_json_bool(s->json, s->name, "tie_word_embeddings", false, &hp->tied, s->err));
    TSR_TRY(c->arch->config(s, c));
    if (!hp->tied)
        c->has |= TSR_HAS_HEAD;
    return TSR_OK;
}

tsr_status tsr_model_config_parse(struct tsr_model_config *c, const char *name, const char *json,
                                  uint64_t len, struct tsr_err *err)
{
    memset(c, 0, sizeof *c);
    json_t *j;
    TSR_TRY(tsr_json_parse(&j, name, json, len, CONFIG_DEPTH, err));
    struct tsr_model_config_source s = { j, name, err };
    tsr_status                     st = parse(&s, c);
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
    struct tsr_model_config_source s = { j, name, err };
    tsr_status                     st = json_is_object(j)
                                            ? read_specials(&s, &c->hp)
                                            : tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", name);
    json_decref(j);
    return st;
}

void tsr_model_config_free(struct tsr_model_config *c)
{
    free(c->hp.window);
    free(c->hp.rope.short_factor);
    free(c->hp.rope.long_factor);
    json_decref(c->quantization);
    memset(c, 0, sizeof *c);
}
