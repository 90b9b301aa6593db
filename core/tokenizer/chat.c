#include "tokenizer/chat.h"

#include "tokenizer/chat_texts.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "template/template.h"

#include <stdlib.h>
#include <string.h>

struct tsr_chat {
    struct tsr_template *template, *with_tools; /* with_tools: NULL where it is the same */
    tsr_status                  tools_status;   /* of with_tools; not TSR_OK: tools_wrong says it */
    struct tsr_errbuf           tools_wrong;
    json_t                     *tokens, *about, *text;
    int64_t                     date;
    const struct tsr_tokenizer *tokenizer;
};

bool tsr_tokenizer_chat_date(const char *text, int64_t *seconds)
{
    return tsr_template_date(text, seconds);
}

const json_t *tsr_tokenizer_chat_about(const struct tsr_chat *c)
{
    return c->about;
}

const json_t *tsr_tokenizer_chat_text(const struct tsr_chat *c)
{
    return c->text;
}

void tsr_tokenizer_chat_destroy(struct tsr_chat *c)
{
    if (!c)
        return;
    tsr_template_destroy(c->template);
    tsr_template_destroy(c->with_tools);
    json_decref(c->tokens);
    json_decref(c->text);
    json_decref(c->about);
    free(c);
}

/* ---- finding ------------------------------------------------------------ */

/* The special tokens that templates can name: texts, or {"content": a text}. */
static tsr_status read_tokens(struct tsr_chat *c, const json_t *config, struct tsr_err *err)
{
    static const char *const keys[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token" };
    c->tokens = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(config, keys[i]);
        v = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(v))
            tsr_json_set(&c->tokens, keys[i], json_incref(v));
    }
    return c->tokens ? TSR_OK : tsr_fail_nomem(err, 64, "special tokens");
}

static tsr_status none(const struct tsr_tokenizer_chat_source *source, struct tsr_err *err)
{
    char          names[400] = "";
    size_t        n = 0, i;
    const json_t *one;
    if (!source->name && json_array_size(source->templates) == 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "the model has no chat template; give a file with one as template, or send the "
            "conversation as a completion");
    json_array_foreach ((json_t *)(uintptr_t)source->templates, i, one)
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s\"%s\"", i ? ", " : "",
                                  tsr_json_word(json_object_get(one, "name")));
    return tsr_fail(err, TSR_E_INPUT, "the model has no chat template \"%.60s\"%s; it has %s",
                    source->name ? source->name : "default",
                    source->where ? ", and there is no such file" : "", *names ? names : "none");
}

static tsr_status compile(struct tsr_chat *c, struct tsr_template **t, const char *key,
                          const char *where, const char *text, uint64_t bytes, struct tsr_err *err)
{
    char hash[TSR_HASH_TEXT];
    tsr_hash_bytes(text, bytes, hash);
    tsr_json_set(&c->about, key, json_string(hash));
    if (t == &c->template)
        c->text = json_stringn(text, bytes); /* NULL: it is not UTF-8 */
    return tsr_template_compile(t, where, text, bytes, err);
}

static tsr_status compile_entry(struct tsr_chat *c, struct tsr_template **t, const char *key,
                                const char *where, const json_t *one, struct tsr_err *err)
{
    const json_t *text = json_object_get(one, "template");
    TSR_TRY(tsr_tokenizer_chat_texts_check(one, err));
    return compile(c, t, key, where, json_string_value(text), json_string_length(text), err);
}

/* The template of conversations with tools; one that is wrong fails those alone. */
static tsr_status compile_tools(struct tsr_chat *c, const json_t *one, struct tsr_err *err)
{
    struct tsr_errbuf *e = &c->tools_wrong;
    *e = (struct tsr_errbuf)TSR_ERRBUF(*e);
    c->tools_status =
        compile_entry(c, &c->with_tools, "tool_use", "chat_template.tool_use", one, &e->err);
    if (c->tools_status == TSR_OK)
        return TSR_OK;
    if (c->tools_status != TSR_E_INPUT)
        return tsr_err_copy(err, c->tools_status, &e->err);
    tsr_logf(TSR_LOG_WARN, "%s; conversations with tools fail", e->text);
    tsr_json_set(&c->about, "tool_use", json_string(e->text));
    return TSR_OK;
}

static void warn_of_others(const json_t *list, const json_t *used, const json_t *tools)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const json_t     *one;
    size_t            i;
    json_array_foreach ((json_t *)(uintptr_t)list, i, one)
        if (one != used && one != tools && tsr_tokenizer_chat_texts_check(one, &e.err) != TSR_OK)
            tsr_logf(TSR_LOG_WARN, "%s; this chat template is not used", e.text);
}

static tsr_status compile_all(struct tsr_chat *c, const struct tsr_tokenizer_chat_source *source,
                              struct tsr_err *err)
{
    const json_t *list = source->templates,
                 *one =
                     tsr_tokenizer_chat_texts_find(list, source->name ? source->name : "default"),
                 *tools = source->name ? NULL : tsr_tokenizer_chat_texts_find(list, "tool_use");
    char where[100] = "chat_template";
    if (source->name)
        (void)snprintf(where, sizeof where, "chat_template.%.80s", source->name);
    if (source->text)
        return compile(c, &c->template, "template", source->where, source->text, source->bytes,
                       err);
    if (!one)
        return none(source, err);
    TSR_TRY(compile_entry(c, &c->template, "template", where, one, err));
    warn_of_others(list, one, tools);
    return tools ? compile_tools(c, tools, err) : TSR_OK;
}

tsr_status tsr_tokenizer_chat_create(struct tsr_chat                       **out,
                                     const struct tsr_tokenizer_chat_source *source,
                                     const struct tsr_tokenizer *t, struct tsr_err *err)
{
    struct tsr_chat *c = tsr_new(1, sizeof *c);
    *out = NULL;
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "a chat template");
    c->tokenizer = t;
    c->date = source->date;
    c->about = json_object();
    tsr_status st = read_tokens(c, source->config, err);
    if (st == TSR_OK)
        st = compile_all(c, source, err);
    tsr_json_set(&c->about, "tokens", json_incref(c->tokens));
    tsr_json_set(&c->about, "date", json_integer(c->date));
    if (st == TSR_OK && !c->about)
        st = tsr_fail_nomem(err, 64, "a chat template");
    if (st != TSR_OK)
        tsr_tokenizer_chat_destroy(c);
    else
        *out = c;
    return st;
}

/* ---- rendering ---------------------------------------------------------- */

/* The text of the variables in input; free it, after a failure too. */
static tsr_status write_text(const struct tsr_chat *c, const json_t *input,
                             struct tsr_template_text *text, struct tsr_err *err)
{
    struct tsr_template_values v = { .input = input, .own = c->tokens, .date = c->date };
    const json_t              *tools = json_object_get(input, "tools");
    bool                       with = tools && !json_is_null(tools);
    *text = (struct tsr_template_text){ 0 };
    if (with && c->tools_status != TSR_OK)
        return tsr_err_copy(err, c->tools_status, &c->tools_wrong.err);
    return tsr_template_render(with && c->with_tools ? c->with_tools : c->template, &v, text, err);
}

static json_t *input_of(const json_t *messages, const json_t *tools, const json_t *more)
{
    json_t     *j = json_object(), *v;
    const char *key;
    tsr_json_set(&j, "messages", json_incref((json_t *)(uintptr_t)messages));
    tsr_json_set(&j, "tools", tools ? json_incref((json_t *)(uintptr_t)tools) : json_null());
    tsr_json_set(&j, "documents", json_null());
    tsr_json_set(&j, "add_generation_prompt", json_true());
    json_object_foreach ((json_t *)(uintptr_t)more, key, v)
        tsr_json_set(&j, key, json_incref(v));
    return j;
}

static tsr_status tokenize(const struct tsr_chat *c, const struct tsr_template_text *text,
                           bool allow_special, struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    uint64_t n = allow_special ? 0 : text->n_spans;
    if (text->n == 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "the chat template makes nothing of this conversation; add a message of the "
            "user's");
    struct tsr_tokenizer_text_span *spans = tsr_new(n, sizeof *spans);
    if (!spans)
        return tsr_fail_nomem(err, n * sizeof *spans, "a conversation");
    for (uint64_t i = 0; i < n; i++)
        spans[i] = (struct tsr_tokenizer_text_span){ text->spans[i].begin, text->spans[i].end };
    tsr_status st = tsr_tokenize_around(c->tokenizer, text->s, text->n, spans, n, ids, err);
    free(spans);
    return st;
}

tsr_status tsr_tokenizer_chat_render(const struct tsr_chat *c, const json_t *messages,
                                     const json_t *tools, const json_t *more, bool allow_special,
                                     struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    json_t                  *input = input_of(messages, tools, more);
    struct tsr_template_text text;
    if (!input)
        return tsr_fail_nomem(err, 64, "a conversation");
    tsr_status st = write_text(c, input, &text, err);
    if (st == TSR_OK)
        st = tokenize(c, &text, allow_special, ids, err);
    tsr_template_text_free(&text);
    json_decref(input);
    return st;
}

tsr_status tsr_tokenizer_chat_write(const struct tsr_chat *c, const json_t *input,
                                    struct tsr_tokenizer_text *text, bool *raised,
                                    struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    json_t                  *all = json_pack("{s:n, s:n}", "tools", "documents");
    struct tsr_template_text out;
    *raised = false;
    if (!all || json_object_update(all, (json_t *)(uintptr_t)input) != 0) {
        json_decref(all);
        return tsr_fail_nomem(err, 64, "a conversation");
    }
    tsr_status st = write_text(c, all, &out, err);
    if (st == TSR_OK && out.n)
        st = tokenize(c, &out, false, ids, err);
    *raised = out.raised != NULL;
    tsr_status kept = *raised ? tsr_tokenizer_text_append(text, out.raised, out.n_raised, err)
                      : st == TSR_OK ? tsr_tokenizer_text_append(text, out.s, out.n, err)
                                     : TSR_OK;
    st = kept == TSR_OK ? st : kept;
    tsr_template_text_free(&out);
    json_decref(all);
    return st;
}
