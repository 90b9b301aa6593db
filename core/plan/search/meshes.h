/* plan/search/meshes.h - the devices of a cluster as meshes of the tensor-parallel widths that they may have, and
 * which of them are identical.
 *
 *   groups --ways of each (tsr_plan_space)--> pools of devices, and kinds of meshes that draw on them
 *
 * Groups that can change places are one pool. With one width for each group, a pool has one kind for each
 * codec of sums; with several, one for each width and codec, and a plan may have any of them next to each other. */
#ifndef TSR_PLAN_SEARCH_MESHES_H
#define TSR_PLAN_SEARCH_MESHES_H

#include "plan/search/problem.h"

/* What a build offers to a solver.  Borrowed. */
struct tsr_plan_space {
    const uint32_t *ways; /* [groups][stride] widths, ascending, with TSR_PLAN_WAY_* */
    const uint32_t *n;    /* [groups] how many of them; NULL: one each */
    uint64_t        stride;
    const bool     *leads; /* [groups] plans of several stages begin and end on these, and bytes are
                        * counted as theirs (build_bytes.c); NULL: all of them may */
    const bool
        *firsts; /* [groups] plans of several stages begin on these alone; NULL: leads decide */
    bool
        nearest; /* rows go back to a head on the first stage by the fastest way to any (build_back.c) */
    bool codecs; /* all codecs of the problem, each at its cost in omega; false: those that
                             * lose least, whose cost the limit reserves */
};

/* Which stages of a plan a kind may be.  Rank 0 of a wide mesh has the ends of the model alone, so that one number of bytes
 * would not do for all its stages; where widths may be mixed, each of these has its own capacity. */
enum tsr_plan_role {
    TSR_PLAN_ANY_STAGE,
    TSR_PLAN_FIRST_STAGE,
    TSR_PLAN_MIDDLE_STAGE,
    TSR_PLAN_LAST_STAGE
};

/* Meshes that can change places without any time or size changing. */
struct tsr_plan_mesh_kind {
    struct tsr_plan_mesh mesh;     /* of its first group */
    uint32_t             way;      /* its width, with TSR_PLAN_WAY_* */
    uint64_t             sum;      /* codec of its sums, of p->sums */
    uint64_t             pool;     /* that it draws on */
    enum tsr_plan_role   role;     /* of several stages; a plan of one stage is a part of its own */
    uint64_t             group;    /* its first group */
    uint64_t             count;    /* most meshes, over all its groups */
    uint64_t             n_groups; /* groups whose meshes these are */
};

struct tsr_plan_meshes {
    uint32_t                  *pool_of; /* [groups]; owned, as all here */
    uint64_t                  *devices; /* [n_pools] */
    struct tsr_plan_mesh_kind *kinds;   /* those of a pool one after the other */
    uint64_t                   n_kinds, n_groups, n_pools, total; /* total: most stages of a plan */
    bool                       roles;                             /* some kinds have one */
};

/* TSR_E_NOMEM.  [setup] */
tsr_status tsr_plan_meshes_make(struct tsr_plan_meshes *m, const struct tsr_plan_problem *p,
                                const struct tsr_plan_space *s, struct tsr_err *err);
void       tsr_plan_meshes_free(struct tsr_plan_meshes *m);
/* Whether kinds draw on the same devices, so that their counts alone do not say what a plan can have. */
static inline bool tsr_plan_meshes_pooled(const struct tsr_plan_meshes *m)
{
    return m->n_kinds > m->n_pools;
}
/* The kind of a mesh of a group that can have the role; n_kinds: none. */
uint64_t tsr_plan_meshes_find(const struct tsr_plan_meshes *m, uint64_t group, uint32_t way,
                              uint64_t sum, enum tsr_plan_role role);
/* Whether a plan can have a stage of each of two kinds, or two of one. */
bool tsr_plan_meshes_together(const struct tsr_plan_meshes *m, uint64_t a, uint64_t b);

/* Whether two groups, whole, can change places without any time or size changing. */
bool tsr_plan_meshes_twins(const struct tsr_plan_problem *p, uint64_t a, uint64_t b);

/* Widths that a group can take, ascending, in w[TSR_PLAN_MESH_WIDTHS]; any: also those that leave some of its
 * devices unused. With why (may be NULL) the sentence for each divisor of the count that is left out, one after the other. */
#define TSR_PLAN_MESH_WIDTHS 32
uint32_t tsr_plan_meshes_widths(const struct tsr_plan_problem *p, uint64_t group, bool any,
                                uint32_t *w, char *why, size_t cap);

/* The widths of all groups: those of p where it fixes them.  As one choice after another, one width for each group: the next
 * in tp[groups]; the first is the narrowest everywhere. Choices that only rename identical groups come once. False past
 * the last. */
struct tsr_plan_width_choices {
    uint32_t *w;    /* [groups][TSR_PLAN_MESH_WIDTHS] */
    uint32_t *n;    /* [groups] */
    uint32_t *at;   /* [groups] */
    uint64_t *twin; /* [groups] an identical earlier group, or itself */
    uint64_t  n_groups;
    bool      started;
};
/* any: as above. */
tsr_status tsr_plan_width_choices_make(struct tsr_plan_width_choices *c,
                                       const struct tsr_plan_problem *p, bool any,
                                       struct tsr_err *err);
bool       tsr_plan_width_choices_next(struct tsr_plan_width_choices *c, uint32_t *tp);
void       tsr_plan_width_choices_free(struct tsr_plan_width_choices *c);

#endif
