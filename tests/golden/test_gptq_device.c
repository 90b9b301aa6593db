/* gptq with the linear algebra of a device (numerics: fast): on the recorded cases, layer errors beside
 * those of the CPU.
 *
 *   test_gptq_device BACKEND PLUGIN
 */
#include "gptq_case.h"
#include "place.h"

#include "base/mem.h"
#include "tessera/backend.h"
#include "tessera/linalg.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char             *backend, *plugin;
static struct tsr_pool        *pool;
static struct tsr_registry    *device, *cpu;
static struct tsr_plugin_found on_device, on_cpu;

static int setup(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (gptq_setup(state) != 0)
        return -1;
    cpu = gptq_registry;
    on_cpu = gptq_found;
    struct tsr_plugin_run_on on = { .backend = backend, .numerics = TSR_NUMERICS_FAST };
    if (tsr_pool_create(&pool, 2, &e.err) != TSR_OK ||
        tsr_plugin_registry_create_on(&device, pool, &on, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(device, TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(device, plugin, &e.err) != TSR_OK ||
        tsr_plugin_registry_find(device, TSR_KIND_QUANTIZER, "gptq", &on_device, &e.err) !=
            TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    gptq_registry = cpu;
    gptq_found = on_cpu;
    tsr_plugin_registry_destroy(device);
    tsr_pool_destroy(pool);
    return gptq_teardown(state);
}

static void use(struct tsr_registry *r, struct tsr_plugin_found f)
{
    gptq_registry = r;
    gptq_found = f;
}

/* The host gives gptq the device's table and not the CPU's. */
static void test_service(void **state)
{
    const struct tsr_host      *h = tsr_plugin_registry_host(device);
    const struct tsr_linalg_v1 *l = h->service(h->ctx, TSR_LINALG);
    (void)state;
    assert_non_null(l);
    assert_true(TSR_HAS(struct tsr_linalg_v1, l, hold));
    h = tsr_plugin_registry_host(cpu);
    l = h->service(h->ctx, TSR_LINALG);
    assert_non_null(l);
    assert_false(TSR_HAS(struct tsr_linalg_v1, l, hold));
}

/* Sums in another order move a weight that lies in the middle of two codes, and with it what comes
 * after.  The bound is the one that is promised; nothing here is drawn. */
static void test_recorded(void **state)
{
    size_t        i;
    const json_t *c;
    double        product = 0.0, worst = 0.0;
    uint64_t      moved = 0;
    (void)state;
    json_array_foreach (json_object_get(gptq_cases, "cases"), i, c) {
        struct gptq_case   p = gptq_case_open(c);
        struct gptq_result r[2];
        double             error[2];
        for (int d = 0; d < 2; d++) {
            use(d ? device : cpu, d ? on_device : on_cpu);
            gptq_quantize(&r[d], &p.o, p.w, p.h, p.rows, p.cols);
            gptq_must(r[d].status, &r[d].err);
            error[d] = gptq_layer_error(p.w, r[d].dense, p.h, p.rows, p.cols);
        }
        for (uint64_t k = 0; k < p.rows * p.cols; k++)
            moved += r[0].dense[k] != r[1].dense[k];
        double ratio = error[1] / error[0];
        if (!(ratio > 0.0) || !(ratio <= 1.001))
            fail_msg("%s: layer error %g, on the CPU %g", p.name, error[1], error[0]);
        worst = fmax(worst, ratio);
        product += log(ratio);
        for (int d = 0; d < 2; d++)
            gptq_result_free(&r[d]);
        gptq_case_close(&p);
    }
    assert_int_equal(i, 27);
    double mean = exp(product / (double)i);
    print_message(
        "layer errors over the CPU's: geometric mean %.6f, worst %.6f; %llu weights differ\n", mean,
        worst, (unsigned long long)moved);
    assert_true(moved > 0); /* or it was not the device */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_service),
                                        cmocka_unit_test(test_recorded) };
    if (argc != 3) {
        (void)fprintf(stderr, "usage: test_gptq_device BACKEND PLUGIN\n");
        return 2;
    }
    backend = argv[1];
    plugin = argv[2];
    return cmocka_run_group_tests(tests, setup, teardown);
}
