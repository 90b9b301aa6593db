/* plan/search/meshes.h - the devices of a cluster at one choice of tensor-parallel widths: meshes, and
 * which of them are identical (rulings: one width per group of a node). */
#ifndef TSR_PLAN_SEARCH_MESHES_H
#define TSR_PLAN_SEARCH_MESHES_H

#include "plan/search/problem.h"

/* Meshes that can change places without any time or size changing. */
struct tsr_plan_mesh_kind {
    struct tsr_plan_mesh mesh;     /* of its first group */
    uint64_t             group;    /* its first group */
    uint64_t             count;    /* meshes, over all its groups */
    uint64_t             n_groups; /* groups whose meshes these are */
};

struct tsr_plan_meshes {
    uint32_t                  *tp; /* [groups] width, with TSR_PLAN_WAY_*; owned, as all here */
    uint32_t                  *kind_of; /* [groups] kind of the group's meshes */
    struct tsr_plan_mesh_kind *kinds;
    uint64_t                   n_kinds, n_groups, total; /* total: meshes */
};

tsr_status tsr_plan_meshes_make(struct tsr_plan_meshes *m, const struct tsr_plan_problem *p,
                                const uint32_t *tp, struct tsr_err *err);
void       tsr_plan_meshes_free(struct tsr_plan_meshes *m);

/* Widths that a group can take, ascending, in w[TSR_PLAN_MESH_WIDTHS]; with why (may be NULL) the
 * sentence for each divisor of the count that is left out, one after the other. */
#define TSR_PLAN_MESH_WIDTHS 32
uint32_t tsr_plan_meshes_widths(const struct tsr_plan_problem *p, uint64_t group, uint32_t *w,
                                char *why, size_t cap);

/* The next choice of widths in tp[groups]; the first is the narrowest everywhere. Choices that only rename
 * identical groups come once. False past the last. */
struct tsr_plan_width_choices {
    uint32_t *w;    /* [groups][TSR_PLAN_MESH_WIDTHS] */
    uint32_t *n;    /* [groups] */
    uint32_t *at;   /* [groups] */
    uint64_t *twin; /* [groups] an identical earlier group, or itself */
    uint64_t  n_groups;
    bool      started;
};
tsr_status tsr_plan_width_choices_make(struct tsr_plan_width_choices *c,
                                       const struct tsr_plan_problem *p, struct tsr_err *err);
bool       tsr_plan_width_choices_next(struct tsr_plan_width_choices *c, uint32_t *tp);
void       tsr_plan_width_choices_free(struct tsr_plan_width_choices *c);

#endif
