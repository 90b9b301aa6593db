/* The rule, and tables of what was measured. */
#include "eval/codec_search.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT    "tessera.codec-table/1"
#define MAX_TABLE (UINT64_C(1) << 20)
#define MAX_CELLS 4096u

uint64_t tsr_eval_codec_choose(const struct tsr_eval_candidate *c, uint64_t n, double limit)
{
    uint64_t best = n;
    for (uint64_t i = 0; i < n; i++) {
        if (!(c[i].increase < limit) || !(c[i].bits > 0))
            continue;
        if (best == n || c[i].bits < c[best].bits ||
            (c[i].bits == c[best].bits && c[i].increase < c[best].increase))
            best = i;
    }
    return best;
}

static tsr_status read_row(struct tsr_eval_codec_table *t, const char *name, uint64_t r,
                           const json_t *row, struct tsr_err *err)
{
    const json_t *codec = json_object_get(row, "codec"), *bits = json_object_get(row, "bits");
    const json_t *list = json_object_get(row, "increase");
    if (!tsr_json_word(codec) || !json_is_number(bits) || !(json_number_value(bits) > 0) ||
        json_array_size(list) != t->models)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: rows[%llu] needs \"codec\", \"bits\" above 0, and \"increase\" with %llu "
            "numbers, one for each model",
            name, (unsigned long long)r, (unsigned long long)t->models);
    t->codec[r] = tsr_strdup(json_string_value(codec));
    if (!t->codec[r])
        return tsr_fail_nomem(err, 64, "a table of codecs");
    for (uint64_t m = 0; m < t->models; m++) {
        const json_t *v = json_array_get(list, m);
        if (!json_is_number(v))
            return tsr_fail(err, TSR_E_INPUT, "%s: rows[%llu].increase[%llu] is not a number", name,
                            (unsigned long long)r, (unsigned long long)m);
        t->cell[m * t->rows + r] = (struct tsr_eval_candidate){ .bits = json_number_value(bits),
                                                                .increase = json_number_value(v) };
    }
    return TSR_OK;
}

static tsr_status read_table(struct tsr_eval_codec_table *t, const char *name, const json_t *j,
                             struct tsr_err *err)
{
    const json_t *models = json_object_get(j, "models"), *rows = json_object_get(j, "rows");
    const char   *format = tsr_json_word(json_object_get(j, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"format\" is not \"" FORMAT "\"", name);
    t->models = json_array_size(models);
    t->rows = json_array_size(rows);
    if (t->models == 0 || t->rows == 0 || t->models > MAX_CELLS || t->rows > MAX_CELLS)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"models\" and \"rows\" must be lists of 1 to %u entries", name,
                        MAX_CELLS);
    t->model = tsr_new(t->models, sizeof *t->model);
    t->codec = tsr_new(t->rows, sizeof *t->codec);
    t->cell = tsr_new(t->models * t->rows, sizeof *t->cell);
    if (!t->model || !t->codec || !t->cell)
        return tsr_fail_nomem(err, t->models * t->rows * sizeof *t->cell, "a table of codecs");
    for (uint64_t m = 0; m < t->models; m++) {
        const char *text = tsr_json_word(json_array_get(models, m));
        if (!text)
            return tsr_fail(err, TSR_E_INPUT, "%s: models[%llu] is not a name", name,
                            (unsigned long long)m);
        if (!(t->model[m] = tsr_strdup(text)))
            return tsr_fail_nomem(err, 64, "a table of codecs");
    }
    for (uint64_t r = 0; r < t->rows; r++)
        TSR_TRY(read_row(t, name, r, json_array_get(rows, r), err));
    return TSR_OK;
}

tsr_status tsr_eval_codec_table_parse(struct tsr_eval_codec_table *t, const char *name,
                                      const char *text, uint64_t bytes, struct tsr_err *err)
{
    json_t *j = NULL;
    *t = (struct tsr_eval_codec_table){ 0 };
    TSR_TRY(tsr_json_parse(&j, name, text, bytes, 8, err));
    tsr_status st = read_table(t, name, j, err);
    json_decref(j);
    if (st != TSR_OK)
        tsr_eval_codec_table_free(t);
    return st;
}

tsr_status tsr_eval_codec_table_load(struct tsr_eval_codec_table *t, const char *path,
                                     struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t n;
    TSR_TRY(tsr_file_slurp(path, MAX_TABLE, &text, &n, err));
    tsr_status st = tsr_eval_codec_table_parse(t, path, text, n, err);
    free(text);
    return st;
}

void tsr_eval_codec_table_free(struct tsr_eval_codec_table *t)
{
    for (uint64_t m = 0; t->model && m < t->models; m++)
        free(t->model[m]);
    for (uint64_t r = 0; t->codec && r < t->rows; r++)
        free(t->codec[r]);
    free(t->model);
    free(t->codec);
    free(t->cell);
    *t = (struct tsr_eval_codec_table){ 0 };
}
