/* Schemes that make an infeasible problem feasible: fewer bits, and packed embedding and head; alone, and with one more change. */
#include "plan/search/whatif_internal.h"

#include <math.h>
#include <string.h>

#define ENDS "rtn:bits=8"

static const uint32_t widths[] = { 8, 4, 3, 2 }; /* the widest that is enough loses least */
#define WIDTHS (sizeof widths / sizeof *widths)

static tsr_status feasible(const struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                           bool *yes, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              known;
    *yes = false;
    tsr_status st = tsr_plan_whatif_feasible(*p, solver, yes, &known, &e.err);
    if (st == TSR_E_INPUT) /* more choices than can be planned */
        return TSR_OK;
    return st == TSR_OK ? st : tsr_err_copy(err, st, &e.err);
}

static void name_of(struct tsr_plan_remedy_scheme *s, const char *name, bool known)
{
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    s->known = known;
}

/* ---- problems with a scheme, empty where there is none --------------------------------------------- */

static tsr_status with_ends(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                            struct tsr_plan_remedy_scheme *s, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              known;
    *v = (struct tsr_plan_variant){ 0 };
    *s = (struct tsr_plan_remedy_scheme){ 0 };
    if (tsr_plan_problem_packs_ends(p) || p->o.accounting == TSR_PLAN_ACCOUNT_PAPER)
        return TSR_OK;
    tsr_status st = tsr_plan_variant_ends(v, p, ENDS, &known, &e.err);
    if (st == TSR_OK)
        name_of(s, v->ends.v[0].name, known);
    return st == TSR_OK || st == TSR_E_INPUT ? TSR_OK : tsr_err_copy(err, st, &e.err);
}

static tsr_status with_bits(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                            uint32_t bits, struct tsr_plan_remedy_scheme *s, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              known;
    *v = (struct tsr_plan_variant){ 0 };
    *s = (struct tsr_plan_remedy_scheme){ 0 };
    tsr_status st = tsr_plan_variant_narrower(v, p, bits, &known, &e.err);
    if (st == TSR_OK)
        name_of(s, v->candidates.v[p->o.n_candidates].name, known);
    return st == TSR_OK || st == TSR_E_INPUT ? TSR_OK : tsr_err_copy(err, st, &e.err);
}

/* ---- alone ------------------------------------------------------------------------------ */

tsr_status tsr_plan_whatif_schemes(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                                   const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_variant       v;
    struct tsr_plan_remedy_scheme s;
    bool                          yes = false;
    TSR_TRY(with_ends(&v, p, &s, err));
    tsr_status st = *s.name ? feasible(&v.p, solver, &yes, err) : TSR_OK;
    tsr_plan_variant_free(&v);
    if (yes)
        r->ends = s;
    for (size_t i = 0; i < WIDTHS && st == TSR_OK && !*r->narrow.name; i++) {
        yes = false;
        TSR_TRY(with_bits(&v, p, widths[i], &s, err));
        /* without a figure the limit does not hold: where it alone is in the way, fewer bits are no answer */
        if (*s.name && (s.known || isnan(r->max_omega)))
            st = feasible(&v.p, solver, &yes, err);
        tsr_plan_variant_free(&v);
        if (yes)
            r->narrow = s;
    }
    return st;
}

/* ---- in pairs --------------------------------------------------------------------------- */

static bool is_pair(const struct tsr_plan_pair *p)
{
    return p->batch || p->chunk || p->kv8 || p->bytes != UINT64_MAX;
}

/* p, which has a scheme, with one of the changes that are not enough alone. */
static tsr_status second(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                         const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_pair *pair = &r->pair;
    if (!r->chunk)
        TSR_TRY(tsr_plan_whatif_chunk(p, solver, &pair->chunk, err));
    if (!r->batch && !pair->chunk)
        TSR_TRY(tsr_plan_whatif_most(p, solver, tsr_plan_whatif_put_few, NULL, p->memory.batch,
                                     &pair->batch, err));
    if (!r->kv8 && !pair->chunk && !pair->batch && tsr_plan_whatif_can_kv8(p)) {
        struct tsr_plan_problem q = *p;
        tsr_plan_whatif_put_kv8(&q);
        TSR_TRY(feasible(&q, solver, &pair->kv8, err));
    }
    if (isnan(r->max_omega) && !is_pair(pair))
        TSR_TRY(tsr_plan_whatif_relax(p, solver, false, &pair->max_omega, err));
    return TSR_OK;
}

/* p with packed ends, where these are not enough alone, and one more change. */
static tsr_status ends_and(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                           const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_variant       v;
    struct tsr_plan_remedy_scheme s;
    TSR_TRY(with_ends(&v, p, &s, err));
    tsr_status st = *s.name ? second(r, &v.p, solver, err) : TSR_OK;
    tsr_plan_variant_free(&v);
    if (is_pair(&r->pair) || !isnan(r->pair.max_omega))
        r->pair.ends = s;
    return st;
}

/* Fewer bits, and packed ends or another change. */
static tsr_status bits_and(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                           const struct tsr_plugin_spec *solver, uint32_t bits, struct tsr_err *err)
{
    struct tsr_plan_variant       v, w;
    struct tsr_plan_remedy_scheme s, ends = { 0 };
    bool                          yes = false;
    TSR_TRY(with_bits(&v, p, bits, &s, err));
    bool       asked = *s.name && (s.known || isnan(r->max_omega));
    tsr_status st = asked ? second(r, &v.p, solver, err) : TSR_OK;
    if (st == TSR_OK && asked && !*r->ends.name && !is_pair(&r->pair) && isnan(r->pair.max_omega)) {
        st = with_ends(&w, &v.p, &ends, err);
        if (st == TSR_OK && *ends.name)
            st = feasible(&w.p, solver, &yes, err);
        tsr_plan_variant_free(&w);
    }
    if (yes)
        r->pair.ends = ends;
    if (yes || is_pair(&r->pair) || !isnan(r->pair.max_omega))
        r->pair.narrow = s;
    tsr_plan_variant_free(&v);
    return st;
}

tsr_status tsr_plan_whatif_pair_schemes(struct tsr_plan_remedies      *r,
                                        const struct tsr_plan_problem *p,
                                        const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    if (is_pair(&r->pair))
        return TSR_OK;
    if (!*r->ends.name)
        TSR_TRY(ends_and(r, p, solver, err));
    for (size_t i = 0;
         i < WIDTHS && !*r->narrow.name && !*r->pair.ends.name && !*r->pair.narrow.name; i++)
        TSR_TRY(bits_and(r, p, solver, widths[i], err));
    return TSR_OK;
}
