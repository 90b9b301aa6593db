/* Candidates whose linears differ: mixes of a plan file, and of groups of experts. */
#include "plan/cost/candidate_internal.h"

#include <string.h>

const struct tsr_plan_candidate *tsr_plan_candidate_part(const struct tsr_plan_candidate *c,
                                                         int linear, uint32_t group)
{
    enum tsr_linear_id kind = tsr_model_linear_kind((enum tsr_linear_id)linear);
    if (!c || !c->mixed)
        return c;
    uint32_t further = TSR_PLAN_MIXED + (group - 1) * TSR_EXPERT_LINEARS; /* the group's gate */
    if (group > 0 && kind >= TSR_MODEL_GATE && kind <= TSR_MODEL_DOWN && further < c->n_parts)
        return c->of[further + (uint32_t)(kind - TSR_MODEL_GATE)];
    for (int i = 0; i < TSR_PLAN_MIXED; i++)
        if (tsr_plan_mixed(i) == kind)
            return c->of[i];
    return c;
}

const struct tsr_plan_candidate *tsr_plan_candidate_nth(const struct tsr_plan_candidate *c,
                                                        uint32_t                         k)
{
    if (!c->mixed)
        return k == 0 ? c : NULL;
    for (uint32_t i = 0; i < k && k < c->n_parts; i++)
        if (c->of[i] == c->of[k])
            return NULL;
    return k < c->n_parts ? c->of[k] : NULL;
}

double tsr_plan_candidate_share(const struct tsr_plan_candidate *c,
                                const struct tsr_plan_candidate *part,
                                const struct tsr_plan_shape *s, uint64_t layer, const double *parts)
{
    const struct tsr_plan_shape_layer *l = &s->layer[s->layer_class[layer]];
    uint32_t                           groups = tsr_plan_shape_groups(s);
    double                             weights[2] = { 0 }, sum[2] = { 0 }; /* others, experts */
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        double all = (double)l->lin[i].rows * (double)l->lin[i].cols * (double)l->lin[i].count;
        bool   expert = tsr_plan_shape_is_expert(l, i);
        weights[expert] += all;
        for (uint32_t g = 0; g < (expert ? groups : 1); g++) {
            double share = !expert      ? 1
                           : parts      ? parts[g]
                           : groups > 1 ? tsr_plan_shape_layer_taken(s, layer, g)
                                        : 1;
            if (tsr_plan_candidate_part(c, i, g) == part)
                sum[expert] += all * share;
        }
    }
    if (!parts)
        return (sum[0] + sum[1]) / (weights[0] + weights[1]);
    return (weights[0] > 0 ? parts[groups] * sum[0] / weights[0] : 0) +
           (weights[1] > 0 ? sum[1] / weights[1] : 0);
}

/* The bits and groups of a mix whose parts are known. */
static void measure(struct tsr_plan_candidate *c, const struct tsr_plan_shape *s, uint64_t at)
{
    const struct tsr_plan_shape_layer *l = &s->layer[s->layer_class[s->layers - 1]];
    double                             bits = 0, stored = 0, all = 0;
    c->mixed = true;
    c->group = 1;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint64_t g = c->of[i]->group;
        c->group = g == 0 || c->group == 0 ? 0 : g > c->group ? g : c->group;
    }
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        for (uint32_t g = 0; g < tsr_plan_shape_groups(s); g++) {
            const struct tsr_plan_candidate *part = tsr_plan_candidate_part(c, i, g);
            double                           n = (double)l->lin[i].rows * (double)l->lin[i].cols *
                       (double)tsr_plan_shape_matrices(s, l, i, g);
            bits += n > 0 ? part->bits * n : 0;
            stored += n > 0 ? part->stored_bits * n : 0;
            all += n;
        }
    c->bits = (uint32_t)(bits / all + 0.5);
    c->stored_bits = (uint32_t)(stored / all + 0.5);
    (void)snprintf(c->name, sizeof c->name, "mix-%llu", (unsigned long long)at);
    (void)snprintf(c->scheme, sizeof c->scheme, "mix");
}

tsr_status tsr_plan_candidate_open_mix(struct tsr_plan_candidates *list, uint64_t at,
                                       const char *const *texts, const struct tsr_plan_shape *s,
                                       struct tsr_err *err)
{
    struct tsr_plan_candidate *c = &list->v[at];
    const char                *p = texts[at] + strlen(TSR_CANDIDATE_MIX);
    for (; *p && c->n_parts < TSR_PLAN_PARTS; c->n_parts++) {
        size_t n = strcspn(p, "|");
        for (uint64_t k = 0; k < at && !c->of[c->n_parts]; k++)
            if (strlen(texts[k]) == n && memcmp(texts[k], p, n) == 0 && !list->v[k].mixed)
                c->of[c->n_parts] = &list->v[k];
        if (!c->of[c->n_parts])
            return tsr_fail(err, TSR_E_INPUT, "candidate '%.100s': '%.*s' is not in front of it",
                            texts[at], (int)(n < 100 ? n : 100), p);
        p += n + (p[n] == '|');
    }
    if (*p || c->n_parts < TSR_PLAN_MIXED || (c->n_parts - TSR_PLAN_MIXED) % TSR_EXPERT_LINEARS)
        return tsr_fail(err, TSR_E_INPUT, "candidate '%.100s': %u parts are not those of a layer",
                        texts[at], c->n_parts);
    measure(c, s, at);
    return TSR_OK;
}

/* ---- groups of experts ------------------------------------------------------------------- */

/* "gptq-8/4", and a part's whole name where its quantizer is another. */
static void name_groups(struct tsr_plan_candidate *c, const struct tsr_plan_candidate *const *of,
                        uint32_t groups)
{
    char   name[sizeof c->name];
    size_t at = (size_t)snprintf(name, sizeof name, "%s", of[0]->name);
    for (uint32_t g = 1; g < groups && at < sizeof name; g++)
        at += (size_t)(strcmp(of[g]->scheme, of[0]->scheme) == 0 && of[g]->q.self
                           ? snprintf(name + at, sizeof name - at, "/%u", of[g]->bits)
                           : snprintf(name + at, sizeof name - at, "/%s", of[g]->name));
    memcpy(c->name, name, sizeof name);
}

/* One mix more: of[g] for group g. */
static void add_groups(struct tsr_plan_candidates *c, const struct tsr_plan_shape *s,
                       const struct tsr_plan_candidate *const *of)
{
    uint32_t                   groups = tsr_plan_shape_groups(s);
    struct tsr_plan_candidate *mix = &c->v[c->n];
    mix->n_parts = TSR_PLAN_MIXED + (groups - 1) * TSR_EXPERT_LINEARS;
    for (uint32_t i = 0; i < mix->n_parts; i++)
        mix->of[i] = of[i < TSR_PLAN_MIXED ? 0 : 1 + (i - TSR_PLAN_MIXED) / TSR_EXPERT_LINEARS];
    measure(mix, s, c->n);
    name_groups(mix, of, groups);
    for (uint64_t i = 0; i < c->n; i++)
        if (strcmp(c->v[i].name, mix->name) == 0)
            (void)snprintf(mix->name, sizeof mix->name, "mix-%llu", (unsigned long long)c->n);
    c->n++;
}

tsr_status tsr_plan_candidates_groups(struct tsr_plan_candidates *c, const struct tsr_plan_shape *s,
                                      struct tsr_err *err)
{
    uint32_t groups = tsr_plan_shape_groups(s);
    uint64_t n = c->n, all = 1, mixes = n;
    for (uint32_t g = 0; g < groups; g++)
        all *= n; /* at most 64^4 */
    for (int add = 0; add < 2; add++) {
        for (uint64_t pick = 0; pick < all; pick++) {
            const struct tsr_plan_candidate *of[TSR_PLAN_GROUPS];
            uint64_t                         rest = pick;
            bool                             falls = true, same = true;
            for (uint32_t g = 0; g < groups; g++, rest /= n) {
                of[g] = &c->v[rest % n];
                falls = falls && !of[g]->mixed && (g == 0 || of[g]->bits <= of[g - 1]->bits);
                same = same && of[g] == of[0];
            }
            if (!falls || same)
                continue;
            if (add)
                add_groups(c, s, of);
            else
                mixes++;
        }
        if (mixes > TSR_PLAN_CANDIDATES)
            return tsr_fail(err, TSR_E_INPUT,
                            "expert_groups: %u groups make %llu candidates of %llu; at most %d are "
                            "possible: choose from fewer bits",
                            groups, (unsigned long long)mixes, (unsigned long long)n,
                            TSR_PLAN_CANDIDATES);
    }
    return TSR_OK;
}

tsr_status tsr_plan_candidate_splits(const struct tsr_plan_candidate *c,
                                     const struct tsr_plan_shape *s, uint32_t tp, bool whole,
                                     struct tsr_err *err)
{
    bool grouped = c->n_parts > TSR_PLAN_MIXED || (*s->packed && tsr_plan_shape_groups(s) > 1);
    if (tp > 1 && whole && grouped)
        return tsr_fail(err, TSR_E_CONFIG,
                        "devices that have some experts whole would have different numbers of "
                        "each group; use experts: rows");
    return tsr_plan_shape_splits(s, tp, whole, c->group, err);
}
