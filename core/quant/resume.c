/* What a run is of, so that another one can go on with it; and its journal. */
#include "base/file.h"
#include "base/json_differ.h"
#include "base/mem.h"
#include "base/output.h"
#include "quant/quantize.h"
#include "quant/scheme_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT   "tessera.fingerprint/1"
#define JOURNAL  "tessera.journal/1"
#define FILE_CAP (UINT64_C(16) << 20)
#define DEPTH    40u

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

/* The files of the plugins that take part. */
static tsr_status put_plugin(struct tsr_registry *r, const char *use, json_t *to,
                             struct tsr_err *err)
{
    struct tsr_plugin_found f;
    TSR_TRY(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, use, &f, err));
    return put(to, f.info->plugin->id, json_string(f.info->hash)) ? TSR_OK
                                                                  : tsr_fail_nomem(err, 64, use);
}

static tsr_status put_plugins(const struct tsr_quant_scheme *s, struct tsr_registry *r, json_t *to,
                              struct tsr_err *err)
{
    TSR_TRY(put_plugin(r, s->keys.use, to, err));
    for (uint64_t i = 0; i < s->n_rules; i++)
        if (s->rules[i].use[0])
            TSR_TRY(put_plugin(r, s->rules[i].use, to, err));
    return TSR_OK;
}

tsr_status tsr_quant_fingerprint_make(const struct tsr_quant_scheme *s, struct tsr_registry *r,
                                      const struct tsr_model             *m,
                                      const struct tsr_quant_calibration *c,
                                      const struct tsr_config_node *options, json_t **out,
                                      struct tsr_err *err)
{
    json_t    *j = json_object(), *plugins = json_object();
    tsr_status st =
        j && plugins ? put_plugins(s, r, plugins, err) : tsr_fail_nomem(err, 256, "a fingerprint");
    if (st == TSR_OK &&
        !(put(j, "format", json_string(FORMAT)) && put(j, "version", json_string(TSR_VERSION)) &&
          put(j, "model", json_string(m->hash)) &&
          put(j, "calibration", c ? json_string(c->hash) : json_null()) &&
          put(j, "options", tsr_config_node_json(options)) &&
          json_object_set(j, "plugins", plugins) == 0))
        st = tsr_fail_nomem(err, 256, "a fingerprint");
    json_decref(plugins);
    if (st == TSR_OK)
        *out = j;
    else
        json_decref(j);
    return st;
}

/* ---- comparing -------------------------------------------------------------------- */

static tsr_status write_json(const char *path, const json_t *j, struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t len = 0;
    TSR_TRY(tsr_json_text(j, JSON_INDENT(1) | JSON_REAL_PRECISION(17), &text, &len, err));
    tsr_status st = tsr_file_store(path, text, len, err);
    free(text);
    return st;
}

static tsr_status compare(const char *folder, const char *path, const json_t *print,
                          struct tsr_err *err)
{
    struct tsr_differences d = { 0 };
    json_t                *old = NULL;
    TSR_TRY(tsr_json_load(&old, path, FILE_CAP, DEPTH, err));
    tsr_differences_add(&d, "", old, print);
    json_decref(old);
    if (d.n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds a quantization of other things (%s); name another folder, or "
                        "start anew with --again",
                        folder, tsr_differences_text(&d));
    return TSR_OK;
}

tsr_status tsr_quant_fingerprint_open(const char *folder, const json_t *print,
                                      char hash[TSR_HASH_TEXT], struct tsr_err *err)
{
    char *path = tsr_path_join(folder, TSR_PACKED_FINGERPRINT);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), folder);
    tsr_status st =
        tsr_path_exists(path) ? compare(folder, path, print, err) : write_json(path, print, err);
    free(path);
    if (st != TSR_OK)
        return st;
    char    *text;
    uint64_t n;
    TSR_TRY(tsr_json_text(print, JSON_SORT_KEYS | JSON_COMPACT, &text, &n, err));
    tsr_hash_bytes(text, n, hash);
    free(text);
    return TSR_OK;
}

static tsr_status forget(const char *folder, const char *name, struct tsr_err *err)
{
    char *path = tsr_path_join(folder, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), folder);
    tsr_status st = tsr_output_remove(path, err);
    free(path);
    return st;
}

tsr_status tsr_quant_packed_model_begun(const char *folder, const struct tsr_model *m, bool *begun,
                                        struct tsr_err *err)
{
    char name[TSR_PACKED_LAYER_NAME];
    *begun = false;
    for (uint64_t l = 0; l <= m->hp.layers && !*begun; l++) {
        tsr_packed_layer_name(l, m->hp.layers, name);
        char *path = tsr_path_join(folder, name);
        if (!path)
            return tsr_fail_nomem(err, strlen(folder), folder);
        *begun = tsr_path_exists(path);
        free(path);
    }
    return TSR_OK;
}

tsr_status tsr_quant_packed_model_forget(const char *folder, const struct tsr_model *m,
                                         struct tsr_err *err)
{
    char name[TSR_PACKED_LAYER_NAME];
    TSR_TRY(forget(folder, TSR_PACKED_RESIDUALS, err));
    TSR_TRY(forget(folder, TSR_PACKED_INDEX, err));
    for (uint64_t l = 0; l <= m->hp.layers; l++) {
        tsr_packed_layer_name(l, m->hp.layers, name);
        TSR_TRY(forget(folder, name, err));
    }
    TSR_TRY(forget(folder, TSR_PACKED_KEPT, err));
    return forget(folder, TSR_PACKED_FINGERPRINT, err);
}

/* ---- the journal -------------------------------------------------------------------- */

static tsr_status journal_path(const char *folder, uint64_t layer, bool make, char **path,
                               struct tsr_err *err)
{
    char  name[48];
    char *dir = tsr_path_join(folder, "journal");
    if (!dir)
        return tsr_fail_nomem(err, strlen(folder), folder);
    tsr_status st = make ? tsr_make_dirs(dir, err) : TSR_OK;
    (void)snprintf(name, sizeof name, "layer-%05llu.json", (unsigned long long)layer);
    *path = st == TSR_OK ? tsr_path_join(dir, name) : NULL;
    free(dir);
    return st == TSR_OK && !*path ? tsr_fail_nomem(err, strlen(folder), folder) : st;
}

/* The packed matrices of a layer and their names; layer == m->hp.layers: head and embedding. */
static struct tsr_model_packed *packed_at(const struct tsr_model         *m,
                                          const struct tsr_model_overlay *o, uint64_t layer,
                                          uint64_t i, const char **name)
{
    if (layer == m->hp.layers) {
        *name = i == 0 ? m->head.w.name : m->embed.name;
        return i == 0 ? o->head : i == 1 ? o->embed : NULL;
    }
    *name = m->layers[layer].lin[i].w.name;
    return o->lin[layer][i];
}

tsr_status tsr_quant_journal_write(const char *folder, const struct tsr_model *m, uint64_t layer,
                                   const struct tsr_model_overlay *o, struct tsr_err *err)
{
    char   *path;
    json_t *seconds = json_object();
    json_t *j = json_pack("{s:s, s:o}", "format", JOURNAL, "seconds", seconds);
    bool    ok = j != NULL;
    for (uint64_t i = 0; i < m->hp.linears && ok; i++) {
        const char                    *name;
        const struct tsr_model_packed *p = packed_at(m, o, layer, i, &name);
        if (p && isfinite(p->report.seconds))
            ok = put(seconds, name, json_real(p->report.seconds));
    }
    tsr_status st = ok ? journal_path(folder, layer, true, &path, err)
                       : tsr_fail_nomem(err, 256, "the journal");
    if (st == TSR_OK) {
        st = write_json(path, j, err);
        free(path);
    }
    json_decref(j);
    return st;
}

tsr_status tsr_quant_journal_read(const char *folder, const struct tsr_model *m, uint64_t layer,
                                  struct tsr_model_overlay *o, struct tsr_err *err)
{
    char   *path;
    json_t *j = NULL, *seconds = NULL;
    TSR_TRY(journal_path(folder, layer, false, &path, err));
    tsr_status st = TSR_OK;
    if (tsr_path_exists(path))
        st = tsr_json_load(&j, path, FILE_CAP, DEPTH, err);
    if (st == TSR_OK && j)
        st = json_is_object(j) ? tsr_json_sub(j, path, "seconds", true, JSON_OBJECT, &seconds, err)
                               : tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", path);
    for (uint64_t i = 0; i < m->hp.linears && st == TSR_OK; i++) {
        const char              *name;
        struct tsr_model_packed *p = packed_at(m, o, layer, i, &name);
        if (!p)
            continue;
        p->report.seconds = NAN;
        if (seconds)
            st = tsr_json_real(seconds, path, name, false, 0.0, 1e15, &p->report.seconds, err);
    }
    json_decref(j);
    free(path);
    return st;
}
