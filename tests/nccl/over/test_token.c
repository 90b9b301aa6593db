/* A token of a whole model whose layers two ranks share is one graph on each of their devices: with sums in
 * windows no kernel is launched alone, nothing is taken or freed, and the host waits for the end of the token alone.
 * The same with three stages of equal layers on each device, a graph each.  Where sums go as messages they cut the
 * token, and parts of fewer than eight launches are no graph.  Logits are always those of one process on the CPU that
 * simulates the ranks, to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../golden/golden.h"
#include "../../golden/wide.h"
#include "../../gpu/standin/standin.h"
#include "../late.h"
#include "base/rng.h"
#include "comm/group.h"
#include "engine/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LONG_US UINT64_C(60000000) /* only a hang reaches it */
#define RANKS   2u
#define STAGES  WIDE_LAYERS /* at most: a layer each */
#define PROMPT  5u
#define STEPS   7u /* the prompt, tokens while graphs are made, */
#define COUNTED 2u /* and the last ones, which are counted */
#define VOCAB   96u
#define LOGITS  ((size_t)(PROMPT + STEPS - 1) * VOCAB)

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

struct way {
    const char             *name, *model, *scheme, *codec; /* scheme: NULL: as stored */
    enum tsr_comm_algorithm algorithm;
    const char             *devices; /* TSR_STANDIN */
    uint32_t                act, stages;
    bool                    windows;
    /* Of a token, of both ranks together; nodes: launches of the graphs, 0: not counted. */
    uint64_t graphs, launches, nodes;
};

struct rank {
    const struct way         *way;
    struct tsr_comm_group    *g;
    struct tsr_engine        *e[STAGES];
    struct tsr_engine_device *device;
    void                     *backend;
    float                    *in, *out, *logits;
    uint64_t                  n, there;
    struct tsr_engine_token   token[PROMPT];
    uint32_t                  rank;
    tsr_status                st;
    struct tsr_errbuf         err;
};

/* ---- sums ---------------------------------------------------------------------------- */

static tsr_status sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                      struct tsr_err *err)
{
    (void)ctx;
    (void)x;
    return tsr_fail(err, TSR_E_UNSUPPORTED, "sum %u of %llu x %llu is not on the device", site,
                    (unsigned long long)rows, (unsigned long long)cols);
}

static tsr_status sum_on(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend, void *self,
                         const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct rank *r = ctx;
    TSR_TRY(tsr_comm_group_sum_on(r->g, 1, site, backend, self, x, done, err));
    r->there += *done;
    return TSR_OK;
}

static tsr_status reserve_on(void *ctx, const struct tsr_backend_v1 *backend, void *self,
                             uint64_t rows, uint64_t cols, uint32_t first, uint32_t end,
                             struct tsr_err *err)
{
    const struct rank *r = ctx;
    return tsr_comm_group_reserve(r->g, backend, self, rows, cols, first, end, err);
}

static tsr_status simulated(void *ctx, uint32_t site, const float *const *partial, uint64_t rows,
                            uint64_t cols, float *out, struct tsr_err *err)
{
    return tsr_comm_sum_simulated(ctx, site, partial, rows, cols, out, err);
}

/* ---- ranks --------------------------------------------------------------------------- */

static struct tsr_engine_options options_of(const struct way *w)
{
    return (struct tsr_engine_options){
        .act = w->act, .kv_dtype = TSR_F16, .slots = 1, .context = 32, .chunk = PROMPT
    };
}

static void open_rank(struct rank *r, const struct tsr_model *m, const struct tsr_model_overlay *o,
                      const struct tsr_comm_world *world)
{
    const struct way         *w = r->way;
    const struct tsr_comm_way way = { .codec = w->codec, .algorithm = w->algorithm };
    char                      transport[24];
    struct tsr_comm_options   co = { .deadline_us = LONG_US, .way = { way, way } };
    struct tsr_engine_tp      tp = { .rank = r->rank,
                                     .ranks = RANKS,
                                     .sum = sum,
                                     .sum_on = sum_on,
                                     .reserve_on = reserve_on,
                                     .ctx = r };
    r->err.err = (struct tsr_err){ .text = r->err.text, .cap = sizeof r->err.text };
    (void)snprintf(transport, sizeof transport, "nccl:device=%u", r->rank);
    co.place =
        (struct tsr_comm_place){ transport, r->rank, RANKS, world->shared, world->bytes, 1, NULL };
    late_elsewhere((int)r->rank);
    tsr_status st = tsr_comm_group_create(&r->g, registry, &co, &r->err.err);
    if (st == TSR_OK)
        st = late_open(&r->backend, &r->err.err);
    if (st == TSR_OK)
        st = tsr_engine_device_wrap(&r->device, registry, late_table(), r->backend, &r->err.err);
    for (uint32_t i = 0; i < w->stages && st == TSR_OK; i++) {
        struct tsr_engine_options opt = options_of(w);
        opt.first = (uint64_t)i * WIDE_LAYERS / w->stages;
        opt.end = (uint64_t)(i + 1) * WIDE_LAYERS / w->stages;
        opt.no_embed = i > 0 || r->rank > 0;
        opt.no_head = i + 1 < w->stages || r->rank > 0;
        opt.tp = &tp;
        st = tsr_engine_create_on(&r->e[i], r->device, m, o, &opt, &r->err.err);
    }
    if (st != TSR_OK)
        fail_msg("%s: rank %u: %s", w->name, r->rank, r->err.text);
}

static void close_rank(struct rank *r)
{
    tsr_comm_group_destroy(r->g);
    for (uint32_t i = 0; i < r->way->stages; i++)
        tsr_engine_destroy(r->e[i]);
    tsr_engine_device_close(r->device);
    late_close(r->backend);
    free(r->in);
    free(r->out);
}

static void *work(void *arg)
{
    struct rank *r = arg;
    float       *in = r->in, *out = r->out;
    r->st = TSR_OK;
    for (uint32_t i = 0; i < r->way->stages && r->st == TSR_OK; i++) {
        const bool last = i + 1 == r->way->stages;
        r->st = tsr_engine_stage(r->e[i], r->token, r->n, in, last ? NULL : out,
                                 last && r->rank == 0 ? r->logits : NULL, &r->err.err);
        float *from = in;
        in = out;
        out = from;
    }
    return NULL;
}

/* ---- tokens -------------------------------------------------------------------------- */

static uint64_t tokens_of(uint32_t step)
{
    return step == 0 ? PROMPT : 1;
}

static void tokens_at(struct tsr_engine_token *t, uint32_t step)
{
    for (uint64_t i = 0; i < tokens_of(step); i++)
        t[i] =
            (struct tsr_engine_token){ .id = (uint32_t)(7 + 13 * i + UINT64_C(29) * step) % VOCAB,
                                       .logits = true };
}

static void check_one(const struct way *w, const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s: %llu %s in a token of both ranks, expected %llu", w->name,
                 (unsigned long long)got, what, (unsigned long long)want);
}

/* What the driver has done for the tokens since `was`. */
static void check_counts(const struct way *w, const struct standin_counts *was,
                         const struct standin_counts *is)
{
    /* All at the end of a stage: for what is queued, for a copy of the logits or of the rows for the next stage, and
     * for the stage.  The last stage of the rank without a head waits for the stage alone. */
    const uint64_t waits = UINT64_C(3) * w->stages * RANKS - 2;
    check_one(w, "graphs", is->graphs - was->graphs, w->graphs);
    if (w->nodes)
        check_one(w, "kernels of graphs", is->nodes - was->nodes, w->nodes);
    check_one(w, "kernels launched alone", is->launches - was->launches, w->launches);
    check_one(w, "graphs made", is->instantiated - was->instantiated, 0);
    check_one(w, "allocations and frees", is->taken - was->taken, 0);
    check_one(w, "waits", is->waits - was->waits, waits);
}

/* Both ranks' work on the tokens of a step; the rows of their embedding are made before it. */
static void run_step(struct rank *ranks, uint32_t step, uint64_t hidden, float *logits)
{
    pthread_t             id[RANKS];
    struct standin_counts before;
    for (uint32_t i = 0; i < RANKS; i++) {
        tokens_at(ranks[i].token, step);
        ranks[i].n = tokens_of(step);
        ranks[i].logits = logits;
    }
    if (tsr_engine_embed(ranks[0].e[0], ranks[0].token, ranks[0].n, ranks[0].in,
                         &ranks[0].err.err) != TSR_OK)
        fail_msg("%s", ranks[0].err.text);
    memcpy(ranks[1].in, ranks[0].in, ranks[0].n * hidden * sizeof(float));
    before = *standin_count();
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, work, &ranks[i]), 0);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
    for (uint32_t i = 0; i < RANKS; i++)
        if (ranks[i].st != TSR_OK)
            fail_msg("%s: step %u: rank %u: %s", ranks[i].way->name, step, i, ranks[i].err.text);
    if (step >= STEPS - COUNTED)
        check_counts(ranks[0].way, &before, standin_count());
}

static float *on_devices(const struct way *w, const struct tsr_model *m,
                         const struct tsr_model_overlay *o)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_comm_world    world;
    struct tsr_comm_counters sent;
    static struct rank       r[RANKS];
    const uint64_t           hidden = m->hp.hidden;
    float                   *logits = malloc(LOGITS * sizeof *logits), *at;
    assert_non_null(logits);
    assert_int_equal(m->hp.vocab, VOCAB);
    assert_int_equal(tsr_comm_world_create(&world, registry, "nccl", RANKS, &e.err), TSR_OK);
    memset(r, 0, sizeof r);
    for (uint32_t i = 0; i < RANKS; i++) {
        r[i].way = w;
        r[i].rank = i;
        open_rank(&r[i], m, o, &world);
        r[i].in = malloc(PROMPT * hidden * sizeof(float));
        r[i].out = malloc(PROMPT * hidden * sizeof(float));
        assert_true(r[i].in && r[i].out);
    }
    at = logits;
    for (uint32_t step = 0; step < STEPS; step++) {
        run_step(r, step, hidden, at);
        at += tokens_of(step) * VOCAB;
    }
    tsr_comm_group_counters(r[0].g, &sent);
    assert_int_equal(sent.sent == 0, w->windows);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(r[i].there, (uint64_t)STEPS * 2 * WIDE_LAYERS);
        close_rank(&r[i]);
    }
    tsr_comm_world_close(&world);
    const struct standin_left left = standin_left();
    assert_int_equal(left.contexts + left.blocks + left.streams + left.events, 0);
    return logits;
}

/* One process, one engine. */
static float *on_cpu(const struct way *w, const struct tsr_model *m,
                     const struct tsr_model_overlay *o)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_comm_coder     coder;
    const struct tsr_comm_way way = { .codec = w->codec, .algorithm = w->algorithm };
    struct tsr_engine_split   split = { .ranks = RANKS, .sum = simulated, .ctx = &coder };
    struct tsr_engine_options opt = options_of(w);
    float                    *logits = malloc(LOGITS * sizeof *logits), *at;
    assert_non_null(logits);
    opt.split = &split;
    assert_int_equal(tsr_comm_coder_open(&coder, registry, &way, RANKS, &e.err), TSR_OK);
    struct tsr_engine *one = golden_engine(registry, m, o, opt);
    at = logits;
    for (uint32_t step = 0; step < STEPS; step++) {
        struct tsr_engine_token t[PROMPT];
        tokens_at(t, step);
        if (tsr_engine_stage(one, t, tokens_of(step), NULL, NULL, at, &e.err) != TSR_OK)
            fail_msg("%s: one process: %s", w->name, e.text);
        at += tokens_of(step) * VOCAB;
    }
    tsr_engine_destroy(one);
    tsr_comm_coder_close(&coder);
    return logits;
}

static void check(const struct way *w)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(w->model, false, folder);
    struct tsr_model_overlay *o = w->scheme ? wide_pack(registry, m, w->scheme) : NULL;
    assert_int_equal(setenv("TSR_STANDIN", w->devices, 1), 0);
    float      *there = on_devices(w, m, o), *here = on_cpu(w, m, o);
    const void *got = there, *want = here;
    if (memcmp(got, want, LOGITS * sizeof *here) != 0)
        fail_msg("%s: other logits than one process on the CPU", w->name);
    free(there);
    free(here);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

#define W4 "use: rtn\nbits: 4\ngroup: 32\n"

/* Launches of a layer: 10 with int8 activations; 13 with q, k and v one by one and ACT by itself. In addition, for each
 * rank: the first norm of a stage, the last ADD of a stage without a norm after it, and the LM head. */
static const struct way ways[] = {
    { "windows", "llama", W4, "plain", TSR_COMM_ALL_GATHER, "devices=2", TSR_ACT_A8, 1, true, 2, 0,
      UINT64_C(10) * WIDE_LAYERS *RANKS + 4 },
    { "biases", "opt", NULL, "plain:dtype=bf16", TSR_COMM_ALL_GATHER, "devices=2", TSR_ACT_F32, 1,
      true, 2, 0, UINT64_C(13) * WIDE_LAYERS *RANKS + 4 },
    { "stages", "llama", W4, "plain", TSR_COMM_ALL_GATHER, "devices=2", TSR_ACT_A8, STAGES, true,
      UINT64_C(2) * STAGES, 0, UINT64_C(10) * WIDE_LAYERS *RANKS + 12 },
    { "mx", "llama", W4, "mx", TSR_COMM_ALL_GATHER, "devices=2", TSR_ACT_A8, 1, true, 2, 0,
      UINT64_C(10) * WIDE_LAYERS *RANKS + 4 },
    { "mx in two steps", "llama", W4, "mx", TSR_COMM_TWO_STEP, "devices=2", TSR_ACT_A8, 1, true, 2,
      0, UINT64_C(10) * WIDE_LAYERS *RANKS + 4 },
    { "no peers", "llama", W4, "plain", TSR_COMM_ALL_GATHER, "devices=2,nopeers", TSR_ACT_A8, 1,
      false, 4, 79, 0 },
    { "mx by messages", "llama", W4, "mx", TSR_COMM_TWO_STEP, "devices=2,nopeers", TSR_ACT_A8, 1,
      false, 4, 115, 0 },
};

/* Under sanitizers one takes most of a minute; a run there takes a third of them, by the seed. */
static void check_taken(size_t way)
{
#if defined(TSR_SANITIZED)
    const char *seed = getenv("TSR_TEST_SEED");
    if (seed && (strtoull(seed, NULL, 10) + way) % 3)
        return;
#endif
    check(&ways[way]);
}

static void test_windows(void **state)
{
    (void)state;
    check_taken(0);
    check_taken(1);
}

static void test_stages(void **state)
{
    (void)state;
    check_taken(2);
}

static void test_mx(void **state)
{
    (void)state;
    check_taken(3);
    check_taken(4);
}

static void test_messages(void **state)
{
    (void)state;
    check_taken(5);
    check_taken(6);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_windows),
                                        cmocka_unit_test(test_stages), cmocka_unit_test(test_mx),
                                        cmocka_unit_test(test_messages) };
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    registry = golden_registry(1, NULL, &pool);
    if (late_use(registry, &e.err) != TSR_OK)
        return 1;
    int rc = cmocka_run_group_tests_name("cuda-nccl-token", tests, NULL, NULL);
    golden_registry_close(registry, pool);
    return rc;
}
