/* The linears of a site: those of one quantizer share one prepare(), in this process or an isolated one. */
#include "quant/held.h"
#include "quant/isolate.h"
#include "quant/scheme_run_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

void tsr_quant_layer_work_free(struct tsr_quant_layer_work *k)
{
    free(k->w);
    free(k->part);
    free(k->bound);
    free(k->items);
    free(k->q);
}

tsr_status tsr_quant_layer_work_new(struct tsr_quant_layer_work *k, struct tsr_err *err)
{
    uint64_t n = k->a->m->hp.linears;
    k->w = tsr_new(n, sizeof *k->w);
    k->part = tsr_new(n, sizeof *k->part);
    k->bound = tsr_new(n, sizeof *k->bound);
    k->items = tsr_new(n, sizeof *k->items);
    k->q = tsr_new(n, sizeof *k->q);
    if (k->w && k->part && k->bound && k->items && k->q)
        return TSR_OK;
    tsr_quant_layer_work_free(k);
    return tsr_fail_nomem(err, n * sizeof *k->items, "the linears of a layer");
}

/* TSR_E_UNSUPPORTED keeps the original if the scheme allows it. */
tsr_status tsr_quant_scheme_or_keep(const struct tsr_scheme_run *a, tsr_status st, const char *name,
                                    struct tsr_err *err)
{
    if (st != TSR_E_UNSUPPORTED || a->s->keys.on_unsupported != UNSUPPORTED_KEEP)
        return st;
    tsr_logf(TSR_LOG_WARN, "%s keeps its original weights: %s", name,
             err && err->cap ? err->text : "not supported");
    return TSR_OK;
}

/* One linear, or a part of it. */
static tsr_status quantize_one(struct tsr_quant_layer_work *k, const struct tsr_quantizer *q,
                               enum tsr_linear_id id, const struct tsr_quant_stats *seen,
                               const void *prepared, struct tsr_model_packed **p,
                               struct tsr_err *err)
{
    const struct tsr_matrix *all = &k->a->m->layers[k->layer].lin[id].w, *w = k->w[id];
    if (w->rows < all->rows || w->cols < all->cols)
        return tsr_quantize_part(k->a->registry, q, all, k->part[id], w, p, err);
    return tsr_quantize_prepared(k->a->registry, q, w, seen, prepared, p, err);
}

/* Something is packed now. */
void tsr_quant_scheme_say_remarks(struct tsr_scheme_run *a)
{
    (void)pthread_mutex_lock(&a->lock);
    tsr_quant_remarks_say(&a->remarks);
    (void)pthread_mutex_unlock(&a->lock);
}

void tsr_quant_scheme_count(struct tsr_scheme_run *a)
{
    (void)pthread_mutex_lock(&a->lock);
    uint64_t done = ++a->done;
    (void)pthread_mutex_unlock(&a->lock);
    tsr_progress("quantize", done, a->total);
}

/* One linear is done, or is not quantized. */
static tsr_status count_one(struct tsr_quant_layer_work *k, enum tsr_linear_id id, tsr_status st,
                            double seconds, struct tsr_err *err)
{
    struct tsr_scheme_run   *a = k->a;
    struct tsr_model_packed *p = k->o->lin[k->layer][id];
    if (st == TSR_OK) {
        p->report.seconds = seconds;
        p->source_dtype = a->m->layers[k->layer].lin[id].w.dtype;
    } else if (!k->bound[id]) {
        st = tsr_quant_scheme_or_keep(a, st, k->w[id]->name, err);
    }
    tsr_quant_scheme_count(a);
    return st;
}

/* The linears of a site that one isolated instance packs. */
static tsr_status quantize_isolated(struct tsr_quant_layer_work *k,
                                    struct tsr_quant_site_item *items, int n, int first,
                                    const struct tsr_quant_stats *seen, struct tsr_err *err)
{
    struct tsr_quant_scheme_instance *in = items[first].instance;
    struct tsr_quant_pack_item       *v = tsr_new((uint64_t)n, sizeof *v);
    enum tsr_linear_id               *ids = tsr_new((uint64_t)n, sizeof *ids);
    uint64_t                          count = 0;
    double                            start = tsr_now_s(), spent = 0;
    if (!v || !ids) {
        free(v);
        free(ids);
        return tsr_fail_nomem(err, (uint64_t)n * sizeof *v, "the linears of a layer");
    }
    for (int i = first; i < n; i++) {
        if (!items[i].quantize || items[i].instance != in)
            continue;
        const struct tsr_matrix *all = &k->a->m->layers[k->layer].lin[items[i].id].w;
        const struct tsr_matrix *w = k->w[items[i].id];
        bool                     part = w->rows < all->rows || w->cols < all->cols;
        ids[count] = items[i].id;
        v[count++] = (struct tsr_quant_pack_item){ .whole = part ? all : w,
                                                   .w = w,
                                                   .part = part ? k->part[items[i].id] : NULL };
        items[i].quantize = false;
    }
    tsr_quant_scheme_say_remarks(k->a);
    tsr_status st = tsr_quant_isolated_pack(k->a->registry, &in->q, seen, v, count, err);
    for (uint64_t i = 0; i < count; i++)
        spent += v[i].seconds;
    double shared = st == TSR_OK ? (tsr_now_s() - start - spent) / (double)count : 0;
    for (uint64_t i = 0; i < count; i++) {
        k->o->lin[k->layer][ids[i]] = v[i].packed;
        if (st != TSR_OK)
            continue;
        st = v[i].status == TSR_OK ? TSR_OK : tsr_err_copy(err, v[i].status, &v[i].why.err);
        st = count_one(k, ids[i], st, v[i].seconds + shared, err);
    }
    free(v);
    free(ids);
    return st;
}

/* The linears of a site that one instance packs, from `first` on. */
static tsr_status quantize_shared(struct tsr_quant_layer_work *k, struct tsr_quant_site_item *items,
                                  int n, int first, struct tsr_err *err)
{
    struct tsr_scheme_run            *a = k->a;
    struct tsr_quant_scheme_instance *in = items[first].instance;
    const struct tsr_quant_stats     *all =
        k->stats ? &k->stats->site[tsr_model_linear_site(items[first].id)] : NULL;
    const struct tsr_matrix *w = k->w[items[first].id];
    uint64_t                 need = 0, share = 0;
    for (int i = first; i < n; i++)
        if (items[i].quantize && items[i].instance == in) {
            need |= items[i].need;
            share++;
        }
    TSR_TRY(tsr_quant_need_check(need, all, w->cols, in->q.name, w->name, err));
    struct tsr_quant_stats seen = tsr_quant_stats_for(need, all);
    if (in->q.isolated)
        return quantize_isolated(k, items, n, first, need ? &seen : NULL, err);
    void                 *prepared = NULL;
    tsr_status            st = TSR_OK;
    struct tsr_quant_held held = { 0 };
    double                start = tsr_now_s(), shared;
    tsr_quant_scheme_say_remarks(a);
    TSR_TRY(tsr_quant_held_begin(&held, tsr_plugin_registry_host(a->registry), seen.hessian,
                                 w->cols, w->cols, err));
    if (need && in->q.iface->prepare)
        st = in->q.iface->prepare(in->q.self, &seen, &prepared, err);
    if (st == TSR_E_NUMERIC) /* statistics that cannot work */
        st = TSR_E_INPUT;
    if (st != TSR_OK) {
        (void)tsr_quant_held_end(&held, false, NULL);
        return tsr_err_prefix(err, st, "quantizer '%s', inputs of '%s'", in->q.name, w->name);
    }
    shared = (tsr_now_s() - start) / (double)share;
    for (int i = first; i < n && st == TSR_OK; i++) {
        if (!items[i].quantize || items[i].instance != in)
            continue;
        struct tsr_model_packed **p = &k->o->lin[k->layer][items[i].id];
        start = tsr_now_s();
        st = quantize_one(k, &in->q, items[i].id, items[i].need ? &seen : NULL, prepared, p, err);
        st = count_one(k, items[i].id, st, tsr_now_s() - start + shared, err);
        if (i != first)
            items[i].quantize = false;
    }
    items[first].quantize = false;
    if (prepared && in->q.iface->unprepare)
        in->q.iface->unprepare(in->q.self, prepared);
    (void)tsr_quant_held_end(&held, false, NULL);
    return st;
}

static tsr_status plan_need(const struct tsr_quant_scheme_instance *in, const struct tsr_matrix *w,
                            uint64_t *need, struct tsr_err *err)
{
    struct tsr_quant_plan p;
    tsr_status            st = tsr_quantizer_plan(&in->q, w, &p, err);
    *need = p.need;
    return st;
}

/* The quantizer and the purpose for a linear; *it is unchanged if there is none. */
tsr_status tsr_quant_scheme_choose(struct tsr_scheme_run *a, uint64_t layer, enum tsr_linear_id id,
                                   const struct tsr_matrix *w, struct tsr_quant_site_item *it,
                                   struct tsr_err *err)
{
    struct tsr_quant_site_item new = { .id = id };
    TSR_TRY(tsr_quant_scheme_instance(a, layer, w->name, &new.instance, err));
    if (!new.instance)
        return TSR_OK;
    tsr_status st = plan_need(new.instance, w, &new.need, err);
    new.quantize = st == TSR_OK;
    *it = new;
    st = tsr_quant_scheme_or_keep(a, st, w->name, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", new.instance->q.name);
    return TSR_OK;
}

tsr_status tsr_quant_scheme_site(struct tsr_quant_layer_work *k, enum tsr_site site,
                                 struct tsr_err *err)
{
    struct tsr_quant_site_item *items = k->items;
    int                         n = 0;
    for (uint64_t i = 0; i < k->a->m->hp.linears; i++) {
        if (tsr_model_linear_site((enum tsr_linear_id)i) != site || k->w[i]->rows == 0 ||
            k->o->lin[k->layer][i]) /* packed with its block, or folded */
            continue;
        /* a part is planned as the whole */
        const struct tsr_matrix *w = k->part[i] ? &k->a->m->layers[k->layer].lin[i].w : k->w[i];
        items[n] = (struct tsr_quant_site_item){ 0 };
        TSR_TRY(tsr_quant_scheme_choose(k->a, k->layer, (enum tsr_linear_id)i, w, &items[n], err));
        n += items[n].quantize;
    }
    for (int i = 0; i < n; i++)
        if (items[i].quantize)
            TSR_TRY(quantize_shared(k, items, n, i, err));
    return TSR_OK;
}
