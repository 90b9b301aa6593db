/* Requests and answers of the golden's rows. */
#include "conformance/task/task.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN 40 /* bytes of a text in a message */

struct tsr_tasks_reader *tsr_task_reader(struct tsr_conformance_case  *c,
                                         const struct tsr_tasks_task  *t,
                                         const struct tsr_task_golden *g, size_t at)
{
    struct tsr_task_case     k = tsr_task_golden_case(g, at);
    struct tsr_tasks_reader *r = NULL;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    if (tsr_tasks_reader_create(&r, t, &g->rows, k.shots ? &g->shot_rows : NULL, k.shots, &e.err) !=
        TSR_OK)
        tsr_conformance_rule_fail(c, "cases[%zu]: %s", at, e.text);
    return r;
}

struct tsr_tasks_document tsr_task_document(struct tsr_conformance_case *c,
                                            struct tsr_tasks_reader *r, size_t at, uint64_t row)
{
    struct tsr_tasks_document d;
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    if (tsr_tasks_reader_next(r, &d, &e.err) != TSR_OK)
        tsr_conformance_rule_fail(c, "cases[%zu], row %llu: %s", at, (unsigned long long)row,
                                  e.text);
    return d;
}

/* The text of a request is the golden's, or the rule fails with the first place that differs. */
static void same(struct tsr_conformance_case *c, size_t at, uint64_t request, const char *what,
                 const struct tsr_tokenizer_text *is, const json_t *golden)
{
    const json_t *want = json_object_get(golden, what);
    const char   *w = json_string_value(want), *v = is->n ? is->v : "";
    uint64_t      n = json_string_length(want), i = 0;
    if (!w)
        tsr_conformance_rule_fail(c, "cases[%zu].requests[%llu] has no %s in the golden", at,
                                  (unsigned long long)request, what);
    while (i < n && i < is->n && w[i] == v[i])
        i++;
    if (i == n && i == is->n)
        return;
    uint64_t from = i < SHOWN / 2 ? 0 : i - SHOWN / 2;
    tsr_conformance_rule_fail(c,
                              "cases[%zu].requests[%llu].%s differs from byte %llu on: the file "
                              "makes \"%.*s\", the golden has \"%.*s\"",
                              at, (unsigned long long)request, what, (unsigned long long)i,
                              (int)(is->n - from < SHOWN ? is->n - from : SHOWN), v + from,
                              (int)(n - from < SHOWN ? n - from : SHOWN), w + from);
}

static void check_case(struct tsr_conformance_case *c, const struct tsr_tasks_task *t,
                       const struct tsr_task_golden *g, size_t at)
{
    struct tsr_task_case     k = tsr_task_golden_case(g, at);
    struct tsr_tasks_reader *r = tsr_task_reader(c, t, g, at);
    uint64_t                 n = 0, wanted = json_array_size(k.requests);
    for (uint64_t row = 0; row < tsr_tasks_reader_rows(r); row++) {
        struct tsr_tasks_document d = tsr_task_document(c, r, at, row);
        for (uint64_t i = 0; i < d.n_requests; i++, n++) {
            const struct tsr_tokenizer_text *context, *continuation;
            const json_t                    *golden = json_array_get(k.requests, n);
            if (!golden)
                tsr_conformance_rule_fail(c,
                                          "cases[%zu]: the golden has %llu requests, the file "
                                          "makes more",
                                          at, (unsigned long long)wanted);
            tsr_tasks_request(&d, i, &context, &continuation);
            if (t->kind != TSR_TASKS_TEXT)
                same(c, at, n, "context", context, golden);
            same(c, at, n, t->kind == TSR_TASKS_TEXT ? "text" : "continuation", continuation,
                 golden);
        }
        tsr_tasks_document_free(&d);
    }
    if (n != wanted)
        tsr_conformance_rule_fail(c,
                                  "cases[%zu]: the golden has %llu requests, the file makes %llu",
                                  at, (unsigned long long)wanted, (unsigned long long)n);
}

void tsr_task_rule_requests(struct tsr_conformance_case *c)
{
    struct tsr_tasks_task *t = tsr_task_under_check(c);
    struct tsr_task_golden g;
    tsr_task_golden_need(c, &g);
    for (size_t i = 0; i < json_array_size(g.g.cases); i++)
        check_case(c, t, &g, i);
}

static void check_answers(struct tsr_conformance_case *c, const struct tsr_tasks_task *t,
                          const struct tsr_task_golden *g, size_t at)
{
    struct tsr_task_case     k = tsr_task_golden_case(g, at);
    struct tsr_tasks_reader *r = tsr_task_reader(c, t, g, at);
    uint64_t                 rows = tsr_tasks_reader_rows(r);
    if (json_array_size(k.answers) != rows)
        tsr_conformance_rule_fail(c, "cases[%zu]: the golden has %zu answers for %llu rows", at,
                                  json_array_size(k.answers), (unsigned long long)rows);
    for (uint64_t row = 0; row < rows; row++) {
        struct tsr_tasks_document d = tsr_task_document(c, r, at, row);
        const json_t             *want = json_array_get(k.answers, row);
        if (!json_is_integer(want) || (uint64_t)json_integer_value(want) != d.answer)
            tsr_conformance_rule_fail(
                c, "cases[%zu], row %llu: the file's answer is choice %llu, the golden's %lld", at,
                (unsigned long long)row, (unsigned long long)d.answer,
                json_is_integer(want) ? (long long)json_integer_value(want) : -1);
        tsr_tasks_document_free(&d);
    }
}

void tsr_task_rule_answers(struct tsr_conformance_case *c)
{
    struct tsr_tasks_task *t = tsr_task_under_check(c);
    struct tsr_task_golden g;
    if (t->kind != TSR_TASKS_CHOICES && t->kind != TSR_TASKS_CONTEXTS)
        tsr_conformance_rule_skip(c, "the task has no choices");
    tsr_task_golden_need(c, &g);
    for (size_t i = 0; i < json_array_size(g.g.cases); i++)
        check_answers(c, t, &g, i);
}
