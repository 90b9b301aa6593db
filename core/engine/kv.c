/* The KV cache: for each layer of attention one tensor of keys and one of values, a row per slot and position, laid out as
 * tessera/backend.h says at KV_STORE.
 *
 * A layer with a window keeps the rows that a token can still see, not those of the whole context.  Its rows are
 * the positions base .. base + window_rows of a slot, one behind the other, and a base is a multiple of 256.
 * When a chunk does not fit, the rows of the window move to the front.  The backend counts positions from base:
 * numerics.md groups positions by 16 and by 256, so a sum does not change.
 *
 * Keys of int4 are in blocks of 32 positions.  The newest block of a slot is F16, in the slot's tail: rows at the end of the
 * tensor, after those of all slots.  Tails do not move with a window. */
#include "engine/kv_codec.h"

#include "base/mem.h"

#include <stdlib.h>

#define BLOCK UINT64_C(256) /* positions in a chain of the output of ATTENTION */

uint64_t tsr_engine_window_rows(uint64_t window, uint64_t chunk, uint64_t context)
{
    uint64_t rows;
    chunk = chunk < context ? chunk : context;
    /* the window of the first token of a chunk begins up to BLOCK - 1 rows after the base */
    if (!tsr_add(window, chunk + 2 * BLOCK - 3, &rows))
        return context;
    rows = rows / BLOCK * BLOCK;
    return rows < context ? rows : context;
}

/* Bytes of a row of a cache of keys, or of values, as a type of tessera/kv_cache.h. */
static uint64_t row_of(uint32_t dtype, uint64_t kv_heads, uint64_t head_dim)
{
    return (kv_heads * tsr_kv_head_bytes(dtype, head_dim) + 15) / 16 * 16;
}

uint64_t tsr_engine_kv_rows(bool blocks, uint64_t rows)
{
    return blocks && rows <= UINT64_MAX - TSR_KV_BLOCK
               ? (rows + TSR_KV_BLOCK - 1) / TSR_KV_BLOCK * TSR_KV_BLOCK
               : rows;
}

/* Rows of keys for `slots` sequences: the tails are after all of their rows. */
static bool key_rows(uint32_t kv, uint64_t head_dim, uint64_t slots, uint64_t rows, uint64_t *all)
{
    uint64_t tail = tsr_engine_key_type(kv) == TSR_Q4_CHANNEL ? tsr_kv_tail_rows(head_dim) : 0;
    return tsr_add(rows, tail, &rows) && tsr_mul(rows, slots, all);
}

/* The same of a codec of a plugin: units, and the F16 of the newest block. */
static bool codec_bytes(uint32_t kv, uint64_t kv_heads, uint64_t head_dim, uint64_t slots,
                        uint64_t rows, uint64_t *bytes)
{
    struct tsr_kv_layout l[2];
    uint64_t             all = 0, each, tail = 0;
    if (!tsr_plugin_kv_layouts(kv, head_dim, NULL, l) || !tsr_mul(slots, kv_heads, &slots))
        return false;
    for (int i = 0; i < 2; i++) {
        tail = l[i].positions > 1 ? (uint64_t)2 * TSR_KV_BLOCK * head_dim : 0;
        if (!tsr_mul(rows / l[i].positions, l[i].bytes, &each) || !tsr_add(each, tail, &each) ||
            !tsr_mul(each, slots, &each) || !tsr_add(all, each, &all))
            return false;
    }
    *bytes = all;
    return true;
}

bool tsr_engine_kv_bytes(uint32_t kv, uint64_t kv_heads, uint64_t head_dim, uint64_t slots,
                         uint64_t rows, uint64_t *bytes)
{
    uint64_t keys, values;
    kv = (uint32_t)tsr_plugin_kv_type(kv);
    if (tsr_plugin_kv_is_codec(kv))
        return codec_bytes(kv, kv_heads, head_dim, slots, rows, bytes);
    return key_rows(kv, head_dim, slots, rows, &keys) &&
           tsr_mul(keys, row_of(tsr_engine_key_type(kv), kv_heads, head_dim), &keys) &&
           tsr_mul(slots, rows, &values) &&
           tsr_mul(values, row_of(kv, kv_heads, head_dim), &values) && tsr_add(keys, values, bytes);
}

uint64_t tsr_engine_slot_rows(const struct tsr_engine *e, int cache)
{
    return tsr_engine_kv_rows(e->blocks,
                              cache == TSR_ENGINE_CACHE_WINDOW ? e->window_rows : e->context);
}

uint64_t tsr_engine_tail_row(const struct tsr_engine *e, int cache, uint32_t slot)
{
    return e->n_slots * tsr_engine_slot_rows(e, cache) +
           slot * tsr_kv_tail_rows(e->model->hp.head_dim);
}

/* The largest window, and the rows that it takes; 0 if that saves nothing.  A streamed engine has one cache for
 * all layers. */
static void choose_window(struct tsr_engine *e)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    for (uint64_t i = 0; hp->window && !e->streamed && i < hp->layers; i++)
        e->window = hp->window[i] > e->window ? hp->window[i] : e->window;
    if (e->window)
        e->window_rows = tsr_engine_window_rows(e->window, e->chunk, e->context);
    if (e->window_rows == e->context)
        e->window_rows = 0;
}

/* 0, 1, ...: the rows of a GATHER that copies. */
static tsr_status create_ascending(struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t  n = e->window_rows;
    uint32_t *v = tsr_new(n, sizeof *v);
    e->moves = tsr_new(e->n_slots, sizeof *e->moves);
    if (!v || !e->moves) {
        free(v);
        return tsr_fail_nomem(err, n * sizeof *v, "rows of the KV cache");
    }
    for (uint64_t i = 0; i < n; i++)
        v[i] = (uint32_t)i;
    tsr_status st = tsr_engine_device_tensor(e->dev, TSR_U32, 1, n, 0, "rows of the KV cache",
                                             &e->ascending, err);
    if (st == TSR_OK)
        st = tsr_engine_device_upload(e->dev, &e->ascending, v, err);
    free(v);
    return st;
}

/* Whether a layer has keys in blocks; then the pieces of chunks. */
static tsr_status choose_blocks(struct tsr_engine *e, struct tsr_err *err)
{
    for (uint64_t i = 0; i < e->model->hp.layers; i++)
        e->blocks = e->blocks || tsr_plugin_kv_has_blocks(tsr_engine_kv_of(e, i));
    if (!e->blocks)
        return TSR_OK;
    e->pieces = tsr_new(e->chunk, sizeof *e->pieces);
    return e->pieces ? TSR_OK : tsr_fail_nomem(err, e->chunk * sizeof *e->pieces, "pieces");
}

static tsr_status cache_tensor(struct tsr_engine *e, uint32_t dtype, uint64_t rows,
                               struct tsr_tensor *t, struct tsr_err *err)
{
    uint64_t dim = e->model->hp.head_dim;
    return tsr_engine_device_tensor(e->dev, dtype, rows,
                                    e->share.kv_heads * tsr_kv_head_cols(dtype, dim),
                                    row_of(dtype, e->share.kv_heads, dim), "the KV cache", t, err);
}

tsr_status tsr_engine_cache_create(struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t total = 0;
    choose_window(e);
    TSR_TRY(tsr_engine_kv_codecs_open(e, err));
    TSR_TRY(choose_blocks(e, err));
    const struct tsr_engine_layer_dev *first = NULL;
    for (uint64_t i = e->first; i < e->end; i++) {
        struct tsr_engine_layer_dev *l = &e->layers[i];
        uint32_t                     kv = tsr_engine_kv_of(e, i), heads = e->share.kv_heads;
        uint64_t                     bytes, keys = 0, dim = e->model->hp.head_dim,
                        rows = tsr_engine_slot_rows(e, tsr_engine_cache_of(e, i));
        if (tsr_model_is_recurrent(&e->model->hp, i))
            continue;
        if (e->streamed && first) { /* a layer's run begins with an empty cache */
            l->k = first->k;
            l->v = first->v;
            continue;
        }
        first = l;
        bool codec = tsr_engine_kv_store_of(e, i) != NULL;
        if ((!codec && (!key_rows(kv, dim, e->n_slots, rows, &keys) || keys > UINT32_MAX)) ||
            !tsr_engine_kv_bytes(kv, heads, dim, e->n_slots, rows, &bytes) ||
            !tsr_add(total, bytes, &total))
            return tsr_fail(err, TSR_E_NOMEM, "a cache of %u sequences of %llu tokens is too large",
                            e->n_slots, (unsigned long long)e->context);
        if (codec) {
            TSR_TRY(tsr_engine_kv_store_create(e, i, rows, err));
            continue;
        }
        TSR_TRY(cache_tensor(e, tsr_engine_key_type(kv), keys, &l->k, err));
        TSR_TRY(cache_tensor(e, kv, e->n_slots * rows, &l->v, err));
    }
    e->cache_bytes = total;
    return e->window_rows ? create_ascending(e, err) : TSR_OK;
}

/* Lets n more tokens of a slot in; what has to move for that is noted. */
static void make_room_in(struct tsr_engine *e, uint32_t slot, uint64_t n)
{
    struct tsr_engine_slot *s = &e->slots[slot];
    if (s->length == 0)
        s->base = 0;
    if (s->length + n - s->base <= e->window_rows)
        return;
    uint64_t seen = s->length + 1 > e->window ? s->length + 1 - e->window : 0;
    uint64_t base = seen / BLOCK * BLOCK, from = base - s->base;
    if (base < s->length) /* as many as the cache holds: the last chunk fitted */
        e->moves[e->n_moves++] =
            (struct tsr_engine_move){ .first =
                                          slot * tsr_engine_slot_rows(e, TSR_ENGINE_CACHE_WINDOW),
                                      .from = from,
                                      .rows = s->length - base };
    s->base = base;
}

void tsr_engine_cache_make_room(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                uint64_t n)
{
    e->n_moves = 0;
    if (!e->window_rows)
        return;
    for (uint64_t i = 0; i < n; i++)
        e->slots[tokens[i].slot].coming = 0;
    for (uint64_t i = 0; i < n; i++)
        e->slots[tokens[i].slot].coming++;
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_engine_slot *s = &e->slots[tokens[i].slot];
        if (s->coming)
            make_room_in(e, tokens[i].slot, s->coming);
        s->coming = 0;
    }
}

/* Rows of a slot to its front, in pieces whose source and destination do not overlap.  Whatever their type, they
 * are copied as columns of 4 bytes. */
static tsr_status move_rows(struct tsr_engine *e, const struct tsr_tensor *cache,
                            const struct tsr_engine_move *m, struct tsr_err *err)
{
    struct tsr_tensor all = *cache;
    all.dtype = TSR_F32;
    all.cols = cache->row_stride / sizeof(float);
    for (uint64_t i = 0, n; i < m->rows; i += n) {
        n = m->rows - i < m->from ? m->rows - i : m->from;
        struct tsr_tensor to = tsr_engine_rows(&all, m->first + i, n),
                          from = tsr_engine_rows(&all, m->first + m->from + i, n);
        struct tsr_tensor index = tsr_engine_narrow(&e->ascending, 1, n);
        struct tsr_op     op = { .kind = TSR_OP_GATHER, .out = &to, .in = { &from, &index } };
        TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_cache_move(struct tsr_engine *e, uint64_t layer, struct tsr_err *err)
{
    const struct tsr_engine_kv_store *s = tsr_engine_kv_store_of(e, layer);
    if (tsr_engine_cache_of(e, layer) != TSR_ENGINE_CACHE_WINDOW)
        return TSR_OK;
    for (uint64_t i = 0; s && i < e->n_moves; i++) {
        const struct tsr_engine_move *m = &e->moves[i];
        uint64_t                      slot = m->first / s->rows;
        tsr_engine_kv_store_copy(e, s, slot, m->from, slot, 0, m->rows);
    }
    if (s)
        return TSR_OK;
    for (uint64_t i = 0; i < e->n_moves; i++) {
        TSR_TRY(move_rows(e, &e->layers[layer].k, &e->moves[i], err));
        TSR_TRY(move_rows(e, &e->layers[layer].v, &e->moves[i], err));
    }
    return TSR_OK;
}
