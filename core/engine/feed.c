/* Inputs of a chunk of tokens other than the weights, packed so that one copy transfers them. */
#include "engine/internal.h"

#include "base/mem.h"
#include "engine/rope.h"
#include "tessera/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64u

static const struct tsr_model_rope *rope_of(const struct tsr_engine *e, int i)
{
    return i == TSR_MODEL_ROPE_OF_SLIDING ? &e->model->hp.rope_sliding : &e->model->hp.rope;
}

/* Half of the part of a head that rope i rotates; 0 without it. */
static uint64_t half_dim(const struct tsr_engine *e, int i)
{
    return e->model->hp.positions == TSR_MODEL_POSITIONS_ROPE ? rope_of(e, i)->dim / 2 : 0;
}

/* The next view of rows x cols 4-byte elements after *at. */
static struct tsr_tensor carve(const struct tsr_engine_feed *f, uint64_t *at, uint32_t dtype,
                               uint64_t rows, uint64_t cols)
{
    struct tsr_tensor t = f->device;
    t.dtype = dtype;
    t.offset = *at;
    t.rows = rows;
    t.cols = cols;
    t.row_stride = cols * 4;
    *at += (rows * cols * 4 + ALIGN - 1) / ALIGN * ALIGN;
    return t;
}

/* Lays the views out for n tokens; returns the bytes in use. */
static uint64_t lay_out(const struct tsr_engine *e, struct tsr_engine_feed *f, uint64_t n)
{
    uint64_t at = 0;
    f->ids = carve(f, &at, TSR_U32, 1, n);
    f->positions = carve(f, &at, TSR_U32, 1, n);
    for (int i = 0; i < (e->window_rows ? TSR_ENGINE_CACHES : 1); i++) {
        f->rows[i] = carve(f, &at, TSR_U32, 1, n);
        f->spans[i] = carve(f, &at, TSR_U32, n, 2);
        if (e->blocks) {
            f->block_rows[i] = carve(f, &at, TSR_U32, 2, n);
            f->block_spans[i] = carve(f, &at, TSR_U32, n, 3);
        }
    }
    f->gather = carve(f, &at, TSR_U32, 1, n);
    for (int i = 0; i < TSR_ROPES; i++) {
        f->cosine[i] = carve(f, &at, TSR_F32, n, half_dim(e, i));
        f->sine[i] = carve(f, &at, TSR_F32, n, half_dim(e, i));
    }
    return at;
}

tsr_status tsr_engine_feed_create(struct tsr_engine *e, struct tsr_err *err)
{
    struct tsr_engine_feed *f = &e->feed;
    uint64_t                bytes = lay_out(e, f, e->chunk);
    f->host = tsr_new_aligned(bytes, 1);
    for (int i = 0; i < TSR_ROPES; i++)
        if (half_dim(e, i) && !(e->rope[i].inv = tsr_new(half_dim(e, i), sizeof *e->rope[i].inv)))
            return tsr_fail_nomem(err, half_dim(e, i) * sizeof *e->rope[i].inv, "frequencies");
    if (!f->host)
        return tsr_fail_nomem(err, bytes, "token positions");
    memset(f->host, 0, bytes);
    return tsr_engine_device_tensor(e->dev, TSR_U8, 1, bytes, 0, "token positions", &f->device,
                                    err);
}

void tsr_engine_feed_destroy(struct tsr_engine_feed *f)
{
    free(f->host);
}

static uint32_t *host_u32(const struct tsr_engine_feed *f, const struct tsr_tensor *t)
{
    return (uint32_t *)(void *)(f->host + t->offset);
}

/* Angles of one token.  A scaling that depends on the length of the sequence takes the length
 * at the end of this call, as a reference forward over the same tokens would. */
static void put_angles(struct tsr_engine *e, uint64_t i, uint64_t position, uint64_t length)
{
    struct tsr_engine_feed *f = &e->feed;
    for (int k = 0; k < TSR_ROPES; k++) {
        const struct tsr_model_rope *r = rope_of(e, k);
        uint64_t                     half = half_dim(e, k);
        if (!half)
            continue;
        if (!e->rope[k].known || (tsr_engine_rope_varies(r) && e->rope[k].length != length)) {
            tsr_engine_rope_frequencies(r, length, e->rope[k].inv);
            e->rope[k].length = length;
            e->rope[k].known = true;
        }
        tsr_engine_rope_angles(r, e->rope[k].inv, length, position,
                               (float *)(void *)(f->host + f->cosine[k].offset) + i * half,
                               (float *)(void *)(f->host + f->sine[k].offset) + i * half);
    }
}

/* Row and span of token i, at position p of a slot: its cache begins with position base. */
static void put_rows(struct tsr_engine *e, int cache, uint64_t i, uint32_t slot, uint64_t base,
                     uint64_t p)
{
    struct tsr_engine_feed *f = &e->feed;
    uint64_t                begin = slot * tsr_engine_slot_rows(e, cache);
    uint32_t               *span = host_u32(f, &f->spans[cache]) + 2 * i, tail;
    host_u32(f, &f->rows[cache])[i] = (uint32_t)(begin + p - base);
    span[0] = (uint32_t)begin;
    span[1] = (uint32_t)(p - base);
    if (!e->blocks)
        return;
    tail = (uint32_t)tsr_engine_tail_row(e, cache, slot);
    host_u32(f, &f->block_rows[cache])[i] = (uint32_t)(begin + p - base);
    host_u32(f, &f->block_rows[cache])[f->block_rows[cache].cols + i] = tail;
    memcpy(host_u32(f, &f->block_spans[cache]) + 3 * i, span, 2 * sizeof *span);
    host_u32(f, &f->block_spans[cache])[3 * i + 2] = tail;
}

/* Token i at position p of a slot.  A slot's tail has the keys of one block: those of the next one come in the next
 * piece of the chunk, after the tokens of this one have seen the tail. */
static void put_piece(struct tsr_engine *e, struct tsr_engine_slot *s, uint64_t i, uint64_t p)
{
    uint64_t block = p / TSR_KV_BLOCK;
    if (i == 0)
        e->n_pieces = 0;
    if (i == 0 || (s->piece == e->n_pieces && s->block != block))
        e->n_pieces++;
    s->piece = e->n_pieces;
    s->block = block;
    e->pieces[e->n_pieces - 1] = i + 1;
}

tsr_status tsr_engine_feed_chunk(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                 uint64_t n, uint64_t *wanted, struct tsr_err *err)
{
    struct tsr_engine_feed *f = &e->feed;
    uint64_t                bytes = lay_out(e, f, n);
    uint32_t               *ids = host_u32(f, &f->ids), *positions = host_u32(f, &f->positions);
    uint32_t               *gather = host_u32(f, &f->gather);

    *wanted = 0;
    tsr_engine_cache_make_room(e, tokens, n);
    for (uint64_t i = 0; i < n; i++)
        e->slots[tokens[i].slot].piece = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_engine_slot *s = &e->slots[tokens[i].slot];
        uint64_t                p = s->length++;
        ids[i] = tokens[i].id;
        positions[i] = (uint32_t)(p + e->model->hp.position_offset);
        put_rows(e, TSR_ENGINE_CACHE_CONTEXT, i, tokens[i].slot, 0, p);
        if (e->window_rows)
            put_rows(e, TSR_ENGINE_CACHE_WINDOW, i, tokens[i].slot, s->base, p);
        if (e->blocks)
            put_piece(e, s, i, p);
        put_angles(e, i, p, s->final + s->ahead);
        if (tokens[i].logits)
            gather[(*wanted)++] = (uint32_t)i;
    }
    f->gather.cols = *wanted;
    f->gather.row_stride = *wanted * 4;
    struct tsr_tensor used = f->device;
    used.cols = bytes;
    used.row_stride = bytes;
    return tsr_engine_device_upload(e->dev, &used, f->host, err);
}
