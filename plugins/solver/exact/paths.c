#include "exact.h"

double ex_link(const struct ex *x, const struct ex_model *m, uint64_t l, uint64_t from, uint64_t to,
               uint32_t *codec)
{
    double best = INFINITY;
    if (!m->links)
        return 0;
    for (uint32_t v = 0; v < x->V; v++) {
        const double *t = ex_link_ms(x, m, v, from, to);
        if (t[0] > x->w.p_hi || t[1] > x->w.d_hi)
            continue;
        double c =
            x->w.link_pre * t[0] + x->w.link_dec * t[1] + x->w.theta * ex_link_omega(x, v, l);
        if (c < best) {
            best = c;
            if (codec)
                *codec = v;
        }
    }
    return best;
}

/* x->way: ex_link() after layer l from group g to kind k at g x by_g + k x by_k.  Only what links add to omega depends on
 * the layer. */
static void set_ways(struct ex *x, const struct ex_model *m, uint64_t l, bool first, uint64_t by_g,
                     uint64_t by_k)
{
    if (!first && !x->link_omega)
        return;
    for (uint64_t g = 0; g < m->groups; g++)
        for (uint64_t k = 0; k < x->K; k++)
            x->way[g * by_g + k * by_k] = ex_link(x, m, l, g, k, NULL);
}

/* to[i] = least of it and v + way[i]. */
static void lower(double *restrict to, const double *restrict way, double v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double t = v + way[i];
        to[i] = t < to[i] ? t : to[i];
    }
}

/* Largest e of a segment from s, e = L included. */
static uint64_t last_of(const struct ex *x, uint64_t k, uint64_t s)
{
    return x->last[k * x->L + s] ? x->L : x->reach[k * x->L + s];
}

/* in: [K] least sum of a path to state st at layer s, with the link to each kind.  Most groups have no such path. */
static bool set_into(const struct ex *x, const struct ex_model *m, uint64_t st, uint64_t s,
                     double *in)
{
    bool any = s == 0 && st == 0;
    for (uint64_t k = 0; k < x->K; k++)
        in[k] = any ? 0 : INFINITY;
    for (uint64_t g = 0; g < m->groups && s > 0; g++) {
        double v = x->fwd[EX_AT(x, m, st, g, s)];
        if (!(v < INFINITY))
            continue;
        lower(in, x->way + g * x->K, v, x->K);
        any = true;
    }
    return any;
}

/* x->fwd: least sum of a path to each state; x->into: the same with the link to kind k. */
double ex_forward(struct ex *x, const struct ex_model *m)
{
    uint64_t L = x->L, K = x->K, n = x->n_states, G = m->groups;
    double  *in = x->way + G * K;
    for (uint64_t i = 0; i < n * G * (L + 1); i++)
        x->fwd[i] = INFINITY;
    for (uint64_t i = 0; i < n * K * L; i++)
        x->into[i] = INFINITY;
    for (uint64_t s = 0; s < L; s++) {
        if (s > 0)
            set_ways(x, m, s - 1, s == 1, K, 1);
        for (uint64_t st = 0; st < n; st++) {
            if (!set_into(x, m, st, s, in))
                continue;
            for (uint64_t k = 0; k < K; k++) {
                uint32_t to = x->next[st * K + k];
                uint64_t end = last_of(x, k, s);
                if (to == EX_NONE || end <= s || !(in[k] < INFINITY))
                    continue;
                x->into[(st * K + k) * L + s] = in[k];
                lower(x->fwd + EX_AT(x, m, to, G > 1 ? k : 0, s + 1),
                      x->cost + EX_SEG(x, k, s, s + 1), in[k], end - s);
            }
        }
    }
    double best = INFINITY;
    for (uint64_t st = 0; st < n; st++)
        for (uint64_t g = 0; g < G && x->complete[st]; g++)
            best = fmin(best, x->fwd[EX_AT(x, m, st, g, L)]);
    return best;
}

/* The least of c[i] + b[i]. */
static double least_sum(const double *restrict c, const double *restrict b, uint64_t n)
{
    double   v[4] = { INFINITY, INFINITY, INFINITY, INFINITY };
    uint64_t e = 0;
    for (; e + 4 <= n; e += 4)
        for (uint64_t i = 0; i < 4; i++) {
            double t = c[e + i] + b[e + i];
            v[i] = t < v[i] ? t : v[i];
        }
    for (; e < n; e++)
        v[0] = c[e] + b[e] < v[0] ? c[e] + b[e] : v[0];
    v[0] = v[1] < v[0] ? v[1] : v[0];
    v[2] = v[3] < v[2] ? v[3] : v[2];
    return v[2] < v[0] ? v[2] : v[0];
}

/* to: least sum of a path from each state to the end. */
void ex_backward(struct ex *x, const struct ex_model *m, double *to)
{
    uint64_t L = x->L, K = x->K, n = x->n_states, G = m->groups;
    double  *out = x->way + G * K; /* [G] of one state and layer */
    for (uint64_t st = 0; st < n; st++)
        for (uint64_t g = 0; g < G; g++) {
            for (uint64_t s = 0; s < L; s++)
                to[EX_AT(x, m, st, g, s)] = INFINITY;
            to[EX_AT(x, m, st, g, L)] = x->complete[st] ? 0 : INFINITY;
        }
    for (uint64_t s = L; s-- > 0;) {
        if (s > 0)
            set_ways(x, m, s - 1, s + 1 == L, 1, G);
        for (uint64_t st = 0; st < n; st++) {
            double first = INFINITY;
            for (uint64_t g = 0; g < G; g++)
                out[g] = INFINITY;
            for (uint64_t k = 0; k < K; k++) {
                uint32_t next = x->next[st * K + k];
                uint64_t end = last_of(x, k, s);
                if (next == EX_NONE || end <= s)
                    continue;
                double v = least_sum(x->cost + EX_SEG(x, k, s, s + 1),
                                     to + EX_AT(x, m, next, G > 1 ? k : 0, s + 1), end - s);
                if (!(v < INFINITY))
                    continue;
                first = v < first ? v : first;
                if (s > 0)
                    lower(out, x->way + k * G, v, G);
            }
            for (uint64_t g = 0; g < G; g++)
                to[EX_AT(x, m, st, g, s)] = s > 0 ? out[g] : first;
        }
    }
}

/* x->around: least sum of all of a path but its stage (k, s, e). */
void ex_around(struct ex *x, const struct ex_model *m)
{
    uint64_t L = x->L, K = x->K, G = m->groups;
    for (uint64_t k = 0; k < K; k++)
        for (uint64_t s = 0; s < L; s++) {
            double  *a = x->around + EX_SEG(x, k, s, 0);
            uint64_t end = last_of(x, k, s);
            for (uint64_t e = s; e <= L; e++)
                a[e] = INFINITY;
            for (uint64_t st = 0; st < x->n_states && end > s; st++) {
                double   v = x->into[(st * K + k) * L + s];
                uint32_t to = x->next[st * K + k];
                if (to == EX_NONE || !(v < INFINITY))
                    continue;
                const double *b = x->bwd + EX_AT(x, m, to, G > 1 ? k : 0, 0);
                for (uint64_t e = s + 1; e <= end; e++) {
                    double t = v + b[e];
                    a[e] = t < a[e] ? t : a[e];
                }
            }
        }
}

/* The stage that a path of sum f to (st, g, e) ends with, and where it comes from. */
static bool step_back(const struct ex *x, const struct ex_model *m, uint64_t *st, uint64_t *g,
                      uint64_t *e, struct ex_stage *out)
{
    double f = x->fwd[EX_AT(x, m, *st, *g, *e)];
    for (uint64_t from = 0; from < x->n_states; from++)
        for (uint64_t k = 0; k < x->K; k++) {
            if (x->next[from * x->K + k] != *st || (m->groups > 1 && k != *g))
                continue;
            for (uint64_t s = 0; s < *e; s++) {
                double v = x->into[(from * x->K + k) * x->L + s];
                if (last_of(x, k, s) < *e || !(v < INFINITY) ||
                    v + x->cost[EX_SEG(x, k, s, *e)] != f)
                    continue;
                *out = (struct ex_stage){ .k = (uint32_t)k, .s = (uint32_t)s, .e = (uint32_t)*e };
                for (uint64_t h = 0; h < m->groups && s > 0; h++)
                    if (x->fwd[EX_AT(x, m, from, h, s)] + ex_link(x, m, s - 1, h, k, &out->link) ==
                        v) {
                        *g = h;
                        break;
                    }
                *st = from;
                *e = s;
                return true;
            }
        }
    return false;
}

/* The stages of a shortest path, without sums; ex_forward() found one.  Returns how many. */
uint64_t ex_walk(struct ex *x, const struct ex_model *m, struct ex_stage *st)
{
    uint64_t at = 0, group = 0, e = x->L, n = 0;
    double   best = INFINITY;
    for (uint64_t i = 0; i < x->n_states; i++)
        for (uint64_t g = 0; g < m->groups && x->complete[i]; g++)
            if (x->fwd[EX_AT(x, m, i, g, e)] < best) {
                best = x->fwd[EX_AT(x, m, i, g, e)];
                at = i;
                group = g;
            }
    while (e > 0 && n < x->L && step_back(x, m, &at, &group, &e, &st[n]))
        n++;
    for (uint64_t i = 0; i < n / 2; i++) {
        struct ex_stage t = st[i];
        st[i] = st[n - 1 - i];
        st[n - 1 - i] = t;
    }
    return e == 0 ? n : 0;
}
