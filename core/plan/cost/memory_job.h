/* plan/cost/memory_job.h - inputs and accounting rule for the memory of a stage. */
#ifndef TSR_PLAN_COST_MEMORY_JOB_H
#define TSR_PLAN_COST_MEMORY_JOB_H

#include "plan/cost/cluster.h"

/* The stage whose rank 0 has the final norm and the LM head: the last one, or the first, with the
 * embedding (LLM-PQ's master). */
enum tsr_head_place { TSR_PLAN_HEAD_LAST, TSR_PLAN_HEAD_FIRST };
/* What of a layer's experts each device of a mesh has: some rows of all, some whole; ANY: the planner's choice. */
enum tsr_plan_experts { TSR_PLAN_EXPERTS_ROWS, TSR_PLAN_EXPERTS_WHOLE, TSR_PLAN_EXPERTS_ANY };
enum tsr_accounting { TSR_PLAN_ACCOUNT_EXACT, TSR_PLAN_ACCOUNT_PAPER };

/* What the functions of memory.h and memory_paper.h are about. */
struct tsr_plan_memory_job {
    struct tsr_registry         *registry; /* its backends report buffer sizes; NULL: plain
                                                * sizes */
    uint32_t                     numerics; /* that they are created with */
    const struct tsr_plan_shape *shape;
    enum tsr_accounting          accounting;
    uint64_t                     batch;            /* requests resident at once */
    uint64_t                     prompt, generate; /* tokens; their sum is the context */
    uint64_t                     chunk;            /* most tokens of a forward; 0: prompt */
    uint32_t                     kv;               /* type of the cache, kv_cache.h */
    const uint32_t              *kv_of;            /* [layers] its type in each; NULL: kv */
    bool                blocks;    /* keys of some layer are in blocks, as those of TSR_Q4 are */
    double              time_mult; /* paper: --time_mult_times; 0: 1 */
    enum tsr_head_place place;     /* which stage has the head */
    const struct tsr_plan_candidate *head;  /* storage of the head; NULL: as stored */
    const struct tsr_plan_candidate *embed; /* the same of the embedding */
    const struct tsr_plan_draft
            *drafts; /* [n_drafts] cost/draft.h: of steps that run by the plan, in turn */
    uint64_t n_drafts;
    struct tsr_size_cache *cache; /* of tsr_plan_memory_open() */
};

#endif
