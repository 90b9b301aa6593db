/* kv.cu - KV_STORE: rows of F32 into a cache of F32, F16 or int8.
 *
 * Reference: kernels/cpu/k_elem.c; held to its bytes by tests/gpu/ops.c.
 * Bytes moved: 4 bytes an element are read, and as many as the cache has are written.
 */
#include "k_store.h"

/* A warp for a token and KV head. */
TSR_KERNEL(k_kv_store, struct k_kv_store, 128)
{
    const uint64_t task = (uint64_t)blockIdx.x * 4 + threadIdx.x / WARP;
    if (task >= (uint64_t)a.tokens * a.kv_heads)
        return; /* the whole warp */
    store_head(&a, task / a.kv_heads, task % a.kv_heads);
}
