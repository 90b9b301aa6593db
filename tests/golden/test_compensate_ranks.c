/* Compensation over ranks beside and behind each other: the bytes of one engine. */
#include "compensated.h"
#include "wide.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct group {
    uint32_t          ranks;
    pthread_barrier_t barrier;
    float            *part[8];
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
    struct member *me = ctx;
    struct group  *g = me->g;
    float         *whole = malloc(rows * cols * sizeof *whole);
    (void)site;
    if (!whole)
        return tsr_fail_nomem(err, rows * cols, "a sum");
    g->part[me->rank] = x;
    (void)pthread_barrier_wait(&g->barrier);
    for (uint64_t i = 0; i < rows * cols; i++)
        whole[i] = tree(g, i, 0, g->ranks);
    (void)pthread_barrier_wait(&g->barrier);
    memcpy(x, whole, rows * cols * sizeof *whole);
    free(whole);
    return TSR_OK;
}

struct worker {
    struct member                  me;
    struct tsr_engine             *e;
    const struct tsr_engine_token *token;
    uint64_t                       n;
    float                         *in, *out, *logits;
    tsr_status                     st;
    struct tsr_errbuf              err;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    w->st = tsr_engine_stage(w->e, w->token, w->n, w->in, w->out, w->logits, &w->err.err);
    return NULL;
}

/* What each rank of `ranks` has and where. */
static bool        whole_experts;
static const char *device; /* NULL: the CPU; with the experts of some layers on the CPU */

/* The script through `pp` stages of `tp` ranks each. */
static void ranks(const struct tsr_model *m, const struct tsr_model_overlay *o,
                  const struct tsr_engine_compensate *use, uint32_t tp, uint32_t pp,
                  const struct compensated_script *s, const float *want, double within)
{
    static struct group  group[3];
    static struct worker w[3][4];
    uint64_t             hidden = m->hp.hidden, vocab = m->hp.vocab, layers = m->hp.layers;
    float               *h = malloc(COMPENSATED_MOST * hidden * sizeof *h);
    float               *logits = malloc(COMPENSATED_MOST * vocab * sizeof *logits);
    assert_true(h && logits);
    for (uint32_t i = 0; i < pp; i++) {
        group[i].ranks = tp;
        (void)pthread_barrier_init(&group[i].barrier, NULL, tp);
        for (uint32_t r = 0; r < tp; r++) {
            struct tsr_engine_tp hook = { .rank = r,
                                          .ranks = tp,
                                          .whole_experts = whole_experts,
                                          .sum = sum,
                                          .ctx = &w[i][r].me };
            w[i][r] = (struct worker){ .me = { &group[i], r } };
            w[i][r].err = (struct tsr_errbuf)TSR_ERRBUF(w[i][r].err);
            w[i][r].out = malloc(COMPENSATED_MOST * hidden * sizeof *h);
            w[i][r].in = malloc(COMPENSATED_MOST * hidden * sizeof *h);
            assert_true(w[i][r].out && w[i][r].in);
            w[i][r].e =
                golden_engine(compensated_registry, m, o,
                              (struct tsr_engine_options){
                                  .on = { .backend = device, .cpu_experts = device ? 2 : 0 },
                                  .act = TSR_ACT_F32,
                                  .kv_dtype = TSR_F32,
                                  .slots = COMPENSATED_SLOTS,
                                  .context = 32,
                                  .chunk = 5,
                                  .first = layers * i / pp,
                                  .end = layers * (i + 1) / pp,
                                  .no_embed = i > 0 || r > 0,
                                  .no_head = i + 1 < pp || r > 0,
                                  .tp = &hook,
                                  .compensate = use });
        }
    }
    for (uint32_t k = 0; k < COMPENSATED_STEPS; k++) {
        assert_int_equal(tsr_engine_embed(w[0][0].e, s->token[k], s->n[k], h, NULL), TSR_OK);
        for (uint32_t i = 0; i < pp; i++) {
            pthread_t id[4];
            for (uint32_t r = 0; r < tp; r++) {
                w[i][r].token = s->token[k];
                w[i][r].n = s->n[k];
                w[i][r].logits = i + 1 == pp && r == 0 ? logits : NULL;
                memcpy(w[i][r].in, h, s->n[k] * hidden * sizeof *h);
                assert_int_equal(pthread_create(&id[r], NULL, work, &w[i][r]), 0);
            }
            for (uint32_t r = 0; r < tp; r++) {
                (void)pthread_join(id[r], NULL);
                if (w[i][r].st != TSR_OK)
                    fail_msg("rank %u: %s", r, w[i][r].err.text);
            }
            memcpy(h, w[i][0].out, s->n[k] * hidden * sizeof *h);
        }
        if (memcmp(logits, want, s->wanted[k] * vocab * sizeof *logits) != 0 && !(within > 0))
            fail_msg("%u ranks, %u stages: step %u has other logits", tp, pp, k);
        for (uint64_t i = 0; within > 0 && i < s->wanted[k] * vocab; i++)
            if (!(fabs((double)logits[i] - (double)want[i]) <= within))
                fail_msg("%u ranks, %u stages: step %u: logit %llu is %g instead of %g", tp, pp, k,
                         (unsigned long long)i, (double)logits[i], (double)want[i]);
        want += s->wanted[k] * vocab;
    }
    for (uint32_t i = 0; i < pp; i++) {
        for (uint32_t r = 0; r < tp; r++) {
            tsr_engine_destroy(w[i][r].e);
            free(w[i][r].in);
            free(w[i][r].out);
        }
        (void)pthread_barrier_destroy(&group[i].barrier);
    }
    free(h);
    free(logits);
}

static const uint32_t widths[][2] = { { 1, 3 }, { 2, 1 }, { 2, 2 }, { 4, 1 } };

static void rank_ways(const char *name, int way)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(name, false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    const struct tsr_compensation *c = compensated_residuals(m, o,
                                                             way == 3   ? 2
                                                             : way == 2 ? 16
                                                                        : 4);
    struct tsr_engine_compensate   use = { .from = c,
                                           .each = 70,
                                           .select = way == 1 ? TSR_COMPENSATE_SELECT_EXACT
                                                              : TSR_COMPENSATE_SELECT_DYNAMIC,
                                           .all = way == 0 };
    struct compensated_script      s = compensated_write_script(m->hp.vocab);
    float                         *want =
        compensated_run_script(compensated_engine(compensated_registry, m, o, &use, 0, NULL), &s);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        ranks(m, o, &use, widths[i][0], widths[i][1], &s, want, 0);
    free(want);
    compensated_residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_ranks(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++)
        rank_ways(wide_names[way % 2], way);
    /* gates of the delta rule have a row for each value head: those of a rank begin in the middle of a byte */
    for (int i = 0; wide_latent_names[i]; i++)
        rank_ways(wide_latent_names[i], i % 2 ? 1 : 0);
    for (int i = 0; wide_delta_names[i]; i++)
        rank_ways(wide_delta_names[i], i % 2 ? 0 : 3);
}

/* Stages give the bytes of one engine.  The sum over the ranks of a stage with experts is rounded otherwise than that of one,
 * with compensation as without: both stay as near to one engine, and what is added is far more. */
static void test_expert_ranks(void **state)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(WIDE_EXPERTS, false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    struct compensated_script s = compensated_write_script(m->hp.vocab);
    float                    *bare =
        compensated_run_script(compensated_engine(compensated_registry, m, o, NULL, 0, NULL), &s);
    (void)state;
    for (int way = 0; way < 2; way++) {
        const struct tsr_compensation *c = compensated_residuals(m, o, way == 1 ? 16 : 4);
        struct tsr_engine_compensate   use = { .from = c,
                                               .each = 70,
                                               .select = way == 1
                                                             ? TSR_COMPENSATE_SELECT_STATIC_MEANSQ
                                                             : TSR_COMPENSATE_SELECT_DYNAMIC,
                                               .all = way == 1 };
        float                         *want =
            compensated_run_script(compensated_engine(compensated_registry, m, o, &use, 0, NULL),
                                   &s);
        double moved = 0, range = 0;
        for (uint64_t i = 0; i < s.logits * m->hp.vocab; i++) {
            moved = fmax(moved, fabs((double)want[i] - (double)bare[i]));
            range = fmax(range, fabs((double)want[i]));
        }
        assert_true(moved > 1e-2 * range);
        ranks(m, o, &use, 1, 3, &s, want, 0);
        ranks(m, o, &use, 2, 1, &s, want, 2e-5 * range);
        ranks(m, o, &use, 4, 1, &s, want, 2e-5 * range);
        device = compensated_vault ? "vault" : NULL;
        ranks(m, o, &use, 2, 1, &s, want, 2e-5 * range);
        device = NULL;
        free(want);
        compensated_residuals_free(m, c);
    }
    free(bare);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

/* Ranks with whole experts compensate those that they have, and together what they share of a shared expert: the bytes are
 * those of one engine, also where the CPU runs some of the experts. */
static void whole_ranks(const char *name)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(name, false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    struct compensated_script s = compensated_write_script(m->hp.vocab);
    float                    *bare =
        compensated_run_script(compensated_engine(compensated_registry, m, o, NULL, 0, NULL), &s);
    whole_experts = true;
    for (int way = 0; way < 3; way++) {
        const struct tsr_compensation *c = compensated_residuals(m, o, way == 1 ? 2 : 4);
        struct tsr_engine_compensate   use = { .from = c,
                                               .each = 70,
                                               .select = way == 1   ? TSR_COMPENSATE_SELECT_EXACT
                                                         : way == 2 ? TSR_COMPENSATE_SELECT_RANDOM
                                                                    : TSR_COMPENSATE_SELECT_DYNAMIC,
                                               .all = way == 1 };
        float                         *want =
            compensated_run_script(compensated_engine(compensated_registry, m, o, &use, 0, NULL),
                                   &s);
        assert_true(memcmp(want, bare, s.logits * m->hp.vocab * sizeof *want) != 0);
        for (int on = 0; on < (compensated_vault ? 2 : 1); on++) {
            device = on ? "vault" : NULL;
            ranks(m, o, &use, 2, 1, &s, want, 0);
            ranks(m, o, &use, 2, 3, &s, want, 0);
            if (m->hp.experts % 4 == 0)
                ranks(m, o, &use, 4, 1, &s, want, 0);
        }
        device = NULL;
        free(want);
        compensated_residuals_free(m, c);
    }
    whole_experts = false;
    free(bare);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_whole_ranks(void **state)
{
    (void)state;
    whole_ranks(WIDE_EXPERTS);
    whole_ranks(WIDE_SHARED_EXPERT);
}

/* Chunks of 1024 are those of the whole input: of o's and down's 5120 channels two ranks have two and a half each, four
 * have one and a quarter, so that borders of chunks lie inside ranks and borders of ranks inside chunks.  Of their 40
 * outputs, two and a half vectors, one of four ranks adds nothing up, and the last one half a vector. */
static void test_chunks(void **state)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(WIDE_INPUTS, false, folder);
    struct tsr_model_overlay *o =
        wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 64\n");
    const struct tsr_compensation *c = compensated_residuals(m, o, 4);
    struct tsr_engine_compensate   use = { .from = c, .each = 37 };
    struct compensated_script      s = compensated_write_script(m->hp.vocab);
    uint64_t                       bytes = s.logits * m->hp.vocab * sizeof(float);
    (void)state;
    for (int site = 0; site < TSR_MODEL_SITES; site++) {
        bool split = site == TSR_MODEL_SITE_O_IN || site == TSR_MODEL_SITE_DOWN_IN;
        assert_int_equal(c->site[0][site].cols, split ? 5120 : 40);
    }
    float *want =
        compensated_run_script(compensated_engine(compensated_threaded, m, o, &use, 0, NULL), &s);
    float *bare =
        compensated_run_script(compensated_engine(compensated_threaded, m, o, NULL, 0, NULL), &s);
    assert_true(memcmp(want, bare, bytes) != 0);
    for (uint32_t tp = 1; tp <= 4; tp *= 2)
        ranks(m, o, &use, tp, 1, &s, want, 0);
    /* where nothing else is compensated, a rank that adds nothing up still takes part */
    static const uint32_t down[1][TSR_MODEL_SITES] = { [0][TSR_MODEL_SITE_DOWN_IN] = 37 };
    use.k = down;
    free(want);
    want =
        compensated_run_script(compensated_engine(compensated_threaded, m, o, &use, 0, NULL), &s);
    assert_true(memcmp(want, bare, bytes) != 0);
    ranks(m, o, &use, 4, 1, &s, want, 0);
    free(bare);
    free(want);
    compensated_residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_expert_ranks),
        cmocka_unit_test(test_whole_ranks),
    };
    compensated_vault = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, compensated_set_up, compensated_tear_down);
}
