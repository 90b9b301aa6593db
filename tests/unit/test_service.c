/* host->service: the default backend's linear algebra reaches plugins, from any thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin_open.h"
#include "tessera/here.h"
#include "tessera/linalg.h"

#define CALLS 64

struct caller {
    const struct tsr_host *host;
    const void            *table[CALLS];
    float                  c[CALLS][9];
};

static const float x[6] = { 1, 2, 3, 4, 5, 6 };

static tsr_status call(void *arg, uint64_t begin, uint64_t end)
{
    struct caller *k = arg;
    for (uint64_t i = begin; i < end; i++) {
        const struct tsr_linalg_v1 *l = k->table[i] = k->host->service(k->host->ctx, TSR_LINALG);
        if (!l || l->syrk(l->ctx, 3, 2, 1.0f, x, 3, k->c[i], 3, NULL) != TSR_OK)
            return TSR_E_DEVICE;
    }
    return TSR_OK;
}

static void test_linalg(void **state)
{
    (void)state;
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_pool     *pool = NULL;
    struct tsr_registry *r = NULL;
    struct caller        k = { 0 };
    assert_int_equal(tsr_pool_create(&pool, 4, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_create(&r, pool, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_add_path(r, TSR_TEST_PLUGINS, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_scan(r, &e.err), TSR_OK);
    k.host = tsr_plugin_registry_host(r);
    assert_int_equal(k.host->parallel_for(k.host->ctx, CALLS, 1, call, &k), TSR_OK);
    static const float want[9] = { 17, 22, 27, 22, 29, 36, 27, 36, 45 };
    for (int i = 0; i < CALLS; i++) {
        assert_non_null(k.table[i]);
        assert_ptr_equal(k.table[i], k.table[0]);
        assert_memory_equal(k.c[i], want, sizeof want);
    }
    /* every plugin's host finds the same */
    struct tsr_plugin_found f;
    assert_int_equal(tsr_plugin_registry_find(r, "tessera.quantizer/1", "rtn", &f, &e.err), TSR_OK);
    assert_ptr_equal(f.host->service(f.host->ctx, TSR_LINALG), k.table[0]);
    assert_null(f.host->service(f.host->ctx, "tessera.linalg/2"));
    assert_null(f.host->service(f.host->ctx, NULL));
    tsr_plugin_registry_destroy(r);
    tsr_pool_destroy(pool);
}

/* Whether the backend cpu has fast numerics here. */
static bool has_fast(void)
{
    char  line[8192];
    bool  has = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    assert_non_null(f);
    while (!has && fgets(line, sizeof line, f))
        has = strstr(line, " avx512_bf16") != NULL;
    (void)fclose(f);
    return has;
}

/* Under numerics: fast what runs the models is asked: one that was named and is not there, or has no such numerics on this
 * processor, is no service; "auto" is the default where no device is. */
static void test_chosen(void **state)
{
    const bool fast = has_fast();
    const struct {
        struct tsr_plugin_run_on on;
        bool                     there;
    } cases[] = { { { .backend = "none", .numerics = TSR_NUMERICS_EXACT }, true },
                  { { .backend = NULL, .numerics = TSR_NUMERICS_FAST }, fast },
                  { { .backend = "cpu", .numerics = TSR_NUMERICS_FAST }, fast },
                  { { .backend = "auto", .numerics = TSR_NUMERICS_FAST }, true },
                  { { .backend = "none", .numerics = TSR_NUMERICS_FAST }, false } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf    e = TSR_ERRBUF(e);
        struct tsr_registry *r = NULL;
        assert_int_equal(tsr_plugin_registry_create_on(&r, NULL, &cases[i].on, &e.err), TSR_OK);
        assert_int_equal(tsr_plugin_registry_add_path(r, TSR_TEST_PLUGINS, &e.err), TSR_OK);
        const struct tsr_host *h = tsr_plugin_registry_host(r);
        assert_int_equal(h->service(h->ctx, TSR_LINALG) != NULL, cases[i].there);
        tsr_plugin_registry_destroy(r);
    }
}

/* A rank's place, of the registry that it was given to alone. */
static void test_here(void **state)
{
    (void)state;
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_registry *r = NULL, *rank = NULL;
    assert_int_equal(tsr_plugin_registry_create(&r, NULL, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_like(&rank, r, NULL, &(struct tsr_plugin_run_on){ 0 },
                                              &e.err),
                     TSR_OK);
    tsr_plugin_registry_set_here(rank, 3, 4);
    const struct tsr_host *h = tsr_plugin_registry_host(r);
    assert_null(h->service(h->ctx, TSR_HERE));
    h = tsr_plugin_registry_host(rank);
    const struct tsr_here_v1 *here = h->service(h->ctx, TSR_HERE);
    assert_non_null(here);
    assert_int_equal(here->struct_size, sizeof *here);
    assert_int_equal(here->rank, 3);
    assert_int_equal(here->ranks, 4);
    tsr_plugin_registry_destroy(rank);
    tsr_plugin_registry_destroy(r);
}

/* Without a backend there is no service, and no crash. */
static void test_none(void **state)
{
    (void)state;
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_registry *r = NULL;
    assert_int_equal(tsr_plugin_registry_create(&r, NULL, &e.err), TSR_OK);
    const struct tsr_host *h = tsr_plugin_registry_host(r);
    assert_null(h->service(h->ctx, TSR_LINALG));
    assert_null(h->service(h->ctx, TSR_LINALG));
    tsr_plugin_registry_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_linalg),
                                        cmocka_unit_test(test_chosen), cmocka_unit_test(test_none),
                                        cmocka_unit_test(test_here) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
