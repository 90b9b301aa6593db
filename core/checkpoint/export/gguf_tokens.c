/* The tokenizer as metadata of a GGUF file.  That of a GGUF file is copied; of tokenizer.json,
 * SentencePiece's BPE is supported (gguf_spm.c), and byte-level BPE if llama.cpp knows its pattern by name. */
#include "checkpoint/export/gguf_tokens.h"

#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/words.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/kind.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of a token. */
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                     \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                          \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "                  \
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The pattern that cuts words, or NULL; *own: ByteLevel's own. */
static const char *pattern_of(const json_t *pre, bool *own)
{
    const json_t *list = json_object_get(pre, "pretokenizers"), *e;
    const char   *regex = NULL;
    size_t        i;
    *own = false;
    if (!list) {
        *own = strcmp(tsr_export_gguf_word(pre, "type"), "ByteLevel") == 0 &&
               !json_is_false(json_object_get(pre, "use_regex"));
        return NULL;
    }
    json_array_foreach (list, i, e) {
        if (strcmp(tsr_export_gguf_word(e, "type"), "Split") == 0)
            regex = tsr_export_gguf_word(json_object_get(e, "pattern"), "Regex");
        else if (strcmp(tsr_export_gguf_word(e, "type"), "ByteLevel") == 0)
            *own = *own || !json_is_false(json_object_get(e, "use_regex"));
    }
    return regex;
}

/* Whether text is cut by those patterns one after the other, as bytes. */
static bool is_splits(const json_t *pre, const struct tsr_gguf_splits *of)
{
    const json_t *list = json_object_get(pre, "pretokenizers");
    const size_t  n = tsr_gguf_count_splits(of), digits = of->digits ? 1 : 0;
    const json_t *bytes = json_array_get(list, n + digits), *apart = json_array_get(list, n);
    bool          same = json_array_size(list) == n + digits + 1 &&
                strcmp(tsr_export_gguf_word(bytes, "type"), "ByteLevel") == 0 &&
                json_is_false(json_object_get(bytes, "use_regex")) &&
                (!digits || (strcmp(tsr_export_gguf_word(apart, "type"), "Digits") == 0 &&
                             json_is_true(json_object_get(apart, "individual_digits"))));
    for (size_t i = 0; same && i < n; i++) {
        const json_t *e = json_array_get(list, i);
        same =
            strcmp(tsr_export_gguf_word(e, "type"), "Split") == 0 &&
            strcmp(tsr_export_gguf_word(e, "behavior"), "Isolated") == 0 &&
            strcmp(tsr_export_gguf_word(json_object_get(e, "pattern"), "Regex"), of->words[i]) == 0;
    }
    return same;
}

/* The name of the patterns that do so; NULL: none. */
static const char *splits_name(const json_t *pre)
{
    for (size_t i = 0; i < sizeof tsr_gguf_several / sizeof *tsr_gguf_several; i++)
        if (is_splits(pre, &tsr_gguf_several[i]))
            return tsr_gguf_several[i].name;
    return NULL;
}

/* What llama.cpp calls the way in which text is cut. */
static tsr_status pre_name(const struct tsr_export_gguf_tokens *t, const char **name)
{
    bool          own, whole = json_is_true(json_object_get(t->model, "ignore_merges"));
    const json_t *pre = json_object_get(t->root, "pre_tokenizer");
    const char   *regex = pattern_of(pre, &own);
    if (strcmp(tsr_export_gguf_word(t->model, "type"), "BPE") != 0)
        return tsr_export_gguf_refuse(t, "it is not BPE");
    if (regex && !own && strcmp(regex, LLAMA3) == 0) /* the same pattern with and without merges */
        *name = whole ? "llama-bpe" : "smaug-bpe";
    else if (regex && !own && !whole && strcmp(regex, QWEN2) == 0)
        *name = "qwen2";
    else if (regex && !own && !whole && strcmp(regex, QWEN35) == 0)
        *name = "qwen35";
    else if (!whole && splits_name(pre))
        *name = splits_name(pre);
    else if (!regex && own && !whole)
        *name = "gpt-2";
    else
        return tsr_export_gguf_refuse(t, "llama.cpp has no name for its pre_tokenizer");
    return TSR_OK;
}

static tsr_status put_token(struct tsr_export_gguf_tokens *t, const char *text, int64_t id,
                            int32_t kind)
{
    if (id < 0 || (uint64_t)id >= t->vocab)
        return tsr_export_gguf_refuse(t, "a token has an id outside the vocabulary");
    t->text[id] = text;
    t->kind[id] = kind;
    return TSR_OK;
}

static tsr_status collect(struct tsr_export_gguf_tokens *t)
{
    const json_t *e;
    const char   *key;
    size_t        i;
    json_object_foreach ((json_t *)(uintptr_t)json_object_get(t->model, "vocab"), key, e)
        TSR_TRY(put_token(t, key, json_is_integer(e) ? json_integer_value(e) : -1, NORMAL));
    json_array_foreach (json_object_get(t->root, "added_tokens"), i, e) {
        const json_t *id = json_object_get(e, "id");
        TSR_TRY(put_token(t, tsr_export_gguf_word(e, "content"),
                          json_is_integer(id) ? json_integer_value(id) : -1,
                          json_is_true(json_object_get(e, "special")) ? CONTROL : USER_DEFINED));
    }
    return TSR_OK;
}

/* "a b", as in older files, or ["a", "b"]. */
static tsr_status put_merge(const struct tsr_export_gguf_tokens *t, const json_t *e)
{
    const char *a = tsr_json_word(json_array_get(e, 0)), *b = tsr_json_word(json_array_get(e, 1));
    if (json_is_string(e)) {
        tsr_export_gguf_add_text(t->b, json_string_value(e), json_string_length(e));
        return TSR_OK;
    }
    if (!a || !b)
        return tsr_export_gguf_refuse(t, "a merge is not a pair");
    tsr_export_gguf_add_u64(t->b, strlen(a) + 1 + strlen(b));
    tsr_export_gguf_add(t->b, a, strlen(a));
    tsr_export_gguf_add(t->b, " ", 1);
    tsr_export_gguf_add(t->b, b, strlen(b));
    return TSR_OK;
}

/* The id of a template's special token, -1 for something else. */
static int64_t special_of(const json_t *post, const json_t *piece)
{
    const json_t *s =
        json_object_get(json_object_get(post, "special_tokens"),
                        tsr_export_gguf_word(json_object_get(piece, "SpecialToken"), "id"));
    const json_t *id = json_array_get(json_object_get(s, "ids"), 0);
    return json_is_integer(id) && json_array_size(json_object_get(s, "ids")) == 1
               ? json_integer_value(id)
               : -1;
}

/* The tokens that a template puts before and after a text, -1 for none. */
static tsr_status template_of(struct tsr_export_gguf_tokens *t, const json_t *post, int64_t *bos,
                              int64_t *eos)
{
    const json_t *single = json_object_get(post, "single"), *e;
    size_t        i, at = 0, n = json_array_size(single);
    json_array_foreach (json_object_get(post, "processors"), i, e)
        TSR_TRY(template_of(t, e, bos, eos));
    if (!single)
        return TSR_OK;
    if (at < n && (*bos = special_of(post, json_array_get(single, at))) >= 0)
        at++;
    if (at < n && json_object_get(json_array_get(single, at), "Sequence"))
        at++;
    else
        n = SIZE_MAX;
    if (at < n && (*eos = special_of(post, json_array_get(single, at))) >= 0)
        at++;
    if (at != n || *bos >= (int64_t)t->vocab || *eos >= (int64_t)t->vocab)
        return tsr_export_gguf_refuse(
            t, "its post_processor does more than put a token before or after a text");
    return TSR_OK;
}

/* These keys tell llama.cpp whether to add the tokens that begin and end a text. */
static tsr_status put_ends(struct tsr_export_gguf_tokens *t)
{
    const struct tsr_model_hparams *hp = &t->x->m->hp;
    int64_t                         bos = -1, eos = -1;
    bool                            ends = false;
    TSR_TRY(template_of(t, json_object_get(t->root, "post_processor"), &bos, &eos));
    for (uint32_t i = 0; i < hp->n_eos; i++)
        ends = ends || eos == (int64_t)hp->eos[i];
    if (eos >= 0 && hp->n_eos && !ends)
        return tsr_export_gguf_refuse(t, "it ends a text with another token than the model does");
    tsr_export_gguf_key_bool(t->b, "tokenizer.ggml.add_bos_token", bos >= 0);
    tsr_export_gguf_key_bool(t->b, "tokenizer.ggml.add_eos_token", eos >= 0);
    bos = bos >= 0 ? bos : hp->bos;
    if (eos < 0 && hp->n_eos)
        eos = hp->eos[0];
    if (bos >= 0)
        tsr_export_gguf_key_u32(t->b, "tokenizer.ggml.bos_token_id", (uint64_t)bos);
    if (eos >= 0)
        tsr_export_gguf_key_u32(t->b, "tokenizer.ggml.eos_token_id", (uint64_t)eos);
    return TSR_OK;
}

static tsr_status put_lists(const struct tsr_export_gguf_tokens *t)
{
    const json_t *merges = json_object_get(t->model, "merges"), *e;
    size_t        i;
    tsr_export_gguf_put_texts(t, NULL);
    tsr_export_gguf_key_array(t->b, "tokenizer.ggml.token_type", TSR_GGUF_OUT_I32, t->vocab);
    for (uint64_t k = 0; k < t->vocab; k++)
        tsr_export_gguf_add_u32(t->b, (uint32_t)(t->text[k] ? t->kind[k] : UNUSED));
    tsr_export_gguf_key_array(t->b, "tokenizer.ggml.merges", TSR_GGUF_OUT_STRING,
                              json_array_size(merges));
    json_array_foreach (merges, i, e)
        TSR_TRY(put_merge(t, e));
    return TSR_OK;
}

static tsr_status put(struct tsr_export_gguf_tokens *t)
{
    const char *pre = "";
    if (!json_is_object(t->root) || !json_is_object(t->model))
        return tsr_export_gguf_refuse(t, "tokenizer.json has no \"model\"");
    TSR_TRY(collect(t));
    if (tsr_export_gguf_is_spm(t)) {
        TSR_TRY(tsr_export_gguf_put_spm(t));
        return put_ends(t);
    }
    TSR_TRY(pre_name(t, &pre));
    tsr_export_gguf_key_text(t->b, "tokenizer.ggml.model", "gpt2");
    tsr_export_gguf_key_text(t->b, "tokenizer.ggml.pre", pre);
    TSR_TRY(put_lists(t));
    return put_ends(t);
}

static tsr_status with_text(struct tsr_export *x, struct tsr_export_gguf_bytes *b, const char *text,
                            uint64_t len)
{
    json_t *root = NULL;
    TSR_TRY(tsr_json_parse(&root, "tokenizer.json", text, len, 64, x->err));
    struct tsr_export_gguf_tokens t = { .x = x,
                                        .b = b,
                                        .root = root,
                                        .model = json_object_get(root, "model"),
                                        .vocab = x->m->hp.vocab };
    t.text = tsr_new(t.vocab, sizeof *t.text);
    t.kind = tsr_new(t.vocab, sizeof *t.kind);
    tsr_status st =
        t.text && t.kind ? put(&t) : tsr_fail_nomem(x->err, t.vocab * sizeof *t.text, "the tokens");
    free(t.text);
    free(t.kind);
    json_decref(root);
    return st;
}

/* The keys of another GGUF file, byte for byte. */
static tsr_status copy_keys(struct tsr_export *x, struct tsr_export_gguf_bytes *b)
{
    struct tsr_gguf g;
    TSR_TRY(tsr_gguf_open(&g, x->m->path, x->err));
    for (uint64_t i = 0; i < g.n_keys; i++) {
        const struct tsr_gguf_key *k = &g.keys[i];
        if (strncmp(k->name, "tokenizer.", 10) != 0)
            continue;
        if (k->type == TSR_GGUF_ARRAY)
            tsr_export_gguf_key_array(b, k->name, k->item, k->n);
        else
            tsr_export_gguf_key_begin(b, k->name, k->type);
        tsr_export_gguf_add(b, g.header + k->at, k->bytes);
    }
    tsr_gguf_close(&g);
    return tsr_model_text_unchanged(x->m, "tokenizer.json", x->err); /* it was opened again here */
}

tsr_status tsr_export_gguf_put_tokens(struct tsr_export *x, struct tsr_export_gguf_bytes *b)
{
    char                    *text;
    uint64_t                 len;
    enum tsr_checkpoint_kind kind;
    TSR_TRY(tsr_checkpoint_kind(x->m->path, &kind, x->err));
    if (kind == TSR_CHECKPOINT_GGUF)
        return copy_keys(x, b);
    TSR_TRY(tsr_model_text(x->m, "tokenizer.json", &text, &len, x->err));
    if (!text) {
        tsr_logf(TSR_LOG_WARN, "%s: %s has no tokenizer.json; the file takes token ids only",
                 x->path, x->m->path);
        tsr_export_gguf_key_text(b, "tokenizer.ggml.model", "none");
        return tsr_export_gguf_put_templates(x, b);
    }
    tsr_status st = with_text(x, b, text, len);
    free(text);
    return st == TSR_OK ? tsr_export_gguf_put_templates(x, b) : st;
}
