/* k_probe.c - measures the machine's peaks: streaming reads and chains of multiply-adds. */
#include "k_decl.h"
#if TSR_SIMD == 2 && !defined(TSR_VNNI)
#include "simd_words.h"
#endif

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

/* FMAs of 16 lanes, `rounds` of them. Lanes begin apart: of two registers with the same numbers the compiler would
 * leave one out. */
float K(probe_fma)(uint64_t rounds)
{
    static const float lane[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    v16                c[CHAINS], a = v_set1(0.999f), b = v_set1(0.5f);
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        c[i] = v_add(v_set1((float)(16 * i)), v_load(lane));
    for (uint64_t r = 0; r < rounds; r += CHAINS)
        UNROLL
    for (int i = 0; i < CHAINS; i++)
        c[i] = v_fma(c[i], a, b);
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        sum += v_tree16(c[i]);
    return sum;
}

/* All lanes: products that enter none of those that are added, the compiler would leave out. */
static int32_t lanes_sum(i16v a)
{
    int32_t  t[16];
    uint32_t sum = 0;
    memcpy(t, &a, sizeof t);
    for (int i = 0; i < 16; i++)
        sum += (uint32_t)t[i];
    return (int32_t)sum;
}

#if TSR_SIMD == 2 && !defined(TSR_VNNI)
#define WORD_CHAINS 5 /* with the lanes, and what enters them, sixteen registers */
#define WORD_FOURS  8 /* whose products a word can add, of codes of four bits */

/* acc + the products of bytes, in pairs. In assembly: each is made. */
static inline __m256i word_dot(__m256i acc, __m256i w, __m256i x)
{
    __m256i t;
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                     : "+x"(acc), "=&x"(t)
                     : "x"(w), "x"(x));
    return acc;
}

/* rounds * 16 lanes * 4 integer multiply-adds, as tiles of tokens make them (k_tile_words.h). */
int32_t K(probe_dot)(uint64_t rounds)
{
    static const int8_t q[4] = { 3, 2, -1, 1 };
    const __m256i       w = _mm256_set1_epi32(0x01020304), x = vi_four(q).a;
    i16v                c[WORD_CHAINS], lanes = vi_zero();
    for (uint64_t r = 0; r < rounds; r += WORD_CHAINS * WORD_FOURS) {
        UNROLL
        for (int i = 0; i < WORD_CHAINS; i++)
            c[i] = vi_zero();
        for (int k = 0; k < WORD_FOURS; k++) {
            UNROLL
            for (int i = 0; i < WORD_CHAINS; i++)
                c[i] = vi_make(word_dot(c[i].a, w, x), word_dot(c[i].b, w, x));
        }
        UNROLL
        for (int i = 0; i < WORD_CHAINS; i++)
            lanes = vw_sum(lanes, c[i]);
    }
    return lanes_sum(lanes);
}
#else
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
    return lanes_sum(c[0]);
}
#endif
