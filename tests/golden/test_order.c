/* Weights whose columns are in another order (GPTQ's act-order): the input of a site is put into an order once, by
 * one operation for all tokens, and the logits are the same bytes however it gets there. */
#include "golden.h"
#include "naive.h"
#include "wide.h"

#include "base/log.h"
#include "engine/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHECKPOINTS TSR_SOURCE_ROOT "/tests/golden/checkpoints/"
#define TOKENS      9u
#define SCHEME      "use: rtn\nbits: 4\ngroup: 32\n"

static struct tsr_pool     *pool;
static struct tsr_registry *registry;

static int set_up(void **state)
{
    (void)state;
    tsr_log_set_level(TSR_LOG_WARN +
                      1); /* formats that the plain backend declines are meant here */
    registry = golden_registry(2, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

/* An order of p's columns: the same for the same number. */
static void put_order(struct tsr_model_packed *p, uint64_t number)
{
    uint64_t seed = number * 2 + 1;
    p->ordered = true;
    p->order = malloc(p->cols * sizeof *p->order);
    assert_non_null(p->order);
    for (uint64_t i = 0; i < p->cols; i++)
        p->order[i] = (uint32_t)i;
    for (uint64_t i = p->cols; i > 1; i--) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t j = (seed >> 33) % i;
        uint32_t t = p->order[i - 1];
        p->order[i - 1] = p->order[j];
        p->order[j] = t;
    }
}

enum orders { OF_SITE, OF_LINEAR, OF_ALL_BUT_V };

/* Every packed linear gets an order: one for a site, or one for each linear, or for v alone another one. */
static void put_orders(const struct tsr_model *m, struct tsr_model_overlay *o, enum orders how)
{
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t k = 0; k < m->hp.linears; k++) {
            uint64_t number = how == OF_LINEAR || (how == OF_ALL_BUT_V && k == TSR_MODEL_V)
                                  ? 1000000 + l * m->hp.linears + k
                                  : l * 10000 + tsr_model_linear_site((enum tsr_linear_id)k);
            if (o->lin[l][k])
                put_order(o->lin[l][k], number);
        }
}

/* An engine on its own device, which outlives it. */
struct on {
    struct tsr_engine        *e;
    struct tsr_engine_device *dev;
};

static struct on open_on(struct naive *n, const struct tsr_model *m,
                         const struct tsr_model_overlay *o, uint32_t act, uint64_t chunk)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct on                 on = { 0 };
    struct tsr_engine_options opt = { .slots = 1, .chunk = chunk, .act = act, .kv_dtype = TSR_F32 };
    tsr_status                st =
        n ? tsr_engine_device_wrap(&on.dev, registry, &naive_backend, n, &err.err)
                         : tsr_engine_device_open(&on.dev, registry, NULL, TSR_NUMERICS_EXACT, &err.err);
    if (st != TSR_OK || tsr_engine_create_on(&on.e, on.dev, m, o, &opt, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    return on;
}

static float *logits_of(struct on on, const struct tsr_model *m, bool step)
{
    uint32_t ids[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (i * 37 + 5) % (uint32_t)m->hp.vocab;
    float *logits = golden_forward(on.e, ids, TOKENS, step);
    tsr_engine_destroy(on.e);
    tsr_engine_device_close(on.dev);
    return logits;
}

static uint64_t counted(const struct tsr_model *m, const struct tsr_model_overlay *o, bool step)
{
    struct naive n = { 0 };
    free(logits_of(open_on(&n, m, o, TSR_ACT_F32, 64), m, step));
    assert_int_equal(n.runs[TSR_OP_GATHER], 0);
    return n.runs[TSR_OP_COLUMNS];
}

/* Sites of a dense layer: the inputs of q, k, v; of o; of gate, up; of down. */
static void once_for_a_site(void **state)
{
    static const struct {
        enum orders how;
        uint32_t    each; /* of a layer */
    } cases[] = { { OF_SITE, 4 }, { OF_ALL_BUT_V, 5 }, { OF_LINEAR, 7 } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char                      folder[64];
        struct tsr_model         *m = wide_load("llama", false, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, SCHEME);
        put_orders(m, o, cases[i].how);
        assert_int_equal(counted(m, o, false), WIDE_LAYERS * cases[i].each);
        assert_int_equal(counted(m, o, true), WIDE_LAYERS * cases[i].each * TOKENS);
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

/* Each linear gets a tensor of its order, so that its input is put into it for it alone. */
static void unshare(struct on on, const struct tsr_model_overlay *o)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          n = 0;
    for (uint64_t l = 0; l < on.e->model->hp.layers; l++)
        for (uint64_t k = 0; k < on.e->model->hp.linears; k++) {
            struct tsr_engine_linear_dev *d = &on.e->layers[l].lin[k];
            if (!d->order_shared)
                continue;
            d->order_shared = false;
            n++;
            if (tsr_engine_device_tensor(on.dev, TSR_U32, 1, o->lin[l][k]->cols, 0, "an order",
                                         &d->order, &err.err) != TSR_OK ||
                tsr_engine_device_upload(on.dev, &d->order, o->lin[l][k]->order, &err.err) !=
                    TSR_OK)
                fail_msg("%s", err.text);
        }
    assert_true(n > 0);
}

/* Shared or not, for all tokens or each, chunk by chunk. */
static void same_bytes_every_way(void **state)
{
    static const char *const models[] = { "llama", WIDE_EXPERTS, WIDE_SHARED_EXPERT };
    static const uint32_t    acts[] = { TSR_ACT_F32, TSR_ACT_A8 };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models * 2; i++) {
        char                      folder[64];
        struct tsr_model         *m = wide_load(models[i / 2], false, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, SCHEME);
        uint32_t                  act = acts[i % 2];
        uint64_t                  bytes = TOKENS * m->hp.vocab * sizeof(float);
        put_orders(m, o, i % 3 ? OF_SITE : OF_ALL_BUT_V);
        float    *want = logits_of(open_on(NULL, m, o, act, 64), m, false), *got;
        struct on alone = open_on(NULL, m, o, act, 64);
        unshare(alone, o);
        got = logits_of(alone, m, false);
        assert_memory_equal(got, want, bytes);
        free(got);
        struct on older = open_on(NULL, m, o, act, 64); /* a device of before COLUMNS */
        older.dev->no_columns = true;
        got = logits_of(older, m, false);
        assert_memory_equal(got, want, bytes);
        free(got);
        for (uint64_t chunk = 1; chunk < 8; chunk += 3) {
            got = logits_of(open_on(NULL, m, o, act, chunk), m, chunk == 4);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

/* The matrices in their own order, in F32 on the plain backend, give the same logits within rounding. */
static void what_the_matrices_give(void **state)
{
    static const char *const models[] = { "llama", WIDE_EXPERTS, WIDE_SHARED_EXPERT };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char                      folder[64];
        struct tsr_model         *m = wide_load(models[i], false, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, SCHEME);
        struct naive              n = { 0 };
        float                     low = 0, high = 0;
        put_orders(m, o, OF_ALL_BUT_V);
        float *got = logits_of(open_on(NULL, m, o, TSR_ACT_F32, 64), m, false);
        for (uint64_t l = 0; l < m->hp.layers; l++)
            for (uint64_t k = 0; k < m->hp.linears; k++) {
                struct tsr_model_packed *p = o->lin[l][k];
                float                   *w = p ? malloc(p->rows * p->cols * sizeof *w) : NULL;
                if (!p)
                    continue;
                assert_int_equal(tsr_model_packed_dequantize(p, 0, p->rows, w, NULL), TSR_OK);
                tsr_model_packed_drop(p);
                p->ordered = false;
                p->dense = w;
                p->format.id = "test.dense/1";
            }
        float *want = logits_of(open_on(&n, m, o, TSR_ACT_F32, 64), m, false);
        for (uint64_t k = 0; k < TOKENS * m->hp.vocab; k++) {
            low = want[k] < low ? want[k] : low;
            high = want[k] > high ? want[k] : high;
        }
        for (uint64_t k = 0; k < TOKENS * m->hp.vocab; k++)
            assert_true(got[k] - want[k] < 5e-5f * (high - low) &&
                        want[k] - got[k] < 5e-5f * (high - low));
        assert_int_equal(n.runs[TSR_OP_COLUMNS], 0);
        free(got);
        free(want);
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

/* A device that declines COLUMNS gathers token by token on itself. */
static void declined(void **state)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load("llama", false, folder);
    struct tsr_model_overlay *o = wide_pack(registry, m, SCHEME);
    struct naive              n = { .decline_ops = 1u << TSR_OP_COLUMNS }, all = { 0 };
    (void)state;
    put_orders(m, o, OF_SITE);
    float *got = logits_of(open_on(&n, m, o, TSR_ACT_F32, 64), m, false);
    float *want = logits_of(open_on(&all, m, o, TSR_ACT_F32, 64), m, false);
    assert_memory_equal(got, want, TOKENS * m->hp.vocab * sizeof *got);
    assert_int_equal(n.runs[TSR_OP_COLUMNS], 0);
    assert_int_equal(n.runs[TSR_OP_GATHER], WIDE_LAYERS * 4 * TOKENS);
    free(got);
    free(want);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

/* Orders of a layer, each counted once for a site. */
static uint64_t distinct(const struct tsr_model *m, uint64_t l)
{
    uint64_t n = 0;
    for (uint64_t k = 0; k < m->hp.linears; k++) {
        const struct tsr_model_packed *p = m->packed->lin[l][k];
        bool                           before = false;
        for (uint64_t j = 0; p && p->ordered && j < k; j++) {
            const struct tsr_model_packed *q = m->packed->lin[l][j];
            before = before || (q && q->ordered && q->cols == p->cols &&
                                tsr_model_linear_site((enum tsr_linear_id)j) ==
                                    tsr_model_linear_site((enum tsr_linear_id)k) &&
                                memcmp(p->order, q->order, p->cols * sizeof *p->order) == 0);
        }
        n += p && p->ordered && !before;
    }
    return n;
}

/* Checkpoints that other programs wrote with act-order, whose linears may each have an order of their own. */
static void written_by_others(void **state)
{
    static const char *const names[] = { "gptq4-g128-actorder", "ct-w4a16-g64-actorder" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_model *m = NULL;
        char              path[512];
        uint64_t          want = 0, ordered = 0;
        (void)snprintf(path, sizeof path, CHECKPOINTS "%s", names[i]);
        if (tsr_model_load(&m, path, false, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        for (uint64_t l = 0; l < m->hp.layers; l++) {
            want += distinct(m, l);
            for (uint64_t k = 0; k < m->hp.linears; k++)
                ordered += m->packed->lin[l][k] && m->packed->lin[l][k]->ordered;
        }
        print_message("%s: %llu linears with an order, put into it %llu times\n", names[i],
                      (unsigned long long)ordered, (unsigned long long)want);
        assert_int_equal(counted(m, NULL, false), want);
        tsr_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once_for_a_site),        cmocka_unit_test(same_bytes_every_way),
        cmocka_unit_test(what_the_matrices_give), cmocka_unit_test(declined),
        cmocka_unit_test(written_by_others),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
