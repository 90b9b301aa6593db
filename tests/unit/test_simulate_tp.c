/* Simulated ranks: with exact sums they are the engine without them, byte for byte; with any codec and
 * algorithm they are real ranks on threads, byte for byte; calibrated codecs take their states along. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "../golden/wide.h"
#include "comm/group.h"
#include "eval/codec_file.h"
#include "eval/simulate.h"
#include "plugin_open.h"
#include "quant/quantize.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS 40u
#define VOCAB  4096u

static struct tsr_registry *registry;
static struct tsr_model    *model;
static uint32_t             ids[2 * TOKENS];

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("%s", e->text);
}

/* Logits of the last token of TOKENS tokens in one pass. */
static tsr_status logits_of(struct tsr_engine *e, float *out, struct tsr_err *err)
{
    struct tsr_engine_token t[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        t[i] = (struct tsr_engine_token){ .id = ids[i], .logits = i + 1 == TOKENS };
    return tsr_engine_forward(e, t, TOKENS, out, err);
}

static void run(const struct tsr_engine_split *split, float *out)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_engine        *engine = NULL;
    struct tsr_engine_options o = {
        .kv_dtype = TSR_F32, .slots = 1, .context = TOKENS, .split = split
    };
    must(tsr_engine_create(&engine, registry, model, NULL, &o, &e.err), &e);
    must(logits_of(engine, out, &e.err), &e);
    tsr_engine_destroy(engine);
}

static struct tsr_tp *open_tp(uint32_t ranks, const char *codec, enum tsr_comm_algorithm algorithm,
                              const struct tsr_comm_state *states, uint64_t n)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_tp             *t = NULL;
    struct tsr_eval_tp_options o = { ranks, codec, algorithm, states, n };
    must(tsr_eval_tp_open(&t, registry, &o, &e.err), &e);
    return t;
}

static void exact_sums_change_nothing(void **unused)
{
    static float want[VOCAB], got[VOCAB];
    (void)unused;
    run(NULL, want);
    for (uint32_t ranks = 2; ranks <= 8; ranks *= 2)
        for (int a = 0; a < 2; a++) {
            struct tsr_tp *t =
                open_tp(ranks, NULL, a ? TSR_COMM_TWO_STEP : TSR_COMM_ALL_GATHER, NULL, 0);
            assert_true(tsr_eval_tp_exact(t));
            run(tsr_eval_tp_split(t), got);
            assert_memory_equal(got, want, sizeof want);
            tsr_eval_tp_close(t);
        }
    /* other numbers of ranks have another tree: near, not equal */
    struct tsr_tp *t = open_tp(13, "", TSR_COMM_ALL_GATHER, NULL, 0);
    run(tsr_eval_tp_split(t), got);
    for (uint32_t i = 0; i < VOCAB; i++) /* logits of order 10, sums of 512 terms in F32 */
        if (!(got[i] - want[i] < 1e-3f && want[i] - got[i] < 1e-3f))
            fail_msg("logit %u is %g, wanted %g", i, (double)got[i], (double)want[i]);
    tsr_eval_tp_close(t);
}

/* ---- real ranks ------------------------------------------------------------------- */

struct rank {
    struct tsr_comm_group *group;
    struct tsr_engine     *engine;
    float                  logits[VOCAB];
    tsr_status             st;
    struct tsr_errbuf      e;
};

static tsr_status group_sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                            struct tsr_err *err)
{
    return tsr_comm_group_sum(((struct rank *)ctx)->group, 0, site, x, rows, cols, err);
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    r->st = logits_of(r->engine, r->logits, &r->e.err);
    if (r->st != TSR_OK)
        tsr_comm_group_abort(r->group);
    return NULL;
}

static void run_real(uint32_t n, const struct tsr_comm_way *way, float *out)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_world w;
    struct rank          *r = calloc(n, sizeof *r);
    pthread_t             id[8];
    assert_non_null(r);
    must(tsr_comm_world_create(&w, registry, "local", n, &e.err), &e);
    for (uint32_t i = 0; i < n; i++) {
        struct tsr_comm_options   o = { .place = { "local", i, n, w.shared, w.bytes, 0, NULL },
                                        .deadline_us = 60000000,
                                        .way = { *way, *way } };
        struct tsr_engine_tp      tp = { .rank = i, .ranks = n, .sum = group_sum, .ctx = &r[i] };
        struct tsr_engine_options eo = {
            .kv_dtype = TSR_F32, .slots = 1, .context = TOKENS, .tp = &tp
        };
        r[i].e = (struct tsr_errbuf)TSR_ERRBUF(r[i].e);
        must(tsr_comm_group_create(&r[i].group, registry, &o, &e.err), &e);
        must(tsr_engine_create(&r[i].engine, registry, model, NULL, &eo, &e.err), &e);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&id[i], NULL, run_rank, &r[i]), 0);
    for (uint32_t i = 0; i < n; i++)
        (void)pthread_join(id[i], NULL);
    for (uint32_t i = 0; i < n; i++) {
        must(r[i].st, &r[i].e);
        assert_memory_equal(r[i].logits, r[0].logits, sizeof r[0].logits);
        tsr_engine_destroy(r[i].engine);
        tsr_comm_group_destroy(r[i].group);
    }
    memcpy(out, r[0].logits, sizeof r[0].logits);
    tsr_comm_world_close(&w);
    free(r);
}

static void simulated_ranks_are_real_ranks(void **unused)
{
    static const char *const codecs[] = { "mx",
                                          "int4_bf16:one_in=16",
                                          "int4_channel",
                                          "topk",
                                          "plain:dtype=bf16",
                                          "mx:feedback=tokens",
                                          "mx:feedback=layers" };
    static float             want[VOCAB], got[VOCAB], whole[VOCAB];
    (void)unused;
    run(NULL, whole);
    for (int i = 0; i < 7; i++) {
        struct tsr_errbuf       e = TSR_ERRBUF(e);
        enum tsr_comm_algorithm a = i % 2 ? TSR_COMM_TWO_STEP : TSR_COMM_ALL_GATHER;
        uint32_t                ranks = i % 2 ? 4 : 2;
        struct tsr_tp          *t = open_tp(ranks, codecs[i], a, NULL, 0);
        struct tsr_comm_state  *states = NULL;
        uint64_t                n = 0;
        assert_false(tsr_eval_tp_exact(t));
        if (tsr_eval_tp_needs(t)) {
            struct tsr_engine_options eo = { .kv_dtype = TSR_F32 };
            must(tsr_eval_tp_calibrate(t, registry, model, NULL, &eo, ids, 2, TOKENS, &e.err), &e);
            assert_false(tsr_eval_tp_needs(t));
            must(tsr_eval_tp_save(t, &states, &n, &e.err), &e);
        }
        struct tsr_comm_way way = {
            .codec = codecs[i], .algorithm = a, .states = states, .n_states = n
        };
        run_real(ranks, &way, want);
        run(tsr_eval_tp_split(t), got);
        assert_memory_equal(got, want, sizeof want);
        assert_memory_not_equal(got, whole, sizeof whole);
        if (states) { /* and what loads the state is what saved it */
            struct tsr_tp *again = open_tp(ranks, codecs[i], a, states, n);
            run(tsr_eval_tp_split(again), got);
            assert_memory_equal(got, want, sizeof want);
            tsr_eval_tp_close(again);
        }
        tsr_eval_tp_states_free(states, n);
        tsr_eval_tp_close(t);
    }
}

/* Experts: each rank weighs what its columns of every expert's down give, and the sum over the ranks is that of the
 * layer, which is rounded otherwise than that of one engine. */
static void experts_are_too(void **unused)
{
    static const char *const codecs[] = { "plain", "mx:block=8", "plain", "plain:dtype=bf16" };
    static float             want[VOCAB], got[VOCAB], whole[VOCAB];
    struct tsr_model        *before = model;
    uint32_t                 kept[2 * TOKENS];
    char                     path[64];
    (void)unused;
    memcpy(kept, ids, sizeof ids);
    model = wide_load(WIDE_EXPERTS, false, path);
    for (uint32_t t = 0; t < 2 * TOKENS; t++)
        ids[t] = kept[t] % (uint32_t)model->hp.vocab;
    run(NULL, whole);
    for (int i = 0; i < 4; i++) {
        enum tsr_comm_algorithm a = i % 2 ? TSR_COMM_TWO_STEP : TSR_COMM_ALL_GATHER;
        struct tsr_comm_way     way = { .codec = codecs[i], .algorithm = a };
        uint32_t                ranks = i < 2 ? 2 : 4;
        struct tsr_tp          *t = open_tp(ranks, codecs[i], a, NULL, 0);
        run_real(ranks, &way, want);
        run(tsr_eval_tp_split(t), got);
        assert_memory_equal(got, want, sizeof want);
        for (uint32_t v = 0; tsr_eval_tp_exact(t) && v < model->hp.vocab; v++)
            if (!(got[v] - whole[v] < 1e-4f && whole[v] - got[v] < 1e-4f))
                fail_msg("%u ranks: logit %u is %g, of one engine %g", ranks, v, (double)got[v],
                         (double)whole[v]);
        if (!tsr_eval_tp_exact(t))
            assert_memory_not_equal(got, whole, sizeof whole);
        tsr_eval_tp_close(t);
    }
    wide_free(model, path);
    model = before;
    memcpy(ids, kept, sizeof ids);
}

/* ---- files -------------------------------------------------------------------------- */

static char folder[] = "/tmp/tessera-codec-XXXXXX";

static void refused(const char *path, const struct tsr_eval_codec_key *k, const char *facts)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_eval_codec_file *f = NULL;
    assert_int_equal(tsr_eval_codec_file_load(&f, path, k, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, path, facts));
}

static void files_are_of_one_key(void **unused)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_eval_codec_key   k = { .codec = "int4_bf16", .ranks = 8 }, other;
    struct tsr_comm_state       states[2] = { { "abc", 3 }, { "defgh", 5 } };
    struct tsr_eval_codec_file *f = NULL;
    struct tsr_model_overlay   *o = NULL;
    char                        path[128];
    (void)unused;
    (void)snprintf(path, sizeof path, "%s/a.safetensors", folder);
    must(tsr_eval_codec_key_model(&k, model, NULL, &e.err), &e);
    assert_string_equal(k.weights, "stored");
    must(tsr_eval_codec_file_write(path, &k, "the text", states, 2, &e.err), &e);
    must(tsr_eval_codec_file_load(&f, path, &k, &e.err), &e);
    assert_int_equal(f->n, 2);
    assert_int_equal(f->states[1].bytes, 5);
    assert_memory_equal(f->states[1].data, "defgh", 5);
    assert_string_equal(f->text, "the text");
    tsr_eval_codec_file_free(f);
    other = k;
    other.ranks = 4;
    refused(path, &other, "8 4");
    other = k;
    other.codec = "int4_bf16:bits=3";
    refused(path, &other, "int4_bf16 int4_bf16:bits=3");
    other = k;
    other.algorithm = TSR_COMM_TWO_STEP;
    refused(path, &other, "all-gather two-step");
    other = k;
    other.act = TSR_ACT_A8;
    refused(path, &other, "f32 a8");
    other = k;
    other.model[3] ^= 1;
    refused(path, &other, "model");
    other = k;
    other.weights[0] = 'x';
    refused(path, &other, "stored xtored");
    /* packed weights that pack nothing are those as stored */
    must(tsr_model_overlay_create(&o, model->hp.layers, model->hp.linears, &e.err), &e);
    other = k;
    must(tsr_eval_codec_key_model(&other, model, o, &e.err), &e);
    assert_string_equal(other.model, k.model);
    assert_string_equal(other.weights, "stored");
    tsr_model_overlay_destroy(o);
    /* a byte of the last state */
    FILE *h = fopen(path, "r+b");
    assert_non_null(h);
    assert_int_equal(fseek(h, -1, SEEK_END), 0);
    assert_int_equal(fputc('x', h), 'x');
    assert_int_equal(fclose(h), 0);
    refused(path, &k, "state.001");
    assert_int_equal(remove(path), 0);
}

static void what_cannot_be_simulated(void **unused)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_tp             *t = NULL;
    struct tsr_eval_tp_options o = { .ranks = 33 };
    (void)unused;
    assert_int_equal(tsr_eval_tp_open(&t, registry, &o, &e.err), TSR_E_INPUT);
    assert_string_equal(e.text, "33 ranks cannot be simulated; 2 to 32 can");
    o = (struct tsr_eval_tp_options){ .ranks = 2, .codec = "mx:block=0" };
    assert_int_equal(tsr_eval_tp_open(&t, registry, &o, &e.err), TSR_E_INPUT);
    t = open_tp(2, "mx", TSR_COMM_ALL_GATHER, NULL, 0);
    struct tsr_engine_options eo = { .kv_dtype = TSR_F32 };
    assert_int_equal(tsr_eval_tp_calibrate(t, registry, model, NULL, &eo, ids, 1, TOKENS, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "mx", NULL));
    tsr_eval_tp_close(t);
}

static int setup(void **unused)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_found found;
    (void)unused;
    registry = open_plugin("tessera.codec/1", "mx", &found);
    for (uint32_t i = 0; i < 2 * TOKENS; i++)
        ids[i] = 300 + i * 37 % 3000;
    if (tsr_model_load(&model, TSR_SOURCE_ROOT "/configs/demo", false, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **unused)
{
    (void)unused;
    tsr_model_destroy(model);
    tsr_plugin_registry_destroy(registry);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sums_change_nothing),
        cmocka_unit_test(simulated_ranks_are_real_ranks),
        cmocka_unit_test(experts_are_too),
        cmocka_unit_test(files_are_of_one_key),
        cmocka_unit_test(what_cannot_be_simulated),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
