/* A device more never takes a plan away, nor makes the best one slower: small CPUs next to other devices, in their node or in
 * one of their own, with too little memory for a stage, an end of the model or a draft model; and stages that fill their
 * devices to the last bytes.
 *
 * TSR_TEST_SEED chooses the clusters; TSR_TEST_ALL=1 takes more of them. */
#include "planning_compare.h"

#include "plan/search/fleet.h"
#include "plan/search/settings.h"

/* What one problem has; without the device that is added, and with it. */
struct drawn {
    char                            less[900], more[1100];
    struct tsr_plan_problem_options o;
    struct tsr_plan_draft_options   draft;
    uint64_t                        batch;
    bool                            open; /* the requests at once are left to the planner */
};

/* Of test_more_copies, problems 20 to 39 are always the same: two of them have several copies, which is rare. */
static unsigned between(uint64_t problem, uint64_t number, unsigned least, unsigned most)
{
    const bool same = problem / 20 == 251 || (problem / 20 == 1 && number >= 30);
    return least + (unsigned)(tsr_uniform(same ? 11 : seed, problem, number) * (most - least + 1));
}

/* The fixture's profile with a backend; "": none. `vault` has memory of its own, and the sizes of the CPU. */
static void with_backend(const char *name, unsigned kib, unsigned mbps, const char *backend)
{
    char path[200], text[100];
    profile(name, kib, mbps);
    if (!*backend)
        return;
    (void)snprintf(path, sizeof path, "%s/devices/%s.yaml", folder, name);
    FILE *f = fopen(path, "ae");
    assert_non_null(f);
    (void)snprintf(text, sizeof text, "backend: %s\n", backend);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Devices of a backend, of none, or of both; then a CPU, in the first node or as one more. */
static void draw_cluster(struct drawn *d, uint64_t i)
{
    static const char *const backends[] = { "", "vault", "cpu" };
    unsigned                 count = between(i, 2, 1, 2), small = between(i, 3, 0, 3);
    char                     last[200];
    bool                     other = between(i, 4, 0, 1), apart = between(i, 5, 0, 1);
    unsigned                 kib = small == 0   ? 2 + between(i, 6, 0, 100)
                                   : small == 1 ? between(i, 6, 100, 400)
                                                : between(i, 6, 300, 900);
    with_backend("fast", between(i, 7, 300, 1300), between(i, 8, 300, 1500),
                 backends[between(i, 0, 0, 2)]);
    with_backend("slow", between(i, 9, 250, 900), between(i, 10, 50, 300),
                 backends[between(i, 1, 0, 2)]);
    with_backend("tiny", kib, between(i, 11, 5, 900), "cpu");
    (void)snprintf(last, sizeof last, "  - {name: b, devices: [{profile: slow}], " LINK "}\n");
    (void)snprintf(d->less, sizeof d->less,
                   "version: 1\nnodes:\n"
                   "  - {name: a, devices: [{profile: fast, count: %u}], " LINK "}\n%s" NET,
                   count, other ? last : "");
    (void)snprintf(d->more, sizeof d->more,
                   "version: 1\nnodes:\n"
                   "  - {name: a, devices: [{profile: fast, count: %u}%s], " LINK "}\n%s%s" NET,
                   count, apart ? "" : ", {profile: tiny}", other ? last : "",
                   apart ? "  - {name: c, devices: [{profile: tiny}]}\n" : "");
}

static void draw_problem(struct drawn *d, uint64_t i)
{
    unsigned draft = between(i, 12, 0, 4);
    draw_cluster(d, i);
    d->o = usual();
    d->o.theta = between(i, 13, 0, 1) ? 0.01 : 0;
    d->o.max_tp = between(i, 14, 0, 1) ? 0 : 1;
    d->o.head = between(i, 15, 0, 3) ? 0 : TSR_PLAN_HEAD_FIRST;
    d->o.together = 1;
    d->batch = between(i, 16, 1, 4);
    d->open = between(i, 17, 0, 3) == 0;
    d->o.free_concurrency = d->open;
    if (draft > 2)
        return;
    d->draft = (struct tsr_plan_draft_options){ .bits = 4,
                                                .kv = TSR_F32,
                                                .place = draft == 0   ? TSR_PLAN_DRAFT_CPU
                                                         : draft == 1 ? TSR_PLAN_DRAFT_DEVICE
                                                                      : TSR_PLAN_DRAFT_ANY };
    d->o.drafts = &d->draft;
    d->o.n_drafts = 1;
}

/* Its value; INFINITY: proved that there is none. */
static double best(const struct drawn *d, const char *cluster, uint64_t *small)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct setting          s;
    struct tsr_plan_planned a;
    set_up(&s, cluster, &d->o, 24, 9, d->batch);
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s\n%s", cluster, e.text);
    bool   plan = tsr_plan_planned_has_plan(&a);
    double value = plan ? a.outcome.latency_ms + s.p.o.theta * a.outcome.omega : INFINITY;
    assert_int_equal(a.status, plan ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_INFEASIBLE);
    for (uint64_t i = 0; i < a.outcome.n_stages; i++)
        *small += strcmp(a.outcome.stages[i].mesh.profile->name, "tiny") == 0;
    tsr_plan_planned_free(&a);
    take_down(&s);
    return value;
}

static void test_more(void **state)
{
    uint64_t problems = all_of_them ? 2000 : 150, plans = 0, small = 0, worse = 0, none = 0;
    (void)state;
    for (uint64_t i = 0; i < problems; i++) {
        struct drawn d = { .batch = 0 };
        draw_problem(&d, i);
        double less = best(&d, d.less, &none), more = best(&d, d.more, &small);
        plans += isfinite(less) ? 1 : 0;
        if (more <= less * (1 + 1e-6))
            continue;
        worse++;
        (void)printf("problem %llu: %.9g ms, with one device more %.9g (draft %d, head %d)\n%s",
                     (unsigned long long)i, less, more, d.o.n_drafts ? (int)d.draft.place : -1,
                     (int)d.o.head, d.more);
    }
    (void)printf("%llu of %llu problems have a plan, %llu use the device that is added\n",
                 (unsigned long long)plans, (unsigned long long)problems,
                 (unsigned long long)small);
    assert_int_equal(worse, 0);
    assert_true(plans > problems / 4 && small > problems / 20 && none == 0);
}

/* The slowest of copies on up to two nodes each; INFINITY: proved that there are none. */
static double copies(const struct drawn *d, const char *cluster, uint64_t *n)
{
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct setting                s;
    struct tsr_plan_fleet         f;
    struct tsr_plan_fleet_options o = { .max_nodes = 2 };
    set_up(&s, cluster, &d->o, 24, 9, d->batch);
    tsr_status st = tsr_plan_fleet_plan(&f, &s.p, &s.solver, &o, &e.err);
    double     value = st == TSR_OK ? f.objective : INFINITY;
    if (st != TSR_OK && st != TSR_E_INFEASIBLE)
        fail_msg("%s\n%s", cluster, e.text);
    assert_true(st != TSR_OK || f.proved);
    *n += f.copies > 1 ? 1 : 0;
    tsr_plan_fleet_free(&f);
    take_down(&s);
    return value;
}

/* The same for copies of the model, whose widths do not follow from an even share of all nodes. */
static void test_more_copies(void **state)
{
    uint64_t problems = all_of_them ? 1000 : 80, plans = 0, several = 0, none = 0;
    (void)state;
    for (uint64_t i = 0; i < problems; i++) {
        struct drawn d = { .batch = 0 };
        draw_problem(&d, 5000 + i);
        with_backend("fast", between(i, 30, 700, 1500), between(i, 31, 100, 300), "cpu");
        with_backend("slow", between(i, 32, 700, 1500), between(i, 33, 50, 300), "cpu");
        double less = copies(&d, d.less, &none), more = copies(&d, d.more, &several);
        plans += isfinite(less) ? 1 : 0;
        if (!(more <= less * (1 + 4e-6)) && isfinite(less)) /* shares are searched to a millionth */
            fail_msg("problem %llu: %.9g ms, with one device more %.9g\n%s", (unsigned long long)i,
                     less, more, d.more);
    }
    (void)printf("%llu of %llu problems have copies, %llu more than one\n",
                 (unsigned long long)plans, (unsigned long long)problems,
                 (unsigned long long)several);
    assert_true(plans > problems / 4 && several > 0);
}

int main(int argc, char **argv)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_more),
                                        cmocka_unit_test(test_more_copies) };
    if (argc < 2 || !planning_start())
        return 1;
    if (tsr_plugin_registry_add_path(registry, argv[1], &e.err) != TSR_OK) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    return planning_end(cmocka_run_group_tests_name("planning_more", tests, NULL, NULL));
}
