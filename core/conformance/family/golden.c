/* The golden of a family: a model, token ids, and the logits that another program computes. */
#include "conformance/family/family.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOLERANCE 1e-3
#define MOST_TOKENS    4096u
#define LONG_ENOUGH    8u /* tokens of the longest case: fewer hardly use positions */
#define REASON         10u

static tsr_status check_row(const struct tsr_conformance_golden *g, size_t at, size_t t,
                            const json_t *row, size_t vocab, struct tsr_err *err)
{
    if (!json_is_array(row) || json_array_size(row) != vocab || vocab == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: cases[%zu].logits[%zu] is not a list of %zu numbers, as the first row",
                        g->path, at, t, vocab);
    for (size_t v = 0; v < vocab; v++) {
        const json_t *x = json_array_get(row, v);
        if (!json_is_number(x) || !isfinite(json_number_value(x)))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: cases[%zu].logits[%zu][%zu] is not a finite number", g->path, at,
                            t, v);
    }
    return TSR_OK;
}

static tsr_status check_case(const struct tsr_conformance_golden *g, size_t at, size_t *longest,
                             struct tsr_err *err)
{
    const json_t *c = json_array_get(g->cases, at);
    json_t       *tokens = NULL, *logits = NULL;
    TSR_TRY(tsr_json_sub(c, g->path, "tokens", true, JSON_ARRAY, &tokens, err));
    TSR_TRY(tsr_json_sub(c, g->path, "logits", true, JSON_ARRAY, &logits, err));
    size_t n = json_array_size(tokens);
    if (n == 0 || n > MOST_TOKENS || n != json_array_size(logits))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: cases[%zu] has %zu tokens and %zu rows of logits; give 1 to %u tokens "
                        "and a row for each",
                        g->path, at, n, json_array_size(logits), MOST_TOKENS);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(tokens, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > UINT32_MAX)
            return tsr_fail(err, TSR_E_INPUT, "%s: cases[%zu].tokens[%zu] is not a token id",
                            g->path, at, i);
        TSR_TRY(check_row(g, at, i, json_array_get(logits, i),
                          json_array_size(json_array_get(logits, 0)), err));
    }
    *longest = n > *longest ? n : *longest;
    return TSR_OK;
}

static tsr_status read_model(struct tsr_family_golden *g, struct tsr_err *err)
{
    const char *model = NULL;
    char       *dir = tsr_path_dir(g->g.path);
    tsr_status  st = dir ? tsr_json_str(g->g.root, g->g.path, "model", true, &model, err)
                         : tsr_fail_nomem(err, strlen(g->g.path), g->g.path);
    if (st == TSR_OK && !(g->model = tsr_path_join(dir, model)))
        st = tsr_fail_nomem(err, strlen(model), g->g.path);
    if (st == TSR_OK && (!*model || !tsr_path_exists(g->model)))
        st = tsr_fail(err, TSR_E_INPUT, "%s: \"model\": %s is not there", g->g.path, g->model);
    free(dir);
    return st;
}

static tsr_status read_rest(struct tsr_family_golden *g, struct tsr_err *err)
{
    const char *reason = NULL;
    size_t      longest = 0;
    TSR_TRY(read_model(g, err));
    TSR_TRY(tsr_json_real(g->g.root, g->g.path, "tolerance", true, 0, MOST_TOLERANCE, &g->tolerance,
                          err));
    TSR_TRY(tsr_json_str(g->g.root, g->g.path, "reason", true, &reason, err));
    if (strlen(reason) < REASON)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"reason\" does not say why the tolerance is %g of the range of the "
                        "logits",
                        g->g.path, g->tolerance);
    for (size_t i = 0; i < json_array_size(g->g.cases); i++)
        TSR_TRY(check_case(&g->g, i, &longest, err));
    if (longest < LONG_ENOUGH)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the longest case has %zu tokens; one of %u or more shows what depends "
                        "on positions",
                        g->g.path, longest, LONG_ENOUGH);
    return TSR_OK;
}

tsr_status tsr_family_golden_read(struct tsr_family_golden *g, const char *path,
                                  struct tsr_err *err)
{
    *g = (struct tsr_family_golden){ 0 };
    TSR_TRY(tsr_conformance_golden_open(&g->g, path, TSR_FAMILY_GOLDEN, err));
    tsr_status st = read_rest(g, err);
    if (st != TSR_OK) {
        free(g->model);
        tsr_conformance_golden_close(&g->g);
    }
    return st;
}

void tsr_family_golden_need(struct tsr_conformance_case *c, struct tsr_family_golden *g)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_family_golden_read(g, c->path, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "needs a golden that keeps the rule family-golden");
}

void tsr_family_golden_case(struct tsr_conformance_case *c, const struct tsr_family_golden *g,
                            size_t i, struct tsr_family_case *out)
{
    const json_t *one = json_array_get(g->g.cases, i), *tokens = json_object_get(one, "tokens");
    *out = (struct tsr_family_case){ .n = json_array_size(tokens),
                                     .logits = json_object_get(one, "logits") };
    out->vocab = json_array_size(json_array_get(out->logits, 0));
    out->tokens = tsr_conformance_rule_memory(c, out->n * sizeof *out->tokens);
    for (uint64_t t = 0; t < out->n; t++)
        out->tokens[t] = (uint32_t)json_integer_value(json_array_get(tokens, t));
}
