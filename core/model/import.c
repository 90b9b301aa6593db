/* The table of writers, and the walk over a model's linears. */
#include "model/import.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_CAP   (UINT64_C(16) << 20)
#define CONFIG_DEPTH 64
#define OLD_NAME     "quantize_config.json" /* of writers that do not change config.json */

static const struct tsr_importer *const table[] = { &tsr_importer_gptq, &tsr_importer_awq,
                                                    &tsr_importer_ct, &tsr_importer_bnb,
                                                    &tsr_importer_mxfp4 };
#define N_TABLE (sizeof table / sizeof *table)

const char *tsr_checkpoint_get(uint64_t i, const char **summary)
{
    if (i >= N_TABLE)
        return NULL;
    *summary = table[i]->summary;
    return table[i]->method;
}

static tsr_status unknown_method(const char *file, const char *method, struct tsr_err *err)
{
    char   known[160] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_TABLE && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                               table[i]->method);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: \"quantization_config\": \"quant_method\" \"%.40s\" cannot be read; known "
                    "are %s; use the original model's folder and quantize it here",
                    file, method, known);
}

tsr_status tsr_import_open(struct tsr_import *im, const json_t *config, const char *file,
                           struct tsr_shards *shards, struct tsr_err *err)
{
    /* the first writers named no method; all of them wrote GPTQ */
    const char *method = "gptq";
    *im = (struct tsr_import){ .config = config, .shards = shards, .err = err };
    if (!json_is_object(config))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"quantization_config\" is not an object", file);
    TSR_TRY(tsr_json_str(config, file, "quant_method", false, &method, err));
    for (size_t i = 0; i < N_TABLE; i++)
        if (strcmp(table[i]->method, method) == 0)
            im->kind = table[i];
    if (!im->kind)
        return unknown_method(file, method, err);
    size_t n = strlen(file) + strlen(method) + 40;
    if (!(im->where = tsr_new(n, 1)))
        return tsr_fail_nomem(err, n, file);
    (void)snprintf(im->where, n, "%s: \"quantization_config\" (%s)", file, method);
    return im->kind->open(im);
}

void tsr_import_close(struct tsr_import *im)
{
    for (unsigned i = 0; i < TSR_IMPORT_REASONS && im->reason[i].text; i++)
        tsr_logf(TSR_LOG_WARN, "%s: of %llu quantized linears %llu: %s", im->where,
                 (unsigned long long)im->linears, (unsigned long long)im->reason[i].n,
                 im->reason[i].text);
    if (im->own && im->kind->close)
        im->kind->close(im->own);
    free(im->where);
    *im = (struct tsr_import){ 0 };
}

tsr_status tsr_import_linear(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             struct tsr_packed **out)
{
    *out = NULL;
    tsr_status st = im->kind->read(im, name, rows, cols, out);
    if (st != TSR_OK) {
        tsr_packed_destroy(*out);
        *out = NULL;
        return st;
    }
    im->linears += *out != NULL;
    return TSR_OK;
}

/* ---- a model ---------------------------------------------------------------------------- */

struct walk {
    struct tsr_import   im;
    struct tsr_binding *b;
    struct tsr_overlay *o;
};

/* Some writers store a bias of zeros for every linear, also where the model has none. */
static tsr_status drop_zero_bias(struct walk *w, const char *name, uint64_t rows)
{
    struct tsr_stored *e = tsr_import_find(&w->im, name, "bias");
    float             *v;
    bool               zero = true;
    if (!e || e->t->rank != 1 || e->t->shape[0] != rows ||
        (e->t->dtype != TSR_F16 && e->t->dtype != TSR_BF16 && e->t->dtype != TSR_F32))
        return TSR_OK; /* binding says what is wrong with it */
    TSR_TRY(tsr_import_floats(&w->im, e, &v));
    for (uint64_t i = 0; i < rows; i++)
        zero = zero && v[i] == 0.0f;
    free(v);
    if (zero)
        tsr_import_take(&w->im, e);
    return TSR_OK;
}

static void count(struct tsr_model *m, const struct tsr_packed *p)
{
    m->parameters += p->rows * p->cols;
    m->bytes += tsr_packed_bytes(p);
}

/* Rows of a fused matrix as one of their own: row i is row from(i). */
struct cut {
    const struct tsr_packed *whole;
    uint64_t                 rows, first;        /* of the part */
    uint64_t                 dim, stride, inner; /* by head: blocks of dim rows, stride apart */
};

static void copy_rows(const struct cut *c, void *dst, const void *src, uint64_t bytes)
{
    for (uint64_t i = 0; i < c->rows; i++) {
        uint64_t from = c->dim ? i / c->dim * c->stride + c->inner + i % c->dim : c->first + i;
        memcpy((unsigned char *)dst + i * bytes, (const unsigned char *)src + from * bytes, bytes);
    }
}

static tsr_status cut_rows(const struct cut *c, struct tsr_packed **out, struct tsr_err *err)
{
    struct tsr_packed *p = *out = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, "a part of a fused linear");
    *p = *c->whole;
    p->rows = c->rows;
    p->codes = p->meta = NULL;
    p->plugin = tsr_strdup(c->whole->plugin);
    p->format_id = tsr_strdup(c->whole->format_id);
    p->format.id = p->format_id;
    if (c->whole->codes)
        p->codes = tsr_new_aligned(c->rows * p->code_stride, 1);
    if (c->whole->meta)
        p->meta = tsr_new(c->rows, p->meta_stride);
    if (!p->plugin || !p->format_id || (c->whole->codes && !p->codes) ||
        (c->whole->meta && !p->meta))
        return tsr_fail_nomem(err, c->rows * (p->code_stride + p->meta_stride), "a fused linear");
    if (p->codes)
        copy_rows(c, p->codes, c->whole->codes, p->code_stride);
    if (p->meta)
        copy_rows(c, p->meta, c->whole->meta, p->meta_stride);
    return TSR_OK;
}

/* Several linears in one stored matrix. */
static tsr_status read_fused(struct walk *w, const struct tsr_role *r, uint64_t layer,
                             const char *name)
{
    static const enum tsr_linear_id ids[] = { TSR_Q, TSR_K, TSR_V, TSR_GATE, TSR_UP };
    const struct tsr_hparams       *hp = &w->b->config->hp;
    unsigned   first = r->part == TSR_PART_GATE_UP_ROWS ? 3 : 0, n = first ? 2 : 3;
    uint64_t   total = 0, at = 0, rows[3], cols = 0;
    tsr_status st;
    for (unsigned i = 0; i < n; i++) {
        tsr_bind_shape(hp, ids[first + i], &rows[i], &cols);
        total += rows[i];
    }
    struct tsr_packed *whole;
    TSR_TRY(tsr_import_linear(&w->im, name, total, cols, &whole));
    if (!whole)
        return TSR_OK;
    st = tsr_bind_holds(w->b, r->bias) ? TSR_OK : drop_zero_bias(w, name, total);
    for (unsigned i = 0; st == TSR_OK && i < n; i++) {
        struct cut c = { .whole = whole, .rows = rows[i], .first = at };
        if (r->part == TSR_PART_QKV_HEADS) { /* [head][q,k,v][head_dim] */
            c.dim = hp->head_dim;
            c.stride = 3 * c.dim;
            c.inner = i * c.dim;
        }
        st = cut_rows(&c, &w->o->lin[layer][ids[first + i]], w->im.err);
        if (st == TSR_OK)
            count(w->b->model, w->o->lin[layer][ids[first + i]]);
        at += rows[i];
    }
    tsr_packed_destroy(whole);
    return st;
}

static tsr_status read_role(struct walk *w, const struct tsr_role *r, uint64_t layer)
{
    const struct tsr_hparams *hp = &w->b->config->hp;
    uint64_t                  rows = hp->vocab, cols = hp->embed_dim;
    char                      name[TSR_BIND_NAME];
    if (!tsr_bind_holds(w->b, r->weight))
        return TSR_OK;
    TSR_TRY(tsr_bind_name(w->b, r, layer, "", name));
    if (r->part == TSR_PART_QKV_ROWS || r->part == TSR_PART_QKV_HEADS ||
        r->part == TSR_PART_GATE_UP_ROWS)
        return read_fused(w, r, layer, name);
    if (r->part != TSR_PART_LINEAR && r->part != TSR_PART_HEAD)
        return TSR_OK;
    struct tsr_packed **p = r->part == TSR_PART_HEAD ? &w->o->head : &w->o->lin[layer][r->lin];
    if (r->part == TSR_PART_LINEAR)
        tsr_bind_shape(hp, r->lin, &rows, &cols);
    TSR_TRY(tsr_import_linear(&w->im, name, rows, cols, p));
    if (!*p)
        return TSR_OK;
    count(w->b->model, *p);
    return tsr_bind_holds(w->b, r->bias) ? TSR_OK : drop_zero_bias(w, name, rows);
}

static tsr_status read_all(struct walk *w)
{
    const struct tsr_arch *a = w->b->config->arch;
    tsr_bind_prefix(w->b);
    for (uint64_t layer = 0; layer < w->b->config->hp.layers; layer++)
        for (uint32_t i = 0; i < a->n_roles; i++)
            if (strchr(a->roles[i].name, '#'))
                TSR_TRY(read_role(w, &a->roles[i], layer));
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

/* The configuration of writers that leave config.json alone; a new reference or NULL. */
static tsr_status read_old(const char *folder, struct tsr_hasher *hash, json_t **config,
                           char **file, struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    *file = tsr_path_join(folder, OLD_NAME);
    if (!*file)
        return tsr_fail_nomem(err, strlen(folder), folder);
    if (!tsr_path_exists(*file))
        return TSR_OK;
    free(*file);
    *file = NULL;
    TSR_TRY(tsr_folder_slurp(folder, OLD_NAME, CONFIG_CAP, &text, &len, file, err));
    tsr_hasher_update(hash, text, len);
    tsr_status st = tsr_json_parse(config, *file, text, len, CONFIG_DEPTH, err);
    free(text);
    return st;
}

static tsr_status import(struct tsr_binding *b, const json_t *config, const char *file,
                         struct tsr_hasher *hash, bool headers_only)
{
    struct walk w = { .b = b };
    tsr_status  st = tsr_import_open(&w.im, config, file, b->shards, b->err);
    w.im.hash = hash;
    w.im.headers_only = headers_only;
    if (st == TSR_OK)
        st = tsr_overlay_create(&b->model->packed, b->config->hp.layers, b->err);
    w.o = b->model->packed;
    if (st == TSR_OK)
        st = read_all(&w);
    if (st == TSR_OK)
        b->model->packed_as = w.im.kind->method;
    else /* what was noted so far helps nobody */
        memset(w.im.reason, 0, sizeof w.im.reason);
    tsr_import_close(&w.im);
    return st;
}

tsr_status tsr_import_model(struct tsr_binding *b, struct tsr_hasher *hash, bool headers_only)
{
    json_t    *config = json_incref(b->config->quantization);
    char      *file = NULL;
    tsr_status st = TSR_OK;
    if (!config)
        st = read_old(b->folder, hash, &config, &file, b->err);
    else if (!(file = tsr_path_join(b->folder, "config.json")))
        st = tsr_fail_nomem(b->err, strlen(b->folder), b->folder);
    if (st == TSR_OK && config)
        st = import(b, config, file, hash, headers_only);
    json_decref(config);
    free(file);
    return st;
}
