/* SentencePiece in the metadata of a GGUF file: "llama" (BPE by scores) and "t5" (Unigram). */
#include "base/mem.h"
#include "checkpoint/gguf/vocab.h"
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81" /* U+2581, which represents a space */

static tsr_status put_spaces(struct tsr_gguf_make *k, bool prefix, json_t *norm)
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
    return tsr_gguf_put(k, k->j, "decoder", all);
}

tsr_status tsr_gguf_make_spm(struct tsr_gguf_make *k)
{
    bool                         prefix = true;
    const struct tsr_gguf_token *unk;
    TSR_TRY(tsr_gguf_read_vocab(k, true));
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_space_prefix", &prefix, k->err));
    TSR_TRY(tsr_gguf_special(k, "tokenizer.ggml.unknown_token_id", 0, &unk));
    json_t *model =
        json_pack("{s:s, s:o, s:b, s:b}", "type", "BPE", "unk_token",
                  unk ? tsr_gguf_text_of(unk) : json_null(), "fuse_unk", 1, "byte_fallback", 1);
    TSR_TRY(tsr_gguf_put(k, k->j, "model", model));
    TSR_TRY(tsr_gguf_put_vocab(k, model));
    json_t *merges = json_array(), *norm = json_array();
    TSR_TRY(tsr_gguf_put(k, model, "merges", merges));
    json_t *n = norm ? json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", norm) : NULL;
    TSR_TRY(tsr_gguf_put(k, k->j, "normalizer", n));
    TSR_TRY(put_spaces(k, prefix, norm));
    TSR_TRY(tsr_gguf_merges(&k->v, merges, k->err));
    TSR_TRY(tsr_gguf_put_added(k));
    return tsr_gguf_put_specials(k, true, false, 1, 2);
}

/* ---- Unigram ------------------------------------------------------------------------ */

static tsr_status put_pieces(struct tsr_gguf_make *k, json_t *model)
{
    json_t *vocab = json_array();
    bool    bytes = false;
    TSR_TRY(tsr_gguf_put(k, model, "vocab", vocab));
    for (uint32_t i = 0; i < k->v.n; i++) {
        const struct tsr_gguf_token *t = &k->v.token[i];
        json_t *pair = json_pack("[s%, f]", t->s, (size_t)t->n, (double)t->score);
        if (!pair || json_array_append_new(vocab, pair) != 0)
            return tsr_fail_nomem(k->err, 64, "a vocabulary");
        bytes = bytes || t->kind == GGUF_BYTE;
    }
    return tsr_gguf_put(k, model, "byte_fallback", json_boolean(bytes));
}

static char *base64(const unsigned char *p, uint64_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char             *out = tsr_new((n + 2) / 3 * 4 + 1, 1), *o = out;
    for (uint64_t i = 0; out && i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        v |= i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0;
        v |= i + 2 < n ? p[i + 2] : 0;
        *o++ = digits[v >> 18];
        *o++ = digits[v >> 12 & 63];
        *o++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *o++ = i + 2 < n ? digits[v & 63] : '=';
    }
    return out;
}

/* SentencePiece's compiled normalization. */
static tsr_status put_charsmap(struct tsr_gguf_make *k, json_t *norm)
{
    const struct tsr_gguf_key *m = tsr_gguf_key(k->g, "tokenizer.ggml.precompiled_charsmap");
    if (!m || m->n == 0)
        return TSR_OK;
    if (m->type != TSR_GGUF_ARRAY || (m->item != TSR_GGUF_U8 && m->item != TSR_GGUF_I8))
        return tsr_fail(k->err, TSR_E_INPUT, "%s: \"%s\" is not an array of bytes", k->g->path,
                        m->name);
    char *text = base64(k->g->header + m->at, m->n);
    if (!text)
        return tsr_fail_nomem(k->err, m->n, m->name);
    json_t *part = json_pack("{s:s, s:s}", "type", "Precompiled", "precompiled_charsmap", text);
    free(text);
    return part && json_array_append_new(norm, part) == 0 ? TSR_OK
                                                          : tsr_fail_nomem(k->err, 64, m->name);
}

static json_t *replace(const char *pattern, const char *by)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "Regex", pattern,
                     "content", by);
}

/* Spaces alone: other white space stays, at the ends too. */
static tsr_status put_extra_spaces(struct tsr_gguf_make *k, json_t *norm)
{
    bool ok = json_array_append_new(norm, replace(" {2,}", " ")) == 0 &&
              json_array_append_new(norm, replace("\\A +| +\\z", "")) == 0;
    return ok ? TSR_OK : tsr_fail_nomem(k->err, 64, "a normalizer");
}

static json_t *metaspace(bool prefix)
{
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", SPACE,
                     "prepend_scheme", prefix ? "always" : "never", "split", 1);
}

tsr_status tsr_gguf_make_unigram(struct tsr_gguf_make *k)
{
    bool                         prefix = true, extra = false;
    const struct tsr_gguf_token *unk;
    TSR_TRY(tsr_gguf_read_vocab(k, true));
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.add_space_prefix", &prefix, k->err));
    TSR_TRY(tsr_gguf_bool(k->g, "tokenizer.ggml.remove_extra_whitespaces", &extra, k->err));
    TSR_TRY(tsr_gguf_special(k, "tokenizer.ggml.unknown_token_id", 2, &unk));
    if (!unk)
        return tsr_fail(k->err, TSR_E_INPUT, "%s: the tokenizer has no unknown token", k->g->path);
    json_t *model =
        json_pack("{s:s, s:I}", "type", "Unigram", "unk_id", (json_int_t)(unk - k->v.token));
    TSR_TRY(tsr_gguf_put(k, k->j, "model", model));
    TSR_TRY(put_pieces(k, model));
    json_t *norm = json_array();
    json_t *n = norm ? json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", norm) : NULL;
    TSR_TRY(tsr_gguf_put(k, k->j, "normalizer", n));
    TSR_TRY(put_charsmap(k, norm));
    if (extra)
        TSR_TRY(put_extra_spaces(k, norm));
    TSR_TRY(tsr_gguf_put(k, k->j, "pre_tokenizer", metaspace(prefix)));
    TSR_TRY(tsr_gguf_put(k, k->j, "decoder", metaspace(prefix)));
    TSR_TRY(tsr_gguf_put_added(k));
    return tsr_gguf_put_specials(k, false, true, -1, 1);
}
