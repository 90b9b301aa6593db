/* test_models [BACKEND [PLUGIN FILE [EACH]]]: every golden model on that backend, or, on a slow one, one
 * of EACH with two of the chunk sizes, by TSR_TEST_SEED, unless TSR_TEST_ALL=1.  Logits of the whole
 * prompt and token by token are as recorded, greedy continuations equal, whatever the chunk size
 * and however the cases share the slots. */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* The reference run agrees with itself, token by token against whole, to 1e-6 of the range; F32
 * in another order of additions over a few hundred columns stays well below this. */
#define TOLERANCE 5e-5

static const char *backend = "cpu", *plugin;
static uint64_t    each = 1, from; /* models from, from + each, ... */

static void check_model(struct tsr_registry *r, const char *name)
{
    static const uint64_t chunks[] = { 0, 3, 1, 7 };
    struct golden         g;
    golden_load(&g, name);
    uint64_t vocab = g.model->hp.vocab;
    float   *first[8] = { 0 };
    assert_true(g.n <= 8);
    for (size_t k = 0; k < (each > 1 ? 2 : sizeof chunks / sizeof *chunks); k++) {
        struct tsr_engine_options opt = { .on.backend = backend, .slots = 2, .chunk = chunks[k] };
        struct tsr_engine        *e = golden_engine(r, g.model, NULL, opt);
        char                      what[96];
        for (uint64_t i = 0; i < g.n; i++) {
            const struct golden_case *c = &g.cases[i];
            uint64_t                  bytes = c->n_prompt * vocab * sizeof(float);
            (void)snprintf(what, sizeof what, "%s on %s, chunk %d", name, backend, (int)chunks[k]);
            float *whole = golden_forward(e, c->prompt, c->n_prompt, false);
            golden_compare(what, c, whole, vocab, TOLERANCE);
            if (!first[i])
                first[i] = whole;
            else if (memcmp(first[i], whole, bytes) != 0)
                fail_msg("%s, %s: not the bytes of the whole prompt in one pass", what, c->name);
            if (chunks[k] == 0 && !c->whole_prompt_only) {
                float *step = golden_forward(e, c->prompt, c->n_prompt, true);
                golden_compare(what, c, step, vocab, TOLERANCE);
                if (memcmp(whole, step, bytes) != 0)
                    fail_msg("%s, %s: token by token gives other bytes", what, c->name);
                free(step);
            }
            if (first[i] != whole)
                free(whole);
        }
        if (chunks[k] == 0 || chunks[k] == 3)
            golden_generate(what, e, &g);
        tsr_engine_destroy(e);
    }
    for (uint64_t i = 0; i < g.n; i++)
        free(first[i]);
    golden_free(&g);
}

/* One engine stays open: a device whose driver makes a context for the first of a process keeps it. */
static void models_as_recorded(void **state)
{
    struct tsr_pool          *pool = NULL;
    struct tsr_registry      *r = golden_registry(2, plugin, &pool);
    struct tsr_engine_options opt = { .on.backend = backend, .slots = 1 };
    struct golden             g;
    (void)state;
    golden_load(&g, golden_names[0]);
    struct tsr_engine *open = golden_engine(r, g.model, NULL, opt);
    for (size_t i = 0; golden_names[i]; i++)
        if (i % each == from) {
            time_t began = time(NULL);
            check_model(r, golden_names[i]);
            print_message("%s: %d s\n", golden_names[i], (int)(time(NULL) - began));
        }
    for (size_t i = 0; golden_more_names[i] && strcmp(backend, "cpu") == 0; i++)
        check_model(r, golden_more_names[i]);
    tsr_engine_destroy(open);
    golden_free(&g);
    golden_registry_close(r, pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(models_as_recorded) };
    if (argc > 1)
        backend = argv[1];
    if (argc > 2)
        plugin = argv[2];
    if (argc > 3 && !(getenv("TSR_TEST_ALL") && *getenv("TSR_TEST_ALL"))) {
        const char *seed = getenv("TSR_TEST_SEED");
        each = strtoull(argv[3], NULL, 10);
        each = each ? each : 1;
        from = (seed ? strtoull(seed, NULL, 10) : 1) % each;
        print_message("one model of %d, TSR_TEST_SEED=%d\n", (int)each, (int)from);
    }
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
