/* KL of every choice in one pass over the layers: probes branch off it, random plans run beside it. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "quant/indicator.h"
#include "quant/kl_internal.h"
#include "quant/scheme_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD 2.0 /* plans lean from few bits to many by powers from 1/2 to 2 */

struct pass {
    struct tsr_quant_kl               *t;
    const struct tsr_quant_kl_options *opt;
    struct tsr_registry               *registry;
    const struct tsr_model            *m;
    struct tsr_quant_calibration      *c;
    struct tsr_kl_states               states;
    struct tsr_scheme_run             *scheme[TSR_KL_CHOICES];
    struct tsr_model_overlay          *o[TSR_KL_CHOICES]; /* of the current layer */
    float                             *h, *copy, *plan;   /* a set each; plan: one for each plan */
    uint64_t                           set;               /* floats of a set */
    double                             start;
};

void tsr_quant_kl_free(struct tsr_quant_kl *t)
{
    for (uint32_t p = 0; p < TSR_KL_PLANS; p++)
        free(t->plan[p].choice);
    free(t->error);
    free(t->figure);
    free(t->probed);
    *t = (struct tsr_quant_kl){ 0 };
}

/* ---- set up ------------------------------------------------------------------------------- */

static tsr_status check(const struct pass *z, struct tsr_err *err)
{
    const struct tsr_quant_kl_options *o = z->opt;
    if (o->n_schemes > TSR_KL_CHOICES || o->n_kv > TSR_KL_CHOICES || o->n_links > TSR_KL_CHOICES ||
        o->n_sums > TSR_KL_CHOICES || o->n_ends > TSR_KL_CHOICES || o->n_k > TSR_KL_CHANNELS ||
        o->plans > TSR_KL_PLANS || o->probes == 0)
        return tsr_fail(err, TSR_E_INVAL, "more choices than can be measured");
    if (z->m->packed)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its weights are packed already; indicators are of an original model",
                        z->m->path);
    if (z->c->layers != z->m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT, "the calibration is of %llu layers, the model has %llu",
                        (unsigned long long)z->c->layers, (unsigned long long)z->m->hp.layers);
    if (z->c->seqlen < 2 || z->c->sequences == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "KL is measured on sequences of 2 tokens or more; raise seqlen");
    return TSR_OK;
}

/* Evenly spaced, the ends among them. */
static void choose_layers(struct tsr_quant_kl *t, uint64_t probes)
{
    if (probes >= t->layers) {
        memset(t->probed, 1, t->layers);
        return;
    }
    for (uint64_t i = 0; i < probes; i++)
        t->probed[probes == 1 ? t->layers / 2 : i * (t->layers - 1) / (probes - 1)] = 1;
}

/* Plan p draws each layer's scheme; the draws of the first lean to the first scheme, those of the last to the original. */
static tsr_status draw_plans(struct pass *z, struct tsr_err *err)
{
    struct tsr_quant_kl *t = z->t;
    uint32_t             n = t->n_schemes + 1;
    for (uint32_t p = 0; p < t->n_plans; p++) {
        double   lean = t->n_plans == 1 ? 0 : 1 - 2 * (double)p / (double)(t->n_plans - 1);
        uint64_t kept = 0;
        t->plan[p].choice = tsr_new(t->layers, 1);
        if (!t->plan[p].choice)
            return tsr_fail_nomem(err, t->layers, "a random plan");
        for (uint64_t l = 0; l < t->layers; l++) {
            double u = pow(tsr_uniform(z->opt->seed, p, l), pow(SPREAD, lean));
            t->plan[p].choice[l] = (uint8_t)fmin(floor(u * (double)n), (double)n - 1);
            kept += t->plan[p].choice[l] == t->n_schemes;
        }
        if (kept && kept == t->layers) /* the original itself says nothing */
            t->plan[p].choice[p % t->layers] = (uint8_t)(t->n_schemes - 1);
    }
    return TSR_OK;
}

/* Forwards of the whole model to come, and comparisons of predictions; the original's one has run. */
static double forwards(const struct pass *z, uint64_t *scores)
{
    const struct tsr_quant_kl *t = z->t;
    double                     layers = (double)(t->layers * (1 + t->n_plans));
    /* compensation: without and with, and once for what its inputs are like */
    const uint32_t kept = z->opt->n_k ? z->opt->n_schemes * (z->opt->n_k + 2) : 0;
    const uint32_t once = z->opt->n_kv + z->opt->n_sums + z->opt->n_ends + kept;
    *scores = t->n_plans + once;
    for (uint64_t l = 0; l < t->layers; l++) {
        double rest = (double)(t->layers - l);
        *scores += t->probed[l] ? t->n_schemes + (l + 1 < t->layers ? z->opt->n_links : 0) : 0;
        layers += t->probed[l] ? rest * t->n_schemes + (rest - 1) * z->opt->n_links : 0;
    }
    return layers / (double)t->layers + once;
}

static tsr_status set_up(struct pass *z, struct tsr_err *err)
{
    const struct tsr_quant_kl_options *o = z->opt;
    struct tsr_quant_kl               *t = z->t;
    uint64_t                           n = t->layers * (o->n_schemes ? o->n_schemes : 1), all;
    char                               text[TSR_BYTES_TEXT];
    double                             start = tsr_now_s();
    t->error = tsr_new(n, sizeof *t->error);
    t->figure = tsr_new(n, sizeof *t->figure);
    t->probed = tsr_new(t->layers, 1);
    if (!t->error || !t->figure || !t->probed)
        return tsr_fail_nomem(err, n * sizeof *t->figure, "indicators");
    choose_layers(t, o->probes);
    TSR_TRY(draw_plans(z, err));
    z->set = t->sequences * z->c->seqlen * z->m->hp.hidden;
    if (tsr_mul(z->set, t->n_plans + 2, &all)) {
        z->h = tsr_new_aligned(z->set, sizeof *z->h);
        z->copy = tsr_new_aligned(z->set, sizeof *z->copy);
        z->plan = tsr_new_aligned(t->n_plans ? z->set * t->n_plans : 1, sizeof *z->plan);
    }
    if (!z->h || !z->copy || !z->plan)
        return tsr_fail_nomem(err, z->set * (t->n_plans + 2) * sizeof *z->h,
                              "hidden states of the KL probes; fewer sequences or plans take less");
    for (uint32_t s = 0; s < t->n_schemes; s++)
        TSR_TRY(tsr_quant_scheme_open(&z->scheme[s], o->scheme[s], z->registry, z->m, err));
    TSR_TRY(tsr_kl_states_open(&z->states, z->registry, z->m, z->c, t->sequences, err));
    double               one = tsr_now_s() - start;
    struct tsr_kl_figure same;
    uint64_t             scores;
    start = tsr_now_s();
    TSR_TRY(tsr_kl_states_score(&z->states, z->states.end, &same, err));
    t->forwards = forwards(z, &scores);
    t->said_s = t->forwards * one + (double)scores * (tsr_now_s() - start);
    tsr_logf(
        TSR_LOG_INFO,
        "KL indicators: %.1f forwards of %llu tokens to come, about %.2g min by the first one, "
        "and packing each layer %u times; hidden states take %s",
        t->forwards, (unsigned long long)t->tokens, t->said_s / 60, t->n_schemes,
        tsr_format_bytes(text, sizeof text, (all + z->set) * sizeof *z->h));
    z->start = tsr_now_s();
    return TSR_OK;
}

/* ---- one layer ---------------------------------------------------------------------------- */

/* Squared error of the layer's outputs, as if inputs of a linear were alike and independent. */
static double error_of(const struct pass *z, uint64_t layer, const struct tsr_model_overlay *o,
                       const struct tsr_quant_layer_stats *s)
{
    double sum = 0;
    for (uint64_t i = 0; i < z->m->hp.linears; i++) {
        const struct tsr_model_packed *p = o->lin[layer][i];
        enum tsr_linear_id             id = (enum tsr_linear_id)i;
        enum tsr_site                  site = tsr_model_linear_site(id);
        double                         mean, variance, share = 1;
        if (!p || s->borrowed[site])
            continue;
        if (id >= TSR_MODEL_EXPERTS)
            share = (double)s->site[site].tokens / (double)z->c->tokens;
        tsr_quant_stats_overall(&s->site[site], &mean, &variance);
        sum += share * p->squared_error * (mean * mean + variance);
    }
    return sum;
}

static tsr_status pack(struct pass *z, uint64_t layer, const struct tsr_quant_layer_stats *s,
                       struct tsr_err *err)
{
    for (uint32_t k = 0; k < z->t->n_schemes; k++) {
        TSR_TRY(tsr_model_overlay_create(&z->o[k], z->m->hp.layers, z->m->hp.linears, err));
        tsr_status st = tsr_quant_scheme_layer(z->scheme[k], layer, z->c, s, z->o[k], err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "%s", z->opt->scheme_text[k]);
        z->t->error[layer * z->t->n_schemes + k] = error_of(z, layer, z->o[k], s);
    }
    return TSR_OK;
}

static void unpack(struct pass *z)
{
    for (uint32_t k = 0; k < TSR_KL_CHOICES; k++) {
        tsr_model_overlay_destroy(z->o[k]);
        z->o[k] = NULL;
    }
}

static tsr_status probe(struct pass *z, uint64_t layer, struct tsr_err *err)
{
    struct tsr_quant_kl *t = z->t;
    for (uint32_t k = 0; k < t->n_schemes; k++) {
        TSR_TRY(tsr_kl_states_layer(&z->states, layer, z->o[k], z->h, z->copy, err));
        TSR_TRY(tsr_kl_states_rest(&z->states, layer + 1, z->copy, err));
        TSR_TRY(
            tsr_kl_states_score(&z->states, z->copy, &t->figure[layer * t->n_schemes + k], err));
    }
    return TSR_OK;
}

/* z->h is behind the layer: what a link there does. */
static tsr_status probe_links(struct pass *z, uint64_t layer, struct tsr_err *err)
{
    struct tsr_kl_figure f;
    for (uint32_t k = 0; k < z->opt->n_links; k++) {
        memcpy(z->copy, z->h, z->set * sizeof *z->copy);
        TSR_TRY(tsr_kl_states_send(&z->states, z->opt->link[k], layer, z->copy, err));
        TSR_TRY(tsr_kl_states_rest(&z->states, layer + 1, z->copy, err));
        TSR_TRY(tsr_kl_states_score(&z->states, z->copy, &f, err));
        z->t->link[k].kl += f.kl;
        z->t->link[k].half += f.half;
    }
    return TSR_OK;
}

static tsr_status one_layer(struct pass *z, uint64_t layer, const struct tsr_quant_layer_stats *s,
                            struct tsr_err *err)
{
    struct tsr_quant_kl *t = z->t;
    TSR_TRY(pack(z, layer, s, err));
    if (t->probed[layer])
        TSR_TRY(probe(z, layer, err));
    for (uint32_t p = 0; p < t->n_plans; p++) {
        uint8_t c = t->plan[p].choice[layer];
        float  *x = z->plan + p * z->set;
        TSR_TRY(
            tsr_kl_states_layer(&z->states, layer, c < t->n_schemes ? z->o[c] : NULL, x, x, err));
    }
    TSR_TRY(tsr_kl_states_layer(&z->states, layer, NULL, z->h, z->h, err));
    return t->probed[layer] && layer + 1 < t->layers ? probe_links(z, layer, err) : TSR_OK;
}

static tsr_status all_layers(struct pass *z, struct tsr_err *err)
{
    TSR_TRY(tsr_kl_states_embed(&z->states, z->h, err));
    for (uint32_t p = 0; p < z->t->n_plans; p++)
        memcpy(z->plan + p * z->set, z->h, z->set * sizeof *z->h);
    for (uint64_t l = 0; l < z->t->layers; l++) {
        struct tsr_quant_layer_stats s = { 0 };
        uint64_t                     need = TSR_NEED_MEAN | TSR_NEED_VARIANCE, more = 0;
        for (uint32_t k = 0; k < z->t->n_schemes; k++) {
            TSR_TRY(tsr_quant_scheme_need(z->scheme[k], l, &more, err));
            need |= more;
        }
        TSR_TRY(tsr_quant_calibration_layer(z->c, l, need, NULL, &s, err));
        tsr_status st = tsr_model_open_layer(z->m, l, err);
        if (st == TSR_OK) {
            st = one_layer(z, l, &s, err);
            tsr_model_close_layer(z->m, l);
        }
        unpack(z);
        tsr_quant_layer_stats_free(&s);
        if (st != TSR_OK)
            return st;
        tsr_progress("KL indicators", l + 1, z->t->layers);
    }
    return TSR_OK;
}

/* ---- the rest ----------------------------------------------------------------------------- */

static tsr_status whole(struct pass *z, struct tsr_err *err)
{
    struct tsr_quant_kl               *t = z->t;
    const struct tsr_quant_kl_options *o = z->opt;
    uint64_t                           borders = 0;
    for (uint32_t p = 0; p < t->n_plans; p++)
        TSR_TRY(tsr_kl_states_score(&z->states, z->plan + p * z->set, &t->plan[p].measured, err));
    for (uint64_t l = 0; l + 1 < t->layers; l++)
        borders += t->probed[l];
    for (uint32_t k = 0; k < o->n_links && borders; k++) {
        t->link[k].kl /= (double)borders;
        t->link[k].half /= (double)borders;
    }
    for (uint32_t k = 0; k < o->n_kv; k++)
        TSR_TRY(tsr_kl_states_engine(&z->states, o->kv[k], NULL, 0, z->copy, &t->kv[k], err));
    for (uint32_t k = 0; k < o->n_sums; k++)
        TSR_TRY(tsr_kl_states_engine(&z->states, TSR_F32, o->sum[k], o->ranks, z->copy, &t->sum[k],
                                     err));
    for (uint32_t k = 0; k < o->n_ends; k++)
        TSR_TRY(tsr_kl_states_ends(&z->states, o->end[k], z->copy, &t->end[k], err));
    for (uint32_t k = 0; k < o->n_schemes && o->n_k; k++)
        TSR_TRY(tsr_kl_states_kept(&z->states, z->c, o, k, z->copy, t->left[k], err));
    return TSR_OK;
}

tsr_status tsr_quant_kl_run(struct tsr_quant_kl *t, struct tsr_registry *r,
                            const struct tsr_model *m, struct tsr_quant_calibration *c,
                            const struct tsr_quant_kl_options *opt, struct tsr_err *err)
{
    struct pass z = { .t = t, .opt = opt, .registry = r, .m = m, .c = c };
    *t = (struct tsr_quant_kl){ .layers = m->hp.layers,
                                .seqlen = c->seqlen,
                                .n_schemes = opt->n_schemes,
                                .n_plans = opt->n_schemes ? opt->plans : 0 };
    t->sequences = opt->sequences && opt->sequences < c->sequences ? opt->sequences : c->sequences;
    t->tokens = t->sequences * t->seqlen;
    tsr_status st = check(&z, err);
    if (st == TSR_OK)
        st = set_up(&z, err);
    if (st == TSR_OK)
        st = all_layers(&z, err);
    if (st == TSR_OK)
        st = whole(&z, err);
    if (st == TSR_OK) {
        tsr_quant_kl_fit(t);
        tsr_quant_kl_map(t);
        t->seconds = tsr_now_s() - z.start;
    }
    tsr_kl_states_close(&z.states);
    for (uint32_t k = 0; k < TSR_KL_CHOICES; k++)
        tsr_quant_scheme_close(z.scheme[k]);
    free(z.h);
    free(z.copy);
    free(z.plan);
    if (st != TSR_OK)
        tsr_quant_kl_free(t);
    return st;
}
