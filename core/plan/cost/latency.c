/* Times of layers from a device profile. */
#include "plan/cost/latency.h"

#include "plan/cost/fit.h"
#include "plan/cost/part.h"

#include <math.h>
#include <string.h>

#define NEIGHBOURS 4 /* points that a table's value is made of */

/* Of a layer: what is around the experts that its router chooses from, these, or both; of these the linears of one part. */
struct some {
    bool                        others, experts;
    const struct tsr_plan_part *part; /* NULL: all */
};

/* Whether it is a part that others stand next to. */
static bool is_apart(const struct some *o)
{
    return o->part && !tsr_plan_part_is_whole(o->part);
}

static bool has(const struct some *o, const struct tsr_plan_shape *s, uint64_t cls, int linear,
                uint32_t group)
{
    return (tsr_plan_shape_is_expert(&s->layer[cls], linear) ? o->experts : o->others) &&
           (!o->part || tsr_plan_part_has(o->part, s, cls, linear, group));
}

/* Whether the layer has any of it. */
static bool any(const struct some *o, const struct tsr_plan_shape *s, uint64_t cls)
{
    const struct tsr_plan_shape_layer *l = &s->layer[cls];
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        for (uint32_t g = 0; g < tsr_plan_shape_groups(s); g++)
            if (l->lin[i].rows && tsr_plan_shape_matrices(s, l, i, g) && has(o, s, cls, i, g))
                return true;
    return false;
}

/* Experts of a layer, by group or, where all groups are one part, together: those that `tokens` tokens reach, and those
 * that a token takes. */
struct reach {
    uint32_t groups;
    double   reached[TSR_PLAN_GROUPS], used[TSR_PLAN_GROUPS];
};

static void reach_of(const struct tsr_plan_shape *s, uint64_t cls, bool apart, double tokens,
                     struct reach *r)
{
    r->groups = apart ? tsr_plan_shape_groups(s) : 1;
    r->reached[0] = r->groups == 1 ? tsr_plan_shape_reached(s, cls, tokens) : 0;
    r->used[0] = s->experts_used;
    for (uint32_t g = 0; g < r->groups && r->groups > 1; g++) {
        r->reached[g] = tsr_plan_shape_group_reached(s, cls, g, tokens);
        r->used[g] = s->experts_used * tsr_plan_shape_group_taken(s, cls, g);
    }
}

/* The layer that one rank of the mesh runs, as the part has it, with the experts that `tokens` tokens reach. */
static tsr_status work_of(const struct tsr_plan_latency_job *j, const struct tsr_plan_mesh *m,
                          uint64_t cls, const struct tsr_plan_part *as, const struct some *some,
                          double tokens, struct tsr_plan_work *w, struct tsr_err *err)
{
    const struct tsr_plan_shape       *s = j->shape;
    const struct tsr_plan_shape_layer *l = &s->layer[cls];
    double                             bytes = 0, weights = 0, read = 0, all = 0;
    double tp = m->tp, uneven = 1; /* what the rank with the most experts has, over the mean */
    struct reach r;
    uint64_t     n;
    reach_of(s, cls, is_apart(some), tokens, &r);
    for (uint32_t g = 0; g < r.groups; g++)
        all += r.reached[g];
    if (m->whole_experts && all > 0)
        uneven = tsr_plan_shape_busiest(s, all, m->tp) * tp / all;
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        struct tsr_format f;
        double            each = (double)l->lin[i].rows * (double)l->lin[i].cols;
        bool              several = l->lin[i].count > 1;
        double            more = several ? uneven : 1, reached = 0, used = 0;
        for (uint32_t g = 0; g < (several ? r.groups : 1); g++)
            if (has(some, s, cls, i, g)) {
                reached += several ? r.reached[g] : 1;
                used += several ? r.used[g] : 1;
            }
        if (l->lin[i].rows == 0 || !(reached > 0))
            continue;
        TSR_TRY(tsr_plan_part_matrix(as, s, cls, i, &f, &n, err));
        bytes += (double)n * reached * more;
        read += each * reached * more;
        weights += each * more * used;
    }
    *w = (struct tsr_plan_work){ .weights = weights / tp,
                                 .read = read / tp,
                                 .hidden = (double)s->hidden,
                                 .attend = (double)s->heads * s->head_dim / tp,
                                 .kv = (double)tsr_plan_shape_kv(s) / tp,
                                 .bytes = bytes / tp,
                                 .window = (double)l->window };
    if (!has(some, s, cls, TSR_MODEL_O, 0)) { /* what does not grow with weights is where o is */
        w->hidden = w->attend = w->kv = 0;
    } else if (l->recurrent) {
        struct tsr_model_delta part = tsr_plan_shape_delta(&s->delta, m->tp);
        tsr_plan_work_of_rule(&part, w);
    }
    return TSR_OK;
}

static bool outside(const struct tsr_plan_fit *f, double v, double s, double t)
{
    const double at[3] = { v, s, t };
    bool         out = false;
    for (int i = 0; i < 3; i++)
        out = out || !(at[i] >= f->low[i] * (1 - 1e-9) && at[i] <= f->high[i] * (1 + 1e-9));
    return out;
}

static double evaluate(const struct tsr_plan_fit *f, const struct tsr_plan_work *w,
                       uint32_t kv_bits, double v, double s, double t)
{
    double x[TSR_PLAN_FEATURES], ms = 0;
    tsr_plan_features(w, f->phase, v, s, t, x);
    for (int i = 0; i < TSR_PLAN_FEATURES; i++)
        ms += f->c[i] * x[i] *
              (f->phase == TSR_PLAN_DECODE && i == 2 && !(w->state > 0) ? kv_bits / 16.0 : 1);
    return ms;
}

/* ---- table --------------------------------------------------------------------------------- */

/* Squared distance in logarithms: a point at twice the tokens is as far as one at half. */
static double distance(const struct tsr_plan_point *p, double v, double s, double t)
{
    double a = log((double)p->v / v), b = log((double)p->s / s);
    double c = log(((double)p->t + 16) / (t + 16));
    return a * a + b * b + c * c;
}

/* Measured over fitted at the nearest points, weighted by 1 / distance^2, times the fitted value.
 * Exactly a point: its own value. */
static double from_table(const struct tsr_plan_profile *p, const struct tsr_plan_fit *f,
                         const struct tsr_plan_work *w, uint32_t kv_bits, double v, double s,
                         double t, bool *exact)
{
    double d[NEIGHBOURS], ratio[NEIGHBOURS], sum = 0, weight = 0;
    int    n = 0;
    *exact = false;
    for (uint64_t i = 0; i < p->n_points; i++) {
        const struct tsr_plan_point *o = &p->points[i];
        struct tsr_plan_work         ow;
        if (o->phase != f->phase || strcmp(o->kernel, f->kernel) != 0)
            continue;
        tsr_plan_work_of_point(o, &ow);
        if (!tsr_plan_fit_same_shape(&ow, w))
            continue;
        double far = distance(o, v, s, t);
        double r = o->ms / evaluate(f, w, 16, (double)o->v, (double)o->s, (double)o->t);
        int    at = n < NEIGHBOURS ? n++ : NEIGHBOURS;
        for (; at > 0 && d[at - 1] > far; at--)
            if (at < NEIGHBOURS) {
                d[at] = d[at - 1];
                ratio[at] = ratio[at - 1];
            }
        if (at < NEIGHBOURS) {
            d[at] = far;
            ratio[at] = r;
        }
    }
    for (int i = 0; i < n; i++) {
        if (d[0] <= 1e-18) {
            *exact = true;
            return ratio[0] * evaluate(f, w, kv_bits, v, s, t);
        }
        sum += ratio[i] / d[i];
        weight += 1 / d[i];
    }
    return (n ? sum / weight : 1) * evaluate(f, w, kv_bits, v, s, t);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Sums of rows_of rows for each token: one for each forward that the engine cuts a prefill micro-batch into. */
static tsr_status sums(const struct tsr_plan_latency_job *j, const struct tsr_plan_mesh *m,
                       enum tsr_phase phase, double tokens, double rows_of, uint64_t cols,
                       double *ms, struct tsr_err *err)
{
    double whole = 0, one = 0, rest = tokens;
    bool   two;
    if (phase == TSR_PLAN_PREFILL && j->forward && tokens > (double)j->forward) {
        whole = floor(tokens / (double)j->forward);
        rest = tokens - whole * (double)j->forward;
        TSR_TRY(tsr_plan_latency_collective(m, phase, j->tp_wire[phase],
                                            (uint64_t)ceil((double)j->forward * rows_of), cols,
                                            &one, &two, err));
    }
    *ms = 0;
    if (rest > 0)
        TSR_TRY(tsr_plan_latency_collective(m, phase, j->tp_wire[phase],
                                            (uint64_t)ceil(rest * rows_of), cols, ms, &two, err));
    *ms += whole > 0 ? whole * one : 0;
    return TSR_OK;
}

/* One sum after attention and one after the feed-forward; of whole experts what each says of a token; and whole queries
 * and keys, where they are normed over all heads. */
static tsr_status collectives(const struct tsr_plan_latency_job *j, const struct tsr_plan_mesh *m,
                              uint64_t cls, enum tsr_phase phase, double tokens,
                              struct tsr_plan_time *out, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    double                       ms, said;
    bool                         whole = m->whole_experts && s->layer[cls].router.rows;
    double                       each = s->experts_used + (s->shared_ffn ? 1.0 : 0.0);
    if (m->tp <= 1)
        return TSR_OK;
    TSR_TRY(sums(j, m, phase, tokens, 1, s->hidden, &ms, err));
    said = ms;
    if (whole)
        TSR_TRY(sums(j, m, phase, tokens, each, s->hidden, &said, err));
    out->ms += ms + said;
    if (s->whole_qk_norm) {
        TSR_TRY(sums(j, m, phase, tokens, 1, ((uint64_t)s->heads + s->kv_heads) * s->head_dim, &ms,
                     err));
        out->ms += ms;
    }
    out->extrapolated = true; /* no point was taken at this width */
    return TSR_OK;
}

static void add(struct tsr_plan_time *sum, const struct tsr_plan_time *one)
{
    sum->ms += one->ms;
    sum->cpu_ms += one->cpu_ms;
    sum->basis = one->basis > sum->basis ? one->basis : sum->basis;
    sum->extrapolated = sum->extrapolated || one->extrapolated;
}

/* Some of a layer on the mesh's own device, as one rank runs it, without sums over ranks; added to *sum. Regressions are
 * of whole layers; their features are linear in weights, and a part has its share of each. */
static tsr_status part_of(const struct tsr_plan_latency_job *j, const struct tsr_plan_mesh *m,
                          uint64_t cls, const struct some *some, enum tsr_phase phase, double v,
                          double s, double t, struct tsr_plan_time *sum, struct tsr_err *err)
{
    static const struct some       all = { true, true, NULL };
    const struct tsr_plan_profile *p = m->profile;
    char                           kernel[TSR_PLAN_KERNEL_TEXT];
    struct tsr_plan_work           w, part;
    struct tsr_plan_time           out = { .ms = NAN, .basis = TSR_PLAN_ROOFLINE };
    uint32_t                       kv_bits = j->kv_bits ? j->kv_bits : 16;
    bool                           whole = some->others && some->experts && !is_apart(some);
    double                         tokens = phase == TSR_PLAN_PREFILL ? v * s : v;
    if (!any(some, j->shape, cls))
        return TSR_OK;
    TSR_TRY(tsr_plan_part_kernel(some->part, j->shape, cls, kernel, err));
    tsr_plan_profile_scheme_kernel(p, some->part->c->scheme, kernel);
    if (!tsr_plan_profile_runs(p, kernel)) {
        add(sum, &out);
        return TSR_OK;
    }
    TSR_TRY(work_of(j, m, cls, some->part, &all, tokens, &w, err));
    const struct tsr_plan_fit *f = tsr_plan_fit_find(p->fits, kernel, phase, &w, tokens);
    part = w;
    if (!whole)
        TSR_TRY(work_of(j, m, cls, some->part, some, tokens, &part, err));
    if (!(part.read > 0)) /* experts that no token takes */
        return TSR_OK;
    if (!f) {
        out.ms = tsr_plan_roofline_ms(p, tsr_plan_profile_kernel(p, kernel, tokens), phase, &part,
                                      kv_bits / 8.0, v, s, t);
        if (is_apart(some) &&
            !has(some, j->shape, cls, some->others ? TSR_MODEL_O : TSR_MODEL_DOWN, 0))
            out.ms -= p->overhead_ms[phase]; /* which another part has */
        add(sum, &out);
        return TSR_OK;
    }
    bool same = tsr_plan_fit_same_shape(&f->shape, &w), exact = false;
    out.basis = TSR_PLAN_FITTED;
    out.extrapolated = outside(f, v, s, t) || (!same && f->pooled) ||
                       tokens <= (double)f->knots[0] || tokens > (double)f->knots[1];
    if (j->mode == TSR_PLAN_LATENCY_TABLE) {
        out.ms = from_table(p, f, &w, kv_bits, v, s, t, &exact);
        if (exact) {
            out.basis = TSR_PLAN_MEASURED;
            out.extrapolated = false;
        }
    } else {
        out.ms = evaluate(f, &w, kv_bits, v, s, t);
    }
    if (!whole && out.ms > 0)
        out.ms *= evaluate(f, &part, kv_bits, v, s, t) / evaluate(f, &w, kv_bits, v, s, t);
    add(sum, &out);
    return TSR_OK;
}

/* The experts on the mesh's part of its CPU, and the rows on their way there and back: inputs, what the shared expert
 * says, and sums. */
static tsr_status on_cpu(const struct tsr_plan_latency_job *j, const struct tsr_plan_mesh *m,
                         uint64_t cls, const struct tsr_plan_candidate *c, enum tsr_phase phase,
                         double v, double s, double t, struct tsr_plan_time *out,
                         struct tsr_err *err)
{
    const struct tsr_plan_mesh cpu = { .profile = m->cpu,
                                       .tp = m->tp,
                                       .whole_experts = m->whole_experts };
    struct tsr_plan_time       one = { .basis = TSR_PLAN_MEASURED };
    double tokens = phase == TSR_PLAN_PREFILL ? v * s : v, rows = j->shape->shared_ffn ? 3 : 2;
    if (!m->cpu) {
        out->ms = NAN;
        return TSR_OK;
    }
    for (uint32_t k = 0; k < TSR_PLAN_PLACES; k++) {
        struct tsr_plan_part part;
        const struct some    there = { false, true, &part };
        if (tsr_plan_part_at(c, j->shape, cls, k, &part))
            TSR_TRY(part_of(j, &cpu, cls, &there, phase, v, s, t, &one, err));
    }
    one.ms = one.ms * m->tp / m->cpu_share +
             rows * tsr_plan_link_ms(&m->to_cpu[phase], tokens * (double)j->shape->hidden * 4);
    one.cpu_ms = one.ms;
    add(out, &one);
    return TSR_OK;
}

tsr_status tsr_plan_latency_layer(const struct tsr_plan_latency_job *j,
                                  const struct tsr_plan_mesh *m, uint64_t cls,
                                  const struct tsr_plan_candidate *c, enum tsr_phase phase,
                                  double v, double s, double t, struct tsr_plan_time *out,
                                  struct tsr_err *err)
{
    bool apart = m->cpu_experts && j->shape->layer[cls].router.rows, several = false;
    *out = (struct tsr_plan_time){ .basis = TSR_PLAN_MEASURED };
    for (uint32_t k = 0; k < TSR_PLAN_PLACES; k++) {
        struct tsr_plan_part part;
        const struct some    here = { true, !apart, &part };
        if (!tsr_plan_part_at(c, j->shape, cls, k, &part))
            continue;
        several = several || is_apart(&here);
        TSR_TRY(part_of(j, m, cls, &here, phase, v, s, t, out, err));
    }
    if (isnan(out->ms))
        return TSR_OK;
    if (apart)
        TSR_TRY(on_cpu(j, m, cls, c, phase, v, s, t, out, err));
    out->extrapolated = out->extrapolated || several; /* points are of layers of one kind */
    return collectives(j, m, cls, phase, phase == TSR_PLAN_PREFILL ? v * s : v, out, err);
}

tsr_status tsr_plan_latency_prompt(const struct tsr_plan_latency_job *j,
                                   const struct tsr_plan_mesh *m, uint64_t cls,
                                   const struct tsr_plan_candidate *c,
                                   const struct tsr_plan_workload *w, uint64_t v,
                                   struct tsr_plan_time *out, struct tsr_err *err)
{
    uint64_t             last, n = tsr_plan_workload_chunks(w, &last);
    uint64_t             chunk = n > 1 ? w->chunk : last;
    struct tsr_plan_time one;
    *out = (struct tsr_plan_time){ .basis = TSR_PLAN_MEASURED };
    for (uint64_t i = 0; i < n; i++) {
        uint64_t s = i + 1 < n ? chunk : last;
        TSR_TRY(tsr_plan_latency_layer(j, m, cls, c, TSR_PLAN_PREFILL, (double)v, (double)s,
                                       (double)(i * chunk), &one, err));
        add(out, &one);
        out->most_ms = fmax(out->most_ms, one.ms);
    }
    return TSR_OK;
}
