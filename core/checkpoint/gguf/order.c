/* The order of rows and columns in a GGUF file, against that of a Hugging Face checkpoint. */
#include "checkpoint/gguf/gguf.h"
#include "model/family.h"

/* Value heads of the delta rule in turns: rows of what makes them, columns of what reads them. */
static void tile(const struct tsr_model_hparams *hp, const struct tsr_model_role *r,
                 struct tsr_gguf_map *map)
{
    const struct tsr_model_delta *d = &hp->delta;
    bool linear = r->part == TSR_MODEL_PART_LINEAR, qkv = r->part == TSR_MODEL_PART_QKV_ROWS;
    bool deep = r->part == TSR_MODEL_PART_CONV, vector = tsr_model_part_is_unsuffixed(r->part);
    if (!(linear && tsr_model_linear_attends(r->lin)) && !qkv && !deep && !vector)
        return;
    map->order = TSR_GGUF_TILED;
    map->heads = d->value_heads;
    map->keys = d->key_heads;
    map->first = qkv || deep ? 2 * (uint64_t)d->key_heads * d->key_dim : 0;
    map->columns = linear && r->lin == TSR_MODEL_O;
}

void tsr_gguf_order_of(const struct tsr_model_family *f, const struct tsr_model_hparams *hp,
                       const struct tsr_model_role *r, struct tsr_gguf_map *map)
{
    bool q = r->part == TSR_MODEL_PART_LINEAR && r->lin == TSR_MODEL_Q;
    bool k = r->part == TSR_MODEL_PART_LINEAR && r->lin == TSR_MODEL_K;
    map->heads = k ? hp->kv_heads : hp->heads;
    if (f->gguf.pairs && (q || k))
        map->order = TSR_GGUF_PAIRS;
    if (r->part == TSR_MODEL_PART_QKV_HEADS)
        map->order = TSR_GGUF_PARTS;
    if (f->gguf.tiled && r->delta)
        tile(hp, r, map);
    map->deep = r->part == TSR_MODEL_PART_CONV;
    map->decay = r->part == TSR_MODEL_PART_DECAY;
    if (f->gguf.gain_offset && tsr_model_part_is_norm(r->part))
        map->offset = hp->norm_gain_offset;
}

/* Of n rows in heads of one width: the place of row r where heads [a][b] become [b][a]; rows that they cannot share
 * stay. */
static uint64_t turn(uint64_t n, uint64_t a, uint64_t b, uint64_t r)
{
    if (a == 0 || b == 0 || n % (a * b) != 0)
        return r;
    uint64_t dim = n / (a * b), head = r / dim;
    return (head % b * a + head / b) * dim + r % dim;
}

/* From heads in `outer` times others to the other order. */
static uint64_t tiled_row(const struct tsr_gguf_map *map, uint64_t rows, uint64_t outer, uint64_t r)
{
    if (r < map->first || rows <= map->first || outer == 0)
        return r;
    return map->first + turn(rows - map->first, outer, map->heads / outer, r - map->first);
}

uint64_t tsr_gguf_row(const struct tsr_gguf_map *map, uint64_t rows, uint64_t r)
{
    uint64_t per = map->order == TSR_GGUF_PARTS ? 3 * (uint64_t)map->heads : map->heads, dim, head,
             part, i;
    if (map->order == TSR_GGUF_PLAIN || per == 0)
        return r;
    if (map->order == TSR_GGUF_TILED)
        return tiled_row(map, rows, map->keys, r);
    dim = rows / per;
    if (map->order == TSR_GGUF_PAIRS) {
        head = r / dim;
        part = r % dim / (dim / 2);
        i = r % (dim / 2);
        return head * dim + 2 * i + part;
    }
    head = r / (3 * dim);
    part = r / dim % 3;
    i = r % dim;
    return (part * map->heads + head) * dim + i;
}

uint64_t tsr_gguf_row_back(const struct tsr_gguf_map *map, uint64_t rows, uint64_t r)
{
    if (map->order == TSR_GGUF_TILED)
        return map->keys ? tiled_row(map, rows, map->heads / map->keys, r) : r;
    if (map->order == TSR_GGUF_PARTS) {
        uint64_t width = rows / (3 * (uint64_t)map->heads), at = r / width;
        return (at % map->heads * 3 + at / map->heads) * width + r % width;
    }
    if (map->order != TSR_GGUF_PAIRS)
        return r;
    uint64_t dim = rows / map->heads, head = r / dim, in = r % dim;
    return head * dim + in % 2 * (dim / 2) + in / 2;
}
