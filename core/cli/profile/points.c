/* tessera profile: times of layers and ends, each with the read probe of its second. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define WEIGHTS      (UINT64_C(256) << 20) /* bytes of layers in rotation: no cache holds them */
#define CHUNK        512u
#define RETRIES      4u /* repeats that were interrupted are taken again, up to so many in all */
#define MOST_REPEATS 63u

uint64_t profile_sequences(const struct profile *p)
{
    return (uint64_t)p->o->sequences;
}

uint64_t profile_positions(const struct profile *p, const struct profile_model *m)
{
    uint64_t most = m->shape->max_positions, want = (uint64_t)p->o->positions;
    return m->shape->alibi || want < most ? want : most;
}

/* The better of two, because an interrupted probe does not measure the memory. */
static tsr_status note_probe(struct profile *p, double two[2], struct tsr_err *err)
{
    for (int i = 0; i < 2; i++)
        TSR_TRY(bench_measure(&p->bench, BENCH_READ, &two[i], err));
    if (p->n_probes == p->cap_probes) {
        uint64_t cap = p->cap_probes ? 2 * p->cap_probes : 256;
        double  *v = tsr_renew(p->probes, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "probes");
        p->probes = v;
        p->cap_probes = cap;
    }
    p->probes[p->n_probes++] = fmax(two[0], two[1]);
    return TSR_OK;
}

/* Median and spread of n times, which are sorted. */
static void summary(double *v, uint64_t n, double *median, double *spread)
{
    *median = bench_median(v, n);
    *spread = *median > 0 ? (v[(3 * n) / 4 < n ? (3 * n) / 4 : n - 1] - v[n / 4]) / *median : 0;
}

/* Times the system took a thread of ours off its CPU for others. */
static uint64_t interruptions(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_nivcsw : 0;
}

/* Of equals the first. */
static int by_interruptions(const void *a, const void *b)
{
    struct profile_repeat x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    if (x.interrupted != y.interrupted)
        return x.interrupted > y.interrupted ? 1 : -1;
    return (x.order > y.order) - (x.order < y.order);
}

/* One time with its warm-up, repeats and probe. */
static tsr_status time_point(struct profile *p, const struct profile_model *m,
                             const struct profile_scheme *s, struct tsr_stopwatch *x,
                             struct profile_point *at, struct tsr_err *err)
{
    struct profile_repeat all[RETRIES * MOST_REPEATS];
    struct profile_taken  taken = { .repeat = all };
    double                v[MOST_REPEATS];
    uint64_t              n = (uint64_t)p->o->repeats, clean = 0;
    TSR_TRY(tsr_engine_stopwatch_layer(x, at->v, at->s, at->t, &taken.warm, err));
    TSR_TRY(note_probe(p, taken.before, err));
    if (taken.warm > 0.3 && n > 3) /* long ones vary less */
        n = 3;
    for (; taken.n < RETRIES * n && clean < n; taken.n++) {
        struct profile_repeat *one = &all[taken.n];
        uint64_t               count = interruptions();
        TSR_TRY(tsr_engine_stopwatch_layer(x, at->v, at->s, at->t, &one->ms, err));
        one->ms *= 1e3;
        one->interrupted = interruptions() - count;
        one->order = taken.n;
        clean += one->interrupted == 0;
    }
    TSR_TRY(note_probe(p, taken.after, err));
    TSR_TRY(profile_times_point(p, m, s, at, &taken, err));
    qsort(all, taken.n, sizeof *all, by_interruptions);
    for (uint64_t i = 0; i < n; i++)
        v[i] = all[i].ms;
    summary(v, n, &at->ms, &at->spread);
    at->probe = fmax(fmax(taken.before[0], taken.before[1]), fmax(taken.after[0], taken.after[1]));
    return TSR_OK;
}

/* ---- one scheme ------------------------------------------------------------------------------ */

/* Packs n layers; the whole model stays open in between. */
static tsr_status pack(struct profile *p, struct profile_model *m, const struct tsr_quantizer *q,
                       const uint64_t *layer, uint64_t n, struct tsr_model_overlay *o,
                       struct tsr_err *err)
{
    for (uint64_t k = 0; k < n; k++) {
        uint64_t l = layer[k];
        TSR_TRY(tsr_model_open_layer(m->m, l, err));
        tsr_status st = TSR_OK;
        for (uint64_t i = 0; i < m->m->hp.linears && st == TSR_OK; i++) {
            const struct tsr_matrix *w = &m->m->layers[l].lin[i].w;
            if (w->data && i != TSR_MODEL_ROUTER && i != TSR_MODEL_SHARED_ROUTER) /* as planned */
                st = tsr_quantize_matrix(p->r, q, w, NULL, &o->lin[l][i], err);
        }
        tsr_model_close_layer(m->m, l);
        TSR_TRY(st);
    }
    return TSR_OK;
}

static void close_scheme(struct tsr_model_overlay *o, struct tsr_stopwatch *x)
{
    tsr_engine_stopwatch_close(x);
    tsr_model_overlay_destroy(o);
}

static tsr_status open_scheme(struct profile *p, struct profile_model *m, uint64_t scheme,
                              struct tsr_model_overlay **o, struct tsr_stopwatch **x,
                              struct tsr_err *err)
{
    const struct tsr_plan_candidate   *c = &m->candidates.v[scheme];
    const struct tsr_plan_shape_layer *like = &m->shape->layer[m->cls];
    uint64_t                           bytes, own, block, each = 0, n = 0;
    struct tsr_format                  f;
    *o = NULL;
    *x = NULL;
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        if (like->lin[i].rows) {
            TSR_TRY(tsr_plan_candidate_matrix(c, &like->lin[i], &f, &bytes, err));
            TSR_TRY(tsr_plan_candidate_own(c, &like->lin[i], &own, &block, err));
            each += (own ? own : bytes) * like->lin[i].count;
        }
    uint64_t *layer = tsr_new(m->shape->layers, sizeof *layer);
    if (!layer)
        return tsr_fail_nomem(err, m->shape->layers * sizeof *layer, "layers");
    for (uint64_t l = 0; l < m->shape->layers && n < (each ? WEIGHTS / each + 1 : 1); l++)
        if (profile_same_form(&m->shape->layer[m->shape->layer_class[l]], like))
            layer[n++] = l;
    tsr_status st = TSR_OK;
    if (c->q.self) {
        st = tsr_model_overlay_create(o, m->shape->layers, m->m->hp.linears, err);
        if (st == TSR_OK)
            st = pack(p, m, &c->q, layer, n, *o, err);
    }
    if (st == TSR_OK)
        st = tsr_engine_stopwatch_open(x, p->r, m->m, *o, layer, n, (uint32_t)profile_sequences(p),
                                       profile_positions(p, m), CHUNK, err);
    free(layer);
    if (st != TSR_OK) {
        close_scheme(*o, *x);
        *o = NULL;
        *x = NULL;
    }
    return st;
}

/* Adds a point to the list unless it exceeds the model's limits. */
static void plan(const struct profile *p, const struct profile_model *m, struct profile_scheme *s,
                 enum tsr_phase phase, uint64_t v, uint64_t tokens, uint64_t t)
{
    if (v > profile_sequences(p) || tokens + t > profile_positions(p, m))
        return;
    for (uint64_t i = 0; i < s->n_points; i++)
        if (s->points[i].phase == phase && s->points[i].v == v && s->points[i].s == tokens &&
            s->points[i].t == t)
            return;
    s->points[s->n_points++] =
        (struct profile_point){ .phase = phase, .v = v, .s = tokens, .t = t };
}

static void plan_all(const struct profile *p, const struct profile_model *m,
                     struct profile_scheme *s)
{
    static const uint64_t many[] = { 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32 };
    static const uint64_t lengths[] = { 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024 };
    uint64_t              top = profile_positions(p, m);
    const uint64_t        pasts[] = { top / 16, top / 4, top - 1 };
    uint64_t              step = p->o->quick ? 3 : 1;
    for (size_t i = 0; i < sizeof many / sizeof *many; i += step)
        for (size_t k = 0; k < 3; k += p->o->quick ? 2 : 1)
            plan(p, m, s, TSR_PLAN_DECODE, many[i], 1, pasts[k]);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += step) {
        uint64_t n = lengths[i];
        plan(p, m, s, TSR_PLAN_PREFILL, 1, n, 0);
        if (n <= 512) {
            plan(p, m, s, TSR_PLAN_PREFILL, 1, n, top / 2);
            plan(p, m, s, TSR_PLAN_PREFILL, 2, n, 0);
        }
        if (n <= 256)
            plan(p, m, s, TSR_PLAN_PREFILL, 4, n, top / 4);
        if (n <= 64)
            plan(p, m, s, TSR_PLAN_PREFILL, 8, n, 0);
    }
}

#define MOST_POINTS 128u
#define MOST_ENDS   UINT64_C(7)

/* Each round uses a different order, so that a disturbance of some seconds affects points of all kinds
 * equally, and the workloads of --check as much as the points that predict them. */
static tsr_status measure_all(struct profile *p, const struct profile_model *m,
                              struct tsr_stopwatch *x, struct profile_scheme *s,
                              struct tsr_err *err)
{
    uint64_t *order = tsr_new(s->n_points, sizeof *order);
    if (!order)
        return tsr_fail_nomem(err, s->n_points * sizeof *order, "points");
    for (uint64_t i = 0; i < s->n_points; i++) {
        double   u = tsr_uniform((uint64_t)p->o->seed, s->rounds, i);
        uint64_t at = (uint64_t)(u * (double)(i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    s->layer_bytes = tsr_engine_stopwatch_layer_bytes(x);
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < s->n_points && st == TSR_OK; i++) {
        struct profile_point *at = &s->points[order[i]], before = *at;
        st = time_point(p, m, s, x, at, err);
        at->spread = fmax(at->spread, before.spread);
        at->round_ms[s->rounds] = at->ms;
        at->round_probe[s->rounds] = at->probe;
    }
    free(order);
    if (st != TSR_OK)
        return st;
    s->rounds++;
    return TSR_OK;
}

tsr_status profile_begin(struct profile *p, struct profile_model *m, uint64_t scheme, bool grid,
                         struct tsr_err *err)
{
    struct profile_scheme *s = &m->schemes[scheme];
    uint64_t               room = (grid ? MOST_POINTS : 0) + (uint64_t)p->o->check;
    s->text = p->texts[scheme];
    TSR_TRY(tsr_plan_candidate_kernel(&m->candidates.v[scheme], m->shape, m->cls, s->kernel, err));
    s->points = tsr_new(room, sizeof *s->points);
    if (!s->points)
        return tsr_fail_nomem(err, room * sizeof *s->points, "points");
    if (grid)
        plan_all(p, m, s);
    s->n_grid = s->n_points;
    return TSR_OK;
}

/* Embedding and head, once: they do not depend on the scheme. */
static tsr_status measure_ends(struct profile *p, struct profile_model *m, struct tsr_stopwatch *x,
                               struct tsr_err *err)
{
    static const uint64_t rows[MOST_ENDS] = { 1, 2, 4, 8, 16, 32, 64 };
    m->ends = tsr_new(2 * MOST_ENDS, sizeof *m->ends);
    if (!m->ends)
        return tsr_fail_nomem(err, 2 * MOST_ENDS * sizeof *m->ends, "points");
    for (uint64_t i = 0; i < 2 * MOST_ENDS; i++) {
        if (rows[i % MOST_ENDS] > profile_positions(p, m))
            continue;
        struct profile_end *to = &m->ends[m->n_ends++];
        double              v[MOST_REPEATS + 1];
        uint64_t            repeats = (uint64_t)p->o->repeats;
        *to = (struct profile_end){ .head = i >= MOST_ENDS, .tokens = rows[i % MOST_ENDS] };
        for (uint64_t k = 0; k <= repeats; k++) { /* the first is a warm-up */
            double *at = &v[k ? k - 1 : 0];
            TSR_TRY(to->head ? tsr_engine_stopwatch_head(x, to->tokens, at, err)
                             : tsr_engine_stopwatch_embed(x, to->tokens, at, err));
            *at *= 1e3;
        }
        TSR_TRY(profile_times_end(p, m, to, v, repeats, err));
        summary(v, repeats, &to->ms, &to->spread);
    }
    return TSR_OK;
}

tsr_status profile_measure(struct profile *p, struct profile_model *m, uint64_t scheme,
                           struct tsr_err *err)
{
    struct profile_scheme    *s = &m->schemes[scheme];
    struct tsr_model_overlay *o;
    struct tsr_stopwatch     *x;
    TSR_TRY(open_scheme(p, m, scheme, &o, &x, err));
    tsr_status st = measure_all(p, m, x, s, err);
    if (st == TSR_OK && s->n_grid && !m->ends && !m->again)
        st = measure_ends(p, m, x, err);
    close_scheme(o, x);
    return st;
}
