/* Makes the residuals of a packed model: one layer of the original at a time, first what its inputs are like, then
 * what its linears lost. */
#include "quant/residuals_internal.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/safetensors/folder.h"
#include "engine/stream.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_CAP (UINT64_C(64) << 20)

/* ---- the packed model ------------------------------------------------------------------------- */

static tsr_status check_source(const struct tsr_quant_residuals_work *w, const char *path,
                               const char *text, uint64_t len, struct tsr_err *err)
{
    json_t     *j = NULL;
    const char *source = "";
    TSR_TRY(tsr_json_parse(&j, path, text, len, 3, err));
    tsr_status st = tsr_json_str(j, path, "source", true, &source, err);
    if (st == TSR_OK && strcmp(source, w->m->hash) != 0)
        st = tsr_fail(
            err, TSR_E_INPUT,
            "%s: was made of another model than %s; give the original of this packed model", path,
            w->m->path);
    json_decref(j);
    return st;
}

static tsr_status read_packed_index(struct tsr_quant_residuals_work *w)
{
    char    *text = NULL, *path = NULL;
    uint64_t len = 0;
    TSR_TRY(tsr_checkpoint_folder_slurp_if(w->opt->folder, TSR_PACKED_INDEX, INDEX_CAP, &text, &len,
                                           &path, w->err));
    tsr_status st = TSR_OK;
    if (!text)
        st = tsr_fail(w->err, TSR_E_INPUT,
                      "%s: is not a packed model (it has no " TSR_PACKED_INDEX
                      "); give what quantize wrote",
                      w->opt->folder);
    if (st == TSR_OK)
        st = tsr_packed_index_parse(&w->index, path, text, len, w->err);
    if (st == TSR_OK)
        st = check_source(w, path, text, len, w->err);
    if (st == TSR_OK && w->index.layers != w->m->hp.layers)
        st = tsr_fail(w->err, TSR_E_INPUT, "%s: lists %llu layers, the original has %llu", path,
                      (unsigned long long)w->index.layers, (unsigned long long)w->m->hp.layers);
    if (st == TSR_OK)
        tsr_hash_bytes(text, len, w->packed);
    free(text);
    free(path);
    return st;
}

static tsr_status read_shapes(struct tsr_quant_residuals_work *w)
{
    TSR_TRY(tsr_model_overlay_create(&w->o, w->m->hp.layers, w->m->hp.linears, w->err));
    for (uint64_t l = 0; l < w->m->hp.layers; l++) {
        TSR_TRY(tsr_packed_layer_read(w->opt->folder, w->m, l, true, w->index.layer[l], NULL, w->o,
                                      w->err));
        for (uint64_t i = 0; i < w->m->hp.linears; i++)
            w->report->linears +=
                w->o->lin[l][i] && tsr_quant_residuals_covers((enum tsr_linear_id)i);
    }
    return w->report->linears
               ? TSR_OK
               : tsr_fail(w->err, TSR_E_INPUT, "%s: none of its linears is packed", w->opt->folder);
}

static void drop_layer(struct tsr_quant_residuals_work *w)
{
    for (uint64_t i = 0; i < w->m->hp.linears; i++) {
        tsr_model_packed_destroy(w->o->lin[w->layer][i]);
        w->o->lin[w->layer][i] = NULL;
    }
    tsr_model_overlay_drop_folds(w->o, w->layer);
}

/* With its bytes; one whose scales were not kept has norms that tell. */
static tsr_status open_layer(struct tsr_quant_residuals_work *w)
{
    const struct tsr_model_norm *n = w->o->norm[w->layer];
    drop_layer(w);
    TSR_TRY(tsr_packed_layer_read(w->opt->folder, w->m, w->layer, false, w->index.layer[w->layer],
                                  NULL, w->o, w->err));
    const char *turned = tsr_model_overlay_turned(w->o, w->layer);
    if (turned)
        return tsr_fail(w->err, TSR_E_INPUT,
                        "%s: layer %llu has transformed %s, and residuals are differences to the "
                        "original's columns; quantize it without transforms",
                        w->opt->folder, (unsigned long long)w->layer, turned);
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++)
        if (n[i].gain &&
            !w->o->scale[w->layer][tsr_model_overlay_norm_site((enum tsr_overlay_norm)i)])
            return tsr_fail(w->err, TSR_E_INPUT,
                            "%s: layer %llu has folded norms but not the scales that were folded; "
                            "quantize it again with this version",
                            w->opt->folder, (unsigned long long)w->layer);
    return TSR_OK;
}

/* ---- inputs ------------------------------------------------------------------------------------ */

static tsr_status tap(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                      uint64_t cols, struct tsr_err *err)
{
    struct tsr_quant_residuals_work *w = ctx;
    if (!tsr_quant_residuals_has_site(w, layer, site))
        return TSR_OK;
    if (w->borrowing &&
        (site < TSR_MODEL_SITE_EXPERTS || !w->borrowing[tsr_model_site_expert(site)]))
        return TSR_OK;
    if (!w->sums[site].cols)
        TSR_TRY(tsr_compensate_profile_create(&w->sums[site], cols, err));
    tsr_status st = tsr_compensate_profile_add(&w->sums[site], tsr_plugin_registry_pool(w->r), x, n,
                                               tsr_model_overlay_scale(w->o, layer, site), err);
    return st == TSR_OK ? st
                        : tsr_err_prefix(err, st, "layer %llu, %s", (unsigned long long)layer,
                                         TSR_MODEL_SITE_NAME(site));
}

static tsr_status start_stream(struct tsr_quant_residuals_work *w)
{
    const struct tsr_quant_calibration *c = w->opt->calibration;
    uint64_t                            step = c->seqlen * w->m->hp.hidden, n = 0;
    w->h = tsr_mul(c->sequences, step, &n) ? tsr_new_aligned(n, sizeof *w->h) : NULL;
    if (!w->h)
        return tsr_fail_nomem(w->err, n * sizeof *w->h,
                              "hidden states of the calibration; fewer samples take less");
    TSR_TRY(
        tsr_engine_stream_create(&w->stream, w->r, w->m, c->seqlen, TSR_ACT_F32, &c->on, w->err));
    for (uint64_t i = 0; i < c->sequences; i++)
        TSR_TRY(tsr_engine_stream_embed(w->stream, c->ids + i * c->seqlen, c->seqlen,
                                        w->h + i * step, w->err));
    w->report->tokens = c->sequences * c->seqlen;
    return TSR_OK;
}

/* Experts that no token took get the layer's inputs in the first sequence, h, which stays. */
static tsr_status borrow(struct tsr_quant_residuals_work *w, float *h)
{
    uint64_t experts = w->m->hp.experts, n = 0;
    uint8_t *unused = tsr_new(experts, sizeof *unused);
    if (!unused)
        return tsr_fail_nomem(w->err, experts, "experts");
    for (uint64_t i = 0; i < experts; i++) {
        enum tsr_site in = tsr_model_expert_site(i, TSR_MODEL_SITE_FFN_IN);
        enum tsr_site down = tsr_model_expert_site(i, TSR_MODEL_SITE_DOWN_IN);
        bool          any = tsr_quant_residuals_has_site(w, w->layer, in) ||
                   tsr_quant_residuals_has_site(w, w->layer, down);
        unused[i] = any && w->sums[in].rows == 0 && w->sums[down].rows == 0;
        n += unused[i];
        if (unused[i])
            tsr_logf(TSR_LOG_WARN,
                     "compensate, layer %llu: no token takes expert %llu; its channels are judged "
                     "by the layer's inputs",
                     (unsigned long long)w->layer, (unsigned long long)i);
    }
    w->borrowing = unused;
    tsr_engine_stream_show_experts(w->stream, unused);
    tsr_status st =
        n ? tsr_engine_stream_run(w->stream, h, w->opt->calibration->seqlen, h, w->err) : TSR_OK;
    tsr_engine_stream_show_experts(w->stream, NULL);
    w->borrowing = NULL;
    free(unused);
    return st;
}

/* Runs the original layer over all sequences, which advances them to the next layer. */
static tsr_status run_layer(struct tsr_quant_residuals_work *w)
{
    const struct tsr_quant_calibration *c = w->opt->calibration;
    uint64_t                            step = c->seqlen * w->m->hp.hidden;
    bool                                sparse = w->m->hp.sparse && w->m->hp.sparse[w->layer];
    float *first = sparse ? tsr_new_aligned(step, sizeof *first) : NULL;
    if (sparse && !first)
        return tsr_fail_nomem(w->err, step * sizeof *first, "hidden states of a sequence");
    if (sparse)
        memcpy(first, w->h, step * sizeof *first);
    tsr_status st = tsr_engine_stream_open_layer(w->stream, w->layer, NULL, w->err);
    tsr_engine_stream_set_tap(w->stream, tap, w);
    for (uint64_t i = 0; i < c->sequences && st == TSR_OK; i++) {
        float *h = w->h + i * step;
        st = tsr_plugin_cancelled() ? tsr_fail(w->err, TSR_E_CANCELLED, "interrupted")
                                    : tsr_engine_stream_run(w->stream, h, c->seqlen, h, w->err);
    }
    if (st == TSR_OK && sparse)
        st = borrow(w, first);
    tsr_engine_stream_set_tap(w->stream, NULL, NULL);
    free(first);
    return st;
}

static tsr_status keep_profile(struct tsr_quant_residuals_work *w, enum tsr_site site,
                               const double *energy)
{
    struct tsr_compensate_profile_sums *s = &w->sums[site];
    float                              *v = tsr_new(s->cols, 3 * sizeof *v);
    if (!v)
        return tsr_fail_nomem(w->err, s->cols * 3 * sizeof *v, "a profile of inputs");
    w->out[w->layer].profile[site] = v;
    for (uint64_t k = 0; k < s->cols; k++) {
        double mean = s->square[k] / (double)s->rows;
        v[k] = s->top[k];
        v[s->cols + k] = (float)mean;
        v[2 * s->cols + k] = (float)(mean * energy[k]);
    }
    return TSR_OK;
}

/* ---- residuals ---------------------------------------------------------------------------------- */

/* The scale that the rows of a linear were divided by: of the site that they are the input of. */
static const float *divided_by(const struct tsr_quant_residuals_work *w, enum tsr_linear_id id)
{
    bool up = tsr_model_linear_kind(id) == TSR_MODEL_UP; /* its down has the next number */
    return id == TSR_MODEL_V ? tsr_model_overlay_scale(w->o, w->layer, TSR_MODEL_SITE_O_IN)
           : up              ? tsr_model_overlay_scale(w->o, w->layer,
                                                       tsr_model_linear_site((enum tsr_linear_id)(id + 1)))
                             : NULL;
}

/* Rows of a site's linears. */
struct rows {
    unsigned char *codes; /* NULL: they go to the file one linear after the other */
    uint64_t       stride, at;
};

static void put_codes(struct tsr_quant_residuals_work *w, const struct tsr_compensate_residual *r,
                      struct rows *to)
{
    if (!to->codes) {
        tsr_safetensors_put(w->file, r->codes, r->inputs * r->stride);
        return;
    }
    for (uint64_t k = 0; k < r->inputs; k++)
        memcpy(to->codes + k * to->stride + to->at, r->codes + k * r->stride, r->stride);
    to->at += r->stride;
}

static tsr_status make_linear(struct tsr_quant_residuals_work *w, enum tsr_linear_id id,
                              double *energy, struct rows *rows)
{
    struct tsr_compensate_residual_source src = {
        .w = &w->m->layers[w->layer].lin[id].w,
        .packed = w->o->lin[w->layer][id],
        .columns = tsr_model_overlay_scale(w->o, w->layer, tsr_model_linear_site(id)),
        .rows = divided_by(w, id)
    };
    struct tsr_compensate_residual        r = { 0 };
    struct tsr_compensate_residual_report rep;
    double                               *one = tsr_new(src.w->cols, sizeof *one);
    if (!one)
        return tsr_fail_nomem(w->err, src.w->cols * sizeof *one, "residuals");
    tsr_status st = tsr_compensate_residual_make(&r, tsr_plugin_registry_pool(w->r), &src,
                                                 w->opt->bits, one, &rep, w->err);
    if (st == TSR_OK) {
        for (uint64_t k = 0; k < r.inputs; k++)
            energy[k] += one[k];
        put_codes(w, &r, rows);
        w->report->bytes += tsr_compensate_residual_bytes(&r);
        w->report->before += rep.before;
        w->report->after += rep.after;
        w->out[w->layer].scales[id] = r.scales;
        r.scales = NULL;
    }
    tsr_compensate_residual_free(&r);
    free(one);
    return st;
}

static tsr_status make_site(struct tsr_quant_residuals_work *w, enum tsr_site site)
{
    struct rows rows = { 0 };
    uint64_t    cols = tsr_model_layer_site_cols(w->m, w->layer, site), bytes = 0;
    struct tsr_compensation_linears of = tsr_compensation_linears(w->m, w->layer, site);
    double                         *energy = tsr_new(cols, sizeof *energy);
    if (!energy)
        return tsr_fail_nomem(w->err, cols * sizeof *energy, "residuals");
    tsr_status st = TSR_OK;
    if (tsr_quant_residuals_is_joined(w, w->layer, site, &rows.stride)) {
        rows.codes = tsr_mul(cols, rows.stride, &bytes) ? tsr_new_aligned(bytes, 1) : NULL;
        if (!rows.codes)
            st = tsr_fail_nomem(w->err, bytes, "residuals");
    }
    for (uint32_t i = 0; i < of.n && st == TSR_OK; i++)
        if (w->o->lin[w->layer][of.id[i]])
            st = make_linear(w, of.id[i], energy, &rows);
    if (st == TSR_OK && rows.codes)
        tsr_safetensors_put(w->file, rows.codes, bytes);
    if (st == TSR_OK)
        st = keep_profile(w, site, energy);
    free(rows.codes);
    free(energy);
    return st;
}

static tsr_status make_layer(struct tsr_quant_residuals_work *w)
{
    uint64_t   sites = w->m->hp.sites;
    tsr_status st = open_layer(w);
    if (st == TSR_OK)
        st = run_layer(w);
    if (st == TSR_OK)
        st = tsr_model_open_layer(w->m, w->layer, w->err);
    if (st == TSR_OK) {
        for (uint64_t i = 0; i < sites && st == TSR_OK; i++)
            if (tsr_quant_residuals_has_site(w, w->layer, (enum tsr_site)i))
                st = make_site(w, (enum tsr_site)i);
        tsr_model_close_layer(w->m, w->layer);
    }
    for (uint64_t i = 0; i < sites; i++)
        tsr_compensate_profile_free(&w->sums[i]);
    for (uint64_t i = 0; i < w->m->hp.linears; i++)
        if (w->o->lin[w->layer][i])
            tsr_model_packed_drop(w->o->lin[w->layer][i]);
    return st;
}

static void work_free(struct tsr_quant_residuals_work *w)
{
    tsr_safetensors_abort(w->file);
    tsr_engine_stream_destroy(w->stream);
    tsr_model_overlay_destroy(w->o);
    tsr_packed_index_free(&w->index);
    for (uint64_t l = 0; w->out && l < w->m->hp.layers; l++) {
        for (uint64_t i = 0; w->out[l].scales && i < w->m->hp.linears; i++)
            free(w->out[l].scales[i]);
        for (uint64_t i = 0; w->out[l].profile && i < w->m->hp.sites; i++)
            free(w->out[l].profile[i]);
        free(w->out[l].scales);
        free(w->out[l].profile);
    }
    free(w->out);
    free(w->sums);
    free(w->h);
}

static tsr_status make_all(struct tsr_quant_residuals_work *w)
{
    uint64_t layers = w->m->hp.layers;
    w->out = tsr_new(layers, sizeof *w->out);
    w->sums = tsr_new(w->m->hp.sites, sizeof *w->sums);
    bool room = w->out && w->sums;
    for (uint64_t l = 0; l < layers && room; l++) {
        w->out[l].scales = tsr_new(w->m->hp.linears, sizeof *w->out[l].scales);
        w->out[l].profile = tsr_new(w->m->hp.sites, sizeof *w->out[l].profile);
        room = w->out[l].scales && w->out[l].profile;
    }
    if (!room)
        return tsr_fail_nomem(w->err, layers * sizeof *w->out, "residuals");
    TSR_TRY(read_packed_index(w));
    TSR_TRY(read_shapes(w));
    TSR_TRY(tsr_quant_residuals_forget_index(w));
    TSR_TRY(tsr_quant_residuals_begin_file(w));
    TSR_TRY(start_stream(w));
    for (; w->layer < layers; w->layer++) {
        TSR_TRY(make_layer(w));
        tsr_progress("compensate", w->layer + 1, layers);
    }
    TSR_TRY(tsr_quant_residuals_end_file(w));
    return tsr_quant_residuals_write_index(w);
}

tsr_status tsr_quant_compensation_make(struct tsr_registry *r, const struct tsr_model *m,
                                       const struct tsr_quant_compensation_options *opt,
                                       struct tsr_quant_compensation_report        *report,
                                       struct tsr_err                              *err)
{
    struct tsr_quant_residuals_work w = {
        .r = r, .m = m, .opt = opt, .report = report, .err = err
    };
    *report = (struct tsr_quant_compensation_report){ 0 };
    if (!tsr_compensate_residual_bits_known(opt->bits))
        return tsr_fail(err, TSR_E_CONFIG, "residuals of %u bits; write 2, 4, 8 or 16", opt->bits);
    TSR_TRY(tsr_model_plain(m, "compared with a packed model", err));
    tsr_status st = make_all(&w);
    work_free(&w);
    return st;
}
