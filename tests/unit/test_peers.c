/* `exact` beside every other solver, ours and others': GLPK through `ilp`, and CBC as a program on the
 * integer programs that `ilp` exports.  Equal objectives wherever they prove optimality, no plan of
 * theirs is better, and no bound of theirs is above ours: on golden problems, on small random ones
 * (all parts) and on random ones that are too large for brute force.
 *
 * TSR_TEST_SEED chooses a sample; TSR_TEST_ALL=1 takes all golden problems and 300 random ones of each
 * sort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/json.h"
#include "conformance/solver/solver.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plugin/spec.h"
#include "plugin_open.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tsr_registry *registry;
static bool                 all_of_them, with_ilp, with_cbc;
static uint64_t             seed = 1;
static char                 folder[] = "/tmp/tessera-peers-XXXXXX";
static unsigned             proved_by_glpk, proved_by_cbc;

static struct tsr_solver_solution *solve(const char *spec, const struct tsr_instance *inst,
                                         const char *name)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_plugin_spec      s = { 0 };
    struct tsr_solver_solution *out = NULL;
    assert_int_equal(tsr_plan_solution_create(&out, inst, &e.err), TSR_OK);
    if (tsr_plugin_spec_open(&s, registry, TSR_KIND_SOLVER, spec, &e.err) != TSR_OK ||
        tsr_plan_solve(inst, &s.found, s.options, out, &e.err) != TSR_OK)
        fail_msg("%s on %s: %s", spec, name, e.text);
    tsr_plugin_spec_close(&s);
    return out;
}

static bool planned(const struct tsr_solver_solution *s)
{
    return s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE;
}

/* ---- CBC ------------------------------------------------------------------------------ */

/* The optimum of one integer program; INFINITY: it has none, NaN: not proved in `seconds`.  CBC looks at
 * its limit between steps, some of which take minutes: it is killed at three times as much. */
static double cbc(const char *file, int seconds)
{
    char   line[512], command[1024], word[64];
    double v = NAN;
    (void)
        snprintf(command, sizeof command,
                 "rm -f %s/solution; timeout -s KILL %d cbc %s/%s sec %d ratio 1e-9 solve solution "
                 "%s/solution >%s/log 2>&1",
                 folder, 3 * seconds, folder, file, seconds, folder, folder);
    int rc = system(command);
    if (WIFEXITED(rc) && WEXITSTATUS(rc) == 128 + SIGKILL) /* as the shell tells of it */
        return NAN;
    (void)snprintf(line, sizeof line, "%s/solution", folder);
    FILE *f = rc == 0 ? fopen(line, "r") : NULL;
    if (!f || !fgets(line, sizeof line, f))
        fail_msg("'%s' left no solution", command);
    /* "Optimal - objective value 12.5", "Infeasible - ...", "Integer infeasible - ...", "Stopped ..." */
    const char *at = strstr(line, "objective value");
    if (sscanf(line, "%63s", word) == 1 && strcmp(word, "Optimal") == 0 && at)
        v = strtod(at + strlen("objective value"), NULL);
    else if (strncmp(line, "Infeasible", 10) == 0 || strncmp(line, "Integer infeasible", 18) == 0)
        v = INFINITY;
    (void)fclose(f);
    return v;
}

#define CBC_SECONDS (all_of_them ? 20 : 2) /* of one program; of a problem's programs twice that */

/* The least of the exported programs; NaN where one is not proved.  Deletes them. */
static double cbc_all(unsigned *files, unsigned most)
{
    double         best = INFINITY, end = tsr_now_s() + 2 * CBC_SECONDS;
    struct dirent *e;
    DIR           *d = opendir(folder);
    unsigned       n = 0;
    assert_non_null(d);
    for (unsigned pass = 0; pass < 2; pass++) {
        rewinddir(d);
        while ((e = readdir(d)) != NULL) {
            char   path[512];
            size_t len = strlen(e->d_name);
            if (len < 3 || strcmp(e->d_name + len - 3, ".lp") != 0)
                continue;
            if (pass == 0) {
                n++;
                continue;
            }
            if (n <= most && !isnan(best)) {
                double v = tsr_now_s() < end ? cbc(e->d_name, CBC_SECONDS) : (double)NAN;
                best = isnan(v) ? v : fmin(best, v);
            }
            (void)snprintf(path, sizeof path, "%s/%.400s", folder, e->d_name);
            (void)unlink(path);
        }
    }
    (void)closedir(d);
    *files = n;
    return n > 0 && n <= most ? best : NAN;
}

/* ---- one problem beside all ------------------------------------------------------------- */

/* gap: of both sides; the tables of ours are rounded to 50 bits, others add up in another order. */
static double band_of(double v, double gap)
{
    return (gap + 1e-9) * fabs(v) + 1e-6;
}

static void compare(const char *peer, const char *name, const struct tsr_solver_solution *mine,
                    const struct tsr_solver_solution *s, double gap)
{
    double best = mine->objective, band = band_of(best, gap);
    if (mine->status == TSR_SOLVED_INFEASIBLE) {
        if (planned(s))
            fail_msg("%s: %s has a plan of %.12g, exact says that there is none", name, peer,
                     s->objective);
        return;
    }
    if (s->status == TSR_SOLVED_INFEASIBLE)
        fail_msg("%s: %s proves that there is no plan, exact has %.12g", name, peer, best);
    if (planned(s) && !(s->objective >= best - band))
        fail_msg("%s: exact has %.12g, %s has %.12g", name, best, peer, s->objective);
    if (!(s->bound <= best + band))
        fail_msg("%s: the bound of %s is %.12g, exact has %.12g", name, peer, s->bound, best);
    if (s->status == TSR_SOLVED_OPTIMAL && !(s->objective <= best + 2 * band))
        fail_msg("%s: %s proves %.12g, exact %.12g", name, peer, s->objective, best);
}

/* ilp_us: time of GLPK, 0: all that it wants. */
static void beside_all(struct tsr_instance *inst, const char *name, uint64_t ilp_us)
{
    static const char *const    others[] = { "uniform", "pipeedge", "het", "adabits", "transfer" };
    struct tsr_solver_solution *mine = solve("exact", inst, name);
    double                      gap = inst->in.gap;
    char                        spec[256];
    unsigned                    files = 0;
    if (mine->status != TSR_SOLVED_OPTIMAL && mine->status != TSR_SOLVED_INFEASIBLE)
        fail_msg("%s: exact proves nothing (status %u)", name, mine->status);
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        struct tsr_solver_solution *s = solve(others[k], inst, name);
        compare(others[k], name, mine, s, gap);
        free(s);
    }
    if (with_ilp) {
        bool export = with_cbc && (all_of_them || inst->in.layers <= 12);
        (void)snprintf(spec, sizeof spec, export ? "ilp:time=0,export=%s/p.lp" : "ilp:time=0",
                       folder);
        uint64_t deadline = inst->in.deadline_us;
        inst->in.deadline_us = ilp_us;
        struct tsr_solver_solution *s = solve(spec, inst, name);
        inst->in.deadline_us = deadline;
        compare("GLPK", name, mine, s, gap);
        bool whole = s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_INFEASIBLE;
        proved_by_glpk += whole;
        double v = export ? cbc_all(&files, all_of_them ? 64 : 6) : (double)NAN;
        /* all programs were written if GLPK came to an end, or if there is one alone */
        if (!isnan(v) && (whole || files == 1)) {
            proved_by_cbc++;
            double want = mine->status == TSR_SOLVED_OPTIMAL ? mine->objective : INFINITY;
            /* 1e-6: its tolerance of rows, relative to coefficients that are times */
            if (isinf(v) != isinf(want) ||
                (!isinf(v) && !(fabs(v - want) <= band_of(want, gap + 1e-6))))
                fail_msg("%s: CBC finds %.12g, exact %.12g", name, v, want);
        }
        free(s);
    }
    free(mine);
}

static void test_golden(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *all = NULL, *one;
    const char       *name;
    uint64_t          i = 0, n = 0;
    if (tsr_json_load(&all, TSR_GOLDEN_PLANNER "/expected.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    json_object_foreach (json_object_get(all, "instances"), name, one) {
        if (!all_of_them && (i++ + seed) % 8 != 0)
            continue;
        struct tsr_instance *inst = NULL;
        char                 path[1024];
        (void)snprintf(path, sizeof path, "%s/%s.json", TSR_GOLDEN_PLANNER, name);
        if (tsr_instance_load(&inst, path, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        beside_all(inst, name, all_of_them ? 2000000 : 300000);
        tsr_instance_destroy(inst);
        n++;
    }
    assert_true(n >= (all_of_them ? 76 : 9));
    json_decref(all);
}

#define ALL_PARTS (2 * TSR_SOLVER_FIXED_ORDER - 1)

static void beside_random(struct tsr_conformance_problem *p, const char *sort, uint64_t index,
                          uint64_t ilp_us)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s problem %llu of seed %llu", sort,
                   (unsigned long long)index, (unsigned long long)seed);
    p->in.gap = 1e-5; /* bounds of GLPK are believed to 1e-6 */
    p->in.deadline_us = 0;
    struct tsr_instance inst = { .in = p->in, .devices = p->devices };
    beside_all(&inst, name, ilp_us);
}

static void test_small(void **state)
{
    (void)state;
    struct tsr_conformance_case     c = { .seed = seed };
    struct tsr_conformance_problem *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (uint64_t i = 0; i < (all_of_them ? 300 : 40); i++) {
        tsr_conformance_problem_small(p, &c, 20000 + i, ALL_PARTS);
        beside_random(p, "small", i, 0);
    }
    free(p);
}

/* 7 to 14 layers on 2 to 4 devices of 1 to 3 kinds, 3 or 4 bits: every part in turn. */
static void make_medium(struct tsr_conformance_problem *p, uint64_t index)
{
    struct tsr_conformance_case c = { .seed = seed + 1000003 * index };
    uint64_t                    at = 0, room = 0;
#define BELOW(n) tsr_conformance_rule_below(&c, 77, at++, n)
    tsr_conformance_problem_large(p, &c, BELOW(2) ? ALL_PARTS : BELOW(UINT64_C(1) << 32));
    p->in.layers = 7 + BELOW(8);
    p->in.n_kinds = 1 + BELOW(3);
    p->in.n_options = 1 + BELOW(2);
    p->in.theta = (double)BELOW(3);
    p->in.batch = 1 + BELOW(8);
    p->in.tokens = 1 + BELOW(20);
    p->in.objective = BELOW(2) ? TSR_OBJECTIVE_STEADY : TSR_OBJECTIVE_PAPER;
    p->devices = 0;
    for (uint64_t k = 0; k < p->in.n_kinds; k++) {
        p->kind[k].count = p->in.n_kinds == 1 ? 2 + (uint32_t)BELOW(2) : 1 + (k == 0);
        p->kind[k].capacity_bytes = 0;
        p->devices += p->kind[k].count;
    }
    room = p->in.layers * 20 * p->in.bits / p->devices;
    for (uint64_t k = 0; k < p->in.n_kinds; k++)
        p->kind[k].capacity_bytes = room / 2 + 20 + BELOW(room + 1);
    for (uint64_t o = 0; o < p->in.n_options; o++) {
        p->option[o].prefill_mb = 1 + BELOW(2);
        p->option[o].decode_mb = p->option[o].prefill_mb * (1 + BELOW(2));
        for (uint64_t k = 0; BELOW(3) == 0 && k < p->in.n_kinds; k++)
            p->tables[o].dec[k * p->in.classes * p->in.bits + BELOW(p->in.bits)] = (double)NAN;
    }
    if (BELOW(3) == 0)
        p->in.max_omega = (double)p->in.layers * (0.8 + 0.4 * (double)BELOW(5));
    p->in.allow_unused = BELOW(4) != 0;
    if (BELOW(4) == 0) { /* kinds as they stand */
        for (uint64_t k = 0; k < p->in.n_kinds; k++)
            for (uint32_t i = 0; i < p->kind[k].count; i++)
                p->order[p->in.order_len++] = (uint32_t)k;
    }
#undef BELOW
    tsr_conformance_problem_link(p);
}

static void test_medium(void **state)
{
    (void)state;
    struct tsr_conformance_problem *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (uint64_t i = 0; i < (all_of_them ? 300 : 12); i++) {
        make_medium(p, i);
        beside_random(p, "medium", i, all_of_them ? 5000000 : 500000);
    }
    free(p);
}

/* Else all of it says little. */
static void test_proved(void **state)
{
    (void)state;
    (void)printf("proved by GLPK: %u problems, by CBC: %u\n", proved_by_glpk, proved_by_cbc);
    assert_true(!with_ilp || proved_by_glpk >= (all_of_them ? 300 : 40));
    assert_true(!with_ilp || !with_cbc || proved_by_cbc >= (all_of_them ? 200 : 10));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_medium),
        cmocka_unit_test(test_proved),
    };
    const char             *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_found f;
    all_of_them = all && *all == '1';
    seed = s ? strtoull(s, NULL, 10) : 1;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (!mkdtemp(folder) || tsr_plugin_registry_create(&registry, NULL, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK) {
        (void)fprintf(stderr, "%s: %s\n", folder, e.text);
        return 1;
    }
    with_ilp = tsr_plugin_registry_find(registry, TSR_KIND_SOLVER, "ilp", &f, &e.err) == TSR_OK;
    with_cbc = system("command -v cbc >/dev/null") == 0;
    if (!with_ilp || !with_cbc)
        (void)printf("not compared with %s: not installed\n", with_ilp   ? "CBC"
                                                              : with_cbc ? "GLPK"
                                                                         : "GLPK and CBC");
    int                      failed = cmocka_run_group_tests_name("peers", tests, NULL, NULL);
    static const char *const left[] = { "solution", "log" };
    for (size_t i = 0; i < 2; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", folder, left[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
    tsr_plugin_registry_destroy(registry);
    return failed;
}
