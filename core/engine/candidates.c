/* Draws from the best tokens of a row: the steps of sample.c over them alone.  An engine that has such tokens in place of
 * logits. */
#include "engine/candidates.h"

#include "engine/internal.h"

#include <math.h>

/* ---- draws -------------------------------------------------------------- */

uint32_t tsr_engine_candidates(const struct tsr_engine_sampling *s, uint64_t vocab, float *inverse)
{
    *inverse = 0;
    if (s->repetition_penalty != 1)
        return 0;
    if (s->temperature == 0)
        return 1;
    if (s->top_k && s->top_k < vocab)
        return s->top_k <= TSR_CANDIDATES_MOST ? (uint32_t)s->top_k : 0;
    if (!(s->temperature >= 1e-3 && s->temperature <= 1e3))
        return 0;
    *inverse = (float)(1 / s->temperature);
    return vocab < TSR_CANDIDATES_MOST ? (uint32_t)vocab : TSR_CANDIDATES_MOST;
}

/* A draw under way. */
struct drawing {
    const struct tsr_engine_sampling *s;
    const struct tsr_candidate       *best;
    uint32_t                          n;
    double                            sum, error; /* of what top_p counts; relative */
};

static double weight(const struct drawing *d, uint32_t i)
{
    return exp(((double)d->best[i].logit - d->best[0].logit) / d->s->temperature);
}

/* 1: a > b * sum, 0: a <= b * sum, -1: the sum is not known that well. */
static int above(const struct drawing *d, double a, double b)
{
    if (d->error == 0)
        return a > b * d->sum;
    if (a > b * d->sum * (1 + d->error))
        return 1;
    return a < b * d->sum * (1 - d->error) ? 0 : -1;
}

/* 1: a >= b * sum; else as above. */
static int reaches(const struct drawing *d, double a, double b)
{
    return d->error == 0 ? a >= b * d->sum : above(d, a, b);
}

/* How many candidates top-p and min-p leave, and their mass; false: not decided. */
static bool kept(const struct drawing *d, uint32_t most, uint32_t *keep, double *mass)
{
    *mass = 0;
    for (*keep = 0; *keep < most;) {
        const double w = weight(d, *keep);
        if (*keep > 0 && w < d->s->min_p)
            return true;
        *mass += w;
        ++*keep;
        const int over = reaches(d, *mass, d->s->top_p);
        if (over != 0)
            return over > 0;
    }
    return d->error == 0; /* else the next one may belong to them */
}

/* The first of n candidates after which the mass is above u of the sum. */
static bool walk(const struct drawing *d, uint32_t n, double u, uint32_t *id)
{
    double mass = 0;
    for (uint32_t i = 0; i < n; i++) {
        *id = d->best[i].id;
        mass += weight(d, i);
        const int over = above(d, mass, u);
        if (over != 0)
            return over > 0;
    }
    return d->error == 0;
}

bool tsr_engine_candidates_draw(const struct tsr_engine_sampling *s, uint64_t vocab, double u,
                                const struct tsr_candidate *best, uint32_t n, double sum,
                                uint32_t *id)
{
    struct drawing d = { .s = s, .best = best, .n = n, .sum = sum, .error = TSR_ENGINE_SUM_ERROR };
    *id = best[0].id;
    if (s->temperature == 0)
        return true;
    const bool some = s->top_k && s->top_k < vocab;
    if (some) { /* the softmax is over them */
        if (s->top_k > n)
            return false;
        d.n = (uint32_t)s->top_k;
        d.sum = d.error = 0;
        for (uint32_t i = 0; i < d.n; i++)
            d.sum += weight(&d, i);
    }
    uint32_t keep = d.n;
    if (some || s->top_p < 1 || s->min_p > 0) {
        double mass;
        if (!kept(&d, d.n, &keep, &mass))
            return false;
        d.sum = mass;
        d.error = 0;
    }
    return walk(&d, keep, u, id);
}

/* ---- an engine with them ------------------------------------------------- */

tsr_status tsr_engine_candidates_open(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_backend_v1            *b = e->dev->iface;
    const struct tsr_backend_candidates_v1 *t = NULL;
    struct tsr_errbuf                       why = TSR_ERRBUF(why);
    if (b->extension && e->has_head && !e->streamed)
        t = b->extension(e->dev->self, TSR_BACKEND_CANDIDATES);
    if (!t || !e->head.w || tsr_engine_linear_device(e, &e->head) != e->dev)
        return TSR_OK;
    e->best_rows = e->n_slots < e->head_rows ? e->n_slots : e->head_rows;
    tsr_status st = t->reserve(e->dev->self, e->best_rows, e->model->hp.vocab, &why.err);
    if (st == TSR_OK)
        e->candidates = t;
    else
        e->best_rows = 0;
    return st == TSR_OK || st == TSR_E_UNSUPPORTED ? TSR_OK : tsr_err_copy(err, st, &why.err);
}

uint64_t tsr_engine_best_rows(const struct tsr_engine *e, uint64_t *tokens)
{
    *tokens = e->chunk;
    return e->candidates && !e->behind ? e->best_rows : 0;
}

tsr_status tsr_engine_best_logits(struct tsr_engine *e, uint64_t row, float *logits,
                                  struct tsr_err *err)
{
    struct tsr_tensor t = tsr_engine_rows(&e->logits, row, 1);
    return tsr_engine_device_download(e->dev, &t, logits, err);
}
