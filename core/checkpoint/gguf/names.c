/* Maps the tensors of a GGUF file to their names in a Hugging Face checkpoint, as the family says, and to the
 * order of their rows. */
#include "checkpoint/gguf/gguf.h"
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

/* Length of the prefix of name that the pattern matches, 0: none; *layer: the number at '#'. */
static size_t match(const char *pattern, const char *name, uint64_t *layer)
{
    const char *at = name;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*at++ != *pattern)
                return 0;
            continue;
        }
        const char *digits = at;
        while (*at >= '0' && *at <= '9')
            at++;
        /* in the form that all writers use: a layer has one name */
        if (at == digits || at - digits > 6 || (*digits == '0' && at - digits > 1))
            return 0;
        *layer = strtoull(digits, NULL, 10);
    }
    return (size_t)(at - name);
}

static bool rope_factors(const char *name)
{
    static const char *const names[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                         "rope_factors_short.weight" };
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void order_of(const struct tsr_model_family *f, const struct tsr_model_hparams *hp,
                     const struct tsr_model_role *r, struct tsr_gguf_map *map)
{
    bool q = r->part == TSR_MODEL_PART_LINEAR && r->lin == TSR_Q;
    bool k = r->part == TSR_MODEL_PART_LINEAR && r->lin == TSR_K;
    if (f->gguf.pairs && (q || k))
        map->order = TSR_GGUF_PAIRS;
    if (r->part == TSR_MODEL_PART_QKV_HEADS)
        map->order = TSR_GGUF_PARTS;
    map->heads = k ? hp->kv_heads : hp->heads;
    if (f->gguf.gain_offset && tsr_model_part_is_norm(r->part))
        map->offset = hp->norm_gain_offset;
}

tsr_status tsr_gguf_map(const struct tsr_gguf *g, const struct tsr_model_family *f,
                        const struct tsr_model_hparams *hp, const struct tsr_gguf_tensor *t,
                        struct tsr_gguf_map *map, bool *is, struct tsr_err *err)
{
    memset(map, 0, sizeof *map);
    *is = !rope_factors(t->name);
    if (!*is)
        return TSR_OK;
    for (uint32_t i = 0; i < f->n_roles; i++) {
        const struct tsr_model_role *r = &f->roles[i];
        uint64_t                     layer = 0;
        size_t                       len = r->gguf ? match(r->gguf, t->name, &layer) : 0;
        const char                  *suffix = t->name + len;
        if (!len || (strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0))
            continue;
        order_of(f, hp, r, map);
        return tsr_model_role_name(map->name, sizeof map->name, r, f->prefixes[0], layer, suffix)
                   ? TSR_OK
                   : tsr_fail(err, TSR_E_INPUT, "%s: the name of '%s' is longer than %zu bytes",
                              tsr_config_doc_path(f->doc), r->name, sizeof map->name - 1);
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: tensor \"%s\" is unknown: a model of the family %s has none of that name",
                    g->path, t->name, f->name);
}

const struct tsr_gguf_tensor *tsr_gguf_of_role(const struct tsr_gguf       *g,
                                               const struct tsr_model_role *r, uint64_t layer)
{
    char name[TSR_GGUF_MAX_NAME + 32];
    if (!r || !r->gguf || !tsr_model_tensor_name(name, sizeof name, "", r->gguf, layer, ".weight"))
        return NULL;
    return tsr_gguf_find(g, name);
}

const struct tsr_model_role *tsr_gguf_role(const struct tsr_model_family *f,
                                           enum tsr_model_part            part)
{
    for (uint32_t i = 0; i < f->n_roles; i++)
        if (f->roles[i].part == part)
            return &f->roles[i];
    return NULL;
}

uint64_t tsr_gguf_row(const struct tsr_gguf_map *map, uint64_t rows, uint64_t r)
{
    uint64_t per = map->order == TSR_GGUF_PARTS ? 3 * (uint64_t)map->heads : map->heads, dim, head,
             part, i;
    if (map->order == TSR_GGUF_PLAIN || per == 0)
        return r;
    dim = rows / per;
    if (map->order == TSR_GGUF_PAIRS) {
        head = r / dim;
        part = r % dim / (dim / 2);
        i = r % (dim / 2);
        return head * dim + 2 * i + part;
    }
    head = r / (3 * dim);
    part = r / dim % 3;
    i = r % dim;
    return (part * map->heads + head) * dim + i;
}
