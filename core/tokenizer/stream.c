/* stream.c - decoding one id at a time.  The chain is cut into the decoders of single tokens, byte
 * fallback, the byte-level bytes and one last strip; text is emitted when no later id can change
 * it.  A chain of any other form emits its text at the flush. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

struct tsr_detok {
    const struct tsr_tokenizer *t;
    bool                        skip_special, whole;    /* whole: everything at the flush */
    struct tsr_tokenizer_ids    ids;                    /* only for whole                 */
    uint32_t               n_before, fallback, n_after; /* parts before and after byte fallback */
    bool                   has_fallback, byte_level, fused;
    const struct tok_part *last;     /* the strip after Fuse, or NULL */
    bool                  *seen;     /* per part: its first token has passed */
    bool                   any;      /* a token has passed (join without decoder) */
    struct tsr_tokenizer_text bytes; /* byte tokens of a run */
    struct tsr_tokenizer_text tail;  /* byte level: an incomplete character */
    struct tsr_tokenizer_text held;  /* last: characters it may still cut at the end */
    uint64_t                  cut;   /* last: characters that may still go at the start */
    struct tsr_tokenizer_text a, b;
};

static bool single(const struct tok_part *p)
{
    return p->kind == TOK_REPLACE || p->kind == TOK_STRIP || p->kind == TOK_METASPACE;
}

/* [single]* [ByteFallback]? [single]* ([ByteLevel | Fuse] [Fuse]* [Strip]?)? */
static void plan(struct tsr_detok *s)
{
    const struct tok_parts *d = &s->t->dec;
    uint32_t                i = 0;
    while (i < d->n && single(&d->v[i]))
        i++;
    s->n_before = i;
    if (i < d->n && d->v[i].kind == TOK_BYTE_FALLBACK) {
        s->has_fallback = true;
        i++;
    }
    s->fallback = i;
    while (i < d->n && single(&d->v[i]))
        i++;
    s->n_after = i;
    if (i < d->n && (d->v[i].kind == TOK_BYTE_LEVEL || d->v[i].kind == TOK_FUSE)) {
        s->byte_level = d->v[i].kind == TOK_BYTE_LEVEL;
        i++;
        while (i < d->n && d->v[i].kind == TOK_FUSE)
            i++;
        if (i < d->n && d->v[i].kind == TOK_STRIP) {
            s->last = &d->v[i++];
            s->cut = s->last->start;
        }
    }
    s->whole = i < d->n;
}

tsr_status tsr_tokenizer_detok_create(struct tsr_detok **out, const struct tsr_tokenizer *t,
                                      bool skip_special, struct tsr_err *err)
{
    struct tsr_detok *s = tsr_new(1, sizeof *s);
    bool             *seen = tsr_new(t->dec.n + 1, sizeof *seen);
    if (!s || !seen) {
        free(s);
        free(seen);
        return tsr_fail_nomem(err, sizeof *s, "a stream");
    }
    s->t = t;
    s->skip_special = skip_special;
    s->seen = seen;
    plan(s);
    *out = s;
    return TSR_OK;
}

void tsr_tokenizer_detok_show_special(struct tsr_detok *s, bool show)
{
    s->skip_special = !show;
}

void tsr_tokenizer_detok_destroy(struct tsr_detok *s)
{
    if (!s)
        return;
    tsr_tokenizer_ids_free(&s->ids);
    tsr_tokenizer_text_free(&s->bytes);
    tsr_tokenizer_text_free(&s->tail);
    tsr_tokenizer_text_free(&s->held);
    tsr_tokenizer_text_free(&s->a);
    tsr_tokenizer_text_free(&s->b);
    free(s->seen);
    free(s);
}

/* The trailing characters of held that a strip at the end could take, in bytes. */
static uint64_t at_risk(const struct tsr_detok *s)
{
    uint64_t end = s->held.n;
    unsigned len;
    for (uint64_t i = 0; i < s->last->stop && end > 0; i++) {
        uint64_t k = end - 1;
        while (k > 0 && ((unsigned char)s->held.v[k] & 0xc0) == 0x80)
            k--;
        if (tok_char(s->held.v + k, end - k, &len) != s->last->c)
            break;
        end = k;
    }
    return s->held.n - end;
}

/* Whole characters of the joined text, through the last strip. */
static tsr_status emit(struct tsr_detok *s, const char *v, uint64_t n,
                       struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    if (!s->last)
        return tsr_tokenizer_text_append(out, v, n, err);
    while (s->cut && n) {
        unsigned len;
        if (tok_char(v, n, &len) != s->last->c) {
            s->cut = 0;
            break;
        }
        s->cut--;
        v += len;
        n -= len;
    }
    if (!s->last->stop)
        return tsr_tokenizer_text_append(out, v, n, err);
    TSR_TRY(tsr_tokenizer_text_append(&s->held, v, n, err));
    uint64_t keep = at_risk(s), go = s->held.n - keep;
    TSR_TRY(tsr_tokenizer_text_append(out, s->held.v, go, err));
    memmove(s->held.v, s->held.v + go, keep);
    s->held.n = keep;
    return TSR_OK;
}

/* Bytes of the byte level: complete characters go on, an open one waits. */
static tsr_status emit_bytes(struct tsr_detok *s, bool flush, struct tsr_tokenizer_text *out,
                             struct tsr_err *err)
{
    uint64_t i = 0;
    while (i < s->tail.n) {
        bool     valid, open;
        unsigned len = tok_sequence(s->tail.v + i, s->tail.n - i, &valid, &open);
        if (open && !flush)
            break;
        TSR_TRY(valid ? emit(s, s->tail.v + i, len, out, err)
                      : emit(s, "\xef\xbf\xbd", 3, out, err));
        i += len;
    }
    if (i) {
        memmove(s->tail.v, s->tail.v + i, s->tail.n - i);
        s->tail.n -= i;
    }
    return TSR_OK;
}

/* One string through the parts [from, to) and out. */
static tsr_status pass(struct tsr_detok *s, struct tok_ctx *c, uint32_t from, uint32_t to,
                       const char *v, uint64_t n, struct tsr_tokenizer_text *result)
{
    result->n = 0;
    TSR_TRY(tsr_tokenizer_text_append(result, v, n, c->err));
    for (uint32_t i = from; i < to; i++) {
        c->scratch.n = 0;
        TSR_TRY(tok_dec_token(&s->t->dec.v[i], c, !s->seen[i], result->v, result->n, &c->scratch));
        s->seen[i] = true;
        result->n = 0;
        TSR_TRY(tsr_tokenizer_text_append(result, c->scratch.v ? c->scratch.v : "", c->scratch.n,
                                          c->err));
    }
    return TSR_OK;
}

static tsr_status after(struct tsr_detok *s, struct tok_ctx *c, const char *v, uint64_t n,
                        struct tsr_tokenizer_text *out)
{
    TSR_TRY(pass(s, c, s->fallback, s->n_after, v, n, &s->b));
    if (!s->byte_level)
        return emit(s, s->b.v, s->b.n, out, c->err);
    TSR_TRY(tok_dec_bytes(s->b.v, s->b.n, &s->tail, c->err));
    return emit_bytes(s, false, out, c->err);
}

/* The end of a run of byte tokens: their text, or one U+FFFD for each. */
static tsr_status end_run(struct tsr_detok *s, struct tok_ctx *c, struct tsr_tokenizer_text *out)
{
    uint64_t n = s->bytes.n;
    if (n == 0)
        return TSR_OK;
    s->bytes.n = 0;
    if (tok_valid(s->bytes.v, n))
        return after(s, c, s->bytes.v, n, out);
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(after(s, c, "\xef\xbf\xbd", 3, out));
    return TSR_OK;
}

static tsr_status push_token(struct tsr_detok *s, struct tok_ctx *c, const struct tok_token *k,
                             struct tsr_tokenizer_text *out)
{
    if (!s->t->has_dec && s->any)
        TSR_TRY(tsr_tokenizer_text_append(out, " ", 1, c->err));
    s->any = true;
    TSR_TRY(pass(s, c, 0, s->n_before, k->s, k->n, &s->a));
    int byte = s->has_fallback ? tok_byte_token(s->a.v, s->a.n) : -1;
    if (byte >= 0) {
        char b = (char)byte;
        return tsr_tokenizer_text_append(&s->bytes, &b, 1, c->err);
    }
    if (s->has_fallback)
        TSR_TRY(end_run(s, c, out));
    return after(s, c, s->a.v, s->a.n, out);
}

tsr_status tsr_tokenizer_detok_push(struct tsr_detok *s, uint32_t id,
                                    struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    const struct tok_token *k = id < s->t->n_token ? &s->t->token[id] : NULL;
    if (!k || !k->s || (s->skip_special && k->skip))
        return TSR_OK;
    if (s->whole)
        return tsr_tokenizer_ids_push(&s->ids, id, err);
    struct tok_ctx c;
    tok_ctx_init(&c, s->t, k->n, err);
    tsr_status st = push_token(s, &c, k, out);
    tok_ctx_free(&c);
    return st;
}

tsr_status tsr_tokenizer_detok_flush(struct tsr_detok *s, struct tsr_tokenizer_text *out,
                                     struct tsr_err *err)
{
    if (s->whole) {
        /* ids that give no text were not kept */
        TSR_TRY(tsr_detokenize(s->t, s->ids.v, s->ids.n, false, out, err));
        s->ids.n = 0;
        return TSR_OK;
    }
    struct tok_ctx c;
    tok_ctx_init(&c, s->t, s->bytes.n, err);
    tsr_status st = end_run(s, &c, out);
    tok_ctx_free(&c);
    if (st == TSR_OK && s->byte_level)
        st = emit_bytes(s, true, out, err);
    if (st != TSR_OK)
        return st;
    s->held.n = 0; /* the characters that a strip at the end removes */
    s->tail.n = 0;
    s->any = false;
    s->cut = s->last ? s->last->start : 0;
    memset(s->seen, 0, (s->t->dec.n + 1) * sizeof *s->seen);
    return TSR_OK;
}

/* ---- one token alone -------------------------------------------------------------- */

static tsr_status token_text(struct tsr_detok *s, struct tok_ctx *c, const struct tok_token *k,
                             struct tsr_tokenizer_text *text)
{
    for (uint32_t i = 0; i < s->t->dec.n; i++)
        s->seen[i] = true;
    TSR_TRY(pass(s, c, 0, s->n_before, k->s, k->n, &s->a));
    int  byte = s->has_fallback ? tok_byte_token(s->a.v, s->a.n) : -1;
    char b = (char)byte;
    if (byte >= 0)
        return tsr_tokenizer_text_append(text, &b, 1, c->err);
    TSR_TRY(pass(s, c, s->fallback, s->n_after, s->a.v, s->a.n, &s->b));
    return s->byte_level ? tok_dec_bytes(s->b.v, s->b.n, text, c->err)
                         : tsr_tokenizer_text_append(text, s->b.v, s->b.n, c->err);
}

tsr_status tsr_tokenizer_token_text(const struct tsr_tokenizer *t, uint32_t id,
                                    struct tsr_tokenizer_text *text, struct tsr_err *err)
{
    const struct tok_token *k = id < t->n_token ? &t->token[id] : NULL;
    struct tsr_detok       *s;
    struct tok_ctx          c;
    if (!k || !k->s || k->skip)
        return TSR_OK;
    TSR_TRY(tsr_tokenizer_detok_create(&s, t, true, err));
    tok_ctx_init(&c, t, k->n, err);
    tsr_status st = s->whole || !t->has_dec
                        ? tsr_fail(err, TSR_E_UNSUPPORTED,
                                   "%s: its decoder gives no text of a single token", t->name)
                        : token_text(s, &c, k, text);
    tok_ctx_free(&c);
    tsr_tokenizer_detok_destroy(s);
    return st;
}
