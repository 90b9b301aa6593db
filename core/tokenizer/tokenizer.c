/* tokenizer.c - the way of a text through the stages. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

void tsr_tokenizer_destroy(struct tsr_tokenizer *t)
{
    if (!t)
        return;
    tok_strmap_free(&t->vocab);
    tok_map_free(&t->bpe.merges);
    free(t->bpe.unk);
    free(t->bpe.prefix);
    free(t->bpe.suffix);
    tok_trie_free(&t->unigram.trie);
    free(t->unigram.score);
    free(t->token);
    for (uint32_t i = 0; i < t->n_added; i++) {
        free(t->added[i].content);
        free(t->added[i].normal);
    }
    free(t->added);
    tok_strmap_free(&t->added_map);
    tok_trie_free(&t->plain);
    tok_trie_free(&t->normal);
    tok_parts_free(&t->norm);
    tok_parts_free(&t->pre);
    tok_parts_free(&t->dec);
    tok_template_free(&t->post);
    free(t->name);
    free(t);
}

/* Normalizes the pieces between the plain added tokens and splits them at the normalized ones. */
static tsr_status normalize(const struct tsr_tokenizer *t, struct tok_ctx *c, bool skip,
                            const struct tok_work *in, struct tok_work *out)
{
    for (uint64_t i = 0; i < in->n; i++) {
        const struct tok_piece *a = &in->v[i];
        if (a->id >= 0) {
            TSR_TRY(tok_work_push(out, "", 0, 0, a->id, c->err));
            continue;
        }
        struct tok_string s = { .zero = a->zero };
        tsr_status        st = tsr_tokenizer_text_append(&s.t, in->text.v + a->at, a->len, c->err);
        if (st == TSR_OK)
            st = tok_normalize(&t->norm, c, &s);
        if (st == TSR_OK && s.t.n)
            st = tok_added_split(t, &t->normal, skip, NULL, 0, s.t.v, s.t.n, s.zero, out, c->err);
        tsr_tokenizer_text_free(&s.t);
        TSR_TRY(st);
    }
    return TSR_OK;
}

static tsr_status encode(const struct tsr_tokenizer *t, struct tok_ctx *c, const char *text,
                         uint64_t len, bool skip, const struct tsr_tokenizer_text_span *spans,
                         uint64_t n_spans, struct tok_work w[2], struct tsr_tokenizer_ids *ids)
{
    unsigned first = 0, at = 1;
    if (len)
        (void)tok_char(text, len, &first);
    TSR_TRY(tok_added_split(t, &t->plain, skip, spans, n_spans, text, len, first, &w[0], c->err));
    TSR_TRY(normalize(t, c, skip, &w[0], &w[1]));
    for (uint32_t i = 0; i < t->pre.n; i++, at ^= 1)
        TSR_TRY(tok_pretokenize(&t->pre.v[i], c, &w[at], &w[at ^ 1]));
    for (uint64_t i = 0; i < w[at].n; i++) {
        const struct tok_piece *a = &w[at].v[i];
        const char             *s = w[at].text.v ? w[at].text.v + a->at : ""; /* no text */
        if (a->id >= 0)
            TSR_TRY(tsr_tokenizer_ids_push(ids, (uint32_t)a->id, c->err));
        else if (a->len > TOK_MAX_TEXT)
            return tsr_fail(c->err, TSR_E_INPUT, "%s: a word is longer than %u bytes", t->name,
                            TOK_MAX_TEXT);
        else if (t->model == TOK_BPE)
            TSR_TRY(tok_bpe_encode(c, s, a->len, ids));
        else
            TSR_TRY(tok_unigram_encode(c, s, a->len, ids));
    }
    return TSR_OK;
}

tsr_status tsr_tokenize(const struct tsr_tokenizer *t, const char *text, uint64_t len,
                        unsigned flags, struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    if (len > TOK_MAX_TEXT)
        return tsr_fail(err, TSR_E_INPUT, "a text of %llu bytes is longer than %u; split it",
                        (unsigned long long)len, TOK_MAX_TEXT);
    struct tok_ctx            c;
    struct tok_work           w[2] = { 0 };
    struct tsr_tokenizer_text fixed = { 0 };
    struct tsr_tokenizer_ids  own = { 0 };
    tsr_status                st = TSR_OK;
    tok_ctx_init(&c, t, len, err);
    if (!tok_valid(text, len)) {
        st = tok_append_lossy(&fixed, text, len, err);
        text = fixed.v;
        len = fixed.n;
    }
    if (st == TSR_OK)
        st = encode(t, &c, text, len, flags & TSR_TOKENIZER_NO_SPECIALS, NULL, 0, w, &own);
    if (st == TSR_OK)
        st = tok_post_run(&t->post, &own, flags & TSR_TOKENIZER_SPECIAL, ids, err);
    tok_work_free(&w[0]);
    tok_work_free(&w[1]);
    tsr_tokenizer_text_free(&fixed);
    tsr_tokenizer_ids_free(&own);
    tok_ctx_free(&c);
    return st;
}

tsr_status tsr_tokenize_around(const struct tsr_tokenizer *t, const char *text, uint64_t len,
                               const struct tsr_tokenizer_text_span *spans, uint64_t n,
                               struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    struct tok_ctx  c;
    struct tok_work w[2] = { 0 };
    if (len > TOK_MAX_TEXT || !tok_valid(text, len))
        return tsr_fail(err, TSR_E_INPUT, "a text of %llu bytes is not UTF-8 or longer than %u",
                        (unsigned long long)len, TOK_MAX_TEXT);
    for (uint32_t i = 0; n && i < t->n_added; i++)
        if (t->added[i].special && t->added[i].normalized)
            return tsr_fail(
                err, TSR_E_UNSUPPORTED,
                "%s: the special token \"%.40s\" is normalized; it cannot be distinguished from "
                "text in a message",
                t->name, t->added[i].content);
    tok_ctx_init(&c, t, len, err);
    tsr_status st = encode(t, &c, text, len, false, spans, n, w, ids);
    tok_work_free(&w[0]);
    tok_work_free(&w[1]);
    tok_ctx_free(&c);
    return st;
}

uint64_t tsr_tokenizer_size(const struct tsr_tokenizer *t)
{
    return t->n_token;
}

const char *tsr_tokenizer_hash(const struct tsr_tokenizer *t)
{
    return t->hash;
}
