/* candidates.c - the best tokens of rows of logits on the device, beside a sort of the whole row; the sum beside one in
 * double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "tessera/backend_candidates.h"

#define PICK(list) (list)[pair_draw(p, sizeof(list) / sizeof(list)[0])]

static int by_logit(const void *x, const void *y)
{
    const struct tsr_candidate *a = x, *b = y;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

struct rows {
    uint64_t                  rows, vocab;
    uint32_t                  most;
    float                    *x; /* [rows][vocab] */
    struct tsr_candidate     *want, *got;
    float                     inverse[64];
    struct tsr_candidate_row *row;
};

/* A few values that come often, zeros of both signs, and now and then a row with a number that is not finite. */
static void fill(struct pair *p, struct rows *r)
{
    static const float some[] = { 0.0f, -0.0f, 1.0f, 1.0f, -2.5f, 1e-40f, -1e-40f, 3.25f };
    const uint64_t     common = 1 + pair_draw(p, 9);
    for (uint64_t i = 0; i < r->rows * r->vocab; i++)
        r->x[i] = pair_draw(p, common) ? PICK(some) : 4.0f * pair_number(p);
    for (uint64_t i = 0; i < r->rows; i++) {
        static const float temperature[] = { 0.1f, 0.7f, 1.0f, 2.0f };
        r->inverse[i] = pair_draw(p, 3) ? 1.0f / PICK(temperature) : 0.0f;
        if (pair_draw(p, 12) == 0)
            r->x[i * r->vocab + pair_draw(p, r->vocab)] = pair_draw(p, 2) ? NAN : -INFINITY;
    }
}

static uint32_t not_finite(const float *x, uint64_t n)
{
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad += isfinite(x[i]) ? 0 : 1;
    return bad;
}

static bool sum_is(struct pair *p, const struct rows *r, uint64_t i, float top)
{
    double want = 0, inverse = r->inverse[i];
    for (uint64_t v = 0; v < r->vocab; v++)
        want += exp(((double)r->x[i * r->vocab + v] - top) * inverse);
    want = inverse > 0 ? want : 0;
    if (fabs(r->row[i].sum - want) <= 1e-4 * want)
        return true;
    (void)tsr_fail(&p->err.err, TSR_E_NUMERIC, "candidates: sum of row %d is %.9g, not %.9g",
                   (int)i, (double)r->row[i].sum, want);
    return false;
}

static bool row_is(struct pair *p, struct rows *r, uint64_t i)
{
    const float   *x = r->x + i * r->vocab;
    const uint32_t bad = not_finite(x, r->vocab);
    if (bad || r->row[i].not_finite) {
        if (bad == r->row[i].not_finite)
            return true;
        (void)tsr_fail(&p->err.err, TSR_E_NUMERIC, "candidates: %u not finite, not %u",
                       r->row[i].not_finite, bad);
        return false;
    }
    for (uint64_t v = 0; v < r->vocab; v++)
        r->want[v] = (struct tsr_candidate){ (uint32_t)v, x[v] };
    qsort(r->want, r->vocab, sizeof *r->want, by_logit);
    for (uint32_t k = 0; k < r->most; k++) {
        const struct tsr_candidate *g = &r->got[i * r->most + k], *w = &r->want[k];
        if (g->id == w->id && g->logit == w->logit)
            continue;
        (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                       "candidates: %d x %d, %u best: number %u of row %d is %u (%g), not %u (%g)",
                       (int)r->rows, (int)r->vocab, r->most, k, (int)i, g->id, (double)g->logit,
                       w->id, (double)w->logit);
        return false;
    }
    return sum_is(p, r, i, r->want[0].logit);
}

static bool find(struct pair *p, const struct tsr_backend_candidates_v1 *t, struct rows *r)
{
    struct pair_tensor x;
    void              *self = p->d[1].self;
    if (!pair_tensor(p, &x, TSR_F32, r->rows, r->vocab, r->x))
        return false;
    bool ok = t->reserve(self, r->rows, r->vocab, &p->err.err) == TSR_OK &&
              t->find(self, &x.t[1], r->most, r->inverse, r->got, r->row, &p->err.err) == TSR_OK;
    for (uint64_t i = 0; i < r->rows && ok; i++)
        ok = row_is(p, r, i);
    pair_tensor_free(p, &x);
    p->checked += ok;
    return ok;
}

bool pair_check_candidates(struct pair *p, uint64_t count)
{
    static const uint64_t                   vocabs[] = { 1, 5, 255, 256, 1023, 1024, 1025, 3000 };
    const struct tsr_backend_candidates_v1 *t =
        p->d[1].t->extension(p->d[1].self, TSR_BACKEND_CANDIDATES);
    bool ok = t != NULL;
    if (!ok)
        (void)tsr_fail(&p->err.err, TSR_E_UNSUPPORTED, "the device finds no candidates");
    for (uint64_t i = 0; i < count && ok; i++) {
        struct rows r = { .rows = 1 + pair_draw(p, 4), .vocab = PICK(vocabs) };
        if (i < 2) { /* more results after more memory in all */
            r.rows = i ? 4 : 1;
            r.vocab = i ? 1023 : 3000;
        }
        r.most = pair_draw(p, 3) ? 1 + (uint32_t)pair_draw(p, r.vocab < 256 ? r.vocab : 256) : 1;
        r.x = calloc(r.rows * r.vocab, sizeof *r.x);
        r.want = calloc(r.vocab, sizeof *r.want);
        r.got = calloc(r.rows * r.most, sizeof *r.got);
        r.row = calloc(r.rows, sizeof *r.row);
        ok = r.x && r.want && r.got && r.row;
        if (ok)
            fill(p, &r);
        else
            (void)tsr_fail(&p->err.err, TSR_E_NOMEM, "out of memory: rows of logits");
        ok = ok && find(p, t, &r);
        free(r.x);
        free(r.want);
        free(r.got);
        free(r.row);
    }
    return ok;
}
