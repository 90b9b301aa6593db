/* The simulated pipeline against the closed form of docs/formats/instance.md, against the longest
 * path written down as a recurrence, and within the stated bounds where the form is not exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "plan/instance/objective.h"
#include "plan/simulate/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 4u
#define MAX_JOBS   64u

/* Sums of up to 500 services of 480 visits on a resource: 1e-12 is 20 times their rounding. */
#define SAME 1e-12

static uint64_t seed, drawn;

static double real(void)
{
    return tsr_uniform(seed, 1, drawn++);
}

static uint64_t whole(uint64_t low, uint64_t high)
{
    return low + (uint64_t)(real() * (double)(high - low + 1));
}

/* ---- a random plan with all the times that it can have -------------------------------------- */

struct problem {
    struct tsr_solver_instance      in;
    struct tsr_solver_option        option;
    const struct tsr_solver_option *options[1];
    struct tsr_solver_kind          kind[MAX_STAGES];
    const struct tsr_solver_kind   *kinds[MAX_STAGES];
    double pre[MAX_STAGES], dec[MAX_STAGES], ends[4][MAX_STAGES], comm[2][MAX_STAGES * MAX_STAGES];
    double omega[MAX_STAGES];
    uint64_t                   workspace[MAX_STAGES], layer_bytes[1];
    uint32_t                   layer_class[MAX_STAGES];
    const char                *bit_names[1];
    struct tsr_solver_solution plan;
    uint32_t                   stage_kind[MAX_STAGES], layer_bits[MAX_STAGES];
    uint64_t                   first[MAX_STAGES], count[MAX_STAGES];
};

/* even: micro-batches are identical, decode ones made of whole prefill ones. */
static void draw(struct problem *p, bool even)
{
    uint64_t n = whole(1, MAX_STAGES), eta = whole(1, 4), xi = eta * whole(1, 3);
    uint64_t batch = xi * whole(1, 8);
    bool     links = real() < 0.7, ends = real() < 0.5;
    if (!even) {
        xi = whole(1, 9);
        eta = whole(1, xi);
        batch = whole(xi, 40);
    }
    memset(p, 0, sizeof *p);
    for (uint64_t i = 0; i < n; i++) {
        p->kind[i] = (struct tsr_solver_kind){
            .struct_size = sizeof p->kind[i], .count = 1, .name = "k", .capacity_bytes = 100
        };
        p->kinds[i] = &p->kind[i];
        p->pre[i] = real() * 100;
        p->dec[i] = real() < 0.1 ? 0 : real() * 10;
        p->omega[i] = real();
        p->stage_kind[i] = (uint32_t)i;
        p->first[i] = i;
        p->count[i] = 1;
        for (unsigned e = 0; ends && e < 4; e++)
            p->ends[e][i] = real() * 5;
        for (uint64_t j = 0; links && j < n; j++) {
            p->comm[0][i * n + j] = real() * 60;
            p->comm[1][i * n + j] = real() < 0.3 ? 0 : real() * 8;
        }
    }
    p->layer_bytes[0] = 1;
    p->bit_names[0] = "16";
    p->option = (struct tsr_solver_option){ .struct_size = sizeof p->option,
                                            .prefill_mb = eta,
                                            .decode_mb = xi,
                                            .pre_ms = p->pre,
                                            .dec_ms = p->dec,
                                            .embed_pre_ms = p->ends[0],
                                            .embed_dec_ms = p->ends[1],
                                            .head_pre_ms = p->ends[2],
                                            .head_dec_ms = p->ends[3],
                                            .comm_pre_ms = p->comm[0],
                                            .comm_dec_ms = p->comm[1],
                                            .workspace_bytes = p->workspace };
    p->options[0] = &p->option;
    p->in = (struct tsr_solver_instance){ .struct_size = sizeof p->in,
                                          .objective = TSR_OBJECTIVE_STEADY,
                                          .layers = n,
                                          .classes = 1,
                                          .bits = 1,
                                          .n_kinds = n,
                                          .n_options = 1,
                                          .layer_class = p->layer_class,
                                          .bit_names = p->bit_names,
                                          .layer_bytes = p->layer_bytes,
                                          .omega = p->omega,
                                          .max_omega = -1,
                                          .batch = batch,
                                          .tokens = whole(1, 60),
                                          .kinds = p->kinds,
                                          .allow_unused = 1,
                                          .options = p->options };
    p->plan = (struct tsr_solver_solution){ .struct_size = sizeof p->plan,
                                            .stages = n,
                                            .max_stages = n,
                                            .stage_kind = p->stage_kind,
                                            .stage_first = p->first,
                                            .stage_count = p->count,
                                            .layer_bits = p->layer_bits };
}

/* ---- oracles --------------------------------------------------------------------------------- */

/* With the barrier every resource serves the micro-batches in order, so the end of each visit is the
 * later of two others: the same micro-batch before this resource, the resource's visit before. */
static double longest_path(const struct tsr_plan_pipeline *p, bool part_last)
{
    double   end[2 * MAX_STAGES] = { 0 }, last[MAX_JOBS] = { 0 }, barrier = 0, all = 0;
    uint64_t resources = 2 * p->stages - 1, mb[2] = { p->prefill_mb, p->decode_mb };
    for (unsigned phase = 0; phase < 2; phase++) {
        uint64_t rounds = phase ? p->tokens - 1 : 1, jobs = (p->batch + mb[phase] - 1) / mb[phase];
        for (uint64_t m = 0; m < jobs; m++)
            last[m] = barrier;
        for (uint64_t step = 0; step < rounds; step++)
            for (uint64_t m = 0; m < jobs; m++) {
                double at = last[m], share = 1;
                if (part_last && m + 1 == jobs)
                    share = (double)(p->batch - m * mb[phase]) / (double)mb[phase];
                for (uint64_t r = 0; r < resources; r++) {
                    const double *stage = phase ? p->dec_ms : p->pre_ms;
                    const double *link = phase ? p->link_dec_ms : p->link_pre_ms;
                    at = fmax(at, end[r]) + share * (r % 2 ? link[r / 2] : stage[r / 2]);
                    end[r] = at;
                }
                last[m] = at;
                all = fmax(all, at);
            }
        barrier = all;
    }
    return all;
}

static double simulated(const struct tsr_plan_pipeline *p, bool no_barrier, bool part_last)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_plan_simulation s;
    struct tsr_simulate_how    how = { no_barrier, part_last };
    if (tsr_simulate(p, &how, NULL, NULL, &s, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    double total = s.total_ms;
    tsr_plan_simulation_destroy(&s);
    return total;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= SAME * fmax(fabs(a), fabs(b));
}

static struct tsr_plan_pipeline *pipeline(const struct problem *p)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_plan_pipeline *pipe = NULL;
    if (tsr_plan_pipeline_of(&pipe, &p->in, &p->plan, NULL, NULL, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return pipe;
}

static double closed_form(const struct problem *p)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    double            v = NAN;
    assert_int_equal(tsr_plan_evaluate(&p->in, &p->plan, &v, &e.err), TSR_OK);
    return v;
}

static uint64_t runs(uint64_t sample)
{
    const char *all = getenv("TSR_TEST_ALL");
    return all && strcmp(all, "1") == 0 ? 10 * sample : sample;
}

static void test_exact(void **state)
{
    (void)state;
    struct problem p;
    for (uint64_t i = 0; i < runs(3000); i++) {
        draw(&p, true);
        struct tsr_plan_pipeline *pipe = pipeline(&p);
        double                    got = simulated(pipe, false, false), want = closed_form(&p);
        if (!near(got, want) || !near(got, longest_path(pipe, false)))
            fail_msg("seed %llu, run %llu: %.17g simulated, %.17g by the form, %.17g by the path",
                     (unsigned long long)seed, (unsigned long long)i, got, want,
                     longest_path(pipe, false));
        free(pipe);
    }
}

/* Where the form is a bound: no barrier (never more than a period below), a smaller last
 * micro-batch, prompts that straddle two decode micro-batches. */
static void test_bounds(void **state)
{
    (void)state;
    struct problem p;
    for (uint64_t i = 0; i < runs(3000); i++) {
        draw(&p, i % 2);
        struct tsr_plan_pipeline *pipe = pipeline(&p);
        double                    form = closed_form(&p), slack = SAME * form, r = 0, d = 0;
        double                    mu = ceil((double)pipe->batch / (double)pipe->decode_mb);
        for (uint64_t j = 0; j < pipe->stages; j++) {
            double link = j + 1 < pipe->stages ? pipe->link_dec_ms[j] : 0;
            r += pipe->dec_ms[j] + link;
            d = fmax(d, fmax(pipe->dec_ms[j], link));
        }
        double lowest = form - (fmax(mu * d, r) - pipe->dec_ms[pipe->stages - 1]);
        double no_barrier = simulated(pipe, true, false), part = simulated(pipe, false, true);
        double both = simulated(pipe, true, true);
        if (!(no_barrier <= form + slack && no_barrier >= lowest - slack))
            fail_msg("seed %llu, run %llu: %.17g without the barrier, not within [%.17g, %.17g]",
                     (unsigned long long)seed, (unsigned long long)i, no_barrier, lowest, form);
        if (!(part <= form + slack && near(part, longest_path(pipe, true)) && both <= form + slack))
            fail_msg("seed %llu, run %llu: %.17g and %.17g with a smaller last micro-batch, the "
                     "form has %.17g, the path %.17g",
                     (unsigned long long)seed, (unsigned long long)i, part, both, form,
                     longest_path(pipe, true));
        free(pipe);
    }
}

/* ---- micro-batches that differ ------------------------------------------------------------------ */

#define MOST_VISITS 4096u

/* Without events: every resource keeps the order of the first one's queue, to which each micro-batch is
 * added when it, or the prefill that it waits for, leaves the last resource. */
static double in_order(const struct tsr_plan_pipeline *p, bool no_barrier)
{
    struct {
        uint64_t m;
        bool     decode;
        double   ready;
    } queue[MOST_VISITS];
    double   end[2 * MAX_STAGES] = { 0 }, all = 0;
    uint64_t n = 0, through = 0, begun = 0, left[MAX_JOBS];
    for (uint64_t m = 0; m < p->n_dec; m++)
        left[m] = p->dec[m].steps;
    for (; n < p->n_pre; n++) {
        queue[n].m = n;
        queue[n].decode = false;
        queue[n].ready = 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        const struct tsr_plan_dealt *d = &(queue[i].decode ? p->dec : p->pre)[queue[i].m];
        double                       at = queue[i].ready;
        for (uint64_t r = 0; r < 2 * p->stages - 1; r++)
            at = end[r] = fmax(at, end[r]) + d->ms[r];
        all = fmax(all, at);
        through += !queue[i].decode;
        if (queue[i].decode && left[queue[i].m] > 0) {
            queue[n] = queue[i];
            queue[n++].ready = at;
            left[queue[i].m]--;
        }
        for (; !queue[i].decode && begun < p->n_dec; begun++) {
            if (through < (no_barrier ? p->dec[begun].after : p->n_pre))
                break;
            if (left[begun] == 0)
                continue;
            left[begun]--;
            queue[n].m = begun;
            queue[n].decode = true;
            queue[n++].ready = at;
        }
        assert_true(n + p->n_dec < MOST_VISITS);
    }
    return all;
}

static void test_dealt(void **state)
{
    (void)state;
    static double ms[2][MAX_JOBS][2 * MAX_STAGES];
    for (uint64_t i = 0; i < runs(2000); i++) {
        struct tsr_plan_dealt    pre[MAX_JOBS], dec[MAX_JOBS];
        struct tsr_plan_pipeline p = { .stages = whole(1, MAX_STAGES), .pre = pre, .dec = dec };
        uint64_t                 after = 1;
        p.n_pre = whole(1, 12);
        p.n_dec = whole(0, 9);
        for (uint64_t m = 0; m < MAX_JOBS; m++)
            for (uint64_t r = 0; r < 2 * MAX_STAGES; r++) {
                ms[0][m][r] = real() < 0.1 ? 0 : real() * 20;
                ms[1][m][r] = real() < 0.1 ? 0 : real() * 5;
            }
        for (uint64_t m = 0; m < p.n_pre; m++)
            pre[m] = (struct tsr_plan_dealt){ .ms = ms[0][m] };
        for (uint64_t m = 0; m < p.n_dec; m++) {
            after = whole(after, p.n_pre);
            dec[m] = (struct tsr_plan_dealt){ ms[1][m], after, whole(0, 30) };
        }
        for (int loose = 0; loose < 2; loose++) {
            double got = simulated(&p, loose, i % 2), want = in_order(&p, loose);
            if (!near(got, want))
                fail_msg("seed %llu, run %llu: %.17g simulated, %.17g in order",
                         (unsigned long long)seed, (unsigned long long)i, got, want);
        }
    }
}

/* Dealt as a plan cuts its batch, with the times of the plan: the same. */
static void test_dealt_even(void **state)
{
    (void)state;
    struct problem p;
    for (uint64_t i = 0; i < runs(300); i++) {
        struct tsr_plan_dealt pre[MAX_JOBS], dec[MAX_JOBS];
        double                ms[2][2 * MAX_STAGES];
        draw(&p, i % 2);
        struct tsr_plan_pipeline *pipe = pipeline(&p), q = *pipe;
        for (uint64_t r = 0; r < 2 * pipe->stages - 1; r++) {
            ms[0][r] = r % 2 ? pipe->link_pre_ms[r / 2] : pipe->pre_ms[r / 2];
            ms[1][r] = r % 2 ? pipe->link_dec_ms[r / 2] : pipe->dec_ms[r / 2];
        }
        q.n_pre = (pipe->batch + pipe->prefill_mb - 1) / pipe->prefill_mb;
        q.n_dec = (pipe->batch + pipe->decode_mb - 1) / pipe->decode_mb;
        q.pre = pre;
        q.dec = dec;
        for (uint64_t m = 0; m < q.n_pre; m++)
            pre[m] = (struct tsr_plan_dealt){ .ms = ms[0] };
        for (uint64_t m = 0; m < q.n_dec; m++) { /* the prompt of its last request */
            uint64_t last = (m + 1) * pipe->decode_mb;
            last = (last < pipe->batch ? last : pipe->batch) - 1;
            dec[m] =
                (struct tsr_plan_dealt){ ms[1], last / pipe->prefill_mb + 1, pipe->tokens - 1 };
        }
        for (int loose = 0; loose < 2; loose++)
            assert_true(simulated(&q, loose, false) == simulated(pipe, loose, false));
        free(pipe);
    }
}

/* ---- what is reported --------------------------------------------------------------------------- */

struct seen {
    double                          free_at[2 * MAX_STAGES], busy[2][2 * MAX_STAGES], last;
    double                          left[2][MAX_JOBS]; /* of the resource before, by micro-batch */
    uint64_t                        n, at[2][MAX_JOBS];
    const struct tsr_plan_pipeline *p;
};

static void see(void *ctx, const struct tsr_plan_visit *v)
{
    struct seen *s = ctx;
    uint64_t     m = v->micro_batch, d = v->decode;
    assert_true(v->start >= s->free_at[v->resource]); /* one at a time */
    assert_true(v->end >= v->start && v->end >= s->last);
    assert_true(v->start >= s->left[d][m]); /* never before it has left the one before */
    assert_int_equal(v->resource, s->at[d][m] % (2 * s->p->stages - 1));
    assert_int_equal(v->step, s->at[d][m] / (2 * s->p->stages - 1));
    s->at[d][m]++;
    s->left[d][m] = v->end;
    s->free_at[v->resource] = v->end;
    s->busy[d][v->resource] += v->end - v->start;
    s->last = v->end;
    s->n++;
}

static void test_visits(void **state)
{
    (void)state;
    struct problem p;
    for (uint64_t i = 0; i < 300; i++) {
        struct tsr_errbuf          e = TSR_ERRBUF(e);
        struct tsr_plan_simulation s;
        struct tsr_simulate_how    how = { i % 2, i % 3 == 0 };
        draw(&p, i % 5 != 0);
        struct tsr_plan_pipeline *pipe = pipeline(&p);
        struct seen               seen = { .p = pipe };
        assert_int_equal(tsr_simulate(pipe, &how, see, &seen, &s, &e.err), TSR_OK);
        uint64_t pre = (pipe->batch + pipe->prefill_mb - 1) / pipe->prefill_mb,
                 dec = (pipe->batch + pipe->decode_mb - 1) / pipe->decode_mb;
        assert_int_equal(s.resources, 2 * pipe->stages - 1);
        assert_int_equal(s.visits, (pre + dec * (pipe->tokens - 1)) * s.resources);
        assert_int_equal(seen.n, s.visits);
        assert_true(seen.last == s.total_ms && s.prefill_ms <= s.total_ms);
        for (uint64_t r = 0; r < s.resources; r++)
            assert_true(s.busy_pre[r] == seen.busy[0][r] && s.busy_dec[r] == seen.busy[1][r]);
        tsr_plan_simulation_destroy(&s);
        free(pipe);
    }
}

/* A head on the first stage: worked out by hand, where what comes back goes before what waits. */
static void test_back(void **state)
{
    (void)state;
    static const double pre[] = { 4, 2 }, dec[] = { 2, 1 }, link[] = { 1 }, fast[] = { 0.25 };
    const struct tsr_plan_pipeline_back back = { 0.5, 0.125, 3, 1 }, none = { 0, 0, 0, 0 };
    struct tsr_plan_pipeline            p = { 2,    3,    1, 1, 1,     pre, dec,  link, fast,
                                              NULL, NULL, 0, 0, &back, 0,   NULL, NULL };
    /* stage 0: 4, 4, head of the first 8 to 11, third 11 to 15, second's head 15 to 18, the third is back at
     * 18.5 and done at 21.5 */
    assert_true(simulated(&p, false, false) == 21.5);
    /* one micro-batch waits for nobody: 4 + 1 + 2 + 0.5 + 3, then two steps of 2 + 0.25 + 1 + 0.125 + 1 */
    p.batch = 1;
    p.tokens = 3;
    assert_true(simulated(&p, false, false) == 10.5 + 2 * 4.375);
    assert_true(simulated(&p, true, false) == 10.5 + 2 * 4.375);
    /* the same dealt, and one that does not come back */
    const double          whole[] = { 4, 1, 2, 0.5, 3 }, part[] = { 4, 1, 2, 0, 0 };
    const double          step[] = { 2, 0.25, 1, 0.125, 1 };
    struct tsr_plan_dealt in[] = { { .ms = part }, { .ms = whole } };
    struct tsr_plan_dealt out[] = { { .ms = step, .after = 2, .steps = 2 } };
    p.pre = in;
    p.dec = out;
    p.n_pre = 2;
    p.n_dec = 1;
    assert_true(simulated(&p, false, false) == 4 + 10.5 + 2 * 4.375);
    /* several at once: totals by another program, a queue for each resource in Python */
    static const struct {
        uint64_t                      stages, batch, tokens, prefill_mb, decode_mb;
        double                        pre[4], dec[4], link_pre[3], link_dec[3];
        struct tsr_plan_pipeline_back back;
        double                        ms;
    } known[] = {
        { 3,
          8,
          9,
          2,
          2,
          { 4, 3, 5 },
          { 2, 1.5, 2.5 },
          { 0.5, 0.25 },
          { 0.125, 0.0625 },
          { 0.5, 0.25, 1.5, 1 },
          128.1875 },
        { 2, 6, 12, 1, 2, { 2, 3 }, { 1, 1.25 }, { 1 }, { 0.5 }, { 0.75, 0.5, 3, 1.5 }, 118 },
        { 4,
          40,
          7,
          5,
          8,
          { 1, 2, 1, 4 },
          { 0.5, 0.75, 0.25, 1 },
          { 0.25, 0.25, 0.5 },
          { 0.125, 0.125, 0.25 },
          { 0.125, 0.0625, 0.5, 0.25 },
          69.9375 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct tsr_plan_pipeline k = { .stages = known[i].stages,
                                       .batch = known[i].batch,
                                       .tokens = known[i].tokens,
                                       .prefill_mb = known[i].prefill_mb,
                                       .decode_mb = known[i].decode_mb,
                                       .pre_ms = known[i].pre,
                                       .dec_ms = known[i].dec,
                                       .link_pre_ms = known[i].link_pre,
                                       .link_dec_ms = known[i].link_dec,
                                       .back = &known[i].back };
        assert_true(simulated(&k, false, false) == known[i].ms);
    }
    /* a way and a head that take no time are none */
    struct problem q;
    for (uint64_t i = 0; i < runs(300); i++) {
        draw(&q, true);
        struct tsr_plan_pipeline *pipe = pipeline(&q);
        double                    want = simulated(pipe, false, false);
        pipe->back = pipe->stages > 1 ? &none : NULL;
        if (!near(simulated(pipe, false, false), want))
            fail_msg("seed %llu, run %llu: %.17g, without the way back %.17g",
                     (unsigned long long)seed, (unsigned long long)i, simulated(pipe, false, false),
                     want);
        free(pipe);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const double     one[1] = { 1 }, two[2] = { 1, 1 }, bad[1] = { NAN }, minus[1] = { -1 };
    struct tsr_simulate_how how = { 0 };
    struct tsr_plan_simulation s;
    struct tsr_errbuf          e = TSR_ERRBUF(e);
#define REFUSED(status, facts, ...)                                                                \
    do {                                                                                           \
        struct tsr_plan_pipeline p = { 1,    4,    3, 1, 2,    one, one,  NULL, NULL,              \
                                       NULL, NULL, 0, 0, NULL, 0,   NULL, NULL };                  \
        __VA_ARGS__;                                                                               \
        assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), status);                  \
        assert_true(error_is(&e.err, "", facts));                                                  \
        assert_null(s.busy_pre);                                                                   \
    } while (0)
    REFUSED(TSR_E_INPUT, "0", p.stages = 0);
    const struct tsr_plan_pipeline_back back = { 0, 0, NAN, 0 };
    REFUSED(TSR_E_INPUT, "back", p.back = &back);
    REFUSED(TSR_E_INPUT, "time", p.back = &back, p.stages = 2, p.pre_ms = p.dec_ms = two,
            p.link_pre_ms = p.link_dec_ms = one);
    REFUSED(TSR_E_INPUT, "1", p.decode_mb = 0);
    REFUSED(TSR_E_INPUT, "4 3 5", p.prefill_mb = 5);
    REFUSED(TSR_E_INPUT, "time", p.dec_ms = bad);
    REFUSED(TSR_E_INPUT, "time", p.pre_ms = minus);
    REFUSED(TSR_E_CONFIG, "18446744073709551615 4 1", p.tokens = UINT64_MAX);
    REFUSED(TSR_E_CONFIG, "100000000 4 1", p.tokens = TSR_SIMULATE_VISITS);
    REFUSED(TSR_E_CONFIG, "3 18446744073709551615 1", p.batch = UINT64_MAX);
#undef REFUSED
    struct tsr_plan_dealt    pre[2] = { { .ms = one }, { .ms = one } };
    struct tsr_plan_dealt    dec[2] = { { one, 1, 3 }, { one, 2, 3 } };
    struct tsr_plan_pipeline p = { .stages = 1, .pre = pre, .dec = dec, .n_pre = 2, .n_dec = 2 };
    assert_true(simulated(&p, true, false) == 8);
    p.n_pre = 1; /* the second one waits for a prefill that is not there */
    assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "", "2 1"));
    p.n_pre = 2;
    dec[0].after = 2;
    dec[1].after = 1;
    assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), TSR_E_INPUT);
    dec[1].after = 2;
    dec[1].ms = bad;
    assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), TSR_E_INPUT);
    dec[1].ms = one;
    dec[1].steps = UINT64_MAX;
    assert_int_equal(tsr_simulate(&p, &how, NULL, NULL, &s, &e.err), TSR_E_CONFIG);
}

int main(void)
{
    const char *text = getenv("TSR_TEST_SEED");
    seed = text ? strtoull(text, NULL, 10) : 1;
    (void)printf("TSR_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),   cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_dealt),   cmocka_unit_test(test_dealt_even),
        cmocka_unit_test(test_visits),  cmocka_unit_test(test_back),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
