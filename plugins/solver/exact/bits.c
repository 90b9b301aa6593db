#include "exact.h"

/* From a stage's sums back to bits: the labels of columns.c again, with parents, kept only where
 * the wanted sums can still be met. */

struct trace {
    struct ex_label v;
    uint32_t        parent, q;
};

struct back {
    struct ex             *x;
    const struct ex_model *m;
    const struct ex_stage *st;
    double                 pre, dec; /* of the layers alone */
    uint64_t               room, first, n, cap;
    struct trace          *t;
    double                *rest; /* [2][L+1] least times still to come */
    /* a price of the bound for which the stage is nearly the cheapest: what is spent with what is still to
     * come is at most what the stage may cost */
    struct ex_price p;
    double         *cost; /* [L+1] least cost of the layers still to come */
    double          most;
};

static const struct ex_item *items_of(const struct back *b, uint64_t l, uint32_t *n)
{
    uint64_t c = b->st->k * b->x->C + b->x->in->layer_class[l];
    *n = b->m->n_items[c];
    return b->m->items + c * b->x->Q;
}

static bool same(const struct ex_label *a, const struct ex_label *b)
{
    return a->mem == b->mem && a->host == b->host && a->pre == b->pre && a->dec == b->dec;
}

static bool before(const struct ex_label *a, const struct ex_label *b)
{
    if (a->mem != b->mem)
        return a->mem < b->mem;
    if (a->pre != b->pre)
        return a->pre < b->pre;
    return a->dec != b->dec ? a->dec < b->dec : a->host < b->host;
}

/* Fills cost for a price; returns how much more the stage may cost than the least. */
static double set_cost(struct back *b, const struct ex_price *p)
{
    const struct ex       *x = b->x;
    const struct ex_stage *st = b->st;
    b->p = *p;
    b->cost[st->e] = 0;
    for (uint64_t l = st->e; l-- > st->s;) {
        uint32_t              n;
        const struct ex_item *it = items_of(b, l, &n);
        double                v = INFINITY;
        for (uint32_t i = 0; i < n; i++)
            v = fmin(v, ex_item_cost(x, st->k, l, &it[i], p));
        b->cost[l] = b->cost[l + 1] + v;
    }
    b->most = (x->w.a[st->k] + p->pre) * b->pre + (x->w.b[st->k] + p->dec) * b->dec +
              p->mem * (double)b->room + x->w.theta * st->w;
    return b->most - b->cost[st->s];
}

/* The price that leaves the stage the least to spare: any price is right, this one drops most. */
static void set_price(struct back *b)
{
    const struct ex *x = b->x;
    uint32_t         best = 0;
    double           least = INFINITY;
    for (uint32_t g = 0; g < x->n_price[b->st->k]; g++) {
        double spare = set_cost(b, &x->price[(uint64_t)b->st->k * EX_PRICES + g]);
        if (spare < least) {
            least = spare;
            best = g;
        }
    }
    (void)set_cost(b, &x->price[(uint64_t)b->st->k * EX_PRICES + best]);
    b->most += 1e-9 * fabs(b->most); /* sums are rounded differently */
}

static bool can_pay(const struct back *b, uint64_t l, const struct ex_label *v)
{
    const struct ex *x = b->x;
    double cost = (x->w.a[b->st->k] + b->p.pre) * v->pre + (x->w.b[b->st->k] + b->p.dec) * v->dec +
                  b->p.mem * (double)v->mem + x->w.theta * v->w;
    return cost + b->cost[l] <= b->most;
}

/* Appends the labels of one more layer after those of [from, to): a merge as in columns.c. */
static bool add_layer(struct back *b, uint64_t l, uint64_t from, uint64_t to)
{
    struct ex            *x = b->x;
    uint32_t              n;
    const struct ex_item *it = items_of(b, l, &n);
    const double         *omega = ex_omega_of(x, b->st->k, l);
    uint64_t             *at = ex_new(x, n, sizeof *at);
    if (!at)
        return false;
    for (uint32_t i = 0; i < n; i++)
        at[i] = from;
    for (;;) {
        struct trace best = { .q = EX_NONE };
        for (uint32_t i = 0; i < n; i++) {
            if (at[i] >= to)
                continue;
            struct ex_label v = b->t[at[i]].v;
            v.mem += it[i].mem;
            v.host += it[i].host;
            v.pre += it[i].pre;
            v.dec += it[i].dec;
            v.w += omega[it[i].q];
            if (best.q == EX_NONE || before(&v, &best.v) || (same(&v, &best.v) && v.w < best.v.w))
                best = (struct trace){ v, (uint32_t)at[i], it[i].q };
        }
        if (best.q == EX_NONE)
            break;
        for (uint32_t i = 0; i < n; i++)
            if (at[i] < to) {
                struct ex_label v = b->t[at[i]].v;
                v.mem += it[i].mem;
                v.host += it[i].host;
                v.pre += it[i].pre;
                v.dec += it[i].dec;
                at[i] += same(&v, &best.v);
            }
        if (best.v.mem > b->room || best.v.host > b->m->host[b->st->k] || best.v.w > b->st->w ||
            best.v.pre + b->rest[l + 1] > b->pre ||
            best.v.dec + b->rest[x->L + 1 + l + 1] > b->dec || !can_pay(b, l + 1, &best.v))
            continue;
        if (!ex_grow(x, (void **)&b->t, &b->cap, b->n + 1, sizeof *b->t)) {
            ex_free(x, at);
            return false;
        }
        b->t[b->n++] = best;
    }
    ex_free(x, at);
    return true;
}

static void set_rest(struct back *b)
{
    for (uint64_t a = 0; a < 2; a++) {
        double *r = b->rest + a * (b->x->L + 1);
        r[b->st->e] = 0;
        for (uint64_t l = b->st->e; l-- > b->st->s;) {
            uint32_t              n;
            const struct ex_item *it = items_of(b, l, &n);
            double                v = INFINITY;
            for (uint32_t i = 0; i < n; i++)
                v = fmin(v, a ? it[i].dec : it[i].pre);
            r[l] = r[l + 1] + v;
        }
    }
}

bool ex_columns_bits(struct ex *x, const struct ex_model *m, const struct ex_stage *st,
                     uint32_t *bits)
{
    struct back   b = { .x = x, .m = m, .st = st, .pre = st->pre, .dec = st->dec };
    const double *ends = m->end + (uint64_t)st->k * 4;
    bool          ok = false;
    b.room = m->room[st->k] - (st->s ? 0 : m->embed) - (st->e == x->L ? m->head : 0);
    b.pre -= (st->s ? 0 : ends[0]) + (st->e == x->L ? ends[2] : 0);
    b.dec -= (st->s ? 0 : ends[1]) + (st->e == x->L ? ends[3] : 0);
    b.rest = ex_new(x, 3 * (x->L + 1), sizeof *b.rest);
    if (b.rest && ex_grow(x, (void **)&b.t, &b.cap, 64, sizeof *b.t)) {
        set_rest(&b);
        b.cost = b.rest + 2 * (x->L + 1);
        set_price(&b);
        b.t[0] = (struct trace){ .q = 0 };
        b.n = 1;
        ok = true;
        for (uint64_t l = st->s; l < st->e && ok; l++) {
            uint64_t from = b.first;
            b.first = b.n;
            ok = add_layer(&b, l, from, b.first);
        }
        uint64_t best = UINT64_MAX;
        for (uint64_t i = b.first; ok && i < b.n; i++)
            if (best == UINT64_MAX || b.t[i].v.w < b.t[best].v.w)
                best = i;
        if (ok && best == UINT64_MAX) { /* sums that came from nowhere */
            x->status = TSR_E_INVAL;
            ok = false;
        }
        for (uint64_t l = st->e; ok && l-- > st->s; best = b.t[best].parent)
            bits[l] = b.t[best].q;
    }
    ex_free(x, b.t);
    ex_free(x, b.rest);
    return ok;
}
