/* runtime/layout.h - who computes what: ranks numbered replica, stage, then tensor-parallel rank.
 *
 *   plan file --tsr_layout_plan--> struct tsr_layout;  or tsr_layout_even() without a plan
 *
 * Rank 0 belongs to the process that coordinates: it cuts text into tokens and samples.  Within a stage,
 * rank 0 of it holds the embedding (first stage) and the head (last stage, or the first one: then what
 * the last stage's rank 0 computed of the wanted tokens comes back to it, and no logits travel).
 */
#ifndef TSR_RUNTIME_LAYOUT_H
#define TSR_RUNTIME_LAYOUT_H

#include "comm/coder.h"
#include "model/model.h"
#include "plan/plan_file.h"

#define TSR_MAX_RANKS 1024u
/* What plan files said before November 2026 where there was no codec.  It means "plain": F32, exact. */
#define TSR_WIRE_16 "f16"

struct tsr_layout_stage {
    uint64_t first, end; /* layers */
    uint32_t ranks;      /* that share each of them */
    /* codec to the next stage, of the last one to the head if that is on the first; owned; NULL: "plain",
     * exact */
    char *send[TSR_PHASES];
    char *collective[TSR_PHASES]; /* codec inside; as above */
    char *algorithm[TSR_PHASES];  /* inside; NULL: all-gather, or auto with codec auto */
    /* calibration of the codec inside, tsr_comm_way.states; borrowed; NULL: none */
    const struct tsr_comm_state *states[TSR_PHASES];
    uint64_t                     n_states[TSR_PHASES];
    char *send_over, *collective_over; /* transport; NULL: that of the crew */
};

struct tsr_layout {
    uint32_t                 replicas, n_stages;
    bool                     head_first; /* the head is on the first stage */
    struct tsr_layout_stage *stages;     /* of one replica; owned */
    /* requests resident at once, and how many of them go together */
    uint32_t slots, prefill_mb, decode_mb;
    uint64_t chunk;   /* most tokens of a prompt at once; 0: all */
    uint64_t forward; /* most tokens of an engine's forward; 0: its own choice */
    /* [ranks] what each runs on, "cuda:device=1"; owned; NULL, or NULL in it: what the job says */
    char **backends;
};

/* Where a rank stands. */
struct tsr_place {
    uint32_t rank, replica, stage, tp;
    uint64_t first, end;
    bool     embed, head;
    bool     last; /* rank 0 of the last stage: hands on what is wanted */
    bool     back; /* has the head, and is not last: rows come back to it */
};

/* Layers evenly over `stages` stages of `ranks` ranks each; portions as given, 0: all slots. */
tsr_status tsr_layout_even(struct tsr_layout *l, const struct tsr_hparams *hp, uint32_t replicas,
                           uint32_t stages, uint32_t ranks, uint32_t slots, struct tsr_err *err);
/* As a plan says; `requests`: no more slots than that (0: as the plan has them).  A plan without places,
 * or of another number of layers, is TSR_E_INPUT. */
tsr_status tsr_layout_plan(struct tsr_layout *l, const struct tsr_plan_file *p,
                           const struct tsr_hparams *hp, uint64_t requests, struct tsr_err *err);
void       tsr_layout_free(struct tsr_layout *l); /* zeroed or filled */

/* Whether codec or algorithm inside of a stage is left open: `auto`. */
bool tsr_layout_open(const struct tsr_layout *l, uint32_t stage, int phase);
/* Fixes it. */
tsr_status tsr_layout_fix(struct tsr_layout *l, uint32_t stage, int phase, const char *codec,
                          const char *algorithm, struct tsr_err *err);

/* What a rank runs on; NULL: what the job says. */
const char *tsr_layout_backend(const struct tsr_layout *l, uint32_t rank);

uint32_t         tsr_layout_ranks(const struct tsr_layout *l);
struct tsr_place tsr_layout_place(const struct tsr_layout *l, uint32_t rank);
uint32_t tsr_layout_rank(const struct tsr_layout *l, uint32_t replica, uint32_t stage, uint32_t tp);
/* Decode micro-batches of all replicas, and slots that each engine of a replica needs. */
uint32_t tsr_layout_lanes(const struct tsr_layout *l);
uint32_t tsr_layout_engine_slots(const struct tsr_layout *l);

#endif
