/* plan/search/problem.h - everything that a plan is made from, and the questions that it answers.
 *
 *   shape + cluster + workload + candidates + quality --build.h--> instances --search.h--> a plan
 */
#ifndef TSR_PLAN_SEARCH_PROBLEM_H
#define TSR_PLAN_SEARCH_PROBLEM_H

#include "plan/cost/latency.h"
#include "plan/cost/quality.h"

#define TSR_PLAN_KV_TYPES 3u /* 32, 16 and 8 bits */

/* The user's options, in addition to the machines and the workload. */
struct tsr_plan_problem_options {
    uint32_t           numerics;   /* of the backends that report buffer sizes */
    const char        *model;      /* a model argument or a config.json */
    const char *const *candidates; /* texts as tsr_plan_candidates_open() takes them */
    uint64_t           n_candidates;
    bool               chosen;             /* the user set them: an error for a packed model */
    const char        *indicators, *table; /* file of indicators, "": the prior; its table */
    const char        *routing; /* folder of a calibration that counted experts, "" or NULL: none */
    uint32_t           expert_groups; /* into which experts of a layer are divided; 0 or 1: none */
    const uint8_t     *group_of; /* [layers][experts] groups of a plan file instead; NULL: none */
    const char        *at_least; /* "uniform-4": no worse than that; ""; NULL: that of
                                              4 bits where neither theta nor max_omega is given */
    double             theta, max_omega; /* ms for each unit of omega; negative: no limit */
    bool               knee;   /* by KL, if nothing says what is good enough: that of the front */
    double             max_kl; /* nats per token, of indicators by KL; 0: no limit */
    double      max_first_ms;  /* until all prompts of the first round are done; 0: no limit */
    int64_t     objective, accounting, latency; /* TSR_OBJECTIVE_*, TSR_ACCOUNT_*,
                                                          TSR_LATENCY_* */
    int64_t     head;                           /* TSR_HEAD_* */
    int64_t     experts;                        /* TSR_PLAN_EXPERTS_* */
    const char *codec, *tp_codec;               /* of links, of meshes; "": F32 */
    uint64_t    together;                       /* layers that are decided as one, >= 1 */
    uint64_t    prefill_mb, decode_mb;          /* 0: searched */
    uint32_t    min_tp, max_tp;  /* narrowest mesh where wider ones work, widest; 0: any */
    bool        use_all;         /* no device stays unused */
    double      gap, time_limit; /* time_limit in s, 0: none */
    uint64_t    seed;
    /* what the planner chooses in place of the workload's value (settings.h) */
    bool free_concurrency, free_chunk, free_kv;
    uint32_t
        kv[TSR_PLAN_KV_TYPES]; /* dtypes of the KV cache to choose from, if the user listed some */
    uint32_t n_kv;
};

struct tsr_plan_problem {
    struct tsr_registry            *registry;
    struct tsr_plan_problem_options o; /* strings are the caller's */
    struct tsr_plan_shape          *shape;
    struct tsr_plan_cluster        *cluster; /* the caller's */
    struct tsr_plan_workload        work; /* the caller's arrays; batch and lengths may be varied */
    struct tsr_plan_candidates      candidates;
    struct tsr_plan_quality         quality;
    double                          max_omega;       /* the effective limit, at_least included;
                                                * negative: none */
    struct tsr_plan_wire        wire[2], tp_wire[2]; /* by phase: between stages, inside of one */
    struct tsr_plan_wire        back[2]; /* to a head on the first stage; F32 by default */
    struct tsr_plan_memory_job  memory;
    struct tsr_plan_latency_job latency;
    int64_t                    *more_bytes; /* [groups] for each device, what-ifs; owned */
    int64_t                    *more;       /* [groups] devices */
    const uint32_t             *widths;     /* [groups] only these; NULL: all that work */
    bool                        few;        /* decode sizes of 1, 2, 4 ... parts alone */
    double
        kv_omega; /* what the KV type costs in omega, where the planner chose it; part of the limit */
    bool knee;    /* no limit: the plan is the knee of the front (front.h) */
    double
        wire_omega; /* of indicators by KL: most that codecs can cost, which the limit reserves */
};

/* Opens all of it.  cluster and work stay the caller's and outlive the problem.  [setup] */
tsr_status tsr_plan_problem_open(struct tsr_plan_problem *p, struct tsr_registry *r,
                                 const struct tsr_plan_problem_options *o,
                                 struct tsr_plan_cluster               *cluster,
                                 const struct tsr_plan_workload *work, struct tsr_err *err);
void       tsr_plan_problem_close(struct tsr_plan_problem *p); /* zeroed or filled */

/* Times that the requests at once have to be run for the whole batch, >= 1: the time of the batch is this
 * many times that of one round. */
double tsr_plan_problem_rounds(const struct tsr_plan_problem *p);

/* After a change of p->work. */
void tsr_plan_problem_refresh(struct tsr_plan_problem *p);
/* The codecs of each phase between stages and inside of one; "" or NULL: F32, exactly.  [setup] */
tsr_status tsr_plan_problem_put_codecs(struct tsr_plan_problem *p, const char *const send[2],
                                       const char *const collective[2], struct tsr_err *err);
/* Puts the head elsewhere. */
void tsr_plan_problem_put_head(struct tsr_plan_problem *p, enum tsr_head_place place);

/* Whether some device may leave a layer's experts to the CPU next to it. */
bool tsr_plan_problem_cpu_experts(const struct tsr_plan_problem *p);
/* One sentence for each profile of the cluster and kernel that a candidate needs and the profile does not have, with the
 * closest one that it has, "; " between them; "" where none is missing. *text: fresh memory.  [setup] */
tsr_status tsr_plan_problem_lacks(const struct tsr_plan_problem *p, char **text,
                                  struct tsr_err *err);
/* Devices of a group, what-ifs included. */
uint64_t tsr_plan_problem_devices(const struct tsr_plan_problem *p, uint64_t group);
/* Milliseconds of `rows` rows, by p->back, on their way back from the last of several stages to a head on the
 * first one. */
tsr_status tsr_plan_problem_back(const struct tsr_plan_problem *p, const struct tsr_plan_mesh *last,
                                 const struct tsr_plan_mesh *first, enum tsr_phase phase,
                                 uint64_t rows, double *ms, struct tsr_err *err);
/* Bytes that a plan may use on a mesh of the group. */
uint64_t tsr_plan_problem_capacity(const struct tsr_plan_problem *p, uint64_t group,
                                   const struct tsr_plan_mesh *m);
/* "at_least: uniform-4" -> the candidate; TSR_E_INPUT with the names that there are. */
tsr_status tsr_plan_problem_uniform(const struct tsr_plan_problem *p, const char *text,
                                    uint64_t *candidate, struct tsr_err *err);

/* ---- indicators by KL (problem_kl.c) ---- */

/* What one boundary between stages costs by the codecs of p, and the sums of all layers; of two phases the larger. 0 where
 * nothing is lost.  TSR_E_INPUT with the codec that the file has no figure of.  [any] */
tsr_status tsr_plan_problem_kl_wires(const struct tsr_plan_problem  *p,
                                     struct tsr_plan_quality_choice *link,
                                     struct tsr_plan_quality_choice *sum, struct tsr_err *err);
/* What a KV type costs at the workload's length; NULL where the file does not say.  *none: F32, which costs nothing.  [any] */
const struct tsr_plan_quality_choice *tsr_plan_problem_kl_kv(const struct tsr_plan_problem *p,
                                                             uint32_t kv, bool *none);
/* Checks that the file has a figure for all that the plan may need, and puts p->wire_omega. Nothing for other indicators.
 * TSR_E_INPUT.  [setup] */
tsr_status tsr_plan_problem_kl_open(struct tsr_plan_problem *p, struct tsr_err *err);
/* The cost of what a plan has anyway, in addition to its weights: the workload's cache, and codecs.  [any] */
double tsr_plan_problem_kl_base(const struct tsr_plan_problem *p);

#endif
