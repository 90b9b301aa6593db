/* plan/search/problem.h - everything that a plan is made from, and the questions that it answers.
 *
 *   shape + cluster + workload + candidates + quality --build.h--> instances --search.h--> a plan
 */
#ifndef TSR_PLAN_SEARCH_PROBLEM_H
#define TSR_PLAN_SEARCH_PROBLEM_H

#include "plan/cost/draft.h"
#include "plan/cost/latency.h"
#include "plan/cost/quality.h"

#define TSR_PLAN_KV_TYPES 8u /* most that a plan chooses among */

#define TSR_PLAN_K 8u /* most k of error compensation to choose from */

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
    const char *const *links,
        *const        *sums; /* lists to choose from in their place, by boundary and by stage */
    uint64_t           n_links, n_sums;       /* 0: codec, tp_codec */
    uint64_t           together;              /* layers that are decided as one, >= 1 */
    uint64_t           prefill_mb, decode_mb; /* 0: searched */
    uint32_t           min_tp, max_tp;  /* narrowest mesh where wider ones work, widest; 0: any */
    bool               use_all;         /* no device stays unused */
    double             gap, time_limit; /* time_limit in s, 0: none */
    uint64_t           seed;
    /* what the planner chooses in place of the workload's value (settings.h) */
    bool free_concurrency, free_chunk, free_kv;
    uint32_t
        kv[TSR_PLAN_KV_TYPES]; /* dtypes of the KV cache to choose from, if the user listed some */
    uint32_t n_kv;
    uint32_t k
        [TSR_PLAN_K]; /* channels of 1,024 that a layer may have compensated; none listed: 0 alone */
    uint32_t n_k;
    const char *const
            *ends; /* texts of candidates for embedding and head; none: they stay as they are */
    uint64_t n_ends;
    const struct tsr_plan_draft_options *drafts; /* of steps that run by the plan */
    uint64_t                             n_drafts;
};

/* One of the codecs that a link between stages, or the sums inside of one, may have. */
struct tsr_plan_codec {
    struct tsr_plan_wire wire[2]; /* by phase */
    bool                 lossy;
    struct tsr_plan_quality_choice
        cost; /* by indicators of KL, of one boundary or of the sums of all
                                          * layers; of two phases the larger; 0 where nothing is lost or known */
};

struct tsr_plan_again;
struct tsr_plan_lines;

struct tsr_plan_problem {
    struct tsr_registry            *registry;
    struct tsr_plan_problem_options o; /* strings are the caller's */
    struct tsr_plan_shape          *shape;
    struct tsr_plan_cluster        *cluster; /* the caller's */
    struct tsr_plan_workload        work; /* the caller's arrays; batch and lengths may be varied */
    struct tsr_plan_candidates      candidates;
    struct tsr_plan_quality         quality;
    double                          max_omega; /* the effective limit, at_least included;
                                                * negative: none */
    struct tsr_plan_codec          *links,
        *sums; /* between stages, inside of one; at least one of each; owned */
    uint64_t                    n_links, n_sums;
    uint64_t                    least_link, least_sum; /* those that lose least */
    struct tsr_plan_wire        back[2]; /* to a head on the first stage; F32 by default */
    struct tsr_plan_memory_job  memory;
    struct tsr_plan_latency_job latency;
    int64_t                    *more_bytes; /* [groups] for each device, what-ifs; owned */
    int64_t                    *more;       /* [groups] devices */
    const uint32_t             *widths;     /* [groups] only these; NULL: all that work */
    bool                        few;        /* decode sizes of 1, 2, 4 ... parts alone */
    bool                        any;        /* the first plan will do, whatever its time */
    bool
        exact_ms; /* a search's cutoff and bound are of times as plans take them (search.h: over) */
    bool
        whole; /* instances are of all rounds: a bound of the batch's time, and no plan (build_rounds.c) */
    double
        kv_omega; /* what the KV type costs in omega, where the planner chose it; part of the limit */
    uint32_t
        kv_types; /* bit i: a layer may have the cache o.kv[i], whatever others have; 0: work.kv of all */
    uint32_t *
        kv_of; /* [layers] types that a plan file says, also in memory; owned; NULL: no file does */
    uint32_t most_k; /* of o.k only these and smaller ones */
    uint32_t
        work_k; /* whose work memory each stage reserves; below most_k instances are a bound, and no plan */
    uint32_t residual_bits; /* of compensation; assumed: the model has no residuals yet */
    bool     residual_assumed;
    uint32_t                        *
        k_of; /* [layers] k that a plan file gives all linears of a layer, else 0; owned; NULL: no file does */
    struct tsr_plan_draft     *drafts;     /* [memory.n_drafts]; owned */
    struct tsr_plan_candidates ends;       /* the widest first; n 0: as stored */
    uint64_t                   end;        /* that the ends take */
    double                     ends_omega; /* what it costs; part of the limit */
    struct tsr_plan_lines
        *lines; /* what solves of its instances proved (lines.h); the caller's; NULL: not kept */
    const struct tsr_plan_again *
        again; /* whose plan is checked, in place of a search (again.h); the caller's; NULL: none */
    bool knee; /* no limit: the plan is the knee of the front (front.h) */
    double
        wire_omega; /* of indicators by KL: most that the least lossy codecs can cost; part of the limit
                     * of at_least, and reserved for solvers that do not know what codecs cost */
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
/* The codecs between stages and inside of one, by name and phase, "" or NULL: F32, exactly; at least one of each.  With
 * indicators by KL TSR_E_INPUT with the codec that the file has no figure of.  [setup] */
struct tsr_plan_codec_names {
    const char *phase[2];
};
tsr_status tsr_plan_problem_put_codecs(struct tsr_plan_problem           *p,
                                       const struct tsr_plan_codec_names *links, uint64_t n_links,
                                       const struct tsr_plan_codec_names *sums, uint64_t n_sums,
                                       struct tsr_err *err);
/* The codec of one of the lists with these names; n: none. */
uint64_t tsr_plan_codec_find(const struct tsr_plan_codec *list, uint64_t n,
                             const struct tsr_plan_codec_names *names);
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
/* The time of `rows` rows, by p->back, on their way back from the last of several stages to a head on the
 * first one. */
tsr_status tsr_plan_problem_back(const struct tsr_plan_problem *p, const struct tsr_plan_mesh *last,
                                 const struct tsr_plan_mesh *first, enum tsr_phase phase,
                                 uint64_t rows, struct tsr_plan_send *out, struct tsr_err *err);
/* Bytes that a plan may use on a mesh of the group. */
uint64_t tsr_plan_problem_capacity(const struct tsr_plan_problem *p, uint64_t group,
                                   const struct tsr_plan_mesh *m);
/* "at_least: uniform-4" -> the candidate; TSR_E_INPUT with the names that there are. */
tsr_status tsr_plan_problem_uniform(const struct tsr_plan_problem *p, const char *text,
                                    uint64_t *candidate, struct tsr_err *err);

/* Some device adds back: a CPU, or one whose profile says how fast it reads the host's memory.  [any] */
bool tsr_plan_compensate_known(const struct tsr_plan_cluster *c);
/* Checks that each k of the options has a figure of each scheme, and that some device can add back; puts the bits of
 * residuals.  TSR_E_INPUT.  [setup] */
tsr_status tsr_plan_problem_compensate_open(struct tsr_plan_problem *p, struct tsr_err *err);

/* Why nothing of the limit on omega is left for the weights, one sentence: what the cache costs, and the most that codecs can
 * cost. */
void tsr_plan_problem_limit_text(const struct tsr_plan_problem *p, char *buf, size_t cap);

/* Opens the candidates of the ends, which take the first.  TSR_E_INPUT for one that has no figure, or cannot pack them.
 * [setup] */
tsr_status tsr_plan_problem_ends_open(struct tsr_plan_problem *p, struct tsr_err *err);
/* Puts embedding and head under candidate i of p->ends, with what that costs; nothing where there are none.  [any] */
void tsr_plan_problem_put_end(struct tsr_plan_problem *p, uint64_t i);
/* Whether the ends are packed by the plan. */
static inline bool tsr_plan_problem_packs_ends(const struct tsr_plan_problem *p)
{
    return p->end < p->ends.n && p->ends.v[p->end].q.self;
}

/* ---- indicators by KL (problem_kl.c) ---- */

/* Fills in the cost of a codec of links or of sums.  TSR_E_INPUT with the codec that the file has no figure of.  [any] */
tsr_status tsr_plan_problem_kl_codec(const struct tsr_plan_problem *p, bool sum,
                                     struct tsr_plan_codec *c, struct tsr_err *err);
/* What a KV type costs at the workload's length; NULL where the file does not say.  *none: F32, which costs nothing.  [any] */
const struct tsr_plan_quality_choice *tsr_plan_problem_kl_kv(const struct tsr_plan_problem *p,
                                                             uint32_t kv, bool *none);
/* The KV types that layers of p choose among, of which work.kv is one where kv_types is 0.  v: [TSR_PLAN_KV_TYPES].
 * Returns how many.  [any] */
uint32_t tsr_plan_problem_kv_types(const struct tsr_plan_problem *p, uint32_t *v);
/* What a cache of type kv costs in omega in layer l alone: the figure of all layers, divided evenly over those that have a
 * cache of positions, or in the proportions that the file measured.  0 where nothing is known.  half: that of the interval,
 * NAN where it is not known, or NULL.  [any] */
double tsr_plan_problem_kv_omega(const struct tsr_plan_problem *p, uint32_t kv, uint64_t layer,
                                 double *half);
/* TSR_E_INPUT where indicators by KL have no figure of a cache of type kv at the workload's length.  [any] */
tsr_status tsr_plan_problem_kl_need_kv(const struct tsr_plan_problem *p, uint32_t kv,
                                       struct tsr_err *err);
/* Checks that the file has a figure for all that the plan may need, and puts p->wire_omega. Nothing for other indicators.
 * TSR_E_INPUT.  [setup] */
tsr_status tsr_plan_problem_kl_open(struct tsr_plan_problem *p, struct tsr_err *err);
/* The cost of what a plan has anyway, in addition to its weights: the workload's cache, and codecs.  [any] */
double tsr_plan_problem_kl_base(const struct tsr_plan_problem *p);

#endif
