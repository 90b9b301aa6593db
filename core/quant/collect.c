/* Statistics of one layer: the hidden states of all sequences through it, with a tap on the input
 * of every linear. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "quant/calibrate_internal.h"
#include "quant/cross.h"
#include "quant/gram.h"
#include "quant/held.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums of one layer while it runs. */
struct collected;
struct collect {
    struct tsr_quant_calibration        *c;
    struct tsr_quant_calibration_source *s;
    uint64_t                             layer, need;
    uint64_t                             sequence; /* that runs now */
    bool                                 borrowing;
    bool                                 original; /* the original model's inputs run now */
    struct collected                    *site;     /* [sites] */
    double                               syrk_seconds;
};

/* Of one site. */
struct collected {
    struct tsr_quant_moments sums;
    struct tsr_quant_gram    gram;
    float                   *hessian, *inputs;
    struct tsr_quant_held    held; /* the Hessian, while it is summed */
    struct tsr_quant_cross   cross;
    bool                     borrowed;
};

/* ---- sums ---------------------------------------------------------------- */

static tsr_status find_linalg(struct tsr_quant_calibration_source *s, struct tsr_err *err)
{
    const struct tsr_host *host = tsr_plugin_registry_host(s->registry);
    if (!s->linalg)
        s->linalg = host->service ? host->service(host->ctx, TSR_LINALG) : NULL;
    if (!s->linalg || !s->linalg->syrk)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "calibration needs the service %s for Hessians, and the default backend "
                        "does not offer it",
                        TSR_LINALG);
    return TSR_OK;
}

static tsr_status begin_site(struct collect *k, uint64_t i, struct tsr_err *err)
{
    struct collected *c = &k->site[i];
    uint64_t cols = tsr_model_layer_site_cols(k->s->model, k->layer, (enum tsr_site)i), n = 0;
    TSR_TRY(tsr_quant_moments_create(&c->sums, cols, err));
    if (k->need & TSR_NEED_HESSIAN) {
        c->hessian = tsr_mul(cols, cols, &n) ? tsr_new_aligned(n, sizeof(float)) : NULL;
        if (!c->hessian)
            return tsr_fail_nomem(err, n * sizeof(float), "a Hessian");
        memset(c->hessian, 0, n * sizeof(float));
        TSR_TRY(tsr_quant_held_begin(&c->held, tsr_plugin_registry_host(k->s->registry), c->hessian,
                                     cols, cols, err));
    }
    if (k->need & TSR_NEED_TOP)
        TSR_TRY(tsr_quant_gram_create(&c->gram, cols, err));
    if (k->need & TSR_NEED_CROSS && i < TSR_MODEL_SITE_EXPERTS)
        TSR_TRY(tsr_quant_cross_create(&c->cross, tsr_plugin_registry_host(k->s->registry), cols,
                                       k->c->seqlen, err));
    if (k->need & TSR_NEED_INPUTS && i < TSR_MODEL_SITE_EXPERTS) {
        bool fits = tsr_mul(k->s->keep * k->c->seqlen, cols, &n);
        c->inputs = fits ? tsr_new_aligned(n, sizeof(float)) : NULL;
        if (!c->inputs)
            return tsr_fail_nomem(err, n * sizeof(float), "recorded inputs");
    }
    return TSR_OK;
}

static tsr_status begin(struct collect *k, struct tsr_err *err)
{
    const struct tsr_model *m = k->s->model;
    k->site = tsr_new(m->hp.sites, sizeof *k->site);
    if (!k->site)
        return tsr_fail_nomem(err, m->hp.sites * sizeof *k->site, "sums of a layer");
    for (uint64_t i = 0; i < m->hp.sites; i++)
        if (tsr_model_layer_has_site(m, k->layer, (enum tsr_site)i))
            TSR_TRY(begin_site(k, i, err));
    return TSR_OK;
}

static tsr_status tap(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                      uint64_t cols, struct tsr_err *err)
{
    struct collect           *k = ctx;
    struct collected         *c = &k->site[site];
    struct tsr_quant_moments *sum = &c->sums;
    if (sum->cols != cols)
        return tsr_fail(err, TSR_E_BUG, "layer %llu site %d is %llu wide instead of %llu",
                        (unsigned long long)layer, (int)site, (unsigned long long)cols,
                        (unsigned long long)sum->cols);
    if (k->original)
        return c->cross.sums ? tsr_quant_cross_record(&c->cross, x, n, err) : TSR_OK;
    if (k->borrowing && !c->borrowed)
        return TSR_OK;
    if (c->inputs && k->sequence < k->s->keep)
        memcpy(c->inputs + sum->rows * cols, x, n * cols * sizeof *x);
    struct tsr_pool *pool = tsr_plugin_registry_pool(k->s->registry);
    tsr_status       st = tsr_quant_moments_add(sum, pool, x, n, err);
    double           start = tsr_now_s();
    double           share = 2.0 / (double)(k->borrowing ? 1 : k->c->sequences);
    if (st == TSR_OK && c->hessian)
        st = k->s->linalg->syrk(k->s->linalg->ctx, cols, n, (float)share, x, cols, c->hessian, cols,
                                err);
    if (st == TSR_OK && c->cross.sums)
        st = tsr_quant_cross_add(&c->cross, k->s->linalg, (float)share, x, n, err);
    if (st == TSR_OK && c->gram.g)
        st = tsr_quant_gram_add(&c->gram, pool, x, n, err);
    k->syrk_seconds += tsr_now_s() - start;
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, st, "calibration, layer %llu", (unsigned long long)layer);
}

/* The largest eigenvalue of a site's Hessian. */
static tsr_status top(struct collect *k, uint64_t site, double *value, struct tsr_err *err)
{
    struct collected *c = &k->site[site];
    double            start = tsr_now_s(), largest;
    bool              settled;
    *value = NAN;
    if (!c->gram.g)
        return TSR_OK;
    TSR_TRY(tsr_quant_gram_top(&c->gram, tsr_plugin_registry_pool(k->s->registry), &largest,
                               &settled, err));
    if (!settled)
        tsr_logf(TSR_LOG_WARN,
                 "calibration: the largest eigenvalue of the inputs of '%s' still rises after %u "
                 "steps; it is taken as it is, %.6g",
                 TSR_MODEL_SITE_NAME(site), TSR_GRAM_STEPS, largest);
    *value = 2.0 / (double)(c->borrowed ? 1 : k->c->sequences) * largest;
    tsr_quant_gram_free(&c->gram);
    k->syrk_seconds += tsr_now_s() - start;
    return TSR_OK;
}

/* The rule for an expert that no token took: its Hessian is of inputs that are not its own. */
static void damp(float *h, uint64_t cols)
{
    double sum = 0;
    for (uint64_t i = 0; i < cols; i++)
        sum += (double)h[i * cols + i];
    float more = (float)(TSR_BORROWED_DAMPING * sum / (double)cols);
    for (uint64_t i = 0; i < cols; i++)
        h[i * cols + i] += more;
}

static tsr_status finish_site(struct collect *k, uint64_t i, struct tsr_quant_layer_stats *out,
                              struct tsr_err *err)
{
    struct collected *c = &k->site[i];
    if (i < TSR_MODEL_SITE_EXPERTS && c->sums.rows != k->c->tokens)
        return tsr_fail(err, TSR_E_BUG, "site %d saw %llu tokens of %llu", (int)i,
                        (unsigned long long)c->sums.rows, (unsigned long long)k->c->tokens);
    TSR_TRY(tsr_quant_moments_finish(&c->sums, &out->site[i], err));
    TSR_TRY(tsr_quant_held_end(&c->held, true, err));
    if (c->borrowed && c->hessian)
        damp(c->hessian, c->sums.cols);
    TSR_TRY(top(k, i, &out->top[i], err));
    float *cross = NULL;
    TSR_TRY(tsr_quant_cross_take(&c->cross, &cross, err));
    out->site[i].cross = cross;
    out->site[i].hessian = c->hessian;
    out->site[i].inputs = c->inputs;
    out->site[i].input_rows = c->inputs ? k->s->keep * k->c->seqlen : 0;
    out->borrowed[i] = c->borrowed;
    c->hessian = c->inputs = NULL;
    return TSR_OK;
}

/* Converts the sums to statistics; the arrays move to out. */
static tsr_status finish(struct collect *k, struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    TSR_TRY(tsr_quant_layer_stats_new(out, k->s->model->hp.sites, k->c->seqlen, err));
    for (uint64_t i = 0; i < out->sites; i++)
        if (k->site[i].sums.cols)
            TSR_TRY(finish_site(k, i, out, err));
    return TSR_OK;
}

static void collect_free(struct collect *k)
{
    for (uint64_t i = 0; k->site && i < k->s->model->hp.sites; i++) {
        tsr_quant_moments_free(&k->site[i].sums);
        tsr_quant_gram_free(&k->site[i].gram);
        tsr_quant_cross_free(&k->site[i].cross);
        (void)tsr_quant_held_end(&k->site[i].held, false, NULL);
        free(k->site[i].hessian);
        free(k->site[i].inputs);
    }
    free(k->site);
}

/* ---- the layer over all sequences ---------------------------------------- */

/* The sequence that runs next, in the original model, through the open layer under the tap. */
static tsr_status run_original(struct tsr_quant_calibration *c, struct collect *k,
                               struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    float *h = s->original + k->sequence * c->seqlen * s->model->hp.hidden;
    for (uint64_t i = 0; i < s->model->hp.sites; i++)
        tsr_quant_cross_begin(&k->site[i].cross);
    s->original_started = false;
    k->original = true;
    tsr_status st = tsr_engine_stream_run(s->stream, h, c->seqlen, h, err);
    k->original = false;
    return st;
}

/* Experts that no token took see the layer's inputs in the first sequence. */
static tsr_status borrow(struct tsr_quant_calibration *c, struct collect *k, const float *h,
                         struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &k->s->model->hp;
    uint8_t                        *unused = tsr_new(hp->experts, sizeof *unused);
    uint64_t                        n = 0;
    if (!unused)
        return tsr_fail_nomem(err, hp->experts, "experts");
    for (uint64_t i = 0; i < hp->experts; i++) {
        struct collected *in = &k->site[tsr_model_expert_site(i, TSR_MODEL_SITE_FFN_IN)];
        unused[i] = in->sums.rows == 0;
        n += unused[i];
        in->borrowed = unused[i];
        k->site[tsr_model_expert_site(i, TSR_MODEL_SITE_DOWN_IN)].borrowed = unused[i];
    }
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < hp->experts; i++)
        if (unused[i])
            tsr_logf(TSR_LOG_WARN,
                     "calibration, layer %llu: no token takes expert %llu; its statistics are of "
                     "the layer's inputs",
                     (unsigned long long)k->layer, (unsigned long long)i);
    if (n) {
        k->borrowing = true;
        tsr_engine_stream_show_experts(k->s->stream, unused);
        st = tsr_engine_stream_run(k->s->stream, h, c->seqlen, k->s->after, err);
        tsr_engine_stream_show_experts(k->s->stream, NULL);
    }
    free(unused);
    return st;
}

/* The open layer over all sequences under the tap.  Where it is the layer that the next one
 * follows, h moves on. */
static tsr_status run_tapped(struct tsr_quant_calibration *c, struct collect *k, bool move,
                             struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = c->seqlen * s->model->hp.hidden;
    tsr_status                           st = TSR_OK;
    if (move)
        s->started = false;
    bool   sparse = s->model->hp.sparse && s->model->hp.sparse[k->layer];
    float *first = NULL; /* the first sequence before the layer */
    if (sparse && move) {
        first = tsr_new_aligned(step, sizeof *first);
        if (!first)
            return tsr_fail_nomem(err, step * sizeof *first, "hidden states of a sequence");
        memcpy(first, s->h, step * sizeof *first);
    }
    tsr_engine_stream_set_tap(s->stream, tap, k);
    for (; k->sequence < c->sequences && st == TSR_OK; k->sequence++) {
        float *h = s->h + k->sequence * step;
        if (k->need & TSR_NEED_CROSS)
            st = run_original(c, k, err);
        if (st == TSR_OK)
            st = tsr_engine_stream_run(s->stream, h, c->seqlen, move ? h : s->after, err);
    }
    if (sparse && st == TSR_OK)
        st = borrow(c, k, first ? first : s->h, err);
    free(first);
    tsr_engine_stream_set_tap(s->stream, NULL, NULL);
    if (k->need & TSR_NEED_CROSS && st == TSR_OK) {
        s->original_started = true;
        s->original_at++;
    }
    if (move && st == TSR_OK) {
        s->started = true;
        s->at++;
    }
    return st;
}

tsr_status tsr_quant_collect_layer(struct tsr_quant_calibration *c, uint64_t layer, uint64_t need,
                                   const struct tsr_model_overlay *before,
                                   struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    if (need & (TSR_NEED_HESSIAN | TSR_NEED_CROSS))
        TSR_TRY(find_linalg(s, err));
    double begun = tsr_now_s();
    if (!s->started || s->at > layer || s->before != before)
        TSR_TRY(tsr_quant_source_start(c, before, err));
    while (s->at < layer)
        TSR_TRY(tsr_quant_source_advance(c, err));
    if (need & TSR_NEED_CROSS)
        TSR_TRY(tsr_quant_source_original(c, layer, err));
    TSR_TRY(tsr_engine_stream_open_layer(s->stream, layer, NULL, err));
    struct collect k = { .c = c, .s = s, .layer = layer, .need = need };
    tsr_status     st = begin(&k, err);
    if (st == TSR_OK)
        st = run_tapped(c, &k, before == NULL, err);
    *out = (struct tsr_quant_layer_stats){ 0 };
    if (st == TSR_OK)
        st = finish(&k, out, err);
    collect_free(&k);
    if (s->at == c->layers)
        tsr_quant_source_rest(s); /* the pass is over */
    c->hessian_seconds += k.syrk_seconds;
    c->run_seconds += tsr_now_s() - begun - k.syrk_seconds;
    if (st != TSR_OK)
        tsr_quant_layer_stats_free(out);
    return st;
}

tsr_status tsr_quant_calibration_stream(struct tsr_quant_calibration *c, uint64_t layer,
                                        struct tsr_stream **s, struct tsr_err *err)
{
    if (!c->source)
        return tsr_fail(err, TSR_E_INVAL, "this calibration holds no model");
    TSR_TRY(tsr_quant_source_stream(c, err));
    TSR_TRY(tsr_engine_stream_open_layer(c->source->stream, layer, NULL, err));
    *s = c->source->stream;
    return TSR_OK;
}
