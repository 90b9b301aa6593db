/* A model that is packed while it is loaded: the logits of the same model packed before, no more
 * memory than its share and two layers. */
#include "golden.h"
#include "wide.h"

#include "config/config.h"
#include "runtime/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SCHEME "use: rtn\nbits: 4\ngroup: 32\nrules:\n  - {layers: 1, bits: 8}\n"
#define TOKENS 9u

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static void logits(struct tsr_engine *e, float *out)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_token  t[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        t[i] = (struct tsr_token){ .id = 5 + 3 * i, .logits = true };
    must(tsr_engine_forward(e, t, TOKENS, out, &err.err), &err);
}

static struct tsr_scheme *scheme_of(struct tsr_registry *r, const char *text, struct tsr_doc **doc)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct tsr_diag   *d = NULL;
    struct tsr_scheme *s = NULL;
    must(tsr_diag_create(&d, &err.err), &err);
    must(tsr_doc_parse(doc, "scheme", text, strlen(text), d, &err.err), &err);
    must(tsr_scheme_create(&s, r, tsr_doc_root(*doc), NULL, "the scheme", d, &err.err), &err);
    must(tsr_diag_status(d, &err.err), &err);
    tsr_diag_destroy(d);
    return s;
}

static void same_as_before(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_pool          *pool = NULL, *other = NULL;
    struct tsr_registry      *r = golden_registry(2, NULL, &pool), *mine;
    char                      folder[64];
    struct tsr_model         *m = wide_load("llama", true, folder);
    struct tsr_overlay       *o = wide_pack(r, m, SCHEME);
    struct tsr_engine_options opt = {
        .act = TSR_ACT_A8, .kv_dtype = TSR_F16, .slots = 1, .context = 16
    };
    uint64_t           floats = TOKENS * m->hp.vocab, now, peak, weights, cache;
    float             *want = malloc(floats * sizeof *want), *got = malloc(floats * sizeof *got);
    struct tsr_engine *e = golden_engine(r, m, o, opt);
    struct tsr_doc    *doc = NULL;
    struct tsr_scheme *s = scheme_of(r, SCHEME, &doc);
    struct tsr_loader *l = NULL;
    struct tsr_loader_numbers n;
    (void)state;
    assert_true(want && got);
    logits(e, want);
    tsr_engine_destroy(e);

    tsr_scheme_destroy(s);
    tsr_doc_destroy(doc);
    mine = golden_registry(1, NULL, &other);
    s = scheme_of(mine, SCHEME, &doc);
    must(tsr_loader_open(&l, s, mine, m, 0, m->hp.layers, &err.err), &err);
    opt.release = true;
    opt.source = tsr_loader_source(l);
    e = golden_engine(mine, m, tsr_loader_overlay(l), opt);
    logits(e, got);
    assert_memory_equal(got, want, floats * sizeof *got);
    tsr_loader_numbers(l, &n);
    tsr_registry_memory(mine, &now, &peak);
    tsr_engine_memory(e, &weights, &cache);
    /* what of the layers is on the device while they are loaded lies below the weights at the end */
    assert_true(n.layer > 0 && n.layer == tsr_model_layer_bytes(m, 0));
    if (n.total > weights + 2 * n.layer)
        fail_msg("%llu bytes while it was loaded; share %llu, a layer %llu",
                 (unsigned long long)n.total, (unsigned long long)weights,
                 (unsigned long long)n.layer);
    if (n.peak > 2 * n.layer + n.layer / 2)
        fail_msg("%llu bytes of host memory, a layer has %llu", (unsigned long long)n.peak,
                 (unsigned long long)n.layer);
    assert_true(weights > 0 && peak >= weights);
    assert_null(m->layers[0].lin[TSR_Q].w.data); /* closed again */
    tsr_engine_destroy(e);
    tsr_loader_close(l);
    tsr_scheme_destroy(s);
    tsr_doc_destroy(doc);
    tsr_overlay_destroy(o);
    wide_free(m, folder);
    free(want);
    free(got);
    golden_registry_close(mine, other);
    golden_registry_close(r, pool);
}

/* A quantizer that asks for statistics is refused with what to do; nothing stays open. */
static void wants_statistics(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_pool          *pool = NULL;
    struct tsr_registry      *r = golden_registry(1, NULL, &pool);
    char                      folder[64];
    struct tsr_model         *m = wide_load("opt", true, folder);
    struct tsr_doc           *doc = NULL;
    struct tsr_scheme        *s = scheme_of(r, "use: gptq\nbits: 4\n", &doc);
    struct tsr_loader        *l = NULL;
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = {
        .kv_dtype = TSR_F16, .slots = 1, .context = 16, .release = true
    };
    (void)state;
    must(tsr_loader_open(&l, s, r, m, 1, 3, &err.err), &err);
    opt.source = tsr_loader_source(l);
    opt.first = 1;
    opt.no_embed = true;
    assert_int_equal(tsr_engine_create(&e, r, m, tsr_loader_overlay(l), &opt, &err.err),
                     TSR_E_INPUT);
    assert_non_null(strstr(err.text, "calibrate"));
    tsr_loader_close(l);
    for (uint64_t i = 0; i < m->hp.layers; i++)
        assert_null(m->layers[i].lin[TSR_Q].w.data);
    tsr_scheme_destroy(s);
    tsr_doc_destroy(doc);
    wide_free(m, folder);
    golden_registry_close(r, pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_before),
        cmocka_unit_test(wants_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
