/* Residuals onto the device, as far as an engine has layers and a rank has its share. */
#include "engine/compensator.h"

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "compensate/compensation.h"

#include <stdlib.h>
#include <string.h>

static const struct tsr_backend_compensate_v1 *table_of(const struct tsr_engine_device *d)
{
    const struct tsr_backend_compensate_v1 *t =
        d->iface->extension ? d->iface->extension(d->self, TSR_BACKEND_COMPENSATE) : NULL;
    return t && TSR_HAS(struct tsr_backend_compensate_v1, t, compensate) && t->residual_load &&
                   t->residual_free && t->select && t->compensate
               ? t
               : NULL;
}

/* The device that has the data, or the default one if it has no support. */
static tsr_status choose_device(struct tsr_engine_device *data, struct tsr_engine_comp_place *p,
                                struct tsr_err *err)
{
    p->dev = p->data = data;
    p->table = table_of(data);
    if (p->table)
        return TSR_OK;
    TSR_TRY(
        tsr_engine_device_fallback(data, "compensation", "it has no " TSR_BACKEND_COMPENSATE, err));
    p->dev = data->fallback;
    p->table = table_of(p->dev);
    if (!p->table)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "neither %s nor %s compensates (" TSR_BACKEND_COMPENSATE ")", data->text,
                        p->dev->text);
    tsr_logf(TSR_LOG_WARN, "%s does not compensate: that runs on %s, with copies", data->text,
             p->dev->text);
    return TSR_OK;
}

static uint32_t most_blocks(const struct tsr_engine_comp_place *p)
{
    const struct tsr_backend_compensate_v1 *t = p->table;
    return TSR_HAS(struct tsr_backend_compensate_v1, t, most_blocks) && t->most_blocks
               ? t->most_blocks(p->dev->self)
               : 0;
}

/* n codes of `bits` from bit `from` of a row on, to the start of one that is zero. */
static void copy_codes(unsigned char *to, const unsigned char *row, uint64_t from, uint64_t n,
                       uint32_t bits)
{
    if (from % 8 == 0) {
        memcpy(to, row + from / 8, (n * bits + 7) / 8);
        return;
    }
    for (uint64_t i = 0; i < n; i++) { /* less than a byte each */
        uint64_t at = from + i * bits, put = i * bits;
        unsigned code = row[at / 8] >> at % 8 & ((1u << bits) - 1);
        to[put / 8] = (unsigned char)(to[put / 8] | code << put % 8);
    }
}

/* Rows [at, at+n) of the codes' channels as separate residuals: in place if their bytes are aligned
 * as a kernel requires, else copied. */
static tsr_status part_of(struct tsr_engine_compensator *c, const struct tsr_compensate_residual *r,
                          const struct tsr_model_slice *s, struct tsr_residual_desc *d,
                          struct tsr_err *err)
{
    uint64_t bit = s->row * r->bits, bytes;
    d->inputs = s->cols;
    d->outputs = s->rows;
    d->codes = r->codes + s->col * r->stride + bit / 8;
    d->stride = r->stride;
    d->scales = r->scales ? r->scales + s->row : NULL;
    if (bit % 512 == 0)
        return TSR_OK;
    d->stride = tsr_compensate_residual_stride(r->bits, s->rows);
    if (c->n_copies == c->cap_copies) {
        uint64_t        more = c->cap_copies ? 2 * c->cap_copies : 64;
        unsigned char **v = tsr_renew(c->copies, more, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, more * sizeof *v, "a list of residuals");
        c->copies = v;
        c->cap_copies = more;
    }
    unsigned char *copy = tsr_mul(s->cols, d->stride, &bytes) ? tsr_new_aligned(bytes, 1) : NULL;
    if (!copy)
        return tsr_fail_nomem(err, s->cols * d->stride, "a part of residuals");
    c->copies[c->n_copies++] = copy;
    memset(copy, 0, bytes);
    for (uint64_t i = 0; i < s->cols; i++)
        copy_codes(copy + i * d->stride, r->codes + (s->col + i) * r->stride, bit, s->rows,
                   r->bits);
    d->codes = copy;
    return TSR_OK;
}

/* What a rank adds to the outputs of o or down, which all ranks have: a run of them, over the whole input.  Whole
 * vectors of 16, so that a row of 2 bits can be parted there. */
static struct tsr_model_slice share_of_outputs(const struct tsr_engine              *e,
                                               const struct tsr_compensate_residual *r)
{
    uint64_t n = (r->outputs + 15) / 16, rank = e->share.rank, ranks = e->share.ranks;
    uint64_t at = 16 * (n * rank / ranks), end = 16 * (n * (rank + 1) / ranks);
    end = end < r->outputs ? end : r->outputs;
    return (struct tsr_model_slice){ .row = at, .rows = end - at, .cols = r->inputs };
}

static tsr_status load_linear(struct tsr_engine *e, struct tsr_engine_compensator *c,
                              uint64_t layer, enum tsr_linear_id id, struct tsr_engine_comp_site *s,
                              uint32_t place, struct tsr_err *err)
{
    const struct tsr_compensate_residual *r = &c->use.from->lin[layer][id];
    const struct tsr_matrix              *w = &e->model->layers[layer].lin[id].w;
    struct tsr_residual_desc              d = { .struct_size = sizeof d,
                                                .bits = r->bits,
                                                .name = w->name,
                                                .inputs = r->inputs,
                                                .outputs = r->outputs,
                                                .stride = r->stride,
                                                .codes = r->codes,
                                                .scales = r->scales };
    uint64_t                              copied = c->n_copies;
    if (!r->codes)
        return TSR_OK;
    if (r->inputs != w->cols || r->outputs != w->rows)
        return tsr_fail(err, TSR_E_INVAL, "%s: residuals of %llux%llu, the model has %llux%llu",
                        w->name, (unsigned long long)r->outputs, (unsigned long long)r->inputs,
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    s->there = c->any = true;
    if (e->tp.ranks > 1) {
        bool                   whole = id >= TSR_MODEL_EXPERTS && e->share.whole_experts;
        struct tsr_model_slice part;
        if (tsr_engine_is_row_parallel(id) && !whole) {
            part = share_of_outputs(e, r);
            s->at = part.row;
            s->part = part.rows;
        } else
            TSR_TRY(
                tsr_engine_share_linear(&e->share, &e->model->hp, layer, id, w, NULL, &part, err));
        if (!part.rows)
            return TSR_OK;
        TSR_TRY(part_of(c, r, &part, &d, err));
    }
    const struct tsr_engine_comp_place *p =
        tsr_engine_comp_place(e, layer, tsr_model_linear_site(id));
    tsr_status st = p->table->residual_load(p->dev->self, &d, &s->residual[s->n], err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "%s", p->dev->text);
    if (p->table->copies && c->n_copies > copied) {
        free(c->copies[--c->n_copies]);
        c->copies[c->n_copies] = NULL;
    }
    s->which[s->n++] = place;
    c->done.linears++;
    c->done.host_bytes += d.inputs * tsr_compensate_residual_stride(d.bits, d.outputs) +
                          (d.scales ? d.outputs * sizeof *d.scales : 0);
    return TSR_OK;
}

tsr_status tsr_engine_compensate_fix(struct tsr_engine_compensator            *c,
                                     const struct tsr_compensate_site_profile *p,
                                     struct tsr_engine_comp_site *s, struct tsr_err *err)
{
    if (c->use.select != TSR_COMPENSATE_SELECT_STATIC_MEANSQ &&
        c->use.select != TSR_COMPENSATE_SELECT_STATIC_HESSIAN)
        return TSR_OK;
    free(s->fixed);
    uint32_t *scratch = tsr_new(s->channels, sizeof *scratch);
    s->fixed = tsr_new(1 + s->count, sizeof *s->fixed);
    if (!scratch || !s->fixed) {
        free(scratch);
        return tsr_fail_nomem(err, s->channels * 8, "a static selection");
    }
    tsr_compensate_select_top(c->use.select == TSR_COMPENSATE_SELECT_STATIC_MEANSQ ? p->meansq
                                                                                   : p->lost,
                              s->channels, s->count, s->fixed, scratch);
    free(scratch);
    return TSR_OK;
}

/* The pages that a device has copied are not held a second time. */
static void drop_pages(const struct tsr_engine_compensator *c, uint64_t layer,
                       const struct tsr_compensation_linears *of)
{
    for (uint32_t i = 0; i < of->n; i++) {
        const struct tsr_compensate_residual *r = &c->use.from->lin[layer][of->id[i]];
        if (r->codes)
            tsr_map_drop(r->codes, (r->inputs - 1) * r->stride +
                                       tsr_compensate_residual_stride(r->bits, r->outputs));
    }
}

static tsr_status load_site(struct tsr_engine *e, struct tsr_engine_compensator *c, uint64_t layer,
                            enum tsr_site site, struct tsr_err *err)
{
    const struct tsr_compensate_site_profile *p = &c->use.from->site[layer][site];
    struct tsr_engine_comp_site              *s = &c->site[layer][site];
    float                                     b0, b15;
    uint64_t                                  sites = e->model->hp.sites, dense = TSR_MODEL_SITES;
    struct tsr_compensation_linears           of = tsr_compensation_linears(e->model, layer, site);
    if (of.n == 0)
        return TSR_OK;
    s->k = c->use.k ? c->use.k[layer][tsr_compensation_kind(site)] : c->use.each;
    s->blocks = c->use.blocks ? c->use.blocks[layer][tsr_compensation_kind(site)] : 0;
    s->channels = p->cols;
    s->number = site < dense
                    ? dense * layer + site
                    : dense * e->model->hp.layers + (sites - dense) * layer + (site - dense);
    if (s->k > TSR_COMPENSATE_CHUNK)
        return tsr_fail(err, TSR_E_CONFIG, "layer %llu, %s: %u of 1024 channels",
                        (unsigned long long)layer, TSR_MODEL_SITE_NAME(site), s->k);
    if (p->top)
        TSR_TRY(tsr_compensate_profile_check(p, layer, TSR_MODEL_SITE_NAME(site), err));
    if (!p->top || !tsr_compensate_select_borders(p->top, p->cols, s->k, &b0, &b15)) {
        s->k = 0;
        return TSR_OK;
    }
    s->count = tsr_compensate_select_count(s->k, p->cols);
    tsr_compensate_select_floors(b0, b15, s->floors);
    TSR_TRY(tsr_engine_compensate_fix(c, p, s, err));
    for (uint32_t i = 0; i < of.n; i++)
        TSR_TRY(load_linear(e, c, layer, of.id[i], s, i, err));
    if (tsr_engine_comp_place(e, layer, site)->table->copies)
        drop_pages(c, layer, &of);
    TSR_TRY(tsr_engine_compensate_hold(e, layer, site, err));
    c->room = s->count > c->room ? s->count : c->room;
    c->widest = s->channels > c->widest ? s->channels : c->widest;
    return TSR_OK;
}

/* With room for n compensated tokens, in place of the old. */
static tsr_status place_room(struct tsr_engine *e, struct tsr_engine_comp_place *p, uint64_t n,
                             struct tsr_err *err)
{
    const struct tsr_engine_compensator *c = e->comp;
    if (!p->data)
        return TSR_OK;
    tsr_engine_device_drop_tensor(p->dev, &p->list);
    tsr_engine_device_drop_tensor(p->dev, &p->whole);
    tsr_engine_device_drop_tensor(p->data, &p->sum);
    TSR_TRY(tsr_engine_device_tensor(p->dev, TSR_U32, n, 1 + c->room, 0, "selected channels",
                                     &p->list, err));
    if (e->tp.ranks == 1)
        return TSR_OK;
    TSR_TRY(
        tsr_engine_device_tensor(p->dev, TSR_F32, n, c->widest, 0, "whole inputs", &p->whole, err));
    return tsr_engine_device_tensor(p->data, TSR_F32, n, e->model->hp.hidden, 0, "compensations",
                                    &p->sum, err);
}

tsr_status tsr_engine_compensate_room(struct tsr_engine *e, uint64_t n, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    uint64_t                       inputs = 0, lists = 0;
    free(c->x);
    free(c->lists);
    c->most = 0;
    c->x = tsr_mul(n, c->widest, &inputs) ? tsr_new_aligned(inputs, sizeof *c->x) : NULL;
    c->lists = tsr_mul(n, 1 + c->room, &lists) ? tsr_new_aligned(lists, sizeof *c->lists) : NULL;
    if (!c->x || !c->lists)
        return tsr_fail_nomem(err, inputs * sizeof *c->x, "compensated inputs");
    TSR_TRY(place_room(e, &c->own, n, err));
    TSR_TRY(place_room(e, &c->host, n, err));
    c->most = n;
    return TSR_OK;
}

static tsr_status expert_buffers(struct tsr_engine *e, struct tsr_engine_compensator *c,
                                 struct tsr_err *err)
{
    uint64_t pairs = e->chunk * e->model->hp.experts_used;
    c->taken = tsr_new(e->chunk, sizeof *c->taken);
    c->expert_at = tsr_new(pairs, sizeof *c->expert_at);
    c->expert_end = tsr_new(e->model->hp.experts, sizeof *c->expert_end);
    if (!c->taken || !c->expert_at || !c->expert_end)
        return tsr_fail_nomem(err, pairs * sizeof *c->expert_at, "compensated tokens");
    if (c->host.data)
        TSR_TRY(tsr_engine_device_tensor(c->host.dev, TSR_U32, 1, pairs, 0, "compensated tokens",
                                         &c->host.expert_rows, err));
    return tsr_engine_device_tensor(c->own.dev, TSR_U32, 1, pairs, 0, "compensated tokens",
                                    &c->own.expert_rows, err);
}

/* If only generated tokens are compensated, room for one per sequence; larger chunks grow the buffers when they
 * come. */
static tsr_status buffers(struct tsr_engine *e, struct tsr_engine_compensator *c,
                          struct tsr_err *err)
{
    uint64_t n = c->use.all || e->chunk < e->n_slots ? e->chunk : e->n_slots;
    c->at = tsr_new(e->chunk, sizeof *c->at);
    c->exact = tsr_new(1 + c->room, sizeof *c->exact);
    c->scratch = tsr_new(c->widest, sizeof *c->scratch);
    if (!c->at || !c->exact || !c->scratch)
        return tsr_fail_nomem(err, e->chunk * sizeof *c->at, "compensated tokens");
    TSR_TRY(tsr_engine_device_tensor(c->own.dev, TSR_U32, 1, e->chunk, 0, "compensated tokens",
                                     &c->own.rows, err));
    if (e->model->hp.experts)
        TSR_TRY(expert_buffers(e, c, err));
    return tsr_engine_compensate_room(e, n, err);
}

static tsr_status load(struct tsr_engine *e, struct tsr_engine_compensator *c, struct tsr_err *err)
{
    const struct tsr_compensation *from = c->use.from;
    if (from->layers != e->model->hp.layers || from->linears != e->model->hp.linears ||
        from->sites != e->model->hp.sites)
        return tsr_fail(err, TSR_E_INVAL, "residuals of %llu layers, the model has %llu",
                        (unsigned long long)from->layers, (unsigned long long)e->model->hp.layers);
    c->site = tsr_new_rows(from->layers, e->model->hp.sites, sizeof **c->site);
    if (!c->site)
        return tsr_fail_nomem(err, from->layers * e->model->hp.sites * sizeof **c->site,
                              "residuals");
    TSR_TRY(choose_device(e->dev, &c->own, err));
    c->done.over_bus = c->own.dev == c->own.data && c->own.table->copies;
    c->done.most_blocks = most_blocks(&c->own);
    if (e->host)
        TSR_TRY(choose_device(e->host, &c->host, err));
    for (uint64_t l = e->first; l < e->end; l++)
        for (uint64_t s = 0; s < e->model->hp.sites; s++)
            TSR_TRY(load_site(e, c, l, (enum tsr_site)s, err));
    if (!c->any) {
        tsr_logf(TSR_LOG_WARN,
                 "%s: no channel is compensated: k of 1024 is below one channel of its widths",
                 e->model->path);
        return TSR_OK;
    }
    return buffers(e, c, err);
}

tsr_status tsr_engine_compensate_create(struct tsr_engine                  *e,
                                        const struct tsr_engine_compensate *use,
                                        struct tsr_err                     *err)
{
    struct tsr_engine_compensator *c = e->comp = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "compensation");
    c->use = *use;
    tsr_status st = load(e, c, err);
    c->use.k = c->use.blocks = NULL; /* the caller's, for create() alone */
    return st;
}

void tsr_engine_compensate_destroy(struct tsr_engine *e)
{
    struct tsr_engine_compensator *c = e->comp;
    if (!c)
        return;
    for (uint64_t l = e->first; c->site && l < e->end; l++)
        for (uint64_t i = 0; i < e->model->hp.sites; i++) {
            struct tsr_engine_comp_site        *s = &c->site[l][i];
            const struct tsr_engine_comp_place *p = tsr_engine_comp_place(e, l, (enum tsr_site)i);
            for (uint64_t j = 0; j < s->n; j++)
                p->table->residual_free(p->dev->self, s->residual[j]);
            tsr_engine_device_drop_tensor(p->dev, &s->held);
            free(s->fixed);
        }
    for (uint64_t i = 0; i < c->n_copies; i++)
        free(c->copies[i]);
    free(c->copies);
    free(c->site);
    free(c->at);
    free(c->taken);
    free(c->expert_at);
    free(c->expert_end);
    free(c->x);
    free(c->lists);
    free(c->exact);
    free(c->scratch);
    free(c);
    e->comp = NULL;
}

void tsr_engine_compensation(const struct tsr_engine *e, struct tsr_engine_compensated *c)
{
    *c = e->comp ? e->comp->done : (struct tsr_engine_compensated){ 0 };
    if (!e->behind)
        return;
    struct tsr_engine_compensated more;
    tsr_engine_compensation(e->behind, &more);
    c->host_bytes += more.host_bytes;
    c->linears += more.linears;
    c->tokens = more.tokens > c->tokens ? more.tokens : c->tokens; /* the same ones */
    c->selected += more.selected;
    c->exact += more.exact;
    c->common += more.common;
}
