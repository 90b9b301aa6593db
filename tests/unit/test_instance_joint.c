/* Instances of revision 2: files, the host's constraints and objective, by a problem whose sums are done by
 * hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A pool of three devices, as meshes of one (a) or of two (b); two codecs for links. */
#define HEAD(revision)                                                                             \
    "{\"format\":\"tessera.instance/" revision "\",\"layers\":2,\"bits\":[\"4\",\"16\"],"          \
    "\"layer_bytes\":[[100,300]],\"omega\":[[2,0],[1,0]],\"theta\":10,\"batch\":4,\"tokens\":3,"
#define POOLS                                                                                      \
    "\"pools\":[3],\"kinds\":[{\"name\":\"a\",\"pool\":0,\"takes\":1,\"capacity_bytes\":320},"     \
    "{\"name\":\"b\",\"pool\":0,\"takes\":2,\"capacity_bytes\":350}],"
#define QUALITY                                                                                    \
    "\"kind_omega\":[[0,0],[0.5,0.25]],\"links\":[\"f32\",\"mx4\"],"                               \
    "\"link_omega\":[[0,0],[0.125,0]],"
#define OPTION                                                                                     \
    "\"options\":[{\"prefill_mb\":2,\"decode_mb\":2,\"embed_bytes\":10,\"head_bytes\":20,"         \
    "\"omega\":0.25,\"pre_ms\":[[[4,6]],[[2,3]]],\"dec_ms\":[[[1,2]],[[1,1]]],"                    \
    "\"comm_pre_ms\":[[[1,1],[1,1]],[[0.5,0.5],[0.5,0.5]]],"                                       \
    "\"comm_dec_ms\":[[[1,1],[1,1]],[[0.25,0.25],[0.25,0.25]]]}]"

static const char example[] = HEAD("2") POOLS QUALITY OPTION ",\"objective\":\"steady\"}";

static struct tsr_instance *parse(const char *text)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_instance *inst = NULL;
    if (tsr_instance_parse(&inst, "t", text, strlen(text), &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return inst;
}

/* Layer 0 on b, layer 1 on a, both with 16 bits, the link with codec 1. */
static void set_plan(struct tsr_solver_solution *s)
{
    s->option = 0;
    s->stages = 2;
    s->stage_kind[0] = 1;
    s->stage_kind[1] = 0;
    s->stage_first[0] = 0;
    s->stage_first[1] = 1;
    s->stage_count[0] = s->stage_count[1] = 1;
    s->layer_bits[0] = s->layer_bits[1] = 1;
    s->stage_link[0] = 1;
}

static struct tsr_solver_solution *plan_of(const struct tsr_instance *inst)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_solver_solution *s = NULL;
    assert_int_equal(tsr_plan_solution_create(&s, inst, &e.err), TSR_OK);
    assert_non_null(s->stage_link);
    set_plan(s);
    return s;
}

static double value(const struct tsr_instance *inst, const struct tsr_solver_solution *s)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    double            v = NAN;
    if (tsr_plan_evaluate(&inst->in, s, &v, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return v;
}

static void test_objective(void **state)
{
    (void)state;
    struct tsr_instance        *inst = parse(example);
    struct tsr_solver_solution *s = plan_of(inst);
    char                        parts[256];
    assert_string_equal(tsr_plan_solver_parts(inst->features, parts, sizeof parts),
                        "links, pools of devices, kind_omega, codecs of links, ends of an option");
    assert_int_equal(inst->devices, 3);
    assert_int_equal(inst->in.kinds[0]->count, 3);
    assert_int_equal(inst->in.kinds[1]->count, 1);
    /* Pre 3 and 6, Dec 1 and 2, the link 0.5 and 0.25; W = 0.5 + 0.125 + 0.25.
     * F = 9 + 0.5 + 6; decode = max(2 * 3.25 + 2, 3.25 + 3 * 2) */
    assert_true(value(inst, s) == 15.5 + 9.25 + 8.75);
    s->stage_link[0] = 0; /* F = 9 + 1 + 6; max(2 * 4 + 2, 4 + 3 * 2); W less 0.125 */
    assert_true(value(inst, s) == 16 + 10 + 7.5);
    inst->in.objective = TSR_OBJECTIVE_PAPER; /* 6 + 2 * 2 + 9 + 3 */
    assert_true(value(inst, s) == 22 + 7.5);
    /* limits at the plan's own figures, and just below */
    inst->in.max_omega = 0.75;
    inst->in.max_first_ms = 16;
    assert_true(value(inst, s) == 29.5);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    double            v;
    inst->in.max_first_ms = 15.99;
    assert_int_equal(tsr_plan_evaluate(&inst->in, s, &v, &e.err), TSR_E_INFEASIBLE);
    assert_true(error_is(&e.err, "", "16 max_first_ms 15.99"));
    inst->in.max_first_ms = 0;
    inst->in.max_omega = 0.74;
    assert_int_equal(tsr_plan_evaluate(&inst->in, s, &v, &e.err), TSR_E_INFEASIBLE);
    assert_true(error_is(&e.err, "", "omega 0.75 max_omega 0.74"));
    free(s);
    tsr_instance_destroy(inst);
}

static void test_rules(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = parse(example);
    struct tsr_solver_solution *s = plan_of(inst);
    uint32_t                   *links = s->stage_link;
    double                      v;
    static const uint32_t       order[] = { 0, 0, 0 };
#define REFUSED(change, want_status, facts)                                                        \
    do {                                                                                           \
        set_plan(s);                                                                               \
        change;                                                                                    \
        assert_int_equal(tsr_plan_evaluate(&inst->in, s, &v, &e.err), want_status);                \
        assert_true(error_is(&e.err, "", facts));                                                  \
        s->stage_link = links;                                                                     \
    } while (0)
    REFUSED(s->stage_link[0] = 2, TSR_E_INPUT, "stage#0 codec#2 2");
    REFUSED(s->stage_link = NULL, TSR_E_INPUT, "codec 2");
    REFUSED((s->stages = 1, s->stage_count[0] = 2), TSR_E_INFEASIBLE, "stage#0 630 350 kind#1");
    inst->in.kinds[1]->count == 1 ? (void)0 : fail();
    REFUSED(s->stage_kind[1] = 1, TSR_E_INPUT, "2 stages kind#1");
    /* two of three devices */
    inst->in.allow_unused = 0;
    REFUSED(s->stage_kind[0] = 0, TSR_E_INFEASIBLE, "2 3 devices pool#0");
    set_plan(s);
    (void)value(inst, s);
    inst->in.allow_unused = 1;
    inst->in.order = order;
    inst->in.order_len = 3;
    (void)value(inst, s);
    inst->in.order_len = 2;
    REFUSED(, TSR_E_INPUT, "stage#1 kind#0 order");
    free(s);
    tsr_instance_destroy(inst);
}

static void test_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *object, *facts;
    } bad[] = {
        { HEAD("1") POOLS OPTION ",\"objective\":\"steady\"}", "t",
          "\"pools\" tessera.instance/2" },
        { HEAD("1") "\"kinds\":[{\"name\":\"a\",\"count\":1,\"capacity_bytes\":9}]," OPTION
                    ",\"objective\":\"steady\"}",
          "t: options[0]", "\"embed_bytes\" tessera.instance/2" },
        { HEAD("3") POOLS OPTION "}", "t", "format tessera.instance/2" },
        { HEAD("2") "\"pools\":[]," OPTION ",\"objective\":\"steady\"}", "t", "pools" },
        { HEAD("2") "\"pools\":[0]," OPTION ",\"objective\":\"steady\"}", "t", "pools[0]" },
        { HEAD("2") "\"pools\":[1],\"kinds\":[{\"name\":\"a\",\"pool\":1,\"takes\":1,"
                    "\"capacity_bytes\":1}]," OPTION ",\"objective\":\"steady\"}",
          "t: kinds[0]", "pool" },
        { HEAD("2") "\"pools\":[1],\"kinds\":[{\"name\":\"a\",\"pool\":0,\"takes\":2,"
                    "\"capacity_bytes\":1}]," OPTION ",\"objective\":\"steady\"}",
          "t: kinds[0]", "takes" },
        { HEAD("2") "\"pools\":[3],\"kinds\":[{\"name\":\"a\",\"pool\":0,\"takes\":2,\"count\":2,"
                    "\"capacity_bytes\":1}]," OPTION ",\"objective\":\"steady\"}",
          "t: kinds[0]", "count" },
        { HEAD("2") POOLS "\"links\":[]," OPTION ",\"objective\":\"steady\"}", "t", "links" },
        { HEAD("2") POOLS "\"links\":[1]," OPTION ",\"objective\":\"steady\"}", "t", "links[0]" },
        { HEAD("2") POOLS "\"link_omega\":[[1]]," OPTION ",\"objective\":\"steady\"}", "t",
          "link_omega[0] 2" },
        { HEAD("2") POOLS "\"kind_omega\":[[0,0],[0,-1]]," OPTION ",\"objective\":\"steady\"}", "t",
          "kind_omega[1]" },
        { HEAD("2") POOLS "\"links\":[\"f32\"]," OPTION ",\"objective\":\"steady\"}", "t",
          "comm_pre_ms 1" },
        { HEAD("2") POOLS QUALITY OPTION ",\"objective\":\"steady\",\"max_first_ms\":-1}", "t",
          "max_first_ms" },
        { HEAD("2") POOLS QUALITY "\"order\":[0,0,1]," OPTION ",\"objective\":\"steady\"}", "t",
          "order[2]" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tsr_errbuf    e = TSR_ERRBUF(e);
        struct tsr_instance *inst = NULL;
        if (tsr_instance_parse(&inst, "t", bad[i].text, strlen(bad[i].text), &e.err) != TSR_E_INPUT)
            fail_msg("case %zu is not refused: %s", i, e.text);
        if (!error_is(&e.err, bad[i].object, bad[i].facts))
            fail_msg("case %zu: %s", i, e.text);
    }
}

/* The codecs of a plan are in tessera.solution/1, and only where there is a choice. */
static void test_json(void **state)
{
    (void)state;
    struct tsr_instance        *inst = parse(example);
    struct tsr_solver_solution *s = plan_of(inst);
    s->status = TSR_SOLVED_OPTIMAL;
    s->objective = s->bound = 33.5;
    json_t *o = tsr_plan_solution_json(inst, s, "x", 0);
    json_t *links = json_object_get(o, "links");
    assert_int_equal(json_array_size(links), 1);
    assert_int_equal(json_integer_value(json_array_get(links, 0)), 1);
    json_decref(o);
    s->status = TSR_SOLVED_UNKNOWN;
    o = tsr_plan_solution_json(inst, s, "x", 0);
    assert_int_equal(json_array_size(json_object_get(o, "links")), 0);
    assert_true(json_is_array(json_object_get(o, "links")));
    json_decref(o);
    free(s);
    tsr_instance_destroy(inst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objective),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests_name("instance_joint", tests, NULL, NULL);
}
