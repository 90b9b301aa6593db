/* The walk over a model's linears: into memory, or one layer at a time. */
#include "base/mem.h"
#include "checkpoint/import/import.h"
#include "checkpoint/safetensors/folder.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_CAP   (UINT64_C(16) << 20)
#define CONFIG_DEPTH 64
#define OLD_NAME     "quantize_config.json" /* of writers that do not change config.json */

/* The data to read a layer again: copies of what the binding points to. */
struct walk {
    struct tsr_import         im;
    struct tsr_model_config   config;
    struct tsr_model_binding  b;
    struct tsr_model_overlay *o;
    json_t                   *json; /* quantization_config */
};

/* Some writers store a bias of zeros for every linear, even if the model has none. */
static tsr_status drop_zero_bias(struct walk *w, const char *name, uint64_t rows)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(&w->im, name, "bias");
    float                        *v;
    bool                          zero = true;
    if (w->im.again || !e || e->t->rank != 1 || e->t->shape[0] != rows ||
        (e->t->dtype != TSR_F16 && e->t->dtype != TSR_BF16 && e->t->dtype != TSR_F32))
        return TSR_OK; /* binding reports the error */
    TSR_TRY(tsr_import_floats(&w->im, e, &v));
    for (uint64_t i = 0; i < rows; i++)
        zero = zero && v[i] == 0.0f;
    free(v);
    if (zero)
        tsr_import_take(&w->im, e);
    return TSR_OK;
}

static void count(const struct walk *w, const struct tsr_model_packed *p)
{
    if (w->im.again)
        return;
    w->b.model->parameters += p->rows * p->cols;
    w->b.model->bytes += tsr_model_packed_bytes(p);
}

/* Rows of a fused matrix as a separate one: row i is row from(i). */
struct cut {
    const struct tsr_model_packed *whole;
    uint64_t                       rows, first; /* of the part */
    uint64_t dim, stride, inner;                /* by head: blocks of dim rows, stride apart */
};

static void copy_rows(const struct cut *c, void *dst, const void *src, uint64_t bytes)
{
    for (uint64_t i = 0; i < c->rows; i++) {
        uint64_t from = c->dim ? i / c->dim * c->stride + c->inner + i % c->dim : c->first + i;
        memcpy((unsigned char *)dst + i * bytes, (const unsigned char *)src + from * bytes, bytes);
    }
}

static tsr_status cut_rows(const struct cut *c, struct tsr_model_packed **out, struct tsr_err *err)
{
    struct tsr_model_packed *p = *out = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, "a part of a fused linear");
    *p = *c->whole;
    p->rows = c->rows;
    p->codes = p->meta = NULL;
    p->order = NULL;
    p->plugin = tsr_strdup(c->whole->plugin);
    p->format_id = tsr_strdup(c->whole->format_id);
    p->format.id = p->format_id;
    if (c->whole->codes)
        p->codes = tsr_new_aligned(c->rows * p->code_stride, 1);
    if (c->whole->meta)
        p->meta = tsr_new(c->rows, p->meta_stride);
    if (c->whole->order)
        p->order = tsr_new(p->cols, sizeof *p->order);
    if (!p->plugin || !p->format_id || (c->whole->codes && !p->codes) ||
        (c->whole->meta && !p->meta) || (c->whole->order && !p->order))
        return tsr_fail_nomem(err, c->rows * (p->code_stride + p->meta_stride), "a fused linear");
    if (p->order)
        memcpy(p->order, c->whole->order, p->cols * sizeof *p->order);
    if (p->codes)
        copy_rows(c, p->codes, c->whole->codes, p->code_stride);
    if (p->meta)
        copy_rows(c, p->meta, c->whole->meta, p->meta_stride);
    return TSR_OK;
}

/* Several linears in one stored matrix. */
static tsr_status read_fused(struct walk *w, const struct tsr_model_role *r, uint64_t layer,
                             const char *name)
{
    const struct tsr_model_hparams *hp = &w->config.hp;
    enum tsr_linear_id              ids[TSR_MODEL_FUSED];
    uint32_t                        groups;
    unsigned                        n = tsr_model_fused(hp, r->part, ids, &groups);
    uint64_t                        total = 0, at = 0, rows[TSR_MODEL_FUSED], cols = 0;
    tsr_status                      st;
    for (unsigned i = 0; i < n; i++) {
        tsr_model_bind_shape(hp, layer, ids[i], &rows[i], &cols);
        total += rows[i];
    }
    struct tsr_model_packed *whole;
    TSR_TRY(tsr_import_linear(&w->im, name, total, cols, &whole));
    if (!whole)
        return TSR_OK;
    st = tsr_model_bind_holds(&w->b, r->bias) ? TSR_OK : drop_zero_bias(w, name, total);
    for (unsigned i = 0; st == TSR_OK && i < n; i++) {
        struct cut c = { .whole = whole, .rows = rows[i], .first = at };
        if (groups) { /* as [head][q,k,v][head_dim] */
            c.dim = rows[i] / groups;
            c.stride = total / groups;
            c.inner = at / groups;
        }
        st = cut_rows(&c, &w->o->lin[layer][ids[i]], w->im.err);
        if (st == TSR_OK)
            count(w, w->o->lin[layer][ids[i]]);
        at += rows[i];
    }
    tsr_model_packed_destroy(whole);
    return st;
}

static tsr_status read_role(struct walk *w, const struct tsr_model_role *r, uint64_t layer);

/* The linears of all experts in one stored matrix. */
static tsr_status read_stack(struct walk *w, const struct tsr_model_role *r, uint64_t layer,
                             const char *name)
{
    const struct tsr_model_hparams *hp = &w->config.hp;
    uint64_t                        each = r->part == TSR_MODEL_PART_EXPERTS ? 1 : 2;
    enum tsr_linear_id              kind = each == 1 ? r->lin : TSR_MODEL_GATE;
    struct tsr_model_packed        *whole;
    uint64_t                        rows, cols;
    tsr_model_bind_shape(hp, layer, tsr_model_expert_linear(0, kind), &rows, &cols);
    TSR_TRY(tsr_import_linear(&w->im, name, hp->experts * each * rows, cols, &whole));
    if (!whole)
        return TSR_OK;
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; st == TSR_OK && i < hp->experts * each; i++) {
        struct cut c = { .whole = whole, .rows = rows, .first = i * rows };
        if (r->interleaved) { /* [expert][row][gate, up] */
            c.dim = 1;
            c.stride = 2;
            c.inner = i / 2 * 2 * rows + i % 2;
        }
        enum tsr_linear_id id = tsr_model_expert_linear(i / each, each == 1 ? kind
                                                                  : i % 2   ? TSR_MODEL_UP
                                                                            : TSR_MODEL_GATE);
        st = cut_rows(&c, &w->o->lin[layer][id], w->im.err);
        if (st == TSR_OK)
            count(w, w->o->lin[layer][id]);
    }
    tsr_model_packed_destroy(whole);
    return st;
}

static tsr_status read_experts(struct walk *w, const struct tsr_model_role *r, uint64_t layer)
{
    for (uint64_t i = 0; i < w->config.hp.experts; i++) {
        struct tsr_model_role one;
        char                  name[TSR_FAMILY_NAME + 24];
        if (!tsr_model_role_of_expert(r, i, name, &one))
            return tsr_fail(w->im.err, TSR_E_BUG, "tensor name too long");
        TSR_TRY(read_role(w, &one, layer));
    }
    return TSR_OK;
}

static tsr_status read_role(struct walk *w, const struct tsr_model_role *r, uint64_t layer)
{
    const struct tsr_model_hparams *hp = &w->config.hp;
    uint64_t                        rows = hp->vocab, cols = hp->embed_dim;
    char                            name[TSR_BIND_NAME];
    enum tsr_linear_id              ids[TSR_MODEL_FUSED];
    uint32_t                        groups;
    if (!tsr_model_bind_holds(&w->b, r->weight) || !tsr_model_role_in_layer(hp, r, layer))
        return TSR_OK;
    if (r->part == TSR_MODEL_PART_EXPERT)
        return read_experts(w, r, layer);
    for (int kind = TSR_MODEL_GATE; kind <= TSR_MODEL_DOWN; kind++) {
        struct tsr_model_role each;
        if (tsr_model_role_each(r, (enum tsr_linear_id)kind, &each))
            TSR_TRY(read_experts(w, &each, layer));
    }
    TSR_TRY(tsr_model_bind_name(&w->b, r, layer, "", name));
    if (tsr_model_fused(hp, r->part, ids, &groups))
        return read_fused(w, r, layer, name);
    if (r->part == TSR_MODEL_PART_EXPERTS || r->part == TSR_MODEL_PART_EXPERTS_GATE_UP)
        return read_stack(w, r, layer, name);
    if (r->part != TSR_MODEL_PART_LINEAR && r->part != TSR_MODEL_PART_HEAD)
        return TSR_OK;
    struct tsr_model_packed **p =
        r->part == TSR_MODEL_PART_HEAD ? &w->o->head : &w->o->lin[layer][r->lin];
    if (r->part == TSR_MODEL_PART_LINEAR)
        tsr_model_bind_shape(hp, layer, r->lin, &rows, &cols);
    TSR_TRY(tsr_import_linear(&w->im, name, rows, cols, p));
    if (!*p)
        return TSR_OK;
    count(w, *p);
    return tsr_model_bind_holds(&w->b, r->bias) ? TSR_OK : drop_zero_bias(w, name, rows);
}

static tsr_status read_layer(struct walk *w, uint64_t layer)
{
    const struct tsr_model_family *a = w->config.family;
    for (uint32_t i = 0; i < a->n_roles; i++)
        if (strchr(a->roles[i].name, '#'))
            TSR_TRY(read_role(w, &a->roles[i], layer));
    return TSR_OK;
}

static tsr_status read_all(struct walk *w, bool keep)
{
    const struct tsr_model_family *a = w->config.family;
    tsr_model_bind_prefix(&w->b);
    for (uint64_t layer = 0; layer < w->config.hp.layers; layer++) {
        TSR_TRY(read_layer(w, layer));
        for (uint64_t i = 0; !keep && i < w->config.hp.linears; i++)
            tsr_model_packed_drop(w->o->lin[layer][i]);
    }
    for (uint32_t i = 0; i < a->n_roles; i++)
        if (!strchr(a->roles[i].name, '#'))
            TSR_TRY(read_role(w, &a->roles[i], 0));
    if (w->im.linears == 0)
        return tsr_fail(w->im.err, TSR_E_INPUT,
                        "%s: says that the model is quantized, but none of its linears is stored "
                        "so; remove it from the file if the weights are whole",
                        w->im.where);
    return TSR_OK;
}

static void walk_free(void *self)
{
    struct walk *w = self;
    if (!w)
        return;
    tsr_import_close(&w->im);
    json_decref(w->json);
    free(w);
}

/* A layer whose linears are there without their bytes. */
static tsr_status read_again(void *self, uint64_t layer, struct tsr_err *err)
{
    struct walk *w = self;
    w->im.err = w->b.err = err;
    for (uint64_t i = 0; i < w->config.hp.linears; i++) {
        tsr_model_packed_destroy(w->o->lin[layer][i]);
        w->o->lin[layer][i] = NULL;
    }
    TSR_TRY(read_layer(w, layer));
    for (uint32_t i = 0; i < w->b.shards->n_files; i++)
        TSR_TRY(tsr_file_unchanged(&w->b.shards->files[i].file, err));
    return TSR_OK;
}

/* The configuration of writers that leave config.json alone; a new reference or NULL. */
static tsr_status read_old(const char *folder, struct tsr_hasher *hash, json_t **config,
                           char **file, struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_checkpoint_folder_slurp_if(folder, OLD_NAME, CONFIG_CAP, &text, &len, file, err));
    if (!text)
        return TSR_OK;
    tsr_hasher_update(hash, text, len);
    tsr_status st = tsr_json_parse(config, *file, text, len, CONFIG_DEPTH, err);
    free(text);
    return st;
}

static tsr_status import(struct walk *w, const char *file, struct tsr_hasher *hash,
                         bool headers_only, bool keep)
{
    struct tsr_model *m = w->b.model;
    TSR_TRY(tsr_import_open(&w->im, w->json, file, w->b.shards, w->b.err));
    w->im.hash = hash;
    w->im.headers_only = headers_only;
    TSR_TRY(
        tsr_model_overlay_create(&m->packed, w->config.hp.layers, w->config.hp.linears, w->b.err));
    w->o = m->packed;
    tsr_status st = read_all(w, keep);
    w->im.hash = NULL;
    if (st == TSR_OK) {
        m->packed_as = w->im.kind->method;
        tsr_import_say(&w->im);
    }
    memset(w->im.reason, 0, sizeof w->im.reason); /* already reported, or not useful */
    w->im.again = true;
    return st;
}

/* Takes the reference of config. */
static tsr_status start(struct tsr_model_binding *b, json_t *config, const char *file,
                        struct tsr_hasher *hash, bool headers_only,
                        struct tsr_model_layer_reader *reader)
{
    struct walk *w = tsr_new(1, sizeof *w);
    if (!w) {
        json_decref(config);
        return tsr_fail_nomem(b->err, sizeof *w, file);
    }
    w->json = config;
    w->config = *b->config;
    w->b = (struct tsr_model_binding){ .config = &w->config,
                                       .shards = b->shards,
                                       .model = b->model,
                                       .folder = b->folder,
                                       .says = b->says,
                                       .err = b->err };
    tsr_status st = import(w, file, hash, headers_only, reader == NULL);
    if (st == TSR_OK && reader)
        return tsr_model_layer_reader_set(reader, b->model, w, read_again, walk_free, b->err);
    walk_free(w);
    return st;
}

tsr_status tsr_import_model(struct tsr_model_binding *b, struct tsr_hasher *hash, bool headers_only,
                            struct tsr_model_layer_reader *reader)
{
    json_t    *config = json_incref(b->config->quantization);
    char      *file = NULL;
    tsr_status st = TSR_OK;
    if (!config)
        st = read_old(b->folder, hash, &config, &file, b->err);
    else if (!(file = tsr_path_join(b->folder, "config.json")))
        st = tsr_fail_nomem(b->err, strlen(b->folder), b->folder);
    if (st == TSR_OK && config)
        st = start(b, json_incref(config), file, hash, headers_only, reader);
    json_decref(config);
    free(file);
    return st;
}
