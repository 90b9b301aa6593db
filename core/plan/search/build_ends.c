/* What the first and the last stage hold beyond the others: embedding, head, and their workspace. */
#include "plan/search/build_internal.h"

#include "base/mem.h"

#define NEW(b, v, n)                                                                               \
    if (!((v) = tsr_plan_build_alloc(b, n, sizeof *(v))))                                          \
    return tsr_fail_nomem(err, n, "a planning problem")

struct end_work { /* of one kind under one option */
    uint64_t mid, first, last, both;
    uint64_t lead_first, lead_last, lead_both; /* rank 0's of them, beyond another's */
};

static tsr_status workspaces(const struct tsr_plan_built *b, uint64_t k,
                             const struct tsr_solver_option *o, struct end_work *w,
                             struct tsr_err *err)
{
    const struct tsr_plan_problem   *p = b->p;
    const struct tsr_plan_mesh      *m = &b->meshes.kinds[k].mesh;
    const struct tsr_plan_memory_job job = tsr_plan_built_memory(b, NULL);
    uint64_t                         more;
    bool head = p->memory.place == TSR_PLAN_HEAD_FIRST; /* is the first stage's */
    TSR_TRY(tsr_plan_memory_workspace(&job, m, &p->candidates, o->prefill_mb, o->decode_mb, false,
                                      false, &w->mid, NULL, err));
    TSR_TRY(tsr_plan_memory_workspace(&job, m, &p->candidates, o->prefill_mb, o->decode_mb, true,
                                      head, &w->first, &w->lead_first, err));
    TSR_TRY(tsr_plan_memory_workspace(&job, m, &p->candidates, o->prefill_mb, o->decode_mb, false,
                                      !head, &w->last, &w->lead_last, err));
    TSR_TRY(tsr_plan_memory_workspace(&job, m, &p->candidates, o->prefill_mb, o->decode_mb, true,
                                      true, &w->both, &w->lead_both, err));
    TSR_TRY(tsr_plan_build_compensation_work(b, k, o->prefill_mb, &more, err));
    w->mid += more;
    w->first += more;
    w->last += more;
    w->both += more;
    return TSR_OK;
}

static uint64_t above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The matrices of the ends on one kind. */
struct end_bytes {
    uint64_t embed, head, both;
};

/* What rank 0 has alone on one kind; as the first stage, the last, and the only one. */
static tsr_status uneven(const struct tsr_plan_built *b, uint64_t k, const struct end_bytes *of,
                         const struct end_work *w, uint64_t u[3], struct tsr_err *err)
{
    const struct tsr_plan_mesh *m = &b->meshes.kinds[k].mesh;
    if (!tsr_plan_memory_uneven(&b->p->memory, m, of->embed, w->lead_first, &u[0]) ||
        !tsr_plan_memory_uneven(&b->p->memory, m, of->head, w->lead_last, &u[1]) ||
        !tsr_plan_memory_uneven(&b->p->memory, m, of->both, w->lead_both, &u[2]))
        return tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
    return TSR_OK;
}

/* What all kinds have uneven is the ends', the rest is each kind's own. */
static tsr_status end_of(struct tsr_plan_built *b, uint64_t option, const struct end_bytes *of,
                         struct tsr_plan_build_ends *e, struct tsr_err *err)
{
    const struct tsr_solver_option *o = b->whole.options[option];
    uint64_t                        embed = 0, head = 0, more_first = 0, more_last = 0;
    uint64_t                        first_of_all = UINT64_MAX, last_of_all = UINT64_MAX, u[3];
    struct end_work                 w;
    for (uint64_t k = 0; k < b->whole.n_kinds; k++) {
        TSR_TRY(workspaces(b, k, o, &w, err));
        TSR_TRY(uneven(b, k, &of[k], &w, u, err));
        ((uint64_t *)(uintptr_t)o->workspace_bytes)[k] = w.mid;
        uint64_t first = above(w.first, w.mid);
        more_first = larger(more_first, first);
        more_last = larger(more_last, above(w.last, w.mid));
        more_last = larger(more_last, above(w.both, w.mid + first));
        embed = larger(embed, of[k].embed);
        head = larger(head, of[k].head);
        first_of_all = u[0] < first_of_all ? u[0] : first_of_all;
        last_of_all = u[1] < last_of_all ? u[1] : last_of_all;
    }
    for (uint64_t k = 0; k < b->whole.n_kinds; k++) {
        TSR_TRY(workspaces(b, k, o, &w, err));
        TSR_TRY(uneven(b, k, &of[k], &w, u, err));
        uint64_t alone = above(u[2], first_of_all + last_of_all);
        b->lost_alone[k] = larger(b->lost_alone[k], alone);
        b->lost[k] = larger(b->lost[k], larger(above(u[0], first_of_all), alone));
        b->lost[k] = larger(b->lost[k], above(u[1], last_of_all));
    }
    if (!tsr_add(embed, more_first, &e->embed) || !tsr_add(e->embed, first_of_all, &e->embed) ||
        !tsr_add(head, more_last, &e->head) || !tsr_add(e->head, last_of_all, &e->head))
        return tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
    return TSR_OK;
}

tsr_status tsr_plan_build_ends(struct tsr_plan_built *b, struct tsr_plan_build_ends **ends,
                               uint64_t *shared, struct tsr_err *err)
{
    uint64_t          n = b->whole.n_kinds, both = UINT64_MAX;
    struct end_bytes *of;
    NEW(b, of, n);
    NEW(b, b->lost, n);
    NEW(b, b->lost_alone, n);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t s;
        TSR_TRY(tsr_plan_memory_ends(&b->p->memory, &b->meshes.kinds[k].mesh, &of[k].embed,
                                     &of[k].head, &s, err));
        of[k].both = of[k].embed + above(of[k].head, s);
        if (b->p->memory.place == TSR_PLAN_HEAD_FIRST) {
            of[k].embed = of[k].both;
            of[k].head = s = 0;
        }
        both = s < both ? s : both;
    }
    *shared = both == UINT64_MAX ? 0 : both;
    NEW(b, *ends, b->whole.n_options);
    for (uint64_t i = 0; i < b->whole.n_options; i++)
        TSR_TRY(end_of(b, i, of, &(*ends)[i], err));
    return TSR_OK;
}
