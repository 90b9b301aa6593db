/* Indicators of a model, one layer at a time: statistics, packed layers of every width, tables. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "quant/indicator_internal.h"
#include "quant/scheme_run.h"

#include <math.h>
#include <stdlib.h>

#define ORIGINAL_BITS 16u

#define HAS(t, i) ((t)->kinds >> (i)&1u)

struct run {
    struct tsr_quant_indicators              *t;
    struct tsr_registry                      *registry;
    const struct tsr_model                   *m;
    struct tsr_quant_calibration             *c;
    const struct tsr_quant_indicator_options *opt;
    struct tsr_scheme_run                    *scheme[TSR_INDICATOR_BITS];
    struct tsr_model_overlay                 *o[TSR_INDICATOR_BITS]; /* of the current layer */
    struct tsr_measure                       *measure;
    double                                    pack_s; /* spent in quantizers */
};

void tsr_quant_indicators_free(struct tsr_quant_indicators *t)
{
    for (int i = 0; i < TSR_QUANT_INDICATORS; i++) {
        free(t->omega[i]);
        free(t->expert[i]);
    }
    *t = (struct tsr_quant_indicators){ 0 };
}

static double *row(struct run *r, enum tsr_indicator i, uint64_t layer)
{
    return r->t->omega[i] + layer * r->t->n_bits;
}

/* Adds what a linear loses at width b to its layer's, and to its expert's. */
static void add(struct run *r, enum tsr_indicator i, uint64_t layer, enum tsr_linear_id linear,
                uint32_t b, double omega)
{
    row(r, i, layer)[b] += omega;
    if (linear >= TSR_MODEL_EXPERTS) {
        uint64_t expert = (uint64_t)(linear - TSR_MODEL_EXPERTS) / TSR_EXPERT_LINEARS;
        r->t->expert[i][(layer * r->t->experts + expert) * r->t->n_bits + b] += omega;
    }
}

/* The share of all tokens that a linear is used for. */
static double share_of(const struct run *r, const struct tsr_quant_layer_stats *s,
                       enum tsr_linear_id linear)
{
    enum tsr_site site = tsr_model_linear_site(linear);
    if (linear < TSR_MODEL_EXPERTS)
        return 1;
    return s->borrowed[site] ? 0 : (double)s->site[site].tokens / (double)r->c->tokens;
}

/* Whether a table is a sum over linears. */
static bool by_linear(int i)
{
    return i == TSR_QUANT_IND_VARIANCE || i == TSR_QUANT_IND_VARIANCE_STOCHASTIC ||
           i == TSR_QUANT_IND_HESSIAN;
}

static bool packs(const struct run *r, uint32_t b)
{
    return r->opt->bits[b] < ORIGINAL_BITS &&
           (HAS(r->t, TSR_QUANT_IND_HESSIAN) || HAS(r->t, TSR_QUANT_IND_MEASURED));
}

/* ---- set up --------------------------------------------------------------- */

static tsr_status check(const struct run *r, struct tsr_err *err)
{
    const struct tsr_quant_indicator_options *o = r->opt;
    if (o->n_bits == 0 || o->n_bits > TSR_INDICATOR_BITS)
        return tsr_fail(err, TSR_E_INVAL, "indicators of %u widths", o->n_bits);
    for (uint32_t b = 0; b < o->n_bits; b++)
        if (o->bits[b] < 2 || o->bits[b] > ORIGINAL_BITS || (b && o->bits[b] <= o->bits[b - 1]))
            return tsr_fail(err, TSR_E_INVAL, "widths are 2 to 16 bits, ascending");
    if (r->m->packed)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its weights are packed already; indicators are of an original model",
                        r->m->path);
    if (r->c->layers != r->m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT, "the calibration is of %llu layers, the model has %llu",
                        (unsigned long long)r->c->layers, (unsigned long long)r->m->hp.layers);
    if (HAS(r->t, TSR_QUANT_IND_MEASURED) && r->c->seqlen < 2)
        return tsr_fail(err, TSR_E_INPUT,
                        "measured indicators need sequences of 2 tokens or more; raise seqlen");
    return TSR_OK;
}

static tsr_status set_up(struct run *r, struct tsr_err *err)
{
    uint64_t n = r->m->hp.layers * r->opt->n_bits, sequences = r->opt->sequences;
    struct tsr_quant_indicators *t = r->t;
    TSR_TRY(check(r, err));
    for (int i = 0; i < TSR_QUANT_INDICATORS; i++)
        if (HAS(t, i) && !(t->omega[i] = tsr_new(n, sizeof *t->omega[i])))
            return tsr_fail_nomem(err, n * sizeof *t->omega[i], "indicators");
    for (int i = 0; i < TSR_QUANT_INDICATORS && t->experts; i++)
        if (HAS(t, i) && by_linear(i) &&
            !(t->expert[i] = tsr_new(n * t->experts, sizeof *t->expert[i])))
            return tsr_fail_nomem(err, n * t->experts * sizeof *t->expert[i], "indicators");
    for (uint32_t b = 0; b < r->opt->n_bits; b++)
        if (packs(r, b))
            TSR_TRY(
                tsr_quant_scheme_open(&r->scheme[b], r->opt->schemes[b], r->registry, r->m, err));
    if (!HAS(t, TSR_QUANT_IND_MEASURED))
        return TSR_OK;
    double start = tsr_now_s();
    t->sequences = sequences && sequences < r->c->sequences ? sequences : r->c->sequences;
    tsr_status st = tsr_quant_measure_create(&r->measure, r->registry, r->m, r->c, t->sequences,
                                             r->opt->n_bits, err);
    t->seconds[TSR_QUANT_IND_MEASURED] += tsr_now_s() - start;
    return st;
}

/* ---- one layer ------------------------------------------------------------ */

static tsr_status variance(struct run *r, uint64_t layer, const struct tsr_quant_layer_stats *s,
                           struct tsr_err *err)
{
    double start = tsr_now_s();
    for (uint64_t i = 0; i < r->m->hp.linears; i++) {
        const struct tsr_matrix *w = &r->m->layers[layer].lin[i].w;
        struct tsr_quant_extents e;
        enum tsr_linear_id       id = (enum tsr_linear_id)i;
        double                   mean, var, share;
        if (!w->data)
            continue;
        share = share_of(r, s, id);
        TSR_TRY(tsr_quant_extents_of(w, &e, err));
        tsr_quant_stats_overall(&s->site[tsr_model_linear_site(id)], &mean, &var);
        for (uint32_t b = 0; b < r->opt->n_bits; b++) {
            if (r->opt->bits[b] >= ORIGINAL_BITS)
                continue;
            double sq =
                tsr_quant_extents_step_sq(&e, r->opt->bits[b], r->opt->step, r->opt->symmetric);
            if (HAS(r->t, TSR_QUANT_IND_VARIANCE))
                add(r, TSR_QUANT_IND_VARIANCE, layer, id, b,
                    share * tsr_quant_omega_variance(w->cols, sq, mean, var, false));
            if (HAS(r->t, TSR_QUANT_IND_VARIANCE_STOCHASTIC))
                add(r, TSR_QUANT_IND_VARIANCE_STOCHASTIC, layer, id, b,
                    share * tsr_quant_omega_variance(w->cols, sq, mean, var, true));
        }
    }
    r->t->seconds[TSR_QUANT_IND_VARIANCE] += tsr_now_s() - start;
    r->t->seconds[TSR_QUANT_IND_VARIANCE_STOCHASTIC] += tsr_now_s() - start;
    return TSR_OK;
}

static void hessian(struct run *r, uint64_t layer, const struct tsr_quant_layer_stats *s)
{
    double start = tsr_now_s();
    for (uint32_t b = 0; b < r->opt->n_bits; b++)
        for (uint64_t i = 0; i < r->m->hp.linears && r->o[b]; i++) {
            const struct tsr_model_packed *p = r->o[b]->lin[layer][i];
            enum tsr_linear_id             id = (enum tsr_linear_id)i;
            enum tsr_site                  site = tsr_model_linear_site(id);
            if (p && s->top && !s->borrowed[site]) /* a linear that stays original has no error */
                add(r, TSR_QUANT_IND_HESSIAN, layer, id, b, s->top[site] * p->squared_error);
        }
    r->t->seconds[TSR_QUANT_IND_HESSIAN] += tsr_now_s() - start;
}

static tsr_status measure(struct run *r, uint64_t layer, struct tsr_err *err)
{
    double     start = tsr_now_s();
    tsr_status st = tsr_quant_measure_layer(r->measure, layer, r->o,
                                            row(r, TSR_QUANT_IND_MEASURED, layer), err);
    r->t->seconds[TSR_QUANT_IND_MEASURED] += tsr_now_s() - start;
    return st;
}

static uint64_t own_need(const struct run *r)
{
    uint64_t need = 0;
    if (HAS(r->t, TSR_QUANT_IND_VARIANCE) || HAS(r->t, TSR_QUANT_IND_VARIANCE_STOCHASTIC))
        need |= TSR_NEED_MEAN | TSR_NEED_VARIANCE;
    if (HAS(r->t, TSR_QUANT_IND_HESSIAN))
        need |= TSR_NEED_TOP;
    return need;
}

/* The layer packed by each width's scheme. */
static tsr_status pack(struct run *r, uint64_t layer, const struct tsr_quant_layer_stats *s,
                       struct tsr_err *err)
{
    double start = tsr_now_s();
    for (uint32_t b = 0; b < r->opt->n_bits; b++) {
        if (!r->scheme[b])
            continue;
        TSR_TRY(tsr_model_overlay_create(&r->o[b], r->m->hp.layers, r->m->hp.linears, err));
        tsr_status st = tsr_quant_scheme_layer(r->scheme[b], layer, r->c, s, r->o[b], err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "%u bits", r->opt->bits[b]);
    }
    r->pack_s += tsr_now_s() - start;
    return TSR_OK;
}

static void unpack(struct run *r)
{
    for (uint32_t b = 0; b < TSR_INDICATOR_BITS; b++) {
        tsr_model_overlay_destroy(r->o[b]);
        r->o[b] = NULL;
    }
}

static tsr_status one_layer(struct run *r, uint64_t layer, const struct tsr_quant_layer_stats *s,
                            struct tsr_err *err)
{
    TSR_TRY(pack(r, layer, s, err));
    if (HAS(r->t, TSR_QUANT_IND_VARIANCE) || HAS(r->t, TSR_QUANT_IND_VARIANCE_STOCHASTIC))
        TSR_TRY(variance(r, layer, s, err));
    if (HAS(r->t, TSR_QUANT_IND_HESSIAN))
        hessian(r, layer, s);
    if (HAS(r->t, TSR_QUANT_IND_RANDOM))
        tsr_quant_omega_random(r->opt->seed, layer, r->opt->bits, r->opt->n_bits,
                               row(r, TSR_QUANT_IND_RANDOM, layer));
    return HAS(r->t, TSR_QUANT_IND_MEASURED) ? measure(r, layer, err) : TSR_OK;
}

static tsr_status all_layers(struct run *r, struct tsr_err *err)
{
    for (uint64_t l = 0; l < r->m->hp.layers; l++) {
        struct tsr_quant_layer_stats s = { 0 };
        uint64_t                     need = own_need(r);
        for (uint32_t b = 0; b < r->opt->n_bits; b++) {
            uint64_t more = 0;
            if (r->scheme[b])
                TSR_TRY(tsr_quant_scheme_need(r->scheme[b], l, &more, err));
            need |= more;
        }
        if (need)
            TSR_TRY(tsr_quant_calibration_layer(r->c, l, need, NULL, &s, err));
        tsr_status st = tsr_model_open_layer(r->m, l, err);
        if (st == TSR_OK) {
            st = one_layer(r, l, &s, err);
            tsr_model_close_layer(r->m, l);
        }
        unpack(r);
        tsr_quant_layer_stats_free(&s);
        if (st != TSR_OK)
            return st;
        tsr_progress("indicators", l + 1, r->m->hp.layers);
    }
    return TSR_OK;
}

/* Converts losses to differences; 16 bits are the original. */
static tsr_status finish(struct run *r, struct tsr_err *err)
{
    struct tsr_quant_indicators *t = r->t;
    double                       passes = r->c->run_seconds, start = tsr_now_s();
    t->seconds[TSR_QUANT_IND_VARIANCE] += passes;
    t->seconds[TSR_QUANT_IND_VARIANCE_STOCHASTIC] += passes;
    t->seconds[TSR_QUANT_IND_HESSIAN] += passes + r->c->hessian_seconds + r->pack_s;
    if (!r->measure)
        return TSR_OK;
    TSR_TRY(tsr_quant_measure_original(r->measure, &t->loss, &t->tokens, err));
    for (uint64_t i = 0; i < t->layers * t->n_bits; i++)
        if (t->bits[i % t->n_bits] < ORIGINAL_BITS)
            t->omega[TSR_QUANT_IND_MEASURED][i] -= t->loss;
    t->seconds[TSR_QUANT_IND_MEASURED] += tsr_now_s() - start + r->pack_s;
    return TSR_OK;
}

tsr_status tsr_quant_indicators_run(struct tsr_quant_indicators *out, struct tsr_registry *registry,
                                    const struct tsr_model *m, struct tsr_quant_calibration *c,
                                    const struct tsr_quant_indicator_options *opt,
                                    struct tsr_err                           *err)
{
    *out = (struct tsr_quant_indicators){
        .layers = m->hp.layers, .n_bits = opt->n_bits, .experts = m->hp.experts, .kinds = opt->kinds
    };
    struct run r = { .t = out, .registry = registry, .m = m, .c = c, .opt = opt };
    for (uint32_t b = 0; b < opt->n_bits && b < TSR_INDICATOR_BITS; b++)
        out->bits[b] = opt->bits[b];
    tsr_status st = set_up(&r, err);
    if (st == TSR_OK)
        st = all_layers(&r, err);
    if (st == TSR_OK)
        st = finish(&r, err);
    for (uint32_t b = 0; b < TSR_INDICATOR_BITS; b++)
        tsr_quant_scheme_close(r.scheme[b]);
    tsr_quant_measure_destroy(r.measure);
    if (st != TSR_OK)
        tsr_quant_indicators_free(out);
    return st;
}

double tsr_quant_indicators_tau(const struct tsr_quant_indicators *t, enum tsr_indicator kind,
                                int b)
{
    const double *x = t->omega[kind], *y = t->omega[TSR_QUANT_IND_MEASURED];
    uint64_t      n = 0, total = t->layers * t->n_bits;
    double       *pair = x && y ? tsr_new(2 * total, sizeof *pair) : NULL, tau = NAN;
    if (!pair)
        return NAN;
    for (uint64_t i = 0; i < total; i++)
        if (t->bits[i % t->n_bits] < ORIGINAL_BITS && (b < 0 || i % t->n_bits == (uint64_t)b)) {
            pair[n] = x[i];
            pair[total + n++] = y[i];
        }
    tau = tsr_quant_kendall_tau(pair, pair + total, n);
    free(pair);
    return tau;
}
