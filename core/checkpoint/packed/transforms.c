/* Transforms of a packed layer's inputs, as JSON in the metadata of its file: {"sites": ["o_in"], "keys": 64, "down": 512}. */
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"
#include "model/online.h"

#include <stdlib.h>
#include <string.h>

#define MOST_COLS (INT64_C(1) << 32)

tsr_status tsr_packed_transforms_describe(const struct tsr_model_overlay *o, uint64_t layer,
                                          char **text, struct tsr_err *err)
{
    const struct tsr_model_online *run = &o->online[layer];
    *text = NULL;
    if (!tsr_model_overlay_turned(o, layer))
        return TSR_OK;
    json_t *j = json_object(), *sites = json_array();
    bool    ok = j && json_object_set_new(j, "sites", sites) == 0;
    for (uint64_t i = 0; ok && i < o->sites; i++)
        ok = !o->turned[layer][i] ||
             json_array_append_new(sites, json_string(TSR_MODEL_SITE_NAME(i))) == 0;
    ok = ok && (!run->keys || json_object_set_new(j, "keys", json_integer(run->keys)) == 0);
    ok = ok && (!run->down || json_object_set_new(j, "down", json_integer(run->down)) == 0);
    uint64_t   n;
    tsr_status st = ok ? tsr_json_text(j, JSON_COMPACT, text, &n, err)
                       : tsr_fail_nomem(err, 0, "transforms of a layer");
    json_decref(j);
    return st;
}

static tsr_status read_run(const json_t *j, const char *what, const char *key, uint64_t unit,
                           uint32_t *run, struct tsr_err *err)
{
    int64_t n = 0;
    TSR_TRY(tsr_json_int(j, what, key, false, 2, MOST_COLS, &n, err));
    if (n && (!unit || unit % (uint64_t)n || !tsr_model_online_known((uint64_t)n)))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"%s\" is %lld, wanted the rows of a Hadamard matrix that divide "
                        "%llu columns",
                        what, key, (long long)n, (unsigned long long)unit);
    *run = (uint32_t)n;
    return TSR_OK;
}

/* The site of the layer with this name. */
static tsr_status mark_site(const struct tsr_model *m, uint64_t layer, const char *what,
                            const char *name, uint8_t *turned, struct tsr_err *err)
{
    for (uint64_t i = 0; name && i < m->hp.sites; i++)
        if (tsr_model_layer_has_site(m, layer, (enum tsr_site)i) &&
            strcmp(TSR_MODEL_SITE_NAME(i), name) == 0) {
            turned[i] = 1;
            return TSR_OK;
        }
    return tsr_fail(err, TSR_E_INPUT, "%s: \"sites\" has \"%.60s\", which the layer does not have",
                    what, name ? name : "");
}

static tsr_status understand(const struct tsr_model *m, uint64_t layer, const char *what,
                             const json_t *j, struct tsr_model_overlay *o, struct tsr_err *err)
{
    static const char *const        known[] = { "sites", "keys", "down" };
    const struct tsr_model_hparams *hp = &m->hp;
    const bool                      dense = !hp->sparse || !hp->sparse[layer];
    const bool                      heads = !hp->latent.rank && !tsr_model_is_recurrent(hp, layer);
    json_t                         *sites, *value;
    const char                     *key;
    size_t                          at;
    json_object_foreach ((json_t *)(uintptr_t)j, key, value) {
        size_t i = 0;
        while (i < 3 && strcmp(key, known[i]) != 0)
            i++;
        if (i == 3) /* it might change the function */
            return tsr_fail(err, TSR_E_INPUT, "%s: has the unknown key \"%.60s\"", what, key);
    }
    TSR_TRY(tsr_json_sub(j, what, "sites", true, JSON_ARRAY, &sites, err));
    json_array_foreach (sites, at, value)
        TSR_TRY(mark_site(m, layer, what, json_string_value(value), o->turned[layer], err));
    TSR_TRY(read_run(j, what, "keys", heads && !hp->online.keys ? hp->head_dim : 0,
                     &o->online[layer].keys, err));
    return read_run(j, what, "down", dense && !hp->online.down ? tsr_model_online_run(hp->ffn) : 0,
                    &o->online[layer].down, err);
}

tsr_status tsr_packed_transforms_understand(const struct tsr_model *m, uint64_t layer,
                                            const char *what, const char *text,
                                            struct tsr_model_overlay *o, struct tsr_err *err)
{
    json_t *j;
    TSR_TRY(tsr_json_parse(&j, what, text, strlen(text), 2, err));
    tsr_status st = json_is_object(j) ? understand(m, layer, what, j, o, err)
                                      : tsr_fail(err, TSR_E_INPUT, "%s: must be an object", what);
    json_decref(j);
    return st;
}
