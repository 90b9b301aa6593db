/* Regressions over the points of a device profile, and rooflines. */
#include "plan/cost/fit.h"

#include "base/mem.h"
#include "engine/delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH (TSR_PLAN_FEATURES + 2u) /* points from which the datasheet does not pull any more */
#define PULL                                                                                       \
    0.1 /* weight of a coefficient's relative distance from the datasheet's, compared with a
         * relative error of 1 at a point: a prior where points give no information */

void tsr_plan_work_of_rule(const struct tsr_model_delta *d, struct tsr_plan_work *w)
{
    w->attend = w->kv = 0;
    w->state = (double)tsr_delta_state_floats(d);
    /* each number of a state: read, multiplied by what stays, added to, and read again */
    w->steps = 4.0 * d->value_heads * d->key_dim * d->value_dim +
               d->kernel * (double)tsr_delta_channels(d);
}

/* q, or q_a and q_b; kv_a and kv_b; o. */
static double latent_weights(const struct tsr_plan_point *p)
{
    const struct tsr_model_latent *l = &p->latent;
    double heads = (double)p->heads, hidden = (double)p->hidden, rank = (double)l->rank;
    double q = heads * ((double)l->nope + l->rope), q_rank = (double)l->q_rank;
    return (q_rank > 0 ? q_rank * (hidden + q) : hidden * q) + hidden * (rank + l->rope) +
           rank * heads * ((double)l->nope + l->v) + hidden * heads * l->v;
}

/* Weights around attention, or around the delta rule: q, k, v, z, b, a and o. */
static double attention_weights(const struct tsr_plan_point *p)
{
    const struct tsr_model_delta *d = &p->delta;
    double q = (double)p->heads * p->head_dim, kv = (double)p->kv_heads * p->head_dim;
    double keys = (double)d->key_heads * d->key_dim, values = (double)d->value_heads * d->value_dim;
    return (double)p->hidden * (d->value_heads ? 2 * keys + 3 * values + 2.0 * d->value_heads
                                               : (p->attn_gate ? 3 : 2) * q + 2 * kv);
}

void tsr_plan_work_of_point(const struct tsr_plan_point *p, struct tsr_plan_work *w)
{
    double h = (double)p->hidden, each = (p->gated ? 3 : 2) * h;
    double attention = p->latent.rank ? latent_weights(p) : attention_weights(p);
    double always = attention + each * (double)p->shared_ffn, ffn = each * (double)p->ffn;
    double tokens = p->phase == TSR_PLAN_PREFILL ? (double)p->v * (double)p->s : (double)p->v;
    double used = 1, read = 1;
    if (p->experts) { /* tokens are spread over them: engine/stopwatch.c */
        used = p->used;
        read = p->experts * (1 - pow(1 - used / p->experts, tokens));
    }
    *w = (struct tsr_plan_work){ .weights = always + used * ffn,
                                 .read = always + read * ffn,
                                 .hidden = h,
                                 .attend = (double)p->heads * (double)p->head_dim,
                                 .kv = 2 * (double)p->kv_heads * (double)p->head_dim };
    if (p->delta.value_heads)
        tsr_plan_work_of_rule(&p->delta, w);
}

/* Positions that a token after t others attends to: at most the window. */
static double seen(const struct tsr_plan_work *w, double t)
{
    return w->window > 0 ? fmin(t + 1, w->window) : t + 1;
}

void tsr_plan_features(const struct tsr_plan_work *w, enum tsr_phase phase, double v, double s,
                       double t, double f[TSR_PLAN_FEATURES])
{
    f[0] = w->read;
    if (phase == TSR_PLAN_PREFILL) {
        double pairs = v * s * (s + 2 * t);
        if (w->window > 0)
            pairs = fmin(pairs, 2 * v * s * w->window);
        f[1] = v * w->hidden;
        f[2] = s * w->hidden;
        f[3] = v * s * w->weights;
        f[4] = w->state > 0 ? v * s * w->steps : pairs * w->attend;
    } else { /* a state is read and written, F32 where K and V are F16 */
        f[1] = v * w->weights;
        f[2] = w->state > 0 ? v * 4 * w->state : v * seen(w, t) * w->kv;
        f[3] = w->state > 0 ? 0 : seen(w, t) * w->hidden;
        f[4] = 0;
    }
}

bool tsr_plan_fit_same_shape(const struct tsr_plan_work *a, const struct tsr_plan_work *b)
{
    return a->weights == b->weights && a->hidden == b->hidden && a->attend == b->attend &&
           a->kv == b->kv && a->state == b->state;
}

/* ---- roofline -------------------------------------------------------------------------------- */

/* The entry with the highest `above` that the tokens are above; where there is none, the lowest. */
const struct tsr_plan_kernel_speed *tsr_plan_profile_kernel(const struct tsr_plan_profile *p,
                                                            const char *kernel, double tokens)
{
    const struct tsr_plan_kernel_speed *best = NULL;
    for (uint64_t i = 0; i < p->n_kernels; i++) {
        const struct tsr_plan_kernel_speed *k = &p->kernels[i];
        if (strcmp(k->kernel, kernel) != 0)
            continue;
        bool fits = tokens > (double)k->above, had = best && tokens > (double)best->above;
        if (!best || (fits ? !had || k->above > best->above : !had && k->above < best->above))
            best = k;
    }
    return best;
}

/* ms for a weight read, converted before that, and times a token. */
static void rates(const struct tsr_plan_profile *p, const struct tsr_plan_kernel_speed *k,
                  enum tsr_phase phase, const struct tsr_plan_work *w, double *read,
                  double *convert, double *product)
{
    double bytes = k->bytes_per_weight > 0 ? k->bytes_per_weight
                   : w->bytes > 0          ? w->bytes / w->read
                                           : 2;
    *read = 1e3 * bytes / (p->bandwidth * k->read[phase]);
    *convert = 1e3 * k->convert / (p->bandwidth * k->read[phase]);
    *product = 1e3 * 2 / (k->ops * k->compute[phase]);
}

/* The roofline as coefficients of the features; their sum is at least the roofline. */
static void roofline_features(const struct tsr_plan_profile      *p,
                              const struct tsr_plan_kernel_speed *k, enum tsr_phase phase,
                              const struct tsr_plan_work *w, double kv_bytes,
                              double c[TSR_PLAN_FEATURES])
{
    double read, convert, product;
    rates(p, k, phase, w, &read, &convert, &product);
    memset(c, 0, TSR_PLAN_FEATURES * sizeof *c);
    c[0] = read + convert + p->overhead_ms[phase] / w->read;
    if (phase == TSR_PLAN_PREFILL) {
        c[3] = product;
        c[4] = product; /* two products for each pair, and a token sees half of them */
    } else {
        c[1] = product;
        c[2] = 1e3 * kv_bytes / (p->bandwidth * k->read[phase]);
    }
}

double tsr_plan_roofline_ms(const struct tsr_plan_profile *p, const struct tsr_plan_kernel_speed *k,
                            enum tsr_phase phase, const struct tsr_plan_work *w, double kv_bytes,
                            double v, double s, double t)
{
    double read, convert, product, f[TSR_PLAN_FEATURES];
    rates(p, k, phase, w, &read, &convert, &product);
    tsr_plan_features(w, phase, v, s, t, f);
    kv_bytes = w->state > 0 ? 2 : kv_bytes;
    double more = w->read / w->weights;
    double linears = (convert * more + fmax(read * more, product * v * s)) * w->weights;
    double attention = phase == TSR_PLAN_PREFILL
                           ? product * f[4]
                           : 1e3 * kv_bytes / (p->bandwidth * k->read[phase]) * f[2];
    return linears + attention + p->overhead_ms[phase];
}

/* ---- regression ------------------------------------------------------------------------------ */

struct group {
    const struct tsr_plan_profile *p;
    struct tsr_plan_fit           *fit;
    double                        *a, *b; /* room for all points and the pulls */
    uint64_t                       rows;
};

static bool belongs(const struct tsr_plan_fit *f, const struct tsr_plan_point *p)
{
    struct tsr_plan_work w;
    uint64_t             tokens = p->phase == TSR_PLAN_PREFILL ? p->v * p->s : p->v;
    tsr_plan_work_of_point(p, &w);
    return p->phase == f->phase && strcmp(p->kernel, f->kernel) == 0 && tokens > f->knots[0] &&
           tokens <= f->knots[1] && (f->pooled || tsr_plan_fit_same_shape(&w, &f->shape));
}

static void note_range(struct tsr_plan_fit *f, const struct tsr_plan_point *p)
{
    const double at[3] = { (double)p->v, (double)p->s, (double)p->t };
    for (int i = 0; i < 3; i++) {
        f->low[i] = f->points == 0 ? at[i] : fmin(f->low[i], at[i]);
        f->high[i] = f->points == 0 ? at[i] : fmax(f->high[i], at[i]);
    }
    f->points++;
}

/* Rows of relative errors: features over the measured time, against 1. */
static void collect(struct group *g)
{
    g->rows = 0;
    g->fit->points = 0;
    for (uint64_t i = 0; i < g->p->n_points; i++) {
        const struct tsr_plan_point *p = &g->p->points[i];
        struct tsr_plan_work         w;
        double                      *row = g->a + g->rows * TSR_PLAN_FEATURES;
        if (!belongs(g->fit, p))
            continue;
        tsr_plan_work_of_point(p, &w);
        tsr_plan_features(&w, p->phase, (double)p->v, (double)p->s, (double)p->t, row);
        for (int k = 0; k < TSR_PLAN_FEATURES; k++)
            row[k] /= p->ms;
        g->b[g->rows++] = 1;
        note_range(g->fit, p);
    }
}

/* Few points: coefficients near the datasheet's. */
static void pull(struct group *g)
{
    const struct tsr_plan_kernel_speed *k =
        tsr_plan_profile_kernel(g->p, g->fit->kernel, (double)g->fit->knots[0] + 1);
    double c[TSR_PLAN_FEATURES];
    if (!k || g->fit->points >= ENOUGH)
        return;
    roofline_features(g->p, k, g->fit->phase, &g->fit->shape, 2, c);
    for (int i = 0; i < TSR_PLAN_FEATURES; i++) {
        double *row = g->a + g->rows * TSR_PLAN_FEATURES;
        if (!(c[i] > 0))
            continue;
        memset(row, 0, TSR_PLAN_FEATURES * sizeof *row);
        row[i] = PULL / c[i];
        g->b[g->rows++] = PULL;
    }
}

static tsr_status regress(struct group *g, struct tsr_err *err)
{
    double   residual, sum = 0;
    uint64_t points;
    collect(g);
    points = g->rows;
    if (points == 0)
        return TSR_OK;
    pull(g);
    TSR_TRY(tsr_plan_nnls(g->a, g->b, g->rows, TSR_PLAN_FEATURES, g->fit->c, &residual, err));
    for (uint64_t r = 0; r < points; r++) {
        double e = -1;
        for (int k = 0; k < TSR_PLAN_FEATURES; k++)
            e += g->a[r * TSR_PLAN_FEATURES + (uint64_t)k] * g->fit->c[k];
        sum += e * e;
    }
    g->fit->error = sqrt(sum / (double)points);
    return TSR_OK;
}

/* A regression that is to be made, unless it is there. */
static void want(struct tsr_plan_fits *f, const struct tsr_plan_profile *p,
                 const struct tsr_plan_point *of, bool pooled)
{
    struct tsr_plan_fit one = { .kernel = of->kernel, .phase = of->phase, .pooled = pooled };
    uint64_t            tokens = of->phase == TSR_PLAN_PREFILL ? of->v * of->s : of->v;
    one.knots[1] = UINT64_MAX;
    for (uint32_t i = 0; i < p->n_knots[of->phase]; i++) {
        uint64_t knot = p->knots[of->phase][i];
        if (tokens > knot)
            one.knots[0] = knot;
        else if (one.knots[1] == UINT64_MAX)
            one.knots[1] = knot;
    }
    tsr_plan_work_of_point(of, &one.shape);
    for (uint64_t i = 0; i < f->n; i++) {
        const struct tsr_plan_fit *o = &f->v[i];
        if (o->phase == one.phase && o->pooled == pooled && o->knots[0] == one.knots[0] &&
            strcmp(o->kernel, one.kernel) == 0 &&
            (pooled || tsr_plan_fit_same_shape(&o->shape, &one.shape)))
            return;
    }
    f->v[f->n++] = one;
}

static tsr_status all(struct tsr_plan_fits *f, const struct tsr_plan_profile *p,
                      struct tsr_err *err)
{
    struct group g = { .p = p };
    uint64_t     rows = p->n_points + TSR_PLAN_FEATURES;
    f->v = tsr_new(2 * p->n_points + 1, sizeof *f->v);
    g.a = tsr_new(rows * TSR_PLAN_FEATURES, sizeof *g.a);
    g.b = tsr_new(rows, sizeof *g.b);
    tsr_status st = f->v && g.a && g.b ? TSR_OK
                                       : tsr_fail_nomem(err, rows * sizeof *g.a * TSR_PLAN_FEATURES,
                                                        "the regressions of a device profile");
    for (uint64_t i = 0; i < p->n_points && st == TSR_OK; i++) {
        want(f, p, &p->points[i], false);
        want(f, p, &p->points[i], true);
    }
    for (uint64_t i = 0; i < f->n && st == TSR_OK; i++) {
        g.fit = &f->v[i];
        st = regress(&g, err);
    }
    free(g.a);
    free(g.b);
    return st;
}

tsr_status tsr_plan_fits_create(struct tsr_plan_fits **out, const struct tsr_plan_profile *p,
                                struct tsr_err *err)
{
    struct tsr_plan_fits *f = tsr_new(1, sizeof *f);
    if (!f)
        return tsr_fail_nomem(err, sizeof *f, "the regressions of a device profile");
    tsr_status st = all(f, p, err);
    if (st != TSR_OK) {
        tsr_plan_fits_destroy(f);
        return tsr_err_prefix(err, st, "%s", p->path);
    }
    *out = f;
    return TSR_OK;
}

void tsr_plan_fits_destroy(struct tsr_plan_fits *f)
{
    if (!f)
        return;
    free(f->v);
    free(f);
}

/* How far tokens are outside of the knots, as a ratio; 1: inside. */
static double distance(const struct tsr_plan_fit *f, double tokens)
{
    if (tokens > (double)f->knots[1])
        return tokens / (double)f->knots[1];
    return tokens > (double)f->knots[0] ? 1 : (double)f->knots[0] / tokens * (1 + 1e-9);
}

const struct tsr_plan_fit *tsr_plan_fit_find(const struct tsr_plan_fits *f, const char *kernel,
                                             enum tsr_phase phase, const struct tsr_plan_work *w,
                                             double tokens)
{
    const struct tsr_plan_fit *best = NULL;
    double                     score = INFINITY;
    for (uint64_t i = 0; i < f->n; i++) {
        const struct tsr_plan_fit *o = &f->v[i];
        if (o->phase != phase || strcmp(o->kernel, kernel) != 0)
            continue;
        if (!o->pooled && !tsr_plan_fit_same_shape(&o->shape, w))
            continue;
        /* own knots before others; then the own shape before all together */
        double d = distance(o, tokens) * 2 + (o->pooled ? 1e-3 : 0);
        if (!o->pooled && o->points < ENOUGH)
            d += 2e-3; /* too few for a regression by themselves: the others help */
        if (d < score) {
            score = d;
            best = o;
        }
    }
    return best;
}
