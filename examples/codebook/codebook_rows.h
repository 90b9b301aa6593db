/* codebook_rows.h - products of rows of codebook.c.
 *
 * A group adds vector * input into eight sums, in the order of columns; the group's sums times its scale go into the
 * row's eight sums, which are added at the end.  Both forms below do these operations, so their results are equal.
 * A run of columns begins where eight sums begin, but may begin and end inside a group. */
#ifndef CODEBOOK_ROWS_H
#define CODEBOOK_ROWS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tessera/f16.h>
#include <tessera/host.h>

#include "codebook.h"

#if defined __x86_64__
#include <immintrin.h>
#endif

#define ROWS      2u             /* that share the load of an input */
#define CODES     (GROUP / EACH) /* of a group */
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

struct options {
    int32_t kernel, columns, avx2, device, prepare;
};

struct quantizer {
    float                  vector[256][4]; /* each aligned to 16 bytes */
    const struct tsr_host *host;
    const struct options  *o;
    int                    wide; /* this CPU has AVX2 and FMA */
};

struct columns {
    uint64_t first, end; /* that are multiplied */
    uint64_t all;        /* of the matrix */
    int      prepared;   /* a group's scale follows its codes, else all codes come first */
};

/* The columns of group g that are among them. */
#define BEGIN(c, g) ((g)*GROUP > (c)->first ? (g)*GROUP : (c)->first)
#define END(c, g)   (((g) + 1) * GROUP < (c)->end ? ((g) + 1) * GROUP : (c)->end)

/* Group g of a row: its codes, how many they are, and its scale. */
struct group {
    const unsigned char *codes;
    uint64_t             n;
    float                scale;
};

static inline struct group group_of(const unsigned char *row, const struct columns *c, uint64_t g)
{
    uint64_t     left = CODES_OF(c->all) - g * CODES;
    struct group v = { row + g * (c->prepared ? CODES + 2 : CODES), left < CODES ? left : CODES,
                       0 };
    uint16_t     h;
    memcpy(&h, c->prepared ? v.codes + v.n : row + CODES_OF(c->all) + 2 * g, sizeof h);
    v.scale = tsr_f16_f32(h);
    return v;
}

static float last_sum(const float s[LANES])
{
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

/* x: inputs, zeros up to a multiple of LANES. */
static float plain_row(const struct quantizer *q, const unsigned char *row, const float *x,
                       const struct columns *c)
{
    float sum[LANES] = { 0 };
    for (uint64_t g = c->first / GROUP; g < GROUPS_OF(c->end); g++) {
        const struct group in = group_of(row, c, g);
        float              part[LANES] = { 0 };
        for (uint64_t k = BEGIN(c, g); k < END(c, g); k += LANES)
            for (unsigned i = 0; i < LANES; i++) {
                uint64_t code = (k - g * GROUP + i) / EACH;
                float    v = code < in.n ? q->vector[in.codes[code]][i % EACH] : 0.0f;
                part[i] = fmaf(v, x[k - c->first + i], part[i]);
            }
        for (unsigned i = 0; i < LANES; i++)
            sum[i] = fmaf(in.scale, part[i], sum[i]);
    }
    return last_sum(sum);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static __m256 two_vectors(const struct quantizer *q,
                                                              const struct group *g, uint64_t code)
{
    __m128 a = _mm_load_ps(q->vector[g->codes[code]]);
    __m128 b = code + 1 < g->n ? _mm_load_ps(q->vector[g->codes[code + 1]]) : _mm_setzero_ps();
    return _mm256_set_m128(b, a);
}

/* Some rows with some tokens, both constants where it is called, so that all sums of a group are in registers.  Each
 * result has the operations that it has alone. */
__attribute__((target("avx2,fma"), always_inline)) static inline void tile(
    const struct quantizer *q, const unsigned char *codes, uint64_t bytes, unsigned rows,
    const float *x, uint64_t stride, unsigned tokens, const struct columns *c, float *out,
    uint64_t out_stride)
{
    __m256 sum[ROWS][TOKENS];
    for (unsigned r = 0; r < rows; r++)
        for (unsigned t = 0; t < tokens; t++)
            sum[r][t] = _mm256_setzero_ps();
    for (uint64_t g = c->first / GROUP; g < GROUPS_OF(c->end); g++) {
        struct group in[ROWS];
        __m256       part[ROWS][TOKENS];
        for (unsigned r = 0; r < rows; r++) {
            in[r] = group_of(codes + r * bytes, c, g);
            for (unsigned t = 0; t < tokens; t++)
                part[r][t] = _mm256_setzero_ps();
        }
        for (uint64_t k = BEGIN(c, g); k < END(c, g); k += LANES) {
            __m256 v[ROWS];
            for (unsigned r = 0; r < rows; r++)
                v[r] = two_vectors(q, &in[r], (k - g * GROUP) / EACH);
            for (unsigned t = 0; t < tokens; t++) {
                __m256 of = _mm256_loadu_ps(x + t * stride + k - c->first);
                for (unsigned r = 0; r < rows; r++)
                    part[r][t] = _mm256_fmadd_ps(v[r], of, part[r][t]);
            }
        }
        for (unsigned r = 0; r < rows; r++) {
            __m256 scale = _mm256_set1_ps(in[r].scale);
            for (unsigned t = 0; t < tokens; t++)
                sum[r][t] = _mm256_fmadd_ps(scale, part[r][t], sum[r][t]);
        }
    }
    for (unsigned r = 0; r < rows; r++)
        for (unsigned t = 0; t < tokens; t++) {
            float s[LANES];
            _mm256_storeu_ps(s, sum[r][t]);
            out[t * out_stride + r] = last_sum(s);
        }
}

/* ROWS rows. */
__attribute__((target("avx2,fma"))) static void wide_rows(const struct quantizer *q,
                                                          const unsigned char    *codes,
                                                          const float *x, uint64_t stride,
                                                          uint64_t n, const struct columns *c,
                                                          float *out, uint64_t out_stride)
{
    uint64_t bytes = ROW_BYTES(c->all), t = 0;
    for (; t + TOKENS <= n; t += TOKENS)
        tile(q, codes, bytes, ROWS, x + t * stride, stride, TOKENS, c, out + t * out_stride,
             out_stride);
    for (; t < n; t++)
        tile(q, codes, bytes, ROWS, x + t * stride, stride, 1, c, out + t * out_stride, out_stride);
}
#else
#define wide_rows(...) ((void)0) /* q->wide is 0 */
#endif

#endif
