/* Instances, the host's objective, and the solver "het", against the golden optima. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plugin_open.h"
#include "tessera/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the worked example of the format page -------------------------------- */

static const char example[] =
    "{\"format\":\"tessera.instance/1\",\"objective\":\"%s\",\"layers\":2,\"bits\":[\"4\",\"16\"],"
    "\"layer_bytes\":[[100,300]],\"omega\":[[2,0],[1,0]],\"theta\":10,\"batch\":4,\"tokens\":3,"
    "\"kinds\":[{\"name\":\"a\",\"count\":1,\"capacity_bytes\":300},"
    "{\"name\":\"b\",\"count\":1,\"capacity_bytes\":350}],\"options\":[{\"prefill_mb\":2,"
    "\"decode_mb\":2,\"pre_ms\":[[[4,6]],[[2,3]]],\"dec_ms\":[[[1,2]],[[1,1]]]}]}";

static struct tsr_instance *parse(const char *text)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_instance *inst = NULL;
    if (tsr_instance_parse(&inst, "t", text, strlen(text), &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return inst;
}

static struct tsr_instance *parse_example(const char *objective)
{
    char text[1024];
    (void)snprintf(text, sizeof text, example, objective);
    return parse(text);
}

static struct tsr_solver_solution *plan_of(const struct tsr_instance *inst)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_solver_solution *s = NULL;
    assert_int_equal(tsr_plan_solution_create(&s, inst, &e.err), TSR_OK);
    return s;
}

/* layer 0 on b with 16 bit, layer 1 on a with `bit` */
static void set_plan(struct tsr_solver_solution *s, uint32_t bit)
{
    s->option = 0;
    s->stages = 2;
    s->stage_kind[0] = 1;
    s->stage_kind[1] = 0;
    s->stage_first[0] = 0;
    s->stage_first[1] = 1;
    s->stage_count[0] = s->stage_count[1] = 1;
    s->layer_bits[0] = 1;
    s->layer_bits[1] = bit;
}

static void test_example(void **state)
{
    (void)state;
    static const struct {
        const char *objective;
        uint32_t    bit;
        double      want;
    } cases[] = {
        { "paper", 1, 22 }, { "steady", 1, 24 }, { "paper", 0, 25 }, { "steady", 0, 26 }
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (size_t i = 0; i < 4; i++) {
        struct tsr_instance        *inst = parse_example(cases[i].objective);
        struct tsr_solver_solution *s = plan_of(inst);
        double                      got = NAN;
        set_plan(s, cases[i].bit);
        assert_int_equal(tsr_plan_evaluate(&inst->in, s, &got, &e.err), TSR_OK);
        assert_true(got == cases[i].want); /* small integers: exact */
        free(s);
        tsr_instance_destroy(inst);
    }
}

/* Prompts in chunks: each of the two micro-batches is two and a half jobs of the printed times, 9 + (5 - 1) 6 + 9. */
static void test_jobs(void **state)
{
    (void)state;
    static const char key[] = "\"prefill_mb\":2";
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              plain[1024], text[1200];
    (void)snprintf(plain, sizeof plain, example, "steady");
    const char *at = strstr(plain, key);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s,\"prefill_jobs\":5%s", (int)(at - plain), plain, key,
                   at + strlen(key));
    struct tsr_instance *inst = NULL;
    assert_int_equal(tsr_instance_parse(&inst, "jobs", text, strlen(text), &e.err), TSR_OK);
    assert_true(inst->features & TSR_SOLVER_JOBS);
    struct tsr_solver_solution *s = plan_of(inst);
    double                      got = NAN;
    set_plan(s, 1);
    assert_int_equal(tsr_plan_evaluate(&inst->in, s, &got, &e.err), TSR_OK);
    assert_true(got == 42);
    free(s);
    tsr_instance_destroy(inst);
}

static void test_rules(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = parse_example("steady");
    struct tsr_solver_solution *s = plan_of(inst);
    double                      v;
#define REFUSED(change, want_status, facts)                                                        \
    do {                                                                                           \
        set_plan(s, 1);                                                                            \
        change;                                                                                    \
        assert_int_equal(tsr_plan_evaluate(&inst->in, s, &v, &e.err), want_status);                \
        assert_true(error_is(&e.err, "", facts));                                                  \
    } while (0)
    REFUSED(s->option = 1, TSR_E_INPUT, "option#1");
    REFUSED(s->stages = 0, TSR_E_INPUT, "0 stages");
    REFUSED(s->stages = 3, TSR_E_INPUT, "3 stages 1 2");
    REFUSED(s->stage_kind[1] = 2, TSR_E_INPUT, "stage#1 kind#2");
    REFUSED(s->stage_kind[1] = 1, TSR_E_INPUT, "2 stages kind#1");
    REFUSED(s->stage_first[0] = 1, TSR_E_INPUT, "layer#0");
    REFUSED(s->stage_count[0] = UINT64_MAX, TSR_E_INPUT, "layer#0");
    REFUSED(s->stage_count[1] = 0, TSR_E_INPUT, "stage#1");
    REFUSED(s->stages = 1, TSR_E_INPUT, "1 2 layers");
    REFUSED(s->layer_bits[1] = 2, TSR_E_INPUT, "layer#1 bit 2");
    REFUSED((s->stages = 1, s->stage_count[0] = 2), TSR_E_INFEASIBLE, "stage#0 600 350 kind#1");
    inst->in.max_omega = 0.5;
    REFUSED(s->layer_bits[1] = 0, TSR_E_INFEASIBLE, "omega 1 max_omega 0.5");
    inst->in.max_omega = -1;
    uint32_t order[] = { 0, 1 };
    inst->in.order = order;
    inst->in.order_len = 2;
    REFUSED((void)0, TSR_E_INPUT, "stage#1 kind#0 order");
#undef REFUSED
    free(s);
    tsr_instance_destroy(inst);
}

/* ---- malformed files -------------------------------------------------------- */

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *facts, *part;
    } cases[] = {
        { "tessera.instance/1", "tessera.instance/3", "format tessera.instance/2", "" },
        { "\"steady\"", "\"fast\"", "objective fast steady paper", "" },
        { "\"layers\":2", "\"layers\":0", "layers 0", "" },
        { "\"layers\":2", "\"layers\":3", "list 3", "" },
        { "\"layers\":2,", "", "layers", "" },
        { "\"bits\":[\"4\",\"16\"]", "\"bits\":[]", "bits", "" },
        { "\"bits\":[\"4\",\"16\"]", "\"bits\":[\"4\",16]", "bits[1]", "" },
        { "[[100,300]]", "[[100]]", "layer_bytes[0] list 2", "" },
        { "[[100,300]]", "[[100,1.5]]", "layer_bytes[0][1] 0", "" },
        { "[[100,300]]", "[[100,9007199254740992]]", "layer_bytes[0][1] 0", "" },
        { "[[2,0],[1,0]]", "[[2,0],[-1,0]]", "omega[1][0] 0", "" },
        { "[[2,0],[1,0]]", "[[2,0],[null,0]]", "omega[1][0] 0", "" },
        { "[[2,0],[1,0]]", "[[2,0],[1e999,0]]", NULL, ":1:128" },
        { "\"theta\":10", "\"theta\":-1", "theta", "" },
        { "\"batch\":4", "\"batch\":2.5", "batch", "" },
        { "\"tokens\":3", "\"tokens\":\"3\"", "tokens", "" },
        { "\"kinds\":[", "\"kinds\":[7,", NULL, ": kinds[0]" },
        { "\"count\":1", "\"count\":0", "count 0", ": kinds[0]" },
        { "\"options\":[", "\"options\":[[],", NULL, ": options[0]" },
        { "\"options\":", "\"order\":[0,0],\"options\":", "order[1] kind 0 1", "" },
        { "\"options\":", "\"order\":[0,2],\"options\":", "order[1] 0 1", "" },
        { "\"options\":", "\"order\":[0],\"options\":", "list 2", "" },
        { "\"options\":", "\"order\":\"any\",\"options\":", "free list", "" },
        { "\"options\":", "\"layer_class\":[0,1],\"options\":", "layer_class[1] 0", "" },
        { "\"prefill_mb\":2", "\"prefill_mb\":3", "prefill_mb 3", ": options[0]" },
        { "\"decode_mb\":2", "\"decode_mb\":5", "decode_mb 5", ": options[0]" },
        { "[[4,6]]", "[[4,\"6\"]]", "options[0].pre_ms[0][0][1] 0 1e+18", "" },
        { "[[1,2]]", "[[1,2],[1,2]]", "options[0].dec_ms[0] 1", "" },
        { "\"pre_ms\"", "\"pro_ms\"", "options[0].pre_ms", "" },
        { "\"pre_ms\"", "\"workspace_bytes\":[1],\"pre_ms\"", "options[0].workspace_bytes", "" },
        { "\"pre_ms\"", "\"comm_pre_ms\":[[0,0],[0,null]],\"pre_ms\"",
          "options[0].comm_pre_ms[1][1]", "" },
        { "\"prefill_mb\":2", "\"prefill_mb\":2,\"prefill_jobs\":1.5", "prefill_jobs 2",
          ": options[0]" },
        { "\"prefill_mb\":2", "\"prefill_mb\":2,\"prefill_jobs\":\"4\"", "prefill_jobs 2",
          ": options[0]" },
        { "\"theta\":10", "\"theta\":10,\"theta\":10", NULL, ":1:147" },
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              good[1024], bad[1200];
    (void)snprintf(good, sizeof good, example, "steady");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tsr_instance *inst = NULL;
        const char          *at = strstr(good, cases[i].from);
        assert_non_null(at);
        (void)snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, cases[i].to,
                       at + strlen(cases[i].from));
        char about[64];
        (void)snprintf(about, sizeof about, "t.json%s", cases[i].part);
        tsr_status st = tsr_instance_parse(&inst, "t.json", bad, strlen(bad), &e.err);
        if (st != TSR_E_INPUT || !error_is(&e.err, about, cases[i].facts))
            fail_msg("case %zu: status %d: %s", i, st, st == TSR_OK ? "accepted" : e.text);
    }
    for (size_t n = 0; n < strlen(good); n += 7) { /* every kind of truncation */
        struct tsr_instance *inst = NULL;
        assert_int_equal(tsr_instance_parse(&inst, "t.json", good, n, &e.err), TSR_E_INPUT);
    }
}

/* ---- golden instances ------------------------------------------------------- */

static struct tsr_registry    *registry;
static struct tsr_plugin_found het;
static struct {
    int64_t labels, pick;
} opts = { 32, 0 };

struct search {
    const struct tsr_instance  *inst;
    struct tsr_solver_solution *s;
    bool                        one_bit;
    double                      best;
};

static void try_bits(struct search *x, uint64_t layer)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          L = x->inst->in.layers;
    double            v;
    if (layer == L) {
        if (tsr_plan_evaluate(&x->inst->in, x->s, &v, &e.err) == TSR_OK && v < x->best)
            x->best = v;
        return;
    }
    for (uint32_t q = 0; q < x->inst->in.bits; q++) {
        for (uint64_t l = layer; l < (x->one_bit ? L : layer + 1); l++)
            x->s->layer_bits[l] = q;
        try_bits(x, x->one_bit ? L : layer + 1);
    }
}

/* Every sequence of (kind, count); the host's rules throw out what is not allowed.  Depth is at
 * most the number of layers. */
static void try_stages(struct search *x, uint64_t first)
{
    struct tsr_solver_solution *s = x->s;
    if (first == x->inst->in.layers) {
        for (s->option = 0; s->option < x->inst->in.n_options; s->option++)
            try_bits(x, 0);
        return;
    }
    if (s->stages == s->max_stages)
        return;
    uint64_t at = s->stages++;
    for (uint32_t k = 0; k < x->inst->in.n_kinds; k++)
        for (uint64_t n = 1; first + n <= x->inst->in.layers; n++) {
            s->stage_kind[at] = k;
            s->stage_first[at] = first;
            s->stage_count[at] = n;
            try_stages(x, first + n);
        }
    s->stages--;
}

static double brute(const struct tsr_instance *inst, bool one_bit)
{
    struct search x = { inst, plan_of(inst), one_bit, INFINITY };
    x.s->stages = 0;
    try_stages(&x, 0);
    free(x.s);
    return x.best;
}

static void check_golden(const char *name, const json_t *want, unsigned *exhausted)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_instance *inst = NULL;
    char                 path[1024];
    bool                 feasible = json_is_true(json_object_get(want, "feasible"));
    double               best = json_number_value(json_object_get(want, "objective"));
    (void)snprintf(path, sizeof path, "%s/%s.json", TSR_GOLDEN_PLANNER, name);
    if (tsr_instance_load(&inst, path, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    struct tsr_solver_solution *s = plan_of(inst);
    if (tsr_plan_solve(inst, &het, &opts, s, &e.err) != TSR_OK)
        fail_msg("%s: %s", name, e.text);
    /* the band that expected.json names: 1e-4 of the optimum is the gap of its solvers */
    double band = 1e-4 * fabs(best) + 1e-6;
    bool   plan = s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE;
    if (plan && !(feasible && s->objective >= best - band && s->bound <= best + band))
        fail_msg("%s: objective %.9g, bound %.9g, the optimum is %.9g", name, s->objective,
                 s->bound, best);
    if (s->status == TSR_SOLVED_OPTIMAL && !(fabs(s->objective - best) <= band))
        fail_msg("%s: %.9g is called optimal, the optimum is %.9g", name, s->objective, best);
    if (s->status == TSR_SOLVED_INFEASIBLE && feasible)
        fail_msg("%s: called infeasible (%s)", name, s->reason);
    if (inst->in.layers <= 4) { /* the host's objective itself against the proved optimum */
        double all = brute(inst, false);
        if (feasible ? !(fabs(all - best) <= band) : all != INFINITY)
            fail_msg("%s: all plans give %.9g, the optimum is %.9g", name, all, best);
        ++*exhausted;
    }
    if (inst->in.layers <= 7) { /* and the partition is the best one for one bit */
        double one = brute(inst, true);
        if (plan ? !(fabs(one - s->objective) <= 1e-9 * one) : one != INFINITY)
            fail_msg("%s: het gives %.12g (plan: %d), the best is %.12g", name, s->objective, plan,
                     one);
    }
    json_t *j = tsr_plan_solution_json(inst, s, "het", 0.5);
    assert_non_null(j);
    assert_int_equal(json_array_size(json_object_get(j, "bits")), plan ? inst->in.layers : 0);
    assert_true(plan == json_is_number(json_object_get(j, "objective")));
    json_decref(j);
    free(s);
    tsr_instance_destroy(inst);
}

static void test_golden(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *all = NULL, *one;
    const char       *name;
    unsigned          exhausted = 0;
    if (tsr_json_load(&all, TSR_GOLDEN_PLANNER "/expected.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    json_t *instances = json_object_get(all, "instances");
    assert_int_equal(json_object_size(instances), 76);
    json_object_foreach (instances, name, one)
        check_golden(name, one, &exhausted);
    assert_true(exhausted >= 10); /* this part tests nothing if the tiny instances go away */
    json_decref(all);
}

static struct tsr_solver_solution *solve(struct tsr_instance *inst)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_solver_solution *s = plan_of(inst);
    if (tsr_plan_solve(inst, &het, &opts, s, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return s;
}

static void test_proofs(void **state)
{
    (void)state;
    char                 text[1024];
    struct tsr_instance *inst;
    (void)snprintf(text, sizeof text, example, "steady");
    memcpy(strstr(text, "300}"), "  9}",
           4); /* kind a holds nothing, b one layer of 16 or three of 4 */
    inst = parse(text);
    struct tsr_solver_solution *s = solve(inst);
    assert_int_equal(s->stages, 1);
    assert_int_equal(s->layer_bits[0], 0);
    free(s);
    inst->in.max_omega = 2.9; /* two layers of 4 bits have 3 */
    inst->features |= TSR_SOLVER_MAX_OMEGA;
    s = solve(inst);
    assert_int_equal(s->status, TSR_SOLVED_UNKNOWN); /* a mixed plan might exist for all it knows */
    free(s);
    tsr_instance_destroy(inst);
    memcpy(strstr(text, "350}"), " 99}", 4);
    inst = parse(text);
    s = solve(inst);
    assert_int_equal(s->status, TSR_SOLVED_INFEASIBLE);
    assert_true(text_has(s->reason, "device"));
    free(s);
    tsr_instance_destroy(inst);
    inst = parse_example("steady");
    inst->in.allow_unused = 0;
    inst->in.layers = 1;
    s = solve(inst);
    assert_int_equal(s->status, TSR_SOLVED_INFEASIBLE);
    free(s);
    inst->in.layers = 2;
    s = solve(inst);
    assert_int_equal(s->stages, 2);
    free(s);
    inst->in.cutoff = 1; /* nothing is that good */
    s = solve(inst);
    assert_int_equal(s->status, TSR_SOLVED_UNKNOWN);
    free(s);
    tsr_instance_destroy(inst);
}

/* A solver that lacks a part is not asked. */
static void test_unsupported(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = parse_example("steady");
    struct tsr_solver_solution *s = plan_of(inst);
    struct tsr_solver_v1        less = *(const struct tsr_solver_v1 *)het.iface;
    struct tsr_plugin_found     f = het;
    f.iface = &less;
    less.supports &= ~TSR_SOLVER_MAX_OMEGA;
    assert_int_equal(tsr_plan_solve(inst, &f, &opts, s, &e.err), TSR_OK);
    inst->features |= TSR_SOLVER_MAX_OMEGA;
    assert_int_equal(tsr_plan_solve(inst, &f, &opts, s, &e.err), TSR_E_UNSUPPORTED);
    assert_true(error_is(&e.err, "het", "max_omega"));
    free(s);
    tsr_instance_destroy(inst);
}

/* A solver that lies is found out. */
static uint32_t   lie_status;
static double     lie_objective, lie_bound;
static tsr_status lie(void *self, const struct tsr_solver_instance *in,
                      struct tsr_solver_solution *s, struct tsr_err *err)
{
    (void)self;
    (void)in;
    (void)err;
    set_plan(s, 1);
    s->status = lie_status;
    s->objective = lie_objective;
    s->bound = lie_bound;
    return TSR_OK;
}

static void test_lies(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = parse_example("steady");
    struct tsr_solver_solution *s = plan_of(inst);
    struct tsr_solver_v1        liar = *(const struct tsr_solver_v1 *)het.iface;
    struct tsr_plugin_found     f = het;
    static const struct {
        uint32_t    status;
        double      objective, bound;
        const char *facts;
    } lies[] = {
        { TSR_SOLVED_FEASIBLE, 24, -INFINITY, NULL },
        { TSR_SOLVED_OPTIMAL, 24, 24, NULL },
        { TSR_SOLVED_FEASIBLE, 23.99, -INFINITY, "23.99 24" },
        { TSR_SOLVED_FEASIBLE, NAN, -INFINITY, "24" },
        { TSR_SOLVED_FEASIBLE, 24, 24.1, "24 bound 24.1" },
        { TSR_SOLVED_FEASIBLE, 24, NAN, "bound" },
        { TSR_SOLVED_OPTIMAL, 24, 23, "24 bound 23" },
        { TSR_SOLVED_OPTIMAL, 24, -INFINITY, "optimal 24" },
        { 4, 24, 24, "status" },
        { TSR_SOLVED_INFEASIBLE, 24, -INFINITY, "infeasible reason" },
    };
    liar.solve = lie;
    f.iface = &liar;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        lie_status = lies[i].status;
        lie_objective = lies[i].objective;
        lie_bound = lies[i].bound;
        tsr_status st = tsr_plan_solve(inst, &f, &opts, s, &e.err);
        assert_int_equal(st, lies[i].facts ? TSR_E_INPUT : TSR_OK);
        if (lies[i].facts && !error_is(&e.err, "het", lies[i].facts))
            fail_msg("lie %zu: %s", i, e.text);
    }
    free(s);
    tsr_instance_destroy(inst);
}

static int open_all(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_SOLVER, "het", &het);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    uint64_t now, peak;
    tsr_plugin_registry_memory(registry, &now, &peak);
    tsr_plugin_registry_destroy(registry);
    return now != 0 || peak == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example),     cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_rules),       cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_golden),      cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_unsupported), cmocka_unit_test(test_lies),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
