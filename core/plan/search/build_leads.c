/* Which stages of a plan the devices of a kind can be: the first, the last, or only one between. */
#include "plan/search/build_internal.h"

#include <string.h>

/* Where a draft model does not fit in the memory of the node's CPU, the first stage is elsewhere. */
static tsr_status lacks(const struct tsr_plan_built *b, uint64_t kind, bool *yes,
                        struct tsr_err *err)
{
    uint64_t room, lack;
    TSR_TRY(
        tsr_plan_memory_host_left(&b->p->memory, &b->meshes.kinds[kind].mesh, &room, &lack, err));
    *yes = lack > 0;
    return TSR_OK;
}

tsr_status tsr_plan_build_leads(struct tsr_plan_built *b, struct tsr_err *err)
{
    bool some = false, lack;
    b->apart = b->meshes.roles || b->leads || b->firsts;
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++) {
        const struct tsr_plan_mesh_kind *of = &b->meshes.kinds[k];
        bool                             out = b->leads && !b->leads[of->group];
        TSR_TRY(lacks(b, k, &lack, err));
        b->kinds[k].no_first = out || (b->firsts && !b->firsts[of->group]) ||
                               (of->role != TSR_PLAN_ANY_STAGE && of->role != TSR_PLAN_FIRST_STAGE);
        b->kinds[k].no_last = /* without the head it is as any other */
            (out && b->p->memory.place != TSR_PLAN_HEAD_FIRST) ||
            (of->role != TSR_PLAN_ANY_STAGE && of->role != TSR_PLAN_LAST_STAGE);
        some = some || !(lack || b->kinds[k].no_first);
    }
    for (uint64_t k = 0; k < b->meshes.n_kinds && some; k++) { /* else build_ends.c refuses all */
        TSR_TRY(lacks(b, k, &lack, err));
        b->kinds[k].no_first = b->kinds[k].no_first || lack;
        b->apart = b->apart || lack;
    }
    return TSR_OK;
}

/* ---- spaces that begin and end on some of the devices ------------------------------ */

/* Devices of one backend, or of none, have the same bytes; but with draft models a node's two kinds of devices keep room for
 * those of each other. */
static bool same_side(const struct tsr_plan_problem *p, uint64_t g, uint64_t h)
{
    const struct tsr_plan_group *x = &p->cluster->groups[g], *y = &p->cluster->groups[h];
    const char                  *a = x->profile->backend, *b = y->profile->backend;
    struct tsr_plan_mesh         m, o;
    if (a && b ? strcmp(a, b) != 0 : a != b)
        return false;
    tsr_plan_mesh_of(p->cluster, g, 1, &m);
    tsr_plan_mesh_of(p->cluster, h, 1, &o);
    return x->node == y->node || !(p->memory.n_drafts && (m.mixed || o.mixed));
}

uint64_t tsr_plan_build_sides(const struct tsr_plan_problem *p, uint64_t *side)
{
    uint64_t n = 0;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        uint64_t h = 0;
        while (h < g && (!tsr_plan_problem_devices(p, h) || !same_side(p, g, h)))
            h++;
        side[g] = h < g ? side[h] : n;
        n += h == g && tsr_plan_problem_devices(p, g);
    }
    return p->memory.accounting == TSR_PLAN_ACCOUNT_EXACT ? n : 1;
}

/* What a plan of several stages is offered at least: memory for layers and ends, by the numbers of an instance. */
static bool offers(const struct tsr_plan_built *a, const struct tsr_plan_built *b)
{
    uint64_t q = a->whole.bits;
    for (uint64_t k = 0; k < a->whole.n_kinds; k++)
        if (a->whole.kinds[k]->capacity_bytes < b->whole.kinds[k]->capacity_bytes)
            return false;
    for (uint64_t u = 0; u < a->units; u++)
        for (uint64_t i = 0; i < q; i++)
            if (a->whole.layer_bytes[a->whole.layer_class[u] * q + i] >
                b->whole.layer_bytes[b->whole.layer_class[u] * q + i])
                return false;
    return true;
}

bool tsr_plan_built_covers(const struct tsr_plan_built *a, const struct tsr_plan_built *b)
{
    if (!offers(a, b) || (a->p->memory.place == TSR_PLAN_HEAD_FIRST &&
                          !b->even)) /* b's single nodes may have more than b */
        return false;
    for (uint64_t i = 0; i < b->n_parts; i++) { /* it has none of one stage */
        const struct tsr_solver_instance *x = &a->parts[i].inst.in, *y = &b->parts[i].inst.in;
        if (i >= a->n_parts || x->n_kinds != y->n_kinds || x->n_options != y->n_options ||
            x->embed_bytes > y->embed_bytes || x->head_bytes > y->head_bytes)
            return false;
    }
    return true;
}
