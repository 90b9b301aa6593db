/* An order "a before b" holds if the interval of the difference a minus b is below 0, is contradicted if it is above, and
 * is undecided otherwise: a point estimate decides nothing. */
#include "claims.h"

#include <math.h>
#include <string.h>

/* ---- the differences that a comparison has ------------------------------------------------- */

struct interval {
    bool   there;
    double mean, low, high, detectable;
};

struct order {
    const char     *better, *worse;
    bool            measured;
    struct interval delta, kl; /* of log-perplexity and of the mean KL, better less worse */
};

static struct interval interval_of(const struct tsr_step_job *j, const struct tsr_step_value *pair,
                                   const char *key, double sign)
{
    struct tsr_step_value d = claims_member(j, pair, key);
    double                low = claims_number(j, &d, "low"), high = claims_number(j, &d, "high");
    return (struct interval){ .there = d.type == TSR_STEP_MAP,
                              .mean = sign * claims_number(j, &d, "mean"),
                              .low = sign > 0 ? low : -high,
                              .high = sign > 0 ? high : -low,
                              .detectable = claims_number(j, &d, "detectable") };
}

/* The pair of the two, either way round; against the original an arm's own figures are it.  false: it was not measured. */
static bool find_pair(const struct claims_job *c, const char *a, const char *b, double *sign,
                      struct tsr_step_value *pair)
{
    struct tsr_step_value pairs = claims_member(c->job, &c->compare, "pairs");
    for (uint64_t i = 0; i < claims_count(&pairs, TSR_STEP_LIST); i++) {
        *pair = claims_item(c->job, &pairs, i);
        const char *x = claims_string(c->job, pair, "arm"),
                   *y = claims_string(c->job, pair, "against");
        *sign = strcmp(x, a) == 0 ? 1 : -1;
        if (strcmp(x, *sign > 0 ? a : b) == 0 && strcmp(y, *sign > 0 ? b : a) == 0)
            return true;
    }
    const char *reference = claims_string(c->job, &c->compare, "reference");
    *sign = strcmp(reference, b) == 0 ? 1 : -1;
    return strcmp(reference, *sign > 0 ? b : a) == 0 && claims_arm(c, *sign > 0 ? a : b, pair);
}

static const char *verdict(const struct interval *d)
{
    return d->high < 0 ? "holds" : d->low > 0 ? "contradicted" : "undecided";
}

static tsr_status read_order(const struct claims_job *c, uint64_t i, struct order *o,
                             struct tsr_err *err)
{
    struct tsr_step_value item = claims_item(c->job, &c->order, i), x, y, pair;
    double                sign;
    if (!claims_pair(c->job, &item, &o->better, &o->worse))
        return tsr_fail(err, TSR_E_CONFIG, "order %llu is not two names of arms",
                        (unsigned long long)i + 1);
    bool has = claims_arm(c, o->better, &x);
    if (!has || !claims_arm(c, o->worse, &y))
        return tsr_fail(err, TSR_E_CONFIG, "order [%s, %s]: the comparison has no arm '%s'",
                        o->better, o->worse, has ? o->worse : o->better);
    if (!find_pair(c, o->better, o->worse, &sign, &pair))
        return tsr_fail(err, TSR_E_CONFIG,
                        "order [%s, %s]: the comparison did not measure the two against each "
                        "other; add pairs: [[%s, %s]] to 'compare'",
                        o->better, o->worse, o->better, o->worse);
    o->measured = !claims_has(c->job, &pair, "failed") && !claims_has(c->job, &x, "failed") &&
                  !claims_has(c->job, &y, "failed");
    o->delta = interval_of(c->job, &pair, "delta", sign);
    o->kl = interval_of(c->job, &pair, "kl_delta", sign);
    return TSR_OK;
}

static const char *verdict_of(const struct order *o)
{
    return o->measured ? verdict(&o->delta) : "not measured";
}

/* Does a column of the paper have the order in its own figures?  0: equal, or not there. */
static int published(const struct claims_job *c, uint64_t column, const struct order *o)
{
    struct tsr_step_value figures = claims_item(c->job, &c->paper, column);
    double                x = claims_number(c->job, &figures, o->better),
           y = claims_number(c->job, &figures, o->worse);
    return x < y ? 1 : x > y ? -1 : 0;
}

/* ---- the product --------------------------------------------------------------------------- */

static void put_interval(struct claims_text *t, const char *key, const struct interval *d)
{
    const double      v[] = { d->mean, d->low, d->high, d->detectable };
    const char *const name[] = { "mean", "low", "high", "detectable" };
    claims_text_add(t, "\"%s\":{", key);
    for (unsigned i = 0; i < 4; i++) {
        claims_text_add(t, "\"%s\":", name[i]);
        claims_text_real(t, v[i]);
        claims_text_add(t, ",");
    }
    claims_text_add(t, "\"verdict\":\"%s\"},", verdict(d));
}

static void put_order(const struct claims_job *c, struct claims_text *t, const struct order *o)
{
    claims_text_add(t, "{\"better\":");
    claims_text_string(t, o->better);
    claims_text_add(t, ",\"worse\":");
    claims_text_string(t, o->worse);
    claims_text_add(t, ",\"paper\":[");
    for (uint64_t i = 0; i < claims_count(&c->paper, TSR_STEP_MAP); i++) {
        int has = published(c, i, o);
        claims_text_add(t, "%s%s", i ? "," : "", has > 0 ? "true" : has < 0 ? "false" : "null");
    }
    claims_text_add(t, "],");
    if (o->measured)
        put_interval(t, "delta", &o->delta);
    if (o->measured && o->kl.there)
        put_interval(t, "kl_delta", &o->kl);
    claims_text_add(t, "\"verdict\":\"%s\"}", verdict_of(o));
}

static tsr_status put_count(const struct claims_job *c, const char *product, uint64_t n,
                            struct tsr_err *err)
{
    char text[24];
    int  bytes = snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return c->job->put(c->job->ctx, product, text, (uint64_t)bytes, err);
}

/* ---- the table ----------------------------------------------------------------------------- */

#define DIFFERENCE 192u /* bytes of a cell */
/* "-0.08000 [-0.13000, -0.03000]", or "-". */
static const char *difference(char cell[DIFFERENCE], const struct interval *d, bool is_there)
{
    char mean[CLAIMS_CELL], range[CLAIMS_CELL];
    (void)snprintf(cell, DIFFERENCE, "-");
    if (is_there && isfinite(d->mean))
        (void)snprintf(cell, DIFFERENCE, "%s %s", claims_cell(mean, 5, d->mean),
                       claims_range(range, 5, d->low, d->high));
    return cell;
}

static tsr_status put_row(const struct claims_job *c, const struct order *o, struct tsr_err *err)
{
    struct claims_text name = { .host = c->host }, words = { .host = c->host };
    char               delta[DIFFERENCE], kl[DIFFERENCE];
    bool               has_kl = o->measured && o->kl.there;
    claims_text_add(&name, "%s < %s", o->better, o->worse);
    claims_text_add(&words, "%s", "");
    for (uint64_t i = 0; i < claims_count(&c->paper, TSR_STEP_MAP); i++) {
        int has = published(c, i, o);
        claims_text_add(&words, "%s%s", i ? " " : "", has > 0 ? "yes" : has < 0 ? "no" : "-");
    }
    const char *const cells[] = { name.text,
                                  words.text,
                                  difference(delta, &o->delta, o->measured),
                                  verdict_of(o),
                                  difference(kl, &o->kl, has_kl),
                                  has_kl ? verdict(&o->kl) : "-" };
    tsr_status        st = name.lost || words.lost
                               ? tsr_fail(err, TSR_E_NOMEM, "claims: out of memory for a row")
                               : c->job->row(c->job->ctx, cells, 6, err);
    claims_text_free(&name);
    claims_text_free(&words);
    return st;
}

static tsr_status say_counts(const struct claims_job *c, uint64_t all, uint64_t held,
                             uint64_t contradicted, struct tsr_err *err)
{
    char text[400];
    (void)
        snprintf(text, sizeof text,
                 "%llu of %llu orders hold, %llu contradicted, %llu undecided: by the interval of "
                 "the difference in log-perplexity on the same tokens. Published: whether each "
                 "column has the order.",
                 (unsigned long long)held, (unsigned long long)all,
                 (unsigned long long)contradicted, (unsigned long long)(all - held - contradicted));
    return c->job->text(c->job->ctx, text, err);
}

tsr_status claims_put_orders(const struct claims_job *c, struct tsr_err *err)
{
    static const char *const columns[] = { "order",   "published", "log-perplexity",
                                           "verdict", "mean KL",   "verdict" };
    struct claims_text       t = { .host = c->host };
    uint64_t                 n = claims_count(&c->order, TSR_STEP_LIST), held = 0, contradicted = 0;
    tsr_status               st = n ? c->job->table(c->job->ctx, columns, 6, err) : TSR_OK;
    claims_text_add(&t, "[");
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        struct order o;
        st = read_order(c, i, &o, err);
        if (st != TSR_OK)
            break;
        held += strcmp(verdict_of(&o), "holds") == 0;
        contradicted += strcmp(verdict_of(&o), "contradicted") == 0;
        claims_text_add(&t, "%s", i ? "," : "");
        put_order(c, &t, &o);
        st = put_row(c, &o, err);
    }
    claims_text_add(&t, "]");
    if (st == TSR_OK)
        st = claims_text_put(&t, c->job, "orders", err);
    claims_text_free(&t);
    if (st == TSR_OK)
        st = put_count(c, "held", held, err);
    if (st == TSR_OK)
        st = put_count(c, "contradicted", contradicted, err);
    if (st == TSR_OK)
        st = put_count(c, "undecided", n - held - contradicted, err);
    return st == TSR_OK && n ? say_counts(c, n, held, contradicted, err) : st;
}
