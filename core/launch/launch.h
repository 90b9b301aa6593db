/* launch/launch.h - the ranks of a plan, from its file to a forward pass: assignment of layers to ranks,
 * packing of the model during load, emulated devices.
 */
#ifndef TSR_LAUNCH_LAUNCH_H
#define TSR_LAUNCH_LAUNCH_H

#include "launch/links.h"
#include "pipeline/compensating.h"
#include "pipeline/quantize_plan.h"
#include "plan/cost/cluster.h"
#include "runtime/group.h"

struct tsr_launch_options {
    const char *plan; /* file */
    const char *
        original; /* model that the job packed m from, and the plan is for; NULL: the plan is for m */
    const char              *cluster; /* file or name, for devices that it emulates; "": none */
    const char              *beside;  /* folder that its path is relative to */
    int64_t                  ranks;   /* enum tsr_rank_kind */
    uint32_t                 act;
    struct tsr_plugin_run_on on;
    int64_t                  threads;  /* of a rank; 0: the machine's over the ranks */
    uint64_t                 context;  /* 0: the plan's own; open() stores it here */
    uint64_t                 requests; /* no more slots than that */
    uint64_t                 spans;    /* recorded of each rank */
    uint64_t                 stall_us; /* without a beat of a rank that works; 0: 5 s */
    /* compensation in addition to or instead of the plan's; the file of its compensate_plan if that must
     * be opened (NULL: none); the packed folder whose residuals m takes (NULL: its own) */
    const struct tsr_pipeline_compensate_keys *compensation;
    const char                                *compensate_plan, *packed;
    uint64_t                                   seed;
    struct tsr_runtime_peers *peers; /* every rank is a process of an MPI job; or NULL */
    uint64_t                  epoch; /* with peers: runtime/group.h */
    const json_t             *links; /* earlier choices of `auto` (links.h); NULL: measure them */
    /* calibrations of codecs that the plan names no file for; NULL: none */
    tsr_launch_find_state find_state;
    void                 *find_ctx;
};

struct tsr_launch;

/* Packs the model as the plan says if it is not packed yet (no overlay, no packed weights); otherwise
 * leaves it as it is. Errors of the files go to d, and *f is then NULL. [setup] */
tsr_status tsr_launch_open(struct tsr_launch **f, struct tsr_registry *r, const struct tsr_model *m,
                           const struct tsr_model_overlay *o, struct tsr_launch_options *opt,
                           struct tsr_diag *d, struct tsr_err *err);
/* The rank of this process, which is not 0, under MPI. */
tsr_status tsr_launch_serve(struct tsr_launch *f, struct tsr_err *err);
void       tsr_launch_pass(struct tsr_launch *f, struct tsr_engine_pass *p);
/* tsr_runtime_group_pass_reuse() */
tsr_status tsr_launch_pass_reuse(struct tsr_launch *f, struct tsr_engine_pass *p, const char **why,
                                 struct tsr_err *err);
/* tsr_runtime_group_drafts() */
tsr_status tsr_launch_drafts(const struct tsr_launch *f, const char **why, struct tsr_err *err);
/* Lets all ranks end. */
tsr_status                       tsr_launch_stop(struct tsr_launch *f, struct tsr_err *err);
void                             tsr_launch_close(struct tsr_launch *f); /* NULL is fine */
const struct tsr_runtime_layout *tsr_launch_layout(const struct tsr_launch *f);
struct tsr_runtime_page         *tsr_launch_page(struct tsr_launch *f);
const struct tsr_plan_file      *tsr_launch_plan(const struct tsr_launch *f);

/* The compensation in use; from NULL: none. */
const struct tsr_pipeline_compensating *tsr_launch_compensating(const struct tsr_launch *f);
/* Hashes of the calibrations of its codecs, in the order of stages; NULL: there are none. */
const json_t *tsr_launch_state_hashes(const struct tsr_launch *f);
/* What `auto` became in this run, new reference; *links NULL where there is none, or it was given. */
tsr_status tsr_launch_links(const struct tsr_launch *f, json_t **links, struct tsr_err *err);

/* How many times slower than the real ones emulated devices are; 1. */
double tsr_launch_slower(const struct tsr_launch *f);

extern const struct tsr_choice tsr_rank_kind_choices[2];

#endif
