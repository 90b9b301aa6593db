/* Reads a layer's file of a packed model.  Everything in it is outside input: sizes follow from formats and shapes
 * and must agree with what is stored. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/safetensors/folder.h"
#include "checkpoint/safetensors/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CAP 128

struct in {
    const struct tsr_safetensors *st;
    const char                   *file;
    const struct tsr_model       *m;
    uint64_t                      layer;
    struct tsr_model_overlay     *o;
    uint64_t                      used; /* tensors */
    const unsigned char          *data; /* the data section, or NULL: shapes alone */
    struct tsr_err               *err;
};

/* A tensor of the file, or NULL. */
static const struct tsr_safetensors_tensor *find(struct in *r, const char *name, const char *suffix)
{
    char full[NAME_CAP];
    (void)snprintf(full, sizeof full, "%.100s.%s", name, suffix);
    return tsr_safetensors_find(r->st, full);
}

static tsr_status need(struct in *r, const char *name, const char *suffix, uint32_t dtype,
                       uint64_t rows, uint64_t cols, const struct tsr_safetensors_tensor **out)
{
    const struct tsr_safetensors_tensor *t = *out = find(r, name, suffix);
    uint64_t                             want[2] = { rows, cols };
    const uint64_t                      *shape = rows ? want : want + 1;
    uint32_t                             rank = rows ? 2 : 1;
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

static void *bytes_of(const struct in *r, const struct tsr_safetensors_tensor *t)
{
    void *p = tsr_new_aligned(t->end - t->begin, 1);
    if (p)
        memcpy(p, r->data + t->begin, t->end - t->begin);
    return p;
}

/* Values that a decoder would take for addresses or for scales that do not exist. */
static tsr_status check_values(struct in *r, const char *name, const struct tsr_model_packed *p)
{
    for (uint64_t row = 0; row < p->rows; row++) {
        const unsigned char *meta = (const unsigned char *)p->meta + row * p->meta_stride;
        const char          *wrong = tsr_model_format_row_check(&p->format, p->cols, meta);
        if (wrong)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s\": row %llu: %s", r->file, name,
                            (unsigned long long)row, wrong);
    }
    return TSR_OK;
}

static tsr_status check_order(struct in *r, const char *name, const struct tsr_model_packed *p)
{
    unsigned char *seen = tsr_new(p->cols, 1);
    if (!seen)
        return tsr_fail_nomem(r->err, p->cols, name);
    const char *wrong = tsr_model_packed_order_check(p, seen);
    free(seen);
    return wrong ? tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.order\" %s", r->file, name, wrong)
                 : TSR_OK;
}

static tsr_status fill(struct in *r, const char *name, struct tsr_model_packed *p)
{
    const struct tsr_safetensors_tensor *codes, *meta = NULL, *order = NULL;
    bool dense = strncmp(p->format.id, "tessera.", 8) != 0 && !p->own.unit;
    if (dense) {
        TSR_TRY(need(r, name, "dense", TSR_F32, p->rows, p->cols, &codes));
    } else if (p->own.unit) {
        p->rows = p->own.rows;
        TSR_TRY(need(r, name, "codes", TSR_U8, p->own.units, p->own.code_bytes, &codes));
        if (p->own.meta_bytes)
            TSR_TRY(need(r, name, "meta", TSR_U8, p->own.units, p->own.meta_bytes, &meta));
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
    return dense || p->own.unit || !meta ? TSR_OK : check_values(r, name, p);
}

static tsr_status read_linear(struct in *r, const char *name, const char *text,
                              struct tsr_model_packed **out)
{
    char                                 what[400];
    const struct tsr_safetensors_tensor *t = find(r, name, "codes");
    if (!t)
        t = find(r, name, "dense");
    if (!t || t->rank != 2 || t->shape[0] == 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s\" has neither codes nor dense weights",
                        r->file, name);
    struct tsr_model_packed *p = *out = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(r->err, sizeof *p, name);
    p->rows = t->shape[0];
    (void)snprintf(what, sizeof what, "%.250s: metadata of \"%s\"", r->file, name);
    TSR_TRY(tsr_packed_understand(p, what, text, r->err));
    return fill(r, name, p);
}

static const char *meta_of(const struct tsr_safetensors *st, const char *key)
{
    for (uint64_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_keys[i], key) == 0)
            return st->meta_values[i];
    return NULL;
}

static tsr_status read_vector(struct in *r, const char *name, const char *suffix, uint64_t n,
                              const float **out)
{
    const struct tsr_safetensors_tensor *t;
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

static tsr_status read_norm(struct in *r, enum tsr_overlay_norm which)
{
    char                   name[NAME_CAP];
    enum tsr_site          site = tsr_model_overlay_norm_site(which);
    uint64_t               cols = tsr_model_layer_site_cols(r->m, r->layer, site);
    struct tsr_model_norm *n = &r->o->norm[r->layer][which];
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)r->layer,
                   TSR_MODEL_SITE_NAME(site));
    if (!tsr_model_layer_has_site(r->m, r->layer, site) || !find(r, name, "gain"))
        return TSR_OK;
    TSR_TRY(read_vector(r, name, "gain", cols, &n->gain));
    return find(r, name, "bias") ? read_vector(r, name, "bias", cols, &n->bias) : TSR_OK;
}

/* What a site's inputs are divided by. */
static tsr_status read_scale(struct in *r, enum tsr_site site)
{
    char         name[NAME_CAP];
    const float *v = NULL;
    uint64_t     n = tsr_model_layer_site_cols(r->m, r->layer, site);
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)r->layer,
                   TSR_MODEL_SITE_NAME(site));
    if (!tsr_model_layer_has_site(r->m, r->layer, site) || tsr_model_site_columns(site) != site ||
        !find(r, name, "scale"))
        return TSR_OK;
    tsr_status st = read_vector(r, name, "scale", n, &v);
    r->o->scale[r->layer][site] = (float *)(uintptr_t)v;
    for (uint64_t i = 0; st == TSR_OK && v && i < n; i++)
        if (!(v[i] > 0))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: \"%s.scale\": element %llu is %g", r->file,
                            name, (unsigned long long)i, (double)v[i]);
    return st;
}

static tsr_status read_transforms(struct in *r, uint64_t *found)
{
    char        what[400];
    const char *text = meta_of(r->st, TSR_PACKED_TRANSFORMS);
    if (!text)
        return TSR_OK;
    ++*found;
    (void)snprintf(what, sizeof what, "%.250s: metadata of \"" TSR_PACKED_TRANSFORMS "\"", r->file);
    return tsr_packed_transforms_understand(r->m, r->layer, what, text, r->o, r->err);
}

static tsr_status read_parts(struct in *r)
{
    uint64_t    linears = 0, others = 2; /* metadata: format and fingerprint */
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
        for (uint64_t i = 0; i < r->m->hp.linears; i++) {
            const char *name = r->m->layers[r->layer].lin[i].w.name;
            if (!(text = meta_of(r->st, name)))
                continue;
            linears++;
            TSR_TRY(read_linear(r, name, text, &r->o->lin[r->layer][i]));
        }
        for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++)
            TSR_TRY(read_norm(r, (enum tsr_overlay_norm)i));
        for (uint64_t i = 0; i < r->m->hp.sites; i++)
            TSR_TRY(read_scale(r, (enum tsr_site)i));
        TSR_TRY(read_transforms(r, &others));
    }
    if (r->used != r->st->n)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: holds %llu tensors, of which %llu belong to this layer", r->file,
                        (unsigned long long)r->st->n, (unsigned long long)r->used);
    if (linears + others != r->st->n_meta)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: its metadata name linears that are not of this "
                        "layer",
                        r->file);
    return TSR_OK;
}

static tsr_status check_head(const struct tsr_safetensors *st, const char *file,
                             const char *fingerprint, struct tsr_err *err)
{
    const char *format = meta_of(st, "format"), *print = meta_of(st, "fingerprint");
    if (!format || strcmp(format, TSR_PACKED_FORMAT) != 0 || !print)
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a file of a packed model", file);
    if (fingerprint && strcmp(print, fingerprint) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is of another run than " TSR_PACKED_FINGERPRINT " next to it; remove "
                        "the file, or start anew with --again",
                        file);
    return TSR_OK;
}

tsr_status tsr_packed_layer_check(const struct tsr_safetensors *st, const char *file,
                                  const struct tsr_model *m, uint64_t layer,
                                  const char *fingerprint, struct tsr_model_overlay *o,
                                  struct tsr_err *err)
{
    struct in r = { .st = st, .file = file, .m = m, .layer = layer, .o = o, .err = err };
    TSR_TRY(check_head(st, file, fingerprint, err));
    return read_parts(&r);
}

static tsr_status read_bytes(struct in *r, const char *fingerprint, const char *hash)
{
    const struct tsr_safetensors *st = r->st;
    TSR_TRY(check_head(st, r->file, fingerprint, r->err));
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
                                 struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct tsr_file        f;
    struct tsr_safetensors st;
    char                   name[TSR_PACKED_LAYER_NAME];
    tsr_packed_layer_name(layer, m->hp.layers, name);
    TSR_TRY(tsr_checkpoint_folder_open(&f, folder, name, err));
    TSR_TRY(tsr_safetensors_open_file(&st, &f, err));
    struct in  r = { .st = &st, .file = st.file.path, .m = m, .layer = layer, .o = o, .err = err };
    tsr_status s = headers_only ? tsr_packed_layer_check(&st, r.file, m, layer, fingerprint, o, err)
                                : read_bytes(&r, fingerprint, hash);
    tsr_safetensors_close(&st);
    return s;
}
