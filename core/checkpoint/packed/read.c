/* Reads a packed model: its index, and its layers now or when they are opened.  Everything in it is outside input. */
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/safetensors/folder.h"
#include "model/bind.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_CAP (UINT64_C(64) << 20)

/* ---- the index -------------------------------------------------------------------- */

static tsr_status take_hash(const char *name, const char *what, const char *hash,
                            char to[TSR_HASH_TEXT], struct tsr_err *err)
{
    bool ok = hash && strlen(hash) == TSR_HASH_TEXT - 1 && strncmp(hash, "xxh3:", 5) == 0 &&
              strspn(hash + 5, "0123456789abcdef") == TSR_HASH_TEXT - 6;
    if (!ok)
        return tsr_fail(err, TSR_E_INPUT, "%s: %s is not a hash \"xxh3:<32 hex digits>\"", name,
                        what);
    memcpy(to, hash, TSR_HASH_TEXT);
    return TSR_OK;
}

static tsr_status parse_index(struct tsr_packed_index *x, const char *name, const json_t *j,
                              struct tsr_err *err)
{
    const char *format = "", *kept = NULL, *head = NULL, *source = NULL;
    json_t     *layers = NULL;
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", name);
    TSR_TRY(tsr_json_str(j, name, "format", true, &format, err));
    if (strcmp(format, TSR_PACKED_FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"format\": \"%.60s\" is not known; this Tessera reads "
                        "\"" TSR_PACKED_FORMAT "\"",
                        name, format);
    TSR_TRY(tsr_json_str(j, name, "kept", true, &kept, err));
    TSR_TRY(take_hash(name, "\"kept\"", kept, x->kept, err));
    TSR_TRY(tsr_json_str(j, name, "source", false, &source, err));
    if (source)
        TSR_TRY(take_hash(name, "\"source\"", source, x->source, err));
    TSR_TRY(tsr_json_str(j, name, "head", false, &head, err));
    if (head)
        TSR_TRY(take_hash(name, "\"head\"", head, x->head, err));
    TSR_TRY(tsr_json_sub(j, name, "layers", true, JSON_ARRAY, &layers, err));
    x->layers = json_array_size(layers);
    x->layer = tsr_new(x->layers, sizeof *x->layer);
    if (!x->layer)
        return tsr_fail_nomem(err, x->layers * sizeof *x->layer, name);
    for (uint64_t i = 0; i < x->layers; i++) {
        char what[48];
        (void)snprintf(what, sizeof what, "item %llu of \"layers\"", (unsigned long long)i);
        TSR_TRY(take_hash(name, what, tsr_json_word(json_array_get(layers, i)), x->layer[i], err));
    }
    return TSR_OK;
}

tsr_status tsr_packed_index_parse(struct tsr_packed_index *x, const char *name, const char *text,
                                  uint64_t len, struct tsr_err *err)
{
    json_t *j = NULL;
    memset(x, 0, sizeof *x);
    TSR_TRY(tsr_json_parse(&j, name, text, len, 3, err));
    tsr_status st = parse_index(x, name, j, err);
    json_decref(j);
    if (st != TSR_OK)
        tsr_packed_index_free(x);
    return st;
}

void tsr_packed_index_free(struct tsr_packed_index *x)
{
    free(x->layer);
    x->layer = NULL;
}

/* ---- files -------------------------------------------------------------------------- */

tsr_status tsr_packed_model_find(const char *folder, bool *is, struct tsr_err *err)
{
    bool begun = false;
    TSR_TRY(tsr_checkpoint_folder_has(folder, TSR_PACKED_INDEX, is, err));
    TSR_TRY(tsr_checkpoint_folder_has(folder, TSR_PACKED_FINGERPRINT, &begun, err));
    if (!*is && begun)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is a packed model that is not finished; run the command that makes it "
                        "again, and it goes on",
                        folder);
    return TSR_OK;
}

static void count(struct tsr_model *m, const struct tsr_model_packed *p)
{
    m->parameters += p ? p->rows * p->cols : 0;
    m->bytes += p ? tsr_model_packed_bytes(p) : 0;
}

/* headers_only is about all of it, streamed about the layers. */
static tsr_status read_layers(const char *folder, struct tsr_model *m,
                              const struct tsr_packed_index *x, bool headers_only, bool streamed,
                              struct tsr_err *err)
{
    if (x->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s/" TSR_PACKED_INDEX ": lists %llu layers; config.json says %llu", folder,
                        (unsigned long long)x->layers, (unsigned long long)m->hp.layers);
    TSR_TRY(tsr_model_overlay_create(&m->packed, m->hp.layers, m->hp.linears, err));
    for (uint64_t l = 0; l < x->layers; l++)
        TSR_TRY(tsr_packed_layer_read(folder, m, l, headers_only || streamed, x->layer[l], NULL,
                                      m->packed, err));
    if (*x->head)
        TSR_TRY(tsr_packed_layer_read(folder, m, x->layers, headers_only, x->head, NULL, m->packed,
                                      err));
    for (uint64_t l = 0; l < x->layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++)
            count(m, m->packed->lin[l][i]);
    count(m, m->packed->head);
    count(m, m->packed->embed);
    return TSR_OK;
}

/* ---- one layer at a time --------------------------------------------------------------- */

/* What reads a layer's file when the layer is opened. */
struct layer_files {
    const struct tsr_model *m;
    char                   *folder;
    char (*hash)[TSR_HASH_TEXT]; /* [layers] of the files */
};

static void layer_files_free(void *self)
{
    struct layer_files *f = self;
    free(f->folder);
    free(f->hash);
    free(f);
}

/* The file has the descriptions too, so those from the headers go first. */
static tsr_status layer_files_read(void *self, uint64_t layer, struct tsr_err *err)
{
    const struct layer_files *f = self;
    for (uint64_t i = 0; i < f->m->hp.linears; i++) {
        struct tsr_model_packed **p = &f->m->packed->lin[layer][i];
        if (!*p)
            continue;
        tsr_model_packed_drop(*p);
        tsr_model_packed_destroy(*p);
        *p = NULL;
    }
    tsr_model_overlay_drop_folds(f->m->packed, layer);
    return tsr_packed_layer_read(f->folder, f->m, layer, false, f->hash[layer], NULL, f->m->packed,
                                 err);
}

/* Takes hash over, also on error. */
static tsr_status keep_reader(struct tsr_model_layer_reader *reader, const char *folder,
                              const struct tsr_model *m, char (*hash)[TSR_HASH_TEXT],
                              struct tsr_err         *err)
{
    struct layer_files *f = tsr_new(1, sizeof *f);
    if (!f) {
        free(hash);
        return tsr_fail_nomem(err, sizeof *f, folder);
    }
    *f = (struct layer_files){ .m = m, .folder = tsr_strdup(folder), .hash = hash };
    if (!f->folder) {
        layer_files_free(f);
        return tsr_fail_nomem(err, strlen(folder), folder);
    }
    return tsr_model_layer_reader_set(reader, m, f, layer_files_read, layer_files_free, err);
}

tsr_status tsr_packed_model_read(const char *folder, struct tsr_model *m, bool headers_only,
                                 struct tsr_model_layer_reader *reader, char kept[TSR_HASH_TEXT],
                                 char hash[TSR_HASH_TEXT], struct tsr_err *err)
{
    char                   *text, *path;
    uint64_t                len;
    struct tsr_packed_index x;
    TSR_TRY(
        tsr_checkpoint_folder_slurp(folder, TSR_PACKED_INDEX, INDEX_CAP, &text, &len, &path, err));
    tsr_status st = tsr_packed_index_parse(&x, path, text, len, err);
    tsr_hash_bytes(text, len, hash);
    free(text);
    free(path);
    if (st != TSR_OK)
        return st;
    memcpy(kept, x.kept, TSR_HASH_TEXT);
    memcpy(m->source, x.source, TSR_HASH_TEXT);
    st = read_layers(folder, m, &x, headers_only, reader != NULL, err);
    if (st == TSR_OK && reader) {
        st = keep_reader(reader, folder, m, x.layer, err);
        x.layer = NULL;
    }
    tsr_packed_index_free(&x);
    return st;
}
