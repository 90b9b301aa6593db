/* A scheme at work: finds the rules of every linear, makes one plugin instance for each distinct
 * choice, and quantizes a layer site by site so that linears with one input share one prepare(). */
#include "quant/scheme_run.h"
#include "quant/block.h"
#include "quant/held.h"
#include "quant/isolate.h"
#include "quant/remarks.h"
#include "scheme_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_NAME "lm_head"

/* A plugin with one set of options, alive while the scheme runs. */
struct instance {
    bool                *flags; /* [n_rules] that lead here; owned */
    struct choice        choice;
    struct tsr_quantizer q;
};

struct tsr_scheme_run {
    const struct tsr_scheme *s;
    struct tsr_registry     *registry;
    const struct tsr_model  *m;
    bool                   **layers; /* [n_rules] -> [layers], or NULL: all */
    uint64_t                 total;
    pthread_mutex_t          lock; /* guards the rest */
    struct instance        **instances;
    uint64_t                 n_instances, cap;
    uint64_t                *matches; /* [n_rules] */
    bool                    *flags;   /* [n_rules] scratch */
    struct tsr_remarks       remarks;
    uint64_t                 done;
};

/* One layer while it is quantized. */
struct layer_work {
    struct tsr_scheme_run        *a;
    uint64_t                      layer;
    const struct tsr_layer_stats *stats; /* or NULL */
    struct tsr_overlay           *o;
    const struct tsr_matrix      *w[TSR_LINEARS]; /* what is packed; rows 0: absent */
    const struct tsr_slice       *part;           /* [TSR_LINEARS]: of the model's, or NULL: all */
    uint32_t                      bound;          /* 1 << id: what cannot stay as it was */
};

/* A sentence with the place of a rule. */
static tsr_status rule_error(const struct rule *r, struct tsr_err *err, const char *fmt,
                             const char *text)
{
    struct tsr_diag *d;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_diag_error(d, &r->node->mark, NULL, fmt, text);
    tsr_status st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    return st;
}

static tsr_status read_layers(struct tsr_scheme_run *a, struct tsr_err *err)
{
    uint64_t n = a->s->n_rules, layers = a->m->hp.layers;
    a->layers = tsr_new(n, sizeof *a->layers);
    a->matches = tsr_new(n, sizeof *a->matches);
    a->flags = tsr_new(n, sizeof *a->flags);
    if (!a->layers || !a->matches || !a->flags)
        return tsr_fail_nomem(err, n * 24, "the rules of a scheme");
    for (uint64_t i = 0; i < n; i++) {
        const struct rule *r = &a->s->rules[i];
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        if (r->model_layers && (uint64_t)r->model_layers != layers) {
            char text[320];
            (void)snprintf(text, sizeof text, "%lld layers, %.200s has %llu",
                           (long long)r->model_layers, a->m->path, (unsigned long long)layers);
            return rule_error(r, err,
                              "the rule was written for a model of %s; give this one its own",
                              text);
        }
        if (!r->layers[0])
            continue;
        a->layers[i] = tsr_new(layers, sizeof **a->layers);
        if (!a->layers[i])
            return tsr_fail_nomem(err, layers, "the rules of a scheme");
        tsr_status st = tsr_parse_ranges(r->layers, layers, a->layers[i], &e.err);
        if (st == TSR_E_INPUT)
            return rule_error(r, err, "layers: %s", e.text);
        if (st != TSR_OK)
            return tsr_fail(err, st, "%s", e.text);
    }
    return TSR_OK;
}

/* Flags the rules that hold for a linear; layer is the model's number of layers for the head and the
 * embedding, which are packed only where a rule has their very name.
 * Returns false if the linear stays as it is. */
static bool rules_of(struct tsr_scheme_run *a, uint64_t layer, const char *name)
{
    bool end = layer == a->m->hp.layers, quantize = !end;
    for (uint64_t i = 0; i < a->s->n_rules; i++) {
        const struct rule *r = &a->s->rules[i];
        bool               hit = !r->tensors[0] || tsr_name_matches(r->tensors, name);
        if (a->layers[i])
            hit = hit && !end && a->layers[i][layer];
        a->flags[i] = hit;
        if (!hit)
            continue;
        bool named = !end || strcmp(r->tensors, name) == 0;
        a->matches[i] += named || r->keep;
        if (r->keep)
            quantize = false;
        else if (named)
            quantize = true; /* a later rule takes an earlier keep back */
    }
    return quantize;
}

/* Room for one more, which is then there with its flags. */
static tsr_status add_instance(struct tsr_scheme_run *a, struct instance **out, struct tsr_err *err)
{
    uint64_t n = a->s->n_rules;
    if (a->n_instances == a->cap) {
        uint64_t          cap = a->cap ? 2 * a->cap : 8;
        struct instance **v = tsr_renew(a->instances, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "quantizers");
        a->instances = v;
        a->cap = cap;
    }
    struct instance *in = tsr_new(1, sizeof *in);
    bool            *flags = tsr_new(n, sizeof *flags);
    if (!in || !flags) {
        free(in);
        free(flags);
        return tsr_fail_nomem(err, n + sizeof *in, "quantizers");
    }
    memcpy(flags, a->flags, n * sizeof *flags);
    in->flags = flags;
    a->instances[a->n_instances++] = in; /* from here on freed with the rest */
    *out = in;
    return TSR_OK;
}

/* The lock is held, or nobody else is there. */
static tsr_status find_instance(struct tsr_scheme_run *a, struct instance **found,
                                struct tsr_err *err)
{
    for (uint64_t i = 0; i < a->n_instances; i++) {
        *found = a->instances[i];
        if (memcmp((*found)->flags, a->flags, a->s->n_rules * sizeof *a->flags) == 0)
            return TSR_OK;
    }
    struct instance *in = NULL;
    TSR_TRY(add_instance(a, &in, err));
    *found = in;
    struct tsr_diag *d;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = scheme_choose(a->s, in->flags, &in->choice, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    if (st != TSR_OK)
        return st;
    struct tsr_quantizer q;
    st = tsr_remarks_open(&a->remarks, &q, a->registry, &in->choice.found,
                          tsr_registry_host(a->registry), in->choice.options, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", in->choice.found.component->name);
    in->q = q;
    return TSR_OK;
}

static tsr_status plan_need(const struct instance *in, const struct tsr_matrix *w, uint64_t *need,
                            struct tsr_err *err)
{
    struct tsr_quant_plan p;
    tsr_status            st = tsr_quantizer_plan(&in->q, w, &p, err);
    *need = p.need;
    return st;
}

/* A linear of a site together with who quantizes it. */
struct item {
    enum tsr_linear_id id;
    bool               quantize;
    struct instance   *instance;
    uint64_t           need;
};

/* TSR_E_UNSUPPORTED keeps the original where the scheme says so. */
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
                               const void *prepared, struct tsr_packed **p, struct tsr_err *err)
{
    const struct tsr_matrix *all = &k->a->m->layers[k->layer].lin[id].w, *w = k->w[id];
    if (w->rows < all->rows || w->cols < all->cols)
        return tsr_quantize_part(k->a->registry, q, all, &k->part[id], w, p, err);
    return tsr_quantize_prepared(k->a->registry, q, w, seen, prepared, p, err);
}

/* Something is packed now. */
static void say_remarks(struct tsr_scheme_run *a)
{
    (void)pthread_mutex_lock(&a->lock);
    tsr_remarks_say(&a->remarks);
    (void)pthread_mutex_unlock(&a->lock);
}

/* One linear is done, or stays as it is. */
static tsr_status count_one(struct layer_work *k, enum tsr_linear_id id, tsr_status st,
                            double seconds, struct tsr_err *err)
{
    struct tsr_scheme_run *a = k->a;
    struct tsr_packed     *p = k->o->lin[k->layer][id];
    if (st == TSR_OK) {
        p->report.seconds = seconds;
        p->source_dtype = a->m->layers[k->layer].lin[id].w.dtype;
    } else if (!(k->bound >> id & 1u)) {
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
    struct instance      *in = items[first].instance;
    struct tsr_pack_item *v = tsr_new((uint64_t)n, sizeof *v);
    enum tsr_linear_id    ids[TSR_LINEARS];
    uint64_t              count = 0;
    double                start = tsr_now_s(), spent = 0;
    if (!v)
        return tsr_fail_nomem(err, (uint64_t)n * sizeof *v, "the linears of a layer");
    for (int i = first; i < n; i++) {
        if (!items[i].quantize || items[i].instance != in)
            continue;
        const struct tsr_matrix *all = &k->a->m->layers[k->layer].lin[items[i].id].w;
        const struct tsr_matrix *w = k->w[items[i].id];
        bool                     part = w->rows < all->rows || w->cols < all->cols;
        ids[count] = items[i].id;
        v[count++] = (struct tsr_pack_item){ .whole = part ? all : w,
                                             .w = w,
                                             .part = part ? &k->part[items[i].id] : NULL };
        items[i].quantize = false;
    }
    say_remarks(k->a);
    tsr_status st = tsr_isolated_pack(k->a->registry, &in->q, seen, v, count, err);
    for (uint64_t i = 0; i < count; i++)
        spent += v[i].seconds;
    double shared = st == TSR_OK ? (tsr_now_s() - start - spent) / (double)count : 0;
    for (uint64_t i = 0; i < count; i++) {
        k->o->lin[k->layer][ids[i]] = v[i].packed;
        if (st != TSR_OK)
            continue;
        st = v[i].status == TSR_OK ? TSR_OK : tsr_fail(err, v[i].status, "%s", v[i].text);
        st = count_one(k, ids[i], st, v[i].seconds + shared, err);
    }
    free(v);
    return st;
}

/* The linears of a site that one instance packs, from `first` on. */
static tsr_status quantize_shared(struct layer_work *k, struct item *items, int n, int first,
                                  struct tsr_err *err)
{
    struct tsr_scheme_run        *a = k->a;
    struct instance              *in = items[first].instance;
    const struct tsr_quant_stats *all =
        k->stats ? &k->stats->site[tsr_linear_site(items[first].id)] : NULL;
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
    void           *prepared = NULL;
    tsr_status      st = TSR_OK;
    struct tsr_held held = { 0 };
    double          start = tsr_now_s(), shared;
    say_remarks(a);
    TSR_TRY(
        tsr_held_begin(&held, tsr_registry_host(a->registry), seen.hessian, w->cols, w->cols, err));
    if (need && in->q.iface->prepare)
        st = in->q.iface->prepare(in->q.self, &seen, &prepared, err);
    if (st == TSR_E_NUMERIC) /* statistics that cannot work */
        st = TSR_E_INPUT;
    if (st != TSR_OK) {
        (void)tsr_held_end(&held, false, NULL);
        return tsr_err_prefix(err, st, "quantizer '%s', inputs of '%s'", in->q.name, w->name);
    }
    shared = (tsr_now_s() - start) / (double)share;
    for (int i = first; i < n && st == TSR_OK; i++) {
        if (!items[i].quantize || items[i].instance != in)
            continue;
        struct tsr_packed **p = &k->o->lin[k->layer][items[i].id];
        start = tsr_now_s();
        st = quantize_one(k, &in->q, items[i].id, items[i].need ? &seen : NULL, prepared, p, err);
        st = count_one(k, items[i].id, st, tsr_now_s() - start + shared, err);
        if (i != first)
            items[i].quantize = false;
    }
    items[first].quantize = false;
    if (prepared && in->q.iface->unprepare)
        in->q.iface->unprepare(in->q.self, prepared);
    (void)tsr_held_end(&held, false, NULL);
    return st;
}

/* NULL: the linear stays as it is. */
static tsr_status instance_of(struct tsr_scheme_run *a, uint64_t layer, const char *name,
                              struct instance **in, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    *in = NULL;
    (void)pthread_mutex_lock(&a->lock);
    if (rules_of(a, layer, name))
        st = find_instance(a, in, err);
    (void)pthread_mutex_unlock(&a->lock);
    return st;
}

/* Who quantizes a linear and what for; *it is left alone where nobody does. */
static tsr_status choose(struct tsr_scheme_run *a, uint64_t layer, enum tsr_linear_id id,
                         const struct tsr_matrix *w, struct item *it, struct tsr_err *err)
{
    struct item new = { .id = id };
    TSR_TRY(instance_of(a, layer, w->name, &new.instance, err));
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
    struct item items[TSR_LINEARS] = { 0 };
    int         n = 0;
    for (int i = 0; i < TSR_LINEARS; i++) {
        if (tsr_linear_site((enum tsr_linear_id)i) != site || k->w[i]->rows == 0)
            continue;
        /* a part is planned as the whole */
        const struct tsr_matrix *w = k->part ? &k->a->m->layers[k->layer].lin[i].w : k->w[i];
        TSR_TRY(choose(k->a, k->layer, (enum tsr_linear_id)i, w, &items[n], err));
        n += items[n].quantize;
    }
    for (int i = 0; i < n; i++)
        if (items[i].quantize)
            TSR_TRY(quantize_shared(k, items, n, i, err));
    return TSR_OK;
}

/* Who quantizes each linear of a layer (NULL: nobody), and what all of that asks for. */
static tsr_status quantizers_of(struct tsr_scheme_run *a, uint64_t layer,
                                const struct tsr_quantizer *q[TSR_LINEARS], uint64_t *need,
                                bool *search, struct tsr_err *err)
{
    struct item items[TSR_LINEARS] = { 0 };
    *need = 0;
    for (int i = 0; i < TSR_LINEARS; i++) {
        const struct tsr_matrix *w = &a->m->layers[layer].lin[i].w;
        if (w->rows)
            TSR_TRY(choose(a, layer, (enum tsr_linear_id)i, w, &items[i], err));
    }
    for (int i = 0; i < TSR_LINEARS; i++) {
        q[i] = items[i].quantize ? &items[i].instance->q : NULL;
        *need |= items[i].quantize ? items[i].need : 0;
    }
    *need = tsr_quant_need_collect(*need) | tsr_block_need(q, search);
    return TSR_OK;
}

/* Lets block searches choose scales and clips: the folded norms go into the overlay, the folded
 * weights and statistics take the place of the originals. */
static tsr_status fold_layer(struct layer_work *k, struct tsr_calibration *c,
                             struct tsr_block_fold *f, struct tsr_layer_stats *folded,
                             struct tsr_err *err)
{
    uint64_t             need;
    bool                 search;
    struct tsr_block_job job = { .registry = k->a->registry,
                                 .model = k->a->m,
                                 .layer = k->layer,
                                 .stats = k->stats ? k->stats->site : NULL,
                                 .sequence = k->stats ? k->stats->sequence : 0 };
    TSR_TRY(quantizers_of(k->a, k->layer, job.q, &need, &search, err));
    if (!search)
        return TSR_OK;
    if (c && need & TSR_NEED_INPUTS)
        TSR_TRY(tsr_calibration_stream(c, k->layer, &job.stream, err));
    TSR_TRY(tsr_block_search(&job, f, err));
    for (int i = 0; i < TSR_OVERLAY_NORMS; i++) {
        k->o->norm[k->layer][i] = f->norm[i];
        f->norm[i] = (struct tsr_norm){ 0 };
    }
    for (int i = 0; i < TSR_LINEARS; i++)
        if (f->lin[i].data) {
            k->w[i] = &f->lin[i];
            k->bound |= 1u << i; /* a folded norm fits no original */
        }
    if (!k->stats)
        return TSR_OK;
    folded->sequence = k->stats->sequence;
    for (int i = 0; i < TSR_SITES; i++)
        TSR_TRY(tsr_block_stats(f, (enum tsr_site)i, &k->stats->site[i], &folded->site[i], err));
    k->stats = folded;
    return TSR_OK;
}

tsr_status tsr_scheme_layer(struct tsr_scheme_run *a, uint64_t layer, struct tsr_calibration *c,
                            const struct tsr_layer_stats *stats, struct tsr_overlay *o,
                            struct tsr_err *err)
{
    struct layer_work      k = { .a = a, .layer = layer, .stats = stats, .o = o };
    struct tsr_block_fold  fold = { 0 };
    struct tsr_layer_stats folded = { 0 };
    TSR_TRY(tsr_model_open_layer(a->m, layer, err));
    for (int i = 0; i < TSR_LINEARS; i++)
        k.w[i] = &a->m->layers[layer].lin[i].w;
    tsr_status st = fold_layer(&k, c, &fold, &folded, err);
    for (int site = 0; site < TSR_SITES && st == TSR_OK; site++)
        st = quantize_site(&k, (enum tsr_site)site, err);
    for (int i = 0; i < TSR_SITES; i++)
        if (fold.scale[i])
            tsr_block_stats_free(&folded.site[i]);
    for (int i = 0; i < TSR_SITES && st == TSR_OK; i++) {
        o->scale[layer][i] = fold.scale[i];
        fold.scale[i] = NULL;
    }
    tsr_block_fold_free(&fold);
    tsr_model_close_layer(a->m, layer);
    return st;
}

tsr_status tsr_scheme_linears(struct tsr_scheme_run *a, uint64_t layer, uint32_t linears,
                              const struct tsr_matrix w[TSR_LINEARS],
                              const struct tsr_slice part[TSR_LINEARS], struct tsr_overlay *o,
                              struct tsr_err *err)
{
    static const struct tsr_matrix absent = { 0 };
    const struct tsr_quantizer    *q[TSR_LINEARS];
    struct layer_work              k = { .a = a, .layer = layer, .o = o, .part = part };
    uint64_t                       need;
    bool                           search;
    TSR_TRY(quantizers_of(a, layer, q, &need, &search, err));
    if (search)
        return tsr_fail(err, TSR_E_INPUT,
                        "layer %llu: its quantizer searches scales of whole layers, which are not "
                        "in memory together; put the step quantize before",
                        (unsigned long long)layer);
    for (int i = 0; i < TSR_LINEARS; i++) {
        k.w[i] = linears >> i & 1u ? &w[i] : &absent;
        if (k.w[i]->rows < a->m->layers[layer].lin[i].w.rows ||
            k.w[i]->cols < a->m->layers[layer].lin[i].w.cols)
            k.bound |= 1u << i; /* the other ranks' parts are packed */
    }
    for (int site = 0; site < TSR_SITES; site++)
        TSR_TRY(quantize_site(&k, (enum tsr_site)site, err));
    return TSR_OK;
}

tsr_status tsr_scheme_need(struct tsr_scheme_run *a, uint64_t layer, uint64_t *need,
                           struct tsr_err *err)
{
    const struct tsr_quantizer *q[TSR_LINEARS];
    bool                        search;
    return quantizers_of(a, layer, q, need, &search, err);
}

/* One of the two, where a rule names it. */
static tsr_status take_end(struct tsr_scheme_run *a, const struct tsr_matrix *w, const char *name,
                           struct tsr_packed **out, struct tsr_err *err)
{
    struct instance *in = NULL;
    double           start = tsr_now_s();
    TSR_TRY(instance_of(a, a->m->hp.layers, name, &in, err));
    if (!in)
        return TSR_OK;
    say_remarks(a);
    tsr_status st = tsr_quantize_matrix(a->registry, &in->q, w, NULL, out, err);
    if (st == TSR_OK)
        (*out)->report.seconds = tsr_now_s() - start;
    return or_keep(a, st, name, err);
}

tsr_status tsr_scheme_ends(struct tsr_scheme_run *a, struct tsr_overlay *o, struct tsr_err *err)
{
    TSR_TRY(take_end(a, &a->m->head.w, HEAD_NAME, &o->head, err));
    TSR_TRY(take_end(a, &a->m->embed, a->m->embed.name, &o->embed, err));
    if (o->embed && !o->head && a->m->hp.tied) { /* the head was asked for, and kept */
        tsr_packed_destroy(o->embed);
        o->embed = NULL;
    }
    return TSR_OK;
}

tsr_status tsr_scheme_plan(struct tsr_scheme_run *a, uint64_t layer, enum tsr_linear_id id,
                           const struct tsr_quantizer **q, struct tsr_quant_plan *plan,
                           struct tsr_err *err)
{
    bool              end = layer == a->m->hp.layers;
    struct tsr_matrix w = !end                       ? a->m->layers[layer].lin[id].w
                          : (int)id == TSR_END_EMBED ? a->m->embed
                                                     : a->m->head.w;
    struct instance  *in = NULL;
    *q = NULL;
    if (w.rows)
        TSR_TRY(
            instance_of(a, layer, end && (int)id == TSR_END_HEAD ? HEAD_NAME : w.name, &in, err));
    if (!in)
        return TSR_OK;
    tsr_status st = tsr_quantizer_plan(&in->q, &w, plan, err);
    if (st == TSR_OK)
        *q = &in->q;
    return or_keep(a, st, w.name, err);
}

bool tsr_scheme_takes_ends(struct tsr_scheme_run *a)
{
    bool embed = rules_of(a, a->m->hp.layers, a->m->embed.name);
    return rules_of(a, a->m->hp.layers, HEAD_NAME) || embed;
}

/* ---- life ----------------------------------------------------------------------- */

/* One pass over the names before any work: a rule that matches nothing is a typing error. */
static tsr_status check_matches(struct tsr_scheme_run *a, struct tsr_err *err)
{
    for (uint64_t l = 0; l < a->m->hp.layers; l++)
        for (int i = 0; i < TSR_LINEARS; i++)
            if (a->m->layers[l].lin[i].w.rows && rules_of(a, l, a->m->layers[l].lin[i].w.name))
                a->total++;
    bool head = rules_of(a, a->m->hp.layers, HEAD_NAME);
    if (rules_of(a, a->m->hp.layers, a->m->embed.name) && a->m->hp.tied && !head)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "a rule names %s, which is the head of model '%s' too: name lm_head in a rule as "
            "well, or neither",
            a->m->embed.name, a->m->path);
    for (uint64_t i = 0; i < a->s->n_rules; i++)
        if (a->matches[i] == 0 && (tsr_name_matches(a->s->rules[i].tensors, a->m->embed.name) ||
                                   tsr_name_matches(a->s->rules[i].tensors, HEAD_NAME)))
            return rule_error(
                &a->s->rules[i], err,
                "head and embedding are packed where a rule has their whole name, " HEAD_NAME
                " or %s",
                a->m->embed.name);
        else if (a->matches[i] == 0)
            return rule_error(&a->s->rules[i], err, "this rule matches no linear of model '%s'",
                              a->m->path);
    return TSR_OK;
}

tsr_status tsr_scheme_open(struct tsr_scheme_run **out, const struct tsr_scheme *s,
                           struct tsr_registry *r, const struct tsr_model *m, struct tsr_err *err)
{
    TSR_TRY(tsr_model_plain(m, "quantized", err));
    if (m->packed)
        return tsr_fail(err, TSR_E_INPUT, "%s is packed already; quantize the original", m->path);
    struct tsr_scheme_run *a = tsr_new(1, sizeof *a);
    if (!a)
        return tsr_fail_nomem(err, sizeof *a, "a scheme");
    *a = (struct tsr_scheme_run){ .s = s, .registry = r, .m = m };
    (void)pthread_mutex_init(&a->lock, NULL);
    tsr_status st = read_layers(a, err);
    if (st == TSR_OK)
        st = check_matches(a, err);
    if (st != TSR_OK) {
        tsr_scheme_close(a);
        return st;
    }
    *out = a;
    return TSR_OK;
}

void tsr_scheme_close(struct tsr_scheme_run *a)
{
    if (!a)
        return;
    for (uint64_t i = 0; i < a->n_instances; i++) {
        struct instance *in = a->instances[i];
        if (in->q.iface)
            tsr_quantizer_close(&in->q);
        free(in->choice.options);
        free(in->flags);
        free(in);
    }
    free(a->instances);
    for (uint64_t i = 0; a->layers && i < a->s->n_rules; i++)
        free(a->layers[i]);
    free(a->layers);
    free(a->matches);
    free(a->flags);
    tsr_remarks_free(&a->remarks);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}
