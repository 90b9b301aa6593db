/* The tuner: the knee, both phases against exhaustive search on knee-shaped tables,
 * and cases that were worked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/json.h"
#include "base/rng.h"
#include "compensate/tune.h"

#include <math.h>

static void test_knee(void **state)
{
    (void)state;
    /* 4050M and 4090 of notes: 3 bits, 16 of 192 GB/s; 32 of 1008 */
    assert_true(fabs(tsr_compensate_tune_knee(3, 16, 192) - 64) < 1e-9);
    assert_true(fabs(tsr_compensate_tune_knee(3, 32, 1008) - 24.38) < 0.01);
}

/* ---- tables ------------------------------------------------------------------------------------ */

#define LONG 600

struct made {
    struct tsr_compensate_tune_table t;
    double                           ms[4][4 * LONG];
};

static double uniform(uint64_t seed, uint64_t i)
{
    return tsr_uniform(77, seed, i);
}

/* Flat up to a knee that comes later with more blocks, which cost the linear itself something; a slope behind it.
 * even: one slope for all linears. */
static void knee_table(struct made *x, uint64_t seed, bool even)
{
    static const uint32_t kinds[4][4] = {
        { 1, 2, 4, 8 }, { 1, 2, 3, 6 }, { 1, 3, 5, 7 }, { 1, 2, 4, 6 }
    };
    memset(x, 0, sizeof *x);
    x->t.n = 2 + (uint32_t)(uniform(seed, 0) * 3);
    double slope_of_all = 0.002 + 0.01 * uniform(seed, 1);
    for (uint32_t i = 0; i < x->t.n; i++) {
        struct tsr_compensate_tune_module *m = &x->t.m[i];
        double                             u[4];
        for (uint64_t j = 0; j < 4; j++)
            u[j] = uniform(seed, 10 + 8 * i + j);
        (void)snprintf(m->name, sizeof m->name, "m%u", i);
        m->inputs = 1024 * (1 + (uint64_t)(u[0] * 8));
        m->outputs = 256 * (1 + (uint64_t)(u[1] * 40));
        m->base = 0.2 + u[2];
        m->n_blocks = 4;
        m->n_k = even ? 80 : LONG;
        m->ms = x->ms[i];
        memcpy(m->blocks, kinds[i], sizeof kinds[i]);
        for (uint32_t b = 0; b < 4; b++) {
            double knee = 4 + 6 * u[3] * m->blocks[b];
            double slope =
                even ? slope_of_all : (0.5 + u[0]) * slope_of_all * 8 / (3 + m->blocks[b]);
            for (uint32_t k = 0; k < m->n_k; k++)
                m->ms[b * m->n_k + k] = m->base * (even ? 1 : 1 + 0.001 * m->blocks[b]) +
                                        slope * fmax(0, k - floor(knee));
        }
    }
}

static double at(const struct tsr_compensate_tune_module *m, uint32_t b, uint32_t k)
{
    return k ? m->ms[b * m->n_k + k] : m->base;
}

static uint32_t row_of(const struct tsr_compensate_tune_module *m, uint32_t most)
{
    uint32_t row = 0;
    for (uint32_t b = 0; b < m->n_blocks; b++)
        if (m->blocks[b] <= most)
            row = b;
    return row;
}

static double sum_of(const struct tsr_compensate_tune_table *t, const uint32_t *row,
                     const uint32_t *k)
{
    double s = 0;
    for (uint32_t i = 0; i < t->n; i++)
        s += at(&t->m[i], row[i], k[i]);
    return s;
}

/* Every number of blocks with every common k. */
static uint32_t exhaustive_common(const struct tsr_compensate_tune_table *t, const bool *dropped,
                                  double limit, uint32_t *most, double *time)
{
    uint32_t best = 0;
    *time = INFINITY;
    for (uint32_t b = 1; b <= 8; b++) {
        uint32_t row[4], k[4];
        for (uint32_t i = 0; i < t->n; i++)
            row[i] = row_of(&t->m[i], b);
        for (uint32_t c = 1; c < LONG; c++) {
            for (uint32_t i = 0; i < t->n; i++)
                k[i] = dropped[i] ? 0 : c;
            double s = sum_of(t, row, k);
            if (s <= limit && (c > best || (c == best && s < *time))) {
                best = c;
                *most = b;
                *time = s;
            }
        }
    }
    return best;
}

/* A round of phase 2 by trying every set of linears: the largest that fits, of these the fastest. */
static bool exhaustive_round(const struct tsr_compensate_tune_table *t, const uint32_t *row,
                             double limit, const bool *frozen, uint32_t *k)
{
    uint32_t best = 0, size = 0;
    double   least = INFINITY;
    for (uint32_t set = 1; set < 1u << t->n; set++) {
        uint32_t next[4], n = 0;
        bool     fits = true;
        for (uint32_t i = 0; i < t->n; i++) {
            next[i] = k[i] + (set >> i & 1u);
            n += set >> i & 1u;
            fits = fits && next[i] < t->m[i].n_k && !(frozen[i] && set >> i & 1u);
        }
        double s = fits ? sum_of(t, row, next) : INFINITY;
        if (s <= limit && (n > size || (n == size && s < least - 1e-12))) {
            best = set;
            size = n;
            least = s;
        }
    }
    for (uint32_t i = 0; i < t->n; i++)
        k[i] += best >> i & 1u;
    return best != 0;
}

static void test_exhaustive(void **state)
{
    static const double targets[] = { 0.0005, 0.025, 0.05, 0.1, 0.2 };
    uint64_t            moved = 0, dropped_some = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        static struct made                x;
        struct tsr_compensate_tune_result r;
        bool                              dropped[4] = { false };
        uint32_t                          most = 0, row[4], k[4], common;
        double                            time, limit = 0;
        knee_table(&x, seed, false);
        for (uint32_t i = 0; i < x.t.n; i++)
            limit += x.t.m[i].base;
        limit *= 1 + targets[seed % 5];
        assert_int_equal(tsr_compensate_tune(&x.t, targets[seed % 5], 0,
                                             TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                         TSR_OK);
        assert_true(r.limit == limit);
        while ((common = exhaustive_common(&x.t, dropped, limit, &most, &time)) == 0) {
            uint32_t small = x.t.n, left = 0;
            for (uint32_t i = 0; i < x.t.n; i++) {
                left += !dropped[i];
                if (!dropped[i] &&
                    (small == x.t.n || x.t.m[i].inputs * x.t.m[i].outputs <
                                           x.t.m[small].inputs * x.t.m[small].outputs))
                    small = i;
            }
            dropped[small] = true;
            dropped_some++;
            if (left == 1)
                break;
        }
        assert_int_equal(r.common, common);
        if (!common)
            continue;
        assert_int_equal(r.most_blocks, most);
        for (uint32_t i = 0; i < x.t.n; i++) {
            assert_int_equal(r.dropped[i], dropped[i]);
            row[i] = row_of(&x.t.m[i], most);
            k[i] = dropped[i] ? 0 : common;
            assert_true(dropped[i] ? r.blocks[i] == 0 : r.blocks[i] == x.t.m[i].blocks[row[i]]);
        }
        while (exhaustive_round(&x.t, row, limit, dropped, k))
            moved++;
        for (uint32_t i = 0; i < x.t.n; i++)
            assert_int_equal(r.k[i], k[i]);
        assert_true(r.total <= limit && fabs(r.total - sum_of(&x.t, row, k)) < 1e-12);
    }
    if (moved < 500 || dropped_some < 50)
        fail_msg("%llu rounds, %llu left out", (unsigned long long)moved,
                 (unsigned long long)dropped_some);
}

/* One slope for all: then no other k at these blocks has a larger sum.  Every k is tried. */
static void test_most_channels(void **state)
{
    (void)state;
    for (uint64_t seed = 2000; seed < 2040; seed++) {
        static struct made                x;
        struct tsr_compensate_tune_result r;
        uint32_t                          row[4], k[4] = { 0 }, best = 0, got = 0;
        knee_table(&x, seed, true);
        x.t.n = x.t.n > 3 ? 3 : x.t.n;
        assert_int_equal(tsr_compensate_tune(&x.t, 0.05, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                         TSR_OK);
        assert_true(r.common > 0);
        for (uint32_t i = 0; i < x.t.n; i++) {
            row[i] = row_of(&x.t.m[i], r.most_blocks);
            got += r.k[i];
        }
        uint32_t end = x.t.n == 3 ? 80 : 1;
        for (k[0] = 0; k[0] < 80; k[0]++)
            for (k[1] = 0; k[1] < 80; k[1]++)
                for (k[2] = 0; k[2] < end; k[2]++)
                    if (k[0] + k[1] + k[2] > best && sum_of(&x.t, row, k) <= r.limit + 1e-12)
                        best = k[0] + k[1] + k[2];
        assert_int_equal(got, best);
    }
}

/* ---- by hand -------------------------------------------------------------------------------------- */

static void module_of(struct tsr_compensate_tune_module *m, uint64_t inputs, double base,
                      double *ms, uint32_t n_k)
{
    *m = (struct tsr_compensate_tune_module){ .name = "m",
                                              .inputs = inputs,
                                              .outputs = 1024,
                                              .base = base,
                                              .n_blocks = 1,
                                              .n_k = n_k,
                                              .blocks = { 1 },
                                              .ms = ms };
}

static void test_freezing(void **state)
{
    /* 10 + 10 ms, 10 %: at most 22.  Together k = 1 takes 10.5 + 11 = 21.5, k = 2 would take 22.9.
     * Phase 2, round 1: both would add, a 0.3 and b 1.1; a fits (21.8), b does not (22.9).
     * Round 2: a falls back to 10.2 (a table that was measured); 21.2.  The code tries b again: 22.3, no.
     * Round 3: a at 9.8: 20.8; b again: 21.9, fits.  The paper froze b in round 1. */
    double a[] = { 10, 10.5, 10.8, 10.2, 9.8, 30 }, b[] = { 10, 11, 12.1, 30, 30, 30 };
    struct tsr_compensate_tune_table  t = { .n = 2 };
    struct tsr_compensate_tune_result r;
    struct tsr_errbuf                 err = TSR_ERRBUF(err);
    (void)state;
    module_of(&t.m[0], 2048, 10, a, 6);
    module_of(&t.m[1], 1024, 10, b, 6);
    assert_int_equal(tsr_compensate_tune(&t, 0.1, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                     TSR_OK);
    assert_true(r.common == 1 && r.k[0] == 4 && r.k[1] == 2);
    assert_true(fabs(r.total - 21.9) < 1e-9);
    assert_int_equal(tsr_compensate_tune(&t, 0.1, 0, TSR_COMPENSATE_FREEZE_ONCE, &r, NULL), TSR_OK);
    assert_true(r.common == 1 && r.k[0] == 4 && r.k[1] == 1);
    assert_true(fabs(r.total - 20.8) < 1e-9);
    /* 3 %, 20.6: no common step; b, the smaller matrix, goes to 0; a alone takes 20.5 and stops at 20.8,
     * which is above 20.6 */
    assert_int_equal(tsr_compensate_tune(&t, 0.03, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                     TSR_OK);
    assert_true(r.dropped[1] && r.common == 1 && r.k[0] == 1 && r.k[1] == 0 && r.blocks[1] == 0);
    /* nothing fits */
    assert_int_equal(tsr_compensate_tune(&t, 0.001, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                     TSR_OK);
    assert_true(r.common == 0 && r.most_blocks == 0 && r.k[0] == 0 && r.total == 20);
    /* a table that ends */
    assert_int_equal(tsr_compensate_tune(&t, 5, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, &err.err),
                     TSR_E_INPUT);
    assert_true(error_is(&err.err, "", "5 1"));
    assert_int_equal(tsr_compensate_tune(&t, (double)NAN, 0, TSR_COMPENSATE_FREEZE_RETRY, &r,
                                         &err.err),
                     TSR_E_CONFIG);
}

/* Linears that take less than a limit keep k 0, whatever the target. */
static void test_least(void **state)
{
    /* us: 3.9 and then 10; 10 and then 10.2, 10.4, 30 */
    double a[] = { 0.0039, 0.0039, 0.0039, 0.010 }, b[] = { 0.010, 0.0102, 0.0104, 0.030 };
    struct tsr_compensate_tune_table  t = { .n = 2 };
    struct tsr_compensate_tune_result r;
    (void)state;
    module_of(&t.m[0], 1024, 0.0039, a, 4);
    module_of(&t.m[1], 2048, 0.010, b, 4);
    assert_int_equal(tsr_compensate_tune(&t, 0.05, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                     TSR_OK);
    assert_true(r.common == 2 && r.k[0] == 2 && r.k[1] == 2 && !r.skipped[0] && !r.skipped[1]);
    t.least_us = 4;
    assert_int_equal(tsr_compensate_tune(&t, 0.05, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL),
                     TSR_OK);
    assert_true(r.skipped[0] && !r.skipped[1] && r.k[0] == 0 && r.blocks[0] == 0 && r.k[1] == 2);
    assert_true(fabs(r.base - 0.0139) < 1e-12 && fabs(r.total - 0.0143) < 1e-12);
    t.least_us = 11; /* both, and no table that would end */
    assert_int_equal(tsr_compensate_tune(&t, 5, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, NULL), TSR_OK);
    assert_true(r.skipped[0] && r.skipped[1] && r.common == 0 && r.k[0] == 0 && r.k[1] == 0);
    assert_true(r.most_blocks == 0 && r.total == r.base);
    /* the rule itself: 8 MB at 2 TB/s take 4 us */
    assert_true(tsr_compensate_own_us(8000000, 2e12) == 4);
    assert_false(tsr_compensate_is_skipped(4, 4));
    assert_true(tsr_compensate_is_skipped(3.999, 4));
    assert_true(tsr_compensate_is_skipped((double)NAN, 4));
    assert_false(tsr_compensate_is_skipped((double)NAN, 0));
}

static void test_file(void **state)
{
    static const struct {
        const char *json, *about, *facts;
    } bad[] = {
        { "[]", "p.json", NULL },
        { "{\"format\":\"x\"}", "p.json", "format x" },
        { "{\"format\":\"tessera.dec-profile/1\",\"modules\":[]}", "p.json", "modules 0 8" },
        { "{\"format\":\"tessera.dec-profile/"
          "1\",\"modules\":[{\"name\":\"a\",\"inputs\":1,\"outputs\":1,"
          "\"base_ms\":1,\"blocks\":[2,1],\"ms\":[[1,1],[1,1]]}]}",
          "p.json: module 0", "1 blocks 65535" },
        { "{\"format\":\"tessera.dec-profile/"
          "1\",\"modules\":[{\"name\":\"a\",\"inputs\":1,\"outputs\":1,"
          "\"base_ms\":1,\"blocks\":[1],\"ms\":[[1,0]]}]}",
          "p.json: module 0", "ms 0 1" },
        { "{\"format\":\"tessera.dec-profile/"
          "1\",\"modules\":[{\"name\":\"a\",\"inputs\":1,\"outputs\":1,"
          "\"base_ms\":1,\"blocks\":[1,2],\"ms\":[[1,1],[1]]}]}",
          "p.json: module 0", "ms 1 2" },
    };
    static const char good[] =
        "{\"format\":\"tessera.dec-profile/1\",\"device\":\"d\",\"bits\":3,\"host_gbps\":16,"
        "\"device_gbps\":192,\"modules\":[{\"name\":\"o\",\"inputs\":4096,\"outputs\":4096,"
        "\"base_ms\":0.5,\"blocks\":[4,8],\"ms\":[[0.5,0.6],[0.5,0.55]]}]}";
    struct tsr_compensate_tune_table t;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tsr_errbuf err = TSR_ERRBUF(err);
        assert_int_equal(tsr_compensate_tune_parse(&t, "p.json", bad[i].json, strlen(bad[i].json),
                                                   &err.err),
                         TSR_E_INPUT);
        assert_true(error_is(&err.err, bad[i].about, bad[i].facts));
    }
    assert_int_equal(tsr_compensate_tune_parse(&t, "p.json", good, strlen(good), NULL), TSR_OK);
    assert_true(t.n == 1 && t.m[0].n_k == 2 && t.m[0].ms[3] == 0.55 && t.m[0].blocks[1] == 8);
    tsr_compensate_tune_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_knee),          cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_most_channels), cmocka_unit_test(test_freezing),
        cmocka_unit_test(test_least),         cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
