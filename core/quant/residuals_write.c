/* The files of residuals: tensor names, their places, and the index, which is written last. */
#include "quant/residuals_internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"

#include <stdlib.h>
#include <string.h>

#define NAME_CAP 160

bool tsr_quant_residuals_has_site(const struct tsr_quant_residuals_work *w, uint64_t layer,
                                  enum tsr_site site)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(w->m, layer, site);
    for (uint32_t i = 0; i < of.n; i++)
        if (w->o->lin[layer][of.id[i]])
            return true;
    return false;
}

bool tsr_quant_residuals_is_joined(const struct tsr_quant_residuals_work *w, uint64_t layer,
                                   enum tsr_site site, uint64_t *bytes)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(w->m, layer, site);
    for (uint32_t i = 0; i < of.n; i++)
        if (w->m->layers[layer].lin[of.id[i]].w.rows && !w->o->lin[layer][of.id[i]])
            return false;
    return tsr_compensation_row(w->m, layer, site, w->opt->bits, bytes) > 1;
}

static tsr_status declare(struct tsr_quant_residuals_work *w, const char *name, const char *suffix,
                          uint32_t dtype, uint32_t rank, const uint64_t *shape)
{
    char full[NAME_CAP];
    (void)snprintf(full, sizeof full, "%.120s.%s", name, suffix);
    return dtype == TSR_U8 ? tsr_safetensors_declare_as(w->file, full, "U8", 1, rank, shape, w->err)
                           : tsr_safetensors_declare(w->file, full, dtype, rank, shape, w->err);
}

/* Everything after the codes, in one order for declaring and for writing. */
static tsr_status small(struct tsr_quant_residuals_work *w, bool writing)
{
    static const char *const suffix[] = { "top", "meansq", "lost" };
    for (uint64_t l = 0; l < w->m->hp.layers; l++)
        for (uint64_t s = 0; s < w->m->hp.sites; s++) {
            char     name[NAME_CAP];
            uint64_t cols = tsr_model_layer_site_cols(w->m, l, (enum tsr_site)s);
            if (!tsr_quant_residuals_has_site(w, l, (enum tsr_site)s))
                continue;
            (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)l,
                           TSR_MODEL_SITE_NAME(s));
            for (int k = 0; k < 3 && !writing; k++)
                TSR_TRY(declare(w, name, suffix[k], TSR_F32, 1, &cols));
            if (writing)
                tsr_safetensors_put(w->file, w->out[l].profile[s], 3 * cols * sizeof(float));
        }
    for (uint64_t l = 0; l < w->m->hp.layers && w->opt->bits != 16; l++)
        for (uint64_t i = 0; i < w->m->hp.linears; i++) {
            const struct tsr_matrix *m = &w->m->layers[l].lin[i].w;
            if (!w->o->lin[l][i] || !tsr_quant_residuals_covers((enum tsr_linear_id)i))
                continue;
            if (writing)
                tsr_safetensors_put(w->file, w->out[l].scales[i], m->rows * sizeof(uint16_t));
            else
                TSR_TRY(declare(w, m->name, "scales", TSR_F16, 1, &m->rows));
        }
    return TSR_OK;
}

static tsr_status declare_site(struct tsr_quant_residuals_work *w, uint64_t layer,
                               enum tsr_site site)
{
    uint64_t                        all[2] = { tsr_model_layer_site_cols(w->m, layer, site), 0 };
    struct tsr_compensation_linears of = tsr_compensation_linears(w->m, layer, site);
    if (tsr_quant_residuals_is_joined(w, layer, site, &all[1])) {
        char name[NAME_CAP];
        (void)snprintf(name, sizeof name, "model.layers.%llu.%s", (unsigned long long)layer,
                       TSR_MODEL_SITE_NAME(site));
        return declare(w, name, "residual", TSR_U8, 2, all);
    }
    for (uint32_t i = 0; i < of.n; i++) {
        const struct tsr_matrix *m = &w->m->layers[layer].lin[of.id[i]].w;
        const uint64_t           shape[2] = { m->cols,
                                              tsr_compensate_residual_stride(w->opt->bits, m->rows) };
        if (w->o->lin[layer][of.id[i]])
            TSR_TRY(declare(w, m->name, "residual", TSR_U8, 2, shape));
    }
    return TSR_OK;
}

/* As they are made: site by site. */
static tsr_status declare_codes(struct tsr_quant_residuals_work *w)
{
    for (uint64_t l = 0; l < w->m->hp.layers; l++)
        for (uint64_t s = 0; s < w->m->hp.sites; s++)
            TSR_TRY(declare_site(w, l, (enum tsr_site)s));
    return TSR_OK;
}

tsr_status tsr_quant_residuals_begin_file(struct tsr_quant_residuals_work *w)
{
    char  bits[8];
    char *path = tsr_path_join(w->opt->folder, TSR_COMPENSATION_FILE);
    if (!path)
        return tsr_fail_nomem(w->err, strlen(w->opt->folder), w->opt->folder);
    tsr_status st = tsr_safetensors_create(&w->file, path, w->err);
    free(path);
    TSR_TRY(st);
    (void)snprintf(bits, sizeof bits, "%u", w->opt->bits);
    TSR_TRY(tsr_safetensors_metadata(w->file, "format", TSR_COMPENSATION_FORMAT, w->err));
    TSR_TRY(tsr_safetensors_metadata(w->file, "packed", w->packed, w->err));
    TSR_TRY(tsr_safetensors_metadata(w->file, "bits", bits, w->err));
    TSR_TRY(tsr_safetensors_metadata(w->file, "calibration", w->opt->calibration->hash, w->err));
    TSR_TRY(declare_codes(w));
    TSR_TRY(small(w, false));
    return tsr_safetensors_begin(w->file, w->err);
}

tsr_status tsr_quant_residuals_end_file(struct tsr_quant_residuals_work *w)
{
    TSR_TRY(small(w, true));
    tsr_status st = tsr_safetensors_commit(w->file, w->err);
    w->file = NULL;
    return st;
}

/* The index is removed first and written last: in between the folder is a packed model without
 * residuals. */
static tsr_status index_path(const struct tsr_quant_residuals_work *w, const char *name,
                             char **path)
{
    *path = tsr_path_join(w->opt->folder, name);
    return *path ? TSR_OK : tsr_fail_nomem(w->err, strlen(w->opt->folder), w->opt->folder);
}

tsr_status tsr_quant_residuals_forget_index(const struct tsr_quant_residuals_work *w)
{
    char *path;
    TSR_TRY(tsr_make_dirs(w->opt->folder, w->err)); /* takes away the locks of killed runs */
    TSR_TRY(index_path(w, TSR_COMPENSATION_INDEX, &path));
    tsr_status st = tsr_output_remove(path, w->err);
    free(path);
    return st;
}

tsr_status tsr_quant_residuals_write_index(const struct tsr_quant_residuals_work *w)
{
    char *path = NULL, *data = NULL, hash[TSR_HASH_TEXT];
    TSR_TRY(index_path(w, TSR_COMPENSATION_FILE, &data));
    tsr_status st = tsr_hash_file(data, hash, w->err);
    free(data);
    TSR_TRY(st);
    TSR_TRY(index_path(w, TSR_COMPENSATION_INDEX, &path));
    json_t *j =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:I}", "format", TSR_COMPENSATION_FORMAT, "packed",
                  w->packed, "file", hash, "bits", (json_int_t)w->opt->bits, "calibration",
                  w->opt->calibration->hash, "tokens", (json_int_t)w->report->tokens);
    st = j ? tsr_json_store(path, j, JSON_INDENT(1), w->err)
           : tsr_fail_nomem(w->err, 256, TSR_COMPENSATION_INDEX);
    json_decref(j);
    free(path);
    return st;
}
