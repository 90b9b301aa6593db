/* Chat templates against the texts that jinja2 renders from them (tests/golden/chat), which template is used, and
 * special strings inside of messages. */
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/tokenizer.h"

#include "../fixtures/error_is.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct tsr_checkpoint_chat plain = { 0 };

static void detokenized(const struct tsr_tokenizer *t, const struct tsr_tokenizer_ids *ids,
                        struct tsr_tokenizer_text *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_detokenize(t, ids->v, ids->n, false, text, &e.err), TSR_OK);
}

/* The ids of the conversation as text again. */
static void render_one(const char *key, const json_t *c, const struct tsr_chat *chat,
                       const struct tsr_tokenizer *tokenizer)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_text text = { 0 };
    const char               *want = json_string_value(json_object_get(c, "text"));
    struct tsr_tokenizer_ids  ids = { 0 };
    tsr_status st = tsr_tokenizer_chat_render(chat, json_object_get(c, "messages"), NULL, NULL,
                                              false, &ids, &e.err);
    if (st == TSR_OK)
        detokenized(tokenizer, &ids, &text);
    tsr_tokenizer_ids_free(&ids);
    if (!want || !*want) /* refused too: a conversation that renders to nothing */
        assert_int_equal(st, TSR_E_INPUT);
    else if (st != TSR_OK)
        fail_msg("%s: %s", key, e.text);
    else
        assert_string_equal(text.v ? text.v : "", want);
    tsr_tokenizer_text_free(&text);
}

static void load(struct tsr_tokenizer **t, json_t **golden)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_checkpoint_tokenizer_load(t, TSR_SOURCE_ROOT "/configs/demo", &e.err),
                     TSR_OK);
    if (golden)
        assert_int_equal(tsr_json_load(golden, TSR_SOURCE_ROOT "/tests/golden/chat/chat.json",
                                       1 << 20, 16, &e.err),
                         TSR_OK);
}

static void as_jinja2_does(void **state)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    json_t               *golden, *t, *c;
    size_t                i, k;
    uint64_t              rendered = 0;
    struct tsr_tokenizer *tokenizer;
    json_t               *config =
        json_pack("{s:s, s:{s:s}}", "bos_token", "<s>", "eos_token", "content", "</s>");
    (void)state;
    load(&tokenizer, &golden);
    json_array_foreach (json_object_get(golden, "templates"), i, t) {
        const char                      *key = json_string_value(json_object_get(t, "key"));
        const json_t                    *text = json_object_get(t, "template");
        struct tsr_chat                 *chat;
        struct tsr_tokenizer_chat_source from = { .config = config,
                                                  .where = key,
                                                  .text = json_string_value(text),
                                                  .bytes = json_string_length(text) };
        if (tsr_tokenizer_chat_create(&chat, &from, tokenizer, &e.err) != TSR_OK)
            fail_msg("%s: %s", key, e.text);
        json_array_foreach (json_object_get(t, "cases"), k, c) {
            render_one(key, c, chat, tokenizer);
            rendered++;
        }
        tsr_tokenizer_chat_destroy(chat);
    }
    assert_int_equal(rendered, 104);
    tsr_tokenizer_destroy(tokenizer);
    json_decref(golden);
    json_decref(config);
}

/* ---- several templates, tools, dates ------------------------------------------ */

static void renders(const struct tsr_tokenizer_chat_source *from, const struct tsr_tokenizer *t,
                    const char *tools, const char *want)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_chat          *chat;
    struct tsr_tokenizer_ids  ids = { 0 };
    struct tsr_tokenizer_text text = { 0 };
    json_t                   *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a"),
           *more = json_pack("{s:b}", "thinking", 1), *list = NULL;
    if (tools)
        assert_int_equal(tsr_json_parse(&list, "tools", tools, strlen(tools), 8, &e.err), TSR_OK);
    if (tsr_tokenizer_chat_create(&chat, from, t, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (tsr_tokenizer_chat_render(chat, messages, list, more, false, &ids, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    detokenized(t, &ids, &text);
    assert_string_equal(text.v, want);
    tsr_tokenizer_text_free(&text);
    tsr_tokenizer_ids_free(&ids);
    tsr_tokenizer_chat_destroy(chat);
    json_decref(messages);
    json_decref(more);
    json_decref(list);
}

static void chooses_a_template(void **state)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t;
    struct tsr_chat      *chat;
    json_t *list = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "name", "default", "template",
                             "one {{ tools is none }} {{ documents }} {{ thinking }} "
                             "{{ add_generation_prompt }} {{ bos_token is defined }}",
                             "name", "tool_use", "template", "two {{ tools | length }}", "name",
                             "rag", "template", "three {{ strftime_now('%d %B %Y') }}");
    struct tsr_tokenizer_chat_source from = { .templates = list };
    (void)state;
    load(&t, NULL);
    renders(&from, t, NULL, "one True None True True False");
    renders(&from, t, "[{}, {}]", "two 2");
    from.name = "rag";
    assert_true(tsr_tokenizer_chat_date("2031-05-04", &from.date));
    renders(&from, t, "[{}]", "three 04 May 2031");
    from.name = "default";
    renders(&from, t, "[{}]", "one False None True True False");
    from.name = "other";
    assert_int_equal(tsr_tokenizer_chat_create(&chat, &from, t, &e.err), TSR_E_INPUT);
    assert_null(chat);
    assert_true(error_is(&e.err, "other", "default tool_use rag"));
    tsr_tokenizer_destroy(t);
    json_decref(list);
}

static void says_the_line(void **state)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_tokenizer            *t;
    struct tsr_tokenizer_ids         ids = { 0 };
    struct tsr_chat                 *chat;
    json_t                          *messages = json_pack("[{s:s}]", "role", "user");
    struct tsr_tokenizer_chat_source from = { .text = "{{ 1 }}\n{% nothing %}",
                                              .where = "f.jinja",
                                              .bytes = 21 };
    (void)state;
    load(&t, NULL);
    assert_int_equal(tsr_tokenizer_chat_create(&chat, &from, t, &e.err), TSR_E_INPUT);
    assert_null(chat);
    assert_true(error_is(&e.err, "f.jinja:2:4", "nothing"));
    from.text = "\n{{ raise_exception('no') }}";
    from.bytes = strlen(from.text);
    assert_int_equal(tsr_tokenizer_chat_create(&chat, &from, t, &e.err), TSR_OK);
    assert_int_equal(tsr_tokenizer_chat_render(chat, messages, NULL, NULL, false, &ids, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "f.jinja:2:4", "no"));
    assert_int_equal(ids.n, 0);
    tsr_tokenizer_chat_destroy(chat);
    tsr_tokenizer_destroy(t);
    json_decref(messages);
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

/* Each of the templates out of a file: what jinja2 renders, with the file's own tokens for the beginning and the end. */
static void of_a_gguf_file(void **state)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_chat      *chat;
    struct tsr_tokenizer *tokenizer;
    char                  path[] = "/tmp/test_chat.XXXXXX";
    json_t               *golden, *t, *c;
    size_t                i, k;
    int                   fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0 && close(fd) == 0);
    load(&tokenizer, &golden);
    json_array_foreach (json_object_get(golden, "templates"), i, t) {
        const char *key = json_string_value(json_object_get(t, "key"));
        make_gguf(path, json_string_value(json_object_get(t, "template")), 0, 2);
        if (tsr_checkpoint_chat_load(&chat, path, &plain, tokenizer, &e.err) != TSR_OK)
            fail_msg("%s: %s", key, e.text);
        json_array_foreach (json_object_get(t, "cases"), k, c)
            render_one(key, c, chat, tokenizer);
        tsr_tokenizer_chat_destroy(chat);
    }
    tsr_tokenizer_destroy(tokenizer);
    json_decref(golden);
    make_gguf(path, "{{ x", 0, 2);
    assert_int_equal(tsr_checkpoint_chat_load(&chat, path, &plain, NULL, &e.err), TSR_E_INPUT);
    assert_null(chat);
    assert_true(error_is(&e.err, "chat_template:1:5", "end"));
    make_gguf(path, NULL, 0, 2);
    assert_int_equal(tsr_checkpoint_chat_load(&chat, path, &plain, NULL, &e.err), TSR_E_INPUT);
    assert_null(chat);
    assert_true(error_is(&e.err, "", NULL));
    /* a file that is cut anywhere is refused, and nothing is read behind its end */
    make_gguf(path, "{{ x }}", 0, 2);
    for (off_t n = 0; n < 120; n += 7) {
        assert_int_equal(truncate(path, 120 - n), 0);
        assert_int_equal(tsr_checkpoint_chat_load(&chat, path, &plain, NULL, &e.err), TSR_E_INPUT);
        assert_null(chat);
    }
    assert_int_equal(unlink(path), 0);
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
        cmocka_unit_test(chooses_a_template),
        cmocka_unit_test(says_the_line),
        cmocka_unit_test(messages_hold_no_special_tokens),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
