/* Text into windows, by protocol.
 *
 * gptq-2048         rows joined, tokenized once, windows of 2048 tokens (the model's maximum if
 *                   less) side by side, rest dropped; every position but the first is scored; a
 *                   window counts with its mean times its length, so the denominator is all tokens.
 * llamacpp-512      the same with 512; the first token of each window gives way to BOS; the second
 *                   half is scored: tokens n/2+1 to n-1; the denominator is what is scored.
 * lm-eval-wikitext  each row is a document: detokenized, tokenized with the tokenizer's template, rolling
 *                   windows of the model's maximum in which every token is scored once, the first
 *                   after BOS (or EOS), so that a BOS of the template is scored; with no_bos without
 *                   the template; the denominator is the words of the original documents.
 */
#include "eval/windows.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "eval/encode.h"
#include "eval/text.h"
#include "eval/wikitext.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT   (UINT64_C(1) << 33)
#define JSON_DEPTH 32

const struct tsr_choice tsr_protocol_choices[3] = {
    { "gptq-2048", "windows of 2048 side by side, as in papers", TSR_EVAL_PPL_GPTQ_2048 },
    { "llamacpp-512", "windows of 512, second half scored, as llama.cpp",
      TSR_EVAL_PPL_LLAMACPP_512 },
    { "lm-eval-wikitext", "per document, rolling, per word, as lm-evaluation-harness",
      TSR_EVAL_PPL_LM_EVAL_WIKITEXT },
};
const struct tsr_choice tsr_rows_choices[3] = {
    { "file", "the file is one row", TSR_EVAL_ROWS_FILE },
    { "lines", "each line is a row", TSR_EVAL_ROWS_LINES },
    { "jsonl", "each line is a JSON object, its \"text\" a row", TSR_EVAL_ROWS_JSONL },
};

const char *tsr_eval_protocol_name(enum tsr_protocol p)
{
    for (int i = 0; i < 3; i++)
        if (tsr_protocol_choices[i].value == (int64_t)p)
            return tsr_protocol_choices[i].name;
    return "?";
}

/* Growing lists of tsr_eval_windows. */
struct build {
    struct tsr_eval_windows    *w;
    const struct tsr_tokenizer *t;
    const struct tsr_model     *m;
    const char                 *path;
    struct tsr_tokenizer_ids    ids;
    uint64_t                    cap;
};

static tsr_status add_window(struct build *b, const uint32_t *ids, uint64_t n, uint64_t score_from,
                             double weight, struct tsr_err *err)
{
    struct tsr_eval_windows *w = b->w;
    if (w->n + 1 >= b->cap) {
        uint64_t  cap = b->cap ? 2 * b->cap : 64;
        uint64_t *start = tsr_renew(w->start, cap, sizeof *start);
        w->start = start ? start : w->start;
        uint64_t *from = tsr_renew(w->score_from, cap, sizeof *from);
        w->score_from = from ? from : w->score_from;
        double *weights = tsr_renew(w->weight, cap, sizeof *weights);
        w->weight = weights ? weights : w->weight;
        if (!start || !from || !weights)
            return tsr_fail_nomem(err, cap * 24, "evaluation windows");
        b->cap = cap;
    }
    w->start[w->n] = b->ids.n;
    w->score_from[w->n] = score_from;
    w->weight[w->n] = weight;
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(tsr_tokenizer_ids_push(&b->ids, ids[i], err));
    w->n++;
    w->start[w->n] = b->ids.n;
    w->scored += n - score_from;
    return TSR_OK;
}

static bool full(const struct build *b)
{
    return b->w->opt.max_windows && b->w->n >= b->w->opt.max_windows;
}

/* ---- rows ----------------------------------------------------------------- */

/* One row at a time; *more false after the last. */
struct rows {
    const char          *path, *p, *end;
    uint64_t             line;
    enum tsr_engine_rows kind;
    bool                 keep_newline;
};

static bool blank(const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n\v\f", s[i]))
            return false;
    return true;
}

static tsr_status json_row(const struct rows *r, const char *line, uint64_t n,
                           struct tsr_tokenizer_text *row, struct tsr_err *err)
{
    char    name[4200];
    json_t *j, *v;
    (void)snprintf(name, sizeof name, "%.4096s:%llu", r->path, (unsigned long long)r->line);
    TSR_TRY(tsr_json_parse(&j, name, line, n, JSON_DEPTH, err));
    tsr_status st;
    v = json_object_get(j, "text");
    if (!json_is_string(v))
        st = tsr_fail(err, TSR_E_INPUT, "%s: this line is not an object with a string \"text\"",
                      name);
    else
        st = tsr_tokenizer_text_append(row, json_string_value(v), json_string_length(v), err);
    json_decref(j);
    return st;
}

/* The next line of the file unchanged, including its newline; empty at the end. */
static uint64_t next_line(struct rows *r, const char **line)
{
    *line = r->p;
    uint64_t    n = (uint64_t)(r->end - r->p);
    const char *nl = r->kind == TSR_EVAL_ROWS_FILE ? NULL : memchr(r->p, '\n', n);
    if (nl)
        n = (uint64_t)(nl - r->p) + 1;
    r->p += n;
    r->line++;
    return n;
}

static tsr_status next_row(struct rows *r, struct tsr_tokenizer_text *row, bool *more,
                           struct tsr_err *err)
{
    const char *line = r->p;
    uint64_t    n = 0;
    row->n = 0;
    *more = r->p < r->end;
    if (!*more)
        return TSR_OK;
    do /* JSON Lines may have blank lines */
        n = next_line(r, &line);
    while (r->kind == TSR_EVAL_ROWS_JSONL && blank(line, n) && r->p < r->end);
    if (r->kind == TSR_EVAL_ROWS_JSONL) {
        *more = !blank(line, n);
        return *more ? json_row(r, line, n, row, err) : TSR_OK;
    }
    if (r->kind == TSR_EVAL_ROWS_LINES) {
        if (blank(line, n))
            n = 0;
        else if (line[n - 1] == '\n' && !r->keep_newline)
            n--;
    }
    return tsr_tokenizer_text_append(row, line, n, err);
}

/* ---- gptq-2048, llamacpp-512 ----------------------------------------------- */

static tsr_status join_rows(struct rows *rows, const char *join, struct tsr_tokenizer_text *text,
                            struct tsr_err *err)
{
    struct tsr_tokenizer_text row = { 0 };
    bool                      more = true;
    tsr_status                st = TSR_OK;
    for (bool first = true; st == TSR_OK; first = false) {
        st = next_row(rows, &row, &more, err);
        if (st != TSR_OK || !more)
            break;
        if (!first)
            st = tsr_tokenizer_text_append(text, join, strlen(join), err);
        if (st == TSR_OK)
            st = tsr_tokenizer_text_append(text, row.v, row.n, err);
    }
    tsr_tokenizer_text_free(&row);
    return st;
}

static tsr_status cut(struct build *b, struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    struct tsr_eval_windows *w = b->w;
    uint64_t                 n = w->window;
    bool                     half = w->opt.protocol == TSR_EVAL_PPL_LLAMACPP_512;
    bool bos = b->m->hp.bos >= 0 && ids->n && ids->v[0] == (uint32_t)b->m->hp.bos;
    w->bos = !bos ? "none" : half ? "per window" : "once";
    if (ids->n < n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has %llu tokens, fewer than one window of %llu; give "
                        "a longer text or a smaller window",
                        b->path, (unsigned long long)ids->n, (unsigned long long)n);
    for (uint64_t i = 0; i + n <= ids->n && !full(b); i += n) {
        uint64_t from = half ? n / 2 + 1 : 1;
        if (half && bos)
            ids->v[i] = (uint32_t)b->m->hp.bos;
        TSR_TRY(add_window(b, ids->v + i, n, from, (double)(half ? n - from : n), err));
        w->tokens += half ? n - from : n;
    }
    return TSR_OK;
}

static tsr_status by_joined_text(struct build *b, struct rows *rows, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    struct tsr_tokenizer_ids  ids = { 0 };
    tsr_status                st = join_rows(rows, b->w->opt.join, &text, err);
    if (st == TSR_OK) {
        st = tsr_tokenize(b->t, text.v ? text.v : "", text.n, TSR_TOKENIZER_SPECIAL, &ids, err);
        if (st != TSR_OK)
            st = tsr_err_prefix(err, st, "%s", b->path);
    }
    if (st == TSR_OK)
        st = cut(b, &ids, err);
    tsr_tokenizer_text_free(&text);
    tsr_tokenizer_ids_free(&ids);
    return st;
}

/* ---- lm-eval-wikitext -------------------------------------------------------- */

/* ids->v[0] is the prefix token, followed by the document.  Each token is scored once, even beyond
 * max_windows, because the words of a document count as a whole. */
static tsr_status roll(struct build *b, const struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    for (uint64_t done = 0, begin, end; done + 1 < ids->n; done = end) {
        tsr_eval_rolling_window(ids->n, b->w->window, done, &begin, &end);
        TSR_TRY(add_window(b, ids->v + begin, end + 1 - begin, done + 1 - begin,
                           (double)(end - done), err));
    }
    return TSR_OK;
}

static tsr_status by_document(struct build *b, struct rows *rows, struct tsr_err *err)
{
    struct tsr_eval_encoding  how = { b->t, b->m, b->w->opt.no_bos };
    struct tsr_tokenizer_text row = { 0 }, page = { 0 };
    struct tsr_tokenizer_ids  ids = { 0 };
    bool                      more = true;
    tsr_status                st = TSR_OK;
    b->w->bos = "per document";
    while (st == TSR_OK && !full(b)) {
        st = next_row(rows, &row, &more, err);
        if (st != TSR_OK || !more)
            break;
        page.n = ids.n = 0;
        st = tsr_eval_wikitext_detokenize(row.v ? row.v : "", row.n, &page, err);
        if (st == TSR_OK)
            st = tsr_eval_encode_rolling(&how, &page, &ids, err);
        if (st != TSR_OK) {
            st = tsr_err_prefix(err, st, "%s: row %llu", b->path, (unsigned long long)rows->line);
            break;
        }
        if (ids.n > 1 && ids.v[1] == ids.v[0])
            b->w->bos = "per document, scored";
        b->w->words += tsr_eval_count_words(row.v ? row.v : "", row.n);
        b->w->bytes += row.n;
        st = roll(b, &ids, err);
    }
    tsr_tokenizer_text_free(&row);
    tsr_tokenizer_text_free(&page);
    tsr_tokenizer_ids_free(&ids);
    b->w->tokens = b->w->words;
    if (st == TSR_OK && b->w->scored == 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s holds no text", b->path);
    return st;
}

static tsr_status build(struct build *b, struct tsr_err *err)
{
    char                    *text;
    uint64_t                 bytes;
    struct tsr_eval_windows *w = b->w;
    TSR_TRY(tsr_tokenizer_text_load(b->path, MAX_TEXT, &text, &bytes, err));
    tsr_hash_bytes(text, bytes, w->text_hash);
    struct rows rows = { .path = b->path,
                         .p = text,
                         .end = text + bytes,
                         .kind = w->opt.rows,
                         .keep_newline = strcmp(w->opt.join, "\n\n") == 0 };
    tsr_status  st = w->opt.protocol == TSR_EVAL_PPL_LM_EVAL_WIKITEXT
                         ? by_document(b, &rows, err)
                         : by_joined_text(b, &rows, err);
    free(text);
    w->ids = b->ids.v;
    for (uint64_t i = 0; st == TSR_OK && i < b->ids.n; i++)
        if (w->ids[i] >= b->m->hp.vocab)
            st = tsr_fail(err, TSR_E_INPUT,
                          "%s: the tokenizer gives id %u, but the model has a "
                          "vocabulary of %llu",
                          b->path, w->ids[i], (unsigned long long)b->m->hp.vocab);
    return st;
}

tsr_status tsr_eval_windows_create(struct tsr_eval_windows **out, const struct tsr_tokenizer *t,
                                   const struct tsr_model *m, const char *text_path,
                                   const struct tsr_eval_options *opt, struct tsr_err *err)
{
    uint64_t natural = opt->protocol == TSR_EVAL_PPL_GPTQ_2048      ? 2048
                       : opt->protocol == TSR_EVAL_PPL_LLAMACPP_512 ? 512
                                                                    : m->hp.max_positions;
    TSR_TRY(tsr_model_context(m, opt->window, err));
    if (natural > m->hp.max_positions)
        natural = m->hp.max_positions;
    struct tsr_eval_windows *w = tsr_new(1, sizeof *w);
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, "evaluation windows");
    w->opt = *opt;
    if (!w->opt.join)
        w->opt.join = "\n\n";
    w->window = opt->window ? opt->window : natural;
    w->protocol_name = tsr_eval_protocol_name(opt->protocol);
    tsr_status   st;
    struct build b = { .w = w, .t = t, .m = m, .path = text_path };
    if (w->window < 4)
        st = tsr_fail(err, TSR_E_INPUT, "window %llu is shorter than 4 tokens",
                      (unsigned long long)w->window);
    else
        st = build(&b, err);
    if (st != TSR_OK) {
        tsr_eval_windows_destroy(w);
        return st;
    }
    w->opt.join = NULL; /* the caller's; not ours to keep */
    *out = w;
    return TSR_OK;
}

tsr_status tsr_eval_windows_append(struct tsr_eval_windows *w, const struct tsr_eval_windows *more,
                                   struct tsr_err *err)
{
    const uint64_t n = w->n + more->n, have = w->start[w->n], ids = have + more->start[more->n];
    uint32_t      *all = tsr_renew(w->ids, ids, sizeof *all);
    w->ids = all ? all : w->ids;
    uint64_t *start = tsr_renew(w->start, n + 1, sizeof *start);
    w->start = start ? start : w->start;
    uint64_t *from = tsr_renew(w->score_from, n, sizeof *from);
    w->score_from = from ? from : w->score_from;
    double *weight = tsr_renew(w->weight, n, sizeof *weight);
    w->weight = weight ? weight : w->weight;
    if (!all || !start || !from || !weight)
        return tsr_fail_nomem(err, ids * sizeof *all, "evaluation windows");
    memcpy(w->ids + have, more->ids, more->start[more->n] * sizeof *all);
    memcpy(w->score_from + w->n, more->score_from, more->n * sizeof *from);
    memcpy(w->weight + w->n, more->weight, more->n * sizeof *weight);
    for (uint64_t i = 0; i <= more->n; i++)
        w->start[w->n + i] = have + more->start[i];
    w->n = n;
    w->tokens += more->tokens;
    w->words += more->words;
    w->bytes += more->bytes;
    w->scored += more->scored;
    w->window = more->window > w->window ? more->window : w->window;
    char both[2 * sizeof w->text_hash];
    int  len = snprintf(both, sizeof both, "%s %s", w->text_hash, more->text_hash);
    tsr_hash_bytes(both, (uint64_t)len, w->text_hash);
    return TSR_OK;
}

tsr_status tsr_eval_windows_agree(const struct tsr_eval_windows *w, const struct tsr_tokenizer *a,
                                  const struct tsr_tokenizer *b, bool *agree, struct tsr_err *err)
{
    struct tsr_tokenizer_text x = { 0 }, y = { 0 };
    tsr_status                st = TSR_OK;
    *agree = strcmp(tsr_tokenizer_hash(a), tsr_tokenizer_hash(b)) == 0;
    if (*agree)
        return TSR_OK;
    *agree = true;
    for (uint64_t i = 0; i < w->n && *agree && st == TSR_OK; i++) {
        const uint32_t *ids = w->ids + w->start[i];
        uint64_t        n = w->start[i + 1] - w->start[i];
        x.n = y.n = 0;
        for (uint64_t k = 0; k < n; k++)
            *agree = *agree && ids[k] < tsr_tokenizer_size(b);
        st = *agree ? tsr_detokenize(a, ids, n, true, &x, err) : TSR_OK;
        if (st == TSR_OK && *agree)
            st = tsr_detokenize(b, ids, n, true, &y, err);
        *agree = *agree && x.n == y.n && (x.n == 0 || memcmp(x.v, y.v, x.n) == 0);
    }
    tsr_tokenizer_text_free(&x);
    tsr_tokenizer_text_free(&y);
    return st;
}

void tsr_eval_windows_destroy(struct tsr_eval_windows *w)
{
    if (!w)
        return;
    free(w->ids);
    free(w->start);
    free(w->score_from);
    free(w->weight);
    free(w);
}
