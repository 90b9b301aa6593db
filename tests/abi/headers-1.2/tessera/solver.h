/* tessera/solver.h - solver: finds a plan for a planning problem.  The component kind is
 * "tessera.solver/1".
 *
 * The plugin implements struct tsr_solver_v1, and the planner calls it.  A problem has no tensors
 * and no model names, only tables of numbers.  It places contiguous blocks of layers on devices,
 * and chooses one bit candidate per layer and one micro-batch option (docs/formats/instance.md).
 * The host computes every objective again and checks every constraint.  Times are in ms and memory
 * in bytes.  Tables are row-major and borrowed for the call.
 *
 * Example: a refusal of problems with parts that the solver lacks.
 *
 *     static tsr_status refuse_parts(const struct tsr_solver_instance *in, struct tsr_err *err)
 *     {
 *         if (in->classes > 1)
 *             return tsr_fail(err, TSR_E_UNSUPPORTED, "%u layer classes; expected 1",
 *                             (unsigned)in->classes);
 *         if (in->max_omega >= 0)
 *             return tsr_fail(err, TSR_E_UNSUPPORTED, "max_omega is set; expected no limit");
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_SOLVER_H
#define TSR_SOLVER_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_SOLVER "tessera.solver/1"

#define TSR_OBJECTIVE_STEADY 0u
#define TSR_OBJECTIVE_PAPER  1u

/* Optional parts of an instance.  solve() refuses an instance with a part that `supports` lacks.  The
 * host gives a solver no instance with a part after TSR_SOLVER_FIXED_ORDER that it lacks, because a
 * solver that is older than a part cannot see it. */
#define TSR_SOLVER_CLASSES     (UINT64_C(1) << 0) /* more than one layer class */
#define TSR_SOLVER_MAX_OMEGA   (UINT64_C(1) << 1)
#define TSR_SOLVER_LINKS       (UINT64_C(1) << 2) /* comm tables               */
#define TSR_SOLVER_USE_ALL     (UINT64_C(1) << 3) /* allow_unused: false       */
#define TSR_SOLVER_FORBIDDEN   (UINT64_C(1) << 4) /* NaN entries in pre or dec */
#define TSR_SOLVER_WORKSPACE   (UINT64_C(1) << 5)
#define TSR_SOLVER_ENDS        (UINT64_C(1) << 6) /* head and embedding        */
#define TSR_SOLVER_FIXED_ORDER (UINT64_C(1) << 7)
#define TSR_SOLVER_HOST        (UINT64_C(1) << 8)  /* host_bytes                */
#define TSR_SOLVER_JOBS        (UINT64_C(1) << 9)  /* prefill_jobs              */
#define TSR_SOLVER_POOLS       (UINT64_C(1) << 10) /* kinds that share devices  */
#define TSR_SOLVER_KIND_OMEGA  (UINT64_C(1) << 11) /* kind_omega                */
#define TSR_SOLVER_LINK_CODECS (UINT64_C(1) << 12) /* several codecs for links  */
#define TSR_SOLVER_OPTION_ENDS (UINT64_C(1) << 13) /* ends that an option brings */
#define TSR_SOLVER_MAX_FIRST   (UINT64_C(1) << 14) /* max_first_ms              */

/* Not a part of an instance: the solver calls a library that may abort, hang or take all memory.
 * The host runs it in a separate process with limits of time and memory.  In that process
 * host->parallel_for() uses one thread, and services may be missing.  A host without this flag
 * calls the solver directly. */
#define TSR_SOLVER_ISOLATED (UINT64_C(1) << 63)

/* A type of device, or of a mesh of devices. */
struct tsr_solver_kind {
    uint32_t    struct_size;
    uint32_t    count;
    const char *name;
    uint64_t    capacity_bytes;      /* per device                          */
    uint64_t    host_capacity_bytes; /* what each device has of its host's memory */
    /* A stage on this kind takes `takes` devices of pool `pool`.  Kinds with one pool are what the
     * same devices can be: meshes of several widths, or of several codecs for sums.  Read where
     * n_pools > 0; `count` is then pool_devices[pool] / takes, rounded down. */
    uint64_t pool, takes;
};

/* One micro-batch option.  K kinds of device, C layer classes, Q bit candidates. */
struct tsr_solver_option {
    uint32_t        struct_size;
    uint32_t        reserved;
    uint64_t        prefill_mb, decode_mb;
    const double   *pre_ms;                      /* [K][C][Q]; NaN: forbidden           */
    const double   *dec_ms;                      /* [K][C][Q]; NaN: forbidden           */
    const double   *embed_pre_ms, *embed_dec_ms; /* [K]                       */
    const double   *head_pre_ms, *head_dec_ms;   /* [K]                       */
    const double   *comm_pre_ms, *comm_dec_ms;   /* [V][K][K]; V of n_links   */
    const uint64_t *workspace_bytes;             /* [K]                       */
    /* prompts in chunks: how many jobs of pre_ms the batch is, not whole where a last chunk is
     * shorter; 0: ceil(batch / prefill_mb), where a job is a micro-batch */
    double prefill_jobs;
    /* A choice for the ends that comes with this option: bytes of the first and the last stage in
     * addition to the instance's embed_bytes and head_bytes, and an omega that counts in the sum. */
    uint64_t embed_bytes, head_bytes;
    double   omega;
};

/* The problem.  L layers; K, C and Q as above.  Borrowed for the call. */
struct tsr_solver_instance {
    uint32_t                             struct_size;
    uint32_t                             objective; /* TSR_OBJECTIVE_*                     */
    uint64_t                             layers, classes, bits, n_kinds, n_options;
    const uint32_t                      *layer_class; /* [L]                                 */
    const char *const                   *bit_names;   /* [Q]                                 */
    const uint64_t                      *layer_bytes; /* [C][Q]                              */
    const double                        *omega;       /* [L][Q]                              */
    double                               theta;       /* ms                                  */
    double                               max_omega;   /* negative: no limit                  */
    uint64_t                             batch, tokens;
    const struct tsr_solver_kind *const *kinds; /* [K] pointers         */
    /* [order_len] kind indices, one for each device; NULL: free.  With pools they are indices of
     * pools, and a stage takes the next run of `takes` entries of its pool. */
    const uint32_t                        *order;
    uint64_t                               order_len;
    uint32_t                               allow_unused;
    uint32_t                               reserved;
    uint64_t                               embed_bytes, head_bytes;
    const struct tsr_solver_option *const *options;     /* [n_options] pointers */
    double                                 gap;         /* relative; 1e-4 by default           */
    uint64_t                               deadline_us; /* us after the call; 0: none          */
    uint64_t                               seed;
    double                                 cutoff; /* find only better plans; INFINITY: none */
    const uint64_t
        *host_bytes; /* [C][Q] of a layer in the memory of its device's host; NULL: none */
    /* A solver reads the members below only if its struct_size covers them. */
    /* 0: every kind has devices of its own, `count` of them.  With allow_unused 0 the stages take
     * all devices of every pool. */
    uint64_t        n_pools;
    const uint64_t *pool_devices; /* [n_pools]                                                */
    const double   *kind_omega;   /* [K][L] what a layer adds to omega on a kind; NULL: nothing */
    uint64_t        n_links;      /* V codecs, of which each link has one; 0 is 1             */
    /* [V][L] what codec v adds to omega on the link after layer l, where a stage ends and another one
     * begins; NULL: nothing */
    const double *link_omega;
    /* Most ms until all prompts are done: sum of the stages' prefill times + sum of the links' + (jobs of
     * prefill - 1) x the longest of these, with either objective; 0: no limit. */
    double max_first_ms;
};

/* Outcomes of solve(). */
#define TSR_SOLVED_OPTIMAL    0u
#define TSR_SOLVED_FEASIBLE   1u
#define TSR_SOLVED_INFEASIBLE 2u
#define TSR_SOLVED_UNKNOWN    3u

/* The plan.  The host owns the arrays: stage_* have max_stages entries (the number of devices),
 * layer_bits has L entries, and reason has reason_cap bytes. */
struct tsr_solver_solution {
    uint32_t  struct_size;
    uint32_t  status;    /* TSR_SOLVED_*                        */
    double    objective; /* of this plan; undefined without one */
    double    bound;     /* proved lower bound; -INFINITY: none */
    uint64_t  option;
    uint64_t  stages, max_stages;
    uint32_t *stage_kind;
    uint64_t *stage_first, *stage_count;
    uint32_t *layer_bits; /* [L] indices of bit candidates       */
    char     *reason;     /* infeasible: why, one sentence; unknown: why no plan, or empty */
    uint64_t  reason_cap;
    /* [max_stages] codec of the link after each stage but the last, an index below n_links; NULL where
     * n_links <= 1 */
    uint32_t *stage_link;
};

struct tsr_solver_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t supports; /* TSR_SOLVER_* parts, TSR_SOLVER_ISOLATED */

    /* opts: the option struct of the component, already checked.  destroy() accepts NULL.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* Solves one instance.  TSR_OK: out->status is the outcome, even if no plan exists.
     * TSR_E_UNSUPPORTED: the instance uses a feature that the solver lacks; a solver never ignores
     * one.  Also TSR_E_NOMEM and TSR_E_CANCELLED.  [worker] */
    tsr_status (*solve)(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
