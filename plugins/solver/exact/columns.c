#include "exact.h"

#include <stdlib.h>

/* Labels of a stage from layer s: sums of bytes, prefill and decode time with the least omega that
 * any choice of bits has for them.  They stay sorted by (bytes, prefill, decode, bytes of the host), for adding a layer's
 * candidate shifts all alike: the labels of one more layer are a merge of shifted lists, and equal
 * sums meet there.  That makes counts of candidates, not vectors of bits, the size of the lists. */

#define WORK         16u                 /* labels examined for each that a node may keep */
#define MOST_SHIFTED (UINT64_C(1) << 24) /* labels of one layer: 40 bytes each */
#define SETS         3u                  /* price vectors that a label is tested with */

struct test {
    double  pre, dec, mem; /* weights; omega has x->w.theta */
    double *most;          /* [L+1] after layer e - 1 */
};

struct grow {
    struct ex             *x;
    const struct ex_model *m;
    uint64_t               k, s;
    struct test            test[SETS];
    uint32_t               n_test;
    uint64_t               spent, most_spent, most_columns;
};

/* What may still be added: is the segment's bound with all around it below most? */
static bool alive(const struct ex *x, uint64_t k, uint64_t s, uint64_t e, double most)
{
    return x->cost[EX_SEG(x, k, s, e)] + x->around[EX_SEG(x, k, s, e)] <= most;
}

static void set_test(struct grow *w, const struct ex_price *p, const double *prefix, double most,
                     uint64_t end, struct test *t)
{
    struct ex    *x = w->x;
    const double *ends = w->m->end + w->k * 4;
    t->pre = x->w.a[w->k] + p->pre;
    t->dec = x->w.b[w->k] + p->dec;
    t->mem = p->mem;
    double room = p->mem * (double)w->m->room[w->k] + (p->pre > 0 ? p->pre * x->w.p_hi : 0) +
                  (p->dec > 0 ? p->dec * x->w.d_hi : 0);
    double after = -INFINITY;
    for (uint64_t e = end; e > w->s; e--) {
        double v = after;
        if (alive(x, w->k, w->s, e, most)) {
            double tail =
                e < x->L ? 0 : t->pre * ends[2] + t->dec * ends[3] + t->mem * (double)w->m->head;
            v = fmax(v, most - x->around[EX_SEG(x, w->k, w->s, e)] - tail + room);
        }
        /* 1e-12: prefix sums and labels are rounded differently */
        t->most[e] = v + 1e-12 * fabs(v);
        after = v - (prefix[e] - prefix[e - 1]);
    }
}

/* Prices that bound most segments from s: none, and the two most frequent others. */
static void set_tests(struct grow *w, double most, uint64_t end)
{
    struct ex *x = w->x;
    uint32_t   votes[EX_PRICES] = { 0 };
    for (uint64_t e = w->s + 1; e <= end; e++)
        if (alive(x, w->k, w->s, e, most))
            votes[ex_relax_price(x, w->m, w->k, w->s, e)]++;
    uint32_t pick[SETS] = { 0, 0, 0 };
    w->n_test = 1;
    votes[0] = 0;
    for (uint32_t i = 1; i < SETS; i++) {
        for (uint32_t g = 1; g < x->n_price[w->k]; g++)
            if (votes[g] > votes[pick[i]])
                pick[i] = g;
        if (votes[pick[i]] == 0)
            break;
        votes[pick[i]] = 0;
        w->n_test++;
    }
    for (uint32_t i = 0; i < w->n_test; i++)
        set_test(w, &x->price[w->k * EX_PRICES + pick[i]],
                 x->prefix + (w->k * EX_PRICES + pick[i]) * (x->L + 1), most, end, &w->test[i]);
}

static bool passes(const struct grow *w, const struct ex_label *v, uint64_t e)
{
    double omega = w->x->w.theta * v->w;
    for (uint32_t i = 0; i < w->n_test; i++) {
        const struct test *t = &w->test[i];
        if (!(t->pre * v->pre + t->dec * v->dec + t->mem * (double)v->mem + omega <= t->most[e]))
            return false;
    }
    return true;
}

static bool before(const struct ex_label *a, const struct ex_label *b)
{
    if (a->mem != b->mem)
        return a->mem < b->mem;
    if (a->pre != b->pre)
        return a->pre < b->pre;
    return a->dec != b->dec ? a->dec < b->dec : a->host < b->host;
}

static void shift(struct ex_label *out, const struct ex_label *v, const struct ex_item *it,
                  const double *omega)
{
    out->mem = v->mem + it->mem;
    out->host = v->host + it->host;
    out->pre = v->pre + it->pre;
    out->dec = v->dec + it->dec;
    out->w = v->w + omega[it->q];
}

#define MAX_ITEMS 64u

/* One more layer, l: merges the shifted lists in a into b; returns the new length. */
static uint64_t add_layer(struct grow *w, uint64_t l, const struct ex_label *a, uint64_t n,
                          struct ex_label *b)
{
    struct ex *x = w->x;
    uint64_t class = w->k * x->C + x->in->layer_class[l];
    const struct ex_item *it = w->m->items + class * x->Q;
    uint32_t              q = w->m->n_items[class];
    const double         *omega = ex_omega_of(x, w->k, l);
    uint64_t              at[MAX_ITEMS] = { 0 }, out = 0, room = w->m->room[w->k];
    struct ex_label       front[MAX_ITEMS];
    for (uint32_t i = 0; i < q; i++)
        shift(&front[i], &a[0], &it[i], omega);
    while (q) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < q; i++)
            if (at[i] < n && (at[least] >= n || before(&front[i], &front[least])))
                least = i;
        if (at[least] >= n)
            break;
        struct ex_label v = front[least];
        if (v.mem > room)
            break; /* and all later ones */
        for (uint32_t i = least; i < q; i++) {
            if (at[i] >= n || before(&v, &front[i]))
                continue;
            v.w = fmin(v.w, front[i].w);
            if (++at[i] < n)
                shift(&front[i], &a[at[i]], &it[i], omega);
        }
        if (v.pre <= x->w.p_hi && v.dec <= x->w.d_hi && v.w <= x->w_limit &&
            v.host <= w->m->host[w->k] && passes(w, &v, l + 1))
            b[out++] = v;
    }
    return out;
}

static bool columns_room(struct ex *x, uint64_t more)
{
    struct ex_columns *c = &x->cols;
    if (c->n + more <= c->room)
        return true;
    uint64_t room = c->room * 2 > c->n + more ? c->room * 2 : c->n + more + 128;
    double  *p = ex_new(x, room * 4, sizeof *p);
    if (!p)
        return false;
    const double *old[4] = { c->pre, c->dec, c->w, c->cost };
    for (uint64_t i = 0; i < 4; i++)
        if (c->n)
            memcpy(p + i * room, old[i], c->n * sizeof *p);
    ex_free(x, c->pre);
    c->pre = p;
    c->dec = p + room;
    c->w = p + 2 * room;
    c->cost = p + 3 * room;
    c->room = room;
    return true;
}

/* Labels that end the stage at e become columns, cheapest first, without the dominated ones. */
static int by_cost(const void *a, const void *b)
{
    const struct ex_label *p = a, *q = b;
    double                 x, y;
    memcpy(&x, &p->mem, sizeof x);
    memcpy(&y, &q->mem, sizeof y);
    return x < y ? -1 : x > y;
}

static bool end_stage(struct grow *w, uint64_t e, const struct ex_label *a, uint64_t n,
                      struct ex_label *tmp, double most)
{
    struct ex         *x = w->x;
    struct ex_columns *c = &x->cols;
    const double      *ends = w->m->end + w->k * 4;
    bool               last = e == x->L;
    double             spare = most - x->around[EX_SEG(x, w->k, w->s, e)];
    uint64_t           kept = 0;
    if (last && w->m->room[w->k] < w->m->head)
        return true;
    uint64_t room = w->m->room[w->k] - (last ? w->m->head : 0);
    for (uint64_t i = 0; i < n; i++) {
        struct ex_label v = a[i];
        v.pre += last ? ends[2] : 0;
        v.dec += last ? ends[3] : 0;
        double cost = x->w.a[w->k] * v.pre + x->w.b[w->k] * v.dec + x->w.theta * v.w;
        if (v.mem > room || v.pre > x->w.p_hi || v.dec > x->w.d_hi || !(cost <= spare))
            continue;
        memcpy(&v.mem, &cost, sizeof cost); /* bytes are of no further use */
        tmp[kept++] = v;
    }
    if (kept == 0)
        return true;
    qsort(tmp, kept, sizeof *tmp, by_cost);
    if (!columns_room(x, kept) ||
        !ex_grow(x, (void **)&c->seg, &c->seg_room, c->n_seg + 1, sizeof *c->seg))
        return false;
    struct ex_segment *seg = &c->seg[c->n_seg++];
    *seg = (struct ex_segment){ (uint32_t)w->k, (uint32_t)w->s, (uint32_t)e, 0, c->n, 0 };
    for (uint64_t i = 0; i < kept; i++) {
        bool     out = false;
        uint64_t end = c->n;
        for (uint64_t j = seg->first; j < end && !out; j++)
            out = c->pre[j] <= tmp[i].pre && c->dec[j] <= tmp[i].dec && c->w[j] <= tmp[i].w;
        if (out)
            continue;
        c->pre[end] = tmp[i].pre;
        c->dec[end] = tmp[i].dec;
        c->w[end] = tmp[i].w;
        memcpy(&c->cost[end], &tmp[i].mem, sizeof c->cost[end]);
        c->n++;
    }
    seg->n = c->n - seg->first;
    return true;
}

static struct ex_label start(const struct grow *w)
{
    const double   *ends = w->m->end + w->k * 4;
    struct ex_label v = { 0, 0, 0, 0, 0 };
    if (w->s == 0)
        v = (struct ex_label){ w->m->embed, 0, ends[0], ends[1], 0 };
    return v;
}

/* All stages of kind k from layer s. */
static bool from_layer(struct grow *w, double most)
{
    struct ex *x = w->x;
    uint64_t   end = w->s, n = 1;
    uint64_t   far = x->last[w->k * x->L + w->s] ? x->L : x->reach[w->k * x->L + w->s];
    for (uint64_t e = w->s + 1; e <= far; e++)
        if (alive(x, w->k, w->s, e, most))
            end = e;
    if (end == w->s)
        return true;
    set_tests(w, most, end);
    x->lab[0][0] = start(w);
    for (uint64_t l = w->s; l < end && n; l++) {
        uint32_t q = w->m->n_items[w->k * x->C + x->in->layer_class[l]];
        w->spent += n * q;
        if (w->spent > w->most_spent || n * q > MOST_SHIFTED || x->cols.n > w->most_columns)
            return false;
        if (!ex_grow(x, (void **)&x->lab[1], &x->lab_room[1], n * q, sizeof **x->lab))
            return false;
        n = add_layer(w, l, x->lab[0], n, x->lab[1]);
        struct ex_label *t = x->lab[0];
        uint64_t         r = x->lab_room[0];
        x->lab[0] = x->lab[1];
        x->lab_room[0] = x->lab_room[1];
        x->lab[1] = t;
        x->lab_room[1] = r;
        if (n && alive(x, w->k, w->s, l + 1, most)) {
            if (!ex_grow(x, (void **)&x->lab[1], &x->lab_room[1], n, sizeof **x->lab) ||
                !end_stage(w, l + 1, x->lab[0], n, x->lab[1], most))
                return false;
        }
        if ((x->ticks += n * q) > 100000) {
            x->ticks = 0;
            if (ex_stop(x))
                return false;
        }
    }
    return true;
}

bool ex_columns_build(struct ex *x, const struct ex_model *m, double most, uint64_t limit)
{
    /* reading a label costs little compared with the later work on a column */
    struct grow w = { .x = x, .m = m, .most_spent = limit * WORK, .most_columns = limit };
    x->cols.n = x->cols.n_seg = 0;
    for (uint32_t i = 0; i < SETS; i++)
        w.test[i].most = x->most + i * (x->L + 1);
    bool ok = true;
    for (w.k = 0; w.k < x->K && ok; w.k++)
        for (w.s = 0; w.s < x->L && ok; w.s++)
            ok = from_layer(&w, most);
    x->all_labels += w.spent;
    return ok;
}

void ex_columns_price(struct ex *x, const struct ex_model *m)
{
    struct ex_columns *c = &x->cols;
    (void)m;
    for (uint64_t i = 0; i < x->K * x->L * (x->L + 1); i++)
        x->cost[i] = INFINITY;
    x->reach_of = 0; /* stages go as far as there are columns: most layers have none from them on */
    memset(x->reach, 0, x->K * x->L * sizeof *x->reach);
    memset(x->last, 0, x->K * x->L * sizeof *x->last);
    for (uint64_t i = 0; i < c->n_seg; i++) {
        const struct ex_segment *g = &c->seg[i];
        uint32_t                *reach = &x->reach[g->k * x->L + g->s];
        x->last[g->k * x->L + g->s] |= g->e == x->L;
        *reach = g->e < x->L && g->e > *reach ? g->e : *reach;
        double a = x->w.a[g->k], b = x->w.b[g->k], t = x->w.theta, v = INFINITY;
        for (uint64_t j = g->first; j < g->first + g->n; j++) {
            double cost = a * c->pre[j] + b * c->dec[j] + t * c->w[j];
            c->cost[j] = cost;
            v = cost < v ? cost : v;
        }
        x->cost[EX_SEG(x, g->k, g->s, g->e)] = v;
    }
}

void ex_columns_filter(struct ex *x, double most)
{
    struct ex_columns *c = &x->cols;
    uint64_t           n = 0, segs = 0;
    for (uint64_t i = 0; i < c->n_seg; i++) {
        struct ex_segment g = c->seg[i];
        double            spare = most - x->around[EX_SEG(x, g.k, g.s, g.e)];
        uint64_t          first = n;
        for (uint64_t j = g.first; j < g.first + g.n; j++) {
            if (!(c->cost[j] <= spare))
                continue;
            c->pre[n] = c->pre[j];
            c->dec[n] = c->dec[j];
            c->w[n] = c->w[j];
            c->cost[n++] = c->cost[j];
        }
        g.first = first;
        g.n = n - first;
        if (g.n)
            c->seg[segs++] = g;
    }
    c->n = n;
    c->n_seg = segs;
}

void ex_columns_stage(const struct ex *x, struct ex_stage *st)
{
    const struct ex_columns *c = &x->cols;
    double                   cost = x->cost[EX_SEG(x, st->k, st->s, st->e)];
    for (uint64_t i = 0; i < c->n_seg; i++) {
        const struct ex_segment *g = &c->seg[i];
        if (g->k != st->k || g->s != st->s || g->e != st->e)
            continue;
        for (uint64_t j = g->first; j < g->first + g->n; j++)
            if (c->cost[j] == cost) {
                st->pre = c->pre[j];
                st->dec = c->dec[j];
                st->w = c->w[j];
                return;
            }
    }
}

void ex_columns_sort(struct ex *x)
{
    struct ex_columns *c = &x->cols;
    for (uint64_t i = 0; i < c->n_seg; i++)
        for (uint64_t f = c->seg[i].first, j = f + 1; j < f + c->seg[i].n; j++) {
            double   v[4] = { c->pre[j], c->dec[j], c->w[j], c->cost[j] };
            uint64_t at = j;
            for (; at > f && c->cost[at - 1] > v[3]; at--) {
                c->pre[at] = c->pre[at - 1];
                c->dec[at] = c->dec[at - 1];
                c->w[at] = c->w[at - 1];
                c->cost[at] = c->cost[at - 1];
            }
            c->pre[at] = v[0];
            c->dec[at] = v[1];
            c->w[at] = v[2];
            c->cost[at] = v[3];
        }
}
