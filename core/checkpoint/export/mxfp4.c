/* mxfp4: the experts of a layer as gpt-oss is published, each linear of all experts in one parameter NAME:
 *
 *   NAME_blocks U8 [experts, rows, columns / 32, 16]   NAME_scales U8 [experts, rows, columns / 32]
 *
 * with rows of gate and up by turns.  A row of codes is that of tessera.mx/1.  Everything else has 16 bits or is as it
 * was; other packed linears are widened. */
#include "checkpoint/export/internal.h"

#include "model/family.h"

#include <string.h>

static tsr_status check(struct tsr_export *x, const struct tsr_export_module *m)
{
    const struct tsr_model_role *r = m->v->role;
    if (*m->v->suffix || (r->part == TSR_MODEL_PART_EXPERTS_GATE_UP && !r->interleaved))
        return tsr_fail(
            x->err, TSR_E_INPUT,
            "%s: \"%s\" cannot be stored as mxfp4: the format is that of models whose "
            "experts have rows of gate and up by turns in one parameter; export to gguf",
            x->path, m->v->module);
    if (!tsr_export_is_mxfp4(m) || m->order || m->v->cols % 32)
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: \"%s\" cannot be stored as mxfp4: the experts are not MXFP4 in whole "
                        "blocks of 32, columns in order; quantize them with mxfp4, or export to hf",
                        x->path, m->v->module);
    return TSR_OK;
}

static tsr_status look(struct tsr_export *x, const struct tsr_model_stored_view *v)
{
    struct tsr_export_module m;
    if (!tsr_export_is_linear(v))
        return TSR_OK;
    tsr_export_module_of(&m, v);
    if (v->stack)
        TSR_TRY(check(x, &m));
    return tsr_export_rule_add(x, &m, v->stack != 0);
}

static tsr_status decide(struct tsr_export *x)
{
    if (tsr_export_rule_common(&x->rules))
        return TSR_OK;
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: cannot be stored as mxfp4: no layer of %s has its experts in one tensor; "
                    "export to compressed-tensors or gguf",
                    x->path, x->m->path);
}

static tsr_status plan(struct tsr_export *x, const struct tsr_export_module *m,
                       struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n)
{
    const struct tsr_model_stored_view *v = m->v;
    (void)x;
    *n = 0;
    if (!v->stack)
        return TSR_OK;
    const uint64_t each = v->rows / v->stack;
    out[0] = (struct tsr_export_out){ "_blocks", "U8", 1, 4, { v->stack, each, m->groups, 16 } };
    out[1] = (struct tsr_export_out){ "_scales", "U8", 1, 3, { v->stack, each, m->groups } };
    *n = 2;
    return TSR_OK;
}

static tsr_status fill(struct tsr_export *x, const struct tsr_export_module *m,
                       const struct tsr_export_out *out, unsigned char *dst)
{
    const bool codes = strcmp(out->suffix, "_blocks") == 0;
    uint64_t   n = m->groups * (codes ? 16 : 1);
    (void)x;
    for (uint64_t r = 0; r < m->v->rows; r++)
        memcpy(dst + r * n, codes ? tsr_export_module_codes(m, r) : tsr_export_module_meta(m, r),
               n);
    return TSR_OK;
}

static tsr_status config(struct tsr_export *x, json_t **out)
{
    *out = json_pack("{s:s, s:o}", "quant_method", "mxfp4", "modules_to_not_convert",
                     tsr_export_rules_kept(x, true));
    return *out ? TSR_OK : tsr_fail_nomem(x->err, 256, "quantization_config");
}

const struct tsr_export_kind tsr_export_mxfp4 = { .name = "mxfp4",
                                                  .experts = true,
                                                  .look = look,
                                                  .decide = decide,
                                                  .plan = plan,
                                                  .fill = fill,
                                                  .config = config };
