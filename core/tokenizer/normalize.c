/* normalize.c - normalizers: text to text, before anything is split. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

tsr_status tok_norm_add(struct tok_part *p, const char *name, const char *type, const json_t *j,
                        struct tsr_err *err)
{
    static const struct {
        const char   *type;
        enum tok_kind kind;
    } plain[] = {
        { "NFC", TOK_NFC },   { "NFD", TOK_NFD },         { "NFKC", TOK_NFKC },
        { "NFKD", TOK_NFKD }, { "Lowercase", TOK_LOWER }, { "StripAccents", TOK_STRIP_ACCENTS },
        { "Nmt", TOK_NMT },   { "ByteLevel", TOK_BYTES },
    };
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (strcmp(type, plain[i].type) == 0) {
            p->kind = plain[i].kind;
            return TSR_OK;
        }
    }
    if (strcmp(type, "Strip") == 0) {
        p->kind = TOK_STRIP;
        TSR_TRY(tsr_json_bool(j, name, "strip_left", true, &p->left, err));
        return tsr_json_bool(j, name, "strip_right", true, &p->right, err);
    }
    if (strcmp(type, "Replace") == 0) {
        p->kind = TOK_REPLACE;
        TSR_TRY(tok_load_pattern(&p->pattern, name, j, err));
        if (p->pattern.empty)
            return tsr_fail(err, TSR_E_INPUT, "%s: a Replace of the empty string is not supported",
                            name);
        return tok_load_text(j, name, "content", &p->text, &p->n_text, err);
    }
    if (strcmp(type, "Prepend") == 0) {
        p->kind = TOK_PREPEND;
        return tok_load_text(j, name, "prepend", &p->text, &p->n_text, err);
    }
    if (strcmp(type, "Precompiled") == 0) {
        p->kind = TOK_CHARSMAP;
        return tok_charsmap_load(&p->map, name, j, err);
    }
    if (strcmp(type, "BertNormalizer") == 0) {
        p->kind = TOK_BERT;
        TSR_TRY(tsr_json_bool(j, name, "clean_text", true, &p->clean, err));
        TSR_TRY(tsr_json_bool(j, name, "handle_chinese_chars", true, &p->chinese, err));
        TSR_TRY(tsr_json_bool(j, name, "lowercase", true, &p->lower, err));
        p->accents = p->lower;
        return tsr_json_bool(j, name, "strip_accents", false, &p->accents, err);
    }
    return tsr_fail(err, TSR_E_INPUT, "%s: the normalizer \"%s\" is not supported", name, type);
}

/* ---- character by character -------------------------------------------- */

/* Code points for one, at most three. */
typedef unsigned (*char_map)(uint32_t c, uint32_t out[3]);

static unsigned map_lower(uint32_t c, uint32_t out[3])
{
    if (c == 0x130) { /* the only one whose lower case is two characters */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

static unsigned map_unmark(uint32_t c, uint32_t out[3])
{
    out[0] = c;
    return !tok_is_mark(c);
}

static unsigned map_unaccent(uint32_t c, uint32_t out[3])
{
    out[0] = c;
    return utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_MN;
}

static unsigned map_nmt(uint32_t c, uint32_t out[3])
{
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
        c == 0x9f)
        return 0;
    bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                 (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                 c == 0xfeff || c == 0xfffd;
    out[0] = space ? ' ' : c;
    return 1;
}

static unsigned map_clean(uint32_t c, uint32_t out[3])
{
    if (c != '\t' && c != '\n' && c != '\r') {
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        if (c == 0 || c == 0xfffd || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
            k == UTF8PROC_CATEGORY_CO || k == UTF8PROC_CATEGORY_CS)
            return 0;
    }
    out[0] = tok_is_space(c) ? ' ' : c;
    return 1;
}

static unsigned map_chinese(uint32_t c, uint32_t out[3])
{
    bool han = (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
               (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
               (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
               (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
    out[0] = han ? ' ' : c;
    out[1] = c;
    out[2] = ' ';
    return han ? 3 : 1;
}

static tsr_status map_chars(struct tok_string *s, char_map map, struct tsr_err *err)
{
    struct tsr_tokenizer_text out = { 0 };
    tsr_status                st = TSR_OK;
    uint64_t                  zero = 0;
    for (uint64_t i = 0; i < s->t.n && st == TSR_OK;) {
        unsigned len;
        uint32_t to[3];
        unsigned k = map(tok_char(s->t.v + i, s->t.n - i, &len), to);
        for (unsigned j = 0; j < k && st == TSR_OK; j++)
            st = tok_append_char(&out, to[j], err);
        i += len;
        if (i <= s->zero)
            zero = out.n;
    }
    return tok_become(s, &out, zero, st);
}

/* ---- the rest ---------------------------------------------------------- */

static tsr_status to_bytes(struct tok_string *s, struct tsr_err *err)
{
    struct tsr_tokenizer_text out = { 0 };
    uint64_t                  zero = 0;
    tsr_status                st = TSR_OK;
    for (uint64_t i = 0; i < s->t.n && st == TSR_OK; i++) {
        st = tok_append_char(&out, tok_byte_char((unsigned char)s->t.v[i]), err);
        if (i < s->zero)
            zero = out.n;
    }
    return tok_become(s, &out, zero, st);
}

static void strip(struct tok_string *s, bool left, bool right)
{
    uint64_t a = 0, b = s->t.n;
    unsigned len;
    while (left && a < b && tok_is_space(tok_char(s->t.v + a, b - a, &len)))
        a += len;
    while (right && b > a) {
        uint64_t k = b - 1;
        while (k > a && ((unsigned char)s->t.v[k] & 0xc0) == 0x80)
            k--;
        if (!tok_is_space(tok_char(s->t.v + k, b - k, &len)))
            break;
        b = k;
    }
    if (a == 0 && b == s->t.n)
        return;
    memmove(s->t.v, s->t.v + a, b - a);
    s->t.n = b - a;
    s->t.v[s->t.n] = '\0';
    s->zero = s->zero > a ? s->zero - a : 0;
    if (s->zero > s->t.n)
        s->zero = s->t.n;
}

static tsr_status replace(const struct tok_part *p, struct tok_ctx *c, struct tok_string *s)
{
    struct tsr_tokenizer_text out = { 0 };
    uint64_t                  zero = 0;
    tsr_status st = tok_pattern_spans(&p->pattern, c, s->t.v ? s->t.v : "", s->t.n, &c->spans);
    for (uint64_t i = 0; i < c->spans.n && st == TSR_OK; i++) {
        const struct tok_span *a = &c->spans.v[i];
        if (a->match) /* the new text counts as the last of the old characters */
            st = tsr_tokenizer_text_append(&out, p->text, p->n_text, c->err);
        else if (a->end > a->at)
            st = tsr_tokenizer_text_append(&out, s->t.v + a->at, a->end - a->at, c->err);
        if (a->end <= s->zero && a->end > 0)
            zero = out.n;
        else if (!a->match && a->at < s->zero)
            zero = out.n - (a->end - s->zero);
    }
    return tok_become(s, &out, zero, st);
}

static tsr_status prepend(const struct tok_part *p, struct tok_string *s, struct tsr_err *err)
{
    if (s->t.n == 0 || p->n_text == 0)
        return TSR_OK;
    struct tsr_tokenizer_text out = { 0 };
    tsr_status                st = tsr_tokenizer_text_append(&out, p->text, p->n_text, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_text_append(&out, s->t.v, s->t.n, err);
    if (st != TSR_OK) {
        tsr_tokenizer_text_free(&out);
        return st;
    }
    tsr_tokenizer_text_free(&s->t);
    s->t = out;
    s->zero = s->zero ? s->zero + p->n_text : 0;
    return TSR_OK;
}

static tsr_status bert(const struct tok_part *p, struct tok_string *s, struct tsr_err *err)
{
    if (p->clean)
        TSR_TRY(map_chars(s, map_clean, err));
    if (p->chinese)
        TSR_TRY(map_chars(s, map_chinese, err));
    if (p->accents) {
        TSR_TRY(tok_unicode(s, TOK_NFD, err));
        TSR_TRY(map_chars(s, map_unaccent, err));
    }
    return p->lower ? map_chars(s, map_lower, err) : TSR_OK;
}

static tsr_status run(const struct tok_part *p, struct tok_ctx *c, struct tok_string *s)
{
    switch (p->kind) {
    case TOK_NFC:
    case TOK_NFD:
    case TOK_NFKC:
    case TOK_NFKD:
        return tok_unicode(s, p->kind, c->err);
    case TOK_LOWER:
        return map_chars(s, map_lower, c->err);
    case TOK_STRIP_ACCENTS:
        return map_chars(s, map_unmark, c->err);
    case TOK_NMT:
        return map_chars(s, map_nmt, c->err);
    case TOK_BYTES:
        return to_bytes(s, c->err);
    case TOK_STRIP:
        strip(s, p->left, p->right);
        return TSR_OK;
    case TOK_REPLACE:
        return replace(p, c, s);
    case TOK_PREPEND:
        return prepend(p, s, c->err);
    case TOK_CHARSMAP:
        return tok_charsmap_run(p->map, s, c->err);
    case TOK_BERT:
        return bert(p, s, c->err);
    default:
        return tsr_fail(c->err, TSR_E_BUG, "a normalizer of kind %d", (int)p->kind);
    }
}

tsr_status tok_normalize(const struct tok_parts *p, struct tok_ctx *c, struct tok_string *s)
{
    for (uint32_t i = 0; i < p->n; i++) {
        TSR_TRY(run(&p->v[i], c, s));
        if (s->t.n > TOK_MAX_TEXT)
            return tsr_fail(c->err, TSR_E_INPUT,
                            "%s: the normalizers make the text longer than "
                            "%u bytes",
                            c->name, TOK_MAX_TEXT);
    }
    return TSR_OK;
}
