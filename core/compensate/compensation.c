/* Reads residuals, which are used in place in the map. */
#include "compensate/compensation.h"

#include "base/f16.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CAP 160
#define ALIGN    64u

struct in {
    struct tsr_compensation *c;
    const unsigned char     *data; /* the data section */
    const char              *file;
    uint64_t                 used;
    struct tsr_err          *err;
};

static const char *meta_of(const struct tsr_safetensors *st, const char *key)
{
    for (uint64_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_keys[i], key) == 0)
            return st->meta_values[i];
    return NULL;
}

/* A tensor's bytes; *out NULL if it is absent. */
static tsr_status take(struct in *r, const char *name, const char *suffix, uint32_t dtype,
                       uint32_t rank, const uint64_t *shape, uint64_t align,
                       const unsigned char **out)
{
    char full[NAME_CAP];
    *out = NULL;
    (void)snprintf(full, sizeof full, "%.120s.%s", name, suffix);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&r->c->st, full);
    if (!t)
        return TSR_OK;
    if (t->dtype != dtype || t->rank != rank || memcmp(t->shape, shape, rank * sizeof *shape) != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: tensor \"%s\" must be %s with shape [%llu%s%.0llu]", r->file, full,
                        dtype == TSR_U8 ? "U8" : tsr_dtype_name(dtype),
                        (unsigned long long)shape[0], rank == 2 ? ", " : "",
                        (unsigned long long)(rank == 2 ? shape[1] : 0));
    if ((uintptr_t)(r->data + t->begin) % align != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: tensor \"%s\" does not begin on a multiple of %llu bytes", r->file,
                        full, (unsigned long long)align);
    *out = r->data + t->begin;
    r->used++;
    return TSR_OK;
}

static tsr_status check_scales(struct in *r, const char *name, const uint16_t *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (s[i] >= 0x7c00u) /* negative, infinite or no number */
            return tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.scales\": element %llu is %g",
                            r->file, name, (unsigned long long)i, (double)tsr_f16_f32(s[i]));
    return TSR_OK;
}

enum tsr_site tsr_compensation_kind(enum tsr_site site)
{
    enum tsr_site kind = tsr_model_site_kind(site);
    return kind < TSR_MODEL_SITES ? kind : TSR_MODEL_SITE_ATTN_IN;
}

/* What reads the norm before attention. */
static struct tsr_compensation_linears of_attention(const struct tsr_model_hparams *hp)
{
    if (hp->latent.rank)
        return (struct tsr_compensation_linears){ 3,
                                                  { TSR_MODEL_Q, TSR_MODEL_Q_A, TSR_MODEL_KV_A } };
    if (hp->recurrent || hp->attn_gate)
        return (struct tsr_compensation_linears){
            6, { TSR_MODEL_Q, TSR_MODEL_K, TSR_MODEL_V, TSR_MODEL_Z, TSR_MODEL_B, TSR_MODEL_A }
        };
    return (struct tsr_compensation_linears){ 3, { TSR_MODEL_Q, TSR_MODEL_K, TSR_MODEL_V } };
}

struct tsr_compensation_linears tsr_compensation_linears(const struct tsr_model *m, uint64_t layer,
                                                         enum tsr_site site)
{
    struct tsr_compensation_linears l = { .n = 1 };
    bool                            sparse = m->hp.sparse && m->hp.sparse[layer];
    if (!tsr_model_layer_has_site(m, layer, site))
        return (struct tsr_compensation_linears){ 0 };
    switch (site) {
    case TSR_MODEL_SITE_ATTN_IN:
        return of_attention(&m->hp);
    case TSR_MODEL_SITE_O_IN:
        l.id[0] = TSR_MODEL_O;
        return l;
    case TSR_MODEL_SITE_Q_B_IN:
        l.id[0] = TSR_MODEL_Q_B;
        return l;
    case TSR_MODEL_SITE_KV_B_IN:
        l.id[0] = TSR_MODEL_KV_B;
        return l;
    case TSR_MODEL_SITE_SHARED_DOWN_IN:
        l.id[0] = TSR_MODEL_SHARED_DOWN;
        return l;
    default:
        break;
    }
    bool               gate = tsr_model_site_kind(site) == TSR_MODEL_SITE_FFN_IN;
    enum tsr_linear_id kind = gate ? TSR_MODEL_GATE : TSR_MODEL_DOWN;
    l.id[0] = site >= TSR_MODEL_SITE_EXPERTS
                  ? tsr_model_expert_linear(tsr_model_site_expert(site), kind)
              : sparse && m->hp.shared_ffn && gate ? TSR_MODEL_SHARED_GATE
                                                   : kind;
    if (gate)
        l.id[l.n++] = (enum tsr_linear_id)(l.id[0] + 1);
    return l;
}

uint32_t tsr_compensation_row(const struct tsr_model *m, uint64_t layer, enum tsr_site site,
                              uint32_t bits, uint64_t *bytes)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    uint32_t                        n = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < of.n; i++) {
        uint64_t rows = m->layers[layer].lin[of.id[i]].w.rows;
        *bytes += rows ? tsr_compensate_residual_stride(bits, rows) : 0;
        n += rows != 0;
    }
    return n;
}

/* The codes of all linears of a site if they are one tensor. */
static tsr_status read_joined(struct in *r, const struct tsr_model *m, uint64_t layer,
                              enum tsr_site site)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    const struct tsr_model_linear  *lin = m->layers[layer].lin;
    const unsigned char            *codes;
    char                            name[NAME_CAP];
    uint64_t                        shape[2] = { tsr_model_layer_site_cols(m, layer, site), 0 }, n;
    for (uint32_t i = 0; i < of.n; i++)
        if (!tsr_mul(lin[of.id[i]].w.rows, 64, &n))
            return TSR_OK;
    if (tsr_compensation_row(m, layer, site, r->c->bits, &shape[1]) < 2)
        return TSR_OK;
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)layer,
                   TSR_MODEL_SITE_NAME(site));
    TSR_TRY(take(r, name, "residual", TSR_U8, 2, shape, ALIGN, &codes));
    for (uint32_t i = 0; codes && i < of.n; i++)
        if (lin[of.id[i]].w.rows) {
            struct tsr_compensate_residual *to = &r->c->lin[layer][of.id[i]];
            to->codes = (unsigned char *)(uintptr_t)codes;
            to->stride = shape[1];
            codes += tsr_compensate_residual_stride(r->c->bits, lin[of.id[i]].w.rows);
        }
    return TSR_OK;
}

/* out has the place of its codes if they were joined. */
static tsr_status read_linear(struct in *r, const struct tsr_matrix *w,
                              struct tsr_compensate_residual *out)
{
    const unsigned char *codes = out->codes, *scales = NULL;
    uint64_t             n, shape[2] = { w->cols, 0 };
    out->bits = r->c->bits;
    out->inputs = w->cols;
    out->outputs = w->rows;
    if (!w->rows || !tsr_mul(w->rows, 64, &n))
        return TSR_OK;
    if (!codes) {
        shape[1] = out->stride = tsr_compensate_residual_stride(out->bits, w->rows);
        TSR_TRY(take(r, w->name, "residual", TSR_U8, 2, shape, ALIGN, &codes));
    }
    if (!codes)
        return TSR_OK;
    if (out->bits != 16) {
        TSR_TRY(take(r, w->name, "scales", TSR_F16, 1, &w->rows, 2, &scales));
        if (!scales)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.scales\" is missing", r->file,
                            w->name);
        TSR_TRY(check_scales(r, w->name, (const uint16_t *)(const void *)scales, w->rows));
    }
    /* read only, as the map is; a made one is not */
    out->codes = (unsigned char *)(uintptr_t)codes;
    out->scales = (uint16_t *)(uintptr_t)scales;
    r->c->bytes += tsr_compensate_residual_bytes(out);
    return TSR_OK;
}

static tsr_status read_vector(struct in *r, const char *name, const char *suffix, uint64_t cols,
                              bool descending, const float **out)
{
    const unsigned char *p;
    TSR_TRY(take(r, name, suffix, TSR_F32, 1, &cols, 4, &p));
    if (!p)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.%s\" is missing", r->file, name,
                        suffix);
    const float *v = *out = (const float *)(const void *)p;
    for (uint64_t i = 0; i < cols; i++)
        if (!(v[i] >= 0) || !isfinite(v[i]) || (descending && i && v[i] > v[i - 1]))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s.%s\": element %llu is %g%s",
                            r->file, name, suffix, (unsigned long long)i, (double)v[i],
                            descending ? "; they descend to 0" : "");
    return TSR_OK;
}

static tsr_status read_site(struct in *r, const struct tsr_model *m, uint64_t layer,
                            enum tsr_site site)
{
    struct tsr_compensate_site_profile *p = &r->c->site[layer][site];
    char                                name[NAME_CAP];
    bool                                any = false;
    struct tsr_compensation_linears     of = tsr_compensation_linears(m, layer, site);
    for (uint32_t i = 0; i < of.n; i++)
        any = any || r->c->lin[layer][of.id[i]].codes;
    p->cols = tsr_model_layer_site_cols(m, layer, site);
    if (!any)
        return TSR_OK;
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)layer,
                   TSR_MODEL_SITE_NAME(site));
    TSR_TRY(read_vector(r, name, "top", p->cols, true, &p->top));
    TSR_TRY(read_vector(r, name, "meansq", p->cols, false, &p->meansq));
    return read_vector(r, name, "lost", p->cols, false, &p->lost);
}

static tsr_status read_head(struct in *r, const char *packed)
{
    const char *format = meta_of(&r->c->st, "format"), *of = meta_of(&r->c->st, "packed");
    const char *bits = meta_of(&r->c->st, "bits");
    if (!format || strcmp(format, TSR_COMPENSATION_FORMAT) != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: \"format\": \"%.60s\" is not " TSR_COMPENSATION_FORMAT, r->file,
                        format ? format : "");
    if (!of || (packed && strcmp(of, packed) != 0))
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: holds the residuals of another packed model (%.60s); run compensate "
                        "again",
                        r->file, of ? of : "none");
    for (uint32_t b = 2; bits && b <= 16; b *= 2) {
        char text[4];
        (void)snprintf(text, sizeof text, "%u", b);
        if (strcmp(bits, text) == 0)
            r->c->bits = b;
    }
    return r->c->bits ? TSR_OK
                      : tsr_fail(r->err, TSR_E_INPUT,
                                 "%s: \"bits\": \"%.20s\" is not one of 2, 4, 8 and 16", r->file,
                                 bits ? bits : "");
}

tsr_status tsr_compensation_new_layers(struct tsr_compensation *c, const struct tsr_model *m,
                                       struct tsr_err *err)
{
    c->layers = m->hp.layers;
    c->linears = m->hp.linears;
    c->sites = m->hp.sites;
    c->lin = tsr_new_rows(c->layers, m->hp.linears, sizeof **c->lin);
    c->site = tsr_new_rows(c->layers, m->hp.sites, sizeof **c->site);
    return c->lin && c->site
               ? TSR_OK
               : tsr_fail_nomem(err, c->layers * m->hp.linears * sizeof **c->lin, "residuals");
}

static tsr_status read_all(struct in *r, const char *packed, const struct tsr_model *m)
{
    struct tsr_compensation *c = r->c;
    TSR_TRY(read_head(r, packed));
    TSR_TRY(tsr_compensation_new_layers(c, m, r->err));
    for (uint64_t l = 0; l < c->layers; l++)
        for (uint64_t i = 0; i < m->hp.sites; i++) {
            enum tsr_site                   site = (enum tsr_site)i;
            struct tsr_compensation_linears of = tsr_compensation_linears(m, l, site);
            TSR_TRY(read_joined(r, m, l, site));
            for (uint32_t j = 0; j < of.n; j++)
                TSR_TRY(read_linear(r, &m->layers[l].lin[of.id[j]].w, &c->lin[l][of.id[j]]));
            TSR_TRY(read_site(r, m, l, site));
        }
    if (r->used != c->st.n)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: holds %llu tensors, of which %llu belong to the model", r->file,
                        (unsigned long long)c->st.n, (unsigned long long)r->used);
    return TSR_OK;
}

tsr_status tsr_compensation_parse(struct tsr_compensation *c, const char *path,
                                  const unsigned char *data, uint64_t bytes, const char *packed,
                                  const struct tsr_model *m, struct tsr_err *err)
{
    struct in r = { .c = c, .file = path, .err = err };
    c->st.file.fd = -1;
    TSR_TRY(tsr_safetensors_parse(&c->st, path, data, bytes, bytes, err));
    r.data = data + c->st.data_offset;
    tsr_status st = read_all(&r, packed, m);
    if (st != TSR_OK)
        tsr_compensation_close(c);
    return st;
}

tsr_status tsr_compensation_parse_bits(const char *path, const unsigned char *data, uint64_t bytes,
                                       uint32_t *bits, struct tsr_err *err)
{
    struct tsr_compensation c = { .st.file.fd = -1, .map.file.fd = -1 };
    struct in               r = { .c = &c, .file = path, .err = err };
    TSR_TRY(tsr_safetensors_parse(&c.st, path, data, bytes, bytes, err));
    tsr_status st = read_head(&r, NULL);
    *bits = c.bits;
    tsr_compensation_close(&c);
    return st;
}

void tsr_compensation_close(struct tsr_compensation *c)
{
    tsr_safetensors_close(&c->st);
    free(c->lin);
    free(c->site);
    free(c->path);
    tsr_map_close(&c->map);
    *c = (struct tsr_compensation){ .st.file.fd = -1 };
}

tsr_status tsr_compensation_unchanged(const struct tsr_compensation *c, struct tsr_err *err)
{
    return c->map.file.path ? tsr_file_unchanged(&c->map.file, err) : TSR_OK;
}

void tsr_compensation_destroy(struct tsr_compensation *c)
{
    if (!c)
        return;
    tsr_compensation_close(c);
    free(c);
}
