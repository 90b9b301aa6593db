/* test_experts_host BACKEND PLUGIN FILE [few]: models whose experts the CPU runs while the rest of the layer is on a device with
 * memory of its own.  Every bit is that of the model on the CPU alone, for some layers and for all, whole and token by
 * token, in chunks, packed and not, with and without a shared expert.  few: some of it,
 * for a slow device. */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char          *backend, *plugin;
static struct tsr_registry *registry;
static bool                 few;

static float *run(const struct tsr_model *m, const struct tsr_engine_options *opt,
                  const struct golden_case *c, bool step)
{
    struct tsr_engine *e = golden_engine(registry, m, NULL, *opt);
    float             *logits = golden_forward(e, c->prompt, c->n_prompt, step);
    tsr_engine_destroy(e);
    return logits;
}

static void check_case(const char *name, const struct tsr_model *m, const struct golden_case *c,
                       uint32_t act)
{
    static const uint64_t     layers[] = { 1, 2, UINT64_MAX }, chunks[] = { 0, 1, 3 };
    struct tsr_engine_options cpu = { .slots = 1, .act = act };
    float                    *want = run(m, &cpu, c, false);
    for (size_t l = few; l < (few ? 2 : 3); l++)
        for (size_t k = 0; k < (few ? 1 : 3); k++)
            for (int step = 0; step <= (k == 0 && !c->whole_prompt_only); step++) {
                struct tsr_engine_options opt = { .on = { .backend = backend,
                                                          .cpu_experts = layers[l] },
                                                  .slots = 1,
                                                  .act = act,
                                                  .chunk = chunks[k] };
                float                    *got = run(m, &opt, c, step);
                if (memcmp(got, want, c->n_prompt * m->hp.vocab * sizeof *got) != 0)
                    fail_msg("%s, %s, act %u: other logits with the experts of %lld layers on the "
                             "CPU, chunk %d%s",
                             name, c->name, act, (long long)layers[l], (int)chunks[k],
                             step ? ", token by token" : "");
                free(got);
            }
    free(want);
}

static void same_bits(void **state)
{
    unsigned models = 0;
    (void)state;
    for (size_t i = 0; golden_names[i]; i++) {
        struct golden g;
        if (few && !strstr("qwen3_moe deepseek_v3 gpt_oss-mxfp4", golden_names[i]))
            continue;
        golden_load(&g, golden_names[i]);
        for (uint32_t act = TSR_ACT_F32; g.model->hp.experts && act <= TSR_ACT_A8; act += 2)
            if (act == TSR_ACT_F32 || g.model->packed)
                check_case(golden_names[i], g.model, &g.cases[g.n - 1], act);
        models += g.model->hp.experts > 0;
        golden_free(&g);
    }
    assert_true(models >= (few ? 3 : 8));
}

/* Weights of the experts are on the host, all others on the device. */
static void memory_moves(void **state)
{
    struct golden             g;
    struct tsr_engine_options opt = { .on.backend = backend, .slots = 1 };
    uint64_t                  all, some, none, cache, linears[2], widened;
    struct tsr_engine        *e;
    (void)state;
    golden_load(&g, "qwen3_moe");
    for (int i = 0; i < 3; i++) {
        opt.on.cpu_experts = i == 0 ? 0 : i == 1 ? 1 : UINT64_MAX;
        e = golden_engine(registry, g.model, NULL, opt);
        tsr_engine_memory(e, i == 0 ? &all : i == 1 ? &some : &none, &cache);
        tsr_engine_linears(e, &linears[i > 0], &widened);
        assert_int_equal(linears[i > 0], linears[0]); /* on both */
        tsr_engine_destroy(e);
    }
    assert_true(none < some && some < all);
    golden_free(&g);
}

static void refused(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options opt = { .on = { .backend = backend, .cpu_experts = 1 },
                                      .kv_dtype = TSR_F32,
                                      .slots = 1 };
    struct tsr_engine        *e = NULL;
    struct golden             g;
    (void)state;
    golden_load(&g, "llama2");
    assert_int_equal(tsr_engine_create(&e, registry, g.model, NULL, &opt, &err.err), TSR_E_CONFIG);
    assert_non_null(strstr(err.text, "no experts"));
    golden_free(&g);
}

/* Partial sums in rank order, as numbers of 12 bits, so that each rank's part shows. */
static tsr_status coded_sum(void *ctx, uint32_t site, const float *const *partial, uint64_t rows,
                            uint64_t cols, float *sum, struct tsr_err *err)
{
    const uint32_t *ranks = ctx;
    (void)site;
    (void)err;
    for (uint64_t i = 0; i < rows * cols; i++) {
        sum[i] = 0;
        for (uint32_t k = 0; k < *ranks; k++) {
            uint32_t bits;
            float    part;
            memcpy(&bits, &partial[k][i], sizeof bits);
            bits &= UINT32_C(0xfffff000);
            memcpy(&part, &bits, sizeof part);
            sum[i] += part;
        }
    }
    return TSR_OK;
}

/* Simulated ranks are those of the CPU alone, wherever the experts are. */
static void simulated_ranks(void **state)
{
    static const char *const names[] = { "qwen3_moe", "gpt_oss", "deepseek_v3", "mixtral", NULL };
    (void)state;
    for (size_t i = few ? 2 : 0; names[i] && !(few && i > 2); i++)
        for (uint32_t ranks = 2; ranks <= (few ? 2u : 4u); ranks *= 2) {
            const struct tsr_engine_split split = { .ranks = ranks,
                                                    .sum = coded_sum,
                                                    .ctx = &ranks };
            struct golden                 g;
            golden_load(&g, names[i]);
            const struct golden_case *c = &g.cases[g.n - 1];
            uint64_t                  bytes = c->n_prompt * g.model->hp.vocab * sizeof(float);
            struct tsr_engine_options opt = { .slots = 1 };
            float                    *one = run(g.model, &opt, c, false);
            opt.split = &split;
            float *want = run(g.model, &opt, c, false);
            assert_memory_not_equal(want, one, bytes);
            for (uint64_t layers = 1; layers < 4; layers++) {
                opt.on.backend = backend;
                opt.on.cpu_experts = layers < 3 ? layers : UINT64_MAX;
                opt.chunk = layers % 2 * 3;
                float *got = run(g.model, &opt, c, layers == 1);
                if (memcmp(got, want, bytes) != 0)
                    fail_msg("%s, %u simulated ranks: other logits with the experts of %llu layers "
                             "on the CPU",
                             names[i], ranks, (unsigned long long)layers);
                free(got);
            }
            free(want);
            free(one);
            golden_free(&g);
        }
}

/* On the CPU there is nothing to move. */
static void nothing_to_move(void **state)
{
    struct golden             g;
    struct tsr_engine_options opt = { .slots = 1 };
    (void)state;
    golden_load(&g, "mixtral");
    float *want = run(g.model, &opt, &g.cases[0], false);
    opt.on.cpu_experts = UINT64_MAX;
    float *got = run(g.model, &opt, &g.cases[0], false);
    assert_memory_equal(got, want, g.cases[0].n_prompt * g.model->hp.vocab * sizeof *got);
    free(want);
    free(got);
    golden_free(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_bits), cmocka_unit_test(memory_moves),
                                        cmocka_unit_test(refused),
                                        cmocka_unit_test(simulated_ranks),
                                        cmocka_unit_test(nothing_to_move) };
    struct tsr_pool        *pool = NULL;
    if (argc < 3)
        return 2;
    backend = argv[1];
    plugin = argv[2];
    few = argc > 3;
    registry = golden_registry(2, plugin, &pool);
    int rc = cmocka_run_group_tests_name(backend, tests, NULL, NULL);
    golden_registry_close(registry, pool);
    return rc;
}
