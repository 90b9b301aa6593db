/* Windows through one layer after the other give the logits of an engine that has all layers, byte for byte, however many
 * go through a layer at once. */
#include "golden.h"
#include "wide.h"

#include "eval/layers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WINDOWS 5u

static struct tsr_pool     *pool;
static struct tsr_registry *registry;

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(2, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

/* Windows of 1 to 21 tokens and a label. */
static void windows_of(struct tsr_eval_windows *w, uint32_t *ids, uint64_t *start, uint64_t vocab)
{
    static const uint64_t lengths[WINDOWS] = { 21, 1, 8, 20, 3 };
    uint64_t              n = 0;
    for (uint64_t i = 0; i < WINDOWS; i++) {
        start[i] = n;
        for (uint64_t k = 0; k <= lengths[i]; k++, n++)
            ids[n] = (uint32_t)((n * 31 + 7) % vocab);
    }
    start[WINDOWS] = n;
    *w = (struct tsr_eval_windows){ .ids = ids, .start = start, .n = WINDOWS };
}

static void logits_of_layers(const char *name, uint32_t act)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    char                    folder[64];
    struct tsr_model       *m = wide_load(name, false, folder), *s = NULL;
    struct tsr_eval_windows w;
    uint32_t                ids[64];
    uint64_t                start[WINDOWS + 1], vocab = m->hp.vocab;
    struct tsr_engine      *whole =
        golden_engine(registry, m, NULL,
                      (struct tsr_engine_options){ .slots = 1, .act = act, .kv_dtype = TSR_F32 });
    float *got = malloc(32 * vocab * sizeof *got);
    assert_non_null(got);
    if (tsr_model_load_streamed(&s, folder, &e.err) != TSR_OK)
        fail_msg("%s: %s", name, e.text);
    windows_of(&w, ids, start, vocab);
    for (uint64_t at_once = 1; at_once < 10; at_once *= 3) {
        struct tsr_eval_layers *l = NULL;
        if (tsr_eval_layers_open(&l, registry, s, &w, at_once, act, NULL, &e.err) != TSR_OK)
            fail_msg("%s: %s", name, e.text);
        for (uint64_t i = 0; i < WINDOWS; i++) {
            uint64_t n = start[i + 1] - start[i] - 1, first = n / 2;
            tsr_engine_reset(whole, 0);
            float *want = golden_forward(whole, ids + start[i], n, false);
            if (tsr_eval_layers_logits(l, i, 0, first, got, &e.err) != TSR_OK ||
                tsr_eval_layers_logits(l, i, first, n - first, got + first * vocab, &e.err) !=
                    TSR_OK)
                fail_msg("%s: %s", name, e.text);
            if (memcmp(got, want, n * vocab * sizeof *got) != 0)
                fail_msg("%s: other logits of window %u, %u at once", name, (unsigned)i,
                         (unsigned)at_once);
            free(want);
        }
        /* back to the first: another pass */
        assert_int_equal(tsr_eval_layers_logits(l, 0, 2, 1, got, &e.err), TSR_OK);
        tsr_eval_layers_close(l);
    }
    tsr_engine_destroy(whole);
    free(got);
    tsr_model_destroy(s);
    wide_free(m, folder);
}

static void bytes_of_the_whole_model(void **state)
{
    static const char *const more[] = { WIDE_EXPERTS, WIDE_SHARED_EXPERT };
    (void)state;
    for (size_t i = 0; wide_names[i]; i++)
        logits_of_layers(wide_names[i], TSR_ACT_F32);
    for (size_t i = 0; wide_latent_names[i]; i++)
        logits_of_layers(wide_latent_names[i], TSR_ACT_F32);
    for (size_t i = 0; wide_delta_names[i]; i++)
        logits_of_layers(wide_delta_names[i], TSR_ACT_F32);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        logits_of_layers(more[i], TSR_ACT_F32);
}

static void memory_runs_out(void **state)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    char                    folder[64];
    struct tsr_model       *m = wide_load("llama", true, folder);
    struct tsr_eval_layers *l = NULL;
    struct tsr_eval_windows w;
    uint64_t                start[2] = { 0, UINT64_MAX / 2 };
    (void)state;
    w = (struct tsr_eval_windows){ .start = start, .n = 1 };
    assert_int_equal(tsr_eval_layers_open(&l, registry, m, &w, 9, TSR_ACT_F32, NULL, &e.err),
                     TSR_E_NOMEM);
    assert_null(l);
    wide_free(m, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_the_whole_model),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
