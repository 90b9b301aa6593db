/* tessera/solver.h - component kind "tessera.solver/1": a planning problem in,
 * an assignment out.  No tensors, no model names: tables of numbers.
 *
 * The problem is that of docs/formats/instance.md: contiguous blocks of layers
 * on devices, one bit candidate per layer, one micro-batch option.  The host
 * recomputes every objective and checks every constraint.  All times are ms,
 * all memory is bytes.  Tables are row-major, borrowed for the call.
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

/* Optional parts of an instance.  A solver that lacks one refuses. */
#define TSR_SOLVER_CLASSES     (UINT64_C(1) << 0) /* more than one layer class */
#define TSR_SOLVER_MAX_OMEGA   (UINT64_C(1) << 1)
#define TSR_SOLVER_LINKS       (UINT64_C(1) << 2) /* comm tables               */
#define TSR_SOLVER_USE_ALL     (UINT64_C(1) << 3) /* allow_unused: false       */
#define TSR_SOLVER_FORBIDDEN   (UINT64_C(1) << 4) /* NaN entries in pre or dec */
#define TSR_SOLVER_WORKSPACE   (UINT64_C(1) << 5)
#define TSR_SOLVER_ENDS        (UINT64_C(1) << 6) /* head and embedding        */
#define TSR_SOLVER_FIXED_ORDER (UINT64_C(1) << 7)

/* No part of an instance: the solver may abort, overrun its memory or hang (it calls a library that
 * does).  The host runs it in a process of its own, with limits of time and memory; a host that does
 * not know the flag calls it like the others.  There its host->parallel_for() works on one thread, and
 * services may be missing. */
#define TSR_SOLVER_ISOLATED (UINT64_C(1) << 63)

struct tsr_solver_kind {
    uint32_t    struct_size;
    uint32_t    count;
    const char *name;
    uint64_t    capacity_bytes; /* per device                          */
};

/* One micro-batch option.  K kinds, C classes, Q bit candidates. */
struct tsr_solver_option {
    uint32_t        struct_size;
    uint32_t        reserved;
    uint64_t        prefill_mb, decode_mb;
    const double   *pre_ms;                      /* [K][C][Q]; NaN: forbidden           */
    const double   *dec_ms;                      /* [K][C][Q]; NaN: forbidden           */
    const double   *embed_pre_ms, *embed_dec_ms; /* [K]                       */
    const double   *head_pre_ms, *head_dec_ms;   /* [K]                       */
    const double   *comm_pre_ms, *comm_dec_ms;   /* [K][K]                    */
    const uint64_t *workspace_bytes;             /* [K]                       */
};

struct tsr_solver_instance {
    uint32_t                               struct_size;
    uint32_t                               objective; /* TSR_OBJECTIVE_*                     */
    uint64_t                               layers, classes, bits, n_kinds, n_options;
    const uint32_t                        *layer_class; /* [L]                                 */
    const char *const                     *bit_names;   /* [Q]                                 */
    const uint64_t                        *layer_bytes; /* [C][Q]                              */
    const double                          *omega;       /* [L][Q]                              */
    double                                 theta;       /* ms                                  */
    double                                 max_omega;   /* negative: no limit                  */
    uint64_t                               batch, tokens;
    const struct tsr_solver_kind *const   *kinds; /* [K] pointers         */
    const uint32_t                        *order; /* [order_len] kind indices; NULL: free */
    uint64_t                               order_len;
    uint32_t                               allow_unused;
    uint32_t                               reserved;
    uint64_t                               embed_bytes, head_bytes;
    const struct tsr_solver_option *const *options;     /* [n_options] pointers */
    double                                 gap;         /* relative; 1e-4 unless asked         */
    uint64_t                               deadline_us; /* from the call; 0: none              */
    uint64_t                               seed;
    double                                 cutoff; /* only better plans matter; INFINITY: none */
};

#define TSR_SOLVED_OPTIMAL    0u
#define TSR_SOLVED_FEASIBLE   1u
#define TSR_SOLVED_INFEASIBLE 2u
#define TSR_SOLVED_UNKNOWN    3u

/* The host provides the arrays: stage_* have max_stages entries (the number of
 * devices), bits has `layers` entries, reason has reason_cap bytes. */
struct tsr_solver_solution {
    uint32_t  struct_size;
    uint32_t  status;    /* TSR_SOLVED_*                        */
    double    objective; /* of this plan; unset without one     */
    double    bound;     /* proved lower bound; -INFINITY: none */
    uint64_t  option;
    uint64_t  stages, max_stages;
    uint32_t *stage_kind;
    uint64_t *stage_first, *stage_count;
    uint32_t *layer_bits; /* [L] indices of bit candidates       */
    char     *reason; /* infeasible: why, one sentence; unknown: why nothing was found, or empty */
    uint64_t  reason_cap;
};

struct tsr_solver_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t supports; /* TSR_SOLVER_* parts, TSR_SOLVER_ISOLATED */

    /* Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* Returns TSR_OK with a status in the solution; TSR_E_UNSUPPORTED for a
     * part that it lacks, never ignoring it; TSR_E_NOMEM; TSR_E_CANCELLED.
     * [worker] */
    tsr_status (*solve)(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err);

    /* Optional; may be NULL.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
