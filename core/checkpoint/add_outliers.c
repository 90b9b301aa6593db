/* Outlier neurons, added in triples after those of a model. */
#include "checkpoint/add_outliers.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/rng.h"
#include "checkpoint/contents.h"
#include "checkpoint/safetensors/folder.h"
#include "checkpoint/safetensors/shards.h"
#include "checkpoint/texts.h"
#include "model/model.h"
#include "plugin/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_CAP (UINT64_C(16) << 20)
#define LARGEST    63 /* of a column's whole numbers; the third is at most twice that: exact in BF16 */

enum kind { OTHER, GATE, UP, DOWN };

struct work {
    const char                           *model;
    const struct tsr_checkpoint_outliers *how;
    struct tsr_checkpoint_shards          shards;
    struct tsr_st_out                    *out;
    struct tsr_err                       *err;
};

static enum kind kind_of(const char *name)
{
    static const char *const ends[] = { "", ".mlp.gate_proj.weight", ".mlp.up_proj.weight",
                                        ".mlp.down_proj.weight" };
    size_t                   n = strlen(name);
    for (int k = GATE; k <= DOWN; k++) {
        size_t m = strlen(ends[k]);
        if (n > m && strcmp(name + n - m, ends[k]) == 0)
            return (enum kind)k;
    }
    return OTHER;
}

/* "model.layers.3" of a tensor's name decides its random numbers. */
static uint64_t layer_of(const char *name)
{
    const char *s = strstr(name, "layers.");
    return s ? strtoull(s + 7, NULL, 10) : 0;
}

static tsr_status read_tensor(struct work *w, const struct tsr_checkpoint_stored *s,
                              unsigned char **bytes)
{
    uint64_t n = s->t->end - s->t->begin;
    *bytes = tsr_new_aligned(n ? n : 1, 1);
    if (!*bytes)
        return tsr_fail_nomem(w->err, n, s->t->name);
    tsr_status st = tsr_safetensors_read(&w->shards.files[s->file], s->t, *bytes, w->err);
    if (st != TSR_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return st;
}

/* Root mean square of a tensor, 0 if it is absent. */
static tsr_status rms_of(struct work *w, const char *name, double *rms)
{
    const struct tsr_checkpoint_stored *s = tsr_checkpoint_shards_find(&w->shards, name);
    unsigned char                      *bytes;
    *rms = 0;
    if (!s || !tsr_dtype_size(s->t->dtype))
        return TSR_OK;
    uint64_t n = (s->t->end - s->t->begin) / tsr_dtype_size(s->t->dtype);
    TSR_TRY(read_tensor(w, s, &bytes));
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        float v;
        tsr_widen(&v, bytes + i * tsr_dtype_size(s->t->dtype), s->t->dtype, 1);
        sum += (double)v * (double)v;
    }
    free(bytes);
    *rms = n ? sqrt(sum / (double)n) : 0;
    return TSR_OK;
}

static void store(void *to, float v, uint32_t dtype)
{
    uint16_t h = dtype == TSR_F16 ? tsr_f32_f16(v) : tsr_f32_bf16(v);
    if (dtype == TSR_F32)
        memcpy(to, &v, 4);
    else
        memcpy(to, &h, 2);
}

/* ---- the triples ------------------------------------------------------------------------------- */

/* Rows of gate and up: a unit direction for each triple, three times. */
static tsr_status put_rows(struct work *w, const struct tsr_safetensors_tensor *t, double scale)
{
    uint64_t cols = t->shape[1], size = tsr_dtype_size(t->dtype), stream = 2 * layer_of(t->name);
    float   *u = tsr_new(cols, sizeof *u);
    char    *row = tsr_new(cols, size);
    if (!u || !row) {
        free(u);
        free(row);
        return tsr_fail_nomem(w->err, cols * 8, t->name);
    }
    for (uint64_t k = 0; k < w->how->triples && !tsr_plugin_cancelled(); k++) {
        double norm = 0;
        for (uint64_t i = 0; i < cols; i++) {
            u[i] = (float)tsr_normal(w->how->seed, stream, k * cols + i);
            norm += (double)u[i] * (double)u[i];
        }
        for (uint64_t i = 0; i < cols; i++)
            store(row + i * size, (float)((double)u[i] * scale / sqrt(norm)), t->dtype);
        for (int i = 0; i < 3; i++)
            tsr_safetensors_put(w->out, row, cols * size);
    }
    free(u);
    free(row);
    return TSR_OK;
}

static int whole(const struct work *w, uint64_t stream, uint64_t i)
{
    double v = rint(LARGEST / 3.0 * tsr_normal(w->how->seed, stream, i));
    return (int)(v > LARGEST ? LARGEST : v < -LARGEST ? -LARGEST : v);
}

/* Rows of down with three columns for each triple: whole numbers of one unit that add up to 0. */
static void put_columns(struct work *w, const struct tsr_safetensors_tensor *t,
                        const unsigned char *bytes, double unit, char *row)
{
    uint64_t rows = t->shape[0], cols = t->shape[1], size = tsr_dtype_size(t->dtype);
    uint64_t stream = 2 * layer_of(t->name) + 1, n = w->how->triples;
    for (uint64_t r = 0; r < rows && !tsr_plugin_cancelled(); r++) {
        for (uint64_t k = 0; k < n; k++) {
            int    a = whole(w, stream, (r * n + k) * 2), b = whole(w, stream, (r * n + k) * 2 + 1);
            char  *to = row + 3 * k * size;
            double v[3] = { a * unit, b * unit, -(a + b) * unit };
            for (uint64_t i = 0; i < 3; i++)
                store(to + i * size, (float)v[i], t->dtype);
        }
        tsr_safetensors_put(w->out, bytes + r * cols * size, cols * size);
        tsr_safetensors_put(w->out, row, 3 * n * size);
    }
}

/* The name of another tensor of the same layer. */
static void beside(char *to, size_t cap, const char *name, const char *end)
{
    const char *mlp = strstr(name, ".mlp.");
    (void)snprintf(to, cap, "%.*s%s", (int)(mlp ? mlp - name : 0), name, end);
}

static tsr_status put_tensor(struct work *w, const struct tsr_checkpoint_stored *s)
{
    const struct tsr_safetensors_tensor *t = s->t;
    enum kind                            kind = kind_of(t->name);
    unsigned char                       *bytes = NULL;
    char                                 name[TSR_ST_MAX_NAME + 64];
    double                               gain = 0, rms = 0;
    tsr_status                           st = TSR_OK;
    if (kind == GATE || kind == UP) {
        beside(name, sizeof name, t->name, ".post_attention_layernorm.weight");
        st = rms_of(w, name, &gain);
    } else if (kind == DOWN) {
        st = rms_of(w, t->name, &rms);
    }
    if (st == TSR_OK)
        st = read_tensor(w, s, &bytes);
    if (st == TSR_OK && kind == DOWN) {
        double unit = pow(2, floor(log2((rms > 0 ? rms : 1) * 3 / LARGEST)));
        char  *row = tsr_new(3 * w->how->triples, tsr_dtype_size(t->dtype));
        if (row)
            put_columns(w, t, bytes, unit, row);
        else
            st = tsr_fail_nomem(w->err, 12 * w->how->triples, t->name);
        free(row);
    } else if (st == TSR_OK) {
        tsr_safetensors_put(w->out, bytes, t->end - t->begin);
        if (kind != OTHER)
            st = put_rows(w, t, sqrt(w->how->strength) / (gain > 0 ? gain : 1));
    }
    free(bytes);
    return st;
}

/* ---- the model ---------------------------------------------------------------------------------- */

static tsr_status declare_all(struct work *w, uint64_t ffn, uint64_t found[DOWN + 1])
{
    for (uint64_t i = 0; i < w->shards.n; i++) {
        const struct tsr_safetensors_tensor *t = w->shards.tensors[i].t;
        enum kind                            kind = kind_of(t->name);
        uint64_t shape[TSR_ST_MAX_RANK], size = tsr_dtype_size(t->dtype), n = 1;
        memcpy(shape, t->shape, sizeof shape);
        for (uint32_t d = 0; d < t->rank; d++)
            n *= shape[d];
        if (kind != OTHER) {
            int wide = kind == DOWN ? 1 : 0;
            if (!size || t->rank != 2 || shape[wide] != ffn)
                return tsr_fail(w->err, TSR_E_INPUT,
                                "%s: tensor \"%s\" is not a matrix of %llu neurons in F32, F16 or "
                                "BF16",
                                w->model, t->name, (unsigned long long)ffn);
            shape[wide] += 3 * w->how->triples;
        }
        found[kind]++;
        TSR_TRY(tsr_safetensors_declare_as(w->out, t->name, t->dtype_name,
                                           n ? (t->end - t->begin) / n : 1, t->rank, shape,
                                           w->err));
    }
    return TSR_OK;
}

static tsr_status write_weights(struct work *w, const char *folder, uint64_t ffn)
{
    uint64_t found[DOWN + 1] = { 0 };
    char    *path = tsr_path_join(folder, "model.safetensors");
    if (!path)
        return tsr_fail_nomem(w->err, strlen(folder), folder);
    tsr_status st = tsr_safetensors_create(&w->out, path, w->err);
    free(path);
    TSR_TRY(st);
    TSR_TRY(tsr_safetensors_metadata(w->out, "format", "pt", w->err));
    TSR_TRY(declare_all(w, ffn, found));
    if (found[GATE] == 0 || found[UP] != found[GATE] || found[DOWN] != found[GATE])
        return tsr_fail(
            w->err, TSR_E_INPUT,
            "%s: has no mlp.gate_proj, up_proj and down_proj in each layer; outliers are "
            "added in models that have them apart",
            w->model);
    TSR_TRY(tsr_safetensors_begin(w->out, w->err));
    for (uint64_t i = 0; i < w->shards.n; i++) {
        TSR_TRY(put_tensor(w, &w->shards.tensors[i]));
        if (tsr_plugin_cancelled())
            return tsr_fail(w->err, TSR_E_CANCELLED, "while \"%.200s\" was written",
                            w->shards.tensors[i].t->name);
    }
    st = tsr_safetensors_commit(w->out, w->err);
    w->out = NULL;
    return st;
}

static tsr_status copy_text(const struct work *w, const char *folder, const char *name)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_checkpoint_text_read(w->model, name, TSR_TEXT_MAX, &text, &len, NULL, w->err));
    tsr_status st = text ? tsr_file_store_in(folder, name, text, len, w->err) : TSR_OK;
    free(text);
    return st;
}

static tsr_status copy_templates(const struct work *w, const char *folder)
{
    struct tsr_model_text_list l;
    char                      *below = tsr_path_join(folder, TSR_TEXT_TEMPLATES);
    tsr_status                 st = tsr_checkpoint_text_list(w->model, &l, w->err);
    if (st == TSR_OK && !below)
        st = tsr_fail_nomem(w->err, strlen(folder), folder);
    if (st == TSR_OK && l.n)
        st = tsr_make_dirs(below, w->err);
    for (uint64_t i = 0; i < l.n && st == TSR_OK; i++)
        st = copy_text(w, folder, l.v[i]);
    tsr_model_text_list_free(&l);
    free(below);
    return st;
}

static tsr_status copy_texts(const struct work *w, const char *folder)
{
    const char *name;
    for (uint64_t i = 0; (name = tsr_model_text_name(i)); i++)
        TSR_TRY(copy_text(w, folder, name));
    return copy_templates(w, folder);
}

/* config.json with the new number of neurons; *ffn: the old one. */
static tsr_status read_config(const struct work *w, json_t **j, uint64_t *ffn)
{
    char    *text, *path;
    uint64_t len;
    int64_t  n = 0;
    TSR_TRY(tsr_checkpoint_folder_slurp(w->model, "config.json", CONFIG_CAP, &text, &len, &path,
                                        w->err));
    tsr_status st = tsr_json_parse(j, path, text, len, 32, w->err);
    if (st == TSR_OK)
        st = tsr_json_int(*j, path, "intermediate_size", true, 1, INT64_C(1) << 32, &n, w->err);
    free(text);
    free(path);
    TSR_TRY(st);
    *ffn = (uint64_t)n;
    uint64_t neurons = *ffn + 3 * w->how->triples;
    json_t  *wide = json_integer((json_int_t)neurons);
    return json_object_set_new(*j, "intermediate_size", wide) == 0
               ? TSR_OK
               : tsr_fail_nomem(w->err, 16, "config.json");
}

static tsr_status write_all(struct work *w, const char *folder)
{
    json_t                  *config = NULL;
    char                    *text = NULL;
    uint64_t                 ffn = 0, len = 0;
    struct tsr_output_folder f = { 0 };
    tsr_status               st = read_config(w, &config, &ffn);
    if (st == TSR_OK)
        st = tsr_json_text(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17), &text, &len, w->err);
    if (st == TSR_OK)
        st = tsr_output_folder_begin(&f, folder, false, w->err);
    if (st == TSR_OK)
        st = write_weights(w, f.part, ffn);
    if (st == TSR_OK)
        st = copy_texts(w, f.part);
    if (st == TSR_OK)
        st = tsr_file_store_in(f.part, "config.json", text, len, w->err);
    if (st == TSR_OK)
        st = tsr_output_folder_commit(&f, w->err);
    else
        tsr_safetensors_abort(w->out);
    tsr_output_folder_abort(&f);
    free(text);
    json_decref(config);
    return st;
}

tsr_status tsr_checkpoint_add_outliers(const char *model, const char *folder,
                                       const struct tsr_checkpoint_outliers *how,
                                       struct tsr_err                       *err)
{
    struct work w = { .model = model, .how = how, .err = err };
    if (how->triples == 0 || how->triples > (UINT64_C(1) << 24) || !(how->strength > 0) ||
        !isfinite(how->strength))
        return tsr_fail(err, TSR_E_INPUT, "%llu triples of strength %g cannot be added",
                        (unsigned long long)how->triples, how->strength);
    TSR_TRY(tsr_model_check(model, err));
    if (!tsr_path_is_dir(model))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is one file; neurons are added to a Hugging Face folder (`tessera "
                        "convert MODEL -o FOLDER` writes one)",
                        model);
    TSR_TRY(tsr_checkpoint_contents_weights(model, err));
    TSR_TRY(tsr_checkpoint_shards_open(&w.shards, model, err));
    tsr_status st = write_all(&w, folder);
    tsr_checkpoint_shards_close(&w.shards);
    return st;
}
