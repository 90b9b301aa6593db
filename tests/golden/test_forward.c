/* What the engine refuses and how, what a tap sees, and how a request ends. */
#include "golden.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tsr_pool     *pool;
static struct tsr_registry *registry;
static struct golden        g; /* llama3 */

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

static void refused(tsr_status got, tsr_status want, const struct tsr_errbuf *e, const char *about,
                    const char *facts)
{
    if (got != want)
        fail_msg("status %d, wanted %d: %s", got, want, e->text);
    assert_true(error_is(&e->err, about, facts));
}

static void bad_batches(void **state)
{
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_engine      *e = golden_engine(registry, g.model, NULL,
                                              (struct tsr_engine_options){ .slots = 2, .context = 3 });
    uint64_t                vocab = tsr_engine_vocab(e);
    float                  *logits = calloc(8 * vocab, sizeof *logits);
    struct tsr_engine_token t[5] = { { .id = 1, .slot = 0, .logits = true } };
    (void)state;
    assert_non_null(logits);
    t[0].id = (uint32_t)vocab;
    refused(tsr_engine_forward(e, t, 1, logits, &err.err), TSR_E_INPUT, &err, "", "vocabulary 320");
    t[0] = (struct tsr_engine_token){ .id = 1, .slot = 2 };
    refused(tsr_engine_forward(e, t, 1, logits, &err.err), TSR_E_INVAL, &err, "", "slot#2");
    for (uint32_t i = 0; i < 5; i++)
        t[i] = (struct tsr_engine_token){ .id = i, .slot = i < 4 ? 1 : 0, .logits = true };
    refused(tsr_engine_forward(e, t, 5, logits, &err.err), TSR_E_INPUT, &err, "", "context 3");
    assert_int_equal(tsr_engine_length(e, 1), 0); /* refused before anything ran */
    assert_int_equal(tsr_engine_forward(e, t + 1, 4, logits, &err.err), TSR_OK);
    assert_int_equal(tsr_engine_length(e, 1), 3);
    assert_int_equal(tsr_engine_length(e, 0), 1);
    refused(tsr_engine_forward(e, t, 1, logits, &err.err), TSR_E_INPUT, &err, "", "context 3");
    assert_int_equal(tsr_engine_forward(e, t, 0, NULL, &err.err), TSR_OK);
    tsr_engine_reset(e, 1);
    assert_int_equal(tsr_engine_forward(e, t, 1, logits, &err.err), TSR_OK);
    tsr_engine_destroy(e);
    free(logits);
}

static void bad_engines(void **state)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct tsr_engine *e = NULL;
    struct tsr_model  *m = NULL;
    (void)state;
    struct tsr_engine_options o = { .slots = 1, .kv_dtype = TSR_F32, .context = UINT64_C(1) << 33 };
    refused(tsr_engine_create(&e, registry, g.model, NULL, &o, &err.err), TSR_E_INPUT, &err,
            "models/llama3", "8589934592");
    o = (struct tsr_engine_options){ .slots = 1, .kv_dtype = TSR_F32, .on.backend = "abacus" };
    refused(tsr_engine_create(&e, registry, g.model, NULL, &o, &err.err), TSR_E_INPUT, &err,
            "abacus", "backend");
    o = (struct tsr_engine_options){ .slots = 0, .kv_dtype = TSR_F32 };
    refused(tsr_engine_create(&e, registry, g.model, NULL, &o, &err.err), TSR_E_INVAL, &err, "",
            "slots");
    o = (struct tsr_engine_options){ .slots = UINT32_MAX, .kv_dtype = TSR_F32 };
    refused(tsr_engine_create(&e, registry, g.model, NULL, &o, &err.err), TSR_E_NOMEM, &err, "",
            "4294967295 512");
    o = (struct tsr_engine_options){ .slots = 1, .kv_dtype = TSR_F32 };
    assert_int_equal(tsr_model_load(&m, g.model->path, true, &err.err), TSR_OK);
    refused(tsr_engine_create(&e, registry, m, NULL, &o, &err.err), TSR_E_INVAL, &err,
            "models/llama3", NULL);
    tsr_model_destroy(m);
    assert_null(e);
}

/* A NaN that a quantizer's own layout decodes to shows up in the logits of every token. */
static void non_finite_logits_are_named(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_model_overlay *o = NULL;
    const struct tsr_matrix  *w = &g.model->layers[0].lin[TSR_MODEL_DOWN].w;
    (void)state;
    assert_int_equal(tsr_model_overlay_create(&o, g.model->hp.layers, g.model->hp.linears,
                                              &err.err),
                     TSR_OK);
    struct tsr_model_packed *p = calloc(1, sizeof *p);
    p->rows = w->rows;
    p->cols = w->cols;
    p->format_id = strdup("test.own/1");
    p->format = (struct tsr_format){ .struct_size = sizeof p->format, .id = p->format_id };
    p->dense = calloc(w->rows * w->cols, sizeof(float));
    p->dense[3] = NAN;
    o->lin[0][TSR_MODEL_DOWN] = p;
    struct tsr_engine *e =
        golden_engine(registry, g.model, o, (struct tsr_engine_options){ .slots = 3 });
    float                  *logits = calloc(tsr_engine_vocab(e), sizeof *logits);
    struct tsr_engine_token t[3] = { { .id = 1, .slot = 2 },
                                     { .id = 1, .slot = 1 },
                                     { .id = 2, .slot = 2, .logits = true } };
    refused(tsr_engine_forward(e, t, 3, logits, &err.err), TSR_E_NUMERIC, &err, "models/llama3",
            "2 1");
    tsr_engine_destroy(e);
    tsr_model_overlay_destroy(o);
    free(logits);
}

/* ---- taps ---------------------------------------------------------------- */

struct seen {
    uint64_t rows[8][TSR_MODEL_SITES];
    float   *x[8][TSR_MODEL_SITES]; /* all rows so far */
    uint64_t cols[TSR_MODEL_SITES];
    bool     stop;
};

static tsr_status look(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                       uint64_t cols, struct tsr_err *err)
{
    struct seen *s = ctx;
    if (s->stop)
        return tsr_fail(err, TSR_E_CANCELLED, "enough");
    uint64_t *rows = &s->rows[layer][site];
    s->x[layer][site] = realloc(s->x[layer][site], (*rows + n) * cols * sizeof *x);
    assert_non_null(s->x[layer][site]);
    memcpy(s->x[layer][site] + *rows * cols, x, n * cols * sizeof *x);
    *rows += n;
    s->cols[site] = cols;
    return TSR_OK;
}

static void tap_run(uint64_t chunk, struct seen *s)
{
    const struct golden_case *c = &g.cases[g.n - 1];
    struct tsr_engine        *e =
        golden_engine(registry, g.model, NULL, (struct tsr_engine_options){ .chunk = chunk });
    tsr_engine_set_tap(e, look, s);
    free(golden_forward(e, c->prompt, c->n_prompt, false));
    tsr_engine_set_tap(e, NULL, NULL);
    uint64_t rows = s->rows[0][0];
    free(golden_forward(e, c->prompt, c->n_prompt, false));
    assert_int_equal(s->rows[0][0], rows); /* ended */
    tsr_engine_destroy(e);
}

static void taps_see_every_input(void **state)
{
    const struct tsr_model_hparams *hp = &g.model->hp;
    struct seen                     a = { 0 }, b = { 0 };
    uint64_t                        n = g.cases[g.n - 1].n_prompt;
    (void)state;
    assert_true(hp->layers <= 8 && hp->norm == TSR_NORM_RMS);
    tap_run(0, &a);
    tap_run(7, &b);
    assert_int_equal(a.cols[TSR_MODEL_SITE_ATTN_IN], hp->hidden);
    assert_int_equal(a.cols[TSR_MODEL_SITE_O_IN], hp->heads * hp->head_dim);
    assert_int_equal(a.cols[TSR_MODEL_SITE_FFN_IN], hp->hidden);
    assert_int_equal(a.cols[TSR_MODEL_SITE_DOWN_IN], hp->ffn);
    for (uint64_t l = 0; l < hp->layers; l++)
        for (int s = 0; s < TSR_MODEL_SITES; s++) {
            assert_int_equal(a.rows[l][s], n);
            assert_int_equal(b.rows[l][s], n);
            assert_memory_equal(a.x[l][s], b.x[l][s], n * a.cols[s] * sizeof(float));
        }
    /* the first layer's input is the norm of the embedding: worked out here in double */
    const struct tsr_matrix *emb = &g.model->embed;
    float                   *row = calloc(hp->hidden, sizeof *row);
    for (uint64_t t = 0; t < n; t++) {
        double ss = 0;
        tsr_widen(row, (const char *)emb->data + g.cases[g.n - 1].prompt[t] * emb->row_stride,
                  emb->dtype, hp->hidden);
        for (uint64_t i = 0; i < hp->hidden; i++)
            ss += (double)row[i] * (double)row[i];
        double r = 1 / sqrt(ss / (double)hp->hidden + (double)hp->norm_eps);
        for (uint64_t i = 0; i < hp->hidden; i++) {
            double want = row[i] * r * (double)g.model->layers[0].attn_in.gain[i];
            double got = (double)a.x[0][TSR_MODEL_SITE_ATTN_IN][t * hp->hidden + i];
            assert_true(fabs(got - want) <= 1e-6 * fabs(want) + 1e-12); /* a few F32 roundings */
        }
    }
    free(row);
    for (uint64_t l = 0; l < hp->layers; l++)
        for (int s = 0; s < TSR_MODEL_SITES; s++) {
            free(a.x[l][s]);
            free(b.x[l][s]);
        }
}

static void a_tap_can_stop(void **state)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct seen        s = { .stop = true };
    struct tsr_engine *e = golden_engine(registry, g.model, NULL, (struct tsr_engine_options){ 0 });
    struct tsr_engine_token t = { .id = 1 };
    (void)state;
    tsr_engine_set_tap(e, look, &s);
    refused(tsr_engine_forward(e, &t, 1, NULL, &err.err), TSR_E_CANCELLED, &err, "", "enough");
    tsr_engine_destroy(e);
}

/* ---- requests ------------------------------------------------------------ */

static struct tsr_engine_request request(const struct golden_case *c, uint32_t *tokens,
                                         uint64_t max)
{
    return (struct tsr_engine_request){ .prompt = c->prompt,
                                        .n_prompt = c->n_prompt,
                                        .max_tokens = max,
                                        .ignore_eos = true,
                                        .tokens = tokens,
                                        .sampling = { .top_p = 1, .repetition_penalty = 1 } };
}

static tsr_status stop_at_three(void *ctx, uint64_t r, uint32_t id)
{
    uint64_t *n = ctx;
    (void)r;
    (void)id;
    return ++*n == 3 ? TSR_E_CANCELLED : TSR_OK;
}

static void requests_end(void **state)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct tsr_engine *e =
        golden_engine(registry, g.model, NULL, (struct tsr_engine_options){ .slots = 2 });
    const struct golden_case *c = &g.cases[1];
    struct tsr_model_hparams *hp = &g.model->hp;
    uint32_t                  tokens[5][24], eos = hp->eos[0], n_eos = hp->n_eos;
    uint64_t                  calls = 0;
    (void)state;
    assert_true(n_eos >= 1);
    uint64_t at = 4; /* the token that is made the end, where it comes first */
    for (uint64_t i = 0; i < at; i++)
        if (c->greedy[i] == c->greedy[at])
            at = i;
    hp->eos[0] = c->greedy[at];
    hp->n_eos = 1;
    struct tsr_engine_request q[5] = { request(c, tokens[0], 24), request(c, tokens[1], 24),
                                       request(c, tokens[2], 0), request(c, tokens[3], 24),
                                       request(c, tokens[4], 1) };
    q[1].ignore_eos = false;
    q[3].on_token = stop_at_three;
    q[3].ctx = &calls;
    struct tsr_engine_generate_timing time;
    if (tsr_engine_generate(e, q, 5, &time, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    hp->eos[0] = eos;
    hp->n_eos = n_eos;
    assert_true(q[0].n_tokens == 24 && !q[0].stopped);
    assert_memory_equal(tokens[0], c->greedy, sizeof tokens[0]);
    assert_true(q[1].n_tokens == at && q[1].stopped);
    assert_memory_equal(tokens[1], c->greedy, at * sizeof(uint32_t));
    assert_true(q[2].n_tokens == 0 && !q[2].stopped);
    assert_true(q[3].n_tokens == 3 && calls == 3 && !q[3].stopped);
    assert_true(q[4].n_tokens == 1 && tokens[4][0] == c->greedy[0]);
    assert_int_equal(time.prefill_tokens, 4 * c->n_prompt);
    assert_int_equal(time.decode_tokens, 23 + at + 2);
    for (uint32_t s = 0; s < 2; s++)
        assert_int_equal(tsr_engine_length(e, s), 0);
    tsr_engine_destroy(e);
}

static void bad_requests(void **state)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    uint32_t           tokens[64], wrong[] = { 1, 320 };
    struct golden_case c = { .prompt = wrong, .n_prompt = 0 };
    struct tsr_engine *e =
        golden_engine(registry, g.model, NULL, (struct tsr_engine_options){ .context = 10 });
    (void)state;
    struct tsr_engine_request q = request(&c, tokens, 4);
    refused(tsr_engine_generate(e, &q, 1, NULL, &err.err), TSR_E_INPUT, &err, "request 1", NULL);
    q.n_prompt = 2;
    refused(tsr_engine_generate(e, &q, 1, NULL, &err.err), TSR_E_INPUT, &err, "request 1", "320");
    q.n_prompt = 1;
    q.max_tokens = 11;
    refused(tsr_engine_generate(e, &q, 1, NULL, &err.err), TSR_E_INPUT, &err, "request 1", "10");
    q.max_tokens = UINT64_MAX;
    refused(tsr_engine_generate(e, &q, 1, NULL, &err.err), TSR_E_INPUT, &err, "request 1", "10");
    q.max_tokens = 10; /* the last one is never fed: ten positions suffice */
    assert_int_equal(tsr_engine_generate(e, &q, 1, NULL, &err.err), TSR_OK);
    assert_int_equal(q.n_tokens, 10);
    q.sampling.top_p = 2;
    refused(tsr_engine_generate(e, &q, 1, NULL, &err.err), TSR_E_CONFIG, &err, "request 1",
            "top_p");
    assert_int_equal(tsr_engine_generate(e, &q, 0, NULL, &err.err), TSR_OK);
    tsr_plugin_cancel();
    q.sampling.top_p = 1;
    tsr_status st = tsr_engine_generate(e, &q, 1, NULL, &err.err);
    tsr_plugin_cancel_reset();
    refused(st, TSR_E_CANCELLED, &err, "", "interrupted");
    tsr_engine_destroy(e);
}

static void memory_is_counted(void **state)
{
    struct tsr_engine              *e = golden_engine(registry, g.model, NULL,
                                                      (struct tsr_engine_options){ .slots = 3, .context = 10 });
    const struct tsr_model_hparams *hp = &g.model->hp;
    uint64_t                        weights, cache;
    (void)state;
    tsr_engine_memory(e, &weights, &cache);
    assert_int_equal(cache, 2 * hp->layers * 30 * hp->kv_heads * hp->head_dim * 4);
    assert_true(weights > 0 && tsr_engine_context(e) == 10);
    tsr_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_batches),
        cmocka_unit_test(bad_engines),
        cmocka_unit_test(non_finite_logits_are_named),
        cmocka_unit_test(taps_see_every_input),
        cmocka_unit_test(a_tap_can_stop),
        cmocka_unit_test(requests_end),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(memory_is_counted),
    };
    return cmocka_run_group_tests_name("forward", tests, set_up, tear_down);
}
