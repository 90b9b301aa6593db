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

/* The matrices of the ends on one kind, with a draft model where it is there and not counted beside all stages. */
struct end_bytes {
    uint64_t embed, head, both;
    uint64_t alone; /* of the only stage, a draft model there included */
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

/* What a mesh needs more than as a stage between others, as the first one and as the last one; where it may be both, that is
 * their sum. */
struct end_needs {
    uint64_t first, last;
};

static tsr_status needs_of(const struct tsr_plan_built *b, uint64_t k,
                           const struct tsr_solver_option *o, const struct end_bytes *of,
                           struct end_needs *n, struct tsr_err *err)
{
    struct end_work w;
    uint64_t        u[3], both;
    TSR_TRY(workspaces(b, k, o, &w, err));
    TSR_TRY(uneven(b, k, of, &w, u, err));
    ((uint64_t *)(uintptr_t)o->workspace_bytes)[k] = w.mid;
    if (!tsr_add(of->embed, above(w.first, w.mid), &n->first) ||
        !tsr_add(n->first, u[0], &n->first) || !tsr_add(of->head, above(w.last, w.mid), &n->last) ||
        !tsr_add(n->last, u[1], &n->last) || !tsr_add(of->embed, of->head, &both) ||
        !tsr_add(both, above(w.both, w.mid), &both) || !tsr_add(both, u[2], &both))
        return tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
    if (b->meshes.kinds[k].role == TSR_PLAN_ANY_STAGE && !b->kinds[k].no_first)
        n->last = larger(n->last, above(both, n->first));
    return TSR_OK;
}

/* A plan of one stage has its own numbers. */
static tsr_status end_alone(const struct tsr_plan_built *b, uint64_t k, uint64_t option,
                            const struct end_bytes *of, const struct end_work *w,
                            struct tsr_err *err)
{
    uint64_t *ends = &b->alone_ends[option][k], uneven;
    b->alone_work[option][k] = w->mid;
    return tsr_plan_memory_uneven(&b->p->memory, &b->meshes.kinds[k].mesh, of->alone, w->lead_both,
                                  &uneven) &&
                   tsr_add(of->alone, above(w->both, w->mid), ends) && tsr_add(*ends, uneven, ends)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
}

/* With roles: of each pool what its least kind needs, of these the largest, is the ends'; the rest counts as workspace of
 * the kinds that have that role. */
static tsr_status end_of_roles(struct tsr_plan_built *b, uint64_t option,
                               const struct end_bytes *of, struct tsr_plan_build_ends *e,
                               struct tsr_err *err)
{
    const struct tsr_plan_mesh_kind *kind = b->meshes.kinds;
    uint64_t                         n = b->whole.n_kinds, same = UINT64_MAX;
    uint64_t         *work = (uint64_t *)(uintptr_t)b->whole.options[option]->workspace_bytes;
    struct end_needs *needs;
    NEW(b, needs, n);
    for (uint64_t k = 0, next; k < n; k = next) {
        uint64_t first = UINT64_MAX, last = UINT64_MAX;
        for (next = k; next < n && kind[next].pool == kind[k].pool; next++) {
            TSR_TRY(needs_of(b, next, b->whole.options[option], &of[next], &needs[next], err));
            if (b->kinds[next].no_first)
                needs[next].first = 0;
            else
                first = needs[next].first < first ? needs[next].first : first;
            if (b->kinds[next].no_last)
                needs[next].last = 0;
            else
                last = needs[next].last < last ? needs[next].last : last;
        }
        if (first != UINT64_MAX) {
            b->even = b->even && (same == UINT64_MAX || same == first);
            same = first;
        }
        e->embed = larger(e->embed, first == UINT64_MAX ? 0 : first);
        e->head = larger(e->head, last == UINT64_MAX ? 0 : last);
    }
    for (uint64_t k = 0; k < n; k++) {
        struct end_work w;
        uint64_t        u[3];
        TSR_TRY(workspaces(b, k, b->whole.options[option], &w, err));
        TSR_TRY(uneven(b, k, &of[k], &w, u, err));
        TSR_TRY(end_alone(b, k, option, &of[k], &w, err));
        uint64_t more_first = above(needs[k].first, e->embed);
        uint64_t more_last = above(needs[k].last, e->head);
        uint64_t more = kind[k].role == TSR_PLAN_FIRST_STAGE  ? more_first
                        : kind[k].role == TSR_PLAN_LAST_STAGE ? more_last
                        : kind[k].role == TSR_PLAN_ANY_STAGE  ? more_first + more_last
                                                              : 0;
        b->even = b->even && (kind[k].role != TSR_PLAN_ANY_STAGE || !more_first);
        if (!tsr_add(w.mid, more, &work[k]))
            return tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
    }
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
        if (!b->kinds[k].no_first) {
            b->even =
                b->even && (first_of_all == UINT64_MAX ||
                            (first == more_first && of[k].embed == embed && u[0] == first_of_all));
            more_first = larger(more_first, first);
            embed = larger(embed, of[k].embed);
            first_of_all = u[0] < first_of_all ? u[0] : first_of_all;
        }
        if (b->kinds[k].no_last)
            continue;
        more_last = larger(more_last, above(w.last, w.mid));
        if (!b->kinds[k].no_first)
            more_last = larger(more_last, above(w.both, w.mid + first));
        head = larger(head, of[k].head);
        last_of_all = u[1] < last_of_all ? u[1] : last_of_all;
    }
    for (uint64_t k = 0; k < b->whole.n_kinds; k++) {
        TSR_TRY(workspaces(b, k, o, &w, err));
        TSR_TRY(uneven(b, k, &of[k], &w, u, err));
        TSR_TRY(end_alone(b, k, option, &of[k], &w, err));
        bool     no_first = b->kinds[k].no_first, no_last = b->kinds[k].no_last;
        uint64_t alone = above(u[2], first_of_all + last_of_all);
        b->lost[k] = larger(b->lost[k], no_first ? 0 : above(u[0], first_of_all));
        b->lost[k] = larger(b->lost[k], no_first || no_last ? 0 : alone);
        b->lost[k] = larger(b->lost[k], no_last ? 0 : above(u[1], last_of_all));
    }
    if (!tsr_add(embed, more_first, &e->embed) || !tsr_add(e->embed, first_of_all, &e->embed) ||
        !tsr_add(head, more_last, &e->head) || !tsr_add(e->head, last_of_all, &e->head))
        return tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
    return TSR_OK;
}

/* Whether a device of the kind may be in a node whose other kind of device has the first stage. */
static bool may_be_beside(const struct tsr_plan_built *b, uint64_t k)
{
    const struct tsr_plan_problem *p = b->p;
    for (uint64_t g = 0; g < b->meshes.n_groups; g++)
        for (uint64_t h = 0; h < b->meshes.n_groups; h++) {
            struct tsr_plan_mesh one, first;
            if (b->meshes.pool_of[g] != b->meshes.kinds[k].pool || (b->leads && !b->leads[h]) ||
                (b->firsts && !b->firsts[h]) || !tsr_plan_problem_devices(p, h))
                continue;
            tsr_plan_mesh_of(p->cluster, g, 1, &one);
            tsr_plan_mesh_of(p->cluster, h, 1, &first);
            if (tsr_plan_mesh_beside(&one, &first))
                return true;
        }
    return false;
}

/* A draft model that is elsewhere in the node: on devices that may be in a node of the first stage, wherever that is, in
 * place of what they have of it as the first stage. Where the CPU has no room for it, the kind cannot be the first stage. */
static tsr_status draft_beside(struct tsr_plan_built *b, uint64_t k, uint64_t *bytes,
                               struct end_bytes *of, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    struct tsr_plan_mesh           m = b->meshes.kinds[k].mesh;
    struct tsr_plan_stage_memory   draft;
    uint64_t                       host, lack;
    m.mixed = may_be_beside(b, k);
    TSR_TRY(tsr_plan_memory_draft_beside(&p->memory, &m, bytes, err));
    if (*bytes) {
        TSR_TRY(tsr_plan_memory_draft(&p->memory, &m, &draft, err));
        of->embed -= draft.total;
        of->alone = draft.total;
    }
    TSR_TRY(tsr_plan_memory_host_left(&p->memory, &m, &host, &lack, err));
    b->lost_alone[k] = lack ? b->kinds[k].alone_capacity : 0;
    if (lack && !b->kinds[k].no_first &&
        !tsr_add(of->embed, b->kinds[k].capacity, &of->embed)) /* nor can another kind */
        return tsr_fail(err, TSR_E_INPUT, "the ends take more bytes than can be counted");
    return TSR_OK;
}

tsr_status tsr_plan_build_ends(struct tsr_plan_built *b, struct tsr_plan_build_ends **ends,
                               uint64_t *shared, struct tsr_err *err)
{
    uint64_t          n = b->whole.n_kinds, both = UINT64_MAX;
    struct end_bytes *of;
    uint64_t         *beside;
    NEW(b, of, n);
    NEW(b, beside, n);
    NEW(b, b->lost, n);
    NEW(b, b->lost_alone, n);
    b->even = true;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t s;
        TSR_TRY(tsr_plan_memory_ends(&b->p->memory, &b->meshes.kinds[k].mesh, &of[k].embed,
                                     &of[k].head, &s, err));
        TSR_TRY(draft_beside(b, k, &beside[k], &of[k], err));
        of[k].both = of[k].embed + above(of[k].head, s);
        of[k].alone += of[k].both;
        if (b->p->memory.place == TSR_PLAN_HEAD_FIRST) {
            of[k].embed = of[k].both;
            of[k].head = s = 0;
        }
        both = s < both ? s : both;
    }
    *shared = both == UINT64_MAX ? 0 : both;
    NEW(b, *ends, b->whole.n_options);
    for (uint64_t i = 0; i < b->whole.n_options; i++) {
        NEW(b, b->alone_work[i], n);
        NEW(b, b->alone_ends[i], n);
        TSR_TRY(b->meshes.roles ? end_of_roles(b, i, of, &(*ends)[i], err)
                                : end_of(b, i, of, &(*ends)[i], err));
    }
    for (uint64_t k = 0; k < n; k++) {
        b->lost[k] += beside[k];
        b->even = b->even && !beside[k];
    }
    return TSR_OK;
}
