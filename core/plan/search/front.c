#include "plan/search/front.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BETWEEN 12   /* limits between the ends */
#define RANGE   1e-4 /* least of these, of the fastest plan's omega */
#define WORTH   1e7  /* times of the fastest plan that its omega is worth where quality is all */
#define SAME    1e-6 /* points that differ by less are one */

struct drawn {
    struct tsr_plan_front         *f;
    const struct tsr_plan_problem *p;
    const struct tsr_plugin_spec  *solver;
    double                         end;  /* of the time; INFINITY: none */
    double                         most; /* omega of any plan is less */
    bool                           four; /* is to have the point of 4 bits */
};

void tsr_plan_front_free(struct tsr_plan_front *f)
{
    for (uint64_t i = 0; i < f->n; i++)
        free(f->v[i].layers);
    *f = (struct tsr_plan_front){ 0 };
}

/* Whether all layers have one type of cache. */
static bool alike(const struct tsr_plan_outcome *o)
{
    bool same = true;
    for (uint64_t l = 1; l < o->layers; l++)
        same = same && o->kv[l] == o->kv[0];
    return same;
}

/* The plan as one more point, unless there is one like it. */
static tsr_status add(struct drawn *z, const struct tsr_plan_problem *q,
                      const struct tsr_plan_planned *a, bool job, bool four, struct tsr_err *err)
{
    const struct tsr_plan_outcome *o = &a->outcome;
    struct tsr_plan_front         *f = z->f;
    for (uint64_t i = 0; i < f->n; i++)
        if (fabs(f->v[i].latency_ms - o->latency_ms) <= SAME * o->latency_ms &&
            fabs(f->v[i].omega - o->omega) <= SAME * fmax(o->omega, SAME)) {
            f->v[i].job = f->v[i].job || job;
            f->v[i].four = f->v[i].four || four;
            return TSR_OK;
        }
    if (f->n == TSR_PLAN_FRONT)
        return TSR_OK;
    uint64_t *layers = tsr_new(q->candidates.n, sizeof *layers);
    if (!layers)
        return tsr_fail_nomem(err, q->candidates.n * sizeof *layers, "a point of the front");
    for (uint64_t l = 0; l < o->layers; l++)
        layers[o->bits[l]]++;
    struct tsr_plan_front_point *v = &f->v[f->n++];
    *v = (struct tsr_plan_front_point){ .latency_ms = o->latency_ms,
                                        .tokens_per_second = o->tokens_per_second,
                                        .omega = o->omega,
                                        .kl = o->kl,
                                        .kl_half = o->kl_half,
                                        .stages = o->n_stages,
                                        .setting = { q->memory.batch, q->work.chunk, q->work.kv,
                                                     q->end, alike(o) ? 0 : q->kv_types },
                                        .layers = layers,
                                        .proved = a->status == TSR_SOLVED_OPTIMAL,
                                        .job = job,
                                        .four = four };
    for (uint64_t i = 0; i < o->n_stages; i++)
        v->bytes += o->stages[i].memory.total;
    return TSR_OK;
}

/* The best plan under a limit, or with theta; *at: its point's omega and time, if it has one. */
static tsr_status under(struct drawn *z, double limit, double theta, bool four, uint64_t left,
                        double *omega, double *ms, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    struct tsr_plan_planned a;
    double                  seconds = (z->end - tsr_now_s()) / (double)left;
    if (q.max_omega < 0 && !q.quality.kl.on) /* nothing says what a narrow cache may cost */
        q.o.free_kv = false;
    q.max_omega = limit;
    q.o.theta = theta;
    q.o.time_limit = isfinite(seconds) ? fmax(seconds, 1e-3) : 0;
    *omega = *ms = NAN;
    tsr_status st = tsr_plan_settings_search(&a, &q, z->solver, err);
    z->f->solves += a.solves;
    if (st == TSR_OK && tsr_plan_planned_has_plan(&a)) {
        *omega = a.outcome.omega;
        *ms = a.outcome.latency_ms;
        if (!(theta > 0)) /* else its omega alone matters */
            st = add(z, &q, &a, false, four, err);
    }
    tsr_plan_planned_free(&a);
    return st;
}

/* The limit of the default without indicators by KL: 4 bits in all layers; NAN where no candidate has them. */
static double four_bits(const struct tsr_plan_problem *p)
{
    const struct tsr_plan_candidate *v = p->candidates.v;
    for (uint64_t c = 0; c < p->candidates.n; c++)
        if (v[c].bits == 4 && !v[c].mixed)
            return tsr_plan_quality_uniform(&p->quality, c) + tsr_plan_problem_kl_base(p);
    return NAN;
}

/* Omega that no plan has. */
static double most_of(const struct tsr_plan_problem *p)
{
    double sum = isfinite(p->quality.eight) ? p->quality.eight : 0;
    for (uint64_t l = 0; l < p->quality.layers; l++) {
        double most = 0;
        for (uint64_t c = 0; c < p->candidates.n; c++)
            most = fmax(most, p->quality.omega[l * p->candidates.n + c]);
        sum += most;
    }
    for (uint32_t i = 0; i < p->quality.kl.n_end; i++)
        sum += p->quality.kl.end[i].kl;
    for (uint32_t i = 0; i < p->quality.kl.n_kv; i++)
        sum += p->quality.kl.kv[i].kl;
    return 2 * sum + 1;
}

static int by_time(const void *a, const void *b)
{
    const struct tsr_plan_front_point *x = a, *y = b;
    if (x->latency_ms != y->latency_ms)
        return x->latency_ms < y->latency_ms ? -1 : 1;
    return x->omega < y->omega ? -1 : x->omega > y->omega;
}

/* In order of time, without those that another beats in both. */
static void thin(struct tsr_plan_front *f)
{
    uint64_t n = 0;
    qsort(f->v, f->n, sizeof *f->v, by_time);
    for (uint64_t i = 0; i < f->n; i++) {
        if (n && f->v[i].omega >= f->v[n - 1].omega) {
            f->v[n - 1].job = f->v[n - 1].job || f->v[i].job;
            f->v[n - 1].four = f->v[n - 1].four || f->v[i].four;
            free(f->v[i].layers);
            continue;
        }
        f->v[n++] = f->v[i];
    }
    f->n = n;
}

static void mark_knee(struct tsr_plan_front *f)
{
    const struct tsr_plan_front_point *a = &f->v[0], *b = &f->v[f->n - 1];
    double                             far = 0;
    uint64_t                           at = 0;
    for (uint64_t i = 1; i + 1 < f->n; i++) {
        double x = (f->v[i].latency_ms - a->latency_ms) / (b->latency_ms - a->latency_ms);
        double y = (f->v[i].omega - b->omega) / (a->omega - b->omega);
        if (1 - x - y > far) {
            far = 1 - x - y;
            at = i;
        }
    }
    if (f->n)
        f->v[at].knee = far > 0;
}

/* The fastest; the least omega, and the fastest plan with it; then limits between, in equal ratios. */
static tsr_status find(struct drawn *z, struct tsr_err *err)
{
    double   high, low, ms, none;
    uint64_t left = BETWEEN + 4;
    TSR_TRY(under(z, z->most, 0, false, left--, &high, &ms, err));
    if (!(high > 0)) /* no plan in time, or the fastest one loses nothing */
        return TSR_OK;
    TSR_TRY(under(z, z->most, WORTH * ms / high, false, left--, &low, &none, err));
    if (!(low < high))
        return TSR_OK;
    TSR_TRY(under(z, low * (1 + 1e-9), 0, false, left--, &ms, &none, err));
    double from = fmax(low, RANGE * high);
    for (int i = 1; i <= BETWEEN && from < high; i++)
        TSR_TRY(under(z, high * pow(from / high, (double)i / (BETWEEN + 1)), 0, false, left--, &ms,
                      &none, err));
    double four = z->four ? four_bits(z->p) : NAN;
    return four >= low ? under(z, four, 0, true, left, &ms, &none, err) : TSR_OK;
}

tsr_status tsr_plan_front_find(struct tsr_plan_front *f, const struct tsr_plan_problem *p,
                               const struct tsr_plan_planned *own,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    double       start = tsr_now_s();
    struct drawn z = { .f = f,
                       .p = p,
                       .solver = solver,
                       .most = most_of(p),
                       .four = own != NULL,
                       .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY };
    *f = (struct tsr_plan_front){ 0 };
    if (own)
        TSR_TRY(add(&z, p, own, true, false, err));
    TSR_TRY(find(&z, err));
    thin(f);
    mark_knee(f);
    f->seconds = tsr_now_s() - start;
    return TSR_OK;
}

tsr_status tsr_plan_front_knee(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_front f;
    double                start = tsr_now_s();
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    tsr_status st = tsr_plan_front_find(&f, p, NULL, solver, err);
    for (uint64_t i = 0; st == TSR_OK && i < f.n; i++)
        if (f.v[i].knee || i + 1 == f.n) {
            /* the front counts what codecs cost in fact; a projected problem reserves what they can cost */
            double room = tsr_search_joint(solver) ? 0 : p->wire_omega;
            p->max_omega = f.v[i].omega * (1 + 1e-9) + room;
            break;
        }
    tsr_plan_front_free(&f);
    if (st == TSR_OK)
        st = tsr_plan_settings_search(a, p, solver, err);
    a->seconds = tsr_now_s() - start;
    return st;
}
