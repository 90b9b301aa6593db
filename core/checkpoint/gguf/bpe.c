/* Byte-level BPE in the metadata of a GGUF file ("gpt2"), which cuts a text into words as
 * tokenizer.ggml.pre says. */
#include "checkpoint/gguf/vocab.h"
#include "checkpoint/gguf/words.h"
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

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
static const char qwen35_words[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char tekken_words[] = CASED("") "\\p{N}" CASED_TAIL;
static const char gpt4o_words[] = CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") "\\p{N}{1,3}" CASED_TAIL;

/* The names are llama.cpp's; the patterns are those of the named tokenizers. */
static const struct pre {
    const char                   *name;
    const char                   *words;  /* NULL: GPT-2's */
    bool                          digits; /* each digit apart, before GPT-2's */
    bool                          nfc, ignore_merges, bos;
    const struct tsr_gguf_splits *several; /* the patterns of words.h */
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
    { .name = "qwen35", .words = qwen35_words, .nfc = true },
    { .name = "deepseek-r1-qwen", .words = qwen2_words },
    { .name = "stablelm2", .words = qwen2_words, .nfc = true },
    { .name = "tekken", .words = tekken_words, .ignore_merges = true, .bos = true },
    { .name = "gpt-4o", .words = gpt4o_words },
    { .name = "bloom", .several = &tsr_gguf_several[2] },
    { .name = "deepseek-v3", .several = &tsr_gguf_several[0] },
    { .name = "deepseek-llm", .several = &tsr_gguf_several[1] },
};

static tsr_status find_pre(struct tsr_gguf_make *k, const struct pre **pre)
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
                      "dbrx, smollm, deepseek-llm, deepseek-v3 and bloom are known (use the "
                      "tokenizer.json of the original)",
                      k->g->path, name ? "\"" : "", name ? name : "missing", name ? "\"" : "");
    free(name);
    return st;
}

static json_t *byte_level(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *split_of(const char *words)
{
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", words,
                     "behavior", "Isolated", "invert", 0);
}

static json_t *digits_apart(void)
{
    return json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1);
}

static json_t *several_of(const struct tsr_gguf_splits *of)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (size_t i = 0; ok && i < tsr_gguf_count_splits(of); i++)
        ok = json_array_append_new(list, split_of(of->words[i])) == 0;
    ok = ok && (!of->digits || json_array_append_new(list, digits_apart()) == 0) &&
         json_array_append_new(list, byte_level(false)) == 0;
    if (ok)
        return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
    json_decref(list);
    return NULL;
}

static json_t *words_of(const struct pre *pre)
{
    if (pre->several)
        return several_of(pre->several);
    json_t *split = pre->digits ? digits_apart() : pre->words ? split_of(pre->words) : NULL;
    if (!split)
        return pre->words || pre->digits ? NULL : byte_level(true);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", split,
                     byte_level(pre->digits));
}

static tsr_status put_merges(struct tsr_gguf_make *k, json_t *model)
{
    const struct tsr_gguf_key *merges;
    json_t                    *list = json_array();
    uint64_t                   at = 0;
    TSR_TRY(tsr_gguf_put(k, model, "merges", list));
    TSR_TRY(tsr_gguf_array(k->g, "tokenizer.ggml.merges", true, TSR_GGUF_STRING, &merges, k->err));
    for (uint64_t i = 0; i < merges->n; i++) {
        const char *s;
        uint64_t    n;
        tsr_gguf_next(k->g, merges, &at, &s, &n);
        if (n > 2 * GGUF_MAX_TOKEN + 1 || memchr(s, 0, n) || !tok_valid(s, n))
            return tsr_fail(k->err, TSR_E_INPUT,
                            "%s: item %llu of \"tokenizer.ggml.merges\" is not UTF-8 without NUL",
                            k->g->path, (unsigned long long)i);
        if (json_array_append_new(list, json_stringn(s, n)) != 0)
            return tsr_fail_nomem(k->err, n, "merges");
    }
    return TSR_OK;
}

tsr_status tsr_gguf_make_bpe(struct tsr_gguf_make *k)
{
    const struct pre *pre = NULL;
    TSR_TRY(find_pre(k, &pre));
    if (!pre)
        return tsr_fail(k->err, TSR_E_BUG, "%s: no pattern of words", k->g->path);
    TSR_TRY(tsr_gguf_read_vocab(k, false));
    json_t *model = json_pack("{s:s, s:b, s:b, s:b}", "type", "BPE", "fuse_unk", 0, "byte_fallback",
                              0, "ignore_merges", pre->ignore_merges);
    TSR_TRY(tsr_gguf_put(k, k->j, "model", model));
    TSR_TRY(tsr_gguf_put_vocab(k, model));
    TSR_TRY(put_merges(k, model));
    if (pre->nfc)
        TSR_TRY(tsr_gguf_put(k, k->j, "normalizer", json_pack("{s:s}", "type", "NFC")));
    TSR_TRY(tsr_gguf_put(k, k->j, "pre_tokenizer", words_of(pre)));
    TSR_TRY(tsr_gguf_put(k, k->j, "decoder", byte_level(true)));
    TSR_TRY(tsr_gguf_put_added(k));
    return tsr_gguf_put_specials(k, pre->bos, false, -1, -1);
}
