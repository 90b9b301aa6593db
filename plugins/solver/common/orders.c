#include "orders.h"

#include <math.h>
#include <string.h>

static void map(struct plan_orders *o)
{
    for (uint64_t i = 0; i < o->n; i++)
        o->order[i] = o->kind[o->rank[i]];
}

void plan_orders_first(struct plan_orders *o)
{
    uint64_t at = 0;
    if (o->fixed) {
        memcpy(o->order, o->in->order, o->n * sizeof *o->order);
        return;
    }
    for (uint32_t r = 0; r < o->in->n_kinds; r++)
        for (uint32_t i = 0; i < o->in->kinds[o->kind[r]]->count; i++)
            o->rank[at++] = r;
    map(o);
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

bool plan_orders_start(struct plan_orders *o, const struct tsr_solver_instance *in, uint64_t seed,
                       struct plan_arena *a)
{
    *o = (struct plan_orders){ .n = plan_devices(in), .fixed = in->order != NULL, .in = in };
    o->order = plan_take(a, o->n, sizeof *o->order);
    o->rank = plan_take(a, o->n, sizeof *o->rank);
    o->kind = plan_take(a, in->n_kinds, sizeof *o->kind);
    if (!o->order || !o->rank || !o->kind)
        return false;
    for (uint32_t k = 0; k < in->n_kinds; k++)
        o->kind[k] = k;
    for (uint64_t k = in->n_kinds; seed && k > 1; k--) {
        uint64_t with = draw(&seed) % k;
        uint32_t t = o->kind[k - 1];
        o->kind[k - 1] = o->kind[with];
        o->kind[with] = t;
        seed += seed == 0; /* the state of a stream, no longer "no seed" */
    }
    plan_orders_first(o);
    return true;
}

/* The next permutation of a multiset in lexicographic order. */
bool plan_orders_next(struct plan_orders *o)
{
    uint64_t i = o->n, j = o->n;
    if (o->fixed)
        return false;
    while (i > 1 && o->rank[i - 2] >= o->rank[i - 1])
        i--;
    if (i < 2)
        return false;
    uint32_t *r = o->rank, t = r[i - 2];
    while (r[j - 1] <= t)
        j--;
    r[i - 2] = r[j - 1];
    r[j - 1] = t;
    for (uint64_t a = i - 1, b = o->n; a + 1 < b; a++, b--) {
        t = r[a];
        r[a] = r[b - 1];
        r[b - 1] = t;
    }
    map(o);
    return true;
}

uint64_t plan_orders_count(const struct plan_orders *o, uint64_t most)
{
    double   n = 1; /* a multinomial, factor by factor; each partial product is an integer */
    uint64_t placed = 0;
    if (o->fixed)
        return 1;
    for (uint64_t k = 0; k < o->in->n_kinds; k++)
        for (uint32_t i = 1; i <= o->in->kinds[k]->count; i++) {
            n = n * (double)++placed / (double)i;
            /* partial products grow with the kinds but may pass the total inside of one only by
             * rounding; they never fall */
            if (n >= (double)most)
                return most;
        }
    return (uint64_t)llround(n);
}
