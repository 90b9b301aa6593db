/* The tokenizer in the metadata of a GGUF file, as a tokenizer.json: so that one reader checks
 * both, and a folder written from the file has one. */
#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/gguf.h"
#include "model/gguf_vocab.h"
#include "model/tok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKEN TOK_MAX_ADDED
#define SPACE     "\xe2\x96\x81" /* U+2581, which stands for a space */

struct make {
    const struct tsr_gguf *g;
    struct tsr_gguf_vocab  v;
    char                  *fill; /* text of empty tokens */
    json_t                *j;    /* tokenizer.json */
    struct tsr_err        *err;
};

static tsr_status put(struct make *k, json_t *to, const char *key, json_t *v)
{
    return v && json_object_set_new(to, key, v) == 0 ? TSR_OK : tsr_fail_nomem(k->err, 64, key);
}

/* ---- the vocabulary -------------------------------------------------------------------- */

static tsr_status read_token(struct make *k, uint32_t i, const char *s, uint64_t n)
{
    if (n > MAX_TOKEN || memchr(s, 0, n) || !tok_valid(s, n))
        return tsr_fail(
            k->err, TSR_E_INPUT,
            "%s: token %u of \"tokenizer.ggml.tokens\" is not UTF-8 of at most %u bytes "
            "without NUL",
            k->g->path, i, MAX_TOKEN);
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

/* Scores and kinds have one item per token where they are there. */
static tsr_status beside(struct make *k, const char *key, uint32_t item, bool required,
                         const struct tsr_gguf_key **out)
{
    TSR_TRY(tsr_gguf_array(k->g, key, required, item, out, k->err));
    if (*out && (*out)->n != k->v.n)
        return tsr_fail(k->err, TSR_E_INPUT, "%s: \"%s\" has %llu items for %u tokens", k->g->path,
                        key, (unsigned long long)(*out)->n, k->v.n);
    return TSR_OK;
}

static tsr_status read_vocab(struct make *k, bool scored)
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

static json_t *text_of(const struct tsr_gguf_token *t)
{
    return json_stringn(t->s, t->n);
}

/* {"token": id} */
static tsr_status put_vocab(struct make *k, json_t *model)
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
    return put(k, model, "vocab", vocab);
}

static tsr_status put_added(struct make *k)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint32_t i = 0; ok && i < k->v.n; i++) {
        const struct tsr_gguf_token *t = &k->v.token[i];
        bool                         special = t->kind == GGUF_CONTROL || t->kind == GGUF_UNKNOWN;
        if ((!special && t->kind != GGUF_USER) || t->twin)
            continue;
        json_t *a = json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                              text_of(t), "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized",
                              0, "special", special);
        ok = a && json_array_append_new(list, a) == 0;
    }
    if (!ok) {
        json_decref(list);
        return tsr_fail_nomem(k->err, 64, "added tokens");
    }
    return put(k, k->j, "added_tokens", list);
}

/* A special token by the key of its id, or NULL. */
static tsr_status special(struct make *k, const char *key, int64_t def,
                          const struct tsr_gguf_token **t)
{
    int64_t id = def;
    TSR_TRY(tsr_gguf_int(k->g, key, false, 0, k->v.n - 1, &id, k->err));
    *t = id >= 0 && id < k->v.n ? &k->v.token[id] : NULL;
    return TSR_OK;
}

/* ---- what goes around a text -------------------------------------------------------------- */

static tsr_status add_special(struct make *k, const struct tsr_gguf_token *t, json_t *single,
                              json_t *specials)
{
    json_t *piece = json_pack("{s:{s:o, s:i}}", "SpecialToken", "id", text_of(t), "type_id", 0);
    json_t *entry = json_pack("{s:o, s:[I], s:[o]}", "id", text_of(t), "ids",
                              (json_int_t)(t - k->v.token), "tokens", text_of(t));
    bool    ok = piece && json_array_append_new(single, piece) == 0;
    ok = entry && json_object_setn_new(specials, t->s, t->n, entry) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(k->err, 64, "a template");
}

static tsr_status put_template(struct make *k, const struct tsr_gguf_token *bos,
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
        json_t *pair = json_deep_copy(single), *second = pair ? json_deep_copy(single) : NULL;
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
        st = put(k, k->j, "post_processor", p);
    }
    json_decref(single);
    json_decref(specials);
    return st;
}

/* bos and eos: ids where no key says which, -1: none. */
static tsr_status put_specials(struct make *k, bool add_bos, bool add_eos, int64_t bos_id,
                               int64_t eos_id)
{
    const struct tsr_gguf_token *bos, *eos;
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_bos_token", &add_bos, k->err));
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_eos_token", &add_eos, k->err));
    TSR_TRY(special(k, "tokenizer.ggml.bos_token_id", bos_id, &bos));
    TSR_TRY(special(k, "tokenizer.ggml.eos_token_id", eos_id, &eos));
    bos = add_bos ? bos : NULL;
    eos = add_eos ? eos : NULL;
    return bos || eos ? put_template(k, bos, eos) : TSR_OK;
}

/* ---- SentencePiece: "llama" (BPE by scores) and "t5" (Unigram) ----------------------------- */

static tsr_status put_spaces(struct make *k, bool prefix, json_t *norm)
{
    json_t *replace = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                                "content", SPACE);
    json_t *prepend = json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPACE);
    bool    ok = replace && prepend;
    if (ok && prefix)
        ok = json_array_append(norm, prepend) == 0;
    ok = ok && json_array_append(norm, replace) == 0;
    json_decref(replace);
    json_decref(prepend);
    TSR_TRY(ok ? TSR_OK : tsr_fail_nomem(k->err, 64, "a normalizer"));
    json_t *dec =
        json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String",
                  SPACE, "content", " ", "type", "ByteFallback", "type", "Fuse");
    ok = dec != NULL;
    if (ok && prefix)
        ok = json_array_append_new(dec, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                  "content", " ", "start", 1, "stop", 0)) == 0;
    json_t *all = ok ? json_pack("{s:s, s:O}", "type", "Sequence", "decoders", dec) : NULL;
    json_decref(dec);
    return put(k, k->j, "decoder", all);
}

static tsr_status make_spm(struct make *k)
{
    bool                         prefix = true;
    const struct tsr_gguf_token *unk;
    TSR_TRY(read_vocab(k, true));
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_space_prefix", &prefix, k->err));
    TSR_TRY(special(k, "tokenizer.ggml.unknown_token_id", 0, &unk));
    json_t *model = json_pack("{s:s, s:o, s:b, s:b}", "type", "BPE", "unk_token",
                              unk ? text_of(unk) : json_null(), "fuse_unk", 1, "byte_fallback", 1);
    TSR_TRY(put(k, k->j, "model", model));
    TSR_TRY(put_vocab(k, model));
    json_t *merges = json_array(), *norm = json_array();
    TSR_TRY(put(k, model, "merges", merges));
    json_t *n = norm ? json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", norm) : NULL;
    TSR_TRY(put(k, k->j, "normalizer", n));
    TSR_TRY(put_spaces(k, prefix, norm));
    TSR_TRY(tsr_gguf_merges(&k->v, merges, k->err));
    TSR_TRY(put_added(k));
    return put_specials(k, true, false, 1, 2);
}

/* ---- byte-level BPE: "gpt2", cut into words as tokenizer.ggml.pre says ------------------------ */

#define TAIL  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER     \
    "*" end "|"
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char llama3_words[] = SHORT "\\p{N}{1,3}" TAIL;
static const char qwen2_words[] = SHORT "\\p{N}" TAIL;
static const char tekken_words[] = CASED("") "\\p{N}" CASED_TAIL;
static const char gpt4o_words[] = CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") "\\p{N}{1,3}" CASED_TAIL;
static const char bloom_words[] =
    " ?[^(\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c])]"
    "+";

/* The names are llama.cpp's; the patterns those of the tokenizers that the names stand for. */
static const struct pre {
    const char *name;
    const char *words;  /* NULL: GPT-2's */
    bool        digits; /* each digit apart, before GPT-2's */
    bool        nfc, ignore_merges, bos;
} pres[] = {
    { .name = "gpt-2" },
    { .name = "phi-2" },
    { .name = "mpt" },
    { .name = "olmo" },
    { .name = "jais" },
    { .name = "starcoder", .digits = true },
    { .name = "refact", .digits = true },
    { .name = "command-r", .digits = true },
    { .name = "smollm", .digits = true },
    { .name = "codeshell", .digits = true },
    { .name = "llama3", .words = llama3_words, .ignore_merges = true, .bos = true },
    { .name = "llama-v3", .words = llama3_words, .ignore_merges = true, .bos = true },
    { .name = "llama-bpe", .words = llama3_words, .ignore_merges = true, .bos = true },
    { .name = "dbrx", .words = llama3_words },
    { .name = "smaug-bpe", .words = llama3_words },
    { .name = "qwen2", .words = qwen2_words, .nfc = true },
    { .name = "deepseek-r1-qwen", .words = qwen2_words },
    { .name = "stablelm2", .words = qwen2_words, .nfc = true },
    { .name = "tekken", .words = tekken_words, .ignore_merges = true, .bos = true },
    { .name = "gpt-4o", .words = gpt4o_words },
    { .name = "bloom", .words = bloom_words },
};

static tsr_status find_pre(struct make *k, const struct pre **pre)
{
    char *name = NULL;
    TSR_TRY(tsr_gguf_str(k->g, "tokenizer.ggml.pre", false, &name, k->err));
    *pre = NULL;
    for (size_t i = 0; name && i < sizeof pres / sizeof *pres; i++)
        if (strcmp(name, pres[i].name) == 0)
            *pre = &pres[i];
    tsr_status st = TSR_OK;
    if (!*pre)
        st = tsr_fail(k->err, TSR_E_INPUT,
                      "%s: \"tokenizer.ggml.pre\" is %s%.60s%s, so it is not known how the "
                      "tokenizer cuts a text into words; gpt-2, llama-bpe, qwen2, tekken, gpt-4o, "
                      "dbrx, smollm and bloom are known (use the tokenizer.json of the original)",
                      k->g->path, name ? "\"" : "", name ? name : "missing", name ? "\"" : "");
    free(name);
    return st;
}

static json_t *byte_level(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *words_of(const struct pre *pre)
{
    json_t *split = pre->digits ? json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1)
                    : pre->words
                        ? json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                    pre->words, "behavior", "Isolated", "invert", 0)
                        : NULL;
    if (!split)
        return pre->words || pre->digits ? NULL : byte_level(true);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", split,
                     byte_level(pre->digits));
}

static tsr_status put_merges(struct make *k, json_t *model)
{
    const struct tsr_gguf_key *merges;
    json_t                    *list = json_array();
    uint64_t                   at = 0;
    TSR_TRY(put(k, model, "merges", list));
    TSR_TRY(tsr_gguf_array(k->g, "tokenizer.ggml.merges", true, TSR_GGUF_STRING, &merges, k->err));
    for (uint64_t i = 0; i < merges->n; i++) {
        const char *s;
        uint64_t    n;
        tsr_gguf_next(k->g, merges, &at, &s, &n);
        if (n > 2 * MAX_TOKEN + 1 || memchr(s, 0, n) || !tok_valid(s, n))
            return tsr_fail(k->err, TSR_E_INPUT,
                            "%s: item %llu of \"tokenizer.ggml.merges\" is not UTF-8 without NUL",
                            k->g->path, (unsigned long long)i);
        if (json_array_append_new(list, json_stringn(s, n)) != 0)
            return tsr_fail_nomem(k->err, n, "merges");
    }
    return TSR_OK;
}

static tsr_status make_bpe(struct make *k)
{
    const struct pre *pre;
    TSR_TRY(find_pre(k, &pre));
    TSR_TRY(read_vocab(k, false));
    json_t *model = json_pack("{s:s, s:b, s:b, s:b}", "type", "BPE", "fuse_unk", 0, "byte_fallback",
                              0, "ignore_merges", pre->ignore_merges);
    TSR_TRY(put(k, k->j, "model", model));
    TSR_TRY(put_vocab(k, model));
    TSR_TRY(put_merges(k, model));
    if (pre->nfc)
        TSR_TRY(put(k, k->j, "normalizer", json_pack("{s:s}", "type", "NFC")));
    TSR_TRY(put(k, k->j, "pre_tokenizer", words_of(pre)));
    TSR_TRY(put(k, k->j, "decoder", byte_level(true)));
    TSR_TRY(put_added(k));
    return put_specials(k, pre->bos, false, 11, 11);
}

/* ---- the whole -------------------------------------------------------------------------------- */

static tsr_status make(struct make *k, const char *model)
{
    TSR_TRY(put(k, k->j, "version", json_string("1.0")));
    if (strcmp(model, "llama") == 0)
        return make_spm(k);
    if (strcmp(model, "gpt2") == 0)
        return make_bpe(k);
    return tsr_fail(k->err, TSR_E_INPUT,
                    "%s: the tokenizer \"%.40s\" is not supported; of GGUF files \"llama\" "
                    "(SentencePiece) and \"gpt2\" (byte-level BPE) are",
                    k->g->path, model);
}

tsr_status tsr_gguf_tokenizer(const struct tsr_gguf *g, char **text, uint64_t *len,
                              struct tsr_err *err)
{
    char *model = NULL;
    TSR_TRY(tsr_gguf_str(g, TSR_GGUF_TOKENIZER, true, &model, err));
    struct make k = { .g = g, .j = json_object(), .err = err };
    tsr_status  st = k.j ? make(&k, model) : tsr_fail_nomem(err, 64, "a tokenizer");
    *text = st == TSR_OK ? json_dumps(k.j, JSON_COMPACT) : NULL;
    if (st == TSR_OK && !*text)
        st = tsr_fail_nomem(err, 1 << 20, "a tokenizer");
    if (st == TSR_OK)
        *len = strlen(*text);
    json_decref(k.j);
    free(k.v.token);
    free(k.fill);
    free(model);
    return st;
}
