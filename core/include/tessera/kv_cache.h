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
 * Since minor 1: TSR_E4M3, TSR_Q4.  A backend that does not know a type declines the operation.
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

#define TSR_KV_GROUP 32u /* elements of a group of TSR_Q4 */

/* Bytes of a head of one token; 0 if dtype is not the type of a cache.  head_dim: at most 65536.
 * [any] */
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
    default:
        return 0;
    }
}

/* Columns that a tensor of such a cache has for a head: elements, or bytes.  [any] */
static inline uint64_t tsr_kv_head_cols(uint32_t dtype, uint64_t head_dim)
{
    return dtype == TSR_F32 || dtype == TSR_F16 ? head_dim : tsr_kv_head_bytes(dtype, head_dim);
}

#endif
