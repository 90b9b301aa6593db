/* Texts of a model that a copy of it takes along. */
#include "model/stored.h"

#include "base/output.h"
#include "model/bind.h"
#include "model/text_names.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_model_config_json(const struct tsr_model *m, json_t **config, struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_model_text(m, "config.json", &text, &len, err));
    if (!text)
        return tsr_fail(err, TSR_E_INPUT, "%s: has no config.json", m->path);
    tsr_status st = tsr_json_parse(config, "config.json", text, len, 64, err);
    free(text);
    return st;
}

tsr_status tsr_model_copy_templates(const struct tsr_model *m, const char *folder,
                                    struct tsr_err *err)
{
    struct tsr_model_text_list l = { 0 };
    char                      *below = tsr_path_join(folder, TSR_TEXT_TEMPLATES);
    tsr_status                 st =
        below ? tsr_model_text_list(m, &l, err) : tsr_fail_nomem(err, strlen(folder), folder);
    if (st == TSR_OK && l.n)
        st = tsr_make_dirs(below, err);
    for (uint64_t i = 0; i < l.n && st == TSR_OK; i++) {
        char    *text;
        uint64_t len;
        st = tsr_model_text(m, l.v[i], &text, &len, err);
        if (st != TSR_OK || !text)
            continue;
        st = tsr_file_store_in(folder, l.v[i], text, len, err);
        free(text);
    }
    tsr_model_text_list_free(&l);
    free(below);
    return st;
}

tsr_status tsr_model_copy_texts(const struct tsr_model *m, const char *folder, bool *tokenizer,
                                struct tsr_err *err)
{
    const char *name;
    *tokenizer = false;
    for (uint64_t i = 0; (name = tsr_model_text_name(i)); i++) {
        char    *text;
        uint64_t len;
        TSR_TRY(tsr_model_text(m, name, &text, &len, err));
        if (!text)
            continue;
        tsr_status st = tsr_file_store_in(folder, name, text, len, err);
        free(text);
        TSR_TRY(st);
        *tokenizer = *tokenizer || strcmp(name, "tokenizer.json") == 0;
    }
    return tsr_model_copy_templates(m, folder, err);
}
