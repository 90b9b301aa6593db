/* The forward pass layer by layer is the engine's, byte for byte: every golden model, any thread
 * count, sequences longer than a chunk, packed layers, folded norms, replaced linears. */
#include "golden.h"

#include "base/f16.h"
#include "config/config.h"
#include "engine/internal.h"
#include "engine/stream.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static struct tsr_registry *registry[2];
static struct tsr_pool     *pool[2];

static int set_up(void **state)
{
    (void)state;
    registry[0] = golden_registry(1, NULL, &pool[0]);
    registry[1] = golden_registry(3, NULL, &pool[1]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        golden_registry_close(registry[i], pool[i]);
    return 0;
}

static float *room(uint64_t rows, uint64_t cols)
{
    float *v = calloc(rows * cols, sizeof *v);
    assert_non_null(v);
    return v;
}

/* Logits of a sequence through the stream under an overlay. */
static float *stream_logits(struct tsr_stream *s, const struct tsr_model *m,
                            const struct tsr_model_overlay *o, const uint32_t *ids, uint64_t n)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    float            *h = room(n, m->hp.hidden), *logits = room(n, m->hp.vocab);
    OK(tsr_engine_stream_embed(s, ids, n, h, &err.err));
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        OK(tsr_engine_stream_open_layer(s, l, o, &err.err));
        OK(tsr_engine_stream_run(s, h, n, h, &err.err));
    }
    OK(tsr_engine_stream_head(s, h, n, logits, &err.err));
    free(h);
    return logits;
}

static void check_same(const char *what, const struct tsr_model *m,
                       const struct tsr_model_overlay *o, const uint32_t *ids, uint64_t n,
                       struct tsr_registry *r)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options opt = { .kv_dtype = TSR_F32, .slots = 1, .context = n };
    struct tsr_engine        *e = golden_engine(registry[0], m, o, opt);
    float                    *want = golden_forward(e, ids, n, false);
    struct tsr_stream        *s = NULL;
    uint64_t                  weights, cache, bound;
    OK(tsr_engine_stream_create(&s, r, m, n, TSR_ACT_F32, NULL, &err.err));
    for (int round = 0; round < 2; round++) { /* a stream can begin again */
        float *got = stream_logits(s, m, o, ids, n);
        if (memcmp(got, want, n * m->hp.vocab * sizeof *got) != 0)
            fail_msg("%s: logits of %llu tokens differ from the engine's", what,
                     (unsigned long long)n);
        free(got);
    }
    OK(tsr_engine_stream_estimate(m, n, &bound, &err.err));
    if (!o && tsr_engine_stream_memory(s) > bound)
        fail_msg("%s: %llu bytes on the device, the bound is %llu", what,
                 (unsigned long long)tsr_engine_stream_memory(s), (unsigned long long)bound);
    tsr_engine_memory(e, &weights, &cache);
    assert_true(tsr_engine_stream_memory(s) > 0);
    tsr_engine_stream_destroy(s);
    tsr_engine_destroy(e);
    free(want);
}

static void goldens(void **state)
{
    (void)state;
    for (size_t i = 0; golden_names[i]; i++) {
        struct golden g;
        golden_load(&g, golden_names[i]);
        for (uint64_t k = 0; k < g.n; k++)
            check_same(golden_names[i], g.model, NULL, g.cases[k].prompt, g.cases[k].n_prompt,
                       registry[k % 2]);
        golden_free(&g);
    }
}

/* A layer after the other takes less than all of them. */
static void one_layer_at_a_time(void **state)
{
    (void)state;
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct tsr_model  *m = NULL;
    struct tsr_stream *s = NULL;
    uint32_t           ids[4] = { 5, 6, 7, 8 };
    uint64_t           layer = 0, bound;
    OK(tsr_model_load(&m, TSR_SOURCE_ROOT "/configs/demo", false, &err.err));
    OK(tsr_engine_stream_create(&s, registry[0], m, 4, TSR_ACT_F32, NULL, &err.err));
    free(stream_logits(s, m, NULL, ids, 4));
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        layer += m->layers[0].lin[i].w.rows * m->layers[0].lin[i].w.cols *
                 tsr_dtype_size(m->layers[0].lin[i].w.dtype);
    OK(tsr_engine_stream_estimate(m, 4, &bound, &err.err));
    assert_true(tsr_engine_stream_memory(s) <= bound);
    assert_true(m->hp.layers >= 3);
    assert_true(tsr_engine_stream_memory(s) >= layer);
    /* the other layers are not there: the bound itself leaves no room for a second one */
    uint64_t head = m->head.w.rows * m->head.w.cols * tsr_dtype_size(m->head.w.dtype);
    assert_true(bound < 2 * layer + head);
    tsr_engine_stream_destroy(s);
    tsr_model_destroy(m);
}

/* A sequence of more than one chunk. */
static void long_sequence(void **state)
{
    (void)state;
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_model *m = NULL;
    uint32_t          ids[TSR_DEFAULT_CHUNK + 9];
    const uint64_t    n = sizeof ids / sizeof *ids;
    OK(tsr_model_load(&m, TSR_SOURCE_ROOT "/configs/demo", false, &err.err));
    assert_true(m->hp.max_positions >= n);
    for (uint64_t i = 0; i < n; i++)
        ids[i] = (uint32_t)((i * 2654435761u) % m->hp.vocab);
    check_same("demo", m, NULL, ids, n, registry[1]);
    tsr_model_destroy(m);
}

/* ---- replaced linears ------------------------------------------------------------------------ */

static void rows_of(float *dst, const struct tsr_matrix *w)
{
    for (uint64_t r = 0; r < w->rows; r++)
        tsr_widen(dst + r * w->cols, (const unsigned char *)w->data + r * w->row_stride, w->dtype,
                  w->cols);
}

/* The parts put together are the layer; a linear that is replaced by itself changes nothing, one
 * that is halved does, and taking it back restores the bytes. */
static void parts_and_linears(void **state)
{
    (void)state;
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct golden      g;
    struct tsr_stream *s = NULL;
    golden_load(&g, "llama3");
    const struct tsr_model   *m = g.model;
    const struct golden_case *c = &g.cases[g.n - 1];
    uint64_t                  n = c->n_prompt, hidden = m->hp.hidden;
    float *h = room(n, hidden), *a = room(n, hidden), *b = room(n, hidden), *x = room(n, hidden);
    OK(tsr_engine_stream_create(&s, registry[0], m, n, TSR_ACT_F32, NULL, &err.err));
    assert_int_equal(tsr_engine_stream_run(s, h, n, a, &err.err), TSR_E_INVAL); /* nothing open */
    assert_true(n > 1); /* else attention does not look at q */
    OK(tsr_engine_stream_embed(s, c->prompt, n, h, &err.err));
    OK(tsr_engine_stream_open_layer(s, 1, NULL, &err.err));
    OK(tsr_engine_stream_run(s, h, n, a, &err.err));
    OK(tsr_engine_stream_run_part(s, TSR_ENGINE_STREAM_FEED_FORWARD, h, n, x, &err.err));
    for (int id = 0; id < TSR_MODEL_LINEARS; id++) {
        struct tsr_matrix w = m->layers[1].lin[id].w;
        float            *v = room(w.rows, w.cols);
        rows_of(v, &w);
        w.dtype = TSR_F32;
        w.data = v;
        w.row_stride = w.cols * sizeof *v;
        OK(tsr_engine_stream_set_linear(s, (enum tsr_linear_id)id, &w, &err.err));
        OK(tsr_engine_stream_run(s, h, n, b, &err.err));
        assert_memory_equal(a, b, n * hidden * sizeof *a);
        for (uint64_t i = 0; i < w.rows * w.cols; i++)
            v[i] *= 0.5f;
        OK(tsr_engine_stream_set_linear(s, (enum tsr_linear_id)id, &w, &err.err));
        OK(tsr_engine_stream_run(s, h, n, b, &err.err));
        assert_true(memcmp(a, b, n * hidden * sizeof *a) != 0);
        if (id == TSR_MODEL_DOWN) { /* the output of down is linear in it: exactly half */
            OK(tsr_engine_stream_run_part(s, TSR_ENGINE_STREAM_FEED_FORWARD, h, n, b, &err.err));
            for (uint64_t i = 0; i < n * hidden; i++)
                assert_true(b[i] == 0.5f * x[i]);
        }
        OK(tsr_engine_stream_set_linear(s, (enum tsr_linear_id)id, NULL, &err.err));
        OK(tsr_engine_stream_run(s, h, n, b, &err.err));
        assert_memory_equal(a, b, n * hidden * sizeof *a);
        w.rows--;
        assert_int_equal(tsr_engine_stream_set_linear(s, (enum tsr_linear_id)id, &w, &err.err),
                         TSR_E_INVAL);
        free(v);
    }
    assert_int_equal(tsr_engine_stream_open_layer(s, m->hp.layers, NULL, &err.err), TSR_E_INVAL);
    assert_int_equal(tsr_engine_stream_run(s, h, n + 1, b, &err.err),
                     TSR_E_INVAL); /* longer than said */
    tsr_engine_stream_destroy(s);
    free(h);
    free(a);
    free(b);
    free(x);
    golden_free(&g);
}

/* ---- packed layers and folded norms ---------------------------------------------------------- */

static void pack_rtn(struct tsr_model_overlay *o, const struct tsr_model *m)
{
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_plugin_found found;
    void                   *opts, *self = NULL;
    OK(tsr_plugin_registry_find(registry[0], TSR_KIND_QUANTIZER, "rtn", &found, &err.err));
    opts = calloc(1, found.component->options_size);
    assert_non_null(opts);
    struct tsr_config_optset set = { .options = found.component->options,
                                     .n = found.component->n_options,
                                     .stride = found.component->option_stride,
                                     .into = opts };
    tsr_config_options_defaults(&set);
    struct tsr_quantizer q = { .iface = found.iface, .name = "rtn" };
    OK(q.iface->create(tsr_plugin_registry_host(registry[0]), opts, &self, &err.err));
    q.self = self;
    for (uint64_t l = 0; l < o->layers; l++)
        for (int id = (int)(l % 2); id < TSR_MODEL_LINEARS; id++) /* some stay dense */
            if (m->layers[l].lin[id].w.data)
                OK(tsr_quantize_matrix(registry[0], &q, &m->layers[l].lin[id].w, NULL,
                                       &o->lin[l][id], &err.err));
    q.iface->destroy(self);
    free(opts);
}

static void packed_layers(void **state)
{
    (void)state;
    static const char *const names[] = { "llama3", "bloom", "gemma2" };
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    for (size_t i = 0; i < 3; i++) {
        struct golden             g;
        struct tsr_model_overlay *o = NULL;
        golden_load(&g, names[i]);
        OK(tsr_model_overlay_create(&o, g.model->hp.layers, g.model->hp.linears, &err.err));
        pack_rtn(o, g.model);
        float *gain = room(1, g.model->hp.hidden);
        for (uint64_t c = 0; c < g.model->hp.hidden; c++)
            gain[c] = g.model->layers[0].ffn_in.gain[c] * (1 + (float)(c % 3));
        o->norm[0][TSR_MODEL_OVERLAY_FFN_IN] =
            (struct tsr_model_norm){ .gain = gain, .bias = NULL };
        check_same(names[i], g.model, o, g.cases[0].prompt, g.cases[0].n_prompt, registry[1]);
        tsr_model_overlay_destroy(o);
        golden_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),       cmocka_unit_test(one_layer_at_a_time),
        cmocka_unit_test(long_sequence), cmocka_unit_test(parts_and_linears),
        cmocka_unit_test(packed_layers),
    };
    return cmocka_run_group_tests_name("stream", tests, set_up, tear_down);
}
