/* Stored tensors that the model does not run: an encoder for images, layers for multi-token prediction. */
#include "model/unused.h"

#include "base/log.h"
#include "model/bind.h"

#include <stdatomic.h>

/* Weights that another program quantized: only the model's own are understood. */
static bool is_imported(const struct tsr_checkpoint_shards *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (s->tensors[i].imported)
            return true;
    return false;
}

static tsr_status visit_all(const struct tsr_model_binding *b, bool imported,
                            tsr_model_unused_visit visit, void *ctx)
{
    uint64_t left_out = 0;
    for (uint64_t i = 0; i < b->shards->n; i++) {
        const struct tsr_checkpoint_stored *e = &b->shards->tensors[i];
        if (!tsr_model_bind_ignores(b, e->t->name))
            continue;
        left_out++;
        if (!imported)
            TSR_TRY(visit(ctx, &b->shards->files[e->file], e->t, b->err));
    }
    if (imported && left_out && !atomic_exchange(&b->model->storage->unused_said, true))
        tsr_logf(TSR_LOG_WARN,
                 "%s: %llu tensors that it does not run are left out, because its weights are "
                 "quantized by another program",
                 b->model->path, (unsigned long long)left_out);
    return TSR_OK;
}

tsr_status tsr_model_visit_unused(const struct tsr_model *m, tsr_model_unused_visit visit,
                                  void *ctx, struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    if (!s || s->config) /* a GGUF file has one model */
        return TSR_OK;
    struct tsr_model_config  view = tsr_model_config(m);
    struct tsr_model         scratch = *m;
    struct tsr_model_binding b = {
        .config = &view, .shards = &s->shards, .model = &scratch, .folder = s->folder, .err = err
    };
    tsr_model_bind_prefix(&b);
    return visit_all(&b, is_imported(&s->shards), visit, ctx);
}

tsr_status tsr_model_unused_size(const struct tsr_safetensors        *file,
                                 const struct tsr_safetensors_tensor *t, uint32_t *size,
                                 struct tsr_err *err)
{
    uint64_t n = 1, bytes = t->end - t->begin;
    for (uint32_t i = 0; i < t->rank; i++)
        n *= t->shape[i]; /* as the header was checked, this is at most 8 bytes */
    *size = n ? (uint32_t)(bytes / n) : 1;
    return n == 0 || (*size && *size * n == bytes)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT,
                          "%s: \"%s\" has elements of less than a byte (%s), and is not copied",
                          file->file.path, t->name, t->dtype_name);
}

tsr_status tsr_model_unused_copy(const struct tsr_safetensors        *file,
                                 const struct tsr_safetensors_tensor *t, struct tsr_st_out *to,
                                 struct tsr_err *err)
{
    return tsr_model_load_pass(file, t, NULL, to, err);
}
