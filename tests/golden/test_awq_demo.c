/* AWQ beside round to nearest on the demo model: the same windows of the held-out text through
 * both, and a 95 % interval of the paired difference.  With TSR_TEST_ALL it is of the loss, the
 * logarithm of perplexity, on the whole text; on a few windows chance is larger than what 4 bits
 * cost, so that there the divergence from the original is compared, which varies less. */
#include "checkpoint/tokenizer.h"
#include "config/config.h"
#include "eval/eval.h"
#include "quant/calibrate.h"
#include "quant/scheme.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEMO    TSR_SOURCE_ROOT "/configs/demo"
#define WINDOWS 38 /* of 1024 tokens in the whole text */
#define FEW     12 /* of 256, unless all is asked for */

static struct tsr_model             *model;
static struct tsr_tokenizer         *tokenizer;
static struct tsr_registry          *registry;
static struct tsr_pool              *pool;
static struct tsr_quant_calibration *calibration;
static struct tsr_eval_windows      *windows;

static struct tsr_engine *quantized(const char *use, int bits, struct tsr_model_overlay **o)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_config_doc    *doc = NULL;
    struct tsr_diag          *d = NULL;
    struct tsr_quant_scheme  *s = NULL;
    struct tsr_engine        *g = NULL;
    struct tsr_engine_options go = { .slots = 1, .kv_dtype = TSR_F32 };
    char                      yaml[80];
    (void)snprintf(yaml, sizeof yaml, "{use: %s, bits: %d, group: 128}", use, bits);
    if (tsr_config_diag_create(&d, &e.err) != TSR_OK ||
        tsr_config_doc_parse(&doc, "scheme", yaml, strlen(yaml), d, &e.err) != TSR_OK ||
        tsr_quant_scheme_create(&s, registry, tsr_config_doc_root(doc), NULL, "scheme", d,
                                &e.err) != TSR_OK ||
        tsr_config_diag_status(d, &e.err) != TSR_OK ||
        tsr_quant_scheme_apply(s, registry, model, calibration, o, &e.err) != TSR_OK ||
        tsr_engine_create(&g, registry, model, *o, &go, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    return g;
}

/* Mean loss of one window alone, or its mean KL to the original. */
static double measure(struct tsr_engine *g, struct tsr_engine *original, uint64_t i)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_eval_windows one = *windows;
    struct tsr_eval_result  r;
    one.start += i;
    one.score_from += i;
    one.weight += i;
    one.n = 1;
    if (tsr_eval_run(g, original, pool, &one, &r, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return original ? r.kl_mean : r.mean_nll;
}

/* Quantile 0.975 of Student's t for n - 1 degrees of freedom. */
static double student(uint64_t n)
{
    return n == WINDOWS ? 2.026 : n == FEW ? 2.201 : NAN;
}

/* AWQ's measure is lower by more than `least`. */
static void check_bits(int bits, struct tsr_engine *original, double least)
{
    struct tsr_model_overlay *plain = NULL, *awq = NULL;
    struct tsr_engine        *a = quantized("rtn", bits, &plain), *b = quantized("awq", bits, &awq);
    uint64_t                  n = windows->n;
    double                    d[WINDOWS], mean = 0.0, spread = 0.0, first = 0.0;
    const char               *what = original ? "KL" : "loss";
    assert_true(n <= WINDOWS);
    for (uint64_t i = 0; i < n; i++) {
        double x = measure(a, original, i);
        d[i] = measure(b, original, i) - x;
        mean += d[i] / (double)n;
        first += x / (double)n;
    }
    for (uint64_t i = 0; i < n; i++)
        spread += (d[i] - mean) * (d[i] - mean) / (double)(n - 1);
    double half = student(n) * sqrt(spread / (double)n);
    print_message("%d bits, %d windows: mean %s %.5f by rtn, %.5f by awq, lower by %.5f +- %.5f\n",
                  bits, (int)n, what, first, first + mean, -mean, half);
    if (!(mean + half < -least))
        fail_msg("%d bits: awq's %s differs by %.5f +- %.5f", bits, what, mean, half);
    tsr_engine_destroy(a);
    tsr_engine_destroy(b);
    tsr_model_overlay_destroy(plain);
    tsr_model_overlay_destroy(awq);
}

static void test_better(void **state)
{
    (void)state;
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_engine_options go = { .slots = 1, .kv_dtype = TSR_F32 };
    struct tsr_engine        *original = NULL;
    if (windows->n == FEW && tsr_engine_create(&original, registry, model, NULL, &go, &e.err))
        fail_msg("%s", e.text);
    check_bits(4, original, 0.0);
    check_bits(3, original, 0.01); /* of perplexity: 1 % */
    tsr_engine_destroy(original);
}

int main(void)
{
    struct tsr_errbuf                  e = TSR_ERRBUF(e);
    struct tsr_quant_calibrate_options co = {
        .text = DEMO "/calibration.txt", .samples = 16, .seqlen = 256, .seed = 7, .input_rows = 512
    };
    bool                    all = getenv("TSR_TEST_ALL") != NULL;
    struct tsr_eval_options eo = { .protocol = TSR_EVAL_PPL_GPTQ_2048,
                                   .window = all ? 0 : 256,
                                   .max_windows = all ? 0 : FEW };
    if (tsr_pool_create(&pool, 0, &e.err) != TSR_OK ||
        tsr_plugin_registry_create(&registry, pool, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_model_load(&model, DEMO, false, &e.err) != TSR_OK ||
        tsr_checkpoint_tokenizer_load(&tokenizer, DEMO, &e.err) != TSR_OK ||
        tsr_quant_calibrate(&calibration, registry, model, tokenizer, &co, &e.err) != TSR_OK ||
        tsr_eval_windows_create(&windows, tokenizer, model, DEMO "/held-out.txt", &eo, &e.err) !=
            TSR_OK) {
        print_error("%s\n", e.text);
        return 1;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_better) };
    int                     rc = cmocka_run_group_tests(tests, NULL, NULL);
    tsr_eval_windows_destroy(windows);
    tsr_quant_calibration_destroy(calibration);
    tsr_tokenizer_destroy(tokenizer);
    tsr_model_destroy(model);
    tsr_plugin_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return rc;
}
