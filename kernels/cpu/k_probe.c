/* k_probe.c - measures the machine's peaks: streaming reads and chains of multiply-adds. */
#include "k_decl.h"

/* Sums all lines of p[0, bytes): `shape` is log2 of the streams read side by side (0..3). */
uint64_t K(probe_read)(const void *p, uint64_t bytes, uint32_t shape)
{
    uint64_t       streams = UINT64_C(1) << (shape & 3), part = bytes / streams / 256 * 256;
    const uint8_t *b = p;
    i16v           s[4] = { vi_zero(), vi_zero(), vi_zero(), vi_zero() };
    for (uint64_t i = 0; i < part; i += 256)
        for (uint64_t k = 0; k < streams; k++) {
            const uint8_t *at = b + k * part + i;
            UNROLL
            for (int j = 0; j < 4; j++) {
                v_prefetch(at + 4096 + 64 * j);
                s[j] = vi_add(s[j], vi_load(at + 64 * j));
            }
        }
    int32_t t[16];
    i16v    all = vi_add(vi_add(s[0], s[1]), vi_add(s[2], s[3]));
    memcpy(t, &all, sizeof t);
    uint64_t r = 0;
    for (int i = 0; i < 16; i++)
        r += (uint64_t)(uint32_t)t[i];
    return r;
}

#if TSR_SIMD == 2
#define CHAINS 6 /* each is two registers; 16 exist */
#elif TSR_SIMD == 128
#define CHAINS 6 /* each is four registers; 32 exist */
#elif TSR_SIMD == 512
#define CHAINS 16
#else
#define CHAINS 1
#endif

/* rounds * PROBE_CHAINS FMAs of 16 lanes. */
float K(probe_fma)(uint64_t rounds)
{
    v16 c[CHAINS], a = v_set1(0.999f), b = v_set1(0.5f);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        c[i] = v_set1((float)i);
    for (uint64_t r = 0; r < rounds; r += CHAINS)
        UNROLL
    for (int i = 0; i < CHAINS; i++)
        c[i] = v_fma(c[i], a, b);
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        c[0] = v_add(c[0], c[i]);
    return v_tree16(c[0]);
}

/* rounds * 16 lanes * 4 integer multiply-adds. */
int32_t K(probe_dot)(uint64_t rounds)
{
    i16v                c[CHAINS], w = vi_set1(0x01020304);
    static const int8_t q[4] = { 3, 2, -1, 1 };
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        c[i] = vi_set1(i);
    for (uint64_t r = 0; r < rounds; r += CHAINS) {
        i16v x = vi_opaque(vi_four(q));
        UNROLL
        for (int i = 0; i < CHAINS; i++) {
            w = vi_opaque(w);
            c[i] = vi_dot4(c[i], w, x);
        }
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        c[0] = vi_add(c[0], c[i]);
    int32_t t[16];
    memcpy(t, &c[0], sizeof t);
    return t[0];
}
