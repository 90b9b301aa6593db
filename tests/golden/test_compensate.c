/* An engine with compensation: against weights that have the residuals added, and the same bytes for any
 * chunk, batch, number of threads and device. */
#include "compensated.h"
#include "wide.h"

#include "engine/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- weights with the residuals added ------------------------------------------------------------ */

/* Ŵ, with the residual of the channels that `list` has, as a plugin's own dense format. */
static void add_residual(struct tsr_model_packed *p, const struct tsr_compensate_residual *r,
                         const uint32_t *list)
{
    float *w = malloc(p->rows * p->cols * sizeof *w);
    assert_non_null(w);
    assert_int_equal(tsr_model_packed_dequantize(p, 0, p->rows, w, NULL), TSR_OK);
    for (uint32_t k = 1; k <= list[0]; k++)
        for (uint64_t n = 0; n < p->rows; n++)
            w[n * p->cols + list[k]] += tsr_compensate_residual_value(r, list[k], n);
    tsr_model_packed_drop(p);
    p->ordered = false;
    p->dense = w;
    p->format.id = "test.dense/1";
}

static void against_weights(const char *name, const char *scheme, uint32_t bits, uint32_t k,
                            enum tsr_compensate_select select)
{
    char                           folder[64];
    struct tsr_model              *m = wide_load(name, false, folder);
    struct tsr_model_overlay      *o = wide_pack(compensated_registry, m, scheme);
    const struct tsr_compensation *c = compensated_residuals(m, o, bits);
    struct tsr_engine_compensate   use = { .from = c, .each = k, .select = select, .all = true };
    struct compensated_script      s = compensated_write_script(m->hp.vocab);
    float                         *got =
        compensated_run_script(compensated_engine(compensated_registry, m, o, &use, 0, NULL), &s);
    float *bare =
        compensated_run_script(compensated_engine(compensated_registry, m, o, NULL, 0, NULL), &s);
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < c->linears; i++) {
            const struct tsr_compensate_site_profile *p =
                &c->site[l][tsr_model_linear_site((enum tsr_linear_id)i)];
            if (!o->lin[l][i])
                continue;
            uint64_t  n = tsr_compensate_select_count(k, p->cols);
            uint32_t *list = malloc((1 + n) * 4), *scratch = malloc(p->cols * 4);
            assert_true(list && scratch);
            tsr_compensate_select_top(select == TSR_COMPENSATE_SELECT_STATIC_MEANSQ ? p->meansq
                                                                                    : p->lost,
                                      p->cols, n, list, scratch);
            add_residual(o->lin[l][i], &c->lin[l][i], list);
            free(list);
            free(scratch);
        }
    float *want =
        compensated_run_script(compensated_engine(compensated_registry, m, o, NULL, 0, NULL), &s);
    double worst = 0, moved = 0, range = 0;
    for (uint64_t i = 0; i < s.logits * m->hp.vocab; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        moved = fmax(moved, fabs((double)got[i] - (double)bare[i]));
        range = fmax(range, fabs((double)want[i]));
        assert_true(isfinite(got[i]));
    }
    /* the same sums in F32 in another order, through three layers */
    if (!(worst < 1e-4 * range))
        fail_msg("%s: %g from weights with residuals, of %g", scheme, worst, range);
    if (!(moved > 20 * worst))
        fail_msg("%s: compensation changed %g, the comparison sees %g", scheme, moved, worst);
    free(got);
    free(bare);
    free(want);
    compensated_residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_weights(void **state)
{
    (void)state;
    against_weights(WIDE_EXPERTS, "use: rtn\nbits: 3\ngroup: 64\n", 4, 256,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    against_weights(WIDE_SHARED_EXPERT, "use: rtn\nbits: 3\ngroup: 64\n", 4, 256,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    for (int i = 0; wide_latent_names[i]; i++)
        against_weights(wide_latent_names[i], "use: rtn\nbits: 3\ngroup: 16\n", 4, 256,
                        TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    for (int i = 0; wide_delta_names[i]; i++)
        against_weights(wide_delta_names[i], "use: rtn\nbits: 3\ngroup: 16\n", 4, 256,
                        TSR_COMPENSATE_SELECT_STATIC_HESSIAN);
    against_weights(wide_names[0], "use: rtn\nbits: 3\ngroup: 64\n", 4, 256,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    against_weights(wide_names[0], "use: squeeze\nbits: 3\nsensitivity: none\n", 8, 100,
                    TSR_COMPENSATE_SELECT_STATIC_HESSIAN);
    against_weights(wide_names[0], "use: rtn\nbits: 4\ngroup: 32\n", 16, 1024,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    against_weights(wide_names[0], "use: mx\nelement: fp4_e2m1\n", 2, 512,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
}

/* All of an F16 residual is the original. */
static void whole(const char *name)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(name, false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 2\ngroup: 64\n");
    const struct tsr_compensation *c = compensated_residuals(m, o, 16);
    struct tsr_engine_compensate   use = { .from = c, .each = 1024, .all = true };
    struct compensated_script      s = compensated_write_script(m->hp.vocab);
    float                         *got =
        compensated_run_script(compensated_engine(compensated_registry, m, o, &use, 0, NULL), &s);
    float *want =
        compensated_run_script(compensated_engine(compensated_registry, m, NULL, NULL, 0, NULL),
                               &s);
    double worst = 0, range = 0;
    for (uint64_t i = 0; i < s.logits * m->hp.vocab; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        range = fmax(range, fabs((double)want[i]));
    }
    /* half a unit of F16 of what two bits lose: 2^-12 of about a fifth of a weight */
    assert_true(worst < 2e-3 * range);
    free(got);
    free(want);
    compensated_residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_whole(void **state)
{
    (void)state;
    whole(wide_names[0]);
    whole(WIDE_EXPERTS);
    whole(wide_latent_names[0]);
    whole(wide_delta_names[0]);
}

/* ---- one arithmetic -------------------------------------------------------------------------------- */

/* A device that has no table of its own. */
static const struct tsr_backend_v1 *real;

static tsr_status other_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    return real->run(self, stream, op, err);
}

static struct tsr_engine *bare_engine(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                      const struct tsr_engine_compensate *use, uint64_t cpu_experts,
                                      struct tsr_backend_v1 *table, struct tsr_engine_device **dev,
                                      void **self)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_plugin_found   f;
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = { .on.cpu_experts = cpu_experts,
                                      .act = TSR_ACT_F32,
                                      .kv_dtype = TSR_F32,
                                      .slots = COMPENSATED_SLOTS,
                                      .context = 32,
                                      .compensate = use };
    char                      options[1024] = { 0 };
    assert_int_equal(tsr_plugin_registry_find(compensated_registry, TSR_KIND_BACKEND, "cpu", &f,
                                              &err.err),
                     TSR_OK);
    real = f.iface;
    *table = *real;
    table->run = other_run;
    table->extension = NULL;
    assert_true(f.component->options_size <= sizeof options);
    assert_int_equal(real->create(tsr_plugin_registry_host(compensated_registry), options, self,
                                  &err.err),
                     TSR_OK);
    if (tsr_engine_device_wrap(dev, compensated_registry, table, *self, &err.err) != TSR_OK ||
        tsr_engine_create_on(&e, *dev, m, o, &opt, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    return e;
}

static void same(const char *what, float *got, const float *want, uint64_t floats)
{
    for (uint64_t i = 0; i < floats; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: logit %llu is %g instead of %g", what, (unsigned long long)i,
                     (double)got[i], (double)want[i]);
    free(got);
}

/* Of the first layers, or of all, the CPU runs the experts and compensates them. */
static void experts_on_cpu(const struct tsr_model *m, const struct tsr_model_overlay *o,
                           const struct tsr_engine_compensate *use,
                           const struct compensated_script *s, const float *want)
{
    static const uint64_t layers[] = { 1, 2, UINT64_MAX };
    uint64_t              floats = s->logits * m->hp.vocab;
    for (int i = 0; i < 3; i++) {
        struct tsr_engine_options opt = { .on = { .backend = "vault", .cpu_experts = layers[i] },
                                          .act = TSR_ACT_F32,
                                          .kv_dtype = TSR_F32,
                                          .slots = COMPENSATED_SLOTS,
                                          .context = 32,
                                          .chunk = i == 1 ? 5 : 0,
                                          .compensate = use };
        struct tsr_backend_v1     table;
        struct tsr_engine_device *dev = NULL;
        void                     *self = NULL;
        if (compensated_vault)
            same("vault and CPU",
                 compensated_run_script(golden_engine(compensated_registry, m, o, opt), s), want,
                 floats);
        same("no table and CPU",
             compensated_run_script(bare_engine(m, o, use, layers[i], &table, &dev, &self), s),
             want, floats);
        tsr_engine_device_close(dev);
        real->destroy(self);
    }
}

static void one_arithmetic(const struct tsr_model *m, const struct tsr_model_overlay *o,
                           const struct tsr_engine_compensate *use)
{
    struct compensated_script s = compensated_write_script(m->hp.vocab), alone;
    uint64_t                  floats = s.logits * m->hp.vocab;
    float                    *want =
        compensated_run_script(compensated_engine(compensated_registry, m, o, use, 0, NULL), &s);
    struct tsr_backend_v1     table;
    struct tsr_engine_device *dev = NULL;
    void                     *self = NULL;
    same("chunks of 5",
         compensated_run_script(compensated_engine(compensated_registry, m, o, use, 5, NULL), &s),
         want, floats);
    same("chunks of 1",
         compensated_run_script(compensated_engine(compensated_registry, m, o, use, 1, NULL), &s),
         want, floats);
    same("three threads",
         compensated_run_script(compensated_engine(compensated_threaded, m, o, use, 0, NULL), &s),
         want, floats);
    if (compensated_vault)
        same("vault",
             compensated_run_script(compensated_engine(compensated_registry, m, o, use, 0, "vault"),
                                    &s),
             want, floats);
    same("no table", compensated_run_script(bare_engine(m, o, use, 0, &table, &dev, &self), &s),
         want, floats);
    tsr_engine_device_close(dev);
    real->destroy(self);
    if (m->hp.experts)
        experts_on_cpu(m, o, use, &s, want);
    /* slot 1 without its neighbours */
    alone = s;
    uint64_t floats_of = m->hp.vocab;
    float   *expect = malloc(floats * sizeof *expect), *to = expect;
    assert_non_null(expect);
    for (uint32_t k = 0, from = 0; k < COMPENSATED_STEPS; k++) {
        alone.n[k] = 0;
        for (uint64_t i = 0; i < s.n[k]; i++, from++)
            if (s.token[k][i].slot == 1) {
                alone.token[k][alone.n[k]++] = s.token[k][i];
                memcpy(to, want + from * floats_of, floats_of * sizeof *to);
                to += floats_of;
            }
        alone.wanted[k] = alone.n[k];
    }
    alone.logits = (uint64_t)(to - expect) / floats_of;
    same("alone",
         compensated_run_script(compensated_engine(compensated_registry, m, o, use, 0, NULL),
                                &alone),
         expect, alone.logits * floats_of);
    free(expect);
    free(want);
}

static void invariance(const char *name, int ways)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(name, false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    for (int way = 0; way < ways; way++) {
        const struct tsr_compensation *c = compensated_residuals(m, o, way == 1 ? 8 : 4);
        struct tsr_engine_compensate   use = { .from = c,
                                               .each = 90,
                                               .select = (enum tsr_compensate_select)way,
                                               .all = way == 0,
                                               .recall = way != 2,
                                               .seed = 4 };
        one_arithmetic(m, o, &use);
        compensated_residuals_free(m, c);
    }
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_invariance(void **state)
{
    (void)state;
    invariance(wide_names[0], 5);
    invariance(WIDE_EXPERTS, 3);
    invariance(WIDE_SHARED_EXPERT, 3);
    invariance(wide_latent_names[0], 3);
    invariance(wide_delta_names[0], 3);
}

/* Which tokens, how many channels, what a selection finds again. */
static void test_counts(void **state)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(wide_names[0], false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    const struct tsr_compensation *c = compensated_residuals(m, o, 4);
    struct compensated_script      s = compensated_write_script(m->hp.vocab);
    struct tsr_engine_compensated  done;
    struct tsr_errbuf              err = TSR_ERRBUF(err);
    uint64_t                       each = 0, decoded = 0, linears = 0;
    float                         *logits = malloc(COMPENSATED_MOST * m->hp.vocab * sizeof *logits);
    uint32_t                       k[WIDE_LAYERS][TSR_MODEL_SITES] = { { 64, 0, 32, 8 },
                                                                       { 0, 0, 0, 0 },
                                                                       { 1024, 1, 1, 1 } };
    (void)state;
    assert_non_null(logits);
    struct tsr_engine_compensate use = { .from = c,
                                         .k = (const uint32_t(*)[TSR_MODEL_SITES])k,
                                         .select = TSR_COMPENSATE_SELECT_EXACT,
                                         .recall = true };
    struct tsr_engine           *e = compensated_engine(compensated_registry, m, o, &use, 0, NULL);
    memset(k, 0, sizeof k); /* was read */
    static const uint32_t again[WIDE_LAYERS][TSR_MODEL_SITES] = { { 64, 0, 32, 8 },
                                                                  { 0, 0, 0, 0 },
                                                                  { 1024, 1, 1, 1 } };
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
            enum tsr_site site = tsr_model_linear_site((enum tsr_linear_id)i);
            uint64_t      n = tsr_compensate_select_count(again[l][site], c->site[l][site].cols);
            linears += n && o->lin[l][i];
            if (i == TSR_MODEL_Q || i == TSR_MODEL_O || i == TSR_MODEL_UP || i == TSR_MODEL_DOWN)
                each += n;
        }
    for (uint32_t t = 0; t < COMPENSATED_STEPS; t++) {
        if (tsr_engine_forward(e, s.token[t], s.n[t], logits, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        for (uint64_t i = 0; i < s.n[t]; i++)
            decoded += s.token[t][i].decode;
    }
    tsr_engine_compensation(e, &done);
    assert_true(decoded == 5 && done.tokens == decoded);
    assert_int_equal(done.linears, linears);
    assert_int_equal(done.selected, decoded * each);
    assert_true(done.exact == done.selected && done.common == done.exact);
    assert_true(done.host_bytes > 0);
    tsr_engine_destroy(e);
    free(logits);
    compensated_residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_counts),
    };
    compensated_vault = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, compensated_set_up, compensated_tear_down);
}
