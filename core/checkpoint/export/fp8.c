/* fp8: E4M3 codes with a scale for each block of rows and columns, as DeepSeek and Qwen publish models, or with one for
 * each matrix.  A packed row has its own scales: rows of a block must have the same. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fp8 {
    uint64_t block;  /* rows and columns of a block; 0: the whole matrix */
    bool     powers; /* every scale is a power of two */
};

static float scale_of(const struct tsr_export_module *m, uint64_t r, uint64_t g)
{
    if (m->form == TSR_EXPORT_FORM_MX)
        return ldexpf(1.0f, (int)tsr_export_module_meta(m, r)[g] - 127);
    return tsr_export_module_scale(m, r, g);
}

bool tsr_export_fp8_alike(const struct tsr_export_module *m, uint64_t rows, uint64_t *first)
{
    for (uint64_t r = 0; r < m->v->rows; r++)
        for (uint64_t g = 0; g < m->groups; g++)
            if (scale_of(m, r, g) != scale_of(m, r - r % rows, g)) {
                *first = r;
                return false;
            }
    return true;
}

struct tsr_export_out tsr_export_fp8_out(const struct tsr_export_module *m, const char *suffix,
                                         uint64_t rows, uint32_t powers)
{
    uint32_t dtype = m->form == TSR_EXPORT_FORM_MX ? powers : m->f.scale_dtype;
    uint64_t n = m->v->rows / rows + (m->v->rows % rows != 0);
    return (struct tsr_export_out){
        suffix, tsr_dtype_name(dtype), (uint32_t)tsr_dtype_size(dtype), 2, { n, m->groups }
    };
}

void tsr_export_fp8_scales(const struct tsr_export_module *m, const struct tsr_export_out *out,
                           uint64_t rows, unsigned char *dst)
{
    uint64_t inexact = 0;
    for (uint64_t r = 0; r < m->v->rows; r += rows)
        for (uint64_t g = 0; g < m->groups; g++, dst += out->size)
            (void)tsr_export_put(dst, out->size == 4 ? TSR_F32 : TSR_BF16, scale_of(m, r, g),
                                 &inexact); /* exact: its own dtype, or a power of two */
}

static tsr_status refuse(struct tsr_export *x, const struct tsr_export_module *m, const char *why)
{
    return tsr_fail(x->err, TSR_E_INPUT, "%s: \"%s\" cannot be stored as fp8: %s", x->path,
                    m->v->module, why);
}

static tsr_status check(struct tsr_export *x, const struct tsr_export_module *m)
{
    struct fp8 *q = x->own;
    uint64_t    cols = m->v->cols, row = 0;
    if (!tsr_export_is_fp8(m))
        return refuse(x, m, "its weights are not E4M3 numbers with scales; export to hf");
    if (m->v->kind == TSR_MODEL_STORED_HEAD)
        return refuse(x, m, "the format has no LM head; leave it unpacked (keep: true)");
    if (m->v->stack)
        return refuse(x, m, "the experts of a layer are one tensor; export to hf");
    if (m->f.group ? m->f.group != q->block : q->block && cols > q->block)
        return tsr_fail(
            x->err, TSR_E_INPUT,
            "%s: \"%s\" cannot be stored as fp8: %llu of its columns share a scale, %llu "
            "in other linears, and the format has one size of blocks",
            x->path, m->v->module, (unsigned long long)(m->f.group ? m->f.group : cols),
            (unsigned long long)q->block);
    if (!tsr_export_fp8_alike(m, q->block ? q->block : m->v->rows, &row))
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: \"%s\" cannot be stored as fp8: row %llu has another scale than the "
                        "first of its block of %llu rows; export to compressed-tensors",
                        x->path, m->v->module, (unsigned long long)row,
                        (unsigned long long)(q->block ? q->block : m->v->rows));
    q->powers = q->powers && m->form == TSR_EXPORT_FORM_MX;
    return TSR_OK;
}

static tsr_status look(struct tsr_export *x, const struct tsr_model_stored_view *v)
{
    return tsr_export_rule_look(x, v, check);
}

static tsr_status plan(struct tsr_export *x, const struct tsr_export_module *m,
                       struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n)
{
    const struct fp8 *q = x->own;
    *n = 0;
    if (m->form == TSR_EXPORT_FORM_DENSE)
        return TSR_OK;
    out[0] = (struct tsr_export_out){ ".weight", "F8_E4M3", 1, 2, { m->v->rows, m->v->cols } };
    out[1] = tsr_export_fp8_out(m, q->block ? ".weight_scale_inv" : ".weight_scale",
                                q->block ? q->block : m->v->rows, TSR_F32);
    if (!q->block)
        out[1].rank = 1;
    *n = 2;
    return TSR_OK;
}

void tsr_export_fp8_codes(const struct tsr_export_module *m, unsigned char *dst)
{
    for (uint64_t r = 0; r < m->v->rows; r++)
        memcpy(dst + r * m->v->cols, tsr_export_module_codes(m, r), m->v->cols);
}

static tsr_status fill(struct tsr_export *x, const struct tsr_export_module *m,
                       const struct tsr_export_out *out, unsigned char *dst)
{
    const struct fp8 *q = x->own;
    if (strcmp(out->suffix, ".weight") == 0)
        tsr_export_fp8_codes(m, dst);
    else
        tsr_export_fp8_scales(m, out, q->block ? q->block : m->v->rows, dst);
    return TSR_OK;
}

static tsr_status config(struct tsr_export *x, json_t **out)
{
    const struct fp8 *q = x->own;
    *out =
        json_pack("{s:s, s:s, s:s, s:o}", "quant_method", "fp8", "fmt", "e4m3", "activation_scheme",
                  "dynamic", "modules_to_not_convert", tsr_export_rules_kept(x, true));
    bool ok = *out != NULL;
    if (ok && q->block)
        ok = json_object_set_new(*out, "weight_block_size",
                                 json_pack("[I, I]", (json_int_t)q->block, (json_int_t)q->block)) ==
             0;
    if (ok && q->powers)
        ok = json_object_set_new(*out, "scale_fmt", json_string("ue8m0")) == 0;
    return ok ? TSR_OK : tsr_fail_nomem(x->err, 256, "quantization_config");
}

/* The size of blocks is that of the linears that are wider than one. */
static tsr_status find_block(struct tsr_export *x)
{
    const struct tsr_model_overlay *o = x->o ? x->o : x->m->packed;
    struct fp8                     *q = x->own;
    q->powers = true;
    for (uint64_t l = 0; o && l < o->layers; l++)
        for (uint64_t i = 0; i < o->linears; i++) {
            const struct tsr_model_packed *p = o->lin[l][i];
            if (p && p->format.group < p->cols && p->format.group > q->block)
                q->block = p->format.group;
        }
    return TSR_OK;
}

const struct tsr_export_kind tsr_export_fp8 = { .name = "fp8",
                                                .own = sizeof(struct fp8),
                                                .open = find_block,
                                                .look = look,
                                                .decide = tsr_export_rules_need_packed,
                                                .plan = plan,
                                                .fill = fill,
                                                .config = config };
