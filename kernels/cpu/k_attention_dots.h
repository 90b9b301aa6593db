/* k_attention_dots.h - products of one token's queries with sixteen cached keys, each key read once for several query heads. */
#ifndef TSR_CPU_K_ATTENTION_DOTS_H
#define TSR_CPU_K_ATTENTION_DOTS_H

#include "k_attention.h"
#include "simd_fold.h"

INLINE uint64_t lanes(uint64_t n, uint64_t i)
{
    return n - i < 16 ? n - i : 16;
}

/* Keys and query heads whose products are summed concurrently: each loaded key serves all of the heads,
 * each query all of the keys. */
#if ISA_VECS == 2
#define KEYS  4
#define HEADS 4
#else
#define KEYS  2
#define HEADS 2
#endif
/* Keys of a group are that far apart, as the first steps of their trees need them; so many groups. */
#define GROUPS (16 / KEYS)

/* Columns d..d+n-1 of the products. */
INLINE void dots_at(const uint8_t *q, uint64_t q_stride, const uint8_t *const key[KEYS], uint64_t d,
                    uint64_t n, const uint32_t dtype, const int nh, const v16 *s,
                    v16 acc[HEADS][KEYS])
{
    v16 k[KEYS];
    UNROLL
    for (int j = 0; j < KEYS; j++)
        k[j] = cached(key[j], dtype, d, n, s[j]);
    UNROLL
    for (int h = 0; h < nh; h++) {
        v16 x = cached(q + (uint64_t)h * q_stride, TSR_F32, d, n, s[0]);
        UNROLL
        for (int j = 0; j < KEYS; j++)
            acc[h][j] = v_fma(x, k[j], acc[h][j]);
    }
}

/* q.k of a group of keys and nh query heads from q on, with the first steps of their trees: one vector of a head,
 * t[GROUPS * head]. */
INLINE void dots(const uint8_t *q, uint64_t dim, const uint8_t *const key[KEYS],
                 const uint32_t dtype, const int nh, v16 *t)
{
    v16      acc[HEADS][KEYS], s[KEYS];
    uint64_t d = 0;
    UNROLL
    for (int j = 0; j < KEYS; j++) {
        s[j] = head_scale(key[j], dtype);
        UNROLL
        for (int h = 0; h < nh; h++)
            acc[h][j] = v_set1(0.0f);
    }
    for (; d + 16 <= dim; d += 16)
        dots_at(q, dim * 4, key, d, 16, dtype, nh, s, acc);
    if (d < dim)
        dots_at(q, dim * 4, key, d, dim - d, dtype, nh, s, acc);
    UNROLL
    for (int h = 0; h < nh; h++)
#if KEYS == 4
        t[GROUPS * h] = v_fold4(v_fold8(acc[h][0], acc[h][2]), v_fold8(acc[h][1], acc[h][3]));
#else
        t[GROUPS * h] = v_fold8(acc[h][0], acc[h][1]);
#endif
}

/* The tree16 of sixteen products, lane j that of key j, from what dots() gives for each group. */
INLINE v16 dots_end(const v16 *t)
{
#if KEYS == 4
    return v_fold1(v_fold2(t[0], t[1]), v_fold2(t[2], t[3]));
#else
    return v_fold1(v_fold2(v_fold4(t[0], t[4]), v_fold4(t[1], t[5])),
                   v_fold2(v_fold4(t[2], t[6]), v_fold4(t[3], t[7])));
#endif
}

/* Memory is read fastest in its order, but heads are read one after the other: rows that are read next are prefetched
 * row by row, with all heads, into the second cache, evenly while others are computed. */
struct ahead {
    const uint8_t *row;
    uint64_t stride, bytes, at, to, end; /* of a head; in the row: what comes next, up to where */
};

/* The part of one head and position. */
INLINE void fetch_next(struct ahead *f)
{
    for (; f->at < f->to; f->at += 64)
        v_prefetch_l2(f->row + f->at);
    f->to += f->bytes;
    if (f->to > f->end) {
        f->row += f->stride;
        f->at = 0;
        f->to = f->bytes;
    }
}

/* y[h]: products of query head h with sixteen keys from `key` on, of which first..end-1 count; lanes of the others have
 * those of a key that counts. */
INLINE void sixteen_keys(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *key,
                         uint64_t first, uint64_t end, const uint32_t dtype, const int nh,
                         struct ahead *f, v16 *y)
{
    v16 t[HEADS * GROUPS];
    for (uint64_t j = 0; j < GROUPS; j++) {
        const uint8_t *row[KEYS];
        UNROLL
        for (uint64_t i = 0; i < KEYS; i++) {
            uint64_t at = j + GROUPS * i;
            at = at < end ? at : end - 1;
            row[i] = key + (at > first ? at : first) * a->k_stride;
            if (f)
                fetch_next(f);
        }
        dots(q, a->head_dim, row, dtype, nh, t + j);
    }
    UNROLL
    for (int h = 0; h < nh; h++)
        y[h] = dots_end(t + GROUPS * h);
}

#endif
