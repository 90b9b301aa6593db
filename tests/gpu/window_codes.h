/* window_codes.h - what a sum over ranks is by its definition, for tests of window.cu: numbers that are coded and decoded
 * one by one, and the tree of additions. */
#ifndef TSR_TEST_WINDOW_CODES_H
#define TSR_TEST_WINDOW_CODES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "k_window.h"
#include "simt/simt.h"
#include "tessera/codec.h"
#include "tessera/dtype.h"
#include "tessera/f16.h"

#define SCHEDULES 3u /* of each shape: in turn, and in orders that TSR_TEST_SEED draws */
#define RANKS     K_WINDOW_RANKS
#define TURNS     UINT64_C(5)
#define LONG      UINT64_C(60000000000) /* ns: only a hang takes so long */
#define SHORT     UINT64_C(2000000)
#define GAP       5u
#define HALF      (UINT64_C(64) << 10)
#define MOST                                                                                       \
    512u /* turns of a schedule for a block of a sum; ranks that wait for each other take no more */

#define MX(i)        (100u + (i))    /* in place of a type: codes of mx_wire[i] */
#define SCALED(bits) (200u + (bits)) /* `int4_bf16`; bits 2 to 8 */
#define TWO          1000u           /* more than that: in two steps */

static const struct tsr_codec_wire mx_wire[] = {
    { .element = TSR_MX_FP4_E2M1, .block = 32, .scale_bits = 8, .rounding = TSR_WIRE_EVEN },
    { .element = TSR_MX_FP6_E2M3, .block = 64, .scale_bits = 8, .rounding = TSR_WIRE_EVEN },
    { .element = TSR_MX_INT(8), .block = 8, .scale_bits = 6, .rounding = TSR_WIRE_EVEN },
    { .element = TSR_MX_FP3_E1M1, .block = 256, .scale_bits = 8, .rounding = TSR_WIRE_EVEN },
};

struct shape {
    uint32_t ranks, dtype;
    uint64_t rows, cols;
    bool     one_half; /* a fault: each sum writes where the one before is read */
    uint64_t wait_ns;
};

static uint64_t draw(uint64_t *s, uint64_t below)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*s >> 33) % below;
}

/* The number of a schedule, of SCHEDULES or with TSR_TEST_ALL of 40: 0 is in turn. */
static uint64_t schedule(uint64_t i)
{
    const char *seed = getenv("TSR_TEST_SEED");
    return i ? i + 100 * (seed ? strtoull(seed, NULL, 10) : 0) : 0;
}
static uint64_t schedules(void)
{
    return getenv("TSR_TEST_ALL") ? 40 : SCHEDULES;
}

/* Of both signs, with sums whose order matters. */
static float number(uint32_t r, uint32_t turn, uint64_t i)
{
    uint64_t s = (uint64_t)r << 48 ^ (uint64_t)turn << 40 ^ i;
    (void)draw(&s, 2);
    float v = (float)draw(&s, 1u << 20) - 524288.0f;
    return v / (float)(1u << draw(&s, 24));
}

/* ---- the sum, by its definition ------------------------------------------------------- */

/* A magnitude of an element with e bits of exponent and m of mantissa. */
static double mx_magnitude(uint32_t e, uint32_t m, uint32_t k)
{
    const int bias = e ? (1 << (e - 1)) - 1 : 0, field = e ? (int)(k >> m) : 0;
    if (e == 0)
        return ldexp(k, 1 - (int)m);
    const double part = ldexp(k & ((1u << m) - 1), -(int)m);
    return field ? ldexp(1 + part, field - bias) : ldexp(part, 1 - bias);
}

/* A block becomes, each of its numbers, the nearest value of the element, ties to the even one, under the power of two that
 * the largest magnitude gives: docs/formats/mx.md, with a search over all values. */
static void code_block(const struct tsr_codec_wire *w, float *x, uint64_t n)
{
    const uint32_t e = w->element >> 8, m = w->element & 0xffu;
    double         top = 0;
    for (uint64_t c = 0; c < n; c++)
        top = fmax(top, fabs((double)x[c]));
    const int scale = top > 0 ? ilogb(top) - (e ? 1 << (e - 1) : 0) : 0;
    for (uint64_t c = 0; c < n; c++) {
        const double v = ldexp(x[c], -scale);
        double       best = 0, off = INFINITY;
        for (uint32_t k = 0; k < 1u << (e + m); k++) {
            const double to = mx_magnitude(e, m, k), d = fabs(fabs(v) - to);
            if (d < off || (d == off && k % 2 == 0)) {
                off = d;
                best = to;
            }
        }
        x[c] = best == 0 ? 0 : (float)ldexp(v < 0 ? -best : best, scale);
    }
}

/* Whether a column's numbers, or their sums, travel as BF16: some columns of each run. */
static bool is_outlier(uint64_t c, bool sum)
{
    return c % (sum ? 11 : 13) == 5 || c % 64 == 62;
}

/* Powers of two, so that a code is found without a rounding. */
static float scale_of(uint64_t c, uint32_t source, bool sum)
{
    return ldexpf(1, (int)((c * 7 + source * 3 + sum) % 17) - 4);
}

/* The nearest of -most..most times the scale, ties to even; docs/formats/codecs.md. */
static void code_scaled(uint32_t bits, float *row, uint64_t first, uint64_t end, uint32_t source,
                        bool sum)
{
    const double most = (1 << (bits - 1)) - 1;
    for (uint64_t c = first; c < end; c++) {
        const double scale = scale_of(c, source, sum), v = nearbyint(row[c] / scale);
        row[c] = is_outlier(c, sum) ? tsr_bf16_f32(tsr_f32_bf16(row[c]))
                                    : (float)(fmax(-most, fmin(most, v)) * scale + 0.0); /* no -0 */
    }
}

/* Columns [first, end) of a row are coded and decoded; blocks of `mx` begin at multiples of their columns.  sum: of the
 * slice of rank `source`. */
static void code_part(const struct shape *s, float *row, uint64_t first, uint64_t end,
                      uint32_t source, bool sum)
{
    const uint32_t code = s->dtype % TWO;
    if (code >= SCALED(0)) {
        code_scaled(code - SCALED(0), row, first, end, source, sum);
        return;
    }
    for (uint64_t c = first; c < end && code < MX(0); c++)
        row[c] = code == TSR_F16    ? tsr_f16_f32(tsr_f32_f16(row[c]))
                 : code == TSR_BF16 ? tsr_bf16_f32(tsr_f32_bf16(row[c]))
                                    : row[c];
    for (uint64_t c = first; c < end && code >= MX(0);) {
        const struct tsr_codec_wire *w = &mx_wire[code - MX(0)];
        const uint64_t               n = end - c < w->block ? end - c : w->block;
        code_block(w, row + c, n);
        c += n;
    }
}

/* Slices as the core has them. */
static uint64_t border_of(const struct shape *s, uint64_t r)
{
    const uint64_t units = (s->cols + 63) / 64, c = units * r / s->ranks * 64;
    return c < s->cols ? c : s->cols;
}

/* The left half is the largest power of two that leaves something to the right. */
static float tree(const struct shape *s, const float *x, uint32_t n)
{
    uint32_t half = 1;
    if (n == 1)
        return *x;
    while (2 * half < n)
        half *= 2;
    return tree(s, x, half) + tree(s, x + half * s->cols, n - half);
}

/* The sums of all turns, [TURNS][rows][cols]; valid until those of another shape are asked for. */
static const float *wanted(const struct shape *s)
{
    static struct shape of;
    static float       *kept;
    const uint64_t      n = s->cols;
    if (kept && of.ranks == s->ranks && of.dtype == s->dtype && of.rows == s->rows &&
        of.cols == s->cols)
        return kept;
    free(kept);
    float *want = malloc(TURNS * s->rows * n * sizeof *want);
    float *x = malloc(s->ranks * n * sizeof *x);
    assert_true(want && x);
    for (uint32_t i = 0; i < TURNS * s->rows; i++) {
        float *row = want + i * n;
        for (uint32_t r = 0; r < s->ranks; r++) {
            for (uint64_t c = 0; c < n; c++)
                x[r * n + c] = number(r, i / (uint32_t)s->rows, i % s->rows * n + c);
            if (s->dtype < TWO) {
                code_part(s, x + r * n, 0, n, r, false);
                continue;
            }
            code_part(s, x + r * n, 0, border_of(s, r), r, false); /* not what it adds itself */
            code_part(s, x + r * n, border_of(s, r + 1), n, r, false);
        }
        for (uint64_t c = 0; c < n; c++)
            row[c] = tree(s, x + c, s->ranks);
        for (uint32_t r = 0; r < s->ranks && s->dtype >= TWO; r++)
            code_part(s, row, border_of(s, r), border_of(s, r + 1), r, true);
    }
    free(x);
    of = *s;
    kept = want;
    return want;
}

/* ---- wires of `int4_bf16` --------------------------------------------------------------- */

/* Columns [first, end) as the codec has them: codes by place, where a place that an outlier would have holds a later column. */
static struct tsr_codec_wire scaled_wire(uint32_t bits, uint64_t first, uint64_t end,
                                         uint32_t source, bool sum)
{
    const uint64_t cols = end - first;
    uint32_t      *feature = malloc((cols + 1) * sizeof *feature);
    uint32_t      *place = malloc((cols + 1) * sizeof *place);
    float   *inv = malloc((cols + 1) * sizeof *inv), *scale = malloc((cols + 1) * sizeof *scale);
    uint64_t kept = 0, tail, i = 0;
    assert_true(feature && place && inv && scale);
    for (uint64_t c = 0; c < cols; c++)
        if (is_outlier(first + c, sum))
            feature[kept++] = (uint32_t)c;
    tail = cols - kept;
    for (; i < cols - kept; i++) {
        place[i] = (uint32_t)i;
        if (is_outlier(first + i, sum)) {
            while (is_outlier(first + tail, sum))
                tail++;
            place[i] = (uint32_t)tail++;
        }
        scale[i] = scale_of(first + place[i], source, sum);
        inv[i] = 1 / scale[i];
    }
    return (struct tsr_codec_wire){ .struct_size = sizeof(struct tsr_codec_wire),
                                    .kind = TSR_WIRE_SCALED,
                                    .cols = cols,
                                    .bits = bits,
                                    .kept = kept,
                                    .feature = feature,
                                    .place = place,
                                    .inv = inv,
                                    .scale = scale };
}

static void free_wires(const struct tsr_codec_wire *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)w[i].feature);
        free((void *)(uintptr_t)w[i].place);
        free((void *)(uintptr_t)w[i].inv);
        free((void *)(uintptr_t)w[i].scale);
    }
}

/* The wires of a shape; border has its slices. */
static void scaled_codes(const struct shape *s, uint64_t *border, struct tsr_codec_wire *first,
                         struct tsr_codec_wire *second, struct tsr_window_codes *codes)
{
    const bool     two = s->dtype >= TWO;
    const uint32_t bits = s->dtype % TWO - SCALED(0), slices = two ? s->ranks : 1;
    *codes = (struct tsr_window_codes){ .struct_size = sizeof *codes,
                                        .cols = s->cols,
                                        .border = two ? border : NULL,
                                        .first = first,
                                        .second = two ? second : NULL };
    for (uint32_t i = 0; i <= slices; i++)
        border[i] = two ? border_of(s, i) : i * s->cols;
    for (uint32_t i = 0; i < slices; i++)
        for (uint32_t r = 0; r <= s->ranks && border[i] < border[i + 1]; r++) {
            if (r == s->ranks && two)
                second[i] = scaled_wire(bits, border[i], border[i + 1], i, true);
            else if (r < s->ranks && !(two && r == i))
                first[i * s->ranks + r] = scaled_wire(bits, border[i], border[i + 1], r, false);
        }
}

#endif
