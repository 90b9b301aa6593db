/* planning_groups.h - files of routing and of indicators for models with experts, and every expert of a mix of groups apart: its
 * bytes, what it reads, its part of omega. */
#ifndef TSR_PLANNING_GROUPS_H
#define TSR_PLANNING_GROUPS_H

#include "checkpoint/safetensors/safetensors.h"
#include "planning_compare.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS 64

/* How often each expert is taken: tokens that go through the experts in an order of the layer's own and take each with
 * half a chance, until they have `used`. */
static inline void write_routing(const struct tsr_plan_shape *s, uint32_t draw)
{
    for (uint64_t l = 0; l < s->layers; l++) {
        struct tsr_st_out *o;
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        char               path[200], key[64], text[24];
        uint32_t           count[16] = { 0 };
        if (!s->layer[s->layer_class[l]].router.rows)
            continue;
        assert_true(s->experts <= 16);
        for (uint32_t t = 0; t < TOKENS; t++) {
            bool     has[16] = { false };
            uint32_t n = 0;
            for (uint32_t k = 0; n < s->experts_used; k++) {
                uint32_t r[4], at = (k * 5 + (uint32_t)l) % s->experts;
                tsr_philox(r, t, k, draw);
                if (k >= s->experts ? has[at] : r[0] & 1)
                    continue;
                if (has[at])
                    continue;
                has[at] = true;
                count[at]++;
                n++;
            }
        }
        (void)snprintf(path, sizeof path, "%s/routing/layer-%05llu.safetensors", folder,
                       (unsigned long long)l);
        (void)unlink(path);
        assert_int_equal(tsr_safetensors_create(&o, path, &e.err), TSR_OK);
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)l);
        assert_int_equal(tsr_safetensors_metadata(o, "format", "tessera.calibration/1", &e.err),
                         TSR_OK);
        assert_int_equal(tsr_safetensors_metadata(o, "layer", text, &e.err), TSR_OK);
        assert_int_equal(tsr_safetensors_metadata(o, "sequences", "8", &e.err), TSR_OK);
        assert_int_equal(tsr_safetensors_metadata(o, "seqlen", "8", &e.err), TSR_OK);
        for (uint32_t i = 0; i < s->experts; i++) {
            (void)snprintf(key, sizeof key, "experts.%u.ffn_in.%s", i,
                           count[i] ? "tokens" : "borrowed");
            (void)snprintf(text, sizeof text, "%u", count[i] ? count[i] : 8);
            assert_int_equal(tsr_safetensors_metadata(o, key, text, &e.err), TSR_OK);
        }
        assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_OK);
        if (tsr_safetensors_commit(o, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
}

/* A file of indicators: what layers and their experts suffer at 3, 4 and 8 bits. */
#define MOST_LAYERS 8
static struct {
    bool   given;
    double used[MOST_LAYERS][3], all[MOST_LAYERS][3], expert[MOST_LAYERS][16][3];
} suffer;

static inline uint32_t width_at(uint32_t bits)
{
    return bits == 3 ? 0 : bits == 4 ? 1 : 2;
}

static inline void put_row(FILE *f, const double *v)
{
    (void)fprintf(f, "[%.17g,%.17g,%.17g,0]", v[0], v[1], v[2]);
}

/* other: the table that is used has no experts, those of `hessian` divide it. */
static inline void write_indicators(const struct tsr_plan_shape *s, uint32_t draw, bool other)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/ind.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(s->layers <= MOST_LAYERS && s->experts <= 16);
    for (uint64_t l = 0; l < s->layers; l++)
        for (int b = 0; b < 3; b++) {
            double   falls = ldexp(1, b == 2 ? -10 : -2 * b);
            uint32_t r[4];
            tsr_philox(r, l, 17, draw);
            suffer.all[l][b] = falls * (1 + r[0] % 100);
            for (uint32_t e = 0; e < s->experts; e++) {
                tsr_philox(r, l * 16 + e, 18 + (uint32_t)b, draw); /* they do not fall alike */
                suffer.expert[l][e][b] = falls * (r[0] % 7 == 0 ? 0 : r[0] % 1000) / 100;
                suffer.all[l][b] += suffer.expert[l][e][b];
            }
            suffer.used[l][b] = other ? falls * (3 + (double)l) : suffer.all[l][b];
        }
    (void)fprintf(f,
                  "{\"format\":\"tessera.indicators/1\",\"model\":\"x\",\"layers\":%llu,"
                  "\"bits\":[3,4,8,16],\"tables\":[",
                  (unsigned long long)s->layers);
    for (int table = other ? 0 : 1; table < 2; table++) {
        (void)fprintf(f, "{\"name\":\"%s\",\"omega\":[", table ? "hessian" : "measured");
        for (uint64_t l = 0; l < s->layers; l++) {
            (void)fputs(l ? "," : "", f);
            put_row(f, table ? suffer.all[l] : suffer.used[l]);
        }
        (void)fprintf(f, "]%s", table ? ",\"experts\":[" : "},");
        for (uint64_t l = 0; table && l < s->layers; l++) {
            bool has = s->layer[s->layer_class[l]].router.rows;
            (void)fprintf(f, "%s%s", l ? "," : "", has ? "[" : "null");
            for (uint32_t e = 0; has && e < s->experts; e++) {
                (void)fputs(e ? "," : "", f);
                put_row(f, suffer.expert[l][e]);
            }
            (void)fputs(has ? "]" : "", f);
        }
    }
    (void)fputs("]}]}", f);
    assert_int_equal(fclose(f), 0);
    suffer.given = true;
}

/* The measured omega of a mix: what is not of experts at the first group's bits, and each expert at its own. */
static inline double measured(const struct tsr_plan_shape *s, const struct tsr_plan_candidate *mix,
                              uint64_t l)
{
    uint32_t b = width_at(mix->of[0]->bits);
    double   rest = suffer.all[l][b], sum;
    for (uint32_t e = 0; e < s->experts; e++)
        rest -= suffer.expert[l][e][b];
    sum = suffer.used[l][b] * rest / suffer.all[l][b];
    for (uint32_t e = 0; e < s->experts; e++) {
        b = width_at(
            tsr_plan_candidate_part(mix, TSR_MODEL_UP, s->group_of[l * s->experts + e])->bits);
        sum += suffer.used[l][b] * suffer.expert[l][e][b] / suffer.all[l][b];
    }
    return sum;
}

/* Every expert apart: bytes, what it reads, and its part of omega; the groups' sums are these. */
static inline void check_mixes(const struct tsr_plan_problem *p, const struct tsr_plan_mesh *m)
{
    const struct tsr_plan_shape *s = p->shape;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    for (uint64_t c = 0; c < p->candidates.n; c++)
        for (uint64_t l = 0; l < s->layers; l++) {
            const struct tsr_plan_candidate   *mix = &p->candidates.v[c], *hot;
            uint64_t                           cls = s->layer_class[l], is, kv, want, n[2];
            const struct tsr_plan_shape_layer *of = &s->layer[cls];
            struct tsr_format                  f;
            double all = 0, omega = 0, had = p->quality.omega[l * p->candidates.n + c];
            if (mix->n_parts <= TSR_PLAN_MIXED || !of->router.rows)
                continue;
            hot = mix->of[0];
            assert_int_equal(tsr_plan_memory_layer(&p->memory, m, cls, hot, &want, &kv, &e.err),
                             TSR_OK);
            assert_int_equal(tsr_plan_memory_layer(&p->memory, m, cls, mix, &is, &kv, &e.err),
                             TSR_OK);
            for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
                double each = (double)of->lin[i].rows * (double)of->lin[i].cols;
                bool   expert = tsr_plan_shape_is_expert(of, i);
                if (of->lin[i].rows == 0)
                    continue;
                assert_int_equal(tsr_plan_candidate_matrix(hot, &of->lin[i], &f, &n[0], &e.err),
                                 TSR_OK);
                for (uint64_t x = 0; x < (expert ? s->experts : 1); x++) {
                    const struct tsr_plan_candidate *part =
                        tsr_plan_candidate_part(mix, i,
                                                expert ? s->group_of[l * s->experts + x] : 0);
                    double share = expert ? s->routing[l * s->experts + x] / s->experts_used *
                                                (double)s->experts
                                          : 1;
                    assert_int_equal(tsr_plan_candidate_matrix(part, &of->lin[i], &f, &n[1],
                                                               &e.err),
                                     TSR_OK);
                    want += n[1] - n[0];
                    all += each;
                    omega +=
                        each * share *
                        p->quality.omega[l * p->candidates.n + (uint64_t)(part - p->candidates.v)];
                }
            }
            assert_int_equal(is, want);
            if (suffer.given)
                assert_true(fabs(measured(s, mix, l) - had) <= 1e-12 * had);
            else
                assert_true(fabs(omega / all - had) <= 1e-12 * had);
        }
}

/* Experts of earlier groups are taken at least as often, or suffer as much, and groups are as even as can be. */
static inline void check_groups(const struct tsr_plan_shape *s)
{
    for (uint64_t l = 0; l < s->layers; l++) {
        uint64_t n[TSR_PLAN_GROUPS] = { 0 };
        if (!s->layer[s->layer_class[l]].router.rows)
            continue;
        for (uint64_t a = 0; a < s->experts; a++) {
            uint8_t g = s->group_of[l * s->experts + a];
            n[g]++;
            for (uint64_t b = 0; b < s->experts; b++)
                if (s->group_of[l * s->experts + b] > g && suffer.given)
                    assert_true(suffer.expert[l][a][0] >= suffer.expert[l][b][0]);
                else if (s->group_of[l * s->experts + b] > g)
                    assert_true(s->routing[l * s->experts + a] >= s->routing[l * s->experts + b]);
        }
        for (uint32_t g = 0; g < s->groups; g++)
            assert_true(n[g] == s->experts / s->groups || n[g] == s->experts / s->groups + 1);
        assert_memory_equal(n, s->layer[s->layer_class[l]].group, sizeof n);
    }
}

#endif
