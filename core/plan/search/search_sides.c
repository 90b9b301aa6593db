/* Which devices plans begin and end on.
 *
 *   all -> sets of sides, whose bytes differ -> nodes of the first stage, where it has the head and the way back matters
 *
 * An instance counts bytes by the largest numbers of all devices, so that a plan which fits may not be in it; others have
 * the numbers of some sides.  With the head on the first stage an instance has the fastest way back to any; where its best
 * plan takes longer by the way that it has, others have the plans of one node, without the options that the first one ruled out.
 */
#include "plan/search/search_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define MOST_SIDES        4u  /* of devices, of which all sets are searched */
#define MOST_SIDES_AT_ALL 16u /* of more, the others lead no plan by themselves */
#define MOST_NODES        16u /* of first stages; of more, the others are searched at once */

/* ---- nodes ------------------------------------------------------------------------- */

/* Whether no plan of several stages can be better than the best that is known. */
static bool is_closed(const struct tsr_searching *z, const struct tsr_search_nearest *w)
{
    double best = z->a->objective;
    if (w->least >= fmin(z->cutoff, best))
        return true;
    return z->a->solution && best - w->least <= z->p->o.gap * fabs(best);
}

/* Groups whose kinds begin plans on node i of n. */
static void begin_on(const struct tsr_plan_built *b, const uint64_t *node, uint64_t n, uint64_t i,
                     bool *firsts)
{
    const struct tsr_plan_meshes *m = &b->meshes;
    for (uint64_t g = 0; g < m->n_groups; g++) {
        uint64_t h = 0, k = 0;
        while (m->pool_of[h] != m->pool_of[g])
            h++;
        while (k < n && node[k] != b->p->cluster->groups[h].node)
            k++;
        firsts[g] = k < n && (k == i || (i + 1 == MOST_NODES && k > i));
    }
}

static tsr_status solve_nodes(struct tsr_searching *z, const struct tsr_plan_space *space,
                              struct tsr_plan_built *b, struct tsr_search_nearest *w,
                              const uint64_t *node, uint64_t n, bool *firsts, struct tsr_err *err)
{
    struct tsr_plan_space one = *space;
    one.firsts = firsts;
    one.nearest = false;
    if (n >
        MOST_NODES) /* the ways of those that are searched at once are the slowest ones, in every sum */
        z->a->over = INFINITY;
    for (uint64_t i = 0; i < n && i < MOST_NODES && !(z->p->any && z->a->solution); i++) {
        struct tsr_plan_built *side;
        begin_on(b, node, n, i, firsts);
        TSR_TRY(tsr_plan_build(&side, z->p, &one, err));
        z->a->over = fmax(z->a->over, tsr_plan_built_over(side));
        tsr_status st = tsr_search_parts(z, side, b->even ? w : NULL, err);
        if (z->a->built != side)
            tsr_plan_built_destroy(side);
        TSR_TRY(st);
    }
    return TSR_OK;
}

/* By the fastest ways first; where that does not tell, by those to single nodes. */
static tsr_status solve_nearest(struct tsr_searching *z, const struct tsr_plan_space *space,
                                struct tsr_plan_built *b, const uint64_t *node, uint64_t n,
                                struct tsr_err *err)
{
    uint64_t                  groups = b->meshes.n_groups;
    struct tsr_search_nearest w = { .of = tsr_new(b->whole.n_options, sizeof *w.of),
                                    .bound = INFINITY,
                                    .least = INFINITY };
    bool                     *firsts = tsr_new(groups, sizeof *firsts);
    tsr_status                st = w.of && firsts
                                       ? TSR_OK
                                       : tsr_fail_nomem(err, groups * sizeof *firsts, "the nodes of a problem");
    for (uint64_t i = 0; i < b->whole.n_options && st == TSR_OK; i++)
        w.of[i] = -INFINITY;
    if (st == TSR_OK)
        st = tsr_search_parts(z, b, &w, err);
    if (st == TSR_OK && ((b->even && is_closed(z, &w)) || z->p->again))
        z->a->bound = fmin(z->a->bound, w.bound);
    else if (st == TSR_OK)
        st = solve_nodes(z, space, b, &w, node, n, firsts, err);
    free(firsts);
    free(w.of);
    return st;
}

tsr_status tsr_search_set(struct tsr_searching *z, const struct tsr_plan_space *space,
                          struct tsr_plan_built *b, struct tsr_err *err)
{
    uint64_t  all = 0, n = 0;
    uint64_t *node = tsr_new(b->meshes.n_kinds, sizeof *node);
    if (!node)
        return tsr_fail_nomem(err, b->meshes.n_kinds * sizeof *node, "the nodes of a problem");
    /* of all rounds a bound is all that is wanted */
    if (b->nearest && !z->p->whole && b->meshes.total > 1)
        n = tsr_plan_built_nodes(b, node, &all);
    tsr_status st =
        all > 1 ? solve_nearest(z, space, b, node, n, err) : tsr_search_parts(z, b, NULL, err);
    free(node);
    return st;
}

/* ---- sides ------------------------------------------------------------------------- */

static tsr_status solve_side(struct tsr_searching *z, const struct tsr_plan_space *space,
                             struct tsr_err *err)
{
    struct tsr_plan_built *b;
    TSR_TRY(tsr_plan_build(&b, z->p, space, err));
    z->set = b;
    z->a->over = fmax(z->a->over, tsr_plan_built_over(b));
    tsr_status st = tsr_plan_built_covers(z->base, b) ? TSR_OK : tsr_search_set(z, space, b, err);
    z->set = NULL;
    if (z->a->built != b)
        tsr_plan_built_destroy(b);
    return st;
}

tsr_status tsr_search_sides(struct tsr_searching *z, const struct tsr_plan_space *space,
                            struct tsr_err *err)
{
    struct tsr_plan_space one = *space;
    uint64_t              groups = z->p->cluster->n_groups, sides = 0;
    bool                 *leads = tsr_new(groups, sizeof *leads);
    uint64_t             *side = tsr_new(groups, sizeof *side);
    tsr_status            st = leads && side
                                   ? TSR_OK
                                   : tsr_fail_nomem(err, groups * sizeof *side, "the sides of a problem");
    if (st == TSR_OK)
        sides = tsr_plan_build_sides(z->p, side);
    uint64_t n = sides < MOST_SIDES_AT_ALL ? sides : MOST_SIDES_AT_ALL;
    uint64_t all = (UINT64_C(1) << n) - 1;
    one.leads = leads;
    /* each alone; of up to four sides all sets, of more also all but one */
    for (uint64_t some = 1; some < all && st == TSR_OK; some++) {
        uint64_t rest = all - some;
        bool     single = !(some & (some - 1)), but_one = !(rest & (rest - 1));
        if (!single && n > MOST_SIDES && !but_one)
            continue;
        for (uint64_t g = 0; g < groups; g++)
            leads[g] = side[g] < n && (some >> side[g] & 1);
        st = solve_side(z, &one, err);
    }
    free(side);
    free(leads);
    return st;
}
