/* k_opposed.h - wide codes and their activations on AVX2 as tiles take them (tile_words.h): each pair of activations has
 * opposite signs, and the codes of 32 rows by four columns are there in four versions, one for each way to negate. */
#ifndef TSR_K_OPPOSED_H
#define TSR_K_OPPOSED_H

#include "k_part.h"

/* Eight fours of columns: activations, where their codes are, and the sum of those negated. */
struct opposed {
    __m256i q, at, negated;
};

static inline struct opposed opposed_of(__m256i q)
{
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8);
    const __m256i same = _mm256_cmpgt_epi16(_mm256_mullo_epi16(even, _mm256_srai_epi16(q, 8)),
                                            _mm256_setzero_si256());
    const __m256i odd = _mm256_slli_epi16(same, 8);
    const __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_and_si256(q, odd));
    _Static_assert(CPU_OPPOSED_CODES == 64, "the bits of a version");
    return (struct opposed){
        _mm256_sub_epi8(_mm256_xor_si256(q, odd), odd),
        _mm256_or_si256(_mm256_and_si256(same, _mm256_set1_epi32(64)),
                        _mm256_and_si256(_mm256_srli_epi32(same, 16), _mm256_set1_epi32(128))),
        _mm256_madd_epi16(sum, _mm256_set1_epi16(1)),
    };
}

static void pack_opposed(const struct tsr_cpu_weight *w, struct tsr_cpu_opposed *dst,
                         const int8_t *q, uint64_t ldq, uint64_t k0, uint64_t n, uint64_t m,
                         const int32_t *sums, int32_t *starts)
{
    const int whole = !w->affine && !w->zeros; /* sums are for all rows */
    uint64_t  first = 0;
    while (first < w->nruns && w->runs[first].k1 <= k0)
        first++;
    for (uint64_t t = 0; t < m; t++) {
        uint64_t r = first;
        int32_t  negated = 0;
        for (uint64_t k = 0; k < n; k += 32) {
            const struct opposed o =
                opposed_of(_mm256_loadu_si256((const void *)(q + t * ldq + k)));
            _Alignas(32) struct tsr_cpu_opposed to[8];
            _Alignas(32) int32_t                sum[8];
            const __m256i                       a = _mm256_unpacklo_epi32(o.q, o.at),
                          b = _mm256_unpackhi_epi32(o.q, o.at);
            _mm256_store_si256((void *)to, _mm256_permute2x128_si256(a, b, 0x20));
            _mm256_store_si256((void *)(to + 4), _mm256_permute2x128_si256(a, b, 0x31));
            _mm256_store_si256((void *)sum, o.negated);
            for (uint64_t j = 0; j < 8 && k + 4 * j < n; j++) {
                dst[(k / 4 + j) * ISA_TOKENS_MANY + t] = to[j];
                if (r == w->nruns) /* padding */
                    continue;
                negated += sum[j];
                if (k0 + k + 4 * j + 4 < w->runs[r].k1)
                    continue;
                starts[r * m + t] = 255 * negated + (whole ? sums[r * m + t] : 0);
                negated = 0;
                r++;
            }
        }
    }
    for (uint64_t k = 0; k < n / 4; k++)
        for (uint64_t t = m; t < ISA_TOKENS_MANY; t++)
            dst[k * ISA_TOKENS_MANY + t] = (struct tsr_cpu_opposed){ .at = 0 };
}

static inline i16v xored(i16v a, i16v b)
{
    return vi_make(_mm256_xor_si256(a.a, b.a), _mm256_xor_si256(a.b, b.b));
}

INLINE void unpack_opposed_of(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l,
                              struct part *p)
{
    const uint64_t step = cpu_step(l), unit = cpu_unit(l);
    const i16v     table = run_table(w, RUN_MAPPED);
    const i16v     odd[4] = { vi_zero(), vi_set1(0xff00), vi_set1((int32_t)0xff000000),
                              vi_set1((int32_t)0xff00ff00) };
    const uint8_t *c = p->packed;
    uint8_t       *to = p->buffer, *half = to + sizeof p->buffer / 2;
    for (uint64_t k = 0; k < 4 * p->steps; k += step, c += 2 * unit) {
        struct code_step a = code_load(l, c), b = code_load(l, c + unit);
        UNROLL
        for (int j = 0; j < (int)step / 4; j++) {
            const i16v wa = run_four(RUN_MAPPED, l, &a, j, table);
            const i16v wb = run_four(RUN_MAPPED, l, &b, j, table);
            UNROLL
            for (int i = 0; i < 4; i++, to += CPU_OPPOSED_CODES, half += CPU_OPPOSED_CODES) {
                vb_store(to, xored(wa, odd[i]));
                vb_store(half, xored(wb, odd[i]));
            }
        }
    }
}

static __attribute__((noinline)) void unpack_opposed(const struct tsr_cpu_weight *w, struct part *p)
{
    if (w->layout == W_I8)
        unpack_opposed_of(w, W_I8, p);
    else if (w->layout == W_I4)
        unpack_opposed_of(w, W_I4, p);
    else if (w->layout == W_I3)
        unpack_opposed_of(w, W_I3, p);
    else
        unpack_opposed_of(w, W_I2, p);
}

#endif
