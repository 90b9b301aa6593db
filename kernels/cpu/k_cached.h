/* k_cached.h - elements of a cached head, widened, in each type of a cache (tessera/kv_cache.h). */
#ifndef TSR_CPU_K_CACHED_H
#define TSR_CPU_K_CACHED_H

#include "k_e4m3.h"
#include "simd_cached.h"
#include "tessera/kv_cache.h"

/* Sixteen codes of a byte each; n of them are in the head. */
INLINE v16 cached_bytes(const uint8_t *codes, uint32_t dtype, uint64_t n)
{
    uint8_t t[16] = { 0 };
    if (n < 16) {
        memcpy(t, codes, n);
        codes = t;
    }
    return dtype == TSR_I8 ? v_load_i8(codes) : v_load_e4m3(codes);
}

/* Elements d.. of a head of TSR_Q4; those after its last element are not zero. */
INLINE v16 cached_q4(const uint8_t *head, uint64_t d)
{
    const uint8_t *group = head + tsr_kv_head_bytes(TSR_Q4, d / TSR_KV_GROUP * TSR_KV_GROUP);
    return v_pick_u4(v_levels(group), group + 4 + d % TSR_KV_GROUP / 2);
}

/* Elements d.. of a cached head, n of them, at most 16; d is a multiple of 16.  scale: head_scale(). */
INLINE v16 cached(const uint8_t *head, uint32_t dtype, uint64_t d, uint64_t n, v16 scale)
{
    if (dtype == TSR_F32) {
        if (n == 16)
            return v_load((const float *)(const void *)(head + 4 * d));
        float t[16] = { 0 };
        memcpy(t, head + 4 * d, 4 * n);
        return v_load(t);
    }
    if (dtype == TSR_F16) {
        if (n == 16)
            return v_load_f16(head + 2 * d);
        uint16_t t[16] = { 0 };
        memcpy(t, head + 2 * d, 2 * n);
        return v_load_f16(t);
    }
    if (dtype == TSR_Q4)
        return cached_q4(head, d);
    return v_mul(cached_bytes(head + 4 + d, dtype, n), scale);
}

INLINE v16 head_scale(const uint8_t *head, uint32_t dtype)
{
    float s = 1.0f;
    if (dtype == TSR_I8 || dtype == TSR_E4M3)
        memcpy(&s, head, 4);
    return v_set1(s);
}

/* nv times sixteen elements of a cached head from d on, a multiple of TSR_KV_GROUP unless nv is 1; `tail` of the last. */
INLINE void cached_some(const uint8_t *head, uint32_t dtype, uint64_t d, const int nv,
                        uint64_t tail, v16 scale, v16 *x)
{
    if (dtype == TSR_Q4 && nv % 2 == 0) {
        const uint8_t *group = head + tsr_kv_head_bytes(TSR_Q4, d);
        UNROLL
        for (int i = 0; i < nv; i += 2, group += 4 + TSR_KV_GROUP / 2) {
            u4_levels l = v_levels(group);
            x[i] = v_pick_u4(l, group + 4);
            x[i + 1] = v_pick_u4(l, group + 12);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < nv; i++)
        x[i] = cached(head, dtype, d + 16 * (uint64_t)i, i + 1 < nv ? 16 : tail, scale);
}

#endif
