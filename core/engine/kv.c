/* The KV cache: for each layer of attention one tensor of keys and one of values, a row per slot and
 * position, laid out as tessera/backend.h says at KV_STORE. */
#include "engine/internal.h"

#include "base/mem.h"

/* Columns and bytes of a row. */
static uint64_t cache_cols(const struct tsr_engine *e)
{
    uint64_t head = e->model->hp.head_dim;
    if (e->kv_dtype == TSR_I8)
        head += sizeof(float); /* the scale before the codes */
    return e->share.kv_heads * head;
}

tsr_status tsr_engine_cache_create(struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t cols = cache_cols(e), rows, bytes;
    uint64_t width = e->kv_dtype == TSR_F32 ? 4 : e->kv_dtype == TSR_F16 ? 2 : 1;
    uint64_t stride = (cols * width + 15) / 16 * 16;
    uint64_t layers = 0;
    for (uint64_t i = e->first; i < e->end; i++)
        layers += !tsr_model_is_recurrent(&e->model->hp, i);
    rows = e->n_slots * e->context; /* fits 32 bits */
    if (!tsr_mul(rows, stride, &bytes) ||
        !tsr_mul(bytes, 2 * (e->streamed && layers ? 1 : layers), &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "a cache of %u sequences of %llu tokens is too large",
                        e->n_slots, (unsigned long long)e->context);
    const struct tsr_engine_layer_dev *first = NULL;
    for (uint64_t i = e->first; i < e->end; i++) {
        struct tsr_engine_layer_dev *l = &e->layers[i];
        if (tsr_model_is_recurrent(&e->model->hp, i))
            continue;
        if (e->streamed && first) { /* a layer's run begins with an empty cache */
            l->k = first->k;
            l->v = first->v;
            continue;
        }
        first = l;
        TSR_TRY(tsr_engine_device_tensor(e->dev, e->kv_dtype, rows, cols, stride, "the KV cache",
                                         &l->k, err));
        TSR_TRY(tsr_engine_device_tensor(e->dev, e->kv_dtype, rows, cols, stride, "the KV cache",
                                         &l->v, err));
    }
    e->cache_bytes = bytes;
    return TSR_OK;
}
