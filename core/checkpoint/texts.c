#include "checkpoint/texts.h"

#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/kind.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/safetensors/folder.h"

#include <stdlib.h>
#include <string.h>

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
    else if (tsr_gguf_has_tokenizer(&g))
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

tsr_status tsr_checkpoint_text_read(const char *path, const char *name, uint64_t cap, char **text,
                                    uint64_t *len, char **where, struct tsr_err *err)
{
    char                    *file = NULL;
    enum tsr_checkpoint_kind kind;
    tsr_status               st;
    *text = NULL;
    *len = 0;
    if (where)
        *where = NULL;
    TSR_TRY(tsr_checkpoint_kind(path, &kind, err));
    if (kind == TSR_CHECKPOINT_GGUF)
        st = of_gguf(path, name, text, len, err);
    else if (kind == TSR_CHECKPOINT_PREPACKED)
        st = of_prepacked(path, name, text, len, err);
    else
        st = tsr_checkpoint_folder_slurp_if(path, name, cap, text, len, &file, err);
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

static tsr_status list_prepacked(const char *path, struct tsr_model_text_list *l,
                                 struct tsr_err *err)
{
    struct tsr_prepacked p;
    const char          *name;
    json_t              *entry;
    TSR_TRY(tsr_prepacked_open(&p, path, err));
    tsr_status st = TSR_OK;
    json_object_foreach (p.texts, name, entry) {
        if (st == TSR_OK)
            st = tsr_model_text_list_add(l, name, err);
    }
    tsr_prepacked_close(&p);
    return st;
}

tsr_status tsr_checkpoint_text_list(const char *path, struct tsr_model_text_list *l,
                                    struct tsr_err *err)
{
    enum tsr_checkpoint_kind kind;
    *l = (struct tsr_model_text_list){ 0 };
    TSR_TRY(tsr_checkpoint_kind(path, &kind, err));
    if (kind == TSR_CHECKPOINT_PREPACKED)
        return list_prepacked(path, l, err);
    return kind == TSR_CHECKPOINT_GGUF ? TSR_OK : tsr_model_text_list_folder(l, path, err);
}

tsr_status tsr_checkpoint_text_there(const char *path, const char *name, bool *there,
                                     struct tsr_err *err)
{
    enum tsr_checkpoint_kind kind;
    struct tsr_gguf          g;
    struct tsr_prepacked     p;
    *there = false;
    TSR_TRY(tsr_checkpoint_kind(path, &kind, err));
    if (kind == TSR_CHECKPOINT_GGUF) {
        TSR_TRY(tsr_gguf_open(&g, path, err));
        *there = tsr_gguf_has_tokenizer(&g);
        tsr_gguf_close(&g);
        return TSR_OK;
    }
    if (kind == TSR_CHECKPOINT_PREPACKED) {
        TSR_TRY(tsr_prepacked_open(&p, path, err));
        *there = json_object_get(p.texts, name) != NULL;
        tsr_prepacked_close(&p);
        return TSR_OK;
    }
    return tsr_checkpoint_folder_has(path, name, there, err);
}
