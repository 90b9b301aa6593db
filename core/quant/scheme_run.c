/* Applies a scheme: quantizes a layer, the listed linears of one, or the ends of a model, site by site. */
#include "quant/scheme_run_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

/* The quantizer of each linear of a layer (NULL: none), and the statistics that they need in total; q [linears].
 * search: one searches scales of the layer.  TSR_NEED_BLOCK: one packs it whole. */
static tsr_status quantizers_of(struct tsr_scheme_run *a, uint64_t layer,
                                const struct tsr_quantizer **q, uint64_t *need, bool *search,
                                struct tsr_err *err)
{
    *need = 0;
    for (uint64_t i = 0; i < a->m->hp.linears; i++) {
        const struct tsr_matrix   *w = &a->m->layers[layer].lin[i].w;
        struct tsr_quant_site_item it = { 0 };
        if (w->rows)
            TSR_TRY(tsr_quant_scheme_choose(a, layer, (enum tsr_linear_id)i, w, &it, err));
        q[i] = it.quantize ? &it.instance->q : NULL;
        *need |= it.quantize ? it.need : 0;
    }
    *need = tsr_quant_need_collect(*need) | tsr_quant_block_need(q, a->m->hp.linears, search);
    for (uint64_t i = 0; i < a->m->hp.linears; i++)
        *need |= tsr_quant_tunes(q[i]) ? TSR_NEED_BLOCK : 0;
    return TSR_OK;
}

tsr_status tsr_quant_scheme_layer(struct tsr_scheme_run *a, uint64_t layer,
                                  struct tsr_quant_calibration       *c,
                                  const struct tsr_quant_layer_stats *stats,
                                  struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct tsr_quant_layer_work k = { .a = a, .layer = layer, .stats = stats, .o = o };
    struct tsr_quant_layer_fold fold = { 0 };
    uint64_t                    need;
    bool                        search;
    TSR_TRY(tsr_quant_layer_work_new(&k, err));
    tsr_status st = tsr_model_open_layer(a->m, layer, err);
    if (st != TSR_OK) {
        tsr_quant_layer_work_free(&k);
        return st;
    }
    for (uint64_t i = 0; i < a->m->hp.linears; i++)
        k.w[i] = &a->m->layers[layer].lin[i].w;
    st = quantizers_of(a, layer, k.q, &need, &search, err);
    if (st == TSR_OK && need & TSR_NEED_BLOCK)
        st = tsr_quant_layer_tune(&k, c, err);
    if (st == TSR_OK && search)
        st = tsr_quant_layer_fold_search(&k, c, need, &fold, err);
    for (uint64_t site = 0; site < a->m->hp.sites && st == TSR_OK; site++)
        st = tsr_quant_scheme_site(&k, (enum tsr_site)site, err);
    tsr_quant_layer_fold_end(&k, &fold, st == TSR_OK);
    tsr_model_close_layer(a->m, layer);
    tsr_quant_layer_work_free(&k);
    return st;
}

static tsr_status quantize_listed(struct tsr_quant_layer_work         *k,
                                  const struct tsr_model_piece_linear *list, uint64_t n,
                                  struct tsr_err *err)
{
    static const struct tsr_matrix absent = { 0 };
    const struct tsr_model_layer  *l = &k->a->m->layers[k->layer];
    uint64_t                       need;
    bool                           search;
    TSR_TRY(quantizers_of(k->a, k->layer, k->q, &need, &search, err));
    if (search || need & TSR_NEED_BLOCK)
        return tsr_fail(err, TSR_E_INPUT,
                        "layer %llu: its quantizer looks at whole layers, which are not "
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
            TSR_TRY(tsr_quant_scheme_site(k, site, err));
    }
    return TSR_OK;
}

tsr_status tsr_quant_scheme_linears(struct tsr_scheme_run *a, uint64_t layer,
                                    const struct tsr_model_piece_linear *list, uint64_t n,
                                    struct tsr_model_overlay *o, struct tsr_err *err)
{
    struct tsr_quant_layer_work k = { .a = a, .layer = layer, .o = o };
    TSR_TRY(tsr_quant_layer_work_new(&k, err));
    tsr_status st = quantize_listed(&k, list, n, err);
    tsr_quant_layer_work_free(&k);
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
    tsr_quant_scheme_say_remarks(a);
    tsr_status st = tsr_quantize_matrix(a->registry, &in->q, w, NULL, out, err);
    if (st == TSR_OK)
        (*out)->report.seconds = tsr_now_s() - start;
    return tsr_quant_scheme_or_keep(a, st, name, err);
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
    return tsr_quant_scheme_or_keep(a, st, w.name, err);
}
