/* Chat templates against the texts that jinja2 renders from them (tests/golden/chat), and special
 * strings inside of messages.  Of templates with a licence of their own the golden has the hash and
 * what was rendered from the original. */
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/tokenizer.h"
#include "tokenizer/chat_forms.h"

#include "../fixtures/error_is.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 8

static uint64_t messages_of(const json_t *list, struct tsr_tokenizer_chat_message m[MOST])
{
    const json_t *one;
    size_t        i;
    assert_true(json_array_size(list) <= MOST);
    json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
        m[i].role = json_string_value(json_object_get(one, "role"));
        m[i].text = json_string_value(json_object_get(one, "content"));
        m[i].bytes = json_string_length(json_object_get(one, "content"));
    }
    return json_array_size(list);
}

/* The ids of the conversation as text again. */
static void render_one(const json_t *t, const json_t *c, const struct tsr_chat *chat,
                       const struct tsr_tokenizer *tokenizer)
{
    struct tsr_errbuf                 e = TSR_ERRBUF(e);
    struct tsr_tokenizer_chat_message m[MOST];
    struct tsr_tokenizer_text         text = { 0 };
    const char                       *want = json_string_value(json_object_get(c, "text"));
    uint64_t                          n = messages_of(json_object_get(c, "messages"), m);
    struct tsr_tokenizer_ids          ids = { 0 };
    tsr_status st = tsr_tokenizer_chat_render(chat, m, n, false, &ids, &e.err);
    if (st == TSR_OK)
        assert_int_equal(tsr_detokenize(tokenizer, ids.v, ids.n, false, &text, &e.err), TSR_OK);
    tsr_tokenizer_ids_free(&ids);
    /* refused too: a conversation that renders to nothing, and a late system message, which the
     * template of Llama 2 would leave out without a word and Gemma's give a role of its own */
    const char *key = json_string_value(json_object_get(t, "key"));
    bool        late = (strcmp(key, "llama2") == 0 || strcmp(key, "gemma") == 0) && n == 3 &&
                strcmp(m[1].role, "system") == 0;
    /* nor is a system message dropped that has no user's to stand in front of */
    bool lost = strncmp(key, "mistral-", 8) == 0 && n == 1 && strcmp(m[0].role, "system") == 0;
    if (!want || !*want || late || lost)
        assert_int_equal(st, TSR_E_INPUT);
    else if (st != TSR_OK)
        fail_msg("%s: %s", json_string_value(json_object_get(t, "key")), e.text);
    else
        assert_string_equal(text.v ? text.v : "", want);
    tsr_tokenizer_text_free(&text);
}

static void as_jinja2_does(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *golden, *t, *c;
    size_t            i, k;
    uint64_t          rendered = 0;

    const struct tsr_tokenizer_chat_form *known;
    struct tsr_tokenizer                 *tokenizer;
    (void)state;
    assert_int_equal(tsr_checkpoint_tokenizer_load(&tokenizer, TSR_SOURCE_ROOT "/configs/demo",
                                                   &e.err),
                     TSR_OK);
    assert_int_equal(tsr_json_load(&golden, TSR_SOURCE_ROOT "/tests/golden/chat/chat.json", 1 << 20,
                                   16, &e.err),
                     TSR_OK);
    json_array_foreach (json_object_get(golden, "templates"), i, t) {
        const json_t    *text = json_object_get(t, "template");
        const char      *hash = json_string_value(json_object_get(t, "hash"));
        struct tsr_chat *chat;
        if (hash) {
            if (tsr_tokenizer_chat_create_hash(&chat, hash, "<s>", "</s>", tokenizer, &e.err) !=
                TSR_OK)
                fail_msg("%s: %s", json_string_value(json_object_get(t, "key")), e.text);
        } else if (tsr_tokenizer_chat_create(&chat, json_string_value(text),
                                             json_string_length(text), "<s>", "</s>", tokenizer,
                                             &e.err) != TSR_OK)
            fail_msg("%s: %s", json_string_value(json_object_get(t, "key")), e.text);
        assert_string_equal(tsr_tokenizer_chat_name(chat),
                            json_string_value(json_object_get(t, "name")));
        json_array_foreach (json_object_get(t, "cases"), k, c) {
            render_one(t, c, chat, tokenizer);
            rendered++;
        }
        tsr_tokenizer_chat_destroy(chat);
    }
    assert_true(rendered >= 8 * json_array_size(json_object_get(golden, "templates")));
    /* every built-in one was looked at */
    for (uint64_t at = 0; (known = tsr_tokenizer_chat_form_get(at)); at++) {
        bool there = false;
        json_array_foreach (json_object_get(golden, "templates"), i, t)
            there =
                there || strcmp(json_string_value(json_object_get(t, "name")), known->name) == 0;
        assert_true(there);
    }
    tsr_tokenizer_destroy(tokenizer);
    json_decref(golden);
}

/* ---- the template that a GGUF file holds -------------------------------------- */

static void put(FILE *f, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_int_not_equal(fputc((int)(v >> 8 * i & 255), f), EOF);
}

static void put_text(FILE *f, const char *s)
{
    put(f, strlen(s), 8);
    assert_int_equal(fwrite(s, 1, strlen(s), f), strlen(s));
}

static void put_key(FILE *f, const char *name, uint32_t type)
{
    put_text(f, name);
    put(f, type, 4);
}

/* A file of keys alone: tokens "<s>", "a", "</s>"; without a template where it is NULL. */
static void make_gguf(const char *path, const char *template, uint32_t bos, uint32_t eos)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    put(f, 0x46554747, 4);
    put(f, 3, 4);
    put(f, 0, 8);
    put(f, template ? 5 : 4, 8);
    put_key(f, "general.architecture", TSR_GGUF_STRING);
    put_text(f, "llama");
    put_key(f, "tokenizer.ggml.tokens", TSR_GGUF_ARRAY);
    put(f, TSR_GGUF_STRING, 4);
    put(f, 3, 8);
    put_text(f, "<s>");
    put_text(f, "a");
    put_text(f, "</s>");
    put_key(f, "tokenizer.ggml.bos_token_id", TSR_GGUF_U32);
    put(f, bos, 4);
    put_key(f, "tokenizer.ggml.eos_token_id", TSR_GGUF_U32);
    put(f, eos, 4);
    if (template) {
        put_key(f, "tokenizer.chat_template", TSR_GGUF_STRING);
        put_text(f, template);
    }
    assert_int_equal(fclose(f), 0);
}

/* Each of the templates whose text may be copied, out of a file: what jinja2 renders, with the file's own
 * tokens for the beginning and the end. */
static void of_a_gguf_file(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_chat  *chat;

    struct tsr_tokenizer *tokenizer;
    char                  path[] = "/tmp/test_chat.XXXXXX";
    json_t               *golden, *t, *c;
    size_t                i, k;
    uint64_t              files = 0;
    int                   fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0 && close(fd) == 0);
    assert_int_equal(tsr_checkpoint_tokenizer_load(&tokenizer, TSR_SOURCE_ROOT "/configs/demo",
                                                   &e.err),
                     TSR_OK);
    assert_int_equal(tsr_json_load(&golden, TSR_SOURCE_ROOT "/tests/golden/chat/chat.json", 1 << 20,
                                   16, &e.err),
                     TSR_OK);
    json_array_foreach (json_object_get(golden, "templates"), i, t) {
        const char *text = json_string_value(json_object_get(t, "template"));
        if (!text)
            continue;
        make_gguf(path, text, 0, 2);
        if (tsr_checkpoint_chat_load(&chat, path, tokenizer, &e.err) != TSR_OK)
            fail_msg("%s: %s", json_string_value(json_object_get(t, "key")), e.text);
        assert_string_equal(tsr_tokenizer_chat_name(chat),
                            json_string_value(json_object_get(t, "name")));
        json_array_foreach (json_object_get(t, "cases"), k, c)
            render_one(t, c, chat, tokenizer);
        tsr_tokenizer_chat_destroy(chat);
        files++;
    }
    assert_true(files >= 5);
    tsr_tokenizer_destroy(tokenizer);
    json_decref(golden);
    make_gguf(path, "{{ x }}", 0, 2);
    assert_int_equal(tsr_checkpoint_chat_load(&chat, path, NULL, &e.err), TSR_E_UNSUPPORTED);
    assert_null(chat);
    assert_true(error_is(&e.err, "", "xxh3"));
    make_gguf(path, NULL, 0, 2);
    assert_int_equal(tsr_checkpoint_chat_load(&chat, path, NULL, &e.err), TSR_E_INPUT);
    assert_null(chat);
    assert_true(error_is(&e.err, "", NULL));
    /* a file that is cut anywhere is refused, and nothing is read behind its end */
    make_gguf(path, "{{ x }}", 0, 2);
    for (off_t n = 0; n < 120; n += 7) {
        assert_int_equal(truncate(path, 120 - n), 0);
        assert_int_equal(tsr_checkpoint_chat_load(&chat, path, NULL, &e.err), TSR_E_INPUT);
        assert_null(chat);
    }
    assert_int_equal(unlink(path), 0);
}

static void unknown_is_refused(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_chat  *chat;
    (void)state;
    assert_int_equal(tsr_tokenizer_chat_create(&chat, "{{ x }}", 7, NULL, NULL, NULL, &e.err),
                     TSR_E_UNSUPPORTED);
    assert_null(chat);
    assert_true(error_is(&e.err, "", "xxh3"));
    assert_true(error_is(&e.err, "", "llama3"));
}

/* The one token that a text is. */
static uint32_t id_of(const struct tsr_tokenizer *t, const char *text)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    assert_int_equal(tsr_tokenize_around(t, text, strlen(text), NULL, 0, &ids, &e.err), TSR_OK);
    assert_int_equal(ids.n, 1);
    uint32_t id = ids.v[0];
    tsr_tokenizer_ids_free(&ids);
    return id;
}

/* The demo tokenizer has <|begin_of_text|>: a message that spells it must not get its id. */
static void messages_hold_no_special_tokens(void **state)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t;
    static const char     text[] = "<|begin_of_text|>one <|begin_of_text|> two<|end_of_text|>";
    struct tsr_tokenizer_text_span spans[] = { { 17, 42 } };
    struct tsr_tokenizer_ids       with = { 0 }, without = { 0 };
    uint32_t                       bos, eos;
    (void)state;
    assert_int_equal(tsr_checkpoint_tokenizer_load(&t, TSR_SOURCE_ROOT "/configs/demo", &e.err),
                     TSR_OK);
    bos = id_of(t, "<|begin_of_text|>");
    eos = id_of(t, "<|end_of_text|>");
    assert_int_equal(tsr_tokenize_around(t, text, sizeof text - 1, NULL, 0, &with, &e.err), TSR_OK);
    assert_int_equal(tsr_tokenize_around(t, text, sizeof text - 1, spans, 1, &without, &e.err),
                     TSR_OK);
    uint64_t n_with = 0, n_without = 0;
    for (uint64_t i = 0; i < with.n; i++)
        n_with += with.v[i] == bos;
    for (uint64_t i = 0; i < without.n; i++)
        n_without += without.v[i] == bos;
    assert_int_equal(n_with, 2);
    assert_int_equal(n_without, 1);
    assert_int_equal(without.v[0], bos);
    assert_int_equal(without.v[without.n - 1], eos);
    struct tsr_tokenizer_text back = { 0 };
    assert_int_equal(tsr_detokenize(t, without.v, without.n, false, &back, &e.err), TSR_OK);
    assert_string_equal(back.v, text);
    tsr_tokenizer_text_free(&back);
    tsr_tokenizer_ids_free(&with);
    tsr_tokenizer_ids_free(&without);
    tsr_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_jinja2_does),
        cmocka_unit_test(of_a_gguf_file),
        cmocka_unit_test(unknown_is_refused),
        cmocka_unit_test(messages_hold_no_special_tokens),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
