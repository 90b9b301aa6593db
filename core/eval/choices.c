#include "eval/choices.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "eval/likelihood.h"
#include "eval/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES   (UINT64_C(1) << 32)
#define MAX_CHOICES 1000u
#define JSON_DEPTH  16u
#define WHITE       " \t\r\n"

/* ---- the file ----------------------------------------------------------------------- */

static const json_t *first_of(const json_t *o, const char *const *names)
{
    for (; *names; names++)
        if (json_object_get(o, *names))
            return json_object_get(o, *names);
    return NULL;
}

static bool read_answer(const json_t *v, uint64_t n, uint64_t *answer)
{
    const char *s = tsr_json_word(v);
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        *answer = (uint64_t)json_integer_value(v);
    else if (s && s[0] >= 'A' && s[0] <= 'Z' && !s[1])
        *answer = (uint64_t)(s[0] - 'A');
    else
        return false;
    return *answer < n;
}

static bool is_white(char c)
{
    return c && strchr(WHITE, c);
}

/* A choice of n bytes, which is not empty, as it follows the context. */
static tsr_status with_space(const struct tsr_tokenizer_text *context, const char *choice,
                             uint64_t n, struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    if (context->n && !is_white(context->v[context->n - 1]) && !is_white(*choice))
        TSR_TRY(tsr_tokenizer_text_append(out, " ", 1, err));
    return tsr_tokenizer_text_append(out, choice, n, err);
}

static tsr_status take_line(struct tsr_eval_question *q, const char *name, const json_t *j,
                            struct tsr_err *err)
{
    static const char *const contexts[] = { "context", "question", "query", "ctx", "prompt", NULL };
    static const char *const answers[] = { "answer", "gold", "label", NULL };
    const json_t            *context = first_of(j, contexts), *list = json_object_get(j, "choices");
    size_t                   n = json_array_size(list);
    if (!json_is_string(context) || n < 2 || n > MAX_CHOICES)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: a question has a string \"context\" and a list \"choices\" of at "
                        "least two",
                        name);
    if (!read_answer(first_of(j, answers), n, &q->answer))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"answer\" must be the place of the right choice, from 0 to %zu", name,
                        n - 1);
    TSR_TRY(tsr_tokenizer_text_append(&q->context, json_string_value(context),
                                      json_string_length(context), err));
    q->choice = tsr_new(n, sizeof *q->choice);
    if (!q->choice)
        return tsr_fail_nomem(err, n * sizeof *q->choice, name);
    q->n = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(list, i);
        if (json_string_length(s) == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: choice %zu is %s", name, i,
                            json_is_string(s) ? "empty" : "not a text");
        TSR_TRY(with_space(&q->context, json_string_value(s), json_string_length(s), &q->choice[i],
                           err));
    }
    return TSR_OK;
}

static bool blank(const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!is_white(s[i]))
            return false;
    return true;
}

static tsr_status add_line(struct tsr_eval_choices *c, uint64_t *cap, const char *path,
                           uint64_t line, const char *s, uint64_t n, struct tsr_err *err)
{
    char    name[4200];
    json_t *j;
    (void)snprintf(name, sizeof name, "%.4096s:%llu", path, (unsigned long long)line);
    if (c->n == *cap) {
        uint64_t                  more = *cap ? 2 * *cap : 64;
        struct tsr_eval_question *q = tsr_renew(c->q, more, sizeof *q);
        if (!q)
            return tsr_fail_nomem(err, more * sizeof *q, path);
        c->q = q;
        *cap = more;
    }
    c->q[c->n] = (struct tsr_eval_question){ 0 };
    TSR_TRY(tsr_json_parse(&j, name, s, n, JSON_DEPTH, err));
    tsr_status st = json_is_object(j) ? take_line(&c->q[c->n++], name, j, err)
                                      : tsr_fail(err, TSR_E_INPUT, "%s: not an object", name);
    json_decref(j);
    return st;
}

tsr_status tsr_eval_choices_parse(struct tsr_eval_choices **out, const char *name, const char *text,
                                  uint64_t bytes, struct tsr_err *err)
{
    struct tsr_eval_choices *c = tsr_new(1, sizeof *c);
    uint64_t                 cap = 0, line = 0;
    const char              *p = text, *end = text + bytes;
    tsr_status               st = c ? TSR_OK : tsr_fail_nomem(err, sizeof *c, name);
    *out = NULL;
    while (st == TSR_OK && p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        uint64_t    n = nl ? (uint64_t)(nl - p) : (uint64_t)(end - p);
        line++;
        if (!blank(p, n))
            st = add_line(c, &cap, name, line, p, n, err);
        p += n + (nl != NULL);
    }
    if (st == TSR_OK && c->n == 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s holds no question", name);
    if (st != TSR_OK) {
        tsr_eval_choices_destroy(c);
        return st;
    }
    tsr_hash_bytes(text, bytes, c->hash);
    *out = c;
    return TSR_OK;
}

tsr_status tsr_eval_choices_load(struct tsr_eval_choices **c, const char *path, struct tsr_err *err)
{
    char    *text;
    uint64_t bytes;
    TSR_TRY(tsr_file_slurp(path, MAX_BYTES, &text, &bytes, err));
    tsr_status st = tsr_eval_choices_parse(c, path, text, bytes, err);
    free(text);
    return st;
}

void tsr_eval_choices_destroy(struct tsr_eval_choices *c)
{
    if (!c)
        return;
    for (uint64_t i = 0; i < c->n; i++) {
        for (uint64_t k = 0; c->q[i].choice && k < c->q[i].n; k++)
            tsr_tokenizer_text_free(&c->q[i].choice[k]);
        free(c->q[i].choice);
        tsr_tokenizer_text_free(&c->q[i].context);
    }
    free(c->q);
    free(c);
}

/* ---- scoring ------------------------------------------------------------------------ */

tsr_status tsr_eval_choices_context(const struct tsr_eval_choices *c, const struct tsr_tokenizer *t,
                                    const struct tsr_model *m, uint64_t *context,
                                    struct tsr_err *err)
{
    struct tsr_eval_encoding how = { .tokenizer = t, .model = m };
    uint64_t                 max = m->hp.max_positions;
    *context = 1;
    for (uint64_t i = 0; i < c->n; i++)
        for (uint64_t k = 0; k < c->q[i].n; k++) {
            struct tsr_tokenizer_ids ids = { 0 };
            uint64_t                 from;
            tsr_status               st =
                tsr_eval_encode_pair(&how, &c->q[i].context, &c->q[i].choice[k], &ids, &from, err);
            if (st == TSR_OK && ids.n > *context)
                *context = ids.n < max ? ids.n : max;
            tsr_tokenizer_ids_free(&ids);
            if (st != TSR_OK)
                return tsr_err_prefix(err, st, "question %llu", (unsigned long long)i + 1);
        }
    return TSR_OK;
}

/* Characters of a choice, without the space that was put in front. */
static double characters(const struct tsr_tokenizer_text *t)
{
    uint64_t space = *t->v == ' ', n = tsr_eval_count_characters(t->v + space, t->n - space);
    return n ? (double)n : 1;
}

static tsr_status ask(struct tsr_eval_scorer *s, const struct tsr_eval_question *q, char *mark,
                      char *normalized, bool *cut, struct tsr_err *err)
{
    double   best = -INFINITY, best_normalized = -INFINITY;
    uint64_t chosen = 0, chosen_normalized = 0;
    *cut = false;
    for (uint64_t k = 0; k < q->n; k++) {
        struct tsr_eval_likelihood l;
        TSR_TRY(tsr_eval_scorer_pair(s, &q->context, &q->choice[k], &l, err));
        *cut = *cut || l.cut;
        double by_length = l.sum / characters(&q->choice[k]);
        if (l.sum > best) {
            best = l.sum;
            chosen = k;
        }
        if (by_length > best_normalized) {
            best_normalized = by_length;
            chosen_normalized = k;
        }
    }
    *mark = chosen == q->answer ? '1' : '0';
    *normalized = chosen_normalized == q->answer ? '1' : '0';
    return TSR_OK;
}

static tsr_status ask_all(struct tsr_eval_scorer *s, const struct tsr_eval_choices *c,
                          struct tsr_eval_choice_marks *out, struct tsr_err *err)
{
    for (uint64_t i = 0; i < c->n; i++) {
        bool       cut = false;
        tsr_status st = tsr_plugin_cancelled()
                            ? tsr_fail(err, TSR_E_CANCELLED, "stopped in the questions")
                            : ask(s, &c->q[i], &out->marks[i], &out->normalized[i], &cut, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "question %llu", (unsigned long long)i + 1);
        out->cut += cut;
        out->right += out->marks[i] == '1';
        out->right_normalized += out->normalized[i] == '1';
        tsr_progress("questions", i + 1, c->n);
    }
    return TSR_OK;
}

tsr_status tsr_eval_choices_score(struct tsr_engine *e, const struct tsr_tokenizer *t,
                                  const struct tsr_eval_choices *c,
                                  struct tsr_eval_choice_marks *out, struct tsr_err *err)
{
    struct tsr_eval_scorer *s = NULL;
    *out = (struct tsr_eval_choice_marks){ .marks = tsr_new(c->n + 1, 1),
                                           .normalized = tsr_new(c->n + 1, 1),
                                           .n = c->n };
    tsr_status st = out->marks && out->normalized ? tsr_eval_scorer_create(&s, e, t, false, err)
                                                  : tsr_fail_nomem(err, c->n, "questions");
    if (st == TSR_OK)
        st = ask_all(s, c, out, err);
    tsr_eval_scorer_destroy(s);
    if (st == TSR_OK && out->cut)
        tsr_logf(TSR_LOG_WARN,
                 "%llu of %llu questions are longer than the %llu positions and lost tokens from "
                 "their front",
                 (unsigned long long)out->cut, (unsigned long long)c->n,
                 (unsigned long long)tsr_engine_context(e));
    if (st != TSR_OK)
        tsr_eval_choice_marks_free(out);
    return st;
}

void tsr_eval_choice_marks_free(struct tsr_eval_choice_marks *m)
{
    free(m->marks);
    free(m->normalized);
    *m = (struct tsr_eval_choice_marks){ 0 };
}

void tsr_eval_marks_discordant(const char *a, const char *b, uint64_t *only_a, uint64_t *only_b)
{
    *only_a = *only_b = 0;
    for (; *a && *b; a++, b++) {
        *only_a += *a == '1' && *b != '1';
        *only_b += *a != '1' && *b == '1';
    }
}
