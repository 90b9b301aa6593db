/* pipeline/launch.h - the ranks of a plan, from its file to a forward pass: who computes what, how the
 * model is packed while it is loaded, devices that are emulated.
 */
#ifndef TSR_PIPELINE_LAUNCH_H
#define TSR_PIPELINE_LAUNCH_H

#include "pipeline/compensating.h"
#include "pipeline/launch_links.h"
#include "pipeline/quantize_plan.h"
#include "plan/cluster.h"
#include "runtime/crew.h"

struct tsr_launch_options {
    const char *plan;    /* file */
    const char *cluster; /* file or name, for devices that it emulates; "": none */
    const char *beside;  /* folder that its path is relative to */
    int64_t     ranks;   /* enum tsr_rank_kind */
    uint32_t    act;
    int64_t     threads;  /* of a rank; 0: the machine's over the ranks */
    uint64_t    context;  /* 0: what the plan was made for; open() puts it here */
    uint64_t    requests; /* no more slots than that */
    uint64_t    spans;    /* recorded of each rank */
    uint64_t    stall_us; /* without a beat of a rank that works; 0: 5 s */
    /* what is compensated beside or instead of what the plan says; the file of its compensate_plan where that is to
     * be opened (NULL: none); the packed folder whose residuals m takes (NULL: its own) */
    const struct tsr_compensate_keys *compensation;
    const char                       *compensate_plan, *packed;
    uint64_t                          seed;
    struct tsr_mates                 *mates; /* every rank is a process of an MPI job; or NULL */
    uint64_t                          epoch; /* with mates: crew.h */
    const json_t *links; /* what `auto` became before (launch_links.h); NULL: it is measured */
    /* calibrations of codecs that the plan names no file for; NULL: none */
    tsr_launch_find_state find_state;
    void                 *find_ctx;
};

struct tsr_launch;

/* A model that is not packed yet (no overlay, no packed weights of its own) is packed as the plan
 * says; else it stays as it is.  What is wrong with the files goes to d, and *f is NULL then.
 * [setup] */
tsr_status tsr_launch_open(struct tsr_launch **f, struct tsr_registry *r, const struct tsr_model *m,
                           const struct tsr_overlay *o, struct tsr_launch_options *opt,
                           struct tsr_diag *d, struct tsr_err *err);
/* The rank of this process, which is not 0, under MPI. */
tsr_status tsr_launch_serve(struct tsr_launch *f, struct tsr_err *err);
void       tsr_launch_pass(struct tsr_launch *f, struct tsr_pass *p);
/* Lets all ranks end. */
tsr_status                  tsr_launch_stop(struct tsr_launch *f, struct tsr_err *err);
void                        tsr_launch_close(struct tsr_launch *f); /* NULL is fine */
const struct tsr_layout    *tsr_launch_layout(const struct tsr_launch *f);
struct tsr_page            *tsr_launch_page(struct tsr_launch *f);
const struct tsr_plan_file *tsr_launch_plan(const struct tsr_launch *f);

/* What is compensated; from NULL: nothing. */
const struct tsr_compensating *tsr_launch_compensating(const struct tsr_launch *f);
/* Hashes of the calibrations of its codecs, in the order of stages; NULL: there are none. */
const json_t *tsr_launch_state_hashes(const struct tsr_launch *f);
/* What `auto` became in this run, new reference; *links NULL where there is none, or it was given. */
tsr_status tsr_launch_links(const struct tsr_launch *f, json_t **links, struct tsr_err *err);

/* How many times slower than the real ones emulated devices are; 1. */
double tsr_launch_slower(const struct tsr_launch *f);

extern const struct tsr_choice tsr_rank_kind_choices[2];

#endif
