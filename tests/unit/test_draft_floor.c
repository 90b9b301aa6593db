/* Drafts that are as long as gains time never make a text slower than 0.97 of plain: whatever is right and whatever
 * passes take, by a clock that is made up.  And what that costs where they are right. */
#include "base/rng.h"
#include "engine/drafter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define FLOOR 0.97
#define SHORT 33u /* tokens of which one is 3 % */

/* A text, and what passes take: of the model 1 + slope for each token after the first, of the draft model `cost` times 1 +
 * own for each; `cost` 0: the text so far drafts, which takes no time. */
struct world {
    double   slope, cost, own;
    uint64_t prompt, tokens;
    bool (*right)(uint64_t at, uint32_t place, uint32_t k); /* of the id at `at`, in a draft of k */
    uint32_t fixed;                                         /* 0: as many as gain time */
};

struct sim {
    struct tsr_engine_drafter     base; /* of a model */
    struct tsr_engine_draft_costs costs;
    const struct world           *w;
    uint64_t                      from, has;
    double                        took;
};

static double pass(const struct world *w, uint64_t rows)
{
    return 1 + w->slope * (double)(rows - 1);
}

static double own_pass(const struct world *w, uint64_t rows)
{
    return w->cost * (1 + w->own * (double)(rows - 1));
}

static struct sim *of(const struct tsr_engine_drafter *d)
{
    return (struct sim *)(uintptr_t)d;
}

static void see(struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                struct tsr_engine_draft_ask *a, uint64_t n, double spare)
{
    assert_int_equal(n, 1);
    tsr_engine_draft_costs_window(&of(d)->costs, p, a, of(d)->from, of(d)->has, spare);
    assert_true(a->from <= a->has && a->has < a->n);
}

static double right(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_ask *a,
                    uint32_t k)
{
    (void)a;
    return tsr_engine_draft_costs_right(&of(d)->costs, k);
}

static double seconds(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                      const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, bool most)
{
    return tsr_engine_draft_costs_seconds(&of(d)->costs, p, a, n, k, most);
}

static void ran(struct sim *s, uint64_t rows)
{
    double took = own_pass(s->w, rows);
    s->took += took;
    if (rows > TSR_ENGINE_DRAFT_ROWS)
        tsr_engine_draft_prompt_took(&s->costs.pace, rows, took);
    else
        tsr_engine_draft_took(&s->costs.pace, rows, took);
}

static tsr_status make(struct tsr_engine_drafter *d, const struct tsr_model_hparams *hp,
                       struct tsr_engine_draft_ask *a, uint64_t n, struct tsr_err *err)
{
    (void)hp;
    (void)n;
    (void)err;
    ran(of(d), a->n - a->has);
    for (uint32_t i = 1; i < a->want; i++)
        ran(of(d), 1);
    of(d)->from = a->from;
    of(d)->has = a->n + a->want - 1;
    return TSR_OK;
}

static void came(struct tsr_engine_drafter *d, uint32_t n, bool missed)
{
    tsr_engine_draft_costs_came(&of(d)->costs, n, missed);
}

static void sim_start(struct sim *s, const struct world *w)
{
    static const struct tsr_engine_draft_size size = { .bytes = 0.5, .work = 1 };
    *s = (struct sim){ .base = { .see = see,
                                 .right = right,
                                 .seconds = seconds,
                                 .make = make,
                                 .came = came,
                                 .tries = true },
                       .w = w };
    tsr_engine_draft_costs_start(&s->costs, &size);
    for (int i = 0; i < 2; i++) { /* what it runs before the first text */
        ran(s, 1);
        ran(s, TSR_ENGINE_DRAFT_LEAST);
    }
    tsr_engine_draft_prompt_took(&s->costs.pace, TSR_ENGINE_DRAFT_LEAST,
                                 own_pass(w, TSR_ENGINE_DRAFT_LEAST));
    s->took = 0;
}

/* The text with drafts; its time over that without.  *worst: the largest time over what the floor allows, at any token as
 * if the text ended there. */
static double play(const struct world *w, double *worst)
{
    struct tsr_engine_draft_pace    p;
    struct tsr_engine_draft_account c = { 0 };
    struct tsr_engine_draft         text = { .from = 1, .run = 20 };
    struct tsr_engine_draft_lookup  l;
    struct sim                      s;
    double                          time = 0;
    uint64_t                        tokens = 1; /* the prompt's pass brings one */
    tsr_engine_draft_pace_start(&p);
    struct tsr_engine_drafter *by = tsr_engine_draft_lookup_start(&l, &p);
    sim_start(&s, w);
    if (w->cost > 0)
        by = &s.base;
    tsr_engine_draft_prompt_took(&p, w->prompt, pass(w, w->prompt));
    *worst = 0;
    while (tokens < w->tokens) {
        uint32_t                    out[TSR_ENGINE_DRAFT_MOST];
        struct tsr_engine_draft_ask a = { .n = w->prompt + tokens,
                                          .n_prompt = w->prompt,
                                          .left = w->tokens - tokens,
                                          .text = &text,
                                          .most = TSR_ENGINE_DRAFT_MOST,
                                          .out = out };
        double   loss = 0, spare = w->fixed ? INFINITY : tsr_engine_draft_spare(&c, &p, 1);
        uint32_t k = w->fixed;
        s.took = 0;
        if (w->cost > 0)
            by->see(by, &p, &a, 1, spare);
        if (!k)
            k = tsr_engine_draft_choose(&p, by, &a, 1, TSR_ENGINE_DRAFT_MOST, &c, &loss);
        a.want = k;
        if (k && w->cost > 0)
            by->make(by, NULL, &a, 1, NULL);
        double   took = pass(w, 1 + k);
        uint32_t n = 0;
        while (n < (k ? k : 1) &&
               w->right(tokens + n, n, k)) /* the first is seen without one too */
            n++;
        if (w->cost > 0 && k)
            by->came(by, n, n < k);
        for (uint32_t i = 0; w->cost == 0 && i < n + (n < (k ? k : 1)); i++)
            p.hit[3] += ((i < n ? 1.0 : 0.0) - p.hit[3]) * 0.06;
        n = n < k ? n : k;
        time += took + s.took;
        tsr_engine_draft_took(&p, 1 + k, took);
        tsr_engine_draft_settle(&c, &p, 1, 1 + n, took + s.took, loss);
        if (s.has > w->prompt + tokens + n)
            s.has = w->prompt + tokens + n;
        for (uint32_t i = 0; i <= n && tokens < w->tokens; i++, tokens++) {
            double plain = (double)tokens; /* after the first, which the prompt brings */
            double most = tokens < SHORT ? plain + 1 : plain / FLOOR;
            *worst = fmax(*worst, time / most);
        }
    }
    return time / (double)(w->tokens - 1);
}

/* ---- what is right ---------------------------------------------------------------- */

static double part;
static bool   by_chance(uint64_t at, uint32_t place, uint32_t k)
{
    (void)place;
    return k < 99 && tsr_uniform(17, at, 0) < part;
}
static bool until_200(uint64_t at, uint32_t place, uint32_t k)
{
    (void)place;
    return k < 99 && at < 200;
}
static bool in_turn(uint64_t at, uint32_t place, uint32_t k)
{
    (void)place;
    return k < 99 && at / 30 % 2 == 0;
}
static bool short_ones(uint64_t at, uint32_t place, uint32_t k)
{
    (void)at;
    (void)place;
    return k < 3;
}
static bool the_first(uint64_t at, uint32_t place, uint32_t k)
{
    (void)at;
    return k < 99 && place == 0;
}
static bool seen_alone(uint64_t at, uint32_t place, uint32_t k) /* right until it counts */
{
    (void)at;
    (void)place;
    return k == 0;
}

static const struct {
    bool (*right)(uint64_t at, uint32_t place, uint32_t k);
    double part;
} texts[] = { { by_chance, 0 }, { by_chance, 0.3 }, { by_chance, 0.6 }, { by_chance, 0.9 },
              { by_chance, 1 }, { until_200, 0 },   { in_turn, 0 },     { short_ones, 0 },
              { the_first, 0 }, { seen_alone, 0 } };

static void no_text_is_slower(void **state)
{
    static const double   slopes[] = { 0, 0.02, 0.3, 1 };
    static const double   costs[] = { 0, 0.02, 0.1, 0.4, 1, 3 };
    static const uint64_t prompts[] = { 1, 16, 800 };
    double                all = 0, worst, slowest = 0;
    uint64_t              n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        for (size_t j = 0; j < sizeof slopes / sizeof *slopes; j++)
            for (size_t o = 0; o < sizeof slopes / sizeof *slopes; o++)
                for (size_t q = 0; q < sizeof prompts / sizeof *prompts; q++)
                    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++, n++) {
                        struct world w = { .slope = slopes[j],
                                           .cost = costs[i],
                                           .own = slopes[o],
                                           .prompt = prompts[q],
                                           .tokens = 400,
                                           .right = texts[t].right };
                        part = texts[t].part;
                        slowest = fmax(slowest, play(&w, &worst));
                        all = fmax(all, worst);
                        if (!(worst <= 1 + 1e-9)) /* sums of 400 doubles */
                            fail_msg("slope %.2f cost %.2f own %.2f prompt %llu text %zu: %.3f of "
                                     "what is allowed",
                                     w.slope, w.cost, w.own, (unsigned long long)w.prompt, t,
                                     worst);
                    }
    print_message("%llu texts: at most %.4f of what is allowed; the slowest %.4f of plain\n",
                  (unsigned long long)n, all, slowest);
    assert_true(slowest > 1.005); /* some of them did lose time */
}

/* Where ids are right with the same chance, beside the best of all fixed lengths and none. */
static void the_gain_remains(void **state)
{
    static const double   costs[] = { 0, 0.1, 0.3 }, parts[] = { 0.7, 0.9, 0.97 };
    static const uint64_t prompts[] = { 16, 500 };
    (void)state;
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++)
            for (size_t q = 0; q < sizeof prompts / sizeof *prompts; q++) {
                struct world w = { .slope = 0.05,
                                   .cost = costs[i],
                                   .own = 0.2,
                                   .prompt = prompts[q],
                                   .tokens = 400,
                                   .right = by_chance };
                double       worst, best = 1;
                part = parts[j];
                double chosen = play(&w, &worst);
                for (w.fixed = 1; w.fixed <= TSR_ENGINE_DRAFT_MOST; w.fixed++)
                    best = fmin(best, play(&w, &worst));
                print_message(
                    "cost %.2f right %.2f prompt %3llu: plain over time %.2f, of the best "
                    "fixed length %.2f\n",
                    w.cost, part, (unsigned long long)w.prompt, 1 / chosen, 1 / best);
                if (!(chosen <= best * 1.1 + 12.0 / 400)) /* 12 passes to find it out */
                    fail_msg("%.3f of plain, and a fixed length has %.3f", chosen, best);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_is_slower),
        cmocka_unit_test(the_gain_remains),
    };
    return cmocka_run_group_tests_name("draft_floor", tests, NULL, NULL);
}
