/* What llama.cpp calls architectures and tensors, as the family says. */
#include "checkpoint/export/gguf_out.h"

#include "model/bind.h"

#include <string.h>

tsr_status tsr_export_gguf_arch(struct tsr_export *x, const char **arch)
{
    const struct tsr_model_family *one, *f = x->m->storage->family;
    char                           known[300] = "";
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

tsr_status tsr_export_gguf_name(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                char name[64], uint32_t *heads)
{
    const struct tsr_model_role *r = v->role;
    char                         suffix[16];
    *heads = 0;
    if (x->m->storage->family->gguf.pairs && r->part == TSR_MODEL_PART_LINEAR)
        *heads = r->lin == TSR_MODEL_Q   ? x->m->hp.heads
                 : r->lin == TSR_MODEL_K ? x->m->hp.kv_heads
                                         : 0;
    (void)snprintf(suffix, sizeof suffix, ".%s", v->suffix);
    if (r->gguf && !v->groups && tsr_model_tensor_name(name, 64, "", r->gguf, v->layer, suffix))
        return TSR_OK;
    return tsr_fail(
        x->err, TSR_E_INPUT,
        "%s: tensor \"%s\" is not written as gguf: the family %s gives it no name there, "
        "or orders its rows by heads",
        x->path, v->module, x->m->family);
}

uint64_t tsr_export_gguf_row_of(uint64_t r, uint64_t rows, uint32_t heads)
{
    if (heads == 0)
        return r;
    uint64_t dim = rows / heads, head = r / dim, in = r % dim;
    return head * dim + in % 2 * (dim / 2) + in / 2;
}
