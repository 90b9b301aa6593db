/* Merges of a SentencePiece vocabulary of the BPE type, from its scores: as transformers makes
 * them of a tokenizer.model, the higher score first. */
#include "base/mem.h"
#include "checkpoint/gguf/vocab.h"
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

struct merge {
    float    score;
    uint32_t id, left_chars, left; /* the token, and the end of its left half */
};

struct list {
    struct merge *v;
    uint64_t      n, cap;
};

static int by_rank(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_chars != y->left_chars)
        return x->left_chars > y->left_chars ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static tsr_status push(struct list *l, struct merge m, struct tsr_err *err)
{
    if (l->n == l->cap) {
        uint64_t      cap = l->cap ? l->cap * 2 : 4096;
        struct merge *v = tsr_renew(l->v, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "merges");
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = m;
    return TSR_OK;
}

/* All ways to cut a token into two that exist. */
static tsr_status cuts(const struct tsr_gguf_vocab *v, uint32_t id, const struct tok_strmap *map,
                       struct list *l, struct tsr_err *err)
{
    const char *s = v->token[id].s;
    uint32_t    n = v->token[id].n, chars = 0;
    unsigned    len = 0;
    for (uint32_t at = 0; at < n; at += len) {
        (void)tok_char(s + at, n - at, &len);
        chars++;
        if (at + len >= n)
            break;
        if (tok_strmap_get(map, s, at + len) >= 0 &&
            tok_strmap_get(map, s + at + len, n - at - len) >= 0)
            TSR_TRY(push(l, (struct merge){ v->token[id].score, id, chars, at + len }, err));
    }
    return TSR_OK;
}

static tsr_status put(const struct tsr_gguf_vocab *v, const struct merge *m, json_t *to,
                      struct tsr_err *err)
{
    const struct tsr_gguf_token *t = &v->token[m->id];
    json_t                      *pair =
        json_pack("[s%s%]", t->s, (size_t)m->left, t->s + m->left, (size_t)(t->n - m->left));
    return pair && json_array_append_new(to, pair) == 0 ? TSR_OK
                                                        : tsr_fail_nomem(err, 64, "merges");
}

tsr_status tsr_gguf_merges(const struct tsr_gguf_vocab *v, json_t *to, struct tsr_err *err)
{
    struct tok_strmap map = { 0 };
    struct list       l = { 0 };
    tsr_status        st = TSR_OK;
    for (uint32_t i = 0; i < v->n && st == TSR_OK; i++)
        if (v->token[i].kind == GGUF_NORMAL && !v->token[i].twin)
            st = tok_strmap_put(&map, v->token[i].s, v->token[i].n, i, NULL, err);
    for (uint32_t i = 0; i < v->n && st == TSR_OK; i++)
        if (v->token[i].kind == GGUF_NORMAL && !v->token[i].twin)
            st = cuts(v, i, &map, &l, err);
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, by_rank);
    for (uint64_t i = 0; i < l.n && st == TSR_OK; i++)
        st = put(v, &l.v[i], to, err);
    free(l.v);
    tok_strmap_free(&map);
    return st;
}
