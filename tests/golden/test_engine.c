/* The engine on a plain backend in double precision, without kernels/: the golden models come
 * out right, and what the backend declines is done by the default one. */
#include "golden.h"
#include "naive.h"

#include "../fixtures/error_is.h"
#include "base/log.h"
#include "engine/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* As in test_models.c. */
#define TOLERANCE 5e-5

struct rig {
    struct tsr_pool     *pool;
    struct tsr_registry *registry;
};

static int set_up(void **state)
{
    static struct rig rig;
    tsr_log_set_level(TSR_LOG_WARN + 1); /* that operations are declined is meant here */
    rig.registry = golden_registry(1, NULL, &rig.pool);
    *state = &rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    golden_registry_close(rig->registry, rig->pool);
    return 0;
}

/* The shortest and the longest case of a model on n, with a cache of kv. */
static void check_on(struct rig *rig, struct naive *n, const char *name, uint32_t kv,
                     double tolerance, bool generate)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_device *dev = NULL;
    struct tsr_engine        *e = NULL;
    struct golden             g;
    golden_load(&g, name);
    struct tsr_engine_options opt = { .kv_dtype = kv, .slots = 3, .chunk = 5 };
    if (tsr_engine_device_wrap(&dev, rig->registry, &naive_backend, n, &err.err) != TSR_OK ||
        tsr_engine_create_on(&e, dev, g.model, NULL, &opt, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < g.n; i += g.n - 1) {
        float *logits = golden_forward(e, g.cases[i].prompt, g.cases[i].n_prompt, false);
        golden_compare(name, &g.cases[i], logits, g.model->hp.vocab, tolerance);
        free(logits);
    }
    if (generate)
        golden_generate(name, e, &g);
    tsr_engine_destroy(e);
    tsr_engine_device_close(dev);
    golden_free(&g);
    assert_int_equal(n->buffers, 0);
    assert_int_equal(n->weights, 0);
}

static void goldens_on_naive(void **state)
{
    for (size_t i = 0; golden_names[i]; i++) {
        struct naive n = { 0 };
        check_on(*state, &n, golden_names[i], TSR_F32, TOLERANCE, true);
        for (uint32_t k = TSR_OP_LINEAR; k <= TSR_OP_ADD; k++)
            if (k != TSR_OP_ROPE) /* BLOOM and OPT turn nothing */
                assert_true(n.runs[k] > 0);
    }
}

/* A narrow cache costs accuracy: F16 keeps 11 bits, int8 about 7, E4M3 4 and Q4 about 4, of keys and values. */
static void narrow_caches(void **state)
{
    struct naive n = { 0 };
    check_on(*state, &n, "llama3", TSR_F16, 2e-3, false);
    check_on(*state, &n, "llama3", TSR_I8, 5e-2, false);
    check_on(*state, &n, "bloom", TSR_I8, 5e-2, false);
    check_on(*state, &n, "llama3", TSR_E4M3, 1e-1, false);
    check_on(*state, &n, "bloom", TSR_Q4, 2e-1, false);
}

static void declined_operations_run_elsewhere(void **state)
{
    static const char *const models[] = { "gemma2", "opt-350m-style", "bloom" };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct naive all = { .decline_ops = ~0u };
        check_on(*state, &all, models[i], TSR_F32, TOLERANCE, true);
        for (uint32_t k = 0; k < 16; k++)
            assert_int_equal(all.runs[k], 0);
        struct naive some = { .decline_ops = 1u << TSR_OP_ATTENTION | 1u << TSR_OP_KV_STORE };
        check_on(*state, &some, models[i], TSR_F16, 2e-3, false);
        assert_int_equal(some.runs[TSR_OP_ATTENTION], 0);
        assert_true(some.runs[TSR_OP_LINEAR] > 0);
    }
}

/* A device without the type of a cache is an error that says what to choose; F16 would be copied for each operation. */
static void declined_caches_are_refused(void **state)
{
    static const struct {
        uint32_t    dtype, op;
        const char *why;
    } cases[] = {
        { TSR_E4M3, TSR_OP_KV_STORE, "has no KV cache of fp8; choose f32, f16 or int8" },
        { TSR_Q4, TSR_OP_KV_STORE, "has no KV cache of int4; choose f32, f16 or int8" },
        { TSR_Q4, TSR_OP_ATTENTION, "has no KV cache of int4; choose f32, f16 or int8" },
    };
    struct rig   *rig = *state;
    struct golden g;
    golden_load(&g, "llama2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf         err = TSR_ERRBUF(err);
        struct naive              n = { .decline_ops = 1u << cases[i].op };
        struct tsr_engine_device *dev = NULL;
        struct tsr_engine        *e = NULL;
        struct tsr_engine_options opt = { .kv_dtype = cases[i].dtype, .slots = 1 };
        struct tsr_engine_token   t = { .id = 1, .logits = true };
        float                    *logits = malloc(g.model->hp.vocab * sizeof *logits);
        assert_non_null(logits);
        assert_int_equal(tsr_engine_device_wrap(&dev, rig->registry, &naive_backend, &n, &err.err),
                         TSR_OK);
        assert_int_equal(tsr_engine_create_on(&e, dev, g.model, NULL, &opt, &err.err), TSR_OK);
        assert_int_equal(tsr_engine_forward(e, &t, 1, logits, &err.err), TSR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, cases[i].why));
        tsr_engine_destroy(e);
        tsr_engine_device_close(dev);
        free(logits);
    }
    golden_free(&g);
}

static void declined_formats_run_as_f32(void **state)
{
    struct naive n = { .decline_dtypes = 1u << TSR_F16 | 1u << TSR_BF16 };
    check_on(*state, &n, "llama2", TSR_F32, TOLERANCE, true);
    check_on(*state, &n, "phi3-longrope", TSR_F32, TOLERANCE, true);
    struct naive none = { .decline_dtypes = ~0u }; /* F32 itself: an error that names the weight */
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_device *dev = NULL;
    struct tsr_engine        *e = NULL;
    struct golden             g;
    golden_load(&g, "llama2");
    struct tsr_engine_options opt = { .kv_dtype = TSR_F32, .slots = 1 };
    struct rig               *rig = *state;
    assert_int_equal(tsr_engine_device_wrap(&dev, rig->registry, &naive_backend, &none, &err.err),
                     TSR_OK);
    assert_int_equal(tsr_engine_create_on(&e, dev, g.model, NULL, &opt, &err.err),
                     TSR_E_UNSUPPORTED);
    assert_true(error_is(&err.err, "model.embed_tokens as F32", NULL));
    tsr_engine_device_close(dev);
    golden_free(&g);
}

/* Long rope counts the whole text: in two calls, the first of which says what follows, a prompt has the recorded logits, and
 * without that word it has not.  What is in the cache was made for its length: a longer text cannot follow on it. */
static void long_rope_in_pieces(void **state)
{
    struct rig       *rig = *state;
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct golden     g;
    golden_load(&g, "phi3-longrope");
    const struct golden_case *c = &g.cases[g.n - 1];
    uint64_t                  vocab = g.model->hp.vocab, first = 20, n = c->n_prompt;
    assert_true(first < 32 && n > 32); /* its original positions */
    struct tsr_engine_options opt = { .on.backend = "cpu", .slots = 2 };
    struct tsr_engine        *e = golden_engine(rig->registry, g.model, NULL, opt);
    struct tsr_engine_token  *t = calloc(n, sizeof *t);
    float                    *logits = calloc(n * vocab, sizeof *logits);
    assert_non_null(t);
    assert_non_null(logits);
    for (int told = 1; told >= 0; told--) {
        for (uint64_t i = 0; i < n; i++)
            t[i] =
                (struct tsr_engine_token){ .id = c->prompt[i],
                                           .slot = 1,
                                           .logits = true,
                                           .ahead = told && i < first ? (uint32_t)(n - first) : 0 };
        assert_int_equal(tsr_engine_forward(e, t, first, logits, &err.err), TSR_OK);
        assert_int_equal(tsr_engine_forward(e, t + first, n - first, logits + first * vocab,
                                            &err.err),
                         TSR_OK);
        if (told)
            golden_compare("in pieces", c, logits, vocab, TOLERANCE);
        assert_int_equal(tsr_engine_length(e, 1), n);
        if (told)
            assert_int_equal(tsr_engine_rewind(e, 1, n), 0);
        tsr_engine_reset(e, 1);
    }
    double off = 0;
    for (uint64_t i = 0; i < first * vocab; i++)
        off = fmax(off, fabs((double)logits[i] - (double)c->logits[i]) / c->range);
    assert_true(off > 100 * TOLERANCE);
    free(t);
    free(logits);
    tsr_engine_destroy(e);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_on_naive),
        cmocka_unit_test(narrow_caches),
        cmocka_unit_test(long_rope_in_pieces),
        cmocka_unit_test(declined_operations_run_elsewhere),
        cmocka_unit_test(declined_caches_are_refused),
        cmocka_unit_test(declined_formats_run_as_f32),
    };
    return cmocka_run_group_tests_name("engine", tests, set_up, tear_down);
}
