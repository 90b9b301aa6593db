/* The chat templates and special tokens in the metadata of a GGUF file, as a tokenizer_config.json. */
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/vocab.h"

#include <stdlib.h>
#include <string.h>

/* The text of the token whose id a key has, if both are there. */
static tsr_status put_token(struct tsr_gguf_make *k, const char *key, const char *as)
{
    const struct tsr_gguf_key *list = NULL;
    const char                *s = NULL;
    uint64_t                   at = 0, len = 0;
    int64_t                    id = -1;
    TSR_TRY(tsr_gguf_int(k->g, key, false, 0, UINT32_MAX, &id, k->err));
    TSR_TRY(tsr_gguf_array(k->g, "tokenizer.ggml.tokens", false, TSR_GGUF_STRING, &list, k->err));
    if (id < 0 || !list || (uint64_t)id >= list->n)
        return TSR_OK;
    for (int64_t i = 0; i <= id; i++)
        tsr_gguf_next(k->g, list, &at, &s, &len);
    json_t *v = json_stringn(s, len);
    return v || len == 0 ? tsr_gguf_put(k, k->j, as, v)
                         : tsr_fail(k->err, TSR_E_INPUT,
                                    "%s: token %lld of \"tokenizer.ggml.tokens\" is not UTF-8",
                                    k->g->path, (long long)id);
}

/* A named template: tokenizer.chat_template.NAME. */
static tsr_status put_named(struct tsr_gguf_make *k, json_t *list, const char *name,
                            const char *text)
{
    json_t *one = json_pack("{s:s, s:s}", "name", name, "template", text);
    return one && json_array_append_new(list, one) == 0
               ? TSR_OK
               : tsr_fail_nomem(k->err, strlen(text), "a chat template");
}

static tsr_status put_list(struct tsr_gguf_make *k, json_t *list, const char *first)
{
    static const char prefix[] = TSR_GGUF_CHAT ".";
    if (first)
        TSR_TRY(put_named(k, list, "default", first));
    for (uint64_t i = 0; i < k->g->n_keys; i++) {
        const char *name = k->g->keys[i].name;
        char       *text = NULL;
        if (strncmp(name, prefix, sizeof prefix - 1) != 0)
            continue;
        TSR_TRY(tsr_gguf_str(k->g, name, true, &text, k->err));
        tsr_status st = put_named(k, list, name + sizeof prefix - 1, text);
        free(text);
        TSR_TRY(st);
    }
    return TSR_OK;
}

/* One text if only the default exists, else a list of {"name", "template"}. */
static tsr_status put_templates(struct tsr_gguf_make *k)
{
    char   *first = NULL;
    json_t *list = json_array();
    if (!list)
        return tsr_fail_nomem(k->err, 64, "chat templates");
    tsr_status st = tsr_gguf_str(k->g, TSR_GGUF_CHAT, false, &first, k->err);
    if (st == TSR_OK)
        st = put_list(k, list, first);
    if (st == TSR_OK && json_array_size(list) == 1 && first)
        st = tsr_gguf_put(k, k->j, "chat_template", json_string(first));
    else if (st == TSR_OK && json_array_size(list) > 0)
        st = tsr_gguf_put(k, k->j, "chat_template", json_incref(list));
    json_decref(list);
    free(first);
    return st;
}

tsr_status tsr_gguf_tokenizer_config(const struct tsr_gguf *g, char **text, uint64_t *len,
                                     struct tsr_err *err)
{
    static const char *const tokens[][2] = {
        { "tokenizer.ggml.bos_token_id", "bos_token" },
        { "tokenizer.ggml.eos_token_id", "eos_token" },
        { "tokenizer.ggml.unknown_token_id", "unk_token" },
        { "tokenizer.ggml.padding_token_id", "pad_token" },
    };
    struct tsr_gguf_make k = { .g = g, .j = json_object(), .err = err };
    tsr_status           st = k.j ? TSR_OK : tsr_fail_nomem(err, 64, "a tokenizer");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && st == TSR_OK; i++)
        st = put_token(&k, tokens[i][0], tokens[i][1]);
    if (st == TSR_OK)
        st = put_templates(&k);
    bool any = k.j && json_object_size(k.j) > 0;
    /* tokenizer.json has the text around a message, and this class leaves it unchanged */
    if (st == TSR_OK && any)
        st = tsr_gguf_put(&k, k.j, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    if (st == TSR_OK && any)
        st = tsr_json_text(k.j, JSON_INDENT(2), text, len, err);
    json_decref(k.j);
    return st;
}
