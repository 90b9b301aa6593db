/* Times of plans with prompts in chunks and with more requests than slots: against a recurrence, against events of our
 * own, and by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "plan/instance/objective.h"
#include "plan/search/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGES    4u
#define RESOURCES (2 * STAGES)

static uint64_t seed, drawn;

static double real(void)
{
    return tsr_uniform(seed, 1, drawn++);
}

static uint64_t whole(uint64_t low, uint64_t high)
{
    return low + (uint64_t)(real() * (double)(high - low + 1));
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

/* ---- an outcome with times alone -------------------------------------------------------------- */

struct drawn {
    struct tsr_plan_outcome       o;
    struct tsr_plan_outcome_stage stage[STAGES];
    struct tsr_plan_workload      w;
    uint64_t                      at_once;
    double pre[RESOURCES], dec[RESOURCES]; /* stages and links in order, of a micro-batch */
    double rest[RESOURCES];                /* decode, of one with fewer requests */
    double on_pre[RESOURCES],
        on_dec[RESOURCES]; /* of links: on the way when the next one may begin */
};

static void to_stages(struct drawn *z)
{
    memset(z->stage, 0, sizeof z->stage);
    z->o.stages = z->stage;
    for (uint64_t i = 0; i < z->o.n_stages; i++) {
        bool link = i + 1 < z->o.n_stages;
        z->stage[i].pre_ms = z->pre[2 * i];
        z->stage[i].dec_ms = z->dec[2 * i];
        z->stage[i].every_pre_ms = link ? z->pre[2 * i + 1] : 0;
        z->stage[i].every_dec_ms = link ? z->dec[2 * i + 1] : 0;
        z->stage[i].link_pre_ms = link ? z->pre[2 * i + 1] + z->on_pre[2 * i + 1] : 0;
        z->stage[i].link_dec_ms = link ? z->dec[2 * i + 1] + z->on_dec[2 * i + 1] : 0;
        z->stage[i].rest_ms = z->rest[2 * i];
        z->stage[i].link_rest_ms = z->stage[i].every_rest_ms = link ? z->rest[2 * i + 1] : 0;
    }
}

/* Micro-batches are even, and so is what is resident. */
static void draw(struct drawn *z, bool on_way)
{
    memset(z, 0, sizeof *z);
    z->o.n_stages = whole(1, STAGES);
    for (uint64_t r = 0; r < 2 * z->o.n_stages - 1; r++) {
        z->pre[r] = r % 2 ? real() * 30 : 20 + real() * 80;
        z->dec[r] = r % 2 ? real() * 4 : 2 + real() * 8;
        z->rest[r] = z->dec[r] * (0.3 + 0.7 * real());
        z->on_pre[r] = on_way && r % 2 ? 2 * real() * z->pre[r] : 0;
        z->on_dec[r] = on_way && r % 2 ? 2 * real() * z->dec[r] : 0;
    }
    z->o.prefill_mb = whole(1, 2);
    z->o.decode_mb = z->o.prefill_mb << whole(0, 2);
    z->o.prefill_jobs = whole(0, 1) ? 1 : (double)whole(1, 6);
    z->at_once = z->o.decode_mb * whole(1, 6);
    z->w.batch = z->at_once;
    z->w.n = (uint64_t)1 << whole(0, 6);
    to_stages(z);
}

/* ---- oracles ------------------------------------------------------------------------------------ */

/* Prefill as a flow shop: a visit begins when its job has left the resource before, and its way, and the resource the job
 * before. */
static double flow_shop(const struct drawn *z)
{
    double   end[RESOURCES] = { 0 }, c = z->o.prefill_jobs;
    uint64_t micro_batches = (z->at_once + z->o.prefill_mb - 1) / z->o.prefill_mb;
    for (uint64_t m = 0; m < micro_batches; m++)
        for (double j = 0; j < c; j++)
            for (uint64_t r = 0; r < 2 * z->o.n_stages - 1; r++) {
                double part = c - j < 1 ? c - j : 1, at = r ? end[r - 1] : 0;
                at += r ? z->on_pre[r - 1] / c * part : 0;
                end[r] = fmax(end[r], at) + z->pre[r] / c * part;
            }
    return end[2 * z->o.n_stages - 2];
}

/* Slots of a slot set are freed together, and taken by the requests that wait; every resource serves first come, first
 * served.  A slot set's steps follow each other, its prefill jobs do not wait. */
struct set {
    uint64_t slots, jobs, steps;
    bool     fewer; /* requests than slots */
};

struct events {
    const struct drawn *z;
    struct set          set[32];
    uint64_t            sets, waiting;
    struct {
        uint64_t set;
        bool     decode;
    } queue[RESOURCES][1024];
    uint64_t head[RESOURCES], tail[RESOURCES];
    double   until[RESOURCES]; /* of the one at the head; INFINITY: not begun */
};

static void join(struct events *e, uint64_t r, uint64_t set, bool decode)
{
    uint64_t at = e->tail[r]++ % 1024;
    assert_true(e->tail[r] - e->head[r] <= 1024);
    e->queue[r][at].set = set;
    e->queue[r][at].decode = decode;
}

static void take(struct events *e, uint64_t i)
{
    struct set *s = &e->set[i];
    uint64_t    n = s->slots < e->waiting ? s->slots : e->waiting, mb = e->z->o.prefill_mb;
    e->waiting -= n;
    s->fewer = n < s->slots;
    s->jobs = (n + mb - 1) / mb * (uint64_t)e->z->o.prefill_jobs;
    s->steps = e->z->w.n - 1;
    for (uint64_t j = 0; j < s->jobs; j++)
        join(e, 0, i, false);
}

static double played(const struct drawn *z)
{
    static struct events e;
    double               now = 0;
    uint64_t             resources = 2 * z->o.n_stages - 1;
    memset(&e, 0, sizeof e);
    e.z = z;
    e.waiting = z->w.batch;
    e.sets = z->at_once / z->o.decode_mb;
    for (uint64_t r = 0; r < RESOURCES; r++)
        e.until[r] = INFINITY;
    for (uint64_t i = 0; i < e.sets; i++) {
        e.set[i].slots = z->o.decode_mb;
        take(&e, i);
    }
    for (;;) {
        uint64_t next = 0;
        for (uint64_t r = 0; r < resources; r++) {
            if (e.until[r] == INFINITY && e.head[r] < e.tail[r]) {
                uint64_t at = e.head[r] % 1024;
                bool     d = e.queue[r][at].decode, fewer = e.set[e.queue[r][at].set].fewer;
                e.until[r] = now + (!d      ? z->pre[r] / z->o.prefill_jobs
                                    : fewer ? z->rest[r]
                                            : z->dec[r]);
            }
            next = e.until[r] < e.until[next] ? r : next;
        }
        if (e.until[next] == INFINITY)
            return now;
        uint64_t at = e.head[next]++ % 1024, set = e.queue[next][at].set;
        bool     decode = e.queue[next][at].decode;
        now = e.until[next];
        e.until[next] = INFINITY;
        if (next + 1 < resources) {
            join(&e, next + 1, set, decode);
            continue;
        }
        struct set *s = &e.set[set];
        if (decode ? --s->steps > 0 : --s->jobs == 0 && s->steps > 0)
            join(&e, 0, set, true);
        else if (decode || s->jobs == 0)
            take(&e, set);
    }
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static uint64_t runs(uint64_t sample)
{
    const char *all = getenv("TSR_TEST_ALL");
    return all && strcmp(all, "1") == 0 ? 10 * sample : sample;
}

/* Two stages of 8 and 4 ms for a prompt and a link of 2 ms: in four chunks 2 + 0.5 + 1, then three more at 2 ms. */
static void test_by_hand(void **state)
{
    (void)state;
    struct drawn z = { .o = { .n_stages = 2, .prefill_mb = 1, .decode_mb = 1, .prefill_jobs = 4 },
                       .w = { .batch = 1, .n = 1 },
                       .at_once = 1,
                       .pre = { 8, 2, 4 },
                       .dec = { 3, 1, 2 } };
    to_stages(&z);
    tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
    assert_true(z.o.latency_ms == 9.5 && z.o.prefill_ms == 9.5 && flow_shop(&z) == 9.5);
    assert_true(z.o.stages[0].busy == 8 / 9.5 && z.o.tokens_per_second == 1e3 / 9.5);
    z.o.prefill_jobs = 1;
    tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
    assert_true(z.o.latency_ms == 14);
    /* two tokens each, one resident of three: 14 + 6, and each of the others again 14 + 6 */
    z.w = (struct tsr_plan_workload){ .batch = 3, .n = 2 };
    tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
    assert_true(z.o.latency_ms == 60 && z.o.rounds == 3 && played(&z) == 60);
    /* two resident: 14 + 8 for the prompts, then 6 and one more step of 3; of the third 14 + 6 by itself, from when
     * the first one ends, which is 3 before the second one */
    z.at_once = 2;
    tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
    assert_true(z.o.prefill_ms == 22 && z.o.latency_ms == 22 + 9 + 20 - 3 && z.o.rounds == 2);
}

static void test_chunks(void **state)
{
    (void)state;
    struct drawn z;
    for (uint64_t i = 0; i < runs(2000); i++) {
        draw(&z, i % 4 > 1);
        tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
        if (!near(z.o.prefill_ms, flow_shop(&z)))
            fail_msg("seed %llu, run %llu: %.17g by the form, %.17g by the recurrence",
                     (unsigned long long)seed, (unsigned long long)i, z.o.prefill_ms,
                     flow_shop(&z));
        /* a last chunk that is shorter: never less than it takes, and at most the missing part of a job more on each
         * resource */
        z.o.prefill_jobs = 1 + real() * 5;
        tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
        double want = flow_shop(&z), missing = 0;
        for (uint64_t r = 0; r < 2 * z.o.n_stages - 1; r++)
            missing += (z.pre[r] + z.on_pre[r]) / z.o.prefill_jobs;
        missing *= ceil(z.o.prefill_jobs) - z.o.prefill_jobs;
        if (!(z.o.prefill_ms >= want * (1 - 1e-12) &&
              z.o.prefill_ms <= (want + missing) * (1 + 1e-12)))
            fail_msg("seed %llu, run %llu: %.17g by the form, not from %.17g to %.17g more",
                     (unsigned long long)seed, (unsigned long long)i, z.o.prefill_ms, want,
                     missing);
    }
}

/* The simulator and the solvers' objective of the same jobs. */
static void test_jobs(void **state)
{
    (void)state;
    struct drawn z;
    for (uint64_t i = 0; i < runs(1000); i++) {
        struct tsr_errbuf          e = TSR_ERRBUF(e);
        struct tsr_plan_simulation s;
        struct tsr_simulate_how    how = { false, false };
        double                     t[6][STAGES] = { { 0 } }, shop;
        draw(&z, i % 4 > 1);
        if (i % 2)
            z.o.prefill_jobs = 1 + real() * 5;
        shop = flow_shop(&z);
        for (uint64_t k = 0; k < z.o.n_stages; k++) {
            t[0][k] = z.stage[k].pre_ms / z.o.prefill_jobs;
            t[1][k] = z.stage[k].dec_ms;
            t[2][k] = z.stage[k].every_pre_ms / z.o.prefill_jobs;
            t[3][k] = z.stage[k].every_dec_ms;
            t[4][k] = z.on_pre[2 * k + 1] / z.o.prefill_jobs;
            t[5][k] = z.on_dec[2 * k + 1];
        }
        const struct tsr_plan_pipeline p = { .stages = z.o.n_stages,
                                             .batch = z.at_once,
                                             .tokens = z.w.n,
                                             .prefill_mb = z.o.prefill_mb,
                                             .decode_mb = z.o.decode_mb,
                                             .pre_ms = t[0],
                                             .dec_ms = t[1],
                                             .link_pre_ms = t[2],
                                             .link_dec_ms = t[3],
                                             .way_pre_ms = i % 4 > 1 ? t[4] : NULL,
                                             .way_dec_ms = i % 4 > 1 ? t[5] : NULL,
                                             .prefill_jobs = z.o.prefill_jobs };
        assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), TSR_OK);
        tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
        if (!near(s.prefill_ms, shop) || (i % 2 == 0 && !near(s.total_ms, z.o.latency_ms)))
            fail_msg("seed %llu, run %llu: simulated %.17g, of it prompts %.17g; %.17g by the "
                     "form, prompts %.17g by the recurrence",
                     (unsigned long long)seed, (unsigned long long)i, s.total_ms, s.prefill_ms,
                     z.o.latency_ms, shop);
        tsr_plan_simulation_destroy(&s);
    }
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_plan_simulation s;
    struct tsr_simulate_how    how = { false, false };
    static const double        one[1] = { 1 }, bad[] = { 0.5, -1, NAN, INFINITY };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct tsr_plan_pipeline p = { .stages = 1,
                                             .batch = 1,
                                             .tokens = 1,
                                             .prefill_mb = 1,
                                             .decode_mb = 1,
                                             .pre_ms = one,
                                             .dec_ms = one,
                                             .prefill_jobs = bad[i] };
        assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, "", "1"));
    }
}

/* More requests than slots, of two tokens or more.  Exact on one stage and with one micro-batch; else a form of
 * bottlenecks and trips for what is played event by event: of 37,488 the least was 9.7 % below, the most 13.6 % above,
 * nine in ten from 2.5 % below to 4.4 % above.  Rounds that wait for each other were up to 84 % above. */
static void test_refill(void **state)
{
    (void)state;
    struct drawn z;
    uint64_t     n = runs(1000), close = 0;
    for (uint64_t i = 0; i < n; i++) {
        draw(&z, false);
        z.w.batch = whole(z.at_once, 4 * z.at_once);
        z.w.n += z.w.n == 1;
        tsr_plan_outcome_time(&z.o, &z.w, z.at_once);
        double got = z.o.latency_ms, want = played(&z), off = got / want - 1;
        bool   exact = z.o.n_stages == 1 || z.at_once == z.o.decode_mb;
        if (!(exact ? near(got, want) : off >= -0.15 && off <= 0.2))
            fail_msg("seed %llu, run %llu: %.17g by the form, %.17g played",
                     (unsigned long long)seed, (unsigned long long)i, got, want);
        close += off >= -0.03 && off <= 0.06;
    }
    if (close * 10 < n * 9)
        fail_msg("seed %llu: %llu of %llu within 3 %% below and 6 %% above",
                 (unsigned long long)seed, (unsigned long long)close, (unsigned long long)n);
}

int main(void)
{
    const char *text = getenv("TSR_TEST_SEED");
    seed = text ? strtoull(text, NULL, 10) : 1;
    (void)printf("TSR_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_refill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
