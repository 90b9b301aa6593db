/* manifest.json: the inputs of a job, in a reproducible order. */
#include "pipeline/job.h"

#include "base/hash.h"
#include "base/mem.h"
#include "model/config.h"
#include "tessera/backend.h"

#include <stdlib.h>
#include <string.h>

/* Takes the reference. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

/* Paths may hold bytes that JSON cannot. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    char *plain = tsr_strdup(s);
    for (char *p = plain; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    j = plain ? json_string(plain) : NULL;
    free(plain);
    return j;
}

static json_t *plugins(const struct tsr_registry *r)
{
    json_t *list = json_array();
    for (uint64_t i = 0; list && i < tsr_plugin_registry_count(r); i++) {
        const struct tsr_plugin_info *p = tsr_plugin_registry_plugin(r, i);
        json_t *o = json_pack("{s:s, s:s, s:s}", "id", p->plugin->id, "version", p->plugin->version,
                              "hash", p->hash);
        if (json_array_append_new(list, o) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static tsr_status inputs(const struct tsr_pipeline_job *job, json_t **out, struct tsr_err *err)
{
    const struct tsr_pipeline_job_state *s = job->state;
    json_t                              *list = json_array();
    tsr_status st = list && !s->inputs_lost ? TSR_OK : tsr_fail_nomem(err, 64, "the manifest");
    for (uint64_t i = 0; i < s->n_inputs && st == TSR_OK; i++) {
        char hash[TSR_HASH_TEXT];
        st = tsr_hash_file(s->inputs[i], hash, err);
        if (st == TSR_OK) /* the entry must describe the bytes that were read */
            st = tsr_stamps_check_file(&s->stamps, s->inputs[i], err);
        if (st == TSR_OK &&
            json_array_append_new(list, json_pack("{s:o, s:s}", "path", text(s->inputs[i]), "hash",
                                                  hash)) != 0)
            st = tsr_fail_nomem(err, 64, "the manifest");
    }
    if (st == TSR_OK)
        *out = list;
    else
        json_decref(list);
    return st;
}

/* The name that the default backend gives its device, or "" where that backend is not installed. */
static tsr_status device(struct tsr_registry *r, char *buf, size_t cap, struct tsr_err *err)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_found f;
    void                   *self = NULL, *opts;
    buf[0] = '\0';
    tsr_status st = tsr_plugin_registry_find(r, TSR_KIND_BACKEND, "cpu", &f, &e.err);
    if (st != TSR_OK)
        return st == TSR_E_NOMEM ? tsr_err_copy(err, st, &e.err) : TSR_OK;
    const struct tsr_backend_v1 *b = f.iface;
    opts = tsr_new(f.component->options_size ? f.component->options_size : 1, 1);
    if (!opts)
        return tsr_fail_nomem(err, f.component->options_size, "the manifest");
    struct tsr_config_optset set = { f.component->options, f.component->n_options,
                                     f.component->option_stride, opts };
    tsr_config_options_defaults(&set);
    st = b->create(tsr_plugin_registry_host(r), opts, &self, err);
    if (st == TSR_OK) {
        struct tsr_backend_props p = { .struct_size = sizeof p };
        st = b->properties(self, &p, err);
        if (st == TSR_OK && p.device)
            (void)snprintf(buf, cap, "%s", p.device);
        b->destroy(self);
    }
    free(opts);
    return st;
}

tsr_status tsr_pipeline_manifest_texts(const struct tsr_model *m, json_t *to, struct tsr_err *err)
{
    static const char *const names[] = { "generation_config.json", "tokenizer_config.json",
                                         "chat_template.jinja" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char     hash[TSR_HASH_TEXT], *text;
        uint64_t len;
        TSR_TRY(tsr_model_text(m, names[i], &text, &len, err));
        if (!text)
            continue;
        tsr_hash_bytes(text, len, hash);
        free(text);
        if (!put(to, names[i], json_string(hash)))
            return tsr_fail_nomem(err, 64, "the manifest");
    }
    return TSR_OK;
}

/* Of an added family's file; "" for a built-in one. */
static const char *family_hash(const struct tsr_model *m)
{
    return tsr_model_config(m).family->hash;
}

tsr_status tsr_pipeline_manifest_model(const struct tsr_pipeline_job *job, json_t **out,
                                       struct tsr_err *err)
{
    if (job->state->model_said) {
        *out = tsr_json_copy(job->state->model_said);
        return *out ? TSR_OK : tsr_fail_nomem(err, 256, "the manifest");
    }
    json_t    *model = json_pack("{s:o}", "path", text(job->model_path)), *said = json_object();
    bool       ok = model != NULL && said != NULL;
    tsr_status st = TSR_OK;
    if (ok && job->model) {
        ok = put(model, "family", json_string(job->model->family)) &&
             put(model, "hash", json_string(job->model->hash)) &&
             (!*family_hash(job->model) ||
              put(model, "family_hash", json_string(family_hash(job->model)))) &&
             json_object_set(model, "texts", said) == 0;
        st = tsr_pipeline_manifest_texts(job->model, said, err);
    }
    if (ok && job->tokenizer)
        ok = put(model, "tokenizer_hash", json_string(tsr_tokenizer_hash(job->tokenizer)));
    json_decref(said);
    if (!ok && st == TSR_OK)
        st = tsr_fail_nomem(err, 256, "the manifest");
    if (st == TSR_OK)
        *out = model;
    else
        json_decref(model);
    return st;
}

static tsr_status make_final(struct tsr_pipeline_job *job, json_t *m, struct tsr_err *err)
{
    char    name[128];
    json_t *machine;
    TSR_TRY(device(job->registry, name, sizeof name, err));
    machine = json_pack("{s:s, s:i}", "device", name, "threads",
                        (int)tsr_pool_threads(tsr_plugin_registry_pool(job->registry)));
    bool ok = put(m, "machine", machine);
    return put(m, "plugins", plugins(job->registry)) && ok
               ? TSR_OK
               : tsr_fail_nomem(err, 256, "the manifest");
}

tsr_status tsr_pipeline_manifest_make(struct tsr_pipeline_job *job, bool final, json_t **out,
                                      struct tsr_err *err)
{
    char    abi[16];
    json_t *m = json_object(), *in = NULL, *model = NULL;
    (void)snprintf(abi, sizeof abi, "%d.%d", TSR_ABI_MAJOR, TSR_ABI_MINOR);
    bool ok = put(m, "format", json_string("tessera.manifest/1")) &&
              put(m, "version", json_string(TSR_VERSION)) && put(m, "abi", json_string(abi)) &&
              put(m, "seed", json_integer((json_int_t)job->seed)) &&
              put(m, "options", tsr_config_node_json(tsr_config_doc_root(job->doc)));
    /* the complete list of plugins is part of a batch's identity, so a failed scan is an error */
    tsr_status st = final ? tsr_plugin_registry_scan(job->registry, err) : TSR_OK;
    if (st == TSR_OK && !ok)
        st = tsr_fail_nomem(err, 256, "the manifest");
    if (st == TSR_OK && final)
        st = make_final(job, m, err);
    if (st == TSR_OK && final) {
        st = tsr_pipeline_manifest_model(job, &model, err);
        if (st == TSR_OK && !put(m, "model", model))
            st = tsr_fail_nomem(err, 256, "the manifest");
    }
    if (st == TSR_OK && final) {
        st = inputs(job, &in, err);
        if (st == TSR_OK && !put(m, "inputs", in))
            st = tsr_fail_nomem(err, 256, "the manifest");
    }
    if (st == TSR_OK)
        st = json_object_update(m, job->manifest) == 0 ? TSR_OK
                                                       : tsr_fail_nomem(err, 256, "the manifest");
    if (st == TSR_OK)
        *out = m;
    else
        json_decref(m);
    return st;
}

/* ---- comparing ------------------------------------------------------------------ */

void tsr_pipeline_manifest_differences(const json_t *a, const json_t *b, struct tsr_differences *d)
{
    tsr_differences_add(d, "options", json_object_get(a, "options"), json_object_get(b, "options"));
    tsr_differences_add(d, "version", json_object_get(a, "version"), json_object_get(b, "version"));
}
