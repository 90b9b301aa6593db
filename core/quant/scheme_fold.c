/* Searches over a whole layer before its linears are quantized, and where their results go. */
#include "quant/scheme_run_internal.h"

#include "base/mem.h"

#include <math.h>

/* A folded router, which stays in full precision, as a packed matrix; w's data moves. */
static tsr_status keep_float(struct tsr_matrix *w, const char *by, struct tsr_model_packed **out,
                             struct tsr_err *err)
{
    struct tsr_model_packed *p = *out = tsr_new(1, sizeof *p);
    if (!p || !(p->plugin = tsr_strdup(by)) || !(p->format_id = tsr_strdup(TSR_FORMAT_FLOAT)))
        return tsr_fail_nomem(err, sizeof *p, w->name);
    p->format = (struct tsr_format){ .struct_size = sizeof p->format,
                                     .id = p->format_id,
                                     .dtype = TSR_F32 };
    p->rows = w->rows;
    p->cols = w->cols;
    p->code_stride = w->cols * sizeof(float);
    p->report = (struct tsr_model_pack_report){ .loss = NAN, .rtn_loss = NAN, .damping = NAN };
    p->codes = w->data;
    w->data = NULL;
    return TSR_OK;
}

/* The instance that searched the inputs of a router: its norm is that of the experts' gates. */
static const char *searcher_of(const struct tsr_quant_layer_work *k)
{
    for (uint64_t i = 0; i < k->a->m->hp.linears; i++)
        if (k->q[i] && tsr_model_site_columns(tsr_model_linear_site((enum tsr_linear_id)i)) ==
                           TSR_MODEL_SITE_FFN_IN)
            return k->q[i]->name;
    return "";
}

static tsr_status take_linears(struct tsr_quant_layer_work *k, struct tsr_quant_block_fold *f,
                               struct tsr_err *err)
{
    for (uint64_t i = 0; i < f->linears; i++) {
        struct tsr_model_packed **p = &k->o->lin[k->layer][i];
        if (!f->lin[i].data)
            continue;
        if (!k->q[i]) {
            TSR_TRY(keep_float(&f->lin[i], searcher_of(k), p, err));
            (*p)->source_dtype = k->w[i]->dtype;
            continue;
        }
        k->w[i] = &f->lin[i];
        k->bound[i] = 1; /* a folded norm fits no original */
    }
    return TSR_OK;
}

tsr_status tsr_quant_layer_fold_search(struct tsr_quant_layer_work  *k,
                                       struct tsr_quant_calibration *c, uint64_t need,
                                       struct tsr_quant_layer_fold *f, struct tsr_err *err)
{
    struct tsr_quant_block_job job = { .registry = k->a->registry,
                                       .model = k->a->m,
                                       .layer = k->layer,
                                       .q = k->q,
                                       .stats = k->stats ? k->stats->site : NULL,
                                       .sequence = k->stats ? k->stats->sequence : 0 };
    if (c && need & TSR_NEED_INPUTS)
        TSR_TRY(tsr_quant_calibration_stream(c, k->layer, &job.stream, err));
    TSR_TRY(tsr_quant_block_search(&job, &f->fold, err));
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++) {
        k->o->norm[k->layer][i] = f->fold.norm[i];
        f->fold.norm[i] = (struct tsr_model_norm){ 0 };
    }
    TSR_TRY(take_linears(k, &f->fold, err));
    if (!k->stats)
        return TSR_OK;
    TSR_TRY(tsr_quant_layer_stats_new(&f->stats, k->stats->sites, k->stats->sequence, err));
    for (uint64_t i = 0; i < f->stats.sites; i++)
        TSR_TRY(tsr_quant_block_stats(&f->fold, (enum tsr_site)i, &k->stats->site[i],
                                      tsr_plugin_registry_pool(k->a->registry), &f->stats.site[i],
                                      err));
    k->stats = &f->stats;
    return TSR_OK;
}

/* What runs of a packed layer have to know of its inputs. */
static void keep_folds(struct tsr_quant_layer_work *k, struct tsr_quant_block_fold *f)
{
    struct tsr_model_overlay *o = k->o;
    o->online[k->layer] = (struct tsr_model_online){ .keys = f->keys };
    for (uint64_t i = 0; i < o->sites; i++)
        o->turned[k->layer][i] = i < f->sites && tsr_rotate_transform_is_set(&f->turn[i]);
    for (uint64_t i = 0; i < f->sites; i++) {
        o->scale[k->layer][i] = f->scale[i];
        f->scale[i] = NULL;
    }
    if (f->sites && f->turn[TSR_MODEL_SITE_DOWN_IN].online)
        o->online[k->layer].down = (uint32_t)f->turn[TSR_MODEL_SITE_DOWN_IN].online->n;
}

void tsr_quant_layer_fold_end(struct tsr_quant_layer_work *k, struct tsr_quant_layer_fold *f,
                              bool done)
{
    for (uint64_t i = 0; i < f->stats.sites; i++) { /* the others are not its own */
        if (tsr_quant_block_changes(&f->fold, (enum tsr_site)i))
            tsr_quant_block_stats_free(&f->stats.site[i]);
        f->stats.site[i] = (struct tsr_quant_stats){ 0 };
    }
    tsr_quant_layer_stats_free(&f->stats);
    if (done)
        keep_folds(k, &f->fold);
    tsr_quant_block_fold_free(&f->fold);
}
