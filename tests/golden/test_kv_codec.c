/* Caches of a plugin's codec: attention over elements as they are gives the recorded logits of each family, kivi with 4 bits has the
 * bytes of int4 as the reference backend writes them, and sizes are those of the layouts. */
#include "golden.h"
#include "naive.h"

#include "engine/internal.h"
#include "plugin/choices.h"
#include "plugin/kv_codec.h"
#include "plugin/kv_layers.h"
#include "reference.h"
#include "tessera/f16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tsr_pool     *pool;
static struct tsr_registry *registry;

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(2, TSR_FIXTURES "/bad_kv.so", &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

/* Of the range of the logits. The codec keeps F32, and attention of the host adds in another order than the reference, which
 * a layer after the other passes on; with blocks, newest positions are F16, 2^-11 of a number each. */
#define SUMS   1e-4
#define HALVES 2e-3

/* Windows, ALiBi, sinks, capped scores, heads that share keys: all cases of all families, in one call and token by token. */
static void as_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; golden_names[i]; i++) {
        struct golden g;
        golden_load(&g, golden_names[i]);
        for (int blocks = 0; blocks < 2; blocks++)
            for (uint64_t k = 0; k < g.n; k++) {
                const struct golden_case *c = &g.cases[k];
                struct tsr_engine_options opt = {
                    .kv_dtype = golden_codec(blocks ? "exact:blocks=true" : "exact"), .slots = 1
                };
                char what[96];
                (void)snprintf(what, sizeof what, "%s, blocks %d", golden_names[i], blocks);
                struct tsr_engine *e = golden_engine(registry, g.model, NULL, opt);
                for (int step = 0; step < (c->whole_prompt_only ? 1 : 2); step++) {
                    float *logits = golden_forward(e, c->prompt, c->n_prompt, step);
                    golden_compare(what, c, logits, g.model->hp.vocab, blocks ? HALVES : SUMS);
                    free(logits);
                }
                tsr_engine_destroy(e);
            }
        golden_free(&g);
    }
}

static void fill(float *x, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((double)((i * 7919 + seed * 104729) % 10007) / 2500 - 2);
}

static void kivi_has_the_bytes_of_int4(void **state)
{
    static const uint64_t dims[] = { 16, 33, 64, 80, 128 };
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        struct tsr_errbuf    e = TSR_ERRBUF(e);
        struct tsr_plugin_kv c;
        uint64_t             d = dims[i], block = TSR_KV_BLOCK * d;
        float               *x = malloc(block * sizeof *x);
        uint16_t            *half = malloc(block * sizeof *half);
        unsigned char       *got = malloc(8 * block), *want = malloc(8 * block);
        assert_true(x && half && got && want);
        if (tsr_plugin_kv_open(&c, registry, golden_codec("kivi:bits=4"), d, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        assert_int_equal(c.layout[TSR_KV_KEYS].positions, TSR_KV_BLOCK);
        assert_int_equal(8 * c.layout[TSR_KV_KEYS].bytes, TSR_KV_BLOCK * 5 * d);
        assert_int_equal(c.layout[TSR_KV_VALUES].positions, 1);
        assert_int_equal(c.layout[TSR_KV_VALUES].bytes, tsr_ref_head_bytes(TSR_Q4, d));
        for (uint64_t seed = 0; seed < 20; seed++) {
            fill(x, block, seed);
            assert_int_equal(c.table->encode(c.self, TSR_KV_VALUES, d, 1, x, got, &e.err), TSR_OK);
            tsr_ref_head_store(want, TSR_Q4, x, d);
            assert_memory_equal(got, want, c.layout[TSR_KV_VALUES].bytes);
            for (uint64_t k = 0; k < block; k++) {
                half[k] = tsr_f32_f16(x[k]);
                x[k] = tsr_f16_f32(half[k]);
            }
            assert_int_equal(c.table->encode(c.self, TSR_KV_KEYS, d, 1, x, got, &e.err), TSR_OK);
            tsr_ref_block_store(want, half, 2 * d, d);
            assert_memory_equal(got, want, c.layout[TSR_KV_KEYS].bytes);
        }
        tsr_plugin_kv_close(&c);
        free(x);
        free(half);
        free(got);
        free(want);
    }
}

/* Of 2 slots of 100 positions: 104 with blocks, in 4 blocks of 32 = 128. */
static void sizes(void **state)
{
    struct golden g;
    (void)state;
    golden_load(&g, "llama3");
    uint64_t dim = g.model->hp.head_dim, heads = 2 * (uint64_t)g.model->hp.kv_heads;
    uint64_t groups = (dim + 31) / 32, sixteens = (dim + 15) / 16, tail = 64 * dim;
    const struct {
        const char *text;
        uint64_t    slot; /* bytes of a head in a slot */
    } cases[] = {
        { "exact", UINT64_C(100) * 2 * 4 * dim },
        { "bad", UINT64_C(100) * 2 * (dim + 5) },
        { "exact:blocks=true", UINT64_C(128) * 2 * 4 * dim + 2 * tail },
        { "kivi:bits=2", 4 * 12 * dim + tail + 128 * (4 * groups + 4 * sixteens) },
        { "kivi:bits=8", 4 * 36 * dim + tail + 128 * (4 * groups + 16 * sixteens) },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_engine_options opt = { .kv_dtype = golden_codec(cases[i].text),
                                          .slots = 2,
                                          .context = 100 };
        struct tsr_engine        *e = golden_engine(registry, g.model, NULL, opt);
        uint64_t                  weights, cache, bytes;
        tsr_engine_memory(e, &weights, &cache);
        tsr_engine_destroy(e);
        assert_int_equal(cache, g.model->hp.layers * heads * cases[i].slot);
        assert_true(
            tsr_engine_kv_bytes(opt.kv_dtype, g.model->hp.kv_heads, dim, 2,
                                tsr_engine_kv_rows(tsr_plugin_kv_has_blocks(opt.kv_dtype), 100),
                                &bytes));
        assert_int_equal(bytes * g.model->hp.layers, cache);
    }
    golden_free(&g);
}

/* Codecs that state a type of backends are that type: logits to the bit, sizes, blocks. */
static void stated_types(void **state)
{
    static const struct {
        const char *name;
        uint32_t    type, bits;
        bool        blocks;
    } cases[] = { { "int8", TSR_I8, 8, false },
                  { "fp8", TSR_E4M3, 8, false },
                  { "int4", TSR_Q4, 5, true },
                  { "exact:type=1", TSR_F32, 32, false } };
    struct golden g;
    (void)state;
    golden_load(&g, "llama3");
    const struct golden_case *c = &g.cases[g.n - 1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_engine *e[2];
        float             *logits[2];
        uint64_t           weights, cache[2], bytes[2];
        uint32_t           kv[2] = { cases[i].type, golden_codec(cases[i].name) };
        for (int named = 0; named < 2; named++) {
            struct tsr_engine_options opt = { .kv_dtype = kv[named], .slots = 2, .context = 100 };
            e[named] = golden_engine(registry, g.model, NULL, opt);
            logits[named] = golden_forward(e[named], c->prompt, c->n_prompt, true);
            tsr_engine_memory(e[named], &weights, &cache[named]);
            assert_true(tsr_engine_kv_bytes(kv[named], 2, 80, 3, 128, &bytes[named]));
            assert_int_equal(tsr_plugin_kv_bits(kv[named]), cases[i].bits);
            assert_int_equal(tsr_plugin_kv_has_blocks(kv[named]), cases[i].blocks);
        }
        assert_int_equal(tsr_plugin_kv_type(kv[1]), kv[0]);
        assert_false(tsr_plugin_kv_is_codec(kv[1]));
        assert_memory_equal(logits[0], logits[1], c->n_prompt * g.model->hp.vocab * sizeof(float));
        assert_int_equal(cache[0], cache[1]);
        assert_int_equal(bytes[0], bytes[1]);
        for (int named = 0; named < 2; named++) {
            free(logits[named]);
            tsr_engine_destroy(e[named]);
        }
    }
    golden_free(&g);
}

/* One layer has a codec, others have caches of the backend; the text may name options. */
static void some_layers(void **state)
{
    struct golden     g;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint32_t          of[6];
    (void)state;
    assert_int_equal(tsr_plugin_kv_layers("0-1=kivi:bits=4,5=bad:fault=none,3=f16", TSR_F32, 6, of,
                                          &e.err),
                     TSR_OK);
    const uint32_t want[6] = {
        golden_codec("kivi:bits=4"),   golden_codec("kivi:bits=4"), TSR_F32, TSR_F16, TSR_F32,
        golden_codec("bad:fault=none")
    };
    assert_memory_equal(of, want, sizeof of);
    golden_load(&g, "llama3");
    const struct golden_case *c = &g.cases[g.n - 1];
    struct tsr_engine_options opt = { .kv_dtype = TSR_F32, .kv_layers = "0=exact", .slots = 1 };
    struct tsr_engine        *engine = golden_engine(registry, g.model, NULL, opt);
    float                    *logits = golden_forward(engine, c->prompt, c->n_prompt, false);
    golden_compare("llama3, one layer", c, logits, g.model->hp.vocab, SUMS);
    free(logits);
    tsr_engine_destroy(engine);
    golden_free(&g);
}

static void refused(void **state)
{
    static const struct {
        const char *text, *why;
        tsr_status  st;
    } cases[] = {
        { "kivj", "did you mean", TSR_E_INPUT },
        { "kivi:bits=3", "'bits' must be one of 2, 4, 8", TSR_E_INPUT },
        { "kivi:bit=2", "kivi has no option 'bit'", TSR_E_INPUT },
        { "exact:type=6", "units of keys are of type 6, with 1 positions", TSR_E_PLUGIN },
        { "exact:type=9", "that is no type of a cache", TSR_E_PLUGIN },
        { "exact:type=99", "that is no type of a cache", TSR_E_PLUGIN },
    };
    struct golden     g;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    golden_load(&g, "llama3");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_engine        *got = NULL;
        struct tsr_engine_options opt = { .kv_dtype = golden_codec(cases[i].text), .slots = 1 };
        assert_int_equal(tsr_engine_create(&got, registry, g.model, NULL, &opt, &e.err),
                         cases[i].st);
        if (!strstr(e.text, cases[i].why))
            fail_msg("%s: \"%s\"", cases[i].text, e.text);
        assert_null(got);
    }
    /* another backend than the default one */
    struct naive              n = { 0 };
    struct tsr_engine_device *dev = NULL;
    struct tsr_engine        *got = NULL;
    struct tsr_engine_options opt = { .kv_dtype = golden_codec("kivi"), .slots = 1 };
    assert_int_equal(tsr_engine_device_wrap(&dev, registry, &naive_backend, &n, &e.err), TSR_OK);
    assert_int_equal(tsr_engine_create_on(&got, dev, g.model, NULL, &opt, &e.err),
                     TSR_E_UNSUPPORTED);
    assert_non_null(strstr(e.text, "has no KV cache of kivi; choose f32, f16 or int8"));
    tsr_engine_device_close(dev);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_recorded), cmocka_unit_test(kivi_has_the_bytes_of_int4),
        cmocka_unit_test(sizes),       cmocka_unit_test(stated_types),
        cmocka_unit_test(some_layers), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("kv_codec", tests, set_up, tear_down);
}
