/* flash.cu - ATTENTION of prompts under numerics: fast and auto, one kernel for each width of heads.
 *
 * Reference: tests/gpu/fast_attention.c, in double; the bound is there.
 * Bytes moved by 64 queries: keys and values of their positions once, mostly from the second-level cache.
 */
#include "k_flash.h"

/* Grid: 1; KV heads and parts of their query heads; tiles of tokens, the last first, which have most to do. */
#define FLASH(name, dim, blocks)                                                                   \
    TSR_KERNEL(name, struct k_attention, FLASH_THREADS, blocks)                                    \
    {                                                                                              \
        SHARED_LARGE(uint4, tiles, K_FLASH_SHARED(dim) / 16);                                      \
        __shared__ float        scales[256];                                                       \
        __shared__ struct query q[FLASH_ROWS];                                                     \
        uint8_t *const          room = (uint8_t *)(void *)tiles;                                   \
        const struct flash_room m = {                                                              \
            room,                                                                                  \
            (dim) <= 128 ? room + (a.dtype == DT_F16 ? 2u : 0u) * FLASH_TILE(dim)                  \
                         : room + K_FLASH_SHARED(dim) - FLASH_ROWS * FLASH_PITCH(dim),             \
            scales, q                                                                              \
        };                                                                                         \
        const uint32_t n = queries_at(&a, q, gridDim.z - 1 - blockIdx.z);                          \
        if (n == 0)                                                                                \
            return;                                                                                \
        const int plain = !(a.softcap > 0.0f) && !a.slopes;                                        \
        if (a.dtype == DT_F16 && plain)                                                            \
            flash_of(&a, &m, DT_F16, dim, 1, n);                                                   \
        else if (a.dtype == DT_F16)                                                                \
            flash_of(&a, &m, DT_F16, dim, 0, n);                                                   \
        else if (plain)                                                                            \
            flash_of(&a, &m, DT_I8, dim, 1, n);                                                    \
        else                                                                                       \
            flash_of(&a, &m, DT_I8, dim, 0, n);                                                    \
    }
FLASH(k_flash64, 64u, 3)
FLASH(k_flash96, 96u, 2)
FLASH(k_flash128, 128u, 2)
FLASH(k_flash256, 256u, 1)
