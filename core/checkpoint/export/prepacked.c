/* A prepacked file: each weight is loaded by the backend and its layout is written to the file, one
 * matrix at a time; docs/formats/prepacked.md. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/export/prepacked_out.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/texts.h"
#include "compensate/compensation.h"
#include "engine/device.h"
#include "model/own.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(8) << 20) /* of a weight during export */

struct writer {
    struct tsr_export                  *x;
    const struct tsr_model_overlay     *o;
    struct tsr_engine_device           *dev;
    const struct tsr_backend_layout_v1 *table;
    struct tsr_export_prepacked_out     out;
    json_t                             *layout, *names, *texts;
    float                              *floats;
    uint64_t                            n_floats, cap_floats;
};

static tsr_status no_index(struct writer *w)
{
    return tsr_fail_nomem(w->x->err, 256, "the index");
}

static tsr_status order(struct writer *w, const char *of, const struct tsr_model_packed *p);

/* ---- weights -------------------------------------------------------------------------------- */

/* A backend has one layout for all. */
static tsr_status say_layout(struct writer *w, const struct tsr_weight_layout *l)
{
    struct tsr_err *err = w->x->err;
    if (!l->id || !*l->id || l->bytes == 0 || l->align == 0 || l->align > TSR_PREPACKED_PAGE)
        return tsr_fail(err, TSR_E_CONFIG, "%s states a layout without id, size or alignment",
                        tsr_engine_device_text(w->dev));
    if (!w->layout) {
        w->layout = l->target
                        ? json_pack("{s:s, s:I, s:s}", "id", l->id, "revision",
                                    (json_int_t)l->revision, "target", l->target)
                        : json_pack("{s:s, s:I}", "id", l->id, "revision", (json_int_t)l->revision);
        return w->layout && json_object_set_new(w->out.index, "layout", w->layout) == 0
                   ? TSR_OK
                   : no_index(w);
    }
    const char *target = json_string_value(json_object_get(w->layout, "target"));
    if (strcmp(l->id, json_string_value(json_object_get(w->layout, "id"))) != 0 ||
        l->revision != json_integer_value(json_object_get(w->layout, "revision")) ||
        strcmp(l->target ? l->target : "", target ? target : "") != 0)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%s lays weights out in more than one way, which one file cannot say",
                        tsr_engine_device_text(w->dev));
    return TSR_OK;
}

/* What the device made of it, through a buffer. */
static tsr_status copy(struct writer *w, const struct tsr_engine_weight *d, uint64_t bytes,
                       char hash[TSR_HASH_TEXT])
{
    struct tsr_hasher *h = NULL;
    unsigned char     *buf = tsr_new_aligned(CHUNK, 1);
    tsr_status         st =
        buf ? tsr_hasher_create(&h, w->x->err) : tsr_fail_nomem(w->x->err, CHUNK, d->desc.name);
    for (uint64_t at = 0; st == TSR_OK && at < bytes;) {
        uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        st = w->table->weight_read(w->dev->self, d->handle, at, buf, n, w->x->err);
        if (st == TSR_OK) {
            tsr_hasher_update(h, buf, n);
            tsr_export_prepacked_put(&w->out, buf, n);
        }
        at += n;
    }
    char scratch[TSR_HASH_TEXT];
    tsr_hasher_finish(h, st == TSR_OK ? hash : scratch);
    free(buf);
    return st;
}

/* Its format: {"dtype"} or {"packed", "widened"}; what else packing says of it goes to the details. */
static tsr_status describe(struct writer *w, const struct tsr_matrix *m,
                           const struct tsr_model_packed *p, bool widened, json_t **kind,
                           json_t **details)
{
    static const char *const known[] = { "squared_error", "loss", "rtn_loss", "damping",
                                         "retries" };
    char                    *text = NULL;
    json_t                  *j = NULL;
    if (!p)
        tsr_json_set(kind, "dtype", json_string(tsr_dtype_name(widened ? TSR_F32 : m->dtype)));
    if (!p)
        return TSR_OK;
    TSR_TRY(tsr_packed_describe(p, &text, w->x->err));
    tsr_status st = tsr_json_parse(&j, "a description", text, strlen(text), 8, w->x->err);
    free(text);
    TSR_TRY(st);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        json_t *v = json_object_get(j, known[i]);
        if (v)
            tsr_json_set(details, known[i], json_incref(v));
        if (v)
            (void)json_object_del(j, known[i]);
    }
    tsr_json_set(kind, "packed", j);
    if (widened)
        tsr_json_set(kind, "widened", json_true());
    w->x->report->packed++;
    return TSR_OK;
}

static tsr_status put_weight(struct writer *w, const struct tsr_prepacked_model_part *part,
                             const struct tsr_model_packed *p, const struct tsr_engine_weight *d)
{
    struct tsr_format f32 = { .struct_size = sizeof f32, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    struct tsr_weight_desc   desc = { .struct_size = sizeof desc,
                                      .name = part->name,
                                      .format = d->widened ? &f32 : &d->format,
                                      .rows = part->rows,
                                      .cols = part->cols };
    struct tsr_weight_layout l = { .struct_size = sizeof l };
    char                     hash[TSR_HASH_TEXT];
    TSR_TRY(w->table->weight_layout(w->dev->self, &desc, &l, w->x->err));
    TSR_TRY(say_layout(w, &l));
    uint64_t at = tsr_export_prepacked_page(&w->out);
    TSR_TRY(copy(w, d, l.bytes, hash));
    w->x->report->tensors++;
    json_t    *kind = json_object(), *details = json_object();
    tsr_status st = describe(w, part->w, p, d->widened, &kind, &details);
    if (st == TSR_OK)
        return tsr_export_prepacked_weight(&w->out, part->name, at, l.bytes, hash, kind, details);
    json_decref(kind);
    json_decref(details);
    return st;
}

static tsr_status matrix(struct writer *w, const struct tsr_prepacked_model_part *part)
{
    const struct tsr_model_packed *p = NULL;
    struct tsr_engine_weight      *d = NULL;
    if (w->o && part->part == TSR_MODEL_PART_LINEAR)
        p = w->o->lin[part->layer][part->lin];
    else if (w->o && part->part == TSR_MODEL_PART_HEAD)
        p = w->o->head;
    else if (w->o && part->part == TSR_MODEL_PART_EMBED)
        p = w->o->embed;
    if (part->optional && (!p || p == w->o->embed)) /* the embedding is the head */
        return TSR_OK;
    if (tsr_plugin_cancelled())
        return tsr_fail(w->x->err, TSR_E_CANCELLED, "interrupted");
    struct tsr_model_packed as = { 0 };
    tsr_status              st = TSR_OK;
    if (p && p->own.unit) { /* a backend has no layout for it */
        st = tsr_model_own_decoded(p, &as, w->x->err);
        p = &as;
    }
    if (st == TSR_OK)
        st = p ? tsr_engine_device_packed(w->dev, part->name, p, &d, w->x->err)
               : tsr_engine_device_weight(w->dev, part->w, &d, w->x->err);
    if (st == TSR_OK)
        st = put_weight(w, part, p, d);
    tsr_engine_device_drop_weight(w->dev, d);
    free(as.dense);
    return st == TSR_OK && p && p->ordered ? order(w, part->name, p) : st;
}

/* ---- vectors -------------------------------------------------------------------------------- */

/* A folded norm replaces the model's. */
static const float *values_of(const struct writer *w, const struct tsr_prepacked_model_part *part)
{
    static const enum tsr_model_part parts[TSR_MODEL_OVERLAY_NORMS] = { TSR_MODEL_PART_ATTN_IN,
                                                                        TSR_MODEL_PART_FFN_IN,
                                                                        TSR_MODEL_PART_Q_A_NORM,
                                                                        TSR_MODEL_PART_KV_A_NORM };
    for (int i = 0; w->o && w->o->norm && i < TSR_MODEL_OVERLAY_NORMS; i++) {
        const struct tsr_model_norm *f = &w->o->norm[part->layer][i];
        if (part->part == parts[i] && f->gain)
            return part->bias ? f->bias : f->gain;
    }
    return *part->values;
}

/* Words of 32 bits; they are written together, when all are known. */
static tsr_status add_words(struct writer *w, const char *name, const void *words, uint64_t n)
{
    uint64_t room = (n + 15) / 16 * 16, cap = w->cap_floats ? w->cap_floats : 4096;
    while (cap - w->n_floats < room)
        cap *= 2;
    if (cap != w->cap_floats) {
        float *more = tsr_renew(w->floats, cap, sizeof *more);
        if (!more)
            return tsr_fail_nomem(w->x->err, cap * sizeof *more, "norms and biases");
        w->floats = more;
        w->cap_floats = cap;
    }
    float *to = w->floats + w->n_floats;
    memset(to, 0, room * sizeof *to);
    memcpy(to, words, n * sizeof *to);
    if (json_object_set_new(w->names, name, json_integer((json_int_t)w->n_floats)) != 0)
        return no_index(w);
    w->n_floats += room;
    return TSR_OK;
}

static tsr_status vector(struct writer *w, const struct tsr_prepacked_model_part *part)
{
    const float *v = values_of(w, part);
    if (!v)
        return tsr_fail(w->x->err, TSR_E_BUG, "%s: %s is not in memory", w->x->m->path, part->name);
    w->x->report->tensors++;
    return add_words(w, part->name, v, part->n);
}

/* The order of a packed matrix's columns. */
static tsr_status order(struct writer *w, const char *of, const struct tsr_model_packed *p)
{
    char name[TSR_MODEL_PART_NAME + 8];
    (void)snprintf(name, sizeof name, "%s.order", of);
    if (!p->order)
        return tsr_fail(w->x->err, TSR_E_BUG, "%s: %s is not in memory", w->x->m->path, name);
    return add_words(w, name, p->order, p->cols);
}

static tsr_status visit(void *ctx, const struct tsr_prepacked_model_part *part, struct tsr_err *err)
{
    (void)err; /* x->err */
    return part->w ? matrix(ctx, part) : vector(ctx, part);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static tsr_status put_text(struct writer *w, const char *name)
{
    char             *text;
    uint64_t          len;
    struct tsr_errbuf why = TSR_ERRBUF(why);
    tsr_status        st = tsr_model_text(w->x->m, name, &text, &len, &why.err);
    if (st == TSR_E_INPUT && strcmp(name, "tokenizer.json") == 0) {
        TSR_TRY(
            tsr_model_text_unchanged(w->x->m, name, w->x->err)); /* a changed file is an error */
        tsr_logf(TSR_LOG_WARN, "%s; %s takes token ids only", why.text, w->x->path);
        return TSR_OK;
    }
    if (st != TSR_OK)
        return tsr_err_copy(w->x->err, st, &why.err);
    if (text)
        st = tsr_export_prepacked_block(&w->out, w->texts, name, text, len);
    free(text);
    return st;
}

static tsr_status put_texts(struct writer *w)
{
    const char *name;
    TSR_TRY(put_text(w, "config.json"));
    for (uint64_t i = 0; (name = tsr_model_text_name(i)); i++)
        TSR_TRY(put_text(w, name));
    struct tsr_model_text_list l = { 0 };
    tsr_status                 st = tsr_model_text_list(w->x->m, &l, w->x->err);
    for (uint64_t i = 0; i < l.n && st == TSR_OK; i++)
        st = put_text(w, l.v[i]);
    tsr_model_text_list_free(&l);
    return st;
}

/* The residuals of a packed model, unchanged: a part like any other. */
static tsr_status put_compensation(struct writer *w)
{
    const struct tsr_model  *m = w->x->m;
    const char              *from = w->x->opt->compensation ? w->x->opt->compensation : m->path;
    struct tsr_compensation *c = NULL;
    if ((!w->x->opt->compensation &&
         (!m->packed_as || strcmp(m->packed_as, TSR_PACKED_FORMAT) != 0 || w->x->o)) ||
        !tsr_compensation_there(from))
        return TSR_OK;
    TSR_TRY(tsr_compensation_open(&c, from, m, w->x->err)); /* whole, and of this model */
    tsr_status st = tsr_export_prepacked_block(&w->out, w->out.index, "compensation", c->map.data,
                                               c->map.bytes);
    if (st == TSR_OK)
        st = tsr_compensation_unchanged(c, w->x->err);
    tsr_compensation_destroy(c);
    return st;
}

static tsr_status put_source(struct writer *w)
{
    const struct tsr_model *m = w->x->m;
    const char *as = !w->o ? NULL : m->packed_as && w->o == m->packed ? m->packed_as : "quantized";
    json_t     *s = json_pack("{s:s}", "hash", m->hash);
    if (!s || (as && json_object_set_new(s, "packed", json_string(as)) != 0)) {
        json_decref(s);
        return no_index(w);
    }
    return json_object_set_new(w->out.index, "source", s) == 0 ? TSR_OK : no_index(w);
}

static tsr_status put_model(struct writer *w)
{
    const struct tsr_model *m = w->x->m;
    /* the list of parts also has places to fill; here they are read */
    struct tsr_model *parts = (struct tsr_model *)(uintptr_t)m;
    TSR_TRY(tsr_prepacked_model_parts(parts, m->hp.layers, visit, w, w->x->err));
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        TSR_TRY(tsr_model_open_layer(m, l, w->x->err));
        tsr_status st = tsr_prepacked_model_parts(parts, l, visit, w, w->x->err);
        tsr_model_close_layer(m, l);
        TSR_TRY(st);
    }
    TSR_TRY(tsr_export_prepacked_block(&w->out, w->out.index, "vectors", w->floats,
                                       w->n_floats * sizeof *w->floats));
    json_t *vectors = json_object_get(w->out.index, "vectors");
    return json_object_set(vectors, "names", w->names) == 0 ? TSR_OK : no_index(w);
}

static tsr_status write_all(struct writer *w)
{
    struct tsr_export *x = w->x;
    w->texts = json_object();
    w->names = json_object();
    if (!w->texts || !w->names || json_object_set(w->out.index, "texts", w->texts) != 0)
        return no_index(w);
    TSR_TRY(put_source(w));
    TSR_TRY(put_model(w));
    TSR_TRY(put_compensation(w));
    TSR_TRY(put_texts(w));
    return tsr_export_prepacked_end(&w->out, tsr_plugin_registry_pool(x->opt->registry),
                                    &x->report->bytes);
}

static tsr_status open_device(struct writer *w)
{
    const struct tsr_export *x = w->x;
    TSR_TRY(tsr_engine_device_open(&w->dev, x->opt->registry, x->opt->on.backend,
                                   x->opt->on.numerics, x->err));
    w->table = tsr_engine_device_layout(w->dev);
    if (!w->table)
        return tsr_fail(x->err, TSR_E_CONFIG,
                        "%s does not say how it lays weights out (" TSR_BACKEND_LAYOUT
                        "), so there is nothing to prepack for it; choose another --backend",
                        tsr_engine_device_text(w->dev));
    return TSR_OK;
}

tsr_status tsr_export_prepacked(struct tsr_export *x)
{
    struct writer w = { .x = x, .o = x->o ? x->o : x->m->packed };
    if (!x->opt->registry)
        return tsr_fail(x->err, TSR_E_INVAL, "a prepacked file needs a registry of backends");
    tsr_status st = open_device(&w);
    if (st == TSR_OK) {
        st = tsr_export_prepacked_begin(&w.out, x->path, x->opt->replace, x->err);
        if (st == TSR_OK)
            st = write_all(&w);
        tsr_export_prepacked_abort(&w.out);
    }
    tsr_engine_device_close(w.dev);
    json_decref(w.names);
    json_decref(w.texts);
    free(w.floats);
    return st;
}
