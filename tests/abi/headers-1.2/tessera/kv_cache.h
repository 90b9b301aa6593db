/* tessera/kv_cache.h - KV cache: how the types of a cache store a head of one token.
 *
 * Backends and the host call the function here; there is nothing to implement.  A row of a cache is
 * its heads, one after the other.  TSR_F32 and TSR_F16 are the elements.  The other types are bytes,
 * and the tensor's cols are those of a row:
 *
 *   TSR_I8    F32 scale, then a code of 8 bits for each element: scale * code, scale = amax / 127
 *   TSR_E4M3  F32 scale, then an E4M3 for each element: scale * E4M3, scale = amax / 448
 *   TSR_Q4    for each group of 32 elements, of which the last may be short: F16 scale, F16 minimum,
 *             and 8 bytes for each 16 elements, of which the last may be short: scale * code +
 *             minimum.  Byte j has the code of element j in its low and of element j + 8 in its
 *             high nibble; codes of no element are 0.
 *
 * TSR_Q4_CHANNEL is a type of keys alone; their values are TSR_Q4.  It has no heads of one token: a
 * block is the keys of TSR_KV_BLOCK positions, and takes as many rows.  The first row of a sequence is
 * a multiple of TSR_KV_BLOCK.  The heads of a block lie one after the other, each TSR_KV_BLOCK *
 * tsr_kv_head_bytes() bytes:
 *
 *   F16 scale of each channel, F16 minimum of each channel, then 16 bytes for each channel: byte j has
 *   the code of position j in its low and of position j + 16 in its high nibble; scale * code + minimum
 *
 * Keys of the newest block of a sequence are F16, in its tail: TSR_KV_BLOCK rows of kv_heads * head_dim
 * elements, one behind the other, in tsr_kv_tail_rows() rows of the cache that the host chooses for the
 * sequence.  KV_STORE writes the F16 of a key into the tail; after the last position of a block it
 * writes the block, from those F16.  A token of ATTENTION sees keys of its block in the tail, and those of
 * earlier blocks in their blocks.  So the host runs tokens of a sequence in order, and the tokens of a
 * block before the first token of the next block is stored.
 *
 * Since minor 1: TSR_E4M3, TSR_Q4, TSR_Q4_CHANNEL.  A backend that does not know a type declines the
 * operation.
 *
 * Example: bytes of a token in the caches of keys and values.
 *
 *     static uint64_t token_bytes(uint32_t dtype, uint32_t kv_heads, uint32_t head_dim)
 *     {
 *         uint64_t head = tsr_kv_head_bytes(dtype, head_dim);
 *         return 2 * kv_heads * head;
 *     }
 */
#ifndef TSR_KV_CACHE_H
#define TSR_KV_CACHE_H

#include "tessera/dtype.h"

#define TSR_KV_GROUP 32u /* elements of a group of TSR_Q4            */
#define TSR_KV_BLOCK 32u /* positions of a block of TSR_Q4_CHANNEL  */

/* Bytes of a head of one token, of TSR_Q4_CHANNEL its part of a block; 0 if dtype is not the type of a
 * cache.  head_dim: at most 65536.  [any] */
static inline uint64_t tsr_kv_head_bytes(uint32_t dtype, uint64_t head_dim)
{
    switch (dtype) {
    case TSR_F32:
        return 4 * head_dim;
    case TSR_F16:
        return 2 * head_dim;
    case TSR_I8:
    case TSR_E4M3:
        return 4 + head_dim;
    case TSR_Q4:
        return (head_dim + TSR_KV_GROUP - 1) / TSR_KV_GROUP * 4 + (head_dim + 15) / 16 * 8;
    case TSR_Q4_CHANNEL:
        return (5 * head_dim + 7) / 8;
    default:
        return 0;
    }
}

/* Columns that a tensor of such a cache has for a head: elements, or bytes.  [any] */
static inline uint64_t tsr_kv_head_cols(uint32_t dtype, uint64_t head_dim)
{
    return dtype == TSR_F32 || dtype == TSR_F16 ? head_dim : tsr_kv_head_bytes(dtype, head_dim);
}

/* Rows of a cache of TSR_Q4_CHANNEL that the tail of a sequence takes; head_dim is not 0.  [any] */
static inline uint64_t tsr_kv_tail_rows(uint64_t head_dim)
{
    uint64_t row = tsr_kv_head_bytes(TSR_Q4_CHANNEL, head_dim);
    return (TSR_KV_BLOCK * tsr_kv_head_bytes(TSR_F16, head_dim) + row - 1) / row;
}

#endif
