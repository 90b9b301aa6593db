/* Parts of a model in several engines, one behind the other and beside each other, give the logits of
 * one engine with all of it, to the bit.  Sampled by TSR_TEST_SEED unless TSR_TEST_ALL=1. */
#include "golden.h"
#include "wide.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SLOTS 3u
#define STEPS 4u
#define MOST  24u /* tokens of a step */

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

static uint64_t seed;
static bool     all, whole_experts;

static int set_up(void **state)
{
    const char *a = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    (void)state;
    all = a && strcmp(a, "1") == 0;
    seed = s ? strtoull(s, NULL, 10) : (uint64_t)time(NULL);
    print_message("TSR_TEST_SEED=%llu\n", (unsigned long long)seed);
    registry = golden_registry(1, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

/* The ranks of a stage, and the rows that they add: the tree over ranks, by its definition. */
struct group {
    uint32_t          ranks;
    pthread_barrier_t barrier;
    float            *part[8];
    uint64_t          sums;
    uint32_t          last_site;
};
struct member {
    struct group *g;
    uint32_t      rank;
};

static float tree(const struct group *g, uint64_t i, uint32_t first, uint32_t n)
{
    if (n == 1)
        return g->part[first][i];
    return tree(g, i, first, n / 2) + tree(g, i, first + n / 2, n / 2);
}

static tsr_status sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                      struct tsr_err *err)
{
    struct member *m = ctx;
    struct group  *g = m->g;
    float         *whole = malloc(rows * cols * sizeof *whole);
    if (!whole)
        return tsr_fail_nomem(err, rows * cols, "a sum");
    g->part[m->rank] = x;
    (void)pthread_barrier_wait(&g->barrier);
    for (uint64_t i = 0; i < rows * cols; i++)
        whole[i] = tree(g, i, 0, g->ranks);
    if (m->rank == 0) {
        g->sums++;
        g->last_site = site;
    }
    (void)pthread_barrier_wait(&g->barrier);
    memcpy(x, whole, rows * cols * sizeof *whole);
    free(whole);
    return TSR_OK;
}

/* A mixed batch for each step: prompts in pieces, then single tokens. */
struct script {
    struct tsr_engine_token token[STEPS][MOST];
    uint64_t                n[STEPS], wanted[STEPS], logits;
};

static struct script write_script(uint64_t vocab)
{
    static const uint64_t give[STEPS][SLOTS] = {
        { 7, 1, 0 }, { 4, 3, 9 }, { 1, 1, 5 }, { 1, 1, 1 }
    };
    struct script s = { .logits = 0 };
    for (uint32_t k = 0; k < STEPS; k++)
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            for (uint64_t i = 0; i < give[k][slot]; i++) {
                bool last = i + 1 == give[k][slot];
                s.token[k][s.n[k]++] = (struct tsr_engine_token){
                    .id = (uint32_t)(tsr_uniform(3, k * 8 + slot, i) * (double)vocab),
                    .slot = slot,
                    .logits = last || k == 1
                };
                s.wanted[k] += last || k == 1;
                s.logits += last || k == 1;
            }
    return s;
}

static float *plain(const struct tsr_model *m, const struct tsr_model_overlay *o, uint32_t act,
                    const struct script *s)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options opt = {
        .act = act, .kv_dtype = TSR_F16, .slots = SLOTS, .context = 32
    };
    struct tsr_engine *e = golden_engine(registry, m, o, opt);
    float             *logits = malloc(s->logits * m->hp.vocab * sizeof *logits), *at = logits;
    assert_non_null(logits);
    for (uint32_t k = 0; k < STEPS; k++, at += s->wanted[k - 1] * m->hp.vocab)
        if (tsr_engine_forward(e, s->token[k], s->n[k], at, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
    tsr_engine_destroy(e);
    return logits;
}

/* One rank of one stage, in a thread of its own. */
struct worker {
    struct member        me;
    struct tsr_engine   *e;
    const struct script *s;
    uint32_t             step;
    float               *in, *out, *logits;
    tsr_status           st;
    struct tsr_errbuf    err;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    w->st = tsr_engine_stage(w->e, w->s->token[w->step], w->s->n[w->step], w->in, w->out, w->logits,
                             &w->err.err);
    return NULL;
}

struct stage {
    struct group  group;
    struct worker w[8];
};

static void open_stage(struct stage *g, const struct tsr_model *m,
                       const struct tsr_model_overlay *o, uint32_t act, uint32_t tp, uint32_t pp,
                       uint32_t i, const struct script *s)
{
    uint64_t layers = m->hp.layers;
    g->group = (struct group){ .ranks = tp };
    (void)pthread_barrier_init(&g->group.barrier, NULL, tp);
    for (uint32_t r = 0; r < tp; r++) {
        struct worker       *w = &g->w[r];
        struct tsr_engine_tp hook = {
            .rank = r, .ranks = tp, .whole_experts = whole_experts, .sum = sum, .ctx = &w->me
        };
        w->me = (struct member){ &g->group, r };
        w->s = s;
        w->err.err = (struct tsr_err){ .text = w->err.text, .cap = sizeof w->err.text };
        struct tsr_engine_options opt = { .act = act,
                                          .kv_dtype = TSR_F16,
                                          .slots = SLOTS,
                                          .context = 32,
                                          .chunk = 5,
                                          .first = layers * i / pp,
                                          .end = layers * (i + 1) / pp,
                                          .no_embed = i > 0 || r > 0,
                                          .no_head = i + 1 < pp || r > 0,
                                          .release = true,
                                          .tp = &hook };
        w->e = golden_engine(registry, m, o, opt);
    }
}

static void run_stage(struct stage *g, uint32_t tp, uint32_t step, const float *in, float *out,
                      uint64_t floats, float *logits)
{
    pthread_t id[8];
    for (uint32_t r = 0; r < tp; r++) {
        struct worker *w = &g->w[r];
        w->step = step;
        w->in = NULL;
        if (in) {
            w->in = malloc(floats * sizeof *in);
            assert_non_null(w->in);
            memcpy(w->in, in, floats * sizeof *in);
        }
        w->out = malloc(floats * sizeof *out);
        assert_non_null(w->out);
        w->logits = r == 0 ? logits : NULL;
        assert_int_equal(pthread_create(&id[r], NULL, work, w), 0);
    }
    for (uint32_t r = 0; r < tp; r++) {
        struct worker *w = &g->w[r];
        (void)pthread_join(id[r], NULL);
        if (w->st != TSR_OK)
            fail_msg("rank %u: %s", r, w->err.text);
        if (memcmp(w->out, g->w[0].out, floats * sizeof *out) != 0)
            fail_msg("ranks 0 and %u have other hidden rows", r);
        if (r > 0)
            free(w->out);
        free(w->in);
    }
    memcpy(out, g->w[0].out, floats * sizeof *out);
    free(g->w[0].out);
}

/* The embedding of the first stage is rank 0's: the others get its rows. */
static void embed(struct stage *g, const struct script *s, uint32_t step, float *h)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    if (tsr_engine_embed(g->w[0].e, s->token[step], s->n[step], h, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
}

static void compare(const char *what, const struct tsr_model *m, const struct tsr_model_overlay *o,
                    uint32_t act, uint32_t tp, uint32_t pp, const struct script *s,
                    const float *want)
{
    struct stage *g = calloc(pp, sizeof *g);
    uint64_t      hidden = m->hp.hidden, vocab = m->hp.vocab;
    float        *h = malloc(MOST * hidden * sizeof *h);
    float        *logits = malloc(MOST * vocab * sizeof *logits);
    assert_true(g && h && logits);
    for (uint32_t i = 0; i < pp; i++)
        open_stage(&g[i], m, o, act, tp, pp, i, s);
    for (uint32_t k = 0; k < STEPS; k++) {
        if (tp > 1)
            embed(&g[0], s, k, h);
        for (uint32_t i = 0; i < pp; i++)
            run_stage(&g[i], tp, k, i || tp > 1 ? h : NULL, h, s->n[k] * hidden,
                      i + 1 == pp ? logits : NULL);
        if (memcmp(logits, want, s->wanted[k] * vocab * sizeof *logits) != 0)
            fail_msg("%s: %u ranks, %u stages: step %u has other logits", what, tp, pp, k);
        want += s->wanted[k] * vocab;
    }
    for (uint32_t i = 0; i < pp; i++) {
        if (tp > 1)
            assert_int_equal(g[i].group.last_site, 2 * (m->hp.layers * (i + 1) / pp) - 1);
        for (uint32_t r = 0; r < tp; r++)
            tsr_engine_destroy(g[i].w[r].e);
        (void)pthread_barrier_destroy(&g[i].group.barrier);
    }
    free(g);
    free(h);
    free(logits);
}

static void widths(const char *what, const struct tsr_model *m, const struct tsr_model_overlay *o,
                   uint32_t act)
{
    struct script s = write_script(m->hp.vocab);
    float        *want = plain(m, o, act, &s);
    for (uint32_t tp = 1; tp <= 4; tp *= 2)
        for (uint32_t pp = 1; pp <= 3; pp++)
            if (tp * pp > 1 && (all || tsr_uniform(seed, strlen(what), tp * 8 + pp) < 0.3))
                compare(what, m, o, act, tp, pp, &s, want);
    free(want);
}

static void dense(void **state)
{
    (void)state;
    for (size_t i = 0; wide_names[i]; i++) {
        char              folder[64];
        struct tsr_model *m = wide_load(wide_names[i], i % 2 == 0, folder);
        widths(wide_names[i], m, NULL, TSR_ACT_F32);
        wide_free(m, folder);
    }
}

static const struct {
    const char *scheme;
    uint32_t    act;
} schemes[] = {
    { "use: rtn\nbits: 4\ngroup: 64\n", TSR_ACT_A8 },
    { "use: rtn\nbits: 3\ngroup: 32\n", TSR_ACT_F32 },
    { "use: mx\nelement: fp4_e2m1\n", TSR_ACT_A8 },
    { "use: squeeze\nbits: 4\nsensitivity: none\n", TSR_ACT_A8 },
    { "use: mx\nelement: fp8_e4m3\n", TSR_ACT_A8 },
};

static void latent(void **state)
{
    (void)state;
    for (size_t i = 0; wide_latent_names[i]; i++) {
        char                      folder[64];
        struct tsr_model         *m = wide_load(wide_latent_names[i], false, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, schemes[i].scheme);
        widths(wide_latent_names[i], m, NULL, TSR_ACT_F32);
        widths(schemes[i].scheme, m, o, schemes[i].act);
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

/* Norms of queries and keys over all heads. */
static void whole_norms(void **state)
{
    (void)state;
    for (size_t i = 0; wide_norm_names[i]; i++) {
        char                      folder[64];
        struct tsr_model         *m = wide_load(wide_norm_names[i], i > 0, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, schemes[i].scheme);
        struct script             s = write_script(m->hp.vocab);
        assert_int_equal(m->hp.qk_norm, TSR_MODEL_QK_NORM_WIDTH);
        for (int packed_too = 0; packed_too < 2; packed_too++) {
            uint32_t act = packed_too ? schemes[i].act : TSR_ACT_F32;
            float   *want = plain(m, packed_too ? o : NULL, act, &s);
            for (uint32_t tp = 2; tp <= 4; tp *= 2)
                compare(wide_norm_names[i], m, packed_too ? o : NULL, act, tp, tp / 2, &s, want);
            free(want);
        }
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

static void delta(void **state)
{
    (void)state;
    for (size_t i = 0; wide_delta_names[i]; i++) {
        char                      folder[64];
        struct tsr_model         *m = wide_load(wide_delta_names[i], false, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, schemes[i].scheme);
        widths(wide_delta_names[i], m, NULL, TSR_ACT_F32);
        widths(schemes[i].scheme, m, o, schemes[i].act);
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

/* Whole experts, 2 or 4 of 8 to a rank: the weighed sum is that of one engine. */
static void experts(void **state)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(WIDE_SHARED_EXPERT, false, folder);
    struct tsr_model_overlay *o = wide_pack(registry, m, "use: rtn\nbits: 4\ngroup: 32\n");
    struct script             s = write_script(m->hp.vocab);
    (void)state;
    whole_experts = true;
    for (int packed_too = 0; packed_too < 2; packed_too++) {
        uint32_t act = packed_too ? TSR_ACT_A8 : TSR_ACT_F32;
        float   *want = plain(m, packed_too ? o : NULL, act, &s);
        for (uint32_t tp = 2; tp <= 4; tp *= 2)
            for (uint32_t pp = 1; pp <= 3; pp++)
                compare("whole experts", m, packed_too ? o : NULL, act, tp, pp, &s, want);
        free(want);
    }
    whole_experts = false;
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void packed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        char                      folder[64];
        const char               *name = wide_names[i];
        struct tsr_model         *m = wide_load(name, false, folder);
        struct tsr_model_overlay *o = wide_pack(registry, m, schemes[i].scheme);
        widths(schemes[i].scheme, m, o, schemes[i].act);
        tsr_model_overlay_destroy(o);
        wide_free(m, folder);
    }
}

/* Widths that cannot keep the bytes are refused with those that can. */
static void refused(void **state)
{
    (void)state;
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    char                      folder[64];
    struct tsr_model         *m = wide_load("llama", false, folder);
    struct tsr_engine_tp      hook = { .rank = 0, .ranks = 8, .sum = sum };
    struct tsr_engine_options opt = { .kv_dtype = TSR_F32, .slots = 1, .context = 8, .tp = &hook };
    struct tsr_engine        *e = NULL;
    assert_int_equal(tsr_engine_create(&e, registry, m, NULL, &opt, &err.err), TSR_E_CONFIG);
    assert_true(error_is(&err.err, "o_proj", "heads"));
    assert_true(error_is(&err.err, "o_proj", "1 2 4"));
    hook.ranks = 3;
    assert_int_equal(tsr_engine_create(&e, registry, m, NULL, &opt, &err.err), TSR_E_CONFIG);
    hook.ranks = 2;
    struct tsr_model_overlay *o = wide_pack(registry, m, "use: rtn\nbits: 4\ngroup: 192\n");
    assert_int_equal(tsr_engine_create(&e, registry, m, o, &opt, &err.err), TSR_E_CONFIG);
    assert_true(error_is(&err.err, "model.layers.0.self_attn.o_proj", "2 128 192"));
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),       cmocka_unit_test(latent),  cmocka_unit_test(delta),
        cmocka_unit_test(whole_norms), cmocka_unit_test(experts), cmocka_unit_test(packed),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
