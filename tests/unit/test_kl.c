/* KL of every choice: figures against an engine that holds the whole model with one layer packed, the fit and the map
 * against numbers worked out by hand. */
#include "checkpoint/tokenizer.h"
#include "engine/engine.h"
#include "quant/kl.h"

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"
#include "config/config.h"
#include "quant/quantize.h"
#include "quant/residuals.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEMO   TSR_SOURCE_ROOT "/configs/demo"
#define SEQLEN 24
#define SEQS   2

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static struct tsr_model     *model;
static struct tsr_tokenizer *tokenizer;
static struct tsr_registry  *registry;
static struct tsr_pool      *pool;

static int setup(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    if (tsr_pool_create(&pool, 2, &e.err) != TSR_OK ||
        tsr_plugin_registry_create(&registry, pool, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_model_load(&model, DEMO, false, &e.err) != TSR_OK ||
        tsr_checkpoint_tokenizer_load(&tokenizer, DEMO, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_tokenizer_destroy(tokenizer);
    tsr_model_destroy(model);
    tsr_plugin_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return 0;
}

/* ---- an engine ---------------------------------------------------------------------------- */

struct parsed {
    struct tsr_config_doc   *doc;
    struct tsr_quant_scheme *s;
};

static struct parsed scheme(const char *yaml)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_diag  *d = NULL;
    struct parsed     p = { 0 };
    OK(tsr_config_diag_create(&d, &err.err));
    OK(tsr_config_doc_parse(&p.doc, "s.yaml", yaml, strlen(yaml), d, &err.err));
    OK(tsr_quant_scheme_create(&p.s, registry, tsr_config_doc_root(p.doc), NULL, "scheme", d,
                               &err.err));
    OK(tsr_config_diag_status(d, &err.err));
    tsr_config_diag_destroy(d);
    return p;
}

static void parsed_free(struct parsed *p)
{
    tsr_quant_scheme_destroy(p->s);
    tsr_config_doc_destroy(p->doc);
}

/* Logits [SEQS * SEQLEN][vocab] of an engine with the whole model. */
static float *logits_with(const struct tsr_quant_calibration *c, const struct tsr_model_overlay *o,
                          uint32_t kv, const struct tsr_engine_compensate *how)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options eo = {
        .kv_dtype = kv, .slots = 1, .context = SEQLEN, .compensate = how
    };
    struct tsr_engine      *e = NULL;
    struct tsr_engine_token t[SEQLEN];
    float                  *v = tsr_new(SEQS * SEQLEN * model->hp.vocab, sizeof *v);
    assert_non_null(v);
    OK(tsr_engine_create(&e, registry, model, o, &eo, &err.err));
    for (uint64_t i = 0; i < SEQS; i++) {
        for (uint64_t k = 0; k < SEQLEN; k++)
            t[k] = (struct tsr_engine_token){ .id = c->ids[i * SEQLEN + k], .logits = true };
        tsr_engine_reset(e, 0);
        OK(tsr_engine_forward(e, t, SEQLEN, v + i * SEQLEN * model->hp.vocab, &err.err));
    }
    tsr_engine_destroy(e);
    return v;
}

static float *logits_of(const struct tsr_quant_calibration *c, const struct tsr_model_overlay *o,
                        uint32_t kv)
{
    return logits_with(c, o, kv, NULL);
}

/* sum p log(p / q) by the definition, the mean over all rows. */
static double kl_of(const float *a, const float *b)
{
    double   mean = 0;
    uint64_t rows = SEQS * SEQLEN, vocab = model->hp.vocab;
    for (uint64_t i = 0; i < rows; i++) {
        const float *p = a + i * vocab, *q = b + i * vocab;
        double       zp = 0, zq = 0;
        for (uint64_t k = 0; k < vocab; k++) {
            zp += exp((double)p[k]);
            zq += exp((double)q[k]);
        }
        for (uint64_t k = 0; k < vocab; k++)
            mean += exp((double)p[k]) / zp * ((double)p[k] - (double)q[k] - log(zp) + log(zq)) /
                    (double)rows;
    }
    return mean;
}

/* The demo model packed by a scheme with rules. */
static double of_rules(const struct tsr_quant_calibration *c, const float *original,
                       const char *yaml)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_model_overlay *o = NULL;
    struct parsed             s = scheme(yaml);
    OK(tsr_quant_scheme_apply(s.s, registry, model, NULL, &o, &err.err));
    float *v = logits_of(c, o, TSR_F32);
    double kl = kl_of(original, v);
    free(v);
    tsr_model_overlay_destroy(o);
    parsed_free(&s);
    return kl;
}

/* With the layers of `which` at 3 bits. */
static double of_layers(const struct tsr_quant_calibration *c, const float *original,
                        const char *which)
{
    char yaml[200];
    (void)snprintf(yaml, sizeof yaml,
                   "{use: rtn, bits: 3, rules: [{layers: 0-5, keep: true}, {layers: \"%s\", keep: "
                   "false}]}",
                   which);
    return of_rules(c, original, yaml);
}

static struct tsr_quant_calibration *calibrate(uint64_t seqlen)
{
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibration      *c = NULL;
    struct tsr_quant_calibrate_options o = {
        .text = DEMO "/calibration.txt", .samples = SEQS, .seqlen = seqlen, .seed = 2, .defer = true
    };
    OK(tsr_quant_calibrate(&c, registry, model, tokenizer, &o, &err.err));
    return c;
}

static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 + 1e-6 * fabs(want)))
        fail_msg("%s: %.12g, not %.12g", what, got, want);
}

static void beside_an_engine(void **state)
{
    (void)state;
    struct tsr_errbuf             err = TSR_ERRBUF(err);
    struct tsr_quant_calibration *c = calibrate(SEQLEN);
    struct parsed                 s3 = scheme("{use: rtn, bits: 3}");
    struct tsr_quant_kl           t;
    struct tsr_quant_kl_options   o = { .n_schemes = 1,
                                        .n_kv = 2,
                                        .n_links = 2,
                                        .n_sums = 1,
                                        .scheme_text = { "rtn:bits=3" },
                                        .scheme = { s3.s },
                                        .kv = { TSR_F32, TSR_I8 },
                                        .link = { "plain", "plain:dtype=bf16" },
                                        .sum = { "mx:element=fp4_e2m1" },
                                        .n_ends = 2,
                                        .end = { "rtn:bits=4", "rtn:bits=8" },
                                        .ranks = 2,
                                        .probes = 3,
                                        .plans = 2,
                                        .seed = 5 };
    OK(tsr_quant_kl_run(&t, registry, model, c, &o, &err.err));
    float *original = logits_of(c, NULL, TSR_F32);
    assert_int_equal(t.tokens, SEQS * SEQLEN);
    for (uint64_t l = 0; l < 6; l++)
        assert_int_equal(t.probed[l], l == 0 || l == 2 || l == 5);
    near("layer 2", t.figure[2].kl, of_layers(c, original, "2"));
    near("layer 5", t.figure[5].kl, of_layers(c, original, "5"));
    for (uint32_t p = 0; p < t.n_plans; p++) {
        char   which[40] = "";
        size_t at = 0;
        for (uint64_t l = 0; l < 6; l++)
            if (t.plan[p].choice[l] == 0)
                at += (size_t)snprintf(which + at, sizeof which - at, "%s%llu", at ? "," : "",
                                       (unsigned long long)l);
        assert_true(at > 0); /* the original says nothing */
        near("a plan", t.plan[p].measured.kl, of_layers(c, original, which));
    }
    /* layers that were not probed: the factor times their error */
    near("layer 3", t.figure[3].kl, t.factor[0] * t.error[3]);
    assert_true(t.error[3] > 0 && t.figure[3].half > 0);
    float *narrow = logits_of(c, NULL, TSR_I8);
    assert_true(t.kv[0].kl == 0 && t.link[0].kl == 0); /* F32 and exact codecs lose nothing */
    near("int8", t.kv[1].kl, kl_of(original, narrow));
    assert_true(t.kv[1].kl > 0 && t.link[1].kl > 0 && t.sum[0].kl > t.link[1].kl);
    assert_true(t.kv[1].half > 0 && isfinite(t.kv[1].half) && t.forwards > 0 && t.said_s > 0);
    near("ends", t.end[0].kl,
         of_rules(c, original,
                  "{use: rtn, bits: 4, rules: [{layers: 0-5, keep: true}, {tensors: lm_head, keep: "
                  "false}, {tensors: model.embed_tokens, keep: false}]}"));
    assert_true(t.end[1].kl > 0 && t.end[1].kl < t.end[0].kl && t.end[0].half > 0);
    free(narrow);
    free(original);
    tsr_quant_kl_free(&t);
    parsed_free(&s3);
    tsr_quant_calibration_destroy(c);
}

/* ---- by hand ------------------------------------------------------------------------------ */

/* What k channels leave, beside the model that a run of its own packs and compensates. */
static void kept(void **state)
{
    (void)state;
    struct tsr_errbuf                    err = TSR_ERRBUF(err);
    struct tsr_quant_calibration        *c = calibrate(SEQLEN);
    struct parsed                        s3 = scheme("{use: rtn, bits: 3}");
    char                                *folder = NULL, own[300], theirs[300];
    struct tsr_quant_kl                  t;
    struct tsr_compensation             *from = NULL;
    struct tsr_model_overlay            *o = NULL;
    uint64_t                             done;
    struct tsr_quant_compensation_report report;
    OK(tsr_temp_folder(&folder, "kl", &err.err));
    (void)snprintf(own, sizeof own, "%s/own", folder);
    (void)snprintf(theirs, sizeof theirs, "%s/theirs", folder);
    struct tsr_quant_kl_options ko = { .n_schemes = 1,
                                       .scheme_text = { "rtn:bits=3" },
                                       .scheme = { s3.s },
                                       .scheme_map = { tsr_config_doc_root(s3.doc) },
                                       .n_k = 3,
                                       .k = { 8, 32, 1024 },
                                       .folder = theirs,
                                       .probes = 1 };
    OK(tsr_quant_kl_run(&t, registry, model, c, &ko, &err.err));
    assert_false(tsr_path_exists(theirs));
    OK(tsr_quantize_model(s3.s, registry, model,
                          &(struct tsr_quantize_options){ .folder = own,
                                                          .options = tsr_config_doc_root(s3.doc),
                                                          .calibration = c },
                          &o, &done, &err.err));
    OK(tsr_quant_compensation_make(registry, model,
                                   &(struct tsr_quant_compensation_options){
                                       .folder = own, .bits = 4, .calibration = c },
                                   &report, &err.err));
    OK(tsr_compensation_open(&from, own, model, &err.err));
    struct tsr_engine_compensate how = { .from = from, .each = 32, .all = true };
    float *original = logits_of(c, NULL, TSR_F32), *bare = logits_of(c, o, TSR_F32),
          *with = logits_with(c, o, TSR_F32, &how);
    near("k = 32", t.left[0][1].kl, kl_of(original, with) / kl_of(original, bare));
    assert_true(t.left[0][0].kl < 1 && t.left[0][1].kl < t.left[0][0].kl &&
                t.left[0][2].kl < 0.05 && t.left[0][1].half > 0);
    free(original);
    free(bare);
    free(with);
    tsr_model_overlay_destroy(o);
    tsr_compensation_destroy(from);
    tsr_quant_kl_free(&t);
    parsed_free(&s3);
    tsr_quant_calibration_destroy(c);
    tsr_temp_folder_remove(folder);
}

static void fit_and_map(void **state)
{
    (void)state;
    /* two probed layers with factors 2 and 8: 4 is their geometric mean, log 2 times the root of 2 their spread */
    double               error[4] = { 1, 3, 0.5, 0 };
    struct tsr_kl_figure figure[4] = { { 2, 0.1 }, { 0, 0 }, { 4, 0.2 }, { 0, 0 } };
    uint8_t              probed[4] = { 1, 0, 1, 0 };
    uint8_t choice[4][4] = { { 0, 1, 1, 1 }, { 1, 1, 0, 1 }, { 0, 0, 1, 1 }, { 0, 0, 0, 0 } };
    struct tsr_quant_kl t = { .layers = 4,
                              .n_schemes = 1,
                              .n_plans = 4,
                              .error = error,
                              .figure = figure,
                              .probed = probed };
    tsr_quant_kl_fit(&t);
    near("factor", t.factor[0], 4);
    near("spread", t.spread[0], log(2) * sqrt(2));
    near("layer 1", figure[1].kl, 12);
    near("its interval", figure[1].half, 12 * (exp(2 * log(2) * sqrt(2)) - 1));
    assert_true(figure[3].kl == 0 && figure[0].kl == 2);
    /* sums 2, 4, 14, 18 that measure 3, 2, 15 and 10: 3 and 2 fall, as 15 and 10 do, and each pair is its mean */
    const double measured[4] = { 3, 2, 15, 10 };
    for (uint32_t p = 0; p < 4; p++) {
        t.plan[p].choice = choice[p];
        t.plan[p].measured = (struct tsr_kl_figure){ measured[p], 0.01 };
    }
    tsr_quant_kl_map(&t);
    assert_true(t.plan[0].w == 2 && t.plan[1].w == 4);
    near("a sum", t.plan[2].w, 14);
    near("a sum", t.plan[3].w, 18);
    assert_true(t.plan[0].fails && t.plan[1].fails);   /* off by 1 with intervals of 0.1 and 0.2 */
    assert_true(!t.plan[2].fails && !t.plan[3].fails); /* layer 1 is known within 73 alone */
    assert_int_equal(t.n_points, 3);
    near("w", t.map_w[1], 3);
    near("kl", t.map_kl[1], 2.5);
    near("w", t.map_w[2], 16);
    near("kl", t.map_kl[2], 12.5);
    assert_true(t.map_w[0] == 0 && t.map_kl[0] == 0);
}

static void bad(void **state)
{
    (void)state;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct tsr_quant_kl           t;
    struct tsr_quant_kl_options   o = { .probes = 1, .n_links = 1, .link = { "int4_bf16" } };
    struct tsr_quant_calibration *c = calibrate(1);
    assert_int_equal(tsr_quant_kl_run(&t, registry, model, c, &o, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "", "seqlen"));
    tsr_quant_calibration_destroy(c);
    c = calibrate(SEQLEN);
    assert_int_equal(tsr_quant_kl_run(&t, registry, model, c, &o, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "int4_bf16", "calibrated"));
    o.probes = 0;
    assert_int_equal(tsr_quant_kl_run(&t, registry, model, c, &o, &e.err), TSR_E_INVAL);
    tsr_quant_calibration_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_an_engine),
        cmocka_unit_test(kept),
        cmocka_unit_test(fit_and_map),
        cmocka_unit_test(bad),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
