/* TSR_SOLVER_LINES: what `exact` proves of each option holds under other limits, prices and cutoffs, and a solve that starts with that gives the
 * same answer.  Problems are random; each option alone, under the price of its line, is solved to the end.
 *
 * TSR_TEST_SEED chooses the problems; TSR_TEST_ALL=1 takes ten times as many. */
#include "solver_fixture.h"

#include "base/rng.h"
#include "plan/search/lines.h"
#include "tessera/draft/lines.h"

#define FIRST 60000u /* other problems than test_exact.c has */

static double draw(uint64_t problem, uint64_t number, double low, double high)
{
    return low + (high - low) * tsr_uniform(seed, FIRST + problem, number);
}

static struct tsr_solver_solution *solve_lines(const struct tsr_instance *inst,
                                               struct tsr_solver_line    *lines)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_plugin_spec      s = { 0 };
    struct tsr_solver_solution *out = NULL;
    assert_int_equal(tsr_plan_solution_create(&out, inst, &e.err), TSR_OK);
    if (tsr_plugin_spec_open(&s, registry, TSR_KIND_SOLVER, "exact", &e.err) != TSR_OK ||
        tsr_plan_solve_lines(inst, &s.found, s.options, NULL, out, lines, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_plugin_spec_close(&s);
    return out;
}

/* No plan of the option is below its line; returns how far its best one is above, of the value.  NAN: it has none. */
static double above(const struct tsr_instance *inst, uint64_t option,
                    const struct tsr_solver_line *line)
{
    struct tsr_instance             one = *inst;
    const struct tsr_solver_option *list[1] = { inst->in.options[option] };
    one.in.options = list;
    one.in.n_options = 1;
    one.in.theta += line->slope;
    one.in.max_omega = line->limit < INFINITY ? line->limit : -1;
    one.in.cutoff = INFINITY;
    one.in.gap = 0;
    one.features = tsr_instance_features(&one.in);
    struct tsr_solver_solution *s = solve("exact", &one, "one option");
    bool                        plan = s->status == TSR_SOLVED_OPTIMAL;
    assert_true(plan || s->status == TSR_SOLVED_INFEASIBLE);
    double value = plan ? s->objective : NAN;
    free(s);
    /* 1e-9: sums in another order */
    if (plan && !(line->value <= value + 1e-9 * fmax(1, fabs(value))))
        fail_msg("option %llu: a line of %.12g, slope %g, limit %g; a plan has %.12g",
                 (unsigned long long)option, line->value, line->slope, line->limit, value);
    return (value - line->value) / value;
}

static void test_lines(void **state)
{
    unsigned       close = 0, priced = 0, limited = 0, none = 0, all = 0;
    const uint64_t drawn = seed;
    (void)state;
    for (uint64_t i = 0; i < (all_of_them ? 6000 : 600); i++) {
        seed = i % 10 == 9 ? 1 : drawn; /* of these, two give lines with a limit, which are rare */
        struct random         *r = make_random_with(FIRST + i, ALL_PARTS);
        struct tsr_solver_line lines[TSR_PROBLEM_OPTIONS];
        uint64_t               n = r->inst.in.n_options;
        r->inst.in.gap = i % 3 ? 0 : 0.5;
        if (i % 2)
            r->inst.in.cutoff = (r->p.feasible ? fmax(r->p.best, 0.01) : 1000) * draw(i, 1, 0.3, 2);
        for (uint64_t o = 0; o < n; o++)
            lines[o] = (struct tsr_solver_line){ .value = -INFINITY };
        struct tsr_solver_solution *s = solve_lines(&r->inst, lines);
        double                      least = INFINITY;
        for (uint64_t o = 0; o < n; o++) {
            const struct tsr_solver_line *l = &lines[o];
            assert_true(l->slope >= 0 && !isnan(l->value));
            least = fmin(least, l->value - l->slope * fmax(r->inst.in.max_omega, 0));
            if (l->value == -INFINITY)
                continue;
            double far = above(&r->inst, o, l);
            all++;
            none += !(far <= INFINITY);
            close += far < 0.05;
            priced += l->slope > 0;
            limited += l->limit < INFINITY;
        }
        /* the optimum by brute force is a plan of one of them */
        if (r->p.feasible)
            assert_true(least <= r->p.best + 1e-9 * fmax(1, fabs(r->p.best)));
        free(s);
        free(r);
    }
    seed = drawn;
    /* else the problems say little */
    assert_true(all > 200 && close > all / 8 && priced > 3 && limited > 0 && none > 1);
}

/* Several limits, one after the other, with what the solves before proved and without. */
static void test_known(void **state)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plugin_spec spec = { 0 };
    unsigned               plans = 0, beaten = 0;
    (void)state;
    assert_int_equal(tsr_plugin_spec_open(&spec, registry, TSR_KIND_SOLVER, "exact", &e.err),
                     TSR_OK);
    for (uint64_t i = 0; i < (all_of_them ? 3000 : 300); i++) {
        struct random *r = make_random_with(FIRST + 10000 + i, ALL_PARTS & ~TSR_SOLVER_MAX_FIRST);
        struct tsr_plan_lines known = { 0 };
        double                omega = 0, best = r->p.feasible ? fmax(r->p.best, 0.01) : 1;
        for (uint64_t l = 0; l < r->inst.in.layers; l++)
            omega += r->inst.in.omega[l * r->inst.in.bits];
        r->inst.in.gap = 0;
        for (uint64_t k = 0; k < 5; k++) {
            struct tsr_solver_solution *s = NULL;
            r->inst.in.max_omega = omega * draw(i, 10 + k, 0, 1.2);
            r->inst.in.theta = k % 2 ? 0 : draw(i, 20 + k, 0, best / fmax(omega, 0.01));
            r->inst.in.cutoff = best * draw(i, 30 + k, 0.7, 3);
            r->inst.features = tsr_instance_features(&r->inst.in);
            struct tsr_solver_solution *t = solve("exact", &r->inst, "without");
            assert_int_equal(tsr_plan_solution_create(&s, &r->inst, &e.err), TSR_OK);
            if (tsr_plan_lines_solve(&known, 0, r->inst.in.n_options, &r->inst, &spec, s, &e.err) !=
                TSR_OK)
                fail_msg("%s", e.text);
            bool plan = t->status == TSR_SOLVED_OPTIMAL;
            if (plan != (s->status == TSR_SOLVED_OPTIMAL) ||
                (plan && !(fabs(s->objective - t->objective) <= 1e-9 * fabs(t->objective))) ||
                (!plan && s->status == TSR_SOLVED_UNKNOWN &&
                 !(s->bound >= r->inst.in.cutoff * (1 - 1e-9))))
                fail_msg(
                    "problem %llu of seed %llu, limit %llu: status %u, %.12g; without %u, %.12g",
                    (unsigned long long)i, (unsigned long long)seed, (unsigned long long)k,
                    s->status, s->objective, t->status, t->objective);
            plans += plan;
            beaten += !plan;
            free(s);
            free(t);
        }
        tsr_plan_lines_free(&known);
        free(r);
    }
    assert_true(plans > 100 && beaten > 100);
    tsr_plugin_spec_close(&spec);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines),
                                        cmocka_unit_test(test_known) };
    return run_solver_tests("lines", tests, argc, argv);
}
