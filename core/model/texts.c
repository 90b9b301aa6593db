#include "model/texts.h"

#include "base/mem.h"
#include "model/folder.h"
#include "model/gguf.h"
#include "model/prepacked.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    "generation_config.json",  "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",         "vocab.json",          "merges.txt",
    "added_tokens.json",       "chat_template.jinja", "chat_template.json",
    "special_tokens_map.json",
};

const char *tsr_text_name(uint64_t i)
{
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

static tsr_status of_gguf(const char *path, const char *name, char **text, uint64_t *len,
                          struct tsr_err *err)
{
    struct tsr_gguf g;
    bool            tokenizer = strcmp(name, "tokenizer.json") == 0;
    if (!tokenizer && strcmp(name, "tokenizer_config.json") != 0)
        return TSR_OK;
    TSR_TRY(tsr_gguf_open(&g, path, err));
    tsr_status st = TSR_OK;
    if (!tokenizer)
        st = tsr_gguf_tokenizer_config(&g, text, len, err);
    else if (tsr_gguf_key(&g, TSR_GGUF_TOKENIZER))
        st = tsr_gguf_tokenizer(&g, text, len, err);
    tsr_gguf_close(&g);
    return st;
}

static tsr_status of_prepacked(const char *path, const char *name, char **text, uint64_t *len,
                               struct tsr_err *err)
{
    struct tsr_prepacked p;
    TSR_TRY(tsr_prepacked_open(&p, path, err));
    tsr_status st = tsr_prepacked_text(&p, name, text, len, err);
    tsr_prepacked_close(&p);
    return st;
}

tsr_status tsr_text_read(const char *path, const char *name, uint64_t cap, char **text,
                         uint64_t *len, char **where, struct tsr_err *err)
{
    char      *file = NULL;
    tsr_status st;
    *text = NULL;
    *len = 0;
    if (where)
        *where = NULL;
    if (tsr_gguf_is(path))
        st = of_gguf(path, name, text, len, err);
    else if (tsr_prepacked_is(path))
        st = of_prepacked(path, name, text, len, err);
    else
        st = tsr_folder_slurp_if(path, name, cap, text, len, &file, err);
    if (st == TSR_OK && *len > cap)
        st = tsr_fail(err, TSR_E_INPUT, "%s: its %s has %llu bytes, more than the limit of %llu",
                      path, name, (unsigned long long)*len, (unsigned long long)cap);
    if (st == TSR_OK && where && *text && !file && !(file = tsr_strdup(path)))
        st = tsr_fail_nomem(err, strlen(path), path);
    if (st == TSR_OK && where) {
        *where = file;
        return TSR_OK;
    }
    free(file);
    if (st != TSR_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

bool tsr_text_there(const char *path, const char *name)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_gguf      g;
    struct tsr_prepacked p;
    bool                 there;
    if (tsr_gguf_is(path)) {
        there = tsr_gguf_open(&g, path, &e.err) != TSR_OK || tsr_gguf_key(&g, TSR_GGUF_TOKENIZER);
        tsr_gguf_close(&g);
        return there;
    }
    if (tsr_prepacked_is(path)) {
        if (tsr_prepacked_open(&p, path, &e.err) != TSR_OK)
            return true;
        there = json_object_get(p.texts, name) != NULL;
        tsr_prepacked_close(&p);
        return there;
    }
    return tsr_folder_has(path, name, &there, &e.err) != TSR_OK || there;
}
