/* plan/search/build.h - a planning problem as instances for a solver (docs/formats/instance.md). Meshes are
 * the kinds, those of several widths or codecs of sums with pools of devices, and the micro-batch sizes are the options.
 *
 * An instance has one number of bytes for the embedding and one for the head, and one workspace for every
 * device of a kind under an option. What the ends take in excess depends on the option, so options are split
 * into parts: within a part no device loses more than 1/512 of the smallest capacity to the coarser count. A
 * head that is the embedding is stored once where one stage holds both: such plans are separate parts.
 *
 * A head on the first stage is part of the embedding there, in bytes and time. What the last stage sends back
 * to the first is time of the last stage, over the slowest link that it may be. So the objective `steady` of
 * a plan with the actual link, which tsr_plan_outcome_of() gives, is never above its instance's.
 *
 * Rank 0 alone has the ends (plan/cost/memory.h), which reduces what a mesh can offer. The part that all
 * kinds share counts with the ends; the excess of a wider mesh is subtracted from its capacity on every
 * stage, so that no device is overfilled. Where a plan may mix widths, a wide mesh is three kinds, for the first stage, the
 * last one and those between (meshes.h), each with its own excess: the first and the last unit are classes of their own,
 * which the kinds of other stages may not run. So is what all layers take more on a wide mesh than on a narrow one of the same
 * devices, for an instance has one number for all kinds: each rank of a mesh has the norms.
 *
 * Where a CPU may run experts, an instance has each candidate twice: candidate c with all of a layer on its device,
 * and candidate c + n with the layer's experts on the CPU, whose memory is then the device's host's.  host_bytes is left
 * out where the experts of all layers fit there at any candidate, for solvers that do not know it.
 */
#ifndef TSR_PLAN_SEARCH_BUILD_H
#define TSR_PLAN_SEARCH_BUILD_H

#include "plan/cost/latency.h"
#include "plan/instance/instance.h"
#include "plan/search/meshes.h"

/* One instance; tables are shared with the others of the build. */
struct tsr_plan_part {
    struct tsr_instance inst;
    uint32_t            first_kind; /* kind 0 of the instance is this one of the build */
    uint64_t           *option;     /* [options] -> option of the build; owned by the build */
};

/* What the tables hold that a solver need not know. */
struct tsr_plan_built_kind {
    uint64_t capacity; /* of the mesh, before the ends are taken from it */
    /* for plans of one stage: its own capacity, and bytes of units on it, [C][Q] */
    uint64_t        alone_capacity;
    const uint64_t *layer_bytes;
};

struct tsr_plan_built {
    const struct tsr_plan_problem *p;
    struct tsr_plan_meshes         meshes;
    uint64_t                       n_links, first_link; /* codecs of links, from this one of p on */
    bool                           codecs;              /* as the space has them */
    bool                           places;     /* each candidate also with experts on the CPU */
    uint64_t                       units;      /* of layers that are decided together */
    uint64_t                      *unit_first; /* [units + 1] */
    struct tsr_solver_instance  whole; /* all kinds and options, without ends beyond the matrices */
    struct tsr_plan_built_kind *kinds; /* [kinds] */
    uint64_t *lost, *lost_alone; /* [kinds] of the capacity; and where the stage is the only one */
    /* [options] tables [K][C][Q] as those of the whole, without what roles of kinds forbid: for plans of one stage */
    const double **alone_pre, **alone_dec;
    const uint64_t                         **
        alone_work; /* [options] workspace [K] likewise, with what the ends take in excess of the instance's */
    struct tsr_plan_part       *parts;
    uint64_t                    n_parts;
    struct tsr_plan_build_pool *pool; /* owns the tables */
};

/* The problem outlives the build, the space does not have to.  TSR_E_INFEASIBLE where no kind can run any candidate.  [setup] */
tsr_status tsr_plan_build(struct tsr_plan_built **b, const struct tsr_plan_problem *p,
                          const struct tsr_plan_space *s, struct tsr_err *err);
void       tsr_plan_built_destroy(struct tsr_plan_built *b); /* NULL is fine */

/* Bit candidates of an instance to those of the problem, and whether experts are on the CPU; and back. */
static inline uint64_t tsr_plan_built_candidate(const struct tsr_plan_built *b, uint64_t bits)
{
    return bits % b->p->candidates.n;
}
static inline bool tsr_plan_built_on_cpu(const struct tsr_plan_built *b, uint64_t bits)
{
    return bits >= b->p->candidates.n;
}
static inline uint32_t tsr_plan_built_bits(const struct tsr_plan_built *b, uint32_t candidate,
                                           bool on_cpu)
{
    return candidate + (on_cpu ? (uint32_t)b->p->candidates.n : 0);
}

/* The inputs of the tables: one layer of class cls with a bit candidate, embedding and head, for `size`
 * sequences on a mesh of the kind. ms is NAN where the mesh cannot run it. */
tsr_status tsr_plan_built_layer(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                                uint64_t bits, enum tsr_phase phase, uint64_t size,
                                struct tsr_plan_time *t, struct tsr_err *err);
tsr_status tsr_plan_built_ends(const struct tsr_plan_built *b, uint64_t kind, enum tsr_phase phase,
                               uint64_t size, struct tsr_plan_time *embed,
                               struct tsr_plan_time *head, struct tsr_err *err);

/* Ascending decode sizes ceil(B/m), m = 1 .. 2 * devices, in v (room for 2 * devices); and prefill
 * sizes for one of them: powers of two up to it, and itself, in v[64].  Return how many. */
uint64_t tsr_plan_decode_sizes(uint64_t batch, uint64_t devices, uint64_t *v);
uint64_t tsr_plan_prefill_sizes(uint64_t decode_mb, uint64_t *v);
/* Prefill micro-batches of a batch: requests are spread evenly over as few decode micro-batches as there can be, and the
 * prompts of each go in groups of prefill_mb. */
uint64_t tsr_plan_prefill_count(uint64_t batch, uint64_t prefill_mb, uint64_t decode_mb);

#endif
