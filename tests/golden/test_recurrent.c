/* The gated delta rule: against the equations in double precision, cut into chunks in any way, and in an engine
 * whose slots are used again. */
#include "golden.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "engine/delta.h"
#include "engine/delta_math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 37
#define EPS    1e-6

static struct tsr_pool     *pool;
static struct tsr_registry *registry;

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(3, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

/* ---- functions ------------------------------------------------------------------------------ */

static void near(double got, double want, double relative, const char *what, double x)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%s of %.17g is %.17g, not %.17g", what, x, got, want);
}

static void functions_are_near(void **state)
{
    (void)state;
    for (int i = -8600; i <= 8600; i++) {
        double x = (double)((float)i * 0.01f);
        near((double)tsr_delta_exp((float)x), exp(x), 3e-7, "exp", x);
        near((double)tsr_delta_sigmoid((float)x), 1 / (1 + exp(-x)), 5e-7, "sigmoid", x);
        near(tsr_delta_exp_wide(x), exp(x), 1e-15, "exp in double", x);
        near(tsr_delta_softplus(x), x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)), 4e-15, "softplus",
             x);
    }
    static const float odd[] = { -INFINITY, -1e30f, -200, -0.0f, 0, 200, 1e30f, INFINITY };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_true(isfinite(tsr_delta_exp(odd[i])));
        float s = tsr_delta_sigmoid(odd[i]);
        assert_true(s >= 0 && s <= 1);
    }
    assert_true(isnan(tsr_delta_exp(NAN)) && isnan(tsr_delta_sigmoid(NAN)));
    assert_true(isnan(tsr_delta_exp_wide((double)NAN)) && isnan(tsr_delta_softplus((double)NAN)));
}

/* ---- a layer ---------------------------------------------------------------------------------- */

/* Inputs of a sequence, and a layer's numbers. */
struct layer {
    struct tsr_model_delta   d;
    uint64_t                 keys, values, channels;
    float                   *conv, *rate, *step, *norm, *decay;
    float                   *q, *k, *v, *z, *b, *a; /* [TOKENS, ...] */
    struct tsr_delta_weights w;
};

static float *drawn(uint64_t n, double spread, uint64_t seed)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = (float)(spread * tsr_normal(3, seed, i));
    return v;
}

static struct layer layer_new(struct tsr_model_delta d, uint64_t seed)
{
    struct layer l = { .d = d,
                       .keys = (uint64_t)d.key_heads * d.key_dim,
                       .values = (uint64_t)d.value_heads * d.value_dim,
                       .channels = tsr_delta_channels(&d) };
    l.conv = drawn(l.channels * d.kernel, 0.5, seed);
    l.decay = drawn(d.value_heads, 1, seed + 1);
    l.step = drawn(d.value_heads, 1, seed + 2);
    l.norm = drawn(d.value_dim, 1, seed + 3);
    l.q = drawn(TOKENS * l.keys, 1, seed + 4);
    l.k = drawn(TOKENS * l.keys, 1, seed + 5);
    l.v = drawn(TOKENS * l.values, 1, seed + 6);
    l.z = drawn(TOKENS * l.values, 1, seed + 7);
    l.b = drawn(TOKENS * d.value_heads, 1, seed + 8);
    l.a = drawn(TOKENS * d.value_heads, 1, seed + 9);
    l.rate = malloc(d.value_heads * sizeof *l.rate);
    assert_non_null(l.rate);
    for (uint32_t h = 0; h < d.value_heads; h++)
        l.rate[h] = (float)tsr_delta_exp_wide((double)l.decay[h]);
    l.w = (struct tsr_delta_weights){ l.conv, l.rate, l.step, l.norm };
    return l;
}

static void layer_free(struct layer *l)
{
    float *all[] = { l->conv, l->rate, l->step, l->norm, l->decay, l->q,
                     l->k,    l->v,    l->z,    l->b,    l->a };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Channel c of token t before the convolution; zero before the first. */
static double before(const struct layer *l, int64_t t, uint64_t c)
{
    if (t < 0)
        return 0;
    if (c < l->keys)
        return (double)l->q[(uint64_t)t * l->keys + c];
    if (c < 2 * l->keys)
        return (double)l->k[(uint64_t)t * l->keys + c - l->keys];
    return (double)l->v[(uint64_t)t * l->values + c - 2 * l->keys];
}

static double after(const struct layer *l, uint64_t t, uint64_t c)
{
    double sum = 0;
    for (uint64_t s = 0; s < l->d.kernel; s++)
        sum += (double)l->conv[s * l->channels + c] *
               before(l, (int64_t)t - (int64_t)l->d.kernel + 1 + (int64_t)s, c);
    return silu(sum);
}

/* One value head over all tokens, by the equations; out [TOKENS, values]. */
static void head_by_equations(const struct layer *l, uint32_t h, double *out)
{
    uint64_t dk = l->d.key_dim, dv = l->d.value_dim, heads = l->d.value_heads;
    uint64_t key = h / (heads / l->d.key_heads) * dk;
    double  *s = calloc(dk * dv, sizeof *s), *q = calloc(dk, sizeof *q), *k = calloc(dk, sizeof *k);
    assert_true(s && q && k);
    for (uint64_t t = 0; t < TOKENS; t++) {
        double qq = 1e-6, kk = 1e-6, square = 0;
        for (uint64_t i = 0; i < dk; i++) {
            q[i] = after(l, t, key + i);
            k[i] = after(l, t, l->keys + key + i);
            qq += q[i] * q[i];
            kk += k[i] * k[i];
        }
        double beta = 1 / (1 + exp(-(double)l->b[t * heads + h]));
        double keep = exp(-exp((double)l->decay[h]) *
                          log1p(exp((double)l->a[t * heads + h] + (double)l->step[h])));
        for (uint64_t c = 0; c < dv; c++) {
            double has = 0, o = 0, v = after(l, t, 2 * l->keys + h * dv + c);
            for (uint64_t i = 0; i < dk; i++)
                has += keep * s[i * dv + c] * k[i] / sqrt(kk);
            for (uint64_t i = 0; i < dk; i++) {
                s[i * dv + c] = keep * s[i * dv + c] + k[i] / sqrt(kk) * beta * (v - has);
                o += s[i * dv + c] * q[i] / sqrt(qq) / sqrt((double)dk);
            }
            out[t * l->values + h * dv + c] = o;
            square += o * o;
        }
        for (uint64_t c = 0; c < dv; c++)
            out[t * l->values + h * dv + c] *= (double)l->norm[c] /
                                               sqrt(square / (double)dv + EPS) *
                                               silu((double)l->z[t * l->values + h * dv + c]);
    }
    free(s);
    free(q);
    free(k);
}

/* Two sequences of the same tokens, the second one token behind, whose rows lie in turns; cut after the tokens that
 * `cuts` names. */
static float *by_runs(const struct layer *l, const uint64_t *cuts, uint64_t n_cuts)
{
    uint64_t floats = tsr_delta_state_floats(&l->d), first = 0;
    float   *state = calloc(2 * floats, sizeof *state),
          *all = calloc(TOKENS * l->values, sizeof *all);
    struct tsr_delta_rows r;
    float **rows[] = { &r.q, &r.k, &r.v, &r.z, &r.b, &r.a, &r.mixed, &r.beta, &r.keep, &r.out };
    const uint64_t heads = l->d.value_heads,
                   cols[] = { l->keys, l->keys,     l->values, l->values, heads,
                              heads,   l->channels, heads,     heads,     l->values };
    const float *const from[] = { l->q, l->k, l->v, l->z, l->b, l->a };
    uint32_t           order[2 * TOKENS];
    assert_true(state && all);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_non_null(*rows[i] = malloc(2 * TOKENS * cols[i] * sizeof(float)));
    for (uint64_t c = 0; c <= n_cuts; c++) {
        uint64_t end = c < n_cuts ? cuts[c] : TOKENS, n = end - first;
        for (uint64_t t = 0; t < n; t++)
            for (uint64_t s = 0; s < 2; s++) {
                order[s * n + t] = (uint32_t)(2 * t + s);
                for (size_t i = 0; i < sizeof from / sizeof *from; i++)
                    memcpy(*rows[i] + (2 * t + s) * cols[i], from[i] + (first + t) * cols[i],
                           cols[i] * sizeof(float));
            }
        struct tsr_delta_run runs[2] = { { 0, n, state }, { n, n, state + floats } };
        assert_int_equal(tsr_delta_run_rows(pool, &l->d, (float)EPS, &l->w, &r, order, 2 * n, runs,
                                            2),
                         TSR_OK);
        for (uint64_t t = 0; t < n; t++) {
            memcpy(all + (first + t) * l->values, r.out + 2 * t * l->values,
                   l->values * sizeof *all);
            assert_memory_equal(r.out + 2 * t * l->values, r.out + (2 * t + 1) * l->values,
                                l->values * sizeof *all);
        }
        first = end;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        free(*rows[i]);
    free(state);
    return all;
}

static void as_the_equations(void **state)
{
    static const struct tsr_model_delta shapes[] = {
        { 1, 1, 1, 1, 1 },   { 2, 4, 16, 24, 4 },   { 1, 3, 7, 33, 2 },
        { 3, 3, 40, 16, 9 }, { 2, 6, 128, 128, 4 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct layer l = layer_new(shapes[i], 100 * i);
        double      *want = calloc(TOKENS * l.values, sizeof *want), most = 0, off = 0;
        float       *got = by_runs(&l, NULL, 0);
        assert_non_null(want);
        for (uint32_t h = 0; h < l.d.value_heads; h++)
            head_by_equations(&l, h, want);
        for (uint64_t k = 0; k < TOKENS * l.values; k++) {
            most = fmax(most, fabs(want[k]));
            off = fmax(off, fabs(want[k] - (double)got[k]));
        }
        print_message("shape %zu: %.2g of the largest\n", i, off / most);
        if (!(off <= 2e-5 * most))
            fail_msg("shape %zu: off by %g, the largest is %g", i, off, most);
        free(want);
        free(got);
        layer_free(&l);
    }
}

static void cuts_change_no_bit(void **state)
{
    static const uint64_t one[] = { 1 }, odd[] = { 2, 3, 10, 36 }, even[] = { 8, 16, 24, 32 };
    uint64_t              every[TOKENS - 1];
    (void)state;
    for (uint64_t i = 0; i < TOKENS - 1; i++)
        every[i] = i + 1;
    static const struct tsr_model_delta shapes[] = { { 2, 4, 16, 24, 4 }, { 1, 3, 7, 33, 9 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct layer l = layer_new(shapes[i], 7 * i);
        float       *want = by_runs(&l, NULL, 0);
        const struct {
            const uint64_t *cuts;
            uint64_t        n;
        } ways[] = { { one, 1 }, { odd, 4 }, { even, 4 }, { every, TOKENS - 1 } };
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            float *got = by_runs(&l, ways[k].cuts, ways[k].n);
            if (memcmp(want, got, TOKENS * l.values * sizeof *got) != 0)
                fail_msg("shape %zu, way %zu: other bits", i, k);
            free(got);
        }
        free(want);
        layer_free(&l);
    }
}

/* ---- an engine -------------------------------------------------------------------------------- */

/* A slot that another sequence has used gives the bytes of a new engine, whole and token by token. */
static void a_slot_is_used_again(void **state)
{
    struct golden g;
    (void)state;
    golden_load(&g, "qwen3_5");
    const struct golden_case *c = &g.cases[2], *other = &g.cases[3];
    uint64_t                  bytes = c->n_prompt * g.model->hp.vocab * sizeof(float);
    for (uint64_t chunk = 0; chunk <= 3; chunk += 3) {
        struct tsr_engine_options opt = { .on.backend = "cpu", .slots = 2, .chunk = chunk };
        struct tsr_engine        *fresh = golden_engine(registry, g.model, NULL, opt);
        struct tsr_engine        *used = golden_engine(registry, g.model, NULL, opt);
        float                    *want = golden_forward(fresh, c->prompt, c->n_prompt, false);
        for (int step = 0; step < 2; step++) {
            free(golden_forward(used, other->prompt, other->n_prompt, false));
            tsr_engine_reset(used, 0);
            float *got = golden_forward(used, c->prompt, c->n_prompt, step);
            assert_memory_equal(want, got, bytes);
            free(got);
            tsr_engine_reset(used, 0);
        }
        free(want);
        tsr_engine_destroy(fresh);
        tsr_engine_destroy(used);
    }
    golden_free(&g);
}

static tsr_status stop_at_last(void *ctx, uint64_t layer, enum tsr_site site, const float *x,
                               uint64_t n, uint64_t cols, struct tsr_err *err)
{
    (void)site;
    (void)x;
    (void)n;
    (void)cols;
    return layer == *(uint64_t *)ctx ? tsr_fail(err, TSR_E_INPUT, "enough") : TSR_OK;
}

/* After an error some layers have taken the tokens and some have not: going on without a reset is an error, too. */
static void a_state_left_behind_is_seen(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct golden     g;
    (void)state;
    golden_load(&g, "qwen3_5");
    const struct golden_case *c = &g.cases[1];
    uint64_t                  vocab = g.model->hp.vocab, last = 1;
    struct tsr_engine_options opt = { .on.backend = "cpu", .slots = 1 };
    struct tsr_engine        *e = golden_engine(registry, g.model, NULL, opt);
    struct tsr_engine_token   t = { .id = c->prompt[0], .logits = true };
    float                    *logits = malloc(vocab * sizeof *logits);
    assert_non_null(logits);
    tsr_engine_set_tap(e, stop_at_last, &last);
    assert_int_equal(tsr_engine_forward(e, &t, 1, logits, &err.err), TSR_E_INPUT);
    tsr_engine_set_tap(e, NULL, NULL);
    assert_int_equal(tsr_engine_forward(e, &t, 1, logits, &err.err), TSR_E_INVAL);
    assert_true(has_facts(err.text, "sequence#0 position#1 0#tokens"));
    tsr_engine_reset(e, 0);
    float *whole = golden_forward(e, c->prompt, c->n_prompt, false);
    golden_compare("after an error", c, whole, vocab, 5e-5);
    free(whole);
    free(logits);
    tsr_engine_destroy(e);
    golden_free(&g);
}

/* States count as memory of the cache, and layers with one have no cache. */
static void states_are_counted(void **state)
{
    struct golden g;
    uint64_t      weights, cache;
    (void)state;
    golden_load(&g, "qwen3_5");
    const struct tsr_model_hparams *hp = &g.model->hp;
    struct tsr_engine_options       opt = { .on.backend = "cpu", .slots = 3, .context = 50 };
    struct tsr_engine              *e = golden_engine(registry, g.model, NULL, opt);
    tsr_engine_memory(e, &weights, &cache);
    uint64_t kv = 2 * 3 * 50 * (uint64_t)hp->kv_heads * hp->head_dim;
    assert_int_equal(cache, 2 * (kv + 3 * tsr_delta_state_floats(&hp->delta)) * sizeof(float));
    tsr_engine_destroy(e);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_near),          cmocka_unit_test(as_the_equations),
        cmocka_unit_test(cuts_change_no_bit),          cmocka_unit_test(a_slot_is_used_again),
        cmocka_unit_test(a_state_left_behind_is_seen), cmocka_unit_test(states_are_counted),
    };
    return cmocka_run_group_tests_name("recurrent", tests, set_up, tear_down);
}
