/* pretok.c - pre-tokenizers: pieces to smaller pieces. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                           "|\\s+(?!\\S)|\\s+";

static tsr_status load_behavior(struct tok_part *p, const char *name, const json_t *j,
                                bool required, struct tsr_err *err)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    const char              *s = NULL;
    p->behavior = TOK_ISOLATED;
    TSR_TRY(tsr_json_str(j, name, "behavior", required, &s, err));
    if (!s)
        return TSR_OK;
    for (unsigned i = 0; i < 5; i++) {
        if (strcmp(s, names[i]) == 0) {
            p->behavior = (enum tok_behavior)i;
            return TSR_OK;
        }
    }
    return tsr_fail(err, TSR_E_INPUT, "%s: the split behavior \"%s\" is not known", name, s);
}

tsr_status tok_pre_add(struct tok_part *p, const char *name, const char *type, const json_t *j,
                       struct tsr_err *err)
{
    if (strcmp(type, "ByteLevel") == 0) {
        p->kind = TOK_BYTE_LEVEL;
        p->use_regex = true;
        TSR_TRY(tsr_json_bool(j, name, "add_prefix_space", true, &p->prefix_space, err));
        TSR_TRY(tsr_json_bool(j, name, "use_regex", false, &p->use_regex, err));
        return p->use_regex ? tok_pattern_init(&p->pattern, name, gpt2, sizeof gpt2 - 1, true, err)
                            : TSR_OK;
    }
    if (strcmp(type, "Split") == 0) {
        p->kind = TOK_SPLIT;
        TSR_TRY(tok_load_pattern(&p->pattern, name, j, err));
        TSR_TRY(tsr_json_bool(j, name, "invert", true, &p->invert, err));
        return load_behavior(p, name, j, true, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        p->kind = TOK_METASPACE;
        return tok_load_metaspace(p, name, j, err);
    }
    if (strcmp(type, "Whitespace") == 0) {
        p->kind = TOK_WHITESPACE;
        return TSR_OK;
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        p->kind = TOK_WHITESPACE_SPLIT;
        return TSR_OK;
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        p->kind = TOK_BERT_SPLIT;
        return TSR_OK;
    }
    if (strcmp(type, "Digits") == 0) {
        bool single = false;
        p->kind = TOK_DIGITS;
        TSR_TRY(tsr_json_bool(j, name, "individual_digits", true, &single, err));
        p->behavior = single ? TOK_ISOLATED : TOK_CONTIGUOUS;
        return TSR_OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        p->kind = TOK_PUNCTUATION;
        return load_behavior(p, name, j, false, err);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        p->kind = TOK_DELIMITER;
        return tok_load_char(j, name, "delimiter", &p->c, err);
    }
    if (strcmp(type, "FixedLength") == 0) {
        int64_t n = 5;
        p->kind = TOK_FIXED;
        TSR_TRY(tsr_json_int(j, name, "length", false, 1, TOK_MAX_TEXT, &n, err));
        p->start = (uint64_t)n;
        return TSR_OK;
    }
    return tsr_fail(err, TSR_E_INPUT, "%s: the pre-tokenizer \"%s\" is not supported", name, type);
}

/* ---- pieces ------------------------------------------------------------ */

tsr_status tok_work_push(struct tok_work *w, const char *s, uint64_t n, uint64_t zero, int64_t id,
                         struct tsr_err *err)
{
    if (id < 0 && n == 0)
        return TSR_OK;
    if (w->n == w->cap) {
        uint64_t          cap = w->cap ? w->cap * 2 : 64;
        struct tok_piece *v = tsr_renew(w->v, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "a split text");
        w->v = v;
        w->cap = cap;
    }
    uint64_t at = w->text.n;
    if (id < 0)
        TSR_TRY(tsr_tokenizer_text_append(&w->text, s, n, err));
    w->v[w->n++] = (struct tok_piece){ at, id < 0 ? n : 0, zero < n ? zero : n, id };
    return TSR_OK;
}

void tok_work_free(struct tok_work *w)
{
    tsr_tokenizer_text_free(&w->text);
    free(w->v);
    memset(w, 0, sizeof *w);
}

/* Pushes s[at, end) of a piece, in the byte-level alphabet if asked. */
static tsr_status push(struct tok_work *out, const char *s, uint64_t at, uint64_t end,
                       uint64_t zero, bool bytes, struct tsr_err *err)
{
    zero = zero > at ? zero - at : 0;
    if (!bytes || at == end)
        return tok_work_push(out, s + at, end - at, zero, -1, err);
    uint64_t from = out->text.n, coded = 0;
    TSR_TRY(tok_work_push(out, "", 0, 0, 0, err));
    for (uint64_t i = at; i < end; i++) {
        TSR_TRY(tok_append_char(&out->text, tok_byte_char((unsigned char)s[i]), err));
        if (i - at < zero)
            coded = out->text.n - from;
    }
    out->v[out->n - 1] = (struct tok_piece){ from, out->text.n - from, coded, -1 };
    return TSR_OK;
}

/* Joins matches to their neighbours as the behavior says; spans of length 0 stay in. */
static void join(struct tok_spans *sp, enum tok_behavior b)
{
    struct tok_span *v = sp->v;
    uint64_t         k = 0;
    bool             before = false;
    if (b == TOK_MERGED_NEXT) { /* the same as "previous" seen from the end */
        uint64_t w = sp->n;
        for (uint64_t i = sp->n; i-- > 0;) {
            bool m = v[i].match;
            if (m && !before && w < sp->n)
                v[w].at = v[i].at;
            else
                v[--w] = (struct tok_span){ v[i].at, v[i].end, false };
            before = m;
        }
        memmove(v, v + w, (sp->n - w) * sizeof *v);
        sp->n -= w;
        return;
    }
    for (uint64_t i = 0; i < sp->n; i++) {
        bool m = v[i].match;
        bool glue = b == TOK_CONTIGUOUS ? m == before : b == TOK_MERGED_PREVIOUS && m && !before;
        if (glue && k > 0)
            v[k - 1].end = v[i].end;
        else
            v[k++] = (struct tok_span){ v[i].at, v[i].end, b == TOK_REMOVED && m };
        before = m;
    }
    sp->n = k;
}

static tsr_status push_spans(struct tok_work *out, struct tok_ctx *c, const char *s, uint64_t zero,
                             enum tok_behavior b, bool bytes)
{
    join(&c->spans, b);
    for (uint64_t i = 0; i < c->spans.n; i++) {
        const struct tok_span *a = &c->spans.v[i];
        if (!a->match)
            TSR_TRY(push(out, s, a->at, a->end, zero, bytes, c->err));
    }
    return TSR_OK;
}

/* Spans of characters by a class; runs of other characters between them. */
static tsr_status class_spans(struct tok_ctx *c, const char *s, uint64_t n, bool (*in)(uint32_t))
{
    uint64_t done = 0;
    c->spans.n = 0;
    for (uint64_t i = 0; i < n;) {
        unsigned len;
        if (in(tok_char(s + i, n - i, &len))) {
            if (done < i)
                TSR_TRY(tok_span_push(&c->spans, done, i, false, c->err));
            TSR_TRY(tok_span_push(&c->spans, i, i + len, true, c->err));
            done = i + len;
        }
        i += len;
    }
    return done < n ? tok_span_push(&c->spans, done, n, false, c->err) : TSR_OK;
}

/* Runs of word characters and runs of other visible ones; spaces go. */
static tsr_status whitespace(struct tok_work *out, struct tok_ctx *c, const char *s, uint64_t n,
                             uint64_t zero)
{
    uint64_t from = 0;
    int      run = 0; /* 0: space, 1: word, 2: other */
    for (uint64_t i = 0; i <= n;) {
        unsigned len = 1;
        uint32_t u = i < n ? tok_char(s + i, n - i, &len) : ' ';
        int      k = tok_is_word(u) ? 1 : tok_is_space(u) ? 0 : 2;
        if (k != run || i == n) {
            if (run && i > from)
                TSR_TRY(push(out, s, from, i, zero, false, c->err));
            from = i;
            run = k;
        }
        i += len;
    }
    return TSR_OK;
}

static tsr_status delimiter_spans(struct tok_ctx *c, const char *s, uint64_t n, uint32_t sign)
{
    char               b[4];
    unsigned           len = tok_put_char(b, sign);
    struct tok_pattern p = { .text = b, .n = len };
    return tok_pattern_spans(&p, c, s, n, &c->spans);
}

static tsr_status fixed(struct tok_work *out, struct tok_ctx *c, const char *s, uint64_t n,
                        uint64_t zero, uint64_t length)
{
    uint64_t from = 0, k = 0;
    for (uint64_t i = 0; i < n;) {
        unsigned len;
        (void)tok_char(s + i, n - i, &len);
        i += len;
        if (++k == length || i == n) {
            TSR_TRY(push(out, s, from, i, zero, false, c->err));
            from = i;
            k = 0;
        }
    }
    return TSR_OK;
}

static tsr_status bert_split(struct tok_work *out, struct tok_ctx *c, const char *s, uint64_t n,
                             uint64_t zero)
{
    uint64_t from = 0;
    for (uint64_t i = 0; i <= n;) {
        unsigned len = 1;
        uint32_t u = i < n ? tok_char(s + i, n - i, &len) : ' ';
        bool     space = tok_is_space(u), punct = !space && tok_is_punct(u);
        if (space || punct) {
            TSR_TRY(push(out, s, from, i, zero, false, c->err));
            if (punct)
                TSR_TRY(push(out, s, i, i + len, zero, false, c->err));
            from = i + len;
        }
        i += len;
    }
    return TSR_OK;
}

/* The piece with its spaces replaced and the replacement in front, as the scheme says. */
static tsr_status metaspace(const struct tok_part *p, struct tok_work *out, struct tok_ctx *c,
                            const char *s, uint64_t n, uint64_t zero)
{
    struct tsr_tokenizer_text *t = &c->scratch;
    uint64_t                   z = 0;
    t->n = 0;
    bool has = n >= p->n_text && memcmp(s, p->text, p->n_text) == 0;
    bool starts = has || s[0] == ' ';
    if (!starts && (p->scheme == TOK_ALWAYS || (p->scheme == TOK_FIRST && zero > 0)))
        TSR_TRY(tsr_tokenizer_text_append(t, p->text, p->n_text, c->err));
    if (zero > 0)
        z = t->n;
    for (uint64_t i = 0; i < n;) {
        const char *sp = memchr(s + i, ' ', n - i);
        uint64_t    k = sp ? (uint64_t)(sp - s) : n;
        TSR_TRY(tsr_tokenizer_text_append(t, s + i, k - i, c->err));
        if (sp)
            TSR_TRY(tsr_tokenizer_text_append(t, p->text, p->n_text, c->err));
        i = sp ? k + 1 : n;
    }
    if (zero > 0) { /* the first character, in any normalized form */
        unsigned len;
        (void)tok_char(t->v + z, t->n - z, &len);
        z += len;
    }
    if (!p->split)
        return push(out, t->v, 0, t->n, z, false, c->err);
    TSR_TRY(delimiter_spans(c, t->v, t->n, p->c));
    return push_spans(out, c, t->v, z, TOK_MERGED_NEXT, false);
}

static tsr_status byte_level(const struct tok_part *p, struct tok_work *out, struct tok_ctx *c,
                             const char *s, uint64_t n, uint64_t zero)
{
    if (p->prefix_space && s[0] != ' ') {
        c->scratch.n = 0;
        TSR_TRY(tsr_tokenizer_text_append(&c->scratch, " ", 1, c->err));
        TSR_TRY(tsr_tokenizer_text_append(&c->scratch, s, n, c->err));
        s = c->scratch.v;
        n++;
        zero += zero > 0;
    }
    if (!p->use_regex)
        return push(out, s, 0, n, zero, true, c->err);
    TSR_TRY(tok_pattern_spans(&p->pattern, c, s, n, &c->spans));
    return push_spans(out, c, s, zero, TOK_ISOLATED, true);
}

static tsr_status split(const struct tok_part *p, struct tok_work *out, struct tok_ctx *c,
                        const char *s, uint64_t n, uint64_t zero)
{
    TSR_TRY(tok_pattern_spans(&p->pattern, c, s, n, &c->spans));
    for (uint64_t i = 0; p->invert && i < c->spans.n; i++)
        c->spans.v[i].match = !c->spans.v[i].match;
    return push_spans(out, c, s, zero, p->behavior, false);
}

static tsr_status run(const struct tok_part *p, struct tok_work *out, struct tok_ctx *c,
                      const char *s, uint64_t n, uint64_t zero)
{
    switch (p->kind) {
    case TOK_BYTE_LEVEL:
        return byte_level(p, out, c, s, n, zero);
    case TOK_SPLIT:
        return split(p, out, c, s, n, zero);
    case TOK_METASPACE:
        return metaspace(p, out, c, s, n, zero);
    case TOK_WHITESPACE:
        return whitespace(out, c, s, n, zero);
    case TOK_WHITESPACE_SPLIT:
        TSR_TRY(class_spans(c, s, n, tok_is_space));
        return push_spans(out, c, s, zero, TOK_REMOVED, false);
    case TOK_DIGITS:
        TSR_TRY(class_spans(c, s, n, tok_is_numeric));
        return push_spans(out, c, s, zero, p->behavior, false);
    case TOK_PUNCTUATION:
        TSR_TRY(class_spans(c, s, n, tok_is_punct));
        return push_spans(out, c, s, zero, p->behavior, false);
    case TOK_DELIMITER:
        TSR_TRY(delimiter_spans(c, s, n, p->c));
        return push_spans(out, c, s, zero, TOK_REMOVED, false);
    case TOK_BERT_SPLIT:
        return bert_split(out, c, s, n, zero);
    case TOK_FIXED:
        return fixed(out, c, s, n, zero, p->start);
    default:
        return tsr_fail(c->err, TSR_E_BUG, "a pre-tokenizer of kind %d", (int)p->kind);
    }
}

tsr_status tok_pretokenize(const struct tok_part *p, struct tok_ctx *c, const struct tok_work *in,
                           struct tok_work *out)
{
    out->n = out->text.n = 0;
    for (uint64_t i = 0; i < in->n; i++) {
        const struct tok_piece *a = &in->v[i];
        if (a->id >= 0)
            TSR_TRY(tok_work_push(out, "", 0, 0, a->id, c->err));
        else
            TSR_TRY(run(p, out, c, in->text.v + a->at, a->len, a->zero));
    }
    return TSR_OK;
}
