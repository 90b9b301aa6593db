/* Writes a packed model: layer files as they come, the rest when all are there. */
#include "base/f16.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/safetensors/shards.h"
#include "model/stored.h"
#include "model/text_names.h"

#include <stdlib.h>
#include <string.h>

#define NAME_CAP 128

void tsr_packed_layer_name(uint64_t layer, uint64_t layers, char name[TSR_PACKED_LAYER_NAME])
{
    if (layer == layers)
        (void)snprintf(name, TSR_PACKED_LAYER_NAME, "%s", TSR_PACKED_HEAD);
    else
        (void)snprintf(name, TSR_PACKED_LAYER_NAME, "layer-%05llu.safetensors",
                       (unsigned long long)layer);
}

/* ---- a layer -------------------------------------------------------------------- */

struct out {
    struct tsr_st_out *o;
    struct tsr_err    *err;
    bool               writing; /* else declaring: both walk the same list */
};

static tsr_status part(struct out *w, const char *name, const char *suffix, uint32_t dtype,
                       uint32_t rank, const uint64_t *shape, const void *data)
{
    char     full[NAME_CAP];
    uint64_t bytes = dtype == TSR_U8 ? 1 : dtype == TSR_U32 ? 4 : tsr_dtype_size(dtype);
    (void)snprintf(full, sizeof full, "%.100s.%s", name, suffix);
    if (!w->writing)
        return tsr_safetensors_declare(w->o, full, dtype, rank, shape, w->err);
    for (uint32_t i = 0; i < rank; i++)
        bytes *= shape[i];
    tsr_safetensors_put(w->o, data, bytes);
    return TSR_OK;
}

static tsr_status linear(struct out *w, const char *name, const struct tsr_model_packed *p)
{
    if (p->dense) {
        const uint64_t shape[2] = { p->rows, p->cols };
        return part(w, name, "dense", TSR_F32, 2, shape, p->dense);
    }
    const uint64_t n = p->own.unit ? p->own.units : p->rows;
    const uint64_t codes[2] = { n, p->own.unit ? p->own.code_bytes : p->code_stride };
    const uint64_t meta[2] = { n, p->own.unit ? p->own.meta_bytes : p->meta_stride };
    TSR_TRY(part(w, name, "codes", TSR_U8, 2, codes, p->codes));
    if (meta[1])
        TSR_TRY(part(w, name, "meta", TSR_U8, 2, meta, p->meta));
    return p->ordered ? part(w, name, "order", TSR_U32, 1, &p->cols, p->order) : TSR_OK;
}

static tsr_status norm(struct out *w, uint64_t layer, const char *which,
                       const struct tsr_model_norm *n, uint64_t cols)
{
    char name[NAME_CAP];
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)layer, which);
    if (n->gain)
        TSR_TRY(part(w, name, "gain", TSR_F32, 1, &cols, n->gain));
    return n->gain && n->bias ? part(w, name, "bias", TSR_F32, 1, &cols, n->bias) : TSR_OK;
}

static tsr_status walk(struct out *w, const struct tsr_model *m, uint64_t layer,
                       const struct tsr_model_overlay *o)
{
    if (layer == m->hp.layers) {
        if (o->embed)
            TSR_TRY(linear(w, m->embed.name, o->embed));
        return o->head ? linear(w, m->head.w.name, o->head) : TSR_OK;
    }
    for (uint64_t i = 0; i < o->linears; i++)
        if (o->lin[layer][i])
            TSR_TRY(linear(w, m->layers[layer].lin[i].w.name, o->lin[layer][i]));
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++) {
        enum tsr_site site = tsr_model_overlay_norm_site((enum tsr_overlay_norm)i);
        TSR_TRY(norm(w, layer, TSR_MODEL_SITE_NAME(site), &o->norm[layer][i],
                     tsr_model_layer_site_cols(m, layer, site)));
    }
    for (uint64_t i = 0; i < m->hp.sites; i++) {
        char     name[NAME_CAP];
        uint64_t cols = tsr_model_layer_site_cols(m, layer, (enum tsr_site)i);
        (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)layer,
                       TSR_MODEL_SITE_NAME(i));
        if (o->scale[layer][i])
            TSR_TRY(part(w, name, "scale", TSR_F32, 1, &cols, o->scale[layer][i]));
    }
    return TSR_OK;
}

static tsr_status describe(struct out *w, const char *name, const struct tsr_model_packed *p)
{
    char *text;
    if (!p)
        return TSR_OK;
    TSR_TRY(tsr_packed_describe(p, &text, w->err));
    tsr_status st = tsr_safetensors_metadata(w->o, name, text, w->err);
    free(text);
    return st;
}

static tsr_status metadata(struct out *w, const struct tsr_model *m, uint64_t layer,
                           const struct tsr_model_overlay *o, const char *fingerprint)
{
    TSR_TRY(tsr_safetensors_metadata(w->o, "format", TSR_PACKED_FORMAT, w->err));
    TSR_TRY(tsr_safetensors_metadata(w->o, "fingerprint", fingerprint, w->err));
    if (layer == m->hp.layers) {
        TSR_TRY(describe(w, m->embed.name, o->embed));
        return describe(w, m->head.w.name, o->head);
    }
    for (uint64_t i = 0; i < o->linears; i++)
        TSR_TRY(describe(w, m->layers[layer].lin[i].w.name, o->lin[layer][i]));
    char *text;
    TSR_TRY(tsr_packed_transforms_describe(o, layer, &text, w->err));
    tsr_status st =
        text ? tsr_safetensors_metadata(w->o, TSR_PACKED_TRANSFORMS, text, w->err) : TSR_OK;
    free(text);
    return st;
}

tsr_status tsr_packed_layer_write(const char *folder, const struct tsr_model *m, uint64_t layer,
                                  const struct tsr_model_overlay *o, const char *fingerprint,
                                  struct tsr_err *err)
{
    char       file[TSR_PACKED_LAYER_NAME];
    struct out w = { .err = err };
    tsr_packed_layer_name(layer, m->hp.layers, file);
    char *path = tsr_path_join(folder, file);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), folder);
    tsr_status st = tsr_safetensors_create(&w.o, path, err);
    free(path);
    if (st == TSR_OK)
        st = metadata(&w, m, layer, o, fingerprint);
    if (st == TSR_OK)
        st = walk(&w, m, layer, o);
    if (st == TSR_OK)
        st = tsr_safetensors_begin(w.o, err);
    w.writing = true;
    if (st == TSR_OK)
        st = walk(&w, m, layer, o);
    if (st == TSR_OK)
        return tsr_safetensors_commit(w.o, err);
    tsr_safetensors_abort(w.o);
    return st;
}

/* ---- the rest --------------------------------------------------------------------- */

/* A text of the original, unchanged; a missing one is skipped. */
static tsr_status copy_text(const struct tsr_model *m, const char *to, const char *name,
                            struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_model_text(m, name, &text, &len, err));
    if (!text) { /* one that an interrupted run took from a model that had it is not this model's */
        char *path = tsr_path_join(to, name);
        if (!path)
            return tsr_fail_nomem(err, strlen(to), to);
        tsr_status gone = tsr_output_remove(path, err);
        free(path);
        return gone;
    }
    tsr_status st = tsr_file_store_in(to, name, text, len, err);
    free(text);
    return st;
}

static json_t *file_hash(const char *folder, const char *name, tsr_status *st, struct tsr_err *err)
{
    char  hash[TSR_HASH_TEXT] = "";
    char *path = tsr_path_join(folder, name);
    *st = path ? tsr_hash_file(path, hash, err) : tsr_fail_nomem(err, strlen(folder), folder);
    free(path);
    json_t *j = *st == TSR_OK ? json_string(hash) : NULL;
    if (*st == TSR_OK && !j)
        *st = tsr_fail_nomem(err, 64, folder);
    return j;
}

static tsr_status put_index(const char *folder, const struct tsr_model *m,
                            const struct tsr_model_overlay *o, const char *kept, json_t *j,
                            struct tsr_err *err)
{
    char       name[TSR_PACKED_LAYER_NAME];
    tsr_status st = TSR_OK;
    json_t    *layers = json_array(), *head = json_null();
    bool ok = layers && json_object_set_new(j, "format", json_string(TSR_PACKED_FORMAT)) == 0 &&
              json_object_set_new(j, "family", json_string(m->family)) == 0 &&
              json_object_set_new(j, "source", json_string(m->hash)) == 0 &&
              json_object_set_new(j, "kept", json_string(kept)) == 0;
    for (uint64_t l = 0; l < m->hp.layers && st == TSR_OK && ok; l++) {
        tsr_packed_layer_name(l, m->hp.layers, name);
        json_t *hash = file_hash(folder, name, &st, err);
        ok = st != TSR_OK || json_array_append_new(layers, hash) == 0;
    }
    if ((o->head || o->embed) && st == TSR_OK)
        head = file_hash(folder, TSR_PACKED_HEAD, &st, err);
    ok = json_object_set_new(j, "head", head) == 0 && ok;
    ok = json_object_set_new(j, "layers", layers) == 0 && ok;
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 256, folder) : st;
}

tsr_status tsr_packed_model_finish(const char *folder, const struct tsr_model *m,
                                   const struct tsr_model_overlay *o, struct tsr_err *err)
{
    char        kept[TSR_HASH_TEXT + 10];
    const char *name;
    tsr_status  st = copy_text(m, folder, "config.json", err);
    for (uint64_t i = 0; st == TSR_OK && (name = tsr_model_text_name(i)); i++)
        st = copy_text(m, folder, name, err);
    if (st == TSR_OK)
        st = tsr_model_copy_templates(m, folder, err);
    TSR_TRY(st);
    char *path = tsr_path_join(folder, TSR_PACKED_KEPT);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), folder);
    st = tsr_model_copy_kept(m, o, path, kept, err);
    free(path);
    TSR_TRY(st);
    json_t *j = json_object();
    st = j ? put_index(folder, m, o, kept, j, err) : tsr_fail_nomem(err, 256, folder);
    char    *text = NULL;
    uint64_t len = 0;
    if (st == TSR_OK)
        st = tsr_json_text(j, JSON_INDENT(1), &text, &len, err);
    json_decref(j);
    if (st == TSR_OK)
        st = tsr_file_store_in(folder, TSR_PACKED_INDEX, text, len, err);
    free(text);
    return st;
}
