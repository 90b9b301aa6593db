/* The stored statistics of one layer: a safetensors file, docs/formats/calibration.md. */
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "quant/calibrate_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "tessera.calibration/1"
#define PARTS  7
#define NAME   64

/* One array of one site. */
struct part {
    uint64_t    bit;
    const char *name;
    const void *data;
    uint64_t    rows, cols; /* 0 rows: a vector */
    const char *dtype;
    uint64_t    size;
};

/* Site i of s (NULL: no data), whose inputs are `cols` wide, with `rows` recorded. */
static void parts_of(const struct tsr_quant_layer_stats *s, uint64_t i, uint64_t cols,
                     uint64_t rows, struct part p[PARTS])
{
    static const struct tsr_quant_stats nothing = { 0 };
    const struct tsr_quant_stats       *q = s ? &s->site[i] : &nothing;
    const double                       *top = s && !isnan(s->top[i]) ? &s->top[i] : NULL;
    p[0] = (struct part){ TSR_NEED_ABSMAX, "absmax", q->absmax, 0, cols, "F32", 4 };
    p[1] = (struct part){ TSR_NEED_MEAN, "mean", q->mean, 0, cols, "F32", 4 };
    p[2] = (struct part){ TSR_NEED_VARIANCE, "variance", q->variance, 0, cols, "F32", 4 };
    p[3] = (struct part){ TSR_NEED_MEAN_ABS, "mean_abs", q->mean_abs, 0, cols, "F32", 4 };
    p[4] = (struct part){ TSR_NEED_HESSIAN, "hessian", q->hessian, cols, cols, "F32", 4 };
    p[5] = (struct part){ TSR_NEED_INPUTS, "inputs", q->inputs, rows, cols, "F32", 4 };
    p[6] = (struct part){ TSR_NEED_TOP, "top", top, 0, 1, "F64", 8 };
}

static void tensor_name(char out[NAME], uint64_t site, const char *part)
{
    (void)snprintf(out, NAME, "%s.%s", TSR_MODEL_SITE_NAME(site), part);
}

static tsr_status file_path(const struct tsr_quant_calibration *c, uint64_t layer, char **path,
                            struct tsr_err *err)
{
    char name[48];
    (void)snprintf(name, sizeof name, "layer-%05llu.safetensors", (unsigned long long)layer);
    *path = tsr_path_join(c->source->folder, name);
    return *path ? TSR_OK : tsr_fail_nomem(err, sizeof name, "a path");
}

/* ---- writing ------------------------------------------------------------- */

/* Bytes of a part. */
static uint64_t part_bytes(const struct part *p)
{
    return (p->rows ? p->rows : 1) * p->cols * p->size; /* it is in memory, so it fits */
}

static tsr_status put_number(struct tsr_st_out *o, const char *key, uint64_t v, struct tsr_err *err)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    return tsr_safetensors_metadata(o, key, text, err);
}

static tsr_status put_head(struct tsr_st_out *o, const struct tsr_quant_calibration *c,
                           uint64_t layer, const struct tsr_quant_layer_stats *s,
                           struct tsr_err *err)
{
    struct part p[PARTS];
    TSR_TRY(tsr_safetensors_metadata(o, "format", FORMAT, err));
    TSR_TRY(tsr_safetensors_metadata(o, "fingerprint", c->hash, err));
    TSR_TRY(put_number(o, "layer", layer, err));
    TSR_TRY(put_number(o, "sequences", c->sequences, err));
    TSR_TRY(put_number(o, "seqlen", c->seqlen, err));
    for (uint64_t i = 0; i < s->sites; i++) {
        parts_of(s, i, s->site[i].cols, s->site[i].input_rows, p);
        for (int k = 0; k < PARTS; k++) {
            char name[NAME], content[TSR_HASH_TEXT];
            if (!p[k].data)
                continue;
            tensor_name(name, i, p[k].name);
            tsr_hash_bytes(p[k].data, part_bytes(&p[k]), content);
            TSR_TRY(tsr_safetensors_metadata(o, name, content, err));
        }
        if (i < TSR_MODEL_SITE_EXPERTS || !s->site[i].cols)
            continue;
        char name[NAME];
        tensor_name(name, i, s->borrowed[i] ? "borrowed" : "tokens");
        TSR_TRY(put_number(o, name, s->site[i].tokens, err));
    }
    return TSR_OK;
}

static tsr_status put_all(struct tsr_st_out *o, const struct tsr_quant_layer_stats *s,
                          struct tsr_err *err)
{
    struct part p[PARTS];
    for (int pass = 0; pass < 2; pass++) { /* declarations, then bytes */
        for (uint64_t i = 0; i < s->sites; i++) {
            parts_of(s, i, s->site[i].cols, s->site[i].input_rows, p);
            for (int k = 0; k < PARTS; k++) {
                uint64_t shape[2] = { p[k].rows ? p[k].rows : p[k].cols, p[k].cols };
                char     name[NAME];
                if (!p[k].data)
                    continue;
                tensor_name(name, i, p[k].name);
                if (pass == 0)
                    TSR_TRY(tsr_safetensors_declare_as(o, name, p[k].dtype, p[k].size,
                                                       p[k].rows ? 2 : 1, shape, err));
                else
                    tsr_safetensors_put(o, p[k].data, part_bytes(&p[k]));
            }
        }
        if (pass == 0)
            TSR_TRY(tsr_safetensors_begin(o, err));
    }
    return TSR_OK;
}

tsr_status tsr_quant_calibration_file_write(const struct tsr_quant_calibration *c, uint64_t layer,
                                            const struct tsr_quant_layer_stats *s,
                                            struct tsr_err                     *err)
{
    struct tsr_st_out *o = NULL;
    char              *path;
    TSR_TRY(file_path(c, layer, &path, err));
    tsr_status st = tsr_safetensors_create(&o, path, err);
    free(path);
    if (st != TSR_OK)
        return st;
    st = put_head(o, c, layer, s, err);
    if (st == TSR_OK)
        st = put_all(o, s, err);
    if (st == TSR_OK)
        return tsr_safetensors_commit(o, err);
    tsr_safetensors_abort(o);
    return st;
}

/* ---- reading ------------------------------------------------------------- */

static const char *meta(const struct tsr_safetensors *st, const char *key)
{
    for (uint64_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_keys[i], key) == 0)
            return st->meta_values[i];
    return "";
}

static bool is_number(const char *text, uint64_t v)
{
    char want[24];
    (void)snprintf(want, sizeof want, "%llu", (unsigned long long)v);
    return strcmp(text, want) == 0;
}

/* The parts of a site in this calibration. */
static void parts_wanted(const struct tsr_quant_calibration *c, uint64_t layer, uint64_t site,
                         struct part p[PARTS])
{
    parts_of(NULL, site, tsr_model_layer_site_cols(c->source->model, layer, (enum tsr_site)site),
             c->source->keep * c->seqlen, p);
    if (site >= TSR_MODEL_SITE_EXPERTS) /* records no inputs */
        p[5].bit = 0;
}

/* The stored tensor of a part if it has the shape expected by this calibration. */
static const struct tsr_safetensors_tensor *find_part(const struct tsr_safetensors *st,
                                                      uint64_t site, const struct part *p)
{
    char name[NAME];
    tensor_name(name, site, p->name);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, name);
    if (!t || strcmp(t->dtype_name, p->dtype) != 0 || t->rank != (p->rows ? 2 : 1) ||
        t->shape[t->rank - 1] != p->cols || (p->rows && t->shape[0] != p->rows))
        return NULL;
    return t;
}

/* Tokens of a site, and whether they are borrowed; false: the file does not say. */
static bool tokens_of(const struct tsr_safetensors *st, const struct tsr_quant_calibration *c,
                      uint64_t site, uint64_t *tokens, bool *borrowed)
{
    char name[NAME], *end = NULL;
    *tokens = c->tokens;
    *borrowed = false;
    if (site < TSR_MODEL_SITE_EXPERTS)
        return true;
    tensor_name(name, site, "borrowed");
    *borrowed = *meta(st, name) != '\0';
    if (!*borrowed)
        tensor_name(name, site, "tokens");
    const char *text = meta(st, name);
    *tokens = strtoull(text, &end, 10);
    return *text >= '1' && *text <= '9' && *end == '\0' && *tokens <= c->tokens;
}

/* TSR_NEED_* that all sites have in the shape that fits. */
static uint64_t stored_needs(const struct tsr_safetensors       *st,
                             const struct tsr_quant_calibration *c, uint64_t layer)
{
    uint64_t have = TSR_COLLECTED, tokens;
    bool     borrowed;
    for (uint64_t i = 0; i < c->sites; i++) {
        struct part p[PARTS];
        if (!tsr_model_layer_has_site(c->source->model, layer, (enum tsr_site)i))
            continue;
        parts_wanted(c, layer, i, p);
        if (!tokens_of(st, c, i, &tokens, &borrowed))
            return 0;
        for (int k = 0; k < PARTS; k++)
            if (p[k].bit && !find_part(st, i, &p[k]))
                have &= ~p[k].bit;
    }
    return have;
}

/* The bytes of a tensor, which must be those that were written. */
static tsr_status read_part(const struct tsr_safetensors        *st,
                            const struct tsr_safetensors_tensor *t, void **out, struct tsr_err *err)
{
    uint64_t bytes = t->end - t->begin;
    char     content[TSR_HASH_TEXT];
    void    *data = tsr_new_aligned(bytes, 1);
    if (!data)
        return tsr_fail_nomem(err, bytes, t->name);
    tsr_status rc = tsr_safetensors_read(st, t, data, err);
    if (rc == TSR_OK) {
        tsr_hash_bytes(data, bytes, content);
        if (strcmp(content, meta(st, t->name)) != 0)
            rc = tsr_fail(err, TSR_E_INPUT,
                          "%s: the bytes of '%s' are not those that were written; delete the file "
                          "and run again",
                          st->file.path, t->name);
    }
    if (rc != TSR_OK) {
        free(data);
        return rc;
    }
    *out = data;
    return TSR_OK;
}

static tsr_status read_site(const struct tsr_safetensors *st, const struct tsr_quant_calibration *c,
                            uint64_t layer, uint64_t site, uint64_t need,
                            struct tsr_quant_layer_stats *s, struct tsr_err *err)
{
    bool                    borrowed;
    struct part             p[PARTS];
    struct tsr_quant_stats *q = &s->site[site];
    const float           **target[PARTS] = { &q->absmax,  &q->mean,   &q->variance, &q->mean_abs,
                                              &q->hessian, &q->inputs, NULL };
    parts_wanted(c, layer, site, p);
    q->struct_size = sizeof *q;
    q->cols = tsr_model_layer_site_cols(c->source->model, layer, (enum tsr_site)site);
    (void)tokens_of(st, c, site, &q->tokens, &borrowed); /* stored_needs() has seen it */
    s->borrowed[site] = borrowed;
    for (int k = 0; k < PARTS; k++) {
        const struct tsr_safetensors_tensor *t = find_part(st, site, &p[k]);
        void                                *data = NULL;
        if (!t || !(need & p[k].bit))
            continue;
        TSR_TRY(read_part(st, t, &data, err));
        if (target[k]) {
            *target[k] = data;
        } else {
            memcpy(&s->top[site], data, sizeof s->top[site]);
            free(data);
        }
        if (p[k].bit == TSR_NEED_INPUTS)
            q->input_rows = t->shape[0];
    }
    return TSR_OK;
}

static tsr_status read_all(const struct tsr_safetensors *st, const struct tsr_quant_calibration *c,
                           uint64_t layer, uint64_t need, struct tsr_quant_layer_stats *out,
                           struct tsr_err *err)
{
    TSR_TRY(tsr_quant_layer_stats_new(out, c->sites, c->seqlen, err));
    tsr_status rc = TSR_OK;
    for (uint64_t i = 0; i < c->sites && rc == TSR_OK; i++)
        if (tsr_model_layer_has_site(c->source->model, layer, (enum tsr_site)i))
            rc = read_site(st, c, layer, i, need, out, err);
    if (rc != TSR_OK)
        tsr_quant_layer_stats_free(out);
    return rc;
}

tsr_status tsr_quant_calibration_file_read(const struct tsr_quant_calibration *c, uint64_t layer,
                                           uint64_t need, uint64_t must, uint64_t *have,
                                           struct tsr_quant_layer_stats *out, struct tsr_err *err)
{
    struct tsr_safetensors st;
    char                  *path;
    *have = 0;
    TSR_TRY(file_path(c, layer, &path, err));
    if (!tsr_path_exists(path)) {
        free(path);
        return TSR_OK;
    }
    tsr_status rc = tsr_safetensors_open(&st, path, err);
    free(path);
    if (rc != TSR_OK)
        return rc;
    if (strcmp(meta(&st, "format"), FORMAT) != 0)
        rc = tsr_fail(err, TSR_E_INPUT, "%s: is not a %s file; name another folder with --out",
                      st.file.path, FORMAT);
    else if (strcmp(meta(&st, "fingerprint"), c->hash) == 0 && is_number(meta(&st, "layer"), layer))
        *have = stored_needs(&st, c, layer);
    else
        tsr_logf(TSR_LOG_INFO, "%s is of another model, text or options; it is made again",
                 st.file.path);
    if (rc == TSR_OK && *have && (*have & must) == must)
        rc = read_all(&st, c, layer, need, out, err);
    tsr_safetensors_close(&st);
    return rc;
}
