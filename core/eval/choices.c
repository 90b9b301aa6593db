#include "eval/choices.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

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

/* ---- tokens ------------------------------------------------------------------------- */

/* Context and choice as one text; *from is the first token of the choice.  Spaces that end the
 * context belong to the choice, or the token that holds both would be split. */
static tsr_status join(const struct tsr_tokenizer *t, const struct tsr_tokenizer_text *context,
                       const struct tsr_tokenizer_text *choice, struct tsr_tokenizer_ids *ids,
                       uint64_t *from, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    struct tsr_tokenizer_ids  head = { 0 };
    uint64_t                  n = context->n;
    tsr_status                st = tsr_tokenizer_text_append(&text, context->v, n, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_text_append(&text, choice->v, choice->n, err);
    while (n && is_white(context->v[n - 1]))
        n--;
    if (st == TSR_OK)
        st = tsr_tokenize(t, text.v, text.n, TSR_TOKENIZER_SPECIAL, ids, err);
    if (st == TSR_OK)
        st = tsr_tokenize(t, text.v, n, TSR_TOKENIZER_SPECIAL, &head, err);
    *from = head.n;
    if (st == TSR_OK && (head.n == 0 || head.n >= ids->n))
        st = tsr_fail(err, TSR_E_INPUT,
                      head.n ? "the choice '%.60s' has no separate token"
                             : "nothing precedes the choice '%.60s', and the tokenizer puts no "
                               "token there",
                      choice->v);
    tsr_tokenizer_text_free(&text);
    tsr_tokenizer_ids_free(&head);
    return st;
}

tsr_status tsr_eval_choices_context(const struct tsr_eval_choices *c, const struct tsr_tokenizer *t,
                                    uint64_t max, uint64_t *context, struct tsr_err *err)
{
    *context = 1;
    for (uint64_t i = 0; i < c->n; i++)
        for (uint64_t k = 0; k < c->q[i].n; k++) {
            struct tsr_tokenizer_ids ids = { 0 };
            uint64_t                 from;
            tsr_status st = join(t, &c->q[i].context, &c->q[i].choice[k], &ids, &from, err);
            if (st == TSR_OK && ids.n > *context)
                *context = ids.n < max ? ids.n : max;
            tsr_tokenizer_ids_free(&ids);
            if (st != TSR_OK)
                return tsr_err_prefix(err, st, "question %llu", (unsigned long long)i + 1);
        }
    return TSR_OK;
}

/* ---- scoring ------------------------------------------------------------------------ */

struct scoring {
    struct tsr_engine          *e;
    const struct tsr_tokenizer *t;
    struct tsr_engine_token    *tokens;
    float                      *logits;
    uint64_t                    vocab, context, rows; /* rows that logits has room for */
    bool                        cut; /* a choice of this question lost tokens of its context */
};

/* Log-likelihood of ids[from ..] given the preceding ones. */
static tsr_status likelihood(struct scoring *s, const uint32_t *ids, uint64_t n, uint64_t from,
                             double *sum, struct tsr_err *err)
{
    uint64_t cut = n - 1 > s->context ? n - 1 - s->context : 0, wanted = n - from;
    if (cut >= from)
        return tsr_fail(err, TSR_E_INPUT, "a choice of %llu tokens does not fit %llu positions",
                        (unsigned long long)wanted, (unsigned long long)s->context);
    s->cut = s->cut || cut;
    if (wanted > s->rows) {
        uint64_t cells;
        free(s->logits);
        s->logits = NULL;
        s->rows = wanted;
        if (tsr_mul(wanted, s->vocab, &cells))
            s->logits = tsr_new_aligned(cells, sizeof *s->logits);
        if (!s->logits)
            return tsr_fail_nomem(err, wanted * s->vocab * 4, "logits");
    }
    for (uint64_t i = cut; i + 1 < n; i++)
        s->tokens[i - cut] = (struct tsr_engine_token){ .id = ids[i], .logits = i + 1 >= from };
    tsr_engine_reset(s->e, 0);
    TSR_TRY(tsr_engine_forward(s->e, s->tokens, n - 1 - cut, s->logits, err));
    *sum = 0.0;
    for (uint64_t i = 0; i < wanted; i++) {
        double lse;
        *sum -= tsr_eval_nll(s->logits + i * s->vocab, s->vocab, ids[from + i], &lse);
    }
    return isfinite(*sum)
               ? TSR_OK
               : tsr_fail(err, TSR_E_NUMERIC, "the likelihood of a choice is not finite");
}

/* Characters of UTF-8, without the space that was put in front. */
static double characters(const struct tsr_tokenizer_text *t)
{
    double n = 0;
    for (uint64_t i = *t->v == ' '; i < t->n; i++)
        n += ((unsigned char)t->v[i] & 0xc0) != 0x80;
    return n > 0 ? n : 1;
}

static tsr_status ask(struct scoring *s, const struct tsr_eval_question *q, char *mark,
                      char *normalized, struct tsr_err *err)
{
    double   best = -INFINITY, best_normalized = -INFINITY;
    uint64_t chosen = 0, chosen_normalized = 0;
    for (uint64_t k = 0; k < q->n; k++) {
        struct tsr_tokenizer_ids ids = { 0 };
        uint64_t                 from;
        double                   sum = NAN;
        tsr_status               st = join(s->t, &q->context, &q->choice[k], &ids, &from, err);
        for (uint64_t i = 0; st == TSR_OK && i < ids.n; i++)
            if (ids.v[i] >= s->vocab)
                st = tsr_fail(err, TSR_E_INPUT, "token %u is outside the vocabulary", ids.v[i]);
        if (st == TSR_OK)
            st = likelihood(s, ids.v, ids.n, from, &sum, err);
        tsr_tokenizer_ids_free(&ids);
        TSR_TRY(st);
        if (sum > best) {
            best = sum;
            chosen = k;
        }
        if (sum / characters(&q->choice[k]) > best_normalized) {
            best_normalized = sum / characters(&q->choice[k]);
            chosen_normalized = k;
        }
    }
    *mark = chosen == q->answer ? '1' : '0';
    *normalized = chosen_normalized == q->answer ? '1' : '0';
    return TSR_OK;
}

tsr_status tsr_eval_choices_score(struct tsr_engine *e, const struct tsr_tokenizer *t,
                                  const struct tsr_eval_choices *c,
                                  struct tsr_eval_choice_marks *out, struct tsr_err *err)
{
    struct scoring s = {
        .e = e, .t = t, .vocab = tsr_engine_vocab(e), .context = tsr_engine_context(e)
    };
    s.tokens = tsr_new(s.context, sizeof *s.tokens);
    *out = (struct tsr_eval_choice_marks){ .marks = tsr_new(c->n + 1, 1),
                                           .normalized = tsr_new(c->n + 1, 1),
                                           .n = c->n };
    tsr_status st = s.tokens && out->marks && out->normalized
                        ? TSR_OK
                        : tsr_fail_nomem(err, s.context * sizeof *s.tokens, "questions");
    for (uint64_t i = 0; i < c->n && st == TSR_OK; i++) {
        s.cut = false;
        if (tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "stopped in the questions");
        else
            st = ask(&s, &c->q[i], &out->marks[i], &out->normalized[i], err);
        if (st != TSR_OK) {
            st = tsr_err_prefix(err, st, "question %llu", (unsigned long long)i + 1);
            break;
        }
        out->cut += s.cut;
        out->right += out->marks[i] == '1';
        out->right_normalized += out->normalized[i] == '1';
        tsr_progress("questions", i + 1, c->n);
    }
    if (st == TSR_OK && out->cut)
        tsr_logf(TSR_LOG_WARN,
                 "%llu of %llu questions are longer than the %llu positions and lost tokens from "
                 "their front",
                 (unsigned long long)out->cut, (unsigned long long)c->n,
                 (unsigned long long)s.context);
    tsr_engine_reset(e, 0);
    free(s.tokens);
    free(s.logits);
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
