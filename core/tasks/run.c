#include "tasks/run.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct run {
    struct tsr_tasks_reader     *reader;
    const struct tsr_tasks_task *t;
    struct tsr_eval_scorer      *scorer;
    struct tsr_writer           *log;
    struct tsr_tasks_result     *out;
    struct tsr_eval_likelihood  *l; /* of a document's requests */
    uint64_t                     cap;
};

void tsr_tasks_result_free(struct tsr_tasks_result *r)
{
    free(r->group);
    tsr_tasks_marks_destroy(r->marks);
    *r = (struct tsr_tasks_result){ 0 };
}

/* ---- how long requests are ---------------------------------------------------------- */

static tsr_status count_document(const struct tsr_tasks_task *t, const struct tsr_tasks_document *d,
                                 const struct tsr_eval_encoding *how, uint64_t *longest,
                                 struct tsr_err *err)
{
    for (uint64_t i = 0; i < d->n_requests; i++) {
        const struct tsr_tokenizer_text *context, *continuation;
        struct tsr_tokenizer_ids         ids = { 0 };
        uint64_t                         from;
        tsr_tasks_request(d, i, &context, &continuation);
        tsr_status st = t->kind == TSR_TASKS_TEXT
                            ? tsr_eval_encode_rolling(how, continuation, &ids, err)
                            : tsr_eval_encode_pair(how, context, continuation, &ids, &from, err);
        *longest = ids.n > *longest ? ids.n : *longest;
        tsr_tokenizer_ids_free(&ids);
        TSR_TRY(st);
    }
    return TSR_OK;
}

tsr_status tsr_tasks_context(struct tsr_tasks_reader *r, const struct tsr_tasks_task *t,
                             const struct tsr_eval_encoding *how, uint64_t *context,
                             struct tsr_err *err)
{
    uint64_t longest = 2, max = how->model->hp.max_positions;
    tsr_tasks_reader_restart(r);
    for (uint64_t i = 0; i < tsr_tasks_reader_rows(r); i++) {
        struct tsr_tasks_document d;
        TSR_TRY(tsr_tasks_reader_next(r, &d, err));
        tsr_status st = count_document(t, &d, how, &longest, err);
        tsr_tasks_document_free(&d);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "task '%s', document %llu", t->name,
                                  (unsigned long long)i);
    }
    *context = longest < max ? longest : max;
    return TSR_OK;
}

/* ---- the log ------------------------------------------------------------------------ */

static json_t *text_json(const struct tsr_tokenizer_text *t)
{
    return json_stringn(t->n ? t->v : "", t->n);
}

static tsr_status log_request(struct run *r, uint64_t document, uint64_t i,
                              const struct tsr_tokenizer_text  *context,
                              const struct tsr_tokenizer_text  *continuation,
                              const struct tsr_eval_likelihood *l, struct tsr_err *err)
{
    json_t  *j = json_object();
    char    *line;
    uint64_t n;
    bool     text = r->t->kind == TSR_TASKS_TEXT;
    tsr_json_set(&j, "task", json_string(r->t->name));
    tsr_json_set(&j, "doc", json_integer((json_int_t)document));
    tsr_json_set(&j, "index", json_integer((json_int_t)i));
    tsr_json_set(&j, "type", json_string(text ? "loglikelihood_rolling" : "loglikelihood"));
    if (!text)
        tsr_json_set(&j, "context", text_json(context));
    tsr_json_set(&j, text ? "text" : "continuation", text_json(continuation));
    tsr_json_set(&j, "loglikelihood", json_real(l->sum));
    if (!text) {
        tsr_json_set(&j, "is_greedy", json_boolean(l->is_greedy));
        tsr_json_set(&j, "context_tokens", json_integer((json_int_t)l->context));
    }
    tsr_json_set(&j, "tokens", json_integer((json_int_t)l->tokens));
    if (l->cut)
        tsr_json_set(&j, "cut", json_integer((json_int_t)l->cut));
    tsr_status st = j ? tsr_json_text(j, JSON_COMPACT, &line, &n, err)
                      : tsr_fail_nomem(err, 64, "the log of a task");
    json_decref(j);
    TSR_TRY(st);
    tsr_writer_put(r->log, line, n);
    tsr_writer_put(r->log, "\n", 1);
    free(line);
    return TSR_OK;
}

/* ---- documents ---------------------------------------------------------------------- */

static tsr_status run_request(struct run *r, const struct tsr_tasks_document *d, uint64_t document,
                              uint64_t i, struct tsr_err *err)
{
    const struct tsr_tokenizer_text *context, *continuation;
    struct tsr_eval_likelihood      *l = &r->l[i];
    tsr_tasks_request(d, i, &context, &continuation);
    TSR_TRY(r->t->kind == TSR_TASKS_TEXT
                ? tsr_eval_scorer_text(r->scorer, continuation, l, err)
                : tsr_eval_scorer_pair(r->scorer, context, continuation, l, err));
    r->out->requests++;
    r->out->cut += l->cut > 0;
    return r->log ? log_request(r, document, i, context, continuation, l, err) : TSR_OK;
}

static tsr_status run_document(struct run *r, const struct tsr_tasks_document *d, uint64_t document,
                               struct tsr_err *err)
{
    if (d->n_requests > r->cap) {
        struct tsr_eval_likelihood *l = tsr_renew(r->l, d->n_requests, sizeof *l);
        if (!l)
            return tsr_fail_nomem(err, d->n_requests * sizeof *l, "requests");
        r->l = l;
        r->cap = d->n_requests;
    }
    for (uint64_t i = 0; i < d->n_requests; i++)
        TSR_TRY(run_request(r, d, document, i, err));
    tsr_tasks_marks_add(r->out->marks, d, r->l);
    return TSR_OK;
}

static tsr_status run_all(struct run *r, struct tsr_err *err)
{
    uint64_t n = tsr_tasks_reader_rows(r->reader);
    tsr_tasks_reader_restart(r->reader);
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_tasks_document d;
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "stopped in task '%s'", r->t->name);
        TSR_TRY(tsr_tasks_reader_next(r->reader, &d, err));
        tsr_status st = run_document(r, &d, i, err);
        tsr_tasks_document_free(&d);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "task '%s', document %llu", r->t->name,
                                  (unsigned long long)i);
        tsr_progress(r->t->name, i + 1, n);
    }
    return TSR_OK;
}

static tsr_status summarize(struct run *r, struct tsr_err *err)
{
    uint64_t groups = tsr_tasks_reader_groups(r->reader);
    TSR_TRY(tsr_tasks_marks_summarize(r->out->marks, UINT64_MAX, groups, &r->out->all, err));
    if (!*r->t->by)
        return TSR_OK;
    r->out->group = tsr_new(groups, sizeof *r->out->group);
    if (!r->out->group)
        return tsr_fail_nomem(err, groups * sizeof *r->out->group, "groups");
    for (uint64_t g = 0; g < groups; g++)
        TSR_TRY(tsr_tasks_marks_summarize(r->out->marks, g, groups, &r->out->group[g], err));
    return TSR_OK;
}

tsr_status tsr_tasks_run(struct tsr_tasks_reader *reader, const struct tsr_tasks_task *t,
                         struct tsr_engine *e, const struct tsr_eval_encoding *how,
                         struct tsr_writer *log, struct tsr_tasks_result *out, struct tsr_err *err)
{
    struct run r = { .reader = reader, .t = t, .log = log, .out = out };
    double     begin = tsr_now_s();
    *out = (struct tsr_tasks_result){ 0 };
    tsr_status st = tsr_tasks_marks_create(&out->marks, t, tsr_tasks_reader_rows(reader), err);
    if (st == TSR_OK)
        st = tsr_eval_scorer_create(&r.scorer, e, how->tokenizer, how->no_bos, err);
    if (st == TSR_OK)
        st = run_all(&r, err);
    if (st == TSR_OK) {
        tsr_eval_scorer_counts(r.scorer, &out->tokens_run, &out->tokens_shared);
        st = summarize(&r, err);
    }
    out->seconds = tsr_now_s() - begin;
    tsr_eval_scorer_destroy(r.scorer);
    free(r.l);
    if (st != TSR_OK)
        tsr_tasks_result_free(out);
    return st;
}
