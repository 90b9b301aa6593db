#include "plan/cost/candidate_internal.h"

#include "base/f16.h"
#include "base/mem.h"
#include "model/own.h"
#include "quant/remarks.h"

#include <stdlib.h>
#include <string.h>

/* Names that all mean: as the model has it. */
static bool is_original(const char *text)
{
    static const char *const names[] = { "original", "keep", "f16", "bf16", "f32", "16" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            return true;
    return false;
}

static uint64_t largest(const struct tsr_plan_shape *s, uint64_t cls)
{
    const struct tsr_plan_shape_matrix *l = s->layer[cls].lin;
    uint64_t                            best = TSR_MODEL_DOWN;
    for (uint64_t i = 0; i < TSR_PLAN_LINEARS; i++)
        if (l[i].rows * l[i].cols > l[best].rows * l[best].cols)
            best = i;
    return best;
}

/* As a packed model has its layers: bits are the mean of its codes, the group the widest. */
static void kept(struct tsr_plan_candidate *c, const struct tsr_plan_shape *s)
{
    double bits = 0, weights = 0;
    c->group = 1;
    for (uint64_t l = 0; l < s->layers; l++)
        for (uint32_t k = 0; k < TSR_PLAN_LINEARS * tsr_plan_shape_groups(s); k++) {
            const struct tsr_plan_shape_matrix one =
                tsr_plan_shape_matrix_of(s, &s->layer[s->layer_class[l]],
                                         (int)(k % TSR_PLAN_LINEARS), k / TSR_PLAN_LINEARS);
            const struct tsr_plan_shape_matrix *m = &one;
            const struct tsr_format            *f = &m->packed;
            double n = (double)m->rows * (double)m->cols * (double)m->count;
            if (!(n > 0))
                continue;
            bool dense =
                !f->id || !tsr_model_format_known(f) || strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
            bool own = f->id && !tsr_model_format_known(f);
            bits +=
                n * (own ? 8.0 * (double)m->packed.outliers / ((double)m->rows * (double)m->cols)
                     : dense ? 8.0 * (double)tsr_dtype_size(m->dtype)
                             : f->bits);
            weights += n;
            if (dense || c->group == 0)
                continue;
            bool grouped = strcmp(f->id, TSR_FORMAT_LUT) != 0;
            c->group = !grouped || f->group == 0 ? 0 : f->group > c->group ? f->group : c->group;
        }
    c->bits = c->stored_bits = weights > 0 ? (uint32_t)(bits / weights + 0.5) : 0;
    (void)snprintf(c->name, sizeof c->name, "packed-%u", c->bits);
    (void)snprintf(c->scheme, sizeof c->scheme, "packed");
}

/* A matrix as a quantizer writes it: the layout, and bytes of codes and scales. */
static tsr_status as_written(const struct tsr_plan_candidate    *c,
                             const struct tsr_plan_shape_matrix *m, struct tsr_format *f,
                             uint64_t *bytes, uint64_t *rows, struct tsr_err *err)
{
    struct tsr_quant_plan p;
    uint64_t              n;
    struct tsr_matrix     w = { .struct_size = sizeof w,
                                .dtype = m->dtype,
                                .name = "a linear",
                                .rows = m->rows,
                                .cols = m->cols,
                                .row_stride = m->cols * tsr_dtype_size(m->dtype) };
    TSR_TRY(tsr_quantizer_plan(&c->q, &w, &p, err));
    uint64_t unit = p.rows_per_unit ? p.rows_per_unit : m->rows;
    uint64_t units = (m->rows + unit - 1) / unit;
    *f = p.format;
    *rows = unit;
    if (!f->id)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "quantizer '%s' names no format", c->q.name);
    if (!tsr_add(p.code_bytes, p.meta_bytes, &n) || !tsr_mul(n, units, bytes))
        return tsr_fail(err, TSR_E_UNSUPPORTED, "quantizer '%s' asks for more than the memory",
                        c->q.name);
    if (!tsr_model_format_known(f)) /* part of its kernel's name */
        f->bits = (uint32_t)(8.0 * (double)*bytes / ((double)m->rows * (double)m->cols) + 0.5);
    return TSR_OK;
}

static tsr_status open_one(struct tsr_plan_candidate *c, struct tsr_registry *r,
                           const struct tsr_plan_shape *s, const char *text, struct tsr_err *err)
{
    const struct tsr_plan_shape_matrix *m = &s->layer[0].lin[largest(s, 0)];
    const char                         *colon = strchr(text, ':');
    struct tsr_format                   f;
    uint64_t                            bytes = 0, unit;
    if (is_original(text) && *s->packed) {
        kept(c, s);
        return TSR_OK;
    }
    if (is_original(text)) {
        c->bits = c->stored_bits = (uint32_t)(8 * tsr_dtype_size(m->dtype));
        c->group = 1;
        (void)snprintf(c->name, sizeof c->name, "original");
        (void)snprintf(c->scheme, sizeof c->scheme, "original");
        return TSR_OK;
    }
    TSR_TRY(tsr_plugin_spec_open(&c->spec, r, TSR_KIND_QUANTIZER, text, err));
    tsr_status st = tsr_quant_remarks_open(NULL, &c->q, r, &c->spec.found, c->spec.found.host,
                                           c->spec.options, err);
    if (st != TSR_OK) {
        c->q.self = NULL;
        return tsr_err_prefix(err, st == TSR_E_CONFIG ? TSR_E_INPUT : st, "candidate '%s'", text);
    }
    st = as_written(c, m, &f, &bytes, &unit, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st == TSR_E_UNSUPPORTED ? TSR_E_INPUT : st, "candidate '%s'",
                              text);
    bool ours = tsr_model_format_known(&f);
    c->bits = ours && strcmp(f.id, TSR_FORMAT_FLOAT) == 0 ? (uint32_t)(8 * tsr_dtype_size(f.dtype))
              : ours                                      ? f.bits
                     : (uint32_t)(8 * bytes / (m->rows * m->cols));
    c->stored_bits = c->bits;
    c->group = ours && strcmp(f.id, TSR_FORMAT_FLOAT) != 0 && strcmp(f.id, TSR_FORMAT_LUT) != 0
                   ? f.group
                   : 0;
    (void)snprintf(c->scheme, sizeof c->scheme, "%s", c->q.name);
    (void)snprintf(c->options, sizeof c->options, "%s", colon ? colon + 1 : "");
    (void)snprintf(c->name, sizeof c->name, "%s-%u", c->q.name, c->bits);
    return TSR_OK;
}

/* "gptq-4" twice becomes "gptq-4" and "gptq-4:group=32". */
static tsr_status tell_apart(struct tsr_plan_candidates *c, struct tsr_err *err)
{
    for (uint64_t i = 1; i < c->n; i++) {
        struct tsr_plan_candidate *a = &c->v[i];
        for (uint64_t k = 0; k < i; k++)
            if (strcmp(a->name, c->v[k].name) == 0) {
                size_t at = strlen(a->name);
                (void)snprintf(a->name + at, sizeof a->name - at, ":%s", a->options);
                break;
            }
        for (uint64_t k = 0; k < i; k++)
            if (strcmp(a->name, c->v[k].name) == 0)
                return tsr_fail(err, TSR_E_INPUT, "the candidate '%s' is there twice", a->name);
    }
    return TSR_OK;
}

tsr_status tsr_plan_candidates_open(struct tsr_plan_candidates *c, struct tsr_registry *r,
                                    const struct tsr_plan_shape *shape, const char *const *texts,
                                    uint64_t n, struct tsr_err *err)
{
    *c = (struct tsr_plan_candidates){ 0 };
    if (n == 0 || n > TSR_PLAN_CANDIDATES)
        return tsr_fail(err, TSR_E_INPUT, "%llu candidates; there must be 1 to %u",
                        (unsigned long long)n, TSR_PLAN_CANDIDATES);
    c->v = tsr_new(TSR_PLAN_CANDIDATES,
                   sizeof *c->v); /* mixes point to the others: they stay in place */
    if (!c->v)
        return tsr_fail_nomem(err, TSR_PLAN_CANDIDATES * sizeof *c->v, "candidates");
    tsr_status st = TSR_OK;
    for (; c->n < n && st == TSR_OK; c->n++)
        st = strncmp(texts[c->n], TSR_CANDIDATE_MIX, strlen(TSR_CANDIDATE_MIX)) == 0
                 ? tsr_plan_candidate_open_mix(c, c->n, texts, shape, err)
                 : open_one(&c->v[c->n], r, shape, texts[c->n], err);
    if (st == TSR_OK)
        st = tell_apart(c, err);
    if (st != TSR_OK)
        tsr_plan_candidates_close(c);
    return st;
}

void tsr_plan_candidates_close(struct tsr_plan_candidates *c)
{
    for (uint64_t i = 0; i < c->n; i++) {
        tsr_quantizer_close(&c->v[i].q);
        tsr_plugin_spec_close(&c->v[i].spec);
    }
    free(c->v);
    *c = (struct tsr_plan_candidates){ 0 };
}

tsr_status tsr_plan_candidate_matrix(const struct tsr_plan_candidate    *c,
                                     const struct tsr_plan_shape_matrix *m, struct tsr_format *f,
                                     uint64_t *bytes, struct tsr_err *err)
{
    uint64_t unit;
    if ((!c || !c->q.self) && m->packed.id) {
        *f = m->packed;
        uint64_t row = tsr_model_format_known(f) && tsr_model_format_fits(f, m->cols)
                           ? strcmp(f->id, TSR_FORMAT_FLOAT) == 0
                                 ? m->cols * tsr_dtype_size(f->dtype)
                                 : tsr_model_format_code_bytes(f, m->cols) +
                                       tsr_model_format_meta_bytes(f, m->cols)
                           : m->cols * 4; /* decoded */
        if (!tsr_mul(m->rows, row, bytes) || !tsr_add(*bytes, m->ordered ? m->cols * 4 : 0, bytes))
            return tsr_fail(err, TSR_E_INPUT, "a matrix is larger than the address space");
        return TSR_OK;
    }
    if (!c || !c->q.self) {
        *f = (struct tsr_format){ .struct_size = sizeof *f,
                                  .dtype = m->dtype,
                                  .id = TSR_FORMAT_FLOAT };
        if (!tsr_mul(m->rows, m->cols * tsr_dtype_size(m->dtype), bytes))
            return tsr_fail(err, TSR_E_INPUT, "a matrix is larger than the address space");
        return TSR_OK;
    }
    TSR_TRY(as_written(c, m, f, bytes, &unit, err));
    if (!tsr_model_format_known(f) &&
        (!tsr_mul(m->rows, m->cols, bytes) || !tsr_mul(*bytes, 4, bytes)))
        return tsr_fail(err, TSR_E_INPUT, "a matrix is larger than the address space");
    return TSR_OK;
}

tsr_status tsr_plan_candidate_own(const struct tsr_plan_candidate    *c,
                                  const struct tsr_plan_shape_matrix *m, uint64_t *bytes,
                                  uint64_t *block, struct tsr_err *err)
{
    struct tsr_plan_shape_matrix whole = *m; /* a unit has all columns */
    struct tsr_format            f = m->packed;
    uint64_t                     unit = f.group, all = f.outliers, n;
    *bytes = *block = 0;
    whole.cols = m->whole_cols ? m->whole_cols : m->cols;
    if (c && c->q.self)
        TSR_TRY(as_written(c, &whole, &f, &all, &unit, err));
    if (!f.id || tsr_model_format_known(&f))
        return TSR_OK;
    if (!(c && c->q.self) && m->whole_rows > m->rows)
        all = all / m->whole_rows * m->rows + all % m->whole_rows * m->rows / m->whole_rows;
    n = tsr_model_own_block(unit, whole.cols);
    n = n < m->rows ? n : m->rows;
    *bytes = all;
    /* values, and the backend's copy of them */
    return tsr_mul(n, m->cols, &n) && tsr_mul(n, 2 * sizeof(float), block)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "a matrix is larger than the address space");
}

tsr_status tsr_plan_candidate_kernel(const struct tsr_plan_candidate *c,
                                     const struct tsr_plan_shape *s, uint64_t cls,
                                     char kernel[TSR_PLAN_KERNEL_TEXT], struct tsr_err *err)
{
    struct tsr_format f;
    uint64_t          bytes;
    TSR_TRY(tsr_plan_candidate_matrix(c, &s->layer[cls].lin[largest(s, cls)], &f, &bytes, err));
    tsr_plan_kernel_name(&f, kernel);
    return TSR_OK;
}

void tsr_plan_kernel_name(const struct tsr_format *f, char kernel[TSR_PLAN_KERNEL_TEXT])
{
    char name[64];
    if (f->id && !tsr_model_format_known(f) && strchr(f->id, '.') && f->bits) {
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "%.63s:%u", f->id, f->bits);
    } else if (!f->id || !tsr_model_format_known(f)) {
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "f32");
    } else if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "%s",
                       f->dtype == TSR_F32   ? "f32"
                       : f->dtype == TSR_F16 ? "f16"
                                             : "bf16");
    } else if (strcmp(f->id, TSR_FORMAT_INT) == 0 || strcmp(f->id, TSR_FORMAT_AFFINE) == 0 ||
               strcmp(f->id, TSR_FORMAT_TABLE) == 0) {
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "%s%u", /* alike: int2.md, table.md */
                       f->act8 == TSR_ACT8_LLM ? "llm" : "int", f->bits);
    } else if (strcmp(f->id, TSR_FORMAT_LUT) == 0) {
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "lut%u%s", f->bits, f->outliers ? "o" : "");
    } else { /* "tessera.mx/1 with fp4_e2m1" */
        tsr_model_format_name(f, name, sizeof name);
        const char *element = strrchr(name, ' ');
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "%s%.20s",
                       element && strncmp(element + 1, "int", 3) == 0 ? "mx" : "",
                       element ? element + 1 : name);
    }
}
