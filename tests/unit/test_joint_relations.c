/* What must hold between the answers of `exact` to two problems with every part of revision 2: a change that takes no plan away
 * never makes the best one worse, and one that only writes the plans in another way changes nothing.  Needs no reference.
 *
 * TSR_TEST_SEED chooses the problems; TSR_TEST_ALL=1 takes ten times as many. */
#include "solver_fixture.h"

#include "joint_changes.h"

#define PROBLEMS 3000u
#define EACH     3u /* relations asked of a problem */

/* ---- answers --------------------------------------------------------------------------------------- */

static unsigned asked[RELATIONS], better[RELATIONS], feasible, choosy;

/* What the plan has of omega, and of prefill; through the host's own objective, by limits that it just keeps to. */
static void measure(struct base *b, struct joint_packed *packed)
{
    const struct joint               *p = b->p;
    const struct tsr_solver_solution *s = b->s;
    const struct joint_option        *o = &p->option[s->option];
    struct tsr_errbuf                 e = TSR_ERRBUF(e);
    double                            sum = 0, most = 0, w = o->omega;
    double mu = o->jobs > 0 ? o->jobs : ceil((double)p->batch / (double)o->eta);
    for (uint64_t i = 0; i < s->stages; i++) {
        struct tsr_plan_stage_cost c;
        assert_int_equal(tsr_plan_stage(&packed->inst.in, s, i, &c, &e.err), TSR_OK);
        sum += c.pre_ms;
        most = fmax(most, c.pre_ms);
        for (uint64_t l = s->stage_first[i]; l < s->stage_first[i] + s->stage_count[i]; l++)
            w += p->omega[l][s->layer_bits[l]] + p->kind_omega[s->stage_kind[i]][l];
        if (i + 1 == s->stages)
            break;
        uint64_t v = p->V > 1 ? s->stage_link[i] : 0;
        double   link = o->comm_pre[v][s->stage_kind[i]][s->stage_kind[i + 1]];
        sum += link;
        most = fmax(most, link);
        w += p->link_omega[v][s->stage_first[i + 1] - 1];
        choosy += v > 0;
    }
    b->omega = w;
    b->first = sum + (mu - 1) * most;
}

static void check(const struct base *b, uint64_t index, size_t r,
                  const struct tsr_solver_solution *s)
{
    enum says   says = relations[r].says;
    double      f = b->s->objective * (says == DOUBLE ? 2 : 1), band = 1e-9 * fabs(f);
    const char *name = relations[r].name;
    bool        plan = s->status == TSR_SOLVED_OPTIMAL;
    if (!plan && s->status != TSR_SOLVED_INFEASIBLE)
        fail_msg("problem %llu of seed %llu, %s: status %u", (unsigned long long)index,
                 (unsigned long long)seed, name, s->status);
    if (b->feasible ? !plan : plan && says != NO_WORSE)
        fail_msg("problem %llu of seed %llu, %s: a plan exists: %d, without the change: %d",
                 (unsigned long long)index, (unsigned long long)seed, name, plan, b->feasible);
    asked[r]++;
    better[r] += plan && (!b->feasible || s->objective < f - band);
    if (!b->feasible || !plan)
        return;
    if (!(s->objective <= f + band) || (says != NO_WORSE && !(s->objective >= f - band)))
        fail_msg("problem %llu of seed %llu, %s: %.12g, without the change %.12g",
                 (unsigned long long)index, (unsigned long long)seed, name, s->objective, f);
}

static void check_problem(uint64_t index, struct joint *p, struct joint *changed,
                          struct joint_packed *packed)
{
    struct joint_dice d = { seed, 50000 + index, 0 };
    char              name[96];
    joint_random(p, seed, index);
    joint_pack(packed, p);
    (void)snprintf(name, sizeof name, "problem %llu of seed %llu", (unsigned long long)index,
                   (unsigned long long)seed);
    struct tsr_solver_solution *s = solve("exact", &packed->inst, name);
    struct base                 b = { .p = p, .s = s, .d = &d };
    b.feasible = s->status == TSR_SOLVED_OPTIMAL;
    if (!b.feasible && s->status != TSR_SOLVED_INFEASIBLE)
        fail_msg("%s: status %u", name, s->status);
    feasible += b.feasible;
    if (b.feasible)
        measure(&b, packed);
    for (unsigned i = 0; i < EACH; i++) {
        size_t r = (index * EACH + i) % RELATIONS;
        *changed = *p;
        if (!relations[r].change(&b, changed))
            continue;
        joint_pack(packed, changed);
        struct tsr_solver_solution *after = solve("exact", &packed->inst, name);
        check(&b, index, r, after);
        free(after);
    }
    free(s);
}

static void test_relations(void **state)
{
    uint64_t             n = all_of_them ? 10 * PROBLEMS : PROBLEMS;
    struct joint        *p = malloc(2 * sizeof *p);
    struct joint_packed *packed = malloc(sizeof *packed);
    (void)state;
    assert_true(p && packed);
    for (uint64_t i = 0; i < n; i++)
        check_problem(i, p, p + 1, packed);
    free(p);
    free(packed);
    /* else the problems say little */
    assert_true(feasible >= n / 3 && feasible < n && choosy >= n / 20);
    for (size_t r = 0; r < RELATIONS; r++)
        if (!(asked[r] >= 5) || (relations[r].says == NO_WORSE ? better[r] == 0 : better[r] > 0))
            fail_msg("%s: asked %u times, better %u times", relations[r].name, asked[r], better[r]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_relations) };
    return run_solver_tests("joint relations", tests, argc, argv);
}
