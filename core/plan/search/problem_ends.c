/* Embedding and head under a scheme: a choice for both, next to the settings of settings.h. */
#include "plan/search/problem_internal.h"

#include <math.h>

double tsr_plan_problem_end_loss(const struct tsr_plan_problem *p, uint64_t i)
{
    const struct tsr_plan_candidate      *c = &p->ends.v[i];
    const struct tsr_plan_quality_choice *q;
    if (!c->q.self)
        return 0;
    q = p->quality.kl.on ? tsr_plan_quality_end(&p->quality, c) : NULL;
    return q ? q->kl : (double)NAN;
}

/* The widest first, since it is preferred; of equal ones the first of the list. */
static void sort(struct tsr_plan_candidates *c)
{
    for (uint64_t i = 1; i < c->n; i++)
        for (uint64_t k = i; k > 0; k--) {
            struct tsr_plan_candidate *a = &c->v[k - 1], *b = &c->v[k], was = *a;
            if (!(b->q.self ? a->q.self && b->bits > a->bits : a->q.self != NULL))
                break;
            *a = *b;
            *b = was;
        }
}

/* Packs it both matrices? */
static tsr_status check_packs(const struct tsr_plan_problem *p, const struct tsr_plan_candidate *c,
                              struct tsr_err *err)
{
    const struct tsr_plan_shape_matrix *m[] = { &p->shape->embed, &p->shape->head };
    for (int i = 0; i < 2; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_format f;
        uint64_t          bytes;
        tsr_status        st = tsr_plan_candidate_matrix(c, m[i], &f, &bytes, &e.err);
        if (st != TSR_OK)
            return tsr_fail(err, st == TSR_E_UNSUPPORTED ? TSR_E_INPUT : st,
                            "ends: %s of the %s: %s", c->name, i ? "head" : "embedding", e.text);
    }
    return TSR_OK;
}

tsr_status tsr_plan_problem_ends_list(struct tsr_plan_problem *p, struct tsr_err *err)
{
    bool packs = false;
    TSR_TRY(tsr_plan_candidates_open(&p->ends, p->registry, p->shape, p->o.ends, p->o.n_ends, err));
    sort(&p->ends);
    for (uint64_t i = 0; i < p->ends.n; i++)
        packs = packs || p->ends.v[i].q.self;
    if (packs && *p->shape->packed)
        return tsr_fail(err, TSR_E_INPUT,
                        "ends: the weights of %s are packed already (%s); leave 'ends' out",
                        p->shape->name, p->shape->packed);
    if (packs && p->o.accounting == TSR_PLAN_ACCOUNT_PAPER)
        return tsr_fail(err, TSR_E_INPUT,
                        "ends: accounting: paper counts them as they are; use accounting: exact");
    for (uint64_t i = 0; i < p->ends.n; i++)
        if (p->ends.v[i].q.self)
            TSR_TRY(check_packs(p, &p->ends.v[i], err));
    return TSR_OK;
}

tsr_status tsr_plan_problem_ends_open(struct tsr_plan_problem *p, struct tsr_err *err)
{
    if (!p->o.n_ends)
        return TSR_OK;
    TSR_TRY(tsr_plan_problem_ends_list(p, err));
    for (uint64_t i = 0; i < p->ends.n; i++) {
        if (!p->ends.v[i].q.self || isfinite(tsr_plan_problem_end_loss(p, i)) ||
            (p->o.n_ends == 1 && !p->quality.kl.on))
            continue; /* a single choice is the user's, whatever it loses */
        if (p->quality.kl.on)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: it has no KL of embedding and head by '%s' (%s%s%.60s); measure "
                            "it too (tessera "
                            "indicators --measure kl)",
                            p->o.indicators, p->ends.v[i].name, p->ends.v[i].scheme,
                            *p->ends.v[i].options ? ":" : "", p->ends.v[i].options);
        return tsr_fail(err, TSR_E_INPUT,
                        "ends: what embedding and head lose by '%s' is not known without "
                        "indicators by KL; give quality: "
                        "{indicators: FILE} of tessera indicators --measure kl",
                        p->ends.v[i].name);
    }
    tsr_plan_problem_put_end(p, 0);
    return TSR_OK;
}

void tsr_plan_problem_put_end(struct tsr_plan_problem *p, uint64_t i)
{
    p->end = i;
    if (i >= p->ends.n)
        return;
    const struct tsr_plan_candidate *c = p->ends.v[i].q.self ? &p->ends.v[i] : NULL;
    double                           cost = tsr_plan_problem_end_loss(p, i);
    p->memory.head = p->memory.embed = p->latency.embed = c;
    p->ends_omega = isfinite(cost) ? cost : 0;
}
