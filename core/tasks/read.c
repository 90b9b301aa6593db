/* A task from its YAML file. */
#include "tasks/task.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a)    (sizeof(a) / sizeof *(a))
#define MAX_OPTIONS 1000u

struct head {
    const char                   *task, *name, *summary, *macros, *delimiter, *shot_delimiter, *by;
    const struct tsr_config_node *data, *description, *context, *contexts, *choices, *continuation,
        *answer, *text, *metrics;
    int64_t shots, order, detokenizer;
    int32_t spare;
};
struct data {
    const char *name, *config, *split, *shots;
};

#define TEXT(S, f, d, h)                                                                           \
    {                                                                                              \
        .name = #f, .help = (h), .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, f, const char *),  \
        .def = {                                                                                   \
            .s = (d)                                                                               \
        }                                                                                          \
    }
static const struct tsr_choice order_words[] = {
    { "sample", "drawn for each document, as Python's random.Random(1234).sample draws", 0 },
    { "first", "the first rows", 1 },
};
static const struct tsr_choice detokenizer_words[] = {
    { "none", "the text as it is", 0 },
    { "wikitext", "a page of WikiText without its spaces around marks", 1 },
};
static const struct tsr_option head_options[] = {
    TEXT(struct head, task, "", "Version of this form: " TSR_TASKS_FORMAT "."),
    TEXT(struct head, name, "", "Name of the task."),
    TEXT(struct head, summary, "", "What it asks, in one line."),
    TSR_OPTION_NODE(struct head, data, "The data set: name, config, split, shots."),
    TEXT(struct head, macros, "", "Put before each template."),
    TSR_OPTION_NODE(struct head, description, "Template of the text before the shots."),
    TSR_OPTION_NODE(struct head, context, "Template of the text before the continuation."),
    TSR_OPTION_NODE(struct head, contexts, "Contexts to choose from: templates, or one list."),
    TSR_OPTION_NODE(struct head, choices, "Continuations to choose from: templates, or one list."),
    TSR_OPTION_NODE(struct head, continuation, "Template of the only continuation."),
    TSR_OPTION_NODE(struct head, answer, "Template of the place of the right choice, from 0."),
    TSR_OPTION_NODE(struct head, text, "Template of a text that is scored as a whole."),
    TSR_OPTION_ENUM(struct head, detokenizer, 0, detokenizer_words, "What is done to the text."),
    TEXT(struct head, delimiter, " ", "Between context and choice."),
    TEXT(struct head, shot_delimiter, "\n\n", "After each shot."),
    { .name = "shots",
      .help = "Answered examples before each question, unless the run says otherwise.",
      .type = TSR_OPT_INT,
      .offset = TSR_FIELD(struct head, shots, int64_t),
      .max = { .i = 1000 } },
    TSR_OPTION_ENUM(struct head, order, 0, order_words, "Which rows become shots."),
    TSR_OPTION_BOOL(struct head, spare, 0,
                    "One shot more is drawn, and a row that equals the document is left out."),
    TEXT(struct head, by, "", "Field that divides the rows into groups with their own shots."),
    TSR_OPTION_NODE(struct head, metrics, "List of what is computed."),
};
static const struct tsr_option data_options[] = {
    TEXT(struct data, name, "", "Name on the hub."),
    TEXT(struct data, config, "", "Name of the configuration."),
    TEXT(struct data, split, "", "Split that is evaluated."),
    TEXT(struct data, shots, "", "Split of the shots."),
};

static const char *const metric_names[TSR_TASKS_METRICS] = {
    "acc",        "acc_norm",        "acc_bytes",       "acc_mutual_info",
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte",
};

const char *tsr_tasks_metric_name(enum tsr_tasks_metric m)
{
    return metric_names[m];
}

struct reading {
    struct tsr_tasks_task *t;
    struct tsr_diag       *d;
    struct head            h;
    tsr_status             status; /* other than what d takes */
    struct tsr_err        *err;
};

/* ---- templates ---------------------------------------------------------------------- */

/* Between the macros and an empty expression, so that a newline at the end of the text stays. */
static void compile(struct reading *r, const struct tsr_config_node *n, const char *what,
                    const char *text, size_t bytes, const char *end, struct tsr_template **out)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    size_t            macros = strlen(r->h.macros), tail = strlen(end);
    char             *all = tsr_new(macros + bytes + tail + 1, 1);
    if (!all) {
        r->status = tsr_fail_nomem(r->err, bytes, "a task");
        return;
    }
    memcpy(all, r->h.macros, macros);
    memcpy(all + macros, text, bytes);
    memcpy(all + macros + bytes, end, tail);
    tsr_status st = tsr_template_compile(out, what, all, macros + bytes + tail, &e.err);
    free(all);
    if (st == TSR_E_INPUT)
        tsr_config_diag_failure(r->d, &n->mark, &e.err);
    else if (st != TSR_OK)
        r->status = tsr_err_copy(r->err, st, &e.err);
}

static void read_template(struct reading *r, const struct tsr_config_node *n, const char *what,
                          struct tsr_template **out)
{
    if (!n)
        return;
    if (n->kind != TSR_CONFIG_NODE_SCALAR)
        tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' must be a template", what);
    else
        compile(r, n, what, n->text, strlen(n->text), "{{ '' }}", out);
}

/* "{{ EXPRESSION }}" of a list, which is rendered as JSON. */
static void read_expression(struct reading *r, const struct tsr_config_node *n, const char *what)
{
    size_t bytes = strlen(n->text), end = bytes;
    while (end > 0 && strchr(" \n\t", n->text[end - 1]))
        end--;
    if (end < 4 || strncmp(n->text, "{{", 2) != 0 || strncmp(n->text + end - 2, "}}", 2) != 0) {
        tsr_config_diag_error(r->d, &n->mark, "as in \"{{ choices.text }}\" or [\"no\", \"yes\"]",
                              "'%s' must be a list of templates, or one expression that is a list",
                              what);
        return;
    }
    size_t inside = end - 4;
    char  *text = tsr_new(inside + 32, 1);
    if (!text) {
        r->status = tsr_fail_nomem(r->err, inside, "a task");
        return;
    }
    (void)snprintf(text, inside + 32, "{{ (%.*s", (int)inside, n->text + 2);
    compile(r, n, what, text, strlen(text), ") | tojson }}", &r->t->options);
    free(text);
}

static void read_options(struct reading *r, const struct tsr_config_node *n, const char *what)
{
    struct tsr_tasks_task *t = r->t;
    if (n->kind == TSR_CONFIG_NODE_SCALAR) {
        read_expression(r, n, what);
        return;
    }
    if (n->kind != TSR_CONFIG_NODE_LIST || n->n < 2 || n->n > MAX_OPTIONS) {
        tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' must have at least two entries", what);
        return;
    }
    t->option = tsr_new(n->n, sizeof *t->option);
    if (!t->option) {
        r->status = tsr_fail_nomem(r->err, n->n * sizeof *t->option, "a task");
        return;
    }
    t->n_options = n->n;
    for (uint64_t i = 0; i < n->n; i++)
        read_template(r, n->items[i], what, &t->option[i]);
}

/* ---- what fits together ------------------------------------------------------------- */

static void read_kind(struct reading *r, const struct tsr_config_node *root)
{
    struct head *h = &r->h;
    bool         choices = h->context && h->choices && h->answer;
    bool         contexts = h->contexts && h->continuation && h->answer;
    bool         one = h->context && h->continuation && !h->answer;
    int          given = (h->context != NULL) + (h->contexts != NULL) + (h->choices != NULL) +
                (h->continuation != NULL) + (h->text != NULL);
    if (choices && given == 2)
        r->t->kind = TSR_TASKS_CHOICES;
    else if (contexts && given == 2)
        r->t->kind = TSR_TASKS_CONTEXTS;
    else if (one && given == 2)
        r->t->kind = TSR_TASKS_CONTINUATION;
    else if (h->text && given == 1 && !h->answer)
        r->t->kind = TSR_TASKS_TEXT;
    else
        tsr_config_diag_error(r->d, &root->mark, NULL,
                              "a task has context, choices and answer; or contexts, continuation "
                              "and answer; or context and continuation; or text");
}

static bool fits(enum tsr_tasks_kind kind, enum tsr_tasks_metric m)
{
    switch (kind) {
    case TSR_TASKS_CHOICES:
        return m <= TSR_TASKS_ACC_MUTUAL_INFO;
    case TSR_TASKS_CONTEXTS:
        return m == TSR_TASKS_ACC;
    case TSR_TASKS_CONTINUATION:
        return m == TSR_TASKS_ACC || m == TSR_TASKS_PERPLEXITY;
    case TSR_TASKS_TEXT:
        return m >= TSR_TASKS_WORD_PERPLEXITY;
    }
    return false;
}

static void read_metric(struct reading *r, const struct tsr_config_node *n)
{
    struct tsr_tasks_task *t = r->t;
    unsigned               m = 0;
    if (n->kind == TSR_CONFIG_NODE_SCALAR)
        while (m < TSR_TASKS_METRICS && strcmp(n->text, metric_names[m]) != 0)
            m++;
    if (n->kind != TSR_CONFIG_NODE_SCALAR || m == TSR_TASKS_METRICS) {
        tsr_config_diag_error(r->d, &n->mark,
                              "known: acc, acc_norm, acc_bytes, acc_mutual_info, perplexity, "
                              "word_perplexity, byte_perplexity, bits_per_byte",
                              "a metric must be one that is known");
        return;
    }
    for (uint64_t i = 0; i < t->n_metrics; i++)
        if (t->metrics[i] == (enum tsr_tasks_metric)m) {
            tsr_config_diag_error(r->d, &n->mark, NULL, "metric '%s' is listed twice", n->text);
            return;
        }
    if (!fits(t->kind, (enum tsr_tasks_metric)m))
        tsr_config_diag_error(r->d, &n->mark, NULL, "metric '%s' is not one of a task like this",
                              n->text);
    else
        t->metrics[t->n_metrics++] = (enum tsr_tasks_metric)m;
}

static void read_metrics(struct reading *r, const struct tsr_config_node *root)
{
    const struct tsr_config_node *n = r->h.metrics;
    if (!n || n->kind != TSR_CONFIG_NODE_LIST || n->n == 0) {
        tsr_config_diag_error(r->d, n ? &n->mark : &root->mark, NULL,
                              "'metrics' must be a list, as in [acc, acc_norm]");
        return;
    }
    for (uint64_t i = 0; i < n->n; i++)
        read_metric(r, n->items[i]);
}

static void read_data(struct reading *r, const struct tsr_config_node *root)
{
    struct data data = { 0 };
    tsr_config_options_fill(&(struct tsr_config_optset){ data_options, COUNT(data_options),
                                                         sizeof *data_options, &data },
                            1, NULL, r->h.data, "'data'", r->d);
    r->t->dataset = data.name;
    r->t->config = data.config;
    r->t->split = data.split;
    r->t->shot_split = data.shots;
    if (!r->h.data || !*data.name || !*data.split)
        tsr_config_diag_error(r->d, r->h.data ? &r->h.data->mark : &root->mark, NULL,
                              "'data' needs the name of the data set and the split");
}

static void read_head(struct reading *r, const struct tsr_config_node *root)
{
    struct tsr_tasks_task *t = r->t;
    struct head           *h = &r->h;
    uint64_t               before = tsr_config_diag_errors(r->d);
    tsr_config_options_fill(&(struct tsr_config_optset){ head_options, COUNT(head_options),
                                                         sizeof *head_options, h },
                            1, NULL, root, "a task", r->d);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    if (strcmp(h->task, TSR_TASKS_FORMAT) != 0 || !*h->name)
        tsr_config_diag_error(r->d, &root->mark, NULL, "a task has 'task: %s' and a name",
                              TSR_TASKS_FORMAT);
    t->name = h->name;
    t->summary = h->summary;
    t->delimiter = h->delimiter;
    t->shot_delimiter = h->shot_delimiter;
    t->by = h->by;
    t->shots = h->shots;
    t->first = h->order == 1;
    t->spare = h->spare;
    t->detokenize = h->detokenizer == 1;
    read_data(r, root);
    read_kind(r, root);
    read_template(r, h->description, "description", &t->description);
    read_template(r, h->context, "context", &t->context);
    read_template(r, h->continuation, "continuation", &t->continuation);
    read_template(r, h->answer, "answer", &t->answer);
    read_template(r, h->text, "text", &t->text);
    if (h->choices || h->contexts)
        read_options(r, h->choices ? h->choices : h->contexts, h->choices ? "choices" : "contexts");
    read_metrics(r, root);
}

void tsr_tasks_destroy(struct tsr_tasks_task *t)
{
    if (!t)
        return;
    tsr_template_destroy(t->description);
    tsr_template_destroy(t->context);
    tsr_template_destroy(t->continuation);
    tsr_template_destroy(t->answer);
    tsr_template_destroy(t->text);
    tsr_template_destroy(t->options);
    for (uint64_t i = 0; t->option && i < t->n_options; i++)
        tsr_template_destroy(t->option[i]);
    free(t->option);
    tsr_config_doc_destroy(t->doc);
    free(t);
}

tsr_status tsr_tasks_read(struct tsr_tasks_task **out, const char *name, const char *text,
                          uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    struct reading r = { .t = tsr_new(1, sizeof *r.t), .d = d, .status = TSR_OK, .err = err };
    *out = NULL;
    if (!r.t)
        return tsr_fail_nomem(err, sizeof *r.t, name);
    tsr_status st = tsr_config_doc_parse(&r.t->doc, name, text, len, d, err);
    if (st == TSR_OK) {
        const struct tsr_config_node *root = tsr_config_doc_root(r.t->doc);
        if (root)
            read_head(&r, root);
        st = r.status != TSR_OK ? r.status : tsr_config_diag_status(d, err);
    }
    if (st != TSR_OK) {
        tsr_tasks_destroy(r.t);
        return st;
    }
    *out = r.t;
    return TSR_OK;
}
