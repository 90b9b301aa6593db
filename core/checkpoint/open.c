#include "model/model.h"

#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/contents.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/import/import.h"
#include "checkpoint/kind.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/safetensors/folder.h"
#include "checkpoint/texts.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_CAP (UINT64_C(16) << 20)
#define MODEL_KINDS                                                                                \
    "a model is a Hugging Face folder with config.json and safetensors, a GGUF file, what "        \
    "`tessera convert --to prepacked` wrote, or @demo"
#define LINEAR_NAME_CAP                                                                            \
    80 /* "model.layers.16383.mlp.experts.4095.gate_proj" fits, with any number */
#define PLACE_CAP 24

static const char *const linear_names[TSR_MODEL_ROUTER + 1] = {
    "q_proj",    "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
    "down_proj", "z_proj", "b_proj", "a_proj", "router",
};

const char *tsr_model_linear_name(enum tsr_linear_id id)
{
    static const char *const latent[] = { "q_a_proj", "q_b_proj", "kv_a_proj", "kv_b_proj" };
    if (id >= TSR_MODEL_Q_A && id <= TSR_MODEL_KV_B)
        return latent[id - TSR_MODEL_Q_A];
    return id == TSR_MODEL_SHARED_ROUTER ? "router" : linear_names[tsr_model_linear_kind(id)];
}

/* Where a linear is in its layer. */
static void place_of(enum tsr_linear_id id, char place[PLACE_CAP])
{
    if (id >= TSR_MODEL_SHARED_GATE && id <= TSR_MODEL_SHARED_ROUTER)
        (void)snprintf(place, PLACE_CAP, "mlp.shared_expert");
    else if (id < TSR_MODEL_EXPERTS)
        (void)snprintf(place, PLACE_CAP, "%s", tsr_model_linear_attends(id) ? "self_attn" : "mlp");
    else
        (void)snprintf(place, PLACE_CAP, "mlp.experts.%u",
                       (unsigned)(id - TSR_MODEL_EXPERTS) / TSR_EXPERT_LINEARS);
}

tsr_status tsr_model_check(const char *path, struct tsr_err *err)
{
    static const char *const names[] = { "config.json", "model.safetensors",
                                         "model.safetensors.index.json" };
    bool                     any = false;
    enum tsr_checkpoint_kind kind;
    TSR_TRY(tsr_checkpoint_kind(path, &kind, err));
    if (kind != TSR_CHECKPOINT_OTHER)
        return TSR_OK;
    if (!tsr_path_exists(path))
        return tsr_fail(err, TSR_E_INPUT, "%s: no such file or folder; " MODEL_KINDS, path);
    if (!tsr_path_is_dir(path))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a model; " MODEL_KINDS, path);
    for (size_t i = 0; i < sizeof names / sizeof *names && !any; i++)
        TSR_TRY(tsr_checkpoint_folder_has(path, names[i], &any, err));
    return any ? TSR_OK : tsr_checkpoint_contents_absent(path, err);
}

static tsr_status read_config(struct tsr_model_config *c, const char *folder,
                              struct tsr_hasher *hash, struct tsr_err *err)
{
    char    *text, *path;
    uint64_t len;
    TSR_TRY(
        tsr_checkpoint_folder_slurp(folder, "config.json", CONFIG_CAP, &text, &len, &path, err));
    tsr_hasher_update(hash, text, len);
    tsr_status st = tsr_model_config_parse(c, path, text, len, err);
    if (st == TSR_OK) /* an added family decides results, too */
        tsr_hasher_update(hash, c->family->hash, strlen(c->family->hash));
    free(text);
    free(path);
    return st;
}

/* generation_config.json may be absent. */
static tsr_status read_generation(struct tsr_model_config *c, const char *folder,
                                  struct tsr_err *err)
{
    char    *text, *path;
    uint64_t len;
    TSR_TRY(tsr_checkpoint_folder_slurp_if(folder, "generation_config.json", CONFIG_CAP, &text,
                                           &len, &path, err));
    if (!text)
        return TSR_OK;
    tsr_status st = tsr_model_generation_parse(c, path, text, len, err);
    free(text);
    free(path);
    return st;
}

/* Canonical names of all matrices. */
static tsr_status name_parts(struct tsr_model *m, struct tsr_err *err)
{
    uint64_t layers = m->hp.layers;
    uint64_t linears = m->hp.linears;
    char    *at = tsr_new(layers * linears, LINEAR_NAME_CAP);
    if (!at)
        return tsr_fail_nomem(err, layers * linears * LINEAR_NAME_CAP, "names");
    m->storage->names = at;
    for (uint64_t l = 0; l < layers; l++) {
        for (unsigned i = 0; i < linears; i++, at += LINEAR_NAME_CAP) {
            char place[PLACE_CAP];
            place_of((enum tsr_linear_id)i, place);
            (void)snprintf(at, LINEAR_NAME_CAP, "model.layers.%llu.%s.%s", (unsigned long long)l,
                           place, tsr_model_linear_name((enum tsr_linear_id)i));
            m->layers[l].lin[i].w.name = at;
        }
    }
    m->embed.name = "model.embed_tokens";
    m->positions.name = "model.embed_positions";
    m->project_in.w.name = "model.project_in";
    m->project_out.w.name = "model.project_out";
    m->head.w.name = "lm_head";
    return TSR_OK;
}

enum residence { WHOLE, HEADERS, STREAMED };

static tsr_status read_parts(struct tsr_model_binding *b, struct tsr_hasher *hash,
                             enum residence how)
{
    struct tsr_model *m = b->model;
    tsr_status        st = tsr_model_bind(b);
    if (st == TSR_OK)
        st = tsr_model_weights_read(b, m->storage, hash, how == HEADERS);
    if (st == TSR_OK && how == STREAMED)
        st = tsr_model_layers_take(b, m->storage);
    return st;
}

struct tsr_model_config tsr_model_config(const struct tsr_model *m)
{
    return (struct tsr_model_config){ .family = m->storage->family,
                                      .hp = m->hp,
                                      .has = m->storage->has };
}

/* What of the model is known before its tensors; takes c's hparams. */
static tsr_status begin_parts(struct tsr_model *m, struct tsr_model_config *c, const char *path,
                              struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    m->family = c->family->name;
    m->hp = c->hp;
    memset(&c->hp, 0, sizeof c->hp); /* the model owns its arrays now */
    TSR_TRY(tsr_model_layers_new(&m->hp, &m->layers, err));
    TSR_TRY(name_parts(m, err));
    s->family = c->family;
    s->has = c->has;
    s->folder = tsr_strdup(path);
    return s->folder ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
}

/* Of all tensors in the files, also of those that the model does not run. */
static uint64_t stored_bytes(const struct tsr_checkpoint_shards *s, const struct tsr_gguf *g)
{
    uint64_t n = 0;
    for (uint64_t i = 0; g && i < g->n; i++)
        n += g->tensors[i].bytes;
    for (uint64_t i = 0; !g && i < s->n; i++)
        n += s->tensors[i].t->end - s->tensors[i].t->begin;
    return n;
}

/* From here on the model has the head that its files hold, whatever a flag says. */
static tsr_status own_head(struct tsr_model_binding *b, struct tsr_model_config *view)
{
    bool own;
    TSR_TRY(tsr_model_bind_own_head(b, &own));
    if (!own)
        return TSR_OK;
    b->model->hp.tied = view->hp.tied = false;
    view->has |= TSR_HAS_HEAD;
    b->model->storage->has = view->has;
    return TSR_OK;
}

/* g: the GGUF file that is read in place of a folder, or NULL; it is taken over. */
static tsr_status load_parts(struct tsr_model *m, struct tsr_model_config *c, const char *folder,
                             struct tsr_gguf *g, struct tsr_hasher *hash, enum residence how,
                             struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    TSR_TRY(begin_parts(m, c, folder, err));
    if (g) {
        TSR_TRY(tsr_gguf_shards(&s->shards, g, c->family, &m->hp, err));
        TSR_TRY(tsr_gguf_overlay(&s->shards, m, how == HEADERS, hash,
                                 how == STREAMED ? &s->reader : NULL, err));
        m->packed_as = m->packed ? "GGUF" : NULL;
        s->stored = stored_bytes(&s->shards, tsr_gguf_of(&s->shards));
    } else if (s->is_packed) {
        TSR_TRY(tsr_packed_model_read(folder, m, how == HEADERS,
                                      how == STREAMED ? &s->reader : NULL, s->kept, s->index, err));
        TSR_TRY(tsr_checkpoint_shards_open_file(&s->shards, folder, TSR_PACKED_KEPT, err));
        m->packed_as = TSR_PACKED_FORMAT;
    } else {
        TSR_TRY(tsr_checkpoint_contents_weights(folder, err));
        TSR_TRY(tsr_checkpoint_shards_open(&s->shards, folder, err));
        s->stored = stored_bytes(&s->shards, NULL);
    }
    struct tsr_model_config view = {
        .family = c->family, .hp = m->hp, .has = c->has, .quantization = c->quantization
    };
    struct tsr_model_binding b = { .config = &view,
                                   .shards = &s->shards,
                                   .model = m,
                                   .folder = folder,
                                   .says = g ? "its metadata" : "config.json",
                                   .spare = g != NULL,
                                   .err = err };
    if (!g)
        TSR_TRY(own_head(&b, &view));
    if (!g && !s->is_packed)
        TSR_TRY(tsr_import_model(&b, hash, how == HEADERS, how == STREAMED ? &s->reader : NULL));
    b.packed = m->packed;
    if (how == STREAMED && !(b.layer_bytes = tsr_new(m->hp.layers, sizeof *b.layer_bytes)))
        return tsr_fail_nomem(err, m->hp.layers * sizeof *b.layer_bytes, "layers");
    tsr_status st = read_parts(&b, hash, how);
    free(b.layer_bytes);
    tsr_model_binding_free(&b);
    if (s->is_packed) /* its files hold what is kept in memory */
        s->stored = m->bytes;
    if (how == HEADERS)
        tsr_checkpoint_shards_close(&s->shards);
    return st;
}

/* A packed model is what its index says, which names the hash of every part. */
static tsr_status check_packed(struct tsr_model *m, enum residence how, struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    if (how != HEADERS && strcmp(m->hash, s->kept) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: config.json and " TSR_PACKED_KEPT
                        " are not those that " TSR_PACKED_INDEX
                        " has the hash of; a file is damaged or from elsewhere%s",
                        s->folder,
                        *s->family->hash ? ", or the model was packed with another family file"
                                         : "");
    memcpy(m->hash, s->index, sizeof s->index);
    return TSR_OK;
}

static tsr_status load_gguf(struct tsr_model *m, const char *path, enum residence how,
                            struct tsr_err *err)
{
    struct tsr_model_storage *s = m->storage;
    struct tsr_model_config   c = { 0 };
    struct tsr_hasher        *hash;
    struct tsr_gguf           g;
    TSR_TRY(tsr_hasher_create(&hash, err));
    tsr_status st = tsr_gguf_open(&g, path, err);
    if (st == TSR_OK) {
        st = tsr_gguf_config(&g, &s->config, &s->config_len, err);
        if (st == TSR_OK)
            st = tsr_model_config_parse(&c, path, s->config, s->config_len, err);
        if (st == TSR_OK) {
            tsr_hasher_update(hash, s->config, s->config_len);
            tsr_hasher_update(hash, c.family->hash, strlen(c.family->hash));
            st = load_parts(m, &c, path, &g, hash, how, err);
        }
        tsr_gguf_close(&g);
    }
    tsr_model_config_free(&c);
    tsr_hasher_finish(hash, m->hash);
    return st;
}

/* config.json and generation_config.json of a prepacked file. */
static tsr_status prepacked_config(const struct tsr_prepacked *p, struct tsr_model_config *c,
                                   struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_prepacked_text(p, "config.json", &text, &len, err));
    if (!text)
        return tsr_fail(err, TSR_E_INPUT, "%s: holds no config.json; convert the model again",
                        p->path);
    tsr_status st = tsr_model_config_parse(c, p->path, text, len, err);
    free(text);
    TSR_TRY(st);
    TSR_TRY(tsr_prepacked_text(p, "generation_config.json", &text, &len, err));
    if (text)
        st = tsr_model_generation_parse(c, p->path, text, len, err);
    free(text);
    return st;
}

tsr_status tsr_prepacked_model_from_prepacked(struct tsr_model *m, struct tsr_prepacked *p,
                                              bool headers_only, struct tsr_err *err)
{
    struct tsr_model_config c = { 0 };
    tsr_status              st = prepacked_config(p, &c, err);
    if (st == TSR_OK && c.hp.tied && tsr_prepacked_own_head(p)) {
        c.hp.tied = false; /* as it was when the file was written */
        c.has |= TSR_HAS_HEAD;
    }
    if (st == TSR_OK)
        st = begin_parts(m, &c, p->path, err);
    if (st == TSR_OK)
        st = tsr_prepacked_bind(p, m, headers_only, err);
    m->storage->stored = m->bytes;
    tsr_model_config_free(&c);
    m->packed_as = !m->packed ? NULL : p->packed_as ? p->packed_as : TSR_PREPACKED_FORMAT;
    memcpy(m->hash, p->hash, sizeof p->hash);
    return st;
}

static tsr_status load_prepacked(struct tsr_model *m, const char *path, bool headers_only,
                                 struct tsr_err *err)
{
    struct tsr_prepacked *p = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, path);
    tsr_status st = tsr_prepacked_open(p, path, err);
    if (st != TSR_OK) {
        free(p);
        return st;
    }
    m->prepacked = p;
    return tsr_prepacked_model_from_prepacked(m, p, headers_only, err);
}

static tsr_status load(struct tsr_model *m, const char *folder, enum residence how,
                       struct tsr_err *err)
{
    struct tsr_hasher       *hash;
    struct tsr_model_config  c = { 0 };
    enum tsr_checkpoint_kind kind;
    tsr_model_text_stamps_take(&m->storage->stamps, folder); /* before anything is read */
    TSR_TRY(tsr_checkpoint_kind(folder, &kind, err));
    if (kind == TSR_CHECKPOINT_GGUF)
        return load_gguf(m, folder, how, err);
    if (kind == TSR_CHECKPOINT_PREPACKED)
        return load_prepacked(m, folder, how == HEADERS, err);
    TSR_TRY(tsr_model_check(folder, err));
    TSR_TRY(tsr_packed_model_find(folder, &m->storage->is_packed, err));
    TSR_TRY(tsr_hasher_create(&hash, err));
    tsr_status st = read_config(&c, folder, hash, err);
    if (st == TSR_OK)
        st = read_generation(&c, folder, err);
    if (st == TSR_OK)
        st = load_parts(m, &c, folder, NULL, hash, how, err);
    tsr_model_config_free(&c);
    tsr_hasher_finish(hash, m->hash);
    return st == TSR_OK && m->storage->is_packed ? check_packed(m, how, err) : st;
}

static tsr_status load_as(struct tsr_model **out, const char *path, enum residence how,
                          struct tsr_err *err)
{
    struct tsr_model *m = tsr_new(1, sizeof *m);
    if (m)
        m->storage = tsr_new(1, sizeof *m->storage);
    if (!m || !m->storage) {
        free(m);
        return tsr_fail_nomem(err, sizeof *m, path);
    }
    m->storage->sealed.fd = -1;
    char      *folder = NULL;
    tsr_status st = TSR_OK;
    m->path = m->storage->path = tsr_strdup(path);
    if (!m->path)
        st = tsr_fail_nomem(err, strlen(path), path);
    if (st == TSR_OK)
        st = tsr_model_resolve(path, &folder, err);
    if (st == TSR_OK)
        st = load(m, folder, how, err);
    free(folder);
    if (st != TSR_OK) {
        tsr_model_destroy(m);
        return st;
    }
    *out = m;
    return TSR_OK;
}

tsr_status tsr_model_load(struct tsr_model **m, const char *path, bool headers_only,
                          struct tsr_err *err)
{
    return load_as(m, path, headers_only ? HEADERS : WHOLE, err);
}

tsr_status tsr_model_load_streamed(struct tsr_model **m, const char *path, struct tsr_err *err)
{
    return load_as(m, path, STREAMED, err);
}
