#include "exact.h"

/* A stage is a knapsack: bits of least weighted cost under its memory and the box's caps.  With a
 * price on each of the three it falls apart into layers, and prefix sums give a lower bound of every
 * stage of a kind at once.  Prices are quantiles of what an exchange of two candidates pays. */

/* Quantiles for memory, prefill and decode; -1: no price. */
static const double grid[][3] = {
    { -1, -1, -1 },  { .05, -1, -1 }, { .15, -1, -1 }, { .25, -1, -1 }, { .35, -1, -1 },
    { .45, -1, -1 }, { .55, -1, -1 }, { .65, -1, -1 }, { .75, -1, -1 }, { .85, -1, -1 },
    { .92, -1, -1 }, { .97, -1, -1 }, { 1, -1, -1 },   { -1, -1, .3 },  { -1, -1, .6 },
    { -1, -1, .9 },  { .3, -1, .3 },  { .3, -1, .7 },  { .55, -1, .3 }, { .55, -1, .7 },
    { .8, -1, .4 },  { .8, -1, .8 },  { .95, -1, .6 }, { -1, .3, -1 },  { -1, .6, -1 },
    { -1, .9, -1 },  { .3, .3, -1 },  { .3, .7, -1 },  { .55, .3, -1 }, { .55, .7, -1 },
    { .8, .4, -1 },  { .8, .8, -1 },  { .95, .6, -1 }, { -1, .5, .5 },  { .4, .5, .5 },
    { .8, .5, .5 },
};

#define GRID (sizeof grid / sizeof grid[0])
_Static_assert(GRID + EX_FINER <= EX_PRICES, "prices");

/* Shell's sort with Ciura's gaps: at a few hundred numbers three times as fast as qsort(), and a small
 * part of that where they are nearly sorted.  The pairs go with their values. */
static void sort(double *a, struct ex_pair *p, uint64_t n)
{
    static const uint64_t gaps[] = { 301, 132, 57, 23, 10, 4, 1 };
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++)
        for (uint64_t i = gaps[g]; i < n; i++) {
            if (!(a[i - gaps[g]] > a[i]))
                continue;
            double         v = a[i];
            struct ex_pair of = p[i];
            uint64_t       j = i;
            for (; j >= gaps[g] && a[j - gaps[g]] > v; j -= gaps[g]) {
                a[j] = a[j - gaps[g]];
                p[j] = p[j - gaps[g]];
            }
            a[j] = v;
            p[j] = of;
        }
}

/* How much more of an axis item i takes than item j. */
static double more_of(const struct ex_item *i, const struct ex_item *j, int axis)
{
    if (axis == 0)
        return (double)i->mem - (double)j->mem;
    return axis == 1 ? i->pre - j->pre : i->dec - j->dec;
}

/* Whether items of two layers cost the same on a kind: all layers of a class do where nobody measured their omega. */
static bool is_alike(const struct ex *x, uint64_t k, uint64_t l, uint64_t other)
{
    return x->in->layer_class[l] == x->in->layer_class[other] &&
           memcmp(ex_omega_of(x, k, l), ex_omega_of(x, k, other), x->Q * sizeof *x->omega) == 0;
}

/* The exchanges of two items of a layer that are worth a price on an axis; of many layers a sample, of which those after one that
 * is alike count as its exchanges. */
static void list_pairs(const struct ex *x, const struct ex_model *m, uint64_t k, int axis,
                       struct ex_pairs *list, struct ex_pair *out)
{
    uint64_t pairs = x->L * (x->Q * (x->Q - 1) / 2 + 1), stride = 1 + pairs / EX_SLOPES, n = 0;
    uint64_t first = 0; /* of the layer before, or of the first one like it */
    list->all = 0;
    for (uint64_t l = 0; l < x->L; l += stride) {
        uint32_t              count;
        const struct ex_item *it = ex_items_of(x, m, k, l, &count);
        bool                  alike = l > 0 && is_alike(x, k, l, l - stride);
        first = alike ? first : n;
        for (uint64_t i = first; alike && i < n && list->all < x->n_slopes; i++, list->all++)
            out[i].times++;
        for (uint32_t i = 0; i < count && !alike; i++)
            for (uint32_t j = 0; j < count && list->all < x->n_slopes; j++)
                if (more_of(&it[i], &it[j], axis) > 0) {
                    out[n++] = (struct ex_pair){ (uint16_t)l, 1, (uint8_t)i, (uint8_t)j };
                    list->all++;
                }
    }
    list->n = n;
}

/* What a unit of an axis saves, sorted, by the exchanges that save something. */
struct slopes {
    const double         *v;
    const struct ex_pair *pair;
    uint64_t              all; /* with their times */
};

/* Of memory (axis 0), prefill (1) or decode time (2).  Pairs stay in the order of the last weights, in
 * which they are nearly sorted: this is done for every kind at every step of the multipliers. */
static struct slopes slopes(struct ex *x, const struct ex_model *m, uint64_t k, int axis)
{
    uint64_t         at = k * 3 + (uint64_t)axis, zeros = 0, none = 0;
    struct ex_pairs *list = &x->pairs[at];
    struct ex_pair  *pair = x->pair + at * x->n_slopes;
    double          *out = x->slopes + (uint64_t)axis * x->n_slopes;
    if (list->option != m->option + 1) {
        list->option = m->option + 1;
        list_pairs(x, m, k, axis, list, pair);
    }
    for (uint64_t n = 0; n < list->n; n++) {
        struct ex_pair        p = pair[n];
        uint32_t              count;
        const struct ex_item *it = ex_items_of(x, m, k, p.l, &count), *i = it + p.i, *j = it + p.j;
        double                save = x->w.a[k] * (j->pre - i->pre) + x->w.b[k] * (j->dec - i->dec) +
                      x->w.theta * (ex_omega_of(x, k, p.l)[j->q] - ex_omega_of(x, k, p.l)[i->q]);
        out[n] = save > 0 ? save / more_of(i, j, axis) : 0;
    }
    sort(out, pair, list->n);
    while (zeros < list->n && !(out[zeros] > 0))
        none += pair[zeros++].times;
    return (struct slopes){ out + zeros, pair + zeros, list->all - none };
}

/* Price at a quantile; 0 without savings. */
static double quantile(const struct slopes *s, double f)
{
    if (f < 0 || s->all == 0)
        return 0;
    uint64_t at = (uint64_t)(f * (double)(s->all - 1)), i = 0;
    while (at >= s->pair[i].times)
        at -= s->pair[i++].times;
    return s->v[i] * (1 + 1e-9);
}

static void set_prices(struct ex *x, const struct ex_model *m, uint64_t k)
{
    struct slopes s[3] = { 0 };
    for (int axis = 0; axis < 3; axis++)
        if (axis == 0 || (axis == 1 ? x->w.p_hi : x->w.d_hi) < INFINITY)
            s[axis] = slopes(x, m, k, axis);
    uint32_t count = 0;
    for (uint64_t i = 0; i < GRID; i++) {
        if ((grid[i][1] >= 0 && s[1].all == 0) || (grid[i][2] >= 0 && s[2].all == 0) ||
            (grid[i][0] >= 0 && s[0].all == 0))
            continue;
        x->price[k * EX_PRICES + count++] =
            (struct ex_price){ quantile(&s[0], grid[i][0]), quantile(&s[1], grid[i][1]),
                               quantile(&s[2], grid[i][2]) };
    }
    uint32_t finer = x->n_finer[k] < EX_FINER ? x->n_finer[k] : EX_FINER;
    for (uint32_t i = 0; i < finer; i++) {
        struct ex_price p = x->finer[k * EX_FINER + i];
        p.pre = x->w.p_hi < INFINITY ? p.pre : 0;
        p.dec = x->w.d_hi < INFINITY ? p.dec : 0;
        x->price[k * EX_PRICES + count++] = p;
    }
    x->n_price[k] = count;
}

/* x->priced: the cost of an item of a class at each price, without its omega. */
static void set_priced(struct ex *x, const struct ex_model *m, uint64_t k)
{
    uint64_t G = x->n_price[k];
    for (uint64_t c = 0; c < x->C; c++)
        for (uint32_t i = 0; i < m->n_items[k * x->C + c]; i++) {
            const struct ex_item *it = m->items + (k * x->C + c) * x->Q + i;
            double               *out = x->priced + (c * x->Q + i) * G;
            for (uint64_t g = 0; g < G; g++) {
                const struct ex_price *p = &x->price[k * EX_PRICES + g];
                out[g] = (x->w.a[k] + p->pre) * it->pre + (x->w.b[k] + p->dec) * it->dec +
                         p->mem * (double)it->mem;
            }
        }
}

/* The sums over layers of the cheapest item at each price. */
static void set_prefix(struct ex *x, const struct ex_model *m, uint64_t k)
{
    uint64_t G = x->n_price[k], L = x->L;
    double   sum[EX_PRICES] = { 0 }, least[EX_PRICES];
    double  *to = x->prefix + k * EX_PRICES * (L + 1);
    set_priced(x, m, k);
    for (uint64_t g = 0; g < G; g++)
        to[g * (L + 1)] = 0;
    for (uint64_t l = 0; l < L; l++) {
        uint32_t              n;
        const struct ex_item *it = ex_items_of(x, m, k, l, &n);
        const double         *row = x->priced + x->in->layer_class[l] * x->Q * G;
        bool                  alike = l > 0 && is_alike(x, k, l, l - 1);
        for (uint64_t g = 0; g < G && !alike; g++)
            least[g] = n ? INFINITY : 0; /* reach stops before a layer without */
        for (uint32_t i = 0; i < n && !alike; i++, row += G) {
            double w = x->w.theta * ex_omega_of(x, k, l)[it[i].q];
            for (uint64_t g = 0; g < G; g++) {
                double t = row[g] + w;
                least[g] = t < least[g] ? t : least[g];
            }
        }
        for (uint64_t g = 0; g < G; g++)
            to[g * (L + 1) + l + 1] = sum[g] += least[g];
    }
}

/* Times of the ends and the priced room: the part of a price's bound that does not depend on layers. */
static double constant(const struct ex *x, const struct ex_model *m, const struct ex_price *p,
                       uint64_t k, uint64_t s, uint64_t e)
{
    const double *t = m->end + k * 4;
    double        pre = 0, dec = 0, mem = -(double)m->room[k];
    if (s == 0) {
        pre += t[0];
        dec += t[1];
        mem += (double)m->embed;
    }
    if (e == x->L) {
        pre += t[2];
        dec += t[3];
        mem += (double)m->head;
    }
    double v = x->w.a[k] * pre + x->w.b[k] * dec + p->mem * mem;
    if (p->pre > 0)
        v += p->pre * (pre - x->w.p_hi);
    if (p->dec > 0)
        v += p->dec * (dec - x->w.d_hi);
    return v;
}

double ex_relax_constant(const struct ex *x, const struct ex_model *m, const struct ex_price *p,
                         uint64_t k, uint64_t s, uint64_t e)
{
    return constant(x, m, p, k, s, e);
}

/* How far a stage from s can go: least bytes and times of its layers, each for itself. */
static void set_reach(struct ex *x, const struct ex_model *m, uint64_t k, uint64_t s)
{
    const double *t = m->end + k * 4, *least = x->least + k * 3 * x->L;
    double        mem = s ? 0 : (double)m->embed, pre = s ? 0 : t[0], dec = s ? 0 : t[1];
    double        room = (double)m->room[k], p_hi = x->w.p_hi, d_hi = x->w.d_hi;
    uint64_t      e = s;
    x->reach[k * x->L + s] = 0;
    x->last[k * x->L + s] = false;
    if (!m->usable[k] || (s > 0 && x->leads[k]))
        return;
    while (e < x->L) {
        mem += least[e];
        pre += least[x->L + e];
        dec += least[2 * x->L + e];
        if (!(mem <= room && pre <= p_hi && dec <= d_hi))
            break;
        e++;
    }
    if (e == x->L) {
        x->last[k * x->L + s] =
            mem + (double)m->head <= room && pre + t[2] <= p_hi && dec + t[3] <= d_hi;
        e--;
    }
    x->reach[k * x->L + s] = x->trails[k] ? 0 : (uint32_t)e;
}

void ex_least(struct ex *x, const struct ex_model *m)
{
    if (x->least_of == m->option + 1)
        return;
    x->least_of = m->option + 1;
    for (uint64_t k = 0; k < x->K; k++)
        for (uint64_t l = 0; l < x->L; l++) {
            uint32_t              n;
            const struct ex_item *it = ex_items_of(x, m, k, l, &n);
            double                v[3] = { INFINITY, INFINITY, INFINITY };
            for (uint32_t i = 0; i < n; i++) {
                v[0] = fmin(v[0], (double)it[i].mem);
                v[1] = fmin(v[1], it[i].pre);
                v[2] = fmin(v[2], it[i].dec);
            }
            for (uint64_t a = 0; a < 3; a++)
                x->least[(k * 3 + a) * x->L + l] = v[a];
        }
}

/* How far stages of all kinds can go: of one model and box it is the same at each step of the multipliers. */
static void set_reaches(struct ex *x, const struct ex_model *m)
{
    if (x->reach_of == m->option + 1 && x->reach_hi[0] == x->w.p_hi && x->reach_hi[1] == x->w.d_hi)
        return;
    x->reach_of = m->option + 1;
    x->reach_hi[0] = x->w.p_hi;
    x->reach_hi[1] = x->w.d_hi;
    for (uint64_t k = 0; k < x->K; k++)
        for (uint64_t s = 0; s < x->L; s++)
            set_reach(x, m, k, s);
}

/* c: [n] the largest of rows f: [G], each `apart` from the one before, plus their base.  Four rows at a time: each is a load,
 * and c is loaded and stored once for them. */
static void set_largest(double *restrict c, uint64_t n, const double *restrict f, uint64_t apart,
                        const double *restrict base, uint32_t G)
{
    for (uint64_t e = 0; e < n; e++)
        c[e] = -INFINITY;
    uint32_t g = 0;
    for (; g + 4 <= G; g += 4, f += 4 * apart) {
        const double *f1 = f + apart, *f2 = f1 + apart, *f3 = f2 + apart;
        double        b0 = base[g], b1 = base[g + 1], b2 = base[g + 2], b3 = base[g + 3];
        for (uint64_t e = 0; e < n; e++) {
            double v = f[e] + b0, w = f1[e] + b1, y = f2[e] + b2, z = f3[e] + b3, t = c[e];
            v = w > v ? w : v;
            y = z > y ? z : y;
            v = y > v ? y : v;
            c[e] = v > t ? v : t;
        }
    }
    for (; g < G; g++, f += apart)
        for (uint64_t e = 0; e < n; e++) {
            double v = f[e] + base[g];
            c[e] = v > c[e] ? v : c[e];
        }
}

void ex_relax(struct ex *x, const struct ex_model *m)
{
    uint64_t L = x->L;
    set_reaches(x, m);
    for (uint64_t k = 0; k < x->K; k++) {
        double inner[2][EX_PRICES] = { { 0 } }, whole[2][EX_PRICES] = { { 0 } }; /* [s > 0] */
        set_prices(x, m, k);
        set_prefix(x, m, k);
        for (uint32_t g = 0; g < x->n_price[k]; g++)
            for (uint64_t s = 0; s < 2; s++) {
                const struct ex_price *p = &x->price[k * EX_PRICES + g];
                inner[s][g] = constant(x, m, p, k, s, s);
                whole[s][g] = constant(x, m, p, k, s, L);
            }
        for (uint64_t s = 0; s < L; s++) {
            double       *c = x->cost + EX_SEG(x, k, s, 0), base[EX_PRICES];
            const double *f = x->prefix + k * EX_PRICES * (L + 1);
            uint64_t      end = x->reach[k * L + s] > s ? x->reach[k * L + s] : s;
            for (uint32_t g = 0; g < x->n_price[k]; g++)
                base[g] = inner[s > 0][g] - f[g * (L + 1) + s];
            c[s] = INFINITY;
            set_largest(c + s + 1, end - s, f + s + 1, L + 1, base, x->n_price[k]);
            for (uint64_t e = end + 1; e <= L; e++)
                c[e] = INFINITY;
            if (!x->last[k * L + s])
                continue;
            c[L] = -INFINITY;
            for (uint32_t g = 0; g < x->n_price[k]; g++, f += L + 1)
                c[L] = fmax(c[L], f[L] - f[s] + whole[s > 0][g]);
        }
    }
}

uint32_t ex_relax_price(const struct ex *x, const struct ex_model *m, uint64_t k, uint64_t s,
                        uint64_t e)
{
    uint32_t best = 0;
    double   most = -INFINITY;
    for (uint32_t g = 0; g < x->n_price[k]; g++) {
        const double *f = x->prefix + (k * EX_PRICES + g) * (x->L + 1);
        double        v = f[e] - f[s] + constant(x, m, &x->price[k * EX_PRICES + g], k, s, e);
        if (v > most) {
            most = v;
            best = g;
        }
    }
    return best;
}
