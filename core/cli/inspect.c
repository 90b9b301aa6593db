#include "cli/inspect.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/config.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "plugin/spec.h"
#include "quant/packed_model.h"
#include "tessera/backend.h"

#include <stdlib.h>
#include <string.h>

/* ---- plugins ----------------------------------------------------------- */

/* "quantizer" of "tessera.quantizer/1" */
static void kind_word(const char *kind, char buf[64])
{
    const char *dot = strrchr(kind, '.'), *word = dot ? dot + 1 : kind;
    (void)snprintf(buf, 64, "%.*s", (int)strcspn(word, "/"), word);
}

static json_t *component_json(const struct tsr_found *f)
{
    const struct tsr_plugin *p = f->info->plugin;
    char                     kind[64], abi[16];
    kind_word(f->component->kind, kind);
    (void)snprintf(abi, sizeof abi, "%u.%u", p->abi_major, p->abi_minor);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "kind", kind, "name",
                     f->component->name, "summary", f->component->summary, "id", p->id, "version",
                     p->version, "abi", abi, "license", p->license, "path", f->info->path, "hash",
                     f->info->hash, "build", p->build);
}

tsr_status tsr_inspect_plugins(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    struct tsr_found f;
    json_t          *all = json_array();
    bool             ok = all != NULL;
    for (uint64_t i = 0; ok && tsr_registry_component(r, i, &f); i++)
        ok = json_array_append_new(all, component_json(&f)) == 0;
    *out = all;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of plugins");
}

tsr_status tsr_inspect_refused(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    const char *path, *why;
    json_t     *all = json_array();
    bool        ok = all != NULL;
    for (uint64_t i = 0; ok && tsr_registry_refused(r, i, &path, &why); i++)
        ok = json_array_append_new(all, json_pack("{s:s, s:s}", "path", path, "why", why)) == 0;
    *out = all;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of refused plugins");
}

static json_t *value_json(const struct tsr_option *o, const union tsr_value *v)
{
    switch (o->type) {
    case TSR_OPT_BOOL:
        return json_boolean(v->i != 0);
    case TSR_OPT_INT:
        return json_integer(v->i);
    case TSR_OPT_REAL:
        return json_real(v->r);
    case TSR_OPT_ENUM:
        for (uint64_t i = 0; i < o->n_choices; i++)
            if (o->choices[i].value == v->i)
                return json_string(o->choices[i].name);
        return json_null();
    default:
        return json_string(v->s ? v->s : "");
    }
}

static json_t *option_json(const struct tsr_option *o)
{
    static const char *const types[] = { "?", "bool", "int", "real", "enum", "string" };
    char                     text[256];
    bool                     required = o->flags & TSR_OPT_REQUIRED, ok;
    tsr_option_describe(o, text, sizeof text);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s?, s:b, s:b, s:s}", "name", o->name, "type",
                          types[o->type <= TSR_OPT_STRING ? o->type : 0], "help", o->help, "unit",
                          o->unit, "required", required, "advanced",
                          (o->flags & TSR_OPT_ADVANCED) != 0, "text", text);
    ok = j &&
         json_object_set_new(j, "default", required ? json_null() : value_json(o, &o->def)) == 0;
    bool bounded = (o->type == TSR_OPT_INT && o->min.i != o->max.i) ||
                   (o->type == TSR_OPT_REAL && o->min.r < o->max.r);
    if (ok && bounded)
        ok = json_object_set_new(j, "min", value_json(o, &o->min)) == 0 &&
             json_object_set_new(j, "max", value_json(o, &o->max)) == 0;
    if (ok && o->replaced_by)
        ok = json_object_set_new(j, "replaced_by", json_string(o->replaced_by)) == 0;
    json_t *choices = ok && o->type == TSR_OPT_ENUM ? json_array() : NULL;
    for (uint64_t i = 0; choices && ok && i < o->n_choices; i++)
        ok = json_array_append_new(choices, json_pack("{s:s, s:s?}", "name", o->choices[i].name,
                                                      "help", o->choices[i].help)) == 0;
    if (ok && o->type == TSR_OPT_ENUM)
        ok = json_object_set_new(j, "choices", choices) == 0;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

tsr_status tsr_inspect_component(const struct tsr_found *f, json_t **out, struct tsr_err *err)
{
    json_t *j = component_json(f), *options = json_array();
    bool    ok = j && options;
    for (uint64_t i = 0; ok && i < f->component->n_options; i++)
        ok = json_array_append_new(options, option_json(&f->component->options[i])) == 0;
    if (ok)
        ok = json_object_set(j, "options", options) == 0;
    json_decref(options);
    *out = j;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, f->component->name);
}

/* ---- formats, families, devices ------------------------------------------ */

tsr_status tsr_inspect_formats(json_t **out, struct tsr_err *err)
{
    *out = json_pack(
        "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "id", TSR_FORMAT_FLOAT, "summary",
        "F32, F16 or BF16 elements", "id", TSR_FORMAT_INT, "summary",
        "2 to 8 bits an element, a scale (F16 or F32) per group or row, optional zero points", "id",
        TSR_FORMAT_LUT, "summary",
        "2 to 8 bits an element, a table (F16 or F32) per row, optional outliers", "id",
        TSR_FORMAT_MX, "summary",
        "FP8 to INT2 elements under a power of two of 4 to 8 bits per block");
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, "the list of formats");
}

tsr_status tsr_inspect_models(json_t **out, struct tsr_err *err)
{
    const struct tsr_family *f;
    json_t                  *all = json_array();
    bool                     ok = all != NULL;
    for (uint64_t i = 0; ok && (f = tsr_family_get(i)); i++)
        ok =
            json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "name", f->name, "architecture",
                                                 f->architecture, "summary", f->summary)) == 0;
    *out = all;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of model families");
}

/* One backend with its default options; what it says when it cannot start is data here. */
static tsr_status device_json(const struct tsr_found *f, json_t **out, struct tsr_err *err)
{
    const struct tsr_backend_v1 *t = f->iface;
    struct tsr_backend_props     p = { .struct_size = sizeof p };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_spec              spec;
    void                        *self = NULL;
    tsr_status                   st = tsr_spec_defaults(&spec, f, &e.err);
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
    tsr_spec_close(&spec);
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, "the list of devices");
}

tsr_status tsr_inspect_devices(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    struct tsr_found f;
    *out = json_array();
    if (!*out)
        return tsr_fail_nomem(err, 0, "the list of devices");
    for (uint64_t i = 0; tsr_registry_component(r, i, &f); i++) {
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

/* dtype: as it is stored, or was before it was packed. */
static json_t *tensor_json(const char *name, const struct tsr_matrix *w, const struct tsr_packed *p)
{
    char    format[300] = "";
    json_t *j = json_pack("{s:s, s:s, s:[I, I]}", "name", name, "dtype", tsr_dtype_name(w->dtype),
                          "shape", (json_int_t)w->rows, (json_int_t)w->cols);
    if (j && p && tsr_format_known(&p->format))
        tsr_format_name(&p->format, format, sizeof format);
    else if (j && p)
        (void)snprintf(format, sizeof format, "%s", p->format_id);
    if (*format && json_object_set_new(j, "format", json_string(format)) != 0) {
        json_decref(j);
        return NULL;
    }
    return j;
}

/* Embedding, the linears of the first layer, head. */
static bool add_shapes(const struct tsr_model *m, json_t *to)
{
    bool ok = json_array_append_new(to, tensor_json("embedding", &m->embed, NULL)) == 0;
    for (int i = 0; ok && i < TSR_LINEARS && m->hp.layers > 0; i++) {
        const struct tsr_linear *l = &m->layers[0].lin[i];
        if (l->w.rows)
            ok = json_array_append_new(to,
                                       tensor_json(tsr_linear_name((enum tsr_linear_id)i), &l->w,
                                                   m->packed ? m->packed->lin[0][i] : NULL)) == 0;
    }
    const struct tsr_packed *head = m->packed ? m->packed->head : NULL;
    if (ok && m->head.w.rows && (!m->hp.tied || head))
        ok = json_array_append_new(to, tensor_json("head", &m->head.w, head)) == 0;
    return ok;
}

/* {size, hash} or {error}; null without tokenizer.json. */
static tsr_status tokenizer_json(const char *path, json_t **out, struct tsr_err *err)
{
    char *folder = NULL;
    TSR_TRY(tsr_model_resolve(path, &folder, err));
    char *file = tsr_path_join(folder, "tokenizer.json");
    if (!file) {
        free(folder);
        return tsr_fail_nomem(err, strlen(path), path);
    }
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_tokenizer *t = NULL;
    if (!tsr_path_exists(file))
        *out = json_null();
    else if (tsr_tokenizer_load(&t, folder, &e.err) != TSR_OK)
        *out = json_pack("{s:s}", "error", e.text);
    else
        *out = json_pack("{s:I, s:s}", "size", (json_int_t)tsr_tokenizer_size(t), "hash",
                         tsr_tokenizer_hash(t));
    tsr_tokenizer_destroy(t);
    free(file);
    free(folder);
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, path);
}

tsr_status tsr_inspect_model(const char *path, json_t **out, struct tsr_err *err)
{
    struct tsr_model *m = NULL;
    json_t           *tokenizer = NULL;
    TSR_TRY(tsr_model_load(&m, path, true, err));
    tsr_status st = tokenizer_json(path, &tokenizer, err);
    if (st != TSR_OK) {
        tsr_model_destroy(m);
        return st;
    }
    const struct tsr_hparams *h = &m->hp;
    json_t                   *j =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:s, s:o}",
                  "path", m->path, "family", m->family, "layers", (json_int_t)h->layers, "hidden",
                  (json_int_t)h->hidden, "ffn", (json_int_t)h->ffn, "heads", (json_int_t)h->heads,
                  "kv_heads", (json_int_t)h->kv_heads, "head_dim", (json_int_t)h->head_dim, "vocab",
                  (json_int_t)h->vocab, "max_positions", (json_int_t)h->max_positions, "tied",
                  h->tied, "parameters", (json_int_t)m->parameters, "bytes", (json_int_t)m->bytes,
                  "hash", m->hash, "tokenizer", tokenizer);
    json_t *shapes = json_array();
    bool    ok = j && shapes && add_shapes(m, shapes) && json_object_set(j, "tensors", shapes) == 0;
    if (ok && m->packed)
        ok = json_object_set_new(j, "packed", json_string(TSR_PACKED_FORMAT)) == 0;
    json_decref(shapes);
    tsr_model_destroy(m);
    *out = j;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, path);
}
