#include "exact.h"

/* Partial plans, layer by layer. One is dropped when another one with the same devices and layers
 * dominates it in every sum and maximum, or when no completion can be good enough: by the node's
 * multipliers, and by the remaining sums plus the maxima so far. */

struct run {
    struct ex             *x;
    const struct ex_model *m;
    double                 most, limit; /* plans of at least `most` are not looked for */
    double                 kap, c;      /* mixed form */
    uint64_t               tries, looks, most_looks; /* columns tried, labels compared */
};

static double goal(const struct run *r)
{
    return r->x->target < r->most ? r->x->target : r->most;
}

static bool worse(const struct ex_path *a, const struct ex_path *b)
{
    return a->sum >= b->sum && a->r >= b->r && a->p >= b->p && a->d >= b->d && a->w >= b->w &&
           a->f >= b->f;
}

/* False: out of memory. */
static bool insert(struct run *r, uint64_t at, const struct ex_path *v)
{
    struct ex *x = r->x;
    uint32_t  *link = &x->head[at];
    while (*link) {
        uint32_t        i = *link;
        struct ex_path *o = &x->paths[i];
        r->looks++;
        if (worse(v, o)) {
            /* to the front: a label that dominates one probably dominates the next ones too */
            *link = o->next;
            o->next = x->head[at];
            x->head[at] = i;
            return true;
        }
        if (worse(o, v))
            *link = o->next;
        else
            link = &o->next;
    }
    uint32_t before = x->head[at];
    if (!ex_grow(x, (void **)&x->paths, &x->path_room, x->n_paths + 1, sizeof *x->paths))
        return false;
    x->paths[x->n_paths] = *v;
    x->paths[x->n_paths].next = before;
    x->head[at] = (uint32_t)x->n_paths++;
    return true;
}

/* The plan that ends with column `col` of segment `seg` after path `parent` and a link of a codec. */
static void found(struct run *r, uint64_t parent, uint64_t seg, uint64_t col, uint32_t link)
{
    struct ex *x = r->x;
    uint64_t   n = 0;
    for (;;) {
        const struct ex_segment *g = &x->cols.seg[seg];
        x->trial[n++] =
            (struct ex_stage){ g->k,          g->s, g->e, link, x->cols.pre[col], x->cols.dec[col],
                               x->cols.w[col] };
        if (parent == 0)
            break;
        link = x->paths[parent].link;
        seg = x->paths[parent].seg;
        col = x->paths[parent].col;
        parent = x->paths[parent].parent;
    }
    for (uint64_t i = 0; i < n / 2; i++) {
        struct ex_stage t = x->trial[i];
        x->trial[i] = x->trial[n - 1 - i];
        x->trial[n - 1 - i] = t;
    }
    ex_incumbent(x, (uint64_t)(r->m - x->models), x->trial, n, NULL);
}

/* Appends every column of a segment to a path; base: the path's sums with the link. */
static bool extend(struct run *r, const struct ex_path *base, uint64_t parent, uint64_t seg,
                   uint64_t to, uint64_t g)
{
    struct ex               *x = r->x;
    const struct ex_model   *m = r->m;
    const struct ex_columns *c = &x->cols;
    struct ex_segment        s = c->seg[seg];
    uint64_t                 at = EX_AT(x, m, to, g, s.e);
    double                   rest = x->bwd[at], rest0 = x->bwd0[at], restw = x->bwdw[at];
    double                   restf = m->f_limit < INFINITY ? x->bwdf[at] : -INFINITY;
    for (uint64_t j = s.first; j < s.first + s.n; j++) {
        double spare = goal(r) - x->w.konst - rest;
        r->tries++;
        if (!(base->priced + c->cost[j] <= spare))
            break;
        struct ex_path v = { .sum = base->sum + c->pre[j] + x->theta * c->w[j],
                             .r = base->r + c->dec[j],
                             .p = fmax(base->p, c->pre[j]),
                             .d = fmax(base->d, c->dec[j]),
                             .w = base->w + c->w[j],
                             .f = base->f + c->pre[j],
                             .priced = base->priced + c->cost[j],
                             .parent = (uint32_t)parent,
                             .col = (uint32_t)j,
                             .seg = (uint32_t)seg,
                             .link = base->link };
        double         least = v.sum + m->a_max * v.p + r->kap * v.r + r->c * v.d + rest0;
        if (!(least < goal(r)) || v.w + restw > x->w_limit ||
            v.f + m->a_max * v.p + restf > m->f_limit)
            continue;
        if (s.e == x->L) {
            if (x->complete[to] && ex_objective(x, m, v.sum, v.r, v.p, v.d) < goal(r))
                found(r, parent, seg, j, base->link);
        } else {
            if (x->w_limit == INFINITY)
                v.w = 0;
            if (m->f_limit == INFINITY)
                v.f = 0;
            if (m->forms == 1) { /* one number is enough */
                v.sum += m->kap[0] * v.r;
                v.r = 0;
            }
            if (!insert(r, at, &v))
                return false;
        }
    }
    return true;
}

/* True when another codec of the link is no worse than codec v anywhere. */
static bool link_is_worse(const struct ex *x, const struct ex_model *m, uint64_t l, uint64_t g,
                          uint64_t k, uint64_t v)
{
    const double *t = ex_link_ms(x, m, v, g, k);
    double        w = ex_link_omega(x, v, l);
    for (uint64_t u = 0; u < x->V; u++) {
        const double *o = ex_link_ms(x, m, u, g, k);
        double        ow = ex_link_omega(x, u, l);
        if (u != v && o[0] <= t[0] && o[1] <= t[1] && ow <= w &&
            (u < v || o[0] < t[0] || o[1] < t[1] || ow < w))
            return true;
    }
    return false;
}

/* The path `base` with the link of codec v after layer l, from a kind of group g to kind k; false: not in
 * the box, or another codec is no worse. */
static bool add_link(const struct run *r, uint64_t l, uint64_t g, uint64_t k, uint32_t v,
                     struct ex_path *base)
{
    const struct ex       *x = r->x;
    const struct ex_model *m = r->m;
    const double          *t = ex_link_ms(x, m, v, g, k);
    double                 w = ex_link_omega(x, v, l);
    if (t[0] > x->w.p_hi || t[1] > x->w.d_hi || (x->V > 1 && link_is_worse(x, m, l, g, k, v)))
        return false;
    base->priced += x->w.link_pre * t[0] + x->w.link_dec * t[1] + x->w.theta * w;
    base->sum += m->in_sum * t[0] + x->theta * w;
    base->w += w;
    base->f += t[0];
    base->p = fmax(base->p, t[0]);
    base->d = fmax(base->d, t[1]);
    if (m->forms == 1)
        base->sum += m->in_sum * m->kap[0] * t[1];
    else
        base->r += m->in_sum * t[1];
    base->link = v;
    return true;
}

static bool follow(struct run *r, uint64_t st, uint64_t g, uint64_t e, uint64_t index)
{
    struct ex             *x = r->x;
    const struct ex_model *m = r->m;
    bool                   linked = m->links && e > 0;
    for (uint64_t k = 0; k < x->K; k++) {
        uint32_t to = x->next[st * x->K + k];
        uint64_t first = x->seg_of[k * (x->L + 1) + e], end = x->seg_of[k * (x->L + 1) + e + 1];
        for (uint32_t v = 0; to != EX_NONE && v < (linked ? x->V : 1); v++) {
            struct ex_path base = x->paths[index];
            if (linked && !add_link(r, e - 1, g, k, v, &base))
                continue;
            for (uint64_t i = first; i < end; i++)
                if (!extend(r, &base, e > 0 ? index : 0, i, to, m->groups > 1 ? k : 0))
                    return false;
        }
    }
    return true;
}

static void index_segments(struct ex *x)
{
    const struct ex_columns *c = &x->cols;
    uint64_t                 i = 0;
    for (uint64_t k = 0; k < x->K; k++)
        for (uint64_t s = 0; s <= x->L; s++) {
            while (i < c->n_seg && (c->seg[i].k < k || (c->seg[i].k == k && c->seg[i].s < s)))
                i++;
            x->seg_of[k * (x->L + 1) + s] = i;
        }
    x->seg_of[x->K * (x->L + 1)] = c->n_seg;
}

bool ex_labels_run(struct ex *x, const struct ex_model *m, double most, uint64_t limit)
{
    struct run r = {
        .x = x, .m = m, .most = most, .kap = x->w.kap, .c = x->w.c, .most_looks = limit * 40
    };
    uint64_t G = m->groups;
    memset(x->head, 0, x->n_states * G * (x->L + 1) * sizeof *x->head);
    index_segments(x);
    if (!ex_grow(x, (void **)&x->paths, &x->path_room, 32, sizeof *x->paths))
        return false;
    x->paths[0] = (struct ex_path){
        .p = x->w.p_lo, .d = x->w.d_lo, .w = m->omega, .sum = x->theta * m->omega
    };
    x->n_paths = 1;
    for (uint64_t e = 0; e < x->L; e++)
        for (uint64_t st = 0; st < x->n_states; st++)
            for (uint64_t g = 0; g < G; g++) {
                if (e == 0 && st == 0 && g == 0 && !follow(&r, 0, 0, 0, 0))
                    return false;
                uint32_t i = x->head[EX_AT(x, m, st, g, e)];
                for (; i; i = x->paths[i].next) {
                    if (!follow(&r, st, g, e, i))
                        return false;
                    if (x->n_paths > limit || r.tries + r.looks > r.most_looks ||
                        ((i & 255) == 0 && ex_stop(x))) {
                        x->all_paths += r.tries;
                        return false;
                    }
                }
            }
    x->all_paths += r.tries;
    return true;
}
