/* Experts that the tokens of a step reach: by equal chances, and by the frequencies that a calibration counted. */
#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "checkpoint/safetensors/safetensors.h"
#include "engine/route.h"
#include "plan/cost/shape.h"
#include "quant/routing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define EXPERTS 16u
#define USED    3u
#define TRIALS  4000

static uint32_t one_class[2];

/* Two alike layers whose experts have these shares; NULL: not measured. */
static struct tsr_plan_shape shape(struct tsr_plan_shape_layer *l, double *share)
{
    memset(l, 0, sizeof *l);
    l->router.rows = EXPERTS;
    return (struct tsr_plan_shape){ .layers = 2,
                                    .classes = 1,
                                    .layer_class = one_class,
                                    .layer = l,
                                    .experts = EXPERTS,
                                    .experts_used = USED,
                                    .routing = share };
}

/* Shares that fall by a factor from expert to expert, none above 1, USED in all. */
static void falling(double *share, double factor)
{
    double sum = 0, v = 1;
    for (uint32_t i = 0; i < EXPERTS; i++, v *= factor)
        sum += v;
    v = 1;
    for (uint32_t i = 0; i < EXPERTS; i++, v *= factor)
        share[i] = USED * v / sum;
    assert_true(share[0] <= 1);
}

/* Distinct experts that B tokens take, drawn: of each token USED different ones, each with its share (systematic
 * sampling: the places u, u + 1, ... on the line of the shares). */
static double simulated(const double *share, uint32_t tokens, double *deviation)
{
    double sum = 0, squares = 0;
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        uint8_t  taken[EXPERTS] = { 0 };
        uint32_t n = 0;
        for (uint32_t t = 0; t < tokens; t++) {
            double   u = tsr_uniform(7, trial, t), end = 0;
            uint32_t next = 0;
            for (uint32_t i = 0; i < EXPERTS; i++) {
                end += share[i];
                if (next < USED && u + next < end) {
                    taken[i] = 1;
                    next++;
                }
            }
        }
        for (uint32_t i = 0; i < EXPERTS; i++)
            n += taken[i];
        sum += n;
        squares += (double)n * n;
    }
    double mean = sum / TRIALS;
    *deviation = sqrt(fmax(squares / TRIALS - mean * mean, 0) / TRIALS);
    return mean;
}

static void equal_shares_are_the_prior(void **state)
{
    struct tsr_plan_shape_layer l;
    double                      share[2 * EXPERTS];
    (void)state;
    for (uint32_t i = 0; i < 2 * EXPERTS; i++)
        share[i] = (double)USED / EXPERTS;
    struct tsr_plan_shape prior = shape(&l, NULL), measured = shape(&l, share);
    for (double b = 1; b < 3000; b *= 1.7) {
        double want = EXPERTS * (1 - pow(1 - (double)USED / EXPERTS, b));
        assert_true(fabs(tsr_plan_shape_reached(&prior, 0, b) - want) < 1e-12 * want);
        assert_true(fabs(tsr_plan_shape_reached(&measured, 0, b) - want) < 1e-12 * want);
    }
    assert_true(fabs(tsr_plan_shape_reached(&prior, 0, 1) - USED) < 1e-12);
    l.router.rows = 0; /* a layer without experts reaches none */
    assert_true(tsr_plan_shape_reached(&prior, 0, 8) == 0);
}

static void skewed_shares_reach_fewer(void **state)
{
    static const uint32_t       tokens[] = { 1, 2, 4, 8, 16, 64 };
    static const double         factors[] = { 1, 0.95, 0.85, 0.75 };
    struct tsr_plan_shape_layer l;
    double                      share[2 * EXPERTS];
    (void)state;
    for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
        double before = INFINITY;
        for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
            falling(share, factors[f]);
            memcpy(share + EXPERTS, share, EXPERTS * sizeof *share);
            struct tsr_plan_shape s = shape(&l, share);
            double                got = tsr_plan_shape_reached(&s, 0, tokens[k]), off;
            double                drawn = simulated(share, tokens[k], &off);
            assert_true(tokens[k] == 1 ? fabs(got - USED) < 1e-9 : got < before);
            if (fabs(got - drawn) > 5 * off + 1e-9)
                fail_msg("%u tokens, factor %g: %.4f experts, drawn %.4f +- %.4f", tokens[k],
                         factors[f], got, drawn, off);
            before = got;
        }
    }
    /* a class is the average of its layers */
    falling(share, 0.75);
    falling(share + EXPERTS, 0.95);
    struct tsr_plan_shape both = shape(&l, share);
    double                a = 0, b = 0;
    for (uint32_t i = 0; i < EXPERTS; i++) {
        a += 1 - pow(1 - share[i], 8);
        b += 1 - pow(1 - share[EXPERTS + i], 8);
    }
    assert_true(fabs(tsr_plan_shape_reached(&both, 0, 8) - (a + b) / 2) < 1e-12);
}

/* Tokens spread for a measurement: different experts in rising order, each with the same chance, and as many distinct ones
 * as the planner counts. */
static void spread_tokens(void **state)
{
    static const uint32_t sizes[][2] = { { 1, 1 }, { 4, 1 },  { 5, 2 },
                                         { 8, 8 }, { 16, 3 }, { 128, 8 } };
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t                 E = sizes[k][0], used = sizes[k][1], chosen[8], n = 20000;
        struct tsr_model_hparams hp = { .experts = E, .experts_used = used };
        uint64_t                 count[128] = { 0 }, reached = 0;
        uint8_t                  seen[128] = { 0 };
        float                    weight[8];
        for (uint32_t t = 0; t < n; t++) {
            tsr_engine_route_spread(&hp, t, chosen, weight);
            for (uint32_t j = 0; j < used; j++) {
                assert_true(chosen[j] < E && (j == 0 || chosen[j] > chosen[j - 1]));
                assert_true(weight[j] == 1.0f / (float)used);
                count[chosen[j]]++;
                reached += !seen[chosen[j]];
                seen[chosen[j]] = 1;
            }
            if (t % 8 == 7) /* steps of eight tokens */
                memset(seen, 0, sizeof seen);
        }
        double p = (double)used / E, want = E * (1 - pow(1 - p, 8));
        for (uint32_t i = 0; i < E; i++)
            assert_true(fabs((double)count[i] - n * p) <= 5 * sqrt(n * p * (1 - p)));
        double got = (double)reached / (n / 8.0);
        assert_true(fabs(got - want) <= 0.01 * want);
    }
}

/* ---- files ------------------------------------------------------------------------- */

/* Statistics of layer 2: counts[i] tokens for expert i, -1: borrowed. */
static void write_file(const char *folder, const char *layer, const char *seqlen, const int *counts,
                       int experts)
{
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct tsr_st_out *o = NULL;
    char               path[128], key[64], text[24];
    (void)snprintf(path, sizeof path, "%s/layer-00002.safetensors", folder);
    (void)unlink(path);
    assert_int_equal(tsr_safetensors_create(&o, path, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_metadata(o, "format", "tessera.calibration/1", &e.err),
                     TSR_OK);
    assert_int_equal(tsr_safetensors_metadata(o, "layer", layer, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_metadata(o, "sequences", "2", &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_metadata(o, "seqlen", seqlen, &e.err), TSR_OK);
    for (int i = 0; i < experts; i++) {
        (void)snprintf(key, sizeof key, "experts.%d.ffn_in.%s", i,
                       counts[i] < 0 ? "borrowed" : "tokens");
        (void)snprintf(text, sizeof text, "%d", counts[i] < 0 ? 10 : counts[i]);
        assert_int_equal(tsr_safetensors_metadata(o, key, text, &e.err), TSR_OK);
    }
    assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_OK);
    if (tsr_safetensors_commit(o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static void counts_of_a_file(void **state)
{
    static const int  good[] = { 20, 12, -1, 8 };
    char              folder[] = "/tmp/tessera-routing-XXXXXX", path[128];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    double            share[4];
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_file(folder, "2", "10", good, 4);
    if (tsr_quant_routing_read(folder, 2, 4, 2, share, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(share[0] == 1 && share[1] == 0.6 && share[2] == 0 && share[3] == 0.4);
    static const struct {
        const char *layer, *seqlen;
        int         counts[5], experts, used;
        const char *word;
    } bad[] = {
        { "1", "10", { 20, 12, -1, 8 }, 4, 2, "layer#2" },
        { "2", "0", { 20, 12, -1, 8 }, 4, 2, "layer#2" },
        { "2", "99999999999999999999", { 20, 12, -1, 8 }, 4, 2, "layer#2" },
        { "2", "10", { 20, 12, 8 }, 3, 2, "expert#3" },
        { "2", "10", { 21, 12, -1, 7 }, 4, 2, "expert#0" },
        { "2", "10", { 20, 12, -1, 7 }, 4, 2, "20#tokens" },
        { "2", "10", { 20, 12, -1, 8, 0 }, 5, 2, "4#experts" },
        { "2", "10", { 20, 12, -1, 8 }, 4, 3, "3" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(folder, bad[i].layer, bad[i].seqlen, bad[i].counts, bad[i].experts);
        assert_int_equal(tsr_quant_routing_read(folder, 2, 4, (uint32_t)bad[i].used, share, &e.err),
                         TSR_E_INPUT);
        if (!has_facts(e.text, bad[i].word))
            fail_msg("%d: %s", (int)i, e.text);
    }
    assert_true(tsr_quant_routing_read(folder, 3, 4, 2, share, &e.err) != TSR_OK);
    (void)snprintf(path, sizeof path, "%s/layer-00002.safetensors", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equal_shares_are_the_prior),
                                        cmocka_unit_test(skewed_shares_reach_fewer),
                                        cmocka_unit_test(spread_tokens),
                                        cmocka_unit_test(counts_of_a_file) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
