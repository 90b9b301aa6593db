/* Codecs of KV caches: opened with the engine, their units in host memory. */
#include "engine/kv_codec.h"

#include "base/mem.h"
#include "plugin/kv_layers.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_engine_kv_choose(struct tsr_engine *e, const struct tsr_engine_options *opt,
                                struct tsr_err *err)
{
    uint64_t layers = e->model->hp.layers, dim = e->model->hp.head_dim;
    TSR_TRY(tsr_plugin_kv_learn(e->dev->registry, opt->kv_dtype, dim, err));
    e->kv_dtype = (uint32_t)tsr_plugin_kv_type(opt->kv_dtype);
    if (!opt->kv_layers || !*opt->kv_layers)
        return TSR_OK;
    if (e->streamed)
        return tsr_fail(err, TSR_E_CONFIG,
                        "kv_layers: a pass by layers has one cache for all; leave one of them out");
    e->kv_of = tsr_new(layers, sizeof *e->kv_of);
    if (!e->kv_of)
        return tsr_fail_nomem(err, layers * sizeof *e->kv_of, "the types of the cache");
    TSR_TRY(tsr_plugin_kv_layers(opt->kv_layers, opt->kv_dtype, layers, e->kv_of, err));
    for (uint64_t i = 0; i < layers; i++) {
        TSR_TRY(tsr_plugin_kv_learn(e->dev->registry, e->kv_of[i], dim, err));
        e->kv_of[i] = (uint32_t)tsr_plugin_kv_type(e->kv_of[i]);
    }
    return TSR_OK;
}

static tsr_status open_one(struct tsr_engine *e, uint32_t kv, uint64_t layer, struct tsr_err *err)
{
    struct tsr_engine_kv_codecs *z = e->kv_codecs;
    struct tsr_engine_device    *other = NULL;
    uint64_t                     i = 0;
    for (uint64_t l = e->first; l < layer && i < z->n; l++)
        if (tsr_engine_kv_of(e, l) == kv && z->stores[l].codec) {
            z->stores[layer].codec = z->stores[l].codec;
            return TSR_OK;
        }
    TSR_TRY(tsr_engine_device_other(e->dev, &other, err));
    if (other)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s has no KV cache of %s; choose f32, f16 or int8, or the backend cpu",
                        tsr_engine_device_text(e->dev), tsr_plugin_kv_name(kv));
    struct tsr_plugin_kv *c = &z->codecs[z->n++];
    TSR_TRY(tsr_plugin_kv_open(c, e->dev->registry, kv, e->model->hp.head_dim, err));
    z->stores[layer].codec = c;
    return TSR_OK;
}

/* Room for the rows that cross to the host and for the scratch of attention. */
static tsr_status make_room(struct tsr_engine *e, struct tsr_err *err)
{
    struct tsr_engine_kv_codecs *z = e->kv_codecs;
    uint64_t dim = e->model->hp.head_dim, wide = e->share.heads * dim, kv = e->share.kv_heads * dim;
    uint64_t queries = (uint64_t)TSR_ENGINE_KV_TILE * (e->share.heads / e->share.kv_heads);
    z->work_each = TSR_KV_BLOCK * dim + queries * (dim + TSR_KV_BLOCK + 2);
    z->q = tsr_new_aligned(TSR_ENGINE_KV_TOKENS * wide, sizeof *z->q);
    z->a = tsr_new_aligned(TSR_ENGINE_KV_TOKENS * wide, sizeof *z->a);
    z->k = tsr_new_aligned(TSR_ENGINE_KV_TOKENS * kv, sizeof *z->k);
    z->v = tsr_new_aligned(TSR_ENGINE_KV_TOKENS * kv, sizeof *z->v);
    z->work = tsr_new_aligned(e->share.kv_heads * z->work_each, sizeof *z->work);
    z->slopes = tsr_new(2 * (uint64_t)e->share.heads, sizeof *z->slopes);
    if (!z->q || !z->a || !z->k || !z->v || !z->work || !z->slopes)
        return tsr_fail_nomem(err, e->share.kv_heads * z->work_each * sizeof(float),
                              "attention over a codec's cache");
    z->sinks = z->slopes + e->share.heads;
    return TSR_OK;
}

tsr_status tsr_engine_kv_codecs_open(struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t n = 0;
    for (uint64_t l = e->first; l < e->end; l++)
        n += tsr_plugin_kv_is_codec(tsr_engine_kv_of(e, l)) &&
             !tsr_model_is_recurrent(&e->model->hp, l);
    if (n == 0 || e->share.kv_heads == 0)
        return TSR_OK;
    e->kv_codecs = tsr_new(1, sizeof *e->kv_codecs);
    if (e->kv_codecs) {
        e->kv_codecs->codecs = tsr_new(n, sizeof *e->kv_codecs->codecs);
        e->kv_codecs->stores = tsr_new(e->model->hp.layers, sizeof *e->kv_codecs->stores);
    }
    if (!e->kv_codecs || !e->kv_codecs->codecs || !e->kv_codecs->stores)
        return tsr_fail_nomem(err, n * sizeof *e->kv_codecs->codecs, "codecs of the KV cache");
    for (uint64_t l = e->first; l < e->end; l++)
        if (tsr_plugin_kv_is_codec(tsr_engine_kv_of(e, l)) &&
            !tsr_model_is_recurrent(&e->model->hp, l))
            TSR_TRY(open_one(e, tsr_engine_kv_of(e, l), l, err));
    return make_room(e, err);
}

tsr_status tsr_engine_kv_store_create(struct tsr_engine *e, uint64_t layer, uint64_t rows,
                                      struct tsr_err *err)
{
    struct tsr_engine_kv_store *s = &e->kv_codecs->stores[layer];
    uint64_t                    heads = (uint64_t)e->n_slots * e->share.kv_heads;
    s->rows = rows;
    for (int i = 0; i < 2; i++) {
        const struct tsr_kv_layout *l = &s->codec->layout[i];
        uint64_t                    bytes, tail = TSR_KV_BLOCK * s->codec->head_dim;
        if (!tsr_mul(rows / l->positions * heads, l->bytes, &bytes))
            return tsr_fail(err, TSR_E_NOMEM, "the sizes of the KV cache overflow");
        s->units[i] = tsr_new_large(bytes ? bytes : 1);
        if (l->positions > 1)
            s->tail[i] = tsr_new(heads * tail, sizeof **s->tail);
        if (!s->units[i] || (l->positions > 1 && !s->tail[i]))
            return tsr_fail_nomem(err, bytes, "the KV cache");
    }
    return TSR_OK;
}

void tsr_engine_kv_codecs_destroy(struct tsr_engine *e)
{
    struct tsr_engine_kv_codecs *z = e->kv_codecs;
    if (!z)
        return;
    for (uint64_t l = 0; z->stores && l < e->model->hp.layers; l++)
        for (int i = 0; i < 2; i++) {
            free(z->stores[l].units[i]);
            free(z->stores[l].tail[i]);
        }
    for (uint64_t i = 0; z->codecs && i < z->n; i++)
        tsr_plugin_kv_close(&z->codecs[i]);
    free(z->codecs);
    free(z->stores);
    free(z->q);
    free(z->a);
    free(z->k);
    free(z->v);
    free(z->work);
    free(z->slopes);
    free(z);
    e->kv_codecs = NULL;
}

void tsr_engine_kv_store_copy(const struct tsr_engine *e, const struct tsr_engine_kv_store *s,
                              uint64_t from_slot, uint64_t from, uint64_t to_slot, uint64_t to,
                              uint64_t n)
{
    uint64_t heads = e->share.kv_heads;
    for (int i = 0; i < 2; i++) {
        const struct tsr_kv_layout *l = &s->codec->layout[i];
        uint64_t                    each = s->rows / l->positions * l->bytes;
        /* a block that is not full yet is in the tail, and its unit is written later */
        uint64_t bytes = (n + l->positions - 1) / l->positions * l->bytes;
        for (uint64_t h = 0; h < heads; h++)
            memmove(s->units[i] + (to_slot * heads + h) * each + to / l->positions * l->bytes,
                    s->units[i] + (from_slot * heads + h) * each + from / l->positions * l->bytes,
                    bytes);
    }
}
