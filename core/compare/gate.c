/* fail_if: "[ARM.|ARM/OTHER.]METRIC OP NUMBER", one or a list of them.  What cannot be measured does
 * not pass. */
#include "compare/compare.h"
#include "compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 200u
#define TASKS    "tasks."
#define HOW      "write METRIC OP NUMBER, such as kl.mean > 0.05 or rtn4.delta.high >= 0.01"

/* What can be asked of an arm; of a pair, delta, kl_delta alone. */
static const char *const metrics[] = {
    "perplexity",
    "mean_nll",
    "bytes",
    "bits_per_weight",
    "delta.mean",
    "delta.se",
    "delta.low",
    "delta.high",
    "delta.p",
    "delta.p_holm",
    "delta.detectable",
    "ratio.value",
    "ratio.low",
    "ratio.high",
    "kl.mean",
    "kl.se",
    "kl.low",
    "kl.high",
    "kl.min",
    "kl.max",
    "kl.median",
    "kl.p99",
    "kl.percentiles.99.9",
    "kl.percentiles.99",
    "kl.percentiles.95",
    "kl.percentiles.90",
    "top1",
    "top1_interval.low",
    "top1_interval.high",
    "delta_p.mean",
    "delta_p.low",
    "delta_p.high",
    "delta_p.rms",
    "a8.perplexity",
    "choices.accuracy",
    "choices.low",
    "choices.high",
    "choices.p",
    "choices.p_holm",
    "choices.normalized.accuracy",
    "speed.prefill_tokens_per_s",
    "speed.decode_tokens_per_s",
    "speed.prefill_ratio.median",
    "speed.prefill_ratio.low",
    "speed.prefill_ratio.high",
    "speed.decode_ratio.median",
    "speed.decode_ratio.low",
    "speed.decode_ratio.high",
    "kl_delta.mean",
    "kl_delta.low",
    "kl_delta.high",
    "kl_delta.p",
    "kl_delta.p_holm",
};
#define N_METRICS  (sizeof metrics / sizeof *metrics)
#define FIRST_PAIR (N_METRICS - 5)

struct expression {
    char        arm[MAX_TEXT], other[MAX_TEXT]; /* "": any arm, no pair */
    const char *metric;                         /* a path of the result */
    char        of_task[MAX_TEXT];              /* what `metric` is if it is of a task */
    char        op[3];
    double      number;
};

/* Of a task's metric, after "tasks.NAME.delta.METRIC.". */
static const char *const differences[] = {
    "value", "low", "high", "p", "p_holm", "mcnemar_p", "bootstrap_p", "needed",
};
#define N_DIFFERENCES (sizeof differences / sizeof *differences)

static bool has_arm(const struct compare *c, const char *name)
{
    for (uint64_t i = 0; i < c->n; i++)
        if (strcmp(c->arms[i].name, name) == 0)
            return true;
    return false;
}

static bool has_pair(const struct compare *c, const char *a, const char *b)
{
    for (uint64_t i = 0; i < c->n_pairs; i++)
        if (strcmp(c->pairs[i].arm, a) == 0 && strcmp(c->pairs[i].against, b) == 0)
            return true;
    return false;
}

/* Copies up to the first of `stop` and steps over it. */
static const char *word(const char *s, const char *stop, char out[MAX_TEXT])
{
    size_t n = strcspn(s, stop);
    if (n >= MAX_TEXT)
        n = MAX_TEXT - 1;
    memcpy(out, s, n);
    out[n] = '\0';
    return s + n;
}

static const struct tsr_tasks_task *task_of(const struct compare *c, const char *name)
{
    for (uint64_t i = 0; i < tsr_pipeline_tasks_count(c->tasks); i++)
        if (strcmp(tsr_pipeline_tasks_task(c->tasks, i)->name, name) == 0)
            return tsr_pipeline_tasks_task(c->tasks, i);
    return NULL;
}

/* Whether rest is "acc" or "acc_stderr", of an arm, or "delta.acc.low". */
static bool is_of_task(const struct tsr_tasks_task *t, const char *rest, bool pair)
{
    for (uint64_t k = 0; k < t->n_metrics; k++) {
        const char *name = tsr_tasks_metric_name(t->metrics[k]);
        size_t      n = strlen(name);
        if (!pair && strncmp(rest, name, n) == 0 && (!rest[n] || strcmp(rest + n, "_stderr") == 0))
            return true;
        if (strncmp(rest, "delta.", 6) != 0 || strncmp(rest + 6, name, n) != 0 ||
            rest[6 + n] != '.')
            continue;
        for (uint64_t i = 0; i < N_DIFFERENCES; i++)
            if (strcmp(rest + 7 + n, differences[i]) == 0)
                return true;
    }
    return false;
}

/* "tasks.NAME.REST"; NULL, or the error. */
static const char *parse_task(const struct compare *c, const char *name, struct expression *e,
                              char hint[MAX_TEXT])
{
    char                         task[MAX_TEXT];
    const char                  *rest = word(name + strlen(TASKS), ".", task);
    const struct tsr_tasks_task *t = task_of(c, task);
    if (!t) {
        (void)snprintf(hint, MAX_TEXT, "%s", "a task that 'measure' lists, by its name");
        return "there is no such task";
    }
    if (*rest != '.' || !is_of_task(t, rest + 1, *e->other != '\0')) {
        (void)snprintf(hint, MAX_TEXT, "such as %s%.60s.delta.%s.low", TASKS, t->name,
                       tsr_tasks_metric_name(t->metrics[0]));
        return "the task has no such number";
    }
    (void)snprintf(e->of_task, sizeof e->of_task, "%s", name);
    e->metric = e->of_task;
    return NULL;
}

/* NULL, or the error; hint may be set. */
static const char *parse(const struct compare *c, const char *text, struct expression *e,
                         char hint[MAX_TEXT])
{
    char        left[MAX_TEXT], *end;
    const char *s = word(text + strspn(text, " "), " <>", left), *name = left;
    *e = (struct expression){ 0 };
    (void)snprintf(hint, MAX_TEXT, "%s", HOW);
    s += strspn(s, " ");
    size_t n = strspn(s, "<>=");
    if (n == 0 || n > 2 || !(*s == '<' || *s == '>') || (n == 2 && s[1] != '='))
        return "the comparison must be one of >, >=, <, <=";
    memcpy(e->op, s, n);
    s += n;
    e->number = strtod(s, &end);
    if (end == s || end[strspn(end, " ")] || !isfinite(e->number))
        return "a number must follow the comparison";
    char        first[MAX_TEXT];
    const char *rest = word(left, ".", first);
    char       *slash = strchr(first, '/');
    if (slash) {
        *slash = '\0';
        if (!has_pair(c, first, slash + 1))
            return "this pair is not in 'pairs'";
        (void)snprintf(e->other, sizeof e->other, "%s", slash + 1);
    }
    if (*rest == '.' && (slash || has_arm(c, first))) {
        (void)snprintf(e->arm, sizeof e->arm, "%s", first);
        name = rest + 1;
    }
    if (strncmp(name, TASKS, strlen(TASKS)) == 0)
        return parse_task(c, name, e, hint);
    for (uint64_t i = 0; i < N_METRICS; i++)
        if (strcmp(metrics[i], name) == 0 &&
            (i >= FIRST_PAIR || strncmp(name, "delta.", 6) == 0 ? i < FIRST_PAIR || *e->other
                                                                : !*e->other))
            e->metric = metrics[i];
    if (e->metric)
        return NULL;
    const char *near = tsr_config_nearest(name, metrics, N_METRICS);
    if (near && strcmp(near, name) != 0)
        (void)snprintf(hint, MAX_TEXT, "did you mean '%s'?", near);
    else
        (void)snprintf(hint, MAX_TEXT, "%s", "docs/formats/results.md lists the numbers of an arm");
    return "there is no such metric, or no such arm";
}

static void check_one(const struct compare *c, const struct tsr_config_node *n, struct tsr_diag *d)
{
    struct expression e;
    char              hint[MAX_TEXT];
    if (n->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &n->mark, HOW,
                              "'fail_if' must be an expression or a list of them");
        return;
    }
    const char *wrong = parse(c, n->text, &e, hint);
    if (wrong)
        tsr_config_diag_error(d, &n->mark, hint, "'%.80s': %s", n->text, wrong);
}

void compare_check_gate(const struct compare *c, struct tsr_diag *d)
{
    const struct tsr_config_node *f = c->keys.fail_if;
    if (f && f->kind != TSR_CONFIG_NODE_LIST)
        check_one(c, f, d);
    for (uint64_t i = 0; f && f->kind == TSR_CONFIG_NODE_LIST && i < f->n; i++)
        check_one(c, f->items[i], d);
}

/* ---- the result ------------------------------------------------------------------------- */

/* The number at a path like kl.percentiles.99.9; NaN if there is none. */
static double number_at(const json_t *o, const char *path)
{
    for (;;) {
        const json_t *v = json_object_get(o, path);
        if (v)
            return json_is_number(v) ? json_number_value(v) : (double)NAN;
        char first[MAX_TEXT];
        path = word(path, ".", first);
        if (*path != '.')
            return NAN;
        o = json_object_get(o, first);
        path++;
    }
}

/* False only for a number that does not fulfil it. */
static bool holds(const struct expression *e, double v)
{
    if (isnan(v))
        return true;
    if (e->op[0] == '>')
        return e->op[1] ? v >= e->number : v > e->number;
    return e->op[1] ? v <= e->number : v < e->number;
}

static bool concerns(const struct expression *e, const json_t *a, size_t i, bool pairs, bool base)
{
    const char *key = pairs ? "arm" : "name", *name = json_string_value(json_object_get(a, key));
    const char *other = json_string_value(json_object_get(a, "against"));
    if (pairs != (*e->other != '\0') || !name)
        return false;
    if (pairs)
        return strcmp(name, e->arm) == 0 && other && strcmp(other, e->other) == 0;
    return *e->arm ? strcmp(name, e->arm) == 0 : i > 0 || base;
}

/* "rtn4", or "rtn4/gptq4" of a pair; fresh reference. */
static json_t *name_of(const json_t *a, bool pair)
{
    const char *arm = json_string_value(json_object_get(a, pair ? "arm" : "name"));
    const char *other = json_string_value(json_object_get(a, "against"));
    char        text[2 * MAX_TEXT];
    (void)snprintf(text, sizeof text, "%.150s%s%.150s", arm ? arm : "", pair ? "/" : "",
                   pair && other ? other : "");
    return json_string(text);
}

/* All that fulfil the condition, or cannot be measured.  `arm` and `value` are of the first of them, else of the last that was
 * looked at. */
static bool judge(json_t *list, const json_t *result, const struct expression *e, const char *text,
                  bool base)
{
    const char   *keys[2] = { "arms", "pairs" }, *arm = NULL;
    double        value = NAN;
    json_t       *violators = json_array();
    bool          ok = violators != NULL;
    const json_t *a;
    size_t        i;
    for (int p = 0; p < 2; p++)
        json_array_foreach (json_object_get(result, keys[p]), i, a) {
            if (!concerns(e, a, i, p == 1, base))
                continue;
            double v = number_at(a, e->metric);
            if (json_array_size(violators) == 0) {
                value = v;
                arm = json_string_value(json_object_get(a, p ? "arm" : "name"));
            }
            if (!holds(e, v))
                continue;
            json_t *one = json_object();
            ok = tsr_pipeline_json_put(one, "arm", name_of(a, p == 1)) &&
                 tsr_pipeline_json_put_real(one, "value", v) && ok;
            ok = json_array_append_new(violators, one) == 0 && ok;
        }
    json_t *j = json_object();
    ok = tsr_pipeline_json_put_text(j, "expression", text) &&
         tsr_pipeline_json_put(j, "holds", json_boolean(json_array_size(violators) > 0)) &&
         tsr_pipeline_json_put_text(j, "arm", arm) &&
         tsr_pipeline_json_put_text(j, "metric", e->metric) &&
         tsr_pipeline_json_put_real(j, "value", value) && ok;
    ok = tsr_pipeline_json_put(j, "violators", violators) && ok;
    return json_array_append_new(list, j) == 0 && ok;
}

bool compare_put_gate(json_t *result, const struct compare *c)
{
    const struct tsr_config_node *f = c->keys.fail_if;
    json_t                       *gate = json_object(), *list = json_array();
    uint64_t                      n = !f ? 0 : f->kind == TSR_CONFIG_NODE_LIST ? f->n : 1;
    bool                          ok = true;
    for (uint64_t i = 0; ok && i < n; i++) {
        struct expression e;
        char              hint[MAX_TEXT];
        const char       *text = f->kind == TSR_CONFIG_NODE_LIST ? f->items[i]->text : f->text;
        ok = parse(c, text, &e, hint) == NULL && judge(list, result, &e, text, c->base != NULL);
    }
    ok = tsr_pipeline_json_put(gate, "fail_if", list) && ok;
    if (n)
        return tsr_pipeline_json_put(result, "gate", gate) && ok;
    json_decref(gate);
    return ok;
}
