/* k_select.c - channels by buckets of their magnitudes. */
#include "compensate.h"
#include "k_decl.h"

#include <math.h>
#include <stdbool.h>

/* Which of x[0..64) are larger than `than` in magnitude. */
INLINE uint64_t larger(const float *x, v16 than)
{
    uint32_t a = v_bits(v_lt(than, v_abs(v_load(x))));
    uint32_t b = v_bits(v_lt(than, v_abs(v_load(x + 16))));
    uint32_t c = v_bits(v_lt(than, v_abs(v_load(x + 32))));
    uint32_t d = v_bits(v_lt(than, v_abs(v_load(x + 48))));
    uint64_t low = a | b << 16, high = c | d << 16;
    return low | high << 32;
}

/* The same of fewer. */
INLINE uint64_t larger_of(const float *x, uint64_t n, v16 than)
{
    uint64_t m = 0;
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = n - i < 16 ? n - i : 16;
        uint32_t bits = v_bits(v_lt(than, v_abs(v_loadn(x + i, c)))) & ((1u << c) - 1u);
        m |= (uint64_t)bits << i;
    }
    return m;
}

INLINE uint64_t count_larger(const float *x, uint64_t n, float than)
{
    v16      t = v_set1(than);
    uint64_t count = 0, i = 0;
    for (; i + 64 <= n; i += 64)
        count += (uint64_t)__builtin_popcountll(larger(x + i, t));
    return count + (uint64_t)__builtin_popcountll(larger_of(x + i, n - i, t));
}

/* The bucket that contains number `take`, searched at *bucket and its neighbours first: chunks of one
 * input are similar. Returns how many numbers come before it. */
static uint64_t find_bucket(const float *x, uint64_t n, uint64_t take, const float *below,
                            uint64_t *bucket)
{
    uint64_t low = 0, high = TSR_COMPENSATE_BUCKETS - 1, before = 0, mid = *bucket;
    for (int tries = 0; low < high; tries++) {
        if (tries > 1)
            mid = (low + high) / 2;
        mid = mid < high ? mid : high - 1;
        uint64_t c = count_larger(x, n, below[mid]);
        if (c >= take) {
            high = mid;
            mid = mid > low ? mid - 1 : low;
        } else {
            low = ++mid;
            before = c;
        }
    }
    *bucket = low;
    return before;
}

uint64_t K(choose)(const float *x, uint64_t n, uint64_t base, uint64_t take, const float *below,
                   uint64_t *bucket, uint32_t *list)
{
    uint32_t room[TSR_COMPENSATE_CHUNK + 16];
    uint64_t at = 0, edge = take - find_bucket(x, n, take, below, bucket), b = *bucket;
    v16      in = v_set1(below[b]), above = v_set1(b ? below[b - 1] : INFINITY);
    for (uint64_t i = 0; i < n; i += 64) {
        bool     whole = n - i >= 64;
        uint64_t sure = whole ? larger(x + i, above) : larger_of(x + i, n - i, above);
        uint64_t more = (whole ? larger(x + i, in) : larger_of(x + i, n - i, in)) & ~sure;
        uint64_t c = (uint64_t)__builtin_popcountll(more), rest = more;
        if (c > edge) /* the lowest `edge` of the bucket */
            for (more = 0; edge; edge--, rest &= rest - 1)
                more |= rest & -rest;
        else
            edge -= c;
        more |= sure;
        for (uint64_t j = 0; j < 64; j += 16) {
            uint32_t m = (uint32_t)(more >> j) & 0xffffu;
            v_numbers(room + at, (uint32_t)(base + i + j), m);
            at += (uint64_t)__builtin_popcount(m);
        }
    }
    memcpy(list, room, at * sizeof *list);
    return at;
}
