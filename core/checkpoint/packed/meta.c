/* What a packed matrix is, as JSON in the metadata of its file. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLS (INT64_C(1) << 40)

/* Takes the reference; v NULL: out of memory. */
static bool put(json_t *j, const char *key, json_t *v)
{
    return json_object_set_new(j, key, v) == 0;
}

static bool put_int(json_t *j, const char *key, uint64_t v)
{
    return put(j, key, json_integer((json_int_t)v));
}

static bool put_known(json_t *j, const char *key, double v)
{
    return !isfinite(v) || put(j, key, json_real(v));
}

/* Scales may be codes under other scales. */
static bool has_levels(const struct tsr_format *f)
{
    return strcmp(f->id, TSR_FORMAT_AFFINE) == 0 || strcmp(f->id, TSR_FORMAT_TABLE) == 0;
}

/* Codes are small floats or signed integers. */
static bool has_element(const struct tsr_format *f)
{
    return strcmp(f->id, TSR_FORMAT_MX) == 0 || strcmp(f->id, TSR_FORMAT_FP8) == 0;
}

static bool put_table(json_t *j, const struct tsr_format *f)
{
    json_t *table = f->bits <= 4 ? json_array() : NULL;
    bool    ok = f->bits > 4 || put(j, "table", table);
    for (uint32_t i = 0; f->bits <= 4 && i >> f->bits == 0; i++)
        ok = ok && json_array_append_new(table, json_real((double)f->table[i])) == 0;
    if (f->element)
        ok = ok && put(j, "scale_element", json_string("fp8_e4m3"));
    return ok;
}

static bool put_format(json_t *j, const struct tsr_format *f)
{
    bool ok = put(j, "format", json_string(f->id));
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0)
        return ok && put(j, "dtype", json_string(tsr_dtype_name(f->dtype)));
    if (!tsr_model_format_known(f))
        return ok;
    ok = ok && put_int(j, "bits", f->bits);
    if (strcmp(f->id, TSR_FORMAT_LUT) != 0)
        ok = ok && put_int(j, "group", f->group);
    if (has_levels(f))
        ok = ok && put_int(j, "scale_bits", f->scale_bits);
    if (strcmp(f->id, TSR_FORMAT_TABLE) == 0)
        ok = ok && put_table(j, f);
    if (strcmp(f->id, TSR_FORMAT_MX) != 0 && (!has_levels(f) || f->scale_bits == 0))
        ok = ok && put(j, "scales", json_string(tsr_dtype_name(f->scale_dtype)));
    if (strcmp(f->id, TSR_FORMAT_INT) == 0)
        ok = ok && put(j, "zero", json_string(f->zero == TSR_ZERO_STORED ? "stored" : "mid"));
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        ok = ok && put_int(j, "outliers", f->outliers);
    if (has_element(f))
        ok = ok && put_int(j, "exponent_bits", f->element >> 8) &&
             put_int(j, "mantissa_bits", f->element & 0xff);
    if (strcmp(f->id, TSR_FORMAT_MX) == 0)
        ok = ok && put_int(j, "scale_bits", f->scale_bits);
    if (f->act8 == TSR_ACT8_LLM)
        ok = ok && put(j, "act8", json_string("llm")) &&
             put(j, "act8_threshold", json_real(f->act8_threshold));
    return ok;
}

tsr_status tsr_packed_describe(const struct tsr_model_packed *p, char **text, struct tsr_err *err)
{
    json_t *j = json_object();
    bool    ok = j && put_format(j, &p->format) && put_int(j, "cols", p->cols) &&
              put(j, "source", json_string(tsr_dtype_name(p->source_dtype))) &&
              put(j, "plugin", json_string(p->plugin)) &&
              put(j, "squared_error", json_real(p->squared_error));
    ok = ok && put_known(j, "loss", p->report.loss) &&
         put_known(j, "rtn_loss", p->report.rtn_loss) && put_known(j, "damping", p->report.damping);
    if (ok && p->ordered)
        ok = put(j, "ordered", json_true());
    if (ok && p->report.retries)
        ok = put_int(j, "retries", p->report.retries);
    if (ok && p->own.unit)
        ok = put(j, "use", json_string(p->own.use)) && put_int(j, "rows", p->rows) &&
             put_int(j, "unit_rows", p->own.unit) &&
             put_int(j, "unit_code_bytes", p->own.code_bytes) &&
             put_int(j, "unit_meta_bytes", p->own.meta_bytes);
    uint64_t   n;
    tsr_status st = ok ? tsr_json_text(j, JSON_COMPACT | JSON_REAL_PRECISION(17), text, &n, err)
                       : tsr_fail_nomem(err, 256, "the description of packed weights");
    json_decref(j);
    return st;
}

static tsr_status get_int(const json_t *j, const char *name, const char *key, int64_t lo,
                          int64_t hi, uint64_t *out, struct tsr_err *err)
{
    int64_t v = 0;
    TSR_TRY(tsr_json_int(j, name, key, true, lo, hi, &v, err));
    *out = (uint64_t)v;
    return TSR_OK;
}

static tsr_status get_dtype(const json_t *j, const char *name, const char *key, bool bf16,
                            uint32_t *out, struct tsr_err *err)
{
    static const uint32_t all[] = { TSR_F32, TSR_F16, TSR_BF16 };
    const char           *text = "";
    TSR_TRY(tsr_json_str(j, name, key, true, &text, err));
    for (unsigned i = 0; i < (bf16 ? 3u : 2u); i++)
        if (strcmp(text, tsr_dtype_name(all[i])) == 0) {
            *out = all[i];
            return TSR_OK;
        }
    return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\": \"%.40s\" is not F32%s F16%s", name, key, text,
                    bf16 ? "," : " or", bf16 ? " or BF16" : "");
}

static tsr_status get_element(const json_t *j, const char *name, struct tsr_format *f,
                              struct tsr_err *err)
{
    uint64_t exponent, mantissa, scale = 0;
    TSR_TRY(get_int(j, name, "exponent_bits", 0, 7, &exponent, err));
    TSR_TRY(get_int(j, name, "mantissa_bits", 0, 7, &mantissa, err));
    if (strcmp(f->id, TSR_FORMAT_MX) == 0)
        TSR_TRY(get_int(j, name, "scale_bits", 4, 8, &scale, err));
    f->element = TSR_MX_ELEMENT(exponent, mantissa);
    f->scale_bits = (uint32_t)scale;
    return TSR_OK;
}

static tsr_status get_act8(const json_t *j, const char *name, struct tsr_format *f,
                           struct tsr_err *err)
{
    const char *act8 = NULL;
    TSR_TRY(tsr_json_str(j, name, "act8", false, &act8, err));
    if (!act8)
        return TSR_OK;
    if (strcmp(act8, "llm") != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"act8\": \"%.40s\" is not \"llm\"", name, act8);
    f->act8 = TSR_ACT8_LLM;
    return tsr_json_real(j, name, "act8_threshold", true, 0.0, HUGE_VAL, &f->act8_threshold, err);
}

static tsr_status get_table(const json_t *j, const char *name, struct tsr_format *f,
                            struct tsr_err *err)
{
    json_t     *table = NULL;
    const char *element = NULL;
    TSR_TRY(tsr_json_sub(j, name, "table", f->bits <= 4, JSON_ARRAY, &table, err));
    TSR_TRY(tsr_json_str(j, name, "scale_element", false, &element, err));
    if (json_array_size(table) != (f->bits <= 4 ? (size_t)1 << f->bits : 0))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"table\" has %zu values, not 2^bits, or none with more than 4 bits",
                        name, json_array_size(table));
    for (uint32_t i = 0; i < json_array_size(table); i++) {
        const json_t *v = json_array_get(table, i);
        f->table[i] = (float)json_number_value(v);
        if (!json_is_number(v) || !isfinite(f->table[i]))
            return tsr_fail(err, TSR_E_INPUT, "%s: \"table\": value %u is not an F32 number", name,
                            i);
    }
    if (element && strcmp(element, "fp8_e4m3") != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"scale_element\": \"%.40s\" is not \"fp8_e4m3\"",
                        name, element);
    f->element = element ? TSR_MX_FP8_E4M3 : 0;
    return TSR_OK;
}

/* The parameters of one of our formats. */
static tsr_status get_format(const json_t *j, const char *name, struct tsr_format *f,
                             struct tsr_err *err)
{
    uint64_t    bits;
    const char *zero = "";
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0)
        return get_dtype(j, name, "dtype", true, &f->dtype, err);
    TSR_TRY(get_int(j, name, "bits", 2, 8, &bits, err));
    f->bits = (uint32_t)bits;
    if (strcmp(f->id, TSR_FORMAT_LUT) != 0)
        TSR_TRY(get_int(j, name, "group", 0, MAX_COLS, &f->group, err));
    if (has_levels(f)) {
        TSR_TRY(get_int(j, name, "scale_bits", 0, 8, &bits, err));
        f->scale_bits = (uint32_t)bits;
    }
    if (strcmp(f->id, TSR_FORMAT_TABLE) == 0)
        TSR_TRY(get_table(j, name, f, err));
    if (strcmp(f->id, TSR_FORMAT_MX) != 0 && (!has_levels(f) || f->scale_bits == 0))
        TSR_TRY(
            get_dtype(j, name, "scales", strcmp(f->id, TSR_FORMAT_FP8) == 0, &f->scale_dtype, err));
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        TSR_TRY(get_int(j, name, "outliers", 0, UINT32_MAX, &f->outliers, err));
    if (has_element(f))
        TSR_TRY(get_element(j, name, f, err));
    if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
        TSR_TRY(tsr_json_str(j, name, "zero", true, &zero, err));
        if (strcmp(zero, "mid") != 0 && strcmp(zero, "stored") != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"zero\": \"%.40s\" is not \"mid\" or \"stored\"", name, zero);
        f->zero = strcmp(zero, "stored") == 0 ? TSR_ZERO_STORED : TSR_ZERO_MID;
    }
    return get_act8(j, name, f, err);
}

/* What packing says of its result; a start does not need it. */
static tsr_status get_report(struct tsr_model_packed *p, const char *name, const json_t *j,
                             struct tsr_err *err)
{
    struct tsr_model_pack_report *r = &p->report;
    int64_t                       retries = 0;
    TSR_TRY(tsr_json_real(j, name, "squared_error", true, 0.0, HUGE_VAL, &p->squared_error, err));
    TSR_TRY(tsr_json_real(j, name, "loss", false, -HUGE_VAL, HUGE_VAL, &r->loss, err));
    TSR_TRY(tsr_json_real(j, name, "rtn_loss", false, -HUGE_VAL, HUGE_VAL, &r->rtn_loss, err));
    TSR_TRY(tsr_json_real(j, name, "damping", false, 0.0, HUGE_VAL, &r->damping, err));
    TSR_TRY(tsr_json_int(j, name, "retries", false, 0, INT64_MAX, &retries, err));
    r->retries = (uint64_t)retries;
    return TSR_OK;
}

/* Where the units of a plugin's own format lie; without "use" its weights are stored dequantized. */
static tsr_status get_own(struct tsr_model_packed *p, const char *name, const json_t *j,
                          struct tsr_err *err)
{
    struct tsr_model_own *o = &p->own;
    const char           *use = NULL;
    TSR_TRY(tsr_json_str(j, name, "use", false, &use, err));
    if (!use)
        return TSR_OK;
    TSR_TRY(get_int(j, name, "rows", 1, MAX_COLS, &o->rows, err));
    TSR_TRY(get_int(j, name, "unit_rows", 1, (int64_t)o->rows, &o->unit, err));
    TSR_TRY(get_int(j, name, "unit_code_bytes", 1, MAX_COLS, &o->code_bytes, err));
    TSR_TRY(get_int(j, name, "unit_meta_bytes", 0, MAX_COLS, &o->meta_bytes, err));
    o->cols = p->cols;
    o->units = (o->rows - 1) / o->unit + 1;
    o->use = tsr_strdup(use);
    return o->use ? TSR_OK : tsr_fail_nomem(err, strlen(use), name);
}

static tsr_status understand(struct tsr_model_packed *p, const char *name, const json_t *j,
                             struct tsr_err *err)
{
    const char *id = "", *plugin = "";
    TSR_TRY(tsr_json_str(j, name, "format", true, &id, err));
    TSR_TRY(tsr_json_str(j, name, "plugin", true, &plugin, err));
    TSR_TRY(get_int(j, name, "cols", 1, MAX_COLS, &p->cols, err));
    TSR_TRY(get_dtype(j, name, "source", true, &p->source_dtype, err));
    TSR_TRY(tsr_json_bool(j, name, "ordered", false, &p->ordered, err));
    p->squared_error = NAN;
    p->report = (struct tsr_model_pack_report){
        .seconds = NAN, .loss = NAN, .rtn_loss = NAN, .damping = NAN
    };
    if (p->ordered && strncmp(id, "tessera.", 8) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"ordered\" does not go with the format \"%.60s\", "
                        "whose columns are not permuted",
                        name, id);
    if (strlen(id) == 0 || strlen(id) > 255)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"format\" is not a format id", name);
    p->format_id = tsr_strdup(id);
    p->plugin = tsr_strdup(plugin);
    if (!p->format_id || !p->plugin)
        return tsr_fail_nomem(err, 256, name);
    p->format = (struct tsr_format){ .struct_size = sizeof p->format, .id = p->format_id };
    if (strncmp(id, "tessera.", 8) != 0) /* a plugin's own */
        return get_own(p, name, j, err);
    TSR_TRY(get_format(j, name, &p->format, err));
    if (!tsr_model_format_known(&p->format) || !tsr_model_format_fits(&p->format, p->cols))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: format \"%s\" with these parameters is not known to this version",
                        name, id);
    p->code_stride = tsr_model_format_code_bytes(&p->format, p->cols);
    p->meta_stride = tsr_model_format_meta_bytes(&p->format, p->cols);
    return TSR_OK;
}

tsr_status tsr_packed_understand_json(struct tsr_model_packed *p, const char *name, const json_t *j,
                                      struct tsr_err *err)
{
    return json_is_object(j) ? understand(p, name, j, err)
                             : tsr_fail(err, TSR_E_INPUT, "%s: is not an object", name);
}

tsr_status tsr_packed_understand(struct tsr_model_packed *p, const char *name, const char *text,
                                 struct tsr_err *err)
{
    json_t *j = NULL;
    TSR_TRY(tsr_json_parse(&j, name, text, strlen(text), 2, err));
    tsr_status st = tsr_packed_understand_json(p, name, j, err);
    if (st == TSR_OK)
        st = get_report(p, name, j, err);
    json_decref(j);
    return st;
}
