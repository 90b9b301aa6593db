/* What must hold between the answers to two problems, for every solver and every golden instance:
 * a change that takes no plan away never makes the best one worse, and never turns a plan into a proof
 * that there is none.  Needs no reference: the first answer is the reference of the second.
 *
 * The limit at the optimum's own omega and entries that the optimum does not use are asked of every
 * instance; of the other relations a sample by TSR_TEST_SEED, with TSR_TEST_ALL=1 all. */
#include "solver_fixture.h"

#include "instance_copy.h"

/* The optimum of the instance as it stands. */
struct base {
    const char                 *name;
    const struct tsr_instance  *inst;
    struct tsr_solver_solution *s; /* by `exact` */
    bool                        feasible;
    double                      omega;
};

/* What a relation says of the best objective, relative to the first one. */
enum says { SAME, NO_WORSE, DOUBLE };

/* Changes a copy; NULL where the relation says nothing of this problem. */
typedef struct instance_copy *relation(const struct base *b);

static bool planned(const struct tsr_solver_solution *s)
{
    return s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE;
}

/* ---- relations ----------------------------------------------------------------------- */

static struct instance_copy *limit_at_optimum(const struct base *b)
{
    if (!b->feasible)
        return NULL;
    struct instance_copy *c = copy_make(b->inst, 0, 0);
    c->inst.in.max_omega = b->omega;
    return c;
}

/* Every omega that the optimum does not have, times `by`. */
static struct instance_copy *raise_omega(const struct base *b, struct instance_copy *c, double by)
{
    const struct tsr_solver_instance *in = &b->inst->in;
    for (uint64_t l = 0; l < in->layers; l++)
        for (uint64_t q = 0; q < in->bits; q++)
            if (!b->feasible || q != b->s->layer_bits[l])
                c->omega[l * in->bits + q] *= by;
    return c;
}

static struct instance_copy *raised_at_limit(const struct base *b)
{
    struct instance_copy *c = limit_at_optimum(b);
    return c ? raise_omega(b, c, 1e6) : NULL;
}

static struct instance_copy *raised_far_at_limit(const struct base *b)
{
    struct instance_copy *c = limit_at_optimum(b);
    return c ? raise_omega(b, c, 1e18) : NULL;
}

static struct instance_copy *raised_omega(const struct base *b)
{
    return raise_omega(b, copy_make(b->inst, 0, 0), 1e12);
}

/* Every time that the optimum does not have: of other bits and kinds, and of other options. */
static struct instance_copy *raise_times(const struct base *b, double by)
{
    const struct tsr_solver_instance *in = &b->inst->in;
    struct instance_copy             *c = copy_make(b->inst, 0, 0);
    for (uint64_t o = 0; o < in->n_options; o++)
        for (uint64_t e = 0; e < in->n_kinds * in->classes * in->bits; e++) {
            bool used = false;
            for (uint64_t i = 0; b->feasible && o == b->s->option && i < b->s->stages; i++)
                for (uint64_t l = b->s->stage_first[i];
                     l < b->s->stage_first[i] + b->s->stage_count[i]; l++)
                    used |=
                        e == (b->s->stage_kind[i] * in->classes + in->layer_class[l]) * in->bits +
                                 b->s->layer_bits[l];
            c->option[o].pre[e] *= used ? 1 : by;
            c->option[o].dec[e] *= used ? 1 : by;
        }
    return c;
}

static struct instance_copy *raised_times(const struct base *b)
{
    return raise_times(b, 1e6);
}

static struct instance_copy *raised_times_far(const struct base *b)
{
    return raise_times(b, 1e12);
}

/* With `allow_unused: false` the new device would have to hold a layer: another problem. */
static struct instance_copy *more_devices(const struct base *b)
{
    const struct tsr_solver_instance *in = &b->inst->in;
    if (!in->allow_unused)
        return NULL;
    struct instance_copy *c = copy_make(b->inst, 0, 0);
    uint64_t              k = seed % in->n_kinds;
    c->kind[k].count++;
    c->inst.devices++;
    if (in->order) /* at the end: the order of the others stays */
        c->order[c->inst.in.order_len++] = (uint32_t)k;
    return c;
}

static struct instance_copy *more_memory(const struct base *b)
{
    struct instance_copy *c = copy_make(b->inst, 0, 0);
    for (uint64_t k = 0; k < b->inst->in.n_kinds; k++)
        c->kind[k].capacity_bytes += c->kind[k].capacity_bytes / (2 + k);
    return c;
}

/* A candidate that is faster than the last one and of less quality. */
static struct instance_copy *more_bits(const struct base *b)
{
    struct instance_copy *c = copy_make(b->inst, 1, 0);
    uint64_t              Q = c->inst.in.bits;
    for (uint64_t l = 0; l < b->inst->in.layers; l++)
        c->omega[l * Q + Q - 1] *= 1.5;
    for (uint64_t o = 0; o < b->inst->in.n_options; o++)
        for (uint64_t e = Q - 1; e < b->inst->in.n_kinds * b->inst->in.classes * Q; e += Q) {
            c->option[o].pre[e] *= 0.875;
            c->option[o].dec[e] *= 0.75;
        }
    return c;
}

/* The last candidate once more, in all but its times. */
static struct instance_copy *faster_twin(const struct base *b)
{
    struct instance_copy *c = copy_make(b->inst, 1, 0);
    uint64_t              Q = c->inst.in.bits;
    for (uint64_t o = 0; o < b->inst->in.n_options; o++)
        for (uint64_t e = Q - 1; e < b->inst->in.n_kinds * b->inst->in.classes * Q; e += Q) {
            c->option[o].pre[e] *= 0.875;
            c->option[o].dec[e] *= 0.75;
        }
    if (b->feasible)
        c->inst.in.max_omega = b->omega;
    return c;
}

/* Nine candidates that are slower than the last one and of less quality: no plan needs them, and more than eight
 * make `exact` refine its prices and look near the bound's plans. */
static struct instance_copy *worse_candidates(const struct base *b)
{
    struct instance_copy *c = copy_make(b->inst, 9, 0);
    uint64_t              Q = c->inst.in.bits, old = b->inst->in.bits;
    for (uint64_t e = 0; e < b->inst->in.layers * Q; e++)
        c->omega[e] *= e % Q < old ? 1 : 1.5;
    for (uint64_t o = 0; o < b->inst->in.n_options; o++)
        for (uint64_t e = 0; e < b->inst->in.n_kinds * b->inst->in.classes * Q; e++) {
            c->option[o].pre[e] *= e % Q < old ? 1 : 1.0625;
            c->option[o].dec[e] *= e % Q < old ? 1 : 1.125;
        }
    return c;
}

/* Nine that are between the last one and twice as fast, of less quality the faster they are. */
static struct instance_copy *nine_more(const struct base *b)
{
    struct instance_copy *c = copy_make(b->inst, 9, 0);
    uint64_t              Q = c->inst.in.bits, old = b->inst->in.bits;
    for (uint64_t e = 0; e < b->inst->in.layers * Q; e++)
        c->omega[e] *= e % Q < old ? 1 : 1 + 0.25 * (double)(e % Q - old + 1);
    for (uint64_t o = 0; o < b->inst->in.n_options; o++)
        for (uint64_t e = 0; e < b->inst->in.n_kinds * b->inst->in.classes * Q; e++) {
            double less = e % Q < old ? 0 : (double)(e % Q - old + 1) / 32;
            c->option[o].pre[e] *= 1 - less;
            c->option[o].dec[e] *= 1 - 1.5 * less;
        }
    return c;
}

static struct instance_copy *more_options(const struct base *b)
{
    struct instance_copy *c = copy_make(b->inst, 0, 1);
    uint64_t              o = b->inst->in.n_options;
    for (uint64_t e = 0; e < b->inst->in.n_kinds * b->inst->in.classes * b->inst->in.bits; e++) {
        c->option[o].pre[e] *= e % 2 ? 0.75 : 1.25;
        c->option[o].dec[e] *= e % 3 ? 0.75 : 1.25;
    }
    return c;
}

static struct instance_copy *larger_limit(const struct base *b)
{
    if (!(b->inst->in.max_omega >= 0))
        return NULL;
    struct instance_copy *c = copy_make(b->inst, 0, 0);
    c->inst.in.max_omega *= 1.25;
    return c;
}

/* Without a limit: by far the largest one. */
static struct instance_copy *loose_limit(const struct base *b)
{
    if (b->inst->in.max_omega >= 0)
        return NULL;
    struct instance_copy *c = copy_make(b->inst, 0, 0);
    c->inst.in.max_omega = 1e300;
    return c;
}

static struct instance_copy *twice_the_time(const struct base *b)
{
    const struct tsr_solver_instance *in = &b->inst->in;
    struct instance_copy             *c = copy_make(b->inst, 0, 0);
    uint64_t                          K = in->n_kinds;
    c->inst.in.theta *= 2;
    for (uint64_t o = 0; o < in->n_options; o++) {
        double *one[] = { c->option[o].pre,       c->option[o].dec,      c->option[o].embed_pre,
                          c->option[o].embed_dec, c->option[o].head_pre, c->option[o].head_dec,
                          c->option[o].comm_pre,  c->option[o].comm_dec };
        for (size_t t = 0; t < sizeof one / sizeof *one; t++) {
            uint64_t n = t < 2 ? K * in->classes * in->bits : t < 6 ? K : K * K;
            for (uint64_t e = 0; e < n; e++)
                one[t][e] *= 2;
        }
    }
    return c;
}

/* Kinds, bit candidates and options by other numbers: from the last to the first. */
static struct instance_copy *relabelled(const struct base *b)
{
    const struct tsr_solver_instance *in = &b->inst->in;
    struct instance_copy             *c = copy_make(b->inst, 0, 0);
    uint64_t K = in->n_kinds, C = in->classes, Q = in->bits, n = in->n_options;
    for (uint64_t k = 0; k < K; k++)
        c->kinds[k] = &c->kind[K - 1 - k];
    for (uint64_t i = 0; i < in->order_len; i++)
        c->order[i] = (uint32_t)(K - 1 - in->order[i]);
    for (uint64_t q = 0; q < Q; q++)
        c->names[q] = in->bit_names[Q - 1 - q];
    for (uint64_t i = 0; i < in->layers * Q; i++)
        c->omega[i] = in->omega[i / Q * Q + Q - 1 - i % Q];
    for (uint64_t i = 0; i < C * Q; i++)
        c->layer_bytes[i] = in->layer_bytes[i / Q * Q + Q - 1 - i % Q];
    for (uint64_t o = 0; o < n; o++) {
        const struct tsr_solver_option *from = in->options[o];
        struct copy_option             *to = &c->option[o];
        c->options[o] = &c->option[n - 1 - o].o;
        for (uint64_t k = 0; k < K; k++) {
            uint64_t j = K - 1 - k;
            for (uint64_t e = 0; e < C * Q; e++) {
                to->pre[k * C * Q + e] = from->pre_ms[j * C * Q + e / Q * Q + Q - 1 - e % Q];
                to->dec[k * C * Q + e] = from->dec_ms[j * C * Q + e / Q * Q + Q - 1 - e % Q];
            }
            to->embed_pre[k] = from->embed_pre_ms[j];
            to->embed_dec[k] = from->embed_dec_ms[j];
            to->head_pre[k] = from->head_pre_ms[j];
            to->head_dec[k] = from->head_dec_ms[j];
            to->workspace[k] = from->workspace_bytes[j];
            for (uint64_t i = 0; i < K; i++) {
                to->comm_pre[k * K + i] = from->comm_pre_ms[j * K + K - 1 - i];
                to->comm_dec[k * K + i] = from->comm_dec_ms[j * K + K - 1 - i];
            }
        }
    }
    return c;
}

static const struct {
    const char *name;
    relation   *change;
    enum says   says;
    bool        always; /* of every instance, whatever the seed */
} relations[] = {
    { "limit at the optimum", limit_at_optimum, SAME, true },
    { "limit at the optimum, unused omegas raised", raised_at_limit, SAME, true },
    { "limit at the optimum, unused omegas raised far", raised_far_at_limit, SAME, false },
    { "unused omegas raised", raised_omega, SAME, false },
    { "unused times raised", raised_times, SAME, false },
    { "unused times raised far", raised_times_far, SAME, true },
    { "one more device", more_devices, NO_WORSE, false },
    { "more memory", more_memory, NO_WORSE, false },
    { "one more candidate", more_bits, NO_WORSE, false },
    { "the last candidate again, faster", faster_twin, NO_WORSE, false },
    { "nine worse candidates", worse_candidates, SAME, true },
    { "nine more candidates", nine_more, NO_WORSE, false },
    { "one more option", more_options, NO_WORSE, false },
    { "a larger limit", larger_limit, NO_WORSE, false },
    { "a limit that never binds", loose_limit, SAME, false },
    { "twice the time", twice_the_time, DOUBLE, false },
    { "other numbers", relabelled, SAME, false },
};
#define RELATIONS (sizeof relations / sizeof *relations)

/* ---- answers ------------------------------------------------------------------------------ */

/* F: the first objective; a problem without a plan has none. */
static void check(const struct base *b, const char *spec, size_t r,
                  const struct tsr_solver_solution *s, bool proves)
{
    enum says says = relations[r].says;
    double    f = b->s->objective * (says == DOUBLE ? 2 : 1), band = 1e-4 * fabs(f) + 1e-6;
    if (!b->feasible) {
        bool none = s->status == TSR_SOLVED_INFEASIBLE;
        if (says == NO_WORSE ? false : proves ? !none : planned(s))
            fail_msg("%s, %s by %s: status %u, without the change there is no plan", b->name,
                     relations[r].name, spec, s->status);
        return;
    }
    if (s->status == TSR_SOLVED_INFEASIBLE)
        fail_msg("%s, %s by %s: called infeasible (%s), there is a plan of %.9g", b->name,
                 relations[r].name, spec, s->reason, f);
    if (proves && s->status != TSR_SOLVED_OPTIMAL)
        fail_msg("%s, %s by %s: status %u with %.9g and bound %.9g, there is a plan of %.9g",
                 b->name, relations[r].name, spec, s->status, s->objective, s->bound, f);
    if (!(s->bound <= f * (1 + 1e-9) + 1e-9)) /* the plan of f is one of this problem's */
        fail_msg("%s, %s by %s: no plan is below %.12g, but one is %.12g", b->name,
                 relations[r].name, spec, s->bound, f);
    if (s->status == TSR_SOLVED_OPTIMAL && !(s->objective <= f + band))
        fail_msg("%s, %s by %s: %.9g is called optimal, there is a plan of %.9g", b->name,
                 relations[r].name, spec, s->objective, f);
    if (says != NO_WORSE && planned(s) && !(s->objective >= f - band))
        fail_msg("%s, %s by %s: %.9g is better than the optimum %.9g", b->name, relations[r].name,
                 spec, s->objective, f);
}

/* Solvers that prove only sometimes, and those whose time grows fast with the problem. */
static const struct {
    const char *spec, *name;
    uint64_t    most_layers, most_us; /* layers in the gate's sample; 0: no limit */
} others[] = {
    { "uniform", "uniform", 40, 0 },
    { "pipeedge", "pipeedge", 40, 0 },
    { "het", "het", 40, 0 },
    { "adabits", "adabits", 12, 0 },
    { "transfer", "transfer", 12, 200000 },
    { "ilp:time=0", "ilp", 12, 100000 },
};

static void ask_others(const struct base *b, size_t r, struct instance_copy *c)
{
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        struct tsr_errbuf       e = TSR_ERRBUF(e);
        struct tsr_plugin_found f;
        if ((!all_of_them && b->inst->in.layers > others[k].most_layers) ||
            tsr_plugin_registry_find(registry, TSR_KIND_SOLVER, others[k].name, &f, &e.err) !=
                TSR_OK)
            continue; /* not built: ilp without GLPK */
        c->inst.in.deadline_us = others[k].most_us;
        struct tsr_solver_solution *s = solve(others[k].spec, &c->inst, b->name);
        check(b, others[k].spec, r, s, false);
        free(s);
    }
}

static uint64_t asked;

static void check_instance(const char *name, uint64_t index)
{
    struct tsr_instance *inst = load(name);
    struct base          b = { .name = name, .inst = inst, .s = solve("exact", inst, name) };
    b.feasible = b.s->status == TSR_SOLVED_OPTIMAL;
    assert_true(b.feasible || b.s->status == TSR_SOLVED_INFEASIBLE);
    for (uint64_t l = 0; b.feasible && l < inst->in.layers; l++)
        b.omega += inst->in.omega[l * inst->in.bits + b.s->layer_bits[l]];
    for (size_t r = 0; r < RELATIONS; r++) {
        if (!all_of_them && !relations[r].always && (index + r + seed) % 4 != 0)
            continue;
        struct instance_copy *c = relations[r].change(&b);
        if (!c)
            continue;
        c->inst.features = tsr_instance_features(&c->inst.in);
        struct tsr_solver_solution *s = solve("exact", &c->inst, name);
        check(&b, "exact", r, s, true);
        free(s);
        if (all_of_them || (index + r + seed) % 3 == 0)
            ask_others(&b, r, c);
        copy_free(c);
        asked++;
    }
    free(b.s);
    tsr_instance_destroy(inst);
}

static void test_goldens(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *all = NULL, *one;
    const char       *name;
    uint64_t          index = 0;
    if (tsr_json_load(&all, TSR_GOLDEN_PLANNER "/expected.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    json_object_foreach (json_object_get(all, "instances"), name, one)
        check_instance(name, index++);
    assert_int_equal(index, 76);
    assert_true(asked >= index * (all_of_them ? 10 : 4)); /* some say nothing of some problems */
    json_decref(all);
}

/* `adabits` takes the least omega whatever its unit is: sums far below 1 are told apart as well. */
static void test_unit_of_omega(void **state)
{
    (void)state;
    static const char *const names[] = { "nonmonotone-1", "nonmonotone-3", "classes-2",
                                         "comm-3",        "plain-5",       "medium-01",
                                         "medium-09",     "example-paper" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_instance  *inst = load(names[i]);
        struct instance_copy *c = copy_make(inst, 0, 0);
        double                w[2] = { 0, 0 };
        uint64_t              n = inst->in.layers * inst->in.bits;
        for (uint64_t e = 0; e < n; e++)
            c->omega[e] *= 0x1p-40;
        struct tsr_solver_solution *s[2] = { solve("adabits", inst, names[i]),
                                             solve("adabits", &c->inst, names[i]) };
        for (unsigned k = 0; k < 2; k++) {
            assert_true(planned(s[k]));
            for (uint64_t l = 0; l < inst->in.layers; l++)
                w[k] += inst->in.omega[l * inst->in.bits + s[k]->layer_bits[l]];
            free(s[k]);
        }
        if (!(fabs(w[0] - w[1]) <= 1e-9 * w[0])) /* sums in another order */
            fail_msg("%s: omega %.12g, in smaller units %.12g", names[i], w[0], w[1]);
        copy_free(c);
        tsr_instance_destroy(inst);
    }
}

/* GLPK's cuts are of the rows as they stand: bytes and times in other units, the same optimum. */
static void test_units_of_ilp(void **state)
{
    (void)state;
    static const char *const names[] = { "max-omega-1", "max-omega-2", "max-omega-3", "plain-4" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plugin_found  f;
    if (tsr_plugin_registry_find(registry, TSR_KIND_SOLVER, "ilp", &f, &e.err) != TSR_OK)
        skip(); /* not built: no GLPK */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_instance        *inst = load(names[i]);
        struct base                 b = { .name = names[i], .inst = inst };
        struct instance_copy       *c = twice_the_time(&b);
        struct tsr_solver_solution *one = solve("ilp", inst, names[i]),
                                   *two = solve("ilp", &c->inst, names[i]);
        assert_int_equal(one->status, TSR_SOLVED_OPTIMAL);
        assert_int_equal(two->status, TSR_SOLVED_OPTIMAL);
        if (!(fabs(two->objective - 2 * one->objective) <= 3e-4 * one->objective)) /* two gaps */
            fail_msg("%s: %.9g, with twice the times %.9g", names[i], one->objective,
                     two->objective);
        free(one);
        free(two);
        copy_free(c);
        tsr_instance_destroy(inst);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_goldens),
                                        cmocka_unit_test(test_unit_of_omega),
                                        cmocka_unit_test(test_units_of_ilp) };
    return run_solver_tests("solver relations", tests, argc, argv);
}
