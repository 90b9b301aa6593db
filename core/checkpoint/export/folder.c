/* The texts of an exported folder. */
#include "checkpoint/export/internal.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/bind.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_export_put_json(const char *folder, const char *name, const json_t *j,
                               struct tsr_err *err)
{
    char *path = tsr_path_join(folder, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), name);
    tsr_status st = tsr_json_store(path, j, JSON_INDENT(2) | JSON_REAL_PRECISION(17), err);
    free(path);
    return st;
}

static const char *torch_name(uint32_t dtype)
{
    return dtype == TSR_F16 ? "float16" : dtype == TSR_BF16 ? "bfloat16" : "float32";
}

/* The model's config.json with the changes of the export. */
static tsr_status edit(struct tsr_export *x, json_t *c, json_t *quantization)
{
    const struct tsr_model_family *f = x->m->storage->family;
    const char                    *key = json_object_get(c, "dtype") ? "dtype" : "torch_dtype";
    (void)json_object_del(c, "quantization_config");
    bool ok = f && json_object_set_new(c, key, json_string(torch_name(x->dtype))) == 0 &&
              json_object_set_new(c, "architectures", json_pack("[s]", f->architectures[0])) == 0;
    /* a packed head no longer equals the embedding, and one of its own never did */
    const struct tsr_model_overlay *o = x->o ? x->o : x->m->packed;
    bool                            apart = x->m->hp.tied ? o && o->head && o->head != o->embed
                                                          : json_is_true(json_object_get(c, "tie_word_embeddings"));
    if (ok && apart)
        ok = json_object_set_new(c, "tie_word_embeddings", json_false()) == 0;
    if (ok && quantization)
        ok = json_object_set(c, "quantization_config", quantization) == 0;
    return ok ? TSR_OK : tsr_fail_nomem(x->err, 256, "config.json");
}

tsr_status tsr_export_put_texts(struct tsr_export *x, const char *folder)
{
    json_t *c = NULL, *q = NULL;
    bool    tokenizer;
    TSR_TRY(tsr_model_config_json(x->m, &c, x->err));
    tsr_status st = x->kind->config ? x->kind->config(x, &q) : TSR_OK;
    if (st == TSR_OK)
        st = edit(x, c, q);
    if (st == TSR_OK && x->opt->edit.config)
        st = x->opt->edit.config(x->opt->edit.ctx, c, x->err);
    if (st == TSR_OK && x->kind->files)
        st = x->kind->files(x, q, folder);
    if (st == TSR_OK)
        st = tsr_model_copy_texts(x->m, folder, &tokenizer, x->err);
    if (st == TSR_OK)
        st = tsr_export_put_json(folder, "config.json", c, x->err);
    json_decref(c);
    json_decref(q);
    return st;
}
