/* decode.c - ids to text: a chain of decoders, each from a list of strings to a list. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

tsr_status tok_dec_add(struct tok_part *p, const char *name, const char *type, const json_t *j,
                       struct tsr_err *err)
{
    if (strcmp(type, "ByteLevel") == 0) {
        p->kind = TOK_BYTE_LEVEL;
        return TSR_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        p->kind = TOK_METASPACE;
        return tok_load_metaspace(p, name, j, err);
    }
    if (strcmp(type, "ByteFallback") == 0) {
        p->kind = TOK_BYTE_FALLBACK;
        return TSR_OK;
    }
    if (strcmp(type, "Fuse") == 0) {
        p->kind = TOK_FUSE;
        return TSR_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        int64_t start = 0, stop = 0;
        p->kind = TOK_STRIP;
        TSR_TRY(tok_load_char(j, name, "content", &p->c, err));
        TSR_TRY(tsr_json_int(j, name, "start", true, 0, TOK_MAX_TEXT, &start, err));
        TSR_TRY(tsr_json_int(j, name, "stop", true, 0, TOK_MAX_TEXT, &stop, err));
        p->start = (uint64_t)start;
        p->stop = (uint64_t)stop;
        return TSR_OK;
    }
    if (strcmp(type, "Replace") == 0) {
        p->kind = TOK_REPLACE;
        TSR_TRY(tok_load_pattern(&p->pattern, name, j, err));
        return tok_load_text(j, name, "content", &p->text, &p->n_text, err);
    }
    return tsr_fail(err, TSR_E_INPUT, "%s: the decoder \"%s\" is not supported", name, type);
}

int tok_byte_token(const char *s, uint64_t n)
{
    int v = 0;
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    for (unsigned i = 3; i < 5; i++) {
        char c = s[i], l = (char)(c | 32);
        if (c >= '0' && c <= '9')
            v = v * 16 + (c - '0');
        else if (l >= 'a' && l <= 'f')
            v = v * 16 + (l - 'a' + 10);
        else if (!(i == 3 && c == '+')) /* the reference's parser takes a sign */
            return -1;
    }
    return v;
}

tsr_status tok_dec_bytes(const char *s, uint64_t n, struct tsr_tokenizer_text *out,
                         struct tsr_err *err)
{
    uint64_t from = out->n;
    for (uint64_t i = 0; i < n;) {
        unsigned len;
        int      b = tok_char_byte(tok_char(s + i, n - i, &len));
        if (b < 0) { /* a token with any other character is itself */
            out->n = from;
            return tsr_tokenizer_text_append(out, s, n, err);
        }
        char c = (char)b;
        TSR_TRY(tsr_tokenizer_text_append(out, &c, 1, err));
        i += len;
    }
    return TSR_OK;
}

static void strip(const struct tok_part *p, const char *s, uint64_t *at, uint64_t *end)
{
    unsigned len;
    for (uint64_t i = 0; i < p->start && *at < *end; i++) {
        if (tok_char(s + *at, *end - *at, &len) != p->c)
            break;
        *at += len;
    }
    for (uint64_t i = 0; i<p->stop && * end> * at; i++) {
        uint64_t k = *end - 1;
        while (k > *at && ((unsigned char)s[k] & 0xc0) == 0x80)
            k--;
        if (tok_char(s + k, *end - k, &len) != p->c)
            break;
        *end = k;
    }
}

tsr_status tok_dec_token(const struct tok_part *p, struct tok_ctx *c, bool first, const char *s,
                         uint64_t n, struct tsr_tokenizer_text *out)
{
    if (p->kind == TOK_STRIP) {
        uint64_t at = 0, end = n;
        strip(p, s, &at, &end);
        return tsr_tokenizer_text_append(out, s + at, end - at, c->err);
    }
    if (p->kind == TOK_METASPACE) {
        bool drop = first && p->scheme != TOK_NEVER;
        for (uint64_t i = 0; i < n;) {
            unsigned len;
            bool     hit = tok_char(s + i, n - i, &len) == p->c;
            if (!hit)
                TSR_TRY(tsr_tokenizer_text_append(out, s + i, len, c->err));
            else if (!drop)
                TSR_TRY(tsr_tokenizer_text_append(out, " ", 1, c->err));
            i += len;
        }
        return TSR_OK;
    }
    TSR_TRY(tok_pattern_spans(&p->pattern, c, s, n, &c->spans));
    for (uint64_t i = 0; i < c->spans.n; i++) {
        const struct tok_span *a = &c->spans.v[i];
        if (a->match)
            TSR_TRY(tsr_tokenizer_text_append(out, p->text, p->n_text, c->err));
        else
            TSR_TRY(tsr_tokenizer_text_append(out, s + a->at, a->end - a->at, c->err));
    }
    return TSR_OK;
}

/* ---- lists of strings -------------------------------------------------- */

struct list {
    struct tsr_tokenizer_text text;
    struct tok_spans          item; /* at, end in text */
};

static void list_free(struct list *l)
{
    tsr_tokenizer_text_free(&l->text);
    free(l->item.v);
}

static tsr_status list_push(struct list *l, const char *s, uint64_t n, struct tsr_err *err)
{
    uint64_t at = l->text.n;
    TSR_TRY(tsr_tokenizer_text_append(&l->text, s, n, err));
    return tok_span_push(&l->item, at, at + n, false, err);
}

static tsr_status flush_bytes(struct list *out, struct tsr_tokenizer_text *bytes,
                              struct tsr_err *err)
{
    if (bytes->n == 0)
        return TSR_OK;
    if (tok_valid(bytes->v, bytes->n))
        TSR_TRY(list_push(out, bytes->v, bytes->n, err));
    else
        for (uint64_t i = 0; i < bytes->n; i++)
            TSR_TRY(list_push(out, "\xef\xbf\xbd", 3, err));
    bytes->n = 0;
    return TSR_OK;
}

static tsr_status byte_fallback(const struct list *in, struct list *out,
                                struct tsr_tokenizer_text *bytes, struct tsr_err *err)
{
    for (uint64_t i = 0; i < in->item.n; i++) {
        const char *s = in->text.v + in->item.v[i].at;
        uint64_t    n = in->item.v[i].end - in->item.v[i].at;
        int         b = tok_byte_token(s, n);
        char        c = (char)b;
        if (b >= 0) {
            TSR_TRY(tsr_tokenizer_text_append(bytes, &c, 1, err));
            continue;
        }
        TSR_TRY(flush_bytes(out, bytes, err));
        TSR_TRY(list_push(out, s, n, err));
    }
    return flush_bytes(out, bytes, err);
}

static tsr_status run(const struct tok_part *p, struct tok_ctx *c, const struct list *in,
                      struct list *out)
{
    struct tsr_tokenizer_text bytes = { 0 };
    tsr_status                st = TSR_OK;
    out->text.n = out->item.n = 0;
    if (p->kind == TOK_BYTE_FALLBACK) {
        st = byte_fallback(in, out, &bytes, c->err);
        tsr_tokenizer_text_free(&bytes);
        return st;
    }
    if (p->kind == TOK_FUSE)
        return list_push(out, in->text.v ? in->text.v : "", in->text.n, c->err);
    for (uint64_t i = 0; i < in->item.n && st == TSR_OK; i++) {
        const char *s = in->text.v + in->item.v[i].at;
        uint64_t    n = in->item.v[i].end - in->item.v[i].at, at = out->text.n;
        if (p->kind == TOK_BYTE_LEVEL) {
            st = tok_dec_bytes(s, n, &bytes, c->err);
            continue;
        }
        st = tok_dec_token(p, c, i == 0, s, n, &out->text);
        if (st == TSR_OK)
            st = tok_span_push(&out->item, at, out->text.n, false, c->err);
    }
    if (st == TSR_OK && p->kind == TOK_BYTE_LEVEL) {
        st = tok_append_lossy(&out->text, bytes.v ? bytes.v : "", bytes.n, c->err);
        if (st == TSR_OK)
            st = tok_span_push(&out->item, 0, out->text.n, false, c->err);
    }
    tsr_tokenizer_text_free(&bytes);
    return st;
}

static tsr_status decode(const struct tsr_tokenizer *t, struct tok_ctx *c, const uint32_t *ids,
                         uint64_t n, bool skip_special, struct list l[2],
                         struct tsr_tokenizer_text *text)
{
    for (uint64_t i = 0; i < n; i++) {
        const struct tok_token *k = ids[i] < t->n_token ? &t->token[ids[i]] : NULL;
        if (!k || !k->s || (skip_special && k->skip))
            continue; /* ids without a token give no text, as in the reference */
        if (!t->has_dec && l[0].item.n)
            TSR_TRY(tsr_tokenizer_text_append(&l[0].text, " ", 1, c->err));
        TSR_TRY(list_push(&l[0], k->s, k->n, c->err));
    }
    unsigned at = 0;
    for (uint32_t i = 0; i < t->dec.n; i++, at ^= 1)
        TSR_TRY(run(&t->dec.v[i], c, &l[at], &l[at ^ 1]));
    return tsr_tokenizer_text_append(text, l[at].text.v ? l[at].text.v : "", l[at].text.n, c->err);
}

tsr_status tsr_detokenize(const struct tsr_tokenizer *t, const uint32_t *ids, uint64_t n,
                          bool skip_special, struct tsr_tokenizer_text *text, struct tsr_err *err)
{
    struct tok_ctx c;
    struct list    l[2] = { 0 };
    tok_ctx_init(&c, t, n, err);
    tsr_status st = decode(t, &c, ids, n, skip_special, l, text);
    list_free(&l[0]);
    list_free(&l[1]);
    tok_ctx_free(&c);
    return st;
}
