/* bitsandbytes.
 *
 *   int8   weight I8 [N, K]   SCB F32 [N]: w = weight * SCB / 127   weight_format U8: 0, rows
 *   4 bit  weight, N*K/2 bytes, the even element in the high nibble, as one run over all rows
 *          weight.absmax: one per block of that run; U8 with a second level of blocks
 *          weight.quant_map F32 [16]   weight.quant_state.bitsandbytes__nf4: JSON */
#include "base/mem.h"
#include "checkpoint/import/import.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STATE_CAP 65536u

struct bnb {
    bool   four;
    double threshold; /* of LLM.int8(): activations from which columns stay 16-bit */
};

static tsr_status bnb_open(struct tsr_import *im)
{
    struct bnb *b = im->own = tsr_new(1, sizeof *b);
    bool        eight = false;
    if (!b)
        return tsr_fail_nomem(im->err, sizeof *b, im->where);
    b->threshold = 6.0;
    TSR_TRY(tsr_json_bool(im->config, im->where, "load_in_8bit", false, &eight, im->err));
    TSR_TRY(tsr_json_bool(im->config, im->where, "load_in_4bit", false, &b->four, im->err));
    TSR_TRY(tsr_json_real(im->config, im->where, "llm_int8_threshold", false, 0.0, FLT_MAX,
                          &b->threshold, im->err));
    if (eight == b->four)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: one of \"load_in_8bit\" and \"load_in_4bit\" must be true", im->where);
    if (b->threshold == 0.0) /* the writer's word for: none stays */
        b->threshold = FLT_MAX;
    return TSR_OK;
}

/* ---- int8 --------------------------------------------------------------------------------- */

struct bytes {
    const uint8_t *p;
    uint64_t       cols;
};

static void int8_rows(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                      uint64_t stride)
{
    const struct bytes *b = source;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < b->cols; k++)
            dst[i * stride + k] = b->p[(first + i) * b->cols + k] ^ 0x80u;
}

static tsr_status check_row_major(struct tsr_import *im, const char *name)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, name, "weight_format");
    uint8_t                      *v;
    if (!e)
        return TSR_OK;
    TSR_TRY(tsr_import_need(im, name, "weight_format", "U8", 0, NULL, &e));
    TSR_TRY(tsr_import_bytes(im, e, (void **)&v));
    uint8_t format = *v;
    free(v);
    if (format != 0)
        return tsr_import_fail(im, e, "is %u; rows as they are (0) can be read", format);
    return TSR_OK;
}

static tsr_status read_int8(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                            struct tsr_model_packed **out)
{
    const struct bnb             *b = im->own;
    const uint64_t                shape[2] = { rows, cols };
    struct tsr_checkpoint_stored *w, *c;
    float                        *scales;
    void                         *data = NULL;
    TSR_TRY(tsr_import_need(im, name, "weight", "I8", 2, shape, &w));
    TSR_TRY(tsr_import_need(im, name, "SCB", "F32", 1, &rows, &c));
    TSR_TRY(check_row_major(im, name));
    TSR_TRY(tsr_import_floats(im, c, &scales));
    for (uint64_t n = 0; n < rows; n++)
        scales[n] /= 127.0f;
    tsr_status            st = im->headers_only ? TSR_OK : tsr_import_bytes(im, w, &data);
    struct bytes          source = { data, cols };
    struct tsr_import_int t = { .bits = 8,
                                .scales = scales,
                                .act8 = TSR_ACT8_LLM,
                                .act8_threshold = b->threshold,
                                .rows = int8_rows,
                                .source = &source };
    if (st == TSR_OK)
        st = tsr_import_put_int(im, name, rows, cols, &t, out);
    free(scales);
    free(data);
    return st;
}

/* ---- 4 bit -------------------------------------------------------------------------------- */

struct four {
    uint64_t       rows, cols, block, blocks; /* block: elements of the flat matrix */
    float         *map, *absmax;
    unsigned char *data;
};

/* The JSON stored with the tensor; nested: that of absmax. */
struct state {
    int64_t block, nested_block;
    double  nested_offset;
};

static tsr_status parse_state(struct tsr_import *im, const char *where, const json_t *j,
                              const struct four *f, struct state *s)
{
    json_t *shape = NULL;
    s->nested_block = 0;
    s->nested_offset = 0.0;
    if (!json_is_object(j))
        return tsr_fail(im->err, TSR_E_INPUT, "%s: is not a JSON object", where);
    TSR_TRY(tsr_json_int(j, where, "blocksize", true, 2, INT64_C(1) << 30, &s->block, im->err));
    TSR_TRY(tsr_json_int(j, where, "nested_blocksize", false, 1, INT64_C(1) << 30, &s->nested_block,
                         im->err));
    TSR_TRY(tsr_json_real(j, where, "nested_offset", false, -FLT_MAX, FLT_MAX, &s->nested_offset,
                          im->err));
    TSR_TRY(tsr_json_sub(j, where, "shape", true, JSON_ARRAY, &shape, im->err));
    json_int_t n = json_integer_value(json_array_get(shape, 0));
    json_int_t k = json_integer_value(json_array_get(shape, 1));
    if (json_array_size(shape) != 2 || n < 0 || k < 0 || (uint64_t)n != f->rows ||
        (uint64_t)k != f->cols)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"shape\" is not [%llu, %llu], which config.json asks for", where,
                        (unsigned long long)f->rows, (unsigned long long)f->cols);
    return TSR_OK;
}

static tsr_status read_state(struct tsr_import *im, const char *name, const struct four *f,
                             struct state *s)
{
    static const char *const      kinds[] = { "weight.quant_state.bitsandbytes__nf4",
                                              "weight.quant_state.bitsandbytes__fp4" };
    const char                   *kind = kinds[tsr_import_find(im, name, kinds[1]) ? 1 : 0];
    struct tsr_checkpoint_stored *e = tsr_import_find(im, name, kind);
    uint64_t                      n = e ? tsr_import_elements(e) : 0;
    char                         *text;
    char                          where[400];
    json_t                       *j;
    TSR_TRY(tsr_import_need(im, name, kind, "U8", 1, &n, &e));
    if (n > STATE_CAP)
        return tsr_import_fail(im, e, "has %llu bytes, more than %u", (unsigned long long)n,
                               STATE_CAP);
    TSR_TRY(tsr_import_bytes(im, e, (void **)&text));
    (void)snprintf(where, sizeof where, "%.150s: \"%.200s\"",
                   tsr_checkpoint_shards_path(im->shards, e), e->t->name);
    tsr_status st = tsr_json_parse(&j, where, text, n, 4, im->err);
    free(text);
    if (st != TSR_OK)
        return st;
    st = parse_state(im, where, j, f, s);
    json_decref(j);
    return st;
}

/* absmax of absmax: value = nested_map[code] * nested_absmax[block] + offset */
static tsr_status read_nested(struct tsr_import *im, const char *name, struct four *f,
                              const struct state *s)
{
    const uint64_t                n = 256;
    struct tsr_checkpoint_stored *codes, *map, *max;
    uint8_t                      *raw = NULL;
    float                        *values = NULL, *scales = NULL;
    if (s->nested_block == 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\": \"weight.absmax\" is quantized, but its quant_state has "
                        "no \"nested_blocksize\"",
                        im->where, name);
    uint64_t size = (uint64_t)s->nested_block, blocks = (f->blocks + size - 1) / size;
    TSR_TRY(tsr_import_need(im, name, "weight.absmax", "U8", 1, &f->blocks, &codes));
    TSR_TRY(tsr_import_need(im, name, "weight.nested_quant_map", "F32", 1, &n, &map));
    TSR_TRY(tsr_import_need(im, name, "weight.nested_absmax", "F32", 1, &blocks, &max));
    tsr_status st = tsr_import_bytes(im, codes, (void **)&raw);
    if (st == TSR_OK)
        st = tsr_import_floats(im, map, &values);
    if (st == TSR_OK)
        st = tsr_import_floats(im, max, &scales);
    if (st == TSR_OK && !(f->absmax = tsr_new(f->blocks, sizeof *f->absmax)))
        st = tsr_fail_nomem(im->err, f->blocks * sizeof *f->absmax, name);
    for (uint64_t i = 0; st == TSR_OK && i < f->blocks; i++) {
        f->absmax[i] = values[raw[i]] * scales[i / size] + (float)s->nested_offset;
        if (!isfinite(f->absmax[i]))
            st = tsr_import_fail(im, codes, "gives %g for block %llu; the file is damaged",
                                 (double)f->absmax[i], (unsigned long long)i);
    }
    free(raw);
    free(values);
    free(scales);
    return st;
}

static tsr_status read_absmax(struct tsr_import *im, const char *name, struct four *f,
                              const struct state *s)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, name, "weight.absmax");
    if (e && e->t->dtype == TSR_U8)
        return read_nested(im, name, f, s);
    TSR_TRY(tsr_import_need(im, name, "weight.absmax", "F32", 1, &f->blocks, &e));
    return tsr_import_floats(im, e, &f->absmax);
}

static void four_codes(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                       uint64_t stride)
{
    const struct four *f = source;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (first + i) * f->cols;
        memset(dst + i * stride, 0, stride);
        for (uint64_t k = 0; k < f->cols; k++, at++) {
            unsigned code = (uint32_t)f->data[at / 2] >> (at % 2 ? 0 : 4) & 15u;
            dst[i * stride + k / 2] |= (unsigned char)(code << 4 * (k % 2));
        }
    }
}

static void four_values(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                        uint64_t stride)
{
    const struct four *f = source;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (first + i) * f->cols;
        float   *to = (float *)(void *)(dst + i * stride);
        for (uint64_t k = 0; k < f->cols; k++, at++)
            to[k] = f->map[(uint32_t)f->data[at / 2] >> (at % 2 ? 0 : 4) & 15u] *
                    f->absmax[at / f->block];
    }
}

/* A group of columns that lies in one block in every row: blocks run on over the ends of rows. */
static uint64_t columns_of_block(const struct four *f)
{
    uint64_t a = f->block, b = f->cols;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static tsr_status put_four(struct tsr_import *im, const char *name, struct four *f,
                           struct tsr_model_packed **out)
{
    uint64_t group = columns_of_block(f), groups = f->cols / group;
    if (group != f->cols && (group < 16 || (group & (group - 1)) != 0))
        return tsr_import_put_wide(im, name, f->rows, f->cols, four_values, f,
                                   "4-bit blocks that end in a row at places that are no multiple "
                                   "of 16 columns, which no packed layout has, are widened to F32",
                                   out);
    float *scales = tsr_new(f->rows, groups * sizeof *scales);
    if (!scales)
        return tsr_fail_nomem(im->err, f->rows * groups * sizeof *scales, name);
    for (uint64_t i = 0; i < f->rows * groups; i++)
        scales[i] = f->absmax[i * group / f->block];
    struct tsr_import_table t = { .bits = 4,
                                  .group = group,
                                  .table = f->map,
                                  .scales = scales,
                                  .rows = four_codes,
                                  .source = f };
    tsr_status              st = tsr_import_put_table(im, name, f->rows, f->cols, &t, out);
    free(scales);
    return st;
}

static tsr_status read_four(struct tsr_import *im, const char *name, struct four *f,
                            struct tsr_model_packed **out)
{
    const uint64_t                sixteen = 16;
    uint64_t                      elements;
    struct state                  s = { .block = 2 }; /* the least that read_state() takes */
    struct tsr_checkpoint_stored *w = tsr_import_find(im, name, "weight"), *map;
    if (!tsr_mul(f->rows, f->cols, &elements) || w->t->end - w->t->begin != (elements + 1) / 2)
        return tsr_import_fail(im, w, "has %llu bytes; config.json asks for %llu with 4 bits",
                               (unsigned long long)(w->t->end - w->t->begin),
                               (unsigned long long)((elements + 1) / 2));
    tsr_import_take(im, w); /* of any dtype: bnb_4bit_quant_storage */
    TSR_TRY(read_state(im, name, f, &s));
    f->block = (uint64_t)s.block;
    f->blocks = (elements + f->block - 1) / f->block;
    TSR_TRY(tsr_import_need(im, name, "weight.quant_map", "F32", 1, &sixteen, &map));
    TSR_TRY(tsr_import_floats(im, map, &f->map));
    TSR_TRY(read_absmax(im, name, f, &s));
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, w, (void **)&f->data));
    return put_four(im, name, f, out);
}

static tsr_status bnb_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                           struct tsr_model_packed **out)
{
    const struct bnb *b = im->own;
    if (!tsr_import_find(im, name, "weight"))
        return TSR_OK; /* binding says that it is missing */
    if (!b->four)
        return tsr_import_find(im, name, "SCB") ? read_int8(im, name, rows, cols, out) : TSR_OK;
    if (!tsr_import_find(im, name, "weight.absmax"))
        return TSR_OK;
    struct four f = { .rows = rows, .cols = cols };
    tsr_status  st = read_four(im, name, &f, out);
    free(f.map);
    free(f.absmax);
    free(f.data);
    return st;
}

const struct tsr_importer tsr_importer_bnb = {
    .method = "bitsandbytes",
    .summary = "bitsandbytes int8 (LLM.int8) and 4 bit (nf4, fp4, with nested scales)",
    .open = bnb_open,
    .close = free,
    .read = bnb_read,
};
