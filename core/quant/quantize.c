/* A model, layer by layer, into a folder. */
#include "quant/quantize.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "quant/scheme_internal.h"

#include <stdlib.h>
#include <string.h>

struct work {
    const struct tsr_quantize_options *opt;
    const struct tsr_model            *m;
    struct tsr_scheme_run             *run;
    struct tsr_model_overlay          *o;
    bool                               sequential;
    uint64_t                           done;
    char                               print[TSR_HASH_TEXT]; /* hash of the fingerprint */
};

static tsr_status is_there(const struct work *k, uint64_t layer, bool *there, struct tsr_err *err)
{
    char name[TSR_PACKED_LAYER_NAME];
    tsr_packed_layer_name(layer, k->m->hp.layers, name);
    char *path = tsr_path_join(k->opt->folder, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(k->opt->folder), name);
    *there = tsr_path_exists(path);
    free(path);
    return TSR_OK;
}

static void strip(struct tsr_model_packed *p)
{
    if (!p)
        return;
    free(p->codes);
    free(p->meta);
    free(p->dense);
    p->codes = p->meta = NULL;
    p->dense = NULL;
}

/* Leaves the descriptions of a layer. */
static void drop(struct work *k, uint64_t layer)
{
    for (uint64_t i = 0; i < k->o->linears; i++)
        strip(k->o->lin[layer][i]);
    tsr_model_overlay_drop_folds(k->o, layer);
}

/* A layer that was done before.  Its bytes are needed if later layers run after it. */
static tsr_status take(struct work *k, uint64_t layer, struct tsr_err *err)
{
    bool headers = k->opt->drop && (!k->sequential || layer == k->m->hp.layers);
    k->done++;
    TSR_TRY(tsr_packed_layer_read(k->opt->folder, k->m, layer, headers, NULL, k->print, k->o, err));
    return tsr_quant_journal_read(k->opt->folder, k->m, layer, k->o, err);
}

static tsr_status store(const struct work *k, uint64_t layer, struct tsr_err *err)
{
    TSR_TRY(tsr_quant_journal_write(k->opt->folder, k->m, layer, k->o, err));
    return tsr_packed_layer_write(k->opt->folder, k->m, layer, k->o, k->print, err);
}

/* Statistics for a layer.  In a sequential run they are taken after the preceding packed layers;
 * that also advances the hidden states, so every layer requests it. */
static tsr_status statistics(struct work *k, uint64_t layer, uint64_t need,
                             struct tsr_quant_layer_stats *stats, struct tsr_err *err)
{
    struct tsr_quant_calibration *c = k->opt->calibration;
    if (!c || (need == 0 && !k->sequential))
        return TSR_OK;
    return tsr_quant_calibration_layer(c, layer, need, k->sequential ? k->o : NULL, stats, err);
}

static tsr_status do_layer(struct work *k, uint64_t layer, struct tsr_err *err)
{
    struct tsr_quant_layer_stats stats = { 0 };
    uint64_t                     need = 0;
    bool                         there = false;
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "before layer %llu", (unsigned long long)layer);
    TSR_TRY(is_there(k, layer, &there, err));
    if (!there)
        TSR_TRY(tsr_quant_scheme_need(k->run, layer, &need, err));
    TSR_TRY(statistics(k, layer, need, &stats, err));
    if (k->opt->drop && k->sequential && layer > 0)
        drop(k, layer - 1); /* the hidden states are past it */
    tsr_status st = there ? take(k, layer, err)
                          : tsr_quant_scheme_layer(k->run, layer, k->opt->calibration,
                                                   stats.sequence ? &stats : NULL, k->o, err);
    tsr_quant_layer_stats_free(&stats);
    if (st == TSR_OK && !there)
        st = store(k, layer, err);
    if (k->opt->drop && !k->sequential)
        drop(k, layer);
    return st;
}

static tsr_status do_ends(struct work *k, struct tsr_err *err)
{
    uint64_t layers = k->m->hp.layers;
    bool     there = false;
    if (!tsr_quant_scheme_takes_ends(k->run))
        return TSR_OK;
    TSR_TRY(is_there(k, layers, &there, err));
    if (there)
        return take(k, layers, err);
    TSR_TRY(tsr_quant_scheme_ends(k->run, k->o, err));
    if (!k->o->head && !k->o->embed) /* not supported, and kept */
        return TSR_OK;
    TSR_TRY(store(k, layers, err));
    if (k->opt->drop) {
        strip(k->o->head);
        strip(k->o->embed);
    }
    return TSR_OK;
}

static tsr_status do_all(struct work *k, struct tsr_err *err)
{
    uint64_t layers = k->m->hp.layers;
    for (uint64_t l = 0; l < layers; l++)
        TSR_TRY(do_layer(k, l, err));
    if (k->opt->drop && k->sequential && layers)
        drop(k, layers - 1);
    TSR_TRY(do_ends(k, err));
    if (k->done)
        tsr_logf(TSR_LOG_INFO, "%s: %llu of %llu layers were there already", k->opt->folder,
                 (unsigned long long)k->done, (unsigned long long)layers);
    return tsr_packed_model_finish(k->opt->folder, k->m, k->o, err);
}

static tsr_status open_folder(struct work *k, const struct tsr_quant_scheme *s,
                              struct tsr_registry *r, struct tsr_err *err)
{
    const struct tsr_quantize_options *opt = k->opt;
    json_t                            *print = NULL;
    TSR_TRY(tsr_make_dirs(opt->folder, err));
    bool begun = false; /* what stopped before its first layer leaves nothing to go on with */
    TSR_TRY(tsr_quant_packed_model_begun(opt->folder, k->m, &begun, err));
    if (opt->again || !begun)
        TSR_TRY(tsr_quant_packed_model_forget(opt->folder, k->m, err));
    TSR_TRY(tsr_quant_fingerprint_make(s, r, k->m, opt->calibration, opt->options, &print, err));
    tsr_status st = tsr_quant_fingerprint_open(opt->folder, print, k->print, err);
    json_decref(print);
    return st;
}

/* What failed before its first layer was whole leaves nothing to go on with. */
static void leave_nothing(const struct work *k)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              begun = true;
    tsr_status        st = tsr_quant_packed_model_begun(k->opt->folder, k->m, &begun, &e.err);
    if (st == TSR_OK && !begun)
        st = tsr_quant_packed_model_forget(k->opt->folder, k->m, &e.err);
    if (st != TSR_OK)
        tsr_logf(TSR_LOG_WARN, "%s", e.text);
}

tsr_status tsr_quantize_model(const struct tsr_quant_scheme *s, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_quantize_options *opt,
                              struct tsr_model_overlay **o, uint64_t *done, struct tsr_err *err)
{
    struct work k = { .opt = opt, .m = m, .sequential = s->keys.sequential != 0 };
    if (opt->calibration && opt->calibration->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT, "the calibration is of %llu layers, the model has %llu",
                        (unsigned long long)opt->calibration->layers,
                        (unsigned long long)m->hp.layers);
    TSR_TRY(tsr_quant_scheme_open(&k.run, s, r, m, err));
    tsr_status st = open_folder(&k, s, r, err);
    bool       opened = st == TSR_OK;
    if (st == TSR_OK)
        st = tsr_model_overlay_create(&k.o, m->hp.layers, m->hp.linears, err);
    if (st == TSR_OK)
        st = do_all(&k, err);
    if (st != TSR_OK && opened)
        leave_nothing(&k);
    tsr_quant_scheme_close(k.run);
    if (st != TSR_OK) {
        tsr_model_overlay_destroy(k.o);
        return st;
    }
    *o = k.o;
    *done = k.done;
    return TSR_OK;
}
