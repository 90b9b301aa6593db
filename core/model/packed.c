/* Packed matrices and the overlay that holds those of a model. */
#include "model/packed.h"
#include "base/f16.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

uint64_t tsr_model_packed_codes(const struct tsr_model_packed *p)
{
    return p->own.unit ? p->own.units * p->own.code_bytes : p->rows * p->code_stride;
}

uint64_t tsr_model_packed_meta(const struct tsr_model_packed *p)
{
    return p->own.unit ? p->own.units * p->own.meta_bytes : p->rows * p->meta_stride;
}

uint64_t tsr_model_packed_bytes(const struct tsr_model_packed *p)
{
    if (!p->own.unit && !tsr_model_format_known(&p->format)) /* stored dequantized */
        return p->rows * p->cols * sizeof(float);
    uint64_t stored = tsr_model_packed_codes(p) + tsr_model_packed_meta(p);
    return p->own.prepared ? p->own.prepared_bytes : stored + (p->ordered ? p->cols * 4 : 0);
}

void tsr_model_packed_drop(struct tsr_model_packed *p)
{
    if (!p)
        return;
    free(p->codes);
    free(p->meta);
    free(p->dense);
    free(p->order);
    free(p->own.prepared);
    p->own.prepared = NULL;
    p->codes = p->meta = NULL;
    p->dense = NULL;
    p->order = NULL;
}

void tsr_model_packed_destroy(struct tsr_model_packed *p)
{
    if (!p)
        return;
    tsr_model_packed_drop(p);
    free(p->plugin);
    free(p->format_id);
    free(p->own.use);
    free(p);
}

tsr_status tsr_model_overlay_create(struct tsr_model_overlay **o, uint64_t layers, uint64_t linears,
                                    struct tsr_err *err)
{
    struct tsr_model_overlay *v = tsr_new(1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, "the list of packed weights");
    v->layers = layers;
    v->linears = linears;
    v->sites = linears <= TSR_MODEL_EXPERTS
                   ? (uint64_t)TSR_MODEL_SITE_EXPERTS
                   : tsr_model_expert_site((linears - TSR_MODEL_EXPERTS) / TSR_EXPERT_LINEARS,
                                           TSR_MODEL_SITE_FFN_IN);
    v->lin = tsr_new_rows(layers, linears, sizeof **v->lin);
    v->norm = tsr_new(layers, sizeof *v->norm);
    v->scale = tsr_new_rows(layers, v->sites, sizeof **v->scale);
    v->turned = tsr_new_rows(layers, v->sites, sizeof **v->turned);
    v->online = tsr_new(layers, sizeof *v->online);
    if (!v->lin || !v->norm || !v->scale || !v->turned || !v->online) {
        free(v->lin);
        free(v->norm);
        free(v->scale);
        free(v->turned);
        free(v->online);
        free(v);
        return tsr_fail_nomem(err, layers * linears * sizeof **v->lin,
                              "the list of packed weights");
    }
    *o = v;
    return TSR_OK;
}

enum tsr_site tsr_model_overlay_norm_site(enum tsr_overlay_norm which)
{
    static const enum tsr_site sites[TSR_MODEL_OVERLAY_NORMS] = {
        TSR_MODEL_SITE_ATTN_IN, TSR_MODEL_SITE_FFN_IN, TSR_MODEL_SITE_Q_B_IN, TSR_MODEL_SITE_KV_B_IN
    };
    return sites[which];
}

const struct tsr_model_norm *tsr_model_overlay_norm_of(const struct tsr_model_layer *l,
                                                       enum tsr_overlay_norm         which)
{
    const struct tsr_model_norm *norms[TSR_MODEL_OVERLAY_NORMS] = { &l->attn_in, &l->ffn_in,
                                                                    &l->q_a_norm, &l->kv_a_norm };
    return norms[which];
}

void tsr_model_overlay_drop_folds(struct tsr_model_overlay *o, uint64_t layer)
{
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++) {
        free((void *)(uintptr_t)o->norm[layer][i].gain);
        free((void *)(uintptr_t)o->norm[layer][i].bias);
        o->norm[layer][i] = (struct tsr_model_norm){ 0 };
    }
    for (uint64_t i = 0; i < o->sites; i++) {
        free(o->scale[layer][i]);
        o->scale[layer][i] = NULL;
    }
}

const char *tsr_model_overlay_turned(const struct tsr_model_overlay *o, uint64_t layer)
{
    if (o->online[layer].keys)
        return "keys";
    for (uint64_t i = 0; i < o->sites; i++)
        if (o->turned[layer][i])
            return tsr_model_site_kind((enum tsr_site)i) == TSR_MODEL_SITE_O_IN
                       ? "inputs of o_proj"
                       : "inputs of down_proj";
    return NULL;
}

bool tsr_model_overlay_is_online(const struct tsr_model_overlay *o)
{
    for (uint64_t l = 0; l < o->layers; l++)
        if (o->online[l].keys || o->online[l].down)
            return true;
    return false;
}

void tsr_model_overlay_destroy(struct tsr_model_overlay *o)
{
    if (!o)
        return;
    for (uint64_t l = 0; l < o->layers; l++) {
        for (uint64_t i = 0; i < o->linears; i++)
            tsr_model_packed_destroy(o->lin[l][i]);
        tsr_model_overlay_drop_folds(o, l);
    }
    tsr_model_packed_destroy(o->head);
    if (o->embed != o->head)
        tsr_model_packed_destroy(o->embed);
    free(o->online);
    free(o->turned);
    free(o->scale);
    free(o->norm);
    free(o->lin);
    free(o);
}

static void add_sizes(const struct tsr_matrix *w, const struct tsr_model_packed *p,
                      struct tsr_model_sizes *s)
{
    if (w->rows == 0 || w->cols == 0)
        return;
    s->weights += w->rows * w->cols;
    if (!p || (!p->own.unit && !tsr_model_format_known(&p->format))) {
        s->unpacked += p ? tsr_model_packed_bytes(p) : w->rows * w->cols * tsr_dtype_size(w->dtype);
        return;
    }
    s->codes += tsr_model_packed_codes(p);
    *(strcmp(p->format.id, TSR_FORMAT_LUT) == 0 ? &s->tables : &s->scales) +=
        tsr_model_packed_meta(p);
    s->order += p->ordered ? p->cols * 4 : 0;
}

void tsr_model_overlay_sizes_like(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                  const struct tsr_model_overlay *like, struct tsr_model_sizes *s)
{
    const struct tsr_model_packed *head = o ? o->head : NULL, *embed = o ? o->embed : NULL;
    *s = (struct tsr_model_sizes){ 0 };
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++)
            add_sizes(&m->layers[l].lin[i].w, o ? o->lin[l][i] : NULL, s);
    if (head || (like && like->head && !m->hp.tied))
        add_sizes(&m->head.w, head, s);
    if ((embed && embed != head) || (like && like->embed))
        add_sizes(&m->embed, embed, s);
}

void tsr_model_overlay_size_like(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                 const struct tsr_model_overlay *like, uint64_t *weights,
                                 uint64_t *bytes)
{
    struct tsr_model_sizes s;
    tsr_model_overlay_sizes_like(m, o, like, &s);
    *weights = s.weights;
    *bytes = s.codes + s.scales + s.tables + s.order + s.unpacked;
}

void tsr_model_overlay_size(const struct tsr_model *m, const struct tsr_model_overlay *o,
                            uint64_t *weights, uint64_t *bytes)
{
    tsr_model_overlay_size_like(m, o, NULL, weights, bytes);
}

const char *tsr_model_packed_order_check(const struct tsr_model_packed *p, unsigned char *scratch)
{
    for (uint64_t j = 0; j < p->cols; j++) {
        if (p->order[j] >= p->cols)
            return "names a column that the matrix does not have";
        if (scratch[p->order[j]]++)
            return "names a column twice";
    }
    return NULL;
}
