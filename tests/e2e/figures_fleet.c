/* figures fleet: the least time of a batch in copies of a model, by trying every way to form groups and every way to share
 * the batch among them.  Small fleets only: it counts with nothing but the costs of single groups. */
#include "figures.h"

/* A group of nodes with a share: what it takes, ms. */
struct copy {
    uint64_t a, b, units; /* nodes of the two types; its share */
    real     ms;
};

struct fleet {
    struct copy *v;
    uint64_t     n, ways;
    real         best;
};

/* Every multiset of copies from `from` on that does exactly `units` with at most these nodes; slowest: so far. */
static void split(struct fleet *f, uint64_t from, uint64_t a, uint64_t b, uint64_t units,
                  real slowest)
{
    if (units == 0) {
        f->ways++;
        f->best = slowest < f->best ? slowest : f->best;
        return;
    }
    for (uint64_t i = from; i < f->n; i++) {
        const struct copy *c = &f->v[i];
        if (c->a <= a && c->b <= b && c->units <= units)
            split(f, i, a - c->a, b - c->b, units - c->units, c->ms > slowest ? c->ms : slowest);
    }
}

int figures_fleet(uint64_t a, uint64_t b, uint64_t units, const char *costs)
{
    FILE              *file = fopen(costs, "r");
    struct fleet       f = { .best = HUGE_VALL };
    struct copy        one;
    unsigned long long x, y, u;
    if (!file)
        die("cannot open", costs);
    /* a cost of "inf" is a group that cannot: it joins no way */
    while (fscanf(file, "%llu %llu %llu %Lf", &x, &y, &u, &one.ms) == 4) {
        one.a = x;
        one.b = y;
        one.units = u;
        if (one.a + one.b == 0 || one.units == 0 || !(one.ms > 0))
            die("not a group's cost", costs);
        if (one.ms < HUGE_VALL) {
            f.v = grow(f.v, f.n + 1, sizeof *f.v);
            f.v[f.n++] = one;
        }
    }
    if (!feof(file))
        die("not lines of nodes, nodes, units and ms", costs);
    (void)fclose(file);
    split(&f, 0, a, b, units, 0);
    (void)printf("{\"ways\": %llu, \"best\": %.17Lg}\n", (unsigned long long)f.ways, f.best);
    free(f.v);
    return 0;
}
