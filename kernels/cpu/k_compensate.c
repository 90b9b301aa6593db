/* k_compensate.c - rows of residuals gathered, widened and added in one pass (docs/decisions/numerics.md, COMPENSATE):
 * codes times whole numbers, so that a block's sums are exact; F16 values by multiply-adds, one chain. */
#include "compensate.h"
#include "k_decl.h"
#include "k_residual.h"

#include <math.h>

#define ROWS     RESIDUAL_ROWS
#define CHANNELS 512 /* channels whose sums of 8 bit codes stay below 2^31; a multiple of ROWS */
#define NEAR     64u /* lines between the one that is fetched and the one that is added */

/* ---- fetching ------------------------------------------------------------------------------- */

/* Rows of so many lines between the one that is fetched and the one that is added. */
INLINE uint64_t rows_ahead(uint64_t lines)
{
    return lines >= NEAR / ROWS ? ROWS : NEAR / lines;
}

/* Rows i to i + ROWS of the list at byte `at`, and those to fetch meanwhile.  Behind the last one comes the last one
 * again. */
INLINE void find_rows(const struct tsr_cpu_gather *g, uint64_t at, uint64_t i, uint64_t ahead,
                      const uint8_t **row, const uint8_t **next)
{
    for (uint64_t r = 0; r < ROWS; r++) {
        uint64_t now = i + r < g->count ? i + r : g->count - 1;
        uint64_t later = now + ahead < g->count ? now + ahead : now;
        row[r] = g->codes + g->list[now] * g->stride + at;
        next[r] = g->codes + g->list[later] * g->stride + at;
    }
}

/* The linear that output n of joined rows belongs to: *from is its first output. n is in g or in a linear
 * linked after it. */
INLINE const struct tsr_cpu_gather *linear_of(const struct tsr_cpu_gather *g, uint64_t n,
                                              uint64_t *from)
{
    for (uint64_t room; n - *from >= (room = tsr_cpu_gather_room(g)); g = g->behind)
        *from += room;
    return g;
}

/* Prefetches the first rows whole, line by line over all of them, in the order of use: into L2, which has
 * more outstanding lines than L1. The other rows are in different pages: touch each, so that all address
 * translations start together. Scales and outputs are needed last, and have arrived by then. */
INLINE void fetch_first(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs,
                        uint64_t lines, uint32_t bits)
{
    const struct tsr_cpu_gather *of = g;
    const uint8_t               *codes = g->codes + n0 / 8 * bits;
    uint64_t whole = rows_ahead(lines) < g->count ? rows_ahead(lines) : g->count, from = 0;
    for (uint64_t l = 0; l < lines; l++)
        for (uint64_t i = 0; i < whole; i++)
            v_prefetch_l2(codes + g->list[i] * g->stride + 64 * l);
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

/* ---- codes ---------------------------------------------------------------------------------- */

/* A block of channels as whole numbers x, and the sums of their rows: a piece's, while rows pass by. */
struct block {
    int16_t x[CHANNELS];
    float   step; /* x times it is the input */
    int32_t less; /* offset of the sums: their codes count from 0 */
    _Alignas(64) int32_t sums[COMPENSATE_PIECE];
};

/* n channels from place i of the list on.  Of inputs that are not finite step is NaN; of those below 2^-100, whose
 * reciprocal is none, no number is left. */
static void round_inputs(const struct tsr_cpu_gather *g, uint64_t i, uint64_t n, uint32_t bits,
                         struct block *b)
{
    float    v[CHANNELS], top;
    uint32_t most = 0;
    int32_t  sum = 0;
    for (uint64_t j = 0; j < n; j++) {
        uint32_t u;
        v[j] = g->x[g->list[i + j]];
        memcpy(&u, &v[j], sizeof u);
        u &= 0x7fffffffu;
        most = u > most ? u : most;
    }
    memcpy(&top, &most, sizeof top);
    memset(b->x, 0, sizeof b->x);
    b->less = 0;
    b->step = top <= FLT_MAX ? top / (float)RESIDUAL_TOP : NAN;
    if (!(top <= FLT_MAX) || top < 0x1p-100f)
        return;
    float per = (float)RESIDUAL_TOP / top;
    for (uint64_t j = 0; j < n; j++) {
        b->x[j] = (int16_t)lrintf(v[j] * per);
        sum += b->x[j];
    }
    b->less = sum * (1 << (bits - 1));
}

/* Rows are whole lines of 64 bytes, so sums past the last output are computed but not read. */
INLINE void add_block(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, uint64_t i,
                      uint64_t n, struct block *b, uint32_t bits)
{
    const uint64_t ahead = rows_ahead(lines);
    memset(b->sums, 0, lines * (512 / bits) * sizeof *b->sums);
    for (uint64_t j = 0; j < n; j += ROWS) {
        const uint8_t *row[ROWS], *next[ROWS];
        find_rows(g, n0 / 8 * bits, i + j, ahead, row, next);
        struct v_eight x = v_eight(b->x + j);
        int32_t       *z = b->sums;
        for (uint64_t l = 0; l < lines; l++, z += 512 / bits) {
            UNROLL
            for (int r = 0; r < ROWS; r++)
                v_prefetch_l2(next[r] + 64 * l);
            v_residual_add(row, 64 * l, &x, z, bits);
        }
    }
}

/* A block's sums in F32, to those of the blocks before it. */
INLINE void keep_block(const struct block *b, uint64_t outputs, int first, float *before)
{
    for (uint64_t n = 0; n < outputs; n += 16) {
        v16 s = v_mul(v_residual_sum(b->sums + n, b->less), v_set1(b->step));
        v_store(before + n, first ? s : v_add(v_load(before + n), s));
    }
}

/* ---- F16 values ------------------------------------------------------------------------------ */

/* n rows from place i of the list on. */
INLINE void add_values(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, uint64_t i,
                       uint64_t n, float *z)
{
    const uint8_t *row[ROWS], *next[ROWS];
    v16            x[ROWS];
    find_rows(g, n0 * 2, i, rows_ahead(lines), row, next);
    for (uint64_t r = 0; r < n; r++)
        x[r] = v_set1(g->x[g->list[i + r]]);
    for (uint64_t l = 0; l < lines; l++, z += 32) {
        v16 a = v_load(z), b = v_load(z + 16);
        UNROLL
        for (uint64_t r = 0; r < n; r++) {
            v_prefetch_l2(next[r] + 64 * l);
            a = v_fma(x[r], v_load_f16(row[r] + 64 * l), a);
            b = v_fma(x[r], v_load_f16(row[r] + 64 * l + 32), b);
        }
        v_store(z, a);
        v_store(z + 16, b);
    }
}

/* ---- pieces ----------------------------------------------------------------------------------- */

/* What a piece has before its scales: F32 sums, and those of a last block, or NULL. */
struct ready {
    const float        *sums;
    const struct block *last;
};

INLINE v16 ready_sum(const struct ready *r, uint64_t n)
{
    if (!r->last)
        return v_load(r->sums + n);
    v16 s = v_mul(v_residual_sum(r->last->sums + n, r->last->less), v_set1(r->last->step));
    return r->sums ? v_add(v_load(r->sums + n), s) : s;
}

/* Times the scales, to the outputs. */
INLINE void give(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t lines, const struct ready *r,
                 uint32_t bits)
{
    const uint64_t vecs = 32 / bits;
    uint64_t       from = 0;
    for (uint64_t l = 0; l < lines; l++) {
        v16      sum[16];
        uint64_t n1 = n0 + l * 16 * vecs;
        UNROLL
        for (uint64_t v = 0; v < vecs; v++)
            sum[v] = ready_sum(r, 16 * (l * vecs + v));
        if (bits < 16)
            v_residual_order(sum, bits);
        g = linear_of(g, n1, &from);
        for (uint64_t v = 0; v < vecs; v++) {
            uint64_t n = n1 - from + 16 * v;
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
INLINE void piece_of_codes(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs,
                           uint32_t bits)
{
    _Alignas(64) float before[COMPENSATE_PIECE];
    struct block       b;
    struct ready       r = { .last = &b };
    uint64_t           lines = (outputs * bits + 511) / 512, i = 0, n;
    fetch_first(g, n0, outputs, lines, bits);
    do {
        n = g->count - i < CHANNELS ? g->count - i : CHANNELS;
        round_inputs(g, i, n, bits, &b);
        add_block(g, n0, lines, i, n, &b, bits);
        i += n;
        if (i < g->count) {
            keep_block(&b, lines * (512 / bits), i == n, before);
            r.sums = before;
        }
    } while (i < g->count);
    give(g, n0, lines, &r, bits);
}

INLINE void piece_of_values(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs)
{
    _Alignas(64) float sums[COMPENSATE_PIECE];
    uint64_t           lines = (outputs * 16 + 511) / 512;
    fetch_first(g, n0, outputs, lines, 16);
    memset(sums, 0, lines * 32 * sizeof *sums);
    uint64_t i = 0;
    for (; i + ROWS <= g->count; i += ROWS)
        add_values(g, n0, lines, i, ROWS, sums);
    for (; i < g->count; i++)
        add_values(g, n0, lines, i, 1, sums);
    give(g, n0, lines, &(struct ready){ .sums = sums }, 16);
}

static void piece(const struct tsr_cpu_gather *g, uint64_t n0, uint64_t outputs)
{
    switch (g->bits) {
    case 2:
        piece_of_codes(g, n0, outputs, 2);
        break;
    case 4:
        piece_of_codes(g, n0, outputs, 4);
        break;
    case 8:
        piece_of_codes(g, n0, outputs, 8);
        break;
    default:
        piece_of_values(g, n0, outputs);
        break;
    }
}

static void gather(const struct tsr_cpu_gather *g, uint64_t begin, uint64_t end)
{
    for (; begin < end; begin += COMPENSATE_PIECE)
        piece(g, begin, end - begin < COMPENSATE_PIECE ? end - begin : COMPENSATE_PIECE);
}

#define TABLE_(isa) tsr_cpu_compensate_##isa
#define TABLE(isa)  TABLE_(isa)

const struct tsr_cpu_compensate_kernels TABLE(ISA_NAME) = { .choose = K(choose), .gather = gather };
