/* runtime/group.h - all ranks of a job; the coordinating process starts them, sends them work and ends them.
 *
 *   layout, model --tsr_runtime_group_start--> ranks as threads or processes --tsr_runtime_group_pass--> engine/serve.h
 *
 * The coordinator cuts each batch of a slot set into micro-batches (prompts into separate micro-batches,
 * long ones into chunks), sends them to the first stage of a replica and collects logits. It never waits
 * for the pipeline to drain: several slot sets are in it concurrently.
 */
#ifndef TSR_RUNTIME_GROUP_H
#define TSR_RUNTIME_GROUP_H

#include "engine/serve.h"
#include "runtime/layout.h"
#include "runtime/page.h"

struct tsr_runtime_group;
struct tsr_engine_compensate;
struct tsr_runtime_pacing;
struct tsr_quant_scheme;

struct tsr_runtime_peers;
enum tsr_rank_kind { TSR_RUNTIME_RANKS_PROCESSES, TSR_RUNTIME_RANKS_THREADS };

struct tsr_runtime_group_options {
    enum tsr_rank_kind               ranks;
    struct tsr_plugin_run_on         on;        /* of ranks whose plan names no backend */
    const char                      *transport; /* NULL: "local" */
    uint32_t                         act, kv_dtype;
    const char                      *kv_layers; /* of the engine's options */
    uint64_t                         context;
    unsigned                         threads;     /* of one rank; 0: the machine's over the ranks */
    uint64_t                         deadline_us; /* of one wait for a peer's bytes; 0: 10 s */
    uint64_t                         stall_us;    /* without a beat of a rank that works; 0: 5 s */
    uint64_t                         spans;       /* most that are recorded of each rank; 0: none */
    const struct tsr_runtime_pacing *pacing;      /* emulated devices, or NULL */
    const struct tsr_quant_scheme   *scheme;      /* packs the model while it is loaded; or NULL */
    /* the quantization residuals of all layers; with its k for start() alone; or NULL */
    const struct tsr_engine_compensate *compensate;
    struct tsr_runtime_peers           *peers; /* every rank is a process of an MPI job; or NULL */
    uint64_t epoch; /* with peers: of the group, the same in all ranks, not 0 (rank 0's, peers.h) */
};

/* Starts all ranks and waits until each has loaded its part.  Under MPI every process calls it, starts its
 * own rank, and rank 0's waits for all.  The model (streamed, or whole) and the
 * overlay (may be NULL) must outlive it; layout is copied by reference too.  Processes are forked:
 * the caller has no work in flight on any thread.  [setup] */
tsr_status tsr_runtime_group_start(struct tsr_runtime_group **c, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   const struct tsr_runtime_layout        *layout,
                                   const struct tsr_runtime_group_options *opt,
                                   struct tsr_err                         *err);
/* Runs the rank of this process, which is not 0, under MPI: works until rank 0 ends it. */
tsr_status tsr_runtime_group_serve(struct tsr_runtime_group *c, struct tsr_err *err);
/* The forward pass of all replicas; valid until the group ends.  A rank that fails, dies or stalls is
 * an error of start() or finish() that names it. */
void tsr_runtime_group_pass(struct tsr_runtime_group *c, struct tsr_engine_pass *p);
/* Lets a server keep what slots of that pass have; else *why says why it cannot.  [worker] */
tsr_status tsr_runtime_group_pass_reuse(const struct tsr_runtime_group *c,
                                        struct tsr_engine_pass *p, const char **why,
                                        struct tsr_err *err);
/* *why says why requests through that pass can have no drafts (engine/serve.h); NULL: they can.  [worker] */
tsr_status tsr_runtime_group_drafts(const struct tsr_runtime_group *c, const char **why,
                                    struct tsr_err *err);
/* Lets all ranks end and takes their numbers; an error if one did not end well. */
tsr_status tsr_runtime_group_stop(struct tsr_runtime_group *c, struct tsr_err *err);
/* Ends and frees the remaining ranks; NULL is fine. */
void tsr_runtime_group_destroy(struct tsr_runtime_group *c);

/* The choice for a stage's sums if its plan leaves it open, once all ranks are ready; false: the plan sets
 * it. */
bool tsr_runtime_group_choice(const struct tsr_runtime_group *c, uint32_t stage, int phase,
                              const char **codec, enum tsr_comm_algorithm *algorithm);

/* The page of all ranks: progress, numbers, spans. Lives as long as the group. */
struct tsr_runtime_page *tsr_runtime_group_page(struct tsr_runtime_group *c);

#endif
