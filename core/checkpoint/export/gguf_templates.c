/* The chat templates of a model as metadata of a GGUF file, under the keys that llama.cpp's converter writes. */
#include "checkpoint/export/gguf_out.h"

#include "checkpoint/gguf/gguf.h"
#include "model/text_names.h"
#include "tokenizer/chat_texts.h"

#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 128

static tsr_status read_text(void *ctx, const char *name, uint64_t cap, char **text, uint64_t *len,
                            char **where, struct tsr_err *err)
{
    const struct tsr_export *x = ctx;
    *where = NULL;
    TSR_TRY(tsr_model_text(x->m, name, text, len, err));
    if (*len <= cap)
        return TSR_OK;
    free(*text);
    *text = NULL;
    return tsr_fail(err, TSR_E_INPUT, "%s: its %s has %llu bytes, more than the limit of %llu",
                    x->m->path, name, (unsigned long long)*len, (unsigned long long)cap);
}

/* Replaces everything but ASCII letters and digits by '_'; false if the name is too long. */
static bool key_of(const char *name, char key[NAME_BYTES])
{
    size_t n = strlen(name);
    if (n >= NAME_BYTES)
        return false;
    for (size_t i = 0; i <= n; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        key[i] = plain || c == '\0' ? c : '_';
    }
    return true;
}

/* The key of the i-th template; two templates with one key are an error, because the file would be
 * unreadable. */
static tsr_status name_one(struct tsr_export *x, const json_t *list, size_t i, char key[NAME_BYTES])
{
    const char *name = tsr_json_word(json_object_get(json_array_get(list, i), "name"));
    char        other[NAME_BYTES];
    if (!key_of(name, key))
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: the chat template \"%.60s...\" of %s has a name of more than %d bytes",
                        x->path, name, x->m->path, NAME_BYTES - 1);
    for (size_t k = 0; k < i; k++) {
        const char *before = tsr_json_word(json_object_get(json_array_get(list, k), "name"));
        if (key_of(before, other) && strcmp(key, other) == 0)
            return tsr_fail(x->err, TSR_E_INPUT,
                            "%s: the chat templates \"%s\" and \"%s\" of %s have one name in a "
                            "GGUF file, where "
                            "letters and digits count; rename one",
                            x->path, before, name, x->m->path);
    }
    return TSR_OK;
}

static tsr_status put_one(struct tsr_export *x, struct tsr_export_gguf_bytes *b, const json_t *list,
                          size_t i)
{
    char key[NAME_BYTES], whole[sizeof TSR_GGUF_CHAT + 1 + NAME_BYTES] = TSR_GGUF_CHAT;
    TSR_TRY(name_one(x, list, i, key));
    TSR_TRY(tsr_tokenizer_chat_texts_check(json_array_get(list, i), x->err));
    const json_t *text = json_object_get(json_array_get(list, i), "template");
    if (!tsr_json_word(text))
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: the chat template \"%s\" of %s has a NUL character, which a GGUF file "
                        "cannot hold",
                        x->path, key, x->m->path);
    if (strcmp(key, "default") != 0)
        (void)snprintf(whole, sizeof whole, TSR_GGUF_CHAT ".%s", key);
    tsr_export_gguf_key_text(b, whole, json_string_value(text));
    return TSR_OK;
}

/* The names of those that have one. */
static tsr_status put_names(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                            const json_t *list)
{
    char   key[NAME_BYTES];
    size_t n = json_array_size(list),
           others = n - (tsr_tokenizer_chat_texts_find(list, "default") != NULL);
    if (others == 0)
        return TSR_OK;
    tsr_export_gguf_key_array(b, "tokenizer.chat_templates", TSR_GGUF_OUT_STRING, others);
    for (size_t i = 0; i < n; i++) {
        TSR_TRY(name_one(x, list, i, key));
        if (strcmp(key, "default") != 0)
            tsr_export_gguf_add_text(b, key, strlen(key));
    }
    return TSR_OK;
}

tsr_status tsr_export_gguf_put_templates(struct tsr_export *x, struct tsr_export_gguf_bytes *b)
{
    json_t                    *list, *config;
    struct tsr_model_text_list more = { 0 };
    tsr_status                 st = tsr_model_text_list(x->m, &more, x->err);
    if (st == TSR_OK)
        st = tsr_tokenizer_chat_texts(&list, &config, (const char *const *)more.v, more.n,
                                      read_text, x, x->err);
    tsr_model_text_list_free(&more);
    TSR_TRY(st);
    for (size_t i = 0; i < json_array_size(list) && st == TSR_OK; i++)
        st = put_one(x, b, list, i);
    if (st == TSR_OK)
        st = put_names(x, b, list);
    json_decref(list);
    json_decref(config);
    return st;
}
