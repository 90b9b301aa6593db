/* plan/search/build.h - a planning problem as instances for a solver (docs/formats/instance.md). Meshes are
 * the kinds, those of several widths or codecs of sums with pools of devices, and the micro-batch sizes are the options.
 *
 * An instance has one number of bytes for the embedding and one for the head, and one workspace for every
 * device of a kind under an option. What the ends take in excess depends on the option, so options are split
 * into parts: within a part no device loses more than 1/512 of the smallest capacity to the coarser count. A
 * head that is the embedding is stored once where one stage holds both: such plans are separate parts.
 *
 * A head on the first stage is part of the embedding there, in bytes and time. What the last stage sends back
 * to the first is time of the last stage, over the slowest or the fastest link that it may be (build_back.c). The time of
 * a plan with that link next to the stages, which tsr_plan_outcome_of() gives, is never above tsr_plan_built_price().
 *
 * Rank 0 alone has the ends (plan/cost/memory.h), which reduces what a mesh can offer. The part that all
 * kinds share counts with the ends; the excess of a wider mesh is subtracted from its capacity on every
 * stage, so that no device is overfilled. Where a plan may mix widths, a wide mesh is three kinds, for the first stage, the
 * last one and those between (meshes.h), each with its own excess: the first and the last unit are classes of their own,
 * which the kinds of other stages may not run. So is what all layers take more on a wide mesh than on a narrow one of the same
 * devices, for an instance has one number for all kinds: each rank of a mesh has the norms.
 *
 * What a layer takes is an item: a candidate, and with it a type of the KV cache and a k of error compensation where layers
 * choose them, and the place of its experts where a CPU may run them, whose memory is then the device's host's.  To a solver each item is one bit
 * candidate; tsr_plan_built_item() and tsr_plan_built_find() are the mapping.  host_bytes is left out where the experts
 * of all layers fit there at any item, for solvers that do not know it.
 *
 * Keys of an int4 cache are in blocks, so that the other caches of the plan get whole blocks, too.  An instance counts
 * these for every layer as soon as int4 is one of the types.
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
    double   ratio;    /* of its bytes over those of the instance (build_bytes.c) */
    uint64_t more,
        most_more;  /* bytes that all layers, and one at most, take more than in the instance */
    uint64_t least; /* bytes of a layer in the instance */
    bool     no_first, no_last; /* no plan of several stages begins or ends on it */
    /* for plans of one stage: its own capacity, and bytes of units on it, [C][Q] */
    uint64_t        alone_capacity;
    const uint64_t *layer_bytes;
};

/* What a layer takes. */
struct tsr_plan_item {
    uint32_t candidate; /* of the problem */
    uint32_t kv;        /* a dtype of tessera/kv_cache.h */
    uint32_t k;         /* of 1,024 channels of each linear that are compensated */
    bool     on_cpu;    /* its experts */
};
#define TSR_PLAN_ITEMS                                                                             \
    64u /* most where layers choose more than a candidate and a place: the exact solver's limit */

struct tsr_plan_built {
    const struct tsr_plan_problem *p;
    struct tsr_plan_meshes         meshes;
    uint64_t                       n_links, first_link; /* codecs of links, from this one of p on */
    bool                           codecs;              /* as the space has them */
    const bool                    *leads, *firsts;      /* likewise */
    bool                           nearest;             /* likewise */
    bool                           led;                 /* it was built with leads or firsts */
    bool                  even;  /* whichever kind has the first stage, plans have as much memory */
    bool                  apart; /* the first and the last unit are classes of their own */
    bool                  places;      /* each candidate also with experts on the CPU */
    struct tsr_plan_item *items;       /* [whole.bits] */
    uint64_t              units;       /* of layers that are decided together */
    uint64_t             *unit_first;  /* [units + 1] */
    struct tsr_solver_instance  whole; /* all kinds and options, without ends beyond the matrices */
    struct tsr_plan_built_kind *kinds; /* [kinds] */
    uint64_t                   *lost,
        *lost_alone; /* [kinds] of the capacity; and where the stage is the only one, for want of room for a draft model */
    /* [options] tables [K][C][Q] as those of the whole, without what places of kinds forbid: for plans of one stage */
    const double **alone_pre, **alone_dec;
    uint64_t     **alone_work,
        **alone_ends; /* [options] workspace [K], and bytes of both ends [K], likewise */
    struct tsr_plan_part       *parts;
    uint64_t                    n_parts;
    struct tsr_plan_build_pool *pool;  /* owns the tables */
    uint64_t                    bytes; /* of these */
};

/* The problem outlives the build, the space does not have to.  TSR_E_INFEASIBLE where no kind can run any candidate.  [setup] */
tsr_status tsr_plan_build(struct tsr_plan_built **b, const struct tsr_plan_problem *p,
                          const struct tsr_plan_space *s, struct tsr_err *err);
void       tsr_plan_built_destroy(struct tsr_plan_built *b); /* NULL is fine */
/* Takes every plan of it, whatever its bytes: for one whose bytes were checked exactly.  [any] */
void tsr_plan_built_unlimited(struct tsr_plan_built *b);
/* Whether what b offers to plans of several stages, a build of the same problem with leads, a offers as well.  [any] */
bool tsr_plan_built_covers(const struct tsr_plan_built *a, const struct tsr_plan_built *b);
/* Numbers the sides of a problem in side [groups]: devices of one backend, whose bytes may differ from those of others; with
 * draft models also those of a node with a CPU and other devices.  Returns how many there are.  [any] */
uint64_t tsr_plan_build_sides(const struct tsr_plan_problem *p, uint64_t *side);
/* The objective of a solution of one part, with the way that its last stage has to a head on the first; elsewhere as
 * tsr_plan_evaluate() has it, with its errors.  [setup] */
tsr_status tsr_plan_built_price(const struct tsr_plan_built *b, uint64_t part,
                                const struct tsr_solver_solution *s, double *objective,
                                struct tsr_err *err);
/* By so much at most an instance of the build has a plan of several stages longer than it takes: with the head on the first
 * stage the way back is work of the last stage there, which the slowest stage may wait for; 0 elsewhere. INFINITY: nothing is known of that.  [any] */
double tsr_plan_built_over(const struct tsr_plan_built *b);
/* Nodes of kinds that may be the first of several stages, in node [kinds]; returns how many, without those whose devices can
 * change places with devices of others; *all: with them.  [any] */
uint64_t tsr_plan_built_nodes(const struct tsr_plan_built *b, uint64_t *node, uint64_t *all);
/* Makes it a build of p, which may differ from its problem in max_omega, theta, gap and the limit of time alone.  [any] */
void tsr_plan_built_put(struct tsr_plan_built *b, const struct tsr_plan_problem *p);

/* The item that a bit candidate of an instance stands for; and back, false where there is none like it. */
static inline const struct tsr_plan_item *tsr_plan_built_item(const struct tsr_plan_built *b,
                                                              uint64_t                     bits)
{
    return &b->items[bits];
}
bool tsr_plan_built_find(const struct tsr_plan_built *b, const struct tsr_plan_item *item,
                         uint32_t *bits);
/* The memory job of a layer that takes the item; NULL: of what is not a layer's. */
struct tsr_plan_memory_job tsr_plan_built_memory(const struct tsr_plan_built *b,
                                                 const struct tsr_plan_item  *item);
/* What a layer's weights lose under an item, in omega, without compensation; and what that leaves.  A k without a figure,
 * which a plan file may have, leaves all. */
double tsr_plan_built_weights(const struct tsr_plan_built *b, uint64_t layer,
                              const struct tsr_plan_item *item);
double tsr_plan_built_left(const struct tsr_plan_built *b, uint64_t layer,
                           const struct tsr_plan_item *item);

/* The inputs of the tables: one layer of class cls with a bit candidate, embedding and head, for `size`
 * sequences on a mesh of the kind. ms is NAN where the mesh cannot run it. */
tsr_status tsr_plan_built_layer(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                                uint64_t bits, enum tsr_phase phase, uint64_t size,
                                struct tsr_plan_time *t, struct tsr_err *err);
/* The same of an item without compensation. */
tsr_status tsr_plan_built_base(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                               const struct tsr_plan_item *item, enum tsr_phase phase,
                               uint64_t size, struct tsr_plan_time *t, struct tsr_err *err);
tsr_status tsr_plan_built_ends(const struct tsr_plan_built *b, uint64_t kind, enum tsr_phase phase,
                               uint64_t size, struct tsr_plan_time *embed,
                               struct tsr_plan_time *head, struct tsr_err *err);
/* A micro-batch from a stage of one kind to the next of another, by a codec of the problem's links; of prefill one job. */
tsr_status tsr_plan_built_send(const struct tsr_plan_built *b, uint64_t from, uint64_t to,
                               enum tsr_phase phase, uint64_t link, uint64_t size,
                               struct tsr_plan_send *out, struct tsr_err *err);

/* Ascending decode sizes ceil(B/m), m = 1 .. 2 * devices, in v (room for 2 * devices); and prefill
 * sizes for one of them: powers of two up to it, and itself, in v[64].  Return how many. */
uint64_t tsr_plan_decode_sizes(uint64_t batch, uint64_t devices, uint64_t *v);
uint64_t tsr_plan_prefill_sizes(uint64_t decode_mb, uint64_t *v);
/* Decode sizes for powers of two parts, in v[64]. */
uint64_t tsr_plan_few_sizes(uint64_t batch, uint64_t devices, uint64_t *v);
/* Prefill micro-batches of a batch: requests are spread evenly over as few decode micro-batches as there can be, and the
 * prompts of each go in groups of prefill_mb. */
uint64_t tsr_plan_prefill_count(uint64_t batch, uint64_t prefill_mb, uint64_t decode_mb);

#endif
