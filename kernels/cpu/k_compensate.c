/* k_compensate.c - channels by buckets, and their rows of residuals gathered, widened and added in one
 * pass. */
#include "compensate.h"
#include "k_decl.h"
#include "k_residual.h"

#include <math.h>
#include <stdbool.h>

#if TSR_SIMD == 512 && !defined(TSR_SMALL_TILES)
#define ROWS 8 /* that are added at a time */
#else
#define ROWS 4
#endif
#define LINE (COMPENSATE_PIECE + 16u) /* of sums; lines begin in other sets of a cache */
#define NEAR 64u /* lines between the one that is fetched and the one that is added */

/* ---- which -------------------------------------------------------------------------------- */

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

/* The bucket in which number `take` lies, looked for at *bucket and beside it first: chunks of one input are
 * alike.  Returns how many lie in front of it. */
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

static uint64_t choose(const float *x, uint64_t n, uint64_t base, uint64_t take, const float *below,
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

/* ---- how much ------------------------------------------------------------------------------ */

/* The same in rows of so many lines. */
INLINE uint64_t rows_ahead(uint64_t lines)
{
    return lines >= NEAR / ROWS ? ROWS : NEAR / lines;
}

/* Rows i to i + n of the list onto one segment's sums; first: onto +0.  Rows lie in whole lines of 64 bytes, so
 * sums behind the last output are made, too, and not read. */
INLINE void add_rows(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, uint64_t i, int n,
                     int first, float *z, uint32_t bits)
{
    const uint8_t *row[ROWS], *next[ROWS];
    uint64_t step = 2 * bits, count = g->segment[COMPENSATE_SEGMENTS], ahead = rows_ahead(lines);
    v16      x[ROWS];
    UNROLL
    for (int r = 0; r < n; r++) {
        uint64_t at = i + (uint64_t)r, c = g->list[at] - g->first;
        uint64_t later = at + ahead < count ? at + ahead : at;
        row[r] = g->codes + c * g->stride + n0 / 16 * step;
        next[r] = g->codes + (g->list[later] - g->first) * g->stride + n0 / 16 * step;
        x[r] = v_set1(g->x[c]);
    }
    const int vecs = (int)(64 / step);
    for (uint64_t l = 0; l < lines; l++) {
        UNROLL
        for (int v = 0; v < vecs; v++, z += 16) {
            /* fetches are spread, so that sums go on between them */
            UNROLL
            for (int r = v * n / vecs; r < (v + 1) * n / vecs; r++)
                v_prefetch(next[r] + 64 * l);
            v16 acc = first ? v_set1(0.0f) : v_load(z);
            UNROLL
            for (int r = 0; r < n; r++)
                acc = v_fma(x[r], v_residual(row[r] + 64 * l + (uint64_t)v * step, bits), acc);
            v_store(z, acc);
        }
    }
}

INLINE void add_some(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, uint64_t i, int n,
                     int first, float *z, uint32_t bits)
{
    if (n == ROWS)
        add_rows(g, n0, lines, i, ROWS, first, z, bits);
    else if (n == 4)
        add_rows(g, n0, lines, i, 4, first, z, bits);
    else if (n == 2)
        add_rows(g, n0, lines, i, 2, first, z, bits);
    else
        add_rows(g, n0, lines, i, 1, first, z, bits);
}

/* The linear that output n of joined rows belongs to: *from is its first.  g holds n or what lies behind it does. */
INLINE const struct tsr_cpu_gather *linear_of(const struct tsr_cpu_gather *g, uint64_t n,
                                              uint64_t *from)
{
    for (uint64_t room; n - *from >= (room = tsr_cpu_gather_room(g)); g = g->behind)
        *from += room;
    return g;
}

/* The first rows whole, line by line over all of them, as they are walked.  The others lie in pages of their
 * own: let all of them be looked up at once.  Scales and outputs are needed last, by when they have come,
 * too. */
INLINE void fetch_first(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs,
                        uint64_t lines, uint32_t bits)
{
    const struct tsr_cpu_gather *of = g;
    const uint8_t               *codes = g->codes + n0 / 8 * bits;
    uint64_t begin = g->segment[0], end = g->segment[COMPENSATE_SEGMENTS], from = 0;
    uint64_t whole = begin + rows_ahead(lines) < end ? begin + rows_ahead(lines) : end;
    for (uint64_t l = 0; l < lines; l++)
        for (uint64_t i = begin; i < whole; i++)
            v_prefetch(codes + (g->list[i] - g->first) * g->stride + 64 * l);
    for (uint64_t i = whole; i < end; i++)
        v_prefetch(codes + (g->list[i] - g->first) * g->stride);
    for (uint64_t n = n0; n < n0 + outputs; n += 16) {
        of = linear_of(of, n, &from);
        if (n - from >= of->outputs)
            continue;
        if ((n - from) % 32 == 0 || n == n0)
            v_prefetch(of->scales + (n - from));
        v_prefetch(of->out + (n - from));
    }
}

/* Outputs n0..: the sums of one segment stay in the first cache while its rows pass by, each from one end
 * of the piece to the other. */
INLINE void piece(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs, uint32_t bits)
{
    static const float zeros[COMPENSATE_PIECE];
    _Alignas(64) float sums[COMPENSATE_SEGMENTS][LINE];
    const float       *of[COMPENSATE_SEGMENTS];
    uint64_t           vecs = (outputs + 15) / 16, lines = (vecs * 2 * bits + 63) / 64;
    fetch_first(g, n0, outputs, lines, bits);
    for (uint64_t s = 0; s < COMPENSATE_SEGMENTS; s++) {
        uint64_t i = g->segment[s], end = g->segment[s + 1];
        of[s] = i < end ? sums[s] : zeros;
        for (int first = 1; i < end; first = 0) {
            int n = ROWS;
            while ((uint64_t)n > end - i)
                n /= 2;
            if (first)
                add_some(g, n0, lines, i, n, 1, sums[s], bits);
            else
                add_some(g, n0, lines, i, n, 0, sums[s], bits);
            i += (uint64_t)n;
        }
    }
    const struct tsr_cpu_gather *to = g;
    for (uint64_t v = 0, from = 0; v < vecs; v++) {
        to = linear_of(to, n0 + 16 * v, &from);
        uint64_t n = n0 + 16 * v - from;
        if (n >= to->outputs) /* the rest of a row's last line */
            continue;
        uint64_t c = to->outputs - n < 16 ? to->outputs - n : 16;
        v16      scale = v_residual_scale(v_load_f16(to->scales + n), bits), z[COMPENSATE_SEGMENTS];
        UNROLL
        for (uint64_t s = 0; s < COMPENSATE_SEGMENTS; s++)
            z[s] = v_mul(v_load(of[s] + 16 * v), scale);
        v16 low = v_add(v_add(z[0], z[1]), v_add(z[2], z[3]));
        v16 sum = v_add(low, v_add(v_add(z[4], z[5]), v_add(z[6], z[7])));
        sum = v_add(v_set1(0.0f), v_residual_place(sum, bits));
        v_storen(to->out + n, to->fresh ? sum : v_add(v_loadn(to->out + n, c), sum), c);
    }
}

INLINE void pieces(const struct tsr_cpu_gather *g, uint64_t begin, uint64_t end, uint32_t bits)
{
    for (; begin < end; begin += COMPENSATE_PIECE)
        piece(g, begin, end - begin < COMPENSATE_PIECE ? end - begin : COMPENSATE_PIECE, bits);
}

static void gather(const struct tsr_cpu_gather *g, uint64_t begin, uint64_t end)
{
    switch (g->bits) {
    case 2:
        pieces(g, begin, end, 2);
        break;
    case 4:
        pieces(g, begin, end, 4);
        break;
    case 8:
        pieces(g, begin, end, 8);
        break;
    default:
        pieces(g, begin, end, 16);
        break;
    }
}

#define TABLE_(isa) tsr_cpu_compensate_##isa
#define TABLE(isa)  TABLE_(isa)

const struct tsr_cpu_compensate_kernels TABLE(ISA_NAME) = { .choose = choose, .gather = gather };
