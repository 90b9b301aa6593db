#include "launch/links.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *const phases[TSR_PLAN_PHASES] = { "prefill", "decode" };

/* ---- calibrations ------------------------------------------------------------ */

/* The spec of a codec, or the one of auto's list, that is calibrated; "" where there is none.  Two of
 * them in one list have no one calibration. */
static tsr_status calibrated(struct tsr_registry *r, const char *codec, char spec[160],
                             struct tsr_err *err)
{
    bool        list = tsr_comm_is_auto(codec);
    const char *at = list ? codec[4] == ':' ? codec + 5 : "" : codec;
    spec[0] = '\0';
    while (*at) {
        struct tsr_plugin_spec s = { 0 };
        char                   one[160];
        size_t                 n = list ? strcspn(at, ";") : strlen(at);
        (void)snprintf(one, sizeof one, "%.*s", (int)n, at);
        at += n + (at[n] == ';');
        tsr_status st = tsr_plugin_spec_open(&s, r, TSR_KIND_CODEC, one, err);
        bool       needs = st == TSR_OK && ((const struct tsr_codec_v1 *)s.found.iface)->observe;
        tsr_plugin_spec_close(&s);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st == TSR_E_CONFIG ? TSR_E_INPUT : st, "codec '%s'", one);
        if (needs && *spec)
            return tsr_fail(
                err, TSR_E_INPUT,
                "'%.200s' lists two codecs that are calibrated, '%s' and '%s'; name one", codec,
                spec, one);
        if (needs)
            (void)snprintf(spec, 160, "%s", one);
    }
    return TSR_OK;
}

/* The content of the file affects answers, so its hash is recorded. */
static tsr_status note_hash(struct tsr_launch_states *s, const char *path, struct tsr_err *err)
{
    char hash[TSR_HASH_TEXT];
    TSR_TRY(tsr_hash_file(path, hash, err));
    if (!s->hashes)
        s->hashes = json_array();
    return json_array_append_new(s->hashes, json_string(hash)) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 64, "calibrations of codecs");
}

static tsr_status keep(struct tsr_launch_states *s, struct tsr_eval_codec_file *f,
                       struct tsr_err *err)
{
    struct tsr_eval_codec_file **v = tsr_renew(s->file, s->n + 1, sizeof *v);
    if (!v) {
        tsr_eval_codec_file_free(f);
        return tsr_fail_nomem(err, (s->n + 1) * sizeof *v, "calibrations of codecs");
    }
    s->file = v;
    s->file[s->n++] = f;
    return TSR_OK;
}

/* Inputs for one stage and phase. */
struct want {
    struct tsr_registry        *r;
    const struct tsr_plan_file *p;
    struct tsr_runtime_layout  *l;
    struct tsr_eval_codec_key   key; /* of the model */
    bool                        packs;
    tsr_launch_find_state       find;
    void                       *ctx;
};

static tsr_status find_path(const struct want *w, const struct tsr_eval_codec_key *key,
                            const char *named, char **path, struct tsr_err *err)
{
    *path = NULL;
    if (!*named)
        return w->find ? w->find(w->ctx, key, path, err) : TSR_OK;
    char *dir = tsr_path_dir(tsr_config_doc_path(w->p->doc));
    *path = dir ? tsr_path_join(dir, named) : NULL;
    free(dir);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(named), "a path");
}

static tsr_status one_state(struct tsr_launch_states *s, const struct want *w, uint32_t i, int k,
                            struct tsr_err *err)
{
    struct tsr_runtime_layout_stage *stage = &w->l->stages[i];
    const char                      *named = w->p->stages[i].collective[k].state;
    const char                      *algorithm = stage->algorithm[k];
    struct tsr_eval_codec_key        key = w->key;
    struct tsr_eval_codec_file      *f = NULL;
    char                             spec[160], *path = NULL;
    if (stage->ranks < 2)
        return TSR_OK;
    TSR_TRY(calibrated(w->r, stage->collective[k] ? stage->collective[k] : "plain", spec, err));
    if (!*spec && !*named)
        return TSR_OK;
    if (!*spec)
        return tsr_fail(
            err, TSR_E_INPUT,
            "the plan: stage %u has a state for %s, whose codec '%s' is not calibrated; "
            "leave it out",
            i + 1, phases[k], stage->collective[k] ? stage->collective[k] : "plain");
    if (w->packs)
        return tsr_fail(
            err, TSR_E_INPUT,
            "codec '%s' is calibrated on packed weights, and this model is packed while "
            "it is loaded; put `quantize: {plan: FILE}` and `calibrate: {codecs: ...}` "
            "before `run`",
            spec);
    if (algorithm ? strcmp(algorithm, "auto") == 0 : tsr_comm_is_auto(stage->collective[k]))
        return tsr_fail(err, TSR_E_INPUT,
                        "codec '%s' is calibrated for one algorithm; say all-gather or two-step "
                        "instead of auto",
                        spec);
    key.codec = spec;
    key.ranks = stage->ranks;
    key.algorithm = TSR_COMM_ALL_GATHER;
    if (algorithm)
        TSR_TRY(tsr_comm_algorithm_find(&key.algorithm, algorithm, err));
    TSR_TRY(find_path(w, &key, named, &path, err));
    if (!path)
        return tsr_fail(err, TSR_E_INPUT,
                        "codec '%s' has to be calibrated: put `calibrate: {codecs: {use: ['%s'], "
                        "tp: %u}}` before, or give codec_state: FILE",
                        spec, spec, stage->ranks);
    tsr_status st = note_hash(s, path, err);
    if (st == TSR_OK)
        st = tsr_eval_codec_file_load(&f, path, &key, err);
    free(path);
    TSR_TRY(st);
    TSR_TRY(keep(s, f, err));
    stage->states[k] = f->states;
    stage->n_states[k] = f->n;
    return TSR_OK;
}

tsr_status tsr_launch_states_open(struct tsr_launch_states *s, struct tsr_registry *r,
                                  const struct tsr_plan_file *p, struct tsr_runtime_layout *l,
                                  const struct tsr_model *m, const struct tsr_model_overlay *o,
                                  uint32_t act, bool packs, tsr_launch_find_state find, void *ctx,
                                  struct tsr_err *err)
{
    struct want w = { r, p, l, { .act = act }, packs, find, ctx };
    *s = (struct tsr_launch_states){ 0 };
    bool any = false;
    for (uint32_t i = 0; i < l->n_stages; i++)
        for (int k = 0; k < TSR_PLAN_PHASES; k++)
            any = any || l->stages[i].collective[k] || *p->stages[i].collective[k].state;
    if (!any)
        return TSR_OK;
    if (!packs) /* hashes what was packed in memory */
        TSR_TRY(tsr_eval_codec_key_model(&w.key, m, o, err));
    for (uint32_t i = 0; i < l->n_stages; i++)
        for (int k = 0; k < TSR_PLAN_PHASES; k++)
            TSR_TRY(one_state(s, &w, i, k, err));
    return TSR_OK;
}

void tsr_launch_states_close(struct tsr_launch_states *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        tsr_eval_codec_file_free(s->file[i]);
    free(s->file);
    json_decref(s->hashes);
    *s = (struct tsr_launch_states){ 0 };
}

/* ---- choices of auto ----------------------------------------------------------- */

tsr_status tsr_launch_links_take(struct tsr_runtime_layout *l, const json_t *links,
                                 struct tsr_err *err)
{
    for (uint32_t i = 0; i < l->n_stages; i++)
        for (int k = 0; k < TSR_PLAN_PHASES; k++) {
            const json_t           *one = json_object_get(json_array_get(links, i), phases[k]);
            const char             *codec = json_string_value(json_object_get(one, "codec"));
            const char             *name = json_string_value(json_object_get(one, "algorithm"));
            enum tsr_comm_algorithm a;
            if (!tsr_runtime_layout_open(l, i, k))
                continue;
            if (!codec || !name)
                return tsr_fail(err, TSR_E_INPUT,
                                "manifest.json does not say what codec auto of stage %u became in "
                                "%s; remove the batch's folder to start anew",
                                i + 1, phases[k]);
            TSR_TRY(tsr_comm_algorithm_find(&a, name, err));
            TSR_TRY(tsr_runtime_layout_fix(l, i, k, codec, name, err));
        }
    return TSR_OK;
}

tsr_status tsr_launch_links_json(const struct tsr_runtime_layout *l,
                                 const struct tsr_runtime_group *c, json_t **links,
                                 struct tsr_err *err)
{
    json_t *list = json_array();
    bool    any = false, ok = list != NULL;
    *links = NULL;
    for (uint32_t i = 0; i < l->n_stages; i++) {
        json_t *one = json_object();
        for (int k = 0; k < TSR_PLAN_PHASES; k++) {
            const char             *codec;
            enum tsr_comm_algorithm a;
            if (!tsr_runtime_group_choice(c, i, k, &codec, &a))
                continue;
            any = true;
            ok = json_object_set_new(one, phases[k],
                                     json_pack("{s:s, s:s}", "codec", codec, "algorithm",
                                               tsr_comm_algorithm_name(a))) == 0 &&
                 ok;
        }
        ok = json_array_append_new(list, one) == 0 && ok;
    }
    if (!any || !ok)
        json_decref(list);
    else
        *links = list;
    return ok ? TSR_OK : tsr_fail_nomem(err, 256, "the choice of codecs");
}
