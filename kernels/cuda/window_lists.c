/* window_lists.c - wires of `int4_bf16` as k_window_scaled.h reads them: by column, for all ranks.  A codec's lists are by
 * place, one for each rank, site and slice. */
#include "backend.h"
#include "k_window.h"

#include <string.h>

#define MARKED                                                                                     \
    (1u << 24) /* outliers of a row, at most: their number is beside the bits of a mark */

static int is_below(const uint32_t *list, uint64_t n, uint64_t cols)
{
    for (uint64_t i = 0; i < n; i++)
        if (list[i] >= cols)
            return 0;
    return 1;
}

/* Is w a wire of `cols` columns with codes of these bits, and with the same outliers as `as`? */
static int is_scaled(const struct tsr_codec_wire *w, uint64_t cols, uint32_t bits,
                     const struct tsr_codec_wire *as)
{
    const uint64_t places = cols - w->kept;
    return w->kind == TSR_WIRE_SCALED && w->cols == cols && w->bits == bits && w->kept <= cols &&
           (!w->kept || w->feature) && (!places || (w->place && w->inv && w->scale)) &&
           is_below(w->feature, w->kept, cols) && is_below(w->place, places, cols) &&
           w->kept == as->kept &&
           (!w->kept || memcmp(w->feature, as->feature, w->kept * sizeof *w->feature) == 0);
}

static uint32_t slices_of(const struct tsr_window_codes *c, uint32_t ranks)
{
    return c->border ? ranks : 1;
}

/* Columns of slice i. */
static uint64_t first_of(const struct tsr_window_codes *c, uint32_t i)
{
    return c->border ? c->border[i] : 0;
}
static uint64_t end_of(const struct tsr_window_codes *c, uint32_t i)
{
    return c->border ? c->border[i + 1] : c->cols;
}

/* A wire of the slice's numbers; all ranks have the same outliers. */
static const struct tsr_codec_wire *wire_of(const struct tsr_window_codes *c, uint32_t ranks,
                                            uint32_t i)
{
    return &c->first[i * ranks + (c->border && i == 0)];
}

/* Outliers of a slice in a half: there is room for those of the numbers and for those of their sum. */
static uint64_t outliers_of(const struct tsr_window_codes *c, uint32_t ranks, uint32_t i)
{
    const uint64_t n = wire_of(c, ranks, i)->kept, sum = c->border ? c->second[i].kept : 0;
    return n > sum ? n : sum;
}

int tsr_cuda_scaled_outline(const struct tsr_window_codes *c, struct k_window *a)
{
    const uint32_t ranks = a->ranks, slices = slices_of(c, ranks);
    uint32_t       bits = 0;
    uint64_t       outliers = 0;
    if (ranks < 2 || (c->border && !c->second))
        return 0;
    for (uint32_t i = 0; i < slices; i++) {
        const uint64_t               cols = end_of(c, i) - first_of(c, i);
        const struct tsr_codec_wire *as = wire_of(c, ranks, i);
        if (cols == 0)
            continue;
        bits = bits ? bits : as->bits;
        for (uint32_t r = 0; r < ranks; r++)
            if (!(c->border && r == i) && !is_scaled(&c->first[i * ranks + r], cols, bits, as))
                return 0;
        if (c->border && !is_scaled(&c->second[i], cols, bits, &c->second[i]))
            return 0;
        outliers += outliers_of(c, ranks, i);
    }
    if (bits < 2 || bits > 8 || outliers >= MARKED)
        return 0;
    a->lanes = 1;
    a->words = bits > 4 ? 2 : 1;
    a->scaled.most = (1 << (bits - 1)) - 1;
    a->scaled.outliers = (uint32_t)outliers;
    return 1;
}

/* Marks lie on 16 bytes, as factors do. */
static uint64_t marks_words(const struct k_window *a)
{
    return ((uint64_t)a->runs + 3) / 4 * 4;
}

uint64_t tsr_cuda_scaled_words(const struct k_window *a)
{
    const uint64_t steps = a->slices ? 2 : 1, factors = (uint64_t)8 * a->runs;
    return steps * (marks_words(a) + factors) + (a->ranks + steps - 1) * factors;
}

static void put_marks(const struct tsr_codec_wire *w, uint64_t first, uint64_t outlier,
                      uint32_t *marks)
{
    const uint64_t end = first + w->cols;
    for (uint64_t run = first / 8; run < (end + 7) / 8; run++)
        marks[run] = 0;
    for (uint64_t i = 0; i < w->kept; i++)
        marks[(first + w->feature[i]) / 8] |= 1u << (first + w->feature[i]) % 8;
    for (uint64_t run = first / 8; run < (end + 7) / 8; run++) {
        const uint32_t bits = marks[run];
        marks[run] = bits | (uint32_t)outlier << 8;
        outlier += (uint64_t)__builtin_popcount(bits);
    }
}

static void put_factors(const struct tsr_codec_wire *w, const float *from, uint64_t first,
                        uint32_t *to)
{
    for (uint64_t i = 0; i < w->cols - w->kept; i++)
        memcpy(&to[first + w->place[i]], &from[i], sizeof *to);
}

void tsr_cuda_scaled_lists(const struct tsr_window_codes *c, uint64_t address, uint32_t *list,
                           struct k_window *a)
{
    struct k_window_scaled *s = &a->scaled;
    const uint64_t          factors = (uint64_t)8 * a->runs, marks = marks_words(a);
    uint64_t                at = 0, outlier = 0;
    uint64_t *const         places[] = {
                &s->marks, &s->inv, &s->scale, &s->sums, &s->inv_sum, &s->scale_sum
    };
    const uint64_t words[] = { marks, factors, a->ranks * factors, marks, factors, factors };
    uint32_t      *to[6] = { 0 };
    memset(list, 0, 4 * tsr_cuda_scaled_words(a));
    for (int i = 0; i < (c->border ? 6 : 3); i++) {
        *places[i] = address + 4 * at;
        to[i] = list + at;
        at += words[i];
    }
    for (uint32_t i = 0; i < slices_of(c, a->ranks); i++) {
        const uint64_t first = first_of(c, i);
        if (end_of(c, i) == first)
            continue;
        put_marks(wire_of(c, a->ranks, i), first, outlier, to[0]);
        for (uint32_t r = 0; r < a->ranks; r++) {
            const struct tsr_codec_wire *w = &c->first[i * a->ranks + r];
            if (c->border && r == i)
                continue;
            put_factors(w, w->scale, first, to[2] + r * factors);
            if (r == a->rank)
                put_factors(w, w->inv, first, to[1]);
        }
        if (c->border) {
            put_marks(&c->second[i], first, outlier, to[3]);
            put_factors(&c->second[i], c->second[i].scale, first, to[5]);
            if (i == a->rank)
                put_factors(&c->second[i], c->second[i].inv, first, to[4]);
        }
        outlier += outliers_of(c, a->ranks, i);
    }
}
