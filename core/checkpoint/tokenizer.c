#include "checkpoint/tokenizer.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/texts.h"
#include "model/model.h"
#include "tokenizer/chat_texts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILE     (UINT64_C(256) << 20)
#define MAX_CONFIG   (UINT64_C(16) << 20)
#define MAX_TEMPLATE (UINT64_C(1) << 20)

tsr_status tsr_checkpoint_tokenizer_there(const char *path, bool *there, struct tsr_err *err)
{
    return tsr_checkpoint_text_there(path, "tokenizer.json", there, err);
}

/* Report a path that is not a model before a missing tokenizer. */
static tsr_status absent(const char *path, struct tsr_err *err)
{
    TSR_TRY(tsr_model_check(path, err));
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: the model has no tokenizer (tokenizer.json, or \"tokenizer.ggml.model\" of a "
        "GGUF file); give token ids",
        path);
}

tsr_status tsr_checkpoint_tokenizer_load(struct tsr_tokenizer **t, const char *path,
                                         struct tsr_err *err)
{
    char      *json = NULL, *more = NULL, *where = NULL;
    uint64_t   len = 0, more_len = 0;
    tsr_status st =
        tsr_checkpoint_text_read(path, "tokenizer.json", MAX_FILE, &json, &len, &where, err);
    if (st == TSR_OK && !json)
        st = absent(path, err);
    if (st == TSR_OK)
        st = tsr_checkpoint_text_read(path, "tokenizer_config.json", MAX_CONFIG, &more, &more_len,
                                      NULL, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_parse(t, where, json, len, more, more_len, err);
    free(json);
    free(more);
    free(where);
    return st;
}

/* ---- chat template ------------------------------------------------------- */

static tsr_status read_text(void *ctx, const char *name, uint64_t cap, char **text, uint64_t *len,
                            char **where, struct tsr_err *err)
{
    return tsr_checkpoint_text_read(ctx, name, cap, text, len, where, err);
}

tsr_status tsr_checkpoint_chat_texts(const char *path, json_t **list, json_t **config,
                                     struct tsr_err *err)
{
    struct tsr_model_text_list more;
    tsr_status                 st = tsr_checkpoint_text_list(path, &more, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_chat_texts(list, config, (const char *const *)more.v, more.n, read_text,
                                      (void *)(uintptr_t)path, err);
    tsr_model_text_list_free(&more);
    return st;
}

tsr_status tsr_checkpoint_chat_load(struct tsr_chat **c, const char *path,
                                    const struct tsr_checkpoint_chat *how,
                                    const struct tsr_tokenizer *t, struct tsr_err *err)
{
    json_t  *list, *config;
    char    *text = NULL;
    uint64_t bytes = 0;
    *c = NULL;
    TSR_TRY(tsr_checkpoint_chat_texts(path, &list, &config, err));
    bool       named = how->name && tsr_tokenizer_chat_texts_find(list, how->name);
    tsr_status st = TSR_OK;
    if (how->name && !named && how->file && tsr_path_exists(how->file))
        st = tsr_file_slurp(how->file, MAX_TEMPLATE, &text, &bytes, err);
    struct tsr_tokenizer_chat_source source = { .templates = list,
                                                .config = config,
                                                .name = how->name,
                                                .text = text,
                                                .where = how->file,
                                                .bytes = bytes,
                                                .date = how->date };
    if (st == TSR_OK)
        st = tsr_tokenizer_chat_create(c, &source, t, err);
    free(text);
    json_decref(list);
    json_decref(config);
    return st;
}
