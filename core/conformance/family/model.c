/* The golden's model: bound by the family, long enough a case for its windows, and its logits. */
#include "conformance/family/family.h"

#include "engine/engine.h"
#include "model/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* TSR_OK, or why the family does not fit the model. */
static tsr_status load(struct tsr_conformance_case *c, const struct tsr_family_golden *g,
                       bool headers_only, struct tsr_model **m, struct tsr_err *err)
{
    const struct tsr_model_family *f = tsr_family_under_check(c), *is;
    TSR_TRY(tsr_model_load(m, g->model, headers_only, err));
    is = tsr_model_config(*m).family;
    if (is == f)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: is a model of the family %s, because its config.json names none of the "
                    "architectures of this file",
                    g->model, is->name);
}

void tsr_family_rule_binds(struct tsr_conformance_case *c)
{
    struct tsr_family_golden g;
    struct tsr_model        *m = NULL;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    tsr_family_golden_need(c, &g);
    if (load(c, &g, false, &m, &e.err) != TSR_OK)
        tsr_conformance_rule_fail(c, "%s", e.text);
}

static struct tsr_model *loaded(struct tsr_conformance_case *c, const struct tsr_family_golden *g,
                                bool headers_only)
{
    struct tsr_model *m = NULL;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (load(c, g, headers_only, &m, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "needs a model that keeps the rule family-binds");
    return m;
}

struct tsr_model *tsr_family_golden_model(struct tsr_conformance_case *c, bool headers_only)
{
    struct tsr_family_golden g;
    tsr_family_golden_need(c, &g);
    return loaded(c, &g, headers_only);
}

void tsr_family_rule_window(struct tsr_conformance_case *c)
{
    struct tsr_family_golden g;
    uint64_t                 narrowest = 0, longest = 0;
    tsr_family_golden_need(c, &g);
    const struct tsr_model *m = loaded(c, &g, true);
    for (uint64_t i = 0; m->hp.window && i < m->hp.layers; i++)
        if (m->hp.window[i] && (!narrowest || m->hp.window[i] < narrowest))
            narrowest = m->hp.window[i];
    for (size_t i = 0; i < json_array_size(g.g.cases); i++) {
        size_t n = json_array_size(json_object_get(json_array_get(g.g.cases, i), "tokens"));
        longest = n > longest ? n : longest;
    }
    if (!narrowest)
        tsr_conformance_rule_skip(c, "no layer of the golden's model has a window");
    if (longest <= narrowest)
        tsr_conformance_rule_fail(c, "the narrowest window is %llu tokens, the longest case %llu",
                                  (unsigned long long)narrowest, (unsigned long long)longest);
}

/* ---- logits ------------------------------------------------------------------------------ */

struct worst {
    double   difference, low, high;
    size_t   at; /* the case */
    uint64_t token, id;
};

static void compare(const struct tsr_family_case *k, size_t at, const float *logits,
                    struct worst *w)
{
    for (uint64_t t = 0; t < k->n; t++) {
        const json_t *row = json_array_get(k->logits, t);
        for (uint64_t v = 0; v < k->vocab; v++) {
            double want = json_number_value(json_array_get(row, v));
            double d = fabs((double)logits[t * k->vocab + v] - want);
            w->low = want < w->low ? want : w->low;
            w->high = want > w->high ? want : w->high;
            if (d <= w->difference || isnan(w->difference))
                continue;
            w->difference = d;
            w->at = at;
            w->token = t;
            w->id = v;
        }
    }
}

static void run_case(struct tsr_conformance_case *c, struct tsr_engine *e,
                     const struct tsr_family_golden *g, size_t at, struct worst *w)
{
    struct tsr_family_case k;
    struct tsr_errbuf      eb = TSR_ERRBUF(eb);
    tsr_family_golden_case(c, g, at, &k);
    if (k.vocab != tsr_engine_vocab(e))
        tsr_conformance_rule_fail(c, "cases[%zu] has %llu logits a token, the model %llu", at,
                                  (unsigned long long)k.vocab,
                                  (unsigned long long)tsr_engine_vocab(e));
    float *logits = tsr_conformance_rule_memory(c, k.n * k.vocab * sizeof *logits);
    struct tsr_engine_token *tokens = tsr_conformance_rule_memory(c, k.n * sizeof *tokens);
    for (uint64_t i = 0; i < k.n; i++) {
        if (k.tokens[i] >= k.vocab)
            tsr_conformance_rule_fail(c, "cases[%zu] has the token %u, the vocabulary %llu", at,
                                      k.tokens[i], (unsigned long long)k.vocab);
        tokens[i] = (struct tsr_engine_token){ .id = k.tokens[i], .logits = true };
    }
    tsr_engine_reset(e, 0);
    if (tsr_engine_forward(e, tokens, k.n, logits, &eb.err) != TSR_OK)
        tsr_conformance_rule_fail(c, "cases[%zu]: %s", at, eb.text);
    compare(&k, at, logits, w);
}

static struct tsr_engine *engine(struct tsr_conformance_case *c, const struct tsr_family_golden *g,
                                 const struct tsr_model *m)
{
    struct tsr_registry      *r = NULL;
    struct tsr_engine        *e = NULL;
    struct tsr_errbuf         eb = TSR_ERRBUF(eb);
    struct tsr_engine_options o = { .act = TSR_ACT_F32, .kv_dtype = TSR_F32, .slots = 1 };
    for (size_t i = 0; i < json_array_size(g->g.cases); i++) {
        size_t n = json_array_size(json_object_get(json_array_get(g->g.cases, i), "tokens"));
        o.context = n > o.context ? n : o.context;
    }
    tsr_status st = tsr_plugin_registry_create(&r, NULL, &eb.err);
    if (st == TSR_OK)
        st = tsr_engine_create(&e, r, m, m->packed, &o, &eb.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "the golden's model does not run: %s", eb.text);
    return e;
}

void tsr_family_rule_logits(struct tsr_conformance_case *c)
{
    struct tsr_family_golden g;
    struct worst             w = { .difference = -1, .low = INFINITY, .high = -INFINITY };
    tsr_family_golden_need(c, &g);
    const struct tsr_model *m = loaded(c, &g, false);
    struct tsr_engine      *e = engine(c, &g, m);
    for (size_t i = 0; i < json_array_size(g.g.cases); i++)
        run_case(c, e, &g, i, &w);
    double range = w.high - w.low;
    tsr_conformance_rule_figure(c, "largest difference", w.difference / range, "of the range");
    tsr_conformance_rule_figure(c, "tolerance", g.tolerance, "of the range");
    tsr_conformance_rule_figure(c, "range of the logits", range, "");
    if (!(range > 0))
        tsr_conformance_rule_fail(c, "all logits of the golden are %g", w.low);
    if (!(w.difference <= g.tolerance * range))
        tsr_conformance_rule_fail(
            c,
            "cases[%zu], token %llu, logit %llu: the difference is %.3g of the range %.4g, over "
            "the tolerance %.3g",
            w.at, (unsigned long long)w.token, (unsigned long long)w.id, w.difference / range,
            range, g.tolerance);
}
