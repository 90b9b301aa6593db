/* The first positions of a sequence into the cache of another one: prompts that begin alike are computed once. */
#include "engine/kv_codec.h"

#include "engine/rope.h"

/* Rows of a slot's cache to another slot's, as columns of 4 bytes whatever their type.  The indices are in the feed, which
 * the next chunk writes anew. */
static tsr_status copy_rows(struct tsr_engine *e, const struct tsr_tensor *cache, uint64_t from,
                            uint64_t to, uint64_t rows, struct tsr_err *err)
{
    struct tsr_tensor all = *cache, index = e->feed.device;
    uint64_t          most = rows < e->chunk ? rows : e->chunk;
    all.dtype = TSR_F32;
    all.cols = cache->row_stride / sizeof(float);
    index.dtype = TSR_U32;
    index.row_stride = most * sizeof(uint32_t);
    for (uint64_t i = 0, n; i < rows; i += n) {
        n = rows - i < most ? rows - i : most;
        index.cols = n;
        struct tsr_tensor out = tsr_engine_rows(&all, to + i, n),
                          in = tsr_engine_rows(&all, from + i, n);
        struct tsr_op op = { .kind = TSR_OP_GATHER, .out = &out, .in = { &in, &index } };
        TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    }
    return TSR_OK;
}

static tsr_status put_indices(struct tsr_engine *e, struct tsr_err *err)
{
    uint32_t         *host = (uint32_t *)(void *)e->feed.host;
    struct tsr_tensor used = e->feed.device;
    for (uint64_t i = 0; i < e->chunk; i++)
        host[i] = (uint32_t)i;
    used.cols = e->chunk * sizeof *host;
    used.row_stride = used.cols;
    return tsr_engine_device_upload(e->dev, &used, host, err);
}

static tsr_status copy_layers(struct tsr_engine *e, uint32_t from, uint32_t to, uint64_t length,
                              struct tsr_err *err)
{
    TSR_TRY(put_indices(e, err));
    for (uint64_t i = e->first; i < e->end; i++) {
        uint64_t                          slot = tsr_engine_slot_rows(e, tsr_engine_cache_of(e, i));
        const struct tsr_engine_kv_store *s = tsr_engine_kv_store_of(e, i);
        if (s) {
            tsr_engine_kv_store_copy(e, s, from, 0, to, 0, length);
            continue;
        }
        TSR_TRY(copy_rows(e, &e->layers[i].k, from * slot, to * slot, length, err));
        TSR_TRY(copy_rows(e, &e->layers[i].v, from * slot, to * slot, length, err));
    }
    return TSR_OK;
}

/* Most positions, up to length, that can go: keys in blocks go as whole blocks. */
static uint64_t can_go(const struct tsr_engine *e, uint32_t from, uint64_t length)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    const struct tsr_engine_slot   *s = &e->slots[from];
    if (e->streamed || length > s->length || (e->window_rows && s->base) ||
        tsr_engine_rope_varies(&hp->rope) || tsr_engine_rope_varies(&hp->rope_sliding))
        return 0;
    for (uint64_t i = e->first; i < e->end; i++)
        if (tsr_model_is_recurrent(hp, i))
            return 0;
    length -= e->blocks ? length % TSR_KV_BLOCK : 0;
    return e->behind ? can_go(e->behind, from, length) : length;
}

static tsr_status copy(struct tsr_engine *e, uint32_t from, uint32_t to, uint64_t length,
                       struct tsr_err *err)
{
    struct tsr_engine_slot *s = &e->slots[to];
    TSR_TRY(copy_layers(e, from, to, length, err));
    s->length = length;
    s->base = 0;
    s->block = length / TSR_KV_BLOCK; /* no tail has keys of an earlier one */
    return e->behind ? copy(e->behind, from, to, length, err) : TSR_OK;
}

tsr_status tsr_engine_copy(struct tsr_engine *e, uint32_t from, uint32_t to, uint64_t length,
                           uint64_t *kept, struct tsr_err *err)
{
    *kept = from < e->n_slots && to < e->n_slots && from != to ? can_go(e, from, length) : 0;
    if (*kept == 0)
        return TSR_OK;
    tsr_engine_reset(e, to);
    tsr_status st = copy(e, from, to, *kept, err);
    if (st != TSR_OK)
        tsr_engine_reset(e, to);
    return st;
}
