#include "cli/inspect/inspect.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/stamp.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/tokenizer.h"
#include "config/config.h"
#include "model/bind.h"
#include "model/family.h"
#include "plugin/spec.h"
#include "quant/quant.h"
#include "tessera/backend.h"

#include <stdlib.h>
#include <string.h>

/* ---- formats, families, devices -------------------------------------------- */

tsr_status tsr_inspect_formats(json_t **out, struct tsr_err *err)
{
    *out = json_pack(
        "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "id",
        TSR_FORMAT_FLOAT, "summary", "F32, F16 or BF16 elements", "id", TSR_FORMAT_INT, "summary",
        "2 to 8 bits an element, a scale (F16 or F32) per group or row, optional zero points", "id",
        TSR_FORMAT_AFFINE, "summary",
        "2 to 8 bits an element, a scale and a minimum per group or row, or codes of them under "
        "F16 factors of 256 columns",
        "id", TSR_FORMAT_LUT, "summary",
        "2 to 8 bits an element, a table (F16 or F32) per row, optional outliers", "id",
        TSR_FORMAT_TABLE, "summary",
        "2 to 8 bits an element, up to 4 under a table of the matrix, a scale per group or row, or "
        "codes of them",
        "id", TSR_FORMAT_MX, "summary",
        "FP8 to INT2 elements under a power of two of 4 to 8 bits per block");
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, "the list of formats");
}

tsr_status tsr_inspect_models(json_t **out, struct tsr_err *err)
{
    const struct tsr_model_family *f = NULL;
    json_t                        *all = json_array();
    tsr_status                     st = all ? TSR_OK : tsr_fail_nomem(err, 0, "a list");
    for (uint64_t i = 0; st == TSR_OK; i++) {
        st = tsr_model_family_at(i, &f, err);
        if (st != TSR_OK || !f)
            break;
        if (json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "name", f->name, "architecture",
                                                 f->architectures[0], "summary", f->summary)) != 0)
            st = tsr_fail_nomem(err, 0, "the list of model families");
    }
    if (st != TSR_OK) {
        json_decref(all);
        all = NULL;
    }
    *out = all;
    return st;
}

tsr_status tsr_inspect_checkpoints(json_t **out, struct tsr_err *err)
{
    const char *method, *summary;
    json_t     *all = json_array();
    bool        ok = all != NULL;
    for (uint64_t i = 0; ok && (method = tsr_model_checkpoint_get(i, &summary)); i++)
        ok = json_array_append_new(all, json_pack("{s:s, s:s}", "name", method, "summary",
                                                  summary)) == 0;
    *out = all;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of checkpoints");
}

/* One backend with its default options; its start-up error is data here. */
static tsr_status device_json(const struct tsr_plugin_found *f, json_t **out, struct tsr_err *err)
{
    const struct tsr_backend_v1 *t = f->iface;
    struct tsr_backend_props     p = { .struct_size = sizeof p };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_plugin_spec       spec;
    void                        *self = NULL;
    tsr_status                   st = tsr_plugin_spec_defaults(&spec, f, &e.err);
    if (st == TSR_OK)
        st = t->create(f->host, spec.options, &self, &e.err);
    if (st == TSR_OK)
        st = t->properties(self, &p, &e.err);
    if (st == TSR_OK)
        *out = json_pack("{s:s, s:s, s:I, s:I, s:b}", "backend", f->component->name, "device",
                         p.device ? p.device : "", "memory_bytes", (json_int_t)p.memory_bytes,
                         "free_bytes", (json_int_t)p.free_bytes, "deterministic",
                         p.deterministic != 0);
    else
        *out = json_pack("{s:s, s:s}", "backend", f->component->name, "error", e.text);
    if (self)
        t->destroy(self);
    tsr_plugin_spec_close(&spec);
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, "the list of devices");
}

tsr_status tsr_inspect_devices(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    struct tsr_plugin_found f;
    *out = json_array();
    if (!*out)
        return tsr_fail_nomem(err, 0, "the list of devices");
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++) {
        json_t *one = NULL;
        if (strcmp(f.component->kind, TSR_KIND_BACKEND) != 0)
            continue;
        TSR_TRY(device_json(&f, &one, err));
        if (json_array_append_new(*out, one) != 0)
            return tsr_fail_nomem(err, 0, "the list of devices");
    }
    return TSR_OK;
}

/* ---- a model ---------------------------------------------------------------- */

/* dtype: as stored, or before packing. */
static json_t *tensor_json(const char *name, const struct tsr_matrix *w,
                           const struct tsr_model_packed *p)
{
    char    format[300] = "";
    json_t *j = json_pack("{s:s, s:s, s:[I, I]}", "name", name, "dtype", tsr_dtype_name(w->dtype),
                          "shape", (json_int_t)w->rows, (json_int_t)w->cols);
    if (j && p && tsr_model_format_known(&p->format))
        tsr_model_format_name(&p->format, format, sizeof format);
    else if (j && p)
        (void)snprintf(format, sizeof format, "%s", p->format_id);
    if (*format && json_object_set_new(j, "format", json_string(format)) != 0) {
        json_decref(j);
        return NULL;
    }
    return j;
}

/* The first layer with experts; the number of layers: none has some. */
static uint64_t sparse_layer(const struct tsr_model *m, uint64_t *count)
{
    uint64_t first = m->hp.layers;
    *count = 0;
    for (uint64_t l = 0; m->hp.sparse && l < m->hp.layers; l++) {
        first = m->hp.sparse[l] && first == m->hp.layers ? l : first;
        *count += m->hp.sparse[l];
    }
    return first;
}

static bool is_latent(uint64_t id)
{
    return id >= TSR_MODEL_Q_A && id <= TSR_MODEL_KV_B;
}

/* Router and the linears of the first expert in the first layer that has some. */
static bool add_experts(const struct tsr_model *m, json_t *to)
{
    uint64_t count, l = sparse_layer(m, &count);
    bool     ok = true;
    for (uint64_t i = TSR_MODEL_ROUTER;
         l < m->hp.layers && i < TSR_MODEL_EXPERTS + TSR_EXPERT_LINEARS; i++) {
        const struct tsr_matrix *w = &m->layers[l].lin[i].w;
        const char              *name = strstr(w->name, ".mlp.");
        if (w->rows == 0 || is_latent(i))
            continue;
        ok = ok &&
             json_array_append_new(to, tensor_json(name ? name + 5 : w->name, w,
                                                   m->packed ? m->packed->lin[l][i] : NULL)) == 0;
    }
    return ok;
}

/* Embedding, the linears of the first layer, an expert's, head. */
static bool add_shapes(const struct tsr_model *m, json_t *to)
{
    bool     ok = json_array_append_new(to, tensor_json("embedding", &m->embed,
                                                    m->packed ? m->packed->embed : NULL)) == 0;
    uint64_t linears = m->hp.layers > 0 ? m->hp.linears : 0;
    for (uint64_t i = 0; ok && i < linears && i < TSR_MODEL_EXPERTS; i++) {
        const struct tsr_model_linear *l = &m->layers[0].lin[i];
        if (l->w.rows && (i < TSR_MODEL_ROUTER || is_latent(i)))
            ok = json_array_append_new(to, tensor_json(tsr_model_linear_name((enum tsr_linear_id)i),
                                                       &l->w,
                                                       m->packed ? m->packed->lin[0][i] : NULL)) ==
                 0;
    }
    ok = ok && add_experts(m, to);
    const struct tsr_model_packed *head = m->packed ? m->packed->head : NULL;
    if (ok && m->head.w.rows && (!m->hp.tied || head))
        ok = json_array_append_new(to, tensor_json("head", &m->head.w, head)) == 0;
    return ok;
}

/* The file that holds a model's tokenizer: its own where the model is one file. */
static tsr_status stamp_file(const char *path, char **file, struct tsr_err *err)
{
    char *real = NULL;
    TSR_TRY(tsr_model_resolve(path, &real, err));
    *file = tsr_path_is_dir(real) ? tsr_path_join(real, "tokenizer.json") : tsr_strdup(real);
    free(real);
    return *file ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
}

/* {size, hash}, or {error} of a tokenizer that is wrong; null without tokenizer.json.  That it cannot be read now, for
 * want of memory or of descriptors, says nothing about it and is an error of the command. */
static tsr_status tokenizer_json(const char *path, json_t **out, struct tsr_err *err)
{
    char *folder = NULL;
    TSR_TRY(tsr_model_resolve(path, &folder, err));
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t = NULL;
    bool                  there = false;
    tsr_status            st = tsr_checkpoint_tokenizer_there(folder, &there, &e.err);
    if (st == TSR_OK && there)
        st = tsr_checkpoint_tokenizer_load(&t, folder, &e.err);
    if (t)
        *out = json_pack("{s:I, s:s}", "size", (json_int_t)tsr_tokenizer_size(t), "hash",
                         tsr_tokenizer_hash(t));
    else if (st == TSR_OK)
        *out = json_null();
    else if (st == TSR_E_INPUT || st == TSR_E_UNSUPPORTED)
        *out = json_pack("{s:s}", "error", e.text);
    tsr_tokenizer_destroy(t);
    free(folder);
    if (!*out && st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, path);
}

/* Names of the chat templates, "default" first if there is one; null if a file that holds some is wrong. */
static tsr_status templates_of(const char *path, json_t **out, struct tsr_err *err)
{
    char         *folder = NULL;
    json_t       *list = NULL, *config = NULL, *names = NULL;
    const json_t *one;
    size_t        i;
    TSR_TRY(tsr_model_resolve(path, &folder, err));
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tsr_checkpoint_chat_texts(folder, &list, &config, &e.err);
    free(folder);
    if (st != TSR_OK && st != TSR_E_INPUT)
        return tsr_err_copy(err, st, &e.err);
    bool ok = st != TSR_OK || (names = json_array()) != NULL;
    json_array_foreach (list, i, one) {
        json_t *name = json_object_get(one, "name");
        ok = ok &&
             (strcmp(tsr_json_word(name), "default") == 0 ? json_array_insert(names, 0, name)
                                                          : json_array_append(names, name)) == 0;
    }
    json_decref(list);
    json_decref(config);
    if (!ok) {
        json_decref(names);
        return tsr_fail_nomem(err, 64, path);
    }
    *out = names ? names : json_null();
    return TSR_OK;
}

/* The same, and checks that the file is unchanged since before the model was opened. */
static tsr_status tokenizer_of(const char *path, const struct tsr_stamp *then, json_t **out,
                               struct tsr_err *err)
{
    struct tsr_stamp now;
    char            *file = NULL;
    TSR_TRY(tokenizer_json(path, out, err));
    tsr_status st = stamp_file(path, &file, err);
    if (st == TSR_OK) {
        (void)tsr_stamp_take(&now, file);
        if (!tsr_stamp_same(&now, then))
            st = tsr_fail(err, TSR_E_INPUT, "%s: changed while it was read; run again", file);
    }
    free(file);
    if (st != TSR_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

/* The layout of weights in a prepacked file, and its sources. */
static bool add_prepacked(const struct tsr_prepacked *p, bool verified, json_t *to)
{
    json_t *j = json_pack("{s:s, s:I, s:s*, s:s, s:I}", "layout", p->layout, "revision",
                          (json_int_t)p->revision, "target", p->target, "source", p->source,
                          "file_bytes", (json_int_t)p->bytes);
    if (j && verified && json_object_set_new(j, "verified", json_true()) != 0) {
        json_decref(j);
        return false;
    }
    return json_object_set_new(to, "prepacked", j) == 0;
}

tsr_status tsr_inspect_model(const char *path, bool verify, const char *profile, json_t **out,
                             struct tsr_err *err)
{
    struct tsr_model *m = NULL;
    json_t           *tokenizer = NULL, *templates = NULL;
    struct tsr_stamp  then;
    char             *file = NULL, *config = NULL;
    TSR_TRY(tsr_model_config_alone(path, &config, err));
    if (config) {
        tsr_status st =
            *profile ? tsr_fail(err, TSR_E_INPUT,
                                "%s: has no weights; --profile compares those of a packed "
                                "model",
                                path)
            : verify ? tsr_fail(err, TSR_E_INPUT,
                                "%s: has no weights; --verify reads a prepacked file", path)
                     : tsr_inspect_config(config, out, err);
        free(config);
        return st;
    }
    TSR_TRY(stamp_file(path, &file, err));
    (void)tsr_stamp_take(&then, file); /* before anything is read */
    free(file);
    TSR_TRY(tsr_model_load(&m, path, true, err));
    tsr_status st = TSR_OK;
    if (verify)
        st = m->prepacked ? tsr_prepacked_verify(m->prepacked, NULL, NULL, err)
                          : tsr_fail(err, TSR_E_INPUT,
                                     "%s: --verify reads prepacked files, which have a hash of "
                                     "every part; other models are checked when they are loaded",
                                     path);
    if (st == TSR_OK)
        st = templates_of(path, &templates, err);
    if (st == TSR_OK)
        st = tokenizer_of(path, &then, &tokenizer, err);
    if (st != TSR_OK) {
        json_decref(templates);
        tsr_model_destroy(m);
        return st;
    }
    const struct tsr_model_hparams *h = &m->hp;
    json_t                         *j =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, "
                  "s:s, s:o, s:o}",
                  "path", m->path, "family", m->family, "layers", (json_int_t)h->layers, "hidden",
                  (json_int_t)h->hidden, "ffn", (json_int_t)h->ffn, "heads", (json_int_t)h->heads,
                  "kv_heads", (json_int_t)h->kv_heads, "head_dim", (json_int_t)h->head_dim, "vocab",
                  (json_int_t)h->vocab, "max_positions", (json_int_t)h->max_positions, "tied",
                  h->tied, "parameters", (json_int_t)m->parameters, "bytes", (json_int_t)m->bytes,
                  "resident_bytes", (json_int_t)m->bytes, "stored_bytes",
                  (json_int_t)m->storage->stored, "hash", m->hash, "tokenizer", tokenizer,
                  "chat_templates", templates);
    json_t *shapes = json_array();
    bool    ok = j && shapes && add_shapes(m, shapes) && json_object_set(j, "tensors", shapes) == 0;
    uint64_t sparse;
    (void)sparse_layer(m, &sparse);
    if (ok && h->experts)
        ok = json_object_set_new(j, "experts",
                                 json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)h->experts,
                                           "used", (json_int_t)h->experts_used, "ffn",
                                           (json_int_t)h->expert_ffn, "layers",
                                           (json_int_t)sparse)) == 0;
    if (ok && h->latent.rank)
        ok = json_object_set_new(j, "latent",
                                 json_pack("{s:I, s:I, s:I, s:I, s:I}", "rank",
                                           (json_int_t)h->latent.rank, "q_rank",
                                           (json_int_t)h->latent.q_rank, "nope",
                                           (json_int_t)h->latent.nope, "rope",
                                           (json_int_t)h->latent.rope, "v",
                                           (json_int_t)h->latent.v)) == 0;
    if (ok && h->shared_ffn)
        ok = json_object_set_new(json_object_get(j, "experts"), "shared",
                                 json_integer((json_int_t)h->shared_ffn)) == 0;
    if (ok && tsr_model_is_online(h))
        ok = json_object_set_new(j, "online",
                                 json_pack("{s:I, s:I, s:I, s:I}", "keys",
                                           (json_int_t)h->online.keys, "down",
                                           (json_int_t)h->online.down, "expert_down",
                                           (json_int_t)h->online.expert, "shared_down",
                                           (json_int_t)h->online.shared)) == 0;
    if (ok && m->packed)
        ok = json_object_set_new(j, "packed", json_string(m->packed_as)) == 0;
    if (ok && m->prepacked)
        ok = add_prepacked(m->prepacked, verify, j);
    json_decref(shapes);
    st = ok ? tsr_inspect_model_family(m, j, err) : tsr_fail_nomem(err, 0, path);
    if (st == TSR_OK)
        st = tsr_inspect_compensation(m, profile, j, err);
    tsr_model_destroy(m);
    *out = j;
    return st;
}
