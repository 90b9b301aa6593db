/* Texts of tokens in the metadata of a GGUF file, and texts of tokenizer.json. */
#include "checkpoint/export/gguf_tokens.h"

#include <string.h>

tsr_status tsr_export_gguf_refuse(const struct tsr_export_gguf_tokens *t, const char *why)
{
    return tsr_fail(t->x->err, TSR_E_INPUT,
                    "%s: the tokenizer of %s is not written as gguf: %s; use llama.cpp's own "
                    "converter, or export from a copy without tokenizer.json, which runs on token "
                    "ids",
                    t->x->path, t->x->m->path, why);
}

const char *tsr_export_gguf_text(const json_t *s)
{
    const char *word = tsr_json_word(s);
    return word ? word : "";
}

const char *tsr_export_gguf_word(const json_t *o, const char *key)
{
    return tsr_export_gguf_text(json_object_get(o, key));
}

/* Spaces in place of the character that stands for them. */
static void add_with_spaces(struct tsr_export_gguf_bytes *b, const char *s)
{
    const uint64_t wide = strlen(TSR_EXPORT_GGUF_SPACE);
    uint64_t       n = 0;
    for (const char *p = s; *p; n++)
        p += strncmp(p, TSR_EXPORT_GGUF_SPACE, wide) == 0 ? wide : 1;
    tsr_export_gguf_add_u64(b, n);
    while (*s) {
        bool space = strncmp(s, TSR_EXPORT_GGUF_SPACE, wide) == 0;
        tsr_export_gguf_add(b, space ? " " : s, 1);
        s += space ? wide : 1;
    }
}

void tsr_export_gguf_put_texts(const struct tsr_export_gguf_tokens *t, const bool *spaces)
{
    tsr_export_gguf_key_array(t->b, "tokenizer.ggml.tokens", TSR_GGUF_OUT_STRING, t->vocab);
    for (uint64_t k = 0; k < t->vocab; k++) {
        char pad[32];
        (void)snprintf(pad, sizeof pad, "[PAD%llu]", (unsigned long long)k);
        const char *s = t->text[k] ? t->text[k] : pad;
        if (spaces && spaces[k])
            add_with_spaces(t->b, s);
        else
            tsr_export_gguf_add_text(t->b, s, strlen(s));
    }
}
