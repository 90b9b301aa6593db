/* Rows through templates. */
#include "tasks/documents.h"

#include "base/json.h"
#include "base/mem.h"
#include "eval/text.h"
#include "eval/wikitext.h"
#include "tasks/shots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tsr_tasks_reader {
    const struct tsr_tasks_task *t;
    const struct tsr_tasks_rows *rows, *from;
    struct tsr_tasks_shots      *shots;
    uint64_t                     at;
};

void tsr_tasks_request(const struct tsr_tasks_document *d, uint64_t i,
                       const struct tsr_tokenizer_text **context,
                       const struct tsr_tokenizer_text **continuation)
{
    static const struct tsr_tokenizer_text none = { 0 };
    *context = i < d->n && d->n_contexts ? &d->context[i % d->n_contexts] : &none;
    *continuation = &d->continuation[i % d->n_continuations];
}

void tsr_tasks_document_free(struct tsr_tasks_document *d)
{
    for (uint64_t i = 0; d->context && i < d->n_contexts; i++)
        tsr_tokenizer_text_free(&d->context[i]);
    for (uint64_t i = 0; d->continuation && i < d->n_continuations; i++)
        tsr_tokenizer_text_free(&d->continuation[i]);
    free(d->context);
    free(d->continuation);
    free(d->characters);
    free(d->bytes);
    *d = (struct tsr_tasks_document){ 0 };
}

/* ---- templates ---------------------------------------------------------------------- */

static tsr_status render(const struct tsr_template *t, const json_t *row,
                         struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    struct tsr_template_values v = { .own = row, .strict = true };
    struct tsr_template_text   text;
    if (!t)
        return TSR_OK;
    tsr_status st = tsr_template_render(t, &v, &text, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_text_append(out, text.s, text.n, err);
    tsr_template_text_free(&text);
    return st;
}

static tsr_status make_texts(struct tsr_tokenizer_text **v, uint64_t *n, uint64_t wanted,
                             struct tsr_err *err)
{
    *v = tsr_new(wanted, sizeof **v);
    if (!*v)
        return tsr_fail_nomem(err, wanted * sizeof **v, "requests");
    *n = wanted;
    return TSR_OK;
}

static tsr_status take_list(const json_t *list, struct tsr_tokenizer_text **v, uint64_t *n,
                            struct tsr_err *err)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return tsr_fail(err, TSR_E_INPUT, "the choices are not a list of texts");
    TSR_TRY(make_texts(v, n, json_array_size(list), err));
    for (uint64_t i = 0; i < *n; i++) {
        const json_t *s = json_array_get(list, i);
        if (!json_is_string(s))
            return tsr_fail(err, TSR_E_INPUT, "choice %llu is not a text", (unsigned long long)i);
        TSR_TRY(
            tsr_tokenizer_text_append(&(*v)[i], json_string_value(s), json_string_length(s), err));
    }
    return TSR_OK;
}

/* What there is to choose from: choices, or contexts. */
static tsr_status render_options(const struct tsr_tasks_task *t, const json_t *row,
                                 struct tsr_tokenizer_text **v, uint64_t *n, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    json_t                   *list = NULL;
    if (!t->options) {
        TSR_TRY(make_texts(v, n, t->n_options, err));
        for (uint64_t i = 0; i < *n; i++)
            TSR_TRY(render(t->option[i], row, &(*v)[i], err));
        return TSR_OK;
    }
    tsr_status st = render(t->options, row, &text, err);
    if (st == TSR_OK) /* JSON has no line of its own */
        st = tsr_json_parse(&list, "choices", text.v, text.n, 8, err);
    if (st == TSR_OK)
        st = take_list(list, v, n, err);
    json_decref(list);
    tsr_tokenizer_text_free(&text);
    return st;
}

static tsr_status render_answer(const struct tsr_tasks_task *t, const json_t *row, uint64_t n,
                                uint64_t *answer, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    char                     *end = NULL;
    TSR_TRY(render(t->answer, row, &text, err));
    errno = 0;
    *answer = text.n ? strtoull(text.v, &end, 10) : 0;
    bool good = text.n && text.v[0] >= '0' && text.v[0] <= '9' && !*end && !errno &&
                strlen(text.v) == text.n && *answer < n;
    tsr_status st = good ? TSR_OK
                         : tsr_fail(err, TSR_E_INPUT,
                                    "the answer '%.60s' is not the place of a choice, 0 to %llu",
                                    text.n ? text.v : "", (unsigned long long)n - 1);
    tsr_tokenizer_text_free(&text);
    return st;
}

/* ---- a document without its shots --------------------------------------------------- */

/* The delimiter before a choice, whose length counts without it. */
static tsr_status delimit(const struct tsr_tasks_task *t, struct tsr_tokenizer_text *choice,
                          struct tsr_err *err)
{
    struct tsr_tokenizer_text all = { 0 };
    tsr_status st = tsr_tokenizer_text_append(&all, t->delimiter, strlen(t->delimiter), err);
    if (st == TSR_OK && choice->n)
        st = tsr_tokenizer_text_append(&all, choice->v, choice->n, err);
    tsr_tokenizer_text_free(choice);
    *choice = all;
    return st;
}

static tsr_status read_text(const struct tsr_tasks_task *t, const json_t *row,
                            struct tsr_tasks_document *d, struct tsr_err *err)
{
    struct tsr_tokenizer_text page = { 0 };
    TSR_TRY(make_texts(&d->continuation, &d->n_continuations, 1, err));
    tsr_status  st = render(t->text, row, &page, err);
    const char *v = page.v ? page.v : "";
    d->words = tsr_eval_count_words(v, page.n);
    d->text_bytes = page.n;
    if (st == TSR_OK && t->detokenize)
        st = tsr_eval_wikitext_detokenize(v, page.n, d->continuation, err);
    else if (st == TSR_OK)
        st = tsr_tokenizer_text_append(d->continuation, v, page.n, err);
    tsr_tokenizer_text_free(&page);
    return st;
}

static tsr_status read_choices(const struct tsr_tasks_task *t, const json_t *row,
                               struct tsr_tasks_document *d, struct tsr_err *err)
{
    bool contexts = t->kind == TSR_TASKS_CONTEXTS;
    if (contexts) {
        TSR_TRY(render_options(t, row, &d->context, &d->n_contexts, err));
        TSR_TRY(make_texts(&d->continuation, &d->n_continuations, 1, err));
        TSR_TRY(render(t->continuation, row, d->continuation, err));
    } else {
        TSR_TRY(make_texts(&d->context, &d->n_contexts, 1, err));
        TSR_TRY(render(t->context, row, d->context, err));
        TSR_TRY(render_options(t, row, &d->continuation, &d->n_continuations, err));
    }
    d->n = contexts ? d->n_contexts : d->n_continuations;
    d->characters = tsr_new(d->n, sizeof *d->characters);
    d->bytes = tsr_new(d->n, sizeof *d->bytes);
    if (!d->characters || !d->bytes)
        return tsr_fail_nomem(err, d->n * sizeof *d->bytes, "requests");
    for (uint64_t i = 0; i < d->n_continuations; i++) {
        struct tsr_tokenizer_text *c = &d->continuation[i];
        d->bytes[i] = c->n;
        d->characters[i] = c->n ? tsr_eval_count_characters(c->v, c->n) : 0;
        TSR_TRY(delimit(t, c, err));
    }
    return render_answer(t, row, d->n, &d->answer, err);
}

static tsr_status read_row(const struct tsr_tasks_task *t, const json_t *row,
                           struct tsr_tasks_document *d, struct tsr_err *err)
{
    *d = (struct tsr_tasks_document){ .n = 1 };
    if (t->kind == TSR_TASKS_TEXT)
        return read_text(t, row, d, err);
    if (t->kind != TSR_TASKS_CONTINUATION)
        return read_choices(t, row, d, err);
    TSR_TRY(make_texts(&d->context, &d->n_contexts, 1, err));
    TSR_TRY(make_texts(&d->continuation, &d->n_continuations, 1, err));
    TSR_TRY(render(t->context, row, d->context, err));
    return render(t->continuation, row, d->continuation, err);
}

/* ---- shots -------------------------------------------------------------------------- */

static tsr_status add_text(struct tsr_tokenizer_text *to, const struct tsr_tokenizer_text *t,
                           struct tsr_err *err)
{
    return t->n ? tsr_tokenizer_text_append(to, t->v, t->n, err) : TSR_OK;
}

/* Question, answer and what divides it from the next. */
static tsr_status add_shot(const struct tsr_tasks_task *t, const json_t *row,
                           struct tsr_tokenizer_text *to, struct tsr_err *err)
{
    struct tsr_tasks_document d;
    tsr_status                st = read_row(t, row, &d, err);
    if (st == TSR_OK)
        st = add_text(to, &d.context[d.n_contexts > 1 ? d.answer : 0], err);
    if (st == TSR_OK && t->kind == TSR_TASKS_CONTINUATION) /* a continuation brings no delimiter */
        st = tsr_tokenizer_text_append(to, t->delimiter, strlen(t->delimiter), err);
    if (st == TSR_OK)
        st = add_text(to, &d.continuation[d.n_continuations > 1 ? d.answer : 0], err);
    if (st == TSR_OK)
        st = tsr_tokenizer_text_append(to, t->shot_delimiter, strlen(t->shot_delimiter), err);
    tsr_tasks_document_free(&d);
    return st;
}

/* Description and shots before every context. */
static tsr_status add_before(struct tsr_tasks_reader *r, struct tsr_tasks_document *d,
                             struct tsr_err *err)
{
    struct tsr_tokenizer_text before = { 0 };
    const uint64_t           *rows = NULL;
    uint64_t                  n = 0;
    tsr_status st = render(r->t->description, json_array_get(r->rows->list, r->at), &before, err);
    if (st == TSR_OK)
        st = tsr_tasks_shots_next(r->shots, r->at, &rows, &n, &d->group, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        st = add_shot(r->t, json_array_get(r->from->list, rows[i]), &before, err);
        if (st != TSR_OK)
            st = tsr_err_prefix(err, st, "%s: row %llu", r->from->path,
                                (unsigned long long)rows[i] + 1);
    }
    for (uint64_t i = 0; i < d->n_contexts && before.n && st == TSR_OK; i++) {
        struct tsr_tokenizer_text all = { 0 };
        st = add_text(&all, &before, err);
        if (st == TSR_OK)
            st = add_text(&all, &d->context[i], err);
        tsr_tokenizer_text_free(&d->context[i]);
        d->context[i] = all;
    }
    tsr_tokenizer_text_free(&before);
    return st;
}

/* ---- the reader --------------------------------------------------------------------- */

tsr_status tsr_tasks_reader_create(struct tsr_tasks_reader **out, const struct tsr_tasks_task *t,
                                   const struct tsr_tasks_rows *rows,
                                   const struct tsr_tasks_rows *from, uint64_t shots,
                                   struct tsr_err *err)
{
    struct tsr_tasks_reader *r = tsr_new(1, sizeof *r);
    *out = NULL;
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, t->name);
    *r = (struct tsr_tasks_reader){ .t = t, .rows = rows, .from = from };
    tsr_status st =
        shots && t->kind == TSR_TASKS_TEXT
            ? tsr_fail(err, TSR_E_INPUT, "task '%s' scores texts, which have no shots", t->name)
            : tsr_tasks_shots_create(&r->shots, t, rows, from, shots, err);
    if (st != TSR_OK) {
        tsr_tasks_reader_destroy(r);
        return st;
    }
    *out = r;
    return TSR_OK;
}

void tsr_tasks_reader_destroy(struct tsr_tasks_reader *r)
{
    if (!r)
        return;
    tsr_tasks_shots_destroy(r->shots);
    free(r);
}

void tsr_tasks_reader_restart(struct tsr_tasks_reader *r)
{
    r->at = 0;
    tsr_tasks_shots_restart(r->shots);
}

uint64_t tsr_tasks_reader_rows(const struct tsr_tasks_reader *r)
{
    return json_array_size(r->rows->list);
}

uint64_t tsr_tasks_reader_groups(const struct tsr_tasks_reader *r)
{
    return tsr_tasks_shots_groups(r->shots);
}

const char *tsr_tasks_reader_group(const struct tsr_tasks_reader *r, uint64_t i)
{
    return tsr_tasks_shots_group(r->shots, i);
}

static bool has_metric(const struct tsr_tasks_task *t, enum tsr_tasks_metric m)
{
    for (uint64_t i = 0; i < t->n_metrics; i++)
        if (t->metrics[i] == m)
            return true;
    return false;
}

tsr_status tsr_tasks_reader_next(struct tsr_tasks_reader *r, struct tsr_tasks_document *d,
                                 struct tsr_err *err)
{
    tsr_status st = read_row(r->t, json_array_get(r->rows->list, r->at), d, err);
    if (st == TSR_OK)
        st = add_before(r, d, err);
    d->n_requests = has_metric(r->t, TSR_TASKS_ACC_MUTUAL_INFO) ? 2 * d->n : d->n;
    r->at++;
    if (st == TSR_OK)
        return TSR_OK;
    tsr_tasks_document_free(d);
    return tsr_err_prefix(err, st, "%s: row %llu", r->rows->path, (unsigned long long)r->at);
}
