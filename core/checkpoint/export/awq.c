/* awq: qweight, qzeros and scales of AutoAWQ's GEMM kernels.  4 bits, one group size for all; codes and zero
 * points are packed along the outputs, eight to a word, in the kernels' order of nibbles. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const unsigned nibble_of[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };

static tsr_status refuse(struct tsr_export *x, const char *module, const char *why)
{
    return tsr_fail(x->err, TSR_E_INPUT, "%s: \"%s\" cannot be stored as awq: %s", x->path, module,
                    why);
}

static tsr_status check(struct tsr_export *x, const struct tsr_export_module *m)
{
    const struct tsr_model_stored_view *v = m->v;
    if (m->form != TSR_EXPORT_FORM_INT || m->f.bits != 4)
        return refuse(x, v->module,
                      "its weights are not integers of 4 bits with scales of groups; quantize with "
                      "awq, rtn or gptq at 4 bits, or export to another format");
    if (m->order)
        return refuse(x, v->module,
                      "its columns are in a permuted order (act-order); export to gptq or hf");
    if (v->rows % 8 != 0)
        return refuse(x, v->module, "its outputs are no multiple of 8; keep this linear");
    if (m->f.group && v->cols % m->f.group != 0)
        return refuse(x, v->module,
                      "its last group is short; choose a group that divides the columns");
    if (v->kind == TSR_MODEL_STORED_HEAD)
        return refuse(x, v->module, "the format has no LM head; leave it unpacked (keep: true)");
    if (tsr_export_module_scale_dtype(m, TSR_F16) == TSR_F32)
        return refuse(x, v->module, "a scale has more than 16 bits; quantize with scale: f16");
    return TSR_OK;
}

static tsr_status look(struct tsr_export *x, const struct tsr_model_stored_view *v)
{
    return tsr_export_rule_look(x, v, check);
}

static tsr_status decide(struct tsr_export *x)
{
    const struct tsr_export_rule *base;
    tsr_export_rules_merge(&x->rules, true);
    TSR_TRY(tsr_export_rules_need_packed(x));
    base = tsr_export_rule_common(&x->rules);
    for (uint64_t i = 0; i < x->rules.n; i++)
        if (x->rules.v[i].packed && x->rules.v[i].group != base->group)
            return refuse(x, x->rules.v[i].module,
                          "its groups have another size than those of most linears, and the format "
                          "has one size; quantize all with one");
    return TSR_OK;
}

static tsr_status plan(struct tsr_export *x, const struct tsr_export_module *m,
                       struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n)
{
    uint64_t rows = m->v->rows, cols = m->v->cols;
    (void)x;
    *n = 0;
    if (m->form == TSR_EXPORT_FORM_DENSE)
        return TSR_OK;
    uint32_t scale = tsr_export_module_scale_dtype(m, TSR_F16);
    out[0] = (struct tsr_export_out){ ".qweight", "I32", 4, 2, { cols, rows / 8 } };
    out[1] = (struct tsr_export_out){ ".qzeros", "I32", 4, 2, { m->groups, rows / 8 } };
    out[2] = (struct tsr_export_out){ ".scales", tsr_dtype_name(scale), 2, 2, { m->groups, rows } };
    *n = 3;
    return TSR_OK;
}

/* Number r of a line of `rows` numbers, eight to a word. */
static void put(unsigned char *line, uint64_t r, unsigned value)
{
    tsr_export_bits_put(line + r / 8 * 4, nibble_of[r % 8] * UINT64_C(4), 4, value);
}

static tsr_status fill(struct tsr_export *x, const struct tsr_export_module *m,
                       const struct tsr_export_out *out, unsigned char *dst)
{
    uint64_t rows = m->v->rows, line = rows / 2;
    (void)x;
    if (strcmp(out->suffix, ".scales") == 0) {
        tsr_export_module_scales_down(m, strcmp(out->dtype, "F16") == 0 ? TSR_F16 : TSR_BF16, dst);
        return TSR_OK;
    }
    memset(dst, 0, out->shape[0] * line);
    for (uint64_t r = 0; r < rows; r++) {
        const unsigned char *codes = tsr_export_module_codes(m, r);
        for (uint64_t k = 0; k < out->shape[0]; k++)
            put(dst + k * line, r,
                strcmp(out->suffix, ".qzeros") == 0 ? tsr_export_module_zero(m, r, k)
                                                    : tsr_export_bits_get(codes, k * 4, 4));
    }
    return TSR_OK;
}

static tsr_status config(struct tsr_export *x, json_t **out)
{
    const struct tsr_export_rule *base = tsr_export_rule_common(&x->rules);
    json_t                       *kept = tsr_export_rules_kept(x, false);
    if (kept && json_array_size(kept) == 0) {
        json_decref(kept);
        kept = json_null();
    }
    *out = json_pack("{s:s, s:i, s:I, s:b, s:s, s:o}", "quant_method", "awq", "bits", 4,
                     "group_size", base->group ? (json_int_t)base->group : -1, "zero_point", 1,
                     "version", "gemm", "modules_to_not_convert", kept);
    return *out ? TSR_OK : tsr_fail_nomem(x->err, 256, "quantization_config");
}

const struct tsr_export_kind tsr_export_awq = {
    .name = "awq", .look = look, .decide = decide, .plan = plan, .fill = fill, .config = config
};
