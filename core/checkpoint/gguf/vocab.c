/* The vocabulary of a GGUF file, and the parts of a tokenizer.json that every kind of tokenizer has. */
#include "checkpoint/gguf/vocab.h"
#include "base/f16.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "tokenizer/internal.h"

#include <math.h>
#include <string.h>

tsr_status tsr_gguf_put(struct tsr_gguf_make *k, json_t *to, const char *key, json_t *v)
{
    return v && json_object_set_new(to, key, v) == 0 ? TSR_OK : tsr_fail_nomem(k->err, 64, key);
}

/* ---- the vocabulary -------------------------------------------------------------------- */

static tsr_status read_token(struct tsr_gguf_make *k, uint32_t i, const char *s, uint64_t n)
{
    if (n > GGUF_MAX_TOKEN || memchr(s, 0, n) || !tok_valid(s, n))
        return tsr_fail(
            k->err, TSR_E_INPUT,
            "%s: token %u of \"tokenizer.ggml.tokens\" is not UTF-8 of at most %u bytes "
            "without NUL",
            k->g->path, i, GGUF_MAX_TOKEN);
    struct tsr_gguf_token *t = &k->v.token[i];
    t->s = s;
    t->n = (uint32_t)n;
    t->kind = GGUF_NORMAL;
    if (n == 0) { /* as llama.cpp calls it */
        char *name = k->fill + 24 * (uint64_t)i;
        (void)snprintf(name, 24, "[EMPTY_%u]", i);
        t->s = name;
        t->n = (uint32_t)strlen(name);
        t->kind = GGUF_UNUSED;
    }
    return TSR_OK;
}

/* Scores and kinds, if present, have one item per token. */
static tsr_status beside(struct tsr_gguf_make *k, const char *key, uint32_t item, bool required,
                         const struct tsr_gguf_key **out)
{
    TSR_TRY(tsr_gguf_array(k->g, key, required, item, out, k->err));
    if (*out && (*out)->n != k->v.n)
        return tsr_fail(k->err, TSR_E_INPUT, "%s: \"%s\" has %llu items for %u tokens", k->g->path,
                        key, (unsigned long long)(*out)->n, k->v.n);
    return TSR_OK;
}

tsr_status tsr_gguf_read_vocab(struct tsr_gguf_make *k, bool scored)
{
    const struct tsr_gguf_key *tokens, *scores, *kinds;
    struct tok_strmap          seen = { 0 };
    uint64_t                   at = 0, twins = 0;
    TSR_TRY(tsr_gguf_array(k->g, "tokenizer.ggml.tokens", true, TSR_GGUF_STRING, &tokens, k->err));
    if (tokens->n == 0 || tokens->n >= TOK_MAX_IDS)
        return tsr_fail(k->err, TSR_E_INPUT, "%s: \"tokenizer.ggml.tokens\" has %llu items",
                        k->g->path, (unsigned long long)tokens->n);
    k->v.n = (uint32_t)tokens->n;
    k->v.token = tsr_new(k->v.n, sizeof *k->v.token);
    k->fill = tsr_new(k->v.n, 24);
    if (!k->v.token || !k->fill)
        return tsr_fail_nomem(k->err, k->v.n * sizeof *k->v.token, "a vocabulary");
    TSR_TRY(beside(k, "tokenizer.ggml.scores", TSR_GGUF_F32, scored, &scores));
    TSR_TRY(beside(k, "tokenizer.ggml.token_type", TSR_GGUF_I32, false, &kinds));
    tsr_status st = TSR_OK;
    for (uint32_t i = 0; i < k->v.n && st == TSR_OK; i++) {
        const char            *s;
        uint64_t               n;
        struct tsr_gguf_token *t = &k->v.token[i];
        tsr_gguf_next(k->g, tokens, &at, &s, &n);
        st = read_token(k, i, s, n);
        uint32_t kind = kinds && st == TSR_OK ? tsr_gguf_item32(k->g, kinds, i) : GGUF_NORMAL;
        t->score = scores ? tsr_bits_f32(tsr_gguf_item32(k->g, scores, i)) : 0.0f;
        if (st == TSR_OK && (kind > GGUF_BYTE || !isfinite(t->score)))
            st = tsr_fail(k->err, TSR_E_INPUT, "%s: token %u has the type %u and the score %g",
                          k->g->path, i, kind, (double)t->score);
        if (st == TSR_OK && n > 0)
            t->kind = (enum tsr_gguf_kind)kind;
        t->twin = st == TSR_OK && tok_strmap_get(&seen, t->s, t->n) >= 0;
        twins += t->twin;
        if (st == TSR_OK && !t->twin)
            st = tok_strmap_put(&seen, t->s, t->n, i, NULL, k->err);
    }
    tok_strmap_free(&seen);
    if (st == TSR_OK && twins)
        tsr_logf(TSR_LOG_WARN,
                 "%s: %llu tokens have the text of an earlier one, which is used in their place",
                 k->g->path, (unsigned long long)twins);
    return st;
}

json_t *tsr_gguf_text_of(const struct tsr_gguf_token *t)
{
    return json_stringn(t->s, t->n);
}

/* {"token": id} */
tsr_status tsr_gguf_put_vocab(struct tsr_gguf_make *k, json_t *model)
{
    json_t *vocab = json_object();
    if (!vocab)
        return tsr_fail_nomem(k->err, 64, "a vocabulary");
    for (uint32_t i = 0; i < k->v.n; i++) {
        const struct tsr_gguf_token *t = &k->v.token[i];
        if (!t->twin && json_object_setn_new(vocab, t->s, t->n, json_integer(i)) != 0) {
            json_decref(vocab);
            return tsr_fail_nomem(k->err, 64, "a vocabulary");
        }
    }
    return tsr_gguf_put(k, model, "vocab", vocab);
}

tsr_status tsr_gguf_put_added(struct tsr_gguf_make *k)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint32_t i = 0; ok && i < k->v.n; i++) {
        const struct tsr_gguf_token *t = &k->v.token[i];
        bool                         special = t->kind == GGUF_CONTROL || t->kind == GGUF_UNKNOWN;
        if ((!special && t->kind != GGUF_USER) || t->twin)
            continue;
        json_t *a = json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                              tsr_gguf_text_of(t), "single_word", 0, "lstrip", 0, "rstrip", 0,
                              "normalized", 0, "special", special);
        ok = a && json_array_append_new(list, a) == 0;
    }
    if (!ok) {
        json_decref(list);
        return tsr_fail_nomem(k->err, 64, "added tokens");
    }
    return tsr_gguf_put(k, k->j, "added_tokens", list);
}

/* A special token by the key of its id, or NULL. */
tsr_status tsr_gguf_special(struct tsr_gguf_make *k, const char *key, int64_t def,
                            const struct tsr_gguf_token **t)
{
    int64_t id = def;
    TSR_TRY(tsr_gguf_int(k->g, key, false, 0, k->v.n - 1, &id, k->err));
    *t = id >= 0 && id < k->v.n ? &k->v.token[id] : NULL;
    return TSR_OK;
}

/* ---- what goes around a text -------------------------------------------------------------- */

static tsr_status add_special(struct tsr_gguf_make *k, const struct tsr_gguf_token *t,
                              json_t *single, json_t *specials)
{
    json_t *piece =
        json_pack("{s:{s:o, s:i}}", "SpecialToken", "id", tsr_gguf_text_of(t), "type_id", 0);
    json_t *entry = json_pack("{s:o, s:[I], s:[o]}", "id", tsr_gguf_text_of(t), "ids",
                              (json_int_t)(t - k->v.token), "tokens", tsr_gguf_text_of(t));
    bool    ok = piece && json_array_append_new(single, piece) == 0;
    ok = entry && json_object_setn_new(specials, t->s, t->n, entry) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(k->err, 64, "a template");
}

static tsr_status put_template(struct tsr_gguf_make *k, const struct tsr_gguf_token *bos,
                               const struct tsr_gguf_token *eos)
{
    json_t    *single = json_array(), *specials = json_object();
    json_t    *text = json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0);
    tsr_status st = single && specials && text ? TSR_OK : tsr_fail_nomem(k->err, 64, "a template");
    if (st == TSR_OK && bos)
        st = add_special(k, bos, single, specials);
    if (st == TSR_OK && json_array_append(single, text) != 0)
        st = tsr_fail_nomem(k->err, 64, "a template");
    if (st == TSR_OK && eos)
        st = add_special(k, eos, single, specials);
    json_decref(text);
    if (st == TSR_OK) { /* takes over both lists */
        json_t *pair = tsr_json_copy(single), *second = pair ? tsr_json_copy(single) : NULL;
        size_t  at = bos ? 1 : 0;
        bool    ok = second &&
                  json_object_set_new(json_object_get(json_array_get(second, at), "Sequence"), "id",
                                      json_string("B")) == 0 &&
                  json_array_extend(pair, second) == 0;
        json_decref(second);
        json_t *p = ok ? json_pack("{s:s, s:O, s:O, s:O}", "type", "TemplateProcessing", "single",
                                   single, "pair", pair, "special_tokens", specials)
                       : NULL;
        json_decref(pair);
        st = tsr_gguf_put(k, k->j, "post_processor", p);
    }
    json_decref(single);
    json_decref(specials);
    return st;
}

/* bos and eos: ids for absent keys, -1: none. */
tsr_status tsr_gguf_put_specials(struct tsr_gguf_make *k, bool add_bos, bool add_eos,
                                 int64_t bos_id, int64_t eos_id)
{
    const struct tsr_gguf_token *bos, *eos;
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_bos_token", &add_bos, k->err));
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_eos_token", &add_eos, k->err));
    TSR_TRY(tsr_gguf_special(k, "tokenizer.ggml.bos_token_id", bos_id, &bos));
    TSR_TRY(tsr_gguf_special(k, "tokenizer.ggml.eos_token_id", eos_id, &eos));
    bos = add_bos ? bos : NULL;
    eos = add_eos ? eos : NULL;
    return bos || eos ? put_template(k, bos, eos) : TSR_OK;
}
