/* Statistics of one layer: the hidden states of all sequences through it, with a tap on the input
 * of every linear. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "quant/calibrate_internal.h"
#include "quant/gram.h"
#include "quant/held.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums of one layer while it runs. */
struct collect {
    struct tsr_quant_calibration        *c;
    struct tsr_quant_calibration_source *s;
    uint64_t                             need;
    uint64_t                             sequence; /* that runs now */
    struct tsr_quant_moments             sums[TSR_SITES];
    struct tsr_quant_gram                grams[TSR_SITES];
    float                               *hessian[TSR_SITES], *inputs[TSR_SITES];
    struct tsr_quant_held                held[TSR_SITES]; /* Hessians, while they are summed */
    double                               syrk_seconds;
};

static void free_const(const float **p)
{
    free((void *)(uintptr_t)*p);
    *p = NULL;
}

void tsr_quant_layer_stats_limit(struct tsr_quant_layer_stats *s, uint64_t need)
{
    for (int i = 0; i < TSR_SITES; i++) {
        struct tsr_quant_stats *q = &s->site[i];
        const struct {
            uint64_t      bit;
            const float **array;
        } parts[] = {
            { TSR_NEED_HESSIAN, &q->hessian },   { TSR_NEED_ABSMAX, &q->absmax },
            { TSR_NEED_MEAN, &q->mean },         { TSR_NEED_VARIANCE, &q->variance },
            { TSR_NEED_MEAN_ABS, &q->mean_abs }, { TSR_NEED_INPUTS, &q->inputs },
        };
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (!(need & parts[k].bit))
                free_const(parts[k].array);
        if (!q->inputs)
            q->input_rows = 0;
        if (!(need & TSR_NEED_TOP))
            s->top[i] = NAN;
    }
}

void tsr_quant_layer_stats_free(struct tsr_quant_layer_stats *s)
{
    tsr_quant_layer_stats_limit(s, 0);
    *s = (struct tsr_quant_layer_stats){ 0 };
}

void tsr_quant_source_rest(struct tsr_quant_calibration_source *s)
{
    tsr_engine_stream_destroy(s->stream);
    free(s->h);
    free(s->after);
    s->stream = NULL;
    s->h = s->after = NULL;
    s->started = false;
}

void tsr_quant_source_free(struct tsr_quant_calibration_source *s)
{
    if (!s)
        return;
    tsr_quant_source_rest(s);
    free(s->folder);
    free(s);
}

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

static tsr_status begin(struct collect *k, struct tsr_err *err)
{
    for (int i = 0; i < TSR_SITES; i++) {
        uint64_t cols = tsr_model_site_cols(k->s->model, (enum tsr_site)i), n = 0;
        TSR_TRY(tsr_quant_moments_create(&k->sums[i], cols, err));
        if (k->need & TSR_NEED_HESSIAN) {
            k->hessian[i] = tsr_mul(cols, cols, &n) ? tsr_new_aligned(n, sizeof(float)) : NULL;
            if (!k->hessian[i])
                return tsr_fail_nomem(err, n * sizeof(float), "a Hessian");
            memset(k->hessian[i], 0, n * sizeof(float));
            TSR_TRY(tsr_quant_held_begin(&k->held[i], tsr_plugin_registry_host(k->s->registry),
                                         k->hessian[i], cols, cols, err));
        }
        if (k->need & TSR_NEED_TOP)
            TSR_TRY(tsr_quant_gram_create(&k->grams[i], cols, err));
        if (k->need & TSR_NEED_INPUTS) {
            bool fits = tsr_mul(k->s->keep * k->c->seqlen, cols, &n);
            k->inputs[i] = fits ? tsr_new_aligned(n, sizeof(float)) : NULL;
            if (!k->inputs[i])
                return tsr_fail_nomem(err, n * sizeof(float), "recorded inputs");
        }
    }
    return TSR_OK;
}

static tsr_status tap(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                      uint64_t cols, struct tsr_err *err)
{
    struct collect           *k = ctx;
    struct tsr_quant_moments *sum = &k->sums[site];
    if (sum->cols != cols)
        return tsr_fail(err, TSR_E_BUG, "layer %llu site %d is %llu wide instead of %llu",
                        (unsigned long long)layer, (int)site, (unsigned long long)cols,
                        (unsigned long long)sum->cols);
    if (k->inputs[site] && k->sequence < k->s->keep)
        memcpy(k->inputs[site] + sum->rows * cols, x, n * cols * sizeof *x);
    struct tsr_pool *pool = tsr_plugin_registry_pool(k->s->registry);
    tsr_status       st = tsr_quant_moments_add(sum, pool, x, n, err);
    double           start = tsr_now_s();
    if (st == TSR_OK && k->hessian[site])
        st = k->s->linalg->syrk(k->s->linalg->ctx, cols, n, (float)(2.0 / (double)k->c->sequences),
                                x, cols, k->hessian[site], cols, err);
    if (st == TSR_OK && k->grams[site].g)
        st = tsr_quant_gram_add(&k->grams[site], pool, x, n, err);
    k->syrk_seconds += tsr_now_s() - start;
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, st, "calibration, layer %llu", (unsigned long long)layer);
}

/* The largest eigenvalue of a site's Hessian. */
static tsr_status top(struct collect *k, int site, double *value, struct tsr_err *err)
{
    double start = tsr_now_s(), largest;
    bool   settled;
    *value = NAN;
    if (!k->grams[site].g)
        return TSR_OK;
    TSR_TRY(tsr_quant_gram_top(&k->grams[site], tsr_plugin_registry_pool(k->s->registry), &largest,
                               &settled, err));
    if (!settled)
        tsr_logf(TSR_LOG_WARN,
                 "calibration: the largest eigenvalue of the inputs of '%s' still rises after %u "
                 "steps; it is taken as it is, %.6g",
                 tsr_model_site_name((enum tsr_site)site), TSR_GRAM_STEPS, largest);
    *value = 2.0 / (double)k->c->sequences * largest;
    tsr_quant_gram_free(&k->grams[site]);
    k->syrk_seconds += tsr_now_s() - start;
    return TSR_OK;
}

/* Converts the sums to statistics; the arrays move to out. */
static tsr_status finish(struct collect *k, struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    for (int i = 0; i < TSR_SITES; i++) {
        if (k->sums[i].rows != k->c->tokens)
            return tsr_fail(err, TSR_E_BUG, "site %d saw %llu tokens of %llu", i,
                            (unsigned long long)k->sums[i].rows, (unsigned long long)k->c->tokens);
        TSR_TRY(tsr_quant_moments_finish(&k->sums[i], &out->site[i], err));
        TSR_TRY(tsr_quant_held_end(&k->held[i], true, err));
        TSR_TRY(top(k, i, &out->top[i], err));
        out->site[i].hessian = k->hessian[i];
        out->site[i].inputs = k->inputs[i];
        out->site[i].input_rows = k->inputs[i] ? k->s->keep * k->c->seqlen : 0;
        k->hessian[i] = k->inputs[i] = NULL;
    }
    out->sequence = k->c->seqlen;
    return TSR_OK;
}

static void collect_free(struct collect *k)
{
    for (int i = 0; i < TSR_SITES; i++) {
        tsr_quant_moments_free(&k->sums[i]);
        tsr_quant_gram_free(&k->grams[i]);
        (void)tsr_quant_held_end(&k->held[i], false, NULL);
        free(k->hessian[i]);
        free(k->inputs[i]);
    }
}

/* ---- hidden states ------------------------------------------------------- */

static tsr_status say_memory(const struct tsr_quant_calibration *c, uint64_t hidden,
                             struct tsr_err *err)
{
    char     a[TSR_BYTES_TEXT], b[TSR_BYTES_TEXT];
    uint64_t device;
    TSR_TRY(tsr_engine_stream_estimate(c->source->model, c->seqlen, &device, err));
    tsr_logf(TSR_LOG_INFO,
             "calibration: hidden states of %llu sequences of %llu tokens take %s, the device "
             "at most %s",
             (unsigned long long)c->sequences, (unsigned long long)c->seqlen,
             tsr_format_bytes(a, sizeof a, hidden), tsr_format_bytes(b, sizeof b, device));
    return TSR_OK;
}

static tsr_status need_stream(struct tsr_quant_calibration *c, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    if (s->stream)
        return TSR_OK;
    return tsr_engine_stream_create(&s->stream, s->registry, s->model, c->seqlen, TSR_ACT_F32,
                                    &c->on, err);
}

/* Hidden states after the embedding. */
static tsr_status start(struct tsr_quant_calibration *c, const struct tsr_model_overlay *before,
                        struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = c->seqlen * s->model->hp.hidden, n = 0;
    TSR_TRY(need_stream(c, err));
    if (!s->h) {
        bool fits = tsr_mul(c->tokens, s->model->hp.hidden, &n);
        s->h = fits ? tsr_new_aligned(n, sizeof *s->h) : NULL;
        s->after = tsr_new_aligned(step, sizeof *s->after);
        if (!s->h || !s->after)
            return tsr_fail_nomem(err, n * sizeof *s->h, "hidden states of the calibration");
        TSR_TRY(say_memory(c, n * sizeof *s->h, err));
    }
    s->started = false;
    for (uint64_t i = 0; i < c->sequences; i++)
        TSR_TRY(tsr_engine_stream_embed(s->stream, c->ids + i * c->seqlen, c->seqlen,
                                        s->h + i * step, err));
    s->started = true;
    s->at = 0;
    s->before = before;
    return TSR_OK;
}

/* h through layer `at`.  A failure leaves h half moved: the next call starts again. */
static tsr_status advance(struct tsr_quant_calibration *c, struct tsr_err *err)
{
    struct tsr_quant_calibration_source *s = c->source;
    uint64_t                             step = c->seqlen * s->model->hp.hidden;
    TSR_TRY(tsr_engine_stream_open_layer(s->stream, s->at, s->before, err));
    s->started = false;
    for (uint64_t i = 0; i < c->sequences; i++)
        TSR_TRY(tsr_engine_stream_run(s->stream, s->h + i * step, c->seqlen, s->h + i * step, err));
    s->started = true;
    s->at++;
    return TSR_OK;
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
    tsr_engine_stream_set_tap(s->stream, tap, k);
    for (; k->sequence < c->sequences && st == TSR_OK; k->sequence++) {
        float *h = s->h + k->sequence * step;
        st = tsr_engine_stream_run(s->stream, h, c->seqlen, move ? h : s->after, err);
    }
    tsr_engine_stream_set_tap(s->stream, NULL, NULL);
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
    if (need & TSR_NEED_HESSIAN)
        TSR_TRY(find_linalg(s, err));
    double begun = tsr_now_s();
    if (!s->started || s->at > layer || s->before != before)
        TSR_TRY(start(c, before, err));
    while (s->at < layer)
        TSR_TRY(advance(c, err));
    TSR_TRY(tsr_engine_stream_open_layer(s->stream, layer, NULL, err));
    struct collect k = { .c = c, .s = s, .need = need };
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
    TSR_TRY(need_stream(c, err));
    TSR_TRY(tsr_engine_stream_open_layer(c->source->stream, layer, NULL, err));
    *s = c->source->stream;
    return TSR_OK;
}
