/* Every name of tokenizer.ggml.pre that is known: the tokenizer loads, gives a text back byte for
 * byte, and cuts digits as that name says.  The file is made here: bytes as tokens, one merge. */
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/tokenizer.h"
#include "tokenizer/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64] = "/tmp/test_gguf_pre.XXXXXX";

static void put(FILE *f, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_int_not_equal(fputc((int)(v >> 8 * i & 255), f), EOF);
}

static void put_text(FILE *f, const char *s, size_t n)
{
    put(f, n, 8);
    assert_int_equal(fwrite(s, 1, n, f), n);
}

static void put_key(FILE *f, const char *name, uint32_t type)
{
    put_text(f, name, strlen(name));
    put(f, type, 4);
}

static void put_string(FILE *f, const char *name, const char *value)
{
    put_key(f, name, TSR_GGUF_STRING);
    put_text(f, value, strlen(value));
}

/* Tokens 0 to 255 are the bytes, 256 is "12". */
static void make(const char *pre)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    put(f, 0x46554747, 4);
    put(f, 3, 4);
    put(f, 0, 8);
    put(f, 5, 8);
    put_string(f, "general.architecture", "llama");
    put_string(f, "tokenizer.ggml.model", "gpt2");
    put_string(f, "tokenizer.ggml.pre", pre);
    put_key(f, "tokenizer.ggml.tokens", TSR_GGUF_ARRAY);
    put(f, TSR_GGUF_STRING, 4);
    put(f, 257, 8);
    for (unsigned b = 0; b < 256; b++) {
        char     utf8[4];
        unsigned n = tok_put_char(utf8, tok_byte_char((unsigned char)b));
        put_text(f, utf8, n);
    }
    put_text(f, "12", 2);
    put_key(f, "tokenizer.ggml.merges", TSR_GGUF_ARRAY);
    put(f, TSR_GGUF_STRING, 4);
    put(f, 1, 8);
    put_text(f, "1 2", 3);
    assert_int_equal(fclose(f), 0);
}

static uint64_t count(const struct tsr_tokenizer *t, const char *text)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids  ids = { 0 };
    struct tsr_tokenizer_text back = { 0 };
    assert_int_equal(tsr_tokenize(t, text, strlen(text), 0, &ids, &e.err), TSR_OK);
    assert_int_equal(tsr_detokenize(t, ids.v, ids.n, false, &back, &e.err), TSR_OK);
    assert_string_equal(back.v, text);
    uint64_t n = ids.n;
    tsr_tokenizer_ids_free(&ids);
    tsr_tokenizer_text_free(&back);
    return n;
}

static void every_name(void **state)
{
    /* digits of one word: 1, 3, or all (0) */
    static const struct {
        const char *name;
        unsigned    digits;
    } names[] = {
        { "gpt-2", 0 },       { "phi-2", 0 },     { "mpt", 0 },
        { "olmo", 0 },        { "jais", 0 },      { "bloom", 0 },
        { "starcoder", 1 },   { "refact", 1 },    { "command-r", 1 },
        { "smollm", 1 },      { "codeshell", 1 }, { "qwen2", 1 },
        { "stablelm2", 1 },   { "tekken", 1 },    { "llama3", 3 },
        { "llama-v3", 3 },    { "llama-bpe", 3 }, { "dbrx", 3 },
        { "smaug-bpe", 3 },   { "gpt-4o", 3 },    { "deepseek-r1-qwen", 1 },
        { "deepseek-v3", 3 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_tokenizer *t = NULL;
        make(names[i].name);
        if (tsr_checkpoint_tokenizer_load(&t, path, &e.err) != TSR_OK)
            fail_msg("%s: %s", names[i].name, e.text);
        (void)count(t, "It's  Gr\xc3\xb6\xc3\x9f"
                       "e,\n\n  HELLOworld 'LL \xe4\xbd\xa0\xe5\xa5\xbd! \t x");
        uint64_t three = count(t, "512"), four = count(t, "0012");
        if (three != (names[i].digits == 1 ? 3u : 2u) || four != (names[i].digits == 0 ? 3u : 4u))
            fail_msg("%s: 512 is %d ids and 0012 %d", names[i].name, (int)three, (int)four);
        tsr_tokenizer_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_name) };
    int                     fd = mkstemp(path);
    if (fd < 0)
        return 1;
    (void)close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
