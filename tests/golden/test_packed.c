/* Every family, streamed and packed: a layer that is opened has the bytes of the model that is read
 * whole, and a packed model gives the logits of its weights before they were stored. */
#include "golden.h"

#include "base/f16.h"
#include "base/file.h"
#include "config/config.h"
#include "quant/quantize.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s: %s", name, #call, err.text);                                         \
    } while (0)

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

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

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static void check_layer(const char *name, const struct tsr_model_layer *a,
                        const struct tsr_model_layer *b, uint64_t linears)
{
    for (uint64_t i = 0; i < linears; i++) {
        const struct tsr_matrix *x = &a->lin[i].w, *y = &b->lin[i].w;
        assert_int_equal(x->rows, y->rows);
        assert_int_equal(x->cols, y->cols);
        assert_int_equal(x->dtype, y->dtype);
        if (x->rows && (!y->data || memcmp(x->data, y->data, x->rows * x->row_stride) != 0))
            fail_msg("%s: %s differs when it is streamed", name, x->name);
    }
}

/* Opened layers are those of the model read whole; closed ones are not there. */
static void streamed_is_whole(const char *name, const struct tsr_model *whole,
                              const struct tsr_model *m)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    assert_string_equal(whole->hash, m->hash);
    assert_int_equal(whole->bytes, m->bytes);
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        assert_null(m->layers[l].lin[TSR_MODEL_O].w.data);
        OK(tsr_model_open_layer(m, l, &err.err));
        OK(tsr_model_open_layer(m, l, &err.err));
        check_layer(name, &whole->layers[l], &m->layers[l], m->hp.linears);
        tsr_model_close_layer(m, l);
        assert_non_null(m->layers[l].lin[TSR_MODEL_O].w.data); /* one open is left */
        tsr_model_close_layer(m, l);
        assert_null(m->layers[l].lin[TSR_MODEL_O].w.data);
    }
}

/* Every kind of leftover: all of a fused tensor packed, a part of it, a head that is packed. */
static const char *const schemes[] = {
    "use: rtn\nbits: 4\ngroup: 16\n",
    "use: rtn\nbits: 3\ngroup: -1\nrules:\n  - {tensors: \"*.k*_proj\", keep: true}\n"
    "  - {tensors: \"*.up_proj\", keep: true}\n  - {tensors: lm_head, bits: 8}\n",
};

static float *logits_of(const struct tsr_model *m, const struct tsr_model_overlay *o,
                        const struct golden_case *c)
{
    struct tsr_engine_options opt = { .kv_dtype = TSR_F32, .slots = 1, .context = c->n_prompt };
    struct tsr_engine        *e = golden_engine(registry, m, o, opt);
    float                    *v = golden_forward(e, c->prompt, c->n_prompt, false);
    tsr_engine_destroy(e);
    return v;
}

static void pack(const char *name, const char *scheme, const struct tsr_model *m,
                 const char *folder, struct tsr_model_overlay **o)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_config_doc   *doc = NULL;
    struct tsr_diag         *d = NULL;
    struct tsr_quant_scheme *s = NULL;
    uint64_t                 done = 0;
    OK(tsr_config_diag_create(&d, &err.err));
    OK(tsr_config_doc_parse(&doc, "scheme", scheme, strlen(scheme), d, &err.err));
    OK(tsr_quant_scheme_create(&s, registry, tsr_config_doc_root(doc), NULL, "the scheme", d,
                               &err.err));
    OK(tsr_config_diag_status(d, &err.err));
    struct tsr_quantize_options qo = { .folder = folder, .options = tsr_config_doc_root(doc) };
    OK(tsr_quantize_model(s, registry, m, &qo, o, &done, &err.err));
    assert_int_equal(done, 0);
    tsr_quant_scheme_destroy(s);
    tsr_config_diag_destroy(d);
    tsr_config_doc_destroy(doc);
}

static void packed_is_overlay(const char *name, const char *scheme, const struct golden *g,
                              const struct tsr_model *streamed)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    char                      folder[] = "/tmp/tessera-packed-XXXXXX";
    struct tsr_model_overlay *o = NULL;
    struct tsr_model         *m = NULL;
    assert_non_null(mkdtemp(folder));
    pack(name, scheme, streamed, folder, &o);
    OK(tsr_model_load(&m, folder, false, &err.err));
    assert_non_null(m->packed);
    float *want = logits_of(g->model, o, &g->cases[0]), *got = logits_of(m, NULL, &g->cases[0]);
    float *dense = logits_of(g->model, NULL, &g->cases[0]);
    size_t bytes = g->cases[0].n_prompt * m->hp.vocab * sizeof *got;
    if (memcmp(want, got, bytes) != 0)
        fail_msg("%s: the packed model's logits are others", name);
    if (memcmp(dense, got, bytes) == 0)
        fail_msg("%s: packing changed nothing", name);
    free(want);
    free(got);
    free(dense);
    tsr_model_destroy(m);
    tsr_model_overlay_destroy(o);
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void families(void **state)
{
    (void)state;
    for (size_t i = 0; golden_names[i]; i++) {
        const char *name = golden_names[i];
        if (strcmp(name, "gpt_oss-mxfp4") == 0) /* packed already */
            continue;
        struct tsr_errbuf err = TSR_ERRBUF(err);
        struct golden     g;
        struct tsr_model *m = NULL;
        golden_load(&g, name);
        OK(tsr_model_load_streamed(&m, g.model->path, &err.err));
        streamed_is_whole(name, g.model, m);
        for (size_t k = 0; k < sizeof schemes / sizeof *schemes; k++)
            packed_is_overlay(name, schemes[k], &g, m);
        tsr_model_destroy(m);
        golden_free(&g);
    }
}

/* The engine runs a streamed model; its layers are in memory as long as it lives. */
static void engine_opens_layers(void **state)
{
    (void)state;
    const char       *name = golden_names[0];
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct golden     g;
    struct tsr_model *m = NULL;
    golden_load(&g, name);
    OK(tsr_model_load_streamed(&m, g.model->path, &err.err));
    float *want = logits_of(g.model, NULL, &g.cases[0]), *got = logits_of(m, NULL, &g.cases[0]);
    assert_memory_equal(want, got, g.cases[0].n_prompt * m->hp.vocab * sizeof *got);
    assert_null(m->layers[0].lin[TSR_MODEL_Q].w.data);
    free(want);
    free(got);
    tsr_model_destroy(m);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),
        cmocka_unit_test(engine_opens_layers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
