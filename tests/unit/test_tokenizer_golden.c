/* Every case of tests/golden/tokenizers: ids, ids with specials, text, random ids; and the
 * streaming decoder gives the same bytes in whole characters.  The same tokenizers, and two of
 * SentencePiece, from GGUF files (tests/golden/gguf), and from files that we write. */
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "checkpoint/export/export.h"
#include "checkpoint/random_model.h"
#include "checkpoint/tokenizer.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(e, call)                                                                                \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, (e).text);                                                   \
    } while (0)

static void list(const json_t *j, struct tsr_tokenizer_ids *ids)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    ids->n = 0;
    for (size_t i = 0; i < json_array_size(j); i++)
        OK(e,
           tsr_tokenizer_ids_push(ids, (uint32_t)json_integer_value(json_array_get(j, i)), &e.err));
}

static void same_ids(const char *what, const char *text, const struct tsr_tokenizer_ids *got,
                     const struct tsr_tokenizer_ids *want)
{
    if (got->n != want->n || (want->n && memcmp(got->v, want->v, want->n * 4) != 0))
        fail_msg("%s of \"%s\": %llu ids, wanted %llu", what, text, (unsigned long long)got->n,
                 (unsigned long long)want->n);
}

static void same_text(const char *what, const struct tsr_tokenizer_text *got, const json_t *want)
{
    if (got->n != json_string_length(want) ||
        (got->n && memcmp(got->v, json_string_value(want), got->n) != 0))
        fail_msg("%s: \"%s\", wanted \"%s\"", what, got->v ? got->v : "", json_string_value(want));
}

/* Every piece is whole characters and the sum is the text. */
static void stream(const struct tsr_tokenizer *t, const struct tsr_tokenizer_ids *ids, bool skip,
                   const json_t *want)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_detok         *s = NULL;
    struct tsr_tokenizer_text sum = { 0 };
    OK(e, tsr_tokenizer_detok_create(&s, t, skip, &e.err));
    for (int round = 0; round < 2; round++) { /* a flushed stream starts afresh */
        sum.n = 0;
        for (uint64_t i = 0; i <= ids->n; i++) {
            uint64_t from = sum.n;
            if (i < ids->n)
                OK(e, tsr_tokenizer_detok_push(s, ids->v[i], &sum, &e.err));
            else
                OK(e, tsr_tokenizer_detok_flush(s, &sum, &e.err));
            if (sum.n > from)
                assert_false(((unsigned char)sum.v[from] & 0xc0) == 0x80);
        }
        same_text("streamed", &sum, want);
    }
    tsr_tokenizer_detok_destroy(s);
    tsr_tokenizer_text_free(&sum);
}

/* want is NULL where SentencePiece has no such text: it shows special tokens never, and the unknown
 * one always. */
static void decode_case(const struct tsr_tokenizer *t, const struct tsr_tokenizer_ids *ids,
                        bool skip, const json_t *want)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_text text = { 0 };
    if (!want)
        return;
    OK(e, tsr_detokenize(t, ids->v, ids->n, skip, &text, &e.err));
    same_text("decoded", &text, want);
    tsr_tokenizer_text_free(&text);
    stream(t, ids, skip, want);
}

/* tokenizer: a folder or a GGUF file. */
static unsigned run_cases(const char *tokenizer, const char *path)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer    *t = NULL;
    json_t                  *cases = NULL, *c;
    size_t                   i;
    unsigned                 n = 0;
    struct tsr_tokenizer_ids want = { 0 }, got = { 0 };
    OK(e, tsr_json_load(&cases, path, 1 << 24, 16, &e.err));
    OK(e, tsr_checkpoint_tokenizer_load(&t, tokenizer, &e.err));
    json_array_foreach (json_object_get(cases, "encode"), i, c) {
        const json_t *text = json_object_get(c, "text");
        const char   *s = json_string_value(text);
        got.n = 0;
        OK(e, tsr_tokenize(t, s, json_string_length(text), 0, &got, &e.err));
        list(json_object_get(c, "ids"), &want);
        same_ids(tokenizer, s, &got, &want);
        decode_case(t, &want, false, json_object_get(c, "decoded"));
        got.n = 0;
        OK(e, tsr_tokenize(t, s, json_string_length(text), TSR_TOKENIZER_SPECIAL, &got, &e.err));
        list(json_object_get(c, "ids_with_special"), &want);
        same_ids(tokenizer, s, &got, &want);
        decode_case(t, &want, true, json_object_get(c, "decoded_skip_special"));
        n++;
    }
    json_array_foreach (json_object_get(cases, "decode_random_ids"), i, c) {
        list(json_object_get(c, "ids"), &want);
        decode_case(t, &want, json_is_true(json_object_get(c, "skip_special")),
                    json_object_get(c, "decoded"));
        n++;
    }
    json_decref(cases);
    tsr_tokenizer_destroy(t);
    tsr_tokenizer_ids_free(&want);
    tsr_tokenizer_ids_free(&got);
    return n;
}

static unsigned run_folder(const char *folder)
{
    char    *path = tsr_path_join(folder, "cases.json");
    unsigned n = run_cases(folder, path);
    free(path);
    return n;
}

static void test_gguf(void **state)
{
    static const char *const files[][2] = {
        { "gpt2", "tokenizers/gpt2/cases.json" },   { "llama3", "tokenizers/llama3/cases.json" },
        { "qwen2", "tokenizers/qwen2/cases.json" }, { "bloom", "tokenizers/bloom/cases.json" },
        { "spm-unigram", "gguf/spm-unigram.json" }, { "spm-prefix", "gguf/spm-prefix.json" },
        { "spm-plain", "gguf/spm-plain.json" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char tokenizer[512], path[512];
        (void)snprintf(tokenizer, sizeof tokenizer, TEST_GOLDEN "/gguf/%s.gguf", files[i][0]);
        (void)snprintf(path, sizeof path, TEST_GOLDEN "/%s", files[i][1]);
        assert_true(run_cases(tokenizer, path) >= 80);
    }
}

static void test_all(void **state)
{
    (void)state;
    DIR           *d = opendir(TEST_GOLDEN "/tokenizers");
    struct dirent *f;
    unsigned       folders = 0, cases = 0;
    assert_non_null(d);
    while ((f = readdir(d)) != NULL) {
        if (f->d_name[0] == '.')
            continue;
        char *path = tsr_path_join(TEST_GOLDEN "/tokenizers", f->d_name);
        if (tsr_path_is_dir(path)) {
            cases += run_folder(path);
            folders++;
        }
        free(path);
    }
    (void)closedir(d);
    assert_true(folders >= 11);
    assert_true(cases >= 11 * 100);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static void copy(const char *from, const char *to)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_writer w;
    char             *text;
    uint64_t          len;
    OK(e, tsr_file_slurp(from, 1 << 24, &text, &len, &e.err));
    OK(e, tsr_writer_open(&w, to, &e.err));
    tsr_writer_put(&w, text, len);
    OK(e, tsr_writer_commit(&w, &e.err));
    free(text);
}

/* A model with this tokenizer, written as GGUF and read again, tells the same ids.  Its config.json
 * names no first token: that is the tokenizer's to say. */
static void written_as_gguf(void **state)
{
    static const char *const names[] = { "gpt2",     "llama3",    "qwen2",  "opt",
                                         "deepseek", "deepseek3", "qwen3_5" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_tokenizer *t = NULL;
        struct tsr_model     *m = NULL;
        char                  folder[] = "/tmp/tessera-tokens-XXXXXX", path[400], cases[400];
        assert_non_null(mkdtemp(folder));
        (void)snprintf(path, sizeof path, TEST_GOLDEN "/tokenizers/%s", names[i]);
        OK(e, tsr_checkpoint_tokenizer_load(&t, path, &e.err));
        struct tsr_checkpoint_random_shape shape = { .vocab = tsr_tokenizer_size(t),
                                                     .hidden = 16,
                                                     .layers = 1,
                                                     .ffn = 16,
                                                     .heads = 1,
                                                     .kv_heads = 1,
                                                     .max_positions = 64,
                                                     .dtype = TSR_F16,
                                                     .tied = true,
                                                     .seed = 1 };
        tsr_tokenizer_destroy(t);
        OK(e, tsr_checkpoint_random_model_write(folder, &shape, NULL, &e.err));
        (void)snprintf(path, sizeof path, TEST_GOLDEN "/tokenizers/%s/tokenizer.json", names[i]);
        (void)snprintf(cases, sizeof cases, "%s/tokenizer.json", folder);
        copy(path, cases);
        OK(e, tsr_model_load_streamed(&m, folder, &e.err));
        (void)snprintf(path, sizeof path, "%s/model.gguf", folder);
        struct tsr_export_options o = { .format = TSR_EXPORT_GGUF };
        struct tsr_export_report  r;
        OK(e, tsr_export(m, NULL, path, &o, &r, &e.err));
        tsr_model_destroy(m);
        (void)snprintf(cases, sizeof cases, TEST_GOLDEN "/tokenizers/%s/cases.json", names[i]);
        assert_true(run_cases(path, cases) >= 80);
        assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all), cmocka_unit_test(test_gguf),
                                        cmocka_unit_test(written_as_gguf) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
