/* Every golden model in a rotated basis: the logits are those that were recorded of the original, or the model is refused
 * for the reason that it has. */
#include "golden.h"

#include "base/file.h"
#include "base/output.h"
#include "model/config.h"
#include "rotate/rotate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Rotated weights are rounded to F32 once or twice more: as test_models.c. */
#define TOLERANCE 5e-5

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s: %s", name, #call, e.text);                                           \
    } while (0)

static bool is_one(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* What of each family can be rotated, from its description and not from check.c. */
static uint32_t sites_of(const char *name)
{
    static const char *const packed[] = { "gpt_oss-mxfp4", NULL };
    static const char *const no_heads[] = { "deepseek_v2-lite", "deepseek_v2-groups",
                                            "deepseek_v3",      "deepseek_v3-halves",
                                            "qwen3_5",          "qwen3_5_moe",
                                            "qwen3_next",       NULL };
    static const char *const no_state[] = {
        "bloom",         "bloom-6heads",        "opt",    "opt-350m-style", "cohere", "cohere2",
        "cohere-qknorm", "starcoder2",          "phimoe", "gemma2",         "gemma3", "glm4",
        "olmo2",         "gemma3-v5-noscaling", "olmo3",  "gemma3-wrapped", NULL
    };
    /* inputs of down whose segments have only 4 or 8 columns in common: 24, 40, 56 or 172 columns */
    static const char *const no_down[] = { "deepseek_v3", "granitemoe",  "mixtral-window",
                                           "phimoe",      "qwen3_5_moe", "qwen3_moe-mixed",
                                           "qwen3_next",  "stories260k", NULL };
    if (is_one(name, packed))
        return 0;
    return (is_one(name, no_state) ? 0 : TSR_ROTATE_RESIDUAL) |
           (is_one(name, no_heads) ? 0 : TSR_ROTATE_HEADS | TSR_ROTATE_KEYS) |
           (is_one(name, no_down) ? 0 : TSR_ROTATE_DOWN);
}

static void check_logits(struct tsr_registry *r, const char *name, const struct golden *g,
                         const char *folder)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    OK(tsr_model_load(&m, folder, false, &e.err));
    struct tsr_engine *engine =
        golden_engine(r, m, NULL, (struct tsr_engine_options){ .on.backend = "cpu", .slots = 1 });
    for (uint64_t i = 0; i < g->n; i++) {
        float *logits = golden_forward(engine, g->cases[i].prompt, g->cases[i].n_prompt, false);
        golden_compare(name, &g->cases[i], logits, m->hp.vocab, TOLERANCE);
        float *steps = golden_forward(engine, g->cases[i].prompt, g->cases[i].n_prompt, true);
        if (!g->cases[i]
                 .whole_prompt_only) /* a token alone has the bytes that it has among others */
            assert_memory_equal(steps, logits, g->cases[i].n_prompt * m->hp.vocab * sizeof *logits);
        free(steps);
        free(logits);
    }
    tsr_engine_destroy(engine);
    tsr_model_destroy(m);
}

static void check_model(struct tsr_registry *r, const char *name, struct tsr_pool *pool)
{
    struct golden g;
    golden_load(&g, name);
    static const uint32_t some[] = { 1, 2, 3, TSR_ROTATE_KEYS, TSR_ROTATE_DOWN, 15 };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const uint32_t            sites = some[i];
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct tsr_rotate_options o = { .kind = sites == 2 ? TSR_ORTHOGONAL_RANDOM
                                                           : TSR_ORTHOGONAL_HADAMARD,
                                        .sites = sites,
                                        .seed = 4,
                                        .dtype = TSR_F32,
                                        .pool = pool };
        struct tsr_export_report  report;
        char                     *temp = NULL;
        OK(tsr_temp_folder(&temp, "rotated", &e.err));
        char *folder = tsr_path_join(temp, "m");
        assert_non_null(folder);
        tsr_status st = tsr_rotate(g.model, folder, &o, &report, &e.err);
        if ((sites_of(name) & sites) != sites) {
            if (st != TSR_E_INPUT || tsr_path_exists(folder))
                fail_msg("%s: sites %u are rotated", name, sites);
        } else if (st != TSR_OK) {
            fail_msg("%s: sites %u: %s", name, sites, e.text);
        } else {
            check_logits(r, name, &g, folder);
        }
        free(folder);
        tsr_temp_folder_remove(temp);
    }
    golden_free(&g);
}

static void logits_as_recorded(void **state)
{
    struct tsr_pool     *pool = NULL;
    struct tsr_registry *r = golden_registry(2, NULL, &pool);
    (void)state;
    for (size_t i = 0; golden_names[i]; i++)
        check_model(r, golden_names[i], pool);
    golden_registry_close(r, pool);
}

/* The bytes are a function of model, options and seed, whatever the number of threads. */
static void same_bytes_for_any_threads(void **state)
{
    const char       *name = "qwen2";
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct golden     g;
    char             *temp = NULL, hash[3][48];
    (void)state;
    golden_load(&g, name);
    OK(tsr_temp_folder(&temp, "rotated", &e.err));
    for (int i = 0; i < 3; i++) {
        struct tsr_pool          *pool = NULL;
        struct tsr_model         *m = NULL;
        struct tsr_export_report  report;
        struct tsr_rotate_options o = { .sites = 3, .seed = i == 2 ? 5 : 4, .dtype = TSR_F32 };
        char                     *folder = tsr_path_join(temp, i == 0 ? "a" : i == 1 ? "b" : "c");
        OK(tsr_pool_create(&pool, i == 0 ? 1 : 3, &e.err));
        o.pool = pool;
        OK(tsr_rotate(g.model, folder, &o, &report, &e.err));
        OK(tsr_model_load(&m, folder, false, &e.err));
        (void)snprintf(hash[i], sizeof hash[i], "%s", m->hash);
        assert_false(m->hp.tied);
        tsr_model_destroy(m);
        tsr_pool_destroy(pool);
        free(folder);
    }
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    tsr_temp_folder_remove(temp);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(logits_as_recorded),
                                        cmocka_unit_test(same_bytes_for_any_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
