/* Problems with one more candidate of fewer bits, or with embedding and head under another scheme. */
#include "base/mem.h"
#include "plan/search/problem_internal.h"
#include "plan/search/whatif.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT     260
#define FALLBACK "rtn" /* packs every linear, and needs no calibration */

/* The one with the fewest bits; NULL: all are as the model has them. */
static const struct tsr_plan_candidate *narrowest(const struct tsr_plan_candidates *c)
{
    const struct tsr_plan_candidate *best = NULL;
    for (uint64_t i = 0; i < c->n; i++)
        if (c->v[i].q.self && !c->v[i].mixed && (!best || c->v[i].bits < best->bits))
            best = &c->v[i];
    return best;
}

/* "gptq:bits=4,group=128" with other bits. */
static void with_bits(const struct tsr_plan_candidate *c, uint32_t bits, char text[TEXT])
{
    size_t at = (size_t)snprintf(text, TEXT, "%.24s:bits=%u", c->scheme, bits);
    for (const char *s = c->options; *s;) {
        size_t n = strcspn(s, ",");
        if (strncmp(s, "bits=", 5) != 0 && at + n + 2 < TEXT)
            at += (size_t)snprintf(text + at, TEXT - at, ",%.*s", (int)n, s);
        s += n + (s[n] == ',');
    }
}

/* The candidates of p and one more. TSR_E_INPUT where it is not there, or not narrower. */
static tsr_status open_with(struct tsr_plan_candidates *to, const struct tsr_plan_problem *p,
                            const char *text, uint32_t bits, struct tsr_err *err)
{
    uint64_t     n = p->o.n_candidates;
    const char **texts = tsr_new(n + 1, sizeof *texts);
    if (!texts)
        return tsr_fail_nomem(err, n * sizeof *texts, "candidates");
    memcpy(texts, p->o.candidates, n * sizeof *texts);
    texts[n] = text;
    tsr_status st = tsr_plan_candidates_open(to, p->registry, p->shape, texts, n + 1, err);
    free(texts);
    if (st == TSR_OK && to->v[n].bits != bits)
        st = tsr_fail(err, TSR_E_INPUT, "'%s' has %u bits", text, to->v[n].bits);
    if (st == TSR_OK && tsr_plan_shape_groups(p->shape) > 1)
        st = tsr_plan_candidates_groups(to, p->shape, err);
    if (st != TSR_OK)
        tsr_plan_candidates_close(to);
    return st;
}

/* The figures of all candidates; *known false: the file has none of the new one. */
static tsr_status weigh(struct tsr_plan_variant *v, const struct tsr_plan_problem *p, bool *known,
                        struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = p->quality.prior
                               ? tsr_plan_quality_prior(&v->quality, p->shape, &v->candidates, &e.err)
                               : tsr_plan_quality_load(&v->quality, p->o.indicators, p->o.table, p->shape,
                                                       &v->candidates, &e.err);
    *known = st == TSR_OK;
    if (st != TSR_OK && st != TSR_E_INPUT)
        return tsr_err_copy(err, st, &e.err);
    if (*known) {
        v->p.quality = v->quality;
        return TSR_OK;
    }
    uint64_t n;
    if (tsr_mul(p->shape->layers, v->candidates.n, &n))
        v->omega = tsr_new(n, sizeof *v->omega);
    if (!v->omega)
        return tsr_fail_nomem(err, p->shape->layers * v->candidates.n * 8, "a planning problem");
    v->p.quality.omega = v->omega;
    v->p.quality.candidates = v->candidates.n;
    v->p.quality.kl.half = NULL; /* of p's candidates */
    v->p.quality.kl.kept = NULL;
    v->p.max_omega = -1;
    return TSR_OK;
}

tsr_status tsr_plan_variant_narrower(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                     uint32_t bits, bool *known, struct tsr_err *err)
{
    const struct tsr_plan_candidate *least = narrowest(&p->candidates);
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    char                             text[TEXT];
    *v = (struct tsr_plan_variant){ 0 };
    if (*p->shape->packed || (least && least->bits <= bits))
        return tsr_fail(err, TSR_E_INPUT, "no candidate has more than %u bits", bits);
    TSR_TRY(tsr_plan_variant_make(v, p, err));
    tsr_status st = TSR_E_INPUT;
    if (least) {
        with_bits(least, bits, text);
        st = open_with(&v->candidates, p, text, bits, &e.err);
    }
    if (st == TSR_E_INPUT) {
        (void)snprintf(text, sizeof text, FALLBACK ":bits=%u", bits);
        st = open_with(&v->candidates, p, text, bits, &e.err);
    }
    if (st != TSR_OK)
        (void)tsr_err_copy(err, st, &e.err);
    v->p.candidates = v->candidates;
    if (st == TSR_OK)
        st = weigh(v, p, known, err);
    if (st != TSR_OK)
        tsr_plan_variant_free(v);
    return st;
}

tsr_status tsr_plan_variant_ends(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 const char *scheme, bool *known, struct tsr_err *err)
{
    TSR_TRY(tsr_plan_variant_make(v, p, err));
    v->p.ends = (struct tsr_plan_candidates){ 0 };
    v->p.o.ends = &scheme;
    v->p.o.n_ends = 1;
    tsr_status st = tsr_plan_problem_ends_list(&v->p, err);
    v->ends = v->p.ends;
    v->p.o.ends = NULL;
    v->p.o.n_ends = 0;
    if (st != TSR_OK) {
        tsr_plan_variant_free(v);
        return st;
    }
    *known = isfinite(tsr_plan_problem_end_loss(&v->p, 0));
    tsr_plan_problem_put_end(&v->p, 0);
    return TSR_OK;
}
