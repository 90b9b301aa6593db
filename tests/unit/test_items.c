/* Each layer with a type of the KV cache and a k of error compensation of its own, by indicators of KL: against all
 * assignments of schemes, types and k to layers and all cuts, with omega computed here; one choice for all is never better;
 * another one in a list never hurts; and a list of one is the plan of that one.  What compensation takes is computed here.
 *
 * TSR_TEST_SEED chooses figures and machines. */
#include "planning_fixture.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "plan/instance/objective.h"
#include "plan/search/settings.h"

#include <math.h>

#define LAYERS  5u
#define SCHEMES 2u
#define TYPES   3u
#define PROMPT  40u
#define TOKENS  13u /* 53 positions: an int4 cache makes all of them 64 */
#define BATCH   16u
#define GAP     1e-7

static uint64_t seed = 1;

static const char *const schemes[SCHEMES] = { "rtn:bits=3,group=2", "rtn:bits=8,group=2" };
static const uint32_t    types[TYPES] = { TSR_F16, TSR_I8, TSR_Q4 };
static const char *const names[TYPES] = { "f16", "int8", "int4" };
#define KS 3u
static const uint32_t ks[KS] = { 0, 16, 32 }; /* of which 16 was not measured, but 8 and 32 were */

#define END "rtn:bits=8,group=64"

static struct {
    double kl[LAYERS][SCHEMES], kv[TYPES], share[LAYERS]; /* share: of a cache; their sum is 1 */
    bool   shares;                                        /* in the file */
    double ends;                                          /* by END */
    double kept[SCHEMES][2], kept_half;                   /* with k = 8 and 32 */
} figures;

static double draw(unsigned problem, unsigned number)
{
    return tsr_uniform(seed, problem, number);
}

static void write_figures(unsigned i)
{
    char   path[200];
    double sum = 0;
    (void)snprintf(path, sizeof path, "%s/kl.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    figures.shares = i % 2;
    for (unsigned l = 0; l < LAYERS; l++) {
        for (unsigned c = 0; c < SCHEMES; c++)
            figures.kl[l][c] = ldexp(0.05 + draw(i, l * 8 + c), c ? -10 : -4);
        figures.share[l] = figures.shares ? draw(i, 60 + l) * draw(i, 65 + l) : 1;
        sum += figures.share[l];
    }
    (void)fprintf(
        f, "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":%u,\"schemes\":[",
        LAYERS);
    for (unsigned c = 0; c < SCHEMES; c++) {
        (void)fprintf(f, "%s{\"scheme\":\"%s\",\"kl\":[", c ? "," : "", schemes[c]);
        for (unsigned l = 0; l < LAYERS; l++)
            (void)fprintf(f, "%s%.17g", l ? "," : "", figures.kl[l][c]);
        (void)fputs("]}", f);
    }
    (void)fputs("],\"kv\":[", f);
    for (unsigned t = 0; t < TYPES; t++) {
        figures.kv[t] = ldexp(0.1 + draw(i, 80 + t), t == 0 ? -16 : t == 1 ? -8 : -4);
        (void)fprintf(f, "%s{\"kv\":\"%s\",\"kl\":%.17g,\"half\":%.17g,\"context\":%u",
                      t ? "," : "", names[t], figures.kv[t], figures.kv[t] / 8, PROMPT + TOKENS);
        for (unsigned l = 0; l < LAYERS && figures.shares; l++)
            (void)fprintf(f, "%s%.17g%s", l ? "," : ",\"layers\":[", 7 * figures.share[l],
                          l + 1 < LAYERS ? "" : "]");
        (void)fputc('}', f);
    }
    figures.ends = ldexp(0.5 + draw(i, 87), -9);
    (void)fprintf(
        f,
        "],\"ends\":[{\"scheme\":\"rtn:group=64,bits=8\",\"kl\":%.17g,\"interval\":[%.17g,%.17g]}",
        figures.ends, figures.ends * 0.9, figures.ends * 1.1);
    (void)fputs("],\"compensation\":[", f);
    figures.kept_half = 0.01;
    for (unsigned c = 0; c < SCHEMES; c++) {
        figures.kept[c][0] = 0.5 + 0.4 * draw(i, 84 + c);
        figures.kept[c][1] = figures.kept[c][0] * (0.3 + 0.6 * draw(i, 86 + c));
        for (int k = 1; k >= 0; k--) /* the order does not matter */
            (void)fprintf(
                f, "%s{\"scheme\":\"%s\",\"k\":%d,\"kept\":%.17g,\"interval\":[%.17g,%.17g]}",
                c || k == 0 ? "," : "", schemes[c], k ? 32 : 8, figures.kept[c][k],
                figures.kept[c][k] - figures.kept_half, figures.kept[c][k] + figures.kept_half);
    }
    (void)fputs("]}", f);
    assert_int_equal(fclose(f), 0);
    for (unsigned l = 0; l < LAYERS; l++)
        figures.share[l] /= sum;
}

/* What k leaves of a scheme's KL: straight between what was measured. */
static double kept_of(unsigned scheme, uint32_t k)
{
    return k == 0    ? 1
           : k == 32 ? figures.kept[scheme][1]
                     : figures.kept[scheme][0] +
                           (k - 8) / 24.0 * (figures.kept[scheme][1] - figures.kept[scheme][0]);
}

static void machines(unsigned i, char text[600])
{
    with_host("odd", 800 + (unsigned)(draw(i, 90) * 700), 200, 5 + (unsigned)(draw(i, 88) * 40),
              "");
    with_host("even", 500 + (unsigned)(draw(i, 91) * 600), 100 + (unsigned)(draw(i, 92) * 900),
              5 + (unsigned)(draw(i, 89) * 40), "");
    (void)snprintf(text, 600,
                   "version: 1\nnodes:\n  - {name: a, devices: [{profile: odd}]}\n"
                   "%snetwork: {bandwidth: %u MB/s, latency: 30 us}\n",
                   i % 3 ? "  - {name: b, devices: [{profile: even}]}\n" : "",
                   1 + (unsigned)(draw(i, 93) * 100));
}

/* mask: of types, 3 bits, and of k above them. */
static struct tsr_plan_problem_options by_kl(char path[200], unsigned mask)
{
    struct tsr_plan_problem_options o = usual();
    (void)snprintf(path, 200, "%s/kl.json", folder);
    o.candidates = schemes;
    o.n_candidates = SCHEMES;
    o.indicators = path;
    o.gap = GAP;
    o.prefill_mb = 1;
    o.decode_mb = 2;
    for (unsigned t = 0; t < TYPES; t++)
        if (mask >> t & 1)
            o.kv[o.n_kv++] = types[t];
    for (unsigned k = 0; k < KS; k++)
        if (mask >> TYPES >> k & 1)
            o.k[o.n_k++] = ks[k];
    return o;
}

/* Of a limit for problem i: about what 8 bits lose, or 3 bits, with some cache. */
static double limit_of(unsigned i, unsigned k)
{
    double low = 0, high = figures.kv[2];
    for (unsigned l = 0; l < LAYERS; l++) {
        low += figures.kl[l][1];
        high += figures.kl[l][0];
    }
    return low * pow(high / low, (0.1 + k + draw(i, 99)) / 4);
}

/* ---- brute force -------------------------------------------------------------------------- */

struct tried {
    const struct tsr_plan_built *b;
    const struct tsr_plan_part  *part;
    struct tsr_solver_solution  *s;
    uint64_t                     choices;
    double                       limit, best;
};

/* All assignments of items on the stages of z->s. */
static void assign(struct tried *z)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          all = 1;
    for (unsigned l = 0; l < LAYERS; l++)
        all *= z->choices;
    for (uint64_t a = 0; a < all; a++) {
        double   w = 0, v;
        uint64_t rest = a;
        for (unsigned l = 0; l < LAYERS; l++, rest /= z->choices) {
            const struct tsr_plan_item *t = tsr_plan_built_item(z->b, rest % z->choices);
            z->s->layer_bits[l] = (uint32_t)(rest % z->choices);
            w += figures.kl[l][t->candidate] * kept_of(t->candidate, t->k);
            for (unsigned k = 0; k < TYPES; k++)
                w += t->kv == types[k] ? figures.share[l] * figures.kv[k] : 0;
        }
        if (!(w <= z->limit))
            continue;
        for (uint64_t o = 0; o < z->part->inst.in.n_options; o++) {
            z->s->option = o;
            if (tsr_plan_evaluate(&z->part->inst.in, z->s, &v, &e.err) == TSR_OK)
                z->best = fmin(z->best, v);
        }
    }
}

static void cut(struct tried *z)
{
    const struct tsr_solver_instance *in = &z->part->inst.in;
    for (uint32_t i = 0; i < in->n_kinds; i++) {
        z->s->stages = 1;
        z->s->stage_kind[0] = i;
        z->s->stage_first[0] = 0;
        z->s->stage_count[0] = LAYERS;
        assign(z);
        for (uint32_t k = 0; k < in->n_kinds && z->s->max_stages > 1; k++)
            for (unsigned at = 1; at < LAYERS && k != i && z->choices < 10; at++) {
                z->s->stages = 2;
                z->s->stage_kind[1] = k;
                z->s->stage_first[1] = z->s->stage_count[0] = at;
                z->s->stage_count[1] = LAYERS - at;
                assign(z);
            }
    }
}

/* The least objective of a plan with omega up to the limit; *items: that a layer has. */
static double brute(const struct tsr_plan_problem *p, const struct tsr_plan_setting *s,
                    uint64_t *items)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = *p;
    struct tried            z = { .limit = p->max_omega, .best = INFINITY };
    struct tsr_plan_built  *b = NULL;
    uint32_t                tp[2] = { 1, 1 };
    tsr_plan_settings_put(&q, s);
    q.max_omega = -1;
    if (tsr_plan_build(&b, &q, &(struct tsr_plan_space){ .ways = tp, .stride = 1 }, &e.err) !=
        TSR_OK)
        fail_msg("%s", e.text);
    for (uint64_t i = 0; i < b->n_parts; i++) {
        z.b = b;
        z.part = &b->parts[i];
        z.choices = b->whole.bits;
        assert_int_equal(tsr_plan_solution_create(&z.s, &z.part->inst, &e.err), TSR_OK);
        cut(&z);
        free(z.s);
    }
    *items = b->whole.bits;
    tsr_plan_built_destroy(b);
    return z.best;
}

/* ---- what is said of a plan ---------------------------------------------------------------- */

/* Bytes of the caches of layers [first, end), as the engine makes them: whole blocks as soon as a layer is int4. */
static uint64_t caches(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                       uint64_t first, uint64_t end)
{
    bool     blocks = false;
    uint64_t sum = 0;
    for (unsigned l = 0; l < LAYERS; l++)
        blocks = blocks || o->kv[l] == TSR_Q4;
    for (uint64_t l = first, n; l < end; l++, sum += n)
        assert_true(tsr_engine_kv_bytes(o->kv[l], p->shape->kv_heads, p->shape->head_dim, BATCH,
                                        blocks ? 64 : PROMPT + TOKENS, &n));
    return sum;
}

static void check_outcome(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o)
{
    double weights = 0, kv = 0, half = 0, left = 0;
    for (unsigned l = 0; l < LAYERS; l++) {
        unsigned t = 0;
        while (types[t] != o->kv[l])
            t++;
        weights += figures.kl[l][o->bits[l]];
        left += figures.kl[l][o->bits[l]] * kept_of(o->bits[l], o->k[l]);
        kv += figures.share[l] * figures.kv[t];
        half += figures.share[l] * figures.kv[t] / 8;
    }
    assert_true(fabs(o->parts.weights - weights) <= 1e-12 * weights);
    assert_true(fabs(o->parts.kv - kv) <= 1e-12 * kv);
    assert_true(fabs(o->parts.compensation - (left - weights)) <= 1e-12 * weights);
    assert_true(fabs(o->omega - left - kv) <= 1e-12 * (weights + kv));
    assert_true(isnan(o->kl_half) && half > 0); /* those of the schemes are not in the file */
    for (uint64_t i = 0; i < o->n_stages; i++)
        assert_int_equal(o->stages[i].memory.kv,
                         caches(p, o, o->stages[i].first, o->stages[i].first + o->stages[i].count));
}

/* The best plan with a list of types; INFINITY: none. kinds: how many types it has. */
static double best_of(const char *cluster, unsigned mask, double limit, double *brutal,
                      unsigned *kinds)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    char                            path[200];
    struct tsr_plan_problem_options o = by_kl(path, mask);
    struct tsr_plan_setting         list[4];
    struct setting                  s;
    struct tsr_plan_planned         a;
    double                          value = INFINITY;
    uint64_t                        items = 0, most = 0;
    uint64_t                        n_items = (uint64_t)o.n_kv * SCHEMES * (o.n_k ? o.n_k : 1);
    o.max_omega = limit;
    set_up(&s, cluster, &o, PROMPT, TOKENS, BATCH);
    uint64_t n = tsr_plan_settings_of(&s.p, list);
    /* with int4 and without it, each with and without compensation */
    assert_int_equal(n, ((mask & 4) && (mask & 7) != 4 ? 2 : 1) * (o.n_k ? o.n_k : 1));
    if (brutal) {
        *brutal = INFINITY;
        for (uint64_t i = 0; i < n; i++) {
            *brutal = fmin(*brutal, brute(&s.p, &list[i], &items));
            most = items > most ? items : most;
        }
        assert_int_equal(most, n_items);
    }
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    *kinds = 0;
    if (tsr_plan_planned_has_plan(&a)) {
        value = a.outcome.objective_ms;
        check_outcome(&s.p, &a.outcome);
        assert_true(a.outcome.omega <= limit * (1 + 1e-9));
        for (unsigned t = 0; t < TYPES; t++) {
            bool any = false;
            for (unsigned l = 0; l < LAYERS; l++)
                any = any || a.outcome.kv[l] == types[t];
            *kinds += any;
        }
        for (unsigned l = 0; l < LAYERS; l++)
            *kinds += a.outcome.k[l] ? 100 : 0; /* layers that are compensated */
    } else {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
    }
    tsr_plan_planned_free(&a);
    take_down(&s);
    return value;
}

static void brute_force(void **state)
{
    char     text[600];
    unsigned mixed = 0, plans = 0, better = 0;
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        machines(i, text);
        write_figures(i);
        for (unsigned k = 0; k < 4; k++) {
            double   limit = limit_of(i, k), value[8], brutal = NAN;
            unsigned kinds[8];
            for (unsigned mask = 1; mask < 8; mask++)
                value[mask] = best_of(text, mask, limit, mask == 7 && k == i % 4 ? &brutal : NULL,
                                      &kinds[mask]);
            if (!isnan(brutal) && isfinite(brutal) != isfinite(value[7]))
                fail_msg("problem %u, omega %g: %g ms, brute force finds %g", i, limit, value[7],
                         brutal);
            if (isfinite(brutal) && !(fabs(value[7] - brutal) <= 2 * GAP * brutal))
                fail_msg("problem %u, omega %g: %.12g ms, brute force finds %.12g", i, limit,
                         value[7], brutal);
            for (unsigned mask = 1; mask < 8; mask++)
                for (unsigned less = 1; less < mask; less++)
                    if ((less & mask) == less && !(value[mask] <= value[less] * (1 + 2 * GAP)))
                        fail_msg("problem %u, omega %g: types %u take %.12g ms, types %u %.12g", i,
                                 limit, mask, value[mask], less, value[less]);
            double one = fmin(value[1], fmin(value[2], value[4]));
            plans += (unsigned)(isfinite(value[7]) ? 1 : 0);
            mixed += kinds[7] % 100 > 1;
            better += value[7] < one * (1 - 1e-4);
        }
    }
    assert_true(plans > 0);
    if (seed == 1)
        assert_true(mixed > 4 && better > 4);
}

/* The same with k, alone and next to types. */
static void compensation(void **state)
{
    static const unsigned masks[] = { 1 | 1 << 3, 1 | 3 << 3, 1 | 5 << 3, 1 | 7 << 3, 3 | 7 << 3 };
    char                  text[600];
    unsigned              some = 0, better = 0;
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        machines(i, text);
        write_figures(i);
        for (unsigned k = 0; k < 4; k++) {
            double   limit = limit_of(i, k), value[5], none, brutal;
            unsigned kinds[5], kind;
            none = best_of(text, 1, limit, NULL, &kind);
            for (unsigned m = 0; m < 5; m++) {
                /* all on: problem 0 has one device */
                bool try = m == 3 ? k == i % 4 : m == 4 && i == 0 && k == 1;
                value[m] = best_of(text, masks[m], limit, try ? &brutal : NULL, &kinds[m]);
                if (try && isfinite(brutal) != isfinite(value[m]))
                    fail_msg("problem %u, omega %g: %g ms, brute force finds %g", i, limit,
                             value[m], brutal);
                if (try && isfinite(brutal) && !(fabs(value[m] - brutal) <= 2 * GAP * brutal))
                    fail_msg("problem %u, omega %g: %.12g ms, brute force finds %.12g", i, limit,
                             value[m], brutal);
            }
            assert_true(value[0] == none || (isinf(value[0]) && isinf(none)));
            assert_true(value[3] <= fmin(value[1], value[2]) * (1 + 2 * GAP));
            assert_true(isinf(none) || fmax(value[1], value[2]) <= none * (1 + 2 * GAP));
            assert_true(value[4] <= value[3] * (1 + 2 * GAP));
            some += kinds[3] >= 100;
            better += value[3] < none * (1 - 1e-4);
        }
    }
    if (seed == 1)
        assert_true(some > 4 && better > 4);
}

/* Bytes of residuals of a layer of the model, and those that a token reads of them: rows of input channels, whole lines of 64
 * bytes, at 4 bits; floor(k / 1024 of the channels) of an input. */
static void residuals(const struct tsr_plan_shape *s, uint32_t k, uint64_t *bytes, uint64_t *read,
                      uint64_t *scales)
{
    *bytes = *read = *scales = 0;
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        uint64_t rows = s->layer[0].lin[i].rows, cols = s->layer[0].lin[i].cols;
        uint64_t row = (rows / 2 + 63) / 64 * 64;
        assert_true(cols <= 1024);
        if (!rows || k * cols / 1024 == 0)
            continue;
        *bytes += cols * row + 2 * rows;
        *scales += 2 * rows;
        *read += k * cols / 1024 * row;
    }
}

/* On a device with a way to the host's memory reading hides behind the linears; on a CPU it comes after them, and the
 * residuals are in its memory. */
static void what_it_takes(void **state)
{
    unsigned hidden = 0, shown = 0;
    (void)state;
    write_figures(0);
    for (int cpu = 0; cpu < 2; cpu++)
        for (unsigned host = 1; host <= 10000; host *= 100) {
            struct tsr_errbuf               e = TSR_ERRBUF(e);
            char                            path[200];
            struct tsr_plan_problem_options o = by_kl(path, 1 | 7 << TYPES);
            struct setting                  s;
            struct tsr_plan_built          *b;
            uint32_t                        tp[1] = { 1 };
            with_host("one", 4096, 200, host, cpu ? "backend: cpu\n" : "");
            set_up(&s, "version: 1\nnodes:\n  - {name: a, devices: [{profile: one}]}\n", &o, PROMPT,
                   TOKENS, BATCH);
            if (tsr_plan_build(&b, &s.p, &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                               &e.err) != TSR_OK)
                fail_msg("%s", e.text);
            const struct tsr_solver_instance *in = &b->whole;
            for (uint64_t q = 0; q < in->bits; q++) {
                struct tsr_plan_item none = *tsr_plan_built_item(b, q);
                uint32_t             k = none.k, at;
                uint64_t             bytes, read, scales;
                none.k = 0;
                assert_true(tsr_plan_built_find(b, &none, &at));
                residuals(s.p.shape, k, &bytes, &read, &scales);
                double base = in->options[0]->dec_ms[at], is = in->options[0]->dec_ms[q];
                double fetch = 2 * 1e3 * (double)read / ((cpu ? 200 : host) * 1e6); /* 2 requests */
                double want = k == 0 ? base : cpu ? base + fetch : fmax(base, fetch) + 0.017 * base;
                hidden += k && !cpu && fetch < base;
                shown += k && !cpu && fetch > base;
                if (!(fabs(is - want) <= 1e-9 * want))
                    fail_msg("k = %u: %.12g ms, it takes %.12g", k, is, want);
                assert_true(in->options[0]->pre_ms[q] == in->options[0]->pre_ms[at]);
                assert_int_equal(in->layer_bytes[q] - in->layer_bytes[at],
                                 scales + (cpu ? bytes : 0));
            }
            tsr_plan_built_destroy(b);
            take_down(&s);
        }
    assert_true(hidden > 0 && shown > 0);
}

/* A list of one type is that type in the workload. */
static void one_type(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              text[600], path[200];
    (void)state;
    (void)snprintf(text, sizeof text,
                   "version: 1\nnodes:\n  - {name: a, devices: [{profile: fast}]}\n");
    write_figures(1);
    for (unsigned t = 0; t < TYPES; t++) {
        double value[2], omega[2];
        for (int listed = 0; listed < 2; listed++) {
            struct tsr_plan_problem_options o = by_kl(path, listed ? 1u << t : 0);
            struct setting                  s;
            struct tsr_plan_planned         a;
            o.max_omega = 1;
            set_up(&s, text, &o, PROMPT, TOKENS, BATCH);
            if (!listed) {
                s.p.work.kv = types[t];
                tsr_plan_problem_refresh(&s.p);
            }
            assert_int_equal(tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err), TSR_OK);
            assert_true(tsr_plan_planned_has_plan(&a));
            value[listed] = a.outcome.latency_ms;
            omega[listed] = a.outcome.omega;
            for (unsigned l = 0; l < LAYERS; l++)
                assert_int_equal(a.outcome.kv[l], types[t]);
            tsr_plan_planned_free(&a);
            take_down(&s);
        }
        assert_true(value[0] == value[1] && omega[0] == omega[1]);
    }
}

/* What the plan file says of caches. */
static void text_of_layers(void **state)
{
    uint32_t                kv[LAYERS] = { TSR_F16, TSR_F16, TSR_I8, TSR_F16, TSR_Q4 };
    struct tsr_plan_outcome o = { .layers = LAYERS, .kv = kv };
    char                    path[200];
    struct setting          s;
    (void)state;
    write_figures(0);
    struct tsr_plan_problem_options opt = by_kl(path, 1);
    set_up(&s, "version: 1\nnodes:\n  - {name: a, devices: [{profile: slow}]}\n", &opt, PROMPT,
           TOKENS, BATCH);
    char *text = tsr_plan_outcome_kv_layers(&o, s.p.shape);
    assert_string_equal(text, "2=int8,4=int4");
    free(text);
    kv[2] = kv[3] = kv[4] = TSR_I8;
    text = tsr_plan_outcome_kv_layers(&o, s.p.shape);
    assert_string_equal(text, "0-1=f16");
    free(text);
    kv[0] = kv[1] = TSR_I8;
    text = tsr_plan_outcome_kv_layers(&o, s.p.shape);
    assert_string_equal(text, "");
    free(text);
    take_down(&s);
}

/* Embedding and head packed or not: the better of the two plans, with the bytes of both matrices as they are packed. */
static void packed_ends(void **state)
{
    static const char *const lists[3][2] = { { "original" }, { END }, { END, "original" } };
    char                     text[600], path[200];
    unsigned                 packed = 0, kept = 0;
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        machines(i, text);
        write_figures(i);
        for (unsigned k = 0; k < 4; k++) {
            double value[3], limit = limit_of(i, k);
            for (unsigned m = 0; m < 3; m++) {
                struct tsr_errbuf               e = TSR_ERRBUF(e);
                struct tsr_plan_problem_options o = by_kl(path, 3);
                struct setting                  s;
                struct tsr_plan_planned         a;
                o.max_omega = limit;
                o.ends = lists[m];
                o.n_ends = m == 2 ? 2 : 1;
                set_up(&s, text, &o, PROMPT, TOKENS, BATCH);
                if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
                    fail_msg("%s", e.text);
                bool has = tsr_plan_planned_has_plan(&a);
                value[m] = has ? a.outcome.objective_ms : INFINITY;
                bool by = has && tsr_plan_problem_packs_ends(&s.p);
                assert_true(!has || m == 2 || by == (m == 1));
                if (has) {
                    const struct tsr_plan_shape *sh = s.p.shape;
                    uint64_t                     all = 0, n = sh->vocab * sh->embed_dim;
                    /* a code for each number, and an F16 scale and a zero of a byte for each 64 of them; the norm */
                    for (uint64_t st = 0; st < a.outcome.n_stages; st++)
                        all += a.outcome.stages[st].memory.ends;
                    uint64_t norm = sh->hidden * 4, plain = n * tsr_dtype_size(sh->embed.dtype);
                    if (by)
                        assert_true(all >= 2 * n + norm && all <= 2 * (n + n / 64 * 8) + norm);
                    else
                        assert_true(all == norm + plain * (a.outcome.n_stages > 1 ? 2 : 1));
                    assert_true(a.outcome.parts.ends == (by ? figures.ends : 0));
                    double left = a.outcome.omega - a.outcome.parts.weights - a.outcome.parts.kv;
                    assert_true(fabs(left - a.outcome.parts.ends) <= 1e-12);
                    assert_true(a.outcome.omega <= limit * (1 + 1e-9));
                }
                packed += m == 2 && by;
                kept += m == 2 && has && !by;
                tsr_plan_planned_free(&a);
                take_down(&s);
            }
            double best = fmin(value[0], value[1]);
            if (isfinite(best) != isfinite(value[2]) ||
                (isfinite(best) && !(fabs(value[2] - best) <= 2 * GAP * best)))
                fail_msg("problem %u, omega %g: %.12g ms of both, %.12g and %.12g of one", i, limit,
                         value[2], value[0], value[1]);
        }
    }
    if (seed == 1)
        assert_true(packed > 0 && kept > 0);
}

/* A limit below what the cache costs is a refusal with both figures, not a plan of lossless weights. */
static void below_the_cache(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              path[200], kv[40], limit[40];
    (void)state;
    write_figures(2);
    for (int under = 0; under < 2; under++) {
        struct tsr_plan_problem_options o = by_kl(path, 0);
        static const char *const        kept[] = { "original" };
        struct setting                  s;
        struct tsr_plan_planned         a;
        o.candidates = kept;
        o.n_candidates = 1;
        o.max_omega = figures.kv[0] * (under ? 0.5 : 2);
        set_up(&s, "version: 1\nnodes:\n  - {name: a, devices: [{profile: fast}]}\n", &o, PROMPT,
               TOKENS, BATCH);
        assert_int_equal(tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err), TSR_OK);
        (void)snprintf(kv, sizeof kv, "%.4g", figures.kv[0]);
        (void)snprintf(limit, sizeof limit, "%.4g", o.max_omega);
        assert_true(tsr_plan_planned_has_plan(&a) == !under);
        if (under) {
            assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
            assert_true(strstr(a.reason, kv) && strstr(a.reason, limit) && strstr(a.reason, "f16"));
        }
        tsr_plan_planned_free(&a);
        take_down(&s);
    }
}

/* ---- bad input ---------------------------------------------------------------------------- */

static void refused(const struct tsr_plan_problem_options *o, const char *about, const char *facts)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_cluster *c =
        cluster_of("version: 1\nnodes:\n  - {name: a, devices: [{profile: slow}]}\n");
    struct tsr_plan_workload w;
    struct tsr_plan_problem  p;
    assert_int_equal(tsr_plan_workload_fixed(&w, PROMPT, TOKENS, BATCH, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_problem_open(&p, registry, o, c, &w, &e.err), TSR_E_INPUT);
    if (!error_is(&e.err, about, facts))
        fail_msg("%s: not about %s, %s", e.text, about, facts);
    tsr_plan_workload_free(&w);
    tsr_plan_cluster_destroy(c);
}

static void bad_input(void **state)
{
    static const struct {
        const char *entry, *facts;
    } kept[] = {
        { "{\"k\":8,\"kept\":1}", "scheme" },
        { "{\"scheme\":\"rtn:bits=3,group=2\",\"kept\":1}", "k" },
        { "{\"scheme\":\"rtn:bits=3,group=2\",\"k\":0,\"kept\":1}", "k" },
        { "{\"scheme\":\"rtn:bits=3,group=2\",\"k\":8,\"kept\":null}", "kept 8" },
        { "{\"scheme\":\"rtn:bits=3,group=2\",\"k\":8,\"kept\":-1}", "kept 8" },
        { "{\"scheme\":\"rtn:bits=3,group=2\",\"k\":8,\"kept\":1,\"interval\":[2,1]}",
          "interval 8" },
        { "{\"scheme\":\"rtn:bits=3,group=2\",\"k\":8,\"kept\":1},"
          "{\"scheme\":\"rtn:group=2,bits=3\",\"k\":8,\"kept\":1}",
          "8" },
    };
    static const char *const        lists[] = { "[1,1,1,1]", "[1,1,1,1,null]", "[0,0,0,0,0]" };
    static const char *const        facts[] = { "int8 4 5", "layers int8", "layers int8 0" };
    char                            path[200], text[500];
    struct tsr_plan_problem_options o = by_kl(path, 7);
    (void)state;
    o.indicators = "";
    refused(&o, "", "int4 kv"); /* the prior knows nothing of it */
    for (size_t i = 0; i < 3; i++) {
        (void)
            snprintf(text, sizeof text,
                     "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":5,"
                     "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],\"kv\":"
                     "[{\"kv\":\"int8\",\"kl\":1,\"context\":99,\"layers\":%s}]}",
                     lists[i]);
        write_file("kl.json", text);
        o = by_kl(path, 2);
        o.n_candidates = 1;
        refused(&o, "kl.json", facts[i]);
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":5,"
                       "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],"
                       "\"kv\":[{\"kv\":\"f16\",\"kl\":0,\"context\":99}],\"compensation\":[%s]}",
                       kept[i].entry);
        write_file("kl.json", text);
        o = by_kl(path, 1);
        o.n_candidates = 1;
        refused(&o, "kl.json", kept[i].facts);
    }
    /* a k above all that were measured; a device without a way to the host; a prior */
    write_figures(0);
    o = by_kl(path, 1 | 1 << TYPES);
    o.k[o.n_k++] = 33;
    with_host("slow", 1024, 200, 10, "");
    refused(&o, "kl.json", "33 32 rtn-3");
    profile("slow", 1024, 200);
    o.k[1] = 32;
    refused(&o, "", "compensate host");
    o.indicators = "";
    o.n_kv = 0;
    refused(&o, "", "compensate");
    static const char *const other[] = { "original", "rtn:bits=6,group=64" };
    o = by_kl(path, 1);
    o.ends = other;
    o.n_ends = 2;
    refused(&o, "kl.json", "rtn-6 group=64");
    o.indicators = "";
    o.n_kv = 0;
    refused(&o, "rtn-6", "ends KL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force),     cmocka_unit_test(one_type),
        cmocka_unit_test(compensation),    cmocka_unit_test(what_it_takes),
        cmocka_unit_test(packed_ends),     cmocka_unit_test(text_of_layers),
        cmocka_unit_test(below_the_cache), cmocka_unit_test(bad_input),
    };
    const char *s = getenv("TSR_TEST_SEED");
    if (s)
        seed = strtoull(s, NULL, 10);
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
