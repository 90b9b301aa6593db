/* unigram.c - the most probable segmentation of a piece (Viterbi over a prefix tree). */
#include "tokenizer/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* SentencePiece's kUnkPenalty */

struct tok_best {
    double  score;
    int64_t from; /* start of the token that ends here, -1: none */
    int64_t id;
};

tsr_status tok_unigram_load(struct tsr_tokenizer *t, const json_t *model, struct tsr_err *err)
{
    json_t *vocab;
    int64_t unk = -1;
    double  min = INFINITY;
    TSR_TRY(tsr_json_sub(model, t->name, "vocab", true, JSON_ARRAY, &vocab, err));
    TSR_TRY(tsr_json_bool(model, t->name, "byte_fallback", false, &t->byte_fallback, err));
    size_t n = json_array_size(vocab);
    if (n >= TOK_MAX_IDS)
        return tsr_fail(err, TSR_E_INPUT, "%s: the vocabulary has %zu tokens, more than %u",
                        t->name, n, TOK_MAX_IDS - 1);
    TSR_TRY(tsr_json_int(model, t->name, "unk_id", false, 0, (int64_t)n - 1, &unk, err));
    t->unigram.unk_id = unk;
    t->unigram.score = tsr_new(n, sizeof *t->unigram.score);
    if (!t->unigram.score)
        return tsr_fail_nomem(err, n * sizeof(double), "a vocabulary");
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(vocab, i), *s = json_array_get(item, 0);
        const json_t *score = json_array_get(item, 1);
        if (json_array_size(item) != 2 || !json_is_string(s) || !json_is_number(score))
            return tsr_fail(err, TSR_E_INPUT, "%s: item %zu of \"vocab\" is not [token, score]",
                            t->name, i);
        t->unigram.score[i] = json_number_value(score);
        if (t->unigram.score[i] < min)
            min = t->unigram.score[i];
        TSR_TRY(tok_strmap_put(&t->vocab, json_string_value(s), json_string_length(s), (uint32_t)i,
                               NULL, err));
        TSR_TRY(tok_trie_put(&t->unigram.trie, json_string_value(s), json_string_length(s),
                             (int32_t)i, NULL, err));
    }
    t->unigram.unk_score = min - UNKNOWN_PENALTY;
    t->n_vocab = (uint32_t)n;
    return TSR_OK;
}

static void offer(struct tok_best *b, double score, uint64_t from, int64_t id)
{
    if (b->from < 0 || score > b->score)
        *b = (struct tok_best){ score, (int64_t)from, id };
}

static tsr_status viterbi(struct tok_ctx *c, const char *s, uint64_t n)
{
    const struct tok_unigram *u = &c->t->unigram;
    struct tok_best          *best = c->best;
    for (uint64_t i = 0; i <= n; i++)
        best[i] = (struct tok_best){ 0.0, -1, 0 };
    for (uint64_t i = 0; i < n;) {
        unsigned len;
        uint32_t node = 0;
        bool     single = false;
        double   here = best[i].score;
        (void)tok_char(s + i, n - i, &len);
        for (uint64_t k = i; k < n; k++) {
            node = tok_trie_step(&u->trie, node, (unsigned char)s[k]);
            if (!node)
                break;
            int32_t id = u->trie.value[node];
            if (id < 0)
                continue;
            offer(&best[k + 1], u->score[id] + here, i, id);
            single = single || k + 1 - i == len;
        }
        if (!single) {
            struct tok_best *b = &best[i + len];
            if ((b->from < 0 || u->unk_score + here > b->score) && u->unk_id < 0)
                return tsr_fail(c->err, TSR_E_INPUT,
                                "%s: the text has an unknown character and "
                                "the tokenizer has no \"unk_id\"",
                                c->name);
            offer(b, u->unk_score + here, i, u->unk_id);
        }
        i += len;
    }
    return TSR_OK;
}

/* A segment as in the reference: by its text, which for joined unknowns may be a token. */
static tsr_status emit(struct tok_ctx *c, const char *s, uint64_t n, struct tsr_tokenizer_ids *ids)
{
    int64_t id = tok_strmap_get(&c->t->vocab, s, n);
    if (id >= 0)
        return tsr_tokenizer_ids_push(ids, (uint32_t)id, c->err);
    bool bytes = c->t->byte_fallback;
    for (uint64_t i = 0; i < n && bytes; i++)
        bytes = c->t->byte_id[(unsigned char)s[i]] >= 0;
    if (!bytes)
        return tsr_tokenizer_ids_push(ids, (uint32_t)c->t->unigram.unk_id, c->err);
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(tsr_tokenizer_ids_push(ids, (uint32_t)c->t->byte_id[(unsigned char)s[i]], c->err));
    return TSR_OK;
}

tsr_status tok_unigram_encode(struct tok_ctx *c, const char *s, uint64_t n,
                              struct tsr_tokenizer_ids *ids)
{
    if (n + 1 > c->cap_best) {
        struct tok_best *v = tsr_renew(c->best, (n + 1) * 2, sizeof *v);
        if (!v)
            return tsr_fail_nomem(c->err, (n + 1) * 2 * sizeof *v, "a segmentation");
        c->best = v;
        c->cap_best = (n + 1) * 2;
    }
    TSR_TRY(viterbi(c, s, n));
    /* walk back, joining neighbouring unknowns, and leave the starts in a list */
    c->spans.n = 0;
    int64_t unk = c->t->unigram.unk_id;
    bool    joining = false;
    for (uint64_t end = n; end > 0;) {
        const struct tok_best *b = &c->best[end];
        if (b->from < 0)
            return tsr_fail(c->err, TSR_E_BUG, "a text has no segmentation");
        bool unknown = b->id == unk;
        if (unknown && joining)
            c->spans.v[c->spans.n - 1].at = (uint64_t)b->from;
        else
            TSR_TRY(tok_span_push(&c->spans, (uint64_t)b->from, end, unknown, c->err));
        joining = unknown;
        end = (uint64_t)b->from;
    }
    for (uint64_t i = c->spans.n; i-- > 0;) {
        const struct tok_span *a = &c->spans.v[i];
        TSR_TRY(emit(c, s + a->at, a->end - a->at, ids));
    }
    return TSR_OK;
}
