/* claims - compares published figures with the newest comparison, and checks their orders by interval. */
#include "claims.h"

#include <string.h>

enum { PERPLEXITY, INCREASE };

struct options {
    const char *source;
    int64_t     figure;
    const char *paper, *order;
};

static const struct tsr_choice figures[] = {
    { "perplexity", "the perplexity", PERPLEXITY },
    { "increase", "by how many percent the perplexity is above the original's", INCREASE },
};

#define TREE(f, h)                                                                                 \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_JSON,                      \
        .offset = TSR_FIELD(struct options, f, const char *), .def = {                             \
            .s = ""                                                                                \
        }                                                                                          \
    }
static const struct tsr_option options[] = {
    { .name = "source",
      .help = "Where the figures come from.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct options, source, const char *),
      .def = { .s = "" } },
    TSR_OPTION_ENUM(struct options, figure, PERPLEXITY, figures, "What the figures are."),
    TREE(paper, "A map: column: {arm: number}."),
    TREE(order, "List of [better arm, worse arm]."),
};

struct claims {
    const struct tsr_host *host;
    const struct options  *o;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct claims *s = host->alloc(host->ctx, sizeof *s, 16);
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "claims: out of memory: %zu bytes", sizeof *s);
    *s = (struct claims){ host, opts };
    *self = s;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct claims *s = self;
    if (s)
        s->host->release(s->host->ctx, s, sizeof *s);
}

/* ---- checking ------------------------------------------------------------------------------- */

static void check_column(const struct tsr_step_job *j, const struct tsr_step_value *column)
{
    if (column->type != TSR_STEP_MAP) {
        j->problem(j->ctx, column, "a column is not a map; write COLUMN: {ARM: 15.42}");
        return;
    }
    for (uint64_t i = 0; i < column->n; i++) {
        struct tsr_step_value v = claims_item(j, column, i);
        char                  text[160];
        (void)snprintf(text, sizeof text, "the figure of '%.60s' is not a number", v.key);
        if (v.type != TSR_STEP_NUMBER)
            j->problem(j->ctx, &v, text);
    }
}

static void check_paper(const struct tsr_step_job *j, const struct tsr_step_value *paper)
{
    char text[80];
    if (paper->type != TSR_STEP_MAP)
        j->problem(j->ctx, paper, "'paper' is not a map; write paper: {COLUMN: {ARM: 15.42}}");
    (void)snprintf(text, sizeof text, "'paper' has %llu columns; expected at most %u",
                   (unsigned long long)paper->n, CLAIMS_COLUMNS);
    if (claims_count(paper, TSR_STEP_MAP) > CLAIMS_COLUMNS)
        j->problem(j->ctx, paper, text);
    for (uint64_t i = 0; i < claims_count(paper, TSR_STEP_MAP); i++) {
        struct tsr_step_value column = claims_item(j, paper, i);
        check_column(j, &column);
    }
}

static void check_order(const struct tsr_step_job *j, const struct tsr_step_value *order)
{
    const char *better, *worse;
    if (order->type != TSR_STEP_LIST)
        j->problem(j->ctx, order, "'order' is not a list; write order: [[better, worse], ...]");
    for (uint64_t i = 0; i < claims_count(order, TSR_STEP_LIST); i++) {
        struct tsr_step_value item = claims_item(j, order, i);
        if (!claims_pair(j, &item, &better, &worse))
            j->problem(j->ctx, &item, "an order is not two names of arms; write [better, worse]");
    }
}

static tsr_status check(const void *self, const struct tsr_step_job *j, struct tsr_err *err)
{
    struct tsr_step_value root = { .struct_size = sizeof root };
    tsr_status            st = j->input(j->ctx, "options", &root, err);
    (void)self;
    if (st != TSR_OK)
        return st;
    struct tsr_step_value paper = claims_member(j, &root, "paper");
    struct tsr_step_value order = claims_member(j, &root, "order");
    if (paper.type == TSR_STEP_ABSENT && order.type == TSR_STEP_ABSENT)
        j->problem(j->ctx, NULL, "there is nothing to compare with; give 'paper', 'order' or both");
    if (paper.type != TSR_STEP_ABSENT)
        check_paper(j, &paper);
    if (order.type != TSR_STEP_ABSENT)
        check_order(j, &order);
    return TSR_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Every arm of the paper is one of the comparison. */
static tsr_status check_names(const struct claims_job *c, struct tsr_err *err)
{
    struct tsr_step_value arm;
    for (uint64_t i = 0; i < claims_count(&c->paper, TSR_STEP_MAP); i++) {
        struct tsr_step_value column = claims_item(c->job, &c->paper, i);
        for (uint64_t k = 0; k < claims_count(&column, TSR_STEP_MAP); k++) {
            const char *name = claims_item(c->job, &column, k).key;
            if (!claims_arm(c, name, &arm))
                return tsr_fail(err, TSR_E_CONFIG,
                                "paper '%s': the comparison has no arm '%s'; its names are those "
                                "of 'arms'",
                                column.key, name);
        }
    }
    return TSR_OK;
}

/* What the figures are, in the results and as the first paragraph. */
static tsr_status put_head(const struct claims_job *c, struct tsr_err *err)
{
    struct claims_text t = { .host = c->host };
    claims_text_string(&t, c->source);
    tsr_status st = claims_text_put(&t, c->job, "source", err);
    if (st != TSR_OK)
        return st;
    claims_text_string(&t, figures[c->increase].name);
    st = claims_text_put(&t, c->job, "figure", err);
    if (st != TSR_OK)
        return st;
    claims_text_real(&t, claims_number(c->job, &c->compare, "alpha"));
    st = claims_text_put(&t, c->job, "alpha", err);
    if (st != TSR_OK)
        return st;
    claims_text_add(&t, "Compared with %s:", c->source);
    st = t.lost ? tsr_fail(err, TSR_E_NOMEM, "claims: out of memory for a paragraph")
                : c->job->text(c->job->ctx, t.text, err);
    claims_text_free(&t);
    return st;
}

static tsr_status run(void *self, const struct tsr_step_job *j, struct tsr_err *err)
{
    const struct claims  *s = self;
    struct tsr_step_value root = { .struct_size = sizeof root };
    struct claims_job     c = { .host = s->host,
                                .job = j,
                                .source = s->o->source,
                                .increase = s->o->figure == INCREASE,
                                .compare = { .struct_size = sizeof c.compare } };
    tsr_status            st = j->input(j->ctx, "compare", &c.compare, err);
    if (st == TSR_OK)
        st = j->input(j->ctx, "options", &root, err);
    if (st != TSR_OK)
        return st;
    c.paper = claims_member(j, &root, "paper");
    c.order = claims_member(j, &root, "order");
    st = check_names(&c, err);
    if (st == TSR_OK)
        st = put_head(&c, err);
    if (st == TSR_OK)
        st = claims_put_arms(&c, err);
    return st == TSR_OK ? claims_put_orders(&c, err) : st;
}

/* ---- the table -------------------------------------------------------------------------------- */

#define PRODUCT(n, h)                                                                              \
    static const struct tsr_step_product product_##n = { sizeof product_##n, TSR_STEP_JSON, #n, h }
PRODUCT(source, "Where the figures come from.");
PRODUCT(figure, "What the figures are: perplexity or increase.");
PRODUCT(alpha, "One minus the confidence of the intervals.");
PRODUCT(columns, "Names of the published columns.");
PRODUCT(arms, "The figure of every arm, its interval and the published ones.");
PRODUCT(orders, "Every order with its differences and verdicts.");
PRODUCT(held, "Number of orders that hold.");
PRODUCT(contradicted, "Number of orders that are contradicted.");
PRODUCT(undecided, "Number of orders that are undecided or not measured.");
static const struct tsr_step_product *const products[] = {
    &product_source, &product_figure, &product_alpha,        &product_columns,  &product_arms,
    &product_orders, &product_held,   &product_contradicted, &product_undecided
};
static const char *const inputs[] = { "compare" };

static const struct tsr_step_v1 table = {
    .struct_size = sizeof table,
    .inputs = inputs,
    .n_inputs = sizeof inputs / sizeof *inputs,
    .products = products,
    .n_products = sizeof products / sizeof *products,
    .create = create,
    .destroy = destroy,
    .run = run,
    .check = check,
};

static const struct tsr_component claims = {
    .struct_size = sizeof claims,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_STEP,
    .name = "claims",
    .summary =
        "Compares published figures with the comparison, and checks their orders by interval.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
static const struct tsr_component *const components[] = { &claims };

TSR_PLUGIN_SYMBOL(claims) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.claims", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,   .n_components = 1,
};
