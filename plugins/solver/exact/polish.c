#include "exact.h"

/* Plans near those of the bounds: the bits of one layer or of two are changed while that gains, and layers
 * move to the next stage.  A bound's plan fits the memory but not the limit of omega, and its bits follow
 * prices that are the same for all stages of a pool. */

#define KEEP   EX_NEAR
#define ROUNDS 12u /* most passes over the pairs */

struct polish {
    struct ex             *x;
    const struct ex_model *m;
    uint64_t               n, spent, most;         /* stages; sums looked at */
    double                 sum, r, w, first, p, d; /* of the links and the option */
    struct ex_near         now, old;
    struct ex_move        *move; /* [L][KEEP] */
    bool                   smooth;
};

/* (v / top)^32: a sum of these is near that of the largest. */
static double power(double v, double top)
{
    double t = top > 0 ? v / top : 0;
    t *= t;
    t *= t;
    t *= t;
    t *= t;
    return t * t;
}

static double root(double v)
{
    return sqrt(sqrt(sqrt(sqrt(sqrt(v)))));
}

static double above(double v, double limit)
{
    return v > limit ? (v - limit) / fmax(limit, 1e-300) : 0;
}

/* The same of bytes, which a double may not hold. */
static double bytes_above(uint64_t v, uint64_t limit)
{
    return v > limit ? (double)(v - limit) / fmax((double)limit, 1) : 0;
}

/* The objective of the stages and how far limits are exceeded, as parts of these.  Smooth: the slowest
 * stage counts as the 32nd root of a sum of powers, so that two equally slow ones can be sped up one after the
 * other. */
static double score(struct polish *p, double *over)
{
    const struct ex       *x = p->x;
    const struct ex_model *m = p->m;
    double sum = p->sum, r = p->r, w = p->w, f = p->first, slow = p->p, late = p->d, v = 0;
    p->spent += p->n;
    for (uint64_t i = 0; i < p->n; i++) {
        const struct ex_stage *st = &p->now.st[i];
        sum += st->pre;
        f += st->pre;
        r += st->dec;
        w += st->w;
        slow = fmax(slow, st->pre);
        late = fmax(late, st->dec);
        v += bytes_above(p->now.mem[i], m->room[st->k]);
        v += x->host_bytes ? bytes_above(p->now.host[i], m->host[st->k]) : 0;
    }
    v += x->w_limit < INFINITY ? above(w, x->w_limit) : 0;
    v += m->f_limit < INFINITY ? above(f + m->a_max * slow, m->f_limit) : 0;
    *over = v;
    if (p->smooth) {
        double ps = 0, ds = 0;
        for (uint64_t i = 0; i < p->n; i++) {
            ps += power(p->now.st[i].pre, slow);
            ds += power(p->now.st[i].dec, late);
        }
        slow *= root(fmax(ps, 1));
        late *= root(fmax(ds, 1));
    }
    return ex_objective(x, m, sum + x->theta * w, r, slow, late);
}

static const struct ex_item *item_at(const struct polish *p, uint64_t l, uint32_t i)
{
    uint32_t n;
    return ex_items_of(p->x, p->m, p->now.st[p->now.stage[l]].k, l, &n) + i;
}

/* Puts item i at layer l; false: the bytes are no number. */
static bool put(struct polish *p, uint64_t l, uint32_t i)
{
    uint32_t              s = p->now.stage[l];
    struct ex_stage      *st = &p->now.st[s];
    const struct ex_item *a = item_at(p, l, p->now.item[l]), *b = item_at(p, l, i);
    const double         *omega = ex_omega_of(p->x, st->k, l);
    uint64_t              mem, host;
    if (__builtin_add_overflow(p->now.mem[s] - a->mem, b->mem, &mem) ||
        __builtin_add_overflow(p->now.host[s] - a->host, b->host, &host))
        return false;
    p->now.mem[s] = mem;
    p->now.host[s] = host;
    st->pre += b->pre - a->pre;
    st->dec += b->dec - a->dec;
    st->w += omega[b->q] - omega[a->q];
    p->now.item[l] = i;
    return true;
}

/* The moves of a layer, from its item as it is. */
static void set_moves(struct polish *p, uint64_t l)
{
    uint32_t              at = p->now.item[l];
    const struct ex_item *a = item_at(p, l, at);
    const double         *omega = ex_omega_of(p->x, p->now.st[p->now.stage[l]].k, l);
    for (uint32_t j = 0; j < KEEP; j++) {
        uint32_t              i = p->now.list[l * KEEP + j];
        const struct ex_item *b = i == EX_NONE ? a : item_at(p, l, i);
        p->move[l * KEEP + j] =
            (struct ex_move){ b->pre - a->pre, b->dec - a->dec, omega[b->q] - omega[a->q],
                              (uint32_t)l, i == at ? EX_NONE : i };
    }
}

/* The cheapest candidates of a layer in its stage under the multipliers and a price. */
static void set_list(struct polish *p, uint64_t l, const struct ex_price *price)
{
    uint64_t              k = p->now.st[p->now.stage[l]].k;
    uint32_t              n, kept = 0, *list = p->now.list + l * KEEP;
    const struct ex_item *it = ex_items_of(p->x, p->m, k, l, &n);
    double                cost[KEEP];
    for (uint32_t i = 0; i < n; i++) {
        double   v = ex_item_cost(p->x, k, l, &it[i], price);
        uint32_t at = kept < KEEP ? kept++ : KEEP;
        for (; at > 0 && cost[at - 1] > v; at--)
            if (at < KEEP) {
                cost[at] = cost[at - 1];
                list[at] = list[at - 1];
            }
        if (at < KEEP) {
            cost[at] = v;
            list[at] = i;
        }
    }
    for (; kept < KEEP; kept++)
        list[kept] = EX_NONE;
}

/* Changes bits until no limit is exceeded, each time where that costs least for what it mends; false: no
 * change mends more. */
static bool repair(struct polish *p)
{
    struct ex *x = p->x;
    for (uint64_t round = 0; round < 4 * x->L; round++) {
        double   over, best = INFINITY, value = score(p, &over);
        uint64_t pick = EX_NONE;
        if (!(over > 0))
            return true;
        for (uint64_t j = 0; j < x->L * KEEP; j++) {
            struct ex_move t = p->move[j];
            uint32_t       was = p->now.item[t.l];
            double         left;
            if (t.item == EX_NONE || !put(p, t.l, t.item))
                continue;
            double cost = score(p, &left) - value, ratio = cost / (over - left);
            if (left < over && (ratio < best || (cost <= 0 && best > 0))) {
                best = ratio;
                pick = j;
            }
            (void)put(p, t.l, was);
        }
        if (pick == EX_NONE || p->spent > p->most)
            return false;
        (void)put(p, p->move[pick].l, p->move[pick].item);
        set_moves(p, p->move[pick].l);
    }
    return false;
}

/* Keeps a change of one or two layers if it gains and no limit is exceeded. */
static bool keep(struct polish *p, const struct ex_move *a, const struct ex_move *b, double *value)
{
    struct ex_move one = *a, two = b ? *b : *a;
    uint32_t       was = p->now.item[one.l], too = p->now.item[two.l];
    double         over;
    if (!put(p, one.l, one.item))
        return false;
    if (b && !put(p, two.l, two.item)) {
        (void)put(p, one.l, was);
        return false;
    }
    double v = score(p, &over);
    if (over > 0 || !(v < *value - 1e-9 * fabs(*value))) {
        if (b)
            (void)put(p, two.l, too);
        (void)put(p, one.l, was);
        return false;
    }
    *value = v;
    set_moves(p, one.l);
    set_moves(p, two.l);
    return true;
}

/* Changes of one layer, then of two, until none gains; returns the objective. */
static double descend(struct polish *p)
{
    struct ex *x = p->x;
    uint64_t   n = x->L * KEEP;
    double     over, value = score(p, &over);
    for (unsigned round = 0; round < ROUNDS && p->spent < p->most; round++) {
        bool gained = false;
        for (uint64_t i = 0; i < n; i++) {
            const struct ex_move *a = &p->move[i];
            if (a->item != EX_NONE && (a->pre < 0 || a->dec < 0 || x->theta * a->w < 0))
                gained |= keep(p, a, NULL, &value);
        }
        for (uint64_t i = 0; i < n && p->spent < p->most; i++) {
            const struct ex_move *a = &p->move[i];
            /* one of two changes is faster */
            if (a->item == EX_NONE || !(a->pre < 0 || a->dec < 0))
                continue;
            double spare = x->w_limit - p->w;
            for (uint64_t s = 0; s < p->n; s++)
                spare -= p->now.st[s].w;
            for (uint64_t j = 0; j < n; j++) {
                const struct ex_move *b = &p->move[j];
                if (b->item == EX_NONE || b->l == a->l || !(a->w + b->w <= spare))
                    continue;
                if (keep(p, a, b, &value)) {
                    gained = true;
                    break;
                }
            }
        }
        if (!gained)
            break;
    }
    return value;
}

static void copy(const struct polish *p, struct ex_near *to, const struct ex_near *from)
{
    memcpy(to->st, from->st, p->n * sizeof *to->st);
    memcpy(to->mem, from->mem, p->n * sizeof *to->mem);
    memcpy(to->host, from->host, p->n * sizeof *to->host);
    memcpy(to->item, from->item, p->x->L * sizeof *to->item);
    memcpy(to->stage, from->stage, p->x->L * sizeof *to->stage);
    memcpy(to->list, from->list, p->x->L * KEEP * sizeof *to->list);
}

/* Sums of stages and links from the items; false: the bytes are no number. */
static bool set_sums(struct polish *p)
{
    struct ex             *x = p->x;
    const struct ex_model *m = p->m;
    p->sum = p->r = p->first = p->p = p->d = 0;
    p->w = m->omega;
    for (uint64_t i = 0; i < p->n; i++) {
        struct ex_stage *st = &p->now.st[i];
        const double    *t = m->end + (uint64_t)st->k * 4;
        bool             last = st->e == x->L;
        st->pre = (st->s ? 0 : t[0]) + (last ? t[2] : 0);
        st->dec = (st->s ? 0 : t[1]) + (last ? t[3] : 0);
        st->w = 0;
        p->now.host[i] = 0;
        if (__builtin_add_overflow(st->s ? 0 : m->embed, last ? m->head : 0, &p->now.mem[i]))
            return false;
        for (uint64_t l = st->s; l < st->e; l++) {
            const struct ex_item *it = item_at(p, l, p->now.item[l]);
            st->pre += it->pre;
            st->dec += it->dec;
            st->w += ex_omega_of(x, st->k, l)[it->q];
            if (__builtin_add_overflow(p->now.mem[i], it->mem, &p->now.mem[i]) ||
                __builtin_add_overflow(p->now.host[i], it->host, &p->now.host[i]))
                return false;
        }
        if (last)
            break;
        const double *l = ex_link_ms(x, m, st[1].link, st->k, st[1].k);
        p->first += l[0];
        p->sum += m->in_sum * l[0];
        p->r += m->in_sum * l[1];
        p->p = fmax(p->p, l[0]);
        p->d = fmax(p->d, l[1]);
        p->w += ex_link_omega(x, st[1].link, st->e - 1);
    }
    return true;
}

/* Repairs, descends, and offers the plan; returns its objective, INFINITY: none. */
static double settle(struct polish *p)
{
    struct ex *x = p->x;
    double     over;
    if (!set_sums(p))
        return INFINITY;
    for (uint64_t l = 0; l < x->L; l++)
        set_moves(p, l);
    p->smooth = true;
    if (!repair(p))
        return INFINITY;
    (void)descend(p);
    p->smooth = false;
    double value = descend(p);
    (void)score(p, &over);
    if (over > 0)
        return INFINITY;
    for (uint64_t l = 0; l < x->L; l++)
        x->fit[l] = item_at(p, l, p->now.item[l])->q;
    ex_incumbent(x, (uint64_t)(p->m - x->models), p->now.st, p->n, x->fit);
    return value;
}

/* Moves the border after stage i by a layer; false: a stage would be empty, or the kind has no item. */
static bool shift(struct polish *p, uint64_t i, bool up)
{
    struct ex_stage *a = &p->now.st[i], *b = a + 1;
    uint64_t         l = up ? a->e : a->e - 1u;
    uint32_t         n;
    if (up ? b->e - b->s < 2 : a->e - a->s < 2)
        return false;
    uint64_t to = up ? i : i + 1;
    (void)ex_items_of(p->x, p->m, p->now.st[to].k, l, &n);
    if (n == 0)
        return false;
    a->e = b->s = (uint32_t)(up ? l + 1 : l);
    p->now.stage[l] = (uint32_t)to;
    set_list(p, l, &(struct ex_price){ 0, 0, 0 });
    p->now.item[l] = p->now.list[l * KEEP];
    return true;
}

static void start(struct polish *p)
{
    struct ex *x = p->x;
    for (uint64_t i = 0; i < p->n; i++) {
        const struct ex_stage *st = &p->now.st[i];
        uint64_t               best = ex_relax_price(x, p->m, st->k, st->s, st->e);
        for (uint64_t l = st->s; l < st->e; l++) {
            p->now.stage[l] = (uint32_t)i;
            set_list(p, l, &x->price[(uint64_t)st->k * EX_PRICES + best]);
            p->now.item[l] = p->now.list[l * KEEP];
        }
    }
}

void ex_polish(struct ex *x, const struct ex_model *m, const struct ex_stage *st, uint64_t n,
               uint64_t most)
{
    struct polish p = {
        .x = x, .m = m, .n = n, .most = most, .now = x->near[0], .old = x->near[1]
    };
    p.move = x->near_move;
    memcpy(p.now.st, st, n * sizeof *st);
    start(&p);
    double best = settle(&p);
    for (bool gained = best < INFINITY; gained;) {
        gained = false;
        for (uint64_t i = 0; i < 2 * (n - 1) && p.spent < most; i++) {
            copy(&p, &p.old, &p.now);
            double v = shift(&p, i / 2, i % 2) ? settle(&p) : INFINITY;
            if (v < best) {
                best = v;
                gained = true;
            } else {
                copy(&p, &p.now, &p.old);
                (void)set_sums(&p);
            }
        }
    }
    x->polished += p.spent;
}
