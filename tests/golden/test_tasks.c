/* Named tasks against lm-evaluation-harness: the letters of every request, its tokens, log-likelihoods and metrics. */
#include "golden.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/tokenizer.h"
#include "tasks/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES TSR_SOURCE_ROOT "/tests/golden/tasks/"
#define TASKS TSR_SOURCE_ROOT "/configs/tasks/"

static const char *const folders[] = {
    "arc_easy",
    "arc_challenge",
    "hellaswag",
    "piqa",
    "openbookqa",
    "sciq",
    "winogrande",
    "boolq",
    "truthfulqa_mc1",
    "mmlu_anatomy",
    "mmlu_abstract_algebra",
    "mmlu_miscellaneous",
    "lambada_openai",
    "wikitext",
    "arc_easy-2shot",
    "winogrande-2shot",
    "mmlu_anatomy-2shot",
    "openbookqa-more-metrics",
    "wikitext-nobos",
    "hellaswag-nobos",
    NULL,
};
static const struct {
    const char *name, *path;
} models[] = { { "demo", TSR_SOURCE_ROOT "/configs/demo" },
               { "stories260k", TSR_SOURCE_ROOT "/tests/golden/models/stories260k" } };

static struct tsr_registry *registry;
static struct tsr_pool     *pool;
static uint64_t each = 1, first; /* folders first, first + each, ... are run on the models */

struct opened {
    struct tsr_tasks_task   *task;
    struct tsr_tasks_rows    rows, from, requests;
    struct tsr_tasks_reader *reader;
    json_t                  *results;
};

/* ---- folders ------------------------------------------------------------------------ */

static void must(tsr_status st, const struct tsr_errbuf *e, const char *where)
{
    if (st != TSR_OK)
        fail_msg("%s: %s", where, e->text);
}

/* The task of a folder; of the one with more metrics, its text with those. */
static struct tsr_tasks_task *open_task(const char *folder)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_diag       *d;
    struct tsr_tasks_task *t = NULL;
    char                   name[64], *text, *at;
    uint64_t               len;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(folder, "-"), folder);
    if (strncmp(name, "mmlu_", 5) == 0)
        name[4] = '\0';
    must(tsr_config_diag_create(&d, &e.err), &e, folder);
    if (strstr(folder, "-more-metrics")) {
        char more[4096];
        must(tsr_file_slurp(TASKS "openbookqa.yaml", sizeof more, &text, &len, &e.err), &e, folder);
        at = strstr(text, "metrics:");
        assert_non_null(at);
        (void)snprintf(more, sizeof more,
                       "%.*smetrics: [acc, acc_norm, acc_bytes, acc_mutual_info]\n",
                       (int)(at - text), text);
        must(tsr_tasks_read(&t, "more", more, strlen(more), d, &e.err), &e, folder);
        free(text);
    } else {
        must(tsr_tasks_open(&t, name, d, &e.err), &e, folder);
    }
    tsr_config_diag_destroy(d);
    return t;
}

static void open_folder(struct opened *o, const char *folder)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              in[1024], results[1100];
    *o = (struct opened){ .task = open_task(folder) };
    (void)snprintf(in, sizeof in, CASES "%s", folder);
    (void)snprintf(results, sizeof results, "%s/results.json", in);
    must(tsr_tasks_rows_find(&o->rows, o->task, "docs", in, &e.err), &e, folder);
    must(tsr_tasks_rows_find(&o->requests, o->task, "requests", in, &e.err), &e, folder);
    must(tsr_json_load(&o->results, results, 1 << 24, 16, &e.err), &e, folder);
    uint64_t shots = (uint64_t)json_integer_value(json_object_get(o->results, "num_fewshot"));
    if (shots)
        must(tsr_tasks_rows_find(&o->from, o->task, "fewshot", in, &e.err), &e, folder);
    must(tsr_tasks_reader_create(&o->reader, o->task, &o->rows, shots ? &o->from : NULL, shots,
                                 &e.err),
         &e, folder);
}

static void close_folder(struct opened *o)
{
    tsr_tasks_reader_destroy(o->reader);
    tsr_tasks_rows_free(&o->rows);
    tsr_tasks_rows_free(&o->from);
    tsr_tasks_rows_free(&o->requests);
    tsr_tasks_destroy(o->task);
    json_decref(o->results);
}

static void same_text(const char *where, uint64_t i, const char *key, const json_t *request,
                      const struct tsr_tokenizer_text *t)
{
    const json_t *s = json_object_get(request, key);
    if (json_string_length(s) != t->n || (t->n && memcmp(json_string_value(s), t->v, t->n) != 0))
        fail_msg("%s, request %llu, %s: '%s', recorded '%s'", where, (unsigned long long)i, key,
                 t->n ? t->v : "", json_string_value(s));
}

static void test_requests(void **state)
{
    (void)state;
    for (int f = 0; folders[f]; f++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct opened     o;
        uint64_t          at = 0;
        open_folder(&o, folders[f]);
        for (uint64_t i = 0; i < tsr_tasks_reader_rows(o.reader); i++) {
            struct tsr_tasks_document d;
            must(tsr_tasks_reader_next(o.reader, &d, &e.err), &e, folders[f]);
            for (uint64_t k = 0; k < d.n_requests; k++, at++) {
                const json_t                    *request = json_array_get(o.requests.list, at);
                const struct tsr_tokenizer_text *context, *continuation;
                tsr_tasks_request(&d, k, &context, &continuation);
                assert_int_equal(json_integer_value(json_object_get(request, "doc")), i);
                if (o.task->kind == TSR_TASKS_TEXT) {
                    same_text(folders[f], at, "text", request, continuation);
                    continue;
                }
                same_text(folders[f], at, "context", request, context);
                same_text(folders[f], at, "continuation", request, continuation);
            }
            tsr_tasks_document_free(&d);
        }
        assert_int_equal(at, json_array_size(o.requests.list));
        close_folder(&o);
    }
}

/* ---- on a model --------------------------------------------------------------------- */

struct on {
    const char              *name;
    struct tsr_model        *model;
    struct tsr_tokenizer    *tokenizer;
    struct tsr_engine       *engine;
    struct tsr_eval_encoding how;
};

static void open_model(struct on *m, int i)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *m = (struct on){ .name = models[i].name };
    must(tsr_model_load(&m->model, models[i].path, false, &e.err), &e, m->name);
    must(tsr_checkpoint_tokenizer_load(&m->tokenizer, models[i].path, &e.err), &e, m->name);
    m->engine = golden_engine(registry, m->model, NULL,
                              (struct tsr_engine_options){ .slots = 1, .kv_dtype = TSR_F32 });
    m->how = (struct tsr_eval_encoding){ .tokenizer = m->tokenizer, .model = m->model };
}

static void close_model(struct on *m)
{
    tsr_engine_destroy(m->engine);
    tsr_tokenizer_destroy(m->tokenizer);
    tsr_model_destroy(m->model);
}

static int64_t int_of(const json_t *j, const char *key)
{
    return json_integer_value(json_object_get(j, key));
}

static double real_of(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

static void same_ids(const char *where, uint64_t at, const json_t *list, const uint32_t *ids,
                     uint64_t n)
{
    if (json_array_size(list) != n)
        fail_msg("%s, request %llu: %llu tokens, recorded %zu", where, (unsigned long long)at,
                 (unsigned long long)n, json_array_size(list));
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(ids[i], json_integer_value(json_array_get(list, i)));
}

static void near(const char *where, uint64_t at, double value, double recorded, bool text)
{
    double room = text ? fmax(1e-3, 1e-6 * fabs(recorded)) : 1e-3;
    if (!(fabs(value - recorded) <= room))
        fail_msg("%s, request %llu: log-likelihood %.9g, recorded %.9g", where,
                 (unsigned long long)at, value, recorded);
}

/* Tokens of a request, and what the log says of it. */
static void check_request(struct on *m, const char *where, uint64_t at, const json_t *line,
                          const json_t *recorded, bool text)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_text context = { 0 }, continuation = { 0 };
    struct tsr_tokenizer_ids  ids = { 0 };
    uint64_t                  from;
    const json_t             *before = json_object_get(line, "context"),
                 *rest = json_object_get(line, text ? "text" : "continuation");
    near(where, at, real_of(line, "loglikelihood"), real_of(recorded, "loglikelihood"), text);
    if (text)
        return;
    assert_int_equal(json_is_true(json_object_get(line, "is_greedy")),
                     json_is_true(json_object_get(recorded, "is_greedy")));
    assert_int_equal(int_of(line, "context_tokens"), int_of(recorded, "context_tokens"));
    assert_int_equal(int_of(line, "cut"), int_of(recorded, "cut"));
    must(tsr_tokenizer_text_append(&context, json_string_value(before), json_string_length(before),
                                   &e.err),
         &e, where);
    must(tsr_tokenizer_text_append(&continuation, json_string_value(rest), json_string_length(rest),
                                   &e.err),
         &e, where);
    must(tsr_eval_encode_pair(&m->how, &context, &continuation, &ids, &from, &e.err), &e, where);
    same_ids(where, at, json_object_get(recorded, "continuation_ids"), ids.v + from, ids.n - from);
    tsr_tokenizer_text_free(&context);
    tsr_tokenizer_text_free(&continuation);
    tsr_tokenizer_ids_free(&ids);
}

static void check_metric(const char *where, const char *name, double value, const json_t *recorded,
                         bool relative)
{
    double want = json_number_value(recorded), room = relative ? 1e-4 * fabs(want) : 1e-9;
    if (!json_is_number(recorded) ? !isnan(value) : !(fabs(value - want) <= room))
        fail_msg("%s: %s is %.12g, recorded %.12g", where, name, value, want);
}

static void check_metrics(const struct opened *o, const char *where,
                          const struct tsr_tasks_summary *s, const json_t *recorded)
{
    for (uint64_t k = 0; k < o->task->n_metrics; k++) {
        char        error[64];
        const char *name = tsr_tasks_metric_name(o->task->metrics[k]);
        bool        relative = o->task->metrics[k] >= TSR_TASKS_PERPLEXITY;
        (void)snprintf(error, sizeof error, "%s_stderr", name);
        check_metric(where, name, s->metric[k].value, json_object_get(recorded, name), relative);
        /* the bootstrap of a perplexity raises what log-likelihoods differ by to a power */
        if (o->task->metrics[k] == TSR_TASKS_PERPLEXITY)
            assert_true(fabs(s->metric[k].stderr_value / real_of(recorded, error) - 1) < 1e-3);
        else
            check_metric(where, error, s->metric[k].stderr_value, json_object_get(recorded, error),
                         relative);
    }
}

static void run_folder(struct on *m, const char *folder)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_tasks_result r;
    struct tsr_tasks_rows   lines;
    struct tsr_writer       log = { 0 };
    struct opened           o;
    char                    where[128], *in, path[1024];
    (void)snprintf(where, sizeof where, "%s on %s", folder, m->name);
    m->how.no_bos = strstr(folder, "-nobos") != NULL;
    open_folder(&o, folder);
    must(tsr_temp_folder(&in, "tasks", &e.err), &e, where);
    (void)snprintf(path, sizeof path, "%s/log.jsonl", in);
    must(tsr_writer_open(&log, path, &e.err), &e, where);
    must(tsr_tasks_run(o.reader, o.task, m->engine, &m->how, &log, &r, &e.err), &e, where);
    must(tsr_writer_commit(&log, &e.err), &e, where);
    must(tsr_tasks_rows_find(&lines, o.task, "log", in, &e.err), &e, where);
    tsr_temp_folder_remove(in);
    const json_t *of = json_object_get(json_object_get(o.results, "models"), m->name);
    const json_t *recorded = json_object_get(of, "requests");
    assert_int_equal(json_array_size(lines.list), json_array_size(recorded));
    for (uint64_t i = 0; i < json_array_size(recorded); i++)
        check_request(m, where, i, json_array_get(lines.list, i), json_array_get(recorded, i),
                      o.task->kind == TSR_TASKS_TEXT);
    check_metrics(&o, where, &r.all, json_object_get(of, "metrics"));
    /* choices share their context */
    if (o.task->kind == TSR_TASKS_CHOICES)
        assert_true(r.tokens_shared > r.tokens_run / 4);
    tsr_tasks_result_free(&r);
    tsr_tasks_rows_free(&lines);
    close_folder(&o);
}

static void test_scores(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct on m;
        open_model(&m, i);
        for (uint64_t f = 0; folders[f]; f++)
            if (f % each == first)
                run_folder(&m, folders[f]);
        close_model(&m);
    }
}

/* ---- edge --------------------------------------------------------------------------- */

/* A text with the model's strings in place of their marks. */
static void put_marked(const json_t *s, const json_t *of, struct tsr_tokenizer_text *out)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    const char              *p = s ? json_string_value(s) : "", *end = p + json_string_length(s);
    static const char *const marks[] = { "@BOS@", "@EOS@" }, *const keys[] = { "bos", "eos" };
    must(tsr_tokenizer_text_append(out, "", 0, &e.err), &e, "edge");
    while (p < end) {
        int         k = strncmp(p, marks[0], 5) == 0 ? 0 : strncmp(p, marks[1], 5) == 0 ? 1 : -1;
        const char *put = k < 0 ? p : json_string_value(json_object_get(of, keys[k]));
        must(tsr_tokenizer_text_append(out, put, k < 0 ? 1 : strlen(put), &e.err), &e, "edge");
        p += k < 0 ? 1 : 5;
    }
}

static void check_windows(struct on *m, uint64_t at, const struct tsr_tokenizer_text *text,
                          const json_t *windows)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    uint64_t                 n = 0;
    must(tsr_eval_encode_rolling(&m->how, text, &ids, &e.err), &e, m->name);
    for (uint64_t done = 0, begin, end; done + 1 < ids.n; done = end, n++) {
        const json_t *w = json_array_get(windows, n);
        tsr_eval_rolling_window(ids.n, tsr_engine_context(m->engine), done, &begin, &end);
        same_ids(m->name, at, json_object_get(w, "context_ids"), ids.v + begin, done + 1 - begin);
        same_ids(m->name, at, json_object_get(w, "continuation_ids"), ids.v + done + 1, end - done);
    }
    assert_int_equal(n, json_array_size(windows));
    tsr_tokenizer_ids_free(&ids);
}

static void check_pair(struct on *m, uint64_t at, const struct tsr_tokenizer_text *context,
                       const struct tsr_tokenizer_text *continuation, const json_t *recorded)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    uint64_t                 from;
    must(tsr_eval_encode_pair(&m->how, context, continuation, &ids, &from, &e.err), &e, m->name);
    same_ids(m->name, at, json_object_get(recorded, "context_ids"), ids.v, from);
    same_ids(m->name, at, json_object_get(recorded, "continuation_ids"), ids.v + from,
             ids.n - from);
    tsr_tokenizer_ids_free(&ids);
}

/* What a request shares with the one before changes no bit. */
static void same_alone(struct on *m, const struct tsr_tokenizer_text *context,
                       const struct tsr_tokenizer_text  *continuation,
                       const struct tsr_eval_likelihood *shared)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_eval_scorer    *s;
    struct tsr_eval_likelihood alone, again;
    uint64_t                   ran, kept;
    must(tsr_eval_scorer_create(&s, m->engine, m->tokenizer, false, &e.err), &e, m->name);
    must(tsr_eval_scorer_pair(s, context, continuation, &alone, &e.err), &e, m->name);
    must(tsr_eval_scorer_pair(s, context, continuation, &again, &e.err), &e, m->name);
    tsr_eval_scorer_counts(s, &ran, &kept);
    assert_int_equal(kept, alone.context - alone.cut - 1);
    assert_memory_equal(&alone.sum, &shared->sum, sizeof alone.sum);
    assert_memory_equal(&alone.sum, &again.sum, sizeof alone.sum);
    tsr_eval_scorer_destroy(s);
}

static void edge_on(struct on *m)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_tasks_rows   requests;
    json_t                 *results;
    struct tsr_eval_scorer *s;
    struct tsr_tasks_task  *t = open_task("arc_easy"); /* any */
    must(tsr_tasks_rows_find(&requests, t, "requests", CASES "edge", &e.err), &e, "edge");
    tsr_tasks_destroy(t);
    must(tsr_json_load(&results, CASES "edge/results.json", 1 << 24, 16, &e.err), &e, "edge");
    must(tsr_eval_scorer_create(&s, m->engine, m->tokenizer, false, &e.err), &e, "edge");
    const json_t *of = json_object_get(json_object_get(results, "models"), m->name);
    for (uint64_t i = 0; i < json_array_size(requests.list); i++) {
        const json_t              *q = json_array_get(requests.list, i);
        const json_t              *r = json_array_get(json_object_get(of, "requests"), i);
        bool                       text = json_object_get(q, "text") != NULL;
        struct tsr_tokenizer_text  a = { 0 }, b = { 0 };
        struct tsr_eval_likelihood l;
        put_marked(json_object_get(q, "context"), of, &a);
        put_marked(json_object_get(q, text ? "text" : "continuation"), of, &b);
        tsr_status st = text ? tsr_eval_scorer_text(s, &b, &l, &e.err)
                             : tsr_eval_scorer_pair(s, &a, &b, &l, &e.err);
        if (json_object_get(r, "error")) {
            assert_int_equal(st, TSR_E_INPUT);
        } else {
            must(st, &e, m->name);
            near(m->name, i, l.sum, real_of(r, "loglikelihood"), text);
            if (!text)
                same_alone(m, &a, &b, &l);
            if (text)
                check_windows(m, i, &b, json_object_get(r, "windows"));
            else
                check_pair(m, i, &a, &b, r);
            if (!text)
                assert_int_equal(l.is_greedy, json_is_true(json_object_get(r, "is_greedy")));
        }
        tsr_tokenizer_text_free(&a);
        tsr_tokenizer_text_free(&b);
    }
    tsr_eval_scorer_destroy(s);
    tsr_tasks_rows_free(&requests);
    json_decref(results);
}

static void test_edge(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct on m;
        open_model(&m, i);
        edge_on(&m);
        close_model(&m);
    }
}

int main(int argc, char **argv)
{
    const char *seed = getenv("TSR_TEST_SEED"), *all = getenv("TSR_TEST_ALL");
    if (argc > 1 && !(all && *all)) {
        each = strtoull(argv[1], NULL, 10);
        each = each ? each : 1;
        first = (seed ? strtoull(seed, NULL, 10) : 1) % each;
        print_message("one folder of %d, TSR_TEST_SEED=%d\n", (int)each, (int)first);
    }
    registry = golden_registry(2, NULL, &pool);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_requests),
                                        cmocka_unit_test(test_edge),
                                        cmocka_unit_test(test_scores) };
    int                     rc = cmocka_run_group_tests(tests, NULL, NULL);
    golden_registry_close(registry, pool);
    return rc;
}
