/* compressed-tensors: integers as pack-quantized (one of 8 bits with a scale a row as
 * int-quantized), FP8 as naive-quantized, MXFP4 as mxfp4-pack-quantized, NVFP4 as nvfp4-pack-quantized.  A row of codes is stored unchanged, padded to a
 * word; zero points are packed along the outputs. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum layout { PACKED, INT8, MXFP4, NVFP4, FP8 };

static enum layout layout_of(bool mx, bool nvfp4, uint32_t bits, uint64_t group, uint32_t zero)
{
    if (mx || nvfp4)
        return mx ? MXFP4 : NVFP4;
    return bits == 8 && group == 0 && zero == TSR_ZERO_MID ? INT8 : PACKED;
}

static enum layout layout(const struct tsr_export_module *m)
{
    if (tsr_export_is_fp8(m))
        return FP8;
    return layout_of(m->form == TSR_EXPORT_FORM_MX, m->form == TSR_EXPORT_FORM_TABLE, m->f.bits,
                     m->f.group, m->f.zero);
}

static const char *layout_name(enum layout l)
{
    return l == NVFP4   ? "nvfp4-pack-quantized"
           : l == MXFP4 ? "mxfp4-pack-quantized"
           : l == FP8   ? "naive-quantized"
           : l == INT8  ? "int-quantized"
                        : "pack-quantized";
}

static tsr_status refuse(struct tsr_export *x, const struct tsr_export_module *m, const char *why)
{
    return tsr_fail(x->err, TSR_E_INPUT, "%s: \"%s\" cannot be stored as compressed-tensors: %s",
                    x->path, m->v->module, why);
}

/* The divisor of the scales of a row. */
static float divisor(const struct tsr_export_module *m, uint64_t r)
{
    float d;
    memcpy(&d, tsr_export_module_meta(m, r), sizeof d);
    return d;
}

static tsr_status check_nvfp4(struct tsr_export *x, const struct tsr_export_module *m)
{
    static const float e2m1[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    bool               group = m->f.group == 16 || (m->f.group == 0 && m->v->cols == 16);
    bool               same = m->f.bits == 4 && m->f.element == TSR_MX_FP8_E4M3 && group;
    for (unsigned i = 0; i < 16; i++)
        same = same && m->f.table[i] == (i < 8 ? e2m1[i] : -e2m1[i - 8]);
    if (!same)
        return refuse(x, m, "of tables it has NVFP4 alone; export to hf");
    for (uint64_t r = 1; r < m->v->rows; r++)
        if (divisor(m, r) != divisor(m, 0))
            return refuse(x, m,
                          "its rows have several divisors of scales, where NVFP4 has one for a "
                          "tensor; quantize its parts as one, or export to hf");
    return TSR_OK;
}

/* Rows and columns that share an FP8 scale; 0: each row has its own. */
static uint64_t block_of(const struct tsr_export_module *m)
{
    uint64_t row;
    return layout(m) == FP8 && m->f.group && tsr_export_fp8_alike(m, m->f.group, &row) ? m->f.group
                                                                                       : 0;
}

static tsr_status check(struct tsr_export *x, const struct tsr_export_module *m)
{
    const struct tsr_model_stored_view *v = m->v;
    if (m->form == TSR_EXPORT_FORM_TABLE)
        TSR_TRY(check_nvfp4(x, m));
    else if (m->form != TSR_EXPORT_FORM_INT && !tsr_export_is_mxfp4(m) && !tsr_export_is_fp8(m))
        return refuse(x, m,
                      "its weights are neither integers with scales of groups, nor FP8 (E4M3), nor "
                      "MXFP4 in blocks of 32, nor NVFP4; export to hf");
    if (m->order)
        return refuse(x, m,
                      "its columns are in a permuted order (act-order), for which "
                      "compressed-tensors 0.20 has no tensor; export to gptq or hf");
    if (m->f.group && v->cols % m->f.group != 0 && !block_of(m))
        return refuse(x, m, "its last group is short; choose a group that divides the columns");
    if (v->kind == TSR_MODEL_STORED_HEAD && x->m->hp.tied)
        return refuse(x, m, "the head is tied to the embedding; leave it unpacked (keep: true)");
    return TSR_OK;
}

static tsr_status look(struct tsr_export *x, const struct tsr_model_stored_view *v)
{
    struct tsr_export_module m;
    /* every module that a loader finds to be a linear and the configuration does not exclude is
     * quantized */
    bool projection = v->kind == TSR_MODEL_STORED_MATRIX && strstr(v->module, "project_");
    if (!tsr_export_is_linear(v) && !projection)
        return TSR_OK;
    tsr_export_module_of(&m, v);
    bool packed = m.form != TSR_EXPORT_FORM_DENSE;
    if (packed)
        TSR_TRY(check(x, &m));
    TSR_TRY(tsr_export_rule_add(x, &m, packed));
    x->rules.v[x->rules.n - 1].block = packed ? block_of(&m) : 0;
    return TSR_OK;
}

static tsr_status decide(struct tsr_export *x)
{
    tsr_export_rules_merge(&x->rules,
                           false); /* 8 bits with one scale per row has a separate layout */
    return tsr_export_rules_need_packed(x);
}

static tsr_status plan(struct tsr_export *x, const struct tsr_export_module *m,
                       struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n)
{
    uint64_t rows = m->v->rows, cols = m->v->cols, bits = m->f.bits;
    *n = 0;
    if (m->form == TSR_EXPORT_FORM_DENSE)
        return TSR_OK;
    enum layout l = layout(m);
    if (l == MXFP4) {
        out[0] = (struct tsr_export_out){ ".weight_packed", "U8", 1, 2, { rows, cols / 2 } };
        out[1] = (struct tsr_export_out){ ".weight_scale", "U8", 1, 2, { rows, m->groups } };
        *n = 2;
        return TSR_OK;
    }
    if (l == NVFP4) {
        out[0] = (struct tsr_export_out){ ".weight_global_scale", "F32", 4, 1, { 1, 0 } };
        out[1] = (struct tsr_export_out){ ".weight_packed", "U8", 1, 2, { rows, cols / 2 } };
        out[2] = (struct tsr_export_out){ ".weight_scale", "F8_E4M3", 1, 2, { rows, m->groups } };
        *n = 3;
        return TSR_OK;
    }
    if (l == FP8) {
        uint64_t block = block_of(m);
        out[0] = (struct tsr_export_out){ ".weight", "F8_E4M3", 1, 2, { rows, cols } };
        out[1] = tsr_export_fp8_out(m, ".weight_scale", block ? block : 1, TSR_BF16);
        *n = 2;
        return TSR_OK;
    }
    uint32_t scale = tsr_export_module_scale_dtype(m, x->dtype);
    out[0] = (struct tsr_export_out){ ".weight_scale",
                                      tsr_dtype_name(scale),
                                      (uint32_t)tsr_dtype_size(scale),
                                      2,
                                      { rows, m->groups } };
    if (l == INT8) {
        out[1] = (struct tsr_export_out){ ".weight", "I8", 1, 2, { rows, cols } };
        *n = 2;
        return TSR_OK;
    }
    out[1] =
        (struct tsr_export_out){ ".weight_packed", "I32", 4, 2, { rows, (cols * bits + 31) / 32 } };
    out[2] = (struct tsr_export_out){ ".weight_shape", "I64", 8, 1, { 2, 0 } };
    *n = 3;
    if (m->f.zero == TSR_ZERO_STORED) {
        out[3] = (struct tsr_export_out){
            ".weight_zero_point", "I32", 4, 2, { (rows * bits + 31) / 32, m->groups }
        };
        *n = 4;
    }
    return TSR_OK;
}

static void put_codes(const struct tsr_export_module *m, uint64_t line, unsigned char *dst)
{
    uint64_t n = tsr_format_int_code_bytes(&m->f, m->v->cols);
    for (uint64_t r = 0; r < m->v->rows; r++)
        memcpy(dst + r * line, tsr_export_module_codes(m, r), n < line ? n : line);
}

static void put_int8(const struct tsr_export_module *m, unsigned char *dst)
{
    for (uint64_t r = 0; r < m->v->rows; r++) {
        const unsigned char *codes = tsr_export_module_codes(m, r);
        for (uint64_t k = 0; k < m->v->cols; k++)
            *dst++ = (unsigned char)(codes[k] ^ 0x80u); /* less 128 */
    }
}

static void put_scales(const struct tsr_export_module *m, const struct tsr_export_out *out,
                       unsigned char *dst)
{
    uint64_t inexact = 0;
    uint32_t dtype = out->size == 4 ? TSR_F32 : strcmp(out->dtype, "F16") == 0 ? TSR_F16 : TSR_BF16;
    for (uint64_t r = 0; r < m->v->rows; r++) {
        if (m->form != TSR_EXPORT_FORM_INT) { /* bytes, NVFP4's after the divisor */
            size_t head = m->form == TSR_EXPORT_FORM_TABLE ? sizeof(float) : 0;
            memcpy(dst + r * m->groups, tsr_export_module_meta(m, r) + head, m->groups);
            continue;
        }
        for (uint64_t g = 0; g < m->groups; g++)
            (void)tsr_export_put(dst + (r * m->groups + g) * out->size, dtype,
                                 tsr_export_module_scale(m, r, g),
                                 &inexact); /* exact: chosen for it */
    }
}

/* [words of zero points along the rows][groups] */
static tsr_status put_zeros(struct tsr_export *x, const struct tsr_export_module *m,
                            unsigned char *dst)
{
    uint64_t       rows = m->v->rows, words = (rows * m->f.bits + 31) / 32;
    unsigned char *line = tsr_new(words, 4);
    if (!line)
        return tsr_fail_nomem(x->err, words * 4, m->v->module);
    for (uint64_t g = 0; g < m->groups; g++) {
        memset(line, 0, words * 4);
        for (uint64_t r = 0; r < rows; r++)
            tsr_export_bits_put(line, r * m->f.bits, m->f.bits, tsr_export_module_zero(m, r, g));
        for (uint64_t w = 0; w < words; w++)
            memcpy(dst + (w * m->groups + g) * 4, line + w * 4, 4);
    }
    free(line);
    return TSR_OK;
}

static tsr_status fill(struct tsr_export *x, const struct tsr_export_module *m,
                       const struct tsr_export_out *out, unsigned char *dst)
{
    if (layout(m) == FP8) {
        uint64_t block = block_of(m);
        if (strcmp(out->suffix, ".weight") == 0)
            tsr_export_fp8_codes(m, dst);
        else
            tsr_export_fp8_scales(m, out, block ? block : 1, dst);
        return TSR_OK;
    }
    if (strcmp(out->suffix, ".weight_zero_point") == 0)
        return put_zeros(x, m, dst);
    if (strcmp(out->suffix, ".weight_packed") == 0)
        put_codes(m, out->shape[1] * out->size, dst);
    else if (strcmp(out->suffix, ".weight_scale") == 0)
        put_scales(m, out, dst);
    else if (strcmp(out->suffix, ".weight_global_scale") == 0)
        memcpy(dst, tsr_export_module_meta(m, 0), sizeof(float));
    else if (strcmp(out->suffix, ".weight") == 0)
        put_int8(m, dst);
    else {
        const int64_t shape[2] = { (int64_t)m->v->rows, (int64_t)m->v->cols };
        memcpy(dst, shape, sizeof shape);
    }
    return TSR_OK;
}

/* ---- quantization_config --------------------------------------------------------------- */

static json_t *weights_of(const struct tsr_export_rule *r)
{
    if (r->mx)
        return json_pack("{s:b, s:i, s:i, s:s, s:s, s:b, s:s}", "dynamic", 0, "group_size", 32,
                         "num_bits", 4, "scale_dtype", "torch.uint8", "strategy", "group",
                         "symmetric", 1, "type", "float");
    if (r->nvfp4)
        return json_pack("{s:b, s:i, s:i, s:s, s:s, s:b, s:s}", "dynamic", 0, "group_size", 16,
                         "num_bits", 4, "scale_dtype", "torch.float8_e4m3fn", "strategy",
                         "tensor_group", "symmetric", 1, "type", "float");
    if (r->fp8) {
        const json_int_t n = (json_int_t)r->group;
        return json_pack("{s:o, s:b, s:o, s:i, s:s, s:b, s:s}", "block_structure",
                         r->block ? json_pack("[I, I]", n, n) : json_null(), "dynamic", 0,
                         "group_size", r->group && !r->block ? json_integer(n) : json_null(),
                         "num_bits", 8, "strategy",
                         r->block   ? "block"
                         : r->group ? "group"
                                    : "channel",
                         "symmetric", 1, "type", "float");
    }
    json_t *group = r->group ? json_integer((json_int_t)r->group) : json_null();
    return json_pack("{s:b, s:o, s:i, s:s, s:b, s:s}", "dynamic", 0, "group_size", group,
                     "num_bits", (int)r->bits, "strategy", r->group ? "group" : "channel",
                     "symmetric", r->zero == TSR_ZERO_STORED ? 0 : 1, "type", "int");
}

/* The modules with the scheme of rule i, as targets; "Linear" if there is one scheme. */
static json_t *targets_of(const struct tsr_export_rules *c, uint64_t i, bool only)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    if (ok && only)
        ok = json_array_append_new(list, json_string("Linear")) == 0;
    for (uint64_t k = i; k < c->n && ok && !only; k++)
        if (tsr_export_rule_same(&c->v[i], &c->v[k]))
            ok = json_array_append_new(list, json_string(c->v[k].module)) == 0;
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static bool first_of_kind(const struct tsr_export_rules *c, uint64_t i)
{
    for (uint64_t k = 0; k < i; k++)
        if (tsr_export_rule_same(&c->v[i], &c->v[k]))
            return false;
    return c->v[i].packed;
}

static bool put_groups(const struct tsr_export_rules *c, json_t *groups, json_t *ignore,
                       const char **format)
{
    uint64_t kinds = 0, at = 0;
    for (uint64_t i = 0; i < c->n; i++)
        kinds += first_of_kind(c, i);
    for (uint64_t i = 0; i < c->n; i++) {
        const struct tsr_export_rule *r = &c->v[i];
        char                          name[32];
        if (!r->packed && json_array_append_new(ignore, json_string(r->module)) != 0)
            return false;
        if (!first_of_kind(c, i))
            continue;
        const char *f =
            layout_name(r->fp8 ? FP8 : layout_of(r->mx, r->nvfp4, r->bits, r->group, r->zero));
        *format = !*format || strcmp(*format, f) == 0 ? f : "mixed-precision";
        (void)snprintf(name, sizeof name, "group_%llu", (unsigned long long)at++);
        json_t *g = json_pack("{s:s, s:n, s:n, s:o, s:o}", "format", f, "input_activations",
                              "output_activations", "targets", targets_of(c, i, kinds == 1),
                              "weights", weights_of(r));
        if (json_object_set_new(groups, name, g) != 0)
            return false;
    }
    return true;
}

static tsr_status config(struct tsr_export *x, json_t **out)
{
    const char *format = NULL;
    json_t     *groups = json_object(), *ignore = json_array();
    bool        ok = groups && ignore && put_groups(&x->rules, groups, ignore, &format);
    if (ok && x->m->hp.tied)
        ok = json_array_append_new(ignore, json_string("lm_head")) == 0;
    ok = ok && tsr_export_ignored(x, true, ignore);
    if (ok && json_object_size(groups) > 1)
        tsr_logf(TSR_LOG_WARN,
                 "%s: several widths are several config groups; transformers 5.23 takes one for "
                 "all linears, compressed-tensors itself reads them",
                 x->path);
    if (ok)
        *out =
            json_pack("{s:s, s:s, s:s, s:O, s:O, s:n, s:n}", "quant_method", "compressed-tensors",
                      "format", format, "quantization_status", "compressed", "config_groups",
                      groups, "ignore", ignore, "kv_cache_scheme", "global_compression_ratio");
    json_decref(groups);
    json_decref(ignore);
    return ok && *out ? TSR_OK : tsr_fail_nomem(x->err, 256, "quantization_config");
}

const struct tsr_export_kind tsr_export_ct = { .name = "compressed-tensors",
                                               .look = look,
                                               .decide = decide,
                                               .plan = plan,
                                               .fill = fill,
                                               .config = config };
