/* What llama.cpp calls architectures and tensors, as the family says. */
#include "checkpoint/export/gguf_out.h"

#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"

#include <string.h>

tsr_status tsr_export_gguf_arch(struct tsr_export *x, const char **arch)
{
    const struct tsr_model_family *one, *f = x->m->storage->family;
    char                           known[600] = "";
    size_t                         at = 0;
    *arch = f->gguf.write;
    if (*arch)
        return TSR_OK;
    for (uint64_t i = 0;; i++) {
        TSR_TRY(tsr_model_family_at(i, &one, x->err));
        if (!one)
            break;
        if (one->gguf.write && at < sizeof known)
            at +=
                (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", one->name);
    }
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: %s models are not written as gguf; %s are; export to hf and use "
                    "llama.cpp's own converter",
                    x->path, f->name, known);
}

/* Tensors in which several linears take turns as llama.cpp has them, too, or whose turns are undone: as many heads of
 * keys and values as of queries. */
static bool is_written(const struct tsr_model_hparams *hp, enum tsr_model_part part)
{
    return part == TSR_MODEL_PART_QZ_HEADS || part == TSR_MODEL_PART_BA_HEADS ||
           (part == TSR_MODEL_PART_QKV_HEADS && hp->kv_heads == hp->heads);
}

tsr_status tsr_export_gguf_name(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                char name[64], struct tsr_gguf_map *map)
{
    const struct tsr_model_role *r = v->role;
    if (tsr_gguf_name_of(x->m, v, name, map) && (!v->groups || is_written(&x->m->hp, r->part)))
        return TSR_OK;
    return tsr_fail(
        x->err, TSR_E_INPUT,
        "%s: tensor \"%s\" is not written as gguf: the family %s gives it no name there, "
        "or orders its rows by heads",
        x->path, v->module, x->m->family);
}
