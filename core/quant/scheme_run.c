/* Applies a scheme: quantizes a layer site by site, so that linears with one input share one prepare(). */
#include "quant/block.h"
#include "quant/held.h"
#include "quant/isolate.h"
#include "quant/scheme_run_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

struct item;

/* One layer while it is quantized. */
struct layer_work {
    struct tsr_scheme_run              *a;
    uint64_t                            layer;
    const struct tsr_quant_layer_stats *stats; /* or NULL */
    struct tsr_model_overlay           *o;
    /* [linears] each */
    const struct tsr_matrix      **w;     /* the packed matrix; rows 0: absent */
    const struct tsr_model_slice **part;  /* of the model's, or NULL: all */
    uint8_t                       *bound; /* 1: what cannot stay as it was */
    struct item                   *items; /* room for a site's */
    const struct tsr_quantizer   **q;     /* room for a layer's */
};

static tsr_status plan_need(const struct tsr_quant_scheme_instance *in, const struct tsr_matrix *w,
                            uint64_t *need, struct tsr_err *err)
{
    struct tsr_quant_plan p;
    tsr_status            st = tsr_quantizer_plan(&in->q, w, &p, err);
    *need = p.need;
    return st;
}

/* A linear of a site together with who quantizes it. */
struct item {
    enum tsr_linear_id                id;
    bool                              quantize;
    struct tsr_quant_scheme_instance *instance;
    uint64_t                          need;
};

static void work_free(struct layer_work *k)
{
    free(k->w);
    free(k->part);
    free(k->bound);
    free(k->items);
    free(k->q);
}

static tsr_status work_new(struct layer_work *k, struct tsr_err *err)
{
    uint64_t n = k->a->m->hp.linears;
    k->w = tsr_new(n, sizeof *k->w);
    k->part = tsr_new(n, sizeof *k->part);
    k->bound = tsr_new(n, sizeof *k->bound);
    k->items = tsr_new(n, sizeof *k->items);
    k->q = tsr_new(n, sizeof *k->q);
    if (k->w && k->part && k->bound && k->items && k->q)
        return TSR_OK;
    work_free(k);
    return tsr_fail_nomem(err, n * sizeof *k->items, "the linears of a layer");
}

/* TSR_E_UNSUPPORTED keeps the original if the scheme allows it. */
static tsr_status or_keep(const struct tsr_scheme_run *a, tsr_status st, const char *name,
                          struct tsr_err *err)
{
    if (st != TSR_E_UNSUPPORTED || a->s->keys.on_unsupported != UNSUPPORTED_KEEP)
        return st;
    tsr_logf(TSR_LOG_WARN, "%s keeps its original weights: %s", name,
             err && err->cap ? err->text : "not supported");
    return TSR_OK;
}

/* One linear, or a part of it. */
static tsr_status quantize_one(struct layer_work *k, const struct tsr_quantizer *q,
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
static void say_remarks(struct tsr_scheme_run *a)
{
    (void)pthread_mutex_lock(&a->lock);
    tsr_quant_remarks_say(&a->remarks);
    (void)pthread_mutex_unlock(&a->lock);
}

/* One linear is done, or is not quantized. */
static tsr_status count_one(struct layer_work *k, enum tsr_linear_id id, tsr_status st,
                            double seconds, struct tsr_err *err)
{
    struct tsr_scheme_run   *a = k->a;
    struct tsr_model_packed *p = k->o->lin[k->layer][id];
    if (st == TSR_OK) {
        p->report.seconds = seconds;
        p->source_dtype = a->m->layers[k->layer].lin[id].w.dtype;
    } else if (!k->bound[id]) {
        st = or_keep(a, st, k->w[id]->name, err);
    }
    (void)pthread_mutex_lock(&a->lock);
    uint64_t done = ++a->done;
    (void)pthread_mutex_unlock(&a->lock);
    tsr_progress("quantize", done, a->total);
    return st;
}

/* The linears of a site that one isolated instance packs. */
static tsr_status quantize_isolated(struct layer_work *k, struct item *items, int n, int first,
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
    say_remarks(k->a);
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
static tsr_status quantize_shared(struct layer_work *k, struct item *items, int n, int first,
                                  struct tsr_err *err)
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
    say_remarks(a);
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

/* The quantizer and the purpose for a linear; *it is unchanged if there is none. */
static tsr_status choose(struct tsr_scheme_run *a, uint64_t layer, enum tsr_linear_id id,
                         const struct tsr_matrix *w, struct item *it, struct tsr_err *err)
{
    struct item new = { .id = id };
    TSR_TRY(tsr_quant_scheme_instance(a, layer, w->name, &new.instance, err));
    if (!new.instance)
        return TSR_OK;
    tsr_status st = plan_need(new.instance, w, &new.need, err);
    new.quantize = st == TSR_OK;
    *it = new;
    st = or_keep(a, st, w->name, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", new.instance->q.name);
    return TSR_OK;
}

static tsr_status quantize_site(struct layer_work *k, enum tsr_site site, struct tsr_err *err)
{
    struct item *items = k->items;
    int          n = 0;
    for (uint64_t i = 0; i < k->a->m->hp.linears; i++) {
        if (tsr_model_linear_site((enum tsr_linear_id)i) != site || k->w[i]->rows == 0)
            continue;
        /* a part is planned as the whole */
        const struct tsr_matrix *w = k->part[i] ? &k->a->m->layers[k->layer].lin[i].w : k->w[i];
        items[n] = (struct item){ 0 };
        TSR_TRY(choose(k->a, k->layer, (enum tsr_linear_id)i, w, &items[n], err));
        n += items[n].quantize;
    }
    for (int i = 0; i < n; i++)
        if (items[i].quantize)
            TSR_TRY(quantize_shared(k, items, n, i, err));
    return TSR_OK;
}

/* A search over a layer's scales knows the linears of a dense layer with heads of its own. */
static tsr_status check_search(const struct tsr_scheme_run *a, uint64_t layer,
                               const struct tsr_quantizer *const *q, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &a->m->hp;
    const char                     *other = hp->latent.rank ? "layers with latent attention"
                                            : hp->recurrent ? "layers with the gated delta rule"
                                            : hp->attn_gate ? "layers with gates of attention"
                                                            : NULL;
    for (uint64_t i = other ? 0 : TSR_MODEL_LINEARS; i < hp->linears; i++)
        if (q[i] && tsr_quant_block_searches(q[i]))
            return tsr_fail(err, TSR_E_CONFIG,
                            "quantizer '%s' searches scales of whole layers, which %s do not "
                            "have; give '%s' a quantizer without a search",
                            q[i]->name, i < TSR_MODEL_EXPERTS && other ? other : "experts",
                            a->m->layers[layer].lin[i].w.name);
    return TSR_OK;
}

/* The quantizer of each linear of a layer (NULL: none), and the statistics that they need in total; q [linears]. */
static tsr_status quantizers_of(struct tsr_scheme_run *a, uint64_t layer,
                                const struct tsr_quantizer **q, uint64_t *need, bool *search,
                                struct tsr_err *err)
{
    *need = 0;
    for (uint64_t i = 0; i < a->m->hp.linears; i++) {
        const struct tsr_matrix *w = &a->m->layers[layer].lin[i].w;
        struct item              it = { 0 };
        if (w->rows)
            TSR_TRY(choose(a, layer, (enum tsr_linear_id)i, w, &it, err));
        q[i] = it.quantize ? &it.instance->q : NULL;
        *need |= it.quantize ? it.need : 0;
    }
    *need = tsr_quant_need_collect(*need) | tsr_quant_block_need(q, search);
    return check_search(a, layer, q, err);
}

/* Lets block searches choose scales and clips: the folded norms go into the overlay, the folded
 * weights and statistics take the place of the originals. */
static tsr_status fold_layer(struct layer_work *k, struct tsr_quant_calibration *c,
                             struct tsr_quant_block_fold *f, struct tsr_quant_layer_stats *folded,
                             struct tsr_err *err)
{
    uint64_t                   need;
    bool                       search;
    struct tsr_quant_block_job job = { .registry = k->a->registry,
                                       .model = k->a->m,
                                       .layer = k->layer,
                                       .stats = k->stats ? k->stats->site : NULL,
                                       .sequence = k->stats ? k->stats->sequence : 0 };
    TSR_TRY(quantizers_of(k->a, k->layer, k->q, &need, &search, err));
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        job.q[i] = k->q[i];
    if (!search)
        return TSR_OK;
    if (c && need & TSR_NEED_INPUTS)
        TSR_TRY(tsr_quant_calibration_stream(c, k->layer, &job.stream, err));
    TSR_TRY(tsr_quant_block_search(&job, f, err));
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++) {
        k->o->norm[k->layer][i] = f->norm[i];
        f->norm[i] = (struct tsr_model_norm){ 0 };
    }
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        if (f->lin[i].data) {
            k->w[i] = &f->lin[i];
            k->bound[i] = 1; /* a folded norm fits no original */
        }
    if (!k->stats)
        return TSR_OK;
    TSR_TRY(tsr_quant_layer_stats_new(folded, k->stats->sites, k->stats->sequence, err));
    for (uint64_t i = 0; i < folded->sites; i++) {
        if (i >= TSR_MODEL_SITES) /* not searched: borrowed */
            folded->site[i] = k->stats->site[i];
        else
            TSR_TRY(tsr_quant_block_stats(f, (enum tsr_site)i, &k->stats->site[i], &folded->site[i],
                                          err));
    }
    k->stats = folded;
    return TSR_OK;
}

/* The statistics that a search made; the others are not its own. */
static void folded_free(const struct tsr_quant_block_fold *fold, struct tsr_quant_layer_stats *s)
{
    for (uint64_t i = 0; i < s->sites; i++) {
        if (i < TSR_MODEL_SITES && fold->scale[i])
            tsr_quant_block_stats_free(&s->site[i]);
        s->site[i] = (struct tsr_quant_stats){ 0 };
    }
    tsr_quant_layer_stats_free(s);
}

tsr_status tsr_quant_scheme_layer(struct tsr_scheme_run *a, uint64_t layer,
                                  struct tsr_quant_calibration       *c,
                                  const struct tsr_quant_layer_stats *stats,
                                  struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct layer_work            k = { .a = a, .layer = layer, .stats = stats, .o = o };
    struct tsr_quant_block_fold  fold = { 0 };
    struct tsr_quant_layer_stats folded = { 0 };
    TSR_TRY(work_new(&k, err));
    tsr_status st = tsr_model_open_layer(a->m, layer, err);
    if (st != TSR_OK) {
        work_free(&k);
        return st;
    }
    for (uint64_t i = 0; i < a->m->hp.linears; i++)
        k.w[i] = &a->m->layers[layer].lin[i].w;
    st = fold_layer(&k, c, &fold, &folded, err);
    for (uint64_t site = 0; site < a->m->hp.sites && st == TSR_OK; site++)
        st = quantize_site(&k, (enum tsr_site)site, err);
    folded_free(&fold, &folded);
    for (int i = 0; i < TSR_MODEL_SITES && st == TSR_OK; i++) {
        o->scale[layer][i] = fold.scale[i];
        fold.scale[i] = NULL;
    }
    tsr_quant_block_fold_free(&fold);
    tsr_model_close_layer(a->m, layer);
    work_free(&k);
    return st;
}

static tsr_status quantize_listed(struct layer_work *k, const struct tsr_model_piece_linear *list,
                                  uint64_t n, struct tsr_err *err)
{
    static const struct tsr_matrix absent = { 0 };
    const struct tsr_model_layer  *l = &k->a->m->layers[k->layer];
    uint64_t                       need;
    bool                           search;
    TSR_TRY(quantizers_of(k->a, k->layer, k->q, &need, &search, err));
    if (search)
        return tsr_fail(err, TSR_E_INPUT,
                        "layer %llu: its quantizer searches scales of whole layers, which are not "
                        "in memory together; put the step quantize before",
                        (unsigned long long)k->layer);
    for (uint64_t i = 0; i < k->a->m->hp.linears; i++)
        k->w[i] = &absent;
    for (uint64_t i = 0; i < n; i++) {
        const struct tsr_matrix *w = &list[i].w;
        k->w[list[i].id] = w;
        k->part[list[i].id] = &list[i].part;
        /* the other ranks' parts are packed */
        k->bound[list[i].id] =
            w->rows < l->lin[list[i].id].w.rows || w->cols < l->lin[list[i].id].w.cols;
    }
    for (uint64_t i = 0; i < n; i++) {
        enum tsr_site site = tsr_model_linear_site(list[i].id);
        bool          done = false;
        for (uint64_t j = 0; j < i; j++)
            done = done || tsr_model_linear_site(list[j].id) == site;
        if (!done)
            TSR_TRY(quantize_site(k, site, err));
    }
    return TSR_OK;
}

tsr_status tsr_quant_scheme_linears(struct tsr_scheme_run *a, uint64_t layer,
                                    const struct tsr_model_piece_linear *list, uint64_t n,
                                    struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct layer_work k = { .a = a, .layer = layer, .o = o };
    TSR_TRY(work_new(&k, err));
    tsr_status st = quantize_listed(&k, list, n, err);
    work_free(&k);
    return st;
}

tsr_status tsr_quant_scheme_need(struct tsr_scheme_run *a, uint64_t layer, uint64_t *need,
                                 struct tsr_err *err)
{
    const struct tsr_quantizer **q = tsr_new(a->m->hp.linears, sizeof *q);
    bool                         search;
    if (!q)
        return tsr_fail_nomem(err, a->m->hp.linears * sizeof *q, "the linears of a layer");
    tsr_status st = quantizers_of(a, layer, q, need, &search, err);
    free(q);
    return st;
}

/* One of the two, if a rule names it. */
static tsr_status take_end(struct tsr_scheme_run *a, const struct tsr_matrix *w, const char *name,
                           struct tsr_model_packed **out, struct tsr_err *err)
{
    struct tsr_quant_scheme_instance *in = NULL;
    double                            start = tsr_now_s();
    TSR_TRY(tsr_quant_scheme_instance(a, a->m->hp.layers, name, &in, err));
    if (!in)
        return TSR_OK;
    say_remarks(a);
    tsr_status st = tsr_quantize_matrix(a->registry, &in->q, w, NULL, out, err);
    if (st == TSR_OK)
        (*out)->report.seconds = tsr_now_s() - start;
    return or_keep(a, st, name, err);
}

tsr_status tsr_quant_scheme_ends(struct tsr_scheme_run *a, struct tsr_model_overlay *o,
                                 struct tsr_err *err)
{
    TSR_TRY(take_end(a, &a->m->head.w, TSR_QUANT_HEAD_NAME, &o->head, err));
    TSR_TRY(take_end(a, &a->m->embed, a->m->embed.name, &o->embed, err));
    if (o->embed && !o->head && a->m->hp.tied) { /* the head was requested, and kept */
        tsr_model_packed_destroy(o->embed);
        o->embed = NULL;
    }
    return TSR_OK;
}

tsr_status tsr_quant_scheme_plan(struct tsr_scheme_run *a, uint64_t layer, enum tsr_linear_id id,
                                 const struct tsr_quantizer **q, struct tsr_quant_plan *plan,
                                 struct tsr_err *err)
{
    bool                              end = layer == a->m->hp.layers;
    struct tsr_matrix                 w = !end ? a->m->layers[layer].lin[id].w
                                          : (int)id == TSR_QUANT_END_EMBED ? a->m->embed
                                                                           : a->m->head.w;
    struct tsr_quant_scheme_instance *in = NULL;
    *q = NULL;
    if (w.rows)
        TSR_TRY(tsr_quant_scheme_instance(a, layer,
                                          end && (int)id == TSR_QUANT_END_HEAD ? TSR_QUANT_HEAD_NAME
                                                                               : w.name,
                                          &in, err));
    if (!in)
        return TSR_OK;
    tsr_status st = tsr_quantizer_plan(&in->q, &w, plan, err);
    if (st == TSR_OK)
        *q = &in->q;
    return or_keep(a, st, w.name, err);
}
