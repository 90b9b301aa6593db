/* Reads a profile of compensated linears. */
#include "compensate/tune.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define FILE_CAP (UINT64_C(64) << 20)
#define MOST_MS  1e9

void tsr_compensate_tune_free(struct tsr_compensate_tune_table *t)
{
    for (uint32_t i = 0; i < TSR_TUNE_MODULES; i++)
        free(t->m[i].ms);
    *t = (struct tsr_compensate_tune_table){ 0 };
}

static tsr_status read_blocks(struct tsr_compensate_tune_module *m, const json_t *list,
                              const char *where, struct tsr_err *err)
{
    uint64_t n = json_array_size(list);
    if (n == 0 || n > TSR_TUNE_BLOCKS)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"blocks\" has %llu entries, wanted 1 to %u", where,
                        (unsigned long long)n, TSR_TUNE_BLOCKS);
    for (uint64_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t    b = json_is_integer(v) ? json_integer_value(v) : 0;
        if (b < 1 || b > 65535 || (i && (uint32_t)b <= m->blocks[i - 1]))
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: entry %llu of \"blocks\" is not a number from 1 to 65535 above the "
                "one before",
                where, (unsigned long long)i);
        m->blocks[i] = (uint32_t)b;
    }
    m->n_blocks = (uint32_t)n;
    return TSR_OK;
}

static tsr_status read_times(struct tsr_compensate_tune_module *m, const json_t *rows,
                             const char *where, struct tsr_err *err)
{
    uint64_t n = json_array_size(json_array_get(rows, 0));
    if (json_array_size(rows) != m->n_blocks || n < 2 || n > 1025)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"ms\" is not a list of %u rows of 2 to 1025 times (k from 0)", where,
                        m->n_blocks);
    m->n_k = (uint32_t)n;
    m->ms = tsr_new(n * m->n_blocks, sizeof *m->ms);
    if (!m->ms)
        return tsr_fail_nomem(err, n * m->n_blocks * sizeof *m->ms, where);
    for (uint64_t b = 0; b < m->n_blocks; b++) {
        const json_t *row = json_array_get(rows, b);
        if (json_array_size(row) != n)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: row %llu of \"ms\" has %llu times, row 0 has %llu", where,
                            (unsigned long long)b, (unsigned long long)json_array_size(row),
                            (unsigned long long)n);
        for (uint64_t k = 0; k < n; k++) {
            double v = json_number_value(json_array_get(row, k));
            if (!(v > 0 && v < MOST_MS))
                return tsr_fail(err, TSR_E_INPUT,
                                "%s: \"ms\", row %llu, k = %llu: is not a time above 0", where,
                                (unsigned long long)b, (unsigned long long)k);
            m->ms[b * n + k] = v;
        }
    }
    return TSR_OK;
}

static tsr_status read_module(struct tsr_compensate_tune_module *m, const json_t *j,
                              const char *name, uint32_t i, struct tsr_err *err)
{
    char        where[300];
    const char *text = "";
    int64_t     inputs = 0, outputs = 0;
    json_t     *blocks = NULL, *ms = NULL;
    (void)snprintf(where, sizeof where, "%.200s: module %u", name, i);
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not an object", where);
    TSR_TRY(tsr_json_str(j, where, "name", true, &text, err));
    if (strlen(text) >= sizeof m->name || !*text)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"name\" has no or more than %zu letters", where,
                        sizeof m->name - 1);
    memcpy(m->name, text, strlen(text) + 1);
    TSR_TRY(tsr_json_int(j, where, "inputs", true, 1, INT64_C(1) << 32, &inputs, err));
    TSR_TRY(tsr_json_int(j, where, "outputs", true, 1, INT64_C(1) << 32, &outputs, err));
    TSR_TRY(tsr_json_real(j, where, "base_ms", true, 1e-9, MOST_MS, &m->base, err));
    TSR_TRY(tsr_json_sub(j, where, "blocks", true, JSON_ARRAY, &blocks, err));
    TSR_TRY(tsr_json_sub(j, where, "ms", true, JSON_ARRAY, &ms, err));
    m->inputs = (uint64_t)inputs;
    m->outputs = (uint64_t)outputs;
    TSR_TRY(read_blocks(m, blocks, where, err));
    return read_times(m, ms, where, err);
}

static tsr_status read_table(struct tsr_compensate_tune_table *t, const char *name, const json_t *j,
                             struct tsr_err *err)
{
    const char *format = "", *device = "";
    json_t     *list = NULL;
    int64_t     residual = 0;
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", name);
    TSR_TRY(tsr_json_str(j, name, "format", true, &format, err));
    if (strcmp(format, TSR_COMPENSATE_TUNE_FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"format\": \"%.60s\" is not " TSR_COMPENSATE_TUNE_FORMAT, name,
                        format);
    TSR_TRY(tsr_json_str(j, name, "device", false, &device, err));
    (void)snprintf(t->device, sizeof t->device, "%s", device);
    TSR_TRY(tsr_json_real(j, name, "bits", false, 0.1, 64, &t->bits, err));
    TSR_TRY(tsr_json_real(j, name, "host_gbps", false, 1e-6, 1e9, &t->host_gbps, err));
    TSR_TRY(tsr_json_real(j, name, "device_gbps", false, 1e-6, 1e9, &t->device_gbps, err));
    TSR_TRY(tsr_json_int(j, name, "residual", false, 1, 16, &residual, err));
    t->residual = (uint32_t)residual;
    TSR_TRY(tsr_json_real(j, name, "least_us", false, 1e-6, 1e9, &t->least_us, err));
    TSR_TRY(tsr_json_sub(j, name, "modules", true, JSON_ARRAY, &list, err));
    uint64_t n = json_array_size(list);
    if (n == 0 || n > TSR_TUNE_MODULES)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"modules\" has %llu entries, wanted 1 to %u", name,
                        (unsigned long long)n, TSR_TUNE_MODULES);
    for (uint32_t i = 0; i < n; i++)
        TSR_TRY(read_module(&t->m[i], json_array_get(list, i), name, i, err));
    t->n = (uint32_t)n;
    return TSR_OK;
}

tsr_status tsr_compensate_tune_parse(struct tsr_compensate_tune_table *t, const char *name,
                                     const char *text, uint64_t len, struct tsr_err *err)
{
    json_t *j = NULL;
    *t = (struct tsr_compensate_tune_table){ 0 };
    TSR_TRY(tsr_json_parse(&j, name, text, len, 6, err));
    tsr_status st = read_table(t, name, j, err);
    json_decref(j);
    if (st != TSR_OK)
        tsr_compensate_tune_free(t);
    return st;
}

tsr_status tsr_compensate_tune_load(struct tsr_compensate_tune_table *t, const char *path,
                                    struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_file_slurp(path, FILE_CAP, &text, &len, err));
    tsr_status st = tsr_compensate_tune_parse(t, path, text, len, err);
    free(text);
    return st;
}
