/* An engine with compensation: against weights that have the residuals added, and the same bytes for any
 * chunk, batch, number of threads, device, and any ranks beside and behind each other. */
#include "golden.h"
#include "wide.h"

#include "base/rng.h"
#include "compensate/compensation.h"
#include "engine/internal.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS 3u
#define STEPS 4u
#define MOST  24u /* tokens of a step */

static struct tsr_registry *registry, *threaded;
static struct tsr_pool     *pool, *three;
static const char          *vault;

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(1, vault, &pool);
    threaded = golden_registry(3, NULL, &three);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    golden_registry_close(threaded, three);
    return 0;
}

/* ---- residuals without a file ---------------------------------------------------------------- */

/* Rows of q, k, v and of gate, up behind each other, as a file has them: the first has the memory of all. */
static void join_rows(const struct tsr_model *m, uint64_t layer,
                      struct tsr_compensate_residual *lin, enum tsr_site site, uint32_t bits)
{
    uint64_t                        row, at = 0;
    unsigned char                  *all = NULL;
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    if (tsr_compensation_row(m, layer, site, bits, &row) < 2)
        return;
    for (uint32_t i = 0; i < of.n; i++) {
        struct tsr_compensate_residual *r = &lin[of.id[i]];
        if (!r->inputs)
            continue;
        assert_non_null(r->codes);
        if (!all)
            assert_int_equal(posix_memalign((void **)&all, 64, r->inputs * row), 0);
        for (uint64_t k = 0; k < r->inputs; k++)
            memcpy(all + k * row + at, r->codes + k * r->stride, r->stride);
        free(r->codes);
        r->codes = all + at;
        at += r->stride;
        r->stride = row;
    }
    assert_int_equal(at, row);
}

/* Joined in every other layer. */
static const struct tsr_compensation *residuals(const struct tsr_model         *m,
                                                const struct tsr_model_overlay *o, uint32_t bits)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_compensation *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->bits = bits;
    assert_int_equal(tsr_compensation_new_layers(c, m, NULL), TSR_OK);
    for (uint64_t l = 0; l < c->layers; l++) {
        for (uint64_t i = 0; i < c->linears; i++) {
            struct tsr_compensate_residual_source src = { .w = &m->layers[l].lin[i].w,
                                                          .packed = o->lin[l][i] };
            struct tsr_compensate_residual_report rep;
            if (src.packed && tsr_compensate_residual_make(&c->lin[l][i], NULL, &src, bits, NULL,
                                                           &rep, &err.err) != TSR_OK)
                fail_msg("%s", err.text);
        }
        for (uint64_t s = 0; s < c->sites && l % 2 == 0; s++)
            join_rows(m, l, c->lin[l], (enum tsr_site)s, bits);
        for (uint64_t s = 0; s < c->sites; s++) {
            uint64_t n = tsr_model_layer_site_cols(m, l, (enum tsr_site)s);
            if (!n)
                continue; /* of latent attention */
            float *v = malloc(3 * n * sizeof *v);
            assert_non_null(v);
            for (uint64_t i = 0; i < n; i++) {
                v[i] = 3.0f * (float)(n - i) / (float)n; /* inputs are about 1 */
                v[n + i] = (float)tsr_uniform(5, l * 4 + s, i);
                v[2 * n + i] = (float)tsr_uniform(6, l * 4 + s, i);
            }
            c->site[l][s] = (struct tsr_compensate_site_profile){ n, v, v + n, v + 2 * n };
        }
    }
    return c;
}

/* Joined: the first of a site has the memory of all. */
static void unjoin(const struct tsr_model *m, uint64_t layer, struct tsr_compensate_residual *lin,
                   enum tsr_site site)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    bool                            seen = false;
    for (uint32_t i = 0; i < of.n; i++) {
        if (seen)
            lin[of.id[i]].codes = NULL;
        seen = seen || lin[of.id[i]].codes;
    }
}

static void residuals_free(const struct tsr_model *m, const struct tsr_compensation *c)
{
    for (uint64_t l = 0; l < c->layers; l++) {
        for (uint64_t s = 0; s < c->sites && l % 2 == 0; s++)
            unjoin(m, l, c->lin[l], (enum tsr_site)s);
        for (uint64_t i = 0; i < c->linears; i++)
            tsr_compensate_residual_free(&c->lin[l][i]);
        for (uint64_t s = 0; s < c->sites; s++)
            free((void *)(uintptr_t)c->site[l][s].top);
    }
    free(c->lin);
    free(c->site);
    free((void *)(uintptr_t)c);
}

/* ---- a script of mixed batches ------------------------------------------------------------------ */

struct script {
    struct tsr_engine_token token[STEPS][MOST];
    uint64_t                n[STEPS], wanted[STEPS], logits;
};

/* Prompts in pieces, then single tokens, which count as generated. */
static struct script write_script(uint64_t vocab)
{
    static const uint64_t give[STEPS][SLOTS] = {
        { 7, 1, 0 }, { 4, 3, 9 }, { 1, 1, 5 }, { 1, 1, 1 }
    };
    struct script s = { .logits = 0 };
    for (uint32_t k = 0; k < STEPS; k++)
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            for (uint64_t i = 0; i < give[k][slot]; i++) {
                s.token[k][s.n[k]++] = (struct tsr_engine_token){
                    .id = (uint32_t)(tsr_uniform(3, k * 8 + slot, i) * (double)vocab),
                    .slot = slot,
                    .logits = true,
                    .decode = k >= 2 && give[k][slot] == 1
                };
                s.wanted[k]++;
                s.logits++;
            }
    return s;
}

static float *run_script(struct tsr_engine *e, const struct script *s)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          vocab = tsr_engine_vocab(e);
    float            *logits = malloc(s->logits * vocab * sizeof *logits), *at = logits;
    assert_non_null(logits);
    for (uint32_t k = 0; k < STEPS; k++) {
        if (tsr_engine_forward(e, s->token[k], s->n[k], at, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        at += s->wanted[k] * vocab;
    }
    tsr_engine_destroy(e);
    return logits;
}

static struct tsr_engine *engine_of(struct tsr_registry *r, const struct tsr_model *m,
                                    const struct tsr_model_overlay     *o,
                                    const struct tsr_engine_compensate *c, uint64_t chunk,
                                    const char *backend)
{
    return golden_engine(r, m, o,
                         (struct tsr_engine_options){ .on.backend = backend,
                                                      .act = TSR_ACT_F32,
                                                      .kv_dtype = TSR_F32,
                                                      .slots = SLOTS,
                                                      .context = 32,
                                                      .chunk = chunk,
                                                      .compensate = c });
}

/* ---- weights with the residuals added ------------------------------------------------------------ */

/* Ŵ, with the residual of the channels that `list` has, as a plugin's own dense format. */
static void add_residual(struct tsr_model_packed *p, const struct tsr_compensate_residual *r,
                         const uint32_t *list)
{
    float *w = malloc(p->rows * p->cols * sizeof *w);
    assert_non_null(w);
    assert_int_equal(tsr_model_packed_dequantize(p, 0, p->rows, w, NULL), TSR_OK);
    for (uint32_t k = 1; k <= list[0]; k++)
        for (uint64_t n = 0; n < p->rows; n++)
            w[n * p->cols + list[k]] += tsr_compensate_residual_value(r, list[k], n);
    tsr_model_packed_drop(p);
    p->ordered = false;
    p->dense = w;
    p->format.id = "test.dense/1";
}

static void against_weights(const char *name, const char *scheme, uint32_t bits, uint32_t k,
                            enum tsr_compensate_select select)
{
    char                           folder[64];
    struct tsr_model              *m = wide_load(name, false, folder);
    struct tsr_model_overlay      *o = wide_pack(registry, m, scheme);
    const struct tsr_compensation *c = residuals(m, o, bits);
    struct tsr_engine_compensate   use = { .from = c, .each = k, .select = select, .all = true };
    struct script                  s = write_script(m->hp.vocab);
    float                         *got = run_script(engine_of(registry, m, o, &use, 0, NULL), &s);
    float                         *bare = run_script(engine_of(registry, m, o, NULL, 0, NULL), &s);
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < c->linears; i++) {
            const struct tsr_compensate_site_profile *p =
                &c->site[l][tsr_model_linear_site((enum tsr_linear_id)i)];
            if (!o->lin[l][i])
                continue;
            uint64_t  n = tsr_compensate_select_count(k, p->cols);
            uint32_t *list = malloc((1 + n) * 4), *scratch = malloc(p->cols * 4);
            assert_true(list && scratch);
            tsr_compensate_select_top(select == TSR_COMPENSATE_SELECT_STATIC_MEANSQ ? p->meansq
                                                                                    : p->lost,
                                      p->cols, n, list, scratch);
            add_residual(o->lin[l][i], &c->lin[l][i], list);
            free(list);
            free(scratch);
        }
    float *want = run_script(engine_of(registry, m, o, NULL, 0, NULL), &s);
    double worst = 0, moved = 0, range = 0;
    for (uint64_t i = 0; i < s.logits * m->hp.vocab; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        moved = fmax(moved, fabs((double)got[i] - (double)bare[i]));
        range = fmax(range, fabs((double)want[i]));
        assert_true(isfinite(got[i]));
    }
    /* the same sums in F32 in another order, through three layers */
    if (!(worst < 1e-4 * range))
        fail_msg("%s: %g from weights with residuals, of %g", scheme, worst, range);
    if (!(moved > 20 * worst))
        fail_msg("%s: compensation changed %g, the comparison sees %g", scheme, moved, worst);
    free(got);
    free(bare);
    free(want);
    residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_weights(void **state)
{
    (void)state;
    against_weights(WIDE_EXPERTS, "use: rtn\nbits: 3\ngroup: 64\n", 4, 256,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    against_weights(WIDE_SHARED_EXPERT, "use: rtn\nbits: 3\ngroup: 64\n", 4, 256,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    for (int i = 0; wide_latent_names[i]; i++)
        against_weights(wide_latent_names[i], "use: rtn\nbits: 3\ngroup: 16\n", 4, 256,
                        TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    for (int i = 0; wide_delta_names[i]; i++)
        against_weights(wide_delta_names[i], "use: rtn\nbits: 3\ngroup: 16\n", 4, 256,
                        TSR_COMPENSATE_SELECT_STATIC_HESSIAN);
    against_weights(wide_names[0], "use: rtn\nbits: 3\ngroup: 64\n", 4, 256,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    against_weights(wide_names[0], "use: squeeze\nbits: 3\nsensitivity: none\n", 8, 100,
                    TSR_COMPENSATE_SELECT_STATIC_HESSIAN);
    against_weights(wide_names[0], "use: rtn\nbits: 4\ngroup: 32\n", 16, 1024,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
    against_weights(wide_names[0], "use: mx\nelement: fp4_e2m1\n", 2, 512,
                    TSR_COMPENSATE_SELECT_STATIC_MEANSQ);
}

/* All of an F16 residual is the original. */
static void whole(const char *name)
{
    char                           folder[64];
    struct tsr_model              *m = wide_load(name, false, folder);
    struct tsr_model_overlay      *o = wide_pack(registry, m, "use: rtn\nbits: 2\ngroup: 64\n");
    const struct tsr_compensation *c = residuals(m, o, 16);
    struct tsr_engine_compensate   use = { .from = c, .each = 1024, .all = true };
    struct script                  s = write_script(m->hp.vocab);
    float                         *got = run_script(engine_of(registry, m, o, &use, 0, NULL), &s);
    float *want = run_script(engine_of(registry, m, NULL, NULL, 0, NULL), &s);
    double worst = 0, range = 0;
    for (uint64_t i = 0; i < s.logits * m->hp.vocab; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        range = fmax(range, fabs((double)want[i]));
    }
    /* half a unit of F16 of what two bits lose: 2^-12 of about a fifth of a weight */
    assert_true(worst < 2e-3 * range);
    free(got);
    free(want);
    residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_whole(void **state)
{
    (void)state;
    whole(wide_names[0]);
    whole(WIDE_EXPERTS);
    whole(wide_latent_names[0]);
    whole(wide_delta_names[0]);
}

/* ---- one arithmetic -------------------------------------------------------------------------------- */

/* A device that has no table of its own. */
static const struct tsr_backend_v1 *real;

static tsr_status other_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    return real->run(self, stream, op, err);
}

static struct tsr_engine *bare_engine(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                      const struct tsr_engine_compensate *use, uint64_t cpu_experts,
                                      struct tsr_backend_v1 *table, struct tsr_engine_device **dev,
                                      void **self)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_plugin_found   f;
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = { .on.cpu_experts = cpu_experts,
                                      .act = TSR_ACT_F32,
                                      .kv_dtype = TSR_F32,
                                      .slots = SLOTS,
                                      .context = 32,
                                      .compensate = use };
    char                      options[1024] = { 0 };
    assert_int_equal(tsr_plugin_registry_find(registry, TSR_KIND_BACKEND, "cpu", &f, &err.err),
                     TSR_OK);
    real = f.iface;
    *table = *real;
    table->run = other_run;
    table->extension = NULL;
    assert_true(f.component->options_size <= sizeof options);
    assert_int_equal(real->create(tsr_plugin_registry_host(registry), options, self, &err.err),
                     TSR_OK);
    if (tsr_engine_device_wrap(dev, registry, table, *self, &err.err) != TSR_OK ||
        tsr_engine_create_on(&e, *dev, m, o, &opt, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    return e;
}

static void same(const char *what, float *got, const float *want, uint64_t floats)
{
    for (uint64_t i = 0; i < floats; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: logit %llu is %g instead of %g", what, (unsigned long long)i,
                     (double)got[i], (double)want[i]);
    free(got);
}

/* Of the first layers, or of all, the CPU runs the experts and compensates them. */
static void experts_on_cpu(const struct tsr_model *m, const struct tsr_model_overlay *o,
                           const struct tsr_engine_compensate *use, const struct script *s,
                           const float *want)
{
    static const uint64_t layers[] = { 1, 2, UINT64_MAX };
    uint64_t              floats = s->logits * m->hp.vocab;
    for (int i = 0; i < 3; i++) {
        struct tsr_engine_options opt = { .on = { .backend = "vault", .cpu_experts = layers[i] },
                                          .act = TSR_ACT_F32,
                                          .kv_dtype = TSR_F32,
                                          .slots = SLOTS,
                                          .context = 32,
                                          .chunk = i == 1 ? 5 : 0,
                                          .compensate = use };
        struct tsr_backend_v1     table;
        struct tsr_engine_device *dev = NULL;
        void                     *self = NULL;
        if (vault)
            same("vault and CPU", run_script(golden_engine(registry, m, o, opt), s), want, floats);
        same("no table and CPU",
             run_script(bare_engine(m, o, use, layers[i], &table, &dev, &self), s), want, floats);
        tsr_engine_device_close(dev);
        real->destroy(self);
    }
}

static void one_arithmetic(const struct tsr_model *m, const struct tsr_model_overlay *o,
                           const struct tsr_engine_compensate *use)
{
    struct script             s = write_script(m->hp.vocab), alone;
    uint64_t                  floats = s.logits * m->hp.vocab;
    float                    *want = run_script(engine_of(registry, m, o, use, 0, NULL), &s);
    struct tsr_backend_v1     table;
    struct tsr_engine_device *dev = NULL;
    void                     *self = NULL;
    same("chunks of 5", run_script(engine_of(registry, m, o, use, 5, NULL), &s), want, floats);
    same("chunks of 1", run_script(engine_of(registry, m, o, use, 1, NULL), &s), want, floats);
    same("three threads", run_script(engine_of(threaded, m, o, use, 0, NULL), &s), want, floats);
    if (vault)
        same("vault", run_script(engine_of(registry, m, o, use, 0, "vault"), &s), want, floats);
    same("no table", run_script(bare_engine(m, o, use, 0, &table, &dev, &self), &s), want, floats);
    tsr_engine_device_close(dev);
    real->destroy(self);
    if (m->hp.experts)
        experts_on_cpu(m, o, use, &s, want);
    /* slot 1 without its neighbours */
    alone = s;
    uint64_t floats_of = m->hp.vocab;
    float   *expect = malloc(floats * sizeof *expect), *to = expect;
    assert_non_null(expect);
    for (uint32_t k = 0, from = 0; k < STEPS; k++) {
        alone.n[k] = 0;
        for (uint64_t i = 0; i < s.n[k]; i++, from++)
            if (s.token[k][i].slot == 1) {
                alone.token[k][alone.n[k]++] = s.token[k][i];
                memcpy(to, want + from * floats_of, floats_of * sizeof *to);
                to += floats_of;
            }
        alone.wanted[k] = alone.n[k];
    }
    alone.logits = (uint64_t)(to - expect) / floats_of;
    same("alone", run_script(engine_of(registry, m, o, use, 0, NULL), &alone), expect,
         alone.logits * floats_of);
    free(expect);
    free(want);
}

static void invariance(const char *name, int ways)
{
    char                      folder[64];
    struct tsr_model         *m = wide_load(name, false, folder);
    struct tsr_model_overlay *o = wide_pack(registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    for (int way = 0; way < ways; way++) {
        const struct tsr_compensation *c = residuals(m, o, way == 1 ? 8 : 4);
        struct tsr_engine_compensate   use = { .from = c,
                                               .each = 90,
                                               .select = (enum tsr_compensate_select)way,
                                               .all = way == 0,
                                               .recall = way != 2,
                                               .seed = 4 };
        one_arithmetic(m, o, &use);
        residuals_free(m, c);
    }
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

static void test_invariance(void **state)
{
    (void)state;
    invariance(wide_names[0], 5);
    invariance(WIDE_EXPERTS, 3);
    invariance(WIDE_SHARED_EXPERT, 3);
    invariance(wide_latent_names[0], 3);
    invariance(wide_delta_names[0], 3);
}

/* Which tokens, how many channels, what a selection finds again. */
static void test_counts(void **state)
{
    char                           folder[64];
    struct tsr_model              *m = wide_load(wide_names[0], false, folder);
    struct tsr_model_overlay      *o = wide_pack(registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    const struct tsr_compensation *c = residuals(m, o, 4);
    struct script                  s = write_script(m->hp.vocab);
    struct tsr_engine_compensated  done;
    struct tsr_errbuf              err = TSR_ERRBUF(err);
    uint64_t                       each = 0, decoded = 0, linears = 0;
    float                         *logits = malloc(MOST * m->hp.vocab * sizeof *logits);
    uint32_t                       k[WIDE_LAYERS][TSR_MODEL_SITES] = { { 64, 0, 32, 8 },
                                                                       { 0, 0, 0, 0 },
                                                                       { 1024, 1, 1, 1 } };
    (void)state;
    assert_non_null(logits);
    struct tsr_engine_compensate use = { .from = c,
                                         .k = (const uint32_t(*)[TSR_MODEL_SITES])k,
                                         .select = TSR_COMPENSATE_SELECT_EXACT,
                                         .recall = true };
    struct tsr_engine           *e = engine_of(registry, m, o, &use, 0, NULL);
    memset(k, 0, sizeof k); /* was read */
    static const uint32_t again[WIDE_LAYERS][TSR_MODEL_SITES] = { { 64, 0, 32, 8 },
                                                                  { 0, 0, 0, 0 },
                                                                  { 1024, 1, 1, 1 } };
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
            enum tsr_site site = tsr_model_linear_site((enum tsr_linear_id)i);
            uint64_t      n = tsr_compensate_select_count(again[l][site], c->site[l][site].cols);
            linears += n && o->lin[l][i];
            if (i == TSR_MODEL_Q || i == TSR_MODEL_O || i == TSR_MODEL_UP || i == TSR_MODEL_DOWN)
                each += n;
        }
    for (uint32_t t = 0; t < STEPS; t++) {
        if (tsr_engine_forward(e, s.token[t], s.n[t], logits, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        for (uint64_t i = 0; i < s.n[t]; i++)
            decoded += s.token[t][i].decode;
    }
    tsr_engine_compensation(e, &done);
    assert_true(decoded == 5 && done.tokens == decoded);
    assert_int_equal(done.linears, linears);
    assert_int_equal(done.selected, decoded * each);
    assert_true(done.exact == done.selected && done.common == done.exact);
    assert_true(done.host_bytes > 0);
    tsr_engine_destroy(e);
    free(logits);
    residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

/* ---- ranks ------------------------------------------------------------------------------------------ */

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
                  const struct script *s, const float *want, double within)
{
    static struct group  group[3];
    static struct worker w[3][4];
    uint64_t             hidden = m->hp.hidden, vocab = m->hp.vocab, layers = m->hp.layers;
    float               *h = malloc(MOST * hidden * sizeof *h);
    float               *logits = malloc(MOST * vocab * sizeof *logits);
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
            w[i][r].out = malloc(MOST * hidden * sizeof *h);
            w[i][r].in = malloc(MOST * hidden * sizeof *h);
            assert_true(w[i][r].out && w[i][r].in);
            w[i][r].e =
                golden_engine(registry, m, o,
                              (struct tsr_engine_options){
                                  .on = { .backend = device, .cpu_experts = device ? 2 : 0 },
                                  .act = TSR_ACT_F32,
                                  .kv_dtype = TSR_F32,
                                  .slots = SLOTS,
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
    for (uint32_t k = 0; k < STEPS; k++) {
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
    char                           folder[64];
    struct tsr_model              *m = wide_load(name, false, folder);
    struct tsr_model_overlay      *o = wide_pack(registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    const struct tsr_compensation *c = residuals(m, o, way == 3 ? 2 : way == 2 ? 16 : 4);
    struct tsr_engine_compensate   use = { .from = c,
                                           .each = 70,
                                           .select = way == 1 ? TSR_COMPENSATE_SELECT_EXACT
                                                              : TSR_COMPENSATE_SELECT_DYNAMIC,
                                           .all = way == 0 };
    struct script                  s = write_script(m->hp.vocab);
    float                         *want = run_script(engine_of(registry, m, o, &use, 0, NULL), &s);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        ranks(m, o, &use, widths[i][0], widths[i][1], &s, want, 0);
    free(want);
    residuals_free(m, c);
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
    struct tsr_model_overlay *o = wide_pack(registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    struct script             s = write_script(m->hp.vocab);
    float                    *bare = run_script(engine_of(registry, m, o, NULL, 0, NULL), &s);
    (void)state;
    for (int way = 0; way < 2; way++) {
        const struct tsr_compensation *c = residuals(m, o, way == 1 ? 16 : 4);
        struct tsr_engine_compensate   use = { .from = c,
                                               .each = 70,
                                               .select = way == 1
                                                             ? TSR_COMPENSATE_SELECT_STATIC_MEANSQ
                                                             : TSR_COMPENSATE_SELECT_DYNAMIC,
                                               .all = way == 1 };
        float *want = run_script(engine_of(registry, m, o, &use, 0, NULL), &s);
        double moved = 0, range = 0;
        for (uint64_t i = 0; i < s.logits * m->hp.vocab; i++) {
            moved = fmax(moved, fabs((double)want[i] - (double)bare[i]));
            range = fmax(range, fabs((double)want[i]));
        }
        assert_true(moved > 1e-2 * range);
        ranks(m, o, &use, 1, 3, &s, want, 0);
        ranks(m, o, &use, 2, 1, &s, want, 2e-5 * range);
        ranks(m, o, &use, 4, 1, &s, want, 2e-5 * range);
        device = vault ? "vault" : NULL;
        ranks(m, o, &use, 2, 1, &s, want, 2e-5 * range);
        device = NULL;
        free(want);
        residuals_free(m, c);
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
    struct tsr_model_overlay *o = wide_pack(registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    struct script             s = write_script(m->hp.vocab);
    float                    *bare = run_script(engine_of(registry, m, o, NULL, 0, NULL), &s);
    whole_experts = true;
    for (int way = 0; way < 3; way++) {
        const struct tsr_compensation *c = residuals(m, o, way == 1 ? 2 : 4);
        struct tsr_engine_compensate   use = { .from = c,
                                               .each = 70,
                                               .select = way == 1   ? TSR_COMPENSATE_SELECT_EXACT
                                                         : way == 2 ? TSR_COMPENSATE_SELECT_RANDOM
                                                                    : TSR_COMPENSATE_SELECT_DYNAMIC,
                                               .all = way == 1 };
        float *want = run_script(engine_of(registry, m, o, &use, 0, NULL), &s);
        assert_true(memcmp(want, bare, s.logits * m->hp.vocab * sizeof *want) != 0);
        for (int on = 0; on < (vault ? 2 : 1); on++) {
            device = on ? "vault" : NULL;
            ranks(m, o, &use, 2, 1, &s, want, 0);
            ranks(m, o, &use, 2, 3, &s, want, 0);
            if (m->hp.experts % 4 == 0)
                ranks(m, o, &use, 4, 1, &s, want, 0);
        }
        device = NULL;
        free(want);
        residuals_free(m, c);
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
    char                           folder[64];
    struct tsr_model              *m = wide_load(WIDE_INPUTS, false, folder);
    struct tsr_model_overlay      *o = wide_pack(registry, m, "use: rtn\nbits: 3\ngroup: 64\n");
    const struct tsr_compensation *c = residuals(m, o, 4);
    struct tsr_engine_compensate   use = { .from = c, .each = 37 };
    struct script                  s = write_script(m->hp.vocab);
    uint64_t                       bytes = s.logits * m->hp.vocab * sizeof(float);
    (void)state;
    for (int site = 0; site < TSR_MODEL_SITES; site++) {
        bool split = site == TSR_MODEL_SITE_O_IN || site == TSR_MODEL_SITE_DOWN_IN;
        assert_int_equal(c->site[0][site].cols, split ? 5120 : 40);
    }
    float *want = run_script(engine_of(threaded, m, o, &use, 0, NULL), &s);
    float *bare = run_script(engine_of(threaded, m, o, NULL, 0, NULL), &s);
    assert_true(memcmp(want, bare, bytes) != 0);
    for (uint32_t tp = 1; tp <= 4; tp *= 2)
        ranks(m, o, &use, tp, 1, &s, want, 0);
    /* where nothing else is compensated, a rank that adds nothing up still takes part */
    static const uint32_t down[1][TSR_MODEL_SITES] = { [0][TSR_MODEL_SITE_DOWN_IN] = 37 };
    use.k = down;
    free(want);
    want = run_script(engine_of(threaded, m, o, &use, 0, NULL), &s);
    assert_true(memcmp(want, bare, bytes) != 0);
    ranks(m, o, &use, 4, 1, &s, want, 0);
    free(bare);
    free(want);
    residuals_free(m, c);
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),      cmocka_unit_test(test_whole),
        cmocka_unit_test(test_invariance),   cmocka_unit_test(test_counts),
        cmocka_unit_test(test_ranks),        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_expert_ranks), cmocka_unit_test(test_whole_ranks),
    };
    vault = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
