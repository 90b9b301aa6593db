/* The figure of every arm and its interval, next to the published ones. */
#include "claims.h"

#include <math.h>

struct figure {
    const char *name, *failed; /* failed: why, or "" */
    double      bits, value, low, high, kl;
};

/* The perplexity, or by how many percent it is above the original's. */
static struct figure figure_of(const struct claims_job *c, const struct tsr_step_value *arm)
{
    const struct tsr_step_job *j = c->job;
    struct tsr_step_value      r = claims_member(j, arm, "ratio"), kl = claims_member(j, arm, "kl");
    struct figure              f = { .name = claims_string(j, arm, "name"),
                                     .failed = claims_string(j, arm, "failed"),
                                     .bits = claims_number(j, arm, "bits_per_weight"),
                                     .value = claims_number(j, &r, "value"),
                                     .low = claims_number(j, &r, "low"),
                                     .high = claims_number(j, &r, "high"),
                                     .kl = claims_number(j, &kl, "mean") };
    double                     own = claims_number(j, arm, "perplexity");
    if (c->increase) {
        f.value = 100 * (f.value - 1);
        f.low = 100 * (f.low - 1);
        f.high = 100 * (f.high - 1);
    } else { /* the original's perplexity is the other factor, and has no error here */
        f.low *= own / f.value;
        f.high *= own / f.value;
        f.value = own;
    }
    return f;
}

/* ---- the product ------------------------------------------------------------------------ */

static void put_real(struct claims_text *t, const char *key, double v)
{
    claims_text_add(t, ",\"%s\":", key);
    claims_text_real(t, v);
}

static void put_arm(const struct claims_job *c, struct claims_text *t, const struct figure *f)
{
    claims_text_add(t, "{\"arm\":");
    claims_text_string(t, f->name);
    put_real(t, "bits_per_weight", f->bits);
    put_real(t, "value", f->value);
    put_real(t, "low", f->low);
    put_real(t, "high", f->high);
    put_real(t, "kl", f->kl);
    if (*f->failed) {
        claims_text_add(t, ",\"failed\":");
        claims_text_string(t, f->failed);
    }
    claims_text_add(t, ",\"paper\":[");
    for (uint64_t i = 0; i < claims_count(&c->paper, TSR_STEP_MAP); i++) {
        struct tsr_step_value column = claims_item(c->job, &c->paper, i);
        claims_text_add(t, "%s", i ? "," : "");
        claims_text_real(t, claims_number(c->job, &column, f->name));
    }
    claims_text_add(t, "]}");
}

static tsr_status put_columns(const struct claims_job *c, struct tsr_err *err)
{
    struct claims_text t = { .host = c->host };
    claims_text_add(&t, "[");
    for (uint64_t i = 0; i < claims_count(&c->paper, TSR_STEP_MAP); i++) {
        claims_text_add(&t, "%s", i ? "," : "");
        claims_text_string(&t, claims_item(c->job, &c->paper, i).key);
    }
    claims_text_add(&t, "]");
    return claims_text_put(&t, c->job, "columns", err);
}

/* ---- the table -------------------------------------------------------------------------- */

enum { OURS = 5 };

static tsr_status begin_table(const struct claims_job *c, uint64_t columns, struct tsr_err *err)
{
    const char *head[OURS + CLAIMS_COLUMNS] = { "arm", "bits",
                                                c->increase ? "increase, %" : "perplexity",
                                                "interval", "mean KL" };
    for (uint64_t i = 0; i < columns; i++)
        head[OURS + i] = claims_item(c->job, &c->paper, i).key;
    return c->job->table(c->job->ctx, head, OURS + columns, err);
}

static tsr_status put_row(const struct claims_job *c, const struct figure *f, uint64_t columns,
                          struct tsr_err *err)
{
    char        text[OURS + CLAIMS_COLUMNS][CLAIMS_CELL];
    const char *cells[OURS + CLAIMS_COLUMNS];
    int         digits = c->increase ? 2 : 4;
    cells[0] = f->name;
    cells[1] = claims_cell(text[1], 2, f->bits);
    cells[2] = *f->failed ? "failed" : claims_cell(text[2], digits, f->value);
    cells[3] = claims_range(text[3], digits, f->low, f->high);
    cells[4] = claims_cell(text[4], 6, f->kl);
    for (uint64_t i = 0; i < columns; i++) {
        struct tsr_step_value column = claims_item(c->job, &c->paper, i);
        cells[OURS + i] = claims_cell(text[OURS + i], c->increase ? 2 : 3,
                                      claims_number(c->job, &column, f->name));
    }
    return c->job->row(c->job->ctx, cells, OURS + columns, err);
}

/* Why arms failed: a table of figures has no room for it. */
static tsr_status say_failed(const struct claims_job *c, const struct tsr_step_value *arms,
                             struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < claims_count(arms, TSR_STEP_LIST) && st == TSR_OK; i++) {
        struct tsr_step_value arm = claims_item(c->job, arms, i);
        struct claims_text    t = { .host = c->host };
        const char           *why = claims_string(c->job, &arm, "failed");
        if (!*why)
            continue;
        claims_text_add(&t, "%s failed: %s", claims_string(c->job, &arm, "name"), why);
        st = t.lost ? tsr_fail(err, TSR_E_NOMEM, "claims: out of memory for a paragraph")
                    : c->job->text(c->job->ctx, t.text, err);
        claims_text_free(&t);
    }
    return st;
}

tsr_status claims_put_arms(const struct claims_job *c, struct tsr_err *err)
{
    struct tsr_step_value arms = claims_member(c->job, &c->compare, "arms");
    struct claims_text    t = { .host = c->host };
    uint64_t              columns = claims_count(&c->paper, TSR_STEP_MAP);
    if (columns > CLAIMS_COLUMNS)
        return tsr_fail(err, TSR_E_CONFIG, "'paper' has %llu columns; expected at most %u",
                        (unsigned long long)columns, CLAIMS_COLUMNS);
    tsr_status st = put_columns(c, err);
    if (st == TSR_OK)
        st = begin_table(c, columns, err);
    claims_text_add(&t, "[");
    for (uint64_t i = 0; i < claims_count(&arms, TSR_STEP_LIST) && st == TSR_OK; i++) {
        struct tsr_step_value arm = claims_item(c->job, &arms, i);
        struct figure         f = figure_of(c, &arm);
        claims_text_add(&t, "%s", i ? "," : "");
        put_arm(c, &t, &f);
        st = put_row(c, &f, columns, err);
    }
    claims_text_add(&t, "]");
    if (st == TSR_OK)
        st = claims_text_put(&t, c->job, "arms", err);
    claims_text_free(&t);
    return st == TSR_OK ? say_failed(c, &arms, err) : st;
}
