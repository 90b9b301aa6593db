/* The tokenizer beyond the golden cases: malformed files, limits, flags, long texts. */
#include "../fixtures/error_is.h"
#include "base/file.h"
#include "checkpoint/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define OK(e, call)                                                                                \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, (e).text);                                                   \
    } while (0)

#define BPE(fields, vocab, merges)                                                                 \
    "\"model\":{\"type\":\"BPE\"," fields "\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define AB BPE("", "\"a\":0,\"b\":1,\"ab\":2", "\"a b\"")

static struct tsr_tokenizer *parse(const char *json)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t = NULL;
    OK(e, tsr_tokenizer_parse(&t, "t.json", json, strlen(json), NULL, 0, &e.err));
    return t;
}

/* Of this thread, so that a loaded machine does not matter. */
static uint64_t cpu_us(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* The file is refused as bad input. */
static void refused_at(const char *json, const char *about, const char *facts)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t = NULL;
    tsr_status st = tsr_tokenizer_parse(&t, "t.json", json, strlen(json), NULL, 0, &e.err);
    if (st != TSR_E_INPUT || !error_is(&e.err, about, facts))
        fail_msg("%s: status %d, \"%s\"", json, (int)st, st == TSR_OK ? "loaded" : e.text);
    tsr_tokenizer_destroy(t);
}

static void check_ids(const struct tsr_tokenizer *t, const char *text, uint64_t len, unsigned flags,
                      const char *want)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    char                     got[256] = "";
    size_t                   n = 0;
    OK(e, tsr_tokenize(t, text, len, flags, &ids, &e.err));
    for (uint64_t i = 0; i < ids.n && n < sizeof got - 16; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%u", i ? " " : "", ids.v[i]);
    assert_string_equal(got, want);
    tsr_tokenizer_ids_free(&ids);
}

static void refused(const char *json, const char *facts)
{
    refused_at(json, "t.json", facts);
}

static void malformed(void **state)
{
    (void)state;
    refused_at("", "t.json:1", NULL);
    refused("[1]", NULL);
    refused("{}", "model");
    refused("{\"model\":{\"type\":\"WordPiece\"}}", "WordPiece");
    refused("{\"version\":\"2.0\"," AB "}", "version");
    refused_at("{" BPE("", "\"a\":0,\"a\":1", "") "}", "t.json:1:41", NULL);
    refused("{" BPE("", "\"a\":0,\"b\":0", "") "}", "b 0");
    refused("{" BPE("", "\"a\":2147483648", "") "}", "a 0 4194303");
    refused("{" BPE("", "\"a\":-1", "") "}", "a 0 4194303");
    refused("{" BPE("", "\"a\":1.5", "") "}", "a 0 4194303");
    refused("{" BPE("", "\"a\":4194304", "") "}", "4194303");
    refused("{" BPE("", "\"a\":0", "\"a b\"") "}", "b");
    refused("{" BPE("", "\"a\":0,\"b\":1", "\"a b\"") "}", "ab");
    refused("{" BPE("", "\"a\":0,\"b\":1", "\"ab\"") "}", "0");
    refused("{" BPE("", "\"a\":0,\"b\":1", "[\"a\"]") "}", "0");
    refused("{" BPE("", "\"a\":0,\"b\":1", "7") "}", "0");
    refused("{" BPE("\"dropout\":0.1,", "\"a\":0", "") "}", "dropout");
    refused("{" BPE("\"byte_fallback\":true,", "\"a\":0", "") "}", "byte_fallback");
    refused("{" BPE("\"byte_fallback\":3,", "\"a\":0", "") "}", "byte_fallback");
    refused("{\"added_tokens\":[{\"id\":3,\"content\":\"\"}]," AB "}", "0");
    refused("{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\"}]," AB "}", "3");
    refused("{\"added_tokens\":[{\"id\":2147483648,\"content\":\"<x>\"}]," AB "}", "id");
    refused("{\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]," AB "}", "a 1 0");
    refused("{\"added_tokens\":[{\"id\":3,\"content\":\"x\"},{\"id\":4,\"content\":\"x\"}]," AB "}",
            "x");
    refused("{\"normalizer\":{\"type\":\"Magic\"}," AB "}", "Magic");
    refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," AB "}", "UnicodeScripts");
    refused("{\"decoder\":{\"type\":\"WordPiece\"}," AB "}", "WordPiece");
    refused("{\"post_processor\":{\"type\":\"Magic\"}," AB "}", "Magic");
    refused("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
            "{\"id\":\"<s>\"}}],\"special_tokens\":{}}," AB "}",
            "special_tokens");
    refused("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," AB "}",
            "precompiled_charsmap");
    refused("{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",0.0]]}}", "unk_id");
    refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "0");
    refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}}", "vocab 1");
    char deep[256] = "{\"x\":";
    memset(deep + 5, '[', 200);
    refused(deep, "32");
}

#define SPLIT(re)                                                                                  \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" re                          \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}," AB "}"

static void regexes(void **state)
{
    (void)state;
    refused(SPLIT("(a"), "2");
    refused(SPLIT("[a"), "2");
    refused(SPLIT("a(?~b)"), "1");
    refused(SPLIT("\\\\K"), "0");
    refused(SPLIT("\\\\p{Nonsense}"), "Nonsense");
    refused(SPLIT("*a"), "1");
    refused(SPLIT("(?<=a+)b"), NULL);
    char *big = malloc(40000);
    assert_non_null(big);
    (void)strcpy(big, "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"");
    size_t n = strlen(big);
    memset(big + n, 'a', 16385);
    (void)strcpy(big + n + 16385, "\"},\"behavior\":\"Isolated\",\"invert\":false}," AB "}");
    refused(big, "16384");
    (void)strcpy(big + n + 16384, "\"},\"behavior\":\"Isolated\",\"invert\":false}," AB "}");
    tsr_tokenizer_destroy(parse(big));
    free(big);
}

/* A pattern that explodes is an error soon, never "no match". */
static void limits(void **state)
{
    (void)state;
    static const char *const bad[] = { SPLIT("(a+)+$"), SPLIT("(?:(a)|b)*c"), SPLIT("(a|a)*d") };
    uint64_t                 n = 1 << 20;
    char                    *text = malloc(n);
    assert_non_null(text);
    memset(text, 'a', n);
    text[n - 1] = 'b';
    for (unsigned i = 0; i < 3; i++) {
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_tokenizer    *t = parse(bad[i]);
        struct tsr_tokenizer_ids ids = { 0 };
        uint64_t                 start = cpu_us();
        assert_int_equal(tsr_tokenize(t, text, n, 0, &ids, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, "t.json", "TOKENIZER_LIMIT"));
        assert_true(cpu_us() - start < 10000000); /* under a second without sanitizers */
        check_ids(t, "ab", 2, 0, "2");            /* others go on */
        tsr_tokenizer_ids_free(&ids);
        tsr_tokenizer_destroy(t);
    }
    free(text);
}

static void bytes(void **state)
{
    (void)state;
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer     *t = NULL;
    struct tsr_tokenizer_ids  ids = { 0 };
    struct tsr_tokenizer_text text = { 0 };
    OK(e, tsr_checkpoint_tokenizer_load(&t, TEST_GOLDEN "/tokenizers/gpt2", &e.err));
    /* invalid bytes read as U+FFFD, NUL as itself, lone surrogates as three of them */
    static const struct {
        const char *in;
        uint64_t    n;
        const char *out;
        uint64_t    m;
    } c[] = {
        { "", 0, "", 0 },
        { "\0", 1, "\0", 1 },
        { "a\0b", 3, "a\0b", 3 },
        { "\xff", 1, "\xef\xbf\xbd", 3 },
        { "\xe2\x82", 2, "\xef\xbf\xbd", 3 },
        { "\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 9 },
        { "\xf0\x9f\x98", 3, "\xef\xbf\xbd", 3 },
        { "\xc0\x80", 2, "\xef\xbf\xbd\xef\xbf\xbd", 6 },
    };
    for (unsigned i = 0; i < sizeof c / sizeof *c; i++) {
        ids.n = text.n = 0;
        OK(e, tsr_tokenize(t, c[i].in, c[i].n, 0, &ids, &e.err));
        OK(e, tsr_detokenize(t, ids.v, ids.n, false, &text, &e.err));
        assert_int_equal(text.n, c[i].m);
        assert_true(c[i].m == 0 || memcmp(text.v, c[i].out, c[i].m) == 0);
    }
    for (unsigned k = 0; k < 65536; k += 7) { /* byte level gives every valid text back */
        char b[2] = { (char)(k >> 8 & 0x7f), (char)(k & 0x7f) };
        ids.n = text.n = 0;
        OK(e, tsr_tokenize(t, b, 2, TSR_TOKENIZER_NO_SPECIALS, &ids, &e.err));
        OK(e, tsr_detokenize(t, ids.v, ids.n, false, &text, &e.err));
        assert_int_equal(text.n, 2);
        assert_memory_equal(text.v, b, 2);
    }
    tsr_tokenizer_ids_free(&ids);
    tsr_tokenizer_text_free(&text);
    tsr_tokenizer_destroy(t);
}

static void specials(void **state)
{
    (void)state;
    struct tsr_tokenizer *t = parse(
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true,\"rstrip\":true},"
        "{\"id\":4,\"content\":\"bb\",\"normalized\":false,\"single_word\":true}],"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
        "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":"
        "{\"<s>\":{\"id\":\"<s>\",\"ids\":[3],\"tokens\":[\"<s>\"]}}}," BPE(
            "\"unk_token\":\"a\",", "\"a\":0,\"b\":1,\"ab\":2", "[\"a\",\"b\"]") "}");
    check_ids(t, "<s>  ab", 7, 0, "3 2");
    check_ids(t, "<s>  ab", 7, TSR_TOKENIZER_SPECIAL, "3 3 2");
    check_ids(t, "<s>b", 4, TSR_TOKENIZER_NO_SPECIALS, "0 0 2"); /* the third unknown merges */
    check_ids(t, "bb", 2, 0, "4");
    check_ids(t, "bbb", 3, 0, "1 1 1");
    assert_int_equal(tsr_tokenizer_size(t), 5);
    tsr_tokenizer_destroy(t);
}

/* tokenizer_config.json adds BOS only where tokenizer.json has no template of its own. */
static void config(void **state)
{
    (void)state;
    static const char json[] = "{" AB "}";
    static const char llama[] = "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,"
                                "\"bos_token\":{\"content\":\"b\"}}";
    static const char bad[] = "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,"
                              "\"bos_token\":\"zz\"}";
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t = NULL;
    OK(e, tsr_tokenizer_parse(&t, "t", json, sizeof json - 1, llama, sizeof llama - 1, &e.err));
    check_ids(t, "ab", 2, TSR_TOKENIZER_SPECIAL, "1 2");
    check_ids(t, "ab", 2, 0, "2");
    tsr_tokenizer_destroy(t);
    assert_int_equal(tsr_tokenizer_parse(&t, "t", json, sizeof json - 1, bad, sizeof bad - 1,
                                         &e.err),
                     TSR_E_INPUT);
}

/* A megabyte of the worst texts ends.  It takes under 2 s of CPU even sanitized; anything that
 * grows with the square takes 10^12 steps, hours, so the bound tells them apart on any machine. */
static void linear(void **state)
{
    (void)state;
    static const char *const styles[] = { "llama2", "llama3", "unigram" };
    static const char *const texts[] = { "a", " ", " \n", "ab" };
    for (unsigned s = 0; s < 3; s++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_tokenizer *t = NULL;
        char                 *path = tsr_path_join(TEST_GOLDEN "/tokenizers", styles[s]);
        OK(e, tsr_checkpoint_tokenizer_load(&t, path, &e.err));
        for (unsigned k = 0; k < 4; k++) {
            uint64_t n = 1 << 20, len = strlen(texts[k]);
            char    *text = malloc(n);
            assert_non_null(text);
            for (uint64_t i = 0; i < n; i++)
                text[i] = texts[k][i % len];
            struct tsr_tokenizer_ids ids = { 0 };
            uint64_t                 start = cpu_us();
            OK(e, tsr_tokenize(t, text, n, 0, &ids, &e.err));
            uint64_t took = cpu_us() - start;
            tsr_tokenizer_ids_free(&ids);
            free(text);
            if (took > 60000000)
                fail_msg("%s, \"%s\": %llu us of CPU", styles[s], texts[k],
                         (unsigned long long)took);
        }
        tsr_tokenizer_destroy(t);
        free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed), cmocka_unit_test(regexes),  cmocka_unit_test(limits),
        cmocka_unit_test(bytes),     cmocka_unit_test(specials), cmocka_unit_test(config),
        cmocka_unit_test(linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
