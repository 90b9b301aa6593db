/* One solve over the widths of meshes and the codecs of links and sums, next to bits and stages: against every plan of small
 * problems, priced through the cost models alone; never worse than any single choice; more devices never hurt.
 *
 * TSR_TEST_SEED chooses figures and machines; TSR_TEST_ALL=1 takes more of them. */
#include "planning_all.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "plan/instance/objective.h"

#define LAYERS 5u
#define BF16   "plain:dtype=bf16"

static uint64_t seed = 1;
static bool     all_of_them;
static unsigned mixed, choosy; /* plans with several widths of one group; with several codecs */

static const char *const codecs[] = { "plain", BF16 };

static double draw(unsigned problem, unsigned number)
{
    return tsr_uniform(seed, problem, number);
}

/* Figures of both schemes by layer, and of BF16 on a link and in the sums of all layers; a cache costs nothing. */
static void write_figures(unsigned i)
{
    static const char *const schemes[] = { "rtn:bits=4,group=2", "rtn:bits=8,group=2" };
    char                     path[200];
    (void)snprintf(path, sizeof path, "%s/joint.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(
        f, "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":%u,\"schemes\":[",
        LAYERS);
    for (unsigned c = 0; c < 2; c++) {
        (void)fprintf(f, "%s{\"scheme\":\"%s\",\"kl\":[", c ? "," : "", schemes[c]);
        for (unsigned l = 0; l < LAYERS; l++)
            (void)fprintf(f, "%s%.17g", l ? "," : "", draw(i, l) * (c ? 1e-3 : 0.02));
        (void)fputs("]}", f);
    }
    (void)fprintf(f,
                  "],\"kv\":[{\"kv\":\"f16\",\"kl\":0,\"context\":4096}],"
                  "\"links\":[{\"codec\":\"" BF16 "\",\"kl\":%.17g}],"
                  "\"sums\":[{\"codec\":\"" BF16 "\",\"kl\":%.17g}]}",
                  draw(i, 20) * 0.02, draw(i, 21) * 0.05);
    assert_int_equal(fclose(f), 0);
}

static struct tsr_plan_problem_options by_kl(char path[200])
{
    struct tsr_plan_problem_options o = usual();
    (void)snprintf(path, 200, "%s/joint.json", folder);
    o.indicators = path;
    o.links = o.sums = codecs;
    o.n_links = o.n_sums = 2;
    return o;
}

/* Three devices that may be one, two and one, or three stages, and in every other problem another node. */
static void machines(unsigned i, char text[800])
{
    profile("odd", 320 + (unsigned)(draw(i, 30) * 500), 20 + (unsigned)(draw(i, 31) * 100));
    profile("even", 400 + (unsigned)(draw(i, 32) * 900), 100 + (unsigned)(draw(i, 33) * 400));
    (void)snprintf(text, 800,
                   "version: 1\nnodes:\n"
                   "  - {name: a, devices: [{profile: odd, count: %u}], link: {bandwidth: %u MB/s, "
                   "latency: %u us}}\n"
                   "%snetwork: {bandwidth: %u MB/s, latency: 30 us}\n",
                   i % 2 ? 2 : 3, 2 + (unsigned)(draw(i, 34) * 60),
                   2 + (unsigned)(draw(i, 35) * 20),
                   i % 2 ? "  - {name: b, devices: [{profile: even}]}\n" : "",
                   1 + (unsigned)(draw(i, 36) * 20));
}

/* Devices of a group are in one stage each, whatever the widths. */
static void check_places(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o)
{
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        uint64_t used = 0;
        for (uint64_t i = 0; i < o->n_stages; i++)
            used += o->stages[i].group == g ? o->stages[i].mesh.tp : 0;
        assert_true(used <= p->cluster->groups[g].count);
    }
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* The best solution of one part of a build by all its stages, kinds, links, bits and options. */
struct whole {
    const struct tsr_solver_instance *in;
    struct tsr_solver_solution       *s, *best;
    double                            least;
};

static void copy_solution(struct tsr_solver_solution *to, const struct tsr_solver_solution *from)
{
    to->stages = from->stages;
    to->option = from->option;
    for (uint64_t i = 0; i < from->stages; i++) {
        to->stage_first[i] = from->stage_first[i];
        to->stage_count[i] = from->stage_count[i];
        to->stage_kind[i] = from->stage_kind[i];
        if (to->stage_link)
            to->stage_link[i] = from->stage_link[i];
    }
    memcpy(to->layer_bits, from->layer_bits, LAYERS * sizeof *to->layer_bits);
}

static void all_layers(struct whole *z)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (unsigned bits = 0; bits < 1u << LAYERS; bits++) {
        double v;
        for (unsigned l = 0; l < LAYERS; l++)
            z->s->layer_bits[l] = bits >> l & 1;
        for (z->s->option = 0; z->s->option < z->in->n_options; z->s->option++)
            if (tsr_plan_evaluate(z->in, z->s, &v, &e.err) == TSR_OK && v < z->least) {
                z->least = v;
                copy_solution(z->best, z->s);
                z->best->objective = v;
            }
    }
}

static void all_kinds(struct whole *z, uint64_t next, const uint64_t *left)
{
    struct tsr_solver_solution *s = z->s;
    uint64_t                    i = s->stages, rest[4];
    if (next == LAYERS) {
        all_layers(z);
        return;
    }
    for (uint32_t k = 0; k < z->in->n_kinds && i < s->max_stages; k++) {
        uint64_t pool = z->in->n_pools ? z->in->kinds[k]->pool : k;
        uint64_t takes = z->in->n_pools ? z->in->kinds[k]->takes : 1;
        memcpy(rest, left, sizeof rest);
        if (rest[pool] < takes)
            continue;
        rest[pool] -= takes;
        for (uint64_t n = 1; n <= LAYERS - next; n++)
            for (uint32_t v = 0; v < (s->stage_link && next + n < LAYERS ? z->in->n_links : 1);
                 v++) {
                s->stages = i + 1;
                s->stage_first[i] = next;
                s->stage_count[i] = n;
                s->stage_kind[i] = k;
                if (s->stage_link)
                    s->stage_link[i] = v;
                all_kinds(z, next + n, rest);
            }
    }
    s->stages = i;
}

/* The instance of all widths and codecs has the plans that there are: its best one is that of the cost models. */
static void tables(void **state)
{
    unsigned rounds = all_of_them ? 40 : 6, plans = 0;
    (void)state;
    for (unsigned i = 0; i < rounds; i++) {
        char                            text[800], path[200];
        double                          best, safe, least = INFINITY;
        struct tsr_errbuf               e = TSR_ERRBUF(e);
        struct setting                  s;
        struct tsr_plan_width_choices   c;
        struct tsr_plan_built          *b;
        struct tsr_plan_problem_options o = by_kl(path);
        machines(i, text);
        write_figures(i);
        o.max_kl = 0.01 + 0.08 * draw(i, 40);
        o.theta = i % 3 ? 0 : 50;
        set_up(&s, text, &o, 24, 9, 1 + i % 2);
        uint64_t n = enumerate(&s.p, &best, &safe);
        assert_int_equal(tsr_plan_width_choices_make(&c, &s.p, true, &e.err), TSR_OK);
        struct tsr_plan_space space = {
            .ways = c.w, .n = c.n, .stride = TSR_PLAN_MESH_WIDTHS, .codecs = true
        };
        assert_int_equal(tsr_plan_build(&b, &s.p, &space, &e.err), TSR_OK);
        for (uint64_t k = 0; k < b->n_parts; k++) {
            const struct tsr_instance *inst = &b->parts[k].inst;
            struct whole               z = { .in = &inst->in, .least = INFINITY };
            uint64_t                   left[4] = { 0 };
            assert_true(inst->in.n_kinds <= 24 && inst->in.n_pools <= 4);
            for (uint64_t g = 0; g < (inst->in.n_pools ? inst->in.n_pools : inst->in.n_kinds); g++)
                left[g] = inst->in.n_pools ? inst->in.pool_devices[g] : inst->in.kinds[g]->count;
            assert_int_equal(tsr_plan_solution_create(&z.s, inst, &e.err), TSR_OK);
            assert_int_equal(tsr_plan_solution_create(&z.best, inst, &e.err), TSR_OK);
            all_kinds(&z, 0, left);
            if (z.least < least) {
                struct tsr_plan_outcome out;
                least = z.least;
                if (tsr_plan_outcome_of(&out, b, k, z.best, &e.err) != TSR_OK)
                    fail_msg("problem %u: %s", i, e.text);
                check_latency(&s.p, &out);
                check_places(&s.p, &out);
                assert_true(out.kl <= o.max_kl * (1 + 1e-9));
                tsr_plan_outcome_free(&out);
            }
            free(z.s);
            free(z.best);
        }
        if (n && isfinite(safe)) {
            if (!(least >= best * (1 - 1e-7)) || !(least <= safe * (1 + 1e-7)))
                fail_msg("problem %u: %.12g, of %llu plans the best is %.12g, with room %.12g", i,
                         least, (unsigned long long)n, best, safe);
            plans++;
        }
        tsr_plan_built_destroy(b);
        tsr_plan_width_choices_free(&c);
        take_down(&s);
    }
    assert_true(plans > rounds / 2);
}

/* ---- the search ------------------------------------------------------------------------------ */

static void search_of(struct tsr_plan_planned *a, struct setting *s)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_search(a, &s->p, &s->solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static void note(const struct tsr_plan_outcome *o)
{
    bool widths = false, names[2] = { false, false }; /* F32, BF16 */
    for (uint64_t i = 0; i < o->n_stages; i++) {
        const struct tsr_plan_outcome_stage *t = &o->stages[i];
        widths = widths || (i && t->group == o->stages[i - 1].group &&
                            t->mesh.tp != o->stages[i - 1].mesh.tp);
        if (i + 1 < o->n_stages)
            names[t->link != 0] = true;
        if (t->mesh.tp > 1)
            names[t->sum != 0] = true;
    }
    mixed += widths;
    choosy += names[0] && names[1];
}

static void brute_force(void **state)
{
    unsigned rounds = all_of_them ? 60 : 16, plans = 0;
    (void)state;
    for (unsigned i = 0; i < rounds; i++) {
        char                            text[800], path[200];
        double                          best, safe;
        struct setting                  s;
        struct tsr_plan_planned         a;
        struct tsr_plan_problem_options o = by_kl(path);
        machines(i, text);
        write_figures(i);
        o.max_kl = 0.01 + 0.08 * draw(i, 40);
        o.theta = i % 3 ? 0 : 50;
        set_up(&s, text, &o, 24, 9, 1 + i % 4);
        uint64_t n = enumerate(&s.p, &best, &safe);
        search_of(&a, &s);
        assert_true(a.joint && a.choices == 1 && a.ignored == 0);
        if (!n) {
            assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
        } else if (isfinite(safe)) {
            assert_int_equal(a.status, TSR_SOLVED_OPTIMAL);
            if (!(a.objective >= best * (1 - 1e-7)) || !(a.objective <= safe * (1 + 1e-7)))
                fail_msg("problem %u: %.12g, of %llu plans the best is %.12g, with room %.12g", i,
                         a.objective, (unsigned long long)n, best, safe);
            check_latency(&s.p, &a.outcome);
            check_places(&s.p, &a.outcome);
            assert_true(a.outcome.kl <= o.max_kl * (1 + 1e-9));
            note(&a.outcome);
            plans++;
        }
        tsr_plan_planned_free(&a);
        take_down(&s);
    }
    assert_true(plans > rounds / 2);
    if (seed == 1)
        assert_true(mixed > 0 && choosy > 0);
}

/* One width wherever it works, one codec for links and one for sums: no such choice beats all of them together. */
static void single_choices(void **state)
{
    unsigned rounds = all_of_them ? 60 : 10, better = 0;
    (void)state;
    for (unsigned i = 0; i < rounds; i++) {
        char                            text[800], path[200];
        struct setting                  s;
        struct tsr_plan_planned         a, one;
        struct tsr_plan_problem_options o = by_kl(path);
        double                          least = INFINITY;
        machines(i, text);
        write_figures(i);
        o.max_kl = 0.02 + 0.08 * draw(i, 40);
        set_up(&s, text, &o, 40, 20, 4);
        search_of(&a, &s);
        double all = tsr_plan_planned_has_plan(&a) ? a.objective : INFINITY;
        tsr_plan_planned_free(&a);
        take_down(&s);
        for (unsigned k = 0; k < 8; k++) {
            struct tsr_plan_problem_options q = o;
            q.links = codecs + k % 2;
            q.sums = codecs + k / 2 % 2;
            q.n_links = q.n_sums = 1;
            q.max_tp = 1 + k / 4;
            q.min_tp = q.max_tp;
            set_up(&s, text, &q, 40, 20, 4);
            search_of(&one, &s);
            least = fmin(least, tsr_plan_planned_has_plan(&one) ? one.objective : INFINITY);
            tsr_plan_planned_free(&one);
            take_down(&s);
        }
        if (!(all <= least * (1 + 1e-6)))
            fail_msg("problem %u: %.12g together, %.12g by single choices", i, all, least);
        better += all < least * (1 - 1e-6);
    }
    if (seed == 1)
        assert_true(better > 0);
}

/* Also where the number of devices is not a multiple of any width. */
static void more_devices(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        double before = INFINITY, first = NAN;
        profile("odd", 3000, 60 + 40 * i);
        for (unsigned n = 1; n <= 5; n++) {
            char                            text[400];
            struct setting                  s;
            struct tsr_plan_planned         a;
            struct tsr_plan_problem_options o = usual();
            (void)
                snprintf(text, sizeof text,
                         "version: 1\nnodes:\n  - {name: a, devices: [{profile: odd, count: %u}], "
                         "link: {bandwidth: %u MB/s, latency: 3 us}}\n",
                         n, 100 + 400 * i);
            set_up(&s, text, &o, 24, 9, 2);
            search_of(&a, &s);
            assert_int_equal(a.status, TSR_SOLVED_OPTIMAL);
            if (!(a.objective <= before * (1 + 1e-9)))
                fail_msg("%u devices take %.12g, %u take %.12g", n, a.objective, n - 1, before);
            before = a.objective;
            first = n == 1 ? before : first;
            tsr_plan_planned_free(&a);
            take_down(&s);
        }
        assert_true(before < first);
    }
}

/* A solver without pools gets one width for each group and the least lossy codecs, and the answer says so. */
static void projected(void **state)
{
    char                            text[800], path[200];
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_planned         a, joint;
    struct tsr_plan_problem_options o = by_kl(path);
    (void)state;
    machines(0, text);
    profile("odd", 2000, 100);
    write_figures(0);
    o.max_kl = 0.2;
    set_up(&s, text, &o, 24, 9, 2);
    search_of(&joint, &s);
    tsr_plugin_spec_close(&s.solver);
    if (tsr_plugin_spec_open(&s.solver, registry, TSR_KIND_SOLVER, "het", &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    search_of(&a, &s);
    assert_true(tsr_plan_planned_has_plan(&a) && tsr_plan_planned_has_plan(&joint));
    assert_false(a.joint);
    assert_int_equal(a.ignored, TSR_PLAN_IGNORED_WIDTHS | TSR_PLAN_IGNORED_CODECS);
    assert_true(a.objective >= joint.objective * (1 - 1e-9));
    for (uint64_t i = 0; i < a.outcome.n_stages; i++) {
        assert_int_equal(a.outcome.stages[i].link, 0);
        assert_int_equal(a.outcome.stages[i].sum, 0);
        assert_int_equal(a.outcome.stages[i].mesh.tp, a.outcome.stages[0].mesh.tp);
    }
    tsr_plan_planned_free(&a);
    tsr_plan_planned_free(&joint);
    take_down(&s);
}

static void refused(void **state)
{
    static const char *const        unknown[] = { "plain", "mx:block=16" };
    struct tsr_plan_problem_options o = usual(), q;
    char                            path[200];
    struct tsr_plan_problem         p;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_workload        w;
    struct tsr_plan_cluster        *c =
        cluster_of("version: 1\nnodes:\n  - {name: a, devices: [{profile: slow, count: 2}], link: "
                   "{bandwidth: 10 GB/s, latency: 5 us}}\n");
    (void)state;
    assert_int_equal(tsr_plan_workload_fixed(&w, 24, 9, 2, &e.err), TSR_OK);
    o.links = codecs;
    o.n_links = 2;
    assert_int_equal(tsr_plan_problem_open(&p, registry, &o, c, &w, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "codecs", "plain:dtype=bf16 indicators"));
    o.n_links = 0;
    o.sums = codecs;
    o.n_sums = 2;
    assert_int_equal(tsr_plan_problem_open(&p, registry, &o, c, &w, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "sums", "plain:dtype=bf16 indicators"));
    o.sums = codecs + 1; /* alone it is what the user wants */
    o.n_sums = 1;
    assert_int_equal(tsr_plan_problem_open(&p, registry, &o, c, &w, &e.err), TSR_OK);
    tsr_plan_problem_close(&p);
    write_figures(0);
    q = by_kl(path);
    q.links = unknown;
    assert_int_equal(tsr_plan_problem_open(&p, registry, &q, c, &w, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "joint.json", "mx:block=16 between plain:dtype=bf16"));
    tsr_plan_workload_free(&w);
    tsr_plan_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),         cmocka_unit_test(brute_force),
        cmocka_unit_test(single_choices), cmocka_unit_test(more_devices),
        cmocka_unit_test(projected),      cmocka_unit_test(refused),
    };
    const char *s = getenv("TSR_TEST_SEED");
    if (s)
        seed = strtoull(s, NULL, 10);
    all_of_them = getenv("TSR_TEST_ALL") != NULL;
    room =
        100; /* the norms of ranks of a wide mesh are counted for all layers (build.h), a 200th of these devices */
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
