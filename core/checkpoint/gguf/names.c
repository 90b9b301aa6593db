/* Maps the tensors of a GGUF file to their names in a Hugging Face checkpoint, as the family says, and to the
 * order of their rows. */
#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"
#include "model/family.h"
#include "model/stored.h"

#include <stdlib.h>
#include <string.h>

/* The number at *at, which moves on.  False: there is none in the form that all writers use, in which a layer has one
 * name. */
static bool number_at(const char **at, uint64_t *number)
{
    const char *digits = *at;
    while (**at >= '0' && **at <= '9')
        (*at)++;
    if (*at == digits || *at - digits > 6 || (*digits == '0' && *at - digits > 1))
        return false;
    *number = strtoull(digits, NULL, 10);
    return true;
}

/* Length of the prefix of name that the pattern matches, 0: none; *layer: the number at '#'. */
static size_t match(const char *pattern, const char *name, uint64_t *layer)
{
    const char *at = name;
    for (; *pattern; pattern++) {
        if (*pattern == '#' ? !number_at(&at, layer) : *at++ != *pattern)
            return 0;
    }
    return (size_t)(at - name);
}

/* What stands for the tensors of one expert: the stacked tensor's name without its end, or NULL. */
static const char *each_name(const struct tsr_model_role *r, char name[TSR_GGUF_MAX_NAME + 2])
{
    static const char end[] = "_exps";
    size_t            n = r->gguf ? strlen(r->gguf) : 0, k = sizeof end - 1;
    if (r->part != TSR_MODEL_PART_EXPERT || n <= k || n > TSR_GGUF_MAX_NAME ||
        strcmp(r->gguf + n - k, end) != 0)
        return NULL;
    (void)snprintf(name, TSR_GGUF_MAX_NAME + 2, "%.*s.", (int)(n - k), r->gguf);
    return name;
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

static bool is_suffix(const char *s)
{
    return strcmp(s, ".weight") == 0 || strcmp(s, ".bias") == 0;
}

/* Whether this is one of the two tensors of kv_b; *read: it stands for both. */
static bool is_half(const struct tsr_gguf *g, const struct tsr_model_role *r, const char *name,
                    uint64_t *layer, bool *read)
{
    size_t keys = match(TSR_GGUF_KEYS_OF_ROW, name, layer);
    size_t len = keys ? keys : match(TSR_GGUF_VALUES_OF_ROW, name, layer);
    if (!len || strcmp(name + len, ".weight") != 0 || r->part != TSR_MODEL_PART_LINEAR ||
        r->lin != TSR_MODEL_KV_B)
        return false;
    *read = keys && !tsr_gguf_of_role(g, r, *layer); /* some files have kv_b besides */
    return true;
}

/* The suffix in a Hugging Face checkpoint: a correction is a bias in GGUF, and the only tensor of its role. */
static const char *suffix_of(const struct tsr_model_role *r, const char *suffix)
{
    bool correction = r->part == TSR_MODEL_PART_ROUTER_CORRECTION && strcmp(suffix, ".bias") == 0;
    return tsr_model_role_suffix(r, correction ? ".weight" : suffix);
}

/* The role that a name of the file belongs to, in the form that binding expects; *suffix: the rest of the name. */
static bool find_role(const struct tsr_model_role *r, const char *name, struct tsr_model_role *one,
                      char buf[TSR_FAMILY_NAME + 24], uint64_t *layer, const char **suffix)
{
    char        each[TSR_GGUF_MAX_NAME + 2];
    uint64_t    expert = 0;
    size_t      len = 0;
    const char *at;
    if (!tsr_model_part_is_expert(r->part)) {
        for (unsigned i = 0; tsr_model_role_split(r, i, one); i++) {
            len = one->gguf ? match(one->gguf, name, layer) : 0;
            *suffix = name + len;
            if (len && (tsr_model_part_is_unsuffixed(r->part) ? !**suffix : is_suffix(*suffix)))
                return true;
        }
        return false;
    }
    for (int kind = TSR_MODEL_GATE; kind <= TSR_MODEL_DOWN; kind++) {
        if (!tsr_model_role_has_expert(r, (enum tsr_linear_id)kind))
            continue;
        tsr_model_role_stacked(r, (enum tsr_linear_id)kind, one);
        len = one->gguf ? match(one->gguf, name, layer) : 0;
        *suffix = name + len;
        if (len && is_suffix(*suffix))
            return true;
    }
    len = each_name(r, each) ? match(each, name, layer) : 0;
    at = name + len;
    if (!len || !number_at(&at, &expert) || !is_suffix(at))
        return false;
    *suffix = at;
    return tsr_model_role_of_expert(r, expert, buf, one);
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
        char                  buf[TSR_FAMILY_NAME + 24];
        struct tsr_model_role r;
        uint64_t              layer = 0;
        const char           *suffix = NULL;
        bool                  half = is_half(g, &f->roles[i], t->name, &layer, is);
        if (half) {
            r = f->roles[i];
            suffix = ".weight";
        } else if (!find_role(&f->roles[i], t->name, &r, buf, &layer, &suffix)) {
            continue;
        }
        tsr_gguf_order_of(f, hp, &r, map);
        map->order = half ? TSR_GGUF_HALVES : map->order;
        map->stacked = r.part == TSR_MODEL_PART_EXPERTS;
        return tsr_model_role_name(map->name, sizeof map->name, &r, f->prefixes[0], layer,
                                   suffix_of(&r, suffix))
                   ? TSR_OK
                   : tsr_fail(err, TSR_E_INPUT, "%s: the name of '%s' is longer than %zu bytes",
                              tsr_config_doc_path(f->doc), r.name, sizeof map->name - 1);
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: tensor \"%s\" is unknown: a model of the family %s has none of that name",
                    g->path, t->name, f->name);
}

bool tsr_gguf_name_of(const struct tsr_model *m, const struct tsr_model_stored_view *v,
                      char name[64], struct tsr_gguf_map *map)
{
    const struct tsr_model_role *r = v->role;
    char                         suffix[16] = "";
    *map = (struct tsr_gguf_map){ .order = TSR_GGUF_PLAIN };
    tsr_gguf_order_of(m->storage->family, &m->hp, r, map);
    if (!tsr_model_part_is_unsuffixed(r->part))
        /* a correction is a bias there, whatever a Hugging Face checkpoint calls it */
        (void)snprintf(suffix, sizeof suffix, "%s",
                       r->part == TSR_MODEL_PART_ROUTER_CORRECTION ? ".bias" : v->suffix);
    return r->gguf && tsr_model_tensor_name(name, 64, "", r->gguf, v->layer, suffix);
}

const struct tsr_gguf_tensor *tsr_gguf_of_role(const struct tsr_gguf       *g,
                                               const struct tsr_model_role *r, uint64_t layer)
{
    char name[TSR_GGUF_MAX_NAME + 32];
    if (!r || !r->gguf || !tsr_model_tensor_name(name, sizeof name, "", r->gguf, layer, ".weight"))
        return NULL;
    return tsr_gguf_find(g, name);
}

const struct tsr_gguf_tensor *tsr_gguf_of_expert(const struct tsr_gguf       *g,
                                                 const struct tsr_model_role *r, uint64_t layer,
                                                 uint64_t expert)
{
    char each[TSR_GGUF_MAX_NAME + 2], suffix[40], name[TSR_GGUF_MAX_NAME + 64];
    (void)snprintf(suffix, sizeof suffix, "%llu.weight", (unsigned long long)expert);
    if (!each_name(r, each) || !tsr_model_tensor_name(name, sizeof name, "", each, layer, suffix))
        return NULL;
    return tsr_gguf_find(g, name);
}

uint64_t tsr_gguf_rows(const struct tsr_gguf_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 1; d < t->rank; d++)
        n *= t->dims[d];
    return n;
}

const struct tsr_model_role *tsr_gguf_role(const struct tsr_model_family *f,
                                           enum tsr_model_part            part)
{
    for (uint32_t i = 0; i < f->n_roles; i++)
        if (f->roles[i].part == part)
            return &f->roles[i];
    return NULL;
}
