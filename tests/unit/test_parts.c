/* Equal parts of a cluster: every copy has the same devices, no device is in two copies, and a number of copies that is left
 * out has the part of a larger one.  Over random clusters, with the devices counted one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/search/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLUSTERS 200

static uint64_t seed = 20261128;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* Up to six nodes of two profiles, some of them alike. */
static struct tsr_plan_cluster *random_cluster(void)
{
    char                     text[1500];
    size_t                   at = (size_t)snprintf(text, sizeof text, "version: 1\nnodes:\n");
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_diag         *d = NULL;
    struct tsr_plan_cluster *c = NULL;
    for (uint64_t i = 0, n = 1 + draw(6); i < n; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  - {name: n%d, devices: [{profile: T4, count: %d}", (int)i,
                               (int)(1 + draw(3) * draw(3)));
        if (draw(3) == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, ", {profile: L4, count: %d}",
                                   (int)(1 + draw(4)));
        at += (size_t)snprintf(text + at, sizeof text - at, "], link: {bandwidth: 10 GB/s}}\n");
    }
    (void)snprintf(text + at, sizeof text - at, "network: {bandwidth: 1 GB/s}\n");
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_cluster_parse(&c, TSR_SOURCE_ROOT "/configs/clusters/x.yaml", text,
                                            strlen(text), d, &e.err),
                     TSR_OK);
    tsr_config_diag_print(d, stderr, false);
    assert_non_null(c);
    tsr_config_diag_destroy(d);
    return c;
}

/* Devices of each profile that a copy has, from the cluster of its part. */
static void count(const struct tsr_plan_cluster *c, const struct tsr_plan_parts *p, uint64_t copy,
                  uint64_t have[2])
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_cluster *part = NULL;
    have[0] = have[1] = 0;
    assert_int_equal(tsr_plan_cluster_part(&part, c, p->nodes + copy * p->n_nodes, p->each,
                                           p->n_nodes, &e.err),
                     TSR_OK);
    for (uint64_t g = 0; g < part->n_groups; g++)
        have[strcmp(part->groups[g].profile->name, "L4") == 0] += part->groups[g].count;
    assert_int_equal(have[0] + have[1], p->devices);
    tsr_plan_cluster_destroy(part);
}

/* Devices of node `node` that copies take together, of each of its groups. */
static void fits(const struct tsr_plan_cluster *c, const struct tsr_plan_parts *p)
{
    for (uint64_t node = 0; node < c->n_nodes; node++)
        for (uint64_t g = 0; g < c->nodes[node].n_groups; g++) {
            uint64_t has = c->groups[c->nodes[node].first_group + g].count, taken = 0;
            for (uint64_t i = 0; i < p->copies * p->n_nodes; i++)
                taken += p->nodes[i] == node ? has / p->each[i % p->n_nodes] : 0;
            assert_true(taken <= has);
        }
}

static void equal_parts(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          shared = 0, several = 0;
    for (int i = 0; i < CLUSTERS; i++) {
        struct tsr_plan_cluster *c = random_cluster();
        uint64_t                 devices = tsr_plan_cluster_devices(c);
        for (uint64_t copies = 1; copies <= devices + 1; copies++) {
            struct tsr_plan_parts p;
            uint64_t              first[2], have[2];
            assert_int_equal(tsr_plan_parts_make(&p, c, copies, &e.err), TSR_OK);
            for (uint64_t r = 0; r < copies && p.n_nodes; r++) {
                count(c, &p, r, r ? have : first);
                assert_true(r == 0 || memcmp(have, first, sizeof have) == 0);
            }
            if (copies == 1)
                assert_int_equal(p.devices, devices);
            assert_true(p.devices * copies <= devices);
            for (uint64_t k = 0; k < p.n_nodes; k++)
                shared += p.each[k] > 1;
            several += p.n_nodes > 1;
            fits(c, &p);
            tsr_plan_parts_free(&p);
        }
        tsr_plan_cluster_destroy(c);
    }
    assert_true(shared > 100 && several > 100); /* both were there */
}

/* What is left out is no better: a larger number has as many devices for each copy. */
static void numbers(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (int i = 0; i < CLUSTERS; i++) {
        struct tsr_plan_cluster *c = random_cluster();
        uint64_t                 v[TSR_PLAN_PARTS_MOST], n, most = 1 + draw(40), at = 0;
        uint64_t                 top = tsr_plan_cluster_devices(c);
        assert_int_equal(tsr_plan_parts_counts(c, most, v, &n, &e.err), TSR_OK);
        for (uint64_t copies = 2; copies <= most && copies <= top; copies++) {
            struct tsr_plan_parts p, q;
            uint64_t              a[2], b[2];
            assert_int_equal(tsr_plan_parts_make(&p, c, copies, &e.err), TSR_OK);
            while (at < n && v[at] < copies)
                at++;
            if (p.n_nodes && (at == n || v[at] != copies)) {
                assert_true(at < n);
                assert_int_equal(tsr_plan_parts_make(&q, c, v[at], &e.err), TSR_OK);
                count(c, &p, 0, a);
                count(c, &q, 0, b);
                assert_memory_equal(a, b, sizeof a);
                tsr_plan_parts_free(&q);
            }
            assert_true(p.n_nodes || at == n || v[at] != copies);
            tsr_plan_parts_free(&p);
        }
        tsr_plan_cluster_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
