/* steps.c - third-party steps for tests/e2e/steps.sh, which builds them from an installed tree alone.
 *
 *   probe  uses every function of tessera/step.h; its option `fault` does one thing that a host refuses
 *   after  reads what probe produced
 *   lost   needs what nobody makes
 */
#include <tessera/step.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS(X)                                                                                  \
    X(none)                                                                                        \
    X(undeclared)                                                                                  \
    X(twice)                                                                                       \
    X(nan)                                                                                         \
    X(text_nan)                                                                                    \
    X(figure_nan)                                                                                  \
    X(no_json)                                                                                     \
    X(leaves)                                                                                      \
    X(absolute)                                                                                    \
    X(hidden)                                                                                      \
    X(results)                                                                                     \
    X(as_json)                                                                                     \
    X(missing) X(input) X(matrix) X(rows) X(token) X(protocol) X(row_cells) X(late) X(status)
#define ENUM(name)   F_##name,
#define CHOICE(name) { #name, "What probe does.", F_##name },
enum { FAULTS(ENUM) };
static const struct tsr_choice faults[] = { FAULTS(CHOICE) };

struct options {
    int64_t     fault;
    const char *text, *notes, *tree;
};

static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct options, fault, F_none, faults, "What is wrong."),
    TSR_OPTION_STRING(struct options, text, "", "A text to measure."),
    TSR_OPTION_STRING(struct options, notes, "", "A file to read."),
    { .name = "tree",
      .help = "Any value.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_JSON,
      .offset = TSR_FIELD(struct options, tree, const char *),
      .def = { .s = "" } },
};

struct step {
    const struct tsr_host     *host;
    const struct options      *o;
    const struct tsr_step_job *kept; /* for `late` */
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct step *s = host->alloc(host->ctx, sizeof *s, 16);
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "probe: out of memory");
    *s = (struct step){ host, opts, NULL };
    *self = s;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct step   *s = self;
    struct tsr_err e = { .struct_size = sizeof e };
    if (!s)
        return;
    if (s->kept && s->kept->number(s->kept->ctx, "late", 1, &e) == TSR_OK)
        s->host->log(s->host->ctx, TSR_LOG_WARN, "taken after run()");
    s->host->release(s->host->ctx, s, sizeof *s);
}

static struct tsr_step_value empty(void)
{
    struct tsr_step_value v;
    memset(&v, 0, sizeof v);
    v.struct_size = sizeof v;
    return v;
}

/* Each member of `tree` that is no number is a problem, at its place. */
static tsr_status check(const void *self, const struct tsr_step_job *j, struct tsr_err *err)
{
    struct tsr_step_value root = empty(), tree = empty(), v = empty();
    (void)self;
    tsr_status st = j->input(j->ctx, "options", &root, err);
    if (st != TSR_OK)
        return st;
    j->member(j->ctx, &root, "tree", &tree);
    for (uint64_t i = 0; tree.type == TSR_STEP_MAP && i < tree.n; i++) {
        j->item(j->ctx, &tree, i, &v);
        if (v.type != TSR_STEP_NUMBER)
            j->problem(j->ctx, &v, v.key);
    }
    return TSR_OK;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status st_ = (call);                                                                   \
        if (st_ != TSR_OK)                                                                         \
            return st_;                                                                            \
    } while (0)

/* The first rows of a BF16 matrix in two blocks, as the file has them: the upper halves of the numbers. */
static tsr_status weights(const struct tsr_step_job *j, struct tsr_err *err)
{
    struct tsr_step_matrix m;
    memset(&m, 0, sizeof m);
    m.struct_size = sizeof m;
    for (uint64_t i = 0;; i++) {
        TRY(j->matrix(j->ctx, i, &m, err));
        if (strcmp(m.name, "model.layers.1.mlp.up_proj") != 0)
            continue;
        float    *w = malloc(m.rows * m.cols * sizeof *w);
        uint16_t *half = malloc(m.rows * m.cols * sizeof *half);
        TRY(j->rows(j->ctx, i, TSR_STEP_ORIGINAL, 0, 5, w, err));
        TRY(j->rows(j->ctx, i, TSR_STEP_ORIGINAL, 5, m.rows - 5, w + 5 * m.cols, err));
        for (uint64_t k = 0; k < m.rows * m.cols; k++) {
            uint32_t bits;
            memcpy(&bits, &w[k], sizeof bits);
            half[k] = (uint16_t)(bits >> 16);
        }
        TRY(j->write(j->ctx, "up", "sub/up.bf16", half, m.rows * m.cols * sizeof *half, err));
        TRY(j->rows(j->ctx, i, TSR_STEP_PACKED, 0, m.rows, w, err));
        TRY(j->write(j->ctx, "packed", "packed.f32", w, m.rows * m.cols * sizeof *w, err));
        free(half);
        free(w);
        return j->put(j->ctx, "format", m.format ? "true" : "false", m.format ? 4 : 5, err);
    }
}

static tsr_status measure(const struct step *s, const struct tsr_step_job *j, struct tsr_err *err)
{
    struct tsr_step_evaluation e;
    struct tsr_step_model      m;
    const uint32_t            *ids;
    uint64_t                   n;
    memset(&e, 0, sizeof e);
    memset(&m, 0, sizeof m);
    e.struct_size = sizeof e;
    m.struct_size = sizeof m;
    TRY(j->model(j->ctx, &m, err));
    TRY(j->number(j->ctx, "layers", (double)m.layers, err));
    TRY(j->tokens(j->ctx, "It was a dark", 13, &ids, &n, err));
    float *logits = malloc(n * m.vocab * sizeof *logits);
    char   list[200] = "[";
    TRY(j->logits(j->ctx, ids, 2, logits, err)); /* a longer text follows */
    TRY(j->logits(j->ctx, ids, n, logits, err));
    TRY(j->write(j->ctx, "logits", "logits.f32", logits, n * m.vocab * sizeof *logits, err));
    free(logits);
    for (uint64_t i = 0; i < n; i++)
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%u", i ? "," : "",
                       ids[i]);
    (void)snprintf(list + strlen(list), sizeof list - strlen(list), "]");
    TRY(j->put(j->ctx, "ids", list, strlen(list), err));
    e.text = s->o->text;
    e.protocol = s->o->fault == F_protocol ? "mine" : "gptq-2048";
    e.window = 64;
    e.max_windows = 4;
    e.kl = 1;
    TRY(j->evaluate(j->ctx, &e, err));
    TRY(j->number(j->ctx, "perplexity", e.perplexity, err));
    TRY(j->number(j->ctx, "kl", e.kl_mean, err));
    return j->figure(j->ctx, "perplexity", e.perplexity, "nats?", err);
}

static tsr_status inputs(const struct step *s, const struct tsr_step_job *j, struct tsr_err *err)
{
    struct tsr_step_value eval = empty(), config = empty(), v = empty();
    const void           *data;
    uint64_t              bytes;
    char                  text[300];
    TRY(j->input(j->ctx, "eval", &eval, err));
    j->member(j->ctx, &eval, "perplexity", &v);
    TRY(j->number(j->ctx, "eval_perplexity", v.number, err));
    TRY(j->input(j->ctx, "config", &config, err));
    j->member(j->ctx, &config, "model_type", &v);
    (void)snprintf(text, sizeof text, "\"%.100s\"", v.type == TSR_STEP_TEXT ? v.text : "?");
    TRY(j->put(j->ctx, "family", text, strlen(text), err));
    TRY(j->read(j->ctx, s->o->notes, &data, &bytes, err));
    TRY(j->write(j->ctx, "notes", "notes.copy", data, bytes, err));
    return j->put(j->ctx, "tree", *s->o->tree ? s->o->tree : "null",
                  *s->o->tree ? strlen(s->o->tree) : 4, err);
}

static tsr_status section(const struct tsr_step_job *j, struct tsr_err *err)
{
    static const char *const head[] = { "a", "b" }, *const cells[] = { "<one>", "two" };
    TRY(j->text(j->ctx, "A paragraph of <probe>.", err));
    TRY(j->table(j->ctx, head, 2, err));
    return j->row(j->ctx, cells, 2, err);
}

static tsr_status wrong(struct step *s, const struct tsr_step_job *j, struct tsr_err *err)
{
    static const char *const cells[] = { "only" };
    struct tsr_step_value    v = empty();
    struct tsr_step_matrix   m = { .struct_size = sizeof m };
    const uint32_t           far[] = { 4000000000u };
    float                    f[4];
    switch (s->o->fault) {
    case F_undeclared:
        return j->number(j->ctx, "unknown", 1, err);
    case F_twice:
        return j->number(j->ctx, "eval_perplexity", 1, err);
    case F_nan:
        return j->number(j->ctx, "late", NAN, err);
    case F_text_nan:
        return j->put(j->ctx, "late", "[1, NaN]", 8, err);
    case F_figure_nan:
        return j->figure(j->ctx, "loss", -INFINITY, NULL, err);
    case F_no_json:
        return j->put(j->ctx, "late", "{\"a\":", 5, err);
    case F_leaves:
        return j->write(j->ctx, "file", "sub/../../x", "x", 1, err);
    case F_absolute:
        return j->write(j->ctx, "file", "/tmp/x", "x", 1, err);
    case F_hidden:
        return j->write(j->ctx, "file", ".x", "x", 1, err);
    case F_results:
        return j->write(j->ctx, "file", "results.json", "x", 1, err);
    case F_as_json:
        return j->number(j->ctx, "file", 1, err);
    case F_input:
        return j->input(j->ctx, "compare", &v, err);
    case F_matrix:
        return j->matrix(j->ctx, 1u << 20, &m, err);
    case F_rows:
        return j->rows(j->ctx, 0, TSR_STEP_ORIGINAL, UINT64_MAX, 2, f, err);
    case F_token:
        return j->logits(j->ctx, far, 1, f, err);
    case F_row_cells:
        return j->row(j->ctx, cells, 1, err);
    case F_late:
        s->kept = j;
        return TSR_OK;
    case F_status:
        return -77;
    default:
        return TSR_OK;
    }
}

static tsr_status run(void *self, const struct tsr_step_job *j, struct tsr_err *err)
{
    struct step *s = self;
    TRY(inputs(s, j, err));
    TRY(section(j, err));
    TRY(wrong(s, j, err));
    TRY(weights(j, err));
    TRY(measure(s, j, err));
    if (s->o->fault != F_missing && s->o->fault != F_late)
        TRY(j->number(j->ctx, "late", 2.5, err));
    else if (s->o->fault == F_late)
        TRY(j->put(j->ctx, "late", "{\"of\": [1, \"two\"]}", 18, err));
    return j->write(j->ctx, "file", "empty", NULL, 0, err);
}

#define PRODUCT(form, name)                                                                        \
    {                                                                                              \
        sizeof(struct tsr_step_product), form, name, "Of the probe."                               \
    }
static const struct tsr_step_product list[] = {
    PRODUCT(TSR_STEP_JSON, "eval_perplexity"),
    PRODUCT(TSR_STEP_JSON, "family"),
    PRODUCT(TSR_STEP_FILE, "notes"),
    PRODUCT(TSR_STEP_JSON, "tree"),
    PRODUCT(TSR_STEP_FILE, "up"),
    PRODUCT(TSR_STEP_FILE, "packed"),
    PRODUCT(TSR_STEP_JSON, "format"),
    PRODUCT(TSR_STEP_JSON, "layers"),
    PRODUCT(TSR_STEP_FILE, "logits"),
    PRODUCT(TSR_STEP_JSON, "ids"),
    PRODUCT(TSR_STEP_JSON, "perplexity"),
    PRODUCT(TSR_STEP_JSON, "kl"),
    PRODUCT(TSR_STEP_JSON, "late"),
    PRODUCT(TSR_STEP_FILE, "file"),
};
static const struct tsr_step_product *const products[] = {
    &list[0], &list[1], &list[2], &list[3],  &list[4],  &list[5],  &list[6],
    &list[7], &list[8], &list[9], &list[10], &list[11], &list[12], &list[13],
};
static const char *const probe_inputs[] = { "eval" };

static const struct tsr_step_v1 probe_table = {
    .struct_size = sizeof probe_table,
    .needs = TSR_STEP_MODEL | TSR_STEP_TOKENIZER,
    .inputs = probe_inputs,
    .n_inputs = 1,
    .products = products,
    .n_products = sizeof products / sizeof *products,
    .create = create,
    .destroy = destroy,
    .run = run,
    .check = check,
};

/* ---- after ----------------------------------------------------------------------------------- */

static tsr_status run_after(void *self, const struct tsr_step_job *j, struct tsr_err *err)
{
    struct tsr_step_value ids = empty(), v = empty();
    const void           *data;
    uint64_t              bytes;
    double                sum = 0;
    (void)self;
    TRY(j->input(j->ctx, "probe/ids", &ids, err));
    for (uint64_t i = 0; i < ids.n; i++) {
        j->item(j->ctx, &ids, i, &v);
        sum += v.number;
    }
    TRY(j->file(j->ctx, "probe/notes", &data, &bytes, err));
    TRY(j->number(j->ctx, "sum", sum, err));
    return j->number(j->ctx, "bytes", (double)bytes, err);
}

static const struct tsr_step_product        sum = PRODUCT(TSR_STEP_JSON, "sum");
static const struct tsr_step_product        count = PRODUCT(TSR_STEP_JSON, "bytes");
static const struct tsr_step_product *const after_products[] = { &sum, &count };
static const char *const                    after_inputs[] = { "probe/ids", "probe/notes" };
static const char *const                    lost_inputs[] = { "probe/nothing", "oracle" };

static const struct tsr_step_v1 after_table = {
    .struct_size = sizeof after_table,
    .inputs = after_inputs,
    .n_inputs = 2,
    .products = after_products,
    .n_products = 2,
    .create = create,
    .destroy = destroy,
    .run = run_after,
};
static const struct tsr_step_v1 lost_table = {
    .struct_size = sizeof lost_table,
    .inputs = lost_inputs,
    .n_inputs = 2,
    .create = create,
    .destroy = destroy,
    .run = run_after,
};

#define COMPONENT(n, t)                                                                            \
    {                                                                                              \
        .struct_size = sizeof(struct tsr_component), .option_stride = sizeof(struct tsr_option),   \
        .kind = TSR_KIND_STEP, .name = n, .summary = "A step for tests.", .iface = &(t),           \
        .options = options, .n_options = sizeof options / sizeof *options,                         \
        .options_size = sizeof(struct options)                                                     \
    }
static const struct tsr_component        probe = COMPONENT("probe", probe_table);
static const struct tsr_component        after = COMPONENT("after", after_table);
static const struct tsr_component        lost = COMPONENT("lost", lost_table);
static const struct tsr_component *const components[] = { &probe, &after, &lost };

TSR_PLUGIN_SYMBOL(steps) = {
    TSR_PLUGIN_HEADER,    .id = "org.example.steps", .version = "1.0.0", .license = "MIT",
    .build = __VERSION__, .components = components,  .n_components = 3,
};
