/* The tokenizer, from bytes.  An input that begins with '{' is a tokenizer.json, which then reads
 * a fixed text; any other is text and ids for two fixed tokenizers, one of bytes and one with
 * byte fallback.  Decoding id by id gives what decoding all of them gives. */
#include "tokenizer/tokenizer.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char bytes_json[] =
    "{\"added_tokens\":[{\"id\":7,\"content\":\"<s>\",\"special\":true,\"lstrip\":true,"
    "\"rstrip\":true},{\"id\":8,\"content\":\"ab \",\"single_word\":true}],"
    "\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
    "{\"Regex\":\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s*["
    "\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":true,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
    "\"\\u0120\":3,\"\\u0120a\":4,\"\\u00c3\":5,\"\\u00a9\":6},\"merges\":[\"a b\",\"\\u0120 "
    "a\"]}}";
static const char spiece_json[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":"
    "\"Lowercase\"},{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"},{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":"
    "\"first\",\"split\":true},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
    "\"String\":"
    "\"\\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":"
    "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":2}]},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],"
    "[\"\\u2581\",-1],[\"a\",-2],[\"ab\",-2.5],[\"b\",-3],[\"<0xC3>\",-9],[\"<0xA9>\",-9],"
    "[\"<0xFF>\",-9],[\"<0x20>\",-9]]}}";

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

/* Decodes ids at once and one by one. */
static void decode(const struct tsr_tokenizer *t, const struct tsr_tokenizer_ids *ids)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_text all = { 0 }, sum = { 0 };
    struct tsr_detok         *s = NULL;
    tsr_status                st = tsr_detokenize(t, ids->v, ids->n, true, &all, &e.err);
    if (st == TSR_OK && tsr_tokenizer_detok_create(&s, t, true, &e.err) == TSR_OK) {
        for (uint64_t i = 0; i < ids->n && st == TSR_OK; i++)
            st = tsr_tokenizer_detok_push(s, ids->v[i], &sum, &e.err);
        if (st == TSR_OK)
            st = tsr_tokenizer_detok_flush(s, &sum, &e.err);
        must(st != TSR_OK || (all.n == sum.n && (!all.n || memcmp(all.v, sum.v, all.n) == 0)));
        tsr_tokenizer_detok_destroy(s);
    }
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    tsr_tokenizer_text_free(&all);
    tsr_tokenizer_text_free(&sum);
}

static void both_ways(const struct tsr_tokenizer *t, const char *text, uint64_t n)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    tsr_status               st = tsr_tokenize(t, text, n, TSR_TOKENIZER_SPECIAL, &ids, &e.err);
    must(st == TSR_OK || ((st == TSR_E_INPUT || st == TSR_E_NOMEM) && e.text[0]));
    if (st == TSR_OK)
        decode(t, &ids);
    ids.n = 0;
    for (uint64_t i = 0; i < n && i < 4096; i++)
        if (tsr_tokenizer_ids_push(&ids, (unsigned char)text[i] & 15u, &e.err) != TSR_OK)
            break;
    decode(t, &ids);
    tsr_tokenizer_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "<s> ab\xc3\xa9 12\n  \xe2\x96\x81 a<0x41>\xff\xf0\x9f\x98\x80 ";
    static struct tsr_tokenizer *fixed[2];
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_tokenizer        *t = NULL;
    if (!fixed[0]) {
        must(tsr_tokenizer_parse(&fixed[0], "bytes", bytes_json, sizeof bytes_json - 1, NULL, 0,
                                 &e.err) == TSR_OK);
        must(tsr_tokenizer_parse(&fixed[1], "spiece", spiece_json, sizeof spiece_json - 1, NULL, 0,
                                 &e.err) == TSR_OK);
    }
    if (size && data[0] == '{') {
        tsr_status st = tsr_tokenizer_parse(&t, "input", (const char *)data, size, NULL, 0, &e.err);
        must(st == TSR_OK || ((st == TSR_E_INPUT || st == TSR_E_NOMEM) && e.text[0]));
        if (st == TSR_OK)
            both_ways(t, text, sizeof text - 1);
        tsr_tokenizer_destroy(t);
    } else if (size) {
        both_ways(fixed[0], (const char *)data, size);
        both_ways(fixed[1], (const char *)data, size);
    }
    return 0;
}
