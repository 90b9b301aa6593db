#include "tokenizer/chat_texts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MOST (1u << 20) /* bytes of a template; of a JSON file that holds one 16 times that */

struct reading {
    tsr_tokenizer_chat_reader *read;
    void                      *ctx;
    json_t                    *list;
    struct tsr_err            *err;
};

const json_t *tsr_tokenizer_chat_texts_find(const json_t *list, const char *name)
{
    const json_t *one;
    size_t        i;
    json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
        const char *s = tsr_json_word(json_object_get(one, "name"));
        if (s && strcmp(s, name) == 0)
            return one;
    }
    return NULL;
}

tsr_status tsr_tokenizer_chat_texts_check(const json_t *one, struct tsr_err *err)
{
    const char *wrong = tsr_json_word(json_object_get(one, "error"));
    if (!wrong)
        return TSR_OK;
    (void)tsr_fail(err, TSR_E_INPUT, "%s", wrong);
    err->object_at = 0;
    err->object_bytes = (uint32_t)json_integer_value(json_object_get(one, "object"));
    return TSR_E_INPUT;
}

/* Takes the reference. */
static tsr_status append(struct reading *r, json_t *one)
{
    return one && json_array_append_new(r->list, one) == 0
               ? TSR_OK
               : tsr_fail_nomem(r->err, MOST, "a chat template");
}

/* The first text of a name stays; text is borrowed. */
static tsr_status put(struct reading *r, const char *name, json_t *text)
{
    if (!json_is_string(text) || tsr_tokenizer_chat_texts_find(r->list, name))
        return TSR_OK;
    return append(r, json_pack("{s:s, s:O}", "name", name, "template", text));
}

/* "chat_template": a text, or a list of {"name", "template"}. */
static tsr_status put_member(struct reading *r, const json_t *config)
{
    json_t *v = json_object_get(config, "chat_template"), *one;
    size_t  i;
    if (!json_is_array(v))
        return put(r, "default", v);
    json_array_foreach (v, i, one) {
        const char *name = tsr_json_word(json_object_get(one, "name"));
        if (name && *name)
            TSR_TRY(put(r, name, json_object_get(one, "template")));
    }
    return TSR_OK;
}

static tsr_status put_jinja(struct reading *r, const char *file, const char *name,
                            struct tsr_err *err)
{
    char    *text = NULL, *where = NULL;
    uint64_t len = 0;
    TSR_TRY(r->read(r->ctx, file, MOST, &text, &len, &where, err));
    json_t    *s = text ? json_stringn(text, len) : NULL;
    tsr_status st = TSR_OK;
    if (text && !s)
        st = tsr_fail(err, TSR_E_INPUT, "%s: is not UTF-8 text", where ? where : file);
    if (st == TSR_OK && text)
        st = put(r, name, s);
    json_decref(s);
    free(where);
    free(text);
    return st;
}

/* A file that is no template fails the chats that choose it, not the others. */
static tsr_status put_further(struct reading *r, const char *file, const char *name)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = put_jinja(r, file, name, &e.err);
    const char       *object;
    if (st == TSR_OK)
        return st;
    if (st != TSR_E_INPUT)
        return tsr_err_copy(r->err, st, &e.err);
    if (tsr_tokenizer_chat_texts_find(r->list, name))
        return TSR_OK;
    uint32_t n = tsr_err_object(&e.err, &object);
    return append(r, json_pack("{s:s, s:s, s:I}", "name", name, "error", e.text, "object",
                               (json_int_t)(object == e.text ? n : 0)));
}

/* FOLDER/NAME.jinja is the template NAME. */
static tsr_status put_named(struct reading *r, const char *file)
{
    const char *slash = strrchr(file, '/'), *own = slash ? slash + 1 : file;
    char       *name = tsr_strdup(own);
    if (!name)
        return tsr_fail_nomem(r->err, strlen(own), own);
    char *dot = strrchr(name, '.');
    if (dot)
        *dot = '\0';
    tsr_status st = put_further(r, file, name);
    free(name);
    return st;
}

static tsr_status put_file(struct reading *r, const char *name, json_t **out)
{
    char    *text = NULL, *where = NULL;
    uint64_t len = 0;
    TSR_TRY(r->read(r->ctx, name, UINT64_C(16) * MOST, &text, &len, &where, r->err));
    tsr_status st =
        text ? tsr_json_parse(out, where ? where : name, text, len, 32, r->err) : TSR_OK;
    if (st == TSR_OK && *out)
        st = put_member(r, *out);
    free(where);
    free(text);
    return st;
}

tsr_status tsr_tokenizer_chat_texts(json_t **list, json_t **config, const char *const *more,
                                    uint64_t n_more, tsr_tokenizer_chat_reader *read, void *ctx,
                                    struct tsr_err *err)
{
    struct reading r = { read, ctx, json_array(), err };
    json_t        *processor = NULL;
    *list = *config = NULL;
    if (!r.list)
        return tsr_fail_nomem(err, 64, "chat templates");
    tsr_status st = put_jinja(&r, "chat_template.jinja", "default", err);
    for (uint64_t i = 0; i < n_more && st == TSR_OK; i++)
        st = put_named(&r, more[i]);
    if (st == TSR_OK)
        st = put_file(&r, "tokenizer_config.json", config);
    if (st == TSR_OK)
        st = put_file(&r, "chat_template.json", &processor);
    json_decref(processor);
    if (st == TSR_OK) {
        *list = r.list;
        return TSR_OK;
    }
    json_decref(r.list);
    json_decref(*config);
    *config = NULL;
    return st;
}
