#include "transfer.h"

#include "host.h"

#include <math.h>
#include <string.h>

bool transfer_start(struct transfer *t, const struct tsr_solver_instance *in,
                    struct plan_clock *clock, struct plan_arena *a)
{
    *t = (struct transfer){ .in = in, .clock = clock };
    t->now = plan_new(a, in);
    t->try = plan_new(a, in);
    t->best = plan_new(a, in);
    t->key = plan_take(a, in->layers, sizeof *t->key);
    t->layer = plan_take(a, in->layers, sizeof *t->layer);
    return !a->failed;
}

/* ---- which layers of a stage have which bit -------------------------------------- */

static double omega_of(const struct transfer *t, uint64_t layer, uint64_t q)
{
    return t->in->omega[layer * t->in->bits + q];
}

/* Of the layers of a stage that have bit a or b, as many as before have a: those that gain most
 * by it. */
static void settle_pair(struct transfer *t, struct tsr_solver_solution *s, uint64_t stage,
                        uint32_t a, uint32_t b)
{
    uint64_t n = 0, as = 0;
    for (uint64_t l = s->stage_first[stage]; l < s->stage_first[stage] + s->stage_count[stage];
         l++) {
        if (s->layer_bits[l] != a && s->layer_bits[l] != b)
            continue;
        double   key = omega_of(t, l, a) - omega_of(t, l, b);
        uint64_t at = n++;
        as += s->layer_bits[l] == a;
        for (; at > 0 && t->key[at - 1] > key; at--) {
            t->key[at] = t->key[at - 1];
            t->layer[at] = t->layer[at - 1];
        }
        t->key[at] = key;
        t->layer[at] = l;
    }
    for (uint64_t i = 0; as > 0 && as < n && i < n; i++)
        s->layer_bits[t->layer[i]] = i < as ? a : b;
}

/* Layers of different shapes keep their bits: another shape has other bytes. */
static void settle(struct transfer *t, struct tsr_solver_solution *s, uint64_t stage)
{
    for (uint32_t a = 0; t->in->classes == 1 && a < t->in->bits; a++)
        for (uint32_t b = a + 1; b < t->in->bits; b++)
            settle_pair(t, s, stage, a, b);
}

/* ---- one exchange ------------------------------------------------------------------- */

/* Changes the last layer of a stage from one bit to another; false when there is none. */
static bool change(struct tsr_solver_solution *s, uint64_t stage, uint32_t from, uint32_t to)
{
    for (uint64_t i = s->stage_count[stage]; i-- > 0;)
        if (s->layer_bits[s->stage_first[stage] + i] == from) {
            s->layer_bits[s->stage_first[stage] + i] = to;
            return true;
        }
    return false;
}

/* Takes one layer with bit q out of a stage's list of bits and puts one into another's: each stage
 * between them moves by one layer and keeps its list. */
static bool carry(struct tsr_solver_solution *s, uint64_t from, uint64_t to, uint32_t q)
{
    uint64_t at = s->stage_first[from], end = at + s->stage_count[from];
    if (s->stage_count[from] < 2)
        return false;
    while (at < end && s->layer_bits[at] != q)
        at++;
    if (at == end)
        return false;
    uint64_t goal = to < from ? s->stage_first[to] + s->stage_count[to] : s->stage_first[to] - 1;
    for (; at > goal; at--)
        s->layer_bits[at] = s->layer_bits[at - 1];
    for (; at < goal; at++)
        s->layer_bits[at] = s->layer_bits[at + 1];
    s->layer_bits[goal] = q;
    s->stage_count[from]--;
    s->stage_count[to]++;
    for (uint64_t i = 0, first = 0; i < s->stages; first += s->stage_count[i++])
        s->stage_first[i] = first;
    return true;
}

enum rule { TRADE, SWAP, MOVE, CHANGE };

/* Does a rule on t->try; false when the stages lack the layers for it. */
static bool exchange(struct transfer *t, uint64_t st, uint64_t pi, enum rule rule, uint32_t s,
                     uint32_t p)
{
    struct tsr_solver_solution *x = t->try;
    plan_copy(x, t->now, t->in);
    if (rule == CHANGE) {
        bool done = s != p && change(x, pi, s, p);
        if (done)
            settle(t, x, pi);
        return done;
    }
    if (rule != MOVE && (s == p || !change(x, pi, p, s) || !change(x, st, s, p)))
        return false;
    if (rule != SWAP && !carry(x, st, pi, s))
        return false;
    uint64_t low = st < pi ? st : pi, high = st < pi ? pi : st;
    for (uint64_t i = low; i <= high; i++)
        if (rule != SWAP || i == st || i == pi)
            settle(t, x, i);
    return true;
}

/* ---- stages ----------------------------------------------------------------------------- */

/* The stage whose times cost most as the bottleneck. */
static uint64_t straggler(const struct transfer *t, const struct tsr_solver_solution *s)
{
    const struct tsr_solver_instance *in = t->in;
    const struct tsr_solver_option   *o = in->options[s->option];
    struct plan_counts                c = plan_counts(in, o);
    double                            wp, wd, most = -1;
    uint64_t                          at = 0;
    plan_bottleneck_weights(in, &c, &wp, &wd);
    for (uint64_t i = 0; i < s->stages; i++) {
        uint64_t k = s->stage_kind[i];
        double   v = i == 0 ? wp * o->embed_pre_ms[k] + wd * o->embed_dec_ms[k] : 0;
        if (i + 1 == s->stages)
            v += wp * o->head_pre_ms[k] + wd * o->head_dec_ms[k];
        for (uint64_t l = s->stage_first[i]; l < s->stage_first[i] + s->stage_count[i]; l++) {
            uint64_t e = plan_entry(in, k, l, s->layer_bits[l]);
            v += wp * o->pre_ms[e] + wd * o->dec_ms[e];
        }
        if (v > most) {
            most = v;
            at = i;
        }
    }
    return at;
}

/* The best outcome of rules first..last with one pioneer, into t->best. */
static bool try_pioneer(struct transfer *t, uint64_t st, uint64_t pi, enum rule first,
                        enum rule last, double *cost)
{
    bool found = false;
    for (uint32_t rule = first; rule <= (uint32_t)last; rule++)
        for (uint32_t s = 0; s < t->in->bits; s++)
            for (uint32_t p = 0; p < (rule == MOVE ? 1 : t->in->bits); p++) {
                double v;
                if (!exchange(t, st, pi, (enum rule)rule, s, p) || !plan_cost(t->in, t->try, &v) ||
                    !(v < *cost - 1e-12 * fabs(*cost)))
                    continue;
                *cost = v;
                plan_copy(t->best, t->try, t->in);
                found = true;
            }
    return found;
}

void transfer_improve(struct transfer *t, struct tsr_solver_solution *plan, double *cost)
{
    plan_copy(t->now, plan, t->in);
    for (bool found = true; found;) {
        uint64_t st = straggler(t, t->now);
        found = false;
        for (uint64_t pi = 0; pi < t->now->stages && !plan_over(t->clock); pi++)
            found |=
                try_pioneer(t, st, pi, pi == st ? CHANGE : TRADE, t->wider ? CHANGE : MOVE, cost);
        if (found)
            plan_copy(t->now, t->best, t->in);
    }
    plan_copy(plan, t->now, t->in);
}

/* ---- starts --------------------------------------------------------------------------------- */

#define MAX_PAIRS 4096u /* of an order and an option */

struct pair {
    double   cost;
    uint64_t order; /* its number */
};

struct starts {
    const struct tsr_solver_instance *in;
    struct plan_clock                *clock;
    struct quality                    y;
    struct partition                  all, one; /* every order; the order at hand */
    struct plan_orders                orders;
    struct transfer                   t;
    struct pair                      *pair; /* of an option, the best first */
    struct tsr_solver_solution       *plan; /* at work */
    struct tsr_solver_solution       *out;
    double                           *cost;
    double                            omega; /* least of all options so far */
    bool                              fits, within;
};

static void keep(struct starts *s, double cost)
{
    if (!(cost < *s->cost))
        return;
    *s->cost = cost;
    plan_copy(s->out, s->plan, s->in);
}

/* The plan by quality over all orders: of the options with the least omega the cheapest. */
static void by_quality(struct starts *s, uint64_t option, bool improve)
{
    double limit = plan_omega_limit(s->in), cost = INFINITY;
    partition_option(&s->all, option);
    s->all.plan = s->plan;
    s->all.best = INFINITY;
    double least = quality_plan(&s->y, &s->all, limit, &cost);
    s->fits |= least < INFINITY;
    s->within |= least <= limit;
    if (cost == INFINITY)
        return;
    if (improve) {
        transfer_improve(&s->t, s->plan, &cost);
        keep(s, cost);
        return;
    }
    double w = plan_omega(s->in, s->plan), band = 1e-12 * w; /* sums in another order */
    if (w < s->omega - band) {
        s->omega = w;
        *s->cost = INFINITY;
    }
    if (w <= s->omega + band)
        keep(s, cost);
}

static double start_of(struct starts *s, uint64_t option)
{
    double cost = INFINITY;
    partition_option(&s->one, option);
    s->one.plan = s->plan;
    s->one.best = INFINITY;
    (void)quality_plan(&s->y, &s->one, plan_omega_limit(s->in), &cost);
    return cost;
}

/* The best starts of an option, by their cost, improved. */
static void by_order(struct starts *s, uint64_t option, uint64_t starts)
{
    uint64_t n = 0, at = 0;
    plan_orders_first(&s->orders);
    do {
        double   cost = start_of(s, option);
        uint64_t to = n < starts ? n : starts;
        if (cost == INFINITY || (n >= starts && !(cost < s->pair[n - 1].cost)))
            continue;
        n = to == starts ? starts : n + 1;
        for (to = n - 1; to > 0 && s->pair[to - 1].cost > cost; to--)
            s->pair[to] = s->pair[to - 1];
        s->pair[to] = (struct pair){ cost, at };
    } while (++at < MAX_PAIRS && !plan_over(s->clock) && plan_orders_next(&s->orders));
    for (uint64_t i = 0; i < n && !plan_over(s->clock); i++) {
        plan_orders_first(&s->orders);
        for (uint64_t k = 0; k < s->pair[i].order; k++)
            (void)plan_orders_next(&s->orders);
        double cost = start_of(s, option);
        if (cost == INFINITY)
            continue;
        transfer_improve(&s->t, s->plan, &cost);
        keep(s, cost);
    }
}

static bool set_up(struct starts *s, uint64_t starts, struct plan_arena *a, bool *too_many)
{
    if (!quality_start(&s->y, s->in, s->clock, a, too_many) ||
        !plan_orders_start(&s->orders, s->in, 0, a) ||
        !partition_start(&s->all, s->in, s->clock, NULL, 32, a, too_many) ||
        !partition_start(&s->one, s->in, s->clock, s->orders.order, 32, a, too_many) ||
        !transfer_start(&s->t, s->in, s->clock, a))
        return false;
    s->pair = plan_take(a, starts + 1, sizeof *s->pair);
    s->plan = plan_new(a, s->in);
    return !a->failed;
}

bool transfer_search(const struct tsr_solver_instance *in, struct plan_clock *clock,
                     uint64_t starts, enum transfer_rules rules, struct plan_arena *a,
                     struct tsr_solver_solution *plan, double *cost, struct transfer_found *f)
{
    struct starts s = { .in = in, .clock = clock, .out = plan, .cost = cost, .omega = INFINITY };
    const char   *why;
    *f = (struct transfer_found){ false, false, false };
    if (!set_up(&s, starts, a, &f->too_many))
        return false;
    s.t.wider = rules == TRANSFER_WIDER;
    for (uint64_t o = 0; o < in->n_options && !plan_over(clock); o++) {
        quality_option(&s.y, o);
        by_quality(&s, o, rules != TRANSFER_NONE);
        if (rules != TRANSFER_NONE && starts > 0 && !in->order &&
            plan_bound(in, in->options[o], &why) < *cost)
            by_order(&s, o, starts);
    }
    bool whole = !plan_over(clock) && !s.all.listed;
    f->empty = whole && !s.fits && (s.y.exact || !plan_host_any(in));
    f->omega = whole && s.fits && !s.within && s.y.exact;
    return true;
}
