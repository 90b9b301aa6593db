/* bpe.c - byte-pair encoding of one word.  A heap of possible merges over a linked list of symbols:
 * n log n even if the whole text is one word. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

static tsr_status bad_token(struct tsr_tokenizer *t, uint64_t rank, const char *s, uint64_t n,
                            struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: merge %llu needs the token \"%.*s\", which is not in "
                    "the vocabulary",
                    t->name, (unsigned long long)rank, n > 80 ? 80 : (int)n, s);
}

/* The two halves of "a b" or ["a","b"]. */
static tsr_status halves(struct tsr_tokenizer *t, const json_t *m, uint64_t rank, const char *s[2],
                         uint64_t n[2], struct tsr_err *err)
{
    if (json_is_string(m)) {
        const char *text = json_string_value(m);
        uint64_t    len = json_string_length(m);
        const char *sp = memchr(text, ' ', len);
        if (sp && !memchr(sp + 1, ' ', len - (uint64_t)(sp + 1 - text))) {
            s[0] = text;
            n[0] = (uint64_t)(sp - text);
            s[1] = sp + 1;
            n[1] = len - n[0] - 1;
            return TSR_OK;
        }
    } else if (json_is_array(m) && json_array_size(m) == 2) {
        const json_t *a = json_array_get(m, 0), *b = json_array_get(m, 1);
        if (json_is_string(a) && json_is_string(b)) {
            s[0] = json_string_value(a);
            n[0] = json_string_length(a);
            s[1] = json_string_value(b);
            n[1] = json_string_length(b);
            return TSR_OK;
        }
    }
    return tsr_fail(err, TSR_E_INPUT, "%s: merge %llu is neither \"a b\" nor [\"a\", \"b\"]",
                    t->name, (unsigned long long)rank);
}

static tsr_status load_merge(struct tsr_tokenizer *t, const json_t *m, uint64_t rank,
                             struct tsr_tokenizer_text *joined, struct tsr_err *err)
{
    const char *s[2] = { 0 };
    uint64_t    n[2] = { 0 };
    if (json_is_string(m) && strncmp(json_string_value(m), "#version", 8) == 0)
        return TSR_OK;
    TSR_TRY(halves(t, m, rank, s, n, err));
    int64_t id[3];
    for (unsigned i = 0; i < 2; i++) {
        id[i] = tok_strmap_get(&t->vocab, s[i], n[i]);
        if (id[i] < 0)
            return bad_token(t, rank, s[i], n[i], err);
    }
    if (n[1] < t->bpe.n_prefix)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the right half of merge %llu is shorter than "
                        "\"continuing_subword_prefix\"",
                        t->name, (unsigned long long)rank);
    joined->n = 0;
    TSR_TRY(tsr_tokenizer_text_append(joined, s[0], n[0], err));
    TSR_TRY(tsr_tokenizer_text_append(joined, s[1] + t->bpe.n_prefix, n[1] - t->bpe.n_prefix, err));
    id[2] = tok_strmap_get(&t->vocab, joined->v, joined->n);
    if (id[2] < 0)
        return bad_token(t, rank, joined->v, joined->n, err);
    return tok_map_put(&t->bpe.merges, (uint64_t)id[0] << 32 | (uint64_t)id[1],
                       rank << 32 | (uint64_t)id[2], err);
}

static tsr_status load_fields(struct tsr_tokenizer *t, const json_t *model, struct tsr_err *err)
{
    double   dropout = 0;
    uint64_t n;
    TSR_TRY(tsr_json_real(model, t->name, "dropout", false, 0.0, 1.0, &dropout, err));
    if (dropout > 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"dropout\" is %g; only a tokenizer without dropout "
                        "gives the same ids twice, so set it to null",
                        t->name, dropout);
    TSR_TRY(tsr_json_bool(model, t->name, "fuse_unk", false, &t->bpe.fuse_unk, err));
    TSR_TRY(tsr_json_bool(model, t->name, "byte_fallback", false, &t->byte_fallback, err));
    TSR_TRY(tsr_json_bool(model, t->name, "ignore_merges", false, &t->bpe.ignore_merges, err));
    TSR_TRY(tok_load_text(model, t->name, "?unk_token", &t->bpe.unk, &n, err));
    TSR_TRY(tok_load_text(model, t->name, "?continuing_subword_prefix", &t->bpe.prefix,
                          &t->bpe.n_prefix, err));
    TSR_TRY(tok_load_text(model, t->name, "?end_of_word_suffix", &t->bpe.suffix, &t->bpe.n_suffix,
                          err));
    t->bpe.unk_id = t->bpe.unk ? tok_strmap_get(&t->vocab, t->bpe.unk, n) : -1;
    return TSR_OK;
}

tsr_status tok_bpe_load(struct tsr_tokenizer *t, const json_t *model, struct tsr_err *err)
{
    json_t     *vocab, *merges, *id;
    const char *key;
    TSR_TRY(tsr_json_sub(model, t->name, "vocab", true, JSON_OBJECT, &vocab, err));
    TSR_TRY(tsr_json_sub(model, t->name, "merges", true, JSON_ARRAY, &merges, err));
    if (json_object_size(vocab) >= TOK_MAX_IDS)
        return tsr_fail(err, TSR_E_INPUT, "%s: the vocabulary has %zu tokens, more than %u",
                        t->name, json_object_size(vocab), TOK_MAX_IDS - 1);
    json_object_foreach (vocab, key, id) {
        int64_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= TOK_MAX_IDS)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the id of token \"%.80s\" is not an integer "
                            "from 0 to %u",
                            t->name, key, TOK_MAX_IDS - 1);
        TSR_TRY(tok_strmap_put(&t->vocab, key, strlen(key), (uint32_t)v, NULL, err));
    }
    t->n_vocab = t->vocab.n;
    TSR_TRY(load_fields(t, model, err));
    struct tsr_tokenizer_text joined = { 0 };
    tsr_status                st = TSR_OK;
    for (size_t i = 0; i < json_array_size(merges) && st == TSR_OK; i++)
        st = i > UINT32_MAX ? tsr_fail(err, TSR_E_INPUT, "%s: too many merges", t->name)
                            : load_merge(t, json_array_get(merges, i), i, &joined, err);
    tsr_tokenizer_text_free(&joined);
    return st;
}

/* ---- encoding ---------------------------------------------------------- */

static tsr_status add_symbol(struct tok_ctx *c, uint32_t id, uint64_t len)
{
    if (c->n_symbol == c->cap_symbol) {
        uint64_t           cap = c->cap_symbol ? c->cap_symbol * 2 : 256;
        struct tok_symbol *v = tsr_renew(c->symbol, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(c->err, cap * sizeof *v, "the symbols of a word");
        c->symbol = v;
        c->cap_symbol = cap;
    }
    int32_t i = (int32_t)c->n_symbol;
    c->symbol[c->n_symbol++] = (struct tok_symbol){ id, (uint32_t)len, i - 1, i + 1 };
    return TSR_OK;
}

static bool before(const struct tok_merge *a, const struct tok_merge *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

/* Queues the merge of the symbols at pos and right, if there is one. */
static tsr_status queue(struct tok_ctx *c, int32_t pos, int32_t right)
{
    uint64_t v, key = (uint64_t)c->symbol[pos].id << 32 | c->symbol[right].id;
    if (!tok_map_get(&c->t->bpe.merges, key, &v))
        return TSR_OK;
    if (c->n_heap == c->cap_heap) {
        uint64_t          cap = c->cap_heap ? c->cap_heap * 2 : 256;
        struct tok_merge *h = tsr_renew(c->heap, cap, sizeof *h);
        if (!h)
            return tsr_fail_nomem(c->err, cap * sizeof *h, "the merges of a word");
        c->heap = h;
        c->cap_heap = cap;
    }
    struct tok_merge m = { (uint32_t)(v >> 32), (uint32_t)pos, (uint32_t)v };
    uint64_t         i = c->n_heap++;
    for (; i > 0 && before(&m, &c->heap[(i - 1) / 2]); i = (i - 1) / 2)
        c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = m;
    return TSR_OK;
}

static struct tok_merge pop(struct tok_ctx *c)
{
    struct tok_merge top = c->heap[0], last = c->heap[--c->n_heap];
    uint64_t         i = 0;
    for (;;) {
        uint64_t k = 2 * i + 1;
        if (k >= c->n_heap)
            break;
        if (k + 1 < c->n_heap && before(&c->heap[k + 1], &c->heap[k]))
            k++;
        if (!before(&c->heap[k], &last))
            break;
        c->heap[i] = c->heap[k];
        i = k;
    }
    c->heap[i] = last;
    return top;
}

static tsr_status merge_all(struct tok_ctx *c)
{
    struct tok_symbol *s = c->symbol;
    int32_t            n = (int32_t)c->n_symbol;
    c->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        TSR_TRY(queue(c, i, i + 1));
    while (c->n_heap) {
        struct tok_merge m = pop(c);
        int32_t          i = (int32_t)m.pos, right = s[i].next;
        uint64_t         v;
        if (s[i].len == 0 || right >= n)
            continue;
        /* what stood here when it was queued may have been merged since */
        if (!tok_map_get(&c->t->bpe.merges, (uint64_t)s[i].id << 32 | s[right].id, &v) ||
            (uint32_t)v != m.id)
            continue;
        s[i].id = m.id;
        s[i].len += s[right].len;
        s[i].next = s[right].next;
        s[right].len = 0;
        if (s[i].next < n)
            s[s[i].next].prev = i;
        if (s[i].prev >= 0)
            TSR_TRY(queue(c, s[i].prev, i));
        if (s[i].next < n)
            TSR_TRY(queue(c, i, s[i].next));
    }
    return TSR_OK;
}

/* The text of one character in the vocabulary: with prefix or suffix if it has one. */
static tsr_status letter(struct tok_ctx *c, const char **s, uint64_t *n, bool first, bool last)
{
    const struct tok_bpe *b = &c->t->bpe;
    bool                  prefix = !first && b->prefix, suffix = last && b->suffix;
    if (!prefix && !suffix)
        return TSR_OK;
    c->scratch.n = 0;
    if (prefix)
        TSR_TRY(tsr_tokenizer_text_append(&c->scratch, b->prefix, b->n_prefix, c->err));
    TSR_TRY(tsr_tokenizer_text_append(&c->scratch, *s, *n, c->err));
    if (suffix)
        TSR_TRY(tsr_tokenizer_text_append(&c->scratch, b->suffix, b->n_suffix, c->err));
    *s = c->scratch.v;
    *n = c->scratch.n;
    return TSR_OK;
}

/* The bytes of an unknown character as symbols; false if one of them has no token. */
static tsr_status fall_back(struct tok_ctx *c, const char *s, uint64_t n, bool *done)
{
    *done = false;
    for (uint64_t i = 0; i < n; i++)
        if (c->t->byte_id[(unsigned char)s[i]] < 0)
            return TSR_OK;
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(add_symbol(c, (uint32_t)c->t->byte_id[(unsigned char)s[i]], 1));
    *done = true;
    return TSR_OK;
}

static tsr_status split_word(struct tok_ctx *c, const char *word, uint64_t n)
{
    const struct tok_bpe *b = &c->t->bpe;
    uint64_t              unk = 0; /* bytes of a pending unknown token, 0: none */
    c->n_symbol = 0;
    for (uint64_t i = 0; i < n;) {
        unsigned len;
        (void)tok_char(word + i, n - i, &len);
        const char *s = word + i;
        uint64_t    k = len;
        bool        done = false;
        TSR_TRY(letter(c, &s, &k, i == 0, i + len >= n));
        int64_t id = tok_strmap_get(&c->t->vocab, s, k);
        i += len;
        if (id >= 0) {
            if (unk)
                TSR_TRY(add_symbol(c, (uint32_t)b->unk_id, unk));
            unk = 0;
            TSR_TRY(add_symbol(c, (uint32_t)id, len));
            continue;
        }
        if (c->t->byte_fallback)
            TSR_TRY(fall_back(c, s, k, &done)); /* a pending unknown stays pending, as there */
        if (done || !b->unk)
            continue;
        if (b->unk_id < 0)
            return tsr_fail(c->err, TSR_E_INPUT,
                            "%s: the text has an unknown character and the "
                            "\"unk_token\" %s is not in the vocabulary",
                            c->name, b->unk);
        if (unk && !b->fuse_unk) {
            TSR_TRY(add_symbol(c, (uint32_t)b->unk_id, unk));
            unk = 0;
        }
        unk += len;
    }
    return unk ? add_symbol(c, (uint32_t)b->unk_id, unk) : TSR_OK;
}

tsr_status tok_bpe_encode(struct tok_ctx *c, const char *s, uint64_t n,
                          struct tsr_tokenizer_ids *ids)
{
    if (c->t->bpe.ignore_merges) {
        int64_t id = tok_strmap_get(&c->t->vocab, s, n);
        if (id >= 0)
            return tsr_tokenizer_ids_push(ids, (uint32_t)id, c->err);
    }
    TSR_TRY(split_word(c, s, n));
    TSR_TRY(merge_all(c));
    for (uint64_t i = 0; i < c->n_symbol; i++)
        if (c->symbol[i].len)
            TSR_TRY(tsr_tokenizer_ids_push(ids, c->symbol[i].id, c->err));
    return TSR_OK;
}
