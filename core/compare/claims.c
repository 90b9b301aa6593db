/* An order "a before b" holds if the interval of the difference a minus b is below 0, is
 * contradicted if it is above, and is undecided otherwise: a point estimate decides nothing. */
#include "compare/claims.h"
#include "pipeline/step.h"

#include <math.h>
#include <string.h>

static double real_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static const json_t *arm_of(const json_t *compare, const char *name)
{
    const json_t *a;
    size_t        i;
    json_array_foreach (json_object_get(compare, "arms"), i, a)
        if (strcmp(text_of(a, "name"), name) == 0)
            return a;
    return NULL;
}

/* ---- the differences that a comparison has ------------------------------------------------- */

struct interval {
    double mean, low, high, detectable;
};

static struct interval interval_of(const json_t *d, double sign)
{
    double low = real_of(d, "low"), high = real_of(d, "high");
    return (struct interval){ .mean = sign * real_of(d, "mean"),
                              .low = sign > 0 ? low : -high,
                              .high = sign > 0 ? high : -low,
                              .detectable = real_of(d, "detectable") };
}

/* The pair of the two, either way round; against the original an arm's own figures are it. */
static const json_t *pair_of(const json_t *compare, const char *a, const char *b, double *sign)
{
    const json_t *p;
    size_t        i;
    json_array_foreach (json_object_get(compare, "pairs"), i, p) {
        const char *x = text_of(p, "arm"), *y = text_of(p, "against");
        *sign = strcmp(x, a) == 0 ? 1 : -1;
        if (strcmp(x, *sign > 0 ? a : b) == 0 && strcmp(y, *sign > 0 ? b : a) == 0)
            return p;
    }
    const char *reference = text_of(compare, "reference");
    *sign = strcmp(reference, b) == 0 ? 1 : -1;
    return strcmp(reference, *sign > 0 ? b : a) == 0 ? arm_of(compare, *sign > 0 ? a : b) : NULL;
}

static const char *verdict(const struct interval *d)
{
    return d->high < 0 ? "holds" : d->low > 0 ? "contradicted" : "undecided";
}

static bool put_interval(json_t *j, const char *key, const struct interval *d)
{
    json_t *o = json_object();
    bool    ok = tsr_pipeline_json_put_real(o, "mean", d->mean) &&
              tsr_pipeline_json_put_real(o, "low", d->low) &&
              tsr_pipeline_json_put_real(o, "high", d->high) &&
              tsr_pipeline_json_put_real(o, "detectable", d->detectable) &&
              tsr_pipeline_json_put_text(o, "verdict", verdict(d));
    return tsr_pipeline_json_put(j, key, o) && ok;
}

/* Does each column of the paper have the order in its own figures?  null: equal, or not there. */
static json_t *paper_order(const json_t *paper, const char *a, const char *b)
{
    const char *column;
    json_t     *figures, *out = json_array();
    json_object_foreach ((json_t *)(uintptr_t)paper, column, figures) {
        double x = real_of(figures, a), y = real_of(figures, b);
        if (json_array_append_new(out, x < y ? json_true() : x > y ? json_false() : json_null())) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static tsr_status order_json(const json_t *spec, const json_t *compare, const json_t *item,
                             json_t **out, struct tsr_err *err)
{
    const char   *a = json_string_value(json_array_get(item, 0));
    const char   *b = json_string_value(json_array_get(item, 1));
    double        sign;
    const json_t *x = arm_of(compare, a), *y = arm_of(compare, b), *pair;
    if (!x || !y)
        return tsr_fail(err, TSR_E_INPUT, "order [%s, %s]: the comparison has no arm '%s'", a, b,
                        x ? b : a);
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "better", a) &&
              tsr_pipeline_json_put_text(j, "worse", b) &&
              tsr_pipeline_json_put(j, "paper", paper_order(json_object_get(spec, "paper"), a, b));
    pair = pair_of(compare, a, b, &sign);
    if (!pair) {
        json_decref(j);
        return tsr_fail(err, TSR_E_INPUT,
                        "order [%s, %s]: the comparison did not measure the two against each "
                        "other; add pairs: [[%s, %s]] to 'compare'",
                        a, b, a, b);
    }
    const json_t *kl = json_object_get(pair, "kl_delta");
    if (json_object_get(pair, "failed") || json_object_get(x, "failed") ||
        json_object_get(y, "failed")) {
        ok = ok && tsr_pipeline_json_put_text(j, "verdict", "not measured");
    } else {
        struct interval d = interval_of(json_object_get(pair, "delta"), sign);
        ok = ok && put_interval(j, "delta", &d) &&
             tsr_pipeline_json_put_text(j, "verdict", verdict(&d));
        if (json_is_object(kl)) {
            d = interval_of(kl, sign);
            ok = ok && put_interval(j, "kl_delta", &d);
        }
    }
    *out = j;
    return ok ? TSR_OK : tsr_fail_nomem(err, 256, "the claims");
}

/* ---- arms compared with the paper
 * -------------------------------------------------------------------- */

/* The figure and its interval: the perplexity, or by how many percent it is above the original's. */
static bool put_figure(json_t *j, const json_t *arm, bool increase)
{
    const json_t *r = json_object_get(arm, "ratio");
    double        v = real_of(r, "value"), low = real_of(r, "low"), high = real_of(r, "high");
    double        own = real_of(arm, "perplexity");
    if (increase) {
        v = 100 * (v - 1);
        low = 100 * (low - 1);
        high = 100 * (high - 1);
    } else {
        low *= own / v; /* the original's perplexity is the other factor, and has no error here */
        high *= own / v;
        v = own;
    }
    return tsr_pipeline_json_put_real(j, "value", v) && tsr_pipeline_json_put_real(j, "low", low) &&
           tsr_pipeline_json_put_real(j, "high", high) &&
           tsr_pipeline_json_put_real(j, "kl", real_of(json_object_get(arm, "kl"), "mean"));
}

static json_t *arm_json(const json_t *spec, const json_t *arm)
{
    const char *column, *failed = json_string_value(json_object_get(arm, "failed"));
    json_t     *figures, *j = json_object(), *list = json_array();
    bool        increase = strcmp(text_of(spec, "figure"), "increase") == 0;
    bool        ok = tsr_pipeline_json_put_text(j, "arm", text_of(arm, "name")) &&
              tsr_pipeline_json_put_real(j, "bits_per_weight", real_of(arm, "bits_per_weight")) &&
              put_figure(j, arm, increase);
    if (failed)
        ok = ok && tsr_pipeline_json_put_text(j, "failed", failed);
    json_object_foreach (json_object_get(spec, "paper"), column, figures) {
        double v = real_of(figures, text_of(arm, "name"));
        ok = json_array_append_new(list, isfinite(v) ? json_real(v) : json_null()) == 0 && ok;
    }
    ok = tsr_pipeline_json_put(j, "paper", list) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status check_names(const json_t *spec, const json_t *compare, struct tsr_err *err)
{
    const char *column, *name;
    json_t     *figures, *v;
    json_object_foreach (json_object_get(spec, "paper"), column, figures)
        json_object_foreach (figures, name, v)
            if (!arm_of(compare, name))
                return tsr_fail(err, TSR_E_INPUT,
                                "paper '%s': the comparison has no arm '%s'; its names are those "
                                "of 'arms'",
                                column, name);
    return TSR_OK;
}

static tsr_status put_orders(const json_t *spec, const json_t *compare, json_t *j,
                             struct tsr_err *err)
{
    json_t    *list = json_array(), *item;
    size_t     i;
    uint64_t   held = 0, contradicted = 0, all = 0;
    tsr_status st = TSR_OK;
    json_array_foreach (json_object_get(spec, "order"), i, item) {
        json_t *o = NULL;
        st = order_json(spec, compare, item, &o, err);
        if (st == TSR_OK) {
            held += strcmp(text_of(o, "verdict"), "holds") == 0;
            contradicted += strcmp(text_of(o, "verdict"), "contradicted") == 0;
            all++;
        }
        if (json_array_append_new(list, o) != 0 && st == TSR_OK)
            st = tsr_fail_nomem(err, 256, "the claims");
        if (st != TSR_OK)
            break;
    }
    bool ok = tsr_pipeline_json_put(j, "orders", list) &&
              tsr_pipeline_json_put_int(j, "held", held) &&
              tsr_pipeline_json_put_int(j, "contradicted", contradicted) &&
              tsr_pipeline_json_put_int(j, "undecided", all - held - contradicted);
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 256, "the claims") : st;
}

static bool put_arms(const json_t *spec, const json_t *compare, json_t *j)
{
    const char *column;
    json_t     *figures, *arm, *columns = json_array(), *list = json_array();
    size_t      i;
    bool        ok = true;
    json_object_foreach (json_object_get(spec, "paper"), column, figures)
        ok = json_array_append_new(columns, json_string(column)) == 0 && ok;
    json_array_foreach (json_object_get(compare, "arms"), i, arm)
        ok = json_array_append_new(list, arm_json(spec, arm)) == 0 && ok;
    ok = tsr_pipeline_json_put(j, "columns", columns) && ok;
    return tsr_pipeline_json_put(j, "arms", list) && ok;
}

tsr_status tsr_compare_claims_make(const json_t *spec, const json_t *compare, json_t **out,
                                   struct tsr_err *err)
{
    TSR_TRY(check_names(spec, compare, err));
    json_t    *j = json_object();
    tsr_status st = TSR_OK;
    if (!tsr_pipeline_json_put_text(j, "source", text_of(spec, "source")) ||
        !tsr_pipeline_json_put_text(j, "figure", text_of(spec, "figure")) ||
        !tsr_pipeline_json_put_real(j, "alpha", real_of(compare, "alpha")) ||
        !put_arms(spec, compare, j))
        st = tsr_fail_nomem(err, 256, "the claims");
    if (st == TSR_OK)
        st = put_orders(spec, compare, j, err);
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    *out = j;
    return TSR_OK;
}
