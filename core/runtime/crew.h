/* runtime/crew.h - all ranks of a job, started, fed and ended by the process that coordinates.
 *
 *   layout, model --tsr_crew_start--> ranks as threads or processes --tsr_crew_pass--> engine/serve.h
 *
 * The coordinator cuts each batch of a lane into micro-batches (prompts into portions of their own,
 * long ones into chunks), sends them to the first stage of a replica and collects logits.  It never
 * waits for the pipeline to drain: lanes are in it at the same time.
 */
#ifndef TSR_RUNTIME_CREW_H
#define TSR_RUNTIME_CREW_H

#include "engine/serve.h"
#include "runtime/layout.h"
#include "runtime/page.h"

struct tsr_crew;
struct tsr_engine_compensate;
struct tsr_pacing;
struct tsr_scheme;

struct tsr_mates;
enum tsr_rank_kind { TSR_RANKS_PROCESSES, TSR_RANKS_THREADS };

struct tsr_crew_options {
    enum tsr_rank_kind       ranks;
    const char              *backend;   /* NULL: "cpu" */
    const char              *transport; /* NULL: "local" */
    uint32_t                 act, kv_dtype;
    uint64_t                 context;
    unsigned                 threads;     /* of one rank; 0: the machine's over the ranks */
    uint64_t                 deadline_us; /* of one wait for a peer's bytes; 0: 10 s */
    uint64_t                 stall_us;    /* without a beat of a rank that works; 0: 5 s */
    uint64_t                 spans;       /* most that are recorded of each rank; 0: none */
    const struct tsr_pacing *pacing;      /* emulated devices, or NULL */
    const struct tsr_scheme *scheme;      /* packs the model while it is loaded; or NULL */
    /* what quantization lost, of all layers; with its k for start() alone; or NULL */
    const struct tsr_engine_compensate *compensate;
    struct tsr_mates                   *mates; /* every rank is a process of an MPI job; or NULL */
    uint64_t epoch; /* with mates: of the group, the same in all ranks, not 0 (rank 0's, mates.h) */
};

/* Starts all ranks and waits until each has loaded its part.  Under MPI every process calls it, starts its
 * own rank, and rank 0's waits for all.  The model (streamed, or whole) and the
 * overlay (may be NULL) must outlive it; layout is copied by reference too.  Processes are forked:
 * the caller has no work in flight on any thread.  [setup] */
tsr_status tsr_crew_start(struct tsr_crew **c, struct tsr_registry *r, const struct tsr_model *m,
                          const struct tsr_overlay *o, const struct tsr_layout *layout,
                          const struct tsr_crew_options *opt, struct tsr_err *err);
/* The rank of this process, which is not 0, under MPI: works until rank 0 lets it end. */
tsr_status tsr_crew_serve(struct tsr_crew *c, struct tsr_err *err);
/* The forward pass of all replicas; valid until the crew ends.  A rank that fails, dies or stalls is
 * an error of start() or finish() that names it. */
void tsr_crew_pass(struct tsr_crew *c, struct tsr_pass *p);
/* Lets all ranks end and takes their numbers; an error if one did not end well. */
tsr_status tsr_crew_stop(struct tsr_crew *c, struct tsr_err *err);
/* Ends what is left; NULL is fine. */
void tsr_crew_destroy(struct tsr_crew *c);

/* What a stage's sums go by where its plan leaves that open, once all ranks are ready; false: it says. */
bool tsr_crew_choice(const struct tsr_crew *c, uint32_t stage, int phase, const char **codec,
                     enum tsr_comm_algorithm *algorithm);

/* The page of all ranks: progress, numbers, spans.  Lives as long as the crew. */
struct tsr_page *tsr_crew_page(struct tsr_crew *c);

#endif
