/* Decoder layers that are in memory only while they are open, and the copy of the tensors that a
 * packed model keeps. */
#include "base/mem.h"
#include "model/bind.h"
#include "model/packed.h"
#include "model/unused.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_model_layers_new(const struct tsr_model_hparams *hp, struct tsr_model_layer **layers,
                                struct tsr_err *err)
{
    struct tsr_model_layer  *v = tsr_new(hp->layers, sizeof *v);
    struct tsr_model_linear *lin = tsr_new(hp->layers * hp->linears, sizeof *lin);
    if (!v || !lin) {
        free(v);
        free(lin);
        return tsr_fail_nomem(err, hp->layers * hp->linears * sizeof *lin, "layers");
    }
    for (uint64_t i = 0; i < hp->layers; i++)
        v[i].lin = lin + i * hp->linears;
    *layers = v;
    return TSR_OK;
}

void tsr_model_layers_destroy(struct tsr_model_layer *layers)
{
    if (layers)
        free(layers[0].lin);
    free(layers);
}

static int load_by_layer(const void *a, const void *b)
{
    const struct tsr_model_tensor_load *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int patch_by_layer(const void *a, const void *b)
{
    const struct tsr_model_patch *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Keeps what belongs to layers, at the front of both lists. */
static void front(struct tsr_model_binding *b, uint64_t *loads, uint64_t *patches)
{
    *loads = *patches = 0;
    for (uint64_t i = 0; i < b->n_loads; i++)
        if (b->loads[i].layered)
            b->loads[(*loads)++] = b->loads[i];
    for (uint64_t i = 0; i < b->n_patches; i++)
        if (b->patches[i].layered)
            b->patches[(*patches)++] = b->patches[i];
    if (*loads)
        qsort(b->loads, *loads, sizeof *b->loads, load_by_layer);
    if (*patches)
        qsort(b->patches, *patches, sizeof *b->patches, patch_by_layer);
}

tsr_status tsr_model_layers_take(struct tsr_model_binding *b, struct tsr_model_storage *s)
{
    uint64_t layers = b->config->hp.layers, loads, patches, l = 0, p = 0;
    s->layers = tsr_new(layers, sizeof *s->layers);
    if (!s->layers)
        return tsr_fail_nomem(b->err, layers * sizeof *s->layers, "layers");
    front(b, &loads, &patches);
    for (uint64_t i = 0; i < layers; i++) {
        struct tsr_model_layer_storage *y = &s->layers[i];
        y->bytes = b->layer_bytes[i];
        y->first_load = l;
        y->first_patch = p;
        while (l < loads && b->loads[l].layer == i)
            l++;
        while (p < patches && b->patches[p].layer == i)
            p++;
        y->n_loads = l - y->first_load;
        y->n_patches = p - y->first_patch;
    }
    s->loads = b->loads;
    s->patches = b->patches;
    b->loads = NULL;
    b->patches = NULL;
    b->n_loads = b->n_patches = 0;
    return TSR_OK;
}

void tsr_model_layers_free(struct tsr_model_storage *s, uint64_t layers)
{
    for (uint64_t i = 0; s->layers && i < layers; i++)
        free(s->layers[i].data);
    free(s->layers);
    free(s->loads);
    free(s->patches);
    if (s->reader.self)
        s->reader.free(s->reader.self);
    free(s->reader.opens);
}

static void set_data(const struct tsr_model_storage *s, const struct tsr_model_layer_storage *y)
{
    for (uint64_t i = 0; i < y->n_patches; i++) {
        const struct tsr_model_patch *p = &s->patches[y->first_patch + i];
        *p->data = y->data ? (unsigned char *)y->data + p->at : NULL;
    }
}

/* One tensor of a layer to `to`; its file is as it was when the model was loaded. */
static tsr_status load_unchanged(const struct tsr_model *m, const struct tsr_model_tensor_load *l,
                                 void *to, struct tsr_err *err)
{
    const struct tsr_checkpoint_shards *s = &m->storage->shards;
    TSR_TRY(tsr_model_load_tensor(s, l, to, NULL, NULL, err));
    return tsr_file_unchanged(&s->files[l->src->file].file, err);
}

static void leave_room(struct tsr_model_layer_storage *y)
{
    free(y->data);
    y->data = NULL;
}

static tsr_status read_layer(const struct tsr_model *m, struct tsr_model_layer_storage *y,
                             struct tsr_err *err)
{
    const struct tsr_model_storage *s = m->storage;
    y->data = tsr_new_large(y->bytes);
    if (!y->data)
        return tsr_fail_nomem(err, y->bytes, "a layer's weights");
    for (uint64_t i = 0; i < y->n_loads; i++) {
        const struct tsr_model_tensor_load *l = &s->loads[y->first_load + i];
        TSR_TRY(load_unchanged(m, l, (unsigned char *)y->data + l->at, err));
    }
    return TSR_OK;
}

tsr_status tsr_model_layer_reader_set(struct tsr_model_layer_reader *r, const struct tsr_model *m,
                                      void *self,
                                      tsr_status (*read)(void *, uint64_t, struct tsr_err *),
                                      void (*free_self)(void *), struct tsr_err *err)
{
    r->opens = tsr_new(m->hp.layers, sizeof *r->opens);
    if (!r->opens) {
        free_self(self);
        return tsr_fail_nomem(err, m->hp.layers * sizeof *r->opens, "layers");
    }
    r->self = self;
    r->read = read;
    r->free = free_self;
    return TSR_OK;
}

static void close_packed(const struct tsr_model *m, uint64_t layer)
{
    struct tsr_model_storage *s = m->storage;
    if (!s->reader.opens || s->reader.opens[layer] == 0 || --s->reader.opens[layer] > 0)
        return;
    for (uint64_t i = 0; i < m->hp.linears; i++)
        tsr_model_packed_drop(m->packed->lin[layer][i]);
    tsr_model_overlay_drop_folds(m->packed, layer);
}

static tsr_status open_packed(const struct tsr_model *m, uint64_t layer, struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    if (!s->reader.opens || s->reader.opens[layer]++ > 0)
        return TSR_OK;
    tsr_status st = s->reader.read(s->reader.self, layer, err);
    if (st != TSR_OK)
        close_packed(m, layer);
    return st;
}

/* What is not packed. */
static tsr_status open_stored(const struct tsr_model *m, uint64_t layer, struct tsr_err *err)
{
    struct tsr_model_layer_storage *y = &m->storage->layers[layer];
    if (y->opens == 0) {
        tsr_status st = read_layer(m, y, err);
        if (st != TSR_OK) {
            leave_room(y);
            return st;
        }
        set_data(m->storage, y);
    }
    y->opens++;
    return TSR_OK;
}

tsr_status tsr_model_open_layer(const struct tsr_model *m, uint64_t layer, struct tsr_err *err)
{
    if (!m->storage)
        return TSR_OK;
    TSR_TRY(open_packed(m, layer, err));
    tsr_status st = m->storage->layers ? open_stored(m, layer, err) : TSR_OK;
    if (st != TSR_OK)
        close_packed(m, layer);
    return st;
}

void tsr_model_close_layer(const struct tsr_model *m, uint64_t layer)
{
    if (!m->storage)
        return;
    close_packed(m, layer);
    if (!m->storage->layers)
        return;
    struct tsr_model_layer_storage *y = &m->storage->layers[layer];
    if (y->opens == 0 || --y->opens > 0)
        return;
    leave_room(y);
    set_data(m->storage, y);
}

uint64_t tsr_model_layer_bytes(const struct tsr_model *m, uint64_t layer)
{
    return m->storage && m->storage->layers ? m->storage->layers[layer].bytes : 0;
}

/* ---- tensors that a packed model keeps ------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct tsr_model_tensor_load *x = a, *y = b;
    return strcmp(x->src->t->name, y->src->t->name);
}

static tsr_status hash_config(const struct tsr_model *m, struct tsr_hasher *h, struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t len = 0;
    TSR_TRY(tsr_model_text(m, "config.json", &text, &len, err));
    if (!text)
        return tsr_fail(err, TSR_E_INPUT, "%s: config.json is not there any more", m->path);
    tsr_hasher_update(h, text, len);
    tsr_hasher_update(h, m->storage->family->hash, strlen(m->storage->family->hash));
    free(text);
    return TSR_OK;
}

static tsr_status declare_unused(void *ctx, const struct tsr_safetensors *file,
                                 const struct tsr_safetensors_tensor *t, struct tsr_err *err)
{
    uint32_t size;
    TSR_TRY(tsr_model_unused_size(file, t, &size, err));
    return tsr_safetensors_declare_as(ctx, t->name, t->dtype_name, size, t->rank, t->shape, err);
}

static tsr_status copy_unused(void *ctx, const struct tsr_safetensors *file,
                              const struct tsr_safetensors_tensor *t, struct tsr_err *err)
{
    return tsr_model_unused_copy(file, t, ctx, err);
}

/* Those that are not run are not hashed: the model is the same without them. */
static tsr_status copy(const struct tsr_model_binding *b, struct tsr_st_out *o,
                       struct tsr_hasher *h)
{
    TSR_TRY(tsr_safetensors_metadata(o, "format", "tessera.packed/1 kept", b->err));
    for (uint64_t i = 0; i < b->n_loads; i++) {
        const struct tsr_safetensors_tensor *t = b->loads[i].src->t;
        TSR_TRY(tsr_safetensors_declare(o, t->name, t->dtype, t->rank, t->shape, b->err));
    }
    TSR_TRY(tsr_model_visit_unused(b->model, declare_unused, o, b->err));
    TSR_TRY(tsr_safetensors_begin(o, b->err));
    for (uint64_t i = 0; i < b->n_loads; i++) {
        const struct tsr_checkpoint_stored *e = b->loads[i].src;
        tsr_model_load_label(h, e->t);
        TSR_TRY(tsr_model_load_pass(&b->shards->files[e->file], e->t, h, o, b->err));
    }
    TSR_TRY(tsr_model_visit_unused(b->model, copy_unused, o, b->err));
    for (uint32_t i = 0; i < b->shards->n_files; i++)
        TSR_TRY(tsr_file_unchanged(&b->shards->files[i].file, b->err));
    return TSR_OK;
}

/* Binds again, without the packed tensors: the plan lists the tensors to keep. */
static tsr_status plan_kept(struct tsr_model_binding *b)
{
    for (uint64_t i = 0; i < b->shards->n; i++)
        b->shards->tensors[i].used = false;
    TSR_TRY(tsr_model_bind(b));
    uint64_t n = 0;
    for (uint64_t i = 0; i < b->n_loads; i++)
        if (!b->loads[i].compare)
            b->loads[n++] = b->loads[i];
    b->n_loads = n;
    qsort(b->loads, n, sizeof *b->loads, by_name);
    return TSR_OK;
}

static tsr_status copy_to(struct tsr_model_binding *b, const char *path, char kept[48])
{
    struct tsr_hasher *h;
    struct tsr_st_out *o = NULL;
    TSR_TRY(tsr_hasher_create(&h, b->err));
    tsr_status st = hash_config(b->model, h, b->err);
    if (st == TSR_OK)
        st = tsr_safetensors_create(&o, path, b->err);
    if (st == TSR_OK)
        st = copy(b, o, h);
    tsr_hasher_finish(h, kept);
    if (st == TSR_OK)
        return tsr_safetensors_commit(o, b->err);
    tsr_safetensors_abort(o);
    return st;
}

tsr_status tsr_model_copy_kept(const struct tsr_model *m, const struct tsr_model_overlay *o,
                               const char *path, char kept[48], struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    if (!s || s->shards.n_files == 0)
        return tsr_fail(err, TSR_E_INVAL, "%s was loaded without its weights", m->path);
    struct tsr_model_config view = { .family = s->family, .hp = m->hp, .has = s->has };
    struct tsr_model        scratch = *m; /* takes the plan's pointers in place of m */
    TSR_TRY(tsr_model_layers_new(&m->hp, &scratch.layers, err));
    for (uint64_t i = 0; i < m->hp.layers; i++) {
        struct tsr_model_linear *lin = scratch.layers[i].lin;
        memcpy(lin, m->layers[i].lin, m->hp.linears * sizeof *lin);
        scratch.layers[i] = m->layers[i];
        scratch.layers[i].lin = lin;
    }
    struct tsr_model_binding b = { .config = &view,
                                   .shards = &s->shards,
                                   .model = &scratch,
                                   .folder = s->folder,
                                   .says = s->config ? "its metadata" : "config.json",
                                   .packed = o,
                                   .spare = true,
                                   .err = err };
    tsr_status               st = plan_kept(&b);
    if (st == TSR_OK)
        st = copy_to(&b, path, kept);
    tsr_model_binding_free(&b);
    tsr_model_layers_destroy(scratch.layers);
    return st;
}
