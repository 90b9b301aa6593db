/* plan/search/search.h - the best plan of a problem over all widths and codecs, and its cost.
 *
 * A problem is a few instances (build.h) with all widths of each group, which a plan may mix, and all codecs. For a solver
 * without pools or codecs it is projected: one width for each group, in one choice after another, and the codecs
 * that lose least. The best plan so far is the cutoff of the next solve. The bound covers all that was offered, so a
 * plan is called proved only if nothing of it can be better. */
#ifndef TSR_PLAN_SEARCH_SEARCH_H
#define TSR_PLAN_SEARCH_SEARCH_H

#include "plan/search/build.h"
#include "plan/simulate/simulate.h"
#include "plugin/spec.h"

/* Channels that make up for lost bits. */
struct tsr_plan_stage_compensation {
    uint64_t k, bytes;  /* most channels of 1,024; residuals */
    uint64_t on_cpu;    /* of these bytes, of experts that the CPU runs, in its memory */
    uint64_t work;      /* workspace of their addition on the device, for a token of each request */
    uint32_t bits;      /* of the residuals */
    bool     assumed;   /* the model has none yet */
    bool     host;      /* they are in the host's memory, not in the device's */
    double   decode_ms; /* of a decode micro-batch; NaN: not known */
};

struct tsr_plan_outcome_stage {
    uint64_t                     first, count, group; /* layers; group of the cluster */
    struct tsr_plan_mesh         mesh;
    struct tsr_plan_stage_memory memory; /* exact, by the problem's accounting */
    /* links to the next stage; of the last one to the first, with several and the head there, else 0 */
    double pre_ms, dec_ms, link_pre_ms, link_dec_ms; /* of a micro-batch, all its chunks */
    double every_pre_ms,
        every_dec_ms; /* between two messages of the link, which overlap: at most its times (cost/latency.h) */
    double solver_pre_ms,
        solver_dec_ms; /* its one time in the solver's tables, between the two (build_options.c) */
    double rest_ms, link_rest_ms,
        every_rest_ms; /* dec_ms, link_dec_ms, every_dec_ms of the last requests that take freed slots, where
                                     these are fewer than a micro-batch (outcome_rest.c); else the same */
    double cpu_pre_ms,
        cpu_dec_ms;       /* of pre_ms and dec_ms, experts on the CPU and the way there and back */
    double         busy;  /* share of the latency */
    enum tsr_basis basis; /* of its layers, the weakest */
    bool           extrapolated;
    enum tsr_basis ends_basis; /* of embedding and head where it holds them, or basis */
    uint64_t       link, sum;  /* codecs to the next stage and of its sums, of the problem's */
    struct tsr_plan_stage_compensation compensation; /* k 0: none */
};

/* A plan in the words of the problem. */
struct tsr_plan_outcome {
    struct tsr_plan_outcome_stage *stages; /* owned, as bits */
    uint64_t                       n_stages;
    uint32_t                      *bits; /* [layers] candidates */
    uint8_t *cpu_experts;                /* [layers] 1: a CPU runs the layer's experts; owned */
    uint32_t       *
        kv; /* [layers] type of each layer's cache; what a layer without one has is as the most have; owned */
    uint32_t *k;    /* [layers] of 1,024 channels of all linears that are compensated; owned */
    uint32_t *item; /* [layers] of the build; owned */
    uint64_t  layers, prefill_mb, decode_mb;
    uint64_t  rest_mb; /* requests of rest_ms; 0: none are fewer than a micro-batch */
    double
        prefill_jobs; /* that a prefill micro-batch goes through the stages as: chunks of its prompts */
    double latency_ms; /* of the whole batch, by the form `steady` */
    double prefill_ms; /* of one round of it, until the last prompt is done */
    double tokens_per_second, omega;
    double kl, kl_half; /* of indicators by KL: nats per token, half of its interval; else NAN */
    struct tsr_plan_quality_parts parts;        /* of omega, then */
    double                        objective_ms; /* as the problem has it, of one round */
    bool goes_back;                     /* hidden rows, to a head on the first of several stages */
    struct tsr_plan_pipeline_back back; /* where they do; part of the stages' times and links */
    uint64_t                      rounds; /* batch / resident requests, rounded up */
};
void tsr_plan_outcome_free(struct tsr_plan_outcome *o);
/* The type of cache that most layers with one have; of several the first.  [any] */
uint32_t tsr_plan_outcome_kv(const struct tsr_plan_outcome *o, const struct tsr_plan_shape *s);
/* Gives layers without a cache that type. */
void tsr_plan_outcome_settle_kv(struct tsr_plan_outcome *o, const struct tsr_plan_shape *s);
/* The other types as plugin/kv_layers.h reads them, "0-3=int8,7=f16"; "" where all are alike.  Fresh memory, NULL when out
 * of it.  [any] */
char *tsr_plan_outcome_kv_layers(const struct tsr_plan_outcome *o, const struct tsr_plan_shape *s);
/* What compensation takes in a stage of `kind`, into its memory and, with k, its time. k: [layers of the stage] of linears,
 * in place of the items', whose time the solver's tables have; NULL: those.  [setup] */
tsr_status tsr_plan_outcome_compensate(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                                       uint64_t stage, uint32_t                               kind,
                                       const uint32_t (*k)[TSR_PLAN_LINEARS], struct tsr_err *err);
/* Fills in rest_ms and link_rest_ms; the stages have all else.  [setup] */
tsr_status tsr_plan_outcome_rest(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                                 uint64_t part, const struct tsr_solver_solution *s,
                                 struct tsr_err *err);
/* Fills in times, rates and busy shares from the times of the stages, by the form `steady` whatever was minimised;
 * at_once: requests that are resident.  Where more follow, each takes the slot of one that is done
 * (docs/formats/instance.md). */
void tsr_plan_outcome_time(struct tsr_plan_outcome *o, const struct tsr_plan_workload *w,
                           uint64_t at_once);
/* What a round of `steady` takes beyond what solvers have for it, whose links have one time: ms of the whole round.  at_once: as above.  [any] */
double tsr_plan_outcome_on_way(const struct tsr_plan_outcome *o, const struct tsr_plan_workload *w,
                               uint64_t at_once);
/* Layers of a stage whose experts a CPU runs, as text: "true" for all with experts, else ranges, "0-3,7", cut where they
 * are too long.  Returns how many. */
#define TSR_PLAN_RANGES 480
uint64_t tsr_plan_outcome_on_cpu(const struct tsr_plan_outcome       *o,
                                 const struct tsr_plan_outcome_stage *s,
                                 char                                 text[TSR_PLAN_RANGES]);

/* What a projected problem lacks (above). */
#define TSR_PLAN_IGNORED_WIDTHS                                                                    \
    1u /* meshes of several widths in one group, or that leave devices unused */
#define TSR_PLAN_IGNORED_CODECS 2u /* codecs of the lists but the least lossy */
#define TSR_PLAN_IGNORED_COSTS  4u /* where codecs are used: their cost is reserved */

struct tsr_plan_planned {
    uint32_t                status;           /* TSR_SOLVED_* */
    double                  objective, bound; /* bound -INFINITY: none */
    double                  over;    /* ms; with the head on the first stage: by so much at most an
                                instance's objective is above a plan's time. Of several settings, a value */
    double                  seconds; /* in solvers and tables */
    uint64_t                choices, solves, options; /* options: over all solves */
    bool                    joint;    /* widths and codecs were the solver's to choose */
    uint32_t                ignored;  /* TSR_PLAN_IGNORED_* of what the problem has; 0 with joint */
    uint64_t                settings; /* that were open (settings.h); 0: the problem's own */
    char                    solver[64], reason[640];
    struct tsr_plan_outcome outcome; /* where there is a plan */
    struct tsr_plan_built  *built;   /* the choice that won, and its instance and solution */
    uint64_t                part;
    struct tsr_solver_solution *solution;
    struct tsr_plan_lines
        *lines; /* p->lines of the search, for tsr_plan_planned_put_back() alone; NULL: none */
};

/* cutoff: only better plans matter; INFINITY: all. It and the bound are of objectives; with p->exact_ms both are of times and theta
 * omega, which may be less by `over`, and the status is of the objective still.  With p->whole it is of all rounds, like the answer's bound, and the answer has
 * no outcome, nor with less work memory than most_k needs.  TSR_OK with a status in the answer, which is freed whatever is returned; TSR_E_UNSUPPORTED for a solver that lacks a part.  [setup] */
tsr_status tsr_search(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                      const struct tsr_plugin_spec *solver, double cutoff, struct tsr_err *err);
void       tsr_plan_planned_free(struct tsr_plan_planned *a); /* zeroed or filled */
/* The same, where the lines that the search kept (lines.h), which are there yet, get its instances for their next search.  [any] */
void tsr_plan_planned_put_back(struct tsr_plan_planned *a);
/* Whether the solver gets all widths and codecs of a problem at once.  [any] */
bool tsr_search_joint(const struct tsr_plugin_spec *solver);
bool tsr_plan_planned_has_plan(const struct tsr_plan_planned *a);
/* A bound of objectives as one of times, with `over` of the search: a stage that sends rows back is at most twice as long as the
 * slower one of both.  [any] */
double tsr_plan_planned_least(double bound, double over);

/* A solution of one part in the problem's words. */
tsr_status tsr_plan_outcome_of(struct tsr_plan_outcome *o, const struct tsr_plan_built *b,
                               uint64_t part, const struct tsr_solver_solution *s,
                               struct tsr_err *err);

#endif
