/* k_compensate.c - channels by buckets, and their rows of residuals gathered, widened and added in one
 * pass. */
#include "compensate.h"
#include "k_decl.h"
#include "k_residual.h"

#include <math.h>
#include <stdbool.h>

#define ROWS 4   /* that are added at a time */
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

/* Rows i to i + n of the list onto the sums of a piece; first: onto +0.  Rows lie in whole lines of 64 bytes, so
 * sums behind the last output are made, too, and not read.  Sums of a line go through the registers together where
 * there are enough of them: a line's codes are loaded once. */
INLINE void add_rows(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, uint64_t i, int n,
                     int first, float *z, uint32_t bits)
{
    const uint8_t *row[ROWS], *next[ROWS];
    const int      vecs = 32 / (int)bits, some = TSR_SIMD == 512 ? vecs : 1;
    const uint64_t ahead = rows_ahead(lines), at = n0 / 8 * bits;
    v16            x[ROWS];
    UNROLL
    for (int r = 0; r < n; r++) {
        uint64_t now = i + (uint64_t)r, later = now + ahead < g->count ? now + ahead : now;
        row[r] = g->codes + g->list[now] * g->stride + at;
        next[r] = g->codes + g->list[later] * g->stride + at;
        x[r] = v_set1(g->x[g->list[now]]);
    }
    for (uint64_t l = 0; l < lines; l++) {
        UNROLL
        for (int v0 = 0; v0 < vecs; v0 += some, z += 16 * some) {
            v16 acc[16];
            UNROLL
            for (int v = 0; v < some; v++)
                acc[v] = first ? v_set1(0.0f) : v_load(z + 16 * v);
            UNROLL
            for (int r = 0; r < n; r++) {
                if (r * vecs / n / some == v0 / some) /* fetches are spread between sums */
                    v_prefetch(next[r] + 64 * l);
                UNROLL
                for (int v = 0; v < some; v++)
                    acc[v] = v_fma(x[r], v_residual(row[r] + 64 * l, v0 + v, bits), acc[v]);
            }
            UNROLL
            for (int v = 0; v < some; v++)
                v_store(z + 16 * v, acc[v]);
        }
    }
}

INLINE void add_some(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, uint64_t i, int n,
                     int first, float *z, uint32_t bits)
{
    if (n == ROWS)
        add_rows(g, n0, lines, i, ROWS, first, z, bits);
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
    uint64_t whole = rows_ahead(lines) < g->count ? rows_ahead(lines) : g->count, from = 0;
    for (uint64_t l = 0; l < lines; l++)
        for (uint64_t i = 0; i < whole; i++)
            v_prefetch(codes + g->list[i] * g->stride + 64 * l);
    for (uint64_t i = whole; i < g->count; i++)
        v_prefetch(codes + g->list[i] * g->stride);
    for (uint64_t n = n0; n < n0 + outputs; n += 16) {
        of = linear_of(of, n, &from);
        if (n - from >= of->outputs)
            continue;
        if ((n - from) % 32 == 0 || n == n0)
            v_prefetch(of->scales + (n - from));
        v_prefetch(of->out + (n - from));
    }
}

/* The sums of a piece times the scales, to the outputs. */
INLINE void give(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, const float *z,
                 uint32_t bits)
{
    const int vecs = 32 / (int)bits;
    uint64_t  from = 0;
    for (uint64_t l = 0; l < lines; l++, z += 16 * vecs) {
        v16      sum[16];
        uint64_t n1 = n0 + l * 16 * (uint64_t)vecs;
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[v] = v_load(z + 16 * v);
        v_residual_order(sum, bits);
        g = linear_of(g, n1, &from);
        for (int v = 0; v < vecs; v++) {
            uint64_t n = n1 - from + 16 * (uint64_t)v;
            if (n >= g->outputs) /* the rest of a row's last line */
                break;
            uint64_t c = g->outputs - n < 16 ? g->outputs - n : 16;
            v16      s = v_add(v_set1(0.0f), v_mul(sum[v], v_load_f16(g->scales + n)));
            v_storen(g->out + n, g->fresh ? s : v_add(v_loadn(g->out + n, c), s), c);
        }
    }
}

/* Outputs n0..: their sums stay in the first cache while rows pass by, each from one end of the piece to the
 * other. */
INLINE void piece(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs, uint32_t bits)
{
    _Alignas(64) float sums[COMPENSATE_PIECE];
    uint64_t           lines = (outputs * bits + 511) / 512;
    fetch_first(g, n0, outputs, lines, bits);
    if (!g->count)
        memset(sums, 0, sizeof sums);
    for (uint64_t i = 0; i < g->count;) {
        int n = ROWS;
        while ((uint64_t)n > g->count - i)
            n /= 2;
        if (i == 0)
            add_some(g, n0, lines, i, n, 1, sums, bits);
        else
            add_some(g, n0, lines, i, n, 0, sums, bits);
        i += (uint64_t)n;
    }
    give(g, n0, lines, sums, bits);
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
