/* Reads a packed model.  Everything in it is outside input: sizes follow from formats and shapes
 * and must agree with what is stored. */
#include "base/f16.h"
#include "base/mem.h"
#include "model/folder.h"
#include "model/packed_model.h"
#include "model/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_CAP (UINT64_C(64) << 20)
#define NAME_CAP  128

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

/* ---- what a layer's header says ----------------------------------------------------- */

struct in {
    const struct tsr_st    *st;
    const char             *file;
    const struct tsr_model *m;
    uint64_t                layer;
    struct tsr_overlay     *o;
    uint64_t                used; /* tensors */
    const unsigned char    *data; /* the data section, or NULL: shapes alone */
    struct tsr_err         *err;
};

/* A tensor of the file, or NULL. */
static const struct tsr_st_tensor *find(struct in *r, const char *name, const char *suffix)
{
    char full[NAME_CAP];
    (void)snprintf(full, sizeof full, "%.100s.%s", name, suffix);
    return tsr_st_find(r->st, full);
}

static tsr_status need(struct in *r, const char *name, const char *suffix, uint32_t dtype,
                       uint64_t rows, uint64_t cols, const struct tsr_st_tensor **out)
{
    const struct tsr_st_tensor *t = *out = find(r, name, suffix);
    uint64_t                    want[2] = { rows, cols };
    const uint64_t             *shape = rows ? want : want + 1;
    uint32_t                    rank = rows ? 2 : 1;
    if (!t)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.%s\" is missing", r->file, name,
                        suffix);
    if (t->dtype != dtype || t->rank != rank || memcmp(t->shape, shape, rank * sizeof *shape) != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: tensor \"%s.%s\" must be %s with shape [%llu%s%.0llu]", r->file, name,
                        suffix, tsr_dtype_name(dtype), (unsigned long long)shape[0],
                        rank == 2 ? ", " : "", (unsigned long long)(rank == 2 ? cols : 0));
    r->used++;
    return TSR_OK;
}

static void *bytes_of(const struct in *r, const struct tsr_st_tensor *t)
{
    void *p = tsr_new_aligned(t->end - t->begin, 1);
    if (p)
        memcpy(p, r->data + t->begin, t->end - t->begin);
    return p;
}

/* Values that a decoder would take for addresses or for scales that do not exist. */
static tsr_status check_values(struct in *r, const char *name, const struct tsr_packed *p)
{
    for (uint64_t row = 0; row < p->rows; row++) {
        const unsigned char *meta = (const unsigned char *)p->meta + row * p->meta_stride;
        const char          *wrong = tsr_format_row_check(&p->format, p->cols, meta);
        if (wrong)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s\": row %llu: %s", r->file, name,
                            (unsigned long long)row, wrong);
    }
    return TSR_OK;
}

static tsr_status check_order(struct in *r, const char *name, const struct tsr_packed *p)
{
    unsigned char *seen = tsr_new(p->cols, 1);
    if (!seen)
        return tsr_fail_nomem(r->err, p->cols, name);
    const char *wrong = tsr_packed_order_check(p, seen);
    free(seen);
    return wrong ? tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.order\" %s", r->file, name, wrong)
                 : TSR_OK;
}

static tsr_status fill(struct in *r, const char *name, struct tsr_packed *p)
{
    const struct tsr_st_tensor *codes, *meta = NULL, *order = NULL;
    bool                        dense = strncmp(p->format.id, "tessera.", 8) != 0;
    if (dense) {
        TSR_TRY(need(r, name, "dense", TSR_F32, p->rows, p->cols, &codes));
    } else {
        TSR_TRY(need(r, name, "codes", TSR_U8, p->rows, p->code_stride, &codes));
        if (p->meta_stride)
            TSR_TRY(need(r, name, "meta", TSR_U8, p->rows, p->meta_stride, &meta));
        if (p->ordered)
            TSR_TRY(need(r, name, "order", TSR_U32, 0, p->cols, &order));
    }
    if (!r->data)
        return TSR_OK;
    void *bytes = bytes_of(r, codes);
    if (dense)
        p->dense = bytes;
    else
        p->codes = bytes;
    p->meta = meta ? bytes_of(r, meta) : NULL;
    p->order = order ? bytes_of(r, order) : NULL;
    if (!bytes || (meta && !p->meta) || (order && !p->order))
        return tsr_fail_nomem(r->err, codes->end - codes->begin, name);
    for (uint64_t i = 0; dense && i < p->rows * p->cols; i++)
        if (!isfinite(p->dense[i]))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s\": row %llu column %llu is %g", r->file,
                            name, (unsigned long long)(i / p->cols),
                            (unsigned long long)(i % p->cols), (double)p->dense[i]);
    if (order)
        TSR_TRY(check_order(r, name, p));
    return dense || !meta ? TSR_OK : check_values(r, name, p);
}

static tsr_status read_linear(struct in *r, const char *name, const char *text,
                              struct tsr_packed **out)
{
    char                        what[400];
    const struct tsr_st_tensor *t = find(r, name, "codes");
    if (!t)
        t = find(r, name, "dense");
    if (!t || t->rank != 2 || t->shape[0] == 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s\" has neither codes nor dense weights",
                        r->file, name);
    struct tsr_packed *p = *out = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(r->err, sizeof *p, name);
    p->rows = t->shape[0];
    (void)snprintf(what, sizeof what, "%.250s: metadata of \"%s\"", r->file, name);
    TSR_TRY(tsr_packed_understand(p, what, text, r->err));
    return fill(r, name, p);
}

static const char *meta_of(const struct tsr_st *st, const char *key)
{
    for (uint64_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_keys[i], key) == 0)
            return st->meta_values[i];
    return NULL;
}

static tsr_status read_vector(struct in *r, const char *name, const char *suffix, uint64_t n,
                              const float **out)
{
    const struct tsr_st_tensor *t;
    TSR_TRY(need(r, name, suffix, TSR_F32, 0, n, &t));
    if (!r->data)
        return TSR_OK;
    float *v = bytes_of(r, t);
    if (!v)
        return tsr_fail_nomem(r->err, n * sizeof *v, name);
    *out = v;
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s.%s\": element %llu is %g", r->file, name,
                            suffix, (unsigned long long)i, (double)v[i]);
    return TSR_OK;
}

static tsr_status read_norm(struct in *r, const char *which, struct tsr_norm *n)
{
    char name[NAME_CAP];
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)r->layer, which);
    if (!find(r, name, "gain"))
        return TSR_OK;
    TSR_TRY(read_vector(r, name, "gain", r->m->hp.hidden, &n->gain));
    return find(r, name, "bias") ? read_vector(r, name, "bias", r->m->hp.hidden, &n->bias) : TSR_OK;
}

/* What a site's inputs are divided by. */
static tsr_status read_scale(struct in *r, enum tsr_site site)
{
    char         name[NAME_CAP];
    const float *v = NULL;
    uint64_t     n = tsr_site_cols(r->m, site);
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)r->layer,
                   tsr_site_name(site));
    if (!find(r, name, "scale"))
        return TSR_OK;
    tsr_status st = read_vector(r, name, "scale", n, &v);
    r->o->scale[r->layer][site] = (float *)(uintptr_t)v;
    for (uint64_t i = 0; st == TSR_OK && v && i < n; i++)
        if (!(v[i] > 0))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s.scale\": element %llu is %g", r->file,
                            name, (unsigned long long)i, (double)v[i]);
    return st;
}

static tsr_status read_parts(struct in *r)
{
    uint64_t    linears = 0;
    const char *text;
    if (r->layer == r->m->hp.layers) {
        if ((text = meta_of(r->st, r->m->embed.name))) {
            linears++;
            TSR_TRY(read_linear(r, r->m->embed.name, text, &r->o->embed));
        }
        if ((text = meta_of(r->st, r->m->head.w.name))) {
            linears++;
            TSR_TRY(read_linear(r, r->m->head.w.name, text, &r->o->head));
        }
        if (linears == 0)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: has no metadata of \"%s\" or \"%s\"", r->file,
                            r->m->head.w.name, r->m->embed.name);
    } else {
        for (int i = 0; i < TSR_LINEARS; i++) {
            const char *name = r->m->layers[r->layer].lin[i].w.name;
            if (!(text = meta_of(r->st, name)))
                continue;
            linears++;
            TSR_TRY(read_linear(r, name, text, &r->o->lin[r->layer][i]));
        }
        TSR_TRY(read_norm(r, "attn_in", &r->o->norm[r->layer][TSR_OVERLAY_ATTN_IN]));
        TSR_TRY(read_norm(r, "ffn_in", &r->o->norm[r->layer][TSR_OVERLAY_FFN_IN]));
        for (int i = 0; i < TSR_SITES; i++)
            TSR_TRY(read_scale(r, (enum tsr_site)i));
    }
    if (r->used != r->st->n)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: holds %llu tensors, of which %llu belong to this layer", r->file,
                        (unsigned long long)r->st->n, (unsigned long long)r->used);
    if (linears + 2 != r->st->n_meta) /* with format and fingerprint */
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: its metadata name linears that are not of this "
                        "layer",
                        r->file);
    return TSR_OK;
}

static tsr_status check_head(const struct tsr_st *st, const char *file, const char *fingerprint,
                             struct tsr_err *err)
{
    const char *format = meta_of(st, "format"), *print = meta_of(st, "fingerprint");
    if (!format || strcmp(format, TSR_PACKED_FORMAT) != 0 || !print)
        return tsr_fail(err, TSR_E_INPUT, "%s: is no file of a packed model", file);
    if (fingerprint && strcmp(print, fingerprint) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is of another run than " TSR_PACKED_FINGERPRINT " beside it; remove "
                        "the file, or start anew with --again",
                        file);
    return TSR_OK;
}

tsr_status tsr_packed_layer_check(const struct tsr_st *st, const char *file,
                                  const struct tsr_model *m, uint64_t layer, struct tsr_overlay *o,
                                  struct tsr_err *err)
{
    struct in r = { .st = st, .file = file, .m = m, .layer = layer, .o = o, .err = err };
    TSR_TRY(check_head(st, file, NULL, err));
    return read_parts(&r);
}

/* ---- files -------------------------------------------------------------------------- */

static tsr_status read_bytes(struct in *r, const struct tsr_st *st, const char *hash)
{
    unsigned char *all = tsr_new_aligned(st->file.size, 1);
    char           now[TSR_HASH_TEXT];
    if (!all)
        return tsr_fail_nomem(r->err, st->file.size, r->file);
    tsr_status s = tsr_file_read(&st->file, 0, all, st->file.size, r->err);
    if (s == TSR_OK)
        s = tsr_file_unchanged(&st->file, r->err);
    if (s == TSR_OK && hash) {
        tsr_hash_bytes(all, st->file.size, now);
        if (strcmp(now, hash) != 0)
            s = tsr_fail(r->err, TSR_E_INPUT,
                         "%s: its bytes are not those that " TSR_PACKED_INDEX " has the hash of; "
                         "the file is damaged",
                         r->file);
    }
    r->data = all + st->data_offset;
    if (s == TSR_OK)
        s = read_parts(r);
    free(all);
    return s;
}

tsr_status tsr_packed_layer_read(const char *folder, const struct tsr_model *m, uint64_t layer,
                                 bool headers_only, const char *hash, const char *fingerprint,
                                 struct tsr_overlay *o, struct tsr_err *err)
{
    struct tsr_file f;
    struct tsr_st   st;
    char            name[TSR_PACKED_LAYER_NAME];
    tsr_packed_layer_name(layer, m->hp.layers, name);
    TSR_TRY(tsr_folder_open(&f, folder, name, err));
    TSR_TRY(tsr_st_open_file(&st, &f, err));
    struct in  r = { .st = &st, .file = st.file.path, .m = m, .layer = layer, .o = o, .err = err };
    tsr_status s = check_head(&st, r.file, fingerprint, err);
    if (s == TSR_OK)
        s = headers_only ? read_parts(&r) : read_bytes(&r, &st, hash);
    tsr_st_close(&st);
    return s;
}

tsr_status tsr_packed_model_find(const char *folder, bool *is, struct tsr_err *err)
{
    bool begun = false;
    TSR_TRY(tsr_folder_has(folder, TSR_PACKED_INDEX, is, err));
    TSR_TRY(tsr_folder_has(folder, TSR_PACKED_FINGERPRINT, &begun, err));
    if (!*is && begun)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is a packed model that is not finished; run the command that makes it "
                        "again, and it goes on",
                        folder);
    return TSR_OK;
}

static void count(struct tsr_model *m, const struct tsr_packed *p)
{
    m->parameters += p ? p->rows * p->cols : 0;
    m->bytes += p ? tsr_packed_bytes(p) : 0;
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
    TSR_TRY(tsr_overlay_create(&m->packed, m->hp.layers, err));
    for (uint64_t l = 0; l < x->layers; l++)
        TSR_TRY(tsr_packed_layer_read(folder, m, l, headers_only || streamed, x->layer[l], NULL,
                                      m->packed, err));
    if (*x->head)
        TSR_TRY(tsr_packed_layer_read(folder, m, x->layers, headers_only, x->head, NULL, m->packed,
                                      err));
    for (uint64_t l = 0; l < x->layers; l++)
        for (int i = 0; i < TSR_LINEARS; i++)
            count(m, m->packed->lin[l][i]);
    count(m, m->packed->head);
    count(m, m->packed->embed);
    return TSR_OK;
}

tsr_status tsr_packed_model_read(const char *folder, struct tsr_model *m, bool headers_only,
                                 struct tsr_packed_stream *stream, char kept[TSR_HASH_TEXT],
                                 char hash[TSR_HASH_TEXT], struct tsr_err *err)
{
    char                   *text, *path;
    uint64_t                len;
    struct tsr_packed_index x;
    TSR_TRY(tsr_folder_slurp(folder, TSR_PACKED_INDEX, INDEX_CAP, &text, &len, &path, err));
    tsr_status st = tsr_packed_index_parse(&x, path, text, len, err);
    tsr_hash_bytes(text, len, hash);
    free(text);
    free(path);
    if (st != TSR_OK)
        return st;
    memcpy(kept, x.kept, TSR_HASH_TEXT);
    memcpy(m->source, x.source, TSR_HASH_TEXT);
    st = read_layers(folder, m, &x, headers_only, stream != NULL, err);
    if (st == TSR_OK && stream) {
        stream->opens = tsr_new(x.layers, sizeof *stream->opens);
        if (!stream->opens)
            st = tsr_fail_nomem(err, x.layers * sizeof *stream->opens, folder);
        stream->hash = x.layer;
        x.layer = NULL;
    }
    tsr_packed_index_free(&x);
    return st;
}

/* ---- one layer at a time --------------------------------------------------------------- */

static void drop_layer(const struct tsr_model *m, uint64_t layer, bool descriptions)
{
    for (int i = 0; i < TSR_LINEARS; i++) {
        struct tsr_packed **p = &m->packed->lin[layer][i];
        if (!*p)
            continue;
        tsr_packed_drop(*p);
        if (descriptions) {
            tsr_packed_destroy(*p);
            *p = NULL;
        }
    }
    tsr_overlay_drop_folds(m->packed, layer);
}

tsr_status tsr_packed_stream_open(struct tsr_packed_stream *s, const char *folder,
                                  const struct tsr_model *m, uint64_t layer, struct tsr_err *err)
{
    if (s->opens[layer] == 0) {
        drop_layer(m, layer, true);
        TSR_TRY(
            tsr_packed_layer_read(folder, m, layer, false, s->hash[layer], NULL, m->packed, err));
    }
    s->opens[layer]++;
    return TSR_OK;
}

void tsr_packed_stream_close(struct tsr_packed_stream *s, const struct tsr_model *m, uint64_t layer)
{
    if (s->opens[layer] > 0 && --s->opens[layer] == 0)
        drop_layer(m, layer, false);
}

void tsr_packed_stream_free(struct tsr_packed_stream *s)
{
    free(s->opens);
    free(s->hash);
    *s = (struct tsr_packed_stream){ 0 };
}
