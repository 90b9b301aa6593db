/* gptq: qweight, qzeros, scales and g_idx of AutoGPTQ and GPTQModel.  Codes are packed along the
 * columns in words of 32 bits, one column of words per output: the transpose of a row's code
 * stream.  Zero points are packed along the outputs; version 1 stores them minus one. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct gptq {
    bool v2, head, ordered;
};

static tsr_status refuse(struct tsr_export *x, const struct tsr_export_module *m, const char *why)
{
    return tsr_fail(x->err, TSR_E_INPUT, "%s: \"%s\" cannot be stored as gptq: %s", x->path,
                    m->v->module, why);
}

static tsr_status check(struct tsr_export *x, const struct tsr_export_module *m)
{
    const struct tsr_model_stored_view *v = m->v;
    if (m->form != TSR_EXPORT_FORM_INT)
        return refuse(x, m,
                      "its weights are not integers of one width with scales of groups; quantize "
                      "with rtn, gptq or awq, or export to another format");
    if (m->f.bits != 2 && m->f.bits != 3 && m->f.bits != 4 && m->f.bits != 8)
        return refuse(x, m, "it holds 2, 3, 4 or 8 bits; quantize with one of these");
    if (v->cols % 32 != 0 || v->rows % 32 != 0)
        return refuse(x, m, "rows and columns must be multiples of 32; keep this linear");
    if (m->f.group && v->cols % m->f.group != 0)
        return refuse(x, m, "its last group is short; choose a group that divides the columns");
    if (v->kind == TSR_MODEL_STORED_HEAD && x->m->hp.tied)
        return refuse(x, m, "the head is tied to the embedding; leave it unpacked (keep: true)");
    return TSR_OK;
}

static tsr_status look(struct tsr_export *x, const struct tsr_model_stored_view *v)
{
    struct gptq             *g = x->own;
    struct tsr_export_module m;
    if (!tsr_export_is_linear(v))
        return TSR_OK;
    tsr_export_module_of(&m, v);
    bool packed = m.form != TSR_EXPORT_FORM_DENSE;
    if (packed)
        TSR_TRY(check(x, &m));
    if (packed && tsr_export_module_scale_dtype(&m, TSR_F16) == TSR_F32)
        return refuse(x, &m, "a scale has more than 16 bits; quantize with scale: f16");
    g->ordered = g->ordered || (packed && m.order);
    g->v2 = g->v2 || (packed && m.f.zero == TSR_ZERO_STORED);
    g->head = g->head || (packed && v->kind == TSR_MODEL_STORED_HEAD);
    return tsr_export_rule_add(x, &m, packed);
}

static tsr_status decide(struct tsr_export *x)
{
    tsr_export_rules_merge(&x->rules, true);
    return tsr_export_rules_need_packed(x);
}

static tsr_status plan(struct tsr_export *x, const struct tsr_export_module *m,
                       struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n)
{
    uint64_t rows = m->v->rows, cols = m->v->cols, bits = m->f.bits;
    (void)x;
    *n = 0;
    if (m->form == TSR_EXPORT_FORM_DENSE)
        return TSR_OK;
    uint32_t scale = tsr_export_module_scale_dtype(m, TSR_F16);
    out[0] = (struct tsr_export_out){ ".qweight", "I32", 4, 2, { cols * bits / 32, rows } };
    out[1] = (struct tsr_export_out){ ".qzeros", "I32", 4, 2, { m->groups, rows * bits / 32 } };
    out[2] = (struct tsr_export_out){ ".scales", tsr_dtype_name(scale), 2, 2, { m->groups, rows } };
    out[3] = (struct tsr_export_out){ ".g_idx", "I32", 4, 1, { cols, 0 } };
    *n = 4;
    return TSR_OK;
}

/* A row of codes in the order of the matrix's columns: the stream itself, or line. */
static const unsigned char *codes_of(const struct tsr_export_module *m, uint64_t r,
                                     unsigned char *line)
{
    const unsigned char *codes = tsr_export_module_codes(m, r);
    uint32_t             bits = m->f.bits;
    if (!m->order)
        return codes;
    memset(line, 0, m->v->cols * bits / 8);
    for (uint64_t j = 0; j < m->v->cols; j++)
        tsr_export_bits_put(line, (uint64_t)m->order[j] * bits, bits,
                            tsr_export_bits_get(codes, j * bits, bits));
    return line;
}

static tsr_status put_weight(struct tsr_export *x, const struct tsr_export_module *m,
                             unsigned char *dst)
{
    uint64_t       rows = m->v->rows, words = m->v->cols * m->f.bits / 32;
    unsigned char *line = tsr_new(words, 4);
    if (!line)
        return tsr_fail_nomem(x->err, words * 4, m->v->module);
    for (uint64_t r = 0; r < rows; r++) {
        const unsigned char *codes = codes_of(m, r, line);
        for (uint64_t w = 0; w < words; w++)
            memcpy(dst + (w * rows + r) * 4, codes + w * 4, 4);
    }
    free(line);
    return TSR_OK;
}

static void put_zeros(const struct tsr_export_module *m, bool v2, unsigned char *dst)
{
    uint64_t rows = m->v->rows, line = rows * m->f.bits / 8;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t g = 0; g < m->groups; g++)
            tsr_export_bits_put(dst + g * line, r * m->f.bits, m->f.bits,
                                tsr_export_module_zero(m, r, g) - (v2 ? 0u : 1u));
}

static tsr_status fill(struct tsr_export *x, const struct tsr_export_module *m,
                       const struct tsr_export_out *out, unsigned char *dst)
{
    const struct gptq *g = x->own;
    if (strcmp(out->suffix, ".qweight") == 0)
        return put_weight(x, m, dst);
    if (strcmp(out->suffix, ".qzeros") == 0)
        put_zeros(m, g->v2, dst);
    else if (strcmp(out->suffix, ".scales") == 0)
        tsr_export_module_scales_down(m, strcmp(out->dtype, "F16") == 0 ? TSR_F16 : TSR_BF16, dst);
    else
        for (uint64_t k = 0; k < m->v->cols; k++) {
            uint32_t group = m->f.group ? (uint32_t)(k / m->f.group) : 0;
            memcpy(dst + (m->order ? m->order[k] : k) * 4, &group, 4);
        }
    return TSR_OK;
}

/* ---- quantization_config --------------------------------------------------------------- */

static json_int_t group_size(const struct tsr_export_rule *r)
{
    return r->group ? (json_int_t)r->group : -1;
}

/* "+:^model\.layers\.0\.mlp\.up_proj$" */
static void pattern(const struct tsr_export_rule *r, char sign, char text[2 * TSR_STORED_MODULE])
{
    size_t n = 0, room = sizeof r->module * 2 - 4; /* for an escape and the end */
    text[n++] = sign;
    text[n++] = ':';
    text[n++] = '^';
    for (const char *s = r->module; *s && n < room; s++) {
        if (*s == '.')
            text[n++] = '\\';
        text[n++] = *s;
    }
    text[n++] = '$';
    text[n] = '\0';
}

static json_t *dynamic(const struct tsr_export_rules *rules, const struct tsr_export_rule *base)
{
    json_t *j = json_object();
    bool    ok = j != NULL;
    for (uint64_t i = 0; i < rules->n && ok; i++) {
        const struct tsr_export_rule *r = &rules->v[i];
        char                          text[2 * TSR_STORED_MODULE];
        if (r->packed ? r->bits == base->bits && r->group == base->group : r->head)
            continue;
        pattern(r, r->packed ? '+' : '-', text);
        json_t *v = r->packed
                        ? json_pack("{s:i, s:I}", "bits", (int)r->bits, "group_size", group_size(r))
                        : json_object();
        ok = json_object_set_new(j, text, v) == 0;
    }
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status config(struct tsr_export *x, json_t **out)
{
    const struct gptq            *g = x->own;
    const struct tsr_export_rule *base = tsr_export_rule_common(&x->rules);
    const char                   *version = g->v2 ? "gptq_v2" : "gptq";
    json_t                       *rules = dynamic(&x->rules, base);
    json_t *q = json_pack("{s:s, s:i, s:I, s:b, s:b, s:b, s:s, s:s, s:s, s:f, s:b, s:b, s:{s:[s]}}",
                          "quant_method", "gptq", "bits", (int)base->bits, "group_size",
                          group_size(base), "desc_act", g->ordered ? 1 : 0, "sym", g->v2 ? 0 : 1,
                          "lm_head", g->head ? 1 : 0, "checkpoint_format", version, "format",
                          version, "pack_dtype", "int32", "damp_percent", 0.01, "true_sequential",
                          1, "static_groups", 0, "meta", "quantizer", "tessera:" TSR_VERSION);
    bool    ok = rules && q;
    if (ok && json_object_size(rules) > 0)
        ok = json_object_set(q, "dynamic", rules) == 0;
    json_decref(rules);
    if (ok) {
        *out = q;
        return TSR_OK;
    }
    json_decref(q);
    return tsr_fail_nomem(x->err, 256, "quantization_config");
}

static tsr_status files(struct tsr_export *x, const json_t *config, const char *folder)
{
    return tsr_export_put_json(folder, "quantize_config.json", config, x->err);
}

const struct tsr_export_kind tsr_export_gptq = { .name = "gptq",
                                                 .own = sizeof(struct gptq),
                                                 .look = look,
                                                 .decide = decide,
                                                 .plan = plan,
                                                 .fill = fill,
                                                 .config = config,
                                                 .files = files };
