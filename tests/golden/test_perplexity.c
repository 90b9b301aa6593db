/* The whole held-out text: what transformers in F32 gives on the windows of 512 tokens (50.1676), and on those of 2048 after
 * round to nearest at 3 bits.  One of them, by TSR_TEST_SEED, unless TSR_TEST_ALL is set.  e2e-quickstart has the
 * windows of 2048 of the model as it is (49.4654). */
#include "checkpoint/tokenizer.h"
#include "config/config.h"
#include "eval/eval.h"
#include "quant/scheme.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEMO TSR_SOURCE_ROOT "/configs/demo"

static struct tsr_model     *model;
static struct tsr_tokenizer *tokenizer;
static struct tsr_registry  *registry;
static struct tsr_pool      *pool;

static struct tsr_model_overlay *quantized(const char *yaml)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_config_doc    *doc = NULL;
    struct tsr_diag          *d = NULL;
    struct tsr_quant_scheme  *s = NULL;
    struct tsr_model_overlay *o = NULL;
    if (tsr_config_diag_create(&d, &e.err) != TSR_OK ||
        tsr_config_doc_parse(&doc, "scheme", yaml, strlen(yaml), d, &e.err) != TSR_OK ||
        tsr_quant_scheme_create(&s, registry, tsr_config_doc_root(doc), NULL, "scheme", d,
                                &e.err) != TSR_OK ||
        tsr_config_diag_status(d, &e.err) != TSR_OK ||
        tsr_quant_scheme_apply(s, registry, model, NULL, &o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    return o;
}

static double perplexity(const char *scheme, enum tsr_protocol protocol)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_eval_windows  *w = NULL;
    struct tsr_engine        *g = NULL;
    struct tsr_eval_result    r;
    struct tsr_eval_options   eo = { .protocol = protocol };
    struct tsr_engine_options go = { .slots = 1, .kv_dtype = TSR_F32 };
    struct tsr_model_overlay *o = scheme ? quantized(scheme) : NULL;
    if (tsr_eval_windows_create(&w, tokenizer, model, DEMO "/held-out.txt", &eo, &e.err) !=
            TSR_OK ||
        tsr_engine_create(&g, registry, model, o, &go, &e.err) != TSR_OK ||
        tsr_eval_run(g, NULL, pool, w, &r, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_engine_destroy(g);
    tsr_model_overlay_destroy(o);
    tsr_eval_windows_destroy(w);
    return r.perplexity;
}

/* The recorded value has four decimals. */
static void test_windows_of_512(void **state)
{
    (void)state;
    assert_true(fabs(perplexity(NULL, TSR_EVAL_PPL_LLAMACPP_512) - 50.1676) <= 0.00005);
}

/* Recorded with three: F32 scales, asymmetric, groups of 128. */
static void test_three_bits(void **state)
{
    (void)state;
    double p = perplexity("{use: rtn, bits: 3, group: 128, scale: f32}", TSR_EVAL_PPL_GPTQ_2048);
    assert_true(fabs(p - 56.636) <= 0.0005);
}

int main(void)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_pool_create(&pool, 0, &e.err) != TSR_OK ||
        tsr_plugin_registry_create(&registry, pool, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_model_load(&model, DEMO, false, &e.err) != TSR_OK ||
        tsr_checkpoint_tokenizer_load(&tokenizer, DEMO, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return 1;
    }
    const struct CMUnitTest windows[] = { cmocka_unit_test(test_windows_of_512) };
    const struct CMUnitTest bits[] = { cmocka_unit_test(test_three_bits) };
    const char             *all = getenv("TSR_TEST_ALL"), *seed = getenv("TSR_TEST_SEED");
    bool                    whole = all && *all, odd = seed && strtoull(seed, NULL, 10) % 2;
    int                     rc = 0;
    if (whole || !odd)
        rc += cmocka_run_group_tests(windows, NULL, NULL);
    if (whole || odd)
        rc += cmocka_run_group_tests(bits, NULL, NULL);
    tsr_tokenizer_destroy(tokenizer);
    tsr_model_destroy(model);
    tsr_plugin_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return rc;
}
