/* Backends: the rules about the best tokens of rows of logits (tessera/backend_candidates.h). */
#include "conformance/backend/backend.h"

#include "tessera/backend_candidates.h"

#include <math.h>
#include <string.h>

#define U(x)  ((unsigned long long)(x))
#define ROWS  UINT64_C(5)
#define VOCAB UINT64_C(700)

/* The table, whole; a backend need not have one. */
static const struct tsr_backend_candidates_v1 *candidates(struct tsr_conformance_device *d)
{
    const struct tsr_backend_candidates_v1 *t =
        d->t->extension ? d->t->extension(d->self, TSR_BACKEND_CANDIDATES) : NULL;
    if (!t)
        tsr_conformance_rule_skip(d->c, "the backend finds no candidates: it has no "
                                        "\"" TSR_BACKEND_CANDIDATES "\"");
    if (!TSR_HAS(struct tsr_backend_candidates_v1, t, find) || !t->reserve)
        tsr_conformance_rule_fail(d->c, "a function of the table \"" TSR_BACKEND_CANDIDATES
                                        "\" is missing");
    return t;
}

static void reserve(struct tsr_conformance_device *d, const struct tsr_backend_candidates_v1 *t)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = t->reserve(d->self, ROWS, VOCAB, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        tsr_conformance_rule_skip(d->c, "it finds none for %llu tokens: %s", U(VOCAB), e.text);
    tsr_conformance_rule_ok(d->c, st, &e, "reserve() of %llu rows of %llu logits", U(ROWS),
                            U(VOCAB));
}

/* Steps of 1/4, so that many are equal, with both zeros; of row 3 a NaN and two infinities. */
static float *logits(struct tsr_conformance_case *c)
{
    float *x = tsr_conformance_rule_memory(c, ROWS * VOCAB * sizeof *x);
    tsr_conformance_rule_normal(c, 5, x, ROWS * VOCAB);
    for (uint64_t i = 0; i < ROWS * VOCAB; i++) {
        x[i] = rintf(8 * x[i]) / 4;
        if (x[i] == 0)
            x[i] = i % 2 ? -0.0f : 0.0f;
    }
    x[3 * VOCAB + 9] = NAN;
    x[3 * VOCAB + 10] = INFINITY;
    x[3 * VOCAB + 699] = -INFINITY;
    return x;
}

static bool before(const float *x, uint32_t a, uint32_t b)
{
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* One row by insertion. */
static void best_of(const float *x, uint64_t vocab, uint32_t most, uint32_t *id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t at = n < most ? n++ : most;
        for (; at > 0 && before(x, i, id[at - 1]); at--)
            if (at < most)
                id[at] = id[at - 1];
        if (at < most)
            id[at] = i;
    }
}

static void check_row(struct tsr_conformance_case *c, uint64_t r, const float *x, uint64_t vocab,
                      uint32_t most, float inverse, const struct tsr_candidate *best,
                      const struct tsr_candidate_row *row)
{
    uint32_t want[TSR_CANDIDATES_MOST] = { 0 }, odd = 0;
    double   sum = 0;
    for (uint64_t i = 0; i < vocab; i++)
        odd += isfinite(x[i]) ? 0u : 1u;
    if (row->not_finite != odd)
        tsr_conformance_rule_fail(c, "row %llu has %u logits that are not finite, find() says %u",
                                  U(r), odd, row->not_finite);
    if (odd)
        return;
    best_of(x, vocab, most, want);
    for (uint32_t i = 0; i < most; i++)
        if (best[i].id != want[i] || best[i].logit != x[want[i]])
            tsr_conformance_rule_fail(
                c, "row %llu: candidate %u of %u is token %u with %g, wanted token %u with %g",
                U(r), i + 1, most, best[i].id, (double)best[i].logit, want[i], (double)x[want[i]]);
    for (uint64_t i = 0; inverse != 0 && i < vocab; i++)
        sum += exp(((double)x[i] - (double)x[want[0]]) * (double)inverse);
    if (!(fabs((double)row->sum - sum) <= 1e-4 * sum)) /* as the header says; 0 of 0 */
        tsr_conformance_rule_fail(c, "row %llu: the sum is %g, wanted %g within 1e-4 of it", U(r),
                                  (double)row->sum, sum);
}

void tsr_backend_rule_candidates(struct tsr_conformance_case *c)
{
    static const uint32_t         all[] = { 1, 2, 40, TSR_CANDIDATES_MOST };
    static const float            inverse[ROWS] = { 0, 1, 1.25f, 1, 0.5f };
    struct tsr_conformance_device d;
    struct tsr_conformance_grid   g;
    struct tsr_candidate          best[ROWS * TSR_CANDIDATES_MOST];
    struct tsr_candidate_row      row[ROWS];
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    const float                  *x = logits(c);
    tsr_conformance_device_make(&d, c);
    const struct tsr_backend_candidates_v1 *t = candidates(&d);
    reserve(&d, t);
    tsr_conformance_grid_make(&d, &g, TSR_F32, ROWS, VOCAB, x);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        memset(best, 0x5a, sizeof best);
        tsr_conformance_rule_ok(c, t->find(d.self, &g.t, all[k], inverse, best, row, &e.err), &e,
                                "find() of %u candidates", all[k]);
        for (uint64_t r = 0; r < ROWS; r++)
            check_row(c, r, x + r * VOCAB, VOCAB, all[k], inverse[r], best + r * all[k], &row[r]);
        if (memcmp((const void *)tsr_conformance_grid_rows(&d, &g), (const void *)x,
                   ROWS * VOCAB * sizeof *x) != 0)
            tsr_conformance_rule_fail(c, "find() changes the logits");
    }
}

/* More than was reserved. */
static void find_more(struct tsr_conformance_device *d, const struct tsr_backend_candidates_v1 *t,
                      uint64_t rows, uint64_t vocab)
{
    static const float          inverse[ROWS + 1] = { 0, 1 };
    struct tsr_conformance_grid g;
    struct tsr_candidate        best[ROWS + 1];
    struct tsr_candidate_row    row[ROWS + 1];
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    float                      *x = tsr_conformance_rule_memory(d->c, rows * vocab * sizeof *x);
    tsr_conformance_rule_normal(d->c, 6, x, rows * vocab);
    tsr_conformance_grid_make(d, &g, TSR_F32, rows, vocab, x);
    memset(best, 0x5a, sizeof best);
    memset(row, 0x5a, sizeof row);
    tsr_status st = t->find(d->self, &g.t, 1, inverse, best, row, &e.err);
    if (st == TSR_E_INVAL)
        return;
    tsr_conformance_rule_ok(d->c, st, &e, "find() of %llu rows of %llu logits", U(rows), U(vocab));
    for (uint64_t r = 0; r < rows; r++)
        check_row(d->c, r, x + r * vocab, vocab, 1, inverse[r], best + r, &row[r]);
}

void tsr_backend_rule_candidates_ranges(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    tsr_conformance_device_make(&d, c);
    const struct tsr_backend_candidates_v1 *t = candidates(&d);
    reserve(&d, t);
    find_more(&d, t, ROWS + 1, VOCAB);
    find_more(&d, t, 1, VOCAB + 1);
}
