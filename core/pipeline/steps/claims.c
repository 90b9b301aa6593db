/* claims: compares the preceding comparison with published figures and their orders. */
#include "compare/claims.h"
#include "pipeline/step.h"

#include <string.h>

struct claims_options {
    const char                   *source;
    int64_t                       figure;
    const struct tsr_config_node *paper, *order;
};

enum { PERPLEXITY, INCREASE };
static const struct tsr_choice figures[] = {
    { "perplexity", "the perplexity", PERPLEXITY },
    { "increase", "by how many percent the perplexity is above the original's", INCREASE },
};

static const struct tsr_option options[] = {
    { .name = "source",
      .help = "Where the figures come from.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct claims_options, source, const char *),
      .def = { .s = "" } },
    TSR_OPTION_ENUM(struct claims_options, figure, PERPLEXITY, figures, "What the figures are."),
    TSR_OPTION_NODE(struct claims_options, paper, "A map: column: {arm: number}."),
    TSR_OPTION_NODE(struct claims_options, order, "List of [better arm, worse arm]."),
};

/* ---- checking ------------------------------------------------------------------------------- */

static void check_column(const struct tsr_config_node *n, struct tsr_diag *d)
{
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &n->mark, "write COLUMN: {ARM: 15.42}", "a column is not a map");
        return;
    }
    json_t *j = tsr_config_node_json(n), *v;
    for (uint64_t i = 0; j && i < n->n; i++) {
        v = json_object_get(j, n->keys[i]->text);
        if (v && !json_is_number(v))
            tsr_config_diag_error(d, &n->items[i]->mark, NULL,
                                  "the figure of '%.60s' is not a number", n->keys[i]->text);
    }
    json_decref(j);
}

static void check_order(const struct tsr_config_node *n, struct tsr_diag *d)
{
    bool ok = n->kind == TSR_CONFIG_NODE_LIST && n->n == 2;
    for (uint64_t i = 0; ok && i < 2; i++)
        ok = n->items[i]->kind == TSR_CONFIG_NODE_SCALAR;
    if (!ok)
        tsr_config_diag_error(d, &n->mark, "write [better, worse]",
                              "an order is not two names of arms");
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct claims_options *o = opts;
    (void)job;
    (void)err;
    if (!o->paper && !o->order)
        tsr_config_diag_error(d, &node->mark, "give 'paper', 'order' or both",
                              "there is nothing to hold the comparison against");
    if (o->paper && o->paper->kind != TSR_CONFIG_NODE_MAP)
        tsr_config_diag_error(d, &o->paper->mark, "write paper: {COLUMN: {ARM: 15.42}}",
                              "'paper' is not a map");
    else
        for (uint64_t i = 0; o->paper && i < o->paper->n; i++)
            check_column(o->paper->items[i], d);
    if (o->order && o->order->kind != TSR_CONFIG_NODE_LIST)
        tsr_config_diag_error(d, &o->order->mark, "write order: [[better, worse], ...]",
                              "'order' is not a list");
    else
        for (uint64_t i = 0; o->order && i < o->order->n; i++)
            check_order(o->order->items[i], d);
    return TSR_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Names stay names: an arm may be called 4. */
static json_t *order_json(const struct tsr_config_node *order)
{
    json_t *list = json_array();
    for (uint64_t i = 0; list && order && i < order->n; i++)
        if (json_array_append_new(list, json_pack("[s, s]", order->items[i]->items[0]->text,
                                                  order->items[i]->items[1]->text)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* The newest comparison of the job. */
static const json_t *newest(const struct tsr_pipeline_job *job)
{
    const json_t *found = NULL, *v;
    char          key[40] = "compare";
    for (unsigned i = 2; (v = json_object_get(job->results, key)); i++) {
        found = v;
        (void)snprintf(key, sizeof key, "compare[%u]", i);
    }
    return found;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct claims_options *o = opts;
    const json_t                *compare = newest(job);
    json_t                      *spec = json_object(), *j = NULL;
    (void)node;
    bool ok = tsr_pipeline_json_put_text(spec, "source", o->source) &&
              tsr_pipeline_json_put_text(spec, "figure", figures[o->figure].name) &&
              tsr_pipeline_json_put(spec, "paper",
                                    o->paper ? tsr_config_node_json(o->paper) : json_object()) &&
              tsr_pipeline_json_put(spec, "order", order_json(o->order));
    tsr_status st = ok ? TSR_OK : tsr_fail_nomem(err, 256, "the claims");
    if (st == TSR_OK && !compare)
        st = tsr_fail(err, TSR_E_INPUT, "there is no comparison; put a compare step before");
    if (st == TSR_OK)
        st = tsr_compare_claims_make(spec, compare, &j, err);
    json_decref(spec);
    if (st != TSR_OK)
        return st;
    if (!job->json)
        tsr_compare_claims_print(j, stdout);
    return tsr_pipeline_step_result(job, "claims", j, err);
}

const struct tsr_pipeline_step tsr_step_claims = {
    .name = "claims",
    .summary =
        "compares published figures with the comparison, and checks their orders by interval",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct claims_options),
    .check = check,
    .run = run,
    .print = tsr_compare_claims_print,
    .later = true,
};
