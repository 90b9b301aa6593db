/* The type of the KV cache by layer: its text, its bytes, and one arithmetic whatever the chunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "golden.h"

#include "plugin/kv_codec.h"
#include "plugin/kv_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_registry *registry;
static struct tsr_pool     *pool;
static struct golden        g;

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(1, NULL, &pool);
    golden_load(&g, "llama3");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_free(&g);
    golden_registry_close(registry, pool);
    return 0;
}

static void text_is_read(void **state)
{
    static const struct {
        const char *text;
        uint32_t    of[6]; /* 0: refused */
        const char *why;
    } cases[] = {
        { "", { TSR_I8, TSR_I8, TSR_I8, TSR_I8, TSR_I8, TSR_I8 }, NULL },
        { "5=int4", { TSR_I8, TSR_I8, TSR_I8, TSR_I8, TSR_I8, TSR_Q4 }, NULL },
        { "0-1=f16,3-5=fp8", { TSR_F16, TSR_F16, TSR_I8, TSR_E4M3, TSR_E4M3, TSR_E4M3 }, NULL },
        { "4=f32,0=f16", { TSR_F16, TSR_I8, TSR_I8, TSR_I8, TSR_F32, TSR_I8 }, NULL },
        { "6=f16", { 0 }, "\"6=f16\": the last layer of the model is 5" },
        { "0-6=f16", { 0 }, "the last layer of the model is 5" },
        { "2-1=f16", { 0 }, "\"2-1=f16\": wanted LAYER=TYPE" },
        { "1", { 0 }, "wanted LAYER=TYPE" },
        { "=f16", { 0 }, "wanted LAYER=TYPE" },
        { "-1=f16", { 0 }, "wanted LAYER=TYPE" },
        { "1 =f16", { 0 }, "wanted LAYER=TYPE" },
        { "99999999999999999999=f16", { 0 }, "wanted LAYER=TYPE" },
        { "1=", { 0 }, "\"1=\": the type must be f32, f16 or NAME:key=value of a codec" },
        { "1=4int", { 0 }, "the type must be" },
        { "1=int 4", { 0 }, "or NAME:key=value of a codec" },
        { "1=f16,", { 0 }, "\"\": wanted LAYER=TYPE" },
        { ",1=f16", { 0 }, "\"\": wanted LAYER=TYPE" },
        { "1-3=f16,3=int8", { 0 }, "\"3=int8\": an item before it names the same layer" },
        { "3=f16,1-5=int8", { 0 }, "\"1-5=int8\": an item before it names the same layer" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        uint32_t          of[6];
        tsr_status        st = tsr_plugin_kv_layers(cases[i].text, TSR_I8, 6, of, &e.err);
        if (!cases[i].why) {
            assert_int_equal(st, TSR_OK);
            assert_int_equal(tsr_plugin_kv_check_all(registry, TSR_F32, cases[i].text, &e.err),
                             TSR_OK);
            for (size_t l = 0; l < 6; l++)
                assert_int_equal(tsr_plugin_kv_type(of[l]), cases[i].of[l]);
            continue;
        }
        assert_int_equal(st, TSR_E_INPUT);
        if (!strstr(e.text, cases[i].why))
            fail_msg("\"%s\": \"%s\", wanted \"%s\"", cases[i].text, e.text, cases[i].why);
    }
}

static struct tsr_engine *engine(uint32_t kv, const char *layers, uint64_t chunk)
{
    struct tsr_engine_options opt = {
        .kv_dtype = kv, .kv_layers = layers, .slots = 1, .context = 64, .chunk = chunk
    };
    return golden_engine(registry, g.model, NULL, opt);
}

static uint64_t bytes_of(struct tsr_engine *e)
{
    uint64_t weights, cache;
    tsr_engine_memory(e, &weights, &cache);
    return cache;
}

/* Logits of all positions of the longest case, and the bytes of the cache. */
static float *run(uint32_t kv, const char *layers, uint64_t chunk, uint64_t *bytes)
{
    const struct golden_case *c = &g.cases[g.n - 1];
    struct tsr_engine        *e = engine(kv, layers, chunk);
    float                    *logits = golden_forward(e, c->prompt, c->n_prompt, chunk == 1);
    *bytes = bytes_of(e);
    tsr_engine_destroy(e);
    return logits;
}

/* All layers named are the type of all; some named are neither type. */
static void layers_have_their_types(void **state)
{
    uint64_t layers = g.model->hp.layers, n = g.cases[g.n - 1].n_prompt, a, b, c, f;
    size_t   size = n * g.model->hp.vocab * sizeof(float);
    char     all[32], last[32];
    (void)state;
    (void)snprintf(all, sizeof all, "0-%llu=int4", (unsigned long long)layers - 1);
    (void)snprintf(last, sizeof last, "%llu=int4", (unsigned long long)layers - 1);
    float *named = run(TSR_F32, all, 0, &a), *of_all = run(TSR_Q4, "", 0, &b);
    float *plain = run(TSR_F32, NULL, 0, &f), *mixed = run(TSR_F32, last, 0, &c);
    assert_memory_equal(named, of_all, size);
    assert_int_equal(a, b);
    assert_int_equal(c, (f * (layers - 1) + b) / layers);
    assert_true(memcmp(mixed, plain, size) != 0);
    assert_true(memcmp(mixed, of_all, size) != 0);
    free(named);
    free(of_all);
    free(plain);
    free(mixed);
}

static void chunks_change_no_bit(void **state)
{
    static const uint64_t chunks[] = { 1, 3, 16, 64 };
    uint64_t              bytes;
    size_t                size = g.cases[g.n - 1].n_prompt * g.model->hp.vocab * sizeof(float);
    float                *want = run(TSR_E4M3, "0=int4", 7, &bytes);
    (void)state;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *got = run(TSR_E4M3, "0=int4", chunks[i], &bytes);
        assert_memory_equal(got, want, size);
        free(got);
    }
    free(want);
}

/* A text that does not fit the model is an error of the engine. */
static void engine_refuses(void **state)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_engine        *got = NULL;
    struct tsr_engine_options opt = { .kv_dtype = TSR_F32, .kv_layers = "77=f16", .slots = 1 };
    (void)state;
    assert_int_equal(tsr_engine_create(&got, registry, g.model, NULL, &opt, &e.err), TSR_E_INPUT);
    assert_non_null(strstr(e.text, "kv_layers: \"77=f16\""));
    assert_null(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_read),
        cmocka_unit_test(layers_have_their_types),
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(engine_refuses),
    };
    return cmocka_run_group_tests_name("kv_layers", tests, set_up, tear_down);
}
