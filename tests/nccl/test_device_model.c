/* Models whose layers are shared by two ranks on devices (late.h), with sums that never leave them, give
 * the logits of two ranks on CPUs, to the bit: with and without biases behind the sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../golden/golden.h"
#include "../golden/wide.h"
#include "comm/group.h"
#include "engine/internal.h"
#include "late.h"
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LONG_US UINT64_C(60000000) /* only a hang reaches it */
#define RANKS   2u
#define STEPS   3u
#define MOST    6u /* tokens of a step */

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

struct rank {
    struct tsr_comm_group    *g;
    struct tsr_engine        *e;
    struct tsr_engine_device *device; /* over `backend`; NULL: the CPU */
    void                     *backend;
    uint64_t                  there, here; /* sums on the device, on the host */
    uint32_t                  rank, step;
    float                    *in, *out, *logits;
    tsr_status                st;
    struct tsr_errbuf         err;
};

static tsr_status sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                      struct tsr_err *err)
{
    struct rank *r = ctx;
    r->here++;
    return tsr_comm_group_sum(r->g, 0, site, x, rows, cols, err);
}

static tsr_status sum_on(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend, void *self,
                         const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct rank *r = ctx;
    TSR_TRY(tsr_comm_group_sum_on(r->g, 0, site, backend, self, x, done, err));
    r->there += *done;
    return TSR_OK;
}

static tsr_status reserve_on(void *ctx, const struct tsr_backend_v1 *backend, void *self,
                             uint64_t rows, uint64_t cols, uint32_t first, uint32_t end,
                             struct tsr_err *err)
{
    struct rank *r = ctx;
    return tsr_comm_group_reserve(r->g, backend, self, rows, cols, first, end, err);
}

static void open_rank(struct rank *r, const struct tsr_model *m, const struct tsr_comm_options *o,
                      bool device)
{
    struct tsr_engine_tp      tp = { .rank = r->rank,
                                     .ranks = RANKS,
                                     .sum = sum,
                                     .sum_on = sum_on,
                                     .reserve_on = reserve_on,
                                     .ctx = r };
    struct tsr_engine_options opt = { .act = TSR_ACT_F32,
                                      .kv_dtype = TSR_F16,
                                      .slots = 1,
                                      .context = 32,
                                      .chunk = 4,
                                      .no_embed = r->rank > 0,
                                      .no_head = r->rank > 0,
                                      .tp = &tp };
    r->err.err = (struct tsr_err){ .text = r->err.text, .cap = sizeof r->err.text };
    tsr_status st = tsr_comm_group_create(&r->g, registry, o, &r->err.err);
    if (st == TSR_OK && device) {
        st = late_open(&r->backend, &r->err.err);
        if (st == TSR_OK)
            st =
                tsr_engine_device_wrap(&r->device, registry, late_table(), r->backend, &r->err.err);
        if (st == TSR_OK)
            st = tsr_engine_create_on(&r->e, r->device, m, NULL, &opt, &r->err.err);
    } else if (st == TSR_OK) {
        r->e = golden_engine(registry, m, NULL, opt);
    }
    if (st != TSR_OK)
        fail_msg("rank %u: %s", r->rank, r->err.text);
}

static void close_rank(struct rank *r)
{
    tsr_comm_group_destroy(r->g);
    tsr_engine_destroy(r->e);
    tsr_engine_device_close(r->device);
    if (r->backend)
        late_close(r->backend);
}

static const uint64_t tokens_of[STEPS] = { 5, 1, 1 };

static void *work(void *arg)
{
    struct rank            *r = arg;
    struct tsr_engine_token t[MOST];
    for (uint64_t i = 0; i < tokens_of[r->step]; i++)
        t[i] = (struct tsr_engine_token){ .id = (uint32_t)(7 + 13 * i + 29 * r->step) % 96,
                                          .logits = true };
    r->st = tsr_engine_stage(r->e, t, tokens_of[r->step], r->in, r->out, r->logits, &r->err.err);
    return NULL;
}

/* The logits of all steps. */
static float *run(const struct tsr_model *m, const char *transport, const char *codec,
                  enum tsr_comm_algorithm a, bool device)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_world world;
    struct tsr_comm_way   way = { .codec = codec, .algorithm = a };
    struct rank           r[RANKS];
    uint64_t              hidden = m->hp.hidden, vocab = m->hp.vocab, all = 0;
    float                *logits = malloc(STEPS * MOST * vocab * sizeof *logits), *at = logits;
    assert_non_null(logits);
    assert_int_equal(tsr_comm_world_create(&world, registry, transport, RANKS, &e.err), TSR_OK);
    memset(r, 0, sizeof r);
    for (uint32_t i = 0; i < RANKS; i++) {
        struct tsr_comm_options o = { .place = { transport, i, RANKS, world.shared, world.bytes, 1,
                                                 NULL },
                                      .deadline_us = LONG_US,
                                      .way = { way, way } };
        r[i].rank = i;
        open_rank(&r[i], m, &o, device);
    }
    uint64_t taken = late_taken(); /* by what is made; prompts and tokens take nothing */
    for (uint32_t k = 0; k < STEPS; k++) {
        pthread_t               id[RANKS];
        struct tsr_engine_token t[MOST];
        uint64_t                n = tokens_of[k];
        float                  *h = malloc(n * hidden * sizeof *h);
        for (uint64_t i = 0; i < n; i++)
            t[i] = (struct tsr_engine_token){ .id = (uint32_t)(7 + 13 * i + 29 * k) % 96,
                                              .logits = true };
        assert_int_equal(tsr_engine_embed(r[0].e, t, n, h, &e.err), TSR_OK);
        for (uint32_t i = 0; i < RANKS; i++) {
            r[i].step = k;
            r[i].in = malloc(n * hidden * sizeof *h);
            r[i].out = malloc(n * hidden * sizeof *h);
            r[i].logits = i == 0 ? at : NULL;
            assert_true(h && r[i].in && r[i].out);
            memcpy(r[i].in, h, n * hidden * sizeof *h);
            assert_int_equal(pthread_create(&id[i], NULL, work, &r[i]), 0);
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_int_equal(pthread_join(id[i], NULL), 0);
            if (r[i].st != TSR_OK)
                fail_msg("rank %u: %s", i, r[i].err.text);
            free(r[i].in);
            free(r[i].out);
        }
        free(h);
        at += n * vocab;
        all += n > 4 ? 2 : 1; /* chunks */
    }
    assert_true(!device || late_taken() == taken);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(r[i].there, device ? all * 2 * WIDE_LAYERS : 0);
        assert_int_equal(r[i].here, device ? 0 : all * 2 * WIDE_LAYERS);
        close_rank(&r[i]);
    }
    tsr_comm_world_close(&world);
    assert_int_equal(late_failed(), 0);
    return logits;
}

static void same_logits(const char *name, const char *codec, enum tsr_comm_algorithm a)
{
    char              folder[64];
    struct tsr_model *m = wide_load(name, false, folder);
    float            *there = run(m, "nccl:device=0", codec, a, true);
    float            *here = run(m, "local", codec, a, false);
    if (memcmp(there, here, 7 * m->hp.vocab * sizeof *here) != 0)
        fail_msg("%s, %s: other logits", name, codec);
    free(there);
    free(here);
    wide_free(m, folder);
}

/* One of them by TSR_TEST_SEED, unless TSR_TEST_ALL=1. */
static void test_models(void **state)
{
    const char *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    bool        whole = all && strcmp(all, "1") == 0;
    uint64_t    seed = s ? strtoull(s, NULL, 10) : 0;
    (void)state;
    if (whole || seed % 3 == 0)
        same_logits("opt", "plain", TSR_COMM_TWO_STEP);
    if (whole || seed % 3 == 1)
        same_logits("qwen2", "mx", TSR_COMM_TWO_STEP);
    if (whole || seed % 3 == 2)
        same_logits("bloom", "mx:element=fp8_e4m3", TSR_COMM_ALL_GATHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_models) };
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    registry = golden_registry(1, NULL, &pool);
    if (late_use(registry, &e.err) != TSR_OK)
        return 1;
    int rc = cmocka_run_group_tests_name("nccl-device-model", tests, NULL, NULL);
    golden_registry_close(registry, pool);
    return rc;
}
