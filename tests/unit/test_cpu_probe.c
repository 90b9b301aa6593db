/* The CPU backend's arithmetic that has no kernel of its own: what probes count is made, rates per cycle are whole
 * instructions, and products by reciprocals are quotients. */
#include "cpu_fixture.h"

#include "probe.h"
#include <math.h>

#define ROUNDS 240 /* a multiple of every chain count */

/* Each round adds 4*3 + 3*2 - 2*1 + 1*1 to 16 lanes. */
static void products(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        const int32_t first = c->k->probe_dot(ROUNDS);
        for (int32_t n = 2; n < 100; n++)
            assert_int_equal(c->k->probe_dot((uint64_t)n * ROUNDS) - first,
                             (n - 1) * ROUNDS * 16 * 17);
        tsr_cpu_destroy(c);
    }
}

/* Two rounds of each chain, whose lanes begin with 0, 1, 2 and so on: x * 0.999 + 0.5. */
static void multiply_adds(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        const enum tsr_cpu_set set = tsr_cpu_set_of(c->k);
        const int              chains = set == TSR_CPU_AVX512 ? 16 : set == TSR_CPU_AVX2 ? 6 : 1;
        double                 want = 0;
        for (int i = 0; i < 16 * chains; i++)
            want += (double)fmaf(fmaf((float)i, 0.999f, 0.5f), 0.999f, 0.5f);
        /* each addition of a chain or a tree rounds once: by at most 2^-24 of the sum */
        assert_true(fabs((double)c->k->probe_fma(2 * (uint64_t)chains) - want) <=
                    (chains + 4) * 0x1p-24 * want);
        tsr_cpu_destroy(c);
    }
}

/* Instructions of 512 bits: two a cycle, one, or one in two cycles. */
static void widths(void **state)
{
    static const struct {
        double ratio, width;
    } of[] = { { 2.02, 2 }, { 1.6, 2 },  { 1.42, 2 },  { 1.41, 1 }, { 1, 1 },
               { 0.93, 1 }, { 0.71, 1 }, { 0.7, 0.5 }, { 0.5, 0.5 } };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_true(tsr_cpu_probe_width(of[i].ratio) == of[i].width);
}

static void rates(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        const struct tsr_probe_v1 *p = tsr_cpu_probe(c);
        const bool                 wide = tsr_cpu_set_of(c->k) == TSR_CPU_AVX512;
        const double               fma = p->fma_per_cycle / 16, dot = p->dot_per_cycle / 64;
        assert_ptr_equal(p, tsr_cpu_probe(c));
        if (wide)
            assert_true((fma == 0.5 || fma == 1 || fma == 2) &&
                        (dot == 0.5 || dot == 1 || dot == 2));
        else
            assert_true(fma == (tsr_cpu_set_of(c->k) == TSR_CPU_AVX2 ? 1 : 0) && dot == 0);
        assert_true(p->bf16_per_cycle == 0); /* numerics: exact */
        tsr_cpu_destroy(c);
    }
}

/* e / d as kernels without divisions round it (k_one_elements.h): every mantissa of d, and the sixteen of E4M3. */
#if defined(__x86_64__)
static __attribute__((target("fma"))) uint64_t quotients_apart(void)
{
    uint64_t apart = 0;
    for (uint32_t m = 0; m < 1u << 23; m++) {
        const uint32_t bits = 0x3f800000u | m;
        float          d;
        memcpy(&d, &bits, 4);
        const float r = 1.0f / d;
        for (int i = 0; i < 16; i++) {
            const float e = (float)i, q = e * r;
            apart += __builtin_fmaf(__builtin_fmaf(-d, q, e), r, q) != e / d;
        }
    }
    return apart;
}
#endif

static void quotients(void **state)
{
    (void)state;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("fma"))
        skip();
    assert_int_equal(quotients_apart(), 0);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products), cmocka_unit_test(multiply_adds), cmocka_unit_test(widths),
        cmocka_unit_test(rates),    cmocka_unit_test(quotients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
