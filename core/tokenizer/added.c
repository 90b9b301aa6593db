/* added.c - tokens added to the model's vocabulary: matched in the text before the model runs,
 * leftmost and longest, with their flags. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

static tsr_status normal_form(struct tsr_tokenizer *t, struct tok_added *a, struct tsr_err *err)
{
    struct tok_ctx    c;
    struct tok_string s = { 0 };
    tok_ctx_init(&c, t, a->n, err);
    tsr_status st = tsr_tokenizer_text_append(&s.t, a->content, a->n, err);
    if (st == TSR_OK)
        st = tok_normalize(&t->norm, &c, &s);
    tok_ctx_free(&c);
    if (st == TSR_OK && (s.t.n != a->n || memcmp(s.t.v, a->content, a->n) != 0)) {
        a->normal = s.t.v;
        a->n_normal = s.t.n;
        return TSR_OK;
    }
    tsr_tokenizer_text_free(&s.t);
    return st;
}

static tsr_status load_one(struct tsr_tokenizer *t, const json_t *j, size_t i, uint32_t *next,
                           struct tsr_err *err)
{
    struct tok_added *a = &t->added[t->n_added];
    int64_t           id = -1;
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: item %zu of \"added_tokens\" is not an object",
                        t->name, i);
    TSR_TRY(tsr_json_int(j, t->name, "id", true, 0, TOK_MAX_IDS - 1, &id, err));
    TSR_TRY(tok_load_text(j, t->name, "content", &a->content, &a->n, err));
    t->n_added++; /* its strings are freed with the list from here on */
    if (a->n == 0 || a->n > TOK_MAX_ADDED)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the added token with id %lld has %llu bytes instead "
                        "of 1 to %u",
                        t->name, (long long)id, (unsigned long long)a->n, TOK_MAX_ADDED);
    a->normalized = true;
    TSR_TRY(tsr_json_bool(j, t->name, "single_word", false, &a->single_word, err));
    TSR_TRY(tsr_json_bool(j, t->name, "lstrip", false, &a->lstrip, err));
    TSR_TRY(tsr_json_bool(j, t->name, "rstrip", false, &a->rstrip, err));
    TSR_TRY(tsr_json_bool(j, t->name, "special", false, &a->special, err));
    a->normalized = !a->special;
    TSR_TRY(tsr_json_bool(j, t->name, "normalized", false, &a->normalized, err));
    int64_t known = tok_strmap_get(&t->vocab, a->content, a->n);
    if (tok_strmap_get(&t->added_map, a->content, a->n) >= 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: the added token \"%.80s\" is there twice", t->name,
                        a->content);
    int64_t want = known >= 0 ? known : (int64_t)*next;
    if (id != want)
        return tsr_fail(err, TSR_E_INPUT, "%s: the added token \"%.80s\" has id %lld, but %s %lld",
                        t->name, a->content, (long long)id,
                        known >= 0 ? "the vocabulary gives it" : "the next free id is",
                        (long long)want);
    if (known < 0)
        (*next)++;
    a->id = (uint32_t)id;
    if (a->normalized)
        TSR_TRY(normal_form(t, a, err));
    return tok_strmap_put(&t->added_map, a->content, a->n, t->n_added - 1, NULL, err);
}

tsr_status tok_added_load(struct tsr_tokenizer *t, const json_t *list, struct tsr_err *err)
{
    size_t   n = json_array_size(list);
    uint32_t next = t->n_vocab;
    if (n >= TOK_MAX_IDS)
        return tsr_fail(err, TSR_E_INPUT, "%s: too many added tokens", t->name);
    t->added = tsr_new(n, sizeof *t->added);
    if (!t->added)
        return tsr_fail_nomem(err, n * sizeof *t->added, "added tokens");
    for (size_t i = 0; i < n; i++)
        TSR_TRY(load_one(t, json_array_get(list, i), i, &next, err));
    for (uint32_t i = 0; i < t->n_added; i++) {
        const struct tok_added *a = &t->added[i];
        const char             *s = a->normal ? a->normal : a->content;
        uint64_t                len = a->normal ? a->n_normal : a->n;
        int32_t                 old;
        if (len == 0 || len > UINT64_C(16) * TOK_MAX_ADDED)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the normalizer leaves %llu bytes of the added "
                            "token \"%.80s\"",
                            t->name, (unsigned long long)len, a->content);
        TSR_TRY(
            tok_trie_put(a->normalized ? &t->normal : &t->plain, s, len, (int32_t)i, &old, err));
        if (old >= 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the added tokens \"%.80s\" and \"%.80s\" are "
                            "the same once normalized",
                            t->name, t->added[old].content, a->content);
    }
    return TSR_OK;
}

/* ---- finding them ------------------------------------------------------ */

static bool word_before(const char *s, uint64_t at)
{
    unsigned len;
    uint64_t k = at;
    while (k > 0 && ((unsigned char)s[k - 1] & 0xc0) == 0x80)
        k--;
    if (k == 0)
        return false;
    k--;
    return tok_is_word(tok_char(s + k, at - k, &len));
}

static bool word_after(const char *s, uint64_t n, uint64_t at)
{
    unsigned len;
    return at < n && tok_is_word(tok_char(s + at, n - at, &len));
}

static uint64_t spaces_before(const char *s, uint64_t at)
{
    unsigned len;
    for (;;) {
        uint64_t k = at;
        while (k > 0 && ((unsigned char)s[k - 1] & 0xc0) == 0x80)
            k--;
        if (k == 0 || !tok_is_space(tok_char(s + k - 1, at - k + 1, &len)))
            return at;
        at = k - 1;
    }
}

static uint64_t spaces_after(const char *s, uint64_t n, uint64_t at)
{
    unsigned len;
    while (at < n && tok_is_space(tok_char(s + at, n - at, &len)))
        at += len;
    return at;
}

/* The longest token at s[i], or -1. */
static int32_t longest(const struct tok_trie *trie, const char *s, uint64_t n, uint64_t i,
                       uint64_t *end)
{
    int32_t  found = -1;
    uint32_t node = 0;
    if (!trie->first[(unsigned char)s[i]])
        return -1;
    for (uint64_t k = i; k < n; k++) {
        node = tok_trie_step(trie, node, (unsigned char)s[k]);
        if (!node)
            break;
        if (trie->value[node] >= 0) {
            found = trie->value[node];
            *end = k + 1;
        }
    }
    return found;
}

/* Whether [start, stop) touches one of the spans; *at moves on with start. */
static bool touches(const struct tsr_tokenizer_text_span *spans, uint64_t n, uint64_t *at,
                    uint64_t start, uint64_t stop)
{
    while (*at < n && spans[*at].end <= start)
        (*at)++;
    return *at < n && spans[*at].begin < stop;
}

tsr_status tok_added_split(const struct tsr_tokenizer *t, const struct tok_trie *trie,
                           bool skip_special, const struct tsr_tokenizer_text_span *spans,
                           uint64_t n_spans, const char *s, uint64_t n, uint64_t zero,
                           struct tok_work *out, struct tsr_err *err)
{
    uint64_t done = 0, span = 0;
    for (uint64_t i = 0; i < n && trie->n;) {
        uint64_t start = i, stop = i;
        int32_t  k = longest(trie, s, n, i, &stop);
        if (k < 0) {
            i++;
            continue;
        }
        const struct tok_added *a = &t->added[k];
        if (a->special && touches(spans, n_spans, &span, start, stop)) {
            i++; /* a special token of the template may begin inside of it */
            continue;
        }
        i = stop; /* skipped even if a flag discards the match */
        if ((skip_special && a->special) ||
            (a->single_word && (word_before(s, start) || word_after(s, n, stop))))
            continue;
        if (a->lstrip) {
            uint64_t from = spaces_before(s, start);
            start = from > done ? from : done;
        }
        if (a->rstrip)
            stop = spaces_after(s, n, stop);
        if (done < start)
            TSR_TRY(
                tok_work_push(out, s + done, start - done, zero > done ? zero - done : 0, -1, err));
        if (start < stop) /* it is empty if a preceding rstrip consumed its text */
            TSR_TRY(tok_work_push(out, "", 0, 0, a->id, err));
        done = stop; /* without lstrip it is found again in those spaces, as in the reference */
    }
    return tok_work_push(out, s + done, n - done, zero > done ? zero - done : 0, -1, err);
}
