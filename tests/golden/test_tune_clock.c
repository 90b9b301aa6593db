/* The tuner on the emulated GPU with a made-up clock: which times it takes, for which channels and thread blocks, and what
 * it makes of them.  The linker puts the clock between (--wrap).  The kernels of some measurements run. */
#include "compensated.h"
#include "wide.h"

#include "engine/compensator.h"
#include "pipeline/steps/tuning.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Microseconds of a layer's linears of a kind without compensation: q, k, v; o; gate, up; down. */
static const double bare_us[TSR_MODEL_SITES] = { 10, 3, 20, 12 };

/* Blocks take something off the linears, and share the reading. */
static double made_us(enum tsr_site kind, uint32_t k, uint32_t blocks)
{
    return bare_us[kind] + (k ? 0.01 * blocks + 0.4 * k / blocks : 0);
}

static struct {
    uint32_t k, blocks[TSR_MODEL_SITES];
    uint64_t measured;
} now;

tsr_status __real_tsr_engine_compensate_k(struct tsr_engine *e,
                                          const uint32_t (*k)[TSR_MODEL_SITES], uint32_t each,
                                          struct tsr_err *err);
tsr_status __wrap_tsr_engine_compensate_k(struct tsr_engine *e,
                                          const uint32_t (*k)[TSR_MODEL_SITES], uint32_t each,
                                          struct tsr_err *err);
void __real_tsr_engine_compensate_blocks(struct tsr_engine *e, enum tsr_site kind, uint32_t blocks);
void __wrap_tsr_engine_compensate_blocks(struct tsr_engine *e, enum tsr_site kind, uint32_t blocks);
tsr_status __real_tsr_engine_time_site(struct tsr_engine *e, enum tsr_site kind, uint32_t repeats,
                                       double *seconds, struct tsr_err *err);
tsr_status __wrap_tsr_engine_time_site(struct tsr_engine *e, enum tsr_site kind, uint32_t repeats,
                                       double *seconds, struct tsr_err *err);

tsr_status __wrap_tsr_engine_compensate_k(struct tsr_engine *e,
                                          const uint32_t (*k)[TSR_MODEL_SITES], uint32_t each,
                                          struct tsr_err *err)
{
    assert_null(k);
    now.k = each;
    return __real_tsr_engine_compensate_k(e, k, each, err);
}

void __wrap_tsr_engine_compensate_blocks(struct tsr_engine *e, enum tsr_site kind, uint32_t blocks)
{
    now.blocks[kind] = blocks;
    __real_tsr_engine_compensate_blocks(e, kind, blocks);
}

tsr_status __wrap_tsr_engine_time_site(struct tsr_engine *e, enum tsr_site kind, uint32_t repeats,
                                       double *seconds, struct tsr_err *err)
{
    if (kind != TSR_MODEL_SITE_FFN_IN && (now.k == 0 || now.k == TSR_COMPENSATE_CHUNK)) {
        double real = 0;
        TSR_TRY(__real_tsr_engine_time_site(e, kind, repeats, &real, err));
        assert_true(real > 0);
    }
    for (uint64_t l = 0; l < e->model->hp.layers; l++)
        assert_int_equal(e->comp->site[l][kind].blocks, now.blocks[kind]);
    now.measured++;
    *seconds = 1e-6 * made_us(kind, now.k, now.blocks[kind]) * (double)e->model->hp.layers;
    return TSR_OK;
}

/* Of the numbers of blocks the one with which the most channels fit, of the kinds that are not skipped. */
static uint32_t common_of(const struct tsr_compensate_tune_module *m, double limit_us,
                          uint32_t *blocks)
{
    uint32_t best = 0;
    for (uint32_t b = 0; b < m->n_blocks; b++) {
        uint32_t k = 0;
        for (double all = 0; k < TSR_COMPENSATE_CHUNK; k++) {
            all = bare_us[TSR_MODEL_SITE_O_IN];
            for (int s = 0; s < TSR_MODEL_SITES; s++)
                if (s != TSR_MODEL_SITE_O_IN)
                    all += made_us((enum tsr_site)s, k + 1, m->blocks[b]);
            if (!(all <= limit_us))
                break;
        }
        if (k > best) {
            best = k;
            *blocks = m->blocks[b];
        }
    }
    return best;
}

static void check_table(const struct tsr_compensate_tune_table *t, uint32_t most)
{
    assert_true(t->n == TSR_MODEL_SITES && t->least_us == 4);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct tsr_compensate_tune_module *m = &t->m[i];
        uint32_t                                 first = 1;
        assert_true(m->n_blocks > 1 && m->blocks[m->n_blocks - 1] == most && m->blocks[0] == 1);
        assert_true(fabs(m->base * 1e3 - bare_us[i]) < 1e-9);
        while (!tsr_compensate_select_count(first, m->inputs))
            first++;
        for (uint32_t b = 0; b < m->n_blocks;
             b++) /* lines between the measured points are exact here */
            for (uint32_t k = 0; k < m->n_k; k++) {
                double want = made_us((enum tsr_site)i, k < first ? 0 : k, m->blocks[b]);
                double got = 1e3 * m->ms[(uint64_t)b * m->n_k + k];
                if (!(fabs(got - want) < 1e-6))
                    fail_msg("%s, %u blocks, k %u: %g us instead of %g", m->name, m->blocks[b], k,
                             got, want);
            }
    }
}

static void test_tune(void **state)
{
    char                      folder[64];
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_model         *m = wide_load(wide_names[0], false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 4\ngroup: 32\n");
    const struct tsr_compensation    *c = compensated_residuals(m, o, 4);
    struct tsr_plugin_run_on          on = { .backend = "simt" };
    struct tsr_compensate_tune_table  t;
    struct tsr_compensate_tune_result r;
    uint32_t                          k[TSR_MODEL_SITES], blocks[TSR_MODEL_SITES], want = 0;
    (void)state;
    if (tsr_step_tuning_measure(&t, compensated_registry, m, o, c, &on, TSR_ACT_A8, 1, &err.err) !=
        TSR_OK)
        fail_msg("%s", err.text);
    check_table(&t, t.m[0].blocks[t.m[0].n_blocks - 1]);
    assert_true(now.measured > 100);
    assert_int_equal(tsr_compensate_tune(&t, 0.2, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, &err.err),
                     TSR_OK);
    /* o takes 3 us: it is skipped; the others share 45 us * 1.2 */
    assert_int_equal(r.common, common_of(&t.m[0], 54, &want));
    assert_int_equal(r.most_blocks, want);
    tsr_step_tuning_sites(&t, &r, k);
    tsr_step_tuning_blocks(&t, &r, blocks);
    for (int s = 0; s < TSR_MODEL_SITES; s++) {
        assert_int_equal(r.skipped[s], s == TSR_MODEL_SITE_O_IN);
        assert_int_equal(blocks[s], s == TSR_MODEL_SITE_O_IN ? 0 : want);
        assert_true(s == TSR_MODEL_SITE_O_IN ? k[s] == 0 : k[s] >= r.common);
    }
    assert_true(r.total <= 1.2 * r.base);
    tsr_compensate_tune_free(&t);
    compensated_residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tune) };
    compensated_vault = argc > 1 ? argv[1] : NULL; /* the emulated device */
    return cmocka_run_group_tests(tests, compensated_set_up, compensated_tear_down);
}
