#include "exact.h"

/* The choice of bits behind the bound of a stage, and one near it that fits. */

/* The item of a layer that is cheapest at a price. */
static const struct ex_item *cheapest(const struct ex *x, const struct ex_model *m, uint32_t k,
                                      uint64_t l, const struct ex_price *p)
{
    uint32_t              n;
    const struct ex_item *it = ex_items_of(x, m, k, l, &n), *best = it;
    double                least = ex_item_cost(x, k, l, it, p);
    for (uint32_t i = 1; i < n; i++) {
        double v = ex_item_cost(x, k, l, &it[i], p);
        if (v < least) {
            least = v;
            best = &it[i];
        }
    }
    return best;
}

/* Sums of the bits that are cheapest at a price; returns their bytes. */
static double sums_at(const struct ex *x, const struct ex_model *m, uint32_t price,
                      struct ex_stage *st)
{
    const double          *t = m->end + (uint64_t)st->k * 4;
    const struct ex_price *p = &x->price[(uint64_t)st->k * EX_PRICES + price];
    double mem = (st->s ? 0 : (double)m->embed) + (st->e == x->L ? (double)m->head : 0);
    st->pre = (st->s ? 0 : t[0]) + (st->e == x->L ? t[2] : 0);
    st->dec = (st->s ? 0 : t[1]) + (st->e == x->L ? t[3] : 0);
    st->w = 0;
    for (uint64_t l = st->s; l < st->e; l++) {
        const struct ex_item *it = cheapest(x, m, st->k, l, p);
        st->pre += it->pre;
        st->dec += it->dec;
        st->w += ex_omega_of(x, st->k, l)[it->q];
        mem += (double)it->mem;
    }
    return mem;
}

void ex_relax_stage(const struct ex *x, const struct ex_model *m, struct ex_stage *st)
{
    uint32_t               g = ex_relax_price(x, m, st->k, st->s, st->e);
    const struct ex_price *p = &x->price[(uint64_t)st->k * EX_PRICES];
    struct ex_stage        other = *st;
    double                 room = (double)m->room[st->k], mem = sums_at(x, m, g, st);
    /* between two prices of memory the stage is a mixture that fills the room: without it the
     * gradient is that of a stage that no price would leave alone */
    uint32_t h = mem > room ? g + 1 : g - 1, coarse = ex_coarse(x, st->k);
    if ((mem < room && g == 0) || g >= coarse || h >= coarse || h >= x->n_price[st->k] ||
        p[g].pre > 0 || p[g].dec > 0 || p[h].pre > 0 || p[h].dec > 0)
        return;
    double far = sums_at(x, m, h, &other);
    if (!((mem - room) * (far - room) < 0))
        return;
    double share = (room - mem) / (far - mem);
    st->pre += share * (other.pre - st->pre);
    st->dec += share * (other.dec - st->dec);
    st->w += share * (other.w - st->w);
}

/* Bytes of the host at a price. */
static uint64_t host_at(const struct ex *x, const struct ex_model *m, const struct ex_price *p,
                        const struct ex_stage *st)
{
    uint64_t sum = 0;
    for (uint64_t l = st->s; x->host_bytes && l < st->e; l++)
        sum += cheapest(x, m, st->k, l, p)->host;
    return sum;
}

bool ex_relax_fit(const struct ex *x, const struct ex_model *m, struct ex_stage *st)
{
    const struct ex_price *p = &x->price[(uint64_t)st->k * EX_PRICES], *high, *low;
    double                 room = (double)m->room[st->k], mem;
    uint32_t               g = ex_relax_price(x, m, st->k, st->s, st->e), n = ex_coarse(x, st->k);
    if (g >= n || p[g].pre > 0 || p[g].dec > 0)
        g = 0;
    /* prices of memory alone come first, in ascending order */
    while ((mem = sums_at(x, m, g, st)) > room) {
        g++;
        if (g >= n || p[g].pre > 0 || p[g].dec > 0)
            return false;
    }
    uint64_t host = host_at(x, m, &p[g], st);
    for (uint64_t l = st->s; l < st->e; l++)
        x->fit[l] = cheapest(x, m, st->k, l, &p[g])->q;
    if (g == 0)
        return host <= m->host[st->k];
    /* the rest of the room goes to layers by the previous price's order */
    high = &p[g];
    low = &p[g - 1];
    for (uint64_t l = st->s; l < st->e; l++) {
        const struct ex_item *a = cheapest(x, m, st->k, l, high);
        const struct ex_item *b = cheapest(x, m, st->k, l, low);
        if (a == b || !(mem + ((double)b->mem - (double)a->mem) <= room))
            continue;
        x->fit[l] = b->q;
        mem += (double)b->mem - (double)a->mem;
        host += b->host - a->host; /* modulo 2^64 */
        st->pre += b->pre - a->pre;
        st->dec += b->dec - a->dec;
        st->w += ex_omega_of(x, st->k, l)[b->q] - ex_omega_of(x, st->k, l)[a->q];
    }
    return host <= m->host[st->k];
}
