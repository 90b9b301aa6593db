/* `replicas: auto` over clusters of two to four nodes: never worse than one pipeline, than every equal split, than every
 * `copy_nodes`, nor than the best of all ways to form groups of whole nodes and to divide the batch among them.
 *
 * TSR_TEST_SEED chooses the machines; TSR_TEST_ALL=1 takes more of them. */
#include "planning_fixture.h"

#include "base/rng.h"
#include "plan/search/share.h"
#include "planning/planning.h"

#include <math.h>

#define NODES  4u
#define MOST   6u /* requests */
#define PROMPT 24u
#define TOKENS 9u
/* Shares are searched to a millionth (replicas.c), and less is not counted as better (replicas.c of planning). */
#define SLACK 4e-6

static uint64_t seed = 1;
static bool     all_of_them;

struct drawn {
    uint64_t                        nodes, batch;
    struct tsr_plan_problem_options o;
    char                            cluster[900];
};

/* Problems 20 to 29 are always the same: copies that are unlike are rare, and three of these have them. */
static double draw(uint64_t problem, uint64_t number)
{
    return tsr_uniform(problem / 10 == 2 ? 1 : seed, problem, number);
}

/* Nodes of one or two types; memory from too little for the model to enough for all requests. */
static void draw_problem(struct drawn *d, uint64_t i)
{
    char   name[2][16];
    size_t at;
    bool   two = draw(i, 0) < 0.8, wide = draw(i, 20) < 0.4;
    *d = (struct drawn){ .nodes = 2 + (uint64_t)(draw(i, 1) * 3),
                         .batch = 2 + (uint64_t)(draw(i, 2) * (MOST - 1)),
                         .o = usual() };
    for (unsigned t = 0; t < 2; t++) {
        (void)snprintf(name[t], sizeof name[t], "type%u", t);
        profile(name[t], 200 + (unsigned)(draw(i, 3 + t) * 800),
                40 + (unsigned)(draw(i, 5 + t) * 160));
    }
    at = (size_t)snprintf(d->cluster, sizeof d->cluster, "version: 1\nnodes:\n");
    for (uint64_t n = 0; n < d->nodes; n++) {
        unsigned t = two && draw(i, 10 + n) < 0.5 ? 1 : 0;
        at += (size_t)snprintf(d->cluster + at, sizeof d->cluster - at,
                               "  - {name: n%d, devices: [{profile: %s, count: %u}], link: "
                               "{bandwidth: %u MB/s, latency: 20 us}}\n",
                               (int)n, name[t], wide && draw(i, 21) < (t ? 0.5 : 1) ? 2 : 1,
                               2 + (unsigned)(draw(i, 22 + t) * 60));
    }
    (void)snprintf(d->cluster + at, sizeof d->cluster - at,
                   "network: {bandwidth: %u MB/s, latency: 30 us}\n",
                   1 + (unsigned)(draw(i, 24) * 8));
    d->o.free_concurrency = d->o.free_kv = d->o.free_chunk = draw(i, 25) < 0.5;
    d->o.theta = draw(i, 26) < 0.3 ? draw(i, 27) * 5 : 0;
}

/* A planning of the problem, as the step opens it, whose parts belong to pl. */
static void open_planning(struct tsr_planning *pl, const struct drawn *d, uint64_t replicas)
{
    struct setting s;
    set_up(&s, d->cluster, &d->o, PROMPT, TOKENS, d->batch);
    *pl = (struct tsr_planning){ .cluster = s.cluster,
                                 .work = s.work,
                                 .options = d->o,
                                 .solver = s.solver,
                                 .problem = s.p,
                                 .replicas = replicas };
}

/* The value of the plan; INFINITY: proved that there is none.  bound: of all plans. */
static double plan_of(struct tsr_planning *pl, double *bound)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_planned a = { .status = TSR_SOLVED_UNKNOWN };
    double                  value = INFINITY;
    *bound = INFINITY;
    if (tsr_planning_search(pl, &a, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (pl->fleet.n_kinds) {
        value = pl->fleet.objective;
        *bound = pl->fleet.bound;
        assert_true(pl->fleet.proved);
    } else if (tsr_plan_planned_has_plan(&a)) {
        value = tsr_plan_share_value(&pl->problem, &a);
        *bound = tsr_plan_share_bound(&pl->problem, &a);
        assert_int_equal(a.status, TSR_SOLVED_OPTIMAL);
    } else {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
    }
    tsr_plan_planned_free(&a);
    return value;
}

/* All requests once, no node twice, and no copy takes longer than the whole. */
static void check_fleet(const struct tsr_planning *pl)
{
    const struct tsr_plan_fleet *f = &pl->fleet;
    bool                         used[NODES] = { false };
    uint64_t                     batch = 0;
    double                       slowest = 0;
    for (uint64_t k = 0; k < f->n_kinds; k++) {
        const struct tsr_plan_fleet_kind *x = &f->kinds[k];
        batch += x->copies * x->batch;
        slowest = fmax(slowest, tsr_plan_share_value(&x->problem, &x->planned));
        for (uint64_t n = 0; n < x->copies * x->n_nodes; n++) {
            assert_true(x->nodes[n] < pl->cluster->n_nodes && !used[x->nodes[n]]);
            used[x->nodes[n]] = true;
        }
    }
    assert_int_equal(batch, pl->work.batch);
    assert_true(slowest == f->objective);
}

/* ---- what it must not be worse than ---------------------------------------------------- */

/* A share of the batch on a set of nodes alone. */
static double group_cost(const struct tsr_planning *pl, uint64_t set, uint64_t batch)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_problem  share;
    struct tsr_plan_cluster *part = NULL;
    struct tsr_plan_planned  a = { .status = TSR_SOLVED_UNKNOWN };
    uint64_t                 nodes[NODES];
    struct tsr_plan_share    of = { .nodes = nodes, .batch = batch };
    for (uint64_t n = 0; n < pl->cluster->n_nodes; n++)
        if (set >> n & 1)
            nodes[of.n++] = n;
    if (tsr_plan_share_open(&share, &part, &pl->problem, &of, &e.err) != TSR_OK ||
        tsr_plan_settings_search(&a, &share, &pl->solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    double value = tsr_plan_planned_has_plan(&a) ? tsr_plan_share_value(&share, &a) : INFINITY;
    tsr_plan_planned_free(&a);
    tsr_plan_share_close(&share, part);
    return value;
}

/* The best of all ways for `left` requests on a set of nodes: cost[set][requests]. */
static double best_way(double (*cost)[MOST + 1], uint64_t set, uint64_t left)
{
    double best = left ? INFINITY : 0;
    for (uint64_t s = set; s && left; s = (s - 1) & set)
        for (uint64_t u = 1; u <= left; u++)
            if (cost[s][u] < best)
                best = fmin(best, fmax(cost[s][u], best_way(cost, set & ~s, left - u)));
    return best;
}

static double all_ways(const struct drawn *d)
{
    struct tsr_planning pl;
    double              cost[1 << NODES][MOST + 1] = { { 0 } };
    open_planning(&pl, d, 1);
    for (uint64_t s = 1; s < UINT64_C(1) << d->nodes; s++)
        for (uint64_t u = 1; u <= d->batch; u++)
            cost[s][u] = group_cost(&pl, s, u);
    tsr_planning_close(&pl);
    return best_way(cost, (UINT64_C(1) << d->nodes) - 1, d->batch);
}

/* As the command plans copies of up to `most` nodes: settings as they are. */
static double copies(const struct drawn *d, uint64_t most)
{
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct drawn                  closed = *d;
    struct tsr_planning           pl;
    struct tsr_plan_fleet_options o = { .max_nodes = most };
    double                        value = 0;
    closed.o.free_concurrency = closed.o.free_kv = closed.o.free_chunk = false;
    open_planning(&pl, &closed, 1);
    tsr_status st = tsr_plan_fleet_plan(&pl.fleet, &pl.problem, &pl.solver, &o, &e.err);
    if (st != TSR_OK && st != TSR_E_INFEASIBLE)
        fail_msg("%s", e.text);
    for (uint64_t k = 0; k < pl.fleet.n_kinds; k++)
        value = fmax(value,
                     tsr_plan_share_value(&pl.fleet.kinds[k].problem, &pl.fleet.kinds[k].planned));
    tsr_planning_close(&pl);
    return st == TSR_OK ? value : INFINITY;
}

static double equal_parts(const struct drawn *d, uint64_t n)
{
    struct tsr_planning pl;
    double              bound;
    open_planning(&pl, d, n);
    double value = plan_of(&pl, &bound);
    tsr_planning_close(&pl);
    return value;
}

static void not_worse(const struct drawn *d, uint64_t problem, const char *what, uint64_t n,
                      double best, double other)
{
    if (!(best <= other * (1 + SLACK)))
        fail_msg("problem %llu: %.9g ms, %s %llu takes %.9g\n%s", (unsigned long long)problem, best,
                 what, (unsigned long long)n, other, d->cluster);
}

static void test_groups(void **state)
{
    uint64_t problems = all_of_them ? 400 : 60, plans = 0, unlike = 0, alike = 0, one = 0;
    (void)state;
    for (uint64_t i = 0; i < problems; i++) {
        struct drawn        d;
        struct tsr_planning pl;
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        uint64_t            counts[TSR_PLAN_PARTS_MOST], n = 0;
        double              bound, least;
        draw_problem(&d, i);
        open_planning(&pl, &d, 0);
        double best = plan_of(&pl, &bound);
        if (pl.fleet.n_kinds)
            check_fleet(&pl);
        assert_int_equal(tsr_plan_parts_counts(pl.cluster, d.batch, counts, &n, &e.err), TSR_OK);
        plans += best < INFINITY ? 1 : 0;
        unlike += pl.fleet.n_kinds > 1 ? 1 : 0;
        alike += pl.part != NULL || pl.fleet.n_kinds == 1 ? 1 : 0;
        one += best < INFINITY && !pl.part && !pl.fleet.n_kinds ? 1 : 0;
        tsr_planning_close(&pl);
        least = all_ways(&d);
        not_worse(&d, i, "the best way of", d.nodes, best, least);
        not_worse(&d, i, "replicas", 1, best, equal_parts(&d, 1));
        for (uint64_t k = 0; k < n; k++) {
            double value = equal_parts(&d, counts[k]);
            least = fmin(least, value);
            not_worse(&d, i, "replicas", counts[k], best, value);
        }
        for (uint64_t k = 1; k <= d.nodes; k++)
            not_worse(&d, i, "copy_nodes", k, best, copies(&d, k));
        /* nothing is better than the least of these, nor below the bound */
        if (!(least == INFINITY && best == INFINITY) &&
            !(least <= best * (1 + SLACK) && bound <= best * (1 + 1e-9) &&
              bound >= best * (1 - SLACK)))
            fail_msg("problem %llu: %.9g ms, at least %.9g, the best way takes %.9g\n%s",
                     (unsigned long long)i, best, bound, least, d.cluster);
    }
    (void)
        printf("%llu of %llu problems have a plan: %llu one pipeline, %llu copies that are alike, "
               "%llu unlike ones\n",
               (unsigned long long)plans, (unsigned long long)problems, (unsigned long long)one,
               (unsigned long long)alike, (unsigned long long)unlike);
    assert_true(plans > problems / 2 && one > 0 && alike > 0 && unlike > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_groups) };
    const char             *s = getenv("TSR_TEST_SEED"), *all = getenv("TSR_TEST_ALL");
    seed = s ? strtoull(s, NULL, 10) : 1;
    all_of_them = all && *all == '1';
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests_name("planning_copies", tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
