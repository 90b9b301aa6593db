/* Codec states as a safetensors file. */
#include "eval/codec_file.h"

#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/packed.h"
#include "plugin/choices.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT     "tessera.codec-state/1"
#define MAX_STATES (UINT64_C(2) * TSR_COMM_MAX_RANKS)

/* ---- the key ------------------------------------------------------------------ */

static void hash_packed(struct tsr_hasher *h, const struct tsr_model_packed *p)
{
    static const char none = '-';
    if (!p) {
        tsr_hasher_update(h, &none, 1);
        return;
    }
    tsr_hasher_update(h, p->format_id, strlen(p->format_id) + 1);
    if (p->codes)
        tsr_hasher_update(h, p->codes, tsr_model_packed_codes(p));
    if (p->meta)
        tsr_hasher_update(h, p->meta, tsr_model_packed_meta(p));
    if (p->dense)
        tsr_hasher_update(h, p->dense, p->rows * p->cols * sizeof *p->dense);
    if (p->order)
        tsr_hasher_update(h, p->order, p->cols * sizeof *p->order);
}

static void hash_norm(struct tsr_hasher *h, const struct tsr_model_norm *n, uint64_t cols)
{
    if (n->gain)
        tsr_hasher_update(h, n->gain, cols * sizeof *n->gain);
    if (n->bias)
        tsr_hasher_update(h, n->bias, cols * sizeof *n->bias);
}

static void hash_layer(struct tsr_hasher *h, const struct tsr_model *m,
                       const struct tsr_model_overlay *o, uint64_t layer)
{
    for (uint64_t i = 0; i < o->linears; i++)
        hash_packed(h, o->lin[layer][i]);
    if (o->online && (o->online[layer].keys || o->online[layer].down))
        tsr_hasher_update(h, &o->online[layer], sizeof o->online[layer]);
    for (int i = 0; o->norm && i < TSR_MODEL_OVERLAY_NORMS; i++)
        hash_norm(h, &o->norm[layer][i],
                  tsr_model_layer_site_cols(m, layer,
                                            tsr_model_overlay_norm_site((enum tsr_overlay_norm)i)));
}

static bool packs(const struct tsr_model_overlay *o)
{
    bool any = o->head || o->embed;
    for (uint64_t l = 0; l < o->layers && !any; l++)
        for (uint64_t i = 0; i < o->linears; i++)
            any = any || o->lin[l][i];
    return any;
}

tsr_status tsr_eval_codec_key_model(struct tsr_eval_codec_key *k, const struct tsr_model *m,
                                    const struct tsr_model_overlay *o, struct tsr_err *err)
{
    bool               stored = (!o || o == m->packed) && !*m->source;
    bool               folder = (!o || o == m->packed) && *m->source;
    struct tsr_hasher *h;
    tsr_status         st = TSR_OK;
    if (folder)
        o = m->packed;
    (void)snprintf(k->model, sizeof k->model, "%s", folder ? m->source : m->hash);
    (void)snprintf(k->weights, sizeof k->weights, "stored");
    if (stored || !packs(o))
        return TSR_OK;
    TSR_TRY(tsr_hasher_create(&h, err));
    for (uint64_t l = 0; l < o->layers && st == TSR_OK; l++) {
        if (folder) /* of one that is streamed only an open layer has its bytes */
            st = tsr_model_open_layer(m, l, err);
        if (st == TSR_OK)
            hash_layer(h, m, o, l);
        if (folder && st == TSR_OK)
            tsr_model_close_layer(m, l);
    }
    hash_packed(h, o->head);
    if (o->embed) /* a state of a model without one stays valid */
        hash_packed(h, o->embed);
    tsr_hasher_finish(h, k->weights);
    return st;
}

/* ---- writing -------------------------------------------------------------------- */

static tsr_status put_head(struct tsr_st_out *o, const struct tsr_eval_codec_key *k,
                           const char *text, const struct tsr_comm_state *states, uint64_t n,
                           struct tsr_err *err)
{
    char ranks[16], name[40], hash[TSR_HASH_TEXT];
    (void)snprintf(ranks, sizeof ranks, "%u", k->ranks);
    const struct {
        const char *key, *value;
    } head[] = { { "format", FORMAT },
                 { "model", k->model },
                 { "weights", k->weights },
                 { "codec", k->codec },
                 { "algorithm", tsr_comm_algorithm_name(k->algorithm) },
                 { "ranks", ranks },
                 { "act", tsr_plugin_act_name((uint32_t)k->act) },
                 { "text", text } };
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        TSR_TRY(tsr_safetensors_metadata(o, head[i].key, head[i].value, err));
    for (uint64_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "state.%03llu", (unsigned long long)i);
        tsr_hash_bytes(states[i].data, states[i].bytes, hash);
        TSR_TRY(tsr_safetensors_metadata(o, name, hash, err));
    }
    for (uint64_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "state.%03llu", (unsigned long long)i);
        TSR_TRY(tsr_safetensors_declare(o, name, TSR_U8, 1, &states[i].bytes, err));
    }
    return tsr_safetensors_begin(o, err);
}

tsr_status tsr_eval_codec_file_write(const char *path, const struct tsr_eval_codec_key *k,
                                     const char *text, const struct tsr_comm_state *states,
                                     uint64_t n, struct tsr_err *err)
{
    struct tsr_st_out *o = NULL;
    TSR_TRY(tsr_safetensors_create(&o, path, err));
    tsr_status st = put_head(o, k, text, states, n, err);
    for (uint64_t i = 0; st == TSR_OK && i < n; i++)
        tsr_safetensors_put(o, states[i].data, states[i].bytes);
    if (st == TSR_OK)
        return tsr_safetensors_commit(o, err);
    tsr_safetensors_abort(o);
    return st;
}

/* ---- reading -------------------------------------------------------------------- */

static const char *meta(const struct tsr_safetensors *st, const char *key)
{
    for (uint64_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_keys[i], key) == 0)
            return st->meta_values[i];
    return "";
}

static tsr_status check(const struct tsr_safetensors *st, const char *path,
                        const struct tsr_eval_codec_key *k, struct tsr_err *err)
{
    char ranks[16];
    (void)snprintf(ranks, sizeof ranks, "%u", k->ranks);
    const struct {
        const char *key, *want, *what;
    } all[] = { { "model", k->model, "of the model" },
                { "weights", k->weights, "of the packed weights" },
                { "codec", k->codec, "codec" },
                { "algorithm", tsr_comm_algorithm_name(k->algorithm), "algorithm" },
                { "ranks", ranks, "number of ranks" },
                { "act", tsr_plugin_act_name((uint32_t)k->act), "act" } };
    if (strcmp(meta(st, "format"), FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s is not a codec calibration (" FORMAT "); `calibrate: {codecs: ...}` "
                        "writes one",
                        path);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(meta(st, all[i].key), all[i].want) != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s was calibrated for another %s%s: '%.80s', here it is '%.80s'; "
                            "calibrate again",
                            path, i < 2 ? "hash " : "", all[i].what, meta(st, all[i].key),
                            all[i].want);
    return TSR_OK;
}

static tsr_status read_state(const struct tsr_safetensors *st, const char *path, uint64_t i,
                             struct tsr_comm_state *s, struct tsr_err *err)
{
    char name[40], hash[TSR_HASH_TEXT];
    (void)snprintf(name, sizeof name, "state.%03llu", (unsigned long long)i);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, name);
    if (!t || t->dtype != TSR_U8 || t->rank != 1 || t->end == t->begin)
        return tsr_fail(err, TSR_E_INPUT, "%s: '%s' is missing or no bytes; calibrate again", path,
                        name);
    s->bytes = t->end - t->begin;
    void *data = tsr_new_aligned(s->bytes, 1);
    s->data = data;
    if (!data)
        return tsr_fail_nomem(err, s->bytes, "a codec's state");
    TSR_TRY(tsr_safetensors_read(st, t, data, err));
    tsr_hash_bytes(data, s->bytes, hash);
    if (strcmp(hash, meta(st, name)) != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: the bytes of '%s' are damaged; calibrate again",
                        path, name);
    return TSR_OK;
}

tsr_status tsr_eval_codec_file_load(struct tsr_eval_codec_file **out, const char *path,
                                    const struct tsr_eval_codec_key *k, struct tsr_err *err)
{
    struct tsr_safetensors      st;
    struct tsr_eval_codec_file *f = tsr_new(1, sizeof *f);
    if (!f)
        return tsr_fail_nomem(err, sizeof *f, "a codec's calibration");
    tsr_status r = tsr_safetensors_open(&st, path, err);
    if (r != TSR_OK) {
        free(f);
        return r;
    }
    r = check(&st, path, k, err);
    if (r == TSR_OK && (st.n == 0 || st.n > MAX_STATES))
        r = tsr_fail(err, TSR_E_INPUT, "%s has %llu states, at most %llu can be", path,
                     (unsigned long long)st.n, (unsigned long long)MAX_STATES);
    if (r == TSR_OK && !(f->states = tsr_new(st.n, sizeof *f->states)))
        r = tsr_fail_nomem(err, st.n * sizeof *f->states, "a codec's calibration");
    for (; r == TSR_OK && f->n < st.n; f->n++)
        r = read_state(&st, path, f->n, &f->states[f->n], err);
    (void)snprintf(f->text, sizeof f->text, "%s", meta(&st, "text"));
    tsr_safetensors_close(&st);
    if (r != TSR_OK) {
        tsr_eval_codec_file_free(f);
        return r;
    }
    *out = f;
    return TSR_OK;
}

void tsr_eval_codec_file_free(struct tsr_eval_codec_file *f)
{
    if (!f)
        return;
    for (uint64_t i = 0; i < f->n; i++)
        free((void *)(uintptr_t)f->states[i].data);
    free(f->states);
    free(f);
}
