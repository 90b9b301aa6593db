/* SentencePiece of the BPE type, which tokenizer.json has as merges, as the scores of a GGUF file.
 *
 * llama.cpp joins the two neighbours whose joint token has the highest score.  transformers makes merges of such scores:
 * all ways to cut a token into two, the tokens in the order of their scores.  So the n-th token that merges make gets the
 * score -n, and the list is written only if these scores make the same merges again, but for the order of one token's. */
#include "checkpoint/export/gguf_tokens.h"

#include "checkpoint/gguf/vocab.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define SPACE TSR_EXPORT_GGUF_SPACE

bool tsr_export_gguf_is_spm(const struct tsr_export_gguf_tokens *t)
{
    return strcmp(tsr_export_gguf_word(t->model, "type"), "BPE") == 0 &&
           json_is_true(json_object_get(t->model, "byte_fallback"));
}

/* ---- spaces ----------------------------------------------------------------------------------------- */

static bool is_replace(const json_t *e)
{
    return strcmp(tsr_export_gguf_word(e, "type"), "Replace") == 0 &&
           strcmp(tsr_export_gguf_word(json_object_get(e, "pattern"), "String"), " ") == 0 &&
           strcmp(tsr_export_gguf_word(e, "content"), SPACE) == 0;
}

static bool is_prepend(const json_t *e)
{
    return strcmp(tsr_export_gguf_word(e, "type"), "Prepend") == 0 &&
           strcmp(tsr_export_gguf_word(e, "prepend"), SPACE) == 0;
}

/* A split that cuts nothing: the normalizer leaves no space. */
static bool is_idle(const json_t *pre)
{
    return !pre || json_is_null(pre) ||
           (strcmp(tsr_export_gguf_word(pre, "type"), "Split") == 0 &&
            strcmp(tsr_export_gguf_word(json_object_get(pre, "pattern"), "String"), " ") == 0);
}

/* Whether a text gets a space in front of it. */
static tsr_status prefix_of(const struct tsr_export_gguf_tokens *t, bool *prefix)
{
    const json_t *norm = json_object_get(t->root, "normalizer"),
                 *pre = json_object_get(t->root, "pre_tokenizer"),
                 *list = json_object_get(norm, "normalizers");
    const char *scheme = tsr_export_gguf_word(pre, "prepend_scheme");
    bool        none = !norm || json_is_null(norm);
    if (is_idle(pre) &&
        (is_replace(norm) || (json_array_size(list) == 1 && is_replace(json_array_get(list, 0))))) {
        *prefix = false;
    } else if (is_idle(pre) && json_array_size(list) == 2 && is_prepend(json_array_get(list, 0)) &&
               is_replace(json_array_get(list, 1))) {
        *prefix = true;
    } else if (none && strcmp(tsr_export_gguf_word(pre, "type"), "Metaspace") == 0 &&
               strcmp(tsr_export_gguf_word(pre, "replacement"), SPACE) == 0 &&
               json_is_false(json_object_get(pre, "split")) && *scheme) {
        *prefix = strcmp(scheme, "never") != 0;
        if (*prefix)
            tsr_logf(
                TSR_LOG_WARN,
                "%s: every text, also after a special token or with a space of its own, gets a "
                "space in front of it, as llama.cpp does; by %s not one that has a space there",
                t->x->path, t->x->m->path);
    } else {
        return tsr_export_gguf_refuse(t, "llama.cpp has no word for its spaces");
    }
    return TSR_OK;
}

/* ---- scores ----------------------------------------------------------------------------------------- */

/* A merge: "a b" and its halves' tokens. */
struct merge {
    char                   key[GGUF_MAX_TOKEN + 2];
    struct tsr_gguf_token *a, *b, *whole;
};

static struct tsr_gguf_token *find(const struct tsr_export_gguf_tokens *t,
                                   const struct tsr_gguf_vocab *v, const char *s, uint64_t n)
{
    const json_t *id = json_object_getn(json_object_get(t->model, "vocab"), s, n);
    return json_is_integer(id) && json_integer_value(id) >= 0 &&
                   (uint64_t)json_integer_value(id) < v->n
               ? &v->token[json_integer_value(id)]
               : NULL;
}

/* From "a b", as in older files, or ["a", "b"]. */
static tsr_status read_merge(const struct tsr_export_gguf_tokens *t, const struct tsr_gguf_vocab *v,
                             const json_t *e, struct merge *m)
{
    const char *a = tsr_export_gguf_text(json_array_get(e, 0)), *blank;
    char        whole[GGUF_MAX_TOKEN + 2];
    int         n = json_is_string(e) ? snprintf(m->key, sizeof m->key, "%s", json_string_value(e))
                                      : snprintf(m->key, sizeof m->key, "%s %s", a,
                                                 tsr_export_gguf_text(json_array_get(e, 1)));
    blank = strchr(m->key, ' ');
    if (n < 3 || (size_t)n >= sizeof m->key || !blank)
        return tsr_export_gguf_refuse(t, "a merge is not a pair");
    uint64_t left = (uint64_t)(blank - m->key), right = (uint64_t)n - left - 1;
    memcpy(whole, m->key, left);
    memcpy(whole + left, blank + 1, right);
    m->a = find(t, v, m->key, left);
    m->b = find(t, v, blank + 1, right);
    m->whole = find(t, v, whole, left + right);
    return m->a && m->b && m->whole ? TSR_OK : tsr_export_gguf_refuse(t, "a merge is of no tokens");
}

/* Never applied in a GGUF file: the text of such a token is taken before.  An added token that merges make is one of
 * spaces, as Gemma has them; it is written as a text has it. */
static bool is_idle_merge(const struct merge *m)
{
    return m->a->kind != GGUF_NORMAL || m->b->kind != GGUF_NORMAL || m->whole->kind != GGUF_NORMAL;
}

/* Scores in the order of merges; those of one token follow each other. */
static tsr_status score_merges(const struct tsr_export_gguf_tokens *t, struct tsr_gguf_vocab *v,
                               bool *spaces, json_t *left)
{
    const json_t                *e;
    const struct tsr_gguf_token *last = NULL;
    struct merge                 m;
    uint32_t                     rank = 0;
    size_t                       i;
    json_array_foreach (json_object_get(t->model, "merges"), i, e) {
        TSR_TRY(read_merge(t, v, e, &m));
        if (m.whole->kind == GGUF_USER)
            spaces[m.whole - v->token] = true;
        if (is_idle_merge(&m))
            continue;
        if (m.whole != last && m.whole->score < 0)
            return tsr_export_gguf_refuse(t, "its merges do not follow from scores of tokens");
        if (m.whole != last)
            m.whole->score = -(float)++rank;
        last = m.whole;
        if (json_object_set_new(left, m.key, json_true()) != 0)
            return tsr_fail_nomem(t->x->err, 64, "merges");
    }
    return TSR_OK;
}

/* A reader makes of the scores the merges that are in `left`, and no other. */
static tsr_status check_merges(const struct tsr_export_gguf_tokens *t,
                               const struct tsr_gguf_vocab *v, json_t *left)
{
    json_t      *made = json_array();
    struct merge m;
    tsr_status   st =
        made ? tsr_gguf_merges(v, made, t->x->err) : tsr_fail_nomem(t->x->err, 64, "merges");
    bool same = json_array_size(made) == json_object_size(left);
    for (size_t i = 0; st == TSR_OK && same && i < json_array_size(made); i++) {
        st = read_merge(t, v, json_array_get(made, i), &m);
        same = json_object_del(left, m.key) == 0;
    }
    json_decref(made);
    return st != TSR_OK || same
               ? st
               : tsr_export_gguf_refuse(t,
                                        "it lacks merges that llama.cpp would make of its tokens");
}

/* llama.cpp would join spaces to such a token, which no merge makes. */
static tsr_status check_spaces(const struct tsr_export_gguf_tokens *t,
                               const struct tsr_gguf_vocab *v, const bool *spaces)
{
    for (uint32_t k = 0; k < v->n; k++)
        if (v->token[k].kind != GGUF_NORMAL && !spaces[k] && strstr(v->token[k].s, SPACE))
            return tsr_export_gguf_refuse(t, "an added token has spaces that no merge makes");
    return TSR_OK;
}

static tsr_status put_scores(const struct tsr_export_gguf_tokens *t, struct tsr_gguf_vocab *v,
                             bool *spaces)
{
    json_t    *left = json_object();
    tsr_status st =
        left ? score_merges(t, v, spaces, left) : tsr_fail_nomem(t->x->err, 64, "merges");
    if (st == TSR_OK)
        st = check_merges(t, v, left);
    if (st == TSR_OK)
        st = check_spaces(t, v, spaces);
    json_decref(left);
    return st;
}

/* ---- all -------------------------------------------------------------------------------------------- */

static bool is_byte(const char *s)
{
    return strlen(s) == 6 && strncmp(s, "<0x", 3) == 0 && s[5] == '>';
}

static void fill_vocab(const struct tsr_export_gguf_tokens *t, struct tsr_gguf_vocab *v)
{
    const char *unk = tsr_export_gguf_word(t->model, "unk_token");
    for (uint32_t k = 0; k < v->n; k++) {
        struct tsr_gguf_token *token = &v->token[k];
        token->s = t->text[k] ? t->text[k] : "";
        token->n = (uint32_t)strlen(token->s);
        token->kind = !t->text[k]                          ? GGUF_UNUSED
                      : *unk && strcmp(token->s, unk) == 0 ? GGUF_UNKNOWN
                      : is_byte(token->s)                  ? GGUF_BYTE
                                                           : (enum tsr_gguf_kind)t->kind[k];
    }
}

/* Added tokens that take the spaces around them, of which GGUF says nothing. */
static void warn_of_strips(const struct tsr_export_gguf_tokens *t)
{
    uint64_t      n = 0;
    const json_t *e;
    size_t        i;
    json_array_foreach (json_object_get(t->root, "added_tokens"), i, e)
        n += json_is_true(json_object_get(e, "lstrip")) ||
             json_is_true(json_object_get(e, "rstrip"));
    if (n)
        tsr_logf(
            TSR_LOG_WARN,
            "%s: %llu special tokens of %s take spaces next to them, which gguf has no key for",
            t->x->path, (unsigned long long)n, t->x->m->path);
}

static void put_lists(const struct tsr_export_gguf_tokens *t, const struct tsr_gguf_vocab *v,
                      const bool *spaces)
{
    struct tsr_export_gguf_bytes *b = t->b;
    tsr_export_gguf_put_texts(t, spaces);
    tsr_export_gguf_key_array(b, "tokenizer.ggml.scores", TSR_GGUF_OUT_TYPE_F32, v->n);
    for (uint32_t k = 0; k < v->n; k++)
        tsr_export_gguf_add(b, &v->token[k].score, 4);
    tsr_export_gguf_key_array(b, "tokenizer.ggml.token_type", TSR_GGUF_OUT_I32, v->n);
    for (uint32_t k = 0; k < v->n; k++)
        tsr_export_gguf_add_u32(b, v->token[k].kind);
    for (uint32_t k = 0; k < v->n; k++)
        if (v->token[k].kind == GGUF_UNKNOWN)
            tsr_export_gguf_key_u32(b, "tokenizer.ggml.unknown_token_id", k);
}

static tsr_status put(const struct tsr_export_gguf_tokens *t, struct tsr_gguf_vocab *v,
                      bool *spaces)
{
    bool prefix = false;
    TSR_TRY(prefix_of(t, &prefix));
    fill_vocab(t, v);
    TSR_TRY(put_scores(t, v, spaces));
    warn_of_strips(t);
    tsr_export_gguf_key_text(t->b, "tokenizer.ggml.model", "llama");
    tsr_export_gguf_key_text(t->b, "tokenizer.ggml.pre", "default");
    put_lists(t, v, spaces);
    tsr_export_gguf_key_bool(t->b, "tokenizer.ggml.add_space_prefix", prefix);
    return TSR_OK;
}

tsr_status tsr_export_gguf_put_spm(const struct tsr_export_gguf_tokens *t)
{
    struct tsr_gguf_vocab v = { .n = (uint32_t)t->vocab };
    if (json_is_true(json_object_get(t->model, "ignore_merges")))
        return tsr_export_gguf_refuse(t, "it takes whole words before merges");
    v.token = tsr_new(t->vocab, sizeof *v.token);
    bool      *spaces = tsr_new(t->vocab, sizeof *spaces);
    tsr_status st = v.token && spaces
                        ? put(t, &v, spaces)
                        : tsr_fail_nomem(t->x->err, t->vocab * sizeof *v.token, "the tokens");
    free(v.token);
    free(spaces);
    return st;
}
